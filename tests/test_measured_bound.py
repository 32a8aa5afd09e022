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

from roofcast.calculators import phases, roofline
from tests.measured import Question, UnaskedError, engine_questions, question

if TYPE_CHECKING:
    from roofcast.hwdb.accelerator import Accelerator

ROWS: Final = 689  # of speed.json at the time of writing, for the line that says what is skipped
LEAST_ASKED: Final = 590  # of these, and of one H200's


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


def test_nothing_measured_beats_its_bound(asked: Asked) -> None:
    """Every row took its bound or longer: no exception is needed."""
    print(f"{len(asked.questions)} rows asked, not asked: {dict(asked.unasked.most_common())}")

    assert sorted(asked.beaten) == []


@pytest.mark.parametrize(
    ("change", "beaten"),
    [
        # llama.cpp's F16 on GeForce: cuBLAS accumulates in fp16, at twice the peak. 1.07 of it on an RTX 4080, and 6 RTX 3090
        ("engine", ["sc0042", "sc0100"]),
        # 4,096 tokens through the stages of a pipeline, one after the other in one piece
        ("pieces", ["sc0042", "sc0082", "sc0100", "sc0102", "sc0106", "sc0110"]),
    ],
)
def test_what_the_bound_needs_is_needed(
    asked: Asked, change: str, beaten: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without fp16 accumulation, and without pieces of a prompt that follow one another, these rows would be too quick."""
    monkeypatch.setattr(roofline, "ENGINE_PEAKS", {})
    if change == "pieces":
        monkeypatch.setattr(phases, "fullest_stage", lambda *_: 1.0)
    wanted = [one for one in asked.questions if one.row["regime"] == "prefill" and one.row["engine"] == "llama.cpp"]

    assert [one.row["id"] for one in wanted if one.seconds < one.bound()] == beaten


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
