"""Configs for tests: published ones by repo, a small one of each kind, and the tensors that a small one would have."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

from roofcast.modelspec.errors import MalformedModelError, ModelError
from roofcast.modelspec.spec import ModelSpec, build_spec
from roofcast.modelspec.weights import Tensor

FIXTURES: Final = Path(__file__).parent / "fixtures"
CONFIGS: Final = FIXTURES / "configs"

LLAMA: Final[dict[str, Any]] = {
    "model_type": "llama",
    "hidden_size": 64,
    "num_hidden_layers": 4,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "intermediate_size": 96,
    "vocab_size": 500,
    "max_position_embeddings": 128,
}
QWEN_MOE: Final[dict[str, Any]] = {
    **LLAMA,
    "model_type": "qwen3_moe",
    "num_experts": 8,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 32,
    "decoder_sparse_step": 1,
    "mlp_only_layers": [],
}
DEEPSEEK: Final[dict[str, Any]] = {
    "model_type": "deepseek_v3",
    "hidden_size": 64,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "intermediate_size": 96,
    "vocab_size": 500,
    "max_position_embeddings": 128,
    "q_lora_rank": 24,
    "kv_lora_rank": 16,
    "qk_nope_head_dim": 8,
    "qk_rope_head_dim": 4,
    "v_head_dim": 8,
    "n_routed_experts": 8,
    "n_shared_experts": 1,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 32,
    "first_k_dense_replace": 1,
    "moe_layer_freq": 1,
}
FALCON: Final[dict[str, Any]] = {
    "model_type": "falcon",
    "hidden_size": 64,
    "num_hidden_layers": 4,
    "num_attention_heads": 8,
    "num_kv_heads": 2,
    "new_decoder_architecture": True,
    "multi_query": True,
    "parallel_attn": True,
    "bias": False,
    "vocab_size": 500,
}
SMALL: Final = {"llama": LLAMA, "qwen3_moe": QWEN_MOE, "deepseek_v3": DEEPSEEK, "falcon": FALCON}
MISSING: Final = object()  # a change to this leaves the key out


def published(repo: str) -> dict[str, Any]:
    """Return the published config.json of a repo among the fixtures."""
    config: dict[str, Any] = json.loads((CONFIGS / f"{repo.replace('/', '--')}.json").read_text())
    return config


def changed(config: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """Return the config with keys replaced, or left out where the change is MISSING."""
    return {key: value for key, value in {**config, **changes}.items() if value is not MISSING}


def outcome(config: dict[str, Any], *, counted_in_files: bool = False) -> ModelSpec | ModelError:
    """Return what a config gives: the model, or the error with which it is refused."""
    try:
        return build_spec(config, counted_in_files=counted_in_files)
    except ModelError as error:
        return error


def refusal(config: dict[str, Any], *, counted_in_files: bool = False) -> ModelError:
    """Return the error with which a config is refused; fails where it is not."""
    error = outcome(config, counted_in_files=counted_in_files)
    assert isinstance(error, ModelError), f"{config} was answered"
    return error


def is_one_line(message: str) -> bool:
    """Whether a message is one printable line that a terminal bears."""
    return message.isprintable() and 0 < len(message) < 1000


def assert_malformed(config: dict[str, Any], key: str) -> None:
    """Expect a config to be refused as broken, with the key named on one line."""
    error = refusal(config)
    assert type(error) is MalformedModelError, error
    assert key in str(error)
    assert is_one_line(str(error))


def llama_tensors(config: dict[str, Any], dtype: str = "BF16") -> tuple[Tensor, ...]:
    """Return the tensors of a small Llama with an untied head, in the names that published files use."""
    hidden, heads, kv_heads = config["hidden_size"], config["num_attention_heads"], config["num_key_value_heads"]
    width, kv_width = config["intermediate_size"], kv_heads * (hidden // heads)
    shapes: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (config["vocab_size"], hidden)}
    for layer in range(config["num_hidden_layers"]):
        stem = f"model.layers.{layer}"
        shapes |= {
            f"{stem}.self_attn.q_proj.weight": (hidden, hidden),
            f"{stem}.self_attn.k_proj.weight": (kv_width, hidden),
            f"{stem}.self_attn.v_proj.weight": (kv_width, hidden),
            f"{stem}.self_attn.o_proj.weight": (hidden, hidden),
            f"{stem}.mlp.gate_proj.weight": (width, hidden),
            f"{stem}.mlp.up_proj.weight": (width, hidden),
            f"{stem}.mlp.down_proj.weight": (hidden, width),
            f"{stem}.input_layernorm.weight": (hidden,),
            f"{stem}.post_attention_layernorm.weight": (hidden,),
        }
    shapes |= {"model.norm.weight": (hidden,), "lm_head.weight": (config["vocab_size"], hidden)}
    return tuple(Tensor(name, dtype, shape) for name, shape in shapes.items())
