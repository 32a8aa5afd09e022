"""Fits every constant of expected times anew, from a folder of measurements, and writes the efficiency files.

Run with an interpreter that has roofcast and its `dev` extra: `.venv/bin/python benchmarks/fit_efficiency.py --data FOLDER`.

FOLDER holds `ops/` (operator latencies, a CSV a device and family), `h200/` (whole steps of vLLM), `speed.json` (published
single-stream speeds) and `serving.csv` (published servers). Every family is fitted on all rows that its rules keep; what
is printed beside it is scored on rows kept out: a fit of each half, by shape, scored on the other. Nothing is random, so
the same data give the same files. `--check` compares with the files that are there and exits 1 where a constant differs.

No constant of `hwdb/efficiency/` is written by hand: all come from here. CI has no data and runs the arithmetic alone.
"""

from __future__ import annotations

import hashlib
import json
import math
import sys
from collections import defaultdict
from contextlib import contextmanager
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any

import fit_attention
import fit_experts
import fit_gemm
import fit_kinship
import fit_links
import fit_single
import fit_steps
import step_rows
from fitted import asked_of, parser_of

from roofcast.hwdb.efficiency import Efficiency
from roofcast.hwdb.efficiency_files import KINSHIP, OWN, SERVER, kinship, read_efficiency
from roofcast.hwdb.efficiency_text import efficiency_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from fitted import Fitted

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "hwdb" / "efficiency"
BY = "benchmarks/fit_efficiency.py"
KERNELS = (fit_gemm, fit_attention, fit_experts, fit_links, fit_single)
SOURCES = {
    "ops": "operator latencies of aiconfigurator-core 0.12.0 (Apache-2.0), https://github.com/ai-dynamo/aiconfigurator",
    "h200": "steps of vLLM 0.24 on one H200, random weights, measured by roofcast's authors",
    "speed": "published speeds, each with its link in calculators/published.json",
    "serving": "published serving points of aiconfigurator's accuracy set (Apache-2.0), from InferenceX runs",
}


def main() -> None:
    """Fits, prints and writes; or compares."""
    parser = parser_of(__doc__)
    parser.add_argument("--out", type=Path, default=FOLDER, help="folder that the files are written to")
    parser.add_argument("--date", default=date.today().isoformat(), help="that the files state")  # noqa: DTZ011
    parser.add_argument("--check", action="store_true", help="compare with the files that are there; write nothing")
    asked = asked_of(parser, "ops")
    kernels = [one for module in KERNELS for one in module.fit(asked.data)]
    ways = fit_kinship.fit(asked.data, kernels)
    with standing({**documents(kernels, asked.data, asked.date), KINSHIP: _kin({**ways, SERVER: 0.0})}):
        found = [*kernels, *fit_steps.fit(asked.data)]
        kin = _kin({**ways, SERVER: fit_steps.served(asked.data)})
    show(found)
    made = {**documents(found, asked.data, asked.date), KINSHIP: kin}
    different = changed(made, asked.out)
    print(f"{len(different)} files differ: {', '.join(different) or 'none'}")
    if asked.check:
        sys.exit(bool(different))
    asked.out.mkdir(exist_ok=True)
    for name in different:
        if name in made:
            (asked.out / name).write_text(made[name])


def _kin(spreads: Mapping[str, float]) -> str:
    rounded = {name: round(value, 3) for name, value in sorted(spreads.items())}
    return json.dumps({"spread": rounded}, indent=1) + "\n"


@contextmanager
def standing(made: Mapping[str, str], folder: Path = FOLDER) -> Iterator[None]:
    """Lets the built-in files be these meanwhile, since steps count with the kernels' constants that roofcast reads."""
    before = {path: path.read_text() for name in made if (path := folder / name).exists()}
    try:
        for name, text in made.items():
            (folder / name).write_text(text)
        _forget()
        yield
    finally:
        for name in made:
            path = folder / name
            path.write_text(before[path]) if path in before else path.unlink(missing_ok=True)
        _forget()


def _forget() -> None:
    read_efficiency.cache_clear()
    kinship.cache_clear()
    step_rows.ready_of.cache_clear()


def show(found: Iterable[Fitted]) -> None:
    """A line a fit."""
    print(
        f"{'accelerator':18} {'engine':12} {'family':12} {'format':14} {'rows':>6} {'in':>6} {'out':>6} {'p90':>6} spread"
    )
    for one in found:
        print(
            f"{one.accelerator:18} {one.engine:12} {one.family:12} {one.format:14} {one.rows:6d} {one.median_in:6.1%} "
            f"{one.median_out:6.1%} {one.p90_out:6.1%} {one.spread:.3f}  "
            + " ".join(f"{name}={value:.4g}" for name, value in one.constants.items())
        )


def documents(found: Iterable[Fitted], data: Path, day: str) -> dict[str, str]:
    """Name -> text of the file of each accelerator and engine."""
    groups: defaultdict[tuple[str, str], list[Fitted]] = defaultdict(list)
    for one in found:
        groups[one.accelerator, one.engine].append(one)
    return {
        f"{accelerator}.{engine}.yaml": efficiency_text(
            Efficiency.model_validate(_document(accelerator, engine, fits, data, day))
        )
        for (accelerator, engine), fits in sorted(groups.items())
    }


def changed(made: Mapping[str, str], out: Path) -> list[str]:
    """Names of files that are not there as they are made, the date apart; and of those there that none is made for.

    What the profiler wrote is not made here.
    """
    found = [path for path in out.glob("*.yaml") if not path.stem.endswith(f".{OWN}")] if out.is_dir() else []
    there = {path.name: path.read_text() for path in found}
    if (out / KINSHIP).exists():
        there[KINSHIP] = (out / KINSHIP).read_text()
    names = sorted({*made, *there})
    return [name for name in names if _undated(made.get(name, "")) != _undated(there.get(name, ""))]


def _undated(text: str) -> list[str]:
    return [line for line in text.splitlines() if not line.strip().startswith("fitted:")]


def _document(accelerator: str, engine: str, fits: Sequence[Fitted], data: Path, day: str) -> dict[str, Any]:
    files = sorted({name for one in fits for name in one.source})
    kinds = dict.fromkeys(name.split("/", maxsplit=1)[0].split(".", maxsplit=1)[0] for name in files)
    return {
        "schema": "roofcast.efficiency/1",
        "accelerator": accelerator,
        "engine": engine,
        "fits": [_fit(one) for one in fits],
        "provenance": {
            "fitted": day,
            "by": BY,
            "source": "; ".join(SOURCES[kind] for kind in kinds),
            "data": [
                {"file": name, "sha256": hashlib.sha256((data / name).read_bytes()).hexdigest()} for name in files
            ],
        },
    }


def _fit(one: Fitted) -> dict[str, Any]:
    return {
        "family": one.family,
        "format": one.format,
        "constants": {name: value for name, value in one.constants.items() if math.isfinite(value)},
        "spread": one.spread,
        "rows": one.rows,
        "median_error": one.median_out,
        "p90_error": one.p90_out,
        "excluded": dict(one.excluded),
        "data": list(one.source),
    }


if __name__ == "__main__":
    main()
