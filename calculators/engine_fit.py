"""The answer of `fit` with an engine: its budget term by term, its cache, and how many requests fit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from roofcast.calculators.answer import Remarks, remarks
from roofcast.calculators.cache import kv_bytes_per_token, whole
from roofcast.calculators.engines.flags import option
from roofcast.calculators.engines.registry import engine_memory
from roofcast.calculators.fit import FitContext, FitMemory, FitResult
from roofcast.calculators.flops import attention_share, crossover_tokens, prefill_flops
from roofcast.calculators.remarks import contexts_of, model_remarks

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from roofcast.calculators.engines.terms import EngineMemory, Served

# terms of an answer that are no overhead: what there is, weights, activations and the cache
NO_OVERHEAD: Final = frozenset({"visible", "budget", "free", "left", "weights", "activation", "compute_buffer", "kv"})


def fit_engine(
    served: Served, asked: Sequence[int] | None, also: Collection[int] = ()
) -> tuple[FitResult, EngineMemory, Remarks]:
    """Answers `fit` with an engine.

    Args:
        served: model, machine and flags.
        asked: contexts; None is 4,096 and 32,768 as far as the server goes, and its longest request.
        also: contexts that are answered beside them.

    Raises:
        UsageError: flags that the engine refuses.
        UnansweredError: the weights' bytes are not known.
    """
    ready = served.ready
    model, spec, tp = ready.model, ready.model.spec, ready.deployment.shards.tp
    memory = engine_memory(ready.deployment.engine, served)
    contexts = sorted({*_contexts(served, memory, asked), *also})
    rows = [_context(served, memory, context) for context in contexts]
    fits = memory.reason is None and all(row.max_sequences >= 1 for row in rows)
    low, high = memory.tokens[1:] if memory.tokens else (None, None)
    result = FitResult(
        model=model.name,
        gpu=ready.deployment.accelerator.id,
        gpus=ready.deployment.shards.devices,
        fits=fits,
        reason=None if fits else _reason(memory, rows),
        memory=_memory(memory),
        kv_bytes_per_token=whole(memory.token_bytes or kv_bytes_per_token(spec, ready.deployment.kv, tp)),
        kv_tokens=memory.tokens[0] if memory.tokens else None,
        kv_tokens_low=low,
        kv_tokens_high=high,
        blocks=memory.blocks,
        max_concurrency=memory.concurrency,
        contexts=rows,
        non_embedding_parameters=spec.non_embedding_parameters,
        crossover_tokens=crossover_tokens(spec),
        requirements=[],
        provenance={term.name: term.provenance for term in memory.terms} | {"architecture": model.facts},
        engine=memory.engine,
        engine_version=memory.version,
        terms=list(memory.terms),
        block_tokens=memory.block_tokens,
        groups=list(memory.groups),
        longest_request=memory.longest,
    )
    wanted = contexts if asked or also else None
    said = model_remarks(model, ready.deployment.weights, wanted, files=False) + memory.said + _replicas(served)
    return result, memory, said + _beyond(served)


def _contexts(served: Served, memory: EngineMemory, asked: Sequence[int] | None) -> tuple[int, ...]:
    """Contexts asked; by default those of the model as far as the server's longest request, and that one."""
    if asked:
        return tuple(asked)
    longest = max(1, memory.longest)
    usual = (context for context in contexts_of(served.ready.model, None) if context < longest)
    return (*usual, longest)


def _memory(memory: EngineMemory) -> FitMemory:
    sizes = {term.name: term.bytes for term in memory.terms}
    activations = sizes.get("activation", 0.0) + sizes.get("compute_buffer", 0.0)
    return FitMemory(
        total_bytes=round(memory.visible),
        budget_bytes=round(memory.budget),
        weight_bytes=round(sizes["weights"]),
        activation_bytes=round(activations),
        overhead_bytes=round(sum(size for name, size in sizes.items() if name not in NO_OVERHEAD)),
        kv_bytes=round(memory.kv[0]),
        visible_bytes=round(memory.visible),
    )


def _context(served: Served, memory: EngineMemory, context: int) -> FitContext:
    spec, replicas = served.ready.model.spec, served.ready.deployment.shards.dp
    fitting = replicas * memory.sequences(context)
    return FitContext(
        context=context,
        kv_bytes_per_sequence=whole(memory.room.sequence_bytes(context)),
        max_sequences=fitting,
        max_sequences_visible=fitting,
        prefill_flops=whole(prefill_flops(spec, context)),
        attention_share=attention_share(spec, context),
    )


def _reason(memory: EngineMemory, rows: Sequence[FitContext]) -> str:
    """Why the server does not start, or which context it does not take."""
    if memory.reason is not None:
        return memory.reason
    short = next(row for row in rows if row.max_sequences < 1)
    if short.context > memory.longest:
        return f"{short.context:,} tokens are more than the longest request of this server, {memory.longest:,}"
    return (
        f"a request of {short.context:,} tokens takes {short.kv_bytes_per_sequence / 2**30:.2f} GiB of cache, "
        f"{memory.kv[0] / 2**30:.2f} are there"
    )


def _beyond(served: Served) -> Remarks:
    """A longest request that the model's config does not allow."""
    most, flags = served.ready.model.spec.max_context, served.flags
    asked = {name: getattr(flags, name) or 0 for name in ("max_model_len", "session_len")}
    name = max(asked, key=lambda each: asked[each])
    if most is None or asked[name] <= most:
        return Remarks()
    text = (
        f"{option(name)} {asked[name]:,} is more than the {most:,} that the config allows: engines refuse it unless the "
        "config's RoPE scaling is overridden"
    )
    return remarks(warnings=[text])


def _replicas(served: Served) -> Remarks:
    """Replicas have a cache each; the log of each prints its own."""
    replicas = served.ready.deployment.shards.dp
    text = f"--dp {replicas}: tokens and concurrency are of one replica, as each logs them; sequences are of all"
    return remarks(notes=[text if replicas > 1 else None])
