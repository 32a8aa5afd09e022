"""Laws of weight files, whatever tensors they hold."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roofcast.modelspec.errors import ModelError
from roofcast.modelspec.stored import parameter_elements
from roofcast.modelspec.strictjson import read_object
from roofcast.modelspec.weights import DTYPE_BITS, Tensor, collect, header_length, parse_header, summarise
from tests.hub_server import header, safetensors

FLOATS = ("F64", "F32", "F16", "BF16")
NAMES = st.text(min_size=1, max_size=12).filter(lambda name: name != "__metadata__")
# The first size is even times 8, so that elements of 4 and 6 bits fill whole bytes too.
SHAPES = st.lists(st.integers(0, 40), max_size=4).map(lambda shape: [8, *shape])
TENSORS = st.dictionaries(NAMES, st.tuples(st.sampled_from(sorted(DTYPE_BITS)), SHAPES), max_size=8)
PLAIN = st.dictionaries(NAMES.map("w.{}.weight".format), st.tuples(st.sampled_from(FLOATS), SHAPES), min_size=1).filter(
    lambda tensors: any(math.prod(shape) for _, shape in tensors.values())  # some weight at all
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@given(TENSORS)
def test_a_header_gives_back_what_was_written(tensors: dict[str, tuple[str, list[int]]]) -> None:
    """Names, dtypes and shapes come back, and the bytes of the tensors are those of the file after its header."""
    file = safetensors(tensors)
    length = header_length(file.start, "x", file.size)
    data = file.size - 8 - length

    read = parse_header(file.start[8 : 8 + length], "x", data)

    assert {t.name: (t.dtype, list(t.shape)) for t in read} == tensors
    assert sum(t.bytes for t in read) == data


@given(TENSORS, st.integers(1, 1000))
def test_a_file_of_another_size_is_never_taken(tensors: dict[str, tuple[str, list[int]]], more: int) -> None:
    """Bytes that the header does not describe are refused, however many."""
    file = safetensors(tensors)

    with pytest.raises(ModelError):
        parse_header(file.start[8:], "x", file.size - len(file.start) + more)


@given(PLAIN, st.integers(1, 5))
def test_how_tensors_are_spread_over_shards_changes_nothing(
    tensors: dict[str, tuple[str, list[int]]], shards: int
) -> None:
    """Elements, bytes and parameters are sums over tensors, in however many files."""
    held = [Tensor(n, d, tuple(s)) for n, (d, s) in tensors.items()]
    whole = collect({"all": tuple(held)}, "x")
    spread = collect({str(i): tuple(held[i::shards]) for i in range(shards)}, "x")

    assert (spread.elements, spread.bytes) == (whole.elements, whole.bytes)
    assert parameter_elements(spread) == parameter_elements(whole) == sum(math.prod(s) for _, s in tensors.values())


@given(PLAIN)
def test_a_summary_and_the_headers_agree(tensors: dict[str, tuple[str, list[int]]]) -> None:
    """Elements by dtype alone give the same bytes and parameters as the headers they were counted from."""
    read = collect({"all": tuple(Tensor(n, d, tuple(s)) for n, (d, s) in tensors.items())}, "x")
    short = summarise(read.elements, "hub summary")

    assert (short.bytes, parameter_elements(short)) == (read.bytes, parameter_elements(read))


@given(st.binary(max_size=200))
def test_any_bytes_are_a_header_or_one_line(data: bytes) -> None:
    """No bytes at all make the reader fail in another way than its own errors, on one line of ASCII names."""
    message = ""
    try:
        length = header_length(data, "x", len(data))
        parse_header(data[8 : 8 + length], "x", len(data) - 8 - length)
    except ModelError as error:
        message = str(error)

    assert message.isascii()
    assert message.isprintable()


@given(JSON)
def test_any_json_is_a_header_or_one_line(value: object) -> None:
    """No JSON at all makes the reader fail in another way than its own errors."""
    for text in (json.dumps(value), json.dumps({"w": value}), json.dumps({"w": {"dtype": "F32", "shape": value}})):
        message = ""
        try:
            parse_header(text.encode(), "x")
        except ModelError as error:
            message = str(error)

        assert message.isascii()
        assert message.isprintable()


@given(st.dictionaries(st.text(max_size=8), JSON, max_size=5))
def test_an_object_is_read_as_it_was_written(value: dict[str, object]) -> None:
    """Whatever a JSON object holds comes back, NaN included."""
    assert repr(read_object(json.dumps(value).encode(), "x")) == repr(value)


@given(TENSORS)
def test_a_header_without_its_data_tells_the_same(tensors: dict[str, tuple[str, list[int]]]) -> None:
    """Headers kept without data are read like whole files."""
    text = header(tensors)[8:]

    assert parse_header(text, "x", 0) == parse_header(text, "x")
