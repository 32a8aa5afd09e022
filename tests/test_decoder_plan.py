"""Which models the profiler builds: kinds by what they have, the others refused by name; torch is not needed for that."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any, Final

import pytest

from roofcast.modelspec.attention import GroupedAttention
from roofcast.modelspec.ffn import DenseFeedForward, MoeFeedForward
from roofcast.modelspec.indexer import Indexer
from roofcast.modelspec.known import find_known, known_names
from roofcast.modelspec.latent import LatentAttention
from roofcast.modelspec.layers import Layer
from roofcast.modelspec.matrix import Matrix
from roofcast.modelspec.spec import ModelSpec, build_spec
from roofcast.profiler.layers import UnbuildableError, plan_layers

LEAST_BUILT: Final = 270  # of the catalogue's models

GQA: Final = GroupedAttention(4, 2, 8, 8)
MLA: Final = LatentAttention(4, 16, None, 8, 4, 6)
DENSE: Final = DenseFeedForward(32, 48)
MOE: Final = MoeFeedForward(DenseFeedForward(32, 24), 6, 2)
INDEX: Final = Indexer(2, 8, 16)


def model(layer: Layer, **facts: Any) -> ModelSpec:
    """Two layers, of which the second is this one."""
    llama = find_known("llama-3.1-8b")
    assert llama is not None
    return replace(build_spec(llama.config), layers=(_layer(GQA, DENSE), layer), hidden=32, **facts)


def _layer(mixer: Any, feeding: Any, **facts: Any) -> Layer:
    return replace(Layer((mixer,), (feeding,), 64), **facts)


def refusal_of(spec: ModelSpec) -> str:
    """Why a model is not built; empty where it is."""
    try:
        plan_layers(spec)
    except UnbuildableError as error:
        return str(error)
    return ""


REFUSED: Final[dict[str, Layer]] = {
    "attention over an earlier layer's cache": _layer(replace(GQA, stores=False), DENSE),
    "attention with a sparse index": _layer(replace(GQA, index=INDEX), DENSE),
    "a gate beside the queries": _layer(replace(GQA, doubled_query=True), DENSE),
    "a gate on the attention's output": _layer(replace(GQA, gate_rows=4), DENSE),
    "attention whose values are its keys": _layer(replace(GQA, value_projection=False), DENSE),
    "attention over an earlier layer's latent": _layer(replace(MLA, stores=False), DENSE),
    "latent attention with a sparse index": _layer(replace(MLA, index=INDEX), DENSE),
    "latent attention over what an earlier layer's index selects": _layer(replace(MLA, selected=16), DENSE),
    "latent attention in a window": _layer(replace(MLA, window=16), DENSE),
    "experts narrower than the residual stream": _layer(GQA, replace(MOE, outer=64)),
    "experts that pass tokens on unchanged": _layer(GQA, replace(MOE, idle=2)),
    "a router that is not one matrix": _layer(GQA, replace(MOE, router_parameters=9)),
    "routed experts without gate": _layer(GQA, replace(MOE, expert=replace(MOE.expert, gated=False))),
    "layers that tokens pass more than once": _layer(GQA, DENSE, passes=2),
    "several mixers in a layer": _layer(GQA, DENSE, mixers=(GQA, MLA)),
    "several feed-forwards in a layer": _layer(GQA, DENSE, feed_forwards=(DENSE, MOE)),
    "matrices that are neither attention nor feed-forward": _layer(GQA, DENSE, other_matrices=(Matrix("x", 2, 3),)),
}
LEFT_OUT: Final[dict[str, ModelSpec]] = {
    "norms of queries and keys that": model(_layer(replace(GQA, qk_norm_parameters=48), DENSE)),
    "sinks and other small weights of attention": model(_layer(replace(GQA, extra_parameters=4), DENSE)),
    "the cache of windowed layers": model(_layer(replace(GQA, window=4), DENSE)),
    "the router's correction bias": model(_layer(GQA, replace(MOE, router_bias=6))),
    "experts are chosen among all": model(_layer(GQA, replace(MOE, groups=(2, 1)))),
    "biases of routed experts": model(_layer(GQA, replace(MOE, expert=replace(MOE.expert, bias=True)))),
    "norms are RMS norms": model(_layer(GQA, DENSE, norm_parameters=128)),
    "attention and feed-forward run one after the other": model(_layer(GQA, DENSE, norm_parameters=32)),
    "small weights of layers beside": model(_layer(GQA, DENSE, other_parameters=3)),
    "positions are rotary": model(_layer(GQA, DENSE), position_parameters=9),
    "tables beside the embedding": model(_layer(GQA, DENSE), table_parameters=9),
    "the bias of the head": model(_layer(GQA, DENSE), head_bias_parameters=9),
    "multi-token-prediction layers": model(_layer(GQA, DENSE), undrafted=1),
    "what stands beside the decoder": model(_layer(GQA, DENSE), unknown_towers="other"),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_refused_kinds_are_named(kind: str) -> None:
    """A layer that is not built is refused by its number and by what it has, and what is built is said."""
    with pytest.raises(UnbuildableError) as caught:
        plan_layers(model(REFUSED[kind]))

    assert str(caught.value).startswith(f"the profiler cannot build layer 1: {kind}")
    assert str(caught.value).endswith("; it builds MHA, GQA, MQA and MLA, dense and routed feed-forwards")


def test_an_unknown_mixer_is_named_by_its_class() -> None:
    """A state-space layer is refused by its label and class."""
    known = find_known("mamba-codestral-7b")
    assert known is not None
    with pytest.raises(UnbuildableError, match=r"layer 0: Mamba-2 \(Mamba2\)"):
        plan_layers(build_spec(known.config))


def test_a_model_with_matrices_elsewhere_is_refused() -> None:
    """Products outside the layers are none that the decoder has."""
    with pytest.raises(UnbuildableError, match=r"it has matrices outside the layers$"):
        plan_layers(model(_layer(GQA, DENSE), other_matrices=(Matrix("project_in", 2, 3),)))
    with pytest.raises(UnbuildableError, match=r"it has no layers$"):
        plan_layers(replace(model(_layer(GQA, DENSE)), layers=()))


@pytest.mark.parametrize("line", LEFT_OUT)
def test_what_is_left_out_is_said(line: str) -> None:
    """What changes neither FLOP nor bytes by much is left out, in one line."""
    (said,) = plan_layers(LEFT_OUT[line]).assumptions

    assert said.startswith(line)


def test_parts_are_in_the_order_in_which_they_run() -> None:
    """Attention before the feed-forward, layer by layer."""
    plan = plan_layers(model(_layer(MLA, MOE)))

    assert [(one.layer, one.part) for one in plan.parts] == [(0, GQA), (0, DENSE), (1, MLA), (1, MOE)]
    assert not plan.assumptions


def test_every_model_of_the_catalogue_is_built_or_refused_in_a_line() -> None:
    """Most of the catalogue is built; of the rest a line says which layer is in the way."""
    said: Counter[str] = Counter()
    for name in known_names():
        known = find_known(name)
        assert known is not None
        refusal = refusal_of(build_spec(known.config, counted_in_files=True))
        said["refused" if refusal else "built"] += 1
        assert refusal == "" or refusal.startswith("the profiler cannot build ")
        assert "\n" not in refusal
    print(f"of the catalogue's models {said['built']} are built, {said['refused']} refused")

    assert said["built"] >= LEAST_BUILT
    assert said["refused"] > 0


@pytest.mark.parametrize("name", ["llama-3.1-8b", "qwen2.5-1.5b", "qwen3-30b-a3b", "deepseek-v3", "gemma-3-27b-it"])
def test_models_that_people_serve_are_built(name: str) -> None:
    """Dense, routed, latent and windowed models."""
    known = find_known(name)
    assert known is not None

    assert plan_layers(build_spec(known.config)).parts
