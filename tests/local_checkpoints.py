"""Tiny real checkpoints, written by transformers with random weights: what `profile checkpoint` and real text read."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

import torch
import transformers
from safetensors.torch import load_file, save_file

from roofcast.profiler.checkpoint_load import silenced

if TYPE_CHECKING:
    from pathlib import Path

WORDS: Final = 96  # tokens
SIZES: Final[dict[str, Any]] = {
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "vocab_size": WORDS,
    "max_position_embeddings": 256,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
}
#: name -> class of its config, and what this has beside the sizes
KINDS: Final[dict[str, tuple[str, dict[str, Any]]]] = {
    "llama": ("LlamaConfig", {}),
    "qwen3": ("Qwen3Config", {"tie_word_embeddings": True}),
    "mixtral": ("MixtralConfig", {"num_local_experts": 4, "num_experts_per_tok": 2}),
    "gemma3": ("Gemma3TextConfig", {"sliding_window": 16, "layer_types": ["sliding_attention", "full_attention"]}),
    "mistral": ("MistralConfig", {"sliding_window": 12}),
    "deepseek": (
        "DeepseekV3Config",
        {
            "num_key_value_heads": 4,
            "q_lora_rank": 16,
            "kv_lora_rank": 16,
            "qk_nope_head_dim": 8,
            "qk_rope_head_dim": 8,
            "v_head_dim": 8,
            "n_routed_experts": 4,
            "num_experts_per_tok": 2,
            "n_group": 1,
            "topk_group": 1,
            "moe_intermediate_size": 16,
            "first_k_dense_replace": 1,
        },
    ),
    "gpt2": ("GPT2Config", {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64, "vocab_size": WORDS}),
    "mamba": ("MambaConfig", {"state_size": 4}),
    "qwen3_next": (
        "Qwen3NextConfig",
        {
            "layer_types": ["linear_attention", "full_attention"],
            "linear_num_key_heads": 2,
            "linear_num_value_heads": 4,
            "linear_key_head_dim": 8,
            "linear_value_head_dim": 8,
            "num_experts": 4,
            "num_experts_per_tok": 2,
            "moe_intermediate_size": 16,
            "shared_expert_intermediate_size": 16,
        },
    ),
}
OWN_SIZES: Final = frozenset(("gpt2",))  # kinds whose sizes have other names


def write_checkpoint(folder: Path, kind: str = "llama", seed: int = 0, dtype: str = "float32", **changed: Any) -> Path:
    """Write config.json and weights of a tiny model of a kind; the seed draws them."""
    name, own = KINDS[kind]
    common = {"bos_token_id": 1, "eos_token_id": 2} if kind in OWN_SIZES else SIZES
    with silenced(transformers):
        config = getattr(transformers, name)(**{**common, **own, **changed})
        torch.manual_seed(seed)
        model = transformers.AutoModelForCausalLM.from_config(config)
        for weights in model.parameters():  # livelier than drawn as for training, so that texts vary
            if weights.dim() > 1:
                weights.data.mul_(4)
        model.to(getattr(torch, dtype)).save_pretrained(folder)
    return folder


def write_tokenizer(folder: Path, words: int = WORDS) -> Path:
    """Write a tokenizer whose tokens are w0, w1, ... beside a checkpoint."""
    made = {
        "version": "1.0",
        "added_tokens": [],
        "pre_tokenizer": {"type": "Whitespace"},
        "model": {"type": "WordLevel", "vocab": {f"w{n}": n for n in range(words)}, "unk_token": "w0"},
    }
    (folder / "tokenizer.json").write_text(json.dumps(made))
    named = {"tokenizer_class": "PreTrainedTokenizerFast", "unk_token": "w0"}
    (folder / "tokenizer_config.json").write_text(json.dumps(named))
    return folder


def change_config(folder: Path, **changed: Any) -> None:
    """Change keys of config.json; None takes one away."""
    path = folder / "config.json"
    found = json.loads(path.read_text()) | changed
    path.write_text(json.dumps({key: value for key, value in found.items() if value is not None}))


def fill_weights(folder: Path, name: str, value: float) -> None:
    """Fill one tensor of model.safetensors with a number."""
    path = folder / "model.safetensors"
    found = load_file(path)
    found[name].fill_(value)
    save_file(found, path, metadata={"format": "pt"})


def pickled(folder: Path) -> Path:
    """Keep the weights as pytorch_model.bin instead; give its path."""
    path, written = folder / "pytorch_model.bin", folder / "model.safetensors"
    torch.save(load_file(written), path)
    written.unlink()
    return path
