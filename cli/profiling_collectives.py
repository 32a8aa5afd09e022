"""`profile collectives`: exchanges between ranks, timed and checked, beside the data sheet's links."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

import typer

from roofcast.calculators.answer import remarks
from roofcast.calculators.errors import UsageError
from roofcast.cli.errors import UNDETERMINED
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
from roofcast.cli.profiling_asked import MOST_POINTS
from roofcast.hwdb.units import UnitError, parse_quantity, show_bytes, show_size

if TYPE_CHECKING:
    from roofcast.calculators.answer import Remarks
    from roofcast.calculators.profile_exchanges import Links
    from roofcast.calculators.profile_rows import ProfileResult
    from roofcast.calculators.profiled_ranks import Exchanged
    from roofcast.cli.profiling import Bench
    from roofcast.profiler.collectives import Plan
    from roofcast.profiler.sweep import Swept

LARGEST: Final = 8 * 2**30  # [B] of a payload
FORMATS: Final = ("bf16", "fp16", "fp32")
USUAL: Final = 2  # ranks of a processor


@dataclass(frozen=True, slots=True)
class Asked:
    """What options ask, as they were written.

    Args:
        pattern: --pattern; None is all.
        size: --size.
        number: --elements.
    """

    pattern: str | None
    size: str
    number: str

    def plan(self) -> Plan:
        """The exchanges.

        Raises:
            UsageError, UnitError: naming the option.
        """
        from roofcast.profiler.collectives import Plan

        if self.number not in FORMATS:
            raise UsageError(f"--elements {self.number}: known: {', '.join(FORMATS)}")
        plan = Plan(patterns_asked(self.pattern), sizes_asked(self.size), self.number)
        many = len(plan.patterns) * len(plan.payloads)
        if many > MOST_POINTS:
            raise UsageError(f"--pattern and --size make {many:,} exchanges; at most {MOST_POINTS} at once")
        return plan


def patterns_asked(text: str | None) -> tuple[str, ...]:
    """Patterns by name, each once; all where none is asked.

    Raises:
        UsageError: one that is not known, with the nearest that is.

    >>> patterns_asked("all-gather,all_reduce,all_gather")
    ('all_gather', 'all_reduce')
    """
    from roofcast.profiler.collectives import WAYS

    if text is None:
        return tuple(WAYS)
    names = [name.strip().lower().replace("-", "_") for name in text.split(",")]
    for written_, name in zip(text.split(","), names, strict=True):
        if name not in WAYS:
            raise UsageError(f"--pattern {written_.strip()}: {_near(name)}known: {', '.join(WAYS)}")
    return tuple(dict.fromkeys(names))


def _near(name: str) -> str:
    import difflib

    from roofcast.profiler.collectives import WAYS

    plain = {known.replace("_", ""): known for known in WAYS}
    near = difflib.get_close_matches(name.replace("_", ""), plain, 1)
    return f"did you mean {plain[near[0]]}? " if near else ""


def sizes_asked(text: str) -> tuple[int, ...]:
    """Payloads, each once, in the order given. [B]

    Raises:
        UnitError: one that is no size.
        UsageError: one that is too small or too large.

    >>> sizes_asked("1KiB, 64KB, 4096, 1024")
    (1024, 64000, 4096)
    """
    return tuple(dict.fromkeys(_size(one.strip()) for one in text.split(",")))


def _size(text: str) -> int:
    plain = f"{text} B" if text.replace(",", "").isdecimal() else text
    try:
        size = parse_quantity(plain, "B")
    except UnitError as error:
        said = str(error).partition("; write it like")[0]
        raise UnitError(f"--size {text[:80]}: {said}; write it like 1KiB, 64KB or 4096") from error
    if not 1 <= size <= LARGEST or size != int(size):
        raise UsageError(f"--size {text}: it must be whole bytes, 1 to {show_bytes(LARGEST, 'GiB', 0)}")
    return int(size)


def answer_collectives(
    asked: Asked,
    ranks: tuple[int | None, str | None, str | None],
    where: tuple[str | None, str | None],
    output: tuple[str | None, str | None],
) -> None:
    """Measures exchanges, and prints them beside what the links could do.

    Args:
        asked: what is measured.
        ranks: --ranks, --backend and --wait.
        where: --device and --budget.
        output: --format and --out.

    Raises:
        UsageError: naming the option.
        UnavailableError: what keeps ranks from coming together.
        WrongOutputError: a result that is not right.
    """
    from roofcast.cli.profiling_ranks import ALONE, RanksAsked
    from roofcast.profiler.errors import WrongOutputError
    from roofcast.reports.profile import profile_document

    target, plan, seconds = written(*output, charts=True), asked.plan(), seconds_of(where[1])
    wanted = RanksAsked(*ranks, option="--ranks")
    team = wanted.settled(where[0], 0)
    if not team.size:
        team = wanted.settled(where[0], usual_ranks(where[0]))
    if team.size == ALONE:
        raise UsageError(_alone(ranks[0], team.place is not None))
    opened = team.bench(seconds)
    try:
        with team.ranked(opened, partial(measure, plan), alike(plan)) as joined:
            swept = measure(plan, joined)
    except WrongOutputError as error:
        if team.leads:
            raise
        raise typer.Exit(UNDETERMINED) from error  # the first rank says it
    if not team.leads:
        return
    result, said = told(plan, swept, joined)
    inputs = {
        "ranks": team.size,
        "patterns": list(plan.patterns),
        "sizes": list(plan.payloads),
        "elements": plan.number,
        "backend": ranks[1],
        "wait": ranks[2],
        "device": where[0],
        "budget_seconds": seconds,
    }
    target.present(profile_document(result, inputs, said))
    leave(swept.why, nothing=_nothing(swept), lost=swept.lost)


def alike(plan: Plan) -> dict[str, object]:
    """What every rank must have alike."""
    return {
        "profile": "collectives",
        "--pattern": ", ".join(plan.patterns),
        "--size": ", ".join(map(show_size, plan.payloads)),
        "--elements": plan.number,
    }


def usual_ranks(device: str | None) -> int:
    """Ranks where no option says how many: one for each GPU here, of a processor 2.

    Raises:
        UnavailableError: no torch.
    """
    from roofcast.profiler.runtime import visible

    if device is not None and not device.startswith("cuda"):
        return USUAL
    return sum(name.startswith("cuda") for name in visible()) or USUAL


def _alone(asked: int | None, started: bool) -> str:
    """Why one rank measures nothing."""
    if started:
        return "torchrun has started 1 rank, which has nobody to exchange with; --nproc-per-node 2 or more"
    if asked is not None:
        return f"--ranks {asked}: it has nobody to exchange with; 2 or more"
    return "one GPU has nobody to exchange with: --device cpu takes processes on the processor, torchrun several hosts"


def measure(plan: Plan, opened: Bench) -> Swept[Exchanged]:
    """What every rank does.

    Raises:
        WrongOutputError: a result that is not right.
    """
    from roofcast.profiler.collectives import profile_exchanges

    with watching(opened.runtime) as watch:
        return profile_exchanges(opened.runtime, plan, opened.budget, watch)


def told(plan: Plan, swept: Swept[Exchanged], opened: Bench) -> tuple[ProfileResult, Remarks]:
    """The answer, and what belongs to it."""
    from roofcast.calculators.profile_exchanges import collectives_row, links_of
    from roofcast.calculators.profile_making import machine_row, ranks_row
    from roofcast.calculators.profile_rows import ProfileResult
    from roofcast.profiler.collectives import payload_of

    runtime = opened.runtime
    group = runtime.ranks.group if runtime.ranks is not None else None
    if group is None:
        raise RuntimeError("exchanges of a device alone")
    links = links_of(opened.accelerator, group)
    result = ProfileResult(
        what="collectives",
        machine=machine_row(runtime.machine),
        ranks=ranks_row(group),
        collectives=collectives_row(plan.number, swept.done, links),
        unfinished=list(swept.left),
    )
    changed = [
        size for size in plan.payloads if any(payload_of(runtime, plan, one, size) != size for one in plan.patterns)
    ]
    many = f"{len(changed):,} size{'s are' if len(changed) != 1 else ' is'} rounded up to whole elements, in parts for each rank"
    said = remarks(
        [f"{runtime.machine.accelerator}: {line}" for line in (links.fabric.assumptions if links.fabric else ())],
        [left_line(swept.left, swept.why), unsteady_line(one.sample for one in swept.done if one.sample is not None)],
        [many if changed else None, _constants(links)],
    )
    return result, said + machine_remarks(opened)


def _constants(links: Links) -> str | None:
    """Whose constants expected times rest on."""
    if links.expectation is None:
        return None
    files = dict.fromkeys(choice.file for choice in links.expectation.used)
    return f"expect: by constants of {', '.join(files)}" if files else None


def _nothing(swept: Swept[Exchanged]) -> str | None:
    """What to say where nothing ran; None where something did."""
    every = swept.done
    return nothing_line("no exchange", (one.sample for one in every), (one.problem for one in every), swept.why)
