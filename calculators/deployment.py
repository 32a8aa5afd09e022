"""What answers a workload: one accelerator, how many of them, how the model is cut, and its formats."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import gcd
from typing import TYPE_CHECKING, Final, Protocol

from roofcast.calculators.cache import kept_bytes
from roofcast.calculators.errors import UsageError
from roofcast.calculators.parallel import Fabric, fabric_of
from roofcast.calculators.roofline import INSTEAD, Roofs, roofs_of
from roofcast.calculators.weighing import storage_of
from roofcast.modelspec.formats import Format
from roofcast.modelspec.ops import Formats
from roofcast.modelspec.program import Program, build_program
from roofcast.modelspec.sharding import Shards

if TYPE_CHECKING:
    from roofcast.calculators.expected.expectation import Expectation
    from roofcast.hwdb.accelerator import Accelerator
    from roofcast.modelspec.model import Model
    from roofcast.modelspec.requested import Requested
    from roofcast.modelspec.spec import ModelSpec
    from roofcast.modelspec.state import Kept
    from roofcast.modelspec.storage import Storage


WHOLE: Final = Shards()  # one device
MOST_DEVICES: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Deployment:
    """A machine and how it is used.

    Args:
        accelerator: of which all devices are.
        kv: format of the cache.
        weights: format asked for; None is as stored.
        shards: how the model is cut over the devices.
        engine: that serves it.
        network: bandwidth of a device between domains, one direction; None where it is not given. [B/s]
    """

    accelerator: Accelerator
    kv: Format
    weights: Requested | None = None
    shards: Shards = WHOLE
    engine: str = "none"
    network: float | None = None


class Holding(Protocol):
    """What an engine's cache holds, where its rules say so and not the memory that is left."""

    @property
    def tokens(self) -> int | None:
        """In all, of one replica as the engine prints them; None where it prints none. [token]"""

    @property
    def most(self) -> int | None:
        """Requests that a replica runs at once, whatever fits; None where nothing bounds them."""

    def sequences(self, context: int) -> int:
        """Sequences of so many tokens that fit at once, on all replicas."""

    def why(self, context: int) -> str:
        """Why none fits, where that is no matter of the cache alone; empty where it is."""


@dataclass(frozen=True, slots=True)
class Ready:
    """A model on a deployment: all that does not depend on what a step is asked.

    Args:
        model, deployment: of what.
        storage: of the model's weights.
        program: the model's operations on one device.
        formats: of state and activations.
        roofs, fabric: of the machine.
        weight_bytes: on the fullest device. [B]
        capacity: memory of one device, as the driver really offers it. [B]
        capacity_from: visible, driver or nominal.
        kept: what layers keep of a sequence, and how many keep each.
        expectation: constants of expected times; None where bounds alone are asked.
        holding: what the engine's cache holds; None where all memory beside the weights is taken for it.
    """

    model: Model
    deployment: Deployment
    storage: Storage
    program: Program
    formats: Formats
    roofs: Roofs
    fabric: Fabric
    weight_bytes: float
    capacity: float
    capacity_from: str
    kept: tuple[tuple[Kept, int], ...]
    expectation: Expectation | None = None
    holding: Holding | None = None


def prepare(model: Model, deployment: Deployment) -> Ready:
    """Checks that a model can be cut so, and prepares everything that its estimates share.

    Raises:
        UsageError: heads, layers or experts that do not divide.
        UnansweredError: how its weights are stored cannot be told.
        UndeterminedModelError: its state needs to know an encoder's tokens.
    """
    spec, shards = model.spec, deployment.shards
    check_shards(spec, shards)
    storage = storage_of(model, deployment.weights)
    program = build_program(spec, storage, shards)
    capacity, where = offered_memory(deployment.accelerator)
    formats = Formats(deployment.kv, activation_format(spec, deployment.weights))
    roofs = roofs_of(deployment.accelerator, deployment.engine)
    _check_formats(program, formats, roofs)
    return Ready(
        model=model,
        deployment=deployment,
        storage=storage,
        program=program,
        formats=formats,
        roofs=roofs,
        fabric=fabric_of(deployment.accelerator, shards.joined, deployment.network),
        weight_bytes=_weights(model, deployment, program, storage),
        capacity=capacity,
        capacity_from=where,
        kept=tuple(spec.kept.items()),
    )


def formats_of(program: Program, formats: Formats) -> set[str]:
    """Formats that a program's steps multiply in."""
    used = {part.format for part, _ in program.dense} | {part.format for part, _ in program.routed}
    index = {"fp8"} if any(getattr(mixing.mixer, "index", None) for mixing in program.mixers) else set()
    return used | index | {program.head.format, formats.attention, formats.activations}


def _check_formats(program: Program, formats: Formats, roofs: Roofs) -> None:
    """Refuses a device that states no peak of a format, nor of any that it could be computed in."""
    missing = sorted(formats_of(program, formats) - roofs.peaks.keys())
    if missing:
        name = missing[0]
        raise UsageError(
            f"{roofs.device} states no peak for {name}, nor for what it could be computed in: {', '.join(INSTEAD[name])}"
        )


def reshaped(ready: Ready, spec: ModelSpec) -> Ready:
    """The same deployment of a model of another architecture, stored as the first is.

    Raises:
        UsageError: heads that the devices cannot share.
    """
    shards = ready.deployment.shards
    check_shards(spec, shards)
    program = build_program(spec, ready.storage, shards)
    more = on_fullest(program) - on_fullest(ready.program)
    model, kept = replace(ready.model, spec=spec), tuple(spec.kept.items())
    return replace(ready, model=model, program=program, weight_bytes=ready.weight_bytes + more, kept=kept)


def on_fullest(program: Program) -> float:
    """Weights of the program on its fullest device: a stage's layers, and on its end the embedding or the head. [B]"""
    stages, end = program.shards.pp, max(program.tables, program.head.bytes)
    if stages == 1:
        return program.resident
    layers = program.resident - program.tables - program.head.bytes * (not program.spec.tied)
    return layers * fullest_stage(program.spec, program.shards) + end


def fullest_stage(spec: ModelSpec, shards: Shards) -> float:
    """Share of the layers that the longest stage of a pipeline has. [-]"""
    layers = len(spec.layers)
    return -(-layers // shards.pp) / layers


def activation_format(spec: ModelSpec, weights: Requested | None) -> str:
    """The 16-bit format that activations have: that of the weights asked for, else the model's own, else bf16.

    Beside llama.cpp's types they are fp16.
    """
    if weights is not None and not isinstance(weights, Format):
        return "fp16"
    asked = (weights.compute if weights is not None else None, spec.dtype)
    return next((name for name in asked if name in {"bf16", "fp16"}), None) or "bf16"


def offered_memory(accelerator: Accelerator) -> tuple[float, str]:
    """Memory of one device that programs can have: M = what CUDA sees, else what the driver reports, else as sold. [B]

    >>> from roofcast.hwdb.lookup import find_accelerator
    >>> offered_memory(find_accelerator("h200").accelerator)
    (150109945856, 'visible')
    """
    for size, where in ((accelerator.visible_memory, "visible"), (accelerator.driver_memory, "driver")):
        if size is not None:
            return size, where
    return accelerator.memory, "nominal"


def _weights(model: Model, deployment: Deployment, program: Program, storage: Storage) -> float:
    """Weights on the fullest device: all that its files hold, cut as the program is, over the stages' layers. [B]

    What no step runs (towers, draft layers) is cut evenly; what several layers run (shared blocks) is held once.
    """
    spec, shards = model.spec, deployment.shards
    whole = model.weight_bytes(deployment.weights).value
    single = program if shards == WHOLE else build_program(spec, storage, WHOLE)
    held = single.resident if whole is None else whole
    once = min(1.0, held / single.resident)
    beside = max(0.0, held - single.resident)
    return on_fullest(program) * once + beside / shards.devices


def cache_on_one(ready: Ready, sequences: int, context: int) -> float:
    """Bytes that the cache of so many sequences takes on the fullest device: replicas share sequences, stages layers. [B]"""
    shards = ready.deployment.shards
    each = kept_bytes(ready.kept, ready.deployment.kv, context, shards.tp)
    return -(-sequences // shards.dp) * each * fullest_stage(ready.model.spec, shards)


def check_shards(spec: ModelSpec, shards: Shards) -> None:
    """Refuses a cut that leaves a device with a part of a head, a layer or an expert.

    Raises:
        UsageError: naming what does not divide, and what would.
    """
    if shards.devices > MOST_DEVICES:
        raise UsageError(f"--tp x --pp x --dp is {shards.devices:,}; at most {MOST_DEVICES:,} devices")
    mixers = dict.fromkeys(mixer for layer in spec.layer_counts for mixer in layer.mixers)
    if not all(mixer.splits(shards.tp) for mixer in mixers):
        from roofcast.calculators.fit import refuse_uneven  # noqa: PLC0415 - only errors need it

        refuse_uneven(spec, shards.tp)
    if shards.pp > len(spec.layers):
        raise UsageError(f"--pp {shards.pp}: there are {len(spec.layers)} layers; it must be at most that")
    if shards.ep > 1:
        _check_experts(spec, shards)


def _check_experts(spec: ModelSpec, shards: Shards) -> None:
    experts = sorted({part.experts for part in spec.experts})
    if not experts:
        raise UsageError(f"--ep {shards.ep}: the model has no routed experts; leave it out")
    group = shards.tp * shards.dp
    most = gcd(group, *experts)
    fitting = [n for n in range(1, most + 1) if most % n == 0]
    if shards.ep not in fitting:
        every = " and ".join(map(str, experts))
        more = f"; --tp {shards.ep} or --dp {shards.ep} gives them the GPUs" if group < shards.ep else ""
        raise UsageError(
            f"--ep {shards.ep} must divide --tp x --dp, which is {group}, and the {every} experts: "
            f"{', '.join(map(str, fitting))} would do{more}"
        )
