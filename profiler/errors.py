"""What can keep a measurement from being made: each is one line for the user."""

from __future__ import annotations


class ProfileUsageError(ValueError):
    """What was asked cannot be: a device that is not there, a format that it cannot multiply."""


class UnavailableError(LookupError):
    """The measurement cannot be made here: no torch, no memory, a device that is in use."""


class LostRankError(UnavailableError):
    """A rank that others wait for is not there: it never came, it ended, or it no longer answers."""


class DifferentWorkError(UnavailableError):
    """Ranks were asked for different work: raised on every rank alike, so that one is enough to say it."""


class OutOfMemoryError(UnavailableError):
    """A point that does not fit the device: a row of the answer, where others do."""


class AgreedMemoryError(OutOfMemoryError):
    """The same, raised on every rank alike, so that all go on with the next point."""


class WrongOutputError(ArithmeticError):
    """A kernel left output unwritten, or wrote what is no number: its time means nothing.

    Of the profiler's own making, so no usage error; the command line reports it with exit code 3.
    """
