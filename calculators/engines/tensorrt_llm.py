"""TensorRT-LLM: a share of what is free once the engine and its buffers are loaded."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from roofcast.calculators.answer import remarks
from roofcast.calculators.engines.leftover import (
    Leftover,
    activation_term,
    cache_of,
    context_term,
    portion,
    rules_of,
    token_bytes,
    weights_term,
)
from roofcast.calculators.engines.vllm_versions import parse_version

if TYPE_CHECKING:
    from collections.abc import Mapping

    from roofcast.calculators.engines.terms import EngineMemory, Served

NEWEST: Final = "1.0"
SHARE_FLAG: Final = "--kv-cache-free-gpu-mem-fraction"
FREE_SHARE: Final = 0.9  # kv_cache_free_gpu_mem_fraction


@dataclass(frozen=True, slots=True)
class Defaults:
    """What a version starts with.

    Args:
        block: tokens of a block. [token]
        step: tokens of a step. [token]
        requests: of a step.
        rounds_up: whether a started block counts.
    """

    block: int
    step: int
    requests: int
    rounds_up: bool


# since -> defaults. Source: tokens_per_block and trtllm-build's max_num_tokens and max_batch_size of these versions;
# until 0.2x blocks are ceil(tokens / block): 70.48 GiB free x 0.9 = 4,060 blocks of 16 MiB in NVIDIA's memory guide
DEFAULTS: Final = (
    ((0,), Defaults(64, 2048, 256, rounds_up=True)),
    ((0, 11), Defaults(64, 8192, 2048, rounds_up=True)),
    ((0, 17), Defaults(32, 8192, 2048, rounds_up=True)),
    ((1, 0), Defaults(32, 8192, 2048, rounds_up=False)),
)


def answer(served: Served, given: Mapping[str, float]) -> EngineMemory:
    """kv = f (visible - context - weights - activations), tokens in whole blocks; f is 0.9 unless given.

    Args:
        served: the model on its machine, and the engine's flags.
        given: bytes that a log states and that replace the prediction: visible, weights, free, kv. [B]
    """
    ready, flags = served.ready, served.flags
    defaults = rules_of(DEFAULTS, parse_version(flags.engine_version) if flags.engine_version else None)
    step, requests = flags.max_num_batched_tokens or defaults.step, flags.max_num_seqs or defaults.requests
    block = flags.block_size or defaults.block
    share = portion(SHARE_FLAG, flags.kv_cache_free_gpu_mem_fraction, FREE_SHARE)
    before = (context_term(ready), weights_term(ready, given), activation_term(ready, step, requests))
    said = remarks([
        None if flags.engine_version else f"TensorRT-LLM {NEWEST}: the newest whose rules are known",
        None if flags.kv_cache_free_gpu_mem_fraction else f"{SHARE_FLAG} {FREE_SHARE:g}, its default",
        None if flags.block_size else f"blocks of {block} tokens, the default of this version",
        None if flags.max_num_batched_tokens else f"--max-num-batched-tokens {step:,}, the default of this version",
        None if flags.max_num_seqs else f"--max-num-seqs {requests:,}, the default of this version",
        "CUDA context, NCCL and activation buffers are assumed, not read from a build",
    ])  # fmt: skip
    plan = Leftover(
        engine="tensorrt-llm",
        version=flags.engine_version or NEWEST,
        share=share,
        outside=0.0,
        before=before,
        block=block,
        each=token_bytes(ready),
        rounds_up=defaults.rounds_up,
        asked=flags.max_model_len,
        most=requests,
        said=said,
    )
    return cache_of(served, given, plan)
