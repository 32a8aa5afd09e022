"""Charts of decode over batches: all that they must show, held by their parts."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg

from roofcast.calculators.sweep import Sweep, SweepPoint
from roofcast.modelspec.sharding import Shards
from roofcast.reports.charts import Chart, chart_file
from roofcast.reports.estimate import latency_says, sweep_says
from roofcast.reports.plot_sweep import latency_chart, sweep_chart
from tests.drawn import assert_apart, assert_readable, assert_theme
from tests.rooflines import FOUR, ONE
from tests.test_sweep import ready_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

    from roofcast.calculators.estimate import Layout

LONG = "organisation/" + "a-very-long-name-" * 12
ODD = "$x_1$ <b>&amp;\u6a21\u578b\x1b[31m\n%s"


TIMES = (
    "bound_seconds", "memory_seconds", "compute_seconds", "link_seconds", "expected_seconds", "low_seconds", "high_seconds",
    "tokens_per_second", "expected_tokens_per_second",
)  # fmt: skip


def point(batch: int, *, fits: bool = True, expected: bool = True, links: float = 0.0) -> SweepPoint:
    """Return a step whose memory takes 4 ms and 0.1 a sequence, arithmetic 0.05 a sequence; expected is half as much more."""
    memory, compute = 4e-3 + 1e-4 * batch, 5e-5 * batch
    bound = memory + links
    held = 1.5 * bound if expected else None
    whole = SweepPoint(
        batch=batch,
        fits=True,
        bound_seconds=bound,
        memory_seconds=memory,
        compute_seconds=compute,
        link_seconds=links,
        expected_seconds=held,
        low_seconds=held and held * 0.9,
        high_seconds=held and held * 1.2,
        tokens_per_second=batch / bound,
        expected_tokens_per_second=held and batch / held,
    )
    nothing: dict[str, Any] = dict.fromkeys(TIMES)
    return whole if fits else replace(whole, fits=False, **nothing)


def sweep_of(*points: SweepPoint, model: str = "m", layout: Layout = ONE, limit: float | None = None) -> Sweep:
    """Return those points at 4k, of as many sequences as the last that fits."""
    most = max((one.batch for one in points if one.fits), default=0)
    reason = None if all(one.fits for one in points) else "weights take 20.0 GB of 10.0 GB"
    return Sweep(model, "g", layout, 4096, list(points), limit, most, reason)


USUAL = tuple(point(batch) for batch in (1, 2, 4, 8, 16, 32, 64, 100))
SWEEPS = {
    "usual": sweep_of(*USUAL),
    "limit": sweep_of(*USUAL, limit=0.012),
    "no-batch-within": sweep_of(*USUAL, limit=1e-3),
    "bounds": sweep_of(*(point(batch, expected=False) for batch in (1, 8, 64))),
    "links": sweep_of(*(point(batch, links=1e-3) for batch in (1, 8, 64)), layout=FOUR),
    "one": sweep_of(point(1), limit=0.02),
    "not-all": sweep_of(*USUAL, point(200, fits=False)),
    "nothing": sweep_of(point(1, fits=False)),
    "near": sweep_of(*(point(batch) for batch in (512, 513))),
    "long-name": sweep_of(*USUAL, model=LONG),
    "odd-name": sweep_of(*USUAL, model=ODD),
}
CHARTS = {"sweep": sweep_chart, "latency": latency_chart}


def lines_of(figure: Figure, label: str) -> list[Line2D]:
    """Return the lines of a chart that have a label."""
    return [line for line in figure.axes[0].lines if line.get_label() == label]


def spots(figure: Figure, label: str) -> list[tuple[float, float]]:
    """Return the points of the one line that has a label."""
    [line] = lines_of(figure, label)
    return places(line)


def places(line: Line2D) -> list[tuple[float, float]]:
    """Return the points of a line."""
    return [(float(x), float(y)) for x, y in np.asarray(line.get_xydata(), dtype=float)]


def same(one: Any, other: Any) -> bool:
    """Whether points are where others are."""
    return np.allclose(np.asarray(one, dtype=float), np.asarray(other, dtype=float), rtol=1e-9)


def words(figure: Figure) -> str:
    """Return everything that is written on a chart but for numbers of axes."""
    [axes] = figure.axes
    legend = axes.get_legend()
    named = [] if legend is None else legend.get_texts()
    texts = [*figure.texts, *axes.texts, axes.xaxis.label, axes.yaxis.label, *named]
    return "\n".join(text.get_text() for text in texts)


@pytest.mark.parametrize("kind", CHARTS)
def test_both_are_image_files(kind: str) -> None:
    """PNG and SVG, the SVG the same each time."""
    chart = Chart(kind, SWEEPS["limit"])

    assert chart_file(chart, ".png").startswith(b"\x89PNG\r\n\x1a\n")
    assert chart_file(chart, ".svg") == chart_file(chart, ".svg")


@pytest.mark.parametrize("kind", CHARTS)
@pytest.mark.parametrize("name", SWEEPS)
def test_words_stay_on_the_page_and_off_one_another(name: str, kind: str) -> None:
    """Measured as they are drawn: titles, names of lines, batches, limits."""
    figure = CHARTS[kind](SWEEPS[name])
    FigureCanvasAgg(figure).draw()  # type: ignore[no-untyped-call, unused-ignore]

    assert_readable(figure, (*figure.texts, *figure.axes[0].texts))


@pytest.mark.parametrize("kind", CHARTS)
@pytest.mark.parametrize("name", SWEEPS)
def test_only_colours_of_the_theme(name: str, kind: str) -> None:
    """A page turns them into variables, so that it can be dark; no other colour would follow."""
    assert_theme(chart_file(Chart(kind, SWEEPS[name]), ".svg"))


def test_every_limit_is_a_line_in_milliseconds() -> None:
    """Memory alone, arithmetic alone, the bound and the expected time, over the batch; the axes name their units."""
    figure = sweep_chart(SWEEPS["usual"])
    batches = [1, 2, 4, 8, 16, 32, 64, 100]

    for name, attribute in (
        ("memory", "memory_seconds"),
        ("arithmetic", "compute_seconds"),
        ("bound", "bound_seconds"),
        ("expected", "expected_seconds"),
    ):
        expected = [(batch, getattr(point(batch), attribute) * 1e3) for batch in batches]
        assert same(spots(figure, name), expected), name
    [axes] = figure.axes
    assert (axes.get_xscale(), axes.get_yscale()) == ("log", "log")
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("sequences at once", "decode step [ms]")
    for said in (
        "Decode step against sequences at once",
        "m on g, 4k tokens each",
        "memory",
        "arithmetic",
        "bound",
        "expected",
    ):
        assert said in words(figure), said
    assert lines_of(figure, "links") == []


def test_the_interval_is_a_band() -> None:
    """From its low to its high end at every batch; none without expected times."""
    [band] = [one for one in sweep_chart(SWEEPS["usual"]).axes[0].collections if one.get_label() == "interval"]
    corners = {(float(x), round(float(y), 6)) for x, y in np.asarray(band.get_paths()[0].vertices, dtype=float)}

    for one in USUAL:
        assert (one.batch, round((one.low_seconds or 0) * 1e3, 6)) in corners
        assert (one.batch, round((one.high_seconds or 0) * 1e3, 6)) in corners
    alone = sweep_chart(SWEEPS["bounds"])
    assert not [one for one in alone.axes[0].collections if one.get_label() == "interval"]
    assert lines_of(alone, "expected") == []
    assert "Band" not in words(alone)


def test_links_are_a_line_where_there_are_any() -> None:
    """Named, and told in the caption."""
    figure = sweep_chart(SWEEPS["links"])

    assert spots(figure, "links") == [(1, 1.0), (8, 1.0), (64, 1.0)]
    assert "links" in words(figure)
    assert "m on 4 x g" in words(figure)


def test_the_last_batch_that_fits_is_marked() -> None:
    """An upright line where there is no more room; no time and no point beyond, and none where more would fit."""
    figure = sweep_chart(SWEEPS["not-all"])

    assert "no more than 100" in words(figure)
    assert max(x for x, _ in spots(figure, "bound")) == 100
    assert figure.axes[0].get_xlim()[1] < 200
    more = Sweep("m", "g", ONE, 4096, list(USUAL), None, 5000)
    assert "no room" not in words(sweep_chart(more))


def test_the_limit_is_a_level_line() -> None:
    """At its milliseconds, with its name."""
    figure = sweep_chart(SWEEPS["limit"])
    levels = [line for line in figure.axes[0].lines if [y for _, y in places(line)] == [12.0, 12.0]]

    assert len(levels) == 1
    assert "limit 12.0 ms" in words(figure)
    assert "limit" not in words(sweep_chart(SWEEPS["usual"]))


@pytest.mark.parametrize("kind", CHARTS)
def test_what_does_not_fit_is_no_line_but_words(kind: str) -> None:
    """No speed for what does not fit: the reason stands there instead."""
    figure = CHARTS[kind](SWEEPS["nothing"])

    assert figure.axes[0].lines[:] == []
    assert "No sequence of 4k tokens fits: weights take" in words(figure)
    assert words(figure).replace("\n", " ").endswith("20.0 GB of 10.0 GB  ")


def test_throughput_stands_over_latency() -> None:
    """A point a batch, at the bound and as expected, each expected point with its batch beside it."""
    figure = latency_chart(SWEEPS["usual"])

    bounds = [((one.bound_seconds or 0) * 1e3, one.tokens_per_second) for one in USUAL]
    held = [((one.expected_seconds or 0) * 1e3, one.expected_tokens_per_second) for one in USUAL]
    assert same(spots(figure, "bound"), bounds)
    assert same(spots(figure, "expected"), held)
    assert [text.get_text() for text in figure.axes[0].texts][::-1] == ["1", "2", "4", "8", "16", "32", "64", "100"]
    [axes] = figure.axes
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("time per output token [ms]", "tokens/s of all sequences")


def test_the_most_sequences_within_the_limit_have_a_ring() -> None:
    """At 12 ms of the 1.5 x (4 + 0.1 b) ms expected: 40 would, so 32 of those asked; said above."""
    figure = latency_chart(SWEEPS["limit"])

    best = point(32)
    ringed = [((best.expected_seconds or 0) * 1e3, best.expected_tokens_per_second)]
    assert same(spots(figure, "within the limit"), ringed)
    assert "within 12.0 ms: 32 at once, 2,963 tokens/s" in words(figure).replace("\n", " ")
    assert "limit 12.0 ms" in words(figure)
    none = latency_chart(SWEEPS["no-batch-within"])
    assert lines_of(none, "within the limit") == []
    assert "within 1.00 ms: not even one sequence" in words(none).replace("\n", " ")


def test_labels_of_batches_that_would_cover_one_another_are_left_out() -> None:
    """512 and 513 are one place; the larger is named."""
    assert [text.get_text() for text in latency_chart(SWEEPS["near"]).axes[0].texts] == ["513"]


def test_names_are_shown_as_they_are() -> None:
    """No mathematics and no markup; a long name keeps both ends."""
    assert "$x_1$ <b>&amp;???[31m?%s on g" in words(sweep_chart(SWEEPS["odd-name"]))
    assert "organisation/a-very-long-nam...ong-name- on g" in words(latency_chart(SWEEPS["long-name"]))


def test_sentences_tell_the_main_numbers() -> None:
    """For those who do not see the picture."""
    assert sweep_says(SWEEPS["usual"]) == (
        "m on g at 4k: a decode step takes 6.15 ms for 1 (bound 4.10, memory alone 4.10, arithmetic alone 0.05) and "
        "21.0 ms for 100 (bound 14.0, memory alone 14.0, arithmetic alone 5.00); 100 sequences fit."
    )
    assert latency_says(SWEEPS["limit"]) == (
        "m on g at 4k: 163 tokens/s at 6.15 ms a token with 1 and 4,762 tokens/s at 21.0 ms a token with 100; "
        "within 12.0 ms: 32 at once, 2,963 tokens/s."
    )
    assert latency_says(SWEEPS["no-batch-within"]).endswith("within 1.00 ms: not even one sequence.")
    for says in (sweep_says, latency_says):
        assert says(SWEEPS["nothing"]) == "m on g at 4k: no sequence fits: weights take 20.0 GB of 10.0 GB."


def real(name: str, gpu: str, shards: Shards, context: int) -> Any:
    """Return the sweep of a model as it is."""
    from roofcast.calculators.phases import most_sequences
    from roofcast.calculators.sweep import sweep, sweep_batches

    ready = ready_of(name, gpu, shards)
    return sweep(ready, context, sweep_batches(most_sequences(ready, context)), 0.02)


@pytest.mark.parametrize(
    ("name", "gpu", "shards", "context"),
    [
        ("gpt2", "rtx-2080-ti", Shards(), 1024),
        ("falcon-mamba-7b", "h100-sxm", Shards(), 4096),
        ("deepseek-v3", "h200-sxm", Shards(8), 4096),
        ("gemma-3-27b-it", "h100-sxm", Shards(), 131072),
        ("llama-3.1-70b", "h100-sxm", Shards(4), 32768),
        ("llama-3.1-405b", "h100-sxm", Shards(), 4096),
    ],
)
@pytest.mark.parametrize("kind", CHARTS)
def test_curves_of_real_models_stay_inside_their_axes(
    kind: str, name: str, gpu: str, shards: Shards, context: int
) -> None:
    """Every point of bound and expected time is on the chart, whatever the model, and no word lies on another."""
    figure = CHARTS[kind](real(name, gpu, shards, context))
    FigureCanvasAgg(figure).draw()  # type: ignore[no-untyped-call, unused-ignore]
    [axes] = figure.axes
    (left, right), (bottom, top) = axes.get_xlim(), axes.get_ylim()

    for label in ("bound", "expected"):
        for line in lines_of(figure, label):
            for x, y in places(line):
                assert left <= x <= right
                assert bottom <= y <= top
    assert_apart((*figure.texts, *axes.texts))
