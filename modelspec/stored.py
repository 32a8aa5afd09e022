"""Which of the stored tensors are parameters: scales and masks are not, and packed integers hide their number."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

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
        (?:\w+_)?(?:weight|input|output|act|activation|kv|q|k|v|prob|quant|global)_scale(?:_inv|_\d+)?
      | (?:\w+_)?scale_inv | (?:\w+_)?scales
      | (?:\w+_)?zero_points? | qzeros | zeros
      | (?:\w+_)?g_idx | weight_shape
      | (?:nested_)?(?:absmax|quant_map) | quant_state\.[^.]+ | SCB | weight_format
    )$"""
# the reference implementation keeps a router's correction bias as a buffer too
_BUFFER: Final = (
    r"(?:^|\.)(?:inv_freq|position_ids|masked_bias|num_batches_tracked|e_score_correction_bias|expert_bias)$"
)
_MASK_RANK: Final = 4
_PACKED_NAME: Final = r"(?:^|[._])(?:qweight|packed|blocks)$"
_PACKED: Final = frozenset({"U8", "U16", "U32", "I16", "I32"})
_COUNTERS: Final = frozenset({"BOOL", "I64", "U64"})  # masks, positions and steps: nothing that is trained
_PLAIN: Final = frozenset({"F64", "F32", "F16", "BF16", "C64"})


def quantisation_scale(name: str) -> bool:
    """Tell whether a tensor belongs to a quantiser (a scale, a zero point, an order) and holds no parameters.

    >>> quantisation_scale("model.layers.3.mlp.down_proj.weight_scale_inv"), quantisation_scale("logit_scale")
    (True, False)
    """
    return re.search(_SCALE, name, re.VERBOSE) is not None


def parameter_elements(weights: WeightFiles, *, scales: int | None = None) -> int | None:
    """Count the parameters in the files: every stored element that is no scale, mask or counter.

    None where the files do not tell: packed integers hide the number of their parameters, and a summary by dtype
    does not say how many elements are scales (unless `scales` does).

    Args:
        weights: what the files hold.
        scales: elements that are scales, where a summary is known to hold so many.

    >>> from roofcast.modelspec.weights import Tensor, collect
    >>> files = (Tensor("w.weight", "F8_E4M3", (256, 128)), Tensor("w.weight_scale_inv", "F32", (2, 1)))
    >>> parameter_elements(collect({"model.safetensors": files}, "x"))
    32768
    """
    if not weights.tensors:
        return _of_summary(weights.elements, scales)
    names = frozenset(tensor.name for tensor in weights.tensors)
    counted = [t for t in weights.tensors if not _is_auxiliary(t, names)]
    if any(_is_packed(t) for t in counted):
        return None
    return sum(t.elements for t in counted)


def _of_summary(elements: Mapping[str, int], scales: int | None) -> int | None:
    trained = {dtype: n for dtype, n in elements.items() if dtype not in _COUNTERS}
    if trained.keys() & _PACKED or (scales is None and not trained.keys() <= _PLAIN):
        return None
    return sum(trained.values()) - (scales or 0)


def _is_auxiliary(tensor: Tensor, names: AbstractSet[str]) -> bool:
    stem, _, last = tensor.name.rpartition(".")
    # A norm may call its own weight `scale`, and an attention its weights `bias`; beside these they are a quantiser's.
    beside = {"scale": f"{stem}.weight", "biases": f"{stem}.scales"}
    # GPT-2 and its kin save the causal mask [1, 1, n, n] as `attn.bias`.
    is_mask = last == "bias" and len(tensor.shape) == _MASK_RANK and tensor.shape[:2] == (1, 1)
    return (
        tensor.dtype in _COUNTERS
        or tensor.dtype == "F8_E8M0"  # powers of two: nothing but scales
        or quantisation_scale(tensor.name)
        or re.search(_BUFFER, tensor.name) is not None
        or is_mask
        or beside.get(last, "") in names
    )


def _is_packed(tensor: Tensor) -> bool:
    return tensor.dtype in _PACKED or (tensor.dtype not in _PLAIN and re.search(_PACKED_NAME, tensor.name) is not None)
