"""Acceptance from a server's log: lines of vLLM and SGLang, whatever the order of their fields."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from roofcast.calculators.errors import UsageError
from roofcast.calculators.rounds_log import read_log
from tests.running import refused, result, roofcast

if TYPE_CHECKING:
    from pathlib import Path

NEW = (
    "(APIServer pid=1) INFO 11-02 10:00:00 [metrics.py:96] SpecDecoding metrics: Mean acceptance length: {mean}, Accepted "
    "throughput: 9.00 tokens/s, Drafted throughput: 20.00 tokens/s, Accepted: {accepted} tokens, Drafted: {drafted} tokens, "
    "Per-position acceptance rate: {shares}, Avg Draft acceptance rate: 40.0%"
)
OLD = "INFO SpecDecoding metrics: Avg Draft acceptance rate: 30.0%, Mean acceptance length: 1.60, Accepted: 3 tokens, Drafted: 10 tokens, Per-position acceptance rate: 0.400, 0.200"
SGLANG = "[2025-09-01 10:00:00] Decode batch, #running-req: 1, accept len: {mean}, accept rate: 0.50, cuda graph: True"


def log(folder: Path, *lines: str) -> Path:
    """A log with these lines among others."""
    path = folder / "server.log"
    path.write_text("\n".join(["INFO starting", *lines, "INFO bye"]), encoding="utf-8")
    return path


def test_lines_of_vllm_are_weighted_with_their_rounds(tmp_path: Path) -> None:
    """100 drafted tokens of two positions are 50 rounds, 300 are 150: (50 x .8 + 150 x .6) / 200 = .65, and .35."""
    found = read_log(
        log(
            tmp_path,
            NEW.format(mean="2.30", accepted=65, drafted=100, shares="0.800, 0.500"),
            NEW.format(mean="1.90", accepted=135, drafted=300, shares="0.600, 0.300"),
        )
    )

    assert (found.engine, found.lines) == ("vLLM", 2)
    assert found.by_position == pytest.approx((0.65, 0.35))
    assert found.tokens == pytest.approx(2.0)


def test_the_order_of_fields_does_not_matter(tmp_path: Path) -> None:
    """Earlier releases print the same fields in another order."""
    assert read_log(log(tmp_path, OLD)).by_position == pytest.approx((0.4, 0.2))


def test_idle_intervals_say_nothing(tmp_path: Path) -> None:
    """Lines without a round are left out."""
    idle = NEW.format(mean="nan", accepted=0, drafted=0, shares="0.000, 0.000")

    assert read_log(log(tmp_path, idle, OLD, idle)).lines == 1


def test_sglang_tells_the_mean(tmp_path: Path) -> None:
    """accept len counts the target's own token; positions are not told."""
    found = read_log(log(tmp_path, SGLANG.format(mean="2.50"), SGLANG.format(mean="3.50")))

    assert (found.engine, found.tokens, found.by_position) == ("SGLang", 3.0, ())


def test_a_log_answers_the_command(tmp_path: Path) -> None:
    """Rounds by position, and the one chance that would yield as much: 1 + a + a^2 = 1.6."""
    shown = result("speculate", "--log", str(log(tmp_path, OLD)), "--k", "1,2,3")

    assert [row["tokens_per_round"] for row in shown["formulas"]] == pytest.approx([1.4, 1.6, 1.7])
    assert shown["measured_acceptance"] == pytest.approx((-1 + (1 + 4 * 0.6) ** 0.5) / 2)


def test_sglangs_log_needs_its_length(tmp_path: Path) -> None:
    """The mean of rounds of a length that only the user knows: 1 + .6914 + .4780 + .3305 = 2.5."""
    path = log(tmp_path, SGLANG.format(mean="2.50"))

    refused(roofcast("speculate", "--log", str(path)), 2, "1 line of SGLang", "--k must give")
    assert result("speculate", "--log", str(path), "--k", "3")["measured_acceptance"] == pytest.approx(0.6914, abs=1e-4)


def test_mixed_lengths_are_refused(tmp_path: Path) -> None:
    """Means over rounds of two and three tokens are of neither."""
    other = NEW.format(mean="2.30", accepted=65, drafted=100, shares="0.800, 0.500, 0.300")

    with pytest.raises(UsageError, match="tells 3 positions, earlier ones 2"):
        read_log(log(tmp_path, OLD, other))


@pytest.mark.parametrize("name", ["absent.log", "."])
def test_logs_that_cannot_be_read(tmp_path: Path, name: str) -> None:
    """No such file, a folder."""
    refused(roofcast("speculate", "--log", str(tmp_path / name)), 2, "--log", "cannot be read")


def test_logs_of_servers_that_do_not_speculate(tmp_path: Path) -> None:
    """The line that is looked for is named."""
    refused(roofcast("speculate", "--log", str(log(tmp_path))), 2, "Mean acceptance length")


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (NEW.format(mean="2.30", accepted=65, drafted=100, shares="9.900, 9.900"), "a share of 9.9"),
        (SGLANG.format(mean="0.0"), "0 tokens a round"),
    ],
)
def test_figures_that_cannot_be(tmp_path: Path, line: str, words: str) -> None:
    """Shares above one, means below one: the line is named."""
    refused(roofcast("speculate", "--log", str(log(tmp_path, line)), "--k", "3"), 2, "line 2", words)


def test_two_engines_in_one_log(tmp_path: Path) -> None:
    """Means over two servers are of neither."""
    refused(
        roofcast("speculate", "--log", str(log(tmp_path, OLD, SGLANG.format(mean="2.5"))), "--k", "3"),
        2,
        "line 3",
        "one server",
    )


def test_figures_of_any_length_are_no_figures(tmp_path: Path) -> None:
    """Thousands of digits are no count; the line says nothing then."""
    long = NEW.format(mean="2.30", accepted=1, drafted="9" * 5000, shares="0.800, 0.500")

    assert read_log(log(tmp_path, long, OLD)).lines == 2  # weighted as one round
