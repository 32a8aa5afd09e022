"""What a checkpoint says of the format its cache should have: a hint, which some engines follow and others do not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from roofcast.modelspec.strictjson import short

if TYPE_CHECKING:
    from collections.abc import Mapping

# keys of a quantisation that speak of the cache, as (key, where it is within)
_KEYS: Final = ("kv_cache_scheme", "kv_cache_quant_algo")
_NAMED: Final[Mapping[str, str]] = {"FP8": "fp8", "FP8_E4M3": "fp8", "INT8": "int8", "NVFP4": "nvfp4"}
_BITS: Final[Mapping[tuple[object, object], str]] = {(8, "float"): "fp8", (8, "int"): "int8", (4, "float"): "nvfp4"}
# engines that store the cache as the checkpoint asks where --kv-cache-dtype is left at auto
FOLLOWED_BY: Final = ("vllm", "sglang", "tensorrt-llm")


def kv_hint(block: Mapping[str, Any]) -> tuple[str, str] | None:
    """The cache format that a quantisation asks for, and the key that says so; None where it asks for none.

    Args:
        block: the object that states the quantisation.

    >>> kv_hint({"quant_algo": "NVFP4", "kv_cache_quant_algo": "FP8"})
    ('fp8', 'kv_cache_quant_algo FP8')
    >>> kv_hint({"kv_cache_scheme": {"num_bits": 8, "type": "float", "dynamic": False}})
    ('fp8', 'kv_cache_scheme of 8-bit float')
    >>> kv_hint({"kv_cache_scheme": None}) is None
    True
    """
    for key in _KEYS:
        value = block.get(key)
        if isinstance(value, str) and value.upper() in _NAMED:
            return _NAMED[value.upper()], f"{key} {value}"
        if isinstance(value, dict) and _bits(value) in _BITS:
            bits, kind = _bits(value)
            return _BITS[bits, kind], f"{key} of {bits}-bit {short(kind).strip(chr(39))}"
    return None


def _bits(scheme: Mapping[str, Any]) -> tuple[object, object]:
    bits, kind = scheme.get("num_bits"), scheme.get("type", "int")
    known = type(bits) is int and isinstance(kind, str)
    return (bits, kind) if known else (None, None)
