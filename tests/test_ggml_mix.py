"""Tensor mixes of llama-quantize: against published sizes, the rules' edges, and what is refused."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

import pytest

from roofcast.modelspec.errors import UndeterminedModelError
from roofcast.modelspec.formats import FORMATS, UnknownFormatError
from roofcast.modelspec.ggml_mix import MIXES, find_mix, mix_bytes, mix_of
from roofcast.modelspec.ggml_names import gguf_tensors
from roofcast.modelspec.ggml_rules import Case, type_by_rule
from roofcast.modelspec.matrix import inventory
from roofcast.modelspec.spec import ModelSpec, build_spec
from tests.model_configs import LLAMA, is_one_line, published


def llama(hidden: int, layers: int, heads: int, kv_heads: int, wide: int, **other: Any) -> dict[str, Any]:
    """Return the config of a Llama with an untied head."""
    return {
        "model_type": "llama",
        "hidden_size": hidden,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "intermediate_size": wide,
        "vocab_size": 32000,
        "max_position_embeddings": 4096,
        "tie_word_embeddings": False,
        **other,
    }


LLAMA_2_7B: Final = llama(4096, 32, 32, 32, 11008)
LLAMA_2_70B: Final = llama(8192, 80, 64, 8, 28672)
LLAMA_3_70B: Final = llama(8192, 80, 64, 8, 28672, vocab_size=128256)
QWEN_2_5_05B: Final = llama(
    896, 24, 14, 2, 4864, vocab_size=151936, tie_word_embeddings=True, model_type="qwen2", sliding_window=None
)
MIXTRAL_8X22B: Final = llama(6144, 56, 48, 8, 16384, model_type="mixtral", num_local_experts=8, num_experts_per_tok=2)

# Bits a weight of Llama-3.1-8B's tensors, as llama-bench prints them. Source: llama.cpp, tools/quantize/README.md, 2025
# (table "meta-llama/Llama-3.1-8B"); mixes that need no importance matrix were made without.
BITS: Final = {
    "iq1_s": 2.0042,
    "iq1_m": 2.1460,
    "iq2_xxs": 2.3824,
    "iq2_xs": 2.5882,
    "iq2_s": 2.7403,
    "iq2_m": 2.9294,
    "iq3_xxs": 3.2548,
    "iq3_xs": 3.4977,
    "iq3_s": 3.6606,
    "iq3_m": 3.7628,
    "iq4_xs": 4.4597,
    "iq4_nl": 4.6818,
    "q2_k_s": 2.9697,
    "q2_k": 3.1593,
    "q3_k_s": 3.6429,
    "q3_k_l": 4.2979,
    "q4_k_s": 4.6672,
    "q4_k_m": 4.8944,
    "q5_k_s": 5.5704,
    "q5_k_m": 5.7036,
    "q6_k": 6.5633,
    "q8_0": 8.5008,
    "f16": 16.0005,
}

# Files as their model cards list them, in GB: (config or fixture, with an importance matrix, sizes). A file is its
# tensors and under 10 MB of metadata, most of it the tokenizer's.
# Sources: TheBloke/Llama-2-7B-GGUF, -13B, -70B; bartowski/Llama-3.1-70B and 8B-Instruct-GGUF, Mixtral-8x22B-v0.1-GGUF,
# gemma-2-9b-it-GGUF, Llama-3.2-1B-Instruct-GGUF; Qwen/Qwen2.5-7B-Instruct-GGUF; bartowski/Qwen2.5-0.5B-Instruct-GGUF.
FILES: Final[dict[str, tuple[dict[str, Any] | str, bool, dict[str, float]]]] = {
    "Llama-2-7B": (
        LLAMA_2_7B,
        False,
        {
            "q3_k_s": 2.95,
            "q3_k_m": 3.30,
            "q3_k_l": 3.60,
            "q4_0": 3.83,
            "q4_k_s": 3.86,
            "q4_k_m": 4.08,
            "q5_0": 4.65,
            "q5_k_s": 4.65,
            "q5_k_m": 4.78,
            "q6_k": 5.53,
            "q8_0": 7.16,
            "f16": 13.48,
        },
    ),
    "Llama-2-13B": (llama(5120, 40, 40, 40, 13824), False, {"q4_k_m": 7.87, "q5_k_m": 9.23}),
    "Llama-2-70B": (LLAMA_2_70B, False, {"q4_k_m": 41.42, "q5_k_m": 48.75}),
    "Llama-3.1-8B": (
        "meta-llama/Meta-Llama-3.1-8B",
        True,
        {
            "q2_k": 3.18,
            "q3_k_s": 3.66,
            "q3_k_m": 4.02,
            "q3_k_l": 4.32,
            "iq4_xs": 4.45,
            "q4_k_s": 4.69,
            "q4_k_m": 4.92,
            "q5_k_s": 5.60,
            "q5_k_m": 5.73,
            "q6_k": 6.60,
            "q8_0": 8.54,
        },
    ),
    "Llama-3.1-70B": (
        LLAMA_3_70B,
        True,
        {
            "q3_k_s": 30.91,
            "iq3_m": 31.94,
            "q3_k_m": 34.27,
            "q3_k_l": 37.14,
            "iq4_xs": 37.90,
            "q4_0": 40.12,  # with the matrix, the first ffn_down are Q4_1
            "q4_k_s": 40.35,
            "q4_k_m": 42.52,
            "q5_k_s": 48.66,
            "q5_k_m": 49.95,
            "q6_k": 57.89,
            "q8_0": 74.98,
        },
    ),
    "Qwen2.5-7B": ("Qwen/Qwen2.5-7B-Instruct", False, {"q4_k_m": 4.68, "q8_0": 8.10}),
    "Qwen2.5-0.5B": (QWEN_2_5_05B, False, {"q4_k_m": 0.398}),  # 256 does not divide rows of 896
    "Gemma-2-9B": ("google/gemma-2-9b-it", False, {"q4_k_m": 5.76}),
    "Llama-3.2-1B": ("meta-llama/Llama-3.2-1B", False, {"q4_k_m": 0.808}),
    "gpt-oss-20b": ("openai/gpt-oss-20b", False, {"mxfp4_moe": 12.11}),
}
SIZES: Final = [(name, mix, size) for name, (_, _, sizes) in FILES.items() for mix, size in sizes.items()]
METADATA: Final = 0.016  # at most 10 MB, and two decimals, some cut off and not rounded [GB]
ROUNDED: Final = 0.006


def spec_of(model: dict[str, Any] | str) -> ModelSpec:
    """Return the model of a config, or of a fixture by its repo."""
    return build_spec(published(model) if isinstance(model, str) else model)


def gigabytes(model: dict[str, Any] | str, mix: str, *, imatrix: bool | None = None) -> float:
    """Return the tensors of a file. [GB]"""
    return mix_bytes(spec_of(model), mix, imatrix=imatrix).total / 1e9


def types_of(model: dict[str, Any] | str, mix: str) -> dict[str, int]:
    """Return parameters by ggml type."""
    return dict(mix_bytes(spec_of(model), mix).elements)


@pytest.mark.parametrize(("mix", "bits"), BITS.items())
def test_bits_a_weight_are_those_that_llama_cpp_prints(mix: str, bits: float) -> None:
    """Every mix of Llama-3.1-8B has the published bits a weight to the fourth decimal."""
    spec = spec_of("meta-llama/Meta-Llama-3.1-8B")
    imatrix = False if mix.startswith("iq4") else None  # those of the table were made without one

    assert bits == round(8 * mix_bytes(spec, mix, imatrix=imatrix).total / spec.parameters, 4)


@pytest.mark.parametrize(("name", "mix", "size"), SIZES)
def test_tensors_are_a_published_file_without_its_metadata(name: str, mix: str, size: float) -> None:
    """A published file is at most the tensors and 10 MB."""
    model, imatrix, _ = FILES[name]

    assert -ROUNDED < size - gigabytes(model, mix, imatrix=imatrix) < METADATA


@pytest.mark.parametrize(
    ("mix", "size"),
    {
        "q5_k_m": 99.96,
        "q5_k_s": 96.97,
        "q4_k_m": 85.58,
        "q4_k_s": 80.47,
        "iq4_nl": 80.47,
        "iq4_xs": 76.35,
        "q3_k_l": 72.57,
        "q3_k_m": 67.78,
        "iq3_m": 64.49,
        "iq3_s": 61.49,
        "iq3_xs": 58.22,
        "q2_k": 52.10,
    }.items(),
)
def test_eight_experts(mix: str, size: float) -> None:
    """Mixtral-8x22B follows the rules of eight experts; its files (b2636) have the router in F16, 5.5 MB less."""
    assert size == pytest.approx(gigabytes(MIXTRAL_8X22B, mix, imatrix=False), rel=3e-4)


@pytest.mark.parametrize(
    ("mix", "size"), {"q8_0": 713.29, "q5_k_m": 475.40, "q5_k_s": 461.81, "q4_1": 419.94, "q4_k_m": 404.43}.items()
)
def test_many_experts_and_a_latent(mix: str, size: float) -> None:
    """DeepSeek-V3-0324 as bartowski lists it (b4944), whose files have kv_b whole: 0.03 % at most between them."""
    assert size == pytest.approx(gigabytes("deepseek-ai/DeepSeek-V3", mix), rel=3e-4)


def test_older_files_of_two_bits_follow_older_rules() -> None:
    """TheBloke's Q2_K of 2023, 2.83 GB and 29.28 GB, has Q4_K in attn_v and ffn_down, where Q3_K stands since 2024."""
    assert gigabytes(LLAMA_2_7B, "q2_k") == pytest.approx(2.53, abs=0.005)
    assert gigabytes(LLAMA_2_70B, "q2_k") == pytest.approx(25.46, abs=0.005)


def test_older_files_of_experts_one_by_one_follow_older_rules() -> None:
    """TheBloke's Mixtral of 2023, 26.44 GB, has no ffn_down raised to Q6_K, and attn_output in Q4_K.

    16 of 32 ffn_down of 8 x 4096 x 14336 fall from 210 to 144 bytes a 256, and 32 attn_output of 4096^2 from 176.
    """
    raised = 16 * 8 * 4096 * 14336 / 256 * (210 - 144) + 32 * 4096**2 / 256 * (176 - 144)

    assert gigabytes("mistralai/Mixtral-8x7B-v0.1", "q4_k_m") - raised / 1e9 == pytest.approx(26.44, abs=0.01)


def test_fused_queries_keys_and_values_follow_the_rules_of_values() -> None:
    """Phi-3's published 2.39 GB is from when attn_qkv was Q5_K in all layers: 3.3 MB less than half Q6_K, half Q4_K."""
    spec = spec_of("microsoft/Phi-3.5-mini-instruct")
    fused = 3072 * 9216
    types = mix_bytes(spec, "q4_k_m").elements

    assert gigabytes("microsoft/Phi-3.5-mini-instruct", "q4_k_m") == pytest.approx(2.3930 + 0.0033, abs=0.001)
    assert types["Q6_K"] == 16 * fused + 16 * 3072 * 8192 + 32064 * 3072


def test_every_parameter_has_a_type() -> None:
    """Elements by type add up to the parameters, in every mix."""
    spec = spec_of("meta-llama/Meta-Llama-3.1-8B")

    assert {spec.parameters} == {sum(mix_bytes(spec, mix).elements.values()) for mix in MIXES}


def test_components_are_those_of_the_model() -> None:
    """Bytes stand under the names that parameters stand under, and the head is Q6_K in q4_0."""
    spec = spec_of(LLAMA_2_7B)
    components = mix_bytes(spec, "Q4_0").components

    assert list(spec.components) == list(components)
    assert components["head"] == 32000 * 4096 * 210 // 256
    assert components["embedding"] == 32000 * 4096 * 18 // 32
    assert components["norms"] == 65 * 4096 * 4


def test_a_tied_embedding_has_the_type_of_the_head() -> None:
    """Where one tensor is both, it is what the head would be."""
    tied = mix_bytes(spec_of({**LLAMA_2_7B, "tie_word_embeddings": True}), "q4_0").components

    assert tied["embedding"] == 32000 * 4096 * 210 // 256


def test_rows_that_a_block_does_not_divide_fall_back() -> None:
    """Of rows of 896, Q4_K becomes Q5_0 and Q6_K Q8_0, ffn_down of rows of 4864 stays."""
    types = types_of(QWEN_2_5_05B, "q4_k_m")

    assert {"F32", "Q4_K", "Q5_0", "Q6_K", "Q8_0"} == types.keys()
    assert types["Q4_K"] + types["Q6_K"] == 24 * 896 * 4864


def test_rows_that_no_block_divides_stay_in_sixteen_bit() -> None:
    """Of rows of 80, which ffn_down has here, neither 256 nor 32 divides."""
    types = mix_bytes(build_spec({**LLAMA, "intermediate_size": 80}), "q4_k_s").elements

    assert types["F16"] == 4 * 64 * 80


def test_rows_that_a_small_block_does_not_divide_are_refused() -> None:
    """llama-quantize has no fallback for types of 32, so neither has this."""
    spec = build_spec({**LLAMA, "hidden_size": 48, "num_attention_heads": 8, "intermediate_size": 96})

    with pytest.raises(UndeterminedModelError, match=r"q8_0 of .* rows of 48 .* Q8_0, 32 elements") as caught:
        mix_bytes(spec, "q8_0")
    assert is_one_line(str(caught.value))


def test_what_expands_a_latent_is_a_tensor_for_keys_and_one_for_values() -> None:
    """kv_b of DeepSeek-V3 is split: 128 heads of 512 x 128 for keys and of 128 x 512 for values."""
    spec = spec_of("deepseek-ai/DeepSeek-V3")
    first = {tensor.name: tensor for tensor in gguf_tensors(spec, inventory(spec)) if tensor.layer == 0}
    keys, values = first["attn_k_b"], first["attn_v_b"]

    assert (keys.rows, keys.columns, keys.count) == (512, 128, 128)
    assert (values.rows, values.columns, values.count) == (128, 512, 128)
    assert "attn_kv_b" not in first


def test_a_class_of_the_latent_may_keep_it_whole() -> None:
    """MiniCPM3's files have attn_kv_b."""
    spec = spec_of("openbmb/MiniCPM3-4B")

    assert "attn_kv_b" in {tensor.name for tensor in gguf_tensors(spec, inventory(spec))}


def test_experts_alone_are_mxfp4() -> None:
    """In mxfp4_moe all other matrices are Q8_0, routers and norms F32."""
    spec = spec_of("openai/gpt-oss-20b")
    types = mix_bytes(spec, "mxfp4_moe").elements

    assert {"F32", "MXFP4", "Q8_0"} == types.keys()
    assert types["MXFP4"] == 24 * 32 * 3 * 2880 * 2880


def test_falcon_has_rules_of_its_own() -> None:
    """Its head is Q8_0, and its ffn_down Q6_K in the first sixteenth alone."""
    falcon = Case(index=3, count=60, falcon=True)

    assert type_by_rule("q4_k_m", "Q4_K", "output", falcon) == "Q8_0"
    assert type_by_rule("q4_k_m", "Q4_K", "down", Case(index=2, count=60, falcon=True)) == "Q6_K"
    assert type_by_rule("q4_k_m", "Q4_K", "down", falcon) == "Q5_K"


def test_values_of_what_llama_cpp_calls_70b_are_raised() -> None:
    """80 layers whose heads share keys have Q5_K where others have Q4_K; without sharing they are a 65B."""
    shared, own = types_of(LLAMA_2_70B, "q4_k_m"), types_of({**LLAMA_2_70B, "num_key_value_heads": 64}, "q4_k_m")

    assert shared["Q5_K"] == 40 * 1024 * 8192
    assert "Q5_K" not in own


@pytest.mark.parametrize("mix", ["q4_0", "q5_0", "iq4_nl", "iq4_xs"])
def test_an_importance_matrix_that_would_matter_is_an_assumption(mix: str) -> None:
    """Where the types depend on one and the user does not say, the answer says which it took."""
    spec = spec_of("meta-llama/Meta-Llama-3.1-8B")
    untold = mix_bytes(spec, mix)

    assert any("importance matrix" in line for line in untold.assumptions)
    made = mix.startswith("iq4")  # published with one
    assert untold.total == mix_bytes(spec, mix, imatrix=made).total
    assert untold.total != mix_bytes(spec, mix, imatrix=not made).total


def test_no_other_mix_depends_on_an_importance_matrix() -> None:
    """With or without, the rest is the same where llama-quantize makes it without."""
    spec = spec_of("meta-llama/Meta-Llama-3.1-8B")
    rest = [name for name, mix in MIXES.items() if not (mix.needs_imatrix or mix.imatrix_matters)]

    assert [mix_bytes(spec, name, imatrix=True).total for name in rest] == [
        mix_bytes(spec, name).total for name in rest
    ]
    assert len(rest) > 12


@pytest.mark.parametrize("repo", ["deepseek-ai/DeepSeek-V4-Pro", "shrunk/t5"])
def test_kinds_without_known_names_are_refused(repo: str) -> None:
    """A model of which some tensor has no known name has no mix, and the message says which on one line."""
    spec = build_spec(published(repo), encoder_tokens=40)

    with pytest.raises(UndeterminedModelError, match=r"llama\.cpp calls .* of model_type '\w+'") as caught:
        mix_bytes(spec, "q4_k_m")
    assert is_one_line(str(caught.value))


def test_names_are_found_in_any_case_and_others_refused() -> None:
    """The nearest name is in the message."""
    assert find_mix(" Q4_K_M ") is MIXES["q4_k_m"]
    with pytest.raises(UnknownFormatError, match="no format 'q4_k_x'; nearest: q4_k_"):
        find_mix("q4_k_x")


def test_a_name_of_both_means_the_file() -> None:
    """Of the formats that are mixes too, all but bf16 are the mix where weights are meant; q4_k means q4_k_m, as there."""
    both = sorted(FORMATS.keys() & MIXES.keys())

    assert both == ["bf16", "iq4_nl", "q2_k", "q4_0", "q4_1", "q5_0", "q5_1", "q6_k", "q8_0"]
    assert [name for name in both if mix_of(name) is None] == ["bf16"]
    assert mix_of("q4_k") == mix_of("q4_k_m")


def test_draft_layers_count_where_they_are_in_use() -> None:
    """With multi-token prediction the file has one more layer, joined by a matrix of h x 2 h, under its own component."""
    spec = spec_of("zai-org/GLM-5")
    drafting = replace(spec, drafting=True)
    made = mix_bytes(drafting, "q8_0")

    assert made.components["multi_token_prediction"] == pytest.approx(drafting.draft_parameters * 34 / 32, rel=1e-3)
    assert sum(made.elements.values()) == drafting.parameters
