"""The tests of roofcast, one file a module."""
