"""The embedded catalogue: hyperparameters of models people serve, one JSON file a model, each figure with its source."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from roofcast.modelspec.nearest import nearest

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

FOLDER: Final = Path(__file__).parent / "catalogue"
_NAME: Final = r"[a-z0-9][a-z0-9._-]{0,99}"  # no path, and no longer than a file may be named


@dataclass(frozen=True, slots=True)
class KnownModel:
    """One entry of the catalogue.

    Args:
        name: what people type, `llama-3.1-8b`.
        repos: Hub repositories whose config has these values.
        config: keys of the published config.json that shape parameters, memory or work.
        files: elements by dtype in the published weight files; None where the config alone tells them.
        scales: how many of those elements are quantisation scales or other non-parameters.
        sources: where `config` and `files` come from.
    """

    name: str
    repos: tuple[str, ...]
    config: Mapping[str, object]
    files: Mapping[str, int] | None
    scales: int
    sources: Mapping[str, str]


def find_known(name: str) -> KnownModel | None:
    """Return the entry of that catalogue name, repo id or repo name (letter case aside), or None.

    >>> find_known("LLAMA-3.1-8B").config["num_key_value_heads"]
    8
    >>> find_known("meta-llama/Llama-3.1-8B-Instruct").name
    'llama-3.1-8b'
    >>> find_known("Llama-3.1-8B-Instruct").name
    'llama-3.1-8b'
    >>> find_known("llama-3.1-9b") is None
    True
    """
    wanted = name.lower()
    path = FOLDER / f"{wanted}.json"
    if re.fullmatch(_NAME, wanted) and path.is_file():
        return _entry(path.read_bytes())
    return next(_answering(wanted), None)


def known_names() -> tuple[str, ...]:
    """Return every catalogue name, sorted.

    >>> "deepseek-v3" in known_names()
    True
    """
    return tuple(sorted(path.stem for path in FOLDER.glob("*.json")))


def nearest_names(name: str, n: int = 3) -> tuple[str, ...]:
    """Return up to `n` catalogue names that look most like `name`, the best first.

    >>> nearest_names("meta-llama/llama-3.1-8bb", 1)
    ('llama-3.1-8b',)
    """
    return tuple(nearest(name.lower().rpartition("/")[2], known_names(), n, cutoff=0.5))


def _answering(repo: str) -> Iterator[KnownModel]:
    # Parsing every file would cost more than the whole command: the raw text says which few may hold the repo.
    needles = (f'"{repo}"'.encode(), f'/{repo}"'.encode())
    for path in sorted(FOLDER.glob("*.json")):
        raw = path.read_bytes()
        if any(needle in raw.lower() for needle in needles):
            entry = _entry(raw)
            if any(repo in (known.lower(), known.lower().rpartition("/")[2]) for known in entry.repos):
                yield entry


def _entry(raw: bytes) -> KnownModel:
    # The files are ours: one that does not read so is a fault of the package, not of its user.
    data = json.loads(raw)
    assert data.keys() == set(KnownModel.__slots__), f"catalogue entry with keys {sorted(data)}"  # noqa: S101
    return KnownModel(**{**data, "repos": tuple(data["repos"])})
