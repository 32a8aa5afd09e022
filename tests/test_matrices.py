"""Matrices of every kind of layer: shapes by hand, nothing left over but vectors and convolutions, none too many."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roofcast.modelspec.attention import Attention, GroupedAttention
from roofcast.modelspec.compressed import CompressedAttention
from roofcast.modelspec.kinds import KINDS
from roofcast.modelspec.known import find_known, known_names
from roofcast.modelspec.latent import LatentAttention
from roofcast.modelspec.matrix import Inventory, Matrix, inventory
from roofcast.modelspec.recurrent import GatedDeltaNet
from roofcast.modelspec.serial import FEED_FORWARDS
from roofcast.modelspec.spec import ModelSpec, build_spec
from tests.property.strategies import ATTENTION_KINDS, FEED_FORWARD_KINDS, specs

if TYPE_CHECKING:
    from roofcast.modelspec.ffn import FeedForward

WORKING: Final = ("attention", "feed_forward", "experts")
LEFT: Final = 0.01  # of all parameters: norms, biases, convolutions, constants of states, routers that are no matrix

Shape = tuple[str, int, int]


def known(name: str) -> ModelSpec:
    """Return the model of a catalogue entry; an encoder has 40 tokens where only the input tells."""
    found = find_known(name)
    assert found is not None
    return build_spec(found.config, encoder_tokens=40)


def mixer(name: str, layer: int = 0) -> tuple[Attention, int]:
    """Return the first mixer of one layer of a catalogue entry, and the width of its input."""
    spec = known(name)
    return spec.layers[layer].mixers[0], spec.hidden


def shapes(matrices: tuple[Matrix, ...], parent: str) -> list[Shape]:
    """Return name, rows and columns of matrices that all stand under one module and are one of a kind."""
    assert all(matrix.count == 1 and matrix.name.startswith(f"{parent}.") for matrix in matrices)
    return [(matrix.name.removeprefix(f"{parent}."), matrix.rows, matrix.columns) for matrix in matrices]


def listed(found: Inventory, component: str) -> int:
    """Return the parameters in matrices of a component."""
    return sum(part.matrix.elements for part in found.matrices if part.component == component)


# --- the catalogue


@pytest.mark.parametrize("name", known_names())
def test_what_is_in_no_matrix_is_small(name: str) -> None:
    """Matrices and the rest are all parameters; the rest of what works on tokens is below 1 % and never negative."""
    spec = known(name)
    found = inventory(spec)
    left = sum(found.rest[component] for component in WORKING)

    assert found.unlisted.isdisjoint(WORKING)
    assert min(found.rest.values()) >= 0
    assert {part: listed(found, part) + count for part, count in found.rest.items()} == spec.components
    assert left < LEFT * spec.parameters


@pytest.mark.parametrize("name", known_names())
def test_no_matrix_is_empty(name: str) -> None:
    """Each matrix has rows, columns and a count."""
    sizes = {(part.matrix.rows, part.matrix.columns, part.matrix.count) for part in inventory(known(name)).matrices}

    assert min(map(min, sizes)) > 0


@pytest.mark.parametrize(("name", "left"), [("gemma-3n-e4b", 35 * 4 * 2048 + 256), ("gemma-4-e4b", 42 * 2560 + 256)])
def test_of_inputs_a_layer_norms_are_left(name: str, left: int) -> None:
    """Beside AltUp, LAuReL and the inputs' projections there are norms and a scale, and one norm outside the layers."""
    assert inventory(known(name)).rest["other"] == left


# --- by hand: matrices and, as the last number, what is left of the layer's attention


@pytest.mark.parametrize(
    ("name", "layer", "parent", "expected", "left"),
    [
        (
            "deepseek-v3",
            0,
            "self_attn",
            [
                ("q_a_proj", 1536, 7168),
                ("q_b_proj", 128 * 192, 1536),
                ("kv_a_proj_with_mqa", 512 + 64, 7168),
                ("kv_b_proj", 128 * (128 + 128), 512),
                ("o_proj", 7168, 128 * 128),
            ],
            1536 + 512,
        ),
        (
            "glm-5",
            0,
            "self_attn",
            [
                ("q_a_proj", 2048, 6144),
                ("q_b_proj", 64 * 256, 2048),
                ("kv_a_proj_with_mqa", 512 + 64, 6144),
                ("kv_b_proj", 64 * (192 + 256), 512),
                ("o_proj", 6144, 64 * 256),
                ("indexer.wq_b", 32 * 128, 2048),
                ("indexer.wk", 128, 6144),
                ("indexer.weights_proj", 32, 6144),
            ],
            2048 + 512 + 2 * 128,
        ),
        (
            "qwen3-next-80b-a3b",
            0,
            "linear_attn",
            [
                ("in_proj_qkvz", 2 * 16 * 128 + 2 * 32 * 128, 2048),
                ("in_proj_ba", 2 * 32, 2048),
                ("out_proj", 2048, 32 * 128),
            ],
            (2 * 16 * 128 + 32 * 128) * 4 + 2 * 32 + 128,
        ),
        (
            "qwen3.5-9b",
            0,
            "linear_attn",
            [
                ("in_proj_qkv", 2 * 16 * 128 + 32 * 128, 4096),
                ("in_proj_z", 32 * 128, 4096),
                ("in_proj_b", 32, 4096),
                ("in_proj_a", 32, 4096),
                ("out_proj", 4096, 32 * 128),
            ],
            (2 * 16 * 128 + 32 * 128) * 4 + 2 * 32 + 128,
        ),
        (
            "olmo-hybrid-7b",
            0,
            "linear_attn",
            [
                ("q_proj", 30 * 96, 3840),
                ("k_proj", 30 * 96, 3840),
                ("v_proj", 30 * 192, 3840),
                ("a_proj", 30, 3840),
                ("b_proj", 30, 3840),
                ("g_proj", 30 * 192, 3840),
                ("o_proj", 3840, 30 * 192),
            ],
            (2 * 30 * 96 + 30 * 192) * 4 + 2 * 30 + 192,
        ),
        (
            "nemotron-h-8b",
            0,
            "mamba",
            [("in_proj", 2 * 128 * 64 + 2 * 8 * 128 + 128, 4096), ("out_proj", 4096, 128 * 64)],
            (128 * 64 + 2 * 8 * 128) * (4 + 1) + 3 * 128 + 128 * 64,
        ),
        (
            "kimi-linear-48b-a3b",
            0,
            "self_attn",
            [
                ("q_proj", 4096, 2304),
                ("k_proj", 4096, 2304),
                ("v_proj", 4096, 2304),
                ("f_a_proj", 128, 2304),
                ("f_b_proj", 4096, 128),
                ("g_a_proj", 128, 2304),
                ("g_b_proj", 4096, 128),
                ("b_proj", 32, 2304),
                ("o_proj", 2304, 4096),
            ],
            3 * 4096 * 4 + 32 + 4096 + 128,
        ),
        (
            "minimax-m3",
            59,
            "self_attn",
            [
                ("q_proj", 64 * 128, 6144),
                ("k_proj", 4 * 128, 6144),
                ("v_proj", 4 * 128, 6144),
                ("o_proj", 6144, 64 * 128),
                ("index_q_proj", 4 * 128, 6144),
                ("index_k_proj", 128, 6144),
            ],
            2 * 128 + 2 * 128,
        ),
        (
            "minimax-text-01",
            0,
            "self_attn",
            [("qkv_proj", 3 * 64 * 128, 6144), ("output_gate", 64 * 128, 6144), ("out_proj", 6144, 64 * 128)],
            64 * 128,
        ),
        (
            "falcon-mamba-7b",
            0,
            "mamba",
            [
                ("in_proj", 2 * 8192, 4096),
                ("x_proj", 256 + 2 * 16, 8192),
                ("dt_proj", 8192, 256),
                ("out_proj", 4096, 8192),
            ],
            8192 * (4 + 1 + 16 + 2),
        ),
        (
            "xlstm-7b",
            0,
            "mlstm_layer",
            [
                ("q", 8 * 256, 4096),
                ("k", 8 * 256, 4096),
                ("v", 8 * 512, 4096),
                ("ogate_preact", 8 * 512, 4096),
                ("igate_preact", 8, 4096),
                ("fgate_preact", 8, 4096),
                ("out_proj", 4096, 8 * 512),
            ],
            2 * 8 + 8 * 512,
        ),
        (
            "zaya1-8b",
            0,
            "self_attn",
            [
                ("qkv_proj.q_proj", 8 * 128, 2048),
                ("qkv_proj.k_proj", 2 * 128, 2048),
                ("qkv_proj.v_proj_current", 128, 2048),
                ("qkv_proj.v_proj_delayed", 128, 2048),
                ("o_proj", 2048, 8 * 128),
            ],
            10 * 128 * (2 + 1) + 10 * 128 * (2 * 128 + 1) + 2,
        ),
        (
            "trinity-mini",
            0,
            "self_attn",
            [
                ("q_proj", 32 * 128, 2048),
                ("k_proj", 4 * 128, 2048),
                ("v_proj", 4 * 128, 2048),
                ("o_proj", 2048, 32 * 128),
                ("gate_proj", 32 * 128, 2048),
            ],
            2 * 128,
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_attention_has_these_matrices(name: str, layer: int, parent: str, expected: list[Shape], left: int) -> None:
    """Names, rows and columns are the published model's, and what they leave is its norms, convolutions and vectors."""
    attention, hidden = mixer(name, layer)
    matrices = attention.matrices(hidden)

    assert shapes(matrices, parent) == expected
    assert attention.parameters(hidden) - sum(matrix.elements for matrix in matrices) == left


V4: Final = [
    ("wq_a", 1024, 4096),
    ("wq_b", 64 * 512, 1024),
    ("wkv", 512, 4096),
    ("wo_a", 8 * 1024, 64 * 512 // 8),
    ("wo_b", 4096, 8 * 1024),
]
V4_COMPRESSOR: Final = [("compressor.wkv", 512, 4096), ("compressor.wgate", 512, 4096)]
V4_INDEXED: Final = [
    ("compressor.wkv", 2 * 512, 4096),
    ("compressor.wgate", 2 * 512, 4096),
    ("indexer.wq_b", 64 * 128, 1024),
    ("indexer.weights_proj", 64, 4096),
    ("indexer.compressor.wkv", 2 * 128, 4096),
    ("indexer.compressor.wgate", 2 * 128, 4096),
]


@pytest.mark.parametrize(
    ("ratio", "expected", "left"),
    [
        (0, V4, 1024 + 512 + 64),
        (128, V4 + V4_COMPRESSOR, 1024 + 512 + 64 + 128 * 512 + 512),
        (4, V4 + V4_INDEXED, 1024 + 512 + 64 + 4 * 1024 + 512 + 4 * 256 + 128),
    ],
)
def test_compressed_attention_has_these_matrices(ratio: int, expected: list[Shape], left: int) -> None:
    """DeepSeek-V4-Flash: five without compression, two more with it, six more where an index selects."""
    mixers = {part for layer in known("deepseek-v4-flash").layers for part in layer.mixers}
    attention = next(part for part in mixers if isinstance(part, CompressedAttention) and part.ratio == ratio)
    matrices = attention.matrices(4096)

    assert shapes(matrices, "self_attn") == expected
    assert attention.parameters(4096) - sum(matrix.elements for matrix in matrices) == left


@pytest.mark.parametrize(
    ("rows", "gated_query", "expected"),
    [
        (0, False, [("q_b_proj", 4 * 12, 24)]),
        (4, False, [("q_b_proj", 4 * 12, 24), ("g_proj", 4, 64)]),
        (4 * 8, False, [("q_b_proj", 4 * 12, 24), ("gate_proj", 4 * 8, 64)]),
        (0, True, [("q_gate_proj", 4 * (12 + 8), 2 * 24)]),
    ],
)
def test_gates_of_latent_attention_are_matrices(rows: int, gated_query: bool, expected: list[Shape]) -> None:
    """A gate is of its own, one a head or wide, or in one matrix with the queries; all that is left is two norms."""
    attention = LatentAttention(4, 16, 24, 8, 4, 8, gate_rows=rows, gated_query=gated_query)
    matrices = attention.matrices(64)
    always = {"q_a_proj", "kv_a_proj_with_mqa", "kv_b_proj", "o_proj"}

    assert [row for row in shapes(matrices, "self_attn") if row[0] not in always] == expected
    assert attention.parameters(64) - sum(matrix.elements for matrix in matrices) == 24 + 16


@pytest.mark.parametrize("wide", [False, True])
def test_gates_of_grouped_attention_are_matrices(wide: bool) -> None:
    """A gate of its own is the last matrix, and nothing is left."""
    attention = GroupedAttention(4, 2, 16, 16, gate_rows=64 if wide else 4)
    matrices = attention.matrices(32)

    assert shapes(matrices, "self_attn")[-1] == (("gate_proj", 64, 32) if wide else ("g_proj", 4, 32))
    assert attention.parameters(32) == sum(matrix.elements for matrix in matrices)


def test_shared_weights_are_listed_once() -> None:
    """Zamba2: matrices of its two shared blocks stand in the first layer of each, those of each layer in all nine."""
    names = [part.matrix.name for part in inventory(known("zamba2-2.7b")).matrices]

    assert names.count("shared_transformer.self_attn.q_proj") == 2
    assert names.count("shared_transformer.feed_forward.down_proj") == 2
    assert names.count("linear") == names.count("shared_transformer.feed_forward.gate_up_proj_adapter.0") == 9


def test_what_quantisers_leave_is_not_linear() -> None:
    """Routers, head weights of an index, compressors, and gates of one row are no linear layers to a quantiser."""
    left = {
        part.matrix.name.rpartition(".")[2]
        for name in ("deepseek-v3.2", "deepseek-v4-pro", "qwen3-next-80b-a3b")
        for part in inventory(known(name)).matrices
        if not part.matrix.linear
    }

    assert left == {"embed_tokens", "gate", "weights_proj", "shared_expert_gate", "wkv", "wgate"}


def test_a_number_of_input_matrices_that_no_class_has_is_read_as_four() -> None:
    """A document may say any number; the projections are the same ones."""
    assert GatedDeltaNet(2, 4, 16, 32, 4, inputs=3).matrices(64) == GatedDeltaNet(2, 4, 16, 32, 4).matrices(64)


# --- laws


def test_every_kind_lists_its_matrices() -> None:
    """A kind that is added without them is noticed."""
    assert all(hasattr(kind.cls, "matrices") for kind in KINDS.values())
    assert all(hasattr(cls, "matrices") for cls in FEED_FORWARDS.values())


@pytest.mark.parametrize("name", ATTENTION_KINDS)
@given(data=st.data(), hidden=st.integers(1, 1024))
def test_matrices_of_attention_are_within_its_parameters(name: str, data: st.DataObject, hidden: int) -> None:
    """Whatever its sizes, no kind lists more than it has, and none lists a matrix without a name."""
    attention: Attention = data.draw(ATTENTION_KINDS[name])
    matrices = attention.matrices(hidden)

    assert 0 <= sum(matrix.elements for matrix in matrices) <= attention.parameters(hidden)
    assert all(matrix.name.strip(".") for matrix in matrices)


@pytest.mark.parametrize("name", FEED_FORWARD_KINDS)
@given(data=st.data())
def test_matrices_of_feed_forwards_are_within_their_parameters(name: str, data: st.DataObject) -> None:
    """Whatever its sizes, no kind lists more than it has; routed experts list all but their biases."""
    part: FeedForward = data.draw(FEED_FORWARD_KINDS[name])
    matrices = part.matrices()
    routed = sum(matrix.elements for matrix in matrices if ".experts." in matrix.name)

    assert 0 <= sum(matrix.elements for matrix in matrices) <= part.parameters
    assert routed <= part.expert_parameters


@given(specs())
def test_any_model_is_its_matrices_and_the_rest(spec: ModelSpec) -> None:
    """Component by component, and no matrix is empty."""
    found = inventory(spec)

    assert {part: listed(found, part) + count for part, count in found.rest.items()} == spec.components
    assert min(found.rest[part] for part in WORKING) >= 0
    assert all(min(part.matrix.rows, part.matrix.columns, part.matrix.count) > 0 for part in found.matrices)
