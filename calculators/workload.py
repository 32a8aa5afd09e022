"""What is served: requests of several kinds, and the load that they make."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil


@dataclass(frozen=True, slots=True)
class Request:
    """One kind of request.

    Args:
        prompt: tokens that are read. [token]
        output: tokens that are made. [token]
        prefix: of the prompt's tokens those, from the first on, that are as in earlier requests. [token]
        hit: share of the requests that find the prefix in a cache. [-]
        weight: requests of this kind among all, not normalised. [-]
    """

    prompt: int
    output: int
    prefix: int = 0
    hit: float = 1.0
    weight: float = 1.0

    @property
    def found(self) -> float:
        """Of the prompt's tokens those that are found in a cache, in the mean: prefix hit. [token]

        >>> Request(1000, 100, prefix=800, hit=0.5).found
        400.0
        """
        return self.prefix * self.hit

    @property
    def mean_context(self) -> float:
        """Mean tokens before a decoded one: prompt + output / 2. [token]

        >>> Request(1000, 100).mean_context
        1050.0
        """
        return self.prompt + self.output / 2

    @property
    def longest(self) -> int:
        """Tokens that it holds at its end. [token]"""
        return self.prompt + self.output


@dataclass(frozen=True, slots=True)
class Workload:
    """Requests of one kind or several, served by one deployment.

    Args:
        name: as to be shown.
        requests: its kinds, one or more.
        context: tokens that decoded ones attend to; None is each kind's mean. [token]
    """

    name: str
    requests: tuple[Request, ...]
    context: int | None = None

    @property
    def weight(self) -> float:
        """All kinds' weights. [-]"""
        return sum(request.weight for request in self.requests)

    def mean(self, values: tuple[float, ...]) -> float:
        """Mean over its requests of a value that each kind has: sum w x / sum w.

        >>> Workload("a", (Request(1000, 100, weight=3), Request(100, 1000))).mean((1.0, 5.0))
        2.0
        """
        pairs = zip(self.requests, values, strict=True)
        return sum(request.weight * value for request, value in pairs) / self.weight

    @property
    def tokens(self) -> float:
        """Input and output of a mean request. [token]

        >>> Workload("a", (Request(1000, 100), Request(100, 1000))).tokens
        1100.0
        """
        return self.mean(tuple(request.prompt + request.output for request in self.requests))

    @property
    def longest(self) -> int:
        """Tokens of its longest sequence at its end. [token]"""
        return max(self.held, *(request.longest for request in self.requests))

    @property
    def held(self) -> int:
        """Tokens of a sequence that must fit: its end, in the mean over those that decode: sum w o (p + o) / sum w o. [token]

        A kind stays for as many steps as it has tokens of output, so that it is among those that decode that often. No less
        than the context that is stated.

        >>> Workload("a", (Request(1000, 100), Request(100, 1000))).held
        1100
        """
        stays = [request.weight * request.output for request in self.requests]
        ends = (stay * request.longest for stay, request in zip(stays, self.requests, strict=True))
        return max(ceil(sum(ends) / sum(stays)), self.context or 0)
