"""Which MLA layers keep a latent of their own, and which rotate their keys (Mistral Large 4)."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from roofcast.modelspec.errors import MalformedModelError
from roofcast.modelspec.strictjson import short

if TYPE_CHECKING:
    from roofcast.modelspec.config import Config

SOURCES = "kv_source_layers"
ROTATES = "no_rope_layers"


def keeps_latent(config: Config, layer: int) -> bool:
    """Whether a layer keeps a latent of its own: kv_source_layers names itself, or there is no such list.

    Raises:
        MalformedModelError: no list of one earlier layer for each, or none before it whose keys are like its own.
    """
    sources = config.raw.get(SOURCES)
    if sources is None or not config.has("latent_shared"):
        return True
    count = config.size("layers")
    if not isinstance(sources, list) or len(sources) != count or not all(type(n) is int for n in sources):
        msg = f"{SOURCES} is {short(sources)}; it must list, for each of the {count} layers, the layer that keeps its latent"
        raise MalformedModelError(msg)
    source = sources[layer]
    if not 0 <= source <= layer or sources[source] != source:
        msg = (
            f"{SOURCES} gives layer {layer} the latent of layer {source}, which is no earlier layer that keeps its own"
        )
        raise MalformedModelError(msg)
    if source == layer:
        return True
    readers = Counter(sources)
    read = (n for at, n in enumerate(sources[:layer]) if n == at and readers[n] > 1)
    if not any(rotates(config, n) == rotates(config, layer) for n in read):
        kind = "with" if rotates(config, layer) else "without"
        msg = f"{SOURCES} has layer {layer}, {kind} RoPE, read an earlier latent, but no layer {kind} RoPE before it shares one"
        raise MalformedModelError(msg)
    return False


def rotates(config: Config, layer: int) -> bool:
    """Whether a layer's keys carry RoPE: always, but for classes that leave it out by no_rope_layers or every n-th.

    Raises:
        MalformedModelError: no list of 0 (without RoPE) and 1, one for each layer.
    """
    every = config.trait_value("nope_every")
    if not every:
        return True
    flags, count = config.raw.get(ROTATES), config.size("layers")
    if flags is None:
        return (layer + 1) % config.size("no_rope_layer_interval", every) != 0
    if not isinstance(flags, list) or len(flags) < count or not all(type(n) is int and n in (0, 1) for n in flags):
        msg = f"{ROTATES} is {short(flags)}; it must list 0 (without RoPE) or 1 for each of the {count} layers"
        raise MalformedModelError(msg)
    return bool(flags[layer])
