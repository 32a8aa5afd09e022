"""Where a model comes from: a path, the catalogue, or the Hugging Face Hub through its own client."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from roofcast.modelspec.errors import MalformedModelError, ModelError, UndeterminedModelError
from roofcast.modelspec.known import find_known, nearest_names
from roofcast.modelspec.strictjson import plain, quoted
from roofcast.modelspec.weights import summarise

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from types import ModuleType

    from roofcast.modelspec.folder import Progress
    from roofcast.modelspec.gguf_tags import GgufName
    from roofcast.modelspec.known import KnownModel
    from roofcast.modelspec.weights import WeightFiles

CONFIG: Final = "config.json"
HEADER: Final = "header"
MAGIC: Final = b"GGUF"
_REPO_ID: Final = r"[A-Za-z0-9_][\w.-]{0,95}/[A-Za-z0-9_][\w.-]{0,95}"
_REVISION: Final = r"(?!.*\.\.)[\w][\w./+@-]{0,254}"
# org/name:Q4_K_M and org/name/folder/file.gguf
_GGUF: Final = (
    r"(?P<repo>[^/:]+/[^/:]+)"
    r"(?::(?P<tag>[\w.+-]{1,64})|/(?P<file>(?:(?!\.\.?/)[^/\\]{1,255}/){0,16}[^/\\]{1,250}\.(?i:gguf)))"
)


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
        facts: where its hyperparameters are from: `config`, or the `header` of a GGUF file.
        left_out: projector files beside it, which are not read.
        commit: of the Hub's repo that was read; None of what is not there.
    """

    name: str
    config: Mapping[str, Any]
    weights: WeightFiles | None
    weights_problem: str | None
    source: str
    scales: int = 0
    facts: str = "config"
    left_out: tuple[str, ...] = ()
    commit: str | None = None


def resolve(
    model: str,
    *,
    revision: str | None = None,
    offline: bool = False,
    progress: Progress | None = None,
    thorough: bool = False,
) -> Checkpoint:
    """Find a model: an existing path wins, then a name or repo id of the catalogue, then the Hub.

    GGUF: a .gguf file, a folder that holds one, org/name:Q4_K_M or org/name/file.gguf.

    A bare name that the catalogue does not know is refused without asking the Hub: the repos that once had bare names
    there (gpt2) have all moved to org/name.

    Args:
        model: a folder, a config.json, a .gguf file, a name of the catalogue, org/name, or a GGUF of it.
        revision: a branch, tag or commit of the Hub's repo; with it the Hub is asked even where the catalogue knows.
        offline: ask nothing of the network; the Hub's cache is read.
        progress: told how many weight files there are and each one that is read.
        thorough: every tensor is wanted: the Hub's summary by dtype will not do for a repo of many weight files.

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
    gguf = re.fullmatch(_GGUF, repo, re.ASCII)
    _refuse_unless_repo(gguf["repo"] if gguf else repo)
    if revision is not None and not re.fullmatch(_REVISION, revision, re.ASCII):
        msg = f"--revision {quoted(revision)} is no branch, tag or commit"
        raise MalformedModelError(msg)
    if gguf:
        from roofcast.modelspec.gguf_tags import GgufName  # noqa: PLC0415  most models are none

        asked = GgufName(gguf["repo"], gguf["tag"] or "", gguf["file"] or "")
        return _from_gguf_repo(model, asked, revision, offline=offline, progress=progress)
    return _from_hub(repo, revision, offline=offline, progress=progress, thorough=thorough)


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
    only_a_path = model[0] in "./~" or model.endswith((".json", ".gguf")) or model.count("/") > 1 or "\\" in model
    in_a_repo = model[0] not in "./~" and re.fullmatch(_GGUF, model, re.ASCII)
    if problem.startswith("no such") and (in_a_repo or not only_a_path):
        return None
    hint = "; a GGUF file of the Hub is org/name/FILE.gguf or org/name:TAG" if model.endswith(".gguf") else ""
    msg = f"{quoted(model)}: {problem}{hint}"
    raise UndeterminedModelError(msg)


def _from_path(path: Path, model: str, progress: Progress | None) -> Checkpoint:
    from roofcast.modelspec.folder import read_config, read_weights  # noqa: PLC0415  likewise

    if path.is_dir():
        config = path / CONFIG
        if not config.exists() and not config.is_symlink():
            if any(path.glob("*.gguf")):
                return _from_gguf(path, model, progress)
            msg = f"no {CONFIG} in folder {model}; a checkpoint's folder has one, or a .gguf file"
            raise UndeterminedModelError(msg)
        found = read_config(config, f"{model}/{CONFIG}")
        weights, problem = read_weights(path, model, progress)
        if weights is None and _holds_one_gguf(path):
            return _from_gguf(path, model, progress)
        return Checkpoint(path.resolve().name or model, found, weights, problem, f"folder {model}")
    if path.suffix.lower() == ".gguf" or _starts_as_gguf(path):
        return _from_gguf(path, model, progress)
    if path.suffix.lower() != ".json":
        msg = (
            f"{model}: no folder, .json or .gguf file; give the folder of the checkpoint, its {CONFIG} or a .gguf file"
        )
        raise MalformedModelError(msg)
    name = path.resolve().parent.name if path.name == CONFIG else path.stem
    return Checkpoint(name or model, read_config(path, model), None, None, f"file {model}")


def _holds_one_gguf(path: Path) -> bool:
    """Whether a folder has one model in GGUF, whole or split, whose header says more than a config.json beside it."""
    from roofcast.modelspec.gguf_files import models_among  # noqa: PLC0415  likewise

    return len(models_among(file.name for file in path.glob("*.gguf"))) == 1


def _starts_as_gguf(path: Path) -> bool:
    """Whether a file that is named otherwise is one all the same, as Ollama keeps them."""
    try:
        if path.suffix.lower() == ".json" or not path.is_file():
            return False
        with path.open("rb") as file:
            return file.read(len(MAGIC)) == MAGIC
    except OSError:
        return False


def _from_gguf(path: Path, model: str, progress: Progress | None) -> Checkpoint:
    """Return the model of a .gguf file, or of a folder that has no config.json but such files."""
    from roofcast.modelspec.gguf_files import read_local  # noqa: PLC0415  likewise
    from roofcast.modelspec.gguf_tags import stem_of  # noqa: PLC0415  likewise

    metadata, weights, files = read_local(path, model, progress)
    is_folder = path.is_dir()
    name = path.resolve().name if is_folder else stem_of(path.name)
    beside = [file.name for file in path.glob("*mmproj*.gguf")] if is_folder else []
    source = f"folder {model}, {_shown(files)}{_left_out(beside)}" if is_folder else f"file {model}"
    config = _config_of(metadata, weights, model)
    return Checkpoint(name or model, config, weights, None, source, facts=HEADER, left_out=tuple(beside))


def _from_gguf_repo(
    model: str, asked: GgufName, revision: str | None, *, offline: bool, progress: Progress | None
) -> Checkpoint:
    from roofcast.modelspec.hubgguf import read_gguf_repo  # noqa: PLC0415  likewise

    found = read_gguf_repo(_client(), asked, revision, offline=offline, progress=progress)
    config = _config_of(found.metadata, found.weights, model)
    source = f"Hub {asked.repo}@{found.commit}, {_shown(found.files)}{_left_out(found.beside)}"
    beside = tuple(found.beside)
    return Checkpoint(model, config, found.weights, None, source, facts=HEADER, left_out=beside, commit=found.commit)


def _config_of(metadata: Mapping[str, Any], weights: WeightFiles, model: str) -> dict[str, Any]:
    from roofcast.modelspec.gguf_config import config_of  # noqa: PLC0415  likewise

    try:
        return config_of(metadata, weights.tensors)
    except ModelError as error:
        raise type(error)(f"{model}: {error}") from error


def _shown(files: Sequence[str]) -> str:
    return plain(files[0]) if len(files) == 1 else f"{plain(files[0])} and {len(files) - 1} more"


def _left_out(beside: Sequence[str]) -> str:
    return f" ({plain(beside[0])}, a projector, is not read)" if beside else ""


def _from_catalogue(known: KnownModel) -> Checkpoint:
    weights = summarise(known.files, "catalogue") if known.files else None
    return Checkpoint(known.name, known.config, weights, None, f"catalogue {known.name}", known.scales)


def _from_hub(
    repo: str, revision: str | None, *, offline: bool, progress: Progress | None, thorough: bool
) -> Checkpoint:
    from roofcast.modelspec.gguf_tags import GgufName  # noqa: PLC0415  a model of the catalogue does without
    from roofcast.modelspec.huberrors import OneGgufError  # noqa: PLC0415  likewise
    from roofcast.modelspec.hubrepo import read_repo  # noqa: PLC0415  likewise

    try:
        config, weights, problem, commit = read_repo(
            _client(), repo, revision, offline=offline, progress=progress, thorough=thorough
        )
    except OneGgufError as only:
        named = GgufName(repo, file=only.file)
        return _from_gguf_repo(repo, named, revision, offline=offline, progress=progress)
    counted = f" ({weights.origin})" if weights and weights.origin != "headers" else ""
    return Checkpoint(repo, config, weights, problem, f"Hub {repo}@{commit}{counted}", commit=commit)


def _refuse_unless_repo(repo: str) -> None:
    if "/" not in repo:
        near = f"; nearest: {', '.join(names)}" if (names := nearest_names(repo, 3)) else ""
        of_it = " and its GGUF org/name:TAG; another format is asked for with --weights" if ":" in repo else ""
        msg = f"no model {quoted(repo)} in the catalogue{near}; a repo of the Hub is org/name{of_it}"
        raise UndeterminedModelError(msg)
    name, colon, tag = repo.partition(":")
    if colon and "/" in name and "://" not in repo:
        msg = f"{quoted(tag)} is no tag of a GGUF file; after the ':' of {quoted(name)} comes one such as Q4_K_M"
        raise MalformedModelError(msg)
    if not re.fullmatch(_REPO_ID, repo, re.ASCII) or "--" in repo or ".." in repo or repo.endswith((".git", "-", ".")):
        msg = f"{quoted(repo)} is no repo of the Hub; org/name has letters, digits and single '-', '_' or '.'"
        raise MalformedModelError(msg)


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
