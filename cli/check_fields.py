"""Fields of a rule of `check`: one table, from which they are validated, and what a rule's quantity makes of them."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from roofcast.calculators.check_plan import ALL, named_gpus
from roofcast.calculators.check_quantities import BOUND, EXPECTED, IS, LOADS, OF_LOADS, OF_ONE_STEP, QUANTITIES, Case
from roofcast.calculators.engines.flags import TAKES, Flags, check_flags
from roofcast.calculators.errors import UsageError
from roofcast.cli.check_values import KINDS, LIMITS, in_fields
from roofcast.modelspec.nearest import nearest

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping

    from pydantic import BaseModel

    from roofcast.calculators.check_quantities import Quantity


@dataclass(frozen=True, slots=True)
class FieldRow:
    """One field of a rule.

    Args:
        kind: how it is read, one of `KINDS`.
        says: what it is, for editors and the manual.
    """

    kind: str
    says: str


#: field of a rule -> how it is read; matrix and exclude, which hold fields, are apart
FIELDS: Final[Mapping[str, FieldRow]] = {
    "name": FieldRow("text", "Name of the rule, unique in the run; without one it is made of quantity and fields."),
    "quantity": FieldRow("quantity", "What the rule is about."),
    "at_least": FieldRow("limit", "The least that will do, of what is better when there is more of it."),
    "at_most": FieldRow("limit", "The most that will do, of what is better when there is less of it."),
    "allowed_change": FieldRow("share", "How much worse than the baseline's value it may be: 2% or 0.02."),
    "model": FieldRow("text", "Folder, config.json, .gguf, catalogue name, or Hub repo org/name."),
    "revision": FieldRow("loose", "Branch, tag or commit of a Hub repo; the Hub is asked then."),
    "encoder_tokens": FieldRow("count", "Encoder or image tokens that cross attention keeps."),
    "gpu": FieldRow("gpu", "Accelerator: id, alias or driver name; of cheapest_cost also a list, or all."),
    "max_gpus": FieldRow("count", "GPUs of a deployment that is looked for at most (default: 64)."),
    "gpus": FieldRow("count", "GPUs that share the model."),
    "tp": FieldRow("count", "Tensor-parallel size (default: gpus)."),
    "pp": FieldRow("count", "Pipeline-parallel stages."),
    "ep": FieldRow("count", "Expert-parallel size, over tp x dp GPUs."),
    "dp": FieldRow("count", "Data-parallel replicas."),
    "network": FieldRow("link", "A GPU's link between domains, one direction: 400 Gbit/s."),
    "engine": FieldRow("engine", "Serving engine (default: none, the plain budget)."),
    "engine_version": FieldRow("loose", "Version of the engine whose rules apply (default: the newest known)."),
    "flags": FieldRow("flags", "The engine's own flags, as `roofcast fit` has them: {max_model_len: 8k}."),
    "weights": FieldRow("weights", "Weights in this format (default: as stored)."),
    "kv": FieldRow("kv", "Format of the KV cache (default: the engine's, else bf16)."),
    "reserve": FieldRow("part", "Share of the memory kept free, engine none (default: 10%)."),
    "max_num_batched_tokens": FieldRow("count", "Tokens of a step: longer prompts take several."),
    "context": FieldRow("count", "Tokens that each sequence holds: 4096 or 4k, which is 4096."),
    "prompt": FieldRow("count", "Tokens of a prompt."),
    "output": FieldRow("count", "Tokens that a request gets."),
    "rate": FieldRow("number", "Requests a second that come by chance, whoever waits: a load, which is simulated."),
    "concurrency": FieldRow("count", "Clients that each send a request when their last is answered: a load, likewise."),
    "trace": FieldRow("text", "File of requests, from the folder of the rule file: a load, likewise."),
    "requests": FieldRow("count", "Requests of a load (default: as `roofcast simulate`)."),
    "stagger": FieldRow("part", "Share by which outputs of clients vary, who never stay in step (default: 3%)."),
    "percentile": FieldRow("percentile", "Of 100 requests of a load so many: 99."),
    "ttft": FieldRow("seconds", "Time to the first token at most, of requests that are counted: 500ms."),
    "tpot": FieldRow("seconds", "Mean time per output token at most, likewise: 50ms."),
    "batch": FieldRow("count", "Sequences at once."),
    "prefix_hit": FieldRow("part", "Share of the prompt that a prefix cache holds."),
    "of": FieldRow("of", "Which tokens are priced (default: output)."),
    "gpu_price": FieldRow("dollars", "Price of one GPU for an hour, in US dollars."),
    "basis": FieldRow("basis", "bound, expected (default), or an end of the 80 % interval: low, high."),
}
LIMIT_FIELDS: Final = ("at_least", "at_most")
OF_RULE: Final = frozenset(("name", "quantity", *LIMIT_FIELDS, "allowed_change"))
#: fields that `defaults` may have, and those that `matrix` may vary
SHARED: Final = tuple(name for name in FIELDS if name not in OF_RULE)
VARIED: Final = tuple(name for name in SHARED if name != "flags")
MADE: Final = frozenset(("engine_version", "flags", "max_num_batched_tokens"))  # fields that are parts of others
MISSING: Final = "is missing"
OF_LENGTHS: Final = frozenset(("prompt", "output"))
OF_ENGINES: Final = frozenset(("engine_version", "flags"))
EXAMPLES: Final[Mapping[str, str]] = {
    "count": "100 or 4k", "bytes": "'80 GB' or '128 KiB'", "seconds": "500ms", "number": "1500", "dollars": "0.5",
}  # fmt: skip


@cache
def validator() -> type[BaseModel]:
    """The pydantic model of a rule's fields."""
    from pydantic import BeforeValidator, ConfigDict, Field, create_model

    def field(name: str, row: FieldRow) -> Any:  # noqa: ANN401 - of pydantic
        read, schema = KINDS[row.kind]
        default = ... if name == "quantity" else None
        return Any, Field(default, description=row.says, json_schema_extra=dict(schema)), BeforeValidator(read)

    made = {name: field(name, row) for name, row in FIELDS.items()}
    fields: dict[str, Any] = {name: (_annotated(kind, read), of) for name, (kind, of, read) in made.items()}
    return create_model("Rule", __config__=ConfigDict(extra="forbid", frozen=True), **fields)


def _annotated(kind: Any, read: Any) -> Any:  # noqa: ANN401 - a type made when the program runs
    from typing import Annotated

    return Annotated[kind, read]


@dataclass(frozen=True, slots=True)
class Read:
    """A rule's fields, read.

    Args:
        values: by name, those that were written or are defaults.
        own: names that the rule itself has, or its matrix.
    """

    values: Mapping[str, Any]
    own: frozenset[str]

    @property
    def about(self) -> Quantity:
        """What the rule is about."""
        return QUANTITIES[self.values["quantity"]]


def validated(raw: Mapping[str, Any]) -> tuple[dict[str, Any], list[tuple[str, str]]]:
    """The fields of a rule that can be read, and what is wrong with the others, by field."""
    from pydantic import ValidationError

    try:
        made = validator().model_validate(raw)
    except ValidationError as error:
        wrong = [_problem(detail) for detail in error.errors(include_url=False, include_input=False)]
        good = {name: value for name, value in raw.items() if name not in dict(wrong)}
        return (validated(good)[0] if good.keys() < raw.keys() else {}), wrong
    return {name: getattr(made, name) for name in raw}, []


def _problem(detail: Any) -> tuple[str, str]:  # noqa: ANN401 - pydantic's
    name = str(detail["loc"][0])
    if detail["type"] == "extra_forbidden":
        return name, strange(name, (*FIELDS, "matrix", "exclude"))
    if detail["type"] == "missing":
        return name, f"{MISSING}; write one of {', '.join(QUANTITIES)}"
    return name, str(detail.get("ctx", {}).get("error", detail["msg"]))


def strange(name: str, known: tuple[str, ...]) -> str:
    """What is said of a field that is none."""
    near = nearest(name, known, 1)
    return f"is no field here; {f'did you mean {near[0]}?' if near else 'known: ' + ', '.join(known)}"


def taken(about: Quantity, defaults: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    """Defaults that count for a rule: those that its quantity takes and it does not write, nor its engine rule out."""
    found = {name: value for name, value in defaults.items() if name in about.takes and name not in own}
    found = {name: value for name, value in found.items() if name not in _overruled(about, found, own)}
    engine = own.get("engine", found.get("engine", "none"))
    if engine == "none":
        return {
            name: value for name, value in found.items() if name not in OF_ENGINES or defaults.get("engine") == engine
        }
    return {name: value for name, value in found.items() if name != "reserve"}


def _overruled(about: Quantity, found: Mapping[str, Any], own: Mapping[str, Any]) -> frozenset[str]:
    """Defaults that a rule's own load takes the place of, or that mean nothing beside a load, or without one."""
    gone: set[str] = set()
    if not about.loaded:
        return frozenset()
    if "concurrency" in own:
        gone |= {"rate"}
    elif LOADS & own.keys():
        gone |= {"concurrency", "stagger"}
    if {"prompt", "output"} & own.keys():
        gone |= {"trace"}
    sent = {**{name: value for name, value in found.items() if name not in gone}, **own}
    if "trace" in sent:
        gone |= {"prompt", "output"}
    kind = sent.get("gpu", ALL)  # as it is written
    if about.of_several and not (isinstance(kind, str) and len(named_gpus(kind)) == 1):
        gone |= {"gpu_price"}
    if about.alone:
        gone |= OF_ONE_STEP if LOADS & sent.keys() else OF_LOADS
    return frozenset(gone)


def problems(read: Read, lost: Collection[str] = ()) -> Iterator[tuple[str, str]]:
    """What does not go together in a rule whose fields are read, by field.

    Args:
        read: its fields.
        lost: fields that could not be read, of which nothing more is said; beside unknown ones none is missed.
    """
    known = all(name in FIELDS for name in lost)
    for name, said in _problems(read, lost):
        if name not in lost and (known or not said.startswith(MISSING)):
            yield name, said


def _problems(read: Read, lost: Collection[str]) -> Iterator[tuple[str, str]]:
    about, values, quantity = read.about, read.values, read.values["quantity"]
    for name in sorted(read.own - about.takes - OF_RULE):
        yield name, f"{quantity} does not take it; it takes {', '.join(sorted(about.takes))}"
    loaded = bool(about.loaded) and (about.searched or bool(LOADS & {*values, *lost}))
    for name in about.loaded if loaded else about.needs:
        if name not in values and not (name in OF_LENGTHS and "trace" in values):
            yield name, f"{MISSING}; {quantity} needs it, here or in defaults"
    yield from _limits(about, values, quantity)
    if about.loaded:
        yield from _load(read) if loaded else _unloaded(read)
    if "gpu" in about.takes:
        yield from _engine(about, values)
        yield from _gpus(about, values, quantity)


def _limits(about: Quantity, values: Mapping[str, Any], quantity: str) -> Iterator[tuple[str, str]]:
    """Limits that make no sense for the quantity, or cannot be read."""
    if about.sign == IS:
        for name in (*LIMIT_FIELDS, "allowed_change"):
            if name in values:
                yield name, f"{quantity} is yes or no, and yes is required; leave it out"
        return
    for name in LIMIT_FIELDS:
        if name in values and name != about.limit:
            better = "more" if about.limit == "at_least" else "less"
            yield name, f"of {quantity} {better} is better; write {about.limit}"
    if about.limit in values:
        try:
            LIMITS[about.written](values[about.limit or ""])
        except ValueError as error:
            yield (
                about.limit or "",
                f"{error}" if "write" in str(error) else f"{error}; write it like {EXAMPLES[about.written]}",
            )
    if not {*LIMIT_FIELDS, "allowed_change"} & values.keys():
        yield (
            about.limit or "",
            f"{MISSING}; {quantity} needs a limit such as {EXAMPLES[about.written]}, or allowed_change",
        )


def _unloaded(read: Read) -> Iterator[tuple[str, str]]:
    """No load, of what takes one, or fields that mean nothing without."""
    about, quantity = read.about, read.values["quantity"]
    if not about.alone:
        yield "rate", f"{MISSING}; {quantity} is of a load: write rate, concurrency or trace"
        return
    for name in sorted(read.own & OF_LOADS & about.takes):
        yield name, f"is of a load: write rate, concurrency or trace too; without one {quantity} is of one step"


def _load(read: Read) -> Iterator[tuple[str, str]]:
    """Two loads, what means nothing beside one, and limits that are none."""
    about, values, quantity = read.about, read.values, read.values["quantity"]
    if "concurrency" in values and "rate" in values:
        yield "concurrency", "a load comes at a rate or from clients that wait for answers; write rate or concurrency"
    for name in sorted(read.own & OF_LENGTHS) if "trace" in values else ():
        yield name, "a trace has lengths of its own; leave it out"
    for name in sorted(read.own & OF_ONE_STEP & about.takes):
        yield name, f"is of one step; under a load {quantity} is of requests as they come"
    if values.get("basis", EXPECTED) not in {EXPECTED, BOUND}:
        yield "basis", f"{values['basis']} is an end of a step's interval; under a load write expected or bound"
    if "ttft" in about.takes and not {"ttft", "tpot"} & values.keys():
        yield "ttft", f"{MISSING}; {quantity} counts requests within limits: write ttft, tpot or both"


def _gpus(about: Quantity, values: Mapping[str, Any], quantity: str) -> Iterator[tuple[str, str]]:
    """Several GPUs where one is meant, a price of several, and a limit beyond the GPUs that are looked at."""
    one = len(named_gpus(values.get("gpu", ALL))) == 1
    if "gpu" in values and not one and not about.of_several:
        yield "gpu", f"{quantity} is of one kind of GPU, and takes one value; a list of values goes under matrix"
    if about.of_several and "gpu_price" in values and not one:
        yield "gpu_price", "is of one GPU; name it with gpu, or leave the price out"
    if about.planned and about.written == "count" and about.limit in values:
        yield from _beyond(LIMITS[about.written], values, about.limit or "")


def _beyond(read: Callable[[object], float], values: Mapping[str, Any], limit: str) -> Iterator[tuple[str, str]]:
    """A limit of more GPUs than are looked at, which would fail where it is met."""
    from roofcast.cli.planning_asked import DEFAULT_GPUS

    most = values.get("max_gpus", DEFAULT_GPUS)
    with suppress(ValueError):  # one that cannot be read is told elsewhere
        asked = read(values[limit])
        if asked > most:
            yield limit, f"{asked:,.0f} GPUs are allowed, {most:,} are looked at; write max_gpus: {asked:.0f} too"


def _engine(about: Quantity, values: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """An engine whose memory is not modelled, flags that it does not have, a reserve beside an engine."""
    engine, flags = values.get("engine", "none"), _flags(values)
    if about.of_memory and engine != "none" and engine not in TAKES:
        yield "engine", f"memory rules of {engine} are not modelled; modelled: none, {', '.join(TAKES)}"
        return
    if "reserve" in values and engine != "none":
        yield "reserve", f"is of engine none; {engine} has a budget of its own, by its flags"
    if engine != "none" and engine not in TAKES and flags.given:
        yield "flags", f"those of {engine} are not known; engines with flags: {', '.join(TAKES)}"
    elif engine == "none" or engine in TAKES:
        try:
            check_flags(engine, flags)
        except UsageError as error:
            yield "flags", in_fields(str(error))
    asked, own = values.get("max_num_batched_tokens"), values.get("flags", Flags()).max_num_batched_tokens
    if asked and own and asked != own:
        yield "max_num_batched_tokens", f"is {asked:,} here and {own:,} in flags; write it once"


def _flags(values: Mapping[str, Any]) -> Flags:
    """Flags of the engine, with what a rule has as fields of its own."""
    flags: Flags = values.get("flags", Flags())
    engine, budget = values.get("engine", "none"), values.get("max_num_batched_tokens")
    if budget and "max_num_batched_tokens" in TAKES.get(engine, ()):
        flags = replace(flags, max_num_batched_tokens=budget)
    return replace(flags, engine_version=values.get("engine_version"))


def case_of(read: Read, basis: str) -> Case:
    """The case of a rule without problems; `basis` is that of a rule that writes none."""
    about, values = read.about, read.values
    fields = {name: value for name, value in values.items() if name in about.takes and name not in MADE}
    flags = _flags(values)
    budget = values.get("max_num_batched_tokens") or flags.max_num_batched_tokens
    made = Case(**{"basis": basis, **fields})
    return replace(made, flags=flags, max_num_batched_tokens=budget)


def limit_of(read: Read) -> float | None:
    """The limit of a rule without problems, in its quantity's unit."""
    about = read.about
    written = read.values.get(about.limit or "")
    return None if written is None else LIMITS[about.written](written)


def usual_basis(*, expected: bool) -> str:
    """The basis of rules that write none."""
    return EXPECTED if expected else "bound"
