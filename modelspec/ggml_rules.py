"""Which type llama-quantize gives a tensor: rules by named mix, as rows of a table; the first that fits holds.

Source: llama.cpp, src/llama-quant.cpp (llama_tensor_get_type_impl, tensor_type_fallback), 2026. There, fused QKV
tensors follow the rules of values. Before they had rows of their own: all of Q6_K in Q5_K_M (files 1 to 2.4 % larger),
none raised in IQ4_XS (3 % smaller).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

VALUES: Final = "values"
# kind of a tensor -> names of its tensors, as llama-quantize sorts them
KINDS: Final[dict[str, tuple[str, ...]]] = {
    VALUES: ("attn_v", "attn_qkv", "attn_kv_b"),
    "keys": ("attn_k",),
    "queries": ("attn_q",),
    "attention_output": ("attn_output",),
    "gate": ("ffn_gate", "ffn_gate_exps", "ffn_gate_shexp"),
    "up": ("ffn_up", "ffn_up_exps", "ffn_up_shexp"),
    "down": ("ffn_down", "ffn_down_exps", "ffn_down_shexp"),
    "tokens": ("token_embd", "per_layer_token_embd"),
    "output": ("output",),
}
KIND_OF: Final[dict[str, str]] = {name: kind for kind, names in KINDS.items() for name in names}
PLAIN: Final[dict[str, str]] = {  # never quantised: what the converter writes in full, and what keeps its 16 bit
    "ffn_gate_inp": "F32",
    "ffn_gate_inp_shexp": "F32",
    "indexer.q_proj": "F16",
    "indexer.k_proj": "F16",
    "altup_correct_coef": "F32",
    "altup_predict_coef": "F32",
    **dict.fromkeys(("altup_router", "altup_proj", "altup_unembd_proj", "laurel_l", "laurel_r"), "F16"),
    "per_layer_model_proj": "F16",
}

LOWEST: Final = frozenset(["iq1_s", "iq1_m", "iq2_xxs", "iq2_xs", "iq2_s", "iq2_m"])
LARGER_TWO: Final = frozenset(("iq2_s", "iq2_m"))
FIVE_BITS_OUT: Final = frozenset(  # of attention's output, where there are eight experts
    ["q2_k", "iq3_xs", "iq3_xxs", "q3_k_s", "q3_k_m", "iq4_nl", "q4_k_s", "q4_k_m", "iq3_s", "iq3_m", "iq4_xs"]
)

# a row of columns that the block does not divide falls back to a type of blocks of 32
FALLBACK: Final[dict[str, str]] = {
    **dict.fromkeys(("IQ1_S", "IQ1_M", "IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ3_XXS", "IQ3_S", "IQ4_XS"), "IQ4_NL"),
    **dict.fromkeys(("Q2_K", "Q3_K", "TQ1_0", "TQ2_0"), "Q4_0"),
    "Q4_K": "Q5_0",
    "Q5_K": "Q5_1",
    "Q6_K": "Q8_0",
}
LAST: Final = "F16"  # where 32 does not divide a row either
SHARED: Final = 4  # query heads a key head, or experts, from which values are small beside the rest
MIXTRAL: Final = 8  # experts, as llama-quantize knows Mixtral
THIRD: Final = 2
GROUPED: Final[dict[str, str]] = {"Q3_K": "Q5_K", "Q4_K": "Q5_K"}  # values of what llama.cpp calls a 70B model


@dataclass(frozen=True, slots=True)
class Case:
    """A tensor as the rules see it.

    Args:
        index, count: its number among tensors of its kind, or of its layer in a mixture of experts, and of how many.
        group: query heads that share a key head in the first layer; 0 where that has none.
        experts: routed experts a layer.
        falcon: whether the class is Falcon, which has rules of its own.
        uneven: whether the block of the mix's own type does not divide a row.
        stacked: whether it holds several matrices: experts, or heads.
        imatrix: whether an importance matrix is at hand.
    """

    index: int = 0
    count: int = 0
    group: int = 0
    experts: int = 0
    falcon: bool = False
    uneven: bool = False
    stacked: bool = False
    imatrix: bool = False

    @property
    def shared(self) -> bool:
        """Whether four or more query heads share a key head."""
        return self.group >= SHARED

    @property
    def eight(self) -> bool:
        """Whether there are eight experts, as in Mixtral."""
        return self.experts == MIXTRAL

    @property
    def first_eighth(self) -> bool:
        """Whether it is in the first eighth."""
        return self.index < self.count // 8

    @property
    def first_sixteenth(self) -> bool:
        """Whether it is in the first sixteenth."""
        return self.index < self.count // 16

    @property
    def more_bits(self) -> bool:
        """Whether it is in the first or last eighth, or every third between them.

        >>> sum(Case(index=n, count=32).more_bits for n in range(32))
        16
        """
        third = (self.index - self.count // 8) % 3 == THIRD
        return self.first_eighth or self.index >= 7 * self.count // 8 or third


def _always(_: Case) -> bool:
    return True


def _first(count: int) -> Callable[[Case], bool]:
    return lambda case: case.index < count


@dataclass(frozen=True, slots=True)
class Rule:
    """In these mixes a tensor gets this type, where the condition holds.

    Args:
        mixes: names of the mixes; every one where empty.
        type: of ggml; empty is the mix's own.
        when: the condition.
    """

    mixes: frozenset[str]
    type: str
    when: Callable[[Case], bool] = _always


def _rule(mixes: str, type_: str, when: Callable[[Case], bool] = _always) -> Rule:
    return Rule(frozenset(mixes.split()), type_, when)


EVERY: Final = ""
OWN: Final = ""
MIXED_PRECISION: Final = (Rule(frozenset(("mxfp4_moe",)), "MXFP4", lambda t: t.stacked), _rule("mxfp4_moe", "Q8_0"))

OUTPUT_RULES: Final = (
    _rule("mxfp4_moe", "Q8_0"),
    _rule(EVERY, "Q8_0", lambda t: t.falcon or t.uneven),
    Rule(LOWEST | {"iq3_xxs"}, "Q5_K"),
    _rule("q8_0", OWN),
    _rule(EVERY, "Q6_K"),
)
RULES: Final[dict[str, tuple[Rule, ...]]] = {
    "output": OUTPUT_RULES,
    "tokens": (
        _rule("iq2_xxs iq2_xs iq1_s iq1_m", "Q2_K"),
        _rule("iq2_s iq2_m iq3_xxs", "IQ3_S"),
        _rule("tq1_0 tq2_0", "Q4_K"),
    ),
    VALUES: (
        Rule(LOWEST, "Q4_K", lambda t: t.shared or t.experts >= SHARED),
        Rule(LARGER_TWO, "IQ3_S"),
        Rule(LOWEST, "Q2_K"),
        _rule(EVERY, "Q8_0", lambda t: t.eight),
        _rule("q2_k q2_k_s iq3_xxs iq3_xs iq3_s", "Q4_K", lambda t: t.shared),
        _rule("q2_k", "Q3_K"),
        _rule("iq3_xxs", "IQ3_S", lambda t: not t.imatrix),
        _rule("iq3_m", "Q4_K"),
        _rule("q3_k_m", "Q5_K", _first(2)),
        _rule("q3_k_m", "Q4_K"),
        _rule("q3_k_l", "Q5_K"),
        _rule("iq4_nl iq4_xs", "Q5_K", lambda t: t.shared),
        _rule("q4_k_m q5_k_m", "Q6_K", lambda t: t.more_bits),
        _rule("q4_k_s", "Q5_K", _first(4)),
    ),
    "keys": (
        Rule(LOWEST, "Q4_K", lambda t: t.eight),
        Rule(LOWEST, OWN),
        _rule(EVERY, "Q8_0", lambda t: t.eight),
        _rule("iq3_xs", "IQ3_XXS"),
        _rule("iq3_xxs", "IQ2_S"),
    ),
    "queries": (_rule("iq3_xs", "IQ3_XXS"), _rule("iq3_xxs", "IQ2_S")),
    "down": (
        Rule(LARGER_TWO, "IQ3_S", lambda t: t.first_eighth),
        Rule(LOWEST, "Q2_K", lambda t: t.first_eighth),
        _rule("q2_k", "Q3_K"),
        _rule("q2_k_s", "Q4_K", lambda t: t.first_eighth),
        _rule("iq3_xxs", "Q4_K", lambda t: not t.imatrix and t.first_eighth),
        _rule("iq3_xxs", "Q3_K", lambda t: not t.imatrix),
        _rule("q3_k_m", "Q5_K", lambda t: t.first_sixteenth),
        _rule("q3_k_m", "Q4_K", lambda t: not t.falcon or t.more_bits),
        _rule("iq3_m", "Q4_K", lambda t: t.first_eighth or (t.eight and t.more_bits)),
        _rule("q3_k_l", "Q4_K", lambda t: t.falcon),
        _rule("q3_k_l", "Q5_K"),
        _rule("q4_k_m", "Q6_K", lambda t: t.first_sixteenth if t.falcon else t.more_bits),
        _rule("q4_k_m", "Q5_K", lambda t: t.falcon and t.more_bits),
        _rule("iq4_nl iq4_xs", "Q5_K", lambda t: t.first_eighth and not t.imatrix),
        _rule("q5_k_m", "Q6_K", lambda t: t.more_bits),
        _rule("q4_k_s", "Q5_K", lambda t: t.first_eighth and not t.falcon),
        _rule("q4_0", "Q4_1", lambda t: t.first_eighth and t.imatrix),
        _rule("q5_0", "Q5_1", lambda t: t.first_eighth and t.imatrix),
    ),
    "attention_output": (
        Rule(LOWEST, "Q5_K", lambda t: t.eight),
        _rule("iq1_s iq1_m", "IQ2_XXS"),
        Rule(LARGER_TWO, "IQ3_S"),
        _rule("q3_k_l", "Q4_K", lambda t: t.falcon),
        _rule(EVERY, OWN, lambda t: t.falcon),
        Rule(FIVE_BITS_OUT, "Q5_K", lambda t: t.eight),
        _rule(EVERY, OWN, lambda t: t.eight),
        _rule("q2_k", "Q3_K"),
        _rule("iq3_xxs", "IQ3_S"),
        _rule("q3_k_m iq3_m", "Q4_K"),
        _rule("q3_k_l", "Q5_K"),
    ),
    **dict.fromkeys(
        ("gate", "up"), (_rule("iq3_xs", "IQ3_XXS", lambda t: t.count // 8 <= t.index < 7 * t.count // 8),)
    ),
}


def type_by_rule(mix: str, own: str, kind: str, case: Case) -> str:
    """Type of a tensor before its shape is looked at: of the first rule that fits, else the mix's own.

    >>> type_by_rule("q4_k_m", "Q4_K", "down", Case(index=31, count=32)), type_by_rule("q4_k_m", "Q4_K", "up", Case())
    ('Q6_K', 'Q4_K')
    """
    rules = RULES.get(kind, ()) if kind == "output" else (*MIXED_PRECISION, *RULES.get(kind, ()))
    fitting = (rule for rule in rules if (not rule.mixes or mix in rule.mixes) and rule.when(case))
    return next((rule.type for rule in fitting), own) or own
