"""Expected times of whole steps of a round model on a round card, worked out on paper."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pytest

from roofcast.calculators.phases import Asked, Point, answer_point
from roofcast.modelspec.sharding import Shards
from tests.checkpoints import loaded
from tests.expecting import PERFECT_FITS, ROUND_FITS, content, deployed, written

if TYPE_CHECKING:
    from pathlib import Path

    from roofcast.calculators.deployment import Ready

US: Final = 1e-6
# everything about it is round: 10 layers of 1.4, 1, 4 and 2 million weights, and a head of 10 million
ROUND_MODEL: Final[dict[str, Any]] = {
    "model_type": "llama",
    "hidden_size": 1000,
    "num_hidden_layers": 10,
    "num_attention_heads": 10,
    "num_key_value_heads": 2,
    "intermediate_size": 2000,
    "vocab_size": 10_000,
    "max_position_embeddings": 4096,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
}
ROUND_CARD: Final = """\
id: round-card
name: Round Card
vendor: nvidia
architecture: Round
memory: 24 GB
memory_type: HBM3
bandwidth: 1000 GB/s
peaks: {bf16: 1000 TFLOP/s}
sm_count: 100
scale_up: {type: nvlink, generation: 3, bandwidth: 200 GB/s, max_domain: 8}
sources: [{title: Data sheet}]
"""


@pytest.fixture
def constants(home: Path, tmp_path: Path) -> Path:
    """Put the round card into the user's folder, and return a file of round constants."""
    written(home / "accelerators" / "round-card.yaml", ROUND_CARD)
    return written(tmp_path / "round.yaml", content(ROUND_FITS, accelerator="any"))


def round_ready(constants: Path, tp: int = 1) -> Ready:
    """Return the round model on round cards."""
    return deployed(loaded(ROUND_MODEL), "round-card", shards=Shards(tp=tp), file=constants)


def microseconds(point: Point) -> dict[str, float]:
    """Return the expected time of each term. [us]"""
    return {term.op.name: term.expected / US for term in point.work.terms}


# --- whole steps on paper: 1 TB/s is a MB a microsecond, 1 PFLOP/s a GFLOP


def test_a_decode_step_by_hand(constants: Path) -> None:
    """10 sequences at 1,000 tokens: reading weights at 0.8 MB/us, and half of the 2 us of a launch hidden."""
    point = answer_point(round_ready(constants), Asked("decode", 10, 1000))

    assert microseconds(point) == pytest.approx(
        {
            "embedding": 1 + 0.04 / 0.5,  # 10 rows of 2 kB read and written
            "attn.qkv": 10 * (1 + (2.8 + 0.020 + 0.028) / 0.8),  # 1,000 x 1,400 in bf16; 10 x 1,000 in, 10 x 1,400 out
            "attn.out": 10 * (1 + (2 + 0.020 + 0.020) / 0.8),
            "ffn.gate_up": 10 * (1 + (8 + 0.020 + 0.080) / 0.8),
            "ffn.down": 10 * (1 + (4 + 0.040 + 0.020) / 0.8),
            "attn.decode": 10 * (5 + (8 + 0.040) / 0.5),  # 10 x 1,000 tokens x 2 heads x 200 x 2 B; queries and outputs
            # 40 kernels: 21 norms of 2 kB, and 10 tokens x (2 x 1,000 + 10 (8 x 1,000 + 3 x 2,000)) x 2 B
            "elementwise": 40 + (0.042 + 2.84) / 0.5,
            "head": 1 + (20 + 0.020 + 0.200) / 0.8,
        },
        rel=1e-6,
    )
    # 1.08 + 45.6 + 35.5 + 111.25 + 60.75 + 210.8 + 45.764 + 26.275, and 100 of the step with 1 a sequence
    assert (point.kernels or 0) / US == pytest.approx(537.019, rel=1e-6)
    assert point.host / US == pytest.approx(110)
    assert (point.expected or 0) / US == pytest.approx(647.019, rel=1e-6)
    assert (point.bound or 0) / US == pytest.approx(268.062, rel=1e-6)  # 188 of weights, 80 of cache, rows and norms


def test_the_interval_of_that_step_by_hand(constants: Path) -> None:
    """Shares of 647.019 us times spreads: half of their root sum of squares, and 0.05 of whole steps."""
    point = answer_point(round_ready(constants), Asked("decode", 10, 1000))

    # 0.1 x 279.375, 0.2 x 210.8, 0.3 x 46.844 and 0.4 x 110 over 647.019: 0.0432, 0.0652, 0.0217, 0.0680; hypot 0.10586
    assert point.spread == pytest.approx(0.072813, rel=1e-4)
    assert point.interval is not None
    # exp(1.28155 x 0.072813) is 1.09781
    assert [end / US for end in point.interval] == pytest.approx([589.37, 710.30], rel=1e-4)
    assert point.expected_rate == pytest.approx(10 / 647.019e-6, rel=1e-6)


def test_a_prefill_by_hand(constants: Path) -> None:
    """A prompt of 1,000: clocks give up a tenth, compute and reading overlap by the fourth power, launches show."""
    point = answer_point(round_ready(constants), Asked("prefill", 1, 1000))

    assert microseconds(point) == pytest.approx(
        {
            "embedding": 1 + 4 / 0.5,
            "attn.qkv": 11 * (2 + 9.543457),  # compute 2.8 / 0.8 = 3.5, bytes (2.8 + 2 + 2.8) / 0.8 = 9.5
            "attn.out": 11 * (2 + 7.523041),  # 2 / 0.8 = 2.5, (2 + 2 + 2) / 0.8 = 7.5
            "ffn.gate_up": 11 * (2 + 22.716333),  # 8 / 0.8 = 10, (8 + 2 + 8) / 0.8 = 22.5
            "ffn.down": 11 * (2 + 12.579240),  # 4 / 0.8 = 5, (4 + 4 + 2) / 0.8 = 12.5
            "attn.prefill": 11 * (5 + 2 / 0.5 + 4.8 / 0.5),  # 10 x 1,000^2 x 200 FLOP; 0.8 MB of cache, 4 beside
            "elementwise": 40 + (0.042 + 284) / 0.5,
            "head": 1.1 * (2 + (20 + 0.002 + 0.020) / 0.8),  # of the last position
        },
        rel=1e-5,
    )
    assert (point.kernels or 0) / US == pytest.approx(1515.40, rel=1e-5)
    # 92 kernels at 30 us are launched in 2,760, which is longer: what kernels do not hide of it is the host's, and 200
    assert point.host / US == pytest.approx(2760 - 1515.40 + 200, rel=1e-5)
    assert (point.expected or 0) / US == pytest.approx(2960, rel=1e-6)


def test_launches_hide_behind_long_kernels(constants: Path) -> None:
    """Ten prompts at once take longer than their launches, of which nothing is seen."""
    point = answer_point(round_ready(constants), Asked("prefill", 10, 1000))

    assert (point.kernels or 0) > 2760 * US
    assert point.host / US == pytest.approx(200)


def test_a_decode_step_of_two_devices_by_hand(constants: Path) -> None:
    """Tensor parallel: half of every matrix and of the cache, 21 sums of 20 kB and one gathering of logits."""
    point = answer_point(round_ready(constants, tp=2), Asked("decode", 10, 1000))

    assert microseconds(point) == pytest.approx(
        {
            "embedding": 1 + (0.010 + 0.020) / 0.5,
            "attn.qkv": 10 * (1 + (1.4 + 0.020 + 0.014) / 0.8),
            "attn.out": 10 * (1 + (1 + 0.010 + 0.020) / 0.8),
            "ffn.gate_up": 10 * (1 + (4 + 0.020 + 0.040) / 0.8),
            "ffn.down": 10 * (1 + (2 + 0.020 + 0.020) / 0.8),
            "attn.decode": 10 * (5 + (4 + 0.020) / 0.5),
            "elementwise": 40 + (0.042 + 2.24) / 0.5,
            "head": 1 + (10 + 0.020 + 0.100) / 0.8,
            "tp.all_reduce": 21 * (3 + 0.6 + 0.2 / 0.5),  # one hop; 20 kB at 0.1 MB/us
            "tp.logits": 3 + 0.6 + 1 / 0.5,  # half of 10 x 10,000 x 2 B
        },
        rel=1e-6,
    )
    assert (point.kernels or 0) / US == pytest.approx(426.324, rel=1e-6)
    assert point.host / US == pytest.approx(100 + 10 + 10)
    assert (point.expected or 0) / US == pytest.approx(546.324, rel=1e-6)


def test_perfect_constants_are_the_roofline(home: Path, tmp_path: Path) -> None:
    """Without any loss a step of one token takes its bound and what activations take."""
    written(home / "accelerators" / "round-card.yaml", ROUND_CARD)
    file = written(tmp_path / "perfect.yaml", content(PERFECT_FITS, accelerator="any"))
    point = answer_point(deployed(loaded(ROUND_MODEL), "round-card", file=file), Asked("decode", 1, 1000))

    assert point.bound is not None
    assert point.full is not None
    assert point.expected is not None
    assert point.bound <= point.expected <= point.full * (1 + 1e-6)
    assert point.spread == 0
    assert point.interval == pytest.approx((point.expected, point.expected))
