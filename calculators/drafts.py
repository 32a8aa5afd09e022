"""How tokens are drafted: another model, a head on the target, or none; what a round of each runs."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from roofcast.calculators.deployment import cache_on_one
from roofcast.calculators.errors import UsageError
from roofcast.calculators.phases import Asked, answer_point
from roofcast.calculators.speculative import check_cost
from roofcast.modelspec.attention import GroupedAttention
from roofcast.modelspec.drafting import (
    EAGLE3_VOCABULARY,
    eagle3_head,
    eagle_head,
    like,
    medusa_heads,
    mtp_head,
)
from roofcast.modelspec.ffn import DenseFeedForward
from roofcast.modelspec.formats import FORMATS
from roofcast.modelspec.step import DECODE
from roofcast.modelspec.storage import uniform

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from roofcast.calculators.deployment import Ready
    from roofcast.calculators.phases import Point
    from roofcast.modelspec.drafting import Head
    from roofcast.modelspec.formats import Format
    from roofcast.modelspec.model import Model
    from roofcast.modelspec.sharding import Shards
    from roofcast.modelspec.spec import ModelSpec
    from roofcast.modelspec.storage import Storage

MODEL: Final = "draft_model"
MTP: Final = "mtp"
EAGLE: Final = "eagle"
EAGLE3: Final = "eagle3"
MEDUSA: Final = "medusa"
NGRAM: Final = "ngram"
GIVEN: Final = "given"  # its cost is given, whatever it is


@dataclass(frozen=True, slots=True)
class Shape:
    """What one round drafts and verifies.

    Args:
        drafted: k, tokens behind one another; of a tree its depth. [token]
        tree: positions drafted in all where they are a tree's; None of a chain. [token]
        width: of a tree, positions that one draft step takes; None is the tree's spread evenly. [token]
    """

    drafted: int
    tree: int | None = None
    width: int | None = None

    @property
    def positions(self) -> int:
        """Positions drafted, which are verified with the one before them: k + 1 of a chain, N + 1 of a tree of N. [token]"""
        return self.drafted if self.tree is None else self.tree

    @property
    def beside(self) -> int:
        """Positions that a draft step takes of each sequence. [token]

        >>> Shape(4).beside, Shape(5, tree=60).beside, Shape(5, tree=60, width=10).beside
        (1, 12, 10)
        """
        if self.tree is None:
            return 1
        return self.width or -(-self.tree // self.drafted)


@dataclass(frozen=True, slots=True)
class Pass:
    """One forward pass of a draft, so many times a round.

    Args:
        ready: what runs.
        positions: of each sequence. [token]
        times: that it runs, one after the other.
    """

    ready: Ready
    positions: int
    times: int

    def work(self, batch: int, context: int) -> Point:
        """What one of them does."""
        return answer_point(self.ready, Asked(DECODE, batch, context, drafted=self.positions - 1))

    def seconds(self, batch: int, context: int) -> float:
        """Least time of all of them. [s]"""
        point = self.work(batch, context)
        return self.times * point.work.bound * point.passes


@dataclass(frozen=True, slots=True)
class Drafter:
    """What drafts.

    Args:
        method: as engines name it.
        name: in words.
        passes: what a round of a shape runs.
        parameters: of its own; None where a cost alone is given. [parameter]
        bytes: of these weights, on one device. [B]
        held: whether the target's weights have them among them already.
        kept: a deployment whose cache is the draft's own; None where it keeps none.
        cost_ratio: time of a draft step over one of the target's decode steps, where it is given. [-]
        each: whether parameters and bytes are of each of its k heads.
        assumptions, notes: a line each.
        vocabulary: rows of a head of its own; None where it is the target's. [token]
    """

    method: str
    name: str
    passes: Callable[[Shape], tuple[Pass, ...]]
    parameters: float | None = None
    bytes: float = 0.0
    held: bool = False
    kept: Ready | None = None
    cost_ratio: float | None = None
    each: bool = False
    assumptions: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    vocabulary: int | None = None

    def seconds(self, shape: Shape, batch: int, context: int) -> float:
        """Least time of drafting a round: the sum of its passes' bounds. [s]

        k steps, one after the other, each reading the draft's weights and its cache; a tree's steps take several positions
        of each sequence. Medusa's heads run at once; n-grams run nothing.
        """
        return sum(one.seconds(batch, context) for one in self.passes(shape))

    @property
    def step_bytes(self) -> float:
        """Weights that one more drafted token reads, in rounds of one sequence: D(k = 3) - D(k = 2). [B]"""
        return self._read(Shape(3)) - self._read(Shape(2))

    def _read(self, shape: Shape) -> float:
        return sum(one.times * one.work(1, 1).work.weight_bytes for one in self.passes(shape))

    def weights(self, shape: Shape) -> float:
        """What its weights add to the target's on one device: all heads of Medusa's, nothing where they are held. [B]"""
        return 0.0 if self.held else self.bytes * (shape.drafted if self.each else 1)

    def cache(self, batch: int, context: int) -> float:
        """What the draft keeps of all sequences, on one device. [B]"""
        return 0.0 if self.kept is None else cache_on_one(self.kept, batch, context)


@dataclass(frozen=True, slots=True)
class HeadAsked:
    """A draft head as it is asked for.

    Args:
        weights: format of its weights; None is the target's activations', of a model's own prediction as it is stored.
        layer: the head's own architecture, where its config is given.
        vocabulary: rows of its head, where that config states them. [token]
        name: of that config.
    """

    weights: Format | None = None
    layer: ModelSpec | None = None
    vocabulary: int | None = None
    name: str = ""


# what people and engines also call a method -> its name here; case, `_`, `-` and blanks aside
ALIASES: Final[Mapping[str, str]] = {
    "draft": MODEL, "draftmodel": MODEL, "sps": MODEL, "standalone": MODEL,
    "nextn": MTP, "deepseekmtp": MTP, "glm4moemtp": MTP, "qwen3nextmtp": MTP,
    "eagle1": EAGLE, "eagle2": EAGLE, "pld": NGRAM, "promptlookup": NGRAM,
}  # fmt: skip


def method_of(name: str) -> str:
    """A method by any name that is given it.

    Raises:
        UsageError: nothing goes by that name.

    >>> method_of("EAGLE-3"), method_of("n-gram"), method_of("deepseek_mtp")
    ('eagle3', 'ngram', 'mtp')
    """
    known = {plain_name(one): one for one in (MODEL, *METHODS)} | dict(ALIASES)
    found = known.get(plain_name(name))
    if found is None:
        raise _unknown_method(name)
    return found


def plain_name(method: str) -> str:
    """A method's name without case, blanks and strokes, which people set as they like.

    >>> plain_name("EAGLE-3"), plain_name("draft_model")
    ('eagle3', 'draftmodel')
    """
    return re.sub(r"[\s_-]", "", method.lower())


def _unknown_method(name: str) -> UsageError:
    return UsageError(f"--method {name}: known: {', '.join((MODEL, *METHODS))}")


def drafter_of(method: str, target: Ready, asked: HeadAsked) -> Drafter:
    """A head on the target, or n-grams, by the name that engines give it.

    Raises:
        UsageError: no such method.
        UnknownArchitectureError: a target without multi-token prediction.
    """
    if method not in METHODS:
        raise _unknown_method(method)
    return METHODS[method](target, asked)


def _storage(target: Ready, asked: HeadAsked) -> Storage:
    return uniform(asked.weights or FORMATS[target.formats.activations])


def _layer(target: Ready, asked: HeadAsked) -> tuple[ModelSpec, tuple[str, ...]]:
    """The decoder layer of a head: as its config has it, else as the target's are.

    Raises:
        UsageError: a config of another width or vocabulary, which is of a head for another model.
    """
    spec = target.model.spec
    if asked.layer is None:
        return like(spec)
    ours, theirs = (spec.hidden, spec.vocab), (asked.layer.hidden, asked.layer.vocab)
    if ours != theirs:
        raise UsageError(
            f"{asked.name} is a head of width {theirs[0]:,} and {theirs[1]:,} tokens, {target.model.name} has {ours[0]:,} and "
            f"{ours[1]:,}: name a head that was trained for it"
        )
    layers = asked.layer.layers
    if not (
        isinstance(layers[0].mixers[0], GroupedAttention) and isinstance(layers[0].feed_forwards[0], DenseFeedForward)
    ):
        raise UsageError(
            f"{asked.name}: an EAGLE head is a layer of attention with keys per head and a dense feed-forward; this is {layers[0].label}"
        )
    said = f"{asked.name} states {len(layers)} layers: the head is taken as its first"
    return replace(asked.layer, layers=layers[:1]), (said,) * (len(layers) > 1)


def _mtp(target: Ready, asked: HeadAsked) -> Drafter:
    spec = replace(target.model.spec, drafting=False)
    storage = uniform(asked.weights) if asked.weights else target.storage
    head = mtp_head(spec, storage, target.deployment.shards)
    return replace(_headed(MTP, "its own multi-token prediction", target, head), held=_has_prediction(target.model))


def _has_prediction(model: Model) -> bool:
    """Whether the weights counted of a model are those of files that hold its prediction layers too."""
    held, plain = model.parameters_in_files, replace(model.spec, drafting=False).parameters
    return held is not None and held - plain >= model.spec.draft_parameters / 2


def _eagle(target: Ready, asked: HeadAsked) -> Drafter:
    layer, assumed = _layer(target, asked)
    head = eagle_head(target.program, layer, _storage(target, asked), _whole(target))
    return _headed(EAGLE, "an EAGLE head", target, head, assumed)


def _eagle3(target: Ready, asked: HeadAsked) -> Drafter:
    layer, assumed = _layer(target, asked)
    rows = asked.vocabulary or (min(EAGLE3_VOCABULARY, layer.vocab) if asked.layer is None else layer.vocab)
    head = eagle3_head(layer, _storage(target, asked), _whole(target), rows)
    if asked.layer is None:
        assumed = (*assumed, f"the EAGLE-3 head draws from {rows:,} tokens, as published ones do")
    return replace(_headed(EAGLE3, "an EAGLE-3 head", target, head, assumed), vocabulary=rows)


def _medusa(target: Ready, asked: HeadAsked) -> Drafter:
    """Medusa: a head for each of k positions, all in one pass."""
    storage = _storage(target, asked)
    made: dict[int, tuple[Ready, Head]] = {}

    def heads(count: int) -> tuple[Ready, Head]:
        if count not in made:
            head = medusa_heads(target.program, count, storage)
            made[count] = replace(target, program=head.first), head
        return made[count]

    def passes(shape: Shape) -> tuple[Pass, ...]:
        return (Pass(heads(shape.drafted)[0], 1, 1),)

    one = heads(1)[1]
    return Drafter(MEDUSA, "Medusa heads, one a position and each", passes, one.parameters, one.bytes, each=True)


def _ngram(*_: object) -> Drafter:
    return Drafter(NGRAM, "n-grams of the prompt (no model)", _nothing, 0.0)


def _nothing(_: Shape) -> tuple[Pass, ...]:
    return ()


def _whole(target: Ready) -> Shards:
    """How a head is cut: as the target's layers are; it has no experts."""
    return replace(target.deployment.shards, ep=1)


def _headed(method: str, name: str, target: Ready, head: Head, assumed: tuple[str, ...] = ()) -> Drafter:
    first, later = (replace(target, program=program) for program in (head.first, head.later))
    kept = replace(target, kept=head.kept)

    def passes(shape: Shape) -> tuple[Pass, ...]:
        start = Pass(first, 1, 1)
        return (start, Pass(later, shape.beside, shape.drafted - 1)) if shape.drafted > 1 else (start,)

    return Drafter(method, name, passes, head.parameters, head.bytes, kept=kept, assumptions=assumed)


# method -> how its draft is made; the names are vLLM's
METHODS: Final[Mapping[str, Callable[[Ready, HeadAsked], Drafter]]] = {
    MTP: _mtp,
    EAGLE: _eagle,
    EAGLE3: _eagle3,
    MEDUSA: _medusa,
    NGRAM: _ngram,
}


def usual_method(target: Ready) -> str:
    """The head that a model would draft with where none is named: its own multi-token prediction, else EAGLE-3's."""
    return MTP if target.model.spec.draft else EAGLE3


def given_cost(ratio: float) -> Drafter:
    """A draft of which only the cost is known: c decode steps of the target for each drafted token.

    Raises:
        UsageError: a cost that cannot be.
    """
    check_cost(ratio)
    return Drafter(GIVEN, f"a draft step of {ratio:g} decode steps", _nothing, cost_ratio=ratio)
