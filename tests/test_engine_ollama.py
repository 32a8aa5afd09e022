"""Ollama: its defaults over llama.cpp's memory."""

from __future__ import annotations

import pytest

from roofcast.calculators.engines import ollama
from roofcast.calculators.engines.flags import Flags
from roofcast.calculators.engines.llama_cpp_cache import MIB
from roofcast.calculators.engines.terms import GIB, Served
from roofcast.calculators.errors import UsageError
from tests.test_engine_llama_cpp import ready


def test_ollama_keeps_whole_heads_of_latents() -> None:
    """deepseek-coder-v2:16b with eight slots of 2,048: 16,384 cells x 276,480 B, 4.2188 GiB."""
    memory = ollama.answer(Served(ready("deepseek-v2-lite"), Flags(n_ctx=2048, parallel=8)), {})

    assert (memory.tokens and memory.tokens[0], memory.longest, memory.room.sequences(2048)) == (16384, 2048, 8)
    assert pytest.approx(4.2188, abs=5e-5) == memory.kv[0] / GIB


@pytest.mark.parametrize(
    ("version", "gpu", "context"),
    [("0.5.1", "h200", 2048), ("0.6.7", "h200", 4096), ("0.16.0", "h200", 131072), ("0.16.0", "rtx-4090", 4096)],
)
def test_default_context_of_ollama(version: str, gpu: str, context: int) -> None:
    """By version, and from 0.15.5 by memory, at most what the model was trained with."""
    memory = ollama.answer(Served(ready("llama-3.1-8b", gpu=gpu), Flags(engine_version=version)), {})

    assert context == memory.longest
    assert any("--n-ctx is not given" in line for line in memory.said.assumptions)


def test_ollama_needs_flash_attention_for_values() -> None:
    """OLLAMA_KV_CACHE_TYPE quantises both, and does nothing without flash attention."""
    memory = ollama.answer(Served(ready("llama-3.1-8b", "q8_0"), Flags(n_ctx=4096)), {})

    assert memory.kv[0] / MIB == 512 * 34 / 64
    assert any("OLLAMA_FLASH_ATTENTION=1" in line for line in memory.said.assumptions)
    with pytest.raises(UsageError, match="versions of Ollama are such as"):
        ollama.answer(Served(ready("llama-3.1-8b"), Flags(engine_version="b4800")), {})
