"""Which stored tensors are parameters."""

from __future__ import annotations

import pytest

from roofcast.modelspec.errors import MalformedModelError
from roofcast.modelspec.stored import parameter_elements, quantisation_scale
from roofcast.modelspec.weights import Tensor, collect, summarise


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
        pytest.param({"w.qweight": ("I32", [4, 4]), "w.scales": ("F16", [4])}, None, id="GPTQ"),
        pytest.param({"w.weight_packed": ("U8", [4, 2]), "n.weight": ("BF16", [4])}, None, id="nvfp4 packed"),
        pytest.param({"e_blocks": ("U8", [4, 2]), "e_scales": ("U8", [4])}, None, id="mxfp4 blocks"),
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
