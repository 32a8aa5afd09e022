"""What `validate` needs of the outside: files of measurements, and the deployments that they were measured on."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from roofcast.calculators.answer import Remarks
from roofcast.calculators.cache_format import ENGINES, check_engine
from roofcast.calculators.errors import UnansweredError, UsageError
from roofcast.calculators.measurement_file import LARGEST
from roofcast.cli import options
from roofcast.cli.deploy import Machine, deploy, expecting
from roofcast.cli.errors import OK, exit_code
from roofcast.cli.machine import find_machine
from roofcast.cli.session import Lookup, formats, load_all
from roofcast.hwdb.efficiency_files import OWN, EfficiencyFileError
from roofcast.modelspec.errors import ModelError
from roofcast.modelspec.known import find_known

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from roofcast.calculators.deployment import Ready
    from roofcast.calculators.measurement import Measurement, Reading
    from roofcast.cli.deploy import Efficiencies

STDIN = "-"
MOST_NAMED = 5  # engines in a remark
MANY = 50  # points that take about a second


@dataclass(slots=True)
class Setups:
    """Deployments of points, each prepared once.

    Args:
        efficiencies: constants of expected times.
        offline: whether nothing is asked of the network.
        known: deployments by what makes them, or what is wrong with them.
        said: what should be said of those that there are.
        codes: exit codes of those that there are not.
    """

    efficiencies: Efficiencies
    offline: bool
    known: dict[tuple[object, ...], Ready | Exception] = field(default_factory=dict)
    said: Remarks = field(default_factory=Remarks)
    codes: set[int] = field(default_factory=set)

    def ready(self, point: Measurement) -> Ready:
        """The deployment that a point was measured on.

        Raises:
            UnansweredError: what of it is not known.
        """
        layout = point.tp, point.pp, point.ep, point.dp
        key = point.model, point.revision, point.gpu, *layout, point.engine, point.weights, point.kv
        if key not in self.known:
            try:
                self.known[key] = self._made(point)
            except Exception as error:
                code = exit_code(error)
                if code is None or isinstance(error, EfficiencyFileError):  # a fault of our own, or of every point
                    raise
                self.codes.add(code)
                hint = "; --model names what the points are of" if isinstance(error, ModelError) else ""
                self.known[key] = UnansweredError(f"{error}{hint}")
        found = self.known[key]
        if isinstance(found, Exception):
            raise found
        return found

    def _made(self, point: Measurement) -> Ready:
        shares = point.tp, point.pp or 1, point.ep or 1, point.dp or 1
        engine = point.engine if point.engine in ENGINES else "none"
        machine = Machine(point.gpu, None, *shares, network=None, engine=engine)
        lookup = Lookup(point.revision, self.offline)
        made = deploy(point.model or "", lookup, machine, point.weights, point.kv)
        self.said += made.remarks
        if point.engine == OWN:  # no engine that serves, but one whose constants there are
            deployment = replace(made.ready.deployment, engine=OWN)
            made = replace(made, ready=replace(made.ready, deployment=deployment))
        return expecting(made, self.efficiencies).ready


@dataclass(frozen=True, slots=True)
class Gathered:
    """Measured points.

    Args:
        points: of all files that can be read, with what the command line states.
        remarks: how they were read and completed.
        code: exit code of the files; another than 0 where one of them was complained of.
    """

    points: tuple[Measurement, ...]
    remarks: Remarks
    code: int


@dataclass(frozen=True, slots=True)
class Unstated:
    """What points are taken to be of, where their files do not say so.

    Args:
        own: fields, each by itself.
        shared: devices and how they share a model, where a file says nothing of either.
    """

    own: Mapping[str, str | None]
    shared: Mapping[str, int]

    def filled(self, points: Sequence[Measurement]) -> tuple[list[Measurement], list[str]]:
        """The points, and what was taken."""
        taken: dict[str, None] = {}
        made = []
        for point in points:
            lacking: dict[str, str | int] = {
                name: value for name, value in self.own.items() if value and getattr(point, name) is None
            }
            if all(getattr(point, name) is None for name in self.shared):
                lacking |= self.shared
            taken |= dict.fromkeys(f"{name} {value}" for name, value in lacking.items())
            made.append(replace(point, **lacking))  # type: ignore[arg-type] # fields by their names
        return made, [f"not stated in the files, and taken from the deployment: {', '.join(taken)}"] if taken else []


def gathered(files: Sequence[str], given: Mapping[str, str | float], unstated: Unstated | None = None) -> Gathered:
    """The points of files, with what is given for all of them; files that cannot be read are named.

    Without files those that are published with roofcast, of which what is given selects.

    Raises:
        UsageError: no published point is of that.
    """
    from roofcast.calculators.answer import remarks
    from roofcast.calculators.measurement import complete
    from roofcast.calculators.measurement_file import decode, read_measurements

    readings: list[Reading] = [] if files else [_published()]

    def read(name: str) -> None:
        readings.append(read_measurements(decode(_content(name), name), name))

    code = load_all(files, read) if files else OK
    points = [point for reading in readings for point in reading.points]
    said = [line for reading in readings for line in reading.remarks]
    if unstated is not None:
        points, taken = unstated.filled(points)
        said += taken
    done = complete(points, given if files else {})
    if not files:
        done = replace(done, points=tuple(_selected(done.points, given)))
    return Gathered(done.points, remarks([*done.assumed, _no_engine(done.points)], said, done.given), code)


def _selected(points: Sequence[Measurement], wanted: Mapping[str, str | float]) -> list[Measurement]:
    """Published points whose own fields are as is given; accelerators and models go by any of their names.

    Raises:
        UsageError: there is none.
    """
    own = dict(wanted)
    if "gpu" in wanted:
        own["gpu"] = find_machine(str(wanted["gpu"])).accelerator.id
    if "model" in wanted and (known := find_known(str(wanted["model"]))):
        own["model"] = known.name
    found = [point for point in points if all(getattr(point, name) == value for name, value in own.items())]
    if not found:
        said = ", ".join(f"--{name} {value}" for name, value in wanted.items())
        raise UsageError(f"no published figure is of {said}; name a FILE of your own, or leave some of it out")
    return found


def _no_engine(points: Sequence[Measurement]) -> str | None:
    """How many points ran an engine that roofcast does not know, or name none."""
    lost = [point.engine or "not stated" for point in points if point.engine not in {*ENGINES, OWN}]
    if not lost:
        return None
    names = ", ".join(sorted(set(lost))[:MOST_NAMED])
    return f"engine: {len(lost):,} of {len(points):,} points ran none that is known ({names}): the usual one of the GPU is taken"


def asked_of(given: Mapping[str, str | float]) -> None:
    """Refuses what the command line states and cannot be, before any file is read.

    Raises:
        UnitError, UnknownAcceleratorError, UnknownFormatError, UsageError: naming the option.
    """
    for name in ("gpus", "tp", "pp", "ep", "dp", "batch", "prompt", "output"):
        if name in given:
            options.size(int(given[name]), f"--{name}")
    check_engine(str(given.get("engine", "none")))
    if "gpu" in given:
        find_machine(str(given["gpu"]))
    weights, kv = (str(given[name]) if name in given else None for name in ("weights", "kv"))
    formats(weights, kv)


def progressing(points: Sequence[Measurement]) -> Iterator[Measurement]:
    """The points one by one, counted by a bar where stderr is a terminal and there are many."""
    from roofcast.cli.progress import progress_of

    with progress_of("points") as bar:
        if bar is not None and len(points) >= MANY:
            bar.start(len(points))
        for point in points:
            yield point
            if bar is not None:
                bar.advance()


def _published() -> Reading:
    """The figures that come with roofcast; each has its own link."""
    from importlib.resources import files

    from roofcast.calculators.measurement_file import PUBLISHED, read_measurements

    return read_measurements(files("roofcast.calculators").joinpath(PUBLISHED).read_text(encoding="utf-8"), PUBLISHED)


def _content(name: str) -> bytes:
    """Bytes of a file, or of standard input.

    Raises:
        UsageError: it cannot be read, or is too large.
    """
    try:
        if name == STDIN:
            if sys.stdin is None:
                raise UsageError("-: standard input is closed")
            found = sys.stdin.buffer.read(LARGEST + 1)
        elif Path(name).is_dir():
            raise UsageError(f"{name}: it is a folder; name the files in it")
        else:
            with Path(name).open("rb") as file:
                found = file.read(LARGEST + 1)
    except OSError as error:
        raise UsageError(f"{name}: it cannot be read ({error.strerror or error})") from error
    except ValueError as error:  # a name with a NUL byte
        if isinstance(error, UsageError):
            raise
        raise UsageError(f"{name!r}: it cannot be read ({error})") from error
    if len(found) > LARGEST:
        raise UsageError(f"{name}: it is larger than {LARGEST // 1_000_000} MB")
    return found
