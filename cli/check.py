"""`roofcast check`."""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from roofcast.calculators.errors import UsageError
from roofcast.cli import options
from roofcast.cli.errors import BAD_INPUT, complain, show_traceback
from roofcast.cli.session import Output, check_output, emit, explain_or, present
from roofcast.cli.writing import under, write_file

if TYPE_CHECKING:
    from collections.abc import Sequence

    from roofcast.calculators.check_baseline import Baseline
    from roofcast.calculators.check_rows import CheckResult, RuleRow
    from roofcast.cli.check_run import Against, Run
    from roofcast.reports.document import Document

MOST_SAID = 3  # rules that the last line names
LONGEST_SAID = 160  # characters of one of them


def check(
    files: Annotated[
        list[str] | None, typer.Argument(metavar="FILE...", help="Rules in YAML; docs/check.md describes them.")
    ] = None,
    baseline: Annotated[
        str | None,
        typer.Option("--baseline", metavar="FILE", help="Values that rules with allowed_change are held to."),
    ] = None,
    update: Annotated[
        bool, typer.Option("--update", help="Write --baseline anew: values, revisions and facts as they are now.")
    ] = False,
    schema: Annotated[
        bool, typer.Option("--schema", help="Print the JSON Schema of rule files, for editors, and stop.")
    ] = False,
    efficiency: options.EfficiencyName = "expected",
    offline: options.Offline = False,
    format: Annotated[
        str | None,
        typer.Option(
            "--format", metavar="FORMAT", help="text, json, csv, markdown, html, junit, github (default: text)."
        ),
    ] = None,
    out: options.Out = None,
    junit: Annotated[
        str | None, typer.Option("--junit", metavar="FILE", help="Write JUnit XML to FILE as well.")
    ] = None,
    summary: Annotated[
        str | None,
        typer.Option("--summary", metavar="FILE", help="Add Markdown to FILE as well, as $GITHUB_STEP_SUMMARY wants."),
    ] = None,
    github: Annotated[bool, typer.Option("--github", help="Print annotations of GitHub's workflows as well.")] = False,
    explain: options.Explain = None,
    debug: options.Debug = False,
) -> None:
    """CI gate: capacity rules in YAML, by their exit code.

    Sequences, KV tokens, TTFT, TPOT, cost and more of models on GPUs, against limits and against a baseline: 0 all are
    met, 1 some are not, 3 some cannot be told, 2 a rule or a file is wrong.
    """
    if schema:
        _print_schema()
        return
    explain_or(explain, "files")
    from roofcast.calculators.check_baseline import render_baseline
    from roofcast.cli.check_fields import usual_basis
    from roofcast.cli.check_file import RuleFileError, read_rules
    from roofcast.cli.check_run import run
    from roofcast.cli.checking import Setups
    from roofcast.cli.deploy import efficiency_of
    from roofcast.modelspec.errors import MalformedModelError

    output = Output(format, out, strict=False, command="check")
    written = Written(out, junit, summary, baseline if update else None, efficiency)
    written.refuse(output, files or [], baseline, update=update, github=github)
    constants = efficiency_of(efficiency)
    try:
        read = read_rules(files or [], usual_basis(expected=constants.wanted))
        against = _against(files or [], baseline, update=update)
    except (RuleFileError, UsageError, MalformedModelError) as error:
        problems = error.problems if isinstance(error, RuleFileError) else [str(error)]
        written.problems(problems, files or [], output, github=github)
        raise typer.Exit(BAD_INPUT) from error
    made = run(read, Setups(constants, offline), against)
    inputs: dict[str, object] = {
        "files": files, "baseline": baseline, "update": update, "efficiency": efficiency, "offline": offline,
    }  # fmt: skip
    if update:
        under("--baseline", lambda: write_file(Path(baseline or ""), render_baseline(made.after)))
    with suppress(typer.Exit):  # a reader that has seen enough, `| head`, does not open the gate
        _present(made, inputs, output, written, github=github)
    _leave(made)


@dataclass(frozen=True, slots=True)
class Written:
    """Files that a run writes; None of those that it does not."""

    out: str | None
    junit: str | None
    summary: str | None
    baseline: str | None
    constants: str  # read, and never written

    def refuse(self, output: Output, files: Sequence[str], baseline: str | None, *, update: bool, github: bool) -> None:
        """Refuses what does not go together, or cannot be written, before anything is answered.

        Raises:
            UsageError: naming the option.
        """
        if not files:
            raise UsageError("FILE is missing; name a file of rules, as in `roofcast check capacity.yaml`")
        if update and baseline is None:
            raise UsageError("--update writes the baseline; name its file with --baseline FILE")
        if github and output.out is None and output.format not in {None, "text"}:
            raise UsageError(f"--github prints to stdout, where --format {output.format} stands alone; give --out FILE")
        read = [*files, self.constants, *([baseline] if baseline else [])]
        check_output(output, read)
        for option, name in (("--junit", self.junit), ("--summary", self.summary), ("--baseline", self.baseline)):
            if name is not None:
                plain = Output("text", name, strict=False)
                others = [*files, self.constants] if option == "--baseline" else read
                under(option, lambda plain=plain, others=others: check_output(plain, others))  # type: ignore[misc]
        names = [name for name in (self.out, self.junit, self.summary, self.baseline) if name is not None]
        targets = [Path(name).resolve() for name in names]
        twice = next((name for name, path in zip(names, targets, strict=True) if targets.count(path) > 1), None)
        if twice is not None:
            raise UsageError(f"{twice}: two options write it; give each a file of its own")

    def problems(self, problems: Sequence[str], files: Sequence[str], output: Output, *, github: bool) -> None:
        """Says what is wrong with rules or a baseline, wherever a run is looked at; nothing older stays there."""
        from roofcast.calculators.answer import Remarks
        from roofcast.calculators.check import malformed
        from roofcast.reports.check import check_document
        from roofcast.reports.github import problem_annotations, problem_summary

        show_traceback()
        for line in problems:
            complain(line)
        document = check_document(malformed(problems, files), {"files": list(files)}, Remarks())
        self.beside(document, problem_summary(problems))
        if output.format == "github" and output.out is None:
            github = True
        elif output.out is not None or output.format not in {None, "text"}:
            present(document, output)
        if github:
            emit(problem_annotations(problems))

    def beside(self, document: Document, summary: str) -> None:
        """Writes JUnit XML and the summary, where they are asked for.

        Raises:
            UsageError: one cannot be written.
        """
        from roofcast.reports.junit import render_junit

        if self.junit is not None:
            target = Path(self.junit)
            under("--junit", lambda: write_file(target, render_junit(document)))
        if self.summary is not None:
            _append(self.summary, summary)


def _print_schema() -> None:
    import json

    from roofcast.cli.check_schema import rule_schema

    emit(json.dumps(rule_schema(), indent=2) + "\n")


def _against(files: Sequence[str], name: str | None, *, update: bool) -> Against:
    """The baseline to hold against.

    Raises:
        UsageError, MalformedModelError: it is not there, cannot be read, or is none.
    """
    from roofcast.calculators.check_baseline import Places
    from roofcast.cli.check_run import Against

    before = None if name is None else _read_baseline(name, update=update)
    folder = os.path.dirname(os.path.abspath(name or "baseline.json"))  # noqa: PTH100,PTH120 - of a text, as relpath
    places = Places({file: _from(folder, file) for file in files})
    others = [] if before is None else [os.path.join(folder, file) for file in places.beside(before)]  # noqa: PTH118
    more = [os.path.relpath(file) for file in others if Path(file).is_file()]
    command = f"roofcast check {' '.join([*files, *more])} --baseline {name or 'baseline.json'} --update"
    if update and more:
        raise UsageError(f"--baseline {name}: it is of {', '.join(more)} too; update all at once: `{command}`")
    return Against(name, before, update, f"`{command}`", places)


def _from(folder: str, file: str) -> str:
    """A file as seen from a folder, with slashes on every system; in full where there is no way from one to the other."""
    try:
        return Path(os.path.relpath(file, folder)).as_posix()
    except ValueError:  # another drive of Windows
        return Path(file).as_posix()


def _read_baseline(name: str, *, update: bool) -> Baseline | None:
    from roofcast.calculators.check_baseline import LARGEST, read_baseline

    try:
        if Path(name).exists() and not Path(name).is_file():
            raise UsageError(f"--baseline {name}: it is no plain file")
        with Path(name).open("rb") as file:
            data = file.read(LARGEST + 1)
    except FileNotFoundError as error:
        if update:
            return None
        raise UsageError(f"--baseline {name}: no such file; --update writes it") from error
    except (OSError, ValueError) as error:  # ValueError: a NUL in its name
        if isinstance(error, UsageError):
            raise
        raise UsageError(
            f"--baseline {name}: it cannot be read ({getattr(error, 'strerror', None) or error})"
        ) from error
    if len(data) > LARGEST:
        raise UsageError(f"--baseline {name}: it is larger than {LARGEST // 1_000_000} MB")
    return read_baseline(data, name)


def _present(made: Run, inputs: dict[str, object], output: Output, written: Written, *, github: bool) -> None:
    """Writes the answer in every form that was asked for; the files first, so that a closed pipe loses none."""
    from roofcast.reports.check import check_document
    from roofcast.reports.github import render_annotations, render_summary

    document = check_document(made.result, inputs, made.said)
    written.beside(document, render_summary(document))
    present(document, output)
    if github:
        emit(render_annotations(document))


def _append(name: str, content: str) -> None:
    try:
        with Path(name).open("a", encoding="utf-8") as file:
            file.write(content)
    except OSError as error:
        raise UsageError(f"--summary {name}: cannot be written ({error.strerror})") from error


def _leave(made: Run) -> None:
    """Names the rules that are badly put, says what fails in one line, and leaves."""
    rows = made.result.rules
    for row in rows:
        if row.code == BAD_INPUT:
            complain(f"{row.file}:{row.line}: rule {row.name!r}: {row.message}")
    if made.code:
        complain(_verdict(made.result, rows))
        raise typer.Exit(made.code)


def _verdict(result: CheckResult, rows: Sequence[RuleRow]) -> str:
    """How many rules are not met or cannot be told, and the first of them."""
    counts = ((result.failed, "failed"), (result.undetermined, "cannot be told"))
    said = ", ".join(f"{count:,} {what}" for count, what in counts if count)
    order = [row for code in (1, 3, BAD_INPUT) for row in rows if row.code == code]
    first = "; ".join(_cut(f"{row.name}: {row.message}") for row in order[:MOST_SAID])
    more = f"; and {len(order) - MOST_SAID:,} more" if len(order) > MOST_SAID else ""
    return f"{said} of {len(rows):,} rules: {first}{more}"


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST_SAID else f"{text[:LONGEST_SAID]}..."
