"""The command line: every command parses, calls and prints."""

from __future__ import annotations

import gc

# A command is a short process whose imports make many lasting objects; collecting among them costs 5 % of its time.
gc.set_threshold(200_000, 20, 50)
