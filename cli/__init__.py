"""roofcast.cli."""
