"""The worked example of CONTRIBUTING.md is real: its class and its rows answer a config."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from roofcast.modelspec import keys, kinds
from roofcast.modelspec.families import all_families
from roofcast.modelspec.family import Family
from roofcast.modelspec.implied import implied_bytes
from roofcast.modelspec.kinds import KINDS, Kind
from roofcast.modelspec.matrix import inventory
from roofcast.modelspec.quantization import read_packing
from roofcast.modelspec.spec import build_spec

TEXT = (Path(__file__).parent.parent / "CONTRIBUTING.md").read_text()
RETNET = {
    "model_type": "retnet", "hidden_size": 512, "num_hidden_layers": 6, "vocab_size": 1000, "intermediate_size": 1024,
    "retention_heads": 4, "retention_value_width": 1024, "layer_types": ["linear_attention"] * 6,
}  # fmt: skip


def example(monkeypatch: pytest.MonkeyPatch) -> None:
    """Run the example's blocks as if they stood in the package."""
    blocks = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
    rows: dict[str, dict[str, Any]] = {"KINDS": dict(KINDS), "FAMILIES": dict(all_families())}
    scope: dict[str, Any] = {"__name__": __name__, "Kind": Kind, "Family": Family, "_LINEAR": frozenset({"linear"})}
    scope |= {"KINDS": rows["KINDS"], "MIXED_FAMILIES": rows["FAMILIES"]}
    for block in blocks:
        exec(block, scope)  # noqa: S102 - our own document
    monkeypatch.setattr(kinds, "KINDS", rows["KINDS"])
    monkeypatch.setattr("roofcast.modelspec.config.find_family", rows["FAMILIES"].get)
    monkeypatch.setattr(
        "roofcast.modelspec.keys.UNDERSTOOD", keys.UNDERSTOOD | {"retention_heads", "retention_value_width"}
    )


def test_the_worked_example_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Four heads of 128 x 256 a layer in fp32; 512 x 4 x (2 x 128 + 3 x 256) weights of mixing a layer."""
    example(monkeypatch)

    spec = build_spec(RETNET)

    assert [(part.elements, part.format, count) for part, count in spec.kept.items()] == [(4 * 128 * 256, "fp32", 6)]
    assert spec.components["attention"] == 6 * 512 * 4 * (2 * 128 + 3 * 256)
    assert spec.attention_label == "retention"
    assert inventory(spec).rest["attention"] == 0
    packing = read_packing({**RETNET, "quantization_config": {"quant_method": "mxfp4"}}, 6)
    assert packing is not None
    assert sum(part.elements for part in implied_bytes(spec, packing).parts) == spec.parameters


def test_without_it_the_config_is_refused() -> None:
    """The example adds something: the package as it is does not know it."""
    assert "retention" not in KINDS
    with pytest.raises(Exception, match="retnet"):
        build_spec(RETNET)
