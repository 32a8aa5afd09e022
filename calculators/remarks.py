"""What every command says of a model beside its numbers: assumptions, warnings, which count is which."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from roofcast.calculators.answer import Remarks, remarks
from roofcast.modelspec.formats import Format

if TYPE_CHECKING:
    from collections.abc import Sequence

    from roofcast.modelspec.model import Model
    from roofcast.modelspec.requested import Requested

SIXTEEN: Final = 16  # bits
DEFAULT_CONTEXTS: Final = (4096, 32768)


def contexts_of(model: Model, asked: Sequence[int] | None) -> tuple[int, ...]:
    """The contexts to answer for: those asked, else 4,096 and 32,768 as far as the model goes, and its maximum."""
    if asked:
        return tuple(dict.fromkeys(asked))
    most = model.spec.max_context
    return (*(c for c in DEFAULT_CONTEXTS if most is None or c < most), *([most] if most else []))


def model_remarks(
    model: Model, weights: Requested | None, contexts: Sequence[int] | None, *, files: bool = True
) -> Remarks:
    """What was assumed of a model, whichever command asks; contexts asked beyond its maximum are warned of.

    Args:
        model: asked of.
        weights: format asked for; None is as stored.
        contexts: asked for.
        files: whether all that its files hold is counted; an engine loads what it runs.
    """
    parameters, weight = model.parameters, model.weight_bytes(weights)
    problem = model.files_problem
    given = (f"{model.name}: {line}" for line in model.spec.assumptions)
    against = (f"{model.name}: {line}" for line in model.spec.warnings)
    implied = model.implied if weights is None and model.files is None else None
    packed = (f"{model.name}: {line}" for line in implied.assumptions) if implied else ()
    return remarks(
        [_fallback(model, problem) if problem else None, *given, parameters.assumption, weight.assumption, *packed],
        [
            parameters.warning,
            weight.warning,
            *_by_component(model),
            _narrow(weights),
            _expanded(model),
            f"{model.name}: {model.left_out[0]}, a projector beside it, is not in these bytes"
            if model.left_out
            else None,
            *against,
            _no_draft(model),
            _no_encoder(model),
            _beyond(model, contexts or ()),
        ],
        [
            _which_count(model) if files and (weights is None or isinstance(weights, Format)) else None,
            _drafting(model),
            _mixed_heads(model),
            _looped(model),
        ],
    )


def _narrow(weights: Requested | None) -> str | None:
    """Where all parameters are counted in a narrow format, which no checkpoint stores all of its own in."""
    if not isinstance(weights, Format) or weights.bits >= SIXTEEN:
        return None
    return f"--weights {weights.name} is of every parameter; checkpoints keep embedding, head and norms in 16 bits"


def _expanded(model: Model) -> str | None:
    """Where llama.cpp cannot keep the latent: older GGUF files of MLA have its expansion in one tensor."""
    if model.facts != "header" or model.files is None:
        return None
    from roofcast.modelspec.latent import LatentAttention  # noqa: PLC0415 - few models are GGUF files

    latent = next((m for layer in model.spec.layers for m in layer.mixers if isinstance(m, LatentAttention)), None)
    if latent is None:
        return None
    parts = {tensor.name.rpartition("attn_")[2] for tensor in model.files.tensors}
    if "kv_b.weight" not in parts or "k_b.weight" in parts:
        return None
    width = latent.query_heads * (latent.head_dim + latent.value_head_dim) * len(model.spec.layers)
    return (
        f"{model.name}: MLA's expansion is one tensor in it (attn_kv_b), so that llama.cpp keeps whole keys and "
        f"values, {2 * width / 1024:,.0f} KiB a token in 16 bits"
    )


def _by_component(model: Model) -> Sequence[str]:
    """Components whose bytes in the files are not those that the config implies."""
    if model.implied is None or model.files is None or not model.files.tensors:
        return ()
    from roofcast.calculators.stored import disagreements  # noqa: PLC0415 - few models are read by tensor

    return disagreements(model)


def _no_draft(model: Model) -> str | None:
    """Where multi-token prediction was asked for and there is none."""
    spec = model.spec
    return (
        f"{model.name}: its config names no multi-token-prediction layers" if spec.drafting and not spec.draft else None
    )


def _no_encoder(model: Model) -> str | None:
    """Where an encoder's tokens were given and no layer attends to one."""
    mixers = (mixer for layer in model.spec.layers for mixer in layer.mixers)
    if model.encoder_tokens is None or any(hasattr(mixer, "encoder_tokens") for mixer in mixers):
        return None
    return f"{model.name}: no layer attends to an encoder or to images; --encoder-tokens changes nothing"


def _mixed_heads(model: Model) -> str | None:
    """Where layers have other heads than those that the tables show."""
    spec = model.spec
    shown = spec.lead_mixer
    if shown is None:
        return None
    pairs = dict.fromkeys(
        (mixer.query_heads, mixer.published_kv_heads)
        for layer in spec.layers
        for mixer in layer.mixers
        if mixer.published_kv_heads
    )
    others = [f"{query}/{kv}" for query, kv in pairs if (query, kv) != (shown.query_heads, shown.published_kv_heads)]
    return f"{model.name}: other layers have q/kv heads {', '.join(others)}" if others else None


def _looped(model: Model) -> str | None:
    """Which layers a token passes more than once."""
    passes = {layer: entry.passes for layer, entry in enumerate(model.spec.layers) if entry.passes > 1}
    if not passes:
        return None
    times = ", ".join(dict.fromkeys(map(str, passes.values())))
    which = f"{len(passes)} layers, {min(passes)} to {max(passes)}"
    return f"{model.name}: a token passes {which}, {times} times: their weights count once, their state in every pass"


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
    second_head = spec.tied and held - parameters == spec.vocab * spec.hidden
    if not (second_head or spec.mtp_layers):
        return None
    more = "a second copy of the tied head" if second_head else "multi-token prediction"
    return (
        f"{model.name}: weights are the {_billions(held)} parameters of the published files, {more} included; "
        f"{'with its draft layers the decoder' if spec.drafting else 'the decoder alone'} has {_billions(parameters)}"
    )


def _billions(parameters: float) -> str:
    return f"{parameters / 1e9:.1f}B" if parameters >= 1e10 else f"{parameters / 1e9:.3f}B"  # noqa: PLR2004


def _fallback(model: Model, problem: str) -> str:
    """What was counted instead of headers that could not be read."""
    instead = "from the Hub's summary" if model.files else "from its config"
    return f"{model.name}: parameters and weights are counted {instead}: {problem}"
