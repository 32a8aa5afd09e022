"""What a profile of a real checkpoint holds: what was loaded, and its times as a user waits for them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from roofcast.modelspec.step import DECODE

if TYPE_CHECKING:
    from roofcast.calculators.profiled import Sample


#: formats that transformers loads a checkpoint in
LOADED: Final = ("bf16", "fp16", "fp32")


@dataclass(frozen=True, slots=True)
class CheckpointFacts:
    """A checkpoint as transformers has loaded it.

    Args:
        path: its folder.
        transformers: its version.
        attention: implementation that it chose, as `sdpa`.
        dtype: format that it computes in: bf16, fp16 or fp32.
        parameters: that were loaded. [parameter]
        weight_bytes: of these in memory, tied ones once. [B]
        stored_so: whether weights are multiplied as they are stored, quantised.
        notes: what is to be said of how it was loaded, as that tensors of its files were left out.
    """

    path: str
    transformers: str
    attention: str
    dtype: str
    parameters: int
    weight_bytes: int
    stored_so: bool = False
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class CheckpointPoint:
    """TTFT of a prompt, or steps of decode that follow one another.

    Args:
        phase: `prefill` or `decode`.
        batch: sequences at once.
        context: tokens of the prompt; of decode in the cache of each at the first timed step, the new one with them. [token]
        sample: time by the host's clock until the first token is chosen, or of a step; None where it could not run.
        steps: of decode that were timed; of a prompt 1.
        again: of decode, the same steps once more, over lengths that were seen: less where something is prepared for each
            new length; None of a prompt, and where the cache cannot be taken back.
        problem: why it could not run, in one line.
    """

    phase: str
    batch: int
    context: int
    sample: Sample | None = None
    again: Sample | None = None
    steps: int = 1
    problem: str | None = None

    @property
    def tokens(self) -> int:
        """Tokens that it computes. [token]"""
        return self.batch if self.phase == DECODE else self.batch * self.context

    @property
    def middle(self) -> int:
        """Context at which its work is counted: of decode that of the middle step, c + (s - 1) / 2 rounded down. [token]

        >>> CheckpointPoint("decode", 4, 1024, steps=16).middle, CheckpointPoint("prefill", 1, 512).middle
        (1031, 512)
        """
        return self.context + (self.steps - 1) // 2
