"""Turns the metadata of a GGUF file into the config.json of the same model, so that one reader serves both.

Hyperparameters become facts under the names that the model's class reads; biases, norms and tied embeddings, which
metadata does not state, are told by which tensors there are.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from roofcast.modelspec.errors import MalformedModelError, UnknownArchitectureError
from roofcast.modelspec.families import find_family
from roofcast.modelspec.family import Family
from roofcast.modelspec.gguf_archs import ARCHS, NOT_DECODERS, NOT_MODELS, PLAIN, Arch
from roofcast.modelspec.gguf_experts import experts
from roofcast.modelspec.gguf_facts import GgufFacts, read_facts
from roofcast.modelspec.gguf_layers import RULES, TESTS, latent, window
from roofcast.modelspec.gguf_names import ClassKeys
from roofcast.modelspec.strictjson import quoted, short

if TYPE_CHECKING:
    from collections.abc import Mapping

    from roofcast.modelspec.weights import Tensor

_ARCH: Final = r"[A-Za-z0-9][\w.+-]{0,63}"
_QKV_BIAS: Final = ("attn_q.bias", "attn_qkv.bias", "attn_k.bias", "attn_v.bias")
_Q_NORM: Final = ("attn_q_norm.weight", "attn_q_norm.bias")


def config_of(metadata: Mapping[str, Any], tensors: tuple[Tensor, ...]) -> dict[str, Any]:
    """The config.json that says what a GGUF file says of its model.

    An architecture that is not in the table, but whose blocks only attend and feed forward, gives a config of an
    unknown class, which `confirm_attention` must hold against the tensors.

    Args:
        metadata: every key of the file.
        tensors: every tensor of the file, of all parts where it is split.

    Raises:
        MalformedModelError: keys missing, or of another type.
        UnknownArchitectureError: no language model, or an architecture whose layers cannot be told.

    >>> llama = {"block_count": 32, "embedding_length": 4096, "feed_forward_length": 14336, "vocab_size": 128256,
    ...     "attention.head_count": 32, "attention.head_count_kv": 8, "context_length": 131072}
    >>> metadata = {"general.architecture": "llama", **{f"llama.{key}": value for key, value in llama.items()}}
    >>> config = config_of(metadata, ())
    >>> config["model_type"], config["num_key_value_heads"], config["head_dim"]
    ('llama', 8, 128)
    """
    arch = _arch_of(metadata)
    row = ARCHS.get(arch)
    facts = read_facts(arch, metadata, tensors)
    if row is None:
        _refuse_unless_plain(facts)
        row = Arch("")
    model_type = next((other for test, other in row.unless if TESTS[test](facts)), row.model_type)
    family = find_family(model_type) or Family()
    keys = ClassKeys(model_type, family)
    config: dict[str, Any] = {"model_type": model_type} if model_type else _unknown_name(arch)
    config |= {**_sizes(facts, keys), **_told_by_tensors(facts, keys)}
    for rule in (experts, window, latent, *(RULES[name] for name in row.rules)):
        config |= rule(facts, keys)
    return {**row.constants, **{key: value for key, value in config.items() if _says(row, key, value)}}


def _arch_of(metadata: Mapping[str, Any]) -> str:
    """The architecture of a language model.

    Raises:
        MalformedModelError: none, or no name.
        UnknownArchitectureError: the file is of something else.
    """
    arch, kind = metadata.get("general.architecture"), metadata.get("general.type", "model")
    if isinstance(kind, str) and kind in NOT_MODELS:
        msg = f"general.type is {quoted(kind)}: the file is {NOT_MODELS[kind]}"
        raise UnknownArchitectureError(msg)
    if arch is None:
        msg = "general.architecture is missing; every GGUF file of a model names it"
        raise MalformedModelError(msg)
    if not isinstance(arch, str) or not re.fullmatch(_ARCH, arch):
        shown = quoted(arch) if isinstance(arch, str) else short(arch)
        msg = f"general.architecture is {shown}; it must be a name"
        raise MalformedModelError(msg)
    if arch in NOT_DECODERS:
        msg = f"general.architecture is {quoted(arch)}: the file is {NOT_DECODERS[arch]}"
        raise UnknownArchitectureError(msg)
    if metadata.get(f"{arch}.attention.causal") is False:
        msg = f"{arch}.attention.causal is false: an encoder, which keeps no keys and values"
        raise UnknownArchitectureError(msg)
    return arch


def _refuse_unless_plain(facts: GgufFacts) -> None:
    """Refuses an architecture that is not in the table unless its blocks only attend and feed forward."""
    strange = next((part for part in facts.parts if not re.fullmatch(PLAIN, part)), None)
    what = f"general.architecture {quoted(facts.arch)} is not known"
    if not facts.parts:
        msg = f"{what}, and there are no tensors that would tell its layers"
        raise UnknownArchitectureError(msg)
    if strange:
        msg = f"{what}, and its layers cannot be told: {quoted(strange)} is of no plain attention or feed-forward"
        raise UnknownArchitectureError(msg)


def _unknown_name(arch: str) -> dict[str, Any]:
    """The class of an architecture that is not in the table: its name, where that is no other class's."""
    from roofcast.modelspec.nested import WRAPPERS  # noqa: PLC0415 - only an unknown architecture needs it

    taken = find_family(arch) is not None or arch in WRAPPERS
    return {} if taken else {"model_type": arch}


def _says(row: Arch, key: str, value: object) -> bool:
    """Whether a key counts: a null does not where llama.cpp's code has a constant."""
    return value is not None or key not in row.constants


def _sizes(facts: GgufFacts, keys: ClassKeys) -> dict[str, Any]:
    """Layers, widths, heads, vocabulary and context."""
    hidden = facts.needed("embedding_length")
    found = {
        "layers": None if "encoder" in keys.family.has else facts.layers,  # there two stacks have numbers of their own
        "hidden": hidden,
        "context": facts.number("context_length") or None,
        "intermediate": _dense_width(facts, keys),
        "mtp_layers": facts.draft or None,
    }
    config = {key: value for fact, value in found.items() if (key := keys.of(fact)) and value is not None}
    config["vocab_size"] = _vocab(facts)
    if facts.stated("attention.head_count") in (None, 0):  # Mamba and RWKV have none
        return config
    heads, kv_heads = max(facts.heads()), max(facts.kv_heads())
    if not keys.known or keys.of("query_heads"):
        config[keys.of("query_heads")] = heads
    if keys.of("kv_heads"):
        config[keys.of("kv_heads")] = kv_heads
    return {**config, **_head_widths(facts, keys, hidden, heads)}


def _head_widths(facts: GgufFacts, keys: ClassKeys, hidden: int, heads: int) -> dict[str, Any]:
    """Widths of a key and of a value head, where the class reads one of its own."""
    share = hidden // heads if hidden % heads == 0 else None
    key_length = facts.number("attention.key_length") or share
    value_length = facts.number("attention.value_length") or key_length
    if not (keys.own_head_dim and keys.of("head_dim")) or key_length is None:
        return {}
    own = {} if value_length == key_length else {"v_head_dim": value_length}
    return {keys.of("head_dim"): key_length, **own}


def _dense_width(facts: GgufFacts, keys: ClassKeys) -> int | None:
    """Width of a dense feed-forward: that of its matrix, else as stated, in the way that its class states it.

    Qwen 1 states twice the width; Granite's dense models state another one than they have.

    Raises:
        MalformedModelError: not stated, and there are no experts.
    """
    stored = facts.size("ffn_down.weight", -1)
    if stored is not None:
        return stored * keys.family.ffn_divisor
    if facts.stated("feed_forward_length") is None and not facts.number("expert_count", 0):
        msg = f"{facts.arch}.feed_forward_length is missing; a GGUF file without experts needs it"
        raise MalformedModelError(msg)
    stated = facts.each("feed_forward_length") if isinstance(facts.stated("feed_forward_length"), tuple) else None
    return (max(stated) if stated else facts.number("feed_forward_length")) or None


def _vocab(facts: GgufFacts) -> int:
    """Rows of the embedding, else the vocabulary as stated, else as many as there are tokens."""
    rows = facts.rows("token_embd.weight") or facts.number("vocab_size")
    if rows:
        return rows
    tokens = facts.metadata.get("tokenizer.ggml.tokens")
    length = len(tokens) if isinstance(tokens, tuple) else getattr(tokens, "length", 0)
    if not length:
        msg = f"{facts.arch}.vocab_size is missing, and so are tokenizer.ggml.tokens and token_embd.weight"
        raise MalformedModelError(msg)
    return int(length)


def _told_by_tensors(facts: GgufFacts, keys: ClassKeys) -> dict[str, Any]:
    """Tied embeddings, biases, norms and gates, by which tensors there are; nothing where none are known."""
    if not facts.shapes:
        return {}
    family, constants = keys.family, keys.family.constants
    switches: tuple[tuple[object, bool], ...] = (
        (family.qkv_bias, facts.has(*_QKV_BIAS)),
        (family.output_bias, facts.has("attn_output.bias")),
        (family.mlp_bias, facts.has("ffn_up.bias", "ffn_down.bias", "ffn_up_shexp.bias", "ffn_down_shexp.bias")),
        (family.head_bias, "output.bias" in facts.shapes),
        (family.qk_norm_key, facts.has(*_Q_NORM)),
        (family.gate_key, facts.has("attn_gate.weight")),
        (family.sinks, facts.has("attn_sinks.weight")),
        (constants.get("ssm_bias", "mamba_proj_bias|use_bias"), facts.has("ssm_in.bias")),
        (constants.get("ssm_output_bias"), facts.has("ssm_out.bias")),
        (constants.get("ssm_conv_bias", "mamba_conv_bias|use_conv_bias"), facts.has("ssm_conv1d.bias")),
        (constants.get("ssm_gated_norm", "mamba_rms_norm"), facts.has("ssm_norm.weight")),
        (family.single_norm_key, not facts.has("ffn_norm.weight", "attn_norm_2.weight")),
    )
    found: dict[str, Any] = {"tie_word_embeddings": "output.weight" not in facts.shapes}
    for trait, present in switches:
        for key in keys.switches(trait):
            found[key] = found.get(key, False) or present
    return found
