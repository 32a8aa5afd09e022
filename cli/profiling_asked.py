"""What `profile` is asked to measure, as its options say it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from roofcast.calculators.errors import UsageError
from roofcast.cli import options

MOST_POINTS: Final = 200
MOST_HEADS: Final = 1024
MOST_WIDTH: Final = 512


@dataclass(frozen=True, slots=True)
class Steps:
    """Steps of a model: batches and prompts, batches and contexts; None of a phase that is not asked."""

    prefill: tuple[str, str] | None
    decode: tuple[str, str] | None

    def points(self, phase: str) -> tuple[tuple[int, int], ...]:
        """Batch and length of every step of a phase, batches of one length after one another.

        Raises:
            UnitError, UsageError: naming the option.

        >>> Steps(None, ("1,4", "1k")).points("decode")
        ((1, 1024), (4, 1024))
        """
        asked, option = (self.prefill, "--prompt") if phase == "prefill" else (self.decode, "--context")
        if asked is None:
            return ()
        batches = list(dict.fromkeys(options.batch_list(asked[0]) or [1]))
        lengths = list(dict.fromkeys(options.token_list(asked[1], option) or [1]))
        made = tuple((batch, length) for length in lengths for batch in batches)
        if len(made) > MOST_POINTS:
            raise UsageError(f"--batch and {option} make {len(made):,} points; at most {MOST_POINTS} at once")
        for value, name in ((max(batches), "--batch"), (max(lengths), option)):
            if value > options.MOST:
                raise UsageError(f"{name} {value:,}: it must be at most {options.MOST:,}")
        return made

    @property
    def phases(self) -> tuple[str, ...]:
        """Those that are asked."""
        return tuple(name for name, asked in (("prefill", self.prefill), ("decode", self.decode)) if asked is not None)


@dataclass(frozen=True, slots=True)
class Heads:
    """Attention: its heads, the format of queries and cache, and its lengths."""

    query: int
    kv: int
    width: int
    number_format: str
    steps: Steps

    @property
    def lengths(self) -> tuple[int, ...]:
        """Prompts. [token]"""
        return tuple(length for _, length in self.steps.points("prefill"))

    @property
    def batches(self) -> tuple[int, ...]:
        """Of decode."""
        return tuple(dict.fromkeys(batch for batch, _ in self.steps.points("decode")))

    @property
    def contexts(self) -> tuple[int, ...]:
        """Of decode. [token]"""
        return tuple(dict.fromkeys(length for _, length in self.steps.points("decode")))

    def check(self) -> None:
        """Refuses heads and formats that cannot be.

        Raises:
            UsageError: naming the option.
        """
        for option, value, most in (
            ("--heads", self.query, MOST_HEADS),
            ("--kv-heads", self.kv, MOST_HEADS),
            ("--head-dim", self.width, MOST_WIDTH),
        ):
            if not 1 <= value <= most:
                raise UsageError(f"{option} {value:,}: it must be 1 to {most:,}")
        if self.query % self.kv:
            raise UsageError(f"--kv-heads {self.kv} does not divide --heads {self.query}; every KV head serves as many")
        if self.number_format not in {"bf16", "fp16", "fp32"}:
            raise UsageError(f"--weights {self.number_format}: queries and cache can be bf16, fp16 or fp32")
        self.steps.points("prefill"), self.steps.points("decode")
