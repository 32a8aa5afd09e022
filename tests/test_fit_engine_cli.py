"""`roofcast fit --engine vllm`: its contract, what it refuses, what to change, rules, and logs of any kind."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from tests.log_reading import LOGS, fixture
from tests.running import Outcome, answer, refused, result, roofcast

if TYPE_CHECKING:
    from pathlib import Path

VLLM = ("--engine", "vllm", "--engine-version", "0.19.0")
LLAMA = ("fit", "llama-3.1-8b", "--gpu", "h100-sxm", *VLLM)
LARGE = ("fit", "llama-3.1-70b", "--gpu", "h100-sxm", *VLLM)
LOG = str(LOGS / "vllm_v1.txt")
CODELLAMA = ("fit", "codellama-7b", "--gpu", "h100-sxm", "--log")


# the contract


def test_the_answer_has_an_engine_s_facts() -> None:
    """Terms from visible memory to the cache, with their rule, provenance and interval; groups; advice and log."""
    made = result(*LLAMA)

    assert [term["name"] for term in made["terms"]] == ["visible", "budget", "weights", "activation", "non_torch", "kv"]
    assert all(set(term) == {"name", "bytes", "low", "high", "rule", "provenance"} for term in made["terms"])
    assert all(term["rule"] and term["low"] <= term["bytes"] <= term["high"] for term in made["terms"])
    assert made["groups"] == [
        {"kind": "full", "layers": 32, "padding": 0, "page_bytes": 65_536.0, "blocks_per_request": 8192}
    ]
    assert (made["engine"], made["engine_version"], made["fits"], made["reason"]) == ("vllm", "0.19.0", True, None)
    assert (made["block_tokens"], made["longest_request"]) == (16, 131_072)
    assert (made["advice"], made["log"], made["requirements"]) == ([], None, [])


def test_what_is_counted_agrees_with_itself() -> None:
    """Tokens are blocks of 16, concurrency is by blocks, sequences by whole blocks, and the budget is spent."""
    made = result(*LLAMA, "--context", "4k,10000")
    memory, blocks = made["memory"], made["blocks"]

    assert made["kv_tokens"] == blocks * 16
    assert made["kv_tokens_low"] <= made["kv_tokens"] <= made["kv_tokens_high"]
    assert made["max_concurrency"] == pytest.approx(blocks / 8192)
    assert [row["max_sequences"] for row in made["contexts"]] == [blocks // 256, blocks // 625]
    assert [row["kv_bytes_per_sequence"] for row in made["contexts"]] == [256 * 16 * 131_072, 625 * 16 * 131_072]
    spent = memory["weight_bytes"] + memory["activation_bytes"] + memory["overhead_bytes"] + memory["kv_bytes"]
    assert spent == pytest.approx(memory["budget_bytes"])
    assert memory["total_bytes"] == memory["visible_bytes"] == 85_029_027_840


def test_the_question_is_repeated() -> None:
    """With every flag that was given, as numbers."""
    inputs = answer(
        *LLAMA[:4], "--engine", "vllm", "--gpu-memory-utilization", "95%", "--max-model-len", "8k", "--enforce-eager",
        "--tp", "2", "--kv", "fp8",
    )["inputs"]  # fmt: skip

    assert inputs["flags"] == {"gpu_memory_utilization": 0.95, "max_model_len": 8192, "enforce_eager": True}
    assert [inputs[name] for name in ("engine", "tp", "pp", "dp", "gpus", "kv")] == ["vllm", 2, 1, 1, 2, "fp8"]
    assert inputs["log"] is None


def test_contexts_go_as_far_as_the_server_does() -> None:
    """4,096, 32,768 and the longest request; with --max-model-len no further than that."""
    longest, short, tiny = (
        [row["context"] for row in result(*LLAMA, *flags)["contexts"]]
        for flags in ((), ("--max-model-len", "10000"), ("--max-model-len", "1000"))
    )

    assert (longest, short, tiny) == ([4096, 32_768, 131_072], [4096, 10_000], [1000])


def test_a_text_says_what_the_log_will() -> None:
    """Tokens with their interval, blocks, and requests of the longest length."""
    out = roofcast(*LLAMA, "--gpu-memory-utilization", "0.95", "--max-model-len", "8192").out

    assert "llama-3.1-8b on h100-sxm: fits" in out
    assert "vllm 0.19.0, weights as stored, KV cache bf16" in out
    assert " tokens (" in out
    assert " blocks of 16" in out
    assert "requests of 8,192 tokens at once" in out


def test_replicas_answer_for_all() -> None:
    """Two replicas: sequences double, tokens are of one."""
    one, two = (result(*LLAMA, "--dp", str(dp)) for dp in (1, 2))

    assert two["contexts"][0]["max_sequences"] == 2 * one["contexts"][0]["max_sequences"]
    assert two["kv_tokens"] == one["kv_tokens"]


def test_a_wanted_cache_size_is_read_with_its_unit() -> None:
    """--kv-cache-memory-bytes 10GiB / (16 x 131,072 B) = 5,120 blocks."""
    assert result(*LLAMA, "--kv-cache-memory-bytes", "10GiB")["blocks"] == 5120
    assert result(*LLAMA, "--kv-cache-memory-bytes", str(10 << 30))["blocks"] == 5120


# what is refused


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--engine", "vllm", "--n-ctx", "4096"), ("--n-ctx is no flag of vllm, but of llama.cpp or ollama",)),
        (("--engine", "llama.cpp", "--max-model-len", "4096"), ("--max-model-len is no flag of llama.cpp",)),
        (("--engine", "sglang", "--gpu-memory-utilization", "0.9"), ("--gpu-memory-utilization is no flag of sglang",)),
        (("--engine", "none", "--gpu-memory-utilization", "0.9"), ("is of a serving engine; --engine vllm has it",)),
        (("--gpu-memory-utilization", "0.9"), ("is of a serving engine; --engine vllm has it",)),
        (("--max-num-seqs", "4"), ("--max-num-seqs is of a serving engine",)),
        (("--engine", "vllm", "--reserve", "10%"), ("--reserve is of --engine none",)),
        (("--engine", "vllm", "--tp", "3"), ("3 GPUs cannot share 32/8 query/KV heads evenly", "1, 2, 4, 8, 16, 32")),
        (("--engine", "vllm", "--pp", "33"), ("--pp 33: there are 32 layers",)),
        (("--engine", "vllm", "--ep", "2"), ("--ep 2: the model has no routed experts",)),
        (("--engine", "vllm", "--max-num-batched-tokens", "100"), ("is less than --max-num-seqs 1,024",)),
        (("--engine", "vllm", "--engine-version", "newest"), ("--engine-version newest: it is no version",)),
        (("--engine", "vllm", "--gpu-memory-utilization", "0"), ("--gpu-memory-utilization 0",)),
        (("--engine", "vllm", "--gpu-memory-utilization", "1.5"), ("--gpu-memory-utilization 1.5",)),
        (("--engine", "vllm", "--max-model-len", "0"), ("--max-model-len 0",)),
        (("--engine", "vllm", "--max-model-len", "many"), ("--max-model-len many",)),
        (("--engine", "vllm", "--max-model-len", "9999999999"), ("it must be at most 1,073,741,824",)),
        (("--engine", "vllm", "--kv-cache-memory-bytes", "lots"), ("--kv-cache-memory-bytes lots",)),
        (("--engine", "vllm", "--dtype", "int3"), ("--dtype int3: known: fp16",)),
        (("--engine", "vllm", "--mamba-cache-mode", "some"), ("--mamba-cache-mode some: known: none, align, all",)),
        (("--engine", "vllm", "--quantization", "awq"), ("--quantization awq", "quantise on load")),
        (("--engine", "mlc"), ("mlc",)),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused(arguments: tuple[str, ...], words: tuple[str, ...]) -> None:
    """Exit 2, and one line that says what would do."""
    refused(roofcast("fit", "llama-3.1-8b", "--gpu", "h100-sxm", *arguments), 2, *words)


@pytest.mark.parametrize(
    ("gpu", "arguments", "words"),
    [
        ("v100", ("--kv", "fp8"), "--kv fp8 cannot run on v100-sxm2-16gb in vllm: it needs compute capability 8.0"),
        ("v100", ("--quantization", "fp8"), "--quantization fp8 cannot run on v100-sxm2-16gb"),
        ("v100", ("--weights", "fp8"), "--weights fp8 cannot run on v100-sxm2-16gb"),
        (
            "t4",
            ("--dtype", "bf16"),
            "--dtype bf16 cannot run on t4 in vllm: it needs compute capability 8.0, t4 has 7.5",
        ),
    ],
)
def test_a_format_that_the_gpu_cannot_run_is_refused(gpu: str, arguments: tuple[str, ...], words: str) -> None:
    """Exit 2."""
    refused(roofcast("fit", "llama-3.1-8b", "--gpu", gpu, "--engine", "vllm", *arguments), 2, words)


# what does not fit


def test_weights_that_are_too_large_say_what_would_do() -> None:
    """fits is false, a reason, and changes that can be copied; the answer itself is one, exit 0."""
    made = result(*LARGE)

    assert made["fits"] is False
    assert made["reason"] == "the weights alone take 131.4 GiB, the budget is 71.3 GiB"
    assert all(row["max_sequences"] == 0 for row in made["contexts"])
    assert {"--tensor-parallel-size 4", "--tensor-parallel-size 8"} <= {each["flag"] for each in made["advice"]}
    assert all(
        set(each) >= {"flag", "here", "fits", "kv_tokens", "max_sequences", "context"} for each in made["advice"]
    )


def test_a_request_that_is_too_long_says_what_fits() -> None:
    """Llama-3.1-8B on an RTX 3090."""
    made = result("fit", "llama-3.1-8b", "--gpu", "rtx-3090", *VLLM)

    longest = made["blocks"] * 16
    assert made["fits"] is False
    assert made["reason"].startswith("one request of 131,072 tokens needs 16.00 GiB of cache")
    assert made["reason"].endswith(f"the longest that fits has {longest:,} tokens")
    assert f"--max-model-len {longest}" in [each["flag"] for each in made["advice"]]


def test_a_context_beyond_the_longest_request_is_no_matter_of_memory() -> None:
    """It is said so."""
    made = result(*LLAMA, "--max-model-len", "8192", "--context", "16k")

    assert made["fits"] is False
    assert made["reason"] == "16,384 tokens are more than the longest request of this server, 8,192"


@pytest.mark.parametrize(
    "question", [LARGE, ("fit", "llama-3.1-8b", "--gpu", "rtx-3090", *VLLM)], ids=["large", "long"]
)
def test_changes_can_be_copied(question: tuple[str, ...]) -> None:
    """Each, as roofcast spells it, gives the tokens and requests that it says."""
    offered = result(*question)["advice"]

    assert offered
    for change in offered[:6]:
        made = result(*question, *change["here"].split())
        rows = {row["context"]: row["max_sequences"] for row in made["contexts"]}
        assert (change["kv_tokens"], change["fits"]) == (made["kv_tokens"], made["fits"]), change
        assert change["max_sequences"] == rows[change["context"]], change


def test_changes_are_shown() -> None:
    """In a table of their own, as the engine spells them."""
    out = roofcast(*LARGE).out

    assert "does not fit: the weights alone take 131.4 GiB" in out
    assert "what to change" in out
    assert "--tensor-parallel-size 4" in out


# rules


@pytest.mark.parametrize(
    ("rule", "code"),
    [("sequences>=100@4k", 0), ("sequences>=108@4k", 0), ("sequences>=109@4k", 1), ("kv_tokens>=400000", 0),
     ("kv_tokens>=500000", 1)],
)  # fmt: skip
def test_a_rule_is_met_or_not(rule: str, code: int) -> None:
    """27,723 blocks / 256 = 108 requests of 4,096 tokens."""
    outcome = roofcast(*LLAMA, "--require", rule)

    assert outcome.code == code
    assert ("is not met" in outcome.err) == (code == 1)


def test_a_rule_s_context_is_answered_for() -> None:
    """Beside those by default; and a rule that is missed brings changes that meet it."""
    outcome = roofcast(*LLAMA, "--require", "sequences>=200@4k", "--require", "sequences>=10@20000", "--format", "json")
    made = outcome.data["result"]

    assert outcome.code == 1
    assert [row["context"] for row in made["contexts"]] == [4096, 20_000, 32_768, 131_072]
    assert [(each["rule"], each["passed"]) for each in made["requirements"]] == [
        ("sequences>=200@4k", False),
        ("sequences>=10@20000", True),
    ]
    assert made["advice"][0]["flag"] == "--kv-cache-dtype fp8"
    assert made["advice"][0]["max_sequences"] >= 200
    assert made["advice"][0]["context"] == 4096


# logs


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


@pytest.mark.xfail(
    strict=True, reason="the complaint of the log's reader is put into that of a file that cannot be opened"
)
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


@pytest.mark.xfail(strict=True, reason="where no term is compared, none differs, and that reads as all agree")
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
