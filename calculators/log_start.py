"""One start in a log, gathered line by line: its terms, its settings, and how it ended."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, NamedTuple

from roofcast.calculators.log_terms import (
    COUNTS,
    HAD,
    NEGATIVE,
    USED,
    Logged,
    Seen,
    decimals,
    excerpt,
    listing,
    number,
)

if TYPE_CHECKING:
    import re
    from collections.abc import Iterable, Iterator

    from roofcast.calculators.log_terms import Dialect, Message

TERMS: Final = HAD | USED | COUNTS
ALSO_SET: Final = frozenset(("n_ctx",))  # terms that are settings too
SIZED: Final = frozenset(("kv", "k", "tokens", "total_tokens", "blocks", "cache", "kv_buffer", "runner_kv"))
MOST_KINDS: Final = 1024  # of what a start states; more is no log of a server
MOST_SHOWN: Final = 3  # lines that are told of each sort


class Key(NamedTuple):
    """What a number is of."""

    draft: bool
    name: str
    part: str
    device: str


class Failure(NamedTuple):
    """What went wrong, and where it is said; the lowest rank is the reason, others follow from it."""

    rank: int
    reason: str
    line: int
    text: str

    def __str__(self) -> str:
        return f"{self.reason} (line {self.line:,}: {self.text})"


@dataclass(slots=True)
class Start:
    """What lines said so far of one start."""

    line: int
    seen: dict[Key, Seen] = field(default_factory=dict)
    settings: dict[str, str] = field(default_factory=dict)
    version: str | None = None
    failure: Failure | None = None
    survived: Failure | None = None
    ready: bool = False
    draft: bool = False
    part: str = ""
    malformed: list[str] = field(default_factory=list)
    unread: int = 0

    @property
    def sized(self) -> bool:
        """Whether the size of the cache is told."""
        return any(key.name in SIZED and not key.draft for key in self.seen)

    @property
    def whole(self) -> bool:
        """Whether the log tells how it ended."""
        return self.sized or self.failure is not None

    def begins(self, message: Message) -> bool:
        """Whether a line is of the next start."""
        if message.opens == "anew":
            return bool(self.seen) or self.failure is not None
        return message.opens == "sized" and self.whole and not self.draft

    def take(self, message: Message, match: re.Match[str], line: int, rank: int) -> None:
        """What one line says."""
        self.draft |= message.opens == "draft" and self.sized
        if message.ready and not self.ready:
            self.ready, self.survived, self.failure = True, self.failure, None
        if message.failure is not None:
            self.fail(Failure(rank, message.failure, line, excerpt(match.string, match.start())))
        groups = {name: text for name, text in match.groupdict().items() if text is not None}
        device, self.part = groups.pop("device", "").strip(), groups.pop("part", self.part)
        draft = self.draft and not message.whole
        for name in groups.keys() - (TERMS - ALSO_SET) - {"version"}:
            self._set("draft_" * draft + name, groups[name])
        values = {name: number(text) for name, text in groups.items() if name in TERMS}
        if not all(_possible(name, value) for name, value in values.items()):
            self._refuse(line, excerpt(match.string, match.start()))
            return
        for name, value in values.items():
            if value is not None:
                step = _step(name, groups[name], message)
                size = value * (1.0 if name in COUNTS else message.unit)
                key = Key(draft, name, self.part, device)
                self._add(key, Seen(name, size, step, line, excerpt(match.string, match.start())))

    def fail(self, failure: Failure) -> None:
        """One more thing that went wrong: after the server was ready it is none of its start."""
        if self.ready:
            self.survived = self.survived or failure
        elif self.failure is None or failure.rank < self.failure.rank:
            self.failure = failure

    def configure(self, dialect: Dialect, text: str) -> None:
        """Settings that a line lists; the first of a name counts, of lines the last."""
        listed: dict[str, str] = {}
        for key, value in listing(dialect.names).findall(text):
            stripped = value.strip("'\"").removeprefix("torch.")
            if stripped and stripped != "None":
                listed.setdefault(dialect.names[key], stripped)
        self.settings.update(listed)

    def _set(self, name: str, text: str) -> None:
        """Of a setting the last statement counts, unless it is the one before with fewer digits."""
        known = number(self.settings.get(name, ""))
        if known is None or f"{known:.{decimals(text)}f}" != text:
            self.settings[name] = text

    def _add(self, key: Key, seen: Seen) -> None:
        before = self.seen.get(key)
        if before is not None:
            before.add(seen)
        elif len(self.seen) < MOST_KINDS:
            self.seen[key] = seen

    def _refuse(self, line: int, text: str) -> None:
        self.unread += 1
        if len(self.malformed) < MOST_SHOWN:
            self.malformed.append(f"line {line:,} is not taken, since it states no size that can be: {text}")

    def terms(self, dialect: Dialect) -> tuple[Logged, ...]:
        """Its terms, in the order of the log."""
        summed: dict[str, Logged] = {}
        for key, seen in self.seen.items():
            stated = Logged("", seen.value, seen.line, seen.text, seen.ranks, seen.low, seen.high, seen.step)
            for called in dialect.called(key.name, key.part, key.device):
                name = "draft_" * key.draft + called
                summed[name] = _together(name, summed.get(name), stated)
        return tuple(sorted(dialect.summed_up(summed).values(), key=lambda term: term.line))

    def notes(self, terms: Iterable[Logged]) -> Iterator[str]:
        """What should be known of it."""
        yield from self.malformed
        if self.unread > len(self.malformed):
            yield f"{self.unread - len(self.malformed):,} more lines are not taken for such a reason"
        if differing := [term.name for term in terms if term.ranks > 1]:
            yield f"ranks differ in {', '.join(differing)}: the least cache and the most of what is used count"
        if self.survived is not None:
            yield f"the server started all the same: {self.survived}"
        if not self.whole:
            yield "it ends before the cache is sized"


def _together(name: str, before: Logged | None, stated: Logged) -> Logged:
    """Devices and caches add up; the line is the first's."""
    if before is None:
        return replace(stated, name=name)
    return replace(
        before,
        value=before.value + stated.value,
        low=before.low + stated.low,
        high=before.high + stated.high,
        step=before.step + stated.step,
        ranks=max(before.ranks, stated.ranks),
    )


def _possible(name: str, value: float | None) -> bool:
    """Whether a term can have a value: counts are whole but for concurrency, and few terms are negative."""
    if value is None or (value < 0 and name not in NEGATIVE):
        return False
    return name not in COUNTS or name == "concurrency" or value.is_integer()


def _step(name: str, text: str, message: Message) -> float:
    """What one more in the last digit would be. [B] of sizes"""
    if name in COUNTS:
        return 0.01 if name == "concurrency" else 1.0
    return message.unit * 10.0 ** -max(decimals(text), message.digits)
