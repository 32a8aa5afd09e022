"""Real text of `profile speculate`: whether both models are checkpoints, what is continued, what became of it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from roofcast.calculators.answer import Remarks, remarks
from roofcast.calculators.errors import UsageError
from roofcast.cli.profiling import left_line, watching

if TYPE_CHECKING:
    from collections.abc import Sequence

    from roofcast.calculators.profiled_texts import TextRound, Texts
    from roofcast.cli.profiling import Bench

LARGEST: Final = 16 * 2**20  # [B] of a file of prompts
MOST: Final = 1000  # prompts
NEW: Final = 64  # tokens of a text where no option says how many


@dataclass(frozen=True, slots=True)
class TextAsked:
    """What is to be continued.

    Args:
        names: target and draft, as asked for.
        file: --text; None is random tokens.
        new: --tokens; None is not given.
        weights: --weights and --draft-weights.
        seed: --seed.
    """

    names: tuple[str, str]
    file: str | None
    new: int | None
    weights: tuple[str | None, str | None]
    seed: int

    @property
    def tokens(self) -> int:
        """New tokens of each prompt. [token]"""
        return NEW if self.new is None else self.new

    def texts(self) -> Texts | None:
        """What is continued; None where nothing is: by --tokens 0, or where the models are no checkpoints.

        Raises:
            UsageError: a file that cannot be, or one beside models that are no checkpoints.
            UnavailableError: one, and transformers is not there.
        """
        from roofcast.calculators.profiled_checkpoint import LOADED
        from roofcast.calculators.profiled_texts import Texts
        from roofcast.profiler.checkpoint_load import import_transformers, silenced
        from roofcast.profiler.checkpoint_rounds import ready
        from roofcast.profiler.checkpoint_tokens import check_words
        from roofcast.profiler.errors import UnavailableError

        if not self.tokens:
            return None
        lines = self._lines() if self.file is not None else ()
        why, option = ready(self.names), self._option()
        if why is not None and option is not None:
            if why:
                raise UnavailableError(f"{option}: {why}")
            raise UsageError(f"{option}: TARGET and DRAFT must both be folders with weights to continue text")
        if lines:
            with silenced(import_transformers()):
                check_words((Path(self.names[0]), Path(self.names[1])))
        formats = tuple(one if one in LOADED else None for one in self.weights)
        texts = Texts(lines=lines, new=self.tokens, seed=self.seed, weights=(formats[0], formats[1]))
        return texts if why is None else None

    def missing(self) -> str | None:
        """Why both are checkpoints, and yet nothing is continued; None otherwise."""
        from roofcast.profiler.checkpoint_rounds import ready

        return (ready(self.names) or None) if self.tokens else None

    def _option(self) -> str | None:
        """The option that asks for text; None where none does."""
        if self.file is not None:
            return f"--text {self.file}"
        return f"--tokens {self.new:,}" if self.new is not None else None

    def _lines(self) -> tuple[str, ...]:
        """The prompts of a file, one a line; empty lines are none.

        Raises:
            UsageError: it cannot be read, or has none.
        """
        where = f"--text {self.file}"
        try:
            with Path(self.file or "").open("rb") as file:
                content = file.read(LARGEST + 1)
            text = content.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            raise UsageError(f"{where}: it is no text in UTF-8") from error
        except (OSError, ValueError) as error:  # ValueError: a name with a NUL byte
            raise UsageError(f"{where}: it cannot be read ({getattr(error, 'strerror', None) or error})") from error
        lines = tuple(line.strip() for line in text.splitlines() if line.strip())
        if len(content) > LARGEST or len(lines) > MOST:
            raise UsageError(f"{where}: at most {MOST:,} prompts of {LARGEST >> 20} MiB together")
        if not lines:
            raise UsageError(f"{where}: it has no line with a prompt")
        return lines


@dataclass(frozen=True, slots=True)
class Continued:
    """What became of texts.

    Args:
        rounds: an entry a draft length.
        left: what is left.
        why: as of `sweep`.
        problem: why there are none; empty where there are.
    """

    rounds: tuple[TextRound, ...] = ()
    left: tuple[str, ...] = ()
    why: str = ""
    problem: str = ""

    @property
    def said(self) -> Remarks:
        """What is to be said of them."""
        notes = dict.fromkeys(note for one in self.rounds for note in one.notes)
        problem = f"no real text: {self.problem}" if self.problem else None
        return remarks(list(notes), [left_line(self.left, self.why), problem])


NOTHING: Final = Continued()


def continued(asked: TextAsked, texts: Texts | None, drafted: Sequence[int], opened: Bench) -> Continued:
    """Texts continued with every draft length; a checkpoint that cannot be is a warning, for rounds are measured by then."""
    from roofcast.profiler.checkpoint_rounds import text_rounds
    from roofcast.profiler.errors import ProfileUsageError, UnavailableError

    if texts is None:
        return Continued(problem=asked.missing() or "")
    folders = Path(asked.names[0]), Path(asked.names[1])
    try:
        with watching() as watch:
            swept = text_rounds(opened.runtime, folders, tuple(drafted), texts, opened.budget, watch)
    except (UnavailableError, ProfileUsageError) as error:
        return Continued(problem=str(error))
    return Continued(swept.done, swept.left, swept.why)
