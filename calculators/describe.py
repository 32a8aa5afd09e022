"""The answer of `model`: every architecture fact with its provenance, the layer map, parameters by component."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from roofcast.calculators.cache import cache_bytes, kv_bytes_per_token, whole, window_bytes
from roofcast.calculators.kv import contexts_of, model_remarks
from roofcast.modelspec.attention import LatentAttention

if TYPE_CHECKING:
    from collections.abc import Sequence

    from roofcast.calculators.answer import Remarks
    from roofcast.modelspec.formats import Format
    from roofcast.modelspec.model import Model
    from roofcast.modelspec.spec import Layer, ModelSpec


@dataclass(frozen=True, slots=True)
class Fact:
    """One fact and where it is from."""

    name: str
    """What it is."""
    value: str | float | bool | None
    """Its value, null where it is not known."""
    provenance: str | None
    """header, config or assumed; null with the value."""


@dataclass(frozen=True, slots=True)
class LayerRun:
    """Layers in a row that are alike."""

    first: int
    """Number of the first, from 0."""
    last: int
    """Number of the last."""
    attention: str
    """MHA, GQA, MQA or MLA."""
    query_heads: int
    """Query heads."""
    kv_heads: int
    """KV heads; for MLA the query heads, as published."""
    window: int | None
    """Keys a query sees at most; null is all. [token]"""
    feed_forward: str
    """Dense, or experts."""
    attention_parameters: int
    """Parameters of one layer's attention."""
    feed_forward_parameters: int
    """Parameters of one layer's feed-forward."""
    kv_elements_per_token: int
    """Elements one layer caches a token."""


@dataclass(frozen=True, slots=True)
class ModelResult:
    """The result of `model`."""

    model: str
    """Name as asked for."""
    source: str
    """Where it was read from."""
    facts: list[Fact]
    """Every fact of the architecture."""
    layers: list[LayerRun]
    """The layer map."""
    parameters_by_component: dict[str, int]
    """Component -> parameters, as the reference implementation counts."""
    stored_elements: dict[str, int] | None
    """Safetensors dtype -> elements in the files; null without headers."""
    stored_bytes: float | None
    """Bytes of all tensors in the files; null without headers. [B]"""
    kv_bytes_per_token: float
    """Bytes every further token adds to the cache. [B/token]"""
    window_bytes: float
    """Bytes of one sequence's window layers once full. [B]"""
    state_bytes: float
    """Bytes of fixed state of one sequence. [B]"""
    cache_bytes: dict[str, float]
    """Context -> bytes of one sequence. [B]"""


def describe(
    model: Model, *, weights: Format | None, kv: Format, contexts: Sequence[int] | None
) -> tuple[ModelResult, Remarks]:
    """Answers `model`."""
    spec, files = model.spec, model.files
    result = ModelResult(
        model=model.name,
        source=model.source,
        facts=_facts(model, weights),
        layers=_runs(spec.layer_map, spec.hidden),
        parameters_by_component=spec.components,
        stored_elements=dict(files.elements) if files else None,
        stored_bytes=files.bytes if files else None,
        kv_bytes_per_token=whole(kv_bytes_per_token(spec, kv)),
        window_bytes=whole(window_bytes(spec, kv)),
        state_bytes=0,
        cache_bytes={str(c): whole(cache_bytes(spec, kv, c)) for c in contexts_of(model, contexts)},
    )
    return result, model_remarks(model, weights, contexts)


def _facts(model: Model, weights: Format | None) -> list[Fact]:
    spec = model.spec
    parameters, weight = model.parameters, model.weight_bytes(weights)
    counted, held = parameters.value, model.parameters_in_files
    rows: list[tuple[str, str | float | bool | None, str | None]] = [
        ("model_type", spec.model_type or None, "config"),
        ("attention", spec.attention_label, "config"),
        ("layers", len(spec.layers), "config"),
        ("hidden_size", spec.hidden, "config"),
        ("vocab_size", spec.vocab, "config"),
        ("tied_embeddings", spec.tied, "config"),
        ("max_context", spec.max_context, "config"),
        ("stated_dtype", spec.dtype, "config"),
        ("quantization", spec.quantization, "config"),
        ("multi_token_prediction_layers", spec.mtp_layers, "config"),
        ("cache_as_gqa_groups", gqa_groups(spec), "config"),
        ("parameters", counted, parameters.provenance),
        ("active_parameters", model.active_parameters, parameters.provenance),
        ("active_non_embedding_parameters", spec.non_embedding_parameters, "config"),
        ("parameters_in_files", held, "header"),
        ("weight_bytes", None if weight.value is None else whole(weight.value), weight.provenance),
    ]
    known = [row for row in rows if row[0] != "cache_as_gqa_groups" or row[1] is not None]
    return [Fact(name, value, None if value is None else provenance) for name, value, provenance in known]


def gqa_groups(spec: ModelSpec) -> float | None:
    """Groups of a GQA with equal heads that would cache as much as MLA: (d_c + d_rope) / (2 d_v). [-]

    None where the first layer is no MLA.

    Source: DeepSeek-V2, arXiv:2405.04434, table 1.

    >>> from roofcast.modelspec.attention import LatentAttention
    >>> (512 + 64) / (2 * LatentAttention(128, 512, 1536, 128, 64, 128).value_head_dim)
    2.25
    """
    first = spec.layers[0].attention
    if not isinstance(first, LatentAttention):
        return None
    return first.elements_per_token / (2 * first.value_head_dim)


def _runs(layer_map: Sequence[tuple[int, Layer]], hidden: int) -> list[LayerRun]:
    runs, first = [], 0
    for count, layer in layer_map:
        attention, feed_forward = layer.attention, layer.feed_forward
        runs.append(
            LayerRun(
                first=first,
                last=first + count - 1,
                attention=attention.label,
                query_heads=attention.query_heads,
                kv_heads=attention.published_kv_heads,
                window=attention.window,
                feed_forward=feed_forward.label,
                attention_parameters=attention.parameters(hidden),
                feed_forward_parameters=feed_forward.parameters,
                kv_elements_per_token=attention.elements_per_token,
            )
        )
        first += count
    return runs
