"""The bound is a bound: nothing that was ever measured took less time.

The measurements are not part of the project: they are in a folder beside the repository, the one that ROOFCAST_SHARED
names, else `../shared`, as `truth/speed.json` and `truth/h200/*.json`.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from tests.measured import MICRO_BATCH, Question, UnaskedError, engine_questions, question

if TYPE_CHECKING:
    from collections.abc import Callable

    from roofcast.hwdb.accelerator import Accelerator

ROWS: Final = 689  # of speed.json at the time of writing, for the line that says what is skipped
LEAST_ASKED: Final = 590  # of these, and of one H200's
HALF: Final = "fp16 accumulation: cuBLAS multiplies F16 of llama.cpp on GeForce at its fp16_acc16 peak"
CHUNKS: Final = "micro-batches of one prompt follow one another through the pipeline's stages"


@dataclass(frozen=True, slots=True)
class Asked:
    """What was asked.

    Args:
        questions: of all rows that can be one.
        bounds: least times, in their order. [s]
        unasked: rows that no question could be made of, by reason.
    """

    questions: tuple[Question, ...]
    bounds: tuple[float, ...]
    unasked: Counter[str]

    @property
    def beaten(self) -> dict[str, Question]:
        """Questions whose measured time is less than the bound, by row."""
        pairs = zip(self.questions, self.bounds, strict=True)
        return {asked.row["id"]: asked for asked, bound in pairs if asked.seconds < bound}


@pytest.fixture(name="asked", scope="module")
def asked_fixture() -> Asked:
    """Ask every row; skip where the folder is not there, with the number of what it would have checked."""
    beside = Path(__file__).resolve().parents[2] / "shared"
    folder = Path(os.environ.get("ROOFCAST_SHARED") or beside)
    truth = folder / "truth"
    if not (truth / "speed.json").is_file():
        pytest.skip(f"no folder of measurements: {ROWS} rows not compared with their bounds")
    questions, bounds, unasked = [], [], Counter[str]()
    for row in json.loads((truth / "speed.json").read_text()):
        try:
            made = question(row, folder / "hub")
            bounds.append(made.bound())
            questions.append(made)
        except UnaskedError as error:
            unasked[str(error)] += 1
    for path in sorted(truth.glob("h200/*_*.json")):
        if not path.name.startswith("served"):
            found = list(engine_questions(path, truth / "h200" / "models"))
            bounds += [one.bound() for one in found]
            questions += found
    return Asked(tuple(questions), tuple(bounds), unasked)


# --- what may be faster, and why


def in_half(asked: Question) -> float:
    """The bound at the peak of fp16 accumulation, for F16 weights of llama.cpp on a card that has one. [s]"""
    row, card = asked.row, asked.accelerator
    assert (row["engine"], row["weight_quant"], row["regime"]) == ("llama.cpp", "F16", "prefill")
    peak = card.peaks["fp16_acc16"]
    return asked.bound(card.model_copy(update={"peaks": {**card.peaks, "fp16": peak, "bf16": peak}}))


def in_chunks(asked: Question) -> float:
    """The bound when m micro-batches follow one another through p stages: (m + p - 1) / (m p) of one after the other. [s]

    Source: Huang et al., GPipe, arXiv:1811.06965, section 2.3.
    """
    (shards,) = asked.layouts
    parts = -(-int(asked.row["input_len"]) // MICRO_BATCH)
    assert shards.pp > 1
    assert parts > 1
    return asked.bound() * (parts + shards.pp - 1) / (parts * shards.pp)


EXPLAINED: Final[dict[str, Callable[[Question], float]]] = {HALF: in_half, CHUNKS: in_chunks}
# row -> why it may be faster; a row that no longer is must leave the table
FASTER: Final[dict[str, str]] = {
    "sc0042": HALF,  # RTX 4080, Llama-3-8B, 512 tokens: 1.07 of the fp16 peak, 0.53 of fp16_acc16
    "sc0100": HALF,  # 6 RTX 3090, Llama-3-70B, 512 tokens, one micro-batch
    "sc0082": CHUNKS,  # 2 RTX 3090, Llama-3-8B, 4,096 tokens
    "sc0102": CHUNKS,  # 6 RTX 3090, Llama-3-70B F16
    "sc0106": CHUNKS,  # 8 RTX 4090, Llama-3-70B Q4_K_M
    "sc0110": CHUNKS,  # 8 RTX 4090, Llama-3-70B F16
}


def test_nothing_measured_beats_its_bound(asked: Asked) -> None:
    """Every row took its bound or longer, but for those of the table, and every row of the table is still needed."""
    print(f"{len(asked.questions)} rows asked, not asked: {dict(asked.unasked.most_common())}")
    print(f"faster than the bound: {dict(Counter(FASTER.values()))}")

    assert sorted(asked.beaten) == sorted(FASTER)


def test_what_is_faster_is_explained(asked: Asked) -> None:
    """A row of the table is not faster than the bound that its reason gives."""
    for name, row in asked.beaten.items():
        assert EXPLAINED[FASTER[name]](row) <= row.seconds, name


def test_most_rows_are_asked(asked: Asked) -> None:
    """Rows that cannot be asked are few, and each says why."""
    assert len(asked.questions) >= LEAST_ASKED
    assert sum(asked.unasked.values()) < ROWS // 4


def test_every_regime_is_asked(asked: Asked) -> None:
    """Decode and prefill, alone and in batches, under load, and on several devices."""
    regimes = Counter(one.row["regime"] for one in asked.questions)
    several = sum(one.row["n_gpus"] > 1 for one in asked.questions)

    assert len(regimes) == 11
    assert min(regimes["decode_single"], regimes["prefill"], regimes["throughput_max_load"]) >= 110
    assert several >= 100


@pytest.mark.parametrize("field", ["bandwidth", "peaks"])
def test_a_bound_of_too_slow_a_device_is_beaten(asked: Asked, field: str) -> None:
    """Were bandwidth or peaks a third of what they are, most rows of decode or of prefill would beat their bounds."""
    regime = {"bandwidth": "decode_single", "peaks": "prefill"}[field]
    some = [one for one in asked.questions if one.row["regime"] == regime and one.row["n_gpus"] == 1]
    beaten = sum(one.seconds < one.bound(third(one.accelerator, field)) for one in some)

    assert beaten > len(some) / 2


def third(card: Accelerator, field: str) -> Accelerator:
    """A card with a third of its bandwidth or of its peaks."""
    peaks = {name: peak / 3 for name, peak in card.peaks.items()}
    return card.model_copy(update={"bandwidth": card.bandwidth / 3} if field == "bandwidth" else {"peaks": peaks})
