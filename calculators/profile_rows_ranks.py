"""Rows of `profile` on several devices: who took part, and what exchanges between them take."""

from __future__ import annotations

from dataclasses import dataclass

from roofcast.calculators.profile_rows_time import TimeRow  # noqa: TC001 - schemas read the types


@dataclass(frozen=True, slots=True)
class RanksRow:
    """The ranks of a measurement: a process and a device each."""

    size: int
    """How many."""
    backend: str
    """Of torch.distributed that exchanges: nccl or gloo."""
    hosts: int
    """That they are on."""
    library: str
    """What moves the data, with its version; empty where it does not tell."""
    link: str
    """How their devices are linked, as the driver tells; empty where it does not."""


@dataclass(frozen=True, slots=True)
class ExchangeRow:
    """One exchange between ranks."""

    pattern: str
    """all_reduce, all_gather, reduce_scatter, all_to_all or point_to_point."""
    payload_bytes: int
    """Of the tensor that a rank ends up with (all_gather), starts from (all_reduce, reduce_scatter) or sends. [B]"""
    launched: str
    """eager or graph."""
    time: TimeRow | None
    """Of one, that of the slowest rank; null where it could not run."""
    bytes_per_second: float | None
    """Payload over the median time; null likewise. [B/s]"""
    link_bytes_per_second: float | None
    """Bytes that a rank has to send whatever the way, over the median time: what nccl-tests call bus bandwidth; null likewise. [B/s]"""
    bound_seconds: float | None
    """Least time over the data sheet's links; null where it has none, or exchanges do not go over them. [s]"""
    expected_seconds: float | None
    """By fitted constants; null likewise. [s]"""
    of_datasheet: float | None
    """Least time over the measured time: share of the data sheet's link; null likewise. [-]"""
    checked_ranks: int
    """Ranks that got a result, every element of which was right."""
    problem: str | None
    """Why it could not run."""


@dataclass(frozen=True, slots=True)
class LinkRow:
    """What a pattern's times over sizes come to: t = latency + bytes that a rank has to send / bandwidth."""

    pattern: str
    """As of the exchanges."""
    launched: str
    """eager or graph."""
    latency_seconds: float | None
    """Fitted: of no bytes; null of one size. [s]"""
    bytes_per_second: float | None
    """Fitted: of each further byte that a rank has to send; null of one size, or where times do not grow with it. [B/s]"""
    worst_error: float | None
    """The largest |fitted / measured - 1|; null of fewer than three sizes, two of which any line meets. [-]"""
    least_seconds: float
    """Measured: the quickest of all sizes. [s]"""
    best_bytes_per_second: float
    """Measured: the largest bus bandwidth of all sizes. [B/s]"""
    points: int
    """Sizes that were measured."""


@dataclass(frozen=True, slots=True)
class CollectivesRow:
    """What `profile collectives` measured."""

    number_format: str
    """Of the elements."""
    exchanges: list[ExchangeRow]
    """A row a pattern, size and launch."""
    links: list[LinkRow]
    """A row a pattern and launch."""
