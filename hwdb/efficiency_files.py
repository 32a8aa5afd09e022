"""Efficiency files: where they are, how one is read, and which of them stands nearest to a machine and an engine."""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from roofcast.hwdb.files import (
    AcceleratorFileError,
    accelerator_files,
    home_folder,
    read_accelerator,
    read_text,
    read_yaml,
    refuse_spellings,
    user_yaml,
    validation_problems,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from roofcast.hwdb.accelerator import Accelerator
    from roofcast.hwdb.efficiency import Efficiency

BUILT_IN: Final = Path(__file__).with_name("efficiency")
KINSHIP: Final = "kinship.json"
FIELDS: Final = "schema, accelerator, engine, fits, provenance"
SERVER: Final = "server"  # of KINSHIP: what servers differ by from the closed form of their steps
ANY: Final = "any"  # accelerator of constants that stand for none
OWN: Final = "roofcast"  # engine of the files that this tool's profiler writes
# engines that run alike: what one is not measured for is taken from the others of its row first
ALIKE: Final[tuple[frozenset[str], ...]] = (
    frozenset(("vllm", "sglang", "tensorrt-llm", "tgi", "lmdeploy")),
    frozenset(("llama.cpp", "ollama")),
    frozenset(("gpt-fast", "exllamav2", "mlc")),
    frozenset(("transformers",)),
)
#: engines that files can be of
ENGINES: Final = (*sorted(name for row in ALIKE for name in row), OWN)
USUAL: Final = ("vllm", "sglang", "tensorrt-llm", "llama.cpp")  # engines, the usual ones first
SAME: Final[Mapping[str, str]] = {"ollama": "llama.cpp"}  # engines that run another
SUFFIX: Final = ".yaml"  # of files in the user's folder
#: names of files that are fitted to all accelerators of a class
CLASSES: Final = frozenset(("gddr", "hbm", "lpddr", "apple", "amd", "intel"))
# how far a file's machine and engine are from those asked, nearest first
DISTANCES: Final = ("own", "class", "architecture", "memory", "hardware")
SOFTWARE: Final = ("same", "alike", "other")


class EfficiencyFileError(AcceleratorFileError):
    """A file that does not hold efficiencies; the message names it and every bad field."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A file and how near it is.

    Args:
        path: of the file.
        accelerator, engine: that it was fitted on, as its name says.
        hardware: own, class (fitted to all of one class), architecture (and the same kind of memory), memory (of the
            same kind, or architecture) or hardware.
        software: same, alike or other.
    """

    path: Path
    accelerator: str
    engine: str
    hardware: str
    software: str


def user_folder() -> Path:
    """Give the folder whose files override the built-in efficiencies by name."""
    return home_folder() / "efficiency"


def efficiency_files() -> dict[str, Path]:
    """Map `<id>.<engine>` to its file; the user's files come last and win.

    Raises:
        AcceleratorFileError: the user's folder is there and cannot be listed, or a file in it has a name under which
            nothing would ever ask for it.
    """
    files = {path.stem: path for path in sorted(BUILT_IN.glob("*.yaml"))}
    own = user_yaml(user_folder(), EfficiencyFileError)
    for path in own:
        _refuse_stray(path)
    # by its lower-case name, so that a file named otherwise is refused where it would count, and not passed over
    return files | {path.stem.lower(): path for path in own}


def _refuse_stray(path: Path) -> None:
    """Refuse a user's file that is named after no accelerator, or after no engine."""
    identity, engine = _split(path.stem.lower())
    if engine not in ENGINES:
        raise EfficiencyFileError(
            f"{path}: is named after no engine; name it ACCELERATOR.ENGINE.yaml, an engine of {', '.join(ENGINES)}"
        )
    known = CLASSES | accelerator_files().keys()
    if identity not in known:
        import difflib  # noqa: PLC0415 - only errors need it

        near = difflib.get_close_matches(identity, sorted(known), 1)
        hint = f"; nearest: {near[0]}.{engine}.yaml" if near else ""
        raise EfficiencyFileError(f"{path}: is named after no accelerator that `roofcast gpus` lists{hint}")


@cache
def read_efficiency(path: Path) -> Efficiency:
    """Read one file of fitted constants.

    Raises:
        EfficiencyFileError: not readable, not YAML, or fields missing, unknown or malformed, which are all named; in the
            user's folder also a name that is not what the file says of itself.
    """
    from pydantic import ValidationError

    from roofcast.hwdb.efficiency import Efficiency  # noqa: PLC0415 - pydantic loads with it

    try:
        named = path.parent != BUILT_IN and path.parent == user_folder()
        fields = _fields(path, named=named)
        made = Efficiency.model_validate(fields)
    except ValidationError as error:
        raise EfficiencyFileError(f"{path}: {validation_problems(error, Efficiency)}") from error
    except AcceleratorFileError as error:
        raise EfficiencyFileError(str(error)) from error
    if named:
        _refuse_name(path, made)
    return made


def _fields(path: Path, *, named: bool) -> dict[str, Any]:
    """The fields of a file, not yet checked; `named`: whether its name must be in lower case and its alone."""
    text, own = read_text(path, named=named), path.parent == BUILT_IN
    fields = read_yaml(path, text, FIELDS, own=own)
    if not own:
        refuse_spellings(path, text, "90 or 3.0e-6")
    return fields


def _refuse_name(path: Path, made: Efficiency) -> None:
    """Refuse a user's file whose name is not what it says of itself."""
    said = f"{made.accelerator}.{made.engine}"
    if said != path.stem:
        raise EfficiencyFileError(
            f"{path}: accelerator and engine are {said[:80]!r}; they must be {path.stem!r}, the file's name"
        )
    if path.suffix != SUFFIX:
        raise EfficiencyFileError(f"{path}: name the file {path.stem}{SUFFIX}")


@cache
def kinship() -> Mapping[str, float]:
    """What a spread grows by, squared and summed, for each way in which constants are another machine's or engine's. [-]"""
    table: dict[str, float] = json.loads((BUILT_IN / KINSHIP).read_text(encoding="utf-8"))["spread"]
    return table


def usual_engine(accelerator: Accelerator) -> str:
    """The engine that is taken where none is named: vLLM or the next of `USUAL` that was measured there.

    Where none was, llama.cpp on shared memory (LPDDR), else vLLM.

    >>> from roofcast.hwdb.lookup import find_accelerator
    >>> [usual_engine(find_accelerator(name).accelerator) for name in ("h200", "rtx-4090", "apple-m4-max", "b200")]
    ['vllm', 'llama.cpp', 'llama.cpp', 'vllm']
    """
    measured = {name[len(accelerator.id) + 1 :] for name in efficiency_files() if name.startswith(f"{accelerator.id}.")}
    found = next((engine for engine in USUAL if engine in measured), None)
    return found or (USUAL[-1] if memory_kind(accelerator) == "lpddr" else USUAL[0])


def candidates(accelerator: Accelerator, engine: str) -> tuple[Candidate, ...]:
    """Every file, the nearest first: an engine's own before those alike, then by hardware, then by bandwidth.

    Raises:
        AcceleratorFileError: the user's folder cannot be listed.

    >>> from roofcast.hwdb.lookup import find_accelerator
    >>> first = candidates(find_accelerator("h100-pcie").accelerator, "vllm")[0]
    >>> first.accelerator, first.hardware, first.software
    ('h100-sxm', 'architecture', 'same')
    """
    made = []
    for name, path in efficiency_files().items():
        identity, runs = _split(name)
        found = hardware(accelerator, identity)
        if found is not None:
            made.append((Candidate(path, identity, runs, found[0], _software(engine, runs, path)), found[1]))
    made.sort(key=lambda pair: (_rank(pair[0]), pair[1], _own(pair[0]), pair[0].engine != engine, pair[0].path.name))
    return tuple(one for one, _ in made)


def _own(one: Candidate) -> int:
    """What the user measured comes before what else is as near; what we measured on a machine of ours after it."""
    if one.engine != OWN:
        return 0
    return -1 if one.software == "same" else 1


def given(accelerator: Accelerator, engine: str, own: Efficiency) -> Candidate | None:
    """How near a file is that the user names, by what it says of itself; None of one that is of any machine."""
    if own.accelerator == ANY:
        return None
    near = hardware(accelerator, own.accelerator) or ("hardware", 0.0)
    software = "same" if own.engine == OWN else _software(engine, own.engine, BUILT_IN)
    return Candidate(BUILT_IN, own.accelerator, own.engine, near[0], software)


def _rank(one: Candidate) -> tuple[int, int]:
    return SOFTWARE.index(one.software), DISTANCES.index(one.hardware)


def _split(name: str) -> tuple[str, str]:
    """The id and the engine of a file's name, which both may have points; no engine where none ends it.

    >>> _split("rtx-4090.llama.cpp"), _split("my-1.5.vllm"), _split("my-1.5")
    (('rtx-4090', 'llama.cpp'), ('my-1.5', 'vllm'), ('my-1.5', ''))
    """
    engine = next((one for one in ENGINES if name.endswith(f".{one}")), "")
    return name.removesuffix(f".{engine}"), engine


@cache
def _known(identity: str) -> Accelerator | None:
    """The accelerator that a file is of; None where it is not there any more."""
    path = accelerator_files().get(identity)
    return None if path is None else read_accelerator(path)


def _software(asked: str, runs: str, path: Path) -> str:
    """How near a file's engine is; what the user measured on this machine counts for every engine."""
    asked, named = SAME.get(asked, asked), asked
    if runs in {asked, named} or (runs == OWN and path.parent != BUILT_IN):
        return "same"
    return "alike" if runs == OWN or any({asked, runs} <= row for row in ALIKE) else "other"


def hardware(asked: Accelerator, identity: str) -> tuple[str, float] | None:
    """How near a file's machine is, and how far apart the bandwidths are: |ln ratio|; None of one that is not known."""
    if identity in CLASSES:
        return ("class", 0.0) if identity == kind_of(asked) else None
    other = _known(identity)
    if other is None:
        return None
    apart = abs(math.log(asked.bandwidth / other.bandwidth))
    if asked.id == other.id:
        return "own", 0.0
    alike = asked.architecture == other.architecture and asked.architecture is not None
    memory = memory_kind(asked) == memory_kind(other)
    memory = memory and asked.vendor == other.vendor
    return ("architecture" if alike and memory else "memory" if alike or memory else "hardware"), apart


def kind_of(accelerator: Accelerator) -> str:
    """The class of an accelerator whose members priors are fitted to: NVIDIA's by kind of memory, others by vendor.

    >>> from roofcast.hwdb.lookup import find_accelerator
    >>> kind_of(find_accelerator("rtx-4090").accelerator), kind_of(find_accelerator("mi300x").accelerator)
    ('gddr', 'amd')
    """
    vendor = str(accelerator.vendor)
    return memory_kind(accelerator) or vendor if vendor == "nvidia" else vendor


def memory_kind(accelerator: Accelerator) -> str:
    """Kind of memory: hbm, gddr, lpddr, ddr; empty where it is not known.

    >>> from roofcast.hwdb.lookup import find_accelerator
    >>> memory_kind(find_accelerator("rtx-4090").accelerator)
    'gddr'
    """
    found = re.match("[a-z]+", (accelerator.memory_type or "").lower())
    return found[0] if found else ""
