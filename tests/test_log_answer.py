"""A log beside its prediction: what its own terms come to, what differs first, and which version it is of."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from roofcast.calculators.engines.terms import GIB
from roofcast.calculators.errors import UsageError
from roofcast.calculators.log_answer import as_logged, log_against, own_terms
from tests.engine_records import Asked, Record, asked, having, memory
from tests.log_reading import fixture, read

if TYPE_CHECKING:
    from roofcast.calculators.log_lines import LogAgainst, LogLine
    from roofcast.calculators.log_terms import StartLog

CODELLAMA = Asked(
    "codellama-7b", flags={"engine_version": "0.19.0", "gpu_memory_utilization": 0.95, "max_model_len": 8192}
)
# name of a term -> its line, as vLLM prints it
LINES = {
    "weights": "Model loading took {:.4f} GiB memory and 3.1 seconds",
    "kv": "Available KV cache memory: {:.2f} GiB",
    "tokens": "GPU KV cache size: {:,} tokens",
    "blocks": "vllm cache_config_info with initialization after num_gpu_blocks is: {}",
}


def by(record: Record) -> str:
    """Return what a test of a record is called."""
    return record.id


def alone(records: list[Record]) -> list[Record]:
    """Return those of one stage: with several a log prints the first one's cache, and blocks are of the fullest."""
    return [record for record in records if record.cut.get("pp", 1) == 1]


def log_of(record: Record, *left_out: str) -> StartLog:
    """Return the log that a record is of, in vLLM's words, without some of its terms."""
    logged = {name: value for name, value in record.logged.items() if name not in left_out}
    lines = [text.format(logged[name]) for name, text in LINES.items() if name in logged]
    if "budget" in logged:
        lines.append(f"Initial free memory: 78.68 GiB; Requested memory: 0.95 (util), {logged['budget']:.2f} GiB")
    if {"activation", "non_torch"} <= logged.keys():
        total = sum(logged[name] for name in ("weights", "activation", "non_torch"))
        lines.append(
            f"Memory profiling takes 5.10 seconds. Total non KV cache memory: {total:.2f}GiB; torch peak memory increase: "
            f"{logged['activation']:.2f}GiB; non-torch forward increase memory: {logged['non_torch']:.2f}GiB; "
            f"weights memory: {logged['weights']:.2f}GiB."
        )
    if "concurrency" in logged:
        longest = record.flags["max_model_len"]
        lines.append(f"Maximum concurrency for {longest:,} tokens per request: {logged['concurrency']:.2f}x")
    return read("\n".join(lines))


def against(text: str, question: Asked = CODELLAMA) -> LogAgainst:
    """Return a log beside what is predicted of a question."""
    served = question.served()
    return log_against(read(text), served, memory(served))


def line(made: LogAgainst, term: str) -> LogLine:
    """Return a row."""
    return next(row for row in made.lines if row.term == term)


# what a log's own terms come to


@pytest.mark.parametrize(
    "record", [r for r in having("budget", "activation", "tokens") if r.cut.get("pp", 1) > 1], ids=by
)
def test_blocks_of_stages_follow_from_what_the_fullest_takes(record: Record) -> None:
    """The log's GiB are the first stage's, which tell nothing; its total is the greatest of all."""
    log = log_of(record, "kv")
    own = own_terms(log, record.served())

    assert "kv" not in own
    assert own["blocks"][1] - 1 <= record.logged["blocks"] <= own["blocks"][2] + 1
    assert own["tokens"][0] == record.logged["tokens"]


@pytest.mark.parametrize("record", alone(having("budget", "weights", "activation", "non_torch", "kv")), ids=by)
def test_the_cache_follows_from_what_a_log_says_is_taken(record: Record) -> None:
    """Within 0.02 GiB, and the printed digits allow what is logged."""
    own = own_terms(log_of(record), record.served())

    value, low, high = (size / GIB for size in own["kv"])
    assert record.logged["kv"] == pytest.approx(value, abs=0.02)
    assert low - 1e-9 <= record.logged["kv"] <= high + 1e-9


@pytest.mark.parametrize("record", alone(having("kv", "tokens")), ids=by)
def test_tokens_and_concurrency_follow_from_the_logged_cache(record: Record) -> None:
    """To the printed digit, though the log says nothing of blocks."""
    own = own_terms(log_of(record, "blocks"), record.served())

    assert record.logged["tokens"] == own["tokens"][0]
    if "concurrency" in record.logged:
        assert record.logged["concurrency"] == pytest.approx(own["concurrency"][0], abs=0.005 + 1e-9)


@pytest.mark.parametrize("record", having("kv", "blocks", "tokens"), ids=by)
def test_logged_blocks_lie_within_what_the_cache_allows(record: Record) -> None:
    """And give the logged tokens exactly."""
    own = own_terms(log_of(record), record.served())

    _, low, high = own["blocks"]
    assert low - 1 <= record.logged["blocks"] <= high + 1
    assert record.logged["tokens"] == own["tokens"][0]


def test_what_follows_of_the_log_of_codellama() -> None:
    """75.23 - 13.57 = 61.66 GiB; / (32 x 262,144 B) = 7,892; as logged 7,891 x 16 = 126,256; / 8,192 = 15.41."""
    own = own_terms(read(fixture("vllm_v1.txt")), CODELLAMA.served())

    assert own["kv"] == pytest.approx([size * GIB for size in (61.66, 61.65, 61.67)])
    assert own["blocks"][0] == 7891
    assert own["blocks"][1:] == (61.655 * GIB // 262_144 // 32, 61.665 * GIB // 262_144 // 32)
    assert {name: own[name][0] for name in ("block_size", "tokens", "concurrency")} == {
        "block_size": 16.0, "tokens": 126_256.0, "concurrency": 126_256 / 8192,
    }  # fmt: skip


def test_a_log_that_says_too_little_comes_to_nothing() -> None:
    """Weights alone leave everything open."""
    assert own_terms(read("Model loading took 12.56 GiB memory and 3.1 seconds"), CODELLAMA.served()) == {}


def test_one_term_less_leaves_the_cache_open() -> None:
    """Weights, activations and a budget, but nothing of what is beside PyTorch's memory."""
    said = (
        "Initial free memory: 78.68 GiB; Requested memory: 0.95 (util), 75.23 GiB\n"
        "Model loading took 12.56 GiB memory and 3.1 seconds\nPyTorch activation peak memory takes 0.77GiB"
    )
    log = read(said)

    assert {"budget", "weights", "activation"} <= {term.name for term in log.terms}
    assert own_terms(log, CODELLAMA.served()) == {}


def test_a_cache_alone_comes_to_blocks() -> None:
    """61.66 GiB: 7,892 of 16 tokens, 7,891 to 7,893 by its digits; without a tokens line no tokens."""
    own = own_terms(read("Available KV cache memory: 61.66 GiB"), CODELLAMA.served())

    assert own == {"blocks": (7892.0, 7891.0, 7893.0)}


def test_a_log_without_graphs_takes_none_off() -> None:
    """Weights, activations and memory beside them are enough, in a version that takes graphs off where they are logged."""
    question = Asked("qwen2.5-7b-instruct", flags={"engine_version": "0.21.0", "gpu_memory_utilization": 0.95})
    said = (
        "Model loading took 14.25 GiB memory and 3.1 seconds\n"
        "Total non KV cache memory: 16.70GiB; torch peak memory increase: 2.21GiB; "
        "non-torch forward increase memory: 0.24GiB; weights memory: 14.25GiB."
    )
    graphs = "\nEstimated CUDA graph memory: 0.61 GiB total"
    without, beside = (own_terms(read(text), question.served()) for text in (said, said + graphs))

    assert without["kv"][0] / GIB == pytest.approx(0.95 * 79.19 - 16.70, abs=0.01)
    assert beside["kv"][0] / GIB == pytest.approx(0.95 * 79.19 - 16.70 - 0.61, abs=0.01)


# beside the prediction


def test_a_log_as_predicted_has_no_difference() -> None:
    """Every term that is predicted agrees, in the order in which vLLM comes to them."""
    made = against(fixture("vllm_v1.txt"))

    order = ["visible", "budget", "weights", "activation", "non_torch", "kv", "blocks", "tokens", "concurrency"]
    assert [row.term for row in made.lines if row.term in order] == order
    assert all(row.agrees for row in made.lines if row.predicted is not None)
    assert (made.first_difference, made.cause, made.failure) == (None, None, None)
    assert (made.engine, made.version) == ("vllm", "0.19.0")


def test_a_row_has_the_log_the_rules_and_the_prediction() -> None:
    """61.66 GiB logged, 61.66 of its own terms, 61.66 predicted within an interval, from line 9."""
    row = line(against(fixture("vllm_v1.txt")), "kv")

    assert row.from_log is not None
    assert row.predicted is not None
    assert row.low is not None
    assert row.high is not None
    assert [round(size / GIB, 2) for size in (row.logged, row.from_log, row.predicted)] == [61.66] * 3
    assert row.low < row.predicted < row.high
    assert row.line == 9


@pytest.mark.parametrize(
    ("old", "new", "first"),
    [
        ("took 12.56 GiB", "took 13.56 GiB", "weights"),
        ("increase: 0.77GiB", "increase: 2.77GiB", "activation"),
        ("memory: 61.66 GiB", "memory: 51.66 GiB", "kv"),
        ("size: 126,256 tokens", "size: 63,128 tokens", "tokens"),
        ("request: 15.41x", "request: 7.71x", "concurrency"),
        ("(util), 75.23 GiB", "(util), 71.27 GiB", "budget"),
    ],
)
def test_the_first_term_that_differs_is_named(old: str, new: str, first: str) -> None:
    """With what usually causes it."""
    text = fixture("vllm_v1.txt")
    assert old in text
    made = against(text.replace(old, new))

    assert made.first_difference == first
    assert made.cause == line(made, first).cause
    assert made.cause


def test_what_follows_from_a_difference_says_so() -> None:
    """Half of the tokens are of half of the cache."""
    made = against("Available KV cache memory: 30.83 GiB\nGPU KV cache size: 63,120 tokens")

    assert made.first_difference == "kv"
    assert line(made, "tokens").agrees is False
    assert line(made, "tokens").cause == "it follows from kv, which differs (line 1)"


def test_a_server_that_did_not_start_has_its_failure() -> None:
    """As its log shows it."""
    made = against(
        fixture("vllm_refused.txt"),
        Asked("llama-3.1-8b", flags={"engine_version": "0.11.0", "max_model_len": 131_072}),
    )

    assert made.failure is not None
    assert made.failure.startswith("the cache does not hold one request of --max-model-len tokens")


@pytest.mark.parametrize("name", ["sglang.txt", "llama_windows.txt"])
def test_another_engine_s_log_is_refused(name: str) -> None:
    """With the engine that it is of."""
    with pytest.raises(UsageError, match=r"--log is of .*, the prediction of vllm; --engine .* fits it"):
        against(fixture(name))


# whose tokens line it is


@pytest.mark.parametrize(
    ("question", "kv", "tokens", "version"),
    [
        # 9,799 blocks // 2 groups x 16: before 0.20.1
        (Asked("gpt-oss-120b"), 5.38, 78_384, "0.20.0"),
        # 425 blocks / 179 x 262,144
        (
            Asked("qwen3.6-27b", "rtx-3090", "fp8", {"tp": 2}, {"max_model_len": 262_144, "num_speculative_tokens": 3, "mamba_cache_mode": "align"}),
            11.02, 622_408, None,
        ),
    ],
)  # fmt: skip
def test_a_log_without_version_is_of_that_which_gives_its_tokens(
    question: Asked, kv: float, tokens: int, version: str | None
) -> None:
    """The newest where it does, else the older meaning of the line."""
    log = read(f"Available KV cache memory: {kv} GiB\nGPU KV cache size: {tokens:,} tokens")
    found = as_logged(log, question.served())[0]

    assert version == found.flags.engine_version
    assert own_terms(log, found)["tokens"][0] == tokens


def test_a_version_that_is_asked_or_tells_nothing_stays() -> None:
    """Nor is one taken that does not give the tokens either."""
    line_of_tokens = "Available KV cache memory: 5.38 GiB\nGPU KV cache size: 78,384 tokens"
    known, silent = asked("gpt-oss-120b", engine_version="0.24.0"), asked("gpt-oss-120b")

    assert as_logged(read(line_of_tokens), known)[0] is known
    assert as_logged(read("Available KV cache memory: 5.38 GiB"), silent)[0] is silent
    assert as_logged(read(line_of_tokens.replace("78,384", "12,345")), silent)[0] is silent


@pytest.mark.parametrize(
    ("flags", "kv", "tokens", "concurrency", "mode", "told"),
    [
        # 426 blocks of 179 a request with prefix caching; 0.24 has none by default, 176 a request
        (
            {"engine_version": "0.24.0", "max_model_len": 262_144, "num_speculative_tokens": 3},
            11.05, 623_873, 2.38, "align", "the log's tokens are those of --mamba-cache-mode align, with prefix caching",
        ),
        ({"engine_version": "0.24.0", "max_model_len": 262_144}, 11.05, 12_345, 0.01, None, None),
    ],
)  # fmt: skip
def test_a_hybrids_tokens_tell_how_its_states_are_kept(
    flags: dict[str, int], kv: float, tokens: int, concurrency: float, mode: str | None, told: str | None
) -> None:
    """Qwen3.6 27B on two RTX 3090; numbers that no way gives change nothing."""
    served = asked("qwen3.6-27b", "rtx-3090", "fp8", {"tp": 2}, **flags)
    log = read(
        f"Available KV cache memory: {kv} GiB\nGPU KV cache size: {tokens:,} tokens\n"
        f"Maximum concurrency for 262,144 tokens per request: {concurrency:.2f}x"
    )
    found, said = as_logged(log, served)

    assert mode == found.flags.mamba_cache_mode
    assert said.notes == ((told,) if told else ())


def test_tokens_tell_a_draft_that_keeps_nothing() -> None:
    """Gemma 4 31B in int8 on two RTX 3090 with four drafted tokens: 17,449 blocks, and no layer of the draft."""
    served = asked(
        "gemma-4-31b-it", "rtx-3090", "int8", {"tp": 2},
        engine_version="0.26", max_model_len=262_144, max_num_batched_tokens=2048, num_speculative_tokens=4,
    )  # fmt: skip
    log = read("Available KV cache memory: 10.82 GiB\nGPU KV cache size: 466,892 tokens")
    found, said = as_logged(log, served)

    assert served.ready.model.spec.drafting
    assert not found.ready.model.spec.drafting
    assert said.notes == ("the log's tokens are those of a cache without layers of the draft",)
