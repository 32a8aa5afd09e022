"""What `report` is asked, read from its options before any work is done."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from roofcast.calculators.errors import UsageError
from roofcast.cli import options
from roofcast.cli.deploy import few_values, one
from roofcast.hwdb.units import UnitError, parse_quantity

if TYPE_CHECKING:
    from collections.abc import Mapping

    from roofcast.calculators.check_quantities import Case
    from roofcast.calculators.cost import Tariff
    from roofcast.calculators.report import Limits
    from roofcast.cli.deploy import Machine
    from roofcast.cli.session import Lookup
    from roofcast.hwdb.accelerator import Accelerator
    from roofcast.hwdb.prices import PriceList

DEFAULT_CONTEXT: Final = 4096  # tokens
DEFAULT_GPUS: Final = "h100-sxm,h200-sxm,b200"
DEFAULT_MODELS: Final = "llama-2-7b,llama-3.1-8b,deepseek-v3"  # MHA, GQA and MLA
MOST_GPUS: Final = 5  # side by side, the own one among them
MOST_MODELS: Final = 7
NONE: Final = "none"
LEAST_TIME, MOST_TIME = 1e-6, 3600.0  # s


@dataclass(frozen=True, slots=True)
class Beside:
    """What the deployment is held against, as options give it."""

    gpus: str | None = None
    models: str | None = None
    measured: tuple[str, ...] = ()
    gpu_price: str | None = None
    apis: str | None = None

    def price_lists(self) -> tuple[PriceList, ...]:
        """Prices of APIs.

        Raises:
            UnknownPriceError: no such model or vendor.
        """
        from roofcast.cli.pricing import AskedApis

        return AskedApis(self.apis, None, None, None, None, None).lists()

    def gpu_names(self) -> list[str]:
        """Accelerators beside the own one."""
        return _names(self.gpus, DEFAULT_GPUS, "--other-gpus", MOST_GPUS - 1)

    def accelerators(self) -> list[Accelerator]:
        """Those accelerators.

        Raises:
            UnknownAcceleratorError: naming the option.
        """
        from roofcast.cli.machine import find_machine
        from roofcast.hwdb.lookup import UnknownAcceleratorError

        try:
            return [find_machine(name).accelerator for name in self.gpu_names()]
        except UnknownAcceleratorError as error:
            raise UnknownAcceleratorError(f"--other-gpus: {error}") from error

    def tariff(self) -> Tariff:
        """What the machine costs.

        Raises:
            UsageError: an amount that cannot be.
        """
        from roofcast.cli.price_asked import Money

        return Money(self.gpu_price, None, None, None, None, None).tariff()

    def model_names(self) -> list[str]:
        """Models beside the own one."""
        return _names(self.models, DEFAULT_MODELS, "--other-models", MOST_MODELS - 1)


@dataclass(frozen=True, slots=True)
class AskedReport:
    """The deployment, its load and what is promised, as options give them."""

    model: str
    machine: Machine
    flags: Mapping[str, object]
    weights: str | None
    kv: str | None
    efficiency: str
    context: str | None
    prompt: str | None
    output: str | None
    batch: str | None
    ttft: str | None
    tpot: str | None
    beside: Beside
    lookup: Lookup

    def placed(self) -> AskedReport:
        """The same with the accelerator named: this machine is asked for its own once.

        Raises:
            UnknownAcceleratorError, UsageError: it has none, or one that is not known.
        """
        from roofcast.cli.machine import find_machine

        if self.machine.gpu is not None:
            return self
        return replace(self, machine=replace(self.machine, gpu=find_machine(None).accelerator.id))

    def case(self) -> Case:
        """The deployment as rules of `check` have it.

        Raises:
            UsageError, UnitError: naming the option.
        """
        from roofcast.calculators.cache_format import check_engine
        from roofcast.calculators.check_quantities import Case
        from roofcast.calculators.engines.flags import check_flags
        from roofcast.cli.engine_flags import read_flags
        from roofcast.cli.machine import find_machine

        machine = self.machine
        check_engine(machine.engine)
        flags = read_flags(self.flags, {})
        check_flags(machine.engine, flags)
        machine.shards()
        one(self.output, "--output", 1)
        context = one(self.context, "--context", DEFAULT_CONTEXT)
        return Case(
            model=self.model,
            revision=self.lookup.revision,
            encoder_tokens=self.lookup.encoder_tokens,
            gpu=find_machine(machine.gpu).accelerator.id,
            gpus=machine.gpus,
            tp=machine.tp,
            pp=machine.pp,
            ep=machine.ep,
            dp=machine.dp,
            network=options.link_bandwidth(machine.network),
            engine=machine.engine,
            flags=flags,
            weights=self.weights,
            kv=self.kv,
            context=context,
            prompt=one(self.prompt, "--prompt", context),
        )

    def batches(self) -> list[int] | None:
        """Loads that are asked for; None for those from one to all that fit.

        Raises:
            UsageError: too many.
        """
        asked = options.batch_list(self.batch)
        return None if asked is None else few_values(sorted(set(asked)), "--batch")

    def limits(self) -> Limits:
        """What is promised.

        Raises:
            UnitError: no time.
        """
        from roofcast.calculators.report import Limits

        return Limits(_time(self.ttft, "--ttft", "500ms"), _time(self.tpot, "--tpot", "50ms"))


def _time(text: str | None, option: str, example: str) -> float | None:
    if text is None:
        return None
    try:
        seconds = parse_quantity(text, "s")
    except UnitError as error:
        raise UnitError(f"{option} {text}: it is no time; write it like {example} or 0.5s") from error
    if not LEAST_TIME <= seconds <= MOST_TIME:
        raise UnitError(f"{option} {text}: it must be from 1us to 3600s, such as {example}")
    return seconds


def _names(text: str | None, usual: str, option: str, most: int) -> list[str]:
    """Names in a list, each once; `none` is none of them."""
    if text == NONE:
        return []
    names = list(dict.fromkeys(name.strip() for name in (usual if text is None else text).split(",")))
    if not all(names) or len(names) > most:
        raise UsageError(f"{option} {text}: it must list 1 to {most} names, separated by commas, or be none")
    return names
