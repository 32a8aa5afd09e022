"""The index of sparse attention: small keys of every token that choose which tokens a query reads."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from roofcast.modelspec.errors import MalformedModelError
from roofcast.modelspec.matrix import Matrix
from roofcast.modelspec.state import CACHE, Kept
from roofcast.modelspec.work import causal_pairs

if TYPE_CHECKING:
    from roofcast.modelspec.config import Config


@dataclass(frozen=True, slots=True)
class Indexer:
    """Index heads that score every earlier token, one key for all of them, and the tokens that they select.

    Args:
        heads, head_dim: index query heads, and the width of a head and of the shared key.
        selected: tokens that a query goes on to read. [token]
        query_width: width that the index queries are projected from; 0 is the residual's.
        norm_parameters: of the norms on index queries and keys, and of scales on queries.
        weighted: whether each head's score has a learned weight, h to `heads`.
        pool: tokens whose keys are pooled into one before they are scored. [token]
        gated: whether learned scores weigh the keys of a pool; else it is their mean.
        format: format that the keys are kept in.
    """

    heads: int
    head_dim: int
    selected: int
    query_width: int = 0
    norm_parameters: int = 0
    weighted: bool = True
    pool: int = 1
    gated: bool = False
    format: str = CACHE

    @property
    def state(self) -> tuple[Kept, ...]:
        """One key a token: what is selected limits what is read, not what is kept.

        The reference implementation pools anew in every step, from the keys of single tokens: where scores weigh them
        it keeps these too, as wide as the key, and whether the token counts, so 2 d_index + 1.

        >>> Indexer(32, 128, 2048, pool=16, gated=True).state[0].elements  # GLM-5.3-Flash
        257
        """
        return (Kept(1, (2 * self.head_dim + 1) if self.gated else self.head_dim, format=self.format),)

    @property
    def reads(self) -> tuple[Kept, ...]:
        """What one new token scores: one key for every pool of tokens, whole whatever is selected then.

        As an engine reads that keeps the pools it has filled; the reference implementation pools all tokens anew.

        >>> Indexer(32, 128, 2048, pool=16, gated=True).reads[0].entries(4096)
        256
        """
        return (Kept(1, self.head_dim, per=self.pool, format=self.format),)

    def parameters(self, hidden: int) -> int:
        """Projections of index queries and of the key, norms and head weights: r n d + h d + norms + h n. [parameter]

        Scores of pooled keys add h d and a bias a position of a pool, p d.

        >>> Indexer(64, 128, 2048, query_width=1536, norm_parameters=256).parameters(7168)  # DeepSeek-V3.2
        13959424
        """
        queries = (self.query_width or hidden) * self.heads * self.head_dim
        scores = (hidden + self.pool) * self.head_dim * self.gated
        return queries + hidden * self.head_dim + self.norm_parameters + hidden * self.heads * self.weighted + scores

    def matrices(self, hidden: int) -> tuple[Matrix, ...]:
        """Index queries, the key, the heads' weights and scores of a pool, which two are kept in full precision.

        Beside GQA there are no heads' weights; an index of means has queries and key in one matrix.

        >>> [m.name for m in Indexer(64, 128, 2048, query_width=1536).matrices(7168)]
        ['indexer.wq_b', 'indexer.wk', 'indexer.weights_proj']
        """
        rows, size, inputs = self.heads * self.head_dim, self.head_dim, self.query_width or hidden
        if not self.weighted and self.pool > 1 and inputs == hidden:
            made = [Matrix("indexer.index_qk_proj", rows + size, hidden)]
        else:
            names = ("indexer.wq_b", "indexer.wk") if self.weighted else ("index_q_proj", "index_k_proj")
            made = [Matrix(names[0], rows, inputs), Matrix(names[1], size, hidden)]
        made.append(Matrix("indexer.weights_proj", self.heads * self.weighted, hidden, linear=False))
        made.append(Matrix("indexer.index_kpool_compress_gate", size * self.gated, hidden, linear=False))
        return tuple(matrix for matrix in made if matrix.elements)

    def prefill_flops(self, tokens: float) -> float:
        """FLOP of scoring every causal pair of a query and a pool: 2 pairs n_index d_index / p. [FLOP]

        Source: DeepSeek-V3.2, arXiv:2512.02556, section 2.1.
        """
        return 2 * causal_pairs(tokens, None) * self.heads * self.head_dim / self.pool

    def decode_flops(self, context: float) -> float:
        """FLOP of scoring every pool for one new token: 2 C n_index d_index / p. [FLOP]

        Source: DeepSeek-V3.2, arXiv:2512.02556, section 2.1.

        >>> Indexer(64, 128, 2048).decode_flops(65536) / 1e9
        1.073741824
        """
        return 2 * context * self.heads * self.head_dim / self.pool


def latent_indexer(config: Config) -> Indexer:
    """The indexer beside MLA: queries from the query latent, a LayerNorm on the key; GLM-5.3 pools its keys.

    Without a latent, queries may have a LayerNorm on their input, and a scale and a bias a head by position.
    """
    head_dim, heads = config.size("index_head_dim"), config.size("index_n_heads")
    scaled = config.size("hidden") + heads if config.trait_value("scaled_queries") else 0
    pooled = config.raw.get("index_kpool") is not None
    if pooled:
        _check_pools(config)
    return Indexer(
        heads=heads,
        head_dim=head_dim,
        selected=config.size("index_topk"),
        query_width=config.optional_size("q_lora_rank") or 0,
        norm_parameters=2 * (head_dim + scaled),
        pool=config.size("index_kpool", 1),
        gated=pooled,
        format=config.trait_value("index_format", CACHE),
    )


def _check_pools(config: Config) -> None:
    """Refuses what the class of pooled keys itself refuses: half a pool selected, KV heads beside the latent."""
    _pools(config, "index_topk", "index_kpool")
    heads, kv_heads = config.size("query_heads"), config.size("kv_heads", config.size("query_heads"))
    if heads != kv_heads:
        msg = f"num_key_value_heads is {kv_heads}; with one latent for all it must be num_attention_heads, {heads}"
        raise MalformedModelError(msg)


def _pools(config: Config, selected: str, pool: str) -> None:
    """Refuses a pool that does not divide what is selected."""
    if config.size(selected) % config.size(pool):
        msg = f"{pool} {config.size(pool)} does not divide {selected} {config.size(selected)}"
        raise MalformedModelError(msg)


def mean_indexer(config: Config) -> Indexer:
    """The index beside GQA that scores means of keys (QSA): queries and the key in one projection, a norm on each."""
    head_dim = config.size("indexer_head_dim")
    _pools(config, "indexer_budget", "indexer_compress_ratio")
    if config.size("indexer_kv_heads") != 1:
        msg = f"indexer_kv_heads is {config.size('indexer_kv_heads')}; it must be 1: all index queries share one key"
        raise MalformedModelError(msg)
    return Indexer(
        heads=config.size("indexer_n_heads"),
        head_dim=head_dim,
        selected=config.size("indexer_budget"),
        norm_parameters=2 * head_dim,
        weighted=False,
        pool=config.size("indexer_compress_ratio"),
    )


def block_indexer(config: Config) -> Indexer:
    """The index branch beside GQA that selects blocks: `sparse_attention_config`."""
    sparse = config.block("sparse_attention_config")
    head_dim = sparse.size("sparse_index_dim")
    return Indexer(
        heads=sparse.size("sparse_num_index_heads"),
        head_dim=head_dim,
        selected=sparse.size("sparse_topk_blocks") * sparse.size("sparse_block_size"),
        norm_parameters=2 * head_dim,
        weighted=False,
    )
