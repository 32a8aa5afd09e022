"""The chart of GPUs beside one another: held by its parts; and the command that draws it."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_hex

from roofcast.calculators.compare import Compared, GpuCompared
from roofcast.reports.charts import Chart, chart_file
from roofcast.reports.gpus import compared_document, compared_says
from roofcast.reports.plot_gpus import SHAPES, gpus_chart
from roofcast.reports.plot_style import LIGHT
from tests.drawn import assert_readable, assert_theme
from tests.running import refused, result, roofcast
from tests.test_plot_sweep import places

if TYPE_CHECKING:
    from pathlib import Path

    from matplotlib.figure import Figure

FIRST = GpuCompared(
    gpu="first",
    gpus=1,
    fits=True,
    reason=None,
    memory_bytes=80e9,
    bandwidth_bytes_per_second=2e12,
    peak_flops_per_second=500e12,
    format="bf16",
    ridge=250.0,
    ttft_seconds=0.1,
    tpot_one_seconds=0.008,
    tpot_seconds=0.016,
    tokens_per_second=1000.0,
    most_sequences=50,
    basis="expected",
)


def row(name: str, times: float = 2.0, **changes: Any) -> GpuCompared:
    """Return a GPU of which everything is so many times as good."""
    better = replace(
        FIRST,
        gpu=name,
        memory_bytes=80e9 * times,
        bandwidth_bytes_per_second=2e12 * times,
        peak_flops_per_second=500e12 * times,
        ttft_seconds=0.1 / times,
        tpot_one_seconds=0.008 / times,
        tpot_seconds=0.016 / times,
        tokens_per_second=1000.0 * times,
        most_sequences=round(50 * times),
    )
    return replace(better, **changes)


NONE = {"ttft_seconds": None, "tpot_one_seconds": None, "tpot_seconds": None, "tokens_per_second": None}
TOO_SMALL: dict[str, Any] = {"fits": False, "reason": "weights take 20 GB of 10 GB", "most_sequences": 0, **NONE}
UNABLE: dict[str, Any] = {
    "fits": False, "reason": "states no peak", "most_sequences": None, "peak_flops_per_second": None, "format": None, **NONE,
}  # fmt: skip


def of(*rows: GpuCompared, batch: int = 16, model: str = "m", basis: str = "expected") -> Compared:
    """Return those GPUs for a model at 4k, its prompts of 2k."""
    return Compared(model, batch, 4096, 2048, basis, list(rows))


CASES = {
    "two": of(FIRST, row("second")),
    "five": of(FIRST, row("b", 1.1), row("c", 3), row("d", 0.4), row("e", 40)),
    "too-small": of(FIRST, row("small", 0.2, **TOO_SMALL)),
    "first-too-small": of(replace(FIRST, **TOO_SMALL), row("second"), row("third", 3)),
    "unable": of(FIRST, row("odd", **UNABLE)),
    "one-at-once": of(FIRST, row("second"), batch=1),
    "bounds": of(FIRST, row("second"), basis="bound"),
    "same": of(FIRST, replace(FIRST, gpu="twin")),
    "several": of(replace(FIRST, gpus=8), row("second", gpus=8)),
    "long-names": of(replace(FIRST, gpu="a-very-long-name-" * 5), row("b" * 60), model="organisation/a-long-name-" * 9),
    "odd-names": of(replace(FIRST, gpu="$x_1$ <b>"), row("\u6a21\x1b[31m"), model="$y^2$\n<script>"),
}
QUANTITIES = [
    "memory",
    "sequences at 4k",
    "bandwidth",
    "TPOT of 1",
    "TPOT of 16",
    "tokens/s of 16",
    "peak",
    "TTFT of 2k",
]


def marks(figure: Figure) -> list[tuple[str, str, float]]:
    """Return shape, colour and ratio of every mark, from the top down."""
    lines = [line for line in figure.axes[0].lines if line.get_marker() in SHAPES]
    found = [(places(line)[0], str(line.get_marker()), to_hex(line.get_color())) for line in lines]
    return [(shape, colour, x) for (x, y), shape, colour in sorted(found, key=lambda mark: mark[0][1])]


def names(figure: Figure) -> list[str]:
    """Return the names of the rows, from the top down."""
    return [label.get_text() for label in figure.axes[0].get_yticklabels()]


def values(figure: Figure) -> list[str]:
    """Return what is written beside marks, in the order in which it is."""
    return [text.get_text() for text in figure.axes[0].texts]


def words(figure: Figure) -> str:
    """Return title, caption, legend and the name of the axis."""
    legend = figure.axes[0].get_legend()
    named = [] if legend is None else legend.get_texts()
    return "\n".join(text.get_text() for text in (*figure.texts, *named, figure.axes[0].xaxis.label))


@pytest.mark.parametrize("name", CASES)
def test_words_stay_on_the_page_and_off_one_another(name: str) -> None:
    """Measured as they are drawn, names of rows and GPUs included; nothing warns."""
    figure = gpus_chart(CASES[name])
    FigureCanvasAgg(figure).draw()  # type: ignore[no-untyped-call, unused-ignore]
    [axes] = figure.axes
    legend = axes.get_legend()
    named = [] if legend is None else legend.get_texts()
    texts = [*figure.texts, *axes.texts, *axes.get_yticklabels(), *named, axes.xaxis.label]

    assert_readable(figure, texts)


@pytest.mark.parametrize("name", CASES)
def test_only_colours_of_the_theme(name: str) -> None:
    """So that a page can be dark; the same bytes each time."""
    assert_theme(chart_file(Chart("gpus", CASES[name]), ".svg"))


def test_every_quantity_is_a_row_with_a_mark_a_gpu() -> None:
    """Over the first, right is better: all of twice as good a GPU stands at 2, its times too."""
    figure = gpus_chart(CASES["two"])
    first, second = ((shape, to_hex(colour)) for shape, colour in zip(SHAPES, LIGHT.contexts[:2], strict=False))

    assert names(figure) == QUANTITIES
    assert [(shape, colour) for shape, colour, _ in marks(figure)] == [first, second] * 8
    assert [ratio for _, _, ratio in marks(figure)] == [pytest.approx(value) for value in [1.0, 2.0] * 8]
    assert figure.axes[0].get_xscale() == "log"
    assert "times as good as first" in words(figure)
    for said in (
        "second against first",
        "m: 16 at once, 4k tokens each, prompts of 2k",
        "Expected times.",
        "times are inverted",
    ):
        assert said in words(figure).replace("\n", " "), said


def test_values_stand_beside_marks_in_their_units() -> None:
    """And how many times as good, but of the first."""
    assert values(gpus_chart(CASES["two"])) == [
        "80 GB", "160 GB  2.00x", "50", "100  2.00x", "2 TB/s", "4 TB/s  2.00x", "8.00 ms", "4.00 ms  2.00x",
        "16.0 ms", "8.00 ms  2.00x", "1,000", "2,000  2.00x", "500 TFLOP/s bf16", "1 PFLOP/s bf16  2.00x",
        "100 ms", "50.0 ms  2.00x",
    ]  # fmt: skip


def test_facts_are_bold_and_what_follows_them_is_not() -> None:
    """Memory, bandwidth and peak are of the device; below each what a model makes of it."""
    labels = gpus_chart(CASES["two"]).axes[0].get_yticklabels()

    assert [label.get_text() for label in labels if label.get_fontweight() == "bold"] == ["memory", "bandwidth", "peak"]


def test_five_gpus_have_five_shapes_and_colours() -> None:
    """Told apart without colour, in the legend from left to right in the order asked."""
    figure = gpus_chart(CASES["five"])

    assert len({(shape, colour) for shape, colour, _ in marks(figure)}) == len(set(SHAPES)) == 5
    assert "4 GPUs against first" in words(figure)
    assert min(ratio for _, _, ratio in marks(figure)) == pytest.approx(0.4)
    [axes] = figure.axes
    assert axes.get_xlim()[0] < 0.4
    assert axes.get_xlim()[1] > 40


def test_what_does_not_fit_has_words_and_no_mark() -> None:
    """What the device has is there; all times are not, nor a count of no sequences as a mark."""
    figure = gpus_chart(CASES["too-small"])

    assert len(marks(figure)) == 8 + 3
    assert values(figure).count("does not fit") == 4
    assert "0" in values(figure)
    assert values(gpus_chart(CASES["unable"])).count("cannot run") == 5
    assert values(gpus_chart(CASES["unable"])).count("not stated") == 1


def test_where_the_first_has_no_time_the_next_stands_at_one() -> None:
    """And the caption says so; it does not where the first has all."""
    figure = gpus_chart(CASES["first-too-small"])

    assert "Where the first has none, over the next." in words(figure).replace("\n", " ")
    assert [text for text in values(figure) if text.endswith("ms")] == ["4.00 ms", "8.00 ms", "50.0 ms"]
    assert "over the next" not in words(gpus_chart(CASES["two"])).replace("\n", " ")


def test_a_batch_of_one_has_no_rows_of_its_own() -> None:
    """TPOT of 1 says it all."""
    assert names(gpus_chart(CASES["one-at-once"])) == [name for name in QUANTITIES if "16" not in name]


def test_bounds_say_that_they_are() -> None:
    """In the caption and the table."""
    assert "Least times (bounds)." in words(gpus_chart(CASES["bounds"]))
    [table] = compared_document(CASES["bounds"], {}, _no_remarks()).tables
    assert table.title == "m on each, bounds; beside each how many times as good as first"


def test_names_are_shown_as_they_are() -> None:
    """No mathematics, no markup."""
    said = words(gpus_chart(CASES["odd-names"])).replace("\n", " ")

    assert "??[31m against $x_1$ <b>" in said
    assert "$y^2$?<script>" in said


def _no_remarks() -> Any:
    from roofcast.calculators.answer import Remarks

    return Remarks()


def test_the_table_has_the_numbers_of_the_chart() -> None:
    """A column a GPU, beside all but the first how many times as good; a reason where there is no time."""
    document = compared_document(CASES["too-small"], {}, _no_remarks())
    [table] = document.tables

    assert table.header == ("", "first", "small", "times")
    assert table.rows[:2] == (("memory", "80 GB", "16 GB", "0.20x"), ("  sequences at 4k", "50", "0", "-"))
    assert table.rows[-1] == ("  TTFT of 2k", "100 ms", "does not fit", "-")
    assert document.remarks.notes == ("small: weights take 20 GB of 10 GB",)
    assert [chart.kind for chart in document.charts] == ["gpus"]


def test_the_sentence_tells_the_gains() -> None:
    """Of every quantity that both have."""
    assert compared_says(CASES["two"]) == (
        "m, 16 at once at 4k: second against first, times inverted: 2.00x memory, 2.00x sequences at 4k, 2.00x bandwidth, "
        "2.00x TPOT of 1, 2.00x TPOT of 16, 2.00x tokens/s of 16, 2.00x peak, 2.00x TTFT of 2k."
    )
    assert "m does not fit: weights take 20 GB of 10 GB." in compared_says(CASES["too-small"])


def drawn(tmp_path: Path, *arguments: str) -> tuple[str, str]:
    """Return the text and the SVG of a `gpus` that draws."""
    file = tmp_path / "x.svg"
    outcome = roofcast("gpus", *arguments, "--out", str(file))
    assert (outcome.code, outcome.err) == (0, "")
    return outcome.out, file.read_text(encoding="utf-8")


def test_gpus_draws_and_prints_the_comparison(tmp_path: Path) -> None:
    """The times are those of `estimate`; the largest batch asked that all have room for; whose constants they are made with."""
    text, svg = drawn(tmp_path, "h100", "h200", "--model", "llama-3.1-8b", "--batch", "1,64,200")
    phases = result("estimate", "llama-3.1-8b", "--gpu", "h200", "--batch", "64", "--context", "4k")["phases"]

    assert "h200-sxm against h100-sxm" in svg
    assert "llama-3.1-8b: 64 at once, 4k tokens each" in svg
    step = f"{phases[1]['expected_seconds'] * 1e3:.1f} ms"
    assert re.search(rf"TPOT of 64 .* {step} +1\.\d\dx", text)
    assert f">{step}  1." in svg
    assert "expected times of h100-sxm, h200-sxm are as under vllm" in text
    for name, times in {
        "memory": 1.76,
        "sequences at 4k": 1.95,
        "bandwidth": 1.43,
        "tokens/s of 64": 1.35,
        "TTFT of 4k": 1.01,
    }.items():
        assert re.search(rf" *{name} .* {times}x\n", text), name
    assert "--engine" not in text


def test_gpus_draws_bounds_where_they_are_asked(tmp_path: Path) -> None:
    """Then no engine is assumed."""
    text, svg = drawn(tmp_path, "h100-sxm", "h200-sxm", "--model", "llama-3.1-8b", "--efficiency", "bound")

    assert "llama-3.1-8b on each, bounds" in text
    assert "Least times (bounds)" in svg
    assert "as under" not in text


def test_strict_draws_nothing_that_is_assumed(tmp_path: Path) -> None:
    """Facts of the devices that were not read in a source, and an engine that nobody named."""
    asked = ("gpus", "h100-sxm", "h200-sxm", "--model", "llama-3.1-8b", "--strict", "--out", str(tmp_path / "x.png"))

    refused(roofcast(*asked), 3, "--strict refuses", "not verified", "as under vllm")
    assert list(tmp_path.iterdir()) == []


def test_a_gpu_that_is_too_small_keeps_its_row(tmp_path: Path) -> None:
    """The batch is one that the others have room for, and the text says why it has no times."""
    text, svg = drawn(tmp_path, "2080ti", "h200", "--model", "llama-3.1-8b", "--batch", "64")

    assert "does not fit" in svg
    assert re.search(r"rtx-2080-ti: .*weights take 16\.1 GB", text)
    assert "64 at once" in svg


def test_a_gpu_that_cannot_run_it_keeps_its_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One odd peak in its file: what it has stands there, with the reason."""
    folder = tmp_path / "accelerators"
    folder.mkdir()
    text = "id: odd\nname: Odd\nmemory: 48 GB\nbandwidth: 1 TB/s\npeaks: {fp64: 2 TFLOP/s}\nsources: [{title: t}]\n"
    (folder / "odd.yaml").write_text(text)
    monkeypatch.setenv("ROOFCAST_HOME", str(tmp_path))
    said, svg = drawn(tmp_path, "odd", "h200-sxm", "--model", "llama-3.1-8b")

    assert "odd: odd states no peak for bf16" in said
    assert "cannot run" in svg
    assert "not stated" in svg


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("h100", "h200", "--out", "x.png"), ("--out x.png", "--model")),
        (("h100", "--model", "gpt2", "--out", "x.png"), ("2 to 5 GPUs and not 1",)),
        (("h100", "h100-sxm", "--model", "gpt2", "--out", "x.svg"), ("2 to 5 GPUs and not 1",)),
        (("--model", "gpt2", "--out", "x.svg"), ("2 to 5 GPUs and not ",)),
        (("h100", "nosuch", "--model", "gpt2", "--out", "x.svg"), ("no accelerator 'nosuch'",)),
        (("h100", "h200", "--model", "gpt2", "--format", "csv", "--out", "x.svg"), ("is a chart",)),
        (("h100", "h200", "--model", "gpt2", "--efficiency", "bound"), ("--efficiency", "--out x.png")),
        (("h100", "h200", "--efficiency", "bound", "--out", "x.html"), ("--efficiency is of --model",)),
        (("h100", "h200", "--model", "gpt2", "--efficiency", "none.yaml", "--out", "x.png"), ("no such file",)),
    ],
)
def test_what_gpus_refuses_to_draw(
    arguments: tuple[str, ...], said: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One line that says what would be right, and no file."""
    monkeypatch.chdir(tmp_path)

    refused(roofcast("gpus", *arguments), 2, *said)
    assert list(tmp_path.iterdir()) == []


def test_nothing_more_is_reckoned_without_a_picture() -> None:
    """The text is that of ever."""
    assert "on each" not in roofcast("gpus", "h100", "h200", "--model", "gpt2").out
