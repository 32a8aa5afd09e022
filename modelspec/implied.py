"""Bytes of the weights that a config implies: every matrix as its quantisation stores it, and the rest plainly."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from roofcast.modelspec.errors import UndeterminedModelError
from roofcast.modelspec.formats import FORMATS
from roofcast.modelspec.matrix import DRAFT, SCALES, inventory

if TYPE_CHECKING:
    from collections.abc import Mapping

    from roofcast.modelspec.formats import Format
    from roofcast.modelspec.quantization import Packing
    from roofcast.modelspec.spec import ModelSpec


@dataclass(frozen=True, slots=True)
class Part:
    """Weights of one component that are stored alike.

    Args:
        component: as `ModelSpec.components` names it.
        stored: how, in words.
        compute: the format that a device with it multiplies them in.
        elements: parameters.
        bytes: of the weights. [B]
        beside: of scales, zero points and what else stands beside them. [B]
    """

    component: str
    stored: str
    compute: str
    elements: int
    bytes: int
    beside: int


@dataclass(frozen=True, slots=True)
class Implied:
    """What a config says of the bytes of its weights.

    Args:
        parts: component by component, each way of storing apart.
        assumptions: what had to be taken as given, a line each.
        packing: how each matrix is stored; None where none is quantised.
    """

    parts: tuple[Part, ...]
    assumptions: tuple[str, ...]
    packing: Packing | None = None

    @property
    def total(self) -> int:
        """All bytes. [B]"""
        return sum(part.bytes + part.beside for part in self.parts)

    @property
    def components(self) -> dict[str, int]:
        """Bytes by component, with scales as one of their own, but for those of draft layers, which stay with these. [B]"""
        sums: Counter[str] = Counter()
        for part in self.parts:
            sums[part.component] += part.bytes + part.beside * (part.component == DRAFT)
        beside = sum(part.beside for part in self.parts if part.component != DRAFT)
        return {**sums, **({SCALES: beside} if beside else {})}


def implied_bytes(spec: ModelSpec, packing: Packing) -> Implied:
    """Bytes of a quantised model, from its config alone.

    sum over matrices of (weights + scales) as the scheme of each stores them, and 16 bits an element of the rest.

    Raises:
        UndeterminedModelError: matrices that the quantisation reaches are not known one by one.
    """
    listing = inventory(spec)
    plain, said = _plain(spec)
    if listing.unlisted:
        msg = f"the matrices of its {' and '.join(sorted(listing.unlisted)).replace('_', '-')} are not known one by one; headers would tell"
        raise UndeterminedModelError(msg)
    sums: dict[tuple[str, str, str], list[int]] = {}
    for placed in listing.matrices:
        matrix = placed.matrix
        for share, scheme in packing.shares(placed):
            count = round(matrix.count * share)
            each = matrix.rows * matrix.columns
            sizes = scheme.sizes(matrix.rows, matrix.columns) if scheme else (int(each * plain.bytes_per_element), 0)
            key = (placed.component, scheme.name if scheme else plain.name, scheme.compute if scheme else plain.compute)
            _add(sums, key, (count * each, count * sizes[0], count * sizes[1]))
    for component, left in listing.rest.items():
        _add(sums, (component, plain.name, plain.compute), (left, int(left * plain.bytes_per_element), 0))
    parts = tuple(Part(*key, *values) for key, values in sums.items() if values[0])
    beside = ", ".join(sorted(tower.name for tower in spec.towers))
    spared = f"its {beside} is taken as stored in {plain.name}: its config does not say" if beside else ""
    lines = (*said, *packing.assumptions, *(() if packing.spares_towers or not beside else (spared,)))
    return Implied(_ordered(parts, spec.components), lines, packing)


def plain_bytes(spec: ModelSpec) -> Implied | None:
    """Bytes of a model that is not quantised, P b by component; None where its config states no format."""
    if spec.dtype is None:
        return None
    plain = FORMATS[spec.dtype]
    counted = ((name, n) for name, n in spec.components.items() if n)
    made = (Part(name, plain.name, plain.compute, n, int(n * plain.bytes_per_element), 0) for name, n in counted)
    return Implied(tuple(made), ())


def _add(sums: dict[tuple[str, str, str], list[int]], key: tuple[str, str, str], more: tuple[int, int, int]) -> None:
    held = sums.setdefault(key, [0, 0, 0])
    for index, value in enumerate(more):
        held[index] += value


def _ordered(parts: tuple[Part, ...], components: Mapping[str, int]) -> tuple[Part, ...]:
    order = list(components)
    return tuple(sorted(parts, key=lambda part: (order.index(part.component), -part.bytes)))


def _plain(spec: ModelSpec) -> tuple[Format, tuple[str, ...]]:
    """The format of what is not packed, and what was assumed for it."""
    stated = spec.dtype
    if stated in {"bf16", "fp16"}:
        return FORMATS[str(stated)], ()
    if stated is None:
        return FORMATS["bf16"], ("its config states no torch_dtype; what is not quantised is taken as bf16",)
    return FORMATS["bf16"], (
        f"torch_dtype is {stated} beside quantised weights; what is not quantised is taken as bf16",
    )
