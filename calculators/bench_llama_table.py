"""Reads the Markdown tables that llama-bench prints, and what stands around them: devices and build."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from roofcast.calculators.bench_llama import KIND, cache_of, layers_said, measured, model_of, split
from roofcast.calculators.bench_values import counted, in_places, number, positive, word
from roofcast.calculators.measurement import Measurement, MeasurementFileError, Reading

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

LONGEST_LINE: Final = 4000  # characters; longer ones are no row
_TEST: Final = (
    r"(?:(?P<pair>pp ?(\d{1,9})\+tg ?(\d{1,9}))|(?P<kind>pp|tg) ?(?P<tokens>\d{1,9}))(?: ?@ ?d(?P<depth>\d{1,9}))?"
)
_DEVICE: Final = (
    r"^\s*Device \d{1,2}: (?P<name>[^,|]{1,80})",  # ggml_cuda_init, ROCm too
    r"^ggml_vulkan: \d{1,2} = (?P<name>[^(|]{1,80}?) \(",
    r"^ggml_metal\w*: (?:GPU name|found device): +(?P<name>\S.{0,78})",
)
_BUILD: Final = r"^build: (?P<commit>[0-9a-f]{6,40}) \((?P<number>\d{1,6})\)"


def is_table(text: str) -> bool:
    """Whether a line is the head of such a table."""
    return any(_is_head(line) for line in text.splitlines())


def _is_head(line: str) -> bool:
    return len(line) <= LONGEST_LINE and {"model", "test", "t/s"} <= set(_cells(line))


def _is_row(line: str) -> bool:
    """Whether it begins as a row does, in a quotation too."""
    return line.strip().removeprefix(">").strip().startswith("|")


def _is_rule(lines: Sequence[str]) -> bool:
    """Whether it is the line of dashes under a head."""
    return any("-" in line and set("".join(_cells(line))) <= set("-: ") for line in lines if _cells(line))


def _cells(line: str) -> list[str]:
    """Cells of a row; none of a line that is no row."""
    line = line.strip().removeprefix(">").strip()
    if not line.startswith("|") or len(line) > LONGEST_LINE:
        return []
    return [cell.strip().replace("`", "").replace("**", "") for cell in line.strip("|").split("|")]


def read_table(text: str, where: str) -> Reading:
    """A point a row. Rows on a CPU are left out, and said so.

    Raises:
        MeasurementFileError: a row that has a test and no speed; it is named by its line.
    """
    lines = text.splitlines()
    gpus, build = _around(lines)
    heads, edge = list[str](), ""
    points: list[Measurement] = []
    on_cpu = 0
    torn: list[int] = []
    for place, line in enumerate(lines, 1):
        cells = _cells(line)
        if _is_head(line):
            heads, edge = cells, line.rstrip()[-1]
        elif _is_rule(lines[place : place + 1]):  # the head of another table
            heads = []
        if not heads or not _is_row(line) or cells == heads or _is_rule([line]):
            continue
        if len(cells) != len(heads) or (edge == "|" and not line.rstrip().endswith(edge)):
            torn.append(place)
            continue
        row = dict(zip(heads, cells, strict=True))
        if row.get("ngl") == "0" or row.get("backend") in {"CPU", "BLAS"}:
            on_cpu += 1
        else:
            points.append(_point(row, f"{where}: line {place}", gpus, build))
    remarks = (f"{where}: {counted(on_cpu, 'test')} ran on the CPU and left out",) if on_cpu else ()
    said = "cells are not those of the table's head, or cut short, and left out"
    return Reading(KIND, tuple(points), (*remarks, *in_places(where, "line", torn, said)))


def _around(lines: Iterable[str]) -> tuple[list[str], str | None]:
    """Devices and build, as lines around the table tell them."""
    gpus: list[str] = []
    build = None
    for line in lines:
        short = line[:LONGEST_LINE]
        device = next((found for pattern in _DEVICE if (found := re.search(pattern, short))), None)
        if device:
            gpus.append(device["name"].strip())
        made = re.search(_BUILD, short)
        build = f"b{made['number']}" if made else build
    return list(dict.fromkeys(gpus)) if len(set(gpus)) == 1 and gpus and len(gpus) > 16 else gpus, build  # noqa: PLR2004


def _point(row: Mapping[str, str], run: str, gpus: Sequence[str], build: str | None) -> Measurement:
    lengths = _lengths(row["test"], run)
    speed, _, deviation = row["t/s"].replace("+-", "±").partition("±")
    rate = positive(speed.strip() or None, f"{run}: t/s")
    if not rate:
        raise MeasurementFileError(f"{run}: t/s is {row['t/s']!r}; it must be tokens a second")
    spread = number(deviation.strip() or None, f"{run}: t/s") or 0.0
    value = (lengths[0] + lengths[1]) / rate
    made = measured(lengths, value, run)
    model, weights = model_of(None, word(row["model"], f"{run}: model"))
    mode = row.get("sm", "layer")
    count = 1 if mode == "none" else len(gpus)
    return Measurement(
        source=run.rpartition(": ")[0],
        id=run.rpartition(": ")[2],
        quantity=made["quantity"],
        value=value / made["steps"],
        spread=value / made["steps"] * spread / rate or None,
        model=model,
        weights=weights,
        kv=cache_of(row.get("type_k"), row.get("type_v")),
        gpu=gpus[0] if gpus else None,
        engine="llama.cpp",
        engine_version=build,
        suspect="it ran over GPUs of different kinds" if count > 1 and len(set(gpus)) > 1 else None,
        notes=layers_said(row.get("ngl")),
        **split(count, mode),
        **made["lengths"],
    )


def _lengths(test: str, run: str) -> tuple[int, int, int]:
    """Prompt, generated and depth that a test's name tells. [token]"""
    match = re.fullmatch(_TEST, test)
    if match is None:
        raise MeasurementFileError(
            f"{run}: test is {test[:40]!r}; it is named like pp512, tg128, pp512+tg128 or tg128 @ d4096"
        )
    depth = int(match["depth"] or 0)
    if match["pair"]:
        return int(match[2]), int(match[3]), depth
    tokens = int(match["tokens"])
    return (tokens, 0, depth) if match["kind"] == "pp" else (0, tokens, depth)
