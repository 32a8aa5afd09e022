"""Decoders that attend to an encoder or an image: T5, Whisper, BART, Mllama, and counts against the reference."""

from __future__ import annotations

import json
from typing import Any

import pytest

from roofcast.modelspec.cross import CrossAttention
from roofcast.modelspec.errors import MalformedModelError, UndeterminedModelError, UnknownArchitectureError
from roofcast.modelspec.spec import ModelSpec, build_spec
from roofcast.modelspec.state import FP32, fixed, per_token
from tests.model_configs import FIXTURES

REFERENCE = json.loads((FIXTURES / "reference_text_unusual.json").read_text())
MEASURED = [model for model in REFERENCE["models"] if "self_bytes" in model]
T5: dict[str, Any] = {
    "model_type": "t5", "vocab_size": 320, "d_model": 512, "d_kv": 64, "d_ff": 64, "num_layers": 1, "num_heads": 8,
    "is_encoder_decoder": True, "relative_attention_num_buckets": 32, "n_positions": 512,
}  # fmt: skip
WHISPER_TINY: dict[str, Any] = {
    "model_type": "whisper", "vocab_size": 51865, "d_model": 384, "encoder_layers": 4, "decoder_layers": 4,
    "encoder_attention_heads": 6, "decoder_attention_heads": 6, "encoder_ffn_dim": 1536, "decoder_ffn_dim": 1536,
    "max_source_positions": 1500, "max_target_positions": 448, "num_hidden_layers": 4, "is_encoder_decoder": True,
}  # fmt: skip
BART_LARGE: dict[str, Any] = {
    "model_type": "bart", "vocab_size": 50265, "d_model": 1024, "encoder_layers": 12, "decoder_layers": 12,
    "encoder_attention_heads": 16, "decoder_attention_heads": 16, "encoder_ffn_dim": 4096, "decoder_ffn_dim": 4096,
    "max_position_embeddings": 1024,
}  # fmt: skip
# the text model of Llama 3.2 11B Vision
MLLAMA: dict[str, Any] = {
    "model_type": "mllama_text_model", "vocab_size": 128256, "hidden_size": 4096, "num_hidden_layers": 40,
    "num_attention_heads": 32, "num_key_value_heads": 8, "intermediate_size": 14336,
    "cross_attention_layers": [3, 8, 13, 18, 23, 28, 33, 38],
}  # fmt: skip


def state_bytes(spec: ModelSpec, *, crossing: bool, tokens: int = 40) -> int:
    """Return bytes of bf16 state, of cross attention or of all else; a full window holds one entry fewer.

    The reference drops the entry that a window's next token would not see, and real ones keep it.
    """
    total = 0
    for layer in spec.layers:
        for mixer in layer.mixers:
            for part in mixer.state:
                assert part.format != FP32
                entries = part.entries(tokens) - (part.cap is not None and part.cap <= tokens)
                total += 2 * part.elements * entries * (isinstance(mixer, CrossAttention) == crossing)
    return total


@pytest.mark.parametrize("index", range(len(REFERENCE["models"])))
def test_unusual_text_models_match_the_reference_implementation(index: int) -> None:
    """Gemma 3n and 4, Mllama and encoder-decoders of random sizes have the reference's parameters to the last one."""
    model = REFERENCE["models"][index]

    assert build_spec(model["config"]).parameters == model["parameters"]


@pytest.mark.parametrize("index", range(len(MEASURED)))
def test_unusual_text_models_keep_what_the_reference_measures(index: int) -> None:
    """Their state is the reference's cache, byte by byte: of the decoder's own tokens, and of the other side's."""
    model = MEASURED[index]
    spec = build_spec(model["config"], encoder_tokens=model.get("encoder_tokens"))

    assert state_bytes(spec, crossing=False, tokens=REFERENCE["tokens"]) == model["self_bytes"]
    assert state_bytes(spec, crossing=True, tokens=REFERENCE["tokens"]) == model["cross_bytes"]


def test_t5_keeps_its_own_tokens_and_the_encoders() -> None:
    """A layer of 8 heads of 64: 2 * 8 * 64 elements a decoded token, and as many once for each encoder token."""
    spec = build_spec(T5, encoder_tokens=24)

    assert dict(spec.kept) == {per_token(8, 128): 1, fixed(8, 24 * 128, "cache"): 1}
    assert state_bytes(spec, crossing=False, tokens=1) == 2048
    assert state_bytes(spec, crossing=True) == 49_152


def test_t5_by_hand() -> None:
    """A decoder layer has two attentions, a feed-forward and three norms; one table of biases, one of tokens."""
    spec = build_spec(T5)
    layer = 2 * (4 * 512 * 512) + 2 * 512 * 64 + 3 * 512

    assert spec.decoder_parameters == layer + 32 * 8 + 512 + 320 * 512
    assert [tower.name for tower in spec.towers] == ["encoder"]


def test_t5_without_encoder_tokens_counts_but_keeps_an_unknown_state() -> None:
    """No key bounds T5's input: parameters are there, and its state asks for --encoder-tokens."""
    spec = build_spec(T5)

    assert spec.parameters == build_spec(T5, encoder_tokens=24).parameters
    with pytest.raises(UndeterminedModelError, match="give --encoder-tokens N") as error:
        _ = spec.kept
    assert "\n" not in str(error.value)


def test_t5_decoder_layers_may_differ_from_the_encoders() -> None:
    """num_decoder_layers counts the decoder; absent or null, there are as many as the encoder has."""
    assert len(build_spec({**T5, "num_decoder_layers": 3}).layers) == 3
    assert len(build_spec({**T5, "num_layers": 2, "num_decoder_layers": None}).layers) == 2


def test_t5_gate_is_in_the_activations_name() -> None:
    """`gated-gelu` adds one projection of d_model * d_ff to every layer, of the encoder too."""
    gated = build_spec({**T5, "feed_forward_proj": "gated-gelu"})

    assert gated.parameters - build_spec(T5).parameters == 2 * 512 * 64


@pytest.mark.parametrize("name", ["wide-gelu", "gated-", "gated-a-b", "", 3, None])
def test_t5_activation_that_is_none_is_malformed(name: object) -> None:
    """An activation is a name, or `gated-` and one."""
    with pytest.raises(MalformedModelError, match="feed_forward_proj"):
        build_spec({**T5, "feed_forward_proj": name})


def test_t5_ties_whatever_the_file_says() -> None:
    """Its class overrules tie_word_embeddings; that files may hold a head all the same is an assumption, named."""
    spec = build_spec({**T5, "tie_word_embeddings": False})

    assert spec.parameters == build_spec(T5).parameters
    assert ["163,840" in line for line in spec.warnings] == [True]
    assert build_spec(T5).assumptions == ()


def test_t5_has_an_encoder_whatever_the_file_says() -> None:
    """is_encoder_decoder false, or left out, does not make T5 a decoder alone."""
    assert build_spec({**T5, "is_encoder_decoder": False}).parameters == build_spec(T5).parameters


def test_umt5_has_biases_in_every_layer() -> None:
    """UMT5 has a table of biases in each layer of both sides, where mT5 has one a side."""
    one, each = ({**T5, "model_type": name, "num_layers": 3} for name in ("mt5", "umt5"))

    assert build_spec(each).parameters - build_spec(one).parameters == 2 * 2 * 32 * 8


def test_whisper_encodes_as_many_tokens_as_it_has_positions() -> None:
    """Whisper-tiny: 1,536 B a token and layer, and 1,500 such entries of the encoder from the first token on."""
    spec = build_spec(WHISPER_TINY)

    assert spec.parameters == 37_760_640
    assert spec.max_context == 448
    assert state_bytes(spec, crossing=False, tokens=1) == 4 * 1536
    assert state_bytes(spec, crossing=True) == 4 * 1500 * 1536


def test_whisper_layers_are_the_decoders() -> None:
    """num_hidden_layers, which whisper files carry, counts the encoder: distilled models have fewer decoder layers."""
    assert len(build_spec({**WHISPER_TINY, "decoder_layers": 2}).layers) == 2


def test_whisper_keys_have_no_bias() -> None:
    """Queries, values and outputs have biases and keys have none: 3 h beside 4 h^2, in both attentions."""
    mixers = build_spec(WHISPER_TINY).layers[0].mixers

    assert [mixer.parameters(384) for mixer in mixers] == [4 * 384 * 384 + 3 * 384] * 2


def test_more_encoder_tokens_than_positions_is_an_error() -> None:
    """Whisper has 1,500 positions for its encoder; fewer tokens are fine, and more cannot be."""
    assert state_bytes(build_spec(WHISPER_TINY, encoder_tokens=10), crossing=True) == 4 * 10 * 1536
    with pytest.raises(MalformedModelError, match="1501 encoder tokens are more than max_source_positions, 1500"):
        build_spec(WHISPER_TINY, encoder_tokens=1501)


def test_bart_large_and_its_untied_twin() -> None:
    """BART-large has 406,291,456 parameters; untied, it has an embedding for each side and a head of their own."""
    untied = build_spec({**BART_LARGE, "tie_word_embeddings": False})

    assert build_spec(BART_LARGE).parameters == 406_291_456
    assert untied.parameters == 406_291_456 + 3 * 50265 * 1024


def test_mllama_text_prompts_keep_nothing_in_cross_layers() -> None:
    """Of 40 layers 32 keep 8 heads of 128, keys and values, a token; the 8 that attend to images keep nothing."""
    spec = build_spec(MLLAMA)

    assert dict(spec.kept) == {per_token(8, 256): 32}
    assert [layer for layer, one in enumerate(spec.layers) if one.label == "cross"] == MLLAMA["cross_attention_layers"]


def test_mllama_images_are_kept_once() -> None:
    """An image of one tile is 1,601 tokens, whose keys and values 8 layers keep from the first token on."""
    spec = build_spec(MLLAMA, encoder_tokens=1601)

    assert dict(spec.kept) == {per_token(8, 256): 32, fixed(8, 1601 * 256, "cache"): 8}


def test_mllama_by_hand() -> None:
    """Cross layers have norms of queries and keys, and two gates; the embedding has 8 rows more than the head."""
    projections, feeding, norms = 2 * 4096 * 4096 + 2 * 4096 * 1024, 3 * 4096 * 14336, 2 * 4096
    cross, tables = 2 * 128 + 2, (128256 + 8) * 4096 + 128256 * 4096

    spec = build_spec(MLLAMA)

    assert spec.parameters == 40 * (projections + feeding + norms) + 8 * cross + 4096 + tables == 9_775_192_080
    assert build_spec({**MLLAMA, "tie_word_embeddings": True}).parameters == spec.parameters


def test_mllama_without_a_list_has_the_classs_cross_layers() -> None:
    """cross_attention_layers absent or null is the class's own list; an empty one is no such layers."""
    absent = {key: value for key, value in MLLAMA.items() if key != "cross_attention_layers"}

    assert build_spec(absent).layers == build_spec(MLLAMA).layers
    assert build_spec({**MLLAMA, "cross_attention_layers": None}).layers == build_spec(MLLAMA).layers
    assert dict(build_spec({**MLLAMA, "cross_attention_layers": []}).kept) == {per_token(8, 256): 40}


@pytest.mark.parametrize("name", ["T5EncoderModel", "T5ForSequenceClassification", "T5ForQuestionAnswering"])
def test_half_a_model_or_another_head_is_refused(name: str) -> None:
    """Files of an encoder alone, or with another head, hold another number of parameters: no answer is better."""
    with pytest.raises(UnknownArchitectureError, match=name):
        build_spec({**T5, "architectures": [name]})


@pytest.mark.parametrize("name", ["T5ForConditionalGeneration", "T5WithLMHeadModel", "T5Model"])
def test_the_whole_model_is_counted(name: str) -> None:
    """The whole encoder-decoder, under any of its names, is counted."""
    assert build_spec({**T5, "architectures": [name]}).parameters == build_spec(T5).parameters


def test_cross_attention_work_grows_with_both_sides() -> None:
    """Scores and values of n decoded tokens over E encoder tokens: 2 n E n_q (d_k + d_v) FLOP."""
    cross = build_spec(T5, encoder_tokens=24).layers[0].mixers[1]

    assert cross.prefill_flops(10) == 2 * 10 * 24 * 8 * 128
