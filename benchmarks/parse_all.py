"""How long it takes to parse and count a folder of configs, in CPU seconds, in one process.

Run with the interpreter that has roofcast installed: `.venv/bin/python benchmarks/parse_all.py [FOLDER] [RUNS]`. Every
`config.json` below FOLDER is read, built, and its parameters and state at 128k tokens are counted; without FOLDER the
fixtures of the tests are.
"""

from __future__ import annotations

import sys
import time
from collections import Counter
from pathlib import Path

from roofcast.modelspec.errors import ModelError
from roofcast.modelspec.spec import build_spec
from roofcast.modelspec.strictjson import read_object

FIXTURES = Path(__file__).resolve().parents[1] / "tests" / "fixtures" / "configs"
PER = 138  # configs that the printed figure is of
LIMIT = 2.0  # [s]
CONTEXT = 131_072  # [token]


def outcome(path: Path) -> str:
    """Parse and count one config; return what came of it."""
    try:
        spec = build_spec(read_object(path.read_bytes(), path.name))
        state = sum(count * part.elements * part.entries(CONTEXT) for part, count in spec.kept.items())
    except ModelError as error:
        return type(error).__name__
    return "answered" if spec.parameters and spec.active_parameters and state >= 0 else "empty"


def main() -> None:
    """Print the time of the quickest run and what came of the configs."""
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else FIXTURES
    runs = int(sys.argv[2]) if len(sys.argv) > 2 else 5
    paths = sorted(folder.rglob("config.json")) or sorted(folder.glob("*.json"))
    if not paths:
        raise SystemExit(f"{folder} has no config.json")
    times, found = [], Counter[str]()
    for _ in range(runs):
        start = time.process_time()
        found = Counter(map(outcome, paths))
        times.append(time.process_time() - start)
    first, best = (seconds * PER / len(paths) for seconds in (times[0], min(times)))
    verdict = "within" if first <= LIMIT else "OVER"
    print(f"{len(paths)} configs: {', '.join(f'{count} {name}' for name, count in found.most_common())}")
    print(f"{first:.2f} CPU s for {PER} configs at first, {best:.2f} at best of {runs} ({verdict} {LIMIT:g} s)")


if __name__ == "__main__":
    main()
