"""KV cache bytes are elements x bytes, summed over layers, capped by windows, shared by devices."""

from __future__ import annotations

from typing import Any

import pytest

from roofcast.calculators.cache import cache_bytes, kv_bytes_per_token, state_bytes, whole, window_bytes
from roofcast.modelspec.formats import FORMATS
from roofcast.modelspec.spec import build_spec
from tests.checkpoints import (
    BF16,
    DEEPSEEK_67B,
    DEEPSEEK_V2,
    DEEPSEEK_V3,
    LLAMA_2_7B,
    LLAMA_3_1_8B,
    MISTRAL_7B_V0_1,
    MISTRAL_7B_V0_3,
    OPT_13B,
    QWEN2_5_7B,
)
from tests.model_configs import published

PUBLISHED = [
    pytest.param(LLAMA_3_1_8B, 32 * 2 * 8 * 128 * 2, 128.0, 16.00, id="llama-3.1-8b"),
    pytest.param(LLAMA_2_7B, 32 * 2 * 32 * 128 * 2, 512.0, 64.00, id="llama-2-7b"),
    pytest.param(QWEN2_5_7B, 28 * 2 * 4 * 128 * 2, 56.0, 7.00, id="qwen2.5-7b"),
    pytest.param(MISTRAL_7B_V0_3, 32 * 2 * 8 * 128 * 2, 128.0, 16.00, id="mistral-7b-v0.3"),
    pytest.param(DEEPSEEK_V3, 61 * (512 + 64) * 2, 68.6, 8.58, id="deepseek-v3"),
    pytest.param(OPT_13B, 40 * 2 * 40 * 128 * 2, 800.0, 100.0, id="opt-13b"),
]


@pytest.mark.parametrize(("config", "a_token", "kib", "gib_at_128k"), PUBLISHED)
def test_bytes_a_token(config: dict[str, Any], a_token: int, kib: float, gib_at_128k: float) -> None:
    """A token of GQA costs 2 L n_kv d b bytes, one of MLA L (d_c + d_rope) b; 131,072 tokens that often."""
    spec = build_spec(config)

    assert kv_bytes_per_token(spec, BF16) == a_token
    assert round(a_token / 1024, 1) == kib
    assert cache_bytes(spec, BF16, 131072) == a_token * 131072
    assert round(a_token * 131072 / 2**30, 2) == gib_at_128k


def test_opt_13b_at_2048() -> None:
    """OPT-13B keeps 800 KiB a token and 1.68 GB at its 2,048 tokens."""
    assert cache_bytes(build_spec(OPT_13B), FORMATS["fp16"], 2048) == 800 * 1024 * 2048 == 1_677_721_600


def test_mla_equals_gqa_of_two_and_a_quarter_groups() -> None:
    """DeepSeek-V2's MLA layer keeps 512 + 64 elements, as 2.25 KV heads of 2 x 128 would."""
    spec = build_spec(DEEPSEEK_V2)

    assert kv_bytes_per_token(spec, BF16) / 60 / 2 / (2 * 128) == 2.25


def test_mla_against_deepseek_67b_at_equal_precision() -> None:
    """DeepSeek-V2's cache is 82 % smaller than that of DeepSeek 67B in the same format, not 93.3 %."""
    latent, grouped = (kv_bytes_per_token(build_spec(config), BF16) for config in (DEEPSEEK_V2, DEEPSEEK_67B))

    assert (latent, grouped) == (60 * 576 * 2, 95 * 2 * 8 * 128 * 2)
    assert round(1 - latent / grouped, 2) == 0.82


@pytest.mark.parametrize(
    ("name", "expected"), [("fp8", 1 / 2), ("int8", 1 / 2), ("fp32", 2), ("nvfp4", 0.5625 / 2), ("q8_0", 34 / 32 / 2)]
)
def test_the_format_scales_the_cache(name: str, expected: float) -> None:
    """The same elements take the format's bytes each, its scales included."""
    spec = build_spec(LLAMA_3_1_8B)

    assert kv_bytes_per_token(spec, FORMATS[name]) == expected * kv_bytes_per_token(spec, BF16)


@pytest.mark.parametrize(("context", "held"), [(1, 1), (4095, 4095), (4096, 4096), (4097, 4096), (131072, 4096)])
def test_a_window_caps_the_cache(context: int, held: int) -> None:
    """Mistral 7B v0.1 keeps 4,096 tokens at most, in every layer."""
    assert cache_bytes(build_spec(MISTRAL_7B_V0_1), BF16, context) == held * 32 * 2 * 8 * 128 * 2


def test_window_layers_are_not_in_the_bytes_a_token() -> None:
    """What stops growing is counted once full, beside what grows for ever."""
    windowed, plain = build_spec(MISTRAL_7B_V0_1), build_spec(MISTRAL_7B_V0_3)

    assert kv_bytes_per_token(windowed, BF16) == 0
    assert window_bytes(windowed, BF16) == 512 * 2**20
    assert window_bytes(plain, BF16) == 0


def test_windows_in_some_layers() -> None:
    """Where two of four layers have a window of 8, a long sequence keeps 8 tokens there and all elsewhere."""
    config = LLAMA_3_1_8B | {
        "model_type": "qwen2",
        "num_hidden_layers": 4,
        "use_sliding_window": True,
        "sliding_window": 8,
        "max_window_layers": 2,
    }
    spec = build_spec(config)
    layer = 2 * 8 * 128 * 2

    assert kv_bytes_per_token(spec, BF16) == 2 * layer
    assert window_bytes(spec, BF16) == 2 * 8 * layer
    assert cache_bytes(spec, BF16, 100) == (2 * 100 + 2 * 8) * layer


@pytest.mark.parametrize(("tp", "heads"), [(1, 8), (2, 4), (8, 1), (16, 1), (32, 1)])
def test_kv_heads_split_then_replicate(tp: int, heads: int) -> None:
    """On one of tp devices are n_kv / tp heads, and never less than one."""
    assert kv_bytes_per_token(build_spec(LLAMA_3_1_8B), BF16, tp) == 32 * 2 * heads * 128 * 2


@pytest.mark.parametrize("tp", [1, 2, 8, 128])
def test_a_latent_does_not_split(tp: int) -> None:
    """Every device keeps the whole latent, so sharing saves nothing."""
    spec = build_spec(DEEPSEEK_V3)

    assert kv_bytes_per_token(spec, BF16, tp) == 61 * 576 * 2
    assert cache_bytes(spec, BF16, 4096, tp) == 61 * 576 * 2 * 4096


# measured on the reference implementation at full size, bf16: bytes a token, fixed bytes
MEASURED = [
    pytest.param("deepseek-ai/DeepSeek-V2-Lite", 31_104, 0, id="mla"),
    pytest.param("deepseek-ai/DeepSeek-V3.2", 85_888, 0, id="mla-index"),
    pytest.param("zai-org/GLM-5.2", 95_232, 0, id="mla-shared-index"),
    pytest.param("Qwen/Qwen3.5-0.8B", 6 * 2048, 19_759_104, id="gated-delta"),
    pytest.param("mistralai/Mamba-Codestral-7B-v0.1", 0, 64 * (10240 * 4 * 2 + 128 * 64 * 128 * 4), id="mamba-2"),
    pytest.param(
        "nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16", 6 * 1024, 23 * (6144 * 4 * 2 + 64 * 64 * 128 * 4), id="nemotron"
    ),
]


@pytest.mark.parametrize(("repo", "a_token", "state"), MEASURED)
def test_what_the_reference_implementation_keeps(repo: str, a_token: int, state: int) -> None:
    """Growing and fixed parts are what was measured; a context adds the one to the other."""
    spec = build_spec(published(repo))

    assert kv_bytes_per_token(spec, BF16) == a_token
    assert state_bytes(spec, BF16) == state
    assert window_bytes(spec, BF16) == 0
    assert cache_bytes(spec, BF16, 1000) == 1000 * a_token + state


@pytest.mark.parametrize(
    ("kv", "conv_bytes"), [("bf16", 2), ("fp16", 2), ("fp32", 4), ("fp8", 2), ("q8_0", 2), ("q4_0", 2)]
)
def test_each_part_has_its_format(kv: str, conv_bytes: int) -> None:
    """Recurrent states are fp32 whatever the cache is; convolution columns take 16 bits, or those of a wider cache."""
    spec = build_spec(published("Qwen/Qwen3.5-0.8B"))

    assert state_bytes(spec, FORMATS[kv]) == 18 * (24_576 * conv_bytes + 262_144 * 4)
    assert kv_bytes_per_token(spec, FORMATS[kv]) == 6 * 1024 * FORMATS[kv].bytes_per_element


@pytest.mark.parametrize(("tp", "parts"), [(1, 1), (2, 2), (8, 8), (16, 16)])
def test_a_recurrent_state_splits_by_its_heads(tp: int, parts: int) -> None:
    """16 heads of Gated DeltaNet split over up to 16 devices, where 2 KV heads replicate beyond 2."""
    spec = build_spec(published("Qwen/Qwen3.5-0.8B"))

    assert state_bytes(spec, BF16, tp) == 19_759_104 / parts
    assert kv_bytes_per_token(spec, BF16, tp) == 6 * 2048 / min(tp, 2)


def test_compressed_entries_grow_by_the_block() -> None:
    """DeepSeek-V4: an entry of 512 + 128 elements stands for 4 tokens and one of 512 for 128; windows are capped."""
    spec = build_spec(published("deepseek-ai/DeepSeek-V4-Pro"))
    csa, hca = (sum(layer.label == kind for layer in spec.layers) for kind in ("CSA", "HCA"))

    assert kv_bytes_per_token(spec, BF16) == csa * 640 * 2 / 4 + hca * 512 * 2 / 128
    assert cache_bytes(spec, BF16, 1027) - cache_bytes(spec, BF16, 1024) == 0
    assert cache_bytes(spec, BF16, 1028) - cache_bytes(spec, BF16, 1024) == csa * 640 * 2


def test_whole_keeps_integers_whole() -> None:
    """Bytes that are whole are integers, so that JSON prints them without a fraction."""
    assert isinstance(whole(128.0), int)
    assert isinstance(whole(0.5), float)
