"""When requests come: at a rate that may change, in bursts, at random or evenly."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from roofcast.calculators.errors import UsageError
from roofcast.hwdb.units import UnitError, parse_duration

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from random import Random

EXAMPLES: Final = "2 (requests a second) or 2@0s,8@60s,2@120s (a schedule)"
FASTEST: Final = 1e9  # [1/s]
SLOWEST: Final = 1e-9  # [1/s]
MOST_STEPS: Final = 10_000
LEAST_SHAPE: Final = 1e-3
MOST_SHAPE: Final = 1e6
SHOWN: Final = 60  # characters of a text in a complaint


@dataclass(frozen=True, slots=True)
class Stretch:
    """A time of one rate.

    Args:
        start: when it begins; it lasts until the next one. [s]
        rate: requests a second in the mean; infinite where all come at once. [1/s]
    """

    start: float
    rate: float


@dataclass(frozen=True, slots=True)
class Arrivals:
    """A process of arrivals.

    Args:
        stretches: rates by time, the first from 0 on; an end with rate 0 sends no more.
        shape: of the gamma distribution of gaps, whose coefficient of variation is shape^(-1/2): 1 is Poisson, below is
            in bursts, infinite is evenly spaced. [-]
    """

    stretches: tuple[Stretch, ...]
    shape: float = 1.0

    def times(self, random: Random) -> Iterator[float]:
        """Times of requests, the first one gap after 0. [s]

        Gaps of mean 1 are drawn and laid over the integral of the rate, L(t): request k comes at L^-1(g_1 + ... + g_k).
        With exponential gaps that is the Poisson process of that rate, exactly.
        Source: D. R. Cox and P. A. W. Lewis, The Statistical Analysis of Series of Events, 1966, chapter 2.

        >>> from random import Random
        >>> from itertools import islice
        >>> even = Arrivals((Stretch(0.0, 2.0), Stretch(1.0, 4.0)), math.inf)
        >>> list(islice(even.times(Random(0)), 4))
        [0.5, 1.0, 1.25, 1.5]
        """
        gap = self._gap(random)
        ends = [later.start for later in self.stretches[1:]]
        now, need = 0.0, gap()
        for stretch, end in zip(self.stretches, [*ends, math.inf], strict=True):
            rate = stretch.rate
            if rate == 0:
                now = end
                continue
            while now + need / rate <= end:
                now += need / rate
                yield now
                need = gap()
            need -= (end - now) * rate
            now = end

    def _gap(self, random: Random) -> Callable[[], float]:
        """Draws gaps of mean 1."""
        shape = self.shape
        if shape == 1:
            exponential, one = random.expovariate, 1.0
            return lambda: exponential(one)
        if math.isinf(shape):
            return lambda: 1.0
        gamma, scale = random.gammavariate, 1 / shape
        return lambda: gamma(shape, scale)

    @property
    def text(self) -> str:
        """As to be shown.

        >>> parse_rate("2").text, parse_rate("2@0s,8@60s", 0.5).text
        ('2 requests/s, Poisson', '2 requests/s from 0 s, 8 from 60 s, gamma gaps of shape 0.5')
        """
        first, *later = self.stretches
        rates = f"{first.rate:g} requests/s"
        if later:
            rates += " from 0 s" + "".join(f", {each.rate:g} from {each.start:g} s" for each in later)
        if math.isinf(first.rate):
            return "all at once"
        gaps = {1.0: "Poisson", math.inf: "evenly spaced"}.get(self.shape, f"gamma gaps of shape {self.shape:g}")
        return f"{rates}, {gaps}"


def parse_rate(text: str, shape: float = 1.0) -> Arrivals:
    """A process by the text of its rate.

    Args:
        text: requests a second; `inf`, which is all at once; or a schedule, `RATE@TIME,...` from `@0s` on.
        shape: of gaps. [-]

    Raises:
        UsageError: a rate that is none, or a schedule that does not begin at 0 or does not go on.

    >>> parse_rate("2@0s,0@1m").stretches
    (Stretch(start=0.0, rate=2.0), Stretch(start=60.0, rate=0.0))
    """
    if "@" not in text:
        return at_rate(_rate(text, text), shape)
    parts = text.split(",")
    if len(parts) > MOST_STEPS:
        raise UsageError(f"a schedule has at most {MOST_STEPS:,} rates, not {len(parts):,}")
    stretches = tuple(_stretch(part, text) for part in parts)
    if stretches[0].start != 0:
        raise UsageError(f"{_shown(text)}: a schedule begins at 0s; write it like 2@0s,8@60s,2@120s")
    for one, other in pairwise(stretches):
        if other.start <= one.start:
            raise UsageError(
                f"{_shown(text)}: {other.start:g} s does not come after {one.start:g} s; put times in order"
            )
    if not any(each.rate for each in stretches):
        raise UsageError(f"{_shown(text)}: its rates are all 0; nothing would come")
    return Arrivals(stretches, check_shape(shape))


def at_rate(rate: float, shape: float = 1.0) -> Arrivals:
    """A process of one rate. [1/s]

    Raises:
        UsageError: it is no rate.
    """
    if not (SLOWEST <= rate <= FASTEST or rate == math.inf):
        raise UsageError(
            f"{rate:g} is no rate; it must be a number of requests a second from {SLOWEST:g} to {FASTEST:g}, such as {EXAMPLES}"
        )
    return Arrivals((Stretch(0.0, rate),), check_shape(shape))


def check_shape(shape: float) -> float:
    """The shape of gaps, where it can be.

    Raises:
        UsageError: it cannot.
    """
    if not (LEAST_SHAPE <= shape <= MOST_SHAPE or shape == math.inf):
        raise UsageError(
            f"{shape:g} is no burstiness; it must be from {LEAST_SHAPE:g} (bursts) over 1 (Poisson) to inf (evenly spaced)"
        )
    return shape


def _shown(text: str) -> str:
    return repr(text) if len(text) <= SHOWN else f"{text[:SHOWN]!r}..."


def _rate(part: str, text: str) -> float:
    """A rate within a text. [1/s]"""
    try:
        rate = float(part)
    except ValueError:
        rate = math.nan
    if math.isnan(rate) or rate < 0 or "_" in part:
        raise UsageError(f"{_shown(text)}: {_shown(part.strip())} is no rate; write it like {EXAMPLES}")
    return rate


def _stretch(part: str, text: str) -> Stretch:
    """One step of a schedule."""
    before, at, after = part.partition("@")
    rate = _rate(before, text)
    if not at:
        raise UsageError(f"{_shown(text)}: {_shown(part)} has no time; write it like 2@0s,8@60s,2@120s")
    if rate and not SLOWEST <= rate <= FASTEST:
        raise UsageError(f"{_shown(text)}: {_shown(before.strip())} is no rate of a schedule; write it like {EXAMPLES}")
    try:
        start = 0.0 if after.strip().rstrip("smhin") in {"0", "0.0"} else parse_duration(after)
    except UnitError as error:
        raise UsageError(f"{_shown(text)}: {error}") from error
    return Stretch(start, rate)
