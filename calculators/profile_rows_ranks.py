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
    """Payload over the median time. [B/s]"""
    link_bytes_per_second: float | None
    """Bytes that a rank has to send whatever the way, over the median time: what nccl-tests call bus bandwidth. [B/s]"""
    bound_seconds: float | None
    """Least time over the data sheet's links; null where the device is not in the database or has none. [s]"""
    expected_seconds: float | None
    """By fitted constants; null where there are none. [s]"""
    of_datasheet: float | None
    """Least time over the measured time: share of the data sheet's link. [-]"""
    checked_ranks: int
    """Ranks on which every element of the result was right."""
    problem: str | None
    """Why it could not run."""


@dataclass(frozen=True, slots=True)
class LinkRow:
    """What a pattern's times over sizes come to: t = latency + bytes that a rank sends / bandwidth."""

    pattern: str
    """As of the exchanges."""
    launched: str
    """eager or graph."""
    latency_seconds: float
    """Fitted: of no bytes. [s]"""
    bytes_per_second: float
    """Fitted: of each further byte that a rank sends. [B/s]"""
    least_seconds: float
    """Measured: the quickest of all sizes. [s]"""
    best_bytes_per_second: float
    """Measured: the largest bus bandwidth of all sizes. [B/s]"""
    worst_error: float
    """The largest |fitted / measured - 1|. [-]"""
    points: int
    """Sizes that it is fitted to."""


@dataclass(frozen=True, slots=True)
class CollectivesRow:
    """What `profile collectives` measured."""

    number_format: str
    """Of the elements."""
    exchanges: list[ExchangeRow]
    """A row a pattern, size and launch."""
    links: list[LinkRow]
    """A row a pattern and launch."""
