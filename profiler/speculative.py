"""Times rounds of speculation by two decoders: k chained draft steps, one pass that verifies them, and the whole as one."""

from __future__ import annotations

import gc
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from roofcast.calculators.profiled import EAGER, GRAPH
from roofcast.calculators.profiled_rounds import RoundProfile
from roofcast.profiler.errors import OutOfMemoryError, WrongOutputError
from roofcast.profiler.sweep import Task, sweep
from roofcast.profiler.timing import capture, check_written, memory_guard, time_work

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from roofcast.calculators.profiled import Sample
    from roofcast.profiler.decoder import Decoder, Session
    from roofcast.profiler.runtime import Runtime
    from roofcast.profiler.sweep import Swept, Watch
    from roofcast.profiler.timing import Budget

    Point = tuple[int, int, int]

UNWRITTEN: Final = -1  # in what a round counts


@dataclass(frozen=True, slots=True)
class Pair:
    """Two decoders on one device.

    Args:
        target: whose text it is.
        draft: that drafts.
    """

    target: Decoder
    draft: Decoder

    @property
    def tokens(self) -> int:
        """Tokens that both have rows for: the ids that they exchange stay below it."""
        return min(int(one.embedding.shape[0]) for one in (self.target, self.draft))

    @property
    def clamped(self) -> bool:
        """Whether one of them may choose an id that the other has no row for."""
        return max(int(one.head.data.shape[0]) for one in (self.target, self.draft)) > self.tokens


class Round:
    """One round over caches that are there, ready to run again and again on the same memory.

    All of it runs on the device, and waits for nothing: the draft is fed what it chose itself, the target what was
    drafted, and how many tokens are accepted is counted where they are.

    Args:
        pair: the decoders.
        sessions: of the target and of the draft, of as many sequences.
        context: tokens of each sequence, with the first that is verified, which neither cache holds yet. [token]
        drafted: k. [token]

    Attributes:
        tokens: [B, k + 1], what is verified: the last token before the round, then those that are drafted.
        step: the draft's, of one token.
        verifying: the target's, of k + 1.
        accepted: [B], drafted tokens that the target chooses too, up to the first that it does not.
        following: [B], the token that the target chooses behind these.

    Raises:
        OutOfMemoryError: its buffers do not fit.
    """

    def __init__(self, pair: Pair, sessions: tuple[Session, Session], context: int, drafted: int) -> None:
        target, draft = sessions
        self._pair, self._first = pair, context - 1
        self.verifying = target.verify(drafted + 1, self._first)
        self.step = draft.decode(self._first)
        self.tokens = self.verifying.tokens.view(-1, drafted + 1)
        self.tokens.clamp_(max=pair.tokens - 1)
        self.accepted, self.following = (self.step.tokens.new_full((target.batch,), UNWRITTEN) for _ in range(2))

    def draft(self) -> None:
        """k decode steps of the draft, each fed the token that the one before gives the largest logit."""
        step = self.step
        self.rewind()
        for place in range(1, self.tokens.shape[1]):
            step.run()
            best = self._best(step.logits)
            self.tokens[:, place].copy_(best)
            step.tokens.copy_(best)
            step.places.add_(1)

    def rewind(self) -> None:
        """Puts the draft before its first step."""
        self.step.places.fill_(self._first)
        self.step.tokens.copy_(self.tokens[:, 0])

    def compare(self) -> None:
        """How many drafted tokens the target chooses itself, all before them too, and what it chooses behind them."""
        chosen = self._best(self.verifying.logits).view(self.tokens.shape)
        agreed = (chosen[:, :-1] == self.tokens[:, 1:]).float().cumprod(1).sum(1)
        self.accepted.copy_(agreed)
        self.following.copy_(chosen.gather(1, self.accepted[:, None])[:, 0])

    def run(self) -> None:
        """Drafts, verifies and compares."""
        self.draft()
        self.verifying.run()
        self.compare()

    def poison(self) -> None:
        """Fills with what nobody can have computed what the round must write."""
        self.rewind()
        self.step.poison()
        self.verifying.poison()
        self.accepted.fill_(UNWRITTEN)
        self.following.fill_(UNWRITTEN)

    def _best(self, logits: Tensor) -> Tensor:
        """The id of the largest logit of every row, below what both have rows for. [rows]"""
        found: Tensor = logits.argmax(-1)
        return found.clamp_(max=self._pair.tokens - 1) if self._pair.clamped else found


@dataclass(frozen=True, slots=True)
class _Opened:
    """Caches of some sequences, and what does not depend on k."""

    key: tuple[int, int]
    sessions: tuple[Session, Session]
    decode: Sample
    draft: Sample


class _Bench:
    """A pair on a device, with the caches of the last batch and context."""

    def __init__(self, runtime: Runtime, pair: Pair, longest: int) -> None:
        self.runtime, self.pair, self._longest = runtime, pair, longest
        self._opened: _Opened | None = None

    def at(self, batch: int, context: int) -> _Opened:
        """Full caches, and single steps timed."""
        if self._opened is None or self._opened.key != (batch, context):
            self.close()
            room = context + self._longest
            target = self.pair.target.session(batch, room).filled()
            draft = self.pair.draft.session(batch, room).filled()
            decode = self._single(target, context, f"decode of {batch:,} at {context:,}")
            drafting = self._single(draft, context, f"draft step of {batch:,} at {context:,}")
            self._opened = _Opened((batch, context), (target, draft), decode, drafting)
        return self._opened

    def close(self) -> None:
        """Gives the caches back."""
        self._opened = None
        gc.collect()  # stages point to the step that has them
        self.runtime.release()

    def _single(self, session: Session, context: int, what: str) -> Sample:
        """One decode step."""
        step = session.decode(context - 1)
        step.run()  # kernels are compiled and chosen now
        replay = self.recorded(step.run)
        step.poison()
        check_written(self.runtime, step.logits, replay, what)
        return time_work(self.runtime, replay)

    def recorded(self, work: Callable[[], None]) -> Callable[[], object]:
        """The same in a graph, where there is one."""
        return capture(self.runtime, work) if self.runtime.on_cuda else work


def profile_rounds(
    runtime: Runtime, pair: Pair, points: tuple[Point, ...], budget: Budget, watch: Watch | None = None
) -> Swept[RoundProfile]:
    """Times a round at every batch, context and k; one that does not fit is a row that says so.

    Args:
        runtime: the device.
        pair: target and draft.
        points: batch, context and k of each, those of one batch and context after one another.
        budget: of all.
        watch: as of `sweep`.

    Raises:
        WrongOutputError: a pass left logits unwritten, or nothing was counted.
    """
    bench = _Bench(runtime, pair, max((drafted for _, _, drafted in points), default=1))
    tasks = [Task(round_label(*point), partial(_point, bench, point)) for point in points]
    try:
        return sweep(tasks, budget, watch)
    finally:
        bench.close()


def round_label(batch: int, context: int, drafted: int) -> str:
    """A round in words.

    >>> round_label(16, 1024, 4)
    'round of 4 drafted, 16 at 1,024'
    """
    return f"round of {drafted:,} drafted, {batch:,} at {context:,}"


def _point(bench: _Bench, point: Point) -> RoundProfile:
    try:
        with memory_guard(bench.runtime), bench.runtime.torch.inference_mode():
            return _timed(bench, point)
    except OutOfMemoryError as error:
        problem = str(error)
    finally:
        gc.collect()
        bench.runtime.release()
    bench.close()
    return RoundProfile(*point, problem=problem)


def _timed(bench: _Bench, point: Point) -> RoundProfile:
    batch, context, drafted = point
    runtime, opened = bench.runtime, bench.at(batch, context)
    made = Round(bench.pair, opened.sessions, context, drafted)
    made.run()  # kernels are compiled and chosen now
    drafting, verify, whole = map(bench.recorded, (made.draft, made.verifying.run, made.run))
    _check(runtime, made, (drafting, whole), round_label(*point))
    return RoundProfile(
        *point,
        decode=opened.decode,
        draft=opened.draft,
        drafting=time_work(runtime, drafting),
        verify=time_work(runtime, verify),
        round=time_work(runtime, whole),
        launched=GRAPH if runtime.on_cuda else EAGER,
    )


def _check(runtime: Runtime, made: Round, works: tuple[Callable[[], object], Callable[[], object]], what: str) -> None:
    """Sees that drafting and the whole write all logits, and that tokens were counted.

    Raises:
        WrongOutputError: they do not.
    """
    drafting, whole = works
    made.poison()
    check_written(runtime, made.step.logits, drafting, f"drafting in a {what}")
    made.poison()
    check_written(runtime, made.verifying.logits, whole, f"verifying in a {what}")
    most = made.tokens.shape[1] - 1
    counted = (made.accepted >= 0) & (made.accepted <= most) & (made.following >= 0)
    if not bool(counted.all()):
        raise WrongOutputError(f"{what}: accepted tokens were not counted; its time means nothing")
