"""The index of sparse attention: small keys of every token that choose which tokens a query reads."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from roofcast.modelspec.state import Kept, per_token
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
    """

    heads: int
    head_dim: int
    selected: int
    query_width: int = 0
    norm_parameters: int = 0
    weighted: bool = True

    @property
    def state(self) -> tuple[Kept, ...]:
        """One key a token: what is selected limits what is read, not what is kept."""
        return (per_token(1, self.head_dim),)

    def parameters(self, hidden: int) -> int:
        """Projections of index queries and of the key, norms and head weights: r n d + h d + norms + h n. [parameter]

        >>> Indexer(64, 128, 2048, query_width=1536, norm_parameters=256).parameters(7168)  # DeepSeek-V3.2
        13959424
        """
        queries = (self.query_width or hidden) * self.heads * self.head_dim
        return queries + hidden * self.head_dim + self.norm_parameters + hidden * self.heads * self.weighted

    def prefill_flops(self, tokens: float) -> float:
        """FLOP of scoring every causal pair: 2 pairs n_index d_index. [FLOP]

        Source: DeepSeek-V3.2, arXiv:2512.02556, section 2.1.
        """
        return 2 * causal_pairs(tokens, None) * self.heads * self.head_dim


def latent_indexer(config: Config) -> Indexer:
    """The indexer beside MLA: queries from the query latent, a LayerNorm on the key.

    Without a latent, queries may have a LayerNorm on their input, and a scale and a bias a head by position.
    """
    head_dim, heads = config.size("index_head_dim"), config.size("index_n_heads")
    scaled = config.size("hidden") + heads if config.trait_value("scaled_queries") else 0
    return Indexer(
        heads=heads,
        head_dim=head_dim,
        selected=config.size("index_topk"),
        query_width=config.optional_size("q_lora_rank") or 0,
        norm_parameters=2 * (head_dim + scaled),
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
