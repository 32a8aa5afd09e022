"""The time of any step of a replica, quick enough for millions of them: parts are computed once, and joined."""

from __future__ import annotations

from bisect import bisect_right
from math import ceil, inf, sqrt
from typing import TYPE_CHECKING, Final

from roofcast.calculators.deployment import fullest_stage
from roofcast.calculators.serving.defaults import Server
from roofcast.calculators.serving.parts import Cost, Parts
from roofcast.modelspec.step import DECODE, MIXED, PREFILL

if TYPE_CHECKING:
    from collections.abc import Sequence

    from roofcast.calculators.deployment import Ready
    from roofcast.calculators.expected.host import HostConstants

TILE: Final = 64  # rows of the smallest tile of matrix products: between its ends their time is a straight line [token]
EXACT: Final = 128  # tokens up to which each number is computed by itself [token]
SMALL: Final = 512  # tokens up to which tiles have a quarter of the rows [token]
RATIO: Final = 1.15  # from one context to the next that attention is computed at
PIECE: Final = 32  # tokens between prompts that attention is computed at [token]
LONGEST: Final = 1 << 26  # [token]
NOTHING: Final = Cost(0.0, 0.0)
NO_SERVER: Final = Server()

Chunk = tuple[int, int, bool]  # new tokens, tokens before them, whether the prompt ends


def knots(caps: Sequence[int] = ()) -> list[int]:
    """Contexts that attention is computed at: each to 16, then by a ratio, with the ends of windows. [token]

    >>> knots((1024,))[14:19], 1024 in knots((1024,))
    ([15, 16, 18, 21, 24], True)
    """
    made, at = list(range(1, 17)), 16.0
    while at < LONGEST:
        at *= RATIO
        made.append(round(at))
    return sorted({*made, *(end for cap in caps for end in (cap, cap + 1))})


class StepTimes:
    """Times of steps: as `Estimate` sums them, with attention interpolated between contexts that lie close together.

    A step's time is tokens(T) + logits(P) + attention(B, mean context) + sum of prompts' pieces + host. Tokens up to 128
    and the ends of tiles beyond, and every number of sequences, are computed as they first come; so are contexts at
    1.15 times one another. In between it is a straight line, off by less than 0.5 %. [s]

    Args:
        ready: the deployment; its constants, or its bounds where there are none.
        drafted: tokens that each sequence verifies beside its own. [token]
        beside: what a decode step takes beside the model's own pass: drafting. [s]
        server: what a server adds to a step that reads prompts.
    """

    __slots__ = (
        "_caps",
        "_curves",
        "_decoding",
        "_devices",
        "_first",
        "_hosts",
        "_launched",
        "_logits",
        "_new",
        "_parts",
        "_pieces",
        "_server",
        "_stages",
        "_tokens",
        "_xs",
        "beside",
        "ready",
    )  # fmt: skip

    def __init__(self, ready: Ready, drafted: int = 0, beside: float = 0.0, server: Server = NO_SERVER) -> None:
        self.ready = ready
        caps = {part.cap for part, _ in ready.kept if part.cap}
        self._parts, self._new, self.beside, self._server = Parts(ready), 1 + drafted, beside, server
        self._xs = knots(sorted(caps))
        self._tokens: dict[tuple[str, int], Cost] = {}
        self._logits: dict[tuple[str, int], Cost] = {}
        self._decoding: dict[tuple[str, int], list[Cost | None]] = {}
        self._pieces: dict[tuple[str, int], Cost] = {}
        self._curves: dict[int, list[float | None]] = {}
        self._first: dict[str, Cost] = {}
        self._hosts: dict[str, HostConstants] = {}
        shards = ready.deployment.shards
        self._devices = shards.in_step
        self._launched = fullest_stage(ready.model.spec, shards) if shards.pp > 1 else 1.0
        self._stages = (shards.pp, fullest_stage(ready.model.spec, shards)) if shards.pp > 1 else None

    def tokens(self, phase: str, tokens: int) -> Cost:
        """Matrices and all else that looks at so many tokens."""
        key = phase, tokens
        found = self._tokens.get(key)
        if found is None:
            found = self._tokens[key] = self._tiled(phase, tokens)
        return found

    def _tiled(self, phase: str, tokens: int) -> Cost:
        if tokens <= EXACT:
            return self._parts.tokens(phase, tokens)
        tile = TILE // 4 if tokens <= SMALL else TILE
        low = (tokens - 1) // tile * tile + 1
        high, share = low + tile - 1, (tokens - low) / (tile - 1)
        return _between(self._end(phase, low), self._end(phase, high), share)

    def _end(self, phase: str, tokens: int) -> Cost:
        """At an end of a tile."""
        found = self._tokens.get((phase, tokens))
        if found is None:
            found = self._tokens[phase, tokens] = self._parts.tokens(phase, tokens)
        return found

    def logits(self, phase: str, positions: int) -> Cost:
        """The head at so many positions."""
        key = phase, positions
        found = self._logits.get(key)
        if found is None:
            found = self._logits[key] = self._parts.logits(phase, positions) if positions else NOTHING
        return found

    def attention(self, phase: str, sequences: int, context: float) -> Cost:
        """Decode attention of sequences that hold so many tokens in the mean, the new ones too."""
        at = bisect_right(self._xs, context) - 1
        low = self._xs[at]
        first = self._knot(phase, sequences, at)
        if context == low:
            return first
        return _between(first, self._knot(phase, sequences, at + 1), (context - low) / (self._xs[at + 1] - low))

    def _knot(self, phase: str, sequences: int, at: int) -> Cost:
        key = phase, sequences
        row = self._decoding.get(key)
        if row is None:
            row = self._decoding[key] = [None] * len(self._xs)
        found = row[at]
        if found is None:
            context = max(self._xs[at], self._new)
            found = row[at] = self._parts.decoding(phase, sequences, context, self._new)
        return found

    def piece(self, phase: str, new: int, before: int) -> Cost:
        """Attention of a piece of a prompt; of its beginning between multiples of 32 tokens a straight line."""
        if before:
            return self._parts.chunk(phase, new, before)
        key = phase, new
        found = self._pieces.get(key)
        if found is None:
            low = new // PIECE * PIECE
            if new <= SMALL or new == low:
                found = self._parts.chunk(phase, new, 0)
            else:
                ends = self.piece(phase, low, 0), self.piece(phase, low + PIECE, 0)
                found = _between(*ends, (new - low) / PIECE)
            self._pieces[key] = found
        return found

    def mixed(self, sequences: int, held: float, chunks: Sequence[Chunk], hidden: float = 0.0) -> float:
        """A step of sequences that decode, holding `held` tokens together before it, and of pieces of prompts. [s]

        Pieces go through one kernel: each but the first takes no launch of its own. The host prepares it while the step
        before, of `hidden` seconds, runs.
        """
        phase = MIXED if sequences else PREFILL
        news = ends = starts = 0
        seconds = calls = 0.0
        for new, before, last in chunks:
            cost, calls = self.piece(phase, new, before)
            news, ends, starts = news + new, ends + last, starts + (not before)
            seconds += cost
        if len(chunks) > 1:
            seconds -= (len(chunks) - 1) * self._launch(phase)
        rows = sequences * self._new
        parts = [self.tokens(phase, news + rows), self.logits(phase, ends + rows)]
        if sequences:
            parts.append(self.attention(phase, sequences, held / sequences + self._new))
        if starts and self._parts.has_encoder:
            parts.append(self._parts.crossed(phase, starts))
        for cost, count in parts:
            seconds += cost
            calls += count
        if self._stages is not None:
            seconds *= self._stages[1]
        seconds += self._host(phase, sequences + len(chunks), calls, seconds) + self._server.between
        if hidden < self._server.prepare:
            seconds += self._server.prepare - hidden
        return seconds + self.beside if sequences else seconds

    def _host(self, phase: str, sequences: float, calls: float, kernels: float) -> float:
        """Time of the host that no kernel hides; 0 at the bound. [s]"""
        constants = self._hosts.get(phase)
        if constants is None:
            constants = self._hosts[phase] = self._parts.host(phase)
        return constants.seconds(self._devices, sequences, self._launched * calls, kernels)

    def _launch(self, phase: str) -> float:
        """What attention of a piece takes that has nothing to do. [s]"""
        found = self._first.get(phase)
        if found is None:
            found = self._first[phase] = self._parts.chunk(phase, 1, 0)
        return found.seconds

    def decode(self, sequences: int, context: float) -> float:
        """One step of sequences that hold `context` tokens each in the mean, the new ones too. [s]"""
        at = bisect_right(self._xs, context) - 1
        low, high = self._xs[at], self._xs[at + 1]
        curve = self._curve(sequences)
        first, last = curve[at] or self._point(sequences, at), curve[at + 1] or self._point(sequences, at + 1)
        return first + (last - first) * (context - low) / (high - low)

    def _curve(self, sequences: int) -> list[float | None]:
        found = self._curves.get(sequences)
        if found is None:
            found = self._curves[sequences] = [None] * len(self._xs)
        return found

    def _point(self, sequences: int, at: int) -> float:
        """A whole decode step at one of the contexts."""
        parts, here = 1, sequences
        if self._stages is not None:
            parts = min(sequences, self._stages[0])
            here = -(-sequences // parts)
        every = (
            self.tokens(DECODE, here * self._new),
            self.logits(DECODE, here * self._new),
            self._knot(DECODE, here, at),
        )
        seconds, calls = sum(one.seconds for one in every), sum(one.calls for one in every)
        if self._stages is not None and parts > 1:
            seconds *= max(1.0, parts * self._stages[1])
        found = seconds + self._host(DECODE, here, calls, seconds) + self.beside
        self._curve(sequences)[at] = found
        return found

    def run(
        self, sequences: int, held: float, steps: int, limit: float, gain: float = 1.0, growth: float = inf
    ) -> tuple[int, float]:
        """Decode steps that follow one another, until one ends at the limit or later: how many, and their time. [s]

        Args:
            sequences: that each gain `gain` tokens a step.
            held: tokens that they hold together before the first. [token]
            steps: at most.
            limit: time from the beginning. [s]
            gain: tokens that each gains a step, in the mean. [token]
            growth: by which steps may have grown over the first; they end there. [-]
        """
        context, xs = held / sequences + self._new, self._xs
        curve = self._curve(sequences)
        at = bisect_right(xs, context) - 1
        done, spent, top = 0, 0.0, inf
        while True:
            low, high = xs[at], xs[at + 1]
            first, last = curve[at] or self._point(sequences, at), curve[at + 1] or self._point(sequences, at + 1)
            slope = (last - first) / (high - low)
            start, rise = first + slope * (context - low), slope * gain
            if growth < top == inf:
                top = start * (1.0 + growth)
            count = min(steps - done, int((high - context) / gain) + 1)
            if start + rise * count > top:
                count = max(1, int((top - start) / rise) + 1)
                steps = done + count
            seconds = count * start + rise * (count * (count - 1) / 2)
            if spent + seconds >= limit:
                count = _reaching(start, rise, limit - spent, count)
                return done + count, spent + count * start + rise * (count * (count - 1) / 2)
            done, spent = done + count, spent + seconds
            if done >= steps:
                return done, spent
            context += count * gain
            at += 1
            while context >= xs[at + 1]:
                at += 1


def _reaching(start: float, rise: float, limit: float, most: int) -> int:
    """Fewest steps n of start, start + rise, ... whose sum is the limit or more: n start + rise n (n - 1) / 2. [-]

    >>> _reaching(1.0, 0.0, 2.5, 10), _reaching(1.0, 1.0, 6.0, 10), _reaching(1.0, 1.0, 6.1, 10)
    (3, 3, 4)
    """
    if rise > 0.0:
        half = start / rise - 0.5
        twice = 2.0 * limit / rise  # the root as a quotient: no difference of two that are alike
        guess = ceil(twice / (sqrt(half * half + twice) + half) - 1e-9)
    else:
        guess = ceil(limit / start - 1e-9)
    guess = max(1, min(most, guess))
    while guess < most and guess * start + rise * (guess * (guess - 1) / 2) < limit:
        guess += 1
    return guess


def _between(low: Cost, high: Cost, share: float) -> Cost:
    return Cost(low.seconds + share * (high.seconds - low.seconds), low.calls + share * (high.calls - low.calls))
