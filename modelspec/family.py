"""What a model class does and its config.json does not say: the traits that one row of the families table states."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

Trait = bool | str


# a class that many commands load and nobody compares or prints: leaving that out halves what making it costs
@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Family:
    """Traits of one model class.

    Args:
        norm: `rms` (h weights), `layer` (h weights and h biases), `plain` (h weights of a LayerNorm), `none`.
        layer_norms: norms of width h in a layer that has both a mixer and a feed-forward; half of them in others.
        qkv_bias, output_bias, mlp_bias, head_bias: biases of those projections.
        gated: whether the feed-forward has a gate projection.
        qk_norm: `` (none), `head` (d each), `full` (n d each), `head_bias` (d weights and d biases each).
        qk_norm_key: config key that switches it; empty is always.
        positions: rows of the learned position table beyond the context; None is no table.
        embedding_norm: whether a norm follows the embedding.
        tied: whether input and output embedding are one where the config does not say.
        shared_gate: whether a gate scales the shared expert.
        router_bias: whether the router's correction bias counts as a parameter.
        expert_bias: whether routed experts have biases on their projections.
        sinks, sliding_sinks: whether full and sliding layers have a learned sink a query head.
        gate: `` (none), `element` (a gate as wide as the queries, in one projection with them), `separate` (in one of
            its own, without biases), `head` (one for each query head), `query_latent` (MLA: with them, of their latent).
        gate_key: config key that switches it; empty is always.
        separate: whether a layer is a mixer or a feed-forward, never both.
        dense_beside: whether a dense feed-forward stands beside the experts of a layer.
        ffn_shape: row of `WIDTHS` that turns the stated feed-forward width into the real one; empty is as stated.
        router: row of `ROUTERS` that counts a router which is not one matrix; empty is one matrix.
        always_shared: whether there is one shared expert of the experts' width though no key says so.
        extras: row of `EXTRAS` that counts weights which no other trait tells; empty is none.
        final_norm: whether a norm follows the last layer.
        single_norm_key: config key that, when true, leaves one norm of width h in a layer.
        ffn_ratio: feed-forward width over h where no key gives it.
        ffn_divisor: how many times the real feed-forward width the key states.
        defaults: values of keys that a published file may leave out.
        has: features beside MHA, GQA and MQA whose keys the class understands: names in `FEATURE_KEYS` and `KINDS`.
        reads: keys that its published files state beside those that the reference implementation reads.
        ignores: keys of other features that its files carry and its code does not read.
        own_head_dim: whether the class reads a head width of its own.
        names: facts that the class states under keys of its own, the first that is present counts.
        constants: what a kind's code fixes for this class, by name.
        needs: facts that the class would fill in with the sizes of one particular model: their absence is an error.
    """

    norm: str = "rms"
    layer_norms: int = 2
    qkv_bias: Trait = False
    output_bias: Trait = False
    mlp_bias: Trait = False
    head_bias: Trait = False
    gated: bool = True
    qk_norm: str = ""
    qk_norm_key: str = ""
    positions: int | None = None
    embedding_norm: bool = False
    tied: bool = False
    shared_gate: bool = False
    router_bias: bool = False
    expert_bias: Trait = False
    sinks: Trait = False
    sliding_sinks: Trait = False
    gate: str = ""
    gate_key: str = ""
    separate: bool = False
    dense_beside: bool = False
    ffn_shape: str = ""
    router: str = ""
    always_shared: bool = False
    extras: str = ""
    final_norm: bool = True
    single_norm_key: str = ""
    ffn_ratio: int | None = None
    ffn_divisor: int = 1
    defaults: Mapping[str, object] = field(default_factory=dict)
    has: tuple[str, ...] = ()
    reads: tuple[str, ...] = ()
    ignores: tuple[str, ...] = ()
    own_head_dim: bool = True
    names: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    constants: Mapping[str, object] = field(default_factory=dict)
    needs: tuple[str, ...] = ()
