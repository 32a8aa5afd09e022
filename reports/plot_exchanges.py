"""Exchanges between ranks as a picture: bus bandwidth over the size of a message, a line a pattern."""

from __future__ import annotations

from itertools import accumulate
from typing import TYPE_CHECKING, Final

from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from roofcast.calculators.profiled import EAGER, GRAPH
from roofcast.hwdb.units import show_size
from roofcast.reports.plot_card import End, Words, card, name_axes, name_ends, say_instead
from roofcast.reports.plot_style import LIGHT, cut, own_style
from roofcast.reports.plot_sweep import plain_ticks

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from roofcast.calculators.profile_rows import ProfileResult
    from roofcast.calculators.profile_rows_ranks import ExchangeRow

    #: pattern and launch, and its exchanges by size
    Series = dict[tuple[str, str], list[ExchangeRow]]

TITLE: Final = "Bus bandwidth against message size"
LONGEST: Final = 40  # characters of a device's name
MOST_TICKS: Final = 6
GB: Final = 1e9
SHEET: Final = "data sheet"
#: launch -> line
LINES: Final = {GRAPH: "-", EAGER: (0, (1, 1.5))}
DASHED: Final = (0, (5, 3))


def exchanges_chart(result: ProfileResult) -> Figure:
    """Bytes that a rank has to send over the time, per pattern and launch, with the band of the 10th to 90th percentile."""
    series = _series(result)
    with own_style():
        figure, axes = card(_words(result, series), left=62, right=88)
        if not series:
            say_instead(axes, "No exchange could be measured.")
            return figure
        name_axes(axes, "payload", "bus bandwidth [GB/s]")
        _frame(axes, series)
        ends = list(_lines(axes, series))
        sheet = _sheet(series)
        if sheet:
            axes.plot(*zip(*sheet, strict=True), color=LIGHT.ink, linewidth=1.0, linestyle=DASHED, zorder=2)
            ends.append(End(sheet[-1][1], SHEET, LIGHT.ink))
        name_ends(axes, ends)
    return figure


def _series(result: ProfileResult) -> Series:
    """What was measured, patterns and launches in their order, small sizes first."""
    found: Series = {}
    for row in () if result.collectives is None else result.collectives.exchanges:
        if row.link_bytes_per_second is not None:
            found.setdefault((row.pattern, row.launched), []).append(row)
    return {key: sorted(rows, key=lambda row: row.payload_bytes) for key, rows in found.items()}


def _words(result: ProfileResult, series: Series) -> Words:
    group, machine = result.ranks, cut(result.machine.name, LONGEST)
    subject = machine if group is None else f"{group.size} ranks of {machine}, {group.library or group.backend}"
    both = len({launched for _, launched in series}) > 1
    launches = " Solid: in a graph, dotted: eager." if both else ""
    sheet = " Dashed: the most that the data sheet's links allow." if _sheet(series) else ""
    return Words(
        TITLE,
        subject,
        f"Bytes that a rank has to send whatever the way, over the time. Bands: 10th to 90th percentile.{launches}{sheet}",
    )


def _rate(row: ExchangeRow, seconds: float) -> float:
    """Bus bandwidth, were its time another. [GB/s]"""
    if row.time is None or row.link_bytes_per_second is None:
        raise ValueError("an exchange that was not measured")
    return row.link_bytes_per_second * row.time.seconds / seconds / GB


def _sheet(series: Series) -> list[tuple[int, float]]:
    """The most that any pattern could reach up to each size by the data sheet; nothing where it does not tell.

    Patterns whose payload is in parts have others than the rest where ranks do not divide them.
    """
    most: dict[int, float] = {}
    for rows in series.values():
        for row in rows:
            if row.bound_seconds:
                most[row.payload_bytes] = max(most.get(row.payload_bytes, 0.0), _rate(row, row.bound_seconds))
    return list(zip(sorted(most), accumulate((most[size] for size in sorted(most)), max), strict=True))


def _frame(axes: Axes, series: Series) -> None:
    """Both axes, logarithmic; sizes as numbers with binary units."""
    rows = [row for some in series.values() for row in some]
    rates = [_rate(row, end) for row in rows if row.time for end in (row.time.low, row.time.high)]
    rates += [rate for _, rate in _sheet(series)]
    sizes = sorted({row.payload_bytes for row in rows})
    least, most = min(rates) / 1.3, max(rates) * 1.3
    side = 1.15 if len(sizes) > 1 else 2.0
    axes.set(xscale="log", yscale="log", xlim=(sizes[0] / side, sizes[-1] * side), ylim=(least, most))
    plain_ticks(axes.yaxis, least, most)
    axes.xaxis.set_major_locator(FixedLocator(_marks(sizes)))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: show_size(round(value))))
    axes.xaxis.set_minor_locator(NullLocator())


def _marks(sizes: Sequence[int]) -> list[int]:
    """Sizes that get a number: powers of two where there are, so many at most, as even as they come.

    >>> _marks([1024, 4096, 65536, 1048576])
    [1024, 4096, 65536, 1048576]
    >>> _marks([1000, 1 << 30])
    [1024, 16384, 262144, 4194304, 67108864, 1073741824]
    """
    if len(sizes) <= MOST_TICKS - 1 and all(size % 1024 == 0 for size in sizes):
        return list(sizes)
    powers = [1 << power for power in range(41) if sizes[0] <= 1 << power <= sizes[-1]]
    every = max(2, -(-len(powers) // MOST_TICKS))
    every += every % 2  # 4-fold steps: 1, 4, 16 ... of a unit
    return powers[::every] or list(sizes[:1])


def _lines(axes: Axes, series: Series) -> Iterator[End]:
    """A line a pattern and launch in the colour of its pattern, named once."""
    patterns = list(dict.fromkeys(pattern for pattern, _ in series))
    launches = {launched for _, launched in series}
    for (pattern, launched), rows in series.items():
        colour = LIGHT.contexts[patterns.index(pattern) % len(LIGHT.contexts)]
        style = LINES[launched] if len(launches) > 1 else "-"
        sizes = [row.payload_bytes for row in rows]
        ends = [(_rate(row, row.time.high), _rate(row, row.time.low)) for row in rows if row.time]
        rates = [_rate(row, row.time.seconds) for row in rows if row.time]
        low, high = ([pair[place] for pair in ends] for place in (0, 1))
        axes.fill_between(sizes, low, high, color=colour, alpha=0.12, linewidth=0, zorder=1)
        axes.plot(sizes, rates, color=colour, linewidth=1.3, linestyle=style, marker="o", markersize=3, zorder=3)
        if launched == GRAPH or GRAPH not in {one for name, one in series if name == pattern}:
            yield End(rates[-1], pattern.replace("_", "-"), colour)
