"""Accelerator files: where they are, and how one is read."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from roofcast.hwdb.accelerator import Accelerator, Flags, Pcie, ScaleUp, Source

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pydantic import BaseModel, ValidationError
    from pydantic_core import ErrorDetails

BUILT_IN = Path(__file__).with_name("accelerators")
_CONFIG_FOLDERS = {
    "win32": ("APPDATA", "~/AppData/Roaming"),
    "darwin": ("", "~/Library/Application Support"),
}
_NESTED: Mapping[str, type[BaseModel]] = {"scale_up": ScaleUp, "pcie": Pcie, "flags": Flags, "sources": Source}


class AcceleratorFileError(ValueError):
    """A file that does not describe an accelerator; the message names it and every bad field."""


def home_folder() -> Path:
    r"""Give the user's roofcast folder: `$ROOFCAST_HOME`, else one under the platform's config directory.

    Linux: `$XDG_CONFIG_HOME/roofcast` or `~/.config/roofcast`; macOS: `~/Library/Application Support/roofcast`;
    Windows: `%APPDATA%\roofcast`.
    """
    own = os.environ.get("ROOFCAST_HOME")
    if own:
        return Path(own).expanduser()
    variable, default = _CONFIG_FOLDERS.get(sys.platform, ("XDG_CONFIG_HOME", "~/.config"))
    return Path(os.path.expanduser(os.environ.get(variable) or default)) / "roofcast"  # noqa: PTH111 - never raises


def user_folder() -> Path:
    """Give the folder whose files add to the built-in accelerators and override them by id."""
    return home_folder() / "accelerators"


def accelerator_files() -> dict[str, Path]:
    """Map every accelerator id to its file; the user's files come last and win.

    Raises:
        AcceleratorFileError: the user's folder is there and cannot be listed.
    """
    files = {path.stem: path for path in sorted(BUILT_IN.glob("*.yaml"))}
    folder = user_folder()
    try:
        own = sorted(folder.iterdir())
    except FileNotFoundError:
        return files
    except OSError as error:
        raise AcceleratorFileError(f"{folder}: cannot be read ({error.strerror}); it must be a folder") from error
    return files | {path.stem: path for path in own if path.suffix in {".yaml", ".yml"}}


def read_text(path: Path) -> str:
    """Read a file as UTF-8.

    Raises:
        AcceleratorFileError: it cannot be opened, or is not UTF-8.
    """
    try:
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise AcceleratorFileError(f"{path}: not UTF-8 text (byte {error.start})") from error
    except OSError as error:
        raise AcceleratorFileError(f"{path}: cannot be read ({error.strerror})") from error


def read_yaml(path: Path, text: str | None = None) -> dict[str, Any]:
    """Read the fields of one file, not yet checked.

    Raises:
        AcceleratorFileError: not YAML, or not a mapping of fields.
    """
    import yaml

    content = read_text(path) if text is None else text
    try:
        loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)(content)
        document = loader.get_single_node()
        _refuse_twice(document)
        fields = loader.construct_document(document) if document else None
    except (yaml.YAMLError, ValueError, RecursionError) as error:  # ValueError: a date such as 2024-99-99
        mark = getattr(error, "problem_mark", None)
        where = f", line {mark.line + 1}" if mark else ""
        problem = getattr(error, "problem", None) or str(error).splitlines()[0]
        raise AcceleratorFileError(f"{path}: not readable as YAML{where}: {problem}") from error
    if not isinstance(fields, dict):
        kind = "empty" if fields is None else f"a {type(fields).__name__}"
        raise AcceleratorFileError(f"{path}: is {kind}; it must map fields such as id, name, memory to values")
    return fields


def _refuse_twice(node: Any) -> None:  # noqa: ANN401 - PyYAML's nodes have no types
    """Refuse a field that is given twice: YAML would silently take the last."""
    if isinstance(node.value if node else None, list):
        pairs = [item for item in node.value if isinstance(item, tuple)]
        names = [str(key.value) for key, _ in pairs]
        for position, name in enumerate(names):
            if name in names[:position]:
                raise ValueError(f"{name!r} is given twice, again in line {pairs[position][0].start_mark.line + 1}")
        for item in node.value:
            _refuse_twice(item[1] if isinstance(item, tuple) else item)


def read_accelerator(path: Path, text: str | None = None) -> Accelerator:
    """Read one accelerator from its YAML file.

    Args:
        path: the file; its name without `.yaml` is the id.
        text: its content, where the caller has read it already.

    Raises:
        AcceleratorFileError: not YAML, or fields missing, unknown or malformed; all are named.
    """
    from pydantic import ValidationError

    fields = read_yaml(path, text)
    try:
        accelerator = Accelerator.model_validate(fields)
    except ValidationError as error:
        raise AcceleratorFileError(f"{path}: {_all_problems(error)}") from error
    if accelerator.id != path.stem:
        raise AcceleratorFileError(f"{path}: id is {accelerator.id!r}; it must be {path.stem!r}, the file's name")
    return accelerator


def _all_problems(error: ValidationError) -> str:
    return "; ".join(dict.fromkeys(_problem(detail) for detail in error.errors(include_url=False)))


def _problem(detail: ErrorDetails) -> str:
    # positions in lists read better counted from 1, as people count
    place = ".".join(str(part + 1) if isinstance(part, int) else part for part in detail["loc"])
    said = re.sub(r"^(Input|String|Tuple|Dictionary) should ", "", detail["msg"])
    said = re.sub(r"dictionary( or instance of \w+)?", "mapping", said).replace("tuple", "list")
    phrases: dict[str, Callable[[], str]] = {
        "invalid_key": lambda: f"{detail['loc'][-1]} is not a field",
        "missing": lambda: f"{place} is missing",
        "extra_forbidden": lambda: f"{place} is not a field{_nearest_field(detail)}",
        "value_error": lambda: f"{place}: {detail['ctx']['error']}".removeprefix(": "),
    }
    return phrases.get(detail["type"], lambda: f"{place} is {_short(detail['input'])}; it should {said}")()


def _nearest_field(detail: ErrorDetails) -> str:
    import difflib  # noqa: PLC0415 - only errors need it

    *parents, name = (part for part in detail["loc"] if isinstance(part, str))
    model = _NESTED.get(parents[-1], Accelerator) if parents else Accelerator
    near = difflib.get_close_matches(name, model.model_fields, 1)
    return f" (did you mean {near[0]}?)" if near else ""


def _short(value: object, longest: int = 40) -> str:
    text = repr(value)
    return text if len(text) <= longest else f"{text[: longest - 3]}..."
