"""The table of number formats: bytes an element with their scales, compute formats, names."""

from __future__ import annotations

import pytest

from roofcast.modelspec.errors import MalformedModelError
from roofcast.modelspec.formats import FORMATS, TORCH_DTYPES, UnknownFormatError, find_format
from tests.model_configs import is_one_line

PLAIN = {"fp64": 8, "fp32": 4, "fp16": 2, "bf16": 2, "fp8": 1, "int8": 1, "int4": 0.5}

# Bytes and elements of one block: ggml's struct sizes (fp16 scale and minimum, quants, 6-bit or 8-bit group scales),
# 16 e2m1 values under one e4m3 for nvfp4, 32 under one e8m0 for mxfp4, a 16-bit scale and zero point for 32 of KIVI.
BLOCKS = {
    "q4_0": (2 + 16, 32),
    "iq4_nl": (2 + 16, 32),
    "q4_1": (2 + 2 + 16, 32),
    "q5_0": (2 + 4 + 16, 32),
    "q5_1": (2 + 2 + 4 + 16, 32),
    "q8_0": (2 + 32, 32),
    "q2_k": (16 + 64 + 2 + 2, 256),
    "q3_k": (32 + 64 + 12 + 2, 256),
    "q4_k": (2 + 2 + 12 + 128, 256),
    "q5_k": (2 + 2 + 12 + 32 + 128, 256),
    "q6_k": (128 + 64 + 16 + 2, 256),
    "nvfp4": (8 + 1, 16),
    "mxfp4": (16 + 1, 32),
    "kivi4": (16 + 2 + 2, 32),
    "kivi2": (8 + 2 + 2, 32),
}


@pytest.mark.parametrize(("name", "size"), PLAIN.items())
def test_plain_formats_are_their_bits(name: str, size: float) -> None:
    """A format without scales takes bits / 8 bytes an element."""
    assert find_format(name).bytes_per_element == size


@pytest.mark.parametrize(("name", "block"), BLOCKS.items())
def test_block_formats_carry_their_scales(name: str, block: tuple[int, int]) -> None:
    """A block format takes the bytes of its block over the elements that share it."""
    size, elements = block

    assert find_format(name).bytes_per_element * elements == size


def test_every_row_of_the_table_is_checked_here() -> None:
    """No format is in the table without a size that was worked out by hand above."""
    assert set(FORMATS) == set(PLAIN) | set(BLOCKS)


def test_a_row_is_found_under_its_own_name() -> None:
    """Keys of the table are the names of its rows, in lower case."""
    assert all(key == row.name == row.name.lower() for key, row in FORMATS.items())


@pytest.mark.parametrize(
    ("name", "compute"),
    [
        ("fp32", "fp32"),
        ("bf16", "bf16"),
        ("fp8", "fp8"),
        ("int8", "int8"),
        ("int4", "bf16"),
        ("nvfp4", "fp4"),
        ("mxfp4", "fp4"),
        ("q4_0", "fp16"),
        ("q6_k", "fp16"),
    ],
)
def test_a_format_is_multiplied_in_its_compute_format(name: str, compute: str) -> None:
    """Formats that no tensor core multiplies are expanded to 16 bits first; FP4 has a peak of its own."""
    assert find_format(name).compute == compute


@pytest.mark.parametrize("spelling", ["bf16", "BF16", " Bf16\n"])
def test_letter_case_and_blanks_do_not_matter(spelling: str) -> None:
    """A format is found however it is written."""
    assert find_format(spelling) is FORMATS["bf16"]


@pytest.mark.parametrize(("wrong", "near"), [("fp7", "fp8"), ("bf61", "bf16"), ("q4-0", "q4_0"), ("nvfp", "nvfp4")])
def test_an_unknown_format_names_the_nearest_and_all(wrong: str, near: str) -> None:
    """The error says what is wrong, what is nearest, and everything that would be right, on one line."""
    with pytest.raises(UnknownFormatError) as caught:
        find_format(wrong)

    message = str(caught.value)
    assert isinstance(caught.value, MalformedModelError)
    assert repr(wrong) in message
    assert f"nearest: {near}" in message
    assert all(name in message for name in FORMATS)
    assert is_one_line(message)


@pytest.mark.parametrize("wrong", ["", "zzzzzz", "a\nb"])
def test_an_unknown_format_like_no_other_lists_all(wrong: str) -> None:
    """Where nothing is near, the known names are still listed, on one line."""
    with pytest.raises(UnknownFormatError, match="known: fp64, fp32") as caught:
        find_format(wrong)

    assert "nearest" not in str(caught.value)
    assert is_one_line(str(caught.value))


def test_torch_dtypes_are_formats() -> None:
    """Every dtype that a config.json may name is the row of the table that torch means by it."""
    assert TORCH_DTYPES == {
        "bfloat16": "bf16",
        "float16": "fp16",
        "half": "fp16",
        "float32": "fp32",
        "float": "fp32",
        "float64": "fp64",
        "float8_e4m3fn": "fp8",
        "float8_e5m2": "fp8",
    }
    assert set(TORCH_DTYPES.values()) <= set(FORMATS)
