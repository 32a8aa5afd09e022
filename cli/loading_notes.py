"""What should be said of a load: what was left out, what comes together, what varies."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Final

from roofcast.hwdb.units import show_percent

if TYPE_CHECKING:
    from roofcast.calculators.serving.lengths import Apart
    from roofcast.calculators.serving.loads import Sending
    from roofcast.cli.loading_source import Source

MANY_CLIENTS: Final = 8  # that wait for one another as they all come at once


def left_out(source: Source) -> list[str]:
    """What should be said of requests that were not sent."""
    if not source.left_out:
        return []
    failed = "request that failed there is" if source.left_out == 1 else "requests that failed there are"
    return [f"{source.called}: {source.left_out:,} {failed} left out"]


def together(clients: int | None, warm_up: int | None) -> list[str]:
    """That a closed loop begins with all clients at once, where nothing leaves them out."""
    if clients is None or clients < MANY_CLIENTS or warm_up:
        return []
    first = f"the first {clients:,} requests came at once, and their wait is in the percentiles"
    return [f"{first}; --warm-up {clients} leaves them out"]


def staggered(made: Apart, output: str, share: float) -> list[str]:
    """That outputs vary although one length is asked for."""
    from roofcast.calculators.serving.lengths import Uniform, parse_lengths

    if not isinstance(made.output, Uniform) or isinstance(parse_lengths(output), Uniform):
        return []
    alike = "clients whose requests are all of one length stay in step for ever, and their prompts queue"
    return [f"outputs vary by {show_percent(share)}: {alike}; --stagger 0% has it so"]


def unreached(sending: Sending) -> list[str]:
    """That requests end before a schedule's last rate."""
    arrivals = sending.arrivals
    if arrivals is None or len(arrivals.stretches) < 2 or not arrivals.stretches[-1].rate:  # noqa: PLR2004 - a schedule
        return []
    begins, end = arrivals.stretches[-1].start, 0.0
    for end in islice(arrivals.times(sending.random("arrivals")), sending.count):
        if end >= begins:
            return []
    return [
        f"the {sending.count:,} requests end after {end:.1f} s, before the rate of {begins:g} s: --requests sends more"
    ]
