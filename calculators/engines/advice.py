"""What to change where a server does not start or holds too little: flags of the engine, each tried, and pairs of them."""

from __future__ import annotations

from itertools import chain
from math import floor
from typing import TYPE_CHECKING, Final

from roofcast.calculators.engines.advice_case import Change, Part, Trial, Wanted, first_case
from roofcast.calculators.engines.advice_changes import CHANGES, MOST, ONE_HOST, more_devices
from roofcast.calculators.engines.advice_repairs import repaired
from roofcast.calculators.engines.registry import engine_memory

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from roofcast.calculators.engines.advice_changes import Kind
    from roofcast.calculators.engines.terms import Advice, EngineMemory, Served

__all__ = ["CHANGES", "Wanted", "advice", "advice_of_free"]

WORTH: Final = 1.02  # times the tokens that a change must give where it is not enough
PAIRS: Final = 4  # on one number of devices


def advice(served: Served, memory: EngineMemory, wanted: Wanted, kv: float | None = None) -> list[Advice]:
    """Changes that give what is wanted, best first; where none does, those that give more than there is.

    Each is tried: what it gives is computed as the answer itself is. Pairs of changes are tried on those numbers of
    devices on which no single one is enough, and more devices as long as fewer are not enough, and one step further.

    Args:
        served: what falls short.
        memory: what the engine makes of it.
        wanted: of it.
        kv: the cache that a log states; changes then count from it. [B]
    """
    zero = Trial(first_case(served, memory, wanted, kv))
    if zero.case.meets or zero.case.engine not in CHANGES:
        return []
    base = repaired(zero)
    if base.case.meets and not base.is_shorter:
        return [base.shown()]
    found: list[Trial] = []
    for count in _counts(zero.case.gpus):
        enough = {trial.case.gpus for trial in found if _is_enough(trial) and not trial.is_file}
        if len(enough) > 1 or (enough and count > max(ONE_HOST, zero.case.gpus)):
            break
        found += _on(zero, base, count)
    return [trial.shown() for trial in sorted(_kept(found, base), key=_rank)]


def advice_of_free(served: Served, wanted: Wanted, free: float, visible: float) -> list[Advice]:
    """The share of the memory that is free, floor(100 free / visible) / 100, where the server fits in it.

    Args:
        served: vLLM, which asks for more than is free.
        wanted: of it.
        free: memory at start, as its log states it. [B]
        visible: all of it, as its log states it. [B]
    """
    share = floor(100 * free / visible) / 100 if visible > 0 else 0.0
    if not 0 < share < 1:
        return []
    text = f"--gpu-memory-utilization {share:g}"
    case = first_case(served, engine_memory(served.ready.deployment.engine, served), wanted, None)
    made = Trial(case).then(Change(case.but(gpu_memory_utilization=share), (Part("share", text, text),)))
    return [made.shown()] if made is not None and made.case.fits else []


def _counts(now: int) -> Iterator[int]:
    """Numbers of devices that are tried: those at hand, and twice, four times ... as many up to 16, at least twice."""
    count = now
    while count <= max(MOST, 2 * now):
        yield count
        count *= 2


def _is_enough(trial: Trial) -> bool:
    """Whether nothing is missing: all that is wanted, and no request cut shorter where none was asked for."""
    return trial.case.meets and not trial.is_cut


def _on(zero: Trial, base: Trial, count: int) -> list[Trial]:
    """What gives something on a number of devices: single changes, and pairs where none of them is enough."""
    if count == zero.case.gpus:
        starts, kinds = [zero], CHANGES[zero.case.engine]
        singles = [*([base] if base.parts else []), *(_best(_made(zero, kind)) for kind in kinds)]
    else:
        made = (zero.then(change) for change in more_devices(zero.case, count))
        starts = [trial for trial in made if trial is not None]
        singles = [repaired(trial) for trial in starts]
    found = [trial for trial in singles if trial is not None and _is_worth(trial, base)]
    if any(_is_enough(trial) and not trial.is_file for trial in found):
        return found
    return found + _pairs(starts, zero, found)


def _pairs(starts: list[Trial], zero: Trial, found: list[Trial]) -> list[Trial]:
    """Pairs of changes that give more than any single one, the cheapest first."""
    kinds = CHANGES[zero.case.engine]
    pairs: list[Trial | None] = []
    for start in starts:
        if start.parts:
            pairs += [_best(_made(start, kind)) for kind in kinds]
            continue
        for place, kind in enumerate(kinds):
            firsts = list(_made(start, kind, repair=False))
            pairs += [_best(chain.from_iterable(_made(one, other) for one in firsts)) for other in kinds[place + 1 :]]
    most = max((_sized(trial) for trial in found if not trial.is_file), default=0.0)
    with_file = not any(_is_enough(trial) for trial in found)  # a file that is enough alone needs no flag beside
    tried = [trial for trial in pairs if trial is not None and (with_file or not trial.is_file)]
    better = [trial for trial in tried if trial.case.fits and _sized(trial) >= WORTH * most]
    enough = [trial for trial in better if _is_enough(trial)]
    if not enough:
        return sorted(better, key=_sized, reverse=True)[:1]
    return sorted(enough, key=lambda trial: (trial.is_file, trial.cost, -trial.sequences))[:PAIRS]


def _sized(trial: Trial) -> float:
    """How much a trial gives: requests of the context asked for, else the length of one. [-]"""
    return trial.sequences * trial.case.counted if trial.case.fits else 0.0


def _made(trial: Trial, kind: Kind, *, repair: bool = True) -> Iterator[Trial]:
    """A trial with each variant of a kind of change."""
    for change in kind.make(trial.case):
        made = trial.then(change, kind.cost)
        if made is not None:
            yield repaired(made) if repair else made


def _best(trials: Iterable[Trial]) -> Trial | None:
    """Of one kind's variants, the mildest that is enough, else the one that gives most."""
    every = list(trials)
    enough = (trial for trial in every if _is_enough(trial))
    return next(enough, max(every, key=lambda trial: trial.value, default=None))


def _is_worth(trial: Trial, base: Trial) -> bool:
    """Whether a trial gives what the server does not, repaired where that helps: all that is wanted, a start, 2 % more."""
    if trial is base or not trial.case.fits or (_is_enough(trial) and not _is_enough(base)):
        return trial.case.fits
    return not base.case.fits or _sized(trial) >= WORTH * max(_sized(base), 1.0)


def _kept(found: list[Trial], base: Trial) -> list[Trial]:
    """Those that are enough, and of shorter requests those on no more devices; where none is enough, all that are better.

    Other files count where no flag is enough on as many devices.
    """
    enough = [trial for trial in found if _is_enough(trial)]
    plain = {trial.case.gpus for trial in enough if not trial.is_file}
    within = max(ONE_HOST, base.case.gpus)
    if not enough:
        near = [trial for trial in found if trial.case.gpus <= within]
        return _distinct(near or found)
    fewest = min(plain, default=within)
    whole = [trial for trial in enough if not trial.is_file or trial.case.gpus < fewest]
    cut = [trial for trial in found if trial.is_cut and trial.case.gpus <= fewest]
    flags = {trial.case.gpus for trial in (*whole, *cut) if not trial.is_file}
    return _distinct([*whole, *(trial for trial in cut if not trial.is_file or trial.case.gpus not in flags)])


def _distinct(trials: list[Trial]) -> list[Trial]:
    """Each set of parts once."""
    return list({frozenset(trial.parts): trial for trial in trials}.values())


def _rank(trial: Trial) -> tuple[object, ...]:
    """Best first: all that is wanted, the fewest devices, no other file, few flags, a whole request, what it costs."""
    meets = trial.case.meets
    return (
        not meets, trial.case.gpus, trial.is_file, len(trial.parts), trial.is_cut, trial.cost if meets else 0,
        -trial.case.counted, -trial.sequences,
    )  # fmt: skip
