"""Lines of vLLM's start: from V0's blocks (0.2) to V1's accounts of memory (0.30)."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from roofcast.calculators.log_terms import Dialect, Logged, Message, message

if TYPE_CHECKING:
    from collections.abc import Mapping

# Sizes are GiB, also where lines before 0.8 say GB: they divide by 1 << 30 (vllm/utils.py, GiB_bytes and
# DeviceMemoryProfiler). V1 rounds to two decimals and drops zeros: 15.0 is 15.00.
# Source: vllm/worker/worker.py (V0), vllm/v1/worker/gpu_worker.py, vllm/v1/worker/gpu_model_runner.py,
# vllm/v1/core/kv_cache_utils.py, vllm/config/scheduler.py
GROWN: Final = (
    # V0, and V1's debug line
    message("total_gpu_memory", r"total_gpu_memory \((?P<visible>@) ?GiB\)"),
    message(
        "gpu_memory_utilization (",
        r"gpu_memory_utilization \((?P<gpu_memory_utilization>[\d.]{1,12})\) = (?P<budget>@) ?GiB",
    ),
    message("model weights take", r"model weights take (?P<weights>@) ?GiB"),
    message("non_torch_memory takes", r"non_torch_memory takes (?P<non_torch>@) ?GiB"),
    message("activation peak memory takes", r"activation peak memory takes (?P<activation>@) ?GiB"),
    message("reserved for KV Cache is", r"reserved for KV Cache is (?P<kv>@) ?GiB"),
    message("model weights took", r"[Ll]oading model weights took (?P<weights>@) ?Gi?B"),
    message("Model loading took", r"Model loading took (?P<weights>@) ?Gi?B"),
    message("nitial free memory: ", r"[Ii]nitial free memory: (?P<free>@) ?GiB"),
    message(
        "equested memory: ",
        r"[Rr]equested memory: (?:(?P<gpu_memory_utilization>[\d.]{1,12}) \(util\), )?(?P<budget>@) ?GiB",
    ),
    message("otal non KV cache memory", r"otal non KV cache memory: (?P<non_kv>@) ?GiB"),
    message("torch peak memory increase", r"torch peak memory increase: (?P<activation>@) ?GiB"),
    message("non-torch forward increase memory", r"non-torch forward increase memory: (?P<non_torch>@) ?GiB"),
    message("weights memory: ", r"weights memory: (?P<weights>@) ?GiB"),
    message("specified by kv_cache_memory_bytes", r"nitial free memory (?P<free>@) ?GiB, reserved (?P<kv>@) ?GiB"),
)
# V0 from 0.6.3 to 0.6.4: one line with all of it; its peak has the weights in it
RESULTS: Final = (
    *(
        message("Memory profiling results", rf"\b{key}=(?P<{name}>@) ?Gi[Bb]")
        for key, name in (
            ("total_gpu_memory", "visible"),
            ("peak_torch_memory", "peak_torch"),
            ("non_torch_memory", "non_torch"),
            ("kv_cache_size", "kv"),
        )
    ),
    message("Memory profiling results", r"\bgpu_memory_utilization=(?P<gpu_memory_utilization>[\d.]{1,12})"),
)
ACCOUNT: Final = (
    # one line after the graphs are captured, or of a device that is not free enough
    message("Free memory on device", r"Free memory on device (?:\S+ )?\((?P<free>@)/(?P<visible>@) GiB\)"),
    message(
        "esired GPU memory utilization",
        r"esired GPU memory utilization(?: is)? \((?P<gpu_memory_utilization>[\d.]{1,12}), (?P<budget>@) GiB\)",
    ),
    message("GiB for weight", r"Actual usage(?: is|:) (?P<weights>@) GiB for weight"),
    message("GiB for consumed memory", r"Actual usage(?: is|:) (?P<consumed>@) GiB for consumed memory"),
    message("GiB for peak activation", r"(?<![\w.,-])(?P<activation>@) GiB for peak activation"),
    message("GiB for non-torch memory", r"(?<![\w.,-])(?P<non_torch>@) GiB for non-torch memory"),
    message("GiB for CUDAGraph memory", r"(?<![\w.,-])(?P<cuda_graphs>@) GiB for CUDAGraph memory"),
    message("cache memory in use is", r"cache memory in use is (?P<kv>@) GiB"),
    message("cache memory in use is", r"cache memory in use is (?P<kv>@) bytes", 1.0, 0),
)
GRAPHS: Final = (
    message("Graph capturing finished", r"Graph capturing finished in .{1,20}?, took (?P<cuda_graphs>@) ?GiB"),
    message("Estimated CUDA graph memory", r"Estimated CUDA graph memory: (?P<cuda_graphs_estimated>@) GiB"),
    message(
        "CUDA graph pool memory",
        r"CUDA graph pool memory: (?P<cuda_graphs>@) GiB \(actual\), (?P<cuda_graphs_estimated>@) GiB \(estimated\)",
    ),
    message(
        "The current --gpu-memory-utilization=",
        r"current --gpu-memory-utilization=(?P<gpu_memory_utilization>[\d.]{1,12})",
    ),
)
CACHE: Final = (
    message("Available KV cache memory", r"Available KV cache memory: (?P<kv>@) ?GiB"),
    message(" blocks: ", r"# (?!CPU )\w{1,20} blocks: (?P<blocks>@)"),
    message("num_gpu_blocks is: ", r"num_gpu_blocks is: (?P<blocks>@)"),
    message("num_gpu_blocks_override=", r"with num_gpu_blocks_override=(?P<blocks>@)"),
    message("KV cache size: ", r"\b[A-Z]{3} KV cache size: (?P<tokens>@) tokens"),
    message(
        "Maximum concurrency for ",
        r"Maximum concurrency for (?P<concurrency_tokens>@) tokens per request: (?P<concurrency>@)x",
    ),
    message("Setting attention block size to ", r"Setting attention block size to (?P<block_size>@) tokens"),
)
SAID: Final = (
    message("Chunked prefill is enabled", r"max_num_batched_tokens=(?P<max_num_batched_tokens>\d{1,12})"),
    message("Using max model len ", r"Using max model len (?P<max_model_len>\d{1,12})"),
    message("padding layers", r"Add (?P<padding_layers>\d{1,6}) padding layers"),
    message("Using V2 Model Runner", r"Using (?P<model_runner>V2) Model Runner"),
)
FAILED: Final = (
    # the first of these that a log has is the reason that is told
    message("KV cache is needed", r"\(?(?<![\w.,-])(?P<needed>@) GiB KV cache is needed"),
    message("max seq len (", r"max seq len \((?P<concurrency_tokens>@)\)"),
    message("estimated maximum model length is", r"estimated maximum model length is (?P<estimated_max_model_len>@)"),
    message("the available KV cache memory (", r"available KV cache memory \((?P<kv>@) GiB\)"),
    message("stored in KV cache (", r"stored in KV cache \((?P<tokens>@)\)"),
)
REASONS: Final[Mapping[str, str]] = {
    "larger than the available KV cache memory": "the cache does not hold one request of --max-model-len tokens",
    "is larger than the maximum number of tokens that can be stored in KV cache": (
        "the cache does not hold one request of --max-model-len tokens"
    ),
    "No available memory for the cache blocks": "nothing is left for the cache within --gpu-memory-utilization",
    "is less than desired GPU memory utilization": "less memory is free than --gpu-memory-utilization asks for",
    "No available memory for the cache": "nothing is left for the cache within --gpu-memory-utilization",
    "Error in memory profiling": "other processes freed memory while the server measured its own",
}
STARTS: Final = (
    Message(
        "vLLM API server version", re.compile(r"vLLM API server version v?(?P<version>[\w.+-]{1,60})"), opens="anew"
    ),
    Message(
        "LLM engine (v",
        re.compile(r"Initializing an? (?:V\d )?LLM engine \(v(?P<version>[\w.+-]{1,60})\)"),
        opens="sized",
    ),
    Message("LLM engine with config", re.compile("Initializing an LLM engine with config"), opens="sized"),
    Message("Application startup complete", re.compile("Application startup complete"), ready=True),
    Message("Uvicorn running on", re.compile("Uvicorn running on"), ready=True),
    Message("vLLM server on http", re.compile("Starting vLLM (?:API )?server"), ready=True),
)
NAMES: Final[Mapping[str, str]] = {
    "model": "model",
    "model_tag": "model",
    "dtype": "dtype",
    "quantization": "quantization",
    "kv_cache_dtype": "kv_cache_dtype",
    "max_seq_len": "max_model_len",
    "max_model_len": "max_model_len",
    "max_num_seqs": "max_num_seqs",
    "max_num_batched_tokens": "max_num_batched_tokens",
    "gpu_memory_utilization": "gpu_memory_utilization",
    "kv_cache_memory_bytes": "kv_cache_memory_bytes",
    "block_size": "block_size",
    "enforce_eager": "enforce_eager",
    "tensor_parallel_size": "tensor_parallel_size",
    "pipeline_parallel_size": "pipeline_parallel_size",
    "data_parallel_size": "data_parallel_size",
    "decode_context_parallel_size": "decode_context_parallel_size",
    "enable_expert_parallel": "enable_expert_parallel",
    "num_gpu_blocks_override": "num_gpu_blocks_override",
    "cpu_offload_gb": "cpu_offload_gb",
    "num_speculative_tokens": "num_speculative_tokens",
    "num_spec_tokens": "num_speculative_tokens",
    "method": "speculative_method",
    "mamba_ssm_cache_dtype": "mamba_ssm_cache_dtype",
    "mamba_cache_mode": "mamba_cache_mode",
    "disable_hybrid_kv_cache_manager": "disable_hybrid_kv_cache_manager",
}
COMMON: Final = frozenset(("Error in memory profiling",))  # of the reasons, words that tell no engine


def summed_up(terms: Mapping[str, Logged]) -> dict[str, Logged]:
    """What a line leaves to subtract: activation = PyTorch's peak - weights, where only the peak is logged. [B]"""
    every = dict(terms)
    peak, weights = every.pop("peak_torch", None), every.get("weights")
    if peak is not None and weights is not None and "activation" not in every:
        every["activation"] = replace(
            peak,
            name="activation",
            value=peak.value - weights.value,
            low=peak.low - weights.high,
            high=peak.high - weights.low,
            step=peak.step + weights.step,
        )
    return every


VLLM: Final = Dialect(
    engine="vllm",
    messages=(
        *STARTS,
        *GROWN,
        *RESULTS,
        *ACCOUNT,
        *GRAPHS,
        *CACHE,
        *SAID,
        *FAILED,
        *(
            Message(words, re.compile(re.escape(words)), failure=why, common=words in COMMON)
            for words, why in REASONS.items()
        ),
    ),
    config=("with config: ", "non-default args: ", "args: Namespace("),
    names=NAMES,
    shown="Available KV cache memory",
    summed_up=summed_up,
)
