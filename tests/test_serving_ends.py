"""What once went wrong in the simulator, and ends well: admission, pools, samples, ranks, copies."""

from __future__ import annotations

import pytest

from roofcast.calculators.serving.ranks import quantile
from roofcast.calculators.serving.stagger import staggered
from tests.running import answer, result, roofcast

SMALL = ("--engine", "vllm", "--max-model-len", "2048", "--kv-cache-memory-bytes", "300MiB")


def test_drafts_under_an_engine_that_counts_what_is_to_come_end() -> None:
    """All of a request's blocks are taken as it is admitted, and its tokens to come are not counted once more."""
    load = ("--rate", "1", "--requests", "3", "--prompt", "22000", "--output", "9000")
    drafts = ("--num-speculative-tokens", "3", "--acceptance", "0.6", "--mem-fraction-static", "0.5")

    found = result("simulate", "llama-3.1-8b", "--gpu", "a100-40gb-sxm", "--engine", "sglang", *load, *drafts)
    assert found["completed"] == 3


@pytest.mark.parametrize("policy", ["chunked", "continuous", "prefill-first"])
def test_a_pool_of_decode_is_never_fuller_than_full(policy: str) -> None:
    """Requests whose last block is full as they come from the other pool take their next one of what is free."""
    pools = ("--prefill-replicas", "2", "--decode-replicas", "1", "--policy", policy, "--block-size", "16")
    load = ("--concurrency", "24", "--requests", "400", "--prompt", "uniform:10-600", "--output", "uniform:10-400")

    found = result("simulate", "llama-3.1-8b", "--gpu", "a10g", *SMALL, *pools, *load)
    assert found["completed"] == 400
    assert found["cache"]["peak"] <= 1.0
    assert 0 < found["itl_seconds"]["p50"] <= found["itl_seconds"]["max"]


def test_what_fits_a_pool_of_decode_alone_is_let_in_alone() -> None:
    """A request that takes the whole memory in the end, and comes with a full last block, under an engine that counts all."""
    machine = (
        "simulate",
        "llama-3.1-8b",
        "--gpu",
        "a10g",
        "--engine",
        "tensorrt-llm",
        "--rate",
        "1",
        "--requests",
        "3",
    )
    room = result(*machine, "--prompt", "32", "--output", "2")["cache"]["tokens"]
    pools = ("--prefill-replicas", "1", "--decode-replicas", "1")
    lengths = ("--prompt", "64", "--output", str(room - 64 + 1))

    assert result(*machine, *pools, *lengths)["completed"] == 3


def test_samples_are_not_set_back() -> None:
    """Requests of several outputs are admitted where all that they become fits, and that is said."""
    load = ("--concurrency", "32", "--requests", "64", "--prompt", "500", "--output", "400", "--samples", "4")
    data = answer("simulate", "llama-3.1-8b", "--gpu", "a10g", *SMALL, *load)

    assert (data["result"]["completed"], data["result"]["preemptions"]) == (64, 0)
    assert any("none is set back" in one for one in data["assumptions"])


def test_every_sample_has_a_state_of_its_own() -> None:
    """A recurrent model's places are taken by samples, not by requests: 8 of them leave room for an eighth."""
    machine = (
        "simulate",
        "falcon-mamba-7b",
        "--gpu",
        "h100-sxm",
        "--concurrency",
        "8",
        "--requests",
        "32",
        "--output",
        "16",
    )

    one, eight = (result(*machine, "--samples", samples)["kv_utilisation"] for samples in ("1", "8"))
    assert eight == pytest.approx(8 * one, rel=0.1)


@pytest.mark.parametrize(("percent", "count", "rank"), [(99.9, 1000, 999), (55, 100, 55), (99, 1000, 990), (50, 3, 2)])
def test_ranks_are_not_moved_by_rounding(percent: float, count: int, rank: int) -> None:
    """99.9 / 100 x 1,000 is 999.0000000000001, and the 999th of 1,000."""
    assert quantile(range(1, count + 1), percent / 100) == rank


def test_copies_to_the_host_take_place_with_memory_taken() -> None:
    """A slow link to the host lengthens a run, and does not empty the memory meanwhile."""
    load = ("--concurrency", "64", "--requests", "128", "--prompt", "1000", "--output", "600", "--preemption", "swap")
    machine = ("simulate", "llama-3.1-8b", "--gpu", "a10g", "--engine", "vllm", "--max-model-len", "4096")

    fast, slow = (result(*machine, *load, "--host-link", link) for link in ("25GB/s", "1GB/s"))
    assert fast["preemptions"] > 10
    assert slow["makespan_seconds"] > 1.02 * fast["makespan_seconds"]
    assert slow["kv_utilisation"] == pytest.approx(fast["kv_utilisation"], rel=0.02)


def test_outputs_have_a_token_at_least() -> None:
    """However much they vary."""
    assert staggered(1, 0.6).least == 1


def test_warm_up_leaves_requests() -> None:
    """All of them left out would leave no times."""
    outcome = roofcast("simulate", "llama-3.1-8b", "--gpu", "h100-sxm", "--concurrency", "4", "--warm-up", "100")

    assert outcome.code == 2
    assert "--warm-up 100: there are 100 requests; leave some" in outcome.err
