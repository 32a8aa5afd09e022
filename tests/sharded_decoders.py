"""What ranks do in the tests of sharded decoders: they build and run every kind, and tell what came of it."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from roofcast.modelspec.attention import GroupedAttention
from roofcast.modelspec.ffn import DenseFeedForward, MoeFeedForward
from roofcast.profiler.decoder import Decoder, Setup
from roofcast.profiler.ranks_start import Wanted, together
from roofcast.profiler.torch_kernels import TorchKernels
from tests.tiny_decoders import BUILT, DENSE, HIDDEN, MLA, cpu, layer, spec_of

if TYPE_CHECKING:
    from roofcast.modelspec.spec import ModelSpec
    from roofcast.profiler.runtime import Runtime

BATCH: Final = 2
FIRST: Final = 5  # tokens of the prompt
NEXT: Final = 2  # decoded one by one
VOCAB: Final = 50

FOUR: Final = GroupedAttention(8, 4, 8, 8)
#: kinds whose heads four ranks divide
OF_FOUR: Final[dict[str, ModelSpec]] = {
    "GQA": spec_of(layer(FOUR, DENSE), layer(FOUR, DENSE)),
    "two KV heads of four ranks": spec_of(layer(GroupedAttention(8, 2, 8, 8), DENSE)),
    "MQA, biases": spec_of(
        layer(
            replace(GroupedAttention(4, 1, 8, 8), qkv_bias=True, key_bias=False, output_bias=True),
            replace(DENSE, bias=True),
        )
    ),
    "MLA with a query latent, biases": spec_of(layer(replace(MLA, q_lora_rank=12, bias=True), DENSE)),
    "MoE, gated shared experts": spec_of(
        layer(
            FOUR,
            MoeFeedForward(DenseFeedForward(HIDDEN, 24), 6, 2, shared=DenseFeedForward(HIDDEN, 16), shared_gate=True),
        )
    ),
    "tied, 50 rows of four ranks": spec_of(layer(FOUR, DENSE), tied=True),
    "fewer rows than ranks have room for": spec_of(layer(FOUR, DENSE), vocab=9),
}
KINDS: Final[dict[int, dict[str, ModelSpec]]] = {
    2: BUILT,
    4: OF_FOUR,
}


def told(decoder: Decoder) -> list[Any]:
    """Logits of a prompt, then of two steps of decode, [3, B, vocabulary]; of a share cut to the vocabulary."""
    torch, vocab = decoder.runtime.torch, decoder.spec.vocab
    tokens = torch.randint(vocab, (BATCH, FIRST + NEXT), generator=torch.Generator().manual_seed(1))
    session = decoder.session(BATCH, FIRST + NEXT)
    found = []
    step = session.prefill(FIRST)
    step.load(tokens[:, :FIRST])
    step.run()
    found.append(step.logits[:, :vocab].tolist())
    step = session.decode(FIRST)
    for place in range(FIRST, FIRST + NEXT):
        step.load(tokens[:, place : place + 1], place)
        step.poison()
        step.load(tokens[:, place : place + 1], place)
        step.run()
        found.append(step.logits[:, :vocab].tolist())
    return found


def built(spec: ModelSpec, runtime: Runtime) -> Decoder:
    """A decoder in fp32, of as many ranks as the runtime has."""
    return Decoder(spec, runtime, TorchKernels(runtime), Setup("fp32", "fp32"))


def run_all(names: tuple[str, ...], size: int, runtime: Runtime) -> dict[str, list[Any]]:
    """Every rank's logits of every kind, on every rank."""
    runtime.torch.set_num_threads(1)
    assert runtime.ranks is not None
    found = {}
    for name in names:
        with runtime.torch.inference_mode():
            found[name] = runtime.ranks.gather(told(built(KINDS[size][name], runtime)))
    return found


def over(size: int) -> dict[str, list[Any]]:
    """The same, of so many ranks that are started for it."""
    job = partial(run_all, tuple(KINDS[size]), size)
    with together(cpu(), None, Wanted(size), job) as runtime:
        return job(runtime)
