"""What each serving engine makes of a GPU's memory: its budget term by term, and the cache that is left."""
