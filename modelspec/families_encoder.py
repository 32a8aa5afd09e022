"""Model classes whose decoder attends to an encoder's output, or to an image's."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from roofcast.modelspec.family import Family

_T5_NAMES: Final = {
    "layers": ("num_decoder_layers", "num_layers"),
    "query_heads": ("num_heads",),
    "head_dim": ("d_kv",),
    "intermediate": ("d_ff",),
}
_T5_SIZES: Final = {"d_kv": 64, "relative_attention_num_buckets": 32}
_T5: Final = Family(
    has=("encoder", "cross"),
    layer_norms=3,
    tied=True,
    extras="t5",
    names=_T5_NAMES,
    constants={"gated_by": "feed_forward_proj", "ties": True},
    defaults={**_T5_SIZES, "feed_forward_proj": "relu"},
)
_MT5: Final = replace(_T5, defaults={**_T5_SIZES, "feed_forward_proj": "gated-gelu"})
_BART_NAMES: Final = {
    "layers": ("decoder_layers",),
    "query_heads": ("decoder_attention_heads",),
    "intermediate": ("decoder_ffn_dim",),
}
_BART: Final = Family(
    has=("encoder", "cross"),
    norm="layer",
    layer_norms=3,
    qkv_bias=True,
    output_bias=True,
    mlp_bias=True,
    gated=False,
    positions=2,
    embedding_norm=True,
    final_norm=False,
    extras="bart",
    tied=True,
    own_head_dim=False,
    names={**_BART_NAMES, "encoder_limit": ("max_position_embeddings",)},
)

ENCODER_FAMILIES: Final[dict[str, Family]] = {
    "bart": _BART,
    "mbart": replace(_BART, final_norm=True),
    "mllama_text_model": Family(
        has=("cross",),
        own_head_dim=False,
        extras="mllama",
        # a prompt of text alone: layers that attend to images keep nothing and do nothing
        constants={
            "cross_layers": (3, 8, 13, 18, 23, 28, 33, 38),
            "cross_gate_parameters": 2,
            "cross_qk_norm": True,
            "encoder_tokens": 0,
            "ties": False,  # its embedding has rows that its head has not
        },
        needs=("kv_heads",),
    ),
    "mt5": _MT5,
    "t5": _T5,
    "umt5": replace(_MT5, extras="umt5"),
    "whisper": replace(
        _BART,
        positions=0,
        embedding_norm=False,
        extras="",
        final_norm=True,
        names={**_BART_NAMES, "context": ("max_target_positions",), "encoder_limit": ("max_source_positions",)},
        constants={"key_bias": False, "encoder_is_full": True},
        defaults={"max_target_positions": 448, "max_source_positions": 1500},
    ),
}
