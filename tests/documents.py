"""The documents of the repository: their blocks, the commands in them and what these print."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]
DOCS = REPOSITORY / "docs"
DOCUMENTS = [REPOSITORY / "README.md", *sorted(DOCS.rglob("*.md"))]
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


def write_files(text: str, home: Path) -> None:
    """Write the files that a document shows into $ROOFCAST_HOME."""
    for block in blocks(text):
        if len(block.info) == 2 and block.info[0] == "yaml" and "/" in block.info[1]:
            target = home / block.info[1]
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text("\n".join(block.lines) + "\n")


def write_tables(text: str, folder: Path) -> None:
    """Write the tables and other files without a folder, which a document shows, where its commands run."""
    for block in blocks(text):
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
    """Cut an output as the document cuts it, with `...` lines between what is kept.

    As many lines stay before the first `...` and after the last one; a part between two is found by its first line.

    >>> shortened(("a", "b", "c", "d", "e"), ("1", "...", "c", "4", "..."))
    ('a', '...', 'c', 'd', '...')
    """
    if "..." not in like:
        return output
    first, *middle, last = parts(like)
    kept, at = [*output[: len(first)]], len(first)
    for part in middle:
        if part[0] not in output[at:]:
            return like
        at = output.index(part[0], at)
        kept += ["...", *output[at : at + len(part)]]
        at += len(part)
    return (*kept, "...", *output[len(output) - len(last) :])


def parts(lines: tuple[str, ...]) -> list[list[str]]:
    """Return what stands before, between and after `...` lines.

    >>> parts(("a", "...", "b"))
    [['a'], ['b']]
    """
    found: list[list[str]] = [[]]
    for line in lines:
        if line == "...":
            found.append([])
        else:
            found[-1].append(line)
    return found
