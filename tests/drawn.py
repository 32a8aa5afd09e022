"""What every chart is held to as it is drawn: words that can be read, and colours that a page can turn dark."""

from __future__ import annotations

import re
from itertools import combinations
from typing import TYPE_CHECKING

from matplotlib.colors import to_hex

from roofcast.reports.plot_style import LIGHT

if TYPE_CHECKING:
    from collections.abc import Iterable

    from matplotlib.figure import Figure
    from matplotlib.text import Text


def assert_apart(texts: Iterable[Text]) -> None:
    """Texts of a drawn figure do not meet, but for a margin of three pixels."""
    boxes = [(text.get_text(), text.get_window_extent()) for text in texts if text.get_text()]
    for (text, box), (other, beside) in combinations(boxes, 2):
        assert not box.padded(-3).overlaps(beside.padded(-3)), (text, other)


def assert_readable(figure: Figure, texts: Iterable[Text]) -> None:
    """Texts of a drawn figure stay on the page and off one another."""
    said = [text for text in texts if text.get_text()]
    for one in said:
        text, box = one.get_text(), one.get_window_extent()
        assert box.x0 >= 0, text
        assert box.x1 <= figure.bbox.x1, text
        assert box.y0 >= 0, text
        assert box.y1 <= figure.bbox.y1 + 1, text
    assert_apart(said)


def assert_theme(svg: bytes) -> None:
    """An SVG has only colours of the theme, which a page turns into variables."""
    used = {colour.lower() for colour in re.findall(r"#[0-9a-fA-F]{6}\b", svg.decode())}
    assert used <= {to_hex(colour) for colour in (LIGHT.ground, LIGHT.ink, LIGHT.faint, *LIGHT.contexts)}
