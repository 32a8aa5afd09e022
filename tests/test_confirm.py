"""An unknown class is answered only where its key and value projections have the rows that its config implies."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import pytest

from roofcast.modelspec.attention import GroupedAttention
from roofcast.modelspec.confirm import confirm_attention, contradiction
from roofcast.modelspec.cross import CrossAttention
from roofcast.modelspec.errors import UnknownArchitectureError
from roofcast.modelspec.indexer import Indexer
from roofcast.modelspec.recurrent import GatedDeltaNet
from roofcast.modelspec.spec import ModelSpec, build_spec
from roofcast.modelspec.ssm import ShortConvolution
from roofcast.modelspec.weights import Tensor, collect, summarise
from tests.model_configs import DEEPSEEK, LLAMA, is_one_line, llama_tensors

NEW = {**LLAMA, "model_type": "brand_new"}
NEW_LATENT = {**DEEPSEEK, "model_type": "brand_new"}
LLAMA_TENSORS = llama_tensors(LLAMA)
# MLA of the small config: d_c + d_rope = 16 + 4 rows
LATENT_TENSORS = tuple(
    Tensor(f"model.layers.{layer}.self_attn.kv_a_proj_with_mqa.weight", "BF16", (20, 64)) for layer in range(4)
)


def spec(config: dict[str, Any]) -> ModelSpec:
    """Build a config of an unknown class as if headers were at hand."""
    return build_spec(config, counted_in_files=True)


def confirm(config: dict[str, Any], tensors: tuple[Tensor, ...]) -> None:
    """Hold a config against tensors."""
    confirm_attention(spec(config), collect({"model.safetensors": tensors}, "x"))


def refusal(config: dict[str, Any], tensors: tuple[Tensor, ...]) -> str:
    """Return the line with which tensors are found not to confirm a config."""
    with pytest.raises(UnknownArchitectureError) as caught:
        confirm(config, tensors)
    assert "'brand_new'" in str(caught.value)
    assert is_one_line(str(caught.value))
    return str(caught.value)


def reshaped(part: str, rows: int) -> tuple[Tensor, ...]:
    """Return the Llama's tensors with other rows for those whose name has a part."""
    return tuple(replace(t, shape=(rows, 64)) if part in t.name else t for t in LLAMA_TENSORS)


def test_matching_rows_confirm() -> None:
    """2 KV heads of 8 are 16 rows of K and of V in every layer; a latent of 16 and a RoPE key of 4 are 20."""
    confirm(NEW, LLAMA_TENSORS)
    confirm(NEW_LATENT, LATENT_TENSORS)


@pytest.mark.parametrize("stem", ["model.", "", "language_model.model.", "transformer.blocks_of."])
def test_the_names_before_the_layer_do_not_matter(stem: str) -> None:
    """Checkpoints wrap their decoders in other modules."""
    confirm(NEW, tuple(replace(t, name=t.name.replace("model.", stem, 1)) for t in LLAMA_TENSORS))


def test_value_heads_of_another_width() -> None:
    """V has the rows of its own head size."""
    config = {**NEW, "v_head_dim": 4}

    confirm(config, reshaped("v_proj", 8))
    assert "v_proj" in refusal(config, LLAMA_TENSORS)
    assert "16 rows, not 8" in refusal(config, LLAMA_TENSORS)


@pytest.mark.parametrize("part", ["layers.0.self_attn.k_proj", "layers.3.self_attn.v_proj"])
@pytest.mark.parametrize("rows", [8, 17, 32, 64])
def test_other_rows_refuse(part: str, rows: int) -> None:
    """A single layer with other rows refuses, and layer, projection and both numbers are named."""
    message = refusal(NEW, reshaped(part, rows))

    assert f"layer {part[7]}'s {part[-6:]}" in message
    assert f"{rows} rows, not 16 rows" in message


@pytest.mark.parametrize("part", ["layers.0.self_attn.k_proj", "layers.2.self_attn.v_proj"])
def test_a_missing_projection_refuses(part: str) -> None:
    """A layer that shares the keys of another, or fuses its projections, does not tell."""
    message = refusal(NEW, tuple(t for t in LLAMA_TENSORS if part not in t.name))

    assert f"layer {part[7]}'s {part[-6:]}" in message
    assert "no such tensor" in message


def test_a_summary_confirms_nothing() -> None:
    """Elements by dtype hold no shapes."""
    with pytest.raises(UnknownArchitectureError, match="no such tensor"):
        confirm_attention(spec(NEW), summarise({"BF16": 1000}, "hub summary"))


def test_a_latent_with_other_rows_refuses() -> None:
    """A latent of another width is not the config's, and K and V projections do not stand in for it."""
    wider = tuple(replace(t, shape=(24, 64)) for t in LATENT_TENSORS)

    assert "24 rows, not 20 rows" in refusal(NEW_LATENT, wider)
    assert "kv_a_proj_with_mqa" in refusal(NEW_LATENT, LLAMA_TENSORS)


def test_layers_of_multi_token_prediction_are_not_asked() -> None:
    """The layers that a config announces beyond the decoder may be of any kind; others refuse the model."""
    beyond = Tensor("model.layers.4.self_attn.k_proj.weight", "BF16", (999, 64))
    confirm({**NEW, "num_nextn_predict_layers": 1}, (*LLAMA_TENSORS, beyond))

    with pytest.raises(UnknownArchitectureError, match="hold layer 4, but the config has 4 layers"):
        confirm(NEW, (*LLAMA_TENSORS, beyond))


def test_a_tower_does_not_confirm_the_decoder() -> None:
    """Projections of a vision tower are not those of the decoder, wherever they stand in the file."""
    lying = {**NEW, "num_key_value_heads": 1}
    tower = [
        Tensor(f"vision.layers.{layer}.self_attn.{name}.weight", "BF16", (8, 64))
        for layer in range(4)
        for name in ("k_proj", "v_proj")
    ]
    with pytest.raises(UnknownArchitectureError, match="16 rows, not 8"):
        confirm(lying, (*LLAMA_TENSORS, *tower))


def test_a_bias_or_a_scale_is_no_projection() -> None:
    """Only the weight's rows count, not those of what stands beside it."""
    beside = tuple(
        Tensor(f"model.layers.0.self_attn.k_proj.{name}", "F32", shape)
        for name, shape in (("bias", (16,)), ("weight_scale_inv", (1, 1)), ("weight_scale", ()))
    )

    confirm(NEW, (*LLAMA_TENSORS, *beside))


@pytest.mark.parametrize(
    "name",
    [
        "model.layers.1.mixer.A_log",
        "model.layers.1.mamba.in_proj.weight",
        "model.layers.1.mixer.conv1d.weight",
        "model.layers.1.linear_attn.dt_bias",
        "model.layers.1.mixer.dt_proj.weight",
        "model.layers.1.ssm_out.weight",
        "model.layers.1.self_attn.indexer.wk.weight",
        "model.layers.1.self_attn.compressor.weight",
        "model.layers.1.attention.time_mix_key",
        "model.layers.1.mixer.x_proj.weight",
        "model.layers.1.cross_attn.q_proj.weight",
    ],
)
def test_parts_of_other_layers_refuse(name: str) -> None:
    """State spaces, convolutions, indexers and compressors beside a whole attention still refuse, by name."""
    message = refusal(NEW, (*LLAMA_TENSORS, Tensor(name, "BF16", (8,))))

    assert name in message


@pytest.mark.parametrize(
    "mixer",
    [
        GatedDeltaNet(2, 2, 8, 8, 4),
        CrossAttention(GroupedAttention(8, 2, 8, 8), 10),
        GroupedAttention(8, 2, 8, 8, stores=False),
        GroupedAttention(8, 2, 8, 8, index=Indexer(2, 8, 16)),
        ShortConvolution(64, 3),
    ],
    ids=lambda mixer: f"{mixer.label}-{getattr(mixer, 'stores', '')}",
)
def test_other_kinds_are_refused(mixer: Any) -> None:
    """What keeps state that no K and V projection shows is refused of an unknown class, beside attention or alone."""
    model = spec(NEW)
    first = model.layers[0]
    files = collect({"model.safetensors": LLAMA_TENSORS}, "x")

    for mixers in ((mixer,), (*first.mixers, mixer), ()):
        layers = (first, replace(first, mixers=mixers), *model.layers[2:])
        with pytest.raises(UnknownArchitectureError, match="no tensor could confirm layer 1's"):
            confirm_attention(replace(model, layers=layers), files)


def test_values_that_are_the_keys_have_no_projection() -> None:
    """Of K = V layers the keys' projection alone confirms; of a known class the values' may be there or not."""
    model = spec(NEW)
    shared = tuple(
        replace(layer, mixers=tuple(replace(cast("Any", m), value_projection=False) for m in layer.mixers))
        for layer in model.layers
    )
    keys = tuple(tensor for tensor in LLAMA_TENSORS if "v_proj" not in tensor.name)

    confirm_attention(replace(model, layers=shared), collect({"x": keys}, "x"))
    assert "v_proj" in refusal(NEW, keys)


def test_layers_that_read_an_earlier_cache_imply_nothing() -> None:
    """A layer of a known class that stores no keys and values contradicts no tensors."""
    model = spec(LLAMA)
    last = model.layers[-1]
    reading = replace(last, mixers=tuple(replace(cast("Any", mixer), stores=False) for mixer in last.mixers))
    wide = tuple(replace(t, shape=(99, 64)) if "layers.3.self_attn.k_proj" in t.name else t for t in LLAMA_TENSORS)
    files = collect({"x": wide}, "x")

    assert contradiction(replace(model, layers=(*model.layers[:3], reading)), files) is None
    assert contradiction(model, files) is not None


def test_two_attentions_of_a_layer_are_more_than_the_keys_say() -> None:
    """A layer with two attentions keeps twice what one keeps, which no key of an unknown class says."""
    numbered = tuple(
        replace(t, name=t.name.replace("self_attn", f"self_attn.{part}")) for t in LATENT_TENSORS for part in (0, 1)
    )

    assert "self_attn.0" in refusal(NEW_LATENT, numbered)


@pytest.mark.parametrize(
    "part",
    [
        "self_attn.q_conv1d.weight", "self_attn.g_proj.weight", "linear_attn.in_proj_qkvz.weight", "encoder_attn.k_proj.weight",
        "crossattention.q_proj.weight", "short_conv.conv.weight", "rwkv.time_decay", "memory.keys",
    ],
)  # fmt: skip
def test_a_part_that_plain_layers_have_not_is_refused(part: str) -> None:
    """Beside key and value projections that agree, another part of the layer may keep a state of its own."""
    stranger = Tensor(f"model.layers.2.{part}", "BF16", (16, 64))

    assert part in refusal(NEW, (*LLAMA_TENSORS, stranger))
    confirm_attention(spec(NEW), collect({"x": LLAMA_TENSORS}, "x"))


def test_a_tensor_of_no_rank_is_no_projection() -> None:
    """A projection without rows is none."""
    scalars = tuple(replace(t, shape=()) if "k_proj" in t.name else t for t in LLAMA_TENSORS)

    assert "no such tensor" in refusal(NEW, scalars)


def test_a_strangers_tensor_name_stays_on_one_line() -> None:
    """Names of tensors come from files: whatever they hold, the message is one printable line."""
    refusal(NEW, (*LLAMA_TENSORS, Tensor("a\nb\x1b.A_log", "BF16", (8,))))
    refusal(NEW, (*LLAMA_TENSORS, Tensor("x" * 100_000 + ".A_log", "BF16", (8,))))


def test_scales_of_mlx_have_rows_first() -> None:
    """MLX's scales are [rows, groups], told by the biases beside them; GPTQ's are [groups, rows]. Both confirm."""
    layers, rows = range(LLAMA["num_hidden_layers"]), LLAMA["num_key_value_heads"] * 8
    names = [f"model.layers.{layer}.self_attn.{name}_proj" for layer in layers for name in "kv"]
    mlx = [Tensor(f"{n}.{part}", "BF16", (rows, 3)) for n in names for part in ("scales", "biases")]
    gptq = [Tensor(f"{n}.scales", "F16", (3, rows)) for n in names]
    for tensors in (mlx, gptq):
        assert contradiction(build_spec(LLAMA), collect({"x": tuple(tensors)}, "x")) is None
    swapped = tuple(Tensor(f"{n}.scales", "F16", (rows, 3)) for n in names)
    assert contradiction(build_spec(LLAMA), collect({"x": swapped}, "x")) is not None
