"""Mixtures of experts: how many there are, how many work, and how many a batch reads."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from roofcast.calculators.cache import whole
from roofcast.calculators.stored import stored_by_component
from roofcast.modelspec.errors import UndeterminedModelError
from roofcast.modelspec.ffn import MoeFeedForward
from roofcast.modelspec.formats import FORMATS, Format

if TYPE_CHECKING:
    from collections.abc import Sequence

    from roofcast.modelspec.ggml_mix import Mix
    from roofcast.modelspec.model import Model
    from roofcast.modelspec.requested import Requested

DEFAULT_BATCHES: Final = (1, 16, 64)


@dataclass(frozen=True, slots=True)
class Experts:
    """Mixtures of experts of a model."""

    experts: int
    """Routed experts of a layer, E; of most layers where they differ."""
    top_k: int
    """Experts that work on one token, k."""
    idle_experts: int
    """Experts of the router that pass a token on unchanged."""
    shared_width: int | None
    """Width of the experts that all tokens share, together; null without."""
    layers: int
    """Layers with experts."""
    active_parameters: int | None
    """Parameters of the model that work on one token, embeddings included; null where not known."""
    format: str | None
    """Format of the experts' weights; null where it is not known."""
    expected_experts: dict[str, float]
    """Tokens of a step -> distinct experts of a layer that they read, E (1 - (1 - k/E)^T). [expert]"""
    expected_bytes: dict[str, float] | None
    """Tokens of a step -> bytes of these experts in all layers; null where the format is not known. [B]"""


def experts_of(model: Model, weights: Requested | None, batches: Sequence[int]) -> Experts | None:
    """Experts of a model and what batches of tokens read of them; None of a dense one."""
    spec = model.spec
    parts = (part for layer in spec.active_layers for part in layer.feed_forwards)
    mixtures = Counter(part for part in parts if isinstance(part, MoeFeedForward))
    if not mixtures:
        return None
    lead = mixtures.most_common(1)[0][0]
    stored = _stored(model, weights)
    read = {
        str(tokens): sum(n * mix.distinct_experts(tokens) * mix.expert.parameters for mix, n in mixtures.items())
        for tokens in batches
    }
    return Experts(
        experts=lead.experts,
        top_k=lead.top_k,
        idle_experts=lead.idle,
        shared_width=lead.shared.intermediate if lead.shared else None,
        layers=sum(
            any(isinstance(part, MoeFeedForward) for part in layer.feed_forwards) for layer in spec.active_layers
        ),
        active_parameters=model.active_parameters,
        format=stored[0] if stored else None,
        expected_experts={str(tokens): whole(lead.distinct_experts(tokens)) for tokens in batches},
        expected_bytes={key: whole(n * stored[1]) for key, n in read.items()} if stored else None,
    )


def _stored(model: Model, weights: Requested | None) -> tuple[str, float] | None:
    """How the experts are stored and the bytes of one of their elements, scales included; None where not known. [B]"""
    spec = model.spec
    if isinstance(weights, Format):
        return weights.name, weights.bytes_per_element
    if weights is not None:
        return _mixed(model, weights)
    parts = [part for part in model.implied.parts if part.component == "experts"] if model.implied else []
    if parts:
        held = sum(part.elements for part in parts)
        most = max(parts, key=lambda part: part.elements)
        return most.stored, sum(p.bytes + p.beside for p in parts) / held
    read = next((part for part in stored_by_component(model) or () if part.component == "experts"), None)
    if read and spec.quantization is None:
        return next(iter(read.elements)).lower(), read.bytes / spec.components["experts"]
    stored = FORMATS[spec.dtype] if spec.quantization is None and spec.dtype else None
    return (stored.name, stored.bytes_per_element) if stored else None


def _mixed(model: Model, mix: Mix) -> tuple[str, float] | None:
    spec = model.spec
    try:
        made = model.as_mix(mix.name)
    except UndeterminedModelError:
        return None
    return mix.name, made.components["experts"] / spec.components["experts"]
