"""Attention kinds against numbers worked out by hand from published dimensions."""

from __future__ import annotations

import pytest

from roofcast.modelspec.attention import GroupedAttention
from roofcast.modelspec.kinds import KINDS
from roofcast.modelspec.latent import LatentAttention
from roofcast.modelspec.work import causal_pairs, matmul_flops

LLAMA_8B = GroupedAttention(query_heads=32, kv_heads=8, head_dim=128, value_head_dim=128)
LLAMA_2_7B = GroupedAttention(query_heads=32, kv_heads=32, head_dim=128, value_head_dim=128)
DEEPSEEK_67B = GroupedAttention(query_heads=64, kv_heads=8, head_dim=128, value_head_dim=128)
FALCON_7B = GroupedAttention(query_heads=71, kv_heads=1, head_dim=64, value_head_dim=64)
DEEPSEEK_V2 = LatentAttention(128, 512, 1536, 128, 64, 128)
DEEPSEEK_V2_LITE = LatentAttention(16, 512, None, 128, 64, 128)


def test_kinds_lists_every_kind_once() -> None:
    """No class stands in two rows, and any class may have plain attention."""
    assert len({kind.cls for kind in KINDS.values()}) == len(KINDS)
    assert [name for name, kind in KINDS.items() if kind.default] == ["grouped"]


@pytest.mark.parametrize(
    ("attention", "label"),
    [(LLAMA_8B, "GQA"), (LLAMA_2_7B, "MHA"), (FALCON_7B, "MQA"), (DEEPSEEK_V2, "MLA"), (DEEPSEEK_V2_LITE, "MLA")],
)
def test_label_says_how_heads_share(attention: GroupedAttention | LatentAttention, label: str) -> None:
    """As many KV heads as query heads is MHA, one is MQA, between is GQA, a latent is MLA."""
    assert attention.label == label


def test_one_head_is_mha() -> None:
    """A single query head shares its keys with none."""
    assert GroupedAttention(1, 1, 64, 64).label == "MHA"


@pytest.mark.parametrize(
    ("attention", "layers", "bytes_per_token"),
    [
        (LLAMA_8B, 32, 128 * 1024),
        (LLAMA_2_7B, 32, 512 * 1024),
        (GroupedAttention(28, 4, 128, 128), 28, 56 * 1024),  # Qwen2.5-7B
        (GroupedAttention(40, 40, 128, 128), 40, 800 * 1024),  # OPT-13B
        (FALCON_7B, 32, 8 * 1024),
        (DEEPSEEK_V2, 61, 70_272),  # DeepSeek-V3 has the same latent: 68.6 KiB
    ],
)
def test_cache_of_a_token_in_bf16(
    attention: GroupedAttention | LatentAttention, layers: int, bytes_per_token: int
) -> None:
    """Two bytes an element, over all layers, is the published size of a token in the cache."""
    assert attention.elements_per_token * 2 * layers == bytes_per_token


def test_value_heads_may_be_narrower() -> None:
    """Keys and values are counted at their own widths: 8 x (192 + 128) in MiMo-like layers."""
    narrow = GroupedAttention(64, 8, 192, 128)

    assert narrow.elements_per_token == 8 * 192 + 8 * 128
    assert narrow.state[0].shard(4) == 2 * 192 + 2 * 128
    assert narrow.parameters(4096) == 4096 * (64 * 192 + 8 * 192 + 8 * 128) + 64 * 128 * 4096
    assert narrow.prefill_flops(1024) == 2 * (1024 * 1024 / 2) * 64 * (192 + 128)


def test_latent_cache_equals_two_and_a_quarter_groups() -> None:
    """DeepSeek-V2's MLA cache is that of GQA with 2.25 groups: (512 + 64) / (2 x 128)."""
    one_group = GroupedAttention(128, 1, 128, 128).elements_per_token

    assert DEEPSEEK_V2.elements_per_token / one_group == 2.25


def test_latent_cache_is_82_percent_smaller_than_deepseek_67b() -> None:
    """At equal precision 60 layers of 576 stand against 95 of 2 x 8 x 128; the published 93.3 % is 6-bit storage too."""
    ratio = (60 * DEEPSEEK_V2.elements_per_token) / (95 * DEEPSEEK_67B.elements_per_token)

    assert 1 - ratio == pytest.approx(0.8224, abs=5e-5)
    assert 1 - ratio * 6 / 16 == pytest.approx(0.933, abs=5e-4)


@pytest.mark.parametrize(
    ("attention", "hidden", "parameters"),
    [
        (LLAMA_8B, 4096, 4096 * 4096 + 2 * 4096 * 1024 + 4096 * 4096),
        (FALCON_7B, 4544, 4544 * (4544 + 64 + 64) + 4544 * 4544),
        # Qwen3-8B: heads of 128, a norm of 128 on queries and one on keys
        (GroupedAttention(32, 8, 128, 128, qk_norm_parameters=256), 4096, 2 * 4096 * 4096 + 2 * 4096 * 1024 + 256),
        # Gemma-7B: 16 heads of 256 are wider than the residual stream of 3072
        (GroupedAttention(16, 16, 256, 256), 3072, 4 * 3072 * 4096),
        # Qwen2.5-7B: biases on Q, K and V only
        (
            GroupedAttention(28, 4, 128, 128, qkv_bias=True),
            3584,
            2 * 3584 * 3584 + 2 * 3584 * 512 + (3584 + 512 + 512),
        ),
        # OPT-13B: biases on all four
        (GroupedAttention(40, 40, 128, 128, qkv_bias=True, output_bias=True), 5120, 4 * 5120 * 5120 + 4 * 5120),
        # DeepSeek-V2: q_a, norm, q_b; kv_a with the RoPE key, norm, kv_b; o
        (
            DEEPSEEK_V2,
            5120,
            (5120 * 1536 + 1536 + 1536 * 128 * 192)
            + (5120 * (512 + 64) + 512 + 512 * 128 * (128 + 128))
            + 128 * 128 * 5120,
        ),
        (
            DEEPSEEK_V2_LITE,
            2048,
            2048 * 16 * 192 + (2048 * (512 + 64) + 512 + 512 * 16 * 256) + 16 * 128 * 2048,
        ),
        # as above with attention_bias: q_a, kv_a and o have biases, the up projections have none
        (
            LatentAttention(16, 512, 1536, 128, 64, 128, bias=True),
            2048,
            (2048 * 1536 + 1536 + 1536 + 1536 * 16 * 192)
            + (2048 * 576 + 576 + 512 + 512 * 16 * 256)
            + (16 * 128 * 2048 + 2048),
        ),
        (
            LatentAttention(16, 512, None, 128, 64, 128, bias=True),
            2048,
            2048 * 16 * 192 + (2048 * 576 + 576 + 512 + 512 * 16 * 256) + (16 * 128 * 2048 + 2048),
        ),
    ],
)
def test_parameters_are_those_of_the_projections(
    attention: GroupedAttention | LatentAttention, hidden: int, parameters: int
) -> None:
    """Projections, their biases and the norms inside attention add up as their shapes say."""
    assert attention.parameters(hidden) == parameters


def test_prefill_is_two_matrix_products_over_half_the_square() -> None:
    """Scores and values of one head are n^2/2 pairs x 2 x 128 FLOP each; Llama-3.1-8B has 32 heads."""
    n = 4096
    per_head = 2 * matmul_flops(n, n, 128) / 2

    assert LLAMA_8B.prefill_flops(n) == 32 * per_head == 137_438_953_472


def test_prefill_of_llama_adds_up_to_the_published_share() -> None:
    """At 32k tokens attention is 38 % of prefill: 2 N n for the weights, 32 layers of attention."""
    n = 32_768
    attention = 32 * LLAMA_8B.prefill_flops(n)
    weights = 2 * 6_979_588_096 * n

    assert round(100 * attention / (weights + attention)) == 38


def test_prefill_ignores_how_many_kv_heads_there_are() -> None:
    """Every query head multiplies, however few KV heads they share."""
    assert LLAMA_8B.prefill_flops(999) == LLAMA_2_7B.prefill_flops(999)


def test_latent_prefill_works_in_the_expanded_form() -> None:
    """Scores are 128 + 64 wide and values 128, over 128 heads and n^2/2 pairs."""
    n = 4096

    assert DEEPSEEK_V2.prefill_flops(n) == 2 * (n * n / 2) * 128 * (192 + 128)


def test_a_window_bounds_prefill() -> None:
    """Mistral-7B-v0.1 at 32k: each query beyond the first 4096 meets 4096 keys."""
    mistral = GroupedAttention(32, 8, 128, 128, window=4096)
    n, window = 32_768, 4096

    assert mistral.prefill_flops(n) == 2 * (window * window / 2 + (n - window) * window) * 32 * 256


@pytest.mark.parametrize(("tp", "elements"), [(1, 2048), (2, 1024), (4, 512), (8, 256), (16, 256), (3, 768), (64, 256)])
def test_kv_heads_split_and_then_replicate(tp: int, elements: int) -> None:
    """A device holds its share of the 8 KV heads, rounded up, and never less than one head."""
    assert LLAMA_8B.state[0].shard(tp) == elements


@pytest.mark.parametrize("tp", [1, 2, 8, 128])
def test_a_latent_replicates(tp: int) -> None:
    """One latent serves all heads: every device holds all of it."""
    assert DEEPSEEK_V2.state[0].shard(tp) == 576


def test_published_kv_heads() -> None:
    """Configs state KV heads, and for MLA as many as query heads."""
    assert LLAMA_8B.published_kv_heads == 8
    assert DEEPSEEK_V2.published_kv_heads == 128
    assert DEEPSEEK_V2.head_dim == 192


@pytest.mark.parametrize(
    ("tokens", "window", "pairs"),
    [(10, None, 50), (10, 10, 50), (10, 11, 50), (10, 4, 8 + 24), (10, 1, 0.5 + 9), (1, 1, 0.5), (0, None, 0)],
)
def test_causal_pairs(tokens: int, window: int | None, pairs: float) -> None:
    """W^2/2 pairs up to the window, then W for every further token."""
    assert causal_pairs(tokens, window) == pairs


def test_a_multiply_and_an_add_are_two() -> None:
    """[3, 5] @ [5, 7] is 3 x 7 results of 5 multiplies and 5 adds."""
    assert matmul_flops(3, 7, 5) == 3 * 7 * (5 + 5)
