"""Rules of `check` about a load: the numbers of `simulate`, queues that grow, requests that are refused, and slips."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from roofcast.calculators.check_rows import RuleRow
from roofcast.reports.check import headroom
from tests.gates import HEAD, actual, gate, rows
from tests.running import result
from tests.test_check_file import one, wrong

if TYPE_CHECKING:
    from pathlib import Path

SERVED = ("llama-3.1-8b", "--gpu", "h100-sxm", "--engine", "vllm")
LENGTHS = "engine: vllm, prompt: 1k, output: 100"
ASKED = ("--prompt", "1k", "--output", "100")
TRACE = "arrival_seconds,prompt_tokens,output_tokens\n"


def simulated(*options: str) -> dict[str, Any]:
    """Return what `simulate` answers of the same server."""
    found: dict[str, Any] = result("simulate", *SERVED, *options)
    return found


def test_percentiles_are_those_of_simulate(tmp_path: Path) -> None:
    """Of a closed loop, by the defaults of `simulate`: each time at the percentiles that it prints."""
    own = simulated("--concurrency", "32", *ASKED)
    for name in ("ttft", "tpot", "itl", "e2e"):
        for percentile in (50, 90, 99):
            rule = f"quantity: {name}, {LENGTHS}, concurrency: 32, percentile: {percentile}, at_most: 99 s"
            assert actual(tmp_path, rule) == own[f"{name}_seconds"][f"p{percentile}"]


def test_a_rate_and_its_requests_are_those_of_simulate(tmp_path: Path) -> None:
    """An open loop is by chance, and the same chance every time; so is the goodput within limits."""
    sent = ("--rate", "12.5", "--requests", "300", *ASKED)
    own = simulated(*sent, "--ttft", "60ms", "--tpot", "12ms")
    load = f"{LENGTHS}, rate: 12.5, requests: 300"

    assert actual(tmp_path, f"quantity: e2e, {load}, percentile: 95, at_most: 9 s") == own["e2e_seconds"]["p95"]
    good = actual(tmp_path, f"quantity: goodput, {load}, ttft: 60ms, tpot: 12ms, at_least: 1")
    assert good == own["goodput_requests_per_second"]
    assert 0 < good < own["requests_per_second"]
    assert good <= actual(tmp_path, f"quantity: goodput, {load}, ttft: 60ms, at_least: 1")


def test_the_most_requests_are_those_of_simulate(tmp_path: Path) -> None:
    """The highest rate at which 90 of 100 keep the limits, as `--rate max` finds it."""
    promised = ("--ttft", "300ms", "--tpot", "15ms", "--percentile", "90")
    own = simulated("--rate", "max", "--requests", "200", *ASKED, *promised)
    rule = (
        f"quantity: requests_per_second, {LENGTHS}, requests: 200, ttft: 300ms, tpot: 15ms, percentile: 90, at_least: 1"
    )

    assert actual(tmp_path, rule) == own["most_requests_per_second"]


def test_limits_that_no_request_keeps(tmp_path: Path) -> None:
    """No rate is high enough where a request alone is too slow: none a second, and the rule fails."""
    rule = f"quantity: requests_per_second, {LENGTHS}, requests: 20, ttft: 1ms, percentile: 90, at_least: 1"
    [row] = rows(tmp_path, rule)

    assert (row["actual"], row["status"]) == (0, "failed")
    assert "alone" in row["message"]


def test_one_client_takes_what_estimate_says(tmp_path: Path) -> None:
    """Nobody waits for anybody: TTFT is the prefill, TPOT the steps from 1,024 tokens to 1,123, of which 1,074 is the mean."""
    phases = result(
        "estimate", "llama-3.1-8b", "--gpu", "h100-sxm", "--context", "1k,1074", "--batch", "1", "--phase", "decode"
    )["phases"]
    prefill = result("estimate", "llama-3.1-8b", "--gpu", "h100-sxm", "--prompt", "1k", "--phase", "prefill")["phases"]
    load = "concurrency: 1, prompt: 1k, output: 100, percentile: 90, at_most: 9 s"

    assert actual(tmp_path, f"quantity: ttft, {load}") == pytest.approx(prefill[0]["expected_seconds"], rel=0.005)
    assert actual(tmp_path, f"quantity: tpot, {load}") == pytest.approx(phases[1]["expected_seconds"], rel=0.005)


def test_a_trace_beside_the_rule_file(tmp_path: Path) -> None:
    """It is looked for in the folder of the rules, wherever the command runs; its requests are sent as they were."""
    folder = tmp_path / "loads"
    folder.mkdir()
    lines = [f"{number * 0.2},{500 + 20 * number},{20 + number}" for number in range(40)]
    (folder / "mine.csv").write_text(TRACE + "\n".join(lines) + "\n")
    own = simulated("--trace", str(folder / "mine.csv"))
    rule = "quantity: ttft, engine: vllm, trace: loads/mine.csv, percentile: 90, at_most: 9 s"

    assert actual(tmp_path, rule) == own["ttft_seconds"]["p90"]
    at_rate = simulated("--trace", str(folder / "mine.csv"), "--rate", "9", "--requests", "30")
    assert actual(tmp_path, f"{rule}, rate: 9, requests: 30") == at_rate["ttft_seconds"]["p90"]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        pytest.param(None, "no such file", id="missing"),
        pytest.param(f"{TRACE}0,10,5\n1,nan,5\n", "line 3: prompt_tokens", id="bad-row"),
        pytest.param("", "empty", id="empty"),
    ],
)
def test_a_bad_trace_is_badly_put(tmp_path: Path, content: str | None, said: str) -> None:
    """Its rule is exit code 2 with the file and the row, and the others are answered."""
    if content is not None:
        (tmp_path / "t.csv").write_text(content)
    found = rows(
        tmp_path,
        "quantity: ttft, engine: vllm, trace: t.csv, percentile: 90, at_most: 9 s",
        "quantity: itl, engine: vllm, trace: t.csv, percentile: 90, at_most: 9 s",
        "quantity: weights_fit",
    )

    assert [row["code"] for row in found] == [2, 2, 0]
    assert found[0]["message"] == found[1]["message"]
    assert said in found[0]["message"].lower()
    assert found[0]["message"].startswith(f"trace {tmp_path}/t.csv")


def test_requests_that_are_refused_are_never_answered(tmp_path: Path) -> None:
    """Of ten requests two are longer than the server takes: the 80th percentile is the slowest of eight, the 90th is none."""
    lines = [f"{number},{9000 if number in {3, 7} else 1000},10" for number in range(10)]
    (tmp_path / "t.csv").write_text(TRACE + "\n".join(lines) + "\n")
    rule = "engine: vllm, flags: {max_model_len: 8k}, trace: t.csv, at_most: 99 s"
    own = simulated("--max-model-len", "8k", "--trace", str(tmp_path / "t.csv"))
    most, none = rows(tmp_path, f"quantity: ttft, percentile: 80, {rule}", f"quantity: ttft, percentile: 90, {rule}")

    assert own["rejected"] == 2
    assert (most["actual"], most["status"]) == (own["ttft_seconds"]["max"], "passed")
    assert (none["actual"], none["status"]) == (None, "failed")
    assert "2 of 10 requests are refused, longer than the server takes" in none["message"]


def test_a_growing_queue_meets_no_limit_of_waiting(tmp_path: Path) -> None:
    """Far more come than are answered: what waits is told of so many requests and never passes; steps are as long as ever."""
    load = f"{LENGTHS}, rate: 200, requests: 400"
    names = ("ttft", "e2e", "tpot", "itl")
    found = rows(
        tmp_path,
        *(f"name: {name}, quantity: {name}, {load}, percentile: 50, at_most: 1 h" for name in names),
        f"name: good, quantity: goodput, {load}, ttft: 1h, at_least: 0.001",
        f"name: steps, quantity: goodput, {load}, tpot: 1h, at_least: 0.001",
        f"name: closed, quantity: ttft, {LENGTHS}, concurrency: 400, percentile: 50, at_most: 1 h",
    )

    assert [row["status"] for row in found] == ["failed", "failed", "passed", "passed", "failed", "passed", "passed"]
    assert all(row["actual"] > 0 for row in found)
    assert all("the queue keeps growing" in row["message"] for row in found[:6])
    assert "of the first 400 requests alone" in found[0]["message"]
    assert "queue" not in found[6]["message"]
    assert [headroom(RuleRow(**row)) is None for row in found[:4]] == [True, True, False, False]


def test_so_few_requests_that_any_rate_keeps_limits(tmp_path: Path) -> None:
    """What two requests see says nothing of a rate: it cannot be told, and what would help is said."""
    rule = f"quantity: requests_per_second, {LENGTHS}, requests: 2, ttft: 1h, percentile: 90, at_least: 1"
    [row] = rows(tmp_path, rule)

    assert (row["code"], row["actual"]) == (3, None)
    assert "requests: 10000 sends more" in row["message"]


def test_a_growing_queue_is_in_no_baseline(tmp_path: Path) -> None:
    """A change is not held against what depends on the number of requests, and `--update` does not make it pass."""
    rule = f"name: r, quantity: ttft, {LENGTHS}, rate: 200, requests: 400, percentile: 50, allowed_change: 10%"
    baseline = str(tmp_path / "b.json")

    for options in (("--update",), ()):
        outcome = gate(tmp_path, rule, options=("--baseline", baseline, *options, "--format", "json"))
        [row] = outcome.data["result"]["rules"]
        assert outcome.code in {1, 3}
        assert row["status"] != "passed"


def test_what_does_not_fit_has_no_percentiles(tmp_path: Path) -> None:
    """No time, and the reason."""
    big = "model: llama-3.3-70b, engine: vllm, prompt: 1k, output: 100, requests: 20"
    found = rows(
        tmp_path,
        f"quantity: ttft, {big}, rate: 1, percentile: 90, at_most: 9 s",
        f"quantity: goodput, {big}, rate: 1, ttft: 1s, at_least: 1",
        f"quantity: requests_per_second, {big}, percentile: 90, ttft: 1s, at_least: 1",
    )

    assert [(row["actual"], row["status"]) for row in found] == [(None, "failed")] * 3
    assert all(row["message"].startswith("does not fit: the weights alone take") for row in found)


def test_requests_of_one_token_have_no_time_between_tokens(tmp_path: Path) -> None:
    """It cannot be told, exit code 3."""
    load = "engine: vllm, prompt: 1k, output: 1, concurrency: 2, requests: 9, percentile: 90, at_most: 1 s"
    found = rows(tmp_path, *(f"quantity: {name}, {load}" for name in ("itl", "tpot", "ttft")))

    assert [row["code"] for row in found] == [3, 3, 0]
    assert "requests of one token have no tpot" in found[1]["message"]


def test_bounds_of_a_load(tmp_path: Path) -> None:
    """With basis: bound steps take their least; without constants expected times cannot be told."""
    rule = f"quantity: tpot, {LENGTHS}, concurrency: 8, percentile: 50, at_most: 9 s"
    bound = actual(tmp_path, f"{rule}, basis: bound")

    assert bound < 0.8 * actual(tmp_path, rule)
    assert rows(tmp_path, rule, options=("--efficiency", "bound"))[0]["actual"] == bound
    [row] = rows(tmp_path, f"{rule}, basis: expected", options=("--efficiency", "bound"))
    assert (row["code"], row["actual"]) == (3, None)


def test_memory_that_is_kept_free_is_room_for_no_request(tmp_path: Path) -> None:
    """A tenth of the room makes clients wait for one another."""
    rule = "quantity: e2e, prompt: 4k, output: 200, concurrency: 100, requests: 200, percentile: 50, at_most: 999 s"

    assert actual(tmp_path, f"{rule}, reserve: 75%") > 1.5 * actual(tmp_path, rule)


def test_a_budget_of_steps_counts(tmp_path: Path) -> None:
    """A prompt of 4,096 tokens takes eight steps of 512."""
    rule = "quantity: ttft, prompt: 4k, output: 10, concurrency: 1, requests: 4, percentile: 50, at_most: 9 s"

    assert actual(tmp_path, f"{rule}, max_num_batched_tokens: 512") > 1.1 * actual(tmp_path, rule)


def test_a_load_is_simulated_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Percentiles, quantities and limits of one load share its run; another load has its own."""
    from roofcast.calculators.serving.cluster import Cluster

    ran: list[str] = []
    run = Cluster.run

    def counted(cluster: Cluster, load: Any) -> None:
        ran.append(load.name)
        run(cluster, load)

    monkeypatch.setattr(Cluster, "run", counted)
    load = f"{LENGTHS}, requests: 30"
    rows(
        tmp_path,
        f"quantity: ttft, {load}, matrix: {{concurrency: [2, 4], percentile: [50, 90, 99]}}, at_most: 1 s",
        f"quantity: itl, {load}, concurrency: 2, percentile: 90, at_most: 1 s",
        f"quantity: goodput, {load}, concurrency: 2, ttft: 1s, at_least: 1",
    )

    assert len(ran) == 2


def test_defaults_give_way_to_a_rules_own_load(tmp_path: Path) -> None:
    """What is of one step does not count under a load, what is of a load not without one, and one load replaces another."""
    shared = "batch: 4, context: 2k, prefix_hit: 0.5, output: 100, requests: 50, percentile: 90"
    head = f"schema: roofcast.check/1\ndefaults: {{model: m, gpu: h100-sxm, prompt: 1k, {shared}}}\nrules:\n"
    text = head + "  - {quantity: ttft, at_most: 1 s}\n  - {quantity: ttft, rate: 2, at_most: 1 s}\n"
    text += "  - {quantity: cost_per_million_tokens, gpu_price: 1, at_most: 1}\n"
    from tests.test_check_file import rules_of

    step, sent, cost = (rule.case for rule in rules_of(tmp_path, text))

    assert (step.batch, step.prefix_hit, step.output, step.requests, step.percentile) == (4, 0.5, 1, None, None)
    assert (sent.batch, sent.prefix_hit, sent.output, sent.requests, sent.percentile) == (1, 0.0, 100, 50, 90)
    assert (cost.batch, cost.output, cost.requests) == (4, 100, None)
    loaded = HEAD.replace("gpu: h100-sxm", "gpu: h100-sxm, rate: 2, prompt: 1k, output: 9, percentile: 90")
    [closed] = rules_of(tmp_path, f"{loaded}  - {{quantity: ttft, concurrency: 3, at_most: 1 s}}\n")
    [traced] = rules_of(tmp_path, f"{loaded}  - {{quantity: ttft, trace: t.csv, at_most: 1 s}}\n")
    assert (closed.case.rate, closed.case.concurrency) == (None, 3)
    assert (traced.case.rate, traced.case.prompt, traced.case.trace) == (2, 1, str(tmp_path / "t.csv"))


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ("quantity: ttft, prompt: 1k, percentile: 99", "percentile: is of a load: write rate, concurrency or trace too"),
        ("quantity: tpot, context: 1k, batch: 2, requests: 9", "requests: is of a load"),
        ("quantity: ttft, prompt: 1k, output: 9", "output: is of a load"),
        ("quantity: ttft, prompt: 1k, output: 9, rate: 2", "percentile: is missing; ttft needs it"),
        ("quantity: ttft, prompt: 1k, percentile: 9, rate: 2", "output: is missing; ttft needs it"),
        ("quantity: itl, prompt: 1k, output: 9, percentile: 9", "rate: is missing; itl is of a load"),
        (
            "quantity: e2e, prompt: 1k, output: 9, percentile: 9, rate: 2, concurrency: 2",
            "concurrency: a load comes at a rate or from clients",
        ),
        ("quantity: e2e, trace: t.csv, prompt: 9, percentile: 9", "prompt: a trace has lengths of its own"),
        ("quantity: ttft, prompt: 1k, output: 9, percentile: 9, rate: 2, batch: 4", "batch: is of one step"),
        ("quantity: tpot, prompt: 1k, output: 9, percentile: 9, rate: 2, context: 4k", "context: is of one step"),
        ("quantity: ttft, prompt: 1k, output: 9, percentile: 9, rate: 2, basis: high", "basis: high is an end of a step"),
        ("quantity: itl, prompt: 1k, output: 9, percentile: 9, rate: 2, basis: low", "basis: low is an end of a step"),
        ("quantity: requests_per_second, prompt: 1k, output: 9, percentile: 9, at_least: 1", "ttft: is missing"),
        ("quantity: goodput, prompt: 1k, output: 9, rate: 2, at_least: 1", "ttft: is missing; goodput counts requests"),
        ("quantity: goodput, prompt: 1k, output: 9, rate: 2, ttft: 1s, percentile: 9, at_least: 1", "percentile: goodput does"),
        ("quantity: requests_per_second, rate: 2, prompt: 1k, output: 9, percentile: 9, ttft: 1s, at_least: 1", "rate: requests"),
        ("quantity: tokens_per_second, context: 1k, batch: 2, rate: 2, at_least: 1", "rate: tokens_per_second does not"),
        ("quantity: ttft, prompt: 1k, output: 9, percentile: 0, rate: 2", "percentile: "),
        ("quantity: ttft, prompt: 1k, output: 9, percentile: 9, rate: -2", "rate: "),
        ("quantity: goodput, prompt: 1k, output: 9, rate: 2, ttft: 5, at_least: 1", "ttft: '5' has no unit"),
    ],
)  # fmt: skip
def test_a_load_that_cannot_be(tmp_path: Path, fields: str, said: str) -> None:
    """One line names the field and what would be right."""
    limit = "" if "at_least" in fields else ", at_most: 1 s"
    found = wrong(tmp_path, f"{HEAD}  - {{{fields}{limit}}}\n")

    assert len(found) == 1
    assert said in found[0]


def test_a_rate_that_no_one_sends(tmp_path: Path) -> None:
    """What only the load refuses is badly put, in the words of rules."""
    rule = f"quantity: ttft, {LENGTHS}, concurrency: 2000000, percentile: 90, at_most: 1 s"
    [row] = rows(tmp_path, rule)

    assert row["code"] == 2
    assert row["message"].startswith("concurrency 2,000,000: it must be at most")


def test_a_load_reads_a_single_rule(tmp_path: Path) -> None:
    """Counts, numbers and times are read as everywhere."""
    found = one(tmp_path, f"quantity: goodput, {LENGTHS}, rate: 0.5, requests: 2k, tpot: 50 ms, at_least: 0.4").case

    assert (found.rate, found.requests, found.tpot, found.ttft) == (0.5, 2048, 0.05, None)
