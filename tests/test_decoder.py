"""The profiler's decoder computes what a plain decoder of the same weights computes, in prefill and step by step."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from roofcast.modelspec.attention import GroupedAttention
from roofcast.modelspec.ffn import DenseFeedForward
from roofcast.modelspec.op import FAMILIES
from roofcast.profiler.decoder import Decoder, Setup
from roofcast.profiler.errors import OutOfMemoryError, ProfileUsageError
from roofcast.profiler.runtime import Runtime

torch = pytest.importorskip("torch")

from tests.reference_decoder import full, logits  # noqa: E402 - needs torch
from tests.tiny_decoders import BUILT, DENSE, GQA, HIDDEN, MLA, MOE, VOCAB, cpu, layer, spec_of, tiny  # noqa: E402

TOKENS = 11
TIGHT = 1e-5  # of fp32: some ten roundings, through two layers
LOOSE = 3e-2  # of 16 bits
ROUTED = [name for name, spec in BUILT.items() if spec.experts]


def prompt(batch: int = 2, tokens: int = TOKENS) -> Any:
    """Random tokens, [B, n]."""
    return torch.randint(VOCAB, (batch, tokens), generator=torch.Generator().manual_seed(1))


def off(found: Any, expected: Any) -> float:
    """Error against what is expected, as a share of it."""
    return float((found.double() - expected).norm() / expected.norm())


def prefilled(decoder: Decoder, tokens: Any) -> Any:
    """Logits of one prefill; those that it does not write are NaN."""
    step = decoder.prefill(*tokens.shape)
    step.load(tokens)
    step.logits.fill_(math.nan)
    step.run()
    return step.logits


def stepped(decoder: Decoder, tokens: Any, first: int) -> Any:
    """Logits after a prefill of the first tokens and one step of decode for each further one."""
    batch, count = tokens.shape
    session = decoder.session(batch, count + 2)
    step = session.prefill(first)
    step.load(tokens[:, :first])
    step.run()
    step = session.decode(first)
    for place in range(first, count):
        step.load(tokens[:, place : place + 1], place)
        step.logits.fill_(math.nan)
        step.run()
    return step.logits


@pytest.mark.parametrize("name", BUILT)
def test_prefill_is_as_the_reference(name: str) -> None:
    """Logits of a prompt are those of the plain decoder."""
    decoder, tokens = tiny(BUILT[name]), prompt()

    assert off(prefilled(decoder, tokens), logits(decoder, tokens)) < TIGHT


@pytest.mark.parametrize("first", [1, 6])
@pytest.mark.parametrize("name", BUILT)
def test_prefill_then_decode_is_one_longer_prefill(name: str, first: int) -> None:
    """A cache that a prompt and steps filled says what one prompt of all the tokens says."""
    decoder, tokens = tiny(BUILT[name]), prompt()

    assert off(stepped(decoder, tokens, first), prefilled(decoder, tokens).double()) < TIGHT


@pytest.mark.parametrize("name", ["GQA", "a window", "chunks", "MLA with a query latent", "MoE", "shared experts"])
def test_the_ways_of_cuda_are_right_too(name: str) -> None:
    """What runs on CUDA alone, as far as torch's CPU follows: backends in order, experts without waiting."""
    decoder, tokens = tiny(BUILT[name], as_cuda=True), prompt()
    expected = logits(decoder, tokens)

    assert off(prefilled(decoder, tokens), expected) < TIGHT
    assert off(stepped(decoder, tokens, 6), expected) < TIGHT


@pytest.mark.parametrize("name", ROUTED)
def test_balanced_experts(name: str) -> None:
    """Balanced routing sends tokens to experts in turn, with equal weights."""
    decoder, tokens = tiny(BUILT[name], Setup("fp32", "fp32", "balanced")), prompt()

    assert off(prefilled(decoder, tokens), logits(decoder, tokens)) < TIGHT


@pytest.mark.parametrize("form", ["bf16", "fp16"])
@pytest.mark.parametrize("name", ["GQA", "a window and all", "MLA with a query latent", "MoE"])
def test_sixteen_bits(name: str, form: str) -> None:
    """In 16 bits logits are near those of fp64."""
    decoder, tokens = tiny(BUILT[name], Setup(form, form, "balanced")), prompt()
    expected = logits(decoder, tokens)

    assert decoder.prefill(1, 2).logits.dtype == cpu().dtype(form)
    assert off(prefilled(decoder, tokens), expected) < LOOSE
    if name != "MoE":  # a step alone is balanced otherwise than a prompt
        assert off(stepped(decoder, tokens, 6), expected) < LOOSE


@pytest.mark.parametrize("name", ["GQA", "biases", "MLA", "MoE", "shared experts"])
def test_fp8_weights(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """FP8 matrices and their scales multiply to what they stand for; a device without FP8 widens them."""
    monkeypatch.setattr("roofcast.profiler.decoder.has_fp8", lambda _: True)
    decoder, tokens = tiny(BUILT[name], Setup("fp8", "fp32")), prompt()
    expected = logits(decoder, tokens)

    assert off(prefilled(decoder, tokens), expected) < TIGHT
    assert off(stepped(decoder, tokens, 6), expected) < TIGHT
    assert decoder.embedding.dtype == torch.float32


def test_fp8_matrices_are_a_byte_an_element(monkeypatch: pytest.MonkeyPatch) -> None:
    """FP8: a byte for each element of the layers' matrices and four for each output; embedding, head and norms 2 bytes."""
    monkeypatch.setattr("roofcast.profiler.decoder.has_fp8", lambda _: True)
    spec = spec_of(layer(GQA, DENSE))
    rows = 64 + HIDDEN + 96 + HIDDEN
    matrices = 64 * HIDDEN + HIDDEN * 32 + 96 * HIDDEN + HIDDEN * 48

    assert tiny(spec, Setup("fp8", "bf16")).weight_bytes == matrices + 4 * rows + 2 * (2 * VOCAB * HIDDEN + 3 * HIDDEN)


@pytest.mark.parametrize("name", BUILT)
def test_weights_are_as_many_as_the_spec_counts(name: str) -> None:
    """The decoder holds the parameters that the spec counts, but for a key bias that is there and zero."""
    extra = GQA.kv_heads * GQA.head_dim if name == "a bias on queries and values" else 0

    assert tiny(BUILT[name]).weight_bytes == 4 * (BUILT[name].parameters + extra)


@pytest.mark.parametrize("name", BUILT)
def test_one_step_of_decode_reads_a_full_cache(name: str) -> None:
    """A step stands behind context - 1 random tokens, which its logits depend on, and writes all of them."""
    step = tiny(BUILT[name]).decode(3, 9)
    alone = tiny(BUILT[name]).decode(3, 1)
    for one in (step, alone):
        one.tokens.fill_(5)
        one.logits.fill_(math.nan)
        one.run()

    assert step.places.tolist() == [8, 8, 8]
    assert step.logits.shape == (3, VOCAB)
    assert torch.isfinite(step.logits).all()
    assert off(step.logits, alone.logits.double()) > 1e-3


def test_a_step_again_is_the_same() -> None:
    """A step that runs again on the same tokens writes the same logits: nothing of it is used up."""
    step = tiny(BUILT["MoE after dense layers, MLA"]).decode(2, 6)
    step.run()
    first = step.logits.clone()
    step.run()

    assert torch.equal(step.logits, first)


def test_seeds_draw_weights() -> None:
    """The same seed draws the same weights, another others."""
    one, same, other = (tiny(BUILT["GQA"], Setup("fp32", "fp32", seed=seed)) for seed in (3, 3, 4))

    assert torch.equal(one.head.data, same.head.data)
    assert not torch.equal(one.head.data, other.head.data)


@pytest.mark.parametrize("weights", ["fp32", "fp8"])
def test_weights_keep_the_size_of_what_passes(weights: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Matrices are N(0, 1 / inputs), in FP8 too, so that outputs are as large as inputs."""
    monkeypatch.setattr("roofcast.profiler.decoder.has_fp8", lambda _: True)
    decoder = tiny(spec_of(layer(GQA, MOE)), Setup(weights, "fp32"))
    attention, routed = cast("tuple[Any, ...]", decoder.halves)

    assert [
        full(one).std().item() * one.data.shape[-1] ** 0.5 for one in (attention.qkv, routed.down, routed.router)
    ] == [pytest.approx(1.0, abs=0.1)] * 3
    assert decoder.embedding.std().item() == pytest.approx(1.0, abs=0.1)
    assert decoder.norm.mean().item() == pytest.approx(1.0, abs=0.1)


def test_keys_without_a_bias() -> None:
    """Where only queries and values have a bias, that of the keys is zero."""
    attention = cast("Any", tiny(BUILT["a bias on queries and values"]).halves[0])
    bias = attention.qkv.bias

    assert bias[32:48].tolist() == [0.0] * 16
    assert bias[:32].abs().min() > 0
    assert bias[48:].abs().min() > 0


def test_a_tied_head_is_the_embedding() -> None:
    """Tied, there is one tensor."""
    decoder = tiny(BUILT["tied"])

    assert decoder.head.data.data_ptr() == decoder.embedding.data_ptr()


def test_stages_are_named_as_the_terms_of_estimate() -> None:
    """Every kernel is part of a term, in the order in which they run."""
    step = tiny(spec_of(layer(GQA, DENSE), layer(MLA, replace(MOE, shared=DENSE)))).decode(1, 2)
    names = [stage.name for stage in step.stages]
    dense = [
        "elementwise",
        "attn.qkv",
        "elementwise",
        "attn.decode",
        "attn.out",
        "elementwise",
        "ffn.gate_up",
        "ffn.down",
    ]
    latent = ["elementwise", "attn.qkv", "attn.qkv", "elementwise", "elementwise", "attn.up", "attn.decode", "attn.up"]
    routed = ["attn.out", "elementwise", "moe.router", "moe.experts", "ffn.shared", "ffn.shared", "elementwise"]

    assert names == ["embedding", *dense, *latent, *routed, "elementwise", "head"]
    assert {stage.family for stage in step.stages} <= set(FAMILIES)
    assert [stage.layer for stage in step.stages if stage.name == "attn.decode"] == [0, 1]
    assert "attn.prefill" in {stage.name for stage in tiny(BUILT["GQA"]).prefill(1, 2).stages}


def test_a_step_keeps_its_memory() -> None:
    """Runs write where the first wrote: tokens, logits and cache stay in place, as a graph needs."""
    session = tiny(BUILT["GQA"]).session(2, 4)
    step = session.decode()
    before = [one.data_ptr() for one in (step.logits, step.tokens, step.places, *session.caches[0])]
    step.load(prompt(2, 1), 2)
    step.run()

    assert [one.data_ptr() for one in (step.logits, step.tokens, step.places, *session.caches[0])] == before
    assert session.caches[0][0][:, :, 2].abs().sum() > 0
    assert session.caches[0][0][:, :, [0, 1, 3]].abs().sum() == 0


def test_memory_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """What does not fit the free memory is refused before it is drawn: weights, caches, buffers."""
    decoder = tiny(BUILT["GQA"])
    monkeypatch.setattr(Runtime, "free_bytes", lambda _: 10_000)

    with pytest.raises(OutOfMemoryError, match=r"^weights of 0\.0 GiB do not fit 0\.0 GiB that are free on"):
        tiny(BUILT["GQA"])
    with pytest.raises(OutOfMemoryError, match=r"^caches of"):
        decoder.session(8, 100)
    with pytest.raises(OutOfMemoryError, match=r"^activations of"):
        decoder.session(1, 15).prefill(15)


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (("fp32", "bf16"), "weights in fp32 with activations in bf16: they must be bf16 or fp8"),
        (("int4", "bf16"), "weights in int4 with activations in bf16: they must be bf16 or fp8"),
        (("fp8", "fp8"), "activations in fp8: the profiler has bf16, fp16, fp32"),
        (("bf16", "bf16", "even"), "routing even: it must be drawn or balanced"),
    ],
)
def test_setups_that_cannot_be(words: Any, complaint: str) -> None:
    """What does not go together is named, with what would."""
    with pytest.raises(ProfileUsageError) as caught:
        Setup(*words)

    assert str(caught.value) == complaint


def test_fp8_where_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """A CPU does not multiply FP8; CUDA devices do for activations in bf16."""
    with pytest.raises(ProfileUsageError, match=r"does not multiply fp8; it has bf16, fp16, fp32$"):
        tiny(BUILT["GQA"], Setup("fp8", "bf16"))
    monkeypatch.setattr("roofcast.profiler.decoder.has_fp8", lambda _: True)
    with pytest.raises(ProfileUsageError, match=r"activations in fp16: activations must be bf16$"):
        tiny(BUILT["GQA"], Setup("fp8", "fp16"), as_cuda=True)


def test_steps_beyond_the_cache() -> None:
    """A prompt or a token that the cache has no place for is refused."""
    session = tiny(BUILT["GQA"]).session(1, 4)

    with pytest.raises(ProfileUsageError, match="a prompt of 5: the cache has 4 places"):
        session.prefill(5)
    with pytest.raises(ProfileUsageError, match="a token after 4 others: the cache has 4 places"):
        session.decode(4)


@st.composite
def specs(draw: st.DrawFn) -> Any:
    """Small models of one or two layers, as they come."""
    layers = []
    for _ in range(draw(st.integers(1, 2))):
        kv, shared, width = draw(st.integers(1, 2)), draw(st.integers(1, 3)), draw(st.integers(1, 4)) * 2
        window = draw(st.sampled_from([None, 1, 2, 3, 8]))
        attention = GroupedAttention(
            kv * shared,
            kv,
            width,
            draw(st.integers(1, 8)),
            window=window,
            chunked=draw(st.booleans()) and window is not None,
            qkv_bias=draw(st.booleans()),
            qk_norm_parameters=draw(st.sampled_from([0, 2 * width])),
        )
        mixer = draw(st.sampled_from([attention, attention, MLA]))
        dense = DenseFeedForward(HIDDEN, draw(st.integers(1, 20)), gated=draw(st.booleans()), bias=draw(st.booleans()))
        routed = replace(MOE, top_k=draw(st.integers(1, 6)), shared=draw(st.sampled_from([None, dense])))
        layers.append(layer(mixer, draw(st.sampled_from([dense, routed]))))
    return spec_of(*layers, tied=draw(st.booleans()))


@settings(max_examples=15)
@given(specs(), st.integers(1, 2), st.integers(2, 6), st.data())
def test_any_small_model_is_as_the_reference(spec: Any, batch: int, tokens: int, data: st.DataObject) -> None:
    """Prefill is the reference, and a cache filled in any two parts says the same."""
    decoder, asked = tiny(spec), prompt(batch, tokens)
    expected = logits(decoder, asked)

    assert off(prefilled(decoder, asked), expected) < TIGHT
    assert off(stepped(decoder, asked, data.draw(st.integers(1, tokens - 1))), expected) < TIGHT
