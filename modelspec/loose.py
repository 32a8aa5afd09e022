"""What a step runs and reads beside matrices: norms, biases, residuals, tables that tokens look up in."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from roofcast.modelspec.components import NORMS
from roofcast.modelspec.matrix import ATTENTION, EMBEDDING, FEED_FORWARD, OTHER
from roofcast.modelspec.sharding import is_summed

if TYPE_CHECKING:
    from roofcast.modelspec.ffn import FeedForward
    from roofcast.modelspec.layers import Layer
    from roofcast.modelspec.spec import ModelSpec
    from roofcast.modelspec.storage import Storage

IN_EXPERTS: Final = ".experts."


def running(spec: ModelSpec) -> list[tuple[Layer, int]]:
    """Layers that tokens pass, and how many are alike."""
    return [(layer, alike) for layer, alike in spec.layer_counts.items() if not layer.skipped]


def loose(spec: ModelSpec, storage: Storage) -> list[tuple[float, float]]:
    """Parameters in no matrix, and the bytes of each: norms, biases, convolutions. Every device holds them whole."""
    parts = [(float(spec.other_norm_parameters), storage.average(NORMS).bytes)]
    listed = sum(matrix.elements for matrix in spec.other_matrices)
    parts.append((float(spec.other_parameters - listed), storage.average(OTHER).bytes))
    for layer, alike in running(spec):
        times = alike * layer.passes
        parts.append((float(times * layer.norm_parameters), storage.average(NORMS).bytes))
        others = layer.other_parameters - sum(matrix.elements for matrix in layer.other_matrices)
        parts.append((float(times * others), storage.average(OTHER).bytes))
        for mixer in layer.mixers:
            rest = mixer.parameters(spec.hidden) - sum(matrix.elements for matrix in mixer.matrices(spec.hidden))
            parts.append((float(times * rest), storage.average(ATTENTION).bytes))
        for part in layer.feed_forwards:
            dense = sum(matrix.elements for matrix in part.matrices() if IN_EXPERTS not in f".{matrix.name}")
            rest = part.parameters - part.expert_parameters - dense
            parts.append((float(times * rest), storage.average(FEED_FORWARD).bytes))
    return parts


def beside(spec: ModelSpec, tp: int) -> float:
    """Elements that element-wise work moves for a token: 4 h a norm with its residual, and 3 i of an activation."""
    total = 2.0 * spec.hidden
    for layer, alike in running(spec):
        halves = bool(layer.mixers) + bool(layer.feed_forwards)
        wide = sum(_widths(part) for part in layer.feed_forwards)
        total += alike * layer.passes * (4 * spec.hidden * halves + wide / tp)
    return total


def _widths(part: FeedForward) -> float:
    """What an activation function reads and writes: the outputs of all inner matrices, and what is left of them."""
    inner = [matrix for matrix in part.matrices() if not is_summed(matrix) and "up_proj" in matrix.name]
    chosen = getattr(part, "top_k", 1)
    return sum(3.0 * matrix.rows * (chosen if IN_EXPERTS in f".{matrix.name}" else 1) for matrix in inner)


def gathered(spec: ModelSpec, storage: Storage, tp: int) -> float:
    """Bytes of the rows that one token looks up on one of the devices that split them, in every table there is.

    Spare rows of the embedding are no table of their own.
    """
    each = storage.average(EMBEDDING).bytes
    positions = spec.hidden * bool(spec.position_parameters)
    tables_beside = sum(table.columns for table in spec.tables if table.name != "embed_tokens")
    return each * (spec.hidden + positions + tables_beside) / tp


def tables(spec: ModelSpec, storage: Storage, tp: int) -> float:
    """Bytes of the embedding, and of tables beside it, on one device. [B]"""
    return spec.components[EMBEDDING] * storage.average(EMBEDDING).bytes / tp
