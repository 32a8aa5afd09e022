"""A measured point: what, where, value, spread; and what it takes to predict one."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from math import prod
from typing import TYPE_CHECKING, Any, Final

from roofcast.calculators.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    Given = Mapping[str, str | float]


class MeasurementFileError(ValueError):
    """A file of measurements that cannot be read; the message is one line that names the file and the place."""


@dataclass(frozen=True, slots=True)
class Quantity:
    """Something that is measured.

    Args:
        unit: of its value.
        meaning: in one line.
        needs: fields without which it cannot be predicted, beside model and gpu; `a|b` is either.
    """

    unit: str
    meaning: str
    needs: tuple[str, ...]


QUANTITIES: Final[Mapping[str, Quantity]] = {
    "decode_seconds": Quantity(
        "s", "one decode step of `batch` sequences at mean `context`, host time in it, nothing queued", ("batch", "context|prompt")
    ),
    "prefill_seconds": Quantity(
        "s", "`batch` prompts of `prompt` tokens each, all but `cached` computed, nothing queued", ("batch", "prompt")
    ),
    "batch_seconds": Quantity(
        "s", "`batch` requests sent together: one prefill and `output` - 1 decode steps", ("batch", "prompt", "output")
    ),
    "tpot_seconds": Quantity(
        "s", "time per output token after the first, of a server with `batch` requests at once: others' prefills are in it", ("batch", "prompt", "output")
    ),
    "ttft_seconds": Quantity(
        "s", "time to the first token, of a server with `batch` requests at once: a prefill where that is 1, else waiting too", ("batch", "prompt")
    ),
    "output_tokens_per_second": Quantity("token/s", "output tokens of a server with `batch` requests at once", ("prompt", "output")),
    "total_tokens_per_second": Quantity("token/s", "the same, prompt tokens counted too", ("prompt", "output")),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Measurement:
    """One measured point; None of what its file does not state.

    Args:
        source: URL or file.
        quantity: one of `QUANTITIES`.
        value: in its unit, above 0.
        id: within the source.
        date: day, month or year, ISO 8601.
        low, high: interval that the source gives: least and most of repeats, or of 80 % of requests.
        spread: standard deviation that it gives, in the value's unit.
        model: name or repo id, as written.
        revision: of the repo.
        gpu: as written.
        gpus: all together.
        tp, pp, ep, dp: how they share the model.
        engine: as --engine, else as written.
        engine_version: as written.
        weights: as --weights; None: as stored.
        kv: as --kv; None: the engine's default.
        batch: sequences at once; of a server its concurrency.
        prompt: tokens of a prompt, those already in the cache too; may be a mean. [token]
        output: tokens that a request gets; may be a mean. [token]
        context: mean tokens before a decoded one, where stated. [token]
        cached: of the prompt, already in the cache. [token]
        suspect: why the point should not be believed.
        notes: what else should be known.
    """

    source: str
    quantity: str
    value: float
    id: str | None = None
    date: str | None = None
    low: float | None = None
    high: float | None = None
    spread: float | None = None
    model: str | None = None
    revision: str | None = None
    gpu: str | None = None
    gpus: int | None = None
    tp: int | None = None
    pp: int | None = None
    ep: int | None = None
    dp: int | None = None
    engine: str | None = None
    engine_version: str | None = None
    weights: str | None = None
    kv: str | None = None
    batch: int | None = None
    prompt: float | None = None
    output: float | None = None
    context: float | None = None
    cached: float | None = None
    suspect: str | None = None
    notes: str | None = None

    @property
    def mean_context(self) -> float | None:
        """Mean tokens before a decoded one: as stated, else prompt + output / 2. [token]

        >>> Measurement("here", "decode_seconds", 0.01, prompt=1024, output=512).mean_context
        1280.0
        """
        if self.context is not None or self.prompt is None:
            return self.context
        return self.prompt + (self.output or 0) / 2

    @property
    def missing(self) -> tuple[str, ...]:
        """Fields without which it cannot be predicted.

        >>> Measurement("here", "prefill_seconds", 0.1, model="llama-3-8b", prompt=512).missing
        ('gpu', 'batch')
        """
        needs = ("model", "gpu", *QUANTITIES[self.quantity].needs)
        return tuple(
            need.partition("|")[0] for need in needs if all(getattr(self, name) is None for name in need.split("|"))
        )


@dataclass(frozen=True, slots=True)
class Reading:
    """What a file holds.

    Args:
        kind: whose file it is, as `KINDS` of `measurement_file` names it.
        points: measured.
        remarks: what was left out, and how figures were read.
    """

    kind: str
    points: tuple[Measurement, ...]
    remarks: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Completed:
    """Points with what files do not state filled in.

    Args:
        points: in the same order.
        given: what was taken from the caller, a line each.
        assumed: what nobody stated and was assumed, a line each.
    """

    points: tuple[Measurement, ...]
    given: tuple[str, ...]
    assumed: tuple[str, ...]


#: Fields that a caller may give.
GIVABLE: Final = (
    "model", "revision", "gpu", "gpus", "tp", "pp", "ep", "dp", "engine", "engine_version", "weights", "kv",
    "batch", "prompt", "output", "context", "cached",
)  # fmt: skip
SHARES: Final = ("tp", "pp", "dp")  # their product is the devices


def complete(points: Sequence[Measurement], given: Given) -> Completed:
    """Fills in what files do not state: from the caller, whose word counts before the file's, else one device.

    Args:
        points: as read.
        given: fields of `GIVABLE` that the command line states.

    Raises:
        UsageError: devices and how they share the model do not agree.

    >>> done = complete([Measurement("here", "tpot_seconds", 0.01, model="mine")], {"model": "llama-3-8b", "tp": 2})
    >>> done.points[0].model, done.points[0].gpus, done.given
    ('llama-3-8b', 2, ('model: llama-3-8b instead of mine', 'tp: 2'))
    """
    wrong = [name for name in given if name not in GIVABLE]
    if wrong:
        raise TypeError(f"{wrong[0]} cannot be given; that can: {', '.join(GIVABLE)}")
    told = [_told(name, value, points) for name, value in given.items()]
    named = [replace(point, **given) for point in points] if given else list(points)  # type: ignore[arg-type] # GIVABLE
    made = tuple(_on_devices(point, given) for point in named)
    for point in made:
        _refuse_devices(point)
    return Completed(made, tuple(filter(None, told)), _assumed(named) if named else ())


def _refuse_devices(point: Measurement) -> None:
    """Refuses devices that are not shared as stated, which a file and a caller may have said together."""
    shares = [getattr(point, name) for name in SHARES]
    if point.gpus != prod(shares):
        said = " x ".join(f"{name} {share}" for name, share in zip(SHARES, shares, strict=True))
        raise UsageError(f"{point.source}: {point.gpus} GPUs are not {said}; give --gpus, --tp, --pp and --dp that agree")  # fmt: skip


def _told(name: str, value: str | float, points: Sequence[Measurement]) -> str:
    stated = dict.fromkeys(str(getattr(point, name)) for point in points if getattr(point, name) not in {None, value})
    others = f" instead of {', '.join(list(stated)[:3])}{' ...' if len(stated) > 3 else ''}" if stated else ""  # noqa: PLR2004
    return f"{name}: {value}{others}" if points else ""


def _on_devices(point: Measurement, given: Given) -> Measurement:
    """With devices and shares that agree: devices = tp pp dp, and where only devices are stated tp = devices."""
    shares = [getattr(point, name) for name in SHARES]
    product = prod(share or 1 for share in shares)
    if shares == [None] * len(shares):
        return replace(point, gpus=point.gpus or 1, tp=point.gpus or 1, pp=1, dp=1, ep=point.ep or 1)
    devices = product if "gpus" not in given and any(name in given for name in SHARES) else point.gpus or product
    filled: dict[str, Any] = {name: share or 1 for name, share in zip(SHARES, shares, strict=True)}
    return replace(point, gpus=devices, ep=point.ep or 1, **filled)


def _assumed(points: Sequence[Measurement]) -> tuple[str, ...]:
    alone = sum(all(getattr(point, name) is None for name in ("gpus", *SHARES)) for point in points)
    whole = sum((point.gpus or 1) > 1 and all(getattr(point, name) is None for name in SHARES) for point in points)
    lines = (
        f"gpus: {alone:,} of {len(points):,} points do not state them: 1 is taken" if alone else "",
        f"tp: {whole:,} of {len(points):,} points do not state how GPUs share the model: tp is taken" if whole else "",
    )
    return tuple(filter(None, lines))


def as_row(point: Measurement) -> dict[str, str | float]:
    """Its fields that are stated, by name, in the order of the schema.

    >>> as_row(Measurement("here", "prefill_seconds", 0.1))
    {'source': 'here', 'quantity': 'prefill_seconds', 'value': 0.1}
    """
    named = ((field.name, getattr(point, field.name)) for field in fields(point))
    return {name: value for name, value in named if value is not None}
