"""Which stored tensors are parameters."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pytest

from roofcast.modelspec.errors import MalformedModelError
from roofcast.modelspec.packed import Width, width_of
from roofcast.modelspec.stored import parameter_elements, quantisation_scale
from roofcast.modelspec.weights import Tensor, collect, summarise
from tests.checkpoints import TINY, TINY_PARAMETERS, decoder_tensors, loaded

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.mark.parametrize(
    "name",
    [
        "model.layers.0.mlp.down_proj.weight_scale_inv",
        "model.layers.0.mlp.down_proj.weight_scale",
        "model.layers.0.mlp.down_proj.weight_scale_2",
        "model.layers.0.mlp.down_proj.weight_global_scale",
        "model.layers.0.mlp.down_proj.input_scale",
        "model.layers.0.mlp.down_proj.weight_zero_point",
        "model.layers.0.mlp.down_proj.weight_shape",
        "model.layers.0.mlp.experts.w13_weight_scale",
        "model.layers.0.mlp.experts.gate_up_proj_scale_inv",
        "model.layers.0.mlp.experts.gate_up_proj_scales",
        "model.layers.0.self_attn.k_scale",
        "model.layers.0.self_attn.q_proj.scales",
        "model.layers.0.self_attn.q_proj.qzeros",
        "model.layers.0.self_attn.q_proj.g_idx",
        "model.layers.0.self_attn.q_proj.pre_quant_scale",
        "model.layers.0.self_attn.q_proj.weight.absmax",
        "model.layers.0.self_attn.q_proj.weight.nested_quant_map",
        "model.layers.0.self_attn.q_proj.weight.quant_state.bitsandbytes__nf4",
        "scales",
    ],
)
def test_what_a_quantiser_adds_is_a_scale(name: str) -> None:
    """Scales, zero points and orders of every common quantiser are recognised by the end of their names."""
    assert quantisation_scale(name)


@pytest.mark.parametrize(
    "name",
    [
        "model.layers.0.mlp.down_proj.weight",
        "model.layers.0.input_layernorm.weight",
        "model.layers.0.attn.norm.scale",
        "model.layers.0.mlp.gate.e_score_correction_bias",
        "model.layers.0.router.per_expert_scale",
        "logit_scale",
        "model.layers.0.layer_scalar",
        "model.norm.scale_shift_table",
    ],
)
def test_what_is_trained_is_no_scale(name: str) -> None:
    """Weights whose names merely sound like scales stay parameters."""
    assert not quantisation_scale(name)


@pytest.mark.parametrize(
    ("tensors", "count"),
    [
        pytest.param({"w.weight": ("BF16", [4, 4]), "w.bias": ("F32", [4])}, 20, id="plain"),
        pytest.param({"w.weight": ("F8_E4M3", [4, 4]), "w.weight_scale_inv": ("F32", [1])}, 16, id="fp8"),
        pytest.param({"w.weight": ("F8_E4M3", [4, 4]), "w.scale": ("F8_E8M0", [1])}, 16, id="e8m0"),
        pytest.param({"w.weight": ("F8_E4M3", [4, 4]), "w.scale": ("F32", [1])}, 16, id="scale beside a weight"),
        pytest.param({"norm.scale": ("F32", [4])}, 4, id="a norm's scale"),
        pytest.param({"w.weight": ("I8", [4, 4]), "w.weight_scale": ("BF16", [4])}, 16, id="int8"),
        pytest.param({"w.qweight": ("I32", [4, 4]), "w.scales": ("F16", [1, 4])}, None, id="words, no zero points"),
        pytest.param({"w.weight_packed": ("U8", [4, 2]), "n.weight": ("BF16", [4])}, None, id="packed, no scales"),
        pytest.param({"e_blocks": ("U8", [4, 2]), "e_scales": ("U8", [4])}, None, id="scales of no known block"),
        pytest.param({"w.weight": ("F4", [4, 4]), "w.scale": ("F8_E8M0", [1])}, 16, id="F4 elements are parameters"),
        pytest.param(
            {"w.weight": ("U32", [4, 2]), "w.scales": ("BF16", [4]), "w.biases": ("BF16", [4])}, None, id="MLX"
        ),
        pytest.param({"h.attn.bias": ("F32", [1, 1, 9, 9]), "h.attn.c_attn.bias": ("F32", [3])}, 3, id="causal mask"),
        pytest.param({"h.rotary_emb.inv_freq": ("F32", [8]), "h.w": ("F32", [2])}, 2, id="rotary table"),
        pytest.param({"position_ids": ("I64", [512]), "m": ("BOOL", [3]), "w": ("F32", [2])}, 2, id="counters"),
    ],
)
def test_parameters_are_counted_where_the_files_tell(
    tensors: dict[str, tuple[str, list[int]]], count: int | None
) -> None:
    """What is no scale and no mask is a parameter; packed integers do not tell, and are not guessed."""
    held = tuple(Tensor(n, d, tuple(s)) for n, (d, s) in tensors.items())

    assert parameter_elements(collect({"model.safetensors": held}, "x")) == count


@pytest.mark.parametrize(
    ("elements", "scales", "count"),
    [
        ({"BF16": 100, "F32": 5}, None, 105),
        ({"BF16": 100, "I64": 5}, None, 100),
        ({"BF16": 100, "F8_E4M3": 900, "F32": 7}, None, None),
        ({"BF16": 100, "F8_E4M3": 900, "F32": 7}, 7, 1000),
        ({"BF16": 100, "I32": 900}, 0, None),
    ],
)
def test_a_summary_tells_parameters_where_no_scale_can_hide(
    elements: dict[str, int], scales: int | None, count: int | None
) -> None:
    """Of a quantised checkpoint the summary alone does not say how many elements are scales."""
    assert parameter_elements(summarise(elements, "hub summary"), scales=scales) == count


@pytest.mark.parametrize("elements", [{"F7": 3}, {"BF16": -1}, {"BF16": True}])
def test_an_impossible_summary_is_refused(elements: dict[str, int]) -> None:
    """Counts are whole numbers of known dtypes."""
    with pytest.raises(MalformedModelError, match="hub summary"):
        summarise(elements, "hub summary")


# --- packed integers

Shapes = dict[str, tuple[str, list[int]]]
GROUP: Final = 32  # elements that share a scale; it divides all of the small model's widths


def gptq(bits: int, *, zeros: bool = True, order: bool = True) -> Callable[[int, int], Shapes]:
    """As GPTQ stores [out, in]: words along the inputs, a zero point of as many bits a group and output."""

    def shapes(out: int, inputs: int) -> Shapes:
        stored: Shapes = {"qweight": ("I32", [inputs * bits // 32, out]), "scales": ("F16", [inputs // GROUP, out])}
        stored |= {"qzeros": ("I32", [inputs // GROUP, out * bits // 32])} if zeros else {}
        return stored | ({"g_idx": ("I32", [inputs])} if order else {})

    return shapes


def awq(out: int, inputs: int) -> Shapes:
    """As AWQ stores it: words along the outputs."""
    groups = inputs // GROUP
    words = {"qweight": ("I32", [inputs, out // 8]), "qzeros": ("I32", [groups, out // 8])}
    return {**words, "scales": ("F16", [groups, out])}


def pack_quantized(out: int, inputs: int) -> Shapes:
    """As compressed-tensors stores 4 bits, symmetric."""
    scale = ("BF16", [out, inputs // GROUP])
    return {"weight_packed": ("I32", [out, inputs // 8]), "weight_scale": scale, "weight_shape": ("I64", [2])}


def pack_quantized_zeros(out: int, inputs: int) -> Shapes:
    """The same with zero points, eight outputs a word."""
    return pack_quantized(out, inputs) | {"weight_zero_point": ("I32", [out // 8, inputs // GROUP])}


def nvfp4(out: int, inputs: int) -> Shapes:
    """As modelopt stores it: two elements a byte, an e4m3 scale for 16."""
    scales: Shapes = {
        "weight_scale": ("F8_E4M3", [out, inputs // 16]),
        "weight_scale_2": ("F32", []),
        "input_scale": ("F32", []),
    }
    return {"weight": ("U8", [out, inputs // 2]), **scales}


def nvfp4_pack_quantized(out: int, inputs: int) -> Shapes:
    """As compressed-tensors stores it."""
    scales: Shapes = {"weight_scale": ("F8_E4M3", [out, inputs // 16]), "weight_global_scale": ("F32", [1])}
    return {"weight_packed": ("U8", [out, inputs // 2]), **scales}


def mxfp4_pack_quantized(out: int, inputs: int) -> Shapes:
    """As compressed-tensors stores it: scales are bytes, one for 32."""
    return {"weight_packed": ("U8", [out, inputs // 2]), "weight_scale": ("U8", [out, inputs // 32])}


def mxfp4_pairs(out: int, inputs: int) -> Shapes:
    """As DeepSeek-V4 stores its experts: pairs in signed bytes."""
    return {"weight": ("I8", [out, inputs // 2]), "scale": ("F8_E8M0", [out, inputs // 32])}


def mxfp8(out: int, inputs: int) -> Shapes:
    """A byte an element, beside scales that are bytes too."""
    return {"weight": ("U8", [out, inputs]), "weight_scale": ("U8", [out, inputs // 32])}


def mlx(bits: int) -> Callable[[int, int], Shapes]:
    """As MLX stores it: a scale and a bias a group."""

    def shapes(out: int, inputs: int) -> Shapes:
        scale = ("F16", [out, inputs // GROUP])
        return {"weight": ("U32", [out, inputs * bits // 32]), "scales": scale, "biases": scale}

    return shapes


def mlx_mxfp4(out: int, inputs: int) -> Shapes:
    """As MLX stores it: eight elements a word, scales are bytes."""
    return {"weight": ("U32", [out, inputs // 8]), "scales": ("U8", [out, inputs // 32])}


def nf4(out: int, inputs: int) -> Shapes:
    """As bitsandbytes stores 4 bits: flat, and what tells the type in a tensor of its own."""
    state: Shapes = {"weight.quant_state.bitsandbytes__nf4": ("U8", [90]), "weight.quant_map": ("F32", [16])}
    return {"weight": ("U8", [out * inputs // 2, 1]), "weight.absmax": ("U8", [out * inputs // 64]), **state}


def int8(out: int, inputs: int) -> Shapes:
    """A byte an element, a scale an output: as many elements as there are."""
    return {"weight": ("I8", [out, inputs]), "weight_scale": ("BF16", [out, 1])}


def packed(method: Callable[[int, int], Shapes]) -> tuple[Tensor, ...]:
    """The small model with every projection stored so."""
    held: Shapes = {}
    for name, (dtype, shape) in decoder_tensors(TINY).items():
        stem = name.removesuffix("weight")
        parts = (
            {stem + end: part for end, part in method(*shape).items()} if "_proj." in name else {name: (dtype, shape)}
        )
        held |= parts
    return tuple(Tensor(name, dtype, tuple(shape)) for name, (dtype, shape) in held.items())


NO_HELP: Final = Width()


@pytest.mark.parametrize(
    ("method", "width"),
    [
        pytest.param(gptq(4), NO_HELP, id="gptq 4"),
        pytest.param(gptq(3), NO_HELP, id="gptq 3"),
        pytest.param(gptq(8), NO_HELP, id="gptq 8"),
        pytest.param(gptq(2, order=False), NO_HELP, id="gptq 2, no order"),
        pytest.param(gptq(4, zeros=False), NO_HELP, id="gptq by its order"),
        pytest.param(gptq(4, zeros=False, order=False), Width(bits=4), id="gptq by the config"),
        pytest.param(awq, NO_HELP, id="awq"),
        pytest.param(awq, Width(bits=3), id="awq, whatever the config says"),
        pytest.param(pack_quantized, Width(bits=4), id="compressed-tensors by bits"),
        pytest.param(pack_quantized, Width(group=GROUP), id="compressed-tensors by group"),
        pytest.param(pack_quantized_zeros, NO_HELP, id="compressed-tensors by zero points"),
        pytest.param(nvfp4, NO_HELP, id="nvfp4"),
        pytest.param(nvfp4_pack_quantized, NO_HELP, id="nvfp4 of compressed-tensors"),
        pytest.param(mxfp4_pack_quantized, NO_HELP, id="mxfp4 of compressed-tensors"),
        pytest.param(mxfp4_pairs, NO_HELP, id="mxfp4 in signed bytes"),
        pytest.param(mxfp8, NO_HELP, id="mxfp8"),
        pytest.param(mlx(4), Width(bits=4), id="mlx by bits"),
        pytest.param(mlx(3), Width(group=GROUP), id="mlx 3 by group"),
        pytest.param(mlx(6), Width(group=GROUP), id="mlx 6 by group"),
        pytest.param(mlx(8), Width(group=GROUP), id="mlx 8 by group"),
        pytest.param(mlx_mxfp4, NO_HELP, id="mlx mxfp4"),
        pytest.param(nf4, NO_HELP, id="bitsandbytes"),
        pytest.param(int8, NO_HELP, id="int8"),
    ],
)
def test_packed_parameters_are_counted(method: Callable[[int, int], Shapes], width: Width) -> None:
    """However a quantiser packs a model, it has as many parameters as before."""
    assert parameter_elements(collect({"x": packed(method)}, "x"), width=width) == TINY_PARAMETERS


@pytest.mark.parametrize(
    ("method", "width"),
    [
        pytest.param(pack_quantized, NO_HELP, id="compressed-tensors"),
        pytest.param(mlx(4), NO_HELP, id="mlx"),
        pytest.param(gptq(4, zeros=False, order=False), NO_HELP, id="gptq"),
        pytest.param(mlx(4), Width(bits=7), id="a width that nobody packs to"),
        pytest.param(lambda out, inputs: {"weight": ("U8", [out, inputs])}, Width(4, GROUP), id="bytes alone"),
    ],
)
def test_what_nothing_explains_is_not_guessed(method: Callable[[int, int], Shapes], width: Width) -> None:
    """Words without zero points, order, block or a stated width do not tell how many parameters they hold."""
    assert parameter_elements(collect({"x": packed(method)}, "x"), width=width) is None


def test_experts_of_gpt_oss_count_two_a_byte() -> None:
    """Blocks [E, out, in / 32, 16] of two a byte, scales [E, out, in / 32]; biases are parameters."""
    stored: Shapes = {
        "experts.gate_up_proj_blocks": ("U8", [4, 96, 2, 16]),
        "experts.gate_up_proj_scales": ("U8", [4, 96, 2]),
        "experts.gate_up_proj_bias": ("BF16", [4, 96]),
    }
    held = tuple(Tensor(name, dtype, tuple(shape)) for name, (dtype, shape) in stored.items())

    assert parameter_elements(collect({"x": held}, "x")) == 4 * 96 * 64 + 4 * 96


def test_elements_of_gguf_are_parameters() -> None:
    """ggml's types count elements; factors of RoPE and a router's correction are none."""
    held = (
        Tensor("blk.0.attn_q.weight", "Q4_K", (64, 256)),
        Tensor("output_norm.weight", "F32", (256,)),
        Tensor("rope_freqs.weight", "F32", (64,)),
        Tensor("blk.0.exp_probs_b.bias", "F32", (8,)),
    )

    assert parameter_elements(collect({"m.gguf": held}, "x")) == 64 * 256 + 256


@pytest.mark.parametrize(
    ("config", "width"),
    [
        ({}, NO_HELP),
        ({"quantization_config": {"quant_method": "gptq", "bits": 3, "group_size": 64}}, Width(3, 64)),
        ({"quantization_config": {"quant_method": "gptq", "bits": 4, "group_size": -1}}, Width(4, None)),
        ({"quantization": {"bits": 4, "group_size": 64}}, Width(4, 64)),
        ({"quantization": {"bits": 4, "group_size": 64, "lm_head": {"bits": 8, "group_size": 32}}}, NO_HELP),
        (
            {
                "quantization_config": {
                    "config_groups": {
                        "group_0": {
                            "weights": {"num_bits": 4, "group_size": 32},
                            "input_activations": {"num_bits": 8, "group_size": 128},
                        }
                    },
                    "kv_cache_scheme": {"num_bits": 8},
                }
            },
            Width(4, 32),
        ),
        ({"quantization_config": {"quant_method": "exl2", "bits": 4.25}}, NO_HELP),
    ],
)
def test_the_config_says_one_width_or_none(config: dict[str, Any], width: Width) -> None:
    """Bits and group of the weights, where all groups of modules have the same."""
    assert width_of({"model_type": "llama"} | config) == width


def test_a_packed_model_agrees_with_its_config() -> None:
    """With all parameters found in the files, there is no difference to warn of."""
    stated = {"quantization_config": {"quant_method": "awq", "bits": 4, "group_size": GROUP, "zero_point": True}}
    model = loaded(TINY | stated, files=collect({"x": packed(awq)}, "x"))

    assert model.parameters_in_files == model.decoder_in_files == TINY_PARAMETERS == model.parameters.value
    assert model.parameters.warning is None
