"""The decoder on fused kernels computes what the plain one does, for every kind that has kernels of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Final

import pytest

from tests.conftest import REPOSITORY

pytest.importorskip("torch")
pytest.importorskip("triton")

KINDS: Final = (
    "GQA",
    "values of another width",
    "heads of an odd width",
    "biases",
    "norms of queries and keys",
    "a window",
    "chunks",
    "MLA with a query latent",
    "MoE",
    "gated shared experts",
    "no gate, biases",
)
TIGHT: Final = 1e-5


@pytest.mark.slow
def test_fused_kernels_are_as_the_reference() -> None:
    """Prefill, then decode, in Triton's interpreter."""
    made = subprocess.run(
        [sys.executable, "-m", "tests.triton_decoders", *KINDS],
        cwd=REPOSITORY,
        env={**os.environ, "TRITON_INTERPRET": "1"},
        capture_output=True,
        text=True,
        check=False,
    )

    assert made.returncode == 0, made.stderr
    errors = json.loads(made.stdout)
    assert list(errors) == list(KINDS)
    assert {name: error for name, error in errors.items() if not error < TIGHT} == {}
