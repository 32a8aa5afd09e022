"""What `simulate` puts together: a deployment under its engine's rules, what is sent to it, and what is promised."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from roofcast.calculators.answer import remarks
from roofcast.calculators.errors import UsageError
from roofcast.cli import options
from roofcast.cli.asked_deployment import time_limit
from roofcast.cli.loading import SEARCHED
from roofcast.cli.progress import progress_of
from roofcast.cli.session import refuse_assumed
from roofcast.cli.writing import check_target, under, write_file

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from roofcast.calculators.answer import Remarks
    from roofcast.calculators.check_quantities import Case
    from roofcast.calculators.serving.job import Job, Load
    from roofcast.calculators.serving.result import Goal, SimulateResult
    from roofcast.calculators.serving.service import Options, Service
    from roofcast.cli.asked_deployment import AskedDeployment
    from roofcast.cli.loading import AskedLoad
    from roofcast.cli.progress import ShardProgress
    from roofcast.cli.session import Output
    from roofcast.reports.document import Document

MOST_REPLICAS: Final = 4096
MOST_ROWS: Final = 64  # samples or beams of a request
EVERY: Final = 1000  # requests between two looks at the progress bar
MOST_SUMMED: Final = 100_000  # requests of a trace that is read once more to be summed up
SERIES_ENDING: Final = ".csv"
#: flags of engines that simulation takes without one -> what they limit
LIMITS: Final = {
    "max_num_seqs": "sequences",
    "max_num_batched_tokens": "tokens",
    "max_model_len": "longest",
    "block_size": "block",
}
OFF: Final = "off"
UNLIMITED: Final = "unlimited"
#: engine -> its prefix cache; hashed blocks elsewhere
CACHES: Final[Mapping[str, str]] = {"sglang": "radix"}
#: option -> what it may be, beside what tables of the simulator list
CHOICES: Final[Mapping[str, tuple[str, ...]]] = {
    "order": ("fifo", "prefix"),
    "preemption": ("recompute", "swap"),
    "prefix_memory": ("shared", UNLIMITED),
}


@dataclass(frozen=True, slots=True)
class AskedGoal:
    """What is promised, as options give it."""

    ttft: str | None = None
    tpot: str | None = None
    itl: str | None = None
    percentile: float | None = None

    def goal(self) -> Goal:
        """The promise.

        Raises:
            UnitError, UsageError: no time, or a percentile of nothing.
        """
        from roofcast.calculators.serving.result import Goal

        ttft, tpot = time_limit(self.ttft, "--ttft", "500ms"), time_limit(self.tpot, "--tpot", "50ms")
        itl = time_limit(self.itl, "--itl", "100ms")
        if self.percentile is None:
            return Goal(ttft, tpot, itl)
        if not 0 < self.percentile <= 100:  # noqa: PLR2004
            raise UsageError(f"--percentile {self.percentile:g}: it must be above 0 and at most 100, such as 99")
        if ttft is tpot is itl is None:
            raise UsageError(f"--percentile {self.percentile:g}: nothing is promised; give --ttft, --tpot or --itl too")
        return Goal(ttft, tpot, itl, self.percentile)


@dataclass(frozen=True, slots=True)
class AskedScheduling:
    """How requests are scheduled and their memory is handed out, as options give it; None is a default."""

    policy: str | None = None
    order: str | None = None
    routing: str | None = None
    prefill_replicas: int | None = None
    decode_replicas: int | None = None
    kv_link: str | None = None
    kv_memory: str | None = None
    preemption: str | None = None
    host_link: str | None = None
    prefix_cache: str | None = None
    prefix_memory: str | None = None
    acceptance: str | None = None
    draft_cost: str | None = None
    samples: int | None = None
    beams: int | None = None

    def options(self, case: Case, load: Load) -> Options:
        """The same as the simulator takes it.

        Args:
            case: the deployment, whose engine has defaults.
            load: what is sent, which may say what prompts share.

        Raises:
            UsageError, UnitError: naming the option.
        """
        from roofcast.calculators.serving.service import DEFAULT
        from roofcast.cli.speculation_numbers import number_of

        self._check()
        asked = {
            "policy": self.policy,
            "order": self.order,
            "routing": self.routing,
            "kv_memory": self.kv_memory,
            "preemption": self.preemption,
            "host_link": options.link_bandwidth(self.host_link, "--host-link"),
            "kv_link": options.link_bandwidth(self.kv_link, "--kv-link"),
            "readers": self.prefill_replicas,
            "writers": self.decode_replicas,
            "drafted": case.flags.num_speculative_tokens,
            "acceptance": None if self.acceptance is None else options.portion(self.acceptance, "--acceptance"),
            "draft_cost": None
            if self.draft_cost is None
            else number_of(self.draft_cost, self.draft_cost, "--draft-cost"),
            "samples": self.samples,
            "beams": self.beams,
        }
        given: dict[str, Any] = {name: value for name, value in asked.items() if value is not None}
        cache = self._cache(case, load)
        return replace(DEFAULT, **given, prefix_cache=cache, prefix_apart=self.prefix_memory == UNLIMITED)

    def _check(self) -> None:
        """Refuses names that are not known, numbers that cannot be, and what means nothing without another option.

        Raises:
            UsageError: naming the option.
        """
        from roofcast.calculators.serving.cluster import ROUTES
        from roofcast.calculators.serving.contiguous import RESERVATIONS
        from roofcast.calculators.serving.memory import PAGED
        from roofcast.calculators.serving.policies import POLICIES
        from roofcast.calculators.serving.simulate import CACHES as KINDS

        known = {
            **CHOICES, "policy": tuple(POLICIES), "routing": tuple(ROUTES), "kv_memory": (PAGED, *RESERVATIONS),
            "prefix_cache": (OFF, *KINDS),
        }  # fmt: skip
        for name, names in known.items():
            value = getattr(self, name)
            if value is not None and value not in names:
                raise UsageError(f"{_option(name)} {value}: known: {', '.join(names)}")
        for name, most in (
            ("prefill_replicas", MOST_REPLICAS), ("decode_replicas", MOST_REPLICAS), ("samples", MOST_ROWS),
            ("beams", MOST_ROWS),
        ):  # fmt: skip
            value = getattr(self, name)
            if value is not None and not 1 <= value <= most:
                raise UsageError(f"{_option(name)} {value:,}: it must be from 1 to {most:,}")
        for name, needed in (("kv_link", "prefill_replicas"), ("draft_cost", "acceptance")):
            if getattr(self, name) is not None and getattr(self, needed) is None:
                raise UsageError(f"{_option(name)} means nothing without {_option(needed)}")
        if self.host_link is not None and self.preemption != "swap":
            raise UsageError("--host-link is what swapping takes; give --preemption swap too")

    def _cache(self, case: Case, load: Load) -> str:
        """The prefix cache: as asked, else the engine's where it is known what prompts share and blocks can be shared."""
        from roofcast.calculators.serving.memory import PAGED

        known = load.hash_tokens is not None
        if self.prefix_cache not in {None, OFF} and not known:
            raise UsageError(
                f"--prefix-cache {self.prefix_cache}: nothing is known of what prompts share; give a --trace with hashes or "
                "--shared-prefix"
            )
        usual = CACHES.get(case.engine, "blocks") if known and self.kv_memory in {None, PAGED} else OFF
        found = self.prefix_cache or usual
        if self.prefix_memory is not None and found == OFF:
            raise UsageError(f"--prefix-memory {self.prefix_memory}: there is no prefix cache")
        return found


@dataclass(frozen=True, slots=True)
class AskedSimulate:
    """A deployment, its load, how it is scheduled, and what is promised."""

    deployed: AskedDeployment
    load: AskedLoad
    scheduling: AskedScheduling
    goal: AskedGoal


def _option(name: str) -> str:
    return "--" + name.replace("_", "-")


def simulated(asked: AskedSimulate) -> Document:
    """Every request of a load, from its coming to its last token.

    Raises:
        ModelError, UsageError, UnitError, UnknownAcceleratorError: what is wrong with what is asked.
    """
    from roofcast.calculators.serving.service import service_of
    from roofcast.cli.checking import Setups
    from roofcast.cli.deploy import efficiency_of
    from roofcast.reports.simulate import simulate_document

    goal, constants = asked.goal.goal(), efficiency_of(asked.deployed.efficiency)
    searched = asked.load.rate == SEARCHED
    if searched and not goal.given:
        raise UsageError("--rate max finds the most that keep a promise; give --ttft, --tpot or --itl too")
    load = asked.load.load(1.0 if searched else None)
    deployed, limits = without_engine(asked.deployed.placed())
    asked = replace(asked, deployed=deployed)
    case = asked.deployed.case(modelled=False)
    setups = Setups(constants, asked.deployed.lookup.offline)
    wanted = replace(asked.scheduling.options(case, load), **limits, kv_tokens=setups.plain_tokens(case))
    served, memory = setups.served(case)
    service, said = service_of(served, memory, wanted)
    result, of_run = _most(service, asked.load, goal) if searched and not service.reason else _run(service, load, goal)
    setups.note(case, in_memory=memory is not None, contexts=())
    said += of_run + setups.said + setups.of_models() + _undrafted(wanted)
    return simulate_document(result, _inputs(asked, case, service, goal), said)


def without_engine(deployed: AskedDeployment) -> tuple[AskedDeployment, dict[str, Any]]:
    """Without an engine, the flags that limit its scheduling: here they are the service's own.

    Raises:
        UsageError, UnitError: a value that cannot be.
    """
    from roofcast.cli.engine_flags import read_flags

    if deployed.machine.engine != "none":
        return deployed, {}
    given = {name: text for name, text in deployed.flags.items() if name in LIMITS and text is not None}
    flags = read_flags(given, {})
    left = {name: text for name, text in deployed.flags.items() if name not in given}
    return replace(deployed, flags=left), {LIMITS[name]: getattr(flags, name) for name in given}


def _run(service: Service, load: Load, goal: Goal) -> tuple[SimulateResult, Remarks]:
    """The simulation, with a bar of its requests on a terminal."""
    from roofcast.calculators.serving.simulate import simulate
    from roofcast.calculators.serving.trace_summary import trace_summary

    with progress_of("simulated requests") as bar:
        shown = load if bar is None else replace(load, jobs=lambda: _counted(load, bar))
        result, said = simulate(service, shown, goal)
    traced = load.count is None and 0 < result.requests <= MOST_SUMMED
    return (replace(result, trace=trace_summary(load.jobs(), load.hash_tokens)) if traced else result), said


def _most(service: Service, asked: AskedLoad, goal: Goal) -> tuple[SimulateResult, Remarks]:
    """The simulation at the highest rate that keeps the promise with a queue that does not grow; else at the least tried."""
    from roofcast.calculators.serving.highest import highest
    from roofcast.calculators.serving.simulate import simulate

    best: dict[bool, tuple[SimulateResult, Remarks]] = {}

    def keeps(rate: float) -> bool:
        result, said = simulate(service, asked.load(rate), goal)
        best[result.keeps] = result, said  # rates that keep it rise from try to try
        if bar is not None:
            bar.advance()
        return result.keeps

    with progress_of("rates tried") as bar:
        if bar is not None:
            bar.start(None)
        found = highest(keeps)
    if found.rate is None:
        result, said = best[False]
        return result, said + remarks(warnings=["no rate keeps the promise: this is the lowest that was tried"])
    result, said = best[True]
    if found.beyond is None:
        said += remarks(
            warnings=["even the highest rate keeps the promise: there are too few requests; --requests gives more"]
        )
    return replace(result, most_requests_per_second=found.rate), said


def _counted(load: Load, bar: ShardProgress) -> Iterator[Job]:
    """The requests, with a look at the bar every thousand."""
    for number, job in enumerate(load.jobs()):
        if number % EVERY == 0:
            bar.at("simulated requests", number, None)
        yield job


def _undrafted(wanted: Options) -> Remarks:
    """Where layers that draft take memory and nothing is drafted."""
    if not wanted.drafted or wanted.acceptance is not None:
        return remarks()
    return remarks(warnings=["no token is drafted without --acceptance; layers that draft take memory all the same"])


def _inputs(asked: AskedSimulate, case: Case, service: Service, goal: Goal) -> dict[str, object]:
    """What is asked, as `inputs` repeats it."""
    wanted, scheduling = service.options, service.scheduling
    return {
        **asked.deployed.inputs(case, service.ready),
        **asked.load.inputs,
        "policy": scheduling.policy,
        "order": scheduling.order,
        "routing": wanted.routing,
        "prefill_replicas": wanted.readers or None,
        "decode_replicas": wanted.writers or None,
        "kv_link_bytes_per_second": wanted.kv_link,
        "kv_memory": wanted.kv_memory,
        "preemption": wanted.preemption,
        "host_link_bytes_per_second": wanted.host_link if wanted.preemption == "swap" else None,
        "prefix_cache": wanted.prefix_cache,
        "prefix_memory": None if wanted.prefix_cache == OFF else UNLIMITED if wanted.prefix_apart else "shared",
        "acceptance": wanted.acceptance,
        "draft_cost": wanted.draft_cost if wanted.acceptance is not None else None,
        "samples": wanted.samples,
        "beams": wanted.beams,
        **{
            f"{name.removesuffix('_seconds')}_limit_seconds": value
            for name, value in asdict(goal).items()
            if name != "percentile"
        },
        "percentile": goal.percentile,
        "efficiency": asked.deployed.efficiency,
    }


def check_series(series: str | None, out: str | None, read: Sequence[str]) -> None:
    """Refuses a file of the time series that cannot or must not be written, before any work is done.

    Raises:
        UsageError: its ending is not .csv, it is --out, or no file can be there.
    """
    if series is None:
        return
    if Path(series).suffix.lower() != SERIES_ENDING:
        raise UsageError(f"--series {series}: it is written as CSV; name a file that ends in {SERIES_ENDING}")
    try:
        target = Path(series).resolve()
        same = out is not None and Path(out).resolve() == target
        under("--series", lambda: check_target(target, series, read))
    except UsageError:
        raise
    except (OSError, RuntimeError, ValueError) as error:
        raise UsageError(f"--series {series}: {getattr(error, 'strerror', None) or error}") from error
    if same:
        raise UsageError(f"--series {series}: --out writes that file; name another one")


def write_series(document: Document, series: str | None, output: Output) -> None:
    """Writes what went on over time, where that is asked.

    Raises:
        StrictError: something was assumed.
        UsageError: the file cannot be written.
    """
    from roofcast.reports.simulate import series_csv

    if series is None:
        return
    refuse_assumed(document, output)
    under("--series", lambda: write_file(Path(series), series_csv(document.result)))
