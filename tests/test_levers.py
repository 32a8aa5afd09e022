"""What each technique changes: every row is the base with one thing changed, and what-ifs are as worked by hand."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, Any

import pytest

from roofcast.calculators.deployment import Deployment, Ready, prepare
from roofcast.calculators.levers import LeverRow, levers_result
from roofcast.calculators.phases import Asked, answer_point, most_sequences
from roofcast.calculators.variants import Base
from roofcast.hwdb.lookup import find_accelerator
from roofcast.modelspec.formats import FORMATS
from roofcast.modelspec.requested import find_requested
from roofcast.modelspec.sharding import Shards
from tests.checkpoints import LLAMA_3_1_8B, catalogued, loaded

if TYPE_CHECKING:
    from collections.abc import Callable

H200, B200 = (find_accelerator(name).accelerator for name in ("h200", "b200"))
BATCH, CONTEXT, PROMPT = 16, 8192, 4096
VISIBLE = 143156 * 2**20  # B that CUDA sees of an H200
LLAMA = 32 * (2 * 4096 * 4096 + 2 * 4096 * 1024 + 3 * 4096 * 14336)  # weights of all matrices in the layers
NORMS, HEAD = 65 * 4096, 128256 * 4096
WEIGHTS = 2 * (LLAMA + NORMS + 2 * HEAD)


@cache
def base() -> Base:
    """Llama 3.1 8B on an H200, compared with a B200."""
    made = prepare(loaded(LLAMA_3_1_8B), Deployment(H200, FORMATS["bf16"]))
    return Base(made, BATCH, CONTEXT, PROMPT, (B200,))


def rows(asked: Base) -> dict[str, LeverRow]:
    """The rows of an answer by what they change."""
    return {row.change: row for row in levers_result(asked)[0].rows}


@cache
def of_llama() -> dict[str, LeverRow]:
    """The rows of Llama 3.1 8B."""
    return rows(base())


def on(name: str, batch: int = BATCH, context: int = CONTEXT, kv: str = "bf16", **shards: int) -> Base:
    """A model of the catalogue on H200s."""
    made = prepare(catalogued(name), Deployment(H200, FORMATS[kv], shards=Shards(**shards)))
    return Base(made, batch, context, PROMPT)


def changed(**fields: Any) -> Callable[[], Ready]:
    """The base's deployment with fields replaced, prepared anew."""
    return lambda: prepare(loaded(LLAMA_3_1_8B), replace(base().ready.deployment, **fields))


ALONE: dict[str, tuple[str, Callable[[], Ready], int]] = {
    "as it is": ("base", changed(), BATCH),
    "KV cache in fp8": ("kv", changed(kv=FORMATS["fp8"]), BATCH),
    "KV cache in int8": ("kv", changed(kv=FORMATS["int8"]), BATCH),
    "KV cache in kivi2": ("kv", changed(kv=FORMATS["kivi2"]), BATCH),
    "weights in fp8": ("weights", changed(weights=FORMATS["fp8"]), BATCH),
    "weights in int4": ("weights", changed(weights=FORMATS["int4"]), BATCH),
    "weights in q8_0": ("weights", changed(weights=find_requested("q8_0")), BATCH),
    "weights in q4_k_m": ("weights", changed(weights=find_requested("q4_k_m")), BATCH),
    "batch 1": ("batch", changed(), 1),
    "batch 64": ("batch", changed(), 64),
    "tensor parallel 2": ("tp", changed(shards=Shards(tp=2)), BATCH),
    "tensor parallel 4": ("tp", changed(shards=Shards(tp=4)), BATCH),
    "b200": ("gpu", changed(accelerator=B200), BATCH),
}


@pytest.mark.parametrize("change", ALONE)
def test_a_row_is_the_base_with_one_thing_changed(change: str) -> None:
    """Times, weights and sequences are those of the changed deployment, prepared on its own."""
    lever, make, batch = ALONE[change]
    row, made = of_llama()[change], make()
    decode, prompt = (
        answer_point(made, asked) for asked in (Asked("decode", batch, CONTEXT), Asked("prefill", 1, PROMPT))
    )

    assert (row.lever, row.fits, row.reason) == (lever, True, None)
    assert (row.tpot_seconds, row.tokens_per_second) == (decode.bound, decode.rate)
    assert row.ttft_seconds == prompt.bound
    assert (row.weight_bytes, row.max_sequences) == (made.weight_bytes, most_sequences(made, CONTEXT))


def test_the_base_comes_first_and_is_its_own_measure() -> None:
    """Llama 3.1 8B: 16.06 GB, 131,072 B a token, (M - W) / KV sequences; its ratios are 1."""
    row = next(iter(of_llama().values()))
    most = (VISIBLE - WEIGHTS) // (131072 * CONTEXT)

    assert (row.lever, row.weight_bytes, row.kv_bytes_per_sequence) == ("base", WEIGHTS, 131072 * CONTEXT)
    assert row.tpot_seconds == pytest.approx(
        (WEIGHTS - 2 * HEAD + BATCH * (131072 * CONTEXT + 2 * 4096)) / 4.8e12, rel=1e-9
    )
    assert row.max_sequences == most == 124
    assert (row.ttft_ratio, row.tpot_ratio, row.sequences_ratio) == (1, 1, 1)


def test_ratios_are_over_the_base() -> None:
    """Every row's times and sequences over those of the first."""
    first = of_llama()["as it is"]

    for row in of_llama().values():
        assert row.ttft_ratio == row.ttft_seconds / first.ttft_seconds  # type: ignore[operator]
        assert row.tpot_ratio == row.tpot_seconds / first.tpot_seconds  # type: ignore[operator]
        assert row.sequences_ratio == row.max_sequences / first.max_sequences  # type: ignore[operator]


def test_as_many_sequences_as_fit_are_the_ceiling() -> None:
    """124 sequences read their 133 GB beside the weights: tokens a second at the bound."""
    row = of_llama()["as it is"]
    made = answer_point(base().ready, Asked("decode", 124, CONTEXT))

    assert row.max_tokens_per_second == made.rate == 124 / made.bound  # type: ignore[operator]


def test_kivi_is_three_bits_and_the_last_tokens_in_sixteen() -> None:
    """65,536 elements a token: 8,064 tokens of 3 bits and 128 of 16."""
    each = 65536 * ((CONTEXT - 128) * 3 / 8 + 128 * 2)
    row = of_llama()["KV cache in kivi2"]

    assert row.kv_bytes_per_sequence == each
    assert row.max_sequences == (VISIBLE - WEIGHTS) // each
    assert row.tpot_seconds == pytest.approx((WEIGHTS - 2 * HEAD + BATCH * (each + 2 * 4096)) / 4.8e12, rel=1e-9)
    assert row.ttft_ratio == pytest.approx(1, abs=1e-3)


# --- another attention, by hand: 32 layers, h 4096, 32 query heads of 128


MLA = 32 * (4096 * 32 * 192 + 4096 * 576 + 512 + 512 * 32 * 256 + 32 * 128 * 4096)  # latent 4 d, RoPE key d / 2
GQA = 32 * (2 * 4096 * 4096 + 2 * 4096 * 1024)
WHAT_IFS = {
    "MHA instead of GQA": (32 * 2 * 32 * 128 * 2, 32 * 2 * 4096 * (4096 - 1024), 1),
    "MQA instead of GQA": (32 * 2 * 128 * 2, 32 * 2 * 4096 * (128 - 1024), 32),
    "MLA instead of GQA": (32 * (512 + 64) * 2, MLA - GQA, 32 * (2 * 512 + 64) / 576),
}


@pytest.mark.parametrize("change", WHAT_IFS)
def test_another_attention_by_hand(change: str) -> None:
    """Bytes a token of cache, weights of its projections, sequences that fit, and the step that reads both."""
    a_token, more, intensity = WHAT_IFS[change]
    row, weights = of_llama()[change], WEIGHTS + 2 * more

    assert intensity < 989.4e12 / 4.8e12  # below the ridge: the step is its bytes
    assert row.weight_bytes == weights
    assert row.kv_bytes_per_sequence == a_token * CONTEXT
    assert row.max_sequences == (VISIBLE - weights) // (a_token * CONTEXT)
    read = weights - 2 * HEAD + BATCH * (a_token * CONTEXT + 2 * 4096)
    assert row.tpot_seconds == pytest.approx(read / 4.8e12, rel=1e-9)


def test_what_the_model_has_is_no_what_if() -> None:
    """Llama 3.1 8B has 8 KV heads, so GQA-8 is no row; one with 32 gets it, at a quarter of the cache."""
    assert not [change for change in of_llama() if change.startswith("GQA-8")]

    row = rows(on("llama-2-7b", batch=4, context=2048))["GQA-8 instead of MHA"]
    assert row.kv_bytes_per_sequence == 32 * 2 * 8 * 128 * 2 * 2048


def test_what_ifs_of_more_cache_may_not_fit() -> None:
    """With MHA 34 sequences of 4.3 GB no longer fit beside 17.7 GB: no time, and why."""
    made = replace(base(), batch=34)
    mha = rows(made)["MHA instead of GQA"]

    assert rows(made)["as it is"].fits
    assert (mha.fits, mha.tpot_seconds, mha.tokens_per_second) == (False, None, None)
    assert "146.0 GB" in (mha.reason or "")


def test_grouped_heads_instead_of_a_latent() -> None:
    """DeepSeek-V3 with 8 KV heads of 192 and 128: 61 x 8 x 320 x 2 bytes a token, an eighth on each of 8."""
    row = rows(on("deepseek-v3", batch=8, context=4096, tp=8))["GQA-8 instead of MLA"]

    assert row.kv_bytes_per_sequence == 61 * 320 * 2 * 4096


# --- windows and prefixes


def test_a_window_keeps_4096_tokens_and_4_sinks() -> None:
    """At 8,192 tokens a sequence keeps and reads 4,100; weights are the same."""
    row, each = of_llama()["window 4,096 + 4 sinks"], 131072 * 4100

    assert (row.weight_bytes, row.kv_bytes_per_sequence) == (WEIGHTS, each)
    assert row.max_sequences == (VISIBLE - WEIGHTS) // each
    assert row.tpot_seconds == pytest.approx((WEIGHTS - 2 * HEAD + BATCH * (each + 2 * 4096)) / 4.8e12, rel=1e-9)


@pytest.mark.parametrize(("context", "window"), [(4101, "4,096"), (4100, "1,024"), (1029, "1,024"), (1028, None)])
def test_a_window_is_shorter_than_the_context(context: int, window: str | None) -> None:
    """4,096 tokens with their sinks, or 1,024, or none: whichever is shorter than what there is."""
    found = [row.change for row in rows(replace(base(), context=context)).values() if row.lever == "window"]

    assert found == ([f"window {window} + 4 sinks"] if window else [])


@pytest.mark.parametrize(("change", "hit"), [("50% of the prompt cached", 2048), ("90% of the prompt cached", 3686)])
def test_a_prefix_leaves_the_rest_to_compute(change: str, hit: int) -> None:
    """2 (n - c) P and 2 L (n^2 - c^2) d_attn at 989.4 TFLOP/s; the head and rows of the table at 4.8 TB/s."""
    row = of_llama()[change]
    heavy = 2 * (PROMPT - hit) * (LLAMA + NORMS) + 2 * 32 * (PROMPT**2 - hit**2) * 4096
    light = 2 * (HEAD + (PROMPT - hit) * 4096)

    assert row.ttft_seconds == pytest.approx(heavy / 989.4e12 + light / 4.8e12, rel=1e-9)
    assert row.tpot_ratio == row.sequences_ratio == 1


# --- what cannot be


def test_impossible_rows_say_why() -> None:
    """28 query heads cannot be shared by 8 or 16: no number, and what would do."""
    found = rows(on("qwen2.5-7b", tp=4))
    row = found["tensor parallel 8"]

    assert (row.fits, row.weight_bytes, row.tpot_seconds, row.max_sequences, row.tpot_ratio) == (False, *(None,) * 4)
    assert "28" in (row.reason or "")
    assert found["tensor parallel 16"].reason


def test_formats_that_are_no_smaller_are_no_rows() -> None:
    """Over an FP8 cache neither FP8 nor INT8 is a gain; over FP8 weights INT4 is."""
    cached = [row.change for row in rows(on("llama-3.1-8b", kv="fp8")).values() if row.lever == "kv"]
    stored = [row.change for row in rows(on("deepseek-v3", batch=1, tp=8)).values() if row.lever == "weights"]

    assert cached == ["KV cache in kivi2"]
    assert stored == ["weights in int4", "weights in q4_k_m"]


def test_a_recurrence_has_no_other_attention() -> None:
    """Falcon-Mamba has no heads to share and no window to cut."""
    levers = {row.lever for row in rows(on("falcon-mamba-7b")).values()}

    assert levers.isdisjoint({"attention", "window"})


# --- speculation


def test_drafting_by_hand() -> None:
    """An EAGLE-3 head of 0.425 billion at batch 16: E tokens for a round; TTFT stays, weights and cache of the head are added."""
    row, first = of_llama()["9 tokens drafted, 80% accepted"], of_llama()["as it is"]
    head, layer_cache = 2 * 424_689_664, 2 * 8 * 128 * 2 * CONTEXT
    step = (head - 2 * 3 * 4096**2 + BATCH * (layer_cache + 2 * 4096)) / 4.8e12  # [s]
    decode, fused = first.tpot_seconds or 0, 2 * 3 * 4096**2 / 4.8e12
    yields = sum(0.8**i for i in range(10))

    assert row.lever == "speculation"
    assert row.tpot_seconds == pytest.approx((decode + 9 * step + fused) / yields, rel=2e-3)
    assert row.tokens_per_second == pytest.approx(BATCH / (row.tpot_seconds or 1))
    assert row.ttft_ratio == 1
    assert row.weight_bytes == WEIGHTS + head
    assert row.max_sequences == (VISIBLE - WEIGHTS - head) // (131072 * CONTEXT + layer_cache)


def test_drafted_tokens_take_room_too() -> None:
    """At 64 tokens of context eight drafted ones are an eighth more: so many fewer sequences, each at its best length."""
    asked = Base(base().ready, 16, 64, 64)
    row = next(row for row in rows(asked).values() if row.change.endswith("tokens drafted, 80% accepted"))
    drafted = int(row.change.split()[0])
    head, each = 2 * 424_689_664, 131072 + 2 * 8 * 128 * 2

    assert row.max_sequences == (VISIBLE - WEIGHTS - head) // (each * (64 + drafted))
    assert (row.max_tokens_per_second or 0) >= (row.tokens_per_second or 0)


def test_drafting_says_where_it_pays() -> None:
    """The head that was taken, and the acceptance from which on it gains."""
    says = of_llama()["4 tokens drafted, 60% accepted"].says

    assert "an EAGLE-3 head drafts" in says
    assert "some length pays above an acceptance of 0.0" in says


def test_drafting_that_does_not_fit_says_no_more() -> None:
    """Sixteen sequences that fit an H100 alone do not beside a head's weights and cache."""
    made = prepare(loaded(LLAMA_3_1_8B), Deployment(find_accelerator("h100-sxm").accelerator, FORMATS["bf16"]))
    row = rows(Base(made, 16, 32768, 4096))["drafting, 60% accepted"]

    assert (row.fits, row.tpot_seconds) == (False, None)
    assert "it does not fit" in row.says


def test_drafting_that_loses_is_left_out_of_the_step() -> None:
    """Where no length pays, decode stays plain and the row says so."""
    asked = Base(base().ready, 512, 256, 256)
    change, row = next((name, row) for name, row in rows(asked).items() if row.lever == "speculation")

    assert change == "no gain from drafting, 60% accepted"
    assert row.tpot_ratio == pytest.approx(1)


def test_a_models_own_prediction_drafts() -> None:
    """DeepSeek-V3's module instead of a head of another make; a pipeline has no such row."""
    said = {
        row.says.partition(" drafts")[0] for row in rows(on("deepseek-v3", tp=8)).values() if row.lever == "speculation"
    }
    piped = [row for row in rows(on("llama-3.1-8b", pp=2)).values() if row.lever == "speculation"]

    assert said == {"its own multi-token prediction"}
    assert piped == []
