"""The baseline of `check`: what every rule's value was, and what the numbers were made from, in one file that diffs well."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from math import isfinite
from os.path import normpath
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from roofcast.calculators.check import BAD, Kept, change_of, show
from roofcast.calculators.check_quantities import BASES, IS, QUANTITIES
from roofcast.calculators.check_rows import Locked
from roofcast.calculators.errors import UsageError
from roofcast.modelspec.nearest import nearest
from roofcast.modelspec.strictjson import kind_of, plain, read_object

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from roofcast.calculators.check_rows import RuleRow

SCHEMA: Final = "roofcast.baseline/1"
LARGEST: Final = 10_000_000  # bytes
#: kind of a lock -> where the file has it
SECTIONS: Final[Mapping[str, str]] = {
    "model": "models",
    "accelerator": "accelerators",
    "rent": "rents",
    "constants": "constants",
    "roofcast": "versions",
}
KEYS: Final = ("schema", "rules", "lock")
MOST: Final = 1e30  # of a value
VALUE_KEYS: Final = ("quantity", "unit", "basis", "value", "file")
_DIGEST: Final = r"\b([0-9a-f]{8})[0-9a-f]{24,}\b"


class BaselineError(UsageError):
    """A baseline file that is none; the message names it and what is wrong."""


@dataclass(frozen=True, slots=True)
class Baseline:
    """What a baseline file holds.

    Args:
        rules: name of a rule -> its value.
        locks: kind and name of what numbers were made from -> its commit and digest.
    """

    rules: Mapping[str, Kept] = field(default_factory=lambda: MappingProxyType({}))
    locks: Mapping[tuple[str, str], str] = field(default_factory=lambda: MappingProxyType({}))


def read_baseline(data: bytes, where: str) -> Baseline:
    """Reads a baseline file.

    Args:
        data: its bytes.
        where: its name, as messages have it.

    Raises:
        MalformedModelError: it is no JSON object.
        BaselineError: it is no baseline of this version, or a value in it cannot be.
    """
    found = read_object(data, where, unique=True)
    if found.get("schema") != SCHEMA:
        raise BaselineError(
            f"{where}: schema is {_shown(found.get('schema'))}; a baseline of this version has {SCHEMA}"
        )
    _refuse_others(found, KEYS, where)
    rules = {
        name: _kept(value, f"{where}: rule {plain(name)}") for name, value in _object(found, "rules", where).items()
    }
    sections, locks = _object(found, "lock", where), {}
    _refuse_others(sections, SECTIONS.values(), f"{where}: lock")
    for kind, section in SECTIONS.items():
        for name, text in _object(sections, section, f"{where}: lock").items():
            if not isinstance(text, str):
                raise BaselineError(f"{where}: lock: {plain(name)} is {kind_of(text)}; it must be text")
            locks[kind, name] = text
    return Baseline(rules, locks)


def _object(found: Mapping[str, Any], key: str, where: str) -> Mapping[str, Any]:
    value = found.get(key, {})
    if not isinstance(value, dict):
        raise BaselineError(f"{where}: {key} is {kind_of(value)}; it must be an object")
    return value


def _refuse_others(found: Mapping[str, Any], known: Collection[str], where: str) -> None:
    strange = next((key for key in found if key not in known), None)
    if strange is not None:
        near = nearest(strange, known, 1)
        hint = f" (did you mean {near[0]}?)" if near else ""
        raise BaselineError(f"{where}: {plain(strange)} is not a key{hint}; known: {', '.join(known)}")


def _kept(found: object, where: str) -> Kept:
    """One rule's value."""
    if not isinstance(found, dict):
        raise BaselineError(f"{where}: is {kind_of(found)}; it must be an object")
    _refuse_others(found, VALUE_KEYS, where)
    quantity, unit, basis, value, file = (found.get(key) for key in VALUE_KEYS)
    for key, text in (("quantity", quantity), ("unit", unit), ("file", "" if file is None else file)):
        if not isinstance(text, str):
            raise BaselineError(f"{where}: {key} is {kind_of(text)}; it must be text")
    if basis is not None and basis not in BASES:
        raise BaselineError(f"{where}: basis is {_shown(basis)}; it must be one of {', '.join(BASES)}, or null")
    about = QUANTITIES.get(str(quantity))
    yes = about is not None and about.sign == IS
    if isinstance(value, bool) if yes else _is_number(value):
        return Kept(str(quantity), str(unit), basis, value, file)  # type: ignore[arg-type]  # looked at just above
    right = "true or false" if yes else f"a number from 0 to {MOST:g}"
    raise BaselineError(f"{where}: value is {_shown(value)}; it must be {right}")


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= MOST


def _shown(value: object) -> str:
    if isinstance(value, str):
        return plain(value)
    return str(value)[:40] if isinstance(value, float | int) and not isinstance(value, bool) else kind_of(value)


def render_baseline(baseline: Baseline) -> str:
    """The file: sorted by name and indented, so that a diff shows what moved and nothing else."""
    rules = {
        name: {key: getattr(one, key) for key in VALUE_KEYS if getattr(one, key) is not None}
        for name, one in sorted(baseline.rules.items())
    }
    locks: dict[str, dict[str, str]] = {}
    for (kind, name), text in sorted(baseline.locks.items()):
        locks.setdefault(SECTIONS[kind], {})[name] = text
    content = {"schema": SCHEMA, "rules": rules, "lock": dict(sorted(locks.items()))}
    return json.dumps(content, indent=2, allow_nan=False) + "\n"


@dataclass(frozen=True, slots=True)
class Places:
    """Where rule files stand, as a baseline file names them: from its own folder, wherever a run is.

    Args:
        of: file, as it was given -> as the baseline names it.
    """

    of: Mapping[str, str]

    def bare(self, name: str, file: str) -> str:
        """A rule's name without that of its file, which stands before names that several files have."""
        return name.removeprefix(f"{normpath(file)}: ")

    def stored(self, name: str, file: str) -> str:
        """A rule's name as the baseline has it."""
        bare = self.bare(name, file)
        return name if bare == name else f"{self.of[file]}: {bare}"

    def kept(self, before: Baseline, name: str, file: str) -> Kept | None:
        """What a baseline has of a rule of a file; None where it has nothing, or only of one in another file."""
        where, bare = self.of[file], self.bare(name, file)
        found = (before.rules.get(known) for known in (bare, f"{where}: {bare}"))
        return next((kept for kept in found if kept is not None and kept.file in {None, where}), None)

    def beside(self, before: Baseline) -> list[str]:
        """Files that a baseline is of, and that are not among these, as it names them."""
        return sorted({kept.file for kept in before.rules.values() if kept.file is not None} - set(self.of.values()))


def updated(
    before: Baseline, rows: Sequence[RuleRow], found: Mapping[tuple[str, str], str], places: Places
) -> tuple[Baseline, list[str]]:
    """The baseline after a run, and what is said of what was kept.

    It has the rules of the run and no others; what could not be told stays as it was, and so do the locks that it was made
    with.

    Args:
        before: as the file was.
        rows: of the run.
        found: what its numbers were made from.
        places: of the rule files.
    """
    rules, kept = {}, {}
    for row in rows:
        name, known = places.stored(row.name, row.file), places.kept(before, row.name, row.file)
        if row.actual is not None and isfinite(row.actual):
            rules[name] = Kept(row.quantity, row.unit, row.basis, row.actual, places.of[row.file])
        elif known is not None and row.code not in {1, BAD}:
            kept[name] = known
    if not kept:
        return Baseline(rules, dict(found)), []
    held = {key: text for key, text in before.locks.items() if found.get(key) != text}
    said = [
        f"baseline: {name} is kept, {show(one.value, one.unit)}: it could not be told" for name, one in kept.items()
    ]
    said += [
        f"baseline: {key[0]} {key[1]} stays locked as it was: values that are kept were made with it"
        for key in sorted(held.keys() & found.keys())
    ]
    return Baseline({**rules, **kept}, {**found, **held}), said


def moved(before: Baseline, after: Baseline) -> list[str]:
    """What an update changed, a line each."""
    lines = []
    for name in sorted(before.rules.keys() | after.rules.keys()):
        old, new = before.rules.get(name), after.rules.get(name)
        if new == old:
            continue
        if new is None:
            lines.append(f"baseline: {name} is left out")
        elif old is None:
            lines.append(f"baseline: {name} is new: {show(new.value, new.unit)}")
        elif (old.quantity, old.unit, old.basis, old.value) != (new.quantity, new.unit, new.basis, new.value):
            lines.append(
                f"baseline: {name} was {show(old.value, old.unit)}, is {show(new.value, new.unit)}{_by(old, new)}"
            )
    for key in sorted(before.locks.keys() & after.locks.keys()):
        if before.locks[key] != after.locks[key]:
            was, now = differing(before.locks[key], after.locks[key])
            lines.append(f"baseline: {key[0]} {key[1]} was {was}, is {now}")
    return lines


def _by(old: Kept, new: Kept) -> str:
    """How far a number moved, where it is still of the same kind."""
    alike = (old.quantity, old.unit, old.basis) == (new.quantity, new.unit, new.basis)
    if not alike or isinstance(new.value, bool) or isinstance(old.value, bool) or not old.value:
        return ""
    return f" ({change_of(old.value, new.value).removesuffix(' against')})"


def locked(found: Mapping[tuple[str, str], str], baseline: Baseline | None) -> list[Locked]:
    """What numbers were made from, beside what the baseline has of it."""
    kept = {} if baseline is None else baseline.locks
    return [Locked(kind, name, text, kept.get((kind, name))) for (kind, name), text in sorted(found.items())]


def what_moved(locks: Sequence[Locked]) -> list[tuple[Locked, str]]:
    """Locks that are not as the baseline has them, each with what is said of it; those that it lacks are not among them."""
    lines = []
    for one in locks:
        if one.locked is not None and one.locked != one.found:
            was, now = differing(one.locked, one.found)
            lines.append((one, f"locked {was}, found {now}"))
    return lines


def differing(before: str, now: str) -> tuple[str, str]:
    """The parts of two locks that differ, commits and digests cut to what people compare.

    >>> differing("commit " + "a" * 40 + ", config sha256:" + "c" * 64, "commit " + "b" * 40 + ", config sha256:" + "c" * 64)
    ('commit aaaaaaaa', 'commit bbbbbbbb')
    """
    old, new = before.split(", "), now.split(", ")
    shared = {part for part in old if part in new}
    cut = [", ".join(re.sub(_DIGEST, r"\1", part) for part in parts if part not in shared) for parts in (old, new)]
    return cut[0][:200] or "nothing", cut[1][:200] or "nothing"
