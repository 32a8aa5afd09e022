"""What providers ask for a GPU and hour: dated rents, and which of several counts. Facts only, no opinions."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from roofcast.hwdb.files import AcceleratorFileError, read_text, read_yaml, refuse_spellings, validation_problems
from roofcast.hwdb.price_reading import period_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

FOLDER: Final = Path(__file__).with_name("rents")
FIELDS: Final = "schema, provider, name, sources, rents"
#: how a GPU is rented -> which counts first: a provider's own, as long as it is paid for; a third party's, through it;
#: what may be taken away at any time; what is paid for months ahead
KINDS: Final = MappingProxyType({"on-demand": 0, "community": 1, "spot": 2, "reserved": 2})
_OLD: Final = 18  # months behind the newest of its kind
_NEAREST: Final = 3


class UnknownProviderError(ValueError):
    """No provider goes by that name; the message gives the nearest and all that are known."""


class RentFileError(AcceleratorFileError):
    """A file that does not hold rents; the message names it and every bad field."""


@dataclass(frozen=True, slots=True)
class Rent:
    """What one provider asked for one GPU and hour, as one source had it."""

    gpu: str
    """Id of the accelerator."""
    price: float
    """For one GPU and hour. [USD/h]"""
    provider: str
    """As people call it."""
    kind: str
    """on-demand, community, spot or reserved."""
    as_of: str
    """Date, month or quarter that it is of: 2026-09-07, 2026-05, 2026 Q2."""
    url: str
    """Where it was read."""
    second_hand: bool = False
    """Whether the page only quotes the provider."""
    note: str | None = None
    """What else is to be known, such as the instance that was divided by its GPUs."""


@dataclass(frozen=True, slots=True)
class Provider:
    """Whoever rents out GPUs, and all that is known of what it asks."""

    id: str
    """Name of its file."""
    name: str
    """As people call it."""
    rents: tuple[Rent, ...]
    """In the order of its file."""


def in_order(rents: Iterable[Rent]) -> tuple[Rent, ...]:
    """Rents of one GPU in the order in which they count; the first is its default.

    1. On-demand before community, and that before spot and reserved, which rank alike: what can be had, and stays.
    2. Of the same kind, one more than 18 months older than the newest of that kind after all others.
    3. Then first hand before second hand, and
    4. the lower price before the higher; of the same price the newer one.

    >>> asked = [("a", 2.0, "on-demand", "2026-09"), ("b", 1.0, "on-demand", "2024-09"), ("c", 0.5, "spot", "2026-09")]
    >>> [rent.provider for rent in in_order(Rent("h100-sxm", p, n, k, d, "https://x.org") for n, p, k, d in asked)]
    ['a', 'b', 'c']
    """
    every = tuple(rents)
    newest: dict[int, int] = {}
    for rent in every:
        newest[KINDS[rent.kind]] = max(newest.get(KINDS[rent.kind], 0), _month(rent))

    def place(rent: Rent) -> tuple[int, bool, bool, float, int, str]:
        rank = KINDS[rent.kind]
        old = newest[rank] - _month(rent) > _OLD
        return rank, old, rent.second_hand, rent.price, -period_of(rent.as_of)[1].toordinal(), rent.provider

    return tuple(sorted(every, key=place))


def _month(rent: Rent) -> int:
    """Months from year 0 to the last one of what a rent is of."""
    last = period_of(rent.as_of)[1]
    return 12 * last.year + last.month


def all_rents(provider: str | None = None) -> Mapping[str, tuple[Rent, ...]]:
    """Rents by the id of the GPU, each list in the order in which they count (`in_order`): the first is the default.

    Args:
        provider: of this one alone, by its name or its file's, in any case; None is of all.

    Raises:
        UnknownProviderError: no provider goes by that name.
        RentFileError: a file of rents is broken.
    """
    return _by_gpu(None if provider is None else _named(provider).id)


@cache
def _by_gpu(provider: str | None) -> Mapping[str, tuple[Rent, ...]]:
    found: dict[str, list[Rent]] = {}
    for one in _providers():
        for rent in one.rents if provider in {None, one.id} else ():
            found.setdefault(rent.gpu, []).append(rent)
    return MappingProxyType({gpu: in_order(found[gpu]) for gpu in sorted(found)})


def rent_of(gpu: str, provider: str | None = None) -> Rent | None:
    """The rent of a GPU that counts first; None where none is known.

    Args:
        gpu: id of the accelerator.
        provider: of this one alone; None is of all.

    Raises:
        UnknownProviderError: no provider goes by that name.
        RentFileError: a file of rents is broken.
    """
    return next(iter(all_rents(provider).get(gpu, ())), None)


def usual_rents() -> dict[str, Rent]:
    """Rents that a plan counts on where nobody says otherwise, by the id of the GPU: on-demand ones that are not old.

    Old is more than 18 months behind the newest rent of all.

    Raises:
        RentFileError: a file of rents is broken.
    """
    first = {gpu: rents[0] for gpu, rents in all_rents().items()}
    newest = max(map(_month, first.values()), default=0)
    return {gpu: rent for gpu, rent in first.items() if rent.kind == "on-demand" and newest - _month(rent) <= _OLD}


def providers() -> tuple[str, ...]:
    """Names of all providers that have rents, as people write them.

    Raises:
        RentFileError: a file of rents is broken.
    """
    return tuple(one.name for one in _providers())


def _named(name: str) -> Provider:
    known = _providers()
    asked = _key(name)
    found = next((one for one in known if asked in {_key(one.id), _key(one.name)}), None)
    if found is None:
        raise UnknownProviderError(f"no rents of {name.strip()[:80]!r}; {_nearest(asked, known)}")
    return found


def _key(name: str) -> str:
    """A name as it is compared: spaces, dots, dashes and capitals make no difference."""
    return "".join(letter for letter in name.lower() if letter.isalnum())


def _nearest(asked: str, known: tuple[Provider, ...]) -> str:
    import difflib  # noqa: PLC0415 - only errors need it

    shown = {_key(name): one.name for one in known for name in (one.id, one.name)}
    near = dict.fromkeys(shown[key] for key in difflib.get_close_matches(asked, shown, _NEAREST))
    every = f"known: {', '.join(one.name for one in known)}"
    return f"nearest: {', '.join(near)}; {every}" if near else every


@cache
def _providers() -> tuple[Provider, ...]:
    return tuple(read_rent_file(path) for path in sorted(FOLDER.glob("*.yaml")))


def read_rent_file(path: Path) -> Provider:
    """Read one file of a provider's rents, whole and checked.

    Raises:
        RentFileError: not readable, not YAML, or fields missing, unknown or malformed, which are all named.
    """
    from pydantic import ValidationError

    from roofcast.hwdb.rent_models import RentFile  # noqa: PLC0415 - pydantic loads with it

    try:
        text = read_text(path, named=False)
        fields = read_yaml(path, text, FIELDS, own=True)
        refuse_spellings(path, text, "2.5")
        RentFile.model_validate(fields)
    except ValidationError as error:
        raise RentFileError(f"{path}: {validation_problems(error, RentFile)}") from error
    except AcceleratorFileError as error:
        raise RentFileError(str(error)) from error
    if fields["provider"] != path.stem:
        raise RentFileError(f"{path}: provider is {fields['provider']!r}; it must be {path.stem!r}, the file's name")
    return Provider(fields["provider"], fields["name"], tuple(_rent(row, fields) for row in fields["rents"]))


def _rent(row: Mapping[str, Any], fields: Mapping[str, Any]) -> Rent:
    source = fields["sources"][row["source"]]
    return Rent(
        gpu=row["gpu"],
        price=float(row["price"]),
        provider=fields["name"],
        kind=row["kind"],
        as_of=str(source["as_of"]),
        url=source["url"],
        second_hand=source.get("second_hand", False),
        note=row.get("note"),
    )
