"""A plain model as an engine quantises it while it loads."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from roofcast.modelspec.implied import implied_bytes
from roofcast.modelspec.quantization import read_packing

if TYPE_CHECKING:
    from collections.abc import Mapping

    from roofcast.modelspec.model import Model

# method -> what a config would state that stores weights so
ON_LOAD: Final[Mapping[str, Mapping[str, Any]]] = {
    "fp8": {"quant_method": "fp8", "activation_scheme": "dynamic"},
    "bitsandbytes": {"quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_quant_type": "nf4"},
}


def requantized(model: Model, method: str) -> Model:
    """The model with its linear layers quantised on load; embedding, head and norms stay as they are.

    Args:
        model: not quantised itself.
        method: fp8 or bitsandbytes.

    Raises:
        UndeterminedModelError: its matrices are not known one by one.
    """
    block = ON_LOAD[method]
    spec = replace(model.spec, quantization=method)
    packing = read_packing({**model.config, "quantization_config": dict(block)}, len(spec.layers))
    implied = implied_bytes(spec, packing) if packing else None
    return replace(model, spec=spec, implied=implied, files=None, stored=(), parameters_in_files=None)
