"""Lists of modules: which matrices they name, in every spelling, and which not."""

from __future__ import annotations

from typing import Any

import pytest

from roofcast.modelspec.errors import MalformedModelError, UndeterminedModelError
from roofcast.modelspec.implied import implied_bytes
from roofcast.modelspec.known import find_known
from roofcast.modelspec.module_names import Place, names_of
from roofcast.modelspec.quantization import read_packing
from roofcast.modelspec.spec import build_spec
from roofcast.modelspec.spelling import SPELLINGS

MIXTRAL = Place(32, SPELLINGS["mixtral"])
GATE = "mlp.experts.*.gate_proj"


def plain(name: str, stated: dict[str, Any]) -> int:
    """Parameters in layers that a quantisation of a catalogue model leaves plain."""
    known = find_known(name)
    assert known is not None
    config = {**known.config, "quantization_config": stated}
    spec = build_spec(config)
    packing = read_packing(config, len(spec.layers))
    assert packing is not None
    parts = implied_bytes(spec, packing).parts
    return sum(
        p.elements for p in parts if p.stored == "bf16" and p.component in {"attention", "feed_forward", "experts"}
    )


def fp8(*ignore: str) -> dict[str, Any]:
    """compressed-tensors in FP8 that leaves modules out."""
    weights = {"num_bits": 8, "type": "float", "strategy": "channel"}
    group = {"targets": ["Linear"], "weights": weights}
    return {
        "quant_method": "compressed-tensors",
        "format": "float-quantized",
        "ignore": ["lm_head", *ignore],
        "config_groups": {"g": group},
    }


@pytest.mark.parametrize(
    ("listed", "share"),
    [
        (["mlp.experts"], 1.0),
        (["model.layers.3.mlp.experts"], 1.0),
        (["model.layers.4.mlp.experts"], 0.0),
        (["model.layers.3.block_sparse_moe.experts.5"], 1 / 8),
        (["model.layers.3.block_sparse_moe.experts.5.w1", "model.layers.3.mlp.experts.6"], 2 / 8),
        (["model.layers.3.mlp.experts.5", "model.layers.3.mlp.experts.5.gate_proj"], 1 / 8),
        (["model.layers.3.mlp.experts.0", "*block_sparse_moe*"], 1.0),
        (["model.layers.3.mlp.experts.0", "model.layers.3.mlp*"], 1.0),
        (["model.layers.3.mlp.experts.0", r"re:.*\.w1$"], 1.0),
        ([r"re:.*layers\.3\.block_sparse_moe\.experts\.5\.w1"], 1 / 8),
        (["model.layers.3.mlp.experts.gate_proj"], 1.0),
        (["model.layers.3.mlp.switch_mlp.gate_proj"], 1.0),
        ([r"re:.*\.w\d$"], 1.0),
        ([r"re:.*\.w(1|3)$"], 1.0),
        ([r"re:.*\.w2$"], 0.0),
        ([r"re:.*gate.*"], 0.0),  # the router alone: experts have w1
        (["gate"], 0.0),
        ([r"re:.*experts\.\d+\.w1"], 1.0),
        (["*.[0-9].block_sparse_moe*"], 1.0),
        (["*.?.block_sparse_moe*"], 1.0),
    ],
)
def test_experts_of_mixtral(listed: list[str], share: float) -> None:
    """Which of the eight experts' first matrices in layer 3 a list names."""
    assert names_of(listed, MIXTRAL).share(3, GATE, 8) == share


def test_layers_of_two_digits_are_not_those_of_one() -> None:
    """A pattern that asks for one character in the place of the layer does not mean layer 12."""
    for listed in (["*.[0-9].block_sparse_moe*"], ["*.?.block_sparse_moe*"], [r"re:.*\.\d\.block_sparse_moe.*"]):
        assert names_of(listed, MIXTRAL).share(12, GATE, 8) == 0.0


@pytest.mark.parametrize(
    "listed", [r"re:.*experts\.0\.w1", r"re:.*experts\.[0-4]\..*", "model.layers.3.mlp.experts.1*"]
)
def test_some_experts_of_a_pattern_are_not_guessed(listed: str) -> None:
    """A pattern that means some experts and not others is refused, not taken as all or none."""
    with pytest.raises(UndeterminedModelError, match="some experts and not others"):
        names_of([listed], MIXTRAL).share(3, GATE, 8)


@pytest.mark.parametrize(
    ("model", "listed", "least", "most"),
    [
        ("olmo-hybrid-7b", "re:.*self_attn.*", 0.06, 0.08),  # a quarter of the layers
        ("mixtral-8x7b", "re:.*gate.*", 0.0, 0.001),  # routers
        ("minimax-m2", "re:.*gate.*", 0.0, 0.001),
        ("qwen3-30b-a3b", "re:.*gate.*", 0.3, 0.34),  # a third of the experts
        ("phi-3.5-mini", "*gate_proj*", 0.0, 0.0001),  # it has gate_up_proj
        ("gemma-4-26b-a4b", r"re:.*\.moe\..*", 0.0, 0.001),
    ],
)
def test_a_class_has_one_spelling(model: str, listed: str, least: float, most: float) -> None:
    """A pattern means what the class's own names match, and nothing else."""
    known = find_known(model)
    assert known is not None
    more = plain(model, fp8(listed)) - plain(model, fp8())
    assert least <= more / build_spec(known.config).decoder_parameters <= most


@pytest.mark.parametrize("key", [".*down.*", "+:.*down.*"])
def test_gptq_dynamic_is_of_expressions(key: str) -> None:
    """A key of `dynamic` without a sign means what one with a plus does; `-:` leaves plain."""
    stated = {"quant_method": "gptq", "bits": 4, "group_size": 128, "dynamic": {key: {"bits": 8}}}
    spared = {**stated, "dynamic": {"-:.*down.*": {}}}
    known = find_known("llama-3.1-8b")
    assert known is not None
    config = {**known.config, "quantization_config": stated}
    packing = read_packing(config, 32)
    assert packing is not None
    eight = sum(p.elements for p in implied_bytes(build_spec(config), packing).parts if p.stored.startswith("int8"))
    assert eight == plain("llama-3.1-8b", spared) == 32 * 4096 * 14336


def test_more_exceptions_never_take_fewer_bytes() -> None:
    """Naming one expert beside a wildcard that covers it changes nothing."""
    wide = {"quant_method": "awq", "bits": 4, "group_size": 128, "modules_to_not_convert": ["*block_sparse_moe*"]}
    both = {
        **wide,
        "modules_to_not_convert": ["*block_sparse_moe*", *(f"model.layers.{i}.mlp.experts.0" for i in range(32))],
    }
    assert plain("mixtral-8x7b", wide) == plain("mixtral-8x7b", both)


def test_the_head_stands_outside_the_model() -> None:
    """`model` in a pattern means what is in the model, and the head is not."""
    assert names_of(["re:.*model.*"]).share(None, "lm_head") == 0.0
    assert names_of(["re:.*lm_head"]).share(None, "lm_head") == 1.0
    assert names_of(["language_model.lm_head"]).share(None, "lm_head") == 1.0


def test_draft_layers_by_their_own_name() -> None:
    """`mtp` names all draft layers, by every spelling, and none of the decoder's."""
    place = Place(4)
    for listed in ("mtp", "mtp*", "mtp.layers.0*", "re:mtp.*", "model.layers.4*"):
        found = names_of([listed], place)
        assert found.share(4, "self_attn.q_proj") == 1.0, listed
        assert found.share(3, "self_attn.q_proj") == 0.0, listed


@pytest.mark.parametrize(
    "listed",
    [
        ["re:(" + "|" * (199 - i) + ")(" + "|" * 199 + ")(" + "|" * 199 + ")zz" for i in range(20)],
        ["re:((" + "|" * 400 + "){1000}){190}!"],
        [f"re:((a|b|.)*){{900}}{i}x" for i in range(20)],
    ],
)
def test_no_list_keeps_it_busy(listed: list[str]) -> None:
    """What would take long to match is given up, all expressions of a checkpoint together."""
    with pytest.raises((UndeterminedModelError, MalformedModelError)):
        plain("deepseek-v3", fp8(*listed))
