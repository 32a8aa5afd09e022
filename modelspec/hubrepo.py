"""A repo of the Hub: its config, and what its weight files hold; from the client's cache where it is not asked."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from roofcast.modelspec.errors import ModelError, UndeterminedModelError
from roofcast.modelspec.folder import (
    MAX_CONFIG,
    QUANTIZATION,
    read_config,
    read_weights,
    states_quantization,
    with_quantization,
)
from roofcast.modelspec.hub import CONFIG, Hub, quiet
from roofcast.modelspec.hubweights import read_remote
from roofcast.modelspec.spec import build_spec

if TYPE_CHECKING:
    from pathlib import Path
    from types import ModuleType

    from roofcast.modelspec.folder import Progress
    from roofcast.modelspec.weights import WeightFiles


def read_repo(
    client: ModuleType, repo: str, revision: str | None, *, offline: bool, progress: Progress | None, thorough: bool
) -> tuple[dict[str, Any], WeightFiles | None, str | None, str]:
    """Return a repo's config, what its weight files hold, what kept their headers from being read, and its commit.

    Args:
        client: the module huggingface_hub.
        repo: org/name.
        revision: a branch, tag or commit, None for main.
        offline: read the client's cache alone.
        progress: told of every weight file that is read.
        thorough: read the header of every weight file, however many there are.

    Raises:
        MalformedModelError: the config or a weight file is broken.
        UndeterminedModelError: the repo or a file of it is absent or out of reach.
    """
    hub = Hub(client, repo, revision)
    with quiet(client), contextlib.closing(hub):
        path, trouble = hub.config(offline=offline)
        config = read_config(path, f"{repo}: {CONFIG}")
        hub.commit = commit = hub.commit_of(path)
        if trouble is not None:
            return config, *_from_cache(path.parent, repo, trouble, progress), commit
        if not states_quantization(config) and (beside := hub.read(QUANTIZATION, MAX_CONFIG)) is not None:
            config = with_quantization(config, beside, f"{repo}: {QUANTIZATION}")
        return config, *read_remote(hub, progress, thorough=thorough or _needs_tensors(config)), commit


def _needs_tensors(config: dict[str, Any]) -> bool:
    """Tell whether only tensors tell a model's parameters or confirm its attention, so that no summary would do."""
    try:
        spec = build_spec(config, counted_in_files=True)
    except ModelError:
        return True
    return not (spec.known_class and spec.total_known)


def _from_cache(
    snapshot: Path, repo: str, trouble: str, progress: Progress | None
) -> tuple[WeightFiles | None, str | None]:
    try:
        weights, problem = read_weights(snapshot, repo, progress)
    except UndeterminedModelError as error:
        return None, f"{trouble}; in the Hub's cache {str(error).removeprefix(f'{repo}: ')}"
    if weights:
        return weights, None
    return None, problem or f"{trouble}; no weight files in the Hub's cache"
