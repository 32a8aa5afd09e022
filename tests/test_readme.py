"""What README.md and docs/ print is what happens.

A ```` ```console ```` block holds `$ roofcast ...` lines, each followed by what it prints (`...` stands for anything,
`# exit 2` after the command for its exit code). A ```` ```yaml accelerators/x.yaml ```` block is a file of
$ROOFCAST_HOME that the commands of the same document find; one without a folder in its name, ```` ```yaml x.yaml ````,
```` ```json x.json ````, ```` ```csv x.csv ```` or ```` ```text x.log ````, is one where they run. ```` ```sh setup ````
is the installation, run by .ci/run.
"""

from __future__ import annotations

import doctest
import re
import shlex
import subprocess
import sys
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[1]
DOCUMENTS = [REPOSITORY / "README.md", *sorted((REPOSITORY / "docs").glob("*.md"))]
FENCE = "```"
FILES = {"csv", "json", "text", "yaml"}  # kinds of blocks that are files, where a name follows


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block: the words after its fence, the number of its first line, its lines."""

    info: tuple[str, ...]
    start: int
    lines: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Example:
    """A command of a document, the exit code it names and the output printed under it."""

    document: Path
    line: int
    command: str
    printed: tuple[str, ...]

    @property
    def code(self) -> int:
        """The exit code after `# exit`, 0 where none is named."""
        named = re.search(r"# exit (\d+)$", self.command)
        return int(named[1]) if named else 0


def blocks(text: str) -> list[Block]:
    """Return the fenced blocks of a Markdown text."""
    lines = text.splitlines()
    fences = [number for number, line in enumerate(lines) if line.startswith(FENCE)]
    return [
        Block(tuple(lines[first].removeprefix(FENCE).split()), first + 1, tuple(lines[first + 1 : last]))
        for first, last in zip(fences[::2], fences[1::2], strict=True)
    ]


def examples(document: Path) -> list[Example]:
    """Return the commands of a document's console blocks."""
    return [
        Example(document, block.start + number, line.removeprefix("$ "), printed_after(block.lines[number + 1 :]))
        for block in blocks(document.read_text())
        if block.info == ("console",)
        for number, line in enumerate(block.lines)
        if line.startswith("$ ")
    ]


def printed_after(lines: tuple[str, ...]) -> tuple[str, ...]:
    """Return the lines before the next command."""
    return tuple(takewhile(lambda line: not line.startswith("$ "), lines))


def write_files(document: Path, home: Path) -> None:
    """Write the files that a document shows into $ROOFCAST_HOME."""
    for block in blocks(document.read_text()):
        if len(block.info) == 2 and block.info[0] == "yaml" and "/" in block.info[1]:
            target = home / block.info[1]
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text("\n".join(block.lines) + "\n")


def write_tables(document: Path, folder: Path) -> None:
    """Write the tables and other files without a folder, which a document shows, where its commands run."""
    for block in blocks(document.read_text()):
        if len(block.info) == 2 and block.info[0] in FILES and "/" not in block.info[1]:
            (folder / block.info[1]).write_text("\n".join(block.lines) + "\n")


def output_of(example: Example, folder: Path) -> tuple[str, ...]:
    """Run a command in a folder, hold its exit code against the document's, return the lines it prints."""
    program, *arguments = shlex.split(example.command, comments=True)
    assert program == "roofcast"
    done = subprocess.run(
        [sys.executable, "-P", "-m", "roofcast", *arguments],
        check=False,
        cwd=folder,
        stderr=subprocess.STDOUT,
        stdout=subprocess.PIPE,
        text=True,
        timeout=60,
    )
    assert done.returncode == example.code, done.stdout
    return tuple(line.rstrip() for line in done.stdout.rstrip().splitlines())


def shortened(output: tuple[str, ...], like: tuple[str, ...]) -> tuple[str, ...]:
    """Cut an output as the document cuts it: as many lines before a last `...`, or after a first one."""
    kept = len(like) - 1
    if like[:1] == ("...",):
        return ("...", *output[len(output) - kept :])
    if like[-1:] == ("...",):
        return (*output[:kept], "...")
    return like if "..." in like else output


def rewrite(example: Example, output: tuple[str, ...]) -> None:
    """Put a command's real output under it.

    The text is read anew and the command found by its text: an earlier rewrite may have moved it.
    """
    text = example.document.read_text()
    before = "\n".join((f"$ {example.command}", *example.printed, ""))
    after = "\n".join((f"$ {example.command}", *shortened(output, example.printed), ""))
    assert text.count(before) >= 1
    example.document.write_text(text.replace(before, after, 1))


ALL = [
    pytest.param(example, id=f"{document.name}:{example.line + 1}")
    for document in DOCUMENTS
    for example in examples(document)
]


@pytest.mark.parametrize("example", ALL)
def test_a_documented_command_prints_what_the_document_prints(
    example: Example, home: Path, tmp_path: Path, *, update_golden: bool
) -> None:
    """Every `$ roofcast` line runs, ends with the exit code it names and prints the lines under it."""
    write_files(example.document, home)
    write_tables(example.document, tmp_path)

    output = output_of(example, tmp_path)

    if update_golden:
        rewrite(example, output)
        return
    want, got = ("\n".join((*lines, "")) for lines in (example.printed, output))
    assert doctest.OutputChecker().check_output(want, got, doctest.ELLIPSIS), f"printed now:\n{got}"


def test_the_readme_shows_at_least_one_command() -> None:
    """A README whose console blocks are no longer recognised does not pass unnoticed."""
    assert any(example.document.name == "README.md" for example in examples(DOCUMENTS[0]))


def test_the_readme_has_two_setup_commands() -> None:
    """On a fresh machine two commands do all: one runs roofcast, without extras, the other ends in the checks."""
    [setup] = [block for block in blocks(DOCUMENTS[0].read_text()) if block.info == ("sh", "setup")]

    first, second = setup.lines

    assert "pip install . " in first
    assert "roofcast kv" in first
    assert "-c constraints.txt" in second
    assert second.endswith("&& make check")
