"""The numbers that `check` holds rules against: those of `fit`, `estimate` and `kv`, and costs by hand."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.checkpoints import TINY, TINY_KV, folder_of
from tests.gates import actual, rows
from tests.running import result

if TYPE_CHECKING:
    from pathlib import Path

ASKED = ("llama-3.1-8b", "--gpu", "h100-sxm")


@pytest.mark.parametrize(
    ("fields", "options"),
    [
        pytest.param("", (), id="plain"),
        pytest.param("tp: 2, reserve: 20%, kv: fp8", ("--tp", "2", "--reserve", "20%", "--kv", "fp8"), id="reserve"),
        pytest.param("engine: vllm", ("--engine", "vllm"), id="vllm"),
        pytest.param(
            "engine: vllm, engine_version: 0.10.0, flags: {max_model_len: 8k, gpu_memory_utilization: 0.8}, tp: 2",
            ("--engine", "vllm", "--engine-version", "0.10.0", "--max-model-len", "8k", "--gpu-memory-utilization",
             "0.8", "--tp", "2"),
            id="vllm-flags",
        ),
        pytest.param(
            "engine: vllm, weights: fp8, dp: 2, max_num_batched_tokens: 2k",
            ("--engine", "vllm", "--weights", "fp8", "--dp", "2", "--max-num-batched-tokens", "2k"),
            id="replicas",
        ),
        pytest.param(
            "engine: vllm, flags: {quantization: fp8, enforce_eager: true}",
            ("--engine", "vllm", "--quantization", "fp8", "--enforce-eager"),
            id="quantised",
        ),
        pytest.param("engine: sglang", ("--engine", "sglang"), id="sglang"),
        pytest.param("engine: llama.cpp, flags: {n_ctx: 32k, parallel: 8}", ("--engine", "llama.cpp", "--n-ctx", "32k", "--parallel", "8"), id="llama.cpp"),
        pytest.param("engine: tgi", ("--engine", "tgi"), id="tgi"),
    ],
)  # fmt: skip
def test_memory_is_as_fit_answers(tmp_path: Path, fields: str, options: tuple[str, ...]) -> None:
    """Sequences, KV tokens, and whether anything fits are those of `fit`, with an engine and without."""
    fit = result("fit", *ASKED, "--context", "4k", *options)
    more = f", {fields}" if fields else ""
    found = rows(
        tmp_path,
        f"quantity: sequences, context: 4k, at_least: 1{more}",
        f"quantity: fits, context: 4k, batch: {fit['contexts'][0]['max_sequences']}{more}",
        f"quantity: fits, context: 4k, batch: {fit['contexts'][0]['max_sequences'] + 1}{more}",
        f"quantity: weights_fit{more}",
        *([f"quantity: kv_tokens, at_least: 1{more}"] if fit["kv_tokens"] is not None else []),
    )

    assert [row["actual"] for row in found[:4]] == [fit["contexts"][0]["max_sequences"], True, False, True]
    assert [row["actual"] for row in found[4:]] == [fit["kv_tokens"]] * len(found[4:])


@pytest.mark.parametrize("basis", ["bound", "expected", "low", "high"])
@pytest.mark.parametrize(
    ("fields", "options"),
    [
        pytest.param("engine: vllm", ("--engine", "vllm"), id="vllm"),
        pytest.param("tp: 2, weights: fp8, kv: fp8", ("--tp", "2", "--weights", "fp8", "--kv", "fp8"), id="formats"),
        pytest.param("pp: 2, network: 100 Gbit/s", ("--pp", "2", "--network", "100 Gbit/s"), id="pipeline"),
    ],
)
def test_times_are_as_estimate_answers(tmp_path: Path, basis: str, fields: str, options: tuple[str, ...]) -> None:
    """TTFT, TPOT and tokens a second are those of `estimate`; the low end of a rate is that of the longest time."""
    asked = result("estimate", *ASKED, "--context", "4k", "--batch", "1,16", *options)["phases"]
    at = {(row["phase"], row["batch"]): row for row in asked}
    key, other = (f"{name}_seconds" for name in (basis, {"low": "high", "high": "low"}.get(basis, basis)))
    found = rows(
        tmp_path,
        f"quantity: ttft, prompt: 4k, at_most: 9 s, basis: {basis}, {fields}",
        f"quantity: tpot, context: 4k, batch: 16, at_most: 9 s, basis: {basis}, {fields}",
        f"quantity: tokens_per_second, context: 4k, batch: 16, at_least: 1, basis: {basis}, {fields}",
    )

    expected = [at["prefill", 1][key], at["decode", 16][key], 16 / at["decode", 16][other]]
    assert [row["actual"] for row in found] == pytest.approx(expected, rel=1e-12)
    assert {row["basis"] for row in found} == {basis}


def test_prefixes_and_budgets_are_as_estimate_answers(tmp_path: Path) -> None:
    """A share of the prompt that is cached, and tokens of a step, shorten and cut prefill alike."""
    options = (
        "--phase",
        "prefill",
        "--prompt",
        "8k",
        "--batch",
        "1",
        "--prefix-hit",
        "50%",
        "--max-num-batched-tokens",
        "2k",
    )
    [row] = result("estimate", *ASKED, "--engine", "vllm", *options)["phases"]

    rule = "quantity: ttft, prompt: 8k, prefix_hit: 0.5, max_num_batched_tokens: 2k, engine: vllm, at_most: 9 s"
    assert actual(tmp_path, rule) == pytest.approx(row["expected_seconds"], rel=1e-12)


def test_bytes_are_as_kv_answers(tmp_path: Path) -> None:
    """KV bytes a token and weight bytes are those of the whole model: 128 KiB, and 8.03e9 parameters of 2 bytes or 1."""
    kv = result("kv", "llama-3.1-8b")["models"][0]

    assert actual(tmp_path, "quantity: kv_bytes_per_token, at_most: 128 KiB") == kv["kv_bytes_per_token"] == 131072
    assert actual(tmp_path, "quantity: kv_bytes_per_token, kv: fp8, at_most: 64 KiB") == 65536
    assert actual(tmp_path, "quantity: weight_bytes, at_most: 20 GB") == kv["weight_bytes"] == 2 * 8_030_261_248
    assert actual(tmp_path, "quantity: weight_bytes, weights: fp8, at_most: 20 GB") == 8_030_261_248


def test_cost_of_output_tokens(tmp_path: Path) -> None:
    """A million output tokens take 1e6 TPOT / batch of the GPU: at 3.60 USD an hour 0.001 USD a second of it."""
    [row] = result("estimate", *ASKED, "--phase", "decode", "--context", "1050", "--batch", "32", "--engine", "vllm")[
        "phases"
    ]
    rule = "quantity: cost_per_million_tokens, prompt: 1000, output: 100, batch: 32, gpu_price: 3.6, engine: vllm, at_most: 9"

    assert actual(tmp_path, rule) == pytest.approx(1000 * row["expected_seconds"] / 32, rel=1e-9)


def test_a_prefix_that_is_cached_costs_less(tmp_path: Path) -> None:
    """Half of each prompt found in a cache: a request's tokens cost between the price of input and of cached input less."""
    rule = "quantity: cost_per_million_tokens, prompt: 1000, output: 100, batch: 32, gpu_price: 2, engine: vllm, at_most: 9"
    found = {
        of: actual(tmp_path, f"{rule}, prefix_hit: 50%, of: {of}")
        for of in ("input", "cached_input", "output", "blended")
    }

    assert found["blended"] < actual(tmp_path, f"{rule}, of: blended")
    parts = 500 * found["input"] + 500 * found["cached_input"] + 100 * found["output"]
    assert found["blended"] == pytest.approx(parts / 1100)


def test_a_budget_cuts_prompts_that_are_priced(tmp_path: Path) -> None:
    """Prompts in steps of 512 tokens read the weights more often: input costs more."""
    rule = "quantity: cost_per_million_tokens, of: input, prompt: 4k, output: 100, batch: 1, gpu_price: 2, engine: vllm, at_most: 9"

    assert actual(tmp_path, f"{rule}, max_num_batched_tokens: 512") > actual(tmp_path, rule)


def test_cost_by_kind_of_token(tmp_path: Path) -> None:
    """Cached input costs less than input, input less than output; blended is between; two GPUs cost twice their time."""
    rule = "quantity: cost_per_million_tokens, prompt: 1000, output: 100, batch: 32, gpu_price: 2, engine: vllm, at_most: 9, of: {}"
    cost = {of: actual(tmp_path, rule.format(of)) for of in ("input", "cached_input", "output", "blended")}

    assert cost["cached_input"] < cost["input"] < cost["blended"] < cost["output"]
    assert cost["blended"] == pytest.approx((1000 * cost["input"] + 100 * cost["output"]) / 1100)
    low, high = (actual(tmp_path, f"{rule.format('output')}, basis: {basis}") for basis in ("low", "high"))
    assert low < cost["output"] < high


@pytest.mark.parametrize(
    ("fields", "fits"),
    [
        pytest.param("model: gemma-3-27b-it, engine: vllm", True, id="vllm-too-long"),
        pytest.param("engine: vllm, flags: {gpu_memory_utilization: 0.999}", False, id="vllm-more-than-free"),
        pytest.param("model: llama-3.3-70b, engine: vllm", False, id="vllm"),
        pytest.param("engine: sglang, flags: {max_model_len: 1m}", True, id="sglang-too-long"),
        pytest.param("model: llama-3.3-70b, engine: sglang", False, id="sglang"),
        pytest.param("engine: llama.cpp, flags: {n_ctx: 1m}", True, id="llama.cpp-too-long"),
        pytest.param("model: llama-3.3-70b, engine: llama.cpp, flags: {n_ctx: 256}", False, id="llama.cpp"),
        pytest.param("engine: tensorrt-llm, flags: {max_model_len: 1m}", True, id="trt-llm-too-long"),
        pytest.param("model: llama-3.3-70b, engine: tgi", False, id="tgi"),
        pytest.param("model: llama-3.3-70b, tp: 2", True, id="plain"),
    ],
)
def test_weights_fit_though_the_longest_request_does_not(tmp_path: Path, fields: str, *, fits: bool) -> None:
    """A server that does not start for want of cache alone has weights that fit; no request of it is counted."""
    found = rows(tmp_path, f"quantity: weights_fit, {fields}", f"quantity: fits, context: 512k, {fields}")

    assert [row["actual"] for row in found] == [fits, False]


ONE_APART = (
    "", "gpu: h200-sxm", "tp: 2", "gpus: 4", "engine: vllm", "engine: sglang", "engine: vllm, dp: 2", "engine: vllm, pp: 2",
    "engine: vllm, flags: {max_model_len: 8k}", "engine: vllm, flags: {quantization: fp8}", "engine: vllm, flags: {dtype: fp16}",
    "engine: vllm, engine_version: 0.8.0", "engine: vllm, max_num_batched_tokens: 512", "weights: fp8", "kv: fp8",
    "model: qwen2.5-7b", "engine: vllm, kv: fp8",
)  # fmt: skip


def test_rules_that_differ_in_one_field_do_not_share_an_answer(tmp_path: Path) -> None:
    """What is prepared once for many rules is never another rule's: together they answer as each does alone."""
    of_memory = [
        f"quantity: sequences, context: 4k, at_least: 1, name: m{n}, {more}" for n, more in enumerate(ONE_APART)
    ]
    of_memory.append("quantity: sequences, context: 4k, at_least: 1, reserve: 30%")
    of_time = [f"quantity: ttft, prompt: 4k, at_most: 9 s, name: t{n}, {more}" for n, more in enumerate(ONE_APART)]
    links = [
        f"quantity: ttft, prompt: 4k, at_most: 9 s, tp: 16, network: {rate}" for rate in ("100 Gbit/s", "400 Gbit/s")
    ]
    rules = [*of_memory, *of_time, *links]
    together = [row["actual"] for row in rows(tmp_path, *rules)]

    assert together == [actual(tmp_path, rule) for rule in rules]
    assert len(set(together[: len(of_memory)])) > 8
    assert len(set(together[len(of_memory) :])) > 8


def test_encoder_tokens_make_another_model(tmp_path: Path) -> None:
    """What cross attention keeps of an encoder counts for the rule that asks, and for it alone."""
    rule = "quantity: sequences, model: flan-t5-base, context: 128, at_least: 1"
    found = rows(tmp_path, f"{rule}, name: few, encoder_tokens: 64", f"{rule}, name: many, encoder_tokens: 4k")

    assert found[0]["actual"] > found[1]["actual"]


def test_flags_that_quantise_count_for_times(tmp_path: Path) -> None:
    """Weights quantised on load are read in half the time: a decode step is bound by them, and takes 50 to 60 % of it."""
    rule = "quantity: tpot, context: 1k, batch: 1, at_most: 9 s, engine: vllm, basis: bound"
    plain, quantised = (actual(tmp_path, f"{rule}{more}") for more in ("", ", flags: {quantization: fp8}"))

    assert 0.5 < quantised / plain < 0.6


def test_a_cache_is_as_its_engine_takes_it(tmp_path: Path) -> None:
    """A checkpoint that asks for a cache in FP8 gets one from an engine that follows it, and from no other."""
    scheme = {"quant_method": "compressed-tensors", "kv_cache_scheme": {"num_bits": 8, "type": "float"}}
    folder = folder_of(tmp_path / "tiny", TINY | {"quantization_config": scheme})
    rule = f"quantity: kv_bytes_per_token, model: {folder}, at_most: 1 KiB"
    found = rows(tmp_path, f"{rule}, name: plain", f"{rule}, name: served, engine: vllm")

    assert [row["actual"] for row in found] == [TINY_KV, TINY_KV / 2]
