"""Every kind of layer that mixes tokens: one row a kind, with the roles it serves and the keys that tell it.

To add one, write its class (see `Attention` for what is asked of it) and its row here.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from roofcast.modelspec.errors import UnknownArchitectureError
from roofcast.modelspec.keys import ALIASES
from roofcast.modelspec.plan import (
    CHUNKED,
    CONV,
    CROSS,
    FULL,
    HYBRID,
    HYBRID_SLIDING,
    LINEAR,
    MAPPED,
    NGRAM,
    OWNED,
    SHARED,
    SLIDING,
    Slot,
    deciding_key,
)
from roofcast.modelspec.strictjson import quoted

if TYPE_CHECKING:
    from collections.abc import Callable

    from roofcast.modelspec.attention import Attention
    from roofcast.modelspec.config import Config

    Read = Callable[[Config, Slot, str], Attention]


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind. Its module is imported when a layer needs it: a Llama pays for no recurrence.

    Args:
        where: its class, as `module:name`, or the class itself.
        serves: roles of layers that it can have.
        keys: facts that the config must all have.
        reader: what makes it from a config, a layer and a role, as `module:name`; empty is `read` of the class,
            from the config alone.
        default: whether any class may have it; of others, the class's row must name the kind.
    """

    where: str | type[Attention]
    serves: frozenset[str]
    keys: tuple[str, ...] = ()
    reader: str = ""
    default: bool = False

    @property
    def cls(self) -> type[Attention]:
        """Its class."""
        found: type[Attention] = _load(self.where) if isinstance(self.where, str) else self.where
        return found

    def read(self, config: Config, slot: Slot, role: str) -> Attention:
        """One layer's mixer of this kind.

        Raises:
            MalformedModelError, UnknownArchitectureError: sizes missing or that cannot be.
        """
        if self.reader:
            reader: Read = _load(self.reader)
            return reader(config, slot, role)
        of_class: Any = self.cls
        mixer: Attention = of_class.read(config)
        return mixer


def _load(where: str) -> Any:  # noqa: ANN401 - a class or a function
    module, _, name = where.partition(":")
    return getattr(import_module(f"roofcast.modelspec.{module}"), name)


_SOFTMAX: Final = frozenset({FULL, SLIDING, CHUNKED})
_LINEAR: Final = frozenset({LINEAR})

# the first that serves the role and whose keys are there is the layer's kind
KINDS: Final[dict[str, Kind]] = {
    "compressed": Kind("compressed:CompressedAttention", _SOFTMAX, ("compression",), "compressed:read_compressed"),
    "latent": Kind("latent:LatentAttention", _SOFTMAX, ("kv_lora_rank",), "latent:read_latent"),
    "cca": Kind("cca:ConvolutionalAttention", frozenset({HYBRID, HYBRID_SLIDING}), ("cca_time0",), "cca:read_cca"),
    "relative": Kind(
        "relative:RelativeAttention", _SOFTMAX | {HYBRID, HYBRID_SLIDING}, ("d_rel",), "relative:read_relative"
    ),
    "cross": Kind("cross:CrossAttention", frozenset({CROSS}), reader="cross:read_cross"),
    "routed_heads": Kind("routed:RoutedAttention", frozenset({FULL}), ("routed_heads",)),
    "grouped": Kind("attention:GroupedAttention", _SOFTMAX, reader="heads:read_grouped", default=True),
    "shared_block": Kind("shared:SharedAttention", frozenset({OWNED, SHARED}), reader="shared:read_shared"),
    "blocks": Kind("linear:LinearMap", frozenset({MAPPED}), reader="linear:read_map"),
    "gated_delta": Kind("recurrent:GatedDeltaNet", _LINEAR, ("linear_num_value_heads",)),
    "kimi_delta": Kind("recurrent:KimiDelta", _LINEAR, ("kda",)),
    "mamba2": Kind("ssm:Mamba2", _LINEAR, ("ssm_state",)),
    "mamba1": Kind("ssm:Mamba1", _LINEAR, ("ssm_state",)),
    "rg_lru": Kind("griffin:RgLru", _LINEAR, ("conv1d_width",)),
    "mlstm": Kind("xlstm:MLstm", _LINEAR, ("qk_dim_factor",)),
    "rwkv": Kind("rwkv:Rwkv", _LINEAR, ("attention_hidden_size",)),
    "lightning": Kind("recurrent:LightningAttention", _LINEAR, ("query_heads",)),
    "ngram": Kind("ngram:NgramMemory", frozenset({NGRAM}), ("ple_layer_ids",)),
    "short_conv": Kind("ssm:ShortConvolution", frozenset({CONV}), ("conv_L_cache",)),
}


def mixers(config: Config, slot: Slot) -> tuple[Attention, ...]:
    """The attention, recurrence or convolution of one layer, in order; none where it only feeds forward.

    Raises:
        UnknownArchitectureError: no kind serves a role with the keys that the config has.
        MalformedModelError: sizes that cannot be.
    """
    return tuple(_find(config, role).read(config, slot, role) for role in slot.roles)


def _find(config: Config, role: str) -> Kind:
    for name, kind in KINDS.items():
        allowed = kind.default or config.has(name)
        if role in kind.serves and allowed and all(config.value(key) is not None for key in kind.keys):
            return kind
    source = deciding_key(config) or "config.json"
    own = [kind for name, kind in KINDS.items() if role in kind.serves and config.has(name)]
    if config.known and not own:
        msg = f"{source} has {role} layers, but model_type {quoted(config.model_type)} has no such thing"
        raise UnknownArchitectureError(msg)
    wanted = dict.fromkeys(ALIASES.get(key, (key,))[0] for kind in own for key in kind.keys)
    msg = f"{source} has {role} layers, but no key tells their kind; roofcast knows it by {', '.join(wanted)}"
    raise UnknownArchitectureError(msg)
