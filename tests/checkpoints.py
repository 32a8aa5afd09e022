"""Checkpoints to ask about: hyperparameters as published, and the tensors that the published files hold.

Sources: config.json and safetensors headers of the repos named; hyperparameters are facts, tensors are zeros nowhere.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from roofcast.modelspec.formats import FORMATS
from roofcast.modelspec.model import Model, load_model
from roofcast.modelspec.source import Checkpoint, resolve
from tests.hub_server import Sparse, index, safetensors

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

BF16: Final = FORMATS["bf16"]
Tensors = dict[str, tuple[str, list[int]]]

LLAMA_3_1_8B: Final[dict[str, Any]] = {
    "model_type": "llama",
    "hidden_size": 4096,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "intermediate_size": 14336,
    "vocab_size": 128256,
    "max_position_embeddings": 131072,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
}
LLAMA_2_7B: Final[dict[str, Any]] = LLAMA_3_1_8B | {
    "num_key_value_heads": 32,
    "intermediate_size": 11008,
    "vocab_size": 32000,
    "max_position_embeddings": 4096,
    "torch_dtype": "float16",
}
QWEN2_5_7B: Final[dict[str, Any]] = LLAMA_3_1_8B | {
    "model_type": "qwen2",
    "hidden_size": 3584,
    "num_hidden_layers": 28,
    "num_attention_heads": 28,
    "num_key_value_heads": 4,
    "intermediate_size": 18944,
    "vocab_size": 152064,
}
MISTRAL_7B_V0_3: Final[dict[str, Any]] = LLAMA_3_1_8B | {
    "model_type": "mistral",
    "vocab_size": 32768,
    "max_position_embeddings": 32768,
    "sliding_window": None,
}
OPT_13B: Final[dict[str, Any]] = {
    "model_type": "opt",
    "hidden_size": 5120,
    "num_hidden_layers": 40,
    "num_attention_heads": 40,
    "ffn_dim": 20480,
    "vocab_size": 50272,
    "max_position_embeddings": 2048,
    "word_embed_proj_dim": 5120,
    "torch_dtype": "float16",
}
DEEPSEEK_V3: Final[dict[str, Any]] = {
    "model_type": "deepseek_v3",
    "hidden_size": 7168,
    "num_hidden_layers": 61,
    "num_attention_heads": 128,
    "num_key_value_heads": 128,
    "q_lora_rank": 1536,
    "kv_lora_rank": 512,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
    "intermediate_size": 18432,
    "moe_intermediate_size": 2048,
    "n_routed_experts": 256,
    "n_shared_experts": 1,
    "num_experts_per_tok": 8,
    "first_k_dense_replace": 3,
    "moe_layer_freq": 1,
    "num_nextn_predict_layers": 1,
    "vocab_size": 129280,
    "max_position_embeddings": 163840,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
    "quantization_config": {"quant_method": "fp8", "fmt": "e4m3", "weight_block_size": [128, 128]},
}
DEEPSEEK_V2: Final[dict[str, Any]] = DEEPSEEK_V3 | {
    "model_type": "deepseek_v2",
    "hidden_size": 5120,
    "num_hidden_layers": 60,
    "intermediate_size": 12288,
    "moe_intermediate_size": 1536,
    "n_routed_experts": 160,
    "n_shared_experts": 2,
    "num_experts_per_tok": 6,
    "first_k_dense_replace": 1,
    "num_nextn_predict_layers": 0,
    "vocab_size": 102400,
    "quantization_config": None,
}
DEEPSEEK_67B: Final[dict[str, Any]] = LLAMA_3_1_8B | {
    "hidden_size": 8192,
    "num_hidden_layers": 95,
    "num_attention_heads": 64,
    "intermediate_size": 22016,
    "vocab_size": 102400,
    "max_position_embeddings": 4096,
}
MISTRAL_7B_V0_1: Final[dict[str, Any]] = MISTRAL_7B_V0_3 | {"vocab_size": 32000, "sliding_window": 4096}

# 2 layers, h 64, 4 heads of 16 on 2 KV heads, f 96, V 100: a layer is 64*64*2 + 64*32*2 + 3*64*96 + 2*64 = 30,848;
# all is 2 * 30,848 + 2 * 100 * 64 + 64 = 74,560
TINY: Final[dict[str, Any]] = {
    "model_type": "llama",
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 96,
    "vocab_size": 100,
    "max_position_embeddings": 256,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
}
TINY_PARAMETERS: Final = 74_560
# a token of TINY in bf16: 2 layers x 2 KV heads x (16 + 16) x 2 bytes
TINY_KV: Final = 256


def loaded(config: Mapping[str, Any], *, name: str = "m", files: Any = None, problem: str | None = None) -> Model:
    """Return the model of a config, with weight files or the lack of them."""
    return load_model(Checkpoint(name, config, files, problem, f"file {name}"))


def catalogued(name: str) -> Model:
    """Return a model of the catalogue."""
    return load_model(resolve(name))


def decoder_tensors(config: Mapping[str, Any], dtype: str = "BF16") -> Tensors:
    """Return the tensors of a Llama-like decoder under the published names."""
    hidden, ffn, vocab = config["hidden_size"], config["intermediate_size"], config["vocab_size"]
    kv = hidden // config["num_attention_heads"] * config["num_key_value_heads"]
    shapes = {"self_attn.q_proj.weight": [hidden, hidden], "self_attn.o_proj.weight": [hidden, hidden]}
    shapes |= {f"self_attn.{name}_proj.weight": [kv, hidden] for name in "kv"}
    shapes |= {f"mlp.{name}_proj.weight": [ffn, hidden] for name in ("gate", "up")}
    shapes |= {"mlp.down_proj.weight": [hidden, ffn]}
    shapes |= {f"{name}_layernorm.weight": [hidden] for name in ("input", "post_attention")}
    if config["model_type"] == "qwen2":
        shapes |= {f"self_attn.{name}_proj.bias": [hidden if name == "q" else kv] for name in "qkv"}
    tensors: Tensors = {"model.embed_tokens.weight": (dtype, [vocab, hidden])}
    for layer in range(config["num_hidden_layers"]):
        tensors |= {f"model.layers.{layer}.{name}": (dtype, shape) for name, shape in shapes.items()}
    return tensors | {"model.norm.weight": (dtype, [hidden]), "lm_head.weight": (dtype, [vocab, hidden])}


def deepseek_v3_tensors() -> Tensors:
    """Return what deepseek-ai/DeepSeek-V3 holds: FP8 in blocks of 128 x 128, layer 61 predicts a second token.

    The 256 experts of a layer are one tensor each for gate, up and down: the published files have one an expert, which
    makes 91,991 tensors of the same elements.
    """
    return dict(_deepseek_v3_tensors())


def _deepseek_v3_tensors() -> Iterator[tuple[str, tuple[str, list[int]]]]:
    yield "model.embed_tokens.weight", ("BF16", [129280, 7168])
    for layer in range(62):
        yield from _deepseek_v3_layer(f"model.layers.{layer}", dense=layer < 3)
    yield "model.layers.61.embed_tokens.weight", ("BF16", [129280, 7168])
    yield "model.layers.61.eh_proj.weight", ("BF16", [7168, 14336])
    for norm in ("enorm", "hnorm", "shared_head.norm"):
        yield f"model.layers.61.{norm}.weight", ("BF16", [7168])
    yield "model.layers.61.shared_head.head.weight", ("BF16", [129280, 7168])
    yield "model.norm.weight", ("BF16", [7168])
    yield "lm_head.weight", ("BF16", [129280, 7168])


def _deepseek_v3_layer(at: str, *, dense: bool) -> Iterator[tuple[str, tuple[str, list[int]]]]:
    for norm, width in {
        "input_layernorm": 7168,
        "post_attention_layernorm": 7168,
        "self_attn.q_a_layernorm": 1536,
        "self_attn.kv_a_layernorm": 512,
    }.items():
        yield f"{at}.{norm}.weight", ("BF16", [width])
    for name, rows, columns in (
        ("q_a_proj", 1536, 7168),
        ("q_b_proj", 24576, 1536),
        ("kv_a_proj_with_mqa", 576, 7168),
        ("kv_b_proj", 32768, 512),
        ("o_proj", 7168, 16384),
    ):
        yield from _in_blocks(f"{at}.self_attn.{name}", [], rows, columns)
    if dense:
        yield from _mlp(f"{at}.mlp", [], 18432)
        return
    yield f"{at}.mlp.gate.weight", ("BF16", [256, 7168])
    yield f"{at}.mlp.gate.e_score_correction_bias", ("F32", [256])
    yield from _mlp(f"{at}.mlp.experts", [256], 2048)
    yield from _mlp(f"{at}.mlp.shared_experts", [], 2048)


def _mlp(at: str, many: list[int], width: int) -> Iterator[tuple[str, tuple[str, list[int]]]]:
    for name, rows, columns in (("gate", width, 7168), ("up", width, 7168), ("down", 7168, width)):
        yield from _in_blocks(f"{at}.{name}_proj", many, rows, columns)


def _in_blocks(at: str, many: list[int], rows: int, columns: int) -> Iterator[tuple[str, tuple[str, list[int]]]]:
    yield f"{at}.weight", ("F8_E4M3", [*many, rows, columns])
    yield f"{at}.weight_scale_inv", ("F32", [*many, -(-rows // 128), -(-columns // 128)])


def published(config: Mapping[str, Any], tensors: Tensors, shards: int = 1) -> dict[str, bytes | Sparse]:
    """Return the files of a repo: config.json and the weights, whole or in shards."""
    files: dict[str, bytes | Sparse] = {"config.json": json.dumps(config).encode()}
    if shards == 1:
        return files | {"model.safetensors": safetensors(tensors)}
    homes = {name: f"model-{n % shards + 1:05}-of-{shards:05}.safetensors" for n, name in enumerate(tensors)}
    for shard in sorted(set(homes.values())):
        files[shard] = safetensors({name: tensors[name] for name, home in homes.items() if home == shard})
    return files | {"model.safetensors.index.json": index(homes)}


def folder_of(where: Path, config: object, **files: bytes) -> str:
    """Write a checkpoint folder and return its name; `model_safetensors=` is the file model.safetensors."""
    where.mkdir(parents=True, exist_ok=True)
    text = config if isinstance(config, bytes) else json.dumps(config).encode()
    (where / "config.json").write_bytes(text)
    for name, data in files.items():
        (where / name.replace("_safetensors", ".safetensors")).write_bytes(data)
    return str(where)
