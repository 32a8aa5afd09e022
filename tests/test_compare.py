"""GPUs beside one another for one model: by hand, of one basis, with a reason where there is no time."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from roofcast.calculators.compare import Compared, Refused, compare
from roofcast.calculators.errors import UsageError
from roofcast.calculators.estimate import estimate_result
from roofcast.calculators.phases import Asked
from roofcast.hwdb.lookup import find_accelerator
from roofcast.modelspec.sharding import Shards
from tests.test_sweep import ready_of

if TYPE_CHECKING:
    from roofcast.hwdb.accelerator import Accelerator

LLAMA = "llama-3.1-8b"


def bounds(*gpus: str, model: str = LLAMA, batch: int = 64) -> Compared:
    """Return GPUs compared by their bounds at 4k."""
    return compare([ready_of(model, gpu, expected=False) for gpu in gpus], batch, 4096, 4096)


def test_h200_against_h100_by_hand() -> None:
    """As sold: 80 and 141 GB, 3.35 and 4.8 TB/s, both 989.4 TFLOP/s in bf16; ridges 295 and 206.

    Beside 16.06 GB of weights a sequence of 4k takes 4,096 x 128 KiB: 128 fit in 85.03 GB, 249 in 150.11 GB.
    """
    h100, h200 = bounds("h100-sxm", "h200-sxm").rows

    assert (h100.memory_bytes, h200.memory_bytes) == (80e9, 141e9)
    assert (h100.bandwidth_bytes_per_second, h200.bandwidth_bytes_per_second) == (3.35e12, 4.8e12)
    assert h100.peak_flops_per_second == h200.peak_flops_per_second == 989.4e12
    assert (h100.format, h200.format) == ("bf16", "bf16")
    assert [round(row.ridge or 0) for row in (h100, h200)] == [295, 206]
    each = 4096 * 128 * 1024
    assert [row.most_sequences for row in (h100, h200)] == [
        int((85_029_027_840 - 16_060_522_496) // each),
        int((150_109_945_856 - 16_060_522_496) // each),
    ]
    assert (h100.most_sequences, h200.most_sequences) == (128, 249)


def test_decode_follows_bandwidth_and_prefill_the_peak() -> None:
    """Where every operation waits for memory the bound is 4.8 / 3.35 times shorter; a prefill gains but its lookups and head."""
    h100, h200 = bounds("h100-sxm", "h200-sxm").rows
    assert h100.ttft_seconds is not None
    assert h200.ttft_seconds is not None

    for one, other in ((h100.tpot_one_seconds, h200.tpot_one_seconds), (h100.tpot_seconds, h200.tpot_seconds)):
        assert one is not None
        assert other is not None
        assert one / other == pytest.approx(4.8 / 3.35, rel=1e-12)
    assert 1.0 < h100.ttft_seconds / h200.ttft_seconds < 1.005


@pytest.mark.parametrize("expected", [True, False])
def test_rows_are_what_estimate_answers(expected: bool) -> None:
    """TTFT of one prompt, TPOT of one sequence and of the batch, tokens/s of the batch."""
    ready = ready_of(LLAMA, "h200-sxm", expected=expected)
    made = compare([ready], 16, 8192, 2048)
    [row] = made.rows
    asked = [Asked("prefill", 1, 2048), Asked("decode", 1, 8192), Asked("decode", 16, 8192)]
    phases = estimate_result(ready, asked)[0].phases
    times = [phase.expected_seconds if expected else phase.bound_seconds for phase in phases]

    assert made.basis == row.basis == ("expected" if expected else "bound")
    assert [row.ttft_seconds, row.tpot_one_seconds, row.tpot_seconds] == times
    assert row.tokens_per_second == (phases[2].expected_tokens_per_second if expected else phases[2].tokens_per_second)


def test_all_rows_have_one_basis() -> None:
    """Where one has no constants, bounds of all: an expected time beside a bound would compare nothing."""
    made = compare([ready_of(LLAMA, "h100-sxm"), ready_of(LLAMA, "h200-sxm", expected=False)], 16, 4096, 4096)

    assert made.basis == "bound"
    assert {row.basis for row in made.rows} == {"bound"}
    assert made.rows == bounds("h100-sxm", "h200-sxm", batch=16).rows


def test_what_does_not_fit_keeps_what_it_offers() -> None:
    """16 GB of weights on 11 GB: no times, no sequence, the reason; and what fits but for its batch has TPOT of one."""
    turing, h100 = bounds("rtx-2080-ti", "h100-sxm", batch=200).rows

    assert (turing.fits, turing.most_sequences) == (False, 0)
    assert "weights take 16.1 GB" in str(turing.reason)
    assert (turing.ttft_seconds, turing.tpot_one_seconds, turing.tpot_seconds, turing.tokens_per_second) == (None,) * 4
    assert (turing.memory_bytes, turing.bandwidth_bytes_per_second) == (11e9, 616e9)
    assert (turing.format, turing.peak_flops_per_second) == ("fp16", 53.8e12)
    assert (h100.fits, h100.tpot_seconds, h100.tokens_per_second) == (False, None, None)
    assert h100.tpot_one_seconds is not None
    assert h100.ttft_seconds is not None
    assert "200 x 4,096 tokens" in str(h100.reason)


def test_the_peak_is_of_the_format_of_most_arithmetic() -> None:
    """gpt-oss multiplies mostly in FP4: its own peak on a B200, that of bf16 on an H100, to which it is widened."""
    b200, h100 = bounds("b200", "h100-sxm", model="gpt-oss-20b").rows

    assert (b200.format, h100.format) == ("fp4", "bf16")
    assert b200.peak_flops_per_second == find_accelerator("b200").accelerator.peak("fp4")
    assert h100.peak_flops_per_second == 989.4e12


def test_devices_that_cannot_run_it_keep_what_they_offer() -> None:
    """Their memory and bandwidth; the reason stands for all times, and for how many sequences fit."""
    odd = without_peaks("h100-sxm", "odd")
    made = compare(
        [ready_of(LLAMA, "h100-sxm", expected=False), Refused(odd, "odd states no peak for bf16", 2)], 1, 512, 512
    )
    row = made.rows[1]

    assert (row.gpu, row.gpus, row.fits, row.reason) == ("odd", 2, False, "odd states no peak for bf16")
    assert (row.memory_bytes, row.bandwidth_bytes_per_second) == (160e9, 6.7e12)
    assert (row.peak_flops_per_second, row.format, row.ridge) == (None, None, None)
    assert (row.ttft_seconds, row.tpot_seconds, row.most_sequences) == (None, None, None)
    assert made.basis == "bound"


def test_none_that_can_run_it_is_refused() -> None:
    """With every reason once."""
    odd = without_peaks("h100-sxm", "odd")

    with pytest.raises(UsageError, match=r"none of these GPUs can run the model: no peak$"):
        compare([Refused(odd, "no peak"), Refused(odd, "no peak")], 1, 512, 512)


def test_several_devices_offer_what_they_have_together() -> None:
    """Eight of them: eight times memory, bandwidth and peak, and the ridge of one."""
    one, eight = (ready_of(LLAMA, "h100-sxm", shards, expected=False) for shards in (Shards(), Shards(8)))
    first, row = compare([one, eight], 16, 4096, 4096).rows

    assert row.gpus == 8
    assert row.memory_bytes == 8 * first.memory_bytes
    assert row.bandwidth_bytes_per_second == 8 * first.bandwidth_bytes_per_second
    assert row.peak_flops_per_second == 8 * 989.4e12
    assert row.ridge == first.ridge


def without_peaks(gpu: str, name: str) -> Accelerator:
    """Return an accelerator that computes in fp64 alone."""
    return find_accelerator(gpu).accelerator.model_copy(update={"id": name, "peaks": {"fp64": 67e12}})
