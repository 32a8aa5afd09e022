"""Another model that drafts: its deployment beside the target's, and whether it speaks the target's tokens."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from roofcast.calculators.deployment import prepare
from roofcast.calculators.drafts import MODEL, Drafter, Pass
from roofcast.calculators.errors import UsageError

if TYPE_CHECKING:
    from roofcast.calculators.deployment import Ready
    from roofcast.modelspec.model import Model
    from roofcast.modelspec.requested import Requested

PADDED: Final = (
    128  # rows. Source: llama.cpp, SPEC_VOCAB_MAX_SIZE_DIFFERENCE; vLLM, config/speculative.py asks for none
)


def draft_model(target: Ready, model: Model, weights: Requested | None, tp: int | None) -> Drafter:
    """Another, smaller model drafts: k decode steps of it a round, on the target's devices.

    Its heads are split as the target's are, or as `tp` says; where they do not divide, one device of each group has it
    whole. Replicas are the same.

    Raises:
        UsageError: another vocabulary than the target's, or heads that do not divide as asked.
    """
    said = check_vocabulary(target.model, model)
    shards = target.deployment.shards
    if tp is not None and shards.tp % tp:
        raise UsageError(f"--draft-tp {tp}: the model has {shards.tp} GPUs a replica; it must divide that")
    ready = _split(target, model, weights, tp)
    alone = ready.deployment.shards.tp != (tp or shards.tp)
    return Drafter(
        method=MODEL,
        name=model.name,
        passes=lambda shape: (Pass(ready, shape.beside, shape.drafted),),
        parameters=model.parameters.value,
        bytes=ready.weight_bytes,
        kept=ready,
        assumptions=(f"{model.name} cannot be split over {shards.tp} GPUs: one of each group has it whole",) * alone,
        notes=(said,),
    )


def _split(target: Ready, model: Model, weights: Requested | None, tp: int | None) -> Ready:
    """A draft over as many devices as asked, or as the target, or over one where its heads do not divide."""
    shards = target.deployment.shards

    def over(devices: int) -> Ready:
        own = replace(shards, tp=devices, ep=1)
        return prepare(model, replace(target.deployment, weights=weights, shards=own))

    try:
        return over(tp or shards.tp)
    except UsageError as error:
        if tp is not None:
            raise UsageError(f"--draft-tp {tp}: {model.name}: {error}") from error
        if shards.tp == 1:
            raise
    return over(1)


def check_vocabulary(target: Model, draft: Model) -> str:
    """Refuses a draft whose tokens are not the target's; what to know of one whose rows are padded otherwise.

    Raises:
        UsageError: naming both vocabularies.
    """
    ours, theirs = target.spec.vocab, draft.spec.vocab
    if abs(ours - theirs) > PADDED:
        raise UsageError(
            f"{draft.name} has a vocabulary of {theirs:,} tokens, {target.name} one of {ours:,}: a draft must speak the "
            f"target's tokens; name a smaller model of the same family"
        )
    if ours == theirs:
        return f"{draft.name} and {target.name} both have {ours:,} tokens; that they are the same ones is not checked"
    return (
        f"{draft.name} has {theirs:,} rows and {target.name} {ours:,}: llama.cpp takes up to {PADDED} of padding, vLLM asks "
        f"for as many"
    )
