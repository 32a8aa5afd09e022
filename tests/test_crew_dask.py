"""Crews of Dask clusters, each of processes of its own on the loopback: the same outcomes, and one line of what is wrong."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from contextlib import contextmanager, suppress
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.crew_work import environment, said, started

if TYPE_CHECKING:
    from collections.abc import Iterator

SETTINGS = {  # Dask's own, by its names: a task is given up with its second worker, and a dead worker is noticed soon
    "DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES": "1",
    "DASK_DISTRIBUTED__COMM__TIMEOUTS__CONNECT": "3s",
    "PYTHONWARNINGS": "default",
}
# what a script has that meets an error: its kind and its text as one JSON value
REFUSED = """
from roofcast.calculators.errors import UnansweredError, UsageError
from roofcast.cli import crew_dask
crew_dask.PATIENCE = float(sys.argv[2])
def refused(function, setting, tasks):
    try:
        with crew_of(function, setting, dask=sys.argv[1]) as crew:
            return ["none", str(dict(crew.each(tasks)))]
    except (UnansweredError, UsageError) as error:
        return [type(error).__name__, str(error)]
"""
SWEEP = """
with crew_of(work.dies_once, sys.argv[2], dask=sys.argv[1]) as crew:
    print(json.dumps(sorted(crew.each(range(60)))))
"""


@contextmanager
def daemon(module: str, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run a part of a cluster; it ends with what it has started."""
    process = subprocess.Popen(
        [sys.executable, "-m", f"distributed.cli.{module}", *arguments, "--host", "127.0.0.1", "--no-dashboard"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=environment() | SETTINGS,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(30)


@contextmanager
def scheduler(folder: Path) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """Run a scheduler on a free port, which it tells by a file."""
    told = folder / "scheduler.json"
    with daemon("dask_scheduler", "--port", "0", "--scheduler-file", str(told)) as process:
        address = ""
        while not address:
            assert process.poll() is None
            time.sleep(0.05)
            with suppress(FileNotFoundError, json.JSONDecodeError):
                address = json.loads(told.read_text())["address"]
        yield address, process


@contextmanager
def worker(address: str, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run one worker of one thread."""
    with daemon("dask_worker", address, "--nthreads", "1", *arguments) as process:
        yield process


@contextmanager
def two_workers(address: str) -> Iterator[None]:
    """Run two workers; both are there."""
    with worker(address, "--no-nanny"), worker(address, "--no-nanny"):
        said("import distributed; distributed.Client(sys.argv[1]).wait_for_workers(2, 30)", address)
        yield


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Return the address of a scheduler with two workers."""
    with scheduler(tmp_path_factory.mktemp("dask")) as (address, _), two_workers(address):
        yield address


def test_outcomes_are_those_of_one_process(cluster: str, tmp_path: Path) -> None:
    """A cluster gives what one process gives; each worker gets the setting once, and all of them take part."""
    alone, first, second, here, size = json.loads(
        said(
            """
def all_of(crew):
    first = dict(crew.each(range(200)))
    return [first, dict(crew.each(range(20))), crew.size]
with crew_of(work.pid_and_times, work.Noted(sys.argv[2], 3), jobs=1) as crew:
    alone, _, _ = all_of(crew)
with crew_of(work.pid_and_times, work.Noted(sys.argv[2], 3), dask=sys.argv[1]) as crew:
    print(json.dumps([alone, *all_of(crew)[:2], os.getpid(), crew.size]))
""",
            cluster,
            tmp_path,
        )
    )

    assert {n: value for n, (_, value) in first.items()} == {n: value for n, (_, value) in alone.items()}
    assert {int(n): value for n, (_, value) in second.items()} == {n: 3 * n for n in range(20)}
    assert size == 2
    pids = {pid for pid, _ in first.values()}
    assert len(pids) == 2
    assert here not in pids
    assert Counter(file.name.partition("-")[0] for file in tmp_path.iterdir()) == Counter(map(str, pids))


def test_an_error_arrives_as_it_was_raised(cluster: str) -> None:
    """What a task raises is raised here, of the same class and with the same text; other tasks can be done then."""
    assert json.loads(
        said(
            """
from roofcast.calculators.errors import UsageError
with crew_of(work.refuses, "--tp 3: heads do not split", dask=sys.argv[1]) as crew:
    try:
        list(crew.each(range(50)))
    except UsageError as error:
        print(json.dumps([str(error), sorted(crew.each(range(5)))]))
""",
            cluster,
        )
    ) == ["--tp 3: heads do not split", [[n, n] for n in range(5)]]


def test_ctrl_c_takes_the_tasks_back(cluster: str) -> None:
    """After Ctrl-C the workers end what they are at and are free for others; nothing is on stderr."""
    process = started(
        """
with crew_of(work.nap, 0.2, dask=sys.argv[1]) as crew:
    try:
        for n, _ in crew.each(range(5000)):
            print(n, flush=True)
    except KeyboardInterrupt:
        print("interrupted")
with crew_of(work.times, 2, dask=sys.argv[1]) as crew:
    print(sorted(crew.each(range(4))))
""",
        cluster,
    )
    assert process.stdout is not None
    process.stdout.readline()
    os.killpg(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=60)

    assert (process.returncode, err) == (0, "")
    assert out.splitlines()[-2:] == ["interrupted", str([(n, 2 * n) for n in range(4)])]


def test_workers_of_another_version_are_refused(cluster: str) -> None:
    """Workers that may compute otherwise are one line with both versions, before any task."""
    kind, told = json.loads(
        said(
            REFUSED
            + """
crew_dask.version = lambda name: "99.0"
print(json.dumps(refused(work.times, 2, range(4))))
""",
            cluster,
            5,
        )
    )

    assert kind == "ClusterError"
    assert f"has roofcast {version('roofcast')} on Python" in told
    assert "here it is roofcast 99.0 on Python" in told
    assert "\n" not in told


def test_workers_without_the_work_are_refused(cluster: str) -> None:
    """Workers that cannot import what is to be done are one line."""
    kind, told = json.loads(
        said(
            REFUSED
            + """
import types
sys.modules["nowhere"] = module = types.ModuleType("nowhere")
exec("def square(setting, task): return task * task", vars(module))
print(json.dumps(refused(module.square, 2, range(4))))
""",
            cluster,
            5,
        )
    )

    assert kind == "ClusterError"
    assert "cannot take the tasks: " in told
    assert "nowhere" in told
    assert "\n" not in told


def test_a_worker_killed_in_mid_sweep_loses_nothing(cluster: str, tmp_path: Path) -> None:
    """With a worker that is killed while it is at a task, every outcome is there all the same.

    Two workers of the cluster are at it and a third, so that others have theirs left.
    """
    with worker(cluster, "--no-nanny"):
        assert json.loads(said(SWEEP, cluster, tmp_path)) == [[n, n * n] for n in range(60)]

    assert (tmp_path / "died").exists()


def test_the_setting_is_sent_again_where_it_went_with_its_workers(tmp_path: Path) -> None:
    """The only worker is killed, and with it the setting; the one that its nanny starts instead does the rest."""
    with scheduler(tmp_path) as (address, _), worker(address, "--nanny"):
        assert json.loads(said(SWEEP, address, tmp_path)) == [[n, n * n] for n in range(60)]

    assert (tmp_path / "died").exists()


def test_a_task_that_kills_every_worker_is_told(tmp_path: Path) -> None:
    """Where Dask gives a task up, it is one line; and where nobody is left to do the others, that is one too."""
    with scheduler(tmp_path) as (address, _), two_workers(address):
        (tmp_path / "tried").mkdir()
        kind, told = json.loads(
            said(REFUSED + "print(json.dumps(refused(work.deadly, sys.argv[3], [3])))", address, 5, tmp_path / "tried")
        )
        nobody = json.loads(said(REFUSED + "print(json.dumps(refused(work.times, 2, range(4))))", address, 0.3))

    assert kind == "DyingTaskError"
    assert "ended at it" in told
    assert len(list((tmp_path / "tried").iterdir())) == 2
    assert nobody[0] == "ClusterError"
    assert f"`dask worker {address}` starts some" in nobody[1]


def test_a_scheduler_that_goes_away_is_told(tmp_path: Path) -> None:
    """A scheduler that is killed in mid-sweep is one line, and what was done until then is kept."""
    with scheduler(tmp_path) as (address, process), worker(address, "--no-nanny"):
        kind, told, done = json.loads(
            said(
                """
from roofcast.calculators.errors import UnansweredError
done = []
try:
    with crew_of(work.nap, 0.05, dask=sys.argv[1]) as crew:
        for number, _ in crew.each(range(1000)):
            done.append(number)
            if len(done) == 5:
                os.kill(int(sys.argv[2]), signal.SIGKILL)
except UnansweredError as error:
    print(json.dumps([type(error).__name__, str(error), len(done)]))
""",
                address,
                process.pid,
            )
        )

    assert kind == "ClusterError"
    assert told == f"the Dask scheduler at {address} went away while its workers were at work"
    assert done >= 5


def test_an_address_where_no_scheduler_is_is_told() -> None:
    """Nobody there, somebody who is no scheduler, no certificate, and what is no address: one line each."""
    with socket.create_server(("127.0.0.1", 0)) as mute:
        mine = f"127.0.0.1:{mute.getsockname()[1]}"
        asked = ("tcp://127.0.0.1:9", f"tcp://{mine}", f"tls://{mine}", "tcp://127.0.0.1", "a://b:1")
        told = [json.loads(said(REFUSED + "print(json.dumps(refused(work.times, 2, [1])))", a, 0.3)) for a in asked]

    starts = "`dask scheduler` starts one, and prints its address"
    assert told[0] == ["ClusterError", f"no Dask scheduler answers at tcp://127.0.0.1:9: {starts}"]
    assert told[1] == ["ClusterError", f"no Dask scheduler answers at tcp://{mine}: {starts}"]
    assert [kind for kind, _ in told[2:]] == ["ClusterError", "UsageError", "UsageError"]
    assert told[2][1].startswith(f"--dask tls://{mine}: TLS expects a `ssl_context`")
    assert told[3][1].startswith("--dask tcp://127.0.0.1: missing port number")
    assert told[4][1].startswith("--dask a://b:1: unknown address scheme 'a'")
    assert [text for _, text in told if "\n" in text] == []
