"""One reader a quantiser: from what its config states to how every matrix is stored."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from roofcast.modelspec.errors import MalformedModelError, UndeterminedModelError
from roofcast.modelspec.modelopt import read_modelopt, requantised
from roofcast.modelspec.module_names import names_of
from roofcast.modelspec.packed_groups import read_compressed
from roofcast.modelspec.quantization import (
    EVERY,
    LAYERS,
    LINEAR,
    LINEAR_AND_HEAD,
    ROUTED,
    Packing,
    Rule,
    Stated,
    grouped,
    rules,
)
from roofcast.modelspec.schemes import (
    FP8_ROW,
    FP8_TENSOR,
    INT8_ROW,
    MXFP4,
    Absmax,
    Blocks,
    Scheme,
    awq,
    fp8_blocks,
    gptq,
    mlx,
    with_inputs,
)
from roofcast.modelspec.strictjson import quoted, short

if TYPE_CHECKING:
    from collections.abc import Mapping

    from roofcast.modelspec.quantization import Reader

MLX_MODES: Final = ("affine", "mxfp4", "mxfp8", "nvfp4")
EXCEPT: Final = ("modules_to_not_convert", "ignored_layers", "ignore", "exclude_modules")
# expert_dtype, which DeepSeek-V4 states outside its quantization_config
EXPERT_DTYPES: Final[Mapping[str, Scheme | None]] = {"fp4": MXFP4, "mxfp4": MXFP4, "fp8": None}


def _read_fp8(found: Stated) -> Packing:
    """FP8 with a scale a block, or a tensor and, where activations are static, one of the inputs."""
    shape = found.block.get("weight_block_size")
    named = found.raw.get("expert_dtype")
    small = named is not None and found.block.get("scale_fmt") == "ue8m0"  # DeepSeek-V4 keeps scales in one byte
    if shape is None:
        static = found.block.get("activation_scheme") == "static"
        scheme = with_inputs(FP8_TENSOR) if static else FP8_TENSOR
    else:
        scheme = fp8_blocks(*found.pair("weight_block_size", shape), scale_bits=8 if small else 32)
    own = requantised(found)
    experts = _expert_rules(found, named)
    spared = () if own else found.spared(*EXCEPT)
    said = ("modules under `ignore` are taken as kept as in the checkpoint it was made of",) if own else ()
    return Packing(
        "fp8", (*own, *spared, *experts), scheme, LINEAR, spares_towers=found.spares_towers(*EXCEPT), assumptions=said
    )


def _expert_rules(found: Stated, named: object) -> tuple[Rule, ...]:
    if named is None:
        return ()
    if not isinstance(named, str) or named not in EXPERT_DTYPES:
        msg = f"expert_dtype {quoted(str(named))} is not understood; known: {', '.join(EXPERT_DTYPES)}"
        raise UndeterminedModelError(msg)
    scheme = EXPERT_DTYPES[named]
    return rules((names_of(["mlp.experts"], found.place), scheme)) if scheme else ()


def _read_fbgemm(found: Stated) -> Packing:
    """FP8 with an fp32 scale a row, and an upper bound of the inputs."""
    return Packing(
        "fbgemm_fp8", found.spared(*EXCEPT), with_inputs(FP8_ROW), LINEAR,
        spares_towers=found.spares_towers(*EXCEPT),
    )  # fmt: skip


def _read_mxfp4(found: Stated) -> Packing:
    """gpt-oss: the routed experts alone, and of these what the list does not name."""
    return Packing("mxfp4", found.spared(*EXCEPT), MXFP4, ROUTED)


def _read_awq(found: Stated) -> Packing:
    """AWQ packs linear layers of the decoder's layers."""
    scheme = awq(found.bits(key="w_bit" if "w_bit" in found.block else "bits"), _group(found))
    return Packing("awq", found.spared(*EXCEPT), scheme, LAYERS)


def _group(found: Stated, default: int = 128) -> int:
    return found.size("group_size" if "group_size" in found.block else "q_group_size", default)


def _read_gptq(found: Stated) -> Packing:
    """GPTQ packs linear layers of the decoder's layers; `dynamic` may leave some out, or give them other bits."""
    default = gptq(found.bits(), _group(found))
    head = LINEAR_AND_HEAD if found.block.get("lm_head") is True else LAYERS
    dynamic = {
        name if name[:2] in {"-:", "+:"} else f"+:{name}": block for name, block in found.part("dynamic").items()
    }
    own = grouped(found, ((name, _dynamic(found, name, block)) for name, block in dynamic.items()))
    inside = found.block.get("modules_in_block_to_quantize")
    if inside:
        groups = (
            [[group] if isinstance(group, str) else group for group in inside] if isinstance(inside, list) else [inside]
        )
        if not all(isinstance(group, list) and all(isinstance(name, str) for name in group) for group in groups):
            msg = f"{found.key}: modules_in_block_to_quantize is {short(inside)}; it must be lists of names of modules"
            raise MalformedModelError(msg)
        names = (name for group in groups for name in group)
        return Packing("gptq", (*own, *rules((names_of(names, found.place), default))), None, head)
    return Packing("gptq", (*own, *found.spared(*EXCEPT)), default, head)


def _dynamic(found: Stated, name: str, block: object) -> Scheme | None:
    if name.startswith("-:"):
        return None
    if not isinstance(block, dict):
        msg = f"{found.key}: dynamic {quoted(name)} is {short(block)}; it must be an object"
        raise MalformedModelError(msg)
    bits = found.bits(block) if "bits" in block else found.bits()
    return gptq(bits, found.size("group_size", _group(found), block=block))


def _read_autoround(found: Stated) -> Packing:
    """AutoRound packs as GPTQ does, without an order, or as AWQ; `extra_config` names exceptions."""
    packing = str(found.block.get("packing_format", "auto_round:auto_gptq"))
    make = awq if packing.endswith("awq") else lambda bits, group: gptq(bits, group, order=False)
    if found.block.get("data_type", "int") != "int" or packing.rpartition(":")[2] not in {
        "auto_gptq",
        "auto_awq",
        "gptq",
        "awq",
    }:
        what = f"{short(found.block.get('data_type', 'int'))} in packing {quoted(packing)}"
        msg = f"quantisation auto-round of {what} is not understood; known: int in auto_round:auto_gptq or auto_round:auto_awq"
        raise UndeterminedModelError(msg)
    default = make(found.bits(), _group(found))

    def own(block: object) -> Scheme | None:
        bits = found.bits(block) if isinstance(block, dict) and "bits" in block else found.bits()
        group = found.size("group_size", _group(found), block=block) if isinstance(block, dict) else _group(found)
        return make(bits, group) if bits < 16 else None  # noqa: PLR2004 - as it was

    extra = {f"re:{n}" if re.search(r"[*\\\[(]", n) else n: block for n, block in found.part("extra_config").items()}
    named = grouped(found, ((name, own(block)) for name, block in extra.items()))
    return Packing("auto-round", (*named, *found.spared(*EXCEPT)), default, LAYERS)


def _read_bitsandbytes(found: Stated) -> Packing:
    """bitsandbytes packs every linear layer but the head: 4 bits in blocks of 64, or 8 bits with a scale a row."""
    block = found.block
    if block.get("load_in_8bit") or block.get("_load_in_8bit"):
        scheme: Scheme = replace(INT8_ROW, beside=1)
    elif block.get("load_in_4bit") or block.get("_load_in_4bit"):
        kind = block.get("bnb_4bit_quant_type", "fp4")
        if kind not in ("nf4", "fp4"):
            msg = f"{found.key}: bnb_4bit_quant_type is {short(kind)}; it must be nf4 or fp4"
            raise MalformedModelError(msg)
        scheme = Absmax(str(kind), bool(block.get("bnb_4bit_use_double_quant")))
    else:
        msg = f"{found.key}: neither load_in_4bit nor load_in_8bit is true; bitsandbytes must have one"
        raise MalformedModelError(msg)
    skipped = ("llm_int8_skip_modules", *EXCEPT)
    return Packing(
        "bitsandbytes",
        found.spared(*skipped),
        scheme,
        LINEAR,
        spares_towers=found.spares_towers(*skipped),
    )


def _read_mlx(found: Stated) -> Packing:
    """MLX packs every matrix whose columns the group divides, embedding, head and routers too."""
    mode = _mode(found, found.block, "affine")
    group = found.size("group_size", 64)
    if not group:
        msg = f"{found.key}: group_size is -1; MLX packs in groups, of 32, 64 or 128"
        raise MalformedModelError(msg)

    def scheme(block: Mapping[str, Any]) -> Blocks:
        bits = found.bits(block) if "bits" in block else found.bits()
        return mlx(
            bits,
            found.size("group_size", group, block=block),
            _mode(found, block, mode if block is found.block else "affine"),
        )

    own = {name: block for name, block in found.block.items() if isinstance(block, (dict, bool)) and "." in name}
    named = grouped(
        found,
        (
            (name, scheme(block) if isinstance(block, dict) else None if block is False else scheme(found.block))
            for name, block in own.items()
        ),
    )
    said = "MLX is taken to pack the embedding, the head and routers as it does the rest"
    return Packing("MLX", named, scheme(found.block), EVERY, divides=group, assumptions=(said,))


def _mode(found: Stated, block: Mapping[str, Any], otherwise: str) -> str:
    """How a matrix is packed: `affine` where its own block does not say, whatever the others are."""
    mode = block.get("mode", otherwise)
    if mode not in MLX_MODES:
        msg = f"{found.key}: mode {short(mode)} is not understood; known: {', '.join(MLX_MODES)}"
        raise UndeterminedModelError(msg)
    return str(mode)


# quant_method, with - for _ -> its reader
READERS: Final[Mapping[str, Reader]] = {
    "fp8": _read_fp8,
    "fbgemm-fp8": _read_fbgemm,
    "modelopt": read_modelopt,
    "modelopt-fp4": read_modelopt,
    "modelopt-mixed": read_modelopt,
    "mxfp4": _read_mxfp4,
    "compressed-tensors": read_compressed,
    "awq": _read_awq,
    "gptq": _read_gptq,
    "auto-round": _read_autoround,
    "bitsandbytes": _read_bitsandbytes,
    "mlx": _read_mlx,
}
