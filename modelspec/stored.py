"""Which of the stored tensors are parameters: scales and masks are not, and packed integers hold several each."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from roofcast.modelspec.packed import WORDS, Width, is_packed, packed_elements

if TYPE_CHECKING:
    from collections.abc import Mapping
    from collections.abc import Set as AbstractSet

    from roofcast.modelspec.weights import Tensor, WeightFiles

# Patterns are compiled at their first use: most runs meet no tensor.
# The last part of a tensor's name, by the quantiser that writes it:
#   fp8 and modelopt: weight_scale, weight_scale_inv, weight_scale_2, input_scale, k_scale, pre_quant_scale
#   compressed-tensors: weight_scale, weight_global_scale, weight_zero_point, weight_g_idx, weight_shape
#   GPTQ and AWQ: scales, qzeros, g_idx;  mxfp4: gate_up_proj_scales
#   bitsandbytes: absmax, quant_map, nested_absmax, quant_state.bitsandbytes__nf4, SCB
_SCALE: Final = r"""(?:^|\.)(?:
        input_scale_ub
      | (?:\w+_)?(?:weight|input|output|act|activation|kv|q|k|v|prob|quant|global)_scale(?:_inv|_\d+)?
      | (?:\w+_)?scale_inv | (?:\w+_)?scales
      | (?:\w+_)?zero_points? | qzeros | zeros
      | (?:\w+_)?g_idx | weight_shape
      | (?:nested_)?(?:absmax|quant_map) | quant_state\.[^.]+ | SCB | weight_format
    )$"""
# the reference implementation keeps a router's correction bias as a buffer too; GGUF keeps factors of RoPE
_BUFFER: Final = (
    r"(?:^|\.)(?:inv_freq|position_ids|masked_bias|num_batches_tracked|e_score_correction_bias|expert_bias"
    r"|rope\.freqs|(?:rope_freqs|rope_factors_\w+|attn_rot_embd)\.weight|exp_probs_b(?:\.\w+)?)$"
)
UNSAID: Final = Width()  # of a config that says nothing of packed integers
_MASK_RANK: Final = 4
_PACKED_NAME: Final = r"(?:^|[._])(?:qweight|packed|blocks)$"
_COUNTERS: Final = frozenset({"BOOL", "I64", "U64"})  # masks, positions and steps: nothing that is trained
_PLAIN: Final = frozenset({"F64", "F32", "F16", "BF16", "C64"})


def quantisation_scale(name: str) -> bool:
    """Tell whether a tensor belongs to a quantiser (a scale, a zero point, an order) and holds no parameters.

    >>> quantisation_scale("model.layers.3.mlp.down_proj.weight_scale_inv"), quantisation_scale("logit_scale")
    (True, False)
    """
    return _ends_as_scale(_end(name))


def _end(name: str) -> str:
    """The last two parts of a name, which recur in every layer: what is asked of them is asked once."""
    return ".".join(name.rsplit(".", 2)[-2:])


@lru_cache(maxsize=1024)
def _ends_as_scale(end: str) -> bool:
    return re.search(_SCALE, end, re.VERBOSE) is not None


@lru_cache(maxsize=1024)
def _ends_as_buffer(end: str) -> bool:
    return re.search(_BUFFER, end) is not None


def parameter_elements(weights: WeightFiles, *, scales: int | None = None, width: Width = UNSAID) -> int | None:
    """Count the parameters in the files: every stored element that is no scale, mask or counter.

    Packed integers are counted as `packed_elements` does. None where the files do not tell: integers that nothing
    beside them explains, and a summary by dtype, which does not say how many elements are scales (unless `scales`
    does) nor what is in its integers.

    Args:
        weights: what the files hold.
        scales: elements that are scales, where a summary is known to hold so many.
        width: what the config says of packed integers, for those that the tensors beside them do not explain.

    >>> from roofcast.modelspec.weights import Tensor, collect
    >>> files = (Tensor("w.weight", "F8_E4M3", (256, 128)), Tensor("w.weight_scale_inv", "F32", (2, 1)))
    >>> parameter_elements(collect({"model.safetensors": files}, "x"))
    32768
    """
    if not weights.tensors:
        return _of_summary(weights.elements, scales)
    files = {tensor.name: tensor for tensor in weights.tensors}
    count = 0
    for tensor in weights.tensors:
        if _is_auxiliary(tensor, files.keys()):
            continue
        held = packed_elements(tensor, files, width) if _is_packed(tensor, files) else tensor.elements
        if held is None:
            return None
        count += held
    return count


def _of_summary(elements: Mapping[str, int], scales: int | None) -> int | None:
    trained = {dtype: n for dtype, n in elements.items() if dtype not in _COUNTERS}
    if trained.keys() & WORDS or (scales is None and not trained.keys() <= _PLAIN):
        return None
    return sum(trained.values()) - (scales or 0)


def _is_auxiliary(tensor: Tensor, names: AbstractSet[str]) -> bool:
    return (
        tensor.dtype in _COUNTERS
        or of_quantiser(tensor, names)
        or _ends_as_buffer(_end(tensor.name))
        or causal_mask(tensor)
    )


def of_quantiser(tensor: Tensor, names: AbstractSet[str]) -> bool:
    """Whether a quantiser adds a tensor beside the weights; `names` are those of all tensors.

    >>> from roofcast.modelspec.weights import Tensor
    >>> of_quantiser(Tensor("ffn.w1.scale", "F32", (2, 1)), {"ffn.w1.weight"})
    True
    >>> of_quantiser(Tensor("norm.scale", "F32", (4096,)), set())
    False
    """
    stem, _, last = tensor.name.rpartition(".")
    # A norm may call its own weight `scale`, and an attention its weights `bias`; beside these they are a quantiser's.
    beside = {"scale": f"{stem}.weight", "biases": f"{stem}.scales"}
    return (
        tensor.dtype == "F8_E8M0"  # powers of two: nothing but scales
        or quantisation_scale(tensor.name)
        or beside.get(last, "") in names
    )


def causal_mask(tensor: Tensor) -> bool:
    """Whether a tensor is the causal mask [1, 1, n, n] that GPT-2 and its kin save as `attn.bias`."""
    return tensor.name.endswith(".bias") and len(tensor.shape) == _MASK_RANK and tensor.shape[:2] == (1, 1)


def _is_packed(tensor: Tensor, files: Mapping[str, Tensor]) -> bool:
    if tensor.dtype in _PLAIN:
        return False
    return is_packed(tensor, files) or re.search(_PACKED_NAME, tensor.name) is not None
