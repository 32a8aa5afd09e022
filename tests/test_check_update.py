"""What `check --update` writes: values by rule and file, and what they were made from."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from roofcast.calculators.check import Kept
from roofcast.calculators.check_baseline import Baseline, Places, updated
from tests.running import roofcast

if TYPE_CHECKING:
    import pytest

BASE = Baseline(
    {"a": Kept("ttft", "s", "bound", 0.5), "b": Kept("fits", "", None, value=True)}, {("model", "m"): "config x"}
)


NOWHERE = Places({})


def test_an_update_mirrors_the_rules() -> None:
    """What is not of the rules any more is left out, values and locks."""
    assert updated(BASE, [], {}, NOWHERE) == (Baseline(), [])
    assert updated(BASE, [], {("model", "m"): "config y"}, NOWHERE)[0].locks == {("model", "m"): "config y"}


def test_a_value_is_of_the_rule_of_its_file() -> None:
    """A rule of the same name in another file has nothing of it; read together, names have their file in front."""
    kept, places = (
        Kept("ttft", "s", "bound", 0.5, "ci/a.yaml"),
        Places({"./a.yaml": "ci/a.yaml", "b.yaml": "ci/b.yaml"}),
    )

    for name in ("chats", "ci/a.yaml: chats"):
        before = Baseline({name: kept})
        assert places.kept(before, "chats", "./a.yaml") == kept
        assert places.kept(before, "a.yaml: chats", "./a.yaml") == kept
        assert places.kept(before, "chats", "b.yaml") is None
    assert places.stored("a.yaml: chats", "./a.yaml") == "ci/a.yaml: chats"
    assert places.stored("chats", "./a.yaml") == "chats"
    assert places.beside(Baseline({"x": kept})) == []
    assert Places({"b.yaml": "ci/b.yaml"}).beside(Baseline({"x": kept})) == ["ci/a.yaml"]


def test_a_baseline_is_found_from_anywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files are named from the baseline's folder, so that a gate passes from wherever it runs."""
    (tmp_path / "ci").mkdir()
    rule = "{quantity: kv_bytes_per_token, model: llama-3.1-8b, allowed_change: 0%}"
    (tmp_path / "ci" / "a.yaml").write_text(f"schema: roofcast.check/1\nrules:\n  - {rule}\n")
    monkeypatch.chdir(tmp_path / "ci")

    assert roofcast("check", "a.yaml", "--baseline", "base.json", "--update").code == 0
    monkeypatch.chdir(tmp_path)
    assert roofcast("check", "ci/a.yaml", "--baseline", "ci/base.json").code == 0
    assert roofcast("check", str(tmp_path / "ci" / "a.yaml"), "--baseline", "./ci/base.json").code == 0


def test_files_of_one_baseline_are_updated_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One alone is refused with the command for all; each alone is held to its own values; one that is gone counts no more."""
    monkeypatch.chdir(tmp_path)
    for name, gpu in (("a.yaml", "h100-sxm"), ("b.yaml", "h200-sxm")):
        rule = f"{{name: chats, quantity: sequences, context: 4k, model: llama-3.1-8b, gpu: {gpu}, allowed_change: 0%}}"
        Path(name).write_text(f"schema: roofcast.check/1\nrules:\n  - {rule}\n")
    run = partial(roofcast, "check", "--baseline", "base.json")

    assert run("a.yaml", "b.yaml", "--update").code == 0
    assert [run(name).code for name in ("a.yaml", "./b.yaml")] == [0, 0]
    assert (
        "it is of b.yaml too; update all at once: `roofcast check a.yaml b.yaml --baseline base.json --update`"
        in run("a.yaml", "--update").err
    )
    assert run("a.yaml", "--update").code == 2
    Path("b.yaml").unlink()
    assert run("a.yaml", "--update").code == 0
    assert {one["file"] for one in json.loads(Path("base.json").read_text())["rules"].values()} == {"a.yaml"}
