"""`roofcast schema`."""

from __future__ import annotations

from typing import Annotated

import typer

from roofcast.calculators.errors import UsageError
from roofcast.cli import options
from roofcast.cli.session import emit


def schema(
    command: Annotated[
        str,
        typer.Argument(
            metavar="COMMAND",
            help="Any of the commands that answer: kv, model, gpus, fit, roofline, estimate, levers, ... profile.",
        ),
    ],
    debug: options.Debug = False,
) -> None:
    """JSON Schema of a command's output."""
    import json

    from roofcast.reports.schema import RESULTS, json_schema

    if command not in RESULTS:
        raise UsageError(f"no schema of {command!r}; commands with one: {', '.join(RESULTS)}")
    emit(json.dumps(json_schema(command), indent=2) + "\n")
