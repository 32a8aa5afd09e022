"""The chart of measured points: what it holds, not its pixels."""

from __future__ import annotations

from typing import Any

import pytest

from roofcast.calculators.validate import PointRow, SummaryRow, ValidateResult, group_of
from roofcast.reports.plot_points import (
    BARS,
    FEW,
    GREATEST,
    LEAST,
    LONGEST,
    MOST,
    QUANTITIES,
    points_chart,
    ratio_of,
    short,
    within,
)
from roofcast.reports.plot_style import saved


def row(error: float | None = 0.1, **changed: Any) -> PointRow:
    """A point with that error of 1 s."""
    given: dict[str, Any] = dict.fromkeys(PointRow.__slots__) | {
        "source": "here", "quantity": "decode_seconds", "gpu": "h200-sxm", "engine": "vllm", "measured": 1.0, "bound": 0.5, "error": error,
        "expected": None if error is None else 1 + error, "low": 0.8, "high": 1.3, "inside": True,
    }  # fmt: skip
    return PointRow(**given | changed)


def held(*rows: PointRow, error_of: str = "expected") -> ValidateResult:
    """Their result."""
    counted = [one for one in rows if one.reason is None]
    summary: list[SummaryRow] = [group_of("all", "all", counted)] if counted else []
    return ValidateResult(list(rows), summary, len(counted), error_of, {})


def drawn(result: ValidateResult) -> tuple[list[str], list[str], int, list[str]]:
    """Names of strips, entries of the legend, lines and marks in the axes, and words above."""
    figure = points_chart(result)
    [axes], [legend] = figure.axes, figure.legends
    names = [label.get_text() for label in axes.get_yticklabels()]
    return (
        names,
        [text.get_text() for text in legend.texts],
        len(axes.lines),
        [text.get_text() for text in figure.texts],
    )


def test_every_quantity_has_its_own_mark() -> None:
    """Shape and colour; a test of predictions holds the names of quantities themselves."""
    from roofcast.calculators.measurement import QUANTITIES as KNOWN

    assert QUANTITIES.keys() == KNOWN.keys()
    assert (
        len({shape for _, shape, _ in QUANTITIES.values()}) == len({colour for *_, colour in QUANTITIES.values()}) == 7
    )


def test_ratios_are_of_times() -> None:
    """Twice the time is half the rate; both stand at 2."""
    assert ratio_of(row(1.0)) == 2
    assert ratio_of(row(-0.5, quantity="output_tokens_per_second")) == 2
    assert ratio_of(row(measured=4.0), 6.0) == 1.5
    assert [within(x) for x in (0.01, 1.5, 100)] == [LEAST, 1.5, GREATEST]


def test_points_of_a_machine_and_engine_share_a_strip() -> None:
    """The most first; suspects are left out; a mark and an interval each, a median of three."""
    rows = [row(), row(0.2), row(0.3), row(0.1, engine="sglang"), row(9.0, reason="suspect: a guess")]
    names, legend, lines, words = drawn(held(*rows))

    assert names == ["h200-sxm vllm  3", "h200-sxm sglang  1"]
    assert legend == ["decode step", "median", "within 10 %", "within 25 %"]
    assert lines == 1 + 2 * 4 + 1  # the line at 1
    assert words == [
        "Expected against measured",
        "4 points, median error 15.0%, 90 % below 30%, 100% inside their 80 % interval",
    ]


def test_one_point() -> None:
    """No median of one, and no plural."""
    names, legend, lines, words = drawn(held(row()))

    assert (names, lines) == (["h200-sxm vllm  1"], 3)
    assert "median" not in legend
    assert words[1].startswith("1 point, ")


def test_no_point() -> None:
    """An empty frame that says so, without a warning of matplotlib."""
    names, legend, lines, words = drawn(held(row(None, reason="not stated: batch")))

    assert (names, legend, lines) == ([], ["within 10 %", "within 25 %"], 1)
    assert words[1] == "no point can be predicted"


def test_bounds() -> None:
    """What is held against the points is named, and has no interval."""
    figure = points_chart(held(row(-0.5, low=None, high=None, inside=None), error_of="bound"))

    assert [text.get_text() for text in figure.texts] == [
        "Bound against measured",
        "1 point, median error 50.0%, 90 % below 50%",
    ]
    assert figure.axes[0].get_xlabel().startswith("bound / measured")


def test_intervals_are_drawn_where_points_are_few() -> None:
    """Of many they would hide one another."""
    assert drawn(held(*[row()] * BARS))[2] == 1 + 2 * BARS + 1
    assert drawn(held(*[row()] * (BARS + 1)))[2] == 1 + BARS + 1 + 1


def test_many_machines_are_put_together() -> None:
    """A chart has so many strips, and no more than fit a page; small groups make one."""
    rows = [row(gpu=f"card-{n}") for n in range(MOST + 5) for _ in range(FEW)]
    alone = [row(gpu=f"alone-{n}") for n in range(3)]
    names = drawn(held(*rows, *alone))[0]
    figure = points_chart(held(*rows, *alone))

    assert len(names) == MOST + 1
    assert names[-1] == f"8 others  {5 * FEW + 3}"
    assert figure.get_figheight() < 10


def test_long_names_are_cut_in_the_middle() -> None:
    """How many points there are stays readable."""
    assert short("h200-sxm vllm  3") == "h200-sxm vllm  3"
    assert len(short("a" * 60 + "  1,234")) == LONGEST
    assert short("a" * 60 + "  1,234").endswith("...1,234"[:3] + " 1,234")


def test_names_from_files_are_plain() -> None:
    """No escape reaches the picture, and a dollar is no formula."""
    names, *_ = drawn(held(row(gpu="evil\x1b[31m", engine="$x")))

    assert "\x1b" not in names[0]
    assert saved(points_chart(held(row(gpu="$\\frac{$"))), "svg")


@pytest.mark.parametrize(("ending", "start"), [("png", b"\x89PNG"), ("svg", b"<?xml")])
def test_files(ending: str, start: bytes) -> None:
    """Of their kind, and the same every time."""
    made = saved(points_chart(held(row(), row(0.3))), ending)

    assert made.startswith(start)
    assert made == saved(points_chart(held(row(), row(0.3))), ending)
