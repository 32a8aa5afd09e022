"""Feed-forward kinds against numbers worked out by hand from published dimensions."""

from __future__ import annotations

from dataclasses import replace

import pytest

from roofcast.modelspec.ffn import DenseFeedForward, MoeFeedForward

LLAMA_8B = DenseFeedForward(4096, 14336)
MIXTRAL = MoeFeedForward(DenseFeedForward(4096, 14336), experts=8, top_k=2)
DEEPSEEK_V3 = MoeFeedForward(DenseFeedForward(7168, 2048), experts=256, top_k=8, shared=DenseFeedForward(7168, 2048))
QWEN_MOE = MoeFeedForward(  # Qwen1.5-MoE-A2.7B: 60 experts of 1408, a shared one of 5632 behind a gate
    DenseFeedForward(2048, 1408), experts=60, top_k=4, shared=DenseFeedForward(2048, 5632), shared_gate=True
)


@pytest.mark.parametrize(
    ("dense", "parameters"),
    [
        (LLAMA_8B, 3 * 4096 * 14336),
        (DenseFeedForward(4544, 18176, gated=False), 2 * 4544 * 18176),  # Falcon-7B
        (DenseFeedForward(5120, 20480, gated=False, bias=True), 2 * 5120 * 20480 + 20480 + 5120),  # OPT-13B
        (DenseFeedForward(4096, 12288, bias=True), 3 * 4096 * 12288 + 2 * 12288 + 4096),
    ],
)
def test_dense_is_its_matrices_and_biases(dense: DenseFeedForward, parameters: int) -> None:
    """Up and down, a gate where there is one, and a bias as wide as each result."""
    assert dense.parameters == parameters
    assert dense.active_parameters == parameters
    assert dense.expert_parameters == 0


@pytest.mark.parametrize(
    ("moe", "parameters", "active"),
    [
        (MIXTRAL, 8 * 3 * 4096 * 14336 + 8 * 4096, 2 * 3 * 4096 * 14336 + 8 * 4096),
        (DEEPSEEK_V3, 257 * 3 * 7168 * 2048 + 256 * 7168, 9 * 3 * 7168 * 2048 + 256 * 7168),
        (
            QWEN_MOE,
            60 * 3 * 2048 * 1408 + 3 * 2048 * 5632 + 60 * 2048 + 2048,
            4 * 3 * 2048 * 1408 + 3 * 2048 * 5632 + 60 * 2048 + 2048,
        ),
    ],
)
def test_moe_counts_experts_shared_router_and_gate(moe: MoeFeedForward, parameters: int, active: int) -> None:
    """All experts are held, k work; the router, the shared expert and its gate work on every token."""
    assert moe.parameters == parameters
    assert moe.active_parameters == active


def test_expert_parameters_are_the_routed_ones_only() -> None:
    """DeepSeek-V3's shared expert is not among its 256 routed ones."""
    assert DEEPSEEK_V3.expert_parameters == 256 * 3 * 7168 * 2048


def test_a_router_bias_is_a_parameter_that_always_works() -> None:
    """One entry an expert is added to both counts."""
    biased = replace(MIXTRAL, router_bias=8)

    assert biased.parameters == MIXTRAL.parameters + 8
    assert biased.active_parameters == MIXTRAL.active_parameters + 8


def test_labels_name_kind_and_widths() -> None:
    """What a layer map prints."""
    assert LLAMA_8B.label == "dense 14336"
    assert MIXTRAL.label == "MoE 2 of 8 x 14336"
    assert QWEN_MOE.label == "MoE 4 of 60 x 1408 + shared 5632"
