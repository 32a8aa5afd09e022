"""NVIDIA's Model Optimizer: one algorithm for all linear layers but a list, or one for each module that it names."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from roofcast.modelspec.errors import MalformedModelError, UndeterminedModelError
from roofcast.modelspec.quantization import LINEAR, Packing, Rule, Stated, grouped
from roofcast.modelspec.schemes import (
    FP8_BLOCK,
    FP8_ROW,
    FP8_TENSOR,
    INT8_ROW,
    MXFP4,
    MXFP8,
    NVFP4,
    NVFP4_WEIGHTS,
    TENSOR_SCALE,
    Blocks,
    with_inputs,
)
from roofcast.modelspec.strictjson import quoted, short

if TYPE_CHECKING:
    from collections.abc import Mapping

    from roofcast.modelspec.schemes import Scheme

MIXED: Final = "MIXED_PRECISION"
EXCLUDED: Final = ("exclude_modules", "ignore")
_INT4: Final = Blocks("int4, groups of 128", 4, 16, (1, 128), per_column=2)  # with a scale of every input
ALGORITHMS: Final[Mapping[str, Blocks]] = {
    "FP8": with_inputs(FP8_TENSOR),
    "FP8_PER_CHANNEL_PER_TOKEN": FP8_ROW,
    "FP8_PB_WO": replace(FP8_BLOCK, compute="bf16"),
    "NVFP4": NVFP4,
    "NVFP4_AWQ": replace(NVFP4, per_column=2),
    "W4A16_NVFP4": NVFP4_WEIGHTS,
    "MXFP8": MXFP8,
    "MXFP4": MXFP4,
    "W4A8_MXFP4_FP8": replace(MXFP4, compute="fp8"),
    "W4A16_AWQ": _INT4,
    "W4A8_AWQ": replace(_INT4, beside=2 * TENSOR_SCALE, compute="fp8"),
    "W8A8_SQ_PER_CHANNEL": replace(INT8_ROW, per_column=4),
    "INT8_SQ": replace(INT8_ROW, per_column=4),
}
# an algorithm's group where the file states another one is refused but for these, whose groups vary
_GROUPED: Final = frozenset({"W4A16_AWQ", "W4A8_AWQ"})


def read_modelopt(found: Stated) -> Packing:
    """One algorithm for every linear layer but those listed, or one for each module that `quantized_layers` names."""
    name = found.block.get("quant_algo")
    spared = found.spared(*EXCLUDED)
    if name == MIXED or (name is None and found.block.get("quantized_layers")):
        return Packing(MIXED, (*spared, *requantised(found)), None, LINEAR)
    if name is None:  # the cache alone
        return Packing("modelopt", (), None, LINEAR)
    text = (
        f"{found.key} lists no modules that it leaves out: all linear layers but head, routers and projections to a "
        f"narrower width of experts are taken as {name}"
    )
    return Packing(
        str(name), spared, _algorithm(found, name, found.block), LINEAR,
        spares_towers=found.spares_towers(*EXCLUDED), assumptions=() if spared else (text,),
    )  # fmt: skip


def requantised(found: Stated) -> tuple[Rule, ...]:
    """Rules of the modules that `quantized_layers` names, each with its algorithm."""
    layers = found.part("quantized_layers")
    return grouped(found, ((name, _of_layer(found, name, block)) for name, block in layers.items()))


def _of_layer(found: Stated, name: str, block: object) -> Scheme:
    if not isinstance(block, dict):
        msg = f"{found.key}: quantized_layers {quoted(name)} is {short(block)}; it must be an object with a quant_algo"
        raise MalformedModelError(msg)
    return _algorithm(found, block.get("quant_algo"), block)


def _algorithm(found: Stated, name: object, block: Mapping[str, object]) -> Blocks:
    if not isinstance(name, str) or name not in ALGORITHMS:
        shown = quoted(name) if isinstance(name, str) else short(name)
        msg = f"quant_algo {shown} is not understood; known: {', '.join(ALGORITHMS)}, {MIXED}"
        raise UndeterminedModelError(msg)
    scheme = ALGORITHMS[name]
    group = found.size("group_size", 0, block=block)
    if not group or group == scheme.block[1]:
        return scheme
    if name in _GROUPED:
        return replace(scheme, name=f"int4, groups of {group}", block=(1, group))
    msg = f"{found.key}: group_size is {group}, but {name} has {scheme.block[1] or 'one scale a tensor or row'}"
    raise MalformedModelError(msg)
