"""The answer of `model`: every architecture fact with its provenance, the layer map, parameters by component."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from roofcast.calculators.answer import Remarks, remarks
from roofcast.calculators.cache import (
    cache_bytes,
    kv_bytes_per_token,
    state_bytes,
    whole,
    window_bytes,
)
from roofcast.calculators.experts import DEFAULT_BATCHES, Experts, experts_of
from roofcast.calculators.kv import OWN_WINDOWS, page_note
from roofcast.calculators.paging import PAGE, page_tokens, reserved_bytes
from roofcast.calculators.remarks import contexts_of, model_remarks
from roofcast.calculators.stored import (
    ImpliedPart,
    StoredComponent,
    implied_by_component,
    implied_parts,
    requested_by_component,
    requested_by_type,
    stored_by_component,
)
from roofcast.modelspec.cached import entry_bytes, format_of
from roofcast.modelspec.config import listed
from roofcast.modelspec.formats import FORMATS
from roofcast.modelspec.latent import LatentAttention

if TYPE_CHECKING:
    from collections.abc import Sequence

    from roofcast.modelspec.formats import Format
    from roofcast.modelspec.layers import Layer
    from roofcast.modelspec.model import Model
    from roofcast.modelspec.requested import Requested
    from roofcast.modelspec.spec import ModelSpec
    from roofcast.modelspec.state import Kept


MOST_TYPES: Final = 4  # ways of storing that the fact spells out
# facts that only some models have; the others say nothing of them
OF_SOME: Final = frozenset({"keys_not_read", "cache_as_gqa_groups", "towers", "multi_token_prediction_parameters"})


@dataclass(frozen=True, slots=True)
class Fact:
    """One fact and where it is from."""

    name: str
    """What it is."""
    value: str | float | bool | None
    """Its value, null where it is not known."""
    provenance: str | None
    """header, config or assumed; asked of what an option set; null with the value."""


@dataclass(frozen=True, slots=True)
class State:
    """One number of the state that a layer keeps of a sequence."""

    bytes: float
    """Bytes; of the growing part, those of one token. [B]"""
    format: str
    """Format of its elements; joined with + where parts differ."""


@dataclass(frozen=True, slots=True)
class LayerRun:
    """Layers in a row that are alike."""

    first: int
    """Number of the first, from 0."""
    last: int
    """Number of the last."""
    draft: bool
    """Whether they are of multi-token prediction, beyond the decoder (--mtp)."""
    attention: str | None
    """Kind of what mixes tokens, joined with & where there are several; null where they only feed forward."""
    query_heads: int | None
    """Query heads, or heads of the recurrence; of the mixer with KV heads where there are several."""
    kv_heads: int | None
    """KV heads, 0 of a recurrence; for MLA the query heads, as published."""
    window: int | None
    """Keys a query sees at most; null is all. [token]"""
    feed_forwards: list[str]
    """Dense or experts, with their widths; empty where they only mix."""
    attention_parameters: int
    """Parameters of one layer's attention or other mixers."""
    feed_forward_parameters: int
    """Parameters of one layer's feed-forwards."""
    token_state: State | None
    """What every further token adds; null where nothing grows. [B/token]"""
    window_state: State | None
    """What a window caps, once full; null without."""
    fixed_state: State | None
    """What is there from the first token on; null without."""


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
    stored_components: list[StoredComponent] | None
    """What the files hold, by component; null where the names of their tensors are not known."""
    implied_components: dict[str, float] | None
    """Component -> bytes that the config's quantisation implies; null where it states none or does not tell. [B]"""
    implied_parts: list[ImpliedPart] | None
    """The same with each way of storing apart; null with it."""
    requested_components: dict[str, float] | None
    """Component -> bytes in the format that --weights asks for; null without it, or where they cannot be told. [B]"""
    requested_types: dict[str, int] | None
    """ggml type -> parameters in the mix that --weights asks for, such as q4_k_m; null of other formats."""
    kv_format: str
    """Format of the cache."""
    kv_bytes_per_token: float
    """Bytes every further token adds to the cache; window layers and fixed states are not in it. [B/token]"""
    window_bytes: float
    """Bytes of one sequence's window and chunked layers once full. [B]"""
    state_bytes: float
    """Bytes of fixed recurrent and convolution state, and of an encoder's keys and values, of one sequence. [B]"""
    cache_bytes: dict[str, float]
    """Context -> bytes of one sequence, at least. [B]"""
    reserved_bytes: dict[str, float]
    """Context -> bytes that an engine with pages sets aside, windows held whole (vLLM V1 without its hybrid cache
    manager). [B]"""
    page_tokens: int | None
    """Tokens of such a page; null where no layer keeps keys and values. [token]"""
    experts: Experts | None
    """Mixtures of experts, and what a batch reads of them; null of a dense model."""


def describe(
    model: Model,
    *,
    weights: Requested | None,
    kv: Format,
    contexts: Sequence[int] | None,
    batches: Sequence[int] = DEFAULT_BATCHES,
) -> tuple[ModelResult, Remarks]:
    """Answers `model`.

    Args:
        model: resolved.
        weights: format to count the weights in; None is as stored.
        kv: format of the cache.
        contexts: asked for; None is the default. [token]
        batches: tokens of a step, for the experts that it reads. [token]
    """
    spec, files = model.spec, model.files
    answered = contexts_of(model, contexts)
    result = ModelResult(
        model=model.name,
        source=model.source,
        facts=_facts(model, weights),
        layers=_runs(spec, kv),
        parameters_by_component=spec.components,
        stored_elements=dict(files.elements) if files else None,
        stored_bytes=files.bytes if files else None,
        stored_components=stored_by_component(model),
        implied_components=implied_by_component(model),
        implied_parts=implied_parts(model),
        requested_components=requested_by_component(model, weights),
        requested_types=requested_by_type(model, weights),
        kv_format=kv.name,
        kv_bytes_per_token=whole(kv_bytes_per_token(spec, kv)),
        window_bytes=whole(window_bytes(spec, kv)),
        state_bytes=whole(state_bytes(spec, kv)),
        cache_bytes={str(c): whole(cache_bytes(spec, kv, c)) for c in answered},
        reserved_bytes={str(c): whole(reserved_bytes(spec, kv, c)) for c in answered},
        page_tokens=page_tokens(spec, kv),
        experts=experts_of(model, weights, batches),
    )
    note = page_note(
        windows=bool(result.window_bytes) and not OWN_WINDOWS.intersection(spec.attention_label.split("+")),
        states=(result.page_tokens or PAGE) > PAGE,
        more=result.reserved_bytes != result.cache_bytes,
        pages=result.page_tokens is not None,
    )
    return result, model_remarks(model, weights, contexts) + remarks(notes=[note])


def _facts(model: Model, weights: Requested | None) -> list[Fact]:
    spec = model.spec
    parameters, weight = model.parameters, model.weight_bytes(weights)
    counted, held, facts = parameters.value, model.parameters_in_files, model.facts
    rows: list[tuple[str, str | float | bool | None, str | None]] = [
        ("model_type", spec.model_type or None, facts),
        ("attention", spec.attention_label, facts),
        ("layers", len(spec.layers), facts),
        ("hidden_size", spec.hidden, facts),
        ("vocab_size", spec.vocab, facts),
        ("tied_embeddings", spec.tied, facts),
        ("max_context", spec.max_context, facts),
        ("stated_dtype", spec.dtype, facts),
        ("quantization", _quantization(model), facts),
        ("towers", _towers(spec), facts),
        ("multi_token_prediction_layers", spec.mtp_layers, facts),
        ("multi_token_prediction_parameters", spec.draft_parameters if spec.draft else None, facts),
        ("cache_as_gqa_groups", gqa_groups(spec), facts),
        ("parameters", counted, parameters.provenance),
        ("active_parameters", model.active_parameters, parameters.provenance),
        ("active_non_embedding_parameters", None if spec.uncounted else spec.non_embedding_parameters, facts),
        ("parameters_in_files", held, "header"),
        ("keys_not_read", listed(spec.unread) if spec.unread else None, facts),
        ("weight_format", *_weight_format(model, weights)),
        ("weight_bytes", None if weight.value is None else whole(weight.value), weight.provenance),
    ]
    known = [row for row in rows if row[0] not in OF_SOME or row[1] is not None]
    return [Fact(name, value, None if value is None else provenance) for name, value, provenance in known]


def _weight_format(model: Model, weights: Requested | None) -> tuple[str, str]:
    """The format that weights are counted in, and who says so."""
    if weights is not None:
        return weights.name, "asked"
    return "as stored", model.weight_bytes(None).provenance or model.facts


def _quantization(model: Model) -> str | None:
    """How weights are stored: the method and what it makes of them, or the types of a GGUF file; None where plainly."""
    if model.facts == "header" and model.files:
        return f"GGUF: {', '.join(list(model.files.elements)[:MOST_TYPES])}"
    method = model.spec.quantization
    if method is None or model.implied is None:
        return method
    packed: Counter[str] = Counter()
    for part in model.implied.parts:
        packed[part.stored] += part.elements * (part.stored not in FORMATS)
    said = "; ".join(stored for stored, n in packed.most_common(MOST_TYPES) if n)
    return f"{method}: {said}" if said and not said.startswith(method) else said or method


def _towers(spec: ModelSpec) -> str | None:
    """What stands beside the decoder, None where nothing does."""
    if spec.unknown_towers:
        return "not known"
    return ", ".join(tower.name for tower in spec.towers if not tower.name.endswith(" projector")) or None


def gqa_groups(spec: ModelSpec) -> float | None:
    """Groups of a GQA with equal heads that would cache as much as MLA: (d_c + d_rope + d_index) / (2 d_v). [-]

    Of the first attention, its sparse index included where it has one; None where that is no MLA.

    Source: DeepSeek-V2, arXiv:2405.04434, table 1.

    >>> from roofcast.modelspec.latent import LatentAttention
    >>> (512 + 64) / (2 * LatentAttention(128, 512, 1536, 128, 64, 128).value_head_dim)
    2.25
    """
    lead = spec.lead_mixer
    if not isinstance(lead, LatentAttention):
        return None
    return sum(part.elements for part in lead.state) / (2 * lead.value_head_dim)


def _runs(spec: ModelSpec, kv: Format) -> list[LayerRun]:
    """Runs of the decoder's layers and, where they are in use, those of multi-token prediction after them."""
    drafted = replace(spec, layers=spec.draft).layer_map if spec.drafting else ()
    runs, first = [], 0
    for draft, (count, layer) in (*((False, run) for run in spec.layer_map), *((True, run) for run in drafted)):
        lead = next((mixer for mixer in layer.mixers if mixer.published_kv_heads), next(iter(layer.mixers), None))
        runs.append(
            LayerRun(
                first=first,
                last=first + count - 1,
                draft=draft,
                attention=layer.label or None,
                query_heads=lead.query_heads if lead else None,
                kv_heads=lead.published_kv_heads if lead else None,
                window=lead.window if lead else None,
                feed_forwards=[part.label for part in layer.feed_forwards],
                attention_parameters=sum(mixer.parameters(spec.hidden) for mixer in layer.mixers),
                feed_forward_parameters=sum(part.parameters for part in layer.feed_forwards),
                **_states(layer, kv),
            )
        )
        first += count
    return runs


def _states(layer: Layer, kv: Format) -> dict[str, State | None]:
    """The three numbers of a layer's state: a token, a window once full, fixed."""
    return {
        "token_state": _state([(part, 1 / part.per) for part in layer.state if part.grows], kv),
        "window_state": _state([(p, p.entries(p.cap)) for p in layer.state if p.cap is not None], kv),
        "fixed_state": _state([(part, 1) for part in layer.state if part.fixed], kv),
    }


def _state(parts: Sequence[tuple[Kept, float]], kv: Format) -> State | None:
    """Bytes of so many entries of some parts, with their formats; None of no parts."""
    if not parts:
        return None
    names = dict.fromkeys(format_of(part, kv).name for part, _ in parts)
    return State(whole(sum(entry_bytes(part, kv) * entries for part, entries in parts)), "+".join(names))
