"""What GitHub shows of `check`: annotations that the runner reads, and a summary that renders and does no harm."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from roofcast.calculators.answer import remarks
from roofcast.calculators.check_rows import FAILED, PASSED, UNDETERMINED, Locked
from roofcast.reports.document import plain
from roofcast.reports.github import annotation_lines, problem_annotations, render_summary
from roofcast.reports.outputs import outputs_of
from tests.checked import CODES, FITS, GROWN, LOADED, LOCKS, SEQUENCES, SEVERAL, SLOW, page, rule, told

if TYPE_CHECKING:
    from pathlib import Path

    from roofcast.reports.document import Document

TEXTS = st.text(st.characters(exclude_categories=()), max_size=40)
CELLS = {"td", "th"}
HOSTILE = (
    "<img src=x onerror=alert(1)>",
    "</details></table><script>alert(1)</script>",
    "<!-- x",
    "[a](http://evil.example)",
    "![a](http://evil.example/x.png)",
    "http://evil.example https://evil.example",
    "www.evil.example WWW.evil.example",
    "<http://evil.example>",
    "@octocat @org/team me@evil.example",
    "#1 org/repo#1",
    "a | b || c \\| d",
    "`x` ``y`` `",
    "**bold** __bold__ _x_ ~~gone~~",
    "$x^2$ $$y$$",
    "&lt;b&gt; &#64;octocat",
    "line\nbreak\r\n\n# heading\n- item",
    "::error::x ##[error]x",
    "\\\\",
    "\N{GRINNING FACE}\u202e\ud800",
)


class Rendered(HTMLParser):
    """Rendered Markdown: every element, and the text of every cell of every table."""

    def __init__(self, markdown: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.links: list[str] = []
        self.tables: list[list[list[str]]] = []
        self.open = 0
        self.inside = False
        self.text: list[str] = []
        self.feed(MarkdownIt("commonmark", {"html": True}).enable("table").render(markdown))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note the element; tables, rows and cells begin."""
        self.tags.append(tag)
        self.links += [value or "" for name, value in attrs if name in {"href", "src"}]
        self.open += tag == "details"
        if tag == "table":
            self.tables.append([])
        elif tag == "tr":
            self.tables[-1].append([])
        elif tag in CELLS:
            self.tables[-1][-1].append("")
            self.inside = True

    def handle_endtag(self, tag: str) -> None:
        """A folded part ends, or a cell."""
        self.open -= tag == "details"
        self.inside &= tag not in CELLS

    def handle_data(self, data: str) -> None:
        """Add to the cell that is open, as far as there is one."""
        self.text.append(data)
        if self.inside:
            self.tables[-1][-1][-1] += data


def rendered(document: Document) -> Rendered:
    """Return a document's summary as GitHub would render it."""
    return Rendered(render_summary(document))


def read(line: str) -> tuple[str, dict[str, str], str]:
    """Read a workflow command as the runner does: name, properties, message, each unescaped."""
    found = re.fullmatch(r"::(?P<name>\w+)(?: (?P<properties>.*?))?::(?P<message>.*)", line)
    assert found, line
    pairs = [pair.split("=", 1) for pair in (found["properties"] or "").split(",") if pair]
    data = {"%0D": "\r", "%0A": "\n"}
    inside = {**data, "%3A": ":", "%2C": ","}
    return found["name"], {name: unescape(value, inside) for name, value in pairs}, unescape(found["message"], data)


def unescape(text: str, escapes: dict[str, str]) -> str:
    """Undo escapes, the per cent sign last."""
    for escaped, meant in escapes.items():
        text = text.replace(escaped, meant)
    return text.replace("%25", "%")


def test_each_rule_that_does_not_pass_is_a_line() -> None:
    """Failures first, then what cannot be told, each an error at its line; passed rules have none."""
    grown = GROWN.message.replace("%", "%25")

    assert annotation_lines(told(SEVERAL)).splitlines() == [
        "::error file=roofcast.yaml,line=8,title=failed%3A first token::612.3 ms; at most 500 ms is required",
        f"::error file=roofcast.yaml,line=13,title=failed%3A kv bytes::{grown}",
        "::error file=roofcast.yaml,line=17,title=cannot be told%3A tpot p99::no request has such a time",
    ]
    assert annotation_lines(told([FITS])) == ""


def test_a_rule_without_a_line_names_its_file_alone() -> None:
    """A lock stands nowhere in a rule file."""
    name, properties, _ = read(annotation_lines(told([rule("lock: model m", FAILED, line=0)])).rstrip("\n"))

    assert (name, properties) == ("error", {"file": "roofcast.yaml", "title": "failed: lock: model m"})


def test_properties_are_escaped_as_the_toolkit_does() -> None:
    """Colons and commas end no property, line breaks and per cent signs no command."""
    row = rule("a:b,c=d::e 50%", FAILED, message="x%0Ay :: 5%, z")

    assert annotation_lines(told([row])) == (
        "::error file=roofcast.yaml,line=5,title=failed%3A a%3Ab%2Cc=d%3A%3Ae 50%25::x%250Ay :: 5%25, z\n"
    )


@given(TEXTS, TEXTS)
def test_any_name_and_message_come_back(name: str, message: str) -> None:
    """Whatever a rule is called, it is one line, and the runner reads its name and message, made printable."""
    text = annotation_lines(told([rule(name, FAILED, message=message)]))

    assert text.count("\n") == 1
    kind, properties, got = read(text.rstrip("\n"))
    assert (kind, properties["line"], sorted(properties)) == ("error", "5", ["file", "line", "title"])
    for original, shown in ((f"failed: {name}", properties["title"]), (message, got)):
        breaks = original.replace("\r", "\n").replace("##[", "## [")
        assert plain(shown.replace("\r", "\n").replace("\n", "?")) == plain(breaks.replace("\n", "?"))


def test_the_older_form_of_a_command_is_none() -> None:
    """The runner takes `##[` as a command wherever it stands in a line."""
    text = annotation_lines(told([rule("##[error]x", FAILED, message="##[add-mask]y ###[debug]z")]))

    assert "##[" not in text


def test_the_last_annotation_that_github_shows_says_how_many_more() -> None:
    """Of 13 errors GitHub shows 10: all are printed, and the tenth says that there are 3 more; of 10 none does."""
    lines = [
        annotation_lines(told([rule(f"r{number}", FAILED) for number in range(many)])).splitlines() for many in (13, 10)
    ]

    assert list(map(len, lines)) == [13, 10]
    assert [number for number, line in enumerate(lines[0], 1) if "more" in line] == [10]
    assert lines[0][9].endswith("(and 3 more: see the log)")
    assert not any("more" in line for line in lines[1])


def test_files_are_named_from_the_root_of_the_checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """GitHub finds the line of a file whether it is named from the root, from a folder, or in full; others stay."""
    folder = tmp_path / "checkout" / "capacity"
    folder.mkdir(parents=True)
    monkeypatch.setenv("GITHUB_WORKSPACE", str(tmp_path / "checkout"))
    monkeypatch.chdir(folder)
    files = ["rules.yaml", "../rules.yaml", str(folder / "rules.yaml"), str(tmp_path / "rules.yaml"), "\ud800"]
    lines = annotation_lines(told([rule(file, FAILED, file=file) for file in files])).splitlines()

    assert [read(line)[1]["file"] for line in lines] == [
        "capacity/rules.yaml",
        "rules.yaml",
        "capacity/rules.yaml",
        str(tmp_path / "rules.yaml"),
        "?",
    ]


def test_what_is_wrong_with_a_file_is_annotated_at_its_line() -> None:
    """A problem of a rule file has its place; one without a place is an error of the step."""
    text = problem_annotations(["a.yaml:3: rule 'x': at 4:30: no, 5%", "a.yaml: is given twice"])

    assert text.splitlines() == [
        "::error file=a.yaml,line=3,title=malformed rule::rule 'x': at 4:30: no, 5%25",
        "::error title=nothing was checked::a.yaml: is given twice",
    ]


def test_the_format_github_is_the_annotations() -> None:
    """`--format github` writes the same lines."""
    assert outputs_of("check")["github"](page(SEVERAL)) == annotation_lines(told(SEVERAL))


def test_the_summary_renders() -> None:
    """Verdict, then what does not pass, what moved and what is locked; the rest folded; each cell where it belongs."""
    document = page(SEVERAL, remarks(["m: no dtype"], ["h: boosts"]), baseline="base.json", locks=LOCKS)
    seen = rendered(document)
    bad, moved, locks, good = seen.tables

    assert render_summary(document).splitlines()[0] == "### \N{CROSS MARK} 2 of 6 rules fail, 1 cannot be told"
    assert bad[0] == ["", "rule", "model", "gpu", "actual", "required", "room", "change", "why", "where"]
    assert [row[:8] for row in bad[1:]] == [
        ["\N{CROSS MARK}", "first token", "llama-3.1-8b", "h100-sxm", "612.3 ms", "<= 500 ms", "-22.5%", "+2.1%"],
        ["\N{CROSS MARK}", *("kv bytes", "my-org/my-model", "", "256 KiB/token", "<= 128 KiB/token", "-100%", "+100%")],
        ["\N{WHITE QUESTION MARK ORNAMENT}", "tpot p99", "llama-3.1-8b", "h100-sxm", "-", "<= 20 ms", "-", "-"],
    ]
    assert [row[8:] for row in bad[1::2]] == [
        ["612.3 ms; at most 500 ms is required", "roofcast.yaml:8"],
        ["no request has such a time", "roofcast.yaml:17"],
    ]
    assert moved[1:] == [
        ["first token", "600 ms", "612.3 ms", "+2.1%"],
        ["kv bytes", "128 KiB/token", "256 KiB/token", "+100%"],
        ["a hundred chats at 4k", "118", "121", "+2.5%"],
    ]
    assert locks[1:] == [["model my-org/my-model@v2", "abc1234", "def5678"]]
    assert [row[0] for row in good[1:]] == ["a hundred chats at 4k", "weights fit", "cost"]
    assert {"details", "summary", "li", "h3"} <= set(seen.tags)
    assert seen.open == 0
    whole = "".join(seen.text)
    for said in (
        "3 passed",
        "assumed: m: no dtype",
        "warning: h: boosts",
        "base.json",
        "roofcast 0.1.0, facts 12ab34cd",
    ):
        assert said in whole


@pytest.mark.parametrize(
    ("rows", "headline"),
    [
        ([FITS, SEQUENCES], "### \N{WHITE HEAVY CHECK MARK} all 2 rules pass"),
        ([FITS, LOADED], "### \N{WHITE QUESTION MARK ORNAMENT} 1 of 2 rules cannot be told"),
        ([LOADED, SLOW], "### \N{CROSS MARK} 1 of 2 rules fails, 1 cannot be told"),
        ([], "### \N{WHITE HEAVY CHECK MARK} no rule"),
    ],
)
def test_the_sign_is_of_the_worst_rule(rows: list[object], headline: str) -> None:
    """What fails outweighs what cannot be told, and that what passes."""
    assert render_summary(page(rows)).splitlines()[0] == headline  # type: ignore[arg-type]


def test_a_summary_of_passed_rules_alone_has_no_table_of_failures() -> None:
    """Nothing is shown of what there is none of."""
    [good] = rendered(page([FITS])).tables

    assert [row[0] for row in good] == ["rule", "weights fit"]


def test_a_written_baseline_is_said() -> None:
    """After --update the summary says that the baseline was written."""
    assert "baseline: <code>base.json</code>, written by this run" in render_summary(
        page([FITS], baseline="base.json", updated=True)
    )


def test_two_summaries_follow_each_other() -> None:
    """GitHub appends: a summary ends with an empty line, so that the next heading is one."""
    seen = Rendered(render_summary(page([FITS])) + render_summary(page([SLOW])))

    assert seen.tags.count("h3") == 2


OWN_TAGS = {
    "h3", "table", "thead", "tbody", "tr", "th", "td", "code", "wbr", "span", "details", "summary", "ul", "li",
}  # fmt: skip


@pytest.mark.parametrize("text", HOSTILE)
def test_text_from_outside_stays_text(text: str) -> None:
    """Names are shown as they are: no element, link, mention, issue or formula comes of them."""
    rows = [
        rule(text, status, model=text, gpu=text, message=text, file=text, baseline=0.3, actual=0.25) for status in CODES
    ]
    said = remarks([text], [text])
    locks = [Locked("model", text, text, f"{text}.")]
    document = page(rows, said, baseline=text, locks=locks, facts_version=text)
    seen = rendered(document)

    assert set(seen.tags) - OWN_TAGS == set()
    assert seen.links == []
    assert seen.open == 0
    shown = plain(text)
    assert [row[1:4] for row in seen.tables[0][1:]] == [[shown] * 3] * 2
    assert [row[8:] for row in seen.tables[0][1:]] == [[shown, f"{shown}:5"]] * 2
    assert seen.tables[2][1:] == [[f"model {shown}", f"{shown}.", shown]]
    for piece in seen.text:  # GitHub looks for these in the text between elements
        assert re.search(r"@\w|\w#\d|#\d|https?://\w|www\.\w|\$.", piece, re.IGNORECASE) is None


@given(TEXTS)
def test_any_text_stays_text(text: str) -> None:
    """Whatever a rule is called, its cell shows that name, and nothing but our own elements is rendered."""
    seen = rendered(page([rule(text, FAILED, message=text)]))

    assert set(seen.tags) - OWN_TAGS == set()
    assert seen.tables[0][1][1].strip() == plain(text).strip()


@pytest.mark.parametrize("character", ["x", "$", "\N{GRINNING FACE}"])
def test_a_summary_stays_under_a_mebibyte(character: str) -> None:
    """A thousand rules with endless names are cut to what GitHub takes, and it is said how many are left out."""
    text = character * 5000
    rows = [rule(f"{number}{text}", status, message=text, baseline=0.3) for status in CODES for number in range(1000)]
    locks = [Locked("model", f"{number}{text}", text, text + ".") for number in range(1000)]
    said = remarks([f"{number}{text}" for number in range(1000)])
    document = page(rows, said, locks=locks, files=[text] * 1000)
    summary = render_summary(document)

    assert len(summary.encode()) < 2**20
    seen = Rendered(summary)
    assert seen.open == 0
    left_out = [int(number.replace(",", "")) for number in re.findall(r"^and ([\d,]+) more$", summary, re.MULTILINE)]
    # tables of failures and passed rules say so each; a row cut in two would lack cells
    shown = len(seen.tables[0]) - 1
    assert left_out[0] == 2000 - shown
    assert all(len(row) == len(rows[0]) for rows in seen.tables for row in rows)


def test_a_thousand_ordinary_rules_are_all_there() -> None:
    """The cut comes late: a thousand failures and as many passed rules of usual length are whole."""
    rows = [
        rule(f"tpot [llama-3.1-8b, h100-sxm, {number}]", status) for status in (FAILED, PASSED) for number in range(900)
    ]
    seen = rendered(page(rows))

    assert [len(table) for table in seen.tables] == [901, 901]


def test_statuses_are_those_that_there_are() -> None:
    """Each status has a sign: a new one would be noticed here."""
    assert {FAILED, UNDETERMINED, PASSED} == set(CODES)
    assert len(rendered(page([GROWN])).tables[0]) == 2
