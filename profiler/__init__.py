"""Measurements and checks on the local machine; what needs torch."""
