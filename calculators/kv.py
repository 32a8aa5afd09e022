"""The answer of `kv`: what one token and one sequence cost in cache, and what the weights take."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from roofcast.calculators.answer import Remarks, remarks
from roofcast.calculators.cache import cache_bytes, kv_bytes_per_token, state_bytes, whole, window_bytes
from roofcast.calculators.paging import PAGE, page_tokens, reserved_bytes
from roofcast.calculators.remarks import contexts_of, model_remarks

if TYPE_CHECKING:
    from collections.abc import Sequence

    from roofcast.modelspec.formats import Format
    from roofcast.modelspec.model import Model
    from roofcast.modelspec.requested import Requested

OWN_WINDOWS: Final = frozenset({"CSA", "HCA", "SWA"})  # kinds whose window is theirs, and not a layer's


@dataclass(frozen=True, slots=True)
class KvModel:
    """One model's row."""

    model: str
    """Name as asked for: catalogue name, repo id or folder."""
    attention: str
    """MHA, GQA, MQA, MLA or another kind; joined with + where layers differ, with & where one layer has several."""
    layers: int
    """Decoder layers."""
    query_heads: int | None
    """Query heads of the first layer with KV heads, else heads of the recurrence; null without attention."""
    kv_heads: int | None
    """Its KV heads, 0 where there are none; for MLA the query heads, as published; null without attention."""
    kv_bytes_per_token: float
    """Bytes every further token adds to the cache; window layers and fixed states are not in it. [B/token]"""
    window_bytes: float
    """Bytes of the window and chunked layers of one sequence once full. [B]"""
    state_bytes: float
    """Bytes of fixed recurrent and convolution state, and of an encoder's keys and values, of one sequence. [B]"""
    cache_bytes: dict[str, float]
    """Context in tokens -> bytes of one sequence, at least. [B]"""
    reserved_bytes: dict[str, float]
    """Context in tokens -> bytes that an engine with pages sets aside, windows held whole (vLLM V1 without its hybrid
    cache manager). [B]"""
    kv_format: str
    """Format of the cache."""
    page_tokens: int | None
    """Tokens of such a page; null where no layer keeps keys and values. [token]"""
    parameters: int | None
    """Parameters as the reference implementation counts: tied tensors once, no multi-token prediction."""
    parameters_in_files: int | None
    """Parameters the published files hold; null without headers."""
    active_parameters: int | None
    """Parameters that work on one token, embeddings included."""
    weight_bytes: float | None
    """Bytes of the weights as stored, or in the format asked for all parameters in the files. [B]"""
    max_context: int | None
    """Tokens that the config allows."""
    provenance: dict[str, str]
    """Where each number is from: header, config or assumed."""
    source: str
    """Where the model was read from."""


@dataclass(frozen=True, slots=True)
class KvResult:
    """The result of `kv`."""

    models: list[KvModel]
    """One row a model, in the order asked."""


def cache_note(rows: Sequence[KvModel], said: str) -> Remarks:
    """In which format the caches are, and what says so."""
    formats = dict.fromkeys(row.kv_format for row in rows)
    if len(formats) == 1:
        return remarks(notes=[f"KV cache in {next(iter(formats))} ({said})"])
    each = (f"{name}: {', '.join(row.model for row in rows if row.kv_format == name)}" for name in formats)
    return remarks(notes=[f"KV cache in {'; '.join(each)} ({said})"])


def table_notes(rows: Sequence[KvModel]) -> Remarks:
    """How the numbers of several rows are meant: where weights are from, how windows, MLA and pages read."""
    names = [row.model for row in rows if row.provenance.get("weight_bytes") == "config"]
    windows = any(row.window_bytes and not OWN_WINDOWS.intersection(row.attention.split("+")) for row in rows)
    return remarks(
        notes=[
            f"weights counted from the config, not read from files: {', '.join(names)}" if names else None,
            "KiB/token is the part that grows without end; layers with a window stop at the window's cap"
            if any(row.window_bytes for row in rows)
            else None,
            "MLA keeps one latent a token for all heads; its q/kv are the heads it expands to"
            if any("MLA" in row.attention for row in rows)
            else None,
            page_note(
                windows=windows,
                states=any((row.page_tokens or PAGE) > PAGE for row in rows),
                more=any(row.reserved_bytes != row.cache_bytes for row in rows),
                pages=any(row.page_tokens for row in rows),
            ),
        ]
    )


def page_note(*, windows: bool, states: bool, more: bool, pages: bool) -> str:
    """What the reserved bytes are those of; nothing where nothing is held in pages."""
    if not more:
        return f"an engine with pages of {PAGE} tokens reserves just as much at these contexts" if pages else ""
    parts = [
        f"reserved: whole pages of {PAGE} tokens",
        "pages grown until one holds a recurrent layer's state" if states else "",
        "all tokens in window layers too" if windows else "",
    ]
    manager = (
        " without its hybrid cache manager; with it a window layer takes window - 1 + batched tokens, by the engine's "
        "options"
    )
    return f"{', '.join(part for part in parts if part)} (vLLM V1{manager if windows else ''})"


def kv_model(
    model: Model, *, weights: Requested | None, kv: Format, contexts: Sequence[int] | None
) -> tuple[KvModel, Remarks]:
    """Answers `kv` for one model.

    Args:
        model: resolved.
        weights: format to count the weights in; None is as stored.
        kv: format of the cache.
        contexts: asked for; None is the default. [token]
    """
    spec = model.spec
    parameters, weight = model.parameters, model.weight_bytes(weights)
    counted = None if parameters.value is None else int(parameters.value)
    lead = spec.lead_mixer
    answered = contexts_of(model, contexts)
    provenance = {
        "architecture": model.facts,
        "parameters": parameters.provenance,
        "parameters_in_files": None if model.parameters_in_files is None else "header",
        "weight_bytes": weight.provenance,
    }
    row = KvModel(
        model=model.name,
        attention=spec.attention_label,
        layers=len(spec.layers),
        query_heads=lead.query_heads if lead else None,
        kv_heads=lead.published_kv_heads if lead else None,
        kv_bytes_per_token=whole(kv_bytes_per_token(spec, kv)),
        window_bytes=whole(window_bytes(spec, kv)),
        state_bytes=whole(state_bytes(spec, kv)),
        cache_bytes={str(context): whole(cache_bytes(spec, kv, context)) for context in answered},
        reserved_bytes={str(context): whole(reserved_bytes(spec, kv, context)) for context in answered},
        kv_format=kv.name,
        page_tokens=page_tokens(spec, kv),
        parameters=counted,
        parameters_in_files=model.parameters_in_files,
        active_parameters=model.active_parameters,
        weight_bytes=None if weight.value is None else whole(weight.value),
        max_context=spec.max_context,
        provenance={key: value for key, value in provenance.items() if value},
        source=model.source,
    )
    return row, model_remarks(model, weights, contexts)
