"""How many parameters a packed tensor holds: from the shapes beside it, else from the bits that the config names."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from roofcast.modelspec.nested import text_model
from roofcast.modelspec.spec import QUANTIZATION_KEYS
from roofcast.modelspec.weights import DTYPE_BITS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from roofcast.modelspec.weights import Tensor

#: Integers that quantisers pack into; I8 only where scales of a block of parameters say so.
WORDS: Final = frozenset({"U8", "U16", "U32", "I16", "I32"})
_WIDTHS: Final = frozenset({1, 2, 3, 4, 5, 6, 8})  # [bit] that anything is packed to
# the end of a packed tensor's name -> the ends of its scales', its zero points' and its order's
_BESIDE: Final[tuple[tuple[str, tuple[str, ...], tuple[str, ...]], ...]] = (
    ("qweight", ("scales",), ("qzeros",)),  # GPTQ, AWQ
    ("weight_packed", ("weight_scale",), ("weight_zero_point",)),  # compressed-tensors
    ("weight", ("weight_scale", "scales", "scale", "weight_scale_inv"), ()),  # modelopt, MLX, DeepSeek-V4
    ("_blocks", ("_scales",), ()),  # gpt-oss
    ("", ("_scale", "_weight_scale", "_scale_inv", "_scales"), ()),  # experts in one tensor
)
# dtype of the scales -> bits of an element and elements of a block, as the formats with such scales have them
_BLOCKS: Final[dict[str, tuple[tuple[int, int], ...]]] = {
    "F8_E4M3": ((4, 16),),  # nvfp4
    "F8_E8M0": ((4, 32), (8, 32)),  # mxfp4, mxfp8
    "U8": ((4, 32), (8, 32), (4, 16)),  # the same and nvfp4, their scales as plain bytes
}
_BITS: Final = frozenset({"bits", "num_bits", "w_bit"})
_OF_OTHERS: Final = r"activation|kv_cache"  # objects that say nothing of weights


@dataclass(frozen=True, slots=True)
class Width:
    """What a config says of all packed tensors alike.

    Args:
        bits: of an element; None where it does not say, or they differ.
        group: elements that share a scale; None likewise.
    """

    bits: int | None = None
    group: int | None = None


@dataclass(frozen=True, slots=True)
class _Packed:
    """A packed tensor, with what stands beside it."""

    tensor: Tensor
    scales: Tensor | None
    zeros: Tensor | None
    order: Tensor | None
    in_halves: bool
    width: Width

    @property
    def stored_bits(self) -> int:
        return self.tensor.elements * DTYPE_BITS[self.tensor.dtype]

    def of_width(self, bits: int) -> int | None:
        """Elements of so many bits that fill the words."""
        return self.stored_bits // bits if bits in _WIDTHS and self.stored_bits % bits == 0 else None

    def counted(self, elements: int) -> int | None:
        """So many elements, if a width that quantisers know fills the words with them."""
        return elements if elements and self.of_width(self.stored_bits // elements) == elements else None


def packed_elements(tensor: Tensor, files: Mapping[str, Tensor], width: Width) -> int | None:
    """Parameters in a packed tensor, None where neither the tensors beside it nor the config tell. [parameter]

    P = n W / b of n words of W bits. The bits b are those of 4- or 8-bit blocks whose scales are as many as P / block;
    else W times the zero points' words over the scales (each group has one of both); else what the config says.

    Args:
        tensor: of words that hold several parameters each.
        files: name -> tensor, of all that stand beside it.
        width: as the config says.

    >>> from roofcast.modelspec.weights import Tensor
    >>> up = Tensor("up.qweight", "I32", (4096, 1376))
    >>> beside = (Tensor("up.qzeros", "I32", (32, 1376)), Tensor("up.scales", "F16", (32, 11008)))
    >>> packed_elements(up, {t.name: t for t in beside}, Width()) == 4096 * 11008
    True
    """
    found = _beside(tensor, files, width)
    return next((count for count in (way(found) for way in _WAYS) if count is not None), None)


def is_packed(tensor: Tensor, files: Mapping[str, Tensor]) -> bool:
    """Whether a tensor's words hold several parameters each, or may.

    Integers are words, but for 8-bit integers with a scale of their own, which hold one parameter each.
    """
    if tensor.dtype == "I8":
        scales = _beside(tensor, files, Width()).scales
        return scales is not None and scales.dtype in _BLOCKS
    return tensor.dtype in WORDS


def width_of(config: Mapping[str, Any]) -> Width:
    """The bits of an element and the size of a group, where a config states one of each for all that it packs.

    >>> width_of({"quantization_config": {"quant_method": "awq", "bits": 4, "group_size": 128}})
    Width(bits=4, group=128)
    >>> width_of({"quantization": {"bits": 4, "group_size": 64, "lm_head": {"bits": 6, "group_size": 64}}})
    Width(bits=None, group=64)
    """
    text = text_model(config).raw
    blocks = [block for key in QUANTIZATION_KEYS if isinstance(block := text.get(key), Mapping)]
    stated = [pair for block in blocks for pair in _stated(block)]
    stated = [(key, value) for key, value in stated if type(value) is int]
    bits = {value for key, value in stated if key in _BITS}
    groups = {value for key, value in stated if key == "group_size"}
    return Width(_only(bits), _only(groups))


def _stated(block: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Every key with its value, of the block and of those inside it that say something of weights."""
    for key, value in block.items():
        if isinstance(value, Mapping):
            yield from () if re.search(_OF_OTHERS, key) else _stated(value)
        else:
            yield key, value


def _only(values: set[Any]) -> int | None:
    """The one whole number above 0, None of several values or of any other."""
    value = next(iter(values)) if len(values) == 1 else None
    return value if type(value) is int and value > 0 else None


def _beside(tensor: Tensor, files: Mapping[str, Tensor], width: Width) -> _Packed:
    name = tensor.name
    end, scales, zeros = next(row for row in _BESIDE if name.endswith(row[0]))
    stem = name[: len(name) - len(end)]

    def first(ends: tuple[str, ...]) -> Tensor | None:
        return next((files[stem + e] for e in ends if stem + e in files), None)

    states = (f"{name}.absmax", f"{name}.quant_state.bitsandbytes__nf4", f"{name}.quant_state.bitsandbytes__fp4")
    order = first(("g_idx",))
    return _Packed(tensor, first(scales), first(zeros), order, any(state in files for state in states), width)


def _by_block(packed: _Packed) -> int | None:
    """Blocks of a known format: b n = elements of a block x scales."""
    if packed.scales is None:
        return None
    for bits, block in _BLOCKS.get(packed.scales.dtype, ()):
        if packed.of_width(bits) == block * packed.scales.elements:
            return packed.of_width(bits)
    return None


def _by_zeros(packed: _Packed) -> int | None:
    """A zero point has as many bits as an element, and every scale has one."""
    if packed.scales is None or packed.zeros is None or packed.zeros.dtype not in WORDS:
        return None
    bits, rest = divmod(packed.zeros.elements * DTYPE_BITS[packed.zeros.dtype], packed.scales.elements or 1)
    return None if rest else packed.of_width(bits)


def _by_order(packed: _Packed) -> int | None:
    """GPTQ's order names the group of every input, and scales have a column an output."""
    if packed.scales is None or packed.order is None or not packed.scales.shape:
        return None
    return packed.counted(packed.order.elements * packed.scales.shape[-1])


def _by_halves(packed: _Packed) -> int | None:
    """bitsandbytes stores two elements a byte, as [n / 2, 1]."""
    return packed.of_width(4) if packed.in_halves else None


def _by_group(packed: _Packed) -> int | None:
    """The config says how many elements share a scale, so their number is that of the scales."""
    if packed.scales is None or packed.width.group is None:
        return None
    return packed.counted(packed.width.group * packed.scales.elements)


def _by_bits(packed: _Packed) -> int | None:
    """The config says how many bits an element has; only of what has a scale."""
    if packed.width.bits is None or packed.scales is None:
        return None
    return packed.of_width(packed.width.bits)


_WAYS: Final[tuple[Callable[[_Packed], int | None], ...]] = (
    _by_block,
    _by_zeros,
    _by_order,
    _by_halves,
    _by_group,
    _by_bits,
)
