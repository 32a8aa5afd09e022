"""The formulas behind the numbers of a page: which term a heading stands for, and how it is counted."""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from roofcast.calculators.errors import UsageError
from roofcast.calculators.explain import HEADINGS, MATRICES, TERMS, counted
from roofcast.calculators.explain_served import SERVED, place_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from roofcast.reports.document import Document, Table

NO_ENGINE: Final = "none"
ROWS: Final = re.compile(r"(?:memory\b.*|term|time|rate|)$")  # first heading of tables whose rows are terms too
ASKED: Final = frozenset(("context",))  # columns that repeat what was asked; as a row it is an engine's term
# what a command means by a heading that means something else elsewhere, or that has no formula there
OWN: Final[Mapping[tuple[str, str], str | None]] = {
    ("kv", "gib"): "cache_bytes",
    ("model", "kv cache"): "cache_bytes",
    ("estimate", "arithmetic"): "compute_seconds",
    ("estimate", "memory"): "memory_seconds",
    ("estimate", "links"): "link_seconds",
    ("gpus", "prefill"): "intensity",
    ("gpus", "decode"): "intensity",
    ("fit", "reserve"): None,
    ("fit", "budget"): "budget_bytes",
    ("fit", "kv cache"): "kv_bytes",
    ("fit", "nominal memory"): "memory_bytes",
    ("roofline", "gb"): "bytes",
    ("attention", "flash mib"): "logsumexp_bytes",
    ("levers", "x"): None,
    ("price", "input"): None,  # a price list's
    ("price", "cached"): None,
    ("price", "output"): None,
    ("simulate", "ttft"): "simulated_times",
    ("simulate", "tpot"): "simulated_times",
    ("simulate", "requests"): None,
    ("simulate", "requests a step"): None,
    ("simulate", "busy"): None,
    ("simulate", "steps"): "step_seconds",
    ("validate", "by"): None,
    ("validate", "tokens"): None,
    ("validate", "weights"): None,
}
# what a heading means where times are those to expect
EXPECTED: Final[Mapping[tuple[str, str], str]] = {
    ("gpus", "tpot"): "expected_seconds",
    ("gpus", "ttft"): "expected_seconds",
    ("gpus", "tokens/s"): "expected_tokens_per_second",
}
# first word of a module of `calculators.engines` -> whose rules it has, where they are not all engines'
OWNERS: Final[Mapping[str, frozenset[str]]] = {
    "vllm": frozenset(("vllm",)),
    "kv": frozenset(("vllm",)),
    "sglang": frozenset(("sglang",)),
    "llama": frozenset(("llama.cpp", "ollama")),
    "leftover": frozenset(("tensorrt-llm", "tgi", "lmdeploy")),
    "tensorrt": frozenset(("tensorrt-llm",)),
    "tgi": frozenset(("tgi",)),
    "lmdeploy": frozenset(("lmdeploy",)),
}
# what a heading has beside its quantity
DETAIL: Final = re.compile(
    r"@\S+|\b(?:of|at) \d\S*|\([^)]*\)|\ba = \S+|\b\d[\d,.]*|\b(?:b\d+|[a-z]*(?:fp|int|bf)\d+)\b"
)
UNIT: Final = re.compile(r" ?\b(?:ms|us|s|kb|mb|gb|kib|mib|gib|flop/b|tflop|usd|gpu-s)$")
FULL: Final = 95  # characters from which on a line of a docstring is as full as it can be
SIGN: Final = re.compile(r"^[-=+] ")


@dataclass(frozen=True, slots=True)
class Function:
    """A function that counts a term, in parts.

    Args:
        key: its name in links of a page.
        says: its first sentence.
        more: paragraphs, of formulas and words.
        sources: what it rests on.
        place: its module and name.
        above: whether the page has it already, under that key.
    """

    key: str
    says: str
    more: tuple[str, ...]
    sources: tuple[str, ...]
    place: str
    above: bool


@dataclass(frozen=True, slots=True)
class Term:
    """A quantity of a section's tables.

    Args:
        name: as `--explain` takes it.
        headings: of the columns and rows that have it.
        what: what it is, where its functions do not say so.
    """

    name: str
    headings: tuple[str, ...]
    what: str


@dataclass(frozen=True, slots=True)
class Formula:
    """Terms that the same functions count."""

    terms: tuple[Term, ...]
    functions: tuple[Function, ...]


def formulas(document: Document, before: set[str]) -> tuple[Formula, ...]:
    """The formulas of a document's tables, each function in full once a page.

    Args:
        document: whose tables they are of.
        before: keys of functions that the page has; those of these formulas are added.
    """
    engine = _engine(document)
    found: dict[tuple[tuple[str, str], ...], list[Term]] = {}
    for name, headings in _terms(document, served=engine != NO_ENGINE).items():
        served = engine != NO_ENGINE and name in SERVED
        what = SERVED[name][0] if served else MATRICES.get(name, "")
        places = _served_places(name, engine) if served else (TERMS[name],)
        found.setdefault(places, []).append(Term(name, tuple(headings), what))
    try:
        return tuple(
            Formula(tuple(terms), tuple(_function(place, before) for place in places))
            for places, terms in found.items()
        )
    except UsageError:  # python -OO has stripped them
        return ()


def _terms(document: Document, *, served: bool) -> dict[str, list[str]]:
    """Terms of the tables, in their order, with the headings that stand for each."""
    found: dict[str, list[str]] = {}
    own = EXPECTED if getattr(document.result, "basis", None) == "expected" else {}
    for heading in (heading for table in document.tables for heading in _headings(table)):
        bare = " ".join(DETAIL.sub(" ", heading.lower()).split())
        term = own.get((document.command, bare)) or term_of(heading, document.command, served=served)
        if term is not None and heading not in found.setdefault(term, []):
            found[term].append(heading)
    return found


def _engine(document: Document) -> str:
    """The engine by whose rules a document counts memory."""
    counted = document.command == "fit" or hasattr(document.result, "basis")  # of GPUs beside one another
    return str(document.inputs.get("engine") or NO_ENGINE) if counted else NO_ENGINE


def _headings(table: Table) -> Iterator[str]:
    yield from (" ".join(heading.split()) for heading in table.header if heading not in ASKED)
    if ROWS.match(table.header[0]):
        for row in table.rows:
            yield SIGN.sub("", row[0])


def term_of(heading: str, command: str, *, served: bool = False) -> str | None:
    """The term that a heading of a command's tables stands for; None where it stands for none.

    Args:
        heading: as printed, on one line.
        command: whose it is.
        served: whether an engine's rules count it.

    >>> term_of("KiB/ token", "kv"), term_of("GiB @4k", "kv"), term_of("TTFT ms", "levers"), term_of("x", "levers")
    ('kv_bytes_per_token', 'cache_bytes', 'ttft_seconds', None)
    >>> term_of("budget", "fit"), term_of("budget", "fit", served=True)
    ('budget_bytes', 'budget')
    """
    whole = heading.lower().replace("/ ", "/")
    bare = " ".join(DETAIL.sub(" ", whole).split())
    for name in dict.fromkeys((whole, heading.lower(), bare, UNIT.sub("", bare))):
        if not served and (command, name) in OWN:
            return OWN[command, name]
        term = HEADINGS.get(name, name)
        if term in TERMS or (served and term in SERVED):
            return term
    return None


def _served_places(term: str, engine: str) -> tuple[tuple[str, str], ...]:
    """Functions of an engine's own rules, and of those that all have."""
    names = SERVED[term][1]
    return tuple(place_of(name) for name in names if engine in OWNERS.get(re.split(r"[._]", name)[0], {engine}))


def _function(place: tuple[str, str], before: set[str]) -> Function:
    told = counted(*place)
    key = f"formula-{told.place.removeprefix('roofcast.')}"
    above = key in before
    before.add(key)
    first, *more = told.text.split("\n\n")
    says, _, rest = first.partition("\n")
    blocks, sources = [], []
    for block in filter(None, (rest, *more)):
        words, source, after = block.partition("Source:")
        if words.strip():
            blocks.append(reflowed(words.strip("\n")))
        if source:
            sources.append(" ".join(after.split()))
    if blocks and blocks[-1].endswith(":"):  # it leads to an example, which stands in the tests
        blocks.pop()
    return Function(key, says, tuple(blocks), tuple(sources), told.place, above)


def reflowed(text: str) -> str:
    r"""A paragraph of a docstring with its long lines joined; short ones and those set in are lines of their own.

    >>> reflowed("t = a + b\n" + "x" * 100 + "\ny").count("\n")
    1
    """
    lines = text.splitlines()
    joined = [lines[0]]
    for line, after in pairwise(lines):
        if len(line) >= FULL and not after.startswith(" "):
            joined[-1] += f" {after}"
        else:
            joined.append(after)
    return "\n".join(joined)
