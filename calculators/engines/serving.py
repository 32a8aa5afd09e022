"""A model put on a machine as an engine would load it: its quantisation, its dtype, its draft layers."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from roofcast.calculators.answer import Remarks, remarks
from roofcast.calculators.deployment import Deployment, prepare
from roofcast.calculators.engines.support import LEAST, check_capability, check_device, falls_back
from roofcast.calculators.engines.terms import Served
from roofcast.calculators.errors import UsageError
from roofcast.modelspec.formats import FORMATS

if TYPE_CHECKING:
    from roofcast.calculators.engines.flags import Flags
    from roofcast.modelspec.model import Model

# methods that name kernels of a quantised checkpoint
METHODS: Final = frozenset((
    "awq", "awq_marlin", "auto-round", "bitsandbytes", "compressed-tensors", "fbgemm_fp8", "fp8", "gguf", "gptq", "gptq_marlin",
    "modelopt", "modelopt_fp4", "moe_wna16", "mxfp4", "nvfp4", "petit_nvfp4", "quark", "torchao",
))  # fmt: skip
__all__ = ["LEAST", "check_capability", "serve", "with_draft"]

#: Engines that convert a checkpoint in fp32 to 16 bits unless a dtype is asked.
HALVING: Final = frozenset({"vllm", "sglang", "tgi", "lmdeploy", "tensorrt-llm"})


def serve(model: Model, deployment: Deployment, flags: Flags, *, kv_asked: bool = False) -> tuple[Served, Remarks]:
    """A model on a machine as an engine loads it, and what was taken for granted.

    Args:
        model: as its checkpoint has it.
        deployment: the machine and the formats.
        flags: of the engine.
        kv_asked: whether the cache's format was asked for, and --dtype leaves it alone.

    Raises:
        UsageError: a format the device cannot run, a quantisation that the engine does not make, sizes that do not
            divide.
    """
    check_device(deployment)
    loaded, drafts = with_draft(model, flags.num_speculative_tokens)
    loaded, said = _quantised(loaded, flags, deployment)
    deployment = _with_dtype(loaded, deployment, flags, kv_asked=kv_asked)
    check_capability(loaded, deployment, flags)
    if falls_back(loaded, deployment, flags):
        deployment = replace(deployment, kv=FORMATS["fp16"] if deployment.kv.name == "bf16" else deployment.kv)
        said += remarks([f"{deployment.accelerator.id} has no bf16 kernels: {deployment.engine} falls back to fp16"])
    if flags.dtype is None and _halved(loaded, deployment):
        deployment = replace(deployment, weights=FORMATS["bf16"])
        said += remarks(
            [f"{model.name}: its weights in fp32 are loaded in 16 bits, the default; --dtype fp32 keeps them"]
        )
    return Served(prepare(loaded, deployment), flags), drafts + said


def with_draft(model: Model, drafted: int | None) -> tuple[Model, Remarks]:
    """The model with its draft layers in the pool, where tokens are drafted.

    Layers of multi-token prediction where the model has any; else one layer like its last, as an EAGLE head has, with
    the projection of 2 h to h.
    """
    spec = model.spec
    if not drafted or (spec.drafting and spec.draft):
        return model, Remarks()
    if spec.mtp_layers:
        return replace(model, spec=replace(spec, drafting=True)), Remarks()
    last = spec.layers[-1]
    head = last.parameters(spec.hidden) + 2 * spec.hidden * spec.hidden
    drafting = replace(spec, draft=(last,), draft_parameters=head, drafting=True)
    text = (
        f"{model.name}: it has no draft layers of its own; one layer like its last is taken, as an EAGLE head has "
        f"({head / 1e9:.2f}B parameters); n-gram drafting would add none"
    )
    return replace(model, spec=drafting), remarks([text])


def _quantised(model: Model, flags: Flags, deployment: Deployment) -> tuple[Model, Remarks]:
    """The model quantised on load, where a flag asks for it and its checkpoint is plain."""
    from roofcast.modelspec.requantized import ON_LOAD, requantized  # noqa: PLC0415 - few calls quantise

    method = flags.quantization and flags.quantization.lower()
    if method is None:
        return model, Remarks()
    if deployment.weights is not None:
        raise UsageError(f"--quantization {method} and --weights both say how weights are stored; give one of them")
    own = model.spec.quantization
    if own is not None and method not in METHODS:
        raise UsageError(f"--quantization {method}: no such method; known: {', '.join(sorted(METHODS))}")
    if own is not None:
        note = f"{model.name}: its checkpoint is stored as {own}; --quantization {method} names its kernels and changes no bytes"
        return model, remarks(notes=[note])
    if method not in ON_LOAD:
        raise UsageError(
            f"--quantization {method}: {model.name} is stored plainly, and only {', '.join(ON_LOAD)} quantise on load; "
            f"--weights {method} counts all its parameters in a format"
        )
    return requantized(model, method), remarks(
        notes=[f"{model.name}: linear layers in {method}, quantised as it loads"]
    )


def _with_dtype(model: Model, deployment: Deployment, flags: Flags, *, kv_asked: bool) -> Deployment:
    """Weights and cache in the dtype that was asked; a cache that was asked in a format of its own stays."""
    if flags.dtype is None:
        return deployment
    asked = FORMATS[flags.dtype]
    plain = model.spec.quantization is None and deployment.weights is None
    kv = deployment.kv if kv_asked or deployment.kv.bits < FORMATS["bf16"].bits else asked
    return replace(deployment, weights=asked if plain and asked.name != model.spec.dtype else deployment.weights, kv=kv)


def _halved(model: Model, deployment: Deployment) -> bool:
    spec = model.spec
    stated = spec.dtype == "fp32" and spec.quantization is None
    return stated and deployment.weights is None and deployment.engine in HALVING
