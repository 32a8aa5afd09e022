"""`profile speculate`: rounds of two decoders on this machine, beside what `speculate` says of them, and real text."""

from __future__ import annotations

import gc
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from roofcast.calculators.answer import Remarks, remarks
from roofcast.cli.profiling import (
    bench,
    leave,
    left_line,
    machine_remarks,
    nothing_line,
    seconds_of,
    unsteady_line,
    watching,
    written,
)
from roofcast.cli.profiling_rounds import of_draft
from roofcast.cli.profiling_steps import choose
from roofcast.cli.profiling_texts import NOTHING, Continued, TextAsked, continued

if TYPE_CHECKING:
    from collections.abc import Iterator

    from roofcast.calculators.profile_rounds import Side
    from roofcast.calculators.profile_rows import MachineRow, MeasuredRow, ProfileResult
    from roofcast.calculators.profiled import Sample
    from roofcast.calculators.profiled_rounds import RoundProfile
    from roofcast.cli.profiling import Bench
    from roofcast.cli.profiling_rounds import Asked, Plan
    from roofcast.cli.profiling_steps import Chosen, Model
    from roofcast.profiler.decoder import Decoder
    from roofcast.profiler.speculative import Pair


@dataclass(frozen=True, slots=True)
class Measured:
    """What was measured, what is left and why, and what the decoders assume."""

    rounds: tuple[RoundProfile, ...]
    left: tuple[str, ...]
    why: str
    assumptions: tuple[str, ...] = ()


def answer_speculate(
    asked: Asked,
    lookup: tuple[str | None, bool],
    where: tuple[str | None, str | None],
    output: tuple[str | None, str | None, bool],
) -> None:
    """Measures rounds, and prints them beside what they could be.

    Args:
        asked: what is measured.
        lookup: --revision and --offline.
        where: --device and --budget.
        output: --format, --out and --strict.
    """
    from roofcast.reports.profile import profile_document

    read = [*asked.names, *([asked.text[0]] if asked.text[0] else [])]
    target = written(output[0], output[1], strict=output[2], read=read)
    models, plan, seconds = asked.models(lookup[0], offline=lookup[1]), asked.plan(), seconds_of(where[1])
    asked.check_text()
    wanted = TextAsked(asked.names, *asked.text, asked.weights, asked.seed)
    texts = wanted.texts()
    opened = bench(where[0], seconds)
    chosen = _chosen(models, opened)
    measured = measure(chosen, models, plan, opened)
    real = NOTHING if measured.why else continued(wanted, texts, plan.drafted, opened)
    result, said = told(chosen, models, plan, measured, opened)
    result = with_texts(result, real)
    said += real.said
    inputs = {
        "target": asked.names[0],
        "draft": asked.names[1],
        "k": list(plan.drafted),
        "batch": list(dict.fromkeys(batch for batch, _, _ in plan.points)),
        "context": list(dict.fromkeys(context for _, context, _ in plan.points)),
        "acceptance": list(plan.acceptances),
        "weights": asked.weights[0],
        "draft_weights": asked.weights[1],
        "text": asked.text[0],
        "tokens": wanted.tokens,
        "seed": asked.seed,
        "revision": lookup[0],
        "device": where[0],
        "budget_seconds": seconds,
    }
    target.present(profile_document(result, inputs, said + machine_remarks(opened)))
    leave(
        measured.why or real.why,
        nothing=_nothing(measured) or (real.problem or None if asked.text[0] is not None else None),
    )


def _chosen(models: tuple[Model, Model], opened: Bench) -> tuple[Chosen, Chosen]:
    """Both models, loaded, with the format of their weights.

    Raises:
        ModelError, UnavailableError, ProfileUsageError: what is wrong with one of them.
    """
    from roofcast.profiler.errors import ProfileUsageError

    target = choose(models[0], opened)
    try:
        return target, choose(models[1], opened)
    except ProfileUsageError as error:
        raise ProfileUsageError(of_draft(error)) from error


def measure(chosen: tuple[Chosen, Chosen], models: tuple[Model, Model], plan: Plan, opened: Bench) -> Measured:
    """Both decoders, then rounds; no weight is drawn where no round would follow.

    Raises:
        UnavailableError, WrongOutputError: what keeps them from being measured.
    """
    from roofcast.profiler.speculative import profile_rounds, round_label
    from roofcast.profiler.sweep import INTERRUPTED, SPENT

    left = tuple(round_label(*point) for point in plan.points)
    if opened.budget.spent:
        return Measured((), left, SPENT)
    with watching() as watch:
        if watch is not None:
            watch(f"random weights of {chosen[0].loaded.name} and {chosen[1].loaded.name}", 0, 1)
        try:
            pair = _pair(chosen, models, opened)
        except KeyboardInterrupt:
            return Measured((), left, INTERRUPTED)
        swept = profile_rounds(opened.runtime, pair, plan.points, opened.budget, watch)
    said = _assumed(chosen, pair)
    del pair
    gc.collect()  # real text needs the memory
    opened.runtime.release()
    return Measured(swept.done, swept.left, swept.why, said)


def _pair(chosen: tuple[Chosen, Chosen], models: tuple[Model, Model], opened: Bench) -> Pair:
    """Both decoders, the draft beside the target.

    Raises:
        OutOfMemoryError: naming which of them does not fit.
    """
    from roofcast.profiler.errors import OutOfMemoryError
    from roofcast.profiler.speculative import Pair

    made: list[Decoder] = []
    for one, model in zip(chosen, models, strict=True):
        try:
            made.append(_decoder(one, model, opened))
        except OutOfMemoryError as error:
            beside = f" beside {made[0].weight_bytes / 2**30:.1f} GiB of {chosen[0].loaded.name}" if made else ""
            raise OutOfMemoryError(f"{one.loaded.name}{beside}: {error}") from error
    return Pair(*made)


def _decoder(chosen: Chosen, model: Model, opened: Bench) -> Decoder:
    from roofcast.calculators.profile_work import activations_of
    from roofcast.profiler.decoder import Decoder, Setup
    from roofcast.profiler.kernel_choice import choose_kernels

    setup = Setup(chosen.weights, activations_of(chosen.weights), model.routing, model.seed)
    return Decoder(chosen.loaded.spec, opened.runtime, choose_kernels(opened.runtime), setup)


def _assumed(chosen: tuple[Chosen, Chosen], pair: Pair) -> tuple[str, ...]:
    """What the decoders leave out, and what becomes of vocabularies that differ."""
    names = [one.loaded.name for one in chosen]
    said = [
        f"{name}: {line}"
        for name, made in zip(names, (pair.target, pair.draft), strict=True)
        for line in made.assumptions
    ]
    rows = [int(made.embedding.shape[0]) for made in (pair.target, pair.draft)]
    if rows[0] != rows[1]:
        both = " and ".join(f"{name} {count:,}" for name, count in zip(names, rows, strict=True))
        said.append(
            f"vocabularies differ ({both} tokens): ids are kept below {pair.tokens:,}, which times of random weights allow; real "
            "text needs a draft that speaks the target's tokens"
        )
    return tuple(said)


def told(
    chosen: tuple[Chosen, Chosen], models: tuple[Model, Model], plan: Plan, measured: Measured, opened: Bench
) -> tuple[ProfileResult, Remarks]:
    """The answer, rounds beside their estimates where the device is in the database."""
    from roofcast.calculators.profile_making import machine_row
    from roofcast.calculators.profile_rounds import round_row
    from roofcast.calculators.profile_rows import ProfileResult
    from roofcast.calculators.profile_rows_rounds import SpeculationRow
    from roofcast.calculators.profile_work import constants_note

    sides = tuple(_side(one, opened) for one in chosen)
    machine = machine_row(opened.runtime.machine)
    speculation = SpeculationRow(
        target=chosen[0].loaded.name,
        draft=chosen[1].loaded.name,
        draft_weights=chosen[1].weights,
        rounds=[round_row(one, sides[0], sides[1], plan.acceptances) for one in measured.rounds],
        texts=[],
        transformers=None,
    )
    result = ProfileResult(
        what="speculate",
        machine=machine,
        model=chosen[0].loaded.name,
        weights=chosen[0].weights,
        speculation=speculation,
        measurements=_measurements(chosen, models, measured, machine),
        unfinished=list(measured.left),
    )
    said = remarks(notes=[constants_note(side.against for side in sides)])
    return result, _remarks(chosen, plan, measured) + said


def with_texts(result: ProfileResult, real: Continued) -> ProfileResult:
    """The answer with rounds of real text."""
    from roofcast.calculators.profile_texts import text_row

    speculation = result.speculation
    if speculation is None or not (real.rounds or real.left):
        return result
    version = next((one.transformers for one in real.rounds), None)
    made = replace(speculation, texts=[text_row(one) for one in real.rounds], transformers=version)
    return replace(result, speculation=made, unfinished=[*result.unfinished, *real.left])


def _side(chosen: Chosen, opened: Bench) -> Side:
    """A model's work, and roofs and constants of the device where it is in the database."""
    from roofcast.calculators.profile_rounds import Side
    from roofcast.calculators.profile_work import Against, against_datasheet

    accelerator = opened.accelerator
    if accelerator is None:
        return Side(chosen.work, Against())
    return Side(chosen.work, against_datasheet(accelerator, chosen.loaded, chosen.weights, None))


def _measurements(
    chosen: tuple[Chosen, Chosen], models: tuple[Model, Model], measured: Measured, machine: MachineRow
) -> list[MeasuredRow]:
    """Plain decode steps of both, as `validate` reads them."""
    from roofcast.calculators.profile_rounds import step_measurements
    from roofcast.calculators.profile_work import activations_of

    rows: list[MeasuredRow] = []
    for number, (one, model) in enumerate(zip(chosen, models, strict=True)):
        formats = one.weights, activations_of(one.weights)
        named = model.name or "", model.revision
        rows += step_measurements(measured.rounds, machine, named, formats, of_draft=bool(number))
    return rows


def _remarks(chosen: tuple[Chosen, Chosen], plan: Plan, measured: Measured) -> Remarks:
    """What was assumed of the models, what is left, what did not run."""
    from roofcast.profiler.speculative import round_label

    said = (
        line
        for one in chosen
        for line in (one.assumed, *(f"{one.loaded.name}: {said}" for said in one.loaded.spec.assumptions))
    )
    failed = [
        f"{round_label(one.batch, one.context, one.drafted)} did not run: {one.problem}"
        for one in measured.rounds
        if one.problem
    ]
    warnings = [
        left_line(measured.left, measured.why),
        *failed,
        _odd(measured),
        *(_beyond(one, plan) for one in chosen),
    ]
    return remarks([*said, *measured.assumptions], [*warnings, unsteady_line(dict.fromkeys(_samples(measured)))])


def _beyond(chosen: Chosen, plan: Plan) -> str | None:
    most = chosen.loaded.spec.max_context
    if most is None or plan.longest <= most:
        return None
    return f"{chosen.loaded.name}: {plan.longest:,} tokens are beyond the {most:,} that its config allows"


def _odd(measured: Measured) -> str | None:
    """What to say where a whole took less than a part of it."""
    ran = [one for one in measured.rounds if one.round is not None]
    odd = [one for one in ran if one.shorter]
    if not odd:
        return None
    return (
        f"{len(odd):,} of {len(ran):,} rounds took less than their drafting or their verifying alone, which cannot be: something "
        "else used the machine, and what they cost and bring means little"
    )


def _samples(measured: Measured) -> Iterator[Sample]:
    for one in measured.rounds:
        every = (one.decode, one.draft, one.drafting, one.verify, one.round)
        yield from (sample for sample in every if sample is not None)


def _nothing(measured: Measured) -> str | None:
    """What to say where no round ran; None where one did."""
    every = measured.rounds
    return nothing_line("no round", (one.round for one in every), (one.problem for one in every), measured.why)
