"""Crews of processes: the same outcomes whoever does the tasks, and nothing left of them."""

from __future__ import annotations

import json
import os
import pickle
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from roofcast.calculators.errors import UsageError
from roofcast.cli.check_file import RuleFileError
from roofcast.cli.crew import DyingTaskError, answer, cores, crew_of
from roofcast.cli.errors import exit_code
from roofcast.modelspec.huberrors import OneGgufError
from tests.crew_work import deadly, dies_once, gone, hungry, nap, refuses, said, started, times

if TYPE_CHECKING:
    from collections.abc import Callable

on_linux = pytest.mark.skipif(sys.platform != "linux", reason="looks at /proc, and at what is forked")

# a second thread, before which processes are forked and behind which they start anew
THREAD = """
threading.Thread(target=threading.Event().wait, daemon=True).start()
"""
STARTS = [pytest.param("", id="fork"), pytest.param(THREAD, id="spawn")]
ALIKE = """
folder, jobs = sys.argv[1], int(sys.argv[2])
with crew_of(work.pid_and_times, work.Noted(folder, 3), jobs=jobs) as crew:
    first = dict(crew.each(range(40)))
    second = dict(crew.each(range(40, 60)))
    workers = len(active_children())
print(json.dumps([first, second, workers, os.getpid(), len(active_children())]))
"""
# three workers, of which one has nothing to do
AT_WORK = """
with crew_of(work.sleeps, None, jobs=3) as crew:
    list(crew.each([0.1] * 3))
    print(*(c.pid for c in active_children()), flush=True)
    try:
        list(crew.each([100, 100]))
    except KeyboardInterrupt:
        print("interrupted")
        raise SystemExit(130)
"""


@pytest.mark.parametrize("start", STARTS)
@pytest.mark.parametrize("jobs", [1, 2, 3])
def test_outcomes_are_those_of_a_loop_whoever_does_the_tasks(tmp_path: Path, start: str, jobs: int) -> None:
    """Every task is done once and answered under its number; a worker gets the setting at most once; none is left."""
    first, second, workers, parent, left = json.loads(said(start + ALIKE, tmp_path, jobs))

    assert {int(n): value for n, (_, value) in first.items()} == {n: 3 * n for n in range(40)}
    assert {int(n): value for n, (_, value) in second.items()} == {n: 3 * (n + 40) for n in range(20)}
    pids = {pid for pid, _ in (*first.values(), *second.values())}
    assert (pids == {parent}) == (jobs == 1)
    assert len(pids) <= jobs
    assert workers == (0 if jobs == 1 else jobs)
    assert left == 0
    unpickled = Counter(file.name.partition("-")[0] for file in tmp_path.iterdir())
    assert set(unpickled.values()) <= {1}
    assert bool(unpickled) == (jobs > 1 and bool(start))  # what is forked has it already


def test_one_task_pays_for_no_process() -> None:
    """A single task is done by this process, whatever the number of jobs; several start no more workers than tasks."""
    assert json.loads(
        said("""
with crew_of(work.nap, 0, jobs=3) as crew:
    here = dict(crew.each(["one"])) == {0: os.getpid()}
    none = len(active_children())
    list(crew.each(range(2)))
    two = len(active_children())
    list(crew.each(range(9)))
    print(json.dumps([here, none, two, len(active_children()), list(crew.each([])), crew.size]))
""")
    ) == [True, 0, 2, 3, [], 3]


@on_linux
def test_as_many_as_this_process_may_use() -> None:
    """Without a number of jobs there is one for each core that this process may run on, not for each of the machine."""
    assert json.loads(
        said("""
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
with crew_of(work.nap, 0) as crew:
    print(json.dumps([crew.size, {pid for _, pid in crew.each(range(3))} == {os.getpid()}]))
""")
    ) == [1, True]
    with crew_of(nap, 0) as crew:
        assert crew.size == cores() == len(os.sched_getaffinity(0))


def test_a_killed_worker_loses_nothing(tmp_path: Path) -> None:
    """What a worker was at when it was killed is done again, and so is what waited behind it."""
    with crew_of(dies_once, str(tmp_path), jobs=2) as crew:
        assert dict(crew.each(range(30))) == {n: n * n for n in range(30)}
        assert dict(crew.each(range(5))) == {n: n * n for n in range(5)}

    assert (tmp_path / "died").exists()


@on_linux
def test_workers_killed_between_two_rounds_are_replaced() -> None:
    """Nothing is lost where all workers end while they have nothing to do."""
    assert json.loads(
        said("""
with crew_of(work.times, 2, jobs=2) as crew:
    list(crew.each(range(4)))
    for child in active_children():
        child.kill()
    print(json.dumps(sorted(crew.each(range(4)))))
""")
    ) == [[n, 2 * n] for n in range(4)]


def test_a_task_that_kills_its_worker_three_times_is_told(tmp_path: Path) -> None:
    """It is tried three times and no more, the last time alone: one line and exit code 3."""
    with crew_of(deadly, str(tmp_path), jobs=2) as crew, pytest.raises(DyingTaskError) as caught:
        list(crew.each(range(8)))

    assert exit_code(caught.value) == 3
    assert "3 times" in str(caught.value)
    assert "\n" not in str(caught.value)
    assert len(list(tmp_path.iterdir())) == 3


@on_linux
def test_tasks_that_kill_one_another_are_done_one_by_one(tmp_path: Path) -> None:
    """The last try of a task has no other beside it: what memory does not hold at once is done all the same."""
    with crew_of(hungry, str(tmp_path), jobs=2) as crew:
        assert dict(crew.each(range(4))) == {n: n * n for n in range(4)}


@pytest.mark.parametrize("jobs", [1, 2])
def test_an_error_arrives_as_it_was_raised(jobs: int) -> None:
    """What a task raises is raised here: of the same class, with the same text; the crew can go on."""
    with crew_of(refuses, "--tp 3: heads do not split", jobs=jobs) as crew:
        with pytest.raises(UsageError) as caught:
            list(crew.each(range(20)))
        assert (type(caught.value), str(caught.value)) == (UsageError, "--tp 3: heads do not split")
        assert dict(crew.each(range(5))) == {n: n for n in range(5)}


def _fails(error: Exception, _: object) -> None:
    raise error


def _of_two(first: str, second: str) -> Exception:
    class OfTwoError(ValueError):
        """Of a class that no other process can import."""

    return OfTwoError(first, second)


def _decoding() -> Exception:
    try:
        b"\xff".decode("ascii")
    except UnicodeDecodeError as error:
        return error
    raise AssertionError


@pytest.mark.parametrize(
    "error",
    [
        UsageError("one line"),
        OneGgufError("a repo of one model", "model.gguf"),
        RuleFileError(["rule 1: no such quantity", "rule 2: no limit"]),
        DyingTaskError("ended"),
        KeyError("key"),
        FileNotFoundError(2, "No such file", "name"),
        _decoding(),
    ],
    ids=lambda e: type(e).__name__,
)
def test_errors_survive_the_way_to_another_process(error: Exception) -> None:
    """Class, text and attributes are the same behind it, of errors with an __init__ of their own too; and a note says where."""
    with pytest.raises(type(error)) as caught:
        pickle.loads(pickle.dumps(answer(_fails, error, None))).opened()  # noqa: S301 - our own

    assert type(caught.value) is type(error)
    assert str(caught.value) == str(error)
    assert vars(caught.value) == vars(error)
    assert "in _fails" in caught.value.__notes__[0]


def test_an_error_that_cannot_be_sent_is_told() -> None:
    """Of a class that others cannot import, the name and the text arrive."""
    with pytest.raises(RuntimeError, match=r"^OfTwoError: first second\n"):
        pickle.loads(pickle.dumps(answer(_fails, _of_two("first", "second"), None))).opened()  # noqa: S301 - our own


def at_work(start: str) -> tuple[subprocess.Popen[str], list[int]]:
    """Start a process with three workers; return it, and their numbers."""
    process = started(start + AT_WORK)
    assert process.stdout is not None
    workers = [int(pid) for pid in process.stdout.readline().split()]
    assert len(workers) == 3
    return process, workers


@on_linux
@pytest.mark.parametrize("start", STARTS)
def test_ctrl_c_ends_everything_without_a_word(start: str) -> None:
    """On Ctrl-C, which a terminal sends to every process, the parent alone hears it: no traceback, no process left."""
    process, workers = at_work(start)
    time.sleep(0.3)  # until both have begun
    for pid in workers:
        os.kill(pid, signal.SIGINT)
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(0.5)
    os.killpg(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=30)

    assert (process.returncode, out, err) == (130, "interrupted\n", "")
    assert [pid for pid in workers if not gone(pid)] == []


@on_linux
@pytest.mark.parametrize("start", STARTS)
def test_workers_end_with_a_parent_that_is_killed(start: str) -> None:
    """A parent that is killed, as a time limit does it, leaves no worker behind."""
    process, workers = at_work(start)
    process.kill()
    process.wait(30)
    left = [pid for pid in workers if not gone(pid)]
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    process.communicate(timeout=30)

    assert left == []


@on_linux
def test_what_is_left_early_goes_on_nowhere() -> None:
    """Whoever leaves the crew with tasks under way leaves no process, and gets no more of it."""
    assert json.loads(
        said("""
with crew_of(work.sleeps, None, jobs=2) as crew:
    each = crew.each([0.1, *[100] * 9])
    next(each)
    busy = len(active_children())
after = len(active_children())
try:
    list(each)
except RuntimeError as error:
    print(json.dumps([busy, after, str(error)]))
""")
    ) == [2, 0, "tasks for a crew that was left"]


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"jobs": 0}, "--jobs 0"),
        ({"jobs": -2}, "--jobs -2"),
        ({"jobs": 2, "dask": "tcp://127.0.0.1:8786"}, "one of the two"),
    ],
)
def test_a_crew_that_cannot_be_is_refused(asked: dict[str, int | str], words: str) -> None:
    """Fewer than one process, and a number of processes on a cluster, are bad usage."""
    make: Callable[..., object] = crew_of
    with pytest.raises(UsageError, match=words), make(times, 1, **asked):  # type: ignore[attr-defined]
        pass


def test_dask_that_is_not_installed_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """A cluster without Dask is one line that says what to install, exit code 2."""
    monkeypatch.setitem(sys.modules, "distributed", None)

    with (
        pytest.raises(UsageError, match=r"pip install 'roofcast\[distributed\]'") as caught,
        crew_of(times, 1, dask="tcp://127.0.0.1:9"),
    ):
        pass

    assert exit_code(caught.value) == 2
