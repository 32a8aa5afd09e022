"""Start-up logs as files: what stands before messages, ranks, several starts, and what a log may do wrong."""

from __future__ import annotations

import io
import time
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roofcast.calculators.errors import UsageError
from roofcast.calculators.log_terms import COUNTS, HAD, NEGATIVE, USED
from roofcast.calculators.logs import DIALECTS, HINTS, LONGEST_LINE, bounded_lines, read_start_log
from tests.log_reading import GIB, fixture, read, said


@pytest.mark.parametrize(
    "before",
    [
        "",
        "\x1b[1;36m(EngineCore_DP0 pid=1)\x1b[0;0m INFO 11-02 10:00:00 [gpu_worker.py:298] ",
        "2026-05-01 21:55:15.307 | (Worker_TP1 pid=1) INFO 05-01 19:55:15 [x.py:1] ",
        "(VllmWorker TP0 pid=12) ",
        "Nov 02 10:00:00 host python[123]: ",
        '{"log":"INFO ',
        "(RayWorkerWrapper pid=206994, ip=192.0.2.1) INFO ",
        "2026-05-01T10:00:00.1Z stdout F ",
    ],
)
def test_what_stands_before_a_message_does_not_matter(before: str) -> None:
    """Containers, journals, Ray and workers put their own words before it."""
    assert said(read(before + "Available KV cache memory: 58.11 GiB")) == {"kv": 58.11}


def test_ranks_that_differ_count_by_their_worst() -> None:
    """The cache has as many blocks as the rank with the least has; of what is used the most counts."""
    log = read(
        "(Worker_TP0 pid=1) Model loading took 15.02 GiB and 3.1 seconds\n"
        "(Worker_TP1 pid=2) Model loading took 15.30 GiB and 3.1 seconds\n"
        "(Worker_TP0 pid=1) Available KV cache memory: 8.69 GiB\n"
        "(Worker_TP1 pid=2) Available KV cache memory: 7.46 GiB\n"
        "(Worker_TP1 pid=2) Available KV cache memory: 7.46 GiB\n"
    )
    kv = log.term("kv")

    assert said(log) == {"weights": 15.3, "kv": 7.46}
    assert kv is not None
    assert (kv.line, kv.ranks, round(kv.low / GIB, 2), round(kv.high / GIB, 2)) == (4, 2, 7.46, 8.69)
    assert log.notes == ("ranks differ in weights, kv: the least cache and the most of what is used count",)


def test_one_of_two_kinds_of_graphs_may_differ() -> None:
    """Kinds add up, 0.50 + 0.30; that ranks differ in one of them is told."""
    graphs = "Capture {0} graph end. Time elapsed: 8.10 s. mem usage={1} GB. avail mem=9.11 GB.\n"
    log = read(
        graphs.format("cuda", "0.50")
        + graphs.format("piecewise CUDA", "0.20")
        + graphs.format("piecewise CUDA", "0.30")
    )
    term = log.term("cuda_graphs")

    assert term is not None
    assert term.ranks == 2
    assert term.value == pytest.approx(0.8 * GIB)
    assert term.low == pytest.approx(0.7 * GIB)


def test_values_with_other_digits_are_the_same() -> None:
    """14.9888 and 14.99 are one value; 14.99 and 15.00 are two."""
    same = read("Loading model weights took 14.9888 GB\nmodel weights take 14.99GiB; x").term("weights")
    finer = read("model weights take 14.99GiB; x\nLoading model weights took 14.9888 GB").term("weights")
    other = read("Model loading took 14.99 GiB and\nModel loading took 15.0 GiB and").term("weights")

    assert same is not None
    assert other is not None
    assert finer is not None
    assert (same.ranks, other.ranks) == (1, 2)
    assert same.value == finer.value == pytest.approx(14.9888 * GIB)


def test_running_out_of_memory_later_is_no_failed_start() -> None:
    """A server that is ready has started."""
    log = read(fixture("vllm_v1.txt") + "ERROR torch.OutOfMemoryError: CUDA out of memory. Tried to allocate\n")

    assert log.failure is None
    assert [note[:39] for note in log.notes] == ["the server started all the same: a devi"]


def test_the_last_whole_start_counts() -> None:
    """A server that was started twice: what the second says, and that there were two."""
    again = fixture("vllm_v1.txt").replace("61.66", "50.00")
    log = read(fixture("vllm_v1.txt") + again)

    assert said(log)["kv"] == 50.0
    assert log.term("kv").ranks == 1  # type: ignore[union-attr]
    assert log.notes == ("it has 2 starts; this is the last whole one, from line 16",)


def test_a_start_that_is_cut_off_does_not_replace_a_whole_one() -> None:
    """The log ends while the third start loads weights."""
    whole = fixture("vllm_v1.txt")
    log = read(whole + whole + "\n".join(whole.splitlines()[:6]))

    assert said(log)["kv"] == 61.66
    assert log.notes == ("it has 3 starts; this is the last whole one, from line 16",)


def test_of_starts_that_are_cut_off_the_whole_one_before_counts() -> None:
    """The second and the third end while they load weights."""
    whole = fixture("vllm_v1.txt")
    cut = "\n".join(whole.splitlines()[:6]) + "\n"
    log = read(whole + cut + cut)

    assert said(log)["kv"] == 61.66
    assert log.notes == ("it has 3 starts; this is the last whole one, from line 1",)


def test_advice_about_memory_is_no_failure() -> None:
    """Lines that say what to do if memory runs out."""
    assert read("Model loading took 1.0 GiB and\nIf you run out of memory, decrease --max-num-seqs").failure is None


def test_the_engines_own_reason_is_told() -> None:
    """An allocation that failed before, and was survived, is not why the start failed."""
    first, *rest = fixture("vllm_refused.txt").splitlines()
    log = read("\n".join([first, "WARNING: CUDA out of memory, trying again", *rest]))

    assert log.failure is not None
    assert log.failure.startswith("the cache does not hold one request")


def test_what_was_survived_is_a_note() -> None:
    """The server is ready after all."""
    log = read(
        "llama_context: n_ctx = 8192\nggml_backend_cuda_buffer_type_alloc_buffer: allocating 9 MiB on device 0: cudaMalloc "
        "failed: out of memory\nllama_kv_cache: CPU KV buffer size = 64.00 MiB\nmain: server is listening on http://x\n"
    )

    assert log.failure is None
    assert log.notes[0].startswith("the server started all the same: a device has no room for a buffer (line 2: ")


def test_words_of_failure_are_of_the_logs_engine() -> None:
    """Another engine's words in a log are not that engine's log."""
    assert read("Available KV cache memory: 5.0 GiB\nfailed to create context").failure is None


@pytest.mark.parametrize(
    "line", ["common: failed to create context with model", "ggml_gallocr_reserve_n: failed to allocate CUDA0 buffer"]
)
def test_words_of_a_library_tell_no_engine(line: str) -> None:
    """Other programs are built on ggml; behind a line of llama.cpp's own they are why it failed."""
    with pytest.raises(UsageError, match="no line is of a server's start"):
        read(line)
    assert read(line + "\nAvailable KV cache memory: 5.0 GiB").engine == "vllm"
    assert read("llama_context: n_ctx = 8192\n" + line).failure is not None


def test_a_setting_with_digits_cut_off_does_not_replace_it() -> None:
    """0.875 is printed as 0.88; another value counts."""
    args = "non-default args: {'model': 'm', 'gpu_memory_utilization': 0.875}\n"
    line = "the current vLLM instance can use total_gpu_memory (23.58GiB) x gpu_memory_utilization (%s) = 20.63GiB"

    assert read(args + line % f"{0.875:.2f}").settings["gpu_memory_utilization"] == "0.875"
    assert read(args + line % "0.80").settings["gpu_memory_utilization"] == "0.80"


def test_engines_of_one_server_are_one_start() -> None:
    """Data-parallel engines each say that they initialise, before any has its cache."""
    begin = (
        "(EngineCore_DP{0} pid=1) Initializing a V1 LLM engine (v0.24.0) with config: model='m', data_parallel_size=2\n"
    )
    log = read(
        begin.format(0) + begin.format(1) + "Available KV cache memory: 5.0 GiB\nAvailable KV cache memory: 4.0 GiB\n"
    )

    assert said(log) == {"kv": 4.0}
    assert log.settings["data_parallel_size"] == "2"


def test_a_log_that_is_cut_off_says_so() -> None:
    """It ends while weights are loaded."""
    log = read("\n".join(fixture("vllm_v1.txt").splitlines()[:6]))

    assert said(log) == {"free": 78.68, "budget": 75.23, "weights": 12.56}
    assert log.notes == ("it ends before the cache is sized",)


def test_logs_of_two_engines_are_refused() -> None:
    """Both are named, with a line of each."""
    with pytest.raises(
        UsageError, match=r"server\.log: line 1 is of vLLM, line 2 of SGLang; give the log of one server"
    ):
        read("Available KV cache memory: 5.0 GiB\nKV Cache is allocated. #tokens: 1, KV size: 1.0 GB")


def test_a_log_of_nothing_is_refused() -> None:
    """It is told what lines are looked for."""
    with pytest.raises(
        UsageError, match=r"no line is of a server's start; it has lines such as 'Available KV cache memory' \(vLLM\)"
    ):
        read('INFO: 127.0.0.1 - "POST /v1/completions HTTP/1.1" 200 OK')


@pytest.mark.parametrize("number", ["nan", "1e400", "inf", "5,81", "1.2.3", "99999999999999999999", "-nan"])
def test_numbers_that_are_none_are_told(number: str) -> None:
    """The line is not taken; the rest of the log is."""
    log = read(f"Available KV cache memory: {number} GiB\nModel loading took 1.5 GiB and 2 seconds")

    assert said(log) == {"weights": 1.5}
    assert log.notes[0] == (
        f"line 1 is not taken, since it states no size that can be: Available KV cache memory: {number} GiB"
    )


@pytest.mark.parametrize(
    "line",
    ["Model loading took -1.50 GiB", "# GPU blocks: -5, # CPU blocks: 2", "GPU KV cache size: 12.5 tokens"],
)
def test_sizes_that_cannot_be_are_told(line: str) -> None:
    """Weights and counts are not negative, and blocks and tokens are whole."""
    log = read(line)

    assert said(log) == {}
    assert "is not taken" in log.notes[0]


def test_many_such_lines_are_counted() -> None:
    """Three are shown."""
    assert read("Available KV cache memory: nan GiB\n" * 10).notes[3] == "7 more lines are not taken for such a reason"


def test_what_is_shown_of_a_line_is_short_and_printable() -> None:
    """200 characters with the message among them, without colours or controls."""
    text = read("x" * 400 + "\x1b[31mAvailable KV cache memory: 5.0 GiB\x07" + "y" * 400).term("kv").text  # type: ignore[union-attr]

    assert len(text) == 200
    assert text.isprintable()
    assert "Available KV cache memory: 5.0 GiB" in text


def test_an_endless_line_is_read_in_pieces() -> None:
    """The line's rest is passed over; the next line has the next number."""
    file = io.StringIO("x" * (3 * LONGEST_LINE) + "\nAvailable KV cache memory: 5.0 GiB\n")
    lines = list(bounded_lines(file, "server.log"))

    assert [len(line) for line in lines] == [LONGEST_LINE, 35]
    assert read_start_log(lines, "server.log").terms[0].line == 2


def test_what_is_no_text_is_refused() -> None:
    """UTF-16, or no log at all."""
    with pytest.raises(UsageError, match=r"server\.log: line 2 is no text in UTF-8; save the log as UTF-8"):
        list(bounded_lines(io.StringIO("a\n\0b\n"), "server.log"))


def test_the_line_that_is_no_text_is_numbered_as_editors_do() -> None:
    """After a line that is read in four pieces."""
    with pytest.raises(UsageError, match="line 2 is no text"):
        list(bounded_lines(io.StringIO("x" * (3 * LONGEST_LINE + 1) + "\n\0"), "server.log"))


def test_more_than_a_gigabyte_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever lines it has: the limit is of what is read."""
    monkeypatch.setattr("roofcast.calculators.logs.LARGEST", 100)

    with pytest.raises(UsageError, match="it has more than 0 MB; give the part with the start"):
        list(bounded_lines(io.StringIO("x" * 60 + "\n" + "y" * 60), "server.log"))


def test_memory_is_bounded_whatever_lines_say() -> None:
    """Thirty thousand different sizes and devices take no more than a few MB."""
    lines = (f"llama_kv_cache: D{n} KV buffer size = {n}.00 MiB" for n in range(30_000))
    tracemalloc.start()
    try:
        read_start_log(lines, "server.log")
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()

    assert peak < 8e6


def test_a_long_log_is_read_in_seconds() -> None:
    """10 MB of a server at work in less than 5 s, on a machine that does other things too."""
    work = "INFO 11-02 10:00:00 Engine 000: Avg prompt throughput: 5.0 tokens/s, GPU KV cache usage: 1.0%\n" * 100_000
    begin = time.perf_counter()
    read_start_log(io.StringIO(fixture("vllm_v1.txt") + work), "server.log")

    assert time.perf_counter() - begin < 5


def test_hostile_words_do_not_slow_it() -> None:
    """A line of 64 Ki word characters after every message: shapes look at a bounded part of it."""
    words = sorted({message.words for dialect in DIALECTS for message in dialect.messages})
    begin = time.perf_counter()
    for word in words:
        line = word + "9" * (LONGEST_LINE // 4)
        for dialect in DIALECTS:
            for message in dialect.messages:
                message.shape.search(line)

    assert time.perf_counter() - begin < 60


def test_every_kind_of_line_passes_the_first_look() -> None:
    """Each message's words have a hint; each of its groups is a term, a setting, or of the line."""
    for dialect in DIALECTS:
        for message in dialect.messages:
            assert any(hint in message.words for hint in HINTS), message.words
        assert any(dialect.shown == message.words for message in dialect.messages)


def test_terms_are_of_one_sort() -> None:
    """Sizes had, sizes used, and counts do not overlap; what may be negative is a size."""
    assert not (HAD & USED) | (HAD & COUNTS) | (USED & COUNTS)
    assert (HAD | USED) >= NEGATIVE


@given(st.integers(-1000, 10_000_000))
def test_sizes_are_read_back(hundredths: int) -> None:
    """Read(printed x) = x to half a digit, also where zeros are dropped as vLLM drops them."""
    size = hundredths / 100
    term = read(f"Available KV cache memory: {size} GiB").term("kv")

    assert term is not None
    assert abs(term.value / GIB - size) < 1e-6
    assert term.step == pytest.approx(0.01 * GIB)


@given(st.integers(0, 10**12))
def test_tokens_are_read_back(tokens: int) -> None:
    """With and without commas."""
    for text in (f"{tokens:,}", str(tokens)):
        assert said(read(f"GPU KV cache size: {text} tokens")) == {"tokens": tokens}


@given(st.lists(st.text(max_size=60), max_size=5))
def test_any_text_is_read_or_refused(lines: list[str]) -> None:
    """No text ends in another error."""
    try:
        read_start_log(lines, "x")
    except UsageError as error:
        assert "--log x" in str(error)  # noqa: PT017 - both outcomes are sound
