"""The colours of charts and pages; without matplotlib, so that a page without charts loads none."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

LINEAR: Final = 0.04045  # of a channel, below which sRGB is a line; Source: IEC 61966-2-1
LEGIBLE: Final = 4.5  # contrast of text with its ground at least; Source: WCAG 2.2, success criterion 1.4.3


@dataclass(frozen=True, slots=True)
class Theme:
    """Colours; those of contexts are Okabe and Ito's, told apart with any colour vision.

    Source: Okabe, Ito, Color Universal Design, 2008.
    """

    ground: str
    ink: str
    faint: str
    contexts: tuple[str, ...]


LIGHT: Final = Theme(
    "#ffffff",
    "#222222",
    "#8a8a8a",
    ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#7A4B00"),
)
DARK: Final = Theme(
    "#14171a",
    "#e8e8e8",
    "#8f979e",
    ("#56B4E9", "#E69F00", "#009E73", "#CC79A7", "#F0E442", "#D55E00", "#B58BFF"),
)


def contrast(one: str, other: str) -> float:
    """Contrast of two colours, (lighter + 0.05) / (darker + 0.05) of their luminances, 1 to 21. [-]

    Source: WCAG 2.2, definitions of contrast ratio and relative luminance.

    >>> contrast("#ffffff", "#000000"), contrast("#ffffff", "#8a8a8a")
    (21.0, 3.45)
    """
    high, low = sorted((_luminance(one), _luminance(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def legible(colour: str, theme: Theme) -> str:
    """A colour for text: itself, or as much of it as leaves enough contrast, mixed with the ink.

    >>> legible("#222222", LIGHT), legible("#E69F00", LIGHT)
    ('#222222', '#986d0e')
    """
    shares = (share / 20 for share in range(20, -1, -1))
    mixed = (_mix(colour, theme.ink, share) for share in shares)
    return next((text for text in mixed if contrast(text, theme.ground) >= LEGIBLE), theme.ink)


def _mix(colour: str, other: str, share: float) -> str:
    if share == 1:
        return colour
    parts = zip(_channels(colour), _channels(other), strict=True)
    return "#" + "".join(f"{round(share * one + (1 - share) * two):02x}" for one, two in parts)


def _luminance(colour: str) -> float:
    red, green, blue = (_linear(channel / 255) for channel in _channels(colour))
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def _linear(channel: float) -> float:
    return channel / 12.92 if channel <= LINEAR else ((channel + 0.055) / 1.055) ** 2.4


def _channels(colour: str) -> tuple[int, int, int]:
    return int(colour[1:3], 16), int(colour[3:5], 16), int(colour[5:7], 16)
