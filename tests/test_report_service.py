"""The section of `report` on a server under load: the numbers of `simulate`, and the rate that keeps limits."""

from __future__ import annotations

from typing import Any

import pytest

from tests.running import result, roofcast
from tests.test_report import LLAMA, QUICK


def loads(*options: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return the section on a server under load, and its loads."""
    found = result(*LLAMA, *QUICK, *options)["service"]
    return found, found["loads"]


def test_a_server_under_load_is_simulated() -> None:
    """Without limits from clients that wait: one alone takes what `simulate` says, and more make others wait."""
    found, every = loads()
    own = result(
        "simulate", "llama-3.1-8b", "--gpu", "h100-sxm", "--engine", "vllm", "--concurrency", "16", "--prompt", "3840",
        "--output", "256",
    )  # fmt: skip

    assert (found["prompt"], found["output"], found["most_requests_per_second"]) == (3840, 256, None)
    assert [load["clients"] for load in every] == [1, 16, 64]
    assert every[1]["ttft_seconds"] == own["ttft_seconds"]
    assert every[1]["tpot_seconds"] == own["tpot_seconds"]
    assert [load["share"] for load in every] == [None] * 3
    p99 = [load["ttft_seconds"]["p99"] for load in every]
    assert p99 == sorted(p99)


def test_the_rate_that_keeps_limits_is_the_last_one_that_does() -> None:
    """90 of 100 keep both at that rate, and fewer at half as much again; the command `simulate` says so too."""
    found, [light, most, heavy] = loads("--ttft", "500ms", "--tpot", "12ms")
    rate = found["most_requests_per_second"]
    options = ("--rate", repr(rate), "--requests", "600", "--prompt", "3840", "--output", "256", "--percentile", "90")
    own = result(
        "simulate", "llama-3.1-8b", "--gpu", "h100-sxm", "--engine", "vllm", "--ttft", "500ms", "--tpot", "12ms", *options
    )  # fmt: skip

    assert [load["rate"] for load in (light, most, heavy)] == pytest.approx([rate / 2, rate, rate * 1.5])
    assert light["share"] >= most["share"] >= 0.9 > heavy["share"]
    assert (own["kept"]["met"], own["kept"]["share"]) == (True, most["share"])


def test_limits_that_no_rate_keeps_have_none() -> None:
    """Where a request alone is too slow, clients are shown, and that nobody is served in time."""
    found, every = loads("--ttft", "5ms")

    assert (found["most_requests_per_second"], [load["clients"] for load in every]) == (None, [1, 16, 64])
    assert [load["share"] for load in every] == [0.0] * 3
    assert "No rate of requests of 3,840 tokens in and 256 out keeps TTFT <= 5 ms" in roofcast(
        *LLAMA, *QUICK, "--ttft", "5ms"
    ).out.replace("\n", " ")


def test_bounds_alone_are_simulated_too() -> None:
    """With --efficiency bound steps take their bounds: quicker than what is to be expected."""
    assert loads("--efficiency", "bound")[1][0]["tpot_seconds"]["p50"] < 0.8 * loads()[1][0]["tpot_seconds"]["p50"]


def test_no_server_without_room() -> None:
    """What does not fit has no loads, and no section."""
    found = result("report", "llama-3.1-70b", "--gpu", "h100-sxm", "--engine", "vllm", *QUICK)

    assert (found["service"], found["price"]) == (None, None)
