"""`profile device` and `profile attention`: what the machine itself reaches."""

from __future__ import annotations

from typing import TYPE_CHECKING

from roofcast.calculators.answer import remarks
from roofcast.cli.profiling import bench, leave, left_line, machine_remarks, seconds_of, watching, written

if TYPE_CHECKING:
    from roofcast.cli.profiling_asked import Heads


def answer_device(device: str | None, budget: str | None, output: tuple[str | None, str | None]) -> None:
    """Measures the roofs, and prints them beside the data sheet's.

    Args:
        device: --device.
        budget: --budget.
        output: --format and --out.
    """
    from roofcast.calculators.profile_making import machine_row, roofs_row
    from roofcast.calculators.profile_rows import ProfileResult
    from roofcast.profiler.device import profile_device
    from roofcast.reports.profile import profile_document

    target, seconds = written(*output), seconds_of(budget)
    opened = bench(device, seconds)
    with watching() as watch:
        found = profile_device(opened.runtime, opened.budget, watch)
    result = ProfileResult(
        what="device",
        machine=machine_row(opened.runtime.machine),
        device=roofs_row(found, opened.accelerator),
        unfinished=list(found.unfinished),
    )
    said = remarks(warnings=[left_line(found.unfinished, found.stopped)]) + machine_remarks(opened)
    target.present(profile_document(result, {"device": device, "budget_seconds": seconds}, said))
    empty = not (found.bandwidths or found.launches or found.peaks)
    leave(found.stopped, nothing=f"nothing could be measured: {found.stopped or 'no kernel ran'}" if empty else None)


def answer_attention(
    asked: Heads, device: str | None, budget: str | None, output: tuple[str | None, str | None]
) -> None:
    """Measures backends of attention, and prints them.

    Args:
        asked: heads, format and lengths.
        device: --device.
        budget: --budget.
        output: --format and --out.
    """
    from roofcast.calculators.profile_making import attention_row, machine_row, roofs_row
    from roofcast.calculators.profile_rows import ProfileResult
    from roofcast.profiler.attention import AttentionPlan, profile_attention
    from roofcast.profiler.attention_call import HeadShape
    from roofcast.profiler.device import quick_roofs
    from roofcast.reports.profile import profile_document

    target, seconds = written(*output), seconds_of(budget)
    asked.check()
    heads = HeadShape(asked.query, asked.kv, asked.width, asked.number_format)
    plan = AttentionPlan(heads, asked.lengths, asked.batches, asked.contexts)
    opened = bench(device, seconds)
    with watching() as watch:
        roofs = quick_roofs(opened.runtime, (asked.number_format,), opened.budget, watch)
        swept = profile_attention(opened.runtime, plan, opened.budget, watch) if not roofs.stopped else None
    points, left = (swept.done, swept.left) if swept is not None else ((), ("attention",))
    why = roofs.stopped or (swept.why if swept is not None else "")
    result = ProfileResult(
        what="attention",
        machine=machine_row(opened.runtime.machine),
        device=roofs_row(roofs, opened.accelerator),
        attention=[attention_row(one, roofs) for one in points],
        unfinished=list(left),
    )
    inputs = {
        "heads": asked.query,
        "kv_heads": asked.kv,
        "head_dim": asked.width,
        "weights": asked.number_format,
        "prompts": list(asked.lengths),
        "batches": list(asked.batches),
        "contexts": list(asked.contexts),
        "device": device,
        "budget_seconds": seconds,
    }
    said = remarks(warnings=[left_line(left, why)]) + machine_remarks(opened)
    target.present(profile_document(result, inputs, said))
    ran = any(one.sample is not None for one in points)
    leave(why, nothing=None if ran else f"no backend could be measured: {why or 'the reasons are in the table'}")
