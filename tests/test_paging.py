"""What an engine with pages reserves: whole pages for every token of every layer, and a page for each fixed state."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from roofcast.calculators.cache import cache_bytes, state_bytes
from roofcast.calculators.paging import page_tokens, reserved_bytes
from roofcast.modelspec.formats import FORMATS
from roofcast.modelspec.spec import ModelSpec, build_spec
from tests.checkpoints import BF16, DEEPSEEK_V3, LLAMA_3_1_8B, TINY, TINY_KV, catalogued
from tests.model_configs import published

T5 = published("shrunk/t5")


def spec(repo: str) -> ModelSpec:
    """Build a published model."""
    return build_spec(published(repo))


def test_gemma_3_27b_at_128k() -> None:
    """10 full layers and 52 of 1,024 tokens keep 11.17 GB of 131,072; an engine that frees nothing holds 62 full ones."""
    gemma = catalogued("gemma-3-27b-it").spec
    layer = 16 * 2 * 128 * 2

    assert cache_bytes(gemma, BF16, 131072) == (10 * 131072 + 52 * 1024) * layer
    assert round(cache_bytes(gemma, BF16, 131072) / 1e9, 2) == 11.17
    assert reserved_bytes(gemma, BF16, 131072) == 62 * 131072 * layer
    assert round(reserved_bytes(gemma, BF16, 131072) / 1e9, 2) == 66.57


@pytest.mark.parametrize(("tokens", "held"), [(1, 16), (16, 16), (17, 32), (100, 112), (4096, 4096)])
def test_pages_are_whole(tokens: int, held: int) -> None:
    """Tokens are held in pages of 16, the last one whole."""
    tiny = build_spec(TINY)

    assert page_tokens(tiny, BF16) == 16
    assert reserved_bytes(tiny, BF16, tokens) == held * TINY_KV


def test_a_page_grows_until_it_holds_a_state() -> None:
    """Qwen3.5-35B-A3B with an fp8 cache: 2,162,688 B of state by 16 x 1,024 B are 132 times 16 tokens."""
    qwen = spec("Qwen/Qwen3.5-35B-A3B")
    state = 32 * 128 * 128 * 4 + (2 * 16 * 128 + 32 * 128) * 4 * 2

    assert state_bytes(qwen, FORMATS["fp8"]) == 30 * state
    assert page_tokens(qwen, FORMATS["fp8"]) == 16 * 132 == 2112
    # 10 layers of attention in two pages, and a page for each of 30 states
    assert reserved_bytes(qwen, FORMATS["fp8"], 2113) == (10 * 2 + 30) * 2112 * 1024


def a_column_less(mixer: Any) -> Any:
    """Return a mixer that keeps one convolution column less, where it has any."""
    return replace(mixer, conv_kernel=mixer.conv_kernel - 1) if hasattr(mixer, "conv_kernel") else mixer


def test_one_conv_column_less_gives_the_engines_own_page() -> None:
    """vLLM keeps kernel - 1 columns: 2,146,304 B, and the 2,096 tokens that it prints."""
    qwen = spec("Qwen/Qwen3.5-35B-A3B")
    less = tuple(replace(layer, mixers=tuple(map(a_column_less, layer.mixers))) for layer in qwen.layers)

    assert page_tokens(replace(qwen, layers=less), FORMATS["fp8"]) == 2096


def test_fewer_bits_a_token_make_longer_pages() -> None:
    """The state stays what it is where the cache shrinks: an fp8 cache about doubles the tokens of a page."""
    qwen = spec("Qwen/Qwen3.5-0.8B")

    assert page_tokens(qwen, FORMATS["fp8"]) == 16 * -(-1_097_728 // (16 * 1024)) == 1072
    assert page_tokens(qwen, BF16) == 16 * -(-1_097_728 // (16 * 2048)) == 544


def test_states_alone_are_not_padded() -> None:
    """A model without keys and values has no pages; what it keeps is what is reserved, at any context."""
    mamba = spec("mistralai/Mamba-Codestral-7B-v0.1")

    assert page_tokens(mamba, BF16) is None
    assert reserved_bytes(mamba, BF16, 1) == reserved_bytes(mamba, BF16, 100_000) == state_bytes(mamba, BF16) > 0


def test_layers_that_keep_nothing_reserve_nothing() -> None:
    """Nemotron-3-Nano: 6 layers of attention, 23 states of a page each, and 23 layers of experts alone."""
    nano = spec("nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16")
    page = page_tokens(nano, BF16)

    assert page is not None
    assert reserved_bytes(nano, BF16, page) == (6 + 23) * page * 2 * 2 * 128 * 2


def test_an_encoders_tokens_are_paged_apart() -> None:
    """24 encoder tokens take two pages in every decoder layer, however long the output is."""
    t5 = build_spec(T5, encoder_tokens=24)
    token = T5["num_heads"] * 2 * T5["d_kv"] * 2
    layers = len(t5.layers)

    assert reserved_bytes(t5, BF16, 1) == layers * (16 + 32) * token
    assert reserved_bytes(t5, BF16, 160) == layers * (160 + 32) * token


@pytest.mark.parametrize(("config", "tp"), [(LLAMA_3_1_8B, 4), (DEEPSEEK_V3, 8)])
def test_shares_are_those_of_the_cache(config: dict[str, Any], tp: int) -> None:
    """On one of several devices pages shrink as the cache does: heads split, a latent does not."""
    model = build_spec(config)

    assert reserved_bytes(model, BF16, 4096, tp) == cache_bytes(model, BF16, 4096, tp)


def test_compressed_layers_hold_their_window_and_entries() -> None:
    """DeepSeek-V4: a window of 127 tokens in whole pages of 16, entries of 4 and 128 tokens, and tokens that wait."""
    v4 = spec("deepseek-ai/DeepSeek-V4-Pro")
    hca, csa = (sum(layer.label == kind for layer in v4.layers) for kind in ("HCA", "CSA"))
    grown = 4096 * (hca * 8 + csa * 320)
    waiting = hca * 127 * 2 * 512 * 2 + csa * 2 * 4 * (512 + 128) * 2

    assert page_tokens(v4, BF16) == 16
    assert reserved_bytes(v4, BF16, 4096) == grown + (hca + csa) * 128 * 1024 + waiting
