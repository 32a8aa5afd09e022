"""The command line: exit codes, one line for every error, and nothing written where there is no answer."""

from __future__ import annotations

import csv
import io
import json
import os
import pty
import re
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from tests.checkpoints import LLAMA_3_1_8B, TINY, TINY_PARAMETERS, decoder_tensors, folder_of
from tests.hub_server import framed, safetensors
from tests.running import Outcome, answer, result, roofcast

if TYPE_CHECKING:
    from pathlib import Path

FIT = ("fit", "llama-3.1-8b", "--gpu", "h100-sxm")
# what was typed -> exit code, words that the one line on stderr must hold
BAD_USAGE: list[tuple[tuple[str, ...], int, tuple[str, ...]]] = [
    (("kv",), 2, ("MODEL", "llama-3.1-8b")),
    (("model",), 2, ("MODEL",)),
    (("fit",), 2, ("MODEL",)),
    (("fit", "--gpu", "h100-sxm"), 2, ("MODEL",)),
    (("schema",), 2, ("COMMAND",)),
    (("schema", "nosuch"), 2, ("nosuch", "kv", "fit")),
    (("nosuch",), 2, ("nosuch",)),
    (("kvv", "llama-3.1-8b"), 2, ("kvv",)),
    (("kv", "llama-3.1-8b", "--nosuch"), 2, ("--nosuch",)),
    (("kv", "llama-3.1-8b", "--context"), 2, ("--context",)),
    (("model", "llama-3.1-8b", "llama-2-7b"), 2, ("llama-2-7b",)),
    (("kv", ""), 2, ("MODEL",)),
    (("kv", "llama-3.1-8b", "--context", "0"), 2, ("'0'", "4k")),
    (("kv", "llama-3.1-8b", "--context", "-1"), 2, ("-1", "4k")),
    (("kv", "llama-3.1-8b", "--context", "4k,,"), 2, ("token count", "4k")),
    (("kv", "llama-3.1-8b", "--context", ""), 2, ("token count", "4k")),
    (("kv", "llama-3.1-8b", "--context", "4k;8k"), 2, ("4k;8k",)),
    (("kv", "llama-3.1-8b", "--context", "many"), 2, ("many", "4k")),
    (("kv", "llama-3.1-8b", "--context", "0.3"), 2, ("0.3", "whole")),
    (("kv", "llama-3.1-8b", "--context", "4KiB"), 2, ("4KiB",)),
    (("kv", "llama-3.1-8b", "--context", "1e5"), 2, ("1e5",)),
    (("kv", "llama-3.1-8b", "--context", "nan"), 2, ("nan",)),
    (("kv", "llama-3.1-8b", "--context", "9999999999999999999"), 2, ("9999999999999999999",)),
    (("kv", "llama-3.1-8b", "--weights", "nosuch"), 2, ("nosuch", "bf16")),
    (("kv", "llama-3.1-8b", "--weights", "bf61"), 2, ("bf61", "bf16")),
    (("kv", "llama-3.1-8b", "--weights", ""), 2, ("bf16",)),
    (("kv", "llama-3.1-8b", "--kv", "nosuch"), 2, ("nosuch", "fp8")),
    (("kv", "llama-3.1-8b", "--kv", ""), 2, ("fp8",)),
    (("kv", "llama-3.1-8b", "--format", "nosuch"), 2, ("nosuch", "markdown")),
    (("kv", "llama-3.1-8b", "--out", "/no/such/folder/x.json"), 2, ("/no/such/folder/x.json", "folder")),
    (("kv", "llama-3.1-8b", "--out", "x.xyz"), 2, (".xyz", ".json")),
    (("kv", "llama-3.1-8b", "--out", "x"), 2, ("x", ".json")),
    (("kv", "llama-3.1-8b", "--out", ""), 2, (".json",)),
    (("kv", "llama-3.1-8b", "--out", "."), 2, ("--out",)),
    (("kv", "llama-3.1-8b", "--explain", "nosuch"), 2, ("nosuch", "cache_bytes")),
    (("gpus", "nosuch"), 2, ("nosuch", "roofcast gpus")),
    (("gpus", ""), 2, ("roofcast gpus",)),
    (("fit", "llama-3.1-8b", "--gpu", "h1000"), 2, ("h1000", "h100")),
    (("fit", "llama-3.1-8b", "--gpu", ""), 2, ("roofcast gpus",)),
    (("fit", "llama-3.1-8b", "--gpu"), 2, ("--gpu",)),
    ((*FIT, "--reserve", "110%"), 2, ("110%", "10%")),
    ((*FIT, "--reserve", "100%"), 2, ("100%", "10%")),
    ((*FIT, "--reserve", "1"), 2, ("'1'", "10%")),
    ((*FIT, "--reserve", "-5%"), 2, ("-5%", "10%")),
    ((*FIT, "--reserve", "8 GB"), 2, ("8 GB", "10%")),
    ((*FIT, "--reserve", "nan"), 2, ("nan", "10%")),
    ((*FIT, "--reserve", ""), 2, ("10%",)),
    ((*FIT, "--engine", "vllm"), 2, ("vllm", "none")),
    ((*FIT, "--engine", "nosuch"), 2, ("nosuch", "none")),
    ((*FIT, "--gpus", "0"), 2, ("--gpus", "1")),
    ((*FIT, "--gpus", "-1"), 2, ("--gpus",)),
    ((*FIT, "--gpus", "two"), 2, ("--gpus",)),
    ((*FIT, "--gpus", "1.5"), 2, ("--gpus",)),
    ((*FIT, "--tp", "0"), 2, ("--tp",)),
    ((*FIT, "--tp", "3"), 2, ("3", "32", "1, 2, 4, 8, 16, 32")),
    ((*FIT, "--gpus", "5"), 2, ("5", "32")),
    ((*FIT, "--tp", "64"), 2, ("64", "32")),
    ((*FIT, "--gpus", "2", "--tp", "4"), 2, ("2", "4", "differ")),
    ((*FIT, "--tp", "99999999999999999999"), 2, ("99999999999999999999",)),
    ((*FIT, "--require", "nonsense"), 2, ("nonsense", "sequences>=100@4k")),
    (("kv", "nosuch-model"), 3, ("nosuch-model", "org/name")),
    (("kv", "llama-3.1-9b"), 3, ("llama-3.1-9b", "llama-3.1-8b")),
    (("fit", "nosuch-model", "--gpu", "h100-sxm"), 3, ("nosuch-model",)),
    (("kv", "./nosuch"), 3, ("./nosuch", "no such file")),
    (("kv", "nosuch/config.json"), 3, ("nosuch/config.json",)),
    (("kv", "org/nosuch", "--offline"), 3, ("org/nosuch", "offline")),
    (("kv", "org/nosuch"), 3, ("org/nosuch", "refused")),
    (("kv", "or g/name"), 2, ("or g/name",)),
    (("kv", "org/name", "--revision", "no such"), 2, ("no such",)),
    (("fit", "qwen3-32b-fp8", "--gpu", "h100-sxm"), 3, ("fp8", "headers", "--weights")),
]

KNOWN_TENSORS = decoder_tensors(TINY)


def config(**changes: object) -> bytes:
    """Return TINY's config.json with some keys changed; None takes a key away."""
    return json.dumps({k: v for k, v in (TINY | changes).items() if v is not None}).encode()


# content of a folder -> exit code, words
BAD_FOLDERS: dict[str, tuple[dict[str, bytes], int, tuple[str, ...]]] = {
    "empty": ({}, 3, ("config.json",)),
    "weights only": ({"model.safetensors": b"x"}, 3, ("config.json",)),
    "no JSON": ({"config.json": b"{'a': 1}"}, 2, ("config.json", "JSON")),
    "nothing in it": ({"config.json": b""}, 2, ("config.json",)),
    "a list": ({"config.json": b"[1]"}, 2, ("config.json", "object")),
    "null": ({"config.json": b"null"}, 2, ("config.json", "object")),
    "binary": ({"config.json": b"\xff\xfe\x00{"}, 2, ("config.json",)),
    "NaN": ({"config.json": config()[:-1] + b', "hidden_size": NaN}'}, 2, ("config.json",)),
    "deep": ({"config.json": b'{"a":' * 100_000}, 2, ("config.json",)),
    "no layers": ({"config.json": config(num_hidden_layers=None)}, 2, ("num_hidden_layers", "missing")),
    "no heads": ({"config.json": config(num_attention_heads=None)}, 2, ("num_attention_heads", "missing")),
    "no hidden": ({"config.json": config(hidden_size=None)}, 2, ("hidden_size", "missing")),
    "no vocabulary": ({"config.json": config(vocab_size=None)}, 2, ("vocab_size", "missing")),
    "empty object": ({"config.json": b"{}"}, 3, ("model_type",)),
    "zero layers": ({"config.json": config(num_hidden_layers=0)}, 2, ("num_hidden_layers", "0")),
    "zero heads": ({"config.json": config(num_attention_heads=0)}, 2, ("num_attention_heads", "0")),
    "negative": ({"config.json": config(hidden_size=-64)}, 2, ("hidden_size", "-64")),
    "huge": ({"config.json": config(num_hidden_layers=10**18)}, 2, ("num_hidden_layers", "10000")),
    "a long number": ({"config.json": config()[:-1] + b', "n_ctx": ' + b"9" * 5000 + b"}"}, 2, ("config.json",)),
    "a fraction": ({"config.json": config(hidden_size=64.5)}, 2, ("hidden_size", "64.5")),
    "a word": ({"config.json": config(hidden_size="64")}, 2, ("hidden_size", "64")),
    "true": ({"config.json": config(hidden_size=True)}, 2, ("hidden_size", "True")),
    "heads do not divide": ({"config.json": config(num_key_value_heads=3)}, 2, ("num_key_value_heads", "3", "4")),
    "width does not divide": ({"config.json": config(num_attention_heads=5)}, 2, ("5", "64")),
    "unknown dtype": ({"config.json": config(torch_dtype="float7")}, 2, ("float7", "bfloat16")),
    "unknown class": ({"config.json": config(model_type="fortune")}, 3, ("fortune",)),
    "unknown kind": ({"config.json": config(mamba_d_state=16)}, 3, ("mamba_d_state",)),
    "weights cut short": (
        {"config.json": config(), "model.safetensors": safetensors(KNOWN_TENSORS).start[:100]}, 2,
        ("model.safetensors", "cut short"),
    ),
    "header of 100 GB": (
        {"config.json": config(), "model.safetensors": (10**11).to_bytes(8, "little") + b"{}"}, 2,
        ("model.safetensors", "100,000,000,000"),
    ),
    "header is no JSON": (
        {"config.json": config(), "model.safetensors": framed(b"not JSON")}, 2, ("model.safetensors", "header"),
    ),
    "header is a list": (
        {"config.json": config(), "model.safetensors": framed(b"[]")}, 2, ("model.safetensors", "header"),
    ),
    "header of another shape": (
        {"config.json": config(), "model.safetensors": framed(b'{"w": 1}')}, 2, ("model.safetensors", "object"),
    ),
    "header without offsets": (
        {"config.json": config(), "model.safetensors": framed(b'{"w": {"dtype": "F32", "shape": [1]}}')}, 2,
        ("model.safetensors", "data_offsets"),
    ),
    "missing shard": (
        {"config.json": config(), "model.safetensors.index.json": b'{"weight_map": {"w": "a.safetensors"}}'}, 3,
        ("a.safetensors", "missing"),
    ),
    "index of another shape": (
        {"config.json": config(), "model.safetensors.index.json": b'{"weight_map": []}'}, 2, ("index", "weight_map"),
    ),
    "a shard outside": (
        {"config.json": config(), "model.safetensors.index.json": b'{"weight_map": {"w": "../a.safetensors"}}'}, 2,
        ("index", "../a.safetensors"),
    ),
}  # fmt: skip


@pytest.fixture(autouse=True)
def no_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Work in an empty folder of a machine without driver tools."""
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setenv("PATH", str(tmp_path / "here"))


def refused(outcome: Outcome, code: int, words: tuple[str, ...]) -> None:
    """Hold an error against its contract: the code, one printable line that holds the words, an empty stdout."""
    assert outcome.code == code, outcome
    assert outcome.out == ""
    assert outcome.complaint.isprintable()
    assert "Traceback" not in outcome.err
    assert "internal error" not in outcome.err
    assert [word for word in words if word not in outcome.complaint] == [], outcome.complaint


@pytest.mark.parametrize(("arguments", "code", "words"), BAD_USAGE, ids=lambda v: " ".join(v) if isinstance(v, tuple) else v)
def test_bad_input(arguments: tuple[str, ...], code: int, words: tuple[str, ...]) -> None:
    """Whatever is wrong with what was typed is one line with what would be right, and the right code."""
    refused(roofcast(*arguments), code, words)


@pytest.mark.parametrize("what", BAD_FOLDERS)
@pytest.mark.parametrize("command", [("kv",), ("fit", "--gpu", "h100-sxm")], ids=["kv", "fit"])
def test_bad_folders(what: str, command: tuple[str, ...], tmp_path: Path) -> None:
    """Whatever is wrong with a model's folder is one line that names the file, and the right code."""
    files, code, words = BAD_FOLDERS[what]
    folder = tmp_path / "model"
    folder.mkdir()
    for name, data in files.items():
        (folder / name).write_bytes(data)

    refused(roofcast(command[0], str(folder), *command[1:]), code, words)


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


def test_strict_refuses_what_is_assumed(tmp_path: Path) -> None:
    """A config without a dtype is answered with the assumption in every format, and refused with --strict."""
    folder = folder_of(tmp_path / "m", {k: v for k, v in TINY.items() if k != "torch_dtype"})

    [assumption] = answer("kv", folder)["assumptions"]
    assert "torch_dtype" in assumption
    assert assumption in roofcast("kv", folder).out
    assert "assumed" in roofcast("kv", folder, "--format", "markdown").out
    for command in (("kv", folder), ("model", folder), ("fit", folder, "--gpu", "h100-sxm")):
        refused(roofcast(*command, "--strict"), 3, ("--strict", "torch_dtype"))


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
        ("kv", "llama-3.1-8b", "--weights", "nosuch"), ("fit", "qwen3-32b-fp8", "--gpu", "h100-sxm"),
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

    refused(roofcast("kv", "llama-3.1-8b", "--out", str(tmp_path / "here" / "x.json")), 2, ("x.json",))


def test_a_disk_that_is_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A write that breaks off leaves the old file and no rest of a new one."""
    import errno
    import tempfile

    def full(*_: Any, **__: Any) -> Any:
        raise OSError(errno.ENOSPC, "No space left on device")

    (tmp_path / "x.json").write_text("mine")
    monkeypatch.setattr(tempfile, "mkstemp", full)

    refused(roofcast("kv", "llama-3.1-8b", "--out", str(tmp_path / "x.json")), 2, ("No space left",))
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
    """With --debug the error itself comes through."""
    with pytest.raises((ValueError, LookupError)):
        roofcast(*arguments, "--debug")


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

    assert [option for option in common if option not in out] == []


def test_version() -> None:
    """--version is the installed one."""
    from importlib.metadata import version

    assert roofcast("--version").out == f"roofcast {version('roofcast')}\n"


NASTY = "a|b [red]x[/red] \x1b[31m\u202e*y*"


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
        assert "a|b [red]x[/red] ?[31m?*y*" in outcome.out
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

    refused(roofcast("kv", folder), 3, ("evil",))


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
        [sys.executable, "-P", "-m", "roofcast", *arguments], capture_output=True, check=False, text=True, timeout=60, env=env
    )


def test_headings_are_bold_on_a_terminal(home: Path) -> None:
    """A terminal gets bold headings and else what a pipe gets; a pipe gets no escape code."""
    shown = on_terminal("kv", "llama-3.1-8b", env=environment(home))
    piped = process("kv", "llama-3.1-8b", env=environment(home))

    assert "\x1b[1m" in shown
    assert "\x1b" not in piped.stdout
    assert re.sub(r"\x1b\[[0-9;]*m", "", shown) == piped.stdout


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
