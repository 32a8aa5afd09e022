"""Small decoders of every kind that the profiler builds, and a CPU to build them on."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from roofcast.modelspec.attention import GroupedAttention
from roofcast.modelspec.ffn import DenseFeedForward, MoeFeedForward
from roofcast.modelspec.latent import LatentAttention
from roofcast.modelspec.layers import Layer
from roofcast.modelspec.spec import ModelSpec
from roofcast.profiler.decoder import Decoder, Setup
from roofcast.profiler.runtime import Runtime, open_runtime
from roofcast.profiler.torch_kernels import TorchKernels

HIDDEN: Final = 32
VOCAB: Final = 50

GQA: Final = GroupedAttention(4, 2, 8, 8)
WINDOW: Final = replace(GQA, window=4)
CHUNK: Final = replace(GQA, window=4, chunked=True)
MLA: Final = LatentAttention(4, 16, None, 8, 4, 6)
DENSE: Final = DenseFeedForward(HIDDEN, 48)
MOE: Final = MoeFeedForward(DenseFeedForward(HIDDEN, 24), 6, 2)


def layer(*parts: Any) -> Layer:
    """A layer of these mixers and feed-forwards, a norm before each."""
    feeding = tuple(part for part in parts if isinstance(part, DenseFeedForward | MoeFeedForward))
    mixing = tuple(part for part in parts if part not in feeding)
    return Layer(mixing, feeding, HIDDEN * len(parts))


def spec_of(*layers: Layer, tied: bool = False, hidden: int = HIDDEN, vocab: int = VOCAB) -> ModelSpec:
    """A model of these layers."""
    return ModelSpec(
        model_type="tiny",
        known_class=True,
        layers=layers,
        hidden=hidden,
        vocab=vocab,
        tied=tied,
        position_parameters=0,
        head_bias_parameters=0,
        other_norm_parameters=hidden,
        other_parameters=0,
        max_context=None,
        dtype="fp32",
        quantization=None,
    )


#: what is built, one of each
BUILT: Final[dict[str, ModelSpec]] = {
    "MHA": spec_of(layer(GroupedAttention(4, 4, 8, 8), DENSE), layer(GroupedAttention(4, 4, 8, 8), DENSE)),
    "GQA": spec_of(layer(GQA, DENSE), layer(GQA, DENSE)),
    "MQA": spec_of(layer(GroupedAttention(4, 1, 8, 8), DENSE)),
    "values of another width": spec_of(layer(GroupedAttention(4, 2, 8, 4), DENSE)),
    "heads of an odd width": spec_of(layer(GroupedAttention(2, 1, 7, 7), DENSE)),
    "biases": spec_of(layer(replace(GQA, qkv_bias=True, output_bias=True), replace(DENSE, bias=True))),
    "a bias on queries and values": spec_of(layer(replace(GQA, qkv_bias=True, key_bias=False), DENSE)),
    "norms of queries and keys": spec_of(layer(replace(GQA, qk_norm_parameters=16), DENSE)),
    "a window": spec_of(layer(WINDOW, DENSE), layer(WINDOW, DENSE)),
    "a window and all": spec_of(layer(WINDOW, DENSE), layer(GQA, DENSE), layer(WINDOW, DENSE)),
    "a window as long as most of the prompt": spec_of(layer(replace(GQA, window=9), DENSE)),
    "chunks": spec_of(layer(CHUNK, DENSE), layer(GQA, DENSE)),
    "MLA": spec_of(layer(MLA, DENSE), layer(MLA, DENSE)),
    "MLA with a query latent": spec_of(layer(replace(MLA, q_lora_rank=12), DENSE)),
    "MLA with biases": spec_of(layer(replace(MLA, q_lora_rank=12, bias=True), DENSE)),
    "MLA without RoPE": spec_of(layer(replace(MLA, qk_rope_head_dim=0), DENSE)),
    "MoE": spec_of(layer(GQA, MOE), layer(GQA, MOE)),
    "MoE after dense layers, MLA": spec_of(layer(MLA, DENSE), layer(MLA, MOE)),
    "shared experts": spec_of(layer(GQA, replace(MOE, shared=DenseFeedForward(HIDDEN, 16)))),
    "gated shared experts": spec_of(layer(GQA, replace(MOE, shared=DenseFeedForward(HIDDEN, 16), shared_gate=True))),
    "no gate": spec_of(layer(GQA, replace(DENSE, gated=False))),
    "no gate, biases": spec_of(layer(GQA, replace(DENSE, gated=False, bias=True))),
    "halves alone": spec_of(layer(GQA), layer(DENSE), layer(GQA)),
    "tied": spec_of(layer(GQA, DENSE), tied=True),
}


def cpu(*, as_cuda: bool = False) -> Runtime:
    """The CPU; or one that takes the ways of a CUDA device, as far as torch follows."""
    runtime = open_runtime("cpu")
    runtime.torch.set_num_threads(1)
    return replace(runtime, machine=replace(runtime.machine, kind="cuda")) if as_cuda else runtime


def tiny(spec: ModelSpec, setup: Setup | None = None, *, as_cuda: bool = False) -> Decoder:
    """A decoder of it, in fp32 unless told."""
    runtime = cpu(as_cuda=as_cuda)
    return Decoder(spec, runtime, TorchKernels(runtime), setup or Setup("fp32", "fp32"))
