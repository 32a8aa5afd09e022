"""Weight files and models of small configs, for tests that hold the two against each other."""

from __future__ import annotations

from typing import Any

from roofcast.modelspec.model import Model, load_model
from roofcast.modelspec.source import Checkpoint
from roofcast.modelspec.weights import Tensor, WeightFiles, collect
from tests.model_configs import LLAMA, is_one_line, llama_tensors


def files(*more: Tensor, without: str = "\0", config: dict[str, Any] = LLAMA) -> WeightFiles:
    """Collect the tensors of the small Llama, without those whose name has a text, and with more."""
    kept = tuple(tensor for tensor in llama_tensors(config) if without not in tensor.name)
    return collect({"model.safetensors": kept + more}, "x")


def model(config: dict[str, Any], weights: WeightFiles | None = None, *, scales: int = 0) -> Model:
    """Load a checkpoint made of a config and weight files."""
    return load_model(Checkpoint("tiny", config, weights, None, "a test", scales))


def difference(config: dict[str, Any], weights: WeightFiles) -> str:
    """Return the warning on parameters, which must be there."""
    warning = model(config, weights).parameters.warning
    assert warning is not None
    assert is_one_line(warning)
    return warning
