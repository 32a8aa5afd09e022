"""Which keys of a config.json roofcast understands, which are harmless, and which it must not overlook."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

# One fact, every name it goes by; the first that is present counts.
ALIASES: Final[dict[str, tuple[str, ...]]] = {
    "layers": ("num_hidden_layers", "n_layer", "n_layers", "num_layers"),
    "hidden": ("hidden_size", "n_embd", "d_model", "n_embed"),
    "query_heads": ("num_attention_heads", "n_head", "n_heads"),
    "kv_heads": ("num_key_value_heads", "num_kv_heads", "n_head_kv"),
    "head_dim": ("head_dim", "attention_head_dim", "kv_channels"),
    "intermediate": ("intermediate_size", "ffn_hidden_size", "n_inner", "ffn_dim"),
    "vocab": ("padded_vocab_size", "vocab_size"),
    "context": ("max_position_embeddings", "n_positions", "max_seq_len", "seq_length"),
    "experts": ("n_routed_experts", "num_experts", "num_local_experts", "moe_num_experts"),
    "top_k": ("num_experts_per_tok", "moe_topk", "moe_k"),
    "expert_width": ("moe_intermediate_size",),
    "shared_experts": ("n_shared_experts", "num_shared_experts", "num_shared_expert", "moe_num_shared_experts"),
    "shared_width": ("shared_expert_intermediate_size", "shared_intermediate_size"),
    "dense_first": ("first_k_dense_replace", "num_dense_layers"),
    "sparse_layers": ("mlp_layer_types", "first_k_dense_replace", "num_dense_layers", "moe_layer_freq"),
    "mtp_layers": ("num_nextn_predict_layers", "num_mtp_modules"),
    "dtype": ("torch_dtype", "dtype"),
}

# A repo may give both names with different values for these: vocab padded or not, several ideas of the context,
# several ways to say which layers are sparse.
DIFFERENT_BY_DESIGN: Final = frozenset({"vocab", "context", "sparse_layers"})

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
    "attn_config", "learned_pos_emb",
}  # fmt: skip

# Named like something that shapes memory or work, yet it does not.
INERT: Final = frozenset({
    "attn_implementation", "_attn_implementation", "attention_softmax_in_fp32", "pre_allocate_kv_cache",
    "pad_key_length", "mlp_intermediate_size", "shared_moe_mode", "no_rope_layers", "no_rope_layer_interval",
    "moe_router_enable_expert_bias", "moe_router_use_sigmoid", "enable_moe_fp32_combine", "use_moe_router_bias",
    "use_routing_bias", "moe_norm_min", "moe_capacity", "moe_gate", "moe_gate_act", "moe_use_aux_free",
    "moe_use_hard_gate", "moe_dropout_prob", "moe_multimodal_dispatch_use_allgather", "moe_group",
    "expert_hidden_dim", "use_mrope", "rms_norm", "rmsnorm", "post_layer_norm", "hidden_act", "hidden_activation", "activation",
    "activation_function", "is_decoder", "ep_size", "onnx_safe",
    "img_processor", "use_logn_attn", "use_dynamic_ntk", "dim_model_base", "original_rope", "skip_bias_add",
    "skip_bias_add_qkv", "n_special", "predict_special_tokens", "validate_runner_input", "max_batch_size",
    "max_sequence_length", "n_ctx", "runner_max_sequence_length", "inference_runner", "max_length", "init_device",
    "transformers.js_config", "is_llama_config", "cache_implementation", "use_grouped_mm", "norm_type",
    "use_gemma_norm", "unsloth_fixed", "low_cpu_mem_usage", "min_length", "sep_token", "use_fused_rms_norm",
    "fuse_attention_qkv", "fuse_attention_ffn", "weight_share_add_bias", "tensor_parallel_degree",
    "enable_attention_fp32_softmax", "enable_lm_head_fp32", "route_norm", "norm_topk_prob", "num_labels",
    "use_bidirectional_attention", "conv_bias", "chunk_size_feed_forward", "cross_attention_hidden_size",
    "head_dim_original", "tie_encoder_decoder", "use_stable_embedding", "logit_scale", "verbose", "cla_share_factor", "layer_norm_elementwise_affine",
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
# a feature's keys: where the class ignores the feature, none of them may be on
FEATURE_KEYS: Final[dict[str, tuple[str, ...]]] = {
    "moe": ALIASES["experts"],
    "mla": ("kv_lora_rank",),
    "multi_query": ("multi_query",),
    "multi_query_groups": ("multi_query_attention",),
}
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

    >>> not_understood({"hidden_size": 8, "mamba_d_state": 16, "my_note": 1}, known_class=True)
    ('mamba_d_state',)
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
