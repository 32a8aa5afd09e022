"""Rules of `check` about plans: the numbers of `plan`, GPUs with and without a price, rents that are locked, and slips."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from roofcast.calculators.check_quantities import Case
from roofcast.calculators.engines.flags import Flags
from roofcast.calculators.planning.rows import PlanDeployment
from roofcast.cli.checking import Setups
from roofcast.cli.checking_plan import asked_plan, flag_texts
from roofcast.cli.deploy import efficiency_of
from roofcast.cli.engine_flags import read_flags
from roofcast.cli.planning import base_case, prepared
from roofcast.reports.plan_words import deployment_words
from tests.gates import gate, rows
from tests.running import result
from tests.test_check_file import rules_of, wrong

if TYPE_CHECKING:
    from pathlib import Path

TOP = "schema: roofcast.check/1\n"
LOAD = "prompt: 512, output: 64, rate: 10, ttft: 500ms, tpot: 50ms, percentile: 90"
HEAD = f"{TOP}defaults: {{model: llama-3.1-8b, engine: vllm, {LOAD}}}\nrules:\n"
SIZES = ("--prompt", "512", "--output", "64")
PROMISED = ("--rate", "10", "--ttft", "500ms", "--tpot", "50ms", "--percentile", "90")
SENT = (*SIZES, *PROMISED)
AS_STORED = ("--engine", "vllm", "--weights", "stored", "--kv", "auto")


def told(tmp_path: Path, *rules: str, options: tuple[str, ...] = (), head: str = HEAD) -> list[dict[str, Any]]:
    """Return the rows of rules that share model, load and promise."""
    return rows(tmp_path, *rules, options=options, head=head)


def best_of(*options: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the cheapest deployment that `plan` finds, and the next cheaper one."""
    found = result("plan", "llama-3.1-8b", *SENT, *AS_STORED, *options)
    [workload] = found["workloads"]
    return found["plans"][workload["best"]], found["plans"][workload["next_cheaper"]]


def test_the_cost_is_that_of_plan(tmp_path: Path) -> None:
    """The cheapest of two kinds of GPUs, its cost and GPU, and why the next cheaper one does not do, as `plan` has them."""
    best, below = best_of("--gpu", "l4,l40s", "--top", "1")
    [met, missed] = told(
        tmp_path,
        "name: a, quantity: cheapest_cost, gpu: [l4, l40s], at_most: 99",
        "name: b, quantity: cheapest_cost, gpu: 'l4, l40s', at_most: 0.1",
    )

    assert met["actual"] == missed["actual"] == best["cost_per_hour"]
    assert met["gpu"] == missed["gpu"] == best["deployment"]["gpu"]
    assert (met["status"], missed["status"], met["unit"]) == ("passed", "failed", "USD/h")
    assert met["message"].partition(": $")[0] == deployment_words(PlanDeployment(**best["deployment"]), formats=False)
    assert met["message"].endswith(" an hour; at most $99.00 an hour is required")
    assert missed["message"].endswith(f": {below['reason']})")


def test_all_gpus_that_have_a_rent(tmp_path: Path) -> None:
    """Without `gpu`, and with `all` beside a default, every GPU counts whose usual rent is known; a default is one."""
    best, _ = best_of("--top", "1")
    with_gpu = HEAD.replace("{model", "{gpu: l40s, gpu_price: 77, model")
    rule = "name: r, quantity: cheapest_cost, at_most: 99"
    [every] = told(tmp_path, f"{rule}, gpu: all", head=with_gpu)
    [default] = told(tmp_path, rule, head=with_gpu)

    assert (every["actual"], every["gpu"]) == (best["cost_per_hour"], best["deployment"]["gpu"])
    assert (default["actual"] % 77, default["gpu"]) == (0, "l40s")
    assert rules_of(tmp_path, f"{HEAD}  - {{{rule}}}\n")[0].case.gpu == ""


def test_gpus_times_their_price_is_the_cost(tmp_path: Path) -> None:
    """Of one kind of GPU the cheapest deployment is that of the fewest: cost = GPUs x price, whatever the price."""
    [count, *costs] = told(
        tmp_path,
        "name: n, quantity: gpus_needed, gpu: l40s, at_most: 8",
        "name: a, quantity: cheapest_cost, gpu: l40s, gpu_price: 0.25, at_most: 99",
        "name: b, quantity: cheapest_cost, gpu: l40s, gpu_price: 4, at_most: 99",
    )

    assert count["actual"] >= 1
    assert (count["unit"], count["gpu"]) == ("", "l40s")
    assert [row["actual"] for row in costs] == [0.25 * count["actual"], 4 * count["actual"]]


def test_more_load_never_needs_fewer(tmp_path: Path) -> None:
    """And a looser promise, or another format of weights that is smaller, never more."""
    every = told(
        tmp_path,
        "quantity: gpus_needed, gpu: l40s, at_most: 64, matrix: {rate: [2, 20, 60]}",
        "quantity: gpus_needed, gpu: l40s, at_most: 64, rate: 20, tpot: 200ms",
        "quantity: gpus_needed, gpu: l40s, at_most: 64, rate: 20, weights: fp8",
    )
    few, some, many, loose, small = (row["actual"] for row in every)

    assert few < some < many
    assert loose <= some
    assert small <= some


def test_clients_and_traces(tmp_path: Path) -> None:
    """A closed loop, and a trace beside the rule file, are loads as elsewhere."""
    lines = [f"{number * 0.5},{500 + 20 * number},{20 + number}" for number in range(40)]
    (tmp_path / "t.csv").write_text("arrival_seconds,prompt_tokens,output_tokens\n" + "\n".join(lines) + "\n")
    found = told(
        tmp_path,
        "quantity: gpus_needed, gpu: l40s, concurrency: 8, at_most: 64",
        "quantity: gpus_needed, gpu: l40s, trace: t.csv, at_most: 64",
        "quantity: gpus_needed, gpu: l40s, trace: none.csv, at_most: 64",
    )
    sent = ("--trace", str(tmp_path / "t.csv"), *PROMISED)  # at the rate of the defaults
    own = result("plan", "llama-3.1-8b", *sent, *AS_STORED, "--gpu", "l40s", "--top", "1")

    assert [row["code"] for row in found] == [0, 0, 2]
    assert found[1]["actual"] == own["plans"][own["workloads"][0]["best"]]["deployment"]["count"]
    assert "no such file" in found[2]["message"].lower()


def test_nothing_keeps_the_limits(tmp_path: Path) -> None:
    """The rule fails without a value, and what comes closest is named with what it misses by."""
    [row] = told(tmp_path, "quantity: gpus_needed, gpu: h100, tpot: 100us, at_most: 8, max_gpus: 8")

    assert (row["actual"], row["status"], row["code"], row["gpu"]) == (None, "failed", 1, "h100-sxm")
    assert row["message"].startswith("nothing of at most 8 GPUs keeps the limits; nearest: ")
    assert "h100-sxm" in row["message"]


def test_a_gpu_without_a_rent_cannot_be_told(tmp_path: Path) -> None:
    """Exit code 3 with what would help; a price of its own is enough, and GPUs are counted without any."""
    alone, beside, priced, counted = told(
        tmp_path,
        "quantity: cheapest_cost, gpu: a2, at_most: 99",
        "quantity: cheapest_cost, gpu: [a2, l40s], at_most: 99",
        "quantity: cheapest_cost, gpu: a2, gpu_price: 0.1, at_most: 99",
        "quantity: gpus_needed, gpu: a2, at_most: 64",
    )

    assert [row["status"] for row in (alone, beside)] == ["undetermined"] * 2
    assert [row["code"] for row in (alone, beside)] == [3, 3]
    assert alone["message"] == "no rent of a2 is known; gpu_price gives it"
    assert beside["message"].startswith("no rent of a2 is known; leave it out of gpu")
    assert (alone["gpu"], beside["gpu"]) == ("a2", None)
    assert priced["actual"] == pytest.approx(0.1 * counted["actual"])


def test_formats_are_as_stored_unless_a_rule_names_others() -> None:
    """A gate does not quantise by itself: `plan` looks at fp8 too, a rule at what it says."""
    setups = Setups(efficiency_of("expected"), offline=True)
    case = Case(model="llama-3.1-8b", gpu="l40s", rate=1.0, prompt=100, output=10, ttft=1.0, percentile=99.0)
    plain = asked_plan(setups, case).choices
    named = asked_plan(
        setups, Case(model="llama-3.1-8b", rate=1.0, ttft=1.0, percentile=99.0, weights="int4", kv="fp8")
    )

    assert (plain.weights, plain.kv, plain.policy) == ("stored", "auto", None)
    assert (named.choices.weights, named.choices.kv, named.gpus.gpu) == ("int4", "fp8", None)


def test_fields_arrive_as_they_were_read() -> None:
    """Flags, network, times and prices that are read once are the same when `plan` has read them from texts."""
    flags = Flags(
        engine_version="0.11.0", gpu_memory_utilization=0.87, kv_cache_memory_bytes=41.3e9, max_model_len=8192,
        enforce_eager=True, dtype="fp16", swa_full_tokens_ratio=0.8, mamba_cache_mode="align", quantization="fp8",
    )  # fmt: skip
    case = Case(
        model="llama-3.1-8b", gpu="h100, l40s", engine="vllm", flags=Flags(max_model_len=4096), network=12.34e9,
        rate=0.1 + 0.2, prompt=1000, output=10, ttft=0.123456, tpot=1e-5, percentile=99.9, max_gpus=7, gpu_price=0.1 + 0.2,
    )  # fmt: skip
    asked = asked_plan(Setups(efficiency_of("expected"), offline=True), case)
    ready = prepared(asked)
    base, [demand] = base_case(asked.deployed, "vllm"), ready.setting.demands

    assert read_flags(flag_texts(flags), {}) == flags
    assert (base.flags, base.network) == (case.flags, case.network)
    assert (demand.goal.ttft_seconds, demand.goal.tpot_seconds, demand.goal.percentile) == (0.123456, 1e-5, 99.9)
    assert (demand.sends.rate, ready.limits.gpus) == (0.1 + 0.2, 7)
    assert {name: one.price_per_gpu_hour for name, one in ready.prices.items()} == dict.fromkeys(
        ("h100-sxm", "l40s"), 0.1 + 0.2
    )
    assert ready.setting.model is asked.model


def test_bounds_cost_no_more(tmp_path: Path) -> None:
    """With basis: bound steps take their least; without constants expected times cannot be told."""
    rule = "quantity: gpus_needed, gpu: l40s, rate: 40, at_most: 64"
    bound, expected = told(tmp_path, f"{rule}, basis: bound", rule)
    [same] = told(tmp_path, rule, options=("--efficiency", "bound"))
    [none] = told(tmp_path, f"{rule}, basis: expected", options=("--efficiency", "bound"))

    assert bound["actual"] == same["actual"] < expected["actual"]
    assert (none["code"], none["actual"], none["basis"]) == (3, None, "expected")


def test_a_rent_that_moved_is_locked(tmp_path: Path) -> None:
    """The rent behind a value is in the baseline: with `lock: true` another one fails, without it is a warning."""
    baseline = tmp_path / "b.json"
    options = ("--baseline", str(baseline), "--format", "json")
    rule = "name: r, quantity: cheapest_cost, gpu: l40s, at_most: 99, allowed_change: 0%"
    locked = HEAD.replace(TOP, f"{TOP}lock: true\n")
    assert gate(tmp_path, rule, options=(*options, "--update"), head=locked).code == 0
    assert gate(tmp_path, rule, options=options, head=locked).code == 0
    found = json.loads(baseline.read_text())
    rent = found["lock"]["rents"]["l40s"]
    amount = rent.split(", ")[-1]
    found["lock"]["rents"]["l40s"] = rent.replace(amount, "77.0 USD/h")
    baseline.write_text(json.dumps(found))
    strict, loose = (gate(tmp_path, rule, options=options, head=head) for head in (locked, HEAD))

    assert list(found["lock"]["rents"]) == ["l40s"]
    assert found["rules"]["r"]["value"] % float(amount.split()[0]) == pytest.approx(0, abs=1e-9)
    assert list(found["lock"]["accelerators"]) == ["l40s"]
    assert found["lock"]["constants"]
    [row] = [row for row in strict.data["result"]["rules"] if row["quantity"] == "lock"]
    assert (row["name"], row["status"], row["gpu"]) == ("lock: rent l40s", "failed", "l40s")
    assert row["message"].startswith(f"locked 77.0 USD/h, found {amount}; run ")
    assert loose.code == 0
    assert any(line.startswith("rent l40s: locked 77.0 USD/h") for line in loose.data["warnings"])


def test_a_price_that_is_given_is_no_rent(tmp_path: Path) -> None:
    """It stands in the rule; and GPUs that are counted have none."""
    baseline = tmp_path / "b.json"
    gate(
        tmp_path,
        "name: a, quantity: cheapest_cost, gpu: l40s, gpu_price: 1, at_most: 99",
        "name: b, quantity: gpus_needed, gpu: l40s, at_most: 9",
        options=("--baseline", str(baseline), "--update"),
        head=HEAD,
    )

    assert "rents" not in json.loads(baseline.read_text())["lock"]


def test_a_baseline_of_plans(tmp_path: Path) -> None:
    """A cost that rises against it fails, with the deployment; one that falls is better."""
    baseline = tmp_path / "b.json"
    options = ("--baseline", str(baseline))
    rule = "name: r, quantity: cheapest_cost, gpu: l40s, gpu_price: {}, allowed_change: 2%"
    assert gate(tmp_path, rule.format(1), options=(*options, "--update"), head=HEAD).code == 0
    [dearer] = told(tmp_path, rule.format(1.03), options=options)
    [cheaper] = told(tmp_path, rule.format(0.9), options=options)

    assert (dearer["status"], cheaper["status"]) == ("failed", "passed")
    assert "l40s" in dearer["message"].partition(": $")[0]
    assert ", +3.0 % against the baseline's $" in dearer["message"]
    assert cheaper["message"].endswith("which is better")


def test_a_plan_is_made_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Limits of one question share its answer, and all questions of a model its files."""
    from roofcast.cli import planning_run, session

    made: list[object] = []
    loaded: list[str] = []
    answered, load = planning_run.answered, session.load

    def counted(asked: Any) -> Any:
        made.append(asked)
        return answered(asked)

    def read(name: str, lookup: Any) -> Any:
        loaded.append(name)
        return load(name, lookup)

    monkeypatch.setattr(planning_run, "answered", counted)
    monkeypatch.setattr("roofcast.cli.checking.load", read)
    told(
        tmp_path,
        "name: a, quantity: cheapest_cost, gpu: l40s, at_most: 99",
        "name: b, quantity: cheapest_cost, gpu: l40s, at_most: 1",
        "name: c, quantity: gpus_needed, gpu: l40s, at_most: 1",
        "name: d, quantity: gpus_needed, gpu: l40s, at_most: 9",
        "name: e, quantity: kv_tokens, gpu: l40s, at_least: 9",
    )

    assert len(made) == 2
    assert loaded == ["llama-3.1-8b"]


def test_an_interrupted_plan_ends_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C in the midst of a search does not make an answer of what was found until then."""
    from roofcast.calculators.planning.search import Search

    def interrupted(_: Search) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Search, "solve", interrupted)
    outcome = gate(tmp_path, "quantity: cheapest_cost, gpu: l40s, at_most: 99", head=HEAD)

    assert (outcome.code, outcome.out) == (130, "")


def test_what_is_assumed_of_the_deployment(tmp_path: Path) -> None:
    """It is said, in the words of rules; formats that no rule asks for are not offered."""
    outcome = gate(
        tmp_path,
        "quantity: cheapest_cost, gpu: l40s, weights: fp8, at_most: 99",
        options=("--format", "json"),
        head=HEAD,
    )
    said = outcome.data["assumptions"]

    assert "the model answers as well with weights in fp8" in said
    assert "GPUs are rented one by one; a provider may let whole machines of 8 alone" in said
    assert any(line.startswith("engines are started for the longest request") for line in said)
    assert not any("--" in line for line in said)


def test_the_page_has_dollars(tmp_path: Path) -> None:
    """A table for people has dollars an hour, and the GPU that was found."""
    outcome = gate(
        tmp_path,
        "name: a, quantity: cheapest_cost, gpu: l40s, gpu_price: 2, at_most: 99",
        head=HEAD,
    )

    assert "$/h  <= 99 $/h" in outcome.out
    assert "$/h: US dollars an hour of all GPUs" in outcome.out


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ("quantity: cheapest_cost, at_least: 1", "at_least: of cheapest_cost less is better; write at_most"),
        ("quantity: gpus_needed, at_most: 4", "gpu: is missing; gpus_needed needs it"),
        ("quantity: gpus_needed, gpu: all, at_most: 4", "gpu: gpus_needed is of one kind of GPU"),
        ("quantity: gpus_needed, gpu: [l4, l40s], at_most: 4", "gpu: gpus_needed is of one kind of GPU"),
        ("quantity: kv_tokens, gpu: 'l4, l40s', at_least: 4", "a list of values goes under matrix"),
        ("quantity: cheapest_cost, gpu: [], at_most: 4", "gpu: is a list"),
        ("quantity: cheapest_cost, gpu: [l4, [l40s]], at_most: 4", "gpu: is a list"),
        ("quantity: cheapest_cost, gpu: [l4, l40z], at_most: 4", "gpu: no accelerator 'l40z'"),
        ("quantity: cheapest_cost, gpu: 'l4,,l40s', at_most: 4", "gpu: "),
        ("quantity: cheapest_cost, gpu_price: 2, at_most: 4", "gpu_price: is of one GPU; name it with gpu"),
        ("quantity: cheapest_cost, gpu: [l4, l40s], gpu_price: 2, at_most: 4", "gpu_price: is of one GPU"),
        ("quantity: gpus_needed, gpu: l4, gpu_price: 2, at_most: 4", "gpu_price: gpus_needed does not take it"),
        (
            "quantity: gpus_needed, gpu: l4, at_most: 100",
            "at_most: 100 GPUs are allowed, 64 are looked at; write max_gpus: 100",
        ),
        ("quantity: gpus_needed, gpu: l4, max_gpus: 4, at_most: 8", "at_most: 8 GPUs are allowed, 4 are looked at"),
        ("quantity: cheapest_cost, tp: 2, at_most: 4", "tp: cheapest_cost does not take it"),
        ("quantity: cheapest_cost, max_gpus: 0, at_most: 4", "max_gpus: "),
        ("quantity: ttft, gpu: l4, max_gpus: 2, at_most: 4 s", "max_gpus: ttft does not take it"),
        ("quantity: cheapest_cost, basis: high, at_most: 4", "basis: high is an end of a step's interval"),
        ("quantity: cheapest_cost, batch: 4, at_most: 4", "batch: cheapest_cost does not take it"),
    ],
)
def test_a_plan_that_cannot_be(tmp_path: Path, fields: str, said: str) -> None:
    """One line names the field and what would be right."""
    found = wrong(tmp_path, f"{HEAD}  - {{{fields}}}\n")

    assert len(found) == 1
    assert said in found[0]
