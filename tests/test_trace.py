"""Traces: what their rows say in every format, and how much of whole ones a prefix cache finds."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from roofcast.calculators.errors import UsageError
from roofcast.calculators.serving.job import Job
from roofcast.calculators.serving.trace import AZURE, BURSTGPT, MOONCAKE, OWN, read_trace, trace_lines
from roofcast.calculators.serving.trace_rows import Stamps
from roofcast.calculators.serving.trace_summary import InfiniteCache, TraceSummary, trace_summary
from tests.conftest import REPOSITORY

if TYPE_CHECKING:
    from roofcast.calculators.serving.trace import Trace

FIXTURES = REPOSITORY / "tests" / "fixtures" / "traces"
OWN_HEADER = "arrival_seconds,prompt_tokens,output_tokens"
HASHED = f"{OWN_HEADER},prefix_hashes"


def of(path: Path) -> Trace:
    """A trace of a file, whose lines are all read."""
    with path.open(encoding="utf-8-sig", errors="replace", newline="\n") as file:
        return read_trace(list(trace_lines(file, path.name)), path.name)


def jobs_of(text: str) -> list[Job]:
    """The requests of a trace's text."""
    return list(read_trace(text.splitlines(keepends=True), "x.csv"))


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


def test_whole_floats_are_tokens() -> None:
    """Programs that write whole numbers with a point mean the number."""
    assert jobs_of('{"timestamp": 0, "input_length": 600.0, "output_length": 9}')[0].prompt == 600
    assert jobs_of(f"{OWN_HEADER}\n0,600.0,9.0\n") == [Job(0.0, 600, 9)]


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

    hits = [cache.take(Job(0.0, 48, 1, ids)) for ids in ((1, 2), (2,), (1, 1), (3, 2), (1, 2, 9), (1, 2))]

    assert hits == [0, 0, 16, 0, 32, 32]
    assert (cache.blocks, cache.hit_blocks, cache.hit_tokens) == (18, 5, 80)


def test_the_last_block_ends_with_the_prompt() -> None:
    """40 tokens in three blocks of 16 are found as 40, not 48."""
    cache = InfiniteCache(16)

    assert [cache.take(Job(0.0, 40, 1, (1, 2, 3))) for _ in range(2)] == [0, 40]


def test_bursts_by_hand() -> None:
    """Gaps of 2 s and 6 s: mean 4, standard deviation 2, so 0.5 of the mean; 3 requests in 8 s."""
    found = trace_summary([Job(1.0, 10, 1), Job(3.0, 20, 2), Job(9.0, 60, 6)])

    assert (found.span_seconds, found.requests_per_second, found.gap_cv) == (8.0, 0.375, 0.5)
    assert (found.prompt.median, found.output.p99) == (20, 6)


def test_all_at_once_has_no_rate() -> None:
    """Requests of one moment have neither a rate nor gaps."""
    found = trace_summary([Job(0.0, 10, 1)] * 3)

    assert (found.requests_per_second, found.gap_cv) == (None, None)
