"""Fits the memory constants of vLLM on half of a file of start-up logs, scores the other half, and prints both.

usage: engine_memory.py RECORDS [--models FOLDER]

RECORDS is a JSON list of logs, an object each: engine, engine_version, model, gpu, tp, pp, gpu_memory_utilization,
max_model_len, max_num_seqs, max_num_batched_tokens, weights_gib, peak_activation_gib, non_torch_gib, kv_tokens. FOLDER has
ORG/NAME/config.json of models that the catalogue lacks. A record that cannot be asked for is counted and left out.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import statistics
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from roofcast.calculators.deployment import Deployment
from roofcast.calculators.engines.activations import SAMPLER_REST, Profiled, profile_peak, sampler_bytes
from roofcast.calculators.engines.flags import Flags
from roofcast.calculators.engines.registry import engine_memory
from roofcast.calculators.engines.serving import serve
from roofcast.calculators.engines.terms import GIB, EngineMemory, Served
from roofcast.calculators.engines.vllm_start import Started, start
from roofcast.calculators.engines.vllm_terms import joined
from roofcast.calculators.engines.vllm_versions import rules_of
from roofcast.calculators.errors import UnansweredError, UsageError
from roofcast.hwdb.lookup import UnknownAcceleratorError, find_accelerator
from roofcast.modelspec.errors import ModelError
from roofcast.modelspec.formats import FORMATS
from roofcast.modelspec.model import load_model
from roofcast.modelspec.sharding import Shards
from roofcast.modelspec.source import resolve

LEAST = 6  # set-ups to fit and score
SINCE = (0, 17)  # versions that sample alike


@dataclass(frozen=True, slots=True)
class Point:
    """One log and the question that it answers."""

    row: dict[str, Any]
    served: Served
    started: Started
    memory: EngineMemory

    @property
    def setup(self) -> str:
        """What is alike in logs of one set-up."""
        return "|".join(str(self.row.get(key)) for key in ("model", "gpu", "tp", "pp", "engine_version"))

    @property
    def half(self) -> int:
        """Which half it is in, by its model: no model is in both."""
        return hashlib.sha256(str(self.row["model"]).encode()).digest()[0] % 2

    @property
    def known(self) -> bool:
        """Whether the constants that are fitted are its version's, and its terms are logged."""
        rules = self.started.rules
        logged = all(self.row.get(key) is not None for key in ("peak_activation_gib", "non_torch_gib"))
        return logged and rules.since >= SINCE

    @property
    def how(self) -> str:
        """How its devices share the model."""
        deployment = self.served.ready.deployment
        return joined(deployment.accelerator, deployment.shards.tp, deployment.shards.pp)


@dataclass(frozen=True, slots=True)
class Constants:
    """What is fitted: bytes a sampled logit, the sampler's rest, a forward pass's, and memory beside PyTorch's. [B]"""

    row_bytes: float
    sampler: float
    forward: float
    beside: dict[str, float]


def point_of(row: dict[str, Any], models: Path | None) -> Point | None:
    """The question of a record; None where it cannot be asked."""
    gpu = re.sub(r"[ (].*", "", str(row.get("gpu"))) if str(row.get("gpu")).startswith("H") else str(row.get("gpu"))
    gpu = re.sub(r" \d+ ?GB.*", "", gpu).replace("-80GB", "")
    try:
        model = load_model(resolve(_name(str(row["model"]), models), offline=True))
        if row.get("quantisation") == "fp8" and model.spec.quantization is None:
            row = row | {"quantization": "fp8"}
        flags = _flags(row)
        shards = Shards(row.get("tp") or 1, row.get("pp") or 1)
        kv = "fp8" if "fp8" in str(row.get("kv_cache_dtype")) else "bf16"
        deployment = Deployment(find_accelerator(gpu).accelerator, FORMATS[kv], None, shards, "vllm")
        served, _ = serve(model, deployment, flags)
        return Point(row, served, start(served, rules_of(flags.engine_version)[0]), engine_memory("vllm", served))
    except (ModelError, UsageError, UnansweredError, UnknownAcceleratorError):
        return None


def _name(model: str, models: Path | None) -> str:
    found = sorted(models.glob(f"*/{model.rpartition('/')[2]}")) if models else []
    return str(found[0]) if found else model


def _flags(row: dict[str, Any]) -> Flags:
    version = re.match(r"\d+\.\d+(\.\d+)?", str(row.get("engine_version", "")))
    dtype = {"float32": "fp32", "float16": "fp16"}.get(str(row.get("weights_dtype")))
    return Flags(
        engine_version=version.group() if version else None,
        dtype=dtype,
        quantization=row.get("quantization"),
        gpu_memory_utilization=row.get("gpu_memory_utilization"),
        max_model_len=row.get("max_model_len"),
        max_num_seqs=row.get("max_num_seqs"),
        max_num_batched_tokens=row.get("max_num_batched_tokens"),
    )


def fit(points: list[Point]) -> Constants:
    """Least squares on the logs whose sampler is the peak, medians of the others."""
    sampled, passed = [], []
    for point in points:
        ready, profiled = point.served.ready, _profiled(point, 0.0, 0.0)
        logged = point.row["peak_activation_gib"] * GIB
        beside = profile_peak(ready, _profiled(point, 1e6, 0.0)) - sampler_bytes(ready, _profiled(point, 1e6, 0.0))
        logits = min(point.started.rows, point.started.tokens) * ready.model.spec.vocab
        rest = logged - beside - (sampler_bytes(ready, profiled) - SAMPLER_REST)
        forward = profile_peak(ready, _profiled(point, -1e3, 0.0))
        if logits * (12 + point.started.width) > forward - beside:
            sampled.append((float(logits), rest))
        else:
            passed.append(logged - forward)
    slope, cut = _line(sampled)
    beside_torch = {
        how: statistics.median([p.row["non_torch_gib"] * GIB for p in points if p.how == how])
        for how in {p.how for p in points}
    }
    return Constants(slope, cut, statistics.median(passed) if passed else 0.075 * GIB, beside_torch)


def _profiled(point: Point, row_bytes: float, rest: float) -> Profiled:
    started = point.started
    return Profiled(started.tokens, started.rows, row_bytes, started.width, started.rules.shared_workspace, rest)


def _line(pairs: list[tuple[float, float]]) -> tuple[float, float]:
    mean_x, mean_y = (statistics.fmean(column) for column in zip(*pairs, strict=True))
    slope = sum((x - mean_x) * (y - mean_y) for x, y in pairs) / sum((x - mean_x) ** 2 for x, _ in pairs)
    return slope, mean_y - slope * mean_x


def predicted(point: Point, constants: Constants) -> float:
    """KV tokens by other constants than the product's."""
    ready = point.served.ready
    profiled = _profiled(point, constants.row_bytes, constants.forward)
    peak = profile_peak(ready, profiled)
    without = profile_peak(ready, _profiled(point, -1e3, constants.forward))
    peak += (constants.sampler - SAMPLER_REST) * (peak > without)
    beside = constants.beside.get(point.how)
    given = {"activation": peak} | ({} if beside is None else {"non_torch": beside})
    tokens = engine_memory("vllm", point.served, given).tokens
    return float(tokens[0]) if tokens else 0.0


def errors_of(points: list[Point], constants: Constants | None) -> list[float]:
    """|predicted / logged - 1| of KV tokens, the median of each set-up."""
    setups: dict[str, list[float]] = {}
    for point in points:
        ours = point.memory.tokens[0] if point.memory.tokens else 0.0
        value = ours if constants is None else predicted(point, constants)
        setups.setdefault(point.setup, []).append(abs(value / point.row["kv_tokens"] - 1))
    return sorted(statistics.median_low(errors) for errors in setups.values())


def line(name: str, errors: list[float]) -> str:
    """Median and 90th percentile."""
    if not errors:
        return f"{name}: no set-up"
    p90 = errors[min(len(errors) - 1, int(0.9 * len(errors)))]
    return (
        f"{name}: {len(errors)} set-ups, median {statistics.median(errors):.2%}, p90 {p90:.2%}, worst {errors[-1]:.1%}"
    )


def coverage(points: list[Point]) -> str:
    """Set-ups whose logged tokens lie in the product's 80 % interval."""
    inside: dict[str, list[bool]] = {}
    for point in points:
        if point.memory.tokens:
            _, low, high = point.memory.tokens
            inside.setdefault(point.setup, []).append(low <= point.row["kv_tokens"] <= high)
    hits = sum(sum(seen) * 2 >= len(seen) for seen in inside.values())
    return f"80 % interval: holds {hits} of {len(inside)} set-ups ({hits / max(1, len(inside)):.0%})"


def main() -> None:
    """Prints both halves, and the product's own score."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("records", type=Path)
    parser.add_argument("--models", type=Path)
    asked = parser.parse_args()
    rows = [r for r in json.loads(asked.records.read_text()) if r.get("engine") == "vllm" and r.get("kv_tokens")]
    rows = [r for r in rows if r.get("gpu_memory_utilization")]
    made = [point_of(row, asked.models) for row in rows]
    points = [point for point in made if point is not None]
    print(f"{len(points)} of {len(rows)} records can be asked for")
    known = [point for point in points if point.known]
    if len({point.setup for point in known}) < LEAST:
        parser.error(
            f"{asked.records}: fewer than {LEAST} set-ups of vLLM 0.17 or later state activations and non-torch"
        )
    for half in (0, 1):
        part, rest = ([p for p in known if (p.half == half) is side] for side in (True, False))
        constants = fit(part)
        beside = ", ".join(f"{how} {size / GIB:.2f}" for how, size in sorted(constants.beside.items()))
        print(
            f"\nfitted on half {half}: {constants.row_bytes:.2f} B a logit, sampler {constants.sampler / GIB:.3f} GiB, "
            f"forward {constants.forward / GIB:.3f} GiB, beside PyTorch {beside} GiB"
        )
        print(line("  on that half", errors_of(part, constants)))
        print(line("  on the rest", errors_of(rest, constants)))
    print()
    print(line("as shipped, versions fitted", errors_of(known, None)))
    print(line("as shipped, all", errors_of(points, None)))
    print(coverage(points))
    for point in sorted(points, key=lambda p: -abs((p.memory.tokens or (0,))[0] / p.row["kv_tokens"] - 1))[:8]:
        ours = (point.memory.tokens or (0,))[0]
        print(f"  {ours / point.row['kv_tokens'] - 1:+7.1%}  {point.setup}")


if __name__ == "__main__":
    main()
