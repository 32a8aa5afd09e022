"""Tensors as a GGUF file of a model holds them: llama.cpp's names for the matrices, fused and split as its files have it.

Source: llama.cpp, gguf-py/gguf/tensor_mapping.py and convert_hf_to_gguf.py, 2026.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from roofcast.modelspec.attention import GroupedAttention
from roofcast.modelspec.errors import UndeterminedModelError
from roofcast.modelspec.latent import LatentAttention
from roofcast.modelspec.matrix import ATTENTION, DRAFT, EMBEDDING
from roofcast.modelspec.recurrent import GatedDeltaNet
from roofcast.modelspec.strictjson import quoted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from roofcast.modelspec.matrix import Inventory, Placed
    from roofcast.modelspec.spec import ModelSpec

OUTPUT: Final = "output"
TOKENS: Final = "token_embd"
LAYER_TOKENS: Final = "per_layer_token_embd"
FUSED: Final = "attn_qkv"
GATE: Final = "attn_gate"
WHOLE_LATENT: Final = "attn_kv_b"
WHOLE_DELTA: Final = "attn_qkvz"  # in no file: it is split
_NUMBER: Final = re.compile(r"\.\d+$")

# module within a layer -> tensor
NAMES: Final[dict[str, str]] = {
    "embed_tokens": TOKENS,
    "lm_head": OUTPUT,
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_a_proj": "attn_q_a",
    "self_attn.q_b_proj": "attn_q_b",
    "self_attn.kv_a_proj_with_mqa": "attn_kv_a_mqa",
    "self_attn.kv_b_proj": WHOLE_LATENT,
    "self_attn.indexer.wq_b": "indexer.attn_q_b",
    "self_attn.indexer.wk": "indexer.attn_k",
    "self_attn.indexer.weights_proj": "indexer.proj",
    "self_attn.index_q_proj": "indexer.q_proj",
    "self_attn.index_k_proj": "indexer.k_proj",
    "self_attn.g_proj": GATE,
    "self_attn.gate_proj": GATE,
    "self_attn.f_a_proj": "ssm_f_a",
    "self_attn.f_b_proj": "ssm_f_b",
    "self_attn.g_a_proj": "ssm_g_a",
    "self_attn.g_b_proj": "ssm_g_b",
    "self_attn.b_proj": "ssm_beta",
    "linear_attn.in_proj_qkv": FUSED,
    "linear_attn.in_proj_z": GATE,
    "linear_attn.in_proj_qkvz": WHOLE_DELTA,
    "linear_attn.in_proj_a": "ssm_alpha",
    "linear_attn.in_proj_b": "ssm_beta",
    "linear_attn.in_proj_ba": "ssm_ba",
    "linear_attn.out_proj": "ssm_out",
    "mamba.in_proj": "ssm_in",
    "mamba.x_proj": "ssm_x",
    "mamba.dt_proj": "ssm_dt",
    "mamba.out_proj": "ssm_out",
    "conv.in_proj": "shortconv.in_proj",
    "conv.out_proj": "shortconv.out_proj",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "mlp.gate": "ffn_gate_inp",
    "mlp.experts.*.gate_proj": "ffn_gate_exps",
    "mlp.experts.*.up_proj": "ffn_up_exps",
    "mlp.experts.*.down_proj": "ffn_down_exps",
    "mlp.shared_experts.gate_proj": "ffn_gate_shexp",
    "mlp.shared_experts.up_proj": "ffn_up_shexp",
    "mlp.shared_experts.down_proj": "ffn_down_shexp",
    "mlp.shared_expert_gate": "ffn_gate_inp_shexp",
    "experts.*.gate_proj": "ffn_gate_exps",
    "experts.*.up_proj": "ffn_up_exps",
    "experts.*.down_proj": "ffn_down_exps",
    "router.proj": "ffn_gate_inp",
    "mlp.fc1_latent_proj": "ffn_latent_down",
    "mlp.fc2_latent_proj": "ffn_latent_up",
    "embed_tokens_per_layer": LAYER_TOKENS,
    "per_layer_model_projection": "per_layer_model_proj",
    "per_layer_input_gate": "inp_gate",
    "per_layer_projection": "proj",
    "altup_projections.*": "altup_proj",
    "altup_unembed_projections.*": "altup_unembd_proj",
    "altup.correction_coefs": "altup_correct_coef",
    "altup.prediction_coefs": "altup_predict_coef",
    "altup.modality_router": "altup_router",
    "laurel.linear_left": "laurel_l",
    "laurel.linear_right": "laurel_r",
}

# Classes whose files hold queries, keys and values in one tensor. Those that also hold gate and up in one (Phi-3, GLM)
# need no row: both are ffn tensors under the same rules.
FUSED_CLASSES: Final = frozenset(
    [
        "bailing_moe_v2",
        "bloom",
        "chatglm",
        "codeshell",
        "dbrx",
        "falcon",
        "gpt2",
        "gpt_bigcode",
        "gpt_neox",
        "jais",
        "mpt",
        "openelm",
        "persimmon",
        "phi-msft",
        "phi3",
        "phi4mm",
        "plamo2",
        "qwen",
        "RefinedWeb",
        "RefinedWebModel",
    ]
)
INTO_FUSED: Final = frozenset(("attn_q", "attn_k", "attn_v"))
WHOLE_LATENT_CLASSES: Final = frozenset(("minicpm3", "plm"))  # kv_b_proj stays one tensor
# Classes whose checkpoints, and so their files, hold keys and values in layers that take those of others too.
SHARING_CLASSES: Final = frozenset(("gemma3n", "gemma3n_text", "gemma4", "gemma4_text"))


@dataclass(frozen=True, slots=True)
class GgufTensor:
    """A tensor of a GGUF file.

    Args:
        component: as `ModelSpec.components` names it.
        layer: number of its layer; None outside the layers.
        name: llama.cpp's, without `blk.N.` and `.weight`.
        rows, columns: of one matrix; a row is what blocks of a quantised type divide.
        count: matrices in it: experts, or heads of an expanded latent.
        used: whether it is of the model's parameters: some files hold what no layer reads.
    """

    component: str
    layer: int | None
    name: str
    rows: int
    columns: int
    count: int = 1
    used: bool = True

    @property
    def elements(self) -> int:
        """Weights in it: count x rows x columns. [parameter]

        >>> GgufTensor("attention", 0, "attn_k_b", 512, 128, 128).elements
        8388608
        """
        return self.count * self.rows * self.columns


def gguf_tensors(spec: ModelSpec, listed: Inventory) -> tuple[GgufTensor, ...]:
    """The tensors of two and more dimensions, in the order that llama-quantize goes through them: by layer and name.

    Raises:
        UndeterminedModelError: a kind of layer whose tensors in a GGUF file are not known.
    """
    unlisted = sorted(listed.unlisted)
    if unlisted:
        kinds = f" ({spec.attention_label})" if "attention" in unlisted else ""
        raise _unknown(spec, f"{', '.join(unlisted)}{kinds}")
    named = (part for placed in listed.matrices for part in _tensors(spec, placed))
    every = [*named, *_joining(spec, listed), *_unused(spec)]
    return tuple(sorted(_joined(every), key=lambda tensor: (-1 if tensor.layer is None else tensor.layer, tensor.name)))


def _tensors(spec: ModelSpec, placed: Placed) -> Iterable[GgufTensor]:
    matrix = placed.matrix
    name = NAMES.get(_NUMBER.sub(".*", matrix.name))
    if name is None:
        raise _unknown(spec, matrix.name)
    if name in INTO_FUSED and spec.model_type in FUSED_CLASSES:
        name = FUSED
    tensor = GgufTensor(placed.component, placed.layer, name, matrix.rows, matrix.columns, matrix.count)
    return SPLITS[name](spec, tensor) if name in SPLITS else (tensor,)


def _split_latent(spec: ModelSpec, tensor: GgufTensor) -> Iterator[GgufTensor]:
    """What expands a latent, a head each: keys with the latent as rows, so that they fold into queries, and values."""
    mixers = spec.active_layers[tensor.layer or 0].mixers
    latent = next((mixer for mixer in mixers if isinstance(mixer, LatentAttention)), None)
    if latent is None or spec.model_type in WHOLE_LATENT_CLASSES:
        yield tensor
        return
    heads, rank = latent.query_heads, latent.kv_lora_rank
    yield replace(tensor, name="attn_k_b", rows=rank, columns=latent.qk_nope_head_dim, count=heads)
    yield replace(tensor, name="attn_v_b", rows=latent.value_head_dim, columns=rank, count=heads)


def _split_delta(spec: ModelSpec, tensor: GgufTensor) -> Iterator[GgufTensor]:
    """Queries, keys and values of Qwen3-Next's linear attention, and the gate, which its checkpoints hold in one."""
    mixers = spec.active_layers[tensor.layer or 0].mixers
    gates = sum(mixer.value_heads * mixer.value_head_dim for mixer in mixers if isinstance(mixer, GatedDeltaNet))
    yield replace(tensor, name=FUSED, rows=tensor.rows - gates)
    yield replace(tensor, name=GATE, rows=gates)


SPLITS: Final[Mapping[str, Callable[[ModelSpec, GgufTensor], Iterator[GgufTensor]]]] = {
    WHOLE_LATENT: _split_latent,
    WHOLE_DELTA: _split_delta,
}


def _joining(spec: ModelSpec, listed: Inventory) -> Iterator[GgufTensor]:
    """What joins each draft layer: an embedding and a hidden state become one of width h."""
    joins = listed.rest.get(DRAFT, 0) // (2 * spec.hidden**2)
    for number in range(min(joins, len(spec.draft))):
        yield GgufTensor(DRAFT, len(spec.layers) + number, "nextn.eh_proj", spec.hidden, 2 * spec.hidden)


def _unused(spec: ModelSpec) -> Iterator[GgufTensor]:
    """Keys and values that no layer reads, and rows that the converter adds to embeddings a layer, up to the vocabulary."""
    if spec.model_type not in SHARING_CLASSES:
        return
    for table in spec.tables:
        if table.rows < spec.vocab:
            yield GgufTensor(EMBEDDING, None, LAYER_TOKENS, spec.vocab - table.rows, table.columns, used=False)
    for number, layer in enumerate(spec.layers):
        for mixer in layer.mixers:
            if not isinstance(mixer, GroupedAttention) or mixer.stores:
                continue
            read = {matrix.name for matrix in mixer.matrices(spec.hidden) if matrix.elements}
            held = replace(mixer, stores=True).matrices(spec.hidden)
            for matrix in (matrix for matrix in held if matrix.elements and matrix.name not in read):
                yield GgufTensor(ATTENTION, number, NAMES[matrix.name], matrix.rows, matrix.columns, used=False)


def _joined(tensors: Iterable[GgufTensor]) -> Iterator[GgufTensor]:
    """Tensors of one name in one layer are one, with the rows of both."""
    made: dict[tuple[str, int | None, str, bool], GgufTensor] = {}
    for tensor in tensors:
        key = (tensor.component, tensor.layer, tensor.name, tensor.used)
        made[key] = replace(tensor, rows=tensor.rows + made[key].rows) if key in made else tensor
    return iter(made.values())


def _unknown(spec: ModelSpec, what: str) -> UndeterminedModelError:
    msg = f"what llama.cpp calls {what} of model_type {quoted(spec.model_type)} is not known, so neither is its file"
    return UndeterminedModelError(f"{msg}; --weights fp8 or bf16 counts every parameter in that format")
