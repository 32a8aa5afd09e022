"""One document as one page: whole, escaped, readable in both schemes, with the formulas of its numbers."""

from __future__ import annotations

import re
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from importlib.resources import files
from typing import TYPE_CHECKING, Final

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from roofcast.calculators.answer import remarks
from roofcast.reports.document import Document, Made, Section, plain, table
from roofcast.reports.page import render_page
from tests.pages import (
    COMMANDS,
    HOSTILE,
    Element,
    Result,
    Verdict,
    attributes,
    cells,
    data_of,
    document_of,
    hostile,
    read,
    squeezed,
)
from tests.running import roofcast

if TYPE_CHECKING:
    from pathlib import Path


# elements that a page may have; anything else came from outside
KNOWN: Final = frozenset(
    (
        *("html", "head", "meta", "title", "link", "style", "body", "header", "main", "nav", "section", "footer"),
        *("h1", "h2", "p", "a", "ul", "li", "dl", "dt", "dd", "br", "span", "strong", "code", "pre", "div"),
        *("table", "caption", "thead", "tbody", "tr", "th", "td", "details", "summary", "figure", "figcaption"),
        *("svg", "g", "defs", "path", "use", "text", "tspan", "rect", "clippath", "pattern", "desc"),
    )
)
TINY: Final = Document("kv", {}, None, ())


def css_of(page: str) -> str:
    """Return the style sheet of a page."""
    return read(page).one("style").text


def test_the_page_is_whole_and_closed(root: Element) -> None:
    """Elements are nested, `lang` is set, the charset comes first, one title, one h1, the landmarks once each."""
    head = root.one("head")

    assert root.attributes == {"lang": "en"}
    assert next(child.attributes for child in head.children if isinstance(child, Element)) == {"charset": "utf-8"}
    assert head.one("title").text == "llama-3.1-8b on h100-sxm: 104 at once - roofcast report"
    assert Counter(element.tag for element in root.walk())["h1"] == 1
    assert all(len(root.all(tag)) == 1 for tag in ("header", "main", "nav", "footer"))
    assert {element.tag for element in root.walk()} <= KNOWN


def test_nothing_is_loaded_and_nothing_runs(root: Element, page: str) -> None:
    """No script, no handler, no address but places of the page itself; the policy forbids all but its own style."""
    policies = [meta.attributes["content"] for meta in root.all("meta") if "http-equiv" in meta.attributes]

    assert policies == [
        "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"
    ]
    assert [link.attributes["href"] for link in root.all("link")] == ["data:,"]
    for element, name, value in attributes(root):
        assert not name.startswith("on"), (element.tag, name)
        assert name not in {"src", "srcset", "action", "data", "poster"}, (element.tag, name)
        if name == "href" and element.tag != "link":
            assert value.startswith("#"), value
        for address in re.findall(r"url\(([^)]*)\)", value):
            assert address.startswith("#"), value
    assert "url(" not in css_of(page)
    assert "@import" not in css_of(page)


def test_names_in_the_page_are_unique_and_resolve(root: Element) -> None:
    """An id stands once; links, clip paths, marks and labels lead to one."""
    ids = Counter(value for _, name, value in attributes(root) if name == "id")
    wanted = {
        place
        for _, name, value in attributes(root)
        for place in (
            *(value[1:].split() if name == "href" and value.startswith("#") else ()),
            *(value.split() if name in {"aria-labelledby", "aria-describedby"} else ()),
            *re.findall(r"url\(#([^)]*)\)", value),
        )
    }

    assert ids.most_common(1)[0][1] == 1
    assert wanted
    assert wanted - ids.keys() == set()


def test_sections_stand_in_order_with_contents(root: Element, whole: Document) -> None:
    """A heading a section, as the contents name them; then assumptions, what was asked, and the command."""
    headings = [(heading.attributes["id"], heading.text) for heading in root.all("h2")]
    contents = [(link.attributes["href"][1:], link.text) for link in root.one("nav").all("a")]
    last = ["page-assumptions", "page-asked", "page-made"]

    assert [key for key, _ in headings] == [*COMMANDS, *last]
    assert [key for key, _ in contents] == [*COMMANDS, *last]
    assert headings[: len(COMMANDS)] == contents[: len(COMMANDS)]
    assert root.one("pre").text == (whole.made or Made("", "", "")).command
    for section in whole.sections:
        assert section.lead in root.text


@pytest.mark.parametrize(
    ("status", "kind", "sign"),
    [
        ("fits", "good", "\u2713"),
        ("meets", "good", "\u2713"),
        ("misses", "bad", "\u2717"),
        ("does not fit", "bad", "\u2717"),
    ],
)
def test_the_verdict_comes_first_in_words_and_signs(status: str, kind: str, sign: str) -> None:
    """Before the headline, with a sign that screen readers leave out."""
    document = replace(TINY, lines=("a headline", "a second line"), result=Result(Verdict(status)))
    first = read(render_page(document)).one("main").all("section")[0]

    assert first.attributes["class"] == f"verdict {kind}"
    assert [squeezed(part.text) for part in first.all("p", "h1")] == [f"{sign} {status}", "a headline", "a second line"]
    assert first.all("span")[0].attributes == {"aria-hidden": "true"}


@pytest.mark.parametrize(("fits", "said"), [(True, "fits"), (False, "does not fit"), (None, None), ("yes", None)])
def test_an_answer_that_fits_has_a_status(fits: object, said: str | None) -> None:
    """`fit` says whether it fits; what says nothing has no status."""

    class Answer:
        def __init__(self) -> None:
            self.fits = fits

    first = read(render_page(replace(TINY, lines=("a",), result=Answer()))).one("main").all("section")[0]

    assert (("class", "status") in [tuple(pair) for p in first.all("p") for pair in p.attributes.items()]) == bool(said)
    assert (said or "") in first.text


@pytest.mark.parametrize(
    ("inputs", "headline"),
    [({"model": "gpt2"}, "kv: gpt2"), ({"models": ["a", "b"]}, "kv: a, b"), ({"model": None}, "roofcast kv")],
)
def test_without_a_line_the_headline_names_what_it_is_of(inputs: dict[str, object], headline: str) -> None:
    """The command, and the model or models."""
    assert read(render_page(replace(TINY, inputs=inputs))).one("h1").text == headline


def test_every_cell_is_where_the_document_has_it(root: Element, whole: Document) -> None:
    """Tables in order: caption, headings that name their column, rows whose first cells name them, numbers to the right."""
    documents = [table for section in whole.sections for table in section.document.tables]
    shown = root.all("table")[:-1]

    assert len(shown) == len(documents) > 10
    for element, asked in zip(shown, documents, strict=True):
        [caption] = element.all("caption")
        head, *body = element.all("tr")
        assert caption.text
        assert caption.text == asked.title or caption.attributes["class"] == "unseen"
        assert cells(head) == [data_of(name) for name in asked.header]
        assert [cells(row) for row in body] == [[squeezed(cell) for cell in row] for row in asked.rows]
        assert {heading.attributes["scope"] for heading in head.all("th")} == {"col"}
        for row in body:
            assert [cell.attributes.get("scope") for cell in row.all("th", "td")] == [
                "row" if number < asked.keys and row.all("th", "td")[number].text else None
                for number in range(len(asked.header))
            ]
            assert [cell.attributes.get("class", "").split(" ")[0] == "w" for cell in row.all("th", "td")] == [
                number in asked.left for number in range(len(asked.header))
            ]


def test_wide_tables_and_charts_can_be_scrolled_by_keyboard(root: Element) -> None:
    """What may be wider than a telephone is a region with a name that takes the focus."""
    regions = [element for element in root.all("div") if "scroll" in element.attributes.get("class", "").split()]
    focused = [element for element in regions if element.attributes.get("tabindex") == "0"]

    assert all(element.attributes["role"] == "region" for element in focused)
    assert all(element.attributes.keys() & {"aria-label", "aria-labelledby"} for element in focused)
    assert sum(bool(element.all("svg")) for element in focused) == 2  # roofline and points
    assert sum(bool(element.all("table")) for element in focused) > 5


def test_remarks_are_said(root: Element, whole: Document) -> None:
    """Notes in an expander of the section, warnings and assumptions in sight, all of these once more at the end."""
    [end] = [part for part in root.all("section") if part.attributes.get("aria-labelledby") == "page-assumptions"]

    assert "a note of all" in " ".join(part.text for part in root.all("details"))
    for section in whole.sections:
        [part] = [part for part in root.all("section") if part.attributes.get("aria-labelledby") == section.key]
        folded = " ".join(squeezed(details.text) for details in part.all("details"))
        for warning in section.document.remarks.warnings:
            assert data_of(warning).partition(": ")[2] in squeezed(part.text)
            assert data_of(warning).partition(": ")[2] not in folded
        for line in (*section.document.remarks.warnings, *section.document.remarks.assumptions):
            assert data_of(line).partition(": ")[2].replace("`", "") in squeezed(end.text)


def test_an_assumption_stands_in_the_first_section_that_has_it() -> None:
    """And in no later one; warnings stand in each."""
    part = replace(TINY, remarks=remarks(["assumed this"], ["warned that"]))
    document = replace(TINY, sections=(Section("a", "A", "", part), Section("b", "B", "", part)))
    sections = read(render_page(document)).all("section")
    said = [(section.text.count("assumed this"), section.text.count("warned that")) for section in sections]

    assert said == [(0, 0), (1, 1), (0, 1), (1, 1), (0, 0)]


def test_what_was_asked_is_a_table(root: Element) -> None:
    """Settings with a value; those left alone are named below."""
    asked = root.all("table")[-1]

    assert [cells(row) for row in asked.all("tr")] == [
        ["model", "llama-3.1-8b"],
        ["gpu", "h100-sxm"],
        ["contexts", "4096"],
        ["mtp", "no"],
    ]
    assert "Left as they are by default: revision." in root.text


def test_options_and_backticks_are_code() -> None:
    """Not broken at their dashes."""
    shown = read(render_page(replace(TINY, lines=("a", "see --gpu-price and `fit x`, not a--b")))).one("main")

    assert [code.text for code in shown.all("code")] == ["--gpu-price", "fit x"]
    assert "see --gpu-price and fit x, not a--b" in shown.text


def test_the_same_document_makes_the_same_page(whole: Document, page: str) -> None:
    """Byte for byte."""
    assert render_page(whole) == page


def test_the_page_of_all_charts_is_small(page: str) -> None:
    """Far below 1.5 MB, which a report may take."""
    assert len(page.encode()) < 500_000


# what comes from outside


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_name_stays_text(name: str) -> None:
    """Wherever a name may stand, it is read as it is; no element, handler or address comes of it."""
    page = render_page(hostile(document_of("kv", "llama-3.1-8b"), name))
    root = read(page)

    assert {element.tag for element in root.walk()} <= KNOWN
    assert page.count("<style>") == page.count("</style>") == 1
    for element in (root.one("h1"), root.one("pre"), root.all("h2")[0]):
        assert name in element.text
    assert name in {desc.text for desc in root.all("desc")}
    assert name in {caption.text for caption in root.all("figcaption")}
    assert name in {cell.text for cell in root.all("th")}
    assert sum(name in item.text for item in root.all("li")) >= 5
    for element, key, value in attributes(root):
        assert not key.startswith("on")
        assert name not in value or element.tag == "meta"  # the release that made it


def test_a_name_in_a_chart_stays_text(tmp_path: Path) -> None:
    """A folder with a name of that kind, drawn by matplotlib and read back."""
    from tests.checkpoints import TINY as CONFIG
    from tests.checkpoints import folder_of

    name = "<img src=x onerror=alert(1)>&amp;]]>"
    out = tmp_path / "page.html"
    outcome = roofcast("kv", folder_of(tmp_path / name, CONFIG), "--out", str(out))
    texts = [squeezed(text.text) for text in read(out.read_text()).all("text")]

    assert outcome.code == 0, outcome.err
    assert any("<img" in text for text in texts), texts
    assert "<img" not in out.read_text()


@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow])
@given(text=st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=60))
def test_any_text_is_read_back(text: str) -> None:
    """Control characters and marks that turn text around are question marks; all else is as it was."""
    shown = plain(text)
    cell = table(("a", "b"), [("x", text)], title=text)
    page = render_page(replace(TINY, lines=("first", f"|{text}|"), tables=(cell,), made=Made(f"|{text}|", "1", "d")))
    root = read(page)

    assert root.one("pre").text == plain(f"|{text}|")
    assert root.all("td")[0].text == shown
    assert root.all("caption")[0].text == shown
    assert plain(f"|{text}|").replace("`", "") in root.one("main").text.replace("`", "")
    assert all(character.isprintable() or character == "\n" for character in page)


def test_templates_trust_nothing() -> None:
    """No filter lets markup through; what is ours is marked where it is made, in three places."""
    templates = files("roofcast.reports") / "templates"
    text = "".join(part.read_text() for part in templates.iterdir())
    page = (files("roofcast.reports") / "page.py").read_text()

    assert not re.search(r"\|\s*safe|autoescape", text)
    assert text.count("ours(") == 1
    assert page.count("Markup(") == 2


# what a page costs


def modules_after(command: str) -> set[str]:
    """Return the top-level modules that are loaded once a command has written a page."""
    run = (
        "import runpy, sys; sys.argv = ['roofcast', *sys.argv[1:]]\n"
        "try: runpy.run_module('roofcast', run_name='__main__', alter_sys=True)\n"
        "except SystemExit as stop: assert not stop.code\n"
        "print(' '.join(sys.modules), file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-P", "-c", run, *command.split()], capture_output=True, check=True, text=True, timeout=60
    )
    return set(done.stderr.split())


def test_a_page_without_charts_loads_no_matplotlib() -> None:
    """Nor does any other format load what pages are made with."""
    assert not modules_after("levers llama-3.1-8b --gpu h100-sxm --format html") & {"matplotlib", "numpy"}
    assert not modules_after("kv llama-3.1-8b --format json") & {"jinja2", "markupsafe", "matplotlib"}


def test_without_docstrings_there_are_no_formulas() -> None:
    """`python -OO` strips them; the page is made all the same."""
    done = subprocess.run(
        [
            sys.executable,
            "-P",
            "-OO",
            "-m",
            "roofcast",
            "levers",
            "llama-3.1-8b",
            "--gpu",
            "h100-sxm",
            "--format",
            "html",
        ],
        capture_output=True,
        check=True,
        text=True,
        timeout=60,
    )
    assert "Formulas" not in read(done.stdout).text
    assert len(read(done.stdout).all("table")) == 2
