"""A folder of published configs beside the repository, where there is one: every count it knows, against ours.

The folder is not part of the project. It is the one that ROOFCAST_SHARED names, else `../shared`, and holds
`hub/ORG/NAME/config.json` and `truth/architectures.json` (name -> `params`, as the reference implementation counts,
and `params_tied`, with tied tensors twice).
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, Final

import pytest

from roofcast.modelspec.errors import ModelError, UnknownArchitectureError
from roofcast.modelspec.spec import ModelSpec
from tests.model_configs import is_one_line, outcome

CONFIGS: Final = 138  # the folder's configs at the time of writing, for the line that says what is skipped
ANSWERED: Final = 65  # dense, mixture and latent decoders among them that must be answered


@pytest.fixture(name="folder")
def folder_fixture(repository: Path) -> Path:
    """Return the folder; skip where it is not there, with the number of what it would have checked."""
    folder = Path(os.environ.get("ROOFCAST_SHARED") or repository.parent / "shared")
    if not (folder / "truth" / "architectures.json").is_file():
        pytest.skip(f"no folder of published configs: {CONFIGS} configs not checked")
    return folder


def configs(folder: Path) -> dict[str, dict[str, Any]]:
    """Return every config of the folder by its repo."""
    hub = folder / "hub"
    paths = sorted(hub.rglob("config.json"))
    return {path.parent.relative_to(hub).as_posix(): json.loads(path.read_text()) for path in paths}


def test_published_counts_are_met_to_the_last_parameter(folder: Path) -> None:
    """Whatever is answered has the reference's count; nothing is answered with another."""
    truth = json.loads((folder / "truth" / "architectures.json").read_text())
    wrong = {}
    checked = 0
    for repo, config in configs(folder).items():
        known = {truth.get(repo, {}).get(key) for key in ("params", "params_tied")} - {None}
        spec = outcome(config)
        if known and isinstance(spec, ModelSpec):
            checked += 1
            if spec.parameters not in known:
                wrong[repo] = (spec.parameters, known)

    assert wrong == {}
    assert checked > 0


def test_published_files_are_answered_or_refused_by_name(folder: Path) -> None:
    """No published file is called broken; a refusal is one line that names keys or the class."""
    outcomes = {repo: outcome(config) for repo, config in configs(folder).items()}
    refusals = {repo: error for repo, error in outcomes.items() if isinstance(error, ModelError)}

    assert [repo for repo, error in refusals.items() if not isinstance(error, UnknownArchitectureError)] == []
    assert [repo for repo, error in refusals.items() if "model_type" not in str(error)] == []
    assert [repo for repo, error in refusals.items() if not is_one_line(str(error))] == []
    assert len(outcomes) - len(refusals) >= ANSWERED
