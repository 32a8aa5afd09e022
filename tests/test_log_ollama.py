"""Logs of Ollama's server: its version, its slots, and llama.cpp's lines among its own."""

from __future__ import annotations

import pytest

from roofcast.calculators.engines.flags import Flags
from roofcast.calculators.engines.registry import engine_memory
from roofcast.calculators.engines.terms import GIB, Served
from roofcast.calculators.errors import UsageError
from roofcast.calculators.log_compare import compare, given_of
from tests.engine_records import asked
from tests.log_reading import MIB, fixture, read, said

OLDER = (
    'level=INFO source=routes.go:1200 msg="Listening on 127.0.0.1:11434 (version 0.5.7)"\n'
    'level=INFO source=server.go:376 msg="starting llama server" cmd="/usr/lib/ollama/runners/cuda_v12/ollama_llama_server '
    'runner --model /models/blobs/sha256-1 --ctx-size 8192 --batch-size 512 --n-gpu-layers 33 --threads 8 --parallel 4 --port 4"\n'
    'level=INFO source=runner.go:936 msg="starting go runner"\n'
)
RUN = (
    "llama_model_loader: loaded meta data with 29 key-value pairs and 292 tensors from /models/blobs/sha256-1 (version GGUF V3 (latest))\n"
    "llm_load_print_meta: model ftype      = Q4_K - Medium\n"
    "llama_new_context_with_model: n_ctx         = 8192\n"
    "llama_kv_cache_init:      CUDA0 KV buffer size =  1024.00 MiB\n"
    "llama_new_context_with_model: KV self size  = 1024.00 MiB, K (f16):  512.00 MiB, V (f16):  512.00 MiB\n"
    'level=INFO source=server.go:594 msg="llama runner started in 2.00 seconds"\n'
)


def test_a_server_states_its_version_slots_and_sizes() -> None:
    """32,768 tokens of the cache over 4 slots are 8,192 of one; a request that closes a runner states nothing."""
    log = read(fixture("ollama.txt"))

    assert (log.engine, log.version, log.failure, log.notes) == ("ollama", "0.13.5", None, ())
    assert log.settings == {
        "model": "/models/blobs/sha256-0001",
        "model_name": "Meta Llama 3.1 8B Instruct",
        "parallel": "4",
        "ubatch_size": "512",
        "n_ctx": "8192",
        "weights": "q4_k_m",
    }
    assert said(log, MIB) == {
        "model_buffer": 4403.2, "model_buffer_cpu": 281.8, "kv": 4096.0, "compute_buffer": 300.0,
    }  # fmt: skip


def test_an_older_server_states_them_in_its_command() -> None:
    """8,192 over 4 slots are 2,048; llama.cpp's lines are no other engine's."""
    log = read(OLDER + RUN)

    assert (log.engine, log.version) == ("ollama", "0.5.7")
    assert {name: log.settings[name] for name in ("n_ctx", "parallel", "ubatch_size", "weights", "type_k")} == {
        "n_ctx": "2048", "parallel": "4", "ubatch_size": "512", "weights": "q4_k_m", "type_k": "f16",
    }  # fmt: skip
    assert said(log, MIB)["kv"] == 1024.0


def test_llamas_lines_may_come_first() -> None:
    """The log of a container may begin with them; llama.cpp's build is no version of Ollama."""
    log = read("build: 6123 (79c1160b0) with cc\nllama_context: n_ctx = 8192\n" + OLDER.partition("\n")[2] + RUN)

    assert (log.engine, log.version) == ("ollama", None)


def test_llamas_lines_alone_are_llamas() -> None:
    """Nothing of them tells that Ollama started it."""
    assert read(RUN.rpartition("level=INFO")[0]).engine == "llama.cpp"


def test_a_build_within_ollamas_log_is_not_its_version() -> None:
    """Its own is, whatever llama.cpp prints."""
    assert read(OLDER + "build: 6123 (79c1160b0) with cc\n" + RUN).version == "0.5.7"


def test_another_model_is_another_start_of_the_same_server() -> None:
    """The last counts, and has the server's version; a server that is started again has its own."""
    again = fixture("ollama.txt").replace('kv cache" device=CUDA0 size="4.0', 'kv cache" device=CUDA0 size="8.0')
    log = read(fixture("ollama.txt") + again.partition("\n")[2])
    newer = read(fixture("ollama.txt") + again.replace("0.13.5", "0.14.0"))

    assert (log.version, newer.version) == ("0.13.5", "0.14.0")
    assert said(log, MIB)["kv"] == said(newer, MIB)["kv"] == 8192.0
    assert [note[:15] for note in log.notes] == ["it has 2 starts"]


def test_a_quantised_cache_is_read() -> None:
    """KvCacheType is that of keys and values; where it is empty, nothing is said of it."""
    log = read(fixture("ollama.txt").replace("KvCacheType:", "KvCacheType:q8_0"))

    assert log.settings["type_k"] == "q8_0"
    assert "type_k" not in read(fixture("ollama.txt")).settings


def test_an_image_encoder_s_file_type_is_not_the_model_s() -> None:
    """Its projector is a file of its own."""
    clip = fixture("ollama.txt") + 'source=ggml.go:136 msg="" architecture=clip file_type=F16 name="" description=""\n'

    assert read(clip).settings["weights"] == "q4_k_m"


def test_ollama_beside_vllm_is_two_logs() -> None:
    """It is named as itself."""
    with pytest.raises(UsageError, match="line 1 is of Ollama, line 14 of vLLM; give the log of one server"):
        read(fixture("ollama.txt") + "Available KV cache memory: 5.0 GiB")


def test_its_log_is_beside_its_own_prediction() -> None:
    """131,072 B a token x 32,768 = 4.0 GiB, as logged; what it gives has the names of llama.cpp's rules."""
    log, flags = read(fixture("ollama.txt")), Flags(n_ctx=8192, parallel=4, engine_version="0.13.5")
    ready = asked("llama-3.1-8b", "rtx-4090", "fp16").ready
    rows = {row.term: row for row in compare(log, engine_memory("ollama", Served(ready, flags)))}

    assert rows["kv"].agrees is True
    assert rows["kv"].predicted == 4 * GIB
    assert rows["model_buffer"].predicted is not None
    assert rows["compute_buffer"].predicted is not None
    assert set(given_of(log)) == {"weights", "kv", "compute_buffer"}


def test_its_log_is_not_of_llama_cpp() -> None:
    """--engine ollama fits it: defaults and slots are others."""
    memory = engine_memory("llama.cpp", Served(asked("llama-3.1-8b", "rtx-4090", "fp16").ready, Flags(n_ctx=8192)))

    with pytest.raises(UsageError, match=r"--log is of ollama, the prediction of llama\.cpp; --engine ollama fits it"):
        compare(read(fixture("ollama.txt")), memory)
