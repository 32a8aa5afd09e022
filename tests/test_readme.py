"""What README.md and docs/ print is what happens.

A ```` ```console ```` block holds `$ roofcast ...` lines, each followed by what it prints (`...` stands for anything,
`# exit 2` after the command for its exit code). A ```` ```yaml accelerators/x.yaml ```` block is a file of
$ROOFCAST_HOME that the commands of the same document find; one without a folder in its name, ```` ```yaml x.yaml ````,
```` ```json x.json ````, ```` ```csv x.csv ```` or ```` ```text x.log ````, is one where they run. ```` ```sh setup ````
is the installation, run by .ci/run.
"""

from __future__ import annotations

import doctest
from pathlib import Path

import pytest

from tests.documents import (
    DOCUMENTS,
    REPOSITORY,
    Example,
    blocks,
    examples,
    output_of,
    shortened,
    write_files,
    write_tables,
)


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
    pytest.param(example, id=f"{document.relative_to(REPOSITORY)}:{example.line + 1}")
    for document in DOCUMENTS
    for example in examples(document)
]


@pytest.mark.parametrize("example", ALL)
def test_a_documented_command_prints_what_the_document_prints(
    example: Example, home: Path, tmp_path: Path, *, update_golden: bool
) -> None:
    """Every `$ roofcast` line runs, ends with the exit code it names and prints the lines under it."""
    text = example.document.read_text()
    write_files(text, home)
    write_tables(text, tmp_path)

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
