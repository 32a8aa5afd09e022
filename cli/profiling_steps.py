"""`profile prefill`, `decode` and `compare`: steps of a model on this machine, measured beside their roofs."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from roofcast.calculators.answer import remarks
from roofcast.calculators.errors import UsageError
from roofcast.cli.profiling import (
    leave,
    left_line,
    machine_remarks,
    nothing_line,
    seconds_of,
    unsteady_line,
    watching,
    written,
)
from roofcast.cli.session import Lookup, explain_or, load

if TYPE_CHECKING:
    from collections.abc import Mapping

    from roofcast.calculators.answer import Remarks
    from roofcast.calculators.profile_work import Counted
    from roofcast.calculators.profiled import DeviceProfile, StepProfile
    from roofcast.cli.profiling import Bench
    from roofcast.cli.profiling_asked import Steps
    from roofcast.cli.profiling_ranks import RanksAsked
    from roofcast.modelspec.model import Model as Loaded
    from roofcast.profiler.decoder import Decoder

    Points = Mapping[str, tuple[tuple[int, int], ...]]

PHASES = ("prefill", "decode")
ROUTINGS = ("drawn", "balanced")
MOST_SEED = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class Model:
    """A model as options name it, and how its weights are made."""

    name: str | None
    weights: str | None
    routing: str
    seed: int
    revision: str | None
    offline: bool

    def check(self) -> None:
        """Refuses what cannot be, before torch is loaded.

        Raises:
            UsageError: naming the option.
        """
        from roofcast.calculators.profile_work import WEIGHTS

        explain_or(None, self.name)
        if self.weights is not None and self.weights not in WEIGHTS:
            raise UsageError(f"--weights {self.weights}: the profiler's weights can be {', '.join(WEIGHTS)}")
        if self.routing not in ROUTINGS:
            raise UsageError(f"--routing {self.routing}: known: {', '.join(ROUTINGS)}")
        if not 0 <= self.seed <= MOST_SEED:
            raise UsageError(f"--seed {self.seed}: it must be a whole number from 0 to {MOST_SEED:,}")

    @property
    def lookup(self) -> Lookup:
        """How it is looked up."""
        return Lookup(self.revision, self.offline)


@dataclass(frozen=True, slots=True)
class Chosen:
    """A model, the format of its weights, and what is assumed by that."""

    loaded: Loaded
    weights: str
    assumed: str | None

    @property
    def work(self) -> Counted:
        """Its work, as the profiler's decoder does it."""
        from roofcast.calculators.profile_work import counted

        return counted(self.loaded.spec, self.weights)

    @property
    def routed(self) -> bool:
        """Whether it has routed experts."""
        return bool(self.work.program.routed)


@dataclass(frozen=True, slots=True)
class Measured:
    """What was measured of a model: roofs, steps, what is left and why, and what the decoder assumes."""

    device: DeviceProfile
    steps: tuple[StepProfile, ...]
    left: tuple[str, ...]
    why: str
    assumptions: tuple[str, ...]
    lost: bool = False


def phases_asked(text: str | None) -> tuple[str, ...]:
    """What `--phase` asks; both where it does not.

    Raises:
        UsageError: no such phase.
    """
    if text is None:
        return PHASES
    if text not in PHASES:
        raise UsageError(f"--phase {text}: known: {', '.join(PHASES)}")
    return (text,)


def answer_steps(
    what: str,
    model: Model,
    asked: Steps,
    where: tuple[str | None, str | None],
    ranks: RanksAsked,
    output: tuple[str | None, str | None, bool],
    *,
    terms: bool,
    efficiency: str = "expected",
) -> None:
    """Measures steps, and prints them beside what they could be.

    Args:
        what: the command.
        model: whose steps.
        asked: batches and lengths.
        where: --device and --budget.
        ranks: --tp, --backend and --wait.
        output: --format, --out and --strict.
        terms: whether text shows every term.
        efficiency: constants of expected times.
    """
    from roofcast.calculators.deployment import check_shards
    from roofcast.calculators.profile_making import machine_row, ranks_row
    from roofcast.cli.deploy import efficiency_of
    from roofcast.cli.profiling_compare import Profile, told
    from roofcast.modelspec.sharding import Shards
    from roofcast.reports.profile import profile_document

    target = written(output[0], output[1], strict=output[2], charts=True, read=[model.name or "", efficiency])
    model.check()
    constants, seconds = efficiency_of(efficiency), seconds_of(where[1])
    points = {phase: asked.points(phase) for phase in asked.phases}
    team = ranks.settled(where[0])
    opened = team.bench(seconds)
    chosen = choose(model, opened)
    check_shards(chosen.loaded.spec, Shards(team.size))
    with team.ranked(opened, partial(measure, chosen, model, points), _alike(chosen, model, points)) as joined:
        measured = measure(chosen, model, points, joined)
        group = joined.runtime.ranks.group if joined.runtime.ranks is not None else None
    if not team.leads:
        return
    machine = machine_row(opened.runtime.machine)
    profile = Profile(
        machine, measured.device, measured.steps, chosen.weights, measured.left, team.size, ranks_row(group)
    )
    result, said = told(what, profile, chosen.loaded, (model.name or "", model.revision), constants)
    said += _remarks(chosen, measured, points) + machine_remarks(opened)
    inputs = {
        **_inputs(model, points),
        "tp": team.size,
        "device": where[0],
        "budget_seconds": seconds,
        "efficiency": efficiency,
    }
    target.present(profile_document(result, inputs, said, terms=terms))
    leave(measured.why, nothing=_nothing(measured), lost=measured.lost)


def _alike(chosen: Chosen, model: Model, points: Points) -> dict[str, object]:
    """What every rank must have alike; a folder may have another name on another host."""
    return {
        "profile": " and ".join(points),
        "parameters": f"{chosen.loaded.spec.parameters:,}",
        "layers": len(chosen.loaded.spec.layers),
        **{f"{phase} of batch and length": list(some) for phase, some in points.items()},
        "--weights": chosen.weights,
        "--routing": model.routing,
        "--seed": model.seed,
    }


def _inputs(model: Model, points: Points) -> dict[str, object]:
    """The question, as `inputs` repeats it."""
    return {
        "model": model.name,
        "weights": model.weights,
        "routing": model.routing,
        "seed": model.seed,
        "revision": model.revision,
        "points": {phase: [list(point) for point in some] for phase, some in points.items()},
    }


def _remarks(chosen: Chosen, measured: Measured, points: Points) -> Remarks:
    """What was assumed of the model, what is left, what did not run."""
    most = chosen.loaded.spec.max_context
    longest = max(length for some in points.values() for _, length in some)
    beyond = most is not None and longest > most
    name = chosen.loaded.name
    return remarks(
        [chosen.assumed, *(f"{name}: {line}" for line in (*chosen.loaded.spec.assumptions, *measured.assumptions))],
        [
            left_line(measured.left, measured.why),
            *(f"{label(step)} did not run: {step.problem}" for step in measured.steps if step.problem),
            f"{name}: {longest:,} tokens are beyond the {most:,} that its config allows" if beyond else None,
            unsteady_line(step.sample for step in measured.steps if step.sample is not None),
        ],
    )


def label(step: StepProfile) -> str:
    """A step in words."""
    from roofcast.profiler.steps import label_of

    return label_of(step.phase, step.batch, step.context)


def _nothing(measured: Measured) -> str | None:
    """What to say where no step ran; None where one did."""
    every = measured.steps
    return nothing_line("no step", (one.sample for one in every), (one.problem for one in every), measured.why)


def choose(model: Model, opened: Bench) -> Chosen:
    """Loads the model, and settles the format of its weights.

    Raises:
        ModelError, UnavailableError: what is wrong with it.
        ProfileUsageError: a format that the device has not.
    """
    from roofcast.calculators.profile_work import USUAL, stated_weights
    from roofcast.profiler.errors import ProfileUsageError
    from roofcast.profiler.fp8 import has_fp8
    from roofcast.profiler.layers import plan_layers

    loaded = load(model.name or "", model.lookup)
    plan_layers(loaded.spec)
    lacking = not (opened.runtime.on_cuda and has_fp8(opened.runtime))
    if model.weights is not None:
        if model.weights == "fp8" and lacking:
            raise ProfileUsageError(
                f"--weights fp8: {opened.runtime.machine.name} multiplies none; bf16, fp16 and fp32 can be"
            )
        return Chosen(loaded, model.weights, None)
    weights, assumed = stated_weights(loaded)
    if weights == "fp8" and lacking:
        return Chosen(
            loaded,
            USUAL,
            f"{loaded.name}: {opened.runtime.machine.name} multiplies no fp8, in which its weights are: {USUAL} is taken",
        )
    return Chosen(loaded, weights, assumed)


def measure(chosen: Chosen, model: Model, points: Points, opened: Bench) -> Measured:
    """Roofs first, then the decoder and its steps, phase by phase; no weight is drawn where no step would follow.

    Raises:
        UnavailableError, WrongOutputError: what keeps it from being measured.
    """
    from roofcast.calculators.profile_work import activations_of
    from roofcast.profiler.device import quick_roofs
    from roofcast.profiler.steps import Asked, label_of, profile_steps
    from roofcast.profiler.sweep import INTERRUPTED, SPENT

    runtime, budget = opened.runtime, opened.budget
    steps: list[StepProfile] = []
    left: list[str] = []
    decoder, lost = None, False
    with watching(runtime) as watch:
        formats = dict.fromkeys((chosen.weights, activations_of(chosen.weights)))
        device = quick_roofs(runtime, formats, budget, watch)
        why = device.stopped or (SPENT if budget.spent else "")
        if not why:
            if watch is not None:
                watch(f"random weights of {chosen.loaded.name}", 0, 1)
            try:
                decoder = _decoder(chosen, model, opened)
            except KeyboardInterrupt:
                why = INTERRUPTED
        routing = model.routing if chosen.routed else ""
        for phase, some in points.items():
            if why or decoder is None:
                left += [label_of(phase, *point) for point in some]
                continue
            swept = profile_steps(runtime, decoder, Asked(phase, some, routing), budget, watch)
            steps += swept.done
            left += swept.left
            why, lost = swept.why, swept.lost
    return Measured(device, tuple(steps), tuple(left), why, () if decoder is None else decoder.assumptions, lost)


def _decoder(chosen: Chosen, model: Model, opened: Bench) -> Decoder:
    from roofcast.calculators.profile_work import activations_of
    from roofcast.profiler.decoder import Decoder, Setup
    from roofcast.profiler.kernel_choice import choose_kernels

    setup = Setup(chosen.weights, activations_of(chosen.weights), model.routing, model.seed)
    return Decoder(chosen.loaded.spec, opened.runtime, choose_kernels(opened.runtime), setup)
