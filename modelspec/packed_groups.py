"""compressed-tensors: groups of modules, each with the bits, the strategy and the packing of its weights."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from roofcast.modelspec.errors import MalformedModelError, UndeterminedModelError
from roofcast.modelspec.module_names import names_of
from roofcast.modelspec.quantization import LINEAR_AND_HEAD, MOST_GROUPS, Packing, Stated, rules
from roofcast.modelspec.schemes import ALL, MXFP4, MXFP8, NVFP4, NVFP4_WEIGHTS, SHAPE, WORD, Blocks
from roofcast.modelspec.strictjson import quoted, short

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

# formats in which the weights of a group are packed into words, and those that keep an element a byte
_PACKED: Final = frozenset({"pack-quantized"})
_BYTES: Final = frozenset({"float-quantized", "int-quantized", "naive-quantized", ""})
_OWN: Final[Mapping[str, Blocks]] = {
    "mxfp4-pack-quantized": MXFP4,
    "mxfp8-quantized": MXFP8,
}
_SCALES: Final[Mapping[str, int]] = {
    "uint8": 8,
    "float8_e4m3fn": 8,
    "float8_e8m0fnu": 8,
    "bfloat16": 16,
    "float16": 16,
    "float32": 32,
}
_INPUT_SCALE: Final = 2  # [B] static scale of the inputs, in the model's 16 bits


def read_compressed(found: Stated) -> Packing:
    """Every group's weights; a group's targets are a class of modules (Linear), or names of modules.

    Source: the configuration of compressed-tensors, https://github.com/neuralmagic/compressed-tensors.
    """
    sparse = found.part("sparsity_config").get("format", "dense")
    if sparse != "dense":
        msg = f"compressed-tensors with sparsity {quoted(str(sparse))} is not understood; headers would tell"
        raise UndeterminedModelError(msg)
    groups = found.part("config_groups")
    if not groups and not found.block.get("kv_cache_scheme"):
        msg = f"{found.key}: config_groups is missing; compressed-tensors states its schemes there"
        raise MalformedModelError(msg)
    if len(groups) > MOST_GROUPS:
        msg = f"{found.key}: config_groups has {len(groups):,} groups; at most {MOST_GROUPS} are understood"
        raise UndeterminedModelError(msg)
    default, named = None, []
    for key, group in groups.items():
        if not isinstance(group, dict):
            msg = f"{found.key}: config_groups {quoted(key)} is {short(group)}; it must be an object"
            raise MalformedModelError(msg)
        scheme = _scheme(found, group)
        targets = group.get("targets") or ["Linear"]
        if not isinstance(targets, list) or not all(isinstance(target, str) for target in targets):
            msg = f"{found.key}: targets is {short(targets)}; it must be a list of names"
            raise MalformedModelError(msg)
        if "Linear" in targets:
            default = scheme
        named.append((names_of([t for t in targets if t != "Linear"], found.place), scheme))
    spared = (found.names("ignore"), None)
    return Packing(
        "compressed-tensors",
        rules(spared, *named),
        default,
        LINEAR_AND_HEAD,
        spares_towers=found.spares_towers("ignore"),
    )


def _scheme(found: Stated, group: Mapping[str, Any]) -> Blocks | None:
    weights = found.part("weights", group)
    if not weights:
        return None
    packing = str(group.get("format") or found.block.get("format") or "")
    inputs = found.part("input_activations", group)
    if packing == "nvfp4-pack-quantized":
        return NVFP4 if inputs else NVFP4_WEIGHTS
    if packing in _OWN:
        return _OWN[packing] if inputs else replace(_OWN[packing], compute="bf16")
    if packing not in _PACKED | _BYTES:
        known = ", ".join((*_PACKED, *(name for name in _BYTES if name), "nvfp4-pack-quantized", *_OWN))
        msg = f"compressed-tensors format {quoted(packing)} is not understood; known: {known}"
        raise UndeterminedModelError(msg)
    bits, kind = found.bits(weights, "num_bits"), weights.get("type", "int")
    if kind not in ("int", "float"):
        msg = f"{found.key}: type is {short(kind)}; it must be int or float"
        raise MalformedModelError(msg)
    return _blocks(found, weights, inputs, bits, packed=packing in _PACKED)


def _blocks(found: Stated, weights: Mapping[str, Any], inputs: Mapping[str, Any], bits: int, *, packed: bool) -> Blocks:
    block, words = _block(found, weights)
    named = f"{'fp' if weights.get('type') == 'float' else 'int'}{bits}"
    scale = str(weights.get("scale_dtype") or "bfloat16").removeprefix("torch.")
    ordered = packed and weights.get("actorder") in ("group", True)
    static = inputs.get("dynamic") is False
    return Blocks(
        name=f"{named}, {words}",
        bits=bits if packed else max(bits, 8),
        scale_bits=_SCALES.get(scale, 16),
        block=block,
        zero_points=packed and weights.get("symmetric") is False,
        beside=SHAPE * packed + _INPUT_SCALE * static,
        per_column=4 * ordered,
        word=WORD if packed else 8,
        compute=named if inputs and bits == 8 else "bf16",  # noqa: PLR2004 - a byte
    )


def _block(found: Stated, weights: Mapping[str, Any]) -> tuple[tuple[int, int], str]:
    """Rows and columns that share a scale, and how people say it."""
    strategy = weights.get("strategy") or ("group" if weights.get("group_size") else "tensor")
    reader = _STRATEGIES.get(str(strategy))
    if reader is None:
        msg = f"{found.key}: strategy is {short(strategy)}; known: {', '.join(_STRATEGIES)}"
        raise UndeterminedModelError(msg)
    return reader(found, weights)


def _groups(found: Stated, weights: Mapping[str, Any]) -> tuple[tuple[int, int], str]:
    size = found.size("group_size", block=weights)
    return (1, size), f"groups of {size}" if size else "a scale a row"


def _structure(found: Stated, weights: Mapping[str, Any]) -> tuple[tuple[int, int], str]:
    shape = weights.get("block_structure")
    if isinstance(shape, str) and shape.replace("x", "").isdecimal():
        shape = [int(part) for part in shape.split("x")[:3] if part]
    rows, columns = found.pair("block_structure", shape)
    return (rows, columns), f"blocks of {rows} x {columns}"


_STRATEGIES: Final[Mapping[str, Callable[[Stated, Mapping[str, Any]], tuple[tuple[int, int], str]]]] = {
    "tensor": lambda _, __: ((ALL, ALL), "a scale a tensor"),
    "channel": lambda _, __: ((1, ALL), "a scale a row"),
    "group": _groups,
    "tensor_group": _groups,
    "block": _structure,
}
