"""Deployments with constants of expected times: the project's own, or round ones that a test writes."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, Any, Final

import yaml

from roofcast.calculators.deployment import Deployment, Ready, prepare
from roofcast.calculators.expected.expectation import Expectation, expectation_for, expectation_of
from roofcast.calculators.roofline import Roofs, roofs_of
from roofcast.hwdb.lookup import find_accelerator
from roofcast.modelspec.formats import FORMATS
from roofcast.modelspec.sharding import Shards
from tests.checkpoints import catalogued

if TYPE_CHECKING:
    from pathlib import Path

    from roofcast.modelspec.model import Model

ONE: Final = Shards()
PROVENANCE: Final[dict[str, Any]] = {
    "fitted": "2026-11-30",
    "by": "a test",
    "source": "nothing was measured",
    "data": [{"file": "none.csv", "sha256": "0" * 64}],
}
# constants whose times can be worked out on paper
ROUND_FITS: Final[dict[str, dict[str, float]]] = {
    "gemm any 0.1": {"t0": 2e-6, "ec": 0.8, "em": 0.8},
    "moe any 0.1": {"t0": 2e-6, "ec": 0.8, "em": 0.8},
    "attn_decode any 0.2": {"t0": 5e-6, "ec": 0.5, "em": 0.5},
    "attn_prefill any 0.2": {"t0": 5e-6, "ec": 0.5, "em": 0.5},
    "elementwise any 0.3": {"t0": 1e-6, "em": 0.5},
    "collective all_reduce 0.1": {"t0": 3e-6, "em": 0.5},
    "collective all_gather 0.1": {"t0": 3e-6, "em": 0.5},
    "host decode 0.4": {"step": 100e-6, "device": 10e-6, "sequence": 1e-6},
    "host prefill 0.4": {"step": 200e-6, "launch": 30e-6},
    "step decode 0.05": {"gemm": 0.5, "parts": 0.5},
    "step prefill 0.05": {"sustained": 0.1, "parts": 0.5},
}
# no loss at all: expected times are then the roofline's with activations
PERFECT_FITS: Final[dict[str, dict[str, float]]] = {
    "gemm any 0": {},
    "moe any 0": {},
    "attn_decode any 0": {"t0": 0.0, "ec": 1.0, "em": 1.0},
    "attn_prefill any 0": {"t0": 0.0, "ec": 1.0, "em": 1.0},
    "elementwise any 0": {},
    **{
        f"collective {name} 0": {}
        for name in ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "point_to_point")
    },
    "host any 0": {},
    "step any 0": {},
}


def fit(name: str, constants: dict[str, float], **changes: Any) -> dict[str, Any]:
    """Return a fit of a file; `name` is its family, format and spread."""
    family, form, spread = name.split()
    return {"family": family, "format": form, "constants": constants, "spread": float(spread), "rows": 7, **changes}


def content(fits: dict[str, dict[str, float]], **changes: Any) -> dict[str, Any]:
    """Return what an efficiency file holds."""
    return {
        "schema": "roofcast.efficiency/1",
        "accelerator": "h200-sxm",
        "engine": "vllm",
        "fits": [fit(name, constants) for name, constants in fits.items()],
        "provenance": PROVENANCE,
        **changes,
    }


def written(path: Path, document: object) -> Path:
    """Write a file of constants, its folder too, and return it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    text = document if isinstance(document, str) else yaml.safe_dump(document, sort_keys=False)
    path.write_text(text, encoding="utf-8")
    return path


def expected_of(gpu: str, engine: str, file: Path | None = None) -> Expectation:
    """Return the constants that count on a GPU under an engine."""
    accelerator = find_accelerator(gpu).accelerator
    return expectation_of(accelerator, engine, roofs_of(accelerator, engine), file)


def deployed(model: Model, gpu: str, engine: str = "vllm", shards: Shards = ONE, **asked: Any) -> Ready:
    """Return a model on devices of so much memory that all fits, with the constants that count there.

    Args:
        model: any.
        gpu: on which.
        engine: under which.
        shards: over how many.
        asked: `kv` and `weights`, names of formats, and `file` of constants.
    """
    weights = FORMATS[asked["weights"]] if "weights" in asked else None
    accelerator = find_accelerator(gpu).accelerator
    kv = FORMATS[asked.get("kv", "bf16")]
    ready = prepare(model, Deployment(accelerator, kv, weights, shards, engine))
    return replace(ready, expectation=expectation_for(ready, asked.get("file")), capacity=1e18)


@cache
def known(name: str, gpu: str, engine: str = "vllm", shards: Shards = ONE) -> Ready:
    """Return a model of the catalogue with the project's own constants, prepared once."""
    return deployed(catalogued(name), gpu, engine, shards)


def on_roofs(ready: Ready, roofs: Roofs) -> Ready:
    """Return the same deployment, its constants held, under other roofs."""
    held = ready.expectation
    assert held is not None
    moved = Expectation(held.accelerator, held.engine, roofs, held.files, held.own, held.kernels, held.unlike)
    return replace(ready, roofs=roofs, expectation=moved)
