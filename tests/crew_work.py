"""Work for crews, as a module that worker processes import; and scripts that have it done in a process of their own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from roofcast.calculators.errors import UsageError

REPOSITORY = Path(__file__).resolve().parents[1]
HEAD = """
import json, os, signal, sys, threading, time
from multiprocessing import active_children
from pathlib import Path
from roofcast.cli.crew import crew_of
from tests import crew_work as work
"""


class Noted:
    """A setting that notes in a folder which process it was unpickled in."""

    def __init__(self, folder: str, factor: int) -> None:
        self.folder, self.factor = folder, factor

    def __reduce__(self) -> tuple[Any, ...]:
        """Unpickled by `noted`."""
        return noted, (self.folder, self.factor)


def noted(folder: str, factor: int) -> Noted:
    """Unpickle one, and note it."""
    (Path(folder) / f"{os.getpid()}-{time.monotonic_ns()}").touch()
    return Noted(folder, factor)


def times(factor: int, task: int) -> int:
    """Multiply."""
    return factor * task


def pid_and_times(setting: Noted, task: int) -> tuple[int, int]:
    """Multiply, and say where."""
    return os.getpid(), setting.factor * task


def nap(seconds: float, task: int) -> int:
    """Sleep, and say who did."""
    del task
    time.sleep(seconds)
    return os.getpid()


def sleeps(unused: None, seconds: float) -> None:
    """Sleep as long as the task says."""
    del unused
    time.sleep(seconds)


def dies_once(folder: str, task: int) -> int:
    """Square; the worker of task 7 is killed the first time."""
    flag = Path(folder) / "died"
    if task == 7 and not flag.exists():
        flag.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(0.01)
    return task * task


def hungry(folder: str, task: int) -> int:
    """Square; whoever is not the only one at work is killed, as where memory holds one of them."""
    mine = Path(folder) / f"{os.getpid()}"
    mine.touch()
    time.sleep(0.2)
    for other in {int(file.name) for file in Path(folder).iterdir()} - {os.getpid()}:
        if Path(f"/proc/{other}").exists():
            os.kill(os.getpid(), signal.SIGKILL)
    mine.unlink()
    return task * task


def deadly(folder: str, task: int) -> int:
    """Square; task 3 ends its worker whenever it is tried, and every try is noted."""
    if task == 3:
        (Path(folder) / f"{os.getpid()}").touch()
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(0.01)
    return task * task


def refuses(text: str, task: int) -> int:
    """Raise what a user should read at task 5."""
    if task == 5:
        raise UsageError(text)
    return task


def environment() -> dict[str, str]:
    """Return the environment of processes that import this module."""
    path = os.pathsep.join(filter(None, (str(REPOSITORY), os.environ.get("PYTHONPATH"))))
    return os.environ | {"PYTHONPATH": path, "PYTHONWARNINGS": "error"}


def started(script: str, *arguments: object) -> subprocess.Popen[str]:
    """Start a script in a process, and a process group, of its own."""
    return subprocess.Popen(
        [sys.executable, "-c", HEAD + script, *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(),
        start_new_session=True,
    )


def said(script: str, *arguments: object) -> str:
    """Run a script that must end well and be silent on stderr; return what it printed."""
    process = started(script, *arguments)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (0, ""), err
    return out


def gone(pid: int) -> bool:
    """Whether no process has that number within ten seconds; one that nobody waits for any more counts as gone."""
    for _ in range(200):
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except (FileNotFoundError, ProcessLookupError):
            return True
        if state == "Z":
            return True
        time.sleep(0.05)
    return False
