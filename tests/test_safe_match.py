"""Expressions of strangers: what Python's engine finds is found, and nothing keeps the matcher busy."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roofcast.modelspec.safe_match import UnsafePatternError, compile_safe

NAMES = ("", "a", "ab", "aab", "model.layers.0.mlp.up_proj", "model.layers.12.self_attn.q_proj", "lm_head", "b.a.b")
ATOMS = st.sampled_from(
    ["a", "b", ".", r"\.", "[ab]", "[^a]", r"\d", r"\w", "layers", "(a|b)", "(?:ab|b)", "(?=a)", "(?!b)", "^", "$"]
)
TIMES = st.sampled_from(["", "*", "+", "?", "{2}", "{1,3}", "{0,}", "*?"])


@st.composite
def expressions(draw: st.DrawFn) -> str:
    """Draw an expression of a few parts, some of them groups of others."""
    parts = [atom + ("" if atom in "^$" else draw(TIMES)) for atom in draw(st.lists(ATOMS, min_size=1, max_size=5))]
    inner = "".join(parts)
    return inner if draw(st.booleans()) else f"({inner}|{draw(ATOMS)}){draw(TIMES)}"


@given(expressions(), st.sampled_from(NAMES) | st.text("ab.1", max_size=12))
def test_it_matches_as_python_does(expression: str, name: str) -> None:
    """A name matches here exactly where re.match finds it."""
    assert compile_safe(expression)(name) == (re.match(expression, name) is not None)


@pytest.mark.parametrize(
    "expression",
    [
        "(.|.)*!", "(?:.|.)*!", "(?=(.|.)*!)", r"([a-z]|\w|.)*?Q", "(.?|.?)*!", ".?" * 30 + "!", "(?:.|.)" * 30 + "!",
        "(?:.?|.?)" * 16 + "!", "((a*)*)*b", ".*.*.*.*.*.*.*.*!", "(a?){1000}b", "(((((.*)*)*)*)*)*!",
    ],
)  # fmt: skip
def test_none_backtracks(expression: str) -> None:
    """Expressions that would keep Python's engine busy for years have an answer."""
    assert not compile_safe(expression)("model.layers.17.mlp.experts.0.gate_proj.aaaaaaaaaaaaaaaaaaaaaaaaaaaa")


@pytest.mark.parametrize(
    "expression",
    [
        "(",
        ")",
        "a)",
        "[",
        "[[a-z]x",
        "[a--b]",
        "*a",
        "a**",
        r"(a)\1",
        "(?P<x>a)",
        "(?i)a",
        "(?<=a)b",
        "a\\",
        r"\b",
        "a{9999}",
        "(" * 30 + ")" * 30,
        "a" * 600,
    ],
)
def test_what_is_not_understood_is_said(expression: str) -> None:
    """Unbalanced, unknown and too much of it are refused, without a warning of Python's."""
    with pytest.raises(UnsafePatternError):
        compile_safe(expression)


def test_a_match_has_so_many_steps() -> None:
    """Looking ahead from everywhere, again and again, is given up."""
    with pytest.raises(UnsafePatternError, match="too long"):
        compile_safe("(?=.*" * 10 + "x" + ")" * 10)("a" * 200)
