"""What a calibration measures: matrices, heads, lengths, experts and decoders, few that span what models have."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

#: keys of a decoder that is calibrated with: of no published model, so that none is predicted from itself
NARROW: Final[Mapping[str, Any]] = {
    "model_type": "llama",
    "hidden_size": 1280,
    "num_hidden_layers": 20,
    "num_attention_heads": 10,
    "num_key_value_heads": 2,
    "head_dim": 128,
    "intermediate_size": 5120,
    "vocab_size": 65536,
}
WIDE: Final[Mapping[str, Any]] = {
    "model_type": "llama",
    "hidden_size": 5120,
    "num_hidden_layers": 10,
    "num_attention_heads": 40,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "intermediate_size": 15360,
    "vocab_size": 131072,
}
SMALL: Final[Mapping[str, Any]] = {
    "model_type": "llama",
    "hidden_size": 256,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 64,
    "intermediate_size": 768,
    "vocab_size": 4096,
}
SMALLER: Final[Mapping[str, Any]] = {**SMALL, "hidden_size": 128, "intermediate_size": 512, "num_hidden_layers": 8}


@dataclass(frozen=True, slots=True)
class Matrix:
    """A product that models have.

    Args:
        n, k: outputs and inputs.
        gated: whether it is gate and up together, whose activation few rows have in the same kernel.
        last: whether it is a head, which sees the last token of a prompt alone.
    """

    n: int
    k: int
    gated: bool = False
    last: bool = False


@dataclass(frozen=True, slots=True)
class Loose:
    """A layer's sizes, as far as element-wise kernels see them: width, heads, their width, width of the feed-forward."""

    hidden: int
    query: int
    kv: int
    width: int
    inner: int


@dataclass(frozen=True, slots=True)
class Mixture:
    """A layer of routed experts: how many, of which a token has top_k, from `hidden` to `inner` and back."""

    experts: int
    top_k: int
    hidden: int
    inner: int


@dataclass(frozen=True, slots=True)
class Grid:
    """All that a calibration measures.

    Args:
        matrices: products, over `tokens`.
        tokens: rows of them.
        heads: query heads, KV heads and their width, of attention over `batches` and `contexts`, and `prompts`.
        batches, contexts: of attention in decode. [token]
        prompts: of attention in prefill, batch and length. [token]
        layers: of element-wise work, over `loose` tokens.
        loose: tokens of them.
        mixtures: of experts, over `routed` tokens.
        routed: tokens of them.
        decoders: configs of whole decoders.
        decode, prefill: batch and context of their steps. [token]
        fused: rows up to which gate and up have their activation in the same kernel, where any kernels do.
        narrow: how many of the matrices, the first, are measured with FP8 weights too.
        span: time that the repeats of one measurement take together. [s]
    """

    matrices: tuple[Matrix, ...]
    tokens: tuple[int, ...]
    heads: tuple[tuple[int, int, int], ...]
    batches: tuple[int, ...]
    contexts: tuple[int, ...]
    prompts: tuple[tuple[int, int], ...]
    layers: tuple[Loose, ...]
    loose: tuple[int, ...]
    mixtures: tuple[Mixture, ...]
    routed: tuple[int, ...]
    decoders: tuple[Mapping[str, Any], ...]
    decode: tuple[tuple[int, int], ...]
    prefill: tuple[tuple[int, int], ...]
    fused: int = 64
    narrow: int = 6
    span: float = 0.06


def matrices_of(config: Mapping[str, Any]) -> tuple[Matrix, ...]:
    """The products of a layer of a decoder."""
    hidden, width, inner = config["hidden_size"], config["head_dim"], config["intermediate_size"]
    query, kv = config["num_attention_heads"] * width, config["num_key_value_heads"] * width
    return (
        Matrix(query + 2 * kv, hidden),
        Matrix(hidden, query),
        Matrix(2 * inner, hidden, gated=True),
        Matrix(hidden, inner),
    )


def loose_of(config: Mapping[str, Any]) -> Loose:
    """The sizes of a layer of a decoder."""
    names = ("hidden_size", "num_attention_heads", "num_key_value_heads", "head_dim", "intermediate_size")
    return Loose(*(config[name] for name in names))


#: of a graphics card or another accelerator
DEVICE: Final = Grid(
    matrices=(
        *matrices_of(NARROW),
        *matrices_of(WIDE),
        Matrix(4096, 3072),
        Matrix(3072, 3072),
        Matrix(20480, 3072, gated=True),
        Matrix(3072, 10240),
        Matrix(65536, 1280, last=True),
        Matrix(131072, 5120, last=True),
    ),
    tokens=(1, 16, 2048, 64, 512, 8192),
    heads=((10, 2, 128), (40, 8, 128), (16, 16, 128), (28, 4, 128)),
    batches=(1, 16, 64, 4),
    contexts=(1024, 8192, 3072),
    prompts=((1, 2048), (1, 512), (1, 8192), (1, 128), (1, 1024), (1, 4096), (8, 1024)),
    layers=(loose_of(NARROW), loose_of(WIDE), Loose(3072, 24, 8, 128, 10240)),
    loose=(1, 2048, 16, 8192, 64, 512),
    mixtures=(Mixture(64, 6, 2048, 1536), Mixture(32, 4, 3072, 3072), Mixture(128, 8, 1536, 1024)),
    routed=(1, 2048, 16, 64, 8192, 512),
    decoders=(NARROW, WIDE),
    decode=((1, 1024), (16, 1024), (64, 1024), (1, 8192), (16, 8192), (4, 4096)),
    prefill=((1, 128), (1, 2048), (1, 512), (1, 8192), (1, 4096)),
)
#: of a CPU: sizes that take milliseconds there
HOST: Final = Grid(
    matrices=(
        *matrices_of(SMALL),
        *matrices_of(SMALLER),
        Matrix(1024, 512),
        Matrix(512, 1024),
        Matrix(4096, 256, last=True),
        Matrix(4096, 128, last=True),
    ),
    tokens=(1, 64, 4, 256),
    heads=((4, 2, 64), (8, 8, 32), (8, 1, 64)),
    batches=(1, 8),
    contexts=(128, 1024),
    prompts=((1, 128), (1, 512), (2, 128)),
    layers=(loose_of(SMALL), loose_of(SMALLER)),
    loose=(1, 16, 128, 512),
    mixtures=(),
    routed=(),
    decoders=(SMALLER, SMALL),
    decode=((1, 128), (4, 128), (1, 1024), (8, 512)),
    prefill=((1, 64), (1, 256), (1, 512), (2, 128)),
    span=0.02,
)
