"""Prices of APIs: the project's own rows, which of them are in force, what goes by a name, and the user's files."""

from __future__ import annotations

import json
import os
from datetime import UTC, date, datetime, time, timedelta, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest
import yaml

from roofcast.hwdb.price_files import (
    BUILT_IN,
    all_offers,
    find_prices,
    newest_day,
    read_price_file,
    usual_prices,
)
from roofcast.hwdb.prices import Peak, UnknownPriceError
from tests.price_lists import only

if TYPE_CHECKING:
    from roofcast.hwdb.prices import PriceRow

FILES: Final = sorted(BUILT_IN.glob("*.yaml"))
PRICED: Final = (
    168  # rows with prices in the list that the files were made from, for the line that says what is skipped
)
NEWEST: Final = date(2026, 11, 15)  # DeepSeek's page is the newest of all that was read
HOURS: Final = Peak(((time(1), time(4)), (time(6), time(10))), working_days=True)
# what identifies a row of the list, whatever it calls its tiers and hours
KEPT: Final = ("input", "cached_input", "output")


# --- the project's own


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_the_projects_files_are_sound(path: Path) -> None:
    """Every built-in file passes the checks that a user's does, and is named after its vendor."""
    offers = read_price_file(path)

    assert {offer.vendor for offer in offers} == {path.stem}


def test_every_row_of_the_list_is_there(repository: Path) -> None:
    """Each priced row of the list that the files were made from is a row of a file: vendor, prices and date."""
    path = Path(os.environ.get("ROOFCAST_SHARED") or repository.parent / "shared") / "facts" / "prices.json"
    if not path.is_file():
        pytest.skip(f"no list of prices: {PRICED} rows not checked")
    listed = [row for row in json.loads(path.read_text(encoding="utf-8")) if "input" in row]
    ours = {_identity(offer.vendor, row) for offer in all_offers() for row in offer.rows}

    missing = [row for row in listed if _listed(row) not in ours]

    assert len(listed) == PRICED
    assert missing == []


def _identity(vendor: str, row: PriceRow) -> tuple[object, ...]:
    days = [None if day is None else day.isoformat() for day in (row.from_date, row.to_date)]
    # the list says in a model's name, and not in a field, until when it was
    ends = None if days[1] == "2026-08-16" else days[1]
    write = tuple(row.cache_write.get(name) for name in ("5m", "1h")) if vendor == "anthropic" else (None, None)
    return vendor, row.input, row.cached_input, row.output, row.source.as_of, days[0], ends, write


def _listed(row: dict[str, Any]) -> tuple[object, ...]:
    prices = [None if row.get(name) is None else float(row[name]) for name in KEPT]
    write = row.get("cache_write_5m"), row.get("cache_write_1h")
    return row["vendor"], *prices, row["as_of"], row.get("from_date"), row.get("to_date"), write


def test_no_row_is_dearer_cached_than_read() -> None:
    """A cached token costs less than one that is read; a price that does not is misread."""
    rows = [row for offer in all_offers() for row in offer.rows]

    assert [row.model for row in rows if row.cached_input is not None and row.cached_input >= row.input] == []


def test_every_rule_says_where_it_is_from() -> None:
    """A rule has a source, and one of its prices where it has prices, and then alone."""
    rules = [offer.caching for offer in all_offers() if offer.caching is not None]
    priced = [(rule.cached_over_input, rule.storage, rule.write_over_input or None) for rule in rules]

    assert None not in [rule.source for rule in rules]
    assert [rule.price_source is None for rule in rules] == [prices == (None, None, None) for prices in priced]


def test_names_are_of_one_model_each() -> None:
    """No id, name or alias stands for two models of the built-in files."""
    for offer in all_offers():
        for name in (offer.model, offer.name, *offer.aliases):
            assert only(name).model == offer.model if offer.on(NEWEST) else True


@pytest.mark.parametrize(
    ("model", "prices"),
    [
        ("claude-opus-5", (5, 0.5, 25)),
        ("gpt-6.1-sol", (2, 0.1, 10)),
        ("gpt-5.1", (1.25, 0.125, 10)),
        ("gemini-2.5-pro", (1.25, 0.125, 10)),
        ("deepseek-v4-pro", (0.66, 0.022, 1.98)),
        ("grok-4.5", (2, 0.3, 6)),
        ("kimi-k2-thinking", (0.6, 0.15, 2.5)),
        ("amazon-nova-pro", (0.8, None, 3.2)),
    ],
)
def test_prices_of_well_known_models(model: str, prices: tuple[float | None, ...]) -> None:
    """The lowest tier's input, cached input and output. [USD/Mtoken]"""
    row = only(model).rows[0]

    assert (row.input, row.cached_input, row.output) == prices


def test_ratios() -> None:
    """Output over input and cached over input: 25 / 5 and 0.5 / 5; none without a price of cached input."""
    row, none = only("claude-opus-5").rows[0], only("amazon-nova-pro").rows[0]

    assert (row.output_over_input, row.cached_over_input) == (5, 0.1)
    assert none.cached_over_input is None


def test_what_quotes_a_provider_is_marked() -> None:
    """A page that only quotes a provider is second hand; the provider's own is not."""
    assert only("gpt-6.1-sol").rows[0].source.second_hand
    assert not only("claude-opus-5").rows[0].source.second_hand


def test_a_few_stand_for_their_vendors() -> None:
    """The short list has one or two models of every vendor but for none of those that were withdrawn."""
    counts: dict[str, int] = {}
    for prices in usual_prices():
        counts[prices.vendor] = counts.get(prices.vendor, 0) + 1

    assert set(counts) == {path.stem for path in FILES}
    assert set(counts.values()) <= {1, 2}


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_files_say_where_else_they_are_from(path: Path) -> None:
    """Every source of a file is cited: by a row, a rule, or a note that gives its name."""
    fields = yaml.safe_load(path.read_text(encoding="utf-8"))
    rules = [fields.get("caching"), *(model.get("caching") for model in fields["models"])]
    cited = {row["source"] for model in fields["models"] for row in model["prices"]}
    cited |= {rule.get(name) for rule in rules if rule for name in ("source", "price_source")}
    noted = " ".join(fields.get("notes", ()))

    assert [name for name in fields["sources"] if name not in cited and name not in noted] == []


# --- tiers, hours and days


@pytest.mark.parametrize(
    ("model", "prompt", "price"),
    [
        ("gemini-2.5-pro", 1, 1.25),
        ("gemini-2.5-pro", 200_000, 1.25),
        ("gemini-2.5-pro", 200_001, 2.5),
        ("gpt-6.2-sol", 272_000, 2.0),
        ("gpt-6.2-sol", 272_001, 4.0),
        ("gpt-6.2-sol", 278_528, 4.0),  # 272 x 1,024
        ("claude-haiku-5-5", 100_000, 0.1),
        ("claude-haiku-5-5", 100_001, 0.5),
        ("claude-sonnet-4-5", 200_001, 6.0),
        ("grok-4", 128_000, 3.0),
        ("grok-4", 131_072, 6.0),
        ("qwen3.6-plus", 256_001, 2.0),
    ],
)
def test_tiers_are_decimal_and_end_with_their_boundary(model: str, prompt: int, price: float) -> None:
    """A prompt of exactly 200,000 tokens is of the lower tier and one more of the higher; 272k is 272,000."""
    assert only(model).row(prompt).input == price


@pytest.mark.parametrize(
    ("moment", "peak"),
    [
        (datetime(2026, 11, 27, 0, 59, tzinfo=UTC), False),
        (datetime(2026, 11, 27, 1, 0, tzinfo=UTC), True),
        (datetime(2026, 11, 27, 3, 59, 59, tzinfo=UTC), True),
        (datetime(2026, 11, 27, 4, 0, tzinfo=UTC), False),
        (datetime(2026, 11, 27, 5, 0, tzinfo=UTC), False),
        (datetime(2026, 11, 27, 6, 0, tzinfo=UTC), True),
        (datetime(2026, 11, 27, 10, 0, tzinfo=UTC), False),
        (datetime(2026, 11, 28, 2, 0, tzinfo=UTC), False),  # Saturday
        (datetime(2026, 11, 29, 2, 0, tzinfo=UTC), False),  # Sunday
        (datetime(2026, 11, 30, 2, 0, tzinfo=UTC), True),
        (datetime(2026, 11, 27, 9, 30, tzinfo=timezone(timedelta(hours=8))), True),  # 01:30 UTC
        (datetime(2026, 11, 30, 2, 0, tzinfo=timezone(timedelta(hours=8))), False),  # 18:00 UTC on Sunday
    ],
)
def test_peak_hours(moment: datetime, peak: bool) -> None:
    """Peak hours begin with their first minute, end before their last, and are of working days, in UTC."""
    assert only("deepseek-v4-pro").hours == HOURS
    assert HOURS.holds(moment) is peak


def test_peak_hours_cost_their_own_price() -> None:
    """DeepSeek's peak hours cost twice as much."""
    prices = only("deepseek-v4-pro")

    assert prices.row(1000, peak=True).output == 2 * prices.row(1000).output == 3.96


def test_a_span_over_midnight() -> None:
    """22:00-02:00 holds before and after midnight."""
    night = Peak(((time(22), time(2)),), working_days=False)

    assert [night.holds(datetime(2026, 11, 28, hour, tzinfo=UTC)) for hour in (21, 22, 0, 1, 2)] == [
        False,
        True,
        True,
        True,
        False,
    ]


def test_without_peak_rows_the_hour_makes_no_difference() -> None:
    """A model without peak prices costs the same at any hour."""
    prices = only("claude-opus-5")

    assert prices.hours is None
    assert prices.row(1000, peak=True) == prices.row(1000)


@pytest.mark.parametrize(
    ("model", "on", "price"),
    [
        ("claude-sonnet-5", date(2026, 8, 31), 2),
        ("claude-sonnet-5", date(2026, 8, 11), 2),
        ("claude-sonnet-5", date(2026, 9, 15), 2),  # the rise to 3 was cancelled in August
        ("claude-sonnet-5", date(2026, 10, 10), 2),
        ("deepseek-v4-pro", date(2026, 7, 29), 0.435),  # no one had read it yet; the provider states until when
        ("deepseek-v4-pro", date(2026, 8, 15), 0.435),
        ("deepseek-v4-pro", date(2026, 8, 16), 0.66),
        ("deepseek-v4-pro", date(2026, 11, 20), 0.66),
        ("deepseek-chat", date(2025, 2, 7), 0.14),
        ("deepseek-chat", date(2025, 2, 8), 0.27),
        ("gemini-3.8-flash", date(2026, 12, 31), 0.75),
        ("gemini-3.8-flash", date(2027, 1, 1), 1.5),
        ("gpt-5.6-terra", date(2026, 7, 29), 2.5),
        ("gpt-5.6-terra", date(2026, 7, 30), 2),
        ("gpt-5.6-sol", date(2026, 8, 31), 5),
        ("gpt-5.6-sol", date(2026, 9, 30), 4),
    ],
)
def test_a_days_price_is_by_what_was_read_last(model: str, on: date, price: float) -> None:
    """Of a day counts the newest source read by then, and of its rows those in force."""
    assert only(model, on).rows[0].input == price


def test_without_a_day_it_is_that_of_the_newest_row() -> None:
    """The default day is of the data and not of the clock, so that answers do not change by themselves."""
    assert newest_day() == NEWEST
    assert find_prices(["all"]) == find_prices(["all"], on=NEWEST)


def test_what_is_no_longer_sold_has_no_price() -> None:
    """A model whose last price ended is in no list, and asked for by name it says when that was."""
    assert "deepseek-v4-flash" not in [prices.model for prices in find_prices(["deepseek"])]
    assert only("deepseek-v4-flash", date(2026, 9, 9)).rows[1].input == 0.44
    with pytest.raises(UnknownPriceError, match="deepseek-v4-flash has no price on 2026-09-10; its last ended on"):
        only("deepseek-v4-flash", date(2026, 9, 10))


# --- names


@pytest.mark.parametrize(
    ("name", "model"),
    [
        ("claude-opus-5", "claude-opus-5"),
        ("Claude Opus 5", "claude-opus-5"),
        ("claude-opus-4.5", "claude-opus-4-5"),
        ("claude-4.5-haiku", "claude-haiku-4-5"),
        ("OPENAI/gpt-4.1", "gpt-4.1"),
        ("openai/GPT-4.1 Mini", "gpt-4.1-mini"),
        ("o1-preview", "o1"),
        ("opus 5.5", "claude-opus-5-5"),
    ],
)
def test_names_that_people_write(name: str, model: str) -> None:
    """Ids, names and aliases are found whatever their capitals, spaces and points, with or without the vendor."""
    assert only(name).model == model


def test_a_vendor_is_all_that_it_sells() -> None:
    """A vendor's name gives its models, `all` every one, and what is asked twice comes once."""
    sold = [prices.model for prices in find_prices(["xai"])]

    assert "grok-4.5" in sold
    assert {prices.vendor for prices in find_prices(["xai"])} == {"xai"}
    assert {prices.vendor for prices in find_prices(["all"])} == {path.stem for path in FILES}
    assert [prices.model for prices in find_prices(["grok-4.5", "xai/grok-4.5"])] == ["grok-4.5"]


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("claude-opus-6", "no prices of 'claude-opus-6'; nearest: claude-opus-"),
        ("opnai", "no prices of 'opnai'; nearest: openai"),
        ("zzzzzz", "no prices of 'zzzzzz'; vendors: amazon, anthropic,"),
        ("", "no prices of ''; vendors: amazon"),
    ],
)
def test_unknown_names(name: str, said: str) -> None:
    """An unknown name is an error that gives the nearest, or else the vendors."""
    with pytest.raises(UnknownPriceError) as caught:
        find_prices([name])

    assert said in str(caught.value)
