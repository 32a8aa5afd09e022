"""Of `plan`: tables of deployments and of what was found, and where prices are from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from roofcast.calculators.planning.rows import CLOSED_FORM
from roofcast.reports.document import table
from roofcast.reports.dollars import money, plain_money
from roofcast.reports.numbers import NOTHING, count, figures, fixed, millis, ratio
from roofcast.reports.plan_words import best_of, engine_words, gpus_words, limit_name, named, shape_words

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from roofcast.calculators.planning.rows import (
        PlanDeployment,
        PlanResult,
        PlanRow,
        PricedGpu,
        WorkloadRow,
    )
    from roofcast.reports.document import Table

MOST_ROWS: Final = 30  # deployments of a workload that are shown
FEW: Final = 8  # names of GPUs in a sentence
BEST, FRONT, ABOUT = "best", "*", "~"
KNOWN_BY: Final = {True: "yes", None: "close"}
#: what is looked for -> heading of its values, and how one is written
VALUES: Final[Mapping[str, tuple[str, Callable[[float], str]]]] = {
    "rate": ("requests/s", figures),
    "users": ("users", lambda value: count(round(value))),
    "context": ("prompt\ntokens", lambda value: count(round(value))),
    "gpu": ("memory\nGB", lambda value: fixed(value / 1e9, 0)),
}


@dataclass(frozen=True, slots=True)
class Setting:
    """A column that stands in the title where all rows have the same.

    Args:
        name: its heading.
        of: the cell of a deployment.
        words: what the title says of it, with the cell put in.
    """

    name: str
    of: Callable[[PlanDeployment], str]
    words: str


SETTINGS: Final = (
    Setting("engine", lambda one: engine_words(one.engine), "{}"),
    Setting("weights", lambda one: one.weights or "as stored", "weights {}"),
    Setting("KV", lambda one: one.kv, "KV cache {}"),
    Setting("policy", lambda one: one.policy, "policy {}"),
)


def deployed_words(deployment: PlanDeployment) -> str:
    """Devices, and how they share the work."""
    return f"{gpus_words(deployment)}  {shape_words(deployment)}".rstrip()


def workloads_table(result: PlanResult) -> Table:
    """A row a workload: the cheapest deployment of each."""
    return table(
        ("workload", "cheapest", "USD/\nhour", "USD/\nMtoken", "headroom", "at twice"),
        [_workload(result, one) for one in result.workloads],
        left=(0, 1, 5),
        breaks=(4,),
    )


def _workload(result: PlanResult, workload: WorkloadRow) -> tuple[str, ...]:
    best, headroom = best_of(result, workload), workload.headroom
    doubled = workload.doubled.plan if workload.doubled else None
    factor = headroom.load_factor if headroom else None
    return (
        workload.name,
        deployed_words(best.deployment) if best else "nothing meets it",
        plain_money(best.cost_per_hour) if best else NOTHING,
        plain_money(best.cost_per_million_tokens) if best else NOTHING,
        NOTHING if factor is None else f"{ratio(factor)}x",
        deployed_words(doubled.deployment) if doubled else NOTHING,
    )


def plan_table(result: PlanResult, workload: WorkloadRow, most: int = MOST_ROWS) -> Table:
    """Deployments of a workload, the cheapest first, by their number among all of them."""
    every = [(number, row) for number, row in enumerate(result.plans) if row.workload == workload.name]
    kept = shown_numbers(every, workload, most)
    rows = [(place, row) for place, (number, row) in enumerate(every, 1) if number in kept]
    differ, same = _settings([row.deployment for _, row in rows])
    times, letters = _timed(workload), source_letters(result)
    several = len({_letter(letters, row) for _, row in rows}) > 1
    best, goal = best_of(result, workload), workload.goal
    cells = [
        (
            str(place),
            deployed_words(row.deployment),
            meets_words(row),
            BEST if row is best else FRONT if row.pareto else "",
            plain_money(row.cost_per_hour),
            plain_money(row.cost_per_million_tokens),
            *_times(row, times.values()),
            figures(row.tokens_per_second),
            *(setting.of(row.deployment) for setting in differ),
            *([_letter(letters, row)] if several else []),
        )
        for place, row in rows
    ]
    at = f"p{goal.percentile:g} ms"
    header = ["", "GPUs", "meets", "", "USD/\nhour", "USD/\nMtoken"]
    header += [*(f"{name}\n{at}" for name in times), "output\ntokens/s"]
    words = len(header)
    header += [*(one.name for one in differ), *(["price\nfrom"] if several else [])]
    return table(
        header,
        cells,
        _title(result, workload, same, len(every) - len(rows)),
        left=(1, 2, 3, *range(words, len(header))),
        breaks=(4, words - 1),
        keys=2,
    )


def shown_numbers(every: Sequence[tuple[int, PlanRow]], workload: WorkloadRow, most: int) -> set[int]:
    """Numbers of the plans that are shown: all, or of too many those that matter most."""
    if len(every) <= most:
        return {number for number, _ in every}
    first = (workload.best, workload.next_cheaper, workload.nearest)
    ranked = sorted(
        every, key=lambda pair: (pair[0] not in first, not pair[1].pareto, pair[1].meets_slo is False, pair[0])
    )
    return {number for number, _ in ranked[:most]}


def meets_words(row: PlanRow) -> str:
    """Whether it is kept, and what it fails by.

    A limit that is too close to say is named too.
    """
    said = "likely" if row.meets_slo and row.trials == 1 else KNOWN_BY.get(row.meets_slo, "no")
    return said if row.limit is None or row.meets_slo else f"{said}: {limit_name(row.limit)}"


def _timed(workload: WorkloadRow) -> dict[str, str]:
    """Times that a table has: requests of a job wait from the first, and gaps are shown where they are promised."""
    ttft = {} if workload.job_seconds is not None else {"TTFT": "ttft_seconds"}
    itl = {} if workload.goal.itl_seconds is None else {"ITL": "itl_seconds"}
    return {**ttft, "TPOT": "tpot_seconds", **itl}


def _times(row: PlanRow, keys: Iterable[str]) -> list[str]:
    """Times at the percentile; those of the closed form are about so long."""
    about = ABOUT if row.basis == CLOSED_FORM else ""
    times = [getattr(row, key) for key in keys]
    return [NOTHING if seconds is None else about + millis(seconds) for seconds in times]


def _settings(deployments: Sequence[PlanDeployment]) -> tuple[list[Setting], list[str]]:
    """Settings that differ, and in words those that do not."""
    differ, same = [], []
    for setting in SETTINGS:
        cells = {setting.of(one) for one in deployments}
        if len(cells) > 1:
            differ.append(setting)
        else:
            same += [setting.words.format(cell) for cell in cells if cell]
    return differ, same


def _title(result: PlanResult, workload: WorkloadRow, same: Sequence[str], left_out: int) -> str:
    name = f"{workload.name}: " if result.find and len(result.workloads) > 1 else ""
    more = f"; {count(left_out)} more in --format json" if left_out else ""
    return f"{name}deployments, cheapest first{': ' if same else ''}{', '.join(same)}{more}"


def found_table(result: PlanResult) -> Table:
    """What was looked for, the best first."""
    heading, shown = VALUES.get(result.find or "", (str(result.find), figures))
    several = len({row.workload for row in result.found}) > 1
    differ, same = _settings([row.deployment for row in result.found])
    cells = [
        (
            *([row.workload] if several else []),
            deployed_words(row.deployment),
            *(setting.of(row.deployment) for setting in differ),
            NOTHING if row.value is None else shown(row.value),
            BEST if row.best and row.value is not None else "",
            limit_name(row.limit),
            millis(row.ttft_seconds),
            millis(row.tpot_seconds),
            plain_money(row.cost_per_hour),
        )
        for row in result.found
    ]
    keys = 1 + several
    words = keys + len(differ)
    header = [*(["workload"] if several else []), "GPUs", *(one.name for one in differ), heading, "", "limit"]
    at = _percentile(result)
    header += [f"TTFT\n{at}", f"TPOT\n{at}", "USD/\nhour"]
    title = f"the best first{': ' if same else ''}{', '.join(same)}"
    left = (*range(words), words + 1, words + 2)
    return table(header, cells, title, left=left, breaks=(words, words + 3), keys=keys)


def _percentile(result: PlanResult) -> str:
    """The heading of times: their percentile, where all workloads have the same."""
    found = {workload.goal.percentile for workload in result.workloads}
    return f"p{found.pop():g} ms" if len(found) == 1 else "ms"


def found_why(result: PlanResult) -> list[str]:
    """Why nothing will do on a machine, of those of which nothing does."""
    missing = [row for row in result.found if row.value is None and row.reason]
    return [f"{gpus_words(row.deployment)}: {row.reason}" for row in missing]


Source = tuple[str | None, str | None]


def source_letters(result: PlanResult) -> dict[Source, str]:
    """Every source of a price that is shown, and the letter that stands for it: a to z, then aa, ab ..."""
    priced = {gpu.gpu: gpu for gpu in _priced(result)}
    found = dict.fromkeys((priced[name].source, priced[name].as_of) for name in _shown_gpus(result) if name in priced)
    return {source: _letters(number) for number, source in enumerate(found)}


def _letters(number: int) -> str:
    """The number in letters.

    >>> _letters(0), _letters(25), _letters(26)
    ('a', 'z', 'aa')
    """
    first, last = divmod(number, 26)
    return (_letters(first - 1) if first else "") + chr(ord("a") + last)


def _letter(letters: Mapping[Source, str], row: PlanRow) -> str:
    return letters.get((row.price_source, row.price_as_of), NOTHING)


def _priced(result: PlanResult) -> list[PricedGpu]:
    return [gpu for gpu in result.gpus if gpu.price_per_gpu_hour is not None]


def _shown_gpus(result: PlanResult) -> list[str]:
    """GPUs of all deployments that are named anywhere, in their order."""
    later = (workload.doubled.plan for workload in result.workloads if workload.doubled)
    plans = [*result.plans, *(plan for plan in later if plan is not None)]
    named = [*(row.deployment.gpu for row in result.found), *(row.deployment.gpu for row in plans)]
    return list(dict.fromkeys(named))


def price_notes(result: PlanResult) -> list[str]:
    """Where prices are from, a line a source, and which GPUs have none."""
    priced, lines = {gpu.gpu: gpu for gpu in _priced(result)}, []
    shown = [priced[name] for name in _shown_gpus(result) if name in priced]
    for (source, as_of), letter in source_letters(result).items():
        own = [gpu for gpu in shown if (gpu.source, gpu.as_of) == (source, as_of)]
        notes = {gpu.note for gpu in own}
        same = notes.pop() if len(notes) == 1 else None
        when = "".join(f", {said}" for said in (f"as of {as_of}" if as_of else None, same) if said)
        prices = ", ".join(_price(gpu, noted=same is not None) for gpu in own)
        lines.append(f"source {letter}: {_source_words(source, own)}{when}: {prices} an hour and GPU")
    return [*lines, *_unpriced(result)]


def _source_words(source: str | None, gpus: Iterable[PricedGpu]) -> str:
    """Who asks the price, and where that was read."""
    places = dict.fromkeys(gpu.url for gpu in gpus if gpu.url)
    return " ".join([source or "a price that is given", *(f"({url})" for url in places)])


def _price(gpu: PricedGpu, *, noted: bool) -> str:
    """A price, with what is to be known of it where that is not said of all."""
    note = f" ({gpu.note})" if gpu.note and not noted else ""
    return f"{gpu.gpu} {money(gpu.price_per_gpu_hour)}{note}"


def _unpriced(result: PlanResult) -> list[str]:
    if not result.unpriced:
        return []
    said = named(result.unpriced, FEW)
    return [
        f"no price on demand of the last 18 months is known of {said}, which were left out; --gpu-price NAME=2.50 gives one"
    ]
