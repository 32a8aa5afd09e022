"""How long roofcast takes to start, in CPU seconds, beside what no typer program can do without.

Run with the interpreter that has roofcast installed normally: `.venv/bin/python benchmarks/startup.py [RUNS]`.
The runs of all programs are interleaved, so that a busy machine slows them alike; the ratio is of minima.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

IMPORT_TYPER = "import typer"
# The settings of roofcast's own app, and a command that does nothing.
DO_NOTHING = """
import typer
app = typer.Typer(add_completion=False, no_args_is_help=True, rich_markup_mode=None, pretty_exceptions_enable=False)
@app.callback()
def main() -> None: ...
@app.command()
def nothing(model: str) -> None: ...
app()
"""
MEMORY_LIMIT = 100e6  # [B]


@dataclass(frozen=True, slots=True)
class Program:
    """A program to start, the one it is held against, and the most it may take of that one's CPU time."""

    name: str
    argv: tuple[str, ...]
    against: str | None = None
    limit: float | None = None


@dataclass(frozen=True, slots=True)
class Run:
    """What one run of a program took."""

    cpu: float  # user and system time [s]
    memory: int  # peak resident set [B]


def roofcast(command: str) -> tuple[str, ...]:
    """Return the arguments of the interpreter that run one roofcast command as the console script does."""
    return ("-c", "from roofcast.cli.app import main; main()", *command.split())


PROGRAMS = (
    Program("import typer", ("-c", IMPORT_TYPER)),
    Program("do-nothing command", ("-c", DO_NOTHING, "nothing", "model")),
    Program("roofcast --help", roofcast("--help"), "import typer", 1.5),
    Program("roofcast kv", roofcast("kv llama-3.1-8b"), "do-nothing command", 1.4),
    Program("roofcast fit", roofcast("fit llama-3.1-8b --gpu h100-sxm --engine none"), "do-nothing command", 1.6),
)


def start(program: Program) -> Run:
    """Run a program once in a fresh interpreter and return what it took.

    Raises:
        SystemExit: the program failed, so its time says nothing.
    """
    process = subprocess.Popen([sys.executable, "-P", *program.argv], stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        raise SystemExit(f"{program.name} ended with exit code {process.returncode}")
    kibibytes = usage.ru_maxrss if sys.platform != "darwin" else usage.ru_maxrss // 1024
    return Run(cpu=usage.ru_utime + usage.ru_stime, memory=kibibytes * 1024)


def row(program: Program, runs: dict[str, list[Run]]) -> str:
    """Write one line of the table: CPU milliseconds, ratio to the baseline with its limit, peak memory."""
    cpu = [run.cpu for run in runs[program.name]]
    memory = max(run.memory for run in runs[program.name])
    line = f"{program.name:<20} {min(cpu) * 1e3:>8.0f} {statistics.median(cpu) * 1e3:>10.0f} {memory / 1e6:>8.1f}"
    if program.against is None or program.limit is None:
        return line
    ratio = min(cpu) / min(run.cpu for run in runs[program.against])
    verdict = "within" if ratio <= program.limit and memory <= MEMORY_LIMIT else "OVER"
    return f"{line}  {ratio:.2f}x {program.against} ({verdict} {program.limit}x and {MEMORY_LIMIT / 1e6:.0f} MB)"


def main() -> None:
    """Print the table."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 15
    runs: dict[str, list[Run]] = {program.name: [] for program in PROGRAMS}
    with tempfile.TemporaryDirectory() as empty:
        os.environ["ROOFCAST_HOME"] = str(Path(empty))
        for program in PROGRAMS:
            start(program)  # compiles to bytecode and fills the file cache
        for _ in range(count):
            for program in PROGRAMS:
                runs[program.name].append(start(program))
    print(f"{'CPU time of':<20} {'min [ms]':>8} {'median[ms]':>10} {'peak[MB]':>8}  {count} runs each")
    for program in PROGRAMS:
        print(row(program, runs))


if __name__ == "__main__":
    main()
