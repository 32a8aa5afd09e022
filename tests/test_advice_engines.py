"""What to change, of engines other than vLLM: each in its own words, and what it gives."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from roofcast.calculators.deployment import Deployment
from roofcast.calculators.engines.advice import CHANGES, Wanted, advice
from roofcast.calculators.engines.flags import TAKES, Flags, option
from roofcast.calculators.engines.registry import engine_memory
from roofcast.calculators.engines.serving import serve
from roofcast.hwdb.lookup import find_accelerator
from roofcast.modelspec.formats import FORMATS
from roofcast.modelspec.requested import find_requested
from roofcast.modelspec.sharding import Shards
from tests.engine_records import model_of

if TYPE_CHECKING:
    from roofcast.calculators.engines.terms import Advice, Served

CONTEXT = 4096


def served(engine: str, model: str, gpu: str, weights: str | None = None, tp: int = 1, **flags: Any) -> Served:
    """Return a model of the catalogue as an engine loads it."""
    requested = None if weights is None else find_requested(weights)
    kv = FORMATS["fp16" if engine in {"llama.cpp", "ollama"} else "bf16"]
    deployment = Deployment(find_accelerator(gpu).accelerator, kv, requested, Shards(tp=tp), engine)
    return serve(model_of(model), deployment, Flags(**flags))[0]


def advised(question: Served, *needs: tuple[int, int]) -> list[Advice]:
    """Return what to change for so many requests of contexts; without any, for one of the longest."""
    made = engine_memory(question.ready.deployment.engine, question)
    return advice(question, made, Wanted(needs, needs[0][0] if needs else None))


def rows(found: list[Advice]) -> list[tuple[str, str, int]]:
    """Return changes as the engine and as roofcast spell them, and devices."""
    return [(each.flag, each.here, each.gpus) for each in found]


def flags(found: list[Advice]) -> list[str]:
    """Return the changes as the engine spells them."""
    return [each.flag for each in found]


# llama.cpp and Ollama


def test_a_context_is_cut_to_the_last_256_that_fit() -> None:
    """Llama-3.1-8B on an RTX 3090, 131,072 tokens: the largest multiple of 256 starts, and the next one does not."""
    question = served("llama.cpp", "llama-3.1-8b", "rtx-3090", n_ctx=131_072)
    found = advised(question)
    cells = next(int(each.here.split()[1]) for each in found if each.flag.startswith("--ctx-size"))
    starts = [
        engine_memory("llama.cpp", served("llama.cpp", "llama-3.1-8b", "rtx-3090", n_ctx=n)).starts
        for n in (cells, cells + 256)
    ]

    assert cells % 256 == 0
    assert starts == [True, False]


def test_llama_cpp_narrows_its_cache_and_takes_more_gpus() -> None:
    """16 GiB of cache beside 14 of weights: 8.5 GiB in q8_0 fit, and two GPUs of half the layers do."""
    found = advised(served("llama.cpp", "llama-3.1-8b", "rtx-3090", n_ctx=131_072), (131_072, 1))

    assert rows(found)[0] == ("--cache-type-k q8_0 --cache-type-v q8_0", "--kv q8_0", 1)
    assert rows(found)[1] == ("--split-mode layer", "--pp 2", 2)


def test_a_narrower_cache_and_a_shorter_context_go_together() -> None:
    """Qwen2.5-32B in Q4_K_M leaves 4 GiB of 24: q8_0 holds 16 / 8.5 of the tokens that f16 does."""
    found = advised(served("llama.cpp", "qwen2.5-32b-instruct", "rtx-3090", "q4_k_m", n_ctx=131_072))
    tokens = {each.flag.rpartition(" --ctx-size ")[0]: int(each.here.split()[-1]) for each in found if each.gpus == 1}
    plain = next(int(each.here.split()[-1]) for each in found if each.flag.startswith("--ctx-size"))

    assert tokens["--cache-type-k q8_0 --cache-type-v q8_0"] == pytest.approx(plain * 32 / 17, rel=0.01)


def test_a_narrower_file_where_weights_are_too_large() -> None:
    """Qwen2.5-14B has 29.5 GB in 16 bits: a GGUF file of 8 or 4 bits, or layers over two GPUs."""
    found = advised(served("llama.cpp", "qwen2.5-14b-instruct", "rtx-3090", n_ctx=32_768))

    assert rows(found)[:3] == [
        ("a Q8_0 file", "--weights q8_0", 1),
        ("a Q4_K_M file", "--weights q4_k_m", 1),
        ("--split-mode layer", "--pp 2", 2),
    ]
    assert advised(served("llama.cpp", "qwen2.5-14b-instruct", "rtx-3090", "q8_0", n_ctx=32_768)) == []


def test_slots_and_cells_for_requests_at_once() -> None:
    """Eight requests of 8,192 tokens: eight slots and 8 x 8,192 cells."""
    found = advised(served("llama.cpp", "llama-3.1-8b", "rtx-3090"), (8192, 8))

    assert rows(found) == [("--ctx-size 65536 --parallel 8", "--n-ctx 65536 --parallel 8", 1)]
    assert found[0].max_sequences == 8


def test_ollama_speaks_in_variables() -> None:
    """Its context, its cache and its slots; 4 slots of 32,768 tokens are 16 GiB, one is 4."""
    long = advised(served("ollama", "llama-3.1-8b", "rtx-3090"), (131_072, 1))
    slots = advised(served("ollama", "llama-3.1-8b", "rtx-3090", n_ctx=32_768, parallel=4))
    cut = advised(served("ollama", "qwen2.5-32b-instruct", "rtx-3090", "q4_k_m", n_ctx=32_768))

    assert rows(long)[0] == (
        "OLLAMA_FLASH_ATTENTION=1 OLLAMA_KV_CACHE_TYPE=q8_0 OLLAMA_CONTEXT_LENGTH=131072", "--kv q8_0 --n-ctx 131072", 1,
    )  # fmt: skip
    assert rows(slots) == [("OLLAMA_NUM_PARALLEL=1", "--parallel 1", 1)]
    assert any(flag.startswith("OLLAMA_CONTEXT_LENGTH=") for flag in flags(cut))
    assert flags(cut)[0] == "OLLAMA_FLASH_ATTENTION=1 OLLAMA_KV_CACHE_TYPE=q8_0"


# SGLang


@pytest.mark.parametrize(("share", "offered"), [(0.7, True), (0.895, True), (0.9, False), (0.95, False)])
def test_sglang_s_share_is_raised_to_0_9_at_most(share: float, offered: bool) -> None:
    """Where less is in use, by the flag or by its own default."""
    question = served("sglang", "llama-3.1-8b", "rtx-3090", mem_fraction_static=share)
    found = [flag for flag in flags(advised(question, (CONTEXT, 100_000))) if "--mem-fraction-static" in flag]

    assert set(found) <= {"--mem-fraction-static 0.9"}
    assert bool(found) == (offered and share < 0.89)  # 0.895 to 0.9 is less than 2 % of tokens more


def test_sglang_s_request_is_cut_with_its_own_flag() -> None:
    """Qwen2.5-7B on an RTX 3090: as many tokens as its pool has."""
    question = served("sglang", "qwen2.5-7b-instruct", "rtx-3090", max_model_len=120_000)
    cut = next(each for each in advised(question) if each.flag.startswith("--context-length"))

    assert cut.here == f"--max-model-len {cut.context}"
    assert cut.kv_tokens == cut.context < 120_000
    assert cut.max_sequences == 1


def test_sglang_shares_latents_by_replicas() -> None:
    """DeepSeek-V2-Lite on 4 GPUs: each replica of attention has a cache of its own."""
    question = served("sglang", "deepseek-v2-lite", "h100", tp=4)
    now = engine_memory("sglang", question).room.sequences(CONTEXT)
    change = next(each for each in advised(question, (CONTEXT, 100_000)) if "--dp-size 4" in each.flag)

    assert change.flag.startswith("--dp-size 4 --enable-dp-attention")
    assert change.here.startswith("--dp 4 --tp 1 --ep 4 --enable-dp-attention")
    assert change.max_sequences > 2 * now


# the others


@pytest.mark.parametrize(
    ("engine", "expected"),
    [
        ("lmdeploy", {("--quant-policy 8", "--kv int8"), ("--cache-max-entry-count 0.9", "--cache-max-entry-count 0.9"),
                      ("--tp 2", "--tp 2")}),
        ("tgi", {("--kv-cache-dtype fp8_e5m2", "--kv fp8"), ("--quantize fp8", "--quantization fp8"),
                 ("--max-batch-prefill-tokens 1024", "--max-batch-prefill-tokens 1024"), ("--num-shard 2", "--tp 2")}),
        ("tensorrt-llm", {("--kv_cache_dtype fp8", "--kv fp8"), ("--tp_size 2", "--tp 2"),
                          ("--kv_cache_free_gpu_mem_fraction 0.95", "--kv-cache-free-gpu-mem-fraction 0.95")}),
        ("sglang", {("--kv-cache-dtype fp8_e5m2", "--kv fp8"), ("--quantization fp8", "--quantization fp8"),
                    ("--tp-size 2", "--tp 2")}),
    ],
)  # fmt: skip
def test_every_engine_has_its_own_words(engine: str, expected: set[tuple[str, str]]) -> None:
    """Where nothing is enough, every kind that gives more."""
    longest: dict[str, Any] = {"max_model_len": 32_768} if engine == "tgi" else {}
    found = advised(served(engine, "llama-3.1-8b", "rtx-3090", **longest), (CONTEXT, 100_000))

    assert expected <= {(each.flag, each.here) for each in found}


def test_a_longer_warm_up_leaves_less() -> None:
    """TGI warms up with as many tokens as its longest request has; chunks of 4,096 are enough for 14 of 4,096 tokens."""
    found = advised(served("tgi", "llama-3.1-8b", "rtx-3090", max_model_len=32_768), (CONTEXT, 13))

    assert flags(found)[0] == "--max-batch-prefill-tokens 4096"


@pytest.mark.parametrize(
    ("engine", "spelled", "here"),
    [
        ("tgi", "--max-total-tokens 16384", "--max-model-len 16384"),
        ("lmdeploy", "--session-len 16384", "--session-len 16384"),
        ("tensorrt-llm", "--max_seq_len 16384", "--max-model-len 16384"),
        ("sglang", "--context-length 16384", "--max-model-len 16384"),
    ],
)
def test_a_longer_request_is_allowed_for(engine: str, spelled: str, here: str) -> None:
    """8,192 tokens were allowed, 16,384 are asked for."""
    short: dict[str, Any] = {"session_len" if engine == "lmdeploy" else "max_model_len": 8192}

    assert rows(advised(served(engine, "llama-3.1-8b", "h100", **short), (16_384, 1))) == [(spelled, here, 1)]


@pytest.mark.parametrize("engine", sorted(CHANGES))
def test_here_is_of_the_engine(engine: str) -> None:
    """Every option of `here` is one that roofcast takes with that engine."""
    own = {option(name) for name in TAKES[engine]} | {"--kv", "--weights", "--tp", "--pp", "--dp", "--ep"}
    questions = [served(engine, "llama-3.1-70b", "h100"), served(engine, "llama-3.1-8b", "rtx-3090")]
    found = [*advised(questions[0]), *advised(questions[1], (65_536, 2))]

    assert found
    assert {word for each in found for word in each.here.split() if word.startswith("--")} <= own
    assert all(each.fits and each.gpus <= 8 for each in found)
