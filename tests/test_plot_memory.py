"""Memory of a device as a picture: what bars are made of, lines, legend; and `roofcast fit` that draws it."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_rgba
from matplotlib.patches import Rectangle

from roofcast.calculators.fit import FitContext, FitMemory, FitResult
from roofcast.cli.fit import Asked, fit_answer
from roofcast.cli.session import Lookup
from roofcast.reports.charts import Chart, chart_file
from roofcast.reports.fit import memory_says, one_replica, verdict_of
from roofcast.reports.plot_memory import LOOKS, MOST_BARS, memory_chart, parts_of
from roofcast.reports.plot_style import LIGHT
from tests.running import answer, refused, roofcast

if TYPE_CHECKING:
    from pathlib import Path

    from matplotlib.figure import Figure

GIB = 2.0**30
MEMORY = FitMemory(80 * GIB, 72 * GIB, 15 * GIB, 0, 0, 57 * GIB, None)  # total, budget, weights, and 57 for the cache
SERVED = replace(MEMORY, activation_bytes=1 * GIB, overhead_bytes=2 * GIB, kv_bytes=54 * GIB)
# a budget of weights and cache alone: what the engine takes is no part of it
BESIDE = replace(MEMORY, overhead_bytes=20 * GIB, budget_bytes=60 * GIB, kv_bytes=45 * GIB)
WHOLE = replace(MEMORY, budget_bytes=80 * GIB, kv_bytes=16 * GIB)
SMALL = replace(MEMORY, weight_bytes=750 * GIB, kv_bytes=-678 * GIB)


def row(context: int, sequences: int, size: float = 0.5 * GIB) -> FitContext:
    """Return a context with the cache of one sequence."""
    return FitContext(context, size, sequences, None, 1e12, 0.1)


def made(memory: FitMemory, *rows: FitContext, **given: Any) -> FitResult:
    """Return an answer of `fit`."""
    return FitResult(
        **{
            "model": "m",
            "gpu": "g",
            "gpus": 1,
            "fits": all(row.max_sequences for row in rows),
            "reason": None,
            "memory": memory,
            "kv_bytes_per_token": 131072,
            "kv_tokens": None,
            "kv_tokens_low": None,
            "kv_tokens_high": None,
            "blocks": None,
            "max_concurrency": None,
            "contexts": list(rows),
            "non_embedding_parameters": 7,
            "crossover_tokens": None,
            "requirements": [],
            "provenance": {},
            **given,
        }
    )


ENGINE: dict[str, Any] = {"engine": "e", "engine_version": "1.2"}
LONG = {"model": "organisation/" + "a-very-long-name-" * 9, "gpu": "g" * 30}
CASES = {
    "plain": made(MEMORY, row(4096, 114), row(32768, 14, 4 * GIB), row(131072, 3, 16 * GIB)),
    "one": made(MEMORY, row(4096, 1)),
    "engine": made(SERVED, row(4096, 108), row(131072, 3, 16 * GIB), **ENGINE),
    "beside": made(BESIDE, row(4096, 90), row(131072, 2, 16 * GIB), **ENGINE),
    "no-budget": made(WHOLE, row(4096, 4), row(131072, 1, 16 * GIB), **ENGINE),
    "weights-too-large": made(SMALL, row(4096, 0), row(131072, 0, 16 * GIB)),
    "sequence-too-large": made(MEMORY, row(4096, 114), row(1048576, 0, 128 * GIB)),
    "request-too-long": made(SERVED, row(4096, 0), reason="4,096 tokens are more than it takes, 2,048", **ENGINE),
    "many": made(MEMORY, *(row(1024 * n, 114 // n, n * GIB / 2) for n in range(1, 20))),
    "tiny-weights": made(replace(MEMORY, weight_bytes=1e8, kv_bytes=72 * GIB - 1e8), row(1, 147_000, 2.0**19)),
    "long-names": made(MEMORY, row(163_840, 1234, 2.0**24), gpus=16, **LONG),
    "odd-name": made(MEMORY, row(4096, 1), model="$x_1$ <script>alert(1)</script>\u6a21\x1b[31m\n%s", gpu="$\\frac$"),
    "long-reason": made(SERVED, row(4096, 0), reason="no memory is left: " + "context 2.00 + " * 30, **ENGINE),
}


def sizes(figure: Figure) -> list[dict[str, tuple[float, float]]]:
    """Return of each bar its parts with where they begin and how long they are. [GiB]"""
    [axes] = figure.axes
    colours = {look.colour.lower(): kind for kind, look in LOOKS.items() if kind not in {"reserve", "free"}}
    found: dict[int, dict[str, tuple[float, float]]] = {}
    for patch in axes.patches:
        if isinstance(patch, Rectangle) and not patch.get_hatch():
            kind = colours.get(rgb(patch.get_facecolor()), "rest")
            place = round(patch.get_y() + patch.get_height() / 2)
            found.setdefault(place, {})[kind] = (patch.get_x(), patch.get_width())
    return [found[place] for place in sorted(found)]


def rgb(colour: Any) -> str:
    """Return a colour without its alpha."""
    return "#" + "".join(f"{round(255 * part):02x}" for part in colour[:3])


def words(figure: Figure) -> str:
    """Return everything that is written on a chart, its legend and bars' names too, as one text."""
    [axes], [legend] = figure.axes, figure.legends
    texts = [*figure.texts, *axes.texts, *legend.get_texts(), *axes.get_yticklabels()]
    return " ".join(text.get_text().replace("\n", " ") for text in texts)


def test_a_bar_is_all_of_the_memory() -> None:
    """15 of weights, 57 of 114 sequences of 0.5, 8 in reserve: 80 GiB; of longer ones something is left over."""
    first, second, third = sizes(memory_chart(CASES["plain"]))

    assert first == {"weights": (0, 15), "kv": (15, 57), "rest": (72, 8)}
    assert second == {"weights": (0, 15), "kv": (15, 56), "left": (71, 1), "rest": (72, 8)}
    assert third == {"weights": (0, 15), "kv": (15, 48), "left": (63, 9), "rest": (72, 8)}


def test_a_bar_with_an_engine_has_its_parts() -> None:
    """Activations and what the engine takes stand between weights and cache; beyond its budget nothing is used."""
    first, second = sizes(memory_chart(CASES["engine"]))

    assert first == {"weights": (0, 15), "activation": (15, 1), "overhead": (16, 2), "kv": (18, 54), "rest": (72, 8)}
    assert second["left"] == (66, 6)


def test_what_is_beside_the_budget_is_drawn_beyond_it() -> None:
    """SGLang's budget is of weights and cache alone."""
    first, _ = sizes(memory_chart(CASES["beside"]))

    assert first == {"weights": (0, 15), "kv": (15, 45), "overhead": (60, 20)}


def test_states_of_sequences_are_cache() -> None:
    """Engines that count recurrent states apart from keys and values: both are what sequences take."""
    result = fitted("granite-4.0-h-tiny", "h100-sxm", "ollama")
    states = sum(term.bytes for term in result.terms if term.name == "state")
    [*_, last] = sizes(memory_chart(result))

    assert states > 0
    assert last["kv"][1] * GIB == pytest.approx(result.memory.kv_bytes + states)
    assert last["overhead"][1] * GIB == pytest.approx(result.memory.overhead_bytes - states)


@pytest.mark.parametrize("name", ["weights-too-large", "sequence-too-large"])
def test_what_does_not_fit_runs_past_the_memory(name: str) -> None:
    """Weights as they are, and one sequence behind them, whose bar ends beyond the line."""
    result = CASES[name]
    last = sizes(memory_chart(result))[-1]
    start, length = last["missing"]

    assert start == last["weights"][1] == result.memory.weight_bytes / GIB
    assert length == result.contexts[-1].kv_bytes_per_sequence / GIB
    assert start + length > 80
    assert "does not fit" in words(memory_chart(result))
    assert "a sequence: no room" in words(memory_chart(result))


def test_a_request_that_a_server_does_not_take_leaves_the_cache_empty() -> None:
    """There is room for it, but none runs; the reason stands above."""
    [bar] = sizes(memory_chart(CASES["request-too-long"]))

    assert bar.keys() == {"weights", "activation", "overhead", "left", "rest"}
    assert [each for each in bar.values() if each == (18, 54)] == [bar["left"]]
    assert "more than it takes, 2,048" in words(memory_chart(CASES["request-too-long"]))


@pytest.mark.parametrize("name", CASES)
def test_parts_are_all_of_the_memory_or_more(name: str) -> None:
    """They sum to the memory where a sequence fits, and to more than the budget where none does for want of room."""
    result = CASES[name]
    for each in result.contexts:
        parts = parts_of(result, each)
        whole = sum(part.size for part in parts)
        if any(part.kind == "missing" for part in parts):
            assert whole > result.memory.budget_bytes
        else:
            assert whole == pytest.approx(result.memory.total_bytes)
        assert all(part.size > 0 for part in parts)


REAL = [
    (model, gpu, engine, tp)
    for engine in (None, "vllm", "sglang", "llama.cpp", "ollama", "tensorrt-llm", "tgi", "lmdeploy")
    for model, gpu, tp in (("qwen2.5-7b", "rtx-4090", 1), ("llama-3.1-70b", "h200-sxm", 2))
]  # fmt: skip


def fitted(model: str, gpu: str, engine: str | None, **devices: int | None) -> FitResult:
    """Return what `fit` answers."""
    counts = {"gpus": None, "tp": None, "pp": None, "ep": None, "dp": None} | devices
    asked = Asked(model, gpu, counts, engine, None, None, None, [], Lookup(None, offline=True))
    [chart] = fit_answer(asked, None, {}, None).charts
    assert isinstance(chart.result, FitResult)
    return chart.result


@pytest.mark.parametrize(("model", "gpu", "engine", "tp"), REAL)
def test_real_answers_are_all_of_the_memory(model: str, gpu: str, engine: str | None, tp: int) -> None:
    """Of every engine the parts sum to what the device has, to a thousandth, where a sequence fits."""
    result = fitted(model, gpu, engine, tp=tp)

    for each in result.contexts:
        parts = parts_of(result, each)
        if each.max_sequences:
            assert sum(part.size for part in parts) == pytest.approx(result.memory.total_bytes, rel=1e-3)
            used = sum(part.size for part in parts if part.kind == "kv")
            assert used == pytest.approx(each.max_sequences * each.kv_bytes_per_sequence, rel=1e-6)


def test_bars_are_named_by_their_sequences() -> None:
    """How many, and of which length."""
    [axes] = memory_chart(CASES["plain"]).axes
    names = [label.get_text() for label in axes.get_yticklabels()]

    assert names == ["114 sequences\nof 4k", "14 sequences\nof 32k", "3 sequences\nof 128k"]
    assert axes.get_xlabel() == "memory of one GPU [GiB]"
    assert [label.get_text() for label in memory_chart(CASES["one"]).axes[0].get_yticklabels()] == ["1 sequence\nof 4k"]


def test_memory_and_budget_are_lines() -> None:
    """Named with their sizes; a budget that is all of the memory has none of its own."""
    figure = memory_chart(CASES["plain"])

    assert [float(line.get_xdata()[0]) for line in figure.axes[0].lines] == [80, 72]  # type: ignore[index, arg-type, call-overload, unused-ignore]
    assert "memory as sold 80.0 GiB" in words(figure)
    assert "budget 72.0 GiB" in words(figure)
    assert "budget" not in words(memory_chart(CASES["no-budget"]))
    assert "as sold" not in words(memory_chart(CASES["engine"]))


def test_parts_are_told_apart_without_colour() -> None:
    """Each has a hatch of its own, or a place and a label: weights are first, the cache is parted into sequences."""
    hatches = [look.hatch for kind, look in LOOKS.items() if look.hatch and kind != "free"]

    assert len(set(hatches)) == len(hatches)
    assert {kind for kind, look in LOOKS.items() if not look.hatch} == {"weights", "kv", "left"}
    strokes = [len(box.get_paths()) for box in memory_chart(CASES["plain"]).axes[0].collections]
    assert strokes == [13, 2]  # between 14 sequences, and between 3; 114 are too narrow


def test_the_legend_has_the_parts_that_there_are() -> None:
    """With sizes of those that are the same in every bar; of an engine what it takes, without one the reserve."""
    plain = [text.get_text() for text in memory_chart(CASES["plain"]).legends[0].get_texts()]
    engine = [text.get_text() for text in memory_chart(CASES["engine"]).legends[0].get_texts()]

    assert plain == ["weights 15.0 GiB", "KV cache in use", "cache left over", "reserve 8.00 GiB"]
    assert engine == [
        "weights 15.0 GiB", "activations 1.00 GiB", "engine 2.00 GiB", "KV cache in use", "cache left over",
        "not used 8.00 GiB",
    ]  # fmt: skip


def test_many_contexts_have_the_first_bars_and_the_last() -> None:
    """What is left out is counted below."""
    figure = memory_chart(CASES["many"])
    names = [label.get_text() for label in figure.axes[0].get_yticklabels()]

    assert len(names) == MOST_BARS
    assert names[-1] == "6 sequences\nof 19,456"
    assert "7 more contexts have no bar" in words(figure)


@pytest.mark.parametrize("name", CASES)
def test_nothing_is_cut_off_or_covers_another(name: str) -> None:
    """Every text stands within the page and apart from the others, whatever is asked."""
    figure = memory_chart(CASES[name])
    FigureCanvasAgg(figure).draw()  # type: ignore[no-untyped-call, unused-ignore]
    [axes], [legend] = figure.axes, figure.legends
    texts = [*figure.texts, *legend.get_texts(), *axes.texts, *axes.get_yticklabels()]
    boxes = [text.get_window_extent() for text in texts if text.get_text()]
    for box in boxes:
        assert min(box.x0, box.y0, figure.bbox.x1 - box.x1, figure.bbox.y1 - box.y1) >= 0
    assert not any(one.padded(-1).overlaps(other) for one, other in itertools.combinations(boxes, 2))


@pytest.mark.parametrize("name", CASES)
def test_files_are_the_same_each_time(name: str) -> None:
    """SVG byte for byte, of the charts' own colours alone; nothing warns."""
    chart = Chart("memory", CASES[name])
    svg = chart_file(chart, ".svg")
    text = svg.decode().replace('="#', ": #")
    used = {f"#{part[:6].lower()}" for part in text.split(": #")[1:] if not part.startswith(("D", "m", "h", "p"))}

    assert svg == chart_file(chart, ".svg")
    assert used <= {LIGHT.ground, LIGHT.ink, LIGHT.faint, *(colour.lower() for colour in LIGHT.contexts), "#000000"}
    assert len(svg) < 200_000
    assert chart_file(chart, ".png").startswith(b"\x89PNG\r\n\x1a\n")


def test_names_stay_text() -> None:
    """Neither markup nor formulas nor control characters of a name do anything."""
    svg = chart_file(Chart("memory", CASES["odd-name"]), ".svg").decode()

    assert "<script" not in svg
    assert "\x1b" not in svg
    assert "$x_1$" in svg


def test_a_hatch_is_no_part_of_a_tint() -> None:
    """SVG would tint both: what is filled has no hatch, what has one is not filled."""
    for patch in memory_chart(CASES["engine"]).axes[0].patches:
        assert not patch.get_hatch() or to_rgba(patch.get_facecolor())[3] == 0


def test_replicas_have_a_cache_each() -> None:
    """A device holds the sequences of its own replica: half of those that two of them answer."""
    both, one = fitted("llama-3.1-8b", "h100-sxm", "vllm", dp=2), fitted("llama-3.1-8b", "h100-sxm", "vllm")

    assert both.gpus == 2
    assert both.engine_version == f"{one.engine_version}, one of 2 replicas"
    for two, alone in zip(both.contexts, one.contexts, strict=True):
        assert two.max_sequences == pytest.approx(alone.max_sequences, rel=0.02)
    assert one_replica(one, 1) is one
    assert "one of 2 replicas" in words(memory_chart(both))
    # the answer itself is of all
    dp2 = answer("fit", "llama-3.1-8b", "--gpu", "h100-sxm", "--engine", "vllm", "--dp", "2")["result"]
    assert [2 * each.max_sequences for each in both.contexts] == [each["max_sequences"] for each in dp2["contexts"]]


def test_verdicts() -> None:
    """How many fit, or what does not."""
    assert verdict_of(CASES["plain"]) == "114 of 4k or 3 of 128k tokens at once"
    assert verdict_of(CASES["one"]) == "1 of 4k tokens at once"
    assert verdict_of(CASES["weights-too-large"]) == "weights 750 GiB, budget 72.0 GiB"
    assert verdict_of(CASES["sequence-too-large"]) == "a sequence of 1m takes 128 GiB, 57.0 GiB are left for the cache"
    assert verdict_of(CASES["request-too-long"]) == "4,096 tokens are more than it takes, 2,048"


def test_says_has_the_main_numbers() -> None:
    """For those who do not see the chart."""
    assert memory_says(CASES["engine"]) == (
        "Memory of one g, 80.0 GiB: weights 15.0 GiB, activations 1.00 GiB, engine 2.00 GiB, KV cache 54.0 GiB. m fits: "
        "108 of 4k or 3 of 128k tokens at once."
    )
    assert memory_says(CASES["weights-too-large"]).endswith(
        "weights 750 GiB, KV cache 0 GiB. m does not fit: weights 750 GiB, budget 72.0 GiB."
    )


FIT = ("fit", "llama-3.1-8b", "--gpu", "h100-sxm")


@pytest.mark.parametrize("engine", [(), ("--engine", "vllm")])
@pytest.mark.parametrize(("ending", "begins"), [(".png", b"\x89PNG\r\n\x1a\n"), (".svg", b"<?xml")])
def test_fit_draws_its_memory(tmp_path: Path, engine: tuple[str, ...], ending: str, begins: bytes) -> None:
    """--out x.png and x.svg hold the chart; stdout has the tables all the same."""
    file = tmp_path / f"x{ending}"
    outcome = roofcast(*FIT, *engine, "--out", str(file))

    assert (outcome.code, outcome.err) == (0, "")
    assert outcome.out == roofcast(*FIT, *engine).out
    assert file.read_bytes().startswith(begins)


def test_a_chart_is_of_a_log_too(tmp_path: Path) -> None:
    """A server's log names engine and flags; the chart is of what is predicted for them."""
    log = tmp_path / "server.log"
    log.write_text("INFO 11-30 10:00:00 [core.py:1] Initializing a V1 LLM engine (v0.11.0) with config: model='m'\n")
    file = tmp_path / "x.svg"
    outcome = roofcast(*FIT, "--log", str(log), "--out", str(file))

    assert outcome.code == 0, outcome.err
    assert "vllm 0.11" in file.read_text()


def test_a_page_has_the_chart() -> None:
    """--format html has it, without JavaScript; JSON is as ever."""
    page = roofcast(*FIT, "--format", "html")

    assert page.code == 0, page.err
    assert "memory of one GPU [GiB]" in page.out
    assert "<script" not in page.out
    assert "charts" not in roofcast(*FIT, "--format", "json").out


def test_a_gate_that_fails_has_its_chart(tmp_path: Path) -> None:
    """The exit code is the gate's, and the file is there to look at."""
    file = tmp_path / "x.png"
    outcome = roofcast(*FIT, "--require", "sequences>=1000@4k", "--out", str(file))

    assert outcome.code == 1
    assert "is not met" in outcome.err
    assert file.exists()


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (("--format", "json", "--out", "x.png"), ("--format json", "a file that ends in .png is a chart")),
        (("--out", "x.gif"), ("'.gif' names no format", ".png, .svg")),
        (("--out", "nowhere/x.png"), ("a folder that exists",)),
        (("--engine", "vllm", "--reserve", "10%", "--out", "x.png"), ("--reserve is of --engine none",)),
    ],
)
def test_charts_that_cannot_be_are_refused(given: tuple[str, ...], said: tuple[str, ...]) -> None:
    """In one line."""
    refused(roofcast(*FIT, *given), 2, *said)
