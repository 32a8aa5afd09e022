"""Charts and texts of a simulated service: all that they must show, held by their parts."""

from __future__ import annotations

import csv
import io
import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg

from roofcast.calculators.answer import Remarks
from roofcast.calculators.serving.live import spread
from roofcast.calculators.serving.result import (
    QUANTILES,
    Cache,
    Goal,
    Kept,
    Moment,
    Pool,
    Prefix,
    SimulateResult,
    Spread,
)
from roofcast.reports.charts import Chart, chart_file
from roofcast.reports.data import as_data, render_csv
from roofcast.reports.page import render_page
from roofcast.reports.plot_simulate import PANELS, series_chart, spread_chart
from roofcast.reports.simulate import promise_words, series_csv, series_says, simulate_document, spread_says
from roofcast.reports.text import render_text
from tests.drawn import assert_readable, assert_theme
from tests.rooflines import FOUR, ONE

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LONG = "organisation/" + "a-very-long-name-" * 12
ODD = "$x_1$ <b>&amp;\u6a21\u578b\x1b[31m\n%s"
REASON = "weights take 20.0 GB of 10.0 GB"


def even(least: float, most: float) -> Spread:
    """Return 1,001 times that are evenly apart."""
    found = spread([least + (most - least) * step / 1000 for step in range(1001)])
    assert found is not None
    return found


def usual() -> SimulateResult:
    """Return a hundred requests in twelve seconds: TTFT 0.1 to 0.3 s, TPOT 10 to 12 ms; three stretches of 4 s."""
    return SimulateResult(
        model="m", gpu="g", layout=ONE, engine="vllm", policy="chunked", max_num_seqs=256, max_num_batched_tokens=8192,
        load="100 requests, Poisson at 10/s", fits=True, reason=None, requests=100, completed=100, rejected=0, cut=0,
        makespan_seconds=12.0, ttft_seconds=even(0.1, 0.3), tpot_seconds=even(0.010, 0.012), itl_seconds=even(0.005, 0.05),
        e2e_seconds=even(1.0, 2.0), queue_seconds=even(0.001, 0.2), requests_per_second=100 / 12,
        prompt_tokens_per_second=8533.0, output_tokens_per_second=1067.0, goodput_requests_per_second=100 / 12, kept=None,
        kv_utilisation=0.25, cache=Cache("paged", 400000, 16, 0.24, 0.25, 0.5, 0.96), prefix_hit_rate=None, prefix=None,
        preemptions=0, recomputed_tokens=0, swapped_bytes=0.0,
        pools=[Pool("serving", 1, 1, 0.75, 30.5, 1200, 0)], peak_running=40, peak_waiting=7, stable=True, step_spread=0.05,
        series=[
            Moment(0.0, 30.0, 0.5, 0.2, 9000.0, 1000.0, 4.0),
            Moment(4.0, 40.0, 6.0, 0.5, 8000.0, 1200.0, 4.0),
            Moment(8.0, 20.0, 0.0, 0.1, 0.0, 900.0, 4.0),
        ],
        provenance={},
    )  # fmt: skip


NONE: dict[str, Any] = dict.fromkeys(
    ("makespan_seconds", "ttft_seconds", "tpot_seconds", "itl_seconds", "e2e_seconds", "queue_seconds", "requests_per_second",
     "prompt_tokens_per_second", "output_tokens_per_second", "goodput_requests_per_second", "kv_utilisation", "cache"),
)  # fmt: skip
BASE = usual()
LONG_SERIES = [
    replace(BASE.series[0], length_seconds=3500.0),
    replace(BASE.series[1], seconds=3500.0, length_seconds=3500.0),
]
RESULTS = {
    "usual": BASE,
    "promised": replace(BASE, kept=Kept(Goal(0.28, 0.0115, None, 90.0), met=False, share=0.68)),
    "all-promised": replace(BASE, kept=Kept(Goal(5.0, 0.02, 0.1, 99.0), met=True, share=1.0)),
    "far": replace(BASE, kept=Kept(Goal(60.0, 1e-4, None, 50.0), met=False, share=0.0)),
    "growing": replace(BASE, stable=False, makespan_seconds=7000.0, series=LONG_SERIES, ttft_seconds=even(0.1, 4000.0)),
    "one": replace(BASE, ttft_seconds=even(0.2, 0.2), tpot_seconds=None, series=BASE.series[:1], makespan_seconds=4.0),
    "still": replace(BASE, series=[Moment(0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0)], makespan_seconds=0.0),
    "does-not-fit": replace(BASE, fits=False, reason=REASON, completed=0, series=[], pools=[], **NONE),
    "nothing-answered": replace(BASE, completed=0, rejected=100, series=[], **NONE),
    "long-name": replace(BASE, model=LONG, load=LONG),
    "odd-name": replace(BASE, model=ODD, load=ODD),
}
CHARTS = {"series": series_chart, "spread": spread_chart}


def line(axes: Axes, label: str) -> list[tuple[float, float]]:
    """Return the points of the one line of a panel that has a label."""
    [found] = [one for one in axes.lines if one.get_label() == label]
    return [(float(x), float(y)) for x, y in np.asarray(found.get_xydata(), dtype=float)]


def words(figure: Figure) -> str:
    """Return everything that is written on a chart but for numbers of axes, on one line."""
    texts = [*figure.texts, *(text for axes in figure.axes for text in (*axes.texts, axes.xaxis.label))]
    return " ".join(" ".join(text.get_text() for text in texts).split())


def text_of(result: SimulateResult, **inputs: Any) -> str:
    """Return the page of a result as text."""
    return render_text(simulate_document(result, {"kv": "bf16", **inputs}, Remarks()))


@pytest.mark.parametrize("kind", CHARTS)
def test_both_are_image_files(kind: str) -> None:
    """PNG and SVG, the SVG the same each time."""
    chart = Chart(kind, RESULTS["promised"])

    assert chart_file(chart, ".png").startswith(b"\x89PNG\r\n\x1a\n")
    assert chart_file(chart, ".svg") == chart_file(chart, ".svg")


@pytest.mark.parametrize("kind", CHARTS)
@pytest.mark.parametrize("name", RESULTS)
def test_words_stay_on_the_page_and_off_one_another(name: str, kind: str) -> None:
    """Measured as they are drawn: titles, names of panels and percentiles, promises."""
    figure = CHARTS[kind](RESULTS[name])
    FigureCanvasAgg(figure).draw()  # type: ignore[no-untyped-call, unused-ignore]
    texts = [*figure.texts, *(text for axes in figure.axes for text in (*axes.texts, axes.xaxis.label))]

    assert_readable(figure, texts)


@pytest.mark.parametrize("kind", CHARTS)
@pytest.mark.parametrize("name", RESULTS)
def test_only_colours_of_the_theme(name: str, kind: str) -> None:
    """A page turns them into variables, so that it can be dark; no other colour would follow."""
    assert_theme(chart_file(Chart(kind, RESULTS[name]), ".svg"))


def test_every_quantity_is_a_line_of_steps_over_one_time() -> None:
    """Each stretch holds its mean until the next begins, the last until the end; memory is in percent."""
    figure = series_chart(BASE)

    assert len(figure.axes) == len(PANELS)
    means: list[list[float]] = [[30, 40, 20], [0.5, 6, 0], [9000, 8000, 0], [1000, 1200, 900], [20, 50, 10]]
    for axes, panel, values in zip(figure.axes, PANELS, means, strict=True):
        assert [one.get_drawstyle() for one in axes.lines] == ["steps-post"]
        assert [x for x, _ in line(axes, panel.name)] == [0, 4, 8, 12]
        assert [y for _, y in line(axes, panel.name)] == pytest.approx([*values, values[-1]])
        assert axes.get_ylim()[0] == 0
        assert axes.get_ylim()[1] > max(values)
        assert axes.get_xlim() == (0, 12)
    said = words(figure)
    for name in ("requests that run, up to 40", "requests that wait, up to 6.00", "output tokens/s, up to 1,200"):
        assert name in said, name
    assert "KV memory taken, up to 50.0%" in said
    assert "time [s]" in said
    assert "Means of stretches of 4.00 s" in said
    assert "m on g, chunked: 100 requests, Poisson at 10/s" in said


def test_long_times_are_in_minutes_and_a_queue_that_grows_is_told() -> None:
    """7,000 s are 116.7 min."""
    figure = series_chart(RESULTS["growing"])

    assert "time [min]" in words(figure)
    assert "The queue keeps on growing" in words(figure)
    assert figure.axes[0].get_xlim() == pytest.approx((0, 7000 / 60))
    assert "growing" not in words(series_chart(BASE))


def test_shares_of_requests_stand_over_their_times() -> None:
    """Of evenly spread times a straight line: half of TTFT's 0.1 to 0.3 s below 0.2 s, 90 of 100 below 0.28 s."""
    figure = spread_chart(BASE)
    first, second = figure.axes

    shares = [share * 100 for share in QUANTILES]
    assert [y for _, y in line(first, "TTFT")] == pytest.approx(shares)
    assert [x for x, _ in line(first, "TTFT")] == pytest.approx([100 + 2 * share for share in shares], abs=0.3)
    assert line(first, "p50") == [pytest.approx((200.0, 50.0), abs=0.3)]
    assert line(second, "p90") == [pytest.approx((11.8, 90.0), abs=0.01)]
    assert "time to first token [ms]" in words(figure)
    assert "p50 200 ms" in words(figure)
    assert "p99 12 ms" in words(figure)


def test_a_promise_is_an_upright_line_and_its_percentile_a_level_one() -> None:
    """At 280 and 11.5 ms, and at 90 of 100; the caption tells what became of it; ITL has a panel where it is promised."""
    figure = spread_chart(RESULTS["promised"])

    for axes, limit in zip(figure.axes, (280.0, 11.5), strict=True):
        assert [x for x, _ in line(axes, "promise")] == pytest.approx([limit, limit])
        assert [y for _, y in line(axes, "percentile")] == pytest.approx([90.0, 90.0])
    assert "promise 280 ms" in words(figure)
    assert words(figure).count("not kept; 68.0% of requests keep TTFT and TPOT.") == 1
    assert len(spread_chart(RESULTS["all-promised"]).axes) == 3
    assert not [one for one in spread_chart(BASE).axes[0].lines if one.get_label() == "promise"]


@pytest.mark.parametrize("name", ["far", "promised", "growing"])
def test_promises_and_times_are_inside_the_axes(name: str) -> None:
    """However far apart they are; seconds from 20 s on."""
    for axes in spread_chart(RESULTS[name]).axes:
        left, right = axes.get_xlim()
        for one in axes.lines:
            if one.get_label() not in {"percentile", "_nolegend_"} and not str(one.get_label()).startswith("_"):
                assert all(left <= x <= right for x, _ in line(axes, str(one.get_label())))
    assert ("[s]" in words(spread_chart(RESULTS[name]))) == (name != "promised")


@pytest.mark.parametrize("kind", CHARTS)
def test_what_does_not_fit_is_words(kind: str) -> None:
    """No time for what does not fit: the reason stands there instead."""
    assert f"does not fit: {REASON}" in words(CHARTS[kind](RESULTS["does-not-fit"]))
    assert "no request was answered" in words(CHARTS[kind](RESULTS["nothing-answered"]))


def test_names_are_shown_as_they_are() -> None:
    """No mathematics and no markup."""
    assert "$x_1$ <b>&amp;???[31m?%s on g" in words(series_chart(RESULTS["odd-name"]))


def test_sentences_tell_the_main_numbers() -> None:
    """For those who do not see the picture."""
    assert series_says(BASE) == (
        "m on g: 100 requests are answered in 12.0 s, with at most 40 at once in a step of a replica; most wait at 4.00 s, "
        "6.00 in the mean of that stretch."
    )
    assert spread_says(RESULTS["promised"]) == (
        "m on g: TTFT 200 ms at the median, 280 at 90 and 298 at 99 of 100; TPOT 11.0 ms at the median, 11.8 at 90 and 12.0 "
        "at 99 of 100; 68.0% of requests keep TTFT and TPOT."
    )
    for says in (series_says, spread_says):
        assert says(RESULTS["does-not-fit"]) == f"m on g: does not fit: {REASON}."


def test_the_page_tells_load_policy_times_and_rates() -> None:
    """Its first line is the verdict; each time has its mean and percentiles, in milliseconds."""
    said = text_of(BASE)

    assert said.startswith("m on g: 100 requests in 12.0 s\n")
    assert "load: 100 requests, Poisson at 10/s" in said
    assert re.search(r"^policy chunked: .*; at most 256 requests and 8,192 tokens a step$", said, re.MULTILINE)
    rows = {
        line.split("  ")[0]: line.split()[-6:]
        for line in said.splitlines()
        if re.match(r"(TTFT|TPOT|ITL|end|queue)\b", line)
    }
    assert rows["TTFT"] == ["200", "200", "280", "290", "298", "300"]
    assert rows["end to end"][0] == "1,500"
    assert re.search(r"^prompt tokens +8,533$", said, re.MULTILINE)
    assert "goodput" not in said
    assert (
        "400,000 tokens in blocks of 16; in the mean 25.0% taken, at most 50.0%; 24.0% hold tokens' states (96.0% "
        in said
    )
    assert "80 of 100 measured ones are within -6% to +7% of it" in said


def test_the_page_tells_what_became_of_the_promise() -> None:
    """In the first line, and with the share of requests that keep it."""
    kept, missed = (text_of(RESULTS[name]) for name in ("all-promised", "promised"))

    assert kept.startswith("m on g: keeps its promise\n")
    assert missed.startswith("m on g: does not keep its promise\n")
    assert (
        "promise: TTFT at most 280 ms and TPOT at most 11.5 ms for 90 of 100 requests: not kept; 68.0% of requests keep "
        "TTFT and TPOT\n"
    ) in missed
    assert re.search(r"^goodput +8\.33$", missed, re.MULTILINE)
    assert promise_words(Goal(None, None, 0.1, 99.9)) == "ITL at most 100 ms for 99.9 of 100 gaps"


def test_the_page_tells_refusals_preemptions_and_prefixes_where_there_are_any() -> None:
    """And nothing of them where there are none."""
    result = replace(
        BASE, rejected=3, cut=2, completed=97, preemptions=5, recomputed_tokens=4096, swapped_bytes=2e9,
        prefix=Prefix("radix", 37400, 0.374, 0.366, 512), prefix_hit_rate=0.374,
    )  # fmt: skip
    said, plain = text_of(result), text_of(BASE)

    for words_of in (
        "100 requests: 97 answered in 12.0 s, 3 refused, which are longer than the 0 tokens or the memory of the server, 2 of them up to",
        "memory ran out 5 times, and a request was set back: 4,096 tokens were computed again, 2 GB went to",
        "prefix cache in a radix tree: 37,400 prompt tokens found, 37.4% of all (36.6% of blocks); 512 tokens made room",
    ):
        assert words_of in said, words_of
    for word in ("refused", "ran out", "prefix cache"):
        assert word not in plain, word


def test_a_queue_that_grows_is_a_warning_and_bounds_are_told() -> None:
    """The warning is in JSON too; without constants the page says that its steps are bounds."""
    document = simulate_document(RESULTS["growing"], {}, Remarks())

    assert len(document.remarks.warnings) == 1
    assert "requests came faster than they were answered" in document.remarks.warnings[0]
    assert not simulate_document(BASE, {}, Remarks()).remarks.warnings
    assert "steps take their bounds" in text_of(replace(BASE, step_spread=None))


def test_what_does_not_fit_has_its_reason_and_no_table() -> None:
    """An answer all the same."""
    said = text_of(RESULTS["does-not-fit"])

    assert said.startswith("m on g: does not fit\n")
    assert f"does not fit: {REASON}\n" in said
    assert "times of" not in said
    assert "busy" not in said


def test_several_devices_have_rates_each() -> None:
    """Two pools of four: 1,067 tokens a second are 133 of each of eight."""
    pools = [Pool("prefill", 1, 4, 0.5, 1.0, 100, 0), Pool("decode", 1, 4, 0.9, 30.0, 900, 0)]
    said = text_of(replace(BASE, layout=FOUR, pools=pools))

    assert said.startswith("m on 8 x g: ")
    assert re.search(r"^output tokens +1,067 +133$", said, re.MULTILINE)
    assert re.search(r"^prefill +1 +4 +50\.0% +1\.00 +100 +0$", said, re.MULTILINE)


def test_a_page_has_the_verdict_the_numbers_and_both_charts() -> None:
    """What becomes of the promise is its status; without one, whether it fits."""
    pages = {name: render_page(simulate_document(RESULTS[name], {}, Remarks())) for name in RESULTS}

    for name, status in (
        ("usual", "fits"),
        ("all-promised", "meets"),
        ("promised", "misses"),
        ("does-not-fit", "does not fit"),
    ):
        assert f"</span> {status}</p>" in pages[name], name
        assert pages[name].count("<svg") == 2
    assert "half of the requests; 99 of 100 within 298 ms" in pages["usual"]


def test_csv_is_one_row_without_the_series() -> None:
    """Every scalar a column, pools by their names; the series is a table of its own."""
    [row] = csv.DictReader(io.StringIO(render_csv(simulate_document(BASE, {}, Remarks()))))

    assert float(row["ttft_seconds.p50"]) == pytest.approx(0.2)
    assert row["pools.serving.busy"] == "0.75"
    assert row["cache.tokens"] == "400000"
    assert not [key for key in row if "quantiles" in key or key.startswith("series")]
    moments = list(csv.DictReader(io.StringIO(series_csv(BASE))))
    assert [moment["seconds"] for moment in moments] == ["0.0", "4.0", "8.0"]
    assert list(moments[0]) == list(as_data(BASE.series[0]))
