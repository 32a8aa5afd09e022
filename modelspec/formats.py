"""Number formats: one table of bits, scales and the format that multiplies them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from roofcast.modelspec.errors import MalformedModelError
from roofcast.modelspec.nearest import nearest

if TYPE_CHECKING:
    from collections.abc import Iterable


@dataclass(frozen=True, slots=True)
class Format:
    """A storage format: bytes an element = (bits + scale_bits / block) / 8.

    Args:
        name: as options spell it.
        bits: of one element. [bit]
        scale_bits: of the scales (and minima) that one block shares. [bit]
        block: elements that share them.
        compute: the format whose peak the device multiplies it at.
        residual: of a cache, the last tokens that stay in 16 bits; such a format is no format of weights. [token]
    """

    name: str
    bits: float
    scale_bits: float = 0
    block: int = 1
    compute: str = "bf16"
    residual: int = 0

    @property
    def bytes_per_element(self) -> float:
        """Bytes an element, scales included: (bits + scale_bits / block) / 8. [B]

        >>> FORMATS["nvfp4"].bytes_per_element, FORMATS["mxfp4"].bytes_per_element
        (0.5625, 0.53125)
        >>> FORMATS["q8_0"].bytes_per_element * 32  # 32 int8 and one fp16 scale
        34.0
        """
        return (self.bits + self.scale_bits / self.block) / 8


# Scales: nvfp4 one e4m3 per 16 (plus one fp32 a tensor, not counted here), mxfp4 one e8m0 per 32;
# the ggml rows are the block layouts of ggml-quants (bytes a block: q4_0 18, q4_1 20, q5_0 22, q5_1 24,
# q8_0 34 of 32 elements; q2_k 84, q3_k 110, q4_k 144, q5_k 176, q6_k 210 of 256). KIVI, arXiv:2402.02750, section 4:
# keys in groups of 32 tokens of a channel, values in groups of 32 channels of a token, a 16-bit scale and zero point
# each; the last 128 tokens are not quantised.
FORMATS: Final[dict[str, Format]] = {
    f.name: f
    for f in (
        Format("fp64", 64, compute="fp64"),
        Format("fp32", 32, compute="fp32"),
        Format("fp16", 16, compute="fp16"),
        Format("bf16", 16),
        Format("fp8", 8, compute="fp8"),
        Format("int8", 8, compute="int8"),
        Format("int4", 4),
        Format("nvfp4", 4, 8, 16, compute="fp4"),
        Format("mxfp4", 4, 8, 32, compute="fp4"),
        Format("q8_0", 8, 16, 32, compute="fp16"),
        Format("q6_k", 6, 144, 256, compute="fp16"),
        Format("q5_k", 5, 128, 256, compute="fp16"),
        Format("q5_1", 5, 32, 32, compute="fp16"),
        Format("q5_0", 5, 16, 32, compute="fp16"),
        Format("q4_k", 4, 128, 256, compute="fp16"),
        Format("q4_1", 4, 32, 32, compute="fp16"),
        Format("q4_0", 4, 16, 32, compute="fp16"),
        Format("iq4_nl", 4, 16, 32, compute="fp16"),
        Format("q3_k", 3, 112, 256, compute="fp16"),
        Format("q2_k", 2, 160, 256, compute="fp16"),
        Format("kivi4", 4, 32, 32, residual=128),
        Format("kivi2", 2, 32, 32, residual=128),
    )
}

# spellings of llama.cpp, and of vLLM's caches
OTHER_NAMES: Final = {"f16": "fp16", "f32": "fp32", "fp8_e4m3": "fp8", "fp8_e5m2": "fp8"}

# `torch_dtype` and `dtype` of a config.json; transformers writes the torch name
TORCH_DTYPES: Final[dict[str, str]] = {
    "bfloat16": "bf16",
    "float16": "fp16",
    "half": "fp16",
    "float32": "fp32",
    "float": "fp32",
    "float64": "fp64",
    "float8_e4m3fn": "fp8",
    "float8_e5m2": "fp8",
}


class UnknownFormatError(MalformedModelError):
    """No such number format; the message lists the known ones."""


def find_format(name: str) -> Format:
    """The format of that name.

    Raises:
        UnknownFormatError: where the table has none.

    >>> find_format("BF16").bits
    16
    >>> find_format("fp7")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    roofcast.modelspec.formats.UnknownFormatError: no format 'fp7'; nearest: fp8; known: fp64, fp32, ...
    """
    key = OTHER_NAMES.get(name.strip().lower(), name.strip().lower())
    if key in FORMATS:
        return FORMATS[key]
    raise no_such(name, FORMATS)


def no_such(name: str, known: Iterable[str]) -> UnknownFormatError:
    """The error for a name that is not known, with those that are and the nearest of them."""
    names = tuple(known)
    near = nearest(name.strip().lower(), names)
    hint = f"nearest: {', '.join(near)}; " if near else ""
    return UnknownFormatError(f"no format {name!r}; {hint}known: {', '.join(names)}")
