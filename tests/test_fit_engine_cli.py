"""`roofcast fit --engine vllm`: its contract, what it refuses, what to change, and rules."""

from __future__ import annotations

import pytest

from tests.running import answer, refused, result, roofcast

VLLM = ("--engine", "vllm", "--engine-version", "0.19.0")
LLAMA = ("fit", "llama-3.1-8b", "--gpu", "h100-sxm", *VLLM)
LARGE = ("fit", "llama-3.1-70b", "--gpu", "h100-sxm", *VLLM)


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
        (("--engine", "vllm", "--max-num-batched-tokens", "100", "--max-num-seqs", "1024"), ("is less than --max-num-seqs 1,024",)),
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
        ("v100", ("--kv", "fp8"), "--kv fp8 in vllm cannot run on v100-sxm2-16gb: it needs compute capability 8.0"),
        ("v100", ("--quantization", "fp8"), "--quantization fp8 in vllm cannot run on v100-sxm2-16gb"),
        ("v100", ("--weights", "fp8"), "--weights fp8 in vllm cannot run on v100-sxm2-16gb"),
        (
            "t4",
            ("--dtype", "bf16"),
            "--dtype bf16 in vllm cannot run on t4: it needs compute capability 8.0, t4 has 7.5",
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
    assert "--tensor-parallel-size 4" in {each["flag"] for each in made["advice"]}
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


@pytest.mark.parametrize(
    ("option", "ours"),
    [("--tensor-parallel-size", "--tp"), ("--kv-cache-dtype", "--kv"), ("--ctx-size", "--n-ctx"), ("--context-length", "--max-model-len")],
)  # fmt: skip
def test_an_engines_name_of_an_option_is_told_ours(option: str, ours: str) -> None:
    """Options have one name for all engines."""
    refused(roofcast("fit", "llama-3.1-8b", "--engine", "vllm", option, "2"), 2, f"here it is {ours}")


def test_a_request_beyond_the_models_is_warned_of() -> None:
    """A config that bounds nothing allows any length."""
    found = answer("fit", "llama-3.1-8b", "--gpu", "b200", "--engine", "vllm", "--max-model-len", "1000000")
    unbound = answer("fit", "mamba-2.8b", "--gpu", "h100-sxm", "--engine", "vllm", "--max-model-len", "1000000")

    assert any("--max-model-len 1,000,000 is more than the 131,072" in line for line in found["warnings"])
    assert not any("--max-model-len" in line for line in unbound["warnings"])
