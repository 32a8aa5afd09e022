"""What a GGUF file's metadata says is what the config.json of the same model says: state, layers and parameters."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any, Final

import pytest

from roofcast.modelspec.confirm import confirm_attention, contradiction
from roofcast.modelspec.errors import MalformedModelError, ModelError, UnknownArchitectureError
from roofcast.modelspec.families import all_families
from roofcast.modelspec.gguf_archs import ARCHS
from roofcast.modelspec.gguf_config import config_of
from roofcast.modelspec.gguf_layers import RULES, TESTS
from roofcast.modelspec.known import find_known, known_names
from roofcast.modelspec.nested import text_model
from roofcast.modelspec.spec import ModelSpec, build_spec
from roofcast.modelspec.weights import Tensor, WeightFiles
from tests.gguf_known import (
    DEEPSEEK_V3,
    DEEPSEEK_V3_OLD,
    FILES,
    GLM_AIR,
    LLAMA,
    MIXTRAL,
    SPARSE,
    blocks,
    metadata,
    tensors,
)
from tests.gguf_metadata import WRITERS, metadata_of, tensors_of
from tests.model_configs import is_one_line

# whose class llama.cpp cannot convert, though their model_type says so
NOT_CONVERTED: Final = frozenset({"kimi-k3"})
# whose window the converter leaves out, so that llama.cpp keeps every token
WINDOW_LOST: Final = frozenset({"mistral", "starcoder2"})
ENCODED: Final = 512  # tokens of the encoder of T5


@cache
def texts() -> dict[str, dict[str, Any]]:
    """Return the text model of every catalogue entry that llama.cpp converts."""
    found = {name: dict(text_model(known.config).raw) for name in known_names() if (known := find_known(name))}
    return {name: raw for name, raw in found.items() if raw["model_type"] in WRITERS and name not in NOT_CONVERTED}


def spec_of(stated: dict[str, Any], held: tuple[Tensor, ...], **how: Any) -> ModelSpec:
    """Build the model of a GGUF file."""
    return build_spec(config_of(stated, held), **how)


def refusal(stated: dict[str, Any], held: tuple[Tensor, ...] = ()) -> ModelError:
    """Return the one line with which a file is refused."""
    with pytest.raises(ModelError) as caught:
        spec_of(stated, held)
    assert is_one_line(str(caught.value)), caught.value
    return caught.value


def files(held: tuple[Tensor, ...]) -> WeightFiles:
    """Return tensors as weight files."""
    return WeightFiles(held, {}, 0, 1, "headers")


@pytest.mark.parametrize("model_type", sorted(WRITERS))
def test_converted_models_answer_as_their_config_does(model_type: str) -> None:
    """Every catalogue model, written as the converter writes it, has the same layers, state and parameters."""
    for name, raw in texts().items():
        if raw["model_type"] != model_type:
            continue
        encoded = ENCODED if model_type == "t5" else None
        stated = build_spec(raw, encoder_tokens=encoded)
        written = metadata_of(raw, stated)
        found = spec_of(written, tensors_of(raw, stated, written), encoder_tokens=encoded)
        assert found.decoder_parameters == stated.decoder_parameters, name
        assert not found.unread, name
        assert (found.tied, found.vocab, found.hidden) == (stated.tied, stated.vocab, stated.hidden), name
        if model_type in WINDOW_LOST:
            unbounded = [replace(part, cap=None) for part in stated.kept.elements()]
            assert sorted(map(repr, found.kept.elements())) == sorted(map(repr, unbounded)), name
        else:
            assert found.kept == stated.kept, name
            assert found.layers == stated.layers, name


def test_most_of_the_catalogue_is_held_against_its_gguf() -> None:
    """Nine in ten catalogue models are of an architecture that the table knows."""
    assert len(texts()) > 0.9 * len(known_names())


def test_every_row_names_what_there_is() -> None:
    """Classes, rules and tests of the table's rows are those of their own tables."""
    families = all_families()
    for arch, row in ARCHS.items():
        assert {row.model_type, *(other for _, other in row.unless)} <= families.keys(), arch
        assert set(row.rules) <= RULES.keys(), arch
        assert {test for test, _ in row.unless} <= TESTS.keys(), arch
    assert {rule for row in ARCHS.values() for rule in row.rules} == RULES.keys()
    assert {test for row in ARCHS.values() for test, _ in row.unless} == TESTS.keys()


@pytest.mark.parametrize("name", FILES)
def test_well_known_files(name: str) -> None:
    """Real metadata gives the bytes a token, the bounded layers and the parameters worked out by hand."""
    stated, held, growing, bounded, parameters = FILES[name]
    spec = spec_of(stated, held)
    parts = list(spec.kept.elements())
    assert sum(2 * part.elements for part in parts if part.grows) == growing
    assert sum(part.cap is not None for part in parts) == bounded
    assert spec.parameters == parameters


def test_layers_of_a_searched_architecture() -> None:
    """Nemotron-Super: no attention where both counts are 0, a matrix in its place where only KV heads are 0."""
    stated = metadata(
        "deci", block_count=5, context_length=131072, embedding_length=8192, vocab_size=128256,
        attention__head_count=(64, 64, 0, 64, 0), attention__head_count_kv=(8, 8, 0, 0, 0),
        feed_forward_length=(14336, 28672, 5632, 2816, 0), attention__key_length=128, attention__value_length=128,
    )  # fmt: skip
    spec = spec_of(stated, tensors("output.weight"))
    assert spec.model_type == "nemotron-nas"
    assert [layer.label for layer in spec.layers] == ["GQA", "GQA", "", "linear map", ""]
    widths = [[part.intermediate for part in layer.feed_forwards] for layer in spec.layers]  # type: ignore[attr-defined]
    assert widths == [[14336], [28672], [5632], [2816], []]
    assert sum(2 * part.elements for part in spec.kept.elements()) == 2 * 2 * 8 * 128 * 2
    assert "divide" in str(refusal(stated | {"deci.attention.head_count_kv": (8, 7, 0, 0, 0)}))


def test_draft_layers_are_not_the_decoders() -> None:
    """GLM-4.5-Air: block_count 47 counts one that drafts; drafting, its cache is one layer's more."""
    stated, held, growing, _, _ = FILES["GLM-4.5-Air"]
    spec = spec_of(stated, held)
    assert (len(spec.layers), spec.mtp_layers) == (46, 1)
    drafting = replace(spec, drafting=True)
    assert sum(2 * part.elements for part in drafting.kept.elements()) == growing * 47 // 46


def test_draft_layers_by_tensors() -> None:
    """Where tensors are known, a block that joins no draft is the decoder's, and one left out is nobody's."""
    assert len(spec_of(GLM_AIR, ()).layers) == 46
    without = spec_of(GLM_AIR, blocks(46, "attn_q.weight"))
    assert (len(without.layers), without.mtp_layers) == (46, 0)
    counted_apart = spec_of(GLM_AIR, blocks(47, "attn_q.weight"))
    assert (len(counted_apart.layers), counted_apart.mtp_layers) == (47, 0)


def test_latent_attention_old_and_new() -> None:
    """Files that state MLA as MQA, and older ones that do not, are the same model, of the same class."""
    old, new = spec_of(DEEPSEEK_V3_OLD, ()), spec_of(DEEPSEEK_V3, ())
    assert old == new
    assert new.model_type == "deepseek_v3"
    absorbed = {key: value for key, value in DEEPSEEK_V3.items() if not key.endswith("_mla")}
    assert "key_length_mla" in str(refusal(absorbed))


def test_which_class_an_architecture_is() -> None:
    """Experts, windows, shared widths and gates tell classes of one architecture apart."""
    assert config_of(LLAMA, ())["model_type"] == "llama"
    assert config_of(MIXTRAL, ())["model_type"] == "mixtral"
    softmax = DEEPSEEK_V3 | {"deepseek2.expert_gating_func": 1}
    assert config_of(softmax, ())["model_type"] == "deepseek_v2"
    assert config_of(softmax, tensors("blk.3.exp_probs_b.bias"))["model_type"] == "deepseek_v3"


def test_vocabulary_of_rows_keys_or_tokens() -> None:
    """Rows of the embedding count, then the key, then the tokens."""
    keyless = {key: value for key, value in LLAMA.items() if key != "llama.vocab_size"}
    rows = (Tensor("token_embd.weight", "Q4_K", (32064, 4096)),)
    assert config_of(LLAMA, rows)["vocab_size"] == 32064
    assert config_of(LLAMA, ())["vocab_size"] == 128256
    assert config_of({**keyless, "tokenizer.ggml.tokens": ("a", "b", "c")}, ())["vocab_size"] == 3
    assert "token_embd.weight" in str(refusal(keyless))


def test_tied_where_no_output_is_stored() -> None:
    """A file without output.weight uses its embedding as the head; where no tensors are known its class decides."""
    assert spec_of(LLAMA, tensors("token_embd_norm.weight")).tied
    assert not spec_of(LLAMA, tensors("output.weight")).tied
    assert not spec_of(LLAMA, ()).tied


def test_biases_by_presence() -> None:
    """A bias that the class leaves to its config counts where its tensor is there."""
    plain, biased = (
        spec_of(LLAMA, tensors("output.weight")),
        spec_of(LLAMA, tensors("output.weight", "blk.0.attn_q.bias")),
    )
    assert biased.parameters - plain.parameters == 32 * (4096 + 2 * 1024 + 4096)


def test_stored_width_counts() -> None:
    """Granite's dense models state another width than their feed-forward has: the matrix tells."""
    held = (*tensors("output.weight"), Tensor("blk.0.ffn_down.weight", "Q6_K", (4096, 12800)))
    assert config_of(LLAMA, held)["intermediate_size"] == 12800


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"general.architecture": None}, "general.architecture is missing"),
        ({"general.architecture": 7}, "must be a name"),
        ({"general.architecture": "a\nb"}, "must be a name"),
        ({"general.type": "adapter"}, "LoRA adapter"),
        ({"general.type": "mmproj"}, "mmproj"),
        ({"general.architecture": "clip"}, "mmproj"),
        ({"general.architecture": "dream"}, "diffusion"),
        ({"general.architecture": "t5encoder"}, "encoder"),
        ({"llama.attention.causal": False}, "keeps no keys and values"),
        ({"llama.block_count": None}, "llama.block_count is missing"),
        ({"llama.block_count": 0}, "between 1 and"),
        ({"llama.block_count": 2**31}, "llama.block_count"),
        ({"llama.block_count": True}, "must be a whole number"),
        ({"llama.block_count": "32"}, "must be a whole number"),
        ({"llama.nextn_predict_layers": 32}, "less than llama.block_count"),
        ({"llama.embedding_length": None}, "llama.embedding_length is missing"),
        ({"llama.embedding_length": -1}, "must be a whole number"),
        ({"llama.attention.head_count": (32,) * 31}, "one for each of the 32 layers"),
        ({"llama.attention.head_count": ("a",) * 32}, "must be a whole number"),
        ({"llama.attention.head_count_kv": 5}, "does not divide"),
        ({"llama.feed_forward_length": None}, "llama.feed_forward_length is missing"),
        ({"llama.context_length": 1.5}, "must be a whole number"),
    ],
)
def test_broken_metadata_is_refused_in_a_line(change: dict[str, Any], said: str) -> None:
    """Keys that are missing, of another type or contradict each other are named."""
    stated = {key: value for key, value in {**LLAMA, **change}.items() if value is not None}
    assert said in str(refusal(stated))


def unknown(**facts: Any) -> tuple[dict[str, Any], tuple[Tensor, ...]]:
    """Return a small file of an architecture that is not in the table, with plain attention: 8 heads of 16, 2 for KV."""
    stated = metadata(
        "brand-new", block_count=2, context_length=4096, embedding_length=128, feed_forward_length=256,
        attention__head_count=8, attention__head_count_kv=2, vocab_size=500, **facts,
    )  # fmt: skip
    rows = {
        "attn_norm": (128,),
        "attn_q": (128, 128),
        "attn_k": (32, 128),
        "attn_v": (32, 128),
        "attn_output": (128, 128),
    }
    rows |= {"ffn_norm": (128,), "ffn_gate": (256, 128), "ffn_up": (256, 128), "ffn_down": (128, 256)}
    return stated, tuple(
        Tensor(f"blk.{n}.{part}.weight", "Q4_0", shape) for n in range(2) for part, shape in rows.items()
    )


def test_unknown_architecture_of_plain_attention_is_confirmed() -> None:
    """An architecture that is not in the table is answered where the rows of keys and values confirm it."""
    stated, held = unknown()
    spec = spec_of(stated, held, counted_in_files=True)
    assert not spec.known_class
    confirm_attention(spec, files(held))
    assert sum(2 * part.elements for part in spec.kept.elements()) == 2 * 2 * 2 * 16 * 2
    other = tuple(replace(t, shape=(64, 128)) if "attn_v" in t.name else t for t in held)
    with pytest.raises(UnknownArchitectureError, match=r"brand-new.*layer 0's v_proj.*64 rows, not 32 rows"):
        confirm_attention(spec, files(other))


def test_unknown_architecture_with_one_matrix_for_all_three() -> None:
    """Queries, keys and values in one matrix confirm by their sum."""
    stated, held = unknown()
    fused = tuple(t for t in held if not any(part in t.name for part in ("attn_q.", "attn_k.", "attn_v.")))
    fused += tuple(Tensor(f"blk.{n}.attn_qkv.weight", "Q4_0", (192, 128)) for n in range(2))
    spec = spec_of(stated, fused, counted_in_files=True)
    confirm_attention(spec, files(fused))
    wider = tuple(replace(t, shape=(256, 128)) if "attn_qkv" in t.name else t for t in fused)
    with pytest.raises(UnknownArchitectureError, match="256 rows, not 192 rows"):
        confirm_attention(spec, files(wider))


@pytest.mark.parametrize(
    "part", ["ssm_a", "shortconv.conv.weight", "time_mix_w1.weight", "attn_gate.weight", "indexer.proj.weight"]
)
def test_unknown_architecture_with_other_parts_is_refused(part: str) -> None:
    """A block that does more than attend and feed forward is named, with its architecture."""
    stated, held = unknown()
    error = refusal(stated, (*held, *tensors(f"blk.1.{part}")))
    assert isinstance(error, UnknownArchitectureError)
    assert "brand-new" in str(error)
    assert part in str(error)


def test_unknown_architecture_without_tensors_or_with_windows() -> None:
    """Without tensors nothing can be told; of a window nobody knows which layers it bounds, unless the file says so."""
    stated, held = unknown()
    assert isinstance(refusal(stated), UnknownArchitectureError)
    with pytest.raises(UnknownArchitectureError, match="which layers slide"):
        spec_of({**stated, "brand-new.attention.sliding_window": 64}, held, counted_in_files=True)
    listed = {"brand-new.attention.sliding_window": 64, "brand-new.attention.sliding_window_pattern": (True, False)}
    spec = spec_of({**stated, **listed}, held, counted_in_files=True)
    confirm_attention(spec, files(held))
    assert sorted(str(part.cap) for part in spec.kept.elements()) == ["64", "None"]


def test_rows_of_a_known_architecture_are_held_against_its_config() -> None:
    """Projections of a known class that have other rows than its metadata implies contradict it."""
    spec = spec_of(LLAMA, ())
    right = tuple(Tensor(f"blk.{n}.attn_k.weight", "Q4_K", (1024, 4096)) for n in range(32))
    assert contradiction(spec, files(right)) is None
    assert "1024 rows" in (contradiction(spec, files((replace(right[0], shape=(4096, 4096)), *right[1:]))) or "")
    beyond = contradiction(spec, files((*right, *tensors("blk.32.attn_k.weight"))))
    assert "layer 32" in (beyond or "")


def test_experts_where_the_class_cannot_have_them() -> None:
    """Experts in some layers of a class that has them in all are refused, not ignored."""
    held = tensors(*(f"blk.{n}.{SPARSE[0]}" for n in range(0, 32, 2)))
    error = refusal(MIXTRAL, held)
    assert isinstance(error, UnknownArchitectureError)
    assert "16 of 32 layers" in str(error)
    assert isinstance(refusal({**MIXTRAL, "llama.expert_used_count": 9}), MalformedModelError)


def caps(stated: dict[str, Any]) -> list[int | None]:
    """Return the bound of every layer's cache, in order of layers."""
    return [part.cap for layer in spec_of(stated, ()).layers for part in layer.state]


def windowed(arch: str, **facts: Any) -> dict[str, Any]:
    """Return metadata of eight small layers."""
    return metadata(
        arch, block_count=8, context_length=8192, embedding_length=64, feed_forward_length=96, attention__head_count=4,
        attention__head_count_kv=2, attention__key_length=16, attention__value_length=16, vocab_size=500, **facts,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("stated", "bounds"),
    [
        (windowed("gemma2"), [4096, None] * 4),  # files of June 2024 do not state it
        (windowed("gemma2", attention__sliding_window=512), [512, None] * 4),
        (windowed("gemma3", attention__sliding_window=512), [512] * 5 + [None] + [512] * 2),
        (windowed("gemma3", attention__sliding_window=512, attention__sliding_window_pattern=4), ([512] * 3 + [None]) * 2),
        (windowed("gemma3"), [None] * 8),
        (windowed("exaone4"), [None] * 8),
        (windowed("exaone4", attention__sliding_window=512), ([512] * 3 + [None]) * 2),
        (windowed("cohere2", attention__sliding_window=512), ([512] * 3 + [None]) * 2),
        (windowed("olmo2"), [None] * 8),
        (windowed("olmo2", attention__sliding_window=512, attention__sliding_window_pattern=(True, False) * 4), [512, None] * 4),
        (windowed("phi3", attention__sliding_window=0), [None] * 8),
        (windowed("phi3", attention__sliding_window=512), [512] * 8),
        (windowed("llama4", expert_count=4, expert_used_count=1, expert_feed_forward_length=96), [None] * 8),
    ],
)  # fmt: skip
def test_which_layers_slide(stated: dict[str, Any], bounds: list[int | None]) -> None:
    """Layers slide as the file lists, as its number says, or as llama.cpp's code fixes for the architecture."""
    assert caps(stated) == bounds


def test_chunks_of_llama_4() -> None:
    """Llama 4 attends in chunks of 8192 in all but every fourth layer, unless a window of 0 switches them off."""
    scout = windowed("llama4", expert_count=4, expert_used_count=1, expert_feed_forward_length=48)
    scout["llama4.context_length"] = 2**20
    assert caps(scout) == ([8192] * 3 + [None]) * 2
    assert caps({**scout, "llama4.attention.sliding_window": 0}) == [None] * 8
    alternating = {**scout, "llama4.interleave_moe_layer_step": 2}
    widths = [feed.label for layer in spec_of(alternating, ()).layers for feed in layer.feed_forwards][:2]
    assert widths == ["dense 96", "MoE 1 of 4 x 48 + shared 48"]


def test_heads_of_their_own_in_sliding_layers() -> None:
    """Step 3.5: arrays of heads that differ between sliding and full layers; its draft layer is the last block."""
    slides = (False, True, True, True)
    stated = metadata(
        "step35", block_count=5, nextn_predict_layers=1, context_length=8192, embedding_length=64, vocab_size=500,
        feed_forward_length=96, attention__head_count=(4, 6, 6, 6, 6), attention__head_count_kv=(2, 3, 3, 3, 3),
        attention__key_length=16, attention__value_length=16, attention__sliding_window=512,
        attention__sliding_window_pattern=(*slides, True), expert_count=8, expert_used_count=2,
        expert_feed_forward_length=32, expert_shared_feed_forward_length=32, leading_dense_block_count=1,
    )  # fmt: skip
    spec = spec_of(stated, ())
    assert [(part.heads, part.cap) for layer in spec.layers for part in layer.state] == [(2, None), *[(3, 512)] * 3]
    assert [layer.mixers[0].query_heads for layer in spec.layers] == [4, 6, 6, 6]
    assert [layer.feed_forwards[0].label.split()[0] for layer in spec.layers] == ["dense", "MoE", "MoE", "MoE"]
    assert spec.mtp_layers == 1
