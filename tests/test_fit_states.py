"""`fit` of models that keep more than keys and values: windows, fixed states, draft layers, or nothing at all."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from roofcast.calculators.errors import UnansweredError, UsageError
from roofcast.calculators.fit import FitResult, Machine, fit, shares
from tests.checkpoints import BF16, MISTRAL_7B_V0_1, TINY, loaded
from tests.model_configs import published
from tests.running import result

if TYPE_CHECKING:
    from collections.abc import Sequence

    from roofcast.calculators.answer import Remarks
    from roofcast.modelspec.model import Model

H100 = Machine("h100-sxm", 1, 80e9, 79.19 * 2**30, 0.1)


def fitted(model: Model, machine: Machine, contexts: Sequence[int] | None = None) -> tuple[FitResult, Remarks]:
    """Ask with weights as stored and a cache in bf16."""
    return fit(model, machine, weights=None, kv=BF16, contexts=contexts)


def small(memory: float, *, count: int = 1, reserve: float = 0.0) -> Machine:
    """Return a machine of so many bytes whose visible memory is not known."""
    return Machine("small", count, memory, None, reserve)


def test_windows_cap_a_sequence() -> None:
    """With windows in every layer the longest context takes no more than the window, and tokens have no total."""
    got, _ = fitted(loaded(MISTRAL_7B_V0_1), H100, [4096, 32768])

    assert [row.kv_bytes_per_sequence for row in got.contexts] == [512 * 2**20] * 2
    assert got.contexts[0].max_sequences == got.contexts[1].max_sequences > 0
    assert got.kv_tokens is None
    assert got.crossover_tokens is None
    assert got.kv_bytes_per_token == 0


def test_a_fixed_state_counts_in_every_sequence() -> None:
    """Mamba-2 alone: sequences are the room by the state whatever the context, and tokens have no total."""
    mamba = loaded(published("mistralai/Mamba-Codestral-7B-v0.1"))
    got, _ = fitted(mamba, H100, [4096, 32768])
    state = 64 * (10240 * 4 * 2 + 128 * 64 * 128 * 4)

    assert [row.kv_bytes_per_sequence for row in got.contexts] == [state] * 2
    assert [row.max_sequences for row in got.contexts] == [int(got.memory.kv_bytes // state)] * 2
    assert (got.kv_tokens, got.kv_bytes_per_token, got.crossover_tokens) == (None, 0, None)


def test_tokens_beside_a_state() -> None:
    """Tokens of a hybrid are those of one sequence, whose fixed state is taken off first."""
    got, _ = fitted(loaded(published("Qwen/Qwen3.5-0.8B")), H100, [4096])

    assert got.kv_tokens == (got.memory.kv_bytes - 19_759_104) // (6 * 2048)


def test_every_kind_of_layer_must_split() -> None:
    """8 query heads on 2 KV heads split over 8 GPUs and 16 linear heads too; 16 are too many, 3 and 6 too odd."""
    qwen = loaded(published("Qwen/Qwen3.5-0.8B"))
    got, said = fitted(qwen, replace(H100, count=8), [4096])

    assert shares(qwen.spec) == (1, 2, 4, 8)
    assert got.kv_bytes_per_token == 6 * 1024
    assert got.contexts[0].kv_bytes_per_sequence == 4096 * 6 * 1024 + 19_759_104 / 8
    assert "GQA does not split over 8 GPUs: the cache is held 4 times" in said.warnings
    for count in (3, 6, 16):
        with pytest.raises(UsageError, match=r"--tp must be one of 1, 2, 4, 8$"):
            fitted(qwen, replace(H100, count=count))


def test_a_recurrence_that_does_not_split_is_named() -> None:
    """Where the attention would split and a recurrence does not, the message names the recurrence."""
    config = published("Qwen/Qwen3.5-0.8B")
    config["text_config"] |= {"linear_num_key_heads": 2, "linear_num_value_heads": 2}

    with pytest.raises(
        UsageError, match=r"^4 GPUs cannot share 2 Gated DeltaNet heads evenly; --tp must be one of 1, 2$"
    ):
        fitted(loaded(config), replace(H100, count=4))


def test_what_keeps_nothing_has_no_limit() -> None:
    """A model whose layers keep nothing of a sequence has no number of sequences, and no division by zero."""
    tiny = loaded(TINY)
    nothing = replace(tiny, spec=replace(tiny.spec, layers=tuple(replace(la, mixers=()) for la in tiny.spec.layers)))

    with pytest.raises(UnansweredError, match="keeps anything"):
        fitted(nothing, H100)


def test_multi_token_prediction_takes_room() -> None:
    """`--mtp` adds its layer to every sequence and its weights to the budget's."""
    alone, drafting = (
        result("fit", "qwen3.6-27b", "--gpu", "h100-sxm", "--weights", "fp8", "--context", "4k", *more)
        for more in ((), ("--mtp",))
    )

    assert drafting["kv_bytes_per_token"] == alone["kv_bytes_per_token"] * 17 / 16
    assert drafting["contexts"][0]["max_sequences"] < alone["contexts"][0]["max_sequences"]
    assert drafting["memory"]["weight_bytes"] >= alone["memory"]["weight_bytes"]
