"""Muse Spark, Inkling 1 and 2 and dots3 note at full size, and what their small reference models do not show."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from roofcast.calculators.cache import cache_bytes
from roofcast.calculators.flops import attention_flops, linear_flops_per_token
from roofcast.calculators.paging import reserved_bytes
from roofcast.modelspec.errors import MalformedModelError, ModelError, UnknownArchitectureError
from roofcast.modelspec.formats import FORMATS
from roofcast.modelspec.spec import build_spec
from tests.model_configs import FIXTURES, MISSING, changed, outcome, refusal

BYTES = {"cache": 2, "model": 2, "fp32": 4}
# what the reference's configuration classes say without a file; where a row needs sizes, these
MUSE_SPARK = {
    "model_type": "muse_spark_text", "vocab_size": 202048, "hidden_size": 8192, "intermediate_size": 16384,
    "num_hidden_layers": 62, "num_attention_heads": 128, "num_key_value_heads": 16, "head_dim": 64,
    "sliding_window": 2048, "num_local_experts": 256, "num_experts_per_tok": 8, "moe_intermediate_size": 4096,
    "moe_hidden_size": 4096, "max_position_embeddings": 1048576,
}  # fmt: skip
INKLING = {
    "model_type": "inkling_text", "vocab_size": 201024, "hidden_size": 6144, "intermediate_size": 24576,
    "num_hidden_layers": 66, "num_attention_heads": 64, "num_key_value_heads": 8, "head_dim": 128,
    "swa_num_attention_heads": 64, "swa_num_key_value_heads": 16, "swa_head_dim": 128, "sliding_window_size": 512,
    "d_rel": 16, "rel_extent": 1024, "conv_kernel_size": 4, "moe_intermediate_size": 3072, "n_routed_experts": 256,
    "num_experts_per_tok": 6, "n_shared_experts": 2, "max_position_embeddings": 131072,
}  # fmt: skip
INKLING_2 = {
    "model_type": "inkling2_text", "vocab_size": 201024, "unpadded_vocab_size": 200058, "hidden_size": 4608,
    "num_hidden_layers": 48, "num_attention_heads": 48, "num_key_value_heads": 8, "head_dim": 128,
    "swa_num_attention_heads": 48, "swa_num_key_value_heads": 8, "swa_head_dim": 128, "sliding_window_size": 1024,
    "d_rel": 16, "rel_extent": 1024, "conv_kernel_size": 4, "moe_intermediate_size": 2304, "n_routed_experts": 384,
    "num_experts_per_tok": 8, "max_position_embeddings": 1048576, "n_layers_per_attn_res_block": 6,
}  # fmt: skip
LOOP = {
    **INKLING_2, "model_type": "inkling2_loop_text", "hidden_size": 2304, "num_hidden_layers": 24,
    "num_attention_heads": 24, "swa_num_attention_heads": 24, "moe_intermediate_size": 1152, "n_routed_experts": 128,
    "loop_layer_index_start": 6, "loop_layer_index_end": 18, "loop_num_passes": 3, "loop_gate_rank": 64,
}  # fmt: skip
DOTS = {
    "model_type": "dots3_note_text", "vocab_size": 152064, "hidden_size": 5120, "intermediate_size": 13824,
    "num_hidden_layers": 46, "num_attention_heads": 128, "num_key_value_heads": 128, "n_shared_experts": 1,
    "n_routed_experts": 256, "num_experts_per_tok": 8, "moe_intermediate_size": 1536, "kv_lora_rank": 512,
    "q_lora_rank": 1024, "qk_rope_head_dim": 64, "qk_nope_head_dim": 128, "v_head_dim": 128, "sliding_window": 512,
    "index_topk": 2048, "index_head_dim": 128, "index_n_heads": 64, "shared_experts_intermediate_size": 1536,
    "swa_num_attention_heads": 64, "swa_num_key_value_heads": 64, "swa_q_lora_rank": 1024, "swa_kv_lora_rank": 1024,
    "swa_head_dim": 256, "swa_qk_nope_head_dim": 192, "swa_v_head_dim": 128, "max_position_embeddings": 524288,
}  # fmt: skip


def state(config: dict[str, Any]) -> tuple[int, int, int]:
    """Return bytes a token that grow, bytes of windows once full, and fixed bytes, in bf16."""
    parts = build_spec(config).kept.items()
    size = {part: n * part.elements * BYTES[part.format] for part, n in parts}
    grows = sum(size[part] // part.per for part, _ in parts if part.grows)
    windows = sum(size[part] * part.entries(1 << 30) for part, _ in parts if part.cap is not None)
    return grows, windows, sum(size[part] for part, _ in parts if part.fixed)


FULL_SIZE = [
    # 16 of 62 layers see all, 16 heads of 2 x 64; no convolution
    (MUSE_SPARK, 819_990_536_192, 16 * 4096, 46 * 2048 * 4096, 0),
    # 11 of 66 with 8 heads of 2 x 128, 55 with 16; four convolutions of 4 columns in fp32, two of them 6,144 wide
    (
        INKLING, 975_340_270_146, 11 * 4096, 55 * 512 * 8192,
        66 * 2 * 6144 * 4 * 4 + (11 * 8 + 55 * 16) * 256 * 4 * 4,
    ),
    # 13 of 46: a latent of 512 and 64 in bf16, an index key of 128 in fp32; the others 1,024 and 64 in a window
    (DOTS, 279_551_718_016, 13 * (576 * 2 + 128 * 4), 33 * 512 * 1088 * 2, 0),
    (INKLING_2, 593_718_478_848, 8 * 4096, 40 * 1024 * 4096, 48 * (2 * 4608 + 2 * 1024) * 4 * 4),
    # 24 layers, 12 of them passed three times: state as of 48
    (LOOP, 26_068_156_416, 8 * 4096, 40 * 1024 * 4096, 48 * (2 * 2304 + 2 * 1024) * 4 * 4),
]  # fmt: skip


@pytest.mark.parametrize(
    ("config", "parameters", "token", "windows", "fixed"), FULL_SIZE, ids=lambda value: str(value)[16:30]
)
def test_full_size(config: dict[str, Any], parameters: int, token: int, windows: int, fixed: int) -> None:
    """The default model of each class: the reference's parameters, and state counted by hand."""
    assert build_spec(config).parameters == parameters
    assert state(config) == (token, windows, fixed)


@pytest.mark.parametrize("config", [row[0] for row in FULL_SIZE], ids=lambda config: config["model_type"])
def test_pages_hold_all_of_the_state(config: dict[str, Any]) -> None:
    """An engine with pages reserves as much as is kept at least: every pass of a loop, and index keys in fp32."""
    spec = build_spec(config)

    assert reserved_bytes(spec, FORMATS["bf16"], 32768) >= cache_bytes(spec, FORMATS["bf16"], 32768)


def test_experts_that_do_not_work_on_a_token() -> None:
    """Of 256 routed experts of Inkling 6 work; shared ones, of 2 x 3072, always do."""
    spec = build_spec(INKLING)

    assert spec.parameters - spec.active_parameters == 66 * 250 * 3 * 6144 * 3072


DRAFTING = [
    model for model in json.loads((FIXTURES / "reference_newest_c.json").read_text())["models"] if "drafting" in model
]


@pytest.mark.parametrize("model", DRAFTING, ids=lambda model: str(len(model["config"])))
def test_draft_layers_of_inkling(model: dict[str, Any]) -> None:
    """With --mtp the parameters are those of the reference's model with its draft layers, which keep a state each."""
    spec = build_spec(model["config"])
    drafting = replace(spec, drafting=True)

    assert drafting.parameters == model["drafting"]
    assert spec.parameters == model["parameters"]
    assert drafting.kept.total() == spec.kept.total() + 3 * len(spec.draft)


@pytest.mark.parametrize("config", [DOTS, INKLING_2, LOOP, MUSE_SPARK], ids=lambda config: config["model_type"])
def test_draft_layers_that_no_public_code_shows(config: dict[str, Any]) -> None:
    """Files may hold draft layers of these; what is in them is not guessed, and without drafting changes nothing."""
    spec = build_spec({**config, "num_nextn_predict_layers": 1})

    assert spec.parameters == build_spec(config).parameters
    assert spec.mtp_layers == 1
    with pytest.raises(UnknownArchitectureError, match="multi-token-prediction layers"):
        _ = replace(spec, drafting=True).kept


def test_a_wrapper_states_draft_layers_beside_its_text_model() -> None:
    """Inkling's mtp_config counts as the text model's own keys do, which come first."""
    block = {"num_nextn_predict_layers": 2, "local_layer_ids": [1], "chain_hidden_post_norm": True}
    flat = {**INKLING, "num_mtp_layers": 2, "mtp_local_layer_ids": [1], "chain_hidden_post_norm": True}
    wrapped = {"model_type": "inkling_mm_model", "text_config": INKLING, "mtp_config": block}

    assert build_spec(wrapped).draft == build_spec(flat).draft
    assert build_spec(wrapped).draft_parameters == build_spec(flat).draft_parameters
    assert len(build_spec({**wrapped, "text_config": {**INKLING, "num_mtp_layers": 1}}).draft) == 1


def test_looped_layers_work_in_every_pass() -> None:
    """Three passes of 12 layers cost as much FLOP as 36 layers do, and their weights count once."""
    once, thrice = build_spec({**LOOP, "loop_num_passes": 1}), build_spec(LOOP)
    looped = sum(layer.active_parameters(2304) for layer in thrice.layers[6:18])
    scores = sum(mixer.prefill_flops(100) for layer in once.layers[6:18] for mixer in layer.mixers)

    assert thrice.parameters == once.parameters
    assert thrice.active_parameters == once.active_parameters
    assert linear_flops_per_token(thrice) - linear_flops_per_token(once) == 2 * 2 * looped
    assert attention_flops(thrice, 100) - attention_flops(once, 100) == 2 * scores


def test_a_loop_under_either_name() -> None:
    """A loop_config says what the flat keys say, and comes before them."""
    own = {"core_start": 6, "core_end": 12, "num_passes": 2, "gate_rank": 8}
    flat = {"loop_layer_index_end": 12, "loop_num_passes": 2, "loop_gate_rank": 8}

    assert build_spec({**LOOP, "loop_config": own}) == build_spec({**LOOP, **flat})
    assert build_spec({**LOOP, "loop_config": {"core_end": 12}}) == build_spec({**LOOP, "loop_layer_index_end": 12})


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"loop_layer_index_end": 30}, "at most 24"),
        ({"loop_layer_index_end": 6}, "in order"),
        ({"loop_layer_index_start": 5}, "multiples"),
        ({"loop_layer_index_start": 0}, "loop_layer_index_start"),
        ({"loop_num_passes": 0}, "loop_num_passes"),
        ({"loop_num_passes": 10**8}, "1000 times"),
        ({"loop_gate_rank": MISSING}, "loop_gate_rank"),
        ({"loop_config": 3}, "loop_config"),
    ],
)
def test_a_loop_that_cannot_be(keys: dict[str, Any], said: str) -> None:
    """Layers that are not there, or that break up a block of the residual, are an error that says so."""
    error = refusal(changed(LOOP, **keys))

    assert isinstance(error, MalformedModelError)
    assert said in str(error)


def windows(config: dict[str, Any]) -> str:
    """Return a letter a layer: s where it slides, F where it sees all, and I where it has an index."""
    letters = {True: "s", False: "F"}
    return "".join(
        "I" if getattr(layer.mixers[0], "index", None) else letters[layer.mixers[0].window is not None]
        for layer in build_spec(config).layers
    )


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({**INKLING, "num_hidden_layers": 8}, "sssssFss"),
        ({**INKLING, "num_hidden_layers": 3, "local_layer_ids": []}, "FFF"),
        ({**INKLING, "num_hidden_layers": 3, "local_layer_ids": [2, 9]}, "FFs"),
        ({**INKLING, "num_hidden_layers": 2, "layer_types": ["hybrid", "hybrid_sliding"]}, "Fs"),
        ({**MUSE_SPARK, "num_hidden_layers": 6}, "sFsssF"),
        ({**DOTS, "num_hidden_layers": 6}, "IIsssI"),
        ({**DOTS, "num_hidden_layers": 6, "use_dsa": False}, "FFsssF"),
        ({**DOTS, "num_hidden_layers": 3, "use_sliding_window": False}, "III"),
        ({**DOTS, "num_hidden_layers": 2, "layer_types": ["full_attention", "sliding_attention"]}, "Is"),
        # with per_layer_config, which transformers writes, names mean what they say
        ({**DOTS, "num_hidden_layers": 2, "layer_types": ["full_attention"] * 2, "per_layer_config": None}, "FF"),
    ],
    ids=str,
)
def test_which_layers_slide(config: dict[str, Any], expected: str) -> None:
    """Each key, or the class where none is there, gives the layers that were read by hand."""
    assert windows(config) == expected


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({**INKLING, "num_hidden_layers": 1, "layer_types": ["full_attention"]}, "hybrid_sliding"),
        ({**INKLING, "num_hidden_layers": 1, "layer_types": ["linear_attention"]}, "linear"),
        ({**DOTS, "num_hidden_layers": 1, "layer_types": ["attention"]}, "indexed_attention"),
        ({**MUSE_SPARK, "num_hidden_layers": 1, "layer_types": ["hybrid"]}, "hybrid"),
        ({**MUSE_SPARK, "d_rel": 16}, "d_rel"),
        ({**INKLING, "moe_hidden_size": 16}, "moe_hidden_size"),
        ({**INKLING_2, "loop_num_passes": 2}, "loop_num_passes"),
    ],
)
def test_what_a_class_has_not_is_refused(config: dict[str, Any], said: str) -> None:
    """Layers and keys of another class are no guess."""
    error = refusal(config)

    assert isinstance(error, UnknownArchitectureError)
    assert said in str(error)


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"swa_qk_nope_head_dim": 256}, "swa_head_dim"),
        ({"swa_qk_rope_head_dim": 32}, "swa_head_dim"),
        ({"swa_num_key_value_heads": 32}, "KV heads"),
        ({"num_key_value_heads": 64}, "KV heads"),
        ({"swa_kv_lora_rank": MISSING}, "swa_kv_lora_rank"),
        ({"q_lora_rank": None}, "q_lora_rank"),
    ],
)
def test_sizes_of_dots_that_cannot_be(keys: dict[str, Any], said: str) -> None:
    """Heads of MLA are alike, a key head is its two parts, and sliding layers need sizes of their own."""
    error = refusal(changed(DOTS, **keys))

    assert isinstance(error, MalformedModelError)
    assert said in str(error)


def test_kv_heads_that_do_not_divide() -> None:
    """Inkling's sliding layers have heads of their own, which must divide as well."""
    assert "KV heads" in str(refusal({**INKLING, "swa_num_key_value_heads": 5}))


WRAPPED = {
    "dots3_note": DOTS, "inkling2": INKLING_2, "inkling2_loop": LOOP, "inkling_mm_model": INKLING,
    "muse_spark": MUSE_SPARK,
}  # fmt: skip


@pytest.mark.parametrize("outer", WRAPPED)
def test_a_wrapper_holds_the_text_model(outer: str) -> None:
    """The nested text model is the flat one; none of these classes ties, whatever the file says, but dots3 note."""
    text = WRAPPED[outer]
    nested = build_spec({"model_type": outer, "text_config": {**text, "tie_word_embeddings": True}})

    assert nested.layers == build_spec(text).layers
    assert nested.decoder_parameters == build_spec(text).parameters
    assert build_spec({"model_type": outer, "text_config": text, "tie_word_embeddings": True}).tied == (
        outer == "dots3_note"
    )


@pytest.mark.parametrize("outer", sorted(WRAPPED.keys() - {"dots3_note"}))
def test_a_flat_file_that_its_class_would_not_read_is_refused(outer: str) -> None:
    """Their classes take sizes from text_config alone; dots3 note's published files are flat."""
    assert isinstance(outcome({**WRAPPED[outer], "model_type": outer}), ModelError)
    assert build_spec({**DOTS, "model_type": "dots3_note"}).layers == build_spec(DOTS).layers


def test_the_experts_width_of_inkling_files_with_a_dense_one() -> None:
    """With dense_intermediate_size the plain width is the experts', whatever moe_intermediate_size says."""
    freed = build_spec({**INKLING, "intermediate_size": 512, "dense_intermediate_size": 1024, "dense_mlp_idx": 1})
    widths = [part.label for layer in freed.layers[:2] for part in layer.feed_forwards]

    assert widths == ["dense 1024", "MoE 6 of 256 x 512 + shared 1024"]


TOWERS: dict[str, tuple[int, ...]] = {
    "muse_spark": (1_852_639_744, 75_497_472, 117_840_384),
    "inkling2": (292_041_728, 35_651_584),
    "inkling2_loop": (292_041_728, 26_214_400),
    "dots3_note": (6_802_056_960, 69_220_352, 853_418_880, 32_780_800),
}


@pytest.mark.parametrize("outer", TOWERS)
def test_towers_at_full_size(outer: str) -> None:
    """A file that leaves towers to its class has those of the reference's configuration classes."""
    towers = build_spec({"model_type": outer, "text_config": WRAPPED[outer]}).towers

    assert tuple(tower.parameters for tower in towers) == TOWERS[outer]


def test_inkling_folds_a_patch_in_four_steps() -> None:
    """Frames of 40 x 40 in 4 layers: sides of 5, 10, 40 and 40 at last over both frames; widths of the reference."""
    tower = {"patch_size": 40, "temporal_patch_size": 2, "n_layers": 4}
    config = {"model_type": "inkling_mm_model", "text_config": INKLING, "vision_config": tower}
    folds = 75 * 128 + 128 + (4 * 128) * 320 + 320 + (16 * 320) * 4800 + 4800 + (2 * 4800) * 6144 + 6144

    assert build_spec(config).towers[0].parameters == folds


BROKEN = [
    (
        "inkling_mm_model",
        "vision_config",
        {"patch_size": 16, "temporal_patch_size": 4, "num_channels": 1},
        "num_hidden",
    ),
    ("inkling_mm_model", "vision_config", {"patch_size": 1 << 20, "num_hidden_layers": 4}, "num_hidden_layers"),
    ("inkling_mm_model", "vision_config", {"num_hidden_layers": 10**8}, "num_hidden_layers"),
    ("muse_spark", "audio_config", {"num_hidden_layers": 10**8, "patch_sizes": 4}, "num_hidden_layers"),
    ("inkling_mm_model", "audio_config", {"n_mel_bins": 0}, "n_mel_bins"),
    ("inkling2", "vision_config", {"text_hidden_size": 64}, "text_hidden_size"),
    ("inkling2", "vision_config", {"num_attention_heads": 7}, "hidden_size"),
    ("muse_spark", "audio_config", {"out_hidden_size": 64}, "out_hidden_size"),
    ("muse_spark", "audio_config", {"depths": [1, 2]}, "depths"),
    ("dots3_note", "vision_config", {"pyramid_num_routed": [-1, 4]}, "pyramid_num_routed"),
    ("dots3_note", "vision_config", {"num_hidden_layers": 3}, "num_hidden_layers"),
    ("dots3_note", "vision_config", {"mlp_layer_types": ["dense"]}, "mlp_layer_types"),
    ("dots3_note", "vision_config", {"mlp_layer_types": ["wide"] * 42}, "mlp_layer_types"),
    ("dots3_note", "vision_config", {"mlp_bias": True}, "mlp_bias"),
    ("dots3_note", "vision_config", {"per_layer_config": [1]}, "per_layer_config"),
    ("dots3_note", "vision_config", {"per_layer_config": {"30": {"hidden_size": 8}}}, "per_layer_config"),
    ("dots3_note", "vision_config", {"per_layer_config": {"30": {"num_local_experts": 0}}}, "num_local_experts"),
    ("dots3_note", "vision_config", {"adapter_merge_size": 3}, "adapter_merge_size"),
    ("dots3_note", "audio_config", {"whisper_config": 3}, "whisper_config"),
    ("dots3_note", "audio_config", {"adapter_input_size": 8}, "adapter_input_size"),
]


@pytest.mark.parametrize(("outer", "block", "keys", "said"), BROKEN)
def test_towers_that_cannot_be(outer: str, block: str, keys: dict[str, Any], said: str) -> None:
    """An error names the key of the tower that is wrong, or not understood."""
    assert said in str(refusal({"model_type": outer, "text_config": WRAPPED[outer], block: keys}))


def test_experts_of_single_vision_layers() -> None:
    """dots3 note's vision layers route as a list says, or as names and per_layer_config do."""
    names = ["sparse" if experts > 0 else "dense" for experts in (*(-1,) * 25, *range(4, 65, 4), 64)]
    own = {str(25 + step): {"num_local_experts": 4 * (step + 1), "num_experts_per_tok": 2} for step in range(15)}
    saved = {"mlp_layer_types": names, "per_layer_config": own}
    config = {"model_type": "dots3_note", "text_config": DOTS}

    assert build_spec({**config, "vision_config": saved}).towers == build_spec(config).towers
