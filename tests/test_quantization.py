"""Bytes of quantised checkpoints from their configs, against bytes worked out by hand, a method at a time."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import pytest

from roofcast.modelspec.errors import MalformedModelError, ModelError, UndeterminedModelError
from roofcast.modelspec.implied import Implied, implied_bytes
from roofcast.modelspec.known import find_known, known_names
from roofcast.modelspec.quantization import read_packing
from roofcast.modelspec.quantizers import READERS
from roofcast.modelspec.spec import build_spec
from roofcast.modelspec.weights import DTYPE_BITS
from tests.model_configs import is_one_line, published

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

Shapes = list[tuple[int, int, int]]  # how many, rows, columns


def config_of(name: str, **stated: object) -> dict[str, Any]:
    """The config of the catalogue, with a quantisation of its own."""
    known = find_known(name)
    assert known is not None
    return {**known.config, **stated}


def implied(config: Mapping[str, Any]) -> Implied:
    """What a config implies."""
    spec = build_spec(config)
    packing = read_packing(config, len(spec.layers))
    assert packing is not None
    return implied_bytes(spec, packing)


# Llama-3.1-8B: q and o, k and v, gate and up, down; two tables of 128,256 rows; two norms a layer and the last
LLAMA: Final[Shapes] = [(64, 4096, 4096), (64, 1024, 4096), (64, 14336, 4096), (32, 4096, 14336)]
LLAMA_ELEMENTS: Final = 32 * (2 * 4096**2 + 2 * 1024 * 4096 + 3 * 4096 * 14336)
LLAMA_TABLE: Final = 128256 * 4096
LLAMA_NORMS: Final = 65 * 4096
LLAMA_PLAIN: Final = 2 * (2 * LLAMA_TABLE + LLAMA_NORMS)  # bf16
LLAMA_INPUTS: Final = 32 * (6 * 4096 + 14336)  # columns of all matrices together

NVFP4: Final = {"quant_algo": "NVFP4", "group_size": 16, "exclude_modules": ["lm_head"]}
AWQ: Final = {"quant_method": "awq", "bits": 4, "group_size": 128, "version": "gemm", "zero_point": True}
GPTQ: Final = {"quant_method": "gptq", "bits": 4, "group_size": 128, "desc_act": True}
NF4: Final = {
    "quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_quant_type": "nf4", "bnb_4bit_use_double_quant": True,
}  # fmt: skip
CHANNELS: Final = {
    "quant_method": "compressed-tensors", "format": "float-quantized", "ignore": ["lm_head"],
    "config_groups": {"group_0": {
        "targets": ["Linear"], "weights": {"num_bits": 8, "type": "float", "strategy": "channel", "symmetric": True},
        "input_activations": {"num_bits": 8, "type": "float", "strategy": "token", "dynamic": True},
    }},
}  # fmt: skip
LLAMA_CASES: Final = {
    # e4m3 and, a matrix, an fp32 scale of the weights and one of the inputs
    "fp8 static": ({"quant_algo": "FP8", "exclude_modules": ["lm_head"]}, LLAMA_ELEMENTS + 224 * 8),
    # e4m3 and an fp32 scale for 128 x 128 elements, which divide every side
    "fp8 block": (
        {"quant_method": "fp8", "weight_block_size": [128, 128]},
        LLAMA_ELEMENTS + LLAMA_ELEMENTS // 16384 * 4,
    ),
    # half a byte, an e4m3 for 16 elements: 0.5625 B; two fp32 a matrix
    "nvfp4": (NVFP4, LLAMA_ELEMENTS * 9 // 16 + 224 * 8),
    # half a byte; for 128 inputs of every output an fp16 scale and half a byte of zero point
    "awq": (AWQ, LLAMA_ELEMENTS // 2 + LLAMA_ELEMENTS // 128 * 5 // 2),
    # the same, and an int32 for every input
    "gptq": (GPTQ, LLAMA_ELEMENTS // 2 + LLAMA_ELEMENTS // 128 * 5 // 2 + 4 * LLAMA_INPUTS),
    # half a byte; a byte for 64 elements, an fp32 for 256 of those, and tables of 16 and 256 fp32 a matrix
    "bitsandbytes": (NF4, LLAMA_ELEMENTS // 2 + LLAMA_ELEMENTS // 64 + LLAMA_ELEMENTS // 16384 * 4 + 224 * 4 * 272),
    # e4m3 and a 16-bit scale a row
    "compressed-tensors": (CHANNELS, LLAMA_ELEMENTS + 2 * sum(n * rows for n, rows, _ in LLAMA)),
}


@pytest.mark.parametrize("case", LLAMA_CASES)
def test_methods_by_hand(case: str) -> None:
    """A Llama 3.1 8B takes, method by method, the bytes of its matrices by hand, and 16 bits of all the rest."""
    stated, by_hand = LLAMA_CASES[case]
    assert implied(config_of("llama-3.1-8b", quantization_config=stated)).total == by_hand + LLAMA_PLAIN


def test_mlx_packs_tables_too() -> None:
    """MLX packs all matrices, both tables among them: 4 bits, and 16 of scale and 16 of bias for 64, so 0.5625 B."""
    found = implied(config_of("llama-3.1-8b", quantization={"group_size": 64, "bits": 4}))
    assert found.total == (LLAMA_ELEMENTS + 2 * LLAMA_TABLE) * 9 // 16 + 2 * LLAMA_NORMS
    assert any("MLX" in line for line in found.assumptions)


@pytest.mark.parametrize(
    ("method", "bits", "group", "gigabytes"),
    [
        ("gptq", 4, 128, 3.90), ("gptq", 4, 64, 4.02), ("gptq", 4, 32, 4.28),
        ("gptq", 8, 128, 7.16), ("gptq", 8, 64, 7.31), ("gptq", 8, -1, 7.01), ("awq", 4, 128, 3.89),
    ],
)  # fmt: skip
def test_published_sizes(method: str, bits: int, group: int, gigabytes: float) -> None:
    """Sizes of published files of Llama 2 7B are met, up to the rounding and the header.

    Source: "Provided files" of the model cards of TheBloke/Llama-2-7B-GPTQ and TheBloke/Llama-2-7B-AWQ.
    """
    stated = {"quant_method": method, "bits": bits, "group_size": group}
    config = config_of("llama-2-7b", quantization_config=stated, torch_dtype="float16")
    assert -0.01 < implied(config).total / 1e9 - gigabytes < 0.005


def test_fp8_blocks_of_deepseek() -> None:
    """DeepSeek-V3 by hand: an fp32 scale a started block of 128 x 128, routers, tables and norms plain."""
    attention = [(61, 1536, 7168), (61, 24576, 1536), (61, 576, 7168), (61, 32768, 512), (61, 7168, 16384)]
    feeding = [(6, 18432, 7168), (3, 7168, 18432), (58 * 257 * 2, 2048, 7168), (58 * 257, 7168, 2048)]
    packed = sum(n * rows * columns for n, rows, columns in attention + feeding)
    scales = sum(n * -(-rows // 128) * -(-columns // 128) for n, rows, columns in attention + feeding)
    rest = 2 * 129280 * 7168 + 58 * 256 * 7168 + 61 * (1536 + 512 + 2 * 7168) + 7168
    found = implied(config_of("deepseek-v3"))
    assert found.total == packed + 4 * scales + 2 * rest
    assert found.components["scales"] == 4 * scales


PUBLISHED: Final = [
    name for name in known_names() if (known := find_known(name)) and known.files and build_spec(known.config).quantization
]  # fmt: skip
# tables that the files hold once more, for multi-token prediction: embedding and head
COPIED: Final = {"deepseek-v3": 2, "deepseek-r1": 2, "deepseek-v3.2": 2}
# beyond the decoder's quantised and plain weights: draft layers whose files are not published
UNDRAFTED: Final = ("minimax-m2", "minimax-m2.5", "minimax-m2.7")


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_headers(name: str) -> None:
    """What the config implies is what the headers of the published files hold, to 0.1 %.

    The rest is in what no config says: Qwen keeps the scales of FP8 blocks in bf16, MiniMax routers in fp32.
    """
    known = find_known(name)
    assert known is not None
    assert known.files is not None
    spec = build_spec(known.config)
    packing = read_packing(known.config, len(spec.layers))
    assert packing is not None
    drafted = replace(spec, drafting=bool(spec.draft) and name not in UNDRAFTED)
    copies = COPIED.get(name, 0) * 2 * spec.vocab * spec.hidden
    held = sum(count * DTYPE_BITS[dtype] // 8 for dtype, count in known.files.items())
    assert implied_bytes(drafted, packing).total + copies == pytest.approx(held, rel=1e-3)


def test_mxfp4_is_of_experts_alone() -> None:
    """gpt-oss-20b: 4 bits and a byte for 32 of the experts, so 0.53125 B; what else its files hold is bf16."""
    packed = 24 * 32 * (5760 * 2880 + 2880 * 2880)
    found = implied(config_of("gpt-oss-20b"))
    assert found.components["experts"] + found.components["scales"] == packed * 17 // 32 + 2 * 24 * 32 * (5760 + 2880)
    assert found.total == packed * 17 // 32 + 2 * 1_804_459_584  # BF16 elements of the published headers


def test_int4_groups_of_kimi() -> None:
    """Kimi-K2.5: 69,120 matrices of routed experts in int4 with a bf16 scale for 32, and two int64 of shape."""
    each = 2048 * 7168
    found = implied(config_of("kimi-k2.5"))
    packed = {part.stored: (part.bytes, part.beside) for part in found.parts if part.component == "experts"}
    assert packed == {"int4, groups of 32": (69_120 * each // 2, 69_120 * (each // 32 * 2 + 16))}
    assert found.total == pytest.approx(43_902_267_888 * 2 + 126_835_891_200 * 4, rel=1e-5)  # published headers


def test_experts_outside_quantization_config() -> None:
    """DeepSeek-V4 states its experts' format outside: mxfp4 beside FP8 with one byte a block's scale."""
    found = implied(config_of("deepseek-v4-flash"))
    experts = next(part for part in found.parts if part.component == "experts")
    shared = next(part for part in found.parts if part.component == "feed_forward" and part.stored.startswith("fp8"))
    assert (experts.stored, experts.bytes * 2, experts.beside * 32) == ("mxfp4", experts.elements, experts.elements)
    assert shared.beside * 16384 == shared.bytes
    plain = implied({**config_of("deepseek-v4-flash"), "expert_dtype": "fp8"})
    assert next(part.stored for part in plain.parts if part.component == "experts").startswith("fp8")


def test_mixed_precision() -> None:
    """Modules named one by one have each their own format; what neither list names is plain."""
    layers: dict[str, dict[str, object]] = {
        f"model.layers.{i}.self_attn.{x}_proj": {"quant_algo": "FP8"} for i in range(32) for x in "qkvo"
    }
    layers |= {
        f"model.layers.{i}.mlp.{x}_proj": {"quant_algo": "W4A16_NVFP4", "group_size": 16}
        for i in range(32)
        for x in ("gate", "up", "down")
        if i != 7
    }
    stated = {"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION", "quantized_layers": layers}
    attention, feeding = 32 * (2 * 4096**2 + 2 * 1024 * 4096), 3 * 4096 * 14336
    by_hand = attention + 128 * 8 + 31 * feeding * 9 // 16 + 93 * 4 + 2 * feeding + LLAMA_PLAIN
    found = implied(config_of("llama-3.1-8b", quantization_config=stated))
    assert found.total == by_hand
    stored = {(part.component, part.stored, part.compute) for part in found.parts}
    assert ("feed_forward", "nvfp4 (weights only)", "bf16") in stored
    assert ("feed_forward", "bf16", "bf16") in stored


def test_experts_named_one_by_one() -> None:
    """Of experts named one by one, those that are named count and no others."""
    names = [f"model.layers.{i}.block_sparse_moe.experts.{e}.w1" for i in range(32) for e in range(6)]
    layers = {name: {"quant_algo": "FP8"} for name in names}
    found = implied(config_of("mixtral-8x7b", quantization_config={"quantized_layers": layers}))
    packed = {part.stored: part.elements for part in found.parts if part.component == "experts"}
    assert packed["fp8, a scale a tensor"] == 32 * 6 * 4096 * 14336
    assert packed["bf16"] == 32 * (8 * 3 - 6) * 4096 * 14336


def test_exceptions_keep_their_bits() -> None:
    """Every way of naming a module leaves it plain: by path, by part, by wildcard, by expression, by layer."""
    whole = implied(config_of("llama-3.1-8b", quantization_config=NVFP4))
    each = {"q": 4096 * 4096, "down": 4096 * 14336}
    ways = {
        "model.layers.*.self_attn.q_proj": 32 * each["q"],
        "q_proj": 32 * each["q"],
        r"re:.*self_attn\.q_proj$": 32 * each["q"],
        "model.layers.3.mlp.down_proj": each["down"],
        "model.layers.3.mlp.down*": each["down"],
        "model.layers.3*": LLAMA_ELEMENTS // 32 * 3,  # 3, 30 and 31
        "model.layers.3.*": LLAMA_ELEMENTS // 32,
        "model.layers.3": LLAMA_ELEMENTS // 32,
        "language_model.model.layers.3.mlp.down_proj": each["down"],
    }
    for way, elements in ways.items():
        stated = {**NVFP4, "exclude_modules": ["lm_head", way]}
        found = implied(config_of("llama-3.1-8b", quantization_config=stated))
        plain = sum(part.elements for part in found.parts if part.stored == "bf16")
        before = sum(part.elements for part in whole.parts if part.stored == "bf16")
        assert plain - before == elements, way


def test_hf_quant_config_as_a_whole() -> None:
    """The object of hf_quant_config.json means the same under its own key as flat."""
    whole = {"producer": {"name": "modelopt"}, "quantization": NVFP4}
    flat, nested = (implied(config_of("llama-3.1-8b", quantization_config=stated)) for stated in (NVFP4, whole))
    assert flat == nested


def test_unstated_exceptions_are_assumed() -> None:
    """Without a list of exceptions head and routers are taken as left out, and that is said."""
    found = implied(config_of("llama-3.1-8b", quantization_config={"quant_algo": "FP8"}))
    assert found.total == LLAMA_CASES["fp8 static"][1] + LLAMA_PLAIN
    assert any("lists no modules" in line for line in found.assumptions)


def test_fp32_beside_quantised_weights_is_not_believed() -> None:
    """torch_dtype float32 in a quantised file is a leftover: the rest is taken as bf16, and that is said."""
    found = implied(config_of("llama-3.1-8b", quantization_config=NVFP4, torch_dtype="float32"))
    assert found.total == LLAMA_CASES["nvfp4"][1] + LLAMA_PLAIN
    assert any("fp32" in line for line in found.assumptions)


@pytest.mark.parametrize(
    ("stated", "error", "words"),
    [
        ({"quant_method": "hqq"}, UndeterminedModelError, ["'hqq'", "awq"]),
        ({"quant_algo": "FP7"}, UndeterminedModelError, ["'FP7'", "NVFP4"]),
        ({"quant_method": "awq"}, UndeterminedModelError, ["does not state bits"]),
        ({"quant_method": "awq", "bits": "four"}, MalformedModelError, ["bits is 'four'"]),
        ({"quant_method": "gptq", "bits": 64}, MalformedModelError, ["bits is 64"]),
        ({"quant_method": "fp8", "weight_block_size": [128]}, MalformedModelError, ["weight_block_size", "[128, 128]"]),
        ({"quant_method": "fp8", "weight_block_size": [0, 128]}, MalformedModelError, ["weight_block_size"]),
        ({**NVFP4, "exclude_modules": [1]}, MalformedModelError, ["exclude_modules", "list of names"]),
        ({**NVFP4, "exclude_modules": ["re:("]}, MalformedModelError, ["regular expression"]),
        ({**NVFP4, "exclude_modules": ["re:(a)\\1"]}, MalformedModelError, ["is understood"]),
        ({**NVFP4, "group_size": 32}, MalformedModelError, ["group_size is 32", "16"]),
        ({"quant_method": "bitsandbytes"}, MalformedModelError, ["load_in_4bit"]),
        ({**NF4, "bnb_4bit_quant_type": "zzz"}, MalformedModelError, ["'zzz'", "nf4 or fp4"]),
        ({"bits": 4, "group_size": -1}, MalformedModelError, ["group_size is -1"]),
        ({"quant_method": "fp8", "modules_to_not_convert": ["a"], "ignored_layers": 3}, None, []),
        ({**GPTQ, "modules_in_block_to_quantize": 5}, MalformedModelError, ["modules_in_block_to_quantize is 5"]),
        ({**GPTQ, "modules_in_block_to_quantize": [["x"], 1]}, MalformedModelError, ["modules_in_block"]),
        (
            {**CHANNELS, "config_groups": {"g": {"weights": {"num_bits": 8, "type": []}}}},
            MalformedModelError,
            ["type is []"],
        ),
        ({**CHANNELS, "config_groups": {"g": {"weights": {"num_bits": 8, "actorder": [1]}}}}, None, []),
        (
            {**NVFP4, "exclude_modules": [f"*x{i}*" for i in range(501)]},
            UndeterminedModelError,
            ["more than 500 patterns"],
        ),
        (
            {**NVFP4, "exclude_modules": [f"re:.*layers.{i}[ab]" for i in range(33)]},
            UndeterminedModelError,
            ["more than 32"],
        ),
        (
            {**GPTQ, "dynamic": {f"+:x{i}": {"group_size": i} for i in range(1, 300)}},
            UndeterminedModelError,
            ["299 kinds"],
        ),
        ({"quant_method": "compressed-tensors"}, MalformedModelError, ["config_groups"]),
        ({"quant_method": "compressed-tensors", "config_groups": {"a": 1}}, MalformedModelError, ["'a'"]),
        ({"quantized_layers": {"a": 1}}, MalformedModelError, ["'a'"]),
        ({"quantized_layers": {"a": {"quant_algo": 4}}}, UndeterminedModelError, ["quant_algo 4"]),
    ],
)
def test_what_cannot_be_read(stated: dict[str, Any], error: type[ModelError] | None, words: list[str]) -> None:
    """A quantisation that is not understood, or that cannot be, is one line that says which and what would do.

    Without an error in the row it is odd, but says what it has to.
    """
    if error is None:
        assert implied(config_of("llama-3.1-8b", quantization_config=stated)).total > 0
        return
    with pytest.raises(error) as caught:
        implied(config_of("llama-3.1-8b", quantization_config=stated))
    assert is_one_line(str(caught.value))
    for word in words:
        assert word in str(caught.value)


@pytest.mark.parametrize(
    "stated",
    [
        {"quant_algo": None, "kv_cache_quant_algo": "FP8"},
        {"kv_cache_quant_algo": "FP8"},
        {
            "quant_method": "compressed-tensors",
            "config_groups": {},
            "kv_cache_scheme": {"num_bits": 8, "type": "float", "dynamic": False},
        },
    ],
)
def test_a_quantised_cache_alone_leaves_weights_plain(stated: dict[str, Any]) -> None:
    """A checkpoint that asks for a format of its cache and of nothing else has its weights in 16 bits."""
    assert implied(config_of("llama-3.1-8b", quantization_config=stated)).total == 2 * LLAMA_ELEMENTS + LLAMA_PLAIN


def test_draft_experts_keep_the_format_of_their_source() -> None:
    """DeepSeek-V4 NVFP4 leaves draft layers as they were: their experts in MXFP4, as expert_dtype says."""
    config = published("nvidia/DeepSeek-V4-Flash-NVFP4")
    spec = replace(build_spec(config), drafting=True)
    packing = read_packing(config, len(spec.layers))
    assert packing is not None
    parts = {p.stored: p for p in implied_bytes(spec, packing).parts if p.component == "multi_token_prediction"}
    assert parts["mxfp4"].elements == 256 * 3 * 2048 * 4096
    assert implied_bytes(spec, packing).total == pytest.approx(168.2e9, rel=1e-3)


@pytest.mark.parametrize(
    "way", ["*layers.{}.self_attn*", r"re:.*layers\.{}\.self_attn.*", "model.layers.{}.self_attn*"]
)
def test_lists_by_layer_in_any_spelling(way: str) -> None:
    """Attention of all layers but the last, listed one by one, is left plain whichever way it is spelt."""
    listed = [way.replace("{}", str(layer)) for layer in range(31)]
    found = implied(config_of("llama-3.1-8b", quantization_config={**NVFP4, "exclude_modules": ["lm_head", *listed]}))
    attention = {part.stored: part.elements for part in found.parts if part.component == "attention"}
    each = 2 * 4096**2 + 2 * 1024 * 4096
    assert attention == {"bf16": 31 * each, "nvfp4": each}


def test_every_method_is_in_the_documents(repository: Path) -> None:
    """docs/weights.md has a row for every quantiser that is read."""
    text = (repository / "docs" / "weights.md").read_text().lower().replace("_", "-")
    for name in READERS:
        assert f"`{name}" in text or name.partition("-")[0] in text, name
