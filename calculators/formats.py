"""Formats that a device has no arithmetic for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from roofcast.modelspec.formats import FORMATS, Format

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from roofcast.modelspec.model import Model
    from roofcast.modelspec.requested import Requested

# a quantisation method that names its format -> that format
METHODS: Final[dict[str, str]] = {"fp8": "fp8", "mxfp4": "mxfp4"}


def missing_formats(model: Model, gpu: str, flags: Mapping[str, bool | None], used: Sequence[Requested]) -> list[str]:
    """One line for every format in use that the device has no arithmetic for; its bytes are counted all the same.

    Args:
        model: its stored format counts where none is asked for.
        gpu: id of the accelerator.
        flags: format -> whether the device computes in it; None where not known.
        used: formats asked for: of the cache, and of the weights where one is.
    """
    packed = [] if len(used) > 1 else _stored(model)
    names = dict.fromkeys([asked.compute for asked in used if isinstance(asked, Format)] + packed)
    return [
        f"{gpu} has no {name} arithmetic: an engine converts or refuses; bytes are counted in the format asked"
        for name in names
        if flags.get(name) is False
    ]


def _stored(model: Model) -> list[str]:
    """Formats that the weights as stored multiply in."""
    if model.implied and not _contradicted(model):
        return [part.compute for part in model.implied.parts]
    stored = METHODS.get(model.spec.quantization or "", model.spec.dtype or "")
    return [FORMATS[stored].compute] if stored in FORMATS else []


def _contradicted(model: Model) -> bool:
    """Whether the files are not what the config implies."""
    if model.files is None or not model.files.tensors:
        return False
    from roofcast.calculators.stored import disagreements  # noqa: PLC0415 - few models are read by tensor

    return bool(disagreements(model))
