"""What `plan` is asked: GPUs and their prices, layouts, engines, formats and policies, as options give them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING, Final

from roofcast.calculators.errors import UsageError
from roofcast.cli import options
from roofcast.cli.price_asked import dollars
from roofcast.hwdb.units import UnitError, parse_duration, parse_tokens

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from roofcast.calculators.planning.machines import Choices
    from roofcast.calculators.planning.rows import PricedGpu
    from roofcast.hwdb.lookup import Match

GIVEN: Final = "--gpu-price"
MOST_GPUS: Final = 1 << 16
MOST_KINDS: Final = 100
DEFAULT_GPUS: Final = 64
DEFAULT_KINDS: Final = 3
STORED: Final = "stored"
AUTO: Final = "auto"
DEFAULT_WEIGHTS: Final = "stored,fp8"
DEFAULT_KV: Final = "auto,fp8"
DEFAULT_POLICIES: Final = "colocated,chunked,disaggregated"
#: engines whose own policy is chunked
CHUNKED: Final = frozenset(("none", "vllm", "lmdeploy", "llama.cpp", "ollama"))
_PRICE: Final = r"(?P<gpu>[^=]+)=(?P<price>.+)"
_MONEY: Final = r"\s*(?:\$|USD)\s*\S.*|.*\S\s*USD(?:/h(?:our)?)?\s*"


@dataclass(frozen=True, slots=True)
class AskedGpus:
    """Which GPUs, and what they cost, as options give it.

    Args:
        gpu: names; None is all that have a price.
        gpu_price: USD of all, or NAME=USD of some.
        provider: whose prices count; None is the rule of rents.
    """

    gpu: str | None = None
    gpu_price: tuple[str, ...] = ()
    provider: str | None = None

    def matches(self) -> dict[str, Match]:
        """Accelerators by id: those asked, else all that have a price.

        Raises:
            UnknownAcceleratorError: naming it.
        """
        from roofcast.hwdb.lookup import find_accelerator

        names = self._asked() or [*self.given()[1], *self._priced()]
        found = [find_accelerator(name) for name in dict.fromkeys(names)]
        return {match.accelerator.id: match for match in found}

    def _asked(self) -> list[str]:
        return [] if self.gpu is None else [name.strip() for name in _parts(self.gpu, "--gpu")]

    def _priced(self) -> list[str]:
        """GPUs that a provider has, or whose usual rent is known."""
        from roofcast.hwdb.rents import all_rents, usual_rents

        return sorted(all_rents(self.provider) if self.provider else usual_rents())

    def unpriced(self, considered: Mapping[str, Match]) -> list[str]:
        """Accelerators that are left out, since no price of them is known."""
        from roofcast.hwdb.files import accelerator_files

        return [] if self._asked() else sorted(set(accelerator_files()) - considered.keys())

    def given(self) -> tuple[float | None, dict[str, float]]:
        """Prices that are given: of all GPUs, and of some by their id. [USD/h]

        Raises:
            UsageError: naming what is no price.
            UnknownAcceleratorError: naming the GPU.
        """
        from roofcast.hwdb.lookup import find_accelerator

        every, some = None, {}
        for part in (part.strip() for text in self.gpu_price for part in text.split(",")):
            match = re.fullmatch(_PRICE, part)
            name = None if match is None else find_accelerator(match["gpu"].strip()).accelerator.id
            value = dollars(part if match is None else match["price"], GIVEN, "2.50, or h100=2.50,l4=0.70")
            if not value:
                raise UsageError(f"{GIVEN} {part}: it must be above 0 US dollars an hour, such as 2.50 or h100=2.50")
            if name in some or (name is None and every is not None):
                raise UsageError(f"{GIVEN} {part}: {name or 'all GPUs'} had a price before; give it one")
            if name is None:
                every = value
            else:
                some[name] = value
        return every, some

    def prices(self, matches: Mapping[str, Match]) -> dict[str, PricedGpu]:
        """What each GPU costs: as given, else as its rent that counts; None where none is known."""
        from roofcast.calculators.planning.rows import PricedGpu
        from roofcast.hwdb.rents import rent_of

        every, some = self.given()
        made = {}
        for gpu in matches:
            value = some.get(gpu, every)
            rent = rent_of(gpu, self.provider)
            if value is not None:
                made[gpu] = PricedGpu(gpu=gpu, price_per_gpu_hour=value, source=GIVEN, as_of=None)
            elif rent is None:
                made[gpu] = PricedGpu(gpu=gpu, price_per_gpu_hour=None, source=None, as_of=None)
            else:
                said = [rent.kind, "second hand" if rent.second_hand else "", rent.note or ""]
                made[gpu] = PricedGpu(
                    gpu=gpu, price_per_gpu_hour=rent.price, source=rent.provider, as_of=rent.as_of, url=rent.url,
                    note="; ".join(filter(None, said)),
                )  # fmt: skip
        return made


@dataclass(frozen=True, slots=True)
class AskedChoices:
    """Layouts, engines, formats and policies, as options list them; None is what is usual."""

    tp: str | None = None
    pp: str | None = None
    ep: str | None = None
    engine: str = "none"
    weights: str | None = None
    kv: str | None = None
    policy: str | None = None

    def choices(self, most: int, *, plain: bool) -> Choices:
        """The same as the search has it.

        Args:
            most: GPUs of a deployment.
            plain: whether no version of an engine is asked, so that its own policy is known.

        Raises:
            UsageError, UnknownFormatError: naming what is not known.
        """
        from roofcast.calculators.cache_format import check_engine
        from roofcast.calculators.planning.machines import Choices
        from roofcast.modelspec.formats import find_format
        from roofcast.modelspec.requested import find_requested

        engines = _names(self.engine, "--engine")
        for name in engines:
            check_engine(name)
        weights, kv = _names(self.weights or DEFAULT_WEIGHTS, "--weights"), _names(self.kv or DEFAULT_KV, "--kv")
        for name in weights:
            if name != STORED:
                find_requested(name)
        for name in kv:
            if name != AUTO:
                find_format(name)
        return Choices(
            tp=_sizes(self.tp, "--tp"),
            pp=_sizes(self.pp, "--pp"),
            ep=_sizes(self.ep, "--ep"),
            engines=engines,
            weights=tuple(None if name == STORED else name for name in weights),
            kv=tuple(None if name == AUTO else name for name in kv),
            policies=self._policies(engines, plain=plain),
            most=most,
        )

    def _policies(self, engines: Sequence[str], *, plain: bool) -> tuple[str, ...]:
        """Policies; chunked is left out where it is the engines' own, unless it is asked."""
        from roofcast.calculators.planning.machines import COLOCATED, DISAGGREGATED, STEPS

        known = (COLOCATED, DISAGGREGATED, *sorted(STEPS))
        found = _names(self.policy or DEFAULT_POLICIES, "--policy")
        for name in found:
            if name not in known:
                raise UsageError(f"--policy {name}: known: {', '.join(known)}")
        if self.policy is None and plain and all(engine in CHUNKED for engine in engines):
            return tuple(name for name in found if name != "chunked")
        return found


@dataclass(frozen=True, slots=True)
class AskedLimits:
    """What a deployment may be, and how long the search may take, as options give it."""

    max_gpus: int | None = None
    max_cost: str | None = None
    budget: str | None = None
    top: int | None = None

    @property
    def gpus(self) -> int:
        """GPUs at most.

        Raises:
            UnitError, UsageError: no such number.
        """
        return _at_most(self.max_gpus, "--max-gpus", DEFAULT_GPUS, MOST_GPUS)

    @property
    def kinds(self) -> int:
        """Kinds of GPUs whose cheapest deployment is looked for.

        Raises:
            UnitError, UsageError: no such number.
        """
        return _at_most(self.top, "--top", DEFAULT_KINDS, MOST_KINDS)

    @property
    def cost(self) -> float:
        """US dollars an hour at most: --max-cost, or a --budget in dollars. [USD/h]

        Raises:
            UsageError: no amount of money.
        """
        texts = [("--max-cost", self.max_cost)]
        if self.budget is not None and re.fullmatch(_MONEY, self.budget):
            texts.append(("--budget", self.budget))
        found = [value for option, text in texts if (value := dollars(text, option, "20 (USD an hour)")) is not None]
        zero = next((f"{option} {text}" for option, text in texts if dollars(text, option, "20") == 0), None)
        if zero is not None:
            raise UsageError(f"{zero}: it must be above 0 US dollars an hour, such as 20")
        return min(found, default=inf)

    @property
    def seconds(self) -> float | None:
        """Time that the search may take; None without a bound. [s]

        Raises:
            UnitError: neither a time nor money.
        """
        if self.budget is None or re.fullmatch(_MONEY, self.budget):
            return None
        if re.fullmatch(r"\s*[0-9.]+\s*", self.budget):
            raise UnitError(f"--budget {self.budget}: of what? 30s is time to search, '$20' is US dollars an hour")
        try:
            return parse_duration(self.budget)
        except UnitError as error:
            raise UnitError(
                f"--budget {self.budget}: write it like 30s (time to search) or '$20' (US dollars an hour)"
            ) from error


def _at_most(value: int | None, option: str, usual: int, most: int) -> int:
    """A number within bounds, or the usual one.

    Raises:
        UnitError, UsageError: no such number.
    """
    found = options.size(value, option) or usual
    if found > most:
        raise UsageError(f"{option} {found:,}: it must be at most {most:,}")
    return found


def _names(text: str, option: str) -> tuple[str, ...]:
    """Names of a list, each once.

    Raises:
        UsageError: there is none.
    """
    return tuple(dict.fromkeys(part.strip().lower() for part in _parts(text, option)))


def _parts(text: str, option: str) -> list[str]:
    """Parts between commas.

    Raises:
        UsageError: one of them is empty.
    """
    found = text.split(",")
    if not all(part.strip() for part in found):
        raise UsageError(f"{option} {text!r}: there is nothing between its commas; write names like a,b")
    return found


def _sizes(text: str | None, option: str) -> tuple[int, ...]:
    """Numbers of GPUs of a list; empty where none is asked.

    Raises:
        UnitError: no such number.
    """
    if text is None:
        return ()
    try:
        found = tuple(dict.fromkeys(parse_tokens(part) for part in text.split(",")))
    except UnitError as error:
        raise UnitError(f"{option} {text}: it must list numbers of GPUs, such as 1,2,4") from error
    for value in found:
        if value > MOST_GPUS:
            raise UsageError(f"{option} {value:,}: it must be at most {MOST_GPUS:,}")
    return found
