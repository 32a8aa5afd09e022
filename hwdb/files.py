"""Accelerator files: where they are, and how one is read."""

from __future__ import annotations

import os
import re
import stat
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
FIELDS = "id, name, memory"
_SUFFIXES = frozenset({".yaml", ".yml"})
_MOST_BYTES = 1_000_000
_DEEPEST = 12  # levels of lists and mappings; ours have 3
_MOST_PROBLEMS = 20
_LONG_NUMBER = (
    r"[-+]?(?:0[xX][0-9a-fA-F_]{60,}|[0-9][0-9_:.]{60,})"  # as an integer it may be too large to print or to divide by
)
_DECIMAL = r"[-+]?(?:(?:0|[1-9]\d*)(?:\.\d*)?|\.\d+)(?:[eE][-+]\d+)?|[-+]?\.(?:inf|nan)"
_NUMBERS = ("tag:yaml.org,2002:int", "tag:yaml.org,2002:float")
_NESTED: Mapping[str, type[BaseModel]] = {"scale_up": ScaleUp, "pcie": Pcie, "flags": Flags, "sources": Source}


class AcceleratorFileError(ValueError):
    """A file that does not describe an accelerator; the message names it and every bad field."""


def home_folder() -> Path:
    r"""Give the user's roofcast folder: `$ROOFCAST_HOME`, else one under the platform's config directory.

    Linux: `$XDG_CONFIG_HOME/roofcast` or `~/.config/roofcast`; macOS: `~/Library/Application Support/roofcast`;
    Windows: `%APPDATA%\roofcast`.

    Raises:
        AcceleratorFileError: `$ROOFCAST_HOME` begins with `~` and a user that is not there.
    """
    own = os.environ.get("ROOFCAST_HOME")
    if own:
        try:
            return Path(own).expanduser()
        except RuntimeError as error:
            raise AcceleratorFileError(f"ROOFCAST_HOME={own}: no such user's home; write the full path") from error
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
    # by its lower-case name, so that a file named otherwise is refused where its id is asked for, and not passed over
    return files | {path.stem.lower(): path for path in own if path.suffix.lower() in _SUFFIXES}


def user_yaml(folder: Path, error: type[AcceleratorFileError]) -> list[Path]:
    """List the user's YAML files in a folder, none where there is no folder; hidden ones are an editor's or a file system's.

    Raises:
        AcceleratorFileError: of the class given; the folder is there and cannot be listed.
    """
    try:
        found = sorted(folder.iterdir())
    except FileNotFoundError:
        return []
    except OSError as problem:
        raise error(f"{folder}: cannot be read ({problem.strerror}); it must be a folder") from problem
    return [path for path in found if path.suffix.lower() in _SUFFIXES and not path.name.startswith(".")]


def read_text(path: Path, *, named: bool = True) -> str:
    """Read a file as UTF-8; `named`: of the user's, whether its name must be its id.

    Raises:
        AcceleratorFileError: it cannot be opened, is no plain file, too large or not UTF-8, its name is not in lower
            case, or a second file has the same id.
    """
    try:
        if named and path.parent != BUILT_IN:
            _refuse_name(path)
        if not stat.S_ISREG(path.stat().st_mode):  # a pipe or a device never ends
            raise AcceleratorFileError(f"{path}: cannot be read (it is no plain file)")
        with path.open("rb") as file:
            content = file.read(_MOST_BYTES + 1)
        if len(content) > _MOST_BYTES:
            raise AcceleratorFileError(f"{path}: is larger than 1 MB; such a file takes a page")
        return content.decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        raise AcceleratorFileError(f"{path}: not UTF-8 text (byte {error.start})") from error
    except OSError as error:
        raise AcceleratorFileError(f"{path}: cannot be read ({error.strerror})") from error


def _refuse_name(path: Path) -> None:
    """Refuse a user's file whose name is not its id in lower case, or that shares its id with another file."""
    proper = path.name.lower()
    stem = path.stem.lower()
    alike = {stem + suffix for suffix in _SUFFIXES}
    # names alone: this runs for each of the user's files
    same = sorted(name for name in os.listdir(path.parent) if name.lower() in alike)  # noqa: PTH208
    if len(same) > 1:
        raise AcceleratorFileError(f"{path.parent}: {' and '.join(same)} have the same id, {stem}; keep one")
    if path.name != proper:
        raise AcceleratorFileError(f"{path}: ids are in lower case; name the file {proper}")


def read_yaml(path: Path, text: str | None = None, fields: str = FIELDS, *, own: bool | None = None) -> dict[str, Any]:
    """Read the fields of one file, not yet checked.

    Args:
        path: the file.
        text: its content, where the caller has read it already.
        fields: that such a file has, for what is said of one without any.
        own: whether it is the project's own, which needs no guard; None is by its folder.

    Raises:
        AcceleratorFileError: not YAML, not a mapping of fields, or YAML's anchors, aliases or tags are used.
    """
    found = read_document(path, text, own=own)
    if not isinstance(found, dict):
        kind = "empty" if found is None else f"a {type(found).__name__}"
        raise AcceleratorFileError(f"{path}: is {kind}; it must map fields such as {fields} to values")
    return found


def read_document(path: Path, text: str | None = None, *, own: bool | None = None) -> Any:  # noqa: ANN401 - any YAML
    """Read whatever one file holds: a mapping, a list or a value.

    Args:
        path: the file.
        text: its content, where the caller has read it already.
        own: whether it is the project's own, which needs no guard; None is by its folder.

    Raises:
        AcceleratorFileError: not YAML, or YAML's anchors, aliases or tags are used.
    """
    import yaml

    content = read_text(path) if text is None else text
    make_loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        if not (path.parent == BUILT_IN if own is None else own):
            _refuse_tricks(make_loader(content))
        loader = make_loader(content)
        document = loader.get_single_node()
        _refuse_twice(document)
        return loader.construct_document(document) if document else None
    except (yaml.YAMLError, ValueError, RecursionError) as error:  # ValueError: a date such as 2024-99-99
        mark = getattr(error, "problem_mark", None)
        where = f", line {mark.line + 1}" if mark else ""
        problem = getattr(error, "problem", None) or str(error).splitlines()[0]
        raise AcceleratorFileError(f"{path}: not readable as YAML{where}: {problem}") from error


def _refuse_tricks(loader: Any) -> None:  # noqa: ANN401 - the C loader has no types
    """Refuse the YAML that no accelerator needs and that can crash its reader or keep it busy for ever."""
    import yaml

    depth = 0
    top: list[str] = []  # a field and its value in turn
    while loader.check_event():
        event = loader.get_event()
        mark: Any = event.start_mark  # C's or Python's, alike but for their type
        if isinstance(event, yaml.NodeEvent):
            if depth == 1:
                top.append(str(getattr(event, "value", "")))
            problem = _trick(event) or ("is nested too deeply" if depth > _DEEPEST else None)
            if problem:
                field = f"{_cut(top[(len(top) - 1) // 2 * 2])} " if top else ""
                raise yaml.MarkedYAMLError(problem=f"{field}{problem}", problem_mark=mark)
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)


def _trick(event: Any) -> str | None:  # noqa: ANN401 - PyYAML's events have no types
    if event.anchor:
        return "has an anchor (&) or an alias (*); write the value out"
    tag = getattr(event, "tag", None)
    if tag:
        return f"has a tag, {_cut(tag.replace('tag:yaml.org,2002:', '!!'))}; write the value alone"
    if getattr(event, "implicit", (False,)) == (True, False) and re.fullmatch(_LONG_NUMBER, event.value):
        return f"is too long for a number, {_cut(event.value)}"
    return None


def _refuse_twice(node: Any) -> None:  # noqa: ANN401 - PyYAML's nodes have no types
    """Refuse a field that is given twice: YAML would silently take the last."""
    if isinstance(node.value if node else None, list):
        names: set[str] = set()
        for key, _ in (item for item in node.value if isinstance(item, tuple)):
            name = str(key.value)
            if name in names:
                raise ValueError(f"{_short(name)} is given twice, again in line {key.start_mark.line + 1}")
            names.add(name)
        for item in node.value:
            _refuse_twice(item[1] if isinstance(item, tuple) else item)


def refuse_spellings(path: Path, text: str, example: str) -> None:
    """Refuse numbers that YAML 1.1 reads otherwise than people do: it takes 1:30 for 90, 010 for 8, and 1_0 for 10.

    Args:
        path: of a file that has been read as YAML.
        text: its content.
        example: of a number as it should be written.

    Raises:
        AcceleratorFileError: naming the line.
    """
    import yaml

    nodes: list[Any] = [yaml.compose(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))]
    for node in nodes:
        if isinstance(node, yaml.ScalarNode):
            if node.tag in _NUMBERS and not re.fullmatch(_DECIMAL, node.value, re.IGNORECASE):
                line = node.start_mark.line + 1
                raise AcceleratorFileError(
                    f"{path}: line {line}: {node.value[:40]} is no plain number; write it as {example}"
                )
        else:
            nodes += (part for item in node.value for part in (item if isinstance(item, tuple) else (item,)))


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
        raise AcceleratorFileError(f"{path}: {validation_problems(error, Accelerator)}") from error
    if accelerator.id != path.stem:
        raise AcceleratorFileError(f"{path}: id is {_short(accelerator.id)}; it must be {path.stem!r}, the file's name")
    return accelerator


def validation_problems(error: ValidationError, model: type[BaseModel]) -> str:
    """Say every problem of a file's fields in one line.

    Args:
        error: of the validation.
        model: of the whole file.
    """
    every = error.errors(include_url=False)
    # a list of which every entry is wrong is not too short on top of that
    deeper = {one["loc"][: len(one["loc"]) - back] for one in every for back in range(1, len(one["loc"]))}
    details = [one for one in every if one["type"] != "too_short" or one["loc"] not in deeper]
    more = [f"and {len(details) - _MOST_PROBLEMS} more"] if len(details) > _MOST_PROBLEMS else []
    return "; ".join([*dict.fromkeys(_cut(_problem(detail, model), 400) for detail in details[:_MOST_PROBLEMS]), *more])


def _problem(detail: ErrorDetails, model: type[BaseModel]) -> str:
    # positions in lists read better counted from 1, as people count
    place = ".".join(str(part + 1) if isinstance(part, int) else part for part in detail["loc"])
    said = re.sub(r"^(Input|String|Tuple|Dictionary) should ", "", detail["msg"])
    said = re.sub(r"dictionary( or instance of \w+)?", "mapping", said).replace("tuple", "list")
    phrases: dict[str, Callable[[], str]] = {
        "invalid_key": lambda: f"{detail['loc'][-1]} is not a field",
        "missing": lambda: f"{place} is missing",
        "extra_forbidden": lambda: f"{place} is not a field{_nearest_field(detail, model)}",
        "value_error": lambda: f"{place}: {detail['ctx']['error']}".removeprefix(": "),
    }
    return phrases.get(detail["type"], lambda: f"{place} is {_short(detail['input'])}; it should {said}")()


def _nearest_field(detail: ErrorDetails, whole: type[BaseModel]) -> str:
    import difflib  # noqa: PLC0415 - only errors need it

    *parents, name = (part for part in detail["loc"] if isinstance(part, str))
    model = _NESTED.get(parents[-1], whole) if parents else whole
    near = difflib.get_close_matches(name, model.model_fields, 1)
    return f" (did you mean {near[0]}?)" if near else ""


def _short(value: object) -> str:
    return _cut(repr(value))


def _cut(text: str, longest: int = 40) -> str:
    return text if len(text) <= longest else f"{text[: longest - 3]}..."
