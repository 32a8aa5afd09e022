"""Terms of `fit` with a serving engine: what each is, and the functions of the engines that count it."""

from __future__ import annotations

from typing import Final

_ENGINES: Final = "roofcast.calculators.engines"
# terms of `fit` with an engine -> what they are there, and the functions that count them, of all engines that have them
SERVED: Final[dict[str, tuple[str, tuple[str, ...]]]] = {
    "visible": ("Memory of one device as programs see it, before anything is loaded.", ("device.visible_term",)),
    "budget": (
        "What an engine lets itself use: visible x --gpu-memory-utilization in vLLM. [B]",
        ("vllm.answer", "leftover.cache_of"),
    ),
    "weight_bytes": (
        "Weights of one device, and what the engine makes of them as it loads: stored + tables + copies + padding.",
        ("vllm_weights.held_weights", "leftover.weights_term", "llama_cpp_buffers.weight_term"),
    ),
    "activation": (
        "The peak of the step that is profiled before the cache has its size.",
        (
            "activations.profile_peak",
            "activations.forward_bytes",
            "activations.workspace_bytes",
            "activations.sampler_bytes",
            "activations.sparse_bytes",
            "activations.pictures_bytes",
            "leftover.activation_term",
        ),
    ),
    "forward_bytes": ("Of an activation peak, the layers' part.", ("activations.forward_bytes",)),
    "sampler_bytes": ("Of an activation peak, the sampler's part.", ("activations.sampler_bytes",)),
    "workspace_bytes": ("Of an activation peak, the routed experts' part.", ("activations.workspace_bytes",)),
    "non_torch": (
        "What a profile finds beside PyTorch's memory: kernels + NCCL, as logs show it for one device and for several. [B]",
        ("vllm_terms._non_torch",),
    ),
    "cuda_graphs": (
        "What is taken off the cache for CUDA graphs, which are captured after it.",
        ("vllm_terms.graph_estimate", "vllm_terms.captured_sizes"),
    ),
    "kv": (
        "The cache of one device. [B]",
        ("vllm.answer", "sglang.answer", "tensorrt_llm.answer", "tgi.answer", "lmdeploy.answer"),
    ),
    "block_tokens": (
        (
            "Tokens of a block: 16, or what a kernel asks for; beside recurrent states A x ceil(s / (A a)), with A these "
            "16 (64 beside MLA), s the bytes of a state and a those of a token in the layer that keeps most. [token]"
        ),
        ("vllm_layout._block", "kv_groups.arrange"),
    ),
    "groups": (
        "Layers that draw blocks together: ceil(layers / g) groups of a type, ceil(layers / g) x g - layers padding. [-]",
        ("kv_groups.arrange",),
    ),
    "page_bytes": (
        "Bytes of a block in one layer, block x bytes of a token, equal in all groups. [B]",
        ("kv_specs.layer_keeps", "kv_groups.arrange"),
    ),
    "blocks": (
        "Blocks of the pool, of one device.",
        ("kv_groups.Layout.blocks", "sglang_pools.hold", "leftover.cache_of"),
    ),
    "blocks_per_request": (
        "Blocks that the longest request takes, over all groups.",
        ("kv_groups.Layout.request_blocks",),
    ),
    "kv_tokens": (
        "Tokens as the engine's log prints them, of one replica.",
        ("vllm_layout.printed_tokens", "sglang_pools.hold", "leftover.cache_of", "llama_cpp_cache.share_out"),
    ),
    "token_bytes": (
        "What a token takes on one device in the engine's own layout.",
        ("kv_specs.layer_keeps", "sglang_pools.read_cells", "leftover.token_bytes", "llama_cpp_cache.row_bytes"),
    ),
    "max_concurrency": (
        "Requests of the longest length at once, as printed: blocks / blocks_per_request.",
        ("kv_groups.Layout.concurrency",),
    ),
    "max_sequences": (
        "Requests of a length that fit at once, of all replicas. [-]",
        (
            "kv_groups.PagedRoom.sequences",
            "sglang_pools.Pools.sequences",
            "leftover.Blocks.sequences",
            "llama_cpp.SlotRoom.sequences",
        ),
    ),
    "kv_bytes_per_sequence": (
        "What one request takes on one device: whole blocks x their bytes.",
        (
            "kv_groups.PagedRoom.sequence_bytes",
            "sglang_pools.Pools.sequence_bytes",
            "leftover.Blocks.sequence_bytes",
            "llama_cpp.SlotRoom.sequence_bytes",
        ),
    ),
    "context": ("What is gone before weights are loaded.", ("leftover.context_term",)),
    "reserve": (
        "What SGLang leaves to activations and CUDA graphs: (1 - mem_fraction_static) x free. [B]",
        ("sglang_defaults.static_share", "sglang.answer"),
    ),
    "states": ("Slots of recurrent states in SGLang, R / (1 + R) of what is left. [B]", ("sglang_pools.fill",)),
    "state": ("Recurrent states in llama.cpp.", ("llama_cpp_cache.state_parts",)),
    "window_cells": ("Cells of window layers in llama.cpp.", ("llama_cpp_cache.window_cells",)),
    "compute_buffer": ("llama.cpp's buffer of activations.", ("llama_cpp_buffers.compute_term",)),
    "interval": (
        "Ends of 80 % intervals: each term by its own spread, sums by the root of the sum of squares.",
        ("terms.spread", "terms.together"),
    ),
}


def place_of(name: str) -> tuple[str, str]:
    """Module and name of a function of the engines.

    >>> place_of("kv_groups.Layout.blocks")
    ('roofcast.calculators.engines.kv_groups', 'Layout.blocks')
    """
    module, _, path = name.partition(".")
    return f"{_ENGINES}.{module}", path
