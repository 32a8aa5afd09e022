"""What a fit gives: constants of one family and format on one accelerator and engine, and how well they do."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace, RawDescriptionHelpFormatter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import expm1, nan
from pathlib import Path
from statistics import median

from roofcast.profiler import fitting
from roofcast.profiler.fitting import quantile

__all__ = ("Fitted", "asked_of", "errors", "parser_of", "quantile", "spread", "transferred")


@dataclass(frozen=True, slots=True)
class Fitted:
    """Constants, and their score.

    Args:
        accelerator, engine: ids, as `h200-sxm` and `vllm`.
        family: gemm, moe, attn_prefill, attn_decode, collective (pattern in `format`).
        format: that the operation multiplies in; of attention that of the cache.
        constants: by name.
        rows: that were fitted.
        spread: standard deviation of ln(measured / expected) over rows kept out of a fit of the other half. [-]
        median_in, median_out: median |expected / measured - 1| of rows fitted, and of the rows kept out (2-fold). [-]
        p90_out: 90th percentile of the latter. [-]
        excluded: rule -> rows that it kept out.
        source: files of the data that were read.
    """

    accelerator: str
    engine: str
    family: str
    format: str
    constants: Mapping[str, float]
    rows: int
    spread: float
    median_in: float
    median_out: float
    p90_out: float
    excluded: Mapping[str, int] = field(default_factory=dict)
    source: tuple[str, ...] = ()


def errors(logs: Iterable[float]) -> list[float]:
    """|expected / measured - 1| of ln(expected / measured), in order."""
    return sorted(abs(expm1(x)) for x in logs)


def spread(logs: Iterable[float]) -> float:
    """That of the profiler's fits; not a number of no rows."""
    every = list(logs)
    return fitting.spread(every) if every else nan


def transferred(way: str, logs: Sequence[float]) -> str:
    """A line that says what constants of another table do: median error, bias and spread of ln(expected / measured).

    >>> transferred("a -> b", [0.0, 0.1, 0.2])
    'a -> b: median 10.5%, bias +10.0%, spread 0.078'
    """
    return f"{way}: median {median(errors(logs)):.1%}, bias {median(logs):+.1%}, spread {spread(logs):.3f}"


def parser_of(doc: str | None) -> ArgumentParser:
    """The options that every fit has."""
    parser = ArgumentParser(description=doc, formatter_class=RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder of measurements")
    return parser


def asked_of(parser: ArgumentParser, needed: str, arguments: Sequence[str] | None = None) -> Namespace:
    """What was asked; where --data is no folder that holds `needed` one line on stderr, and exit code 2."""
    asked = parser.parse_args(arguments)
    if not (asked.data / needed).exists():
        parser.exit(2, f"{parser.prog}: --data {asked.data}: no folder with {needed}\n")
    return asked
