"""Measured steps and points of servers, with their kernels by the constants that are in the files: what `fit_steps.py` fits."""

from __future__ import annotations

import csv
import json
import statistics
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Final

from roofcast.calculators.deployment import Deployment, Ready, prepare
from roofcast.calculators.expected.expectation import expectation_for
from roofcast.calculators.phases import Asked, answer_point
from roofcast.hwdb.efficiency import Efficiency
from roofcast.hwdb.lookup import find_accelerator
from roofcast.modelspec.formats import FORMATS
from roofcast.modelspec.model import load_model
from roofcast.modelspec.op import ELEMENTWISE, Op
from roofcast.modelspec.requested import find_requested
from roofcast.modelspec.sharding import Shards
from roofcast.modelspec.source import resolve
from roofcast.modelspec.step import DECODE, PREFILL

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

ENGINES: Final = {"trtllm": "tensorrt-llm"}
SYSTEMS: Final = {"h100_sxm": "h100-sxm", "h200_sxm": "h200-sxm"}
DENSE: Final = {"Llama-3.1-8B-Instruct": "llama-3.1-8b", "Llama-3.1-70B": "llama-3.1-70b", "Qwen3-32B": "qwen3-32b"}
MOST_BATCH: Final = 256  # at which the host of an engine in the same process hides the device
MOST_CACHE: Final = 0.15  # of a step's bytes, where the format of a server's cache is not stated
MOST_PREFILL: Final = 0.5  # of a server's TPOT: beyond, how prompts wait decides it, which is simulated


@dataclass(frozen=True, slots=True)
class Parts:
    """A step's kernels by family, what of them is least time of calls, and element-wise work.

    Args:
        kernels: family -> expected. [s]
        launches: family -> calls x t0. [s]
        calls, loose: kernels, and those of them that are element-wise.
        moved: bytes / bandwidth of the latter. [s]
        devices, sequences: in the step.
        spread: of the kernels by their tables, each family wholly of one mind. [-]
        bound: least time of the step. [s]
    """

    kernels: dict[str, float]
    launches: dict[str, float]
    calls: float
    loose: float
    moved: float
    devices: int
    sequences: int
    spread: float
    bound: float = 0.0


@dataclass(frozen=True, slots=True)
class Row:
    """One measured point.

    Args:
        engine, accelerator, group: of it; rows of one group are kept out together.
        seconds: measured. [s]
        decode, prefill: steps that it is made of; None without.
        prefills: how many of the latter. [-]
        served: whether by a server under load.
    """

    engine: str
    accelerator: str
    group: str
    seconds: float
    decode: Parts | None
    prefill: Parts | None
    prefills: float
    served: bool = False


# kernels as their tables have them, and nothing beside: what is fitted here, whatever the files hold of it
ALONE: Final = Efficiency.model_validate(
    {
        "schema": "roofcast.efficiency/1",
        "accelerator": "any",
        "engine": "any",
        "fits": [{"family": name, "constants": {}, "spread": 0.0} for name in (ELEMENTWISE, "host", "step")],
        "provenance": {"fitted": "2026-01-01", "by": "benchmarks/fit_steps.py", "source": "none"},
    }
)


@cache
def ready_of(model: str, accelerator: str, engine: str, tp: int, weights: str | None) -> Ready:
    """A deployment with the constants of its kernels."""
    found, card = load_model(resolve(model, offline=True)), find_accelerator(accelerator).accelerator
    asked = find_requested(weights) if weights else None
    ready = prepare(found, Deployment(card, FORMATS["bf16"], asked, Shards(tp=tp), engine))
    return replace(ready, expectation=replace(expectation_for(ready), own=ALONE))


def parts_of(ready: Ready, asked: Asked) -> Parts:
    """A step's parts."""
    point, expectation = answer_point(ready, asked), ready.expectation
    kernels: dict[str, float] = {}
    launches: dict[str, float] = {}
    calls = loose = moved = 0.0
    for term in point.work.terms:
        op = term.op
        calls += op.calls
        if op.family == ELEMENTWISE and isinstance(op, Op):
            loose, moved = loose + op.calls, moved + (op.bytes + op.activation_bytes) / ready.roofs.bandwidth
            continue
        kernels[op.family] = kernels.get(op.family, 0.0) + term.expected
        if isinstance(op, Op) and expectation is not None:
            least = op.calls * expectation.choice(op.family, op.format).constants.t0
            launches[op.family] = launches.get(op.family, 0.0) + least
    wide = (
        expectation.spread([t for t in point.work.terms if t.op.family != ELEMENTWISE], 0.0, asked.phase)
        if expectation
        else 0.0
    )
    return Parts(
        kernels, launches, calls, loose, moved, ready.deployment.shards.devices, asked.batch, wide, point.work.bound
    )


def cached_share(ready: Ready, asked: Asked) -> float:
    """Share of a step's bytes that the cache has. [-]"""
    work = answer_point(ready, asked).work
    return work.state_bytes / work.bytes


def steps(data: Path) -> Iterator[Row]:
    """Whole steps of vLLM on one H200."""
    for path in sorted((data / "h200").glob("vllm_*.json")):
        found = json.loads(path.read_text())
        folder = data / "h200" / "models" / found["model"]
        ready = ready_of(str(folder), "h200-sxm", "vllm", 1, None)
        for phase in (DECODE, PREFILL):
            for one in found[phase]:
                batch, context = one.get("B", 1), one.get("ctx", one.get("n"))
                if unclear(ready, phase, batch):
                    continue
                milli = one["ms"] if phase == DECODE else statistics.median(one.get("ms_all", [one["ms"]]))
                made = parts_of(ready, Asked(phase, batch, context))
                decode, prefill = (made, None) if phase == DECODE else (None, made)
                yield Row("vllm", "h200-sxm", found["model"], milli / 1e3, decode, prefill, 1.0)


def unclear(ready: Ready, phase: str, batch: int) -> bool:
    """Steps that tell nothing of an engine.

    Batches whose host, in the same process, hides the device; prompts of mixtures with random weights, whose routers are
    uneven as no trained one is.
    """
    return batch >= MOST_BATCH or (bool(ready.program.routed) and phase == PREFILL)


def servers(data: Path, *, every: bool = False) -> Iterator[Row]:
    """Points of dense models on servers in closed loop; `every`: those too that tell nothing of constants."""
    with (data / "serving.csv").open() as file:
        for line in csv.DictReader(file):
            name = next((own for part, own in DENSE.items() if part in line["model_path"]), None)
            if name and usable(line):
                row = server(line, name, every=every)
                if row is not None:
                    yield row


def usable(line: dict[str, str]) -> bool:
    """Rows of one pool of devices that state their format."""
    plain = line["mode"] == "agg" and line["system"] in SYSTEMS and line["pp_size"] in {"", "1"}
    return plain and bool(line["gemm_quant_mode"])


def cached(decode: Parts, prefill: Parts, prefills: float, seconds: float) -> bool:
    """Whether a point is quicker than its decode steps and prefills at their bounds: its prompts were in a cache."""
    return seconds < decode.bound + prefills * prefill.bound


def server(line: dict[str, str], name: str, *, every: bool) -> Row | None:
    """One of them; None where what decides it is not stated: the cache's format, or how prompts wait."""
    engine, card = ENGINES.get(line["backend"], line["backend"]), SYSTEMS[line["system"]]
    weights = "fp8" if "fp8" in line["gemm_quant_mode"] else None
    ready = ready_of(name, card, engine, int(line["tp_size"]), weights)
    batch, prompt, output = (int(line[key]) for key in ("batch_size", "isl", "osl"))
    asked = Asked(DECODE, batch, prompt + output // 2)
    decode, prefill = parts_of(ready, asked), parts_of(ready, Asked(PREFILL, 1, prompt))
    if not every and engine == "tensorrt-llm" and cached_share(ready, asked) > MOST_CACHE:
        return None
    seconds, prefills = float(line["silicon_tpot_ms"]) / 1e3, batch / output
    if cached(decode, prefill, prefills, seconds):
        return None
    if not every and prefills * sum(prefill.kernels.values()) > MOST_PREFILL * seconds:
        return None
    return Row(engine, card, f"{name} {card} tp {line['tp_size']}", seconds, decode, prefill, prefills, served=True)
