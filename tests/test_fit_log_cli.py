"""`roofcast fit --log`: what a log says of the question, what differs, and logs of any kind."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from tests.log_reading import LOGS, fixture, read
from tests.running import Outcome, answer, refused, result, roofcast

if TYPE_CHECKING:
    from pathlib import Path

LOG = str(LOGS / "vllm_v1.txt")
CODELLAMA = ("fit", "codellama-7b", "--gpu", "h100-sxm", "--log")


def logged(*arguments: str) -> Any:
    """Return the log's part of an answer."""
    return result(*arguments)["log"]


def test_a_log_says_what_was_not_asked() -> None:
    """Version, lengths, utilisation and devices are the log's; the prediction is beside every term."""
    made = answer(*CODELLAMA, LOG)
    lines = {line["term"]: line for line in made["result"]["log"]["lines"]}

    assert made["inputs"]["engine"] == made["inputs"]["log"] == "vllm"
    assert made["inputs"]["flags"] == {
        "engine_version": "0.19.0", "gpu_memory_utilization": 0.95, "max_model_len": 8192, "max_num_batched_tokens": 8192,
        "dtype": "bf16",
    }  # fmt: skip
    assert lines["tokens"]["logged"] == lines["tokens"]["from_log"] == 126_256
    assert lines["tokens"]["predicted"] == made["result"]["kv_tokens"]
    assert lines["kv"]["agrees"] is True
    assert made["result"]["log"]["first_difference"] is None


def test_what_is_asked_goes_before_what_the_log_says() -> None:
    """A shorter request than the log's."""
    made = answer(*CODELLAMA, LOG, "--max-model-len", "4096")

    assert made["inputs"]["flags"]["max_model_len"] == 4096
    assert made["result"]["longest_request"] == 4096


def test_a_log_may_name_the_model(tmp_path: Path) -> None:
    """Then none needs to be asked."""
    path = tmp_path / "server.log"
    path.write_text(fixture("vllm_v1.txt").replace("codellama/CodeLlama-7b-hf", "codellama-7b"), encoding="utf-8")

    assert result("fit", "--gpu", "h100-sxm", "--log", str(path))["kv_tokens"] == result(*CODELLAMA, LOG)["kv_tokens"]


def test_a_difference_is_named_with_its_cause(tmp_path: Path) -> None:
    """10 GiB less of cache."""
    path = tmp_path / "server.log"
    path.write_text(
        fixture("vllm_v1.txt").replace("KV cache memory: 61.66", "KV cache memory: 51.66"), encoding="utf-8"
    )
    outcome = roofcast(*CODELLAMA, str(path))

    assert outcome.code == 0
    assert "the first term of the log that is not as predicted is kv: " in outcome.out.replace("\n", " ")
    assert logged(*CODELLAMA, str(path))["first_difference"] == "kv"


def test_a_server_that_did_not_start_is_explained() -> None:
    """The log's failure is told, exit 0: the question was answered."""
    made = logged("fit", "llama-3.1-8b", "--gpu", "h100-sxm", "--log", str(LOGS / "vllm_refused.txt"))

    assert made["failure"].startswith("the cache does not hold one request of --max-model-len tokens")


def written(folder: Path, content: bytes) -> str:
    """Return the path of a log of these bytes."""
    path = folder / "server.log"
    path.write_bytes(content)
    return str(path)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "no line is of a server's start"),
        (b"\n\n\n", "no line is of a server's start"),
        (b"hello\nworld\n", "no line is of a server's start"),
        (bytes(range(256)) * 8, "server.log"),
        ((fixture("vllm_v1.txt") + fixture("sglang.txt")).encode(), "line 1 is of vLLM, line 16 of SGLang; give the log of one"),
        (b"Available KV cache memory: 61.66 GiB".ljust(100, b"\0"), "server.log"),
    ],
    ids=["empty", "blank", "other", "binary", "mixed", "zeros"],
)  # fmt: skip
def test_what_is_no_log_of_one_server_is_refused(content: bytes, words: str, tmp_path: Path) -> None:
    """Exit 2, and one line that names the file."""
    outcome = roofcast(*CODELLAMA, written(tmp_path, content))

    if outcome.code:
        refused(outcome, 2, "--log", words)
    else:  # zeros behind a good line are none of it
        assert content.startswith(b"Available")


@pytest.mark.parametrize("content", [b"", bytes(range(256))])
def test_a_log_is_named_once(content: bytes, tmp_path: Path) -> None:
    """A file that is read and says nothing is no file that cannot be read."""
    complaint = roofcast(*CODELLAMA, written(tmp_path, content)).complaint

    assert complaint.count("--log") == 1
    assert "cannot be read" not in complaint


@pytest.mark.parametrize("name", ["missing.log", "."])
def test_a_file_that_cannot_be_opened_is_refused(name: str, tmp_path: Path) -> None:
    """Exit 2, with the system's own word."""
    refused(roofcast(*CODELLAMA, str(tmp_path / name)), 2, "--log", "cannot be read")


@pytest.mark.parametrize("kept", range(200, 4400, 300))
def test_a_truncated_log_is_answered_as_far_as_it_goes(kept: int, tmp_path: Path) -> None:
    """Cut anywhere, in the middle of a line too: an answer of what is there, or a refusal; never a crash."""
    outcome: Outcome = roofcast(
        *CODELLAMA, written(tmp_path, fixture("vllm_v1.txt").encode()[:kept]), "--format", "json"
    )

    assert outcome.code in {0, 2}
    if outcome.code:
        refused(outcome, 2, "--log")
    else:
        lines = outcome.data["result"]["log"]["lines"]
        assert all(line["logged"] is not None and line["line"] >= 1 for line in lines)


def test_a_log_that_ends_early_says_so(tmp_path: Path) -> None:
    """Before the cache has its size."""
    text = fixture("vllm_v1.txt").split("Available KV cache memory")[0]

    assert "it ends before the cache is sized" in logged(*CODELLAMA, written(tmp_path, text.encode()))["notes"]


def test_a_log_of_no_predicted_term_does_not_agree(tmp_path: Path) -> None:
    """Free memory alone is not predicted: nothing is as predicted."""
    text = "Initial free memory: 78.68 GiB; Requested memo"

    assert "every term of the log is as predicted" not in roofcast(*CODELLAMA, written(tmp_path, text.encode())).out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--engine", "sglang"), ("--log is of vllm, the prediction of sglang; --engine vllm fits it",)),
        (("--engine", "none"), ("--engine none prints no log",)),
        (("--tp", "3"), ("3 GPUs cannot share",)),
    ],
)
def test_a_log_beside_another_question_is_refused(arguments: tuple[str, ...], words: tuple[str, ...]) -> None:
    """Exit 2."""
    refused(roofcast(*CODELLAMA, LOG, *arguments), 2, *words)


def test_a_log_without_model_asks_for_one(tmp_path: Path) -> None:
    """Exit 2, with how to give one."""
    path = written(tmp_path, b"(EngineCore pid=1) Available KV cache memory: 61.66 GiB\n")

    refused(roofcast("fit", "--gpu", "h100-sxm", "--log", path), 2, "MODEL is missing, and the log names none")


# a program that says how much memory it took at most, beside roofcast's own output
MEASURED = """
import re, resource, sys
from roofcast.cli.app import main
try:
    main()
except SystemExit as stop:
    code = stop.code
try:
    status = open("/proc/self/status").read()
    peak = int(re.search(r"VmHWM:\\s+(\\d+) kB", status)[1])
except OSError:  # what another process had before counts in the system's own sum
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(code, peak, file=sys.stderr)
"""


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["lines", "one line", "starts"])
def test_a_log_of_100_mb_takes_bounded_memory(kind: str, tmp_path: Path) -> None:
    """Lines of a server at work, one line without an end, or the same start again and again: below 400 MB."""
    path, start = tmp_path / "server.log", fixture("vllm_v1.txt")
    work = "(APIServer pid=1) INFO 04-22 10:01:00 [loggers.py:123] Engine 000: Running: 12 reqs, GPU KV cache usage: 12.3%\n"
    filler = {"lines": work, "one line": "x" * 4096, "starts": start}[kind]
    size = 0
    with path.open("w", encoding="utf-8") as file:
        file.write(start)
        while size < 100_000_000:
            size += file.write(filler)
    made = subprocess.run(
        [sys.executable, "-P", "-c", MEASURED, *CODELLAMA, str(path), "--format", "json"],
        capture_output=True,
        text=True,
        check=True,
    )

    code, peak = map(int, made.stderr.split()[-2:])
    terms = {line["term"]: line["logged"] for line in json.loads(made.stdout)["result"]["log"]["lines"]}
    assert (code, terms["tokens"]) == (0, 126_256)
    assert peak * 1024 < 400e6


def test_a_version_that_is_no_release_is_not_taken(tmp_path: Path) -> None:
    """A build from a checkout calls itself 0.1.dev: the newest rules, aloud."""
    text = fixture("vllm_v1.txt")
    version = read(text).version or ""
    for other in ("0.1.dev1+g1234567", "dev"):
        log = tmp_path / "server.log"
        log.write_text(text.replace(version, other))
        found = answer("fit", "codellama-7b", "--gpu", "h100-sxm", "--log", str(log))

        assert any("--engine-version is not given" in line for line in found["assumptions"]), other


def test_what_the_log_says_is_told_from_what_was_asked(tmp_path: Path) -> None:
    """A size that does not divide, of a flag that nobody gave."""
    log = tmp_path / "server.log"
    log.write_text(fixture("vllm_v1.txt").replace("tensor_parallel_size=1", "tensor_parallel_size=3"))

    refused(roofcast("fit", "codellama-7b", "--gpu", "h100-sxm", "--log", str(log)), 2, "3 GPUs", "as --log says")


def test_experts_are_spread_as_the_log_says(tmp_path: Path) -> None:
    """vLLM's --enable-expert-parallel is over all devices."""
    log = tmp_path / "server.log"
    settings = "data_parallel_size=8, enable_expert_parallel=True"
    log.write_text(fixture("vllm_v1.txt").replace("data_parallel_size=1", settings))
    found = answer("fit", "deepseek-v3", "--gpu", "h200-sxm", "--log", str(log))

    assert (found["inputs"]["dp"], found["inputs"]["ep"]) == (8, 8)


def test_a_files_type_is_the_logs(tmp_path: Path) -> None:
    """llama.cpp prints it; --weights goes before it."""
    log = tmp_path / "server.log"
    log.write_text(fixture("llama_windows.txt") + "\nprint_info: file type   = Q4_K - Medium\n")
    asked = ("fit", "llama-3.1-8b", "--gpu", "rtx-4090", "--log", str(log))
    logged, given = answer(*asked), answer(*asked, "--weights", "q8_0")

    assert logged["result"]["memory"]["weight_bytes"] < 0.6 * given["result"]["memory"]["weight_bytes"]


def test_a_logs_model_that_is_not_here_is_asked_for() -> None:
    """A path of another machine."""
    log = str(LOGS / "llama_windows.txt")

    refused(roofcast("fit", "--gpu", "rtx-4090", "--log", log), 2, "/models/m.gguf", "not here", "roofcast fit MODEL")


def test_a_log_is_read_from_standard_input() -> None:
    """As `kubectl logs` gives it."""
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "roofcast",
            "fit",
            "codellama-7b",
            "--gpu",
            "h100-sxm",
            "--log",
            "-",
            "--format",
            "json",
        ],
        input=fixture("vllm_v1.txt").encode(),
        capture_output=True,
        check=True,
    )

    assert json.loads(done.stdout)["result"]["log"]["engine"] == "vllm"
