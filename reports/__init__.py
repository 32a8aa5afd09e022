"""roofcast.reports."""
