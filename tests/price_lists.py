"""What models of APIs cost, by their names."""

from __future__ import annotations

from typing import TYPE_CHECKING

from roofcast.hwdb.price_files import find_prices

if TYPE_CHECKING:
    from datetime import date

    from roofcast.hwdb.prices import PriceList


def only(name: str, on: date | None = None) -> PriceList:
    """Return what one model costs."""
    [found] = find_prices([name], on=on)
    return found
