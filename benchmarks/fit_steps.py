"""Fits what whole steps take beside their kernels: element-wise work, launches that graphs hide, the host, the spread.

The kernels' constants are in the folder of efficiency files by then. A measured step is explained as

    kernels = (1 + sustained) sum over families of (kernels - hidden x calls x t0) + elementwise
    step = kernels + host, host = step + device + sequence, and what launching takes longer than the kernels

with as few constants as pay: `t0` and `em` of element-wise kernels; the share `hidden` of a kernel's least time that its
table measured around one call and a step of many does not show; `sustained`, what clocks give up in a long prefill that
single kernels, measured with pauses, keep; the host's time a step, a further device and a sequence.

Rows are steps of vLLM on one H200, and points of dense models on servers in closed loop, where TPOT = decode + B prefill /
output. An engine's constants are one for all its GPUs. Scored by model and layout: a fit of each half, applied to the rest.
"""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from fitted import Fitted, asked_of, errors, parser_of, quantile, spread
from scipy.optimize import least_squares
from step_rows import Parts, Row, servers, steps

from roofcast.calculators.expected.host import HostConstants
from roofcast.calculators.expected.interval import Z80
from roofcast.modelspec.step import DECODE, PREFILL

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

PARTS: Final = 0.7  # of the kernels' spreads that is left in a step: tables' rows are off apart from one another
HIDDEN: Final = ("gemm", "moe", "attn_decode")


@dataclass(frozen=True, slots=True)
class Constants:
    """What is fitted, all of one engine."""

    t0: float = 1.2e-6
    em: float = 0.7
    gemm: float = 0.0
    moe: float = 0.0
    attn_decode: float = 0.0
    sustained: float = 0.0
    decode: float = 2e-4
    prefill: float = 2e-3
    launch: float = 2e-5
    device: float = 0.0
    sequence: float = 0.0

    def seconds(self, row: Row) -> float:
        """Expected time of a point. [s]"""
        total = 0.0
        if row.decode is not None:
            total += self._step(row.decode, self.host(DECODE), 1.0)
        if row.prefill is not None:
            total += row.prefills * self._step(row.prefill, self.host(PREFILL), 1 + self.sustained)
        return total

    def host(self, phase: str) -> HostConstants:
        """Of a phase: graphs launch decode whole, prompts are launched kernel by kernel."""
        if phase == DECODE:
            return HostConstants(self.decode, 0.0, self.device, self.sequence)
        return HostConstants(self.prefill, self.launch, self.device, self.sequence)

    def _step(self, parts: Parts, host: HostConstants, slower: float) -> float:
        hidden: float = sum(getattr(self, name) * parts.launches.get(name, 0.0) for name in HIDDEN)
        kernels = (sum(parts.kernels.values()) - hidden) * slower + parts.loose * self.t0 + parts.moved / self.em
        return kernels + host.seconds(parts.devices, parts.sequences, parts.calls, kernels)


# what is fitted of each engine's steps, then of its servers, and between which limits; what neither tells is vLLM's
STEPS: Final[dict[str, dict[str, tuple[float, float]]]] = {
    "vllm": {
        "t0": (1e-6, 4e-6), "em": (0.3, 1.0), "moe": (0.0, 0.9), "attn_decode": (0.0, 0.9), "sustained": (0.0, 0.3),
        "decode": (0.0, 1e-3), "prefill": (0.0, 6e-3), "launch": (0.0, 5e-5),
    },
}  # fmt: skip
SHARED: Final = (
    "t0",
    "em",
    "moe",
    "attn_decode",
    "sustained",
    "prefill",
    "launch",
)  # with engines whose steps are not measured
SERVERS: Final[dict[str, dict[str, tuple[float, float]]]] = {
    "vllm": {"device": (0.0, 3e-4)},
    "sglang": {"decode": (0.0, 5e-3), "sequence": (0.0, 5e-5), "device": (0.0, 3e-4)},
    "tensorrt-llm": {"gemm": (0.0, 0.95), "decode": (0.0, 5e-3), "device": (0.0, 3e-4)},
}


def fitted(rows: Sequence[Row], engine: str, start: Constants) -> Constants:
    """Constants of an engine: of its steps where there are any, then what its servers tell beside them."""
    whole = [row for row in rows if not row.served]
    first = _solved(whole, STEPS[engine], start) if whole and engine in STEPS else start
    served = [row for row in rows if row.served]
    return _solved(served, SERVERS[engine], first) if served else first


def _solved(rows: Sequence[Row], limits: dict[str, tuple[float, float]], start: Constants) -> Constants:
    """Least squares of ln(expected / measured), robust to a tenth being wrong."""
    names = list(limits)
    low, high = np.array([limits[name] for name in names]).T
    first = np.clip([getattr(start, name) for name in names], low + 1e-3 * (high - low), high - 1e-3 * (high - low))

    def at(x: Any) -> Constants:
        return replace(start, **dict(zip(names, (low + x * (high - low)).tolist(), strict=True)))

    def off(x: Any) -> list[float]:
        return [math.log(at(x).seconds(row) / row.seconds) for row in rows]

    found = least_squares(off, (first - low) / (high - low), bounds=(0, 1), loss="soft_l1", f_scale=0.05)
    return at(found.x)


def kept_out(rows: Sequence[Row], engine: str, start: Constants) -> list[tuple[Row, float]]:
    """ln(expected / measured) of every row, by a fit of all groups but its own."""
    made = []
    for group in sorted({row.group for row in rows}):
        constants = fitted([row for row in rows if row.group != group], engine, start)
        made += [(row, math.log(constants.seconds(row) / row.seconds)) for row in rows if row.group == group]
    return made


def fits(data: Path) -> Iterator[tuple[str, list[Row], Constants, list[tuple[Row, float]]]]:
    """Each engine: its rows, its constants, and ln(expected / measured) of rows whose group was kept out."""
    every, start = [*steps(data), *servers(data)], Constants()
    for engine in SERVERS:
        rows = [row for row in every if row.engine == engine]
        constants = fitted(rows, engine, start)
        yield engine, rows, constants, kept_out(rows, engine, start)
        start = (
            replace(Constants(), **{name: getattr(constants, name) for name in SHARED}) if engine in STEPS else start
        )


def fit(data: Path) -> list[Fitted]:
    """Constants of element-wise work, hosts and whole steps, by accelerator and engine."""
    return [one for engine, rows, constants, out in fits(data) for one in _emitted(rows, engine, constants, out)]


def left(rows: Iterable[tuple[Row, float]]) -> float:
    """The least spread of whole steps with which 80 % of rows lie in 1.28 hypot(0.7 parts, spread). [-]"""
    need = []
    for row, off in rows:
        inner = PARTS * (row.decode or row.prefill).spread  # type: ignore[union-attr]  # a row has one of them
        need.append(math.sqrt(max(0.0, (off / Z80) ** 2 - inner**2)))
    return quantile(sorted(need), 0.8)


def served(data: Path) -> float:
    """What all servers differ by from the closed form, beside the spread of their engine's steps: 80 % within it. [-]

    Those too whose cache or load decides more than constants do: what is not stated of a server is a part of it.
    """
    need = []
    for engine, _, constants, outside in fits(data):
        own = left(outside)
        rows = [row for row in servers(data, every=True) if row.engine == engine]
        for row in rows:
            off, inner = math.log(constants.seconds(row) / row.seconds), PARTS * (row.decode or row.prefill).spread  # type: ignore[union-attr]  # a row has one of them
            need.append(math.sqrt(max(0.0, (off / Z80) ** 2 - inner**2 - own**2)))
    return quantile(sorted(need), 0.8)


def _emitted(rows: Sequence[Row], engine: str, c: Constants, outside: Sequence[tuple[Row, float]]) -> list[Fitted]:
    """The same constants for each accelerator that the engine was measured on."""
    made = []
    inside = [math.log(c.seconds(row) / row.seconds) for row in rows]
    out = [off for _, off in outside]
    wide = left(outside)
    scores = {
        "rows": len(rows),
        "median_in": statistics.median(errors(inside)),
        "median_out": statistics.median(errors(out)),
        "p90_out": quantile(errors(out), 0.9),
        "source": ("h200/vllm_llama-3.1-8b.json", "h200/vllm_qwen2.5-1.5b.json", "h200/vllm_qwen3-30b-a3b.json")
        * (engine == "vllm")
        + ("serving.csv",),
    }
    hidden = {name: getattr(c, name) for name in HIDDEN if getattr(c, name)}
    for card in sorted({row.accelerator for row in rows}):
        plain: dict[str, Any] = {"accelerator": card, "engine": engine, **scores}
        made += [
            Fitted(family="elementwise", format="any", constants={"t0": c.t0, "em": c.em}, spread=0.0, **plain),
            Fitted(family="host", format=DECODE, constants=told(c.host(DECODE)), spread=0.0, **plain),
            Fitted(family="host", format=PREFILL, constants=told(c.host(PREFILL)), spread=0.0, **plain),
            Fitted(family="step", format=DECODE, constants={**hidden, "parts": PARTS}, spread=wide, **plain),
            Fitted(
                family="step",
                format=PREFILL,
                constants={"sustained": c.sustained, "parts": PARTS},
                spread=wide,
                **plain,
            ),
        ]
    return made


def told(constants: HostConstants) -> dict[str, float]:
    """What of them is not 0."""
    return {field.name: value for field in fields(constants) if (value := getattr(constants, field.name))}


def main() -> None:
    """Prints each group's errors."""
    data = asked_of(parser_of(__doc__), "serving.csv").data
    for engine, rows, c, outside in fits(data):
        print(engine, len(rows), {f.name: float(f"{getattr(c, f.name):.3g}") for f in fields(c)})
        for group in sorted({row.group for row in rows}):
            off = [math.expm1(x) for row, x in outside if row.group == group]
            mine = [c.seconds(row) / row.seconds - 1 for row in rows if row.group == group]
            print(
                f"  {group:40} {len(off):3d} in {statistics.median(map(abs, mine)):6.1%} bias {statistics.median(mine):+6.1%} "
                f"out {statistics.median(map(abs, off)):6.1%} bias {statistics.median(off):+6.1%}"
            )
        out = errors(x for _, x in outside)
        print(
            f"  out of fold: median {statistics.median(out):.1%}, p90 {quantile(out, 0.9):.1%}, "
            f"spread {spread(x for _, x in outside):.3f}"
        )


if __name__ == "__main__":
    main()
