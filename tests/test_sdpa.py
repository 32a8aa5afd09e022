"""Backends of PyTorch's attention: widths and formats that they take, by the rules of its source."""

from __future__ import annotations

import pytest

from roofcast.calculators.sdpa import BACKENDS, Heads, refusal, sdpa_rows
from roofcast.hwdb.lookup import find_accelerator


@pytest.mark.parametrize(
    ("backend", "widths", "number_format", "capability", "takes"),
    [
        ("memory_efficient", (98, 98), "fp32", (8, 0), False),  # in fours where tensor cores multiply fp32
        ("memory_efficient", (98, 98), "fp32", (7, 5), True),
        ("memory_efficient", (100, 100), "fp16", (6, 0), True),  # without tensor cores any width
        ("memory_efficient", (100, 100), "fp16", (7, 0), False),
        ("cudnn", (320, 320), "fp16", (9, 0), False),
    ],
)
def test_widths_that_backends_take(
    backend: str, widths: tuple[int, int], number_format: str, capability: tuple[int, int], *, takes: bool
) -> None:
    """As the alignments of sdp_utils.cpp have it."""
    one = next(row for row in BACKENDS if row.name == backend)

    assert (refusal(one, Heads(8, 8, *widths), number_format, capability) is None) == takes


def test_wider_heads_are_a_question_of_the_build_up_to_256() -> None:
    """cuDNN's builds take up to 256 on Hopper; beyond nothing does."""
    hopper = find_accelerator("h100-sxm").accelerator
    rows = {width: sdpa_rows(hopper, "MHA", Heads(8, 8, width, width), "fp16") for width in (256, 320)}
    runs = {width: next(row.runs for row in some if row.backend == "cudnn") for width, some in rows.items()}

    assert runs == {256: None, 320: False}


@pytest.mark.parametrize("gpu", ["mi300x", "apple-m2-ultra"])
def test_other_vendors_have_the_math_backend(gpu: str) -> None:
    """It takes all wherever PyTorch runs; what else runs depends on the build."""
    rows = {
        row.backend: row.runs
        for row in sdpa_rows(find_accelerator(gpu).accelerator, "MHA", Heads(8, 8, 64, 64), "fp16")
    }

    assert rows.pop("math") is True
    assert set(rows.values()) == {None}


def test_a_tpu_has_none_of_them() -> None:
    """PyTorch's backends are not for it."""
    assert sdpa_rows(find_accelerator("tpu-v5e").accelerator, "MHA", Heads(8, 8, 64, 64), "bf16") == []
