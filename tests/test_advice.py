"""What to change: each change is one the engine knows, gives what it says, and is what an operator would do."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest

from roofcast.calculators.engines.advice import CHANGES, Wanted, advice, advice_of_free
from roofcast.calculators.engines.flags import TAKES, option
from roofcast.calculators.engines.registry import engine_memory
from roofcast.calculators.engines.terms import GIB
from tests.engine_records import Asked, asked, memory

if TYPE_CHECKING:
    from roofcast.calculators.engines.terms import Advice, Served

MANY = 100_000  # requests, more than anything holds


def advised(served: Served, *needs: tuple[int, int], kv: float | None = None, tokens: int = 0) -> list[Advice]:
    """Return what to change for so many requests of contexts; without any, for one of the longest."""
    return advice(served, memory(served), Wanted(needs, needs[0][0] if needs else None, tokens), kv)


def flags(found: list[Advice], gpus: int | None = None) -> list[str]:
    """Return the changes as the engine spells them, on a number of devices or on any."""
    return [each.flag for each in found if gpus in {None, each.gpus}]


def of(found: list[Advice], flag: str) -> Advice:
    """Return one change."""
    return next(each for each in found if each.flag == flag)


TOO_LARGE = Asked("llama-3.1-70b", flags={"engine_version": "0.19.0"})
TOO_LONG = Asked("llama-3.1-8b", "rtx-3090", flags={"engine_version": "0.19.0"})
TOO_FEW = Asked("llama-3.1-8b", flags={"engine_version": "0.21.0"})
QUESTIONS = pytest.mark.parametrize("question", [TOO_LARGE, TOO_LONG, TOO_FEW], ids=["large", "long", "few"])

# lengths


def test_a_request_that_is_too_long_is_cut_to_what_fits() -> None:
    """Llama-3.1-8B on an RTX 3090: as many tokens as its blocks hold, and not one block more; first of all changes."""
    served = TOO_LONG.served()
    made, found = memory(served), advised(served)

    longest = (made.blocks or 0) * 16
    assert flags(found)[0] == f"--max-model-len {longest}"
    assert (found[0].max_sequences, found[0].context, found[0].fits) == (1, longest, True)
    assert str(made.reason).endswith(f"the longest that fits has {longest:,} tokens")


def test_what_takes_the_whole_request_is_offered_beside() -> None:
    """131,072 tokens take 16 GiB in bf16: two RTX 3090, or FP8 of both weights and cache, and nothing that takes less."""
    found = advised(TOO_LONG.served())
    whole = [each.flag for each in found if each.context == 131_072]

    assert whole == ["--quantization fp8 --kv-cache-dtype fp8", "--tensor-parallel-size 2"]


def test_a_request_is_not_cut_below_what_was_asked() -> None:
    """A context of 131,072 tokens on an RTX 3090: no shorter request will do."""
    found = advised(TOO_LONG.served(), (131_072, 1))

    assert flags(found) == ["--quantization fp8 --kv-cache-dtype fp8", "--tensor-parallel-size 2"]
    assert all(each.fits and each.meets and "--max-model-len" not in each.flag for each in found)


def test_a_request_may_be_cut_to_what_was_asked() -> None:
    """8,192 tokens are asked for, and the config has 131,072: the server is to take fewer, which is all that it needs."""
    found = advised(TOO_LONG.served(), (8192, 1))

    assert flags(found)[0].startswith("--max-model-len ")
    assert found[0].max_sequences == int(flags(found)[0].split()[1]) // 8192


def test_a_request_longer_than_the_server_takes_lengthens_it() -> None:
    """--max-model-len 8192, and 16,384 tokens asked for: that flag alone, which nothing else replaces."""
    served = asked("llama-3.1-8b", max_model_len=8192)

    assert flags(advised(served, (16_384, 10))) == ["--max-model-len 16384"]
    many = advised(served, (16_384, 100))  # 28 fit
    assert flags(many) == [
        "--tensor-parallel-size 2 --kv-cache-dtype fp8 --max-model-len 16384",
        "--tensor-parallel-size 4 --max-model-len 16384",
    ]


def test_a_request_longer_than_the_model_takes_is_no_matter_of_flags() -> None:
    """131,072 tokens are as many as it was trained with."""
    assert advised(asked("llama-3.1-8b"), (262_144, 1)) == []


# the share of the memory


def test_more_than_is_free_is_asked_for() -> None:
    """79.19 GiB less 0.51 of CUDA's context is 0.9936 of it: 0.99, and no row that does not start."""
    found = advised(asked("llama-3.1-8b", gpu_memory_utilization=1.0))

    assert flags(found) == ["--gpu-memory-utilization 0.99"]
    assert found[0].fits
    assert found[0].max_sequences >= 1


def test_a_free_share_follows_the_devices() -> None:
    """Two H100 hold 1.53 GiB before the profile: 1 - 1.53 / 79.19 = 0.981, so 0.98."""
    found = advised(asked("llama-3.1-70b", gpu_memory_utilization=1.0), (4096, 1))

    assert any(flag.startswith("--tensor-parallel-size 2 --gpu-memory-utilization 0.98") for flag in flags(found, 2))


def test_a_log_s_free_memory_bounds_the_share() -> None:
    """60.3 GiB free of 79.19: floor(76.15) / 100; 8.1 GiB hold no weights of 15."""
    served = asked("llama-3.1-8b", max_model_len=8192)
    found = advice_of_free(served, Wanted(), 60.3 * GIB, 79.19 * GIB)

    assert flags(found) == ["--gpu-memory-utilization 0.76"]
    assert advice_of_free(served, Wanted(), 8.1 * GIB, 79.19 * GIB) == []
    assert advice_of_free(served, Wanted(), 0.0, 79.19 * GIB) == []


def test_a_log_s_cache_is_what_changes_start_from() -> None:
    """10.91 GiB / 2 MiB a block = 5,585 blocks, 89,360 tokens; twice as many, in half the bytes, in FP8."""
    served = asked("llama-3.1-8b", engine_version="0.11.0")
    found = advised(served, kv=10.91 * GIB)

    assert memory(served).starts
    assert of(found, "--max-model-len 89360").kv_tokens == 89_360
    assert of(found, "--kv-cache-dtype fp8").kv_tokens == 178_736
    assert advised(served) == []


# pairs


def test_two_changes_where_one_is_not_enough() -> None:
    """100 x 4,096 tokens x 320 KiB are 125 GiB, 62.5 in FP8; 192 GB hold it beside 70 GB of weights, not beside 141."""
    served = asked("llama-3.3-70b", "mi300x", max_model_len=32_768)
    found = advised(served, (4096, 100))

    assert flags(found, 1) == ["--quantization fp8 --kv-cache-dtype fp8"]
    assert flags(found, 2) == ["--tensor-parallel-size 2"]
    assert {each.gpus for each in found} == {1, 2}


def test_devices_with_another_change() -> None:
    """70B on two H100 of vLLM 0.11: 65.7 GiB of weights and 4.8 of logits are too much; those of 256 requests are not."""
    found = advised(asked("llama-3.1-70b", engine_version="0.11.0", max_model_len=8192))

    assert "--tensor-parallel-size 2 --max-num-seqs 256" in flags(found)
    assert "--tensor-parallel-size 2" not in flags(found)


def test_pairs_are_of_two_kinds() -> None:
    """No flag twice in a row."""
    for question in (TOO_LARGE, TOO_LONG, TOO_FEW):
        for flag in flags(advised(question.served(), (4096, MANY))):
            words = [word for word in flag.split() if word.startswith("--")]
            assert len(words) == len(set(words)), flag


# what is kept


def test_what_is_not_enough_is_left_out_where_something_is() -> None:
    """200 requests of 4,096 tokens: 107 are there, FP8 has twice as many, two GPUs more; a utilisation of 0.95 has 115."""
    found = advised(TOO_FEW.served(), (4096, 200))

    assert flags(found) == ["--kv-cache-dtype fp8", "--tensor-parallel-size 2"]
    assert all(each.meets and each.max_sequences >= 200 for each in found)


def test_what_gives_more_is_offered_where_nothing_is_enough() -> None:
    """Every kind of change that gives 2 % more, and none that gives less."""
    served = TOO_FEW.served()
    now = memory(served).room.sequences(4096)
    found = advised(served, (4096, MANY))

    assert {"--kv-cache-dtype fp8", "--gpu-memory-utilization 0.95", "--quantization fp8"} <= set(flags(found, 1))
    assert all(each.fits and not each.meets and each.max_sequences >= 1.02 * now for each in found)
    assert {each.gpus for each in found} <= {1, 2, 4, 8}


def test_more_than_one_host_is_offered_where_nothing_smaller_is_enough() -> None:
    """Weights of 405B in FP8 fit on 8 H100; 671 GB of DeepSeek-V3 fit on 16 in two stages."""
    assert {each.gpus for each in advised(asked("llama-3.1-405b", cut={"tp": 8}))} == {8}
    assert flags(advised(asked("deepseek-v3")), 16) == ["--tensor-parallel-size 8 --pipeline-parallel-size 2"]


def test_what_is_enough_needs_no_change() -> None:
    """107 requests are there."""
    assert advised(TOO_FEW.served(), (4096, 100)) == []
    assert advised(TOO_FEW.served(), tokens=400_000) == []
    assert "--kv-cache-dtype fp8" in flags(advised(TOO_FEW.served(), tokens=600_000))


def test_several_rules_must_all_be_met() -> None:
    """100 of 4,096 tokens are there, 20 of 32,768 are not."""
    found = advised(TOO_FEW.served(), (4096, 100), (32_768, 20))
    longer = replace(TOO_FEW, cache="fp8").served()

    assert "--kv-cache-dtype fp8" in flags(found)
    assert memory(longer).room.sequences(32_768) >= 20


def test_fewer_requests_of_a_step_are_as_many_as_are_wanted() -> None:
    """110 of 4,096 tokens: never --max-num-seqs below that, and of its sizes one row."""
    found = [flag for flag in flags(advised(TOO_FEW.served(), (4096, 110))) if "--max-num-seqs" in flag]

    assert all(int(flag.partition("--max-num-seqs ")[2].split()[0]) >= 110 for flag in found)
    rows = [flag for flag in flags(advised(TOO_LONG.served())) if flag.startswith("--max-num-seqs")]
    assert len(rows) <= 1


def test_more_requests_at_once_than_the_default_are_allowed_for() -> None:
    """2,000 of 4,096 tokens on 8 GPUs: the server runs 1,024 at once unless it is told."""
    found = advised(asked("llama-3.1-8b"), (4096, 2000))

    assert flags(found) == ["--tensor-parallel-size 8 --kv-cache-dtype fp8 --max-num-seqs 2000"]


def test_sixteen_and_more_gpus_follow_those_at_hand() -> None:
    """Heads that 8 GPUs do not divide are no cut: 28 heads of Qwen2.5-7B are shared by 2 and 4."""
    found = flags(advised(asked("qwen2.5-7b-instruct", engine_version="0.19.0"), (4096, MANY)))

    assert any("-size 4" in flag for flag in found)
    assert [flag for flag in found if "--tensor-parallel-size 8" in flag] == []


# kinds


def test_latents_are_shared_by_their_tokens() -> None:
    """DeepSeek-V3 on 8 H200: every GPU holds all latents, 9 requests of 65,536 tokens; shared, eight times as many."""
    served = asked("deepseek-v3", "h200-sxm", cut={"tp": 8}, max_model_len=131_072)
    now, found = memory(served).room.sequences(65_536), advised(served, (65_536, 20))

    assert flags(found)[0] == "--decode-context-parallel-size 8"
    assert 8 * now <= found[0].max_sequences < 8 * (now + 1)
    before = asked("deepseek-v3", "h200-sxm", cut={"tp": 8}, max_model_len=131_072, engine_version="0.10.0")
    assert not any("context-parallel" in flag for flag in flags(advised(before, (65_536, 20))))


@pytest.mark.parametrize(
    ("model", "tp", "sizes"),
    [("llama-3.1-8b", 8, set()), ("qwen3-235b-a22b", 8, {"2"}), ("gemma-3-27b-it", 8, set()), ("qwen2.5-7b-instruct", 4, set())],
)  # fmt: skip
def test_keys_are_shared_by_their_tokens_where_they_are_copied(model: str, tp: int, sizes: set[str]) -> None:
    """8 KV heads on 8 GPUs are held once; 4 are held twice, which two GPUs can share; windows cannot be shared."""
    found = flags(advised(asked(model, "h200-sxm", cut={"tp": tp}), (4096, MANY)), tp)
    given = {flag.partition("context-parallel-size ")[2].split()[0] for flag in found if "context-parallel" in flag}

    assert given == sizes


def test_replicas_hold_a_latent_once_each() -> None:
    """DeepSeek-V2-Lite on 4 GPUs: TP holds every latent four times, four replicas hold nearly four times as much."""
    served = asked("deepseek-v2-lite", cut={"tp": 4}, engine_version="0.19.0")
    now = memory(served).room.sequences(4096)
    change = of(
        advised(served, (4096, MANY)), "--data-parallel-size 4 --tensor-parallel-size 1 --enable-expert-parallel"
    )

    assert change.here == "--dp 4 --tp 1 --ep 4"
    assert 3.5 * now < change.max_sequences < 4 * now


def test_a_file_of_narrower_weights_comes_after_flags() -> None:
    """A V100 quantises nothing: an INT4 checkpoint on one GPU; on an H100, FP8 on load does."""
    old = advised(asked("llama-3.1-8b", "v100", engine_version="0.19.0", max_model_len=8192))
    new = advised(asked("llama-3.1-70b", engine_version="0.19.0", max_model_len=4096))

    assert (old[0].flag, old[0].here) == ("an INT4 (AWQ, GPTQ) checkpoint", "--weights int4")
    assert not any("FP8" in flag or "fp8" in flag for flag in flags(old))
    assert flags(new)[0] == "--quantization fp8"
    assert not any("checkpoint" in flag for flag in flags(new))
    on_one = ["checkpoint" in flag for flag in flags(advised(TOO_LARGE.served()), 1)]
    assert on_one == sorted(on_one)
    assert len(set(on_one)) == 2


@pytest.mark.parametrize(
    ("question", "absent"),
    [
        # a V100 has no FP8, and the server's rules no estimate of graphs to save
        (Asked("llama-3.1-8b", "v100", flags={"engine_version": "0.19.0"}), ("fp8", "--enforce-eager")),
        # a cache in FP8 already; utilisation at its most
        (
            Asked("llama-3.1-8b", cache="fp8", flags={"gpu_memory_utilization": 0.95, "engine_version": "0.21.0"}),
            ("--kv-cache-dtype", "--gpu-memory-utilization"),
        ),
        # no latent: replicas hold no more than devices that share heads do
        (Asked("llama-3.1-8b", cut={"tp": 2}, flags={"engine_version": "0.19.0"}), ("--data-parallel-size",)),
        # quantised as it is
        (Asked("gpt-oss-20b", flags={"engine_version": "0.24.0"}), ("--quantization", "checkpoint")),
        # few and short steps already
        (
            Asked("llama-3.1-8b", flags={"engine_version": "0.19.0", "max_num_seqs": 64, "max_num_batched_tokens": 2048}),
            ("--max-num-seqs", "--max-num-batched-tokens"),
        ),
    ],
)  # fmt: skip
def test_what_cannot_be_or_gives_nothing_is_not_offered(question: Asked, absent: tuple[str, ...]) -> None:
    """Formats that the device does not have, what is so already, sizes that do not divide."""
    found = flags(advised(question.served(), (4096, MANY)))

    assert found
    assert [flag for flag in found if any(word in flag for word in absent)] == []


def test_a_prompt_that_is_not_cut_bounds_the_step() -> None:
    """vLLM before 0.8 profiles a whole prompt of 32,768 tokens; later ones cut it in steps of 2,048."""
    old, new = (
        flags(advised(asked("llama-3.1-8b", "rtx-3090", engine_version=version, max_model_len=32_768,
                            max_num_batched_tokens=32_768), (4096, MANY)))
        for version in ("0.6.6", "0.19.0")
    )  # fmt: skip

    assert not any("--max-num-batched-tokens" in flag for flag in old)
    assert any("--max-num-batched-tokens 2048" in flag for flag in new)


# laws


@QUESTIONS
@pytest.mark.parametrize("least", [1, 150, MANY])
def test_changes_come_best_first(question: Asked, least: int) -> None:
    """Those that are enough, then on the fewest devices; each starts, and each is there once."""
    found = advised(question.served(), (4096, least))
    order = [(not each.meets, each.gpus) for each in found]

    assert order == sorted(order)
    assert all(each.fits for each in found)
    assert len({each.meets for each in found}) <= 1
    assert len(set(flags(found))) == len(found)


@QUESTIONS
def test_a_step_further_is_the_last(question: Asked) -> None:
    """Of two numbers of GPUs that are enough, the second is twice the first."""
    found = advised(question.served(), (4096, 150))
    enough = sorted({each.gpus for each in found if each.meets and "checkpoint" not in each.flag})

    assert 1 <= len(enough) <= 2
    assert all(more == 2 * fewer for fewer, more in pairwise(enough))


@pytest.mark.parametrize("engine", sorted(CHANGES))
def test_changes_are_of_engines_that_there_are(engine: str) -> None:
    """Each has flags of its own."""
    assert engine in TAKES


def test_changes_are_flags_that_roofcast_has_too() -> None:
    """`here` is what one writes behind `roofcast fit`: every option of it is known."""
    own = {option(flag) for flag in TAKES["vllm"]} | {"--kv", "--tp", "--dp", "--ep", "--pp", "--weights"}
    latent = Asked("deepseek-v2-lite", cut={"tp": 4})
    questions = (TOO_LARGE, TOO_LONG, TOO_FEW, latent)
    found = [each for question in questions for each in advised(question.served(), (4096, MANY))]
    written = {word for each in found for word in each.here.split() if word.startswith("--")}

    assert written <= own
    assert len(written) >= 9


@pytest.mark.parametrize("flag", ["--kv-cache-dtype fp8", "--gpu-memory-utilization 0.95", "--tensor-parallel-size 4"])
def test_a_change_gives_what_it_says(flag: str) -> None:
    """The server started so has those tokens and requests."""
    said = of(advised(TOO_FEW.served(), (4096, MANY)), flag)
    changed = {
        "--kv-cache-dtype fp8": replace(TOO_FEW, cache="fp8"),
        "--gpu-memory-utilization 0.95": replace(TOO_FEW, flags={**TOO_FEW.flags, "gpu_memory_utilization": 0.95}),
        "--tensor-parallel-size 4": replace(TOO_FEW, cut={"tp": 4}),
    }
    made = engine_memory("vllm", changed[flag].served())

    assert made.tokens is not None
    assert (said.kv_tokens, said.max_sequences, said.context) == (made.tokens[0], made.room.sequences(4096), 4096)
    assert said.fits
    assert said.gpus == changed[flag].served().ready.deployment.shards.devices
