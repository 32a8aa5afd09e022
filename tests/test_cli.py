"""The command line: what is printed where, what is written, and the exit code."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest

from tests.checkpoints import LLAMA_3_1_8B, TINY, TINY_PARAMETERS, decoder_tensors, folder_of
from tests.hub_server import safetensors
from tests.running import Outcome, answer, refused, result, roofcast

FIT = ("fit", "llama-3.1-8b", "--gpu", "h100-sxm")


@pytest.fixture(autouse=True)
def no_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Work in an empty folder of a machine without driver tools."""
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setenv("PATH", str(tmp_path / "here"))


def test_a_config_alone_and_its_folder(tmp_path: Path) -> None:
    """A folder and its config.json are the same model."""
    folder = folder_of(tmp_path / "tiny", TINY)
    [whole], [alone] = (result("kv", path)["models"] for path in (folder, f"{folder}/config.json"))

    assert whole["model"] == alone["model"] == "tiny"
    assert whole["parameters"] == alone["parameters"] == TINY_PARAMETERS


def test_a_folder_with_headers(tmp_path: Path) -> None:
    """A folder's safetensors headers give bytes and counts; without them the config does, and both say so."""
    held = folder_of(tmp_path / "held", TINY, model_safetensors=safetensors(decoder_tensors(TINY, "F32")).start)
    [row] = result("kv", held)["models"]

    assert row["weight_bytes"] == 4 * TINY_PARAMETERS
    assert row["parameters_in_files"] == TINY_PARAMETERS
    assert row["provenance"]["weight_bytes"] == "header"


def test_quantised_weights_without_headers(tmp_path: Path) -> None:
    """`fit` of a config alone whose quantisation is not understood cannot be told, and says which option would; with it there is an answer."""
    folder = folder_of(tmp_path / "m", TINY | {"quantization_config": {"quant_method": "hqq", "bits": 4}})
    fit = ("fit", folder, "--gpu", "h100-sxm")

    refused(roofcast(*fit), 3, "hqq", "known: fp8", "--weights")
    assert result(*fit, "--weights", "int4")["memory"]["weight_bytes"] == TINY_PARAMETERS / 2


def test_strict_refuses_what_is_assumed(tmp_path: Path) -> None:
    """A config without a dtype is answered with the assumption in every format, and refused with --strict."""
    folder = folder_of(tmp_path / "m", {k: v for k, v in TINY.items() if k != "torch_dtype"})

    [assumption] = answer("kv", folder)["assumptions"]
    assert "torch_dtype" in assumption
    assert assumption in roofcast("kv", folder).out
    assert "assumed" in roofcast("kv", folder, "--format", "markdown").out
    for command in (("kv", folder), ("model", folder), ("fit", folder, "--gpu", "h100-sxm")):
        refused(roofcast(*command, "--strict"), 3, "--strict", "torch_dtype")


def test_strict_passes_what_is_known() -> None:
    """Nothing assumed, nothing refused."""
    assert roofcast("kv", "llama-3.1-8b", "deepseek-v3", "--strict").code == 0
    assert roofcast(*FIT, "--strict").code == 0


@pytest.mark.parametrize(
    ("names", "code"),
    [
        (("llama-3.1-8b", "nosuch-model"), 3),
        (("nosuch-model", "llama-3.1-8b"), 3),
        (("BAD", "llama-3.1-8b"), 2),
        (("nosuch-model", "BAD", "llama-3.1-8b"), 2),
        (("BAD", "llama-3.1-8b", "nosuch-model"), 2),
    ],
)
def test_one_bad_model_among_several(names: tuple[str, ...], code: int, tmp_path: Path) -> None:
    """The good ones are printed, each bad one is a line, and the worst code is returned: 2 over 3 over 0."""
    bad = folder_of(tmp_path / "bad", b"[]")
    outcome = roofcast("kv", *(bad if name == "BAD" else name for name in names), "--format", "json")

    assert outcome.code == code
    assert [row["model"] for row in outcome.data["result"]["models"]] == ["llama-3.1-8b"]
    assert outcome.err.count("\n") == len(names) - 1


def test_only_bad_models() -> None:
    """Where none can be answered nothing is printed, whatever the format."""
    outcome = roofcast("kv", "nosuch-model", "nosuch-either", "--format", "csv")

    assert (outcome.code, outcome.out) == (3, "")
    assert outcome.err.count("\n") == 2


def test_the_worst_code_wins_over_strict(tmp_path: Path) -> None:
    """A malformed model beside an assumed one is 2 with --strict too."""
    bad = folder_of(tmp_path / "bad", b"[]")
    assumed = folder_of(tmp_path / "m", {k: v for k, v in TINY.items() if k != "torch_dtype"})

    assert roofcast("kv", bad, assumed, "--strict").code == 2


@pytest.mark.parametrize(
    ("name", "starts"),
    [("x.json", "{"), ("x.csv", "model,"), ("x.md", "| model"), ("x.txt", " "), ("X.JSON", "{"), ("x.markdown", "| ")],
)
def test_out_takes_its_format_from_the_ending(name: str, starts: str, tmp_path: Path) -> None:
    """`--out` writes the file in the format of its ending, says nothing, and prints nothing."""
    outcome = roofcast("kv", "llama-3.1-8b", "--out", str(tmp_path / name))

    assert outcome == Outcome(0, "", "")
    assert (tmp_path / name).read_text().startswith(starts)


def test_out_holds_what_stdout_would(tmp_path: Path) -> None:
    """The file is byte for byte what is printed without --out; --format wins over the ending."""
    for name in ("text", "json", "csv", "markdown"):
        roofcast("kv", "llama-3.1-8b", "--format", name, "--out", str(tmp_path / "x.dat"))
        assert (tmp_path / "x.dat").read_text() == roofcast("kv", "llama-3.1-8b", "--format", name).out


@pytest.mark.parametrize(
    "arguments",
    [
        ("kv", "nosuch-model"), ("kv", "llama-3.1-8b", "--context", "0"), ("model", "nosuch-model"),
        (*FIT, "--reserve", "110%"), (*FIT, "--tp", "3"), (*FIT, "--require", "x"), ("gpus", "nosuch"),
        ("kv", "llama-3.1-8b", "--weights", "nosuch"), ("fit", "nosuch-model", "--gpu", "h100-sxm"),
        ("fit", "llama-3.1-8b", "--gpu", "nosuch"), ("kv", "llama-3.1-8b", "--nosuch"),
    ],
)  # fmt: skip
def test_nothing_is_written_on_error(arguments: tuple[str, ...], tmp_path: Path) -> None:
    """An error leaves an existing file as it was, and makes none."""
    old, new = tmp_path / "old.json", tmp_path / "new.json"
    old.write_text("mine")
    before = sorted(tmp_path.rglob("*"))

    assert roofcast(*arguments, "--out", str(old)).code in {2, 3}
    assert roofcast(*arguments, "--out", str(new)).code in {2, 3}
    assert old.read_text() == "mine"
    assert sorted(tmp_path.rglob("*")) == before


def test_strict_writes_nothing(tmp_path: Path) -> None:
    """A refusal of --strict writes no file."""
    folder = folder_of(tmp_path / "m", {k: v for k, v in TINY.items() if k != "torch_dtype"})

    assert roofcast("kv", folder, "--strict", "--out", str(tmp_path / "x.json")).code == 3
    assert not (tmp_path / "x.json").exists()


@pytest.mark.skipif(os.geteuid() == 0, reason="root writes anywhere")
def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    """A folder without permission is one line."""
    (tmp_path / "here").chmod(0o500)

    refused(roofcast("kv", "llama-3.1-8b", "--out", str(tmp_path / "here" / "x.json")), 2, "x.json")


def test_a_disk_that_is_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A write that breaks off leaves the old file and no rest of a new one."""
    import errno
    import tempfile

    def full(*_: Any, **__: Any) -> Any:
        raise OSError(errno.ENOSPC, "No space left on device")

    (tmp_path / "x.json").write_text("mine")
    monkeypatch.setattr(tempfile, "mkstemp", full)

    refused(roofcast("kv", "llama-3.1-8b", "--out", str(tmp_path / "x.json")), 2, "No space left")
    assert (tmp_path / "x.json").read_text() == "mine"


def test_a_failed_gate_writes_its_answer(tmp_path: Path) -> None:
    """A gate that fails is an answer: the file is there, and the code is 1."""
    outcome = roofcast(*FIT, "--require", "sequences>=999@4k", "--out", str(tmp_path / "x.json"))

    assert outcome.code == 1
    assert json.loads((tmp_path / "x.json").read_text())["result"]["fits"] is True


def test_interrupted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C is 130 and at most one line, from the middle of several models too."""
    from roofcast.modelspec import source

    def pressed(*_: Any, **__: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(source, "resolve", pressed)

    for arguments in (("kv", "llama-3.1-8b", "llama-2-7b"), ("model", "llama-3.1-8b"), FIT):
        outcome = roofcast(*arguments)
        assert (outcome.code, outcome.out) == (130, "")
        assert outcome.err in {"", "roofcast: interrupted\n"}


def test_a_fault_of_our_own_is_one_line_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """An error that nobody foresaw is one line that names it and --debug, and no answer: 3."""
    from roofcast.modelspec import source

    def broken(*_: Any, **__: Any) -> Any:
        raise KeyError("a\nb")

    monkeypatch.setattr(source, "resolve", broken)
    outcome = roofcast("kv", "llama-3.1-8b")

    assert outcome.code == 3
    assert "KeyError" in outcome.complaint
    assert "--debug" in outcome.complaint


@pytest.mark.parametrize(
    "arguments", [("kv", "nosuch-model"), ("kv", "llama-3.1-8b", "--context", "0"), (*FIT, "--tp", "3")]
)
def test_debug_shows_the_traceback(arguments: tuple[str, ...]) -> None:
    """With --debug the traceback is shown above the same line, and the exit code stays."""
    plain, shown = roofcast(*arguments), roofcast(*arguments, "--debug")

    assert shown.code == plain.code
    assert "Traceback" in shown.err
    assert shown.err.endswith(plain.err)


def test_help() -> None:
    """Without a command, and with --help, the commands are listed on stdout."""
    bare, asked = roofcast(), roofcast("--help")

    assert bare.code == asked.code == 0
    for command in ("kv", "model", "gpus", "fit", "schema"):
        assert re.search(rf"^ +{command}\b", bare.out, re.MULTILINE)
        assert re.search(rf"^ +{command}\b", asked.out, re.MULTILINE)


@pytest.mark.parametrize("command", ["kv", "model", "gpus", "fit", "schema"])
def test_help_of_every_command(command: str) -> None:
    """Every command has its own help, in which every option has a sentence."""
    outcome = roofcast(command, "--help")

    assert (outcome.code, outcome.err) == (0, "")
    assert "Usage:" in outcome.out
    assert "--debug" in outcome.out


@pytest.mark.parametrize("command", ["kv", "model", "fit"])
def test_options_have_one_name_everywhere(command: str) -> None:
    """Every command on a model has the common options."""
    out = roofcast(command, "--help").out
    common = ("--context", "--weights", "--kv", "--format", "--out", "--strict", "--offline", "--revision", "--explain")

    assert [option for option in (*common, "--mtp", "--encoder-tokens") if option not in out] == []


def test_version() -> None:
    """--version is the installed one."""
    from importlib.metadata import version

    assert roofcast("--version").out == f"roofcast {version('roofcast')}\n"


def test_the_same_question_has_the_same_answer() -> None:
    """Two runs print the same bytes."""
    assert roofcast(*FIT, "--format", "json") == roofcast(*FIT, "--format", "json")


@pytest.mark.parametrize("name", ["meta-llama/Llama-3.1-8B", "meta-llama/llama-3.1-8b-instruct", "LLAMA-3.1-8B"])
def test_names_of_one_model(name: str) -> None:
    """Repo ids that the catalogue knows answer offline, in any case, as the same model."""
    [row] = result("kv", name, "--offline")["models"]

    assert row["parameters"] == 8_030_261_248


def test_a_path_wins_over_a_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder called like a model of the catalogue is the folder."""
    folder_of(tmp_path / "llama-3.1-8b", LLAMA_3_1_8B | {"num_hidden_layers": 16})
    monkeypatch.chdir(tmp_path)

    assert result("kv", "llama-3.1-8b")["models"][0]["layers"] == 16


@pytest.mark.parametrize("command", [("kv",), ("model",), ("fit", "--gpu", "h100-sxm")], ids=lambda c: c[0])
def test_out_never_replaces_what_is_read(command: tuple[str, ...], tmp_path: Path) -> None:
    """The config that is asked about stays as it is, named as a file or in its folder."""
    folder = Path(folder_of(tmp_path / "m", TINY))
    config = folder / "config.json"
    before = config.read_bytes()

    for model in (str(folder), str(config)):
        refused(roofcast(command[0], model, *command[1:], "--out", str(config)), 2, "--out", "config.json")
    assert config.read_bytes() == before


def test_out_through_a_link_and_with_its_mode(tmp_path: Path) -> None:
    """A link keeps pointing at its file, which gets the answer and keeps its mode; a protected file is refused."""
    target, link = tmp_path / "target.json", tmp_path / "link.json"
    target.write_text("old")
    target.chmod(0o640)
    link.symlink_to(target)
    assert roofcast("kv", "llama-3.1-8b", "--out", str(link)).code == 0

    assert link.is_symlink()
    assert json.loads(target.read_text())["schema"] == "roofcast.kv/1"
    assert target.stat().st_mode & 0o777 == 0o640

    target.chmod(0o400)
    refused(roofcast("kv", "llama-3.1-8b", "--out", str(target)), 2, "write-protected")


def test_out_is_a_regular_file(tmp_path: Path) -> None:
    """A pipe is not replaced by a file, and a name too long for a file is said in one line."""
    pipe = tmp_path / "pipe.json"
    os.mkfifo(pipe)

    refused(roofcast("kv", "llama-3.1-8b", "--out", str(pipe)), 2, "no regular file")
    assert pipe.is_fifo()
    refused(roofcast("kv", "llama-3.1-8b", "--out", f"{'x' * 300}.json"), 2, "--out")


def test_csv_says_on_stderr_what_was_assumed(tmp_path: Path) -> None:
    """CSV has no place for assumptions, so they stand on stderr; JSON has one, and stderr stays empty."""
    folder = folder_of(tmp_path / "m", {k: v for k, v in TINY.items() if k != "torch_dtype"})

    assert "assumed:" in roofcast("kv", folder, "--format", "csv").err
    assert roofcast("kv", folder, "--format", "json").err == ""


def test_a_rule_that_cannot_be_told_is_no_failure() -> None:
    """A cache of windows alone does not grow with tokens: a rule on its tokens is undetermined, exit 3."""
    outcome = roofcast("fit", "mistral-7b-v0.1", "--gpu", "h100-sxm", "--require", "kv_tokens>=1", "--format", "json")

    assert outcome.code == 3
    assert outcome.data["result"]["requirements"] == [
        {"rule": "kv_tokens>=1", "passed": None, "actual": None, "required": 1}
    ]
