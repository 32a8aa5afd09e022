"""Which layouts and machines a plan looks at."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, Final

from roofcast.calculators.planning.demand import Shape
from roofcast.calculators.planning.machines import Choices, Cuts, layouts, machines_of
from roofcast.calculators.serving.lengths import Apart, Fixed
from roofcast.cli.planning import prepared
from roofcast.hwdb.lookup import find_accelerator
from tests.planning_cases import asked

if TYPE_CHECKING:
    from roofcast.modelspec.spec import ModelSpec

LENGTHS: Final = Apart(Fixed(100), Fixed(11), "100 in, 11 out")
SHAPE: Final = Shape(prompt=100.0, output=11.0, new=100.0, new_at=100, context=105.5, longest=111, prompt_at=100)


# --- layouts


@cache
def spec_of(model: str) -> ModelSpec:
    """Return a model of the catalogue."""
    return prepared(asked(gpu="h100", price="1", name=model)).setting.model.spec


def cut(gpu: str, model: str = "llama-3.1-8b", **choices: tuple[int, ...]) -> set[tuple[int, int, int, int]]:
    """Return layouts of a model on a kind of GPU as tp, pp, ep and dp."""
    spec = spec_of(model)
    found = layouts(Cuts(spec), find_accelerator(gpu).accelerator, Choices(**choices))  # type: ignore[arg-type]
    return {(one.tp, one.pp, one.ep, one.dp) for one in found}


def test_layers_are_shared_within_a_host_and_stages_follow_beyond() -> None:
    """Over NVLink stages only where 8 share a layer; over PCIe also where none do."""
    wide = {(tp, 1, 1, 1) for tp in (1, 2, 4, 8)} | {(8, 2, 1, 1), (8, 4, 1, 1)}

    assert cut("h100") == wide
    assert cut("l4") == wide | {(1, 2, 1, 1), (1, 4, 1, 1)}


def test_experts_may_be_spread_over_replicas() -> None:
    """Of Mixtral: whole, over the GPUs of a layer, and over 2, 4 or 8 GPUs of several replicas."""
    found = {(tp, ep, dp) for tp, pp, ep, dp in cut("h100", "mixtral-8x7b") if pp == 1}

    assert found == {
        (1, 1, 1), (1, 2, 2), (1, 4, 4), (1, 8, 8), (2, 1, 1), (2, 2, 1), (2, 4, 2), (2, 8, 4), (4, 1, 1), (4, 4, 1), (4, 8, 2),
        (8, 1, 1), (8, 8, 1),
    }  # fmt: skip


def test_layouts_that_are_asked_for_are_all_there_is() -> None:
    """What does not divide is left out, and what is too large."""
    assert cut("h100", tp=(2, 3), pp=(1, 2)) == {(2, 1, 1, 1), (2, 2, 1, 1)}
    assert all(tp * pp * dp <= 4 for tp, pp, _, dp in cut("h100", "mixtral-8x7b", most=4))  # type: ignore[arg-type]


def test_machines_are_layouts_by_formats_engines_and_policies() -> None:
    """2 layouts x 2 formats x 2 engines x 2 policies; pools have no replicas that share experts."""
    spec, gpu = spec_of("llama-3.1-8b"), find_accelerator("h100").accelerator
    choices = Choices(
        tp=(1, 2), pp=(1,), engines=("none", "vllm"), weights=(None, "fp8"), policies=("colocated", "disaggregated")
    )

    found = machines_of(spec, [gpu], choices)

    assert len(found) == len(set(found)) == 16
    assert sum(one.pools for one in found) == 8
    assert {one.policy for one in found} == {""}
    mixtral = machines_of(spec_of("mixtral-8x7b"), [gpu], replace(choices, pp=(1,)))
    assert all(one.shards.dp == 1 for one in mixtral if one.pools)
    assert any(one.shards.dp > 1 for one in mixtral)
