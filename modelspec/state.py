"""What a layer keeps of a sequence: parts that grow with every token, parts capped by a window, and fixed parts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Final, Protocol

# formats a part may be kept in: the cache's (`--kv`), the activations' (the model's dtype), or fp32 whatever these are
CACHE: Final = "cache"
MODEL: Final = "model"
FP32: Final = "fp32"


@dataclass(frozen=True, slots=True)
class Kept:
    """One part of a layer's state: entries of heads x width elements.

    Args:
        heads: what devices can share; 1 is whole on every device.
        width: elements of one head in one entry. [element]
        per: tokens that one entry stands for. [token]
        cap: tokens that have entries at most; None is all of them. [token]
        fixed: whether it is one entry from the first token on, whatever the context.
        format: `cache`, `model` or `fp32`.
    """

    heads: int
    width: int
    per: int = 1
    cap: int | None = None
    fixed: bool = False
    format: str = CACHE

    @property
    def elements(self) -> int:
        """Elements of one entry: heads x width. [element]"""
        return self.heads * self.width

    @property
    def grows(self) -> bool:
        """Whether it grows without end."""
        return not self.fixed and self.cap is None

    def shard(self, tp: int) -> int:
        """Elements of one entry on each of `tp` devices: heads split, and replicate beyond one a device. [element]

        >>> Kept(8, 256).shard(16), Kept(1, 576).shard(8)
        (256, 576)
        """
        return -(-self.heads // tp) * self.width

    def entries(self, tokens: int) -> int:
        """Entries at a context of T tokens: 1 where fixed, else floor(min(T, cap) / per). [entry]

        >>> Kept(8, 256).entries(4096), Kept(8, 256, cap=1024).entries(4096), Kept(1, 640, per=4).entries(4099)
        (4096, 1024, 1024)
        >>> Kept(16, 16384, fixed=True, format=FP32).entries(4096)
        1
        """
        if self.fixed:
            return 1
        return (tokens if self.cap is None else min(tokens, self.cap)) // self.per


def per_token(heads: int, width: int, window: int | None = None, per: int = 1) -> Kept:
    """A part with one entry every `per` tokens, up to a window where there is one."""
    return Kept(heads, width, per=per, cap=window)


def fixed(heads: int, width: int, format: str = MODEL) -> Kept:  # noqa: A002 - the field's name
    """A part that is there whole from the first token on: a recurrent or convolution state."""
    return Kept(heads, width, fixed=True, format=format)


class _Keeping(Protocol):
    @property
    def state(self) -> tuple[Kept, ...]: ...


class _Working(Protocol):
    def prefill_flops(self, tokens: float) -> float: ...


class ReadsAll:
    """What kinds have in common whose new token reads all that the sequence keeps."""

    __slots__ = ()

    @property
    def reads(self: _Keeping) -> tuple[Kept, ...]:
        """What one new token reads: all of the state."""
        return self.state


class Steady(ReadsAll):
    """What kinds have in common whose every token costs the same, however many came before it."""

    __slots__ = ()

    def decode_flops(self: _Working, context: float) -> float:
        """FLOP for one new token, at any context: those of a prompt of one. [FLOP]"""
        del context
        return self.prefill_flops(1)


class Keyless(Steady):
    """What kinds without keys and values have in common: no KV heads, no window, and the same work for every token."""

    __slots__ = ()
    published_kv_heads: ClassVar[int] = 0
    window: ClassVar[int | None] = None
