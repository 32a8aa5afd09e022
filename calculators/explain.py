"""The formula behind every printed term: its function's docstring, equation and source included."""

from __future__ import annotations

import inspect
from importlib import import_module
from typing import Final

from roofcast.calculators.errors import UsageError
from roofcast.modelspec.nearest import nearest

# term as printed -> module and name of the function that counts it
TERMS: Final[dict[str, tuple[str, str]]] = {
    "kv_bytes_per_token": ("roofcast.calculators.cache", "kv_bytes_per_token"),
    "window_bytes": ("roofcast.calculators.cache", "window_bytes"),
    "state_bytes": ("roofcast.calculators.cache", "state_bytes"),
    "cache_bytes": ("roofcast.calculators.cache", "cache_bytes"),
    "reserved_bytes": ("roofcast.calculators.paging", "reserved_bytes"),
    "page_tokens": ("roofcast.calculators.paging", "page_tokens"),
    "expected_experts": ("roofcast.modelspec.ffn", "MoeFeedForward.distinct_experts"),
    "parameters": ("roofcast.modelspec.spec", "ModelSpec.parameters"),
    "active_parameters": ("roofcast.modelspec.spec", "ModelSpec.active_parameters"),
    "non_embedding_parameters": ("roofcast.modelspec.spec", "ModelSpec.non_embedding_parameters"),
    "parameters_in_files": ("roofcast.modelspec.model", "count_in_files"),
    "stored_components": ("roofcast.modelspec.components", "stored_components"),
    "implied_components": ("roofcast.calculators.stored", "implied_by_component"),
    "requested_components": ("roofcast.calculators.stored", "requested_by_component"),
    "kv_format": ("roofcast.calculators.cache_format", "cache_format"),
    "weight_bytes": ("roofcast.modelspec.model", "Model.weight_bytes"),
    "budget_bytes": ("roofcast.calculators.budget", "budget_bytes"),
    "kv_bytes": ("roofcast.calculators.budget", "kv_bytes"),
    "kv_bytes_per_sequence": ("roofcast.calculators.cache", "cache_bytes"),
    "max_sequences": ("roofcast.calculators.budget", "max_sequences"),
    "kv_tokens": ("roofcast.calculators.budget", "kv_tokens"),
    "prefill_flops": ("roofcast.calculators.flops", "prefill_flops"),
    "attention_flops": ("roofcast.calculators.flops", "attention_flops"),
    "attention_share": ("roofcast.calculators.flops", "attention_share"),
    "crossover_tokens": ("roofcast.calculators.flops", "crossover_tokens"),
    "ridge": ("roofcast.hwdb.accelerator", "Accelerator.ridge"),
    "bytes_per_element": ("roofcast.modelspec.formats", "Format.bytes_per_element"),
}


def explain(term: str) -> str:
    """The docstring of the function that counts a term.

    Raises:
        UsageError: no such term.
    """
    if term not in TERMS:
        near = nearest(term, TERMS)
        hint = f"; nearest: {', '.join(near)}" if near else ""
        raise UsageError(f"nothing to explain under {term!r}{hint}; terms: {', '.join(TERMS)}")
    module, path = TERMS[term]
    target: object = import_module(module)
    for name in path.split("."):
        target = inspect.getattr_static(target, name)
    text = inspect.getdoc(target)
    if not text:
        raise UsageError("formulas stand in docstrings, which python -OO strips; run without it")
    for rest in (">>>", "Raises:"):  # the doctest is for the tests, the errors for those who call it
        text = text.partition(rest)[0].rstrip()
    return f"{term}: {text}\n\nCounted by {module}.{path}"
