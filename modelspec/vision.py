"""Vision towers and projectors of Qwen-VL, GLM-V, Kimi, MiniMax, Step, LFM2-VL, MiniCPM-V and ERNIE-VL.

Counts and class defaults were checked against the reference implementation (transformers 5.24, meta device).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from roofcast.modelspec.towers import (
    Block,
    Reader,
    TowerClass,
    attention,
    encoder_layer,
    feed_forward,
    linear,
    norm,
    pair,
    patch_embedding,
    read_block,
    top_block,
    width_of,
)

if TYPE_CHECKING:
    from roofcast.modelspec.tower import Tower

VISION: Final = "vision_config"
_DEPTH: Final = {"num_hidden_layers": "depth", "num_attention_heads": "num_heads"}
_PATCHES: Final = {"in_channels": 3, "patch_size": 14, "temporal_patch_size": 2, "spatial_merge_size": 2}

# Source of all defaults: the vision classes' configuration_*.py in transformers 5.24.
QWEN2_VL: Final = TowerClass(
    ("qwen2_vl", "qwen2_vl_vision"),
    {**_PATCHES, "depth": 32, "embed_dim": 1280, "hidden_size": 3584, "mlp_ratio": 4, "num_heads": 16},
    _DEPTH,
)
QWEN2_5_VL: Final = TowerClass(
    ("qwen2_5_vl", "qwen2_5_vl_vision"),
    {
        **_PATCHES,
        "depth": 32,
        "hidden_size": 3584,
        "intermediate_size": 3420,
        "num_heads": 16,
        "out_hidden_size": 3584,
    },
    _DEPTH,
)
_QWEN3: Final = {
    **_PATCHES,
    "patch_size": 16,
    "depth": 27,
    "hidden_size": 1152,
    "intermediate_size": 4304,
    "num_heads": 16,
    "out_hidden_size": 3584,
    "num_position_embeddings": 2304,
}
# a mixture-of-experts wrapper has the same tower under a name of its own
QWEN3_VL: Final = TowerClass(
    ("qwen3_vl", "qwen3_vl_vision", "qwen3_vl_moe", "qwen3_vl_moe_vision"),
    {**_QWEN3, "deepstack_visual_indexes": (8, 16, 24)},
    _DEPTH,
)
QWEN3_5: Final = TowerClass(
    ("qwen3_5", "qwen3_5_vision", "qwen3_5_moe", "qwen3_5_moe_vision", "qwen4_exp", "qwen4_exp_vision"), _QWEN3, _DEPTH
)
GLM4V: Final = TowerClass(
    ("glm4v", "glm4v_vision", "glm4v_moe", "glm4v_moe_vision"),
    {
        **_PATCHES,
        "depth": 24,
        "hidden_size": 1536,
        "attention_bias": False,
        "num_heads": 12,
        "image_size": 336,
        "out_hidden_size": 4096,
        "intermediate_size": 13696,
    },
    _DEPTH,
)
GLM_OCR: Final = TowerClass(
    ("glm_ocr", "glm_ocr_vision"),
    {
        **_PATCHES,
        "depth": 24,
        "hidden_size": 1024,
        "attention_bias": True,
        "num_heads": 16,
        "out_hidden_size": 1536,
        "intermediate_size": 4096,
    },
    _DEPTH,
)
# the published files name the keys as their remote class does, the reference as the others here
KIMI_K25: Final = TowerClass(
    ("kimi_k25", "kimi_k25_vision"),
    {
        "patch_size": 14,
        "pos_emb_height": 64,
        "pos_emb_width": 64,
        "num_attention_heads": 16,
        "num_hidden_layers": 27,
        "hidden_size": 1152,
        "intermediate_size": 4304,
        "merge_kernel_size": (2, 2),
        "mm_hidden_size": 1152,
    },
    {
        "init_pos_emb_height": "pos_emb_height",
        "init_pos_emb_width": "pos_emb_width",
        "vt_num_attention_heads": "num_attention_heads",
        "vt_num_hidden_layers": "num_hidden_layers",
        "vt_hidden_size": "hidden_size",
        "vt_intermediate_size": "intermediate_size",
    },
)
MINIMAX_M3: Final = TowerClass(
    ("clip_vision_model", "minimax_m3_vl", "minimax_m3_vl_vision"),
    {
        "hidden_size": 1280,
        "intermediate_size": 5120,
        "num_hidden_layers": 32,
        "num_attention_heads": 16,
        "num_channels": 3,
        "patch_size": 14,
        "temporal_patch_size": 2,
        "spatial_merge_size": 2,
    },
)
# the reference drops the block's model_type, so it names nothing
STEP3P7: Final = TowerClass(
    (),
    {
        "hidden_size": 1536,
        "num_hidden_layers": 47,
        "num_attention_heads": 16,
        "num_channels": 3,
        "image_size": 728,
        "patch_size": 14,
        "mlp_ratio": 8960 / 1536,
    },
    {"width": "hidden_size", "layers": "num_hidden_layers", "heads": "num_attention_heads"},
)
_SIGLIP: Final = {
    "hidden_size": 768,
    "intermediate_size": 3072,
    "num_hidden_layers": 12,
    "num_attention_heads": 12,
    "num_channels": 3,
    "patch_size": 16,
}
SIGLIP2: Final = TowerClass(("siglip2_vision_model",), {**_SIGLIP, "vision_use_head": True, "num_patches": 256})
MINICPMV4_6: Final = TowerClass(
    ("minicpmv4_6", "minicpmv4_6_vision", "minicpmv4_7_vision", "minicpm_ocr_vision"),
    {**_SIGLIP, "image_size": 224, "window_kernel_size": (2, 2)},
)
ERNIE4_5_VL: Final = TowerClass(
    ("ernie4_5_vl_moe", "ernie4_5_vl_moe_vision"),
    {
        "depth": 32,
        "hidden_size": 1280,
        "intermediate_size": 5120,
        "num_heads": 16,
        "in_channels": 3,
        "patch_size": 14,
        "spatial_merge_size": 2,
        "temporal_merge_size": 2,
    },
    _DEPTH,
)


def qwen2_vl(config: Mapping[str, Any], _hidden: int) -> tuple[Tower, ...]:
    """Qwen2-VL: LayerNorm blocks of `embed_dim`; its `hidden_size` is the width that the merger puts out.

    Qwen2-VL-7B: patches 3 * 2 * 14 * 14 * 1280, and 32 layers of 4 (1280^2 + 1280) + 2 * 1280 * 5120 + 6400 + 5120.

    >>> [tower.parameters for tower in qwen2_vl({"vision_config": {"hidden_size": 3584}}, 3584)]
    [631183360, 44575744]
    """
    block = read_block(config, VISION, QWEN2_VL)
    width = width_of(block, "embed_dim", heads="num_heads")
    layer = encoder_layer(width, width * block.size("mlp_ratio"))
    tower = _video_patches(block, width, bias=False) + block.size("depth", 0) * layer
    return pair(tower, _merger(block, width, block.size("hidden_size")) + norm(width))


def qwen2_5_vl(config: Mapping[str, Any], _hidden: int) -> tuple[Tower, ...]:
    """Qwen2.5-VL: RMS-normed blocks with a gated feed-forward that has biases."""
    block = read_block(config, VISION, QWEN2_5_VL)
    width = width_of(block, heads="num_heads")
    layer = encoder_layer(width, block.size("intermediate_size"), gated=True, rms=True)
    tower = _video_patches(block, width, bias=False) + block.size("depth", 0) * layer
    return pair(tower, _merger(block, width, block.size("out_hidden_size")) + norm(width, bias=False))


def qwen3_vl(config: Mapping[str, Any], _hidden: int) -> tuple[Tower, ...]:
    """Qwen3-VL: learned positions, and one more merger for each layer that feeds the text model (deepstack)."""
    block = read_block(config, VISION, QWEN3_VL)
    tower, projector = _qwen3(block)
    merged = block.size("hidden_size") * block.size("spatial_merge_size") ** 2
    deep = _merger(block, block.size("hidden_size"), block.size("out_hidden_size")) + norm(merged)
    return pair(tower, projector + len(block.indexes("deepstack_visual_indexes")) * deep)


def qwen3_5(config: Mapping[str, Any], _hidden: int) -> tuple[Tower, ...]:
    """Qwen3.5, 3.6 and Qwen4-Exp: the tower of Qwen3-VL without deepstack."""
    return pair(*_qwen3(read_block(config, VISION, QWEN3_5)))


def glm4v(config: Mapping[str, Any], _hidden: int) -> tuple[Tower, ...]:
    """GLM-4.1V, 4.5V and 4.6V: `intermediate_size` is the merger's; the blocks' feed-forward is `out_hidden_size`."""
    block = read_block(config, VISION, GLM4V)
    width, out = width_of(block, heads="num_heads"), block.size("out_hidden_size")
    heads = attention(width, width, width, bias=block.flag("attention_bias"), output_bias=False)
    layer = heads + feed_forward(width, out, gated=True, bias=False) + 2 * norm(width, bias=False)
    positions = _grid(block) * width
    tower = _video_patches(block, width) + positions + block.size("depth", 0) * layer + 2 * norm(width, bias=False)
    return pair(tower, _glm_merger(block, block.size("intermediate_size")))


def glm_ocr(config: Mapping[str, Any], _hidden: int) -> tuple[Tower, ...]:
    """GLM-OCR: query and key norms a head, no positions; its merger is `out_hidden_size * in_channels` wide."""
    block = read_block(config, VISION, GLM_OCR)
    return glm_ocr_tower(block, block.size("out_hidden_size") * block.size("in_channels"))


def glm_ocr_tower(block: Block, inner: int) -> tuple[Tower, ...]:
    """The tower of GLM-OCR and GLM-5.3, with a merger of that width."""
    width, bias = width_of(block, heads="num_heads"), block.flag("attention_bias")
    heads = attention(width, width, width, bias=bias) + 2 * norm(width // block.size("num_heads"), bias=False)
    mlp = feed_forward(width, block.size("intermediate_size"), gated=True, bias=bias)
    layer = heads + mlp + 2 * norm(width, bias=False)
    tower = _video_patches(block, width) + block.size("depth", 0) * layer + norm(width, bias=False)
    return pair(tower, _glm_merger(block, inner))


def kimi_k25(config: Mapping[str, Any], hidden: int) -> tuple[Tower, ...]:
    """Kimi-K2.5 to K2.7: learned positions in space (those in time are computed), a patch merger to the text width."""
    block = read_block(config, VISION, KIMI_K25)
    top = top_block(config, {"projection_hidden_size": block.size("mm_hidden_size")})
    width, patch = width_of(block), block.size("patch_size")
    positions = block.size("pos_emb_height") * block.size("pos_emb_width") * width
    layers = block.size("num_hidden_layers", 0) * encoder_layer(width, block.size("intermediate_size"))
    tower = patch_embedding(3, width, (patch, patch)) + positions + layers + norm(width)
    high, wide = block.sizes("merge_kernel_size", 2)
    merged = width * high * wide
    projector = norm(top.size("projection_hidden_size")) + linear(merged, merged) + linear(merged, hidden)
    return pair(tower, projector)


def minimax_m3_vl(config: Mapping[str, Any], hidden: int) -> tuple[Tower, ...]:
    """MiniMax-M3: a CLIP-like tower with rotary positions; patches are projected, then merged by a second MLP."""
    block = read_block(config, VISION, MINIMAX_M3)
    inner = top_block(config, {"projector_hidden_size": 6144}).size("projector_hidden_size")
    width = width_of(block)
    layers = block.size("num_hidden_layers", 0) * encoder_layer(width, block.size("intermediate_size"))
    tower = _video_patches(block, width, channels="num_channels", bias=False) + norm(width) + layers
    merged = hidden * block.size("spatial_merge_size") ** 2
    return pair(tower, sum(linear(inputs, inner) + linear(inner, hidden) for inputs in (width, merged)))


def step3p7(config: Mapping[str, Any], hidden: int) -> tuple[Tower, ...]:
    """Step-3.7: layers with two learned scales, then two 3x3 convolutions that double the width each."""
    block = read_block(config, VISION, STEP3P7)
    width, patch = width_of(block), block.size("patch_size")
    inner = int(width * block.number("mlp_ratio"))
    layers = block.size("num_hidden_layers", 0) * (encoder_layer(width, inner) + 2 * width)
    patches = patch_embedding(block.size("num_channels"), width, (patch, patch), bias=False)
    downsamplers = patch_embedding(width, 2 * width, (3, 3)) + patch_embedding(2 * width, 4 * width, (3, 3))
    tower = patches + _grid(block) * width + norm(width) + layers + downsamplers
    bias = top_block(config, {"projector_bias": False}).flag("projector_bias")
    return pair(tower, linear(4 * width, hidden, bias=bias))


def lfm2_vl(config: Mapping[str, Any], hidden: int) -> tuple[Tower, ...]:
    """LFM2-VL: a SigLIP2 tower, unshuffled pixels, and a projector of two matrices."""
    top = top_block(
        config,
        {
            "downsample_factor": 2,
            "projector_hidden_size": 2560,
            "projector_bias": True,
            "projector_use_layernorm": True,
        },
    )
    block = read_block(config, VISION, SIGLIP2)
    merged = block.size("hidden_size") * top.size("downsample_factor") ** 2
    inner, bias = top.size("projector_hidden_size"), top.flag("projector_bias")
    projector = linear(merged, inner, bias=bias) + linear(inner, hidden, bias=bias)
    return pair(siglip2(block), projector + norm(merged) * top.flag("projector_use_layernorm"))


def siglip2(block: Block) -> int:
    """Parameters of a SigLIP2 vision tower: learned positions, and a pooling head where the block asks for one."""
    width, inner = width_of(block), block.size("intermediate_size")
    patches = patch_embedding(block.size("num_channels"), width, (block.size("patch_size"),) * 2)
    positions = block.size("num_patches") * width
    layers = block.size("num_hidden_layers", 0) * encoder_layer(width, inner)
    # the pooling head: a learned query, attention, one norm, a feed-forward
    head = width + encoder_layer(width, inner) - norm(width)
    return patches + positions + layers + norm(width) + head * block.flag("vision_use_head")


def minicpmv4_6(config: Mapping[str, Any], hidden: int) -> tuple[Tower, ...]:
    """MiniCPM-V 4.6: a SigLIP tower with a window merger inside, then `merger_times` mergers of 2x2 patches."""
    block = read_block(config, VISION, MINICPMV4_6)
    width, inner = width_of(block), block.size("intermediate_size")
    patches = patch_embedding(block.size("num_channels"), width, (block.size("patch_size"),) * 2)
    layers = block.size("num_hidden_layers", 0) * encoder_layer(width, inner)
    high, wide = block.sizes("window_kernel_size", 2)
    window = high * wide
    merger = attention(width, width, width) + norm(width) + norm(width * window)
    merger += linear(width * window, inner * window) + linear(inner * window, width)
    tower = patches + _grid(block) * width + layers + norm(width) + merger
    times = top_block(config, {"merger_times": 1}).size("merger_times")
    shrink = norm(4 * width) + linear(4 * width, 4 * width)
    return pair(tower, times * shrink + (times - 1) * linear(4 * width, width) + linear(4 * width, hidden))


def ernie4_5_vl(config: Mapping[str, Any], hidden: int) -> tuple[Tower, ...]:
    """ERNIE-4.5-VL: a resampler that merges patches in space, then frames in time, before the text width."""
    block = read_block(config, VISION, ERNIE4_5_VL)
    width, patch = width_of(block, heads="num_heads"), block.size("patch_size")
    layers = block.size("depth", 0) * encoder_layer(width, block.size("intermediate_size"))
    patches = patch_embedding(block.size("in_channels"), width, (patch, patch), bias=False)
    space = width * block.size("spatial_merge_size") ** 2
    time = space * block.size("temporal_merge_size")
    merges = sum(linear(inputs, space) + linear(space, space) + norm(space) for inputs in (space, time))
    return pair(patches + layers + norm(width), merges + linear(space, hidden) + norm(hidden, bias=False))


VISION_WRAPPERS: Final[dict[str, Reader]] = {
    "ernie4_5_vl_moe": ernie4_5_vl,
    "glm46v": glm4v,
    "glm4v": glm4v,
    "glm4v_moe": glm4v,
    "glm_ocr": glm_ocr,
    "glmga": glm4v,
    "kimi_k25": kimi_k25,
    "lfm2_vl": lfm2_vl,
    "minicpm_ocr": minicpmv4_6,
    "minicpmv4_6": minicpmv4_6,
    "minicpmv4_7": minicpmv4_6,
    "minimax_m3_vl": minimax_m3_vl,
    "qwen2_5_vl": qwen2_5_vl,
    "qwen2_vl": qwen2_vl,
    "qwen3_5": qwen3_5,
    "qwen3_5_moe": qwen3_5,
    "qwen3_vl": qwen3_vl,
    "qwen3_vl_moe": qwen3_vl,
    "qwen4_exp": qwen3_5,
    "step3p7": step3p7,
}


def _video_patches(block: Block, width: int, *, channels: str = "in_channels", bias: bool = True) -> int:
    patch = block.size("patch_size")
    return patch_embedding(block.size(channels), width, (block.size("temporal_patch_size"), patch, patch), bias=bias)


def _grid(block: Block) -> int:
    # positions of a square image: (pixels a side / pixels a patch) squared
    return (block.size("image_size") // block.size("patch_size")) ** 2


def _merger(block: Block, width: int, out: int) -> int:
    # two matrices over the patches merged into one; the norm before them differs
    merged = width * block.size("spatial_merge_size") ** 2
    return linear(merged, merged) + linear(merged, out)


def _qwen3(block: Block) -> tuple[int, int]:
    width = width_of(block, heads="num_heads")
    layers = block.size("depth", 0) * encoder_layer(width, block.size("intermediate_size"))
    tower = _video_patches(block, width) + block.size("num_position_embeddings") * width + layers
    return tower, _merger(block, width, block.size("out_hidden_size")) + norm(width)


def _glm_merger(block: Block, inner: int) -> int:
    # a convolution over the merged patches, then a matrix, a LayerNorm and a gated feed-forward
    out, merge = block.size("out_hidden_size"), block.size("spatial_merge_size")
    downsample = patch_embedding(block.size("hidden_size"), out, (merge, merge))
    return downsample + linear(out, out, bias=False) + norm(out) + feed_forward(out, inner, gated=True, bias=False)
