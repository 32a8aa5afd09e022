"""Weights as vLLM holds them on one device: a stage's layers, towers, tables that it makes, and the allocator's rest."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from roofcast.calculators.engines.terms import GIB
from roofcast.modelspec.latent import LatentAttention
from roofcast.modelspec.nested import text_block

if TYPE_CHECKING:
    from collections.abc import Mapping

    from roofcast.calculators.deployment import Ready
    from roofcast.modelspec.layers import Layer

MIB: Final = float(1 << 20)
LARGE: Final = 10 * MIB  # allocations from here on take segments of their own, of whole 2 MiB
AXES: Final = 4  # rows a position where it has several axes: vLLM, rotary_embedding/mrope.py
SEGMENT: Final = 2 * MIB
SPLIT: Final = 1 * MIB  # what is left of a segment counts as allocated up to here
SIGMA: Final = 0.02 * GIB  # of plain weights [B]
SIGMA_SHARE: Final = 0.004  # of quantised ones, whose padding and scales differ by kernel [-]
PADDED: Final = 256  # width that experts' kernels of 4-bit weights are padded to
PADDED_SIGMA: Final = 0.3  # of what that adds [-]
MOST_SCALES: Final = 1.07  # bytes of packed weights with their scales over those without: MXFP4's 17/16
SIGMA_TOWER: Final = 0.5  # of a tower: some are split over devices, others held whole [-]


@dataclass(frozen=True, slots=True)
class Stage:
    """One stage of a pipeline.

    Args:
        layers: how many of the model's it has.
        first, last: whether it has the embedding, and the head.
    """

    layers: int
    first: bool
    last: bool


@dataclass(frozen=True, slots=True)
class HeldWeights:
    """Weights on one device.

    Args:
        bytes: of all of them. [B]
        sigma: standard deviation. [B]
        parts: what they sum from. [B]
    """

    bytes: float
    sigma: float
    parts: Mapping[str, float]


def stages_of(layers: int, pp: int) -> tuple[Stage, ...]:
    """Layers of each stage: L // p, and one more in the last but one, the one before it, and so on, as many as remain.

    Source: vLLM, distributed/utils.py, get_pp_indices.

    >>> [stage.layers for stage in stages_of(61, 4)]
    [15, 15, 16, 15]
    """
    counts = [layers // pp] * pp
    for step in range(2, layers % pp + 2):
        counts[-step] += 1
    return tuple(Stage(count, n == 0, n == pp - 1) for n, count in enumerate(counts))


def held_weights(ready: Ready, stage: Stage) -> HeldWeights:
    """Weights of a stage on one of its devices, as `Model loading took` prints them. [B]

    Layers by their share, embedding and head where it has them; towers; cos and sin of RoPE for every position; of MLA
    the two halves of kv_b_proj once more, as it multiplies them in decoding; and what the allocator counts beyond a
    tensor: from 10 MiB on memory comes in segments of 2 MiB, whose rest counts where it is 1 MiB at most.

    Source: PyTorch, c10/cuda/CUDACachingAllocator.cpp; vLLM, rotary_embedding and mla/common; 29 of 33 logs of
    https://github.com/jgchn/llm-d-planner, accuracy/results/v0.19.0, within 0.02 GiB.
    """
    program, spec = ready.program, ready.model.spec
    head = program.head.bytes * (not spec.tied)
    layers = program.resident - program.tables - head
    share = stage.layers / len(spec.active_layers)
    ends = program.tables * (stage.first or (stage.last and spec.tied)) + head * stage.last
    parts = {"layers": layers * share, "embedding and head": ends}
    parts["draft projection"] = draft_projection(ready) * stage.last
    parts["towers"] = towers_bytes(ready) * stage.first
    parts["RoPE tables"] = rope_bytes(ready)
    parts["MLA halves"] = latent_halves(ready) * share
    parts["padded experts"] = padded_experts(ready) * share
    parts["allocator"] = allocator_rest(ready) * share
    total = sum(parts.values())
    packed = ready.storage.by_layer or ready.storage.plain.format not in {"bf16", "fp16", "fp32"}
    loose = PADDED_SIGMA * parts["padded experts"] + parts["towers"] * SIGMA_TOWER * (ready.deployment.shards.tp > 1)
    return HeldWeights(total, SIGMA + total * SIGMA_SHARE * packed + loose, {k: v for k, v in parts.items() if v})


def towers_bytes(ready: Ready) -> float:
    """What stands beside the decoder, stored plainly and split over devices. [B]"""
    each = 2.0 if ready.storage.by_layer else ready.storage.plain.bytes
    return sum(tower.parameters for tower in ready.model.spec.towers) * each / ready.deployment.shards.tp


def draft_projection(ready: Ready) -> float:
    """What joins draft layers to the decoder: a projection of 2 h to h and norms, stored plainly and held whole. [B]"""
    spec = ready.model.spec
    if not spec.drafting:
        return 0.0
    joined = spec.draft_parameters - sum(layer.parameters(spec.hidden) for layer in spec.draft)
    return max(0, joined) * 2.0


def rope_bytes(ready: Ready) -> float:
    """Cosines and sines of every position, one table for all layers that rotate alike: rows x rotated width x 2 B. [B]

    Rows are the positions that the config allows, times the factor of linear scaling, times 4 where position has several
    axes (mRoPE); layers with a base frequency of their own (`rope_local_base_freq`) have a table that is not scaled.

    >>> from roofcast.calculators.deployment import Deployment, prepare
    >>> from roofcast.hwdb.lookup import find_accelerator
    >>> from roofcast.modelspec.formats import FORMATS
    >>> from roofcast.modelspec.model import load_model
    >>> from roofcast.modelspec.source import resolve
    >>> gpu = find_accelerator("h100-sxm").accelerator
    >>> rope_bytes(prepare(load_model(resolve("llama-3.1-8b")), Deployment(gpu, FORMATS["bf16"]))) / MIB  # 131,072 x 128
    32.0
    """
    spec, config = ready.model.spec, ready.model.config
    text = text_block(config) or config
    scaling = _rope(text)
    rows = (spec.max_context or 0) * (AXES if "mrope_section" in scaling else 1)
    linear = scaling.get("rope_type", scaling.get("type")) == "linear"
    factor = float(scaling.get("factor", 1.0)) if linear else 1.0
    local = "rope_local_base_freq" in text or (
        linear and any(layer.mixers and _windowed(layer) for layer in spec.layers)
    )
    share = float(scaling.get("partial_rotary_factor") or text.get("partial_rotary_factor") or 1.0)
    tables = {
        (_rotated(mixer) * share, 1.0 if local and getattr(mixer, "window", None) else factor)
        for layer in spec.layer_counts
        for mixer in layer.mixers
    }
    return sum(rows * width * scaled * 2.0 for width, scaled in tables)


def _rope(text: Mapping[str, Any]) -> Mapping[str, Any]:
    """How positions are rotated, as the config says it."""
    for key in ("rope_parameters", "rope_scaling"):
        block = text.get(key)
        if isinstance(block, dict):
            return block
    return {}


def _windowed(layer: Layer) -> bool:
    return any(getattr(mixer, "window", None) for mixer in layer.mixers)


def _rotated(mixer: object) -> int:
    """Width that RoPE rotates in a layer; 0 of one without positions."""
    if isinstance(mixer, LatentAttention):
        return mixer.qk_rope_head_dim
    return int(getattr(mixer, "head_dim", 0)) if getattr(mixer, "kv_heads", 0) else 0


def latent_halves(ready: Ready) -> float:
    """The halves of kv_b_proj that vLLM makes for decoding, in 16 bits: n d_c (d_nope + d_v) 2 / tp a layer. [B]"""
    total = 0.0
    for layer, count in ready.model.spec.layer_counts.items():
        for mixer in layer.mixers:
            if isinstance(mixer, LatentAttention) and mixer.stores:
                widths = mixer.qk_nope_head_dim + mixer.value_head_dim
                total += count * mixer.query_heads * mixer.kv_lora_rank * widths * 2.0
    return total / ready.deployment.shards.tp


def allocator_rest(ready: Ready) -> float:
    """What the caching allocator counts beyond the layers' tensors, fused as the engine fuses them. [B]

    Measured with PyTorch 2.11 on an H200, in MiB, beside the rule: Qwen2.5-7B 57.4 and 57.0 (21.9 and 21.5 on one of two
    devices), Phi-4 80.8 and 80.0, Gemma 3 12B 48.7 and 48.0, Llama 3.1 8B 0.5 and 0.
    """
    dense = sum(count * rest_of(part.bytes) for part, count in ready.program.dense)
    routed = sum(count * rest_of(part.bytes * part.moe.experts * part.experts) for part, count in ready.program.routed)
    return dense + routed


def padded_experts(ready: Ready) -> float:
    """What kernels of MXFP4 experts add: their weights, not their scales, over widths of whole 256. [B]

    Source: vLLM, mxfp4 experts; gpt-oss-120b takes 64.38 GiB so (Triton), 65.97 where both widths are padded (Marlin),
    vllm-project/vllm issues 33155 and 23278.
    """
    total = 0.0
    for part, count in ready.program.routed:
        packed = part.elements / 2  # 4 bits each
        if not packed < part.bytes < packed * MOST_SCALES:
            continue
        inner = part.moe.expert.intermediate / ready.deployment.shards.expert_slices
        more = -(-inner // PADDED) * PADDED / inner - 1
        total += count * packed * more * part.moe.experts * part.experts
    return total


def rest_of(size: float) -> float:
    """What one allocation counts beyond its size: up to 1 MiB of the rest of its last 2 MiB. [B]

    >>> rest_of(350 * MIB) / MIB, rest_of(175 * MIB) / MIB, rest_of(24.5 * MIB) / MIB  # 1.5 MiB are split off
    (0.0, 1.0, 0.0)
    """
    if size < LARGE:
        return 0.0
    rest = -size % SEGMENT
    return rest if rest <= SPLIT else 0.0
