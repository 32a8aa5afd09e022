"""What one new token costs and reads, by numbers worked by hand from the sizes of published models."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from roofcast.modelspec.attention import GroupedAttention
from roofcast.modelspec.compressed import CompressedAttention
from roofcast.modelspec.cross import CrossAttention
from roofcast.modelspec.errors import UndeterminedModelError
from roofcast.modelspec.indexer import Indexer
from roofcast.modelspec.latent import LatentAttention
from roofcast.modelspec.relative import RelativeAttention
from roofcast.modelspec.spec import build_spec
from tests.checkpoints import DEEPSEEK_V3, LLAMA_3_1_8B, MISTRAL_7B_V0_1, catalogued
from tests.model_configs import published

if TYPE_CHECKING:
    from roofcast.modelspec.attention import Attention
    from roofcast.modelspec.state import Kept

BF16 = 2  # B


def first(config: dict[str, Any]) -> Attention:
    """Return what mixes tokens in the first layer of a config."""
    return build_spec(config).layers[0].mixers[0]


def elements(parts: tuple[Kept, ...], context: int) -> list[int]:
    """Elements of each part at a context."""
    return [part.elements * part.entries(context) for part in parts]


def intensity(attention: Attention, context: int) -> float:
    """FLOP for each byte that one new token reads of a cache in bf16."""
    return attention.decode_flops(context) / (BF16 * sum(elements(attention.reads, context)))


@pytest.mark.parametrize(
    ("attention", "flop_per_byte"),
    [
        (first(LLAMA_3_1_8B), 4),  # 32 / 8 heads
        (catalogued("qwen2.5-1.5b").spec.layers[0].mixers[0], 6),  # 12 / 2
        (GroupedAttention(32, 32, 128, 128), 1),  # MHA
        (GroupedAttention(71, 1, 64, 64), 71),  # MQA: Falcon-7B
    ],
)
@pytest.mark.parametrize("context", [1, 1000, 131072])
def test_grouped_queries_are_the_intensity(attention: Attention, flop_per_byte: float, context: int) -> None:
    """4 C n_q d FLOP over 4 C n_kv d bytes of bf16 is n_q / n_kv, at every context."""
    assert intensity(attention, context) == flop_per_byte


def test_a_token_of_llama_at_8k() -> None:
    """Llama 3.1 8B, a layer: 4 x 8192 x 32 x 128 FLOP over 8192 x 8 x 256 elements."""
    layer = first(LLAMA_3_1_8B)

    assert layer.decode_flops(8192) == 134_217_728
    assert elements(layer.reads, 8192) == [16_777_216]


def test_mla_works_absorbed() -> None:
    """DeepSeek-V3: 2 x 128 x (2 x 512 + 64) FLOP over 576 x 2 bytes a token of context: 241.8."""
    layer = first(DEEPSEEK_V3)

    assert layer.decode_flops(1) == 2 * 128 * 1088
    assert elements(layer.reads, 1) == [576]
    assert intensity(layer, 4096) == pytest.approx(241.8, abs=0.03)


@pytest.mark.parametrize(
    ("context", "flops", "reads"),
    [
        (1000, 1000 * 278_528 + 1000 * 16_384, [1000 * 576, 1000 * 128]),
        (4096, 570_425_344 + 67_108_864, [2048 * 576, 4096 * 128]),
        (65536, 570_425_344 + 1_073_741_824, [2048 * 576, 65536 * 128]),
    ],
)
def test_an_index_reads_2048_latents_and_all_of_its_keys(context: int, flops: int, reads: list[int]) -> None:
    """DeepSeek-V3.2: 2 min(C, 2048) 128 x 1088 for the latents, and 2 C 64 x 128 for the index, which at 64k leads."""
    layer = first(published("deepseek-ai/DeepSeek-V3.2"))

    assert layer.decode_flops(context) == flops
    assert elements(layer.reads, context) == reads
    assert elements(layer.state, context) == [context * 576, context * 128]


def test_an_earlier_layers_index_selects_too() -> None:
    """Without an index of its own a layer scores nothing and reads the selected latents alone."""
    layer = LatentAttention(128, 512, 1536, 128, 64, 128, selected=2048)

    assert layer.decode_flops(65536) == 2 * 2048 * 128 * 1088
    assert elements(layer.reads, 65536) == [2048 * 576]
    assert elements(layer.state, 65536) == [65536 * 576]


def test_pooled_keys_are_read_one_a_pool() -> None:
    """Pools of 16: 2 C / 16 x 32 x 128 FLOP of scores over C / 16 keys of 128, though 257 elements a token are kept."""
    index = Indexer(32, 128, 2048, pool=16, gated=True)
    layer = GroupedAttention(32, 8, 128, 128, index=index)

    assert index.decode_flops(4096) == 2 * 256 * 32 * 128
    assert elements(layer.reads, 4096) == [2048 * 2048, 256 * 128]
    assert elements(layer.state, 4096) == [4096 * 2048, 4096 * 257]


def test_a_window_bounds_work_and_bytes() -> None:
    """Mistral 7B v0.1 sees 4,096 tokens: past them a token costs 4 x 4096 x 32 x 128 and reads 4096 x 2048."""
    layer = first(MISTRAL_7B_V0_1)

    assert layer.decode_flops(100) == 4 * 100 * 4096
    assert [layer.decode_flops(n) for n in (4096, 4097, 32768)] == [67_108_864] * 3
    assert elements(layer.reads, 32768) == [4096 * 2048]


def test_a_window_that_masks_reads_less_than_is_kept() -> None:
    """GPT-Neo's local layers keep every token and see 256: 4 x 256 x 16 x 128 FLOP over 256 x 4096 elements."""
    layer = GroupedAttention(16, 16, 128, 128, window=256, masks=True)

    assert layer.decode_flops(2048) == 2_097_152
    assert elements(layer.reads, 2048) == [256 * 4096]
    assert elements(layer.state, 2048) == [2048 * 4096]


def test_a_chunk_counts_as_full() -> None:
    """Llama 4 Scout, chunks of 8,192: 4 x 8192 x 40 x 128 from there on, wherever in its chunk the token stands."""
    layer = first(published("meta-llama/Llama-4-Scout-17B-16E-Instruct"))

    assert [layer.decode_flops(n) for n in (8192, 8193, 16384)] == [4 * 8192 * 5120] * 3
    assert elements(layer.reads, 16384) == [8192 * 2048]


def test_layers_that_alternate() -> None:
    """gpt-oss-20b, 64 / 8 heads of 64: 128 tokens in one layer, all in the next, 8 FLOP/B in both."""
    near, far = (layer.mixers[0] for layer in build_spec(published("openai/gpt-oss-20b")).layers[:2])

    assert (near.decode_flops(8192), far.decode_flops(8192)) == (2_097_152, 134_217_728)
    assert elements((*near.reads, *far.reads), 8192) == [128 * 1024, 8192 * 1024]
    assert intensity(near, 8192) == intensity(far, 8192) == 8


def test_layers_that_keep_nothing_read_all_the_same() -> None:
    """Gemma 3n E4B, 8 / 2 heads of 256: of 35 layers the last 15 read the caches of earlier ones, windows of 512."""
    layers = catalogued("gemma-3n-e4b").spec.layers
    near, far = layers[20].mixers[0], layers[34].mixers[0]

    assert near.state == far.state == ()
    assert elements(near.reads, 4096) == [512 * 1024]
    assert elements(far.reads, 4096) == [4096 * 1024]
    assert (near.reads, far.reads) == (layers[0].mixers[0].reads, layers[4].mixers[0].reads)
    assert far.decode_flops(4096) == 4 * 4096 * 2048
    assert sum(map(bool, (layer.state for layer in layers))) == 20


def test_a_latent_that_another_layer_keeps_is_read() -> None:
    """Mistral Large 4's readers keep nothing, or the keys of their index, and read the latents that it selects."""
    reader = LatentAttention(128, 512, 1536, 128, 64, 128, index=Indexer(64, 128, 2048), stores=False)

    assert elements(reader.state, 4096) == [4096 * 128]
    assert elements(reader.reads, 4096) == [2048 * 576, 4096 * 128]


@pytest.mark.parametrize(
    ("ratio", "pairs", "index", "reads"),
    [
        (0, 128, 0, [127 * 1024]),
        (4, 128 + 512, 2 * 16384 * 64 * 128, [127 * 512, 512 * 512, 16384 * 128, 5120]),
        (128, 128 + 512, 0, [127 * 512, 512 * 512, 127 * 1024]),
    ],
)
def test_compressed_attention_by_hand(ratio: int, pairs: int, index: int, reads: list[int]) -> None:
    """DeepSeek-V4-Flash at 64k, 64 heads of 512: a window of 128, and of 16,384 or 512 entries 512.

    64 index heads of 128 select among the many; what waits to be compressed is read as it is kept.
    """
    mixers = (layer.mixers[0] for layer in build_spec(published("nvidia/DeepSeek-V4-Flash-NVFP4")).layers)
    layer = next(mixer for mixer in mixers if isinstance(mixer, CompressedAttention) and mixer.ratio == ratio)

    assert layer.decode_flops(65536) == 4 * 64 * 512 * pairs + index
    assert elements(layer.reads, 65536) == reads


def test_entries_below_what_is_selected_are_all_read() -> None:
    """At 1,024 tokens there are 256 entries of 4, fewer than the 512 selected: 4 x 64 x 512 (128 + 256) and scores."""
    layer = CompressedAttention(64, 512, 1024, 8, 1024, 128, 4, 64, 128, 512)

    assert layer.decode_flops(1024) == 4 * 64 * 512 * 384 + 2 * 256 * 64 * 128
    assert elements(layer.reads, 1024)[1:3] == [256 * 512, 256 * 128]


def test_a_recurrence_costs_the_same_at_every_context() -> None:
    """Qwen3-Next: 7 x 32 x 128 x 128 FLOP a token and the whole state of a convolution and matrices."""
    layer = catalogued("qwen3-next-80b-a3b").spec.layers[0].mixers[0]

    assert {layer.decode_flops(n) for n in (1, 4096, 1 << 20)} == {3_670_016}
    assert layer.reads == layer.state
    assert elements(layer.reads, 1 << 20) == [16 * 1024, 32 * 512, 32 * 128 * 128]


def test_cross_attention_costs_the_encoders_tokens() -> None:
    """Whisper-tiny: 4 x 1500 x 6 x 64 FLOP and 1500 x 6 x 128 elements for every token; unknown where 1500 is."""
    layer = CrossAttention(GroupedAttention(6, 6, 64, 64), 1500)

    assert layer.decode_flops(1) == layer.decode_flops(448) == 2_304_000
    assert elements(layer.reads, 448) == [1_152_000]
    with pytest.raises(UndeterminedModelError, match="encoder-tokens"):
        CrossAttention(layer.geometry, None).decode_flops(1)


def test_biases_by_distance_cost_every_token_the_same() -> None:
    """Inkling: 4 min(C, W) 64 x 128 for scores and values, and 2 x 63 x 16 x 1024 for the profiles of the bias."""
    layer = RelativeAttention(64, 8, 128, 6144, 16, 1024, 4, window=512)

    assert layer.decode_flops(100) == 4 * 100 * 8192 + 2_064_384
    assert layer.decode_flops(4096) == 4 * 512 * 8192 + 2_064_384
    assert layer.reads == layer.state
