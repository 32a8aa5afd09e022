"""The table of model classes that roofcast knows: `model_type` -> what that class fixes in code."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from roofcast.modelspec.families_encoder import ENCODER_FAMILIES
from roofcast.modelspec.families_kin import KIN_FAMILIES
from roofcast.modelspec.families_mixed import MIXED_FAMILIES
from roofcast.modelspec.families_plain import PLAIN_FAMILIES
from roofcast.modelspec.families_recurrent import RECURRENT_FAMILIES

if TYPE_CHECKING:
    from roofcast.modelspec.family import Family

FAMILIES: Final[dict[str, Family]] = {
    **PLAIN_FAMILIES,
    **MIXED_FAMILIES,
    **RECURRENT_FAMILIES,
    **KIN_FAMILIES,
    **ENCODER_FAMILIES,
}

# facts whose value must be above zero where a class needs them; of the others zero and null mean something
POSITIVE: Final = frozenset({"experts", "expert_width", "kv_lora_rank"})
# a MoE class whose files say 0 experts for a dense model
DENSE_AT_ZERO: Final = frozenset({"granitemoe", "granitemoeshared", "granitemoehybrid"})
