"""Attention measured on a device; standard, online softmax and PyTorch's own held against each other and against fp64."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from roofcast.calculators.attention import CheckResult, CheckRow
from roofcast.calculators.errors import UnansweredError
from roofcast.calculators.profiled import AttentionPoint
from roofcast.profiler.attention_call import HeadShape, Timed, decode_call, prefill_call, split_call
from roofcast.profiler.errors import ProfileUsageError, UnavailableError
from roofcast.profiler.sdpa_choice import BACKENDS
from roofcast.profiler.sweep import Task, sweep

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from roofcast.profiler.runtime import Runtime
    from roofcast.profiler.sweep import Swept, Watch
    from roofcast.profiler.timing import Budget

TOKENS: Final = 2048
HEADS: Final = 4
HEAD_DIM: Final = 64
BLOCK: Final = 128  # keys at once
MOST_ERROR: Final = 2e-6  # off fp64, of results near 1: some ten roundings of fp32
MOST_DIFFERENCE: Final = 1e-5
PREFILL: Final = "prefill"
DECODE: Final = "decode"
SPLIT: Final = "split_kv"  # the profiler's own kernels
FORMATS: Final = ("bf16", "fp16", "fp32")


@dataclass(frozen=True, slots=True)
class AttentionPlan:
    """What of attention is measured.

    Args:
        heads: of every point.
        lengths: of prompts, one at a time. [token]
        batches, contexts: of decode, each with each. [sequence], [token]
    """

    heads: HeadShape
    lengths: tuple[int, ...] = ()
    batches: tuple[int, ...] = ()
    contexts: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        heads = self.heads
        if min(heads.query, heads.kv, heads.dim) < 1 or heads.query % heads.kv:
            raise ProfileUsageError(
                f"{heads.query} query heads over {heads.kv} KV heads of {heads.dim}: the first must be a multiple of the second"
            )
        if heads.format not in FORMATS:
            raise ProfileUsageError(f"attention in {heads.format}: PyTorch's backends take {', '.join(FORMATS)}")
        if min((*self.lengths, *self.batches, *self.contexts), default=1) < 1:
            raise ProfileUsageError("attention of no token: lengths, batches and contexts are 1 and more")


def profile_attention(
    runtime: Runtime, plan: AttentionPlan, budget: Budget, watch: Watch | None = None
) -> Swept[AttentionPoint]:
    """Measures every backend at every length, batch and context; one that cannot run is a point that says why.

    Raises:
        WrongOutputError: a result is wrong.
    """
    from roofcast.profiler.kernel_choice import choose_kernels  # noqa: PLC0415 - needs torch

    heads, kernels = plan.heads, choose_kernels(runtime)
    prompts = [
        _task(runtime, heads, (PREFILL, name, 1, length), partial(prefill_call, runtime, heads, length, name))
        for length in plan.lengths
        for name in BACKENDS
    ]
    tokens = [
        _task(
            runtime, heads, (DECODE, name, batch, context), partial(decode_call, runtime, heads, batch, context, name)
        )
        if name != SPLIT
        else _task(
            runtime, heads, (DECODE, name, batch, context), partial(split_call, runtime, heads, batch, context, kernels)
        )
        for batch in plan.batches
        for context in plan.contexts
        for name in (*BACKENDS, SPLIT)
    ]
    return sweep([*prompts, *tokens], budget, watch)


def _task(
    runtime: Runtime, heads: HeadShape, at: tuple[str, str, int, int], measure: Callable[[], Timed]
) -> Task[AttentionPoint]:
    phase, backend, batch, length = at

    def point(timed: Timed | None, problem: str | None = None) -> AttentionPoint:
        return AttentionPoint(
            phase=phase,
            backend=backend,
            format=heads.format,
            batch=batch,
            query_heads=heads.query,
            kv_heads=heads.kv,
            head_dim=heads.dim,
            length=length,
            sample=timed.sample if timed else None,
            extra_bytes=timed.extra_bytes if timed else None,
            problem=problem,
            note=timed.note if timed else "",
        )

    def run() -> AttentionPoint:
        try:
            with runtime.torch.inference_mode():
                return point(measure())
        except UnavailableError as error:
            return point(None, str(error).removeprefix(f"{backend}: "))
        finally:
            runtime.release()

    return Task(f"{backend} {phase} of {batch:,} at {length:,}", run)


def torch_or_refusal() -> Any:  # noqa: ANN401 - a module
    """The torch package, silent about what it misses beside itself.

    Raises:
        UnansweredError: it is not installed.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            import torch

            _ = torch.nn.functional.scaled_dot_product_attention
    except Exception as error:
        raise UnansweredError(
            f"--check needs torch, which cannot be imported here ({error}); pip install torch, or roofcast with its extra [profile]"
        ) from error
    return torch


def standard(query: Tensor, key: Tensor, value: Tensor, *, causal: bool = False) -> Tensor:
    """Standard attention: softmax(Q K^T / sqrt(d)) V, the whole score matrix at once.

    Args:
        query: [heads, n, d].
        key: likewise.
        value: likewise.
        causal: whether a query sees no later key.

    Source: Dao et al. 2022, arXiv:2205.14135, algorithm 0.
    """
    scores = _scores(query, key, 0, causal=causal)  # [heads, n, n]
    return scores.softmax(-1) @ value


def online(query: Tensor, key: Tensor, value: Tensor, *, causal: bool = False, block: int = BLOCK) -> Tensor:
    """The same by online softmax: one [n, block] of scores at a time, with a running maximum m and normaliser l.

    For each block of keys m' = max(m, row maximum), and what was summed so far is scaled by exp(m - m'):
    l' = exp(m - m') l + sum exp(S - m'), O' = exp(m - m') O + exp(S - m') V; at the end O / l.

    Args:
        query: [heads, n, d].
        key: likewise.
        value: likewise.
        causal: whether a query sees no later key.
        block: keys at once.

    Source: Milakov and Gimelshein 2018, arXiv:1805.02867; Dao et al. 2022, arXiv:2205.14135, section 3.1.
    """
    torch = torch_or_refusal()
    rows = query.shape[:-1]  # [heads, n]
    maximum = torch.full((*rows, 1), -math.inf, dtype=query.dtype)
    normaliser = torch.zeros((*rows, 1), dtype=query.dtype)
    summed = torch.zeros((*rows, value.shape[-1]), dtype=query.dtype)
    for first in range(0, key.shape[-2], block):
        scores = _scores(query, key[..., first : first + block, :], first, causal=causal)  # [heads, n, block]
        higher = torch.maximum(maximum, scores.amax(-1, keepdim=True))
        weights, kept = (scores - higher).exp(), (maximum - higher).exp()
        normaliser = kept * normaliser + weights.sum(-1, keepdim=True)
        summed = kept * summed + weights @ value[..., first : first + block, :]
        maximum = higher
    result: Tensor = summed / normaliser
    return result


def sdpa(query: Tensor, key: Tensor, value: Tensor, *, causal: bool = False) -> Tensor:
    """The same by PyTorch's scaled_dot_product_attention, in whichever backend it takes on the CPU.

    Args:
        query: [heads, n, d].
        key: likewise.
        value: likewise.
        causal: whether a query sees no later key.
    """
    attend = torch_or_refusal().nn.functional.scaled_dot_product_attention
    result: Tensor = attend(query[None], key[None], value[None], is_causal=causal)[0]
    return result


def _scores(query: Tensor, key: Tensor, first: int, *, causal: bool) -> Tensor:
    """Q K^T / sqrt(d) of all queries and some keys, the first of which has a number; later ones masked where causal."""
    scores = query @ key.transpose(-1, -2) / math.sqrt(query.shape[-1])
    if not causal:
        return scores
    torch = torch_or_refusal()
    numbers = torch.arange(first, first + key.shape[-2])
    later = numbers[None, :] > torch.arange(query.shape[-2])[:, None]  # [n, keys]
    return scores.masked_fill(later, -math.inf)


def check(
    seed: int, tokens: int = TOKENS, heads: int = HEADS, width: int = HEAD_DIM, block: int = BLOCK
) -> CheckResult:
    """Computes random attention in three ways in fp32, and compares them with fp64 and with each other.

    Args:
        seed: of the inputs, standard normal.
        tokens: n.
        heads: all with keys and values of their own.
        width: d.
        block: keys that online softmax looks at at once.

    Raises:
        UnansweredError: torch is not installed.
    """
    torch = torch_or_refusal()
    numbers = torch.Generator().manual_seed(seed)
    inputs = [torch.randn((heads, tokens, width), generator=numbers) for _ in range(3)]
    with torch.inference_mode():
        rows = [_row(inputs, causal=causal, block=block) for causal in (False, True)]
    worst = max(error for row in rows for error in (row.standard_error, row.online_error, row.sdpa_error))
    apart = max(row.online_against_standard for row in rows)
    return CheckResult(
        seed=seed,
        tokens=tokens,
        heads=heads,
        head_dim=width,
        block=block,
        standard_score_elements=tokens * tokens,
        online_score_elements=tokens * block,
        score_ratio=tokens / block,
        rows=rows,
        most_error=MOST_ERROR,
        most_difference=MOST_DIFFERENCE,
        agrees=worst <= MOST_ERROR and apart <= MOST_DIFFERENCE,  # False of a NaN too
    )


def _row(inputs: list[Tensor], *, causal: bool, block: int) -> CheckRow:
    exact = standard(*(tensor.double() for tensor in inputs), causal=causal)
    plain = standard(*inputs, causal=causal)
    blocked = online(*inputs, causal=causal, block=block)
    return CheckRow(
        causal=causal,
        standard_error=_apart(plain.double(), exact),
        online_error=_apart(blocked.double(), exact),
        sdpa_error=_apart(sdpa(*inputs, causal=causal).double(), exact),
        online_against_standard=_apart(blocked, plain),
    )


def _apart(one: Tensor, other: Tensor) -> float:
    """The most that two tensors differ anywhere."""
    return float((one - other).abs().max())
