"""The time that is expected of an operation: the roofline with fitted constants, and the physics they stand for."""
