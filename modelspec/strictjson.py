"""JSON from strangers: one object out of bytes, or one line that says what is wrong with them."""

from __future__ import annotations

import json
from typing import Any, Final

from roofcast.modelspec.errors import MalformedModelError

_KINDS: Final[dict[type, str]] = {list: "a list", dict: "an object", str: "a string"}
_SHOWN: Final = 80  # characters of a stranger's text that an error message repeats


def read_object(data: bytes, where: str, *, unique: bool = False) -> dict[str, Any]:
    """Return the JSON object that the bytes hold; NaN and Infinity are taken, as some published files have them.

    Args:
        data: UTF-8 text, with or without a byte order mark.
        where: what is read, as the message names it.
        unique: refuse every repeated key; else only one that comes back with another value.

    Raises:
        MalformedModelError: it is not UTF-8, not JSON, nested too deeply, or no object.

    >>> read_object(b'{"hidden_size": 4096}', "config.json")
    {'hidden_size': 4096}
    >>> read_object(b"[]", "config.json")
    Traceback (most recent call last):
    roofcast.modelspec.errors.MalformedModelError: config.json: holds a list; it must be a JSON object
    """

    def pairs(items: list[tuple[str, Any]]) -> dict[str, Any]:
        entries = dict(items)
        if len(entries) < len(items):
            _refuse_repeats(items, where, unique=unique)
        return entries

    try:
        found = json.loads(data.decode("utf-8-sig"), object_pairs_hook=pairs)
    except MalformedModelError:
        raise
    except UnicodeDecodeError as error:
        msg = f"{where}: not UTF-8 text (byte {error.start}); it must be a JSON object"
        raise MalformedModelError(msg) from error
    except RecursionError as error:
        msg = f"{where}: nested too deeply to be read"
        raise MalformedModelError(msg) from error
    except ValueError as error:
        msg = f"{where}: not JSON ({_what_instead(data, error)}); it must be a JSON object"
        raise MalformedModelError(msg) from error
    if not isinstance(found, dict):
        msg = f"{where}: holds {kind_of(found)}; it must be a JSON object"
        raise MalformedModelError(msg)
    return found


def kind_of(value: object) -> str:
    """Name the kind of a JSON value.

    >>> kind_of([1]), kind_of(None), kind_of(True)
    ('a list', 'null', 'true')
    """
    if value is None or isinstance(value, bool):
        return json.dumps(value)
    return _KINDS.get(type(value), "a number")


def quoted(text: str) -> str:
    r"""Quote a stranger's text for an error message: one line, ASCII, not too long.

    >>> print(quoted("a\nb"), quoted("x" * 100)[-5:])
    'a\nb' x'...
    """
    shown = json.dumps(text)[1:-1].replace('\\"', '"')
    return f"'{shown}'" if len(shown) <= _SHOWN else f"'{shown[:_SHOWN]}'..."


def plain(name: str) -> str:
    r"""Return a stranger's name as it is, quoted only where it is long or cannot be printed.

    >>> print(plain("model.safetensors"), plain("a\nb"))
    model.safetensors 'a\nb'
    """
    return name if name.isprintable() and len(name) <= _SHOWN else quoted(name)


def _refuse_repeats(items: list[tuple[str, Any]], where: str, *, unique: bool) -> None:
    first: dict[str, Any] = {}
    for key, value in items:
        if key in first and (unique or repr(first[key]) != repr(value)):
            msg = f"{where}: the key {quoted(key)} occurs twice; it must occur once"
            raise MalformedModelError(msg)
        first.setdefault(key, value)


def _what_instead(data: bytes, error: ValueError) -> str:
    text = data.lstrip()
    if not text:
        return "it is empty"
    if text.startswith(b"<"):
        return "it looks like an HTML page"
    if text.startswith(b"version https://git-lfs"):
        return "it is a Git LFS pointer; fetch the file with `git lfs pull`"
    if not isinstance(error, json.JSONDecodeError):  # int() takes no more digits than sys.get_int_max_str_digits()
        return "a number in it has thousands of digits"
    return str(error).partition("\n")[0]


def short(value: object) -> str:
    """A value as an error shows it: on one line and not longer than a line bears."""
    text = repr(value).replace("\n", " ")
    return text if len(text) <= 40 else text[:37] + "..."  # noqa: PLR2004
