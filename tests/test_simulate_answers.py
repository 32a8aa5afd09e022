"""The command `simulate`: what its answers say of limits, traces, promises and memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.running import answer, result, roofcast
from tests.test_simulate_cli import CLOSED, LLAMA, SMALL, shared_trace

if TYPE_CHECKING:
    from pathlib import Path


def test_limits_without_an_engine() -> None:
    """Without one --max-num-seqs, --max-num-batched-tokens, --max-model-len and --block-size are the service's own."""
    limits = ("--max-num-seqs", "3", "--max-num-batched-tokens", "512", "--block-size", "1", "--max-model-len", "270")
    found = result(*CLOSED, *limits)

    assert (found["max_num_seqs"], found["max_num_batched_tokens"], found["peak_running"]) == (3, 512, 3)
    assert (found["cache"]["block_tokens"], found["cut"], found["completed"]) == (1, 24, 24)  # 256 + 14 of 16 tokens


@pytest.mark.parametrize("model", ["mistral-7b-v0.1", "falcon-mamba-7b"])
def test_a_prefix_of_what_is_not_kept_is_not_shared(model: str) -> None:
    """Where all layers have a window or a state, no prefix is there for others, and that is said."""
    data = answer("simulate", model, "--gpu", "h100-sxm", "--rate", "5", "--requests", "9", "--shared-prefix", "64")

    assert (data["result"]["completed"], data["result"]["prefix"]) == (9, None)
    assert data["inputs"]["prefix_cache"] == "off"


def test_a_rate_that_falls_to_nothing_sends_less() -> None:
    """A schedule that ends with 0 sends no more, and the answer warns of it."""
    data = answer(*LLAMA, "--rate", "20@0s,0@1s", "--requests", "50", "--output", "4")

    came = data["result"]["requests"]
    assert 10 < came < 35
    assert f"{came} of 50 requests come: the rate is 0 from then on" in data["warnings"]


def test_gaps_between_tokens_grow_with_the_context() -> None:
    """A long answer's gaps are as long as its steps: those at its beginning and its end differ as `estimate` says."""
    common = ("llama-3.1-8b", "--gpu", "h100-sxm", "--efficiency", "bound")
    load = ("--concurrency", "64", "--requests", "64", "--prompt", "100", "--output", "6000", "--stagger", "0%")
    gaps = result("simulate", *common, *load)["itl_seconds"]
    rows = result("estimate", *common, "--phase", "decode", "--batch", "64", "--context", "102,3100,6099")["phases"]
    first, middle, last = (row["bound_seconds"] for row in rows)

    assert gaps["p50"] == pytest.approx(middle, rel=0.015)
    assert gaps["max"] == pytest.approx(last, rel=0.015)
    assert gaps["quantiles"][0] == pytest.approx(first, rel=0.015)


def test_a_trace_in_numbers(tmp_path: Path) -> None:
    """Ten prompts of four blocks every half second: nine find two blocks of an earlier one, 18 of 40, or 288 of 640 tokens."""
    path = shared_trace(tmp_path)
    trace = result(*LLAMA, "--trace", path)["trace"]

    assert (trace["requests"], trace["span_seconds"], trace["prompt"]["mean"], trace["output"]["max"]) == (
        10,
        4.5,
        64,
        8,
    )
    assert trace["prefix_token_share"] == trace["prefix_block_share"] == 0.45
    assert (
        "a prefix cache without end finds 45.0% of prompt tokens, 45.0% of blocks"
        in roofcast(*LLAMA, "--trace", path).out
    )
    assert result(*SMALL)["trace"] is None


def test_a_service_that_does_not_keep_up_keeps_no_promise() -> None:
    """At 60 requests a second, of which it answers 30, TTFT of the first thousand is within any limit, and of more is not."""
    load = ("--engine", "vllm", "--rate", "60", "--requests", "1000", "--prompt", "1k", "--ttft", "1min")
    found = result(*LLAMA, *load)

    assert (found["stable"], found["kept"]["share"], found["kept"]["met"]) == (False, 1.0, False)
    light = result(*LLAMA, *(*load[:3], "5", *load[4:]))
    assert (light["stable"], light["kept"]["met"]) == (True, True)
    steps = result(*LLAMA, *load[:-2], "--tpot", "10s")  # stay as they are, whoever waits
    assert (steps["stable"], steps["kept"]["met"]) == (False, True)


def test_times_of_the_first_may_be_left_out() -> None:
    """Of 64 clients the first requests come at once: without their times the 99th percentile of TTFT is less than half."""
    load = (*LLAMA, "--engine", "vllm", "--concurrency", "64", "--requests", "640", "--prompt", "2k", "--output", "128")
    whole, warm = answer(*load, "--ttft", "2s"), answer(*load, "--ttft", "2s", "--warm-up", "64")

    assert warm["result"]["ttft_seconds"]["p99"] < whole["result"]["ttft_seconds"]["p99"] / 2
    for name in ("completed", "makespan_seconds", "requests_per_second", "itl_seconds"):
        assert warm["result"][name] == whole["result"][name]
    assert warm["result"]["kept"]["share"] > whole["result"]["kept"]["share"]
    assert warm["result"]["goodput_requests_per_second"] > whole["result"]["goodput_requests_per_second"]


@pytest.mark.parametrize(("model", "gpus"), [("llama-3.1-8b", "1"), ("deepseek-v3", "8")])
def test_without_an_engine_memory_is_that_of_fit(model: str, gpus: str) -> None:
    """The tokens of `fit`, in whole blocks of 16."""
    machine = (model, "--gpu", "h200", "--gpus", gpus)
    tokens = result("simulate", *machine, "--rate", "1", "--requests", "3")["cache"]["tokens"]

    assert tokens == result("fit", *machine, "--context", "4k")["kv_tokens"] // 16 * 16


def test_what_a_schedule_does_not_reach_is_said() -> None:
    """Ten requests at 2 a second end long before the rate of 60 s."""
    outcome = roofcast(*LLAMA, "--rate", "2@0s,8@60s", "--requests", "10", "--output", "4")

    assert "before the rate of 60 s: --requests sends more" in outcome.out


def test_terms_are_explained_as_they_are_here() -> None:
    """TTFT of `estimate` is a prefill, of `simulate` from coming to the first token."""
    assert "TTFT = first token - arrival" in roofcast("simulate", "--explain", "ttft").out
