"""The roofline as a picture: all that it must show, and labels that do not lie on one another."""

from __future__ import annotations

import itertools
import math
import re
import struct
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.text import Text

from roofcast.calculators.roofline_table import Roof
from roofcast.reports.chart import FRAME
from roofcast.reports.charts import CHARTS, Chart, chart_file
from roofcast.reports.labels import Box, Label, Surroundings, placed
from roofcast.reports.plot import roofline_chart
from roofcast.reports.plot_style import DARK, LIGHT
from tests.rooflines import BF16, FOUR, FP8, roofline, row, usual

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from roofcast.calculators.roofline_table import RooflineResult

TURING = Roof("bf16", "fp16", 54e12, 54.0)
NEAR = Roof("int8", "int8", 190e12, 190.0)  # hardly below FP8
LONG = "organisation/" + "a-very-long-name-" * 12
RESULTS = {
    "usual": roofline(*usual()),
    "two-roofs": roofline(*usual(), roofs=(FP8, BF16), layout=FOUR),
    "near-roofs": roofline(*usual(), roofs=(FP8, NEAR, BF16, TURING)),
    "one-row": roofline(row()),
    "without-room": roofline(row(fits=False)),
    "mixed": roofline(row("mixed", 8), row("decode", 8), row("prefill", 1, intensity=20_000.0)),
    "no-intensity": roofline(row(intensity=0.5), row("prefill", 64, 131072, intensity=500_000.0)),
    "same-place": roofline(*(row(batch=batch, context=context) for batch in (1, 2, 4, 8) for context in (1, 2, 3))),
    "many": roofline(
        *(
            row("decode", batch, context, intensity=batch**0.9)
            for batch in (1, 2, 4, 8, 16, 32, 64)
            for context in range(4096, 50000, 4096)
        )
    ),
    "long-name": roofline(row(), model=LONG),
    "odd-name": roofline(row(), model="$x_1$ <b>&amp;\u6a21\u578b\x1b[31m\n%s"),
}


def texts(figure: Figure) -> list[str]:
    """Return everything that is written on a chart, but for ticks."""
    [axes] = figure.axes
    legend = [text.get_text() for box in figure.legends for text in box.get_texts()]
    return [text.get_text() for text in (*axes.texts, *figure.texts)] + legend


def size_of(png: bytes) -> tuple[int, int]:
    """Return width and height of a PNG."""
    width, height = struct.unpack(">II", png[16:24])
    return width, height


@pytest.mark.parametrize("name", RESULTS)
def test_charts_are_pngs_of_one_size(name: str) -> None:
    """Whatever the rows are, 9 by 6 inches at 150 dots each, and nothing warns."""
    png = chart_file(Chart("roofline", RESULTS[name]), ".png")

    assert png.startswith(b"\x89PNG\r\n\x1a\n")
    assert size_of(png) == (1350, 900)


@pytest.mark.parametrize("name", RESULTS)
def test_svg_is_the_same_each_time(name: str) -> None:
    """Two charts of one result are the same bytes, without a date."""
    first = chart_file(Chart("roofline", RESULTS[name]), ".svg")

    assert first == chart_file(Chart("roofline", RESULTS[name]), ".svg")
    assert b"<dc:date>" not in first


def test_svg_holds_its_labels_as_text() -> None:
    """Names, roofs and ridges can be found and read in the file."""
    svg = chart_file(Chart("roofline", RESULTS["two-roofs"]), ".svg").decode()

    assert svg.startswith("<?xml")
    for text in ("m on 4 x g", "fp8 200 TFLOP/s", "bf16 100 TFLOP/s", "ridge 200 FLOP/B", "4k b1", "context 4k"):
        assert text in svg, text


def test_every_roof_and_ridge_is_named() -> None:
    """Roofs near one another too; what is computed in another format says so."""
    said = texts(roofline_chart(RESULTS["near-roofs"]))

    for name in ("fp8 200 TFLOP/s", "int8 190 TFLOP/s", "bf16 100 TFLOP/s", "bf16 as fp16 54 TFLOP/s"):
        assert name in said
    for ridge in ("200", "190", "100", "54.0"):
        assert f"ridge {ridge} FLOP/B" in said


def test_roofs_of_the_same_height_share_a_name() -> None:
    """Two formats with one peak are one line."""
    chart = roofline_chart(roofline(row(), roofs=(BF16, Roof("fp16", "fp16", 100e12, 100.0))))

    assert "bf16, fp16 100 TFLOP/s" in texts(chart)


def points(result: RooflineResult) -> list[tuple[str, float, float, bool]]:
    """Return marker, place and whether it is filled, of every point of a chart."""
    [axes] = roofline_chart(result).axes
    lines = [line for line in axes.lines if line.get_marker() in {"s", "o", "D"}]
    return [
        (
            str(line.get_marker()),
            float(line.get_xdata()[0]),  # type: ignore[index, arg-type, call-overload, unused-ignore]
            float(line.get_ydata()[0]),  # type: ignore[index, arg-type, call-overload, unused-ignore]
            line.get_markerfacecolor() != LIGHT.ground,
        )
        for line in lines
    ]


def test_points_stand_at_intensity_and_rate() -> None:
    """A shape for each phase."""
    got = points(roofline(row("decode", 1, intensity=10.0), row("prefill", 1, intensity=1000.0), row("mixed", 8)))

    assert sorted(got) == [("D", 10.0, 10e12, True), ("o", 10.0, 10e12, True), ("s", 1000.0, 100e12, True)]


def test_what_does_not_fit_is_hollow_and_on_the_roof() -> None:
    """At its intensity, under the lowest roof; the legend and the caption say what hollow means."""
    result = roofline(
        row(intensity=20.0, fits=False),
        row("prefill", 64, intensity=5000.0, fits=False),
        row(batch=1),
        roofs=(FP8, BF16),
    )

    assert sorted(points(result)) == [("o", 10.0, 10e12, True), ("o", 20.0, 20e12, False), ("s", 5000.0, 100e12, False)]
    assert "does not fit" in texts(roofline_chart(result))
    assert "does not fit" not in texts(roofline_chart(RESULTS["one-row"]))


def test_points_of_a_line_are_joined_in_the_order_of_batches() -> None:
    """However the rows are given."""
    [axes] = roofline_chart(roofline(*(row(batch=batch, intensity=float(batch)) for batch in (16, 1, 64)))).axes
    joined = [list(line.get_xdata()) for line in axes.lines if len(list(line.get_xdata())) == 3]  # type: ignore[arg-type, unused-ignore]

    assert joined == [[1.0, 16.0, 64.0]]


@pytest.mark.parametrize("name", RESULTS)
def test_nothing_is_written_on_anything(name: str) -> None:
    """Labels, roof names and ridge names do not meet on the page, measured as they are drawn, and stay inside it."""
    figure = roofline_chart(RESULTS[name])
    FigureCanvasAgg(figure).draw()  # type: ignore[no-untyped-call, unused-ignore]
    [axes] = figure.axes
    boxes = [
        (text.get_text(), Text.get_window_extent(text)) for text in axes.texts if text.get_rotation() in {0.0, 90.0}
    ]
    page = figure.bbox

    for text, box in boxes:
        assert page.x0 <= box.x0, text
        assert box.x1 <= page.x1, text
    if name not in {"many", "same-place"}:
        for (text, box), (other, beside) in itertools.combinations(boxes, 2):
            assert not box.padded(-3).overlaps(beside.padded(-3)), (text, other)


@pytest.mark.parametrize("name", RESULTS)
def test_words_stay_on_the_page(name: str) -> None:
    """Titles, captions and legends are not cut off, long names included."""
    figure = roofline_chart(RESULTS[name])
    FigureCanvasAgg(figure).draw()  # type: ignore[no-untyped-call, unused-ignore]

    for box in (
        *(text.get_window_extent() for text in figure.texts),
        *(legend.get_window_extent() for legend in figure.legends),
    ):
        assert box.x0 >= 0
        assert box.x1 <= figure.bbox.x1
        assert box.y0 >= 0
        assert box.y1 <= figure.bbox.y1


def test_names_are_shown_as_they_are() -> None:
    """No mathematics, no markup; what the font has no letter for is a question mark."""
    said = texts(roofline_chart(RESULTS["odd-name"]))

    assert "$x_1$ <b>&amp;???[31m?%s on g" in said


def test_dark_is_another_ground() -> None:
    """For pages with a dark background."""
    assert (
        roofline_chart(RESULTS["usual"], dark=True).get_facecolor() != roofline_chart(RESULTS["usual"]).get_facecolor()
    )
    assert len(set(DARK.contexts)) == len(set(LIGHT.contexts)) == 7
    assert {DARK.ink, DARK.faint}.isdisjoint(DARK.contexts)
    assert {LIGHT.ink, LIGHT.faint}.isdisjoint(LIGHT.contexts)


def test_the_first_contexts_are_of_okabe_and_ito() -> None:
    """Blue and vermillion first, which differ for every eye."""
    assert LIGHT.contexts[:2] == ("#0072B2", "#D55E00")


def test_an_unknown_ending_is_refused() -> None:
    """Only PNG and SVG are drawn."""
    assert CHARTS == {".png": "png", ".svg": "svg"}
    with pytest.raises(KeyError):
        chart_file(Chart("roofline", RESULTS["usual"]), ".gif")


def test_users_settings_do_not_matter() -> None:
    """A matplotlibrc of other colours and sizes changes nothing."""
    import matplotlib as mpl

    plain = chart_file(Chart("roofline", RESULTS["usual"]), ".svg")
    with mpl.rc_context({"font.size": 30, "lines.linewidth": 9, "axes.facecolor": "red", "text.usetex": False}):
        assert chart_file(Chart("roofline", RESULTS["usual"]), ".svg") == plain


def test_the_command_line_does_not_load_matplotlib() -> None:
    """It is loaded once a chart is asked for; half a second that nobody else pays."""
    code = "import sys, roofcast.cli.app, roofcast.reports.outputs; print('matplotlib' in sys.modules)"
    done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, check=True, text=True, timeout=60)

    assert done.stdout == "False\n"


def test_drawing_leaves_pyplot_alone() -> None:
    """No global state of figures, no window."""
    code = "import sys, roofcast.reports.plot; print(sorted(m for m in sys.modules if re.match('matplotlib.pyplot|tkinter', m)))"
    done = subprocess.run(
        [sys.executable, "-P", "-c", f"import re; {code}"], capture_output=True, check=True, text=True, timeout=60
    )

    assert done.stdout == "[]\n"


def test_labels_stay_apart() -> None:
    """Twelve labels of one crowded corner have places of their own, inside the frame, each near its point."""
    wanted = [Label(f"label {number}", (200 + 5.0 * number, 150 + 4.0 * number), 40, 9) for number in range(12)]
    got = placed(wanted, Surroundings(FRAME, [], []))

    assert len(got) == len(wanted)
    assert all(FRAME.holds(box) for _, box in got)
    assert all(math.dist(label.at, box.middle) < 140 for label, box in got)
    assert not any(one.meets(other) for (_, one), (_, other) in itertools.combinations(got, 2))


def test_a_label_without_a_place_is_left_out() -> None:
    """Better none than one on another."""
    small = Box(0, 0, 50, 20)

    assert placed([Label("wide", (25, 10), 60, 9)], Surroundings(small, [], [])) == []


def test_near_batches_share_a_label() -> None:
    """Two are named, of more both ends; those that fit and those that do not stay apart."""
    near = [row(batch=batch, intensity=10 + batch / 100) for batch in (1, 2, 3)]
    far = [row(batch=batch, intensity=80 + batch / 100, fits=batch < 102) for batch in (100, 101, 102, 103)]
    said = texts(roofline_chart(roofline(*near, *far)))

    assert [text for text in said if re.match(r"4k b", text)] == ["4k b1-3", "4k b100, 101", "4k b102, 103"]
