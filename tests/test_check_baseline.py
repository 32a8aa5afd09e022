"""The baseline of `check`: written, held against, locked; a model that moves on the Hub fails the gate."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from roofcast.calculators.check import Kept
from roofcast.calculators.check_baseline import (
    SCHEMA,
    Baseline,
    BaselineError,
    locked,
    moved,
    read_baseline,
    render_baseline,
    what_moved,
)
from roofcast.modelspec.errors import MalformedModelError
from roofcast.modelspec.model import load_model
from roofcast.modelspec.source import resolve
from tests.checkpoints import TINY, TINY_KV, decoder_tensors, folder_of, published
from tests.gguf_models import FILES
from tests.hub_client import hub_fixture, server_fixture  # noqa: F401  pytest finds them by name
from tests.running import Outcome, refused, roofcast

if TYPE_CHECKING:
    from tests.hub_server import LocalHub

REPO = "acme/tiny"
OTHER = TINY | {"num_key_value_heads": 4}  # of 4 query heads: every token takes twice the cache
GATE = f"""schema: roofcast.check/1
lock: true
rules:
  - {{name: growth, quantity: kv_bytes_per_token, model: {REPO}, revision: release, allowed_change: 0%}}
"""
HERE = """schema: roofcast.check/1
defaults: {model: llama-3.1-8b, gpu: h100-sxm, engine: vllm}
LOCK
rules:
  - {name: chats, quantity: sequences, context: 4k, at_least: 1, allowed_change: 2%}
  - {name: ttft, quantity: ttft, prompt: 4k, allowed_change: 2%}
  - {name: fits, quantity: weights_fit}
"""


def publish(hub: LocalHub, config: dict[str, Any], commit: str) -> None:
    """Publish the model, its branch `release` at that commit."""
    hub.add(REPO, published(config, decoder_tensors(config)), revisions=("main", "release")).commit = commit * 40


def gate(text: str, *options: str) -> Outcome:
    """Run `check` over a file of that text in this folder, against base.json."""
    Path("gate.yaml").write_text(text, encoding="utf-8")
    return roofcast("check", "gate.yaml", "--baseline", "base.json", *options)


def rows(outcome: Outcome) -> dict[str, dict[str, Any]]:
    """Return the rows of a JSON answer by name."""
    return {row["name"]: row for row in outcome.data["result"]["rules"]}


@pytest.fixture(name="here")
def here_fixture(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Change into an empty folder."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def stored() -> dict[str, Any]:
    """Return what base.json holds."""
    found: dict[str, Any] = json.loads(Path("base.json").read_text(encoding="utf-8"))
    return found


def store(content: dict[str, Any]) -> None:
    """Write base.json."""
    Path("base.json").write_text(json.dumps(content), encoding="utf-8")


def test_a_revision_that_doubles_the_cache_fails_the_gate(hub: LocalHub) -> None:
    """A branch that moves to a model of twice the KV heads fails its rule and its lock; --update accepts both."""
    publish(hub, TINY, "a")
    assert gate(GATE, "--update").code == 0
    assert gate(GATE).code == 0
    publish(hub, OTHER, "b")
    outcome = gate(GATE, "--format", "json")

    assert outcome.code == 1
    found = rows(outcome)
    growth, lock = found["growth"], found[f"lock: model {REPO}@release"]
    assert (growth["baseline"], growth["actual"], growth["required"]) == (TINY_KV, 2 * TINY_KV, TINY_KV)
    assert growth["message"] == "512 B/token, +100.0 % against the baseline's 256 B/token; 0% more is allowed"
    assert (growth["code"], lock["code"], lock["line"]) == (1, 1, 2)
    assert lock["message"].startswith("locked commit aaaaaaaa, config sha256:")
    assert ", found commit bbbbbbbb, config sha256:" in lock["message"]
    assert "--baseline base.json --update` to accept" in lock["message"]
    assert "2 failed of 2 rules" in outcome.err

    accepted = gate(GATE, "--update")
    assert accepted.code == 0
    assert "baseline: growth was 256 B/token, is 512 B/token (+100.0 %)" in accepted.out
    assert gate(GATE).code == 0


def test_a_revision_that_changes_weights_alone(hub: LocalHub) -> None:
    """The lock fails where a commit moved and no number did; without `lock: true` that is a warning."""
    publish(hub, TINY, "a")
    gate(GATE, "--update")
    publish(hub, TINY, "b")

    failed = gate(GATE, "--format", "json")
    assert failed.code == 1
    assert {name: row["code"] for name, row in rows(failed).items()} == {"growth": 0, f"lock: model {REPO}@release": 1}
    loose = gate(GATE.replace("lock: true\n", ""), "--format", "json")
    assert loose.code == 0
    assert [line for line in loose.data["warnings"] if "locked commit aaaaaaaa, found commit bbbbbbbb" in line]


def test_another_revision_is_not_locked_yet(hub: LocalHub) -> None:
    """A rule that asks for another revision has no lock of it: undetermined, and the value is compared all the same."""
    publish(hub, TINY, "a")
    gate(GATE, "--update")
    publish(hub, OTHER, "b")
    outcome = gate(GATE.replace("revision: release", "revision: main"), "--format", "json")

    assert outcome.code == 1
    found = rows(outcome)
    assert (found["growth"]["code"], found[f"lock: model {REPO}@main"]["code"]) == (1, 3)


def test_an_unreachable_hub_leaves_the_baseline_as_it_was(hub: LocalHub) -> None:
    """Rules of a model that is gone are undetermined, and --update keeps what was known of it."""
    publish(hub, TINY, "a")
    gate(GATE, "--update")
    before = stored()
    hub.repos.clear()
    found = gate(GATE.replace("release", "nowhere"), "--update")
    gone = gate(GATE.replace("revision: release", "revision: other"), "--update", "--offline")

    assert (found.code, gone.code) == (3, 3)
    assert stored()["rules"] == before["rules"]


def test_the_commit_of_a_model(hub: LocalHub, tmp_path: Path) -> None:
    """A model of the Hub knows its commit, in GGUF too; one of the catalogue or of a folder has none."""
    publish(hub, TINY, "c")
    hub.add("acme/gguf", FILES).commit = "d" * 40

    assert load_model(resolve(REPO)).commit == "c" * 40
    assert load_model(resolve("acme/gguf:Q8_0")).commit == "d" * 40
    assert load_model(resolve("llama-3.1-8b")).commit is None
    assert load_model(resolve(folder_of(tmp_path / "tiny", TINY))).commit is None


def test_a_model_in_a_folder_is_locked_by_its_config(here: Path) -> None:
    """A key that is written elsewhere in the file is the same config; another value is not."""
    folder = Path(folder_of(here / "tiny", TINY))
    text = f"schema: roofcast.check/1\nlock: true\nrules: [{{quantity: kv_bytes_per_token, model: {folder}, at_most: 1 KiB}}]\n"
    gate(text, "--update")
    assert list(stored()["lock"]["models"]) == [str(folder)]
    assert stored()["lock"]["models"][str(folder)].startswith("config sha256:")

    (folder / "config.json").write_text(json.dumps(dict(reversed(TINY.items()))))
    assert gate(text).code == 0
    (folder / "config.json").write_text(json.dumps(TINY | {"intermediate_size": 128}))
    assert gate(text).code == 1


def test_the_file(here: Path) -> None:
    """Every rule with a value, and what the numbers were made from: sorted, indented, ending in a line break."""
    outcome = gate(HERE.replace("LOCK", "lock: true"), "--update")

    assert (here, outcome.code) == (here, 0)
    text = Path("base.json").read_text(encoding="utf-8")
    assert text == json.dumps(stored(), indent=2) + "\n"
    assert stored()["schema"] == SCHEMA
    assert list(stored()["rules"]) == ["chats", "fits", "ttft"]
    assert stored()["rules"]["chats"] == {"quantity": "sequences", "unit": "", "value": 113, "file": "gate.yaml"}
    assert stored()["rules"]["fits"]["value"] is True
    assert stored()["rules"]["ttft"]["basis"] == "expected"
    lock = stored()["lock"]
    assert {section: list(entries) for section, entries in lock.items()} == {
        "accelerators": ["h100-sxm"],
        "constants": ["h100-sxm.vllm"],
        "models": ["llama-3.1-8b"],
        "versions": ["roofcast"],
    }
    again = Path("base.json").stat().st_mtime_ns, text
    assert gate(HERE.replace("LOCK", "lock: true")).code == 0
    assert (Path("base.json").stat().st_mtime_ns, Path("base.json").read_text(encoding="utf-8")) == again


@pytest.mark.parametrize(
    ("section", "name", "kind"),
    [("accelerators", "h100-sxm", "accelerator "), ("constants", "h100-sxm.vllm", "constants "), ("models", "llama-3.1-8b", "model "), ("versions", "roofcast", "")],
)  # fmt: skip
def test_each_fact_that_moved_is_a_failed_rule(here: Path, section: str, name: str, kind: str) -> None:
    """Facts of accelerators, constants, models' configs and the version of roofcast are locked each on their own."""
    text = HERE.replace("LOCK", "lock: true")
    gate(text, "--update")
    content = stored()
    content["lock"][section][name] = "sha256:" + "0" * 64
    store(content)
    outcome = gate(text, "--format", "json")

    assert (here, outcome.code) == (here, 1)
    assert [row_name for row_name, row in rows(outcome).items() if row["code"]] == [f"lock: {kind}{name}"]
    [entry] = [lock for lock in outcome.data["result"]["locks"] if lock["locked"] != lock["found"]]
    assert (entry["kind"], entry["name"]) == (kind.strip() or "roofcast", name)
    loose = gate(HERE.replace("LOCK", ""), "--format", "json")
    assert loose.code == 0
    assert any("locked sha256:00000000, found " in line for line in loose.data["warnings"])


def test_a_users_accelerator_that_changes(here: Path, home: Path) -> None:
    """A fact of a user's own file that changes moves the lock; a comment in it does not."""
    folder = home / "accelerators"
    folder.mkdir()
    card = folder / "mine.yaml"
    card.write_text(
        "id: mine\nname: Mine\nmemory: 80 GB\nbandwidth: 2 TB/s\npeaks: {bf16: 300 TFLOP/s, fp16: 300 TFLOP/s}\n"
        "sources: [{title: the shop, access: recall}]\n"
    )
    text = "schema: roofcast.check/1\nlock: true\nrules: [{quantity: weights_fit, model: llama-3.1-8b, gpu: mine}]\n"
    gate(text, "--update")
    card.write_text(f"# mine\n{card.read_text()}")
    assert (here, gate(text).code) == (here, 0)
    card.write_text(card.read_text().replace("2 TB/s", "3 TB/s"))
    assert gate(text).code == 1


def test_without_a_baseline(here: Path) -> None:
    """Rules with allowed_change, and the lock, cannot be told; each says what to run."""
    Path("gate.yaml").write_text(HERE.replace("LOCK", "lock: true"))
    outcome = roofcast("check", "gate.yaml", "--format", "json")

    assert (here, outcome.code) == (here, 3)
    found = rows(outcome)
    assert {name: row["code"] for name, row in found.items()} == {"chats": 3, "ttft": 3, "fits": 0, "lock": 3}
    assert "run `roofcast check gate.yaml --baseline baseline.json --update`" in found["ttft"]["message"]
    assert found["chats"]["actual"] == 113


def test_a_rule_that_is_new(here: Path) -> None:
    """The baseline's other rules are held; the new one cannot be told until it is updated, which leaves out what is gone."""
    gate(HERE.replace("LOCK", ""), "--update")
    changed = HERE.replace("LOCK", "").replace("name: ttft", "name: first")
    outcome = gate(changed, "--format", "json")

    assert (here, {name: row["code"] for name, row in rows(outcome).items()}) == (
        here,
        {"chats": 0, "first": 3, "fits": 0},
    )
    accepted = gate(changed, "--update")
    assert accepted.code == 0
    assert "baseline: ttft is left out" in accepted.out
    assert "baseline: first is new: " in accepted.out
    assert list(stored()["rules"]) == ["chats", "first", "fits"]


def test_a_rule_of_another_quantity(here: Path) -> None:
    """A name whose rule is about something else now is not compared."""
    gate(HERE.replace("LOCK", ""), "--update")
    outcome = gate(
        HERE.replace("LOCK", "").replace("{name: ttft, quantity: ttft,", "{name: ttft, basis: low, quantity: ttft,"),
        "--format",
        "json",
    )

    assert (here, outcome.code) == (here, 3)
    assert (
        "the baseline's value of that name is of expected ttft in s; run `roofcast" in rows(outcome)["ttft"]["message"]
    )


def test_a_limit_that_fails_is_written_all_the_same(here: Path) -> None:
    """--update accepts values and not limits: the gate still fails."""
    text = HERE.replace("LOCK", "").replace("at_least: 1,", "at_least: 999,")
    outcome = gate(text, "--update")

    assert (here, outcome.code) == (here, 1)
    assert stored()["rules"]["chats"]["value"] == 113


def test_nothing_is_written_beside_a_malformed_file(here: Path) -> None:
    """A slip in the rules leaves the baseline as it was."""
    gate(HERE.replace("LOCK", ""), "--update")
    before = Path("base.json").read_bytes()
    outcome = gate(HERE.replace("LOCK", "").replace("context", "contxt"), "--update")

    assert (here, outcome.code) == (here, 2)
    assert Path("base.json").read_bytes() == before


@pytest.mark.parametrize(
    ("text", "said"),
    [
        pytest.param("", "not JSON (it is empty)", id="empty"),
        pytest.param("[]", "holds a list; it must be a JSON object", id="list"),
        pytest.param("{", "not JSON", id="broken"),
        pytest.param("{}", "schema is null; a baseline of this version has roofcast.baseline/1", id="schema"),
        pytest.param('{"schema": "roofcast.baseline/2"}', "schema is roofcast.baseline/2; a baseline", id="version"),
        pytest.param('{"schema": "roofcast.baseline/1", "ruls": {}}', "ruls is not a key (did you mean rules?)", id="key"),
        pytest.param('{"schema": "roofcast.baseline/1", "rules": []}', "rules is a list; it must be an object", id="rules"),
        pytest.param('{"schema": "roofcast.baseline/1", "rules": {"a": 3}}', "rule a: is a number; it must be an object", id="rule"),
        pytest.param('{"schema": "roofcast.baseline/1", "rules": {"a": {"quantity": 3}}}', "rule a: quantity is a number; it must be text", id="quantity"),
        pytest.param('{"schema": "roofcast.baseline/1", "rules": {"a": {"quantity": "q", "unit": "", "value": NaN}}}', "rule a: value is nan; it must be a number", id="nan"),
        pytest.param('{"schema": "roofcast.baseline/1", "rules": {"a": {"quantity": "q", "unit": "", "value": -1}}}', "rule a: value is -1; it must be a number", id="negative"),
        pytest.param('{"schema": "roofcast.baseline/1", "rules": {"a": {"quantity": "q", "unit": "", "value": "3"}}}', "rule a: value is 3; it must be a number", id="text"),
        pytest.param('{"schema": "roofcast.baseline/1", "rules": {"a": {"quantity": "q", "unit": "", "basis": "best", "value": 1}}}', "rule a: basis is best; it must be one of bound", id="basis"),
        pytest.param('{"schema": "roofcast.baseline/1", "lock": {"models": {"a": 3}}}', "lock: a is a number; it must be text", id="lock"),
        pytest.param('{"schema": "roofcast.baseline/1", "lock": {"model": {}}}', "lock: model is not a key (did you mean models?)", id="section"),
        pytest.param('{"schema": "roofcast.baseline/1", "rules": {"a": 1, "a": 1}}', "the key 'a' occurs twice", id="twice"),
        pytest.param('{"a":' * 5000, "nested too deeply", id="deep"),
    ],
)  # fmt: skip
def test_a_broken_baseline_is_one_line(here: Path, text: str, said: str) -> None:
    """It is refused, and no rule is answered; not with --update either, which would write over it."""
    Path("base.json").write_text(text)
    refused(gate(HERE.replace("LOCK", "")), 2, "base.json", said)
    refused(gate(HERE.replace("LOCK", ""), "--update"), 2, "base.json", said)

    assert (here / "base.json").read_text() == text


def test_a_baseline_that_cannot_be_read(here: Path) -> None:
    """Folders and files of megabytes are no baselines."""
    (here / "base.json").mkdir()
    refused(gate(HERE.replace("LOCK", "")), 2, "--baseline base.json: it is no plain file")
    (here / "base.json").rmdir()
    (here / "base.json").write_bytes(b" " * 10_000_001)
    refused(gate(HERE.replace("LOCK", "")), 2, "--baseline base.json: it is larger than 10 MB")


BASE = Baseline(
    {"a": Kept("ttft", "s", "bound", 0.5), "b": Kept("fits", "", None, value=True)}, {("model", "m"): "config x"}
)


def test_a_baseline_is_read_as_it_was_written() -> None:
    """What is rendered comes back, true and numbers each as they were."""
    assert read_baseline(render_baseline(BASE).encode(), "f") == BASE


@pytest.mark.parametrize(
    ("quantity", "value"),
    [
        ("ttft", "true"),
        ("sequences", "false"),
        ("fits", "1"),
        ("ttft", "1" + "0" * 400),
        ("ttft", "NaN"),
        ("ttft", "-1"),
    ],
)
def test_values_of_the_wrong_kind_are_refused(quantity: str, value: str) -> None:
    """A yes is no number of seconds; a number no yes; and none is beyond what there is."""
    text = f'{{"schema": "roofcast.baseline/1", "rules": {{"r": {{"quantity": "{quantity}", "unit": "s", "value": {value}}}}}}}'

    with pytest.raises((BaselineError, MalformedModelError)):
        read_baseline(text.encode(), "b.json")


def test_what_moved_is_said() -> None:
    """Each value that moved, is new or is gone has a line, and each lock that moved."""
    after = replace(BASE, rules={"a": Kept("ttft", "s", "bound", 0.6)}, locks={("model", "m"): "config y"})

    assert moved(BASE, after) == [
        "baseline: a was 500 ms, is 600 ms (+20.0 %)",
        "baseline: b is left out",
        "baseline: model m was config x, is config y",
    ]
    assert moved(BASE, BASE) == []
    assert [said for _, said in what_moved(locked({("model", "m"): "config y"}, BASE))] == [
        "locked config x, found config y"
    ]
    assert what_moved(locked({("model", "new"): "config y"}, BASE)) == []


def test_errors_are_of_our_own_classes() -> None:
    """Both leave with exit code 2."""
    with pytest.raises(BaselineError):
        read_baseline(b"{}", "f")
    with pytest.raises(MalformedModelError):
        read_baseline(b"", "f")
