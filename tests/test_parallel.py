"""What devices that share a model do, hold and exchange, by numbers worked by hand."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

import pytest

from roofcast.calculators.deployment import Deployment, Ready, cache_on_one, prepare
from roofcast.calculators.errors import UsageError
from roofcast.calculators.parallel import Fabric, Level, exchange_cost, fabric_of
from roofcast.calculators.phases import Asked, Point, answer_point
from roofcast.hwdb.lookup import find_accelerator
from roofcast.modelspec.formats import FORMATS
from roofcast.modelspec.op import Exchange, Op
from roofcast.modelspec.sharding import Shards
from tests.checkpoints import catalogued

if TYPE_CHECKING:
    from roofcast.calculators.roofline import Term

BANDWIDTH, NVLINK, NETWORK = 4.8e12, 450e9, 50e9  # B/s, one direction: an H200's, and 400 Gbit/s
HOP, FAR_HOP = 0.6e-6, 2.7e-6  # s


@cache
def ready(name: str, gpu: str = "h200", **shards: int) -> Ready:
    """Prepare a model of the catalogue on devices that share it."""
    return prepare(
        catalogued(name), Deployment(find_accelerator(gpu).accelerator, FORMATS["bf16"], shards=Shards(**shards))
    )


def decode(made: Ready, batch: int, context: int) -> Point:
    """Answer a decode step."""
    return answer_point(made, Asked("decode", batch, context))


def exchanges(point: Point) -> dict[str, Term]:
    """The exchanges of a step by name."""
    return {term.op.name: term for term in point.work.terms if isinstance(term.op, Exchange)}


def state_of(made: Ready, batch: int, context: int) -> float:
    """Bytes of state that a decode step moves on one device."""
    return decode(made, batch, context).work.state_bytes


# --- DeepSeek-V3 on H200s, 64 sequences on each replica, 4,096 tokens each


BATCH, CONTEXT = 64, 4096
LATENTS = 61 * 576 * 2 * BATCH * CONTEXT  # B: one latent and RoPE key for all heads, in 16 bits
PLAIN = 2 * (61 * (2 * 7168 + 1536 + 512) + 7168 + 58 * 256 * 7168)  # B: norms and routers, whole on every device
ROWS, HEAD = 2 * BATCH * 7168, 2 * 129280 * 7168  # B: rows of the input table, and the head


def fp8(rows: int, columns: int) -> int:
    """Bytes of a matrix in FP8: one an element, and an fp32 scale a block of 128 x 128."""
    return rows * columns + 4 * -(-rows // 128) * -(-columns // 128)


def mlp(width: int) -> int:
    """Bytes of gate, up and down."""
    return 2 * fp8(width, 7168) + fp8(7168, width)


DOWN = 61 * (fp8(1536, 7168) + fp8(576, 7168))  # to the latents
HEADS = 61 * (fp8(128 * 192, 1536) + fp8(128 * 256, 512) + fp8(7168, 128 * 128))
DENSE, SHARED, EXPERT = 3 * mlp(18432), 58 * mlp(2048), mlp(2048)


def distinct(tokens: int) -> float:
    """Experts of a layer that so many tokens choose, 8 of 256 each."""
    return 256 * (1 - (248 / 256) ** tokens)


@pytest.mark.parametrize("ep", [1, 8])
def test_deepseek_on_eight_reads_an_eighth_of_all_but_latents(ep: int) -> None:
    """Projections to the latents, routers, norms and the cache are whole on each; experts cut or dealt are as many bytes."""
    work = decode(ready("deepseek-v3", tp=8, ep=ep), BATCH, CONTEXT).work
    shared = HEADS + DENSE + SHARED + HEAD + 58 * distinct(BATCH) * EXPERT

    assert work.state_bytes == LATENTS
    assert work.weight_bytes == pytest.approx(DOWN + PLAIN + (ROWS + shared) / 8, rel=1e-9)


@pytest.mark.parametrize("ep", [1, 8])
def test_deepseek_on_eight_works_an_eighth(ep: int) -> None:
    """2 T of every weight that works, 8 experts of 256 a token; scores 2 C (128 / 8) (2 x 512 + 64)."""
    work = decode(ready("deepseek-v3", tp=8, ep=ep), BATCH, CONTEXT).work
    heads = 61 * (1536 * 128 * 192 + 512 * 128 * 256 + 128 * 128 * 7168)
    whole = 61 * 7168 * (1536 + 576) + PLAIN / 2
    split = heads + 3 * 3 * 7168 * 18432 + 58 * 9 * 3 * 7168 * 2048 + 129280 * 7168
    scores = 61 * CONTEXT * 2 * 16 * 1088

    assert work.flops == pytest.approx(BATCH * (2 * (whole + split / 8) + scores), rel=1e-12)


@pytest.mark.parametrize("ep", [1, 8])
def test_deepseek_on_eight_takes_its_bytes_and_its_sums(ep: int) -> None:
    """All is memory at 64 sequences, MLA on 16 heads too (30 FLOP/B); 123 sums of 0.9 MB, in the switch, and logits."""
    point = decode(ready("deepseek-v3", tp=8, ep=ep), BATCH, CONTEXT)
    memory = (
        DOWN + PLAIN + LATENTS + (ROWS + HEADS + DENSE + SHARED + HEAD + 58 * distinct(BATCH) * EXPERT) / 8
    ) / BANDWIDTH
    one_sum = 2 * HOP + ROWS / NVLINK  # less than 2 x 7/8 of it without the switch's help, or 7 of it in one hop
    logits = HOP + 7 / 8 * (2 * BATCH * 129280) / NVLINK

    assert point.bound == pytest.approx(memory + 123 * one_sum + logits, rel=1e-9)
    assert {name: term.bound for name, term in exchanges(point).items()} == {
        "tp.all_reduce": pytest.approx(123 * one_sum, rel=1e-9),
        "tp.logits": pytest.approx(logits, rel=1e-9),
    }


def test_deepseek_on_sixteen_replicas_that_share_experts() -> None:
    """Each has all heads of its own 64 sequences, 8 FLOP over the ridge, and 16 experts that serve all 1,024."""
    point = decode(ready("deepseek-v3", dp=16, ep=16), 16 * BATCH, CONTEXT)
    weights = DOWN + PLAIN + ROWS + HEADS + DENSE + SHARED + HEAD + 58 * distinct(16 * BATCH) / 16 * EXPERT
    scores = BATCH * 61 * CONTEXT * 2 * 128 * 1088
    groups, devices = 2 * (1 - (1 / 2) ** 8), 16 * (1 - (15 / 16) ** 8)  # that a token's 8 experts stand in
    sent = ROWS * max(groups / 2 / NETWORK, devices * 7 / 16 / NVLINK)
    dispatch, combine = 58 * (FAR_HOP + sent / 2), 58 * (FAR_HOP + sent)  # out in FP8, back in 16 bits

    assert point.work.state_bytes == LATENTS
    assert point.work.weight_bytes == pytest.approx(weights, rel=1e-9)
    assert scores / 989.4e12 > LATENTS / BANDWIDTH
    assert point.bound == pytest.approx(weights / BANDWIDTH + scores / 989.4e12 + dispatch + combine, rel=1e-9)
    assert point.rate == pytest.approx(1024 / point.bound, rel=1e-12)  # type: ignore[operator]
    assert {name: term.bound for name, term in exchanges(point).items()} == {
        "ep.dispatch": pytest.approx(dispatch, rel=1e-9),
        "ep.combine": pytest.approx(combine, rel=1e-9),
    }


def test_experts_of_sixteen_replicas_work_for_all_of_them() -> None:
    """1,024 tokens choose 8 experts each, a sixteenth of these on each device: 512 of 3 x 7168 x 2048."""
    work = decode(ready("deepseek-v3", dp=16, ep=16), 16 * BATCH, CONTEXT).work
    routed = sum(op.flops for op in work.ops if op.family == "moe")

    assert routed == 58 * 512 * 2 * 3 * 7168 * 2048


def test_deepseek_over_two_domains_sums_through_the_network() -> None:
    """Of sixteen, eight sum inside and an eighth of the tensor crosses: two hops, and one of the network."""
    point = decode(ready("deepseek-v3", tp=16), BATCH, CONTEXT)
    one_sum = 2 * HOP + FAR_HOP + max(ROWS / NVLINK, ROWS / 8 / NETWORK)
    logits = 2 * BATCH * 129280
    gathered = HOP + FAR_HOP + max(7 / 8 * logits / NVLINK, logits / 8 / 2 / NETWORK)
    shared = HEADS + DENSE + SHARED + HEAD + 58 * distinct(BATCH) * EXPERT

    assert point.work.bytes == pytest.approx(DOWN + PLAIN + LATENTS + (ROWS + shared) / 16, rel=1e-9)
    assert point.bound == pytest.approx(point.work.bytes / BANDWIDTH + 123 * one_sum + gathered, rel=1e-9)


# --- what splits and what replicates


def test_kv_heads_replicate_beyond_one_a_device() -> None:
    """Llama 3.1 8B has 8: on 16 devices each has one of them, as on 8, and so the projections of keys and values."""
    eight, sixteen = ready("llama-3.1-8b", tp=8), ready("llama-3.1-8b", tp=16)
    kv = 32 * 2 * 1024 * 4096 * 2

    assert state_of(eight, 4, 1024) == state_of(sixteen, 4, 1024) == 4 * 1024 * 131072 / 8
    assert cache_on_one(eight, 4, 1024) == cache_on_one(sixteen, 4, 1024)
    bytes_of = {
        made.deployment.shards.tp: sum(
            term.op.weight_bytes for term in decode(made, 4, 1024).work.term("attn.qkv") if isinstance(term.op, Op)
        )
        for made in (eight, sixteen)
    }
    queries = 32 * 4096 * 4096 * 2
    assert bytes_of == {8: queries / 8 + kv / 8, 16: queries / 16 + kv / 8}


def test_a_latent_is_whole_on_every_device() -> None:
    """MLA: 61 x 576 x 2 bytes a token on each of 8, and an eighth of the scores."""
    one, eight = ready("deepseek-v3"), ready("deepseek-v3", tp=8)

    assert cache_on_one(one, 3, 1000) == cache_on_one(eight, 3, 1000) == 3 * 1000 * 61 * 1152
    assert state_of(one, 3, 1000) == state_of(eight, 3, 1000)


def test_states_of_a_hybrid_split_by_head() -> None:
    """Qwen3-Next on 4: 8 of 32 matrices; 2 KV heads replicate, as on 2."""
    one, four = ready("qwen3-next-80b-a3b"), ready("qwen3-next-80b-a3b", tp=4)
    matrices, keys = 36 * 2 * (32 * 128 * 128 * 4 + 8192 * 4 * 2), 12 * 2 * 256 * 2

    assert state_of(one, 1, 100) == matrices + 100 * 2 * keys
    assert state_of(four, 1, 100) == matrices / 4 + 100 * keys


@pytest.mark.parametrize("tp", [2, 4, 8])
def test_llama_sums_65_times(tp: int) -> None:
    """After attention and feed-forward of 32 layers and the split input table: 2 hops and the whole tensor by the switch."""
    point = decode(ready("llama-3.1-8b", tp=tp), 256, 512)
    size = 256 * 4096 * 2
    each = min(HOP + (tp - 1) * size / NVLINK, 2 * HOP + size / NVLINK)

    assert exchanges(point)["tp.all_reduce"].bound == pytest.approx(65 * each, rel=1e-12)


# --- replicas and stages


def test_replicas_each_have_their_share() -> None:
    """64 sequences on 4 replicas are 16 on one: as long, four times the tokens; 65 are 17 on the fullest."""
    one, four = decode(ready("llama-3.1-8b"), 16, 1024), decode(ready("llama-3.1-8b", dp=4), 64, 1024)
    more = decode(ready("llama-3.1-8b", dp=4), 65, 1024)

    assert four.bound == one.bound
    assert four.rate == pytest.approx(4 * one.rate)  # type: ignore[operator]
    assert more.bound == decode(ready("llama-3.1-8b"), 17, 1024).bound
    assert exchanges(four) == {}


def test_stages_decode_a_quarter_of_the_batch_each() -> None:
    """64 on 4 stages: 4 parts of 16, each as long in the last stage as in any; that one has the head as well."""
    point, alone = decode(ready("llama-3.1-8b", pp=4), 64, 1024), decode(ready("llama-3.1-8b"), 16, 1024)
    sends, head = 3 * (HOP + 16 * 4096 * 2 / NVLINK), 128256 * 4096 * 2 / BANDWIDTH

    assert point.bound == pytest.approx(alone.bound - head + sends + 4 * head, rel=1e-12)  # type: ignore[operator]
    assert point.rate == pytest.approx(64 / point.bound, rel=1e-12)  # type: ignore[operator]
    assert cache_on_one(ready("llama-3.1-8b", pp=4), 64, 1024) == 64 * 1024 * 131072 / 4


def test_stages_fill_in_prefill() -> None:
    """A whole prompt a step: one takes a full pass; four on 4 stages of 8 layers three stages more, 1 + 3/4 passes."""
    made, alone = ready("llama-3.1-8b", pp=4), answer_point(ready("llama-3.1-8b"), Asked("prefill", 1, 2048))
    one_pass = alone.bound + 3 * (HOP + 2048 * 4096 * 2 / NVLINK)  # type: ignore[operator]
    times = [answer_point(made, Asked("prefill", batch, 2048, budget=2048)).bound for batch in (1, 4)]

    assert times == [pytest.approx(passes * one_pass, rel=1e-12) for passes in (1, 1.75)]


def test_stages_take_a_prompt_in_pieces() -> None:
    """Without a budget a long prompt is cut so that stages overlap: less than a pass, more than a quarter of one."""
    made, alone = ready("llama-3.1-8b", pp=4), answer_point(ready("llama-3.1-8b"), Asked("prefill", 1, 32768))
    point = answer_point(made, Asked("prefill", 1, 32768))

    assert alone.bound / 4 < point.bound < 0.35 * alone.bound  # type: ignore[operator]
    assert point.work.flops == pytest.approx(alone.work.flops, rel=1e-9)
    assert point.work.weight_bytes > alone.work.weight_bytes  # once a piece


def test_stages_of_eight_send_over_the_network() -> None:
    """tp 8, pp 2: a device of the next stage is 8 away, beyond the domain; each sends an eighth."""
    sent = exchanges(decode(ready("llama-3.1-8b", tp=8, pp=2), 64, 1024))["pp.send"]

    assert sent.bound == pytest.approx(FAR_HOP + 32 * 4096 * 2 / 8 / NETWORK, rel=1e-12)


# --- links


EIGHT = Fabric((Level("scale-up", 8, 100e9, 1e-6),))
CASES: dict[str, tuple[Exchange, float]] = {
    "large sum: 2 (n - 1) / n s in 2 hops": (Exchange("x", "all_reduce", 8e9, 8, 1, 3), 3 * (2e-6 + 2 * 7 / 8 * 0.08)),
    "small sum: (n - 1) s in one hop": (Exchange("x", "all_reduce", 8e3, 8, 1, 1), 1e-6 + 7 * 0.08e-6),
    "gather: (n - 1) / n s": (Exchange("x", "all_gather", 8e9, 4, 2, 2), 2 * (1e-6 + 3 / 4 * 0.08)),
    "scatter: likewise": (Exchange("x", "reduce_scatter", 8e9, 8, 1, 1), 1e-6 + 7 / 8 * 0.08),
    "all to all: each of 8 once": (Exchange("x", "all_to_all", 8e9, 8, 1, 1), 1e-6 + 7 / 8 * 0.08),
    "to the next: s": (Exchange("x", "point_to_point", 8e9, 2, 1, 5), 5 * (1e-6 + 0.08)),
    "with nobody": (Exchange("x", "all_reduce", 8e9, 1, 1, 5), 0.0),
}


@pytest.mark.parametrize("name", CASES)
def test_exchanges_over_one_link(name: str) -> None:
    """Hops, and the bytes that each rank must send, at 100 GB/s and a microsecond."""
    exchange, seconds = CASES[name]

    assert exchange_cost(exchange, EIGHT).seconds == pytest.approx(seconds, rel=1e-12)


def test_four_2080_ti_sum_in_pairs_and_over_pcie() -> None:
    """NVLink joins two at 50 GB/s, PCIe the pairs at 15.75 GB/s; half of the tensor crosses; nobody's switch sums."""
    fabric = fabric_of(find_accelerator("rtx-2080-ti").accelerator, 4, None)
    size = 1e9

    assert [(level.name, level.bandwidth, level.sums) for level in fabric.levels] == [
        ("scale-up", 50e9, False),
        ("pcie", 15.75e9, False),
    ]
    seconds = exchange_cost(Exchange("x", "all_reduce", size, 4, 1, 1), fabric).seconds
    assert seconds == pytest.approx(max(size / 50e9, size / 2 / 15.75e9), rel=1e-3)
    assert any("PCIe" in line for line in fabric.assumptions)


def test_a_network_that_is_given_is_not_assumed() -> None:
    """Sixteen H200s need one: 50 GB/s of each is an assumption that is told, 25 GB/s asked for is none."""
    accelerator = find_accelerator("h200").accelerator
    assumed, given = (fabric_of(accelerator, 16, network) for network in (None, 25e9))

    assert [level.bandwidth for level in (assumed.levels[-1], given.levels[-1])] == [NETWORK, 25e9]
    assert ("--network" in assumed.assumptions[0], given.assumptions) == (True, ())
    assert fabric_of(accelerator, 8, None).assumptions == ()


# --- refusals


@pytest.mark.parametrize(
    ("name", "shards", "says"),
    [
        ("llama-3.1-8b", {"tp": 3}, "3"),
        ("llama-3.1-8b", {"tp": 64}, "64"),
        ("llama-3.1-8b", {"pp": 33}, "32 layers"),
        ("llama-3.1-8b", {"tp": 8, "ep": 8}, "no routed experts"),
        ("deepseek-v3", {"tp": 8, "ep": 3}, "must divide"),
        ("deepseek-v3", {"tp": 8, "ep": 16}, "1, 2, 4, 8"),
        ("qwen3-30b-a3b", {"dp": 3, "ep": 3}, "128 experts"),
    ],
)
def test_cuts_that_leave_a_part_are_refused(name: str, shards: dict[str, Any], says: str) -> None:
    """A head, a layer or an expert is whole on some device; the message names what would do."""
    with pytest.raises(UsageError, match=says):
        ready(name, **shards)
