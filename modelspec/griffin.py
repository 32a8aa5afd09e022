"""The recurrence of Griffin and RecurrentGemma: one number a channel, gated, behind a short convolution."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Self

from roofcast.modelspec.errors import MalformedModelError
from roofcast.modelspec.matrix import Matrix
from roofcast.modelspec.state import FP32, Kept, Keyless, fixed

if TYPE_CHECKING:
    from roofcast.modelspec.config import Config


@dataclass(frozen=True, slots=True)
class RgLru(Keyless):
    """Griffin's recurrent block: a real-gated linear recurrent unit (RG-LRU) beside a gate as wide.

    Args:
        heads, head_dim: blocks of its two gates and their width; heads x head_dim is the width of the recurrence.
        conv_kernel: columns of the convolution before it. [token]
        state_format: format of the recurrent state.
    """

    heads: int
    head_dim: int
    conv_kernel: int
    state_format: str = FP32

    label: ClassVar[str] = "RG-LRU"

    @property
    def query_heads(self) -> int:
        """Blocks, each with a share of the state."""
        return self.heads

    @property
    def state(self) -> tuple[Kept, ...]:
        """Convolution columns w (c - 1) in the model's format, and w numbers of the recurrence in fp32. [element]

        One column less than the kernel has, and fp32 whatever the model's format, as the reference implementation
        keeps them.

        Source: De et al. 2024, arXiv:2402.19427, section 2.4.

        >>> conv, states = RgLru(10, 256, 4).state  # RecurrentGemma-2B
        >>> 2 * conv.elements, 4 * states.elements  # bf16, fp32
        (15360, 10240)
        """
        columns = fixed(self.heads, self.head_dim * (self.conv_kernel - 1))
        states = fixed(self.heads, self.head_dim, self.state_format)
        return (columns, states) if self.conv_kernel > 1 else (states,)

    def parameters(self, hidden: int) -> int:
        """Two projections in and one out, convolution, two gates by blocks, and a decay a channel. [parameter]

        3 h w + 2 w + h + w (c + 1) + 2 (w d + w) + w, where w = n d; all but the decay have biases.

        >>> RgLru(10, 256, 4).parameters(2560)  # RecurrentGemma-2B
        20999680
        """
        width = self.heads * self.head_dim
        projections = 3 * hidden * width + 2 * width + hidden
        return projections + width * (self.conv_kernel + 1) + 2 * width * (self.head_dim + 1) + width

    def matrices(self, hidden: int) -> tuple[Matrix, ...]:
        """Two projections in and one out; the two gates are blocks, which are no linear layers.

        >>> [(m.name, m.count) for m in RgLru(10, 256, 4).matrices(2560)][2:4]
        [('temporal_block.linear_out', 1), ('temporal_block.rg_lru.input_gate_weight', 10)]
        """
        width, size = self.heads * self.head_dim, self.head_dim
        made = [Matrix(name, width, hidden) for name in ("linear_y", "linear_x")]
        made.append(Matrix("linear_out", hidden, width))
        gates = (f"rg_lru.{name}_gate_weight" for name in ("input", "recurrent"))
        made += [Matrix(name, size, size, self.heads, linear=False) for name in gates]
        return tuple(matrix.under("temporal_block") for matrix in made)

    def prefill_flops(self, tokens: float) -> float:
        """FLOP of the recurrence over a prompt: 4 n w. [FLOP]

        A token and channel: the input gated, 1, and scaled, 1; decay and sum, 2. Gates, projections and the
        convolution are not in it.

        Source: De et al. 2024, arXiv:2402.19427, equation 4.

        >>> RgLru(10, 256, 4).prefill_flops(1000)
        10240000
        """
        return 4 * tokens * self.heads * self.head_dim

    def splits(self, tp: int) -> bool:
        """Whether `tp` devices can share the blocks: it divides them."""
        return self.heads % tp == 0

    @classmethod
    def read(cls, config: Config) -> Self:
        """The kind as a config states it: as wide as the residual where `lru_width` is absent or null.

        Raises:
            MalformedModelError: sizes absent, or attention heads, which are its blocks too, that do not divide it.
        """
        width, heads = config.size("lru_width", config.size("hidden")), config.size("query_heads")
        if width % heads:
            msg = f"{config.key_of('query_heads')} {heads} does not divide lru_width {width}"
            raise MalformedModelError(msg)
        return cls(heads, width // heads, config.size("conv1d_width"))
