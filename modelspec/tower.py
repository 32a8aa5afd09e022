"""What stands beside a decoder: one tower, projector or encoder, and where the reader of a class's towers is found."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from roofcast.modelspec.towers import Reader


@dataclass(frozen=True, slots=True)
class Tower:
    """One part of a multimodal model beside its text model.

    Args:
        name: `vision`, `vision projector`, `audio`, `talker`, ...
        parameters: how many weights it holds.
    """

    name: str
    parameters: int


def wrappers() -> dict[str, Reader]:
    """Every wrapper class that roofcast knows, by the outer `model_type` of its config."""
    from roofcast.modelspec.towers_more import MORE_WRAPPERS  # noqa: PLC0415 - a text model needs none
    from roofcast.modelspec.vision import VISION_WRAPPERS  # noqa: PLC0415
    from roofcast.modelspec.vision_patches import PATCH_WRAPPERS  # noqa: PLC0415

    return {**VISION_WRAPPERS, **MORE_WRAPPERS, **PATCH_WRAPPERS}


def find_wrapper(model_type: str) -> Reader | None:
    """The reader of a wrapper class, None where roofcast knows none of that `model_type`."""
    return wrappers().get(model_type)


def find_encoder(model_type: str) -> Callable[[Mapping[str, Any]], tuple[Tower, ...]] | None:
    """The reader of an encoder-decoder class's encoder, None where roofcast knows none of that `model_type`."""
    from roofcast.modelspec.encoders import ENCODERS  # noqa: PLC0415 - few models have one

    return ENCODERS.get(model_type)
