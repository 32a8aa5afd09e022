"""llama.cpp's model and compute buffers, as logs print them, and layers over several GPUs."""

from __future__ import annotations

from typing import Any

import pytest

from roofcast.calculators.engines import llama_cpp
from roofcast.calculators.engines.flags import Flags
from roofcast.calculators.engines.llama_cpp_buffers import held_weights, layer_split
from roofcast.calculators.engines.llama_cpp_cache import MIB
from roofcast.calculators.engines.terms import Served
from roofcast.modelspec.requested import find_requested
from tests.test_engine_llama_cpp import ready, started

# model, mix, MiB of the GPU's model buffer and of the CPU's, as printed
BUFFERS = [
    ("llama-3.1-8b", "q4_k_m", 4403.49, 281.81),  # llama.cpp's own discussions have this line many times
    # 58.4489 GiB of a log
    ("gpt-oss-120b", "mxfp4_moe", 58.4489 * 1024, 586.82),
    # DeepSeek-R1-Distill-Qwen-32B: https://github.com/ggml-org/llama.cpp/issues/11861 has 18.0746 GiB
    ("qwen2.5-32b", "q4_k_m", 18.0746 * 1024, 417.66),
    ("qwen3.6-27b", "q8_0", None, 1288.28),
    ("qwen3.5-9b", "q4_k_m", None, 545.62),
    ("gemma-4-12b-it", "q4_k_m", None, 787.50),  # tied: on the CPU, and as head on the GPU once more
]


@pytest.mark.parametrize(("name", "mix", "gpu", "cpu"), BUFFERS)
def test_model_buffers(name: str, mix: str, gpu: float | None, cpu: float) -> None:
    """The embedding stays with the CPU; where it is the head too, the GPU has a copy."""
    held = held_weights(ready(name, weights=mix))

    assert cpu == pytest.approx(held.host / MIB, abs=0.006)
    if gpu is not None:
        assert gpu == pytest.approx(held.total / MIB, abs=0.06)
    if held.tied:
        assert held.head == held.host
    file = ready(name, weights=mix).model.weight_bytes(find_requested(mix)).value  # each tensor of it is loaded once
    assert held.layers + held.host + held.head * (not held.tied) + held.left_out == pytest.approx(file)


# model, mix, flags, MiB of CUDA0's compute buffer as printed
COMPUTE = [
    ("qwen3.5-9b", "q4_k_m", {"n_ctx": 262144, "parallel": 2, "kv_unified": True}, 808.02),
    ("qwen3.6-35b-a3b", "q4_k_m", {"n_ctx": 32768, "parallel": 1}, 493.0),
    ("qwen3.6-35b-a3b", "q4_k_m", {"n_ctx": 262144, "parallel": 1}, 827.69),
    ("qwen3.6-27b", "q4_k_m", {"n_ctx": 32768, "parallel": 1}, 154.02),
    ("deepseek-v2-lite", "q4_k_m", {"n_ctx": 16384, "parallel": 8}, 125.39),
    ("gemma-4-12b-it", "q4_k_m", {"n_ctx": 8192}, 135.0),
]


@pytest.mark.parametrize(("name", "mix", "flags", "printed"), COMPUTE)
def test_compute_buffers(name: str, mix: str, flags: dict[str, Any], printed: float) -> None:
    """Compute buffers that logs print lie in the interval, which is wide: builds differ in the logits they reserve."""
    memory = llama_cpp.answer(Served(ready(name, weights=mix), Flags(**flags)), {})
    made = next(term for term in memory.terms if term.name == "compute_buffer")

    assert made.low <= printed * MIB <= made.high


@pytest.mark.parametrize("devices", [1, 2, 3, 8])
def test_layers_over_gpus(devices: int) -> None:
    """Every layer is on one GPU, in order, and none has more than its share but for rounding."""
    split = layer_split(32, devices)

    assert list(range(32)) == [layer for part in split for layer in part]
    assert max(map(len, split)) <= -(-33 // devices)


def test_two_gpus_share_layers() -> None:
    """Llama-3.1-8B on two: 17 layers with their cache on the first, 15 and the head on the second, the fuller."""
    one = started("llama-3.1-8b", n_ctx=8192, parallel=1)
    two = llama_cpp.answer(Served(ready("llama-3.1-8b", pp=2), Flags(n_ctx=8192, parallel=1)), {})
    cut = llama_cpp.answer(Served(ready("llama-3.1-8b", tp=2), Flags(n_ctx=8192, parallel=1)), {})

    # the first has 17/32 of 13,313 MiB and of 1,024 of cache, 7,617; the second 15/32 and 1,002 of head, 7,723
    assert two.kv[0] / one.kv[0] == 15 / 32
    assert two.terms == cut.terms
    assert any("--tp 2" in line for line in cut.said.assumptions)
