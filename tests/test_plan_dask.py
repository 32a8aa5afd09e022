"""`plan` on a Dask cluster that the test starts: the identical table, and a worker killed in mid-sweep loses nothing."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.crew_work import environment, said
from tests.test_crew_dask import SETTINGS, scheduler, worker

if TYPE_CHECKING:
    from pathlib import Path

ASKED = (
    "plan", "llama-3.1-8b", "--gpu", "h100,l40s,l4", "--gpu-price", "h100=2.50,l40s=1.00,l4=0.50", "--engine", "vllm",
    "--rate", "4", "--prompt", "1k", "--output", "200", "--ttft", "500ms", "--tpot", "50ms", "--percentile", "90",
    "--format", "json",
)  # fmt: skip
# kills the first worker as soon as a task was done there
KILLER = """
import os, signal, sys, threading, time
import distributed
def watch():
    with distributed.Client(sys.argv[1]) as client:
        while True:
            seen = client.run(lambda dask_worker: dask_worker.state.executed_count)
            if any(seen.values()):
                os.kill(int(sys.argv[2]), signal.SIGKILL)
                print("killed", flush=True)
                return
            time.sleep(0.01)
watch()
"""


def planned(*options: str) -> dict[str, object]:
    """Return the answer of a `plan` in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-m", "roofcast", *ASKED, *options],
        capture_output=True, text=True, env=environment() | SETTINGS, check=False, timeout=240,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found: dict[str, object] = json.loads(done.stdout)
    return found


@pytest.fixture(scope="module")
def alone() -> dict[str, object]:
    """Return the answer of one process."""
    return planned("--jobs", "1")


def test_a_cluster_gives_the_identical_table(alone: dict[str, object], tmp_path: Path) -> None:
    """Two workers of a cluster, and two processes, give what one process gives, to the last digit."""
    with scheduler(tmp_path) as (address, _), worker(address, "--no-nanny"), worker(address, "--no-nanny"):
        said("import distributed; distributed.Client(sys.argv[1]).wait_for_workers(2, 30)", address)
        assert planned("--dask", address) == alone

    assert planned("--jobs", "2") == alone


def test_a_worker_that_is_killed_loses_nothing(alone: dict[str, object], tmp_path: Path) -> None:
    """One of two workers is killed after its first task: its work is done by the other one, and the table is the same."""
    with (
        scheduler(tmp_path) as (address, _),
        worker(address, "--no-nanny") as victim,
        worker(address, "--no-nanny"),
    ):
        said("import distributed; distributed.Client(sys.argv[1]).wait_for_workers(2, 30)", address)
        killer = subprocess.Popen(
            [sys.executable, "-c", KILLER, address, str(victim.pid)],
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment() | SETTINGS,
        )  # fmt: skip
        try:
            found = planned("--dask", address)
            out, _ = killer.communicate(timeout=30)
        finally:
            killer.kill()
            killer.wait(30)
        assert out == "killed\n"
        assert victim.wait(30) == -signal.SIGKILL

    assert found == alone
    assert os.getpid() != victim.pid
