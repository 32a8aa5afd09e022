"""What one forward pass is asked to do: sequences that each add tokens behind those that they have."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from roofcast.modelspec.errors import MalformedModelError

PREFILL: Final = "prefill"
DECODE: Final = "decode"
MIXED: Final = "mixed"
PHASES: Final = (PREFILL, DECODE, MIXED)


@dataclass(frozen=True, slots=True)
class Group:
    """Sequences of a step that are alike.

    Args:
        phase: `prefill` expands latents and reads what it wrote; `decode` reads the cache for few new tokens.
        sequences: how many.
        new: tokens that each adds. [token]
        before: tokens that each has in the cache. [token]
        positions: of each whose logits are asked: 1 at the end of a prompt, 0 in the midst of one, every new one else.
    """

    phase: str
    sequences: int
    new: int
    before: int
    positions: int = 1

    @property
    def tokens(self) -> int:
        """New tokens of all of them. [token]"""
        return self.sequences * self.new

    @property
    def context(self) -> int:
        """Tokens that each holds after the step. [token]"""
        return self.before + self.new


@dataclass(frozen=True, slots=True)
class Step:
    """One forward pass: matrices see all its tokens at once, attention each group's own.

    Args:
        groups: at least one.
        others: tokens of other replicas in the same step, which meet these in experts that all share. [token]
    """

    groups: tuple[Group, ...]
    others: int = 0

    @property
    def tokens(self) -> int:
        """New tokens. [token]

        >>> Step((Group(DECODE, 64, 1, 1023), Group(PREFILL, 1, 448, 0))).tokens
        512
        """
        return sum(group.tokens for group in self.groups)

    @property
    def phase(self) -> str:
        """Prefill or decode where all groups are of one, else mixed."""
        phases = {group.phase for group in self.groups}
        return phases.pop() if len(phases) == 1 else MIXED

    @property
    def met(self) -> int:
        """Tokens of all replicas, which shared experts see together. [token]"""
        return self.tokens + self.others

    @property
    def positions(self) -> int:
        """Tokens whose logits the head is asked for. [token]"""
        return sum(group.sequences * group.positions for group in self.groups)


def decode_step(batch: int, context: int, *, tokens: int = 1) -> Step:
    """Every sequence adds a token (or `tokens` drafted ones) and attends to `context`, itself among them.

    Raises:
        MalformedModelError: fewer than one sequence, or a context shorter than what is added.

    >>> decode_step(16, 1024).groups[0].before
    1023
    """
    _least("batch", batch, 1)
    _least("context", context, tokens)
    return Step((Group(DECODE, batch, tokens, context - tokens, positions=tokens),))


def prefill_step(batch: int, prompt: int, *, cached: int = 0, last: bool = True) -> Step:
    """Every sequence adds its prompt, less what a prefix cache or earlier chunks hold of it.

    Args:
        batch: prompts at once.
        prompt: tokens of each up to the end of this step. [token]
        cached: of these, tokens that are in the cache already; at least one is computed anew. [token]
        last: whether the prompt ends here, so that its last position's logits are asked.

    Raises:
        MalformedModelError: nothing to compute.

    >>> prefill_step(1, 8192, cached=6144).tokens
    2048
    """
    _least("batch", batch, 1)
    _least("prompt", prompt, cached + 1)
    return Step((Group(PREFILL, batch, prompt - cached, cached, positions=int(last)),))


def mixed_step(decoding: int, context: int, chunk: int, *, cached: int = 0, last: bool = False) -> Step:
    """A chunk of one prompt beside sequences that decode: chunked prefill's step.

    Args:
        decoding: sequences that each add a token.
        context: tokens that these attend to. [token]
        chunk: tokens of the prompt that the step takes. [token]
        cached: tokens of the prompt that are in the cache already. [token]
        last: whether the prompt ends with the chunk.

    Source: Agrawal et al. 2024, arXiv:2403.02310 (Sarathi-Serve), section 4.

    Raises:
        MalformedModelError: as `decode_step` and `prefill_step`.

    >>> mixed_step(64, 1024, 448).tokens
    512
    """
    prompt = prefill_step(1, cached + chunk, cached=cached, last=last)
    return Step((*decode_step(decoding, context).groups, *prompt.groups))


def chunked_prefill(batch: int, prompt: int, chunk: int, *, cached: int = 0) -> tuple[Step, ...]:
    """A prompt's steps when none takes more than `chunk` tokens of each sequence.

    Raises:
        MalformedModelError: nothing to compute, or chunks of nothing.

    >>> [step.tokens for step in chunked_prefill(1, 5000, 2048)]
    [2048, 2048, 904]
    """
    _least("chunk", chunk, 1)
    _least("prompt", prompt, cached + 1)
    ends = (*range(cached + chunk, prompt, chunk), prompt)
    starts = (cached, *ends[:-1])
    return tuple(
        prefill_step(batch, end, cached=start, last=end == prompt) for start, end in zip(starts, ends, strict=True)
    )


def _least(name: str, value: int, least: int) -> None:
    if value < least:
        msg = f"{name} is {value:,}; it must be {least:,} or more"
        raise MalformedModelError(msg)
