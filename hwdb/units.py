"""Quantities come in and go out here: text at the edge, plain SI floats inside.

`parse(show(x))` gives x back, within the digits shown. GB is 10^9 bytes and GiB is 2^30,
everywhere; tokens alone count `4k` as 4096, because context windows do.
"""

from __future__ import annotations

import math
import re

_SI = {"": 1.0, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15, "E": 1e18}
_BINARY = {"Ki": 2.0**10, "Mi": 2.0**20, "Gi": 2.0**30, "Ti": 2.0**40, "Pi": 2.0**50}

_BYTES = {f"{p}B": f for p, f in (_SI | {"K": 1e3} | _BINARY).items()}
_RATES = {f"{p}{unit}": f for unit in ("FLOP/s", "FLOPS", "OP/s", "OPS") for p, f in _SI.items()}
_TIMES = {"h": 3600.0, "min": 60.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "\N{MICRO SIGN}s": 1e-6, "ns": 1e-9}

# unit -> every spelling of it -> factor
UNITS: dict[str, dict[str, float]] = {
    "B": _BYTES,
    "B/s": {f"{unit}/s": factor for unit, factor in _BYTES.items()},
    "FLOP": {f"{p}FLOP": f for p, f in _SI.items()},
    "FLOP/s": _RATES,
    "Hz": {f"{p}Hz": f for p, f in _SI.items()},
    "bit/s": {f"{p}{unit}": f for unit in ("bit/s", "bps") for p, f in _SI.items()},
    "W": {f"{p}W": f for p, f in ({"m": 1e-3} | _SI).items()},
    "s": _TIMES,
}
_EXAMPLES = {
    "B": "80 GB",
    "B/s": "3.35 TB/s",
    "FLOP": "61.6 TFLOP",
    "FLOP/s": "989.4 TFLOP/s",
    "Hz": "1830 MHz",
    "bit/s": "5.238 Gbit/s",
    "W": "700 W",
    "s": "50 ms",
}
_NUMBER = r"[0-9]{1,3}(?:,[0-9]{3})+(?:\.[0-9]+)?|[0-9]+(?:\.[0-9]*)?|\.[0-9]+"
# plain strings: re compiles and keeps them on first use, so that importing this costs nothing
_QUANTITY = rf"\s*(?P<number>(?:{_NUMBER})(?:[eE][+-]?[0-9]+)?)\s*(?P<unit>[^0-9\s].*?)?\s*"
_TOKENS = r"\s*(?P<number>[0-9]{1,15}(?:\.[0-9]{1,9})?)\s*(?P<suffix>[kKmM]?)\s*"
_PERCENT = rf"\s*(?P<number>(?:{_NUMBER})(?:[eE][+-]?[0-9]+)?)\s*(?P<sign>%?)\s*"
_LONGEST = 80  # characters; no quantity is longer, and what is can take the pattern for ever
_TOKEN_FACTORS = {"": 1, "k": 2**10, "m": 2**20}


class UnitError(ValueError):
    """A quantity that cannot be read.

    >>> parse_quantity("80", "B")
    Traceback (most recent call last):
    roofcast.hwdb.units.UnitError: '80' has no unit; write it like '80 GB'
    """


def parse_quantity(text: str, unit: str) -> float:
    """Read a quantity with its unit, such as `3.35 TB/s`, as a float in that SI unit.

    Args:
        text: a number that is not negative and a unit of the same kind as `unit`.
        unit: `B`, `B/s`, `FLOP`, `FLOP/s` (`OP/s` and `TOPS` are the same), `Hz`, `bit/s`, `W` or `s`.

    Raises:
        UnitError: no number, no unit, a unit of another kind, a number too large for a float, or a long text.

    >>> parse_quantity("3.35 TB/s", "B/s")
    3350000000000.0
    >>> parse_quantity("81559 MiB", "B")
    85520809984.0
    >>> parse_quantity("130 TOP/s", "FLOP/s")
    130000000000000.0
    """
    if len(text) > _LONGEST:
        raise UnitError(f"{text[:40]!r}... is too long for a quantity in {unit}; write it like {_EXAMPLES[unit]!r}")
    match = re.fullmatch(_QUANTITY, text)
    if match is None:
        raise UnitError(f"{text!r} is not a quantity in {unit}; write it like {_EXAMPLES[unit]!r}")
    if match["unit"] is None:
        raise UnitError(f"{text!r} has no unit; write it like {_EXAMPLES[unit]!r}")
    factor = UNITS[unit].get(match["unit"])
    if factor is None:
        raise UnitError(_unknown_unit(text, match["unit"], unit))
    value = _scaled(match["number"].replace(",", ""), factor)
    if not math.isfinite(value):
        raise UnitError(f"{text!r} is too large; write it like {_EXAMPLES[unit]!r}")
    return value


def _scaled(number: str, factor: float) -> float:
    """Multiply, rounding once: 66.9 T is 66.9e12 and not 66.9 * 1e12, which ends in .01."""
    exponent = round(math.log10(factor))
    if factor != float(f"1e{exponent}"):
        return float(number) * factor
    mantissa, _, own = number.lower().partition("e")
    return float(f"{mantissa}e{exponent + int((own or '0')[:6])}")


def _unknown_unit(text: str, written: str, unit: str) -> str:
    import difflib  # noqa: PLC0415 - only errors need it

    lower = {known.lower(): known for known in UNITS[unit]}
    near = lower.get(written.lower()) or next(iter(difflib.get_close_matches(written, UNITS[unit], 1)), None)
    meant = f" (did you mean {near}?)" if near else ""
    return f"{text!r}: {written!r} is not a unit of {unit}{meant}; write it like {_EXAMPLES[unit]!r}"


def parse_duration(text: str) -> float:
    """Read a time to wait, such as `60s`, `2m` or plain seconds, `90`. [s]

    Raises:
        UnitError: not a time, or no more than zero.

    >>> parse_duration("60s"), parse_duration("2m"), parse_duration("90"), parse_duration("1.5 min")
    (60.0, 120.0, 90.0, 90.0)
    """
    plain = text.strip()
    if re.fullmatch(rf"(?:{_NUMBER})", plain[:_LONGEST]):
        plain += "s"
    elif re.fullmatch(rf"(?:{_NUMBER})\s*m", plain[:_LONGEST]):
        plain += "in"
    try:
        seconds = parse_quantity(plain, "s")
    except UnitError as error:
        raise UnitError(f"{text!r} is no time; write it like 60s, 2m or 90 (seconds)") from error
    if seconds <= 0:
        raise UnitError(f"{text!r} is no time to spend; write it like 60s, 2m or 90 (seconds)")
    return seconds


def parse_tokens(text: str) -> int:
    """Read a token count: plain, or with `k` for 1024 and `m` for 1024^2.

    Raises:
        UnitError: zero, negative, not a number, or a fraction that is no whole token.

    >>> parse_tokens("4k"), parse_tokens("128k"), parse_tokens("1m"), parse_tokens("1.5k"), parse_tokens("1000")
    (4096, 131072, 1048576, 1536, 1000)
    """
    match = re.fullmatch(_TOKENS, text)
    if match is None:
        raise UnitError(f"{text!r} is not a token count; write a whole number above 0, such as 4096, 4k or 128k")
    whole, _, fraction = match["number"].partition(".")
    factor = _TOKEN_FACTORS[match["suffix"].lower()]
    # whole numbers throughout: a float would round counts above 2^53
    decimals: int = 10 ** len(fraction)
    tokens, rest = divmod(int(whole + fraction) * factor, decimals)
    if rest or tokens == 0:
        reason = "is no whole number of tokens" if rest else "is zero tokens"
        raise UnitError(f"{text!r} {reason}; write a whole number above 0, such as 4096, 4k or 128k")
    return tokens


def parse_percent(text: str) -> float:
    """Read a share between 0 and 1, written `10%` or `0.1`.

    Raises:
        UnitError: not a number, or outside 0% to 100%.

    >>> parse_percent("10%"), parse_percent("0.1")
    (0.1, 0.1)
    """
    match = re.fullmatch(_PERCENT, text)
    if match is None:
        raise UnitError(f"{text!r} is not a share; write it like '10%' or '0.1'")
    number = float(match["number"].replace(",", ""))
    share = number / 100 if match["sign"] else number
    if share > 1:
        raise UnitError(f"{text!r} is more than 100%; write a share from 0% to 100%, such as '10%' or '0.1'")
    return share


def show_bytes(value: float, unit: str = "GiB", digits: int = 1) -> str:
    """Show bytes in one named unit, so that a column keeps its unit.

    >>> show_bytes(85029027840, "GiB", 2), show_bytes(80e9, "GB", 0)
    ('79.19 GiB', '80 GB')
    """
    return f"{value / UNITS['B'][unit]:.{digits}f} {unit}"


def show_size(size: int) -> str:
    """Show bytes in the largest binary unit of which they are a whole number.

    >>> show_size(1024), show_size(268435456), show_size(1026), show_size(1610612736)
    ('1 KiB', '256 MiB', '1,026 B', '1,536 MiB')
    """
    for unit in ("GiB", "MiB", "KiB"):
        if size % int(UNITS["B"][unit]) == 0:
            return f"{size // int(UNITS['B'][unit]):,} {unit}"
    return f"{size:,} B"


def show_si(value: float, unit: str, figures: int = 4) -> str:
    """Show a quantity with the SI prefix that keeps it between 1 and 1000.

    >>> show_si(989.4e12, "FLOP/s"), show_si(3.35e12, "B/s"), show_si(0.0123, "s"), show_si(0, "W")
    ('989.4 TFLOP/s', '3.35 TB/s', '12.3 ms', '0 W')
    """
    prefixes = {"n": 1e-9, "u": 1e-6, "m": 1e-3, "": 1.0} if unit == "s" else _SI
    rounded = float(f"{value:.{figures}g}")
    prefix = max((p for p, f in prefixes.items() if abs(rounded) >= f), key=prefixes.__getitem__, default="")
    if unit == "s" and 0 < abs(rounded) < prefixes["n"]:
        prefix = "n"
    scaled = f"{rounded / prefixes[prefix]:.{figures}g}"
    # %g turns to an exponent past its figures (1.234e+05); whole numbers read better
    return f"{float(scaled):.0f} {prefix}{unit}" if "e+" in scaled else f"{scaled} {prefix}{unit}"


def show_tokens(tokens: int) -> str:
    """Show a token count as `parse_tokens` reads it.

    >>> show_tokens(131072), show_tokens(1048576), show_tokens(53250)
    ('128k', '1m', '53250')
    """
    for suffix, factor in (("m", 2**20), ("k", 2**10)):
        if tokens and tokens % factor == 0:
            return f"{tokens // factor}{suffix}"
    return str(tokens)


def show_percent(share: float, digits: int = 0) -> str:
    """Show a share as a percentage.

    >>> show_percent(0.1), show_percent(0.715, 1)
    ('10%', '71.5%')
    """
    return f"{share * 100:.{digits}f}%"
