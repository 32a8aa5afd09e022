"""The work of the profiler's decoder, and what its steps are held against."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from roofcast.calculators.expected.expectation import expectation_of, families_by_file, kernels_of, unlike_kinds
from roofcast.calculators.parallel import exchange_cost
from roofcast.calculators.profile_compare import Together, asked_step, compare_step, measured_ops
from roofcast.calculators.profile_exchanges import fabric_between
from roofcast.calculators.roofline import LINK, Term, roofs_of
from roofcast.calculators.weighing import storage_of
from roofcast.hwdb.efficiency_files import OWN
from roofcast.modelspec.formats import FORMATS
from roofcast.modelspec.ops import Formats, step_exchanges
from roofcast.modelspec.program import build_program
from roofcast.modelspec.sharding import Shards
from roofcast.modelspec.storage import Average, Storage, uniform

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from roofcast.calculators.expected.expectation import Expectation
    from roofcast.calculators.parallel import Fabric
    from roofcast.calculators.profile_compared import StepComparison
    from roofcast.calculators.profiled import DeviceProfile, StepProfile
    from roofcast.calculators.profiled_ranks import RankGroup
    from roofcast.calculators.roofline import Roofs
    from roofcast.hwdb.accelerator import Accelerator
    from roofcast.modelspec.model import Model
    from roofcast.modelspec.program import Program
    from roofcast.modelspec.spec import ModelSpec

#: formats that the profiler's weights may have
WEIGHTS: Final = ("bf16", "fp16", "fp32", "fp8")
USUAL: Final = "bf16"
WIDE: Final = ("embedding", "head")  # components that FP8 leaves in the format of activations
ROUTERS: Final = ("mlp.gate", "router.proj")  # modules likewise


@dataclass(frozen=True, slots=True)
class Counted:
    """A model as the profiler runs it: weights in one format, the cache in that of activations.

    Args:
        program: its operations on one device.
        formats: of cache and activations.
    """

    program: Program
    formats: Formats


@dataclass(frozen=True, slots=True)
class Against:
    """What measured steps are held against; None of what is not known.

    Args:
        roofs: of the data sheet.
        expectation: fitted constants.
        device: whose measured roofs count.
        fabric: links of the data sheet between devices that share a model; None of one, or where they exchange over others.
    """

    roofs: Roofs | None = None
    expectation: Expectation | None = None
    device: DeviceProfile | None = None
    fabric: Fabric | None = None


def activations_of(weights: str) -> str:
    """Format of activations and cache beside weights of a format: their own, beside FP8 bf16."""
    return USUAL if weights == "fp8" else weights


def counted(spec: ModelSpec, weights: str, tp: int = 1) -> Counted:
    """The work of the profiler's decoder on each of `tp` devices that share every layer.

    Of FP8 the matrices of layers are in 8 bits; embedding, head and routers are in 16.

    Raises:
        UndeterminedModelError: its work cannot be told from its config alone.
    """
    activations = activations_of(weights)
    if weights == "fp8":
        wide, narrow = (Average(FORMATS[name].bytes_per_element, name) for name in (activations, weights))
        storage = Storage(dict.fromkeys(WIDE, wide), narrow, modules=dict.fromkeys(ROUTERS, wide))
    else:
        storage = uniform(FORMATS[weights])
    return Counted(build_program(spec, storage, Shards(tp)), Formats(FORMATS[activations], activations))


def compared(step: StepProfile, work: Counted, against: Against) -> StepComparison:
    """A measured step beside its work, its bound and its expected time."""
    ops = measured_ops(work.program, work.formats, step)
    together = Together(work.program.shards.tp, tuple(_exchanges(step, work, against)))
    return compare_step(step, ops, against.roofs, against.expectation, against.device, together)


def _exchanges(step: StepProfile, work: Counted, against: Against) -> Iterator[Term]:
    """What the devices of a step exchange, with least and expected times where their links are known."""
    for exchange in step_exchanges(work.program, asked_step(step)):
        if against.fabric is not None:
            cost, expectation = exchange_cost(exchange, against.fabric), against.expectation
            expected = expectation.exchanged(exchange, against.fabric) if expectation is not None else 0.0
            yield Term(exchange, cost.seconds, LINK, cost.seconds, moved=cost.moved, expected=expected)


def against_datasheet(
    accelerator: Accelerator, model: Model, weights: str, file: Path | None, group: RankGroup | None = None
) -> Against:
    """Roofs of a data sheet, and the constants that count for this profiler there.

    Args:
        accelerator: that was measured.
        model: that was run.
        weights: format of them.
        file: of constants, which count before all others; None without.
        group: ranks that share every layer; None of a device alone.

    Raises:
        AcceleratorFileError: a file that cannot be read.
    """
    roofs = roofs_of(accelerator)
    found = expectation_of(accelerator, OWN, roofs, file)
    asked, program = FORMATS[weights], counted(model.spec, weights).program
    made = replace(found, kernels=kernels_of(model, asked), unlike=unlike_kinds(program))
    return Against(roofs, made, fabric=None if group is None else fabric_between(accelerator, group))


def constants_note(sides: Iterable[Against]) -> str | None:
    """Whose constants expected times are of; None where there are none."""
    used = [one for side in sides if side.expectation is not None for one in side.expectation.used]
    said = "; ".join(f"{families} from {name}" for name, families in families_by_file(used).items())
    return f"expect: by constants of {said}" if said else None


def stated_weights(model: Model) -> tuple[str, str | None]:
    """The format that a model's weights are given where none is asked, and what is assumed by it.

    The format that its matrices multiply in as they are stored, where the profiler has it; else bf16.
    """
    program = build_program(model.spec, storage_of(model, None), Shards())
    sizes: dict[str, float] = {}
    for part, times in program.dense:
        sizes[part.format] = sizes.get(part.format, 0.0) + times * part.elements
    for one, times in program.routed:
        sizes[one.format] = sizes.get(one.format, 0.0) + times * one.elements * one.moe.experts
    stored = max(sizes, key=lambda name: sizes[name], default=USUAL)
    if stored in WEIGHTS:
        return stored, None
    return (
        USUAL,
        f"{model.name}: its weights are stored in {stored}; the profiler has {', '.join(WEIGHTS)}: {USUAL} is taken",
    )
