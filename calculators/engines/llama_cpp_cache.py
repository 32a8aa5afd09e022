"""llama.cpp's cache, as its start-up lines count it: buffers of cells, whole rows of ggml's blocks, states in F32."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from roofcast.calculators.errors import UsageError
from roofcast.modelspec.ggml import BY_NAME

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from roofcast.modelspec.layers import Layer

MIB: Final = float(1 << 20)
PAD: Final = 256  # cells of a buffer come in multiples of it
# format as roofcast names it -> type that --cache-type-k and --cache-type-v take. Source: llama.cpp, common/arg.cpp
TYPES: Final[Mapping[str, str]] = {
    "fp32": "f32", "fp16": "f16", "bf16": "bf16", "q8_0": "q8_0", "q5_1": "q5_1", "q5_0": "q5_0", "q4_1": "q4_1",
    "q4_0": "q4_0", "iq4_nl": "iq4_nl",
}  # fmt: skip
PLAIN: Final = "f16"
FULL, SLIDING, INDEX = "full", "sliding", "index"


@dataclass(frozen=True, slots=True)
class Graph:
    """How a build computes latent attention (MLA), and so what it keeps of it.

    Args:
        latent: whether it keeps the latent; else whole keys and values of every head.
        views: whether values are read out of the keys' rows; else the latent is kept once more as values.
        indexed: whether the keys of a sparse index are kept.
    """

    latent: bool = True
    views: bool = True
    indexed: bool = True


@dataclass(frozen=True, slots=True)
class Rows:
    """What one layer keeps of one cell.

    Args:
        keys, values: elements of a row of K and of V. [element]
        window: tokens that the layer sees; None is all. [token]
        kind: full, sliding or index.
    """

    keys: int
    values: int
    window: int | None = None
    kind: str = FULL


@dataclass(frozen=True, slots=True)
class State:
    """What a recurrent layer keeps of one sequence, in F32.

    Args:
        shifted: elements of the convolution's columns, or of the last inputs: the R part.
        summed: elements of the recurrence: the S part.
    """

    shifted: int
    summed: int


@dataclass(frozen=True, slots=True)
class Slots:
    """How cells are shared out.

    Args:
        slots: sequences at once.
        streams: buffers side by side; 1 where all sequences share one.
        cells: of each stream. [token]
        context: longest sequence of one slot. [token]
    """

    slots: int
    streams: int
    cells: int
    context: int


@dataclass(frozen=True, slots=True)
class Buffer:
    """One buffer of keys and values: layers with rows alike enough to share cells, as one line of the log has them.

    Args:
        kind: full, sliding or index.
        cells: of each stream. [token]
        streams: side by side.
        layers: in it.
        keys, values: bytes of one cell over all these layers. [B]
        key_type, value_type: as llama.cpp names them.
        window: tokens that its layers see; None is all. [token]
    """

    kind: str
    cells: int
    streams: int
    layers: int
    keys: int
    values: int
    key_type: str
    value_type: str
    window: int | None = None

    @property
    def bytes(self) -> float:
        """Its size: streams x cells x bytes of a cell. [B]"""
        return float(self.streams * self.cells * (self.keys + self.values))

    def line(self, slots: int = 1) -> str:
        """As llama.cpp prints it.

        Mistral-7B at 4,096 cells: 32 layers x 4,096 x 1,024 elements x 2 B are 256 MiB of keys, and as many of values.

        >>> Buffer("full", 4096, 1, 32, 32 * 2048, 32 * 2048, "f16", "f16").line()
        'size =  512.00 MiB (  4096 cells,  32 layers,  1/1 seqs), K (f16):  256.00 MiB, V (f16):  256.00 MiB'
        """
        cells = self.streams * self.cells
        keys, values = cells * self.keys / MIB, cells * self.values / MIB
        return (
            f"size = {keys + values:7.2f} MiB ({self.cells:6d} cells, {self.layers:3d} layers, "
            f"{slots:2d}/{self.streams} seqs), K ({self.key_type}): {keys:7.2f} MiB, "
            f"V ({self.value_type}): {values:7.2f} MiB"
        )


def padded(cells: int) -> int:
    """Cells rounded up to a multiple of 256.

    >>> padded(341), padded(640), padded(4096)
    (512, 768, 4096)
    """
    return -(-cells // PAD) * PAD


def share_out(n_ctx: int, slots: int, *, unified: bool, divided: bool = False) -> Slots:
    """Cells and slots of a context: one buffer of pad(n_ctx), or pad(n_ctx / slots) for each slot. [token]

    Args:
        n_ctx: tokens of all slots together. [token]
        slots: sequences at once.
        unified: whether they share one buffer.
        divided: whether a slot takes no more than its part of a shared buffer, as in builds without streams.

    Source: ggml-org/llama.cpp, src/llama-context.cpp, n_ctx_seq.

    >>> share_out(1024, 3, unified=False).cells * 3, share_out(1024, 4, unified=False).cells * 4
    (1536, 1024)
    """
    if unified:
        cells = padded(n_ctx)
        return Slots(slots, 1, cells, n_ctx // slots if divided else cells)
    cells = padded(max(1, n_ctx // slots))
    return Slots(slots, slots, cells, cells)


def window_cells(window: int, shared: Slots, batch: int) -> int:
    """Cells of window layers: pad256(min(cells, W x sequences of a buffer + physical batch)). [token]

    Source: ggml-org/llama.cpp, src/llama-kv-cache-iswa.cpp, size_swa; #13833.

    >>> window_cells(1024, share_out(8192, 4, unified=True), 512)  # Gemma 4 12B, four slots
    4608
    >>> window_cells(128, share_out(131072, 1, unified=False), 512)  # gpt-oss-20b: 640, rounded up
    768
    """
    sequences = shared.slots if shared.streams == 1 else 1
    return padded(min(shared.cells, window * sequences + batch))


def row_bytes(kind: str, elements: int) -> int:
    """Bytes of a row: whole blocks of the type. [B]

    q8_0 has 34 B for 32 elements, q5_1 24, q5_0 22, q4_1 20, q4_0 and iq4_nl 18.

    Source: ggml-org/llama.cpp, ggml/src/ggml-common.h.

    >>> [row_bytes(kind, 1024) for kind in ("f16", "q8_0", "q5_0", "q4_0", "f32")]
    [2048, 1088, 704, 576, 4096]
    """
    stored = BY_NAME[kind.upper()]
    if elements % stored.block:
        raise UsageError(
            f"a row of {elements} elements is not whole blocks of {stored.block}, as {kind} needs; --kv f16 has none"
        )
    return stored.size(elements)


def rows_of(layers: Iterable[Layer], graph: Graph) -> Counter[Rows]:
    """How many layers keep each kind of row.

    Raises:
        UsageError: a kind of layer that llama.cpp is not known to keep.
    """
    found: Counter[Rows] = Counter()
    for layer in layers:
        for mixer in layer.mixers:
            for rows in _rows(mixer, graph):
                found[rows] += layer.passes
    return found


def states_of(layers: Iterable[Layer]) -> Counter[State]:
    """How many layers keep each recurrent state."""
    found: Counter[State] = Counter()
    for layer in layers:
        for mixer in layer.mixers:
            for state in _states(mixer):
                found[state] += layer.passes
    return found


def _latent(mixer: Any, graph: Graph) -> Iterator[Rows]:  # noqa: ANN401 - a mixer, by what it has
    """A latent of d_c + d_rope as the keys of one head, and d_c as values where no view is; or all heads whole."""
    heads, latent = mixer.query_heads, mixer.kv_lora_rank + mixer.qk_rope_head_dim
    kind = FULL if mixer.window is None else SLIDING
    if mixer.stores and graph.latent:
        yield Rows(latent, 0 if graph.views else mixer.kv_lora_rank, mixer.window, kind)
    elif mixer.stores:
        yield Rows(heads * mixer.head_dim, heads * mixer.value_head_dim, mixer.window, kind)
    if mixer.index is not None and graph.indexed:
        yield Rows(mixer.index.head_dim, 0, None, INDEX)


def _grouped(mixer: Any, graph: Graph) -> Iterator[Rows]:  # noqa: ANN401 - a mixer, by what it has
    """n_kv heads of keys and of values, which are kept even where they are the keys."""
    values = getattr(mixer, "value_head_dim", mixer.head_dim)
    window = None if getattr(mixer, "masks", False) else mixer.window
    kind = FULL if window is None else SLIDING
    if getattr(mixer, "stores", True):
        yield Rows(mixer.kv_heads * mixer.head_dim, mixer.kv_heads * values, window, kind)
    index = getattr(mixer, "index", None)
    if index is not None and graph.indexed:
        yield Rows(index.head_dim, 0, None, INDEX)


def _delta(mixer: Any) -> State:  # noqa: ANN401 - a mixer, by what it has
    keys, values = mixer.key_heads * mixer.key_head_dim, mixer.value_heads * mixer.value_head_dim
    return State((mixer.conv_kernel - 1) * (values + 2 * keys), values * mixer.key_head_dim)


def _kimi(mixer: Any) -> State:  # noqa: ANN401 - a mixer, by what it has
    width = mixer.heads * mixer.head_dim
    return State(3 * (mixer.conv_kernel - 1) * width, width * mixer.head_dim)


def _mamba2(mixer: Any) -> State:  # noqa: ANN401 - a mixer, by what it has
    width = mixer.heads * mixer.head_dim
    columns = width + 2 * mixer.groups * mixer.state_size
    return State((mixer.conv_kernel - 1) * columns, width * mixer.state_size)


def _mamba1(mixer: Any) -> State:  # noqa: ANN401 - a mixer, by what it has
    return State((mixer.conv_kernel - 1) * mixer.width, mixer.width * mixer.state_size)


def _convolution(mixer: Any) -> State:  # noqa: ANN401 - a mixer, by what it has
    return State((mixer.conv_kernel - 1) * mixer.width, 0)


# what a mixer has, all of it -> what it keeps; the first that fits. Kernel - 1 columns: the first is shifted out.
# Source: ggml-org/llama.cpp, src/llama-hparams.cpp, n_embd_k_gqa, n_embd_v_gqa, n_embd_r and n_embd_s
_KEEPS_ROWS: Final[tuple[tuple[tuple[str, ...], Callable[[Any, Graph], Iterator[Rows]]], ...]] = (
    (("kv_lora_rank", "qk_rope_head_dim"), _latent),
    (("kv_heads", "head_dim", "window"), _grouped),
)
_KEEPS_STATE: Final[tuple[tuple[tuple[str, ...], Callable[[Any], State]], ...]] = (
    (("key_heads", "value_heads", "conv_kernel"), _delta),
    (("full_rank_gate", "conv_kernel"), _kimi),
    (("groups", "state_size", "conv_kernel"), _mamba2),
    (("time_step_rank", "conv_kernel"), _mamba1),
    (("width", "conv_kernel"), _convolution),
)
# kinds with keys and values and more: what else they keep is not llama.cpp's to be known
_UNKNOWN: Final = ("distance_width", "depthwise")


def _has(mixer: object, names: tuple[str, ...]) -> bool:
    return all(hasattr(mixer, name) for name in names)


def _rows(mixer: Any, graph: Graph) -> Iterator[Rows]:  # noqa: ANN401 - a mixer, by what it has
    strange = any(hasattr(mixer, name) for name in _UNKNOWN)
    keeps = next((keeps for names, keeps in _KEEPS_ROWS if _has(mixer, names) and not strange), None)
    if keeps is not None:
        yield from keeps(mixer, graph)
    elif not any(_has(mixer, names) for names, _ in _KEEPS_STATE) and mixer.state:
        raise UsageError(
            f"how llama.cpp keeps {mixer.label} is not modelled; modelled: MHA, GQA, MQA, MLA, Gated DeltaNet, KDA, "
            f"Mamba and short convolutions; --engine none has the plain budget"
        )


def _states(mixer: Any) -> Iterator[State]:  # noqa: ANN401 - a mixer, by what it has
    made = next((keeps for names, keeps in _KEEPS_STATE if _has(mixer, names)), None)
    if made is not None and not any(hasattr(mixer, name) for name in (*_UNKNOWN, "kv_heads")):
        yield made(mixer)


def state_parts(states: Counter[State], sequences: int) -> tuple[float, float]:
    """R and S parts of recurrent layers: the sum of layers x sequences x elements x 4 B. [B]

    Qwen3.6-27B has 48 layers of Gated DeltaNet: R is 3 (48 x 128 + 2 x 16 x 128) = 30,720 elements, S 48 x 128 x 128.

    Source: ggml-org/llama.cpp, src/llama-memory-recurrent.cpp; line of a server: R 5.62 MiB, S 144.00 MiB.

    >>> [part / MIB for part in state_parts(Counter({State(30720, 786432): 48}), 1)]
    [5.625, 144.0]
    """
    width = BY_NAME["F32"].bytes
    shifted = sum(n * state.shifted for state, n in states.items())
    summed = sum(n * state.summed for state, n in states.items())
    return float(shifted * sequences * width), float(summed * sequences * width)


def state_line(states: Counter[State], layers: int, sequences: int) -> str:
    """As llama.cpp prints it; `layers` are all of the model's, not the recurrent ones alone.

    >>> state_line(Counter({State(30720, 786432): 48}), 64, 1)
    'size =  149.62 MiB (     1 cells,  64 layers,  1 seqs), R (f32):    5.62 MiB, S (f32):  144.00 MiB'
    """
    shifted, summed = (part / MIB for part in state_parts(states, sequences))
    return (
        f"size = {shifted + summed:7.2f} MiB ({sequences:6d} cells, {layers:3d} layers, {sequences:2d} seqs), "
        f"R (f32): {shifted:7.2f} MiB, S (f32): {summed:7.2f} MiB"
    )
