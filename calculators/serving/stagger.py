"""Outputs of one length in a closed loop: they vary a little, as clients never stay in step."""

from __future__ import annotations

from typing import Final

from roofcast.calculators.serving.lengths import Fixed, Uniform

STAGGER: Final = 0.03  # by which outputs vary where nothing else is asked [-]


def staggered(tokens: int, share: float = STAGGER) -> Fixed | Uniform:
    """Outputs of about so many tokens: uniform from n (1 - s) to n (1 + s). [token]

    Clients whose requests are all of one length would stay in step for ever, and their prompts queue each time.

    >>> staggered(256), staggered(10), staggered(256, 0.0)
    (Uniform(least=248, most=264), Fixed(tokens=10), Fixed(tokens=256))
    """
    if not round(tokens * share):
        return Fixed(tokens)
    return Uniform(max(1, round(tokens * (1 - share))), round(tokens * (1 + share)))
