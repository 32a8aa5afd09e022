"""State-space and convolution kinds against counts of the reference implementation and states in its cache."""

from __future__ import annotations

from typing import Any

import pytest

from roofcast.modelspec.config import Config
from roofcast.modelspec.errors import MalformedModelError
from roofcast.modelspec.family import Family
from roofcast.modelspec.ssm import Mamba1, Mamba2, ShortConvolution
from roofcast.modelspec.state import FP32, MODEL

Kind = Mamba1 | Mamba2 | ShortConvolution

MAMBA = {"hidden_size": 128, "state_size": 8, "conv_kernel": 4, "expand": 2}
JAMBA = {"hidden_size": 128, "intermediate_size": 64, "mamba_expand": 2, "mamba_d_state": 8, "mamba_d_conv": 4}
MAMBA2 = {
    "hidden_size": 128,
    "num_heads": 8,
    "head_dim": 32,
    "expand": 2,
    "state_size": 16,
    "n_groups": 2,
    "conv_kernel": 4,
}
BAMBA = {
    "hidden_size": 128,
    "num_attention_heads": 4,
    "head_dim": 32,
    "mamba_expand": 2,
    "mamba_n_heads": 8,
    "mamba_d_head": "auto",
    "mamba_d_state": 16,
    "mamba_n_groups": 1,
    "mamba_d_conv": 4,
}
NEMOTRON = {
    "hidden_size": 128,
    "head_dim": 64,
    "mamba_num_heads": 8,
    "mamba_head_dim": 16,
    "ssm_state_size": 16,
    "n_groups": 2,
    "conv_kernel": 4,
    "expand": 2,
    "use_bias": False,
    "mamba_proj_bias": True,
}
LFM = {"hidden_size": 128, "conv_dim": 128, "conv_L_cache": 3, "conv_bias": False}


def config(raw: dict[str, Any], **constants: object) -> Config:
    """Return a config of a class that fixes these in code."""
    return Config(raw, Family(constants=constants), "", known=False, present=frozenset(raw))


@pytest.mark.parametrize(
    ("kind", "parameters"),
    [
        # d (3 h + 2 r + 3 N + c + 2) + d = 256 x (384 + 16 + 24 + 4 + 2 + 1)
        (Mamba1(256, 8, 4, 8), 110_336),
        (Mamba1(256, 8, 4, 8, bias=True), 110_336 + 2 * 256 + 128),
        (Mamba1(256, 8, 4, 8, conv_bias=False), 110_336 - 256),
        (Mamba1(256, 8, 4, 8, inner_norms=True), 110_336 + 8 + 16),
        # 128 x (256 + 320 + 8 + 256) + 320 x 5 + 24 + 256
        (Mamba2(8, 32, 16, 2, 4), 109_400),
        (Mamba2(8, 32, 16, 2, 4, bias=True), 109_400 + 584),
        (Mamba2(8, 32, 16, 2, 4, output_bias=True), 109_400 + 128),
        (Mamba2(8, 32, 16, 2, 4, conv_bias=False), 109_400 - 320),
        (Mamba2(8, 32, 16, 2, 4, gated_norm=False), 109_400 - 256),
        (ShortConvolution(128, 3), 4 * 128 * 128 + 3 * 128),
        (ShortConvolution(128, 3, bias=True), 4 * 128 * 128 + 3 * 128 + 5 * 128),
    ],
)
def test_parameters_as_the_reference_counts(kind: Kind, parameters: int) -> None:
    """Projections, convolution, A, D, time step and norms add up to the reference implementation's count at h 128."""
    assert kind.parameters(128) == parameters


@pytest.mark.parametrize(
    ("kind", "hidden", "with_norm"),
    [
        (Mamba2(128, 64, 128, 8, 4), 4096, 109_640_064),  # Mamba-Codestral-7B
        (Mamba2(64, 64, 128, 8, 4), 2688, 38_744_896),  # Nemotron-3-Nano-30B-A3B
        (Mamba2(256, 64, 256, 8, 4), 8192, 438_432_512),  # Nemotron-H-56B
    ],
)
def test_parameters_of_published_layers(kind: Kind, hidden: int, with_norm: int) -> None:
    """A layer is this and the norm before it."""
    assert kind.parameters(hidden) + hidden == with_norm


@pytest.mark.parametrize(
    ("kind", "state"),
    [
        (Mamba1(256, 8, 4, 8), [(256 * 4, MODEL), (256 * 8, FP32)]),
        (Mamba2(8, 32, 16, 2, 4), [(256 * 4, MODEL), (64 * 4, MODEL), (8 * 32 * 16, FP32)]),
        (ShortConvolution(128, 3), [(128 * 3, MODEL)]),
    ],
)
def test_state_is_what_the_cache_holds(kind: Kind, state: list[tuple[int, str]]) -> None:
    """Convolutions keep as many columns as their kernel, in the model's format; state-space states are fp32."""
    assert [(part.elements, part.format) for part in kind.state] == state
    assert all(part.fixed for part in kind.state)


def test_state_measured_in_small_models() -> None:
    """A Jamba of d 4096, N 4 and one column keeps 73,728 bytes a layer in bf16 and fp32: what its cache held."""
    conv, states = Mamba1(4096, 4, 1, 256).state

    assert 2 * conv.elements + 4 * states.elements == 221_184 // 3


def test_groups_replicate_where_heads_split() -> None:
    """Four devices share 8 heads; each holds a quarter of the input's columns and one of 2 groups."""
    conv_x, conv_bc, matrices = Mamba2(8, 32, 16, 2, 4).state

    assert (conv_x.shard(4), conv_bc.shard(4), matrices.shard(4)) == (64 * 4, 2 * 16 * 4, 2 * 32 * 16)
    assert [tp for tp in range(1, 17) if Mamba2(8, 32, 16, 2, 4).splits(tp)] == [1, 2, 4, 8]
    assert not Mamba2(12, 32, 16, 4, 4).splits(6)


@pytest.mark.parametrize("kind", [Mamba1(256, 8, 4, 8), ShortConvolution(256, 3)])
def test_channels_split_over_devices(kind: Kind) -> None:
    """Two devices hold half of each part; three cannot share 256 channels."""
    assert kind.splits(2)
    assert all(2 * part.shard(2) == part.elements for part in kind.state)
    assert not kind.splits(3)


@pytest.mark.parametrize(
    ("kind", "flops"),
    [
        (Mamba1(256, 8, 4, 8), 6 * 256 * 8),
        (Mamba2(8, 32, 16, 2, 4), 5 * 8 * 32 * 16),
        (ShortConvolution(128, 3), 2 * 128),
    ],
)
def test_work_of_the_recurrence_is_linear(kind: Kind, flops: int) -> None:
    """Each token costs the same, however many went before."""
    assert kind.prefill_flops(1) == flops
    assert kind.prefill_flops(5000) == 5000 * flops


@pytest.mark.parametrize(
    ("kind", "label", "heads"),
    [
        (Mamba1(256, 8, 4, 8), "Mamba-1", 0),
        (Mamba2(8, 32, 16, 2, 4), "Mamba-2", 8),
        (ShortConvolution(128, 3), "short conv", 0),
    ],
)
def test_what_people_call_them(kind: Kind, label: str, heads: int) -> None:
    """Labels are the names in use; only Mamba-2 has heads, and none a window or KV heads."""
    assert (kind.label, kind.query_heads, kind.published_kv_heads, kind.window) == (label, heads, 0, None)


def test_intermediate_size_counts_before_expand() -> None:
    """Falcon-Mamba-7B states expand 16 beside an intermediate size of twice the hidden size; the latter is built."""
    falcon = {**MAMBA, "expand": 16, "intermediate_size": 256, "time_step_rank": 9}

    assert Mamba1.read(config(falcon)) == Mamba1(256, 8, 4, 9)
    assert Mamba1.read(config({**falcon, "intermediate_size": None})).width == 16 * 128


def test_intermediate_size_is_the_feed_forwards_beside_mamba_expand() -> None:
    """Jamba's intermediate size is that of its feed-forward; its norms inside are the class's."""
    assert Mamba1.read(config(JAMBA, inner_norms=True)) == Mamba1(256, 8, 4, 8, inner_norms=True)


@pytest.mark.parametrize(("rank", "expected"), [("auto", 7), (None, 7), (3, 3)])
def test_automatic_rank_of_the_time_step(rank: Any, expected: int) -> None:
    """It is a sixteenth of the hidden size, rounded up."""
    assert Mamba1.read(config({**MAMBA, "hidden_size": 100, "time_step_rank": rank})).time_step_rank == expected


@pytest.mark.parametrize("rank", ["half", 0, [4], 2.5])
def test_any_other_rank_is_refused(rank: Any) -> None:
    """A rank is a whole number above 0, or auto."""
    with pytest.raises(MalformedModelError, match=r"time_step_rank is"):
        Mamba1.read(config({**MAMBA, "time_step_rank": rank}))


@pytest.mark.parametrize(
    ("keys", "bias", "conv_bias"),
    [
        ({}, False, True),
        ({"use_bias": True, "use_conv_bias": False}, True, False),
        ({"mamba_proj_bias": True, "mamba_conv_bias": False}, True, False),
    ],
)
def test_biases_by_either_key(keys: dict[str, bool], bias: bool, conv_bias: bool) -> None:
    """Without keys only the convolution has a bias."""
    layer = Mamba1.read(config({**MAMBA, **keys}))

    assert (layer.bias, layer.conv_bias) == (bias, conv_bias)


def test_bare_names_are_read_in_a_class_of_mamba2_alone() -> None:
    """Heads and their width may go by the names that attention has elsewhere."""
    assert Mamba2.read(config(MAMBA2)) == Mamba2(8, 32, 16, 2, 4)


def test_prefixed_names_leave_attention_its_own() -> None:
    """Beside attention, head_dim is attention's; an automatic width follows from the expansion."""
    assert Mamba2.read(config(BAMBA)) == Mamba2(8, 32, 16, 1, 4)
    assert Mamba2.read(config({**BAMBA, "head_dim": 17, "num_heads": 4})) == Mamba2(8, 32, 16, 1, 4)


def test_heads_follow_from_their_width() -> None:
    """Zamba2-7B's file has mamba_headdim and no count of heads: as many as fill the expanded width."""
    raw = {**BAMBA, "mamba_n_heads": None, "mamba_d_head": None, "mamba_headdim": 64}

    assert Mamba2.read(config(raw)).heads == 256 // 64


def test_heads_alone_decide_where_the_class_ignores_expand() -> None:
    """Nemotron-H is as wide as its heads, whatever expand says, and only use_bias gives it biases."""
    layer = Mamba2.read(config(NEMOTRON, ssm_expand_ignored=True, ssm_bias="use_bias"))

    assert layer == Mamba2(8, 16, 16, 2, 4)


def test_stated_width_counts_before_expand() -> None:
    """Falcon-H1 states its width; output biases go by a key of their own, and the norm by a switch."""
    raw = {**BAMBA, "mamba_d_ssm": 96, "mamba_rms_norm": False, "projectors_bias": True}

    assert Mamba2.read(config(raw, ssm_output_bias="projectors_bias")) == Mamba2(
        8, 12, 16, 1, 4, output_bias=True, gated_norm=False
    )


def test_class_may_fix_biases() -> None:
    """Zamba2's convolution always has a bias, and add_bias_linear decides the projections'."""
    raw = {**BAMBA, "use_conv_bias": False, "use_bias": True, "add_bias_linear": False}

    assert Mamba2.read(config(raw, ssm_bias="add_bias_linear", ssm_conv_bias=True)) == Mamba2(8, 32, 16, 1, 4)


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        ({**MAMBA2, "expand": 3}, r"num_heads 8 x head_dim 32 is 256; it must be 384, the width that expand x h gives"),
        ({**BAMBA, "mamba_d_head": 64}, r"mamba_n_heads 8 x mamba_d_head 64 is 512; it must be 256"),
        ({**BAMBA, "mamba_n_heads": 7, "mamba_n_groups": 7}, r"mamba_n_heads 7 x mamba_d_head 36 is 252"),
        ({**BAMBA, "mamba_d_ssm": 100}, r"it must be 100, the width that mamba_d_ssm gives"),
        ({**BAMBA, "mamba_n_heads": 300}, r"mamba_d_head is 'auto'; it must be a whole number"),
        ({**BAMBA, "mamba_n_groups": 3}, r"mamba_n_groups 3 does not divide the 8 Mamba heads"),
        ({**BAMBA, "mamba_n_heads": None}, r"mamba_num_heads \(or mamba_n_heads, n_mamba_heads\) is missing"),
        ({**BAMBA, "mamba_d_head": [32]}, r"mamba_d_head is \[32\]; it must be a whole number"),
        ({**BAMBA, "mamba_d_state": None}, r"ssm_state_size \(or mamba_d_state, state_size\) is missing"),
    ],
)
def test_sizes_that_contradict_are_refused(raw: dict[str, Any], message: str) -> None:
    """Heads must fill the expanded width and groups divide them, as the reference implementation asks."""
    with pytest.raises(MalformedModelError, match=message):
        Mamba2.read(config(raw))


def test_short_convolution_is_as_wide_as_the_hidden_state() -> None:
    """LFM2 states conv_dim beside hidden_size; another value is refused."""
    assert ShortConvolution.read(config(LFM)) == ShortConvolution(128, 3)
    assert ShortConvolution.read(config({**LFM, "conv_bias": True})).bias
    with pytest.raises(MalformedModelError, match=r"conv_dim is 64; it must be hidden_size 128"):
        ShortConvolution.read(config({**LFM, "conv_dim": 64}))
