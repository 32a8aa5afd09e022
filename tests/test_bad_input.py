"""Whatever is wrong with what was typed or with a model's files is one line and the right exit code."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.checkpoints import TINY, decoder_tensors
from tests.hub_server import framed, safetensors
from tests.running import refused, roofcast

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
    ((*FIT, "--reserve", "1"), 2, ("--reserve 1 ", "10%")),
    ((*FIT, "--reserve", "-5%"), 2, ("-5%", "10%")),
    ((*FIT, "--reserve", "8 GB"), 2, ("8 GB", "10%")),
    ((*FIT, "--reserve", "nan"), 2, ("nan", "10%")),
    ((*FIT, "--reserve", ""), 2, ("10%",)),
    ((*FIT, "--engine", "transformers"), 2, ("transformers", "none", "vllm")),
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


@pytest.mark.parametrize(
    ("arguments", "code", "words"), BAD_USAGE, ids=lambda v: " ".join(v) if isinstance(v, tuple) else v
)
def test_bad_input(arguments: tuple[str, ...], code: int, words: tuple[str, ...]) -> None:
    """Whatever is wrong with what was typed is one line with what would be right, and the right code."""
    refused(roofcast(*arguments), code, *words)


@pytest.mark.parametrize("what", BAD_FOLDERS)
@pytest.mark.parametrize("command", [("kv",), ("fit", "--gpu", "h100-sxm")], ids=["kv", "fit"])
def test_bad_folders(what: str, command: tuple[str, ...], tmp_path: Path) -> None:
    """Whatever is wrong with a model's folder is one line that names the file, and the right code."""
    files, code, words = BAD_FOLDERS[what]
    folder = tmp_path / "model"
    folder.mkdir()
    for name, data in files.items():
        (folder / name).write_bytes(data)

    refused(roofcast(command[0], str(folder), *command[1:]), code, *words)
