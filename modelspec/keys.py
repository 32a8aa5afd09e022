"""Which keys of a config.json roofcast understands, which are harmless, and which it must not overlook."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

# One fact, every name it goes by; the first that is present counts.
ALIASES: Final[dict[str, tuple[str, ...]]] = {
    "layers": ("num_hidden_layers", "n_layer", "n_layers", "num_layers", "num_blocks"),
    "hidden": ("hidden_size", "n_embd", "d_model", "n_embed", "embedding_dim", "dim"),
    "query_heads": ("num_attention_heads", "n_head", "n_heads"),
    "kv_heads": ("num_key_value_heads", "num_kv_heads", "n_head_kv", "n_kv_heads", "num_attention_groups"),
    "head_dim": ("head_dim", "attention_head_dim", "kv_channels"),
    "intermediate": ("intermediate_size", "block_ff_dim", "ffn_hidden_size", "n_inner", "ffn_dim", "d_ff"),
    "window": ("sliding_window", "sliding_window_size"),
    "vocab": ("padded_vocab_size", "vocab_size"),
    "context": ("max_position_embeddings", "n_positions", "max_seq_len", "seq_length", "model_max_length"),
    "experts": ("n_routed_experts", "num_experts", "num_local_experts", "moe_num_experts"),
    "top_k": (
        "num_experts_per_tok",
        "num_experts_per_token",
        "experts_per_token",
        "top_k_experts",
        "moe_topk",
        "moe_top_k",
        "moe_k",
    ),
    "expert_width": ("moe_intermediate_size", "expert_ffn_hidden_size"),
    "shared_experts": ("n_shared_experts", "num_shared_experts", "num_shared_expert", "moe_num_shared_experts"),
    "shared_width": (
        "shared_expert_intermediate_size",
        "moe_shared_expert_intermediate_size",
        "shared_intermediate_size",
        "share_expert_dim",
        "share_expert_dims",
    ),
    "dense_width": ("dense_intermediate_size", "intermediate_size_mlp", "prefix_dense_intermediate_size"),
    "latent_width": ("moe_latent_size", "routed_expert_hidden_size"),
    "dense_first": ("first_k_dense_replace", "num_dense_layers"),
    "sparse_layers": (
        "mlp_layer_types",
        "first_k_dense_replace",
        "num_dense_layers",
        "moe_layer_freq",
        "moe_layers_enum",
    ),
    "compression": ("compress_ratios", "compress_rates"),
    "kda": ("linear_attn_config", "linear_num_heads", "layer_group_size"),
    "mtp_layers": ("num_nextn_predict_layers", "num_mtp_modules", "mtp_num_hidden_layers", "num_mtp_layers"),
    "dtype": ("torch_dtype", "dtype"),
    # bare names of a class of Mamba-2 layers alone (num_heads, head_dim) mean others elsewhere: ssm.py asks for them
    "ssm_heads": ("mamba_num_heads", "mamba_n_heads", "n_mamba_heads"),
    "ssm_head_dim": ("mamba_head_dim", "mamba_d_head", "mamba_headdim"),
    "ssm_state": ("ssm_state_size", "mamba_d_state", "state_size"),
    "ssm_groups": ("mamba_n_groups", "mamba_ngroups", "n_groups"),
    "ssm_expand": ("mamba_expand", "expand"),
    "ssm_time_step_rank": ("mamba_dt_rank", "time_step_rank"),
    "conv_kernel": ("mamba_d_conv", "conv_kernel", "conv_dimension"),
    "linear_conv_kernel": ("linear_conv_kernel_dim", "short_conv_kernel_size"),
    "sconv_kernel": ("conv_kernel_size", "sconv_kernel_size"),
}

# A repo may give both names with different values for these: vocab padded or not, several ideas of the context,
# several ways to say which layers are sparse.
DIFFERENT_BY_DESIGN: Final = frozenset(
    {"vocab", "context", "sparse_layers", "shared_width", "mtp_layers", "compression", "kda"}
)

# Second names that no implementation reads where the first is there.
UNREAD: Final = frozenset({"experts_per_token", "sliding_window_size", "num_query_groups"})

# role of a layer -> the facts it may have of its own: (fact, the feature that a class must have, keys)
ROLE_FACTS: Final[dict[str, tuple[tuple[str, str, tuple[str, ...]], ...]]] = {
    "sliding": (
        ("query_heads", "own_sliding", ("swa_num_attention_heads", "num_sliding_attention_heads")),
        ("kv_heads", "own_sliding", ("swa_num_key_value_heads",)),
        ("head_dim", "own_sliding", ("swa_head_dim",)),
        ("v_head_dim", "own_sliding", ("swa_v_head_dim",)),
    ),
    "full": (
        ("head_dim", "own_full", ("global_head_dim",)),
        ("kv_heads", "own_full_kv", ("num_global_key_value_heads",)),
    ),
}

ENCODER_TOKENS: Final = "encoder_tokens"  # no key of a file: what `build_spec` was asked for

# keys whose values differ from layer to layer: with one of them, equal roles may be unequal layers
LAYERED: Final = (
    "compress_ratios", "compress_rates", "indexer_types", "index_topk_freq", "index_topk_pattern", "num_kv_shared_layers", "block_configs",
    "num_attention_heads_per_layer", "sparse_attention_config", "per_layer_config", "index_topk_blocks",
    "index_block_size",
)  # fmt: skip

UNDERSTOOD: Final = frozenset(name for names in ALIASES.values() for name in names) | {
    "model_type", "quantization_config", "quantization", "compression_config", "tie_word_embeddings", "sliding_window", "use_sliding_window",
    "max_window_layers", "layer_types", "attn_type_list", "kv_lora_rank", "q_lora_rank", "qk_nope_head_dim",
    "qk_rope_head_dim", "qk_head_dim", "v_head_dim", "multi_query", "multi_query_attention",
    "multi_query_group_num", "new_decoder_architecture", "num_ln_in_parallel_attn", "parallel_attn",
    "use_parallel_residual", "expansion_ratio", "attention_bias", "attention_out_bias", "mlp_bias", "bias",
    "qkv_bias", "use_qkv_bias", "use_bias", "add_qkv_bias", "add_bias_linear", "enable_bias", "no_bias",
    "lm_head_bias", "use_qk_norm", "qk_norm", "qk_norm_type", "qk_layernorm", "moe_layer_freq",
    "decoder_sparse_step", "mlp_only_layers", "mlp_layer_types", "moe_layer_start_index", "moe_layer_end_index",
    "moe_layer_interval", "mtp_transformer_layers", "use_mtp", "do_layer_norm_before", "word_embed_proj_dim",
    "attn_config", "learned_pos_emb", "ffn_config", "vision_config", "audio_config", "text_config", "conv_L_cache",
    "conv_dim", "conv_bias", "num_heads", "linear_num_key_heads", "linear_num_value_heads", "linear_key_head_dim",
    "linear_value_head_dim", "linear_num_heads", "linear_head_dim", "mamba_d_ssm", "mamba_rms_norm",
    "mamba_proj_bias", "mamba_conv_bias", "use_conv_bias", "projectors_bias", "qk_dim_factor",
    "v_dim_factor", "head_size", "attention_hidden_size", "gate_lower_bound", "kda_layers", "full_attn_layers",
    "block_ff_dim", "block_dim", "block_multiple_of", "block_auto_adjust_ff_dim", "block_ffn_dim_multiplier",
    "ffn_proj_factor", "ffn_round_up_to_multiple_of", "tie_embedding", "use_embedding_sharing", "d_kv", "d_ff",
    "relative_attention_num_buckets", "feed_forward_proj", "is_gated_act",
    "compress_ratios", "index_n_heads", "index_head_dim", "index_topk", "indexer_types", "index_topk_freq",
    "index_skip_topk_offset", "index_topk_pattern", "o_groups", "o_lora_rank", "num_hash_layers", "hc_mult",
    "num_kv_shared_layers", "block_configs", "num_attention_heads_per_layer", "sparse_attention_config",
    "layers_block_type", "hybrid_override_pattern", "linear_attn_config", "full_attention_interval",
    "layer_group_size", "attn_layer_period", "attn_layer_offset", "attn_layer_indices", "hybrid_layer_pattern",
    "full_attn_idxs", "cross_attention_layers", "sliding_window_pattern", "_sliding_window_pattern", "layer_switch",
    "global_attn_every_n_layers", "attention_chunk_size", "cca_time0", "cca_time1", "router_hidden_size",
    "swa_num_attention_heads", "num_sliding_attention_heads", "swa_num_key_value_heads", "swa_head_dim",
    "swa_v_head_dim", "global_head_dim", "num_global_key_value_heads", "attention_k_eq_v",
    "expert_layer_period", "expert_layer_offset", "interleave_moe_layer_step", "enable_moe_block", "zero_expert_num",
    "add_swa_attention_sink_bias", "add_full_attention_sink_bias", "attn_output_gate", "attention_output_gate", "gating",
    "mtp_layers_block_type", "mtp_hybrid_override_pattern", "mtp_use_kda", "is_encoder_decoder",
    "per_layer_config", "compress_rates", "mtp_layer_types", "mtp_mlp_layer_types", "num_decoder_layers", "encoder_layers", "encoder_attention_heads", "encoder_ffn_dim",
    "decoder_layers", "decoder_attention_heads", "decoder_ffn_dim", "max_source_positions", "max_target_positions",
    "num_mel_bins",
    "hidden_size_per_layer_input", "vocab_size_per_layer_input", "altup_num_inputs", "laurel_rank",
    "use_double_wide_mlp", "mla_use_output_gate", "mla_use_nope", "use_full_rank_gate",
    "adapter_rank", "use_shared_attention_adapter", "use_sandwich_norm", "use_attention_gate", "context_length",
    "prefix_dense_sliding_window_pattern", "index_block_size", "index_topk_blocks", "attention_other_setting",
    "use_head_wise_attn_gate",
    "kv_source_layers", "gated_norm_rank",
    "attn_res_block_size", "latent_moe_use_norm", "num_mem_blocks", "num_mtp_modules", "moe_layers",
    "lru_width", "block_types", "_block_types", "conv1d_width", "attention_window_size",
    "attention_layers", "attention_types", "window_size", "is_moe", "use_post_norm",
    "index_kpool", "indexer_n_heads", "indexer_kv_heads", "indexer_head_dim", "indexer_budget", "indexer_compress_ratio",
    "hc_count", "hc_lowrank", "ple_layer_ids", "ple_embed_dim", "ple_conv_kernel_size", "ngram_size", "heads_per_ngram",
    "ngram_vocab_size_base", "make_ngram_vocab_size_divisible_by",
    "d_rel", "rel_extent", "local_layer_ids", "dense_mlp_idx", "unpadded_vocab_size", "mtp_local_layer_ids",
    "chain_hidden_post_norm", "moe_hidden_size", "use_dsa", "shared_experts_intermediate_size", "swa_q_lora_rank",
    "swa_kv_lora_rank", "swa_qk_nope_head_dim", "swa_qk_rope_head_dim", "n_layers_per_attn_res_block", "loop_config",
    "loop_layer_index_start", "loop_layer_index_end", "loop_num_passes", "loop_gate_rank",
}  # fmt: skip

# Named like something that shapes memory or work, yet it does not.
INERT: Final = frozenset({
    "attn_implementation", "_attn_implementation", "attention_softmax_in_fp32", "pre_allocate_kv_cache",
    "pad_key_length", "mlp_intermediate_size", "shared_moe_mode", "no_rope_layers", "no_rope_layer_interval",
    "moe_router_enable_expert_bias", "moe_router_use_sigmoid", "enable_moe_fp32_combine", "use_moe_router_bias",
    "use_routing_bias", "moe_norm_min", "moe_capacity", "moe_gate", "moe_gate_act", "moe_use_aux_free",
    "moe_use_hard_gate", "moe_dropout_prob", "moe_multimodal_dispatch_use_allgather", "moe_group",
    "use_mrope", "rms_norm", "rmsnorm", "post_layer_norm", "hidden_act", "hidden_activation", "activation",
    "activation_function", "is_decoder", "ep_size", "onnx_safe",
    "img_processor", "use_logn_attn", "use_dynamic_ntk", "dim_model_base", "original_rope", "skip_bias_add",
    "skip_bias_add_qkv", "n_special", "predict_special_tokens", "validate_runner_input", "max_batch_size",
    "max_sequence_length", "n_ctx", "runner_max_sequence_length", "inference_runner", "max_length", "init_device",
    "transformers.js_config", "is_llama_config", "cache_implementation", "use_grouped_mm", "norm_type",
    "use_gemma_norm", "unsloth_fixed", "low_cpu_mem_usage", "min_length", "sep_token", "use_fused_rms_norm",
    "fuse_attention_qkv", "fuse_attention_ffn", "weight_share_add_bias", "tensor_parallel_degree",
    "enable_attention_fp32_softmax", "enable_lm_head_fp32", "route_norm", "norm_topk_prob", "num_labels",
    "use_bidirectional_attention", "chunk_size_feed_forward", "cross_attention_hidden_size",
    "mamba_ssm_dtype", "mamba_ssm_cache_dtype", "inference_state_dtype", "weight_mode", "time_step_min", "time_step_max",
    "time_step_floor", "time_step_limit", "time_step_init_scheme", "time_step_scale", "chunk_size", "mamba_chunk_size",
    "norm_before_gate", "mamba_norm_before_gate", "use_mamba_kernels", "linear_allow_neg_eigval", "mamba_hidden_act",
    "conv_use_xavier_init", "block_use_swiglu", "block_use_xavier_init", "block_mlp_init_scale", "block_out_init_scale",
    "block_norm_eps", "init_method", "normalization_function", "position_embedding_type", "activation_situ_beta",
    "activation_situ_linear_beta", "num_return_sequences", "top_k", "typical_p", "num_beam_groups",
    "use_mambapy", "use_associative_scan", "return_last_states", "mode", "autocast_kernel_dtype", "chunkwise_kernel",
    "sequence_kernel", "step_kernel", "max_inference_chunksize", "gate_soft_cap", "output_logit_soft_cap",
    "norm_reduction_force_float32", "add_out_norm", "rescale_prenorm_residual", "use_mem_eff_path", "mamba_act",
    "mamba_use_mlp", "mlp_multipliers", "ssm_multipliers", "z_loss_coefficient", "attention_dropout_prob",
    "rescale_every", "use_long_context", "mlp_hidden_act", "head_size_divisor", "linear_attn_alpha_factor", "linear_attn_beta_factor", "linear_a_log_max",
    "linear_dt_min", "linear_dt_max", "linear_dt_init_floor", "conv_dim_out",
    "query_pre_attn_scalar", "swiglu_limit", "swiglu_alpha", "initial_context_length", "expert_dtype", "hc_eps",
    "hc_sinkhorn_iters", "index_share_for_mtp_iteration", "moe_renormalize", "num_expert_group", "use_grouped_topk",
    "moe_router_activation_func", "attention_value_scale", "scale_emb", "scale_depth", "expert_hidden_dim", "mtp_use_dedicated_embeddings",
    "mtp_loss_scaling_factor", "attn_logit_softcapping", "final_logit_softcapping", "moe_shared_expert_overlap", "num_logits_to_keep", "altup_active_idx", "altup_coef_clip", "altup_correct_scale",
    "activation_sparsity_pattern", "zero_expert_type", "cla_share_factor", "kda_safe_gate", "kda_lower_bound",
    "linear_silu", "num_query_groups", "moe_router_pre_softmax", "layer_rope_theta", "embd_layer", "full_attn_mod",
    "interpolate_factor", "original_max_position_embeddings", "index_local_blocks", "layer_norm_type",
    "block_size", "use_expert_bias", "hidden_mamba_act", "use_mem_rope", "swiglu_limits", "swiglu_limits_shared",
    "linear_lower_bound", "index_kpool_always_select_tail", "number_of_conv_states",
    "keep_window_size", "shared_expert_sink", "rms_norm_eps_moe_gate", "mtp_hidden_states_first", "head_dim_original", "tie_encoder_decoder", "use_stable_embedding", "logit_scale", "verbose", "layer_norm_elementwise_affine",
})  # fmt: skip

# plain strings: re compiles and keeps them on first use, and a config of the catalogue never needs them
_INERT_WORDS: Final = (
    r"_token|dropout|pdrop|initializer|init_std|_eps$|epsilon|rope|rotary|router_|_loss|aux_|scal(e|ing)|topk_group|"
    r"topk_method|n_group|scoring|softcap|use_cache|output_|transformers|version|template|name_or_path|auto_map|"
    r"architectures|pretraining_tp|^fp16$|^bf16$|^fp32|flash|fused|multiplier|mup_|tokenizer|prefix|summary|"
    r"return_dict|id2label|label2id|problem_type|task_specific|clip_qkv|alibi|seq_aux|layerdrop|residual|fusion|"
    r"layernorm_|pretrain|_commit_hash|beam|sample|temperature|top_p$|repetition|special|ignore|finetuning|"
    r"torchscript|no_repeat|early_stopping|diversity|penalty|logits|bad_words|attentions$|hidden_states$"
)

_SHAPING_WORDS: Final = (
    r"window|sliding|swa_|chunk|sparse|mamba|ssm|rwkv|conv_|linear_|lightning|delta|recurrent|lora_|_rank|compress|"
    r"index_|cross_attention|shared|layer_types|block_type|pattern|expert|moe|kv_|_kv|nextn|mtp|latent|altup|laurel|"
    r"per_layer|hash|use_cla|prune|no_op|block_configs|encoder|num_.*(head|layer)|n_(head|layer)|_config$|zero_|global_"
)


# Keys that change parameters when they are switched off.
MUST_BE_ON: Final = frozenset({"layer_norm_elementwise_affine"})


def is_off(value: object) -> bool:
    """Whether a value switches its key off: null, false, zero, or empty.

    >>> is_off(None), is_off(False), is_off([]), is_off(4096)
    (True, True, True, False)
    """
    return value is None or value is False or value == 0 or value in ("", [], {})


def not_understood(config: Mapping[str, Any], *, known_class: bool) -> tuple[str, ...]:
    """Keys that may shape memory or work and that roofcast does not understand.

    Of a known model class every other key is one that class ignores, so only words that shape memory or work
    count; of an unknown class every key counts that is neither understood nor known to be harmless.

    >>> not_understood({"hidden_size": 8, "mamba_d_novel": 16, "my_note": 1}, known_class=True)
    ('mamba_d_novel',)
    >>> not_understood({"hidden_size": 8, "my_note": 1}, known_class=False)
    ('my_note',)
    """
    strange = [
        key
        for key, value in config.items()
        if not (key in UNDERSTOOD or key in INERT or is_off(value) or re.search(_INERT_WORDS, key))
    ]
    off = [key for key in MUST_BE_ON if config.get(key) is False]
    return (*off, *(key for key in strange if not known_class or re.search(_SHAPING_WORDS, key)))
