"""Runs measurements one after the other, within a budget; what is done is kept, whatever stops the rest."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from roofcast.profiler.errors import LostRankError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from roofcast.profiler.timing import Budget

    #: told before each task: its label, its number from 0, how many there are
    Watch = Callable[[str, int, int], None]

T = TypeVar("T")
SPENT: Final = "the budget is spent"
INTERRUPTED: Final = "interrupted"


@dataclass(frozen=True, slots=True)
class Task(Generic[T]):
    """One measurement.

    Args:
        label: what it is, in a few words.
        run: makes it.
    """

    label: str
    run: Callable[[], T]


@dataclass(frozen=True, slots=True)
class Swept(Generic[T]):
    """What came of tasks.

    Args:
        done: results, in order.
        left: labels of those that did not run.
        why: `SPENT` or `INTERRUPTED`, or which rank was lost; empty where all ran.
        lost: whether a rank was.
    """

    done: tuple[T, ...]
    left: tuple[str, ...] = ()
    why: str = ""
    lost: bool = False


def sweep(tasks: Iterable[Task[T]], budget: Budget, watch: Watch | None = None) -> Swept[T]:
    """Runs tasks until they are done, the budget is spent or the user interrupts.

    Errors of a task pass through: one that may be a row of the answer catches its own. Only a rank that is lost ends it.

    >>> from roofcast.profiler.timing import Budget
    >>> sweep([Task("one", lambda: 1), Task("two", lambda: 2)], Budget())
    Swept(done=(1, 2), left=(), why='', lost=False)
    >>> sweep([Task("one", lambda: 1)], Budget(0.0)).left
    ('one',)
    """
    every, done = tuple(tasks), list[T]()
    why, lost = "", False
    try:
        for number, task in enumerate(every):
            if budget.spent:
                why = SPENT
                break
            if watch is not None:
                watch(task.label, number, len(every))
            done.append(task.run())
    except KeyboardInterrupt as error:  # wherever it falls
        if budget.ranks is not None and not budget.ranks.leads:  # the others wait for it
            raise LostRankError(f"rank {budget.ranks.rank} of {budget.ranks.size} was interrupted") from error
        why = INTERRUPTED
    except LostRankError as error:  # nothing more can be measured; what is done is kept
        why, lost = str(error), True
    return Swept(tuple(done), tuple(task.label for task in every[len(done) :]), why, lost)
