"""Real processes on terminals and pipes."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest


def environment(home: Path, **changes: str) -> dict[str, str]:
    """Return an environment for a real process."""
    kept = {k: v for k, v in os.environ.items() if k not in {"NO_COLOR", "TERM", "COLUMNS"}}
    return kept | {"ROOFCAST_HOME": str(home), "TERM": "xterm-256color"} | changes


def on_terminal(*arguments: str, env: dict[str, str]) -> str:
    """Run roofcast as a process whose stdout is a terminal, and return what the terminal got."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "roofcast", *arguments], stdout=theirs, stderr=subprocess.PIPE, env=env
    )
    os.close(theirs)
    got = b""
    while True:
        try:
            piece = os.read(ours, 4096)
        except OSError:  # the other side is closed
            break
        if not piece:
            break
        got += piece
    os.close(ours)
    _, errors = process.communicate(timeout=60)
    assert (process.returncode, errors) == (0, b"")
    return got.decode().replace("\r\n", "\n")


def process(*arguments: str, env: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """Run roofcast as a process on pipes."""
    return subprocess.run(
        [sys.executable, "-P", "-m", "roofcast", *arguments],
        capture_output=True,
        check=False,
        text=True,
        timeout=60,
        env=env,
    )


def test_headings_are_bold_on_a_terminal(home: Path) -> None:
    """A terminal gets bold headings and else what a pipe gets; a pipe gets no escape code."""
    shown = on_terminal("kv", "llama-3.1-8b", env=environment(home))
    piped = process("kv", "llama-3.1-8b", env=environment(home))

    assert "\x1b[1m" in shown
    assert "\x1b" not in piped.stdout
    assert re.sub(r"\x1b\[[0-9;]*m", "", shown) == piped.stdout


def test_remarks_go_on_below_on_a_terminal(home: Path) -> None:
    """Sentences under the tables are broken between words at the terminal's width; in a pipe each stays one line."""
    asked = ("levers", "llama-3.1-8b", "--gpu", "h100-sxm", "--offline")
    shown = on_terminal(*asked, env=environment(home, COLUMNS="90", NO_COLOR="1")).splitlines()
    piped = process(*asked, env=environment(home)).stdout.splitlines()
    below = shown[shown.index("x is over the base: of times less is better, of sequences more") :]

    assert max(map(len, below)) <= 90
    assert " ".join(line.strip() for line in below) == " ".join(piped[-sum(line[:2] != "  " for line in below) :])


@pytest.mark.parametrize("changes", [{"NO_COLOR": "1"}, {"TERM": "dumb"}], ids=str)
def test_terminals_that_want_plain_text(home: Path, changes: dict[str, str]) -> None:
    """NO_COLOR and dumb terminals get plain text."""
    assert "\x1b" not in on_terminal("kv", "llama-3.1-8b", env=environment(home, **changes))


def test_json_on_a_terminal_is_plain(home: Path) -> None:
    """JSON is the same everywhere."""
    shown = on_terminal("kv", "llama-3.1-8b", "--format", "json", env=environment(home))

    assert json.loads(shown)["schema"] == "roofcast.kv/1"


def test_a_reader_that_has_seen_enough(home: Path) -> None:
    """`roofcast gpus | head` ends quietly: no traceback, no complaint."""
    running = subprocess.Popen(
        [sys.executable, "-P", "-m", "roofcast", "gpus", "--format", "json"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment(home),
    )  # fmt: skip
    with running:
        assert running.stdout is not None
        assert running.stderr is not None
        running.stdout.close()
        complaints = running.stderr.read()

    assert (running.returncode, complaints) == (0, b"")


def test_a_real_process_refuses_in_one_line(home: Path) -> None:
    """A process prints its error on stderr and leaves with the code, without a traceback."""
    done = process("fit", "llama-3.1-8b", "--gpu", "h1000", env=environment(home))

    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.count("\n") == 1
    assert "h1000" in done.stderr


def test_a_real_process_with_debug(home: Path) -> None:
    """--debug prints the traceback."""
    done = process("kv", "nosuch-model", "--debug", env=environment(home))

    assert done.returncode != 0
    assert "Traceback (most recent call last)" in done.stderr


def test_other_encodings(home: Path) -> None:
    """A terminal or pipe that has no box characters is still served."""
    done = process("kv", "llama-3.1-8b", env=environment(home, PYTHONIOENCODING="ascii", LC_ALL="C"))

    assert done.returncode == 0, done.stderr
    assert "128.0" in done.stdout
