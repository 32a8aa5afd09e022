"""What changed from one vLLM to the next in how it counts memory: one row a version, and the row that a version has."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from roofcast.calculators.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

Version = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class VllmRules:
    """The rules of one version.

    Args:
        since: the first version that has them.
        engine: V0 profiles a whole prompt of the longest length; V1 a chunk.
        utilization: default of --gpu-memory-utilization. [-]
        row_bytes: bytes a logit takes beyond its own while the profile's rows are sampled. [B]
        graphs: whether an estimate of CUDA graphs is taken off the cache.
        counts_requests: whether the tokens line is concurrency times the longest request, and not blocks over groups.
        in_flight: steps whose tokens a window layer keeps beside the window.
        drafted_blocks: whether every drafted token takes a block of a recurrent layer.
        state_mode: default of --mamba-cache-mode; with --enable-prefix-caching it is align.
        chunked_whole: whether chunked attention keeps all tokens, the hybrid manager being off for it.
        small_rows: --max-num-seqs by default on devices below 70 GiB.
        shared_workspace: whether experts' intermediate results stay allocated beside the sampler's.
        reserved: memory that the allocator keeps of weights' loading, counted as used, as a share of the weights, where
            devices share layers. [-]
        latent: whether MLA's latent is cached, and not keys and values of every head.
        second_runner: classes that the second model runner serves, which samples in place and estimates no graphs.
        dense_runner: whether it serves every dense model without recurrent layers or towers too.
    """

    since: Version
    engine: str = "V1"
    utilization: float = 0.90
    row_bytes: float = 36.0
    graphs: bool = False
    counts_requests: bool = False
    in_flight: int = 1
    drafted_blocks: bool = False
    state_mode: str = "none"
    chunked_whole: bool = False
    small_rows: int = 256
    shared_workspace: bool = False
    reserved: float = 0.0
    latent: bool = False
    second_runner: frozenset[str] = frozenset()
    dense_runner: bool = False


def _rows() -> tuple[VllmRules, ...]:
    """Every row, oldest first; each has what the one before has but for what it names."""
    rows = [VllmRules((0,), engine="V0")]
    for since, change in CHANGES.items():
        rows.append(replace(rows[-1], since=since, **change))
    return tuple(rows)


# Sources: logs that https://github.com/llm-d-incubation/llm-d-planner collects (0.11, 0.15 to 0.19); a 0.24 measured on an
# H200; vllm-project/vllm, pull requests 2031 (0.2.5 counts what the allocator reserves: Llama 2 70B on 4 A100 lost 13 GiB),
# 9352 (0.6.4), 30877 (blocks of drafted tokens), 43308 (the tokens line), 44443 (the second runner) and 50991 (prefix
# caching of hybrids by default), issues 2136, 5248, 17122, 40691, 49878 and 54458.
CHANGES: Final[Mapping[Version, Mapping[str, Any]]] = {
    (0, 2, 5): {"reserved": 0.57},
    (0, 6, 4): {"reserved": 0.0},
    (0, 7): {"latent": True},
    (0, 8): {"engine": "V1", "small_rows": 1024},
    (0, 9): {"small_rows": 256},
    (0, 10): {"chunked_whole": True},
    (0, 12): {"shared_workspace": True},
    (0, 14): {"chunked_whole": False},
    (0, 15): {"drafted_blocks": True},
    (0, 17): {"row_bytes": 12.5},
    (0, 20, 1): {"counts_requests": True},
    (0, 21): {"graphs": True},
    (0, 23): {"second_runner": frozenset({"llama", "deepseek_v2"})},
    (0, 24): {"utilization": 0.92},
    (0, 25): {"dense_runner": True},
    (0, 26): {"in_flight": 2},
    (0, 28): {"state_mode": "align"},
}
ROWS: Final = _rows()
NEWEST: Final = (0, 28)
_VERSION: Final = r"v?(\d{1,4}(?:\.\d{1,5}){0,3})(?:[.\-+]?(?:rc|dev|post|a|b|x)[\w.+\-]*|\+[\w.]+)?"


def parse_version(text: str) -> Version:
    """The numbers of a version, `0.19.0`, `v0.20.2rc1` or `0.11.x`.

    Raises:
        UsageError: it is none.

    >>> parse_version("v0.20.2rc1.dev249"), parse_version("0.11.x")
    ((0, 20, 2), (0, 11))
    """
    match = re.fullmatch(_VERSION, text.strip())
    if match is None:
        raise UsageError(f"--engine-version {text}: it is no version; write it like 0.19.0")
    return tuple(map(int, match[1].split(".")))


def rules_of(text: str | None) -> tuple[VllmRules, str, str | None]:
    """The rules of a version, the version as shown, and what was assumed: the nearest row where it is not known.

    >>> rules_of("0.19.0")[0].row_bytes, rules_of("0.16.1")[0].row_bytes
    (12.5, 36.0)
    """
    newest = ".".join(map(str, NEWEST))
    if text is None:
        return ROWS[-1], newest, f"--engine-version is not given: the rules of vLLM {newest}, the newest known"
    version = parse_version(text)
    rules = next(row for row in reversed(ROWS) if row.since <= version)
    shown = ".".join(map(str, version))
    beyond = version[: len(NEWEST)] > NEWEST
    said = f"vLLM {shown} is newer than any whose rules are known; those of {newest} are taken" if beyond else None
    return rules, shown, said
