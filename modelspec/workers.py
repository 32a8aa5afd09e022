"""Slow calls side by side: results as they come, the first error at once, and no waiting for what hangs."""

from __future__ import annotations

import queue
import threading
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence

Item = TypeVar("Item")
Result = TypeVar("Result")


def fan_out(
    call: Callable[[Item], Result], items: Sequence[Item], *, threads: int = 1, seconds: float | None = None
) -> Generator[tuple[Item, Result]]:
    """Call a function on every item in a few threads and yield each item with its result, first done first.

    The threads are daemons: after an error, Ctrl-C or a time-out no one waits for a call that is still in the network.

    Args:
        call: what to do with an item.
        items: what to do it with.
        threads: how many calls run at once.
        seconds: how long to wait for the next result, None for ever. [s]

    Raises:
        TimeoutError: no result came in time.

    >>> dict(fan_out(len, ["a", "bcd"], threads=2)) == {"a": 1, "bcd": 3}
    True
    """
    waiting: queue.SimpleQueue[Item] = queue.SimpleQueue()
    done: queue.SimpleQueue[tuple[Item, Result | None, BaseException | None]] = queue.SimpleQueue()
    stop = threading.Event()
    for item in items:
        waiting.put(item)

    def work() -> None:
        while not stop.is_set():
            try:
                item = waiting.get_nowait()
            except queue.Empty:
                return
            try:
                done.put((item, call(item), None))
            except BaseException as error:  # noqa: BLE001  it is raised again where the results are read
                done.put((item, None, error))
                return

    for number in range(min(threads, len(items))):
        threading.Thread(target=work, name=f"roofcast-{number}", daemon=True).start()
    try:
        for _ in items:
            item, result, error = _next(done, seconds)
            if error is not None:
                raise error
            yield item, result  # type: ignore[misc]  # a Result whenever there is no error
    finally:
        stop.set()


def within(seconds: float, call: Callable[[], Result]) -> Result:
    """Return what a call returns, or give it up after so many seconds.

    Raises:
        TimeoutError: it did not return in time.

    >>> within(5.0, lambda: 6 * 7)
    42
    """
    return next(result for _, result in fan_out(lambda _: call(), [None], seconds=seconds))


def _next(done: queue.SimpleQueue[Result], seconds: float | None) -> Result:
    try:
        return done.get(timeout=seconds)
    except queue.Empty:
        msg = f"no answer within {seconds:.3g} s"
        raise TimeoutError(msg) from None
