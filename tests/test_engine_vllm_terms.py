"""vLLM's rules by version, its defaults, memory beside PyTorch's and graphs, each against a sum made by hand."""

from __future__ import annotations

from typing import Any

import pytest

from roofcast.calculators.engines.device import visible_term
from roofcast.calculators.engines.flags import TAKES, Flags, check_flags, option
from roofcast.calculators.engines.registry import MODULES, engine_memory
from roofcast.calculators.engines.terms import GIB, Z80, EngineTerm, exact, spread, together
from roofcast.calculators.engines.vllm_layout import state_dtype
from roofcast.calculators.engines.vllm_start import start
from roofcast.calculators.engines.vllm_terms import captured_sizes, joined
from roofcast.calculators.engines.vllm_versions import CHANGES, NEWEST, ROWS, parse_version, rules_of
from roofcast.calculators.errors import UsageError
from roofcast.hwdb.lookup import find_accelerator
from tests.engine_records import asked, gib, memory, term


def accelerator(name: str) -> Any:
    """Return one by its name."""
    return find_accelerator(name).accelerator


# terms and their spread


def test_a_spread_is_eighty_percent_of_a_normal_distribution() -> None:
    """Size +- 1.2816 sigma, and nothing below zero."""
    term = spread("non_torch", 10.0, 2.0, "")

    assert (term.low, term.high) == pytest.approx((10 - 2.5632, 10 + 2.5632))
    assert spread("non_torch", 1.0, 2.0, "").low == 0.0
    assert spread("non_torch", 1.0, 2.0, "").high == pytest.approx(3.5632)
    assert exact("kv", 5.0, "", "config") == EngineTerm("kv", 5.0, 5.0, 5.0, "", "config")


def test_independent_terms_add_by_squares() -> None:
    """3 and 4 below make 5; what is exact adds nothing."""
    terms = [EngineTerm("a", 10, 7, 16, "", ""), EngineTerm("b", 10, 6, 18, "", ""), exact("c", 9, "", "")]

    assert together(terms) == (5.0, 10.0)
    assert together([]) == (0.0, 0.0)


def test_the_cache_s_interval_is_that_of_what_is_taken() -> None:
    """On an H100 the budget is exact: the root of the squares of weights, activations and non-torch."""
    made = memory(asked("llama-3.1-8b", engine_version="0.19.0"))
    sizes = [term(made, name) for name in ("budget", "weights", "activation", "non_torch")]

    below, above = together(sizes)
    assert made.kv == pytest.approx((made.kv[0], made.kv[0] - below, made.kv[0] + above))
    # weights 0.02, activation 0.02 + 1 % of 1.88, non-torch 0.04 GiB: 1.2816 sqrt(0.02^2 + 0.0388^2 + 0.04^2)
    assert below / GIB == pytest.approx(Z80 * (0.02**2 + 0.0388**2 + 0.04**2) ** 0.5, rel=0.01)


# what the engine sees


@pytest.mark.parametrize(
    ("name", "size", "low", "high", "provenance"),
    [
        ("h100-sxm", 85_029_027_840, 85_029_027_840, 85_029_027_840, "datasheet"),
        # the driver's total less 0.5 +- 1.2816 x 0.18 GiB
        (
            "a100-80gb-sxm", 85_899_345_920 - 0.5 * GIB, 85_899_345_920 - 0.730688 * GIB,
            85_899_345_920 - 0.269312 * GIB, "fitted",
        ),
    ],
)  # fmt: skip
def test_visible_memory_is_what_cuda_says_else_the_driver(
    name: str, size: float, low: float, high: float, provenance: str
) -> None:
    """Where CUDA's own total is not known, somewhat less than the driver's."""
    term = visible_term(accelerator(name))

    assert (term.bytes, term.low, term.high) == pytest.approx((size, low, high))
    assert term.provenance == provenance


def test_memory_as_sold_is_a_last_resort() -> None:
    """With neither, 3 % less to 2 % more, and assumed."""
    bare = replace_facts("h100-sxm", visible_memory=None, driver_memory=None)

    term = visible_term(bare)
    assert (term.bytes, term.low, term.high) == pytest.approx((80e9, 77.6e9, 81.6e9))
    assert term.provenance == "assumed"


def replace_facts(name: str, **facts: Any) -> Any:
    """Return an accelerator with other facts."""
    return accelerator(name).model_copy(update=facts)


# versions


@pytest.mark.parametrize(
    ("version", "rules"),
    [
        ("0.2.4", {"engine": "V0", "reserved": 0.0, "utilization": 0.90, "row_bytes": 36.0}),
        ("0.2.5", {"reserved": 0.57}),
        ("0.6.3", {"reserved": 0.57, "latent": False}),
        ("0.6.4", {"reserved": 0.0}),
        ("0.7", {"latent": True, "engine": "V0"}),
        ("0.8.0", {"engine": "V1", "shared_workspace": False}),
        ("0.11.2", {"shared_workspace": False}),
        ("0.12.0", {"shared_workspace": True}),
        ("0.16.9", {"row_bytes": 36.0}),
        ("0.17.0", {"row_bytes": 12.5}),
        ("0.8.5", {"small_rows": 1024}),
        ("0.9.0", {"small_rows": 256, "chunked_whole": False}),
        ("0.10.0", {"chunked_whole": True}),
        ("0.13.9", {"chunked_whole": True}),
        ("0.14.0", {"chunked_whole": False, "drafted_blocks": False}),
        ("0.15.0", {"drafted_blocks": True}),
        ("0.20.0", {"state_mode": "none", "counts_requests": False}),
        ("0.20.1", {"counts_requests": True, "graphs": False}),
        ("0.21.0", {"graphs": True, "utilization": 0.90}),
        ("0.22.1", {"second_runner": frozenset()}),
        ("0.23.0", {"utilization": 0.90, "second_runner": frozenset({"llama", "deepseek_v2"})}),
        ("0.24.0", {"utilization": 0.92, "dense_runner": False}),
        ("0.25.0", {"dense_runner": True, "in_flight": 1}),
        ("0.26.1", {"in_flight": 2, "utilization": 0.92, "state_mode": "none"}),
        ("0.28.0", {"state_mode": "align"}),
    ],
)
def test_a_version_has_the_rules_of_the_last_change(version: str, rules: dict[str, Any]) -> None:
    """Each change holds from its version on."""
    made, shown, assumed = rules_of(version)

    assert {name: getattr(made, name) for name in rules} == rules
    assert (shown, assumed) == (version, None)


def test_rows_are_in_order_of_versions() -> None:
    """One row a change, and the first for all before."""
    assert [row.since for row in ROWS] == sorted(row.since for row in ROWS) == [(0,), *CHANGES]
    assert max(CHANGES) == NEWEST


def test_versions_that_are_not_known_take_the_nearest_rules_aloud() -> None:
    """None given is the newest; later ones too."""
    assert rules_of(None)[0] == rules_of("1.0")[0] == ROWS[-1]
    assert rules_of(None)[1:] == ("0.28", "--engine-version is not given: the rules of vLLM 0.28, the newest known")
    assert "vLLM 0.29.1 is newer than any whose rules are known" in str(rules_of("0.29.1")[2])
    assert rules_of("0.28.7")[2] is None


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("0.19.0", (0, 19, 0)),
        ("v0.20.2rc1.dev249", (0, 20, 2)),
        (" 0.11.x ", (0, 11)),
        ("0.7.3+cu121", (0, 7, 3)),
        ("0.9.1.post1", (0, 9, 1)),
        ("0.11.0rc2.dev98+g1234", (0, 11, 0)),
        ("1", (1,)),
    ],
)
def test_versions_are_read_as_they_are_printed(text: str, version: tuple[int, ...]) -> None:
    """With what builds put behind them."""
    assert version == parse_version(text)


@pytest.mark.parametrize("text", ["", "latest", "0.19.", "0..1", "-1", "0.19.0 beta", "99999.1", "0.1\n2"])
def test_what_is_no_version_is_refused(text: str) -> None:
    """With how to write one."""
    with pytest.raises(UsageError, match=r"(?s)--engine-version .*: it is no version; write it like 0.19.0"):
        parse_version(text)


# defaults of a start


@pytest.mark.parametrize(
    ("gpu", "version", "flags", "step"),
    [
        ("h100-sxm", "0.19.0", {}, (8192, 1024)),
        ("h200-sxm", "0.19.0", {}, (8192, 1024)),
        ("a100-80gb-sxm", "0.19.0", {}, (2048, 256)),  # large, but of an older generation
        ("rtx-3090", "0.19.0", {}, (2048, 256)),
        ("h100-sxm", "0.19.0", {"max_num_seqs": 64, "max_num_batched_tokens": 4096}, (4096, 64)),
        # no more tokens than all requests have: 2 x 1,000
        ("h100-sxm", "0.19.0", {"max_num_seqs": 2, "max_model_len": 1000}, (2000, 2)),
        # V0 profiles the longest request whole up to 32,768 tokens
        ("h100-sxm", "0.6.4", {"max_model_len": 20_000}, (20_000, 256)),
        ("h100-sxm", "0.6.4", {"max_model_len": 32_768}, (32_768, 256)),
        ("h100-sxm", "0.6.4", {"max_model_len": 32_769}, (2048, 256)),
        ("h100-sxm", "0.6.4", {"max_model_len": 1000}, (2048, 256)),
    ],
)
def test_a_step_has_the_server_s_default_size(gpu: str, version: str, flags: Any, step: tuple[int, int]) -> None:
    """Tokens and requests, by the device and the version."""
    made = start(asked("llama-3.1-8b", gpu, engine_version=version, **flags), rules_of(version)[0])

    assert step == (made.tokens, made.rows)


def test_the_longest_request_is_the_model_s_unless_asked() -> None:
    """131,072 tokens of Llama 3.1."""
    rules = rules_of("0.19.0")[0]

    assert start(asked("llama-3.1-8b"), rules).longest == 131_072
    assert start(asked("llama-3.1-8b", max_model_len=8192), rules).longest == 8192


def test_fewer_tokens_than_requests_are_refused() -> None:
    """As vLLM does."""
    with pytest.raises(UsageError, match=r"--max-num-batched-tokens 512 is less than --max-num-seqs 1,024"):
        memory(asked("llama-3.1-8b", max_num_batched_tokens=512, max_num_seqs=1024))


@pytest.mark.parametrize(
    ("model", "tp", "version", "devices", "words"),
    [
        # 8 KV heads are held once each by 8 devices, twice by 16
        ("llama-3.1-8b", 8, "0.19.0", 2, "with --tp 8 it must be one of 1"),
        ("llama-3.1-8b", 16, "0.19.0", 4, "with --tp 16 it must be one of 1, 2"),
        # a latent is held by all
        ("deepseek-v2-lite", 8, "0.19.0", 3, "with --tp 8 it must be one of 1, 2, 4, 8"),
        ("gemma-3-12b-it", 4, "0.19.0", 2, "vLLM has none for layers with windows or states"),
        ("deepseek-v2-lite", 8, "0.7.3", 2, "vLLM before 0.8 has none"),
    ],
)
def test_devices_share_tokens_only_of_what_they_hold_alike(
    model: str, tp: int, version: str, devices: int, words: str
) -> None:
    """Copies of KV heads that tensor parallelism makes."""
    with pytest.raises(UsageError, match=f"--decode-context-parallel-size {devices}: {words}"):
        memory(asked(model, cut={"tp": tp}, engine_version=version, decode_context_parallel_size=devices))


def test_an_activation_is_as_wide_as_the_dtype() -> None:
    """2 B, and 4 in fp32."""
    rules = rules_of("0.19.0")[0]

    assert start(asked("llama-3.1-8b"), rules).width == 2
    assert start(asked("llama-3.1-8b", dtype="fp32"), rules).width == 4


# beside PyTorch


@pytest.mark.parametrize(
    ("version", "gpu", "cut", "mean"),
    [
        ("0.6.4", "rtx-3090", {}, 0.35),
        ("0.11.0", "h100-sxm", {}, 0.13),
        ("0.11.0", "h100-sxm", {"tp": 2}, 1.50),
        ("0.11.0", "rtx-3090", {"tp": 2}, 0.35),
        ("0.19.0", "h100-sxm", {}, 0.25),
        ("0.19.0", "h100-sxm", {"tp": 2}, 2.09),
        ("0.19.0", "h100-sxm", {"pp": 2}, 0.07),
        ("0.19.0", "h100-sxm", {"tp": 2, "pp": 2}, 2.09),
        ("0.19.0", "rtx-3090", {"tp": 2}, 0.30),
    ],
)
def test_memory_beside_pytorch_is_by_version_and_devices(version: str, gpu: str, cut: Any, mean: float) -> None:
    """From compute capability 9.0 on devices that share layers have workspaces."""
    made = memory(asked("qwen3-0.6b", gpu, cut=cut, engine_version=version, max_model_len=4096))

    assert mean == pytest.approx(gib(made, "non_torch"))


def test_0_2_5_counts_what_loading_reserved() -> None:
    """CodeLlama-13B on two RTX 4090: 0.57 x the weights of a device; not on one device, nor from 0.6.4 on."""
    cut = {"tp": 2}
    before, then, alone, after = (
        memory(asked("codellama-7b", "rtx-4090", cut=devices, engine_version=version, max_model_len=4096))
        for version, devices in (("0.2.4", cut), ("0.2.5", cut), ("0.2.5", {}), ("0.6.4", cut))
    )

    assert gib(then, "non_torch") - gib(before, "non_torch") == pytest.approx(0.57 * gib(then, "weights"))
    assert gib(alone, "non_torch") == pytest.approx(0.35)
    assert gib(after, "non_torch") == gib(before, "non_torch")


@pytest.mark.parametrize(
    ("gpu", "tp", "pp", "how"),
    [
        ("h100-sxm", 1, 1, "one"),
        ("h100-sxm", 1, 4, "stages"),
        ("h100-sxm", 2, 4, "workspaces"),
        ("rtx-3090", 2, 1, "plain"),
        ("mi300x", 2, 1, "plain"),
    ],
)
def test_how_devices_are_joined(gpu: str, tp: int, pp: int, how: str) -> None:
    """By what they share, and by what their all-reduces need."""
    assert how == joined(accelerator(gpu), tp, pp)


# CUDA graphs


@pytest.mark.parametrize(
    ("rows", "each", "count"),
    [
        (1024, 1, 51),  # 1, 2, 4, 31 of 8 to 248, 17 of 256 to 512
        (256, 1, 51),
        (128, 1, 35),  # to 256: 3 + 31 + 1
        (64, 1, 3 + 16),  # to 128
        (1, 1, 2),  # 1, 2
        (2, 4, 3),  # to 16, of whole rounds of 4: 4, 8, 16
    ],
)
def test_sizes_of_captured_batches(rows: int, each: int, count: int) -> None:
    """Of at most 512, and of twice the requests."""
    assert count == captured_sizes(rows, each)


@pytest.mark.parametrize(
    ("version", "gpu", "flags", "layers"),
    [
        ("0.20.2", "h100-sxm", {}, 0),  # only logged until 0.21
        ("0.21.0", "h100-sxm", {}, 28),
        ("0.21.0", "h100-sxm", {"enforce_eager": True}, 0),
        ("0.21.0", "mi300x", {}, 0),  # ROCm
    ],
)
def test_an_estimate_of_graphs_is_taken_off_from_0_21_on(version: str, gpu: str, flags: Any, layers: int) -> None:
    """Qwen2.5-1.5B: 28 layers x 51 sizes x 0.00027 GiB = 0.39, as an H200 logs it."""
    made = memory(asked("qwen2.5-1.5b", gpu, engine_version=version, max_num_seqs=1024, **flags))
    graphs = sum(term.bytes for term in made.terms if term.name == "cuda_graphs") / GIB

    assert graphs == pytest.approx(layers * 51 * 2.7e-4)
    assert round(28 * 51 * 2.7e-4, 2) == 0.39


# layout


@pytest.mark.parametrize(
    ("config", "dtype"),
    [
        ({"mamba_ssm_dtype": "float32"}, "fp32"),
        ({"mamba_ssm_cache_dtype": "bfloat16"}, "bf16"),
        ({"text_config": {"mamba_ssm_dtype": "float16"}}, "fp16"),
        ({"text_config": None}, None),
        ({}, None),
        ({"mamba_ssm_dtype": "strange"}, None),
    ],
)
def test_a_config_may_say_the_format_of_states(config: dict[str, object], dtype: str | None) -> None:
    """In itself or in its text model."""
    assert dtype == state_dtype(config)


# flags and engines


def test_every_engine_with_flags_answers() -> None:
    """And takes only flags that there are."""
    assert set(MODULES) == set(TAKES)
    assert all(hasattr(Flags(), flag) for flags in TAKES.values() for flag in flags)


def test_an_engine_is_found_by_its_name() -> None:
    """vLLM's answer, with and without a log's bytes."""
    served = asked("llama-3.1-8b", engine_version="0.19.0")

    assert engine_memory("vllm", served) == memory(served)
    assert engine_memory("vllm", served, {"kv": GIB}).kv == (GIB, GIB, GIB)


@pytest.mark.parametrize(
    ("engine", "flags", "words"),
    [
        ("vllm", {"n_ctx": 4096}, ("--n-ctx is no flag of vllm, but of llama.cpp or ollama", "--max-model-len")),
        ("llama.cpp", {"max_model_len": 4096}, ("--max-model-len is no flag of llama.cpp", "--n-ctx")),
        ("none", {"enforce_eager": True}, ("--enforce-eager is of a serving engine; --engine vllm has it",)),
        ("none", {"engine_version": "1"}, ("--engine-version is of a serving engine",)),
        ("mlc", {}, ("--engine mlc: its memory rules are not modelled", "vllm", "sglang")),
    ],
)
def test_a_flag_of_another_engine_is_refused(engine: str, flags: Any, words: tuple[str, ...]) -> None:
    """With who has it."""
    with pytest.raises(UsageError) as refused:
        check_flags(engine, Flags(**flags))

    assert [word for word in words if word not in str(refused.value)] == []


def test_flags_of_an_engine_are_taken() -> None:
    """All of its own, and a version."""
    for engine in TAKES:
        check_flags(engine, Flags(engine_version="1.0"))
    check_flags("none", Flags())
    check_flags("vllm", Flags(max_model_len=1, gpu_memory_utilization=0.5, enforce_eager=True))

    assert option("gpu_memory_utilization") == "--gpu-memory-utilization"
