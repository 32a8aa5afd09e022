"""Whose log it is: lines that several programs print, engines that run others, and how files name their types."""

from __future__ import annotations

import pytest

from roofcast.calculators.errors import UsageError
from roofcast.calculators.log_answer import log_against
from roofcast.calculators.log_llama import weights_of
from tests.engine_records import asked, memory
from tests.log_reading import fixture, read, said

READY = (
    "INFO:     Application startup complete.\nINFO:     Uvicorn running on http://0.0.0.0:30000 (Press CTRL+C to quit)"
)
OLLAMA = """
time=T level=INFO source=routes.go:1544 msg="Listening on [::]:11434 (version 0.13.5)"
time=T level=INFO source=server.go:400 msg="starting runner" cmd="/usr/bin/ollama runner --ollama-engine --model /blobs/sha256-1 --port 40123"
time=T level=INFO source=runner.go:1278 msg=load request="{Operation:commit LoraPath:[] Parallel:4 BatchSize:512 FlashAttention:Enabled KvSize:32768 KvCacheType:q8_0 NumThreads:8 GPULayers:33}"
time=T level=INFO source=ggml.go:136 msg="" architecture=llama file_type=Q4_K_M name="Llama 3.1 8B Instruct" description=""
time=T level=INFO source=device.go:240 msg="model weights" device=CUDA0 size="4.3 GiB"
time=T level=INFO source=device.go:251 msg="kv cache" device=CUDA0 size="2.1 GiB"
"""
# 0.6.4 on an RTX 3090: 23.58 x 0.9 - 17.06 - 0.35 = 3.81; activation 17.06 - 14.9888 = 2.0712
PROFILED = (
    "Loading model weights took 14.9888 GB\n"
    "Memory profiling results: duration=1.2 seconds, total_gpu_memory=23.58GiB, initial_memory_usage=15.20GiB, "
    "peak_torch_memory=17.06GiB, memory_usage_post_profile=15.30GiB, non_torch_memory=0.35GiB, kv_cache_size=3.81GiB, "
    "gpu_memory_utilization=0.90"
)


@pytest.mark.parametrize("name", ["sglang.txt", "vllm_v1.txt", "llama_windows.txt"])
def test_a_web_servers_lines_are_anyones(name: str) -> None:
    """They neither make a log mixed nor tell an engine."""
    with_it, without = read(f"{READY}\n{fixture(name)}\n{READY}"), read(fixture(name))

    assert (with_it.engine, said(with_it)) == (without.engine, said(without))


def test_a_web_server_alone_is_no_engine() -> None:
    """Nothing is of a start that sizes a cache."""
    with pytest.raises(UsageError, match="no line is of a server's start"):
        read(READY)


def test_ollama_says_how_it_runs_llama() -> None:
    """Its version and not the library's; the cache over its slots."""
    log = read(OLLAMA + "\nbuild: 6123 (79c1160) with cc\nllama_context: n_ctx_per_seq = 8192")

    assert (log.engine, log.version) == ("ollama", "0.13.5")
    assert {name: log.settings[name] for name in ("n_ctx", "parallel", "type_k", "weights", "ubatch_size")} == {
        "n_ctx": "8192", "parallel": "4", "type_k": "q8_0", "weights": "q4_k_m", "ubatch_size": "512",
    }  # fmt: skip


def test_llama_lines_before_ollamas_are_ollamas_too() -> None:
    """The library may speak first."""
    lines = "llama_kv_cache: size = 512.00 MiB (  4096 cells,  32 layers,  1/1 seqs), K (f16):  256.00 MiB, V (f16):  256.00 MiB"

    assert read(f"{lines}\n{OLLAMA}").engine == "ollama"


def test_an_ollama_log_is_set_beside_llama_cpps_rules() -> None:
    """A log of llama.cpp alone fits --engine ollama, too."""
    served = asked("llama-3.1-8b", engine_version="0.19.0")

    with pytest.raises(UsageError, match="--log is of ollama, the prediction of vllm"):
        log_against(read(OLLAMA), served, memory(served))


def test_one_line_of_0_6_4_states_all() -> None:
    """Its peak has the weights in it."""
    log = read(PROFILED)

    assert said(log) == {
        "weights": 14.9888, "visible": 23.58, "non_torch": 0.35, "kv": 3.81, "activation": pytest.approx(2.0712, abs=1e-4),
    }  # fmt: skip
    assert log.settings["gpu_memory_utilization"] == "0.90"


def test_a_peak_without_weights_tells_no_activation() -> None:
    """Both are needed."""
    assert "activation" not in said(read(PROFILED.partition("\n")[2]))


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("Q4_K - Medium", "q4_k_m"),
        ("Q5_K - Small", "q5_k_s"),
        ("mostly Q8_0", "q8_0"),
        ("all F32", "f32"),
        ("F16", "f16"),
        ("MXFP4 MoE", "mxfp4_moe"),
        ("IQ4_XS - 4.25 bpw", "iq4_xs"),
        ("Q4_K - Medium (guessed)", "q4_k_m"),
        ("a type to come", None),
    ],
)
def test_types_of_files(text: str, name: str | None) -> None:
    """As llama.cpp prints them, and what --weights calls them."""
    assert weights_of(text) == name
