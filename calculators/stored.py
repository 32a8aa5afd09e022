"""Bytes of the weights by component: as the files store them, and as the config implies."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from roofcast.modelspec.components import DRAFT, as_stored, component_differences, stored_components

if TYPE_CHECKING:
    from roofcast.modelspec.model import Model


# components that are all but matrices, of which a config's torch_dtype speaks
MATRICES: Final = ("embedding", "attention", "feed_forward", "experts")


@dataclass(frozen=True, slots=True)
class StoredComponent:
    """What the weight files hold of one component."""

    component: str
    """Its name; scales is all that a quantiser adds beside the packed weights."""
    bytes: int
    """Bytes of its tensors. [B]"""
    elements: dict[str, int]
    """Dtype -> elements as stored, the most bytes first."""


def stored_by_component(model: Model) -> list[StoredComponent] | None:
    """Bytes of a model's weight files by component, their sum all of them; None where no tensor names are known. [B]"""
    if model.files is None or not model.files.tensors:
        return None
    parts = stored_components(model.files, len(model.spec.layers))
    return [StoredComponent(part.component, part.bytes, dict(part.elements)) for part in parts]


def disagreements(model: Model) -> tuple[str, ...]:
    """A line for each component whose bytes in the files are not those that the config implies; none where one lacks.

    Multi-token prediction counts only where the config's side has it. Of weights that are not quantised, the large
    matrices alone: norms are often kept in fp32, and a tied head may be stored a second time.
    """
    stored, implied = stored_by_component(model), implied_by_component(model)
    if not stored or implied is None:
        return ()
    held: dict[str, float] = {
        part.component: part.bytes for part in stored if part.component != DRAFT or DRAFT in implied
    }
    if model.spec.quantization is None:
        held, implied = ({name: side.get(name, 0) for name in MATRICES} for side in (held, implied))
    return tuple(f"{model.name}: {line}" for line in component_differences(held, implied))


def implied_by_component(model: Model) -> dict[str, float] | None:
    """Bytes that the config's quantisation implies, by the components of stored weights; None where it does not tell. [B]"""
    return None if model.implied is None else as_stored(model.implied.components)
