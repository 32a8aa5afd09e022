"""Measured points beside what is expected of them: errors, groups, and points that do not count."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from roofcast.calculators import validate
from roofcast.calculators.errors import UnansweredError, UsageError
from roofcast.calculators.measurement import Measurement
from roofcast.calculators.predict import PREDICTORS, Predicted
from roofcast.calculators.validate import GROUPS, group_of, known_groups, validate_result
from roofcast.hwdb.accelerator_class import CLASSES, OTHER, class_of
from roofcast.hwdb.files import accelerator_files, read_accelerator
from roofcast.hwdb.lookup import find_accelerator

if TYPE_CHECKING:
    from collections.abc import Callable

    from roofcast.calculators.deployment import Ready
    from roofcast.calculators.validate import PointRow, ValidateResult

POINT = Measurement(
    "https://example.org", "decode_seconds", 0.010, id="one", model="a model", gpu="h200", gpus=1, engine="vllm", batch=1, prompt=100, output=20
)  # fmt: skip
FOUND = Predicted(0.004, 0.008, 0.007, 0.011)


def ready_of(point: Measurement, *ways: tuple[str, ...]) -> Ready:
    """A deployment of a known accelerator, whose constants of products differ from its own in those ways."""
    used = [SimpleNamespace(family="gemm", ways=way) for way in ways or ((),)]
    return cast(
        "Ready",
        SimpleNamespace(
            deployment=SimpleNamespace(accelerator=find_accelerator(point.gpu or "").accelerator),
            expectation=SimpleNamespace(used=used),
        ),
    )


@pytest.fixture(name="held")
def held_fixture(monkeypatch: pytest.MonkeyPatch) -> Callable[..., ValidateResult]:
    """Holds points against one prediction: bound 4 ms, expected 8 ms, 7 to 11 ms."""

    def held(
        *points: Measurement,
        found: Predicted = FOUND,
        groups: tuple[str, ...] = (),
        ways: tuple[tuple[str, ...], ...] = ((),),
        expected: bool = True,
    ) -> ValidateResult:
        for quantity in PREDICTORS:
            monkeypatch.setitem(PREDICTORS, quantity, lambda *_: found)
        return validate_result(points, lambda point: ready_of(point, *ways), groups, expected=expected)

    return held


def test_a_point_by_hand(held: Callable[..., ValidateResult]) -> None:
    """8 ms expected of 10 ms: 20 % too quick, and in the interval."""
    [row] = held(POINT).points

    assert (row.gpu, row.gpu_class, row.context) == ("h200-sxm", "NVIDIA data centre", 110)
    assert (row.measured, row.bound, row.expected, row.low, row.high) == (0.010, 0.004, 0.008, 0.007, 0.011)
    assert row.error == pytest.approx(-0.2)
    assert (row.inside, row.beaten, row.own, row.reason) == (True, False, True, None)


@pytest.mark.parametrize(("value", "inside"), [(0.0069, False), (0.007, True), (0.011, True), (0.0111, False)])
def test_the_ends_of_an_interval_are_in_it(value: float, inside: bool, held: Callable[..., ValidateResult]) -> None:
    """From low to high."""
    assert held(replace(POINT, value=value)).points[0].inside is inside


@pytest.mark.parametrize(("value", "rate", "beaten"), [(0.0040, False, False), (0.00393, False, False), (0.0039, False, True), (0.00407, True, False), (0.0041, True, True)])  # fmt: skip
def test_bounds_are_beaten_by_more_than_two_per_cent(
    value: float, rate: bool, beaten: bool, held: Callable[..., ValidateResult]
) -> None:
    """Times below, rates above."""
    found = Predicted(0.004, 0.008, 0.007, 0.011, rate=rate)

    assert held(replace(POINT, value=value), found=found).points[0].beaten is beaten


@pytest.mark.parametrize(
    ("ways", "own"),
    [(((),), True), ((("format",),), True), ((("architecture",),), False), ((("architecture", "format"),), False), (((), ("class",)), False)],
)  # fmt: skip
def test_whose_constants_they_are(
    ways: tuple[tuple[str, ...], ...], own: bool, held: Callable[..., ValidateResult]
) -> None:
    """Of another format they are still the pair's own; of another machine none is."""
    assert held(POINT, ways=ways).points[0].own is own


def test_bounds_are_held_where_nothing_is_expected(held: Callable[..., ValidateResult]) -> None:
    """4 ms of 10 ms: 60 % too quick; there is no interval."""
    result = held(POINT, found=Predicted(0.004, None, None, None), expected=False)
    [row], [whole] = result.points, result.summary

    assert (row.expected, row.inside) == (None, None)
    assert row.error == pytest.approx(-0.6)
    assert (result.error_of, result.counted, whole.inside_interval) == ("bound", 1, None)
    assert whole.median_error == pytest.approx(whole.bound_error) == pytest.approx(0.6)


def test_what_does_not_fit_is_not_counted(held: Callable[..., ValidateResult]) -> None:
    """It has no time."""
    result = held(POINT, found=Predicted(None, None, None, None))

    assert result.summary == []
    assert result.uncounted == {"does not fit the memory": 1}


def test_what_is_not_stated_is_named(held: Callable[..., ValidateResult]) -> None:
    """A point without a batch cannot be predicted."""
    result = held(replace(POINT, batch=None, prompt=None))

    assert result.uncounted == {"not stated: batch, context": 1}
    assert result.points[0].expected is None


def test_suspects_are_predicted_but_not_counted(held: Callable[..., ValidateResult]) -> None:
    """The reader sees by how much they are off."""
    result = held(POINT, replace(POINT, suspect="a guess", value=0.1))

    assert result.counted == 1
    assert result.uncounted == {"suspect: a guess": 1}
    assert result.points[1].error == pytest.approx(-0.92)


@pytest.mark.parametrize("error", [UsageError("tp 3 does not divide"), UnansweredError("no such model")])  # fmt: skip
def test_what_cannot_be_deployed_has_its_reason(error: Exception) -> None:
    """The accelerator stays as written."""

    def refuse(_: Measurement) -> Ready:
        raise error

    result = validate_result([POINT], refuse, [])
    [row] = result.points

    assert (row.gpu, row.gpu_class, row.bound, row.own) == ("h200", None, None, None)
    assert row.reason == str(error)


def test_a_fault_of_our_own_is_no_reason() -> None:
    """A stray KeyError must not hide as an answer."""

    def broken(_: Measurement) -> Ready:
        raise KeyError

    with pytest.raises(KeyError):
        validate_result([POINT], broken, [])


def test_the_worst_come_first(held: Callable[..., ValidateResult]) -> None:
    """By the size of the error, those that do not count last."""
    values = (0.008, 0.002, 0.016, 0.010)
    points = [replace(POINT, value=value, id=str(value)) for value in values]
    lost = replace(POINT, suspect="x", value=1e-5, id="lost")

    assert [row.id for row in held(lost, *points).points] == ["0.002", "0.016", "0.01", "0.008", "lost"]


def rows_of(*errors: float, **changed: Any) -> list[PointRow]:
    """Points with those errors, half of them in their intervals."""
    given: dict[str, Any] = dict.fromkeys(validate.PointRow.__slots__) | {
        "measured": 1.0, "bound": 0.5, "quantity": "decode_seconds", "source": "here", "beaten": False
    }  # fmt: skip
    return [
        validate.PointRow(**given | {"error": error, "inside": bool(n % 2)} | changed) for n, error in enumerate(errors)
    ]


def test_a_group_by_hand() -> None:
    """Of 1 to 10 %: median 5.5 %, the tenth of ten is what 90 % are below; half a bound is half off."""
    row = group_of("gpu", "mine", rows_of(*(n / 100 for n in range(1, 10)), -0.10))

    assert (row.by, row.group, row.points, row.beaten) == ("gpu", "mine", 10, 0)
    assert (row.median_error, row.p90_error) == pytest.approx((0.055, 0.10))
    assert row.bias == pytest.approx(0.045)  # with its sign
    assert (row.inside_interval, row.bound_error) == (0.5, 0.5)


def test_a_group_of_one() -> None:
    """Its median and its 90th percentile are its error."""
    row = group_of("all", "all", rows_of(-0.3, beaten=True))

    assert (row.median_error, row.p90_error, row.bias, row.beaten) == (0.3, 0.3, -0.3, 1)


def test_groups_are_in_the_order_of_their_points(held: Callable[..., ValidateResult]) -> None:
    """All first, then each grouping; every point is in one group of each."""
    points = [
        POINT,
        replace(POINT, engine="sglang"),
        replace(POINT, gpu="h100"),
        replace(POINT, gpu="h100", engine=None),
    ]
    summary = held(*points, groups=("engine", "gpu")).summary

    assert [(row.by, row.group, row.points) for row in summary] == [
        ("all", "all", 4), ("engine", "vllm", 2), ("engine", "none", 1), ("engine", "sglang", 1), ("gpu", "h100-sxm", 2), ("gpu", "h200-sxm", 2)
    ]  # fmt: skip


@pytest.mark.parametrize("name", GROUPS)
def test_every_grouping_has_all_points(name: str, held: Callable[..., ValidateResult]) -> None:
    """No point is lost or counted twice."""
    points = [
        POINT,
        replace(POINT, engine=None, model="other", quantity="prefill_seconds", source="there", gpu="rtx-4090"),
    ]
    whole, *parts = held(*points, groups=(name,)).summary

    assert whole.points == sum(part.points for part in parts) == 2


def test_names_of_groups() -> None:
    """Once each; one that is not known is refused with those that are."""
    assert known_groups(" gpu,engine,,gpu") == ["gpu", "engine"]
    assert known_groups("") == []
    with pytest.raises(UsageError, match="--by colour: known: quantity, gpu, engine, class"):
        known_groups("gpu,colour")


# --- classes of accelerators


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("rtx-2080-ti", "GeForce"), ("gtx-1080-ti", "GeForce"), ("rtx-6000-ada", "RTX workstation"), ("titan-rtx", "RTX workstation"),
        ("l40s", "NVIDIA data centre"), ("b200", "NVIDIA data centre"), ("t4", "NVIDIA data centre"), ("dgx-spark-gb10", "Jetson and DGX Spark"),
        ("jetson-agx-orin-64gb", "Jetson and DGX Spark"), ("apple-m4-max", "Apple"), ("mi300x", "AMD Instinct"), ("rx-7900-xtx", "Radeon"),
        ("strix-halo-395", "Radeon"), ("tpu-v5e", OTHER), ("arc-b580", OTHER),
    ],
)  # fmt: skip
def test_classes(name: str, kind: str) -> None:
    """What a buyer would call them."""
    assert class_of(find_accelerator(name).accelerator) == kind


def test_every_class_has_a_member() -> None:
    """No rule is dead."""
    assert {class_of(read_accelerator(path)) for path in accelerator_files().values()} == {*CLASSES, OTHER}
