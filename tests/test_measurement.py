"""The measured point itself: what it needs, and what a caller fills in."""

from __future__ import annotations

import pytest

from roofcast.calculators.bench_own import FIELDS
from roofcast.calculators.errors import UsageError
from roofcast.calculators.measurement import GIVABLE, QUANTITIES, Measurement, as_row, complete

POINT = Measurement(
    "here", "tpot_seconds", 0.01, model="llama-3.1-8b", gpu="h100-sxm", batch=8, prompt=1024, output=128
)


def bare(**stated: object) -> Measurement:
    """A point of which nothing but this is stated."""
    return Measurement("here", "decode_seconds", 0.01, **stated)  # type: ignore[arg-type]


def test_every_quantity_names_the_fields_that_it_needs() -> None:
    """What a quantity needs are fields of a point, and its unit is in its name."""
    for name, quantity in QUANTITIES.items():
        assert all(part in Measurement.__slots__ for need in quantity.needs for part in need.split("|")), name
        assert name.endswith("_seconds" if quantity.unit == "s" else "_tokens_per_second")


def test_the_schema_has_the_fields_of_a_point() -> None:
    """A field that is added to one is added to the other."""
    assert set(FIELDS) == set(Measurement.__slots__)
    assert set(GIVABLE) <= set(FIELDS)


@pytest.mark.parametrize(
    ("stated", "context"),
    [
        ({"prompt": 1024, "output": 512}, 1280),
        ({"prompt": 1024}, 1024),
        ({"prompt": 0, "output": 128}, 64),
        ({"context": 4096, "prompt": 1, "output": 1}, 4096),
        ({"output": 128}, None),
    ],
)
def test_mean_context(stated: dict[str, float], context: float | None) -> None:
    """A context that is stated counts; else prompt + output / 2, and nothing without a prompt."""
    assert bare(**stated).mean_context == context


def test_missing_fields_are_those_that_a_prediction_needs() -> None:
    """Of decode either lengths or the context; weights and cache have defaults."""
    assert bare().missing == ("model", "gpu", "batch", "context")
    assert bare(model="m", gpu="h100", batch=1, prompt=0).missing == ()
    assert POINT.missing == ()


def test_what_the_caller_gives_counts_before_the_file() -> None:
    """A served name is no model: the one that is given replaces it, and that is said."""
    done = complete([POINT, bare(model="served")], {"model": "qwen3-8b", "engine": "vllm"})

    assert [point.model for point in done.points] == ["qwen3-8b", "qwen3-8b"]
    assert done.given == ("model: qwen3-8b instead of llama-3.1-8b, served", "engine: vllm")


@pytest.mark.parametrize(
    ("stated", "given", "devices"),
    [
        ({}, {}, (1, 1, 1, 1)),
        ({"gpus": 4}, {}, (4, 4, 1, 1)),
        ({"tp": 2, "pp": 2}, {}, (4, 2, 2, 1)),
        ({"gpus": 8, "tp": 4}, {"dp": 2}, (8, 4, 1, 2)),
        ({"gpus": 8, "tp": 4}, {"gpus": 4}, (4, 4, 1, 1)),
        ({"gpus": 4, "tp": 4}, {"tp": 2}, (2, 2, 1, 1)),
        ({}, {"tp": 2, "dp": 2}, (4, 2, 1, 2)),
    ],
)
def test_devices_and_shares(stated: dict[str, int], given: dict[str, int], devices: tuple[int, ...]) -> None:
    """Devices are tp pp dp where they are not stated; devices alone share every layer."""
    point = complete([bare(**stated)], given).points[0]

    assert (point.gpus, point.tp, point.pp, point.dp) == devices
    assert point.ep == 1


@pytest.mark.parametrize(
    ("stated", "given"),
    [
        ({}, {"gpus": 8, "tp": 4}),
        ({"tp": 2}, {"gpus": 4}),
        ({"gpus": 8, "tp": 4}, {}),
        ({"gpus": 2, "pp": 2}, {"gpus": 1}),
    ],
)
def test_devices_that_are_not_their_shares_are_refused(stated: dict[str, int], given: dict[str, int]) -> None:
    """Whether the caller says both, or the file one of them."""
    with pytest.raises(UsageError, match=r"^here: \d GPUs are not tp \d x pp \d x dp 1; give --gpus, --tp"):
        complete([bare(**stated)], given)


def test_what_nobody_states_is_said_to_be_assumed() -> None:
    """One GPU, and how several share a model, are assumptions."""
    assert complete([bare(), bare(gpus=1), bare(gpus=2)], {}).assumed == (
        "gpus: 1 of 3 points do not state them: 1 is taken",
        "tp: 1 of 3 points do not state how GPUs share the model: tp is taken",
    )
    assert complete([bare(tp=1)], {}).assumed == ()
    assert complete([bare()], {"gpus": 1}).assumed == ()


def test_only_fields_can_be_given() -> None:
    """A mistake in the program, not of its user."""
    with pytest.raises(TypeError, match="value cannot be given"):
        complete([POINT], {"value": 1.0})


def test_a_row_has_what_is_stated() -> None:
    """None is left out, and a row makes the same point again."""
    assert Measurement(**as_row(POINT)) == POINT  # type: ignore[arg-type]
    assert "weights" not in as_row(POINT)
