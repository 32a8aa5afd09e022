"""Under which key of its config.json a model class reads a fact."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from roofcast.modelspec.keys import ALIASES
from roofcast.modelspec.reading import ALWAYS, keys_read

if TYPE_CHECKING:
    from roofcast.modelspec.family import Family

# switches that only some kinds have; a class of which nobody knows what it reads has none of them
_OF_KINDS: Final = frozenset({"mamba_proj_bias", "use_bias", "mamba_conv_bias", "use_conv_bias", "mamba_rms_norm"})


@dataclass(frozen=True, slots=True)
class ClassKeys:
    """The keys that one class reads.

    Args:
        model_type: the class; empty is one that nobody knows.
        family: what it fixes in code.
    """

    model_type: str
    family: Family

    @property
    def known(self) -> bool:
        """Whether it is a class of the table."""
        return bool(self.model_type)

    @property
    def own_head_dim(self) -> bool:
        """Whether it reads a head width of its own."""
        return self.family.own_head_dim

    def has(self, feature: str) -> bool:
        """Whether it understands a feature's keys."""
        return not self.known or feature in self.family.has

    def of(self, fact: str) -> str:
        """The key of a fact; empty where the class reads none.

        >>> from roofcast.modelspec.families import find_family
        >>> mixtral = ClassKeys("mixtral", find_family("mixtral"))
        >>> mixtral.of("experts"), mixtral.of("kv_heads"), mixtral.of("shared_experts")
        ('num_experts', 'num_key_value_heads', '')
        """
        names = self.family.names.get(fact) or ALIASES.get(fact, (fact,))
        return next((name for name in names if self.reads(name)), "")

    def reads(self, key: str) -> bool:
        """Whether the class reads a key; of a class that the reference implementation does not have, every key."""
        read = keys_read(self.model_type)
        return read is None or key in read or key in ALWAYS or key in self.family.reads

    def switches(self, trait: object) -> tuple[str, ...]:
        """The keys that decide a trait and that the class reads, the first of those that would; none where it is fixed."""
        if not isinstance(trait, str) or not trait:
            return ()
        names = tuple(name for name in trait.split("|") if self.reads(name))
        if keys_read(self.model_type) is None:
            names = tuple(name for name in names if name not in _OF_KINDS)
        return names[:1]
