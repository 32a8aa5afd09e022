"""The page of `check`: verdict, order, units, distances; and formats that it alone has."""

from __future__ import annotations

import csv
import io
import json
import re
from typing import TYPE_CHECKING

import pytest

from roofcast.calculators.answer import remarks
from roofcast.calculators.check_rows import FAILED, UNDETERMINED, RuleRow
from roofcast.reports.check import change, headroom, ordered, shown_change, shown_values, verdict
from roofcast.reports.outputs import OUTPUTS, OWN_ENDINGS, OWN_OUTPUTS, endings_of, outputs_of, owner
from roofcast.reports.text import render_text
from tests.checked import CHEAP, FITS, GROWN, LOADED, LOCKS, SEVERAL, SLOW, page, rule, told
from tests.running import refused, roofcast

if TYPE_CHECKING:
    from pathlib import Path

PAGE = """\
2 of 6 rules fail, 1 cannot be told
rules of roofcast.yaml
all on h100-sxm
baseline base.json

         rule                          actual          required    room  change
───────────────────────────────────────────────────────────────────────────────
failed   first token                 612.3 ms         <= 500 ms  -22.5%   +2.1%
failed   kv bytes               256 KiB/token  <= 128 KiB/token   -100%   +100%
unknown  tpot p99                           -          <= 20 ms       -       -
passed   a hundred chats at 4k            121            >= 100  +21.0%   +2.5%
passed   weights fit                      yes               yes       -       -
passed   cost                   0.1234 $/Mtok     <= 0.2 $/Mtok  +38.3%       -

         rule                   model
───────────────────────────────────────────────
failed   first token            llama-3.1-8b
failed   kv bytes               my-org/my-model
unknown  tpot p99               llama-3.1-8b
passed   a hundred chats at 4k  llama-3.1-8b
passed   weights fit            llama-3.1-8b
passed   cost                   llama-3.1-8b
"""


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        (SEVERAL, "2 of 6 rules fail, 1 cannot be told"),
        ([SLOW, FITS], "1 of 2 rules fails"),
        ([SLOW], "1 of 1 rule fails"),
        ([LOADED, LOADED, FITS], "2 of 3 rules cannot be told"),
        ([FITS, CHEAP], "all 2 rules pass"),
        ([FITS], "the one rule passes"),
        ([], "no rule"),
    ],
)
def test_the_verdict_counts(rows: list[RuleRow], said: str) -> None:
    """The first line says how many rules fail and cannot be told, and of how many."""
    assert verdict(told(rows)) == said
    assert render_text(page(rows)).splitlines()[0] == said


def test_what_needs_a_person_stands_first() -> None:
    """Rules that fail come first, then those that cannot be told; within each the files' order stays."""
    rows = [FITS, LOADED, SLOW, CHEAP, GROWN]

    assert ordered(rows) == [SLOW, GROWN, LOADED, FITS, CHEAP]
    assert [row.name for row in page(rows).result.rules] == [row.name for row in rows]  # JSON keeps the files' order


def test_the_page_in_text() -> None:
    """Units as people read them, the sign before the limit, and a line of reasons for each rule that does not pass."""
    text = render_text(page(SEVERAL, baseline="base.json", locks=LOCKS), width=80)

    assert text.startswith(PAGE)
    assert "roofcast.yaml:8: first token: 612.3 ms; at most 500 ms is required\n" in text
    assert "roofcast.yaml:17: tpot p99: no request has such a time\n" in text
    assert "facts: roofcast 0.1.0, facts 12ab34cd\n" in text
    assert max(map(len, text.splitlines())) <= 80


def test_what_all_rules_have_in_common_is_said_once() -> None:
    """One model and one GPU stand above the table, and in no column."""
    text = render_text(page([FITS, SLOW]))

    assert "all on llama-3.1-8b, h100-sxm\n" in text
    assert text.count("h100-sxm") == 1
    assert "model" not in text


def test_names_tell_where_rules_are() -> None:
    """Where a matrix names its model and GPU and all others are of the usual ones, no column repeats them."""
    text = render_text(page([FITS, SLOW, rule("tpot [qwen2.5-7b, h200-sxm]", model="qwen2.5-7b", gpu="h200-sxm")]))

    assert "on llama-3.1-8b, h100-sxm unless a name says otherwise\n" in text
    assert text.count("qwen2.5-7b") == 1


def test_what_no_name_tells_has_a_column() -> None:
    """A rule of another model has it in a column, and nothing is said above that would be wrong of it."""
    text = render_text(page([FITS, SLOW, GROWN]))

    assert "\nall on h100-sxm\n" in text
    assert "on llama" not in text
    assert [line.split()[-1] for line in text.splitlines() if line.startswith(("failed", "passed"))][3:] == [
        "llama-3.1-8b", "my-org/my-model", "llama-3.1-8b",
    ]  # fmt: skip


def test_a_long_name_pushes_columns_below_and_makes_no_empty_table() -> None:
    """Each table has more than the columns that name a rule, however long the name."""
    for rows in ([rule("n" * 100)], [rule("n" * 100, baseline=0.25)], [rule("n" * 100), GROWN]):
        headings = [line.split() for line in render_text(page(rows)).splitlines() if " rule " in line]

        assert len(headings) > 1
        assert all(len(names) > 1 for names in headings)


def test_a_written_baseline_is_said() -> None:
    """After --update the page says that the baseline was written."""
    assert "baseline base.json, written" in render_text(page([FITS], baseline="base.json", updated=True))


@pytest.mark.parametrize(
    ("row", "room"),
    [
        (rule(actual=0.25, required=0.5), 0.5),  # at most 500 ms, 250 ms used: half of it is left
        (rule(actual=0.75, required=0.5), -0.5),
        (rule(actual=121, required=100, sign=">="), 0.21),
        (rule(actual=50, required=100, sign=">="), -0.5),
        (rule(actual=0.5, required=0.5), 0.0),
        (rule(actual=0.1, required=0.0), None),
        (rule(actual=None, required=0.5), None),
        (rule(actual=0.5, required=None), None),
        (FITS, None),
    ],
)
def test_headroom(row: RuleRow, room: float | None) -> None:
    """The room inside a limit is a share of the limit, negative outside; yes and no have none."""
    assert headroom(row) == (room if room is None else pytest.approx(room))


@pytest.mark.parametrize(
    ("actual", "baseline", "share", "said"),
    [
        (121, 118, 3 / 118, "+2.5%"),
        (262144, 131072, 1.0, "+100%"),
        (90.0, 100.0, -0.1, "-10.0%"),
        (100, 100, 0.0, "0%"),
        (5, 0, None, "was 0"),
        (0, 0, None, "-"),
        (False, True, None, "was yes"),
        (True, True, None, "-"),
        (None, 5, None, "-"),
        (5, None, None, "-"),
    ],
)
def test_change(actual: float | None, baseline: float | None, share: float | None, said: str) -> None:
    """The change is a share of the baseline with its sign; where there is no share, what was there before."""
    row = rule(actual=actual, baseline=baseline, unit="")

    assert change(row) == (share if share is None else pytest.approx(share))
    assert shown_change(row) == said


@pytest.mark.parametrize(
    ("unit", "actual", "required", "sign", "shown"),
    [
        ("s", 0.0612345, 0.5, "<=", ("61.23 ms", "<= 500 ms")),
        ("s", 0.0612345, 0.4999, "<=", ("61.23 ms", "<= 499.9 ms")),
        ("s", 12.3456, 20.0, "<=", ("12,346 ms", "<= 20,000 ms")),
        ("B", 16 * 2**30, 80e9, "<=", ("16 GiB", "<= 74.5058 GiB")),
        ("B/token", 131072, 163840, "<=", ("128 KiB/token", "<= 160 KiB/token")),
        ("token/s", 4096.4, 4000, ">=", ("4,096 tokens/s", ">= 4,000 tokens/s")),
        ("USD/Mtoken", 0.1234, 0.2, "<=", ("0.1234 $/Mtok", "<= 0.2 $/Mtok")),
        ("", 1234567, 100, ">=", ("1,234,567", ">= 100")),
        ("", False, True, "==", ("no", "yes")),
        ("", None, None, "<=", ("-", "-")),
        ("furlong", 2.0, 3.0, "<=", ("2 furlong", "<= 3 furlong")),
        # alike to four figures, and yet on the wrong side
        ("s", 0.500004, 0.5, "<=", ("500.004 ms", "<= 500 ms")),
        ("s", 0.5 + 1e-12, 0.5, "<=", ("500.000000001 ms", "<= 500 ms")),
        ("s", 0.5, 0.5, "<=", ("500 ms", "<= 500 ms")),
    ],
)
def test_values_as_people_read_them(
    unit: str, actual: float | None, required: float | None, sign: str, shown: tuple[str, str]
) -> None:
    """Values have the unit that people use, and figures enough to see on which side of the limit they are."""
    assert shown_values(rule(actual=actual, required=required, unit=unit, sign=sign)) == shown


def test_csv_has_a_row_for_each_rule() -> None:
    """CSV is in the files' order and SI units, with room and change as shares."""
    rows = list(csv.DictReader(io.StringIO(OUTPUTS["csv"](page(SEVERAL)))))

    assert [row["name"] for row in rows] == [row.name for row in SEVERAL]
    assert (rows[1]["actual"], rows[1]["required"], rows[1]["headroom"]) == ("0.61234", "0.5", "-0.22468")
    assert (rows[2]["change"], rows[3]["actual"], rows[4]["actual"]) == ("1.0", "", "true")


def test_json_is_the_result() -> None:
    """JSON has the rules with what programs rely on: name, status, actual, required, message."""
    data = json.loads(OUTPUTS["json"](page(SEVERAL, remarks(["a guess"]), locks=LOCKS)))

    assert data["schema"] == "roofcast.check/1"
    assert data["result"]["rules"][1] == {
        "name": "first token", "status": "failed", "actual": 0.61234, "required": 0.5,
        "message": "612.3 ms; at most 500 ms is required", "quantity": "ttft", "unit": "s", "sign": "<=",
        "basis": "expected", "baseline": 0.6, "model": "llama-3.1-8b", "gpu": "h100-sxm", "file": "roofcast.yaml",
        "line": 8, "code": 1,
    }  # fmt: skip
    assert data["result"]["locks"][0] == {
        "kind": "model", "name": "my-org/my-model@v2", "found": "def5678", "locked": "abc1234",
    }  # fmt: skip
    assert data["assumptions"] == ["a guess"]


@pytest.mark.parametrize("name", outputs_of("check"))
def test_every_format_takes_rules_with_nasty_names(name: str) -> None:
    """Names with control characters, markup and halves of characters break no format, and no line of it."""
    nasty = "a\x1b[31m\nb\r\x00\ud800]]>\"'<&|`@x\u2028\N{GRINNING FACE}"
    rows = [rule(nasty, status, model=nasty, gpu=nasty, message=nasty, file=nasty) for status in (FAILED, UNDETERMINED)]

    text = outputs_of("check")[name](page(rows, baseline=nasty))

    text.encode()
    assert "\x1b" not in text
    assert "\x00" not in text
    assert "\ud800" not in text


def test_a_page_without_rules() -> None:
    """Files without a rule make a page in every format."""
    for render in outputs_of("check").values():
        assert isinstance(render(page([])), str)


def test_formats_of_one_command_are_of_no_other() -> None:
    """What `check` alone writes has names that no common format has."""
    assert OUTPUTS.keys() & OWN_OUTPUTS["check"].keys() == set()
    assert set(outputs_of("kv")) == set(OUTPUTS)
    assert set(OWN_ENDINGS["check"].values()) <= OWN_OUTPUTS["check"].keys()
    assert endings_of("check")[".xml"] == "junit"
    assert [owner(name) for name in ("junit", "github", ".xml", "text", "nothing")] == ["check"] * 3 + [None] * 2


@pytest.mark.parametrize("name", ["junit", "github"])
def test_another_command_refuses_the_formats_of_check(name: str) -> None:
    """`kv --format junit` says who writes it, and what kv writes."""
    refused(
        roofcast("kv", "llama-3.1-8b", "--format", name),
        2,
        f"--format {name}: `check` alone writes it; known here: text, json, csv, markdown",
    )


def test_another_command_refuses_the_ending_of_junit(tmp_path: Path) -> None:
    """`kv --out x.xml` says who writes such files, and writes none."""
    out = tmp_path / "x.xml"

    refused(roofcast("kv", "llama-3.1-8b", "--out", str(out)), 2, "'.xml' names a format that `check` alone writes")
    assert not out.exists()


def test_the_manual_has_every_field_and_quantity(repository: Path) -> None:
    """docs/check.md has a row for each field of a rule and for each quantity, with its unit and its limit."""
    from roofcast.calculators.check_quantities import QUANTITIES
    from roofcast.cli.check_fields import FIELDS

    text = (repository / "docs" / "check.md").read_text()
    rows = {name: cells for name, *cells in re.findall(r"^\| `(\w+)` \| (.*?) \| (.*?) \|", text, re.MULTILINE)}

    assert [name for name in FIELDS if f"\n| `{name}` |" not in text] == []
    assert {name: rows[name][0] for name in QUANTITIES} == {
        name: about.unit or ("yes or no" if about.limit is None else "count") for name, about in QUANTITIES.items()
    }
    assert all((about.limit or "none") in rows[name][1] for name, about in QUANTITIES.items())
