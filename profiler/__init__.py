"""Measurements on the local machine; empty until it comes."""
