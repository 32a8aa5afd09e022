"""How fast estimates are: 10,000 of model x GPU x batch x context through the Python API, in CPU seconds.

Run with the interpreter that has roofcast installed: `.venv/bin/python benchmarks/estimates.py`. Reading a config and
preparing a deployment are counted, once for each model and GPU; every estimate is all of its terms. With fitted constants
an estimate is its bound, its expected time and its interval; what that costs is printed beside it, as a ratio.
"""

from __future__ import annotations

import time
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, Final

from roofcast.calculators.deployment import Deployment, prepare
from roofcast.calculators.expected.expectation import expectation_of
from roofcast.calculators.phases import answer_point, asked_of
from roofcast.hwdb.lookup import find_accelerator
from roofcast.modelspec.formats import FORMATS
from roofcast.modelspec.model import load_model
from roofcast.modelspec.sharding import Shards
from roofcast.modelspec.source import resolve
from roofcast.modelspec.step import DECODE

if TYPE_CHECKING:
    from roofcast.hwdb.accelerator import Accelerator

MODELS = ("llama-3.1-8b", "qwen2.5-1.5b", "llama-3.3-70b", "qwen3-30b-a3b", "deepseek-v3", "gpt-oss-120b", "gemma-3-27b-it", "qwen3-next-80b-a3b")  # fmt: skip
GPUS = ("a100-80gb-sxm", "h100-sxm", "h200-sxm", "b200", "mi300x")
BATCHES = (1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 160, 192, 256, 384, 512)
CONTEXTS = (128, 256, 512, 1024, 2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152, 65536, 131072)
LIMIT = 5.0  # CPU seconds for 10,000


RATIO: Final = 1.5  # of an estimate with constants to one without


def spent(*, expecting: bool) -> tuple[float, int, int]:
    """CPU seconds, estimates, and terms of all of them. [s]"""
    asked = asked_of((DECODE,), BATCHES, CONTEXTS)
    count, terms, start = 0, 0, time.process_time()
    for name in MODELS:
        model = load_model(resolve(name, offline=True))
        for accelerator in accelerators():
            ready = prepare(model, Deployment(accelerator, FORMATS["bf16"], shards=Shards(tp=4)))
            if expecting:
                ready = replace(ready, expectation=expectation_of(accelerator, "vllm", ready.roofs))
            for one in asked:
                point = answer_point(ready, one)
                _ = point.bound, point.expected, point.interval
                count, terms = count + 1, terms + len(point.work.terms)
    return time.process_time() - start, count, terms


@cache
def accelerators() -> tuple[Accelerator, ...]:
    """The GPUs, read once."""
    return tuple(find_accelerator(name).accelerator for name in GPUS)


def main() -> None:
    """Prints the CPU time of 10,000 estimates, its ratio to the limit, and what constants cost."""
    spent(expecting=True)  # what is read once is read now
    seconds, count, terms = spent(expecting=False)
    more = spent(expecting=True)[0]
    each = seconds * 10_000 / count
    print(f"{count:,} estimates, {terms / count:.0f} terms each: {each:.2f} CPU s for 10,000")
    print(f"{each / LIMIT:.2f} of the {LIMIT:.0f} s that they may take")
    print(f"with constants {more / seconds:.2f}x of that; it may be {RATIO}x")


if __name__ == "__main__":
    main()
