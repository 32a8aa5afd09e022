"""How every chart looks: colours, fonts, and the files that it is saved into."""

from __future__ import annotations

import io
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from matplotlib import font_manager, rc_context, style

from roofcast.reports.theme import DARK, LIGHT, Theme

if TYPE_CHECKING:
    from collections.abc import Iterator

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from roofcast.reports.labels import Spot

__all__ = ["DARK", "DPI", "FONT", "LIGHT", "Theme", "cut", "known", "own_style", "saved", "saved_as", "write_at"]

DPI: Final = 150
FONT: Final = "DejaVu Sans"  # comes with matplotlib


def saved(figure: Figure, ending: str) -> bytes:
    """A chart as a file, `png` or `svg`; the same input gives the same bytes of SVG."""
    out = io.BytesIO()
    with own_style():
        figure.savefig(out, format=ending, dpi=DPI, metadata=saved_as(ending))
    return out.getvalue()


def saved_as(ending: str) -> dict[str, str | None]:
    """What a file says of its making: no date, so that the same input gives the same bytes."""
    made: dict[str, dict[str, str | None]] = {
        "png": {"Software": "roofcast"},
        "svg": {"Date": None, "Creator": "roofcast"},
    }
    return made[ending]


@contextmanager
def own_style() -> Iterator[None]:
    """Matplotlib's defaults and ours, whatever the user's own settings are."""
    ours = rc_context(
        {"font.family": FONT, "svg.fonttype": "none", "svg.hashsalt": "roofcast", "axes.unicode_minus": False}
    )
    with style.context("default", after_reset=True), ours:
        yield


def write_at(axes: Axes, text: str, middle: Spot, colour: str, size: float, *, rotation: float = 0) -> None:
    """Writes a text around a place on the page, as it stands."""
    axes.annotate(
        text,
        (0, 0),
        xytext=middle,
        textcoords="figure points",
        ha="center",
        va="center",
        fontsize=size,
        color=colour,
        rotation=rotation,
        annotation_clip=False,
        parse_math=False,
    )


def cut(name: str, most: int) -> str:
    """A name that fits on a line: both ends of a longer one.

    >>> cut("Qwen/Qwen2.5-1.5B-Instruct-GGUF", 20), cut("gpt2", 20)
    ('Qwen/Qwe...ruct-GGUF', 'gpt2')
    """
    return name if len(name) <= most else f"{name[: most - 12]}...{name[-9:]}"


def known(text: str) -> str:
    """Text in characters that the font has; others would be drawn as boxes, with a warning each."""
    has = font_manager.get_font(font_manager.findfont(FONT)).get_charmap()
    return "".join(character if ord(character) in has and character.isprintable() else "?" for character in text)
