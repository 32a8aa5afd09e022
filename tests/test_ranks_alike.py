"""Ranks that something else started: other options on one, the same number twice, one that is told to end."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest

torch = pytest.importorskip("torch")

from roofcast.profiler import ranks_start  # noqa: E402 - after the skip
from roofcast.profiler.errors import DifferentWorkError, ProfileUsageError, UnavailableError  # noqa: E402
from roofcast.profiler.ranks_start import Wanted, open_rank  # noqa: E402
from roofcast.profiler.ranks_store import (  # noqa: E402
    MOST_RANKS,
    Place,
    client,
    missing_line,
    open_store,
    own_run,
    place_of,
    same_work,
)
from tests.test_ranks import command, free_port, one_line  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Sequence

STARTED = {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500"}
SUMS = ("--pattern", "all_reduce", "--size", "1KiB", "--wait", "20s")

pytestmark = pytest.mark.skipif(not torch.distributed.is_available(), reason="torch without torch.distributed")


def started(every: Sequence[tuple[int, Sequence[str]]], fault: str = "none") -> list[tuple[int, str, str]]:
    """Run a process a rank, each with options of its own, at one port: code, output and errors of each."""
    place = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": free_port()}
    with ThreadPoolExecutor(len(every)) as pool:
        jobs = [pool.submit(command, fault, *asked, **place, RANK=str(rank)) for rank, asked in every]
        return [job.result() for job in jobs]


OTHERS = [
    pytest.param(("--pattern", "all_gather"), "--pattern all_gather, and rank 0 for all_reduce", id="pattern"),
    pytest.param(("--size", "1KiB,4KiB"), "--size 1 KiB, 4 KiB, and rank 0 for 1 KiB", id="a size more"),
    pytest.param(("--elements", "fp32"), "--elements fp32, and rank 0 for bf16", id="elements"),
]


@pytest.mark.parametrize(("other", "said"), OTHERS)
def test_other_options_on_a_rank_are_one_line(other: tuple[str, str], said: str) -> None:
    """The first rank names the other, the option and both values; the other goes without a word."""
    first, second = started([(0, SUMS), (1, (*SUMS, *other))])

    assert one_line(first[2]) == f"rank 1 was asked for {said}: start all ranks with the same options"
    assert (first[:2], second) == ((3, ""), (3, "", ""))


def test_sizes_written_otherwise_are_the_same() -> None:
    """What counts is what is measured."""
    first, second = started([(0, SUMS), (1, ("--pattern", "all-reduce", "--size", "1024", "--wait", "9s"))])

    assert (first[0], second) == (0, (0, "", "")), first[2]
    assert "2 ranks on 1 host" in first[1]


def test_the_same_rank_twice_is_one_line() -> None:
    """Of the two that are the second rank one goes; the other measures on."""
    first, *both = started([(0, SUMS), (1, SUMS), (1, SUMS)])

    assert first[0] == 0, first[2]
    assert sorted(code for code, _, _ in both) == [0, 3]
    [line] = [err for code, _, err in both if code]
    assert "two processes are rank 1 of 2" in one_line(line) or "rank 0 of 2" in one_line(line)


def test_a_first_rank_that_torchrun_ends_keeps_what_is_done() -> None:
    """As it does where another has failed: SIGTERM is taken as Ctrl-C."""
    asked = ("--pattern", "all_reduce", "--size", "1KiB,64KiB", "--wait", "20s")
    first, second = started([(0, asked), (1, asked)], "told to end")

    assert (first[0], second[0]) == (130, 0)
    assert one_line(first[2]) == "interrupted"
    assert "interrupted: not measured: all_reduce of 64 KiB, eager" in first[1]


def test_another_rank_that_is_interrupted_is_named() -> None:
    """The first prints what is done, and who left."""
    asked = ("--pattern", "all_reduce", "--size", "1KiB,64KiB", "--wait", "20s")
    first, second = started([(0, asked), (1, asked)], "other interrupted")

    assert one_line(first[2]) == "rank 1 of 2 was interrupted"
    assert (first[0], second[0]) == (3, 3)
    assert "not measured: all_reduce of 64 KiB, eager" in first[1]


def test_programs_that_share_a_store_one_after_the_other() -> None:
    """Each sees nothing of the one before, as of two commands in one script that torchrun starts."""
    place = Place(0, 1, shared=False, port=0)
    held = open_store(torch, place, 5.0)
    shared = Place(0, 1, port=held.port, shared=True)
    seen: list[tuple[int, bool]] = []
    for _ in range(3):
        store, own = own_run(torch, client(torch, shared, 5.0), shared)
        seen.append((own.run, store.check(["roofcast/end/0"])))
        store.set("roofcast/end/0", "")
        assert client(torch, own, 5.0).check(["roofcast/end/0"])

    assert seen == [(1, False), (2, False), (3, False)]
    with pytest.raises(UnavailableError, match="two processes are rank 0 of 1"):
        own_run(torch, client(torch, place_at(held.port), 5.0), place_at(held.port))


def place_at(port: int) -> Place:
    """The first rank's place, whose store no other program has."""
    return Place(0, 1, port=port)


def test_work_is_compared_by_name() -> None:
    """An option that one alone has differs too."""
    store = open_store(torch, Place(0, 1), 5.0)
    same_work(store, Place(0, 1), {"--size": "1 KiB"})
    store.set("roofcast/asked/1", '{"--size": "1 KiB", "--seed": "1"}')
    store.set("roofcast/read/1", "")

    with pytest.raises(DifferentWorkError, match="rank 1 was asked for --seed 1, and rank 0 for None"):
        same_work(store, Place(0, 2), {"--size": "1 KiB"})


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"WORLD_SIZE": "1000000"}, f"WORLD_SIZE=1000000.* 1 to {MOST_RANKS:,}"),
        ({"WORLD_SIZE": "9" * 5000}, "WORLD_SIZE=9{40}:"),
        ({"WORLD_SIZE": None}, "WORLD_SIZE is not set"),
        ({"RANK": None}, "RANK is not set"),
    ],
)
def test_places_that_cannot_be(changed: dict[str, str | None], said: str) -> None:
    """Too many, too long, or half of what tells a place."""
    environ = {name: value for name, value in (STARTED | changed).items() if value is not None}

    with pytest.raises(ProfileUsageError, match=said):
        place_of(environ)


def test_one_variable_of_its_own_starts_no_rank() -> None:
    """Other programs have a RANK too."""
    assert place_of({"RANK": "1"}) is None
    assert place_of({"WORLD_SIZE": "2"}) is None


def test_hosts_that_are_none_are_one_line() -> None:
    """Of the first rank and of others."""
    long = {"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "a" * 300, "MASTER_PORT": "29500"}
    code, out, err = command("none", "--size", "1KiB", "--wait", "1s", **long)

    assert "found no rank 0 at aaa" in one_line(err)
    assert (code, out) == (3, "")


def test_ranks_that_are_started_here_need_no_launcher() -> None:
    """What to do differs."""
    assert missing_line([1], 2, 5.0, started=True) == "rank 1 of 2 did not come within 5 s: give --wait more"


def test_a_device_that_is_none_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """And not the GPUs that its ranks would need."""
    opened: list[Any] = []
    monkeypatch.setattr(ranks_start, "open_runtime", opened.append)
    for name in ("foo", "cpu", "cpu:0", "mps"):
        open_rank(Wanted(2, device=name), None)

    assert opened == ["foo", "cpu", "cpu:0", "mps"]
