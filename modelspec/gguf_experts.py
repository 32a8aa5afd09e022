"""Experts of a GGUF file: how many, how wide, which are shared, and which layers have them, as the class says it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from roofcast.modelspec.errors import UnknownArchitectureError
from roofcast.modelspec.strictjson import quoted

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from roofcast.modelspec.gguf_facts import GgufFacts
    from roofcast.modelspec.gguf_names import ClassKeys

    Say = Callable[[frozenset[int], int], dict[str, Any] | None]

_ROUTER: Final = "ffn_gate_inp.weight"


def experts(facts: GgufFacts, keys: ClassKeys) -> dict[str, Any]:
    """Experts: how many, how wide, which are shared, and which layers have them."""
    count = facts.number("expert_count", 0)
    if not (keys.has("moe") and not keys.has("nested_experts")):
        return {}
    if not count:  # a dense model of a class that may have experts
        dense = facts.size("ffn_down.weight", -1) or facts.number("expert_shared_feed_forward_length")
        none = {"experts": 0, "shared_width": dense}
        return {keys.of(fact): value for fact, value in none.items() if fact in keys.family.needs}
    width = facts.number("expert_feed_forward_length") or facts.size("ffn_down_exps.weight", -1)
    found = {
        "experts": count,
        "top_k": facts.needed("expert_used_count"),
        "expert_width": width,
        "shared_experts": facts.number("expert_shared_count"),
        "shared_width": _shared_width(facts, width),
        "latent_width": facts.number("moe_latent_size"),
    }
    if width and not keys.of("expert_width"):  # its class calls that of dense layers another name, or has one for both
        dense = facts.size("ffn_down.weight", -1) or facts.number("feed_forward_length")
        found |= {"intermediate": width, "dense_width": dense}
    config = {key: value for fact, value in found.items() if (key := keys.of(fact)) and value is not None}
    return config | _sparse(facts, keys)


def _shared_width(facts: GgufFacts, width: int | None) -> int | None:
    """Width of all shared experts: as stated, of their matrix, or as many times the experts' width."""
    stated = facts.number("expert_shared_feed_forward_length") or facts.size("ffn_down_shexp.weight", -1)
    count = facts.number("expert_shared_count")
    return stated or (None if count is None or width is None else count * width)


def _sparse(facts: GgufFacts, keys: ClassKeys) -> dict[str, Any]:
    """Which layers have experts, as the class says it.

    Raises:
        UnknownArchitectureError: in a way that the class cannot.
    """
    count, sparse = facts.layers, _sparse_blocks(facts)
    if keys.family.separate:
        return {}
    for key, say in _SPARSE.items():
        said = say(sparse, count) if keys.reads(key) else None
        if said is not None:
            return said
    if len(sparse) == count:
        return {}
    msg = f"{facts.arch} has experts in {len(sparse)} of {count} layers; model_type {quoted(keys.model_type)} cannot"
    raise UnknownArchitectureError(msg)


def _sparse_blocks(facts: GgufFacts) -> frozenset[int]:
    """Layers with experts: those with a router, else all but the leading dense ones of every so many."""
    if facts.has(_ROUTER):
        return facts.blocks(_ROUTER)
    dense = facts.number("leading_dense_block_count", 0) or 0
    step = facts.number("interleave_moe_layer_step", 1) or 1
    return frozenset(layer for layer in range(dense, facts.layers) if (layer + 1) % step == 0)


def _after_first(sparse: frozenset[int], count: int) -> int | None:
    """How many first layers are dense, where all others are sparse."""
    first = count - len(sparse)
    return first if sparse == frozenset(range(first, count)) else None


def _first(key: str) -> Say:
    """Says how many first layers are dense."""

    def say(sparse: frozenset[int], count: int) -> dict[str, Any] | None:
        first = _after_first(sparse, count)
        return None if first is None else {key: first}

    return say


def _period(sparse: frozenset[int], count: int) -> tuple[int, int] | None:
    """Period and offset of layers that recur."""
    ordered = sorted(sparse)
    if not ordered:
        return None
    step = ordered[1] - ordered[0] if len(ordered) > 1 else count
    return (step, ordered[0]) if ordered == list(range(ordered[0], count, step)) and ordered[0] < step else None


def _as_period(sparse: frozenset[int], count: int) -> dict[str, Any] | None:
    found = _period(sparse, count)
    return found and {"expert_layer_period": found[0], "expert_layer_offset": found[1]}


def _as_interleave(sparse: frozenset[int], count: int) -> dict[str, Any] | None:
    found = _period(sparse, count)
    return {"interleave_moe_layer_step": found[0]} if found and found[1] == found[0] - 1 else None


def _as_range(sparse: frozenset[int], count: int) -> dict[str, Any] | None:
    ordered = sorted(sparse)
    step = ordered[1] - ordered[0] if len(ordered) > 1 else 1
    if not ordered or ordered != [n for n in range(ordered[0], count) if (n + 1) % step == 0]:
        return None
    return {"moe_layer_start_index": ordered[0], "moe_layer_interval": step, "moe_layer_end_index": count - 1}


# the first key that the class reads and that can say it
_SPARSE: Final[Mapping[str, Say]] = {
    "first_k_dense_replace": _first("first_k_dense_replace"),
    "num_dense_layers": _first("num_dense_layers"),
    "mlp_layer_types": lambda sparse, count: {
        "mlp_layer_types": ["sparse" if layer in sparse else "dense" for layer in range(count)]
    },
    "moe_layers_enum": lambda sparse, _: {"moe_layers_enum": ",".join(map(str, sorted(sparse)))},
    "decoder_sparse_step": lambda sparse, count: {
        "decoder_sparse_step": 1, "mlp_only_layers": [layer for layer in range(count) if layer not in sparse]
    },
    "expert_layer_period": _as_period,
    "moe_layer_start_index": _as_range,
    "interleave_moe_layer_step": _as_interleave,
    "moe_layer_freq": lambda sparse, count: {"moe_layer_freq": [int(layer in sparse) for layer in range(count)]},
}  # fmt: skip
