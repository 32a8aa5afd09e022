"""The charts of `plan`: deployments where they belong, the front, the promise, and labels that can be read."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_hex
from matplotlib.patches import Rectangle

from roofcast.reports.charts import Chart, chart_file
from roofcast.reports.plan_chart import (
    CLOSE,
    FAILS,
    MEETS,
    TIMES,
    Panel,
    PlanMark,
    front_of,
    panel_of,
    span,
    steps_of,
    time_of,
)
from roofcast.reports.plot_plan import plan_chart
from roofcast.reports.plot_style import LIGHT
from tests.drawn import assert_readable, assert_theme
from tests.plan_cases import LONG, PRICES, RESULTS, deployment, found, many, row, usual, workload

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.text import Text

    from roofcast.calculators.planning.rows import PlanResult

BASE = usual()


def points(axes: Axes, label: str) -> list[tuple[float, float]]:
    """Return all points of lines with a label."""
    found = [one.get_xydata() for one in axes.lines if one.get_label() == label]
    return [(float(x), float(y)) for xy in found for x, y in np.asarray(xy, dtype=float)]


def drawn(result: PlanResult) -> Figure:
    """Return the chart as it stands on a page."""
    figure = plan_chart(result)
    FigureCanvasAgg(figure).draw()  # type: ignore[no-untyped-call, unused-ignore]
    return figure


def texts(figure: Figure) -> list[Text]:
    """Return all texts that are to be apart, numbers beyond an axis' ends left out, since they are not drawn."""
    found = [*figure.texts, *(text for legend in figure.legends for text in legend.get_texts())]
    for axes in figure.axes:
        found += [*axes.texts, axes.xaxis.label, axes.yaxis.label]
        for axis in (axes.xaxis, axes.yaxis):
            low, high = sorted(axis.get_view_interval())
            found += [tick.label1 for tick in axis.get_major_ticks() if low <= tick.get_loc() <= high]
    return found


def labels(axes: Axes) -> list[str]:
    """Return what is written within axes."""
    return [text.get_text() for text in axes.texts if text.get_text()]


def lengths(axes: Axes) -> list[float]:
    """Return how long bars are."""
    return [bar.get_width() for bar in axes.patches if isinstance(bar, Rectangle)]


def said(figure: Figure) -> str:
    """Return what is written outside of axes."""
    return " ".join(text.get_text() for text in figure.texts)


CASES = {
    **RESULTS,
    "hundred": many(100),
    "long-found": found("rate", {f"{LONG}{number}": 10.0 / (number + 1) for number in range(26)}),
    "four": replace(
        BASE,
        plans=[replace(plan, workload=name) for name in "abcd" for plan in BASE.plans],
        workloads=[workload(name, best=9 * place + 2) for place, name in enumerate("abcd")],
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_words_are_on_the_page_and_apart(name: str) -> None:
    """Measured as they are drawn, numbers of axes and the legend included; nothing warns."""
    figure = drawn(CASES[name])

    assert_readable(figure, texts(figure))


@pytest.mark.parametrize("name", ["usual", "failing", "several", "many", "rate", "odd-name"])
def test_colours_are_the_themes(name: str) -> None:
    """So that a page can turn them dark; the same input gives the same bytes."""
    chart = Chart("plan", RESULTS[name])
    svg = chart_file(chart, ".svg")

    assert_theme(svg)
    assert svg == chart_file(chart, ".svg")
    assert chart_file(chart, ".png").startswith(b"\x89PNG")


def test_deployments_stand_at_their_cost_and_time() -> None:
    """Filled where they meet what is promised, crossed where they do not; the best within a ring."""
    [axes] = drawn(BASE).axes

    assert sorted(points(axes, FAILS)) == [pytest.approx(spot) for spot in ((0.35, 29.0), (0.44, 71.2))]
    assert len(points(axes, MEETS)) == 7
    assert points(axes, "best") == [pytest.approx((0.79, 45.5))]
    assert {to_hex(one.get_markeredgecolor()) for one in axes.lines if one.get_label() == FAILS} <= {
        to_hex(colour) for colour in LIGHT.contexts
    }
    assert {"best: l40s", "l4 fp8: TPOT", "rtx-4090: TTFT", "3 x rtx-4090 dp3"} <= set(labels(axes))


def test_what_is_too_close_to_say_is_hollow() -> None:
    """With a shape of its own in the legend."""
    figure = drawn(replace(BASE, plans=[*BASE.plans[:4], replace(BASE.plans[4], meets_slo=None)]))
    [mark] = [one for one in figure.axes[0].lines if one.get_label() == CLOSE]

    assert to_hex(mark.get_markerfacecolor()) == LIGHT.ground
    assert CLOSE in [text.get_text() for text in figure.legends[0].get_texts()]
    assert CLOSE not in [text.get_text() for text in drawn(BASE).legends[0].get_texts()]


def test_the_front_goes_down_in_steps() -> None:
    """From the cheapest that meets it; what fails, and what costs more and is slower, is not on it."""
    [axes] = drawn(BASE).axes
    front = points(axes, "front")

    assert front[:3] == [pytest.approx(spot) for spot in ((0.79, 45.5), (1.05, 45.5), (1.05, 27.0))]
    assert front[-1] == pytest.approx((axes.get_xlim()[1], 7.9))
    assert not [spot for spot in front if spot[1] == pytest.approx(48.0)]
    assert not points(drawn(RESULTS["failing"]).axes[0], "front")
    assert "Line:" not in said(drawn(RESULTS["failing"]))


def test_the_promise_is_a_level_line() -> None:
    """Of the time that is drawn alone."""
    [axes] = drawn(BASE).axes

    assert {y for _, y in points(axes, "promise")} == {50.0}
    assert "promise: 50.0 ms" in labels(axes)
    assert not points(drawn(RESULTS["no-promise"]).axes[0], "promise")


@pytest.mark.parametrize(
    ("name", "time"),
    [("usual", "TPOT"), ("one-token", "TTFT"), ("gaps", "ITL"), ("no-promise", "TPOT"), ("none", "TTFT")],
)
def test_the_time_is_the_one_that_is_promised(name: str, time: str) -> None:
    """TPOT first; TTFT of outputs of one token; without a promise TPOT."""
    result = RESULTS[name]

    assert time_of(result, result.workloads[0]) == time
    assert drawn(result).axes[0].get_ylabel().startswith(f"{time}, p" if result.plans else "")


def test_equal_deployments_share_a_label() -> None:
    """It says how many they are."""
    [axes] = drawn(RESULTS["equal"]).axes

    assert "best: l40s fp8 KV bf16 and 5 more" in labels(axes)


def test_names_tell_deployments_apart_by_their_cache_where_nothing_else_does() -> None:
    """And have no such word else."""
    cached = replace(BASE.plans[2], deployment=deployment("l40s", kv="fp8"), tpot_seconds=0.02)
    [axes] = drawn(replace(BASE, plans=[*BASE.plans, cached])).axes

    assert {"best: l40s KV bf16", "l40s KV fp8", "mi300x"} <= set(labels(axes))


def test_what_has_no_price_or_time_is_counted() -> None:
    """Where nothing can be drawn the chart says so."""
    figure = drawn(RESULTS["unpriced"])

    assert "9 without a price or a time are not drawn." in said(figure)
    assert labels(figure.axes[0]) == ["no deployment has a price and a time"]
    assert "1 without a price or a time is not drawn." in said(drawn(RESULTS["one-token"]))
    assert "not drawn" not in said(drawn(BASE))


def test_a_panel_a_workload_up_to_four() -> None:
    """Of more the first alone, and how many others there are."""
    names = "abcdef"
    more = replace(
        BASE,
        plans=[replace(plan, workload=name) for name in names for plan in BASE.plans],
        workloads=[workload(name, best=9 * place + 2) for place, name in enumerate(names)],
    )

    assert [len(points(axes, MEETS)) for axes in drawn(RESULTS["several"]).axes] == [7, 3, 0]
    assert len(drawn(CASES["four"]).axes) == 4
    assert len(drawn(more).axes) == 1
    assert "The first workload alone; 5 more have tables." in said(drawn(more))


def test_a_workload_of_which_nothing_can_be_drawn_has_no_panel() -> None:
    """It is counted; of nothing at all there is a low picture that says so."""
    first, *others = RESULTS["several"].workloads
    blank = [
        replace(row, ttft_seconds=None, tpot_seconds=None, itl_seconds=None) if row.workload != first.name else row
        for row in RESULTS["several"].plans
    ]
    one, none = drawn(replace(RESULTS["several"], plans=blank)), drawn(RESULTS["unpriced"])

    assert len(one.axes) == 1
    assert f"Of {len(others)} more workloads nothing could be drawn." in said(one)
    assert none.get_figheight() < 0.5 * drawn(BASE).get_figheight()


def test_of_many_gpus_the_last_share_a_colour() -> None:
    """Seven colours are told apart."""
    legend = [text.get_text() for text in drawn(RESULTS["many"]).legends[0].get_texts()]

    assert len(PRICES) > len(LIGHT.contexts)
    assert "others" in legend
    assert len(legend) == len(LIGHT.contexts) + 2  # with two shapes
    assert "others" not in [text.get_text() for text in drawn(BASE).legends[0].get_texts()]


def test_bars_are_as_long_as_what_was_found() -> None:
    """The best in colour; memory in GB; the limit that is hit beyond stands in brackets."""
    rates, memory = drawn(RESULTS["rate"]).axes[0], drawn(RESULTS["gpu"]).axes[0]

    assert lengths(rates) == [21.4, 17.2, 6.48, 2.9, 0.0]
    assert [to_hex(bar.get_facecolor()) for bar in rates.patches].count(LIGHT.contexts[0].lower()) == 1
    assert labels(rates) == ["21.4 (TPOT)", "17.2", "6.48 (TPOT)", "2.90 (TPOT)", "none (TTFT)"]
    assert lengths(memory) == [24.0, 24.0, 48.0, 80.0]
    assert [text.get_text() for text in rates.get_yticklabels()][:2] == ["h100-sxm", "mi300x"]


def test_nothing_found_is_said_instead_of_bars() -> None:
    """And of very many the first twenty are drawn."""
    none = drawn(RESULTS["found-none"])

    assert not none.axes[0].patches
    assert "none will do" in labels(none.axes[0])[0]
    assert len(drawn(CASES["long-found"]).axes[0].patches) == 20
    assert "6 more have rows in the table." in said(drawn(CASES["long-found"]))


MARKS = st.lists(
    st.tuples(st.floats(0.1, 100.0), st.floats(1e-3, 10.0), st.sampled_from([True, False, None])), max_size=25
)


def marked(values: list[tuple[float, float, bool | None]]) -> tuple[PlanMark, ...]:
    """Return deployments by cost, time and whether they meet what is promised."""
    base = row(deployment("l40s"), 0.1, 0.01)
    return tuple(
        PlanMark(number, replace(base, meets_slo=met), cost, seconds)
        for number, (cost, seconds, met) in enumerate(values)
    )


@given(MARKS)
def test_nothing_that_meets_it_is_cheaper_and_quicker_than_the_front(
    values: list[tuple[float, float, bool | None]],
) -> None:
    """Every deployment that meets it is on the front, or one of the front is no dearer and no slower."""
    marks = marked(values)
    front = front_of(marks)

    assert all(mark.row.meets_slo is True for mark in front)
    for mark in marks:
        if mark.row.meets_slo:
            assert any(one.cost <= mark.cost and one.seconds <= mark.seconds for one in front)
    for one in front:
        assert not [
            mark for mark in marks if mark.row.meets_slo and mark.cost < one.cost and mark.seconds < one.seconds
        ]


@given(MARKS)
def test_steps_of_the_front_go_right_and_down(values: list[tuple[float, float, bool | None]]) -> None:
    """Never to the left, never up."""
    marks = marked(values)
    ends = span([mark.cost for mark in marks]), span([mark.seconds for mark in marks])
    steps = steps_of(Panel(workload(), "TPOT", marks, 0, None, *ends))

    assert steps == sorted(steps, key=lambda spot: (spot[0], -spot[1]))
    assert [seconds for _, seconds in steps] == sorted((seconds for _, seconds in steps), reverse=True)


@given(st.lists(st.floats(1e-4, 1e4), max_size=20))
def test_an_axis_holds_all_values(values: list[float]) -> None:
    """With room at both ends, whatever they are."""
    low, high = span(values)

    assert 0 < low < high
    assert high / low >= 2
    assert all(low < value < high for value in values)


def test_times_that_are_drawn_are_fields_of_rows() -> None:
    """Also of what is promised."""
    panel = panel_of(BASE, BASE.workloads[0])

    assert all(hasattr(BASE.plans[0], key) and hasattr(BASE.workloads[0].goal, key) for key in TIMES.values())
    assert (panel.name, panel.promise, len(panel.marks), panel.left_out) == ("TPOT", 0.05, 9, 0)
