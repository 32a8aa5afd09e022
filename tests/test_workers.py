"""Slow calls side by side."""

from __future__ import annotations

import threading

import pytest

from roofcast.modelspec.workers import fan_out, within


def test_calls_run_side_by_side() -> None:
    """Three calls that wait for each other all return."""
    meeting = threading.Barrier(3, timeout=10)

    assert sorted(item for item, _ in fan_out(lambda _: meeting.wait(), [1, 2, 3], threads=3)) == [1, 2, 3]


def test_every_item_is_called_once() -> None:
    """More items than threads are each called, and come back with their own result."""
    assert dict(fan_out(lambda n: n * n, range(50), threads=4)) == {n: n * n for n in range(50)}


def test_the_first_error_is_raised_while_others_still_run() -> None:
    """An error does not wait for a call that hangs, and nothing is called after it."""
    hang, called = threading.Event(), []

    def call(item: str) -> None:
        called.append(item)
        if item == "hangs":
            hang.wait(10)
        if item == "fails":
            raise KeyError(item)

    with pytest.raises(KeyError, match="fails"):
        list(fan_out(call, ["hangs", "fails", *"abcdefgh"], threads=1 + 1))
    before = len(called)
    hang.set()
    for thread in threading.enumerate():
        if thread.daemon and thread.name.startswith("roofcast"):
            thread.join(10)

    assert len(called) <= before + 1


def test_a_reader_that_stops_reading_stops_the_calls() -> None:
    """Results that no one takes are not worked for."""
    called: list[int] = []
    go_on = threading.Semaphore(1)

    def call(item: int) -> int:
        go_on.acquire(timeout=10)
        called.append(item)
        return item

    results = fan_out(call, range(100), threads=1)
    next(results)
    results.close()
    go_on.release(100)
    for thread in threading.enumerate():
        if thread.name.startswith("roofcast"):
            thread.join(10)

    assert len(called) <= 2


def test_a_call_that_does_not_return_is_given_up() -> None:
    """The wait for one call has an end."""
    never = threading.Event()

    with pytest.raises(TimeoutError, match=r"no answer within 0\.05 s"):
        within(0.05, lambda: never.wait(10))
    never.set()
