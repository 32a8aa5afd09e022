"""roofcast.calculators."""
