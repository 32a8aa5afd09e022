"""Names from outside may hold anything: what is printed of them is harmless in every format."""

from __future__ import annotations

import csv
import io
import re
from pathlib import Path

import pytest

from tests.checkpoints import TINY, folder_of
from tests.running import refused, roofcast

NASTY = "a|b [bold red]x \x1b[31m\u202e*y*"


@pytest.fixture(name="nasty")
def nasty_folder(tmp_path: Path) -> str:
    """Return a model's folder whose name is up to no good."""
    return folder_of(tmp_path / NASTY / "inner\nname", TINY)


def test_a_nasty_name_is_refused_or_harmless(nasty: str) -> None:
    """A path that cannot be printed is refused in one printable line."""
    outcome = roofcast("kv", nasty)

    assert outcome.code in {0, 2}
    assert "\x1b" not in outcome.out + outcome.err
    assert "\u202e" not in outcome.out + outcome.err


def test_a_nasty_name_from_inside(nasty: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Asked for as `.` the folder's own name is printed, harmless in every format and whole in JSON."""
    monkeypatch.chdir(nasty)
    outputs = {name: roofcast("kv", ".", "--format", name) for name in ("text", "json", "csv", "markdown")}

    assert {outcome.code for outcome in outputs.values()} == {0}
    for name in ("text", "markdown"):
        assert "inner?name" in outputs[name].out
        assert all(line.isprintable() for line in outputs[name].out.split("\n"))
    assert outputs["json"].data["result"]["models"][0]["model"] == "inner\nname"
    [row] = csv.DictReader(io.StringIO(outputs["csv"].out))
    assert row["model"] in {"inner\nname", "inner?name"}


@pytest.mark.parametrize("command", [("kv",), ("model",), ("fit", "--gpu", "h100-sxm")], ids=["kv", "model", "fit"])
@pytest.mark.parametrize("output", ["text", "csv", "markdown", "json"])
def test_markup_pipes_and_escapes_in_a_name(
    command: tuple[str, ...], output: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No format prints a control character or direction mark of a name; Markdown keeps its columns."""
    folder = folder_of(tmp_path / NASTY, {k: v for k, v in TINY.items() if k != "torch_dtype"})
    monkeypatch.chdir(folder)
    outcome = roofcast(command[0], ".", *command[1:], "--format", output)

    assert outcome.code == 0, outcome.err
    assert "\x1b" not in outcome.out + outcome.err
    assert "\u202e" not in outcome.out + outcome.err
    if output in {"text", "csv"} and command != ("model",):
        assert "a|b [bold red]x ?[31m?*y*" in outcome.out
    if output == "markdown":
        for block in re.findall(r"(?:^\|.*\n)+", outcome.out, re.MULTILINE):
            assert len({len(re.findall(r"(?<!\\)\|", row)) for row in block.splitlines()}) == 1


@pytest.mark.parametrize("formula", ["=1+1", "@SUM(A1)", "+1", "-1"])
def test_csv_is_not_a_formula(formula: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A name that a spreadsheet would calculate is still that name when read back."""
    monkeypatch.chdir(folder_of(tmp_path / formula, TINY))
    [row] = csv.DictReader(io.StringIO(roofcast("kv", ".", "--format", "csv").out))

    assert row["model"].lstrip("'") == formula


def test_a_model_type_with_escapes(tmp_path: Path) -> None:
    """What a config claims to be is quoted harmlessly in the error."""
    folder = folder_of(tmp_path / "m", TINY | {"model_type": "evil\x1b[2J\nroofcast: all is well"})

    refused(roofcast("kv", folder), 3, "evil")
