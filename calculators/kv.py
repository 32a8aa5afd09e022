"""The answer of `kv`: what one token and one sequence cost in cache, and what the weights take."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from roofcast.calculators.answer import Remarks, remarks
from roofcast.calculators.cache import cache_bytes, kv_bytes_per_token, state_bytes, whole, window_bytes
from roofcast.calculators.paging import PAGE, page_tokens, reserved_bytes
from roofcast.modelspec.cross import CrossAttention

if TYPE_CHECKING:
    from collections.abc import Sequence

    from roofcast.modelspec.formats import Format
    from roofcast.modelspec.model import Model

DEFAULT_CONTEXTS: Final = (4096, 32768)


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


def table_notes(rows: Sequence[KvModel]) -> Remarks:
    """How the numbers of several rows are meant: where weights are from, how windows, MLA and pages read."""
    names = [row.model for row in rows if row.provenance.get("weight_bytes") == "config"]
    windows = any(row.window_bytes for row in rows)
    return remarks(
        notes=[
            f"weights counted from the config, not read from files: {', '.join(names)}" if names else None,
            "KiB/token is the part that grows without end; layers with a window stop at the window's cap"
            if windows
            else None,
            "MLA keeps one latent a token for all heads; its q/kv are the heads it expands to"
            if any("MLA" in row.attention for row in rows)
            else None,
            page_note(
                windows=windows,
                states=any((row.page_tokens or PAGE) > PAGE for row in rows),
                more=any(row.reserved_bytes != row.cache_bytes for row in rows),
            ),
        ]
    )


def page_note(*, windows: bool, states: bool, more: bool) -> str:
    """What the reserved bytes are those of."""
    if not more:
        return f"an engine with pages of {PAGE} tokens reserves just as much at these contexts"
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


def contexts_of(model: Model, asked: Sequence[int] | None) -> tuple[int, ...]:
    """The contexts to answer for: those asked, else 4,096 and 32,768 as far as the model goes, and its maximum."""
    if asked:
        return tuple(dict.fromkeys(asked))
    most = model.spec.max_context
    return (*(c for c in DEFAULT_CONTEXTS if most is None or c < most), *([most] if most else []))


def kv_model(
    model: Model, *, weights: Format | None, kv: Format, contexts: Sequence[int] | None
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
        "architecture": "config",
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


def model_remarks(model: Model, weights: Format | None, contexts: Sequence[int] | None) -> Remarks:
    """What was assumed of a model, whichever command asks; contexts asked beyond its maximum are warned of."""
    parameters, weight = model.parameters, model.weight_bytes(weights)
    problem = model.files_problem
    given = (f"{model.name}: {line}" for line in model.spec.assumptions)
    against = (f"{model.name}: {line}" for line in model.spec.warnings)
    return remarks(
        [_fallback(model, problem) if problem else None, *given, parameters.assumption, weight.assumption],
        [
            parameters.warning,
            weight.warning,
            *against,
            _no_draft(model),
            _no_encoder(model),
            _beyond(model, contexts or ()),
        ],
        [_which_count(model), _drafting(model)],
    )


def _no_draft(model: Model) -> str | None:
    """Where multi-token prediction was asked for and there is none."""
    spec = model.spec
    return f"{model.name} has no multi-token-prediction layers" if spec.drafting and not spec.draft else None


def _no_encoder(model: Model) -> str | None:
    """Where an encoder's tokens were given and no layer attends to one."""
    mixers = (mixer for layer in model.spec.layers for mixer in layer.mixers)
    if model.encoder_tokens is None or any(isinstance(mixer, CrossAttention) for mixer in mixers):
        return None
    return f"{model.name} has no layer that attends to an encoder or to images: --encoder-tokens changes nothing"


def _drafting(model: Model) -> str | None:
    """Which layers of multi-token prediction are counted."""
    spec = model.spec
    if not (spec.drafting and spec.draft):
        return None
    first, last = len(spec.layers), len(spec.active_layers) - 1
    which = f"layers {first}-{last}" if last > first else f"layer {first}"
    kinds = ", ".join(dict.fromkeys(layer.label for layer in spec.draft if layer.label)) or "no attention"
    return (
        f"{model.name}: multi-token prediction counts too (--mtp): {which} ({kinds}), "
        f"{_billions(spec.draft_parameters)} parameters"
    )


def _beyond(model: Model, contexts: Sequence[int]) -> str | None:
    most = model.spec.max_context
    if most is None or max(contexts, default=0) <= most:
        return None
    return f"{model.name}: context {max(contexts):,} is beyond the {most:,} that its config allows"


def _which_count(model: Model) -> str | None:
    """Where files hold more than the decoder, both counts and which one the weights are."""
    held, parameters = model.parameters_in_files, model.parameters.value
    if held is None or parameters is None or held <= parameters:
        return None
    spec = model.spec
    if spec.drafting:  # then both are counted
        return None
    second_head = spec.tied and held - parameters == spec.vocab * spec.hidden
    if not (second_head or spec.mtp_layers):
        return None
    more = "a second copy of the tied head" if second_head else "multi-token prediction"
    return (
        f"{model.name}: weights are the {_billions(held)} parameters of the published files, {more} included; "
        f"the decoder alone has {_billions(parameters)}"
    )


def _billions(parameters: float) -> str:
    return f"{parameters / 1e9:.1f}B" if parameters >= 1e10 else f"{parameters / 1e9:.3f}B"  # noqa: PLR2004


def _fallback(model: Model, problem: str) -> str:
    """What was counted instead of headers that could not be read."""
    instead = "from the Hub's summary" if model.files else "from its config"
    return f"{model.name}: parameters and weights are counted {instead}: {problem}"
