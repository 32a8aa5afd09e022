"""vLLM's weights and activations, each against a sum made by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from roofcast.calculators.engines.activations import (
    Profiled,
    forward_bytes,
    pictures_bytes,
    profile_peak,
    sampler_bytes,
    sparse_bytes,
    workspace_bytes,
)
from roofcast.calculators.engines.terms import GIB, Z80
from roofcast.calculators.engines.vllm_start import start
from roofcast.calculators.engines.vllm_terms import stage_terms
from roofcast.calculators.engines.vllm_versions import rules_of
from roofcast.calculators.engines.vllm_weights import (
    MIB,
    Stage,
    allocator_rest,
    held_weights,
    latent_halves,
    padded_experts,
    rest_of,
    rope_bytes,
    stages_of,
    towers_bytes,
)
from tests.engine_records import Record, asked, gib, having, memory, term


def held(model: str, **cut: int) -> dict[str, float]:
    """Return the parts of a whole model's weights on one H200, in GiB."""
    served = asked(model, "h200-sxm", cut=cut)
    stage = Stage(len(served.ready.model.spec.active_layers), first=True, last=True)
    return {name: size / GIB for name, size in held_weights(served.ready, stage).parts.items()}


# weights


@pytest.mark.parametrize(
    ("layers", "pp", "counts"),
    [(32, 1, [32]), (32, 4, [8] * 4), (61, 4, [15, 15, 16, 15]), (62, 4, [15, 16, 16, 15]), (63, 4, [16, 16, 16, 15])],
)
def test_stages_have_the_rest_before_the_last(layers: int, pp: int, counts: list[int]) -> None:
    """The first and the last have embedding and head, and so fewer layers."""
    stages = stages_of(layers, pp)

    assert counts == [stage.layers for stage in stages]
    assert [stage.first for stage in stages] == [True] + [False] * (pp - 1)
    assert [stage.last for stage in stages] == [False] * (pp - 1) + [True]


@pytest.mark.parametrize(
    ("size", "rest"),
    [(9.9, 0.0), (10.0, 0.0), (10.5, 0.0), (11.0, 1.0), (11.2, 0.8), (350.0, 0.0), (349.5, 0.5), (24.5, 0.0)],
)
def test_the_allocator_counts_up_to_a_mib_beyond_a_tensor(size: float, rest: float) -> None:
    """From 10 MiB on, in segments of 2 MiB; more than 1 MiB is split off. [MiB]"""
    assert rest == pytest.approx(rest_of(size * MIB) / MIB)


def test_weights_sum_by_hand() -> None:
    """Llama-3.1-8B: 8.03B x 2 B, of which embedding and head 2 x 128,256 x 4,096, and 131,072 x 128 x 2 B of RoPE."""
    parts = held("llama-3.1-8b")

    ends = 2 * 128_256 * 4096 * 2 / GIB
    layer = 4096 * (4096 + 1024) * 2 + 3 * 4096 * 14_336 + 2 * 4096
    assert parts["embedding and head"] == pytest.approx(ends)
    assert parts["layers"] == pytest.approx((32 * layer + 4096) * 2 / GIB, rel=1e-6)
    assert parts["RoPE tables"] == 131_072 * 128 * 2 / GIB
    assert set(parts) == {"layers", "embedding and head", "RoPE tables"}


def test_weights_are_shared_by_devices_but_for_tables() -> None:
    """Half of each on two; cosines and sines on both."""
    one, two = held("llama-3.1-8b"), held("llama-3.1-8b", tp=2)

    assert two["embedding and head"] == pytest.approx(one["embedding and head"] / 2)
    assert two["layers"] == pytest.approx(one["layers"] / 2, rel=1e-4)  # norms are on both
    assert two["RoPE tables"] == one["RoPE tables"]


@pytest.mark.parametrize(
    ("first", "last", "ends"), [(True, True, 1), (True, False, 1), (False, True, 1), (False, False, 0)]
)
def test_tied_tables_are_at_both_ends(first: bool, last: bool, ends: int) -> None:
    """Qwen2.5-1.5B: 151,936 x 1,536 x 2 B in the first stage and in the last, once where they are one."""
    parts = held_weights(asked("qwen2.5-1.5b").ready, Stage(7, first=first, last=last)).parts

    assert parts.get("embedding and head", 0.0) == ends * 151_936 * 1536 * 2


@pytest.mark.parametrize("ends", [(True, False), (False, True)])
def test_a_table_of_its_own_is_at_each_end(ends: tuple[bool, bool]) -> None:
    """Llama-3.1-8B: the embedding in the first stage, the head in the last, and a share of layers in both."""
    whole = asked("llama-3.1-8b").ready
    part = held_weights(whole, Stage(8, *ends)).parts

    assert part["embedding and head"] == 128_256 * 4096 * 2
    assert part["layers"] == pytest.approx(held_weights(whole, Stage(32, first=True, last=True)).parts["layers"] / 4)


@pytest.mark.parametrize(
    ("model", "tp", "halves", "rope"),
    [
        # 27 layers x 16 heads x 512 x (128 + 128) x 2 B; 163,840 positions x 64 x 2 B
        ("deepseek-v2-lite", 1, 27 * 16 * 512 * 256 * 2, 163_840 * 64 * 2),
        ("deepseek-v3.2", 8, 61 * 128 * 512 * 256 * 2 / 8, 163_840 * 64 * 2),
        ("llama-3.1-8b", 1, 0.0, 131_072 * 128 * 2),
        # two widths of RoPE, 256 of windows and 512 of full layers; 262,144 positions
        ("gemma-4-31b-it", 1, 0.0, 262_144 * (256 + 512) * 2),
    ],
)
def test_tables_that_the_engine_makes(model: str, tp: int, halves: float, rope: float) -> None:
    """Halves of MLA's up-projection, once more; cosines and sines of every position."""
    ready = asked(model, "h200-sxm", cut={"tp": tp}).ready

    assert halves == latent_halves(ready)
    assert rope == rope_bytes(ready)


def test_experts_in_mxfp4_are_padded_to_256() -> None:
    """gpt-oss-120b: 36 x 128 experts x 3 x 2,880 x 2,880 / 2 B, of 2,880 columns made 3,072: 1/15 more."""
    packed = 36 * 128 * 3 * 2880 * 2880 / 2

    assert padded_experts(asked("gpt-oss-120b").ready) == pytest.approx(packed / 15, rel=2e-3)
    assert padded_experts(asked("qwen3-30b-a3b").ready) == 0.0
    assert padded_experts(asked("deepseek-v3.2", "h200-sxm", cut={"tp": 8}).ready) == 0.0


def test_the_allocator_s_rest_of_whole_layers() -> None:
    """Llama's fused matrices are whole MiB: 48, 32, 224 and 112; of Gemma 3 12B's each layer leaves 1 MiB."""
    assert allocator_rest(asked("llama-3.1-8b").ready) == 0.0
    # 48 layers: qkv (16 + 2 x 8) x 256 x 3,840 x 2 B = 60; o 30; gate and up 225, rest 1; down 112.5: 1.5 is split off
    assert allocator_rest(asked("gemma-3-12b-it").ready) == 48 * MIB


def test_towers_are_shared_by_devices() -> None:
    """Gemma 3's vision tower and its projection, 2 B a parameter."""
    one, two = (asked("gemma-3-12b-it", cut={"tp": tp}).ready for tp in (1, 2))
    parameters = sum(tower.parameters for tower in one.model.spec.towers)

    assert towers_bytes(one) == 2 * parameters == 2 * towers_bytes(two)
    assert 0.40e9 < parameters < 0.43e9


def test_a_tower_is_in_the_first_stage() -> None:
    """Gemma 3: pictures come before the first layer."""
    ready = asked("gemma-3-12b-it").ready
    first, last = (held_weights(ready, Stage(24, *ends)).parts for ends in ((True, False), (False, True)))

    assert (first["towers"], "towers" in last) == (towers_bytes(ready), False)


@pytest.mark.parametrize(
    ("model", "cut", "flags", "sigma"),
    [
        ("llama-3.1-8b", {}, {}, 0.02),
        # 0.4 % of 8.49 GiB more
        ("llama-3.1-8b", {}, {"quantization": "fp8"}, 0.02 + 0.004 * 8.49),
        # and three tenths of what kernels pad of MXFP4 experts, 3.56 GiB
        ("gpt-oss-120b", {}, {}, 0.02 + 0.004 * 64.37 + 0.3 * 3.561),
        # half of what the tower takes on one of two devices, 0.785 / 2
        ("gemma-3-12b-it", {"tp": 2}, {}, 0.02 + 0.5 * 0.392),
    ],
)
def test_the_spread_of_weights(model: str, cut: Any, flags: Any, sigma: float) -> None:
    """Plain weights are known to 0.02 GiB; formats, kernels and towers widen it."""
    weights = term(memory(asked(model, cut=cut, engine_version="0.19.0", **flags)), "weights")

    assert (weights.high - weights.bytes) / GIB / Z80 == pytest.approx(sigma, rel=0.01)


# activations


def test_a_forward_pass_is_as_wide_as_its_widest_layer() -> None:
    """Llama-3.1-8B, N = 8,192: 2 B x (3 x 4,096 + 3 x 14,336) and 0.075 GiB; on two devices 1.5 x 14,336."""
    one, two = (asked("llama-3.1-8b", cut={"tp": tp}).ready for tp in (1, 2))

    assert forward_bytes(one, 8192) == 8192 * 2 * (3 * 4096 + 3 * 14_336) + 0.075 * GIB
    assert forward_bytes(two, 8192) == 8192 * 2 * (3 * 4096 + 3 * 7168) + 0.075 * GIB
    assert forward_bytes(one, 100, width=4.0, rest=0.0) == 100 * 4 * (3 * 4096 + 3 * 14_336)


def test_a_plain_feed_forward_has_two_of_its_width() -> None:
    """Falcon-7B: 2 x 4 x 4,544 are wider than queries, keys, values and output."""
    assert forward_bytes(asked("falcon-7b").ready, 1, rest=0.0) == 2 * (3 * 4544 + 2 * 4 * 4544)


def test_attention_may_be_the_widest() -> None:
    """Qwen3-30B-A3B has routed experts only: (32 + 2 x 4) heads x 128 and an output of 2,048 are 7,168."""
    assert forward_bytes(asked("qwen3-30b-a3b").ready, 1, rest=0.0) == 2 * (3 * 2048 + 7168)


def test_experts_results_have_two_workspaces() -> None:
    """Qwen1.5-MoE: k = 4, I = 1,408, h = 2,048: N x 4 x (2,816 + 2,048) x 2 B; tokens beyond 32,768 wait."""
    ready = asked("qwen1.5-moe-a2.7b").ready

    assert workspace_bytes(ready, 8192) == 8192 * 4 * (2816 + 2048) * 2
    assert workspace_bytes(ready, 100_000) == 32_768 * 4 * (2816 + 2048) * 2
    assert workspace_bytes(ready, 10, width=4.0) == 10 * 4 * (2816 + 2048) * 4
    # on two devices I = 704: 2 I < h, so N x 4 x (2,048 + 2,048) x 2 B
    assert workspace_bytes(asked("qwen1.5-moe-a2.7b", cut={"tp": 2}).ready, 8192) == 8192 * 4 * 4096 * 2
    assert workspace_bytes(asked("llama-3.1-8b").ready, 8192) == 0.0


@pytest.mark.parametrize(
    ("profiled", "expected"),
    [
        # 1,024 x 128,256 x (2 + 12.5) and (8,192 + 1,024) x 4,096 x 2 B, and 0.04 GiB
        (Profiled(8192, 1024, 12.5), 1024 * 128_256 * 14.5 + 9216 * 4096 * 2 + 0.04 * GIB),
        (Profiled(8192, 256, 36.0), 256 * 128_256 * 38 + 8448 * 4096 * 2 + 0.04 * GIB),
        # no more rows than tokens
        (Profiled(100, 1024, 12.5), 100 * 128_256 * 14.5 + 200 * 4096 * 2 + 0.04 * GIB),
        (Profiled(8192, 1024, 12.5, width=4.0), 1024 * 128_256 * 16.5 + 9216 * 4096 * 4 + 0.04 * GIB),
    ],
)
def test_sampling_is_by_rows_and_vocabulary(profiled: Profiled, expected: float) -> None:
    """Logits are gathered: two devices take as much each."""
    for tp in (1, 2):
        assert expected == pytest.approx(sampler_bytes(asked("llama-3.1-8b", cut={"tp": tp}).ready, profiled))


def test_sparse_attention_gathers_keys_and_latents() -> None:
    """DeepSeek-V3.2 at 131,072 tokens: 40 x 132 + 5 x 576 x 2 B each, and 0.5 GiB."""
    ready = asked("deepseek-v3.2", "h200-sxm", cut={"tp": 8}).ready

    assert sparse_bytes(ready, 131_072) == 131_072 * (40 * 132 + 5 * 576 * 2) + 0.5 * GIB
    assert sparse_bytes(asked("deepseek-v2-lite").ready, 131_072) == 0.0


def test_pictures_are_kept_while_it_profiles() -> None:
    """Gemma 3 12B: 8,192 x 3,840 x 2 B and 0.144 GiB; a model without a vision tower none."""
    assert pictures_bytes(asked("gemma-3-12b-it").ready, 8192, 2.0) == 8192 * 3840 * 2 + 0.144 * GIB
    assert pictures_bytes(asked("gemma-3-270m").ready, 8192, 2.0) == 0.0


def test_a_peak_is_the_larger_of_forward_and_sampler() -> None:
    """With experts' results beside both where they stay, else within the forward pass."""
    ready = asked("qwen1.5-moe-a2.7b").ready
    forward, work = forward_bytes(ready, 8192), workspace_bytes(ready, 8192)
    many, few = Profiled(8192, 1024, 12.5), Profiled(8192, 1, 12.5)

    assert profile_peak(ready, many) == sampler_bytes(ready, many) + work
    assert profile_peak(ready, few) == max(forward, sampler_bytes(ready, few)) + work
    assert profile_peak(ready, replace(many, shared_workspace=False)) == sampler_bytes(ready, many)
    assert profile_peak(ready, replace(few, shared_workspace=False)) == forward + work


def test_stages_pass_hidden_states_on() -> None:
    """2 x 8,192 x 4,096 x 2 B more with stages."""
    one, two = (asked("llama-3.1-8b", cut={"pp": pp}).ready for pp in (1, 2))
    profiled = Profiled(8192, 1024, 12.5)

    assert profile_peak(two, profiled) - profile_peak(one, profiled) == 2 * 8192 * 4096 * 2


def test_only_the_last_stage_samples() -> None:
    """Llama-3.1-8B in two: the first has a forward pass and hidden states that it passes on, 2 x 8,192 x 4,096 x 2 B."""
    started = start(asked("llama-3.1-8b", cut={"pp": 2}), rules_of("0.19.0")[0])
    first, last = (
        next(term for term in stage_terms(started, Stage(16, *ends), {}) if term.name == "activation").bytes
        for ends in ((True, False), (False, True))
    )

    passed = 2 * 8192 * 4096 * 2
    assert first == 8192 * 2 * (3 * 4096 + 3 * 14_336) + 0.075 * GIB + passed
    assert last == pytest.approx(1024 * 128_256 * 14.5 + 9216 * 4096 * 2 + 0.04 * GIB + passed)


@pytest.mark.parametrize(
    "record", [r for r in having("activation") if r.id.startswith("vllm-10517")], ids=lambda r: r.id
)
def test_v0_profiles_a_whole_prompt_eagerly(record: Record) -> None:
    """2.07 GiB of 20,000 tokens and 2.99 of 29,000, on an RTX 3090."""
    assert record.logged["activation"] == pytest.approx(gib(memory(record.served()), "activation"), abs=0.02)


@pytest.mark.parametrize(("version", "row"), [("0.16.0", 36.0), ("0.17.0", 12.5), ("0.22.0", 12.5)])
def test_sampling_shrank_with_0_17(version: str, row: float) -> None:
    """Llama-3.1-8B: 1,024 rows x 128,256 x (2 + r) B."""
    peak = gib(memory(asked("llama-3.1-8b", engine_version=version)), "activation")

    assert peak == pytest.approx((1024 * 128_256 * (2 + row) + 9216 * 4096 * 2) / GIB + 0.04)


def test_the_second_runner_samples_in_place() -> None:
    """0.24 serves Llama by it: 1,024 x 128,256 x (2 + 4) B, and no graphs; Qwen 2.5 is served as before."""
    llama, qwen = (memory(asked(name, engine_version="0.24.0")) for name in ("llama-3.1-8b", "qwen2.5-7b-instruct"))

    forward = 8192 * 2 * (3 * 4096 + 3 * 14_336) / GIB + 0.075
    assert gib(llama, "activation") == pytest.approx(max(forward, (1024 * 128_256 * 6 + 9216 * 4096 * 2) / GIB + 0.04))
    assert [term.name for term in llama.terms] == ["visible", "budget", "weights", "activation", "non_torch", "kv"]
    assert "cuda_graphs" in [term.name for term in qwen.terms]
