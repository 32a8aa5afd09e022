"""Attention over compressed tokens: one entry stands for many, beside a sliding window of plain ones (DeepSeek-V4)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Self

from roofcast.modelspec.errors import MalformedModelError, UnknownArchitectureError
from roofcast.modelspec.indexer import Indexer
from roofcast.modelspec.matrix import Matrix
from roofcast.modelspec.plan import Slot, per_layer
from roofcast.modelspec.state import MODEL, Kept, fixed, per_token
from roofcast.modelspec.work import attended, causal_pairs

if TYPE_CHECKING:
    from roofcast.modelspec.config import Config

OVERLAPPING: int = 4  # the ratio whose blocks overlap, and whose entries an index selects
RATIOS_BY_NAME: Final = {
    "sliding_attention": 0,
    "compressed_sparse_attention": OVERLAPPING,
    "heavily_compressed_attention": 128,
}
KINDS_BY_RATIO = {0: "SWA", OVERLAPPING: "CSA", 128: "HCA"}


@dataclass(frozen=True, slots=True)
class CompressedAttention:
    """Queries see a window of single tokens and, farther back, entries that stand for `ratio` tokens each.

    One vector of head_dim serves as key and as value, for all heads.

    Args:
        query_heads, head_dim: of Q.
        q_lora_rank: width of the query latent.
        output_groups, output_rank: of the grouped output projection.
        sliding_window: tokens kept one by one. [token]
        ratio: tokens an entry stands for: 0 is none, 4 compressed sparse (CSA), 128 heavily compressed (HCA).
        index_heads, index_head_dim, index_selected: of the index over the entries of ratio 4.
    """

    query_heads: int
    head_dim: int
    q_lora_rank: int
    output_groups: int
    output_rank: int
    sliding_window: int
    ratio: int
    index_heads: int
    index_head_dim: int
    index_selected: int

    @property
    def label(self) -> str:
        """CSA, HCA or, without compression, SWA."""
        return KINDS_BY_RATIO[self.ratio]

    @property
    def published_kv_heads(self) -> int:
        """One vector for all heads."""
        return 1

    @property
    def window(self) -> int | None:
        """The window bounds what is seen only where nothing is compressed. [token]"""
        return None if self.ratio else self.sliding_window

    @property
    def indexed(self) -> bool:
        """Whether an index selects entries."""
        return self.ratio == OVERLAPPING

    @property
    def state(self) -> tuple[Kept, ...]:
        """Window, compressed entries and the tokens that wait to be compressed.

        W - 1 single tokens of d (the token that a step adds is the W-th), twice d without compression, where the
        reference implementation keeps key and value apart though they are equal; floor(T / r) entries of d, and of
        d_index under an index; waiting: 2 r (d + d_index) for overlapping blocks of ratio 4, and up to r - 1 tokens
        of 2 d (values and gates) for ratio 128.

        Source: DeepSeek-V4 technical report, section on compressed attention; its reference implementation keeps
        these tensors.

        >>> [part.elements for part in CompressedAttention(64, 512, 1024, 8, 1024, 128, 4, 64, 128, 512).state]
        [512, 640, 5120]
        """
        entries = (per_token(1, self._entry_width, per=self.ratio),) if self.ratio else ()
        return (self._single, *entries, *self._waiting)

    @property
    def reads(self) -> tuple[Kept, ...]:
        """Window and waiting tokens as kept; entries, under an index those selected; and the index's keys of all.

        >>> csa = CompressedAttention(64, 512, 1024, 8, 1024, 128, 4, 64, 128, 512)
        >>> [(part.elements, part.entries(65536)) for part in csa.reads]
        [(512, 127), (512, 512), (128, 16384), (5120, 1)]
        """
        entries = (per_token(1, self.head_dim, self._selected, self.ratio),) if self.ratio else ()
        index = (per_token(1, self.index_head_dim, per=self.ratio),) if self.indexed else ()
        return (self._single, *entries, *index, *self._waiting)

    @property
    def _entry_width(self) -> int:
        return self.head_dim + self.index_head_dim * self.indexed

    @property
    def _selected(self) -> int | None:
        """Tokens that the entries which an index selects stand for; None where all entries are read. [token]"""
        return self.index_selected * self.ratio if self.indexed else None

    @property
    def _single(self) -> Kept:
        return per_token(1, self.head_dim * (1 if self.ratio else 2), self.sliding_window - 1)

    @property
    def _waiting(self) -> tuple[Kept, ...]:
        if not self.ratio:
            return ()
        if self.indexed:
            return (fixed(1, 2 * self.ratio * self._entry_width),)
        return (Kept(1, 2 * self.head_dim, cap=self.ratio - 1, format=MODEL),)

    def parameters(self, hidden: int) -> int:
        """Projections of queries, of the shared key-value vector, output groups, sinks, compressor and index.

        h r_q + r_q + r_q n d  +  h d + d  +  n d r_o + g r_o h  +  n, and with c = 2 for overlapping blocks, else 1:
        a compressor of 2 h c d + r c d + d; the index has a compressor of its own width and r_q n_i d_i + h n_i.
        [parameter]
        """
        rank, width = self.q_lora_rank, self.query_heads * self.head_dim
        query = hidden * rank + rank + rank * width
        shared = hidden * self.head_dim + self.head_dim
        output = width * self.output_rank + self.output_groups * self.output_rank * hidden
        return query + shared + output + self.query_heads + self._compressors(hidden)

    def _compressors(self, hidden: int) -> int:
        if not self.ratio:
            return 0
        copies = 2 if self.indexed else 1
        own = _compressor(hidden, self.head_dim, copies, self.ratio)
        if not self.indexed:
            return own
        queries = self.q_lora_rank * self.index_heads * self.index_head_dim
        return own + _compressor(hidden, self.index_head_dim, copies, self.ratio) + queries + hidden * self.index_heads

    def matrices(self, hidden: int) -> tuple[Matrix, ...]:
        """Queries, shared key and value, the output's groups, compressor and index, named as published files do.

        Published files keep compressors and the heads' weights in full precision.

        >>> [m.name for m in CompressedAttention(64, 512, 1024, 8, 1024, 128, 0, 64, 128, 512).matrices(4096)][1:4]
        ['self_attn.wq_b', 'self_attn.wkv', 'self_attn.wo_a']
        """
        rank, width, groups = self.q_lora_rank, self.query_heads * self.head_dim, self.output_groups
        made = [Matrix("wq_a", rank, hidden), Matrix("wq_b", width, rank), Matrix("wkv", self.head_dim, hidden)]
        grouped = groups * self.output_rank
        made += [Matrix("wo_a", grouped, width // groups), Matrix("wo_b", hidden, grouped)]
        if self.ratio:
            made += _compressor_matrices("compressor", self.head_dim * (1 + self.indexed), hidden)
        if self.indexed:
            made += [
                Matrix("indexer.wq_b", self.index_heads * self.index_head_dim, rank),
                Matrix("indexer.weights_proj", self.index_heads, hidden, linear=False),
                *_compressor_matrices("indexer.compressor", 2 * self.index_head_dim, hidden),
            ]
        return tuple(matrix.under("self_attn") for matrix in made)

    def prefill_flops(self, tokens: float) -> float:
        """FLOP of scores and values: over the window, and over the entries, or those that the index selects. [FLOP]"""
        pairs = causal_pairs(tokens, self.sliding_window)
        index = 0.0
        if self.ratio:
            pairs += causal_pairs(tokens, self._selected) / self.ratio
            index = self.index.prefill_flops(tokens) if self.index else 0.0
        return 4 * pairs * self.query_heads * self.head_dim + index

    def decode_flops(self, context: float) -> float:
        """FLOP of scores and values for one new token: 4 n_q d (min(C, W) + min(C / r, k)), and the index's. [FLOP]

        C is the context, r the ratio; of C / r entries an index, which scores them all by 2 C / r n_i d_i, selects k.

        >>> CompressedAttention(64, 512, 1024, 8, 1024, 128, 4, 64, 128, 512).decode_flops(65536) / 1e6
        352.321536
        """
        pairs, index = attended(context, self.sliding_window), 0.0
        if self.ratio:
            pairs += attended(context, self._selected) / self.ratio
            index = self.index.decode_flops(context) if self.index else 0.0
        return 4 * pairs * self.query_heads * self.head_dim + index

    @property
    def index(self) -> Indexer | None:
        """What scores the entries, `ratio` tokens each; None where none is chosen."""
        if not self.indexed:
            return None
        return Indexer(self.index_heads, self.index_head_dim, self.index_selected, self.q_lora_rank, pool=self.ratio)

    def splits(self, tp: int) -> bool:
        """Whether `tp` devices can share the query heads."""
        return self.query_heads % tp == 0

    @classmethod
    def read(cls, config: Config, layer: int) -> Self:
        """One layer's, by its entry in `compress_ratios`, or by its name in `layer_types`.

        Raises:
            UnknownArchitectureError: a ratio that is not understood.
            MalformedModelError: groups of the output projection that do not divide the heads' width.
        """
        heads, head_dim, groups = config.size("query_heads"), config.size("head_dim"), config.size("o_groups")
        if heads * head_dim % groups:
            msg = f"o_groups {groups} does not divide num_attention_heads x head_dim {heads * head_dim}"
            raise MalformedModelError(msg)
        return cls(
            query_heads=heads,
            head_dim=head_dim,
            q_lora_rank=config.size("q_lora_rank"),
            output_groups=groups,
            output_rank=config.size("o_lora_rank"),
            sliding_window=config.size("window"),
            ratio=_ratio(config, layer),
            index_heads=config.size("index_n_heads"),
            index_head_dim=config.size("index_head_dim"),
            index_selected=config.size("index_topk"),
        )


def read_compressed(config: Config, slot: Slot, role: str) -> CompressedAttention:
    """One layer of compressed attention; its role is its ratio's."""
    del role
    return CompressedAttention.read(config, slot.layer or 0)


def _compressor(hidden: int, width: int, copies: int, ratio: int) -> int:
    """Two projections (values, gates), a bias for each position of a block, a norm."""
    return 2 * hidden * copies * width + ratio * copies * width + width


def _compressor_matrices(name: str, rows: int, hidden: int) -> tuple[Matrix, ...]:
    return tuple(Matrix(f"{name}.{part}", rows, hidden, linear=False) for part in ("wkv", "wgate"))


def _ratio(config: Config, layer: int) -> int:
    """Tokens that one entry of a layer stands for: its entry in compress_ratios, else its name in layer_types."""
    ratios = config.raw.get("compress_ratios")
    if ratios is None:
        ratio = _named_ratio(config, layer)
    elif isinstance(ratios, list) and layer < len(ratios):
        ratio = ratios[layer]
    else:
        length = f"{len(ratios)} entries" if isinstance(ratios, list) else "no list"
        msg = f"compress_ratios is {length}; it must list one for each layer, layer {layer} included"
        raise MalformedModelError(msg)
    if type(ratio) is not int or ratio not in KINDS_BY_RATIO:
        key = "compress_rates" if ratios is None else "compress_ratios"
        msg = f"{key} has {str(ratio)[:40]!r}, which roofcast does not understand; it knows 0, 4, 128"
        raise UnknownArchitectureError(msg)
    return ratio


def _named_ratio(config: Config, layer: int) -> Any:  # noqa: ANN401 - checked by who asks
    """As transformers 5 writes it: a name a layer, and a ratio a name; draft layers have none and only slide."""
    count = config.size("layers")
    name = str(per_layer(config, "layer_types", count)[layer]) if layer < count else "sliding_attention"
    return config.block("compress_rates").raw.get(name, RATIOS_BY_NAME.get(name, name))
