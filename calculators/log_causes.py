"""What usually causes that a server's log says another number than the prediction: by engine, term and direction."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

MORE: Final = 1  # the log says more than was predicted
LESS: Final = -1

VLLM: Final[Mapping[tuple[str, int], str]] = {
    ("visible", MORE): "another GPU, or a larger variant of it: --gpu must name the one that the server has",
    ("visible", LESS): "another GPU, or a slice of one (MIG, vGPU): --gpu must name what the server sees",
    ("free", MORE): "nothing else holds memory of the GPU",
    ("free", LESS): "other processes hold memory of the GPU, or an earlier server's workers still do",
    ("budget", MORE): "--gpu-memory-utilization differs; its default is 0.92 in new releases, 0.90 before",
    ("budget", LESS): "--gpu-memory-utilization differs; its default is 0.90 in old releases, 0.92 in new ones",
    ("weights", MORE): (
        "another dtype or quantisation than asked for, a vision tower or draft model beside it, or experts padded for their kernel"
    ),
    (
        "weights",
        LESS,
    ): "another quantisation than asked for, weights offloaded to the host, or more devices that share them",
    ("activation", MORE): (
        "a larger --max-num-batched-tokens, --max-num-seqs x vocabulary of logits (before 0.17), or an encoder's profile run"
    ),
    (
        "activation",
        LESS,
    ): "a smaller --max-num-batched-tokens or --max-num-seqs, or less kept of logits (0.17 and later)",
    (
        "non_torch",
        MORE,
    ): "NCCL and custom all-reduce buffers, or another process that took memory during the profile run",
    (
        "non_torch",
        LESS,
    ): "another process that freed memory during the profile run, or NCCL set up before the first snapshot",
    ("cuda_graphs_estimated", MORE): "more or larger batch sizes captured (--max-num-seqs, --cudagraph-capture-sizes)",
    (
        "cuda_graphs_estimated",
        LESS,
    ): "fewer batch sizes captured, --enforce-eager, or an estimate that other processes disturbed",
    ("cuda_graphs", MORE): "more or larger batch sizes captured; they are captured after the cache has its size",
    ("cuda_graphs", LESS): "fewer batch sizes captured, or --enforce-eager",
    (
        "non_kv",
        MORE,
    ): "weights, activations or memory outside PyTorch take more; debug lines (VLLM_LOGGING_LEVEL) tell which",
    (
        "non_kv",
        LESS,
    ): "weights, activations or memory outside PyTorch take less; debug lines (VLLM_LOGGING_LEVEL) tell which",
    # terms before it differ unseen where no debug lines are
    ("kv", MORE): (
        "a smaller --max-num-seqs or --max-num-batched-tokens of the server, less memory of other kinds than predicted, "
        "--kv-cache-memory-bytes, or CUDA graphs that are not subtracted (before 0.21, V2 model runner, ROCm)"
    ),
    ("kv", LESS): (
        "a larger --max-num-seqs or --max-num-batched-tokens of the server, a smaller GPU than --gpu names, another rank or "
        "stage with less (the least counts), CUDA graphs that are subtracted (0.21 and later), or --kv-cache-memory-bytes"
    ),
    (
        "block_size",
        MORE,
    ): "a hybrid's attention page grows to its state's page; a wider --mamba-ssm-cache-dtype, or an fp8 cache",
    ("block_size", LESS): "another attention backend, or a narrower --mamba-ssm-cache-dtype",
    (
        "blocks",
        MORE,
    ): "a cache of fewer bits (fp8 holds twice as many), larger TP, or layers without a cache of their own",
    ("blocks", LESS): (
        "a cache of more bits, draft layers in the pool, padding layers of a hybrid's groups, or KV heads and latents that TP replicates"
    ),
    ("tokens", MORE): (
        "the line is concurrency x max length (0.21 and later), which windows and states raise; or decode context parallelism"
    ),
    ("tokens", LESS): "the line is blocks // groups x block size (0.20 and before), which is no capacity of a hybrid",
    ("concurrency", MORE): "window layers and states stop growing with the length; a shorter --max-model-len",
    ("concurrency", LESS): "a longer --max-model-len, or --max-num-batched-tokens that lengthens what windows keep",
    ("concurrency_tokens", MORE): "--max-model-len differs",
    ("concurrency_tokens", LESS): "--max-model-len differs",
    ("needed", MORE): "a longer --max-model-len or a cache of more bits",
    ("needed", LESS): "a shorter --max-model-len or a cache of fewer bits",
}
SGLANG: Final[Mapping[tuple[str, int], str]] = {
    ("avail_before", MORE): "another GPU than --gpu names",
    ("avail_before", LESS): "other processes hold memory of the GPU, or another GPU than --gpu names",
    (
        "weights",
        MORE,
    ): "another dtype or quantisation than asked for, a vision tower, or temporaries that the loader kept",
    (
        "weights",
        LESS,
    ): "another quantisation than asked for, weights offloaded to the host, or more devices that share them",
    ("cuda_graphs", MORE): "more or larger batch sizes captured (--cuda-graph-max-bs)",
    ("cuda_graphs", LESS): "fewer batch sizes captured, or --disable-cuda-graph",
    ("kv", MORE): "a larger --mem-fraction-static, or a smaller share of states (--mamba-full-memory-ratio)",
    ("kv", LESS): (
        "a smaller --mem-fraction-static (its default depends on the GPU and TP), another rank with less free, or an indexer left out"
    ),
    ("mamba", MORE): "--mamba-full-memory-ratio or --max-mamba-cache-size differs",
    ("mamba", LESS): "--mamba-full-memory-ratio or --max-mamba-cache-size differs",
    ("tokens", MORE): "a cache of fewer bits, or a hybrid's ratio of window to full tokens (--swa-full-tokens-ratio)",
    ("tokens", LESS): "a cache of more bits, --max-total-tokens, or latents and KV heads that TP replicates",
    ("swa_tokens", MORE): "--swa-full-tokens-ratio differs",
    ("swa_tokens", LESS): "--swa-full-tokens-ratio differs",
    ("max_running_requests", MORE): "--max-running-requests differs",
    ("max_running_requests", LESS): "states cap it: a third or less of --max-mamba-cache-size",
}
LLAMA: Final[Mapping[tuple[str, int], str]] = {
    ("weights", MORE): "a larger quantisation than asked for, or token embeddings on the device too",
    ("weights", LESS): "layers stay on the host (--n-gpu-layers, --n-cpu-moe), or a smaller quantisation",
    (
        "kv",
        MORE,
    ): "a longer --ctx-size, a cache of more bits, --swa-full, or streams that are rounded up to 256 cells each",
    ("kv", LESS): "a shorter --ctx-size, a cache of fewer bits, or layers that share another's cache",
    ("activation", MORE): "a larger --ubatch-size, or no flash attention",
    ("activation", LESS): "a smaller --ubatch-size, or flash attention",
    ("state", MORE): "more sequences (--parallel): each has its own state",
    ("state", LESS): "fewer sequences (--parallel): each has its own state",
    ("n_ctx", MORE): "--ctx-size differs; 0 is the model's own length",
    ("n_ctx", LESS): "--ctx-size differs, or the server fitted it to the device",
    ("cells", MORE): "--ctx-size or --parallel differs",
    ("cells", LESS): "--ctx-size or --parallel differs",
}
CAUSES: Final[Mapping[tuple[str, str, int], str]] = {
    (engine, *key): cause
    for engine, causes in (("vllm", VLLM), ("sglang", SGLANG), ("llama.cpp", LLAMA))
    for key, cause in causes.items()
}
