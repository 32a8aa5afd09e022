"""How a model is cut over devices: which matrices split, which replicate, what each device is left with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from roofcast.modelspec.attention import Attention
    from roofcast.modelspec.matrix import Matrix

# Modules, by the last parts of their names, that every device of a tensor-parallel group holds whole: latents are one
# for all heads, routers see every token. Source: vLLM 0.11, model_executor/models/deepseek_v2.py (ReplicatedLinear).
WHOLE: Final = frozenset(
    ("q_a_proj", "kv_a_proj_with_mqa", "wq_a", "wkv", "wk", "wgate", "weights_proj", "index_qk_proj", "index_q_proj",
     "index_k_proj", "index_kpool_compress_gate", "gate", "proj", "shared_expert_gate", "indexer.wq_b",
     "modality_router", "prediction_coefs", "correction_coefs", "f_a_proj", "g_a_proj", "rel_logits_proj")
)  # fmt: skip
# those that make keys and values: their heads split, and replicate beyond one a device
KEYS_AND_VALUES: Final = frozenset(("k_proj", "v_proj", "kv_proj", "v_proj_current", "v_proj_delayed"))
# those whose inputs are split, so that their outputs must be summed over the group
SUMMED: Final = frozenset(("o_proj", "down_proj", "out_proj", "wo_b", "linear_out", "output", "fc2_latent_proj"))


@dataclass(frozen=True, slots=True)
class Shards:
    """Devices that one model is spread over.

    Args:
        tp: that share every layer's heads and widths (tensor parallel).
        pp: stages of layers, one after the other (pipeline parallel).
        ep: that share the routed experts, over tensor- and data-parallel ones alike (expert parallel); 1 is none.
        dp: replicas of all but the shared experts, each with its own sequences (data parallel).
    """

    tp: int = 1
    pp: int = 1
    ep: int = 1
    dp: int = 1

    @property
    def devices(self) -> int:
        """All of them: tp pp dp; expert parallelism takes none of its own."""
        return self.tp * self.pp * self.dp

    @property
    def in_step(self) -> int:
        """Devices that take one step together: tp pp; replicas have steps of their own, unless they share experts.

        >>> Shards(tp=2, dp=4).in_step, Shards(dp=4, ep=4).in_step
        (2, 4)
        """
        return self.devices if self.ep > 1 else self.tp * self.pp

    @property
    def joined(self) -> int:
        """Devices, counted from the first, that exchange anything: a stage's replicas do so over shared experts alone.

        >>> Shards(tp=8, dp=2).joined, Shards(tp=8, dp=2, ep=16).joined, Shards(tp=8, pp=2, dp=2).joined
        (8, 16, 32)
        """
        if self.pp > 1:
            return self.devices
        return self.tp * self.dp if self.ep > 1 else self.tp

    @property
    def expert_slices(self) -> int:
        """Devices that one expert's width is cut over: tp dp / ep with expert parallelism, else tp.

        >>> Shards(tp=8, dp=2, ep=16).expert_slices, Shards(tp=8).expert_slices
        (1, 8)
        """
        return self.tp * self.dp // self.ep if self.ep > 1 else self.tp


def device_share(matrix: Matrix, mixer: Attention | None, tp: int) -> float:
    """Share of a matrix that each of `tp` devices holds: 1/tp, 1 where replicated, 1/n_kv at least of keys and values. [-]

    Args:
        matrix: by its name.
        mixer: of whose attention it is; None of another part.
        tp: devices.

    >>> from roofcast.modelspec.attention import GroupedAttention
    >>> from roofcast.modelspec.matrix import Matrix
    >>> llama, k_proj = GroupedAttention(32, 8, 128, 128), Matrix("self_attn.k_proj", 1024, 4096)
    >>> device_share(k_proj, llama, 4), device_share(k_proj, llama, 16)
    (0.25, 0.125)
    """
    if tp == 1:
        return 1.0
    parent, _, last = matrix.name.rpartition(".")
    if last in WHOLE or f"{parent.rpartition('.')[2]}.{last}" in WHOLE:
        return 1.0
    heads = mixer.published_kv_heads if mixer is not None and last in KEYS_AND_VALUES else 0
    return -(-heads // tp) / heads if heads else 1 / tp


def is_summed(matrix: Matrix) -> bool:
    """Whether a split matrix has its inputs split, and not its outputs.

    >>> from roofcast.modelspec.matrix import Matrix
    >>> is_summed(Matrix("mlp.down_proj", 4096, 14336)), is_summed(Matrix("mlp.up_proj", 14336, 4096))
    (True, False)
    """
    return matrix.name.rpartition(".")[2] in SUMMED
