"""Regular expressions from strangers, matched in time that grows with the square of a name at most.

Python's own engine backtracks: an expression of thirty characters can keep it busy for years. Here an expression is a
sequence of parts, each of which takes a set of positions in a name to the set of positions behind it.
"""

from __future__ import annotations

import re
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    Positions = frozenset[int]
    Part = Callable[[str, Positions], Positions]

_MOST_PARTS: Final = 500  # of one expression
_DEEPEST: Final = 20  # groups within each other
_MOST_TIMES: Final = 1_000  # of {m,n}
_ESCAPES: Final = "dDwWsS"
_TIMES: Final = re.compile(r"\{(\d{1,4})(,?)(\d{0,4})\}")
_SET: Final = re.compile(r"\[\^?\]?(?:\\.|[^\]\\\[])*\]")
# what Python's engine does quickly: characters, a few stars, one group of plain alternatives
_TAME: Final = re.compile(r"\^?(?:[\w/-]|\\\.|\.\*?|\\d\+|\((?:\?:)?\w+(?:\|\w+){0,40}\)){1,120}\$?")
_TAME_STARS: Final = 3


class UnsafePatternError(ValueError):
    """The expression has what is not understood, or too much of it."""


@dataclass(slots=True)
class Steps:
    """What is left of the steps of matching: all expressions of a list share one."""

    left: int = 200_000  # some seconds; published lists take a hundredth

    def take(self) -> None:
        """Take one.

        Raises:
            UnsafePatternError: there is none left.
        """
        self.left -= 1
        if self.left < 0:
            raise UnsafePatternError("it takes too long to match")


def compile_safe(text: str, steps: Steps | None = None) -> Callable[[str], bool]:
    r"""A function that tells whether an expression matches from a name's start on, as re.match does.

    Understood are characters, classes, groups, alternatives, repeats, anchors and looks ahead; no back-references.

    Args:
        text: the expression.
        steps: that it may take, together with others; of its own where None.

    Raises:
        UnsafePatternError: the expression has something else; the function raises it where matching takes too long.

    >>> match = compile_safe(r"(?!.*lm_head).*mlp\.(gate|up)_proj$")
    >>> match("model.layers.0.mlp.up_proj"), match("model.layers.0.mlp.down_proj"), match("lm_head.mlp.up_proj")
    (True, False, False)
    >>> compile_safe("(.|.)*!")("model.layers.0.mlp.experts.0.gate_proj")
    False
    """
    if _TAME.fullmatch(text) and len(re.findall(r"\*|\+|\(", text)) <= _TAME_STARS and text.count("(") <= 1:
        tame = re.compile(text)
        return lambda name: tame.match(name) is not None
    part = _Parser(text, steps or Steps()).whole()
    return lambda name: bool(part(name, frozenset({0})))


@dataclass(slots=True)
class _Parser:
    """Reads an expression from left to right into one part."""

    text: str
    steps: Steps
    at: int = 0
    parts: int = 0
    depth: int = 0

    def whole(self) -> Part:
        part = self._alternatives()
        if self.at < len(self.text):
            raise UnsafePatternError(f"an unbalanced {self.text[self.at]!r}")
        return part

    def _alternatives(self) -> Part:
        branches = [self._sequence()]
        while self._take("|"):
            branches.append(self._sequence())
        return branches[0] if len(branches) == 1 else _either(branches, self.steps)

    def _sequence(self) -> Part:
        parts: list[Part] = []
        while self.at < len(self.text) and self.text[self.at] not in "|)":
            parts.append(self._repeated(self._atom()))
            self.parts += 1
            if self.parts > _MOST_PARTS:
                raise UnsafePatternError(f"more than {_MOST_PARTS} parts")
        return _in_turn(parts, self.steps)

    def _atom(self) -> Part:
        char = self.text[self.at]
        larger = {"(": self._group, "[": self._class, "\\": self._escaped}.get(char)
        if larger:
            return larger()
        self.at += 1
        if char in "*+?{":
            raise UnsafePatternError(f"a {char!r} with nothing to repeat")
        return _SINGLE.get(char) or _character(lambda other: other == char)

    def _escaped(self) -> Part:
        char = self.text[self.at + 1 : self.at + 2]
        self.at += 2
        if char and char in _ESCAPES:
            return _character(lambda other: re.match(rf"\{char}", other) is not None)
        if not char or char.isalnum():
            raise UnsafePatternError(f"a \\{char}")
        return _character(lambda other: other == char)

    def _class(self) -> Part:
        found = _SET.match(self.text, self.at)
        if not found:
            raise UnsafePatternError("a set without its end, or one within another")
        self.at = found.end()
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                one = re.compile(found[0])
        except (re.error, FutureWarning) as error:
            raise UnsafePatternError(str(error).partition(" at position")[0]) from error
        return _character(lambda other: one.match(other) is not None)

    def _group(self) -> Part:
        self.depth += 1
        if self.depth > _DEEPEST:
            raise UnsafePatternError(f"more than {_DEEPEST} groups within each other")
        self.at += 1
        kind = next((kind for kind in ("?:", "?=", "?!") if self.text.startswith(kind, self.at)), "")
        self.at += len(kind)
        if not kind and self._take("?"):
            raise UnsafePatternError("a (? of another kind than (?:, (?= and (?!")
        inner = self._alternatives()
        if not self._take(")"):
            raise UnsafePatternError("a ( without its )")
        self.depth -= 1
        return _ahead(inner, self.steps, wanted=kind == "?=") if kind in {"?=", "?!"} else inner

    def _repeated(self, part: Part) -> Part:
        least, most = self._times()
        self._take("?")  # a lazy repeat finds the same names
        return part if (least, most) == (1, 1) else _many(part, least, most, self.steps)

    def _times(self) -> tuple[int, int | None]:
        found = _TIMES.match(self.text, self.at)
        if found:
            self.at = found.end()
            least = int(found[1])
            most = least if not found[2] else int(found[3]) if found[3] else None
            if max(least, most or 0) > _MOST_TIMES:
                raise UnsafePatternError(f"more than {_MOST_TIMES} times")
            return least, most
        bounds = {"*": (0, None), "+": (1, None), "?": (0, 1)}
        sign = self.text[self.at : self.at + 1]
        if sign not in bounds:
            return 1, 1
        self.at += 1
        return bounds[sign]

    def _take(self, char: str) -> bool:
        if not self.text.startswith(char, self.at):
            return False
        self.at += 1
        return True


def _character(fits: Callable[[str], bool]) -> Part:
    return lambda name, found: frozenset(at + 1 for at in found if at < len(name) and fits(name[at]))


_SINGLE: Final[Mapping[str, Part]] = {
    "^": lambda _, found: found & {0},
    "$": lambda name, found: found & {len(name)},
    ".": _character(lambda _: True),
}


def _in_turn(parts: list[Part], steps: Steps) -> Part:
    def match(name: str, found: Positions) -> Positions:
        for part in parts:
            if not found:
                break
            steps.take()
            found = part(name, found)
        return found

    return match


def _either(branches: list[Part], steps: Steps) -> Part:
    def match(name: str, found: Positions) -> Positions:
        reached: Positions = frozenset()
        for branch in branches:
            steps.take()
            reached |= branch(name, found)
        return reached

    return match


def _ahead(inner: Part, steps: Steps, *, wanted: bool) -> Part:
    def match(name: str, found: Positions) -> Positions:
        kept = set()
        for at in found:
            steps.take()
            if bool(inner(name, frozenset({at}))) == wanted:
                kept.add(at)
        return frozenset(kept)

    return match


def _many(part: Part, least: int, most: int | None, steps: Steps) -> Part:
    """A part so many times: positions that were reached before need no second look."""

    def match(name: str, found: Positions) -> Positions:
        for _ in range(least):
            steps.take()
            found = part(name, found)
        reached = found
        new = found
        times = 0
        while new and (most is None or times < most - least):
            steps.take()
            new = part(name, new) - reached
            reached |= new
            times += 1
        return reached

    return match
