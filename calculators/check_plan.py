"""Rules of `check` about plans: what the cheapest deployment that keeps limits under a load costs, and its GPUs."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from roofcast.calculators.check_rows import Found

if TYPE_CHECKING:
    from roofcast.calculators.check_quantities import Case, Setups

ALL: Final = "all"  # for the name of a GPU: every one whose usual rent is known
EACH: Final = 1.0  # price of a GPU by which the cheapest deployment is that of the fewest


@dataclass(frozen=True, slots=True)
class Option:
    """A deployment that a plan names.

    Args:
        gpu: id of its accelerator.
        count: GPUs in all.
        called: the deployment in words.
        cost: rent of all GPUs; None where no price is known. [USD/h]
        reason: why it does not do; empty of one that does.
    """

    gpu: str
    count: int
    called: str
    cost: float | None
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Planned:
    """What a plan finds.

    Args:
        most: GPUs that a deployment may have.
        best: the cheapest that keeps what is promised; None where nothing does.
        below: the next cheaper one, which does not; None where nothing costs less.
        nearest: what comes closest, where nothing keeps it.
        rent: of a GPU of the best one: who asks it, of when, and how much; None where the price is given.
    """

    most: int
    best: Option | None
    below: Option | None
    nearest: Option | None
    rent: str | None = None


def named_gpus(text: str) -> tuple[str, ...]:
    """Names of GPUs that a rule is about; none of all.

    >>> named_gpus("h100"), named_gpus("l4, l40s"), named_gpus("all"), named_gpus("")
    (('h100',), ('l4', 'l40s'), (), ())
    """
    return () if text == ALL else tuple(name.strip() for name in text.split(",") if name.strip())


def cheapest_cost(case: Case, setups: Setups) -> Found:
    """Rent of the cheapest deployment that keeps limits under a load: GPUs x price of one, as `plan` answers. [USD/h]

    Raises:
        UnansweredError: no price of a GPU is known.
    """
    found = setups.planned(case)
    if found.best is None:
        return _none(found)
    return Found(found.best.cost, _why_not(found), of=found.best.called, gpu=found.best.gpu)


def gpus_needed(case: Case, setups: Setups) -> Found:
    """Fewest GPUs of a kind that keep limits under a load, as `plan` answers where each costs the same."""
    found = setups.planned(replace(case, gpu_price=EACH))
    if found.best is None:
        return _none(found)
    return Found(found.best.count, _why_not(found), of=found.best.called, gpu=found.best.gpu)


def _why_not(found: Planned) -> str:
    """Why nothing less will do."""
    below = found.below
    return "" if below is None else f"not {below.called}: {below.reason}"


def _none(found: Planned) -> Found:
    """No deployment, and what comes closest."""
    said = f"nothing of at most {found.most:,} GPUs keeps the limits"
    near = found.nearest
    if near is None:
        return Found(None, said)
    return Found(None, f"{said}; nearest: {near.called}: {near.reason}", gpu=near.gpu)
