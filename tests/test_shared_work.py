"""What devices that share a model hold and do beyond their share: indexes, ends of a pipeline, chunks, masks in files."""

from __future__ import annotations

from dataclasses import replace

import pytest

from roofcast.calculators.deployment import Deployment, Ready, cache_on_one, prepare
from roofcast.calculators.estimate import ready_remarks, term_rows
from roofcast.calculators.parallel import Level, Span, all_to_all, exchange_cost, fabric_of
from roofcast.calculators.phases import Asked, answer_point
from roofcast.calculators.roofline import roofs_of
from roofcast.calculators.step import estimate
from roofcast.calculators.variants import Base, of_cache, of_weights
from roofcast.hwdb.lookup import find_accelerator
from roofcast.modelspec.formats import FORMATS
from roofcast.modelspec.model import load_model
from roofcast.modelspec.op import Exchange
from roofcast.modelspec.requested import find_requested
from roofcast.modelspec.sharding import Shards
from roofcast.modelspec.source import resolve
from roofcast.modelspec.spec import build_spec
from roofcast.modelspec.step import chunked_prefill, decode_step, prefill_step
from tests.model_configs import DEEPSEEK


def ready(name: str, shards: Shards, gpu: str = "h200-sxm") -> Ready:
    """Return a catalogue model on devices that share it so."""
    model = load_model(resolve(name, offline=True))
    return prepare(model, Deployment(find_accelerator(gpu).accelerator, FORMATS["bf16"], shards=shards))


def test_an_index_scores_on_every_device() -> None:
    """DeepSeek-V3.2's index is whole on each of 8 GPUs, keys, projections and scores; its latent attention splits.

    A layer, 65,536 tokens: latents 2 (n 2048 - 2048^2 / 2) 128 (128 + 64 + 128), index 2 (n^2 / 2) 64 x 128.
    """
    latents = 2 * (65536 * 2048 - 2048**2 / 2) * 128 * 320
    index = 2 * (65536**2 / 2) * 64 * 128
    made = estimate(ready("deepseek-v3.2-exp", Shards(tp=8)), prefill_step(1, 65536))
    (attention,), (scores,) = made.term("attn.prefill"), made.term("index.prefill")

    assert attention.op.flops == pytest.approx(61 * latents / 8)  # type: ignore[union-attr]
    assert scores.op.flops == pytest.approx(61 * index)  # type: ignore[union-attr]


def test_an_index_scores_on_every_device_in_decode() -> None:
    """At 65,536 tokens: 2,048 selected latents, absorbed, over 8 GPUs, and all index keys on each, in FP8 with a scale."""
    latents, index = 2 * 2048 * 128 * (2 * 512 + 64), 2 * 65536 * 64 * 128
    made = estimate(ready("deepseek-v3.2-exp", Shards(tp=8)), decode_step(4, 65536))
    (attention,), (scores,) = made.term("attn.decode"), made.term("index.decode")

    assert attention.op.flops == pytest.approx(61 * 4 * latents / 8)  # type: ignore[union-attr]
    assert scores.op.flops == pytest.approx(61 * 4 * index)  # type: ignore[union-attr]
    assert scores.op.state_read == 61 * 4 * 65536 * 132  # type: ignore[union-attr]
    assert scores.op.format == "fp8"


def test_tokens_go_to_the_groups_that_they_choose() -> None:
    """DeepSeek-V3's 256 experts stand in 8 groups, of which a token chooses 4: of 8 GPUs at most 4, here 3.6."""
    eight = Span(Level("scale-up", 8, 450e9, 0.6e-6), 8, 1)
    everywhere = Exchange("ep", "all_to_all", 1e6, 8, 1, 1, fan=8)
    chosen = replace(everywhere, groups=(8, 4))

    assert all_to_all(everywhere, eight)[1] == pytest.approx(1e6 * 8 * (1 - (7 / 8) ** 8) * 7 / 8)
    assert all_to_all(chosen, eight)[1] == pytest.approx(1e6 * 4 * (1 - (3 / 4) ** 8) * 7 / 8)
    assert build_spec(DEEPSEEK | {"n_group": 8, "topk_group": 4, "n_routed_experts": 256}).experts[0].groups == (8, 4)


def test_sums_take_the_quicker_way_over_nested_links() -> None:
    """Four H100 PCIe in two bridged pairs: a small sum is one hop over PCIe, quicker than two and one of pairs."""
    fabric = fabric_of(find_accelerator("h100-pcie").accelerator, 4, None)
    cost = exchange_cost(Exchange("tp", "all_reduce", 8192.0, 4, 1, 1), fabric)

    assert [level.name for level in fabric.levels] == ["scale-up", "pcie"]
    assert cost.seconds == pytest.approx(1.0e-6 + 3 * 8192 / fabric.levels[1].bandwidth)


def test_what_is_sent_is_said() -> None:
    """Llama 70B on 8 GPUs: 161 sums of 64 tokens of 8,192 elements, each once to the switch and back."""
    point = answer_point(ready("llama-3.1-70b", Shards(tp=8), "h100-sxm"), Asked("decode", 64, 4096))
    (row,) = (term for term in term_rows(ready("llama-3.1-70b", Shards(tp=8)), point) if term.term == "tp.all_reduce")

    assert row.exchanged_bytes == 161 * 64 * 8192 * 2
    assert (row.bytes, row.flops, row.format) == (0, 0, None)


def test_the_quickest_format_is_computed_in() -> None:
    """A Tesla P40's fp16 is 1/64 of its fp32, and its int8 four times that: F16 in fp32, llama.cpp's types in int8."""
    p40, h100 = (roofs_of(find_accelerator(name).accelerator) for name in ("p40", "h100"))

    assert (p40.instead["fp16"], p40.instead["bf16"], p40.instead["ggml"]) == ("fp32", "fp32", "int8")
    assert (h100.instead["ggml"], h100.instead["fp4"]) == ("fp16", "bf16")
    assert roofs_of(find_accelerator("rtx-4090").accelerator, "llama.cpp").instead["ggml"] == "fp16_acc16"


def test_a_pipeline_waits_for_its_longest_piece() -> None:
    """Llama 70B on 4 stages of 20 layers, 8,192 tokens in 2,048: all pieces in a stage, the last also in the others."""
    made = ready("llama-3.1-70b", Shards(pp=4), "h100-sxm")
    pieces = [estimate(made, step).bound for step in chunked_prefill(1, 8192, 2048)]
    point = answer_point(made, Asked("prefill", 1, 8192, budget=2048))

    assert pieces == sorted(pieces)
    assert point.bound == pytest.approx(sum(pieces) / 4 + pieces[-1] * 3 / 4)
    assert point.steps == 4


def test_small_weights_may_stay_on_chip() -> None:
    """SmolLM2 135M in 4 bits is 67 MB, less than a B200's L2: said; in 16 bits it is more."""
    model, b200 = load_model(resolve("smollm2-135m", offline=True)), find_accelerator("b200").accelerator
    said = {
        name: ready_remarks(prepare(model, Deployment(b200, FORMATS["bf16"], FORMATS[name])), [1024]).warnings
        for name in ("int4", "fp32")
    }

    assert {name: any("L2" in line for line in lines) for name, lines in said.items()} == {"int4": True, "fp32": False}


def test_terms_of_a_mix_are_by_matrix() -> None:
    """Q4_K_M of Llama 3.1 8B: gate and up in Q4_K, 4.5 bits; down in Q6_K in half of the layers, else Q4_K."""
    model = load_model(resolve("llama-3.1-8b", offline=True))
    deployment = Deployment(find_accelerator("rtx-4090").accelerator, FORMATS["fp16"], find_requested("q4_k_m"))
    made = estimate(prepare(model, deployment), decode_step(1, 1024))
    (gates,), (down,) = made.term("ffn.gate_up"), made.term("ffn.down")
    matrix = 4096 * 14336

    assert gates.op.bytes == pytest.approx(32 * 2 * matrix * 144 / 256)  # type: ignore[union-attr]
    assert down.op.bytes == pytest.approx(16 * matrix * (144 + 210) / 256)  # type: ignore[union-attr]


def test_nothing_is_quicker_than_all_at_once() -> None:
    """Overlapped without limit a mixed step takes the most of all arithmetic and all memory, less than one by one."""
    point = answer_point(ready("llama-3.1-8b", Shards(), "h100-sxm"), Asked("mixed", 64, 4096, budget=2048))
    arithmetic = sum(op.flops for op in point.work.ops) / 989.4e12
    memory = sum(op.bytes for op in point.work.ops) / 3350e9

    assert point.overlapped == pytest.approx(max(arithmetic, memory))
    assert point.overlapped < point.bound  # type: ignore[operator]


def test_replicas_without_a_sequence_meet_no_experts() -> None:
    """One sequence on 16 replicas chooses 8 of 256 experts a layer; 17 are 2 on the fullest, and 17 in all."""
    made = ready("deepseek-v3", Shards(dp=16, ep=16))
    expert = {"moe.gate_up": 2 * 2048 * 7168, "moe.down": 2048 * 7168}

    for batch in (1, 17):
        distinct = 256 * (1 - (1 - 8 / 256) ** batch)
        terms = answer_point(made, Asked("decode", batch, 4096)).work
        for name, elements in expert.items():
            (term,) = terms.term(name)
            assert term.op.flops == pytest.approx(58 * 2 * batch * 8 * elements / 16)  # type: ignore[union-attr]
            assert term.op.bytes == pytest.approx(58 * distinct / 16 * elements, rel=1e-3)  # type: ignore[union-attr]


def test_no_more_rows_are_looked_up_than_there_are() -> None:
    """A prompt of 64 x 131,072 tokens looks up 128,256 rows at most: the table."""
    (term,) = estimate(ready("llama-3.1-8b", Shards()), prefill_step(64, 131072)).term("embedding")

    assert term.op.bytes == 128_256 * 4096 * 2  # type: ignore[union-attr]


def test_the_last_tokens_of_a_prompt_stay_in_16_bits() -> None:
    """KIVI writes a prompt of 1,152 tokens as 1,024 in 3 bits and 128 in 16."""
    model = load_model(resolve("llama-3.1-8b", offline=True))
    made = prepare(model, Deployment(find_accelerator("h100").accelerator, FORMATS["kivi2"]))
    (term,) = estimate(made, prefill_step(1, 1152)).term("attn.prefill")

    assert term.op.state_written == 32 * 2048 * (1024 * 3 / 8 + 128 * 2)  # type: ignore[union-attr]


def test_cached_latents_are_expanded_or_seen_absorbed() -> None:
    """Behind 4,096 cached tokens, DeepSeek-V3 expands them for 2,048 new ones, and sees them absorbed for one."""
    made = ready("deepseek-v3", Shards(tp=8), "b200")
    pairs = {new: (4096 + new) ** 2 / 2 - 4096**2 / 2 for new in (2048, 1)}
    expansion = 2 * 4096 * 512 * 128 * 256
    absorbed = 2 * 1 * 4096 * 128 * (1024 - 256)
    expected = {2048: 2 * pairs[2048] * 128 * 320 + expansion, 1: 2 * pairs[1] * 128 * 320 + absorbed}

    for new, flops in expected.items():
        (term,) = estimate(made, prefill_step(1, 4096 + new, cached=4096)).term("attn.prefill")
        assert term.op.flops == pytest.approx(61 * flops / 8)  # type: ignore[union-attr]


def test_the_fullest_stage_holds_an_end() -> None:
    """Llama 3.1 8B over 4 stages: 8 layers of 218,112,000 parameters and embedding or head, 128,256 x 4,096."""
    made = ready("llama-3.1-8b", Shards(pp=4))

    assert made.weight_bytes == pytest.approx(2 * (8 * 218_112_000 + 128_256 * 4096), rel=1e-4)


def test_the_fullest_stage_holds_most_of_the_cache() -> None:
    """61 layers over 2 stages: 31 of them on one, each with 576 elements a token."""
    assert cache_on_one(ready("deepseek-v3", Shards(pp=2, tp=8)), 1, 4096) == pytest.approx(31 * 576 * 2 * 4096)


def test_every_part_of_a_pipeline_takes_a_chunk() -> None:
    """64 sequences over 4 stages are 4 parts of 16; beside each, 496 of 512 tokens are a prompt's."""
    point = answer_point(ready("llama-3.1-8b", Shards(pp=4)), Asked("mixed", 64, 4096, budget=512))

    assert point.tokens == 64 + 4 * 496


def test_prompts_beside_decoding_sequences_take_their_room() -> None:
    """A mixed step fits where the cache of its prompt does too: 17 sequences and not 16 at 32k on an H100."""
    made = ready("llama-3.1-8b", Shards(), "h100-sxm")

    assert answer_point(made, Asked("decode", 16, 32768)).fits
    assert not answer_point(made, Asked("mixed", 16, 32768)).fits


def test_masks_in_files_are_no_weights() -> None:
    """GPT-2 medium's files hold causal masks; a step reads 4 bytes of each parameter but the 1,023 other positions."""
    made = estimate(ready("gpt2-medium", Shards()), decode_step(1, 128))

    assert made.weight_bytes == pytest.approx(4 * (354_823_168 - 1024 * 1024 + 2 * 1024), rel=1e-6)
    assert {op.format for op in made.ops if op.name == "ffn.down"} == {"fp32"}


def test_weights_of_experts_that_are_shared_can_be_narrower() -> None:
    """Over 16 replicas that share experts, weights of 8 bits are offered in 4, as on 8 GPUs."""
    made = ready("deepseek-v3", Shards(dp=16, ep=16))

    assert [change.change for change in of_weights(Base(made, 16, 4096, 4096))] == [
        "weights in int4",
        "weights in q4_k_m",
    ]


def test_a_model_without_a_cache_has_none_to_narrow() -> None:
    """Pure Mamba keeps states alone, which no format of the cache changes."""
    assert list(of_cache(Base(ready("falcon-mamba-7b", Shards()), 16, 4096, 4096))) == []


def test_decimal_shares_are_whole_tokens() -> None:
    """29 % of 100 tokens are 29; at least one token is computed anew."""
    assert Asked("prefill", 1, 100, cached=0.29).hit == 29
    assert Asked("prefill", 1, 100, cached=0.9999).hit == 99
