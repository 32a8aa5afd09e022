"""What comes to a service: requests with their time, their lengths and what of their prompts is shared."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


class Job(NamedTuple):
    """One request.

    Args:
        arrival: when it comes; without meaning in closed loop. [s]
        prompt: tokens that are read. [token]
        output: tokens that are made, one or more. [token]
        hashes: ids of its prompt's leading blocks, each of `Load.hash_tokens` tokens, a last one of the prompt of what is
            left; equal ids at equal places behind equal ids are equal tokens. Tokens that follow them are nobody else's;
            empty where nothing is shared, or nothing known of it.
    """

    arrival: float
    prompt: int
    output: int
    hashes: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Load:
    """Requests that are sent to a service.

    Args:
        name: as to be shown, in a line.
        jobs: the requests, afresh and the same at every call, by arrival; they are read as they come, so that a long
            trace takes no memory.
        concurrency: of a closed loop, clients that each send a request as soon as their last one is answered, the first at
            time 0; None of an open loop, whose requests come when they come.
        hash_tokens: tokens of one id of `Job.hashes`; None where there are none. [token]
        notes: what should be said of the requests, once they were read.
        count: requests that were asked for; None of those that a trace has.
        warm: of these, from the first on, those whose times are not noted.
    """

    name: str
    jobs: Callable[[], Iterator[Job]]
    concurrency: int | None = None
    hash_tokens: int | None = None
    notes: Callable[[], list[str]] = list
    count: int | None = None
    warm: int = 0
