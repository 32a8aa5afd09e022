"""What a profiled step of an engine allocates at its peak: the widest layer, the sampler's rows, experts' results."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from roofcast.calculators.engines.terms import GIB
from roofcast.modelspec.ffn import MoeFeedForward
from roofcast.modelspec.formats import FORMATS
from roofcast.modelspec.latent import LatentAttention

if TYPE_CHECKING:
    from collections.abc import Mapping

    from roofcast.calculators.deployment import Ready
    from roofcast.modelspec.layers import Layer

# Hidden states that are alive beside the widest part of a layer: its input, the residual and its output.
STREAMS: Final = 3
FORWARD_REST: Final = 0.075 * GIB  # of a compiled forward pass beside them [B]
SAMPLER_REST: Final = 0.04 * GIB  # of sampling likewise [B]
CHUNK: Final = 32768  # tokens that experts work on at once [token]
# a dummy batch of pictures at their largest, kept while the profile runs: 32 of 3 x 896 x 896 in 16 bits [B]
PICTURES: Final = 0.144 * GIB
GATHERED: Final = (40, 5)  # requests of the longest length whose index keys, and latents, are gathered at once
TOWER_KEYS: Final = ("hidden_size", "intermediate_size", "patch_size")
LARGEST_PICTURE: Final = 16384  # tokens of a picture of any size [token]
SCORES: Final = 0.5 * GIB  # of index scores at once [B]


@dataclass(frozen=True, slots=True)
class Profiled:
    """A step that an engine profiles.

    Args:
        tokens: of the step, N. [token]
        rows: requests whose logits are sampled, S.
        row_bytes: bytes a logit takes while it is sampled, beyond its own in the activations' format. [B]
        width: bytes of an activation. [B]
        shared_workspace: whether experts' intermediate results stay allocated beside the sampler's.
        rest: of a forward pass beside its activations: index tensors, workspaces of matrix products. [B]
    """

    tokens: int
    rows: int
    row_bytes: float
    width: float = 2.0
    shared_workspace: bool = True
    rest: float = FORWARD_REST


def activation_width(ready: Ready) -> float:
    """Bytes of an activation. [B]"""
    return FORMATS[ready.formats.activations].bytes_per_element


def forward_bytes(ready: Ready, tokens: int, width: float | None = None, rest: float = FORWARD_REST) -> float:
    """What N tokens take at the widest place of a layer: N b (3 h + w) and a rest, 0.075 GiB where it is compiled. [B]

    w is the widest of a layer on one device: gate, up and their product, 3 I / tp, of gated feed-forwards, 2 I / tp of
    others; queries, keys, values and output of attention. Experts' results are `workspace_bytes`.

    Source: fitted to start-up logs of vLLM 0.19 (https://github.com/jgchn/llm-d-planner, accuracy/results/v0.19.0) and
    0.6.4 (https://github.com/vllm-project/vllm/issues/10517), within 0.05 GiB.
    """
    spec, tp = ready.model.spec, ready.deployment.shards.tp
    each = activation_width(ready) if width is None else width
    widest = max((_widest(layer, spec.hidden, tp) for layer in spec.layer_counts), default=0.0)
    return tokens * each * (STREAMS * spec.hidden + widest) + rest


def _widest(layer: Layer, hidden: int, tp: int) -> float:
    """Elements of a token at a layer's widest place on one device. [element]"""
    feeding = [_fed(part) / tp for part in layer.feed_forwards]
    mixing = [sum(m.rows * m.count for m in mixer.matrices(hidden)) / tp for mixer in layer.mixers]
    return max([0.0, *feeding, *mixing])


def _fed(part: object) -> float:
    """What a dense feed-forward, or the shared expert of a mixture, has at its widest. [element]"""
    dense = part.shared if isinstance(part, MoeFeedForward) else part
    if dense is None:
        return 0.0
    return float(getattr(dense, "intermediate", 0) * (3 if getattr(dense, "gated", True) else 2))


def workspace_bytes(ready: Ready, tokens: int, width: float | None = None) -> float:
    """Intermediate results of routed experts: N k (max(2 I, h) + max(I, h)) b, I on one device. [B]

    Source: vLLM, fused MoE's two workspaces; within 0.02 GiB of the logs of vLLM 0.19 named in `forward_bytes`.
    """
    spec, shards = ready.model.spec, ready.deployment.shards
    each = activation_width(ready) if width is None else width
    most = 0.0
    for part in spec.experts:
        outer, inner = part.expert.hidden, part.expert.intermediate / shards.expert_slices
        most = max(most, part.top_k * (max(2 * inner, outer) + max(inner, outer)))
    packed = any(
        part.bytes < part.elements for part, _ in ready.program.routed
    )  # kernels of 4-bit experts take all at once
    return (tokens if packed else min(tokens, CHUNK)) * each * most


def sparse_bytes(ready: Ready, longest: int) -> float:
    """Buffers of sparse attention over a latent: 40 L (d_index + 4) + 5 L (d_c + d_rope) 2 B + 0.5 GiB of scores. [B]

    L: tokens of the longest request. Source: vLLM, v1/attention/backends/mla: the indexer gathers keys of up to 40
    requests, prefill latents of 5; explains 2.6 of the 5 GiB that GLM-5.1 takes beside its profile at 202,752 tokens.
    """
    most = 0.0
    for layer in ready.model.spec.layer_counts:
        for mixer in layer.mixers:
            index = getattr(mixer, "index", None)
            if isinstance(mixer, LatentAttention) and index:
                gathered = GATHERED[0] * (index.head_dim + 4) + GATHERED[1] * mixer.elements_per_token * 2
                most = max(most, longest * gathered + SCORES)
    return most


def sampler_bytes(ready: Ready, profiled: Profiled) -> float:
    """What sampling S rows takes beside the hidden states of N tokens: S V (b + r) + (N + S) h b + 0.04 GiB. [B]

    r: vLLM 0.17 and later 12.5 B a logit (logits and probabilities and noise in fp32, and a buffer); before it 36, which
    sort values and indices. Logits are gathered, so that tensor parallelism does not divide them.

    Source: fitted to the logs named in `forward_bytes`, and to
    https://github.com/llm-d-incubation/llm-d-planner/blob/main/docs/empirical-vllm-memory-results.md, within 0.03 GiB.
    """
    spec, each = ready.model.spec, profiled.width
    rows = min(profiled.rows, profiled.tokens)
    logits = rows * spec.vocab * (each + profiled.row_bytes)
    return logits + (profiled.tokens + rows) * spec.hidden * each + SAMPLER_REST


def pictures_bytes(ready: Ready, tokens: int, width: float) -> float:
    """What a profile keeps of a multimodal encoder: embeddings of N tokens, N h b, and the pictures they are of. [B]

    Source: Gemma 3 and Kimi-VL in the logs named in `forward_bytes`: 0.15 to 0.23 GiB, of which pictures 0.14.
    """
    spec = ready.model.spec
    if not any("vision" in tower.name for tower in spec.towers):
        return 0.0
    return tokens * spec.hidden * width + PICTURES


def encoder_bytes(ready: Ready, tokens: int, width: float) -> float:
    """What a vision tower takes over a profile's pictures at its widest layer: P b (3 h + 2 I), P their patches. [B]

    Pictures of a fixed size: as many as N tokens hold; of any size: one of 16,384 tokens, the largest that is allowed.
    0 of a tower whose sizes the config does not say under the usual keys.

    Source: vLLM, v1/worker/gpu_model_runner.py, profile_run; widths as in `forward_bytes`.
    """
    config = ready.model.config
    tower = config.get("vision_config")
    if not isinstance(tower, dict):
        return 0.0
    hidden, inner, patch = (_size(tower, key) for key in TOWER_KEYS)
    merged, side = _size(tower, "spatial_merge_size"), _size(tower, "image_size")
    if not (hidden and inner and patch) or not (merged or side >= patch):
        return 0.0
    if merged:
        patches = max(tokens, LARGEST_PICTURE) * merged**2
    else:
        each = (side // patch) ** 2
        patches = max(1, tokens // (_size(config, "mm_tokens_per_image") or each)) * each
    return patches * width * (STREAMS * hidden + 2 * inner) + PICTURES


def _size(block: Mapping[str, object], key: str) -> int:
    """A size above 0, else 0."""
    value = block.get(key)
    return value if isinstance(value, int) and value > 0 else 0


def profile_peak(ready: Ready, profiled: Profiled) -> float:
    """Peak of a profiled step: max(forward, sampler), experts' results within or beside it, and pictures; or an encoder's. [B]

    With pipeline stages, hidden states and residual of N tokens that are passed on come on top, 2 N h b.
    """
    tokens, width = profiled.tokens, profiled.width
    work = workspace_bytes(ready, tokens, width)
    forward, sampler = forward_bytes(ready, tokens, width, profiled.rest), sampler_bytes(ready, profiled)
    passed = 2 * tokens * ready.model.spec.hidden * width * (ready.deployment.shards.pp > 1)
    peak = max(forward, sampler) + work if profiled.shared_workspace else max(forward + work, sampler)
    return max(peak + passed + pictures_bytes(ready, tokens, width), encoder_bytes(ready, tokens, width))
