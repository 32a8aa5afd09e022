"""roofcast.profiler."""
