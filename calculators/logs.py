"""Reads a server's start from its log: vLLM's, SGLang's, llama.cpp's or Ollama's account of memory, in one pass."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from roofcast.calculators.errors import UsageError
from roofcast.calculators.log_llama import LLAMA
from roofcast.calculators.log_ollama import OLLAMA
from roofcast.calculators.log_sglang import SGLANG
from roofcast.calculators.log_start import Failure, Start
from roofcast.calculators.log_terms import Logged, StartLog, excerpt, plain
from roofcast.calculators.log_vllm import VLLM

if TYPE_CHECKING:
    import re
    from collections.abc import Iterable, Iterator, Mapping
    from typing import TextIO

    from roofcast.calculators.log_terms import Dialect, Message

__all__ = ["Logged", "StartLog", "bounded_lines", "read_start_log"]

LARGEST: Final = 1_000_000_000  # characters of a log
LONGEST_LINE: Final = 1 << 18  # characters of a line that are read; the rest of it is passed over
DIALECTS: Final = (VLLM, SGLANG, OLLAMA, LLAMA)
NAMES: Final[Mapping[str, str]] = {"vllm": "vLLM", "sglang": "SGLang", "llama.cpp": "llama.cpp", "ollama": "Ollama"}
# what any engine may end with; the engine's own words, where it has them, say more
AFTER: Final = max(len(dialect.messages) for dialect in DIALECTS)  # their rank
ENDINGS: Final[Mapping[str, str]] = {
    "OutOfMemoryError": "a device ran out of memory",
    "CUDA out of memory": "a device ran out of memory",
    "HIP out of memory": "a device ran out of memory",
    "CUDA error: out of memory": "a device ran out of memory",
    "cudaMalloc failed: out of memory": "a device ran out of memory",
    "ErrorOutOfDeviceMemory": "a device ran out of memory",
    "Engine core initialization failed": "the engine's process failed; its own lines, if the log has them, say why",
}


# parts that words share and lines of a server at work do not have
STEMS: Final = (
    "emory", "GiB", "buffer", "llocat", "KV Cache", "KV cache size", "in KV cache", "weight", " model", "LLM engine",
    "LLM server", "num_gpu_blocks", "args: ", "ttention block", "self size", "ggml", "max_",
)  # fmt: skip


def _hints() -> tuple[str, ...]:
    """Parts of words, one of which every line has that says something of a start: few, since every line is searched."""
    words = {message.words for dialect in DIALECTS for message in dialect.messages}
    words |= {text for dialect in DIALECTS for text in dialect.config} | ENDINGS.keys()
    parts = {next((stem for stem in STEMS if stem in word), word) for word in words}
    return tuple(sorted(part for part in parts if not any(other in part for other in parts - {part})))


HINTS: Final = _hints()


def bounded_lines(file: TextIO, name: str) -> Iterator[str]:
    r"""Lines of a log, of which none takes more than 256 Ki characters of memory, whatever the file is.

    Open it with errors="replace" and newline="\n", so that lines are numbered as grep and editors number them.

    Raises:
        UsageError: it is no text, or has more than 1 GB.
    """
    size, line, within = 0, 0, False
    while piece := file.readline(LONGEST_LINE):
        line += not within
        size += len(piece)
        if size > LARGEST:
            raise UsageError(
                f"--log {name}: it has more than {LARGEST // 1_000_000:,} MB; give the part with the start"
            )
        if "\0" in piece:
            raise UsageError(f"--log {name}: line {line:,} is no text in UTF-8; save the log as UTF-8")
        if not within:
            yield piece
        within = not piece.endswith("\n")


def read_start_log(lines: Iterable[str], name: str) -> StartLog:
    """What a server's log says of its start; of several, the last that the log tells to its end.

    Sizes are in bytes. Lines may have the prefixes and colours of containers, Ray and worker processes.

    Raises:
        UsageError: no line is of a start, or lines are of two engines.

    >>> found = read_start_log(["INFO [gpu_worker.py:298] Available KV cache memory: 58.11 GiB"], "server.log")
    >>> found.engine, found.terms[0].name, round(found.terms[0].value / 2**30, 2)
    ('vllm', 'kv', 58.11)
    """
    reader = _Reader(name)
    for line, text in enumerate(lines, 1):
        bare = plain(text) if "\x1b" in text else text
        if any(map(bare.__contains__, HINTS)):
            reader.read(line, plain(bare))
    return reader.result()


@dataclass(slots=True)
class _Reader:
    """The log so far: its engine, the start that lines are of, and the last whole one before."""

    name: str
    dialect: Dialect | None = None
    first: int = 0
    start: Start = field(default_factory=lambda: Start(1))
    before: Start | None = None
    starts: int = 1

    def read(self, line: int, text: str) -> None:
        """One line that may say something."""
        for dialect in DIALECTS:
            for rank, message in enumerate(dialect.messages):
                if message.words not in text or (match := message.shape.search(text)) is None:
                    continue
                if self._counts(message, dialect):
                    self._settle(dialect, line)
                    self._take(message, match, line, rank)
            if any(words in text for words in dialect.config):
                self._settle(dialect, line)
                self.start.configure(dialect, text)
        if self.dialect is not None:
            for rank, (words, reason) in enumerate(ENDINGS.items(), AFTER):
                if words in text:
                    self.start.fail(Failure(rank, reason, line, excerpt(text, text.index(words))))

    def _take(self, message: Message, match: re.Match[str], line: int, rank: int) -> None:
        """What a line says; of another start, if it begins one."""
        if self.start.begins(message):
            self._next(line, message)
        if self.dialect is not None and message in self.dialect.messages:  # not of the engine that it runs
            self.start.version = self.start.version or match.groupdict().get("version")
        self.start.take(message, match, line, rank)

    def _counts(self, message: Message, dialect: Dialect) -> bool:
        """Whether a line is of this log: that a server is ready, or failed, other programs may say in the same words."""
        known = self.dialect
        if known is None:
            return not (message.ready or message.common)
        own = known is dialect or known.runs is dialect or dialect.runs is known
        return own or not (message.ready or message.common or message.failure is not None)

    def _settle(self, dialect: Dialect, line: int) -> None:
        """Whose log it is."""
        known = self.dialect
        if known is None:
            self.dialect, self.first = dialect, line
        elif dialect.runs is known:
            self.dialect = dialect
            for start in filter(None, (self.start, self.before)):
                start.version = None  # of the engine that it runs
        elif known is not dialect and known.runs is not dialect:
            raise UsageError(
                f"--log {self.name}: line {self.first:,} is of {NAMES[known.engine]}, line {line:,} of "
                f"{NAMES[dialect.engine]}; give the log of one server"
            )

    def _next(self, line: int, message: Message) -> None:
        """Another start; one server may start several engines."""
        goes_on = self.dialect is not None and self.dialect.runs and "version" not in message.shape.groupindex
        version = self.start.version if goes_on else None
        self.before = self.start if self.start.whole else self.before
        self.start, self.starts = Start(line, version=version), self.starts + 1

    def result(self) -> StartLog:
        """What there was."""
        if self.dialect is None:
            wanted = ", ".join(f"'{dialect.shown}' ({NAMES[dialect.engine]})" for dialect in DIALECTS)
            raise UsageError(f"--log {self.name}: no line is of a server's start; it has lines such as {wanted}")
        start = self.start if self.start.whole or self.before is None else self.before
        terms = start.terms(self.dialect)
        several = (
            [f"it has {self.starts:,} starts; this is the last whole one, from line {start.line:,}"]
            if self.starts > 1
            else []
        )
        return StartLog(
            engine=self.dialect.engine,
            version=start.version,
            terms=terms,
            settings=self.dialect.settled(start.settings),
            notes=(*several, *start.notes(terms)),
            failure=None if start.failure is None else str(start.failure),
        )
