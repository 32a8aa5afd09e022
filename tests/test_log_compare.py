"""A log beside its prediction: what agrees, what differs first, and what usually causes it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roofcast.calculators.engines.terms import GIB, EngineMemory, EngineTerm, exact
from roofcast.calculators.errors import UsageError
from roofcast.calculators.log_causes import CAUSES, LESS, MORE
from roofcast.calculators.log_compare import BESIDE, FOLLOWS, ORDER, compare, first_difference, given_of
from roofcast.calculators.log_terms import COUNTS, HAD, USED
from roofcast.calculators.logs import read_start_log

if TYPE_CHECKING:
    from roofcast.calculators.log_lines import LogLine
    from roofcast.calculators.log_terms import StartLog

LOGS = Path(__file__).parent / "fixtures" / "logs"


@dataclass(frozen=True)
class Anything:
    """A cache that nothing is asked of."""

    def sequences(self, context: int) -> int:
        """None fit."""
        return 0 * context

    def sequence_bytes(self, context: int) -> float:
        """Nothing is taken."""
        return 0.0 * context


# CodeLlama-7b on an H100 at 0.95, as its log has it:
# github.com/jgchn/llm-d-planner/blob/d3121e0/accuracy/results/v0.19.0/logs
VLLM = EngineMemory(
    engine="vllm",
    version="0.19.0",
    visible=79.19 * GIB,
    budget=75.23 * GIB,
    terms=(
        exact("weights", 12.56 * GIB, "", ""),
        exact("activation", 0.77 * GIB, "", ""),
        exact("non_torch", 0.25 * GIB, "", ""),
        exact("kv", 61.65 * GIB, "", ""),
    ),
    kv=(61.65 * GIB, 61.65 * GIB, 61.65 * GIB),
    block_tokens=16,
    groups=(),
    blocks=7891,
    tokens=(126_256, 126_256, 126_256),
    concurrency=15.41,
    longest=8192,
    room=Anything(),
)


def log(name: str = "vllm_v1.txt") -> StartLog:
    """A log that was made by hand."""
    return read_start_log((LOGS / name).read_text(encoding="utf-8").splitlines(), name)


def changed(name: str, value: float) -> StartLog:
    """That log with another value of a term."""
    every = log()
    terms = tuple(replace(term, value=value) if term.name == name else term for term in every.terms)
    return replace(every, terms=terms)


def row(rows: tuple[LogLine, ...], name: str) -> LogLine:
    """The row of a term."""
    return next(row for row in rows if row.term == name)


def test_a_prediction_of_what_is_logged_agrees() -> None:
    """Every term that both have; captured graphs and what was free are no terms of vLLM's account."""
    rows = compare(log(), VLLM)

    assert {row.term for row in rows if row.agrees is None} == {"free", "cuda_graphs", "cuda_graphs_estimated"}
    assert first_difference(rows) is None
    assert all(row.cause is None for row in rows)


def test_rows_are_in_the_order_of_the_account() -> None:
    """From what there is to what fits, whatever the order of the log."""
    names = [row.term for row in compare(log(), VLLM) if row.term in ORDER]

    assert names == sorted(names, key=ORDER.index)
    assert names[0] == "visible"
    assert names[-1] == "concurrency"


def test_an_interval_is_widened_by_two_percent_and_half_a_digit() -> None:
    """Weights of 10 GiB, 9.9 to 10.1: 10.1 + 0.2 + 0.005 = 10.305 is the most that agrees, 9.695 the least."""
    memory = replace(VLLM, terms=(EngineTerm("weights", 10 * GIB, 9.9 * GIB, 10.1 * GIB, "", ""),))

    for size, agrees in ((10.304, True), (10.306, False), (9.696, True), (9.694, False)):
        found = row(compare(changed("weights", size * GIB), memory), "weights")
        assert found.agrees is agrees, size
        assert (found.low, found.high) == (9.9 * GIB, 10.1 * GIB)


def test_what_differs_first_is_named() -> None:
    """Weights differ, and so do those that follow from them: the weights are told, with their line and cause."""
    smaller = replace(
        VLLM,
        terms=(exact("weights", 6 * GIB, "", ""), *VLLM.terms[1:]),
        kv=(68 * GIB,) * 3,
        blocks=8700,
        tokens=(139_200,) * 3,
        concurrency=17.0,
    )
    rows = compare(log(), smaller)
    first = first_difference(rows)

    assert first is not None
    assert (first.term, first.line, first.logged, first.predicted) == ("weights", 6, 12.56 * GIB, 6 * GIB)
    assert first.cause == CAUSES["vllm", "weights", MORE]
    assert row(rows, "kv").cause == "it follows from weights, which differs (line 6)"
    assert row(rows, "blocks").cause == "it follows from kv, which differs (line 9)"


def test_a_cache_that_alone_differs_has_a_cause_of_its_own() -> None:
    """All before it agrees: CUDA graphs are subtracted, or another rank has less."""
    first = first_difference(compare(changed("kv", 50 * GIB), VLLM))

    assert first is not None
    assert (first.term, first.cause) == ("kv", CAUSES["vllm", "kv", LESS])
    assert "0.21 and later" in CAUSES["vllm", "kv", LESS]


def test_the_causes_of_another_cache_begin_with_what_servers_set() -> None:
    """A log without debug lines shows the cache alone; what is of some versions says which."""
    for sign in (MORE, LESS):
        cause = CAUSES["vllm", "kv", sign]
        assert cause.index("--max-num-seqs") < cause.index("--max-num-batched-tokens") < cause.index("CUDA graphs")
        assert "since" not in cause
    assert "(0.21 and later)" in CAUSES["vllm", "kv", LESS]


def test_another_format_of_the_cache_shows_in_its_blocks() -> None:
    """The same bytes hold twice the blocks: fp8."""
    first = first_difference(compare(changed("blocks", 15_782), VLLM))

    assert first is not None
    assert (first.term, first.cause) == ("blocks", CAUSES["vllm", "blocks", MORE])


def test_another_length_explains_concurrency() -> None:
    """The log counts requests of 8,192 tokens, the prediction of 4,096."""
    rows = compare(log(), replace(VLLM, longest=4096, concurrency=30.82))

    assert row(rows, "concurrency").cause == "it follows from concurrency_tokens, which differs (line 11)"
    assert row(rows, "concurrency_tokens").cause == "--max-model-len differs"


def test_graphs_are_compared_with_what_is_subtracted() -> None:
    """vLLM subtracts its estimate of 0.84 GiB; what is captured later, 0.89, is beside nothing."""
    rows = compare(log(), replace(VLLM, terms=(*VLLM.terms, exact("cuda_graphs", 0.5 * GIB, "", ""))))

    assert row(rows, "cuda_graphs_estimated").agrees is False
    assert row(rows, "cuda_graphs").predicted is None


def test_counts_have_the_caches_interval() -> None:
    """kv 61.65, 55.485 to 67.815 GiB, is 10 % each way: so are 7,891 blocks, 7,101.9 to 8,680.1."""
    found = row(compare(log(), replace(VLLM, kv=(61.65 * GIB, 55.485 * GIB, 67.815 * GIB))), "blocks")

    assert found.low == pytest.approx(7101.9)
    assert found.high == pytest.approx(8680.1)


def test_the_order_of_an_interval_does_not_matter() -> None:
    """(value, low, high) and (low, value, high) are the same."""
    one = compare(log(), replace(VLLM, kv=(60 * GIB, 50 * GIB, 70 * GIB)))
    other = compare(log(), replace(VLLM, kv=(50 * GIB, 60 * GIB, 70 * GIB)))

    assert one == other
    assert row(one, "kv").predicted == 60 * GIB


def test_all_but_the_cache_is_summed() -> None:
    """12.56 + 0.77 + 0.25 = 13.58, beside the log's 13.57."""
    found = row(compare(log(), VLLM), "non_kv")

    assert found.predicted == pytest.approx(13.58 * GIB)
    assert found.agrees is True


def test_another_engines_log_is_refused() -> None:
    """It says which engine fits."""
    with pytest.raises(UsageError, match=r"--log is of sglang, the prediction of vllm; --engine sglang fits it"):
        compare(log("sglang.txt"), VLLM)


def test_ollama_writes_llama_cpps_log() -> None:
    """Its model buffer of 11,276.95 MiB is beside the weights, its compute buffer of 855.36 beside its own."""
    memory = replace(
        VLLM,
        engine="ollama",
        terms=(exact("weights", 11.0 * GIB, "", ""), exact("compute_buffer", 0.5 * GIB, "", "")),
        kv=(3090 * (1 << 20),) * 3,
        blocks=None,
        tokens=None,
        concurrency=None,
        block_tokens=None,
    )
    rows = compare(log("llama_windows.txt"), memory)

    assert row(rows, "model_buffer").agrees is True
    assert row(rows, "kv").agrees is True
    assert row(rows, "compute_buffer").cause == CAUSES["llama.cpp", "activation", MORE]


def test_what_a_log_gives_has_the_rules_names() -> None:
    """vLLM's rules take the estimate of graphs; SGLang's what is free before weights are loaded."""
    assert given_of(log())["cuda_graphs"] == 0.84 * GIB
    assert given_of(log())["blocks"] == 7891
    assert given_of(log("sglang.txt")) == {
        "free": 78.5 * GIB,
        "weights": 15.08 * GIB,
        "kv": pytest.approx(51.82 * GIB),
    }
    assert set(given_of(log("llama_windows.txt"))) == {"weights", "kv", "compute_buffer"}


def test_causes_are_of_terms_that_logs_have() -> None:
    """Each has both directions, is one line, and is of a term that is read or predicted."""
    names = HAD | USED | COUNTS | {"state"}
    for (engine, term, sign), cause in CAUSES.items():
        assert term in names, term
        assert (engine, term, -sign) in CAUSES
        assert cause == cause.strip().rstrip(".")
        assert "\n" not in cause


def test_every_difference_of_vllm_has_a_cause() -> None:
    """The terms of its account, in either direction."""
    for name in set(ORDER) - {"mamba", "state"}:
        for sign in (MORE, LESS):
            assert ("vllm", name, sign) in CAUSES, name
    assert set(FOLLOWS) <= {*ORDER, "non_kv"}
    assert all(name in HAD | USED for _, name in BESIDE)


@given(st.floats(0.01, 100), st.floats(0, 0.5), st.floats(0, 0.5))
def test_a_value_in_the_interval_agrees(size: float, below: float, above: float) -> None:
    """Low <= x <= high agrees, whatever the interval; twice the upper end and a GiB more does not."""
    term = EngineTerm("weights", size * GIB, size * (1 - below) * GIB, size * (1 + above) * GIB, "", "")
    memory = replace(VLLM, terms=(term,))

    for value, agrees in ((term.low, True), (term.bytes, True), (term.high, True), (2 * term.high + GIB, False)):
        assert row(compare(changed("weights", value), memory), "weights").agrees is agrees
