"""Which keys belong to which feature: a class that does not have the feature does not read them.

A known class whose file switches such a key on says something that its code does not do: it is refused rather than
read as another model.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from roofcast.modelspec.errors import UnknownArchitectureError
from roofcast.modelspec.keys import ALIASES, is_off
from roofcast.modelspec.strictjson import quoted, short

if TYPE_CHECKING:
    from roofcast.modelspec.config import Config

_MAMBA: Final = ("mamba1", "mamba2")
_DELTA: Final = ("gated_delta", "kimi_delta")

# features that read a key -> the keys; one of the features is enough
FEATURE_KEYS: Final[tuple[tuple[tuple[str, ...], tuple[str, ...]], ...]] = (
    (("moe",), (*ALIASES["experts"], "is_moe")),
    (("zero_experts",), ("zero_expert_num",)),
    (("latent",), ("kv_lora_rank",)),
    (("indexer",), ("index_n_heads", "index_head_dim", "index_topk")),
    (("shared_index",), ("indexer_types", "index_topk_pattern", "index_topk_freq")),
    (("latent_shared",), ("kv_source_layers",)),
    (("gated_norms",), ("gated_norm_rank",)),
    (("pooled_index",), ("index_kpool",)),
    (
        ("mean_index",),
        ("indexer_n_heads", "indexer_kv_heads", "indexer_head_dim", "indexer_budget", "indexer_compress_ratio"),
    ),
    (("compressed",), ("compress_ratios", "compress_rates", "o_groups", "o_lora_rank")),
    (("compressed", "hyper_connections"), ("hc_mult",)),
    (("gated_streams",), ("hc_count", "hc_lowrank")),
    (("ngram",), ("ple_layer_ids", "ple_embed_dim", "ngram_size", "heads_per_ngram", "ngram_vocab_size_base")),
    (("block_index",), ("sparse_attention_config",)),
    (("cca",), ("cca_time0", "cca_time1")),
    (("gated_delta",), ("linear_num_value_heads", "full_attention_interval")),
    (("kimi_delta",), ("linear_attn_config", "linear_num_heads", "layer_group_size")),
    (_DELTA, ("linear_num_key_heads", "linear_key_head_dim", "linear_value_head_dim")),
    (_MAMBA, (*ALIASES["ssm_heads"], *ALIASES["ssm_state"], "mamba_d_ssm", "attn_layer_period", "attn_layer_indices")),
    ((*_MAMBA, "separate"), ("layers_block_type", "hybrid_override_pattern")),
    (("rg_lru",), ("lru_width", "block_types", "_block_types", "conv1d_width", "attention_window_size")),
    (("local",), ("attention_layers", "attention_types", "window_size")),
    (("short_conv",), ("conv_L_cache", "full_attn_idxs")),
    (("mlstm",), ("qk_dim_factor", "v_dim_factor")),
    (("rwkv", "shared_block"), ("attention_hidden_size",)),
    (("rwkv",), ("head_size",)),
    (("adapters",), ("adapter_rank", "use_shared_attention_adapter")),
    (("chunked",), ("attention_chunk_size",)),
    (
        ("window",),
        (
            "sliding_window_pattern", "_sliding_window_pattern", "layer_switch", "global_attn_every_n_layers",
            "hybrid_layer_pattern",
        ),
    ),
    (
        ("own_sliding", "own_latent"),
        ("swa_num_attention_heads", "swa_num_key_value_heads", "swa_head_dim", "swa_v_head_dim"),
    ),
    (
        ("own_latent",),
        (
            "swa_q_lora_rank", "swa_kv_lora_rank", "swa_qk_nope_head_dim", "swa_qk_rope_head_dim", "use_dsa",
            "shared_experts_intermediate_size",
        ),
    ),
    (
        ("relative",),
        (
            *ALIASES["sconv_kernel"], "d_rel", "rel_extent", "local_layer_ids", "dense_mlp_idx", "mtp_local_layer_ids",
            "chain_hidden_post_norm", "n_layers_per_attn_res_block",
        ),
    ),
    (("head_rows",), ("unpadded_vocab_size",)),
    (
        ("loops",),
        ("loop_config", "loop_layer_index_start", "loop_layer_index_end", "loop_num_passes", "loop_gate_rank"),
    ),
    (("narrow",), ("moe_hidden_size",)),
    (("own_full",), ("global_head_dim",)),
    (("own_full", "per_layer"), ("per_layer_config",)),
    (("own_full_kv",), ("num_global_key_value_heads",)),
    (("k_eq_v",), ("attention_k_eq_v",)),
    (("heads_per_layer",), ("num_attention_heads_per_layer",)),
    (("kv_shared",), ("num_kv_shared_layers",)),
    (("per_layer_inputs",), ("hidden_size_per_layer_input", "altup_num_inputs", "laurel_rank")),
    (("cross",), ("cross_attention_layers",)),
    (("encoder",), ("is_encoder_decoder", "d_kv")),
    (("blocks",), ("block_configs",)),
    (("nested_experts",), ("ffn_config",)),
    (("gate",), ("attn_output_gate", "attention_output_gate", "gating", "mla_use_output_gate")),
    (("multi_query",), ("multi_query",)),
    (("multi_query_groups",), ("multi_query_attention",)),
)  # fmt: skip
# an unread count of one says nothing: one expert is a dense layer
ONE_IS_NONE: Final = frozenset({*ALIASES["experts"], "index_topk_freq"})


# keys that add weights whose number no public code tells; state and work are not theirs
UNCOUNTED: Final = ("attn_res_block_size", "latent_moe_use_norm")
# features whose keys mean the same in every class, so that an unknown one may have them
UNIVERSAL: Final = frozenset({"moe", "latent", "multi_query", "multi_query_groups", "gate"})


def check_features(config: Config) -> None:
    """Refuses keys of a feature that the class does not have: one of the two is not what the file says.

    Raises:
        UnknownArchitectureError: naming the key.
    """
    for features, keys in FEATURE_KEYS:
        if any(config.has(feature) if config.known else feature in UNIVERSAL for feature in features):
            continue
        for key in keys:
            if key in config.raw and _says_something(config, key):
                raise UnknownArchitectureError(_why_not(config, key))


def _why_not(config: Config, key: str) -> str:
    value, name = short(config.raw[key]), quoted(config.model_type)
    if config.known:
        return f"{key} is {value}, but model_type {name} has no such thing"
    return f"{key} is {value}, but model_type {name} is not known: what that means in it is a guess"


def _says_something(config: Config, key: str) -> bool:
    value = config.raw[key]
    if key in config.family.ignores:
        return False
    if key == "multi_query" and value is False:  # it would mean as many KV heads as query heads
        return True
    return not (is_off(value) or (key in ONE_IS_NONE and value == 1 and value is not True))
