"""Bytes of the weights by component: as the files store them, as the config implies, and in a format asked for."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from roofcast.calculators.cache import whole
from roofcast.modelspec.components import OTHER, as_stored, component_differences, stored_components
from roofcast.modelspec.formats import Format
from roofcast.modelspec.matrix import DRAFT

if TYPE_CHECKING:
    from roofcast.modelspec.model import Model
    from roofcast.modelspec.requested import Requested


# components that are all but matrices, of which a config's torch_dtype speaks
MATRICES: Final = ("embedding", "attention", "feed_forward", "experts", "scales")
_COPY: Final = r"(?:layers\.\d+|mtp|nextn)\.(?:\w+\.)*(?:embed_tokens|shared_head\.head)\.weight$"


@dataclass(frozen=True, slots=True)
class StoredComponent:
    """What the weight files hold of one component."""

    component: str
    """Its name; scales is all that a quantiser adds beside the packed weights."""
    bytes: int
    """Bytes of its tensors. [B]"""
    elements: dict[str, int]
    """Dtype -> elements as stored, the most bytes first."""


@dataclass(frozen=True, slots=True)
class ImpliedPart:
    """Weights of one component that the config has stored alike."""

    component: str
    """Its name."""
    stored: str
    """How they are stored, in words."""
    compute: str
    """The format that a device with it multiplies them in."""
    elements: int
    """Parameters."""
    bytes: int
    """Bytes of the weights alone. [B]"""
    scale_bytes: int
    """Bytes of scales, zero points and what else stands beside them. [B]"""


def stored_by_component(model: Model) -> list[StoredComponent] | None:
    """Bytes of a model's weight files by component, their sum all of them; None where no tensor names are known. [B]"""
    if model.files is None or not model.files.tensors:
        return None
    parts = model.stored or stored_components(model.files, len(model.spec.layers))
    return [StoredComponent(part.component, part.bytes, dict(part.elements)) for part in parts]


def disagreements(model: Model) -> tuple[str, ...]:
    """A line for each component whose bytes in the files are not those that the config implies; none where one lacks.

    Multi-token prediction counts only where the config's side has it, and without the copies of embedding and head that
    some files hold for it. Of weights that are not quantised matrices and scales alone: norms are often kept in fp32, and
    a tied head may be stored a second time.
    """
    stored, implied = stored_by_component(model), implied_by_component(model)
    if not stored or implied is None:
        return ()
    held: dict[str, float] = {
        part.component: part.bytes for part in stored if part.component != DRAFT or DRAFT in implied
    }
    if DRAFT in held:
        held[DRAFT] -= _copies(model)
    if model.spec.quantization is None:
        names = (*MATRICES, *(() if model.spec.tied else ("head",)))
        held, implied = ({name: side.get(name, 0) for name in names} for side in (held, implied))
    dtypes = {part.component: part.elements for part in stored}
    return tuple(f"{model.name}: {line}" for line in component_differences(held, implied, dtypes))


def _copies(model: Model) -> int:
    """Bytes of embeddings and heads that draft layers hold again: DeepSeek-V3's, and its kin's. [B]"""
    tensors = model.files.tensors if model.files else ()
    return sum(tensor.bytes for tensor in tensors if re.search(_COPY, tensor.name))


def implied_by_component(model: Model) -> dict[str, float] | None:
    """Bytes that the config implies, by the components of stored weights; None where it does not tell. [B]

    sum over matrices of (weights + scales) as the quantisation stores each, plus 16 bits an element of what it leaves
    out. Scales are a component of their own, but in multi-token prediction.
    """
    return None if model.implied is None else as_stored(model.implied.components)


def implied_parts(model: Model) -> list[ImpliedPart] | None:
    """What the config implies, component by component and each way of storing apart; None where it does not tell."""
    if model.implied is None:
        return None
    return [
        ImpliedPart(part.component, part.stored, part.compute, part.elements, part.bytes, part.beside)
        for part in model.implied.parts
    ]


def requested_by_component(model: Model, weights: Requested | None) -> dict[str, float] | None:
    """Bytes in the format asked for, by component, their sum `weight_bytes`; None where none is asked or can be told. [B]

    P x b of each component for a single format; of a mix sum over tensors of elements / block x bytes a block. What the
    files hold beyond the components that are counted is multi-token prediction where the model has any, else other.
    """
    total = model.weight_bytes(weights).value if weights else None
    if weights is None or total is None:
        return None
    if not isinstance(weights, Format):
        return {name: size for name, size in model.as_mix(weights.name).components.items() if size}
    each = weights.bytes_per_element
    counts = {name: n for name, n in model.spec.components.items() if n}
    beyond = round(total / each) - sum(counts.values())
    if beyond:
        rest = DRAFT if beyond > 0 and model.spec.mtp_layers and not model.spec.drafting else OTHER
        counts[rest] = counts.get(rest, 0) + beyond
    return {name: whole(n * each) for name, n in counts.items()}


def requested_by_type(model: Model, weights: Requested | None) -> dict[str, int] | None:
    """Parameters by ggml type in the mix asked for, the most first; None where none is asked or can be told."""
    if weights is None or isinstance(weights, Format) or model.weight_bytes(weights).value is None:
        return None
    elements = model.as_mix(weights.name).elements
    return dict(sorted(elements.items(), key=lambda item: -item[1]))
