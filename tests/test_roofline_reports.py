"""The pages of `estimate`, `roofline`, `levers`, and of `gpus` beside a model: the right cells in the right columns."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from jsonschema import Draft202012Validator

from roofcast.calculators.answer import remarks
from roofcast.calculators.gpus import GpuIntensity, gpu_rows
from roofcast.hwdb.lookup import find_accelerator
from roofcast.reports.data import envelope, render_csv
from roofcast.reports.estimate import estimate_document
from roofcast.reports.gpus import gpus_document
from roofcast.reports.levers import levers_document
from roofcast.reports.outputs import OUTPUTS
from roofcast.reports.roofline import roofline_document
from roofcast.reports.schema import json_schema
from roofcast.reports.text import COLUMNS, render_text
from tests.rooflines import (
    BF16,
    FOUR,
    FP8,
    INPUTS,
    estimate,
    lever,
    levers,
    link,
    phase,
    phase_without_room,
    roofline,
    row,
    term,
    usual,
)

if TYPE_CHECKING:
    from roofcast.reports.document import Document, Table

NOTHING = remarks()
DOCUMENTS = {
    "estimate": estimate_document(
        estimate(phase("prefill", 1), phase(), phase_without_room(), layout=FOUR), INPUTS, NOTHING
    ),
    "roofline": roofline_document(roofline(*usual(), roofs=(FP8, BF16), layout=FOUR), INPUTS, NOTHING),
    "levers": levers_document(levers(lever("kv", "KV cache in fp8")), INPUTS, NOTHING),
}


def cells(table: Table, number: int = 0) -> dict[str, str]:
    """Return a row of a table by the headings, whose lines are joined."""
    return dict(zip((name.replace("\n", " ") for name in table.header), table.rows[number], strict=True))


def titled(document: Document, start: str) -> Table:
    """Return the only table whose title starts so."""
    [table] = [table for table in document.tables if table.title.startswith(start)]
    return table


@pytest.mark.parametrize("command", DOCUMENTS)
@pytest.mark.parametrize("name", OUTPUTS)
def test_every_format_writes_every_page(command: str, name: str) -> None:
    """Text, JSON, CSV and Markdown say something of each command, and end in a line break."""
    text = OUTPUTS[name](DOCUMENTS[command])

    assert text.endswith("\n")
    assert "m" in text


@pytest.mark.parametrize("command", DOCUMENTS)
def test_json_is_as_its_schema_says(command: str) -> None:
    """The results validate against the schemas that are published for them."""
    Draft202012Validator(json_schema(command)).validate(json.loads(json.dumps(envelope(DOCUMENTS[command]))))


@pytest.mark.parametrize("command", DOCUMENTS)
def test_schemas_describe_every_property(command: str) -> None:
    """Rows and rows of rows have the descriptions of their fields."""
    schema = json_schema(command)
    objects = [schema["properties"]["result"], *schema["$defs"].values()]

    assert all(value.keys() & {"description", "$ref"} for part in objects for value in part["properties"].values())


@pytest.mark.parametrize("command", DOCUMENTS)
def test_tables_fit_a_terminal(command: str) -> None:
    """No row of a table is wider than a terminal, broken tables included."""
    rules = [
        line
        for line in render_text(DOCUMENTS[command]).splitlines()
        if line.startswith("\N{BOX DRAWINGS LIGHT HORIZONTAL}")
    ]

    assert rules
    assert max(map(len, rules)) <= COLUMNS


def test_estimate_of_what_fits() -> None:
    """Decode's time is a TPOT, prefill's a TTFT, in milliseconds; work in its units."""
    document = estimate_document(estimate(phase("prefill", 1, bound_seconds=0.25), phase()), INPUTS, NOTHING)
    decode, prefill = titled(document, "decode:"), titled(document, "prefill:")

    assert document.lines[0] == "m on g: fits"
    assert cells(prefill)["TTFT ms"] == "250"
    assert cells(decode) == {
        "ctx": "4k",
        "batch": "16",
        "TPOT ms": "2.00",
        "bound by": "memory",
        "tokens/s": "8,000",
        "FLOP": "4 G",
        "weights GB": "1.50",
        "KV, state GB": "0.5",
        "FLOP/B": "2.00",
    }


def test_estimate_of_what_does_not_fit() -> None:
    """A dash stands for the time and the rate, and the reason above the tables."""
    document = estimate_document(estimate(phase(), phase_without_room()), INPUTS, NOTHING)
    shown = cells(titled(document, "decode:"), 1)

    assert document.lines[0] == "m on g: 1 of 2 rows fit"
    assert document.lines[-1] == "decode of 64 at 128k does not fit: weights take 16 GB of 10 GB"
    assert (shown["TPOT ms"], shown["bound by"], shown["tokens/s"]) == ("-", "no room", "-")


def test_estimate_of_nothing_that_fits() -> None:
    """There are no terms to show, and the verdict is plain."""
    document = estimate_document(estimate(phase_without_room()), INPUTS, NOTHING)

    assert document.lines[0] == "m on g: does not fit"
    assert not [table for table in document.tables if table.title.startswith("terms")]


def test_terms_are_of_the_first_row_that_fits() -> None:
    """One table a phase, and its title says whose terms they are."""
    rows = phase_without_room("decode", 1), phase("decode", 4), phase("decode", 8), phase("prefill", 2)
    document = estimate_document(estimate(*rows), INPUTS, NOTHING)
    titles = [table.title for table in document.tables if table.title.startswith("terms")]

    assert titles == ["terms of decode of 4 at 4k", "terms of prefill of 2 at 4k"]
    assert cells(titled(document, "terms of decode")) == {
        "term": "attn.qkv",
        "FLOP": "2 G",
        "weights MB": "1,000",
        "KV, state MB": "0",
        "FLOP/B": "2.00",
        "format": "bf16",
        "bound": "1 ms",
        "by": "memory",
        "share": "50.0%",
    }


def test_exchanges_have_a_column_where_there_are_any() -> None:
    """What is sent between devices is neither weights nor state."""
    document = estimate_document(estimate(phase(terms=[term(), link()]), layout=FOUR), INPUTS, NOTHING)
    table = titled(document, "terms")

    assert cells(table, 0)["sent MB"] == "-"
    assert cells(table, 1)["sent MB"] == "3.00"
    assert [cells(table, 1)[name] for name in ("FLOP", "weights MB", "KV, state MB", "FLOP/B", "format")] == ["-"] * 5


def test_several_devices_say_how_they_share() -> None:
    """The first lines name the devices and the layout, and that numbers are those of one."""
    document = estimate_document(estimate(phase(), layout=FOUR), INPUTS, NOTHING)

    assert document.lines[:2] == ("m on 4 x g: fits", "tensor parallel 2, 2 replicas")
    assert any("on one GPU" in note for note in document.remarks.notes)


def test_expected_times_have_a_column_once_fitted() -> None:
    """Until then a note says that times are bounds."""
    bound = estimate_document(estimate(phase()), INPUTS, NOTHING)
    fitted = estimate_document(estimate(phase(expected_seconds=3e-3), phase()), INPUTS, NOTHING)

    assert any("times are bounds" in note for note in bound.remarks.notes)
    assert not any("times are bounds" in note for note in fitted.remarks.notes)
    assert [cells(titled(fitted, "decode:"), number)["expect ms"] for number in (0, 1)] == ["3.00", "-"]


def test_csv_of_estimate_leaves_the_terms_out() -> None:
    """A record a row, plain numbers, nothing where there is no time."""
    document = estimate_document(estimate(phase(), phase_without_room()), INPUTS, NOTHING)
    first, second = csv.DictReader(io.StringIO(render_csv(document)))

    assert "terms" not in first
    assert (first["model"], first["phase"], first["bound_seconds"]) == ("m", "decode", "0.002")
    assert (second["fits"], second["bound_seconds"]) == ("false", "")


def test_roofline_has_both_conventions() -> None:
    """FLOP a byte of weights and cache, of everything, and of attention stand beside one another, and a note says so."""
    shown = replace(row(intensity=20.0), attention_intensity=4.0)
    document = roofline_document(roofline(shown, row(batch=64, fits=False)), INPUTS, NOTHING)
    table = titled(document, "decode:")

    assert cells(table) == {
        "ctx": "4k",
        "batch": "16",
        "FLOP": "20 G",
        "GB": "1.00",
        "FLOP/B": "20.0",
        "FLOP/B all": "18.0",
        "FLOP/B attn.": "4.00",
        "bound ms": "1.00",
        "bound by": "memory",
        "fits": "yes",
    }
    assert (cells(table, 1)["bound ms"], cells(table, 1)["fits"], cells(table, 1)["FLOP/B attn."]) == ("-", "no", "-")
    assert document.lines[0] == "m on g: 1 of 2 rows fit"
    assert any(note.startswith("FLOP/byte counts weights and KV cache alone") for note in document.remarks.notes)


def test_roofs_have_their_ridges() -> None:
    """A row a format, with the format that it is computed in, and whether the steps asked multiply in it."""
    turing = replace(BF16, computed_in="fp16", used=False)
    table = titled(roofline_document(roofline(row(), roofs=(FP8, turing)), INPUTS, NOTHING), "roofs over 1 TB/s")

    assert table.rows == (("fp8", "fp8", "200", "200", "yes"), ("bf16", "fp16", "100", "100", "no"))


def test_levers_stand_beside_the_base() -> None:
    """Times with their ratios, sequences, and what each lever says below."""
    document = levers_document(levers(lever("kv", "KV cache in fp8")), INPUTS, NOTHING)
    [table] = document.tables

    assert table.rows[0][:2] == ("base", "as it is")
    assert table.rows[1] == ("kv", "KV cache in fp8", "50.0", "1.00", "5.00", "0.50", "3,200", "80", "2.00", "9,000")
    assert "KV cache in fp8: a byte an element" in document.remarks.notes


def test_levers_that_cannot_be_say_why() -> None:
    """Dashes in the table, the reason in a note; a base that does not fit says so above."""
    nothing: dict[str, Any] = dict.fromkeys(
        ("ttft_seconds", "tpot_seconds", "tokens_per_second", "max_sequences", "max_tokens_per_second", "ttft_ratio",
         "tpot_ratio", "sequences_ratio")
    )  # fmt: skip
    cannot = lever("tp", "tensor parallel 3", fits=False, reason="8 heads do not divide", **nothing)
    whole = levers(cannot)
    document = levers_document(whole, INPUTS, NOTHING)
    base = replace(whole.rows[0], fits=False, reason="too large")

    assert document.tables[0].rows[1] == ("tp", "tensor parallel 3", *["-"] * 8)
    assert "tensor parallel 3: 8 heads do not divide" in document.remarks.notes
    assert levers_document(replace(whole, rows=[base]), INPUTS, NOTHING).lines[0] == "m on g: does not fit: too large"


def test_gpus_beside_a_model() -> None:
    """A row a device with its ridge, a column a step: what bounds it, and intensity over ridge."""
    both = gpu_rows([find_accelerator("h200-sxm").accelerator, find_accelerator("l4").accelerator])
    steps = [
        GpuIntensity("decode", 16, 4096, 20.0, "bf16", "bf16", 200.0, "memory"),
        GpuIntensity("prefill", 1, 4096, 800.0, "bf16", "bf16", 200.0, "compute"),
    ]
    result = replace(both, gpus=[replace(gpu, intensities=steps) for gpu in both.gpus])
    table = gpus_document(result, {"names": [], "local": False, "model": "m"}, NOTHING).tables[-1]

    assert table.title == "m beside ridge points"
    assert table.header[3:] == ("decode\nb16 @4k\n20.0 FLOP/B", "prefill\nb1 @4k\n800 FLOP/B")
    assert table.rows[0] == ("h200-sxm", "bf16", "200", "memory 0.10x", "compute 4.00x")


def test_gpus_without_a_model_have_no_such_table() -> None:
    """The overview stays as it is."""
    result = gpu_rows([find_accelerator("h200-sxm").accelerator])

    assert len(gpus_document(result, {"names": [], "local": False}, NOTHING).tables) == 1
