"""Laws of llama-quantize's mixes over Llama-like models."""

from __future__ import annotations

from itertools import pairwise
from typing import Final

from hypothesis import given
from hypothesis import strategies as st

from roofcast.modelspec.ggml_mix import MIXES, mix_bytes
from roofcast.modelspec.spec import ModelSpec, build_spec

DESCENDING: Final = (
    ("f32", "f16", "q8_0", "q6_k", "q5_k_m", "q5_k_s", "q4_k_m", "q4_k_s", "q3_k_l", "q3_k_m", "q3_k_s", "q2_k"),
    (
        "iq4_nl",
        "iq4_xs",
        "iq3_m",
        "iq3_s",
        "iq3_xs",
        "iq3_xxs",
        "iq2_m",
        "iq2_s",
        "iq2_xs",
        "iq2_xxs",
        "iq1_m",
        "iq1_s",
    ),
)


@st.composite
def llamas(draw: st.DrawFn) -> ModelSpec:
    """Models whose rows 256 divides: heads of 128 in groups of 1 to 8, feed-forwards at least as wide as they are."""
    group, kv_heads = draw(st.sampled_from((1, 2, 4, 8))), 2 * draw(st.integers(1, 4))
    hidden = 128 * group * kv_heads
    return build_spec(
        {
            "model_type": "llama",
            "hidden_size": hidden,
            "num_hidden_layers": draw(st.integers(1, 90)),
            "num_attention_heads": group * kv_heads,
            "num_key_value_heads": kv_heads,
            "intermediate_size": hidden * draw(st.integers(1, 4)),
            "vocab_size": 32 * draw(st.integers(1, 8192)),
            "tie_word_embeddings": draw(st.booleans()),
        }
    )


@given(llamas())
def test_more_bits_by_name_are_more_bytes(spec: ModelSpec) -> None:
    """Bytes fall along the names of K-quants, and along those of I-quants."""
    for names in DESCENDING:
        totals = [mix_bytes(spec, name).total for name in names]
        assert all(larger >= smaller for larger, smaller in pairwise(totals)), dict(zip(names, totals, strict=True))


@given(llamas(), st.sampled_from(sorted(MIXES)), st.sampled_from((True, False, None)))
def test_no_parameter_is_lost(spec: ModelSpec, mix: str, imatrix: bool | None) -> None:
    """Elements by type add up to the parameters, and components to the total."""
    made = mix_bytes(spec, mix, imatrix=imatrix)

    assert sum(made.elements.values()) == spec.parameters
    assert made.total == sum(made.components.values())
    assert made.components.keys() == spec.components.keys()
