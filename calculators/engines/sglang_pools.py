"""SGLang's pools: tokens of layers that keep all, tokens of window layers, and slots of recurrent states."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from roofcast.calculators.deployment import fullest_stage
from roofcast.calculators.engines.terms import Group
from roofcast.modelspec.cached import entry_bytes
from roofcast.modelspec.state import MODEL

if TYPE_CHECKING:
    from collections.abc import Iterator

    from roofcast.calculators.deployment import Ready
    from roofcast.modelspec.attention import Attention
    from roofcast.modelspec.formats import Format
    from roofcast.modelspec.spec import ModelSpec
    from roofcast.modelspec.state import Kept

# a token of a layer of MLA beside a sparse index, in 8 bits: 512 B in fp8, 4 scales of 4 B, 64 x 2 B of rotated keys
SPARSE_LATENT: Final = 656.0
INDEX: Final = 132.0  # an index's key: 128 B in fp8 and a scale of 4 B, whatever the cache's format
EIGHT: Final = 8


@dataclass(frozen=True, slots=True)
class Cells:
    """What one token, or one request's state, takes of each pool on one device.

    Args:
        full: a token in all layers that keep every token. [B/token]
        window: a token in all layers of the pool of windows; 0 where there is none. [B/token]
        state: a slot of recurrent states of all layers; 0 without. [B]
        reach: tokens that the widest window keeps. [token]
        groups: the pools by what they keep.
    """

    full: float
    window: float
    state: float
    reach: int
    groups: tuple[Group, ...]


@dataclass(frozen=True, slots=True)
class Split:
    """How the memory is divided.

    Args:
        window: tokens of the windows' pool for one of the full pool (swa_full_tokens_ratio). [-]
        state: bytes of states for one of keys and values (mamba_full_memory_ratio). [-]
        page: tokens of a page. [token]
        slots: slots of states that one running request takes.
        drafted: tokens drafted a step, each of which takes a state of every running request.
    """

    window: float
    state: float
    page: int
    slots: int
    drafted: int = 0


@dataclass(frozen=True, slots=True)
class Pools:
    """The pools as requests find them.

    Args:
        cells: what a token takes.
        page: tokens of a page. [token]
        tokens: of the full pool; of a model without keys and values 0. [token]
        window_tokens: of the windows' pool; None without. [token]
        slots, per_request: slots of states, and how many a running request takes; None without.
        running: requests at once that the scheduler allows.
    """

    cells: Cells
    page: int
    tokens: int
    window_tokens: int | None = None
    slots: int | None = None
    per_request: int = 1
    running: int | None = None

    @property
    def most(self) -> int | None:
        """Requests at once, whatever fits; None where nothing bounds them."""
        return self.running

    @property
    def kv_bytes(self) -> float:
        """Keys and values of both pools. [B]"""
        return self.tokens * self.cells.full + (self.window_tokens or 0) * self.cells.window

    @property
    def state_bytes(self) -> float:
        """All slots of states. [B]"""
        return (self.slots or 0) * self.cells.state

    def sequences(self, context: int) -> int:
        """Requests of so many tokens at once: the least that a pool, the slots or the scheduler allow.

        Tokens are rounded up to pages; of windows at most the window and a page are kept.

        >>> cells = Cells(100.0, 50.0, 0.0, 1024, ())
        >>> Pools(cells, 1, 10_000, 8_000).sequences(2048), Pools(cells, 1, 10_000, 8_000, running=3).sequences(2048)
        (4, 3)
        """
        limits = [self.running, None if self.slots is None else self.slots // self.per_request]
        if self.cells.full:
            limits.append(self.tokens // self._pages(context))
        if self.window_tokens is not None:
            limits.append(self.window_tokens // self._pages(min(context, self.cells.reach + self.page)))
        return min((limit for limit in limits if limit is not None), default=0)

    def sequence_bytes(self, context: int) -> float:
        """What one of them takes on one device: pages of both pools, and its slots. [B]"""
        window = self._pages(min(context, self.cells.reach + self.page)) * (self.window_tokens is not None)
        return self._pages(context) * self.cells.full + window * self.cells.window + self.per_request * self.cells.state

    def _pages(self, tokens: int) -> int:
        """Tokens of whole pages. [token]"""
        return max(1, -(-tokens // self.page)) * self.page


def read_cells(ready: Ready, tp: int, *, windows: bool, drafting: bool) -> Cells:
    """What a token takes on one device of `tp` that share the heads: n_kv (d_k + d_v) b or (d_c + d_rope) b a layer.

    Layers that read an earlier layer's keys have room in the pool all the same.

    Args:
        ready: the model on its machine.
        tp: devices that share the heads.
        windows: whether window layers have a pool of their own.
        drafting: whether the layers of multi-token prediction are in the pool.
    """
    spec, kv = ready.model.spec, ready.deployment.kv
    spec = replace(spec, drafting=True) if drafting and spec.draft else spec
    stage = fullest_stage(ready.model.spec, ready.deployment.shards)
    every = tuple(_kept(spec, kv, tp))
    apart = windows and any(one.cap is None for one in every if one.cap != 0) and any(one.cap for one in every)
    sums: dict[str, float] = defaultdict(float)
    layers: Counter[str] = Counter()
    for one in every:
        name = "state" if one.cap == 0 else "sliding" if apart and one.cap else "full"
        sums[name] += one.bytes * one.count
        layers[name] += one.count
    groups = tuple(Group(name, n, 0, sums[name] / n, None) for name, n in layers.items() if n)
    reach = max((one.cap or 0 for one in every), default=0)
    return Cells(sums["full"] * stage, sums["sliding"] * stage, sums["state"] * stage, reach, groups)


@dataclass(frozen=True, slots=True)
class _Layer:
    """What equal layers keep: bytes of a token or a state, its cap (None is none, 0 a state), and how many there are."""

    bytes: float
    cap: int | None
    count: int


def _kept(spec: ModelSpec, kv: Format, tp: int) -> Iterator[_Layer]:
    """Mixers of every layer: what a token takes, and what a state does."""
    sparse = any(_indexed(mixer) for layer in spec.layer_counts for mixer in layer.mixers)
    for layer, count in spec.layer_counts.items():
        for mixer in layer.mixers:
            parts = _own(mixer).state
            growing = [part for part in parts if not part.fixed]
            if growing:
                token = _latent(mixer, kv) if sparse and hasattr(mixer, "kv_lora_rank") else None
                each = sum(entry_bytes(part, kv, tp) / part.per for part in growing) if token is None else token
                cap = next((part.cap for part in growing if part.cap is None), growing[0].cap)
                yield _Layer(each, cap, count * layer.passes)
            fixed = sum(_columns(mixer, part) * entry_bytes(part, kv, tp) for part in parts if part.fixed)
            if fixed:
                yield _Layer(fixed, 0, count * layer.passes)


def _own(mixer: Attention) -> Attention:
    """The mixer as the pool has room for it: with keys and values of its own."""
    return replace(mixer, stores=True) if getattr(mixer, "stores", True) is False else mixer  # type: ignore[type-var]


def _indexed(mixer: Attention) -> bool:
    """Whether a sparse index chooses what a layer of MLA reads."""
    return hasattr(mixer, "kv_lora_rank") and bool(getattr(mixer, "index", None))


def _latent(mixer: Attention, kv: Format) -> float:
    """A token of MLA beside a sparse index, and the index's key, which every layer has room for. [B/token]"""
    width: int = getattr(mixer, "elements_per_token", 0)
    return (SPARSE_LATENT if kv.bits == EIGHT else width * kv.bytes_per_element) + INDEX


def _columns(mixer: Attention, part: Kept) -> float:
    """Share of a state that is kept: of a convolution's c columns c - 1. [-]

    Source: 153.9 MB a slot of Qwen3.8-27B in fp32, 48 layers x (3,145,728 + 10,240 x 3 columns x 2) B, as
    https://docs.sglang.io/cookbook/autoregressive/Qwen/Qwen3.8-27B states it.
    """
    kernel = getattr(mixer, "conv_kernel", 0)
    return (kernel - 1) / kernel if kernel > 1 and part.format == MODEL else 1.0


def fill(cells: Cells, rest: float, split: Split, running: int | None) -> Pools:
    """Divides the rest of the memory: states first, R / (1 + R) of it, then whole pages of keys and values.

    A slot counts 1 + d / s where d tokens are drafted, whose states requests that run keep beside theirs.

    Args:
        cells: what a token takes.
        rest: memory for all pools. [B]
        split: ratios r and R, pages, slots a request, s, and drafted tokens, d.
        running: requests at once that were asked for; None is as many as fit.

    >>> cells = Cells(4096.0 * 5, 8192.0 * 25, 0.0, 1024, ())  # Gemma 4 26B-A4B in bf16: 184,320 B a token
    >>> pools = fill(cells, 184_320 * 1000.0, Split(0.8, 0.9, 1, 3), None)
    >>> pools.tokens, pools.window_tokens
    (1000, 800)
    """
    rest = max(0.0, rest)
    if not cells.state:
        return hold(cells, rest, split, None)
    share = split.state / (1 + split.state) if cells.full else 1.0
    slots = int(rest * share // (cells.state * (1 + split.drafted / split.slots)))
    drafting = min(slots // split.slots, running or slots)
    return hold(cells, max(0.0, rest - cells.state * (slots + drafting * split.drafted)), split, slots)


def hold(cells: Cells, kv: float, split: Split, slots: int | None) -> Pools:
    """Pools of so many bytes of keys and values: full = kv / (F + r S) tokens, and r full in the windows' pool.

    Source: sgl-project/sglang, pool_configurator.py; pull request 18039.

    Args:
        cells: what a token takes, F in layers that keep all, S in those of windows. [B/token]
        kv: memory of keys and values. [B]
        split: ratio r and the page.
        slots: of recurrent states; None without.
    """
    each = cells.full + split.window * cells.window
    tokens = int(kv // each) // split.page * split.page if each else 0
    windows = int(tokens * split.window) // split.page * split.page if cells.window else None
    return Pools(cells, split.page, tokens, windows, slots, split.slots)
