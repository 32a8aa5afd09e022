"""Which layers of a model the profiler builds: recognised by what they have; what it leaves out is said, what it cannot is refused."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from roofcast.modelspec.attention import GroupedAttention
from roofcast.modelspec.ffn import DenseFeedForward, MoeFeedForward
from roofcast.modelspec.latent import LatentAttention
from roofcast.profiler.errors import UnavailableError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from roofcast.modelspec.layers import Layer
    from roofcast.modelspec.spec import ModelSpec

    #: whether a part has something, and what that is called
    Trait = tuple[Callable[[Any], bool], str]

PAIR: Final = 2  # norms of a layer that mixes and feeds forward; norms of a head, of queries and of keys


class UnbuildableError(UnavailableError):
    """A model with a layer that the profiler has no kernels for."""


@dataclass(frozen=True, slots=True)
class Planned:
    """One half of a layer, with a norm before it.

    Args:
        layer: its number.
        part: what mixes tokens, or feeds forward.
    """

    layer: int
    part: GroupedAttention | LatentAttention | DenseFeedForward | MoeFeedForward


@dataclass(frozen=True, slots=True)
class Plan:
    """What is built of a model.

    Args:
        parts: halves of layers, in order.
        assumptions: what is left out or done in another way, a line each.
    """

    parts: tuple[Planned, ...]
    assumptions: tuple[str, ...]


_GATED: Final = "a gate on the attention's output"
# class -> what keeps a part of it from being built
REFUSED: Final[dict[type, tuple[Trait, ...]]] = {
    GroupedAttention: (
        (lambda a: not a.stores, "attention over an earlier layer's cache"),
        (lambda a: a.index is not None, "attention with a sparse index"),
        (lambda a: a.doubled_query, "a gate beside the queries"),
        (lambda a: a.gate_rows > 0, _GATED),
        (lambda a: not a.value_projection, "attention whose values are its keys"),
        (lambda a: a.query_heads % a.kv_heads != 0, "query heads that KV heads do not divide"),
    ),
    LatentAttention: (
        (lambda a: not a.stores, "attention over an earlier layer's latent"),
        (lambda a: a.index is not None, "latent attention with a sparse index"),
        (lambda a: a.selected is not None, "latent attention over what an earlier layer's index selects"),
        (lambda a: a.window is not None, "latent attention in a window"),
        (lambda a: a.gate_rows > 0 or a.gated_query, _GATED),
    ),
    DenseFeedForward: (),
    MoeFeedForward: (
        (lambda f: f.outer is not None, "experts narrower than the residual stream"),
        (lambda f: f.idle > 0, "experts that pass tokens on unchanged"),
        (lambda f: f.router_parameters is not None, "a router that is not one matrix"),
        (lambda f: not f.expert.gated, "routed experts without gate"),
    ),
}
# class -> what is left out of a part of it
LEFT_OUT: Final[dict[type, tuple[Trait, ...]]] = {
    GroupedAttention: (
        (
            lambda a: a.qk_norm_parameters not in {0, PAIR * a.head_dim},
            "norms of queries and keys that are no RMS norm over a head are left out",
        ),
        (lambda a: a.extra_parameters > 0, "sinks and other small weights of attention are left out"),
        (
            lambda a: a.window is not None,
            "the cache of windowed layers is as long as the others', and a window of it is read",
        ),
    ),
    LatentAttention: ((lambda a: a.extra_parameters > 0, "sinks and other small weights of attention are left out"),),
    DenseFeedForward: (),
    MoeFeedForward: (
        (lambda f: f.router_bias > 0, "the router's correction bias is left out"),
        (lambda f: f.groups != (1, 1), "experts are chosen among all, not group by group"),
        (lambda f: f.expert.bias, "biases of routed experts are left out"),
    ),
}
# what keeps a layer from being built, and what is left out of it
LAYER_REFUSED: Final[tuple[Trait, ...]] = (
    (lambda layer: layer.passes > 1, "layers that tokens pass more than once"),
    (lambda layer: len(layer.mixers) > 1, "several mixers in a layer"),
    (lambda layer: len(layer.feed_forwards) > 1, "several feed-forwards in a layer"),
    (lambda layer: bool(layer.other_matrices), "matrices that are neither attention nor feed-forward"),
)
# likewise of a whole model
MODEL_REFUSED: Final[tuple[Trait, ...]] = (
    (lambda spec: bool(spec.other_matrices), "matrices outside the layers"),
    (lambda spec: not spec.layers, "no layers"),
)
MODEL_LEFT_OUT: Final[tuple[Trait, ...]] = (
    (
        lambda spec: bool(spec.towers) or bool(spec.unknown_towers),
        "what stands beside the decoder (encoders, projectors) is not built",
    ),
    (lambda spec: spec.position_parameters > 0, "positions are rotary, in place of a learned table"),
    (lambda spec: spec.table_parameters > 0, "tables beside the embedding are left out"),
    (lambda spec: spec.head_bias_parameters > 0, "the bias of the head is left out"),
    (lambda spec: bool(spec.mtp_layers), "multi-token-prediction layers are not built"),
)


def plan_layers(spec: ModelSpec) -> Plan:
    """What of a model is built, in order; allocates nothing and needs no torch.

    Raises:
        UnbuildableError: a layer of a kind that is not built, with its number and kind.

    >>> from roofcast.modelspec.known import find_known
    >>> from roofcast.modelspec.spec import build_spec
    >>> plan = plan_layers(build_spec(find_known("llama-3.1-8b").config))
    >>> len(plan.parts), plan.assumptions
    (64, ())
    """
    for has, what in MODEL_REFUSED:
        if has(spec):
            raise UnbuildableError(f"the profiler cannot build this model: it has {what}")
    said: dict[str, None] = {text: None for has, text in MODEL_LEFT_OUT if has(spec)}
    checked: set[Layer] = set()
    for number, layer in enumerate(spec.layers):
        if layer not in checked:
            _refuse(number, layer)
            said.update(dict.fromkeys(_left_out(layer, spec.hidden)))
            checked.add(layer)
    parts = tuple(Planned(n, part) for n, layer in enumerate(spec.layers) for part in _halves(layer))
    return Plan(parts, tuple(said))


def _halves(layer: Layer) -> tuple[Any, ...]:
    """What mixes tokens in a layer, and what feeds forward."""
    return (*layer.mixers, *layer.feed_forwards)


def _refuse(number: int, layer: Layer) -> None:
    """Refuses a layer that is not built.

    Raises:
        UnbuildableError: it is not.
    """
    found = [what for has, what in LAYER_REFUSED if has(layer)]
    for part in _halves(layer):
        other: tuple[Trait, ...] = ((lambda _: True, f"{part.label} ({type(part).__name__})"),)
        found += [what for has, what in REFUSED.get(type(part), other) if has(part)]
    if found:
        kinds = ", ".join(dict.fromkeys(found))
        known = "MHA, GQA, MQA and MLA, dense and routed feed-forwards"
        raise UnbuildableError(f"the profiler cannot build layer {number}: {kinds}; it builds {known}")


def _left_out(layer: Layer, hidden: int) -> Iterator[str]:
    for part in _halves(layer):
        yield from (text for has, text in LEFT_OUT[type(part)] if has(part))
    halves = len(_halves(layer))
    if layer.norm_parameters > halves * hidden:
        yield "norms are RMS norms before attention and feed-forward; biases and further norms are left out"
    if layer.norm_parameters < halves * hidden:
        yield "attention and feed-forward run one after the other, an RMS norm before each"
    if layer.other_parameters:
        yield "small weights of layers beside attention and feed-forward are left out"
