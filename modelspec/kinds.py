"""Every kind of layer that mixes tokens: one row a kind, with the roles it serves and the keys that tell it.

To add one, write its class (see `Attention` for what is asked of it) and its row here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from roofcast.modelspec.attention import GroupedAttention
from roofcast.modelspec.cca import ConvolutionalAttention
from roofcast.modelspec.compressed import CompressedAttention
from roofcast.modelspec.cross import CrossAttention
from roofcast.modelspec.errors import UnknownArchitectureError
from roofcast.modelspec.heads import read_cross, read_grouped, read_latent
from roofcast.modelspec.keys import ALIASES
from roofcast.modelspec.latent import LatentAttention
from roofcast.modelspec.plan import CHUNKED, CONV, CROSS, FULL, HYBRID, LINEAR, SLIDING, Slot, deciding_key
from roofcast.modelspec.recurrent import GatedDeltaNet, KimiDelta, LightningAttention, MLstm
from roofcast.modelspec.rwkv import Rwkv
from roofcast.modelspec.ssm import Mamba1, Mamba2, ShortConvolution
from roofcast.modelspec.strictjson import quoted

if TYPE_CHECKING:
    from collections.abc import Callable

    from roofcast.modelspec.attention import Attention
    from roofcast.modelspec.config import Config

    Read = Callable[[Config, Slot, str], Attention]


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind.

    Args:
        cls: its class.
        read: makes it from a config, for one layer and role.
        serves: roles of layers that it can have.
        keys: facts that the config must all have.
        default: whether any class may have it; of others, the class's row must name the kind.
    """

    cls: type[Attention]
    read: Read
    serves: frozenset[str]
    keys: tuple[str, ...] = ()
    default: bool = False


def _compressed(config: Config, slot: Slot, role: str) -> Attention:
    del role
    return CompressedAttention.read(config, slot.layer or 0)


_SOFTMAX: Final = frozenset({FULL, SLIDING, CHUNKED})
_LINEAR: Final = frozenset({LINEAR})

# the first that serves the role and whose keys are there is the layer's kind
KINDS: Final[dict[str, Kind]] = {
    "compressed": Kind(CompressedAttention, _compressed, _SOFTMAX, ("compress_ratios",)),
    "latent": Kind(LatentAttention, read_latent, _SOFTMAX, ("kv_lora_rank",)),
    "cca": Kind(
        ConvolutionalAttention, lambda c, _, __: ConvolutionalAttention.read(c), frozenset({HYBRID}), ("cca_time0",)
    ),
    "cross": Kind(CrossAttention, read_cross, frozenset({CROSS})),
    "grouped": Kind(GroupedAttention, read_grouped, _SOFTMAX, default=True),
    "gated_delta": Kind(GatedDeltaNet, lambda c, _, __: GatedDeltaNet.read(c), _LINEAR, ("linear_num_value_heads",)),
    "kimi_delta": Kind(KimiDelta, lambda c, _, __: KimiDelta.read(c), _LINEAR, ("kda",)),
    "mamba2": Kind(Mamba2, lambda c, _, __: Mamba2.read(c), _LINEAR, ("ssm_state",)),
    "mamba1": Kind(Mamba1, lambda c, _, __: Mamba1.read(c), _LINEAR, ("ssm_state",)),
    "mlstm": Kind(MLstm, lambda c, _, __: MLstm.read(c), _LINEAR, ("qk_dim_factor",)),
    "rwkv": Kind(Rwkv, lambda c, _, __: Rwkv.read(c), _LINEAR, ("attention_hidden_size",)),
    "lightning": Kind(LightningAttention, lambda c, _, __: LightningAttention.read(c), _LINEAR, ("query_heads",)),
    "short_conv": Kind(
        ShortConvolution, lambda c, _, __: ShortConvolution.read(c), frozenset({CONV}), ("conv_L_cache",)
    ),
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
