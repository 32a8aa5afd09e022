"""Loads: requests of a trace or made up, sent when they were, at a rate, or by clients that wait for their answers."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice, repeat
from random import Random
from typing import TYPE_CHECKING, Final

from roofcast.calculators.errors import UsageError
from roofcast.calculators.serving.job import Job, Load
from roofcast.calculators.serving.trace_rows import LONGEST

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from roofcast.calculators.serving.arrivals import Arrivals
    from roofcast.calculators.serving.lengths import Apart, Pairs

BLOCK: Final = 16  # tokens of an id of shared prefixes
OPEN_REQUESTS: Final = 1000
MOST_REQUESTS: Final = 20_000  # of an open loop, where none are asked for
LIVES: Final = 10.0  # times that a request is in the service, in which requests come
USUAL_STEP: Final = 0.03  # of a token, for how long a request is in the service [s]
ROUNDS: Final = 8  # requests of a client
LEAST_REQUESTS: Final = 100  # of a closed loop


@dataclass(frozen=True, slots=True)
class Sending:
    """When requests are sent.

    Args:
        arrivals: of an open loop at a rate; None as a trace has them, or in closed loop.
        concurrency: clients of a closed loop; None of an open one.
        requests: at most; None is all of a trace, else `default_requests`.
        seed: of chance.
    """

    arrivals: Arrivals | None = None
    concurrency: int | None = None
    requests: int | None = None
    seed: int = 0

    @property
    def count(self) -> int:
        """Requests of a load that is made up."""
        return self.requests or default_requests(self.concurrency)

    def random(self, what: str) -> Random:
        """Chance of one thing, which others do not change: the same lengths at every rate."""
        return Random(f"{self.seed} {what}")  # noqa: S311 - chance that can be repeated, no secret

    @property
    def text(self) -> str:
        """How they are sent, as to be shown."""
        if self.concurrency is not None:
            return f"closed loop of {self.concurrency:,}"
        return "" if self.arrivals is None else self.arrivals.text


def enough(rate: float, output: float, least: int = OPEN_REQUESTS) -> int:
    """Requests of an open loop that tell enough: as many as come in ten times what one takes at 30 ms a token.

    1,000 at least, since percentiles are of them, and 20,000 at most.

    Args:
        rate: requests a second. [1/s]
        output: tokens of each in the mean. [token]
        least: no fewer.

    >>> enough(10, 256), enough(50, 256), enough(1e6, 256)
    (1000, 3840, 20000)
    """
    return round(min(MOST_REQUESTS, max(least, rate * LIVES * output * USUAL_STEP)))


def default_requests(concurrency: int | None) -> int:
    """Requests where none are asked for: 8 a client and 100 or more in closed loop, 1,000 in open loop.

    >>> default_requests(64), default_requests(1), default_requests(None)
    (512, 100, 1000)
    """
    return OPEN_REQUESTS if concurrency is None else max(LEAST_REQUESTS, ROUNDS * concurrency)


@dataclass(frozen=True, slots=True)
class SharedPrefix:
    """First tokens of prompts that are equal within a group; a prompt that is shorter is a beginning of them.

    Args:
        tokens: how many. [token]
        groups: how many groups there are; a request belongs to each with the same chance.
    """

    tokens: int
    groups: int = 1

    def ids(self, group: int) -> tuple[int, ...]:
        """Ids of a group's whole blocks of 16 tokens; what is left of the last one is not shared.

        >>> SharedPrefix(40, 2).ids(0), SharedPrefix(40, 2).ids(1)
        ((0, 1), (2, 3))
        """
        blocks = self.tokens // BLOCK
        return tuple(range(group * blocks, (group + 1) * blocks))

    def drawn(self, random: Random) -> Callable[[int], tuple[int, ...]]:
        """Ids of a prompt of as many tokens, each time of a group that is drawn."""
        known: dict[int, tuple[int, ...]] = {}

        def ids(prompt: int) -> tuple[int, ...]:
            group = int(random.random() * self.groups)
            found = known.get(group)
            if found is None:
                found = known[group] = self.ids(group)
            return found if prompt >= self.tokens else found[: prompt // BLOCK]

        return ids


def synthetic(lengths: Apart | Pairs, sending: Sending, shared: SharedPrefix | None = None) -> Load:
    """Requests that are made up.

    >>> from roofcast.calculators.serving.lengths import Apart, Fixed
    >>> load = synthetic(Apart(Fixed(40), Fixed(8), "40 in, 8 out"), Sending(concurrency=2), SharedPrefix(32))
    >>> load.name, len(list(load.jobs())), next(load.jobs())
    ('100 requests, closed loop of 2, 40 in, 8 out, first 32 tokens shared',
     100, Job(arrival=0.0, prompt=40, output=8, hashes=(0, 1)))
    """
    name = f"{sending.count:,} requests, {sending.text}, {lengths.text}"
    if shared is not None:
        within = "" if shared.groups == 1 else f" within {shared.groups:,} groups"
        name += f", first {shared.tokens:,} tokens shared{within}"

    def jobs() -> Iterator[Job]:
        arrivals, pair, random = sending.arrivals, lengths.pair, sending.random("lengths")
        times = repeat(0.0) if arrivals is None else arrivals.times(sending.random("arrivals"))
        ids = None if shared is None else shared.drawn(sending.random("groups"))
        for time in islice(times, sending.count):
            prompt, output = pair(random)
            yield Job(time, prompt, output) if ids is None else Job(time, prompt, output, ids(prompt))

    return Load(name, jobs, sending.concurrency, None if shared is None else BLOCK, count=sending.count)


def traced(
    name: str, read: Callable[[], Iterator[Job]], sending: Sending, hash_tokens: int | None, scale: float
) -> Load:
    """Requests of a trace, in its order.

    Args:
        name: of the trace.
        read: its requests from the first on, at every call.
        sending: when they are sent, if not when they were.
        hash_tokens: tokens of one id of its hashes; None where it has none. [token]
        scale: how many times as fast they come as they did. [-]

    >>> rows = [Job(0.0, 10, 1), Job(3.0, 20, 2)]
    >>> [job.arrival for job in traced("x.csv", lambda: iter(rows), Sending(), None, 2.0).jobs()]
    [0.0, 1.5]
    """

    def jobs() -> Iterator[Job]:
        found = read() if sending.requests is None else islice(read(), sending.requests)
        if sending.arrivals is not None:
            for job, time in zip(found, sending.arrivals.times(sending.random("arrivals")), strict=False):
                yield Job(time, job.prompt, job.output, job.hashes)
        elif scale == 1:
            yield from found
        else:
            for job in found:
                if job.arrival > LONGEST * scale:
                    raise UsageError(
                        f"--scale {scale:g}: {name} is {job.arrival / scale:.3g} s long then; at most {LONGEST:g}"
                    )
                yield Job(job.arrival / scale, job.prompt, job.output, job.hashes)

    parts = [
        f"the first {sending.requests:,} requests of {name}" if sending.requests else name,
        sending.text,
        "" if scale == 1 else f"{scale:g} times as fast",
    ]
    return Load(", ".join(filter(None, parts)), jobs, sending.concurrency, hash_tokens)
