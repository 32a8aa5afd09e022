"""State-space layers (Mamba-1, Mamba-2) and the short convolution: a state a channel or a head, and conv columns.

Convolutions keep as many columns as their kernel has, as the reference implementation does; engines may keep one
less. State-space states are kept in fp32 as there, whatever `mamba_ssm_cache_dtype` says.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Self

from roofcast.modelspec.errors import MalformedModelError
from roofcast.modelspec.matrix import Matrix
from roofcast.modelspec.state import FP32, Kept, Keyless, fixed

if TYPE_CHECKING:
    from roofcast.modelspec.config import Config


@dataclass(frozen=True, slots=True)
class Mamba1(Keyless):
    """Mamba-1: a selective state space of its own for every channel.

    Args:
        width: channels after the expansion (d_inner).
        state_size: numbers kept a channel.
        conv_kernel: columns of the convolution. [token]
        time_step_rank: rank of the projection of the time step.
        bias, conv_bias: biases of the input and output projections, and of the convolution.
        inner_norms: whether time step, B and C are normed with learned weights.
        state_format: format of the state.
    """

    width: int
    state_size: int
    conv_kernel: int
    time_step_rank: int
    bias: bool = False
    conv_bias: bool = True
    inner_norms: bool = False
    state_format: str = FP32

    label: ClassVar[str] = "Mamba-1"
    query_heads: ClassVar[int] = 0

    @property
    def state(self) -> tuple[Kept, ...]:
        """Convolution columns d c in the model's format, and states d N. [element]

        Source: Gu and Dao 2023, arXiv:2312.00752, section 3.

        >>> conv, states = Mamba1(8192, 16, 4, 256).state  # Falcon-Mamba-7B
        >>> 2 * conv.elements, 4 * states.elements  # bf16, fp32
        (65536, 524288)
        """
        return fixed(self.width, self.conv_kernel), fixed(self.width, self.state_size, self.state_format)

    def parameters(self, hidden: int) -> int:
        """Projections in, of time step, B and C, and out; convolution; A, D and the time step's bias. [parameter]

        2 h d + d (r + 2 N) + r d + d h + d c + d N + 2 d; biases add 2 d + h, that of the convolution d, inner norms
        r + 2 N.

        >>> Mamba1(8192, 16, 4, 256).parameters(4096)  # Falcon-Mamba-7B
        105308160
        """
        width, rank, size = self.width, self.time_step_rank, self.state_size
        weights = width * (3 * hidden + 2 * rank + 3 * size + self.conv_kernel + 2)
        biases = (2 * width + hidden) * self.bias + width * self.conv_bias
        return weights + biases + (rank + 2 * size) * self.inner_norms

    def matrices(self, hidden: int) -> tuple[Matrix, ...]:
        """Projections in, of time step, B and C, of the time step's rank, and out.

        >>> [(m.name, m.rows) for m in Mamba1(8192, 16, 4, 256).matrices(4096)][:2]
        [('mamba.in_proj', 16384), ('mamba.x_proj', 288)]
        """
        width, rank = self.width, self.time_step_rank
        made = (
            Matrix("in_proj", 2 * width, hidden),
            Matrix("x_proj", rank + 2 * self.state_size, width),
            Matrix("dt_proj", width, rank),
            Matrix("out_proj", hidden, width),
        )
        return tuple(matrix.under("mamba") for matrix in made)

    def prefill_flops(self, tokens: float) -> float:
        """FLOP of the recurrence over a prompt: 6 n d N. [FLOP]

        A token, channel and state: dt A, 1; B times the input, 1; decay and sum, 2; read-out by C, 2. Exponentials,
        projections and the convolution are not in it.

        Source: Gu and Dao 2023, arXiv:2312.00752, algorithm 2.

        >>> Mamba1(8192, 16, 4, 256).prefill_flops(1000) / 1e9
        0.786432
        """
        return 6 * tokens * self.width * self.state_size

    def splits(self, tp: int) -> bool:
        """Whether `tp` devices can share the channels: it divides them."""
        return self.width % tp == 0

    @classmethod
    def read(cls, config: Config) -> Self:
        """The kind as a config states it.

        The width is `mamba_expand` x h where that key stands; else `intermediate_size`, which is that of this layer
        in a class of Mamba layers alone and counts before `expand`, as in the reference implementation.

        Raises:
            MalformedModelError: sizes absent or no numbers.
        """
        hidden = config.size("hidden")
        stated = None if config.raw.get("mamba_expand") is not None else config.optional_size("intermediate")
        rank = config.value("ssm_time_step_rank")
        return cls(
            width=stated or config.size("ssm_expand") * hidden,
            state_size=config.size("ssm_state"),
            conv_kernel=config.size("conv_kernel"),
            time_step_rank=-(-hidden // 16) if rank is None or rank == "auto" else config.size("ssm_time_step_rank"),
            bias=_decided(config, "ssm_bias", ("mamba_proj_bias", "use_bias"), default=False),
            conv_bias=_decided(config, "ssm_conv_bias", ("mamba_conv_bias", "use_conv_bias"), default=True),
            inner_norms=bool(config.trait_value("inner_norms", default=False)),
        )


@dataclass(frozen=True, slots=True)
class Mamba2(Keyless):
    """Mamba-2: a state matrix a head under one decay, with B and C shared by groups of heads.

    Args:
        heads, head_dim: heads and their width; heads x head_dim is the width after the expansion.
        state_size: rows of a head's matrix.
        groups: groups of heads with the same B and C.
        conv_kernel: columns of the convolution over input, B and C. [token]
        bias, output_bias, conv_bias: biases of those projections and of the convolution.
        gated_norm: whether a gated norm precedes the output.
        state_format: format of the matrices.
    """

    heads: int
    head_dim: int
    state_size: int
    groups: int
    conv_kernel: int
    bias: bool = False
    output_bias: bool = False
    conv_bias: bool = True
    gated_norm: bool = True
    state_format: str = FP32

    label: ClassVar[str] = "Mamba-2"

    @property
    def query_heads(self) -> int:
        """Heads, each with a matrix."""
        return self.heads

    @property
    def state(self) -> tuple[Kept, ...]:
        """Convolution columns (n p + 2 g N) c in the model's format, and matrices n p N. [element]

        Source: Dao and Gu 2024, arXiv:2405.21060, section 7.

        >>> conv_x, conv_bc, matrices = Mamba2(128, 64, 128, 8, 4).state  # Mamba-Codestral-7B
        >>> conv_x.elements + conv_bc.elements, 4 * matrices.elements
        (40960, 4194304)
        """
        return (
            fixed(self.heads, self.head_dim * self.conv_kernel),
            fixed(self.groups, 2 * self.state_size * self.conv_kernel),
            fixed(self.heads, self.head_dim * self.state_size, self.state_format),
        )

    def parameters(self, hidden: int) -> int:
        """Projection in and out, convolution, A, D and dt of each head, and the norm. [parameter]

        h (d + m + n) + d h + m c + 3 n + d, where d = n p and m = d + 2 g N is convolved; biases add d + m + n in,
        h out and m for the convolution; without the gated norm, d less.

        >>> Mamba2(128, 64, 128, 8, 4).parameters(4096)  # Mamba-Codestral-7B
        109635968
        """
        width = self.heads * self.head_dim
        mixed = width + 2 * self.groups * self.state_size
        projected = width + mixed + self.heads
        weights = hidden * (projected + width) + mixed * self.conv_kernel + 3 * self.heads + width * self.gated_norm
        return weights + projected * self.bias + hidden * self.output_bias + mixed * self.conv_bias

    def matrices(self, hidden: int) -> tuple[Matrix, ...]:
        """Projections in (gate, input, B, C and time step) and out.

        >>> [(m.name, m.rows, m.columns) for m in Mamba2(128, 64, 128, 8, 4).matrices(4096)]
        [('mamba.in_proj', 18560, 4096), ('mamba.out_proj', 4096, 8192)]
        """
        width = self.heads * self.head_dim
        projected = 2 * width + 2 * self.groups * self.state_size + self.heads
        return Matrix("mamba.in_proj", projected, hidden), Matrix("mamba.out_proj", hidden, width)

    def prefill_flops(self, tokens: float) -> float:
        """FLOP of the recurrence over a prompt: 5 n n_h p N. [FLOP]

        A token and head: decay, 1; the sum with (dt x) B^T, 2; read-out by C, 2; each times p N. Engines work in
        chunks, which adds scores within a chunk; projections and the convolution are not in it.

        Source: Dao and Gu 2024, arXiv:2405.21060, section 6.

        >>> Mamba2(128, 64, 128, 8, 4).prefill_flops(1000) / 1e9
        5.24288
        """
        return 5 * tokens * self.heads * self.head_dim * self.state_size

    def splits(self, tp: int) -> bool:
        """Whether `tp` devices can share the heads: it divides them, and groups split or replicate evenly."""
        return self.heads % tp == 0 and (self.groups % tp == 0 or tp % self.groups == 0)

    @classmethod
    def read(cls, config: Config) -> Self:
        """The kind as a config states it, under prefixed keys or, in a class of Mamba-2 layers alone, bare ones.

        Raises:
            MalformedModelError: sizes absent, heads that do not fill the expanded width, groups that do not divide them.
        """
        heads, head_dim = _heads(config)
        groups = config.size("ssm_groups")
        if heads % groups:
            msg = f"{config.key_of('ssm_groups')} {groups} does not divide the {heads} Mamba heads"
            raise MalformedModelError(msg)
        bias = _decided(config, "ssm_bias", ("mamba_proj_bias", "use_bias"), default=False)
        output_key = config.trait_value("ssm_output_bias", default=None)
        return cls(
            heads=heads,
            head_dim=head_dim,
            state_size=config.size("ssm_state"),
            groups=groups,
            conv_kernel=config.size("conv_kernel"),
            bias=bias,
            output_bias=bias if output_key is None else config.flag(str(output_key)),
            conv_bias=_decided(config, "ssm_conv_bias", ("mamba_conv_bias", "use_conv_bias"), default=True),
            gated_norm=_decided(config, "ssm_gated_norm", ("mamba_rms_norm",), default=True),
        )


def _heads(config: Config) -> tuple[int, int]:
    """Heads and their width, one of which may follow from the expanded width."""
    pure = config.raw.get("num_heads") is not None and config.value("ssm_heads") is None
    heads_fact, dim_fact = ("num_heads", "head_dim") if pure else ("ssm_heads", "ssm_head_dim")
    width = _expanded(config)
    automatic = config.value(dim_fact) == "auto"
    heads = config.optional_size(heads_fact)
    head_dim = None if automatic else config.optional_size(dim_fact)
    if heads is None and head_dim is not None and width is not None:
        heads = width // head_dim
    elif heads is not None and head_dim is None and width is not None:
        head_dim = width // heads
    heads, head_dim = heads or config.size(heads_fact), head_dim or config.size(dim_fact)
    if width is not None and heads * head_dim != width:
        stated = "mamba_d_ssm" if config.raw.get("mamba_d_ssm") is not None else f"{config.key_of('ssm_expand')} x h"
        msg = f"{config.key_of(heads_fact)} {heads} x {config.key_of(dim_fact)} {head_dim} is {heads * head_dim}; "
        msg += f"it must be {width}, the width that {stated} gives"
        raise MalformedModelError(msg)
    return heads, head_dim


def _expanded(config: Config) -> int | None:
    """Width after expansion as the config states it; None where heads alone decide it."""
    if config.trait_value("ssm_expand_ignored", default=False):
        return None
    expand = config.optional_size("ssm_expand")
    return config.optional_size("mamba_d_ssm") or (None if expand is None else expand * config.size("hidden"))


def _decided(config: Config, trait: str, keys: tuple[str, ...], *, default: bool) -> bool:
    """A choice that the class fixes, or gives to a key of its own; else the first of the usual keys that stands."""
    chosen = config.trait_value(trait, default=None)
    if isinstance(chosen, bool):
        return chosen
    key = next((key for key in keys if config.raw.get(key) is not None), keys[0])
    return config.flag(str(chosen or key), default=default)


@dataclass(frozen=True, slots=True)
class ShortConvolution(Keyless):
    """A gated convolution over a few tokens, in the place of attention.

    Args:
        width: channels; those of the hidden state.
        conv_kernel: columns of the convolution. [token]
        bias: whether convolution and projections have biases.
    """

    width: int
    conv_kernel: int
    bias: bool = False

    label: ClassVar[str] = "short conv"
    query_heads: ClassVar[int] = 0

    @property
    def state(self) -> tuple[Kept, ...]:
        """Convolution columns: h c in the model's format. [element]

        Source: Liquid AI 2025, arXiv:2511.23404, section 2.

        >>> ShortConvolution(2048, 3).state[0].elements  # LFM2.5-1.2B
        6144
        """
        return (fixed(self.width, self.conv_kernel),)

    def parameters(self, hidden: int) -> int:
        """Projections in (B, C and x) and out, and the convolution: 4 h d + d c; biases add 4 d + h. [parameter]

        >>> ShortConvolution(2048, 3).parameters(2048)
        16783360
        """
        return 4 * hidden * self.width + self.width * self.conv_kernel + (4 * self.width + hidden) * self.bias

    def matrices(self, hidden: int) -> tuple[Matrix, ...]:
        """Projections in and out.

        >>> [(m.name, m.rows) for m in ShortConvolution(2048, 3).matrices(2048)]
        [('conv.in_proj', 6144), ('conv.out_proj', 2048)]
        """
        return Matrix("conv.in_proj", 3 * self.width, hidden), Matrix("conv.out_proj", hidden, self.width)

    def prefill_flops(self, tokens: float) -> float:
        """FLOP of the two gates over a prompt: 2 n d; the convolution's own are 2 for each of its weights. [FLOP]

        Source: Liquid AI 2025, arXiv:2511.23404, section 2.

        >>> ShortConvolution(2048, 3).prefill_flops(1000)
        4096000
        """
        return 2 * tokens * self.width

    def splits(self, tp: int) -> bool:
        """Whether `tp` devices can share the channels: it divides them."""
        return self.width % tp == 0

    @classmethod
    def read(cls, config: Config) -> Self:
        """The kind as a config states it.

        Raises:
            MalformedModelError: sizes absent, or a `conv_dim` other than the hidden size.
        """
        hidden = config.size("hidden")
        if config.size("conv_dim", hidden) != hidden:
            msg = f"conv_dim is {config.size('conv_dim')}; it must be hidden_size {hidden}, the width it works in"
            raise MalformedModelError(msg)
        return cls(hidden, config.size("conv_L_cache"), bias=config.flag("conv_bias"))
