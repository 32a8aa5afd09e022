"""`python -m roofcast` does what the console script does."""

from __future__ import annotations

from roofcast.cli.app import main

if __name__ == "__main__":
    main()
