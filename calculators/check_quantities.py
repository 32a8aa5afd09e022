"""What rules of `check` are about: a quantity's unit, which side of a limit is good, what it takes, how it is computed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

from roofcast.calculators.cache import kv_bytes_per_token, whole
from roofcast.calculators.check_load import e2e, goodput, itl, percentile_of, requests_per_second
from roofcast.calculators.check_plan import cheapest_cost, gpus_needed
from roofcast.calculators.check_rows import Found
from roofcast.calculators.cost import HOUR, Load, load_times, token_costs
from roofcast.calculators.engines.flags import Flags
from roofcast.calculators.errors import UnansweredError
from roofcast.calculators.phases import Asked, answer_point, check_steps
from roofcast.calculators.workload import Request
from roofcast.modelspec.step import DECODE, PREFILL

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from roofcast.calculators.check_load import Loaded
    from roofcast.calculators.check_memory import Room
    from roofcast.calculators.check_plan import Planned
    from roofcast.calculators.deployment import Ready
    from roofcast.calculators.phases import Point
    from roofcast.modelspec.formats import Format
    from roofcast.modelspec.model import Model
    from roofcast.modelspec.requested import Requested

AT_LEAST: Final = ">="
AT_MOST: Final = "<="
IS: Final = "=="
BOUND: Final = "bound"
EXPECTED: Final = "expected"
LOW: Final = "low"
HIGH: Final = "high"
BASES: Final = (BOUND, EXPECTED, LOW, HIGH)
#: kinds of tokens that are priced -> the field of `TokenCosts`
TOKENS: Final[Mapping[str, str]] = {
    "input": "input",
    "cached_input": "cached",
    "output": "output",
    "blended": "blended",
}
NO_FLAGS: Final = Flags()
SIDES: Final[Mapping[str, str]] = {LOW: HIGH, HIGH: LOW}  # of a rate: its low end is that of the longest time


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A deployment and what is asked of it, as a rule has it; what a quantity does not take is left as it is here.

    Args:
        model, revision, encoder_tokens: the model; a branch, tag or commit of a Hub repo; tokens of its encoder.
        gpu, gpus, tp, pp, ep, dp: the machine, and how it is shared; of a plan `gpu` may be several, or none.
        network: bandwidth of a device between domains, one direction. [B/s]
        engine, flags: that serves it, and what it is started with.
        weights, kv: formats; None is as stored, and the engine's.
        reserve: share of the memory that is kept free, without an engine. [-]
        context, prompt, output: of each sequence. [token]
        batch: sequences at once.
        prefix_hit: share of the prompt that a prefix cache holds. [-]
        max_num_batched_tokens: of a step; None is all of them. [token]
        of: which tokens are priced, one of `TOKENS`.
        gpu_price: rent of one GPU. [USD/h]
        basis: bound, expected, or an end of the 80 % interval.
        percentile: of the requests of a load; None where the quantity has none. [-]
        rate: requests a second that come by chance, whoever waits (open loop). [1/s]
        concurrency: clients that each send a request when their last one is answered (closed loop).
        trace: file of requests, in place of `prompt` and `output`.
        requests, stagger: of a load, and the share by which outputs of clients vary; None is as `simulate` has it.
        ttft, tpot: limits that a request must keep to be counted. [s]
        max_gpus: of a deployment that a plan looks at; None is as `plan` has it.
    """

    model: str = ""
    revision: str | None = None
    encoder_tokens: int | None = None
    gpu: str = ""
    gpus: int | None = None
    tp: int | None = None
    pp: int = 1
    ep: int = 1
    dp: int = 1
    network: float | None = None
    engine: str = "none"
    flags: Flags = NO_FLAGS
    weights: str | None = None
    kv: str | None = None
    reserve: float = 0.1
    context: int = 1
    prompt: int = 1
    output: int = 1
    batch: int = 1
    prefix_hit: float = 0.0
    max_num_batched_tokens: int | None = None
    of: str = "output"
    gpu_price: float = 0.0
    basis: str = EXPECTED
    percentile: float | None = None
    rate: float | None = None
    concurrency: int | None = None
    trace: str | None = None
    requests: int | None = None
    stagger: float | None = None
    ttft: float | None = None
    tpot: float | None = None
    max_gpus: int | None = None

    @property
    def loaded(self) -> bool:
        """Whether it is about a load of requests, which is simulated."""
        return (self.rate, self.concurrency, self.trace) != (None, None, None)


class Setups(Protocol):
    """Models and deployments of rules, each made once."""

    def model(self, case: Case) -> Model:
        """The model."""

    def cache(self, case: Case) -> Format:
        """The format of its cache."""

    def weights(self, case: Case) -> Requested | None:
        """The format asked for its weights."""

    def room(self, case: Case) -> Room:
        """Memory, as `fit` answers."""

    def ready(self, case: Case) -> Ready:
        """The deployment, as `estimate` takes it."""

    def loaded(self, case: Case) -> Loaded:
        """The deployment after its load, as `simulate` answers."""

    def most_requests(self, case: Case) -> Found:
        """The most requests a second that keep limits, as `simulate --rate max` answers. [1/s]"""

    def planned(self, case: Case) -> Planned:
        """The cheapest deployment that keeps limits under a load, as `plan` answers."""


@dataclass(frozen=True, slots=True)
class Quantity:
    """What a rule can be about.

    Args:
        says: what it is, for people.
        unit: of its value; empty of counts and of yes and no.
        sign: on which side of a limit it must be: >=, <=, or == of yes and no.
        written: how its limit is written, one of the readers of rule files.
        takes: fields of a rule that count.
        needs: those that must be there.
        compute: what there is.
        loaded: fields that must be there under a load; empty of what takes none.
    """

    says: str
    unit: str
    sign: str
    written: str
    takes: frozenset[str]
    needs: tuple[str, ...]
    compute: Callable[[Case, Setups], Found]
    loaded: tuple[str, ...] = ()

    @property
    def limit(self) -> str | None:
        """The limit that makes sense: at_least, at_most, or none of yes and no."""
        return {AT_LEAST: "at_least", AT_MOST: "at_most"}.get(self.sign)

    @property
    def timed(self) -> bool:
        """Whether it has a bound, an expected value and an interval."""
        return "basis" in self.takes

    @property
    def alone(self) -> bool:
        """Whether it can be asked without a load."""
        return bool(OF_ONE_STEP & self.takes)

    @property
    def searched(self) -> bool:
        """Whether the rate of its load is what is looked for."""
        return bool(self.loaded) and "rate" not in self.takes

    @property
    def planned(self) -> bool:
        """Whether the deployment is what is looked for."""
        return "max_gpus" in self.takes

    @property
    def of_several(self) -> bool:
        """Whether it may be about several kinds of GPUs at once."""
        return self.planned and "gpu" not in self.needs

    @property
    def of_memory(self) -> bool:
        """Whether it is about memory alone."""
        return "reserve" in self.takes and not self.timed


def weights_fit(case: Case, setups: Setups) -> Found:
    """Whether the weights, and what the engine takes, leave room for a cache, be it for short requests alone."""
    room = setups.room(case)
    return Found(room.left, room.reason)


def fits(case: Case, setups: Setups) -> Found:
    """Whether so many sequences of a context fit at once: sequences >= batch."""
    room = setups.room(case)
    most, why = room.sequences(case.context), room.why(case.context)
    said = f"{most:,} sequences of {case.context:,} tokens fit, {case.batch:,} are asked"
    return Found(most >= case.batch, f"{said} ({why})" if why else said)


def sequences(case: Case, setups: Setups) -> Found:
    """Sequences of a context that fit at once, as `fit` answers. [sequence]"""
    room = setups.room(case)
    return Found(room.sequences(case.context), room.why(case.context))


def kv_tokens(case: Case, setups: Setups) -> Found:
    """Tokens that the cache holds in all, as `fit` answers. [token]

    Raises:
        UnansweredError: the cache does not grow with tokens, or the engine prints no such number.
    """
    room = setups.room(case)
    if room.tokens is None:
        raise UnansweredError(
            f"{case.model} has no number of KV tokens: its cache does not grow with tokens, or {case.engine} prints none; "
            "ask for sequences at a context"
        )
    return Found(room.tokens, room.reason)


def token_bytes(case: Case, setups: Setups) -> Found:
    """Bytes that every further token adds to the cache, on all devices together, as `kv` answers. [B/token]"""
    return Found(whole(kv_bytes_per_token(setups.model(case).spec, setups.cache(case))))


def weight_bytes(case: Case, setups: Setups) -> Found:
    """Bytes of the weights, as stored or as asked, as `kv` answers. [B]

    Raises:
        UnansweredError: they are not known.
    """
    model = setups.model(case)
    amount = model.weight_bytes(setups.weights(case))
    if amount.value is None:
        raise UnansweredError(amount.warning or f"{model.name}: the bytes of its weights are not known")
    return Found(whole(amount.value))


def ttft(case: Case, setups: Setups) -> Found:
    """Time to the first token of so many prompts at once, as `estimate --phase prefill`; under a load as `simulate`. [s]"""
    if case.loaded:
        return percentile_of(case, setups, "ttft")
    asked = Asked(PREFILL, case.batch, case.prompt, case.max_num_batched_tokens, case.prefix_hit)
    return _seconds(case, _point(case, setups, asked))


def tpot(case: Case, setups: Setups) -> Found:
    """Time of one decode step of a batch at a context, as `estimate --phase decode`; under a load as `simulate`. [s]"""
    if case.loaded:
        return percentile_of(case, setups, "tpot")
    return _seconds(case, _point(case, setups, Asked(DECODE, case.batch, case.context, case.max_num_batched_tokens)))


def tokens_per_second(case: Case, setups: Setups) -> Found:
    """Tokens that a batch makes a second: tokens of a step / its time; the low end is that of the longest time. [token/s]"""
    point = _point(case, setups, Asked(DECODE, case.batch, case.context, case.max_num_batched_tokens))
    found = _seconds(case, point, SIDES.get(case.basis))
    return found if found.value is None else Found(point.tokens / found.value)


def cost_per_million_tokens(case: Case, setups: Setups) -> Found:
    """What a million tokens of one kind cost: their time x GPUs x price of one / 3600. [USD/Mtoken]"""
    if TOKENS[case.of] == "cached" and case.prompt == 1:
        raise UnansweredError("a prompt of one token has none that a cache could hold; give a longer one")
    ready = setups.ready(case)
    prefix = min(int(case.prompt * case.prefix_hit + 1e-6), case.prompt - 1)
    request = Request(case.prompt, case.output, prefix=prefix)
    made = load_times(ready, Load(request, case.batch, budget=case.max_num_batched_tokens))
    if made.reason:
        return Found(None, f"does not fit: {made.reason}")
    if case.basis not in made.times:
        raise without_constants(case)
    costs = token_costs(made.times[case.basis], request, case.gpu_price * ready.deployment.shards.devices / HOUR)
    value: float = getattr(costs, TOKENS[case.of])
    return Found(value)


def _point(case: Case, setups: Setups, asked: Asked) -> Point:
    """What a deployment answers."""
    check_steps([asked])
    return answer_point(setups.ready(case), asked)


def _seconds(case: Case, point: Point, basis: str | None = None) -> Found:
    """A point's time on a basis, the case's own where none is given. [s]

    Raises:
        UnansweredError: no constants of expected times were asked for.
    """
    if not point.fits:
        return Found(None, f"does not fit: {point.reason}")
    low, high = point.interval or (None, None)
    value = {BOUND: point.bound, EXPECTED: point.expected, LOW: low, HIGH: high}[basis or case.basis]
    if value is None:
        raise without_constants(case)
    return Found(value)


def without_constants(case: Case) -> UnansweredError:
    """What is said of a basis that there are no constants for."""
    return UnansweredError(
        f"basis {case.basis}: --efficiency bound has bounds alone; leave it out, or write basis: bound"
    )


ON: Final = ("model", "gpu")
MODEL: Final = frozenset(("model", "revision", "encoder_tokens"))
PLACED: Final = MODEL | {"gpu", "gpus", "tp", "pp", "ep", "dp", "engine", "engine_version", "flags", "weights", "kv", "max_num_batched_tokens"}  # fmt: skip
MEMORY: Final = PLACED | {"reserve"}
TIMED: Final = MEMORY | {"network", "basis"}
#: what is sent, and how it is asked about
LOADS: Final = frozenset(("rate", "concurrency", "trace"))
SENT: Final = LOADS | {"requests", "stagger", "prompt", "output"}
LOADED: Final = TIMED | SENT
#: fields that mean nothing without a load, and those that mean nothing beside one
OF_LOADS: Final = LOADS | {"requests", "stagger", "percentile", "output"}
OF_ONE_STEP: Final = frozenset(("batch", "context", "prefix_hit"))
PLANNED: Final = MODEL | LOADS | {"gpu", "engine", "engine_version", "flags", "weights", "kv", "network", "basis", "max_gpus", "requests", "prompt", "output", "percentile", "ttft", "tpot"}  # fmt: skip
#: what must be said under a load, and about which of its requests
LENGTHS: Final = (*ON, "prompt", "output")
ABOUT: Final = (*LENGTHS, "percentile")

#: what a rule may be about
QUANTITIES: Final[Mapping[str, Quantity]] = {
    "weights_fit": Quantity("weights leave room for a cache", "", IS, "none", MEMORY, ON, weights_fit),
    "fits": Quantity(
        "a batch fits at a context", "", IS, "none", MEMORY | {"batch", "context"}, (*ON, "context"), fits
    ),
    "sequences": Quantity(
        "sequences that fit at a context", "", AT_LEAST, "count", MEMORY | {"context"}, (*ON, "context"), sequences
    ),
    "kv_tokens": Quantity("tokens that the cache holds", "", AT_LEAST, "count", MEMORY, ON, kv_tokens),
    "kv_bytes_per_token": Quantity(
        "KV bytes a token", "B/token", AT_MOST, "bytes", MODEL | {"engine", "kv"}, ("model",), token_bytes
    ),
    "weight_bytes": Quantity("bytes of the weights", "B", AT_MOST, "bytes", MODEL | {"weights"}, ("model",), weight_bytes),
    "ttft": Quantity(
        "time to the first token", "s", AT_MOST, "seconds", LOADED | {"percentile", "batch", "prefix_hit"},
        (*ON, "prompt"), ttft, ABOUT,
    ),
    "tpot": Quantity(
        "time per output token", "s", AT_MOST, "seconds", LOADED | {"percentile", "batch", "context"},
        (*ON, "batch", "context"), tpot, ABOUT,
    ),
    "itl": Quantity("time between two tokens", "s", AT_MOST, "seconds", LOADED | {"percentile"}, ON, itl, ABOUT),
    "e2e": Quantity("time to the last token", "s", AT_MOST, "seconds", LOADED | {"percentile"}, ON, e2e, ABOUT),
    "goodput": Quantity(
        "requests a second within limits", "1/s", AT_LEAST, "number", LOADED | {"ttft", "tpot"}, ON, goodput, LENGTHS,
    ),
    "requests_per_second": Quantity(
        "most requests a second that keep limits", "1/s", AT_LEAST, "number",
        TIMED | {"trace", "requests", "prompt", "output", "percentile", "ttft", "tpot"}, ON, requests_per_second, ABOUT,
    ),
    "tokens_per_second": Quantity(
        "output tokens a second", "token/s", AT_LEAST, "number", TIMED | {"batch", "context"},
        (*ON, "batch", "context"), tokens_per_second,
    ),
    "cost_per_million_tokens": Quantity(
        "cost of a million tokens", "USD/Mtoken", AT_MOST, "dollars",
        TIMED | {"of", "prompt", "output", "batch", "prefix_hit", "gpu_price"},
        (*ON, "prompt", "output", "batch", "gpu_price"), cost_per_million_tokens,
    ),
    "cheapest_cost": Quantity(
        "rent of the cheapest deployment that keeps limits", "USD/h", AT_MOST, "dollars", PLANNED | {"gpu_price"},
        ("model",), cheapest_cost, ("model", "prompt", "output", "percentile"),
    ),
    "gpus_needed": Quantity(
        "fewest GPUs that keep limits", "", AT_MOST, "count", PLANNED, ON, gpus_needed, ABOUT,
    ),
}  # fmt: skip
