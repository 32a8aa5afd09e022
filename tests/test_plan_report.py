"""What `plan` prints: the answer first, tables that fit, why nothing cheaper will do, and where prices are from."""

from __future__ import annotations

import csv
import io
import json
import re
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from roofcast.calculators.answer import Remarks
from roofcast.calculators.planning.rows import Doubled, PricedGpu
from roofcast.calculators.serving.result import Goal
from roofcast.reports.data import render_csv, render_json
from roofcast.reports.markdown import render_markdown
from roofcast.reports.page import render_page
from roofcast.reports.plan import PARTIAL, plan_document, plan_says
from roofcast.reports.plan_tables import MOST_ROWS, plan_table
from roofcast.reports.text import fitting, render_text
from tests.plan_cases import HEADROOM, LONG, RESULTS, deployment, found, many, usual, workload

if TYPE_CHECKING:
    from roofcast.calculators.planning.rows import PlanResult, WorkloadRow
    from roofcast.reports.document import Document

BASE = usual()


def page_of(result: PlanResult) -> Document:
    """Return the document, with an assumption of the command's own."""
    return plan_document(result, {"model": result.model}, Remarks(("an assumption",)))


def text_of(result: PlanResult) -> str:
    """Return the page as text."""
    return render_text(page_of(result))


def one(**more: object) -> PlanResult:
    """Return the usual result, whose one workload differs in what is said."""
    [asked] = BASE.workloads
    changed: WorkloadRow = replace(asked, **more)  # type: ignore[arg-type]
    return replace(BASE, workloads=[changed])


@pytest.mark.parametrize("name", RESULTS)
def test_every_answer_can_be_written_in_every_format(name: str) -> None:
    """And nothing of what the command assumed is lost."""
    document = page_of(RESULTS[name])

    assert "assumed: an assumption" in render_text(document)
    assert "assumed: an assumption" in render_markdown(document)
    assert json.loads(render_json(document))["schema"] == "roofcast.plan/1"
    assert render_csv(document)
    assert "<svg" in render_page(document)
    assert all(line.isprintable() for line in render_text(document).split("\n"))


def test_the_first_line_is_the_model_and_the_cheapest_deployment() -> None:
    """$0.79 / (3,600 s x 512 tokens/s) x 10^6 = $0.429 a million output tokens."""
    first, load, promise, *_ = text_of(BASE).splitlines()

    assert first == (
        "llama-3.1-8b: cheapest: l40s, vllm, weights as stored, KV cache bf16, chunked: $0.79 an hour, $0.429 a million output "
        "tokens"
    )
    assert load == "load: 1,000 requests, 4 requests/s, Poisson, 1024 in, 128 out"
    assert promise == "promise: TTFT at most 500 ms and TPOT at most 50.0 ms for 99 of 100 requests"


def test_what_was_looked_at_adds_up() -> None:
    """5,184 - 1,310 - 962 = 2,912 are not even weighed."""
    said = text_of(BASE)

    assert (
        "looked at: 5,184 deployments on 9 GPU types: 1,310 ruled out, 962 weighed by the closed form, 17 simulated; 2,912 cost "
        "more by their roofline alone\n"
    ) in said
    assert "roofline alone" not in text_of(one(considered=2272))
    assert "looked at" not in text_of(one(considered=0))


def test_why_nothing_cheaper_will_do_is_said_with_its_reason() -> None:
    """Where nothing is cheaper, that is the reason."""
    assert (
        "why not cheaper: l4, vllm, weights fp8, KV cache fp8, chunked at $0.44 an hour: TPOT at the 99th percentile is 71.2 ms, "
        "of 50 ms\n"
    ) in text_of(BASE)
    assert "why not cheaper: nothing that can run it costs less than $0.79 an hour\n" in text_of(one(next_cheaper=None))


def test_headroom_is_a_load_a_limit_and_shares_of_limits() -> None:
    """A load of clients is a number of them; where any load will do there is none."""
    clients = replace(HEADROOM, requests_per_second=None, concurrency=26, limit="memory", ttft_share=None)
    endless = replace(HEADROOM, load_factor=None, limit=None, ttft_share=None, tpot_share=None)

    assert (
        "headroom: up to 1.62 times the load, 6.48 requests/s; the first limit beyond is TPOT; TTFT is at 83% of its limit, TPOT is "
        "at 91% of its limit\n"
    ) in text_of(BASE)
    assert (
        "headroom: up to 1.62 times the load, 26 clients; the first limit beyond is memory; TPOT is at 91%"
    ) in text_of(one(headroom=clients))
    assert "headroom: any load that was tried keeps it\n" in text_of(one(headroom=endless))


def test_twice_the_load_has_its_own_cheapest_deployment() -> None:
    """It may be the same one, or none."""
    kept = Doubled(still_met=True, limit=None, plan=BASE.plans[2], cost_factor=1.0)
    none = Doubled(still_met=None, limit="rate", plan=None, cost_factor=None, reason="8 GPUs are allowed")
    moved = replace(kept, plan=replace(BASE.plans[2], deployment=deployment("l40s", command="another one")))

    assert (
        "at twice the load: it no longer keeps what is promised (first limit: TPOT); cheapest there: 3 x rtx-4090, 3 replicas, "
        "vllm, weights as stored, KV cache bf16, chunked: $1.05 an hour, $0.57 a million output tokens, 1.33 times the cost\n"
    ) in text_of(BASE)
    for same in (kept, moved):
        assert "at twice the load: it still keeps what is promised; the same deployment is the cheapest\n" in text_of(
            one(doubled=same)
        )
    assert (
        "at twice the load: too close to say whether it keeps what is promised (first limit: rate); "
        "nothing keeps it there: 8 GPUs are allowed\n"
    ) in text_of(one(doubled=none))


def test_where_nothing_meets_it_the_nearest_miss_and_what_would_help_are_said() -> None:
    """A line for each thing that would make it feasible; nothing is said to be best."""
    said = text_of(RESULTS["failing"])

    assert said.startswith("llama-3.1-8b: nothing meets it\n")
    assert "nearest miss: l40s, vllm, weights as stored, KV cache bf16, chunked at $0.79 an hour: TPOT at" in said
    assert "it would with --ttft 1.4s: 1 x rtx-4090, $0.35 an hour\n" in said
    assert "it would with --rate 2.1: 1 x l40s, $0.79 an hour\n" in said
    assert not re.search(r"\bbest\b|why not cheaper|try it", said)


def test_the_command_that_tries_the_best_one_is_there() -> None:
    """As a shell takes it."""
    assert "try it: roofcast simulate llama-3.1-8b --gpu l40s --gpus 1 --tp 1 --engine vllm --rate 4\n" in text_of(BASE)


def test_a_job_has_its_time_and_its_cost() -> None:
    """8 h at $0.79 are $6.32."""
    assert "job: done within 8 h, which cost $6.32\n" in text_of(one(job_seconds=28800.0, job_cost=6.32))


def test_a_search_that_was_broken_off_says_so() -> None:
    """In its first line and as a warning, which JSON has too."""
    document = page_of(RESULTS["partial"])

    assert document.remarks.warnings == (PARTIAL,)
    assert f"warning: {PARTIAL}\n" in render_text(document)
    assert document.lines[0].startswith("llama-3.1-8b: cheapest so far: ")
    assert not page_of(BASE).remarks.warnings


def test_rows_say_what_is_met_what_fails_and_what_is_close() -> None:
    """Numbers of a row stay in both parts of a table that is broken."""
    close = replace(BASE.plans[4], meets_slo=None, limit="ttft")
    said = text_of(replace(BASE, plans=[*BASE.plans[:4], close, *BASE.plans[5:]]))

    assert re.search(r"^1  rtx-4090 +no: TTFT +0\.35 +0\.19 +1,310 +29\.0$", said, re.MULTILINE)
    assert re.search(r"^2  l4 +no: TPOT +0\.44 +- +- +~71\.2$", said, re.MULTILINE)
    assert re.search(r"^3  l40s +yes +best +0\.79 +0\.429 +415 +45\.5$", said, re.MULTILINE)
    assert re.search(r"^4  3 x rtx-4090  dp3 +yes +\* +1\.05 ", said, re.MULTILINE)
    assert re.search(r"^5  2 x a10  tp2 +close: TTFT +1\.10 ", said, re.MULTILINE)
    assert re.search(r"^9  3 x h100-sxm  1\+2 +512 +vllm +as stored +bf16 +disaggregated +c$", said, re.MULTILINE)
    assert "close: some of the trials keep what is promised" in said
    assert "1+2: one replica for prompts and two for decode" in said
    assert "close: some" not in text_of(BASE)


def test_what_all_rows_share_stands_above_the_table() -> None:
    """And makes no column."""
    few = replace(BASE, plans=BASE.plans[2:5], workloads=[workload(best=0)])
    table = plan_table(few, few.workloads[0])

    assert table.title == "deployments, cheapest first: vllm, weights as stored, KV cache bf16, policy chunked"
    assert not {"engine", "weights", "KV", "policy"} & set(table.header)
    assert {"engine", "weights", "KV", "policy"} <= set(plan_table(BASE, BASE.workloads[0]).header)


@pytest.mark.parametrize("name", ["usual", "failing", "many", "gaps", "rate", "users", "context", "gpu"])
def test_tables_fit_on_a_terminal(name: str) -> None:
    """80 columns, with the longest names of GPUs that there are; a promise of gaps has a column more."""
    longest = deployment("rtx-pro-6000-blackwell-server", 16, tp=8, dp=2)
    result = RESULTS[name]
    plans = [replace(plan, deployment=longest) if place == 1 else plan for place, plan in enumerate(result.plans)]
    for table in page_of(replace(result, plans=plans)).tables:
        for part in fitting(table):
            assert part.width <= 100
    for table in page_of(result).tables:
        for part in fitting(table):
            assert part.width <= 80


def test_a_promise_of_gaps_has_their_column() -> None:
    """At its own percentile; no other promise has it."""
    assert "ITL\np99.9 ms" in page_of(RESULTS["gaps"]).tables[0].header
    assert not [name for name in page_of(BASE).tables[0].header if "ITL" in name]


def test_of_too_many_those_that_matter_are_shown() -> None:
    """The best, the next cheaper one and the front are among them; rows keep their numbers, and JSON has all."""
    result = many(100)
    [table] = page_of(result).tables
    shown = {int(cells[0]) for cells in table.rows}
    best, cheaper = result.workloads[0].best, result.workloads[0].next_cheaper

    assert best is not None
    assert cheaper is not None
    assert len(table.rows) == MOST_ROWS
    assert {best + 1, cheaper + 1} <= shown
    assert {place for place, plan in enumerate(result.plans, 1) if plan.pareto} <= shown
    assert table.title.endswith(f"; {100 - MOST_ROWS} more in --format json")
    assert len(json.loads(render_json(page_of(result)))["result"]["plans"]) == 100


def test_prices_have_their_sources_and_dates() -> None:
    """A line a source with the prices of GPUs that are shown; rows have its letter; one that is given has no date."""
    given = PricedGpu(gpu="l40s", price_per_gpu_hour=0.5, source="--gpu-price", as_of=None, note="my own")
    alone = replace(
        BASE, plans=[replace(BASE.plans[2], price_source="--gpu-price", price_as_of=None)], workloads=[workload(best=0)], gpus=[given]
    )  # fmt: skip
    said = text_of(BASE)

    assert (
        "source a: vast.ai (https://vast.ai/pricing), as of 2026-11-20: rtx-4090 $0.35, mi300x $1.99 an hour and GPU\n"
        in said
    )
    assert "source c: lambda (https://lambda/pricing), as of 2026-11-18: h100-sxm $2.49 an hour and GPU\n" in said
    assert "b200" not in said
    assert "source a: --gpu-price, my own: l40s $0.50 an hour and GPU\n" in text_of(alone)
    assert "price\nfrom" not in page_of(alone).tables[0].header


def test_gpus_without_a_price_are_few_names_and_a_number() -> None:
    """Of 31 eight are named."""
    assert (
        "no price on demand of the last 18 months is known of gpu-0, gpu-1, gpu-2, gpu-3, gpu-4, gpu-5, gpu-6, gpu-7 and 23 more, which were left out"
    ) in text_of(RESULTS["failing"])
    assert "no price on demand" not in text_of(BASE)


def test_several_workloads_have_a_table_of_all_and_a_section_each() -> None:
    """The first line counts those that can be met."""
    document = page_of(RESULTS["several"])
    said = render_text(document)

    assert said.startswith("llama-3.1-8b: 2 of 3 workloads can be met\n")
    assert [section.title for section in document.sections] == ["chat", "night batch", LONG]
    assert document.tables[0].rows[0] == ("chat", "l40s", "0.79", "0.429", "1.62x", "3 x rtx-4090  dp3")
    assert document.tables[0].rows[2][1] == "nothing meets it"
    assert [len(section.document.tables[0].rows) for section in document.sections] == [9, 3, 3]
    assert "\nNIGHT BATCH\ncheapest: l40s" in said
    assert "promise: all of it is done within 8 h\n" in said
    for written in (said, render_markdown(document)):
        assert len(re.findall("^why not cheaper: ", written, re.MULTILINE)) == 2
        assert len(re.findall("^nearest miss: ", written, re.MULTILINE)) == 1
    assert render_page(document).count("nothing that can run it costs less than") == 1


def test_a_promise_may_be_none_or_of_a_job_or_both() -> None:
    """A job must be done in time, and may promise times of its tokens too; of nothing promised the queue must not grow."""
    fast = Goal(None, 0.05, None, 90.0)

    assert "\npromise: none, but that requests are answered as fast as they come\n" in text_of(one(goal=Goal()))
    assert "\npromise: all of it is done within 90 s\n" in text_of(one(goal=Goal(), job_seconds=90.0))
    assert "\npromise: all of it is done within 2 h; TPOT at most 50.0 ms for 90 of 100 requests\n" in text_of(
        one(goal=fast, job_seconds=7200.0)
    )


@pytest.mark.parametrize(
    ("name", "status"),
    [
        ("usual", "meets"),
        ("failing", "misses"),
        ("partial", "meets"),
        ("several", None),
        ("rate", None),
        ("none", "misses"),
    ],
)
def test_a_page_of_one_workload_says_whether_it_is_met(name: str, status: str | None) -> None:
    """The badge before the headline; there is none of several workloads, and of what is looked for."""
    page = render_page(page_of(RESULTS[name]))
    found = re.search(r'<p class="status"><span[^>]*>.</span> ([a-z]+)</p>', page)

    assert (found and found[1]) == status


def test_a_table_of_a_job_has_no_time_to_the_first_token() -> None:
    """All requests wait from the first; gaps are a column where they are promised."""
    [usual_one] = BASE.workloads
    headers = [
        [name.split("\n")[0] for name in plan_table(BASE, asked).header]
        for asked in (usual_one, replace(usual_one, job_seconds=60.0), replace(usual_one, goal=Goal(None, None, 0.1)))
    ]

    assert [[name for name in header if name in {"TTFT", "TPOT", "ITL"}] for header in headers] == [
        ["TTFT", "TPOT"],
        ["TPOT"],
        ["TTFT", "TPOT", "ITL"],
    ]


def test_a_search_that_was_broken_off_before_it_found_anything_misses_nothing() -> None:
    """What was not looked at may meet it."""
    assert 'class="status"' not in render_page(page_of(replace(RESULTS["failing"], partial=True)))


def test_what_was_looked_for_is_a_table_with_the_best_first() -> None:
    """Its first line is the best; reasons of those that do nothing are one line where they are alike."""
    said, none = text_of(RESULTS["rate"]), text_of(RESULTS["found-none"])

    assert said.startswith("llama-3.1-8b: most requests a second: 21.4 on h100-sxm, vllm, ")
    assert re.search(r"^h100-sxm +21\.4 +best +TPOT +410 +49\.0 +2\.49$", said, re.MULTILINE)
    assert re.search(r"^mi300x +17\.2 +- +410 ", said, re.MULTILINE)
    assert re.search(r"^l4 +- +TTFT +- +- +0\.44$", said, re.MULTILINE)
    assert "l4: one request alone takes 1.40 s to its first token, of 500 ms\n" in said
    assert none.startswith("llama-3.1-8b: most requests a second: none will do\n")
    assert "l4 and a10: one request alone takes 1.40 s" in none
    assert "  best" not in none


@pytest.mark.parametrize(
    ("find", "value", "first", "cell"),
    [
        ("users", 57.0, "most users at once: 57 on l40s", "57"),
        ("context", 131072.0, "longest prompt: 131,072 tokens on l40s", "131,072"),
        ("gpu", 48e9, "smallest GPU: 48 GB on l40s", "48"),
    ],
)
def test_values_are_in_their_units(find: str, value: float, first: str, cell: str) -> None:
    """Users, tokens, and bytes of memory."""
    document = page_of(found(find, {"l40s": value}))

    assert document.lines[0].startswith(f"llama-3.1-8b: {first}, vllm")
    assert cell in document.tables[0].rows[0]


def test_csv_is_a_row_a_plan_or_what_was_found() -> None:
    """The deployment is flattened."""
    plans = list(csv.DictReader(io.StringIO(render_csv(page_of(BASE)))))
    rates = list(csv.DictReader(io.StringIO(render_csv(page_of(RESULTS["rate"])))))

    assert len(plans) == len(BASE.plans)
    assert (plans[3]["deployment.gpu"], plans[3]["deployment.dp"], plans[3]["cost_per_hour"]) == (
        "rtx-4090",
        "3",
        "1.0499999999999998",
    )
    assert [one["value"] for one in rates] == ["21.4", "17.2", "6.48", "2.9", ""]


def test_a_page_has_the_numbers_that_matter_most() -> None:
    """Cost, times and headroom of one workload; of several the cost of each; of what is looked for its best."""
    keys = {key.name: key.value for key in page_of(BASE).keys}

    assert keys == {
        "an hour": "$0.79",
        "a million output tokens": "$0.429",
        "TTFT": "415 ms",
        "TPOT": "45.5 ms",
        "headroom": "1.62 x",
    }
    assert [key.value for key in page_of(RESULTS["several"]).keys] == ["$0.79 an hour", "$0.79 an hour"]
    assert [(key.name, key.value, key.note) for key in page_of(RESULTS["rate"]).keys] == [
        ("most requests a second", "21.4", "h100-sxm")
    ]
    assert not page_of(RESULTS["failing"]).keys
    assert not page_of(RESULTS["found-none"]).keys


def test_the_chart_is_told_in_a_sentence() -> None:
    """For those who do not see it."""
    assert plan_says(BASE).endswith("$0.429 a million output tokens; 7 of 9 deployments shown meet it.")
    assert "night batch: cheapest: l40s" in plan_says(RESULTS["several"])
    assert plan_says(RESULTS["rate"]).startswith("llama-3.1-8b: most requests a second: 21.4 on h100-sxm")
