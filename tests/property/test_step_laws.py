"""Laws of a step's work and least time, over models of every attention kind, machines and shapes."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from roofcast.calculators.deployment import Deployment, Ready, prepare
from roofcast.calculators.phases import Asked, Point, answer_point
from roofcast.calculators.step import Estimate, estimate
from roofcast.hwdb.lookup import find_accelerator
from roofcast.modelspec.errors import ModelError
from roofcast.modelspec.formats import FORMATS
from roofcast.modelspec.op import Op
from roofcast.modelspec.sharding import Shards
from roofcast.modelspec.step import Step, chunked_prefill, decode_step, mixed_step, prefill_step
from tests.checkpoints import catalogued, loaded
from tests.property.strategies import CONFIGS

if TYPE_CHECKING:
    from collections.abc import Callable

    from roofcast.hwdb.accelerator import Accelerator

# every attention kind, dense and mixed: GQA, MHA, MQA, MLA, an index, windows, chunks, recurrences, an encoder
MODELS = (
    "llama-3.1-8b", "llama-2-7b", "falcon-7b", "deepseek-v3", "deepseek-v3.2", "deepseek-v4-flash", "gpt-oss-20b",
    "gemma-3-4b-it", "gemma-3n-e4b", "llama-4-scout-17b-16e", "qwen3-30b-a3b", "qwen3-next-80b-a3b", "nemotron-h-8b",
    "falcon-mamba-7b", "falcon-h1-7b", "jamba-1.5-mini", "rwkv-4-7b-pile", "zamba2-2.7b", "recurrentgemma-2b",
    "xlstm-7b", "minimax-text-01", "lfm2-1.2b", "kimi-linear-48b-a3b", "whisper-small", "zaya1-8b",
)  # fmt: skip
GPUS = ("h200", "a100", "rtx-2080-ti", "mi300x", "b200")
NEVER_LESS = 1 - 1e-9  # rounding of long sums


@cache
def card(name: str) -> Accelerator:
    """An accelerator of the database."""
    return find_accelerator(name).accelerator


@cache
def known(name: str, gpu: str = "h200", kv: str = "bf16", weights: str | None = None, tp: int = 1) -> Ready:
    """A model of the catalogue on a device, prepared once."""
    asked = FORMATS[weights] if weights else None
    return prepare(catalogued(name), Deployment(card(gpu), FORMATS[kv], asked, Shards(tp=tp)))


@st.composite
def small(draw: st.DrawFn) -> Ready:
    """Any decoder of a config on any device."""
    config = draw(CONFIGS)
    return prepare(loaded(config), Deployment(card(draw(st.sampled_from(GPUS))), FORMATS["bf16"]))


READY = st.sampled_from(MODELS).map(known) | small()
BATCHES, CONTEXTS, MORE = st.integers(1, 300), st.integers(1, 20_000), st.integers(0, 20_000)


def least(made: Ready, step: Step) -> float:
    """Least time of a step. [s]"""
    return estimate(made, step).bound


def total(work: Estimate) -> tuple[float, float]:
    """FLOP and bytes of one device."""
    return work.flops, work.bytes


# --- longer and more is never faster


@given(READY, BATCHES, CONTEXTS, MORE, st.integers(0, 300))
def test_decode_never_gets_faster_with_context_or_batch(
    made: Ready, batch: int, context: int, more: int, also: int
) -> None:
    """A longer context, or further sequences, take as long or longer."""
    time = least(made, decode_step(batch, context))

    assert least(made, decode_step(batch, context + more)) >= time * NEVER_LESS
    assert least(made, decode_step(batch + also, context)) >= time * NEVER_LESS


@given(READY, st.integers(1, 8), CONTEXTS, MORE, st.integers(0, 8))
def test_prefill_never_gets_faster_with_prompt_or_batch(
    made: Ready, batch: int, prompt: int, more: int, also: int
) -> None:
    """A longer prompt, or further ones, take as long or longer; one that is partly cached, less."""
    time = least(made, prefill_step(batch, prompt))

    assert least(made, prefill_step(batch, prompt + more)) >= time * NEVER_LESS
    assert least(made, prefill_step(batch + also, prompt)) >= time * NEVER_LESS


@given(READY, BATCHES, CONTEXTS, st.integers(1, 4096), st.integers(0, 4096), st.integers(0, 300))
def test_mixed_steps_never_get_faster(made: Ready, batch: int, context: int, chunk: int, more: int, also: int) -> None:
    """More sequences, a longer context or a larger chunk beside them take as long or longer."""
    time = least(made, mixed_step(batch, context, chunk))

    assert least(made, mixed_step(batch + also, context, chunk)) >= time * NEVER_LESS
    assert least(made, mixed_step(batch, context + more, chunk)) >= time * NEVER_LESS
    assert least(made, mixed_step(batch, context, chunk + more)) >= time * NEVER_LESS


SHARED = (
    "llama-3.1-8b",
    "falcon-40b",
    "deepseek-v3",
    "gpt-oss-20b",
    "qwen3-next-80b-a3b",
    "nemotron-h-8b",
    "gemma-3-4b-it",
)


@given(st.sampled_from(SHARED), st.sampled_from((1, 2, 4)), BATCHES, CONTEXTS, MORE, st.integers(0, 300))
def test_shared_steps_never_get_faster(name: str, tp: int, batch: int, context: int, more: int, also: int) -> None:
    """The same over 1, 2 and 4 devices, sums between them included."""
    made = known(name, tp=tp)
    time = least(made, decode_step(batch, context))

    assert least(made, decode_step(batch, context + more)) >= time * NEVER_LESS
    assert least(made, decode_step(batch + also, context)) >= time * NEVER_LESS
    assert least(made, prefill_step(1, context + more)) >= least(made, prefill_step(1, context)) * NEVER_LESS


# --- formats and machines


# each no faster than the one before on these devices: as many bits or more, and no higher a peak
WEIGHTS = ("fp8", "bf16", "fp32")
SAME_PEAK = ("int4", "bf16")
CACHES = (("fp8", "bf16"), ("kivi2", "kivi4"), ("kivi4", "bf16"), ("int8", "bf16"), ("bf16", "fp32"))


@given(st.sampled_from(MODELS), st.sampled_from(("h200", "b200", "a100")), BATCHES, CONTEXTS)
def test_wider_weights_are_never_faster(name: str, gpu: str, batch: int, context: int) -> None:
    """FP8, bf16, fp32: more bytes at lower peaks; int4 and bf16 multiply at one peak."""
    for step in (decode_step(batch, context), prefill_step(1, context)):
        for formats in (WEIGHTS, SAME_PEAK):
            times = [least(known(name, gpu, weights=form), step) for form in formats]
            assert all(wide >= narrow * NEVER_LESS for narrow, wide in pairwise(times))


@given(st.sampled_from(MODELS), st.sampled_from(CACHES), BATCHES, CONTEXTS)
def test_a_wider_cache_is_never_faster(name: str, pair: tuple[str, str], batch: int, context: int) -> None:
    """More bits of keys and values, multiplied at no higher a peak."""
    for step in (decode_step(batch, context), prefill_step(1, context + 1, cached=context)):
        narrow, wide = (least(known(name, kv=kv), step) for kv in pair)
        assert wide >= narrow * NEVER_LESS


@given(READY, BATCHES, CONTEXTS, st.floats(1, 16), st.floats(1, 16))
def test_a_better_machine_is_never_slower(made: Ready, batch: int, context: int, faster: float, wider: float) -> None:
    """More bandwidth, or a higher peak of any format, takes as long or less; both k times as good take 1/k."""
    roofs, step = made.roofs, mixed_step(batch, context, 64)
    better = replace(roofs, peaks={name: peak * faster for name, peak in roofs.peaks.items()})
    broader = replace(roofs, bandwidth=roofs.bandwidth * wider)
    both = replace(better, bandwidth=roofs.bandwidth * faster)
    time = least(made, step)

    assert least(replace(made, roofs=better), step) * NEVER_LESS <= time
    assert least(replace(made, roofs=broader), step) * NEVER_LESS <= time
    assert least(replace(made, roofs=both), step) == pytest.approx(time / faster, rel=1e-9)


# --- the bound


@given(READY, BATCHES, CONTEXTS, st.integers(1, 4096))
def test_the_bound_is_at_least_each_of_its_limits(made: Ready, batch: int, context: int, chunk: int) -> None:
    """All FLOP at the highest peak, all bytes at the bandwidth; activations through memory only add."""
    work = estimate(made, mixed_step(batch, context, chunk))

    assert work.bound >= work.flops / max(made.roofs.peaks.values()) * NEVER_LESS
    assert work.bound >= work.bytes / made.roofs.bandwidth * NEVER_LESS
    assert work.full >= work.bound
    assert work.full >= (work.bytes + work.activation_bytes) / made.roofs.bandwidth * NEVER_LESS
    assert all(term.full >= term.bound >= 0 for term in work.terms)


@given(READY, BATCHES, CONTEXTS)
def test_there_is_no_number_outside_the_terms(made: Ready, batch: int, context: int) -> None:
    """Time, FLOP and bytes are sums over the terms, each limited by what it says."""
    work, bandwidth = estimate(made, decode_step(batch, context)), made.roofs.bandwidth
    ops = [term.op for term in work.terms if isinstance(term.op, Op)]

    assert work.bound == pytest.approx(sum(term.bound for term in work.terms), rel=1e-12)
    assert (work.flops, work.weight_bytes) == (sum(op.flops for op in ops), sum(op.weight_bytes for op in ops))
    for term in work.terms:
        assert isinstance(term.op, Op)
        limits = {"compute": term.op.flops / made.roofs.peaks[term.op.format], "memory": term.op.bytes / bandwidth}
        assert limits[term.bound_by] == pytest.approx(max(limits.values()), rel=1e-12)
        assert term.bound == pytest.approx(max(limits.values()), rel=1e-12)


# --- steps together and in pieces


@given(READY, BATCHES, CONTEXTS, st.integers(1, 4096), st.integers(0, 4096))
def test_a_step_of_two_groups_is_between_them(made: Ready, batch: int, context: int, chunk: int, before: int) -> None:
    """Weights are read once for both: no more than the two apart, no less than either."""
    decoding, prompt = decode_step(batch, context), prefill_step(1, before + chunk, cached=before)
    both = least(made, Step(decoding.groups + prompt.groups))
    apart = least(made, decoding), least(made, prompt)

    assert both <= sum(apart) / NEVER_LESS
    assert both >= max(apart) * NEVER_LESS


@settings(max_examples=60)
@given(READY, st.integers(2, 6000), st.integers(1, 3000))
def test_chunks_do_the_same_work_and_read_more(made: Ready, prompt: int, chunk: int) -> None:
    """FLOP of a prompt in pieces are the whole's, weights are read a piece; it takes as long or longer.

    Latents of earlier pieces are expanded again, or seen in the absorbed form: of MLA they are more.
    """
    chunk = max(chunk, prompt // 20 + 1)
    whole = estimate(made, prefill_step(1, prompt))
    parts = [estimate(made, step) for step in chunked_prefill(1, prompt, chunk)]

    flops = sum(part.flops for part in parts)
    latent = any(hasattr(mixing.mixer, "prefix_flops") for mixing in made.program.mixers)
    assert flops >= whole.flops * NEVER_LESS
    assert latent or flops == pytest.approx(whole.flops, rel=1e-9)
    assert sum(part.weight_bytes for part in parts) >= whole.weight_bytes * NEVER_LESS
    assert sum(part.state_bytes for part in parts) >= whole.state_bytes * NEVER_LESS
    assert sum(part.bound for part in parts) >= whole.bound * NEVER_LESS


@given(READY, CONTEXTS, st.floats(0, 0.99))
def test_what_is_cached_need_not_be_computed(made: Ready, prompt: int, share: float) -> None:
    """A prefix in the cache saves its FLOP, all but the last token's at most."""
    hit = answer_point(made, Asked("prefill", 1, prompt, cached=share))
    whole = answer_point(made, Asked("prefill", 1, prompt))

    assert hit.work.flops <= whole.work.flops / NEVER_LESS
    assert hit.asked.hit < prompt


# --- devices together


def shared(config: Ready, tp: int) -> Ready | None:
    """The same model on `tp` devices, where its heads divide."""
    try:
        return prepare(config.model, replace(config.deployment, shards=Shards(tp=tp)))
    except (ValueError, ModelError):
        return None


@given(READY, st.sampled_from((2, 4, 8)), BATCHES, CONTEXTS)
def test_devices_together_do_no_less_than_one(made: Ready, tp: int, batch: int, context: int) -> None:
    """FLOP, bytes and device time of all that share a step are at least those of one alone."""
    cut = shared(made, tp)
    if cut is None:
        return
    for step in (decode_step(batch, context), prefill_step(1, context)):
        alone, each = estimate(made, step), estimate(cut, step)
        assert all(tp * mine >= whole * NEVER_LESS for mine, whole in zip(total(each), total(alone), strict=True))
        assert tp * each.bound >= alone.bound * NEVER_LESS


@given(st.sampled_from(("llama-3.1-8b", "llama-2-7b", "gpt2", "phi-2")), st.sampled_from((2, 4)), BATCHES, CONTEXTS)
def test_matrices_and_scores_of_dense_models_are_cut_and_not_copied(
    name: str, tp: int, batch: int, context: int
) -> None:
    """Where heads divide, the devices' FLOP together are one's but for norms and biases, which each repeats."""
    made = known(name)
    cut = shared(made, tp)
    if cut is None:  # GPT-2's 12 heads on 8
        return
    step = decode_step(batch, context)
    sums = [
        sum(op.flops for op in estimate(one, step).ops if op.name != "elementwise") * one.deployment.shards.devices
        for one in (made, cut)
    ]

    assert sums[0] == pytest.approx(sums[1], rel=1e-9)


LAYOUTS: dict[str, Callable[[int], Shards]] = {
    "replicas": lambda n: Shards(dp=n),
    "replicas that share experts": lambda n: Shards(dp=n, ep=n),
    "devices that share all": lambda n: Shards(tp=n, ep=n),
    "stages": lambda n: Shards(pp=n),
}


@given(st.sampled_from(sorted(LAYOUTS)), st.sampled_from((2, 4)), st.integers(1, 64), CONTEXTS)
def test_every_layout_does_all_of_the_work(layout: str, count: int, each: int, context: int) -> None:
    """Qwen3-30B-A3B, a batch that divides: devices x time is at least what one alone takes, so is the rate below n times."""
    batch = each * count
    alone: Point = answer_point(known("qwen3-30b-a3b"), Asked("decode", batch, context))
    made = prepare(
        known("qwen3-30b-a3b").model, replace(known("qwen3-30b-a3b").deployment, shards=LAYOUTS[layout](count))
    )
    point = answer_point(made, Asked("decode", batch, context))

    assert count * point.work.bound >= alone.work.bound * NEVER_LESS
    assert count * point.work.flops >= alone.work.flops * NEVER_LESS
