"""Which layer is what: every key that says so, read by hand, and refused where it cannot be."""

from __future__ import annotations

from typing import Any

import pytest

from roofcast.modelspec.config import read_config
from roofcast.modelspec.errors import MalformedModelError, UnknownArchitectureError
from roofcast.modelspec.plan import PLAN_RULES, layer_plan
from tests.model_configs import is_one_line

SIZES = {
    "hidden_size": 64, "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 96, "vocab_size": 500,
    "max_position_embeddings": 256,
}  # fmt: skip
MLA = {"kv_lora_rank": 16, "q_lora_rank": 8, "qk_nope_head_dim": 8, "qk_rope_head_dim": 4, "v_head_dim": 8}
MOE = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32, "num_shared_experts": 1}
WINDOW = {"sliding_window": 16}
CLASSES: dict[str, dict[str, Any]] = {
    "bamba": {},
    "bailing_hybrid": {**MLA, **MOE},
    "cohere2": WINDOW,
    "cohere2_moe": {**WINDOW, **MOE},
    "cwm": WINDOW,
    "deepseek_v4": {"n_routed_experts": 4, "moe_intermediate_size": 32, "n_shared_experts": 1},
    "exaone4": WINDOW,
    "falcon_h1": {},
    "gpt_neo": {"window_size": 16},
    "gemma2": WINDOW,
    "gemma3_text": WINDOW,
    "granitemoehybrid": {"num_local_experts": 0, "shared_intermediate_size": 32},
    "jamba": {"num_experts": 1},
    "kimi_linear": {**MLA, **MOE},
    "laguna": {**WINDOW, **MOE, "shared_expert_intermediate_size": 32},
    "lfm2": {},
    "llama": {},
    "llama4_text": {"num_local_experts": 4, "num_experts_per_tok": 1},
    "mamba": {},
    "mimo_v2_flash": {**WINDOW, "n_routed_experts": 4, "moe_intermediate_size": 32},
    "mimo_v2": WINDOW,
    "minimax": {"num_local_experts": 4},
    "mllama_text_model": {},
    "nemotron_h": {},
    "nemotron-nas": {},
    "olmo_hybrid": {},
    "qwen2": {"use_sliding_window": True, **WINDOW},
    "qwen3_5_text": {},
    "recurrent_gemma": {},
    "rwkv": {},
    "t5": {"d_kv": 16, "num_layers": 2},
    "xlstm": {},
    "zamba": {},
    "zamba2": {},
    "zaya": MOE,
}
KDA = {"num_heads": 2, "head_dim": 16, "short_conv_kernel_size": 4}
NO_OP, LINEAR_MAP = {"no_op": True}, {"replace_with_linear": True}
ATTENDS, FEEDS = {"n_heads_in_group": 2}, {"ffn_mult": 1.5}
LETTERS = {
    "full": "F", "sliding": "S", "chunked": "K", "linear": "L", "conv": "C", "cross": "X", "hybrid": "H",
    "hybrid_sliding": "h", "owned": "O", "shared": "R", "mapped": "M",
}  # fmt: skip


def plan(model_type: str, layers: int, **keys: Any) -> str:
    """Return the roles of every layer as letters, a dash where it has none, an f where it feeds forward."""
    config = {"model_type": model_type, "num_hidden_layers": layers, **SIZES, **CLASSES[model_type], **keys}
    slots = layer_plan(read_config(config))
    return " ".join(("".join(LETTERS[role] for role in slot.roles) or "-") + "f" * slot.feeds for slot in slots)


# class, layers, keys, the layers that they mean
CASES: list[tuple[str, int, dict[str, Any], str]] = [
    ("t5", 2, {}, "FXf FXf"),
    (
        "nemotron-nas",
        4,
        {"block_configs": [{"attention": a, "ffn": f} for a, f in ((ATTENDS, FEEDS), (NO_OP, FEEDS), (LINEAR_MAP, NO_OP), (ATTENDS, LINEAR_MAP))]},
        "Ff -f M Ff",
    ),
    ("deepseek_v4", 3, {"compress_ratios": [0, 4, 128]}, "Ff Ff Ff"),
    ("deepseek_v4", 2, {"compress_ratios": [0, 4, 0], "num_nextn_predict_layers": 1}, "Ff Ff"),
    ("gemma2", 3, {"layer_types": ["full_attention", "sliding_attention", "full_attention"]}, "Ff Sf Ff"),
    ("zaya", 2, {"layer_types": ["hybrid", "hybrid_sliding"]}, "Hf hf"),
    ("granitemoehybrid", 3, {"layer_types": ["mamba", "attention", "mamba"]}, "Lf Ff Lf"),
    ("nemotron_h", 4, {"layers_block_type": ["mamba", "attention", "mlp", "moe"]}, "L F -f -f"),
    ("nemotron_h", 5, {"hybrid_override_pattern": "M*-EM"}, "L F -f -f L"),
    ("mimo_v2_flash", 3, {"hybrid_layer_pattern": [0, 1, 0]}, "Ff Sf Ff"),
    ("minimax", 3, {"attn_type_list": [0, 0, 1]}, "Lf Lf Ff"),
    ("kimi_linear", 3, {"linear_attn_config": {**KDA, "kda_layers": [1, 3], "full_attn_layers": [2]}}, "Lf Ff Lf"),
    ("qwen3_5_text", 4, {"full_attention_interval": 2}, "Lf Ff Lf Ff"),
    ("bailing_hybrid", 4, {"layer_group_size": 3}, "Lf Lf Ff Lf"),
    ("mllama_text_model", 3, {"cross_attention_layers": [1]}, "Ff Xf Ff"),
    ("lfm2", 3, {"full_attn_idxs": [0, 2]}, "Ff Cf Ff"),
    ("jamba", 5, {"attn_layer_period": 3, "attn_layer_offset": 1}, "Lf Ff Lf Lf Ff"),
    ("bamba", 3, {"attn_layer_indices": [2]}, "Lf Lf Ff"),
    ("zaya", 2, {}, "Hf Hf"),
    ("falcon_h1", 2, {}, "LFf LFf"),
    ("exaone4", 5, {"sliding_window_pattern": "LLG"}, "Sf Sf Ff Sf Sf"),
    ("exaone4", 5, {"sliding_window_pattern": 2}, "Sf Ff Sf Ff Sf"),
    ("exaone4", 2, {"sliding_window_pattern": 2, "sliding_window": None}, "Ff Ff"),
    ("mimo_v2", 3, {"_sliding_window_pattern": 3}, "Sf Sf Ff"),
    ("mimo_v2", 4, {"layer_switch": 2}, "Sf Ff Sf Ff"),
    ("mimo_v2", 3, {"global_attn_every_n_layers": 3}, "Sf Sf Ff"),
    ("llama4_text", 5, {"attention_chunk_size": 16}, "Kf Kf Kf Ff Kf"),
    ("llama4_text", 3, {"no_rope_layers": [1, 0, 1]}, "Kf Ff Kf"),
    ("recurrent_gemma", 4, {"block_types": ["attention", "recurrent", "recurrent"]}, "Sf Lf Lf Sf"),
    ("recurrent_gemma", 2, {"block_types": ["recurrent"] * 3 + ["attention"]}, "Lf Lf"),
    ("recurrent_gemma", 3, {"_block_types": ["recurrent", "attention"]}, "Lf Sf Lf"),
    ("recurrent_gemma", 3, {"block_types": ["recurrent"], "_block_types": ["attention"]}, "Lf Lf Lf"),
    ("gpt_neo", 4, {"attention_types": [[["global", "local"], 2]]}, "Ff Sf Ff Sf"),
    ("gpt_neo", 4, {"attention_types": [[["local"], 3], [["global", "local"], 0], [["global"], 1]]}, "Sf Sf Sf Ff"),
    ("gpt_neo", 2, {"attention_layers": ["local", "global"], "attention_types": [[["global", "local"], 1]]}, "Sf Ff"),
    ("granitemoehybrid", 2, {}, "Lf Lf"),
    ("mamba", 2, {}, "L L"),
    ("xlstm", 2, {"num_heads": 2}, "Lf Lf"),
    ("rwkv", 2, {}, "Lf Lf"),
    # patterns that a class fixes in code
    ("gemma2", 4, {}, "Sf Ff Sf Ff"),
    ("cwm", 5, {}, "Ff Sf Sf Sf Ff"),
    ("mimo_v2_flash", 7, {}, "Ff Sf Sf Sf Sf Ff Sf"),
    ("laguna", 2, {}, "Ff Ff"),
    ("recurrent_gemma", 5, {}, "Lf Lf Sf Lf Lf"),
    ("gpt_neo", 24, {}, " ".join(["Ff Sf"] * 12)),
    ("olmo_hybrid", 4, {}, "Lf Lf Lf Ff"),
    ("minimax", 4, {}, "Ff Lf Ff Lf"),
    ("cohere2_moe", 5, {"first_k_dense_replace": 2, "sliding_window_pattern": 2}, "Ff Ff Sf Ff Sf"),
    ("qwen2", 3, {"max_window_layers": 1}, "Ff Sf Sf"),
    ("llama", 2, {}, "Ff Ff"),
    # shared blocks: the first brings its weights
    ("zamba", 7, {"attn_layer_period": 3, "attn_layer_offset": 0}, "L L OLf RLf L L RLf"),
    ("zamba2", 5, {"layers_block_type": ["mamba", "hybrid", "hybrid", "hybrid", "mamba"], "num_mem_blocks": 2}, "L OLf OLf RLf L"),
]  # fmt: skip


@pytest.mark.parametrize(("model_type", "layers", "keys", "expected"), CASES)
def test_a_key_says_what_every_layer_is(model_type: str, layers: int, keys: dict[str, Any], expected: str) -> None:
    """Each key, or the class where none is there, gives the roles that were read by hand."""
    assert plan(model_type, layers, **keys) == expected


def test_every_rule_has_a_case() -> None:
    """No rule of the table goes without a hand-read case."""
    implied = {"is_encoder_decoder", "cca_time0", "mamba_d_ssm", "mamba_n_heads", "state_size", "qk_dim_factor"}
    implied |= {
        "attention_hidden_size"
    }  # a class's own defaults switch these on: t5, zaya, falcon_h1, bamba, mamba ...

    assert {key for _, _, keys, _ in CASES for key in keys} | implied >= PLAN_RULES.keys()


# class, layers, keys that cannot be, the name that the error says, its kind
BAD = [
    ("gemma2", 3, {"layer_types": ["full_attention"] * 2}, "layer_types", MalformedModelError),
    ("gemma2", 2, {"layer_types": "full_attention"}, "layer_types", MalformedModelError),
    ("gemma2", 2, {"layer_types": ["full_attention", "quantum"]}, "quantum", UnknownArchitectureError),
    ("granitemoehybrid", 2, {"layers_block_type": ["mamba", 7]}, "7", UnknownArchitectureError),
    ("nemotron_h", 3, {"hybrid_override_pattern": "M*"}, "hybrid_override_pattern", MalformedModelError),
    ("nemotron_h", 3, {"hybrid_override_pattern": "M|*"}, "hybrid_override_pattern", UnknownArchitectureError),
    ("nemotron_h", 3, {"hybrid_override_pattern": ["M"]}, "hybrid_override_pattern", MalformedModelError),
    ("mimo_v2_flash", 2, {"hybrid_layer_pattern": [0, 2]}, "hybrid_layer_pattern", UnknownArchitectureError),
    ("mimo_v2_flash", 2, {"hybrid_layer_pattern": [0, 1.0]}, "hybrid_layer_pattern", UnknownArchitectureError),
    ("minimax", 2, {"attn_type_list": [1]}, "attn_type_list", MalformedModelError),
    ("kimi_linear", 2, {"linear_attn_config": {**KDA, "kda_layers": [1], "full_attn_layers": []}}, "kda_layers", MalformedModelError),
    ("kimi_linear", 2, {"linear_attn_config": {**KDA, "kda_layers": [0, 1], "full_attn_layers": []}}, "from 1", MalformedModelError),
    ("kimi_linear", 2, {"linear_attn_config": {**KDA, "kda_layers": "all", "full_attn_layers": []}}, "kda_layers", MalformedModelError),
    ("kimi_linear", 2, {"linear_attn_config": [1]}, "linear_attn_config", MalformedModelError),
    ("qwen3_5_text", 4, {"full_attention_interval": -2}, "full_attention_interval", MalformedModelError),
    ("qwen3_5_text", 4, {"full_attention_interval": "2"}, "full_attention_interval", MalformedModelError),
    ("lfm2", 3, {"full_attn_idxs": [3]}, "full_attn_idxs", MalformedModelError),
    ("bamba", 3, {"attn_layer_indices": [-1]}, "attn_layer_indices", MalformedModelError),
    ("jamba", 3, {"attn_layer_period": 2, "attn_layer_offset": -1}, "attn_layer_offset", MalformedModelError),
    ("exaone4", 3, {"sliding_window_pattern": "LLX"}, "sliding_window_pattern", MalformedModelError),
    ("exaone4", 3, {"sliding_window_pattern": -1}, "sliding_window_pattern", MalformedModelError),
    ("llama4_text", 3, {"no_rope_layers": [1]}, "no_rope_layers", MalformedModelError),
    ("deepseek_v4", 3, {"compress_ratios": [0]}, "compress_ratios", MalformedModelError),
    ("nemotron-nas", 2, {"block_configs": [{}]}, "block_configs", MalformedModelError),
    ("nemotron-nas", 1, {"block_configs": [{"attention": [], "ffn": FEEDS}]}, "attention", MalformedModelError),
    ("nemotron-nas", 1, {"block_configs": [{"attention": {"no_op": 1}, "ffn": FEEDS}]}, "switches", MalformedModelError),
    ("nemotron-nas", 1, {"block_configs": [{"attention": {"sparsify": [1]}, "ffn": FEEDS}]}, "sparsify", UnknownArchitectureError),
    ("zamba2", 2, {"layers_block_type": ["mamba", "hybrid"], "num_mem_blocks": -1}, "num_mem_blocks", MalformedModelError),
    ("cohere2_moe", 2, {"first_k_dense_replace": -1}, "first_k_dense_replace", MalformedModelError),
    ("recurrent_gemma", 2, {"block_types": ["recurrent", "mamba"]}, "'mamba'", UnknownArchitectureError),
    ("recurrent_gemma", 2, {"block_types": [["recurrent"]]}, "it knows recurrent, attention", UnknownArchitectureError),
    ("recurrent_gemma", 2, {"block_types": "recurrent"}, "block_types is 'recurrent'", MalformedModelError),
    ("gpt_neo", 2, {"attention_types": [[["global", "local"], 2]]}, "more than 2 layers", MalformedModelError),
    ("gpt_neo", 2, {"attention_types": [[["global"] * 5, 10**9]]}, "more than 2 layers", MalformedModelError),
    ("gpt_neo", 4, {"attention_types": [[["global"], 3]]}, "names 3 layers; it must name each of the 4", MalformedModelError),
    ("gpt_neo", 2, {"attention_types": [["global", 2]]}, "pairs", MalformedModelError),
    ("gpt_neo", 2, {"attention_types": {"global": 2}}, "pairs", MalformedModelError),
    ("gpt_neo", 2, {"attention_types": [[["global", "dilated"], 1]]}, "'dilated'", UnknownArchitectureError),
    ("gpt_neo", 2, {"attention_layers": ["global", None]}, "attention_layers has None", UnknownArchitectureError),
    ("gpt_neo", 2, {"attention_layers": ["global"]}, "1 entries", MalformedModelError),
    ("gpt_neo", 2, {}, "more than 2 layers", MalformedModelError),
    ("llama", 2, {"layer_types": ["full_attention", "moe"]}, "feeds forward", UnknownArchitectureError),
]  # fmt: skip


@pytest.mark.parametrize(("model_type", "layers", "keys", "named", "kind"), BAD)
def test_a_list_that_cannot_be_is_refused(
    model_type: str, layers: int, keys: dict[str, Any], named: str, kind: type[Exception]
) -> None:
    """A list of another length or with strange entries is refused on one line that names it."""
    with pytest.raises(kind) as error:
        plan(model_type, layers, **keys)

    assert type(error.value) is kind
    assert named in str(error.value)
    assert is_one_line(str(error.value))
