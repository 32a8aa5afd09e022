"""What a server's log says of its start: terms, settings, and how the numbers of its lines are read."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

GIB: Final = float(1 << 30)
MIB: Final = float(1 << 20)
LONGEST_TEXT: Final = 200  # characters of a line that are shown
MOST_VALUES: Final = 1024  # that are told apart of one term
ALIKE: Final = 0.75  # of a last digit: values that differ by less are one, printed with more or fewer digits
LARGEST: Final = 1e18  # no term is larger
# a number, loosely: what is none, as nan or 1e400, is seen and refused rather than overlooked
N: Final = r"[-+]?\w(?:[\w.,]{0,38}\w)?"
STRICT: Final = re.compile(r"(?a:-?(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?)")
UNPRINTABLE: Final = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|[\x00-\x1f\x7f-\x9f]")

# terms in bytes: of what a server has, the least of its ranks counts, and of what it uses, the most
HAD: Final = frozenset(
    ("visible", "free", "budget", "kv", "k", "v", "mamba", "conv_state", "ssm_state", "mamba_intermediate",
     "avail_before", "avail_weights", "avail_pool", "avail_after")
)  # fmt: skip
USED: Final = frozenset(
    ("weights", "activation", "non_torch", "consumed", "cuda_graphs_estimated", "cuda_graphs", "non_kv", "needed",
     "swa_pool", "model_buffer", "compute_buffer", "output_buffer", "kv_buffer", "cache", "cache_k", "cache_v",
     "state", "state_buffer", "runner_weights", "runner_kv", "runner_graph", "peak_torch")
)  # fmt: skip
# terms that are no sizes
COUNTS: Final = frozenset(
    ("blocks", "block_size", "tokens", "total_tokens", "full_tokens", "pool_tokens", "swa_tokens", "concurrency", "concurrency_tokens", "estimated_max_model_len",
     "mamba_slots", "max_running_requests", "cells", "n_ctx")
)  # fmt: skip
# vLLM measures these as differences of free memory, which other processes change
NEGATIVE: Final = frozenset(("kv", "non_torch", "cuda_graphs_estimated", "cuda_graphs"))


@dataclass(frozen=True, slots=True)
class Logged:
    """One term of a start as its log states it."""

    name: str
    """What it is: visible, budget, weights, activation, non_torch, cuda_graphs, kv, blocks, tokens ..."""
    value: float
    """Bytes of a size, else a plain number. Where ranks differ, the one that counts: the least cache, the most used."""
    line: int
    """Line of the log that states it, from 1."""
    text: str
    """That line, without colours, cut to 200 characters."""
    ranks: int
    """Different values that are stated of it: 1 where all ranks agree."""
    low: float
    """Smallest value seen."""
    high: float
    """Largest value seen."""
    step: float
    """What one more in the last digit printed would be; the value is exact to half of it."""


@dataclass(frozen=True, slots=True)
class StartLog:
    """A server's start, as its log tells it."""

    engine: str
    """vllm, sglang, llama.cpp or ollama."""
    version: str | None
    """As the log states it; null where it does not."""
    terms: tuple[Logged, ...]
    """Its memory, term by term, in the order of the log."""
    settings: Mapping[str, str]
    """What it was started with, by the names of the flags."""
    notes: tuple[str, ...]
    """What should be known of the log: it is cut off, has several starts, or ranks differ."""
    failure: str | None
    """Why the server did not start; null where the log shows no failure."""

    def term(self, name: str) -> Logged | None:
        """The term of a name; None where the log has none."""
        return next((term for term in self.terms if term.name == name), None)


@dataclass(frozen=True, slots=True)
class Message:
    """A kind of line.

    Args:
        words: text that every such line holds, by which it is found.
        shape: where its numbers are. A group with a term's name is that term; version, device and part are the
            server's version, what a size is of, and the cache that the next lines are of; others are settings.
        unit: of its sizes. [B]
        digits: decimal places that its numbers have at least, be they printed or not.
        opens: that a start begins: "anew" if there was anything before, "sized" if that had its cache already; with
            "draft", the next lines are of a draft model if the cache is there already.
        failure: what the line says went wrong.
        ready: whether it says that the server has started; web servers say so too, so it does not tell the engine.
        whole: whether it is of the server itself, even after a draft model was announced.
        common: whether other programs have such a line too, so that it does not tell the engine.
    """

    words: str
    shape: re.Pattern[str]
    unit: float = GIB
    digits: int = 2
    opens: str | None = None
    failure: str | None = None
    ready: bool = False
    whole: bool = False
    common: bool = False


def message(words: str, shape: str | None = None, unit: float = GIB, digits: int = 2) -> Message:
    """A kind of line that states terms or settings; `@` in its shape stands for a number.

    >>> message("took", r"took (?P<weights>@) GiB").shape.search("Model took 14.99 GiB")["weights"]
    '14.99'
    """
    return Message(words, re.compile((shape or re.escape(words)).replace("@", N)), unit, digits)


def _as_is(terms: Mapping[str, Logged]) -> dict[str, Logged]:
    return dict(terms)


def _as_stated(settings: Mapping[str, str]) -> dict[str, str]:
    return dict(settings)


def _by_name(name: str, part: str, device: str) -> tuple[str, ...]:
    del part, device
    return (name,)


@dataclass(frozen=True, slots=True)
class Dialect:
    """How an engine's log speaks.

    Args:
        engine: its name.
        messages: kinds of lines; of failures, the first that a log has is told.
        config: words of lines that list what the server was started with.
        names: keys of those lists, and the flags that they are.
        shown: words of the line that a user looks for.
        called: terms that a number adds to, by its name, the cache that it is of, and its device.
        summed_up: all terms, with what the lines leave to add.
        settled: all settings, as the flags have them.
        runs: the engine that this one starts, whose lines its log has too.
    """

    engine: str
    messages: tuple[Message, ...]
    config: tuple[str, ...]
    names: Mapping[str, str]
    shown: str
    called: Callable[[str, str, str], tuple[str, ...]] = _by_name
    summed_up: Callable[[Mapping[str, Logged]], dict[str, Logged]] = _as_is
    settled: Callable[[Mapping[str, str]], dict[str, str]] = _as_stated
    runs: Dialect | None = None


@dataclass(slots=True)
class Seen:
    """Values of one term, as they are read: a log may state one millions of times."""

    name: str
    value: float
    step: float
    line: int
    text: str
    low: float = field(init=False)
    high: float = field(init=False)
    coarsest: float = field(init=False)
    values: set[float] = field(init=False)

    def __post_init__(self) -> None:
        self.low = self.high = self.value
        self.coarsest, self.values = self.step, {self.value}

    def add(self, other: Seen) -> None:
        """One more statement of it: the line of the value that counts is kept, of like ones that with more digits."""
        self.low, self.high = min(self.low, other.value), max(self.high, other.value)
        self.coarsest = max(self.coarsest, other.step)
        if len(self.values) < MOST_VALUES:
            self.values.add(other.value)
        more = other.value - self.value
        if abs(more) <= ALIKE * max(self.step, other.step):
            counts = other.step < self.step
        else:
            counts = more < 0 if self.name in HAD | COUNTS else more > 0
        if counts:
            self.value, self.step, self.line, self.text = other.value, other.step, other.line, other.text

    @property
    def ranks(self) -> int:
        """Values that differ by more than digits do."""
        return 1 + sum(b - a > ALIKE * self.coarsest for a, b in pairwise(sorted(self.values)))


def listing(names: Mapping[str, str]) -> re.Pattern[str]:
    """How keys and values of a list stand: key=value, or 'key': value.

    >>> listing({"tp_size": "tensor_parallel_size"}).search("ServerArgs(tp_size=2, dp_size=1)").groups()
    ('tp_size', '2')
    """
    keys = "|".join(map(re.escape, names))
    return re.compile(rf"""(?<![\w.-])['"]?({keys})['"]?(?:=|: )('[^']{{0,200}}'|"[^"]{{0,200}}"|[\w./:+-]{{1,200}})""")


def number(text: str) -> float | None:
    """What a text states, where that is a number that can be: no nan, none beyond 1e18, none of half-written digits.

    >>> number("476,016"), number("-2.14"), number("nan"), number("1e400"), number("4,76")
    (476016.0, -2.14, None, None, None)
    """
    if STRICT.fullmatch(text) is None:
        return None
    value = float(text.replace(",", ""))
    return value if math.isfinite(value) and abs(value) < LARGEST else None


def decimals(text: str) -> int:
    """Digits after the point.

    >>> decimals("14.9888"), decimals("15")
    (4, 0)
    """
    return len(text.partition(".")[2])


def plain(text: str) -> str:
    r"""A line without colours and control characters.

    >>> plain("\x1b[1;36m(EngineCore pid=1)\x1b[0;0m INFO\r")
    '(EngineCore pid=1) INFO'
    """
    return UNPRINTABLE.sub("", text).strip()


def excerpt(text: str, start: int) -> str:
    """A line, or 200 characters of it from before where its message starts.

    >>> excerpt("INFO took 2 GiB", 5)
    'INFO took 2 GiB'
    """
    if len(text) <= LONGEST_TEXT:
        return text
    return text[:LONGEST_TEXT] if start < LONGEST_TEXT // 2 else "... " + text[start : start + LONGEST_TEXT - 4]
