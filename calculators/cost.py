"""What tokens cost on a machine: the time that each kind of token takes of it, and what that time costs."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from roofcast.calculators.phases import Asked, answer_point, shortage
from roofcast.modelspec.step import DECODE, PREFILL

if TYPE_CHECKING:
    from roofcast.calculators.deployment import Ready
    from roofcast.calculators.phases import Point
    from roofcast.calculators.workload import Request

BOUND: Final = "bound"
EXPECTED: Final = "expected"
#: what times are by: the roofline, what to expect, and the ends of its 80 % interval
BASES: Final = (BOUND, EXPECTED, "low", "high")
MILLION: Final = 1_000_000
HOUR: Final = 3600.0  # [s]
ASSUMED_HIT: Final = 0.5  # of a prompt, where a cached token is priced although none is asked to be cached


@dataclass(frozen=True, slots=True)
class TokenTimes:
    """Time that one token of each kind takes of the whole deployment. [s/token]

    Args:
        input: of a prompt's token that no cache holds.
        cached: of one that a prefix cache holds.
        output: of one that is decoded.
    """

    input: float
    cached: float
    output: float


@dataclass(frozen=True, slots=True)
class Load:
    """What a deployment is loaded with.

    Args:
        request: that every sequence is one of.
        batch: of them at once, over all replicas.
        context: tokens that a decoded one attends to; None is the mean, prompt + output / 2. [token]
        reserved: tokens of each sequence that must fit; None is all that a request has at its end, and the context. [token]
        budget: tokens of a step (`--max-num-batched-tokens`); None is all prompts at once. [token]
    """

    request: Request
    batch: int
    context: int | None = None
    reserved: int | None = None
    budget: int | None = None

    @property
    def attended(self) -> int:
        """Tokens that a decoded one attends to. [token]"""
        return max(1, round(self.request.mean_context)) if self.context is None else self.context

    @property
    def held(self) -> int:
        """Tokens of each sequence that must fit. [token]"""
        return max(self.request.longest, self.context or 0) if self.reserved is None else self.reserved


@dataclass(frozen=True, slots=True)
class LoadTimes:
    """The times of a load.

    Args:
        times: by basis: bound, expected, low, high; empty of what does not fit, the bound alone where no constants are asked.
        reason: why it does not fit; empty where it does.
    """

    times: dict[str, TokenTimes]
    reason: str


@dataclass(frozen=True, slots=True)
class TokenCosts:
    """US dollars for a million tokens. [USD/Mtoken]

    Args:
        input, cached, output: of each kind.
        blended: of all tokens of a request together.
        request: US dollars for one request. [USD]
    """

    input: float
    cached: float
    output: float
    blended: float
    request: float


def load_times(ready: Ready, load: Load) -> LoadTimes:
    """Time that tokens of a load take of the deployment. [s/token]

    B requests come together: their prompts are one prefill, which shares every weight that it reads; then each step of decode
    makes a token of each.

        output = TPOT(B, context) / B
        input  = prefill(B, new) / (B new), new = prompt - prefix found
        cached = (prefill(B, prompt, prefix found) - prefill(B, new)) / (B prefix): attention to it, and reading its cache

    so that a request takes its tokens' times, and the deployment does 1 / that of them a second. Prefill is bound by compute
    and shared, decode by memory: weights shared by the batch, and each sequence's own cache.

    A token that is cached although no prefix is asked for is one of half a prompt.
    """
    reason = shortage(ready, Asked(DECODE, load.batch, load.held))
    if reason:
        return LoadTimes({}, reason)
    request, decode = load.request, _decode(ready, load)
    prefix = request.prefix or int(request.prompt * ASSUMED_HIT)
    whole, part, fresh = _prefill(ready, load), _prefill(ready, load, prefix), _fresh(ready, load, prefix)
    found, times = request.hit if request.prefix else 0.0, {}
    for basis in decode:
        cached = _cached(basis, part, fresh) / (load.batch * prefix) if prefix else 0.0
        reading = (found * part[basis] + (1 - found) * whole[basis]) / load.batch
        times[basis] = TokenTimes(
            (reading - request.found * cached) / (request.prompt - request.found), cached, decode[basis] / load.batch
        )
    return LoadTimes(times, "")


def request_times(ready: Ready, load: Load) -> dict[str, float]:
    """Time that one request of a load takes of the deployment, by basis; empty of what does not fit. [s]

    (hit prefill(B, prompt, prefix found) + (1 - hit) prefill(B, prompt) + output TPOT(B, context)) / B, which is what its
    tokens take by `load_times`.
    """
    if shortage(ready, Asked(DECODE, load.batch, load.held)):
        return {}
    request, spent = load.request, _decode(ready, load)
    found = request.hit if request.prefix else 0.0
    made = {basis: request.output * seconds for basis, seconds in spent.items()}
    for share, prefix in ((found, request.prefix), (1 - found, 0)):
        if share:
            made = {basis: made[basis] + share * seconds for basis, seconds in _prefill(ready, load, prefix).items()}
    return {basis: seconds / load.batch for basis, seconds in made.items()}


def _decode(ready: Ready, load: Load) -> dict[str, float]:
    """A step of decode. [s]"""
    return by_basis(answer_point(ready, Asked(DECODE, load.batch, load.attended)))


def _prefill(ready: Ready, load: Load, prefix: int = 0) -> dict[str, float]:
    """Prefill of the prompts, whose prefix is cached. [s]"""
    prompt = load.request.prompt
    return by_basis(answer_point(ready, Asked(PREFILL, load.batch, prompt, load.budget, cached=prefix / prompt)))


def _fresh(ready: Ready, load: Load, prefix: int) -> dict[str, float]:
    """Prefill of what follows the prefix, by itself. [s]"""
    rest = max(1, load.request.prompt - prefix)
    return by_basis(answer_point(ready, Asked(PREFILL, load.batch, rest, load.budget)))


def by_basis(found: Point) -> dict[str, float]:
    """A point's times, those that there are. [s]

    Whether it fits is asked of the load as a whole, whose sequences may be shorter in the mean than those of one kind.
    """
    point = replace(found, fits=True)
    low, high = point.interval or (None, None)
    made = zip(BASES, (point.bound, point.expected, low, high), strict=True)
    return {basis: value for basis, value in made if value is not None}


def _cached(basis: str, part: dict[str, float], fresh: dict[str, float]) -> float:
    """What a prefix adds to the prefill of what follows it; ends of intervals as wide as that prefill's own. [s]"""
    if basis in {BOUND, EXPECTED}:
        return max(0.0, part[basis] - fresh[basis])
    return max(0.0, part[EXPECTED] - fresh[EXPECTED]) * part[basis] / part[EXPECTED]


def request_seconds(times: TokenTimes, request: Request) -> float:
    """Time that one request takes of the deployment: new input + found cached + output output. [s]

    Its inverse is the requests a second that the deployment does.
    """
    new = request.prompt - request.found
    return new * times.input + request.found * times.cached + request.output * times.output


def token_costs(times: TokenTimes, request: Request, dollars_per_second: float) -> TokenCosts:
    """What a million tokens cost: time of the deployment x its price. [USD/Mtoken]

    At 7.20 USD an hour, 0.002 USD a second, tokens of 10 us of input and 50 us of output:

    >>> from roofcast.calculators.workload import Request
    >>> made = token_costs(TokenTimes(10e-6, 1e-6, 50e-6), Request(1000, 100), 0.002)
    >>> round(made.input, 4), round(made.cached, 4), round(made.output, 4), round(made.request * 1e6, 2)
    (0.02, 0.002, 0.1, 30.0)
    """
    each = dollars_per_second * MILLION
    seconds = request_seconds(times, request)
    blended = seconds / (request.prompt + request.output)
    return TokenCosts(
        times.input * each, times.cached * each, times.output * each, blended * each, seconds * dollars_per_second
    )


@dataclass(frozen=True, slots=True)
class Tariff:
    """What a machine costs.

    Args:
        gpu_price: rent of one GPU [USD/h]; None where it is bought.
        gpu_cost: price of one GPU with its share of the server [USD]; None where it is rented.
        years: that it is written off over.
        power_price: of electricity [USD/kWh]; 0 where the rent has it.
        pue: power drawn by the building over that of the machine. [-]
        utilisation: share of the hours in which there is the load. [-]
    """

    gpu_price: float | None = None
    gpu_cost: float | None = None
    years: float = 4.0
    power_price: float = 0.0
    pue: float = 1.0
    utilisation: float = 1.0


HOURS_A_YEAR: Final = 8766.0  # 365.25 days


def write_off(gpu_cost: float, years: float) -> float:
    """What a bought GPU costs an hour: price / (years x 8,766 h). [USD/h]

    >>> round(write_off(35_064, 4), 4)
    1.0
    """
    return gpu_cost / (years * HOURS_A_YEAR)


def electricity(watts: float, power_price: float, pue: float) -> float:
    """What a GPU's power costs an hour, at its TDP, which is the most it draws for long: W / 1000 x PUE x USD/kWh. [USD/h]

    >>> round(electricity(700, 0.10, 1.3), 4)
    0.091
    """
    return watts / 1000 * pue * power_price


def energy_per_token(seconds: float, watts: float) -> float:
    """Energy of a token at most: its time of the deployment x TDP of all GPUs. [J/token]

    Memory-bound steps draw less than TDP, so decode's is an upper limit.

    >>> energy_per_token(50e-6, 700)
    0.035
    """
    return seconds * watts
