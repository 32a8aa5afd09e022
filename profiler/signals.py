"""Signals, heard in another way for a while."""

from __future__ import annotations

import signal
from contextlib import contextmanager
from threading import current_thread, main_thread
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@contextmanager
def heard(number: int, handler: Callable[[int, Any], object] | signal.Handlers) -> Iterator[None]:
    """Has a handler take a signal while it lasts; as it is in a thread that is not the main one, which may set none.

    Args:
        number: of the signal.
        handler: as of `signal.signal`.
    """
    if current_thread() is not main_thread():
        yield
        return
    before = signal.signal(number, handler)
    try:
        yield
    finally:
        signal.signal(number, before)
