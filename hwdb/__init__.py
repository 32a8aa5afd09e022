"""roofcast.hwdb."""
