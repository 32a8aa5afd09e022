"""Workloads of `plan`: what is sent and promised, from options or from a file of several."""

from __future__ import annotations

import re
from dataclasses import dataclass, fields, replace
from itertools import islice
from math import ceil
from typing import TYPE_CHECKING, Any, Final

from roofcast.calculators.errors import UsageError
from roofcast.cli.loading import SEARCHED, AskedLoad
from roofcast.cli.options import size
from roofcast.cli.simulating import AskedGoal
from roofcast.hwdb.units import UnitError, parse_duration

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from roofcast.calculators.planning.demand import Demand
    from roofcast.calculators.planning.sends import Sends

MOST_WORKLOADS: Final = 100
ROUND: Final = 1024  # tokens to which the longest request is rounded up [token]
LOAD_FIELDS: Final = tuple(one.name for one in fields(AskedLoad) if one.name not in {"sources", "seed"})
GOAL_FIELDS: Final = tuple(one.name for one in fields(AskedGoal))
FIELDS: Final = ("name", *LOAD_FIELDS, *GOAL_FIELDS, "deadline")
#: fields that hold whole numbers, and those that hold any; the rest is text, and numbers are taken as such
WHOLE: Final = frozenset(("requests", "concurrency", "prefix_groups", "hash_tokens", "warm_up"))
NUMBERS: Final = frozenset(("scale", "burstiness", "percentile"))


@dataclass(frozen=True, slots=True)
class AskedDemand:
    """A workload, as options or a file give it.

    Args:
        load: what is sent.
        goal: what is promised.
        deadline: of a job of so many requests.
        name: as the file has it; empty of options.
    """

    load: AskedLoad
    goal: AskedGoal
    deadline: str | None = None
    name: str = ""

    def check(self) -> None:
        """Refuses what cannot be, before a model is read.

        Raises:
            UsageError, UnitError: naming the workload, where it has a name, and the option.
        """
        try:
            self.goal.goal()
            load, job = self._jobbed()
            if job is None:
                load.check()
            _check_rate(load.rate)
        except (UsageError, UnitError) as error:
            raise (type(error)(f"{self.name}: {error}") if self.name else error) from error

    def demand(self) -> Demand:
        """The workload.

        Raises:
            UsageError, UnitError: naming the option.
        """
        from roofcast.calculators.planning.demand import Demand, shape_of

        load, job = self._jobbed()
        if load.rate == SEARCHED:
            raise UsageError("--rate max: a plan is for a rate; --find rate looks for the most that a machine does")
        goal = self.goal.goal()
        sent = load.load()
        sends = sends_of(load) if job is None else job_of(load)
        shape = shape_of(sends.at(1.0, load.seed, None), goal.percentile)
        if goal.given and goal.ttft_seconds is None and not shape.steps:
            raise UsageError(
                "outputs of one token have no time between tokens: --tpot and --itl promise nothing; give --ttft"
            )
        name = sent.name
        if job is not None:
            name = f"{self.load.requests:,} requests within {self.deadline}, {sent.name.split('Poisson, ')[-1]}"
        return Demand(self.name or name, name, sends, goal, shape, load.seed, job)

    def _jobbed(self) -> tuple[AskedLoad, float | None]:
        """Of a job with a deadline the rate that it takes: requests / time. [1/s]"""
        if self.deadline is None:
            return self.load, None
        if self.goal.ttft is not None or self.goal.itl is not None:
            raise UsageError(
                "--deadline: a job's requests all wait from the first, so that no --ttft or --itl can be promised"
            )
        if self.load.burstiness is not None:
            raise UsageError(
                "--deadline and --burstiness: a job's requests are all there from the first; leave --burstiness out"
            )
        size(self.load.requests, "--requests")
        if self.load.requests is None:
            raise UsageError(f"--deadline {self.deadline}: of how many requests? give --requests too")
        for option in ("rate", "concurrency", "trace"):
            if getattr(self.load, option) is not None:
                raise UsageError(
                    f"--deadline and --{option}: a job's requests are all there from the first; give one of them"
                )
        if re.fullmatch(r"\s*[0-9.]+\s*", self.deadline):
            raise UnitError(f"--deadline {self.deadline}: of what? write it like 8h, 30min or 45s")
        try:
            seconds = parse_duration(self.deadline)
        except UnitError as error:
            raise UnitError(f"--deadline {error}") from error
        return replace(self.load, rate=repr(self.load.requests / seconds), requests=None), seconds


def _check_rate(rate: str | None) -> None:
    """Refuses a rate at which all come at once.

    Raises:
        UsageError: naming it.
    """
    if rate is not None and re.fullmatch(r"\s*\+?inf(inity)?\s*", rate.lower()):
        raise UsageError(f"--rate {rate}: a plan is for a load that goes on; a job is --requests N --deadline TIME")


def sends_of(asked: AskedLoad) -> Sends:
    """What is sent, so that it can be sent at another rate and with another chance.

    Raises:
        UsageError, UnitError: naming the option.
    """
    from roofcast.calculators.planning.sends import Clients, Rated, Recorded
    from roofcast.calculators.serving.lengths import pairs_of
    from roofcast.calculators.serving.loads import MOST_REQUESTS

    if asked.trace is not None:
        load = asked.load()
        jobs = tuple(islice(load.jobs(), asked.requests or MOST_REQUESTS))
        if asked.concurrency is not None:
            return Clients(pairs_of(jobs, load.name), asked.concurrency, None, asked.requests)
        return Recorded(load.name, jobs, load.hash_tokens)
    lengths, arrivals, shared = asked.parts()
    if asked.concurrency is not None:
        return Clients(lengths, asked.concurrency, shared, asked.requests)
    if arrivals is None:
        raise UsageError(
            "nothing is sent; give --rate R, --concurrency N, --trace FILE, or --requests N with --deadline T"
        )
    return Rated(lengths, arrivals, shared, asked.requests)


def job_of(asked: AskedLoad) -> Sends:
    """A job, whose requests are all there from the first."""
    from roofcast.calculators.planning.sends import Backlog

    lengths, arrivals, shared = asked.parts()
    return Backlog(lengths, arrivals.stretches[0].rate if arrivals is not None else 1.0, shared)


def longest_of(demand: Demand, most: int | None) -> int:
    """Tokens of the longest request that an engine is started for: of all trials' requests, rounded up. [token]"""
    from roofcast.calculators.planning.demand import shape_of

    loads = (demand.load(trial) for trial in demand.trials)
    found = max(shape_of(load, demand.goal.percentile).longest for load in loads)
    rounded = ceil(found / ROUND) * ROUND
    return rounded if most is None else min(rounded, most)


def read_workloads(path: str, base: AskedDemand) -> list[AskedDemand]:
    """Workloads of a YAML file: a list of mappings, each with a name and the options of `plan` that differ.

    Raises:
        UsageError: the file, and what is wrong in it.
    """
    from pathlib import Path

    from roofcast.hwdb.files import AcceleratorFileError, read_document, read_text

    try:
        raw = read_document(Path(path), read_text(Path(path), named=False), own=False)
    except (AcceleratorFileError, OSError, ValueError) as error:
        said = str(getattr(error, "strerror", None) or error).removeprefix(f"{path}: ")
        raise UsageError(f"--workloads {path}: {said}") from error
    if isinstance(raw, dict) and set(raw) == {"workloads"}:
        raw = raw["workloads"]
    if not isinstance(raw, list) or not raw:
        raise UsageError(
            f"--workloads {path}: it must be a list of workloads, such as '- {{name: chat, rate: 10, ttft: 500ms}}'"
        )
    if len(raw) > MOST_WORKLOADS:
        raise UsageError(f"--workloads {path}: {len(raw)} workloads; at most {MOST_WORKLOADS}")
    made = [_workload(path, number, one, base) for number, one in enumerate(raw, 1)]
    names = [one.name for one in made]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise UsageError(f"--workloads {path}: two workloads are called {twice!r}; give each a name of its own")
    return made


def _workload(path: str, number: int, raw: object, base: AskedDemand) -> AskedDemand:
    """One workload of a file."""
    where = f"--workloads {path}, workload {number}"
    if not isinstance(raw, dict):
        raise UsageError(f"{where}: it must be a mapping such as {{name: chat, rate: 10, ttft: 500ms}}")
    given = {str(key).replace("-", "_"): value for key, value in raw.items()}
    if len(given) < len(raw):
        raise UsageError(f"{where}: a field is written twice, once with - and once with _")
    strange = next((key for key in given if key not in FIELDS), None)
    if strange is not None:
        from difflib import get_close_matches

        near = get_close_matches(strange, FIELDS, 1)
        hint = f"; did you mean {near[0]}?" if near else f"; known: {', '.join(FIELDS)}"
        raise UsageError(f"{where}: {strange!r} is no field of a workload{hint}")
    values = {key: _value(where, key, value) for key, value in given.items() if value is not None}
    load = replace(_emptied(base.load, values), **{k: v for k, v in values.items() if k in LOAD_FIELDS})
    goal = replace(base.goal, **{k: v for k, v in values.items() if k in GOAL_FIELDS})
    deadline = values.get("deadline", base.deadline)
    return AskedDemand(load, goal, deadline, values.get("name") or f"workload {number}")


def _emptied(load: AskedLoad, values: Mapping[str, Any]) -> AskedLoad:
    """Defaults of the command line, without those that a workload's own kind of load replaces."""
    kinds = {"rate", "concurrency", "trace", "deadline"}
    if not kinds & values.keys():
        return load
    return replace(load, rate=None, concurrency=None, trace=None, sources={})


def _value(where: str, key: str, value: object) -> Any:  # noqa: ANN401 - of the field's kind
    """A value as its option takes it."""
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        raise UsageError(f"{where}: {key} must be a number or text, as --{key.replace('_', '-')} takes it")
    if key in WHOLE:
        if isinstance(value, int) or (isinstance(value, float) and value.is_integer()):
            return int(value)
        raise UsageError(f"{where}: {key} must be a whole number, not {value!r}")
    if key in NUMBERS:
        try:
            return float(value)
        except ValueError as error:
            raise UsageError(f"{where}: {key} must be a number, not {value!r}") from error
    return str(value)


def demands_of(every: Sequence[AskedDemand]) -> list[Demand]:
    """All workloads; what is wrong with one of a file names it.

    Raises:
        UsageError, UnitError: naming the workload, and the option.
    """
    made = []
    for one in every:
        try:
            made.append(one.demand())
        except (UsageError, UnitError) as error:
            raise (type(error)(f"{one.name}: {error}") if one.name else error) from error
    return made
