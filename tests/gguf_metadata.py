"""What llama.cpp's converter writes into a GGUF file for a config.json: its metadata, and the tensors that tell most.

Written from llama.cpp's conversion/*.py (mid 2026), each class by what its own `set_gguf_parameters` says.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from roofcast.modelspec.attention import GroupedAttention
from roofcast.modelspec.config import read_config
from roofcast.modelspec.ffn import DenseFeedForward, MoeFeedForward
from roofcast.modelspec.ssm import Mamba1, Mamba2
from roofcast.modelspec.weights import Tensor
from tests import gguf_hybrid as hybrid
from tests import gguf_latent as latent
from tests import gguf_plain as plain

if TYPE_CHECKING:
    from roofcast.modelspec.spec import ModelSpec

Facts = dict[str, Any]
Config = Mapping[str, Any]

# model_type -> general.architecture, and what its converter adds
WRITERS: Final[dict[str, tuple[str, Callable[[Config], Facts]]]] = {
    "afmoe": ("afmoe", plain.afmoe),
    "apertus": ("apertus", plain.nothing),
    "arcee": ("arcee", plain.nothing),
    "baichuan": ("baichuan", plain.nothing),
    "bamba": ("granitehybrid", hybrid.hybrid),
    "bloom": ("bloom", plain.four),
    "chatglm": ("chatglm", plain.chatglm),
    "cohere": ("command-r", plain.nothing),
    "cohere2": ("cohere2", plain.window),
    "dbrx": ("dbrx", plain.dbrx),
    "deepseek": ("deepseek", plain.routed),
    "deepseek_v2": ("deepseek2", latent.deepseek2),
    "deepseek_v3": ("deepseek2", latent.sigmoid),
    "deepseek_v32": ("deepseek32", latent.glm_dsa),
    "deepseek_v4": ("deepseek4", latent.deepseek4),
    "dots1": ("dots1", plain.routed),
    "ernie4_5": ("ernie4_5", plain.nothing),
    "ernie4_5_moe": ("ernie4_5-moe", plain.ernie_moe),
    "exaone4": ("exaone4", latent.exaone4),
    "exaone4_5_text": ("exaone4", latent.exaone4),
    "falcon": ("falcon", plain.falcon),
    "falcon_h1": ("falcon-h1", hybrid.falcon_h1),
    "falcon_mamba": ("mamba", hybrid.mamba),
    "gemma": ("gemma", plain.nothing),
    "gemma2": ("gemma2", plain.window),
    "gemma3_text": ("gemma3", plain.window),
    "gemma3n_text": ("gemma3n", latent.gemma3n),
    "gemma4_text": ("gemma4", latent.gemma4),
    "gemma4_unified_text": ("gemma4", latent.gemma4),
    "glm4": ("glm4", plain.nothing),
    "glm4_moe": ("glm4moe", latent.glm4_moe),
    "glm4_moe_lite": ("deepseek2", latent.sigmoid),
    "glm4v_text": ("glm4", plain.nothing),
    "glm4v_moe_text": ("glm4moe", latent.glm4_moe),
    "glm_moe_dsa": ("glm-dsa", latent.glm_dsa),
    "gpt2": ("gpt2", plain.four),
    "gpt_bigcode": ("starcoder", plain.bigcode),
    "gpt_neox": ("gptneox", plain.nothing),
    "gpt_oss": ("gpt-oss", plain.gpt_oss),
    "gptj": ("gptj", plain.four),
    "granite": ("granite", hybrid.granite),
    "granitemoe": ("granitemoe", hybrid.granite),
    "granitemoeshared": ("granitemoe", hybrid.granite),
    "granitemoehybrid": ("granitehybrid", hybrid.hybrid),
    "hy_v3": ("hy_v3", plain.hy_v3),
    "hunyuan_v1_dense": ("hunyuan-dense", plain.nothing),
    "internlm2": ("internlm2", plain.nothing),
    "jamba": ("jamba", hybrid.jamba),
    "kimi_k2": ("deepseek2", latent.sigmoid),
    "kimi_linear": ("kimi-linear", hybrid.kimi_linear),
    "lfm2": ("lfm2", hybrid.lfm2),
    "lfm2_moe": ("lfm2moe", hybrid.lfm2),
    "llama": ("llama", plain.llama),
    "llama4_text": ("llama4", plain.llama4),
    "mamba": ("mamba", hybrid.mamba),
    "mamba2": ("mamba2", hybrid.mamba2),
    "mimo_v2": ("mimo2", latent.mimo),
    "mimo_v2_flash": ("mimo2", latent.mimo),
    "minicpm": ("minicpm", plain.nothing),
    "minicpm3": ("minicpm3", latent.minicpm3),
    "minimax_m2": ("minimax-m2", plain.expert_width),
    "minimax_m3_vl_text": ("minimax-m3", latent.minimax_m3),
    "ministral3": ("mistral3", plain.llama),
    "mistral": ("llama", plain.llama),
    "mixtral": ("llama", plain.llama),
    "mpt": ("mpt", plain.mpt),
    "nemotron": ("nemotron", plain.nothing),
    "nemotron-nas": ("deci", latent.deci),
    "nemotron_h": ("nemotron_h", hybrid.nemotron_h),
    "olmo": ("olmo", plain.nothing),
    "olmo2": ("olmo2", plain.nothing),
    "olmo3": ("olmo2", latent.olmo),
    "olmoe": ("olmoe", plain.nothing),
    "phi": ("phi2", plain.no_head_dim),
    "phi3": ("phi3", plain.phi3),
    "phimoe": ("phimoe", plain.phi3),
    "qwen": ("qwen", plain.nothing),
    "qwen2": ("qwen2", plain.nothing),
    "qwen2_5_vl_text": ("qwen2vl", plain.nothing),
    "qwen2_moe": ("qwen2moe", plain.qwen_moe),
    "qwen2_vl_text": ("qwen2vl", plain.nothing),
    "qwen3": ("qwen3", plain.nothing),
    "qwen3_5_moe_text": ("qwen35moe", hybrid.delta),
    "qwen3_5_text": ("qwen35", hybrid.delta),
    "qwen3_moe": ("qwen3moe", plain.qwen_moe),
    "qwen3_next": ("qwen3next", hybrid.delta),
    "qwen3_vl_moe_text": ("qwen3vlmoe", plain.qwen_moe),
    "qwen3_vl_text": ("qwen3vl", plain.nothing),
    "sarvam_moe": ("bailingmoe2", plain.nothing),
    "seed_oss": ("seed_oss", plain.nothing),
    "smollm3": ("smollm3", plain.nothing),
    "stablelm": ("stablelm", plain.nothing),
    "starcoder2": ("starcoder2", plain.nothing),
    "step3p5": ("step35", latent.step),
    "t5": ("t5", plain.t5),
}


def metadata_of(raw: Config, spec: ModelSpec) -> dict[str, Any]:
    """Return the metadata that the converter would write for the text model of a config."""
    model_type = raw["model_type"]
    config = read_config(raw).raw  # the converter reads the class's defaults as well
    arch, write = WRITERS[model_type]
    if model_type == "nemotron_h" and config.get("num_experts_per_tok"):
        arch = "nemotron_h_moe"
    if model_type == "granitemoehybrid" and "mamba" not in config["layer_types"]:
        arch = "granitemoe" if config.get("num_local_experts") else "granite"
    if model_type in {"mistral", "ministral3"} and not str(raw.get("rope_parameters", "")).count("llama_4"):
        arch = "llama" if model_type == "mistral" else "mistral3"
    facts = _base(config) | write(config)
    facts["block_count"] = facts.get("block_count", len(spec.layers))
    stated = {f"{arch}.{key}": _array(value) for key, value in facts.items() if value is not None}
    tokens = tuple(f"token {n}" for n in range(4))
    return {
        "general.architecture": arch,
        "general.type": "model",
        "general.file_type": 1,
        **stated,
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.tokens": tokens,
    }


def _array(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def _base(config: Config) -> Facts:
    """What every text model writes: the first of several keys that is there."""
    head_dim = config.get("head_dim")
    return {
        "context_length": plain.first_of(config, "max_position_embeddings", "n_positions", "max_seq_len", "seq_length")
        or 2048,
        "embedding_length": plain.first_of(config, "hidden_size", "n_embd", "d_model", "n_embed"),
        "feed_forward_length": plain.first_of(config, "intermediate_size", "n_inner", "ffn_dim"),
        "attention.head_count": plain.first_of(config, "num_attention_heads", "n_head", "n_heads"),
        "attention.head_count_kv": plain.first_of(config, "num_key_value_heads", "n_kv_heads"),
        "attention.layer_norm_rms_epsilon": 1e-5,
        "rope.freq_base": 10000.0,
        "expert_count": plain.first_of(config, "num_local_experts", "num_experts"),
        "expert_used_count": plain.first_of(config, "num_experts_per_tok", "num_experts_per_token", "top_k_experts"),
        "attention.key_length": head_dim,
        "attention.value_length": head_dim,
    }


def tensors_of(raw: Config, spec: ModelSpec, metadata: Config) -> tuple[Tensor, ...]:
    """Return the tensors of a model that metadata does not speak of: by their presence, and a width or two."""
    config = read_config(raw).raw
    shapes: dict[str, tuple[int, ...]] = {
        "token_embd.weight": (spec.vocab, spec.hidden),
        "output_norm.weight": (spec.hidden,),
    }
    if not spec.tied:
        shapes["output.weight"] = (spec.vocab, spec.hidden)
    if spec.head_bias_parameters:
        shapes["output.bias"] = (spec.vocab,)
    if str(config.get("feed_forward_proj", "")).startswith("gated"):
        shapes["dec.blk.0.ffn_gate.weight"] = (8, spec.hidden)
    if config.get("hidden_size_per_layer_input"):
        shapes["per_layer_token_embd.weight"] = (config["vocab_size_per_layer_input"], 1)
    for number, layer in enumerate(spec.layers):
        parts = [part for mixer in layer.mixers for part in _mixer_parts(mixer, config)]
        parts += [part for feed in layer.feed_forwards for part in _feed_parts(feed)]
        if raw["model_type"] != "falcon" and not config.get("use_parallel_residual", False):
            parts.append(("ffn_norm.weight", (spec.hidden,)))
        if config.get("num_ln_in_parallel_attn", 2) == 2 and config.get("new_decoder_architecture"):
            parts.append(("attn_norm_2.weight", (spec.hidden,)))
        if "laurel_rank" in config:
            parts.append(("laurel_l.weight", (config["laurel_rank"], spec.hidden)))
        shapes |= {f"blk.{number}.{name}": shape for name, shape in parts}
    for number in range(len(spec.layers), metadata.get(f"{metadata['general.architecture']}.block_count", 0)):
        shapes[f"blk.{number}.nextn.eh_proj.weight"] = (spec.hidden, 2 * spec.hidden)
    return tuple(Tensor(name, "F16", shape) for name, shape in shapes.items())


def _mixer_parts(mixer: Any, config: Config) -> list[tuple[str, tuple[int, ...]]]:
    """What tells the traits of a layer's attention or recurrence."""
    if isinstance(mixer, GroupedAttention):
        told = {
            "attn_q.bias": mixer.qkv_bias,
            "attn_output.bias": mixer.output_bias,
            "attn_q_norm.weight": mixer.qk_norm_parameters,
            "attn_v.weight": mixer.value_projection and mixer.stores,
            "attn_sinks.weight": mixer.extra_parameters and config["model_type"].startswith("mimo"),
        }
        told["indexer.attn_k.weight"] = mixer.index
        return [(name, (8,)) for name, present in told.items() if present]
    if isinstance(mixer, Mamba1 | Mamba2):
        told = {"ssm_in.bias": mixer.bias, "ssm_conv1d.bias": mixer.conv_bias, "ssm_out.bias": getattr(mixer, "output_bias", mixer.bias)}  # fmt: skip
        told["ssm_norm.weight"] = getattr(mixer, "gated_norm", False)
        return [(name, (8,)) for name, present in told.items() if present]
    if getattr(mixer, "index", None):
        return [("indexer.attn_k.weight", (8, 8))]
    return []


def _feed_parts(feed: Any) -> list[tuple[str, tuple[int, ...]]]:
    """What tells the traits of a feed-forward."""
    if isinstance(feed, MoeFeedForward):
        bias = [("ffn_up_shexp.bias", (8,))] if feed.shared and feed.shared.bias else []
        return [("ffn_gate_inp.weight", (feed.experts, feed.expert.hidden)), *bias]
    if isinstance(feed, DenseFeedForward):
        bias = [("ffn_up.bias", (8,))] if feed.bias else []
        return [("ffn_down.weight", (feed.hidden, feed.intermediate)), *bias]
    return []
