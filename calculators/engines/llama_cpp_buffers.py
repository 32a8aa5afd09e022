"""What llama.cpp puts on a GPU beside its cache: the model buffer, the compute buffer, and which layers go where."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from roofcast.calculators.engines.llama_cpp_cache import MIB
from roofcast.calculators.engines.terms import EngineTerm
from roofcast.calculators.errors import UsageError
from roofcast.modelspec.formats import Format
from roofcast.modelspec.program import build_program
from roofcast.modelspec.sharding import Shards

if TYPE_CHECKING:
    from roofcast.calculators.deployment import Ready
    from roofcast.modelspec.sharding import Shards as Cut

# CUDA context, kernels and pools, which no line of the log has: 82 to 165 MiB beside small models, 750 at worst.
OVERHEAD: Final = (300 * MIB, 80 * MIB, 750 * MIB)
ATTENTION: Final = 60 * MIB  # of a compute buffer without logits and masks: 40 to 60 MiB in eight logs
F32, MASK = 4, 6  # bytes; a mask is held in F32 and once more in F16
ROUNDED: Final = 0.01  # norms in F32, and dynamic mixes of types, move a file by as much


@dataclass(frozen=True, slots=True)
class Held:
    """Weights on the GPUs.

    Args:
        layers: of all decoder layers, with what stands outside them but for embedding and head. [B]
        head: output matrix, a copy of the embedding where these are tied. [B]
        host: embedding and tables beside it, which stay with the CPU. [B]
        left_out: what the files hold beside the text model. [B]
        tied: whether the head is the embedding.
    """

    layers: float
    head: float
    host: float
    left_out: float
    tied: bool

    @property
    def total(self) -> float:
        """The model buffers of all GPUs. [B]"""
        return self.layers + self.head


def held_weights(ready: Ready) -> Held:
    """What llama.cpp loads onto GPUs: all but the embedding; where that is the head too, it is copied there.

    The input layer always stays with the CPU. Towers are files of their own, and draft layers are not loaded.

    Source: ggml-org/llama.cpp, src/llama-model.cpp, load_tensors: dev_input is the CPU, dev_output the last device.
    """
    model, asked = ready.model, ready.deployment.weights
    single = build_program(model.spec, ready.storage, Shards())
    whole = model.weight_bytes(asked).value
    held = single.resident if whole is None else whole
    converted = (asked is not None and not isinstance(asked, Format)) or (
        model.facts == "header" and not model.spec.mtp_layers
    )
    text = held if converted else min(held, single.resident)  # llama.cpp's files have no towers
    share = min(1.0, text / single.resident)
    host, head, tied = share * single.tables, share * single.head.bytes, model.spec.tied
    return Held(text - host - head * (not tied), head, host, held - text, tied)


def weight_term(held: Held, share: float, *, last: bool) -> EngineTerm:
    """The model buffer of one GPU: its share of the layers, and the head on the last. [B]"""
    size = held.layers * share + held.head * last
    where = "a copy of the embedding as its head" if held.tied else "its head"
    parts = f"{share:.4g} of layers of {held.layers / MIB:,.0f} MiB"
    rule = f"{parts}{f' and {where}, {held.head / MIB:,.0f} MiB' if last else ''}; the embedding stays with the CPU"
    low, high = size * (1 - ROUNDED), size * (1 + ROUNDED)
    return EngineTerm("weights", size, low, high, rule, "config")


def devices_of(cut: Cut) -> int:
    """GPUs that the layers are spread over.

    Raises:
        UsageError: replicas or split experts, of which llama.cpp has none.
    """
    if cut.dp > 1 or cut.ep > 1:
        name = "--dp" if cut.dp > 1 else "--ep"
        raise UsageError(f"{name}: llama.cpp splits layers over GPUs, --pp; it has no replicas and no split experts")
    return cut.tp * cut.pp


def layer_split(layers: int, devices: int) -> tuple[range, ...]:
    """Layers of each GPU: layer i goes where i / (L + 1) falls among equal shares; the head counts as one layer.

    Source: ggml-org/llama.cpp, src/llama-model.cpp, get_layer_buft_list; --split-mode layer on equal GPUs.

    >>> [len(part) for part in layer_split(32, 2)]  # 33 / 2 is 16.5: layers 0 to 16, then 17 to 31 and the head
    [17, 15]
    """
    starts = [-(-device * (layers + 1) // devices) for device in range(devices)]
    ends = [*starts[1:], layers]
    return tuple(range(start, max(start, min(end, layers))) for start, end in zip(starts, ends, strict=True))


def compute_term(ready: Ready, cells: int, ubatch: int) -> EngineTerm:
    """The compute buffer with flash attention: the larger of logits and attention; they take turns in it. [B]

    Logits 4 u (V + h), with u tokens of a physical batch; attention 6 u n + 60 MiB, where the mask over n cells is
    in F32 and F16. Builds of mid-2026 often reserve fewer logits, down to attention alone; others both.
    Checked with lines of CUDA0: 493 to 497 MiB of Qwen3.6 at 32k, 808.02 at 256k, 3,120.28 at 1M, 154.02 at 32k.
    """
    spec = ready.model.spec
    logits = float(F32 * ubatch * (spec.vocab + spec.hidden))
    masks = float(MASK * ubatch * cells)
    attention = masks + ATTENTION
    rule = (
        f"max of logits 4 x {ubatch} x ({spec.vocab:,} + {spec.hidden:,}) = {logits / MIB:,.0f} MiB and attention "
        f"6 x {ubatch} x {cells:,} + {ATTENTION / MIB:.0f} MiB = {attention / MIB:,.0f} MiB; from the lesser to the sum"
    )
    low = min(logits, masks + ATTENTION / 2)
    return EngineTerm("compute_buffer", max(logits, attention), low, logits + attention, rule, "fitted")
