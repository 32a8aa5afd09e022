"""`roofcast check` end to end: exit codes, what is said where, and every output."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.checkpoints import TINY, folder_of
from tests.gates import HEAD, actual, gate, rows
from tests.running import answer, refused, roofcast

if TYPE_CHECKING:
    from pathlib import Path


def test_a_passing_gate(tmp_path: Path) -> None:
    """Nothing on stderr, exit code 0, a row each with its place in the file."""
    outcome = gate(tmp_path, "name: chats, quantity: sequences, context: 4k, at_least: 100", "quantity: weights_fit")
    [chats, fits] = rows(
        tmp_path, "name: chats, quantity: sequences, context: 4k, at_least: 100", "quantity: weights_fit"
    )

    assert (outcome.code, outcome.err) == (0, "")
    assert "all 2 rules pass" in outcome.out
    assert chats | {"message": ""} == {
        "name": "chats", "status": "passed", "actual": 104, "required": 100, "message": "", "quantity": "sequences",
        "unit": "", "sign": ">=", "basis": None, "baseline": None, "model": "llama-3.1-8b", "gpu": "h100-sxm",
        "file": str(tmp_path / "rules.yaml"), "line": 4, "code": 0,
    }  # fmt: skip
    assert (fits["actual"], fits["required"], fits["sign"], fits["line"]) == (True, True, "==", 5)


def test_a_failing_gate(tmp_path: Path) -> None:
    """The table on stdout, one line on stderr with the counts and the first failures, exit code 1."""
    outcome = gate(tmp_path, "name: chats, quantity: sequences, context: 4k, at_least: 105", "quantity: weights_fit")

    assert outcome.code == 1
    assert outcome.complaint == "1 failed of 2 rules: chats: 104; at least 105 is required"
    assert "chats" in outcome.out


def test_what_does_not_fit_fails(tmp_path: Path) -> None:
    """Times and costs of what does not fit are no number; the rule fails and says why."""
    big = "model: llama-3.3-70b"
    found = rows(
        tmp_path,
        f"quantity: ttft, {big}, prompt: 1k, at_most: 9 s",
        f"quantity: tokens_per_second, {big}, batch: 1, context: 1k, at_least: 1",
        f"quantity: cost_per_million_tokens, {big}, batch: 1, prompt: 1k, output: 10, gpu_price: 1, at_most: 100",
        f"quantity: sequences, {big}, context: 4k, at_least: 1",
        f"quantity: weights_fit, {big}",
        f"quantity: weights_fit, {big}, engine: vllm",
    )

    assert [row["code"] for row in found] == [1] * 6
    assert [row["actual"] for row in found] == [None, None, None, 0, False, False]
    assert all("does not fit: there is room for 0 x" in row["message"] for row in found[:3])
    assert all("141.1 GB" in row["message"] or "131.4 GiB" in row["message"] for row in found)


def test_what_the_engine_has_no_room_for_has_no_speed(tmp_path: Path) -> None:
    """vLLM's own budget holds 113 sequences of 4,096 tokens there: of 113 all rules pass, of 114 none."""
    for batch, code in ((113, 0), (114, 1)):
        found = rows(
            tmp_path,
            f"quantity: fits, engine: vllm, batch: {batch}, context: 4k",
            f"quantity: ttft, engine: vllm, batch: {batch}, prompt: 4k, at_most: 99 s",
            f"quantity: tpot, engine: vllm, batch: {batch}, context: 4k, at_most: 99 s",
            f"quantity: tokens_per_second, engine: vllm, batch: {batch}, context: 4k, at_least: 1",
            f"quantity: cost_per_million_tokens, engine: vllm, batch: {batch}, prompt: 3996, output: 100, gpu_price: 1, at_most: 99",
        )

        assert [row["code"] for row in found] == [code] * 5
    assert all("vllm has room for 113 x 4,096 tokens at once, and 114 are asked" in row["message"] for row in found[1:])


def test_a_reserve_counts_for_times_too(tmp_path: Path) -> None:
    """What is kept free is room for no sequence, of whatever a rule asks; engines without rules of memory take all."""
    for reserve, code in (("10%", 0), ("30%", 1)):
        found = rows(
            tmp_path,
            f"quantity: fits, batch: 100, context: 4k, reserve: {reserve}",
            f"quantity: tpot, batch: 100, context: 4k, at_most: 9 s, reserve: {reserve}",
            f"quantity: ttft, batch: 100, prompt: 4k, at_most: 99 s, reserve: {reserve}",
        )
        assert [row["code"] for row in found] == [code] * 3
    assert rows(tmp_path, "quantity: tpot, batch: 16, context: 4k, at_most: 9 s, engine: transformers")[0]["code"] == 0


def test_what_cannot_be_told(tmp_path: Path) -> None:
    """Unknown models and caches without tokens are undetermined, exit code 3; the other rules are held."""
    found = gate(
        tmp_path,
        "name: unknown, quantity: sequences, model: llama-9, context: 4k, at_least: 1",
        "name: offline, quantity: sequences, model: org/name, context: 4k, at_least: 1",
        "name: state, quantity: kv_tokens, model: falcon-mamba-7b, at_least: 1",
        "name: good, quantity: weights_fit",
        options=("--offline", "--format", "json"),
    )

    assert found.code == 3
    by_name = {row["name"]: row for row in found.data["result"]["rules"]}
    assert [by_name[name]["code"] for name in ("unknown", "offline", "state", "good")] == [3, 3, 3, 0]
    assert "no model 'llama-9' in the catalogue; nearest: llama-" in by_name["unknown"]["message"]
    assert "its cache does not grow with tokens" in by_name["state"]["message"]
    assert "3 cannot be told of 4 rules: unknown: no model 'llama-9'" in found.err


def test_a_rule_that_cannot_be_is_named_and_the_others_go_on(tmp_path: Path) -> None:
    """A cut that does not divide is exit code 2, with its place on stderr, over a failed rule's 1."""
    outcome = gate(
        tmp_path,
        "name: odd, quantity: sequences, context: 4k, at_least: 1, tp: 3",
        "name: uneven, quantity: sequences, context: 4k, at_least: 1, gpus: 3, tp: 2, engine: vllm",
        "name: staged, quantity: sequences, context: 4k, at_least: 1, pp: 2",
        "name: failing, quantity: sequences, context: 4k, at_least: 999",
    )

    assert outcome.code == 2
    lines = outcome.err.splitlines()
    assert lines[0].startswith(
        f"roofcast: {tmp_path}/rules.yaml:4: rule 'odd': 3 GPUs cannot share 32/8 query/KV heads"
    )
    assert lines[0].endswith("tp must be one of 1, 2, 4, 8, 16, 32")
    assert "rule 'uneven': gpus 3 is not tp x pp x dp, 2" in lines[1]
    assert "rule 'staged': pp 2: without an engine all GPUs share every layer; engine: vllm knows it" in lines[2]
    assert lines[3].startswith(
        "roofcast: 1 failed, 3 cannot be told of 4 rules: failing: 104; at least 999 is required"
    )
    assert len(lines) == 4


def test_a_broken_model_is_badly_put(tmp_path: Path) -> None:
    """A config.json that is none is malformed input, exit code 2, of that rule alone."""
    (tmp_path / "config.json").write_text("{")
    found = rows(
        tmp_path, f"quantity: weight_bytes, at_most: 1 GB, model: {tmp_path}/config.json", "quantity: weights_fit"
    )

    assert [row["code"] for row in found] == [2, 0]
    assert "not JSON" in found[0]["message"]


def test_bounds_alone(tmp_path: Path) -> None:
    """With --efficiency bound rules are about the bound, and those that say expected cannot be told."""
    plain, stated = (
        "quantity: ttft, prompt: 4k, at_most: 9 s",
        "quantity: tpot, context: 4k, batch: 1, at_most: 9 s, basis: expected",
    )
    found = rows(tmp_path, plain, stated, options=("--efficiency", "bound"))

    assert [(row["basis"], row["code"]) for row in found] == [("bound", 0), ("expected", 3)]
    assert "--efficiency bound" in found[1]["message"] or "efficiency bound" in found[1]["message"]


def test_a_file_of_constants(tmp_path: Path) -> None:
    """--efficiency FILE counts before the built-in constants; a broken one is one line, and no rule is answered."""
    from roofcast.hwdb.efficiency_files import efficiency_files

    rule = "quantity: tpot, context: 4k, batch: 16, at_most: 9 s, engine: vllm"
    own = tmp_path / "own.yaml"
    own.write_text(efficiency_files()["a100-80gb-sxm.vllm"].read_text(encoding="utf-8"), encoding="utf-8")

    assert rows(tmp_path, rule, options=("--efficiency", str(own)))[0]["actual"] != rows(tmp_path, rule)[0]["actual"]
    broken = tmp_path / "broken.yaml"
    broken.write_text("schema: roofcast.efficiency/1\n")
    refused(gate(tmp_path, rule, options=("--efficiency", str(broken))), 2, "accelerator is missing")


def test_a_matrix_has_a_row_each(tmp_path: Path) -> None:
    """Names carry the values in brackets; each row has its own model and accelerator."""
    matrix = "matrix: {model: [llama-3.1-8b, qwen2.5-7b], gpu: [h100, h200]}, exclude: [{model: qwen2.5-7b, gpu: h100}]"
    found = rows(tmp_path, f"name: m, quantity: sequences, context: 4k, at_least: 1, {matrix}")

    assert [(row["name"], row["model"], row["gpu"]) for row in found] == [
        ("m [llama-3.1-8b, h100]", "llama-3.1-8b", "h100-sxm"),
        ("m [llama-3.1-8b, h200]", "llama-3.1-8b", "h200-sxm"),
        ("m [qwen2.5-7b, h200]", "qwen2.5-7b", "h200-sxm"),
    ]


def test_a_model_in_a_folder(tmp_path: Path) -> None:
    """A path is a model here as everywhere."""
    folder = folder_of(tmp_path / "tiny", TINY)

    assert actual(tmp_path, f"quantity: kv_bytes_per_token, model: {folder}, at_most: 1 KiB") == 256


def test_assumptions_are_in_the_answer(tmp_path: Path) -> None:
    """What was assumed of machines, engines and constants is listed, in the words of rules."""
    rules = ("quantity: sequences, context: 4k, at_least: 1, engine: vllm", "quantity: ttft, prompt: 1k, at_most: 9 s")
    said = gate(tmp_path, *rules, options=("--format", "json")).data["assumptions"]

    assert any("engine_version is not given: the rules of vLLM" in line for line in said)
    assert any("expected times are as under vllm, since no engine is named" in line for line in said)


def test_contexts_beyond_the_models_own(tmp_path: Path) -> None:
    """A server takes no longer requests than its model's, and the rule says so; times are warned of."""
    rules = (
        "quantity: sequences, context: 512k, at_least: 1, engine: vllm",
        "quantity: ttft, prompt: 256k, at_most: 99 s",
    )
    outcome = gate(tmp_path, *rules, options=("--format", "json"))
    found = outcome.data

    assert found["result"]["rules"][0]["message"] == (
        "0; at least 1 is required (the longest request of this server has 131,072 tokens)"
    )
    assert any("is beyond the 131,072 that its config allows" in line for line in found["warnings"])


def test_formats_that_the_device_lacks(tmp_path: Path) -> None:
    """What an accelerator cannot compute in is warned of, as `fit` does."""
    rule = "quantity: sequences, context: 1k, at_least: 1, gpu: a100-80gb-sxm, kv: fp8, weights: fp8"
    fit = answer("fit", "llama-3.1-8b", "--gpu", "a100-80gb-sxm", "--kv", "fp8", "--weights", "fp8", "--context", "1k")
    said = gate(tmp_path, rule, options=("--format", "json")).data["warnings"]

    assert fit["warnings"]
    assert [
        line.replace("--", "") for line in fit["warnings"] if "fp8" in line and line.replace("--", "") not in said
    ] == []


def test_every_output(tmp_path: Path) -> None:
    """JUnit and the summary are written beside the main output, annotations come after the text; a summary is added to."""
    junit, summary, out = (tmp_path / name for name in ("j.xml", "summary.md", "out.md"))
    summary.write_text("before\n")
    rule = "name: chats, quantity: sequences, context: 4k, at_least: 105"
    beside = ("--junit", str(junit), "--summary", str(summary), "--github")
    outcome = gate(tmp_path, rule, options=beside)

    assert outcome.code == 1
    assert "<testsuite" in junit.read_text()
    assert summary.read_text().startswith("before\n")
    assert "chats" in summary.read_text()
    assert outcome.out.splitlines()[-1].startswith("::error file=")
    assert gate(tmp_path, rule, options=("--out", str(out), *beside)).code == 1
    assert "| chats" in out.read_text().replace("|chats", "| chats")
    for name, start in (
        ("csv", "status,name,"),
        ("markdown", ""),
        ("junit", "<?xml"),
        ("github", "::error file="),
        ("json", "{"),
    ):
        assert gate(tmp_path, rule, options=("--format", name)).out.startswith(start)


def test_commands_of_a_ci_do_not_come_from_names(tmp_path: Path) -> None:
    """Where a name stands in a line that a runner reads, it is no command of its own."""
    rule = "name: 'x ##[stop-commands]y', quantity: sequences, context: 4k, at_least: 999"

    for options in ((), ("--format", "csv"), ("--github",)):
        outcome = gate(tmp_path, rule, options=options)
        assert outcome.code == 1
        assert "##[" not in outcome.out + outcome.err
        assert "# #[stop-commands]y" in outcome.out
    direct = gate(
        tmp_path,
        "name: '::error::direct', quantity: sequences, context: 4k, at_least: 999",
        options=("--format", "csv"),
    )
    assert not any(line.startswith("::") for line in direct.out.splitlines())


def test_malformed_rules_are_seen_wherever_a_run_is_looked_at(tmp_path: Path) -> None:
    """Annotations, the summary and JUnit name them, and none of an earlier run stays."""
    junit, summary = tmp_path / "j.xml", tmp_path / "summary.md"
    junit.write_text("<old/>")
    beside = ("--junit", str(junit), "--summary", str(summary))
    outcome = gate(
        tmp_path, "name: x, quantity: sequences, context: 4k, at_most: 1", options=("--format", "github", *beside)
    )

    assert outcome.code == 2
    assert outcome.out.startswith("::error file=")
    assert "of sequences more is better" in junit.read_text()
    assert '<testsuite name="' in junit.read_text()
    assert "nothing was checked" in summary.read_text()
    out = gate(tmp_path, "name: x, quantity: sequences, context: 4k, at_most: 1", options=("--format", "junit"))
    assert out.code == 2
    assert out.out.startswith("<?xml")
    many = gate(
        tmp_path,
        *(f"name: x{n}, quantity: sequences, context: 4k, at_most: 1" for n in range(30)),
        options=("--github",),
    )
    assert many.out.splitlines()[9].endswith(" (and 20 more: see the log)")
    missing = gate(tmp_path, "quantity: weights_fit", options=("--baseline", "nothere.json", "--github", *beside))
    assert missing.code == 2
    assert "nothere.json: no such file; --update writes it" in missing.out.splitlines()[-1]
    assert "nothere.json" in summary.read_text()


def test_whole_numbers_are_held_exactly(tmp_path: Path) -> None:
    """A byte more than the limit is more, however small a share it is."""
    whole = "quantity: weight_bytes, at_most: 16060522496 B"

    assert gate(tmp_path, whole).code == 0
    assert gate(tmp_path, whole.replace("496 B", "495 B")).code == 1


def test_what_there_is_none_of_has_no_price(tmp_path: Path) -> None:
    """A prompt of one token has none that a cache could hold."""
    rule = (
        "quantity: cost_per_million_tokens, of: cached_input, prompt: 1, output: 10, batch: 1, gpu_price: 1, at_most: 1"
    )

    assert gate(tmp_path, rule).code == 3


@pytest.mark.parametrize(
    ("options", "said"),
    [
        pytest.param(("--format", "xml"), "--format xml: known: text, json, csv, markdown, html, junit, github", id="format"),
        pytest.param(("--update",), "--update writes the baseline; name its file with --baseline FILE", id="update"),
        pytest.param(("--github", "--format", "json"), "--github prints to stdout", id="github-json"),
        pytest.param(("--junit", "no/folder/j.xml"), "--junit no/folder/j.xml: it must name a file in a folder", id="junit"),
        pytest.param(("--summary", "."), "--summary .: it must name a file", id="summary"),
        pytest.param(("--baseline", "nothere.json"), "--baseline nothere.json: no such file; --update writes it", id="baseline"),
        pytest.param(("--out", "x.md", "--summary", "x.md"), "x.md: two options write it", id="twice"),
        pytest.param(("--junit", "x.xml", "--summary", "./x.xml"), "x.xml: two options write it", id="twice-spelled"),
        pytest.param(("--baseline", "b.json", "--update", "--out", "./b.json"), "b.json: two options write it", id="baseline-spelled"),
        pytest.param(("--efficiency", "nothere"), "--efficiency nothere: no such file", id="efficiency"),
    ],
)  # fmt: skip
def test_options_that_cannot_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...], said: str
) -> None:
    """They are refused in one line before any rule is answered."""
    monkeypatch.chdir(tmp_path)

    refused(gate(tmp_path, "quantity: weights_fit", options=options), 2, said)


def test_outputs_that_are_inputs(tmp_path: Path) -> None:
    """No option writes over a rule file."""
    path = str(tmp_path / "rules.yaml")
    for option in ("--out", "--junit", "--summary", "--baseline"):
        options = (option, path, *(("--update",) if option == "--baseline" else ("--format", "json")))
        refused(gate(tmp_path, "quantity: weights_fit", options=options), 2, f"{option} {path}: it is read")


def test_a_reader_that_hangs_up_does_not_open_the_gate(tmp_path: Path) -> None:
    """`check | head` leaves with the gate's own code."""
    path = tmp_path / "rules.yaml"
    path.write_text(f"{HEAD}  - {{quantity: sequences, context: 4k, at_least: 999}}\n")
    running = subprocess.Popen(
        [sys.executable, "-P", "-m", "roofcast", "check", str(path)], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert running.stdout is not None
    running.stdout.close()
    _, said = running.communicate(timeout=60)

    assert running.returncode == 1
    assert said.startswith(b"roofcast: 1 failed of 1 rules")


def test_no_file() -> None:
    """A file is asked for; a formula needs none."""
    refused(roofcast("check"), 2, "FILE is missing")
    assert "B/token" in roofcast("check", "--explain", "kv_bytes_per_token").out


def test_several_files_are_as_one(tmp_path: Path) -> None:
    """The answer has the rules of both, each with its file; the worst code counts."""
    paths = []
    for name, least in (("a.yaml", 1), ("b.yaml", 999)):
        paths.append(str(tmp_path / name))
        (tmp_path / name).write_text(f"{HEAD}  - {{name: x, quantity: sequences, context: 4k, at_least: {least}}}\n")
    outcome = roofcast("check", *paths, "--format", "json")

    assert outcome.code == 1
    assert [(r["name"], r["file"], r["code"]) for r in outcome.data["result"]["rules"]] == [
        (f"{paths[0]}: x", paths[0], 0),
        (f"{paths[1]}: x", paths[1], 1),
    ]
    assert outcome.data["result"]["files"] == paths


def test_answers_are_the_same_twice(tmp_path: Path) -> None:
    """The same file gives the same bytes: nothing depends on the order of dictionaries or on the clock."""
    path = tmp_path / "rules.yaml"
    path.write_text(f"{HEAD}  - {{quantity: tpot, context: 4k, at_most: 1 s, matrix: {{batch: [1, 16, 64]}}}}\n")

    assert answer("check", str(path)) == json.loads(roofcast("check", str(path), "--format", "json").out)
