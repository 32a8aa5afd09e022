"""Laws that units keep for every value."""

from __future__ import annotations

import string

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from roofcast.hwdb.units import (
    UNITS,
    UnitError,
    parse_percent,
    parse_quantity,
    parse_tokens,
    show_bytes,
    show_percent,
    show_si,
    show_tokens,
)

magnitudes = st.floats(min_value=1e-9, max_value=1e21)
sizes = st.floats(min_value=1.0, max_value=1e18)


@given(value=magnitudes, unit=st.sampled_from(sorted(UNITS)), figures=st.integers(3, 9))
@example(value=999.95e9, unit="B/s", figures=4)
def test_si_round_trip(value: float, unit: str, figures: int) -> None:
    """`parse(show(x))` is x within half a unit of the last figure shown."""
    shown = show_si(value, unit, figures)

    assert parse_quantity(shown, unit) == pytest.approx(value, rel=10.0 ** (1 - figures))


@given(value=sizes, unit=st.sampled_from(["B", "kB", "MB", "GB", "TB", "KiB", "MiB", "GiB", "TiB"]))
def test_bytes_round_trip(value: float, unit: str) -> None:
    """`parse(show(x))` is x within half a unit of the last digit shown."""
    assert parse_quantity(show_bytes(value, unit, 6), "B") == pytest.approx(
        value, abs=0.51e-6 * UNITS["B"][unit], rel=1e-12
    )


@given(tokens=st.integers(1, 10**15 - 1))
@example(tokens=1024)
@example(tokens=2**20)
@example(tokens=2**20 + 1024)
def test_tokens_round_trip(tokens: int) -> None:
    """`parse(show(n))` is n exactly."""
    assert parse_tokens(show_tokens(tokens)) == tokens


@given(tokens=st.integers(1, 10**9))
def test_k_is_1024(tokens: int) -> None:
    """`nk` is 1024 times `n`, and `nm` is 1024 times `nk`."""
    assert parse_tokens(f"{tokens}k") == 1024 * parse_tokens(str(tokens))
    assert parse_tokens(f"{tokens}m") == 1024 * parse_tokens(f"{tokens}k")


@given(share=st.floats(0.0, 1.0))
def test_percent_round_trip(share: float) -> None:
    """`parse(show(x))` is x within half a unit of the last digit shown."""
    assert parse_percent(show_percent(share, 4)) == pytest.approx(share, abs=0.51e-6)


@given(number=st.integers(0, 10**6), unit=st.sampled_from([(u, s) for u in sorted(UNITS) for s in sorted(UNITS[u])]))
def test_every_spelling_is_linear(number: int, unit: tuple[str, str]) -> None:
    """Every spelling of a unit scales: `n unit` is n times `1 unit`."""
    si, spelling = unit

    assert parse_quantity(f"{number} {spelling}", si) == pytest.approx(number * parse_quantity(f"1{spelling}", si))


@given(text=st.text(alphabet=string.printable + "\u00b5\u0663", max_size=20), unit=st.sampled_from(sorted(UNITS)))
def test_any_text_is_read_or_refused(text: str, unit: str) -> None:
    """No text raises anything but UnitError, in one line; what is read is finite and not negative."""
    for parse in (lambda t: parse_quantity(t, unit), parse_tokens, parse_percent):
        try:
            said, value = "", parse(text)
        except UnitError as refused:
            said, value = str(refused), 0.0

        assert "\n" not in said
        assert 0 <= value < float("inf")
