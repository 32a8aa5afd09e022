"""What devices that share a model hold and do beyond their share: indexes, ends of a pipeline, chunks, masks in files."""

from __future__ import annotations

import pytest

from roofcast.calculators.deployment import Deployment, Ready, cache_on_one, prepare
from roofcast.calculators.phases import Asked, answer_point
from roofcast.calculators.step import estimate
from roofcast.calculators.variants import Base, of_cache, of_weights
from roofcast.hwdb.lookup import find_accelerator
from roofcast.modelspec.formats import FORMATS
from roofcast.modelspec.model import load_model
from roofcast.modelspec.sharding import Shards
from roofcast.modelspec.source import resolve
from roofcast.modelspec.step import decode_step, prefill_step


def ready(name: str, shards: Shards, gpu: str = "h200-sxm") -> Ready:
    """Return a catalogue model on devices that share it so."""
    model = load_model(resolve(name, offline=True))
    return prepare(model, Deployment(find_accelerator(gpu).accelerator, FORMATS["bf16"], shards=shards))


def test_an_index_scores_on_every_device() -> None:
    """DeepSeek-V3.2's index is whole on each of 8 GPUs, keys, projections and scores; its latent attention splits.

    A layer, 65,536 tokens: latents 2 (n 2048 - 2048^2 / 2) 128 (128 + 64 + 128), index 2 (n^2 / 2) 64 x 128.
    """
    latents = 2 * (65536 * 2048 - 2048**2 / 2) * 128 * 320
    index = 2 * (65536**2 / 2) * 64 * 128
    (term,) = estimate(ready("deepseek-v3.2-exp", Shards(tp=8)), prefill_step(1, 65536)).term("attn.prefill")

    assert term.op.flops == pytest.approx(61 * (latents / 8 + index))  # type: ignore[union-attr]


def test_an_index_scores_on_every_device_in_decode() -> None:
    """At 65,536 tokens: 2,048 selected latents, absorbed, over 8 GPUs, and all index keys on each."""
    latents, index = 2 * 2048 * 128 * (2 * 512 + 64), 2 * 65536 * 64 * 128
    (term,) = estimate(ready("deepseek-v3.2-exp", Shards(tp=8)), decode_step(4, 65536)).term("attn.decode")

    assert term.op.flops == pytest.approx(61 * 4 * (latents / 8 + index))  # type: ignore[union-attr]


def test_cached_latents_are_expanded_or_seen_absorbed() -> None:
    """Behind 4,096 cached tokens, DeepSeek-V3 expands them for 2,048 new ones, and sees them absorbed for one."""
    made = ready("deepseek-v3", Shards(tp=8), "b200")
    pairs = {new: (4096 + new) ** 2 / 2 - 4096**2 / 2 for new in (2048, 1)}
    expansion = 2 * 4096 * 512 * 128 * 256
    absorbed = 2 * 1 * 4096 * 128 * (1024 - 256)
    expected = {2048: 2 * pairs[2048] * 128 * 320 + expansion, 1: 2 * pairs[1] * 128 * 320 + absorbed}

    for new, flops in expected.items():
        (term,) = estimate(made, prefill_step(1, 4096 + new, cached=4096)).term("attn.prefill")
        assert term.op.flops == pytest.approx(61 * flops / 8)  # type: ignore[union-attr]


def test_the_fullest_stage_holds_an_end() -> None:
    """Llama 3.1 8B over 4 stages: 8 layers of 218,112,000 parameters and embedding or head, 128,256 x 4,096."""
    made = ready("llama-3.1-8b", Shards(pp=4))

    assert made.weight_bytes == pytest.approx(2 * (8 * 218_112_000 + 128_256 * 4096), rel=1e-4)


def test_the_fullest_stage_holds_most_of_the_cache() -> None:
    """61 layers over 2 stages: 31 of them on one, each with 576 elements a token."""
    assert cache_on_one(ready("deepseek-v3", Shards(pp=2, tp=8)), 1, 4096) == pytest.approx(31 * 576 * 2 * 4096)


def test_every_part_of_a_pipeline_takes_a_chunk() -> None:
    """64 sequences over 4 stages are 4 parts of 16; beside each, 496 of 512 tokens are a prompt's."""
    point = answer_point(ready("llama-3.1-8b", Shards(pp=4)), Asked("mixed", 64, 4096, budget=512))

    assert point.tokens == 64 + 4 * 496


def test_prompts_beside_decoding_sequences_take_their_room() -> None:
    """A mixed step fits where the cache of its prompt does too: 17 sequences and not 16 at 32k on an H100."""
    made = ready("llama-3.1-8b", Shards(), "h100-sxm")

    assert answer_point(made, Asked("decode", 16, 32768)).fits
    assert not answer_point(made, Asked("mixed", 16, 32768)).fits


def test_masks_in_files_are_no_weights() -> None:
    """GPT-2 medium's files hold causal masks; a step reads 4 bytes of each parameter but the 1,023 other positions."""
    made = estimate(ready("gpt2-medium", Shards()), decode_step(1, 128))

    assert made.weight_bytes == pytest.approx(4 * (354_823_168 - 1024 * 1024 + 2 * 1024), rel=1e-6)
    assert {op.format for op in made.ops if op.name == "ffn.down"} == {"fp32"}


def test_weights_of_experts_that_are_shared_can_be_narrower() -> None:
    """Over 16 replicas that share experts, weights of 8 bits are offered in 4, as on 8 GPUs."""
    made = ready("deepseek-v3", Shards(dp=16, ep=16))

    assert [change.change for change in of_weights(Base(made, 16, 4096, 4096))] == [
        "weights in int4",
        "weights in q4_k_m",
    ]


def test_a_model_without_a_cache_has_none_to_narrow() -> None:
    """Pure Mamba keeps states alone, which no format of the cache changes."""
    assert list(of_cache(Base(ready("falcon-mamba-7b", Shards()), 16, 4096, 4096))) == []


def test_decimal_shares_are_whole_tokens() -> None:
    """29 % of 100 tokens are 29; at least one token is computed anew."""
    assert Asked("prefill", 1, 100, cached=0.29).hit == 29
    assert Asked("prefill", 1, 100, cached=0.9999).hit == 99
