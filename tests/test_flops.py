"""FLOP of a prompt: 2 N n for the weights, 2 L n^2 d_attn for causal attention."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from roofcast.calculators.flops import (
    attention_flops,
    attention_share,
    crossover_tokens,
    linear_flops_per_token,
    prefill_flops,
)
from roofcast.modelspec.spec import build_spec
from tests.checkpoints import DEEPSEEK_V3, LLAMA_2_7B, LLAMA_3_1_8B, MISTRAL_7B_V0_1
from tests.model_configs import published

# Llama 3.1 8B: a layer is q, o 4096^2 each, k, v 4096 x 1024 each, three of 4096 x 14336, two norms; one norm at the end
LAYER = 2 * 4096 * 4096 + 2 * 4096 * 1024 + 3 * 4096 * 14336 + 2 * 4096
N = 32 * LAYER + 4096


def test_weights_cost_twice_their_number() -> None:
    """Each of the 6.98B parameters that are no embedding multiplies and adds once a token."""
    assert N == 6_979_588_096
    assert linear_flops_per_token(build_spec(LLAMA_3_1_8B)) == 2 * N


@pytest.mark.parametrize(("tokens", "tera", "percent"), [(4096, 61.6, 7), (32768, 738.9, 38), (131072, 6333.3, 71)])
def test_llama_8b_prompts(tokens: int, tera: float, percent: int) -> None:
    """Llama 3.1 8B: 2 N n + 2 x 32 n^2 x 4096 FLOP, and the second term's share."""
    spec = build_spec(LLAMA_3_1_8B)
    attention = 2 * 32 * tokens**2 * 4096

    assert attention_flops(spec, tokens) == attention
    assert prefill_flops(spec, tokens) == 2 * N * tokens + attention
    assert round(prefill_flops(spec, tokens) / 1e12, 1) == tera
    assert round(100 * attention_share(spec, tokens)) == percent


def test_crossover_of_llama_8b() -> None:
    """Attention costs as much as the weights at n = N / (L d_attn) = 53,250 tokens."""
    assert crossover_tokens(build_spec(LLAMA_3_1_8B)) == round(N / (32 * 4096)) == 53250


def test_kv_heads_do_not_change_attention_work() -> None:
    """Query heads do the work: 32 KV heads or 8, the scores cost the same."""
    grouped = build_spec(LLAMA_3_1_8B)
    all_heads = build_spec(LLAMA_3_1_8B | {"num_key_value_heads": 32})

    assert attention_flops(grouped, 1000) == attention_flops(all_heads, 1000)


def test_mla_works_in_the_expanded_form() -> None:
    """DeepSeek-V3's scores work on heads of 192 and its values on heads of 128: n^2 L 128 (192 + 128)."""
    assert attention_flops(build_spec(DEEPSEEK_V3), 4096) == 4096**2 * 61 * 128 * (192 + 128)


def test_only_chosen_experts_work() -> None:
    """DeepSeek-V3's N counts 8 of 256 routed experts: 37.55B active less embedding and head."""
    spec = build_spec(DEEPSEEK_V3)

    assert spec.active_parameters == 37_552_282_624
    assert linear_flops_per_token(spec) == 2 * (37_552_282_624 - 2 * 129280 * 7168)


def test_a_window_bends_attention() -> None:
    """With window W a prompt of n > W touches n W - W^2 / 2 pairs, and exactly the causal n^2 / 2 up to W."""
    windowed = build_spec(MISTRAL_7B_V0_1)
    a_pair = 4 * 32 * 4096  # FLOP: twice for Q K^T and twice for P V, per layer and element

    assert attention_flops(windowed, 4096) == a_pair * 4096**2 / 2
    assert attention_flops(windowed, 10000) == a_pair * (10000 * 4096 - 4096**2 / 2)


def test_a_short_window_never_crosses() -> None:
    """Attention of a window of 4,096 costs at most 2 x 4,096 x L d_attn x 2 a token, below 2 N: no crossover."""
    assert crossover_tokens(build_spec(MISTRAL_7B_V0_1)) is None


def test_a_long_window_crosses_later() -> None:
    """A window of 40,000 crosses where 2 n W - W^2 = n N / (L d_attn), beyond the plain crossover."""
    windowed = build_spec(MISTRAL_7B_V0_1 | {"sliding_window": 40_000, "max_position_embeddings": 131072})
    plain = build_spec(MISTRAL_7B_V0_1 | {"sliding_window": None})
    ratio = plain.non_embedding_parameters / (32 * 4096)

    assert crossover_tokens(plain) == round(ratio)
    assert crossover_tokens(windowed) == round(40_000**2 / (2 * 40_000 - ratio))


@pytest.mark.parametrize("config", [LLAMA_3_1_8B, LLAMA_2_7B, DEEPSEEK_V3])
def test_half_the_work_at_the_crossover(config: dict[str, Any]) -> None:
    """At the crossover attention's share is one half."""
    spec = build_spec(config)
    tokens = crossover_tokens(spec)

    assert tokens is not None
    assert attention_share(spec, tokens) == pytest.approx(0.5, abs=1e-4)


def test_a_recurrence_costs_the_same_for_every_token() -> None:
    """Mamba-2 alone: twice the prompt is twice the work, and scores never overtake the weights."""
    spec = build_spec(published("mistralai/Mamba-Codestral-7B-v0.1"))

    assert attention_flops(spec, 2000) == 2 * attention_flops(spec, 1000) > 0
    assert attention_share(spec, 10**6) == pytest.approx(attention_share(spec, 100))
    assert crossover_tokens(spec) is None


def test_kinds_of_a_hybrid_add_up() -> None:
    """Qwen3.5-0.8B: 6 layers of n^2 x 8 x 256 x 2 and 18 recurrences of 7 n x 16 x 128 x 128."""
    spec = build_spec(published("Qwen/Qwen3.5-0.8B"))

    assert attention_flops(spec, 1000) == 6 * 2 * 1000**2 * 8 * 256 + 18 * 7 * 1000 * 16 * 128 * 128


def test_drafting_works_too() -> None:
    """With multi-token prediction in use its weights and its attention are in the work."""
    alone = build_spec(published("Qwen/Qwen3.5-0.8B"))
    drafting = replace(alone, drafting=True)

    assert linear_flops_per_token(drafting) - linear_flops_per_token(alone) == 2 * alone.draft_parameters
    assert attention_flops(drafting, 1000) - attention_flops(alone, 1000) == 2 * 1000**2 * 8 * 256
