"""JUnit XML of `check`: well formed, valid, and never kinder than the gate."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

import pytest
import xmlschema
from hypothesis import given
from hypothesis import strategies as st

from roofcast.calculators.answer import remarks
from roofcast.calculators.check_rows import FAILED, PASSED, UNDETERMINED
from roofcast.calculators.errors import UsageError
from roofcast.reports.junit import render_junit
from tests.checked import CODES, FITS, GROWN, LOADED, LOCKS, SEVERAL, SLOW, page, rule

if TYPE_CHECKING:
    from xml.etree.ElementTree import Element

    from roofcast.reports.document import Document

SCHEMA = xmlschema.XMLSchema(Path(__file__).parent / "fixtures" / "junit.xsd")
NASTY = "a\x00\x1b[31m ]]> \"'&<b/> \ud800 \udfff \ufffe \u2028 \N{GRINNING FACE} \r\n\t &#0; <!--"
TEXTS = st.text(st.characters(exclude_categories=()), max_size=40)  # halves of characters too


def suites(document: Document) -> list[Element]:
    """Return the test suites of a document's XML, after it has been held against the schema."""
    text = render_junit(document)
    SCHEMA.validate(text)
    return list(ET.fromstring(text))  # noqa: S314 - our own


def test_rules_are_test_cases() -> None:
    """A rule file is a suite with the counts; failed is a failure, what cannot be told an error, passed neither."""
    [suite] = suites(page(SEVERAL))

    assert [suite.get(name) for name in ("name", "tests", "failures", "errors", "skipped")] == [
        "roofcast.yaml", "6", "2", "1", "0",
    ]  # fmt: skip
    assert [(case.get("name"), [part.tag for part in case]) for case in suite.iter("testcase")] == [
        ("a hundred chats at 4k", []),
        ("first token", ["failure"]),
        ("kv bytes", ["failure"]),
        ("tpot p99", ["error"]),
        ("weights fit", []),
        ("cost", []),
    ]


def test_a_failure_says_what_a_person_needs() -> None:
    """GitLab shows a failure's text alone: message, place and values stand in it, and its type is the quantity."""
    [failure] = suites(page([SLOW]))[0].iter("failure")

    assert failure.get("type") == "ttft"
    assert failure.get("message") == "612.3 ms; at most 500 ms is required"
    assert (failure.text or "").splitlines() == [
        "612.3 ms; at most 500 ms is required",
        "at roofcast.yaml:8",
        "actual: 612.3 ms",
        "required: <= 500 ms",
        "baseline: 600 ms",
        "model: llama-3.1-8b",
        "gpu: h100-sxm",
    ]


def test_what_cannot_be_told_is_an_error_of_its_kind() -> None:
    """A rule that asks for what cannot be is told from one that has no answer; neither is skipped."""
    [suite] = suites(page([LOADED, rule("tp", UNDETERMINED, code=2)]))

    assert [error.get("type") for error in suite.iter("error")] == ["undetermined", "malformed"]
    assert list(suite.iter("skipped")) == []


def test_each_file_is_a_suite() -> None:
    """Suites are numbered from 0 in the order of the files; a file without a rule has one, and so has a lock's."""
    rows = [FITS, rule("a", FAILED, file="more/b.yml"), rule("lock: model m", FAILED, file="base.json", line=0)]
    made = suites(page(rows, files=["roofcast.yaml", "empty.yaml", "more/b.yml"]))

    assert [(suite.get("id"), suite.get("name"), suite.get("tests"), suite.get("failures")) for suite in made] == [
        ("0", "roofcast.yaml", "1", "0"),
        ("1", "empty.yaml", "0", "0"),
        ("2", "more/b.yml", "1", "1"),
        ("3", "base.json", "1", "1"),
    ]
    assert [case.get("classname") for suite in made for case in suite.iter("testcase")] == [
        "roofcast", "more.b", "base_json",
    ]  # fmt: skip


def test_no_file_is_no_suite() -> None:
    """Nothing checked is valid too."""
    assert suites(page([])) == []


def test_what_numbers_were_made_from_is_a_property() -> None:
    """Facts, baseline and locks are properties; assumptions and warnings stand in system-err."""
    document = page([FITS], remarks(["m: no dtype"], ["h: boosts"]), baseline="base.json", locks=LOCKS)
    [suite] = suites(document)

    assert {item.get("name"): item.get("value") for item in suite.iter("property")} == {
        "roofcast.facts": "roofcast 0.1.0, facts 12ab34cd",
        "roofcast.baseline": "base.json",
        "roofcast.model.my-org/my-model@v2": "def5678",
        "roofcast.accelerator.h100-sxm": "1111",
        "roofcast.constants.h100-sxm.vllm": "2222",
        "roofcast": "0.1.0",
    }
    assert suite.findtext("system-err") == "assumed: m: no dtype\nwarning: h: boosts"
    assert (suite.findtext("system-out") or "").splitlines()[0] == "the one rule passes"


def test_nothing_of_the_machine_is_in_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """With SOURCE_DATE_EPOCH two runs on two machines write the same bytes, and only ASCII."""
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1735689600")
    [suite] = suites(page([rule(NASTY)]))

    assert suite.get("timestamp") == "2025-01-01T00:00:00"
    assert suite.get("hostname") == "localhost"
    assert render_junit(page([rule(NASTY)])).isascii()


def test_without_an_epoch_it_is_now(monkeypatch: pytest.MonkeyPatch) -> None:
    """The timestamp is of this century where nothing decides it, or an empty variable does."""
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "")

    assert re.fullmatch(r"20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d", suites(page([FITS]))[0].get("timestamp") or "")


@pytest.mark.parametrize("wrong", ["yesterday", "-1", "1.5", "1_0", " 1", "\u0661", "9" * 12, "9" * 30, "9" * 5000])
def test_an_epoch_that_is_no_time_is_refused(wrong: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """SOURCE_DATE_EPOCH is whole seconds since 1970, or the error says so."""
    monkeypatch.setenv("SOURCE_DATE_EPOCH", wrong)

    with pytest.raises(UsageError, match=r"SOURCE_DATE_EPOCH=.*: it must be whole seconds since 1970"):
        render_junit(page([FITS]))


def test_nasty_names_stay_one_name() -> None:
    """What XML cannot hold becomes a question mark, blanks are one, and all else comes back as it was."""
    [case] = suites(page([rule(NASTY, FAILED, message=NASTY)]))[0].iter("testcase")

    assert case.get("name") == "a??[31m ]]> \"'&<b/> ? ? ? ? \N{GRINNING FACE} ??? &#0; <!--"
    assert case[0].get("message", "").startswith("a??[31m ]]> \"'&<b/> ?")


def test_a_name_without_end_is_cut() -> None:
    """A name of a megabyte does not make an attribute of a megabyte."""
    [case] = suites(page([rule("n" * 1_000_000)]))[0].iter("testcase")

    assert case.get("name") == "n" * 1000 + "..."


@given(st.lists(st.tuples(TEXTS, st.sampled_from(list(CODES)), TEXTS, TEXTS), max_size=4), TEXTS)
def test_any_text_is_valid_and_counts_agree(made: list[tuple[str, str, str, str]], said: str) -> None:
    """Whatever rules, files and remarks are called, the XML is valid and its counts are those of the result."""
    rows = [rule(name, status, message=message, file=file, model=name) for name, status, message, file in made]
    document = page(rows, remarks([said], [said]), baseline=said, facts_version=said, locks=LOCKS)
    got = suites(document)

    for key, status in (("failures", FAILED), ("errors", UNDETERMINED)):
        assert sum(int(suite.get(key, "")) for suite in got) == sum(row.status == status for row in rows)
    cases = [case for suite in got for case in suite.iter("testcase")]
    assert sum(not len(case) for case in cases) == sum(row.status == PASSED for row in rows)


BREAKS: dict[str, tuple[str | re.Pattern[str], str]] = {
    "a suite without a host": ('hostname="localhost"', ""),
    "an empty host": ('hostname="localhost"', 'hostname=""'),
    "a time with a zone": ('T00:00:00"', 'T00:00:00Z"'),
    "a time of day alone": ('timestamp="1970-01-01T', 'timestamp="'),
    "a skipped rule": ('skipped="0"', 'skipped="1"'),
    "no count": ('tests="6"', 'tests="many"'),
    "a negative count": ('tests="6"', 'tests="-1"'),
    "no properties": (re.compile(r"<properties>.*</properties>", re.DOTALL), ""),
    "no system-out": (re.compile(r"<system-out>.*</system-out>", re.DOTALL), ""),
    "a case without a class": (' classname="roofcast"', ""),
    "an attribute that Ant does not know": ('<testcase name="cost"', '<testcase file="x" name="cost"'),
    "totals that Ant does not know": ("<testsuites>", '<testsuites tests="6">'),
    "a failure without a type": (' type="ttft"', ""),
    "a failure and an error": ("</failure>", '</failure><error type="x" message="" />'),
    "a skipped element": ("</failure>", "</failure><skipped />"),
    "an element of its own": ("</properties>", "</properties><rule />"),
    "no time": ('classname="roofcast" time="0"', 'classname="roofcast"'),
}


@pytest.mark.parametrize("name", BREAKS)
def test_the_schema_refuses(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The schema that the tests hold files against refuses what Ant's or Jenkins' would."""
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "0")
    text = render_junit(page((*SEVERAL[:1], SLOW, GROWN, LOADED, FITS, SEVERAL[-1])))
    what, instead = BREAKS[name]
    broken = re.sub(what if isinstance(what, re.Pattern) else re.escape(what), instead, text, count=1)

    assert broken != text
    assert SCHEMA.is_valid(text)
    assert not SCHEMA.is_valid(broken)
