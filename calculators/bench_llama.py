"""Reads what llama-bench prints with -o json, jsonl and csv.

Fields: llama.cpp, tools/llama-bench/README.md (b1000 to b9000). Every test is a prompt (pp), generation (tg), or one after
the other (pg), at a depth of tokens that are in the cache before it; sampling is not in it.
"""

from __future__ import annotations

import re
from dataclasses import replace
from statistics import median
from typing import TYPE_CHECKING, Any, Final

from roofcast.calculators.bench_values import counted, day, in_places, number, positive, whole, word
from roofcast.calculators.measurement import Measurement, MeasurementFileError, Reading
from roofcast.modelspec.errors import MalformedModelError
from roofcast.modelspec.formats import OTHER_NAMES, find_format
from roofcast.modelspec.requested import find_requested

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from roofcast.calculators.bench_json import Table

KIND: Final = "llama-bench"
ALL_LAYERS: Final = 99  # what people write for all of them; -1 is the default since b6500
_TYPE: Final = r"(?<![A-Za-z0-9])(?P<name>(?:IQ|TQ|Q)\d[A-Z0-9_]*|BF16|F16|F32|MXFP4)(?: - (?P<size>Small|Medium|Large))?(?![A-Za-z0-9])"
_FILE_TYPE: Final = r"(?i)[-._]((?:UD-)?(?:IQ|TQ|Q)\d[A-Z0-9_]*|BF16|F16|FP16|F32|MXFP4(?:_MOE)?)$"
_SHARD: Final = r"-\d{5}-of-\d{5}$"
_NAMELESS: Final = frozenset({"ggml-model", "model", "gguf"})
_PLAIN: Final[Mapping[str, str]] = {"mxfp4": "mxfp4", "q4_k": "q4_k_m", "q5_k": "q5_k_m", "q3_k": "q3_k_m"}


def is_test(record: Mapping[str, Any]) -> bool:
    """Whether it is a test of llama-bench."""
    return {"n_prompt", "n_gen"} <= record.keys() and bool({"avg_ts", "avg_ns"} & record.keys())


def read_tests(records: Sequence[Mapping[str, Any]], where: str) -> Reading:
    """A point a test: of repeats the median where they are listed, else the mean.

    Tests that ran on a CPU in part are left out, and said so.

    Raises:
        MeasurementFileError: a field is wrong; it is named.
    """
    points: list[Measurement] = []
    on_cpu = 0
    for place, record in enumerate(records, 1):
        run = f"{where}: test {place}"
        if _on_cpu(record, run):
            on_cpu += 1
            continue
        points.append(_point(record, run, where))
    remarks = (f"{where}: {counted(on_cpu, 'test')} ran on the CPU, in part at least, and left out",) if on_cpu else ()
    return Reading(KIND, tuple(points), remarks)


def read_rows(table: Table, where: str) -> Reading:
    """Tests of CSV. Rows that are cut short are left out, and said so.

    Raises:
        MeasurementFileError: as of `read_tests`.
    """
    short = set(table.short)
    tests = {place: row for place, row in enumerate(table.rows, 1) if place not in short and is_test(row)}
    cut = [place for place in range(1, len(table.rows) + 1) if place not in tests]
    reading = read_tests(list(tests.values()), where)
    said = "cut short, or without n_prompt, n_gen or avg_ns, and left out"
    return replace(reading, remarks=(*reading.remarks, *in_places(where, "row", cut, said)))


def _on_cpu(record: Mapping[str, Any], run: str) -> bool:
    backends = str(record.get("backends") or record.get("backend") or "")
    layers = record.get("n_gpu_layers")
    none = layers is not None and str(layers).strip() == "0"
    experts = whole(record.get("n_cpu_moe"), f"{run}: n_cpu_moe", 0)
    return (
        none
        or bool(experts)
        or backends in {"CPU", "BLAS"}
        or str(record.get("no_kv_offload")).lower() in {"1", "true"}
    )


def _point(record: Mapping[str, Any], run: str, where: str) -> Measurement:
    lengths = [whole(record.get(key) or 0, f"{run}: {key}", 0) or 0 for key in ("n_prompt", "n_gen", "n_depth")]
    value, low, high, spread = _seconds(record, run, lengths[0] + lengths[1])
    gpus, shares, suspect = _devices(record, run)
    model, weights = model_of(word(record.get("model_filename"), f"{run}: model_filename"), word(record.get("model_type"), f"{run}: model_type"))  # fmt: skip
    build = number(record.get("build_number"), f"{run}: build_number")
    made = measured(lengths, value, run)
    steps = made["steps"]
    return Measurement(
        source=where,
        id=run.rpartition(": ")[2],
        quantity=made["quantity"],
        value=value / steps,
        low=low and low / steps,
        high=high and high / steps,
        spread=spread and spread / steps,
        date=day(record.get("test_time")),
        model=model,
        weights=weights,
        kv=cache_of(record.get("type_k"), record.get("type_v")),
        gpu=gpus[0] if gpus else None,
        engine="llama.cpp",
        engine_version=f"b{build:.0f}" if build else word(record.get("build_commit"), f"{run}: build_commit"),
        suspect=suspect,
        notes=layers_said(record.get("n_gpu_layers")),
        **shares,
        **made["lengths"],
    )


def measured(lengths: Sequence[int], value: float, run: str) -> dict[str, Any]:
    """What a test of these lengths measures: the quantity, the fields of its lengths, and the steps that its time is of.

    Tokens at a depth stand behind as many in the cache: pp512 at d4096 is a prompt of 4,608 of which 4,096 are cached.

    Args:
        lengths: prompt, generated, depth. [token]
        value: seconds of the test.
        run: its place, as messages name it.

    >>> measured((0, 128, 4096), 1.0, "f")["lengths"]
    {'batch': 1, 'prompt': 4096, 'output': 128, 'context': 4160.0}
    """
    prompt, made, depth = lengths
    named: dict[str, Any]
    if prompt and made:  # after a prompt all n_gen are steps; a server gets the first of them from the prompt
        named = {"batch": 1, "prompt": prompt + depth, "output": made + 1, "cached": depth or None}
        return {"quantity": "batch_seconds", "steps": 1, "lengths": named}
    if made:
        named = {"batch": 1, "prompt": depth, "output": made, "context": depth + made / 2}
        return {"quantity": "decode_seconds", "steps": made, "lengths": named}
    if prompt and value:
        return {
            "quantity": "prefill_seconds",
            "steps": 1,
            "lengths": {"batch": 1, "prompt": prompt + depth, "cached": depth or None},
        }
    raise MeasurementFileError(f"{run}: n_prompt and n_gen are 0; a test has tokens")


def _seconds(
    record: Mapping[str, Any], run: str, tokens: int
) -> tuple[float, float | None, float | None, float | None]:
    """Seconds of a test, least and most of its repeats, and their standard deviation."""
    samples = record.get("samples_ns")
    if isinstance(samples, list) and samples:
        repeats = [positive(one, f"{run}: samples_ns") or 0.0 for one in samples]
        if min(repeats) > 0:
            spread = number(record.get("stddev_ns"), f"{run}: stddev_ns")
            return median(repeats) / 1e9, min(repeats) / 1e9, max(repeats) / 1e9, spread and spread / 1e9
    whole_test = positive(record.get("avg_ns"), f"{run}: avg_ns")
    if whole_test:
        spread = number(record.get("stddev_ns"), f"{run}: stddev_ns")
        return whole_test / 1e9, None, None, spread and spread / 1e9
    rate = positive(record.get("avg_ts"), f"{run}: avg_ts")
    if not rate:
        raise MeasurementFileError(f"{run}: avg_ts is 0 or missing; it must be tokens a second")
    deviation = number(record.get("stddev_ts"), f"{run}: stddev_ts")
    return tokens / rate, None, None, deviation and tokens / rate * deviation / rate


def _devices(record: Mapping[str, Any], run: str) -> tuple[list[str], dict[str, Any], str | None]:
    """Names of devices, how they share the model, and what is odd about them."""
    said = word(record.get("gpu_info") or None, f"{run}: gpu_info")
    names = [one.strip() for one in said.split(",")] if said else []
    mode = str(record.get("split_mode") or "layer")
    count = 1 if mode == "none" else len(names)
    suspect = "it ran over GPUs of different kinds" if count > 1 and len(set(names)) > 1 else None
    return names, split(count, mode), suspect


def split(count: int, mode: str) -> dict[str, Any]:
    """How devices share a model by --split-mode: whole layers each, or rows of all.

    >>> split(2, "layer"), split(0, "layer")
    ({'gpus': 2, 'tp': 1, 'pp': 2, 'dp': 1}, {})
    """
    if not count:
        return {}
    rows = count if mode in {"row", "tensor"} else 1
    return {"gpus": count, "tp": rows, "pp": count // rows, "dp": 1}


def layers_said(layers: object) -> str | None:
    """A note of layers on the GPU, where it is not plainly all."""
    text = str(layers).strip() if layers is not None else ""
    partial = text.isdigit() and 0 < int(text[:6]) < ALL_LAYERS
    return f"{text} layers on the GPU: all, if the model has no more" if partial else None


def model_of(file: str | None, kind: str | None) -> tuple[str | None, str | None]:
    """A model's name and the format of its weights, by the name of its file, else by what llama.cpp calls it.

    >>> model_of("models/Qwen2.5-7B-Instruct-Q4_K_M.gguf", "qwen2 7B Q4_K - Medium")
    ('Qwen2.5-7B-Instruct', 'q4_k_m')
    >>> model_of("models/7B/ggml-model-q4_0.gguf", "llama 7B mostly Q4_0")
    ('llama 7B', 'q4_0')
    """
    stem = re.sub(_SHARD, "", re.sub(r"(?i)\.gguf$", "", re.split(r"[/\\]", file or "")[-1]))
    ending = re.search(_FILE_TYPE, stem)
    name = stem[: ending.start()] if ending else stem
    typed = re.search(_TYPE, kind or "")
    called = re.sub(r"\s*\b(?:mostly|all)\b\s*$", "", (kind or "")[: typed.start()].strip()) if typed else kind
    model = name if name and name.lower() not in _NAMELESS else called or None
    by_file = _known(ending[1]) if ending else None
    return model, by_file or (_known(_joined(typed)) if typed else None)


def _joined(typed: re.Match[str]) -> str:
    return f"{typed['name']}_{typed['size'][0]}" if typed["size"] else typed["name"]


def _known(name: str) -> str | None:
    """A format as --weights spells it; None where it knows none."""
    key = name.lower().removeprefix("ud-")
    key = OTHER_NAMES.get(key, _PLAIN.get(key, key))
    try:
        find_requested(key)
    except MalformedModelError:
        return None
    return key


def cache_of(keys: object, values: object) -> str | None:
    """The format of a cache as --kv spells it; None where keys and values differ, or nothing is said.

    >>> cache_of("f16", "f16"), cache_of("q8_0", "f16")
    ('fp16', None)
    """
    if not isinstance(keys, str) or keys != (values or keys):
        return None
    try:
        return find_format(keys).name
    except MalformedModelError:
        return None
