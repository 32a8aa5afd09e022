"""From measured exchanges to rows: rates, the least time of the data sheet's links, expected times, latency and bandwidth."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from roofcast.calculators.expected.expectation import expectation_of
from roofcast.calculators.parallel import EVERY, HOP, HOST, NETWORK, Fabric, Level, exchange_cost, fabric_of
from roofcast.calculators.profile_making import share, time_row
from roofcast.calculators.profile_rows_ranks import CollectivesRow, ExchangeRow, LinkRow
from roofcast.calculators.roofline import roofs_of
from roofcast.hwdb.efficiency_files import OWN
from roofcast.modelspec.op import ALL_GATHER, ALL_REDUCE, ALL_TO_ALL, POINT_TO_POINT, REDUCE_SCATTER, Exchange

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from roofcast.calculators.expected.expectation import Expectation
    from roofcast.calculators.profiled import Sample
    from roofcast.calculators.profiled_ranks import Exchanged, RankGroup
    from roofcast.hwdb.accelerator import Accelerator

#: pattern -> share of its payload that a rank of n has to send, whatever the way: `bus_bytes`
BUS: Final[Mapping[str, Callable[[int], float]]] = {
    ALL_REDUCE: lambda n: 2 * (n - 1) / n,
    ALL_GATHER: lambda n: (n - 1) / n,
    REDUCE_SCATTER: lambda n: (n - 1) / n,
    ALL_TO_ALL: lambda n: (n - 1) / n,
    POINT_TO_POINT: lambda _: 1.0,
}
DIRECT: Final = "nccl"  # the backend that exchanges over the links of data sheets; gloo goes through the hosts
NET: Final = "network"
LEAST_SIZES: Final = 2  # that tell latency from bandwidth


@dataclass(frozen=True, slots=True)
class Links:
    """What measured exchanges are held against.

    Args:
        ranks: that take part.
        fabric: links of the data sheet between them; None where there are none, or exchanges do not go over them.
        expectation: fitted constants; None likewise.
    """

    ranks: int
    fabric: Fabric | None = None
    expectation: Expectation | None = None


@dataclass(frozen=True, slots=True)
class Line:
    """Times as a line over bytes: t = latency + moved / bandwidth.

    Args:
        latency: of no bytes. [s]
        bandwidth: of each further byte; None where times do not grow. [B/s]
        worst: the largest |fitted / measured - 1|. [-]
    """

    latency: float
    bandwidth: float | None
    worst: float


def bus_bytes(pattern: str, payload: float, ranks: int) -> float:
    """Bytes that a rank has to send, whatever the way; over the time this is nccl-tests' bus bandwidth. [B]

    2 (n - 1) / n s of an all-reduce, (n - 1) / n s of all-gather, reduce-scatter and all-to-all, s of point to point.

    Source: NVIDIA/nccl-tests, doc/PERFORMANCE.md, Bandwidth.

    >>> bus_bytes("all_reduce", 8e6, 8), bus_bytes("all_gather", 8e6, 8), bus_bytes("point_to_point", 8e6, 8)
    (14000000.0, 7000000.0, 8000000.0)
    """
    return BUS[pattern](ranks) * payload


def exchange_of(pattern: str, payload: int, ranks: int) -> Exchange:
    """An exchange as the roofline counts it: between all ranks, or point to point from the first to the last.

    >>> exchange_of("point_to_point", 4096, 8).stride
    7
    """
    if pattern == POINT_TO_POINT:
        return Exchange(pattern, pattern, payload, 2, ranks - 1, 1)
    return Exchange(pattern, pattern, payload, ranks, 1, 1)


def links_of(accelerator: Accelerator | None, group: RankGroup) -> Links:
    """Links and constants of the data sheet where they count: of a known accelerator over NCCL.

    Raises:
        AcceleratorFileError: a file that cannot be read.
    """
    fabric = None if accelerator is None else fabric_between(accelerator, group)
    if accelerator is None or fabric is None:
        return Links(group.size)
    return Links(group.size, fabric, expectation_of(accelerator, OWN, roofs_of(accelerator)))


def fabric_between(accelerator: Accelerator, group: RankGroup) -> Fabric | None:
    """The links of the data sheet that exchanges of these ranks go over; None where there are none, or gloo goes through the hosts."""
    return _fabric(accelerator, group) if group.backend == DIRECT else None


def _fabric(accelerator: Accelerator, group: RankGroup) -> Fabric | None:
    """The links between ranks on their hosts; None where the data sheet tells of none that joins them.

    Several hosts with so many ranks each are joined by a network, unless scale-up links reach beyond a host. What is assumed
    does not name the accelerator.
    """
    made = fabric_of(accelerator, group.size, NETWORK)
    made = replace(made, assumptions=tuple(line.removeprefix(f"{accelerator.id}: ") for line in made.assumptions))
    reach = max((level.size for level in made.levels if level.name != NET), default=0)
    if group.hosts > 1 and reach <= HOST:
        each = -(-group.size // group.hosts)
        inner = [replace(level, size=min(level.size, each)) for level in made.levels if level.name != NET and each > 1]
        made = replace(made, levels=(*inner, Level(NET, EVERY, NETWORK, HOP[NET])))
    if any(level.name == NET for level in made.levels):
        if group.hosts == 1:
            return None  # cards of one host that the data sheet links in no way
        said = f"between hosts each device has a network of {NETWORK / 1e9:.0f} GB/s (400 Gbit/s) each way"
        return replace(made, assumptions=(*made.assumptions, said))
    return made


def collectives_row(number: str, measured: Sequence[Exchanged], links: Links) -> CollectivesRow:
    """All exchanges with what they come to, patterns in the order in which they were first measured."""
    order = list(dict.fromkeys(one.pattern for one in measured))
    rows = sorted(measured, key=lambda one: order.index(one.pattern))  # sizes keep theirs
    return CollectivesRow(number, [exchange_row(one, links) for one in rows], link_rows(rows, links.ranks))


def exchange_row(one: Exchanged, links: Links) -> ExchangeRow:
    """An exchange, with its rates beside the data sheet's links."""
    seconds = None if one.sample is None else one.sample.seconds
    bound = expected = None
    if links.fabric is not None:
        asked = exchange_of(one.pattern, one.payload, links.ranks)
        bound = exchange_cost(asked, links.fabric).seconds
        expected = None if links.expectation is None else links.expectation.exchanged(asked, links.fabric)
    return ExchangeRow(
        pattern=one.pattern,
        payload_bytes=one.payload,
        launched=one.launched,
        time=None if one.sample is None else time_row(one.sample),
        bytes_per_second=share(one.payload, seconds),
        link_bytes_per_second=share(bus_bytes(one.pattern, one.payload, links.ranks), seconds),
        bound_seconds=bound,
        expected_seconds=expected,
        of_datasheet=share(bound, seconds),
        checked_ranks=one.checked,
        problem=one.problem,
    )


def link_rows(measured: Iterable[Exchanged], ranks: int) -> list[LinkRow]:
    """What the times of each pattern and launch come to, of those that ran."""
    found: dict[tuple[str, str], list[tuple[float, Sample]]] = {}
    for one in measured:
        if one.sample is not None:
            moved = bus_bytes(one.pattern, one.payload, ranks)
            found.setdefault((one.pattern, one.launched), []).append((moved, one.sample))
    return [_link(*key, [(moved, sample.seconds) for moved, sample in some]) for key, some in found.items()]


def _link(pattern: str, launched: str, points: Sequence[tuple[float, float]]) -> LinkRow:
    line, sizes = fitted(points), len({moved for moved, _ in points})
    return LinkRow(
        pattern=pattern,
        launched=launched,
        latency_seconds=None if line is None else line.latency,
        bytes_per_second=None if line is None else line.bandwidth,
        worst_error=None if line is None or sizes <= LEAST_SIZES else line.worst,
        least_seconds=min(seconds for _, seconds in points),
        best_bytes_per_second=max(moved / seconds for moved, seconds in points),
        points=len(points),
    )


def fitted(points: Sequence[tuple[float, float]]) -> Line | None:
    """Latency a and time of a byte b of t = a + b x, both 0 or more, least in sum ((a + b x) / t - 1)^2; None of one size.

    With u = 1 / t and v = x / t the least squares are those of a u + b v = 1: a sum u^2 + b sum u v = sum u, and
    a sum u v + b sum v^2 = sum v. Where one of the two comes out below 0 it is 0, and the other alone is fitted.

    Args:
        points: bytes that a rank has to send, and the time of it. [B], [s]

    >>> line = fitted([(0.0, 2e-6), (1e6, 4e-6), (3e6, 8e-6)])  # 2 us and 500 GB/s
    >>> round(line.latency * 1e6, 6), round(line.bandwidth / 1e9, 3), round(line.worst, 9)
    (2.0, 500.0, 0.0)
    >>> fitted([(1e6, 4e-6)])
    """
    if len({moved for moved, _ in points}) < LEAST_SIZES:
        return None
    u = [1 / seconds for _, seconds in points]
    v = [moved / seconds for moved, seconds in points]
    uu, vv = sum(one * one for one in u), sum(one * one for one in v)
    uv = sum(one * other for one, other in zip(u, v, strict=True))
    both = uu * vv - uv * uv  # above 0 of two sizes
    a, b = (sum(u) * vv - sum(v) * uv) / both, (sum(v) * uu - sum(u) * uv) / both
    if a < 0:
        a, b = 0.0, sum(v) / vv
    elif b < 0:
        a, b = sum(u) / uu, 0.0
    worst = max(abs(a * one + b * other - 1) for one, other in zip(u, v, strict=True))
    return Line(a, 1 / b if b else None, worst)
