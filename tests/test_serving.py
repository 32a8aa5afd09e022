"""A model as an engine loads it: quantised on load, in another dtype, with draft layers, on a device that can run it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from roofcast.calculators.deployment import Deployment
from roofcast.calculators.engines.flags import Flags
from roofcast.calculators.engines.serving import LEAST, check_capability, serve, with_draft
from roofcast.calculators.errors import UsageError
from roofcast.hwdb.lookup import find_accelerator
from roofcast.modelspec.formats import FORMATS
from roofcast.modelspec.requantized import ON_LOAD, requantized
from tests.checkpoints import LLAMA_3_1_8B, loaded
from tests.engine_records import asked, gib, memory, model_of

if TYPE_CHECKING:
    from roofcast.calculators.answer import Remarks
    from roofcast.calculators.engines.terms import Served


def on(gpu: str, kv: str = "bf16", weights: str | None = None, engine: str = "vllm") -> Deployment:
    """Return one GPU of a kind."""
    asked_weights = FORMATS[weights] if weights else None
    return Deployment(find_accelerator(gpu).accelerator, FORMATS[kv], asked_weights, engine=engine)


def loading(model: str, deployment: Deployment, **flags: Any) -> tuple[Served, Remarks]:
    """Return a model of the catalogue as an engine loads it."""
    return serve(model_of(model), deployment, Flags(**flags))


# draft layers


def test_a_model_s_own_draft_layer_joins_the_pool() -> None:
    """DeepSeek-V3 has one layer of multi-token prediction beside 61."""
    model, said = with_draft(model_of("deepseek-v3"), 3)

    assert len(model.spec.active_layers) == 62
    assert said.assumptions == ()


def test_a_model_without_one_gets_a_layer_like_its_last() -> None:
    """As an EAGLE head of Llama-3.1-8B: a layer and a projection of 2 x 4,096 to 4,096; and that is said."""
    model, said = with_draft(model_of("llama-3.1-8b"), 3)

    layer = 4096 * (4096 + 1024) * 2 + 3 * 4096 * 14_336 + 2 * 4096
    assert model.spec.active_layers[-1] == model.spec.layers[-1]
    assert len(model.spec.active_layers) == 33
    assert model.spec.draft_parameters == layer + 2 * 4096 * 4096
    assert "one layer like its last is taken, as an EAGLE head has (0.25B parameters)" in said.assumptions[0]


@pytest.mark.parametrize("drafted", [None, 0])
def test_without_drafted_tokens_nothing_changes(drafted: int | None) -> None:
    """Whatever the model has."""
    model = model_of("deepseek-v3")

    assert with_draft(model, drafted)[0] is model


def test_a_model_that_drafts_already_stays() -> None:
    """Twice is once."""
    once = with_draft(model_of("llama-3.1-8b"), 3)[0]

    assert with_draft(once, 3)[0] is once


def test_a_draft_layer_is_in_the_cache() -> None:
    """Llama-3.1-8B: 33 layers' pages; 51.63 GiB / (33 x 65,536 B) = 25,633 blocks, as vLLM 0.9.1 logs."""
    drafted = memory(asked("llama-3.1-8b", engine_version="0.9.1", num_speculative_tokens=3), kv=51.63)

    assert drafted.groups[0].layers == 33
    assert drafted.blocks == int(51.63 * 2**30 // 65_536 // 33)


def test_a_draft_layer_is_in_the_weights() -> None:
    """Llama-3.1-8B: 0.25B x 2 B = 0.47 GiB more, of which the projection 0.06."""
    plain, drafted = (memory(asked("llama-3.1-8b", num_speculative_tokens=n)) for n in (None, 3))
    layer = 4096 * (4096 + 1024) * 2 + 3 * 4096 * 14_336 + 2 * 4096 + 2 * 4096 * 4096

    assert gib(drafted, "weights") - gib(plain, "weights") == pytest.approx(layer * 2 / 2**30, abs=0.001)


# quantised on load


def test_fp8_halves_linear_layers_only() -> None:
    """Llama-3.1-8B: 6.98B of layers in a byte each, embedding and head of 128,256 x 4,096 in two: 8.49 GiB, as logged."""
    served, said = loading("llama-3.1-8b", on("h100-sxm"), quantization="fp8", engine_version="0.19.0")

    layers = 32 * (4096 * (4096 + 1024) * 2 + 3 * 4096 * 14_336)
    assert served.ready.weight_bytes == pytest.approx(layers + 2 * 128_256 * 4096 * 2, rel=1e-3)
    assert gib(memory(served), "weights") == pytest.approx(8.49, abs=0.01)
    assert said.notes == ("llama-3.1-8b: linear layers in fp8, quantised as it loads",)


def test_four_bits_are_fewer_than_eight() -> None:
    """And both fewer than plain."""
    sizes = [
        loading("llama-3.1-8b", on("h100-sxm"), quantization=method)[0].ready.weight_bytes
        for method in (None, "fp8", "bitsandbytes")
    ]

    assert sizes == sorted(sizes, reverse=True)
    assert sizes[0] / sizes[2] > 2.5


@pytest.mark.parametrize("method", sorted(ON_LOAD))
def test_a_requantized_model_is_known_by_its_config_alone(method: str) -> None:
    """What its files held says nothing of it any more."""
    files: Any = object()  # headers, whatever they say
    plain = replace(model_of("llama-3.1-8b"), files=files, parameters_in_files=1)
    model = requantized(plain, method)

    assert model.spec.quantization == method
    assert (model.files, model.stored, model.parameters_in_files) == (None, (), None)
    assert model.spec.layers == plain.spec.layers
    assert plain.spec.quantization is None


def test_a_method_that_needs_a_quantised_checkpoint_is_refused() -> None:
    """With what quantises on load."""
    with pytest.raises(UsageError, match=r"--quantization awq: .* only fp8, bitsandbytes quantise on load"):
        loading("llama-3.1-8b", on("h100-sxm"), quantization="awq")


def test_the_method_of_a_quantised_checkpoint_changes_no_bytes() -> None:
    """It names its kernels."""
    own, _ = loading("gpt-oss-20b", on("h100-sxm"))
    named, said = loading("gpt-oss-20b", on("h100-sxm"), quantization="mxfp4")

    assert own.ready.weight_bytes == named.ready.weight_bytes
    assert said.notes == (
        "gpt-oss-20b: its checkpoint is stored as mxfp4; --quantization mxfp4 names its kernels and changes no bytes",
    )


def test_two_statements_of_how_weights_are_stored_are_refused() -> None:
    """--weights or --quantization."""
    with pytest.raises(UsageError, match="--quantization fp8 and --weights both say how weights are stored"):
        loading("llama-3.1-8b", on("h100-sxm", weights="int8"), quantization="fp8")


# dtype


@pytest.mark.parametrize(
    ("dtype", "kv", "expected"),
    [
        (None, "bf16", ("as stored", "bf16", 1.0)),
        ("bf16", "bf16", ("as stored", "bf16", 1.0)),
        ("fp32", "bf16", ("fp32", "fp32", 2.0)),
        ("fp16", "bf16", ("fp16", "fp16", 1.0)),
        ("fp32", "fp8", ("fp32", "fp8", 2.0)),  # a cache in a format of its own stays
    ],
)
def test_a_dtype_is_of_plain_weights_and_of_the_cache(dtype: str | None, kv: str, expected: Any) -> None:
    """--dtype fp32 doubles both."""
    plain = loading("llama-3.1-8b", on("h100-sxm"))[0].ready.weight_bytes
    ready = loading("llama-3.1-8b", on("h100-sxm", kv), dtype=dtype)[0].ready
    weights = ready.deployment.weights

    named = weights.name if weights is not None else "as stored"
    assert (named, ready.deployment.kv.name, ready.weight_bytes / plain) == pytest.approx(expected)


def test_a_dtype_leaves_quantised_weights_as_they_are() -> None:
    """Only activations and the cache change."""
    own, other = (loading("llama-3.1-8b-w4a16", on("h100-sxm"), dtype=dtype)[0].ready for dtype in (None, "fp16"))

    assert other.deployment.weights is None
    assert own.weight_bytes == other.weight_bytes
    assert other.deployment.kv.name == "fp16"


FP32 = LLAMA_3_1_8B | {"torch_dtype": "float32"}


@pytest.mark.parametrize(("engine", "width"), [("vllm", 2), ("tgi", 2), ("sglang", 2), ("none", 4)])
def test_weights_in_fp32_are_halved_as_they_load(engine: str, width: int) -> None:
    """8,030,261,248 parameters; and that is said."""
    served, said = serve(loaded(FP32), on("h200-sxm", engine=engine), Flags())

    assert served.ready.weight_bytes == 8_030_261_248 * width
    assert len(said.assumptions) == (width == 2)
    assert all(
        "weights in fp32 are loaded in 16 bits, the default; --dtype fp32 keeps them" in t for t in said.assumptions
    )


def test_a_dtype_of_fp32_keeps_weights_in_fp32() -> None:
    """As the remark on halving says."""
    served, said = serve(loaded(FP32), on("h200-sxm"), Flags(dtype="fp32"))

    assert served.ready.weight_bytes == 8_030_261_248 * 4
    assert said.assumptions == ()


# what a device can run


@pytest.mark.parametrize(
    ("model", "deployment", "flags", "complaint"),
    [
        ("llama-3.1-8b", on("v100", "fp8"), {}, "--kv fp8 in vllm cannot run on v100-sxm2-16gb: it needs compute capability 8.0, v100-sxm2-16gb has 7.0"),
        ("llama-3.1-8b", on("v100"), {"quantization": "fp8"}, "--quantization fp8 in vllm cannot run on v100-sxm2-16gb"),
        ("llama-3.1-8b", on("v100", weights="fp8"), {}, "--weights fp8 in vllm cannot run on v100-sxm2-16gb"),
        ("deepseek-v3", on("v100"), {}, "its weights fp8 in vllm cannot run on v100-sxm2-16gb"),
        ("gpt-oss-20b", on("t4"), {}, "its weights mxfp4 in vllm cannot run on t4: it needs compute capability 8.0, t4 has 7.5"),
        ("llama-3.1-8b", on("t4"), {"dtype": "bf16"}, "--dtype bf16 in vllm cannot run on t4: it needs compute capability 8.0, t4 has 7.5; --dtype fp16 would do"),
        ("llama-3.1-8b", on("p100"), {"quantization": "bitsandbytes"}, "vllm cannot run on p100-sxm2-16gb: it needs compute capability 7.0"),
    ],
)  # fmt: skip
def test_a_format_that_the_device_cannot_run_is_refused(
    model: str, deployment: Deployment, flags: Any, complaint: str
) -> None:
    """With what it needs, and what the device has."""
    with pytest.raises(UsageError) as refused:
        loading(model, deployment, **flags)

    assert str(refused.value).startswith(complaint)


@pytest.mark.parametrize(
    ("model", "deployment", "flags"),
    [
        ("llama-3.1-8b", on("a100", "fp8"), {}),
        ("llama-3.1-8b", on("t4"), {"dtype": "fp16"}),
        ("llama-3.1-8b", on("t4"), {}),  # nothing is asked: vLLM itself takes fp16
        ("llama-3.1-8b", on("v100"), {"quantization": "bitsandbytes"}),
        ("llama-3.1-8b", on("rtx-3090"), {"quantization": "fp8"}),  # weight-only, by Marlin
        ("llama-3.1-8b", on("mi300x", "fp8"), {}),  # no compute capability: not judged
        ("llama-3.1-8b", on("v100", "fp8", engine="llama.cpp"), {}),  # another engine's kernels
    ],
)
def test_what_a_device_can_run_passes(model: str, deployment: Deployment, flags: Any) -> None:
    """Nothing is refused that an engine would take."""
    check_capability(model_of(model), deployment, Flags(**flags))


def test_each_format_has_a_least_capability() -> None:
    """A V100's or more, but for GPTQ's first kernels."""
    assert min(LEAST, key=lambda name: LEAST[name]) == "gptq"
    assert all(6.0 <= least <= 10.0 for least in LEAST.values())
