"""Find an accelerator by its id, an alias, or the name that its driver reports."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from roofcast.hwdb.files import (
    BUILT_IN,
    AcceleratorFileError,
    accelerator_files,
    read_accelerator,
    read_text,
    read_yaml,
)
from roofcast.hwdb.units import UnitError, parse_quantity, show_bytes

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from roofcast.hwdb.accelerator import Accelerator

_VENDORS = ("nvidia", "amd", "intel", "google", "aws", "apple")
# words around a product's name that never tell one product from another
_HARMLESS = frozenset((*_VENDORS, "corporation", "tesla", "geforce", "instinct", "gpu", "graphics", "card"))
_SEPARATORS = str.maketrans("", "", " \t\r-_/.,()[]+&")
_BETWEEN_DIGITS = r"(?<=[0-9])[ \t_/.,-]+(?=[0-9])"
# a driver shows GiB-like sizes for marketed GB (80 GB is 81,920 MiB) and keeps some back for ECC and firmware
_LEAST_SHOWN, _MOST_SHOWN = 0.93, 1.09
_LONGEST_SHOWN = 80
_ALIKE = 0.5
_MOST_WORDS = 16  # no driver string is longer, and every run of words is tried


class UnknownAcceleratorError(LookupError):
    """No accelerator goes by that name; the message gives the nearest."""


@dataclass(frozen=True, slots=True)
class Match:
    """An accelerator, how its name was understood where that needs saying, and what may be wrong with it."""

    accelerator: Accelerator
    alias_note: str | None = None
    doubt: str | None = None  # the driver reports memory that no card of the name has


@dataclass(frozen=True, slots=True)
class Listing:
    """Every accelerator that could be read, by id, and one line for every file that could not."""

    accelerators: tuple[Accelerator, ...]
    problems: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Names:
    """The names in one file, normalised, and the sizes that tell cards of one name apart."""

    id: str
    path: Path
    plain: frozenset[str]
    ambiguous: Mapping[str, str]
    sizes: tuple[float, ...]
    sold: tuple[float, ...]
    variants: tuple[float, ...]
    devices: int
    memory_type: str

    @property
    def all(self) -> frozenset[str]:
        return self.plain | self.ambiguous.keys()

    def holds(self, memory: float) -> bool:
        return any(_LEAST_SHOWN * size <= memory <= _MOST_SHOWN * size for size in self.sizes)


def all_accelerators() -> Listing:
    """Read every accelerator, the user's own included.

    Raises:
        AcceleratorFileError: the user's folder cannot be listed.
    """
    accelerators: list[Accelerator] = []
    problems: list[str] = []
    for _, path in sorted(accelerator_files().items()):
        try:
            accelerators.append(read_accelerator(path))
        except AcceleratorFileError as error:
            problems.append(str(error))
    return Listing(tuple(accelerators), tuple(problems))


def find_accelerator(name: str, memory_bytes: float | None = None) -> Match:
    """Find the accelerator that a name means.

    Ids, aliases and driver strings match whole, in any case and with any separators. A longer string
    matches the longest alias in it only if the rest cannot name another product: `NVIDIA H100 NVL` is
    never an H100, and `RTX 4090 Laptop GPU` is nothing we know.

    Args:
        name: `h100-sxm`, `h100`, `NVIDIA H100 80GB HBM3`.
        memory_bytes: [B] what the driver reports; it decides where several cards share a name.

    Raises:
        UnknownAcceleratorError: nothing goes by that name, or not with that memory.
        AcceleratorFileError: the file that describes it is broken.

    >>> find_accelerator("NVIDIA H100 PCIe").accelerator.id
    'h100-pcie'
    >>> find_accelerator("NVIDIA A100-SXM4-40GB").accelerator.id
    'a100-40gb-sxm'
    """
    files = accelerator_files()
    path = files.get(name.strip().lower())
    if path is not None and memory_bytes is None:
        return Match(read_accelerator(path))
    if path is not None:
        return _noted(name, _names(path, read_yaml(path)), memory_bytes, None)
    written = _without_listing_marks(name)
    key = _key(written)
    found = _match(written, key, _names_in_files(files, key), memory_bytes) if key else None
    if found is None:
        found = _contained(written, files, memory_bytes)
    if found is None:
        raise UnknownAcceleratorError(_unknown(name, files))
    return found


def _squashed(text: str) -> str:
    return text.lower().replace("(r)", "").replace("(tm)", "").translate(_SEPARATORS)


def _key(name: str) -> str:
    """Normalise: lower case, no separators, no trademark signs, no vendor in front.

    A separator between two digits stays, as `-`: `A10 0` is no A100.

    >>> _key("NVIDIA A100-SXM4-80GB"), _key("rtx_2080 Ti"), _key("A10 0")
    ('a100sxm4-80gb', 'rtx2080ti', 'a10-0')
    """
    bare = "-".join(_squashed(part) for part in re.split(_BETWEEN_DIGITS, name.strip()))
    vendor = next((v for v in _VENDORS if bare.startswith(v) and bare != v), "")
    return bare[len(vendor) :]


def _without_listing_marks(name: str) -> str:
    """Drop what `nvidia-smi -L` prints around a name: `GPU 0: ... (UUID: ...)`."""
    return re.sub(r"^\s*GPU [0-9]+:|\(UUID:.*\)\s*$", "", name, flags=re.IGNORECASE)


def _names_in_files(files: Mapping[str, Path], key: str) -> list[_Names]:
    """Read the files in which a key stands as a name; the rest are not even parsed."""
    found: list[_Names] = []
    broken: list[AcceleratorFileError] = []
    for path in files.values():
        try:
            text = read_text(path)
            if _may_name(key, path, text):
                found.append(_names(path, read_yaml(path, text)))
        except AcceleratorFileError as error:
            broken.append(error)
    if broken and not any(key in names.plain for names in found):
        raise broken[0]  # it may be the file that says what this name means
    return found


def _may_name(key: str, path: Path, text: str) -> bool:
    """Say whether a file may have that name, without parsing it.

    Our own files have names before sources and one to a line; the user's are written in any way that YAML allows.
    """
    own = path.parent != BUILT_IN and _squashed(key) in _squashed(text.replace("\n", " "))
    ours = text if path.parent == BUILT_IN else _replaced_text(path)
    return own or (_squashed(key) in _squashed(ours) and key in _pieces(ours))


def _replaced_text(path: Path) -> str:
    """Text of the built-in file that a user's file of the same id replaces; its names go on to the user's."""
    built_in = BUILT_IN / f"{path.stem}.yaml"
    return read_text(built_in) if path.parent != BUILT_IN and built_in.exists() else ""


def _pieces(text: str) -> set[str]:
    """Every YAML scalar before the sources of a built-in file, roughly, as a key."""
    head, _, _ = text.partition("\nsources:")
    return {_key(piece) for piece in re.split(r"[\n,\[\]{}:#\"']", head)}


def _names(path: Path, fields: Mapping[str, Any]) -> _Names:
    aliases = fields.get("aliases") or []
    ambiguous = fields.get("ambiguous_aliases") or {}
    other_sizes = fields.get("memory_variants") or []
    devices = fields.get("devices", 1)
    kinds = ((aliases, list), (ambiguous, dict), (other_sizes, list), (devices, int))
    if not all(isinstance(value, kind) for value, kind in kinds) or devices < 1:
        devices = read_accelerator(path).devices  # or it says what is wrong with them
    memory = _bytes(fields.get("memory"))
    variants = tuple(_bytes(size) for size in other_sizes)
    shown = tuple(_bytes(fields.get(key)) for key in ("driver_memory", "visible_memory"))
    replaced = _replaced_text(path)
    inherited = _names(BUILT_IN / path.name, read_yaml(path, replaced)) if replaced else None
    plain = frozenset(_key(str(name)) for name in (path.stem, fields.get("name", ""), *aliases))
    own = {_key(str(name)): str(reason) for name, reason in ambiguous.items()}
    return _Names(
        id=path.stem,
        path=path,
        plain=plain | inherited.plain if inherited else plain,
        ambiguous={**inherited.ambiguous, **own} if inherited else own,
        sizes=tuple(size / part for size in (memory, *shown, *variants) if size for part in {1, devices}),
        sold=tuple(size / part for size in (memory, *variants) if size for part in {1, devices}),
        variants=variants,
        devices=devices,
        memory_type=_key(str(fields.get("memory_type", ""))),
    )


def _bytes(text: object) -> float:
    try:
        return parse_quantity(str(text), "B")
    except UnitError:
        return 0.0  # reported in full when the file itself is read


def _match(written: str, key: str, claims: Iterable[_Names], memory: float | None) -> Match | None:
    """Choose among the cards that claim a name: by memory, else the one that claims it outright."""
    claiming = [names for names in claims if key in names.all]
    fitting = [names for names in claiming if memory is None or names.holds(memory)]
    chosen = _outright(key, fitting) or (fitting[0] if memory is not None and len(fitting) == 1 else None)
    if chosen is None and (memory is None or not fitting):
        chosen = _outright(key, claiming)
    if chosen is None and not fitting:
        return None
    if chosen is None or (key in chosen.ambiguous and not fitting):
        raise UnknownAcceleratorError(_undecided(written, fitting or claiming, memory))
    settled = memory is not None and len(fitting) == 1
    return _noted(written, chosen, memory, None if settled else chosen.ambiguous.get(key))


def _outright(key: str, claiming: Iterable[_Names]) -> _Names | None:
    # the user's files come last and win
    return next((names for names in reversed(list(claiming)) if key in names.plain), None)


def _undecided(written: str, cards: Iterable[_Names], memory: float | None) -> str:
    known = ", ".join(f"{names.id} ({show_bytes(names.sizes[0], 'GB', 0)})" for names in cards)
    size = "" if memory is None else f" with {show_bytes(memory)}"
    return f"{written.strip()!r}{size} may be another card than {known}; name one by its id, or add a file for it"


def _noted(written: str, chosen: _Names, memory: float | None, meant: str | None) -> Match:
    accelerator = read_accelerator(chosen.path)
    sold = show_bytes(accelerator.memory, "GB", 0)
    notes = [f"{written.strip()!r} is taken as {chosen.id}: {meant}"] if meant else []
    doubt = None
    variant = _variant(written, chosen, memory)
    if variant:
        notes.append(f"{chosen.id} with {show_bytes(variant, 'GB', 0)} instead of {sold}")
        update = {"memory": round(variant), "driver_memory": None, "visible_memory": None}
        accelerator = accelerator.model_copy(update=update)
    elif memory is not None and not chosen.holds(memory):
        doubt = f"the driver reports {show_bytes(memory)} and {chosen.id} has {sold}: a part of it, or another card"
    elif memory is not None and memory < accelerator.memory * _LEAST_SHOWN:
        notes.append(f"the driver shows {chosen.id} as {chosen.devices} devices: each has that share of every figure")
    return Match(accelerator, "; ".join(notes) or None, doubt)


def _variant(written: str, chosen: _Names, memory: float | None) -> float | None:
    """Find the memory variant that the reported bytes or the name itself (`...-32GB`) mean."""
    sizes = [float(size) * 1e9 for size in re.findall(r"([0-9]+) ?GB", written, re.IGNORECASE)]
    for variant in chosen.variants:
        if memory is None and variant in sizes:
            return variant
        if memory is not None and _LEAST_SHOWN * variant <= memory <= _MOST_SHOWN * variant:
            return variant
    return None


def _contained(written: str, files: Mapping[str, Path], memory: float | None) -> Match | None:
    """Match the longest alias inside a longer string whose other words cannot name another product."""
    words = re.findall(r"[a-z0-9]+", re.sub(r"([0-9]) (gi?b)\b", r"\1\2", written.lower()))
    if len(words) > _MOST_WORDS:
        return None
    spans = [(i, j) for i in range(len(words)) for j in range(i + 1, len(words) + 1)]
    cards = _every_names(files)
    known = {key for names in cards for key in names.all}
    for i, j in sorted(spans, key=lambda span: -len("".join(words[slice(*span)]))):
        key = _key(" ".join(words[i:j]))
        if key not in known:
            continue
        rest = [word for word in words[:i] + words[j:] if word not in _HARMLESS]
        claims = [names for names in cards if key in names.all and all(_says_of(names, word) for word in rest)]
        if claims:
            return _match(written, key, claims, memory or _size_among(rest))
    return None


def _every_names(files: Mapping[str, Path]) -> list[_Names]:
    cards = []
    for path in files.values():
        try:
            cards.append(_own_names(path) if path.parent == BUILT_IN else _names(path, read_yaml(path)))
        except AcceleratorFileError:
            continue  # a broken file for another card must not stop this one
    return cards


@cache
def _own_names(path: Path) -> _Names:
    """Names of a built-in file, which does not change while this runs."""
    return _names(path, read_yaml(path))


def _says_of(names: _Names, word: str) -> bool:
    """Say whether a word only repeats what the card is: its size or its memory type."""
    size = re.fullmatch(r"([0-9]+)gi?b", word)
    if size:  # names carry the size as sold: an H100 96GB is no H100 NVL of 94
        return any(round(sold / 1e9) == int(size[1]) for sold in names.sold)
    return word == names.memory_type


def _size_among(words: Iterable[str]) -> float | None:
    sizes = (re.fullmatch(r"([0-9]+)gi?b", word) for word in words)
    return next((float(size[1]) * 1e9 for size in sizes if size), None)


def _unknown(name: str, files: Mapping[str, Path]) -> str:
    nearest = _nearest(name, _every_names(files))
    written = name.strip()
    shown = written if len(written) <= _LONGEST_SHOWN else f"{written[:_LONGEST_SHOWN]}..."
    near = f"nearest: {', '.join(nearest)}; " if nearest else ""
    return f"no accelerator {shown!r}; {near}`roofcast gpus` lists all"


def _nearest(name: str, cards: Iterable[_Names], count: int = 4) -> list[str]:
    from difflib import SequenceMatcher  # noqa: PLC0415 - only errors need it

    key = _key(name)[:_LONGEST_SHOWN]
    matcher = SequenceMatcher(b=key, autojunk=False)

    def likeness(known: str) -> tuple[int, float]:
        matcher.set_seq1(known)
        alike = matcher.ratio()
        # a name that the other begins with counts more than letters in common
        begins = key.startswith(known) or known.startswith(key)
        return (min(len(key), len(known)) if begins else 0, alike if begins or alike >= _ALIKE else 0.0)

    best = {names.id: max(likeness(known) for known in names.all) for names in cards}
    ranked = sorted(best, key=lambda card: (-best[card][0], -best[card][1], card))
    return [card for card in ranked[:count] if best[card] > (0, 0.0)]
