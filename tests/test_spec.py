"""Models against parameters worked out by hand, published ones, and those that the reference implementation counts."""

from __future__ import annotations

import json
from typing import Any

import pytest

from roofcast.modelspec.errors import UnknownArchitectureError
from roofcast.modelspec.families import all_families
from roofcast.modelspec.known import find_known
from roofcast.modelspec.layers import NORMS
from roofcast.modelspec.spec import ModelSpec, build_spec
from tests.hand_counts import BY_HAND
from tests.model_configs import DEEPSEEK, LLAMA, MISSING, QWEN_MOE, changed, published
from tests.model_configs import refusal as refused


def known(name: str) -> dict[str, Any]:
    """Return the config of a catalogue entry."""
    entry = find_known(name)
    assert entry is not None, name
    return dict(entry.config)


def catalogued(name: str) -> ModelSpec:
    """Build a catalogue entry."""
    return build_spec(known(name))


# what model cards and weight files state
PUBLISHED = {
    "llama-3.1-8b": 8_030_261_248,
    "llama-2-7b": 6_738_415_616,
    "llama-3.2-1b": 1_235_814_400,
    "qwen2.5-7b": 7_615_616_512,
    "mistral-7b-v0.3": 7_248_023_552,
    "qwen3-8b": 8_190_735_360,
    "qwen-7b": 7_721_324_544,
    "mixtral-8x7b": 46_702_792_704,
    "qwen3-30b-a3b": 30_532_122_624,
    "deepseek-v3": 671_026_404_352,
    "deepseek-v2-lite": 15_706_484_224,
    "gpt2": 124_439_808,
    "gpt2-medium": 354_823_168,
    "gpt2-large": 774_030_080,
    "gpt2-xl": 1_557_611_200,
    "opt-13b": 12_853_473_280,
    "gemma-2b": 2_506_172_416,
    "phi-2": 2_779_683_840,
    "phi-3.5-mini": 3_821_079_552,
    "gpt-j-6b": 6_050_882_784,
    "gpt-neox-20b": 20_554_567_680,
    "bloom-7b1": 7_069_016_064,
    "mpt-7b": 6_649_286_656,
    "chatglm3-6b": 6_243_584_000,
}


@pytest.mark.parametrize(("name", "parameters"), BY_HAND.items())
def test_parameters_worked_out_by_hand(name: str, parameters: int) -> None:
    """The count is the sum of every tensor's shape, as the published dimensions give it."""
    assert catalogued(name).parameters == parameters


@pytest.mark.parametrize(("name", "parameters"), PUBLISHED.items())
def test_the_sums_by_hand_are_the_published_totals(name: str, parameters: int) -> None:
    """The arithmetic by hand is right: it gives what model cards and weight files state."""
    assert BY_HAND[name] == parameters


# Total less the experts that do not work on a token: layers x (E - k) x 3 h i.
ACTIVE = {
    "llama-3.1-8b": 8_030_261_248,
    "mixtral-8x7b": 46_702_792_704 - 32 * (8 - 2) * 3 * 4096 * 14336,  # 12.9B
    "qwen3-30b-a3b": 30_532_122_624 - 48 * (128 - 8) * 3 * 2048 * 768,  # 3.3B
    "deepseek-v3": 671_026_404_352 - 58 * (256 - 8) * 3 * 7168 * 2048,  # 37B
    "deepseek-v2-lite": 15_706_484_224 - 26 * (64 - 6) * 3 * 2048 * 1408,  # 2.4B beside embeddings
}


@pytest.mark.parametrize(("name", "parameters"), ACTIVE.items())
def test_active_parameters(name: str, parameters: int) -> None:
    """Of E routed experts k work on a token; everything else works on all."""
    assert catalogued(name).active_parameters == parameters


@pytest.mark.parametrize(
    ("name", "billions"), [("mixtral-8x7b", 12.9), ("deepseek-v3", 37.6), ("qwen3-30b-a3b", 3.35), ("minimax-m2", 11.0)]
)
def test_active_parameters_are_what_people_say(name: str, billions: float) -> None:
    """47B-A13B, 671B-A37B, 30B-A3B, 230B-A10B."""
    assert catalogued(name).active_parameters / 1e9 == pytest.approx(billions, abs=0.06)


def test_non_embedding_parameters() -> None:
    """Llama-3.1-8B less its two tables of 128256 x 4096 is 6.98B; DeepSeek-V3 counts active ones."""
    assert catalogued("llama-3.1-8b").non_embedding_parameters == 8_030_261_248 - 2 * 128256 * 4096 == 6_979_588_096
    assert catalogued("gpt2").non_embedding_parameters == 124_439_808 - (50257 + 1024) * 768
    assert catalogued("deepseek-v3").non_embedding_parameters == ACTIVE["deepseek-v3"] - 2 * 129280 * 7168


def test_v2_lite_with_and_without_its_null() -> None:
    """q_lora_rank null is a plain projection, as published; where the key is absent the class takes 1536."""
    config = published("deepseek-ai/DeepSeek-V2-Lite")
    latent = 2048 * 1536 + 1536 + 1536 * 16 * 192
    assert "q_lora_rank" not in config

    assert build_spec({**config, "q_lora_rank": None}).parameters == 15_706_484_224
    assert build_spec(config).parameters == 15_706_484_224 + 27 * (latent - 2048 * 16 * 192) == 15_748_993_024


@pytest.mark.parametrize(
    ("name", "label", "layers", "heads", "kib"),
    [
        ("llama-3.1-8b", "GQA", 32, (32, 8), 128.0),
        ("llama-2-7b", "MHA", 32, (32, 32), 512.0),
        ("qwen2.5-7b", "GQA", 28, (28, 4), 56.0),
        ("mistral-7b-v0.3", "GQA", 32, (32, 8), 128.0),
        ("deepseek-v3", "MLA", 61, (128, 128), 68.625),
        ("opt-13b", "MHA", 40, (40, 40), 800.0),
        ("deepseek-llm-67b", "GQA", 95, (64, 8), 380.0),
        ("falcon-7b", "MQA", 32, (71, 1), 8.0),
        ("falcon-40b", "GQA", 60, (128, 8), 120.0),
    ],
)
def test_cache_of_a_token(name: str, label: str, layers: int, heads: tuple[int, int], kib: float) -> None:
    """KiB a token in 16 bits, over all layers."""
    spec = catalogued(name)
    elements = sum(part.elements * count for part, count in spec.kept.items())
    first = spec.layers[0].mixers[0]

    assert spec.attention_label == label
    assert len(spec.layers) == layers
    assert (first.query_heads, first.published_kv_heads) == heads
    assert elements * 2 / 1024 == kib


def test_latent_against_grouped_cache_of_whole_models() -> None:
    """DeepSeek-V2 keeps 82 % less a token than DeepSeek 67B at equal precision."""
    models = [catalogued(name) for name in ("deepseek-v2", "deepseek-llm-67b")]
    sizes = [sum(part.elements * count for part, count in spec.kept.items()) for spec in models]

    assert sizes == [60 * 576, 95 * 2048]
    assert round(100 * (1 - sizes[0] / sizes[1])) == 82


def test_components_by_hand() -> None:
    """Llama-3.1-8B and DeepSeek-V3, part by part."""
    assert catalogued("llama-3.1-8b").components == {
        "embedding": 128256 * 4096,
        "attention": 32 * 41_943_040,
        "feed_forward": 32 * 176_160_768,
        "experts": 0,
        "norms": 65 * 4096,
        "head": 128256 * 4096,
    }
    assert catalogued("deepseek-v3").components == {
        "embedding": 129280 * 7168,
        "attention": 61 * 187_107_328,
        "feed_forward": 3 * 3 * 7168 * 18432 + 58 * (3 * 7168 * 2048 + 256 * 7168),
        "experts": 58 * 256 * 3 * 7168 * 2048,
        "norms": 123 * 7168,
        "head": 129280 * 7168,
    }


def test_a_tied_head_is_counted_once() -> None:
    """GPT-2's head is its embedding; a bias of a tied head still counts."""
    assert catalogued("gpt2").components["head"] == 0
    assert build_spec({**LLAMA, "tie_word_embeddings": True}).components["head"] == 0
    assert build_spec({**LLAMA, "model_type": "phi", "tie_word_embeddings": True}).components["head"] == 500


def test_norms_outside_the_layers() -> None:
    """One after the last layer, one after BLOOM's embedding, none in OPT-350m, no weights in OLMo."""
    small = {**LLAMA, "num_key_value_heads": None}
    layers = 4 * 2
    assert build_spec(small).components["norms"] == (layers + 1) * 64
    assert build_spec({**small, "model_type": "bloom"}).components["norms"] == (layers + 2) * 128
    opt = {**small, "model_type": "opt", "ffn_dim": 96}
    assert build_spec(opt).components["norms"] == (layers + 1) * 128
    assert build_spec({**opt, "do_layer_norm_before": False}).components["norms"] == layers * 128
    assert build_spec({**small, "model_type": "olmo"}).components["norms"] == 0


@pytest.mark.parametrize(
    ("changes", "norms"),
    [
        ({}, 1),  # parallel_attn is the class's default
        ({"parallel_attn": False}, 2),
        ({"new_decoder_architecture": True, "num_kv_heads": 2}, 2),
        ({"new_decoder_architecture": True, "num_kv_heads": 2, "num_ln_in_parallel_attn": 1}, 1),
    ],
)
def test_norms_of_falcon(changes: dict[str, Any], norms: int) -> None:
    """7B has one norm in a layer, RW-1B two, 40B two, 11B one."""
    falcon = {"model_type": "falcon", "hidden_size": 64, "num_hidden_layers": 4, "num_attention_heads": 8}

    assert build_spec({**falcon, "vocab_size": 500, **changes}).layers[0].norm_parameters == norms * 128


def test_embeddings_of_another_width_are_not_understood() -> None:
    """OPT-350m embeds in 512 and works in 1024."""
    opt = {**LLAMA, "model_type": "opt", "ffn_dim": 96}
    error = refused({**opt, "word_embed_proj_dim": 32})

    assert isinstance(error, UnknownArchitectureError)
    assert "word_embed_proj_dim" in str(error)
    assert build_spec({**opt, "word_embed_proj_dim": 64}).parameters == build_spec(opt).parameters


def test_multi_token_prediction_is_said_and_not_counted() -> None:
    """Modules times the layers of each, beyond the decoder's."""
    base = build_spec(DEEPSEEK)
    with_mtp = build_spec({**DEEPSEEK, "num_nextn_predict_layers": 1})

    assert (base.mtp_layers, with_mtp.mtp_layers) == (0, 1)
    assert with_mtp.parameters == base.parameters
    assert catalogued("deepseek-v3").mtp_layers == 1
    assert build_spec(published("MiniMaxAI/MiniMax-M2")).mtp_layers == 3 * 1
    assert build_spec({**LLAMA, "num_mtp_modules": 3, "mtp_transformer_layers": 2}).mtp_layers == 6
    assert build_spec({**LLAMA, "mtp_transformer_layers": 2}).mtp_layers == 0


@pytest.mark.parametrize(
    ("block", "method"),
    [
        ({"quant_method": "fp8", "fmt": "e4m3"}, "fp8"),
        ({"quant_algo": "NVFP4"}, "NVFP4"),
        ({"quant_method": None, "bits": 4}, "unnamed"),
        ({}, None),
        (None, None),
    ],
)
def test_quantization_is_named(block: object, method: str | None) -> None:
    """The method under either key; a block without a name is still a quantisation."""
    assert build_spec({**LLAMA, "quantization_config": block}).quantization == method


def test_context_is_what_the_config_allows_or_unknown() -> None:
    """The largest position, null where the file does not say."""
    assert build_spec(LLAMA).max_context == 128
    assert build_spec(changed(LLAMA, max_position_embeddings=MISSING)).max_context is None
    assert catalogued("llama-3.1-8b").max_context == 131_072


def test_an_unknown_class_is_marked() -> None:
    """With headers at hand a class outside the table is built, and says that its count is not exact."""
    spec = build_spec({**LLAMA, "model_type": "brand_new"}, counted_in_files=True)

    assert not spec.known_class
    assert spec.model_type == "brand_new"
    assert build_spec(LLAMA, counted_in_files=True).known_class


def test_every_family_uses_a_norm_of_the_table() -> None:
    """A class's norm is one whose parameters are known."""
    assert {family.norm for family in all_families().values()} <= set(NORMS)


def test_key_order_does_not_matter() -> None:
    """A config is a set of facts."""
    for config in (LLAMA, QWEN_MOE, DEEPSEEK):
        assert build_spec(dict(reversed(config.items()))) == build_spec(config)


def test_a_config_is_not_changed() -> None:
    """Building reads the file's keys and leaves them as they are."""
    config = {**DEEPSEEK, "mlp_only_layers": None}
    before = json.dumps(config)
    build_spec(config)

    assert json.dumps(config) == before
