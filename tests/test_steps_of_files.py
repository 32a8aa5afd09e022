"""What a step reads of weights that files hold: by their headers, component by component."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.checkpoints import TINY, decoder_tensors, folder_of
from tests.gguf_models import BYTES, NORMS, model
from tests.hub_server import safetensors
from tests.running import result

if TYPE_CHECKING:
    from pathlib import Path

EMBEDDING = 100 * 64  # parameters, and as many of the head


def step(path: str, *arguments: str) -> Any:
    """Return one decode step of one sequence on an H100."""
    (phase,) = result(
        "estimate", path, "--gpu", "h100-sxm", "--phase", "decode", "--batch", "1", "--context", "64", *arguments
    )["phases"]
    return phase


def formats(phase: Any) -> dict[str, str]:
    """Return term -> format that it is computed in."""
    return {term["term"]: term["format"] for term in phase["terms"]}


@pytest.mark.parametrize(("dtype", "size", "computed"), [("BF16", 2, "bf16"), ("F32", 4, "fp32"), ("F16", 2, "fp16")])
def test_plain_checkpoints(dtype: str, size: int, computed: str, tmp_path: Path) -> None:
    """All weights but the embedding are read, and one row of that, in the format of the headers."""
    held = safetensors(decoder_tensors(TINY, dtype)).start
    phase = step(folder_of(tmp_path / "m", TINY | {"torch_dtype": None}, model_safetensors=held))

    assert phase["weight_bytes"] == size * (74_560 - EMBEDDING + 64)
    assert {formats(phase)[name] for name in ("attn.qkv", "ffn.down", "head")} == {computed}


def test_a_checkpoint_that_is_not_what_its_config_says(tmp_path: Path) -> None:
    """FP8 matrices in a file whose config states none are read as they are stored, and multiplied in FP8."""
    tensors = decoder_tensors(TINY)
    narrow = {name: ("F8_E4M3" if "_proj" in name else dtype, shape) for name, (dtype, shape) in tensors.items()}
    phase = step(folder_of(tmp_path / "m", TINY, model_safetensors=safetensors(narrow).start))
    matrices = 2 * (64 * 64 * 2 + 64 * 32 * 2 + 3 * 64 * 96)

    assert phase["weight_bytes"] == matrices + 2 * (74_560 - EMBEDDING - matrices + 64)
    assert formats(phase)["ffn.down"] == "fp8"
    assert formats(phase)["head"] == "bf16"


@pytest.mark.parametrize("dtype", ["F16", "Q8_0"])
def test_gguf_files(dtype: str, tmp_path: Path) -> None:
    """A GGUF file's blocks are read as they are stored, norms in F32, and multiplied in fp16."""
    path = tmp_path / "tiny.gguf"
    file = model(dtype)
    path.write_bytes(file.span(0, file.size))
    phase = step(str(path))
    each = {"F16": 2.0, "Q8_0": 34 / 32}[dtype]

    assert phase["weight_bytes"] == pytest.approx(BYTES[dtype] - each * EMBEDDING + each * 64)
    assert formats(phase)["ffn.gate_up"] == "fp16"
    assert next(term for term in phase["terms"] if term["term"] == "elementwise")["weight_bytes"] == NORMS * 4
