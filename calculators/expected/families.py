"""Families of operations: whose constants they have, and the formula that turns these into a time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from roofcast.calculators.expected.attention import DecodeConstants, PrefillConstants, decode_seconds, prefill_seconds
from roofcast.calculators.expected.experts import ExpertsConstants, experts_seconds
from roofcast.calculators.expected.gemm import GemmConstants, gemm_seconds
from roofcast.calculators.expected.host import HostConstants, StepConstants
from roofcast.calculators.expected.links import LinkConstants, link_seconds
from roofcast.calculators.expected.stream import StreamConstants
from roofcast.modelspec.op import ATTN_DECODE, ATTN_PREFILL, COLLECTIVE, ELEMENTWISE, GEMM, MOE

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

HOST: Final = "host"
STEP: Final = "step"


@dataclass(frozen=True, slots=True)
class Family:
    """How the time of a family is made.

    Args:
        constants: what the formula takes, a frozen dataclass.
        formula: (shape, limits, constants) -> seconds of one call; of collective (exchange, fabric, constants), of all.
        repeats: whether the same shapes come back from step to step, so that times are worth keeping.
    """

    constants: type[Any]
    formula: Callable[[Any, Any, Any], float] | None = None
    repeats: bool = False


#: family -> its constants and formula: a new family of operations is a row here
FAMILIES: Final[Mapping[str, Family]] = {
    GEMM: Family(GemmConstants, gemm_seconds, repeats=True),
    MOE: Family(ExpertsConstants, experts_seconds, repeats=True),
    ATTN_DECODE: Family(DecodeConstants, decode_seconds),
    ATTN_PREFILL: Family(PrefillConstants, prefill_seconds),
    ELEMENTWISE: Family(StreamConstants),
    COLLECTIVE: Family(LinkConstants, link_seconds),
    HOST: Family(HostConstants),
    STEP: Family(StepConstants),
}
