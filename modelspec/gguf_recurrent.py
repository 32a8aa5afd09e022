"""Rules for architectures of GGUF files with recurrent, convolution or linear-attention layers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from roofcast.modelspec.errors import MalformedModelError

if TYPE_CHECKING:
    from collections.abc import Callable

    from roofcast.modelspec.gguf_facts import GgufFacts
    from roofcast.modelspec.gguf_names import ClassKeys

    Rule = Callable[[GgufFacts, ClassKeys], dict[str, Any]]


def _share(facts: GgufFacts, part: str, whole: str) -> int:
    """How often one size fits into another.

    Raises:
        MalformedModelError: not a whole number of times.
    """
    inner, outer = facts.needed(part), facts.needed(whole)
    if outer % inner:
        msg = f"{facts.arch}.{part} {inner} does not divide {facts.arch}.{whole} {outer}"
        raise MalformedModelError(msg)
    return outer // inner


def _delta(facts: GgufFacts, _: ClassKeys) -> dict[str, Any]:
    """Gated DeltaNet: key heads are ssm groups, value heads the time step's rank; every so many layers attend."""
    every = facts.number("full_attention_interval")
    return {
        "linear_conv_kernel_dim": facts.needed("ssm.conv_kernel"),
        "linear_key_head_dim": facts.needed("ssm.state_size"),
        "linear_num_key_heads": facts.needed("ssm.group_count"),
        "linear_num_value_heads": facts.needed("ssm.time_step_rank"),
        "linear_value_head_dim": _share(facts, "ssm.time_step_rank", "ssm.inner_size"),
        **({"full_attention_interval": every} if every else {}),
    }


def _mamba1(facts: GgufFacts, keys: ClassKeys) -> dict[str, Any]:
    """Mamba-1: channels, the state of each, the convolution and the rank of the time step."""
    sizes = {
        "ssm_state": facts.needed("ssm.state_size"),
        "conv_kernel": facts.needed("ssm.conv_kernel"),
        "ssm_time_step_rank": facts.needed("ssm.time_step_rank"),
        "ssm_expand": _share(facts, "embedding_length", "ssm.inner_size"),
    }
    config = {keys.of(fact): value for fact, value in sizes.items()}
    if not keys.reads("mamba_expand"):  # there the intermediate size is that of this layer
        config["intermediate_size"] = facts.needed("ssm.inner_size")
    return config


def _mamba2(facts: GgufFacts, keys: ClassKeys) -> dict[str, Any]:
    """Mamba-2 beside attention: heads are the time step's rank. The width may be no multiple of the hidden size."""
    inner, hidden = facts.needed("ssm.inner_size"), facts.needed("embedding_length")
    sizes = {
        "ssm_state": facts.needed("ssm.state_size"),
        "conv_kernel": facts.needed("ssm.conv_kernel"),
        "ssm_heads": facts.needed("ssm.time_step_rank"),
        "ssm_head_dim": _share(facts, "ssm.time_step_rank", "ssm.inner_size"),
        "ssm_groups": facts.needed("ssm.group_count"),
    }
    config = {keys.of(fact): value for fact, value in sizes.items()}
    if not keys.family.constants.get("ssm_expand_ignored"):
        config |= {keys.of("ssm_expand"): inner // hidden} if inner % hidden == 0 else {}
    return config


def _pure_mamba2(facts: GgufFacts, _: ClassKeys) -> dict[str, Any]:
    """Mamba-2 alone, whose class has bare names for heads."""
    return {
        "state_size": facts.needed("ssm.state_size"),
        "conv_kernel": facts.needed("ssm.conv_kernel"),
        "num_heads": facts.needed("ssm.time_step_rank"),
        "head_dim": _share(facts, "ssm.time_step_rank", "ssm.inner_size"),
        "n_groups": facts.needed("ssm.group_count"),
        "expand": _share(facts, "embedding_length", "ssm.inner_size"),
    }


def _beside(facts: GgufFacts, _: ClassKeys) -> dict[str, Any]:
    """Falcon-H1: Mamba-2 and attention side by side in every layer."""
    return {"mamba_d_ssm": facts.needed("ssm.inner_size")}


def _mamba_layers(facts: GgufFacts, keys: ClassKeys) -> dict[str, Any]:
    """Granite 4, Bamba, Jamba: a layer without KV heads is Mamba."""
    names = ["attention" if kv_heads else "mamba" for kv_heads in facts.kv_heads()]
    key = next(key for key in ("layers_block_type", "layer_types") if keys.reads(key))
    return {key: names}


def _conv(facts: GgufFacts, _: ClassKeys) -> dict[str, Any]:
    """LFM2: a layer without KV heads is a short convolution; the feed-forward's width is stated as it is."""
    return {
        "layer_types": ["full_attention" if kv_heads else "conv" for kv_heads in facts.kv_heads()],
        "conv_L_cache": facts.needed("shortconv.l_cache"),
        "conv_bias": facts.has("shortconv.in_proj.bias", "shortconv.conv.bias"),
        "block_auto_adjust_ff_dim": False,
    }


def _kimi_delta(facts: GgufFacts, _: ClassKeys) -> dict[str, Any]:
    """Kimi-Linear: layers without KV heads are KDA, with as many heads as attention; layers are counted from 1."""
    numbered = tuple(enumerate(facts.kv_heads(), 1))
    block = {
        "kda_layers": [layer for layer, kv_heads in numbered if not kv_heads],
        "full_attn_layers": [layer for layer, kv_heads in numbered if kv_heads],
        "num_heads": max(facts.heads()),
        "head_dim": facts.needed("kda.head_dim"),
        "short_conv_kernel_size": facts.needed("ssm.conv_kernel"),
    }
    return {"linear_attn_config": block}


def _rwkv(facts: GgufFacts, _: ClassKeys) -> dict[str, Any]:
    """RWKV-6: heads of the width that is stated."""
    return {
        "attention_hidden_size": facts.needed("embedding_length"),
        "head_size": facts.needed("wkv.head_size"),
        "intermediate_size": facts.needed("feed_forward_length"),
    }


RECURRENT_RULES: Final[dict[str, Rule]] = {
    "beside": _beside,
    "conv": _conv,
    "delta": _delta,
    "kimi_delta": _kimi_delta,
    "mamba1": _mamba1,
    "mamba2": _mamba2,
    "mamba_layers": _mamba_layers,
    "pure_mamba2": _pure_mamba2,
    "rwkv": _rwkv,
}
