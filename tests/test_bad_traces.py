"""Bad traces: each is refused in one line that names the file, the line and the column."""

from __future__ import annotations

import io
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roofcast.calculators.errors import UsageError
from roofcast.calculators.serving import trace as traces
from roofcast.calculators.serving.trace import LONGEST_LINE, read_trace, trace_lines
from roofcast.calculators.serving.trace_rows import MOST_TOKENS

if TYPE_CHECKING:
    from roofcast.calculators.serving.job import Job

OWN_HEADER = "arrival_seconds,prompt_tokens,output_tokens"
HASHED = f"{OWN_HEADER},prefix_hashes"
AZURE_HEADER = "TIMESTAMP,ContextTokens,GeneratedTokens"
BURSTGPT_HEADER = "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type"


def jobs_of(text: str) -> list[Job]:
    """The requests of a trace's text."""
    return list(read_trace(text.splitlines(keepends=True), "x.csv"))


def complaint(text: str) -> str:
    """What is said of a bad trace."""
    with pytest.raises(UsageError) as caught:
        jobs_of(text)
    return str(caught.value)


def answer(text: str) -> list[Job] | str:
    """The requests of a trace, or what is said of it."""
    try:
        return jobs_of(text)
    except UsageError as error:
        return str(error)


ROWS = {
    "unsorted": (f"{OWN_HEADER}\n5,1,1\n3,1,1\n", "line 3: arrival_seconds is 2 s before the row above"),
    "unsorted dates": (
        f"{AZURE_HEADER}\n2023-11-16 18:17:04.5,1,1\n2023-11-16 18:17:03.0,1,1\n",
        "line 3: TIMESTAMP is 1.5 s before the row above",
    ),
    "unsorted days": (
        f"{AZURE_HEADER}\n2023-11-16 18:17:04,1,1\n2023-11-15 18:17:04,1,1\n",
        "line 3: TIMESTAMP is 86400 s before the row above",
    ),
    "negative time": (f"{OWN_HEADER}\n-1,1,1\n", "line 2: arrival_seconds is '-1'; a time cannot be negative"),
    "NaN": (f"{OWN_HEADER}\n0,1,1\nnan,1,1\n", "line 3: arrival_seconds is 'nan'; it must be a number"),
    "infinite": (f"{OWN_HEADER}\ninf,1,1\n", "line 2: arrival_seconds is 'inf'; it must be a number"),
    "very late": (f"{OWN_HEADER}\n1e300,1,1\n", "line 2: arrival_seconds is '1e300'; no time is so late"),
    "no number": (f"{OWN_HEADER}\nnow,1,1\n", "line 2: arrival_seconds is 'now'; it must be a number"),
    "no date": (f"{AZURE_HEADER}\n17,1,1\n", "line 2: TIMESTAMP is '17'; it must be a date with a time"),
    "grouped digits": (f"{OWN_HEADER}\n0,1_000,1\n", "line 2: prompt_tokens is '1_000'; it must be a whole number"),
    "grouped time": (f"{OWN_HEADER}\n1_0,1,1\n", "line 2: arrival_seconds is '1_0'"),
    "negative tokens": (f"{OWN_HEADER}\n0,-5,1\n", "line 2: prompt_tokens is -5; tokens cannot be negative"),
    "half a token": (f"{OWN_HEADER}\n0,5.5,1\n", "line 2: prompt_tokens is '5.5'; it must be a whole number"),
    "NaN tokens": (f"{OWN_HEADER}\n0,nan,1\n", "line 2: prompt_tokens is 'nan'; it must be a whole number"),
    "infinite tokens": (f"{OWN_HEADER}\n0,inf,1\n", "line 2: prompt_tokens is 'inf'; a request has at most"),
    "text": (f"{OWN_HEADER}\n0,1,many\n", "line 2: output_tokens is 'many'; it must be a whole number"),
    "huge": (f"{OWN_HEADER}\n0,{MOST_TOKENS + 1},1\n", "line 2: prompt_tokens is 1073741825; a request has at most"),
    "thousands of digits": (f"{OWN_HEADER}\n0,{'9' * 5000},1\n", "a request has at most 1,073,741,824 tokens"),
    "zero prompt": (f"{OWN_HEADER}\n0,0,1\n", "line 2: prompt_tokens is 0; a request has 1 token or more"),
    "zero output": (
        f"{AZURE_HEADER}\n2023-11-16 18:17:04.5,1,0\n",
        "line 2: GeneratedTokens is 0; a request has 1 token or more",
    ),
    "missing cell": (f"{OWN_HEADER}\n0,1\n", "line 2 has 2 cells, the header 3: output_tokens is missing"),
    "empty cell": (f"{OWN_HEADER}\n0,,1\n", "line 2: prompt_tokens is empty"),
    "empty time": (f"{OWN_HEADER}\n,1,1\n", "line 2: arrival_seconds is empty"),
    "more cells": (f"{OWN_HEADER}\n0,1,024,1\n", "line 2 has 4 cells, the header 3; numbers have no commas"),
    "open quote": (f'{OWN_HEADER}\n0,"1,1\n', "line 2 is no row of CSV"),
    "missing column": ("TIMESTAMP,ContextTokens\n", "column GeneratedTokens is missing; known headers are"),
    "a column twice": (f"{OWN_HEADER},prompt_tokens\n0,1,1,2\n", "column prompt_tokens is there twice"),
    "no header": ("0,1,1\n", "its first line, '0,1,1', is no header of a trace; known are arrival_seconds,"),
    "semicolons": ("TIMESTAMP;ContextTokens\n", "is no header of a trace; put commas between cells; known are"),
    "empty": ("", "x.csv: it is empty; a trace begins with a header such as arrival_seconds,"),
    "blank": (" \n\n", "x.csv: it is empty"),
    "header only": (f"{OWN_HEADER}\n\n", "it has no request to serve; there is no row below the header"),
    "only failures": (f"{BURSTGPT_HEADER}\n1,GPT-4,3,0,3,API log\n", "no request to serve; each of the 1 in it failed"),
    "negative failure": (f"{BURSTGPT_HEADER}\n1,GPT-4,-3,0,3,API log\n", "line 2: Request tokens is -3; tokens cannot"),
    "hashes of words": (
        f"{HASHED}\n0,40,1,1 b 3\n",
        "line 2: prefix_hashes has 'b'; ids of blocks must be whole numbers",
    ),
    "grouped hashes": (f"{HASHED}\n0,40,1,1_0\n", "line 2: prefix_hashes has '1_0'; ids of blocks must be whole"),
    "more hashes": (f"{HASHED}\n0,40,1,1 2 3 4\n", "prefix_hashes has 4 ids, but 40 tokens are 3 blocks of 16"),
    "an array": ("[1, 2]\n", "it is one JSON array; a trace in JSON has an object a line"),
    "other keys": ('{"a": 1}\n', "line 1 is no row of a trace: it has none of its keys; known are"),
}


@pytest.mark.parametrize(("text", "said"), ROWS.values(), ids=ROWS.keys())
def test_bad_rows(text: str, said: str) -> None:
    """What is wrong is said in one line with the file, the line and the column."""
    found = complaint(text)

    assert said in found
    assert found.startswith("x.csv: ")
    assert "\n" not in found
    assert len(found) < 500


def mooncake(**fields: str) -> str:
    """A row of Mooncake's in which some values are others, as JSON; an empty one is left out."""
    row = {"timestamp": "0", "input_length": "600", "output_length": "9", "hash_ids": "[1, 2]"} | fields
    return "{" + ", ".join(f'"{key}": {value}' for key, value in row.items() if value) + "}"


OBJECTS = {
    "unsorted": (mooncake(timestamp="5") + "\n" + mooncake(), "line 2: timestamp is 0.005 s before the row above"),
    "negative time": (mooncake(timestamp="-1"), "line 1: timestamp is -1; a time cannot be negative"),
    "NaN": (mooncake(timestamp="NaN"), "line 1: timestamp is nan; it must be a number that is not negative"),
    "infinite": (mooncake(timestamp="Infinity"), "line 1: timestamp is inf; it must be a number"),
    "huge time": (mooncake(timestamp="9" * 400), "line 1: timestamp is 9999"),
    "true": (mooncake(timestamp="true"), "line 1: timestamp is True; it must be a number"),
    "text for a time": (mooncake(timestamp='"now"'), "line 1: timestamp is 'now'; it must be a number"),
    "null": (mooncake(input_length="null"), "line 1: input_length is empty"),
    "text for tokens": (mooncake(input_length='"many"'), "line 1: input_length is 'many'; it must be a whole number"),
    "true tokens": (mooncake(output_length="true"), "line 1: output_length is True; it must be a whole number"),
    "a list": (mooncake(output_length="[1]"), "line 1: output_length is [1]; it must be a whole number"),
    "zero": (mooncake(output_length="0"), "line 1: output_length is 0; a request has 1 token or more"),
    "negative": (mooncake(input_length="-600"), "line 1: input_length is -600; tokens cannot be negative"),
    "huge": (mooncake(input_length="9" * 400), "line 1: input_length is 9999"),
    "beyond measure": (mooncake(input_length="9" * 5000), "line 1 is no JSON (a number or nesting beyond all measure)"),
    "missing": (mooncake() + "\n" + mooncake(output_length=""), "line 2: output_length is missing"),
    "missing time": (mooncake(timestamp=""), "line 1: timestamp is missing"),
    "no hashes later": (mooncake() + "\n" + mooncake(hash_ids=""), "line 2: hash_ids is missing"),
    "too few hashes": (mooncake(hash_ids="[1]"), "line 1: hash_ids has 1 ids, but 600 tokens are 2 blocks of 512"),
    "too many hashes": (mooncake(hash_ids="[1, 2, 3]"), "hash_ids has 3 ids, but 600 tokens are 2 blocks of 512"),
    "hashes of text": (mooncake(hash_ids='[1, "b"]'), "hash_ids has 'b'; ids of blocks must be whole numbers"),
    "hashes of fractions": (mooncake(hash_ids="[1, 2.5]"), "hash_ids has 2.5; ids of blocks must be whole numbers"),
    "hashes of truth": (mooncake(hash_ids="[1, true]"), "hash_ids has True; ids of blocks must be whole numbers"),
    "one hash": (mooncake(hash_ids="7"), "hash_ids is 7; it must be a list of whole numbers"),
    "an array later": (mooncake() + "\n[1]\n", "line 2 is no JSON object but '[1]'"),
    "half a row": (mooncake() + '\n{"timestamp": 3, "inp', "line 2 is no JSON"),
    "deep": (mooncake() + "\n" + "[" * 100_000, "line 2 is no JSON (a number or nesting beyond all measure)"),
}


@pytest.mark.parametrize(("text", "said"), OBJECTS.values(), ids=OBJECTS.keys())
def test_bad_objects(text: str, said: str) -> None:
    """The same of JSON lines."""
    found = complaint(text)

    assert said in found
    assert found.startswith("x.csv: ")
    assert "\n" not in found
    assert len(found) < 500


SAMPLES = [
    f"{AZURE_HEADER}\n2023-11-16 18:17:03.9799600,4808,10\n2023-11-16 18:18:04.0319600+00:00,3180,8\n",
    f"{HASHED}\n0,40,1,1 2 3\n1.5,17,2,1 2\n",
    f"{BURSTGPT_HEADER}\n5,ChatGPT,472,18,490,Conversation log\n45,GPT-4,0,0,0,API log\n",
    mooncake() + "\n" + mooncake(timestamp="7", hash_ids="[1, 3]") + "\n",
]
JUNK = st.one_of(
    st.text(max_size=5),
    st.sampled_from(
        ["-", "_", ",", '"', "\n", "\r", "nan", "inf", "1e999", "9" * 30, ".5", "\N{ARABIC-INDIC DIGIT FIVE}", "\ufeff"]
    ),
)


@given(
    st.sampled_from(SAMPLES), st.lists(st.tuples(st.integers(0, 300), st.integers(0, 6), JUNK), min_size=1, max_size=4)
)
def test_damaged_traces(text: str, damages: list[tuple[int, int, str]]) -> None:
    """Whatever is damaged, a trace is read as requests in order that can be, or refused in one line."""
    for at, cut, junk in damages:
        text = text[:at] + junk + text[at + cut :]
    jobs = answer(text)

    if isinstance(jobs, str):
        assert jobs.startswith("x.csv: ")
        assert len(jobs) < 1000
        return
    assert jobs
    assert jobs[0].arrival == 0
    assert all(before.arrival <= after.arrival <= 1e12 for before, after in pairwise(jobs))
    assert all(1 <= tokens <= MOST_TOKENS for job in jobs for tokens in job[1:3])
    assert all(type(each) is int for job in jobs for each in (*job[1:3], *job.hashes))


def test_lines_have_an_end() -> None:
    """A line without an end is refused before it fills the memory."""
    with pytest.raises(UsageError, match=r"x: line 2 is longer than"):
        list(trace_lines(io.StringIO(f"{OWN_HEADER}\n" + "1" * (2 * LONGEST_LINE)), "x"))


def test_binary_is_no_trace() -> None:
    """Bytes that are no text are refused at their line; those that look like text, at the header."""
    with pytest.raises(UsageError, match=r"x: line 2 is no text in UTF-8"):
        list(trace_lines(io.StringIO(f"{OWN_HEADER}\n\x89PNG\0\0\n"), "x"))
    assert "is no header of a trace" in complaint("\ufffd\ufffd\x1f\x8b\n")


def test_known_headers_name_every_format() -> None:
    """A complaint of an unknown header names all formats."""
    assert all(each.name in traces.KNOWN for each in traces.FORMATS)
