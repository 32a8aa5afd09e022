"""docs/commands has a page a command, which says what the command says of itself; every link of the documents leads somewhere."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any

import pytest
import typer
from markdown_it import MarkdownIt

from roofcast.cli.app import COMMANDS
from tests.command_pages import (
    EXAMPLES,
    INDEX,
    MORE,
    PAGES,
    Shown,
    commands,
    escaped,
    on_the_page,
    options,
    page,
    usage,
    with_beneath,
    with_list,
)
from tests.documents import DOCS, DOCUMENTS, Example, blocks, output_of, write_tables

MADE = commands()


@pytest.mark.parametrize("name", MADE)
def test_a_page_says_what_its_command_says(name: str, tmp_path: Path, *, update_golden: bool) -> None:
    """A page is the one that the command makes, but for the output of examples, which test_readme holds."""
    path, printed = PAGES / f"{name}.md", on_the_page(name)

    def shown(example: Shown) -> tuple[str, ...]:
        before = printed.get(example.command, ())
        if example.fits(before) or not update_golden:
            return before
        write_tables(example.file, tmp_path)
        return example.cut(output_of(Example(path, 0, f"roofcast {example.command}", ()), tmp_path))

    made = page(name, MADE[name], shown)

    if update_golden:
        path.write_text(made)
    assert path.exists(), f"no page of {name}: make golden"
    assert path.read_text() == made, "make golden"
    assert [e.command for e in EXAMPLES.get(name, ()) if not e.fits(on_the_page(name)[e.command])] == []


def test_pages_and_commands_are_one_to_one() -> None:
    """No page is of a command that there is no more, and `--help` lists those that app.py does."""
    assert {path.stem for path in PAGES.glob("*.md")} == set(MADE) == set(COMMANDS)
    assert {*EXAMPLES, *MORE} <= set(MADE)


def test_the_index_lists_commands_and_pages(*, update_golden: bool) -> None:
    """docs/README.md has a row a command, with its first sentence, and a link to every other document."""
    if update_golden:
        INDEX.write_text(with_list(INDEX.read_text(), MADE))

    index = INDEX.read_text()

    assert index == with_list(index, MADE), "make golden"
    assert [p.name for p in DOCUMENTS[1:] if p != INDEX and f"]({p.relative_to(DOCS).as_posix()})" not in index] == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_links_lead_somewhere(document: Path) -> None:
    """A link to a file of the repository finds it, and the heading in it where it names one."""
    links = re.findall(r"\]\((?!https?:)([^)#\s]*)(?:#([^)\s]+))?\)", prose(document))

    targets = [((document.parent / path) if path else document, anchor) for path, anchor in links]

    assert [str(path) for path, _ in targets if not path.exists()] == []
    assert [(path.name, anchor) for path, anchor in targets if anchor and anchor not in anchors(path)] == []


def prose(document: Path) -> str:
    """Return a document without its blocks, whose lines are no Markdown."""
    lines = document.read_text().splitlines()
    shut = {
        number
        for block in blocks(document.read_text())
        for number in range(block.start, block.start + len(block.lines))
    }
    return "\n".join(line for number, line in enumerate(lines) if number not in shut)


def anchors(document: Path) -> set[str]:
    """Return the names under which GitHub finds a document's headings."""
    titles = re.findall(r"^#+ (.*)$", prose(document), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("name", MADE)
def test_a_browser_shows_every_option_as_help_has_it(name: str) -> None:
    """Rendered, a row of the table is the option and its help to the letter: no bracket, bar or star is lost."""
    for command in with_beneath(MADE[name]):
        [table] = options(command)
        cells = [token.children for token in MarkdownIt().enable("table").parse(table) if token.type == "inline"]
        texts = ["".join(part.content for part in children or ()) for children in cells]
        helps = [(parameter.help or "").replace("`", "").rstrip(".") for parameter in command.params]

        assert {part.type for children in cells for part in children or ()} <= {"text", "code_inline"}
        assert [h for h, cell in zip(helps, texts[3:-2:2], strict=True) if not cell.startswith(h)] == []


def test_a_page_is_as_wide_as_any_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a page says does not depend on where it is made."""
    made = []
    for columns in ("30", "200"):
        monkeypatch.setenv("COLUMNS", columns)
        made.append([page(name, command, lambda _: ("...",)) for name, command in commands().items()])

    assert made[0] == made[1]


def invented() -> Any:
    """Return a command with every kind of parameter that ours have not got yet."""
    app = typer.Typer(add_completion=False)

    def invented(
        one: Annotated[str, typer.Argument(metavar="ONE", help="Needed.")],
        many: Annotated[list[str] | None, typer.Argument(metavar="[MANY...]", help="Any [of] *these* | none.")] = None,
        k: Annotated[int, typer.Option("--k", "-k", metavar="K", help="Tokens, as --many.")] = 4,
        quick: Annotated[bool, typer.Option("--quick/--slow", help="How.")] = False,
        secret: Annotated[bool, typer.Option("--secret", hidden=True)] = False,
    ) -> None:
        """First.

        Second <b>.
        """

    app.command()(invented)
    return typer.main.get_command(app)


def test_usage_default_and_escapes() -> None:
    """Arguments in brackets where they may be left out, defaults behind the text, hidden options nowhere."""
    command = invented()

    [table] = options(command)

    assert usage("x", command) == "roofcast x [OPTIONS] ONE [MANY...]"
    assert table.splitlines()[2:] == [
        "| `ONE` | Needed. |",
        "| `MANY...` | Any \\[of\\] \\*these\\* \\| none. |",
        "| `--k, -k K` | Tokens, as `--many` (default: 4). |",
        "| `--quick, --slow` | How. |",
        "| `--help` | Show the options and leave. |",
    ]
    assert "Second \\<b\\>." in page("x", command, lambda _: ())


def test_code_stays_code() -> None:
    """Help that has back-ticks keeps them."""
    assert escaped("writes `<id>.yaml`") == "writes `<id>.yaml`"
