"""The arithmetic in docs/walkthrough.md is that of the commands: its prose has no output that another test would hold."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest

from tests.documents import DOCS
from tests.running import result

TEXT = (DOCS / "walkthrough.md").read_text()
MODEL = "llama-3.1-8b"
GB = 1e9
CONTEXTS = {128: "0.0168", 1024: "0.134", 8192: "1.07"}  # K as the table has it, 131,072 bytes a token


@cache
def steps(gpu: str) -> dict[tuple[int, int], Any]:
    """Decode of 1 and 100 users by context and batch."""
    asked = ("--engine", "vllm", "--phase", "decode", "--batch", "1,100", "--context", "128,1k,8k")
    return {(row["context"], row["batch"]): row for row in result("estimate", MODEL, "--gpu", gpu, *asked)["phases"]}


def gain(gpu: str, context: int, seconds: str) -> float | None:
    """Tokens a second of 100 users over those of one, by that time of a step; None where 100 do not fit."""
    one, hundred = steps(gpu)[context, 1][seconds], steps(gpu)[context, 100][seconds]
    return None if hundred is None else 100 * float(one) / float(hundred)


def in_ms(terms: list[Any], *families: str) -> float:
    """Expected time of terms of these families. [ms]"""
    return 1e3 * sum(float(term["expected_seconds"]) for term in terms if term["family"] in families)


def test_the_gain_is_worked_out_with_the_numbers_of_the_estimate() -> None:
    """B (W + K) / (W + B K) with the bytes that one user's step reads is 53.3, and the ratio of the bounds."""
    one = steps("h100-sxm")[1024, 1]
    w, k = one["weight_bytes"] / GB, one["state_bytes"] / GB

    lines = [
        f"= 100 ({w:.2f} + {k:.3f}) / ({w:.2f} + {100 * k:.2f})",
        f"= {100 * (w + k):.0f} / {w + 100 * k:.2f}",
        f"= {100 * (w + k) / (w + 100 * k):.1f}",
        f"W / K = {w / k:.0f} users",
        f"below 1 + W / K = {1 + w / k:.0f}",
    ]

    assert [line for line in lines if line not in TEXT] == []
    assert gain("h100-sxm", 1024, "bound_seconds") == pytest.approx(100 * (w + k) / (w + 100 * k), rel=1e-4)


@pytest.mark.parametrize("context", CONTEXTS)
def test_each_row_of_the_contexts_is_the_estimates(context: int) -> None:
    """K, W / K, the formula's gain and what to expect on both GPUs; no room where 100 do not fit."""
    one = steps("h100-sxm")[context, 1]
    w, k = one["weight_bytes"], one["state_bytes"]
    gained = 100 * (w + k) / (w + 100 * k)
    expected = [gain(gpu, context, "expected_seconds") for gpu in ("h100-sxm", "h200-sxm")]
    shown = " | ".join("no room" if value is None else f"{value:.0f}" for value in expected)

    assert k == 131_072 * context
    assert f"| {context:,} | {CONTEXTS[context]} | {short(w / k)} | {gained:.1f} | {shown} |" in TEXT
    assert float(CONTEXTS[context]) == pytest.approx(k / GB, rel=5e-3)


def short(value: float) -> str:
    """Three digits, as the table has them."""
    return f"{value:#.3g}".removesuffix(".")


def test_the_terms_of_one_and_a_hundred_users_are_the_estimates() -> None:
    """Rows of the table by kind of term, which sum to the step."""
    one, hundred = (steps("h100-sxm")[1024, batch] for batch in (1, 100))
    kinds = {
        "matrices": ("gemm",),
        "attention over the caches": ("attn_decode",),
        "small operations": ("elementwise",),
    }

    rows = [
        f"| {name} | {in_ms(one['terms'], *families):.2f} | {in_ms(hundred['terms'], *families):.2f} |"
        for name, families in kinds.items()
    ]
    rows.append(f"| host | {1e3 * one['host_seconds']:.2f} | {1e3 * hundred['host_seconds']:.2f} |")
    rows.append(f"| a step | {1e3 * one['expected_seconds']:.2f} | {1e3 * hundred['expected_seconds']:.2f} |")

    assert [row for row in rows if row not in TEXT] == []
