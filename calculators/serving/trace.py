"""Traces of requests that were served elsewhere, row by row: Azure's, Mooncake's, BurstGPT's and the own format."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING, Final

from roofcast.calculators.errors import UsageError
from roofcast.calculators.serving.job import Job
from roofcast.calculators.serving.trace_rows import (
    LATEST,
    LONGEST,
    MILLISECONDS,
    MOST_TOKENS,
    SHOWN,
    Columns,
    Stamps,
    cells_of,
    check_blocks,
    refuse_order,
    refuse_time,
    shown,
    tokens_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from typing import NoReturn, TextIO

LONGEST_LINE: Final = 1 << 22  # characters: a prompt of 8 million tokens by blocks of 16
OWN_BLOCK: Final = 16  # tokens, as vLLM's blocks
WHOLE: Final = {int}  # types of ids: no bool among them
EXAMPLE: Final = '{"timestamp": 0, "input_length": 600, "output_length": 20, "hash_ids": [1, 2]}'


@dataclass(frozen=True, slots=True)
class Format:
    """A format of traces.

    Args:
        name: as to be shown.
        columns: how it calls what is read of it; other columns are passed over.
        dated: whether its times are dates, else numbers.
        failures: whether requests that failed are in it, without tokens.
        hash_tokens: tokens of a block of its hashes. [token]
        in_json: whether a row is a JSON object, whose time is in milliseconds.
    """

    name: str
    columns: Columns
    dated: bool = False
    failures: bool = False
    hash_tokens: int = OWN_BLOCK
    in_json: bool = False


OWN: Final = Format("roofcast", Columns("arrival_seconds", "prompt_tokens", "output_tokens", "prefix_hashes"))
AZURE: Final = Format("Azure", Columns("TIMESTAMP", "ContextTokens", "GeneratedTokens"), dated=True)
BURSTGPT: Final = Format("BurstGPT", Columns("Timestamp", "Request tokens", "Response tokens"), failures=True)
MOONCAKE: Final = Format(
    "Mooncake", Columns("timestamp", "input_length", "output_length", "hash_ids"), hash_tokens=512, in_json=True
)
FORMATS: Final = (OWN, AZURE, BURSTGPT, MOONCAKE)
KNOWN: Final = "; ".join(
    f"JSON lines with {', '.join(each.columns.needed)} ({each.name})"
    if each.in_json
    else f"{','.join(each.columns.needed)} ({each.name})"
    for each in FORMATS
)


@dataclass(slots=True)
class Trace:
    """A trace that is being read: its requests come once, in order, their times counted from the first.

    Args:
        name: of its file, as complaints begin.
        form: its format.
        hash_tokens: tokens of one id of its hashes; None where it has none. [token]
        left_out: requests so far that failed where they were recorded, and are not among the jobs.
    """

    name: str
    form: Format
    hash_tokens: int | None
    _jobs: Callable[[Trace], Iterator[Job]]
    left_out: int = field(default=0, init=False)

    def __iter__(self) -> Iterator[Job]:
        """The requests; a second time there are none.

        Raises:
            UsageError: a row that cannot be, or no request at all.
        """
        return self._jobs(self)

    def refuse_empty(self) -> NoReturn:
        """Says that there is no request in it.

        Raises:
            UsageError: always.
        """
        why = f"each of the {self.left_out:,} in it failed" if self.left_out else "there is no row below the header"
        raise UsageError(f"{self.name}: it has no request to serve; {why}")


def trace_lines(file: TextIO, name: str) -> Iterator[str]:
    r"""Lines of a trace, none of which takes more memory than the longest row that can be.

    Open it with encoding="utf-8-sig", errors="replace" and newline="\n", so that lines are numbered as editors do.

    Raises:
        UsageError: it is no text, or has no lines.
    """
    number = 0
    while line := file.readline(LONGEST_LINE):
        number += 1
        if len(line) == LONGEST_LINE:
            raise UsageError(
                f"{name}: line {number:,} is longer than {LONGEST_LINE:,} characters; it is no row of a trace"
            )
        if "\0" in line:
            raise UsageError(f"{name}: line {number:,} is no text in UTF-8; a trace is CSV or JSON lines, unpacked")
        yield line


def read_trace(lines: Iterable[str], name: str, hash_tokens: int | None = None) -> Trace:
    """A trace by its lines, whatever its format is; it is recognised by its first line.

    Args:
        lines: of the file, from the first on.
        name: as complaints are to begin.
        hash_tokens: tokens of one id of its hashes, where its format does not say so. [token]

    Raises:
        UsageError: it is empty, or of no known format; and, as it is read, of a row that cannot be.

    >>> trace = read_trace(["arrival_seconds,prompt_tokens,output_tokens", "3,1024,128", "3.5,7,9"], "x.csv")
    >>> [(job.arrival, job.prompt, job.output) for job in trace]
    [(0.0, 1024, 128), (0.5, 7, 9)]
    """
    rest = iter(lines)
    number, first = 0, ""
    for number, first in enumerate(rest, 1):  # noqa: B007 - the first line that is not blank
        if first.strip("\ufeff \t\r\n"):
            break
    else:
        raise UsageError(f"{name}: it is empty; a trace begins with a header such as {','.join(OWN.columns.needed)}")
    head = first.strip("\ufeff \t\r\n")
    if head.startswith("["):
        raise UsageError(f"{name}: it is one JSON array; a trace in JSON has an object a line, such as {EXAMPLE}")
    if head.startswith("{"):
        return _json_trace(head, rest, number, name, hash_tokens)
    return _csv_trace(head, rest, number, name, hash_tokens)


def _csv_trace(head: str, rest: Iterator[str], number: int, name: str, hash_tokens: int | None) -> Trace:
    """A trace with a header."""
    names = [cell.casefold() for cell in cells_of(head, f"{name}: line {number:,}")]
    tables = [each for each in FORMATS if not each.in_json]
    form = max(tables, key=lambda each: sum(column.casefold() in names for column in each.columns.needed))
    missing = [column for column in form.columns.needed if column.casefold() not in names]
    if len(missing) == len(form.columns.needed):
        hint = "; put commas between cells" if ";" in head or "\t" in head else ""
        raise UsageError(f"{name}: its first line, {shown(head)}, is no header of a trace{hint}; known are {KNOWN}")
    if missing:
        raise UsageError(f"{name}: column {missing[0]} is missing; known headers are {KNOWN}")
    twice = next((column for column in form.columns.needed if names.count(column.casefold()) > 1), None)
    if twice is not None:
        raise UsageError(f"{name}: column {twice} is there twice; keep one of them")
    hashes = form.columns.hashes
    hashed = hashes is not None and hashes.casefold() in names
    block = (hash_tokens or form.hash_tokens) if hashed else None
    places = [names.index(column.casefold()) for column in form.columns.needed]
    table = _Table(places, names.index(hashes.casefold()) if hashed and hashes else None, len(names), number)
    return Trace(name, form, block, lambda trace: table.jobs(trace, rest))


@dataclass(frozen=True, slots=True)
class _Table:
    """Rows with commas.

    Args:
        places: where time, prompt and output are.
        hashes: where ids of blocks are; None where they are not.
        width: cells of a row.
        header: number of the header's line.
    """

    places: Sequence[int]
    hashes: int | None
    width: int
    header: int

    def jobs(self, trace: Trace, rest: Iterator[str]) -> Iterator[Job]:
        """The requests of rows below the header."""
        at_time, at_prompt, at_output = self.places
        width, at_hashes, dated = self.width, self.hashes, trace.form.dated
        clock: Callable[[str], float] = Stamps() if dated else float
        last, origin, until = 0.0, -1.0, LATEST
        for number, line in enumerate(rest, self.header + 1):
            cells = line.strip().split(",")
            try:
                if len(cells) != width or '"' in line or "_" in line:
                    raise ValueError  # noqa: TRY301 - the same way as what int and float raise
                seconds, prompt, output = clock(cells[at_time]), int(cells[at_prompt]), int(cells[at_output])
            except ValueError:
                if not line.strip(" \t\r\n,"):
                    continue
                cells = self._cells(trace, number, line)
                seconds, prompt, output = self._read(trace, number, cells, clock)
            if not last <= seconds <= until:
                where = f"{trace.name}: line {number:,}"
                if seconds < last and (dated or seconds >= 0):
                    refuse_order(last - seconds, trace.form.columns.time, where)
                refuse_time(cells[at_time], trace.form.columns.time, where, dated=dated)
            last = seconds
            if not (0 < prompt <= MOST_TOKENS and 0 < output <= MOST_TOKENS):
                _check_tokens(trace, number, prompt, output)
                trace.left_out += 1
                continue
            if origin < 0:
                origin, until = seconds, min(LATEST, seconds + LONGEST)
            ids = () if at_hashes is None else _ids(trace, number, cells[at_hashes], prompt)
            yield Job(seconds - origin, prompt, output, ids)
        if origin < 0:
            trace.refuse_empty()

    def _cells(self, trace: Trace, number: int, line: str) -> list[str]:
        """Cells of a row, as many as the header has.

        Raises:
            UsageError: there are fewer or more.
        """
        where = f"{trace.name}: line {number:,}"
        cells = cells_of(line, where)
        if len(cells) < self.width:
            lost = next(
                (c for c, at in zip(trace.form.columns.needed, self.places, strict=True) if at >= len(cells)), None
            )
            raise UsageError(
                f"{where} has {len(cells):,} cells, the header {self.width:,}"
                + (f": {lost} is missing" if lost else "")
            )
        if len(cells) > self.width:
            raise UsageError(
                f"{where} has {len(cells):,} cells, the header {self.width:,}; numbers have no commas in them"
            )
        return cells

    def _read(
        self, trace: Trace, number: int, cells: Sequence[str], clock: Callable[[str], float]
    ) -> tuple[float, int, int]:
        """What cells say that are not plain.

        Raises:
            UsageError: naming the row and the column.
        """
        where, columns = f"{trace.name}: line {number:,}", trace.form.columns
        at_time, at_prompt, at_output = self.places
        try:
            if "_" in cells[at_time]:
                raise ValueError  # noqa: TRY301 - Python's 1_000 is no number of a trace
            seconds = clock(cells[at_time])
        except ValueError:
            refuse_time(cells[at_time], columns.time, where, dated=trace.form.dated)
        prompt = tokens_of(cells[at_prompt], columns.prompt, where)
        return seconds, prompt, tokens_of(cells[at_output], columns.output, where)


def _json_trace(head: str, rest: Iterator[str], number: int, name: str, hash_tokens: int | None) -> Trace:
    """A trace of which each row is a JSON object."""
    row, form = _object(head, f"{name}: line {number:,}"), MOONCAKE
    missing = [column for column in form.columns.needed if column not in row]
    if len(missing) == len(form.columns.needed):
        raise UsageError(f"{name}: line {number:,} is no row of a trace: it has none of its keys; known are {KNOWN}")
    block = (hash_tokens or form.hash_tokens) if form.columns.hashes in row else None
    return Trace(name, form, block, lambda trace: _json_jobs(trace, chain([head], rest), number))


def _json_jobs(trace: Trace, lines: Iterable[str], first: int) -> Iterator[Job]:
    """The requests of JSON lines; times are in milliseconds there."""
    at_time, at_prompt, at_output = trace.form.columns.needed
    loads = json.JSONDecoder().decode  # as json.loads, without asking each time how
    block, latest, last, origin = trace.hash_tokens, LATEST * MILLISECONDS, 0.0, -1.0
    for number, line in enumerate(lines, first):
        if line.isspace():
            continue
        try:
            row = loads(line)
            time, prompt, output = row[at_time], row[at_prompt], row[at_output]
        except (ValueError, LookupError, TypeError, RecursionError):
            row = _object(line, f"{trace.name}: line {number:,}")
            time, prompt, output = (_value(trace, number, row, column) for column in (at_time, at_prompt, at_output))
        if not (type(time) is int or type(time) is float) or not last <= time <= latest:
            _refuse_time(trace, number, row, last)
        if type(prompt) is not int or type(output) is not int:
            prompt, output = (_tokens(trace, number, row, column) for column in (at_prompt, at_output))
        if not (0 < prompt <= MOST_TOKENS and 0 < output <= MOST_TOKENS):
            _check_tokens(trace, number, prompt, output)
        last = time
        if origin < 0:
            origin, latest = time, min(latest, time + LONGEST * MILLISECONDS)
        yield Job((time - origin) / MILLISECONDS, prompt, output, _blocks(trace, number, row, prompt) if block else ())


def _object(line: str, where: str) -> dict[str, object]:
    """A line's JSON object.

    Raises:
        UsageError: it is none.
    """
    try:
        row = json.loads(line)
    except (ValueError, RecursionError) as error:
        what = error.msg if isinstance(error, json.JSONDecodeError) else "a number or nesting beyond all measure"
        raise UsageError(f"{where} is no JSON ({what}): {shown(line.strip())}") from error
    if not isinstance(row, dict):
        raise UsageError(f"{where} is no JSON object but {shown(line.strip())}; a row is like {EXAMPLE}")
    return row


def _value(trace: Trace, number: int, row: dict[str, object], column: str) -> object:
    """A key's value.

    Raises:
        UsageError: the row has none.
    """
    if column not in row:
        raise UsageError(f"{trace.name}: line {number:,}: {column} is missing; a row is like {EXAMPLE}")
    return row[column]


def _tokens(trace: Trace, number: int, row: dict[str, object], column: str) -> int:
    return tokens_of(_value(trace, number, row, column), column, f"{trace.name}: line {number:,}")


def _refuse_time(trace: Trace, number: int, row: dict[str, object], last: float) -> NoReturn:
    """Says what is wrong with a time in milliseconds."""
    column = trace.form.columns.time
    time = _value(trace, number, row, column)
    where = f"{trace.name}: line {number:,}"
    if isinstance(time, (int, float)) and not isinstance(time, bool) and 0 <= time < last:
        refuse_order((last - time) / MILLISECONDS, column, where)
    refuse_time(time, column, where, dated=False)


def _blocks(trace: Trace, number: int, row: dict[str, object], prompt: int) -> tuple[int, ...]:
    """Ids of all blocks of a prompt.

    Raises:
        UsageError: there are others than it has blocks, or they are no whole numbers.
    """
    column, block = trace.form.columns.hashes or "", trace.hash_tokens or 1
    ids = row.get(column)
    if type(ids) is list and len(ids) == -(-prompt // block) and set(map(type, ids)) == WHOLE:
        return tuple(ids)
    where = f"{trace.name}: line {number:,}"
    found = _value(trace, number, row, column)
    if not isinstance(found, list):
        raise UsageError(f"{where}: {column} is {shown(found)}; it must be a list of whole numbers")
    check_blocks(found, prompt, block, column, where)
    raise UsageError(
        f"{where}: {column} has {len(found):,} ids, but {prompt:,} tokens are {-(-prompt // block):,} blocks of {block:,}"
    )


def _ids(trace: Trace, number: int, cell: str, prompt: int) -> tuple[int, ...]:
    """Ids of the leading blocks of a prompt, with blanks between them.

    Raises:
        UsageError: there are more than it has blocks, or they are no whole numbers.
    """
    parts = cell.split()
    column, block = trace.form.columns.hashes or "", trace.hash_tokens or 1
    try:
        ids = tuple(map(int, parts))
    except ValueError:
        ids = ()
    if len(ids) != len(parts) or len(ids) * block >= prompt + block or "_" in cell:
        where = f"{trace.name}: line {number:,}"
        whole = [int(part) if part.lstrip("+-").isdecimal() and len(part) <= SHOWN else part for part in parts]
        check_blocks(whole, prompt, block, column, where)
    return ids


def _check_tokens(trace: Trace, number: int, prompt: int, output: int) -> None:
    """Refuses a request without tokens, except one that failed.

    Raises:
        UsageError: naming the row and the column.
    """
    where, columns = f"{trace.name}: line {number:,}", trace.form.columns
    for count, column in ((prompt, columns.prompt), (output, columns.output)):
        tokens_of(count, column, where)
        if count == 0 and not trace.form.failures:
            raise UsageError(f"{where}: {column} is 0; a request has 1 token or more, so leave the row out")
