"""Types of ggml: numbers, blocks and bytes."""

from __future__ import annotations

from typing import Any

import pytest

from roofcast.modelspec.errors import MalformedModelError
from roofcast.modelspec.ggml import BY_NAME, GGML_TYPES, REMOVED, ggml_type
from roofcast.modelspec.weights import DTYPE_BITS, Tensor

NEWER = {"Q2_0"}  # than gguf 0.19


def test_every_type_of_the_gguf_package_is_known_alike() -> None:
    """Numbers, blocks and bytes are those of the package that writes the files."""
    gguf: Any = pytest.importorskip("gguf")
    published = {kind.name: (int(kind), *sizes) for kind, sizes in gguf.GGML_QUANT_SIZES.items()}
    ours = {kind.name: (kind.number, kind.block, kind.bytes) for kind in GGML_TYPES.values()}

    assert {name: ours[name] for name in published} == published
    assert ours.keys() - published.keys() <= NEWER


@pytest.mark.parametrize(
    ("name", "bits"),
    [
        ("F16", 16),
        ("Q4_0", 4.5),  # 32 nibbles and a half-precision scale: (16 + 2) * 8 / 32
        ("Q8_0", 8.5),
        ("Q2_K", 2.625),  # the figures of ggml-common.h
        ("Q3_K", 3.4375),
        ("Q4_K", 4.5),
        ("Q5_K", 5.5),
        ("Q6_K", 6.5625),
        ("IQ1_S", 1.5625),
        ("IQ1_M", 1.75),
        ("IQ2_XXS", 2.0625),
        ("IQ2_XS", 2.3125),
        ("IQ2_S", 2.5625),
        ("IQ3_XXS", 3.0625),
        ("IQ3_S", 3.4375),
        ("IQ4_NL", 4.5),
        ("IQ4_XS", 4.25),
        ("TQ1_0", 1.6875),
        ("TQ2_0", 2.0625),
        ("MXFP4", 4.25),  # an exponent of a byte for 32
        ("NVFP4", 4.5),  # a byte of scale for 16
        ("Q1_0", 1.125),
        ("Q2_0", 2.25),
    ],
)
def test_bits_are_those_that_llama_cpp_prints(name: str, bits: float) -> None:
    """Bits an element takes, scales included, by hand."""
    assert BY_NAME[name].bits == bits
    assert Tensor("w", name, (3, 512)).bytes == 3 * 512 * bits / 8


def test_names_that_both_formats_have_mean_the_same() -> None:
    """A dtype of safetensors that ggml has too takes as many bits there."""
    assert {name: BY_NAME[name].bits for name in DTYPE_BITS.keys() & BY_NAME.keys()} == {
        "F64": 64,
        "F32": 32,
        "F16": 16,
        "BF16": 16,
        "I64": 64,
        "I32": 32,
        "I16": 16,
        "I8": 8,
    }


def test_a_number_is_a_type_a_former_one_or_none() -> None:
    """Every number up to the newest is known, and the error of a former type says what it was."""
    assert set(GGML_TYPES).isdisjoint(REMOVED)
    assert set(range(max(GGML_TYPES) + 1)) == set(GGML_TYPES) | set(REMOVED)
    for number, name in REMOVED.items():
        with pytest.raises(MalformedModelError, match=rf"x has ggml type {number}, {name}, which llama\.cpp has"):
            ggml_type(number, "x")
    with pytest.raises(MalformedModelError, match="x has ggml type 99; known: 0 F32, 1 F16, 2 Q4_0"):
        ggml_type(99, "x")
