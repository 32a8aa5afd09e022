"""How long prompts and outputs are: fixed, spread evenly, log-normal, or as those of a trace."""

from __future__ import annotations

import math
from array import array
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

from roofcast.calculators.errors import UsageError
from roofcast.calculators.serving.trace_rows import MOST_TOKENS
from roofcast.hwdb.units import UnitError, parse_tokens

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from random import Random

    from roofcast.calculators.serving.job import Job

EXAMPLES: Final = "1024, uniform:100-2000 or lognormal:161:0.8 (mean and sigma)"
WIDEST: Final = 5.0  # sigma of a logarithm: a factor of 150 either way
SHOWN: Final = 60  # characters of a text in a complaint


class Lengths(Protocol):
    """Lengths of prompts, or of outputs."""

    @property
    def mean(self) -> float:
        """Of the distribution. [token]"""

    @property
    def least(self) -> int:
        """Shortest that is drawn. [token]"""

    def draw(self, random: Random) -> int:
        """One length. [token]"""


@dataclass(frozen=True, slots=True)
class Fixed:
    """Always the same.

    Args:
        tokens: of each. [token]
    """

    tokens: int

    @property
    def mean(self) -> float:
        """The one length. [token]"""
        return float(self.tokens)

    @property
    def least(self) -> int:
        """The one length. [token]"""
        return self.tokens

    def draw(self, random: Random) -> int:  # noqa: ARG002 - as the others are called
        """The one length. [token]"""
        return self.tokens


@dataclass(frozen=True, slots=True)
class Uniform:
    """Each whole number of a range alike.

    Args:
        least, most: ends of the range, both in it. [token]
    """

    least: int
    most: int

    @property
    def mean(self) -> float:
        """(least + most) / 2. [token]

        >>> Uniform(100, 2000).mean
        1050.0
        """
        return (self.least + self.most) / 2

    def draw(self, random: Random) -> int:
        """One length. [token]"""
        return self.least + int(random.random() * (self.most - self.least + 1))


@dataclass(frozen=True, slots=True)
class LogNormal:
    """Their logarithms are normal: many short ones, few long ones.

    Args:
        mean: of the distribution itself. [token]
        sigma: standard deviation of the natural logarithm. [-]
    """

    mean: float
    sigma: float

    @property
    def mu(self) -> float:
        """Mean of the logarithm: ln(mean) - sigma^2 / 2, since the mean is exp(mu + sigma^2 / 2). [-]

        >>> LogNormal(161, 0.8).mu, LogNormal(100, 0).mu
        (4.7614, 4.60517)
        """
        return math.log(self.mean) - self.sigma**2 / 2

    @property
    def least(self) -> int:
        """A request has a token. [token]"""
        return 1

    def draw(self, random: Random) -> int:
        """One length: exp(mu + sigma z), rounded, at least 1 and at most 2^30. [token]"""
        exponent = math.log(self.mean) - self.sigma**2 / 2 + self.sigma * random.gauss(0.0, 1.0)
        return min(max(1, round(math.exp(exponent))), MOST_TOKENS)


@dataclass(frozen=True, slots=True)
class Apart:
    """Prompts and outputs by themselves.

    Args:
        prompt, output: how each is spread.
        text: as to be shown.
    """

    prompt: Lengths
    output: Lengths
    text: str

    def pair(self, random: Random) -> tuple[int, int]:
        """Prompt and output of a request. [token]"""
        return self.prompt.draw(random), self.output.draw(random)


@dataclass(frozen=True, slots=True)
class Pairs:
    """Prompts with the outputs that they had in a trace, drawn with replacement.

    Args:
        prompts, outputs: of the trace's requests, in its order. [token]
        text: as to be shown.
    """

    prompts: array[int]
    outputs: array[int]
    text: str

    def pair(self, random: Random) -> tuple[int, int]:
        """Prompt and output of a request. [token]"""
        at = int(random.random() * len(self.prompts))
        return self.prompts[at], self.outputs[at]


def pairs_of(jobs: Iterable[Job], text: str) -> Pairs:
    """Lengths of a trace's requests, 8 bytes each.

    >>> from roofcast.calculators.serving.job import Job
    >>> len(pairs_of([Job(0.0, 8, 1), Job(0.1, 7, 2)], "x.csv").prompts)
    2
    """
    prompts, outputs = array("i"), array("i")
    for job in jobs:
        prompts.append(job.prompt)
        outputs.append(job.output)
    return Pairs(prompts, outputs, text)


def parse_lengths(text: str) -> Lengths:
    """A distribution by its text.

    Args:
        text: tokens; `uniform:LEAST-MOST`; or `lognormal:MEAN:SIGMA`; 4k is 4096.

    Raises:
        UsageError: it is none of these, or no request has so many tokens.

    >>> parse_lengths("1k"), parse_lengths("uniform:100-2k"), parse_lengths("lognormal:161:0.8")
    (Fixed(tokens=1024), Uniform(least=100, most=2048), LogNormal(mean=161.0, sigma=0.8))
    """
    kind, colon, rest = text.strip().partition(":")
    if not colon:
        return Fixed(_tokens(kind, text))
    parse = KINDS.get(kind.strip().lower())
    if parse is None:
        raise UsageError(f"{_shown(text)}: {_shown(kind)} is no kind of lengths; write them like {EXAMPLES}")
    return parse(rest, text)


def _shown(text: str) -> str:
    return repr(text) if len(text) <= SHOWN else f"{text[:SHOWN]!r}..."


def _tokens(part: str, text: str) -> int:
    """A number of tokens within a text."""
    try:
        tokens = parse_tokens(part)
    except UnitError as error:
        raise UsageError(
            f"{_shown(text)}: {_shown(part)} is no number of tokens; write lengths like {EXAMPLES}"
        ) from error
    if tokens > MOST_TOKENS:
        raise UsageError(f"{_shown(text)}: a request has at most {MOST_TOKENS:,} tokens")
    return tokens


def _uniform(rest: str, text: str) -> Lengths:
    first, dash, last = rest.partition("-")
    if not dash:
        raise UsageError(f"{_shown(text)}: it has no end; write it like uniform:100-2000")
    least, most = _tokens(first, text), _tokens(last, text)
    if most < least:
        raise UsageError(f"{_shown(text)}: it ends below its beginning; write it like uniform:100-2000")
    return Uniform(least, most)


def _lognormal(rest: str, text: str) -> Lengths:
    first, colon, last = rest.partition(":")
    if not colon:
        raise UsageError(f"{_shown(text)}: it has no sigma; write it like lognormal:161:0.8 (mean and sigma)")
    mean = _number(first)
    mean = float(_tokens(first, text)) if mean is None else mean
    if not 1 <= mean <= MOST_TOKENS:
        raise UsageError(f"{_shown(text)}: the mean must be from 1 to {MOST_TOKENS:,} tokens")
    sigma = _number(last)
    if sigma is None or not 0 <= sigma <= WIDEST:
        raise UsageError(
            f"{_shown(text)}: sigma, the standard deviation of the logarithm, must be a number from 0 to {WIDEST:g}"
        )
    return LogNormal(mean, sigma)


def _number(text: str) -> float | None:
    """A plain number; None where it is none."""
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) and "_" not in text else None


KINDS: Final[Mapping[str, Callable[[str, str], Lengths]]] = {"uniform": _uniform, "lognormal": _lognormal}
