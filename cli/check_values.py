"""Values of a rule file: every scalar as it is written, read by its field, so that YAML makes no other number of it."""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from roofcast.calculators.cache_format import ENGINES
from roofcast.calculators.check_plan import ALL
from roofcast.calculators.check_quantities import BASES, QUANTITIES, TOKENS
from roofcast.calculators.engines.flags import Flags
from roofcast.calculators.errors import UsageError
from roofcast.cli import options
from roofcast.cli.engine_flags import OPTIONS, read_flags
from roofcast.hwdb.units import UnitError, parse_percent, parse_quantity, parse_tokens
from roofcast.modelspec.nearest import nearest

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

LONGEST: Final = 300  # characters of a value
MOST_DOLLARS: Final = 1e6
MOST_RATE: Final = 1e9
_DECIMAL: Final = r"(?:0|[1-9][0-9]{0,14})(?:\.[0-9]{1,12})?"
_PADDED: Final = r"[-+]?0[0-9_].*"  # YAML 1.1 takes 010 for 8; people mean 10, or 8
_SIGNED: Final = r"[-+]\s*[0-9.].*"


def text(value: object) -> str:
    """One scalar, as it is written.

    Raises:
        ValueError: it is empty, a list or a mapping, long, or cannot be printed.
    """
    if value is None or value == "":
        raise ValueError("is empty; write a value, or leave the field out")
    if not isinstance(value, str):
        kind = "a list" if isinstance(value, list) else "a mapping"
        more = "; a list of values goes under matrix" if isinstance(value, list) else ""
        raise ValueError(f"is {kind}; it takes one value{more}")  # noqa: TRY004 - what pydantic reports
    if len(value) > LONGEST or not value.isprintable():
        raise ValueError(f"is longer than {LONGEST} characters, or cannot be printed; write one short line")
    return value.strip()


def _number(value: object, example: str, most: float) -> float:
    """A plain number above 0."""
    written = text(value)
    if re.fullmatch(_SIGNED, written):
        raise ValueError(f"{written} is signed; write a number above 0, such as {example}")
    if not re.fullmatch(_DECIMAL, written):
        raise ValueError(f"{written!r} is no plain number; write it like {example}")
    if not 0 < float(written) <= most:
        raise ValueError(f"{written} is not above 0 and at most {most:,.0f}; write it like {example}")
    return float(written)


def _unpadded(value: object, example: str) -> str:
    """A scalar whose number has no leading zero, which YAML 1.1 takes for octal, and no sign."""
    written = text(value)
    if re.fullmatch(_PADDED, written) or re.fullmatch(_SIGNED, written):
        raise ValueError(f"{written!r} has a sign or a leading zero; write it like {example}")
    return written


def tokens(value: object) -> int:
    """A number of tokens, sequences or devices: 4096, or 4k."""
    count = parse_tokens(_unpadded(value, "4096 or 4k"))
    if count > options.MOST:
        raise ValueError(f"{count:,} is more than {options.MOST:,}; write a smaller number")
    return count


def share(value: object) -> float:
    """A share: 2%, or 0.02."""
    return parse_percent(_unpadded(value, "2% or 0.02"))


def part(value: object) -> float:
    """A share below 1."""
    found = share(value)
    if found >= 1:
        raise ValueError(f"{value} leaves nothing; write a share below 100%")
    return found


def seconds(value: object) -> float:
    """A time with its unit: 500ms. [s]"""
    return _above(parse_quantity(_unpadded(value, "500ms"), "s"), value, "500ms")


def size(value: object) -> float:
    """A size with its unit: 80 GB, 128 KiB. [B]"""
    return _above(parse_quantity(_unpadded(value, "80 GB"), "B"), value, "80 GB")


def _above(found: float, value: object, example: str) -> float:
    if found <= 0:
        raise ValueError(f"{value} is nothing; write it like {example}")
    return found


def dollars(value: object) -> float:
    """US dollars: 2.5. [USD]"""
    return _number(value, "2.5", MOST_DOLLARS)


def number(value: object) -> float:
    """A plain number above 0."""
    return _number(value, "1500", MOST_RATE)


def percentile(value: object) -> float:
    """A percentile: 90."""
    found = _number(value, "90", 100)
    if found >= 100:  # noqa: PLR2004 - per cent
        raise ValueError("100 has nothing above it; write it like 90 or 99.9")
    return found


def truth(value: object) -> bool:
    """True or false; YAML 1.1 takes yes, no, on and off for them too, and 1.2 does not."""
    written = text(value)
    if written not in {"true", "false"}:
        raise ValueError(f"{written!r} is neither; write true or false")
    return written == "true"


def link(value: object) -> float:
    """A link's bandwidth: 400 Gbit/s. [B/s]"""
    written = _unpadded(value, "400 Gbit/s")
    try:
        return options.link_bandwidth(written) or 0.0
    except UnitError as error:
        raise ValueError(str(error).removeprefix("--network ")) from error


def one_of(known: Collection[str], what: str) -> Callable[[object], str]:
    """A reader of names of a table."""

    def read(value: object) -> str:
        written = text(value)
        if written not in known:
            near = nearest(written.lower(), known, 1)
            hint = f"nearest: {near[0]}; " if near else ""
            raise ValueError(f"no {what} {written!r}; {hint}known: {', '.join(known)}")
        return written

    return read


@cache
def _accelerator(name: str) -> str | None:
    """What is wrong with the name of an accelerator; None where nothing is."""
    from roofcast.hwdb.lookup import UnknownAcceleratorError, find_accelerator

    try:
        find_accelerator(name)
    except UnknownAcceleratorError as error:
        return str(error)
    return None


def gpu(value: object) -> str:
    """The name of an accelerator; or several, in a list or between commas, or all, for what may be about several.

    Raises:
        ValueError: nothing goes by a name.
    """
    if value == ALL:
        return ALL
    written = [text(name) for name in value] if isinstance(value, list) and value else text(value).split(",")
    names = dict.fromkeys(name.strip() for name in written)
    problem = next(filter(None, map(_accelerator, names)), None)
    if problem:
        raise ValueError(problem)
    return ",".join(names)


def weights(value: object) -> str:
    """A format of weights."""
    from roofcast.modelspec.requested import find_requested

    written = text(value)
    find_requested(written)
    return written


def cache_format(value: object) -> str:
    """A format of the cache."""
    from roofcast.modelspec.formats import find_format

    written = text(value)
    find_format(written)
    return written


def flags(value: object) -> Flags:
    """The engine's own flags, by their names.

    Raises:
        ValueError: no mapping, a flag that no engine has, a value that cannot be.
    """
    if not isinstance(value, dict):
        raise ValueError("must map the engine's flags to values, such as {max_model_len: 8k}")  # noqa: TRY004 - likewise
    written: dict[str, object] = {}
    for name, found in value.items():
        if name == "engine_version" or name not in OPTIONS:
            near = nearest(name, OPTIONS, 1)
            own = "write it as a field of the rule" if name in OPTIONS else "roofcast fit --help lists them"
            hint = f"did you mean {near[0]}?" if near and name not in OPTIONS else own
            raise ValueError(f"{name[:80]} is no flag of an engine; {hint}")
        written[name] = truth(found) if OPTIONS[name].kind == "switch" else _unpadded(found, "8k")
    try:
        return read_flags(written, {})
    except (UsageError, UnitError) as error:
        raise ValueError(in_fields(str(error))) from error


def in_fields(message: str) -> str:
    """A message with fields of a rule in the place of options of the command line.

    >>> in_fields("3 GPUs cannot share 32/8 heads; --tp must be 1 or 2, see --max-model-len")
    '3 GPUs cannot share 32/8 heads; tp must be 1 or 2, see max_model_len'
    """
    return re.sub(
        r"--(?!(?:efficiency|offline|baseline|update)\b)([a-z][a-z0-9-]+)",
        lambda match: match[1].replace("-", "_"),
        message,
    )


#: how a quantity writes its limit -> what reads it
LIMITS: Final[Mapping[str, Callable[[object], float]]] = {
    "count": tokens, "bytes": size, "seconds": seconds, "number": number, "dollars": dollars,
}  # fmt: skip

Json = dict[str, Any]
_COUNT: Final[Json] = {
    "anyOf": [{"type": "integer", "minimum": 1}, {"type": "string", "pattern": r"^[0-9]+(\.[0-9]+)?[kKmM]?$"}]
}
_SHARE: Final[Json] = {
    "anyOf": [{"type": "number", "minimum": 0, "maximum": 1}, {"type": "string", "pattern": r"^[0-9.]+ ?%?$"}]
}
_SECONDS: Final[Json] = {"type": "string", "pattern": "^[0-9.,]+ ?(h|min|s|ms|us|ns)$", "examples": ["500ms", "20 ms"]}
_SIZE: Final[Json] = {"type": "string", "pattern": "^[0-9.,]+ ?[kKMGTP]?i?B$", "examples": ["80 GB", "128 KiB"]}
_POSITIVE: Final[Json] = {"type": "number", "exclusiveMinimum": 0}
#: how a quantity writes its limit -> its JSON Schema
LIMIT_SCHEMAS: Final[Mapping[str, Json]] = {
    "count": _COUNT, "bytes": _SIZE, "seconds": _SECONDS, "number": _POSITIVE, "dollars": _POSITIVE,
}  # fmt: skip
_TEXT: Final[Json] = {"type": "string", "minLength": 1, "maxLength": LONGEST}
_LOOSE: Final[Json] = {"type": ["string", "number"]}
#: kind of a field -> what reads it, and its JSON Schema for editors
KINDS: Final[Mapping[str, tuple[Callable[[object], object], Json]]] = {
    "text": (text, _TEXT),
    "loose": (text, _LOOSE),
    "count": (tokens, _COUNT),
    "share": (share, _SHARE),
    "part": (part, _SHARE),
    "dollars": (dollars, _POSITIVE),
    "number": (number, _POSITIVE),
    "seconds": (seconds, _SECONDS),
    "percentile": (percentile, {"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 100}),
    "link": (link, {"type": "string", "examples": ["400 Gbit/s", "50 GB/s"]}),
    "quantity": (one_of(tuple(QUANTITIES), "quantity"), {"enum": list(QUANTITIES)}),
    "engine": (one_of(ENGINES, "engine"), {"enum": list(ENGINES)}),
    "basis": (one_of(BASES, "basis"), {"enum": list(BASES)}),
    "of": (one_of(tuple(TOKENS), "kind of token"), {"enum": list(TOKENS)}),
    "gpu": (gpu, {"anyOf": [_TEXT, {"type": "array", "minItems": 1, "uniqueItems": True, "items": _TEXT}]}),
    "weights": (weights, _TEXT),
    "kv": (cache_format, _TEXT),
    "flags": (flags, {"type": "object"}),
    "limit": (text, {}),
}
