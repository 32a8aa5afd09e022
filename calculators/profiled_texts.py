"""What real rounds of speculation hold: texts to continue, what each was continued with, and where it parts from plain decoding."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

#: share of a format's numbers by which neighbours of 1 differ: fp32 has 24 bits, fp16 11, bf16 8
STEP: Final = {"fp32": 2.0**-23, "fp16": 2.0**-10, "bf16": 2.0**-7}
TIE: Final = (
    4.0  # such steps of the largest logit: each of two logits is off by one in its format, by another before it
)


@dataclass(frozen=True, slots=True)
class Texts:
    """Texts to continue.

    Args:
        lines: a prompt each, in words; where there are none, prompts are random tokens.
        new: tokens that each gets. [token]
        seed: of random prompts.
        random: how many of them.
        length: of each. [token]
        weights: formats that target and draft are loaded in, bf16, fp16 or fp32; None is their own.
    """

    lines: tuple[str, ...] = ()
    new: int = 64
    seed: int = 0
    random: int = 4
    length: int = 128
    weights: tuple[str | None, str | None] = (None, None)


@dataclass(frozen=True, slots=True)
class Difference:
    """Where a text by speculation parts from plain greedy decoding.

    Args:
        prompt: number of the text, from 0.
        position: of the first new token that differs, from 0. [token]
        gap: logit of plain decoding's token less that of speculation's, as plain decoding sees both; 0 is a tie. [-]
        scale: largest size of a logit there. [-]
        number_format: that the model computes in.
    """

    prompt: int
    position: int
    gap: float
    scale: float
    number_format: str

    @property
    def tie(self) -> bool:
        """Whether rounding can make the gap: gap <= 4 u scale, u the step of the format's numbers at 1.

        A pass over k + 1 rows sums in another order than one over a single row, so that logits differ by rounding, and of two
        that are as close the other may win.

        >>> Difference(0, 5, 0.25, 20.0, "bf16").tie, Difference(0, 5, 0.25, 20.0, "fp32").tie
        (True, False)
        """
        return self.gap <= TIE * STEP[self.number_format] * self.scale


@dataclass(frozen=True, slots=True)
class TextRound:
    """Texts continued with one draft length, beside plain greedy decoding of the same.

    Args:
        drafted: k. [token]
        prompts: texts.
        new_tokens: that they got together. [token]
        accepted: drafted tokens that each round accepted, in order; rounds of all texts.
        plain_seconds: plain decoding of all texts, their prompts read before. [s]
        speculative_seconds: with speculation, likewise. [s]
        differences: where texts differ, of each the first place.
        transformers: its version.
        notes: what is said of both models, as that ids are kept below the smaller vocabulary.
    """

    drafted: int
    prompts: int
    new_tokens: int
    accepted: tuple[int, ...]
    plain_seconds: float
    speculative_seconds: float
    differences: tuple[Difference, ...] = ()
    transformers: str = ""
    notes: tuple[str, ...] = ()

    @property
    def tokens_per_round(self) -> float:
        """Mean of accepted + 1, the last round of a text whole though its text is cut: 1 + sum accepted / rounds. [token]

        >>> TextRound(4, 1, 7, (4, 2, 0), 1.0, 0.5).tokens_per_round
        3.0
        """
        return 1 + sum(self.accepted) / len(self.accepted)

    @property
    def accepted_by_position(self) -> tuple[float, ...]:
        """Share of rounds that accept the i-th drafted token, and so all before it. [-]

        >>> TextRound(4, 1, 7, (4, 2, 0, 1), 1.0, 0.5).accepted_by_position
        (0.75, 0.5, 0.25, 0.25)
        """
        rounds = len(self.accepted)
        return tuple(sum(one > place for one in self.accepted) / rounds for place in range(self.drafted))
