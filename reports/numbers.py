"""Numbers as people read them: the unit stands in the heading or beside the number."""

from __future__ import annotations

from typing import Final

from roofcast.hwdb.units import show_tokens

GIB: Final = 2.0**30
KIB: Final = 2.0**10
NOTHING: Final = "-"


def fixed(value: float | None, digits: int) -> str:
    """A number with so many decimals; more where rounding would leave less than two figures of it.

    >>> fixed(8.578125, 2), fixed(0.00123, 1), fixed(0, 1), fixed(None, 1)
    ('8.58', '0.0012', '0.0', '-')
    """
    if value is None:
        return NOTHING
    text = f"{value:.{digits}f}"
    if value and abs(value) < 10.0**-digits:
        return f"{value:.2g}"
    return text


def count(value: int | None) -> str:
    """A count with separators.

    >>> count(131072), count(None)
    ('131,072', '-')
    """
    return NOTHING if value is None else f"{value:,}"


def billions(value: float | None) -> str:
    """Parameters as people say them.

    >>> billions(8030261248), billions(134515008), billions(684489830400)
    ('8.03B', '135M', '684.5B')
    """
    if value is None:
        return NOTHING
    if value >= 99.995e9:  # noqa: PLR2004
        return f"{value / 1e9:.1f}B"
    if value >= 999.5e6:  # noqa: PLR2004
        return f"{value / 1e9:.2f}B"
    return f"{value / 1e6:.0f}M" if value >= 1e7 else f"{value / 1e6:.2g}M"  # noqa: PLR2004


def context_name(tokens: int) -> str:
    """A context as a heading: in k where people mean 1,024 by it, else in full.

    >>> context_name(131072), context_name(163840), context_name(128000)
    ('128k', '160k', '128,000')
    """
    return show_tokens(tokens) if tokens % 4096 == 0 or tokens in {1024, 2048} else f"{tokens:,}"
