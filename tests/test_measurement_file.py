"""Files of measured points: our own schema, what kind a file is, and files that are broken or hostile."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from roofcast.calculators.bench_own import FIELDS, SCHEMA, measurements_schema
from roofcast.calculators.measurement import MeasurementFileError
from roofcast.calculators.measurement_file import KINDS, LARGEST, decode, read_measurements

FOLDER = Path(__file__).parent / "fixtures" / "benchmarks"
FILES = sorted(path for path in FOLDER.iterdir() if path.name != "README.md")
WRONG: tuple[Any, ...] = ([], {}, "x", None, -1, 1e400, 10**400, True, [{}])
POINT = {"quantity": "decode_seconds", "value": 0.01, "model": "llama-3-8b", "gpu": "h100"}


def read(name: str) -> Any:
    """A fixture's reading."""
    return read_measurements(decode((FOLDER / name).read_bytes(), name), name)


def own(**changed: Any) -> str:
    """A file of one point with these fields changed."""
    return json.dumps({"schema": SCHEMA, "points": [{**POINT, **changed}]})


def problem(text: str) -> str:
    """The one line that says what is wrong with a file."""
    with pytest.raises(MeasurementFileError) as caught:
        read_measurements(text, "f.json")
    line = str(caught.value)
    assert line.startswith("f.json: ")
    assert line.isprintable()
    assert len(line) < 500
    return line.removeprefix("f.json: ")


def test_yaml_with_defaults() -> None:
    """What all points share is stated once; names of engines are ours, and a date of YAML is one."""
    decode_point, prefill = read("own.yaml").points

    assert (decode_point.value, decode_point.weights, decode_point.prompt) == (0.0182, "fp16", 0)
    assert (decode_point.engine, decode_point.engine_version, decode_point.date) == ("llama.cpp", "b5163", "2025-04-24")
    assert (prefill.low, prefill.high, prefill.source) == (0.09, 0.12, "https://example.org/bench")


def test_csv() -> None:
    """Cells are read as the field's kind; empty ones are not stated."""
    first, second = read("own.csv").points

    assert (first.engine, first.batch, first.prompt, first.notes) == ("vllm", 16, 1024, "8k, of which 1k")
    assert (second.quantity, second.notes) == ("output_tokens_per_second", None)


def test_profile() -> None:
    """Of our own profiles the points are read, whatever else they hold."""
    reading = read("profile.json")

    assert reading.kind == "roofcast profile"
    assert (reading.points[0].gpu, reading.points[0].source) == ("NVIDIA H200", "profile.json")


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_every_file_is_known_by_what_it_holds(path: Path) -> None:
    """Its name does not matter, nor CRLF, a byte order mark, or UTF-16 as PowerShell writes it."""
    data = path.read_bytes()
    reading = read_measurements(decode(data, "x"), "x")
    text = data.decode().replace("\n", "\r\n")

    assert reading.points
    assert read_measurements(decode(text.encode("utf-8-sig"), "x"), "x") == reading
    assert read_measurements(decode(text.encode("utf-16"), "x"), "x") == reading


def test_schema_is_json_schema_of_the_files() -> None:
    """It takes what the reader takes, and refuses an unknown key; every field has a description."""
    schema = measurements_schema()
    jsonschema.Draft202012Validator.check_schema(schema)

    jsonschema.validate(json.loads(own()), schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(json.loads(own(gpuu="h100")), schema)
    properties = schema["properties"]["points"]["items"]["properties"]
    assert [properties[name]["description"] for name in FIELDS] == [field.meaning for field in FIELDS.values()]


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"valeu": 1}, "point 1: 'valeu' is no field; nearest: value"),
        ({"value": 0}, "point 1: value is 0; it must be above 0"),
        ({"value": -1}, "point 1: value is -1; it must be a number, 0 or more"),
        ({"value": "fast"}, "point 1: value is 'fast'; it must be a number, 0 or more"),
        ({"value": True}, "point 1: value is True; it must be a number, 0 or more"),
        ({"value": None}, "point 1: value is missing; every point needs quantity, value, model, gpu"),
        ({"value": float("nan")}, "point 1: value is nan; it must be a number, 0 or more"),
        ({"value": float("inf")}, "point 1: value is inf; it must be a number, 0 or more"),
        (
            {"value": 10**400},
            "point 1: value is 1000000000000000000000000000000000000...; it must be at most 1e+15",
        ),
        ({"batch": 1.5}, "point 1: batch is 1.5; it must be a whole number, 1 or more"),
        ({"batch": 0}, "point 1: batch is 0; it must be a whole number, 1 or more"),
        ({"gpu": ["h100"]}, "point 1: gpu is ['h100']; it must be a name"),
        ({"gpu": " "}, "point 1: gpu is ' '; it must be a name"),
        ({"model": "a\u001b[31m"}, r"point 1: model is 'a\x1b[31m'; it must be one line of at most 1,000 characters"),
        ({"engine_version": 0.1}, "point 1: engine_version is 0.1; write it in quotes"),
        ({"date": "24.4.2025"}, "point 1: date is '24.4.2025'; write it like 2025, 2025-04 or 2025-04-24"),
        ({"date": "2025-13"}, "point 1: date is '2025-13'; write it like 2025, 2025-04 or 2025-04-24"),
        ({"cached": 5}, "point 1: cached is 5; it must be less than prompt"),
        ({"low": 0.02, "high": 0.03}, "point 1: value is 0.01; it must lie between low and high"),
    ],
)
def test_a_wrong_field_is_named(changed: dict[str, Any], said: str) -> None:
    """File, point, key, what it is and what it must be."""
    assert problem(own(**changed)) == said


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        (
            {"quantity": "decode_second"},
            "quantity is 'decode_second'; nearest: decode_seconds; known: decode_seconds, ",
        ),
        ({"weights": "q4_k_n"}, "weights: no format 'q4_k_n'; nearest: q4_k_"),
        ({"kv": "fp7"}, "kv: no format 'fp7'; nearest: fp8"),
    ],
)
def test_a_wrong_name_gets_the_nearest(changed: dict[str, Any], said: str) -> None:
    """Quantities and formats that are not known."""
    assert problem(own(**changed)).startswith(f"point 1: {said}")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "empty; it must be of: roofcast measurements"),
        ("hello", "not recognised; it must be of: roofcast measurements"),
        ("<!DOCTYPE html><p>", "an HTML page; it must be of: "),
        ("CREATE TABLE IF NOT EXISTS llama_bench (\n", "SQL, which llama-bench -o json is without; it must be of: "),
        ("{}", "not recognised; it must be of: "),
        ("[1, 2]", "not recognised; it must be of: "),
        ("[" * 100_000, "nested too deeply to be read"),
        ('{"a": ' * 100_000, "nested too deeply to be read"),
        ('{"schema": "roofcast.measurements/1", "points": [', "not JSON (Expecting value: line 1 column 50 (char 49)); was it cut short?"),
        ('{"a": 1' + "0" * 5000 + "}", "not JSON (a number in it has thousands of digits)"),
        ('{"a": 1, "a": 2}', "the key 'a' occurs twice; it must occur once"),
        ('{"schema": "roofcast.measurements/9", "points": []}', "schema is 'roofcast.measurements/9'; this version reads roofcast.measurements/1"),
        ('{"schema": "roofcast.kv/1"}', "schema is 'roofcast.kv/1'; measured points have roofcast.measurements/1"),
        ('{"schema": 7}', "schema is 7; measured points have roofcast.measurements/1"),
        ('{"schema": "roofcast.measurements/1"}', "points is missing; it must be a list of at least one point"),
        ('{"schema": "roofcast.measurements/1", "points": []}', "points is empty; it must be a list of at least one point"),
        ('{"schema": "roofcast.measurements/1", "points": [7]}', "point 1 is a number; it must be an object of fields"),
        ('{"schema": "roofcast.measurements/1", "point": []}', "'point' is no field; nearest: points"),
        ('{"schema": "roofcast.measurements/1", "defaults": [], "points": [{}]}', "defaults is a list; it must be an object of fields"),
        ("schema: roofcast.measurements/1\npoints: &a [*a]\n", "not readable as YAML, line 2: points has an anchor (&)"),
        ("schema: roofcast.measurements/1\npoints: !!python/none\n", "not readable as YAML, line 2: points has a tag"),
        ("schema: roofcast.measurements/1\npoints: [\n", "not readable as YAML, line 3"),
        ("quantity,value\ndecode_seconds,1,2\n", "row 1 has more cells than the first row has names; quote cells with commas"),
        ("quantity,value\n", "points is empty; it must be a list of at least one point"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_file(text: str, said: str) -> None:
    """One line, whatever the file holds."""
    assert problem(text).startswith(said)


def test_kinds_are_named_where_a_file_is_of_none() -> None:
    """The error lists what can be read."""
    assert all(kind in problem("hello") for kind in KINDS)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"\x7fELF\x02\x01\x01\xff", "no text (byte 7 is 0xff); it must be JSON, CSV, YAML or Markdown"),
        (b"GGUF\0\0", "no text (it holds NUL); it must be JSON, CSV, YAML or Markdown"),
        (b" " * (LARGEST + 1), "is larger than 256 MB; save it without single requests"),
    ],
)
def test_bytes_that_are_no_text(data: bytes, said: str) -> None:
    """Binary files, and those without end."""
    with pytest.raises(MeasurementFileError) as caught:
        decode(data, "f")
    assert str(caught.value) == f"f: {said}"


@pytest.mark.parametrize("unit", ["| a | b |\n", "a,b\n", "x" * 1000 + "\n", "schema: roofcast.x\n", "[[]]\n"])
def test_long_nonsense_is_refused(unit: str) -> None:
    """Megabytes of nothing are read once, and end in one line."""
    problem(unit * (4_000_000 // len(unit)))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_a_file_cut_anywhere_is_read_or_refused(path: Path) -> None:
    """A file that is cut short never ends in any other error."""
    text = path.read_text()
    for end in range(0, len(text), max(1, len(text) // 60)):
        try:
            assert read_measurements(text[:end], "f").points
        except MeasurementFileError as error:
            assert str(error).startswith("f: ")  # noqa: PT017 - either may happen


@pytest.mark.parametrize("path", [path for path in FILES if path.suffix == ".json"], ids=lambda path: path.name)
def test_a_file_with_one_wrong_value_is_read_or_refused(path: Path) -> None:
    """Wherever a list, a text, null, a negative number or NaN stands, it is one line or does not matter."""
    found = json.loads(path.read_text())
    places = list(leaves(found))
    for place in places if len(places) < 60 else random.Random(1).sample(places, 60):  # noqa: S311
        for wrong in WRONG:
            changed = json.loads(path.read_text())
            put(changed, place, wrong)
            try:
                for point in read_measurements(json.dumps(changed), "f").points:
                    assert 0 < point.value < 1e15
            except MeasurementFileError as error:
                assert str(error).startswith("f: ")  # noqa: PT017 - either may happen
                assert "\n" not in str(error)  # noqa: PT017


def leaves(value: Any, place: tuple[Any, ...] = ()) -> Any:
    """Places of all that is neither list nor object, and of those."""
    if place:
        yield place
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield from leaves(inner, (*place, key))


def put(value: Any, place: tuple[Any, ...], wrong: Any) -> None:
    """Puts something else there."""
    for key in place[:-1]:
        value = value[key]
    value[place[-1]] = wrong
