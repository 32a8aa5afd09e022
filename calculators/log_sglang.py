"""Lines of SGLang's start: weights, the pools of its cache, and what is free after each step."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from roofcast.calculators.log_terms import Dialect, Logged, Message, message

if TYPE_CHECKING:
    from collections.abc import Mapping

# "GB" are GiB: sizes are divided by 1 << 30 (sglang/srt/mem_cache/memory_pool.py, GB = 1024 * 1024 * 1024;
# sglang/srt/utils, get_available_gpu_memory). A draft model's worker prints the same lines after the server's own.
WEIGHTS: Final = (
    replace(
        message("oad weight begin", r"Load weight begin\. avail mem=(?P<avail_before>@) ?GB"),
        opens="draft",
    ),
    message("oad weight end", r"Load weight end\..*?avail mem=(?P<avail_weights>@) ?GB"),
    message("oad weight end", r"Load weight end\..*?mem usage=(?P<weights>@) ?GB"),
    message("oad weight end", r"Load weight end\..*?\bdtype=(?:torch\.)?(?P<dtype>\w{1,30})"),
    message("oad weight end", r"Load weight end\..*?\bquant=(?P<quantization>\w{1,30})"),
)
CACHE: Final = (
    message(
        "KV Cache is allocated",
        r"KV Cache is allocated\..*?#tokens: (?P<pool_tokens>@), K size: (?P<k>@) ?GB, V size: (?P<v>@) ?GB",
    ),
    message("KV Cache is allocated", r"KV Cache is allocated\..*?#tokens: (?P<pool_tokens>@), KV size: (?P<kv>@) ?GB"),
    message("KV Cache is allocated", r"KV Cache is allocated\. dtype: (?:torch\.)?(?P<kv_cache_dtype>\w{1,30})"),
    message("Using KV cache dtype", r"Using KV cache dtype: (?:torch\.)?(?P<kv_cache_dtype>\w{1,30})"),
    message(
        "SWAKVPool mem usage",
        r"SWAKVPool mem usage: (?P<swa_pool>@) ?GB(?:, swa size: (?P<swa_tokens>@), full size: (?P<full_tokens>@))?",
    ),
    message("liding window memory pool", r"full_layer_tokens=(?P<full_tokens>@), swa_layer_tokens=(?P<swa_tokens>@)"),
    message(
        "Mamba Cache is allocated",
        r"max_mamba_cache_size: (?P<mamba_slots>@), conv_state size: (?P<conv_state>@) ?GB,? ssm_state size: (?P<ssm_state>@) ?GB",
    ),
    message("intermediate_ssm_state_cache", r"intermediate_ssm_state_cache size: (?P<mamba_intermediate>@) ?GB"),
    message("Memory pool end", r"Memory pool end\. avail mem=(?P<avail_pool>@) ?GB"),
)
GRAPHS: Final = (
    # each kind of graph, of decode steps or of pieces, takes its own memory
    message("graph end", r"Capture (?P<device>[\w ]{0,60}?)graph end\..*?mem usage=(?P<cuda_graphs>@) ?GB"),
)
LAST: Final = (
    replace(
        message(
            "max_total_num_tokens=",
            r"max_total_num_tokens=(?P<total_tokens>@), .*?max_running_requests=(?P<max_running_requests>@),",
        ),
        whole=True,
    ),
    replace(message("max_total_num_tokens=", r"chunked_prefill_size=(?P<chunked_prefill_size>-?\d{1,12})"), whole=True),
    replace(message("max_total_num_tokens=", r"context_len=(?P<max_model_len>\d{1,12})"), whole=True),
    replace(message("max_total_num_tokens=", r"available_gpu_mem=(?P<avail_after>@) ?GB"), whole=True),
    replace(message("is fired up and ready to roll"), ready=True),
)
REASONS: Final[Mapping[str, str]] = {
    "Not enough memory. Please try to increase --mem-fraction-static": (
        "weights leave nothing for the cache within --mem-fraction-static"
    ),
    "leave no GPU memory for the KV cache": "weights leave nothing for the cache within --mem-fraction-static",
    "Capture cuda graph failed": "what --mem-fraction-static leaves does not hold the CUDA graphs",
}
NAMES: Final[Mapping[str, str]] = {
    "model_path": "model",
    "dtype": "dtype",
    "quantization": "quantization",
    "kv_cache_dtype": "kv_cache_dtype",
    "context_length": "max_model_len",
    "mem_fraction_static": "mem_fraction_static",
    "max_running_requests": "max_running_requests",
    "chunked_prefill_size": "chunked_prefill_size",
    "page_size": "page_size",
    "tp_size": "tensor_parallel_size",
    "pp_size": "pipeline_parallel_size",
    "dp_size": "data_parallel_size",
    "ep_size": "expert_parallel_size",
    "enable_dp_attention": "enable_dp_attention",
    "swa_full_tokens_ratio": "swa_full_tokens_ratio",
    "mamba_full_memory_ratio": "mamba_full_memory_ratio",
    "max_mamba_cache_size": "max_mamba_cache_size",
    "speculative_algorithm": "speculative_method",
    "speculative_num_draft_tokens": "num_speculative_tokens",
    "disable_cuda_graph": "enforce_eager",
}


def summed_up(terms: Mapping[str, Logged]) -> dict[str, Logged]:
    """What the lines leave to add: kv = K + V, or the pools of window and full layers; mamba = conv + ssm. [B]"""
    every = dict(terms)
    for prefix in ("", "draft_"):
        _add(every, prefix + "kv", prefix + "k", prefix + "v")
        _add(every, prefix + "mamba", prefix + "conv_state", prefix + "ssm_state")
        if (pool := every.pop(prefix + "swa_pool", None)) is not None:
            # the lines of both pools come before, and are parts of it
            every[prefix + "kv"] = replace(pool, name=prefix + "kv")
            every.pop(prefix + "k", None)
            every.pop(prefix + "v", None)
        counts = [every.pop(prefix + name, None) for name in ("total_tokens", "full_tokens", "pool_tokens")]
        if (tokens := next(filter(None, counts), None)) is not None:
            every[prefix + "tokens"] = replace(tokens, name=prefix + "tokens")
    return every


def _add(terms: dict[str, Logged], name: str, first: str, second: str) -> None:
    one, other = terms.get(first), terms.get(second)
    if one is None or other is None or name in terms:
        return
    terms[name] = replace(
        one,
        name=name,
        value=one.value + other.value,
        low=one.low + other.low,
        high=one.high + other.high,
        step=one.step + other.step,
    )


SGLANG: Final = Dialect(
    engine="sglang",
    messages=(
        Message("ServerArgs(", re.compile(r"server_args=ServerArgs\("), opens="anew"),
        Message("sglang", re.compile(r"\bsglang(?:[ =:]+|\[[\w,]+\]==)v?(?P<version>\d{1,4}\.\d[\w.+]{0,40})")),
        *WEIGHTS,
        *CACHE,
        *GRAPHS,
        *LAST,
        *(Message(words, re.compile(re.escape(words)), failure=why) for words, why in REASONS.items()),
    ),
    config=("server_args=ServerArgs(",),
    names=NAMES,
    shown="KV Cache is allocated",
    summed_up=summed_up,
)
