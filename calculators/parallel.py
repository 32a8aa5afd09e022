"""What exchanges between devices cost at least, over links that nest: a scale-up domain, a host, a network."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from roofcast.modelspec.op import ALL_GATHER, ALL_REDUCE, ALL_TO_ALL, POINT_TO_POINT, REDUCE_SCATTER

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from roofcast.hwdb.accelerator import Accelerator
    from roofcast.modelspec.op import Exchange

# Latency of one hop, the least that any protocol has. [s]
# Source: NVIDIA/nccl, src/graph/tuning.cc, hwLatencies: NVLink tree LL 0.6, PCI tree LL 1.0, network ring LL 2.7 us.
HOP: Final[Mapping[str, float]] = {"scale-up": 0.6e-6, "pcie": 1.0e-6, "network": 2.7e-6}
HOST: Final = 8  # accelerators of one host that PCIe joins
EVERY: Final = 1 << 30  # devices that a network joins
NETWORK: Final = 50e9  # [B/s] one direction, a device: 400 Gbit/s
IN_SWITCH: Final = 4  # generation of NVLink whose switches sum (NVLink SHARP, NVSwitch 3)


@dataclass(frozen=True, slots=True)
class Level:
    """One kind of link.

    Args:
        name: scale-up, pcie or network.
        size: devices that it joins, those of levels inside it included.
        bandwidth: of one device, one direction. [B/s]
        latency: of one hop. [s]
        sums: whether its switches sum what passes them.
    """

    name: str
    size: int
    bandwidth: float
    latency: float
    sums: bool = False


@dataclass(frozen=True, slots=True)
class Fabric:
    """The links of a deployment, from the inside out.

    Args:
        levels: each joins more devices than the one before.
        assumptions: what its data sheet leaves open, a line each.
    """

    levels: tuple[Level, ...]
    assumptions: tuple[str, ...] = ()


def fabric_of(accelerator: Accelerator, devices: int, network: float | None) -> Fabric:
    """The links that so many devices need.

    Args:
        accelerator: whose data sheet states scale-up and PCIe, both directions and one.
        devices: that exchange anything.
        network: of one device, one direction; None is 50 GB/s (400 Gbit/s), which is listed as assumed. [B/s]

    >>> from roofcast.hwdb.lookup import find_accelerator
    >>> [level.name for level in fabric_of(find_accelerator("h200").accelerator, 16, None).levels]
    ['scale-up', 'network']
    """
    levels: list[Level] = []
    link = accelerator.scale_up
    if link is not None:
        sums = link.type == "nvlink" and (link.generation or 0) >= IN_SWITCH and link.max_domain > HOST // 2
        levels.append(Level("scale-up", link.max_domain, link.bandwidth / 2, HOP["scale-up"], sums))
    said: list[str] = []
    if accelerator.pcie is not None and (link is None or link.max_domain < HOST):
        levels.append(Level("pcie", HOST, accelerator.pcie.bandwidth, HOP["pcie"]))
        if devices > (link.max_domain if link else 1):
            said.append(
                f"{accelerator.id}: {HOST} share a host's PCIe at {accelerator.pcie.bandwidth / 1e9:.3g} GB/s each way"
            )
    if devices > max((level.size for level in levels), default=1):
        levels.append(Level("network", EVERY, network or NETWORK, HOP["network"]))
        if network is None:
            said.append(
                f"between domains each device has a network of {NETWORK / 1e9:.0f} GB/s (400 Gbit/s) each way; --network sets it"
            )
    return Fabric(tuple(levels), tuple(said))


@dataclass(frozen=True, slots=True)
class Span:
    """The part of a group of ranks that one level joins.

    Args:
        level: the link.
        ranks: that it joins, each standing for those joined further inside.
        inside: ranks that are joined further inside, of each of these.
    """

    level: Level
    ranks: float
    inside: float


def spans(fabric: Fabric, ranks: int, stride: int) -> tuple[Span, ...]:
    """How the levels share a group of ranks, from the inside out; those that join but one are left out.

    >>> nodes = Fabric((Level("scale-up", 8, 450e9, 6e-7), Level("network", 1e9, 50e9, 3e-6)))
    >>> [(span.level.name, span.ranks, span.inside) for span in spans(nodes, 16, 1)]
    [('scale-up', 8, 1), ('network', 2, 8)]
    """
    made, inside = [], 1
    for level in fabric.levels:
        reach = int(min(ranks, max(1, level.size // stride)))
        here = -(-reach // inside)
        if here > 1:
            made.append(Span(level, here, inside))
            inside = reach
    return tuple(made)


def all_reduce(exchange: Exchange, span: Span) -> tuple[float, float]:
    """Sum of a tensor of s bytes over n ranks: latency of two hops, and bytes 2 (n - 1) / n s each way. [B]

    A reduce-scatter and an all-gather. One hop would do where every rank reads all others', at (n - 1) s; where switches
    sum, each rank sends and gets s. The least of the three by time is what a library with all of them takes.

    Source: Thakur, Rabenseifner, Gropp 2005, doi:10.1177/1094342005051521, section 4; NVLink SHARP.

    >>> from roofcast.modelspec.op import Exchange
    >>> eight = Span(Level("scale-up", 8, 300e9, 0.6e-6), 8, 1)
    >>> all_reduce(Exchange("tp", "all_reduce", 8e6, 8, 1, 1), eight)  # 2 x 7/8 x 8 MB
    (1.2e-06, 14000000.0)
    """
    n, level, size = span.ranks, span.level, exchange.payload / span.inside
    ways = [(2.0, 2 * (n - 1) / n * size), (1.0, (n - 1) * size), *([(2.0, size)] if level.sums else [])]
    hops, moved = min(ways, key=lambda way: way[0] * level.latency + way[1] / level.bandwidth)
    return hops * level.latency, moved


def all_gather(exchange: Exchange, span: Span) -> tuple[float, float]:
    """A tensor of s bytes put together from n parts: one hop, (n - 1) / n s into every rank. [B]

    Source: as `all_reduce`, section 3.1.
    """
    return span.level.latency, (span.ranks - 1) / span.ranks * exchange.payload / span.inside


def reduce_scatter(exchange: Exchange, span: Span) -> tuple[float, float]:
    """A tensor of s bytes summed, each of n ranks left with its part: one hop, (n - 1) / n s. [B]

    Source: as `all_reduce`, section 3.2.
    """
    return all_gather(exchange, span)


def all_to_all(exchange: Exchange, span: Span) -> tuple[float, float]:
    """Tokens of s bytes to k ranks each, drawn evenly: each crosses a level once for each group beyond that it goes to. [B]

    Of U groups of ranks that are joined further inside, k draws reach U (1 - (1 - 1/U)^k); (r - 1) / U of these lie across
    a level that joins r of them: one hop, and so many times s.

    >>> from roofcast.modelspec.op import Exchange
    >>> eight = Span(Level("scale-up", 8, 450e9, 0.6e-6), 8, 1)
    >>> hop, moved = all_to_all(Exchange("ep", "all_to_all", 64 * 7168 * 2, 8, 1, 1, fan=8), eight)
    >>> round(moved / 1e6, 3)  # 5.251 of 8 devices, 7/8 of them others: 4.595 x 0.918 MB
    4.216
    """
    groups = exchange.ranks / span.inside
    open_to = _open_to(groups, *exchange.groups)
    reached = open_to * (1 - (1 - 1 / open_to) ** exchange.fan)
    return span.level.latency, exchange.payload * reached * (span.ranks - 1) / groups


def _open_to(units: float, groups: int, chosen: int) -> float:
    """Of so many units that share groups of experts, those that a token which may choose some groups can go to."""
    if groups == 1:
        return units
    return units * chosen / groups if units >= groups else min(units, chosen)


# what a level has a share in -> latency of its hops, and bytes that a device sends over it
PATTERNS: Final[Mapping[str, Callable[[Exchange, Span], tuple[float, float]]]] = {
    ALL_REDUCE: all_reduce,
    ALL_GATHER: all_gather,
    REDUCE_SCATTER: reduce_scatter,
    ALL_TO_ALL: all_to_all,
}


@dataclass(frozen=True, slots=True)
class Cost:
    """What an exchange takes at least.

    Args:
        seconds: hops and transfers. [s]
        moved: bytes that one device sends over the link that takes the longest. [B]
    """

    seconds: float
    moved: float


def exchange_cost(exchange: Exchange, fabric: Fabric) -> Cost:
    """Least time of one exchange, `times` over: sum of hops over levels, plus the slowest level's bytes / bandwidth. [s]

    Levels nest: what is inside one sums or gathers first, so that 1/m of the tensor crosses to the next. Their transfers
    may overlap, their latencies add. All-to-all is one hop of the farthest, and crosses each level once for what lies
    beyond; point to point is one hop over the innermost link that joins two ranks.

    >>> from roofcast.modelspec.op import Exchange
    >>> eight = Fabric((Level("scale-up", 8, 450e9, 0.6e-6),))
    >>> cost = exchange_cost(Exchange("tp", "all_reduce", 8192 * 7168 * 2, 8, 1, 1), eight)
    >>> round(cost.seconds * 1e6, 1), round(cost.moved / 1e6, 1)  # 2 x 0.6 us + 2 x 7/8 x 117.4 MB / 450 GB/s
    (457.9, 205.5)
    """
    if exchange.pattern == POINT_TO_POINT:
        one = point_to_point(exchange, fabric)
    else:
        parts = spans(fabric, exchange.ranks, exchange.stride)
        share, hops = PATTERNS[exchange.pattern], max if exchange.pattern == ALL_TO_ALL else sum
        one = _nested([(share(exchange, part), part.level) for part in parts], hops) if parts else Cost(0.0, 0.0)
        if len(parts) > 1:  # all ranks at once over the outermost link, where that is quicker
            flat = Span(parts[-1].level, exchange.ranks, 1)
            one = min(one, _nested([(share(exchange, flat), flat.level)], hops), key=lambda cost: cost.seconds)
    return Cost(one.seconds * exchange.times, one.moved * exchange.times)


def _nested(parts: list[tuple[tuple[float, float], Level]], together: Callable[[Iterable[float]], float]) -> Cost:
    """Hops of all levels together, and the transfer that takes the longest."""
    moved, level = max(((moved, level) for (_, moved), level in parts), key=lambda pair: pair[0] / pair[1].bandwidth)
    return Cost(together(hops for (hops, _), _ in parts) + moved / level.bandwidth, moved)


def point_to_point(exchange: Exchange, fabric: Fabric) -> Cost:
    """One tensor of s bytes from each rank to the next: the sum of a hop and s / B of the link that joins the two. [s]

    >>> from roofcast.modelspec.op import Exchange
    >>> nodes = Fabric((Level("scale-up", 8, 450e9, 0.6e-6), Level("network", EVERY, 50e9, 2.7e-6)))
    >>> stages = Exchange("pp", "point_to_point", 4.5e6, 4, 4, 1)  # devices 0-3 to 4-7, then over the network, to 12-15
    >>> round(point_to_point(stages, nodes).seconds * 1e6, 1)  # 2 (0.6 + 10) + 2.7 + 90
    113.9
    """
    starts = (rank * exchange.stride for rank in range(exchange.ranks - 1))
    links = [_joining(fabric, start, start + exchange.stride) for start in starts]
    seconds = sum(level.latency + exchange.payload / level.bandwidth for level in links)
    return Cost(seconds, exchange.payload * len(links))


def _joining(fabric: Fabric, one: int, other: int) -> Level:
    """The innermost link whose domain has both devices."""
    return next(level for level in fabric.levels if one // level.size == other // level.size)
