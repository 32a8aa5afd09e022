"""vLLM's cache laid out: what layers keep, groups, padding, pages of one size, and blocks of a request."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from roofcast.calculators.engines.kv_groups import Layout, PagedRoom, Paging, Sharing, arrange
from roofcast.calculators.engines.kv_specs import (
    CacheFormats,
    Keeps,
    counted,
    layer_keeps,
    mixer_keeps,
    without_windows,
)
from roofcast.modelspec.formats import FORMATS
from roofcast.modelspec.latent import LatentAttention
from tests.engine_records import asked, memory, model_of

BF16, FP8, INT8, FP32 = (FORMATS[name] for name in ("bf16", "fp8", "int8", "fp32"))
FULL = Keeps("full", 4096.0)
WINDOW = Keeps("sliding", 4096.0, reach=1024)


def kept(model: str, kv: Any = BF16, **formats: Any) -> dict[tuple[str, float], int]:
    """Return how many layers of a model keep each kind and size: of a token, or of a state."""
    found = counted(layer_keeps(model_of(model).spec.layers, CacheFormats(kv, BF16, **formats)))
    return {(one.kind, one.token or one.state): layers for one, layers in found.items()}


# what a layer keeps


@pytest.mark.parametrize(
    ("model", "kv", "formats", "expected"),
    [
        # 8 KV heads x (128 + 128) x 2 B
        ("llama-3.1-8b", BF16, {}, {("full", 4096): 32}),
        ("llama-3.1-8b", FP8, {}, {("full", 2048): 32}),
        ("llama-3.1-8b", BF16, {"tp": 4}, {("full", 1024): 32}),
        # 8 heads on 16 devices: each holds one, twice in all
        ("llama-3.1-8b", BF16, {"tp": 16}, {("full", 512): 32}),
        # a byte an element, and 4 B of scale for keys and for values of each of 2 heads
        ("llama-3.1-8b", INT8, {"tp": 4, "head_scales": True}, {("full", 2 * 256 + 2 * 2 * 4): 32}),
        # one latent of 512 + 64, x 2 B, whatever the devices
        ("deepseek-v2-lite", BF16, {}, {("mla", 1152): 27}),
        ("deepseek-v2-lite", BF16, {"tp": 8}, {("mla", 1152): 27}),
        ("deepseek-v2-lite", FP8, {}, {("mla", 576): 27}),
        # before 0.7: keys and values of 16 heads, padded to 256
        ("deepseek-v2-lite", BF16, {"latent": False}, {("full", 2 * 16 * 256 * 2): 27}),
        ("deepseek-v2-lite", BF16, {"latent": False, "tp": 8}, {("full", 2 * 2 * 256 * 2): 27}),
        # a sparse index's key: 128 B and a scale in fp32; the latent beside it in fp8: 656 B
        ("deepseek-v3.2", FP8, {"tp": 8}, {("mla", 656): 61, ("mla", 132): 61}),
        ("deepseek-v3.2", BF16, {}, {("mla", 1152): 61, ("mla", 132): 61}),
        # 62 layers of 16 KV heads x 128: 52 with windows
        ("gemma-3-27b-it", BF16, {}, {("sliding", 8192): 52, ("full", 8192): 10}),
        # windows of 16 heads x 256, full layers of 4 heads x 512 whose values are the keys, held twice all the same
        ("gemma-4-31b-it", BF16, {}, {("sliding", 16_384): 50, ("full", 8192): 10}),
        # chunks of 8,192 in 36 of 48 layers
        ("llama-4-scout-17b-16e", BF16, {}, {("chunked", 4096): 36, ("full", 4096): 12}),
    ],
)
def test_layers_keep_what_their_heads_come_to(model: str, kv: Any, formats: Any, expected: Any) -> None:
    """Heads are shared by devices, a latent is not; formats have their scales."""
    assert expected == kept(model, kv, **formats)


@pytest.mark.parametrize(
    ("model", "formats", "state"),
    [
        # Qwen3-Next, in the model's format: 32 heads x 128 x 128 and 8,192 channels x 3 columns, x 2 B
        ("qwen3-next-80b-a3b", {}, 32 * 128 * 128 * 2 + 8192 * 3 * 2),
        ("qwen3-next-80b-a3b", {"state": FP32}, 32 * 128 * 128 * 4 + 8192 * 3 * 2),
        ("qwen3-next-80b-a3b", {"tp": 2}, 16 * 128 * 128 * 2 + 4096 * 3 * 2),
        # 3 drafted tokens: 6 columns
        ("qwen3-next-80b-a3b", {"drafted": 3}, 32 * 128 * 128 * 2 + 8192 * 6 * 2),
        # Qwen3.5-27B: 48 value heads, 10,240 channels
        ("qwen3.5-27b", {"state": FP32}, 48 * 128 * 128 * 4 + 10_240 * 3 * 2),
        # Kimi Linear: 32 heads x 128 x 128, three convolutions of 4,096 channels; on 2 devices half
        ("kimi-linear-48b-a3b", {"tp": 2}, 16 * 128 * 128 * 4 + 3 * 2048 * 3 * 2),
        # Falcon Mamba, in the model's format: 8,192 channels x 16 states, and 3 columns of them
        ("falcon-mamba-7b", {}, 8192 * 16 * 2 + 8192 * 3 * 2),
    ],
)
def test_states_have_columns_and_a_recurrence(model: str, formats: Any, state: float) -> None:
    """A convolution of 4 keeps 3 columns in the model's format; the recurrence is as its class or a flag says."""
    sizes = [size for (kind, size) in kept(model, **formats) if kind == "state"]

    assert [state] == sizes


@pytest.mark.parametrize(
    ("window", "expected"), [(None, Keeps("mla", 1152.0)), (512, Keeps("sliding", 1152.0, reach=512))]
)
def test_a_latent_may_have_a_window(window: int | None, expected: Keeps) -> None:
    """(512 + 64) x 2 B of all tokens, or of the window's."""
    mixer = model_of("deepseek-v3").spec.layers[0].mixers[0]
    assert isinstance(mixer, LatentAttention)

    assert [expected] == mixer_keeps(replace(mixer, window=window), CacheFormats(BF16, BF16))


def test_an_encoder_s_keys_are_kept_once_a_request() -> None:
    """Whisper large-v3: 32 layers cross to 1,500 frames; 20 heads x 64 x 2 x 2 B a frame, and the decoder's own."""
    made = kept("whisper-large-v3")

    assert made == {("full", 5120): 32, ("cross", 5120): 32}


def test_without_windows_everything_is_whole() -> None:
    """Windows and chunks are full; states and latents stay."""
    states = [Keeps("state", state=100.0), Keeps("mla", 1152.0)]

    assert without_windows([WINDOW, Keeps("chunked", 8.0, reach=8192), *states]) == [
        FULL, Keeps("full", 8.0), *states,
    ]  # fmt: skip


# groups


@pytest.mark.parametrize(
    ("layers", "size", "groups", "padding"),
    [
        ((52, 10), 10, 7, 8),  # Gemma 3 27B: ceil(52 / 10) + 1 groups, 60 - 52 slots unused
        ((40, 8), 8, 6, 0),  # Gemma 3 12B
        ((12, 13), 13, 2, 1),  # 13 < 1.5 x 12: padded to the larger
        ((18, 18), 18, 2, 0),  # gpt-oss-120b
        ((15, 10), 10, 3, 5),  # 15 is 1.5 x 10, and not less
        ((14, 10), 14, 2, 4),
        ((1, 30), 1, 31, 0),
    ],
)
def test_types_are_cut_into_groups_of_one_size(layers: tuple[int, int], size: int, groups: int, padding: int) -> None:
    """The smallest number of layers of a type, or the largest where it is less than 1.5 times that."""
    layout = arrange([WINDOW] * layers[0] + [FULL] * layers[1], Paging())

    assert (layout.size, layout.groups) == (size, groups)
    assert sum(group.padding for group in layout.shown(8192)) == padding


@pytest.mark.parametrize("kinds", [[FULL] * 32, [FULL] * 16 + [Keeps("full", 2048.0)] * 16, [WINDOW] * 32])
def test_layers_of_one_kind_are_one_group(kinds: list[Keeps]) -> None:
    """Also full layers of different pages, whose block is the sum of all."""
    layout = arrange(kinds, Paging())

    assert layout.groups == 1
    assert layout.block_bytes == sum(16 * one.token for one in kinds)
    assert layout.blocks(layout.block_bytes * 10.5) == 10
    assert [group.padding for group in layout.shown(8192)] == [0]


def test_the_index_of_a_latent_is_in_its_group() -> None:
    """DeepSeek-V3.2: 64 tokens x 61 x (656 + 132) B a block."""
    layout = arrange([Keeps("mla", 656.0), Keeps("mla", 132.0)] * 61, Paging(block=64))

    assert layout.block_bytes == 64 * 61 * (656 + 132)
    assert layout.request_blocks(131_072) == 2048


def test_smaller_pages_have_longer_blocks() -> None:
    """Gemma 4: a full layer's token is half a window's, so its block has 32 tokens and the pages are equal."""
    layout = arrange([Keeps("sliding", 16_384.0, reach=1024)] * 50 + [Keeps("full", 8192.0)] * 10, Paging())

    assert {one.keeps.kind: one.block for one in layout.sharing} == {"sliding": 16, "full": 32}
    assert layout.page == 16 * 16_384
    assert layout.block_tokens == 16


@pytest.mark.parametrize(
    ("state", "token", "paging", "block"),
    [
        # ceil(2,146,304 / (16 x 1,024)) = 131 x 16: Qwen3.6-35B-A3B with a cache in fp8
        (2_146_304, 1024, Paging(), 2096),
        # 3,207,168 / (16 x 4,096) = 48.9: 49 x 16, Qwen3.5-27B
        (3_207_168, 4096, Paging(), 784),
        # 1,085,440 / (64 x 1,152) = 14.7: 15 x 64, Kimi Linear on 2 devices
        (1_085_440, 1152, Paging(align=64), 960),
        # a state that 16 tokens hold
        (1000, 1024, Paging(), 16),
        # exactly 2 blocks of 16
        (32 * 1024, 1024, Paging(), 32),
        # a block asked for stays where it is the larger
        (32 * 1024, 1024, Paging(block=256), 256),
    ],
)
def test_a_block_grows_until_it_holds_a_state(state: float, token: float, paging: Paging, block: int) -> None:
    """A ceil(s / (A a)), and the state's page is padded to it."""
    layout = arrange([Keeps("state", state=state)] * 3 + [Keeps("full", token)], paging)

    assert layout.block_tokens == block
    assert layout.page == block * token >= state


def test_states_alone_are_a_page_each() -> None:
    """Mamba: a block is the states of all layers, and a request takes one."""
    layout = arrange([Keeps("state", state=1e6)] * 64, Paging())

    assert layout.block_bytes == 64e6
    assert layout.request_blocks(1) == layout.request_blocks(1 << 20) == 1
    assert layout.blocks(6.5e8) == 10


@pytest.mark.parametrize(
    ("model", "cache", "cut", "flags", "block", "taken"),
    [
        # Qwen3.5-27B bf16: 784 tokens; 32,768 / 784 = 41.8 -> 42, and 3 groups of states
        ("qwen3.5-27b", "bf16", {}, {"engine_version": "0.19.0", "max_model_len": 32_768}, 784, 42 + 3),
        # Qwen3.6-27B fp8, 2 devices, 3 drafted tokens: 1,600; 262,144 / 1,600 -> 164, and 3 groups x (2 + 3)
        (
            "qwen3.6-27b", "fp8", {"tp": 2},
            {"engine_version": "0.24.0", "max_model_len": 262_144, "num_speculative_tokens": 3, "mamba_cache_mode": "align"}, 1600, 164 + 15,
        ),
        # with a scale a head: 1,584, 262,144 / 1,584 -> 166; 4 drafted tokens: 3 x 6
        (
            "qwen3.6-27b", "int8", {"tp": 2},
            {"engine_version": "0.24.0", "max_model_len": 262_144, "num_speculative_tokens": 4, "mamba_cache_mode": "align"}, 1584, 166 + 18,
        ),
        ("qwen3.6-35b-a3b", "fp8", {}, {"engine_version": "0.19.0", "max_model_len": 262_144}, 2096, 126 + 3),
        # 20 KDA layers and 7 of MLA: groups of 7
        ("kimi-linear-48b-a3b", "bf16", {"tp": 2}, {"engine_version": "0.11.0", "max_model_len": 120_000}, 960, 125 + 3),
        # states in fp16: (1,048,576 + 49,152) / (16 x 2,048) = 33.5 -> 34 x 16
        (
            "qwen3-next-80b-a3b", "bf16", {},
            {"engine_version": "0.19.0", "max_model_len": 65_536, "mamba_ssm_cache_dtype": "fp16"}, 544, 121 + 3,
        ),
        # mode all: ceil(3,207,168 / (256 x 4,096)) = 4 x 256, and as many states as blocks of tokens, in each of 4 groups
        (
            "qwen3.5-27b", "bf16", {},
            {"engine_version": "0.19.0", "max_model_len": 32_768, "mamba_cache_mode": "all"}, 1024, 4 * 32,
        ),
        # 64 under an index, 16 of other latents
        ("deepseek-v3.2", "fp8", {"tp": 8}, {"engine_version": "0.19.0", "max_model_len": 131_072}, 64, 2048),
        ("deepseek-v2-lite", "bf16", {}, {"engine_version": "0.19.0", "max_model_len": 131_072}, 16, 8192),
        ("llama-3.1-8b", "bf16", {}, {"engine_version": "0.19.0", "max_model_len": 8192, "block_size": 64}, 64, 128),
    ],
)  # fmt: skip
def test_models_have_the_blocks_that_their_logs_say(
    model: str, cache: str, cut: Any, flags: Any, block: int, taken: int
) -> None:
    """A block's tokens, and blocks of the longest request."""
    made = memory(asked(model, "h200-sxm", cache, cut, **flags), kv=40.0)

    assert made.block_tokens == block
    assert sum(group.blocks_per_request or 0 for group in made.groups) == taken


# blocks of a request


@pytest.mark.parametrize(
    ("keeps", "paging", "context", "blocks"),
    [
        (FULL, Paging(), 16, 1),
        (FULL, Paging(), 17, 2),
        (FULL, Paging(), 0, 0),
        # 4 devices share a sequence: ceil(1,000 / 4) = 250 tokens
        (FULL, Paging(context_parallel=4), 1000, 16),
        (Keeps("mla", 1152.0), Paging(block=64, context_parallel=8), 202_752, 396),
        # min(1,024 - 1 + 8,192, T) and one block more
        (WINDOW, Paging(batched=8192), 131_072, 576 + 1),
        (WINDOW, Paging(batched=8192), 4096, 256 + 1),
        (WINDOW, Paging(batched=8192, extra_window_block=False), 131_072, 576),
        (WINDOW, Paging(batched=2 * 2048), 262_144, 320 + 1),
        # min(8,192 + 2,048, T)
        (Keeps("chunked", 4096.0, reach=8192), Paging(batched=2048), 1 << 20, 640),
        (Keeps("chunked", 4096.0, reach=8192), Paging(batched=2048), 4096, 256),
        (Keeps("state", state=1.0), Paging(), 1 << 20, 1),
        (Keeps("state", state=1.0), Paging(state_blocks=5), 1 << 20, 5),
        (Keeps("state", state=1.0), Paging(state_blocks=None), 1000, 63),
        (Keeps("cross", 5120.0, reach=1500), Paging(), 1, 94),
    ],
)
def test_a_request_takes_blocks_by_kind(keeps: Keeps, paging: Paging, context: int, blocks: int) -> None:
    """Full by tokens, a window at most what it reaches and a step, a state by its mode, an encoder by its frames."""
    layout = Layout((Sharing(keeps, 32, 1, paging.block),), 32, 16.0, paging)

    assert blocks == layout.request_blocks(context)


def test_chunks_and_full_layers_of_llama_4() -> None:
    """Scout, 48 layers: 36 with chunks in 3 groups of 12, 12 full ones; 131,072 tokens and steps of 8,192."""
    made = memory(
        asked("llama-4-scout-17b-16e", cut={"tp": 4}, engine_version="0.19.0", max_model_len=131_072), kv=40.0
    )

    # 3 x ceil((8,192 + 8,192) / 16) = 3 x 1,024; ceil(131,072 / 16) = 8,192
    assert [(g.kind, g.layers, g.padding, g.blocks_per_request) for g in made.groups] == [
        ("chunked", 36, 0, 3072),
        ("full", 12, 0, 8192),
    ]
    # a page: 16 tokens x 2 of 8 heads x 256 x 2 B; 40 GiB / 16,384 B / 12
    assert made.blocks == (40 << 30) // 16_384 // 12
    assert made.concurrency == pytest.approx((made.blocks or 0) / 11_264)


def test_the_hybrid_manager_can_be_off() -> None:
    """Gemma 3 27B without it, and in V0: 62 full layers in one group, without padding."""
    for flags in ({"engine_version": "0.19.0", "disable_hybrid_kv_cache_manager": True}, {"engine_version": "0.6.4"}):
        made = memory(asked("gemma-3-27b-it", max_model_len=8192, **flags), kv=19.53)

        assert [(group.kind, group.layers, group.padding) for group in made.groups] == [("full", 62, 0)]
        assert made.blocks == int(19.53 * 2**30) // (16 * 8192) // 62


@pytest.mark.parametrize(("version", "blocks"), [("0.25.0", 577), ("0.26.0", 1089)])
def test_windows_keep_two_steps_from_0_26_on(version: str, blocks: int) -> None:
    """Gemma 3 12B with steps of 8,192: ceil((1,023 + 8,192) / 16) + 1 in each of 5 groups; then twice the step."""
    made = memory(asked("gemma-3-12b-it", engine_version=version, max_model_len=131_072), kv=40.0)

    assert made.groups[0].kind == "sliding"
    assert 5 * blocks == made.groups[0].blocks_per_request


# blocks of a pool


def test_blocks_are_whole_pages_of_whole_groups() -> None:
    """available // page // g."""
    layout = arrange([FULL] * 32, Paging())

    assert layout.blocks(58.11 * 2**30) == int(58.11 * 2**30 // 65_536 // 32) == 29_752
    assert layout.blocks(16 * 4096 * 32 - 1) == 0
    assert layout.blocks(16 * 4096 * 32) == 1
    assert layout.blocks(-1e9) == 0


def test_the_longest_request_is_the_last_that_fits() -> None:
    """100 blocks of 16, windows among them, hold what a block less does not."""
    full, mixed = arrange([FULL] * 4, Paging()), arrange([FULL] * 4 + [WINDOW] * 4, Paging(batched=256))

    assert full.longest_request(100, 1 << 20) == 1600
    assert full.longest_request(100, 1000) == 1000
    assert full.longest_request(0, 1000) == 0
    # windows: ceil((1,023 + 256) / 16) + 1 = 81 blocks from 1,265 tokens on; 19 are left of 100: a request of 304 tokens
    # takes 19 + 20, one of 784 takes 49 + 50 = 99, one of 785 takes 50 + 51 = 101
    assert mixed.longest_request(100, 1 << 20) == 784
    assert mixed.longest_request(181, 1 << 20) == 1600


def test_a_room_of_no_blocks_holds_nothing() -> None:
    """And one of more than a request takes holds it so often."""
    layout = arrange([FULL] * 4, Paging())

    assert PagedRoom(layout, 0).sequences(1) == 0
    assert PagedRoom(layout, 100).sequences(160) == 10
    assert PagedRoom(replace(layout, size=8), 100).sequence_bytes(17) == 2 * 8 * 65_536


def test_context_parallel_devices_multiply_the_printed_tokens() -> None:
    """GLM-5.1, 0.19: blocks x 64 x devices."""
    tokens = []
    for devices in (1, 2, 4, 8):
        flags = {"decode_context_parallel_size": devices, "engine_version": "0.19.0"}
        made = memory(asked("glm-5.1", "b200", "fp8", {"tp": 8}, **flags), kv=20.0, blocks=5314)
        assert made.tokens is not None
        tokens.append(made.tokens[0])

    assert tokens == [5314 * 64 * devices for devices in (1, 2, 4, 8)]
