"""What a spread grows by where constants are another machine's, another engine's, or another format's.

Every table is scored with the constants of every other one of its family; of each way in which the two differ, what the
spread about the bound's own grows by is the median over tables of sqrt(w^2 - w0^2), w and w0 the widths whose 80 % interval
holds 80 % of |ln(expected / measured)| with the other's constants and with its own.
"""

from __future__ import annotations

import math
from collections import defaultdict
from statistics import median
from typing import TYPE_CHECKING, Any, Final

import fit_attention
import fit_gemm
from fitted import quantile

from roofcast.calculators.expected.gemm import GemmConstants
from roofcast.calculators.expected.interval import Z80
from roofcast.hwdb.efficiency_files import ALIKE, hardware
from roofcast.hwdb.lookup import find_accelerator
from roofcast.modelspec.op import GEMM

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from fitted import Fitted

STRIDE: Final = 7  # of a table's rows
UNSEEN: Final = 1.5  # of what the nearest way adds that was seen, for a way that no two tables differ in


def width(logs: Sequence[float]) -> float:
    """The spread whose 80 % interval about 0 holds 80 % of these. [-]

    >>> round(width([0.1, -0.2, 0.3, -0.4, 1.0]) * 1.2815515594457831, 3)
    1.0
    """
    return quantile(sorted(map(abs, logs)), 0.8) / Z80


Scored = tuple[str, str, str, str, "Callable[[Fitted], list[float]]"]


def tables(data: Path) -> Iterator[Scored]:
    """Accelerator, engine, family and format of each table, and ln(expected / measured) of its rows by constants."""
    for name in fit_gemm.TABLES:
        for table in fit_gemm.read(data, name):
            if not table.floor:
                number_format, engine = fit_gemm.FORMATS[table.dtype].name, fit_gemm.ENGINES[table.framework]
                yield table.accelerator, engine, GEMM, number_format, _gemm(table)
    for name in fit_attention.TABLES:
        for family in fit_attention.KINDS:
            for one in fit_attention.read(data, name, family):
                yield one.accelerator, one.engine, one.family, one.format, _attention(one)


def _gemm(table: fit_gemm.Table) -> Callable[[Fitted], list[float]]:
    return lambda one: fit_gemm.logs(table.rows[::STRIDE], table.limits, GemmConstants(**one.constants))


def _attention(table: fit_attention.Table) -> Callable[[Fitted], list[float]]:
    make = fit_attention.KINDS[table.family][0]
    return lambda one: fit_attention.logs(table.rows[::STRIDE], table, make(**one.constants))


def way(table: Sequence[Any], other: Fitted) -> str | None:
    """The one way in which constants are not a table's own; None where there is none, or more than one."""
    accelerator, engine, _, number_format = table[:4]
    ways = []
    if accelerator != other.accelerator:
        found = hardware(find_accelerator(accelerator).accelerator, other.accelerator)
        ways.append(found[0] if found else "hardware")
    if engine != other.engine:
        ways.append("alike" if any({engine, other.engine} <= row for row in ALIKE) else "other")
    if number_format != other.format:
        ways.append("format")
    return ways[0] if len(ways) == 1 else None


def fit(data: Path, found: Sequence[Fitted]) -> dict[str, float]:
    """Way -> what the spread grows by; of ways that nothing was measured of, more than of the nearest that was."""
    grown: defaultdict[str, list[float]] = defaultdict(list)
    for table in tables(data):
        _, _, family, _, logs = table
        own = next((o for o in found if way(table, o) is None and o.family == family and _same(table, o)), None)
        if own is None:
            continue
        least = width(logs(own))
        for other in found:
            how = way(table, other) if other.family == family else None
            if how is not None and (how != "format" or family == GEMM):
                grown[how].append(math.sqrt(max(0.0, width(logs(other)) ** 2 - least**2)))
    made = {how: median(values) for how, values in sorted(grown.items())}
    print({how: (len(values), round(median(values), 3)) for how, values in grown.items()})
    made["hardware"] = max(made.get("hardware", 0.0), UNSEEN * made["memory"])
    made["other"] = max(made.get("other", 0.0), UNSEEN * made["alike"])
    made["kind"] = made["format"]  # attention that no table is of: as far off as another format, until one is
    return {"class": 0.0, **made}


def _same(table: Sequence[Any], one: Fitted) -> bool:
    return (one.accelerator, one.engine, one.format) == (table[0], table[1], table[3])
