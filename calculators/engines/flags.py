"""The engines' own flags, under their own names, and which engine takes which."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Final

from roofcast.calculators.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True, kw_only=True)
class Flags:
    """What an engine is started with; None is the engine's own default.

    Args:
        engine_version: as `major.minor.patch`; None is the newest whose rules are known.
        dtype: of weights and activations that are not quantised.
        quantization: method that the engine quantises with as it loads.
        gpu_memory_utilization: share of the device's memory (vLLM), or of what CUDA sees. [-]
        kv_cache_memory_bytes: size of the cache, whatever else takes (vLLM). [B]
        max_model_len: tokens of the longest request. [token]
        max_num_seqs: requests of one step.
        max_num_batched_tokens: tokens of one step. [token]
        block_size: tokens of a block of the cache. [token]
        enforce_eager: whether no CUDA graphs are captured.
        decode_context_parallel_size: devices that share the cache of a sequence by its tokens (vLLM).
        num_speculative_tokens: tokens drafted a step.
        mamba_ssm_cache_dtype, mamba_cache_mode: format of recurrent states; none, align or all (vLLM).
        enable_prefix_caching: whether blocks of equal prefixes are shared (vLLM): a hybrid's states take more then.
        disable_hybrid_kv_cache_manager: whether windows save no memory (vLLM).
        mem_fraction_static: share of the memory for weights and cache (SGLang). [-]
        max_running_requests: requests at once (SGLang).
        chunked_prefill_size: tokens of a chunk of a prompt (SGLang). [token]
        page_size: tokens of a page (SGLang). [token]
        swa_full_tokens_ratio, mamba_full_memory_ratio: how SGLang splits a hybrid's pool. [-]
        enable_dp_attention: whether replicas share experts and each its own attention (SGLang).
        n_ctx: tokens of all slots together (llama.cpp). [token]
        parallel: slots (llama.cpp, Ollama).
        ubatch_size: tokens of one physical batch (llama.cpp). [token]
        cache_type_v: format of values, where --kv is that of keys (llama.cpp).
        swa_full: whether window layers keep the whole context (llama.cpp).
        kv_unified: whether slots share one buffer (llama.cpp).
        kv_cache_free_gpu_mem_fraction: of what is free once the engine is loaded (TensorRT-LLM). [-]
        max_batch_prefill_tokens: tokens of the warm-up's prefill (TGI). [token]
        cuda_memory_fraction: share of the memory (TGI). [-]
        cache_max_entry_count: share of free memory (LMDeploy). [-]
        session_len: tokens of the longest request (LMDeploy). [token]
    """

    engine_version: str | None = None
    dtype: str | None = None
    quantization: str | None = None
    gpu_memory_utilization: float | None = None
    kv_cache_memory_bytes: float | None = None
    max_model_len: int | None = None
    max_num_seqs: int | None = None
    max_num_batched_tokens: int | None = None
    block_size: int | None = None
    enforce_eager: bool = False
    decode_context_parallel_size: int | None = None
    num_speculative_tokens: int | None = None
    mamba_ssm_cache_dtype: str | None = None
    mamba_cache_mode: str | None = None
    enable_prefix_caching: bool = False
    disable_hybrid_kv_cache_manager: bool = False
    mem_fraction_static: float | None = None
    max_running_requests: int | None = None
    chunked_prefill_size: int | None = None
    page_size: int | None = None
    swa_full_tokens_ratio: float | None = None
    mamba_full_memory_ratio: float | None = None
    enable_dp_attention: bool = False
    n_ctx: int | None = None
    parallel: int | None = None
    ubatch_size: int | None = None
    cache_type_v: str | None = None
    swa_full: bool = False
    kv_unified: bool = False
    kv_cache_free_gpu_mem_fraction: float | None = None
    max_batch_prefill_tokens: int | None = None
    cuda_memory_fraction: float | None = None
    cache_max_entry_count: float | None = None
    session_len: int | None = None

    @property
    def given(self) -> dict[str, object]:
        """Those that were given, by their names.

        >>> Flags(max_model_len=8192, enforce_eager=True).given
        {'max_model_len': 8192, 'enforce_eager': True}
        """
        every = ((field.name, getattr(self, field.name)) for field in fields(self))
        return {name: value for name, value in every if value is not None and value is not False}


# engine -> flags that it takes, but for engine_version, which every engine has
TAKES: Final[Mapping[str, frozenset[str]]] = {
    "vllm": frozenset(
        ("dtype", "quantization", "gpu_memory_utilization", "kv_cache_memory_bytes", "max_model_len", "max_num_seqs",
         "max_num_batched_tokens", "block_size", "enforce_eager", "decode_context_parallel_size",
         "num_speculative_tokens", "mamba_ssm_cache_dtype", "mamba_cache_mode", "enable_prefix_caching",
         "disable_hybrid_kv_cache_manager")
    ),
    "sglang": frozenset(
        ("dtype", "quantization", "mem_fraction_static", "max_running_requests", "chunked_prefill_size", "page_size",
         "swa_full_tokens_ratio", "mamba_full_memory_ratio", "enable_dp_attention", "max_model_len",
         "num_speculative_tokens")
    ),
    "llama.cpp": frozenset(("n_ctx", "parallel", "ubatch_size", "cache_type_v", "swa_full", "kv_unified")),
    "ollama": frozenset(("n_ctx", "parallel", "ubatch_size", "cache_type_v")),
    "tensorrt-llm": frozenset(
        ("kv_cache_free_gpu_mem_fraction", "block_size", "max_num_seqs", "max_num_batched_tokens", "max_model_len")
    ),
    "tgi": frozenset(("max_batch_prefill_tokens", "cuda_memory_fraction", "max_model_len", "quantization")),
    "lmdeploy": frozenset(("cache_max_entry_count", "session_len", "block_size", "max_num_batched_tokens")),
}  # fmt: skip


def option(name: str) -> str:
    """How a flag is written: `max_model_len` is --max-model-len.

    >>> option("max_model_len")
    '--max-model-len'
    """
    return "--" + name.replace("_", "-")


def check_flags(engine: str, flags: Flags) -> None:
    """Refuses a flag that an engine does not have.

    Raises:
        UsageError: naming the flag, who has it, and what this engine has.
    """
    if engine == "none":
        strange = next(iter(flags.given), None)
        if strange is not None:
            raise UsageError(f"{option(strange)} is of a serving engine; --engine {_owner(strange)} has it")
        return
    if engine not in TAKES:
        raise UsageError(f"--engine {engine}: its memory rules are not modelled; modelled: none, {', '.join(TAKES)}")
    strange = next((name for name in flags.given if name not in TAKES[engine] | {"engine_version"}), None)
    if strange is not None:
        raise UsageError(
            f"{option(strange)} is no flag of {engine}, but of {_owner(strange)}; {engine} has "
            f"{', '.join(sorted(map(option, TAKES[engine])))}"
        )


def _owner(flag: str) -> str:
    """Engines that have a flag."""
    return " or ".join(engine for engine, flags in TAKES.items() if flag in flags) or next(iter(TAKES))
