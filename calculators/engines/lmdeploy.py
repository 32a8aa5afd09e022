"""LMDeploy's TurboMind: a share of what is free once weights are loaded; buffers must fit in the rest."""

from __future__ import annotations

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
from roofcast.calculators.engines.terms import GIB
from roofcast.calculators.engines.vllm_versions import parse_version

if TYPE_CHECKING:
    from collections.abc import Mapping

    from roofcast.calculators.answer import Remarks
    from roofcast.calculators.engines.terms import EngineMemory, EngineTerm, Served

NEWEST: Final = "0.10"
BLOCK: Final = 64  # cache_block_seq_len [token]
STEP: Final = 8192  # max_prefill_token_num [token]
# since -> cache_max_entry_count. Source: InternLM/lmdeploy#1053, lmdeploy/messages.py
SHARE: Final = (((0,), 0.5), ((0, 2, 3), 0.8))


def answer(served: Served, given: Mapping[str, float]) -> EngineMemory:
    """kv = s (visible - context - weights), in blocks of 64 tokens; s is 0.8 unless given.

    Activations are not profiled: they must fit in the other 1 - s, which is checked and warned of.

    Args:
        served: the model on its machine, and the engine's flags.
        given: bytes that a log states and that replace the prediction: visible, weights, free, kv. [B]
    """
    ready, flags = served.ready, served.flags
    default = rules_of(SHARE, parse_version(flags.engine_version) if flags.engine_version else None)
    share = portion("--cache-max-entry-count", flags.cache_max_entry_count, default)
    before = (context_term(ready), weights_term(ready, given))
    block, step = flags.block_size or BLOCK, flags.max_num_batched_tokens or STEP
    left = (1 - share) * (visible_term(ready, given).bytes - sum(term.bytes for term in before))
    plan = Leftover(
        engine="lmdeploy",
        version=flags.engine_version or NEWEST,
        share=share,
        outside=0.0,
        before=before,
        block=block,
        each=token_bytes(ready),
        asked=flags.session_len,
        said=_said(served, share, activation_term(ready, step, 1), left),
    )
    return cache_of(served, given, plan)


def _said(served: Served, share: float, step: EngineTerm, left: float) -> Remarks:
    """What is assumed, and whether a forward pass fits beside the cache."""
    flags = served.flags
    return remarks(
        [
            None if flags.engine_version else f"LMDeploy {NEWEST}, TurboMind: the newest whose rules are known",
            None if flags.cache_max_entry_count else f"--cache-max-entry-count {share:g}, its default",
            None if flags.block_size else f"blocks of {BLOCK} tokens, its default",
            "CUDA context and NCCL are assumed",
        ],
        [
            f"a forward pass takes about {step.bytes / GIB:.2f} GiB and the cache leaves {max(0.0, left) / GIB:.2f} GiB"
            if step.bytes > left
            else None
        ],
    )
