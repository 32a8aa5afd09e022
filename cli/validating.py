"""What `validate` needs of the outside: files of measurements, and the deployments that they were measured on."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from roofcast.calculators.cache_format import ENGINES
from roofcast.calculators.errors import UsageError
from roofcast.calculators.measurement_file import LARGEST
from roofcast.cli.deploy import Machine, deploy, expecting
from roofcast.cli.session import Lookup

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from roofcast.calculators.answer import Remarks
    from roofcast.calculators.deployment import Ready
    from roofcast.calculators.measurement import Measurement, Reading
    from roofcast.cli.deploy import Efficiencies

STDIN = "-"


@dataclass(slots=True)
class Setups:
    """Deployments of points, each prepared once.

    Args:
        efficiencies: constants of expected times.
        offline: whether nothing is asked of the network.
    """

    efficiencies: Efficiencies
    offline: bool
    known: dict[tuple[object, ...], Ready | Exception] = field(default_factory=dict)

    def ready(self, point: Measurement) -> Ready:
        """The deployment that a point was measured on.

        Raises:
            ModelError, UsageError, UnknownAcceleratorError: what of it is not known.
        """
        layout = point.tp, point.pp, point.ep, point.dp
        key = point.model, point.revision, point.gpu, *layout, point.engine, point.weights, point.kv
        if key not in self.known:
            try:
                self.known[key] = self._made(point)
            except (ValueError, LookupError, OSError) as error:
                self.known[key] = error
        found = self.known[key]
        if isinstance(found, Exception):
            raise found
        return found

    def _made(self, point: Measurement) -> Ready:
        shares = point.tp, point.pp or 1, point.ep or 1, point.dp or 1
        engine = point.engine if point.engine in ENGINES else "none"
        machine = Machine(point.gpu, None, *shares, network=None, engine=engine)
        lookup = Lookup(point.revision, self.offline)
        return expecting(deploy(point.model or "", lookup, machine, point.weights, point.kv), self.efficiencies).ready


def gathered(files: Sequence[str], given: Mapping[str, str | float]) -> tuple[list[Measurement], Remarks]:
    """The points of files, with what the command line states; without files those that are published with roofcast.

    Raises:
        MeasurementFileError, UsageError: a file that cannot be read.
    """
    from roofcast.calculators.answer import remarks
    from roofcast.calculators.measurement import complete
    from roofcast.calculators.measurement_file import decode, read_measurements

    readings = [read_measurements(decode(_content(name), name), name) for name in files]
    readings = readings or [_published()]
    points = [point for reading in readings for point in reading.points]
    done = complete(points, given)
    said = [line for reading in readings for line in reading.remarks]
    return list(done.points), remarks(done.assumed, said, done.given)


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
