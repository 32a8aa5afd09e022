"""Laws that hold for generated input."""
