"""The table of GGUF architectures: `general.architecture` -> the model class it is, and how its hyperparameters are told.

Source: llama.cpp, gguf-py/gguf/constants.py (names and keys), conversion/*.py (what is written), src/llama-model.cpp
(what is read, and what its code fixes).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True)
class Arch:
    """One architecture.

    Args:
        model_type: the class whose config.json says the same.
        rules: rows of `RULES` that make keys which this class has of its own, the later count.
        unless: (row of `TESTS`, class) pairs; the first whose test holds is the class instead.
        constants: keys that its files leave to llama.cpp's code.
    """

    model_type: str
    rules: tuple[str, ...] = ()
    unless: tuple[tuple[str, str], ...] = ()
    constants: Mapping[str, object] = field(default_factory=dict)


_SHARED_WIDTH: Final = ("shared_width", "granitemoehybrid")

ARCHS: Final[dict[str, Arch]] = {
    "afmoe": Arch("afmoe"),
    "apertus": Arch("apertus"),
    "arcee": Arch("arcee"),
    "baichuan": Arch("baichuan"),
    "bailingmoe2": Arch("sarvam_moe"),  # Ling 2; its converter writes Sarvam's files too
    "bitnet": Arch("bitnet"),
    "bloom": Arch("bloom"),
    "chatglm": Arch("chatglm", ("groups",)),
    "cohere2": Arch("cohere2"),
    "cohere2moe": Arch("cohere2_moe"),
    "command-r": Arch("cohere"),
    "dbrx": Arch("dbrx", ("dbrx",)),
    "deci": Arch("nemotron-nas", ("blocks",)),
    "deepseek": Arch("deepseek"),
    "deepseek2": Arch("deepseek_v2", unless=(("dense", "youtu"), ("sigmoid", "deepseek_v3"))),
    "deepseek2-ocr": Arch("deepseek"),
    "deepseek32": Arch("deepseek_v32", ("index",)),
    "deepseek4": Arch("deepseek_v4", ("compressed",)),
    "dots1": Arch("dots1"),
    "ernie4_5": Arch("ernie4_5"),
    "ernie4_5-moe": Arch("ernie4_5_moe"),
    "exaone": Arch("exaone"),
    "exaone-moe": Arch("exaone_moe"),
    "exaone4": Arch("exaone4"),
    "falcon": Arch("falcon", ("falcon",)),
    "falcon-h1": Arch("falcon_h1", ("mamba2", "beside")),
    "gemma": Arch("gemma"),
    "gemma2": Arch("gemma2", constants={"sliding_window": 4096}),
    "gemma3": Arch("gemma3_text"),
    "gemma3n": Arch("gemma3n_text", ("per_layer_inputs", "altup")),
    "gemma4": Arch("gemma4_text", ("per_layer_inputs", "gemma4")),
    "glm-dsa": Arch("glm_moe_dsa", ("index",)),
    "glm4": Arch("glm4"),
    "glm4moe": Arch("glm4_moe"),
    "gpt-oss": Arch("gpt_oss"),
    "gptoss": Arch("gpt_oss"),  # as Ollama spells it
    "gpt2": Arch("gpt2"),
    "gptj": Arch("gptj"),
    "gptneox": Arch("gpt_neox"),
    "granite": Arch("granite"),
    "granitehybrid": Arch("bamba", ("mamba2", "mamba_layers"), unless=(_SHARED_WIDTH, ("experts", "granitemoehybrid"))),
    "granitemoe": Arch("granitemoe", unless=(("shared_width", "granitemoeshared"),)),
    "hunyuan-dense": Arch("hunyuan_v1_dense"),
    "hunyuan-moe": Arch("hunyuan_v1_moe"),
    "hunyuan_vl": Arch("hunyuan_v1_dense"),
    "hy_v3": Arch("hy_v3"),
    "internlm2": Arch("internlm2"),
    "jais2": Arch("jais2"),
    "jamba": Arch("jamba", ("mamba1", "mamba_layers")),
    "kimi-linear": Arch("kimi_linear", ("kimi_delta",)),
    "lfm2": Arch("lfm2", ("conv",)),
    "lfm2moe": Arch("lfm2_moe", ("conv",)),
    "llama": Arch("llama", unless=(("experts", "mixtral"),)),
    "llama4": Arch("llama4_text", ("chunks",)),
    "mamba": Arch("mamba", ("mamba1",), unless=(("mamba_norms", "falcon_mamba"),)),
    "mamba2": Arch("mamba2", ("pure_mamba2",)),
    "mimo2": Arch("mimo_v2", ("own_sliding",)),
    "minicpm": Arch("minicpm"),
    "minicpm3": Arch("minicpm3"),
    "minimax-m2": Arch("minimax_m2"),
    "minimax-m3": Arch("minimax_m3_vl_text", ("block_index",)),
    "mistral3": Arch("ministral3", unless=(("experts", "mixtral"),)),
    "mistral4": Arch("mistral4"),
    "mpt": Arch("mpt", ("mpt",)),
    "nemotron": Arch("nemotron"),
    "nemotron_h": Arch("nemotron_h", ("mamba2", "letters")),
    "nemotron_h_moe": Arch("nemotron_h", ("mamba2", "letters")),
    "olmo": Arch("olmo"),
    "olmo2": Arch("olmo2", unless=(("windows", "olmo3"),)),
    "olmoe": Arch("olmoe"),
    "paddleocr": Arch("paddleocr_vl_text"),
    "phi2": Arch("phi"),
    "phi3": Arch("phi3"),
    "phimoe": Arch("phimoe"),
    "qwen": Arch("qwen"),
    "qwen2": Arch("qwen2"),
    "qwen25vl": Arch("qwen2_5_vl_text"),  # as Ollama spells it
    "qwen2moe": Arch("qwen2_moe"),
    "qwen2vl": Arch("qwen2_vl_text"),
    "qwen3": Arch("qwen3"),
    "qwen35": Arch("qwen3_5_text", ("delta",)),
    "qwen35moe": Arch("qwen3_5_moe_text", ("delta",)),
    "qwen3moe": Arch("qwen3_moe"),
    "qwen3next": Arch("qwen3_next", ("delta",)),
    "qwen3vl": Arch("qwen3_vl_text"),
    "qwen3vlmoe": Arch("qwen3_vl_moe_text"),
    "rwkv6": Arch("rwkv6", ("rwkv",)),
    "seed_oss": Arch("seed_oss"),
    "smollm3": Arch("smollm3"),
    "stablelm": Arch("stablelm"),
    "starcoder": Arch("gpt_bigcode", ("multi_query",)),
    "starcoder2": Arch("starcoder2"),
    "step35": Arch("step3p5", ("other_setting",)),
    "t5": Arch("t5", ("encoder",)),
}

# files that hold no language model with a cache, by general.type and by architecture
NOT_MODELS: Final[dict[str, str]] = {
    "adapter": "a LoRA adapter: it has no weights of its own; its base model's file would answer",
    "mmproj": "a projector of images or sounds (mmproj): the language model is another file",
    "imatrix": "an importance matrix: what a quantiser has measured, not a model",
    "vocab": "a vocabulary alone",
}
NOT_DECODERS: Final[dict[str, str]] = {
    "clip": NOT_MODELS["mmproj"],
    "dream": "a text-diffusion model: it keeps no keys and values from token to token",
    "llada": "a text-diffusion model: it keeps no keys and values from token to token",
    "llada-moe": "a text-diffusion model: it keeps no keys and values from token to token",
    "rnd1": "a text-diffusion model: it keeps no keys and values from token to token",
    "t5encoder": "an encoder: it keeps no keys and values",
    "wavtokenizer-dec": "an audio decoder, not a language model",
}
# parts of blocks that attend and feed forward and do no more, whatever the architecture
PLAIN: Final = (
    r"(?:attn_(?:norm|norm_2|q|k|v|qkv|output|q_norm|k_norm|output_norm|post_norm|sub_norm|rot_embd|sinks|q_a|q_b|"
    r"q_a_norm|kv_a_mqa|kv_a_norm|kv_b|k_b|v_b)|post_attention_norm|layer_output_norm|ffn_(?:norm|norm_exps|gate_inp|"
    r"gate_inp_shexp|sub_norm|(?:gate|up|down|gate_up)(?:_exps|_shexp|_chexps)?)|post_ffw_norm|exp_probs_b)"
    r"\.(?:weight|bias|scale)"
)
