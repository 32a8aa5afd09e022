"""What commands share that put a model on a machine: options in, a deployment ready to be asked out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from roofcast.calculators.errors import UsageError
from roofcast.cli import options
from roofcast.cli.session import Lookup, formats, load

if TYPE_CHECKING:
    from pathlib import Path

    from roofcast.calculators.answer import Remarks
    from roofcast.calculators.deployment import Ready
    from roofcast.calculators.phases import Asked
    from roofcast.hwdb.lookup import Match
    from roofcast.modelspec.model import Model
    from roofcast.modelspec.sharding import Shards

EFFICIENCIES = ("expected", "bound")
DEFAULT_BATCHES = (1, 16, 64)
MOST_VALUES = 200  # of one option
MOST_ROWS = 2000


@dataclass(frozen=True, slots=True)
class Machine:
    """A machine as options describe it."""

    gpu: str | None
    gpus: int | None
    tp: int | None
    pp: int
    ep: int
    dp: int
    network: str | None
    engine: str

    def shards(self) -> Shards:
        """How the model is cut: --tp is what --gpus leaves where it is not given.

        Raises:
            UsageError: numbers that do not multiply to --gpus.
        """
        from roofcast.modelspec.sharding import Shards

        for option, value in (
            ("--gpus", self.gpus),
            ("--tp", self.tp),
            ("--pp", self.pp),
            ("--ep", self.ep),
            ("--dp", self.dp),
        ):
            options.size(value, option)
        others = self.pp * self.dp
        if self.tp is None and self.gpus is not None and self.gpus % others:
            raise UsageError(f"--gpus {self.gpus} is no multiple of --pp x --dp, {others}")
        tp = self.tp or (self.gpus // others if self.gpus else 1)
        if self.gpus is not None and tp * others != self.gpus:
            raise UsageError(
                f"--gpus {self.gpus} is not --tp x --pp x --dp, {tp * others}; leave it out, or give --pp or --dp the rest"
            )
        return Shards(tp, self.pp, self.ep, self.dp)


@dataclass(frozen=True, slots=True)
class Asking:
    """A deployment, ready, with what should be said of it and how it was asked for."""

    ready: Ready
    remarks: Remarks
    inputs: dict[str, object]


@dataclass(frozen=True, slots=True)
class Points:
    """Batches, contexts and prompts as options give them."""

    batch: str | None = None
    context: str | None = None
    prompt: str | None = None
    budget: str | None = None
    hit: str = "0%"

    def batches(self) -> list[int]:
        """Sequences at once: those asked, else 1, 16 and 64.

        Raises:
            UsageError: several hundred of them.
        """
        asked = options.batch_list(self.batch) or list(DEFAULT_BATCHES)
        return few_values(list(dict.fromkeys(asked)), "--batch")

    def contexts(self, phase: str, model: Model) -> list[int]:
        """Contexts of a phase: in prefill --prompt counts before --context, elsewhere after it."""
        from roofcast.calculators.remarks import contexts_of
        from roofcast.modelspec.step import PREFILL

        pair = ((self.prompt, "--prompt"), (self.context, "--context"))
        for text, option in pair if phase == PREFILL else reversed(pair):
            asked = options.token_list(text, option)
            if asked:
                return few_values(list(dict.fromkeys(asked)), option)
        return list(contexts_of(model, None))

    def asked(self, phases: tuple[str, ...], model: Model) -> list[Asked]:
        """Every phase at every context and batch."""
        from dataclasses import replace

        from roofcast.calculators.phases import asked_of
        from roofcast.modelspec.step import MIXED

        hit, beside = options.share(self.hit, "--prefix-hit"), self._beside() if MIXED in phases else None
        made = [
            asked
            for phase in phases
            for asked in asked_of((phase,), self.batches(), self.contexts(phase, model), budget=self.tokens, cached=hit)
        ]
        few_rows(len(made), "--batch and --context")
        return [replace(asked, prompt=beside) if asked.phase == MIXED else asked for asked in made]

    @property
    def tokens(self) -> int | None:
        """Tokens of a step at most; None where it is not asked.

        Raises:
            UsageError: several numbers.
        """
        budget = options.token_list(self.budget, "--max-num-batched-tokens")
        if budget and len(budget) > 1:
            raise UsageError(f"--max-num-batched-tokens {self.budget}: it takes one number")
        return budget[0] if budget else None

    def _beside(self) -> int | None:
        """The prompt whose end a mixed step takes, where decode's context is given apart."""
        prompts = options.token_list(self.prompt, "--prompt") if self.context else None
        if prompts and len(prompts) > 1:
            raise UsageError(f"--prompt {self.prompt}: beside --context a mixed step takes one")
        return prompts[0] if prompts else None

    def check(self) -> None:
        """Refuses what cannot be read before any model is.

        Raises:
            UnitError, UsageError: naming the option.
        """
        self.batches()
        for text, option in ((self.prompt, "--prompt"), (self.context, "--context")):
            options.token_list(text, option)
        _ = self.tokens
        options.share(self.hit, "--prefix-hit")

    @property
    def inputs(self) -> dict[str, object]:
        """What shapes the answer, as `inputs` repeats it."""
        return {"prefix_hit": options.share(self.hit, "--prefix-hit")}


def few_values(values: list[int], option: str) -> list[int]:
    """Refuses a number beyond any there is, and more of them than anyone reads.

    Raises:
        UsageError: naming the option.
    """
    if max(values) > options.MOST:
        raise UsageError(f"{option} {max(values):,}: it must be at most {options.MOST:,}")
    if len(values) > MOST_VALUES:
        raise UsageError(f"{option} has {len(values):,} values; at most {MOST_VALUES} at once")
    return values


def few_rows(rows: int, options_: str) -> None:
    """Refuses more rows than anyone reads.

    Raises:
        UsageError: naming the options that multiply to them.
    """
    if rows > MOST_ROWS:
        raise UsageError(f"{options_} make {rows:,} rows; at most {MOST_ROWS:,} at once")


def device_inputs(match: Match, shards: Shards) -> dict[str, object]:
    """Devices, as `inputs` repeats them."""
    return {
        "gpu": match.accelerator.id,
        "gpu_note": match.alias_note,
        "gpus": shards.devices,
        "tp": shards.tp,
        "pp": shards.pp,
        "ep": shards.ep,
        "dp": shards.dp,
    }


def deploy(model: str, lookup: Lookup, machine: Machine, weights: str | None, kv: str | None) -> Asking:
    """Resolves model, machine and formats, and prepares the deployment.

    Raises:
        ModelError, UsageError, UnknownAcceleratorError: what is wrong with them.
    """
    from roofcast.calculators.cache_format import cache_format, check_engine
    from roofcast.calculators.deployment import Deployment, prepare
    from roofcast.cli.machine import find_machine, machine_remarks

    check_engine(machine.engine)
    shards, network = machine.shards(), options.link_bandwidth(machine.network)
    weight_format, asked_kv = formats(weights, kv)
    match = find_machine(machine.gpu)
    loaded = load(model, lookup)
    kv_format, of_cache = cache_format(loaded, asked_kv, machine.engine)
    deployment = Deployment(match.accelerator, kv_format, weight_format, shards, machine.engine, network)
    ready = prepare(loaded, deployment)
    inputs: dict[str, object] = {
        "model": model,
        **device_inputs(match, shards),
        "network_bytes_per_second": network,
        "engine": machine.engine,
        "weights": weights,
        "kv": kv_format.name,
        **lookup.asked,
    }
    return Asking(ready, of_cache + machine_remarks(match), inputs)


def asked_inputs(wanted: list[Asked]) -> dict[str, object]:
    """The questions, as `inputs` repeats them."""
    return {
        "phases": list(dict.fromkeys(asked.phase for asked in wanted)),
        "batches": list(dict.fromkeys(asked.batch for asked in wanted)),
        "contexts": list(dict.fromkeys(asked.context for asked in wanted)),
        "max_num_batched_tokens": next((asked.room for asked in wanted), None),
    }


def phases_of(text: str | None) -> tuple[str, ...]:
    """The phases asked for; prefill and decode where none is.

    Raises:
        UsageError: no such phase.
    """
    from roofcast.modelspec.step import DECODE, PHASES, PREFILL

    if text is None:
        return PREFILL, DECODE
    if text not in PHASES:
        raise UsageError(f"--phase {text}: known: {', '.join(PHASES)}")
    return (text,)


def one(text: str | None, option: str, default: int) -> int:
    """The one number of an option that takes no list.

    Raises:
        UsageError: there are several.
    """
    values = (options.batch_list(text) if option == "--batch" else options.token_list(text, option)) or [default]
    if len(values) > 1:
        raise UsageError(f"{option} {text}: it takes one number here")
    return values[0]


@dataclass(frozen=True, slots=True)
class Efficiencies:
    """Which constants expected times are made with.

    Args:
        wanted: whether expected times are asked at all.
        file: of the user's, which counts before all others; None without.
    """

    wanted: bool
    file: Path | None


def efficiency_of(name: str) -> Efficiencies:
    """What `--efficiency` asks.

    Raises:
        UsageError: neither a name that is known nor a file that can be read.
    """
    from pathlib import Path

    if name in EFFICIENCIES:
        return Efficiencies(name == EFFICIENCIES[0], None)
    problem = _no_file(name)
    if problem:
        raise UsageError(f"--efficiency {name}: {problem}; give {', '.join(EFFICIENCIES)} or an efficiency file")
    return Efficiencies(wanted=True, file=Path(name))


def _no_file(name: str) -> str | None:
    """Why a name is not that of a plain file; None of one that is."""
    import stat
    from pathlib import Path

    try:
        mode = Path(name).stat().st_mode
    except (FileNotFoundError, NotADirectoryError, ValueError):  # ValueError: a NUL in it
        return "no such file"
    except OSError as error:  # no permission, or a name too long
        return f"cannot be read ({error.strerror})"
    if not name:  # a path of nothing is this folder
        return "no such file"
    return "is a folder" if stat.S_ISDIR(mode) else None if stat.S_ISREG(mode) else "is no plain file"


def expecting(made: Asking, efficiencies: Efficiencies) -> Asking:
    """The same deployment with constants of expected times, where they are wanted.

    Raises:
        AcceleratorFileError: a file of constants that cannot be read.
    """
    from dataclasses import replace

    return replace(made, ready=with_constants(made.ready, efficiencies))


def with_constants(ready: Ready, efficiencies: Efficiencies) -> Ready:
    """A deployment with constants of expected times, where they are wanted.

    Raises:
        AcceleratorFileError: a file of constants that cannot be read.
    """
    from dataclasses import replace

    from roofcast.calculators.expected.expectation import expectation_for

    if not efficiencies.wanted:
        return ready
    return replace(ready, expectation=expectation_for(ready, efficiencies.file))
