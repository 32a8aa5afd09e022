"""Lengths of chats like those of two public data sets, drawn where the data themselves are not at hand."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator
    from random import Random


@dataclass(frozen=True, slots=True)
class ChatLengths:
    """Prompts and outputs that are log-normal, independent, and together no longer than a limit.

    A pair that is longer is drawn anew, which lowers the means.

    Args:
        prompt: mean of prompts before the limit. [token]
        output: mean of outputs before the limit. [token]
        prompt_sigma: standard deviation of ln(prompt). [-]
        output_sigma: standard deviation of ln(output). [-]
        longest: prompt and output together at most. [token]
    """

    prompt: float
    output: float
    prompt_sigma: float
    output_sigma: float
    longest: int = 2048

    def pairs(self, count: int, random: Random) -> Iterator[tuple[int, int]]:
        """Draw so many pairs of prompt and output: exp(N(ln m - s^2 / 2, s)), rounded, 1 at least. [token]

        >>> from random import Random
        >>> list(ChatLengths(100, 50, 0, 0).pairs(2, Random(0)))  # no spread: the means
        [(100, 50), (100, 50)]
        """
        prompt, output = (
            (math.log(mean) - sigma**2 / 2, sigma)
            for mean, sigma in ((self.prompt, self.prompt_sigma), (self.output, self.output_sigma))
        )
        while count > 0:
            pair = _tokens(random.gauss(*prompt)), _tokens(random.gauss(*output))
            if sum(pair) <= self.longest:
                yield pair
                count -= 1


def _tokens(logarithm: float) -> int:
    return max(1, round(math.exp(logarithm)))


# 161 in and 338 out when drawn. The sigma of outputs follows from the reservation of Orca (Max) there: 13.3 % of memory in
# 91.1 % that is places of 2,048 are 299 tokens to come = E[o^2] / (2 E[o]); that of prompts is assumed and moves little.
# Source: Kwon et al. 2023, arXiv:2309.06180, section 6.1, and figures 2 and 11.
SHAREGPT: Final = ChatLengths(167, 356, 1.0, 0.85)

# 19.3 in and 58.5 out; both sigmas are assumed: that of outputs so that two samples save the 6.1 % of section 6.3 there.
# Source: Kwon et al. 2023, arXiv:2309.06180, section 6.1 and figure 11.
ALPACA: Final = ChatLengths(19.3, 58.5, 0.6, 0.95)
