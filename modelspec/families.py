"""The table of model classes that roofcast knows: `model_type` -> what that class fixes in code."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

    from roofcast.modelspec.family import Family

# modules that hold rows, and the name of their table; a later one is imported only where no earlier one has the class
TABLES: Final[dict[str, str]] = {
    "families_plain": "PLAIN_FAMILIES",
    "families_mixed": "MIXED_FAMILIES",
    "families_recurrent": "RECURRENT_FAMILIES",
    "families_kin": "KIN_FAMILIES",
    "families_later": "LATER_FAMILIES",
    "families_newest_a": "NEWEST_A_FAMILIES",
    "families_newest_b": "NEWEST_B_FAMILIES",
    "families_newest_c": "NEWEST_C_FAMILIES",
    "families_encoder": "ENCODER_FAMILIES",
}
# facts whose value must be above zero where a class needs them; of the others zero and null mean something
POSITIVE: Final = frozenset({"experts", "expert_width", "kv_lora_rank"})
# a MoE class whose files say 0 experts for a dense model
DENSE_AT_ZERO: Final = frozenset({"granitemoe", "granitemoeshared", "granitemoehybrid"})


def find_family(model_type: str) -> Family | None:
    """The row of a model class, None where the table has none.

    >>> find_family("qwen3").qk_norm, find_family("brand_new")
    ('head', None)
    """
    return next((table[model_type] for name in TABLES if model_type in (table := _table(name))), None)


def all_families() -> dict[str, Family]:
    """Every row of the table."""
    return {model_type: family for name in TABLES for model_type, family in _table(name).items()}


def _table(name: str) -> Mapping[str, Family]:
    table: Mapping[str, Family] = getattr(import_module(f"roofcast.modelspec.{name}"), TABLES[name])
    return table
