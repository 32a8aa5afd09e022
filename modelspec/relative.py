"""GQA with learned biases by distance, behind short convolutions over keys, values and both outputs (Inkling)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from roofcast.modelspec.errors import MalformedModelError, UnknownArchitectureError
from roofcast.modelspec.heads import window_of
from roofcast.modelspec.matrix import Matrix
from roofcast.modelspec.plan import HYBRID, HYBRID_SLIDING, SLIDING
from roofcast.modelspec.state import FP32, Kept, ReadsAll, fixed, per_token
from roofcast.modelspec.strictjson import quoted
from roofcast.modelspec.work import attended, causal_pairs

if TYPE_CHECKING:
    from roofcast.modelspec.config import Config
    from roofcast.modelspec.plan import Slot

SIDES: Final = 2  # keys and values; attention and feed-forward


@dataclass(frozen=True, slots=True)
class RelativeAttention(ReadsAll):
    """GQA whose scores have a learned bias by distance; keys, values and the layer's two outputs are convolved.

    Args:
        query_heads, kv_heads, head_dim: of the attention.
        hidden: width of the residual stream, which the convolutions after attention and feed-forward work on. [element]
        distance_width: width of a head's state that mixes the profiles of the bias, d_rel.
        extent: tokens back that the bias reaches, R. [token]
        conv_kernel: columns of the four convolutions, c. [token]
        window: keys a query sees at most; None is all. [token]
        gated: whether a gate as wide as the queries scales the output.
        token_sinks: whether each token has a sink a head, projected from it.
        dynamic: whether the weights of the convolutions over keys and values depend on the token.
        extra_parameters: norms, scales and learned queries of this layer's attention.
    """

    query_heads: int
    kv_heads: int
    head_dim: int
    hidden: int
    distance_width: int
    extent: int
    conv_kernel: int
    window: int | None = None
    gated: bool = False
    token_sinks: bool = False
    dynamic: bool = False
    extra_parameters: int = 0

    @property
    def label(self) -> str:
        """Convolved GQA."""
        return "convolved GQA"

    @property
    def published_kv_heads(self) -> int:
        """KV heads as the config states them."""
        return self.kv_heads

    @property
    def state(self) -> tuple[Kept, ...]:
        """Keys and values of every token or of the last W; inputs of the convolutions, (2 n_kv d + 2 h) c in fp32.

        >>> layer = RelativeAttention(64, 8, 128, 6144, 16, 1024, 4)  # Inkling
        >>> [part.elements for part in layer.state]
        [2048, 8192, 49152]
        """
        return (
            per_token(self.kv_heads, SIDES * self.head_dim, self.window),
            fixed(self.kv_heads, SIDES * self.head_dim * self.conv_kernel, FP32),
            fixed(1, SIDES * self.hidden * self.conv_kernel, FP32),
        )

    def parameters(self, hidden: int) -> int:
        """Projections of Q, K, V, distance states and output, gate and sinks, convolutions, profiles of the bias.

        h n_q d (2, 3 gated) + 2 h n_kv d + h n_q d_rel + h n_q sinks + (2 n_kv d + 2 h) c + 2 h n_kv c dynamic
        + d_rel R + extra. [parameter]

        >>> RelativeAttention(4, 2, 16, 64, 8, 32, 4).parameters(64)
        15360
        """
        queries, keys = self.query_heads * self.head_dim, self.kv_heads * self.head_dim
        heads = self.query_heads * (self.distance_width + self.token_sinks)
        projections = hidden * (queries * (2 + self.gated) + SIDES * keys + heads)
        convolutions = SIDES * (keys + self.hidden) * self.conv_kernel
        weights_of_token = SIDES * hidden * self.kv_heads * self.conv_kernel * self.dynamic
        return projections + convolutions + weights_of_token + self.distance_width * self.extent + self.extra_parameters

    def matrices(self, hidden: int) -> tuple[Matrix, ...]:
        """Q, K, V, distance states and output, gate, sinks, weights of the convolutions, and profiles of the bias.

        >>> [m.name for m in RelativeAttention(4, 2, 16, 64, 8, 32, 4).matrices(64)][3:]
        ['self_attn.r_proj', 'self_attn.o_proj', 'self_attn.rel_logits_proj']
        """
        heads, queries, keys = self.query_heads, self.query_heads * self.head_dim, self.kv_heads * self.head_dim
        weights = self.kv_heads * self.conv_kernel * self.dynamic
        rows = {"q_proj": queries, "k_proj": keys, "v_proj": keys, "r_proj": heads * self.distance_width}
        after = {"gate_proj": queries * self.gated, "sink_proj": heads * self.token_sinks}
        after |= {"k_proj.conv.weight_proj": weights, "v_proj.conv.weight_proj": weights}
        made = (
            *(Matrix(name, count, hidden) for name, count in rows.items()),
            Matrix("o_proj", hidden, queries),
            *(Matrix(name, count, hidden) for name, count in after.items()),
            Matrix("rel_logits_proj", self.distance_width, self.extent, linear=False),
        )
        return tuple(matrix.under("self_attn") for matrix in made if matrix.elements)

    def prefill_flops(self, tokens: float) -> float:
        """FLOP of Q K^T and P V over a causal prompt, 4 pairs n_q d, and of the bias, 2 n (n_q - 1) d_rel R. [FLOP]

        Every head reads the profiles of the bias, which 2 N counts once.

        >>> RelativeAttention(4, 2, 16, 64, 8, 32, 4).prefill_flops(100)
        1433600.0
        """
        return self._flops(causal_pairs(tokens, self.window), tokens)

    def decode_flops(self, context: float) -> float:
        """FLOP of q K^T and p V for one new token, 4 min(C, W) n_q d, and of the bias, 2 (n_q - 1) d_rel R. [FLOP]

        >>> RelativeAttention(4, 2, 16, 64, 8, 32, 4).decode_flops(100)  # 4 x 100 x 4 x 16 + 2 x 3 x 8 x 32
        27136
        """
        return self._flops(attended(context, self.window), 1)

    def _flops(self, pairs: float, tokens: float) -> float:
        bias = 2 * tokens * (self.query_heads - 1) * self.distance_width * self.extent
        return 4 * pairs * self.query_heads * self.head_dim + bias

    def splits(self, tp: int) -> bool:
        """Whether `tp` devices can share the heads: it divides them, and KV heads split or replicate evenly."""
        return self.query_heads % tp == 0 and (self.kv_heads % tp == 0 or tp % self.kv_heads == 0)


def read_relative(config: Config, slot: Slot, role: str) -> RelativeAttention:
    """One layer's: those named `hybrid_sliding` see a window and have heads of their own.

    Raises:
        UnknownArchitectureError: layers of another name, which the class would not convolve.
        MalformedModelError: sizes that cannot be, KV heads that do not divide the query heads.
    """
    if role not in (HYBRID, HYBRID_SLIDING):
        msg = f"model_type {quoted(config.model_type)} has {role} layers; roofcast knows hybrid and hybrid_sliding ones"
        raise UnknownArchitectureError(msg)
    slides = role == HYBRID_SLIDING
    own = config.as_role(SLIDING) if slides else config
    heads, kv_heads, head_dim = own.size("query_heads"), own.size("kv_heads"), own.size("head_dim")
    if heads % kv_heads:
        msg = f"{role} layers have {kv_heads} KV heads, which do not divide their {heads} query heads"
        raise MalformedModelError(msg)
    second = bool(config.trait_value("second_inkling"))
    distance = config.size("d_rel")
    hidden = config.size("hidden")
    clipped = heads * (head_dim + distance)  # scales of queries and of distance states
    residual = _residual_queries(hidden, slot.layer, full=not slides)
    return RelativeAttention(
        query_heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        hidden=hidden,
        distance_width=distance,
        extent=config.size("window") if slides else config.size("rel_extent"),
        conv_kernel=config.size("sconv_kernel"),
        window=window_of(config, SLIDING) if slides else None,
        gated=second,
        token_sinks=second,
        dynamic=second and not slides,
        extra_parameters=clipped + residual if second else 2 * head_dim,
    )


def _residual_queries(hidden: int, layer: int | None, *, full: bool) -> int:
    """Inkling 2: queries that gather the input from earlier blocks, h each; the first layer has nothing to gather.

    Full layers gather for Q, K and V apart, and have two norms more. [parameter]
    """
    inputs = 3 if full else 1
    return hidden * (inputs * (layer != 0) + inputs - 1)
