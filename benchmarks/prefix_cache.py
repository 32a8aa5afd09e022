"""How fast prefix caches are and what they find: microseconds an id and hit rates by capacity, over a trace with ids.

usage: prefix_cache.py TRACE [--block TOKENS] [--running N] [--runs N]

TRACE is JSON lines with `input_length` and `hash_ids` of 512 tokens each, as Mooncake publishes them. Every request is
matched, taken, room is made for it, and it is released when as many others came as --running says. Times are CPU seconds,
the least of the runs; reading the trace is not in them.
"""

from __future__ import annotations

import argparse
import json
import time
from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING, Final

from roofcast.calculators.serving.prefix import BlockCache
from roofcast.calculators.serving.radix import RadixCache

if TYPE_CHECKING:
    from roofcast.calculators.serving.prefix import Lease, Runs

ID: Final = 512  # [token]
CACHES: Final[dict[str, type[Runs]]] = {"blocks": BlockCache, "radix": RadixCache}
#: Tokens of memory; None has no end.
ROOMS: Final = (None, 30_000_000, 10_000_000, 3_000_000, 1_000_000, 300_000)

Prompt = tuple[tuple[int, ...], int]


def read(path: Path) -> list[Prompt]:
    """Ids and tokens of each prompt."""
    rows = (json.loads(line) for line in path.read_text().splitlines())
    return [(tuple(row["hash_ids"]), row["input_length"]) for row in rows]


def replay(cache: Runs, trace: list[Prompt], room: int, running: int) -> tuple[int, int, float]:
    """Tokens and ids found, and CPU seconds."""
    leases: deque[Lease] = deque()
    tokens = ids = 0
    began = time.process_time()
    for hashes, prompt in trace:
        lease = cache.take(cache.match(hashes, prompt))
        cache.trim(max(room - cache.held, 0))
        tokens += lease.hit_tokens
        ids += lease.hit_ids
        leases.append(lease)
        if len(leases) > running:
            cache.release(leases.popleft())
    return tokens, ids, time.process_time() - began


def main() -> None:
    """Prints a row for each cache and capacity."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trace", type=Path)
    parser.add_argument("--block", type=int, default=16, help="tokens of a pool block")
    parser.add_argument("--running", type=int, default=8, help="requests that run beside the one that comes")
    parser.add_argument("--runs", type=int, default=3)
    asked = parser.parse_args()
    trace = read(asked.trace)
    prompts, ids = sum(prompt for _, prompt in trace), sum(len(hashes) for hashes, _ in trace)
    print(f"{asked.trace.name}: {len(trace)} requests, {prompts} tokens, {ids} ids")
    print(f"{'cache':8}{'tokens of room':>16}{'tokens found':>14}{'ids found':>11}{'us/id':>8}{'us/request':>12}")
    for name, make in CACHES.items():
        for room in ROOMS:
            blocks = prompts if room is None else room // asked.block
            rows = [replay(make(ID, asked.block), trace, blocks, asked.running) for _ in range(asked.runs)]
            (found, known, _), seconds = rows[0], min(row[-1] for row in rows)
            print(
                f"{name:8}{room or 'no end':>16}{found / prompts:>14.1%}{known / ids:>11.1%}"
                f"{seconds / ids * 1e6:>8.2f}{seconds / len(trace) * 1e6:>12.1f}"
            )


if __name__ == "__main__":
    main()
