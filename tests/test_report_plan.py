"""The section of `report` on the cheapest deployment that would do: when it is there, of which load, and that it is `plan`'s."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, Any

import pytest

from roofcast.cli import planning_run
from roofcast.reports.report import TITLES
from tests.pages import read, squeezed
from tests.running import refused, roofcast

if TYPE_CHECKING:
    from pathlib import Path

    from roofcast.cli.planning import AskedPlan
    from roofcast.cli.planning_run import Answer

SMALL = ("report", "gpt2", "--gpu", "h100-sxm", "--engine", "vllm", "--context", "512", "--output", "16")
ALONE = ("--other-models", "none", "--api", "none")
BESIDE = ("--other-gpus", "l4", "--gpu-price", "2.50")
PROMISE = ("--ttft", "200ms", "--tpot", "5ms")
RATE = ("--rate", "20")
TITLE = TITLES["plan"].upper()
LEFT_OUT = "the cheapest deployment was not looked for: "


@cache
def reported(*options: str, form: str = "json") -> str:
    """Return what the command prints."""
    outcome = roofcast(*SMALL, *ALONE, *options, "--format", form)
    assert outcome.code == 0, outcome.err
    return outcome.out


def found(*options: str) -> Any:
    """Return the result of the command."""
    return json.loads(reported(*options))["result"]


def test_a_rate_gives_the_answer_of_plan() -> None:
    """The cheapest, the next cheaper one and every number of both are those of `plan`, asked the same."""
    own = found(*BESIDE, *PROMISE, *RATE)["plan"]
    outcome = roofcast(
        *("plan", "gpt2", "--gpu", "h100-sxm,l4", "--gpu-price", "h100-sxm=2.50", "--engine", "vllm", *RATE),
        *("--weights", "stored", "--kv", "auto", "--prompt", "496", "--output", "16", *PROMISE, "--percentile", "90"),
        *("--top", "4", "--jobs", "1", "--format", "json"),
    )
    plan = outcome.data["result"]

    def shown(result: Any) -> list[Any]:
        [workload] = result["workloads"]
        numbers = [workload["best"], workload["next_cheaper"]]
        rows = [None if number is None else result["plans"][number] for number in numbers]
        return [workload["load"], workload["goal"], *({**row, "pareto": None} if row else None for row in rows)]

    assert shown(own) == shown(plan)
    assert own["workloads"][0]["best"] is not None
    assert own["gpus"] == plan["gpus"]


def test_without_a_rate_it_is_four_fifths_of_what_the_deployment_does() -> None:
    """By the costs of the same load: 1 / (seconds of a request) requests/s, of which 80 %, to three figures."""
    result = found(*BESIDE, *PROMISE)
    top = result["verdict"]["met"]["batch"]
    [load] = [row for row in result["price"]["loads"] if row["batch"] == top]
    [cost] = [row for row in load["costs"] if row["basis"] == "expected"]
    [workload] = result["plan"]["workloads"]

    assert workload["requests_per_second"] == float(f"{0.8 * cost['requests_per_second']:.3g}")
    assert (workload["prompt_tokens"], workload["output_tokens"]) == (496, 16)
    assert workload["goal"] == {
        "ttft_seconds": 0.2,
        "tpot_seconds": 0.005,
        "itl_seconds": None,
        "percentile": 90.0,
    }
    assert f"requests/s that this deployment does with {top:,} at once, prompts and all" in reported(
        *BESIDE, *PROMISE, form="text"
    )


def test_there_is_none_without_a_rate_and_a_promise() -> None:
    """Nor a word of it; the page has its other sections."""
    said = reported(*BESIDE, form="text")

    assert found(*BESIDE)["plan"] is None
    assert TITLE not in said
    assert LEFT_OUT not in said
    assert "WHAT IT COSTS" in said


def test_a_rate_alone_is_a_load_that_must_be_answered() -> None:
    """Nothing is promised: it is enough that the queue does not grow, and that is said."""
    own = found(*BESIDE, *RATE)["plan"]

    assert own["workloads"][0]["requests_per_second"] == 20.0
    assert own["workloads"][0]["goal"]["ttft_seconds"] is None
    assert "nothing is promised: it is enough that requests are answered" in reported(*BESIDE, *RATE, form="text")


def test_a_price_that_is_given_is_of_the_own_gpu_alone() -> None:
    """Others cost what is known of them; none beside it leaves the own one alone."""
    both = {row["gpu"]: row for row in found(*BESIDE, *PROMISE, *RATE)["plan"]["gpus"]}
    [own] = found("--other-gpus", "none", "--gpu-price", "2.50", *PROMISE, *RATE)["plan"]["gpus"]

    assert (both["h100-sxm"]["price_per_gpu_hour"], both["h100-sxm"]["source"]) == (2.5, "--gpu-price")
    assert both["l4"]["source"] != "--gpu-price"
    assert own == both["h100-sxm"]


def test_a_rate_may_be_of_a_minute() -> None:
    """As `price` takes it: 1,200 a minute are 20 a second."""
    report = json.loads(reported(*BESIDE, *PROMISE, "--rate", "1200/min"))

    assert report["inputs"]["requests_per_second"] == 20.0
    assert report["result"]["plan"] == found(*BESIDE, *PROMISE, *RATE)["plan"]


@pytest.mark.parametrize("rate", ["max", "0", "-1", "1@0s,2@9s", "many"])
def test_what_is_no_rate_is_refused(rate: str) -> None:
    """Before anything is read: in one line that names the option."""
    refused(roofcast(*SMALL, *ALONE, "--rate", rate), 2, f"--rate {rate}", "12.5")


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (("--gpu-price", "0", *RATE), "--gpu-price h100-sxm=0: it must be above 0"),
        (("--gpu-memory-utilization", "0.001", "--ttft", "1s"), "it does not fit here, so there is no load"),
    ],
)
def test_what_cannot_be_planned_leaves_the_section_out_and_says_why(options: tuple[str, ...], why: str) -> None:
    """The rest of the report is there."""
    options = ("--other-gpus", "none", *options)
    said = reported(*options, form="text")

    assert f"\n{LEFT_OUT}{why}" in said
    assert TITLE not in said
    assert found(*options)["plan"] is None


def test_a_fault_of_our_own_is_not_swallowed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only errors that a user can act on leave the section out."""

    def broken(_asked: AskedPlan) -> Answer:
        raise KeyError("ours")

    monkeypatch.setattr(planning_run, "answered", broken)

    outcome = roofcast(*SMALL, *ALONE, *BESIDE, *RATE)

    assert outcome.out == ""
    assert "internal error" in outcome.err


def test_an_interrupted_search_interrupts_the_report(monkeypatch: pytest.MonkeyPatch) -> None:
    """A report is whole, or there is none."""
    real = planning_run.answered
    monkeypatch.setattr(planning_run, "answered", lambda asked: replace(real(asked), stopped=planning_run.INTERRUPTED))

    outcome = roofcast(*SMALL, *ALONE, *BESIDE, *RATE)

    assert (outcome.code, outcome.out) == (130, "")


def test_the_search_is_a_short_one_of_what_is_read_already(monkeypatch: pytest.MonkeyPatch) -> None:
    """The report's model is taken, nothing around the best deployment is looked for, and no process is started."""
    real, asked = planning_run.answered, []

    def seen(one: AskedPlan) -> Answer:
        asked.append(one)
        return real(one)

    monkeypatch.setattr(planning_run, "answered", seen)
    assert roofcast(*SMALL, *ALONE, *BESIDE, *RATE, "--weights", "fp8").code == 0
    [one] = asked

    assert one.model is not None
    assert (one.brief, one.jobs, one.choices.weights, one.choices.kv) == (True, 1, "fp8", "auto")


def test_it_is_a_section_of_the_page() -> None:
    """With its heading, its answer in a sentence, its table and its chart, and the report's own badge."""
    page = read(reported(*BESIDE, *PROMISE, *RATE, form="html"))
    [section] = [one for one in page.all("section") if one.attributes.get("aria-labelledby") == "plan"]

    assert squeezed(section.one("h2").text) == TITLES["plan"]
    assert "20 requests/s, Poisson, 496 in, 16 out: cheapest: 2 x l4, 2 replicas, vllm," in squeezed(section.text)
    assert len(section.all("svg")) == 1
    assert "why not cheaper" in section.text


def test_it_stands_between_costs_and_measurements_in_every_format() -> None:
    """In text, and in Markdown; the command that tries the best one is there."""
    text, markdown = (reported(*BESIDE, *PROMISE, *RATE, form=form) for form in ("text", "markdown"))

    assert text.index("WHAT IT COSTS") < text.index(TITLE) < text.index(TITLES["measured"].upper())
    assert markdown.index(TITLES["price"]) < markdown.index(TITLES["plan"]) < markdown.index(TITLES["measured"])
    assert "try it: roofcast simulate gpt2 --gpu l4 --dp 2 --engine vllm" in text


def test_its_chart_is_a_file_beside_the_others(tmp_path: Path) -> None:
    """`--charts FOLDER` writes it too."""
    outcome = roofcast(*SMALL, *ALONE, *BESIDE, *PROMISE, *RATE, "--charts", str(tmp_path / "charts"))

    assert outcome.code == 0, outcome.err
    assert (tmp_path / "charts" / "plan.png").read_bytes().startswith(b"\x89PNG")
