"""Tensor types of ggml, llama.cpp's tensor library: a row is stored in blocks of so many elements and bytes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from roofcast.modelspec.errors import MalformedModelError


@dataclass(frozen=True, slots=True)
class GgmlType:
    """One way to store the elements of a tensor.

    Args:
        name: as llama.cpp writes it, in upper case.
        number: in a GGUF file.
        block: elements that are stored together; a row holds whole blocks.
        bytes: of a block, scales and minima included. [B]

    >>> BY_NAME["Q4_K"].bits
    4.5
    """

    name: str
    number: int
    block: int
    bytes: int

    @property
    def bits(self) -> float:
        """Bits an element takes, its share of the block's scales included: 8 bytes / block. [bit]"""
        return 8 * self.bytes / self.block

    def size(self, elements: int) -> int:
        """Bytes of so many elements, which must be whole blocks: elements / block * bytes. [B]

        >>> BY_NAME["Q8_0"].size(4096 * 4096)
        17825792
        """
        return elements // self.block * self.bytes


# Source: ggml-org/llama.cpp, ggml/include/ggml.h (enum ggml_type, numbers) and ggml/src/ggml-common.h (block_*: the
# static_asserts give bytes as sums of half-precision scales, packed integers and signs); the same in gguf-py 0.19,
# gguf/constants.py, GGML_QUANT_SIZES. Q8_1 and Q8_K hold activations between two kernels and are in no model's file.
# Q8_1 is 40 bytes as gguf-py writes it: its block has had two half-precision scales, 36 bytes, in memory since 2023.
_TYPES: Final = (
    GgmlType("F32", 0, 1, 4),
    GgmlType("F16", 1, 1, 2),
    GgmlType("Q4_0", 2, 32, 18),
    GgmlType("Q4_1", 3, 32, 20),
    GgmlType("Q5_0", 6, 32, 22),
    GgmlType("Q5_1", 7, 32, 24),
    GgmlType("Q8_0", 8, 32, 34),
    GgmlType("Q8_1", 9, 32, 40),
    GgmlType("Q2_K", 10, 256, 84),
    GgmlType("Q3_K", 11, 256, 110),
    GgmlType("Q4_K", 12, 256, 144),
    GgmlType("Q5_K", 13, 256, 176),
    GgmlType("Q6_K", 14, 256, 210),
    GgmlType("Q8_K", 15, 256, 292),
    GgmlType("IQ2_XXS", 16, 256, 66),
    GgmlType("IQ2_XS", 17, 256, 74),
    GgmlType("IQ3_XXS", 18, 256, 98),
    GgmlType("IQ1_S", 19, 256, 50),
    GgmlType("IQ4_NL", 20, 32, 18),
    GgmlType("IQ3_S", 21, 256, 110),
    GgmlType("IQ2_S", 22, 256, 82),
    GgmlType("IQ4_XS", 23, 256, 136),
    GgmlType("I8", 24, 1, 1),
    GgmlType("I16", 25, 1, 2),
    GgmlType("I32", 26, 1, 4),
    GgmlType("I64", 27, 1, 8),
    GgmlType("F64", 28, 1, 8),
    GgmlType("IQ1_M", 29, 256, 56),
    GgmlType("BF16", 30, 1, 2),
    GgmlType("TQ1_0", 34, 256, 54),
    GgmlType("TQ2_0", 35, 256, 66),
    GgmlType("MXFP4", 39, 32, 17),
    GgmlType("NVFP4", 40, 64, 36),
    GgmlType("Q1_0", 41, 128, 18),
    GgmlType("Q2_0", 42, 64, 18),
)
GGML_TYPES: Final[dict[int, GgmlType]] = {kind.number: kind for kind in _TYPES}
BY_NAME: Final[dict[str, GgmlType]] = {kind.name: kind for kind in _TYPES}
#: Numbers that had a meaning once. Source: the comments of enum ggml_type.
REMOVED: Final[dict[int, str]] = {
    4: "Q4_2",
    5: "Q4_3",
    31: "Q4_0_4_4",
    32: "Q4_0_4_8",
    33: "Q4_0_8_8",
    36: "IQ4_NL_4_4",
    37: "IQ4_NL_4_8",
    38: "IQ4_NL_8_8",
}


def ggml_type(number: int, what: str) -> GgmlType:
    """Return the type that has a number.

    Args:
        number: as the file states it.
        what: the file and tensor, as the message names them.

    Raises:
        MalformedModelError: no type has it, or llama.cpp has given the type up.

    >>> ggml_type(8, "x").name
    'Q8_0'
    """
    if number in GGML_TYPES:
        return GGML_TYPES[number]
    if number in REMOVED:
        msg = (
            f"{what} has ggml type {number}, {REMOVED[number]}, which llama.cpp has removed; convert the model again, "
            f"to {'IQ4_NL' if REMOVED[number].startswith('IQ') else 'Q4_0'} for one"
        )
        raise MalformedModelError(msg)
    msg = f"{what} has ggml type {number:,}; known: {', '.join(f'{n} {t.name}' for n, t in GGML_TYPES.items())}"
    raise MalformedModelError(msg)
