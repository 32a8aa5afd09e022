"""Exchanges as a picture: a line a pattern and launch, the data sheet's most, sizes as numbers; and the file of it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg

from roofcast.calculators.profile_exchanges import Links, bus_bytes, collectives_row, links_of
from roofcast.calculators.profile_making import machine_row, ranks_row
from roofcast.calculators.profile_rows import ProfileResult
from roofcast.calculators.profiled_ranks import Exchanged, RankGroup
from roofcast.hwdb.lookup import find_accelerator
from roofcast.modelspec.op import POINT_TO_POINT
from roofcast.reports.plot_exchanges import exchanges_chart
from tests.profile_values import H200, sample
from tests.running import roofcast

if TYPE_CHECKING:
    from pathlib import Path

PATTERNS = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", POINT_TO_POINT)
EIGHT = RankGroup(8, "nccl", 1, "NCCL 2.28.9", "18 NVLinks between each two")


def result(
    sizes: list[int],
    launches: tuple[str, ...] = ("eager", "graph"),
    group: RankGroup = EIGHT,
    links: Links | None = None,
) -> ProfileResult:
    """A profile of exchanges at 200 GB/s after 9 us in a graph, and 21 us eager."""
    floors = {"eager": 21e-6, "graph": 9e-6}
    measured = [
        Exchanged(one, size, how, sample(floors[how] + bus_bytes(one, size, group.size) / 200e9), group.size)
        for size in sizes
        for one in PATTERNS
        for how in launches
    ]
    found = links or links_of(find_accelerator("h200-sxm").accelerator, group)
    return ProfileResult(
        what="collectives",
        machine=machine_row(H200),
        ranks=ranks_row(group),
        collectives=collectives_row("bf16", measured, found),
    )


def texts(figure: Any) -> list[str]:
    """All that is written on it."""
    FigureCanvasAgg(figure).draw()  # type: ignore[no-untyped-call, unused-ignore]
    [axes] = figure.axes
    ticks = [label.get_text() for axis in (axes.xaxis, axes.yaxis) for label in axis.get_ticklabels()]
    return [*(text.get_text() for text in (*figure.texts, *axes.texts)), *ticks]


def test_a_line_a_pattern_and_launch() -> None:
    """Each named once, beside the data sheet's most; heights are the table's bus bandwidths."""
    made = result([1024 << (2 * step) for step in range(10)])
    figure = exchanges_chart(made)
    [axes] = figure.axes
    said = texts(figure)
    assert made.collectives is not None
    rows = [row for row in made.collectives.exchanges if (row.pattern, row.launched) == ("all_reduce", "graph")]
    heights = [row.link_bytes_per_second / 1e9 for row in rows if row.link_bytes_per_second]

    assert len(axes.lines) == 2 * len(PATTERNS) + 1
    assert any(np.asarray(line.get_ydata()).tolist() == pytest.approx(heights) for line in axes.lines)
    assert sum(line.get_linestyle() == "-" for line in axes.lines) == len(PATTERNS)
    for name in ("all-reduce", "all-gather", "reduce-scatter", "all-to-all", "point-to-point", "data sheet"):
        assert said.count(name) == 1
    assert {"1 KiB", "256 MiB"} & set(said)
    assert "8 ranks of NVIDIA H200, NCCL 2.28.9" in said


def test_without_a_data_sheet_and_without_graphs() -> None:
    """Lines are solid and no limit is drawn; odd sizes get numbers too."""
    figure = exchanges_chart(result([1000, 1_000_000], ("eager",), RankGroup(3, "gloo"), Links(3)))
    [axes] = figure.axes

    assert {line.get_linestyle() for line in axes.lines} == {"-"}
    assert "data sheet" not in texts(figure)
    assert not any("Solid" in text or "Dashed" in text for text in texts(figure))
    assert "3 ranks of NVIDIA H200, gloo" in texts(figure)


@pytest.mark.parametrize("sizes", [[1], [4096], [1 << 33], [3, 5]])
def test_few_sizes(sizes: list[int]) -> None:
    """One alone is a point; every line has one, and some size a number."""
    figure = exchanges_chart(result(sizes))

    assert any(text.endswith("B") and text[0].isdigit() for text in texts(figure))


def test_nothing_measured() -> None:
    """It says so."""
    assert "No exchange could be measured." in texts(exchanges_chart(result([])))


def test_the_command_draws_it(tmp_path: Path) -> None:
    """Two ranks of this processor, into a file."""
    pytest.importorskip("torch")
    path = tmp_path / "exchanges.png"
    asked = ("--device", "cpu", "--size", "1KiB,64KiB", "--pattern", "all_reduce", "--out", str(path))
    outcome = roofcast("profile", "collectives", *asked)

    assert outcome.code == 0, outcome.err
    assert path.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"


def test_the_data_sheets_most_never_falls() -> None:
    """Where ranks do not divide sizes, some patterns have a few bytes more than others."""
    measured = [
        Exchanged(one, size + extra, "graph", sample(20e-6), 3)
        for size in (1024, 1 << 16, 1 << 20)
        for one, extra in (("all_reduce", 0), ("all_gather", 2))
    ]
    links = links_of(find_accelerator("h200-sxm").accelerator, RankGroup(3, "nccl"))
    made = replace(result([]), collectives=collectives_row("bf16", measured, links))
    [axes] = exchanges_chart(made).axes
    [heights] = [np.asarray(line.get_ydata()).tolist() for line in axes.lines if line.get_marker() == "None"]

    assert len(heights) == 6
    assert heights == sorted(heights)
