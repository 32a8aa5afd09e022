"""Where models come from on this machine: paths, names of the catalogue, and names that lead nowhere."""

from __future__ import annotations

import errno
import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from roofcast.modelspec import source
from roofcast.modelspec.errors import MalformedModelError, ModelError, UndeterminedModelError
from roofcast.modelspec.source import Checkpoint, resolve
from roofcast.modelspec.spec import build_spec
from roofcast.modelspec.stored import parameter_elements
from tests.hub_client import CONFIG, REPO, SHARDED, SINGLE, SUMMARY, Bar, held
from tests.hub_server import Sparse
from tests.model_configs import LLAMA

if TYPE_CHECKING:
    from collections.abc import Mapping


@pytest.mark.parametrize("model", ["llama-3.1-8b", "meta-llama/Llama-3.1-8B"])
def test_the_catalogue_answers_without_the_client(model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A name of the catalogue and a repo id that it knows need no huggingface_hub at all."""
    monkeypatch.setattr(source, "_client", None)

    found = resolve(model)

    assert (found.name, found.source) == ("llama-3.1-8b", "catalogue llama-3.1-8b")
    assert found.config["hidden_size"] == 4096


def test_the_catalogue_knows_what_the_files_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    """DeepSeek-V3's files hold 684.5B parameters and the scales of their FP8 blocks."""
    monkeypatch.setattr(source, "_client", None)

    found = resolve("deepseek-v3")

    assert found.weights is not None
    assert (found.weights.origin, found.weights_problem) == ("catalogue", None)
    assert parameter_elements(found.weights, scales=found.scales) == 680_571_043_840 + 3_918_786_560


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Run in an empty folder, where the Hub's client cannot even be imported."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(source, "_client", None)
    return tmp_path


def folder(path: Path, files: Mapping[str, bytes | Sparse]) -> Path:
    """Write files into a folder."""
    path.mkdir(parents=True, exist_ok=True)
    for name, data in files.items():
        (path / name).write_bytes(data.span(0, data.size) if isinstance(data, Sparse) else data)
    return path


@pytest.mark.parametrize("files", [SINGLE, SHARDED], ids=["one file", "two shards"])
def test_a_folder_is_read_with_its_headers(here: Path, files: Mapping[str, bytes | Sparse]) -> None:
    """A checkpoint on disk answers like the repo it came from."""
    folder(here / "tiny", files)
    bar = Bar()

    found = resolve("tiny", progress=bar)

    assert (found.name, found.source, found.weights_problem) == ("tiny", "folder tiny", None)
    assert held(found) == SUMMARY
    assert bar.done == bar.total == sum(name.endswith(".safetensors") for name in files)


def test_the_folder_one_stands_in_has_a_name(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`.` is shown by the name of the folder."""
    monkeypatch.chdir(folder(here / "tiny", SINGLE))

    assert resolve(".").name == "tiny"


@pytest.mark.parametrize(("path", "name"), [("tiny/config.json", "tiny"), ("tiny/llama-8b.json", "llama-8b")])
def test_a_config_alone_has_no_weights(here: Path, path: str, name: str) -> None:
    """A .json file is a config, even beside weight files, and is no problem."""
    folder(here / "tiny", {**SINGLE, "llama-8b.json": CONFIG})

    found = resolve(path)

    assert found == Checkpoint(name, json.loads(CONFIG), None, None, f"file {path}")


def test_an_existing_path_wins_over_catalogue_and_hub(here: Path) -> None:
    """A folder named like a model is that folder."""
    folder(here / "llama-3.1-8b", SINGLE)
    folder(here / "meta-llama" / "Llama-3.1-8B", SINGLE)

    assert resolve("llama-3.1-8b").source == "folder llama-3.1-8b"
    assert resolve("meta-llama/Llama-3.1-8B").source == "folder meta-llama/Llama-3.1-8B"


def _link(here: Path) -> None:
    folder(here / "x", {})
    (here / "x" / "config.json").symlink_to("nowhere")


@pytest.mark.parametrize(
    ("set_up", "model", "kind", "says"),
    [
        pytest.param(None, "x.json", UndeterminedModelError, "'x.json': no such file or folder", id="no file"),
        pytest.param(None, "./x", UndeterminedModelError, "'./x': no such file or folder", id="no folder"),
        pytest.param(None, "/x/y/z", UndeterminedModelError, "no such file or folder", id="absolute"),
        pytest.param(None, "~/no-such-folder", UndeterminedModelError, "no such file or folder", id="home"),
        pytest.param(None, "~nosuchuser/x", UndeterminedModelError, "cannot be looked at", id="no such home"),
        pytest.param(None, "a/b/c", UndeterminedModelError, "no such file or folder", id="two slashes"),
        pytest.param(None, "a" * 5000 + "/b", UndeterminedModelError, "cannot be looked at", id="name too long"),
        pytest.param({}, "x", UndeterminedModelError, "no config.json in folder x", id="empty folder"),
        pytest.param(_link, "x", UndeterminedModelError, "x/config.json: a link to nothing", id="broken link"),
        pytest.param({"config.json": b"[]"}, "x", MalformedModelError, "x/config.json: holds a list", id="a list"),
        pytest.param({"config.json": b""}, "x/config.json", MalformedModelError, "it is empty", id="empty file"),
        pytest.param({"m.gguf": b"GGUF"}, "x/m.gguf", MalformedModelError, "x/m.gguf: cut short: 4", id="GGUF file"),
        pytest.param({"m.gguf": b"GGUF"}, "x", MalformedModelError, "x: m.gguf: cut short: 4", id="GGUF folder"),
        pytest.param(
            {"sha256-0a": b"GGUF"},
            "x/sha256-0a",
            MalformedModelError,
            "x/sha256-0a: cut short: 4",
            id="GGUF by content",
        ),
        pytest.param({"a.gguf": b"", "b.gguf": b""}, "x", UndeterminedModelError, "one of a.gguf, b.gguf", id="GGUFs"),
        pytest.param(None, "m.gguf", UndeterminedModelError, "org/name/FILE.gguf or org/name:TAG", id="no GGUF file"),
        pytest.param(None, "x/m.gguf", UndeterminedModelError, "org/name/FILE.gguf", id="no GGUF file in a folder"),
        pytest.param(None, "./a/b/c.gguf", UndeterminedModelError, "no such file or folder", id="no GGUF path"),
        pytest.param(None, "a/b/../c.gguf", UndeterminedModelError, "no such file or folder", id="no GGUF in a repo"),
        pytest.param(None, "a/b:", MalformedModelError, "is no tag of a GGUF file", id="no tag"),
        pytest.param(None, "a/b:Q4/K", UndeterminedModelError, "no such file or folder", id="a tag with a slash"),
        pytest.param(None, "a b/c:Q4_K_M", MalformedModelError, "'a b/c' is no repo of the Hub", id="tag of no repo"),
        pytest.param(None, "llama-3.1-8b:Q4_K_M", UndeterminedModelError, "--weights", id="tag of a catalogue name"),
        pytest.param({"m.txt": b""}, "x/m.txt", MalformedModelError, "no folder, .json or .gguf", id="other file"),
        pytest.param(None, "", MalformedModelError, "MODEL is empty", id="empty"),
        pytest.param(None, " ", MalformedModelError, "MODEL is empty", id="blank"),
        pytest.param(None, "a\nb", MalformedModelError, "cannot be printed", id="line break"),
        pytest.param(None, "https://hf.co/a/b", MalformedModelError, "is no repo of the Hub", id="URL"),
        pytest.param(None, "a b/c", MalformedModelError, "is no repo of the Hub", id="blank in a repo id"),
        pytest.param(None, "a/b--c", MalformedModelError, "is no repo of the Hub", id="two dashes"),
        pytest.param(None, "llama-3.1-8", UndeterminedModelError, "nearest: llama-3.1-8b", id="nearly a name"),
        pytest.param(None, "zzzz", UndeterminedModelError, "no model 'zzzz' in the catalogue", id="no name"),
    ],
)
def test_names_that_lead_nowhere_are_told_without_the_network(
    here: Path, set_up: Any, model: str, kind: type[ModelError], says: str
) -> None:
    """What is no model is refused in one line, with the client out of reach."""
    if callable(set_up):
        set_up(here)
    elif set_up is not None:
        folder(here / "x", set_up)

    with pytest.raises(kind) as caught:
        resolve(model)

    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_config_that_is_a_folder_is_told(here: Path) -> None:
    """config.json must be a file."""
    (here / "x" / "config.json").mkdir(parents=True)

    with pytest.raises(UndeterminedModelError, match=r"x/config\.json: a folder, not a file"):
        resolve("x")


@pytest.mark.parametrize("name", ["config.json", "model.safetensors"])
def test_a_file_that_may_not_be_read_is_told(here: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """A file without read permission is undetermined, and named."""
    folder(here / "x", SINGLE)
    really = Path.open

    def refuse(path: Path, *args: Any, **kwargs: Any) -> Any:
        if path.name == name:
            raise PermissionError(errno.EACCES, "Permission denied")
        return really(path, *args, **kwargs)

    monkeypatch.setattr(Path, "open", refuse)

    with pytest.raises(UndeterminedModelError, match=rf"x.*{name}: cannot be read \(Permission denied\)"):
        resolve("x")


def test_a_revision_belongs_to_the_hub(here: Path) -> None:
    """--revision of a path is bad usage, and so is one that no repo can have."""
    folder(here / "x", SINGLE)

    with pytest.raises(MalformedModelError, match="--revision main is for repos of the Hub, but x is a path"):
        resolve("x", revision="main")
    with pytest.raises(MalformedModelError, match=r"'\.\./\.\.' is no branch"):
        resolve(REPO, revision="../..")


def test_the_client_is_imported_only_for_the_hub() -> None:
    """Reading a catalogue name in a fresh interpreter leaves huggingface_hub out."""
    code = (
        "import sys; from roofcast.modelspec.source import resolve; resolve('llama-3.1-8b');"
        "print(sorted({'huggingface_hub', 'httpx', 'httpx2', 'logging', 'concurrent.futures'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout == "[]\n"


def test_quantisation_may_be_stated_beside_the_config(tmp_path: Path) -> None:
    """modelopt writes hf_quant_config.json: the weights are not taken as plain then, whatever the dtype."""
    (tmp_path / "config.json").write_text(json.dumps({**LLAMA, "torch_dtype": "bfloat16"}))
    plain = resolve(str(tmp_path)).config
    (tmp_path / "hf_quant_config.json").write_text(json.dumps({"quantization": {"quant_algo": "FP8"}}))
    stated = resolve(str(tmp_path)).config

    assert build_spec(plain).quantization is None
    assert build_spec(stated).quantization == "FP8"


@pytest.mark.parametrize("text", ["", "[1]", "{"])
def test_a_broken_file_beside_the_config_is_named(tmp_path: Path, text: str) -> None:
    """It is not passed over: the weights' format is in it."""
    (tmp_path / "config.json").write_text(json.dumps(LLAMA))
    (tmp_path / "hf_quant_config.json").write_text(text)
    with pytest.raises(MalformedModelError, match=r"hf_quant_config\.json"):
        resolve(str(tmp_path))
