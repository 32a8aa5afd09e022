"""Bytes of the weights as tables: as stored, as the config implies, and in a format asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from roofcast.reports.document import Table, table
from roofcast.reports.numbers import GIB, NOTHING, billions, count, fixed

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from roofcast.calculators.describe import ModelResult
    from roofcast.calculators.stored import ImpliedPart, StoredComponent


def weight_tables(result: ModelResult) -> list[Table]:
    """What the files hold, else what the config implies, and what a format asked for takes."""
    tables = []
    if result.stored_components is not None:
        tables.append(_stored(result.stored_components, result.implied_components))
    elif result.stored_elements is not None:
        stored = [(dtype, count(n)) for dtype, n in result.stored_elements.items()]
        size = f"{(result.stored_bytes or 0) / GIB:.2f} GiB in the weight files"
        tables.append(table(("stored as", "elements"), stored, title=size))
    if result.stored_components is None and result.implied_parts:
        tables.append(_implied(result.implied_parts))
    if result.requested_components is not None:
        name = next(str(fact.value) for fact in result.facts if fact.name == "weight_format")
        tables.append(_requested(name, result.requested_components))
        if result.requested_types is not None:
            tables.append(_types(name, result.requested_types))
    return tables


def component_name(name: str) -> str:
    """A component as people read it.

    >>> component_name("feed_forward")
    'feed-forward'
    """
    return name.replace("_", "-")


def _stored(parts: Sequence[StoredComponent], implied: Mapping[str, float] | None) -> Table:
    """What the files hold by component, beside what the config implies where it tells more than the files."""
    held = {part.component: part for part in parts}
    total = sum(part.bytes for part in parts)
    sizes = {**dict.fromkeys(implied or (), 0), **{name: part.bytes for name, part in held.items()}}
    same = implied is None or implied == {name: part.bytes for name, part in held.items()}
    told = {} if same or implied is None else {**implied, "all": sum(implied.values())}
    rows = [
        (
            component_name(name),
            fixed(size / GIB, 2),
            f"{size / total:.1%}",
            *([fixed(told[name] / GIB, 2) if name in told else NOTHING] if told else []),
            ", ".join(held[name].elements) if name in held else "",
        )
        for name, size in (*sizes.items(), ("all", total))
    ]
    heads = ("GiB", "share", *(["config\nimplies"] if told else []), "dtypes")
    return table(("weights as stored", *heads), rows, left=(0, len(heads)))


def _implied(parts: Sequence[ImpliedPart]) -> Table:
    """What the config has the files hold, by component and way of storing; shares are of weights and scales together."""
    sums = (
        sum(part.elements for part in parts),
        sum(part.bytes for part in parts),
        sum(part.scale_bytes for part in parts),
    )
    cells = [
        *((component_name(p.component), p.stored, p.elements, p.bytes, p.scale_bytes) for p in parts),
        ("all", "", *sums),
    ]
    total = sums[1] + sums[2]
    rows = [
        (
            name,
            stored,
            billions(elements),
            fixed(size / GIB, 2),
            fixed(scales / GIB, 2) if scales else NOTHING,
            f"{(size + scales) / total:.1%}",
        )
        for name, stored, elements, size, scales in cells
    ]
    heads = ("component", "stored as", "parameters", "GiB", "scales\nGiB", "share")
    return table(heads, rows, title="weights as the config implies", left=(0, 1))


def _requested(name: str, components: Mapping[str, float]) -> Table:
    """What a format asked for takes by component."""
    total = sum(components.values())
    rows = [
        (component_name(component), fixed(size / GIB, 2), f"{size / total:.1%}")
        for component, size in (*components.items(), ("all", total))
    ]
    return table((f"weights as {name}", "GiB", "share"), rows)


def _types(name: str, elements: Mapping[str, int]) -> Table:
    """Which types of ggml a mix asked for is made of."""
    from roofcast.modelspec.ggml import BY_NAME  # noqa: PLC0415 - few ask for a mix

    rows = [(kind, count(n), fixed(BY_NAME[kind].size(n) / GIB, 2)) for kind, n in elements.items()]
    return table((f"types of {name}", "parameters", "GiB"), rows)
