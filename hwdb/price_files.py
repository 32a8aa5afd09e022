"""Files of prices: where they are, how one is read, and which prices go by a name on a day."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from roofcast.hwdb.files import (
    AcceleratorFileError,
    home_folder,
    read_text,
    read_yaml,
    refuse_spellings,
    user_yaml,
    validation_problems,
)
from roofcast.hwdb.price_reading import Offer, offers
from roofcast.hwdb.prices import UnknownPriceError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from datetime import date

    from roofcast.hwdb.prices import PriceList

BUILT_IN: Final = Path(__file__).with_name("prices")
FIELDS: Final = "schema, vendor, name, sources, models"
ALL: Final = "all"
_NEAREST: Final = 3


class PriceFileError(AcceleratorFileError):
    """A file that does not hold prices; the message names it and every bad field."""


def _folder() -> Path:
    """The folder whose files add vendors and override models by their ids."""
    try:
        return home_folder() / "prices"
    except AcceleratorFileError as error:
        raise PriceFileError(str(error)) from error


def read_price_file(path: Path) -> tuple[Offer, ...]:
    """Read one file of a vendor's prices, whole and checked.

    Raises:
        PriceFileError: not readable, not YAML, or fields missing, unknown or malformed, which are all named.
    """
    from pydantic import ValidationError

    from roofcast.hwdb.price_models import PriceFile  # noqa: PLC0415 - pydantic loads with it

    try:
        text = read_text(path, named=False)
        fields = read_yaml(path, text, FIELDS, own=False)
        refuse_spellings(path, text, "2.5")
        PriceFile.model_validate(fields)
    except ValidationError as error:
        raise PriceFileError(f"{path}: {validation_problems(error, PriceFile)}") from error
    except AcceleratorFileError as error:
        raise PriceFileError(str(error)) from error
    return offers(_written(fields))


def _written(found: Any) -> Any:  # noqa: ANN401 - of any shape
    """What is written of a mapping's fields: one left empty is as one left out."""
    if isinstance(found, dict):
        return {key: _written(value) for key, value in found.items() if value is not None}
    return [_written(value) for value in found] if isinstance(found, list) else found


@cache
def _built_in() -> tuple[Offer, ...]:
    """The project's own, which its tests check: they need no guard and no pydantic."""
    read = (read_yaml(path, None, FIELDS, own=True) for path in sorted(BUILT_IN.glob("*.yaml")))
    return tuple(offer for fields in read for offer in offers(fields))


def all_offers(extra: Path | None = None) -> tuple[Offer, ...]:
    """Every model that has prices: the project's, those of the user's folder, and those of one more file.

    What comes later replaces a model of the same vendor and id whole; without a rule of caches of its own it keeps the
    one that it replaces.

    Raises:
        PriceFileError: a file of the user's cannot be read, or two in the folder price the same model.
    """
    found = {(offer.vendor, offer.model): offer for offer in _built_in()}
    mine: dict[tuple[str, str], Path] = {}
    for path in user_yaml(_folder(), PriceFileError):
        for offer in read_price_file(path):
            key = offer.vendor, offer.model
            if key in mine:
                raise PriceFileError(f"{path}: {offer.vendor}/{offer.model} is in {mine[key].name} too; keep one")
            mine[key] = path
            found[key] = _over(offer, found)
    for offer in read_price_file(extra) if extra else ():
        found[offer.vendor, offer.model] = _over(offer, found)
    return tuple(found.values())


def _over(offer: Offer, found: dict[tuple[str, str], Offer]) -> Offer:
    """A model of the user's, with the rule of caches and the usualness of what it replaces."""
    old = found.get((offer.vendor, offer.model))
    if old is None:
        kin = next((one for one in found.values() if one.vendor == offer.vendor and not one.own_caching), None)
        return offer if offer.caching or kin is None else replace(offer, caching=kin.caching)
    names = tuple(dict.fromkeys((*offer.aliases, *old.aliases)))
    return replace(offer, caching=offer.caching or old.caching, usual=offer.usual or old.usual, aliases=names)


@cache
def newest_day() -> date:
    """The day at which the newest row of the project's own was read.

    What is asked of no day is of this one, whatever the clock says; of a model of the user's that was read later, of that day.
    """
    return max(offer.newest for offer in _built_in())


def _day(offer: Offer, on: date | None) -> date:
    return on or max(newest_day(), offer.newest)


def _in_force(found: Iterable[Offer], on: date | None) -> tuple[PriceList, ...]:
    """What was known to be in force: a list leaves out what was read later and does not say since when it holds."""
    every = (offer.on(_day(offer, on)) for offer in found)
    return tuple(prices for prices in every if prices and all(row.unknown_on is None for row in prices.rows))


def usual_prices(extra: Path | None = None, on: date | None = None) -> tuple[PriceList, ...]:
    """What the one or two models cost that stand for each vendor: a short list.

    Raises:
        PriceFileError: a file of the user's cannot be read.

    >>> {price.vendor for price in usual_prices()} >= {"anthropic", "deepseek", "google", "openai"}
    True
    """
    return _in_force((offer for offer in all_offers(extra) if offer.usual), on)


def find_prices(names: Iterable[str], extra: Path | None = None, on: date | None = None) -> tuple[PriceList, ...]:
    """What models of given names cost on a day, each once, in the order of the names.

    Args:
        names: an id or alias of a model, `vendor/model`, a vendor for all that it sells, or `all`.
        extra: one more file of the user's, which wins over all.
        on: the day; None is that of the newest row of all, and of a model that has ended its last.

    Raises:
        UnknownPriceError: nothing goes by a name, or it has no price on the day.
        PriceFileError: a file of the user's cannot be read.

    >>> [(price.model, price.rows[0].output) for price in find_prices(["gpt-4.1", "openai/GPT-4o"])]
    [('gpt-4.1', 8.0), ('gpt-4o', 10.0)]
    """
    known = all_offers(extra)
    found = (prices for name in dict.fromkeys(names) for prices in _named(name, known, on))
    return tuple({(prices.vendor, prices.model): prices for prices in found}.values())


def _named(name: str, known: tuple[Offer, ...], on: date | None) -> tuple[PriceList, ...]:
    asked = _key(name)
    if asked == ALL:
        found = _in_force(known, on)
        if not found:
            raise UnknownPriceError(
                f"no prices are known to have been in force on {on}; name a model for what was read later"
            )
        return found
    of_vendor = [offer for offer in known if asked == _key(offer.vendor)]
    if of_vendor:
        sold = _in_force(of_vendor, on)
        if not sold:
            first = of_vendor[0]
            raise UnknownPriceError(f"{name} has no price in force; {first.model}: {first.turn(_day(first, on))}")
        return sold
    named = [offer for offer in known if asked in _keys(offer)]
    if not named:
        raise UnknownPriceError(f"no prices of {name[:80]!r}; {_nearest(asked, known)}")
    if len(named) > 1:
        both = " or ".join(f"{offer.vendor}/{offer.model}" for offer in named)
        raise UnknownPriceError(f"{name!r} is sold by several; write {both}")
    day = _day(named[0], on)
    prices = named[0].on(day) or (named[0].last() if on is None else None)
    if prices is None:
        raise UnknownPriceError(f"{named[0].model} has no price on {day}; {named[0].turn(day)}")
    return (prices,)


def _key(name: str) -> str:
    """A name as it is compared: 4.5 and 4-5, spaces and capitals make no difference."""
    return re.sub(r"[\s._-]+", "-", name.strip().lower())


def _keys(offer: Offer) -> Iterator[str]:
    for name in (offer.model, offer.name, *offer.aliases):
        yield _key(name)
        yield f"{_key(offer.vendor)}/{_key(name)}"


def _nearest(asked: str, known: tuple[Offer, ...]) -> str:
    import difflib  # noqa: PLC0415 - only errors need it

    shown = {_key(name): offer.model for offer in known for name in (offer.model, *offer.aliases)}
    shown |= {offer.vendor: offer.vendor for offer in known}
    near = difflib.get_close_matches(asked.rsplit("/", 1)[-1], shown, _NEAREST)
    if near:
        return f"nearest: {', '.join(dict.fromkeys(shown[name] for name in near))}"
    return f"vendors: {', '.join(sorted({offer.vendor for offer in known}))}"
