"""The rows of `estimate` and `roofline`: a phase at a batch and a context, its work, its least time, whether it fits."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, Final

from roofcast.calculators.deployment import cache_on_one, fullest_stage
from roofcast.calculators.errors import UsageError
from roofcast.calculators.expected.interval import interval
from roofcast.calculators.step import Estimate, estimate, scaled
from roofcast.modelspec.step import DECODE, MIXED, PREFILL, chunked_prefill, decode_step, mixed_step, prefill_step

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from roofcast.calculators.deployment import Holding, Ready
    from roofcast.calculators.expected.expectation import Expectation
    from roofcast.calculators.roofline import Term
    from roofcast.modelspec.sharding import Shards
    from roofcast.modelspec.step import Step

    Seconds = Callable[[Term], float]

DEFAULT_BUDGET: Final = 2048  # tokens of a mixed step. Source: vLLM 0.11, --max-num-batched-tokens of its online server
PIECES: Final = (*range(1, 17), 20, 24, 28, 32, 40, 48, 56, 64, 96, 128)  # that a pipeline may be given a prompt in
# engines whose stages of a pipeline wait for one another in prefill -> tokens that pass them at once. Source: llama.cpp,
# common.h, n_ubatch; published prompts on 2 and 4 cards take as long as on one card with their memory
IN_TURN: Final[Mapping[str, int]] = {"llama.cpp": 512, "ollama": 512}
CHUNK: Final = (
    8192  # tokens of a piece elsewhere. Source: vLLM 0.24, --max-num-batched-tokens' default; SGLang likewise
)
BOUND: Final = attrgetter("bound")
EXPECTED: Final = attrgetter("expected")
HEAD_TERMS: Final = ("head", "tp.logits")
A_TOKEN: Final = 1e-6  # what decimal shares miss of a whole token: 0.29 of 100 is 29
MOST_STEPS: Final = 20_000  # that prompts are cut into


@dataclass(frozen=True, slots=True)
class Asked:
    """What is asked of a deployment.

    Args:
        phase: prefill, decode or mixed.
        batch: sequences, over all replicas.
        context: of decode, tokens that each attends to; of prefill, its prompt. [token]
        budget: tokens that one step takes (`--max-num-batched-tokens`); None is all of them, and 2,048 beside decoding
            sequences. [token]
        cached: share of the prompt that a prefix cache holds. [-]
        prompt: of a mixed step, whose end it takes; None is as long as the context. [token]
        drafted: of decode, positions that each sequence verifies beside its own new token. [token]
    """

    phase: str
    batch: int
    context: int
    budget: int | None = None
    cached: float = 0.0
    prompt: int | None = None
    drafted: int = 0

    @property
    def held(self) -> int:
        """Tokens that each sequence holds after the step: the context, and what was drafted beyond it. [token]"""
        return self.context + self.drafted

    @property
    def room(self) -> int | None:
        """Tokens of a step at most: as asked, else 2,048 of a mixed one. [token]"""
        return self.budget or (DEFAULT_BUDGET if self.phase == MIXED else None)

    @property
    def hit(self) -> int:
        """Tokens of the prompt that are in the cache: whole ones, and never the last, whose logits are asked. [token]

        >>> Asked("prefill", 1, 4096, cached=0.5).hit
        2048
        """
        return min(int(self.context * self.cached + A_TOKEN), self.context - 1)


@dataclass(frozen=True, slots=True)
class Point:
    """What a deployment answers.

    Args:
        asked: the question.
        work: terms on one device, of all stages of a pipeline: of all steps of a prefill, of one part of decode.
        passes: what the whole takes of the time of these, since stages work on several steps at once. [-]
        kernels: expected time of the kernels on all devices; None where no constants are asked. [s]
        host: time of the hosts in all steps that no kernel hides. [s]
        spread: standard deviation of ln(measured / expected). [-]
        fits: whether weights and cache of all sequences fit at that context.
        reason: why not; empty where they do.
        tokens: that all sequences together gain. [token]
        steps: that it takes, one after the other.
        stages: of the pipeline, which work at once.
    """

    asked: Asked
    work: Estimate
    passes: float
    fits: bool
    reason: str
    tokens: int
    steps: int = 1
    stages: int = 1
    kernels: float | None = None
    host: float = 0.0
    spread: float = 0.0

    @property
    def expected(self) -> float | None:
        """Expected time of kernels and host, without queueing; None of what does not fit, or where no constants are asked. [s]"""
        return None if self.kernels is None or not self.fits else self.kernels + self.host

    @property
    def interval(self) -> tuple[float, float] | None:
        """Low and high end of the expected time's 80 % interval. [s]"""
        if self.expected is None or self.bound is None:
            return None
        return interval(self.expected, self.bound, self.spread)

    @property
    def expected_rate(self) -> float | None:
        """Tokens a second of the whole deployment at the expected time: tokens / expected. [token/s]"""
        return None if self.expected is None else self.tokens / self.expected

    @property
    def bound(self) -> float | None:
        """Least time, None of what does not fit. [s]"""
        return self.work.bound * self.passes if self.fits else None

    @property
    def full(self) -> float | None:
        """Least time were activations to go through memory; None of what does not fit. [s]"""
        return self.work.full * self.passes if self.fits else None

    @property
    def overlapped(self) -> float | None:
        """Least time were operations to overlap without limit; None of what does not fit. [s]"""
        if not self.fits:
            return None
        stages = self.stages if self.asked.phase == PREFILL else 1
        return self.work.overlapped / stages

    @property
    def rate(self) -> float | None:
        """Tokens a second of the whole deployment at the bound: tokens / bound; in prefill those of the prompts. [token/s]"""
        return None if self.bound is None else self.tokens / self.bound


def answer_point(ready: Ready, asked: Asked) -> Point:
    """The least time of what is asked, on all devices: the sum over its steps of their bounds. [s]

    TTFT is that of a prompt's steps, TPOT of one decode step. Replicas share the batch. A pipeline of p stages decodes
    m <= p parts of its share at once, each a pass of all stages, or m turns of the slowest. Its prefill is cut into steps
    that follow one another from stage to stage: the share s of the slowest stage of all steps, and the rest of a pass of
    the longest, s sum + (1 - s) max; pieces are as `--max-num-batched-tokens` asks, else those of the least time.

    Source: Huang et al., GPipe, arXiv:1811.06965, section 2.3.

    Raises:
        MalformedModelError, UsageError: a batch, context or budget that cannot be.
    """
    shards = ready.deployment.shards
    here = -(-asked.batch // shards.dp)
    parts = min(here, shards.pp)
    piped = asked.phase == PREFILL and shards.pp > 1
    steps = _pieces(ready, asked, here) if piped else tuple(_steps(asked, shards, -(-here // parts)))
    made = [estimate(ready, step) for step, _ in steps]
    reason, work = shortage(ready, asked), _summed(made, steps)
    passes = (
        partial(_piped, ready, made, [times for _, times in steps]) if piped else partial(_turns, ready, made[0], parts)
    )
    gained, count = _gained(asked, steps[0][0], shards.dp * parts), sum(times for _, times in steps)
    bound = passes(BOUND)
    if ready.expectation is None:
        return Point(asked, work, bound, not reason, reason, gained, count, shards.pp)
    kernels, host = _expected(ready, ready.expectation, asked, steps, made)
    spread = ready.expectation.spread(work.terms, host, asked.phase, -(-asked.batch // shards.dp))
    return Point(asked, work, bound, not reason, reason, gained, count, shards.pp, kernels, host, spread)


def _expected(
    ready: Ready,
    expectation: Expectation,
    asked: Asked,
    steps: Sequence[tuple[Step, int]],
    made: Sequence[Estimate],
) -> tuple[float, float]:
    """Expected time of kernels, and of the host that none hides: in a pipeline's prefill of an engine's own pieces. [s]"""
    shards, engine = ready.deployment.shards, ready.deployment.engine
    here = -(-asked.batch // shards.dp)
    piped = asked.phase == PREFILL and shards.pp > 1
    if piped and asked.budget is None:
        steps = tuple(_steps(replace(asked, budget=IN_TURN.get(engine, CHUNK)), shards, here))
        made = [estimate(ready, step) for step, _ in steps]
    counts = [times for _, times in steps]
    launched = 1.0  # share of the launches that follow one another: stages that work at once launch at once
    if not piped:
        share = _turns(ready, made[0], min(here, shards.pp), EXPECTED)
    elif engine in IN_TURN:
        share = 1.0
    else:
        share, launched = _piped(ready, made, counts, EXPECTED), fullest_stage(ready.model.spec, shards)
    each = [share * one.expected for one in made]
    host = sum(
        times * expectation.host(asked.phase, shards.in_step, _sequences(step), launched * work.calls, kernels)
        for (step, times), work, kernels in zip(steps, made, each, strict=True)
    )
    return sum(kernels * times for kernels, times in zip(each, counts, strict=True)), host


def _sequences(step: Step) -> int:
    return sum(group.sequences for group in step.groups)


def _turns(ready: Ready, work: Estimate, parts: int, seconds: Seconds) -> float:
    """What so many parts of a batch take of the time of one: a pass, or turns of the slowest stage. [-]"""
    return 1.0 if parts == 1 else max(1.0, parts * _slowest_stage(ready, work, seconds))


def _slowest_stage(ready: Ready, work: Estimate, seconds: Seconds) -> float:
    """Share of a pass that the slowest stage takes: the most layers, or the last one's layers and the head. [-]"""
    stages, layers = ready.deployment.shards.pp, len(ready.model.spec.layers)
    if stages == 1:
        return 1.0
    head = sum(seconds(term) for name in HEAD_TERMS for term in work.term(name))
    total = sum(map(seconds, work.terms))
    inner = total - head
    return max(-(-layers // stages) / layers * inner, layers // stages / layers * inner + head) / total


def _steps(asked: Asked, shards: Shards, batch: int) -> Iterator[tuple[Step, int]]:
    """Steps of so many sequences of a replica, beside what other replicas do meanwhile.

    Of a batch that is less than all of them, those that have a sequence.
    """
    share = asked.batch / (-(-asked.batch // shards.dp) * shards.dp)
    for step, times in STEPS[asked.phase](asked, batch):
        yield replace(step, others=max(0, round(step.tokens * shards.dp * share) - step.tokens)), times


def _summed(made: Sequence[Estimate], steps: Sequence[tuple[Step, int]]) -> Estimate:
    every = (scaled(one, times) for one, (_, times) in zip(made, steps, strict=True))
    return Estimate(tuple(term for one in every for term in one.terms))


def _piped(ready: Ready, made: Sequence[Estimate], counts: Sequence[int], seconds: Seconds) -> float:
    """What steps that follow one another through the stages take of the time of all: s + (1 - s) max / sum. [-]"""
    share = fullest_stage(ready.model.spec, ready.deployment.shards)
    each = [sum(map(seconds, one.terms)) for one in made]
    total = sum(one * times for one, times in zip(each, counts, strict=True))
    return share + (1 - share) * max(each) / total


def _pieces(ready: Ready, asked: Asked, here: int) -> tuple[tuple[Step, int], ...]:
    """A prompt's steps through a pipeline, in the pieces that take the least time."""
    shards = ready.deployment.shards
    share = fullest_stage(ready.model.spec, shards)
    tokens = here * (asked.context - asked.hit)
    pieces = [-(-tokens // n) for n in PIECES if tokens >= n]
    budgets = dict.fromkeys([asked.budget] if asked.budget else pieces)
    every = [tuple(_steps(replace(asked, budget=budget), shards, here)) for budget in budgets]
    return min(every, key=lambda steps: _guessed(ready, steps, share)) if len(every) > 1 else every[0]


def _guessed(ready: Ready, steps: Sequence[tuple[Step, int]], share: float) -> float:
    """About what pieces take through a pipeline, by the first, the middle and the last (Simpson's rule). [s]"""
    first, middle, last = (estimate(ready, steps[at][0]).bound for at in (0, len(steps) // 2, -1))
    mean = (first + 4 * middle + last) / 6 if len(steps) > 1 else first
    return share * mean * sum(times for _, times in steps) + (1 - share) * max(first, middle, last)


def _gained(asked: Asked, step: Step, parts: int) -> int:
    """Tokens that all sequences gain, those of a prompt that were cached included; each part of a mixed step adds a chunk."""
    if asked.phase == PREFILL:
        return asked.batch * asked.context
    return asked.batch * (1 + asked.drafted) + parts * sum(
        group.tokens for group in step.groups if group.phase == PREFILL
    )


def _decode(asked: Asked, batch: int) -> Iterator[tuple[Step, int]]:
    if asked.budget is not None and batch > asked.budget:
        msg = f"--max-num-batched-tokens {asked.budget:,} is less than the {batch:,} sequences that decode, a token each; give more"
        raise UsageError(msg)
    yield decode_step(batch, asked.held, tokens=1 + asked.drafted), 1


def _prefill(asked: Asked, batch: int) -> Iterator[tuple[Step, int]]:
    """Prompts at once, or as a budget takes them: several whole ones a step, or one in chunks after the other."""
    new, budget = asked.context - asked.hit, asked.budget
    if budget is None or batch * new <= budget:
        yield prefill_step(batch, asked.context, cached=asked.hit), 1
        return
    if new > budget:
        yield from ((step, batch) for step in chunked_prefill(1, asked.context, budget, cached=asked.hit))
        return
    steps, rest = divmod(batch, budget // new)
    yield prefill_step(budget // new, asked.context, cached=asked.hit), steps
    if rest:
        yield prefill_step(rest, asked.context, cached=asked.hit), 1


def _mixed(asked: Asked, batch: int) -> Iterator[tuple[Step, int]]:
    """Every sequence decodes; what they leave of the budget takes the end of a prompt."""
    budget, prompt = asked.room or DEFAULT_BUDGET, asked.prompt or asked.context
    if asked.cached:
        msg = (
            "--prefix-hit does not go with --phase mixed: its chunk stands at the end of a prompt, behind all the rest"
        )
        raise UsageError(msg)
    chunk = min(budget - batch, prompt)
    if chunk < 1:
        msg = f"--max-num-batched-tokens {budget:,} leaves no token of a prompt beside {batch:,} sequences; give more"
        raise UsageError(msg)
    yield mixed_step(batch, asked.context, chunk, cached=prompt - chunk, last=True), 1


STEPS: Final[Mapping[str, Callable[[Asked, int], Iterator[tuple[Step, int]]]]] = {
    DECODE: _decode,
    PREFILL: _prefill,
    MIXED: _mixed,
}


def shortage(ready: Ready, asked: Asked) -> str:
    """What does not fit on one device at the batch and context asked; empty where weights + cache <= memory. [B]

    Where an engine's own rules are asked, what its cache does not hold.
    """
    shards = ready.deployment.shards
    if ready.holding is not None:
        return _not_held(ready.deployment.engine, ready.holding, asked)
    prompts = shards.dp * min(-(-asked.batch // shards.dp), shards.pp) if asked.phase == MIXED else 0
    cache = cache_on_one(ready, asked.batch, asked.held)
    cache += cache_on_one(ready, prompts, asked.prompt or asked.context)
    if ready.weight_bytes + cache <= ready.capacity:
        return ""
    where = "each GPU" if shards.devices > 1 else "the GPU"
    return (
        f"{where} offers {ready.capacity / 1e9:.1f} GB; weights take {ready.weight_bytes / 1e9:.1f} GB and the cache of "
        f"{asked.batch:,} x {asked.held:,} tokens{' and of the prompts beside' if prompts else ''} {cache / 1e9:.1f} GB"
    )


def _not_held(engine: str, holding: Holding, asked: Asked) -> str:
    most = holding.sequences(asked.held)
    if most >= asked.batch:
        return ""
    why = holding.why(asked.held)
    has = "there is" if engine == "none" else f"{engine} has"
    said = f"{has} room for {most:,} x {asked.held:,} tokens at once, and {asked.batch:,} are asked"
    return f"{said} ({why})" if why else said


def most_sequences(ready: Ready, context: int) -> int:
    """Sequences that fit beside the weights, on all replicas: dp floor((M - W) / cache of one). [sequence]

    Where an engine's own rules are asked, what its cache holds.
    """
    if ready.holding is not None:
        return ready.holding.sequences(context)
    each = cache_on_one(ready, 1, context)
    room = ready.capacity - ready.weight_bytes
    return max(0, int(room // each)) * ready.deployment.shards.dp if each else 0


def check_steps(asked: Iterable[Asked]) -> None:
    """Refuses budgets that cut prompts into more steps than are looked at one by one.

    Raises:
        UsageError: there are more than 20,000.
    """
    cut = [-(-(one.context - one.hit) // one.budget) for one in asked if one.budget and one.phase == PREFILL]
    if sum(cut) > MOST_STEPS:
        msg = (
            f"--max-num-batched-tokens cuts the prompts into {sum(cut):,} steps; at most {MOST_STEPS:,} at once: "
            f"give more tokens a step, or shorter prompts"
        )
        raise UsageError(msg)


def asked_of(
    phases: Iterable[str],
    batches: Sequence[int],
    contexts: Sequence[int],
    *,
    budget: int | None = None,
    cached: float = 0.0,
) -> list[Asked]:
    """Every phase at every context and batch."""
    return [
        Asked(phase, batch, context, budget, cached) for phase in phases for context in contexts for batch in batches
    ]
