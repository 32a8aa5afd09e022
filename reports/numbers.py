"""Numbers as people read them: the unit stands in the heading or beside the number."""

from __future__ import annotations

from typing import Final

from roofcast.hwdb.units import show_si, show_tokens

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


def sequences(value: int) -> str:
    """So many sequences.

    >>> sequences(1), sequences(1024)
    ('1 sequence', '1,024 sequences')
    """
    return f"{value:,} sequence{'s' if value != 1 else ''}"


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


def millis(seconds: float | None) -> str:
    """A time in milliseconds.

    >>> millis(11.95), millis(0.06246), millis(0.003239), millis(4e-7), millis(None)
    ('11,950', '62.5', '3.24', '0.0004', '-')
    """
    return NOTHING if seconds is None else figures(seconds * 1e3)


def figures(value: float | None) -> str:
    """A number with three figures, whole from 100 on; for columns whose rows differ by powers of ten.

    >>> figures(65578.4), figures(99.96), figures(42.44), figures(1.1), figures(0.5), figures(0), figures(None)
    ('65,578', '100', '42.4', '1.10', '0.5', '0', '-')
    """
    if value is None:
        return NOTHING
    rounded = abs(float(f"{value:.3g}"))
    for least, digits in ((100, 0), (10, 1), (1, 2)):
        if rounded >= least:
            return f"{value:,.{digits}f}"
    return f"{value:.3g}"


def ratio(value: float | None) -> str:
    """A number over another.

    >>> ratio(0.5), ratio(12.34), ratio(370.6), ratio(0.0042), ratio(None)
    ('0.50', '12.3', '371', '0.0042', '-')
    """
    return figures(value) if value is not None and value >= 10 else fixed(value, 2)  # noqa: PLR2004


def short(value: float) -> str:
    """A number with its SI prefix; the unit stands in the heading.

    >>> short(61575882866688), short(17157332992), short(0)
    ('61.6 T', '17.2 G', '0')
    """
    return show_si(value, "", 3).strip()


def context_name(tokens: int) -> str:
    """A context as a heading: in k where people mean 1,024 by it, else in full.

    >>> context_name(131072), context_name(163840), context_name(128000)
    ('128k', '160k', '128,000')
    """
    return show_tokens(tokens) if tokens % 4096 == 0 or tokens in {1024, 2048} else f"{tokens:,}"
