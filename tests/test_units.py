"""Units are read at the edge and nowhere else."""

from __future__ import annotations

import subprocess
import sys

import pytest

from roofcast.hwdb.units import (
    UnitError,
    parse_percent,
    parse_quantity,
    parse_tokens,
    show_bytes,
    show_percent,
    show_si,
    show_tokens,
)


@pytest.mark.parametrize(
    ("text", "unit", "value"),
    [
        ("80 GB", "B", 80e9),
        ("80GB", "B", 80e9),
        ("81559 MiB", "B", 81559 * 2**20),
        ("81,559 MiB", "B", 81559 * 2**20),
        ("5632 KiB", "B", 5632 * 1024),
        ("64 kB", "B", 64e3),
        ("64 KB", "B", 64e3),
        ("1.5 TiB", "B", 1.5 * 2**40),
        ("0 B", "B", 0.0),
        ("3.35 TB/s", "B/s", 3.35e12),
        ("3350 GB/s", "B/s", 3.35e12),
        ("800 GiB/s", "B/s", 800 * 2**30),
        ("989.4 TFLOP/s", "FLOP/s", 989.4e12),
        ("989.4 TFLOPS", "FLOP/s", 989.4e12),
        ("66.9 TFLOP/s", "FLOP/s", 66.9e12),
        ("5e-3 MB", "B", 5000.0),
        ("2.5 PFLOP/s", "FLOP/s", 2.5e15),
        ("130 TOP/s", "FLOP/s", 130e12),
        ("130 TOPS", "FLOP/s", 130e12),
        ("61.6 TFLOP", "FLOP", 61.6e12),
        ("1830 MHz", "Hz", 1.83e9),
        ("1.83 GHz", "Hz", 1.83e9),
        ("5.238 Gbit/s", "bit/s", 5.238e9),
        ("700 W", "W", 700.0),
        ("1.2 kW", "W", 1200.0),
        ("500ms", "s", 0.5),
        ("50 us", "s", 50e-6),
        ("50 \N{MICRO SIGN}s", "s", 50e-6),
        ("2 min", "s", 120.0),
        ("1e3 ms", "s", 1.0),
        (" 2s ", "s", 2.0),
    ],
)
def test_quantities(text: str, unit: str, value: float) -> None:
    """A quantity is its number times its unit, in SI, rounded once."""
    assert parse_quantity(text, unit) == value


@pytest.mark.parametrize(
    ("text", "unit"),
    [
        ("", "B"),
        ("GB", "B"),
        ("-1 GB", "B"),
        ("nan GB", "B"),
        ("inf GB", "B"),
        ("1e999 GB", "B"),
        ("1e99999999 GB", "B"),
        ("1,2 GB", "B"),
        ("1 2 GB", "B"),
        ("80", "B"),
        ("80 gb", "B"),
        ("80 Gb", "B"),
        ("80 GB/s", "B"),
        ("80 GB", "B/s"),
        ("80 XB", "B"),
        ("\u0663 GB", "B"),
        ("80 MHz", "W"),
        ("500", "s"),
        ("3 weeks", "s"),
        (f"{'9' * 78} GB", "B"),
        (f"1 a{' ' * 800_000}b", "B"),
    ],
)
def test_what_is_no_quantity(text: str, unit: str) -> None:
    """What has no number, no unit or another kind of unit is refused in one line that shows how to write it."""
    with pytest.raises(UnitError, match=r"write it like '[0-9]") as refused:
        parse_quantity(text, unit)

    assert "\n" not in str(refused.value)
    assert len(str(refused.value)) < 200


def test_the_unit_that_was_meant() -> None:
    """A misspelt unit is answered with the nearest one."""
    with pytest.raises(UnitError, match=r"did you mean GB\?"):
        parse_quantity("80gb", "B")


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("1", 1),
        ("4096", 4096),
        ("4k", 4096),
        ("4K", 4096),
        ("32k", 32768),
        ("128k", 131072),
        ("1m", 1048576),
        ("1M", 1048576),
        ("1.5k", 1536),
        ("0.5m", 524288),
        ("0.125k", 128),
        ("4.0", 4),
        (" 8k ", 8192),
        ("9007199254740993", None),
        ("900719925474099", 900719925474099),
    ],
)
def test_tokens(text: str, tokens: int | None) -> None:
    """Tokens count k as 1024 and m as 1024^2, exactly; 16 digits are no token count."""
    if tokens is None:
        with pytest.raises(UnitError):
            parse_tokens(text)
    else:
        assert parse_tokens(text) == tokens


@pytest.mark.parametrize(
    "text", ["", "0", "0k", "-1", "-4k", "1.5", "0.3k", "4g", "4kk", "k", "1e3", "4,096", "nan", "\u0664k", "9" * 5000]
)
def test_what_is_no_token_count(text: str) -> None:
    """Zero, negatives, fractions of a token and other text are refused in one line."""
    with pytest.raises(UnitError, match="write a whole number above 0") as refused:
        parse_tokens(text)

    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("text", "share"),
    [("10%", 0.1), ("10 %", 0.1), ("0.1", 0.1), (".5", 0.5), ("0", 0.0), ("100%", 1.0), ("1", 1.0), ("2.5%", 0.025)],
)
def test_percent(text: str, share: float) -> None:
    """A share is a percentage or a number from 0 to 1."""
    assert parse_percent(text) == pytest.approx(share, rel=1e-15)


@pytest.mark.parametrize("text", ["", "%", "-1%", "110%", "1.1", "10", "nan", "ten", "1e999%", "1%%"])
def test_what_is_no_percent(text: str) -> None:
    """A share below 0, above 1 or that is no number is refused."""
    with pytest.raises(UnitError, match=r"'10%' or '0\.1'"):
        parse_percent(text)


@pytest.mark.parametrize(
    ("shown", "expected"),
    [
        (show_bytes(85029027840, "GiB", 2), "79.19 GiB"),
        (show_bytes(80e9, "GB"), "80.0 GB"),
        (show_si(3.35e12, "B/s"), "3.35 TB/s"),
        (show_si(999.99e9, "B/s"), "1 TB/s"),
        (show_si(1234567e18, "FLOP"), "1235000 EFLOP"),
        (show_si(0.0123, "s"), "12.3 ms"),
        (show_si(1.5e-10, "s"), "0.15 ns"),
        (show_si(0, "s"), "0 s"),
        (show_si(-2e9, "B"), "-2 GB"),
        (show_tokens(131072), "128k"),
        (show_tokens(2097152), "2m"),
        (show_tokens(53250), "53250"),
        (show_tokens(0), "0"),
        (show_percent(0.1), "10%"),
        (show_percent(0.715, 1), "71.5%"),
    ],
)
def test_showing(shown: str, expected: str) -> None:
    """What is shown names its unit and keeps the figures asked for."""
    assert shown == expected


def test_units_import_next_to_nothing() -> None:
    """The command line reads units at its start, so they load neither pydantic nor yaml nor difflib."""
    code = (
        "import sys; import roofcast.hwdb.units; "
        "print([m for m in ('pydantic', 'yaml', 'difflib', 'decimal', 'fractions', 'dataclasses') if m in sys.modules])"
    )
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout

    assert loaded.strip() == "[]"
