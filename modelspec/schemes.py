"""How quantisers store one matrix: packed weights, and the scales, zero points and orders beside them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final, Protocol

WORD: Final = 32  # [bit] of the integers that GPTQ, AWQ, compressed-tensors and MLX pack into
FP32: Final = 4  # [B]
TENSOR_SCALE: Final = FP32  # one a matrix
SHAPE: Final = 16  # [B] two int64: the shape that compressed-tensors keeps beside packed integers
ALL: Final = 0  # a block as long as the matrix


class Scheme(Protocol):
    """What the rest of roofcast asks of a way to store a matrix."""

    @property
    def name(self) -> str:
        """As people say it, with its block."""

    @property
    def compute(self) -> str:
        """The format whose peak a device that has it multiplies at; `bf16` of weight-only schemes."""

    def sizes(self, rows: int, columns: int) -> tuple[int, int]:
        """Bytes of the packed weights of one matrix, and of everything beside them. [B]"""


@dataclass(frozen=True, slots=True)
class Blocks:
    """Elements of a few bits, with a scale for every block of rows x columns.

    Args:
        name: as people say it.
        bits: of an element. [bit]
        scale_bits: of what one block shares: a scale, or a scale and a bias. [bit]
        block: rows and columns of a block; 0 is all of them.
        zero_points: whether every block of columns has a zero point of `bits` for each row, packed into words.
        beside: bytes a matrix more: tensor scales, input scales, a kept shape. [B]
        per_column: bytes an input more: the order of GPTQ's act-order, a scale of AWQ's inputs. [B]
        word: bits that a row of elements fills up to. [bit]
        across: whether elements are packed along the outputs (AWQ) instead of the inputs.
        compute: the format that a device with it multiplies in.
    """

    name: str
    bits: int
    scale_bits: int
    block: tuple[int, int]
    zero_points: bool = False
    beside: int = 0
    per_column: int = 0
    word: int = 8
    across: bool = False
    compute: str = "bf16"

    def sizes(self, rows: int, columns: int) -> tuple[int, int]:
        """Bytes of weights, n b / 8 filled up to words, and of ceil(r / b_r) ceil(c / b_c) scales with the rest. [B]

        >>> FP8_BLOCK.sizes(7168, 2048)  # 56 x 16 fp32 scales
        (14680064, 3584)
        >>> sum(NVFP4.sizes(7168, 2048)) - 8  # 0.5625 B an element, without the two tensor scales
        8257536
        """
        outer, inner = (columns, rows) if self.across else (rows, columns)
        weights = outer * _words(inner, self.bits, self.word)
        high, wide = _blocks(rows, self.block[0]), _blocks(columns, self.block[1])
        scales = -(-high * wide * self.scale_bits // 8)
        zeros = wide * _words(rows, self.bits, WORD) if self.zero_points else 0
        return weights, scales + zeros + self.beside + self.per_column * columns


@dataclass(frozen=True, slots=True)
class Absmax:
    """bitsandbytes' 4 bits: blocks of elements in memory order, their maxima quantised once more or in fp32.

    Args:
        name: nf4 or fp4.
        nested: whether the maxima themselves are 8 bits, with one fp32 for every 256.
        block: elements that share a maximum.
    """

    name: str
    nested: bool
    block: int = 64
    compute: str = "bf16"

    def sizes(self, rows: int, columns: int) -> tuple[int, int]:
        """n / 2 bytes of weights; maxima, their maxima, and tables of 16 and, where nested, 256 fp32 values. [B]

        The text that keeps shape and dtype, about a hundred bytes a matrix, is not in it.

        Source: Dettmers et al. 2023, arXiv:2305.14314, section 3 (QLoRA).

        >>> Absmax("nf4", nested=True).sizes(4096, 4096)
        (8388608, 267328)
        """
        elements = rows * columns
        maxima = -(-elements // self.block)
        table = 16 * FP32
        if not self.nested:
            return -(-elements // 2), maxima * FP32 + table
        return -(-elements // 2), maxima + -(-maxima // 256) * FP32 + table + 256 * FP32


def _words(count: int, bits: int, word: int) -> int:
    """Bytes of `count` elements packed into whole words: as many as fit where bits divide the word, else across. [B]"""
    if word % bits == 0:
        return -(-count // (word // bits)) * word // 8
    return -(-count * bits // word) * word // 8


def _blocks(size: int, block: int) -> int:
    return 1 if block == ALL else -(-size // block)


#: one e4m3 scale for 16 elements, an fp32 scale a tensor and one of its inputs
NVFP4: Final = Blocks("nvfp4", 4, 8, (1, 16), beside=2 * TENSOR_SCALE, compute="fp4")
NVFP4_WEIGHTS: Final = replace(NVFP4, name="nvfp4 (weights only)", beside=TENSOR_SCALE, compute="bf16")
MXFP4: Final = Blocks("mxfp4", 4, 8, (1, 32), compute="fp4")
MXFP8: Final = Blocks("mxfp8", 8, 8, (1, 32), compute="fp8")
#: DeepSeek-V3, arXiv:2412.19437, section 3.3.2: an fp32 scale for 128 x 128 elements
FP8_BLOCK: Final = Blocks("fp8, blocks of 128 x 128", 8, 32, (128, 128), compute="fp8")
FP8_TENSOR: Final = Blocks("fp8, a scale a tensor", 8, 32, (ALL, ALL), compute="fp8")
FP8_ROW: Final = Blocks("fp8, a scale a row", 8, 32, (1, ALL), compute="fp8")
INT8_ROW: Final = Blocks("int8, a scale a row", 8, 32, (1, ALL), compute="int8")


def fp8_blocks(rows: int, columns: int, scale_bits: int = 32) -> Blocks:
    """FP8 with a scale a block of that size."""
    return replace(FP8_BLOCK, name=f"fp8, blocks of {rows} x {columns}", scale_bits=scale_bits, block=(rows, columns))


def with_inputs(scheme: Blocks) -> Blocks:
    """The scheme with a static fp32 scale of the inputs."""
    return replace(scheme, beside=scheme.beside + TENSOR_SCALE)


def gptq(bits: int, group: int, *, order: bool = True) -> Blocks:
    """GPTQ: int32 words along the inputs, fp16 scales and packed zero points a group, an int32 an input for the order.

    >>> gptq(4, 128).sizes(4096, 4096)  # qweight; scales 262,144, qzeros 65,536, g_idx 16,384
    (8388608, 344064)
    """
    name = f"int{bits}, groups of {group}" if group else f"int{bits}, a scale a row"
    return Blocks(name, bits, 16, (1, group), zero_points=True, per_column=4 * order, word=WORD)


def awq(bits: int, group: int) -> Blocks:
    """AWQ: int32 words along the outputs, fp16 scales and packed zero points a group.

    >>> awq(4, 128).sizes(4096, 4096)
    (8388608, 327680)
    >>> awq(4, 128).sizes(100, 4096)  # 13 words for 100 outputs
    (212992, 8064)
    """
    return replace(gptq(bits, group, order=False), across=True)


def mlx(bits: int, group: int, mode: str = "affine") -> Blocks:
    """MLX: uint32 words, and a 16-bit scale and bias a group; the mx modes have a scale of 8 bits alone.

    >>> mlx(4, 64).sizes(4096, 4096)
    (8388608, 1048576)
    """
    shared = 32 if mode == "affine" else 8
    return Blocks(
        f"{mode if mode != 'affine' else f'int{bits}'}, groups of {group}", bits, shared, (1, group), word=WORD
    )
