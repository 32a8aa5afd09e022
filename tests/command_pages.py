"""The pages of docs/commands, made from the commands themselves: what `--help` says, formats, exit codes, examples.

`make golden` writes them. Examples and links are the two tables here; everything else a command brings along.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

import typer

from roofcast.cli.app import COMMANDS, application
from roofcast.reports.charts import CHARTS
from roofcast.reports.outputs import endings_of, outputs_of
from roofcast.reports.profile import CHARTED
from roofcast.reports.schema import RESULTS
from tests.documents import DOCS, FENCE, examples

PAGES: Final = DOCS / "commands"
INDEX: Final = DOCS / "README.md"
NOTICE: Final = "<!-- `make golden` writes this page, from the command itself and tests/command_pages.py. -->"
LIST_STARTS, LIST_ENDS = "<!-- `make golden` writes this list. -->", "<!-- end of the list -->"


@dataclass(frozen=True, slots=True)
class Shown:
    """An example of a page.

    Args:
        command: behind `roofcast`.
        lines: of its output that the page shows, the first ones or (-2) the last; None is all.
        file: block with a file that it reads.
    """

    command: str
    lines: int | None = None
    file: str = ""

    def fits(self, printed: Sequence[str]) -> bool:
        """Whether an output is cut as this one is to be."""
        return bool(printed) and tuple(printed) == self.cut([line for line in printed if line != "..."])

    def cut(self, output: Sequence[str]) -> tuple[str, ...]:
        """Return its output as the page has it.

        >>> Shown("kv", 1).cut(["a", "b"]), Shown("kv", -1).cut(["a", "b"])
        (('a', '...'), ('...', 'b'))
        """
        if self.lines is None:
            return tuple(output)
        return (*output[: self.lines], "...") if self.lines > 0 else ("...", *output[self.lines :])


class Parameter(Protocol):
    """What is asked of an option or argument; no type of click, which typer ships or depends on, by version."""

    opts: list[str]
    secondary_opts: list[str]
    param_type_name: str
    required: bool
    default: object
    name: str


RULES: Final = """\
```yaml rules.yaml
schema: roofcast.check/1
defaults: {model: llama-3.1-8b, gpu: h100-sxm, engine: vllm}
rules:
  - {name: a hundred chats, quantity: sequences, context: 4k, at_least: 100}
  - {name: a token, quantity: tpot, context: 4k, batch: 64, at_most: 12ms}
```"""

POINTS: Final = """\
```csv points.csv
quantity,value,model,gpu,gpus,tp,engine,batch,prompt,output,source
tpot_seconds,0.00483,gpt-oss-120b,h100-sxm,8,8,vllm,16,1024,1024,https://github.com/SemiAnalysisAI/InferenceX/issues/828
tpot_seconds,0.00736,gpt-oss-120b,h100-sxm,8,8,vllm,64,1024,1024,https://github.com/SemiAnalysisAI/InferenceX/issues/828
```"""

EXAMPLES: Final[Mapping[str, tuple[Shown, ...]]] = {
    "kv": (Shown("kv llama-3.1-8b llama-2-7b deepseek-v3 --context 32k --weights bf16"),),
    "model": (Shown("model llama-3.1-8b", lines=19),),
    "gpus": (Shown("gpus h100-sxm", lines=14),),
    "fit": (
        Shown("fit qwen3-32b --gpu h200-sxm --context 4k,32k"),
        Shown('fit qwen3-32b --gpu h100-sxm --context 4k --require "sequences>=100@4k"  # exit 1', lines=-1),
    ),
    "roofline": (Shown("roofline qwen3-32b --gpu h200-sxm --phase decode --batch 1,64 --context 4k", lines=16),),
    "estimate": (Shown("estimate qwen3-32b --gpu h200-sxm --engine vllm --batch 1,32 --context 4k", lines=30),),
    "levers": (Shown("levers qwen3-32b --gpu h200-sxm", lines=17),),
    "attention": (Shown("attention llama-3.1-8b --gpu h100-sxm --context 4k", lines=7),),
    "speculate": (Shown("speculate --acceptance 0.8 --draft-cost 0.05 --k 1-4"),),
    "price": (Shown("price llama-3.1-8b --gpu h100-sxm --gpu-price 2.00 --batch 64 --api none", lines=13),),
    "plan": (
        Shown(
            "plan llama-3.1-8b --gpu h100,l40s,l4 --engine vllm --rate 4 --prompt 1k --output 200 --ttft 500ms --tpot 50ms "
            "--percentile 90",
            lines=25,
        ),
        Shown(
            "plan llama-3.1-8b --find rate --gpu l40s --engine vllm --prompt 1k --output 200 --ttft 500ms --tpot 50ms",
            lines=12,
        ),
    ),
    "simulate": (
        Shown(
            "simulate llama-3.1-8b --gpu h100-sxm --engine vllm --rate 10 --requests 500 --ttft 300ms --tpot 20ms",
            lines=25,
        ),
        Shown(
            "simulate llama-3.1-8b --gpu h100-sxm --engine vllm --rate max --tpot 15ms --percentile 90",
            lines=6,
        ),
    ),
    "report": (Shown("report llama-3.1-8b --gpu h100-sxm --engine vllm --context 1k --tpot 15ms", lines=5),),
    "validate": (Shown("validate points.csv --offline", lines=18, file=POINTS),),
    "check": (Shown("check rules.yaml  # exit 1", lines=8, file=RULES),),
    "profile": (Shown("profile --explain ridge"),),
    "schema": (Shown("schema kv", lines=4),),
}

# pages of docs/ that tell more
MORE: Final[Mapping[str, tuple[str, ...]]] = {
    "kv": ("numbers.md", "weights.md", "architectures.md"),
    "model": ("architectures.md", "weights.md"),
    "gpus": ("roofline.md", "numbers.md"),
    "fit": ("engines.md", "numbers.md"),
    "roofline": ("roofline.md",),
    "estimate": ("efficiency.md", "roofline.md"),
    "levers": ("roofline.md",),
    "attention": ("attention.md",),
    "speculate": ("speculation.md",),
    "price": ("price.md",),
    "simulate": ("serving.md", "engines.md", "efficiency.md"),
    "plan": ("plan.md", "rents.md", "serving.md"),
    "validate": ("validation.md", "efficiency.md"),
    "check": ("check.md",),
    "profile": ("profile.md", "efficiency.md"),
    "report": ("report.md",),
}

# what exit code 1 means where a command has that option, or that name
GATES: Final = {
    "--require": "a requirement (`--require`) is not met",
    "--check": "what `--check` worked out does not agree",
    "check": "a rule fails",
}


def commands() -> dict[str, Any]:
    """Return every command by its name, as typer makes it, in the order of app.py."""
    group: Any = typer.main.get_command(application(None))
    return {name: group.commands[name] for name in COMMANDS}


def page(name: str, command: Any, printed: Callable[[Shown], Sequence[str]]) -> str:
    """Return a command's page; `printed` tells what an example prints."""
    under = getattr(command, "commands", {})
    parts = [
        NOTICE,
        f"# roofcast {name}",
        *told(name, command),
        *(shown for example in EXAMPLES.get(name, ()) for shown in example_blocks(example, printed(example))),
        *options(command),
        *(part for sub, made in under.items() for part in beneath(name, sub, made)),
        "## What it writes",
        written(name, command),
        "## Exit codes",
        exit_codes(name, command),
        *more(name),
    ]
    return "\n\n".join(parts) + "\n"


def told(name: str, command: Any) -> list[str]:
    """Return the first sentence of a command, how it is called, and what its help says beside."""
    first, *rest = (escaped(paragraph) for paragraph in command.help.split("\n\n"))
    return [first, f"{FENCE}text\n{usage(name, command)}\n{FENCE}", *rest]


def usage(name: str, command: Any) -> str:
    """Return the line that says how a command is called.

    >>> usage("kv", commands()["kv"])
    'roofcast kv [OPTIONS] [MODEL...]'
    """
    if getattr(command, "commands", {}):
        return f"roofcast {name} [OPTIONS] COMMAND ..."
    taken = (
        value_of(p) if p.required else f"[{value_of(p).strip('[]')}]"
        for p in command.params
        if p.param_type_name == "argument"
    )
    return " ".join(("roofcast", name, "[OPTIONS]", *taken))


def beneath(name: str, sub: str, command: Any) -> list[str]:
    """Return the section of a command of a group."""
    return [f"## roofcast {name} {sub}", *told(f"{name} {sub}", command), *options(command)]


def options(command: Any) -> list[str]:
    """Return the table of a command's arguments and options, in the order of `--help`."""
    rows = [f"| {in_code(names(p))} | {escaped(said(p))} |" for p in command.params if not getattr(p, "hidden", False)]
    return ["\n".join(("| option | what it does |", "|---|---|", *rows, "| `--help` | Show the options and leave. |"))]


def names(parameter: Parameter) -> str:
    """Return an option's names with its value, `--context N,...`, or an argument's."""
    if parameter.param_type_name == "argument":
        return value_of(parameter).strip("[]")
    value = "" if getattr(parameter, "is_flag", False) else f" {value_of(parameter)}"
    return ", ".join((*parameter.opts, *parameter.secondary_opts)) + value


def value_of(parameter: Parameter) -> str:
    """Return what stands for a parameter's value."""
    return getattr(parameter, "metavar", None) or parameter.name.upper()


def said(parameter: Parameter) -> str:
    """Return a parameter's help, with its default where that is a value and the text does not have it."""
    text: str = getattr(parameter, "help", None) or ""
    default = parameter.default
    if default is None or isinstance(default, bool) or default == () or not getattr(parameter, "show_default", False):
        return text
    if text.endswith(".") and not text.endswith("..."):
        return f"{text[:-1]} (default: {default})."
    return f"{text} (default: {default})"


def written(name: str, command: Any) -> str:
    """Return which formats a command writes."""
    taken = flags(command)
    if not {"--format", "--out"} & taken:
        return "Text, to standard output."
    lines = []
    if "--format" in taken:
        lines.append(f"`--format` takes {listed(outputs_of(name))}; without it text is printed.")
        endings = ", ".join(f"`{ending}`" for ending in endings_of(name))
        lines.append(f"A file of `--out` has the format of its ending: {endings}.")
    if any(ending in text for text in texts(command) for ending in CHARTS):
        lines.append(f"{' and '.join(f'`{ending}`' for ending in CHARTS)} are the chart alone{charted(name)}.")
    if name in RESULTS:
        lines.append(f"`roofcast schema {name}` prints the JSON Schema of what `--format json` writes.")
    return "\n".join(lines)


def charted(name: str) -> str:
    """Say which of a command's own commands draw one, where only some do."""
    return f", of {listed(CHARTED)}" if name == "profile" else ""


def listed(found: Mapping[str, object]) -> str:
    """Return names as a sentence lists them.

    >>> listed({"text": 1, "json": 2, "csv": 3})
    '`text`, `json` and `csv`'
    """
    *first, last = (f"`{name}`" for name in found)
    return f"{', '.join(first)} and {last}"


def exit_codes(name: str, command: Any) -> str:
    """Return what the exit codes of a command mean."""
    taken = flags(command)
    failed = " or ".join(words for gate, words in GATES.items() if gate in {*taken, name})
    strict = ", or `--strict` refuses what is assumed" if "--strict" in taken else ""
    rows = {
        "0": "answered",
        "1": failed,
        "2": "bad usage or malformed input",
        "3": f"the answer cannot be determined: absent, unreachable or not understood{strict}",
        "130": "interrupted",
    }
    return "\n".join(("| code | |", "|---|---|", *(f"| {code} | {means} |" for code, means in rows.items() if means)))


def more(name: str) -> list[str]:
    """Return the section of links, by the headings of the pages."""
    links = "\n".join(f"- [{heading(target)}](../{target})" for target in MORE.get(name, ()))
    return ["## More", links] if links else []


def heading(target: str) -> str:
    """Return the title of a page of docs/, or its name where there is none."""
    path = DOCS / target
    return path.read_text().partition("\n")[0].removeprefix("# ") if path.exists() else target


def flags(command: Any) -> set[str]:
    """Return the names of all options of a command, and of those beneath it."""
    return {name for one in with_beneath(command) for p in one.params for name in p.opts}


def texts(command: Any) -> list[str]:
    """Return all that a command's help says."""
    return [text for c in with_beneath(command) for text in (c.help, *(getattr(p, "help", "") or "" for p in c.params))]


def with_beneath(command: Any) -> Iterator[Any]:
    """Return a command and those beneath it."""
    yield command
    yield from getattr(command, "commands", {}).values()


def example_blocks(example: Shown, printed: Sequence[str]) -> list[str]:
    """Return an example as blocks: the file that it reads, the command and what it prints."""
    console = "\n".join((f"{FENCE}console", f"$ roofcast {example.command}", *printed, FENCE))
    return [example.file, console] if example.file else [console]


def in_code(text: str) -> str:
    """Return text as code in a cell of a table, where a bar is a bar."""
    return "`" + text.replace("|", "\\|") + "`"


def escaped(text: str) -> str:
    """Return plain text as Markdown that shows it: options as code, nothing else as markup."""
    parts = re.split(r"(`[^`]+`|--[a-z][a-z-]*(?: \w+\.\w+)?)", text)
    return "".join(as_code(part) if at % 2 else plain(part) for at, part in enumerate(parts))


def as_code(part: str) -> str:
    """Return an option, or what is code already, as code."""
    return in_code(part.strip("`"))


def plain(part: str) -> str:
    """Return text in which no character is markup."""
    return re.sub(r"([\\`*<>\[\]|]|(?<!\w)_|_(?!\w))", r"\\\1", part)


def on_the_page(name: str) -> dict[str, tuple[str, ...]]:
    """Return what a page has under each of its commands now; nothing where there is no page."""
    path = PAGES / f"{name}.md"
    if not path.exists():
        return {}
    return {example.command.removeprefix("roofcast "): example.printed for example in examples(path)}


def with_list(index: str, made: Mapping[str, Any]) -> str:
    """Return the index with its list of commands made anew."""
    before, _, rest = index.partition(LIST_STARTS)
    _, _, after = rest.partition(LIST_ENDS)
    rows = (
        f"| [{name}](commands/{name}.md) | {escaped(command.help.split(chr(10))[0])} |"
        for name, command in made.items()
    )
    table = "\n".join(("| command | what it answers |", "|---|---|", *rows))
    return f"{before}{LIST_STARTS}\n\n{table}\n\n{LIST_ENDS}{after}"
