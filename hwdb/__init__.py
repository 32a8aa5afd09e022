"""Accelerators: what vendors and drivers say, in SI units."""
