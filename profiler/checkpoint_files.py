"""The folder of a real checkpoint, looked at before anything of it is loaded: what is there, and what it will take."""

from __future__ import annotations

import json
from math import prod
from pathlib import Path
from typing import Any, Final

from roofcast.profiler.errors import ProfileUsageError, UnavailableError
from roofcast.profiler.runtime import first_line

CONFIG: Final = "config.json"
#: files that hold weights; the first kind that is there counts, as transformers has it
KINDS: Final = ("*.safetensors", "pytorch_model*.bin")
INDEX: Final = ".index.json"
BYTES: Final = {"bf16": 2, "fp16": 2, "fp32": 4}  # of an element, in the formats that a checkpoint is loaded in


def check_folder(name: str) -> Path:
    """The folder of a checkpoint with weights.

    Raises:
        ProfileUsageError: it is a file.
        UnavailableError: it is not there, or lacks config.json, weights or one of their files.
    """
    folder = Path(name)
    try:
        if folder.is_file():
            raise ProfileUsageError(f"{name}: a file; give the checkpoint's folder, with {CONFIG} and weights")
        if not folder.is_dir():
            raise UnavailableError(f"'{name}': no such folder; a checkpoint's has {CONFIG} and weights")
        if not (folder / CONFIG).is_file():
            raise UnavailableError(f"{name}: no {CONFIG} in it; a checkpoint's folder has one, and weights")
        lacking = sorted(one for one in _indexed(folder) if not (folder / one).is_file())
        empty = not weight_files(folder)
    except OSError as error:
        raise UnavailableError(f"{name[:200]}: it cannot be read ({first_line(error)})") from error
    if lacking:
        more = f" and {len(lacking) - 1} more" if len(lacking) > 1 else ""
        raise UnavailableError(f"{name}: {lacking[0]}{more} is not there, which its index names")
    if empty:
        raise UnavailableError(f"{name}: no weights in it; transformers reads {' and '.join(KINDS)}")
    return folder


def weight_files(folder: Path) -> list[Path]:
    """Files of weights that transformers would read."""
    return next((found for kind in KINDS if (found := sorted(folder.glob(kind)))), [])


def _indexed(folder: Path) -> set[str]:
    """Names of the files that the index of a checkpoint in pieces has.

    Raises:
        UnavailableError: the index cannot be read.
    """
    for path in sorted(folder.glob(f"*{INDEX}"), reverse=True):  # that of safetensors first
        if (folder / path.name.removesuffix(INDEX)).is_file():
            return set()  # the whole beside it counts
        try:
            return set(map(str, json.loads(path.read_text(encoding="utf-8"))["weight_map"].values()))
        except (ValueError, KeyError, AttributeError, TypeError):
            raise UnavailableError(f"{folder}: {path.name} cannot be read as an index of weights") from None
    return set()


def quantised_by(folder: Path) -> str | None:
    """The method by which its config says that its weights are quantised; None where it says nothing of it.

    Raises:
        UnavailableError: the config cannot be read.
    """
    try:
        found = json.loads((folder / CONFIG).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UnavailableError(f"{folder}: {CONFIG} cannot be read ({first_line(error)})") from error
    if not isinstance(found, dict):
        raise UnavailableError(f"{folder}: {CONFIG} holds no object")
    said = found.get("quantization_config")
    return str(said.get("quant_method") or "a method without a name") if isinstance(said, dict) else None


def loaded_bytes(folder: Path, weights: str | None = None) -> int:
    """Bytes that the weights of a folder take in memory: as they are stored, or all in one format. [B]

    Of files without a header that tells their elements the size on disk stands for both.

    Args:
        folder: of the checkpoint.
        weights: format that they are loaded in; None is their own.

    Raises:
        UnavailableError: a file that cannot be read.
    """
    total = 0
    for path in weight_files(folder):
        try:
            own = weights is None or path.suffix != ".safetensors"
            total += path.stat().st_size if own or weights is None else BYTES[weights] * _elements(path)
        except (OSError, ValueError, TypeError, KeyError, AttributeError, OverflowError) as error:
            raise UnavailableError(f"{folder}: {path.name} cannot be read: cut short, or of another kind") from error
    return total


def _elements(path: Path) -> int:
    """Elements of all tensors of a safetensors file, by its header."""
    with path.open("rb") as file:
        header: dict[str, Any] = json.loads(file.read(int.from_bytes(file.read(8), "little")))
    return sum(prod(entry["shape"]) for name, entry in header.items() if name != "__metadata__")
