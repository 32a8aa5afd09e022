"""Rows of `speed.json` as columns of seconds, one for each constant that `fit_single.py` fits."""

from __future__ import annotations

import json
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

sys.path.append(str(Path(__file__).resolve().parent.parent))  # the tests' reader of published measurements

from roofcast.calculators.deployment import Deployment, prepare
from roofcast.calculators.expected.attention import DecodeConstants, PrefillConstants, decode_seconds, prefill_seconds
from roofcast.calculators.expected.experts import ExpertsConstants, experts_seconds
from roofcast.calculators.expected.gemm import GemmConstants, gemm_seconds
from roofcast.calculators.expected.limits import Limits
from roofcast.calculators.expected.stream import StreamConstants, stream_seconds
from roofcast.calculators.phases import Asked, answer_point
from roofcast.hwdb.efficiency_files import kind_of
from roofcast.modelspec.op import ATTN_DECODE, ATTN_PREFILL, GEMM, MOE, Op
from tests.measured import Question, UnaskedError, question

if TYPE_CHECKING:
    from roofcast.calculators.deployment import Ready

SOURCE: Final = "speed.json"
DECODE_ROWS: Final = "decode_single"
PREFILL_ROWS: Final = "prefill"
BATCH_ROWS: Final = "decode_batch"
# wording -> engine, of those that `--engine` names and that have no operator tables
ENGINES: Final = (
    (r"llama\.?cpp", "llama.cpp"),
    (r"gpt-fast", "gpt-fast"),
    (r"exllama ?v?2", "exllamav2"),
    (r"^mlc", "mlc"),
    (r"transformers|^hf", "transformers"),
)
WIDE: Final = ("bf16", "fp16")  # formats of 16 bits
SMS: Final = 108.0  # multiprocessors where a data sheet has none


@dataclass(frozen=True, slots=True)
class Form:
    """What is fitted of a phase.

    Args:
        names: of the columns.
        least: what each column's factor is at least: 1 of shares of a roof, 0 of addends.
        start: typical factor beyond `least`.
        widths: of the logarithms of all pairs, of an engine, of a class and of a pair.
    """

    names: tuple[str, ...]
    least: tuple[float, ...]
    start: tuple[float, ...]
    widths: tuple[tuple[float, ...], ...]


#: t0 [s], walk [s], 1/em - 1 of products and of the cache
DECODE_FORM: Final = Form(
    ("t0", "walk", "em", "cache"),
    (0.0, 0.0, 1.0, 1.0),
    (1e-5, 6e-10, 0.1, 0.7),
    ((1.0, 1.0, 0.5, 0.7), (0.5, 1.0, 0.5, 0.5), (0.5, 1.0, 0.5, 0.7), (0.25, 0.5, 0.3, 0.4)),
)
#: 1/ec - 1 of products in 16 bits, in fewer, and of attention
PREFILL_FORM: Final = Form(
    ("wide", "narrow", "attention"),
    (1.0, 1.0, 1.0),
    (1.0, 1.5, 6.0),
    ((1.0, 1.0, 1.0), (0.5, 0.5, 0.7), (0.7, 0.7, 0.7), (0.4, 0.4, 0.4)),
)


@dataclass(frozen=True, slots=True)
class Row:
    """A measurement as columns.

    Args:
        name, engine, accelerator, kind: of what; kind is the class.
        group: model and format, which folds keep together.
        seconds: measured. [s]
        columns: seconds that each constant stands for, at 1.
        fixed: what no constant changes. [s]
        formats: that its products are computed in.
        sequences: at once.
    """

    name: str
    engine: str
    accelerator: str
    kind: str
    group: str
    seconds: float
    columns: tuple[float, ...]
    fixed: float = 0.0
    formats: tuple[str, ...] = ()
    sequences: int = 1

    @property
    def pair(self) -> tuple[str, str]:
        """Accelerator and engine."""
        return self.accelerator, self.engine

    @property
    def levels(self) -> tuple[Hashable, ...]:
        """Whose logarithms are summed."""
        return ("all",), ("engine", self.engine), ("class", self.kind), ("pair", *self.pair)


# --- rows


def engine_of(wording: str) -> str | None:
    """The engine of a row's wording; None of those that are not fitted here.

    >>> engine_of("llama.cpp CUDA"), engine_of("torchao + gpt-fast style loop"), engine_of("vLLM")
    ('llama.cpp', 'gpt-fast', None)
    """
    return next((name for pattern, name in ENGINES if re.search(pattern, wording, re.IGNORECASE)), None)


def left_out(asked: Question, ready: Ready) -> str | None:
    """The rule by which a row stays out of the fit; None of one that stays in.

    Beside these `question` refuses rows that are marked suspect, and models and devices that are not known.
    """
    row, accelerator = asked.row, asked.accelerator
    cores = re.search(r"\b(\d+)c\b", row["gpu"])
    if cores and accelerator.sm_count and int(cores[1]) != accelerator.sm_count:
        return "another number of cores than the database's device"
    if accelerator.devices > 1:
        return "one device of a product of several"
    if "dyn" in row["weight_quant"].lower():
        return "activations quantised as they come, without a kernel for one row"
    if ready.weight_bytes > ready.capacity:
        return "does not fit"
    return None


def point_of(row: Mapping[str, object]) -> Asked:
    """What a row asks: decode at the mean context of its run, or its prompt."""
    prompt = int(str(row.get("input_len") or 0))
    if row["regime"] == PREFILL_ROWS:
        return Asked("prefill", 1, prompt)
    batch = int(str(row.get("batch") or 1)) if row["regime"] == BATCH_ROWS else 1
    return Asked("decode", batch, max(1, prompt + int(str(row.get("output_len") or 128)) // 2))


def limits_of(ready: Ready, op: Op) -> Limits:
    """Roofs of an operation."""
    return Limits(
        ready.roofs.peaks[op.format], ready.roofs.bandwidth, float(ready.deployment.accelerator.sm_count or SMS)
    )


def plain(op: Op, limits: Limits) -> float:
    """Seconds of an operation at the roofs, as the product's formula of its family has it. [s]"""
    calls = max(op.calls, 1e-9)
    if op.shape is None or op.family not in {GEMM, MOE, ATTN_DECODE, ATTN_PREFILL}:
        size = (op.bytes + op.activation_bytes) / calls
        return calls * stream_seconds(op.flops / calls, size, limits, StreamConstants())
    made: Mapping[str, Callable[[], float]] = {
        GEMM: lambda: gemm_seconds(op.shape, limits, GemmConstants()),  # type: ignore[arg-type]
        MOE: lambda: experts_seconds(op.shape, limits, ExpertsConstants()),  # type: ignore[arg-type]
        ATTN_DECODE: lambda: decode_seconds(op.shape, limits, DecodeConstants(0.0, 1.0, 1.0)),  # type: ignore[arg-type]
        ATTN_PREFILL: lambda: prefill_seconds(op.shape, limits, PrefillConstants(0.0, 1.0, 1.0)),  # type: ignore[arg-type]
    }
    return calls * made[op.family]()


def columns_of(ready: Ready, ops: Sequence[Op], regime: str) -> tuple[tuple[float, ...], float]:
    """Seconds of a step's operations that each constant of the regime's form multiplies, and the rest. [s]"""
    parts: defaultdict[str, float] = defaultdict(float)
    for op in ops:
        seconds = plain(op, limits_of(ready, op))
        if op.family in {GEMM, MOE}:
            parts["t0"] += op.calls
            parts["walk"] += op.calls * getattr(op.shape, "k", 0.0) * (op.family == GEMM)
            parts["em"] += seconds
            parts["wide" if op.format in WIDE else "narrow"] += seconds
        elif op.family in {ATTN_DECODE, ATTN_PREFILL}:
            parts["t0"] += op.calls
            parts["cache" if op.family == ATTN_DECODE else "attention"] += seconds
        else:
            parts["rest"] += seconds
    form = PREFILL_FORM if regime == PREFILL_ROWS else DECODE_FORM
    return tuple(parts[name] for name in form.names), parts["rest"]


def row_of(asked: Question, engine: str, ready: Ready) -> Row:
    """A question as columns."""
    row, accelerator = asked.row, asked.accelerator
    work = answer_point(ready, point_of(row)).work
    columns, rest = columns_of(ready, work.ops, row["regime"])
    formats = tuple(sorted({op.format for op in work.ops if op.family in {GEMM, MOE}}))
    group = f"{asked.model.name} {row['weight_quant']}"
    return Row(
        name=row["id"],
        engine=engine,
        accelerator=accelerator.id,
        kind=kind_of(accelerator),
        group=group,
        seconds=asked.seconds,
        columns=columns,
        fixed=rest,
        formats=formats,
        sequences=point_of(row).batch,
    )


def read_rows(data: Path, regime: str) -> tuple[list[Row], dict[tuple[str, str], Counter[str]]]:
    """Rows of a regime that are fitted; and of each pair how many each rule keeps out."""
    found: list[Row] = []
    out: defaultdict[tuple[str, str], Counter[str]] = defaultdict(Counter)
    for row in json.loads((data / SOURCE).read_text()):
        engine = engine_of(str(row.get("engine")))
        if row["regime"] != regime or row.get("n_gpus") != 1 or engine is None:
            continue
        try:
            asked = question(row, data.parent / "hub")
        except UnaskedError as error:
            out["", engine][str(error)] += 1
            continue
        deployment = Deployment(asked.accelerator, asked.kv, asked.weights, asked.layouts[0], engine)
        ready = prepare(asked.model, deployment)
        rule = left_out(asked, ready)
        if rule:
            out[asked.accelerator.id, engine][rule] += 1
            continue
        made = row_of(asked, engine, ready)
        if made.seconds < made.fixed + sum(
            x for x, least in zip(made.columns, form_of(regime).least, strict=True) if least
        ):
            out[made.pair]["quicker than its roofline"] += 1
            continue
        found.append(made)
    return found, dict(out)


def form_of(regime: str) -> Form:
    """What is fitted of a regime."""
    return PREFILL_FORM if regime == PREFILL_ROWS else DECODE_FORM
