"""The real huggingface_hub client pointed at a Hub of our own: fixtures and files for the tests that need them."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Final

import pytest

from tests.hub_server import LocalHub, Sparse, index, safetensors

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from roofcast.modelspec.source import Checkpoint

REPO: Final = "acme/tiny-7b"
CONFIG: Final = b'{"model_type": "llama", "hidden_size": 8}'
SINGLE: Final[Mapping[str, bytes | Sparse]] = {
    "config.json": CONFIG,
    "model.safetensors": safetensors({"embed.weight": ("BF16", [4, 8]), "norm.weight": ("F32", [8])}),
}
SHARDED: Final[Mapping[str, bytes | Sparse]] = {
    "config.json": CONFIG,
    "model-1.safetensors": safetensors({"embed.weight": ("BF16", [4, 8])}),
    "model-2.safetensors": safetensors({"norm.weight": ("F32", [8])}),
    "model.safetensors.index.json": index(
        {"embed.weight": "model-1.safetensors", "norm.weight": "model-2.safetensors"}
    ),
}
SUMMARY: Final = {"BF16": 32, "F32": 8}  # elements of either
BYTES: Final = 96


@pytest.fixture(name="server", scope="module")
def server_fixture() -> Iterator[LocalHub]:
    """Start one Hub for all tests."""
    with LocalHub() as running:
        yield running


@pytest.fixture(name="hub")
def hub_fixture(server: LocalHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LocalHub]:
    """Point the real client at an empty Hub, with an empty cache, half a second of patience and no pauses."""
    from huggingface_hub import close_session, constants

    server.clear()
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    point_at(server.url, monkeypatch)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "HF_HUB_ETAG_TIMEOUT", 0.5)
    monkeypatch.setattr(constants, "HF_HUB_DOWNLOAD_TIMEOUT", 0.5)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1,localhost")
    monkeypatch.delenv("HF_TOKEN", raising=False)
    monkeypatch.setattr(time, "sleep", lambda _: None)
    yield server
    for thread in threading.enumerate():  # a reader whose result no one waits for any more still holds a connection
        if thread.name.startswith("roofcast-"):
            thread.join(10)
    close_session()


def point_at(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the client take this address for the Hub's."""
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "ENDPOINT", url)
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", url + "/{repo_id}/resolve/{revision}/{filename}")


def written(tmp_path: Path) -> list[str]:
    """Return every file in the client's cache and in the folder the test runs in."""
    return sorted(p.relative_to(tmp_path).as_posix() for p in tmp_path.rglob("*") if not p.is_dir())


def held(checkpoint: Checkpoint) -> dict[str, int]:
    """Return the elements by dtype that a checkpoint's files hold."""
    assert checkpoint.weights is not None
    return dict(checkpoint.weights.elements)


class Bar:
    """A progress bar that remembers."""

    def __init__(self) -> None:
        self.total = 0
        self.done = 0

    def start(self, total: int) -> None:
        """Remember how many there are."""
        self.total = total

    def advance(self) -> None:
        """Count one."""
        self.done += 1
