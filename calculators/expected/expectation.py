"""What a machine is expected to take: fitted constants of every family, chosen once for a deployment."""

from __future__ import annotations

from dataclasses import MISSING, dataclass, field, fields, replace
from functools import cache
from math import hypot, log
from typing import TYPE_CHECKING, Any, Final

from roofcast.calculators.expected.families import FAMILIES, HOST, STEP
from roofcast.calculators.expected.gemm import begun
from roofcast.calculators.expected.limits import Limits
from roofcast.calculators.expected.links import link_seconds
from roofcast.calculators.expected.stream import stream_seconds
from roofcast.hwdb.efficiency_files import (
    BUILT_IN,
    EfficiencyFileError,
    candidates,
    given,
    kinship,
    read_efficiency,
    usual_engine,
)
from roofcast.modelspec.attention import GroupedAttention
from roofcast.modelspec.op import ATTN_DECODE, ATTN_PREFILL, COLLECTIVE, GEMM, Op
from roofcast.modelspec.schemes import Blocks
from roofcast.modelspec.shapes import GemmShape

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from pathlib import Path

    from roofcast.calculators.deployment import Ready
    from roofcast.calculators.expected.host import HostConstants, StepConstants
    from roofcast.calculators.parallel import Fabric
    from roofcast.calculators.roofline import Roofs, Term
    from roofcast.hwdb.accelerator import Accelerator
    from roofcast.hwdb.efficiency import Efficiency, Fit
    from roofcast.hwdb.efficiency_files import Candidate
    from roofcast.modelspec.model import Model
    from roofcast.modelspec.op import Exchange
    from roofcast.modelspec.program import Program
    from roofcast.modelspec.requested import Requested
    from roofcast.modelspec.shapes import Shape

# formats that kernels multiply alike, and phases whose host and steps are
ALIKE_FORMATS: Final = (frozenset(("bf16", "fp16")), frozenset(("fp4", "mxfp4")), frozenset(("mixed", "prefill")))
ATTENTION: Final = frozenset((ATTN_DECODE, ATTN_PREFILL))
KIND: Final = "kind"
LEAST_CALLS: Final = 1e-9
ANY: Final = "any"
NONE: Final = "none"
SMS: Final = 108.0  # multiprocessors of a device whose data sheet has no such thing
# format -> those whose constants stand in for it, the nearest first
STAND_INS: Final[Mapping[str, tuple[str, ...]]] = {
    "fp16": ("bf16", "ggml"),
    "bf16": ("fp16", "ggml"),
    "fp8": ("int8", "bf16", "fp16"),
    "int8": ("fp8", "bf16", "fp16"),
    "fp4": ("mxfp4", "fp8", "bf16", "fp16"),
    "int4": ("bf16", "fp16"),
    "fp8_block": ("fp8", "bf16"),
    "ggml": ("fp16", "bf16"),
    "fp32": ("bf16", "fp16"),
    "tf32": ("bf16", "fp16"),
    "mixed": ("prefill",),
}


@dataclass(frozen=True, slots=True)
class Choice:
    """Constants that count for a family and a format.

    Args:
        family, format: of the operations.
        constants: as the family's formula takes them.
        spread: standard deviation of ln(measured / expected), widened where they are another's. [-]
        file: whose they are.
        fit: with its provenance.
        ways: how the file differs from what is asked: `architecture`, `alike`, `format` ...; empty where it is its own.
    """

    family: str
    format: str
    constants: Any
    spread: float
    file: str
    fit: Fit
    ways: tuple[str, ...]


def families_by_file(choices: Iterable[Choice]) -> dict[str, str]:
    """Whose constants count for which families, these as a sentence lists them."""
    found: dict[str, list[str]] = {}
    for one in choices:
        found.setdefault(one.file, []).append(one.family)
    return {file: ", ".join(dict.fromkeys(families)) for file, families in found.items()}


@dataclass(frozen=True, slots=True)
class _Plan:
    """How operations of one family and format are timed in a phase; `known`: shapes that came before."""

    formula: Callable[[Any, Any, Any], float] | None
    limits: Limits
    constants: Any
    hidden: float
    factor: float
    repeats: bool
    known: dict[Shape, float] = field(default_factory=dict)


@dataclass(slots=True)
class Expectation:
    """The expected time of every operation on one accelerator under one engine.

    Args:
        accelerator, engine: for which.
        roofs: of the accelerator under the engine.
        files: with their distance, the nearest first.
        own: a file of the user's that counts before them.
        kernels: format -> kind of kernels that multiply in it here, as FP8 with scales of blocks.
        unlike: labels of attention and recurrences that no table is of, whose constants are those of grouped attention.
    """

    accelerator: Accelerator
    engine: str
    roofs: Roofs
    files: tuple[Candidate, ...]
    own: Efficiency | None = None
    kernels: Mapping[str, str] = field(default_factory=dict)
    unlike: tuple[str, ...] = ()
    choices: dict[tuple[str, str], Choice] = field(default_factory=dict)
    _limits: dict[str, Limits] = field(default_factory=dict)
    _fabric: Fabric | None = None
    _exchanged: dict[Exchange, float] = field(default_factory=dict)
    _plans: dict[tuple[str, str, str], _Plan] = field(default_factory=dict)

    def seconds(self, op: Op, phase: str) -> float:
        """Expected time of an operation on one device in a step of a phase. [s]

        calls x (the family's formula - what a graph hides of t0) x (1 + what clocks give up in a long step).
        """
        key = phase, op.family, op.format
        plan = self._plans.get(key)
        if plan is None:
            plan = self._plans[key] = self._plan(*key)
        shape, formula = op.shape, plan.formula
        if shape is None or formula is None:
            calls = max(op.calls, LEAST_CALLS)
            size = (op.bytes + op.activation_bytes) / calls
            return (
                calls
                * plan.factor
                * (stream_seconds(op.flops / calls, size, plan.limits, plan.constants) - plan.hidden)
            )
        if not plan.repeats:
            return op.calls * plan.factor * (formula(shape, plan.limits, plan.constants) - plan.hidden)
        one = plan.known.get(shape)
        if one is None:
            hidden = plan.hidden * _begun(shape, plan.constants) if plan.hidden else 0.0
            one = plan.known[shape] = plan.factor * (formula(shape, plan.limits, plan.constants) - hidden)
        return op.calls * one

    def _plan(self, phase: str, family: str, number_format: str) -> _Plan:
        """What is the same for all operations of a family and a format in a phase."""
        constants, made = self.choice(family, number_format).constants, FAMILIES[family]
        step: StepConstants = self.choice(STEP, phase).constants
        hidden = step.hidden(family) * constants.t0
        factor = 1.0 + step.sustained if made.formula is not None else 1.0
        return _Plan(made.formula, self.limits(number_format), constants, hidden, factor, made.repeats)

    def exchanged(self, exchange: Exchange, fabric: Fabric) -> float:
        """Expected time of an exchange, all its times. [s]"""
        if self._fabric is not fabric:
            self._fabric, self._exchanged = fabric, {}
        found = self._exchanged.get(exchange)
        if found is None:
            constants = self.choice(COLLECTIVE, exchange.pattern).constants
            found = self._exchanged[exchange] = link_seconds(exchange, fabric, constants)
        return found

    def host(self, phase: str, devices: int, sequences: float, calls: float, kernels: float) -> float:
        """Time of the host in one step that no kernel hides, by its calls and the time of their kernels. [s]"""
        constants: HostConstants = self.choice(HOST, phase).constants
        return constants.seconds(devices, sequences, calls, kernels)

    def limits(self, number_format: str) -> Limits:
        """The roofs of a format."""
        found = self._limits.get(number_format)
        if found is None:
            sms = float(self.accelerator.sm_count or SMS)
            found = Limits(self.roofs.peaks[number_format], self.roofs.bandwidth, sms)
            self._limits[number_format] = found
        return found

    def choice(self, family: str, number_format: str) -> Choice:
        """The constants of a family and format: of the nearest file that has them.

        Raises:
            EfficiencyFileError: a file that cannot be read, or constants that a formula does not know.
        """
        key = family, self.kernels.get(number_format, number_format) if family == GEMM else number_format
        found = self.choices.get(key)
        if found is None:
            found = self.choices[key] = self._widened(_choose(self._efficiencies(), *key))
        return found

    def _widened(self, choice: Choice) -> Choice:
        """The same with the spread of a kind of attention that was not measured, where there is one."""
        if not self.unlike or choice.family not in ATTENTION:
            return choice
        return replace(choice, spread=hypot(choice.spread, kinship()[KIND]), ways=(*choice.ways, KIND))

    def spread(self, terms: Iterable[Term], host: float, phase: str, sequences: int = 1) -> float:
        """Standard deviation of ln(measured / expected) of a step: families apart, each wholly of one mind. [-]

        sigma^2 = parts^2 sum over families of (share of the time x spread)^2 + (that of whole steps)^2 + (batch ln B)^2, B
        the sequences, where one alone was measured.
        """
        sums: dict[tuple[str, str], float] = {(HOST, phase): host} if host else {}
        for term in terms:
            op = term.op
            key = op.family, op.format
            sums[key] = sums.get(key, 0.0) + term.expected
        total = sum(sums.values())
        step = self.choice(STEP, phase)
        parts = hypot(*(seconds * self.choice(*key).spread for key, seconds in sums.items()))
        many = step.constants.batch * log(sequences) if sequences > 1 else 0.0
        return hypot(step.constants.parts * parts / total if total else 0.0, step.spread, many)

    @property
    def used(self) -> list[Choice]:
        """The choices made so far."""
        return list(self.choices.values())

    def _efficiencies(self) -> Iterator[tuple[Candidate | None, Efficiency]]:
        if self.own is not None:
            yield given(self.accelerator, self.engine, self.own), self.own
        yield from ((one, _read(one.path)) for one in self.files)


def _begun(shape: Shape, constants: Any) -> float:  # noqa: ANN401 - of a family
    """Share of t0 that a call takes, of which no more can be hidden. [-]"""
    return begun(shape.m, constants) if isinstance(shape, GemmShape) else 1.0


def _read(path: Path) -> Efficiency:
    """A file whose constants formulas know: a test holds those of the project's own."""
    return read_efficiency(path) if path.parent == BUILT_IN else _held(path)


@cache
def _held(path: Path) -> Efficiency:
    made = read_efficiency(path)
    for fit in made.fits:
        _check_names(fit, FAMILIES[fit.family].constants, str(path))
    return made


def _choose(files: Iterable[tuple[Candidate | None, Efficiency]], family: str, number_format: str) -> Choice:
    """The nearest file's constants of that format, else of one that stands in for it."""
    for candidate, efficiency in files:
        by_format = {fit.format: fit for fit in efficiency.fits if fit.family == family}
        for name in (number_format, ANY, *STAND_INS.get(number_format, ())):
            if name in by_format:
                return _chosen(candidate, efficiency, by_format[name], number_format)
        if by_format and family != COLLECTIVE:
            return _chosen(candidate, efficiency, next(iter(by_format.values())), number_format)
    raise EfficiencyFileError(f"no efficiency file has constants of {family}")


def _chosen(candidate: Candidate | None, efficiency: Efficiency, fit: Fit, number_format: str) -> Choice:
    ways = () if candidate is None else tuple(_ways(candidate))
    alike = any({fit.format, number_format} <= names for names in ALIKE_FORMATS)
    if fit.format not in {number_format, ANY} and not alike:
        ways = (*ways, "format")
    made, name = FAMILIES[fit.family].constants, f"{efficiency.accelerator}.{efficiency.engine}"
    wider = kinship()
    spread = hypot(fit.spread, *(wider[way] for way in ways))
    return Choice(fit.family, number_format, made(**fit.constants), spread, name, fit, ways)


def _check_names(fit: Fit, made: type[Any], name: str) -> None:
    """Refuses constants that a family's formula does not know, and a fit without one that it needs."""
    known = {one.name: one.default is MISSING for one in fields(made)}
    unknown = next((constant for constant in fit.constants if constant not in known), None)
    if unknown:
        raise EfficiencyFileError(
            f"{name}: {fit.family} has no constant {unknown[:40]!r}; known: {', '.join(sorted(known))}"
        )
    missing = [constant for constant, needed in known.items() if needed and constant not in fit.constants]
    if missing:
        raise EfficiencyFileError(f"{name}: {fit.family} {fit.format} lacks {', '.join(missing)}")


def _ways(candidate: Candidate) -> Iterator[str]:
    if candidate.hardware != "own":
        yield candidate.hardware
    if candidate.software != "same":
        yield candidate.software


def kernels_of(model: Model, requested: Requested | None) -> Mapping[str, str]:
    """Formats whose kernels differ by how weights are scaled: FP8 with a scale for each block of both sides.

    Only a checkpoint's own storing tells; a format that is asked has a scale a tensor.
    """
    packing = model.implied.packing if model.implied is not None and requested is None else None
    if packing is None:
        return {}
    schemes = [packing.default, *(rule.scheme for rule in packing.rules)]
    blocks = (one.block for one in schemes if isinstance(one, Blocks) and one.compute == "fp8")
    return {"fp8": "fp8_block"} if any(min(block) > 1 for block in blocks) else {}


def unlike_kinds(program: Program) -> tuple[str, ...]:
    """Labels of a program's attention and recurrences that are not grouped attention, which alone the tables are of."""
    kinds = {part.mixer.label for part in program.mixers if not isinstance(part.mixer, GroupedAttention)}
    return tuple(sorted(kinds))


def expectation_of(accelerator: Accelerator, engine: str, roofs: Roofs, file: Path | None = None) -> Expectation:
    """The constants that count on an accelerator under an engine, every file in the order of its distance.

    Args:
        accelerator: for which.
        engine: for which; none is the accelerator's usual one.
        roofs: of both.
        file: of the user's, which counts before all others.

    Raises:
        AcceleratorFileError: a file that cannot be read.
    """
    asked = usual_engine(accelerator) if engine == NONE else engine
    own = None if file is None else _read(file)
    return Expectation(accelerator, asked, roofs, candidates(accelerator, asked), own)


def expectation_for(ready: Ready, file: Path | None = None) -> Expectation:
    """The constants that count for a model on a deployment: also by how its weights are scaled, and its attention.

    Raises:
        AcceleratorFileError: a file that cannot be read.
    """
    deployment = ready.deployment
    found = expectation_of(deployment.accelerator, deployment.engine, ready.roofs, file)
    kernels, unlike = kernels_of(ready.model, deployment.weights), unlike_kinds(ready.program)
    return replace(found, kernels=kernels, unlike=unlike)
