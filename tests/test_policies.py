"""Policies on two requests that can be followed by hand: a decode step takes 1 s, eight tokens of a prompt another."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

import pytest

from roofcast.calculators.serving.memory import Paging
from roofcast.calculators.serving.policies import POLICIES
from roofcast.calculators.serving.prefix import BlockCache
from roofcast.calculators.serving.replica import Limits
from tests.serving_cases import Seconds, Small, looped, sent, serve

if TYPE_CHECKING:
    from roofcast.calculators.serving.job import Load

#: a prompt of 8 and 3 tokens; half a second later one of 16 and 2
TWO: Final = sent((0.0, 8, 3), (0.5, 16, 2))
ROOMY: Final = Limits(16, 1024)


def times_of(small: Small, load: Load) -> tuple[list[float], list[float]]:
    """Return when each request had its first token and its last."""
    tally = serve(small, load).tally
    return tally.firsts, tally.ends


@pytest.mark.parametrize(
    ("policy", "tokens", "firsts", "ends"),
    [
        # 8 read; 16 and a token beside them, 3 s; a token of each
        ("chunked", 1024, [1, 4], [5, 5]),
        # of 9 tokens a step one is the first's: 8 and a token, twice
        ("chunked", 9, [1, 5], [5, 6]),
        ("continuous", 1024, [1, 4], [5, 5]),
        # whole prompts: one of 16 goes beside the token though it is longer than the step
        ("continuous", 9, [1, 4], [5, 5]),
        # 16 read while the first waits
        ("prefill-first", 1024, [1, 3], [5, 4]),
        ("prefill-first", 8, [1, 3], [5, 4]),
        # the first decodes to its end before the second is read
        ("decode-first", 1024, [1, 5], [3, 6]),
        ("static", 1024, [1, 5], [3, 6]),
    ],
)
def test_two_requests(policy: str, tokens: int, firsts: list[float], ends: list[float]) -> None:
    """First and last tokens, worked out step by step."""
    assert times_of(Small(policy=policy, limits=Limits(16, tokens)), TWO) == (firsts, ends)


@pytest.mark.parametrize(
    ("policy", "firsts", "ends"),
    [
        # both padded to 16 tokens, 4 s; both answered when the longer one is done
        ("static", [4, 4], [6, 6]),
        # 24 tokens, 3 s; who is done leaves
        ("decode-first", [3, 3], [5, 4]),
        ("prefill-first", [3, 3], [5, 4]),
        ("chunked", [3, 3], [5, 4]),
        ("continuous", [3, 3], [5, 4]),
    ],
)
def test_two_at_once(policy: str, firsts: list[float], ends: list[float]) -> None:
    """A static batch is padded, and answered together."""
    assert times_of(Small(policy=policy, limits=ROOMY), sent((0.0, 8, 3), (0.0, 16, 2))) == (firsts, ends)


def test_who_comes_while_a_batch_decodes_waits_for_its_end() -> None:
    """Of three the third comes at 1.5 s and there is a place: static and decode-first read it after 8 s alone."""
    load = sent((0.0, 4, 8), (0.0, 4, 2), (1.5, 8, 1))
    found = {name: times_of(Small(policy=name, limits=ROOMY), load)[0][2] for name in POLICIES}

    assert found == {"static": 9.0, "decode-first": 9.0, "continuous": 4.0, "chunked": 4.0, "prefill-first": 3.0}


def test_pieces_stall_no_token() -> None:
    """A prompt of 800 tokens, 100 s: those that decode wait for all of it, or for a ninth of a second a token more."""
    load = sent((0.0, 8, 120), (4.5, 800, 2))
    longest = {
        (name, tokens): serve(Small(policy=name, limits=Limits(16, tokens)), load).tally.gaps.most
        for name, tokens in (("prefill-first", 1024), ("continuous", 1024), ("chunked", 1024), ("chunked", 17))
    }

    assert longest == {
        ("prefill-first", 1024): 101.0,
        ("continuous", 1024): 101.0,
        ("chunked", 1024): 101.0,
        ("chunked", 17): 3.0,
    }


def test_pieces_wait_in_order() -> None:
    """Three prompts of 12 tokens, 8 a step: what the first leaves is the second's."""
    times = Seconds()
    serve(Small(policy="prefill-first", limits=Limits(16, 8)), sent(*[(0.0, 12, 1)] * 3), times)

    assert [step.pieces for step in times.taken] == [(8,), (4, 4), (8,), (8,), (4,)]


def test_places_are_kept_to() -> None:
    """Two at once of five that come together, of one prompt step and one decode step each pair."""
    times = Seconds()
    served = serve(Small(limits=Limits(2, 1024)), sent(*[(0.0, 8, 2)] * 5), times)

    assert [(step.rows, step.pieces) for step in times.taken] == [
        (0, (8, 8)),
        (2, ()),
        (0, (8, 8)),
        (2, ()),
        (0, (8,)),
        (1, ()),
    ]
    assert served.tally.ends == [3, 3, 6, 6, 8]
    assert served.one.peak == 2


def test_a_closed_loop_sends_the_next_when_one_is_answered() -> None:
    """Two clients and three requests: the third is sent at the first end, 3 s."""
    served = serve(Small(limits=ROOMY), looped(2, (8, 2), (8, 4), (8, 1)))

    assert served.tally.each[3].arrival == 3.0
    assert served.tally.ends == [3.0, 6.0, 5.0]  # 16 read, a token each; 8 read and a token, 2 s; a token


# --- memory runs out

#: two of 4 and 6 tokens in a memory of 12: at 3 s each has 6, and the second one goes
TIGHT: Final = Small(tokens=12, block=1, limits=ROOMY)
PAIR: Final = sent((0.0, 4, 6), (0.0, 4, 6))


def test_the_last_that_came_is_set_back_and_computed_again() -> None:
    """The first decodes alone from 3 to 6 s; 4 + 3 tokens are read again, 0.875 s, which makes the fourth; two are left."""
    served = serve(TIGHT, PAIR)

    assert served.tally.ends == [6.0, 8.875]
    assert served.tally.firsts == [1.0, 1.0]
    assert (served.tally.preemptions, served.tally.recomputed, served.tally.swapped) == (1, 6, 0.0)


def test_or_its_cache_goes_to_the_host_and_comes_back() -> None:
    """6 tokens over 8 B/s, 0.75 s at 3 s and again at 6.75; three tokens are left."""
    swapping = replace(ROOMY, preemption="swap", host_link=8.0, token_bytes=1.0)
    served = serve(replace(TIGHT, limits=swapping), PAIR)

    assert served.tally.ends == [6.75, 10.5]
    assert (served.tally.preemptions, served.tally.recomputed, served.tally.swapped) == (1, 0, 12.0)


def test_a_reserve_of_all_that_comes_sets_nobody_back() -> None:
    """The second waits until the first is done: 0.5 s and five tokens, twice."""
    served = serve(replace(TIGHT, paging=Paging(reserve=1.0)), PAIR)

    assert served.tally.ends == [5.5, 11.0]
    assert served.tally.preemptions == 0


@pytest.mark.parametrize("kind", ["max", "pow2", "oracle"])
def test_contiguous_memory_reserves_before(kind: str) -> None:
    """A piece of 10 or more of 16 tokens: one at a time, and nobody is ever set back."""
    served = serve(replace(TIGHT, memory=kind, tokens=16, longest=10), PAIR)

    assert served.tally.ends == [5.5, 11.0]
    assert served.tally.preemptions == 0


def test_one_that_is_set_back_goes_before_those_that_wait() -> None:
    """A third waits since 2 s for 6 tokens beside the 7 of the second: until the second is done."""
    served = serve(TIGHT, sent((0.0, 4, 6), (0.0, 4, 6), (2.0, 6, 1)))

    assert served.tally.ends == [6.0, 8.875, 9.625]


def test_a_padded_batch_that_outgrows_memory_is_cut() -> None:
    """Static batches run out of memory too: all are answered, and nothing is left."""
    served = serve(replace(TIGHT, policy="static", longest=10), sent(*[(0.0, 4, 6)] * 5, (0.0, 2, 3)))

    assert served.tally.done == 6
    assert served.tally.preemptions > 0


# --- what else a step may bring


def test_accepted_drafts_gain_several_tokens_a_step() -> None:
    """Of 5 tokens the prompt makes one, and two steps of 2 the rest; of 6 three steps."""
    small = Small(limits=replace(ROOMY, gain=2.0), paging=Paging(grows=False))

    assert times_of(small, sent((0.0, 8, 5)))[1] == [3.0]
    assert times_of(small, sent((0.0, 8, 6)))[1] == [4.0]


def test_samples_of_a_request_decode_together() -> None:
    """Four sequences of one prompt: it is read once, and each step has four rows."""
    times = Seconds()
    served = serve(Small(limits=replace(ROOMY, rows=4), paging=Paging(rows=4)), sent((0.0, 20, 14)), times)

    assert [(step.rows, step.pieces, step.steps) for step in times.taken] == [(0, (20,), 1), (4, (), 13)]
    assert served.one.most == 9  # one full block, and two of their own each: 20 + 13 tokens
    assert served.tally.gaps.count == 4 * 13


#: four tokens an id and a block; a request at a time
SHARING: Final = Small(block=4, cache=lambda: BlockCache(4, 4), limits=Limits(1, 1024), tokens=64)
#: 1 2; and while it runs 5 6, and 1 3
THREE: Final = sent((0.0, 8, 1), (0.125, 8, 1), (0.25, 8, 1), hashes=[(1, 2), (5, 6), (1, 3)], hash_tokens=4)


def test_what_is_in_the_cache_is_not_read_again() -> None:
    """Of the third prompt 4 of 8 tokens are there: half a second."""
    served = serve(SHARING, THREE)

    assert served.tally.ends == [1.0, 2.0, 2.5]
    assert (served.tally.hit_tokens, served.tally.hit_ids) == (4, 1)
    assert (served.tally.asked_tokens, served.tally.asked_ids) == (24, 6)


def test_shared_prefixes_may_go_first() -> None:
    """The third shares the first's prefix, and goes before the second."""
    served = serve(replace(SHARING, limits=replace(SHARING.limits, order="prefix")), THREE)

    assert served.tally.ends == [1.0, 2.5, 1.5]


def test_all_of_a_prompt_in_the_cache_leaves_a_token_to_read() -> None:
    """The last token's logits are asked: an eighth of a second."""
    served = serve(SHARING, sent((0.0, 8, 1), (0.5, 8, 1), hashes=[(1, 2)] * 2, hash_tokens=4))

    assert served.tally.ends == [1.0, 1.125]


def test_blocks_that_nobody_holds_make_room() -> None:
    """Four prompts of 8 tokens in a memory of 16: two are kept, and the first one has to be read again."""
    small = replace(SHARING, tokens=16)
    load = sent(
        *[(float(2 * at), 8, 1) for at in range(5)],
        hashes=[(1, 2), (3, 4), (5, 6), (1, 2), (1, 2)],
        hash_tokens=4,
    )
    served = serve(small, load)

    assert served.tally.hit_tokens == 8
    assert [one.end - one.arrival for one in served.tally.each.values()] == [1.0, 1.0, 1.0, 1.0, 0.125]


def test_every_policy_says_what_it_is() -> None:
    """In a line."""
    assert all(policy.says and "\n" not in policy.says for policy in POLICIES.values())
