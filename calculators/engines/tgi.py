"""Text Generation Inference: what a warm-up prefill leaves free, less a margin of 5 %."""

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
    visible_term,
    weights_term,
)
from roofcast.calculators.engines.vllm_versions import parse_version

if TYPE_CHECKING:
    from collections.abc import Mapping

    from roofcast.calculators.engines.terms import EngineMemory, Served

NEWEST: Final = "3.0"
MARGIN: Final = 0.95  # share of free memory that becomes blocks (TGI_WIGGLE_ROOM)
PREFILL: Final = 4096  # --max-batch-prefill-tokens [token]


@dataclass(frozen=True, slots=True)
class Defaults:
    """What a version starts with.

    Args:
        block: tokens of a block, of its default attention. [token]
        fraction: share of the memory, --cuda-memory-fraction. [-]
    """

    block: int
    fraction: float


# since -> defaults: paged attention has blocks of 16; FlashInfer, the default since 2.3, of 1.
# Source: huggingface/text-generation-inference, server/text_generation_server/models/globals.py and launcher
DEFAULTS: Final = (((0,), Defaults(16, 1.0)), ((2, 3), Defaults(1, 1.0)))


def answer(served: Served, given: Mapping[str, float]) -> EngineMemory:
    """kv = 0.95 (visible - (1 - f) visible - context - weights - warm-up), tokens in whole blocks; f is 1 unless given.

    The warm-up is a prefill of --max-batch-prefill-tokens; its peak stays with the allocator. Its own blocks of cache
    are counted again in the pool, so that they cost nothing.

    Args:
        served: the model on its machine, and the engine's flags.
        given: bytes that a log states and that replace the prediction: visible, weights, free, kv. [B]
    """
    ready, flags = served.ready, served.flags
    defaults = rules_of(DEFAULTS, parse_version(flags.engine_version) if flags.engine_version else None)
    step = flags.max_batch_prefill_tokens or max(PREFILL, flags.max_model_len or 0)
    fraction = portion("--cuda-memory-fraction", flags.cuda_memory_fraction, defaults.fraction, all_of_it=True)
    before = (context_term(ready), weights_term(ready, given), activation_term(ready, step, 1))
    latent = any(hasattr(mixer, "kv_lora_rank") for layer in ready.model.spec.layer_counts for mixer in layer.mixers)
    said = remarks([
        None if flags.engine_version else f"TGI {NEWEST}: the newest whose rules are known",
        None if flags.cuda_memory_fraction else f"--cuda-memory-fraction {fraction:g}, its default",
        None if flags.max_batch_prefill_tokens else f"--max-batch-prefill-tokens {step:,}: {PREFILL:,} or the longest request",
        f"blocks of {defaults.block} tokens, of this version's default attention",
        "CUDA context, NCCL and the warm-up's activations are assumed",
        "MLA is taken as a latent; versions that keep whole keys and values hold fewer tokens" if latent else None,
    ])  # fmt: skip
    plan = Leftover(
        engine="tgi",
        version=flags.engine_version or NEWEST,
        share=MARGIN,
        outside=(1 - fraction) * visible_term(ready, given).bytes,
        before=before,
        block=defaults.block,
        each=token_bytes(ready),
        asked=flags.max_model_len,
        said=said,
    )
    return cache_of(served, given, plan)
