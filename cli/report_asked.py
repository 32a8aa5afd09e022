"""What `report` is asked, read from its options before any work is done."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from roofcast.calculators.errors import UsageError
from roofcast.cli import options
from roofcast.cli.asked_deployment import time_limit
from roofcast.cli.deploy import few_values, one

if TYPE_CHECKING:
    from roofcast.calculators.check_quantities import Case
    from roofcast.calculators.cost import Tariff
    from roofcast.calculators.report import Limits
    from roofcast.cli.asked_deployment import AskedDeployment
    from roofcast.hwdb.accelerator import Accelerator
    from roofcast.hwdb.prices import PriceList

DEFAULT_CONTEXT: Final = 4096  # tokens
DEFAULT_GPUS: Final = "h100-sxm,h200-sxm,b200"
DEFAULT_MODELS: Final = "llama-2-7b,llama-3.1-8b,deepseek-v3"  # MHA, GQA and MLA
MOST_GPUS: Final = 5  # side by side, the own one among them
MOST_MODELS: Final = 7
NONE: Final = "none"


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

    deployed: AskedDeployment
    context: str | None
    prompt: str | None
    output: str | None
    batch: str | None
    ttft: str | None
    tpot: str | None
    beside: Beside
    rate: str | None = None

    def placed(self) -> AskedReport:
        """The same with the accelerator named.

        Raises:
            UnknownAcceleratorError, UsageError: this machine has none, or one that is not known.
        """
        return replace(self, deployed=self.deployed.placed())

    def case(self) -> Case:
        """The deployment as rules of `check` have it.

        Raises:
            UsageError, UnitError: naming the option.
        """
        one(self.output, "--output", 1)
        context = one(self.context, "--context", DEFAULT_CONTEXT)
        return replace(self.deployed.case(), context=context, prompt=one(self.prompt, "--prompt", context))

    def batches(self) -> list[int] | None:
        """Loads that are asked for; None for those from one to all that fit.

        Raises:
            UsageError: too many.
        """
        asked = options.batch_list(self.batch)
        return None if asked is None else few_values(sorted(set(asked)), "--batch")

    def requests_per_second(self) -> float | None:
        """Requests that come, of other deployments that would do. [1/s]

        Raises:
            UsageError: no rate.
        """
        from roofcast.cli.price_asked import rate

        return rate(self.rate)

    def limits(self) -> Limits:
        """What is promised.

        Raises:
            UnitError: no time.
        """
        from roofcast.calculators.report import Limits

        return Limits(time_limit(self.ttft, "--ttft", "500ms"), time_limit(self.tpot, "--tpot", "50ms"))


def _names(text: str | None, usual: str, option: str, most: int) -> list[str]:
    """Names in a list, each once; `none` is none of them."""
    if text == NONE:
        return []
    names = list(dict.fromkeys(name.strip() for name in (usual if text is None else text).split(",")))
    if not all(names) or len(names) > most:
        raise UsageError(f"{option} {text}: it must list 1 to {most} names, separated by commas, or be none")
    return names
