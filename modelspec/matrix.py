"""Matrices of a model: what a quantiser packs, told apart from the norms, biases and states' constants that it leaves."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from roofcast.modelspec.layers import Layer
    from roofcast.modelspec.spec import ModelSpec

ATTENTION: Final = "attention"
FEED_FORWARD: Final = "feed_forward"
EXPERTS: Final = "experts"
EMBEDDING: Final = "embedding"
HEAD: Final = "head"
OTHER: Final = "other"
DRAFT: Final = "multi_token_prediction"
SCALES: Final = "scales"  # of stored weights: what a quantiser adds beside them
BESIDE_DENSE: Final = 2  # feed-forwards of a layer that has a dense one and experts
EACH: Final = "*"  # stands for the number of an expert in a matrix's name


@dataclass(frozen=True, slots=True)
class Matrix:
    """The weight of one linear map, y = W x, or of `count` alike: [rows, columns] each, biases not in it.

    Args:
        name: its module within the layer, as transformers names it; `*` stands for the number of an expert.
        rows, columns: outputs and inputs.
        count: how many there are, an expert each.
        linear: whether its module is a plain linear layer, which quantisers look for; a router seldom is.
    """

    name: str
    rows: int
    columns: int
    count: int = 1
    linear: bool = True

    @property
    def elements(self) -> int:
        """Weights of all of them: count x rows x columns. [parameter]

        >>> Matrix("mlp.experts.*.up_proj", 2048, 7168, 256).elements
        3758096384
        """
        return self.count * self.rows * self.columns

    def under(self, parent: str) -> Matrix:
        """The matrix as a part of a module.

        >>> Matrix("up_proj", 2048, 7168).under("mlp").name
        'mlp.up_proj'
        """
        return replace(self, name=f"{parent}.{self.name}")


@dataclass(frozen=True, slots=True)
class Placed:
    """A matrix and where it stands.

    Args:
        component: as `ModelSpec.components` names it.
        layer: number of its layer, draft layers after the decoder's; None outside the layers.
        matrix: what it is.
    """

    component: str
    layer: int | None
    matrix: Matrix


@dataclass(frozen=True, slots=True)
class Inventory:
    """Every matrix of a model, and what is left of each component.

    Args:
        matrices: those of the decoder's layers in order, embedding first and head last, then draft layers.
        rest: component -> parameters that are in no matrix listed: norms, biases, convolutions, towers. [parameter]
        unlisted: components of layers with a part whose matrices are not known one by one; theirs are in `rest`.
    """

    matrices: tuple[Placed, ...]
    rest: Mapping[str, int]
    unlisted: frozenset[str]


def inventory(spec: ModelSpec) -> Inventory:
    """The matrices of a model; with what is left they are its parameters, component by component.

    sum over matrices of a component + rest = components[component].
    """
    placed = [Placed(EMBEDDING, None, Matrix("embed_tokens", spec.vocab, spec.hidden, linear=False))]
    placed += (Placed(EMBEDDING, None, table) for table in spec.tables)
    placed += (Placed(OTHER, None, matrix) for matrix in spec.other_matrices)
    unlisted: set[str] = set()
    decoder = len(spec.layers)
    made: dict[tuple[Layer, bool], tuple[Placed, ...]] = {}
    for number, layer in enumerate(spec.active_layers):
        key = (layer, number >= decoder)
        if key not in made:
            made[key] = tuple(_of_layer(layer, spec.hidden, unlisted, draft=key[1]))
        placed += (replace(part, layer=number) for part in made[key])
    if not spec.tied:
        placed.append(Placed(HEAD, None, Matrix("lm_head", spec.head_rows or spec.vocab, spec.hidden)))
    listed: Counter[str] = Counter()
    for part in placed:
        listed[part.component] += part.matrix.elements
    components = spec.components
    rest = {name: count - listed[name] for name, count in components.items()}
    return Inventory(tuple(placed), rest, frozenset(unlisted))


def _of_layer(layer: Layer, hidden: int, unlisted: set[str], *, draft: bool) -> Iterator[Placed]:
    for mixer in layer.mixers:
        listing = getattr(mixer, "matrices", None)
        if listing is None:
            unlisted.add(DRAFT if draft else ATTENTION)
            continue
        yield from _place(ATTENTION, listing(hidden), draft=draft)
    for part in layer.feed_forwards:
        listing = getattr(part, "matrices", None)
        if listing is None:
            unlisted.add(DRAFT if draft else FEED_FORWARD)
            continue
        for matrix in listing():
            component = EXPERTS if ".experts." in f".{matrix.name}" else FEED_FORWARD
            yield from _place(component, (own_module(matrix, layer),), draft=draft)
    yield from _place(OTHER, layer.other_matrices, draft=draft)


def own_module(matrix: Matrix, layer: Layer) -> Matrix:
    """Experts beside one dense feed-forward are a module of their own (Gemma 4): `experts` and `router` beside `mlp`."""
    if len(layer.feed_forwards) != BESIDE_DENSE or not layer.feed_forwards[1].expert_parameters:
        return matrix
    name = "router.proj" if matrix.name == "mlp.gate" else re.sub(r"^mlp\.(?=experts\.)", "", matrix.name)
    return replace(matrix, name=name)


def _place(component: str, matrices: Iterable[Matrix], *, draft: bool) -> Iterator[Placed]:
    return (Placed(DRAFT if draft else component, None, matrix) for matrix in matrices if matrix.elements)
