"""What `price` is asked: workloads, tariffs and totals as options give them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from roofcast.calculators.errors import UsageError
from roofcast.cli import options
from roofcast.hwdb.units import UnitError, parse_tokens

if TYPE_CHECKING:
    from collections.abc import Sequence

    from roofcast.calculators.cost import Tariff
    from roofcast.calculators.workload import Request, Workload

DEFAULT_PROMPT: Final = 1024  # tokens
DEFAULT_OUTPUT: Final = 256
MOST_KINDS: Final = 50
MOST_DOLLARS: Final = 1e9
MOST_TOTAL: Final = 1e18  # tokens
MOST_RATE: Final = 1e9  # requests a second
# commas stand between thousands alone: 2,50 is not taken for 250
_NUMBER: Final = r"[0-9]{1,3}(?:,[0-9]{3})+(?:\.[0-9]+)?|[0-9]+(?:\.[0-9]+)?|\.[0-9]+"
# what people write before and after an amount
_DOLLARS: Final = rf"\s*(?:\$|USD)?\s*(?P<number>{_NUMBER})\s*(?:USD)?\s*(?:/\s*(?:GPU-?)?h(?:our)?|/\s*kWh)?\s*"
_KIND: Final = r"(?P<prompt>[0-9.]+[kKmM]?)\s*:\s*(?P<output>[0-9.]+[kKmM]?)(?:\s*x\s*(?P<weight>[0-9]+(?:\.[0-9]+)?))?"
_TOTAL: Final = rf"\s*(?P<number>{_NUMBER})(?:[eE]\+?(?P<power>[0-9]{{1,2}})|\s*(?P<letter>[kMGBT]))?\s*"
_RATE: Final = rf"\s*(?P<number>{_NUMBER})\s*(?P<unit>/s|/min|/h|/day)?\s*"
_POWERS: Final = {"k": 3, "M": 6, "G": 9, "B": 9, "T": 12}
_UNITS: Final = {None: 1.0, "/s": 1.0, "/min": 60.0, "/h": 3600.0, "/day": 86400.0}


def dollars(text: str | None, option: str, example: str) -> float | None:
    """An amount of US dollars, `2.50`, `$2.50/h` or `2.50 USD/GPU-hour`; None stays None. [USD]

    >>> dollars("$2.50/GPU-hour", "--gpu-price", "2.50"), dollars("30000", "--gpu-cost", "30000")
    (2.5, 30000.0)
    """
    if text is None:
        return None
    match = re.fullmatch(_DOLLARS, text, re.ASCII)
    if match is None:
        raise UsageError(f"{option} {text}: it must be US dollars, 0 or more, such as {example}")
    value = float(match["number"].replace(",", ""))
    if value > MOST_DOLLARS:
        raise UsageError(f"{option} {text}: it must be at most {MOST_DOLLARS:,.0f} US dollars")
    return value


def factor(value: float, option: str, least: float, most: float) -> float:
    """A plain number within bounds.

    Raises:
        UsageError: it is outside of them, or no number.
    """
    if not least <= value <= most:
        raise UsageError(f"{option} {value:g}: it must be from {least:g} to {most:g}")
    return value


def total(text: str | None, option: str) -> float | None:
    """Tokens of a day, decimal: `608e9`, `608G`, `608B` or in full; None stays None. [token]

    >>> total("608e9", "--input-tokens"), total("1.5M", "--input-tokens"), total("168B", "--output-tokens")
    (608000000000.0, 1500000.0, 168000000000.0)
    """
    if text is None:
        return None
    match = re.fullmatch(_TOTAL, text, re.ASCII)
    value = None
    if match is not None:
        power = int(match["power"] or 0) or _POWERS.get(match["letter"] or "", 0)
        value = float(f"{match['number'].replace(',', '')}e{power}")
    if value is None or value > MOST_TOTAL:
        raise UsageError(
            f"{option} {text}: it must be a number of tokens a day, such as 608e9, 608G or 608,000,000,000"
        )
    return value


def rate(text: str | None) -> float | None:
    """Requests a second, `12.5`, `12.5/s`, `700/min` or `86400/day`; None stays None. [1/s]

    >>> rate("120/min"), rate("0.5")
    (2.0, 0.5)
    """
    if text is None:
        return None
    match = re.fullmatch(_RATE, text, re.ASCII)
    value = None if match is None else float(match["number"].replace(",", "")) / _UNITS[match["unit"]]
    if value is None or not 0 < value <= MOST_RATE:
        raise UsageError(f"--rate {text}: it must be requests a second above 0, such as 12.5, 700/min or 86400/day")
    return value


@dataclass(frozen=True, slots=True)
class Money:
    """What the machine costs, as options give it."""

    gpu_price: str | None
    gpu_cost: str | None
    years: float | None
    power_price: str | None
    pue: float | None
    utilisation: str | None

    def tariff(self) -> Tariff:
        """The tariff.

        Raises:
            UsageError, UnitError: an amount that cannot be, or both a rent and a purchase.
        """
        from roofcast.calculators.cost import Tariff

        rent = dollars(self.gpu_price, "--gpu-price", "2.50 (USD a GPU-hour)")
        bought = dollars(self.gpu_cost, "--gpu-cost", "30000 (USD a GPU, with its share of the server)")
        if rent is not None and bought is not None:
            raise UsageError("--gpu-price is of what is rented and --gpu-cost of what is bought; give one of them")
        if self.years is not None and bought is None:
            raise UsageError("--years is what --gpu-cost is written off over; give --gpu-cost too")
        if self.utilisation is not None and rent is None and bought is None:
            raise UsageError("--utilisation spreads what the machine costs; give --gpu-price or --gpu-cost too")
        power = dollars(self.power_price, "--power-price", "0.12 (USD a kWh)")
        if self.pue is not None and power is None:
            raise UsageError("--pue multiplies what power costs; give --power-price too")
        if power is not None and rent is None and bought is None:
            raise UsageError("--power-price alone is no machine's price; give --gpu-price or --gpu-cost too")
        return Tariff(
            rent,
            bought,
            factor(4.0 if self.years is None else self.years, "--years", 0.1, 50),
            power or 0.0,
            factor(1.0 if self.pue is None else self.pue, "--pue", 1, 10),
            self._utilisation(),
        )

    def _utilisation(self) -> float:
        value = options.portion("100%" if self.utilisation is None else self.utilisation, "--utilisation")
        if not value:
            raise UsageError(f"--utilisation {self.utilisation}: with no load no token is made; give more than 0%")
        return value


@dataclass(frozen=True, slots=True)
class Served:
    """Requests as options give them."""

    prompt: str | None = None
    output: str | None = None
    context: str | None = None
    mix: Sequence[str] | None = None
    prefix_hit: str | None = None
    shared_prefix: str | None = None
    hit_rate: str | None = None

    def workloads(self) -> tuple[Workload, ...]:
        """The workloads: each --mix, or each --context, or --prompt and --output.

        Raises:
            UsageError, UnitError: naming the option.
        """
        from roofcast.calculators.workload import Workload

        if self.prefix_hit is not None and (self.shared_prefix is not None or self.hit_rate is not None):
            raise UsageError(
                "--prefix-hit is the share of all prompts' tokens that is found; give it, or --shared-prefix and --hit-rate"
            )
        if self.hit_rate is not None and self.shared_prefix is None:
            raise UsageError("--hit-rate is of the requests that share --shared-prefix tokens; give that too")
        if self.mix:
            if self.prompt or self.output or self.context:
                raise UsageError("--mix has prompts and outputs of its own; leave --prompt, --output and --context out")
            return tuple(self._mixed(text) for text in self.mix)
        output = self._one(self.output, "--output", DEFAULT_OUTPUT)
        contexts = options.token_list(self.context)
        if contexts is None:
            request = self._request(self._one(self.prompt, "--prompt", DEFAULT_PROMPT), output, 1.0)
            return (Workload(f"{request.prompt}:{request.output}", (request,)),)
        made = []
        for context in dict.fromkeys(contexts):
            request = self._request(self._one(self.prompt, "--prompt", context), output, 1.0)
            name = f"{request.prompt}:{request.output}"
            name += "" if context == request.prompt else f" at {context}"
            made.append(Workload(name, (request,), context))
        return tuple(made)

    def _mixed(self, text: str) -> Workload:
        """One --mix: kinds of requests, `1000:100x3,100:1000`."""
        from roofcast.calculators.workload import Workload

        parts = [part.strip() for part in text.split(",")]
        if len(parts) > MOST_KINDS:
            raise UsageError(f"--mix has {len(parts)} kinds of requests; at most {MOST_KINDS}")
        requests = tuple(self._kind(part, text) for part in parts)
        return Workload(text.replace(" ", ""), requests)

    def _kind(self, part: str, text: str) -> Request:
        match = re.fullmatch(_KIND, part, re.ASCII)
        if match is None:
            raise UsageError(
                f"--mix {text}: {part!r} is no PROMPT:OUTPUT, such as 1000:100, or 1000:100x3 for three of each"
            )
        try:
            prompt, output = parse_tokens(match["prompt"]), parse_tokens(match["output"])
        except UnitError as error:
            raise UnitError(f"--mix {text}: {error}") from error
        weight = float(match["weight"] or 1)
        if not 0 < weight <= options.MOST:
            raise UsageError(f"--mix {text}: {part!r} has no requests; give a weight above 0")
        return self._request(prompt, output, weight)

    def _request(self, prompt: int, output: int, weight: float) -> Request:
        from roofcast.calculators.workload import Request

        for tokens, option in ((prompt, "--prompt"), (output, "--output")):
            options.size(tokens, option)
        if self.shared_prefix is not None:
            prefix = self._one(self.shared_prefix, "--shared-prefix", 0)
            if prefix >= prompt:
                raise UsageError(f"--shared-prefix {prefix:,}: it must be less than the prompt, {prompt:,} tokens")
            return Request(
                prompt,
                output,
                prefix,
                options.portion("100%" if self.hit_rate is None else self.hit_rate, "--hit-rate"),
                weight,
            )
        found = options.share("0%" if self.prefix_hit is None else self.prefix_hit, "--prefix-hit")
        return Request(prompt, output, min(int(prompt * found + 1e-6), prompt - 1), 1.0, weight)

    @staticmethod
    def _one(text: str | None, option: str, default: int) -> int:
        values = options.token_list(text, option) or [default]
        if len(values) > 1:
            raise UsageError(f"{option} {text}: it takes one number here; --mix takes several kinds of requests")
        return values[0]
