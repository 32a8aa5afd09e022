"""A service: requests that come, wait, are read and answered, by the time of each step."""
