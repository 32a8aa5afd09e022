"""TensorRT-LLM's, TGI's and LMDeploy's memory: a share of what is left, in blocks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from roofcast.calculators.deployment import Deployment, prepare
from roofcast.calculators.engines import lmdeploy, tensorrt_llm, tgi
from roofcast.calculators.engines.flags import Flags
from roofcast.calculators.engines.leftover import (
    CONTEXT,
    NCCL,
    Blocks,
    activation_term,
    context_term,
    fixed_bytes,
    portion,
    rules_of,
    token_bytes,
)
from roofcast.calculators.engines.terms import GIB, Served
from roofcast.calculators.errors import UsageError
from roofcast.hwdb.lookup import find_accelerator
from roofcast.modelspec.formats import FORMATS
from roofcast.modelspec.sharding import Shards
from tests.checkpoints import LLAMA_2_7B, catalogued, loaded

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from roofcast.calculators.deployment import Ready
    from roofcast.calculators.engines.terms import EngineMemory

    Answer = Callable[[Served, Mapping[str, float]], EngineMemory]

ENGINES = pytest.mark.parametrize(
    ("engine", "longest"),
    [(tensorrt_llm.answer, "max_model_len"), (tgi.answer, "max_model_len"), (lmdeploy.answer, "session_len")],
)


def ready_of(name: str, gpu: str, kv: str = "bf16", weights: str | None = None, **cut: int) -> Ready:
    """Return a model of the catalogue on GPUs."""
    stored = FORMATS[weights] if weights else None
    return prepare(catalogued(name), Deployment(find_accelerator(gpu).accelerator, FORMATS[kv], stored, Shards(**cut)))


def llama_2(gpu: str = "h100", kv: str = "fp16", weights: str | None = None) -> Ready:
    """Return Llama-2-7B, whose token takes 32 x 2 x 4,096 elements: 524,288 B in 16 bits."""
    stored = FORMATS[weights] if weights else None
    return prepare(loaded(LLAMA_2_7B), Deployment(find_accelerator(gpu).accelerator, FORMATS[kv], stored))


def started(engine: Answer, ready: Ready, given: dict[str, float] | None = None, **flags: Any) -> EngineMemory:
    """Return what an engine makes of it."""
    return engine(Served(ready, Flags(**flags)), given or {})


# records


def test_tensorrt_llm_s_blocks_of_64_gib() -> None:
    """64.75 GiB / (64 x 524,288 B) = 2,072 blocks: 132,608 tokens.

    Source: https://github.com/NVIDIA/TensorRT-LLM/issues/1400.
    """
    made = started(tensorrt_llm.answer, llama_2("a100"), {"kv": 64.75 * GIB}, engine_version="0.8.0")

    assert (made.block_tokens, made.blocks, made.tokens) == (64, 2072, (132_608,) * 3)


@pytest.mark.parametrize(
    ("free", "block", "version", "blocks"),
    [
        # 63.43 GiB / 16 MiB = 4,059.6; https://nvidia.github.io/TensorRT-LLM/reference/memory.html
        (70.48, 64, "0.16.0", 4060),
        # 1.278 GiB / 16 MiB = 81.8
        (1.42, 64, "0.16.0", 82),
        # the newest count whole blocks only
        (70.48, 64, "1.0", 4059),
    ],
)
def test_a_started_block_counts_in_tensorrt_llm_until_1_0(free: float, block: int, version: str, blocks: int) -> None:
    """Llama-2-7B with a cache in fp8: 262,144 B a token, 0.9 of what is free."""
    ready = llama_2("h100", "fp8")
    made = started(tensorrt_llm.answer, ready, {"free": free * GIB}, engine_version=version, block_size=block)

    assert made.blocks == blocks


def test_tensorrt_llm_predicts_what_its_guide_prints() -> None:
    """7B in 8 bits on an H100: 63.44 GiB and 259,840 tokens are printed, predicted within 2 % and in the interval.

    Source: https://nvidia.github.io/TensorRT-LLM/reference/memory.html.
    """
    made = started(tensorrt_llm.answer, llama_2("h100", "fp8", "int8"), engine_version="0.16.0")

    assert made.kv[0] / GIB == pytest.approx(63.44, rel=0.02)
    activation = next(term for term in made.terms if term.name == "activation")
    assert activation.low / GIB < 1.11 < activation.high / GIB  # 1,134 MiB of execution context memory


def test_tensorrt_llm_0_5_printed_tokens_of_no_whole_blocks() -> None:
    """10,718 tokens of 0.95 of what is free: 5.51 GiB free, less than is left beside weights alone.

    Source: https://github.com/NVIDIA/TensorRT-LLM/issues/224; 10,718 x 524,288 / 0.95 = 5.51 GiB.
    """
    flags: dict[str, Any] = {"kv_cache_free_gpu_mem_fraction": 0.95, "block_size": 1, "engine_version": "0.5.0"}
    made = started(tensorrt_llm.answer, llama_2("a10"), {"free": 5.51 * GIB}, **flags)

    assert made.tokens is not None
    assert made.tokens[0] == pytest.approx(10_718, rel=1e-3)


def test_lmdeploy_s_blocks() -> None:
    """6,214 blocks of 8.000 MB hold 397,696 tokens of 131,072 B, 32 layers x 8 heads x 256 x 2 B.

    Source: https://github.com/InternLM/lmdeploy/issues/3411.
    """
    made = started(lmdeploy.answer, ready_of("internlm2-7b", "a100"), {"kv": 6214 * 8 * 2.0**20})

    assert (made.block_tokens, made.blocks, made.tokens) == (64, 6214, (397_696,) * 3)


# rules


def test_tensorrt_llm_takes_a_share_of_what_is_left() -> None:
    """0.9 x (visible - context - weights - activations)."""
    made = started(tensorrt_llm.answer, llama_2())
    visible, budget, *taken, kv = made.terms

    assert [term.name for term in taken] == ["context", "weights", "activation"]
    assert visible.bytes == budget.bytes
    assert kv.bytes == pytest.approx(0.9 * (visible.bytes - sum(term.bytes for term in taken)))


def test_tgi_leaves_a_margin_and_what_its_fraction_excludes() -> None:
    """0.95 x (0.8 visible - context - weights - activations)."""
    made = started(tgi.answer, llama_2(), cuda_memory_fraction=0.8)
    visible, budget, *taken, kv = made.terms

    assert budget.bytes == pytest.approx(0.8 * visible.bytes)
    assert kv.bytes == pytest.approx(0.95 * (0.8 * visible.bytes - sum(term.bytes for term in taken)))


def test_lmdeploy_profiles_nothing() -> None:
    """0.8 x (visible - context - weights): activations must fit in the rest."""
    made = started(lmdeploy.answer, llama_2())
    visible, _, *taken, kv = made.terms

    assert [term.name for term in taken] == ["context", "weights"]
    assert kv.bytes == pytest.approx(0.8 * (visible.bytes - sum(term.bytes for term in taken)))
    assert made.said.warnings == ()


def test_lmdeploy_warns_where_a_forward_pass_does_not_fit() -> None:
    """0.99 of the rest leaves 0.6 GiB, and a prefill of 65,536 tokens takes 5.6 GiB."""
    made = started(lmdeploy.answer, llama_2(), cache_max_entry_count=0.99, max_num_batched_tokens=65_536)

    assert "the cache leaves 0.6" in made.said.warnings[0]


@pytest.mark.parametrize(
    ("engine", "version", "block"),
    [
        (tensorrt_llm.answer, "0.8.0", 64),
        (tensorrt_llm.answer, "1.0.0", 32),
        (tensorrt_llm.answer, None, 32),
        (tgi.answer, "1.4.0", 16),
        (tgi.answer, "2.4.0", 1),
        (tgi.answer, None, 1),
        (lmdeploy.answer, None, 64),
    ],
)
def test_blocks_by_version(engine: Answer, version: str | None, block: int) -> None:
    """Each version has its own default."""
    assert started(engine, llama_2(), engine_version=version).block_tokens == block


def test_lmdeploy_s_share_by_version() -> None:
    """A half until 0.2.2, then 0.8."""
    old, new = (started(lmdeploy.answer, llama_2(), engine_version=version) for version in ("0.2.0", "0.2.3"))

    assert old.kv[0] / new.kv[0] == pytest.approx(0.5 / 0.8)


def test_tgi_prefills_the_longest_request() -> None:
    """4,096 tokens, the longest request where it is longer, or as many as given."""
    lengths: list[dict[str, Any]] = [{}, {"max_model_len": 16_384}, {"max_batch_prefill_tokens": 1024}]
    ready = ready_of("llama-3.1-8b", "h100")
    rules = [str(started(tgi.answer, ready, **flags).terms[-2].rule) for flags in lengths]

    assert [rule.split()[0] for rule in rules] == ["4,096", "16,384", "1,024"]


@ENGINES
def test_given_bytes_replace_the_prediction(engine: Answer, longest: str) -> None:
    """Visible memory and weights of a log are measured, and the cache follows them."""
    del longest
    made = started(engine, llama_2(), {"visible": 40 * GIB, "weights": 20 * GIB})
    plain = started(engine, llama_2())

    assert {term.provenance for term in made.terms if term.name in {"visible", "weights"}} == {"measured"}
    lost = plain.terms[0].bytes - 40 * GIB + 20 * GIB - next(t.bytes for t in plain.terms if t.name == "weights")
    assert made.kv[0] < plain.kv[0] - 0.79 * lost


@ENGINES
def test_every_guess_is_listed(engine: Answer, longest: str) -> None:
    """Version and context are assumed, and the terms that are have an interval that holds them."""
    del longest
    made = started(engine, llama_2())

    assert "the newest whose rules are known" in made.said.assumptions[0]
    assert any("CUDA context" in line for line in made.said.assumptions)
    assert all(term.low < term.bytes < term.high for term in made.terms if term.provenance == "assumed")
    assert made.kv[1] < made.kv[0] < made.kv[2]


@ENGINES
def test_more_devices_are_never_less_cache(engine: Answer, longest: str) -> None:
    """Of 1, 2, 4 and 8 devices each holds fewer weights and fewer heads."""
    del longest
    tokens = [started(engine, ready_of("llama-3.1-8b", "h100", tp=tp)).tokens for tp in (1, 2, 4, 8)]

    middle = [each[0] for each in tokens if each]
    assert middle == sorted(middle)
    assert middle[0] < middle[-1]


@ENGINES
def test_requests_fit_in_the_tokens(engine: Answer, longest: str) -> None:
    """However long, they take at most the pool, and longer ones are never more."""
    del longest
    made = started(engine, ready_of("llama-3.1-8b", "h100"))
    lengths = (1, 63, 64, 65, 4096, 100_000, 10**7)
    counts = [made.room.sequences(length) for length in lengths]

    assert counts == sorted(counts, reverse=True)
    assert counts[-1] == 0
    assert made.tokens is not None
    assert all(count * length <= made.tokens[0] for count, length in zip(counts, lengths, strict=True))


# what does not fit


@ENGINES
def test_weights_too_large(engine: Answer, longest: str) -> None:
    """Nothing is raised: the reason is one line, and nothing fits."""
    del longest
    made = started(engine, ready_of("llama-3.1-70b", "h100"))

    assert made.reason is not None
    assert "weights 131.42" in made.reason
    assert "\n" not in made.reason
    assert (made.kv, made.tokens, made.room.sequences(1)) == ((0.0, 0.0, 0.0), (0, 0, 0), 0)
    assert made.longest == 131_072  # the model's own: no pool bounds it


@ENGINES
def test_a_request_too_long(engine: Answer, longest: str) -> None:
    """The reason says what would fit, and a request of that length does."""
    ready = ready_of("llama-3.1-8b", "a10")
    flags = _prefill(engine)
    made = started(engine, ready, **(flags | {longest: 10**6}))
    again = started(engine, ready, **(flags | {longest: made.longest}))

    assert made.reason is not None
    assert f"at most {made.longest:,} tokens" in made.reason
    assert (made.tokens, made.room.sequences(1)) == ((0, 0, 0), 0)
    assert again.reason is None
    assert again.room.sequences(made.longest) == 1


def _prefill(engine: Answer) -> dict[str, Any]:
    return {"max_batch_prefill_tokens": 2048} if engine is tgi.answer else {}


@pytest.mark.parametrize(
    ("engine", "flags"),
    [
        (tensorrt_llm.answer, {"kv_cache_free_gpu_mem_fraction": 1.0}),
        (tgi.answer, {"cuda_memory_fraction": 1.2}),
        (lmdeploy.answer, {"cache_max_entry_count": 0.0}),
        (lmdeploy.answer, {"engine_version": "newest"}),
    ],
)
def test_flags_that_cannot_be(engine: Answer, flags: dict[str, Any]) -> None:
    """They are refused by name."""
    with pytest.raises(UsageError, match=next(iter(flags)).replace("_", "-")):
        started(engine, llama_2(), **flags)


@ENGINES
def test_a_model_without_keys_and_values(engine: Answer, longest: str) -> None:
    """States alone are refused, naming engines that have rules for them."""
    del longest
    with pytest.raises(UsageError, match=r"states and no tokens; vllm, sglang"):
        started(engine, ready_of("mamba-2.8b", "h100"))


# parts


def test_portions() -> None:
    """A share lies within 0 and 1, which is allowed where all of the memory is."""
    assert (portion("--x", None, 0.5), portion("--x", 0.25, 0.5), portion("--x", 1, 0.5, all_of_it=True)) == (
        0.5,
        0.25,
        1,
    )
    with pytest.raises(UsageError, match="--x 1: it is a share of the memory, above 0 and below 1"):
        portion("--x", 1, 0.5)


def test_rules_before_the_first() -> None:
    """A version older than all is as the first."""
    assert rules_of((((1,), "a"), ((2,), "b")), (0, 9)) == "a"


def test_nccl_comes_with_a_second_device() -> None:
    """One device has a context alone."""
    one, two = (context_term(ready_of("llama-3.1-8b", "h100", tp=tp)) for tp in (1, 2))

    assert (one.low, one.bytes, one.high) == tuple(GIB * size for size in CONTEXT)
    assert two.bytes - one.bytes == pytest.approx(NCCL[1] * GIB)


def test_logits_are_in_the_activations() -> None:
    """100 more rows of 32,000 in fp32 are 12.8 MB."""
    one, more = (activation_term(llama_2(), 8192, rows) for rows in (1, 101))

    assert more.bytes - one.bytes == pytest.approx(100 * 32_000 * 4)
    assert one.low == pytest.approx(one.bytes / 2)
    assert one.high == pytest.approx(one.bytes * 1.5)


def test_experts_results_are_in_the_activations() -> None:
    """Mixtral: 4,096 tokens x 2 experts x (max(2 x 14,336, 4,096) + 14,336) x 2 B are 0.66 GiB, beside the rest."""
    mixtral = activation_term(ready_of("mixtral-8x7b", "h200"), 4096, 1)

    assert mixtral.bytes > 4096 * 2 * (2 * 14_336 + 14_336) * 2


def test_no_more_requests_than_a_step_takes() -> None:
    """TensorRT-LLM: --max-num-seqs bounds them, whatever fits."""
    made = started(tensorrt_llm.answer, llama_2(), max_num_seqs=7)

    assert made.room.sequences(1) == 7
    assert Blocks(100, 64, 1.0, most=3).sequences(64) == 3


def test_token_bytes_of_stages_and_windows() -> None:
    """A stage has half of the layers; windows count whole; a state is a sequence's."""
    whole, half = (token_bytes(ready_of("llama-3.1-8b", "h100", pp=pp)) for pp in (1, 2))
    hybrid = ready_of("qwen3.5-9b", "h100")

    assert (whole, half) == (131_072, 65_536)
    assert token_bytes(ready_of("gemma-3-1b-it", "h100")) == 26 * 1 * 512 * 2
    assert token_bytes(hybrid) == 8 * 4 * 512 * 2
    # 24 layers x (32 x 128 x 128 x 4 B + 8,192 channels x 4 columns x 2 B)
    assert fixed_bytes(hybrid) == 24 * (2_097_152 + 65_536)


def test_a_state_is_taken_from_the_pool() -> None:
    """640 B: requests of 64 B and 36 B of state are 6; without tokens there are none."""
    assert Blocks(10, 64, 1.0, 36.0).sequences(1) == 6
    assert Blocks(0, 64, 1.0).sequences(1) == 0
    assert Blocks(10, 64, 0.0).sequences(1) == 0
