"""Work and least time of whole steps on one device, worked by hand from the sizes of published models."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest

from roofcast.calculators.deployment import Deployment, Ready, prepare
from roofcast.calculators.flops import crossover_tokens
from roofcast.calculators.phases import Asked, Point, answer_point, most_sequences
from roofcast.calculators.step import Estimate, estimate
from roofcast.hwdb.lookup import find_accelerator
from roofcast.modelspec.formats import FORMATS
from roofcast.modelspec.requested import find_requested
from roofcast.modelspec.step import Step, decode_step
from tests.checkpoints import DEEPSEEK_V3, LLAMA_3_1_8B, catalogued, loaded

BF16 = 2  # B
H200, RIDGE_H200 = 4.8e12, 989.4e12 / 4.8e12  # B/s, FLOP/B
LLAMA = 32 * (2 * 4096 * 4096 + 2 * 4096 * 1024 + 3 * 4096 * 14336)  # weights of all matrices in the layers
LLAMA_NORMS, LLAMA_HEAD = 65 * 4096, 128256 * 4096


@cache
def ready(name: str, gpu: str = "h200", kv: str = "bf16", weights: str | None = None) -> Ready:
    """Prepare a model of the catalogue on one device."""
    asked = find_requested(weights) if weights else None
    return prepare(catalogued(name), Deployment(find_accelerator(gpu).accelerator, FORMATS[kv], asked))


def decode(made: Ready, batch: int, context: int) -> Point:
    """Answer a decode step."""
    return answer_point(made, Asked("decode", batch, context))


def prefill(made: Ready, prompt: int, batch: int = 1, **more: Any) -> Point:
    """Answer a prompt."""
    return answer_point(made, Asked("prefill", batch, prompt, **more))


def term(work: Estimate, name: str) -> tuple[float, float, float]:
    """FLOP, bytes of weights and state, and least seconds of the terms of a name."""
    terms = work.term(name)
    ops = [op for op in work.ops if op.name == name]
    return sum(op.flops for op in ops), sum(op.bytes for op in ops), sum(one.bound for one in terms)


def roof(flops: float, size: float, peak: float = 989.4e12, bandwidth: float = H200) -> float:
    """The later of arithmetic and memory."""
    return max(flops / peak, size / bandwidth)


# --- Qwen2.5-1.5B: 28 layers, 12 query heads on 2 KV heads of 128, h 1536, f 8960, one table of 151936


QWEN = 28 * (2 * 1536**2 + 2 * 1536 * 256 + 1536 + 512 + 3 * 1536 * 8960 + 2 * 1536) + 1536 + 151936 * 1536
QWEN_KV = 28 * 2 * 2 * 128 * 2  # B a token


@pytest.mark.parametrize(("batch", "milliseconds"), [(1, 5.1), (16, 5.8)])
def test_qwen_decodes_on_a_2080_ti(batch: int, milliseconds: float) -> None:
    """3.09 GB of weights, and 29 MB a sequence, at 616 GB/s; every matrix is limited by memory."""
    point = decode(ready("qwen2.5-1.5b", "rtx-2080-ti", "fp16", "fp16"), batch, 1024)
    size = 2 * QWEN + batch * (1024 * QWEN_KV + 1536 * 2)  # each looks up a row of the table too

    assert (QWEN, QWEN_KV) == (1_543_714_304, 28_672)
    assert round(size / 616e9 * 1e3, 1) == milliseconds
    assert point.bound == pytest.approx(size / 616e9, rel=1e-9)
    assert {one.bound_by for one in point.work.terms} == {"memory"}


@pytest.mark.parametrize(("context", "about"), [(1024, 42), (4096, 23), (32768, 9)])
def test_qwen_at_batch_64_loses_intensity_with_context(context: int, about: int) -> None:
    """(2 N + 4 L C n_q d) / (2 N / 64 + C KV) FLOP/B: a ridge of 87 is never reached."""
    work = decode(ready("qwen2.5-1.5b", "rtx-2080-ti", "fp16", "fp16"), 64, context).work
    flops = 64 * (2 * QWEN + 28 * 4 * context * 12 * 128)

    assert work.flops == flops
    assert work.bytes == 2 * QWEN + 64 * (context * QWEN_KV + 1536 * 2)
    assert round(work.intensity) == about < 53.8e12 / 616e9


def test_what_does_not_fit_has_work_and_no_time() -> None:
    """64 x 32,768 tokens take 60.1 GB beside 3.1 GB of weights: intensity is known, times are not."""
    point = decode(ready("qwen2.5-1.5b", "rtx-2080-ti", "fp16", "fp16"), 64, 32768)

    assert point.work.bytes / 1e9 == pytest.approx(63.2, abs=0.05)
    assert (point.bound, point.full, point.rate, point.fits) == (None, None, None, False)
    assert "60.1 GB" in point.reason


def test_qwen_keeps_7_5_gb_at_256_sequences() -> None:
    """256 x 1,024 x 28,672 B; at batch 1 a step does about one FLOP a byte of what it reads."""
    made = ready("qwen2.5-1.5b", "rtx-2080-ti", "fp16", "fp16")

    assert decode(made, 256, 1024).work.state_bytes == 256 * 1024 * QWEN_KV == 7_516_192_768
    assert decode(made, 1, 1024).work.intensity == pytest.approx(1, abs=0.06)


@pytest.mark.parametrize(("name", "queries"), [("qwen2.5-1.5b", 6), ("llama-3.1-8b", 4), ("llama-2-7b", 1)])
def test_attention_in_decode_has_the_intensity_of_its_group(name: str, queries: int) -> None:
    """4 C n_q d FLOP over 2 x 2 C n_kv d bytes of 16 bits: n_q / n_kv, whatever the batch and the context."""
    for batch, context in ((1, 100), (64, 4096)):
        flops, size, _ = term(estimate(ready(name), decode_step(batch, context)), "attn.decode")
        assert flops == queries * size


def test_absorbed_mla_is_above_the_ridge_of_an_h200() -> None:
    """DeepSeek-V3: 128 heads x 2 (512 + 64 + 512) FLOP over 576 x 2 bytes is 241.8; an H200 turns at 206.1."""
    flops, size, seconds = term(estimate(ready("deepseek-v3"), decode_step(32, 4096)), "attn.decode")

    assert round(RIDGE_H200, 1) == 206.1
    assert (flops, size) == (61 * 32 * 4096 * 128 * 2 * 1088, 61 * 32 * 4096 * 576 * 2)
    assert round(flops / size, 1) == 241.8
    assert seconds == pytest.approx(flops / 989.4e12, rel=1e-12)


# --- Llama 3.1 8B


@pytest.mark.parametrize(("context", "gigabytes"), [(4096, 0.54), (131072, 17.18)])
def test_llama_reads_its_cache_every_step(context: int, gigabytes: float) -> None:
    """32 x 2 x 8 x 128 x 2 = 131,072 B a token; of 16.06 GB of weights the 1.05 GB of the input table are not read."""
    work = decode(ready("llama-3.1-8b"), 1, context).work

    assert work.state_bytes == 131072 * context == pytest.approx(gigabytes * 1e9, rel=0.01)
    assert work.weight_bytes == BF16 * (LLAMA + LLAMA_NORMS + LLAMA_HEAD + 4096)
    assert round(work.weight_bytes / 1e9, 1) == 15.0


def test_attention_passes_the_matrices_of_a_prompt() -> None:
    """At N / (L n_q d) = 53,250 tokens scores cost as much as all else but the head."""
    made = ready("llama-3.1-8b")
    tokens = crossover_tokens(made.model.spec)
    assert tokens == 53250

    for prompt, more in ((tokens - 10, False), (tokens + 10, True)):
        work = prefill(made, prompt).work
        scores = term(work, "attn.prefill")[0]
        assert (scores > work.flops - scores - 2 * LLAMA_HEAD) is more


def test_a_prompt_of_llama_is_bound_by_compute() -> None:
    """4,096 tokens on an H200: 61.6 TFLOP at 989.4 TFLOP/s, one position of the head and rows of the table at 4.8 TB/s."""
    point = prefill(ready("llama-3.1-8b"), 4096)
    heavy = 2 * 4096 * (LLAMA + LLAMA_NORMS) + 2 * 32 * 4096**2 * 4096
    light = BF16 * (LLAMA_HEAD + 4096 * 4096)

    assert point.work.flops == heavy + 2 * LLAMA_HEAD
    assert point.bound == pytest.approx(heavy / 989.4e12 + light / H200, rel=1e-9)
    assert point.work.state_bytes == 4096 * 131072  # written, not read: nothing was there before


def q4_k_m(part: int) -> float:
    """Bytes of what llama.cpp writes of Llama 3.1 8B as Q4_K_M: half the value and down matrices, and the head, in q6_k."""
    half = 16 * (4096 * 1024 + 4096 * 14336)
    low, high = (LLAMA - half) * 144 / 256, half * 210 / 256
    return (low + high, 4 * LLAMA_NORMS, LLAMA_HEAD * 210 / 256)[part]


def test_q4_k_m_speeds_decode_up_to_the_byte_ratio() -> None:
    """4.6 GB read instead of 15.0: 3.3 times as fast at an empty cache, less with one that stays as it is."""
    plain, packed = (ready("llama-3.1-8b", "h100", "bf16", weights) for weights in ("fp16", "q4_k_m"))
    read = sum(map(q4_k_m, range(3)))
    row = 4096 * 144 / 256

    short, long = (decode(packed, 1, context) for context in (1, 8192))
    assert short.work.weight_bytes == pytest.approx(read + row, rel=1e-6)
    assert long.bound == pytest.approx((read + row + 8192 * 131072) / 3.35e12, rel=1e-6)
    ratio = (2 * (LLAMA + LLAMA_NORMS + LLAMA_HEAD)) / read
    assert decode(plain, 1, 1).bound / short.bound == pytest.approx(ratio, rel=1e-4)  # type: ignore[operator]
    assert 2.5 < decode(plain, 1, 8192).bound / long.bound < ratio  # type: ignore[operator]


def test_q4_k_m_speeds_a_compute_bound_prompt_not_at_all() -> None:
    """Weights are widened to 16 bits: every matrix and the scores take as long; the head, read for one position, less."""
    plain, packed = (prefill(ready("llama-3.1-8b", "h100", "bf16", weights), 4096) for weights in ("fp16", "q4_k_m"))
    names = {one.op.name for one in plain.work.terms} - {"embedding", "elementwise", "head"}

    assert names == {"attn.qkv", "attn.out", "attn.prefill", "ffn.gate_up", "ffn.down"}
    for name in names:
        assert term(packed.work, name)[2] == pytest.approx(term(plain.work, name)[2], rel=1e-12)
    assert packed.bound == pytest.approx(plain.bound, rel=0.005)


# --- mixtures, hybrids and windows


@pytest.mark.parametrize(("batch", "experts"), [(1, 8.0), (4, 29.12), (16, 82.42), (64, 125.94), (256, 128.0)])
def test_qwen3_30b_reads_the_experts_that_tokens_choose(batch: int, experts: float) -> None:
    """48 layers of 128 experts of 3 x 2048 x 768, 8 a token: 128 (1 - (15/16)^B) are read; 32 heads on 4 of 128."""
    context, expert = 2048, 3 * 2048 * 768
    distinct = 128 * (1 - (15 / 16) ** batch)
    dense = 48 * (2 * 2048 * 4096 + 2 * 2048 * 512 + 128 * 2048) + 151936 * 2048
    norms, state = 48 * (2 * 2048 + 2 * 128) + 2048, batch * context * 48 * 2 * 4 * 128 * 2
    scores = batch * 48 * 4 * context * 32 * 128
    point = decode(ready("qwen3-30b-a3b"), batch, context)

    assert round(distinct, 2) == experts
    assert point.work.weight_bytes == pytest.approx(
        BF16 * (dense + norms + 48 * distinct * expert + batch * 2048), rel=1e-12
    )
    assert point.work.flops == 2 * batch * (dense + norms + 48 * 8 * expert) + scores
    assert point.work.state_bytes == state
    parts = [(2 * batch * dense, 2 * dense), (2 * batch * 48 * 8 * expert, 2 * 48 * distinct * expert), (scores, state)]
    parts += [(2 * batch * norms, 2 * norms), (0, batch * 2048 * 2)]
    assert point.bound == pytest.approx(sum(roof(*part) for part in parts), rel=1e-9)


def test_dense_matrices_turn_at_the_ridge() -> None:
    """A matrix of bf16 does B FLOP a byte: at 206 sequences memory limits it still, at 207 compute."""
    for batch, limit in ((206, "memory"), (207, "compute")):
        (qkv,) = decode(ready("llama-3.1-8b"), batch, 64).work.term("attn.qkv")
        assert qkv.bound_by == limit


def test_qwen3_next_reads_and_writes_its_states() -> None:
    """36 layers of Gated DeltaNet: 32 matrices of 128 x 128 in fp32, 8,192 x 4 columns; 12 of 2 KV heads of 256."""
    batch, context = 8, 32768
    state = 2 * 36 * (32 * 128 * 128 * 4 + 8192 * 4 * 2) + 12 * context * 2 * 2 * 256 * 2
    delta = (12288 + 64) * 2048 + 2048 * 4096
    full = 2 * 16 * 256 * 2048 + 2 * 512 * 2048 + 4096 * 2048  # the query projection makes a gate as well
    dense = 36 * delta + 12 * full + 48 * (512 * 2048 + 3 * 2048 * 512 + 2048) + 151936 * 2048
    loose = 36 * (8192 * 4 + 2 * 32 + 128) + 12 * 2 * 256 + 97 * 2048
    distinct, expert = 512 * (1 - (1 - 10 / 512) ** batch), 3 * 2048 * 512
    work = decode(ready("qwen3-next-80b-a3b"), batch, context).work
    scores = 36 * 7 * 32 * 128 * 128 + 12 * 4 * context * 16 * 256

    assert work.state_bytes == batch * state
    assert work.flops == batch * (2 * (dense + loose + 48 * 10 * expert) + scores)
    assert work.weight_bytes == pytest.approx(BF16 * (dense + loose + 48 * distinct * expert + batch * 2048), rel=1e-12)


def test_nemotron_h_states_do_not_grow() -> None:
    """24 Mamba-2 layers of 128 heads of 64 x 128 in fp32 and (8192 + 2048) x 4 columns; 4 layers of 8 KV heads."""
    made, fixed, a_token = ready("nemotron-h-8b"), 24 * (128 * 64 * 128 * 4 + 10240 * 4 * 2), 4 * 2 * 8 * 128 * 2
    mamba, ffn = 4096 * (18560 + 8192), 2 * 4096 * 21504
    dense = 24 * (mamba + ffn) + 4 * (2 * 4096**2 + 2 * 4096 * 1024) + 131072 * 4096
    loose = 24 * (10240 * 5 + 3 * 128 + 8192) + 53 * 4096

    for context in (512, 8192):
        work = decode(made, 64, context).work
        assert work.state_bytes == 64 * (2 * fixed + context * a_token)
        assert work.flops == 64 * (2 * (dense + loose) + 24 * 5 * 128 * 64 * 128 + 4 * 4 * context * 4096)
        assert work.weight_bytes == BF16 * (dense + loose + 64 * 4096)
    prompt = prefill(made, 8192).work
    assert prompt.state_bytes == fixed + 8192 * a_token  # written once at its end


def test_gpt_oss_reads_128_tokens_in_every_other_layer() -> None:
    """24 layers of 64 heads on 8 of 64; 32 experts in MXFP4, 4.25 bits, with biases in bf16; a step of 16."""
    batch, context = 16, 8192
    attention, biases = 2880 * (4096 + 2 * 512) + 4096 * 2880, 4096 + 2 * 512 + 2880 + 64
    expert, expert_bias = 3 * 2880 * 2880, 3 * 2880
    distinct = 32 * (1 - (28 / 32) ** batch)
    plain = 24 * (attention + biases + 32 * 2880 + 32 + 2 * 2880) + 2880 + 201088 * 2880
    work = decode(ready("gpt-oss-20b", "h100"), batch, context).work

    assert work.state_bytes == batch * 12 * (128 + context) * 2 * 8 * 64 * 2
    stored = expert * 4.25 / 8 + expert_bias * BF16
    assert work.weight_bytes == pytest.approx(BF16 * (plain + batch * 2880) + 24 * distinct * stored, rel=1e-9)
    scores = 12 * 4 * (128 + context) * 64 * 64
    assert work.flops == batch * (2 * plain + 2 * 24 * 4 * (expert + expert_bias) + scores)


def test_a_window_bounds_a_prompt_and_a_step() -> None:
    """Gemma 3 4B, five layers of 1,024 tokens for one of all, 4 KV heads of 256: 29 and 5 layers."""
    made, context = ready("gemma-3-4b-it"), 32768
    a_layer = 2 * 4 * 256 * 2

    assert decode(made, 1, context).work.state_bytes == a_layer * (29 * 1024 + 5 * context)
    flops, _, _ = term(prefill(made, context).work, "attn.prefill")
    assert flops == 2 * 8 * 512 * (29 * (context * 1024 - 1024**2 / 2) + 5 * context**2 / 2)


# --- any config


def test_heads_work_once_a_prompt_and_once_a_token() -> None:
    """8 prompts ask for 8 positions, 8 sequences that each verify 4 drafted tokens for 32."""
    made = prepare(loaded(LLAMA_3_1_8B), Deployment(find_accelerator("h200").accelerator, FORMATS["bf16"]))

    assert term(prefill(made, 512, 8).work, "head")[0] == 8 * 2 * LLAMA_HEAD
    assert term(estimate(made, decode_step(8, 512, tokens=4)), "head")[0] == 32 * 2 * LLAMA_HEAD


def test_drafted_tokens_read_the_cache_once() -> None:
    """4 tokens at 1,024 attend to 1,021 to 1,024, and move 1,024 tokens of cache between them; MLA likewise."""
    accelerator = find_accelerator("h200").accelerator
    for config, a_token, heads in (
        (LLAMA_3_1_8B, 131072, 32 * 4 * 32 * 128),
        (DEEPSEEK_V3, 61 * 1152, 61 * 256 * 1088),
    ):
        made = prepare(loaded(config), Deployment(accelerator, FORMATS["bf16"]))
        step: Step = decode_step(3, 1024, tokens=4)
        flops, size, _ = term(estimate(made, step), "attn.decode")
        assert size == 3 * 1024 * a_token
        assert flops == 3 * (1021 + 1022 + 1023 + 1024) * heads


# --- steps of both kinds, chunks, and what fits


def test_a_chunk_rides_with_decoding_sequences() -> None:
    """64 sequences at 1,024 leave 448 of 512 tokens to the end of a prompt of 1,024: weights are read once for all."""
    work = answer_point(ready("llama-3.1-8b"), Asked("mixed", 64, 1024, budget=512)).work
    decoding, chunk = 64 * 32 * 4 * 1024 * 4096, 2 * 32 * (1024**2 - 576**2) * 4096

    assert work.flops == 2 * 512 * (LLAMA + LLAMA_NORMS) + 2 * 65 * LLAMA_HEAD + decoding + chunk
    assert work.weight_bytes == BF16 * (LLAMA + LLAMA_NORMS + LLAMA_HEAD + 512 * 4096)
    assert work.state_bytes == 65 * 1024 * 131072  # of the chunk, 576 tokens are read and 448 written
    assert (term(work, "attn.decode")[0], term(work, "attn.prefill")[0]) == (decoding, chunk)


def test_chunks_read_weights_again_and_what_was_before() -> None:
    """5,000 tokens in chunks of 2,048: the FLOP of all at once, matrices three times, 2,048 and 4,096 tokens read."""
    whole, cut = (prefill(ready("llama-3.1-8b"), 5000, **more).work for more in ({}, {"budget": 2048}))

    assert cut.flops == pytest.approx(whole.flops, rel=1e-12)
    assert cut.weight_bytes == BF16 * (3 * (LLAMA + LLAMA_NORMS) + LLAMA_HEAD + 5000 * 4096)
    assert cut.state_bytes == (5000 + 2048 + 4096) * 131072


def test_a_prefix_that_is_cached_is_read() -> None:
    """6,144 of 8,192 tokens: 2,048 pass the matrices, and their scores see all before them."""
    work = prefill(ready("llama-3.1-8b"), 8192, cached=0.75).work

    assert term(work, "ffn.down")[0] == 2 * 2048 * 32 * 4096 * 14336
    assert term(work, "attn.prefill")[0] == 2 * 32 * (8192**2 - 6144**2) * 4096
    assert work.state_bytes == 8192 * 131072


def test_fits_is_told_by_the_memory_that_the_device_offers() -> None:
    """A 2080 Ti sold with 11 GB shows 11,019 MiB: beside 3.09 GB 288 sequences of 1,024, and no 289th."""
    made = ready("qwen2.5-1.5b", "rtx-2080-ti", "fp16", "fp16")
    most = (11019 * 2**20 - 2 * QWEN) // (1024 * QWEN_KV)

    assert (made.capacity, made.capacity_from, most) == (11019 * 2**20, "visible", 288)
    assert (decode(made, 288, 1024).fits, decode(made, 289, 1024).fits) == (True, False)
    assert most_sequences(made, 1024) == most
