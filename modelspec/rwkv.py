"""RWKV of generations 4 (no matrices), 5 (Eagle) and 6 (Finch): time mixing and what it keeps."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Final, Self

from roofcast.modelspec.errors import MalformedModelError, UnknownArchitectureError
from roofcast.modelspec.matrix import Matrix
from roofcast.modelspec.state import FP32, Kept, Keyless, fixed

if TYPE_CHECKING:
    from roofcast.modelspec.config import Config

CHANNEL_STATE: Final = 3  # generation 4 keeps numerator, denominator and maximum of each channel
CHANNEL_FLOPS: Final = 11  # generation 4: 6 for the output, 5 for the state; exponentials are left out
STATE_FLOPS: Final = 6  # generations 5 and 6, each number of a matrix
CHANNELS: Final = 4  # the generation without heads
LOW_RANKS: Final = 6  # the generation whose mixes and decay are moved by the input
MOVED: Final = 5  # of its six mixes
WIDE_RANKS: Final = 4096  # the hidden size at which generation 6 doubles its ranks


@dataclass(frozen=True, slots=True)
class Rwkv(Keyless):
    """RWKV time mixing: a decayed sum of k v^T a head, or of numbers a channel in generation 4.

    Args:
        generation: 4, 5 or 6.
        hidden: width of the layer's input, of which the last token's is kept. [element]
        width: width of Q (receptance), K and V, all heads.
        head_size: width of a head; generation 4 has none and says 1.
        state_format: format of the sums.
    """

    generation: int
    hidden: int
    width: int
    head_size: int = 1
    state_format: str = FP32

    label: ClassVar[str] = "RWKV"

    @property
    def heads(self) -> int:
        """What devices share: heads, or channels in generation 4."""
        return self.width // self.head_size

    @property
    def query_heads(self) -> int:
        """Heads, each with a matrix; 0 in generation 4."""
        return 0 if self.generation == CHANNELS else self.heads

    @property
    def state(self) -> tuple[Kept, ...]:
        """Matrices n d^2, or 3 numbers a channel in generation 4; and the last input of both halves, 2 h. [element]

        The second of these two inputs is the channel mixing's, which stands in the feed-forward's place.

        Source: Peng et al. 2024, arXiv:2404.05892, appendix E: 5 h in generation 4, else equation 30, 66 h at heads of 64.

        >>> matrices, shift = Rwkv(5, 4096, 4096, 64).state  # RWKV-5-World-7B
        >>> 4 * matrices.elements, 2 * shift.elements  # fp32, bf16
        (1048576, 16384)
        """
        each = CHANNEL_STATE if self.generation == CHANNELS else self.head_size**2
        return fixed(self.heads, each, self.state_format), fixed(1, 2 * self.hidden)

    def parameters(self, hidden: int) -> int:
        """Weights of time mixing in the generation's form. [parameter]

        4: 4 h w + 3 h + 2 w. 5: 5 h w + 4 h + 4 w. 6: 5 h w + 6 h + 4 w + 10 h m + (h + w) r, with ranks m = 32 and
        r = 64, twice that where h is 4096.

        Source: Peng et al. 2024, arXiv:2404.05892, appendix E, equations 23 and 27: 13 h^2 L + 14 h L + 4 h + 2 h V
        for a model of generation 5, 464 in place of 14 for 6, channel mixing and norms included.

        >>> Rwkv(5, 4096, 4096, 64).parameters(4096), Rwkv(6, 2048, 2048, 64).parameters(2048)
        (83918848, 21909504)
        """
        return GENERATIONS[self.generation](hidden, self.width)

    def matrices(self, hidden: int) -> tuple[Matrix, ...]:
        """Receptance, key, value and output, from generation 5 on a gate, in 6 low ranks that are no linear layers.

        >>> [m.name for m in Rwkv(5, 4096, 4096, 64).matrices(4096)][-2:]
        ['attention.gate', 'attention.output']
        """
        names = ("receptance", "key", "value") + (("gate",) if self.generation > CHANNELS else ())
        made = [Matrix(name, self.width, hidden) for name in names] + [Matrix("output", hidden, self.width)]
        if self.generation == LOW_RANKS:
            mix, decay = _ranks(hidden)
            made += [
                Matrix("time_maa_w1", MOVED * mix, hidden, linear=False),
                Matrix("time_maa_w2", hidden, mix, MOVED, linear=False),
                Matrix("time_decay_w1", decay, hidden, linear=False),
                Matrix("time_decay_w2", self.width, decay, linear=False),
            ]
        return tuple(matrix.under("attention") for matrix in made)

    def prefill_flops(self, tokens: float) -> float:
        """FLOP of the recurrence over a prompt: 6 n n_h d^2, or 11 n w in generation 4. [FLOP]

        The paper counts 6 for each number of a matrix: decay, 1; k v^T made and added, 2; its bonus, 1; read-out by
        receptance, 2. Projections and channel mixing are not in it.

        Source: Peng et al. 2024, arXiv:2404.05892, appendix E, equation 24.

        >>> Rwkv(5, 4096, 4096, 64).prefill_flops(1000) / 1e9
        1.572864
        """
        each = CHANNEL_FLOPS if self.generation == CHANNELS else STATE_FLOPS * self.head_size**2
        return tokens * self.heads * each

    def splits(self, tp: int) -> bool:
        """Whether `tp` devices can share the heads: it divides them."""
        return self.heads % tp == 0

    @classmethod
    def read(cls, config: Config) -> Self:
        """The kind as a config states it; a `head_size` needs to know which generation it is of.

        Raises:
            MalformedModelError: sizes absent, or heads that do not divide the width.
            UnknownArchitectureError: a generation that is not understood.
        """
        hidden = config.size("hidden")
        stated = config.raw.get("head_size")
        generation = config.trait_value("rwkv_generation", CHANNELS if stated is None else None)
        if generation not in GENERATIONS:
            msg = f"head_size is of an RWKV whose generation is not understood; roofcast knows {_known()}"
            raise UnknownArchitectureError(msg)
        width = config.size("attention_hidden_size", hidden)
        head_size = 1 if generation == CHANNELS else config.size("head_size")
        if width % head_size:
            msg = f"head_size {head_size} does not divide {width}, the width of attention"
            raise MalformedModelError(msg)
        return cls(generation, hidden, width, head_size)


def _known() -> str:
    """Model types of the generations there are."""
    return ", ".join(f"rwkv{generation}" if generation > CHANNELS else "rwkv" for generation in GENERATIONS)


def _fourth(hidden: int, width: int) -> int:
    """Receptance, key, value and output; three mixes; decay and bonus a channel."""
    return 4 * hidden * width + 3 * hidden + 2 * width


def _fifth(hidden: int, width: int) -> int:
    """A gate more than generation 4, four mixes, and a norm with bias."""
    return 5 * hidden * width + 4 * hidden + 4 * width


def _sixth(hidden: int, width: int) -> int:
    """Six mixes, five of them and the decay moved by the input through low ranks."""
    mix, decay = _ranks(hidden)
    low_rank = 2 * MOVED * hidden * mix + decay * (hidden + width)
    return 5 * hidden * width + 6 * hidden + 4 * width + low_rank


def _ranks(hidden: int) -> tuple[int, int]:
    """Ranks of generation 6, of a mix and of the decay."""
    return (64, 128) if hidden == WIDE_RANKS else (32, 64)


GENERATIONS: Final[dict[int, Callable[[int, int], int]]] = {4: _fourth, 5: _fifth, 6: _sixth}
