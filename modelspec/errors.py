"""What can be wrong with a model, in two classes.

ModelError
|-- MalformedModelError       the input itself is broken
`-- UndeterminedModelError    the answer cannot be determined
    `-- UnknownArchitectureError
"""

from __future__ import annotations


class ModelError(Exception):
    """A model could not be answered for; the message is one line for its user."""


class MalformedModelError(ModelError, ValueError):
    """The config or a weight file is broken: not JSON, keys missing, sizes that cannot be.

    >>> raise MalformedModelError("config.json: hidden_size is -1; it must be a whole number above 0")
    Traceback (most recent call last):
    roofcast.modelspec.errors.MalformedModelError: config.json: hidden_size is -1; it must be a whole number above 0
    """


class UndeterminedModelError(ModelError, LookupError):
    """The model is absent, unreachable, gated, or of a kind that is not understood."""


class UnknownArchitectureError(UndeterminedModelError):
    """The config has keys that shape memory or work and that are not understood."""
