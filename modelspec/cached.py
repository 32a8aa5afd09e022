"""What parts of a sequence's state take in the formats that they are kept in."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from roofcast.modelspec.formats import FORMATS
from roofcast.modelspec.state import CACHE, FP32

if TYPE_CHECKING:
    from roofcast.modelspec.formats import Format
    from roofcast.modelspec.state import Kept

ACTIVATION_BITS: Final = 16  # no runtime keeps activations in less; a cache in less does not change them


def format_of(part: Kept, kv: Format) -> Format:
    """The format that a part of the state is in: the cache's, that of activations (16 bits or more), or fp32.

    >>> from roofcast.modelspec.state import fixed
    >>> format_of(fixed(1, 64), FORMATS["fp8"]).name, format_of(fixed(1, 64, FP32), FORMATS["fp8"]).name
    ('bf16', 'fp32')
    """
    if part.format == FP32:
        return FORMATS["fp32"]
    return kv if part.format == CACHE or kv.bits >= ACTIVATION_BITS else FORMATS["bf16"]


def entry_bytes(part: Kept, kv: Format, tp: int = 1) -> float:
    """Bytes of one entry of a part on one of `tp` devices: elements x bytes. [B]

    >>> from roofcast.modelspec.state import per_token
    >>> entry_bytes(per_token(8, 256), FORMATS["bf16"], 4)  # two of eight heads
    1024.0
    """
    return part.shard(tp) * format_of(part, kv).bytes_per_element


def part_bytes(part: Kept, kv: Format, context: int, tp: int = 1) -> float:
    """Bytes of a part of one sequence's state at a context: entries x bytes, the last R tokens' in 16 bits. [B]

    >>> from roofcast.modelspec.state import per_token
    >>> part_bytes(per_token(8, 256), FORMATS["kivi2"], 1152)  # 1,024 x 2,048 x 3 bits, 128 x 2,048 x 16 bits
    1310720.0
    """
    return part.entries(context) * entry_bytes(part, kv, tp) + residual(part, kv, context, tp)


def residual(part: Kept, kv: Format, context: int, tp: int = 1) -> float:
    """What the last R tokens, which a format keeps in 16 bits, take more than the rest of a part: R x elements x (2 - b). [B]"""
    if not kv.residual or part.fixed or part.format != CACHE:
        return 0.0
    entries = min(part.entries(context), -(-kv.residual // part.per))
    return entries * part.shard(tp) * (FORMATS["bf16"].bytes_per_element - kv.bytes_per_element)
