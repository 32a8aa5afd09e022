"""Linear attention and other recurrences over heads: a matrix a head instead of a cache that grows.

Recurrent matrices are kept in fp32 as the reference implementation keeps them, whatever `mamba_ssm_dtype`,
`mamba_ssm_cache_dtype` or `inference_state_dtype` say; each class has the format as a field, so that it shows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Final, Self

from roofcast.modelspec.errors import MalformedModelError
from roofcast.modelspec.matrix import Matrix
from roofcast.modelspec.state import FP32, MODEL, Kept, Keyless, fixed

if TYPE_CHECKING:
    from roofcast.modelspec.config import Config

FOUR: Final = 4  # matrices that most classes of Gated DeltaNet project their input by; others have 2, or 6
# how many matrices -> each with what it projects: Q, K, V, the gate (z or g), beta and decay
DELTA_INPUTS: Final[dict[int, tuple[tuple[str, str], ...]]] = {
    2: (("in_proj_qkvz", "qkvz"), ("in_proj_ba", "ba")),
    FOUR: (("in_proj_qkv", "qkv"), ("in_proj_z", "z"), ("in_proj_b", "b"), ("in_proj_a", "a")),
    6: tuple((f"{part}_proj", part) for part in "qkvabg"),
}


@dataclass(frozen=True, slots=True)
class GatedDeltaNet(Keyless):
    """Gated DeltaNet: a decayed matrix a value head, corrected by the delta rule, behind a short convolution.

    Args:
        key_heads, value_heads: heads of Q and K, and of V; several value heads may share a key head.
        key_head_dim, value_head_dim: width of a key and of a value head.
        conv_kernel: columns of the convolution over Q, K and V. [token]
        state_format: format of the recurrent matrix.
        inputs: matrices that the input's projections are in: 4, or 2 (Qwen3-Next), or 6 (OLMo Hybrid).
    """

    key_heads: int
    value_heads: int
    key_head_dim: int
    value_head_dim: int
    conv_kernel: int
    state_format: str = FP32
    inputs: int = FOUR

    label: ClassVar[str] = "Gated DeltaNet"

    @property
    def query_heads(self) -> int:
        """Value heads: each has a recurrent matrix."""
        return self.value_heads

    @property
    def state(self) -> tuple[Kept, ...]:
        """Convolution columns (2 n_k d_k + n_v d_v) c in the model's format, and matrices n_v d_k d_v. [element]

        Source: Yang et al. 2024, arXiv:2412.06464.

        >>> conv_qk, conv_v, matrices = GatedDeltaNet(16, 16, 128, 128, 4).state  # Qwen3.5-0.8B
        >>> 2 * (conv_qk.elements + conv_v.elements), 4 * matrices.elements  # bf16, fp32
        (49152, 1048576)
        """
        return (
            fixed(self.key_heads, 2 * self.key_head_dim * self.conv_kernel),
            fixed(self.value_heads, self.value_head_dim * self.conv_kernel),
            fixed(self.value_heads, self.key_head_dim * self.value_head_dim, self.state_format),
        )

    def parameters(self, hidden: int) -> int:
        """Projections of Q, K, V, gate, decay, beta and output; convolution; A, dt and norm. [parameter]

        h (2 K + 3 V + 2 n_v) + (2 K + V) c + 2 n_v + d_v, where K = n_k d_k and V = n_v d_v.

        >>> GatedDeltaNet(16, 32, 128, 128, 4).parameters(2048)  # Qwen3-Next-80B-A3B
        33718464
        """
        keys, values = self.key_heads * self.key_head_dim, self.value_heads * self.value_head_dim
        projections = hidden * (2 * keys + 3 * values + 2 * self.value_heads)
        return projections + (2 * keys + values) * self.conv_kernel + 2 * self.value_heads + self.value_head_dim

    def matrices(self, hidden: int) -> tuple[Matrix, ...]:
        """Projections of Q, K, V, gate, decay and beta, in as many matrices as the class has, and output.

        >>> [(m.name, m.rows) for m in GatedDeltaNet(16, 32, 128, 128, 4).matrices(2048)][:2]
        [('linear_attn.in_proj_qkv', 8192), ('linear_attn.in_proj_z', 4096)]
        >>> [(m.name, m.rows) for m in GatedDeltaNet(16, 32, 128, 128, 4, inputs=2).matrices(2048)][:2]
        [('linear_attn.in_proj_qkvz', 12288), ('linear_attn.in_proj_ba', 64)]
        """
        keys, values, heads = (
            self.key_heads * self.key_head_dim,
            self.value_heads * self.value_head_dim,
            self.value_heads,
        )
        names = DELTA_INPUTS.get(self.inputs, DELTA_INPUTS[FOUR])
        rows = {"q": keys, "k": keys, "v": values, "z": values, "g": values, "b": heads, "a": heads}
        inputs = (Matrix(f"linear_attn.{name}", sum(rows[part] for part in parts), hidden) for name, parts in names)
        return *inputs, Matrix(f"linear_attn.{'o_proj' if self.inputs > FOUR else 'out_proj'}", hidden, values)

    def prefill_flops(self, tokens: float) -> float:
        """FLOP of the recurrence over a prompt: 7 n n_v d_k d_v. [FLOP]

        A token and head: decay of S, 1; what S holds for the key, k^T S, 2; the correction added, S + k d^T, 2;
        read-out q^T S, 2; each times d_k d_v. Projections, convolution and gates are not in it.

        Source: Yang et al. 2024, arXiv:2412.06464, equation 10.

        >>> GatedDeltaNet(16, 32, 128, 128, 4).prefill_flops(1000) / 1e9
        3.670016
        """
        return 7 * tokens * self.value_heads * self.key_head_dim * self.value_head_dim

    def splits(self, tp: int) -> bool:
        """Whether `tp` devices can share the heads: it divides value heads, and key heads split or replicate evenly."""
        return self.value_heads % tp == 0 and (self.key_heads % tp == 0 or tp % self.key_heads == 0)

    @classmethod
    def read(cls, config: Config) -> Self:
        """The kind as a config states it; a class may derive sizes that are absent from the attention heads.

        Raises:
            MalformedModelError: sizes absent, or key heads that do not divide value heads.
        """
        derived = bool(config.trait_value("linear_from_attention", default=False))
        heads = config.size("query_heads") if derived else None
        key_heads = config.size("linear_num_key_heads", heads)
        value_heads = config.size("linear_num_value_heads", heads)
        key_dim = config.size("linear_key_head_dim", 3 * config.size("hidden") // (4 * key_heads) if derived else None)
        if value_heads % key_heads:
            msg = f"linear_num_key_heads {key_heads} does not divide linear_num_value_heads {value_heads}"
            raise MalformedModelError(msg)
        return cls(
            key_heads=key_heads,
            value_heads=value_heads,
            key_head_dim=key_dim,
            value_head_dim=config.size("linear_value_head_dim", 2 * key_dim if derived else None),
            conv_kernel=config.size("linear_conv_kernel"),
            inputs=config.trait_value("delta_inputs", FOUR),
        )


@dataclass(frozen=True, slots=True)
class KimiDelta(Keyless):
    """Kimi delta attention (KDA): Gated DeltaNet whose decay differs a channel, with Q, K and V of as many heads.

    Args:
        heads, head_dim: heads of Q, K and V, and their width.
        conv_kernel: columns of the convolutions over Q, K and V. [token]
        full_rank_gate, full_rank_decay: whether those projections are one matrix, not two of rank d.
        state_format: format of the recurrent matrix.
    """

    heads: int
    head_dim: int
    conv_kernel: int
    full_rank_gate: bool = False
    full_rank_decay: bool = False
    state_format: str = FP32

    label: ClassVar[str] = "KDA"

    @property
    def query_heads(self) -> int:
        """Heads, each with a recurrent matrix."""
        return self.heads

    @property
    def state(self) -> tuple[Kept, ...]:
        """Convolution columns 3 n d c in the model's format, and matrices n d^2. [element]

        Source: Kimi Team 2025, arXiv:2510.26692, section 3.

        >>> conv, matrices = KimiDelta(4, 128, 4).state
        >>> 2 * conv.elements, 4 * matrices.elements  # bf16, fp32
        (12288, 262144)
        """
        return (
            fixed(self.heads, 3 * self.head_dim * self.conv_kernel),
            fixed(self.heads, self.head_dim * self.head_dim, self.state_format),
        )

    def parameters(self, hidden: int) -> int:
        """Projections of Q, K, V, output, beta, gate and decay; convolutions; A, dt and norm. [parameter]

        4 h w + h n + gate + decay + 3 w c + n + w + d, where w = n d; gate and decay are h w each at full rank,
        else h d + d w.

        >>> KimiDelta(32, 128, 4).parameters(2304)  # Kimi-Linear-48B-A3B
        39514272
        """
        width = self.heads * self.head_dim
        ranks = {True: hidden * width, False: self.head_dim * (hidden + width)}
        gates = ranks[self.full_rank_gate] + ranks[self.full_rank_decay]
        return (
            hidden * (4 * width + self.heads)
            + gates
            + 3 * width * self.conv_kernel
            + (self.heads + width + self.head_dim)
        )

    def matrices(self, hidden: int) -> tuple[Matrix, ...]:
        """Projections of Q, K, V, decay, beta, gate and output; decay and gate in two of rank d, or in one.

        >>> [m.name for m in KimiDelta(32, 128, 4).matrices(2304)][3:5]
        ['self_attn.f_a_proj', 'self_attn.f_b_proj']
        """
        width, rank = self.heads * self.head_dim, self.head_dim
        made = [Matrix(f"{name}_proj", width, hidden) for name in "qkv"]
        for name, whole in (("f", self.full_rank_decay), ("g", self.full_rank_gate)):
            low = (Matrix(f"{name}_a_proj", rank, hidden), Matrix(f"{name}_b_proj", width, rank))
            made += [Matrix(f"{name}_proj", width, hidden)] if whole else low
        made += [Matrix("b_proj", self.heads, hidden), Matrix("o_proj", hidden, width)]
        return tuple(matrix.under("self_attn") for matrix in made)

    def prefill_flops(self, tokens: float) -> float:
        """FLOP of the recurrence over a prompt: 7 n n_h d^2. [FLOP]

        A token and head: decay of S, 1; k^T S, 2; the correction added, 2; read-out q^T S, 2; each times d^2.
        Projections, convolutions and gates are not in it.

        Source: Kimi Team 2025, arXiv:2510.26692, section 3.

        >>> KimiDelta(32, 128, 4).prefill_flops(1000) / 1e9
        3.670016
        """
        return 7 * tokens * self.heads * self.head_dim * self.head_dim

    def splits(self, tp: int) -> bool:
        """Whether `tp` devices can share the heads: it divides them."""
        return self.heads % tp == 0

    @classmethod
    def read(cls, config: Config) -> Self:
        """The kind as `linear_attn_config` states it, or flat keys, or the attention heads where the class shares them.

        Raises:
            MalformedModelError: sizes absent, or `linear_attn_config` is no object.
        """
        heads, head_dim = config.optional_size("linear_num_heads"), config.optional_size("linear_head_dim")
        kernel, full_rank = config.optional_size("linear_conv_kernel"), False
        if config.trait_value("linear_from_attention", default=False):
            heads, head_dim = heads or config.size("query_heads"), head_dim or config.size("head_dim")
        if config.raw.get("linear_attn_config") is not None:
            block = config.block("linear_attn_config")
            heads, head_dim = block.size("num_heads", heads), block.size("head_dim", head_dim)
            kernel = block.size("short_conv_kernel_size", kernel)
            full_rank = block.flag("use_full_rank_gate")
        return cls(
            heads=heads or config.size("linear_num_heads"),
            head_dim=head_dim or config.size("linear_head_dim"),
            conv_kernel=kernel or config.size("linear_conv_kernel"),
            full_rank_gate=bool(config.trait_value("full_rank_gate", default=full_rank)),
            full_rank_decay=bool(config.trait_value("full_rank_decay", default=False)),
        )


@dataclass(frozen=True, slots=True)
class LightningAttention(Keyless):
    """Lightning attention: a decayed sum of k v^T a head, with a norm and a gate on the output.

    Args:
        heads, head_dim: heads of Q, K and V, and their width.
        state_format: format of the sum; the reference keeps it in the model's.
    """

    heads: int
    head_dim: int
    state_format: str = MODEL

    label: ClassVar[str] = "lightning"

    @property
    def query_heads(self) -> int:
        """Heads, each with a matrix."""
        return self.heads

    @property
    def state(self) -> tuple[Kept, ...]:
        """One matrix a head: n d^2. [element]

        Source: MiniMax 2025, arXiv:2501.08313, section 2.2.

        >>> LightningAttention(64, 128).state[0].elements  # MiniMax-Text-01
        1048576
        """
        return (fixed(self.heads, self.head_dim * self.head_dim, self.state_format),)

    def parameters(self, hidden: int) -> int:
        """Weights of Q, K, V, gate and output, and the norm: 5 h n d + n d. [parameter]

        >>> LightningAttention(64, 128).parameters(6144)  # MiniMax-Text-01
        251666432
        """
        width = self.heads * self.head_dim
        return 5 * hidden * width + width

    def matrices(self, hidden: int) -> tuple[Matrix, ...]:
        """Q, K and V in one, the gate, and output.

        >>> [(m.name, m.rows) for m in LightningAttention(64, 128).matrices(6144)][:2]
        [('self_attn.qkv_proj', 24576), ('self_attn.output_gate', 8192)]
        """
        width = self.heads * self.head_dim
        made = (
            Matrix("qkv_proj", 3 * width, hidden),
            Matrix("output_gate", width, hidden),
            Matrix("out_proj", hidden, width),
        )
        return tuple(matrix.under("self_attn") for matrix in made)

    def prefill_flops(self, tokens: float) -> float:
        """FLOP of the recurrence over a prompt: 5 n n_h d^2. [FLOP]

        A token and head: decay of S, 1; S + k v^T, 2; read-out q^T S, 2; each times d^2. Engines work in blocks,
        which adds scores within a block; projections are not in it.

        Source: MiniMax 2025, arXiv:2501.08313, section 2.2.

        >>> LightningAttention(64, 128).prefill_flops(1000) / 1e9
        5.24288
        """
        return 5 * tokens * self.heads * self.head_dim * self.head_dim

    def splits(self, tp: int) -> bool:
        """Whether `tp` devices can share the heads: it divides them."""
        return self.heads % tp == 0

    @classmethod
    def read(cls, config: Config) -> Self:
        """The kind as a config states it: the heads of its softmax layers.

        Raises:
            MalformedModelError: sizes absent, or heads that do not divide the hidden size where no head_dim is stated.
        """
        heads, head_dim = config.size("query_heads"), config.optional_size("head_dim")
        return cls(heads, head_dim or share(config.size("hidden"), heads, config.key_of("query_heads"), "hidden_size"))


def share(width: int, heads: int, heads_key: str, width_key: str) -> int:
    """Width of a head."""
    if width % heads or width < heads:
        msg = f"{heads_key} {heads} does not divide {width_key} {width}"
        raise MalformedModelError(msg)
    return width // heads
