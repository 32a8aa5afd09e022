"""Published measurements as questions: which model on which devices, and what least time roofcast gives the same run."""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from roofcast.calculators.deployment import Deployment, prepare
from roofcast.calculators.errors import UsageError
from roofcast.calculators.phases import Asked, answer_point, most_sequences
from roofcast.calculators.step import estimate
from roofcast.hwdb.lookup import UnknownAcceleratorError, find_accelerator
from roofcast.modelspec.errors import ModelError
from roofcast.modelspec.formats import FORMATS, Format, find_format
from roofcast.modelspec.model import load_model
from roofcast.modelspec.requested import find_requested
from roofcast.modelspec.sharding import Shards
from roofcast.modelspec.source import resolve
from roofcast.modelspec.step import DECODE, PREFILL, Group, Step, decode_step, prefill_step

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from roofcast.calculators.deployment import Ready
    from roofcast.hwdb.accelerator import Accelerator
    from roofcast.modelspec.model import Model
    from roofcast.modelspec.requested import Requested

    Row = dict[str, Any]

PARTS: Final = 8  # of a run, each taken at its first context
MICRO_BATCH: Final = 512  # tokens. Source: llama.cpp, common.h, n_ubatch
PROMPTS: Final = "attn.prefill"
NO_STEP: Final[dict[str, str]] = {
    "speculative": "speculative: a step yields several tokens",
    "prefix_cache": "prefix cache: prompts are not computed whole",
    "attention_kernel": "one kernel, no model",
    "headline": "no run is stated",
    "memory": "memory, no time",
    "latency": "one time of a prompt and its output, part of it cached",
}

# wording of a weight format -> the format that is asked; scales that it does not name are left out
WEIGHTS: Final[tuple[tuple[str, str], ...]] = (
    (r"fp4", "nvfp4"), (r"fp8", "fp8"), (r"bf16", "bf16"), (r"fp?16", "fp16"), (r"(w8a8-dyn-)?int8", "int8"),
    (r"int4-g\d+|awq-.*|gptq-4bit.*|q4f16_1", "int4"), (r"q\d_(0|1|k|k_m)", ""),
)  # fmt: skip
# names that are not a folder's nor the catalogue's
CARDS: Final[dict[str, str]] = {
    "M1 Max 24c": "apple-m1-max", "M1 Max 32c": "apple-m1-max", "M2 Ultra 76c": "apple-m2-ultra",
    "M3 Max 40c": "apple-m3-max", "MI250X (1 GCD)": "mi250x", "Strix Halo 8060S": "strix-halo-395",
}  # fmt: skip


class UnaskedError(Exception):
    """A row that cannot be asked, and why."""


@dataclass(frozen=True, slots=True)
class Question:
    """A row, its seconds, and on what it is answered.

    Args:
        row: of the file.
        seconds: measured, of what `least` bounds. [s]
        model, accelerator: found.
        weights: format asked; None is as stored.
        kv: of the cache.
        layouts: the one stated, else all that the devices allow, each so often that they use all of them.
        least: seconds at the bound of one layout.
    """

    row: Row
    seconds: float
    model: Model
    accelerator: Accelerator
    weights: Requested | None
    kv: Format
    layouts: tuple[Shards, ...]
    least: Callable[[Ready, Row], float]

    def bound(self, accelerator: Accelerator | None = None) -> float:
        """The least time over the layouts that are possible, on this accelerator or another. [s]"""
        found: list[float] = []
        for shards in self.layouts:
            engine = "llama.cpp" if "llama.cpp" in self.row["engine"] else "none"
            deployment = Deployment(accelerator or self.accelerator, self.kv, self.weights, shards, engine)
            try:
                found.append(
                    self.least(prepare(self.model, deployment), self.row) * shards.devices / self.row["n_gpus"]
                )
            except UsageError:  # what does not divide, or fit
                continue
        if not found:
            raise UnaskedError("no layout that divides the model and fits")
        return min(found)


def stem(name: str) -> str:
    """A model's name without organisation, punctuation and the usual pre- and suffixes."""
    name = re.sub(r"[^a-z0-9.]", "", name.rsplit("/", maxsplit=1)[-1].lower()).removeprefix("meta")
    return re.sub(r"(instruct|chat|base|it|hf|fp8|bf16)+$", "", name)


@cache
def model_of(name: str, hub: Path) -> Model:
    """The model of a folder that goes by that name, else the catalogue's."""
    folders = {stem(path.parent.name): path.parent for path in sorted(hub.glob("[!_]*/*/config.json"), reverse=True)}
    try:
        return load_model(resolve(str(folders.get(stem(name), name)), offline=True))
    except ModelError as error:
        raise UnaskedError("model not known") from error


@cache
def card_of(wording: str) -> Accelerator:
    """The accelerator of a row's wording."""
    try:
        return find_accelerator(CARDS.get(wording, wording)).accelerator
    except UnknownAcceleratorError as error:
        raise UnaskedError("device not in the database") from error


def weights_of(row: Row) -> Requested | None:
    """The weight format of a row; None is as the model is stored. llama.cpp stores no tensor in 16 bits beside MXFP4."""
    key = row["weight_quant"].lower()
    if exl2 := re.fullmatch(r"exl2-([\d.]+)", key):
        return Format(key, float(exl2[1]), compute="fp16")
    if key == "mxfp4":
        return FORMATS[key] if "llama.cpp" in row["engine"] else None
    for pattern, name in WEIGHTS:
        if re.fullmatch(pattern, key):
            return find_requested(name or key)
    raise UnaskedError("weight format not stated, or not known")


def layouts_of(row: Row) -> tuple[Shards, ...]:
    """How the devices share the model, as stated; where that is open, every way."""
    devices = row["n_gpus"]
    if "DP attention" in row.get("notes", ""):
        return (Shards(dp=devices, ep=row["ep"]),)
    tp, pp = row.get("tp"), row.get("pp") or 1
    if tp is not None or pp > 1:
        return (Shards(tp or 1, pp, row.get("ep") or 1),)
    some = [n for n in range(1, devices + 1) if devices % n == 0]
    return (*(Shards(n) for n in some), *(Shards(dp=n, ep=n) for n in some if n > 1))


# --- least times


def contexts_of(before: int, new: int) -> list[int]:
    """First contexts of the parts of a run, each of which costs no more than any later one of its part. [token]"""
    return [before + 1 + new * part // PARTS for part in range(PARTS)]


def decode_seconds(ready: Ready, batch: int, before: int, new: int) -> float:
    """Mean step of a run that adds `new` tokens to each of `batch` prompts. [s]"""
    times = Counter(contexts_of(before, new))
    return sum(n * answer_point(ready, Asked(DECODE, batch, c)).work.bound for c, n in times.items()) / PARTS


def run_of(row: Row) -> tuple[int, int]:
    """Tokens of the prompt and of the output; unstated ones are none and one, which cost least."""
    return int(row.get("input_len") or 0), max(1, int(row.get("output_len") or 1))


def step_least(ready: Ready, row: Row) -> float:
    """Seconds of one step of all sequences, mean over their run. [s]"""
    return decode_seconds(ready, row.get("batch") or 1, *run_of(row))


def prompt_least(ready: Ready, row: Row) -> float:
    """Seconds of a prompt; in the micro-batches that are stated, or that llama.cpp hands from card to card. [s]"""
    stated = re.search(r"pp(\d+) ub(\d+)", row.get("test", ""))
    prompt, budget = (int(stated[1]), int(stated[2])) if stated else (row["input_len"], None)
    if ready.deployment.shards.pp > 1:
        budget = MICRO_BATCH
    point = answer_point(ready, Asked(PREFILL, 1, prompt, budget))
    return point.work.bound * point.passes


def batch_least(ready: Ready, row: Row) -> float:
    """Seconds of a static batch: its prompts, then every step but the first token's. [s]"""
    before, new = run_of(row)
    first = answer_point(ready, Asked(PREFILL, row["batch"], before))
    return first.work.bound * first.passes + (new - 1) * decode_seconds(ready, row["batch"], before, new - 1)


def load_least(ready: Ready, row: Row) -> float:
    """Seconds an output token of as many sequences as fit at the mean context of their runs. [s]

    Prompts of those that start meanwhile are computed beside them: matrices see all tokens at once, so that weights
    are read once for both; attention over a prompt is its own.
    """
    before, new = run_of(row)
    shards = ready.deployment.shards
    most = most_sequences(ready, before + (new + 1) // 2)
    here = most // shards.dp // shards.pp
    if not here:
        raise UsageError("no sequence fits")
    started = here / new
    chunk = int(started * before)
    prompt = estimate(ready, prefill_step(1, before)).terms if before else ()
    own = started * sum(term.bound for term in prompt if term.op.name == PROMPTS)
    beside = (Group(PREFILL, 1, chunk, 0, positions=0),) if chunk else ()
    total = 0.0
    for context in contexts_of(before, new):
        step = Step((*decode_step(here, context).groups, *beside))
        total += sum(term.bound for term in estimate(ready, step).terms if term.op.name != PROMPTS)
    return (total / PARTS + own) / most


# --- rows


def output_rate(row: Row) -> float:
    """Output tokens a second of all devices."""
    value = row["value"]
    if row["metric"] == "total_tok_s":
        return float(value * row["output_len"] / (row["output_len"] + row["input_len"]))
    if row["metric"] == "out_tok_s_per_gpu":
        return float(value * row["n_gpus"])
    if row["metric"] == "out_tok_s_total":
        return float(value)
    raise UnaskedError(f"a metric that is no time: {row['metric']}")


def step_question(row: Row) -> tuple[float, Callable[[Ready, Row], float]]:
    """One step of all sequences: as normalised, or batch over rate."""
    seconds = row["normalised"].get("step_ms", 0) / 1e3
    return seconds or row["batch"] / output_rate(row), step_least


def prompt_question(row: Row) -> tuple[float, Callable[[Ready, Row], float]]:
    """One prompt."""
    if "prefill_ms" not in row["normalised"]:
        raise UnaskedError(f"a metric that is no time: {row['metric']}")
    return row["normalised"]["prefill_ms"] / 1e3, prompt_least


REGIMES: Final[Mapping[str, Callable[[Row], tuple[float, Callable[[Ready, Row], float]]]]] = {
    "decode_single": step_question,
    "decode_batch": step_question,
    "open_loop": step_question,
    "prefill": prompt_question,
    "small_batch": lambda row: (
        2 * row["input_len"] / row["value"],
        prompt_least,
    ),  # half the prompt is its mean context
    "throughput_static_batch": lambda row: (row["batch"] * row["output_len"] / output_rate(row), batch_least),
    "throughput_max_load": lambda row: (1 / output_rate(row), load_least),
    "mlperf_offline": lambda row: (1 / output_rate(row), load_least),
    "mlperf_server": lambda row: (1 / output_rate(row), load_least),
}


def question(row: Row, hub: Path) -> Question:
    """A row of `speed.json` as a question.

    Raises:
        UnaskedError: why it cannot be one.
    """
    if row.get("suspect"):
        raise UnaskedError("marked suspect")
    if row["regime"] not in REGIMES:
        raise UnaskedError(NO_STEP[row["regime"]])
    if not row.get("n_gpus"):
        raise UnaskedError("number of devices not stated")
    accelerator = card_of(row["gpu"])
    model = model_of(row.get("model_id") or row["model"], hub)
    seconds, least = REGIMES[row["regime"]](row)
    kv = find_format(row.get("kv_dtype") or "bf16")
    return Question(row, seconds, model, accelerator, weights_of(row), kv, layouts_of(row), least)


def engine_questions(path: Path, models: Path) -> Iterator[Question]:
    """The points of a file of one engine on one H200."""
    data = json.loads(path.read_text())
    model = model_of(str(models / data["model"].split("/")[-1]), models)
    kv = find_format("fp8" if data.get("kw", {}).get("kv_cache_dtype") == "fp8" else "bf16")
    for phase, least in (("decode", step_least), (PREFILL, prompt_least)):
        for n, point in enumerate(data[phase]):
            row = {
                "id": f"{path.stem} {phase} {n}", "regime": f"h200 {phase}", "n_gpus": 1, "engine": path.stem.split("_")[0],
                "batch": point.get("B"), "input_len": point.get("n") or point["ctx"] - 1, "weight_quant": "BF16",
            }  # fmt: skip
            yield Question(row, point["ms"] / 1e3, model, card_of("H200"), None, kv, (Shards(),), least)
