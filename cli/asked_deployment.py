"""A deployment under an engine's rules of memory, as options give it: what `report` and `simulate` both ask."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from roofcast.cli import options
from roofcast.hwdb.units import UnitError, parse_quantity

if TYPE_CHECKING:
    from collections.abc import Mapping

    from roofcast.calculators.check_quantities import Case
    from roofcast.calculators.deployment import Ready
    from roofcast.cli.deploy import Machine
    from roofcast.cli.session import Lookup

LEAST_TIME, MOST_TIME = 1e-6, 3600.0  # s


@dataclass(frozen=True, slots=True)
class AskedDeployment:
    """A model, a machine, an engine with its flags, formats and constants, as options give them."""

    model: str
    machine: Machine
    flags: Mapping[str, object]
    weights: str | None
    kv: str | None
    efficiency: str
    lookup: Lookup

    def placed(self) -> AskedDeployment:
        """The same with the accelerator named: this machine is asked for its own once.

        Raises:
            UnknownAcceleratorError, UsageError: it has none, or one that is not known.
        """
        from roofcast.cli.machine import find_machine

        if self.machine.gpu is not None:
            return self
        return replace(self, machine=replace(self.machine, gpu=find_machine(None).accelerator.id))

    def case(self, *, modelled: bool = True) -> Case:
        """The deployment as rules of `check` have it.

        Args:
            modelled: whether an engine must be one whose rules of memory are modelled; others have no flags.

        Raises:
            UsageError, UnitError: naming the option.
        """
        from roofcast.calculators.cache_format import check_engine
        from roofcast.calculators.check_quantities import Case
        from roofcast.calculators.engines.flags import TAKES, check_flags
        from roofcast.cli.engine_flags import read_flags
        from roofcast.cli.machine import find_machine

        machine = self.machine
        check_engine(machine.engine)
        flags = read_flags(self.flags, {})
        if modelled or flags.given or machine.engine in TAKES:
            check_flags(machine.engine, flags)
        machine.shards()
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
        )

    def inputs(self, case: Case, ready: Ready) -> dict[str, object]:
        """What is asked, as `inputs` repeats it."""
        from roofcast.cli.deploy import device_inputs
        from roofcast.cli.machine import find_machine

        return {
            "model": self.model,
            **device_inputs(find_machine(self.machine.gpu), ready.deployment.shards),
            "network_bytes_per_second": case.network,
            "engine": case.engine,
            "engine_flags": case.flags.given,
            "weights": self.weights,
            "kv": ready.deployment.kv.name,
            **self.lookup.asked,
        }


def time_limit(text: str | None, option: str, example: str) -> float | None:
    """A time that is promised; None stays None. [s]

    Raises:
        UnitError: no time, or one that nobody promises.

    >>> time_limit("500ms", "--ttft", "500ms")
    0.5
    """
    if text is None:
        return None
    try:
        seconds = parse_quantity(text, "s")
    except UnitError as error:
        raise UnitError(f"{option} {text}: it is no time; write it like {example} or 0.5s") from error
    if not LEAST_TIME <= seconds <= MOST_TIME:
        raise UnitError(f"{option} {text}: it must be from 1us to 3600s, such as {example}")
    return seconds
