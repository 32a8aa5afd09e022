"""Finds the text model in a multimodal config.json, flat or nested, and completes what a partial block leaves out."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from roofcast.modelspec.config import FACT_OF, without_stated
from roofcast.modelspec.errors import MalformedModelError
from roofcast.modelspec.keys import is_off
from roofcast.modelspec.strictjson import short

DEFAULTS_FILE: Final = Path(__file__).parent / "class_defaults.json"
# where a text model is nested; the first that is there counts
TEXT_BLOCKS: Final = (
    ("text_config",),
    ("llm_config",),
    ("llm_cfg",),
    ("language_config",),
    ("thinker_config", "text_config"),
)
# what stands beside a text model
TOWER_BLOCKS: Final = ("vision_config", "audio_config", "vision_tower_cfg", "talker_config", "img_processor")
NAMELESS: Final = "(none stated)"  # a class around a text model that the file does not name
# what a block takes from the top where it does not say itself
INHERITED: Final = ("torch_dtype", "dtype", "quantization_config", "compression_config", "quantization")


@dataclass(frozen=True, slots=True)
class Wrapper:
    """What a multimodal class fixes for its text model.

    Args:
        text: class of the text model where its block does not name it.
        tied: whether input and output embedding are one where the file does not say; None is as the text model's class.
        heeds: whose word counts: `top`, `text` (the block's), `either` (the block's unless the top ties), `both`
            (untied where neither ties), `none`.
        flat_vocab: vocabulary where no block states one: the class does not read the top of a flat file.
        sizes: keys that a nested block leaves to the wrapper and not to its own class.
    """

    text: str
    tied: bool | None = False
    heeds: str = "top"
    flat_vocab: int | None = None
    sizes: Mapping[str, Any] = field(default_factory=dict)


# code of published files that state no model_type -> the class it is
ARCHITECTURES: Final[dict[str, str]] = {
    "DeepseekV3ForCausalLM": "deepseek_v3",
    "LlamaForCausalLM": "llama",
    "MiniCPM3ForCausalLM": "minicpm3",
    "MistralForCausalLM": "mistral",
    "MixtralForCausalLM": "mixtral",
    "Qwen2ForCausalLM": "qwen2",
    "Qwen3ForCausalLM": "qwen3",
    "Qwen3MoeForCausalLM": "qwen3_moe",
}
# what a block may leave to its class and an answer says that it did
SIZES: Final = frozenset({"layers", "hidden", "query_heads", "kv_heads", "head_dim", "intermediate", "vocab", "experts", "top_k", "expert_width", "window"})  # fmt: skip
GLM_ASR: Final = {
    "vocab_size": 59264, "hidden_size": 2048, "intermediate_size": 6144, "num_hidden_layers": 28,
    "num_attention_heads": 16, "num_key_value_heads": 4, "max_position_embeddings": 8192,
}  # fmt: skip
VOXTRAL_REALTIME: Final = {
    "vocab_size": 131072, "hidden_size": 3072, "intermediate_size": 9216, "num_hidden_layers": 26, "head_dim": 128,
    "num_attention_heads": 32, "num_key_value_heads": 8, "max_position_embeddings": 131072, "sliding_window": 8192,
}  # fmt: skip
# checked against the reference implementation (transformers 5.24), with and without the word at top and in the block
WRAPPERS: Final[dict[str, Wrapper]] = {
    "audioflamingo3": Wrapper("qwen2", heeds="none"),
    "aria": Wrapper("aria_text"),
    "aya_vision": Wrapper("cohere2", tied=True),
    "blip-2": Wrapper("opt", tied=None, heeds="text"),
    "cohere2_vision": Wrapper("cohere2", tied=True),
    "deepseek_vl": Wrapper("llama", tied=True),
    "deepseek_vl_hybrid": Wrapper("llama", tied=True),
    "dots3_note": Wrapper("dots3_note_text"),
    "ernie4_5_vl_moe": Wrapper("ernie4_5_vl_moe_text", tied=True),
    "exaone4_5": Wrapper("exaone4_5_text"),
    "fuyu": Wrapper("persimmon"),
    "gemma3": Wrapper("gemma3_text", tied=True),
    "gemma3n": Wrapper("gemma3n_text", tied=True),
    "gemma4": Wrapper("gemma4_text", tied=True),
    "gemma4_unified": Wrapper("gemma4_unified_text", tied=True),
    "glm46v": Wrapper("glm4v_text"),
    "glm4v": Wrapper("glm4v_text", heeds="either"),
    "glm4v_moe": Wrapper("glm4v_moe_text", heeds="either"),
    "glm5_next": Wrapper("glm5_next_text"),
    "glmasr": Wrapper("llama", tied=True, sizes=GLM_ASR),
    "glmga": Wrapper("glm4v_text"),
    "got_ocr2": Wrapper("qwen2", tied=True),
    "granite_speech": Wrapper("granite", tied=True),
    "granite_speech_plus": Wrapper("granite", tied=True),
    "hy_v4_vl": Wrapper("hy_v4_vl_text"),
    "idefics2": Wrapper("mistral"),
    "idefics3": Wrapper("llama"),
    "instructblip": Wrapper("opt", tied=None, heeds="text"),
    "instructblipvideo": Wrapper("opt", tied=None, heeds="text"),
    "inkling2": Wrapper("inkling2_text", heeds="none"),
    "inkling2_loop": Wrapper("inkling2_loop_text", heeds="none"),
    "inkling_mm_model": Wrapper("inkling_text", heeds="none"),
    "internvl": Wrapper("qwen2", tied=True),
    "janus": Wrapper("llama", tied=True),
    "kimi_k25": Wrapper("deepseek_v3", tied=True),
    "lfm2_vl": Wrapper("lfm2", tied=True),
    "lfm3_vl": Wrapper("lfm3", tied=True),
    "lighton_ocr": Wrapper("qwen3", tied=True),
    "llama4": Wrapper("llama4_text", heeds="text"),
    "llava": Wrapper("llama", heeds="either"),
    "llava_next": Wrapper("llama"),
    "llava_next_video": Wrapper("llama", tied=None, heeds="either"),
    "llava_onevision": Wrapper("qwen2", heeds="either"),
    "minicpm_ocr": Wrapper("qwen3_5_text", tied=True),
    "minicpmv4_6": Wrapper("qwen3_5_text"),
    "minicpmv4_7": Wrapper("qwen3_5_text"),
    "minimax_m3_vl": Wrapper("minimax_m3_vl_text", heeds="either"),
    "mistral3": Wrapper("mistral", tied=True),
    "mistral_large4": Wrapper("mistral_large4_text"),
    "mllama": Wrapper("mllama_text_model"),
    "molmo": Wrapper("molmo"),
    "muse_spark": Wrapper("muse_spark_text", heeds="none"),
    "musicflamingo": Wrapper("qwen2", heeds="none"),
    "nemotron_h_omni": Wrapper("nemotron_h", tied=None, heeds="text"),
    "omniasr": Wrapper("llama", heeds="none"),
    "ovis2": Wrapper("qwen2", tied=True, heeds="none"),  # a head of its own is counted beside the text model
    "paddleocr_vl": Wrapper("paddleocr_vl_text", tied=True, heeds="both"),
    "paligemma": Wrapper("gemma", tied=True),
    "phi4_multimodal": Wrapper("phi4_multimodal"),
    "phi4mm": Wrapper("phi3"),
    "pp_chart2table": Wrapper("qwen2", tied=True),
    "qianfan_ocr": Wrapper("qwen3"),
    "qwen2_5_omni": Wrapper("qwen2_5_omni_text", heeds="none"),
    "qwen2_5_omni_thinker": Wrapper("qwen2_5_omni_text"),
    "qwen2_5_vl": Wrapper("qwen2_5_vl_text", heeds="either"),
    "qwen2_audio": Wrapper("qwen2", heeds="none"),
    "qwen2_vl": Wrapper("qwen2_vl_text", heeds="either"),
    "qwen3_5": Wrapper("qwen3_5_text"),
    "qwen3_5_moe": Wrapper("qwen3_5_moe_text"),
    "qwen3_asr": Wrapper("qwen3", tied=True),
    "qwen3_omni_moe": Wrapper("qwen3_omni_moe_text", heeds="none"),
    "qwen3_omni_moe_thinker": Wrapper("qwen3_omni_moe_text"),
    "qwen3_vl": Wrapper("qwen3_vl_text"),
    "qwen3_vl_moe": Wrapper("qwen3_vl_moe_text"),
    "qwen4_exp": Wrapper("qwen4_exp_text"),
    "shieldgemma2": Wrapper("gemma3_text", tied=None, heeds="either"),
    "smolvlm": Wrapper("llama"),
    "step3p7": Wrapper("step3p5", flat_vocab=128815),
    "vibevoice_asr": Wrapper("qwen2", heeds="none"),
    "video_llama_3": Wrapper("qwen2", tied=None, heeds="either"),
    "video_llava": Wrapper("llama"),
    "vipllava": Wrapper("llama"),
    "voxtral": Wrapper("llama", heeds="none"),
    "voxtral_realtime": Wrapper("voxtral_realtime_text", tied=True, sizes=VOXTRAL_REALTIME),
}


# wrappers whose text model is of one class, whatever model_type its block states
FIXED: Final = frozenset({
    "aria", "ernie4_5_vl_moe", "gemma3", "gemma3n", "gemma4", "gemma4_unified", "glm4v", "glm4v_moe", "hy_v4_vl", "llama4",
    "minimax_m3_vl", "mistral_large4", "mllama", "paddleocr_vl", "qwen2_5_omni", "qwen2_5_omni_thinker", "qwen2_5_vl", "qwen2_vl",
    "qwen3_5", "qwen3_5_moe", "qwen3_omni_moe", "qwen3_omni_moe_thinker", "qwen3_vl", "qwen3_vl_moe", "step3p7",
    "glm5_next", "qwen4_exp",
    "dots3_note", "inkling2", "inkling2_loop", "inkling_mm_model", "muse_spark",
})  # fmt: skip


# wrappers that state draft layers in an mtp_config beside the text model, and what its keys are there
DRAFTING: Final = frozenset({"inkling_mm_model"})
DRAFT_KEYS: Final[dict[str, str]] = {
    "num_nextn_predict_layers": "num_mtp_layers",
    "chain_hidden_post_norm": "chain_hidden_post_norm",
    "local_layer_ids": "mtp_local_layer_ids",
}
# wrappers whose class reads no text model at the top of a flat file
NESTED_ONLY: Final = frozenset({"inkling2", "inkling2_loop", "inkling_mm_model", "muse_spark"})


@dataclass(frozen=True, slots=True)
class TextModel:
    """The text model of a file.

    Args:
        raw: its keys, completed.
        outer: class of the multimodal model around it; empty where there is none.
        ties_unsaid: whether only the class around it says that input and output embedding are one.
        completed: sizes that its class's defaults supplied, since a nested block left them out.
        notes: what else had to be taken as given, a line each.
    """

    raw: Mapping[str, Any]
    outer: str
    completed: tuple[str, ...] = ()
    ties_unsaid: bool = False
    notes: tuple[str, ...] = ()


def text_model(raw: Mapping[str, Any]) -> TextModel:
    """The text model that a config.json describes.

    Raises:
        MalformedModelError: a block or a name that cannot be one.
    """
    named = _named_by_architecture(raw)
    if named:
        note = f"config.json has no model_type; its architectures name {raw['architectures'][0]}, read as {named}"
        return replace(_text_model({**raw, "model_type": named}), notes=(note,))
    return _text_model(raw)


def _named_by_architecture(raw: Mapping[str, Any]) -> str:
    """The class of a file without model_type, by the name of its code; empty where none is known."""
    names = raw.get("architectures")
    if raw.get("model_type") or not (isinstance(names, list) and len(names) == 1 and isinstance(names[0], str)):
        return ""
    return ARCHITECTURES.get(names[0], "")


def _text_model(raw: Mapping[str, Any]) -> TextModel:
    outer = raw.get("model_type", "")
    if not isinstance(outer, str):
        msg = f"model_type is {short(outer)}; it must be a name"
        raise MalformedModelError(msg)
    wrapper, block = WRAPPERS.get(outer), text_block(raw)
    around = outer or NAMELESS
    if block is None and wrapper is None:
        return TextModel(raw, around if any(raw.get(key) for key in TOWER_BLOCKS) else "")
    if block is None:
        assert wrapper is not None  # noqa: S101 - one of the two is there
        if outer in NESTED_ONLY:
            msg = f"text_config is missing; a config of model_type {outer!r} needs it"
            raise MalformedModelError(msg)
        return _flat(raw, outer, wrapper)
    block = {**_drafting(raw, outer), **block}
    inner = _inner_class(block, outer, wrapper)
    missing = _missing_defaults(block, inner) if isinstance(inner, str) else {}
    if wrapper:
        missing |= without_stated(wrapper.sizes, block)
    inherited = {key: raw[key] for key in INHERITED if raw.get(key) is not None and block.get(key) is None}
    tie = {"tie_word_embeddings": _tied(raw, block, wrapper)} if wrapper else {}
    text = {**missing, **block, **inherited, **tie, "model_type": inner}
    completed = tuple(key for key in missing if FACT_OF.get(key) in SIZES and not _gated_off(key, text))
    return TextModel(text, around, completed, ties_unsaid=wrapper is not None and _ties_unsaid(raw, block, wrapper))


def _drafting(raw: Mapping[str, Any], outer: str) -> dict[str, Any]:
    """Draft layers that a wrapper states beside the text model."""
    stated = raw.get("mtp_config")
    if outer not in DRAFTING or not isinstance(stated, Mapping):
        return {}
    return {name: stated[key] for key, name in DRAFT_KEYS.items() if key in stated}


def _inner_class(block: Mapping[str, Any], outer: str, wrapper: Wrapper | None) -> Any:  # noqa: ANN401 - checked when read
    """The text model's class: the wrapper's where that is fixed, else the block's word, else the wrapper's usual one."""
    if wrapper and outer in FIXED:
        return wrapper.text
    return block.get("model_type") or (wrapper.text if wrapper else "")


def _flat(raw: Mapping[str, Any], outer: str, wrapper: Wrapper) -> TextModel:
    """The text model of a multimodal file that nests none."""
    # where the text model's word counts too, that of a flat file is all there is, but for PaddleOCR-VL's
    said = {} if wrapper.heeds == "both" else raw
    text = {**raw, "model_type": wrapper.text, "tie_word_embeddings": _tied(raw, said, wrapper)}
    stated = raw.get("vocab_size")
    if wrapper.flat_vocab in (None, stated):
        return TextModel(text, outer)
    note = (
        f"{outer} reads vocab_size in text_config alone: without one it has {wrapper.flat_vocab}, not {short(stated)}"
    )
    return TextModel({**text, "vocab_size": wrapper.flat_vocab}, outer, notes=(note,))


def text_block(raw: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The nested text model; None in a flat file.

    Raises:
        MalformedModelError: a block that is no object, or two text models.
    """
    found: dict[str, Mapping[str, Any]] = {}
    for path in TEXT_BLOCKS:
        block: Any = raw
        for key in path:
            block = block.get(key) if isinstance(block, Mapping) else None
        name = ".".join(path)
        if isinstance(block, Mapping) and block:
            found[name] = block
        elif not (is_off(block) or isinstance(block, Mapping)):
            msg = f"{name} is {short(block)}; it must be an object"
            raise MalformedModelError(msg)
    if len(found) > 1:
        msg = f"{' and '.join(found)} each hold a text model; there must be one"
        raise MalformedModelError(msg)
    return next(iter(found.values()), None)


def _tied(raw: Mapping[str, Any], block: Mapping[str, Any], wrapper: Wrapper) -> Any:  # noqa: ANN401 - checked when read
    """The word that the class heeds, else the class's own."""
    top, inner = raw.get("tie_word_embeddings"), block.get("tie_word_embeddings")
    # a top that says false says nothing
    either = inner if top is False or (top is not True and inner is not None) else top
    both = inner if top is False else top
    word = {"top": top, "text": inner, "either": either, "both": both, "none": None}[wrapper.heeds]
    return wrapper.tied if word is None else word


def _ties_unsaid(raw: Mapping[str, Any], block: Mapping[str, Any], wrapper: Wrapper) -> bool:
    """Whether the class ties where the file says nothing that it heeds."""
    return (
        bool(wrapper.tied) and raw.get("tie_word_embeddings") is None and block.get("tie_word_embeddings") is not True
    )


def _gated_off(key: str, text: Mapping[str, Any]) -> bool:
    """Whether a window that the class would supply is not in use."""
    return FACT_OF.get(key) == "window" and text.get("use_sliding_window") is False


def _missing_defaults(block: Mapping[str, Any], model_type: str) -> dict[str, Any]:
    """Values of the class for facts that no key of the block states; an explicit null is the block's word."""
    return without_stated(class_defaults().get(model_type, {}), block)


def class_defaults() -> Mapping[str, Mapping[str, Any]]:
    """Model class -> key -> value where a nested block leaves the key out.

    Source: the configuration classes of transformers 5.24.
    """
    loaded: Mapping[str, Mapping[str, Any]] = json.loads(DEFAULTS_FILE.read_bytes())["classes"]
    return loaded
