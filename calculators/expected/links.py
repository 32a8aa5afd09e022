"""The expected time of an exchange between devices: its bound, with what libraries lose on the way."""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt
from typing import TYPE_CHECKING

from roofcast.calculators.parallel import PATTERNS, Span, exchange_cost, spans
from roofcast.modelspec.op import ALL_REDUCE, ALL_TO_ALL, POINT_TO_POINT

if TYPE_CHECKING:
    from roofcast.calculators.parallel import Fabric
    from roofcast.modelspec.op import Exchange


@dataclass(frozen=True, slots=True)
class LinkConstants:
    """What `benchmarks/fit_links.py` fits; the defaults are a perfect library.

    Args:
        t0: time of a call between two ranks beside its hops: launch, and waiting for each other. [s]
        rank: that each further rank adds. [s]
        em: share of the link's bandwidth that long transfers reach.
        own: copy of a rank's own part, 1/n of the tensor, in times that it would take over the link. [-]
        ramp: seconds of transfer at which a transfer costs its own length once more; by its root before and after. [s]
        shot: of an all-reduce in two passes, the second synchronisation. [s]
        floor: least time of a call that a host launches, where no graph does. [s]
    """

    t0: float = 0.0
    rank: float = 0.0
    em: float = 1.0
    own: float = 0.0
    ramp: float = 0.0
    shot: float = 0.0
    floor: float = 0.0


def link_seconds(exchange: Exchange, fabric: Fabric, c: LinkConstants) -> float:
    """Expected time of one exchange, `times` over. [s]

    t = max(floor, t0 + rank (n - 2) + hops + x / em + own s / (n B) + sqrt(ramp x)), x = moved bytes / B

    An all-reduce moves (n - 1) s in one pass, or 2 (n - 1) / n s in two, with a second hop and `shot`: what is quicker.
    Engines' kernels and NCCL's rings do so; switches that sum are left to the bound. Over links that nest, x is that of
    the slowest, and hops are those of all.
    Each of these takes at least what the bound of the same way does, so t is never below `exchange_cost`.

    Source: Thakur, Rabenseifner, Gropp 2005, doi:10.1177/1094342005051521; constants by benchmarks/fit_links.py.

    >>> from roofcast.calculators.parallel import Fabric, Level
    >>> from roofcast.modelspec.op import Exchange
    >>> eight, c = Fabric((Level("scale-up", 8, 450e9, 0.6e-6),)), LinkConstants(t0=3e-6, rank=0.1e-6, em=0.8, shot=4e-6)
    >>> link_seconds(Exchange("tp", "all_reduce", 65536, 8, 1, 1), eight, c) * 1e6  # 3 + 0.6 + 0.6 + 7 x 65,536 / 360e3
    5.47
    >>> link_seconds(Exchange("tp", "all_reduce", 8e6, 8, 1, 1), eight, c) * 1e6  # 3 + 0.6 + 1.2 + 4 + 14e6 / 360e3
    47.69
    """
    if exchange.pattern == POINT_TO_POINT:
        return _in_turn(exchange, fabric, c)
    parts = spans(fabric, exchange.ranks, exchange.stride)
    if not parts:
        return 0.0
    one = _nested(exchange, parts, c) if len(parts) > 1 else _level(exchange, parts[0], c)
    if len(parts) > 1:  # all ranks at once over the outermost link, as the bound has it
        one = min(one, _level(exchange, Span(parts[-1].level, exchange.ranks, 1), c))
    return exchange.times * max(c.floor, c.t0 + c.rank * (exchange.ranks - 2) + one)


def _level(exchange: Exchange, span: Span, c: LinkConstants) -> float:
    """Hops and transfer over one level; of an all-reduce, of its quicker way. [s]"""
    level = span.level
    if exchange.pattern != ALL_REDUCE:
        hops, moved = PATTERNS[exchange.pattern](exchange, span)
        return hops + _transfer(exchange, span, moved, c)
    n, size = span.ranks, exchange.payload / span.inside
    once = level.latency + _transfer(exchange, span, (n - 1) * size, c)
    twice = 2 * level.latency + c.shot + _transfer(exchange, span, 2 * (n - 1) / n * size, c)
    return min(once, twice)


def _nested(exchange: Exchange, parts: tuple[Span, ...], c: LinkConstants) -> float:
    """Hops of all levels as the bound counts them, and the longest transfer. [s]"""
    shares = [PATTERNS[exchange.pattern](exchange, part) for part in parts]
    hops = max(one for one, _ in shares) if exchange.pattern == ALL_TO_ALL else sum(one for one, _ in shares)
    longest = max(_transfer(exchange, part, moved, c) for part, (_, moved) in zip(parts, shares, strict=True))
    return hops + longest + c.shot * (exchange.pattern == ALL_REDUCE)


def _transfer(exchange: Exchange, span: Span, moved: float, c: LinkConstants) -> float:
    """x / em + own s / (n B) + sqrt(ramp x), x = moved / B. [s]"""
    bandwidth = span.level.bandwidth
    x = moved / bandwidth
    return x / c.em + c.own * exchange.payload / span.inside / span.ranks / bandwidth + sqrt(c.ramp * x)


def _in_turn(exchange: Exchange, fabric: Fabric, c: LinkConstants) -> float:
    """Point to point, a link after the other: each pays t0, and its transfer what others lose. [s]"""
    bound, links = exchange_cost(exchange, fabric), (exchange.ranks - 1) * exchange.times
    if not links:
        return bound.seconds
    x = _mean_transfer(exchange, fabric)
    return max(c.floor * links, bound.seconds + links * (c.t0 + x * (1 / c.em - 1) + sqrt(c.ramp * x)))


def _mean_transfer(exchange: Exchange, fabric: Fabric) -> float:
    """Mean over its links of payload / B of an exchange from each rank to the next: the bound less that of no bytes. [s]"""
    starts = range(0, (exchange.ranks - 1) * exchange.stride, exchange.stride)
    sizes = [(start, start + exchange.stride) for start in starts]
    levels = (next(one for one in fabric.levels if a // one.size == b // one.size) for a, b in sizes)
    return sum(exchange.payload / level.bandwidth for level in levels) / len(sizes)
