"""Vision towers and projectors: hand-worked counts, counts of the reference implementation, broken blocks."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roofcast.modelspec.errors import MalformedModelError, ModelError, UnknownArchitectureError
from roofcast.modelspec.tower import find_wrapper
from roofcast.modelspec.vision import VISION_WRAPPERS

if TYPE_CHECKING:
    from collections.abc import Mapping

# Sizes of published vision blocks (Qwen, moonshotai, nvidia on the Hub; config.json).
QWEN_VIT: Final = {
    "deepstack_visual_indexes": [],
    "depth": 27,
    "hidden_size": 1152,
    "in_channels": 3,
    "intermediate_size": 4304,
    "num_heads": 16,
    "num_position_embeddings": 2304,
    "patch_size": 16,
    "spatial_merge_size": 2,
    "temporal_patch_size": 2,
}
DEEPSTACK: Final = {**QWEN_VIT, "deepstack_visual_indexes": [8, 16, 24]}
KIMI_VIT: Final = {
    "init_pos_emb_height": 64,
    "init_pos_emb_time": 4,
    "init_pos_emb_width": 64,
    "merge_kernel_size": [2, 2],
    "mm_hidden_size": 1152,
    "patch_size": 14,
    "text_hidden_size": 7168,
    "vt_hidden_size": 1152,
    "vt_intermediate_size": 4304,
    "vt_num_attention_heads": 16,
    "vt_num_hidden_layers": 27,
}
QWEN2_5_VIT: Final = {
    "depth": 32,
    "hidden_size": 1280,
    "in_chans": 3,
    "intermediate_size": 3420,
    "num_heads": 16,
    "out_hidden_size": 2048,
    "patch_size": 14,
    "spatial_merge_size": 2,
    "temporal_patch_size": 2,
}
MINIMAX_VIT: Final = {
    "hidden_size": 1280,
    "image_size": 2016,
    "intermediate_size": 5120,
    "model_type": "clip_vision_model",
    "num_attention_heads": 16,
    "num_channels": 3,
    "num_hidden_layers": 32,
    "patch_size": 14,
}

# model, wrapper class, vision block, hidden size of the text model, parameters that transformers 5.24 counts beside
# the text model and its head when it builds the published config
PUBLISHED: Final[list[tuple[str, str, dict[str, Any] | None, int, int]]] = [
    ("Qwen2.5-VL-3B", "qwen2_5_vl", QWEN2_5_VIT, 2048, 668_684_288),
    ("Qwen3-VL-32B", "qwen3_vl", {**DEEPSTACK, "out_hidden_size": 5120}, 5120, 595_266_800),
    ("Qwen3-VL-235B-A22B", "qwen3_vl_moe", {**DEEPSTACK, "out_hidden_size": 4096}, 4096, 576_388_336),
    (
        "Qwen3.5-0.8B",
        "qwen3_5",
        {
            **QWEN_VIT,
            "depth": 12,
            "hidden_size": 768,
            "intermediate_size": 3072,
            "num_heads": 12,
            "out_hidden_size": 1024,
        },
        1024,
        100_592_896,
    ),
    ("Qwen3.6-27B-NVFP4", "qwen3_5", {**QWEN_VIT, "out_hidden_size": 5120}, 5120, 460_730_096),
    ("Qwen3.5-35B-A3B", "qwen3_5_moe", {**QWEN_VIT, "out_hidden_size": 2048}, 2048, 446_571_248),
    ("Qwen3.5-122B-A10B", "qwen3_5_moe", {**QWEN_VIT, "out_hidden_size": 3072}, 3072, 451_290_864),
    ("Kimi-K2.5", "kimi_k25", KIMI_VIT, 7168, 471_143_920),
    ("Kimi-K2.6-NVFP4", "kimi_k25", {**KIMI_VIT, "model_type": ""}, 7168, 471_143_920),
    ("MiniMax-M3-NVFP4", "minimax_m3_vl", MINIMAX_VIT, 6144, 865_567_232),
    ("Step-3.7-Flash", "step3p7", None, 4096, 1_981_014_784),  # its file has no vision block: all class defaults
]

# wrapper class -> hidden size of its default text model, parameters of its default towers (transformers 5.24)
DEFAULTS: Final = {
    "ernie4_5_vl_moe": (2560, 774_658_560),
    "glm46v": (4096, 892_498_432),
    "glm4v": (4096, 892_498_432),
    "glm4v_moe": (4096, 892_498_432),
    "glm_ocr": (1024, 434_120_192),
    "glmga": (4096, 892_498_432),
    "kimi_k25": (7168, 471_143_920),
    "lfm2_vl": (2560, 107_359_488),
    "minicpm_ocr": (4096, 157_399_552),
    "minicpmv4_6": (4096, 157_399_552),
    "minicpmv4_7": (4096, 157_399_552),
    "minimax_m3_vl": (6144, 865_567_232),
    "qwen2_5_vl": (8192, 3_083_025_152),
    "qwen2_vl": (8192, 675_759_104),
    "qwen3_5": (4096, 453_650_672),
    "qwen3_5_moe": (2048, 453_650_672),
    "qwen4_exp": (2048, 453_650_672),
    "qwen3_vl": (4096, 566_949_104),
    "qwen3_vl_moe": (2048, 566_949_104),
    "step3p7": (4096, 1_981_014_784),
}
# wrapper class, its vision block and other keys, hidden size of the text model, parameters (transformers 5.24)
SMALL: Final[list[tuple[str, dict[str, Any], int, int]]] = [
    ("qwen2_vl", {"vision_config": {"num_heads": 3, "embed_dim": 72, "depth": 2, "in_channels": 2, "patch_size": 8, "temporal_patch_size": 1, "spatial_merge_size": 2, "mlp_ratio": 4, "hidden_size": 79}}, 320, 241_711),
    ("qwen2_5_vl", {"vision_config": {"num_heads": 4, "hidden_size": 64, "depth": 2, "in_channels": 3, "patch_size": 5, "temporal_patch_size": 1, "spatial_merge_size": 3, "intermediate_size": 41, "out_hidden_size": 76}}, 256, 430_640),
    ("qwen3_vl", {"vision_config": {"num_heads": 6, "hidden_size": 240, "depth": 2, "in_channels": 1, "patch_size": 8, "temporal_patch_size": 3, "spatial_merge_size": 2, "intermediate_size": 19, "out_hidden_size": 20, "num_position_embeddings": 81, "deepstack_visual_indexes": []}}, 320, 1_491_418),
    ("qwen3_vl_moe", {"vision_config": {"num_heads": 4, "hidden_size": 128, "depth": 2, "in_channels": 2, "patch_size": 14, "temporal_patch_size": 1, "spatial_merge_size": 1, "intermediate_size": 14, "out_hidden_size": 71, "num_position_embeddings": 4, "deepstack_visual_indexes": [1, 1]}}, 256, 269_169),
    ("qwen3_5", {"vision_config": {"num_heads": 5, "hidden_size": 40, "depth": 2, "in_channels": 4, "patch_size": 13, "temporal_patch_size": 2, "spatial_merge_size": 3, "intermediate_size": 8, "out_hidden_size": 15, "num_position_embeddings": 81}}, 128, 207_631),
    ("qwen3_5_moe", {"vision_config": {"num_heads": 3, "hidden_size": 48, "depth": 2, "in_channels": 2, "patch_size": 7, "temporal_patch_size": 1, "spatial_merge_size": 1, "intermediate_size": 14, "out_hidden_size": 37, "num_position_embeddings": 64}}, 320, 34_097),
    ("glm4v", {"vision_config": {"num_heads": 5, "hidden_size": 120, "depth": 2, "in_channels": 4, "patch_size": 8, "temporal_patch_size": 1, "spatial_merge_size": 3, "intermediate_size": 70, "out_hidden_size": 17, "image_size": 34, "attention_bias": True}}, 384, 183_910),
    ("glm4v_moe", {"vision_config": {"num_heads": 4, "hidden_size": 96, "depth": 2, "in_channels": 4, "patch_size": 19, "temporal_patch_size": 3, "spatial_merge_size": 2, "intermediate_size": 32, "out_hidden_size": 91, "image_size": 84, "attention_bias": False}}, 192, 596_458),
    ("glm46v", {"vision_config": {"num_heads": 5, "hidden_size": 160, "depth": 2, "in_channels": 4, "patch_size": 19, "temporal_patch_size": 3, "spatial_merge_size": 3, "intermediate_size": 47, "out_hidden_size": 18, "image_size": 65, "attention_bias": True}}, 128, 947_556),
    ("glm_ocr", {"vision_config": {"num_heads": 5, "hidden_size": 40, "depth": 2, "in_channels": 2, "patch_size": 10, "temporal_patch_size": 1, "spatial_merge_size": 3, "intermediate_size": 51, "out_hidden_size": 15, "image_size": 96, "attention_bias": False}}, 64, 40_332),
    ("kimi_k25", {"vision_config": {"num_attention_heads": 4, "hidden_size": 160, "num_hidden_layers": 2, "intermediate_size": 63, "patch_size": 2, "pos_emb_height": 3, "pos_emb_width": 2, "merge_kernel_size": [2, 1]}, "projection_hidden_size": 89}, 64, 374_928),
    ("minimax_m3_vl", {"vision_config": {"num_attention_heads": 5, "hidden_size": 40, "num_hidden_layers": 2, "intermediate_size": 69, "patch_size": 8, "num_channels": 3, "temporal_patch_size": 2, "spatial_merge_size": 2}, "projector_hidden_size": 32}, 128, 66_314),
    ("step3p7", {"vision_config": {"num_attention_heads": 5, "hidden_size": 120, "num_hidden_layers": 2, "intermediate_size": 93, "patch_size": 12, "num_channels": 3, "image_size": 84, "mlp_ratio": 1.3}, "projector_bias": False}, 192, 1_639_872),
    ("lfm2_vl", {"vision_config": {"num_attention_heads": 6, "hidden_size": 48, "num_hidden_layers": 2, "intermediate_size": 83, "patch_size": 4, "num_channels": 3, "num_patches": 36, "vision_use_head": True, "model_type": "siglip2_vision_model"}, "projector_hidden_size": 45, "projector_bias": False, "projector_use_layernorm": False, "downsample_factor": 3}, 64, 79_545),
    ("minicpmv4_6", {"vision_config": {"num_attention_heads": 4, "hidden_size": 160, "num_hidden_layers": 2, "intermediate_size": 86, "patch_size": 10, "num_channels": 1, "image_size": 69, "window_kernel_size": [2, 2]}, "merger_times": 4}, 256, 2_783_332),
    ("ernie4_5_vl_moe", {"vision_config": {"num_heads": 5, "hidden_size": 40, "depth": 2, "in_channels": 3, "patch_size": 6, "spatial_merge_size": 1, "temporal_merge_size": 2, "intermediate_size": 97}}, 128, 47_330),
]  # fmt: skip

WRAPPERS: Final = st.sampled_from(sorted(VISION_WRAPPERS))
ODD: Final = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(10**9), 10**30),
    st.floats(),
    st.text(max_size=8),
    st.lists(st.integers(-1, 9) | st.none(), max_size=3),
    st.dictionaries(st.text(max_size=3), st.integers(), max_size=2),
)


def total(wrapper: str, config: Mapping[str, Any], hidden: int) -> int:
    """Parameters beside the text model."""
    return sum(tower.parameters for tower in VISION_WRAPPERS[wrapper](config, hidden))


@pytest.mark.parametrize(
    ("wrapper", "block", "hidden", "expected"), [case[1:] for case in PUBLISHED], ids=[case[0] for case in PUBLISHED]
)
def test_published(wrapper: str, block: dict[str, Any] | None, hidden: int, expected: int) -> None:
    """A published model has the vision parameters that the reference implementation counts."""
    assert total(wrapper, {} if block is None else {"vision_config": block}, hidden) == expected


@pytest.mark.parametrize("wrapper", sorted(VISION_WRAPPERS))
@pytest.mark.parametrize("config", [{}, {"vision_config": None}, {"vision_config": {}}], ids=str)
def test_absent_block(wrapper: str, config: dict[str, Any]) -> None:
    """An absent, null or empty vision block means the class defaults of the reference implementation."""
    hidden, expected = DEFAULTS[wrapper]

    assert total(wrapper, config, hidden) == expected


@pytest.mark.parametrize(("wrapper", "config", "hidden", "expected"), SMALL, ids=[case[0] for case in SMALL])
def test_small(wrapper: str, config: dict[str, Any], hidden: int, expected: int) -> None:
    """Every size of a block counts as in the reference implementation."""
    assert total(wrapper, config, hidden) == expected


def test_qwen2_vl_by_hand() -> None:
    """A Qwen2-VL tower is patches, two-norm layers with all biases, and a merger of four patches into one."""
    block = {"embed_dim": 8, "depth": 3, "num_heads": 2, "mlp_ratio": 2, "patch_size": 4, "hidden_size": 10}
    patches = 3 * 2 * 4 * 4 * 8  # channels, frames, 4x4 pixels -> 8; no bias
    attention = 8 * 24 + 24 + 8 * 8 + 8  # qkv in one matrix, then the output
    mlp = 8 * 16 + 16 + 16 * 8 + 8
    norms = 2 * (8 + 8)
    merger = (8 + 8) + (32 * 32 + 32) + (32 * 10 + 10)  # norm of 8, then 2x2 patches of 8 side by side
    assert (patches, attention, mlp, norms, merger) == (768, 288, 280, 32, 1402)

    towers = VISION_WRAPPERS["qwen2_vl"]({"vision_config": block}, 10)

    assert [(t.name, t.parameters) for t in towers] == [("vision", 768 + 3 * 600), ("vision projector", 1402)]


def test_kimi_by_hand() -> None:
    """A Kimi tower has a learned position for each cell of its grid and a projector to the text width."""
    block = {"vt_hidden_size": 8, "vt_num_hidden_layers": 2, "vt_num_attention_heads": 2, "vt_intermediate_size": 16}
    block |= {"patch_size": 4, "init_pos_emb_height": 3, "init_pos_emb_width": 5, "mm_hidden_size": 8}
    patches = 3 * 4 * 4 * 8 + 8
    positions = 3 * 5 * 8
    layer = 4 * (8 * 8 + 8) + (8 * 16 + 16) + (16 * 8 + 8) + 2 * (8 + 8)
    projector = (8 + 8) + (32 * 32 + 32) + (32 * 20 + 20)
    assert (patches, positions, layer, projector) == (392, 120, 600, 1732)

    towers = VISION_WRAPPERS["kimi_k25"]({"vision_config": block}, 20)

    assert [t.parameters for t in towers] == [392 + 120 + 2 * 600 + 16, 1732]  # a last norm of 16


def test_glm_feed_forward_is_out_hidden_size() -> None:
    """In GLM-V `intermediate_size` is the merger's width: it costs 3 * out_hidden_size a unit, whatever the depth."""
    counts = [
        total("glm4v", {"vision_config": {"depth": depth, "intermediate_size": inner}}, 4096)
        for depth in (1, 9)
        for inner in (100, 101)
    ]

    assert counts[1] - counts[0] == counts[3] - counts[2] == 3 * 4096


def test_moe_wrappers_share_the_tower() -> None:
    """A mixture-of-experts wrapper's block may carry either class's name."""
    block = {"model_type": "qwen3_5_vision", "depth": 2}

    assert total("qwen3_5_moe", {"vision_config": block}, 8) == total("qwen3_5", {"vision_config": block}, 8)


def test_other_names_of_a_key() -> None:
    """The names that a reference class maps to its own mean the same."""
    block = {"num_hidden_layers": 3, "num_attention_heads": 8}

    assert total("qwen3_vl", {"vision_config": block}, 8) == total("qwen3_vl", {"vision_config": {"depth": 3}}, 8)


@given(WRAPPERS, st.integers(0, 60), st.integers(1, 40))
def test_depth_never_lowers(wrapper: str, depth: int, more: int) -> None:
    """Each further layer adds the same number of parameters, above zero."""
    key = "depth" if wrapper.startswith(("qwen", "glm", "ernie")) else "num_hidden_layers"
    few, one, many = (total(wrapper, {"vision_config": {key: n}}, 64) for n in (depth, depth + 1, depth + more))

    assert one > few
    assert many - few == more * (one - few)


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (None, "None"),
        (True, "True"),
        ("12", "'12'"),
        (12.0, "12.0"),
        (-1, "-1"),
        (10**9, "1000000000"),
        (10**5000, "a huge number"),
        (float("nan"), "nan"),
        ([1, 2], "[1, 2]"),
        ([[1]], "a list of lists"),
        ({"a": 1}, "a mapping"),
    ],
    ids=lambda value: repr(value)[:12] if not isinstance(value, int) or value < 10**12 else "huge",
)
def test_bad_size(value: object, shown: str) -> None:
    """A size that is none is refused with its key, its value and what would be right."""
    with pytest.raises(MalformedModelError) as caught:
        total("qwen3_5", {"vision_config": {"depth": value}}, 8)

    assert str(caught.value) == f"vision_config.depth is {shown}; it must be a whole number from 0 to 100000000"


@pytest.mark.parametrize(
    ("wrapper", "config", "message"),
    [
        ("qwen3_vl", {"vision_config": [1]}, "vision_config is [1]; it must be a mapping of names to values"),
        (
            "qwen3_vl",
            {"vision_config": {"deepstack_visual_indexes": [1, "a"]}},
            "vision_config.deepstack_visual_indexes is [1, 'a']; it must be a list of whole numbers",
        ),
        (
            "qwen3_vl",
            {"vision_config": {"depth": 3, "num_hidden_layers": 4}},
            "vision_config.num_hidden_layers is 4 but depth is 3; they mean the same and must agree",
        ),
        (
            "qwen3_vl",
            {"vision_config": {"hidden_size": 100, "num_heads": 16}},
            "vision_config.hidden_size is 100; it must be a multiple of vision_config.num_heads, 16",
        ),
        (
            "kimi_k25",
            {"vision_config": {"merge_kernel_size": [2, 2, 2]}},
            "vision_config.merge_kernel_size is [2, 2, 2]; it must be a whole number above 0 or a list of 2",
        ),
        ("step3p7", {"projector_bias": "yes"}, "projector_bias is 'yes'; it must be true or false"),
        (
            "step3p7",
            {"vision_config": {"mlp_ratio": float("inf")}},
            "vision_config.mlp_ratio is inf; it must be a number above 0",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_bad_block(wrapper: str, config: dict[str, Any], message: str) -> None:
    """A broken block is refused in one line."""
    with pytest.raises(MalformedModelError) as caught:
        total(wrapper, config, 8)

    assert str(caught.value) == message


def test_unknown_tower() -> None:
    """A tower of a class that the wrapper does not know is not guessed at."""
    with pytest.raises(
        UnknownArchitectureError, match=r"^vision_config.model_type is 'swin', which roofcast does not "
    ):
        total("qwen3_vl", {"vision_config": {"model_type": "swin"}}, 8)


@given(WRAPPERS, st.dictionaries(st.text(max_size=4), ODD, max_size=3), st.data())
def test_any_block_answers_or_refuses(wrapper: str, extra: dict[str, Any], data: st.DataObject) -> None:
    """Any mutation of a block gives a count or one line, never a traceback."""
    keys = sorted({key for case in PUBLISHED for key in case[2] or ()} | {"model_type", "mlp_ratio", "depth", "width"})
    block = {**extra, **data.draw(st.dictionaries(st.sampled_from(keys), ODD, max_size=4))}
    top = data.draw(st.dictionaries(st.sampled_from(["projector_bias", "merger_times", "downsample_factor"]), ODD))
    try:
        assert total(wrapper, {**top, "vision_config": block}, 64) > 0
    except ModelError as error:
        assert "\n" not in str(error)  # noqa: PT017 - either end is right


def test_deep_nesting() -> None:
    """A value nested deeper than Python's stack is refused like any other that is no size."""
    deep: Any = 1
    for _ in range(100_000):
        deep = [deep]
    for block in ({"depth": deep}, {"depth": deep, "num_hidden_layers": deep}, {"model_type": deep}, deep):
        with pytest.raises(ModelError):
            total("qwen3_vl", {"vision_config": block}, 8)


def test_registered() -> None:
    """Every wrapper of this module is found by its model_type; an unknown one is not."""
    assert all(find_wrapper(name) is reader for name, reader in VISION_WRAPPERS.items())
    assert find_wrapper("llama") is None


def test_config_is_left_alone() -> None:
    """Reading a config changes nothing in it."""
    config = {"vision_config": dict(KIMI_VIT)}
    before = json.dumps(config)
    total("kimi_k25", config, 7168)

    assert json.dumps(config) == before
