"""Exchanges between ranks: numbers that show what is wrong, rates, links of data sheets, fits, and their tables."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roofcast.calculators.answer import Remarks
from roofcast.calculators.profile_exchanges import (
    Links,
    bus_bytes,
    collectives_row,
    exchange_row,
    fitted,
    link_rows,
    links_of,
)
from roofcast.calculators.profile_making import machine_row, ranks_row
from roofcast.calculators.profile_rows import ProfileResult
from roofcast.calculators.profiled_ranks import Exchanged, RankGroup
from roofcast.hwdb.lookup import find_accelerator
from roofcast.reports.profile import profile_document
from roofcast.reports.text import render_text
from tests.profile_values import H200, sample

EIGHT = RankGroup(8, "nccl", 1, "NCCL 2.28.9", "18 NVLinks between each two")
PATTERNS = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "point_to_point")


# --- numbers that are checked


@pytest.fixture
def runtime() -> Any:
    """Open the processor."""
    pytest.importorskip("torch")
    from roofcast.profiler.runtime import open_runtime

    return open_runtime("cpu")


def numbers(runtime: Any, number: str, size: int, *, summed: bool) -> Any:
    """Give numbers that repeat after 97."""
    from roofcast.profiler.collectives_check import Numbers

    return Numbers(runtime, number, size, summed, period=97)


@pytest.mark.parametrize("number", ["bf16", "fp16", "fp32"])
@pytest.mark.parametrize("size", [2, 3, 8, 72, 256, 257, 1024])
def test_sums_are_exact_in_whatever_order(runtime: Any, number: str, size: int) -> None:
    """All numbers are whole and 0 or more, and their sum is one that the format has exactly."""
    from roofcast.profiler.collectives_check import EXACT, SUM

    made = numbers(runtime, number, size, summed=True)
    whole = sum(made.table(rank).to(runtime.torch.int64) for rank in range(size))
    tables = [made.table(rank) for rank in range(size)]

    assert int(whole.max()) <= EXACT[number]
    assert (made.table(SUM).to(runtime.torch.int64) == whole).all()
    assert min(int(table.min()) for table in tables) >= (1 if size <= EXACT[number] // 2 else 0)
    assert all(bool(table.any()) for table in tables)  # so that a rank left out shows
    assert len({tuple(table.tolist()) for table in tables}) == size


@pytest.mark.parametrize("size", [2, 127, 128, 129, 200, 255, 256, 257, 512, 1024])
def test_sums_over_many_ranks_differ_between_places(runtime: Any, size: int) -> None:
    """An element that is moved shows, also where every rank can have but 1; so does a rank left out, or counted twice."""
    from roofcast.profiler.collectives_check import SUM, Piece

    made = numbers(runtime, "bf16", size, summed=True)
    made.period = 997
    whole = made.table(SUM)
    pieces = [Piece(SUM, 0, 900)]

    assert all(float((whole == whole.roll(far)).float().mean()) < 0.1 for far in (1, 2, 8, 128, size))
    assert made.wrong(whole[:900].clone(), pieces) == 0
    assert made.wrong(whole[1:901], pieces) > 800
    for rank in (0, size // 2, size - 1):
        seen = int((made.table(rank)[:900] > 0).sum())
        assert seen > 900 / (3 * -(-size // 256))  # at about 1 / 2 of the places, or that of a group of ranks
        assert made.wrong(whole[:900] - made.table(rank)[:900], pieces) == seen


@pytest.mark.parametrize("summed", [True, False])
def test_ranks_and_places_have_other_numbers(runtime: Any, *, summed: bool) -> None:
    """Of eight ranks no two are alike, nor one and itself an element later."""
    made = numbers(runtime, "bf16", 8, summed=summed)
    tables = [made.table(rank) for rank in range(8)]

    assert not any(bool((one == other).all()) for one, other in combinations(tables, 2))
    assert all(float((one == one.roll(1)).float().mean()) < 0.2 for one in tables)


def test_pieces_are_found_where_they_belong(runtime: Any) -> None:
    """Beyond the period too; an element that is wrong, moved or not written counts."""
    from roofcast.profiler.collectives_check import Piece

    made = numbers(runtime, "fp32", 4, summed=False)
    sent = runtime.torch.empty(300)
    made.fill(sent, 2)
    got = runtime.torch.cat([sent[90:210], sent[:7]])
    pieces = [Piece(2, 90, 120), Piece(2, 0, 7)]

    assert made.wrong(sent, [Piece(2, 0, 300)]) == 0
    assert made.wrong(got, pieces) == 0
    assert made.wrong(got, [Piece(1, 90, 120), Piece(2, 0, 7)]) > 100
    got[3], got[126] = float("nan"), got[126] + 1
    assert made.wrong(got, pieces) == 2


# --- rates and links


@pytest.mark.parametrize(
    ("pattern", "moved"),
    [("all_reduce", 12e6), ("all_gather", 6e6), ("reduce_scatter", 6e6), ("all_to_all", 6e6), ("point_to_point", 8e6)],
)
def test_bus_bytes(pattern: str, moved: float) -> None:
    """Of 8 MB over four ranks: 2 x 3/4, 3/4, or all."""
    assert bus_bytes(pattern, 8e6, 4) == moved


def exchanged(pattern: str, payload: int, seconds: float, launched: str = "graph") -> Exchanged:
    """Stand for an exchange that took so long."""
    return Exchanged(pattern, payload, launched, sample(seconds), checked=8)


def h200(group: RankGroup = EIGHT) -> Links:
    """Give the links of H200s."""
    return links_of(find_accelerator("h200-sxm").accelerator, group)


def test_a_row_beside_the_data_sheet() -> None:
    """An all-gather of 8 MiB between eight H200s: 0.6 us and 7/8 of it at 450 GB/s are 16.9 us, of 20."""
    row = exchange_row(exchanged("all_gather", 8 << 20, 20e-6), h200())

    assert row.bound_seconds is not None
    assert row.bound_seconds == pytest.approx(0.6e-6 + 7 / 8 * 8388608 / 450e9)
    assert row.of_datasheet == pytest.approx(row.bound_seconds / 20e-6)
    assert row.bytes_per_second == pytest.approx(8388608 / 20e-6)
    assert row.link_bytes_per_second == pytest.approx(7 / 8 * 8388608 / 20e-6)
    assert row.expected_seconds is not None
    assert row.expected_seconds > row.bound_seconds


def test_point_to_point_is_one_link() -> None:
    """From the first to the last: a hop and the payload at 450 GB/s."""
    row = exchange_row(exchanged("point_to_point", 1 << 20, 5e-6), h200())

    assert row.bound_seconds == pytest.approx(0.6e-6 + (1 << 20) / 450e9)


@pytest.mark.parametrize("pattern", PATTERNS)
def test_hosts_are_joined_by_a_network(pattern: str) -> None:
    """Two hosts of two each are slower than one of four, and than none the network is assumed."""
    one, two = h200(replace(EIGHT, size=4)), h200(replace(EIGHT, size=4, hosts=2))
    message = exchanged(pattern, 1 << 26, 1e-3)
    near, far = (exchange_row(message, links).bound_seconds or 0.0 for links in (one, two))

    assert 0 < near < far
    assert far > (1 << 26) / 4 / 50e9  # a quarter of it at least crosses 50 GB/s
    assert one.fabric is not None
    assert one.fabric.assumptions == ()
    assert two.fabric is not None
    assert "network of 50 GB/s" in two.fabric.assumptions[0]


@pytest.mark.parametrize("group", [replace(EIGHT, backend="gloo"), None])
def test_where_links_do_not_count(group: RankGroup | None) -> None:
    """Exchanges through the host, and devices that are not in the database, have no bound."""
    links = h200(group) if group is not None else links_of(None, EIGHT)
    row = exchange_row(exchanged("all_reduce", 4096, 1e-3), links)

    assert (row.bound_seconds, row.expected_seconds, row.of_datasheet) == (None, None, None)


def test_what_did_not_run_has_no_rates() -> None:
    """Its problem is there, and nothing is fitted to it."""
    row = exchange_row(Exchanged("all_to_all", 4096, "eager", None, problem="no memory"), Links(2))

    assert (row.time, row.bytes_per_second, row.link_bytes_per_second) == (None, None, None)
    assert (row.checked_ranks, row.problem) == (0, "no memory")
    assert link_rows([Exchanged("all_to_all", 4096, "eager", None, problem="no memory")], 2) == []


# --- fits


@given(
    st.floats(1e-7, 1e-3),
    st.floats(1e6, 1e12),
    st.lists(st.integers(0, 1 << 28), min_size=2, max_size=10, unique=True),
)
def test_a_line_is_found_again(latency: float, bandwidth: float, sizes: list[int]) -> None:
    """Times that are latency and bytes over a bandwidth are fitted by it, without error."""
    line = fitted([(size, latency + size / bandwidth) for size in sizes])

    assert line is not None
    assert line.worst < 1e-6
    for size in sizes:
        assert line.latency + size / (line.bandwidth or float("inf")) == pytest.approx(latency + size / bandwidth)


@given(st.lists(st.tuples(st.integers(1, 1 << 28), st.floats(1e-6, 10)), min_size=1, max_size=12), st.randoms())
def test_fits_of_anything(points: list[tuple[int, float]], order: Any) -> None:
    """Latency and bandwidth are 0 or more, whatever the times and their order; of one size there is none."""
    line = fitted(points)
    mixed = list(points)
    order.shuffle(mixed)
    again = fitted(mixed)

    assert (line is None) == (len({size for size, _ in points}) == 1)
    if line is not None and again is not None:
        assert line.latency >= 0
        assert line.bandwidth is None or line.bandwidth > 0
        assert again.latency == pytest.approx(line.latency, rel=1e-3, abs=1e-9)


def error(points: list[tuple[float, float]], a: float, b: float) -> float:
    """Sum of the squares of relative errors."""
    return sum(((a + b * moved) / seconds - 1) ** 2 for moved, seconds in points)


def test_no_line_is_nearer() -> None:
    """Of noisy times: neither with more nor with less of one of the two."""
    points = [(1e3, 9e-6), (1e5, 11e-6), (1e6, 17e-6), (1e8, 300e-6)]
    line = fitted(points)

    assert line is not None
    assert line.bandwidth is not None
    best = error(points, line.latency, 1 / line.bandwidth)
    for a, b in ((1.01, 1.0), (0.99, 1.0), (1.0, 1.01), (1.0, 0.99)):
        assert error(points, a * line.latency, b / line.bandwidth) > best
    errors = [abs((line.latency + moved / line.bandwidth) / t - 1) for moved, t in points]
    assert line.worst == pytest.approx(max(errors))


def test_times_that_do_not_grow_have_no_bandwidth() -> None:
    """Nor have those that shrink; and without latency there is none below 0."""
    shrinking, steep = fitted([(1e3, 2e-6), (1e6, 1e-6)]), fitted([(1e3, 1e-9), (1e6, 3e-6)])

    assert shrinking is not None
    assert shrinking.bandwidth is None
    assert shrinking.latency == pytest.approx(1.2e-6)  # (1/2 + 1) / (1/4 + 1) us
    assert steep is not None
    assert steep.latency == 0.0


def test_a_line_through_two_sizes_has_no_error() -> None:
    """It meets any two; three tell how straight they lie."""
    two = [exchanged("all_reduce", size, seconds) for size, seconds in ((1000, 2e-6), (1_000_000, 9e-6))]
    three = [*two, exchanged("all_reduce", 500_000, 9e-6)]
    line = fitted([(1000, 2e-6), (500_000, 9e-6), (1_000_000, 9e-6)])  # over two ranks bytes are the payload's

    assert link_rows(two, 2)[0].latency_seconds is not None
    assert link_rows(two, 2)[0].worst_error is None
    assert line is not None
    assert link_rows(three, 2)[0].worst_error == pytest.approx(line.worst)


def test_links_of_one_size_are_not_fitted() -> None:
    """The best that was measured is there."""
    [row] = link_rows([exchanged("all_reduce", 8_000_000, 50e-6)], 8)

    assert (row.latency_seconds, row.bytes_per_second, row.worst_error) == (None, None, None)
    assert row.least_seconds == 50e-6
    assert row.best_bytes_per_second == pytest.approx(14e6 / 50e-6)


# --- what is shown


def page(links: Links, group: RankGroup, measured: list[Exchanged]) -> str:
    """Show a profile of exchanges as text of 80 columns."""
    result = ProfileResult(
        what="collectives",
        machine=machine_row(H200),
        ranks=ranks_row(group),
        collectives=collectives_row("bf16", measured, links),
    )
    return render_text(profile_document(result, {}, Remarks()), width=80)


def test_the_tables_of_eight_gpus() -> None:
    """Ten sizes, five patterns, eager and in a graph: no line is longer than a terminal's."""
    sizes = [1024 << (2 * step) for step in range(10)]
    links = h200()
    measured = [
        exchanged(pattern, size, floor + 2.2 * bus_bytes(pattern, size, 8) / 450e9, launched)
        for size in sizes
        for pattern in PATTERNS
        for launched, floor in (("eager", 21e-6), ("graph", 9.3e-6))
    ]
    text = page(links, EIGHT, measured)
    tables = text.partition("\n\n")[2].partition("\ntimes are")[0]

    assert max(map(len, tables.splitlines())) <= 80
    assert "8 ranks on 1 host, NCCL 2.28.9; 18 NVLinks between each two" in text
    assert "bf16; every element of every result right on every rank (of point to point on both ends)" in text
    assert tables.count("256 MiB") == len(PATTERNS)
    assert text.index("\nall_reduce") < text.index("\nall_gather") < text.index("fit of each pattern")
    [line] = [line for line in tables.splitlines() if line.startswith("all_to_all") and "graph" in line]
    assert line.split() == ["all_to_all", "graph", "9.30", "205", "0%", "9.30", "203", "10"]


def test_what_did_not_run_is_shown_with_its_reason() -> None:
    """Once for all sizes; a column in milliseconds where times are long."""
    absent = [Exchanged("reduce_scatter", size, "eager", None, problem="not in torch 2.0") for size in (1024, 2048)]
    text = page(Links(2), RankGroup(2, "gloo"), [*absent, exchanged("all_reduce", 1 << 28, 0.4536, "eager")])

    assert "reduce_scatter  eager   1 KiB, 2 KiB  not in torch 2.0" in text
    assert "454" in text
    assert "ms" in text
    assert "point to point on both ends" not in text
