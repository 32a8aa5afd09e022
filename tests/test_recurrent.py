"""Recurrent kinds against counts of the reference implementation and states measured in its cache."""

from __future__ import annotations

from typing import Any

import pytest

from roofcast.modelspec.config import Config
from roofcast.modelspec.errors import MalformedModelError, UnknownArchitectureError
from roofcast.modelspec.family import Family
from roofcast.modelspec.recurrent import GatedDeltaNet, KimiDelta, LightningAttention
from roofcast.modelspec.rwkv import Rwkv
from roofcast.modelspec.spec import build_spec
from roofcast.modelspec.state import FP32, MODEL, Kept
from roofcast.modelspec.xlstm import MLstm

Kind = GatedDeltaNet | KimiDelta | LightningAttention | MLstm | Rwkv

DELTA = {
    "hidden_size": 128,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 16,
    "linear_value_head_dim": 32,
    "linear_conv_kernel_dim": 4,
}
KDA = {"hidden_size": 128, "num_attention_heads": 8, "head_dim": 72}
KDA_BLOCK = {"num_heads": 4, "head_dim": 32, "short_conv_kernel_size": 4, "kda_layers": [1], "full_attn_layers": [2]}
XLSTM = {"hidden_size": 128, "num_heads": 2, "qk_dim_factor": 0.5, "v_dim_factor": 1.0}
EAGLE = {"hidden_size": 4096, "attention_hidden_size": 4096, "head_size": 64}
KINDS: list[Kind] = [
    GatedDeltaNet(2, 4, 16, 32, 4),
    KimiDelta(4, 32, 4),
    LightningAttention(4, 32),
    MLstm(2, 32, 64),
    Rwkv(4, 128, 128),
    Rwkv(6, 128, 128, 32),
]


def config(raw: dict[str, Any], **constants: object) -> Config:
    """Return a config of a class that fixes these in code."""
    return Config(raw, Family(constants=constants), "", known=False, present=frozenset(raw))


def sizes(state: tuple[Kept, ...]) -> list[tuple[int, str]]:
    """Return elements and format of each part."""
    return [(part.elements, part.format) for part in state]


@pytest.mark.parametrize(
    ("kind", "hidden", "parameters"),
    [
        # h (2 K + 3 V + 2 n_v) + (2 K + V) c + 2 n_v + d_v = 128 x 456 + 192 x 4 + 8 + 32
        (GatedDeltaNet(2, 4, 16, 32, 4), 128, 59_176),
        # 128 x (4 x 128 + 4) + 2 x 32 x 256 + 3 x 128 x 4 + 4 + 128 + 32
        (KimiDelta(4, 32, 4), 128, 84_132),
        (KimiDelta(4, 32, 4, full_rank_gate=True), 128, 84_132 + 128 * 128 - 32 * 256),
        (KimiDelta(4, 32, 4, full_rank_gate=True, full_rank_decay=True), 128, 100_516),
        (LightningAttention(4, 32), 128, 5 * 128 * 128 + 128),
        # 128 x (2 x 64 + 3 x 128 + 4) + 4 + 128
        (MLstm(2, 32, 64), 128, 66_180),
        (MLstm(2, 32, 64, bias=True), 128, 66_180 + 2 * 64 + 3 * 128 + 128),
        (Rwkv(4, 128, 128), 128, 4 * 128 * 128 + 5 * 128),
        (Rwkv(4, 128, 200), 128, 4 * 128 * 200 + 3 * 128 + 2 * 200),
    ],
)
def test_parameters_as_the_reference_counts(kind: Kind, hidden: int, parameters: int) -> None:
    """Projections, convolutions, decays, gates and inner norms add up to the reference implementation's count."""
    assert kind.parameters(hidden) == parameters


@pytest.mark.parametrize(
    ("generation", "hidden", "layers", "whole"),
    [
        (5, 4096, 32, 7_518_044_160),  # 13 h^2 L + 14 h L + 4 h + 2 h V: Eagle 7B
        (6, 2048, 24, 1_599_873_024),  # 13 h^2 L + 464 h L + 4 h + 2 h V: Finch 1.6B
    ],
)
def test_rwkv_adds_up_to_the_papers_count(generation: int, hidden: int, layers: int, whole: int) -> None:
    """With channel mixing (8 h^2 + 2 h), two norms a layer, two outside and embeddings of 65,536 it is the paper's."""
    layer = Rwkv(generation, hidden, hidden, 64).parameters(hidden) + 8 * hidden * hidden + 2 * hidden + 4 * hidden

    assert layers * layer + 4 * hidden + 2 * 65_536 * hidden == whole


def test_finch_of_width_4096_doubles_its_ranks() -> None:
    """Mixes of rank 64 and a decay of rank 128 are 896 h a layer; the paper's 464 h less 14 h holds below 4096."""
    beyond = [Rwkv(6, h, h, 64).parameters(h) - Rwkv(5, h, h, 64).parameters(h) for h in (2048, 4096)]

    assert beyond == [450 * 2048, (10 * 64 + 2 * 128 + 2) * 4096]


@pytest.mark.parametrize(
    ("kind", "state"),
    [
        (GatedDeltaNet(2, 4, 16, 32, 4), [(64 * 4, MODEL), (128 * 4, MODEL), (4 * 16 * 32, FP32)]),
        (KimiDelta(4, 32, 4), [(384 * 4, MODEL), (4 * 32 * 32, FP32)]),
        (LightningAttention(4, 32), [(4 * 32 * 32, MODEL)]),
        (MLstm(2, 32, 64), [(2 * (32 * 64 + 32 + 1), FP32)]),
        (Rwkv(4, 128, 128), [(3 * 128, FP32), (2 * 128, MODEL)]),
        (Rwkv(5, 128, 128, 32), [(4 * 32 * 32, FP32), (2 * 128, MODEL)]),
    ],
)
def test_state_is_what_the_cache_holds(kind: Kind, state: list[tuple[int, str]]) -> None:
    """Convolution columns are in the model's format; recurrent matrices are fp32, but lightning attention's."""
    assert sizes(kind.state) == state
    assert all(part.fixed for part in kind.state)


def test_state_of_whole_models() -> None:
    """18 linear layers of Qwen3.5-0.8B keep 19,759,104 bytes, 20 of a 4-head Kimi-Linear 5,488,640, in bf16 and fp32."""
    bytes_of = {MODEL: 2, FP32: 4}
    qwen, kimi = GatedDeltaNet(16, 16, 128, 128, 4), KimiDelta(4, 128, 4)

    assert 18 * sum(elements * bytes_of[name] for elements, name in sizes(qwen.state)) == 19_759_104
    assert 20 * sum(elements * bytes_of[name] for elements, name in sizes(kimi.state)) == 5_488_640


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.label)
def test_devices_share_heads_and_keep_the_rest_whole(kind: Kind) -> None:
    """Two devices hold half of each part, but all of RWKV's last inputs."""
    shared = kind.state[:-1] if isinstance(kind, Rwkv) else kind.state

    assert kind.splits(2)
    assert all(2 * part.shard(2) == part.elements for part in shared)
    assert all(part.shard(2) == part.elements for part in kind.state[len(shared) :])


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.label)
def test_no_device_count_but_a_divisor_splits(kind: Kind) -> None:
    """Three devices cannot share 2, 4 or 128 heads."""
    assert not kind.splits(3)


def test_key_heads_replicate_where_value_heads_split() -> None:
    """Four devices share 4 value heads, and each holds one of 2 key heads; 8 devices do not."""
    conv_qk, conv_v, matrices = GatedDeltaNet(2, 4, 16, 32, 4).state

    assert GatedDeltaNet(2, 4, 16, 32, 4).splits(4)
    assert not GatedDeltaNet(2, 4, 16, 32, 4).splits(8)
    assert not GatedDeltaNet(3, 6, 16, 32, 4).splits(2)
    assert (conv_qk.shard(4), conv_v.shard(4), matrices.shard(4)) == (2 * 16 * 4, 32 * 4, 16 * 32)


@pytest.mark.parametrize(
    ("kind", "flops"),
    [
        (GatedDeltaNet(2, 4, 16, 32, 4), 7 * 4 * 16 * 32),
        (KimiDelta(4, 32, 4), 7 * 4 * 32 * 32),
        (LightningAttention(4, 32), 5 * 4 * 32 * 32),
        (MLstm(2, 32, 64), 5 * 2 * 32 * 65),
        (Rwkv(4, 128, 128), 11 * 128),
        (Rwkv(6, 128, 128, 32), 6 * 4 * 32 * 32),
    ],
)
def test_work_of_the_recurrence_is_linear(kind: Kind, flops: int) -> None:
    """Each token costs the same, however many went before."""
    assert kind.prefill_flops(1) == flops
    assert kind.prefill_flops(5000) == 5000 * flops


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.label)
def test_no_window_and_no_cached_heads(kind: Kind) -> None:
    """Nothing is capped, and there are no KV heads."""
    assert (kind.window, kind.published_kv_heads) == (None, 0)


def test_what_people_call_them() -> None:
    """Labels are the names in use, and heads those with a state."""
    assert [(kind.label, kind.query_heads) for kind in KINDS] == [
        ("Gated DeltaNet", 4),
        ("KDA", 4),
        ("lightning", 4),
        ("mLSTM", 2),
        ("RWKV", 0),
        ("RWKV", 4),
    ]


def test_gated_deltanet_is_read_by_its_own_keys() -> None:
    """Heads and widths of keys and values each have a key; the SSM dtype does not change the state."""
    expected = GatedDeltaNet(key_heads=2, value_heads=4, key_head_dim=16, value_head_dim=32, conv_kernel=4)

    assert GatedDeltaNet.read(config({**DELTA, "mamba_ssm_dtype": "bfloat16"})) == expected


def test_gated_deltanet_may_follow_the_attention_heads() -> None:
    """OLMo Hybrid: as many heads as attention, keys of 3/4 of the hidden size, values twice as wide."""
    raw = {"hidden_size": 128, "num_attention_heads": 4, "linear_conv_kernel_dim": 4}

    assert GatedDeltaNet.read(config(raw, linear_from_attention=True)) == GatedDeltaNet(4, 4, 24, 48, 4)
    with pytest.raises(MalformedModelError, match=r"linear_num_key_heads is missing"):
        GatedDeltaNet.read(config(raw))


def test_key_heads_must_divide_value_heads() -> None:
    """Value heads share key heads evenly."""
    with pytest.raises(MalformedModelError, match=r"linear_num_key_heads 3 does not divide linear_num_value_heads 4"):
        GatedDeltaNet.read(config({**DELTA, "linear_num_key_heads": 3}))


def test_kda_is_read_from_its_block() -> None:
    """Kimi-Linear nests its sizes; head_dim beside them belongs to nothing here."""
    assert KimiDelta.read(config({**KDA, "linear_attn_config": KDA_BLOCK})) == KimiDelta(4, 32, 4)


def test_kda_block_may_ask_for_a_full_rank_gate() -> None:
    """Kimi K3 has one matrix for the output gate, and still two for the decay."""
    block = {**KDA_BLOCK, "use_full_rank_gate": True}

    assert KimiDelta.read(config({**KDA, "linear_attn_config": block})) == KimiDelta(4, 32, 4, full_rank_gate=True)


def test_kda_is_read_from_flat_keys() -> None:
    """A file that the reference implementation wrote has flat keys; an emptied block adds nothing."""
    flat = {**KDA, "linear_num_heads": 4, "linear_head_dim": 32, "linear_conv_kernel_dim": 4}

    assert KimiDelta.read(config(flat)) == KimiDelta(4, 32, 4)
    assert KimiDelta.read(config({**flat, "linear_attn_config": {}})) == KimiDelta(4, 32, 4)


def test_kda_may_share_the_attention_heads() -> None:
    """Ling 3 has no sizes of its own for KDA, and both gates at full rank."""
    raw = {**KDA, "short_conv_kernel_size": 4}
    traits = {"linear_from_attention": True, "full_rank_gate": True, "full_rank_decay": True}

    assert KimiDelta.read(config(raw, **traits)) == KimiDelta(8, 72, 4, full_rank_gate=True, full_rank_decay=True)
    with pytest.raises(MalformedModelError, match=r"linear_num_heads is missing"):
        KimiDelta.read(config(raw))


def test_kda_block_must_be_whole() -> None:
    """A block without heads is refused by the key that it lacks, and anything but an object is none."""
    with pytest.raises(MalformedModelError, match=r"num_heads is missing"):
        KimiDelta.read(config({**KDA, "linear_attn_config": {"head_dim": 32, "short_conv_kernel_size": 4}}))
    with pytest.raises(MalformedModelError, match=r"linear_attn_config is 7; it must be an object"):
        KimiDelta.read(config({**KDA, "linear_attn_config": 7}))


def test_lightning_has_the_heads_of_attention() -> None:
    """Heads and head_dim are those of the softmax layers; without head_dim they share the hidden size."""
    raw = {"hidden_size": 128, "num_attention_heads": 4}

    assert LightningAttention.read(config({**raw, "head_dim": 24})) == LightningAttention(4, 24)
    assert LightningAttention.read(config(raw)) == LightningAttention(4, 32)
    with pytest.raises(MalformedModelError, match=r"num_attention_heads 5 does not divide hidden_size 128"):
        LightningAttention.read(config({**raw, "num_attention_heads": 5}))


def test_mlstm_widths_are_factors_of_the_hidden_size() -> None:
    """Half the hidden size for keys and all of it for values, over the heads; a stated dtype does not change fp32."""
    assert MLstm.read(config({**XLSTM, "inference_state_dtype": "bfloat16"})) == MLstm(2, 32, 64)
    assert MLstm.read(config({**XLSTM, "use_bias": True})).bias


@pytest.mark.parametrize("factor", [None, True, "0.5", 0, -1.0, float("inf"), float("nan"), 1e300, [0.5], 0.001])
def test_factors_must_be_numbers_that_leave_a_width(factor: Any) -> None:
    """Anything else is refused by its key."""
    with pytest.raises(MalformedModelError, match=r"qk_dim_factor"):
        MLstm.read(config({**XLSTM, "qk_dim_factor": factor}))


def test_mlstm_heads_must_divide_the_widths() -> None:
    """Three heads do not share 64."""
    with pytest.raises(MalformedModelError, match=r"num_heads 3 does not divide qk_dim_factor x hidden_size 64"):
        MLstm.read(config({**XLSTM, "num_heads": 3}))


def test_rwkv_of_generation_4_has_channels() -> None:
    """Without head_size the state is 3 numbers a channel, of the hidden size where no other width is stated."""
    assert Rwkv.read(config({"hidden_size": 128})) == Rwkv(4, 128, 128)
    assert Rwkv.read(config({"hidden_size": 128, "attention_hidden_size": 64})) == Rwkv(4, 128, 64)


def test_rwkv_with_heads_needs_its_generation() -> None:
    """The class says which generation it is; a head_size alone does not, and no later one is guessed."""
    assert Rwkv.read(config(EAGLE, rwkv_generation=5)) == Rwkv(5, 4096, 4096, 64)
    assert Rwkv.read(config(EAGLE, rwkv_generation=6)) == Rwkv(6, 4096, 4096, 64)
    with pytest.raises(UnknownArchitectureError, match=r"roofcast knows rwkv, rwkv5, rwkv6"):
        Rwkv.read(config(EAGLE))
    with pytest.raises(UnknownArchitectureError, match=r"roofcast knows rwkv, rwkv5, rwkv6"):
        Rwkv.read(config(EAGLE, rwkv_generation=7))
    with pytest.raises(MalformedModelError, match=r"head_size is missing"):
        Rwkv.read(config({"hidden_size": 4096}, rwkv_generation=5))
    with pytest.raises(MalformedModelError, match=r"head_size 60 does not divide 4096"):
        Rwkv.read(config({**EAGLE, "head_size": 60}, rwkv_generation=5))


def test_rwkv_6_world_1b6() -> None:
    """Finch 1.6B: 13 h^2 L + 464 h L + 4 h + 2 h V at h 2048, L 24, V 65,536; 66 h numbers of state a layer.

    Source: arXiv:2404.05892, appendix E.
    """
    config = {
        "model_type": "rwkv6", "hidden_size": 2048, "attention_hidden_size": 2048, "num_hidden_layers": 24,
        "vocab_size": 65536, "head_size": 64, "head_size_divisor": 8, "intermediate_size": None,
        "tie_word_embeddings": False,
    }  # fmt: skip
    spec = build_spec(config)

    assert spec.parameters == 13 * 2048**2 * 24 + 464 * 2048 * 24 + 4 * 2048 + 2 * 2048 * 65536 == 1_599_873_024
    assert sum(part.elements * count for part, count in spec.kept.items()) == 24 * 66 * 2048


def test_rwkv_5_world_7b() -> None:
    """Eagle 7B: 13 h^2 L + 14 h L + 4 h + 2 h V at h 4096, L 32, V 65,536. Source: arXiv:2404.05892, appendix E."""
    config = {
        "model_type": "rwkv5", "hidden_size": 4096, "attention_hidden_size": 4096, "num_hidden_layers": 32,
        "vocab_size": 65536, "head_size": 64, "tie_word_embeddings": False,
    }  # fmt: skip

    assert build_spec(config).parameters == 13 * 4096**2 * 32 + 14 * 4096 * 32 + 4 * 4096 + 2 * 4096 * 65536
