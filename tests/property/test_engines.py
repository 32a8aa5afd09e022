"""Laws of vLLM's memory that hold for every model of the catalogue, version, device and flag."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from math import ceil
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from roofcast.calculators.deployment import Deployment
from roofcast.calculators.engines.flags import Flags
from roofcast.calculators.engines.kv_groups import Layout, PagedRoom, Paging, arrange
from roofcast.calculators.engines.kv_specs import Keeps
from roofcast.calculators.engines.serving import serve
from roofcast.calculators.engines.terms import GIB, EngineMemory, Served, spread, together
from roofcast.calculators.engines.vllm import answer
from roofcast.calculators.engines.vllm_terms import captured_sizes
from roofcast.calculators.engines.vllm_versions import ROWS
from roofcast.calculators.engines.vllm_weights import stages_of
from roofcast.hwdb.lookup import find_accelerator
from roofcast.modelspec.formats import FORMATS
from roofcast.modelspec.sharding import Shards
from tests.engine_records import Asked, model_of

# dense, tied, latent, sparse, experts, windows, two widths, chunks, states, Mamba alone, a vision tower
MODELS = (
    "llama-3.1-8b", "qwen3-0.6b", "deepseek-v2-lite", "deepseek-v3.2", "qwen3-30b-a3b", "gemma-3-12b-it", "gpt-oss-20b",
    "gemma-4-31b-it", "llama-4-scout-17b-16e", "qwen3.5-9b", "qwen3-next-80b-a3b", "kimi-linear-48b-a3b",
    "falcon-mamba-7b", "nemotron-nano-9b-v2", "qwen2.5-vl-7b", "glm-5.1",
)  # fmt: skip
GPUS = ("h100-sxm", "h200-sxm", "b200", "rtx-3090", "a100-80gb-sxm", "rtx-pro-6000-blackwell-ws")
VERSIONS = tuple(".".join(map(str, row.since)) for row in ROWS if row.since >= (0, 8))
LENGTHS = st.integers(1, 200_000)


@cache
def deployed(model: str, gpu: str, kv: str, tp: int, pp: int) -> Served:
    """Return a model on GPUs, with no flags."""
    accelerator = find_accelerator(gpu).accelerator
    return serve(model_of(model), Deployment(accelerator, FORMATS[kv], None, Shards(tp, pp), "vllm"), Flags())[0]


def made(served: Served, **flags: Any) -> EngineMemory:
    """Return vLLM's answer with other flags."""
    return answer(replace(served, flags=replace(served.flags, **flags)), {})


@st.composite
def questions(draw: st.DrawFn) -> Asked:
    """Draw a model on GPUs and vLLM's flags."""
    pp = draw(st.sampled_from([1, 1, 1, 2, 4]))
    rows = draw(st.integers(1, 1024))
    flags = {
        "engine_version": draw(st.sampled_from(VERSIONS)),
        "gpu_memory_utilization": draw(st.floats(0.05, 0.95)),
        "max_model_len": draw(st.none() | LENGTHS),
        "max_num_seqs": rows,
        "max_num_batched_tokens": draw(st.integers(rows, 32_768)),
        "enforce_eager": draw(st.booleans()),
        "disable_hybrid_kv_cache_manager": draw(st.booleans()),
    }
    cut = {"tp": draw(st.sampled_from([1, 2, 4])), "pp": pp}
    kv = draw(st.sampled_from(["bf16", "fp8"]))
    return Asked(draw(st.sampled_from(MODELS)), draw(st.sampled_from(GPUS)), kv, cut, flags)


def server(question: Asked, **other: Any) -> Served:
    """Return a question's server, or one with another cache, cut or flags."""
    changed = replace(question, **other)
    served = deployed(changed.model, changed.gpu, changed.cache, changed.cut["tp"], changed.cut["pp"])
    return replace(served, flags=Flags(**changed.flags))


@st.composite
def layouts(draw: st.DrawFn) -> Layout:
    """Draw layers of up to four kinds, in any number, laid out with any blocks."""
    kinds = {
        "full": st.builds(Keeps, st.just("full"), token=st.sampled_from([256.0, 1024.0, 4096.0])),
        "mla": st.just(Keeps("mla", 1152.0)),
        "sliding": st.builds(
            Keeps, st.just("sliding"), token=st.sampled_from([1024.0, 4096.0]), reach=st.integers(1, 8192)
        ),
        "chunked": st.builds(Keeps, st.just("chunked"), token=st.just(4096.0), reach=st.integers(1, 8192)),
        "state": st.builds(Keeps, st.just("state"), state=st.floats(1e3, 1e7)),
    }
    types = draw(st.lists(st.one_of(*kinds.values()), min_size=1, max_size=4, unique=True))
    kept = [one for each in types for one in [each] * draw(st.integers(1, 40))]
    paging = Paging(
        block=draw(st.sampled_from([16, 64])),
        align=draw(st.sampled_from([16, 64])),
        batched=draw(st.integers(1, 16_384)),
        context_parallel=draw(st.sampled_from([1, 2, 8])),
        state_blocks=draw(st.sampled_from([None, 1, 2, 5])),
        hybrid=draw(st.booleans()),
    )
    return arrange(kept, paging)


# one answer


@given(questions())
def test_terms_spend_the_budget(question: Asked) -> None:
    """visible x utilization = budget = sum of terms, the cache the last of them."""
    served = server(question)
    memory = answer(served, {})
    visible, budget, *spent = memory.terms

    assert (visible.name, budget.name, spent[-1].name) == ("visible", "budget", "kv")
    assert sum(term.bytes for term in spent) == pytest.approx(budget.bytes)
    assert budget.bytes == pytest.approx(visible.bytes * (served.flags.gpu_memory_utilization or 0))
    assert (memory.visible, memory.budget, memory.kv[0]) == (visible.bytes, budget.bytes, spent[-1].bytes)


@given(questions())
def test_a_value_lies_in_its_interval(question: Asked) -> None:
    """Of every term, of the cache and of tokens; terms that are taken are not negative; each has a rule."""
    served = server(question)
    memory = answer(served, {})

    assert all(term.low <= term.bytes <= term.high for term in memory.terms)
    assert all(term.bytes >= 0 for term in memory.terms[:-1])
    assert all(term.rule and term.provenance for term in memory.terms)
    value, low, high = memory.kv
    assert low <= value <= high
    if memory.tokens is not None:
        assert memory.tokens[1] <= memory.tokens[0] <= memory.tokens[2]


@given(questions())
def test_a_server_that_starts_holds_its_longest_request(question: Asked) -> None:
    """And one that does not says why; what it prints follows from its blocks."""
    served = server(question)
    memory = answer(served, {})
    assert isinstance(memory.room, PagedRoom)
    assert memory.blocks is not None
    assert memory.concurrency is not None

    need = memory.room.layout.request_blocks(memory.longest)
    if memory.starts:
        assert memory.room.sequences(memory.longest) >= 1
        assert need <= memory.blocks
        assert memory.kv[0] > 0
    else:
        assert memory.reason
    assert memory.concurrency == pytest.approx(memory.blocks / need)
    assert memory.blocks * memory.room.layout.block_bytes <= max(0.0, memory.kv[0])


@given(questions())
def test_groups_hold_every_layer_once(question: Asked) -> None:
    """Layers of the groups and their padding fill whole groups; blocks of a request are the groups' sum."""
    served = server(question)
    memory = answer(served, {})
    assert isinstance(memory.room, PagedRoom)
    layout = memory.room.layout

    assert all(group.layers >= 1 and group.padding >= 0 for group in memory.groups)
    if len(memory.groups) > 1:
        slots = sum(group.layers + group.padding for group in memory.groups)
        assert slots == layout.groups * layout.size
    assert sum(group.blocks_per_request or 0 for group in memory.groups) == layout.request_blocks(memory.longest)


# two answers


@given(questions(), st.floats(0.05, 0.95))
def test_more_utilisation_is_more_cache(question: Asked, share: float) -> None:
    """And as many blocks and tokens at least."""
    served = server(question)
    less, more = sorted((served.flags.gpu_memory_utilization or 0.0, share))
    one, two = made(served, gpu_memory_utilization=less), made(served, gpu_memory_utilization=more)

    assert one.kv[0] <= two.kv[0]
    assert (one.blocks or 0) <= (two.blocks or 0)
    assert (one.tokens or (0,))[0] <= (two.tokens or (0,))[0]


@given(questions(), st.integers(1, 32_768))
def test_a_larger_step_leaves_no_more_cache(question: Asked, tokens: int) -> None:
    """Its activations are as many at least."""
    served = server(question)
    rows = served.flags.max_num_seqs or 1
    assume(tokens >= rows)
    less, more = sorted((served.flags.max_num_batched_tokens or 0, tokens))

    kv = [made(served, max_num_batched_tokens=n).kv[0] for n in (less, more)]
    assert kv[0] >= kv[1]


@given(questions(), st.integers(1, 1024))
def test_more_requests_leave_no_more_cache(question: Asked, rows: int) -> None:
    """Their logits are as many at least."""
    served = server(question)
    assume(rows <= (served.flags.max_num_batched_tokens or 0))
    less, more = sorted((served.flags.max_num_seqs or 0, rows))

    kv = [made(served, max_num_seqs=n).kv[0] for n in (less, more)]
    assert kv[0] >= kv[1]


@given(questions())
def test_a_cache_in_fp8_holds_as_many_requests_at_least(question: Asked) -> None:
    """Of the longest length, of the same bytes; but where states make blocks that a request fills to a part."""
    one, two = (answer(server(question, cache=kv), {"kv": 40 * GIB}) for kv in ("bf16", "fp8"))
    assume(not any(group.kind == "state" for group in one.groups))

    assert (one.tokens or (0,))[0] <= (two.tokens or (0,))[0]
    assert (one.concurrency or 0) <= (two.concurrency or 0) + 1e-9


@given(questions())
def test_more_devices_hold_no_more_weights_each(question: Asked) -> None:
    """Half as many have more, and at most twice as much but for what the allocator counts beyond a tensor."""
    devices = question.cut["tp"]
    assume(devices > 1)
    one, two = (answer(server(question, cut={"tp": n, "pp": 1}), {}).terms[2] for n in (devices // 2, devices))

    assert one.name == "weights"
    assert two.bytes < one.bytes <= 2.05 * two.bytes


@given(st.sampled_from(["glm-5.1", "deepseek-v3.2", "deepseek-v2-lite"]), st.sampled_from([2, 4, 8]),
       st.integers(1, 100_000))  # fmt: skip
def test_context_parallel_devices_multiply_tokens(model: str, devices: int, blocks: int) -> None:
    """Of the older line; and a request takes its share of blocks."""
    served = deployed(model, "b200", "bf16", 8, 1)
    one, many = (
        answer(
            replace(served, flags=Flags(engine_version="0.19.0", decode_context_parallel_size=n)),
            {"kv": GIB, "blocks": float(blocks)},
        )
        for n in (1, devices)
    )
    assert one.tokens is not None
    assert many.tokens is not None
    assert one.concurrency is not None

    assert many.tokens[0] == devices * one.tokens[0]
    assert many.concurrency == pytest.approx(devices * one.concurrency, rel=0.01)


@given(questions(), st.integers(0, 1 << 30))
def test_what_a_log_says_counts_to_the_byte(question: Asked, size: int) -> None:
    """A larger cache is as many blocks at least."""
    served = server(question)
    one, two = (answer(served, {"kv": float(kv)}) for kv in (size, size + (1 << 28)))

    assert [one.kv[n] for n in range(3)] == [size] * 3
    assert (one.blocks or 0) <= (two.blocks or 0)


@given(questions())
def test_a_cache_without_windows_holds_no_more_of_long_requests(question: Asked) -> None:
    """Turning the hybrid manager off saves no block of one that is longer than window and steps together."""
    served = server(question)
    length = 1 << 20
    on, off = (made(served, disable_hybrid_kv_cache_manager=flag, max_model_len=length) for flag in (False, True))

    assert (on.concurrency or 0) >= (off.concurrency or 0) * 0.75  # padding and one block more a window


# layouts


@given(layouts(), st.floats(0, 1e12), st.floats(0, 1e12))
def test_blocks_grow_with_bytes(layout: Layout, one: float, two: float) -> None:
    """And never take more than there is."""
    less, more = sorted((one, two))

    assert layout.blocks(less) <= layout.blocks(more)
    assert layout.blocks(more) * layout.block_bytes <= more * (1 + 1e-12)


@given(layouts(), st.integers(1, 1 << 20), st.integers(1, 1 << 20))
def test_blocks_of_a_request_grow_with_its_length(layout: Layout, one: int, two: int) -> None:
    """At least one a group."""
    less, more = sorted((one, two))

    assert layout.groups <= layout.request_blocks(less) <= layout.request_blocks(more)


@given(layouts(), st.integers(1, 1 << 20), st.integers(0, 1 << 20))
def test_sequences_fit_into_the_pool(layout: Layout, context: int, blocks: int) -> None:
    """As many as there are, and no further one."""
    room, need = PagedRoom(layout, blocks), layout.request_blocks(context)
    fitting = room.sequences(context)

    assert fitting * need <= blocks < (fitting + 1) * need
    assert room.sequence_bytes(context) == need * layout.block_bytes


@given(layouts(), st.integers(0, 1 << 16), st.integers(1, 1 << 20))
def test_the_longest_request_fits_and_the_next_does_not(layout: Layout, blocks: int, most: int) -> None:
    """Up to the length that is asked for."""
    longest = layout.longest_request(blocks, most)

    assert 0 <= longest <= most
    assert longest == 0 or layout.request_blocks(longest) <= blocks
    assert longest == most or layout.request_blocks(longest + 1) > blocks


@given(layouts())
def test_pages_hold_what_layers_keep(layout: Layout) -> None:
    """A block of every type, and a state; groups hold all layers, with fewer slots left than a group has."""
    several = len(layout.sharing) > 1
    for one in layout.sharing:
        assert one.groups == ceil(one.layers / layout.size) or not several
        if several:
            assert one.keeps.state <= layout.page
            assert 0 <= one.groups * layout.size - one.layers < layout.size


# parts


@given(st.integers(1, 200), st.integers(1, 32))
def test_stages_hold_every_layer(layers: int, pp: int) -> None:
    """None has two more than another."""
    assume(pp <= layers)
    stages = stages_of(layers, pp)
    counts = [stage.layers for stage in stages]

    assert (sum(counts), len(counts)) == (layers, pp)
    assert max(counts) - min(counts) <= 1
    assert (sum(stage.first for stage in stages), sum(stage.last for stage in stages)) == (1, 1)


@given(st.integers(1, 4096), st.integers(1, 8))
def test_captured_sizes_are_at_most_51(rows: int, each: int) -> None:
    """And no fewer for more requests."""
    assert captured_sizes(rows, each) <= captured_sizes(rows + 1, each) <= 51


@given(st.lists(st.tuples(st.floats(0, 1e12), st.floats(0, 1e11)), max_size=5))
def test_a_sum_s_interval_is_no_wider_than_the_sum_of_intervals(sizes: list[tuple[float, float]]) -> None:
    """And as wide as the widest."""
    terms = [spread("a", size, sigma, "") for size, sigma in sizes]
    for found, widths in (
        (together(terms)[0], [term.bytes - term.low for term in terms]),
        (together(terms)[1], [term.high - term.bytes for term in terms]),
    ):
        assert max(widths, default=0.0) * (1 - 1e-9) <= found <= sum(widths) * (1 + 1e-9)
