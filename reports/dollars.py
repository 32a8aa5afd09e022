"""US dollars as people read them."""

from __future__ import annotations

from roofcast.reports.numbers import NOTHING


def money(value: float | None) -> str:
    """US dollars.

    >>> money(87072), money(2.5), money(0.0123), money(None)
    ('$87,072', '$2.50', '$0.0123', '-')
    """
    return NOTHING if value is None else f"${plain_money(value)}"


def plain_money(value: float | None) -> str:
    """The same without a sign: cents, and three figures of what is less than a dollar.

    >>> plain_money(562100.4), plain_money(12.345), plain_money(0.5), plain_money(0.00321), plain_money(0)
    ('562,100', '12.35', '0.50', '0.00321', '0.00')
    """
    if value is None:
        return NOTHING
    if value >= 1000:  # noqa: PLR2004
        return f"{value:,.0f}"
    cents = f"{value:.2f}"
    return cents if value >= 1 or float(cents) == value else f"{value:.3g}"
