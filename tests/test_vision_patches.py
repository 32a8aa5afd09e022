"""Towers of EXAONE 4.5 and Gemma 4's unified model against the reference implementation's counts, and by hand."""

from __future__ import annotations

from typing import Any

import pytest

from roofcast.modelspec.errors import MalformedModelError, UnknownArchitectureError
from roofcast.modelspec.tower import find_wrapper
from tests.model_configs import is_one_line

# the published block: 28 layers of 2048 with 32 heads of 64, 8 of keys and values
EXAONE = {
    "depth": 28, "hidden_size": 2048, "intermediate_size": 5120, "num_heads": 32, "num_key_value_heads": 8,
    "out_hidden_size": 5120,
}  # fmt: skip


def towers(model_type: str, config: dict[str, Any], hidden: int) -> dict[str, int]:
    """Return what a wrapper holds beside its text model, by name."""
    reader = find_wrapper(model_type)
    assert reader is not None
    return {tower.name: tower.parameters for tower in reader(config, hidden)}


def test_exaone_by_hand() -> None:
    """One layer of width 8, 4 heads, 2 of keys and values: q and o 72 each, k and v 36 each, 3 matrices of 8 x 16."""
    block = {
        "depth": 1, "hidden_size": 8, "intermediate_size": 16, "num_heads": 4, "num_key_value_heads": 2,
        "patch_size": 2, "temporal_patch_size": 1, "out_hidden_size": 10,
    }  # fmt: skip
    layer = 72 + 36 + 36 + 72 + (2 * (8 * 16 + 16) + 16 * 8 + 8) + 2 * 8
    found = towers("exaone4_5", {"vision_config": block}, 10)

    assert found == {"vision": 3 * 4 * 8 + layer, "vision projector": 8 + (32 * 32 + 32) + (32 * 10 + 10)}


def test_gemma_by_hand() -> None:
    """Patches of 2 x 3 pixels a side and 3 channels are 108 numbers: a norm, a matrix to 4, two norms, positions."""
    block = {"patch_size": 2, "pooling_kernel_size": 3, "mm_embed_dim": 4, "mm_posemb_size": 5}
    config = {"vision_config": block, "audio_config": {"audio_embed_dim": 6}}
    found = towers("gemma4_unified", config, 7)

    assert found == {
        "vision": 2 * 108 + (108 * 4 + 4) + 2 * 2 * 4 + 2 * 5 * 4,
        "vision projector": 4 * 7,
        "audio projector": 6 * 7,
    }


def test_published_totals() -> None:
    """What the reference implementation counts beside EXAONE-4.5-33B, Gemma-4-12B and, by default, a GLM-5.3."""
    unified: dict[str, Any] = {"vision_config": {}, "audio_config": {}}

    assert sum(towers("exaone4_5", {"vision_config": EXAONE}, 5120).values()) == 1_286_482_944
    assert sum(towers("gemma4_unified", unified, 3840).values()) == 52_379_904
    assert towers("glm5_next", {}, 4096) == {"vision": 404_231_168, "vision projector": 55_841_280}


@pytest.mark.parametrize("block", [{"num_heads": 3}, {"depth": -1}, {"hidden_size": "x"}, {"patch_size": None}, 7])
def test_a_bad_block_is_one_line(block: object) -> None:
    """Sizes that cannot be are named."""
    reader = find_wrapper("exaone4_5")
    assert reader is not None
    with pytest.raises((MalformedModelError, UnknownArchitectureError)) as caught:
        reader({"vision_config": block}, 64)
    assert is_one_line(str(caught.value))
    assert "vision_config" in str(caught.value)
