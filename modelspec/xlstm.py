"""The mLSTM of xLSTM: a recurrence with a matrix a head, kept in fp32 as the reference implementation keeps it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Final, Self

from roofcast.modelspec.errors import MalformedModelError
from roofcast.modelspec.matrix import Matrix
from roofcast.modelspec.recurrent import share
from roofcast.modelspec.state import FP32, Kept, Keyless, fixed

if TYPE_CHECKING:
    from roofcast.modelspec.config import Config

LARGEST_FACTOR: Final = 1024  # of a width over the hidden size; beyond is a slip of the file, not a model


@dataclass(frozen=True, slots=True)
class MLstm(Keyless):
    """The mLSTM of xLSTM: a matrix, a normaliser and a running maximum a head, behind exponential gates.

    Args:
        heads: heads of Q, K and V.
        key_head_dim, value_head_dim: width of a key and of a value head.
        bias: whether projections and norm have biases; those of the gates always do.
        state_format: format of the state.
    """

    heads: int
    key_head_dim: int
    value_head_dim: int
    bias: bool = False
    state_format: str = FP32

    label: ClassVar[str] = "mLSTM"

    @property
    def query_heads(self) -> int:
        """Heads, each with a matrix."""
        return self.heads

    @property
    def state(self) -> tuple[Kept, ...]:
        """Matrix, normaliser and maximum: n (d_k d_v + d_k + 1). [element]

        Source: Beck et al. 2024, arXiv:2405.04517, equations 19 to 27.

        >>> 4 * MLstm(8, 256, 512).state[0].elements  # xLSTM-7B, fp32
        4202528
        """
        width = self.key_head_dim * self.value_head_dim + self.key_head_dim + 1
        return (fixed(self.heads, width, self.state_format),)

    def parameters(self, hidden: int) -> int:
        """Weights of Q, K, V, output gate and output, both gates with biases, and the norm. [parameter]

        h (2 K + 3 V + 2 n) + 2 n + V, where K = n d_k and V = n d_v; biases add 2 K + 3 V + h.

        >>> MLstm(8, 256, 512).parameters(4096)  # xLSTM-7B
        67178512
        """
        keys, values = self.heads * self.key_head_dim, self.heads * self.value_head_dim
        weights = hidden * (2 * keys + 3 * values + 2 * self.heads) + 2 * self.heads + values
        return weights + (2 * keys + 3 * values + hidden) * self.bias

    def matrices(self, hidden: int) -> tuple[Matrix, ...]:
        """Q, K, V, the three gates before their functions, and output.

        >>> [(m.name, m.rows) for m in MLstm(8, 256, 512).matrices(4096)][3:5]
        [('mlstm_layer.ogate_preact', 4096), ('mlstm_layer.igate_preact', 8)]
        """
        keys, values = self.heads * self.key_head_dim, self.heads * self.value_head_dim
        rows = {"q": keys, "k": keys, "v": values, "ogate_preact": values}
        rows |= {"igate_preact": self.heads, "fgate_preact": self.heads}
        inputs = (Matrix(f"mlstm_layer.{name}", count, hidden) for name, count in rows.items())
        return *inputs, Matrix("mlstm_layer.out_proj", hidden, values)

    def prefill_flops(self, tokens: float) -> float:
        """FLOP of the recurrence over a prompt: 5 n n_h d_k (d_v + 1). [FLOP]

        A token and head: decay, 1; C + k v^T, 2; read-out q^T C, 2; each times d_k d_v, and the normaliser is one
        more column. Projections and gates are not in it.

        Source: Beck et al. 2024, arXiv:2405.04517, equations 19 to 27.

        >>> MLstm(8, 256, 512).prefill_flops(1000) / 1e9
        5.25312
        """
        return 5 * tokens * self.heads * self.key_head_dim * (self.value_head_dim + 1)

    def splits(self, tp: int) -> bool:
        """Whether `tp` devices can share the heads: it divides them."""
        return self.heads % tp == 0

    @classmethod
    def read(cls, config: Config) -> Self:
        """The kind as a config states it: widths as factors of the hidden size.

        Raises:
            MalformedModelError: sizes absent, factors that are no numbers, or heads that do not divide the widths.
        """
        heads = config.size("num_heads")
        return cls(
            heads=heads,
            key_head_dim=_factor(config, "qk_dim_factor", heads),
            value_head_dim=_factor(config, "v_dim_factor", heads),
            bias=config.flag("use_bias"),
        )


def _factor(config: Config, key: str, heads: int) -> int:
    """Width of a head where a key states the width of all as a factor of the hidden size."""
    value = config.raw.get(key)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= LARGEST_FACTOR:
        msg = f"{key} is {str(value)[:40]!r}; it must be a number above 0, at most {LARGEST_FACTOR}"
        raise MalformedModelError(msg)
    width = int(config.size("hidden") * value)
    return share(width, heads, "num_heads", f"{key} x hidden_size")
