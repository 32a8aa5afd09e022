"""The least number of replicas that will do: found wherever it lies, with no number tried twice."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pytest

from roofcast.calculators.planning import settling
from roofcast.calculators.planning.demand import Trial
from roofcast.calculators.planning.settling import Range, settle, settle_pools, stretched
from roofcast.calculators.planning.trial import Count, Tried, Verdict

if TYPE_CHECKING:
    from collections.abc import Callable

MOST: Final = 24


def verdict(count: Count, limit: str, busy: tuple[float, ...] = (0.5,)) -> Verdict:
    """Return a verdict of one trial."""
    keeps = not limit
    one = Tried(Trial(1.03, 0), keeps, limit, limit, 1.0, 1.0, 1.0, 1.0, 0.9, 1.0, 1.0, 0.5, busy)
    return Verdict(count, keeps, (one,))


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[Count], Verdict]], list[Count]]:
    """Return a way to say what becomes of counts, and which of them were tried."""

    def use(says: Callable[[Count], Verdict]) -> list[Count]:
        seen: list[Count] = []

        def screened(_service: Any, _demand: Any, count: Count, *, doubtful: bool = True) -> Verdict:  # noqa: ARG001
            seen.append(count)
            return says(count)

        monkeypatch.setattr(settling, "screened", screened)
        return seen

    return use


NOBODY: Final[Any] = None


@pytest.mark.parametrize("needed", range(1, MOST + 3))
def test_least_number_is_found_from_wherever_it_starts(
    needed: int, asked: Callable[[Callable[[Count], Verdict]], list[Count]]
) -> None:
    """Over all ranges up to 24 and all that may be likely: the least that is needed, or none where it is beyond the most."""
    for least in range(1, MOST + 1, 2):
        for likely in range(1, MOST + 5, 3):
            for most in range(least, MOST + 1, 3):
                seen = asked(lambda count: verdict(count, "" if count.units >= needed else "rate"))

                found = settle(NOBODY, NOBODY, Range(least, likely, most))

                where = (needed, least, likely, most)
                expected = max(needed, least)
                assert (found.best.count.units if found.best else None) == (expected if expected <= most else None), (
                    where
                )
                assert len(seen) == len(set(seen)), where
                assert all(least <= one.units <= most for one in seen), where
                assert {one.count for one in found.others} | ({found.best.count} if found.best else set()) == set(seen)


def test_least_number_of_many_takes_few_simulations(
    asked: Callable[[Callable[[Count], Verdict]], list[Count]],
) -> None:
    """Of 1,000 that may be needed, 700 are found in fewer than 30 from 500 on."""
    seen = asked(lambda count: verdict(count, "" if count.units >= 700 else "rate"))

    found = settle(NOBODY, NOBODY, Range(400, 500, 1000))

    assert found.best is not None
    assert (found.best.count.units, found.simulations) == (700, len(seen))
    assert len(seen) < 30


def test_requests_that_are_too_long_are_not_tried_on_more(
    asked: Callable[[Callable[[Count], Verdict]], list[Count]],
) -> None:
    """No number of replicas mends them."""
    seen = asked(lambda count: verdict(count, "context"))

    assert settle(NOBODY, NOBODY, Range(1, 3, 9)).best is None
    assert seen == [Count(3)]
    seen = asked(lambda count: verdict(count, "context"))
    assert settle_pools(NOBODY, NOBODY, (1, 1), 9).best is None
    assert seen == [Count(0, 1, 1)]


@pytest.mark.parametrize("readers", range(1, 9))
@pytest.mark.parametrize("writers", range(1, 9))
def test_pools_grow_by_what_is_to_blame(
    readers: int, writers: int, asked: Callable[[Callable[[Count], Verdict]], list[Count]]
) -> None:
    """TPOT asks for writers and TTFT for readers, one after the other: no more of either than are needed, up to 8."""

    def says(count: Count) -> Verdict:
        if count.writers < writers:
            return verdict(count, "tpot")
        return verdict(count, "" if count.readers >= readers else "ttft")

    for most in (readers + writers - 1, readers + writers):
        seen = asked(says)

        found = settle_pools(NOBODY, NOBODY, (1, 1), most)

        assert len(seen) == len(set(seen))
        if most < readers + writers:
            assert found.best is None
        elif readers + writers <= 9:
            assert found.best is not None
            assert found.best.count == Count(0, readers, writers)


@pytest.mark.parametrize(("busy", "grown"), [((0.9, 0.4), Count(0, 2, 1)), ((0.4, 0.9), Count(0, 1, 2))])
def test_of_a_growing_queue_the_busier_pool_gets_more(
    busy: tuple[float, float], grown: Count, asked: Callable[[Callable[[Count], Verdict]], list[Count]]
) -> None:
    """Busy readers cannot read as fast as prompts come; busy writers cannot decode."""
    seen = asked(lambda count: verdict(count, "" if count.total > 2 else "rate", busy))

    found = settle_pools(NOBODY, NOBODY, (1, 1), 9)

    assert found.best is not None
    assert (found.best.count, seen) == (grown, [Count(0, 1, 1), grown])


@pytest.mark.parametrize("highest", [1.0, 1.04, 1.3, 2.0, 5.7, 60.0])
def test_headroom_is_found_to_a_tenth(highest: float) -> None:
    """The highest factor that keeps what is promised lies between what is found and a tenth more."""
    low, high = stretched(lambda factor: factor <= highest)

    assert low is not None
    assert high is not None
    assert low <= highest < high <= low * 1.1


def test_headroom_without_an_end_or_a_beginning() -> None:
    """No factor does, or all do."""
    assert stretched(lambda _: False) == (None, 1.0)
    assert stretched(lambda _: True)[1] is None
