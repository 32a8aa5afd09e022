"""The published figures that roofcast ships."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

import roofcast.calculators
from roofcast.calculators.bench_own import measurements_schema
from roofcast.calculators.cache_format import ENGINES
from roofcast.calculators.measurement import Reading, complete
from roofcast.calculators.measurement_file import PUBLISHED, read_measurements
from roofcast.hwdb.lookup import find_accelerator
from roofcast.modelspec.source import resolve

TEXT = Path(roofcast.calculators.__file__).with_name(PUBLISHED).read_text()


@pytest.fixture(scope="module")
def shipped() -> Reading:
    """All of them."""
    return read_measurements(TEXT, PUBLISHED)


def test_a_few_hundred_points_of_several_engines(shipped: Reading) -> None:
    """It is large enough to score by GPU, engine and quantity."""
    points = shipped.points

    assert len(points) >= 400
    assert len({point.gpu for point in points}) >= 20
    assert min(Counter(point.quantity for point in points if not point.suspect)["decode_seconds"], 150) == 150
    assert shipped.remarks == ()


def test_it_is_of_the_published_schema() -> None:
    """It is a file like any user's."""
    jsonschema = pytest.importorskip("jsonschema")
    jsonschema.validate(json.loads(TEXT), measurements_schema())


def test_every_point_has_its_link_and_can_be_predicted(shipped: Reading) -> None:
    """A link, a date, and all that a prediction needs, devices too."""
    done = complete(shipped.points, {})

    assert done.assumed == ()
    for point in done.points:
        assert point.source.startswith("https://")
        assert point.date
        assert point.missing == (), point


def test_models_gpus_and_engines_are_known_offline(shipped: Reading) -> None:
    """No repo is asked, and no name is an alias that could mean another card."""
    for model in {point.model for point in shipped.points}:
        assert resolve(str(model), offline=True).config
    for gpu in {point.gpu for point in shipped.points}:
        assert find_accelerator(str(gpu)).accelerator.id == gpu
    assert {point.engine for point in shipped.points} <= set(ENGINES)


def test_devices_are_those_that_share_the_model(shipped: Reading) -> None:
    """GPUs = tp pp dp."""
    for point in complete(shipped.points, {}).points:
        assert point.gpus == (point.tp or 1) * (point.pp or 1) * (point.dp or 1), point


def test_doubtful_points_say_why(shipped: Reading) -> None:
    """Some published figures cannot be; they are kept, with the reason."""
    reasons = [point.suspect for point in shipped.points if point.suspect]

    assert 15 <= len(reasons) <= 40
    assert all(5 < len(reason) < 100 for reason in reasons)
