"""What attention needs of memory beside its inputs and its output: scores, their copies, and statistics of rows."""

from __future__ import annotations

from typing import Final

SINGLE: Final = 4  # bytes of fp32
ALIGNED: Final = 32  # rows that memory-efficient attention rounds up to: kAlignLSE


def score_bytes(batch: int, heads: int, tokens: int, element: float) -> float:
    """One score matrix of every head, as the textbook's standard attention keeps it: batch x n_q x N^2 x b. [B]

    Args:
        batch: sequences.
        heads: query heads.
        tokens: N. [token]
        element: b, of the inputs' format. [B]

    Source: Dao et al. 2022, arXiv:2205.14135, section 2.2.

    >>> score_bytes(1, 12, 16384, 2) / 2**30  # 12 x 2^28 x 2 = 6 x 2^30
    6.0
    """
    return batch * heads * float(tokens) ** 2 * element


def math_score_bytes(batch: int, heads: int, tokens: int) -> float:
    """The score matrix of PyTorch's math backend, which computes fp16 and bf16 in fp32: batch x n_q x N^2 x 4. [B]

    With torch.backends.cuda.allow_fp16_bf16_reduction_math_sdp(True) it is in 16 bits, half of it.

    Args:
        batch: sequences.
        heads: query heads.
        tokens: N. [token]

    Source: pytorch/pytorch, aten/src/ATen/native/transformers/attention.cpp, _scaled_dot_product_attention_math.

    >>> math_score_bytes(1, 12, 16384) / 2**30
    12.0
    """
    return score_bytes(batch, heads, tokens, SINGLE)


def math_peak_bytes(batch: int, heads: int, tokens: int) -> float:
    """Scores and their softmax of PyTorch's math backend, a tensor each and there at once: 2 x batch x n_q x N^2 x 4. [B]

    Copies of K and V for every query head of a group, of the inputs in fp32, and of a causal mask are not in it.

    Args:
        batch: sequences.
        heads: query heads.
        tokens: N. [token]

    Source: pytorch/pytorch, aten/src/ATen/native/transformers/attention.cpp, _scaled_dot_product_attention_math.

    >>> math_peak_bytes(1, 12, 16384) / 2**30
    24.0
    """
    return 2 * math_score_bytes(batch, heads, tokens)


def logsumexp_bytes(batch: int, heads: int, tokens: int) -> float:
    """What FlashAttention keeps beside its output: a logsumexp a row, batch x n_q x N x 4. [B]

    Args:
        batch: sequences.
        heads: query heads.
        tokens: N. [token]

    Source: Dao 2023, arXiv:2307.08691, section 3.1; softmax_lse of csrc/flash_attn/flash_api.cpp.

    >>> logsumexp_bytes(1, 12, 16384) / 2**10
    768.0
    """
    return SINGLE * batch * heads * tokens


def efficient_bytes(batch: int, heads: int, tokens: int) -> float:
    """What memory-efficient attention keeps for gradients, rows in 32s: batch x n_q x 32 ceil(N / 32) x 4. [B]

    Without gradients it keeps nothing.

    Args:
        batch: sequences.
        heads: query heads.
        tokens: N. [token]

    Source: pytorch/pytorch, aten/src/ATen/native/transformers/cuda/attention.cu, compute_logsumexp and kAlignLSE.

    >>> efficient_bytes(1, 12, 16385) / 12
    65664.0
    """
    return logsumexp_bytes(batch, heads, -(-tokens // ALIGNED) * ALIGNED)


def split_workspace_bytes(rows: int, each: float, splits: int) -> float:
    """What a split decode writes for its last step to combine: s x rows x a row's part, nothing with one split. [B]

    A part is 4 (d_v + 1) bytes, an output in fp32 and its logsumexp; of PagedAttention b d_v + 8. Rows are batch x query
    heads x new tokens.

    Args:
        rows: of queries over all sequences and heads.
        each: of one row of one split. [B]
        splits: s, of K and V.

    Source: Dao-AILab/flash-attention, csrc/flash_attn/flash_api.cpp: softmax_lse_accum and out_accum.

    >>> split_workspace_bytes(16, partial_bytes(128), 103)  # 103 x 16 x 129 x 4
    850368.0
    """
    return splits * rows * each if splits > 1 else 0.0


def partial_bytes(width: float) -> float:
    """A row's part of one split: an output of d_v elements and its logsumexp in fp32, 4 (d_v + 1). [B]

    Args:
        width: d_v, as the kernel rounds it. [element]

    >>> partial_bytes(128)
    516.0
    """
    return (width + 1.0) * SINGLE
