"""Formats: the bytes that a step reads of them, the peak that they multiply at, and what a device does instead."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, Any

import pytest

from roofcast.calculators.deployment import Deployment, Ready, prepare
from roofcast.calculators.errors import UnansweredError
from roofcast.calculators.estimate import ready_remarks
from roofcast.calculators.flops import prefill_flops
from roofcast.calculators.step import Estimate, estimate
from roofcast.hwdb.lookup import find_accelerator
from roofcast.modelspec.errors import UndeterminedModelError
from roofcast.modelspec.formats import FORMATS
from roofcast.modelspec.known import known_names
from roofcast.modelspec.op import Op
from roofcast.modelspec.requested import find_requested
from roofcast.modelspec.step import decode_step, prefill_step
from tests.checkpoints import LLAMA_3_1_8B, catalogued, loaded

if TYPE_CHECKING:
    from roofcast.modelspec.layers import Layer

LLAMA = 32 * (2 * 4096 * 4096 + 2 * 4096 * 1024 + 3 * 4096 * 14336)  # weights of all matrices in the layers
NORMS, HEAD = 65 * 4096, 128256 * 4096
MATRICES = {"attn.qkv", "attn.out", "ffn.gate_up", "ffn.down"}


def llama(gpu: str, kv: str = "bf16", weights: str | None = None, **config: Any) -> Ready:
    """Prepare Llama 3.1 8B in a format, or with the quantisation of its config."""
    asked = find_requested(weights) if weights else None
    return prepare(loaded(LLAMA_3_1_8B | config), Deployment(find_accelerator(gpu).accelerator, FORMATS[kv], asked))


def seconds(work: Estimate, names: set[str]) -> float:
    """Least time of terms. [s]"""
    return sum(term.bound for term in work.terms if term.op.name in names)


def said(made: Ready) -> str:
    """What is warned of."""
    return "\n".join(ready_remarks(made, [4096]).warnings)


# --- weights asked for


@pytest.mark.parametrize(
    ("gpu", "weights", "peak", "instead"),
    [
        ("h200", "bf16", 989.4e12, None),
        ("h200", "fp8", 1978.9e12, None),
        ("a100", "fp8", 312e12, "no fp8 arithmetic: it is computed in bf16"),
        ("a100", "int8", 624e12, None),
        ("h100", "nvfp4", 989.4e12, "no fp4 arithmetic: it is computed in bf16"),
        ("b200", "nvfp4", 9000e12, None),
        ("b200", "mxfp4", 9000e12, None),
        ("h200", "int4", 989.4e12, None),
        ("rtx-2080-ti", "bf16", 53.8e12, "no bf16 arithmetic: it is computed in fp16"),
    ],
)
def test_matrices_of_a_prompt_multiply_at_the_peak_of_their_format(
    gpu: str, weights: str, peak: float, instead: str | None
) -> None:
    """A prompt of 8,192: 2 n P at the peak of the format, or of the one that the device computes in, which is said."""
    made = llama(gpu, weights=weights)
    work = estimate(made, prefill_step(1, 8192))

    assert seconds(work, MATRICES) == pytest.approx(2 * 8192 * LLAMA / peak, rel=1e-9)
    assert (instead or "") in said(made)
    assert ("arithmetic" in said(made)) is (instead is not None)


@pytest.mark.parametrize(
    ("weights", "size"),
    [("fp32", 4), ("bf16", 2), ("fp8", 1), ("int8", 1), ("int4", 0.5), ("nvfp4", 0.5625), ("mxfp4", 0.53125)],
)
@pytest.mark.parametrize("gpu", ["a100", "b200"])
def test_bytes_are_as_stored_whatever_the_device_computes_in(gpu: str, weights: str, size: float) -> None:
    """One format for all: matrices, norms, head and a row of the table; scales count where the format has them."""
    work = estimate(llama(gpu, weights=weights), decode_step(1, 512))

    assert work.weight_bytes == size * (LLAMA + NORMS + HEAD + 4096)


# --- the quantisation of a config


FP8_BLOCKS = {"quant_method": "fp8", "weight_block_size": [128, 128]}
W8A8 = {
    "quant_method": "compressed-tensors", "format": "int-quantized", "ignore": ["lm_head"],
    "config_groups": {"group_0": {
        "targets": ["Linear"], "weights": {"num_bits": 8, "type": "int", "strategy": "channel", "symmetric": True},
        "input_activations": {"num_bits": 8, "type": "int", "strategy": "token", "dynamic": True},
    }},
}  # fmt: skip
AWQ = {"quant_method": "awq", "bits": 4, "group_size": 128, "version": "gemm", "zero_point": True}
NVFP4 = {"quant_algo": "NVFP4", "group_size": 16, "exclude_modules": ["lm_head"]}
ROWS = 32 * (2 * 4096 + 2 * 1024 + 2 * 14336 + 4096)  # outputs of all matrices of the layers
CHECKPOINTS: dict[str, tuple[dict[str, Any], float, str]] = {
    "fp8, an fp32 scale a block": (FP8_BLOCKS, LLAMA + LLAMA / 16384 * 4, "fp8"),
    "w8a8, a 16-bit scale a row": (W8A8, LLAMA + 2 * ROWS, "int8"),
    "awq, scale and zero point for 128": (AWQ, LLAMA / 2 + LLAMA / 128 * 2.5, "bf16"),
    "nvfp4, a scale for 16 and two a matrix": (NVFP4, LLAMA * 9 / 16 + 224 * 8, "fp4"),
}


@pytest.mark.parametrize("name", CHECKPOINTS)
def test_a_checkpoint_reads_what_it_stores(name: str) -> None:
    """Matrices of the layers as the config packs them; norms, head and table in 16 bits."""
    stated, packed, form = CHECKPOINTS[name]
    made = llama("b200", quantization_config=stated)
    work = estimate(made, decode_step(1, 512))

    assert work.weight_bytes == pytest.approx(packed + 2 * (NORMS + HEAD + 4096), rel=1e-12)
    assert {op.format for op in work.ops if op.name in MATRICES} == {form}
    assert {op.format for op in work.ops if op.name == "head"} == {"bf16"}
    assert made.weight_bytes == pytest.approx(packed + 2 * (NORMS + 2 * HEAD), rel=1e-12)


def test_w8a8_on_an_a100_doubles_and_fp8_does_not() -> None:
    """INT8 has 624 TOP/s there; FP8 is widened to bf16, 312 TFLOP/s, which is said; both read a byte an element."""
    integers, floats = llama("a100", quantization_config=W8A8), llama("a100", quantization_config=FP8_BLOCKS)
    times = [seconds(estimate(made, prefill_step(1, 8192)), MATRICES) for made in (integers, floats)]

    assert times == [pytest.approx(2 * 8192 * LLAMA / peak, rel=1e-9) for peak in (624e12, 312e12)]
    assert "arithmetic" not in said(integers)
    assert "a100-80gb-sxm has no fp8 arithmetic: it is computed in bf16" in said(floats)


def test_weights_that_nothing_tells_are_not_guessed() -> None:
    """A quantisation that is not known has no bytes; a format asked for has."""
    unknown = {"quant_method": "fancy"}

    with pytest.raises(UnansweredError, match="fancy"):
        llama("h200", quantization_config=unknown)
    assert llama("h200", weights="fp8", quantization_config=unknown).weight_bytes == LLAMA + NORMS + 2 * HEAD


# --- the cache


@pytest.mark.parametrize(
    ("kv", "size"), [("fp32", 4), ("bf16", 2), ("fp16", 2), ("fp8", 1), ("int8", 1), ("int4", 0.5)]
)
def test_the_cache_moves_as_it_is_kept(kv: str, size: float) -> None:
    """32 x 2 x 8 x 128 elements a token; FP8 halves bf16's bytes."""
    work = estimate(llama("h200", kv), decode_step(4, 2048))

    assert work.state_bytes == 4 * 2048 * 65536 * size


@pytest.mark.parametrize(
    ("gpu", "kv", "peak"),
    [
        ("h200", "bf16", 989.4e12),
        ("h200", "fp8", 1978.9e12),
        ("h200", "int8", 989.4e12),
        ("h200", "kivi2", 989.4e12),
        ("a100", "fp8", 312e12),
    ],
)
def test_attention_multiplies_in_fp8_over_fp8_alone(gpu: str, kv: str, peak: float) -> None:
    """Scores of a prompt, 2 x 32 n^2 x 4096, at FP8's peak over an FP8 cache where the device has it, else in 16 bits."""
    work = estimate(llama(gpu, kv), prefill_step(1, 8192))

    assert seconds(work, {"attn.prefill"}) == pytest.approx(2 * 32 * 8192**2 * 4096 / peak, rel=1e-12)


def test_kivi_takes_three_bits_and_128_tokens_in_sixteen() -> None:
    """2 bits and, for 32 elements, a 16-bit scale and zero point: 3 bits; the last 128 tokens are not quantised."""
    work, short = (estimate(llama("h200", "kivi2"), decode_step(1, context)) for context in (4096, 100))

    assert work.state_bytes == 65536 * ((4096 - 128) * 3 / 8 + 128 * 2)
    assert short.state_bytes == 65536 * 100 * 2


def test_a_cache_in_fp8_leaves_recurrent_states_as_they_are() -> None:
    """Qwen3-Next: 36 x (32 x 128 x 128 in fp32 and 8,192 x 4 in 16 bits), read and written; keys alone are halved."""
    made = prepare(catalogued("qwen3-next-80b-a3b"), Deployment(find_accelerator("b200").accelerator, FORMATS["fp8"]))

    fixed = 36 * (32 * 128 * 128 * 4 + 8192 * 4 * 2)
    assert estimate(made, decode_step(1, 4096)).state_bytes == 2 * fixed + 12 * 4096 * 2 * 2 * 256


def test_fp8_attention_of_mla_stays_above_the_ridge() -> None:
    """Half the bytes is twice the intensity, 483.6, against an H200's 412.3 for FP8."""
    made = prepare(catalogued("deepseek-v3"), Deployment(find_accelerator("h200").accelerator, FORMATS["fp8"]))
    (scores,) = estimate(made, decode_step(8, 4096)).term("attn.decode")

    assert isinstance(scores.op, Op)
    assert scores.op.flops / scores.op.bytes == pytest.approx(483.6, abs=0.05)
    assert scores.bound_by == "compute"
    assert scores.bound == pytest.approx(scores.op.flops / 1978.9e12, rel=1e-12)


# --- every model of the catalogue


@cache
def catalogue() -> dict[str, Ready]:
    """Every model whose weights and state are known, on one H200."""
    made: dict[str, Ready] = {}
    for name in known_names():
        try:
            made[name] = prepare(catalogued(name), Deployment(find_accelerator("h200").accelerator, FORMATS["bf16"]))
        except (UnansweredError, UndeterminedModelError):  # T5's encoder has any number of tokens
            continue
    return made


def test_most_of_the_catalogue_is_answered() -> None:
    """All but a few: encoders of unknown length, weights stored in a way that no config tells."""
    assert len(known_names()) - 20 < len(catalogue())


def passed_by(layer: Layer) -> bool:
    """Whether all that a layer does is attend to images, of which a prompt of text has none (Llama 3.2 Vision)."""
    return bool(layer.mixers) and all(getattr(mixer, "encoder_tokens", None) == 0 for mixer in layer.mixers)


def test_a_prompt_costs_what_its_formula_says() -> None:
    """Terms of a prompt sum to 2 N n + 2 L n^2 d_attn, and the head at one position, for every model.

    Keys and values of an encoder's tokens (Whisper) are apart: no token of the prompt passes them.
    """
    for name, made in catalogue().items():
        spec = made.model.spec
        head = (spec.head_rows or spec.vocab) * spec.hidden + spec.head_bias_parameters
        work = estimate(made, prefill_step(1, 777))
        crossed = sum(op.flops for op in work.ops if op.name == "cross.kv")
        assert work.flops - crossed == pytest.approx(prefill_flops(spec, 777) + 2 * head, rel=1e-9), name


def test_a_large_prompt_reads_every_weight_but_the_table() -> None:
    """Enough tokens reach all experts: a byte of every parameter, once a pass, but of what is looked up row by row."""
    for name, plain in catalogue().items():
        made = prepare(plain.model, replace(plain.deployment, weights=FORMATS["fp8"]))
        spec = made.model.spec
        work = estimate(made, prefill_step(1, 100_000))
        read = sum(op.weight_bytes for op in work.ops if op.name != "embedding")
        again = spec.borrowed_parameters
        for layer, count in spec.layer_counts.items():
            again += count * (layer.passes - 1 - passed_by(layer)) * layer.parameters(spec.hidden)
        head = (spec.head_rows or spec.vocab) * spec.hidden + spec.head_bias_parameters
        whole = spec.decoder_parameters - spec.components["embedding"] - spec.components["head"] + head + again
        assert read == pytest.approx(whole, rel=1e-6), name
