"""The command `simulate`: from options to documents, charts and files; refusals are one line."""

from __future__ import annotations

import csv
import json
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest

from roofcast.cli import simulating
from roofcast.reports.schema import json_schema
from tests.running import answer, result, roofcast

if TYPE_CHECKING:
    from pathlib import Path

LLAMA = ("simulate", "llama-3.1-8b", "--gpu", "h100-sxm")
SMALL = (*LLAMA, "--rate", "20", "--requests", "60", "--prompt", "256", "--output", "16")
CLOSED = (*LLAMA, "--concurrency", "4", "--requests", "24", "--prompt", "256", "--output", "16")
DRAFTS = ("--rate", "2", "--engine", "vllm", "--num-speculative-tokens", "3")
OWN = "arrival_seconds,prompt_tokens,output_tokens,prefix_hashes\n"


def shared_trace(folder: Path) -> str:
    """Return a trace whose ten prompts of 64 tokens share their first two blocks of 16, the rest their own."""
    rows = (f"{number * 0.5},64,8,0 1 {2 * number + 2} {2 * number + 3}\n" for number in range(10))
    path = folder / "trace.csv"
    path.write_text(OWN + "".join(rows), encoding="utf-8")
    return str(path)


def test_one_client_alone_waits_for_prefill_and_decode() -> None:
    """At the bound: TTFT is the bound of a prompt of 1,000, the second token that of decode after 1,001, as `estimate` says.

    Contexts between 1.15 times one another are joined by straight lines, 0.2 % off at most.
    """
    common = ("llama-3.1-8b", "--gpu", "h100-sxm", "--efficiency", "bound")
    found = result("simulate", *common, "--concurrency", "1", "--requests", "3", "--prompt", "1000", "--output", "2")
    [prefill] = result("estimate", *common, "--phase", "prefill", "--batch", "1", "--context", "1000")["phases"]
    [decode] = result("estimate", *common, "--phase", "decode", "--batch", "1", "--context", "1001")["phases"]

    assert found["ttft_seconds"]["p50"] == pytest.approx(prefill["bound_seconds"], rel=2e-3)
    assert found["ttft_seconds"]["max"] == pytest.approx(found["ttft_seconds"]["p50"])
    assert found["tpot_seconds"]["mean"] == pytest.approx(decode["bound_seconds"], rel=2e-3)
    assert found["makespan_seconds"] == pytest.approx(
        3 * (prefill["bound_seconds"] + decode["bound_seconds"]), rel=2e-3
    )
    assert found["step_spread"] is None


def test_json_has_the_keys_of_the_contract() -> None:
    """Counts, percentiles in seconds and rates; what is sent, promised and scheduled is in `inputs`."""
    data = answer(*SMALL, "--engine", "vllm", "--ttft", "500ms", "--percentile", "90")
    found, asked = data["result"], data["inputs"]

    assert data["schema"] == "roofcast.simulate/1"
    assert (found["requests"], found["completed"], found["preemptions"]) == (60, 60, 0)
    for name in ("ttft_seconds", "tpot_seconds"):
        assert 0 < found[name]["p50"] <= found[name]["p90"] <= found[name]["p99"] <= found[name]["max"]
        assert all(one <= two for one, two in pairwise(found[name]["quantiles"]))
    assert found["output_tokens_per_second"] == pytest.approx(60 * 16 / found["makespan_seconds"])
    assert found["goodput_requests_per_second"] == pytest.approx(60 / found["makespan_seconds"])
    assert 0 < found["kv_utilisation"] < 0.1
    assert found["prefix_hit_rate"] is None
    assert found["kept"]["goal"] == {
        "ttft_seconds": 0.5, "tpot_seconds": None, "itl_seconds": None, "percentile": 90.0,
    }  # fmt: skip
    assert (asked["rate"], asked["requests"], asked["prompt"], asked["output"], asked["seed"]) == (20, 60, 256, 16, 0)
    assert (asked["policy"], asked["kv_memory"], asked["prefix_cache"]) == ("chunked", "paged", "off")
    assert (asked["ttft_limit_seconds"], asked["tpot_limit_seconds"], asked["percentile"]) == (0.5, None, 90.0)


def test_memory_is_that_of_fit() -> None:
    """The cache of a replica holds as many tokens as `fit` prints, under the same flags."""
    flags = ("--engine", "vllm", "--gpu-memory-utilization", "0.8", "--max-model-len", "8k")
    found = result(*SMALL, *flags)

    fit = result("fit", "llama-3.1-8b", "--gpu", "h100-sxm", *flags)
    assert found["cache"]["tokens"] == fit["kv_tokens"]
    assert found["cache"]["block_tokens"] == 16


def test_the_same_seed_gives_the_same_answer() -> None:
    """Byte by byte, and another seed another one."""
    first, again, other = (roofcast(*SMALL, "--seed", seed, "--format", "json").out for seed in ("1", "1", "2"))

    assert first == again
    assert json.loads(first)["result"]["ttft_seconds"] != json.loads(other)["result"]["ttft_seconds"]


def test_text_charts_and_series_are_written(tmp_path: Path) -> None:
    """Text on stdout beside an image; a page has both charts; the series has a row a stretch, whose tokens add up."""
    series, page = tmp_path / "series.csv", tmp_path / "page.html"
    for name in ("chart.png", "chart.svg"):
        outcome = roofcast(*SMALL, "--out", str(tmp_path / name))
        assert (outcome.code, outcome.err) == (0, "")
        assert outcome.out.startswith("llama-3.1-8b on h100-sxm: 60 requests in ")
    assert (tmp_path / "chart.png").read_bytes().startswith(b"\x89PNG")
    assert roofcast(*SMALL, "--out", str(page), "--series", str(series)).code == 0
    assert page.read_text(encoding="utf-8").count("<svg") == 2

    with series.open(encoding="utf-8") as lines:
        rows = [{key: float(value) for key, value in row.items()} for row in csv.DictReader(lines)]
    assert all(one["seconds"] + one["length_seconds"] == pytest.approx(two["seconds"]) for one, two in pairwise(rows))
    for name, tokens in (("output", 16), ("prompt", 256)):
        total = sum(row[f"{name}_tokens_per_second"] * row["length_seconds"] for row in rows)
        assert total == pytest.approx(60 * tokens), name


def test_csv_is_one_row() -> None:
    """Everything of the result that is one number."""
    [row] = csv.DictReader(roofcast(*CLOSED, "--format", "csv").out.splitlines())

    assert row["completed"] == "24"
    assert float(row["ttft_seconds.p99"]) > 0
    assert row["pools.serving.replicas"] == "1"


@pytest.mark.parametrize("engine", ["none", "vllm"])
def test_what_does_not_fit_is_an_answer(engine: str, tmp_path: Path) -> None:
    """Exit code 0, a reason, no times; the charts say so too."""
    arguments = ("simulate", "llama-3.1-405b", "--gpu", "h100-sxm", "--rate", "1", "--engine", engine, "--ttft", "1s")
    found = result(*arguments)

    assert found["fits"] is False
    assert "weights" in found["reason"]
    assert [found[key] for key in ("makespan_seconds", "ttft_seconds", "kept", "kv_utilisation")] == [None] * 4
    outcome = roofcast(*arguments, "--out", str(tmp_path / "x.svg"))
    assert outcome.code == 0
    assert "does not fit" in (tmp_path / "x.svg").read_text(encoding="utf-8")
    searched = roofcast(*(argument if argument != "1" else "max" for argument in arguments))
    assert searched.out.startswith("llama-3.1-405b on h100-sxm: does not fit\n")


def test_the_most_requests_that_keep_a_promise() -> None:
    """At the rate that is found they keep it, at 2 % more they do not; the rate is printed."""
    load = (*LLAMA, "--engine", "vllm", "--requests", "300", "--tpot", "15ms", "--percentile", "90")
    found = result(*load, "--rate", "max")
    rate = found["most_requests_per_second"]

    assert found["kept"]["met"]
    assert result(*load, "--rate", str(rate))["kept"]["met"]
    assert not result(*load, "--rate", str(rate * 1.02))["kept"]["met"]
    assert " requests a second keep the promise\n" in roofcast(*load, "--rate", "max").out


def test_where_no_rate_keeps_the_promise() -> None:
    """The lowest rate is shown, with a warning and no number."""
    outcome = answer(*LLAMA, "--requests", "20", "--ttft", "1ms", "--rate", "max")

    assert outcome["result"]["most_requests_per_second"] is None
    assert not outcome["result"]["kept"]["met"]
    assert outcome["warnings"] == ["no rate keeps the promise: this is the lowest that was tried"]


def test_prefixes_are_cached_where_a_trace_tells_them(tmp_path: Path) -> None:
    """Nine of ten prompts find 32 of their 64 tokens: 45 %. The kind is the engine's, and may be asked, or off."""
    trace = shared_trace(tmp_path)
    arguments = (*LLAMA, "--trace", trace)

    assert result(*arguments)["prefix_hit_rate"] == pytest.approx(0.45)
    assert result(*arguments)["prefix"]["kind"] == "blocks"
    assert result(*arguments, "--engine", "sglang")["prefix"]["kind"] == "radix"
    assert result(*arguments, "--prefix-cache", "radix", "--prefix-memory", "unlimited")["prefix"]["kind"] == "radix"
    assert result(*arguments, "--prefix-cache", "off")["prefix"] is None
    assert result(*arguments, "--kv-memory", "oracle")["prefix"] is None


def test_a_prefix_cache_beside_the_memory_never_evicts(tmp_path: Path) -> None:
    """16 MiB hold 128 tokens, eight blocks; of the prompts' 22 different ones fourteen or more are given up."""
    small = ("--engine", "vllm", "--max-model-len", "96", "--kv-cache-memory-bytes", "16MiB")
    arguments = (*LLAMA, "--trace", shared_trace(tmp_path), *small)
    shared, unlimited = (result(*arguments, "--prefix-memory", where) for where in ("shared", "unlimited"))

    assert shared["prefix"]["evicted_tokens"] >= 14 * 16
    assert unlimited["prefix"]["evicted_tokens"] == 0
    assert shared["completed"] == unlimited["completed"] == 10


def test_options_reach_the_simulator() -> None:
    """Policy, limits, memory, pools, replicas and speculation change what they name."""
    assert result(*CLOSED, "--policy", "static")["policy"] == "static"
    few = result(*CLOSED, "--engine", "vllm", "--max-num-seqs", "2")
    assert (few["max_num_seqs"], few["peak_running"]) == (2, 2)
    assert result(*CLOSED, "--kv-memory", "pow2")["cache"]["kind"] == "pow2"
    apart = result(*CLOSED, "--prefill-replicas", "2", "--decode-replicas", "1", "--kv-link", "400 Gbit/s")
    assert [(pool["name"], pool["replicas"], pool["gpus"]) for pool in apart["pools"]] == [
        ("prefill", 2, 2),
        ("decode", 1, 1),
    ]
    two = result(*CLOSED, "--dp", "2", "--routing", "least-loaded")
    assert [(pool["replicas"], pool["gpus"]) for pool in two["pools"]] == [(2, 2)]
    assert two["makespan_seconds"] < result(*CLOSED)["makespan_seconds"]
    drafting = (*CLOSED, "--engine", "vllm", "--num-speculative-tokens", "3")
    assert (
        result(*drafting, "--acceptance", "90%")["tpot_seconds"]["mean"] < result(*drafting)["tpot_seconds"]["mean"] / 2
    )
    samples = result(*CLOSED, "--samples", "4")
    assert samples["cache"]["reserved"] > result(*CLOSED)["cache"]["reserved"]


def test_libraries_without_rules_of_memory_are_simulated() -> None:
    """`transformers` computes a batch as one tensor; it has no flags, and `report` has no memory rules of it."""
    found = result(*CLOSED, "--engine", "transformers")

    assert (found["engine"], found["policy"], found["cache"]["kind"]) == ("transformers", "static", "paged")
    refused = roofcast(*CLOSED, "--engine", "transformers", "--max-num-seqs", "4")
    assert (refused.code, refused.out) == (2, "")
    assert "--engine transformers: its memory rules are not modelled" in refused.complaint


def test_drafts_that_nobody_accepts_are_warned_of() -> None:
    """Layers that draft take memory, and nothing comes of it without --acceptance."""
    warnings = answer(*CLOSED, "--engine", "vllm", "--num-speculative-tokens", "3")["warnings"]

    assert "no token is drafted without --acceptance; layers that draft take memory all the same" in warnings


def test_longer_links_take_longer() -> None:
    """A slow link between pools is in TTFT or in the gap behind it."""
    pools = (*CLOSED, "--prefill-replicas", "1", "--decode-replicas", "1")
    fast, slow = (result(*pools, "--kv-link", link)["e2e_seconds"]["mean"] for link in ("400 Gbit/s", "100MB/s"))

    assert slow > fast + 256 * 131072 / 100e6 * 0.9


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "nothing is sent; give --trace FILE"),
        (("--rate", "2", "--policy", "best"), "--policy best: known: static, chunked"),
        (("--rate", "2", "--routing", "x"), "--routing x: known: round-robin, least-loaded"),
        (("--rate", "2", "--order", "x"), "--order x: known: fifo, prefix"),
        (("--rate", "2", "--kv-memory", "x"), "--kv-memory x: known: paged, max, pow2, oracle"),
        (("--rate", "2", "--preemption", "x"), "--preemption x: known: recompute, swap"),
        (("--rate", "2", "--prefix-cache", "x"), "--prefix-cache x: known: off, blocks, radix"),
        (("--rate", "2", "--prefix-cache", "radix"), "--prefix-cache radix: nothing is known of what prompts share"),
        (("--rate", "2", "--prefix-memory", "unlimited"), "--prefix-memory unlimited: there is no prefix cache"),
        (("--rate", "2", "--prefill-replicas", "1"), "--prefill-replicas and --decode-replicas go together"),
        (("--rate", "2", "--prefill-replicas", "0"), "--prefill-replicas 0: it must be from 1 to 4,096"),
        (("--rate", "2", "--samples", "65"), "--samples 65: it must be from 1 to 64"),
        (("--rate", "2", "--samples", "2", "--beams", "2"), "--samples and --beams are two ways"),
        (("--rate", "2", "--kv-link", "1GB/s"), "--kv-link means nothing without --prefill-replicas"),
        (("--rate", "2", "--host-link", "1GB/s"), "--host-link is what swapping takes; give --preemption swap too"),
        (("--rate", "2", "--preemption", "swap", "--host-link", "fast"), "--host-link fast: it is no rate of a link"),
        (("--rate", "2", "--acceptance", "0.5"), "--acceptance is of drafted tokens; give --num-speculative-tokens"),
        (("--rate", "2", "--acceptance", "2"), "--acceptance 2: "),
        (("--rate", "2", "--draft-cost", "0.1"), "--draft-cost means nothing without --acceptance"),
        (("--rate", "2", "--ttft", "soon"), "--ttft soon: it is no time"),
        (("--rate", "2", "--itl", "0s"), "--itl 0s: it must be from 1us to 3600s"),
        (("--rate", "2", "--ttft", "1s", "--percentile", "0"), "--percentile 0: it must be above 0 and at most 100"),
        (("--rate", "2", "--percentile", "90"), "--percentile 90: nothing is promised"),
        (("--rate", "max"), "--rate max finds the most that keep a promise"),
        (("--rate", "2", "--series", "x.json"), "--series x.json: it is written as CSV; name a file that ends in .csv"),
        (("--rate", "2", "--series", "no/such/x.csv"), "--series no/such/x.csv: it must name a file in a folder"),
        (("--rate", "2", "--out", "x.gif"), "--out x.gif: ending '.gif' names no format"),
        (("--rate", "2", "--max-running-requests", "4"), "--max-running-requests is of a serving engine"),
        (("--rate", "2", "--block-size", "300"), "--block-size 300: it must be from 1 to 256"),
        (("--rate", "2", "--samples", "5", "--max-num-seqs", "4"), "--samples 5: a request is as many sequences"),
        (("--rate", "2", "--beams", "33"), "--beams 33: it must be from 1 to 32"),
        (("--rate", "2", "--dp", "5000"), "more than 4,096 replicas"),
        (("--rate", "2", "--requests", "20000000"), "--requests 20,000,000: it must be at most 10,000,000"),
        ((*DRAFTS, "--acceptance", "1"), "--acceptance 1: it must be below 1"),
        ((*DRAFTS, "--acceptance", "0.5", "--draft-cost", "-0.3"), "draft cost -0.3"),
        (("--rate", "2", "--engine", "best"), "best"),
        (("--rate", "2", "--tp", "3"), "3"),
        (("--trace", "no-such.csv"), "no-such.csv"),
    ],
)  # fmt: skip
def test_bad_usage_is_one_line(arguments: tuple[str, ...], words: str) -> None:
    """Exit code 2, the option and what would be right."""
    outcome = roofcast(*LLAMA, *arguments)

    assert outcome.code == 2, outcome.out
    assert words in outcome.complaint
    assert outcome.out == ""


def test_files_that_are_read_are_not_written_over(tmp_path: Path) -> None:
    """Neither by --out nor by --series, and both are not one file."""
    trace = shared_trace(tmp_path)
    before = (tmp_path / "trace.csv").read_text(encoding="utf-8")

    for option in ("--out", "--series"):
        outcome = roofcast(*LLAMA, "--trace", trace, option, trace)
        assert (outcome.code, outcome.complaint) == (
            2, f"{option} {trace}: it is read as a part of {trace}; name another file",
        )  # fmt: skip
    both = str(tmp_path / "x.csv")
    assert "--out writes that file" in roofcast(*LLAMA, "--trace", trace, "--out", both, "--series", both).complaint
    assert (tmp_path / "trace.csv").read_text(encoding="utf-8") == before


def test_strict_refuses_what_is_assumed_and_writes_nothing(tmp_path: Path) -> None:
    """Exit code 3, no file."""
    series = tmp_path / "series.csv"
    outcome = roofcast(*SMALL, "--strict", "--series", str(series))

    assert outcome.code == 3
    assert outcome.complaint.startswith("--strict refuses what is assumed: ")
    assert not series.exists()


def test_a_bad_row_is_one_line_with_its_number(tmp_path: Path) -> None:
    """Even where it comes late, when times are simulated already."""
    path = tmp_path / "bad.csv"
    path.write_text("arrival_seconds,prompt_tokens,output_tokens\n0,10,2\n1,10,2\n0.5,10,2\n", encoding="utf-8")
    outcome = roofcast(*LLAMA, "--trace", str(path))

    assert outcome.code == 2
    assert "bad.csv" in outcome.complaint
    assert "4" in outcome.complaint


def test_refused_requests_are_told() -> None:
    """A prompt of 2,000 does not fit a server of 1,024: refused, with the promise unmet, exit code 0."""
    load = ("--rate", "5", "--requests", "5", "--prompt", "2000", "--output", "4")
    outcome = roofcast("simulate", "gpt2", "--gpu", "h100-sxm", *load)

    assert outcome.code == 0
    assert outcome.out.startswith("gpt2 on h100-sxm: no request was answered\n")
    assert (
        "5 requests: 0 answered, 5 refused, which are longer than the 1,024 tokens or the memory of the server\n"
        in outcome.out
    )


def test_a_bar_counts_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every thousandth is shown, and none is lost."""
    from roofcast.calculators.serving.job import Job, Load

    shown: list[tuple[int, int | None]] = []

    class Bar:
        """A bar that remembers."""

        def at(self, name: str, number: int, total: int | None) -> None:
            """Remember what is shown."""
            assert name == "simulated requests"
            shown.append((number, total))

    monkeypatch.setattr(simulating, "EVERY", 10)
    load = Load("x", lambda: iter([Job(0.0, 1, 1)] * 25))
    bar: Any = Bar()

    assert len(list(simulating._counted(load, bar))) == 25
    assert shown == [(0, None), (10, None), (20, None)]


def test_the_schema_is_published() -> None:
    """`schema simulate` prints it; the quantiles are described."""
    printed = json.loads(roofcast("schema", "simulate").out)

    assert printed == json_schema("simulate")
    assert printed["properties"]["result"]["required"][0] == "model"
    assert "quantiles" in printed["$defs"]["Spread"]["properties"]
