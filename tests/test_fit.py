"""The answer of `fit --engine none`: budget = memory x (1 - reserve), less the weights, divided by a sequence."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from roofcast.calculators.errors import UnansweredError, UsageError
from roofcast.calculators.fit import FitResult, Machine, fit
from roofcast.calculators.flops import prefill_flops
from roofcast.modelspec.spec import build_spec
from tests.checkpoints import BF16, LLAMA_3_1_8B, TINY, TINY_KV, TINY_PARAMETERS, catalogued, loaded
from tests.running import answer, result, roofcast

if TYPE_CHECKING:
    from collections.abc import Sequence

    from roofcast.calculators.answer import Remarks
    from roofcast.modelspec.model import Model

H100 = Machine("h100-sxm", 1, 80e9, 79.19 * 2**30, 0.1)
LLAMA_ON_H100 = ("fit", "llama-3.1-8b", "--gpu", "h100-sxm", "--engine", "none", "--reserve", "10%")


def fitted(model: Model, machine: Machine, contexts: Sequence[int] | None = None) -> tuple[FitResult, Remarks]:
    """Ask with weights as stored and a cache in bf16."""
    return fit(model, machine, weights=None, kv=BF16, contexts=contexts)


def small(memory: float, *, count: int = 1, reserve: float = 0.0) -> Machine:
    """Return a machine of so many bytes whose visible memory is not known."""
    return Machine("small", count, memory, None, reserve)


def test_llama_8b_on_an_h100() -> None:
    """80e9 less 10 % less 16.1 GB of weights leaves 55.9 GB: 104, 13 and 3 sequences at 4k, 32k and 128k."""
    got = result(*LLAMA_ON_H100)

    assert got["fits"] is True
    assert got["reason"] is None
    assert got["memory"] == {
        "total_bytes": 80_000_000_000,
        "budget_bytes": 72_000_000_000,
        "weight_bytes": 16_060_522_496,
        "activation_bytes": 0,
        "overhead_bytes": 0,
        "kv_bytes": 55_939_477_504,
        "visible_bytes": 85_029_027_840,
    }
    assert got["non_embedding_parameters"] == 6_979_588_096
    assert got["crossover_tokens"] == 53250
    assert got["kv_tokens"] == got["kv_tokens_low"] == got["kv_tokens_high"] == 55_939_477_504 // 131072
    rows = [
        (
            row["context"],
            round(row["kv_bytes_per_sequence"] / 1e9, 2),
            row["max_sequences"],
            row["max_sequences_visible"],
            round(row["prefill_flops"] / 1e12, 1),
            round(100 * row["attention_share"]),
        )
        for row in got["contexts"]
    ]
    assert rows == [
        (4096, 0.54, 104, 112, 61.6, 7),
        (32768, 4.29, 13, 14, 738.9, 38),
        (131072, 17.18, 3, 3, 6333.3, 71),
    ]


def test_the_text_names_the_memory_meant() -> None:
    """People read every number of the table, and which memory is meant: nominal, beside what CUDA sees."""
    out = roofcast(*LLAMA_ON_H100).out

    cells = ["16.1", "55.9", "6.98B", "53,250", "0.54", "4.29", "17.18", "104", "112", "61.6", "738.9", "6333.3", "71%"]
    assert [cell for cell in cells if cell not in out] == []
    assert "nominal" in out
    assert "79.19 GiB" in out


def test_every_cell_of_a_small_fit() -> None:
    """A machine of 300,000 bytes less a quarter: 225,000 less 149,120 of weights are 75,880, two of 32,768 fit."""
    got, said = fitted(loaded(TINY, name="tiny"), small(300_000, reserve=0.25), [128, 64])

    assert (got.memory.budget_bytes, got.memory.weight_bytes) == (225_000, 2 * TINY_PARAMETERS)
    assert got.memory.kv_bytes == 225_000 - 2 * TINY_PARAMETERS == 75_880
    assert [(row.context, row.kv_bytes_per_sequence) for row in got.contexts] == [
        (128, 128 * TINY_KV),
        (64, 64 * TINY_KV),
    ]
    assert [row.max_sequences for row in got.contexts] == [2, 4]
    assert [row.max_sequences_visible for row in got.contexts] == [None, None]
    assert got.kv_tokens == 75_880 // TINY_KV == 296
    assert got.kv_bytes_per_token == TINY_KV
    assert got.fits
    assert said.assumptions == said.warnings == ()


@pytest.mark.parametrize(("spare", "sequences"), [(0, 1), (-1, 0), (TINY_KV * 64 - 1, 1), (TINY_KV * 64, 2)])
def test_the_last_byte_counts(spare: int, sequences: int) -> None:
    """A sequence fits when exactly its bytes are left, and not with one byte less."""
    memory = 2 * TINY_PARAMETERS + TINY_KV * 64 + spare
    got, _ = fitted(loaded(TINY), small(memory), [64])

    assert got.contexts[0].max_sequences == sequences
    assert got.fits is (sequences > 0)


def test_weights_alone_too_large() -> None:
    """Where the weights exceed the budget nothing fits, the rest is negative, and the reason gives both numbers."""
    got, _ = fitted(catalogued("llama-3.1-70b"), H100, [4096])

    assert got.fits is False
    assert got.memory.kv_bytes < 0
    assert got.kv_tokens == 0
    assert got.contexts[0].max_sequences == got.contexts[0].max_sequences_visible == 0
    assert got.reason is not None
    assert "141.1 GB" in got.reason
    assert "72.0 GB" in got.reason
    assert "2 GPUs" in got.reason


def test_work_is_known_where_nothing_fits() -> None:
    """FLOP stay, since they do not depend on the machine."""
    got, _ = fitted(catalogued("llama-3.1-70b"), H100, [4096])

    assert got.contexts[0].prefill_flops == prefill_flops(catalogued("llama-3.1-70b").spec, 4096) > 0


def test_a_sequence_too_long() -> None:
    """Weights that fit beside a sequence that does not: the reason says what is left and which context fits."""
    got, _ = fitted(loaded(TINY), small(2 * TINY_PARAMETERS + TINY_KV * 100), [64, 128])

    assert got.fits is False
    assert [row.max_sequences for row in got.contexts] == [1, 0]
    assert got.reason is not None
    assert "128 tokens" in got.reason
    assert "64 tokens fit" in got.reason
    assert "2 GPUs" in got.reason


def test_the_gpus_that_would_do_do() -> None:
    """On the number of GPUs that the reason names it fits, and on the next smaller that divides the heads it does not."""
    model = catalogued("llama-3.1-405b")
    got, _ = fitted(model, H100, [4096])
    would, _ = fitted(model, replace(H100, count=16), [4096])
    less, _ = fitted(model, replace(H100, count=8), [4096])

    assert got.reason is not None
    assert "16 GPUs" in got.reason
    assert would.fits
    assert not less.fits


def test_no_number_of_gpus_would_do() -> None:
    """Where the latent of one sequence fills every device, no number of GPUs is promised."""
    got, _ = fitted(catalogued("deepseek-v3"), small(10e9), [163840])

    assert got.fits is False
    assert got.reason is not None
    assert "GPUs" not in got.reason


def test_not_fitting_is_an_answer() -> None:
    """A plain `fit` of what does not fit exits 0, with the verdict and its reason in text and JSON."""
    got = result("fit", "llama-3.1-405b", "--gpu", "h100-sxm")
    text = roofcast("fit", "llama-3.1-405b", "--gpu", "h100-sxm")

    assert got["fits"] is False
    assert "16 GPUs" in got["reason"]
    assert text.code == 0
    assert "does not fit" in text.out
    assert "16 GPUs" in text.out
    assert text.err == ""


def test_gpus_share_weights_and_kv_heads() -> None:
    """On each of two GPUs are half the weights and half the KV heads; FLOP are those of all together."""
    one, _ = fitted(catalogued("llama-3.1-8b"), H100, [4096])
    two, _ = fitted(catalogued("llama-3.1-8b"), replace(H100, count=2), [4096])

    assert two.gpus == 2
    assert two.memory.weight_bytes == 8_030_261_248
    assert two.memory.total_bytes == 80_000_000_000
    assert two.kv_bytes_per_token == 65536
    assert two.contexts[0].kv_bytes_per_sequence == 2**29 / 2
    # 72e9 - 8,030,261,248 by 268,435,456
    assert two.contexts[0].max_sequences == 238
    assert two.contexts[0].prefill_flops == one.contexts[0].prefill_flops


def test_the_even_split_is_said() -> None:
    """That weights split evenly is taken for granted, and listed; one GPU takes nothing for granted."""
    _, alone = fitted(catalogued("llama-3.1-8b"), H100)
    _, shared = fitted(catalogued("llama-3.1-8b"), replace(H100, count=2))

    assert not [line for line in alone.warnings if "split" in line]
    assert [line for line in shared.warnings if "split evenly over 2 GPUs" in line]


@pytest.mark.parametrize(
    ("name", "count", "copies"),
    [("llama-3.1-8b", 8, 0), ("llama-3.1-8b", 16, 2), ("deepseek-v3", 2, 2), ("qwen2.5-7b", 28, 7)],
)
def test_what_does_not_split_is_warned_of(name: str, count: int, copies: int) -> None:
    """More GPUs than KV heads and a latent hold the cache more than once: a warning says how often."""
    _, said = fitted(catalogued(name), replace(H100, count=count, memory=1e12))
    warned = [line for line in said.warnings if "the cache is held" in line]

    assert bool(warned) is bool(copies)
    assert all(f"held {copies} times" in line for line in warned)


def test_kv_heads_that_neither_split_nor_replicate() -> None:
    """7 GPUs divide the 28 query heads of Qwen2.5-7B but not its 4 KV heads: no even share, so it is refused."""
    with pytest.raises(UsageError, match=r"28/4 query/KV heads evenly; --tp must be one of 1, 2, 4, 28$"):
        fitted(catalogued("qwen2.5-7b"), replace(H100, count=7))


@pytest.mark.parametrize(("count", "divisors"), [(3, "1, 2, 4, 8, 16, 32"), (64, "32")])
def test_gpus_that_do_not_divide_the_heads(count: int, divisors: str) -> None:
    """A tensor-parallel size that does not divide the query heads is refused with those that do."""
    with pytest.raises(UsageError, match=divisors):
        fitted(catalogued("llama-3.1-8b"), replace(H100, count=count))


def test_bytes_that_nobody_knows() -> None:
    """Weights in a quantisation that is not understood cannot be fitted, and the message says what would tell."""
    model = loaded(TINY | {"quantization_config": {"quant_method": "hqq"}})

    with pytest.raises(UnansweredError, match=r"hqq.*--weights"):
        fitted(model, H100)


def test_a_format_asked_for_makes_it_known() -> None:
    """The same model in a stated format is answered: 4 bits and scales for every parameter."""
    from roofcast.modelspec.formats import FORMATS

    model = loaded(TINY | {"quantization_config": {"quant_method": "hqq"}})
    got, _ = fit(model, H100, weights=FORMATS["nvfp4"], kv=BF16, contexts=[64])

    assert got.memory.weight_bytes == TINY_PARAMETERS * 0.5625


def test_visible_memory_unknown() -> None:
    """Where nobody knows what CUDA sees, that column is null rather than the nominal number again."""
    got, _ = fitted(catalogued("llama-3.1-8b"), replace(H100, visible=None))

    assert got.memory.visible_bytes is None
    assert {row.max_sequences_visible for row in got.contexts} == {None}


def test_provenance() -> None:
    """Memory is from the data sheet, weights from where the model's are."""
    stored, _ = fitted(catalogued("deepseek-v3"), replace(H100, count=16))
    counted, _ = fitted(catalogued("llama-3.1-8b"), H100)

    assert stored.provenance["weight_bytes"] == "header"
    assert counted.provenance["weight_bytes"] == "config"
    assert counted.provenance["memory"] == "datasheet"


def test_no_engine_means_no_engine_terms() -> None:
    """Without an engine activations and overhead are 0, blocks and concurrency unknown."""
    got, _ = fitted(catalogued("llama-3.1-8b"), H100)

    assert got.memory.activation_bytes == got.memory.overhead_bytes == 0
    assert got.blocks is got.max_concurrency is None


@pytest.mark.parametrize("share", ["0%", "0.25", "10%", "99%"])
def test_reserve(share: str) -> None:
    """The reserve is a share, written either way."""
    got = result("fit", "llama-3.1-8b", "--gpu", "h100-sxm", "--reserve", share)
    kept = float(share.rstrip("%")) / (100 if "%" in share else 1)

    assert got["memory"]["budget_bytes"] == pytest.approx(80e9 * (1 - kept))


def test_contexts_are_those_asked() -> None:
    """--context and the contexts of rules are answered, each once, and no other."""
    got = result("fit", "llama-3.1-8b", "--gpu", "h100-sxm", "--context", "8k,4k,8k", "--require", "sequences>=1@16k")

    assert sorted(row["context"] for row in got["contexts"]) == [4096, 8192, 16384]


@pytest.mark.parametrize("options", [("--tp", "2"), ("--gpus", "2"), ("--gpus", "2", "--tp", "2")])
def test_gpus_and_tp_mean_the_same_without_an_engine(options: tuple[str, ...]) -> None:
    """Either option, or both alike, share every layer over so many GPUs."""
    asked = answer("fit", "llama-3.1-8b", "--gpu", "h100-sxm", *options)

    assert asked["result"]["gpus"] == asked["inputs"]["gpus"] == asked["inputs"]["tp"] == 2


GATE: list[tuple[str, int, tuple[str, ...]]] = [
    ("sequences>=104@4k", 0, ()),
    ("sequences>=105@4k", 1, ("105", "104")),
    ("sequences >= 13 @ 32768", 0, ()),
    ("kv_tokens>=426784", 0, ()),
    ("kv_tokens>=426785", 1, ("426785", "426,784")),
    ("sequences>=100", 2, ("context",)),
    ("kv_tokens>=1k@4k", 2, ("kv_tokens",)),
    ("sequences>100@4k", 2, ("sequences>=100@4k",)),
    ("fortune>=1@4k", 2, ("sequences>=100@4k",)),
    ("sequences>=0@4k", 2, ("sequences",)),
    ("sequences>=1@0", 2, ("zero",)),
    ("", 2, ("sequences>=100@4k",)),
]


@pytest.mark.parametrize(("rule", "code", "words"), GATE)
def test_require(rule: str, code: int, words: tuple[str, ...]) -> None:
    """A rule that is met exits 0; one that is not exits 1 and says both numbers; a malformed one exits 2."""
    outcome = roofcast("fit", "llama-3.1-8b", "--gpu", "h100-sxm", "--require", rule)

    assert outcome.code == code
    assert bool(outcome.out) is (code < 2)
    if code:
        assert [word for word in words if word not in outcome.complaint] == []
    else:
        assert outcome.err == ""


def test_a_failed_gate_still_answers() -> None:
    """A gate that fails prints the whole answer on stdout, and every rule that failed in one line on stderr."""
    outcome = roofcast(
        *LLAMA_ON_H100, "--require", "sequences>=200@4k", "--require", "sequences>=4@128k",
        "--require", "sequences>=1@4k", "--format", "json",
    )  # fmt: skip

    assert outcome.code == 1
    assert outcome.data["result"]["fits"] is True
    assert "sequences>=200@4k is not met: there are 104" in outcome.complaint
    assert "sequences>=4@128k" in outcome.complaint
    assert "sequences>=1@4k" not in outcome.complaint
    assert [rule["passed"] for rule in outcome.data["result"]["requirements"]] == [False, False, True]


def test_a_gate_on_what_does_not_fit_fails() -> None:
    """What does not fit has no sequences, and no gate passes."""
    outcome = roofcast("fit", "llama-3.1-405b", "--gpu", "h100-sxm", "--require", "sequences>=1@4k")

    assert outcome.code == 1
    assert "there are 0" in outcome.complaint


def test_a_capped_cache_meets_no_token_rule_silently() -> None:
    """Where windows cap every layer tokens have no total: a rule on them is no pass."""
    outcome = roofcast("fit", "mistral-7b-v0.1", "--gpu", "h100-sxm", "--require", "kv_tokens>=1")

    assert outcome.code in {1, 3}


def test_a_recalled_memory_is_an_assumption() -> None:
    """Memory that was recalled, not read in a source, is listed; verified memory is not."""
    from roofcast.hwdb.lookup import all_accelerators

    for accelerator in all_accelerators().accelerators:
        if not accelerator.verified("memory"):
            lines = answer("fit", "smollm2-135m", "--gpu", accelerator.id)["assumptions"]
            assert any(accelerator.id in line for line in lines)
            break
    assert answer("fit", "smollm2-135m", "--gpu", "h100-sxm")["assumptions"] == []


def test_the_machines_own_gpu(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without --gpu it is this machine's."""
    tool = tmp_path / "nvidia-smi"
    tool.write_text("#!/bin/sh\necho 'NVIDIA H100 80GB HBM3, 81559'\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))

    assert result("fit", "llama-3.1-8b")["gpu"] == "h100-sxm"


def test_prefill_flops_are_those_of_the_architecture() -> None:
    """The row repeats `prefill_flops` for its own context."""
    got, _ = fitted(loaded(LLAMA_3_1_8B), H100, [1000])

    assert got.contexts[0].prefill_flops == prefill_flops(build_spec(LLAMA_3_1_8B), 1000)
