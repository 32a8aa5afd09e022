"""Models: what config.json and weight headers say, as parameters, state and work."""
