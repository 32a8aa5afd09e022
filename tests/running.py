"""Run roofcast in this process and keep what it printed."""

from __future__ import annotations

import io
import json
import sys
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

from roofcast.cli.app import main


@dataclass(frozen=True, slots=True)
class Outcome:
    """Exit code, stdout and stderr of one run."""

    code: int
    out: str
    err: str

    @property
    def data(self) -> Any:
        """All of stdout as one JSON value."""
        return json.loads(self.out)

    @property
    def complaint(self) -> str:
        """The one line on stderr, without the program's name."""
        assert self.err.count("\n") == 1, self.err
        assert self.err.startswith("roofcast: "), self.err
        return self.err.removeprefix("roofcast: ").rstrip("\n")


def roofcast(*arguments: str) -> Outcome:
    """Run `roofcast ARGUMENTS`; what it raises instead of leaving passes through."""
    out, err = io.StringIO(), io.StringIO()
    with patch.object(sys, "argv", ["roofcast", *arguments]), redirect_stdout(out), redirect_stderr(err):
        try:
            main()
        except SystemExit as stop:
            code = stop.code
    assert isinstance(code, int), code
    return Outcome(code, out.getvalue(), err.getvalue())


def answer(*arguments: str) -> Any:
    """Run a command that must answer well, and return its whole JSON."""
    outcome = roofcast(*arguments, "--format", "json")
    assert outcome.code == 0, outcome.err
    return outcome.data


def result(*arguments: str) -> Any:
    """Run a command that must answer well, and return `result` of its JSON."""
    return answer(*arguments)["result"]


def refused(outcome: Outcome, code: int, *words: str) -> None:
    """Hold an error against its contract: the code, one printable line that holds the words, an empty stdout."""
    assert outcome.code == code, outcome
    assert outcome.out == ""
    assert outcome.complaint.isprintable()
    assert "Traceback" not in outcome.err
    assert "internal error" not in outcome.err
    assert [word for word in words if word not in outcome.complaint] == [], outcome.complaint


def table_cells(rows: list[dict[str, Any]]) -> dict[str, tuple[object, ...]]:
    """Return each row of `kv --context 128k` as people print it: kind, L, q, kv, KiB/token, GiB @128k, weights GiB."""
    return {
        row["model"]: (
            row["attention"],
            row["layers"],
            row["query_heads"],
            row["kv_heads"],
            round(row["kv_bytes_per_token"] / 1024, 1),
            round(row["cache_bytes"]["131072"] / 2**30, 2),
            round(row["weight_bytes"] / 2**30, 1),
        )
        for row in rows
    }
