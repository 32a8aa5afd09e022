"""Rounds on a machine: verifying is a step like any other, drafting is added, and the best length follows."""

from __future__ import annotations

from functools import cache

import pytest

from roofcast.calculators.deployment import Deployment, Ready, cache_on_one, prepare
from roofcast.calculators.drafts import HeadAsked, Shape, drafter_of, given_cost
from roofcast.calculators.errors import UsageError
from roofcast.calculators.phases import Asked, answer_point
from roofcast.calculators.rounds import (
    LONGEST,
    Acceptance,
    Speculation,
    best_round,
    least_acceptance,
    shapes_of,
    textbook_cost_ratio,
    timed_lengths,
    timed_round,
)
from roofcast.calculators.speculate import speculate_result
from roofcast.calculators.step import estimate
from roofcast.hwdb.lookup import find_accelerator
from roofcast.modelspec.formats import FORMATS
from roofcast.modelspec.sharding import Shards
from roofcast.modelspec.step import DECODE, decode_step
from tests.checkpoints import LLAMA_3_1_8B, catalogued, loaded

BANDWIDTH, PEAK = 3.35e12, 989.4e12  # of an H100 SXM. [B/s], [FLOP/s]
MATRICES = 32 * (2 * 4096 * 4096 + 2 * 4096 * 1024 + 3 * 4096 * 14336) + 128256 * 4096  # of Llama 3.1 8B, head included
TOKEN = 32 * 2 * 8 * 128 * 2  # B that a token keeps


@cache
def llama() -> Ready:
    """Llama 3.1 8B on an H100."""
    return prepare(loaded(LLAMA_3_1_8B), Deployment(find_accelerator("h100-sxm").accelerator, FORMATS["bf16"]))


@cache
def deepseek() -> Ready:
    """DeepSeek-V3 on eight H200s."""
    accelerator = find_accelerator("h200").accelerator
    return prepare(catalogued("deepseek-v3"), Deployment(accelerator, FORMATS["bf16"], shards=Shards(8)))


def asked(ready: Ready, method: str = "ngram", context: int = 1024, *shapes: Shape) -> Speculation:
    """Speculation on a target with a head of its own."""
    return Speculation(ready, drafter_of(method, ready, HeadAsked()), context, shapes or (Shape(4),))


def test_no_drafted_token_is_a_decode_step() -> None:
    """A question that drafts nothing is plain decode, to the last term."""
    plain = answer_point(llama(), Asked(DECODE, 16, 4096))

    assert answer_point(llama(), Asked(DECODE, 16, 4096, drafted=0)) == plain
    assert plain.tokens == 16


def test_verifying_is_the_step_over_all_positions() -> None:
    """Four drafted tokens behind a context of 1,024 are five positions of 1,028 tokens."""
    verified = answer_point(llama(), Asked(DECODE, 16, 1024, drafted=4))

    assert verified.work == estimate(llama(), decode_step(16, 1028, tokens=5))
    assert verified.tokens == 16 * 5


def test_verifying_by_hand_where_memory_bounds() -> None:
    """One sequence: weights once and the cache once for five positions, over the bandwidth; the FLOP cost nothing yet."""
    timed = timed_round(asked(llama()), Shape(4), 1)
    read = 2 * MATRICES + 2 * 65 * 4096 + 5 * 2 * 4096 + 1028 * TOKEN

    assert timed.verify == pytest.approx(read / BANDWIDTH, rel=1e-4)
    assert timed.bound_by == "memory"
    assert timed.cost == pytest.approx(1.0, abs=1e-3)


def test_verifying_by_hand_where_arithmetic_bounds() -> None:
    """256 sequences x 5 positions: 2 x 1,280 FLOP a weight over the peak, and the caches over the bandwidth."""
    timed = timed_round(asked(llama()), Shape(4), 256)
    matrices = 2 * 1280 * MATRICES / PEAK
    attention = 256 * 1028 * TOKEN / BANDWIDTH
    norms = 2 * 65 * 4096 / BANDWIDTH

    assert timed.verify == pytest.approx(matrices + attention + norms, rel=1e-3)
    assert timed.decode == pytest.approx((2 * MATRICES + 256 * 1024 * TOKEN) / BANDWIDTH, rel=1e-3)
    assert timed.cost == pytest.approx((19.4 + 10.3) / (4.5 + 10.3), abs=0.02)  # [ms]


def test_drafting_is_added() -> None:
    """T_draft + T_verify over T_decode."""
    question = asked(llama(), "eagle3")
    timed = timed_round(question, Shape(4), 1)
    drafting = question.drafter.seconds(Shape(4), 1, 1024)

    assert timed.draft == drafting
    assert timed.cost == pytest.approx((drafting + (timed.verify or 0)) / (timed.decode or 1))
    assert timed.speedup(Acceptance(0.8)) == pytest.approx(3.3616 / (timed.cost or 1))


def test_a_given_cost_counts_in_decode_steps() -> None:
    """c = 0.1: four drafted tokens are 0.4 decode steps, whatever the batch."""
    question = Speculation(llama(), given_cost(0.1), 1024, (Shape(4),))

    assert timed_round(question, Shape(4), 1).cost == pytest.approx(1.4, abs=1e-3)
    assert textbook_cost_ratio(question) == 0.1


def test_the_textbooks_ratio_is_of_sizes() -> None:
    """An EAGLE-3 head's later step over a decode step: (424,689,664 - 3 h^2) over 7.5 billion weights."""
    ratio = textbook_cost_ratio(asked(llama(), "eagle3"))

    assert ratio == pytest.approx((424_689_664 - 3 * 4096**2 + 4096) / (MATRICES + 65 * 4096 + 4096), rel=1e-5)


def test_speculation_stops_paying_at_large_batch() -> None:
    """Eight drafted tokens at acceptance 0.6: 2.475 tokens for 1.4 steps at batch 1, a loss at 256, where arithmetic bounds; the textbook sees none."""
    question = asked(llama(), "eagle3", 1024, Shape(8))
    one, many = (row for row in speculate_result(question, [Acceptance(0.6)], [1, 256])[0].rounds)

    assert one.speedup == pytest.approx(2.475 / 1.4, abs=0.02)
    assert many.speedup is not None
    assert many.speedup < 1
    assert many.textbook_speedup == one.textbook_speedup
    assert many.verify_bound_by == "compute"


def test_a_dear_draft_never_pays() -> None:
    """A draft of half a decode step at acceptance 0.4: (1 + a) / (1 + c) < 1, and plain decode is the best."""
    question = Speculation(llama(), given_cost(0.5), 1024, (Shape(1),))
    row = speculate_result(question, [Acceptance(0.4)], [1])[0].best[0]

    assert (row.drafted, row.speedup) == (0, 1.0)
    assert row.break_even_acceptance == pytest.approx(0.5, abs=0.001)


def test_the_best_length_grows_with_acceptance() -> None:
    """And is the argmax of the rows it is chosen from."""
    question = asked(llama(), "eagle3")
    timed = timed_lengths(question, 1)
    found = [best_round(timed, Acceptance(a)) for a in (0.3, 0.6, 0.8, 0.9)]
    lengths = [one[0] for one in found if one]

    assert lengths == sorted(lengths)
    assert lengths[0] < lengths[-1] <= LONGEST
    for one, a in zip(found, (0.3, 0.6, 0.8, 0.9), strict=True):
        assert one is not None
        assert one[1] == max(each.speedup(Acceptance(a)) or 0 for each in timed)


def test_more_positions_read_more_experts() -> None:
    """DeepSeek-V3, one sequence: 256 (1 - (1 - 8/256)^T) experts at T = 1 and 4 are 8 and 30.5, so that verifying is dear."""
    one, four = (answer_point(deepseek(), Asked(DECODE, 1, 4096, drafted=k)).work for k in (0, 3))
    experts = [
        sum(op.weight_bytes for op in work.ops if op.name.startswith("moe.") and op.family == "moe")
        for work in (one, four)
    ]

    assert experts[1] / experts[0] == pytest.approx(256 * (1 - (248 / 256) ** 4) / 8)
    assert timed_round(asked(deepseek(), "mtp", 4096), Shape(3), 1).cost == pytest.approx(2.41, abs=0.02)


def test_a_second_token_at_large_batch_is_almost_free() -> None:
    """DeepSeek reports 1.8 x at 85 to 90 % of second tokens; at 64 sequences a GPU group the bound is 1.6 to 1.7 x."""
    timed = timed_round(asked(deepseek(), "mtp", 4096), Shape(1), 64)

    assert 1.55 < (timed.speedup(Acceptance(0.85)) or 0) < (timed.speedup(Acceptance(0.9)) or 0) < 1.9


def test_a_tree_verifies_all_its_nodes() -> None:
    """Sixty-four positions of a tree four deep cost what 64 positions cost, and yield at most five tokens."""
    question = asked(llama(), "medusa", 1024, Shape(4, 63))
    row = speculate_result(question, [Acceptance(0.6)], [1])[0].rounds[0]

    assert row.positions == 64
    assert row.tokens_per_round == pytest.approx(2.3056)
    assert row.verify_seconds == answer_point(llama(), Asked(DECODE, 1, 1024, drafted=63)).bound


def test_the_best_of_trees_is_among_those_asked() -> None:
    """How many nodes a deeper tree would have is not known."""
    question = asked(llama(), "medusa", 1024, Shape(2, 63), Shape(4, 63))

    assert {one.shape.drafted for one in timed_lengths(question, 1)} == {2, 4}


def test_the_drafts_cache_and_weights_take_memory() -> None:
    """The most sequences that fit without a draft do not with an EAGLE head beside, and the reason names it."""
    ready = llama()
    room = ready.capacity - ready.weight_bytes
    most = int(room // cache_on_one(ready, 1, 1028))
    with_head, without = (timed_round(asked(ready, method), Shape(4), most) for method in ("eagle", "ngram"))

    assert without.cost is not None
    assert with_head.cost is None
    assert with_head.reason.startswith("the GPU offers")
    assert "the draft 0.5 GB" in with_head.reason


def test_the_drafts_cache_counts_by_itself() -> None:
    """As many sequences as fit beside the head's weights, less what a layer's 4,096 B a token take of each."""
    question = asked(llama(), "eagle")
    room = llama().capacity - llama().weight_bytes - question.drafter.bytes
    alone, both = (int(room // (1028 * token)) for token in (TOKEN, TOKEN + 2 * 8 * 128 * 2))

    assert both < alone
    assert timed_round(question, Shape(4), both).cost is not None
    assert timed_round(question, Shape(4), both + 1).cost is None


def test_prediction_layers_in_the_files_count_once() -> None:
    """DeepSeek-V3's 684.5 billion hold its module: drafting adds no weights, an EAGLE head its own."""
    mtp, eagle = (asked(deepseek(), method).drafter for method in ("mtp", "eagle"))

    assert mtp.weights(Shape(4)) == 0 < mtp.bytes
    assert eagle.weights(Shape(4)) == eagle.bytes > 0
    assert asked(llama(), "medusa").drafter.weights(Shape(4)) == 4 * asked(llama(), "medusa").drafter.bytes


def test_what_does_not_fit_has_no_times() -> None:
    """No time, no speed-up, no best length, and the reason in the row."""
    result, _ = speculate_result(asked(llama(), "eagle3"), [Acceptance(0.8)], [100_000])
    row, best = result.rounds[0], result.best[0]

    assert (row.fits, row.speedup, row.verify_seconds, row.tokens_per_second, row.best) == (
        False,
        None,
        None,
        None,
        False,
    )
    assert row.reason
    assert (best.drafted, best.speedup, best.break_even_acceptance) == (0, None, None)


def test_rates_follow_from_times() -> None:
    """TPOT is the decode step over the speed-up, tokens a second the batch over that."""
    row = speculate_result(asked(llama(), "eagle3"), [Acceptance(0.7)], [16])[0].rounds[0]

    assert row.tpot_seconds == pytest.approx((row.decode_seconds or 0) / (row.speedup or 1))
    assert row.tokens_per_second == pytest.approx(16 / (row.tpot_seconds or 1))
    assert row.optimism == pytest.approx((row.textbook_speedup or 0) / (row.speedup or 1) - 1)


def test_break_even_is_where_the_speed_up_is_one() -> None:
    """At the acceptance that a round breaks even with, its speed-up is 1."""
    question = asked(llama(), "eagle3")
    timed = timed_lengths(question, 256)
    even = least_acceptance(timed)

    assert even is not None
    assert max(one.speedup(Acceptance(even)) or 0 for one in timed) == pytest.approx(1, abs=1e-6)


def test_replicas_draft_for_their_own() -> None:
    """Two replicas of 8 sequences take a round as one of 8 does."""
    accelerator = find_accelerator("h100-sxm").accelerator
    pair = prepare(loaded(LLAMA_3_1_8B), Deployment(accelerator, FORMATS["bf16"], shards=Shards(dp=2)))
    two, one = timed_round(asked(pair, "eagle3"), Shape(4), 16), timed_round(asked(llama(), "eagle3"), Shape(4), 8)

    assert two.cost == pytest.approx(one.cost)


@pytest.mark.parametrize(
    ("tree", "width", "words"),
    [(None, 4, "give --tree"), (3, None, "depth 4"), (5000, None, "4,096"), (8, 9, "1 to 8")],
)
def test_trees_that_cannot_be(tree: int | None, width: int | None, words: str) -> None:
    """A width needs a tree, a tree at least its depth."""
    with pytest.raises(UsageError, match=words):
        shapes_of((4,), tree, width)
