"""Matrices of rules of `check`: the combinations of a rule's fields, less those that are excluded."""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING, Any, Final

from roofcast.cli.check_fields import OF_RULE, VARIED, strange

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from roofcast.cli.check_file import Reader

MOST_RULES: Final = 2000
MOST_VALUES: Final = 200  # of one field of a matrix


def combinations(reader: Reader, number: int, raw: Mapping[str, Any], title: str) -> list[dict[str, Any]] | None:
    """The combinations of a rule's matrix that are not excluded; one without values where it has none, None of a wrong one."""
    if "matrix" not in raw:
        if "exclude" in raw:
            reader.complain(reader.line("rules", number, "exclude"), f"rule {title!r}: exclude: goes with a matrix")
        return [{}]
    matrix, wrong = raw["matrix"], []
    if not isinstance(matrix, dict) or not matrix:
        wrong.append(("matrix", "must map fields to lists, such as {gpu: [h100-sxm, h200-sxm]}"))
        matrix = {}
    for name, values in matrix.items():
        wrong += [(f"matrix: {name[:80]}", said) for said in _varied(name, values, raw)]
    count = math.prod(len(values) for values in matrix.values() if isinstance(values, list))
    if count > MOST_RULES:
        wrong.append(("matrix", f"makes {count:,} rules; at most {MOST_RULES:,}"))
    for name, said in wrong:
        reader.complain(reader.line("rules", number, "matrix"), f"rule {title!r}: {name}: {said}")
    if wrong:
        return None
    every = [dict(zip(matrix, values, strict=True)) for values in itertools.product(*matrix.values())]
    return list(_kept(reader, number, raw.get("exclude", []), every, title))


def _varied(name: str, values: object, raw: Mapping[str, Any]) -> Iterator[str]:
    """What is wrong with one field of a matrix."""
    if name not in VARIED:
        yield "is of the rule; write it there" if name in OF_RULE | {"flags"} else strange(name, VARIED)
    elif name in raw:
        yield "stands in the rule too; write it once"
    if not isinstance(values, list) or not values:
        yield "must be a list of values, such as [1, 16]"
    elif len(values) > MOST_VALUES:
        yield f"has {len(values):,} values; at most {MOST_VALUES}"
    else:
        scalars = [value for value in values if isinstance(value, str)]
        twice = next((value for value in scalars if scalars.count(value) > 1), None)
        if twice is not None:
            yield f"{twice[:40]} is given twice; write it once"


def _kept(
    reader: Reader, number: int, exclude: object, every: Iterable[dict[str, Any]], title: str
) -> Iterator[dict[str, Any]]:
    """Combinations that are not excluded; an exclusion that excludes nothing is a slip."""
    every, entries = list(every), exclude if isinstance(exclude, list) else [exclude]
    if len(entries) > MOST_RULES:
        said = f"rule {title!r}: exclude: has {len(entries):,} entries; at most {MOST_RULES:,}"
        reader.complain(reader.line("rules", number, "exclude"), said)
        return
    gone: set[int] = set()
    for at, entry in enumerate(entries):
        where = reader.line("rules", number, "exclude", at)
        if not isinstance(entry, dict) or not entry:
            reader.complain(where, f"rule {title!r}: exclude: must be a list of mappings such as {{gpu: h100-sxm}}")
            continue
        alike = {n for n, one in enumerate(every) if all(one.get(name) == value for name, value in entry.items())}
        if not alike:
            shown = ", ".join(f"{name}: {value}" for name, value in entry.items())[:80]
            reader.complain(
                where, f"rule {title!r}: exclude: {shown} is no combination of the matrix; write its values as there"
            )
        gone |= alike
    left = [one for n, one in enumerate(every) if n not in gone]
    if every and not left:
        reader.complain(
            reader.line("rules", number, "exclude"), f"rule {title!r}: exclude: leaves nothing of the matrix"
        )
    yield from left
