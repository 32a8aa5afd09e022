"""Cache against context as a picture: lines, weights, memory, names; and `roofcast kv` that draws it."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_hex

from roofcast.calculators.errors import UsageError
from roofcast.calculators.kv_curves import KvCurve, KvCurves, kv_curve
from roofcast.modelspec.formats import FORMATS
from roofcast.reports.charts import Chart, chart_file
from roofcast.reports.kv import curves_say, kv_document
from roofcast.reports.plot_card import spread
from roofcast.reports.plot_kv import SHAPES, kv_chart
from roofcast.reports.plot_style import LIGHT
from tests.checkpoints import catalogued
from tests.running import refused, roofcast

if TYPE_CHECKING:
    from pathlib import Path

    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D
    from matplotlib.text import Text

GIB = 2.0**30
SEVEN = (
    "llama-3.1-8b", "llama-2-7b", "deepseek-v3", "gemma-3-27b-it", "qwen3-30b-a3b", "falcon-mamba-7b", "gpt-oss-120b",
)  # fmt: skip
PLAIN = KvCurve("m", "GQA", "bf16", [1024, 4096], [GIB, 4 * GIB], 2 * GIB, 4096, 2048)
CASES = {
    "one": KvCurves([PLAIN]),
    "memory": KvCurves([PLAIN], 80 * GIB, "g", 2),
    "too-small": KvCurves([PLAIN], GIB, "g"),
    "no-weights": KvCurves([replace(PLAIN, weight_bytes=None, equal_context=None)]),
    "flat": KvCurves([replace(PLAIN, cache_bytes=[2**20, 2**20], equal_context=None)]),
    "short": KvCurves([replace(PLAIN, contexts=[1], cache_bytes=[2**10])]),
    "same": KvCurves([PLAIN] * 7),
    "huge": KvCurves([replace(PLAIN, weight_bytes=2**50, cache_bytes=[1, 2**45])]),
    "long-names": KvCurves([replace(PLAIN, model="organisation/" + "a-very-long-name-" * 9, attention="A+B+C+" * 9)] * 7),
    "wide-name": KvCurves([replace(PLAIN, model="granite-4.0-h-350m", attention="Mamba-2+GQA", weight_bytes=649 * 2**20)]),
    "odd-name": KvCurves([replace(PLAIN, model="$x_1$ <script>alert(1)</script>\u6a21\x1b[31m\n%s", attention="$\\frac$")]),
}  # fmt: skip


def curves(*names: str) -> KvCurves:
    """Return the curves of models of the catalogue."""
    return KvCurves([kv_curve(catalogued(name), weights=None, kv=FORMATS["bf16"]) for name in names])


def lines(figure: Figure) -> dict[str, list[Line2D]]:
    """Return lines of a chart by what they are: cache, weights, memory, left, ring."""
    [axes] = figure.axes
    found: dict[str, list[Line2D]] = {"cache": [], "weights": [], "memory": [], "left": [], "ring": []}
    for line in axes.lines:
        if line.get_transform() == figure.transFigure:
            continue  # marks beside names
        if line.get_markerfacecolor() == "none":
            found["ring"].append(line)
        elif line.get_linewidth() > 1.5:
            found["cache"].append(line)
        elif to_hex(line.get_color()) != LIGHT.ink:
            found["weights"].append(line)
        else:
            found["memory" if line.get_linestyle() == "-" else "left"].append(line)
    return found


def places(line: Line2D) -> list[tuple[float, float]]:
    """Return the points of a line."""
    return [(float(x), float(y)) for x, y in line.get_xydata().tolist()]  # type: ignore[union-attr, unused-ignore]


def written(figure: Figure) -> list[Text]:
    """Return everything that is written on a chart, but for ticks."""
    [axes] = figure.axes
    return [text for text in (*axes.texts, *figure.texts) if text.get_text()]


def words(figure: Figure) -> str:
    """Return it as one text."""
    return " ".join(text.get_text().replace("\n", " ") for text in written(figure))


@pytest.mark.parametrize(
    ("name", "growth"), [("llama-3.1-8b", 131_072), ("llama-2-7b", 524_288), ("deepseek-v3", 70_272)]
)
def test_a_line_has_the_bytes_of_each_context(name: str, growth: int) -> None:
    """Points are context and context x bytes a token in GiB, by hand; the dashed line is the weights."""
    made = curves(name)
    figure = kv_chart(made)
    [cache], [weights] = lines(figure)["cache"], lines(figure)["weights"]

    assert places(cache) == [(context, context * growth / GIB) for context in made.curves[0].contexts]
    assert {y for _, y in places(weights)} == {(made.curves[0].weight_bytes or 0) / GIB}
    assert weights.get_linestyle() == "--"


def test_axes_are_logarithmic_and_named() -> None:
    """With units, and contexts in the words of the command line."""
    [axes] = kv_chart(curves("llama-3.1-8b")).axes

    assert (axes.get_xscale(), axes.get_yscale()) == ("log", "log")
    assert axes.get_xlabel() == "context [tokens]"
    assert axes.get_ylabel() == "cache of one sequence [GiB]"
    assert [label.get_text() for label in axes.get_xticklabels()] == ["2k", "8k", "32k", "128k"]


def test_small_models_are_in_mib() -> None:
    """gpt2 keeps 36 MiB of 1,024 tokens beside 523 MiB of weights."""
    figure = kv_chart(curves("gpt2"))
    [cache] = lines(figure)["cache"]

    assert figure.axes[0].get_ylabel() == "cache of one sequence [MiB]"
    assert places(cache)[-1] == (1024, 36.0)
    assert "MHA 36.0 MiB weights 523 MiB" in words(figure)


def test_every_model_is_named_with_its_kind() -> None:
    """Name, kind of attention, cache at the end and weights stand beside each line, in seven colours and shapes."""
    figure = kv_chart(curves(*SEVEN))
    caches = lines(figure)["cache"]

    for name, kind in (("llama-3.1-8b", "GQA 16.0"), ("llama-2-7b", "MHA 2.00"), ("deepseek-v3", "MLA 10.7")):
        assert f"{name} {kind} GiB weights" in words(figure)
    assert [to_hex(line.get_color()) for line in caches] == [colour.lower() for colour in LIGHT.contexts]
    assert [line.get_marker() for line in caches] == list(SHAPES)
    assert len(lines(figure)["weights"]) == 7


def test_windows_and_states_flatten() -> None:
    """A recurrent model is a level line; one with windows in most layers rises slower than in proportion."""
    figure = kv_chart(curves("falcon-mamba-7b", "gemma-3-27b-it"))
    flat, bent = (places(line) for line in lines(figure)["cache"])

    assert len({y for _, y in flat}) == 1
    assert bent[1][1] / bent[0][1] < 1.2 < bent[1][0] / bent[0][0]


def test_a_ring_is_where_the_cache_equals_the_weights() -> None:
    """On the dashed line, with its context beside it; without such a context there is none, and no word of it."""
    figure, without = kv_chart(curves("llama-3.1-8b")), kv_chart(curves("deepseek-v3"))
    [ring] = lines(figure)["ring"]

    assert places(ring) == [(122_533, 16_060_522_496 / GIB)]
    assert "at 122,533" in words(figure)
    assert "Ring" in words(figure)
    assert lines(without)["ring"] == []
    assert "Ring" not in words(without)


def test_rings_near_one_another_have_no_names() -> None:
    """A context beside two rings could be of either; that of the third stands beside it."""
    near = replace(PLAIN, model="n", weight_bytes=2.05 * GIB, equal_context=2100)
    figure = kv_chart(KvCurves([PLAIN, near, replace(near, weight_bytes=3.9 * GIB, equal_context=4000)]))

    assert len(lines(figure)["ring"]) == 3
    assert [name for name in ("2,048", "2,100", "4,000") if f"at {name}" in words(figure)] == ["4,000"]


def test_memory_is_a_line_and_what_weights_leave_another() -> None:
    """Of all devices: 2 x 80 GiB, and 158 beside 2 GiB of weights."""
    figure = kv_chart(CASES["memory"])
    [memory], [left] = lines(figure)["memory"], lines(figure)["left"]

    assert {y for _, y in places(memory)} == {160.0}
    assert {y for _, y in places(left)} == {158.0}
    assert "memory 160 GiB" in words(figure)
    assert "left beside the weights 158 GiB" in words(figure)
    assert "memory of 2 x g" in words(figure)


def test_nothing_is_left_where_weights_do_not_fit() -> None:
    """Memory alone is drawn below them; of several models too."""
    for case in (CASES["too-small"], replace(CASES["same"], memory_bytes=80 * GIB, gpu="g")):
        figure = kv_chart(case)

        assert len(lines(figure)["memory"]) == 1
        assert lines(figure)["left"] == []
    assert lines(kv_chart(CASES["one"]))["memory"] == []


@pytest.mark.parametrize("name", CASES)
def test_nothing_is_cut_off_or_covers_another(name: str) -> None:
    """Every text stands within the page, names apart from one another, whatever the models are."""
    figure = kv_chart(CASES[name])
    FigureCanvasAgg(figure).draw()  # type: ignore[no-untyped-call, unused-ignore]
    boxes = [text.get_window_extent() for text in written(figure)]
    for box in boxes:
        assert box.x0 >= 0
        assert box.y0 >= 0
        assert box.x1 <= figure.bbox.x1
        assert box.y1 <= figure.bbox.y1
    names = [text.get_window_extent() for text in figure.axes[0].texts if text.get_text().startswith(("m\n", "org"))]
    assert not any(one.overlaps(other) for one, other in itertools.combinations(names, 2))


@pytest.mark.parametrize("name", CASES)
def test_files_are_the_same_each_time(name: str) -> None:
    """SVG byte for byte, of the charts' own colours alone; nothing warns."""
    chart = Chart("kv", CASES[name])
    svg = chart_file(chart, ".svg")
    used = {f"#{part[:6].decode().lower()}" for part in svg.replace(b": #", b":#").split(b":#")[1:]}

    assert svg == chart_file(chart, ".svg")
    assert used <= {LIGHT.ground, LIGHT.ink, LIGHT.faint, *(colour.lower() for colour in LIGHT.contexts), "#000000"}
    assert chart_file(chart, ".png").startswith(b"\x89PNG\r\n\x1a\n")


def test_names_stay_text() -> None:
    """Neither markup nor formulas nor control characters of a name do anything."""
    svg = chart_file(Chart("kv", CASES["odd-name"]), ".svg").decode()

    assert "<script" not in svg
    assert "\x1b" not in svg
    assert "$x_1$" in svg


def test_many_models_are_refused() -> None:
    """Eight have no colours of their own."""
    with pytest.raises(UsageError, match="tells 7 models apart and not 8"):
        kv_chart(KvCurves([PLAIN] * 8))


def test_a_model_that_keeps_nothing_has_no_line() -> None:
    """Beside others it is left out; alone there is no chart."""
    nothing = replace(PLAIN, model="n", cache_bytes=[0, 0])
    assert len(lines(kv_chart(KvCurves([nothing, PLAIN])))["cache"]) == 1
    with pytest.raises(UsageError, match="no curve to draw"):
        kv_chart(KvCurves([nothing]))


def test_a_document_has_a_chart_where_there_are_curves() -> None:
    """Those that keep something; none of eight, which a note tells, none without."""
    from roofcast.calculators.answer import Remarks

    nothing = replace(PLAIN, cache_bytes=[0, 0])
    asked = {"weights": None}

    def charts(made: KvCurves | None) -> tuple[int, int]:
        document = kv_document([], asked, Remarks(), contexts=[4096], curves=made)
        return sum(len(chart.result.curves) for chart in document.charts), len(document.remarks.notes)

    assert charts(None) == (0, 0)
    assert charts(KvCurves([PLAIN, nothing])) == (1, 0)
    assert charts(KvCurves([nothing])) == (0, 0)
    assert charts(KvCurves([PLAIN] * 8)) == (0, 1)


def test_says_has_the_main_numbers() -> None:
    """For those who do not see the chart: cache at both ends, weights, where they are equal, memory."""
    said = curves_say(replace(curves("llama-3.1-8b", "falcon-mamba-7b"), memory_bytes=80e9, gpu="h100-sxm", gpus=2))

    assert said == (
        "KV cache of one sequence: llama-3.1-8b (GQA) 128 MiB at 1k to 16.0 GiB at 128k tokens, weights 15.0 GiB, which "
        "it reaches at 122,533; falcon-mamba-7b (Mamba-1) 36.0 MiB at any context, weights 13.5 GiB. Memory of 2 x "
        "h100-sxm: 149 GiB."
    )


def test_places_are_spread() -> None:
    """At least a step apart, each near its own, within both ends where there is room."""
    assert spread([1, 1, 9], 2, (0, 10)) == [1, 3, 9]
    assert spread([10, 10], 3, (0, 10)) == [7, 10]
    assert spread([-5], 3, (0, 10)) == [0]
    assert spread([], 3, (0, 10)) == []


@pytest.mark.parametrize(("ending", "begins"), [(".png", b"\x89PNG\r\n\x1a\n"), (".svg", b"<?xml")])
def test_kv_draws_its_curves(tmp_path: Path, ending: str, begins: bytes) -> None:
    """--out x.png and x.svg hold the chart; stdout has the table all the same."""
    file = tmp_path / f"x{ending}"
    outcome = roofcast("kv", "llama-3.1-8b", "deepseek-v3", "--out", str(file))

    assert (outcome.code, outcome.err) == (0, "")
    assert outcome.out == roofcast("kv", "llama-3.1-8b", "deepseek-v3").out
    assert file.read_bytes().startswith(begins)


def test_a_page_has_the_chart() -> None:
    """--format html, without JavaScript; JSON is as ever."""
    page = roofcast("kv", "llama-3.1-8b", "--format", "html")

    assert page.code == 0, page.err
    assert "cache of one sequence [GiB]" in page.out
    assert "<script" not in page.out
    assert "charts" not in roofcast("kv", "llama-3.1-8b", "--format", "json").out


@pytest.mark.parametrize("given", [("--kv", "fp8"), ("--weights", "int4")])
def test_formats_asked_for_are_drawn(tmp_path: Path, given: tuple[str, str]) -> None:
    """The chart is of the cache and weights that the table has."""
    file = tmp_path / "x.svg"
    roofcast("kv", "llama-3.1-8b", *given, "--out", str(file))

    assert ("cache in fp8" if given[0] == "--kv" else "weights 3.74 GiB") in file.read_text()


@pytest.mark.parametrize(
    ("given", "words_"),
    [
        ((*["llama-3.1-8b"] * 8, "--out", "x.png"), ("tells 7 models apart and not 8", "give fewer")),
        (("llama-3.1-8b", "--format", "json", "--out", "x.png"), ("--format json", "a file that ends in .png is a chart")),
        (("llama-3.1-8b", "--out", "x.gif"), ("'.gif' names no format", ".png, .svg")),
        (("llama-3.1-8b", "--out", "nowhere/x.png"), ("a folder that exists",)),
    ],
)  # fmt: skip
def test_charts_that_cannot_be_are_refused(given: tuple[str, ...], words_: tuple[str, ...]) -> None:
    """In one line, before any work."""
    refused(roofcast("kv", *given), 2, *words_)


def test_models_that_are_not_there_do_not_hinder_the_others(tmp_path: Path) -> None:
    """The chart is of those that can be read; the exit code tells of the other."""
    file = tmp_path / "x.svg"
    outcome = roofcast("kv", "llama-3.1-8b", "no-such-model", "--out", str(file))

    assert outcome.code != 0
    assert "no-such-model" in outcome.err
    assert "llama-3.1-8b" in file.read_text()


def test_strict_draws_nothing_that_is_assumed(tmp_path: Path) -> None:
    """deepseek-llm-67b states no dtype of its weights."""
    file = tmp_path / "x.png"

    assert roofcast("kv", "deepseek-llm-67b", "--strict", "--out", str(file)).code == 3
    assert not file.exists()
