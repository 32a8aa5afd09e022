"""Gains that papers on serving report, in set-ups like theirs: how much of each the simulator gives, against which baseline.

Only an order of magnitude is held: the ranges are what physics allows in these set-ups, not what was published. Where the
simulator gives less or more, the docstring says why; docs/serving-literature.md prints the same figures.
"""

from __future__ import annotations

from random import Random
from statistics import median
from typing import TYPE_CHECKING

import pytest

from roofcast.calculators.serving.chat_lengths import SHAREGPT
from roofcast.calculators.serving.loads import SharedPrefix
from roofcast.calculators.serving.occupancy import occupancy
from roofcast.calculators.serving.result import Goal
from roofcast.calculators.serving.service import Options
from roofcast.calculators.serving.simulate import result_of, run
from tests.documents import DOCS
from tests.serving_cases import sent
from tests.serving_literature import (
    ARXIV,
    CHATS,
    CONVERSATIONS,
    FIGURE_1,
    OPENCHAT,
    ORCA,
    Setup,
    apart,
    at,
    capacity,
    gpt_175b,
    mean_latency,
    median_latency,
    normalised,
    promise,
    saturated,
)

if TYPE_CHECKING:
    from pathlib import Path

    from roofcast.calculators.serving.lengths import Pairs

A100_40, A100_80 = "a100-40gb-sxm", "a100-80gb-sxm"


# Orca


@pytest.fixture
def orca(tmp_path: Path) -> Setup:
    """GPT-3 175B on 16 A100 40 GB, 8 by 2. Source: Yu et al., Orca, OSDI 2022, section 6 and table 1."""
    return Setup(gpt_175b(tmp_path), A100_40, tp=8, pp=2, flags={"max_model_len": 2048})


def test_continuous_against_static_batching_at_equal_latency(orca: Setup) -> None:
    """Published 36.9 x (6.81 against 0.185 requests/s at a median of 190 ms a token); here some 30 x and 7 x.

    Source: Yu et al., Orca, OSDI 2022, section 6.2 and figure 10: FasterTransformer at its best batch of 1 or 8, Orca at 32.

    Baselines from weak to fair: batches of 1; of 8 in contiguous memory for the longest request; as many as fit, in blocks.
    Both systems are some 1.5 times as quick as there, since kernels and host are of today. With the same kernels, memory and
    batch as Orca the fair static baseline loses a factor of 2 to 5: what padding and waiting for the longest output cost.
    """
    limit = median_latency(0.190)

    def of(policy: str, memory: str, most: int) -> float:
        return capacity(orca.service(Options(policy=policy, kv_memory=memory), max_num_seqs=most), ORCA, limit, 600)

    one, eight, fair = of("static", "max", 1), of("static", "max", 8), of("static", "paged", 128)
    orca_32, paged = of("continuous", "oracle", 32), of("continuous", "paged", 128)
    print(one, eight, fair, orca_32, paged, orca_32 / one, orca_32 / eight, paged / fair)

    assert one < eight < fair < orca_32 < paged
    assert 18 < orca_32 / one < 60
    assert 4 < orca_32 / eight < 12
    assert 2 < paged / fair < 6


def test_a_static_batch_answers_together(orca: Setup) -> None:
    """Of 2 and 100 tokens in one batch both are answered at the end; in continuous batching the short one leaves at once."""
    load = sent((0.0, 100, 2), (0.0, 100, 100))

    static, continuous = (
        run(orca.service(Options(policy=policy)), load).tally.e2e for policy in ("static", "continuous")
    )

    assert static[0] == pytest.approx(static[1])
    assert continuous[0] < 0.1 * continuous[1]


# chunked prefill


@pytest.mark.parametrize(
    ("setup", "limit", "published"),
    [(Setup("mistral-7b-v0.2", A100_80), 0.1, 2.6), (Setup("yi-34b", A100_80, tp=2), 0.2, 3.7)],
    ids=["mistral-7b", "yi-34b"],
)
def test_chunked_prefill_under_a_limit_on_time_between_tokens(setup: Setup, limit: float, published: float) -> None:
    """Published 2.6 x for Mistral-7B on one A100 and up to 3.7 x for Yi-34B on two; here 2.8 x and 3.5 x.

    Source: Agrawal et al., Sarathi-Serve, OSDI 2024, arXiv:2403.02310, section 5.1: the most requests a second whose 99th
    percentile of time between tokens is 0.1 and 0.2 s at most ("strict"), budgets of 512 tokens, 128 requests at most;
    against vLLM's whole prompts first, and Orca's whole prompts beside decode (up to 4.0 x for Yi-34B).

    The paper does not say on which of its two data sets each is: these are of chats, and `test_..._of_articles` has the
    other one. Yi-34B is served beyond its own 4,096 tokens there, as it is here.
    """
    chunked, first, orca = _under_itl(setup, limit, OPENCHAT)
    print(chunked, first, orca, chunked / first, chunked / orca)

    assert 0.6 * published < chunked / first < 1.6 * published
    assert 2 < chunked / orca < 6


def test_chunked_prefill_of_articles() -> None:
    """With prompts of 7,000 tokens and 200 out it is 1.6 x: the budget of 512 tokens is what prompts wait for."""
    chunked, first, orca = _under_itl(Setup("mistral-7b-v0.2", A100_80), 0.1, ARXIV)

    assert 1.2 < chunked / first < 2.6
    assert 1.5 < chunked / orca < 3


def _under_itl(setup: Setup, limit: float, lengths: Pairs) -> tuple[float, float, float]:
    """Most requests a second of chunked, prefill-first and Orca's scheduling under a limit on time between tokens."""
    keeps = promise(Goal(itl_seconds=limit))
    steps = {"chunked": 512, "prefill-first": 16384, "continuous": 16384}
    flags = {"max_num_seqs": 128, "max_model_len": 16384}
    chunked, first, orca = (
        capacity(
            setup.service(Options(policy=policy), max_num_batched_tokens=tokens, **flags), lengths, keeps, requests=300
        )
        for policy, tokens in steps.items()
    )
    return chunked, first, orca


def test_the_spike_of_a_prompt_of_8000_tokens_and_its_cure() -> None:
    """Eight that decode wait for the whole prompt once, or take pieces of 512 beside every token.

    Source: Agrawal et al. 2024, arXiv:2403.02310, figure 1 (generation stalls), for what is to be seen.
    """
    load = sent(*[(0.0, 100, 400)] * 8, (2.0, 8000, 10))
    longest, medians = {}, {}
    for policy, tokens in (("prefill-first", 8192), ("continuous", 16384), ("chunked", 512)):
        setup = Setup("llama-3.1-8b", "h100-sxm", flags={"max_num_batched_tokens": tokens})
        spread = result_of(run(setup.service(Options(policy=policy)), load), Goal()).itl_seconds
        assert spread is not None
        longest[policy], medians[policy] = spread.max, spread.p50
    print(longest, medians)

    assert longest["prefill-first"] > 30 * medians["prefill-first"]
    assert longest["continuous"] > 30 * medians["continuous"]
    assert longest["chunked"] < 0.15 * longest["prefill-first"]


# disaggregation

COLOCATED = Setup("opt-13b", A100_80, dp=3)
APART = Setup("opt-13b", A100_80)


def _pools(readers: int, writers: int) -> Options:
    """Pools on NVLink of one node, as DistServe places them: 300 GB/s."""
    return Options(readers=readers, writers=writers, kv_link=300e9, routing="least-loaded")


def _three(goal: Goal) -> dict[str, float]:
    """Most requests a second on three GPUs: each does both, whole prompts first or in pieces; 2 read and 1 decodes; 1 and 2."""
    keeps = promise(goal)
    first = COLOCATED.service(Options(policy="prefill-first", routing="least-loaded"), max_num_batched_tokens=2048)
    pieces = COLOCATED.service(Options(policy="chunked", routing="least-loaded"), max_num_batched_tokens=512)
    services = {
        "first": first,
        "pieces": pieces,
        "2+1": APART.service(_pools(2, 1)),
        "1+2": APART.service(_pools(1, 2)),
    }
    return {name: capacity(service, FIGURE_1, keeps, 400, 8.0) for name, service in services.items()}


def test_disaggregation_in_the_set_up_of_figure_1() -> None:
    """Published 2.1 x a GPU (10 against 1.6 requests/s a GPU on 3 and 1 GPUs); here 1.6 x, 1.3 x against chunked prefill.

    Source: Zhong et al., DistServe, OSDI 2024, arXiv:2401.09670, figure 1 and section 1: a 13B model, one A100 80 GB, 512
    in and 64 out, for 90 % a TTFT of 0.4 and a TPOT of 0.04 s (the limits second hand), vLLM of its day.

    Less, since the baseline is three times as quick here: a decode step takes 19 of the 40 ms, more is left for prompts.
    """
    found = _three(Goal(0.4, 0.04, percentile=90))
    print(found, found["2+1"] / found["first"], found["2+1"] / found["pieces"])

    assert 1.3 < found["2+1"] / found["first"] < 2.6
    assert 1.1 < found["2+1"] / found["pieces"] < 2.0
    assert found["1+2"] < found["first"]  # the wrong split loses


def test_disaggregation_gains_as_the_limit_comes_near_the_decode_step() -> None:
    """Up to 7.4 x is published; here 3.0 x where TPOT may be 22 ms, a seventh above a step that does nothing else.

    Source: Zhong et al. 2024, arXiv:2401.09670, section 6.2: 7.4 x is against DeepSpeed-MII for chats on OPT-13B, 2.0 to 4.6
    x against vLLM; 5.7 x for code and 4.3 x for summaries on OPT-66B.
    """
    found = _three(Goal(0.4, 0.022, percentile=90))
    print(found, found["1+2"] / found["first"], found["1+2"] / found["pieces"])

    assert 2 < found["1+2"] / found["first"] < 7.4
    assert 2 < found["1+2"] / found["pieces"] < 7.4


def test_a_tighter_promise_on_the_same_gpus() -> None:
    """Published a 12.6 x tighter promise (summaries, OPT-66B); here 1.4 x in TPOT's 90th percentile, 15 x in ITL's 99th.

    Source: Zhong et al. 2024, arXiv:2401.09670, section 6.2. A request's mean TPOT spreads a pause over its tokens; the gap
    in which the pause falls shows it, and pools that only decode have none.
    """
    lengths = apart("lognormal:6000:0.3", "lognormal:200:0.5")
    alike = Setup("llama-3.1-8b", "h100-sxm", dp=4)
    split = Setup("llama-3.1-8b", "h100-sxm")
    together = alike.service(Options(policy="prefill-first", routing="least-loaded"), max_num_batched_tokens=8192)
    pools = split.service(Options(readers=2, writers=2, kv_link=50e9, routing="least-loaded"))
    first, second = (result_of(at(service, lengths, 8.0, 400), Goal()) for service in (together, pools))
    assert first.tpot_seconds is not None
    assert second.tpot_seconds is not None
    assert first.itl_seconds is not None
    assert second.itl_seconds is not None
    print(first.tpot_seconds.p90 / second.tpot_seconds.p90, first.itl_seconds.p99 / second.itl_seconds.p99)

    assert first.tpot_seconds.p90 / second.tpot_seconds.p90 > 1.2
    assert first.itl_seconds.p99 / second.itl_seconds.p99 > 8


def test_split_machines_by_the_limit_on_tpot() -> None:
    """Published 1.4 x at 20 % less cost, 2.35 x at the same; here 1.7 x with TPOT of 1.5 times a request's alone, 1.0 x at 5.

    Source: Patel et al., Splitwise, ISCA 2024, arXiv:2311.18677, abstract and section 6: Llama-2-70B on machines of eight
    H100, limits in multiples of a request alone (second hand); baseline mixed batches. Four machines on both sides, three
    for prefill; lengths like Azure's conversations (means 1,155 and 211; sigmas assumed). Pools of different machines,
    where the published gain in cost is from, cannot be asked.
    """
    one, four = Setup("llama-2-70b", "h100-sxm", tp=8), Setup("llama-2-70b", "h100-sxm", tp=8, dp=4)
    alone = saturated(one.service(), CONVERSATIONS, 1, 100)
    assert alone.ttft_seconds is not None
    assert alone.tpot_seconds is not None
    together = four.service(Options(policy="continuous", routing="least-loaded"))
    split = one.service(Options(readers=3, writers=1, kv_link=50e9, routing="least-loaded"))
    gain = []
    for first, each in ((3, 1.5), (3, 2.5), (6, 5)):
        keeps = promise(Goal(first * alone.ttft_seconds.p50, each * alone.tpot_seconds.p50, percentile=90))
        gain.append(
            capacity(split, CONVERSATIONS, keeps, 2000, 32.0) / capacity(together, CONVERSATIONS, keeps, 2000, 16.0)
        )
    print(gain)

    assert 1.3 < gain[0] < 4
    assert 1.05 < gain[1] < 2
    assert 0.6 < gain[2] < 1.2


# prefix sharing


def test_shared_prompts_against_no_cache() -> None:
    """Published up to 6.4 x; here 8 x, of 9 x that is possible where 800 of 900 tokens are shared and one is made.

    Source: Zheng et al., SGLang, 2024, arXiv:2312.07104, section 6: Llama-7B on an A10G, MMLU with 5 examples in the prompt
    and one token out, against vLLM 0.2.5 without a cache. Lengths are assumed. More than published, since neither
    tokenizing nor a program's own work is in it; with more tokens out less, for decode is not saved.
    """
    setup = Setup("llama-7b", "a10g", flags={"max_num_batched_tokens": 4096})
    gain = {}
    for output in ("1", "8", "64"):
        none, radix = (
            saturated(
                setup.service(Options(policy="prefill-first", prefix_cache=cache)), apart("900", output), 128, 500,
                SharedPrefix(800),
            ).requests_per_second
            for cache in ("off", "radix")
        )  # fmt: skip
        assert none is not None
        assert radix is not None
        gain[output] = radix / none
    print(gain)

    assert 4 < gain["1"] < 9
    assert gain["1"] > gain["8"] > gain["64"] > 1


def test_shared_prefix_first_where_the_cache_is_small() -> None:
    """Of 57 shared beginnings of 800 tokens a memory of 14,336 keeps a third: by arrival 1.3 x no cache, by match 4 x.

    Source: Zheng et al. 2024, arXiv:2312.07104, section 3 (cache-aware scheduling) and figure 8c; MMLU has 57 subjects.
    """
    setup = Setup("llama-7b", "a10g", flags={"max_num_batched_tokens": 4096})
    rate, hits = {}, {}
    for order, cache in (("fifo", "off"), ("fifo", "radix"), ("prefix", "radix")):
        service = setup.service(Options(policy="prefill-first", prefix_cache=cache, order=order))
        found = saturated(service, apart("uniform:850-950", "1"), 256, 1500, SharedPrefix(800, 57))
        assert found.requests_per_second is not None
        rate[order, cache], hits[order, cache] = found.requests_per_second, found.prefix_hit_rate or 0.0
    print(rate, hits)

    assert 1.1 < rate["fifo", "radix"] / rate["fifo", "off"] < 2
    assert 2.5 < rate["prefix", "radix"] / rate["fifo", "off"] < 6.4
    assert hits["fifo", "radix"] < 0.4
    assert hits["prefix", "radix"] > 0.6


# paging


def test_blocks_against_contiguous_memory_at_equal_latency() -> None:
    """Published 1.7-2.7 x Orca (Oracle) and 2.7-8 x Orca (Max); here 1.9 x and 3.1 x, and as many requests in a batch.

    Source: Kwon et al., vLLM, SOSP 2023, arXiv:2309.06180, section 6.2, figures 12 and 13: OPT-13B on an A100 40 GB with 12
    GB of KV cache (table 1), ShareGPT; at 2 requests/s 30.4 requests in a batch against 13.6, 9.8 and 7.0. The rates are
    those at which the mean latency is 0.5 s a token.
    """
    setup = Setup(
        "opt-13b", A100_40, flags={"max_num_batched_tokens": 2560, "kv_cache_memory_bytes": 12 * 2**30, "max_num_seqs": 256}
    )  # fmt: skip
    rate, running = {}, {}
    for kind in ("max", "pow2", "oracle", "paged"):
        service = setup.service(Options(policy="prefill-first", kv_memory=kind))
        rate[kind] = capacity(service, CHATS, mean_latency(0.5), 400)
        running[kind] = saturated(service, CHATS, 100, 600).pools[0].running
    print(rate, running, {kind: rate["paged"] / value for kind, value in rate.items()})

    assert rate["max"] < rate["pow2"] < rate["oracle"] < rate["paged"]
    assert 2.4 < rate["paged"] / rate["max"] < 8
    assert 1.5 < rate["paged"] / rate["oracle"] < 2.7
    assert list(running.values()) == pytest.approx([7.0, 9.81, 13.62, 30.42], rel=0.12)


@pytest.mark.parametrize("kind", ["max", "pow2", "oracle", "paged"])
def test_the_table_of_the_document(kind: str) -> None:
    """docs/serving.md prints what `occupancy` finds: states, to come, never used, between pieces, in %."""
    found = occupancy(SHAREGPT.pairs(3000, Random(0)), 15_728, 2048, kind)  # noqa: S311 - no secret
    [row] = [line for line in (DOCS / "serving.md").read_text().splitlines() if line.startswith(f"| `{kind}`")][1:2]
    states, _, *others = (float(cell) for cell in row.split("|")[2:-1])

    assert (states, *others) == pytest.approx(
        [100 * share for share in (found.states, found.to_come, found.never, found.external)], abs=0.051
    )


def test_normalised_latency_by_hand(orca: Setup) -> None:
    """A request alone of 11 tokens: its time over 11, whatever part of it comes before the first."""
    load = sent((0.0, 100, 11))
    ran = run(orca.service(Options(policy="continuous")), load)

    assert normalised(ran) == pytest.approx([ran.tally.e2e[0] / 11])
    assert median(normalised(ran)) > 0
