"""Where a model comes from: a path, the catalogue, or the Hugging Face Hub through its own client."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from roofcast.modelspec.errors import MalformedModelError, UndeterminedModelError
from roofcast.modelspec.known import find_known, nearest_names
from roofcast.modelspec.strictjson import quoted
from roofcast.modelspec.weights import summarise

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import ModuleType

    from roofcast.modelspec.folder import Progress
    from roofcast.modelspec.known import KnownModel
    from roofcast.modelspec.weights import WeightFiles

CONFIG: Final = "config.json"
_REPO_ID: Final = r"[A-Za-z0-9_][\w.-]{0,95}/[A-Za-z0-9_][\w.-]{0,95}"
_REVISION: Final = r"(?!.*\.\.)[\w][\w./+@-]{0,254}"
_GGUF: Final = r"[^/]+/[^/:]+:\w+|.*\.(?i:gguf)"


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A model as it was found: its raw config and what its weight files hold.

    Args:
        name: as to be shown: of the catalogue, of the repo, or of the folder.
        config: the object of its config.json.
        weights: None where there are no weight files, or none that could be read.
        weights_problem: why the weights are none, or only a summary, although there are files; None otherwise.
        source: where it was found, in words.
        scales: elements of the weight files that are quantisation scales; known of the catalogue only.
    """

    name: str
    config: Mapping[str, Any]
    weights: WeightFiles | None
    weights_problem: str | None
    source: str
    scales: int = 0


def resolve(
    model: str, *, revision: str | None = None, offline: bool = False, progress: Progress | None = None
) -> Checkpoint:
    """Find a model: an existing path wins, then a name or repo id of the catalogue, then the Hub.

    A bare name that the catalogue does not know is refused without asking the Hub: the repos that once had bare names
    there (gpt2) have all moved to org/name.

    Args:
        model: a folder, a config.json, a name of the catalogue, or org/name.
        revision: a branch, tag or commit of the Hub's repo; with it the Hub is asked even where the catalogue knows.
        offline: ask nothing of the network; the Hub's cache is read.
        progress: told how many weight files there are and each one that is read.

    Raises:
        MalformedModelError: the config or a weight file is broken.
        UndeterminedModelError: there is no such model, or it cannot be reached.
    """
    if not model.strip() or not model.isprintable():
        msg = "MODEL is empty or cannot be printed; give a name of the catalogue, org/name, a folder or a config.json"
        raise MalformedModelError(msg)
    if path := _existing(model):
        if revision is not None:
            msg = f"--revision {revision} is for repos of the Hub, but {model} is a path on this machine"
            raise MalformedModelError(msg)
        return _from_path(path, model, progress)
    known = find_known(model)
    if known and revision is None:
        return _from_catalogue(known)
    repo = known.repos[0] if known and "/" not in model else model
    _refuse_unless_repo(repo)
    if revision is not None and not re.fullmatch(_REVISION, revision, re.ASCII):
        msg = f"--revision {quoted(revision)} is no branch, tag or commit"
        raise MalformedModelError(msg)
    return _from_hub(repo, revision, offline, progress)


def _existing(model: str) -> Path | None:
    """Return the path that is meant where there is one, None where the name is no path.

    Raises:
        UndeterminedModelError: it can only be a path, and there is nothing.
    """
    if "://" in model:
        return None
    path = Path(model)
    try:
        path = path.expanduser()
        if path.exists():
            return path
        problem = "a link to nothing" if path.is_symlink() else "no such file or folder"
    except (OSError, ValueError, RuntimeError) as error:  # no permission, a NUL in it, no such user
        problem = f"cannot be looked at ({getattr(error, 'strerror', None) or error})"
    only_a_path = model[0] in "./~" or model.endswith(".json") or model.count("/") > 1 or "\\" in model
    if not only_a_path and problem.startswith("no such"):
        return None
    if re.fullmatch(_GGUF, model) and problem.startswith("no such"):
        return None
    msg = f"{quoted(model)}: {problem}"
    raise UndeterminedModelError(msg)


def _from_path(path: Path, model: str, progress: Progress | None) -> Checkpoint:
    from roofcast.modelspec.folder import read_config, read_weights  # noqa: PLC0415  likewise

    if path.is_dir():
        config = path / CONFIG
        if not config.exists() and not config.is_symlink():
            msg = f"no {CONFIG} in folder {model}; a checkpoint's folder has one"
            raise UndeterminedModelError(msg)
        found = read_config(config, f"{model}/{CONFIG}")
        weights, problem = read_weights(path, model, progress)
        return Checkpoint(path.resolve().name or model, found, weights, problem, f"folder {model}")
    if path.suffix.lower() == ".gguf":
        raise _no_gguf(model)
    if path.suffix.lower() != ".json":
        msg = f"{model}: neither a folder nor a .json file; give the folder of the checkpoint or its {CONFIG}"
        raise MalformedModelError(msg)
    name = path.resolve().parent.name if path.name == CONFIG else path.stem
    return Checkpoint(name or model, read_config(path, model), None, None, f"file {model}")


def _from_catalogue(known: KnownModel) -> Checkpoint:
    weights = summarise(known.files, "catalogue") if known.files else None
    return Checkpoint(known.name, known.config, weights, None, f"catalogue {known.name}", known.scales)


def _from_hub(repo: str, revision: str | None, offline: bool, progress: Progress | None) -> Checkpoint:
    from roofcast.modelspec.hub import read_repo  # noqa: PLC0415  a model of the catalogue does without

    config, weights, problem, commit = read_repo(_client(), repo, revision, offline=offline, progress=progress)
    return Checkpoint(repo, config, weights, problem, f"Hub {repo}@{commit}")


def _refuse_unless_repo(repo: str) -> None:
    if re.fullmatch(_GGUF, repo):
        raise _no_gguf(repo)
    if "/" not in repo:
        near = f"; nearest: {', '.join(names)}" if (names := nearest_names(repo, 3)) else ""
        msg = f"no model {quoted(repo)} in the catalogue{near}; a repo of the Hub is org/name"
        raise UndeterminedModelError(msg)
    if not re.fullmatch(_REPO_ID, repo, re.ASCII) or "--" in repo or ".." in repo or repo.endswith((".git", "-", ".")):
        msg = f"{quoted(repo)} is no repo of the Hub; org/name has letters, digits and single '-', '_' or '.'"
        raise MalformedModelError(msg)


def _no_gguf(model: str) -> UndeterminedModelError:
    return UndeterminedModelError(f"{model}: GGUF is not read yet; give the repo or folder with its {CONFIG}")


def _client() -> ModuleType:
    """Import huggingface_hub, which takes half a second: only who asks the Hub waits for it.

    Raises:
        UndeterminedModelError: it is not there, or a setting of the environment keeps it from being imported.
    """
    from roofcast.modelspec.hubsettings import silence, why_not_loaded  # noqa: PLC0415  likewise

    try:
        with silence():
            import huggingface_hub
            import huggingface_hub.errors
            import huggingface_hub.utils
            import huggingface_hub.utils.logging  # it sets its level when imported: before it is quieted, not during
    except Exception as error:
        raise UndeterminedModelError(why_not_loaded(error)) from error
    return huggingface_hub
