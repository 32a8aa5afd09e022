"""Mixtures of experts: how many there are, how many work, and how many a batch reads."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from roofcast.calculators.cache import whole
from roofcast.modelspec.ffn import MoeFeedForward
from roofcast.modelspec.formats import FORMATS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from roofcast.modelspec.formats import Format
    from roofcast.modelspec.model import Model

DEFAULT_BATCHES: Final = (1, 16, 64)
# quantisation methods that store the experts, whatever they do with the rest, in this format
EXPERT_METHODS: Final[dict[str, str]] = {"mxfp4": "mxfp4"}


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


def experts_of(model: Model, weights: Format | None, batches: Sequence[int]) -> Experts | None:
    """Experts of a model and what batches of tokens read of them; None of a dense one."""
    spec = model.spec
    parts = (part for layer in spec.active_layers for part in layer.feed_forwards)
    mixtures = Counter(part for part in parts if isinstance(part, MoeFeedForward))
    if not mixtures:
        return None
    lead = mixtures.most_common(1)[0][0]
    stored = _format(model, weights)
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
        format=stored.name if stored else None,
        expected_experts={str(tokens): whole(lead.distinct_experts(tokens)) for tokens in batches},
        expected_bytes={key: whole(n * stored.bytes_per_element) for key, n in read.items()} if stored else None,
    )


def _format(model: Model, weights: Format | None) -> Format | None:
    """Format of the experts: the one asked for, else as stored where that is stated for them."""
    spec = model.spec
    if weights is not None:
        return weights
    name = spec.dtype if spec.quantization is None else EXPERT_METHODS.get(spec.quantization)
    return FORMATS[name] if name else None
