"""roofcast.modelspec."""
