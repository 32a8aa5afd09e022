"""One document, four ways to write it down: text, Markdown, CSV, JSON."""

from __future__ import annotations

import csv
import io
import json
import re
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from roofcast.calculators.answer import Remarks, remarks
from roofcast.reports.data import as_data, render_csv, render_json
from roofcast.reports.document import Document, plain, table
from roofcast.reports.markdown import render_markdown
from roofcast.reports.numbers import billions, count, fixed
from roofcast.reports.outputs import ENDINGS, OUTPUTS
from roofcast.reports.text import BOLD, render_text
from tests.running import roofcast


@dataclass(frozen=True, slots=True)
class Cell:
    """A result inside a result."""

    size: float
    """Bytes. [B]"""


@dataclass(frozen=True, slots=True)
class Result:
    """A result of every shape."""

    name: str
    cells: list[Cell]
    by_context: dict[str, int] = field(default_factory=dict)
    nothing: None = None


def document(**changes: Any) -> Document:
    """Return a document with something of everything."""
    whole = Document(
        command="kv",
        inputs={"models": ["m"], "weights": None},
        result=Result("m", [Cell(1.5)], {"4096": 7}),
        records=[{"model": "m", "cache_bytes": {"4096": 7}}, {"model": "n", "cache_bytes": {"64": 1}, "notes": ["a"]}],
        lines=("m on g: fits",),
        tables=(
            table(
                ("model", "KiB/\ntoken", "from"),
                [("m", "128.0", "config"), ("longer-name", "7.5", "header")],
                title="a title",
                left=(0, 2),
            ),
        ),
        remarks=remarks(["an assumption"], ["a warning"], ["a note"]),
    )
    return replace(whole, **changes)


def test_text_aligns_its_columns() -> None:
    """Words stand left, numbers right, headings rest on a rule as wide as the table."""
    assert render_text(document()).splitlines() == [
        "m on g: fits",
        "",
        "a title",
        "              KiB/",
        "model        token  from",
        "─" * 26,
        "m            128.0  config",
        "longer-name    7.5  header",
        "",
        "a note",
        "assumed: an assumption",
        "warning: a warning",
    ]


def test_text_never_cuts_a_cell() -> None:
    """A cell wider than any terminal is printed whole."""
    wide = "x" * 500

    assert wide in render_text(document(tables=(table(("a", "b"), [(wide, "1")]),)))


def test_text_is_bold_only_when_asked() -> None:
    """Headings and titles are bold for terminals; nothing else is, and pipes get no escape codes."""
    styled = render_text(document(), style=BOLD)
    bold = re.findall(r"\x1b\[1m(.*?)\x1b\[0m", styled)

    assert [line.strip() for line in bold] == ["a title", "KiB/", "model        token  from"]
    assert re.sub(r"\x1b\[[01]m", "", styled) == render_text(document())
    assert "\x1b" not in render_text(document())


def test_text_of_nothing_but_lines() -> None:
    """A document without tables and remarks is its lines."""
    assert render_text(document(tables=(), remarks=Remarks())) == "m on g: fits\n"


def test_markdown_is_a_github_table() -> None:
    """A header on one line, a rule that aligns numbers right, rows, and remarks as a list."""
    assert render_markdown(document()) == (
        "m on g: fits\n\n"
        "**a title**\n\n"
        "| model | KiB/ token | from |\n"
        "|---|---:|---|\n"
        "| m | 128.0 | config |\n"
        "| longer-name | 7.5 | header |\n\n"
        "- a note\n- assumed: an assumption\n- warning: a warning\n"
    )


@pytest.mark.parametrize("name", ["a|b", "a`b", "<script>", "[x](http://e.vil)", "*b*", "_i_", "#1", "a\\|b"])
def test_markdown_escapes_names(name: str) -> None:
    """A name from outside stays text: it opens no cell, link, tag, emphasis or reference."""
    named = document(lines=(), tables=(table(("h",), [(name,)]),), remarks=Remarks())
    row = render_markdown(named).splitlines()[-1]

    assert re.sub(r"\\(.)", r"\1", row) == f"| {name} |"
    assert re.findall(r"(?<!\\)(?:\\\\)*[`*_\[\]<>#]", row) == []
    assert len(re.findall(r"(?<!\\)(?:\\\\)*\|", row)) == 2


def test_csv_has_a_column_for_every_key() -> None:
    """Keys of maps become columns joined with a dot, in the order they first appear; a record may lack some."""
    rows = list(csv.DictReader(io.StringIO(render_csv(document()))))

    assert list(rows[0]) == ["model", "cache_bytes.4096", "cache_bytes.64", "notes"]
    assert rows[0] == {"model": "m", "cache_bytes.4096": "7", "cache_bytes.64": "", "notes": ""}
    assert json.loads(rows[1]["notes"]) == ["a"]


def test_csv_quotes_what_it_must() -> None:
    """Commas and quotes in a value stay in its cell; a line break is shown as a question mark."""
    nasty = 'a,"b"\nc'
    [row] = csv.DictReader(io.StringIO(render_csv(document(records=[{"model": nasty}]))))

    assert row == {"model": nasty.replace("\n", "?")}


def test_json_is_the_envelope() -> None:
    """Schema, inputs, result, assumptions and warnings, in that order; notes are for people."""
    data = json.loads(render_json(document()))

    assert list(data) == ["schema", "inputs", "result", "assumptions", "warnings"]
    assert data["schema"] == "roofcast.kv/1"
    assert data["inputs"] == {"models": ["m"], "weights": None}
    assert data["result"] == {"name": "m", "cells": [{"size": 1.5}], "by_context": {"4096": 7}, "nothing": None}
    assert data["assumptions"] == ["an assumption"]
    assert data["warnings"] == ["a warning"]
    assert render_json(document()).endswith("}\n")


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_json_refuses_what_is_no_number(value: float) -> None:
    """NaN and infinity are no JSON: they are a fault here, not a surprise for the reader."""
    with pytest.raises(ValueError, match="JSON"):
        render_json(document(result=Result("m", [Cell(value)])))


def test_json_is_ascii() -> None:
    """Any terminal and any encoding can carry it."""
    assert render_json(document(inputs={"models": ["\N{SNOWMAN}"]})).isascii()


def test_as_data_leaves_plain_values_alone() -> None:
    """Tuples become lists, results become maps, the rest stays."""
    assert as_data((1, "a", None, {"k": (Cell(2),)})) == [1, "a", None, {"k": [{"size": 2}]}]


@pytest.mark.parametrize(
    ("text", "shown"), [("a\nb", "a?b"), ("\x1b[31m", "?[31m"), ("\u202ea", "?a"), ("héß", "héß"), ("a\tb", "a?b")]
)
def test_plain(text: str, shown: str) -> None:
    """Line breaks, escapes and direction marks are shown as question marks, letters of any script as they are."""
    assert plain(text) == shown


@pytest.mark.parametrize(
    ("value", "digits", "shown"),
    [(14.958, 1, "15.0"), (0.004, 2, "0.004"), (0.0123, 1, "0.012"), (-739.7, 1, "-739.7"), (0, 2, "0.00"), (None, 1, "-")],
)  # fmt: skip
def test_fixed(value: float | None, digits: int, shown: str) -> None:
    """So many decimals, more where the number would vanish, a dash where there is none."""
    assert fixed(value, digits) == shown


@pytest.mark.parametrize(
    ("value", "shown"),
    [(671_026_404_352, "671.0B"), (8_030_261_248, "8.03B"), (134_515_008, "135M"), (999_999_999, "1.00B"), (None, "-")],
)
def test_billions(value: int | None, shown: str) -> None:
    """Parameters as people say them."""
    assert billions(value) == shown


def test_count() -> None:
    """Counts have separators, and a dash where there is none."""
    assert (count(1_048_576), count(0), count(None)) == ("1,048,576", "0", "-")


def test_every_output_format_has_an_ending() -> None:
    """`--out` can write every format, and every ending names one."""
    assert set(ENDINGS.values()) == OUTPUTS.keys() == {"text", "json", "csv", "markdown", "html"}


def test_remarks_that_are_alike_are_one_line() -> None:
    """Text and Markdown name all models of a remark at once, where the first stood; JSON has a line for each."""
    said = [f"{name}: no dtype" for name in ("m", "n", "o")]
    alike = document(remarks=remarks(said, [*said[:2], "n: odd"], ["m: a note", "b", "o: a note"]))
    together = [
        "m and o: a note",
        "b",
        "assumed: m, n and o: no dtype",
        "warning: m and n: no dtype",
        "warning: n: odd",
    ]

    assert render_text(alike).splitlines()[-5:] == together
    assert render_markdown(alike).splitlines()[-5:] == [f"- {line}" for line in together]
    assert json.loads(render_json(alike))["assumptions"] == said


def test_a_table_knows_its_width() -> None:
    """The width of a table is that of its rule: the widest of heading lines and cells, two blanks between columns."""
    [shown] = document().tables

    assert shown.width == len("longer-name") + 2 + len("128.0") + 2 + len("header")
    assert table(("a", "wide\nb"), []).width == 1 + 2 + 4


def test_a_wide_table_is_broken_in_text_alone() -> None:
    """Text goes on in a table below with the first column again, title once; every cell is there; Markdown has one."""
    head = ("model", "words", "x" * 50, "y" * 30, "z")
    wide = table(head, [("m", "w", "1", "2", "3")], title="a title", left=(0, 1), breaks=(2, 3))
    blocks = render_text(document(tables=(wide,), lines=(), remarks=Remarks())).split("\n\n")
    cells = [block.splitlines()[-1].split() for block in blocks]

    assert cells == [["m", "w", "1"], ["m", "2", "3"]]
    assert max(len(line) for block in blocks for line in block.splitlines()) <= 80
    assert [block.startswith("a title") for block in blocks] == [True, False]
    assert render_markdown(document(tables=(wide,), lines=(), remarks=Remarks())).count("| model |") == 1


def test_remarks_say_a_thing_once() -> None:
    """Remarks add up in order, each line once."""
    both = remarks(["a"], ["w"]) + remarks(["b", "a"], notes=["n"])

    assert both == Remarks(("a", "b"), ("w",), ("n",))


COMMANDS = [
    pytest.param(("kv", "llama-3.1-8b", "deepseek-v3"), id="kv"),
    pytest.param(("kv", "qwen3.6-27b", "gpt-oss-20b"), id="kv-hybrid"),
    pytest.param(("model", "deepseek-v3"), id="model"),
    pytest.param(("model", "qwen3.6-35b-a3b", "--mtp"), id="model-hybrid"),
    pytest.param(("gpus", "h100-sxm", "rtx-2080-ti"), id="gpus"),
    pytest.param(("gpus",), id="gpus-all"),
    pytest.param(("fit", "llama-3.1-8b", "--gpu", "h100-sxm"), id="fit"),
    pytest.param(("fit", "deepseek-v3", "--gpu", "h200-sxm", "--tp", "8"), id="fit-shared"),
]


@pytest.mark.parametrize("command", COMMANDS)
def test_text_is_plain_and_aligned(command: tuple[str, ...]) -> None:
    """Every command's text is printable, without trailing blanks, and no line of a table is longer than its rule."""
    out = roofcast(*command, "--format", "text").out
    lines = out.split("\n")

    assert out.endswith("\n")
    assert all(line.isprintable() and line == line.rstrip() for line in lines)
    for number, line in enumerate(lines):
        if line.startswith("─"):
            body = lines[number + 1 : lines.index("", number)]
            assert body
            assert max(map(len, body)) <= len(line)


@pytest.mark.parametrize("command", COMMANDS)
def test_markdown_tables_are_whole(command: tuple[str, ...]) -> None:
    """Every row of a Markdown table has as many cells as its header."""
    outcome = roofcast(*command, "--format", "markdown")
    blocks = re.findall(r"(?:^\|.*\n)+", outcome.out, re.MULTILINE)

    assert blocks
    for block in blocks:
        assert len({len(re.findall(r"(?<!\\)\|", row)) for row in block.splitlines()}) == 1


@pytest.mark.parametrize("command", COMMANDS)
def test_csv_is_rectangular(command: tuple[str, ...]) -> None:
    """Every CSV row has the header's columns, no column twice, no nested value left."""
    rows = list(csv.reader(io.StringIO(roofcast(*command, "--format", "csv").out)))

    assert len(rows) > 1
    assert {len(row) for row in rows} == {len(rows[0])}
    assert len(set(rows[0])) == len(rows[0])
    assert not any(cell.startswith("{") for row in rows for cell in row)


@pytest.mark.parametrize("command", COMMANDS)
def test_csv_says_what_json_says(command: tuple[str, ...]) -> None:
    """Cells of CSV are values of JSON: every number of a record is in both; below its facts `model` has components."""
    data = roofcast(*command, "--format", "json").data["result"]
    rows = list(csv.DictReader(io.StringIO(roofcast(*command, "--format", "csv").out)))
    [records] = [
        data[key] for key in ("models", "gpus", "contexts", "facts") if isinstance(data.get(key), list)
    ]  # fmt: skip

    assert len(rows) == len(records) or all("." in row["name"] for row in rows[len(records) :])
    for row, record in zip(rows[: len(records)], records, strict=True):
        for key, value in record.items():
            if isinstance(value, (int, float)) and not isinstance(value, bool):
                assert float(row[key]) == value
