"""What stands beside a decoder: one tower, projector or encoder, and where the reader of a class's towers is found."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from typing import Any

    from roofcast.modelspec.towers import Reader

# module -> its table of readers by wrapper class
TABLES: Final = {
    "vision": "VISION_WRAPPERS",
    "towers_more": "MORE_WRAPPERS",
    "vision_patches": "PATCH_WRAPPERS",
    "vision_mixed": "MIXED_WRAPPERS",
    "audio_more": "MORE_AUDIO_WRAPPERS",
    "vision_sam": "SAM_WRAPPERS",
    "qformer": "QFORMER_WRAPPERS",
    "janus": "JANUS_WRAPPERS",
    "radio": "RADIO_WRAPPERS",
    "towers_newest_c": "NEWEST_C_WRAPPERS",
    "speech_moe": "SPEECH_WRAPPERS",
}


@dataclass(frozen=True, slots=True)
class Tower:
    """One part of a multimodal model beside its text model.

    Args:
        name: `vision`, `vision projector`, `audio`, `talker`, ...
        parameters: how many weights it holds.
    """

    name: str
    parameters: int

    @property
    def component(self) -> str:
        """Its name among the components of a model.

        >>> Tower("vision projector", 7).component
        'vision_projector'
        """
        return self.name.replace(" ", "_")


def wrappers() -> dict[str, Reader]:
    """Every wrapper class that roofcast knows, by the outer `model_type` of its config."""
    return {name: reader for table in _tables() for name, reader in table.items()}


def find_wrapper(model_type: str) -> Reader | None:
    """The reader of a wrapper class, None where roofcast knows none of that `model_type`."""
    return next((table[model_type] for table in _tables() if model_type in table), None)


def find_encoder(model_type: str) -> Callable[[Mapping[str, Any]], tuple[Tower, ...]] | None:
    """The reader of an encoder-decoder class's encoder, None where roofcast knows none of that `model_type`."""
    from roofcast.modelspec.encoders import ENCODERS  # noqa: PLC0415 - few models have one

    return ENCODERS.get(model_type)


def _tables() -> Iterator[Mapping[str, Reader]]:
    # the widest used first: a table after the one that has the class is not imported
    return (getattr(import_module(f"roofcast.modelspec.{module}"), name) for module, name in TABLES.items())
