"""Turns a config into its layers: what mixes tokens in each, what feeds forward, and the norms around them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from roofcast.modelspec.experts import feed_forwards, sparse_layers
from roofcast.modelspec.kinds import mixers
from roofcast.modelspec.plan import OWNED, SHARED, Slot, layer_plan

if TYPE_CHECKING:
    from roofcast.modelspec.attention import Attention
    from roofcast.modelspec.config import Config
    from roofcast.modelspec.ffn import FeedForward
    from roofcast.modelspec.matrix import Matrix
    from roofcast.modelspec.state import Kept

# parameters of a norm over its width
NORMS: Final[dict[str, int]] = {"rms": 1, "plain": 1, "layer": 2, "none": 0}


@dataclass(frozen=True, slots=True)
class Layer:
    """One decoder layer.

    Args:
        mixers: what mixes tokens, side by side or one after the other; none where the layer only feeds forward.
        feed_forwards: what works on each token alone; none where the layer only mixes.
        norm_parameters: of the norms of width h around them.
        other_parameters: of what belongs to neither.
        other_matrices: those of what belongs to neither; their parameters are among these.
        passes: times that a token passes the layer, with a state for each: looped layers have their weights once.
    """

    mixers: tuple[Attention, ...]
    feed_forwards: tuple[FeedForward, ...]
    norm_parameters: int
    other_parameters: int = 0
    other_matrices: tuple[Matrix, ...] = ()
    passes: int = 1

    @property
    def state(self) -> tuple[Kept, ...]:
        """What the layer keeps of a sequence."""
        return tuple(part for mixer in self.mixers for part in mixer.state) * self.passes

    @property
    def label(self) -> str:
        """Kinds of its mixers, joined with &; empty without any."""
        return "&".join(dict.fromkeys(mixer.label for mixer in self.mixers))

    @property
    def skipped(self) -> bool:
        """Whether no token passes it: all it does is attend to images, and there are none."""
        return bool(self.mixers) and all(getattr(mixer, "encoder_tokens", None) == 0 for mixer in self.mixers)

    def once(self, hidden: int) -> tuple[Matrix, ...]:
        """Matrices that an encoder's tokens pass, once, and the sequence's own never: keys and values of cross attention."""
        crossing = (mixer for mixer in self.mixers if hasattr(mixer, "encoder_tokens"))
        return tuple(m for mixer in crossing for m in mixer.matrices(hidden) if m.name.endswith((".k_proj", ".v_proj")))

    def parameters(self, hidden: int) -> int:
        """All parameters of the layer. [parameter]"""
        mixing = sum(mixer.parameters(hidden) for mixer in self.mixers)
        feeding = sum(feed_forward.parameters for feed_forward in self.feed_forwards)
        return mixing + feeding + self.norm_parameters + self.other_parameters

    def active_parameters(self, hidden: int) -> int:
        """Parameters that work on one token: of E routed experts k count. [parameter]"""
        return self.parameters(hidden) - sum(part.parameters - part.active_parameters for part in self.feed_forwards)

    def borrowed(self, hidden: int) -> tuple[Matrix, ...]:
        """Matrices that work in this layer and count in an earlier one; only kinds whose weights recur have any."""
        mixing = (mixer.borrowed(hidden) for mixer in self.mixers if hasattr(mixer, "borrowed"))
        feeding = (part.borrowed() for part in self.feed_forwards if hasattr(part, "borrowed"))
        return tuple(matrix for matrices in (*mixing, *feeding) for matrix in matrices)


def read_layers(config: Config) -> tuple[Layer, ...]:
    """Every decoder layer, in order.

    Raises:
        MalformedModelError: heads that do not divide, sizes that cannot be.
        UnknownArchitectureError: layer kinds that are not understood.
    """
    slots, sparse = layer_plan(config), sparse_layers(config)
    if config.known and config.has("ngram"):
        from roofcast.modelspec.ngram import remembering  # noqa: PLC0415 - one class has any

        slots = remembering(config, slots)
    return read_slots(config, slots, sparse)


def read_slots(config: Config, slots: tuple[Slot, ...], sparse: tuple[bool, ...]) -> tuple[Layer, ...]:
    """The layers of these slots; equal ones are read once."""
    made: dict[tuple[Slot, bool], Layer] = {}
    layers = []
    for slot, listed in zip(slots, sparse, strict=True):
        key = (slot, listed if slot.sparse is None else slot.sparse)
        if key not in made:
            made[key] = _layer(config, *key)
        layers.append(made[key])
    return tuple(layers)


def _layer(config: Config, slot: Slot, sparse: bool) -> Layer:
    mixing = mixers(config, slot)
    feeding = _feeding(config, slot, sparse=sparse) if slot.feeds else ()
    twice = config.trait_value("twice", default=False)  # LongCat: two blocks of attention and feed-forward a layer
    if twice:
        mixing, feeding = mixing * 2, (*_dense_pair(config, slot), *feeding)
    norm = NORMS[config.family.norm] * config.size("hidden")
    norms = layer_norms(config)
    around = norm * (norms if mixing and feeding else (norms // 2 or 1) if mixing or feeding else 0)
    return Layer(mixing, feeding, around, *_extra(config, slot, sparse=sparse), passes=_passes(config, slot))


def _extra(config: Config, slot: Slot, *, sparse: bool) -> tuple[int, tuple[Matrix, ...]]:
    if not config.family.extras:
        return 0, ()
    from roofcast.modelspec.extras import layer_extra  # noqa: PLC0415 - few classes have any

    return layer_extra(config, slot.layer, sparse=sparse)


def _passes(config: Config, slot: Slot) -> int:
    if not config.trait_value("loops"):
        return 1
    from roofcast.modelspec.loops import passes_of  # noqa: PLC0415 - few models loop

    return passes_of(config, slot.layer)


def _feeding(config: Config, slot: Slot, *, sparse: bool) -> tuple[FeedForward, ...]:
    if OWNED in slot.roles or SHARED in slot.roles:
        from roofcast.modelspec.shared import SharedFeedForward  # noqa: PLC0415 - only Zamba pays for it

        return (SharedFeedForward.read(config, owned=OWNED in slot.roles),)
    return feed_forwards(config, slot.layer, sparse=sparse)


def _dense_pair(config: Config, slot: Slot) -> tuple[FeedForward, ...]:
    return feed_forwards(config, slot.layer, sparse=False) * 2


def layer_norms(config: Config) -> int:
    """Norms of width h in a layer."""
    family = config.family
    if config.flag("new_decoder_architecture"):  # falcon 40B and 180B: one for attention, one for the feed-forward
        return config.size("num_ln_in_parallel_attn", 2)
    if family.single_norm_key and config.flag(family.single_norm_key):
        return 1
    return family.layer_norms
