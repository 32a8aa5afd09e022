"""Lines of start-up logs: what vLLM, SGLang and llama.cpp print in each of their eras."""

from __future__ import annotations

import pytest

from tests.log_reading import MIB, fixture, read, said


def test_v1_states_every_term() -> None:
    """Numbers of github.com/jgchn/llm-d-planner/blob/d3121e0/accuracy/results/v0.19.0/logs, CodeLlama-7b on an H100."""
    log = read(fixture("vllm_v1.txt"))

    assert (log.engine, log.version, log.failure, log.notes) == ("vllm", "0.19.0", None, ())
    assert said(log) == {
        "free": 78.68,
        "budget": 75.23,
        "weights": 12.56,
        "cuda_graphs_estimated": 0.84,
        "non_kv": 13.57,
        "activation": 0.77,
        "non_torch": 0.25,
        "kv": 61.66,
        "tokens": 126_256,
        "concurrency_tokens": 8192,
        "concurrency": 15.41,
        "cuda_graphs": 0.89,
        "visible": 79.19,
        "blocks": 7891,
    }


def test_v1_states_how_it_was_started() -> None:
    """By the names of the flags, whichever line lists them; what is None is left out."""
    assert read(fixture("vllm_v1.txt")).settings == {
        "model": "codellama/CodeLlama-7b-hf",
        "max_model_len": "8192",
        "gpu_memory_utilization": "0.95",
        "max_num_batched_tokens": "8192",
        "dtype": "bfloat16",
        "tensor_parallel_size": "1",
        "pipeline_parallel_size": "1",
        "data_parallel_size": "1",
        "enforce_eager": "False",
        "kv_cache_dtype": "auto",
    }


def test_v0_states_blocks() -> None:
    """Numbers of github.com/vllm-project/vllm/issues/10517; its GB of weights are GiB, and have two digits more."""
    log = read(fixture("vllm_v0.txt"))

    assert (log.engine, log.version) == ("vllm", "0.6.4")
    assert said(log) == {
        "weights": 14.9888,
        "visible": 23.58,
        "budget": 21.22,
        "non_torch": 0.35,
        "activation": 2.07,
        "kv": 3.81,
        "blocks": 1952,
        "concurrency_tokens": 20_000,
        "concurrency": 1.56,
        "cuda_graphs": 0.33,
    }
    assert log.term("weights").ranks == 1  # type: ignore[union-attr]
    assert log.settings["dtype"] == "bfloat16"


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("# GPU blocks: 1464, # CPU blocks: 312", {"blocks": 1464}),
        ("# CPU blocks: 312\n# GPU blocks: 1464", {"blocks": 1464}),
        ("INFO executor_base.py:110] # CUDA blocks: 36332, # CPU blocks: 9362", {"blocks": 36_332}),
        ("model weights take 5.43GiB; non_torch_memory takes -0.51GiB; x", {"weights": 5.43, "non_torch": -0.51}),
        ("Model loading took 15.0 GiB and 1.831236 seconds", {"weights": 15.0}),
        ("Model loading took 14.9888 GB and 12.1 seconds", {"weights": 14.9888}),
        (
            "GPU KV cache size: 456,320 tokens, Maximum concurrency for 16,384 tokens per request: 27.85x",
            {"tokens": 456_320, "concurrency_tokens": 16_384, "concurrency": 27.85},
        ),
        ("Available KV cache memory: -2.14 GiB", {"kv": -2.14}),
        ("Estimated CUDA graph memory: -0.81 GiB total", {"cuda_graphs_estimated": -0.81}),
        ("Setting attention block size to 784 tokens to ensure that attention page size is", {"block_size": 784}),
        ("Overriding num_gpu_blocks=10 with num_gpu_blocks_override=512", {"blocks": 512}),
        (
            ("Actual usage is 81.7 GiB for consumed memory (weights + non-torch), 1.78 GiB for peak activation, and 0.28 "
            "GiB for CUDAGraph memory. Current kv cache memory in use is 8.64 GiB."),
            {"consumed": 81.7, "activation": 1.78, "cuda_graphs": 0.28, "kv": 8.64},
        ),
        ("Current kv cache memory in use is 4294967296 bytes.", {"kv": 4.0}),
        (
            "Initial free memory 31.17 GiB, reserved 1.62 GiB memory for KV Cache as specified by kv_cache_memory_bytes",
            {"free": 31.17, "kv": 1.62},
        ),
        ("worker requested memory: 28.22GiB", {"budget": 28.22}),
        ("KV Cache is allocated. dtype: torch.bfloat16, #tokens: 383872, KV size: 19.36 GB", {"kv": 19.36, "tokens": 383_872}),
        ("KV Cache is allocated. #tokens: 100, K size: 2.23 GB, V size: 2.24 GB", {"k": 2.23, "v": 2.24, "kv": 4.47, "tokens": 100}),
        (
            "Mamba Cache is allocated. max_mamba_cache_size: 80, conv_state size: 0.07GB, ssm_state size: 4.41GB",
            {"mamba_slots": 80, "conv_state": 0.07, "ssm_state": 4.41, "mamba": 4.48},
        ),
    ],
)  # fmt: skip
def test_lines_say_terms(line: str, expected: dict[str, float]) -> None:
    """Of a single line, in any engine's format and era; negative sizes are what vLLM can log."""
    assert said(read(line)) == expected


def test_a_refused_request_is_a_failure() -> None:
    """What is needed, and the length that would fit, are terms; the reason is vLLM's own, not what follows from it."""
    log = read(fixture("vllm_refused.txt"))

    assert said(log) == {"kv": 10.91, "needed": 24.0, "concurrency_tokens": 131_072, "estimated_max_model_len": 59_584}
    assert log.failure is not None
    assert log.failure.startswith("the cache does not hold one request of --max-model-len tokens (line 3: ")


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (
            "ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization`",
            "nothing is left for the cache within --gpu-memory-utilization",
        ),
        (
            (
                "ValueError: Free memory on device cuda:0 (8.15/94.97 GiB) on startup is less than desired GPU memory "
                "utilization (0.9, 85.47 GiB). Decrease GPU memory utilization"
            ),
            "less memory is free than --gpu-memory-utilization asks for",
        ),
        (
            (
                "ValueError: The model's max seq len (131072) is larger than the maximum number of tokens that can be stored "
                "in KV cache (31232). Try increasing"
            ),
            "the cache does not hold one request of --max-model-len tokens",
        ),
        (
            "Initializing a V1 LLM engine (v0.24.0) with config: model='m'\ntorch.OutOfMemoryError: CUDA out of memory.",
            "a device ran out of memory",
        ),
        (
            "RuntimeError: Not enough memory. Please try to increase --mem-fraction-static. Current value: 0.1",
            "weights leave nothing for the cache within --mem-fraction-static",
        ),
        (
            "llama_context: n_ctx = 8192\ngraph_reserve: failed to allocate compute buffers",
            "a device has no room for the compute buffer; a smaller --ubatch-size needs less",
        ),
    ],
)
def test_failures_are_named(line: str, reason: str) -> None:
    """The reason in words, and the line that says so."""
    failure = read(line).failure

    assert failure is not None
    assert failure.startswith(reason + " (line ")


def test_free_memory_that_is_too_little_is_read_too() -> None:
    """The refusal states what is free, what there is and what was asked."""
    line = "Free memory on device cuda:0 (8.15/94.97 GiB) on startup is less than desired GPU memory utilization (0.9, 85.47 GiB)."
    log = read(line)

    assert said(log) == {"free": 8.15, "visible": 94.97, "budget": 85.47}
    assert log.settings == {"gpu_memory_utilization": "0.9"}


def test_sglang_states_weights_pools_and_graphs() -> None:
    """GB are GiB; kv = K + V = 25.91 + 25.91; each kind of graph takes its own: 0.50 + 0.20; tokens are the last line's."""
    log = read(fixture("sglang.txt"))

    assert (log.engine, log.failure) == ("sglang", None)
    assert said(log) == {
        "avail_before": 78.5,
        "weights": 15.08,
        "avail_weights": 63.42,
        "k": 25.91,
        "v": 25.91,
        "kv": 51.82,
        "avail_pool": 9.61,
        "cuda_graphs": 0.7,
        "max_running_requests": 2048,
        "avail_after": 8.8,
        "tokens": 424_480,
    }
    assert log.settings["mem_fraction_static"] == "0.87"
    assert log.settings["tensor_parallel_size"] == "2"
    assert log.settings["max_model_len"] == "131072"


def test_sglang_adds_the_pools_of_windows() -> None:
    """Both pools' lines are parts of the pool: its size counts, and the full pool's tokens."""
    log = read(
        "KV Cache is allocated. #tokens: 798276, K size: 30.00 GB, V size: 30.00 GB\n"
        "KV Cache is allocated. #tokens: 997846, K size: 9.97 GB, V size: 9.97 GB\n"
        "SWAKVPool mem usage: 79.94 GB, swa size: 798276, full size: 997846\n"
    )

    assert said(log) == {"kv": 79.94, "tokens": 997_846, "swa_tokens": 798_276}


def test_a_draft_models_lines_are_its_own() -> None:
    """SGLang's draft worker prints the same lines after the server's; the last line is the server's again."""
    log = read(
        fixture("sglang.txt").replace(
            "[2025-10-01 10:00:35 TP0] max_total",
            "[x] Load weight begin. avail mem=9.00 GB\n"
            "[x] Load weight end. type=LlamaForCausalLMEagle3, dtype=torch.float16, avail mem=8.00 GB, mem usage=1.00 GB.\n"
            "[x] KV Cache is allocated. #tokens: 212240, K size: 0.81 GB, V size: 0.81 GB\n"
            "[x] max_total",
        )
    )

    assert (said(log)["weights"], said(log)["kv"], said(log)["tokens"]) == (15.08, 51.82, 424_480)
    assert (said(log)["draft_weights"], said(log)["draft_kv"], log.term("draft_tokens").value) == (1.0, 1.62, 212_240)  # type: ignore[union-attr]
    assert (log.settings["dtype"], log.settings["draft_dtype"]) == ("bfloat16", "float16")


def test_llama_adds_devices_and_caches() -> None:
    """kv = 3072 + 18 MiB; model = 6449.51 + 4827.44; the host's buffers are their own; compute = 456.98 + 398.38."""
    log = read(fixture("llama_windows.txt"))

    assert (log.engine, log.version) == ("llama.cpp", "6123")
    assert said(log, MIB) == {
        "model_buffer_cpu": 586.82,
        "model_buffer": 11_276.95,
        "n_ctx": 131_072,
        "output_buffer_cpu": 0.77,
        "kv_full": 3072.0,
        "kv": 3090.0,
        "k": 1545.0,
        "v": 1545.0,
        "kv_swa": 18.0,
        "compute_buffer": 855.36,
        "compute_buffer_cpu": 263.15,
    }
    assert {term.name: term.value for term in log.terms if "cells" in term.name} == {"cells": 131_072, "swa_cells": 768}
    assert log.settings["type_k"] == "f16"
    assert log.settings["n_ctx"] == "131072"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("llama_kv_cache_init:      CUDA0 KV buffer size =  4096.00 MiB", {"kv": 4096.0}),
        (
            (
                "0.00.033 I llama_kv_cache_init: CPU KV buffer size = 9.00 MiB\n"
                "llama_new_context_with_model: KV self size  =  640.00 MiB, K (f16):  320.00 MiB, V (f16):  320.00 MiB"
            ),
            {"kv": 640.0, "k": 320.0, "v": 320.0},
        ),
        ("llama_new_context_with_model: kv self size  =  400.00 MB", {"kv": 400.0}),
        (
            "llama_kv_cache_unified: size =  512.00 MiB (  4096 cells,  32 layers,  1 seqs), K (q8_0): 256.00 MiB, V (q8_0): 256.00 MiB",
            {"kv": 512.0, "k": 256.0, "v": 256.0},
        ),
        ("llama_kv_cache: size = 4096.00 MiB ( 65536 cells, 16 layers, 1/1 seqs)", {"kv": 4096.0}),
        (
            (
                "llama_memory_recurrent:        CPU RS buffer size =    93.52 MiB\n"
                "llama_memory_recurrent:      CUDA0 RS buffer size =    56.11 MiB"
            ),
            {"state": 149.63},
        ),
        (
            (
                "llama_memory_recurrent: CUDA0 RS buffer size = 112.57 MiB\n"
                "llama_memory_recurrent: size =  112.57 MiB ( 1 cells, 48 layers, 1 seqs), R (f32): 4.57 MiB, S (f32): 108.00 MiB"
            ),
            {"state": 112.57},
        ),
        ("llm_load_tensors:      CUDA0 buffer size =  4403.49 MiB", {"model_buffer": 4403.49}),
        ("load_tensors: Metal_Mapped model buffer size =  1918.34 MiB", {"model_buffer": 1918.34}),
        (
            (
                "alloc_compute_meta:      CUDA0 compute buffer size =   648.10 MiB\n"
                "sched_reserve:      CUDA0 compute buffer size =   560.00 MiB\n"
                "sched_reserve:      CUDA0 compute buffer size =   560.00 MiB"
            ),
            {"compute_buffer": 560.0},
        ),
        (
            (
                'level=INFO source=device.go:240 msg="model weights" device=CUDA0 size="4.5 GiB"\n'
                'level=INFO source=device.go:245 msg="model weights" device=CPU size="292.4 MiB"\n'
                'level=INFO source=device.go:251 msg="kv cache" device=CUDA0 size="1.2 GiB"'
            ),
            {"model_buffer": 4608.0, "model_buffer_cpu": 292.4, "kv": 1228.8},
        ),
    ],
)
def test_llama_lines_of_all_years(text: str, expected: dict[str, float]) -> None:
    """In MiB; buffers count where no summary is, a buffer that is reserved again counts once, an image encoder's not."""
    assert said(read(text), MIB) == expected


def test_llamas_draft_model_is_of_the_same_start() -> None:
    """It is loaded once the cache is there, and has a cache of its own."""
    log = read(
        fixture("llama_windows.txt").replace(
            "main: server is",
            "srv    load_model: loading draft model '/models/d.gguf'\n"
            "llama_model_loader: loaded meta data with 3 key-value pairs and 9 tensors from /models/d.gguf (version GGUF V3)\n"
            "load_tensors:        CUDA0 model buffer size =   100.00 MiB\n"
            "llama_kv_cache: size =   64.00 MiB (  4096 cells,   4 layers,  1/1 seqs), K (f16): 32.00 MiB, V (f16): 32.00 MiB\n"
            "main: server is",
        )
    )

    assert (said(log, MIB)["kv"], said(log, MIB)["model_buffer"]) == (3090.0, 11_276.95)
    assert (said(log, MIB)["draft_kv"], said(log, MIB)["draft_model_buffer"]) == (64.0, 100.0)
    assert (log.settings["model"], log.settings["draft_model"]) == ("/models/m.gguf", "/models/d.gguf")


def test_llamas_switches_and_types_are_flags() -> None:
    """kv_unified was 0 or 1 once; values of another type than keys are --cache-type-v."""
    log = read(
        "llama_context: kv_unified    = 1\nllama_kv_cache_iswa: using full-size SWA cache (x)\n"
        "llama_kv_cache: size = 512.00 MiB (4096 cells, 32 layers, 1 seqs), K (q8_0): 272.00 MiB, V (f16): 240.00 MiB\n"
    )

    assert {name: log.settings[name] for name in ("kv_unified", "swa_full", "type_k", "cache_type_v")} == {
        "kv_unified": "true", "swa_full": "true", "type_k": "q8_0", "cache_type_v": "f16",
    }  # fmt: skip


def test_sglangs_list_states_flags() -> None:
    """By the names of the flags; how many requests run at last is the server's answer and no setting."""
    log = read(
        "server_args=ServerArgs(model_path='m', dtype='auto', quantization='fp8', kv_cache_dtype='fp8_e4m3', "
        "context_length=65536, mem_fraction_static=0.87, max_running_requests=256, chunked_prefill_size=8192, page_size=64, "
        "tp_size=8, dp_size=8, ep_size=8, enable_dp_attention=True)\n"
        "max_total_num_tokens=424480, chunked_prefill_size=8192, max_prefill_tokens=16384, max_running_requests=32, "
        "context_len=65536, available_gpu_mem=8.80 GB\n"
    )

    assert {name: text for name, text in log.settings.items() if name not in {"model", "dtype"}} == {
        "quantization": "fp8", "kv_cache_dtype": "fp8_e4m3", "max_model_len": "65536", "mem_fraction_static": "0.87",
        "max_running_requests": "256", "chunked_prefill_size": "8192", "page_size": "64", "tensor_parallel_size": "8",
        "data_parallel_size": "8", "expert_parallel_size": "8", "enable_dp_attention": "True",
    }  # fmt: skip


def test_sums_are_as_rough_as_their_parts() -> None:
    """Two buffers of two decimals: a last digit more of each is 0.02 MiB of the sum."""
    buffers = "llama_kv_cache: CUDA{0} KV buffer size = {1}.00 MiB\n"
    kv = read(buffers.format(0, 10) + buffers.format(1, 20)).term("kv")

    assert kv is not None
    assert kv.value == 30.0 * MIB
    assert kv.step == pytest.approx(0.02 * MIB)


def test_the_first_model_that_is_listed_is_the_servers() -> None:
    """A speculative configuration lists its own, and how it drafts."""
    log = read(
        "Initializing a V1 LLM engine (v0.29.0) with config: model='m', speculative_config=SpeculativeConfig(method='mtp', "
        "model='d', num_spec_tokens=3), dtype=torch.bfloat16"
    )

    assert log.settings == {
        "model": "m",
        "speculative_method": "mtp",
        "num_speculative_tokens": "3",
        "dtype": "bfloat16",
    }
