"""`price` as a document: own costs by load, what length costs, API prices, and where the two meet."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from roofcast.calculators.answer import Remarks, remarks
from roofcast.reports.data import as_data
from roofcast.reports.deployed import on_devices, setup_lines
from roofcast.reports.document import Document, Table, plain, table
from roofcast.reports.dollars import money, plain_money
from roofcast.reports.numbers import NOTHING, context_name, count, figures, ratio
from roofcast.reports.price_apis import api_tables, source_notes

if TYPE_CHECKING:
    from collections.abc import Mapping

    from roofcast.calculators.price_rows import CostRow, LoadRow, PriceResult

MILLION: Final = 1_000_000
BOUND: Final = "bound"
MIDDLE: Final = ("expected", BOUND)


def price_document(result: PriceResult, inputs: Mapping[str, Any], remarks: Remarks) -> Document:
    """The page of `price`."""
    tables = [*_own_tables(result), *api_tables(result)]
    return Document(
        command="price",
        inputs=inputs,
        result=result,
        records=_records(result),
        lines=tuple(map(plain, _lines(result, inputs))),
        tables=tuple(one for one in tables if one.rows),
        remarks=_notes(result, inputs) + remarks,
    )


def _records(result: PriceResult) -> list[dict[str, Any]]:
    """Rows for CSV: those of own costs where there is a deployment, else the prices of APIs."""
    own = {"model": result.model, "gpu": result.gpu}
    loads: list[dict[str, Any]] = []
    for row in result.loads:
        load = {**own, **as_data(row)}
        costs: list[dict[str, Any]] = load.pop("costs")
        loads += [{**load, **cost} for cost in costs or [{}]]
    return loads or [as_data(row) for row in (result.days or result.api_costs or result.apis)]


def _lines(result: PriceResult, inputs: Mapping[str, Any]) -> list[str]:
    if result.layout is None or result.weights is None:
        return [_day_line(day) for day in result.days]
    unfit = [row for row in result.loads if not row.fits]
    verdict = f": {'nothing' if len(unfit) == len(result.loads) else 'not every load'} fits" if unfit else ""
    return [
        f"{result.model} on {on_devices(str(result.gpu), result.layout)}{verdict}",
        *setup_lines(result.layout, result.weights, inputs),
        *_hourly_line(result),
        *_ratio_lines(result),
        *_rate_lines(result),
        *(_day_line(day) for day in result.days),
        *dict.fromkeys(f"{row.workload}, {row.batch:,} at once: {row.reason}" for row in unfit),
    ]


def _hourly_line(result: PriceResult) -> list[str]:
    hourly = result.hourly
    if hourly is None:
        return [
            "no price of the GPU: costs are in GPU-seconds; --gpu-price 2.50 or --gpu-cost 30000 makes dollars of them"
        ]
    parts = {
        "rent": hourly.rent_dollars_per_gpu_hour,
        "write-off": hourly.write_off_dollars_per_gpu_hour,
        "power": hourly.power_dollars_per_gpu_hour or None,
    }
    made = " + ".join(f"{name} {money(value)}" for name, value in parts.items() if value is not None)
    busy = (
        ""
        if hourly.utilisation == 1
        else f", {money(hourly.dollars_per_busy_hour)} an hour of load at {hourly.utilisation:.0%}"
    )
    return [f"{money(hourly.dollars_per_hour)} an hour: {count(hourly.gpus)} x ({made}){busy}"]


def _ratio_lines(result: PriceResult) -> list[str]:
    return [
        f"{row.workload}: output costs {row.ratio:g} times input "
        + (
            f"from {count(row.batch)} at once on ({row.basis})"
            if row.batch is not None
            else f"at no load that fits: {ratio(row.reached)} at {count(row.largest)} ({row.basis})"
            if row.largest
            else f"at no load: not one request fits ({row.basis})"
        )
        for row in result.ratios
    ]


def _rate_lines(result: PriceResult) -> list[str]:
    lines = []
    for row in result.rates:
        if not row.largest:
            lines.append(f"{row.workload}: not one request fits, and none is done a second")
            continue
        asked = f"{row.workload}: {figures(row.requests_per_second)} requests/s"
        most = f"it does {figures(row.capacity_requests_per_second)} with {count(row.largest)} at once"
        if row.batch is None:
            lines.append(f"{asked} are more than the deployment does; {most}")
            continue
        cost = (
            ""
            if row.request_dollars is None
            else f": {money(row.request_dollars * 1000)} a thousand, {money(row.blended_dollars)} a million tokens"
        )
        lines.append(f"{asked} take {count(row.batch)} at once{cost}; {most}")
    return lines


def _day_line(day: Any) -> str:  # noqa: ANN401 - a row of the result
    earned = f"{day.vendor} {day.model}: {money(day.income_dollars)} a day"
    if day.cost_dollars is None:
        return earned
    side = "" if day.margin is None else f", {abs(day.margin):.0%} {'above' if day.margin >= 0 else 'below'} the cost"
    return f"{earned}; {count(day.gpus)} GPUs cost {money(day.cost_dollars)}{side}"


def _own_tables(result: PriceResult) -> list[Table]:
    return [_loads(result), _workloads(result), _lengths(result)]


def _loads(result: PriceResult) -> Table:
    several = len({(row.workload, row.prompt, row.output) for row in result.loads}) > 1
    priced = result.hourly is not None
    unit = "USD a million tokens" if priced else "GPU-seconds a million tokens"
    header = ["at\nonce", "out:in\nbound", "out:in\nexpect", "cached:in\nexpect", "input\n" + _short(priced)]
    header += [
        "cached\n" + _short(priced),
        "output\n" + _short(priced),
        "output's\n80 %",
        "all\n" + _short(priced),
        "requests/s",
        "J/token\noutput",
    ]
    rows = dict.fromkeys(
        ((f"{row.prompt:,}:{row.output:,}",) if several else ()) + _load_cells(row, priced=priced)
        for row in result.loads
    )
    asked = result.loads[0] if result.loads else None
    what = "" if several or asked is None else f": {_request_words(asked)}"
    return table(
        (["request"] if several else []) + header,
        rows,
        f"own cost, {unit}{what}",
        left=(0,) if several else (),
        breaks=(5, 9) if several else (4, 8),
        keys=2 if several else 1,
    )


def _short(priced: bool) -> str:
    return "USD" if priced else "GPU-s"


def _request_words(row: LoadRow) -> str:
    prefix = f", {count(row.prefix)} of them cached in {row.hit:.0%} of requests" if row.prefix else ""
    return f"{count(row.prompt)} tokens in{prefix}, {count(row.output)} out, decode at {context_name(row.context)}"


def _load_cells(row: LoadRow, *, priced: bool) -> tuple[str, ...]:
    by = {cost.basis: cost for cost in row.costs}
    middle = next((by[name] for name in MIDDLE if name in by), None)
    if middle is None:
        return (count(row.batch), *[NOTHING] * 10)
    expected = by.get("expected")
    return (
        count(row.batch),
        ratio(by[BOUND].output_over_input),
        ratio(expected.output_over_input if expected else None),
        figures(middle.cached_over_input),
        *(_amount(middle, name, priced=priced) for name in ("input", "cached_input", "output")),
        _interval(by, priced=priced),
        _blended(middle, row, priced=priced),
        figures(middle.requests_per_second),
        figures(middle.output_joules_per_token),
    )


def _amount(cost: CostRow, name: str, *, priced: bool) -> str:
    return plain_money(getattr(cost, f"{name}_dollars")) if priced else figures(getattr(cost, f"{name}_gpu_seconds"))


def _blended(cost: CostRow, row: LoadRow, *, priced: bool) -> str:
    if priced:
        return plain_money(cost.blended_dollars)
    found = row.prefix * row.hit
    spent = (row.prompt - found) * cost.input_gpu_seconds + found * cost.cached_input_gpu_seconds
    return figures((spent + row.output * cost.output_gpu_seconds) / (row.prompt + row.output))


def _interval(by: Mapping[str, CostRow], *, priced: bool) -> str:
    if "low" not in by:
        return NOTHING
    return "-".join(_amount(by[name], "output", priced=priced) for name in ("low", "high"))


def _workloads(result: PriceResult) -> Table:
    """Mixes; of workloads of one kind the first table says all."""
    mixed = [row for row in result.workloads if row.kinds > 1]
    rows = [
        (
            row.workload,
            count(row.batch),
            ratio(row.output_over_input),
            plain_money(row.request_dollars and row.request_dollars * 1000),
            plain_money(row.blended_dollars),
            figures(row.requests_per_second),
            figures(row.tokens_per_second),
        )
        for row in mixed
    ]
    header = ("workload", "at\nonce", "out:in", "USD/1,000\nrequests", "USD/\nMtoken", "requests/s", "tokens/s")
    return table(header, rows, "workloads of several kinds of request", keys=2)


def _lengths(result: PriceResult) -> Table:
    rows = [
        (
            context_name(row.context),
            figures(row.input_gpu_seconds),
            ratio(row.input_ratio),
            count(row.batch),
            figures(row.output_gpu_seconds),
            ratio(row.output_ratio),
            ratio(row.output_over_input),
        )
        for row in result.lengths
    ]
    header = ("ctx", "input\nGPU-s", "over\nfirst", "at\nonce", "output\nGPU-s", "over\nfirst", "out:in")
    return table(
        header,
        rows,
        "what length costs, GPU-seconds a million tokens",
        left=(),
    )


def _notes(result: PriceResult, inputs: Mapping[str, Any]) -> Remarks:
    own = result.layout is not None
    held = result.held
    return remarks(
        notes=[
            "requests at once share a prefill of their prompts and each step of decode; a request's cost is its tokens', and "
            "queues and idle hours are not in it (--utilisation)"
            if own
            else None,
            "cached: what a token in a prefix cache still costs, attention to it and reading it; "
            "where no prefix is asked for, of half a prompt"
            if own
            else None,
            "J/token at the TDP, which is the most that a GPU draws for long" if own else None,
            f"keeping tokens: {count(held.tokens)} fit at {context_name(held.context)}"
            + (
                f", {money(held.dollars)} a million tokens and hour, if the machine did nothing else"
                if held.dollars is not None
                else ""
            )
            if held
            else None,
            "an API's model is another than yours: only prices are compared" if own and result.api_costs else None,
            "APIs at off-peak prices (--hours peak)" if result.api_costs and _off_peak(result, inputs) else None,
            *source_notes(result),
        ]
    )


def _off_peak(result: PriceResult, inputs: Mapping[str, Any]) -> bool:
    """Whether some API has prices of peak hours, and nothing was said of the hour."""
    return inputs.get("hours") is None and any(row.hours == "peak" for row in result.apis)
