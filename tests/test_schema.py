"""JSON is the API for scripts: its keys, their kinds, and the schema that is published for each command."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from jsonschema import Draft202012Validator

from roofcast.reports.schema import RESULTS, json_schema
from tests.checkpoints import MISTRAL_7B_V0_1, TINY, folder_of
from tests.running import answer, roofcast

if TYPE_CHECKING:
    from pathlib import Path

SMALL = ("--other-gpus", "none", "--other-models", "none", "--api", "none")
PLANNED = ("--gpu", "h100-sxm,l4", "--gpu-price", "2", "--prompt", "64", "--output", "8", "--jobs", "1")
COMMANDS = [
    pytest.param(("kv", "llama-3.1-8b", "deepseek-v3", "opt-13b"), id="kv"),
    pytest.param(("kv", "qwen3-32b-fp8", "gpt-j-6b"), id="kv-quantised"),
    pytest.param(("kv", "llama-3.1-8b", "--context", "1m", "--weights", "nvfp4", "--kv", "q4_0"), id="kv-asked"),
    pytest.param(("kv", "qwen3.6-27b", "gpt-oss-20b", "--mtp"), id="kv-hybrid"),
    pytest.param(("model", "qwen3.6-35b-a3b", "--mtp", "--batch", "1,256"), id="model-hybrid"),
    pytest.param(("model", "t5-small", "--encoder-tokens", "512"), id="model-encoder"),
    pytest.param(("model", "deepseek-v3"), id="model"),
    pytest.param(("model", "gpt2"), id="model-small"),
    pytest.param(("gpus",), id="gpus"),
    pytest.param(("gpus", "h100"), id="gpus-one"),
    pytest.param(("gpus", "h100", "2080ti", "--model", "llama-3.1-8b"), id="gpus-model"),
    pytest.param(("estimate", "llama-3.1-8b", "--gpu", "h100-sxm"), id="estimate"),
    pytest.param(("estimate", "deepseek-v3", "--gpu", "h200", "--tp", "8", "--phase", "mixed"), id="estimate-mixed"),
    pytest.param(
        ("estimate", "qwen3.6-27b", "--gpu", "h200", "--pp", "2", "--prefix-hit", "50%"), id="estimate-hybrid"
    ),
    pytest.param(("roofline", "qwen2.5-1.5b", "--gpu", "2080ti", "--context", "32k"), id="roofline"),
    pytest.param(("roofline", "falcon-mamba-7b", "--gpu", "h100"), id="roofline-no-attention"),
    pytest.param(("levers", "llama-3.1-8b", "--gpu", "h100-sxm"), id="levers"),
    pytest.param(("levers", "deepseek-v3", "--gpu", "h200", "--tp", "8", "--context", "32k"), id="levers-shared"),
    pytest.param(("price", "--api", "all"), id="price-lists"),
    pytest.param(
        (
            "price",
            "llama-3.1-8b",
            "--gpu",
            "h100-sxm",
            "--gpu-price",
            "2",
            "--ratio",
            "5",
            "--rate",
            "3",
            "--batch",
            "1,9k",
        ),
        id="price-model",
    ),
    pytest.param(
        ("price", "--input-tokens", "1e9", "--output-tokens", "1e8", "--gpus", "8", "--gpu-price", "2"), id="price-day"
    ),
    pytest.param(("price", "--mix", "9k:100,100:1k", "--shared-prefix", "64"), id="price-mix"),
    pytest.param(("report", "llama-3.1-8b", "--gpu", "h100-sxm", "--engine", "vllm", "--tpot", "12ms"), id="report"),
    pytest.param(("report", "llama-3.1-405b", "--gpu", "h100-sxm", "--other-gpus", "none"), id="report-does-not-fit"),
    pytest.param(
        ("simulate", "gpt2", "--gpu", "h100-sxm", "--rate", "9", "--requests", "9", "--prompt", "64", "--ttft", "1s"),
        id="simulate",
    ),
    pytest.param(("simulate", "llama-3.1-405b", "--gpu", "h100-sxm", "--rate", "9"), id="simulate-does-not-fit"),
    pytest.param(
        ("report", "gpt2", "--gpu", "h100-sxm", "--context", "512", "--rate", "9", "--ttft", "1s", *SMALL),
        id="report-plan",
    ),
    pytest.param(("plan", "gpt2", *PLANNED, "--rate", "9", "--ttft", "1s"), id="plan"),
    pytest.param(("plan", "gpt2", *PLANNED, "--rate", "9", "--tpot", "1us"), id="plan-missed"),
    pytest.param(("plan", "gpt2", *PLANNED, "--find", "rate", "--ttft", "1s"), id="plan-find"),
    pytest.param(("speculate",), id="speculate"),
    pytest.param(("speculate", "--check", "--draws", "2000"), id="speculate-rule"),
    pytest.param(("speculate", "llama-3.1-8b", "--gpu", "h100-sxm"), id="speculate-model"),
    pytest.param(
        (
            "speculate",
            "deepseek-v3",
            "--gpu",
            "h200",
            "--tp",
            "8",
            "--batch",
            "1,9999",
            "--tokens-per-round",
            "1.9",
            "--k",
            "1",
        ),
        id="speculate-shared",
    ),
    pytest.param(("attention", "--gpu", "a100-80gb-sxm", "--context", "4k"), id="attention"),
    pytest.param(("attention", "deepseek-v3", "--gpu", "h100-sxm,mi300x,tpu-v6e"), id="attention-latent"),
    pytest.param(("fit", "llama-3.1-8b", "--gpu", "h100-sxm"), id="fit"),
    pytest.param(("fit", "llama-3.1-405b", "--gpu", "h100-sxm"), id="fit-not"),
    pytest.param(("fit", "qwen3.6-27b", "--gpu", "h100-sxm", "--weights", "fp8"), id="fit-hybrid"),
    pytest.param(("fit", "mistral-7b-v0.1", "--gpu", "a100-80gb", "--require", "sequences>=1@4k"), id="fit-windows"),
    pytest.param(("fit", "deepseek-v3", "--gpu", "h200", "--tp", "8", "--context", "1"), id="fit-shared"),
    pytest.param(("profile", "compare", "--from", "tests/fixtures/profiles/made-up.json"), id="profile-saved"),
]
# keys that other programs rely on
KV = {
    "model", "attention", "layers", "query_heads", "kv_heads", "kv_bytes_per_token", "window_bytes", "state_bytes",
    "cache_bytes", "reserved_bytes", "parameters", "parameters_in_files", "active_parameters", "weight_bytes", "provenance",
}  # fmt: skip
GPUS = {
    "id", "memory_bytes", "driver_bytes", "visible_bytes", "bandwidth_bytes_per_second", "peak_flops_per_second", "ridge",
}  # fmt: skip
FIT = {
    "fits", "memory", "kv_tokens", "kv_tokens_low", "kv_tokens_high", "blocks", "max_concurrency", "contexts",
    "crossover_tokens",
}  # fmt: skip
FIT_MEMORY = {"total_bytes", "budget_bytes", "weight_bytes", "activation_bytes", "overhead_bytes", "kv_bytes"}
FIT_CONTEXT = {"context", "kv_bytes_per_sequence", "max_sequences", "prefill_flops", "attention_share"}


@pytest.mark.parametrize("command", COMMANDS)
def test_json_validates(command: tuple[str, ...]) -> None:
    """What a command prints as JSON is what `roofcast schema` publishes for it."""
    schema = roofcast("schema", command[0]).data

    Draft202012Validator(schema).validate(answer(*command))


@pytest.mark.parametrize("command", RESULTS)
def test_schemas_are_schemas(command: str) -> None:
    """Every published schema is a valid one of its draft, and every property of a result is described."""
    schema = json_schema(command)
    Draft202012Validator.check_schema(schema)
    objects = [schema["properties"]["result"], *schema["$defs"].values()]

    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert schema["properties"]["schema"] == {"const": f"roofcast.{command}/1"}
    assert all(part.get("properties") for part in objects)


@pytest.mark.parametrize("command", RESULTS)
def test_a_missing_key_does_not_validate(command: str) -> None:
    """The schema insists on every key of the envelope, and on no other."""
    validator = Draft202012Validator(json_schema(command))
    arguments: dict[str, tuple[str, ...]] = {"kv": ("gpt2",), "model": ("gpt2",), "gpus": ("h100-sxm",)}
    arguments["price"] = ("gpt2", "--gpu", "h100-sxm", "--context", "512", "--gpu-price", "2")
    arguments["validate"] = ("tests/fixtures/benchmarks/own.csv", "--offline")
    arguments["profile"] = ("compare", "--from", "tests/fixtures/profiles/made-up.json", "--offline")
    arguments["simulate"] = ("gpt2", "--gpu", "h100-sxm", "--concurrency", "2", "--requests", "4")
    arguments["plan"] = ("gpt2", *PLANNED, "--rate", "9", "--ttft", "1s")
    sample = "tests/fixtures/sample_repository"
    arguments["check"] = (f"{sample}/roofcast.yaml", "--baseline", f"{sample}/roofcast-baseline.json", "--offline")
    arguments |= dict.fromkeys(
        ("fit", "estimate", "roofline", "levers", "attention", "speculate", "report"), ("gpt2", "--gpu", "h100-sxm")
    )
    good = answer(command, *arguments[command])

    assert validator.is_valid(good)
    for key in good:
        assert not validator.is_valid({k: v for k, v in good.items() if k != key}), key
    assert not validator.is_valid(good | {"extra": 1})
    assert not validator.is_valid(good | {"result": {}})


@pytest.mark.parametrize("command", COMMANDS)
def test_stdout_is_nothing_but_json(command: tuple[str, ...]) -> None:
    """One object with the five keys of the envelope; warnings for people go to stderr."""
    outcome = roofcast(*command, "--format", "json")

    assert list(outcome.data) == ["schema", "inputs", "result", "assumptions", "warnings"]
    assert outcome.data["schema"] == f"roofcast.{command[0]}/1"
    assert all(line.startswith("roofcast: warning: ") for line in outcome.err.splitlines())
    assert len(outcome.err.splitlines()) == len(outcome.data["warnings"])


def test_keys_of_kv() -> None:
    """`kv` keeps its keys, kinds included."""
    [row] = answer("kv", "llama-3.1-8b", "--context", "4k,100")["result"]["models"]

    assert row.keys() >= KV
    assert row["model"] == "llama-3.1-8b"
    assert row["attention"] == "GQA"
    assert row["cache_bytes"] == {"4096": 2**29, "100": 100 * 2**17}
    assert row["parameters_in_files"] is None
    assert row["provenance"]["weight_bytes"] == "config"
    for key in ("layers", "query_heads", "kv_heads", "parameters", "active_parameters"):
        assert type(row[key]) is int


def test_keys_of_cache_bytes_are_plain_counts() -> None:
    """Contexts are spelled as plain token counts, however they were asked."""
    [row] = answer("kv", "llama-3.1-8b", "--context", "1k, 2K,0.5m,1m")["result"]["models"]

    assert list(row["cache_bytes"]) == ["1024", "2048", "524288", "1048576"]


def test_keys_of_gpus() -> None:
    """`gpus` keeps its keys; SI numbers."""
    [row] = answer("gpus", "h100-sxm")["result"]["gpus"]

    assert row.keys() >= GPUS
    assert row["memory_bytes"] == 80e9
    assert row["bandwidth_bytes_per_second"] == 3.35e12
    assert row["ridge"]["bf16"] == pytest.approx(989.4e12 / 3.35e12)


def test_keys_of_fit() -> None:
    """`fit` keeps its keys on every level."""
    got = answer("fit", "llama-3.1-8b", "--gpu", "h100-sxm")["result"]

    assert got.keys() >= FIT
    assert got["memory"].keys() >= FIT_MEMORY
    assert all(row.keys() >= FIT_CONTEXT for row in got["contexts"])
    assert got["blocks"] is got["max_concurrency"] is None


def test_inputs_are_filled_in() -> None:
    """`inputs` holds what was asked with the defaults that applied, the GPU by its id."""
    inputs = answer("fit", "llama-3.1-8b", "--gpu", "h100", "--tp", "2", "--context", "4k")["inputs"]

    assert inputs["model"] == "llama-3.1-8b"
    assert inputs["gpu"] == "h100-sxm"
    assert (inputs["gpus"], inputs["tp"]) == (2, 2)
    assert inputs["engine"] == "none"
    assert inputs["reserve"] == 0.1
    assert inputs["weights"] is None
    assert inputs["kv"] == "bf16"
    assert inputs["contexts"] == [4096]


@pytest.mark.parametrize(
    "command",
    [("kv", "llama-3.1-8b", "deepseek-v3"), ("model", "deepseek-v3"), ("fit", "llama-3.1-8b", "--gpu", "h100-sxm")],
)
def test_integers_stay_integers(command: tuple[str, ...]) -> None:
    """Bytes, tokens, parameters and FLOP that are whole are printed without a fraction."""

    def whole_floats(value: Any, at: str) -> list[str]:
        if isinstance(value, dict):
            return [found for key, entry in value.items() for found in whole_floats(entry, f"{at}.{key}")]
        if isinstance(value, list):
            return [found for entry in value for found in whole_floats(entry, at)]
        return [at] if isinstance(value, float) and value == int(value) else []

    assert whole_floats(answer(*command)["result"], "result") == []


@pytest.mark.parametrize("count", ["1", "4", "28"])
def test_bytes_on_one_gpu_are_numbers(count: str) -> None:
    """Weights shared by a number that does not divide them stay exact to a float, and JSON stays valid."""
    got = answer("fit", "qwen2.5-7b", "--gpu", "h100-sxm", "--gpus", count)["result"]

    assert got["memory"]["weight_bytes"] * got["gpus"] == pytest.approx(2 * 7_615_616_512)


def test_what_is_not_known_is_null(tmp_path: Path) -> None:
    """Unknown bytes, tokens and crossovers are null, never zero or absent."""
    quantised = folder_of(tmp_path / "q", TINY | {"quantization_config": {"quant_method": "hqq"}})
    windowed = folder_of(tmp_path / "w", MISTRAL_7B_V0_1)

    unknown = answer("kv", quantised)
    [row] = unknown["result"]["models"]
    got = answer("fit", windowed, "--gpu", "h100-sxm")["result"]

    assert Draft202012Validator(json_schema("kv")).is_valid(unknown)
    assert row["weight_bytes"] is None
    assert got["kv_tokens"] is got["crossover_tokens"] is None


def test_no_schema_of_other_commands() -> None:
    """`schema` of what is no command is refused with those that have one."""
    outcome = roofcast("schema", "fortune")

    assert outcome.code == 2
    assert all(command in outcome.complaint for command in RESULTS)
