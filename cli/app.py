"""The console script: commands, and what becomes of their errors."""

from __future__ import annotations

import io
import os
import sys
from importlib import import_module
from typing import Annotated, Final, NoReturn

import typer

from roofcast.cli.errors import BAD_INPUT, INTERRUPTED, OK, UNDETERMINED, complain, exit_code, show_traceback
from roofcast.cli.session import silence

# in the order of --help; a command's function has the name of its module
COMMANDS: Final = (
    "kv",
    "model",
    "gpus",
    "fit",
    "roofline",
    "estimate",
    "levers",
    "attention",
    "speculate",
    "price",
    "simulate",
    "plan",
    "report",
    "validate",
    "check",
    "profile",
    "schema",
)
GROUPS: Final = frozenset(("profile",))  # whose commands are beneath them; of these the module has an application

# engines' options that have another name here, where options have one name for all engines
CALLED: Final = {
    **dict.fromkeys(("--tensor-parallel-size", "--tp-size", "--tp_size", "--num-shard"), "--tp"),
    **dict.fromkeys(("--pipeline-parallel-size", "--pp-size"), "--pp"),
    **dict.fromkeys(("--data-parallel-size", "--dp-size"), "--dp"),
    **dict.fromkeys(("--expert-parallel-size", "--ep-size", "--enable-expert-parallel"), "--ep N"),
    **dict.fromkeys(("--kv-cache-dtype", "--kv_cache_dtype", "--cache-type-k", "--quant-policy"), "--kv"),
    **dict.fromkeys(("--context-length", "--max-seq-len", "--max-total-tokens"), "--max-model-len"),
    "--ctx-size": "--n-ctx",
    "--speculative-config": "--num-speculative-tokens",
}


def application(asked: str | None) -> typer.Typer:
    """The application with the command that is asked for, or with all of them where it is none: each takes its time."""
    app = typer.Typer(
        name="roofcast",
        help="Roofline and capacity planner for LLM inference.",
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        add_completion=False,
        no_args_is_help=False,
    )
    app.callback(invoke_without_command=True)(root)
    for name in (asked,) if asked in COMMANDS else COMMANDS:
        made = getattr(import_module(f"roofcast.cli.{name}"), name)
        if name in GROUPS:
            app.add_typer(made, name=name)
        else:
            app.command(name)(made)
    return app


# typer ships click or depends on it, by version; its own BadParameter leads to the base of all usage errors
_ClickError: type[Exception] = next(c for c in typer.BadParameter.__mro__ if c.__name__ == "ClickException")


def _version(asked: bool) -> None:
    if asked:
        from importlib.metadata import version

        typer.echo(f"roofcast {version('roofcast')}")
        raise typer.Exit


def root(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and leave.")
    ] = False,
) -> None:
    """Roofline and capacity planner for LLM inference."""
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


def main() -> NoReturn:
    """Runs the command line and leaves with its exit code."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal without box-drawing characters still gets its numbers
    code = _run()
    store = sys.modules.get("roofcast.profiler.ranks_store")
    if store is not None and any(thread.is_alive() for thread in store.STUCK):
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        os._exit(code)  # torch aborts at the end of a program while a thread waits in it
    sys.exit(code)


def _run() -> int:
    try:
        return _interrupted(application(next(iter(sys.argv[1:]), None))(standalone_mode=False) or OK)
    except typer.Exit as leave:
        return leave.exit_code
    except (KeyboardInterrupt, typer.Abort):
        complain("interrupted")
        return INTERRUPTED
    except SystemExit as leave:  # click's own answer to a reader that has seen enough, and to Ctrl-C
        if leave.code == INTERRUPTED:
            complain("interrupted")
        return OK if leave.code == 1 else int(leave.code or OK)
    except Exception as error:  # noqa: BLE001 - the last resort: one line instead of a traceback
        show_traceback()
        return _report(error)


def _interrupted(code: int) -> int:
    """Says so where that is what the code means: some releases of typer answer Ctrl-C with it and no word."""
    if code == INTERRUPTED:
        complain("interrupted")
    return code


def _report(error: Exception) -> int:
    """One line on stderr, and the code."""
    if isinstance(error, _ClickError):
        message = getattr(error, "format_message", error.__str__)()
        ours = CALLED.get(str(getattr(error, "option_name", "")))
        hint = f"here it is {ours}" if ours else "roofcast --help lists commands and options"
        complain(f"{message.partition(' (Possible')[0] if ours else message} ({hint})")
        return BAD_INPUT
    if isinstance(error, OSError) and type(error).__module__ == "builtins":
        if sys.stdout is not None:
            silence(sys.stdout)
        complain(f"the answer cannot be written: {error.strerror or error}")
        return BAD_INPUT
    code = exit_code(error)
    complain(
        str(error) if code is not None else f"internal error, {type(error).__name__}: {error}; --debug shows where"
    )
    return UNDETERMINED if code is None else code
