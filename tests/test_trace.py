"""Traces: what their rows say in every format, how much of them a prefix cache finds, and what is wrong with bad ones."""

from __future__ import annotations

import io
import os
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roofcast.calculators.errors import UsageError
from roofcast.calculators.serving import trace as traces
from roofcast.calculators.serving.job import Job
from roofcast.calculators.serving.trace import AZURE, BURSTGPT, LONGEST_LINE, MOONCAKE, OWN, read_trace, trace_lines
from roofcast.calculators.serving.trace_rows import MOST_TOKENS, Stamps
from roofcast.calculators.serving.trace_summary import InfiniteCache, TraceSummary, trace_summary
from tests.conftest import REPOSITORY

if TYPE_CHECKING:
    from roofcast.calculators.serving.trace import Trace

FIXTURES = REPOSITORY / "tests" / "fixtures" / "traces"
OWN_HEADER = "arrival_seconds,prompt_tokens,output_tokens"
HASHED = f"{OWN_HEADER},prefix_hashes"
AZURE_HEADER = "TIMESTAMP,ContextTokens,GeneratedTokens"
BURSTGPT_HEADER = "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type"


def of(path: Path) -> Trace:
    """A trace of a file, whose lines are all read."""
    with path.open(encoding="utf-8-sig", errors="replace", newline="\n") as file:
        return read_trace(list(trace_lines(file, path.name)), path.name)


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


def test_azure_rows() -> None:
    """The first row of Azure's conversation trace is at 0; the next is 50.9951690 - 46.6805900 = 4.314579 s later."""
    trace = of(FIXTURES / "azure_conv.csv")

    jobs = list(trace)

    assert (trace.form, trace.hash_tokens, len(jobs)) == (AZURE, None, 7)
    assert jobs[0] == Job(0.0, 374, 44)
    assert jobs[1][1:3] == (396, 109)
    assert jobs[1].arrival == pytest.approx(4.314579, abs=1e-9)


def test_mooncake_rows() -> None:
    """Mooncake's first request has 6,758 tokens in 14 blocks of 512; the second shares its first block."""
    trace = of(FIXTURES / "mooncake_conversation.jsonl")

    jobs = list(trace)

    assert (trace.form, trace.hash_tokens, len(jobs)) == (MOONCAKE, 512, 6)
    assert jobs[0] == Job(0.0, 6758, 500, tuple(range(14)))
    assert jobs[1].hashes[:2] == (0, 14)


def test_mooncake_times_are_milliseconds() -> None:
    """27482 ms after a row at 1000 ms are 26.482 s."""
    rows = [
        '{"timestamp": 1000, "input_length": 1, "output_length": 1}',
        '{"timestamp": 27482, "input_length": 2, "output_length": 1}',
    ]

    trace = read_trace(rows, "x.jsonl")

    assert trace.hash_tokens is None
    assert [job.arrival for job in trace] == [0.0, 26.482]


def test_burstgpt_rows() -> None:
    """Requests of BurstGPT that failed have no tokens: they are left out, and counted."""
    trace = of(FIXTURES / "burstgpt.csv")

    jobs = list(trace)

    assert trace.form == BURSTGPT
    assert jobs == [Job(0.0, 100, 20), Job(3.5, 2000, 300), Job(10.0, 7, 1)]
    assert trace.left_out == 2


def test_burstgpt_with_sessions() -> None:
    """Columns in another order, and others between them, do not matter: newer releases have sessions."""
    text = (
        "Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
        "5,a_1,2.5,ChatGPT,472,18,490,Conversation log\n"
    )

    assert jobs_of(text) == [Job(0.0, 472, 18)]


def test_own_rows() -> None:
    """The own format has seconds, tokens and, where there is such a column, ids of blocks with blanks between them."""
    trace = read_trace([HASHED, "1.5,40,8,7 8 9", "2,40,8,", "2,40,8,7 -8"], "x.csv")

    assert (trace.form, trace.hash_tokens) == (OWN, 16)
    assert list(trace) == [Job(0.0, 40, 8, (7, 8, 9)), Job(0.5, 40, 8), Job(0.5, 40, 8, (7, -8))]


def test_block_size_is_asked() -> None:
    """Hashes may be of blocks of another size; then a prompt has another number of them."""
    rows = ['{"timestamp": 0, "input_length": 40, "output_length": 1, "hash_ids": [1, 2, 3]}']

    assert read_trace(rows, "x", 16).hash_tokens == 16
    assert next(iter(read_trace(rows, "x", 16))).hashes == (1, 2, 3)
    with pytest.raises(UsageError, match="3 ids, but 40 tokens are 1 blocks of 512"):
        list(read_trace(rows, "x"))


@pytest.mark.parametrize(
    "text",
    [
        f"\ufeff{OWN_HEADER}\r\n0,5,6\r\n1,7,8\r\n",
        f"{OWN_HEADER}\n\n0,5,6\n\n1,7,8\n   \n,,\n",
        '"arrival_seconds","prompt_tokens","output_tokens"\n"0","5","6"\n"1","7","8"\n',
        "arrival_seconds, prompt_tokens, output_tokens\n 0, 5, 6\n 1, 7, 8",
        "note,Output_Tokens,ARRIVAL_SECONDS,prompt_tokens\nfoo_1,6,0.0,5.0\n,8,1e0,7\n",
    ],
    ids=["BOM and CRLF", "blank lines", "quotes", "blanks", "order and case"],
)
def test_spellings(text: str) -> None:
    """A byte-order mark, line ends, blank lines, quotes, blanks and the order of columns change nothing."""
    assert jobs_of(text) == [Job(0.0, 5, 6), Job(1.0, 7, 8)]


@pytest.mark.parametrize(
    ("stamps", "seconds"),
    [
        (["2023-11-16 18:17:03.9799600", "2023-11-16 18:17:04.0319600"], 0.052),
        (["2024-05-10 00:00:00.009930+00:00", "2024-05-10 00:00:01.009931+00:00"], 1.000001),
        (["2023-12-31 23:59:59.5", "2024-01-01 00:00:00"], 0.5),
        (["2024-02-28 23:59:30", "2024-03-01 00:00:30"], 86460.0),  # 2024 has a 29th
        (["2024-03-31 01:59:59+01:00", "2024-03-31 03:00:00+02:00"], 1.0),
        (["2024-05-10T08:00:00Z", "2024-05-10T08:00:00.25Z"], 0.25),
        (["2024-05-10 08:00:00+00:00", "2024-05-10 08:00:01"], 1.0),
    ],
)
def test_stamps(stamps: list[str], seconds: float) -> None:
    """Dates with 0 to 7 digits of a second, with and without an offset, over ends of minutes, months and years."""
    clock = Stamps()

    first, second = map(clock, stamps)

    assert second - first == pytest.approx(seconds, abs=1e-9)


@pytest.mark.parametrize(
    "stamp",
    [
        "",
        "now",
        "2023-13-16 18:17:03",
        "2023-11-16 25:17:03",
        "2023-11-16 18:17:61",
        "2023-11-16",
        "2023-11-16 18:17:nan",
    ],
)
@pytest.mark.parametrize("before", [None, "2023-11-16 18:17:00.0"])
def test_no_stamps(stamp: str, before: str | None) -> None:
    """What is no date with a time is refused, behind one of the same minute too."""
    clock = Stamps()
    if before is not None:
        clock(before)

    with pytest.raises(ValueError, match=r".*"):
        clock(stamp)


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
    "an array": ("[1, 2]\n", "its first line, '[1, 2]', is no header of a trace"),
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


def test_whole_floats_are_tokens() -> None:
    """Programs that write whole numbers with a point mean the number."""
    assert jobs_of(mooncake(input_length="600.0"))[0].prompt == 600
    assert jobs_of(f"{OWN_HEADER}\n0,600.0,9.0\n") == [Job(0.0, 600, 9)]


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


def test_rows_are_read_as_they_come() -> None:
    """Nothing is read ahead: a million rows take no memory."""
    given: list[int] = []

    def lines() -> object:
        yield OWN_HEADER
        for number in range(1000):
            given.append(number)
            yield f"{number},1,1"

    found = iter(read_trace(lines(), "x"))  # type: ignore[arg-type] # a generator of text

    assert next(found) == Job(0.0, 1, 1)
    assert next(found) == Job(1.0, 1, 1)
    assert given == [0, 1]


@dataclass(frozen=True)
class Published:
    """What is known of a whole trace."""

    requests: int
    span: float
    rate: float
    gaps: float | None
    prompt: tuple[float, int, int, int]
    output: tuple[float, int, int, int]
    hits: tuple[float, float] | None


# counted apart on the files, by the people who saved them; means of Mooncake's as its README has them
TRACES = {
    "AzureLLMInferenceTrace_conv_20k.csv": Published(
        19366, 3502, 5.53, 1.09, (1154.7, 1020, 4142, 14050), (211.1, 129, 601, 1000), None
    ),
    "AzureLLMInferenceTrace_code.csv": Published(
        8819, 3436, 2.57, 13.15, (2047.8, 1469, 7436, 7437), (27.9, 13, 252, 1899), None
    ),
    "mooncake_fast25_conversation_trace.jsonl": Published(
        12031, 3537, 3.40, None, (12035, 6909, 85401, 126195), (343, 350, 1120, 2000), (36.6, 37.4)
    ),
    "mooncake_fast25_synthetic_trace.jsonl": Published(
        3993, 1022, 3.91, None, (15325, 11587, 66458, 191378), (149, 69, 769, 893), (64.0, 65.1)
    ),
}


def shared(name: str) -> Path:
    """A file of the folder of traces; skips where it is not there, with the number of rows that are not checked."""
    path = Path(os.environ.get("ROOFCAST_SHARED") or REPOSITORY.parent / "shared") / "traces" / name
    if not path.is_file():
        pytest.skip(f"no folder of traces: {TRACES[name].requests} rows of {name} not checked")
    return path


def summary_of(trace: Trace) -> TraceSummary:
    """A whole trace in numbers."""
    return trace_summary(trace, trace.hash_tokens)


@pytest.mark.parametrize("name", TRACES)
def test_whole_traces(name: str) -> None:
    """Every row of the public traces is read; rates, lengths, bursts and what an infinite prefix cache holds agree."""
    known = TRACES[name]
    trace = of(shared(name))

    found = summary_of(trace)

    assert (found.requests, trace.left_out) == (known.requests, 0)
    assert found.span_seconds == pytest.approx(known.span, abs=0.5)
    assert found.requests_per_second == pytest.approx(known.rate, abs=0.005)
    assert known.gaps is None or found.gap_cv == pytest.approx(known.gaps, abs=0.005)
    for lengths, (mean, *others) in ((found.prompt, known.prompt), (found.output, known.output)):
        assert lengths.mean == pytest.approx(mean, abs=0.5)
        assert [lengths.median, lengths.p99, lengths.max] == others
    if known.hits is None:
        assert found.prefix_token_share is None
    else:
        shares = found.prefix_block_share, found.prefix_token_share
        assert [round(share * 100, 1) for share in shares if share is not None] == list(known.hits)


def test_hits_of_the_first_rows() -> None:
    """By hand: the second row of Mooncake's knows one block of the first, and so do the four after it, no more."""
    jobs = list(of(FIXTURES / "mooncake_conversation.jsonl"))
    known: set[tuple[int, ...]] = set()
    expected = []
    for job in jobs:
        beginnings = [job.hashes[:end] for end in range(1, len(job.hashes) + 1)]
        found = sum(beginning in known for beginning in beginnings)
        expected.append(min(found * 512, job.prompt))
        known.update(beginnings)
    cache = InfiniteCache(512)

    hits = [cache.take(job) for job in jobs]

    assert hits == expected
    assert hits[:2] == [0, 512]


def test_blocks_are_known_behind_their_parents() -> None:
    """An id behind another parent is another block, and what follows the ids is nobody else's."""
    cache = InfiniteCache(16)

    hits = [cache.take(Job(0.0, 48, 1, ids)) for ids in ((1, 2), (2,), (3, 2), (1, 2, 9), (1, 2))]

    assert hits == [0, 0, 0, 32, 32]
    assert (cache.blocks, cache.hit_blocks, cache.hit_tokens) == (15, 4, 64)


def test_known_headers_name_every_format() -> None:
    """A complaint of an unknown header names all formats."""
    assert all(each.name in traces.KNOWN for each in traces.FORMATS)
