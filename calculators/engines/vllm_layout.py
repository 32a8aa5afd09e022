"""vLLM's cache, laid out for a model and its flags: formats, block sizes, and the tokens that its log prints."""

from __future__ import annotations

from dataclasses import dataclass
from math import lcm
from typing import TYPE_CHECKING, Final

from roofcast.calculators.answer import Remarks, remarks
from roofcast.calculators.cache import kept_bytes
from roofcast.calculators.engines.kv_groups import Layout, Paging, arrange
from roofcast.calculators.engines.kv_specs import MLA, STATE, CacheFormats, layer_keeps
from roofcast.modelspec.compressed import CompressedAttention
from roofcast.modelspec.formats import FORMATS, TORCH_DTYPES
from roofcast.modelspec.latent import LatentAttention
from roofcast.modelspec.nested import text_block

if TYPE_CHECKING:
    from collections.abc import Mapping

    from roofcast.calculators.deployment import Ready
    from roofcast.calculators.engines.vllm_start import Started
    from roofcast.calculators.engines.vllm_weights import Stage
    from roofcast.modelspec.spec import ModelSpec

MLA_ALIGN: Final = 64  # tokens that a hybrid's block is a multiple of beside MLA [token]
ANY_BLOCK: Final = (0, 12)  # the version since which MLA of Hopper takes blocks of any size
CHUNK: Final = 256  # tokens of a chunk of a state-space scan [token]
SPARSE_BLOCK: Final = 64  # tokens of a block under an index [token]
# Blocks of MLA: least compute capability, versions before, and tokens: CUTLASS MLA of Blackwell 128, FlashMLA of Hopper 64
# until FlashAttention's kernel came; Triton's and that one take any. Source: vLLM, platforms/cuda.py; 0.19 logs say 16.
LATENT_BLOCKS: Final = ((10.0, (99,), 128), (9.0, (0, 12), 64))
STATE_KEYS: Final = ("mamba_ssm_dtype", "mamba_ssm_cache_dtype")


def stage_layout(started: Started, first: int, stage: Stage) -> Layout:
    """The cache of a stage's layers, laid out."""
    served, rules = started.served, started.rules
    flags = served.flags
    formats = _formats(started)
    layers = served.ready.model.spec.active_layers[first : first + stage.layers]
    kept = layer_keeps(layers, formats)
    kinds = {one.kind for one in kept}
    block = flags.block_size or _block(started)
    mode = flags.mamba_cache_mode or ("align" if flags.enable_prefix_caching else rules.state_mode)
    drafted = (flags.num_speculative_tokens or 0) * rules.drafted_blocks
    paging = Paging(
        block=block,
        align=_align(started, kinds, mode, block),
        longest=started.longest,
        batched=started.tokens * rules.in_flight,
        context_parallel=flags.decode_context_parallel_size or 1,
        state_blocks={"none": 1 + drafted, "align": 2 + drafted, "all": None}[mode],
        hybrid=not flags.disable_hybrid_kv_cache_manager and rules.engine != "V0",
        chunked=not rules.chunked_whole,
    )
    return arrange(kept, paging)


def _align(started: Started, kinds: set[str], mode: str, block: int) -> int:
    """Tokens that a hybrid's block is a multiple of: 64 beside MLA but on Hopper since 0.12, of mode all the scan's chunk."""
    if STATE not in kinds:
        return block
    capability = started.served.ready.deployment.accelerator.compute_capability or "0"
    any_block = capability.startswith("9.") and started.rules.since >= ANY_BLOCK
    align = MLA_ALIGN if MLA in kinds and not any_block else block
    return lcm(align, _chunk(started.served.ready.model.config)) if mode == "all" else align


def _chunk(config: Mapping[str, object]) -> int:
    """Tokens of a chunk of a state-space scan, as the config says; 256 where it does not."""
    for key in ("mamba_chunk_size", "chunk_size"):
        value = config.get(key)
        if isinstance(value, int) and value > 0:
            return value
    return CHUNK


def _block(started: Started) -> int:
    """Tokens of a block that kernels ask for: 64 under a sparse index, of MLA as the device's kernels, else 16. [token]"""
    spec = started.served.ready.model.spec
    latent = [m for layer in spec.layer_counts for m in layer.mixers if isinstance(m, LatentAttention)]
    if any(mixer.index for mixer in latent):
        return SPARSE_BLOCK
    capability = started.served.ready.deployment.accelerator.compute_capability
    if not latent or not started.rules.latent or capability is None:
        return Paging().block
    fitting = (
        block for least, before, block in LATENT_BLOCKS if float(capability) >= least and started.rules.since < before
    )
    return next(fitting, Paging().block)


def _formats(started: Started) -> CacheFormats:
    """Formats of the cache and of states."""
    served = started.served
    flags, ready = served.flags, served.ready
    model = FORMATS[flags.dtype or ready.formats.activations]
    state = flags.mamba_ssm_cache_dtype or state_dtype(ready.model.config)
    return CacheFormats(
        kv=ready.deployment.kv,
        model=model,
        state=FORMATS.get(TORCH_DTYPES.get(state or "", state or "")),
        tp=ready.deployment.shards.tp,
        drafted=flags.num_speculative_tokens or 0,
        head_scales=ready.deployment.kv.name == "int8",
        latent=started.rules.latent,
    )


def state_dtype(config: Mapping[str, object]) -> str | None:
    """Format of recurrent states that a config asks for, in itself or in its text model; None where it does not say.

    >>> state_dtype({"text_config": {"mamba_ssm_dtype": "float32"}})
    'fp32'
    """
    for block in (config, text_block(config) or {}):
        for key in STATE_KEYS:
            if block.get(key):
                return TORCH_DTYPES.get(str(block[key]))
    return None


def printed_tokens(started: Started, layout: Layout, blocks: int) -> int:
    """The line `GPU KV cache size`: blocks // groups x the smallest block; newer, int(concurrency x longest). [token]

    Source: vLLM, v1/core/kv_cache_utils.py; vllm-project/vllm pull request 43308.
    """
    if started.rules.counts_requests:
        return int(layout.concurrency(blocks, started.longest) * started.longest)
    return blocks // layout.groups * layout.block_tokens * layout.paging.context_parallel


def layout_said(layout: Layout) -> Remarks:
    """What should be known of a layout: slots that are padding."""
    padding = sum(one.groups * layout.size - one.layers for one in layout.sharing) if len(layout.sharing) > 1 else 0
    share = padding / (layout.groups * layout.size)
    text = f"{padding} of {layout.groups * layout.size} layer slots of the cache are padding ({share:.0%})"
    return remarks(notes=[text if padding else None])


def laid_out(spec: ModelSpec) -> bool:
    """Whether vLLM's layout of the cache is known: that of compressed attention is not.

    It differs by a factor of eight from one checkpoint to the next (https://github.com/vllm-project/vllm/issues/51041).
    """
    return not any(isinstance(mixer, CompressedAttention) for layer in spec.layer_counts for mixer in layer.mixers)


@dataclass(frozen=True, slots=True)
class LeastRoom:
    """A cache whose layout is not known: what requests take at least.

    Args:
        ready: the model on the machine.
        size: of the cache. [B]
    """

    ready: Ready
    size: float

    def sequences(self, context: int) -> int:
        """Requests of so many tokens at once, at most."""
        return max(0, int(self.size // self.sequence_bytes(context)))

    def sequence_bytes(self, context: int) -> float:
        """What one takes at least on one device. [B]"""
        deployment = self.ready.deployment
        return kept_bytes(self.ready.kept, deployment.kv, context, deployment.shards.tp)
