"""SGLang's memory, against logs of its start and hand-made sums."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from roofcast.calculators.deployment import Deployment, prepare
from roofcast.calculators.engines.flags import Flags
from roofcast.calculators.engines.sglang import answer
from roofcast.calculators.engines.sglang_pools import Cells, Pools, Split, fill, hold, read_cells
from roofcast.calculators.engines.terms import GIB, Served
from roofcast.calculators.errors import UsageError
from roofcast.hwdb.lookup import find_accelerator
from roofcast.modelspec.formats import FORMATS
from roofcast.modelspec.sharding import Shards
from tests.checkpoints import LLAMA_3_1_8B, catalogued, loaded

if TYPE_CHECKING:
    from roofcast.calculators.deployment import Ready
    from roofcast.calculators.engines.terms import EngineMemory


def ready_of(name: str, gpu: str, kv: str = "bf16", **cut: int) -> Ready:
    """Return a model of the catalogue on GPUs."""
    return prepare(catalogued(name), Deployment(find_accelerator(gpu).accelerator, FORMATS[kv], None, Shards(**cut)))


def started(ready: Ready, given: dict[str, float] | None = None, **flags: Any) -> EngineMemory:
    """Return what SGLang makes of it."""
    return answer(Served(ready, Flags(**flags)), given or {})


def llama(gpu: str = "h100", **flags: Any) -> EngineMemory:
    """Return SGLang with Llama-3.1-8B."""
    made = prepare(loaded(LLAMA_3_1_8B), Deployment(find_accelerator(gpu).accelerator, FORMATS["bf16"]))
    return started(made, **flags)


# what one token takes on one device


@pytest.mark.parametrize(
    ("name", "kv", "tp", "expected"),
    [
        # 94 layers x 1 of 4 KV heads x (128 + 128) x 2 B; https://github.com/vllm-project/vllm/issues/21348
        ("qwen3-235b-a22b-fp8", "bf16", 4, 94 * 1 * 256 * 2),
        # 61 layers x (656 + 132) B, whatever --tp; https://github.com/sgl-project/sglang/pull/11309
        ("deepseek-v3.2", "fp8", 8, 61 * (656 + 132)),
        # 61 x (576 x 2 + 132): the index's keys stay in 8 bits
        ("deepseek-v3.2", "bf16", 1, 61 * (1152 + 132)),
        # 61 x (512 + 64) x 2 B, not divided by 8 devices
        ("kimi-k2.5", "bf16", 8, 61 * 576 * 2),
    ],
)
def test_a_token_takes_what_the_logs_divide_to(name: str, kv: str, tp: int, expected: int) -> None:
    """KV heads split over devices, a latent does not, and a sparse index adds its keys."""
    cells = read_cells(ready_of(name, "b200", kv, tp=tp), tp, windows=True, drafting=False)

    assert (expected, 0.0) == (cells.full, cells.window)


@pytest.mark.parametrize(
    ("name", "full", "window"),
    [
        # 9 full layers x 1 of 4 KV heads x (192 + 128) x 2 B = 5,760; 39 windows x 2 of 8 x 320 x 2 B = 49,920: the log
        # has 69.60 + 8.03 GiB for 1,496,958 tokens, https://github.com/sgl-project/sglang/pull/15464
        ("mimo-v2-flash", 5_760, 49_920),
    ],
)
def test_window_layers_have_heads_of_their_own(name: str, full: int, window: int) -> None:
    """Layers of the two pools are counted by their own heads and widths."""
    cells = read_cells(ready_of(name, "h200", tp=4), 4, windows=True, drafting=False)

    assert (full, window) == (cells.full, cells.window)
    assert round((cells.window * 1_496_958) / GIB, 1) == 69.6


@pytest.mark.parametrize(
    ("name", "expected"),
    # bytes a token that SGLang itself logs: full layers x full + 0.8 x windows x window
    [("gemma-4-26b-a4b", 5 * 4096 + 0.8 * 25 * 8192), ("gemma-4-31b-it", 10 * 8192 + 0.8 * 50 * 16384)],
)
def test_gemma_4_takes_what_sglang_logs_of_its_cells(name: str, expected: float) -> None:
    """184,320 and 737,280 B a token of the full pool, 0.8 tokens of the windows' included."""
    cells = read_cells(ready_of(name, "h100"), 1, windows=True, drafting=False)

    assert expected == cells.full + 0.8 * cells.window


def test_layers_that_share_keys_have_room_all_the_same() -> None:
    """Gemma 4 E4B: 79.94 GiB for 997,846 tokens are 86,016 B each: all 42 layers, and not the 24 that store."""
    cells = read_cells(ready_of("gemma-4-e4b", "h100"), 1, windows=True, drafting=False)

    assert (cells.full, cells.window) == (7 * 4096, 35 * 2048)
    assert hold(cells, 79.94 * GIB, Split(0.8, 0.9, 1, 3), None).tokens == pytest.approx(997_846, rel=1e-3)


def test_a_slot_of_states_keeps_one_column_less_than_the_kernel() -> None:
    """Qwen3.5-9B on two devices: 24 layers x (32 x 128 x 128 x 4 B + 8,192 x 3 columns x 2 B) / 2."""
    cells = read_cells(ready_of("qwen3.5-9b", "rtx 3090", tp=2), 2, windows=True, drafting=False)

    assert cells.state == 24 * (32 * 128 * 128 * 4 + 8192 * 3 * 2) / 2
    assert cells.full == 8 * 2 * (256 + 256) * 2  # 8 full layers x 2 of 4 KV heads


def test_drafted_layers_are_in_the_pool() -> None:
    """A layer of multi-token prediction beside 61 makes 62."""
    ready = ready_of("deepseek-v3", "b200", tp=8)
    plain, drafted = (started(ready, num_speculative_tokens=n) for n in (None, 3))

    assert (plain.groups[0].layers, drafted.groups[0].layers) == (61, 62)


# records, given the log's own bytes


@pytest.mark.parametrize(
    ("ready", "kv", "page", "tokens"),
    [
        # K 8.23 + V 8.23 GiB; https://github.com/vllm-project/vllm/issues/21348
        (("qwen3-235b-a22b-fp8", "h100", "bf16", {"tp": 4}), 16.46, 1, 367_404),
        # 8 replicas of attention; https://github.com/sgl-project/sglang/pull/11309
        (("deepseek-v3.2", "b200", "fp8", {"dp": 8, "ep": 8}), 43.67, 64, 975_424),
        # 2.5 + 2.5 GiB beside 4.48 GiB of states, on two devices of 24 GB
        (("qwen3.5-9b", "rtx 3090", "bf16", {"tp": 2}), 5.0, 1, 327_310),
    ],
)
def test_tokens_follow_from_the_log_s_cache(ready: Any, kv: float, page: int, tokens: int) -> None:
    """Within half of the last digit of two sizes that are printed: 0.01 GiB."""
    name, gpu, stored, cut = ready
    made = started(ready_of(name, gpu, stored, **cut), {"kv": kv * GIB})

    assert made.tokens is not None
    assert made.tokens[0] == pytest.approx(tokens, abs=0.01 * GIB * tokens / (kv * GIB) + page)
    assert (made.block_tokens, made.terms[-1].provenance) == (page, "measured")
    assert made.token_bytes == pytest.approx(kv * GIB / tokens, rel=2e-3)


def test_states_take_nine_tenths_of_keys_and_values() -> None:
    """5.0 GiB of keys and values stand beside 0.9 x 5.0 = 4.5 GiB of states; the log says 4.48."""
    made = started(ready_of("qwen3.5-9b", "rtx 3090", tp=2), {"kv": 5.0 * GIB})

    states = next(term for term in made.terms if term.name == "states")
    assert states.bytes / GIB == pytest.approx(4.48, abs=0.03)


def test_the_log_s_memory_gives_the_log_s_tokens() -> None:
    """Qwen3-8B on a B200: 177.57 GiB free, 15.28 of weights, share by default: 992,896 tokens in pages of 64.

    177.57 - 15.28 - (1 - 0.854) x 177.57 = 136.36 GiB / 147,456 B = 992,990 -> 992,960.
    """
    made = started(ready_of("qwen3-8b", "b200"), {"free": 177.57 * GIB, "weights": 15.28 * GIB})

    assert made.tokens is not None
    assert made.tokens[0] == 15_515 * 64
    assert made.tokens[0] == pytest.approx(992_896, rel=1e-4)


# records, predicted from model, GPU and flags


@pytest.mark.parametrize(
    ("ready", "flags", "tokens", "off"),
    [
        (("qwen3-235b-a22b-fp8", "h100", "bf16", {"tp": 4}), {"mem_fraction_static": 0.93}, 367_404, 0.02),
        (("qwen3-8b", "b200", "bf16", {}), {}, 992_896, 0.01),
        # the pull request does not say its share; before it the server was started with 0.8
        (("deepseek-v3.2", "b200", "fp8", {"dp": 8, "ep": 8}), {"mem_fraction_static": 0.8}, 975_424, 0.03),
    ],
)
def test_predicted_tokens_are_near_the_logs(ready: Any, flags: dict[str, Any], tokens: int, off: float) -> None:
    """Nothing is taken from the log, and its tokens lie in the interval."""
    name, gpu, kv, cut = ready
    made = started(ready_of(name, gpu, kv, **cut), **flags)

    assert made.tokens is not None
    assert made.tokens[0] == pytest.approx(tokens, rel=off)
    assert made.tokens[1] <= tokens <= made.tokens[2]


def test_every_default_is_listed() -> None:
    """What was not given is among the assumptions, what was is not."""
    bare, told = llama(), llama(mem_fraction_static=0.8, page_size=1, engine_version="0.5.10")

    assert [word for word in ("0.5.10", "--mem-fraction-static", "--page-size") if word in str(bare.said.assumptions)]
    assert told.said.assumptions == ("CUDA context and NCCL are assumed",)


# pools


def test_states_first_then_pages() -> None:
    """1,900 B, R 0.9: 900 B are 9 slots of 100, and of 1,000 B tokens of 10 B in pages of 16 make 96."""
    pools = fill(Cells(10.0, 0.0, 100.0, 0, ()), 1900.0, Split(0.8, 0.9, 16, 3), None)

    assert (pools.slots, pools.tokens, pools.window_tokens) == (9, 96, None)


def test_windows_have_a_share_of_the_tokens() -> None:
    """10 + 0.5 x 20 = 20 B a token: 1,000 B are 50 tokens, and 25 of windows; 48 and 16 in pages of 16."""
    cells = Cells(10.0, 20.0, 0.0, 4, ())
    ones, pages = (hold(cells, 1000.0, Split(0.5, 0.9, page, 3), None) for page in (1, 16))

    assert [(each.tokens, each.window_tokens) for each in (ones, pages)] == [(50, 25), (48, 16)]
    assert ones.kv_bytes == 50 * 10 + 25 * 20


def test_states_alone_take_everything() -> None:
    """Without keys and values there is no ratio: 1,000 B are 10 slots."""
    pools = fill(Cells(0.0, 0.0, 100.0, 0, ()), 1000.0, Split(0.8, 0.9, 1, 3), None)

    assert (pools.slots, pools.tokens) == (10, 0)


def test_a_model_of_states_alone_serves_any_length() -> None:
    """Mamba keeps no tokens: slots decide, and none is cut off."""
    made = started(ready_of("mamba-2.8b", "h100"))

    assert (made.reason, made.longest) == (None, 2048)  # its config states no context
    assert made.room.sequences(10) == made.room.sequences(10**6) > 0
    assert [group.kind for group in made.groups] == ["state"]


def test_a_model_of_windows_alone_has_one_pool() -> None:
    """Mistral-7B-v0.1 slides in every layer: its tokens are 32 layers x 8 x 256 x 2 B."""
    made = started(ready_of("mistral-7b-v0.1", "h100"))

    assert [(group.kind, group.page_bytes) for group in made.groups] == [("full", 4096.0)]
    assert made.tokens is not None
    assert made.tokens[0] == int(made.terms[-1].bytes / (32 * 4096))


def test_drafted_states_take_of_the_pool() -> None:
    """Of 900 B a slot takes 100 (1 + 3 / 3): 4 slots, one request with 3 drafted states; 1,200 B are left."""
    pools = fill(Cells(10.0, 0.0, 100.0, 0, ()), 1900.0, Split(0.8, 0.9, 1, 3, drafted=3), None)

    assert (pools.slots, pools.tokens) == (4, (1900 - 400 - 300) // 10)


@pytest.mark.parametrize(
    ("pools", "context", "expected"),
    [
        (Pools(Cells(1.0, 0.0, 0.0, 0, ()), 64, 6400), 65, 50),  # 2 pages each of 100
        (Pools(Cells(1.0, 1.0, 0.0, 128, ()), 1, 10_000, 1_290), 5_000, 2),  # 2 full; 10 by windows of 129
        (Pools(Cells(1.0, 1.0, 0.0, 128, ()), 1, 100_000, 1_290), 5_000, 10),  # windows bind
        (Pools(Cells(1.0, 0.0, 1.0, 0, ()), 1, 100_000, None, 17, 5), 10, 3),  # 17 // 5 slots
        (Pools(Cells(1.0, 0.0, 0.0, 0, ()), 1, 100_000, running=7), 10, 7),
        (Pools(Cells(0.0, 0.0, 1.0, 0, ()), 1, 0, None, 30, 3), 10**6, 10),  # states alone
    ],
)
def test_requests_that_fit(pools: Pools, context: int, expected: int) -> None:
    """The tightest of tokens, windows, slots and scheduler decides."""
    assert expected == pools.sequences(context)


def test_longer_requests_are_never_more() -> None:
    """Neither are they smaller, and all together stay within the pools."""
    room = started(ready_of("gemma-4-26b-a4b", "h100")).room
    counts = [room.sequences(context) for context in (1, 100, 1024, 1025, 5000, 100_000)]
    sizes = [room.sequence_bytes(context) for context in (1, 100, 1024, 1025, 5000, 100_000)]

    assert counts == sorted(counts, reverse=True)
    assert sizes == sorted(sizes)


def test_a_larger_share_is_never_fewer_tokens() -> None:
    """And a cache in 8 bits holds twice as many."""
    tokens = [(llama(mem_fraction_static=share).tokens or (0, 0, 0))[0] for share in (0.3, 0.5, 0.7, 0.9)]
    narrow = started(ready_of("llama-3.1-8b", "h100", "fp8"), mem_fraction_static=0.9).tokens

    assert tokens == sorted(set(tokens))
    assert narrow is not None
    assert narrow[0] == pytest.approx(2 * tokens[-1], abs=1)


def test_replicas_of_attention_hold_all_heads() -> None:
    """SGLang's --tp 8 --dp 4 shares heads over 2 devices; --tp 2 --dp 4 --ep 8 is the same cut in roofcast's words."""
    within = started(ready_of("qwen3-235b-a22b-fp8", "h200", tp=8, dp=4), enable_dp_attention=True)
    beside = started(ready_of("qwen3-235b-a22b-fp8", "h200", tp=2, dp=4, ep=8), enable_dp_attention=True)

    assert within.groups == beside.groups
    assert within.groups[0].page_bytes * 94 == 94 * 2 * 256 * 2  # 2 of 4 KV heads
    assert "--tp 2 --dp 4 --ep 8" in str(within.said.warnings)
    assert beside.said.warnings == ()


def test_stages_share_layers() -> None:
    """Of two stages each has half of the layers, and so half of a token."""
    one, two = (read_cells(ready_of("llama-3.1-8b", "h100", pp=pp), 1, windows=True, drafting=False) for pp in (1, 2))

    assert one.full == 2 * two.full


def test_old_versions_keep_windows_whole() -> None:
    """Before 0.5.4 there is one pool."""
    old = started(ready_of("gemma-3-27b-it", "h100"), engine_version="0.4.9")

    assert [group.kind for group in old.groups] == ["full"]


def test_running_requests_of_replicas_and_of_few_tokens() -> None:
    """64 over 8 replicas are 8 each, over 4 servers 16; of 1,000 tokens no more than 500 run."""
    replicas = started(ready_of("deepseek-v3.2", "b200", dp=8, ep=8), enable_dp_attention=True, max_running_requests=64)
    apart = started(ready_of("llama-3.1-8b", "h100", dp=4), max_running_requests=64)
    few = started(ready_of("llama-3.1-8b", "h100"), {"kv": 1000 * 131_072.0})

    assert [each.room.running for each in (replicas, apart, few) if isinstance(each.room, Pools)] == [8, 16, 500]


def test_slots_of_states_bound_running_requests() -> None:
    """47 slots of 5 a request are 9, whatever was asked; https://github.com/sgl-project/sglang/issues/38846."""
    ready = ready_of("qwen3.5-9b", "rtx 3090", tp=2)
    slot = 24 * (32 * 128 * 128 * 4 + 8192 * 3 * 2) / 2
    made = started(ready, {"kv": 47.5 * slot / 0.9}, max_running_requests=32)

    assert isinstance(made.room, Pools)
    assert (made.room.slots, made.room.running, made.room.sequences(1)) == (47, 9, 9)


def test_the_interval_holds_both_ends() -> None:
    """Less context or a smaller reserve is more cache, and the other way round."""
    made = llama()
    free, reserve = (next(term for term in made.terms if term.name == name) for name in ("free", "reserve"))

    assert made.kv[2] - made.kv[0] == pytest.approx(
        ((free.high - free.bytes) ** 2 + (reserve.bytes - reserve.low) ** 2) ** 0.5, abs=2e5
    )
    assert made.kv[0] - made.kv[1] == pytest.approx(
        ((free.bytes - free.low) ** 2 + (reserve.high - reserve.bytes) ** 2) ** 0.5, abs=2e5
    )


def test_running_requests() -> None:
    """512 tokens / longest within 2,048 and 4,096 by default; 48 with drafts; as given; half the tokens at most."""
    ready = ready_of("llama-3.1-8b", "h100")
    room = [started(ready, max_running_requests=asked).room for asked in (None, 16)]
    drafting = started(ready_of("deepseek-v3", "b200", tp=8), num_speculative_tokens=3).room

    assert [each.running for each in room if isinstance(each, Pools)] == [2048, 16]
    assert isinstance(drafting, Pools)
    assert drafting.running == 48


# what does not fit


def test_weights_too_large() -> None:
    """Nothing is raised: the reason is one line, and nothing fits."""
    made = started(ready_of("llama-3.1-70b", "h100"))

    assert made.reason is not None
    assert "weights 131.42" in made.reason
    assert "\n" not in made.reason
    assert (made.kv, made.tokens, made.room.sequences(1)) == ((0.0, 0.0, 0.0), (0, 0, 0), 0)


def test_a_request_too_long() -> None:
    """The reason says what would fit."""
    made = llama(max_model_len=10**6)
    most = llama(max_model_len=1024)

    assert made.reason is not None
    assert most.tokens is not None
    assert f"at most {most.tokens[0]:,} tokens" in made.reason
    assert (0, most.tokens[0]) == (made.room.sequences(1), made.longest)
    assert most.reason is None


def test_a_pool_shorter_than_the_model_cuts_requests_off() -> None:
    """Not asked for, a context that the pool does not hold is a warning."""
    made = llama("a10", mem_fraction_static=0.8)

    assert made.reason is None
    assert "cut off" in made.said.warnings[0]
    assert made.tokens is not None
    assert made.longest == made.tokens[0]


@pytest.mark.parametrize("share", [0.0, 1.0, 1.5, -0.1])
def test_a_share_that_is_none(share: float) -> None:
    """It is refused, naming the flag."""
    with pytest.raises(UsageError, match="--mem-fraction-static"):
        llama(mem_fraction_static=share)
