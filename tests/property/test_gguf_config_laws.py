"""Whatever a GGUF file's metadata says, it is answered or refused in one line, and never believed beyond its layers."""

from __future__ import annotations

from functools import cache
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from roofcast.modelspec.errors import ModelError
from roofcast.modelspec.gguf import Long
from roofcast.modelspec.gguf_config import config_of
from roofcast.modelspec.known import find_known, known_names
from roofcast.modelspec.nested import text_model
from roofcast.modelspec.spec import ModelSpec, build_spec
from roofcast.modelspec.weights import Tensor
from tests.gguf_metadata import WRITERS, metadata_of, tensors_of
from tests.model_configs import is_one_line

Written = tuple[dict[str, Any], tuple[Tensor, ...]]


@cache
def one_of_each() -> tuple[Written, ...]:
    """Return metadata and tensors of one catalogue model of every class that llama.cpp converts."""
    texts: dict[str, dict[str, Any]] = {}
    for name in known_names():
        known = find_known(name)
        assert known is not None
        raw = dict(text_model(known.config).raw)
        if raw["model_type"] in WRITERS:
            texts.setdefault(raw["model_type"], raw)
    specs = [(raw, build_spec(raw, encoder_tokens=8 if raw["model_type"] == "t5" else None)) for raw in texts.values()]
    return tuple((written := metadata_of(raw, spec), tensors_of(raw, spec, written)) for raw, spec in specs)


def outcome(metadata: dict[str, Any], tensors: tuple[Tensor, ...]) -> ModelSpec | ModelError:
    """Return what a file gives: the model, or the error with which it is refused; any other exception is a fault."""
    try:
        found: ModelSpec | ModelError = build_spec(config_of(metadata, tensors), counted_in_files=True)
    except ModelError as error:
        found = error
    assert isinstance(found, ModelSpec) or is_one_line(str(found)), found
    return found


numbers = st.integers(-1, 9) | st.sampled_from([64, 1000, 2**16, 2**31, 2**63, 2**64 - 1])
scalars = numbers | st.booleans() | st.floats() | st.text(max_size=8)
values = (
    scalars
    | st.lists(numbers | st.booleans() | st.floats(), max_size=130).map(tuple)
    | st.builds(Long, st.sampled_from(["string", "int32"]), st.integers(0, 2**40))
)


@given(st.data())
def test_any_key_may_be_missing(data: st.DataObject) -> None:
    """A file without some of its keys is answered or refused."""
    metadata, tensors = data.draw(st.sampled_from(one_of_each()))
    dropped = data.draw(st.sets(st.sampled_from(sorted(metadata)), min_size=1, max_size=3))
    outcome({key: value for key, value in metadata.items() if key not in dropped}, tensors)


@given(st.data())
def test_any_value_may_be_of_another_type(data: st.DataObject) -> None:
    """A file with other values is answered or refused, with and without its tensors."""
    metadata, tensors = data.draw(st.sampled_from(one_of_each()))
    changed = data.draw(st.dictionaries(st.sampled_from(sorted(metadata)), values, min_size=1, max_size=3))
    outcome({**metadata, **changed}, tensors if data.draw(st.booleans()) else ())


@given(st.data())
def test_any_tensor_may_have_another_shape_or_block(data: st.DataObject) -> None:
    """Tensors that contradict the metadata change the answer or are refused."""
    metadata, tensors = data.draw(st.sampled_from(one_of_each()))
    names = st.sampled_from(sorted({tensor.name for tensor in tensors})) | st.sampled_from(
        ["blk.999999.attn_q.weight", "blk.0.ffn_gate_inp.weight", "blk.3.nextn.eh_proj.weight", "blk.0.ffn_up.0.weight"]
    )
    shapes = st.lists(st.integers(0, 2**40), max_size=4).map(tuple)
    others = data.draw(st.lists(st.builds(Tensor, names, st.just("F16"), shapes), min_size=1, max_size=4))
    outcome(metadata, (*tensors, *others))


@given(st.dictionaries(st.text(max_size=30), values, max_size=12), st.text(max_size=12))
@example({"llama.block_count": 2**64 - 1}, "llama")
@example({"x.block_count": 10_000, "x.embedding_length": 1}, "x")
def test_any_metadata(metadata: dict[str, Any], arch: str) -> None:
    """Metadata of anything at all is answered or refused."""
    outcome({**metadata, "general.architecture": arch}, ())


@given(st.data())
def test_the_other_order_of_keys_and_tensors_is_the_same_model(data: st.DataObject) -> None:
    """Neither keys nor tensors have an order."""
    metadata, tensors = data.draw(st.sampled_from(one_of_each()))
    keys, order = data.draw(st.permutations(sorted(metadata))), data.draw(st.randoms(use_true_random=False))
    shuffled = list(tensors)
    order.shuffle(shuffled)
    assert config_of({key: metadata[key] for key in keys}, tuple(shuffled)) == config_of(metadata, tensors)
