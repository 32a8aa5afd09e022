"""Experts of single classes: attention whose queries are routed (JetMoE), and experts of one neuron (Doge)."""

from __future__ import annotations

from dataclasses import dataclass
from math import isqrt
from typing import TYPE_CHECKING, ClassVar, Final, Self

from roofcast.modelspec.errors import MalformedModelError
from roofcast.modelspec.experts import dense_layer, moe_layer
from roofcast.modelspec.ffn import DenseFeedForward, MoeFeedForward
from roofcast.modelspec.matrix import Matrix
from roofcast.modelspec.state import Kept, ReadsAll, per_token
from roofcast.modelspec.work import causal_pairs

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from roofcast.modelspec.config import Config


@dataclass(frozen=True, slots=True)
class RoutedAttention(ReadsAll):
    """Mixture of attention heads (MoA): k of E experts project a token's queries and output, all share K and V.

    The experts' weights are not its own: they stand with the layer's other experts (`attention_experts`).

    Args:
        kv_heads, head_dim: heads of K and V, and their width.
        top_k: experts that work on a token, each with as many query heads as there are KV heads.
    """

    kv_heads: int
    head_dim: int
    top_k: int

    label: ClassVar[str] = "MoA"
    window: ClassVar[int | None] = None

    @property
    def query_heads(self) -> int:
        """Query heads that work on a token: k n_kv."""
        return self.top_k * self.kv_heads

    @property
    def published_kv_heads(self) -> int:
        """KV heads as the config states them."""
        return self.kv_heads

    @property
    def state(self) -> tuple[Kept, ...]:
        """Keys and values of every token, 2 n_kv d; how many experts there are does not matter. [element]

        >>> RoutedAttention(16, 128, 2).state[0].elements  # JetMoE-8B
        4096
        """
        return (per_token(self.kv_heads, 2 * self.head_dim),)

    def parameters(self, hidden: int) -> int:
        """Weights of K and V alone: 2 h n_kv d. [parameter]

        Source: Shen et al. 2024, arXiv:2404.07413, section 2.2.

        >>> RoutedAttention(16, 128, 2).parameters(2048)
        8388608
        """
        return 2 * hidden * self.kv_heads * self.head_dim

    def matrices(self, hidden: int) -> tuple[Matrix, ...]:
        """Keys and values, which one matrix makes.

        >>> RoutedAttention(16, 128, 2).matrices(2048)[0].rows
        4096
        """
        return (Matrix("self_attn.kv_proj", 2 * self.kv_heads * self.head_dim, hidden),)

    def prefill_flops(self, tokens: float) -> float:
        """FLOP of Q K^T and P V over a causal prompt: 4 pairs k n_kv d. [FLOP]

        >>> RoutedAttention(16, 128, 2).prefill_flops(4096) / 1e9
        137.438953472
        """
        return 4 * causal_pairs(tokens) * self.query_heads * self.head_dim

    def decode_flops(self, context: float) -> float:
        """FLOP of q K^T and p V for one new token: 4 C k n_kv d. [FLOP]

        >>> RoutedAttention(16, 128, 2).decode_flops(4096) / 1e6
        67.108864
        """
        return 4 * context * self.query_heads * self.head_dim

    def splits(self, tp: int) -> bool:
        """Whether `tp` devices can share the heads: it divides those of K and V, which every expert has."""
        return self.kv_heads % tp == 0

    @classmethod
    def read(cls, config: Config) -> Self:
        """The kind as a config states it.

        Raises:
            MalformedModelError: sizes absent.
        """
        return cls(config.size("kv_heads"), config.size("head_dim"), config.size("top_k"))


def attention_experts(config: Config) -> MoeFeedForward:
    """What MoA's experts weigh: a query and an output projection each, h by n_kv d, and the router."""
    width = config.size("kv_heads") * config.size("head_dim")
    projections = DenseFeedForward(config.size("hidden"), width, gated=False)
    return MoeFeedForward(projections, config.size("experts"), config.size("top_k"))


def _with_attention(config: Config) -> tuple[MoeFeedForward, ...]:
    """JetMoE: as many experts of attention as of the feed-forward."""
    return moe_layer(config), attention_experts(config)


def _neurons(config: Config) -> tuple[MoeFeedForward, ...]:
    """Doge: E experts of one neuron beside a dense feed-forward; two sets of sqrt(E) keys route, 2 h floor(sqrt(E))."""
    hidden, experts, top_k = config.size("hidden"), config.size("experts"), config.size("top_k")
    if top_k > experts:
        msg = f"{config.key_of('top_k')} is {top_k}, more than the {experts} of {config.key_of('experts')}"
        raise MalformedModelError(msg)
    neuron, router = DenseFeedForward(hidden, 1, gated=False), 2 * hidden * isqrt(experts)
    return (MoeFeedForward(neuron, experts, top_k, dense_layer(config, None), router_parameters=router),)


# the trait `routed` of a class -> the feed-forwards of a sparse layer
ROUTED: Final[Mapping[str, Callable[[Config], tuple[MoeFeedForward, ...]]]] = {
    "attention": _with_attention,
    "neurons": _neurons,
}
