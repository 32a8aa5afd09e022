"""What a checkpoint says of the format its cache should have: a hint, which some engines follow and others do not."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

# keys of a quantisation that speak of the cache, as (key, where it is within)
_KEYS: Final = ("kv_cache_scheme", "kv_cache_quant_algo")
_NAMED: Final[Mapping[str, str]] = {"FP8": "fp8", "FP8_E4M3": "fp8", "INT8": "int8", "NVFP4": "nvfp4"}
_BITS: Final[Mapping[tuple[object, object], str]] = {(8, "float"): "fp8", (8, "int"): "int8", (4, "float"): "nvfp4"}
# engine -> who wrote the checkpoint and the formats that it then stores the cache in, --kv-cache-dtype left at auto.
# Source: vllm/utils/torch_utils.py and Attention of vLLM; configure_kv_cache_dtype of SGLang; the checkpoint loaders of
# TensorRT-LLM; TGI's pull request 2761.
FOLLOWED_BY: Final[Mapping[str, frozenset[tuple[str, str]]]] = {
    "vllm": frozenset({("modelopt", "fp8"), ("modelopt", "nvfp4"), ("compressed-tensors", "fp8")}),
    "sglang": frozenset({("modelopt", "fp8")}),
    "tensorrt-llm": frozenset({("modelopt", "fp8"), ("modelopt", "nvfp4"), ("modelopt", "int8")}),
    "tgi": frozenset({("compressed-tensors", "fp8")}),
}


@dataclass(frozen=True, slots=True)
class KvHint:
    """The cache format that a checkpoint asks for.

    Args:
        format: as `--kv` spells it.
        said: the key that says so, with its value.
        method: of the quantiser that wrote it.
    """

    format: str
    said: str
    method: str

    @property
    def followers(self) -> tuple[str, ...]:
        """Engines that store the cache so where nobody tells them otherwise.

        >>> KvHint("fp8", "kv_cache_quant_algo FP8", "modelopt").followers
        ('vllm', 'sglang', 'tensorrt-llm')
        """
        return tuple(engine for engine, pairs in FOLLOWED_BY.items() if (self.method, self.format) in pairs)


def kv_hint(block: Mapping[str, Any], method: str) -> KvHint | None:
    """The cache format that a quantisation asks for, None where it asks for none.

    Args:
        block: the object that states the quantisation.
        method: of its quantiser.

    >>> kv_hint({"quant_algo": "NVFP4", "kv_cache_quant_algo": "FP8"}, "modelopt").format
    'fp8'
    >>> kv_hint({"kv_cache_scheme": {"num_bits": 8, "type": "float", "dynamic": False}}, "compressed-tensors").said
    'kv_cache_scheme of 8-bit float'
    >>> kv_hint({"kv_cache_scheme": None}, "modelopt") is None
    True
    """
    maker = method.partition("-")[0] if method.startswith("modelopt") else method
    for key in _KEYS:
        value = block.get(key)
        if isinstance(value, str) and value.upper() in _NAMED:
            return KvHint(_NAMED[value.upper()], f"{key} {value}", maker)
        if isinstance(value, dict) and _bits(value) in _BITS and value.get("dynamic") is not True:
            bits, kind = _bits(value)
            return KvHint(_BITS[bits, kind], f"{key} of {bits}-bit {kind}", maker)
    return None


def _bits(scheme: Mapping[str, Any]) -> tuple[object, object]:
    bits, kind = scheme.get("num_bits"), scheme.get("type", "int")
    known = type(bits) is int and isinstance(kind, str)
    return (bits, kind) if known else (None, None)
