"""vLLM's answer against published start-up logs, given their own terms and from flags alone."""

from __future__ import annotations

from math import ceil
from statistics import median
from typing import TYPE_CHECKING, Any

import pytest

from roofcast.calculators.engines.terms import GIB
from tests.engine_records import H100, MATCHED, RECORDS, Record, asked, gib, having, memory, term

if TYPE_CHECKING:
    from collections.abc import Sequence

HALF_CENT = 0.005  # half of the last printed digit of a size [GiB]
WHOLE_BUDGET = ("weights", "activation", "non_torch", "kv")


def by(record: Record) -> str:
    """Return what a test of a record is called."""
    return record.id


def possible_blocks(record: Record) -> Sequence[int]:
    """Return the blocks that the printed cache allows, with one to each side; as logged; or any, where neither is said."""
    if "blocks" in record.logged:
        return [int(record.logged["blocks"])]
    if "kv" not in record.logged:
        return range(1, 3000)
    served = record.served()
    low, high = (memory(served, kv=record.logged["kv"] + off).blocks for off in (-HALF_CENT, HALF_CENT))
    assert low is not None
    assert high is not None
    return range(low - 1, high + 2)


def agreeing(record: Record) -> list[int]:
    """Return those of them that give the logged tokens, and the concurrency to its two printed digits."""
    served, tokens, concurrency = record.served(), record.logged.get("tokens"), record.logged.get("concurrency")
    found = []
    for blocks in possible_blocks(record):
        made = memory(served, kv=1.0, blocks=blocks)
        assert made.tokens is not None
        assert made.concurrency is not None
        same = concurrency is None or abs(made.concurrency - concurrency) <= HALF_CENT + 1e-9
        if tokens in {None, made.tokens[0]} and same:
            found.append(blocks)
    return found


# given a log's own terms


@pytest.mark.parametrize("record", having(*WHOLE_BUDGET), ids=by)
def test_the_cache_is_what_the_logged_terms_leave_of_the_budget(record: Record) -> None:
    """Within 0.02 GiB: four sizes that are rounded to 0.01."""
    made = memory(record.served(), **record.given)

    assert record.logged["kv"] == pytest.approx(made.kv[0] / GIB, abs=0.02)


@pytest.mark.parametrize("record", having("kv", "blocks"), ids=by)
def test_the_logged_cache_holds_the_logged_blocks(record: Record) -> None:
    """Within one block of what the cache's printed digits allow."""
    low, high = (memory(record.served(), kv=record.logged["kv"] + off).blocks for off in (-HALF_CENT, HALF_CENT))

    assert low is not None
    assert high is not None
    assert low - 1 <= record.logged["blocks"] <= high + 1


@pytest.mark.parametrize("record", having("tokens"), ids=by)
def test_tokens_and_concurrency_follow_to_the_printed_digit(record: Record) -> None:
    """Some number of blocks that the printed cache allows gives both."""
    assert agreeing(record) != []


@pytest.mark.parametrize("record", having("block"), ids=by)
def test_blocks_have_the_logged_tokens(record: Record) -> None:
    """16 of most, 64 under a sparse index, hybrids' grown until they hold a state."""
    assert record.logged["block"] == memory(record.served(), kv=1.0).block_tokens


@pytest.mark.parametrize("record", [r for r in RECORDS if r.unmatched and "tokens" in r.logged], ids=by)
def test_records_that_do_not_match_are_listed_with_their_reason(record: Record) -> None:
    """A record whose numbers a rule explains by now is to leave the list."""
    assert agreeing(record) == []


def test_the_records_cover_every_kind_of_cache() -> None:
    """Most match, each has a source, and full, latent, sparse, window, state and drafted caches are among them."""
    kinds = {group.kind for record in MATCHED for group in memory(record.served(), kv=1.0).groups}

    assert len(MATCHED) >= 75
    assert len(RECORDS) - len(MATCHED) <= 7
    assert all(record.source for record in RECORDS)
    assert {"full", "mla", "sliding", "state"} <= kinds
    assert any(record.flags.get("num_speculative_tokens") for record in MATCHED)
    assert any(record.flags.get("decode_context_parallel_size") for record in MATCHED)


def test_terms_of_a_log_replace_the_predicted_ones() -> None:
    """They are measured, have no spread, and the rest is predicted as before."""
    served = asked("llama-3.1-8b", engine_version="0.19.0")
    given, free = memory(served, weights=20.0), memory(served)

    weights = term(given, "weights")
    assert (weights.bytes, weights.low, weights.high) == (20 * GIB,) * 3
    assert weights.provenance == "measured"
    assert gib(given, "activation") == gib(free, "activation")
    assert given.kv[0] / GIB == pytest.approx(free.kv[0] / GIB - (20.0 - gib(free, "weights")))


# from flags alone


@pytest.mark.parametrize("record", H100, ids=by)
def test_weights_are_predicted(record: Record) -> None:
    """Within 0.035 GiB; with a tower, whose size is only known in parameters, 0.55."""
    made = memory(record.served())

    assert record.logged["weights"] == pytest.approx(
        gib(made, "weights"), abs=0.55 if "gemma-3" in record.id else 0.035
    )


@pytest.mark.parametrize("record", H100, ids=by)
def test_the_activation_peak_is_predicted(record: Record) -> None:
    """Within 0.02 GiB of dense, quantised, latent, expert and multimodal models, on one device or several."""
    assert record.logged["activation"] == pytest.approx(gib(memory(record.served()), "activation"), abs=0.02)


@pytest.mark.parametrize("record", H100, ids=by)
def test_tokens_are_predicted(record: Record) -> None:
    """Within 1.5 %."""
    made = memory(record.served()).tokens

    assert made is not None
    assert record.logged["tokens"] == pytest.approx(made[0], rel=0.015)


def test_most_tokens_are_predicted_to_a_thousandth() -> None:
    """The median error of the 0.19 logs; and intervals hold at least 7 of 10."""
    made = [(record.logged["tokens"], memory(record.served()).tokens) for record in H100]
    errors = [abs(tokens[0] / logged - 1) for logged, tokens in made if tokens]
    held = [tokens[1] <= logged <= tokens[2] for logged, tokens in made if tokens]

    assert len(errors) == len(H100) >= 33
    assert median(errors) < 0.0005
    assert sum(held) >= 0.7 * len(held)


@pytest.mark.parametrize("record", [r for r in RECORDS if r.id.startswith("h200-")], ids=by)
def test_an_h200_is_predicted_to_a_thousandth(record: Record) -> None:
    """vLLM 0.24 at its default utilisation of 0.92: dense, small with tied embeddings, and experts."""
    made = memory(record.served())

    assert made.tokens is not None
    assert record.logged["tokens"] == pytest.approx(made.tokens[0], rel=1e-3)
    assert record.logged["kv"] == pytest.approx(made.kv[0] / GIB, rel=1e-3)


def test_an_h200_gives_57_144_blocks_of_its_logged_cache() -> None:
    """111.61 GiB / (16 x 131,072 B) = 57,144.3; x 16 = 914,304; 914,304 / 40,960 = 22.32."""
    served = asked(
        "llama-3.1-8b", "h200-sxm", engine_version="0.24.0", max_model_len=40_960, max_num_batched_tokens=16_384
    )
    made = memory(served, kv=111.61)

    assert made.tokens is not None
    assert (made.blocks, made.tokens[0], made.block_tokens) == (57_144, 914_304, 16)
    assert made.concurrency == pytest.approx(914_304 / 40_960)
    assert made.budget / GIB == pytest.approx(128.62, abs=0.005)


@pytest.mark.parametrize(
    ("model", "version", "given", "tokens"),
    [
        # https://github.com/alvarobartt/hf-mem/pull/61: 24.54 GiB / (10 layers x 16 x 16,384 B) = 10,051 blocks; 6 groups:
        # 10,051 // 6 = 1,675 x 16 = 26,800
        ("gemma-4-31b-it", "0.20.0", {"kv": 24.54}, 26_800),
        # https://github.com/alvarobartt/hf-mem/issues/60: 9,799 blocks // 2 groups x 16 = 78,384
        ("gpt-oss-120b", "0.11.0", {"kv": 5.38, "blocks": 9_799}, 78_384),
        # 62 layers in 7 groups of 10: 15,997 // 7 = 2,285 x 16
        ("gemma-3-27b-it", "0.19.0", {"kv": 19.53, "blocks": 15_997}, 36_560),
    ],
)
def test_older_versions_print_blocks_over_groups(model: str, version: str, given: Any, tokens: int) -> None:
    """What the line calls tokens is no capacity where layers differ."""
    made = memory(asked(model, engine_version=version), **given)

    assert made.tokens is not None
    assert tokens == made.tokens[0]


@pytest.mark.parametrize(("version", "tokens"), [("0.20.0", 75 * 784), ("0.20.1", int(300 / 48 * 32_768))])
def test_from_0_20_1_on_tokens_are_requests_times_their_length(version: str, tokens: int) -> None:
    """Qwen3.5-27B: 300 blocks // 4 groups x 784; then 300 / (42 + 3 groups x 2) x 32,768."""
    made = memory(
        asked("qwen3.5-27b", "h20", engine_version=version, max_model_len=32_768, mamba_cache_mode="align"),
        kv=15.0,
        blocks=300,
    )

    assert made.tokens is not None
    assert tokens == made.tokens[0]
    assert made.concurrency == pytest.approx(300 / 48)


# stages


def test_the_stage_with_the_fewest_blocks_counts() -> None:
    """Llama-3.1-8B in 2 stages: the last has the head and the logits, 16 layers as the first has."""
    two = memory(asked("llama-3.1-8b", cut={"pp": 2}, engine_version="0.19.0", gpu_memory_utilization=0.95))

    assert two.groups[0].layers == 16
    # embedding of 128,256 x 4,096 x 2 B = 0.98 GiB is the other stage's, and half of the layers
    assert gib(two, "weights") == pytest.approx((14.99 - 2 * 0.98) / 2 + 0.98, abs=0.03)
    assert two.said.notes


def test_tensor_parallel_devices_hold_a_share_of_the_heads() -> None:
    """Qwen2.5-7B has 4 KV heads: 8 devices do not divide its 28 query heads, 4 hold one each."""
    made = memory(asked("qwen2.5-7b-instruct", cut={"tp": 4}, engine_version="0.19.0"), kv=67.34)

    assert made.groups[0].page_bytes == 16 * 1 * 256 * 2
    assert made.blocks == pytest.approx(315_205, abs=24)


# a cache of a given size


def test_a_cache_of_a_given_size_ignores_the_rest() -> None:
    """--kv-cache-memory-bytes is the cache, whatever weights and utilisation are."""
    size = 10 * GIB
    made = [
        memory(asked("llama-3.1-8b", kv_cache_memory_bytes=size, gpu_memory_utilization=share)) for share in (0.5, 0.9)
    ]

    assert made[0].kv == made[1].kv == (size, size, size)
    assert made[0].blocks == 10 * GIB // (16 * 131_072) == 5120


# servers that do not start


def test_weights_that_are_larger_than_the_budget_are_the_reason() -> None:
    """Llama-3.1-70B takes 141 GB."""
    made = memory(asked("llama-3.1-70b", engine_version="0.19.0"))

    assert not made.starts
    assert made.reason is not None
    assert made.reason.startswith("the weights alone take 131.4 GiB, the budget is 71.3 GiB")


def test_weights_that_leave_nothing_are_the_reason() -> None:
    """gpt-oss-120b on an H100 before 0.17: 64.4 GiB fit, beside activations they do not (vLLM issue 23278)."""
    made = memory(asked("gpt-oss-120b", engine_version="0.10.1"))

    assert made.kv[0] < 0
    assert made.blocks == 0
    assert made.reason is not None
    assert made.reason.startswith("the weights take 64.4 GiB")


def test_one_request_that_does_not_fit_is_the_reason() -> None:
    """gpt-oss-120b with 1.71 GiB: a request of 131,072 tokens needs more (vLLM issue 27508)."""
    served = asked(
        "gpt-oss-120b", engine_version="0.11.0", max_model_len=131_072, max_num_batched_tokens=1024, max_num_seqs=256
    )
    made = memory(served, kv=1.71)

    # 8,192 blocks of the 18 full layers and ceil((127 + 1,024) / 16) + 1 = 73 of windows, of 18 x 32,768 B each
    need = (8192 + 73) * 18 * 32_768 / GIB
    assert made.reason is not None
    assert made.reason.startswith(f"one request of 131,072 tokens needs {need:.2f} GiB of cache, 1.71 are there")
    longest = int(made.reason.rsplit(" has ", 1)[1].split(" ")[0].replace(",", ""))
    blocks = made.blocks or 0
    assert ceil(longest / 16) + 73 <= blocks < ceil((longest + 1) / 16) + 73


def test_a_budget_above_the_free_memory_is_the_reason() -> None:
    """0.99 x 79.19 = 78.40 GiB; free are 79.19 - 0.51 on one device, and 79.19 - 1.53 on two with workspaces."""
    alone, shared = (memory(asked("llama-3.1-8b", cut={"tp": tp}, gpu_memory_utilization=0.99)) for tp in (1, 2))

    assert alone.starts
    assert shared.reason is not None
    assert shared.reason.startswith("free memory at start, 77.7 GiB, is less than the budget, 78.4 GiB")
    assert "--gpu-memory-utilization 0.98 would do" in shared.reason
    assert memory(asked("llama-3.1-8b", cut={"tp": 2}, gpu_memory_utilization=0.97)).starts


# what is said


def test_what_was_not_asked_is_assumed_aloud() -> None:
    """The version and the step's sizes."""
    silent = memory(asked("llama-3.1-8b")).said
    told = memory(asked("llama-3.1-8b", engine_version="0.19.0", max_num_seqs=256, max_num_batched_tokens=8192)).said

    assert any("--engine-version is not given" in text for text in silent.assumptions)
    assert any(text.startswith("--max-num-batched-tokens 8,192") for text in silent.assumptions)
    assert any(text.startswith("--max-num-seqs 1,024") for text in silent.assumptions)
    assert told.assumptions == ()


def test_padding_is_told() -> None:
    """Gemma 3 27B: 8 of 70 slots."""
    said = memory(asked("gemma-3-27b-it", engine_version="0.19.0")).said

    assert "8 of 70 layer slots of the cache are padding (11%)" in said.notes


def test_compressed_attention_has_a_cache_but_no_blocks() -> None:
    """DeepSeek-V4's layout in vLLM is its own, so nothing is counted in blocks; requests are by what layers keep."""
    made = memory(asked("deepseek-v4-flash", "h200-sxm", "fp8", {"tp": 2}, engine_version="0.24.0"))

    assert (made.blocks, made.tokens, made.concurrency, made.block_tokens) == (None,) * 4
    assert made.kv[0] > 0
    assert made.room.sequences(4096) >= made.room.sequences(8192) >= 1
    assert made.said.assumptions


def test_requests_fit_by_whole_blocks() -> None:
    """Llama-3.1-8B: of 29,751 blocks a request of 4,000 tokens takes 250, and one of 4,001 a block more."""
    room = memory(asked("llama-3.1-8b", engine_version="0.19.0"), kv=58.11, blocks=29_751).room

    assert (room.sequences(4000), room.sequences(4001)) == (29_751 // 250, 29_751 // 251)
    assert room.sequence_bytes(4000) == 250 * 16 * 131_072
