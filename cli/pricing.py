"""What `price` puts together: a deployment of one's own where there is one, and the prices of APIs."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from roofcast.calculators.answer import remarks
from roofcast.calculators.errors import UsageError
from roofcast.cli import options
from roofcast.cli.price_asked import factor, rate, total
from roofcast.hwdb.units import UnitError, parse_duration

if TYPE_CHECKING:
    from datetime import date, datetime

    from roofcast.calculators.answer import Remarks
    from roofcast.calculators.api_cost import Terms
    from roofcast.calculators.cost import Tariff
    from roofcast.calculators.deployment import Ready
    from roofcast.calculators.price import Own
    from roofcast.calculators.price_answer import Question
    from roofcast.calculators.price_apis import Totals
    from roofcast.calculators.price_rooms import Server
    from roofcast.calculators.price_rows import Hourly, PriceResult
    from roofcast.cli.deploy import Asking, Machine
    from roofcast.cli.price_asked import Money, Served
    from roofcast.hwdb.prices import PriceList

KINDS: Final = ("peak", "off-peak")  # of hours
MOST_RATIO: Final = 1e6


@dataclass(frozen=True, slots=True)
class AskedOwn:
    """A deployment of one's own, as options give it; without a model there is none."""

    model: str | None
    machine: Machine
    weights: str | None
    kv: str | None
    batch: str | None
    budget: str | None
    efficiency: str
    encoder_tokens: str | None
    revision: str | None
    offline: bool
    ratio: float | None
    rate: str | None

    def refuse_without_model(self, served: Served, apis: AskedApis, day: Day) -> None:
        """Refuses what is of a deployment where there is none.

        Raises:
            UsageError: naming the option.
        """
        if self.model is not None:
            return
        machine = self.machine
        given = {
            "--gpu": machine.gpu is not None,
            "--gpus": machine.gpus is not None and day.input_tokens is None and day.output_tokens is None,
            "--tp": machine.tp is not None,
            "--pp": machine.pp != 1,
            "--ep": machine.ep != 1,
            "--dp": machine.dp != 1,
            "--network": machine.network is not None,
            "--engine": machine.engine != "none",
            "--batch": self.batch is not None,
            "--ratio": self.ratio is not None,
            "--rate": self.rate is not None and apis.kept is None,
            "--weights": self.weights is not None,
            "--kv": self.kv is not None,
            "--context": served.context is not None,
            "--max-num-batched-tokens": self.budget is not None,
            "--efficiency": self.efficiency != "expected",
            "--encoder-tokens": self.encoder_tokens is not None,
            "--revision": self.revision is not None,
        }
        found = next((option for option, wrong in given.items() if wrong), None)
        if found:
            raise UsageError(f"{found} is of a deployment; name its MODEL too, such as llama-3.1-8b")
        if apis.names == "none":
            raise UsageError("--api none without a MODEL asks nothing; name a MODEL, or an API")


@dataclass(frozen=True, slots=True)
class AskedApis:
    """Prices of APIs, as options ask for them."""

    names: str | None
    file: str | None
    day: str | None
    hours: str | None
    lifetime: str | None
    kept: str | None

    def lists(self) -> tuple[PriceList, ...]:
        """The price lists.

        Raises:
            UsageError, PriceFileError, UnknownPriceError: what cannot be read or is not known.
        """
        from pathlib import Path

        from roofcast.hwdb.price_files import find_prices, usual_prices

        extra, on = None if self.file is None else Path(self.file), self._day()
        if self.names == "none":
            return ()
        if self.names is None:
            return usual_prices(extra, on)
        return find_prices([name.strip() for name in self.names.split(",")], extra, on)

    def terms(self, requests_per_second: float | None) -> Terms:
        """At which hours, and how long a prefix is kept.

        Raises:
            UsageError: naming the option.
        """
        from roofcast.calculators.api_cost import LIFETIME, Terms
        from roofcast.calculators.cost import HOUR

        if self.lifetime is not None and not re.fullmatch(LIFETIME, self.lifetime, re.ASCII):
            raise UsageError(f"--cache-write {self.lifetime}: it must be a lifetime, such as 5m or 1h")
        hours = None if self.kept is None else self._kept() / HOUR
        if hours is not None and requests_per_second is None:
            raise UsageError("--kept is shared by the requests that come meanwhile; give --rate too")
        each = None if requests_per_second is None else requests_per_second * HOUR
        return Terms(
            peak=self.hours == KINDS[0],
            lifetime=self.lifetime or "5m",
            kept_hours=hours,
            requests_per_hour=each,
        )

    def _kept(self) -> float:
        try:
            return parse_duration(self.kept or "")
        except UnitError as error:
            raise UnitError(f"--kept {self.kept}: {error}") from error

    def _day(self) -> date | None:
        from datetime import date

        if self.day is None:
            return None
        try:
            return date.fromisoformat(self.day)
        except ValueError as error:
            raise UsageError(f"--date {self.day}: it must be a day, such as 2026-11-15") from error

    def moment(self) -> datetime | None:
        """The time in UTC at which they are asked; None where --hours names none.

        Raises:
            UsageError: it is neither a time nor a kind of hour.
        """
        from datetime import UTC, datetime

        if self.hours is None or self.hours in KINDS:
            return None
        try:
            found = datetime.fromisoformat(self.hours)
            found = found.replace(tzinfo=UTC) if found.tzinfo is None else found.astimezone(UTC)
        except (ValueError, OverflowError) as error:
            raise UsageError(
                f"--hours {self.hours}: it must be peak, off-peak or a time in UTC such as 2026-11-16T02:30"
            ) from error
        return found


@dataclass(frozen=True, slots=True)
class Day:
    """A day's tokens, as options give them."""

    input_tokens: str | None
    output_tokens: str | None
    hit: str | None
    gpus: int | None

    def totals(self) -> Totals | None:
        """The day's tokens; None where none are given.

        Raises:
            UsageError: one of the two alone.
        """
        from roofcast.calculators.price_apis import Totals

        read, made = total(self.input_tokens, "--input-tokens"), total(self.output_tokens, "--output-tokens")
        if read is None and made is None:
            return None
        if read is None or made is None:
            raise UsageError("--input-tokens and --output-tokens are a day's; give both")
        return Totals(
            read,
            made,
            options.share("0%" if self.hit is None else self.hit, "--prefix-hit"),
            options.size(self.gpus, "--gpus"),
        )


def priced(
    asked: AskedOwn, served: Served, money: Money, apis: AskedApis, day: Day
) -> tuple[PriceResult, dict[str, object], Remarks]:
    """The answer, its inputs, and what should be said of it.

    Raises:
        UsageError, UnitError: options that cannot be, or that do not go together.
    """
    from roofcast.calculators.price_answer import Question, price_result
    from roofcast.cli.deploy import few_rows

    asked.refuse_without_model(served, apis, day)
    tariff, totals, per_second = money.tariff(), day.totals(), rate(asked.rate)
    if asked.model is not None and totals is not None:
        raise UsageError(
            "a day's --input-tokens and --output-tokens are beside machines as they were: leave MODEL out, --gpus says how many"
        )
    if per_second is not None and money.utilisation is not None:
        raise UsageError("--rate says how much of every hour is used; leave --utilisation out")
    if asked.ratio is not None:
        factor(asked.ratio, "--ratio", 0.01, MOST_RATIO)
    costed = asked.model is not None or bool(served.mix or served.prompt or served.output or served.shared_prefix)
    workloads, moment = served.workloads(), apis.moment()
    terms, lists = apis.terms(per_second), apis.lists()
    none = None if lists or apis.names == "none" else f"no prices of APIs are known to have been in force on {apis.day}"
    if none and asked.model is None:
        raise UsageError(f"--date {apis.day}: {none}; --api with a model's name has what was read later")
    made = _deployed(asked)
    own = None if made is None else _own(made, asked, tariff)
    if own is not None:
        few_rows(sum(len(one.requests) for one in workloads) * len(own.batches), "--batch, --context and --mix")
    question = Question(
        own=own,
        hourly=own.hourly if own else _machines(totals, tariff),
        workloads=workloads,
        lists=lists,
        terms=terms,
        moment=moment,
        costed=costed,
        totals=totals,
        ratio=asked.ratio,
        rate=per_second,
    )
    result, said = price_result(question)
    said += remarks(warnings=[none])
    return result, _inputs(question, made, apis), said + (made.remarks if made else remarks())


def _deployed(asked: AskedOwn) -> Asking | None:
    """The deployment, with constants of expected times where they are wanted; None without a model."""
    from roofcast.cli.deploy import deploy, efficiency_of, expecting
    from roofcast.cli.session import Lookup

    constants = efficiency_of(asked.efficiency)
    if asked.model is None:
        return None
    lookup = Lookup(asked.revision, asked.offline, encoder_tokens=options.encoder_count(asked.encoder_tokens))
    return expecting(deploy(asked.model, lookup, asked.machine, asked.weights, asked.kv), constants)


def _own(made: Asking, asked: AskedOwn, tariff: Tariff) -> Own:
    """The deployment, in the memory that its engine's rules leave where they are modelled."""
    from roofcast.calculators.price import Own, hourly_cost
    from roofcast.cli.deploy import Points

    ready, points = made.ready, Points(batch=asked.batch, budget=asked.budget)
    batches = tuple(sorted(points.batches()))
    hourly = hourly_cost(tariff, ready.deployment.accelerator, ready.deployment.shards.devices)
    return Own(ready, batches, points.tokens, hourly, _server(ready))


def _server(ready: Ready) -> Server | None:
    """The engine's server; None of an engine whose cache is no share of a budget.

    Raises:
        UsageError: what the engine does not run.
    """
    from roofcast.calculators.engines.flags import Flags
    from roofcast.calculators.engines.serving import serve
    from roofcast.calculators.price_rooms import POOLED, Server

    if ready.deployment.engine not in POOLED:
        return None
    return Server(serve(ready.model, ready.deployment, Flags())[0])


def _machines(totals: Totals | None, tariff: Tariff) -> Hourly | None:
    """What a day's machines cost, where no model is deployed: rent alone has no data sheet to look into.

    Raises:
        UsageError: a price without a day's tokens or without GPUs.
    """
    from roofcast.calculators.price_rows import Hourly

    if tariff.gpu_price is None and tariff.gpu_cost is None:
        return None
    if totals is None or totals.gpus is None:
        raise UsageError(
            "a price of GPUs is of a deployment: name its MODEL, or give a day's --input-tokens, --output-tokens and --gpus"
        )
    if tariff.gpu_price is None or tariff.power_price:
        raise UsageError("--gpu-cost and --power-price are of a deployment, whose TDP counts: name its MODEL")
    each = tariff.gpu_price
    whole = each * totals.gpus
    return Hourly("rented", totals.gpus, each, each, None, 0.0, whole, tariff.utilisation, whole / tariff.utilisation)


def _inputs(question: Question, made: Asking | None, apis: AskedApis) -> dict[str, object]:
    """The question, as `inputs` repeats it."""
    from roofcast.hwdb.price_files import newest_day

    own = question.own
    return {
        **({} if made is None else made.inputs),
        "batches": list(own.batches) if own else [],
        "max_num_batched_tokens": own.budget if own else None,
        "workloads": [
            {
                "name": workload.name,
                "context": workload.context,
                "requests": [
                    {"prompt": r.prompt, "output": r.output, "prefix": r.prefix, "hit": r.hit, "weight": r.weight}
                    for r in workload.requests
                ],
            }
            for workload in question.workloads
        ],
        "ratio": question.ratio,
        "requests_per_second": question.rate,
        "apis": [f"{prices.vendor}/{prices.model}" for prices in question.lists],
        "date": apis.day or newest_day().isoformat(),
        "hours": apis.hours,
    }
