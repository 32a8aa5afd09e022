"""What commands share: load models, present documents, refuse, explain."""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

import typer

from roofcast.calculators.errors import UsageError
from roofcast.cli.errors import OK, StrictError, complain, exit_code, show_traceback
from roofcast.cli.writing import check_target, write_file

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from roofcast.modelspec.formats import Format
    from roofcast.modelspec.model import Model
    from roofcast.modelspec.requested import Requested
    from roofcast.reports.document import Document

# the worst of several codes: malformed input, then undetermined, then a failed gate
SEVERITY = (2, 3, 1, 0)
MADE = frozenset(("html", "markdown"))  # formats that tell how a report was made


@dataclass(frozen=True, slots=True)
class Lookup:
    """How models are looked up, and read; `thorough` asks for every tensor of however many weight files."""

    revision: str | None
    offline: bool
    mtp: bool = False
    encoder_tokens: int | None = None
    thorough: bool = False

    @property
    def asked(self) -> dict[str, object]:
        """What of it shapes the answer, as `inputs` repeats it."""
        return {"mtp": self.mtp, "encoder_tokens": self.encoder_tokens, "revision": self.revision}


@dataclass(frozen=True, slots=True)
class Output:
    """Where and how the answer is written; `command` names one that has formats of its own."""

    format: str | None
    out: str | None
    strict: bool
    command: str = ""


_KEPT: ContextVar[dict[tuple[str, Lookup], Model] | None] = ContextVar("kept_models", default=None)


def load(name: str, lookup: Lookup) -> Model:
    """Resolves a model and reads its architecture, with a progress bar on a terminal.

    Raises:
        ModelError: what is wrong with it.
    """
    from roofcast.cli.progress import shard_progress
    from roofcast.modelspec.model import load_model
    from roofcast.modelspec.source import resolve

    kept = _KEPT.get()
    if kept is not None and (name, lookup) in kept:
        return kept[name, lookup]
    with shard_progress(name) as progress:
        checkpoint = resolve(
            name, revision=lookup.revision, offline=lookup.offline, progress=progress, thorough=lookup.thorough
        )
    model = load_model(checkpoint, drafting=lookup.mtp, encoder_tokens=lookup.encoder_tokens)
    if kept is not None:
        kept[name, lookup] = model
    return model


@contextmanager
def keeping_models() -> Iterator[None]:
    """While it lasts each model is read once, for an answer that is put together of several."""
    token = _KEPT.set({})
    try:
        yield
    finally:
        _KEPT.reset(token)


def formats(weights: str | None, kv: str | None) -> tuple[Requested | None, Format | None]:
    """The formats asked for weights (None is as stored) and cache (None is the engine's).

    Raises:
        UnknownFormatError: one of them does not exist.
    """
    from roofcast.modelspec.formats import find_format

    cache = None if kv is None else find_format(kv)
    if weights is None:
        return None, cache
    from roofcast.modelspec.requested import find_requested

    return find_requested(weights), cache


def load_all(names: Sequence[str], answer: Callable[[str], None]) -> int:
    """Answers for every name, complains of those that cannot be, and returns the worst exit code."""
    return worst(*(attempt(partial(answer, name)) for name in names))


def attempt(action: Callable[[], None]) -> int:
    """Does something and returns its exit code; what a user can act on is complained of here."""
    try:
        action()
    except Exception as error:
        code = exit_code(error)
        if code is None:
            raise
        show_traceback()
        complain(str(error))
        return code
    return OK


def worst(*codes: int) -> int:
    """The code that a call with several outcomes leaves with."""
    return next(code for code in SEVERITY if code in codes)


def present(document: Document, output: Output) -> None:
    """Writes a document to stdout or a file, unless `--strict` refuses it.

    Raises:
        StrictError: something was assumed.
        UsageError: the file cannot be written, or its ending names no format.
    """
    from roofcast.reports.outputs import outputs_of

    refuse_assumed(document, output)
    name, outputs = _format_name(output, document.command), outputs_of(document.command)
    if name in MADE:
        from roofcast.reports.made import made_by

        document = replace(document, made=made_by(sys.argv[1:]))
    if output.out is not None:
        write_file(Path(output.out), outputs[name](document))
    elif name == "text" and _on_terminal():
        from shutil import get_terminal_size

        from roofcast.reports.text import BOLD, NO_STYLE, render_text

        style = BOLD if _shows_styles() else NO_STYLE
        emit(render_text(document, style=style, width=get_terminal_size().columns))
    else:
        emit(outputs[name](document))
    if name in {"json", "csv"}:
        for warning in document.remarks.warnings:
            complain(f"warning: {warning}")
    if name == "csv":  # JSON carries its assumptions, text shows them
        for assumption in document.remarks.assumptions:
            complain(f"assumed: {assumption}")


def refuse_assumed(document: Document, output: Output) -> None:
    """Refuses a document that rests on a guess, where `--strict` asks so.

    Raises:
        StrictError: something was assumed.
    """
    if output.strict and document.remarks.assumptions:
        raise StrictError("--strict refuses what is assumed: " + "; ".join(document.remarks.assumptions))


def chart_ending(out: str | None, format_name: str | None) -> str | None:
    """The ending of a file that a chart is drawn into; None where no chart is asked for.

    Raises:
        UsageError: a format is asked for beside it.
    """
    from roofcast.reports.charts import CHARTS
    from roofcast.reports.outputs import ENDINGS

    ending = Path(out).suffix.lower() if out is not None else ""
    if out is not None and format_name is None and ending not in {**CHARTS, **ENDINGS}:
        raise UsageError(_no_format(out, [*CHARTS, *ENDINGS]))
    if ending not in CHARTS:
        return None
    if format_name is not None:
        raise UsageError(f"--format {format_name}: a file that ends in {ending} is a chart; leave it out")
    return ending


def chart_suffix(out: str | None) -> bool:
    """Whether a file's ending is that of an image."""
    from roofcast.reports.charts import CHARTS

    return out is not None and Path(out).suffix.lower() in CHARTS


def pictured(out: str | None, format_name: str | None) -> bool:
    """Whether the answer is written with charts: into an image, or as a page."""
    from roofcast.reports.outputs import ENDINGS

    if format_name is not None:
        return format_name == "html"
    return chart_suffix(out) or (out is not None and ENDINGS.get(Path(out).suffix.lower()) == "html")


def present_chart(document: Document, output: Output, ending: str) -> None:
    """Draws a document's first chart into a file, and prints its text.

    Raises:
        StrictError: something was assumed.
        UsageError: the file cannot be written.
    """
    from roofcast.reports.charts import chart_file

    refuse_assumed(document, output)
    target, drawn = Path(output.out or ""), chart_file(document.charts[0], ending)
    try:
        present(document, Output("text", None, output.strict))
    except typer.Exit:  # a reader that has seen enough of the text wants the chart all the same
        write_file(target, drawn)
        raise
    write_file(target, drawn)


def show(document: Document, output: Output, chart: str | None) -> None:
    """Draws a document into an image, with its text on stdout, where that is asked; else writes it.

    Raises:
        StrictError: something was assumed.
        UsageError: the file cannot be written.
    """
    if chart is None:
        present(document, output)
    else:
        present_chart(document, output, chart)


def check_output(output: Output, models: Sequence[str] = (), *, chart: bool = False) -> None:
    """Refuses what cannot or must not be written, before any work is done.

    Args:
        output: as asked.
        models: MODEL arguments and other files that are read, which must stay as they are.
        chart: whether a chart is drawn, whose ending is no format.

    Raises:
        UsageError: an unknown ending, no such folder, a file that is read, protected, or no regular file; a page whose
            SOURCE_DATE_EPOCH is no time.
    """
    if not chart and _format_name(output, output.command) in MADE:
        from roofcast.reports.made import moment

        moment()
    if output.out is None:
        return
    try:
        check_target(Path(output.out).resolve(), output.out, models)
    except UsageError:
        raise
    except (OSError, RuntimeError, ValueError) as error:
        raise UsageError(f"--out {output.out}: {getattr(error, 'strerror', None) or error}") from error


def explain_or(term: str | None, *needed: object) -> None:
    """Prints the formula of a term and leaves; without a term, insists on what the command needs.

    Raises:
        UsageError: the term is unknown, or MODEL is missing.
    """
    if term is not None:
        from roofcast.calculators.explain import explain

        emit(explain(term) + "\n")
        raise typer.Exit
    if not all(needed):
        raise UsageError(
            "MODEL is missing; give a catalogue name such as llama-3.1-8b (`roofcast model --list`), a folder, or org/name"
        )


def emit(text: str) -> None:
    """Writes to stdout; a reader that has seen enough, `| head`, is no error.

    Raises:
        UsageError: stdout is closed or full.
    """
    if sys.stdout is None:
        raise UsageError("the answer cannot be written: stdout is closed")
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        silence(sys.stdout)
        raise typer.Exit(OK) from None
    except OSError as error:
        silence(sys.stdout)
        raise UsageError(f"the answer cannot be written: {error.strerror}") from error


def silence(stream: TextIO) -> None:
    """Points a stream that cannot be written at nothing, so that the interpreter's own last flush succeeds."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _on_terminal() -> bool:
    return sys.stdout is not None and sys.stdout.isatty()


def _shows_styles() -> bool:
    """Whether a terminal shows bold text; NO_COLOR and TERM=dumb are honoured."""
    return not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def _format_name(output: Output, command: str) -> str:
    from roofcast.reports.outputs import endings_of, outputs_of, owner

    known, endings = outputs_of(command), endings_of(command)
    if output.format is not None:
        if output.format not in known:
            only = owner(output.format)
            why = f"`{only}` alone writes it; known here" if only else "known"
            raise UsageError(f"--format {output.format}: {why}: {', '.join(known)}")
        return output.format
    if output.out is None:
        return "text"
    ending = Path(output.out).suffix.lower()
    if ending not in endings:
        raise UsageError(_no_format(output.out, list(endings)))
    return endings[ending]


def _no_format(out: str, endings: Sequence[str]) -> str:
    """That a file's ending names no format here, and which do."""
    from roofcast.reports.outputs import owner

    ending = Path(out).suffix.lower()
    only = owner(ending)
    names = f"names a format that `{only}` alone writes" if only else "names no format"
    return f"--out {out}: ending {ending!r} {names}; use {', '.join(endings)} or --format"
