"""Answers that are asked for again and again of the same frozen values."""

from __future__ import annotations

from collections import OrderedDict
from functools import wraps
from typing import TYPE_CHECKING, TypeVar, TypeVarTuple

if TYPE_CHECKING:
    from collections.abc import Callable

Asked = TypeVarTuple("Asked")
Answer = TypeVar("Answer")


def remembered(whole: int, size: int) -> Callable[[Callable[[*Asked], Answer]], Callable[[*Asked], Answer]]:
    """Keeps the last answers of a function of frozen values, which takes them by position.

    A model is too deep to be compared each time: it is told apart by which object it is, and held, so that no other one
    gets its identity while its answer is kept.

    Args:
        whole: leading arguments that are told apart by identity; the others by value.
        size: answers that are kept.

    >>> @remembered(whole=1, size=2)
    ... def doubled(parts, times):
    ...     return parts * times
    >>> parts = [1]
    >>> doubled(parts, 2) is doubled(parts, 2), doubled(parts, 2) is doubled([1], 2)
    (True, False)
    """

    def decorate(function: Callable[[*Asked], Answer]) -> Callable[[*Asked], Answer]:
        last: OrderedDict[tuple[object, ...], tuple[tuple[*Asked], Answer]] = OrderedDict()

        @wraps(function)
        def answered(*args: *Asked) -> Answer:
            key = (*map(id, args[:whole]), *args[whole:])
            if key not in last:
                last[key] = args, function(*args)
                if len(last) > size:
                    last.popitem(last=False)
            last.move_to_end(key)
            return last[key][1]

        return answered

    return decorate
