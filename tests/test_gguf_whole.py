"""Whole GGUF files of known models, metadata and tensors together: answered as their config.json is, without a warning."""

from __future__ import annotations

from typing import Final

import pytest

from roofcast.calculators.remarks import model_remarks
from roofcast.modelspec.confirm import unread_elements
from roofcast.modelspec.errors import ModelError
from roofcast.modelspec.ggml_names import gguf_tensors
from roofcast.modelspec.gguf_config import config_of
from roofcast.modelspec.matrix import inventory
from roofcast.modelspec.model import Model, load_model
from roofcast.modelspec.source import Checkpoint
from roofcast.modelspec.spec import ModelSpec, build_spec
from roofcast.modelspec.weights import Tensor, collect
from tests.gguf_metadata import metadata_of, tensors_of
from tests.test_gguf_config import texts

# T5 and OLMo 1: an encoder that only the input bounds, and norms without parameters, which the writer of the test adds
LEFT_OUT: Final = frozenset({"t5", "olmo"})
# of which it is not known how a GGUF file names some matrix
UNNAMED: Final = frozenset({"deepseek_v4"})
# whose latent llama.cpp expands in one tensor, and keeps whole keys and values
EXPANDED: Final = frozenset({"minicpm3"})
FIRST: Final = {raw["model_type"]: name for name, raw in reversed(texts().items()) if raw["model_type"] not in LEFT_OUT}


def held(name: str, spec: ModelSpec) -> tuple[Tensor, ...] | None:
    """Return the tensors of a Q4_K file: matrices as the mixes name them, vectors, and what is left as one vector.

    None where it is not known how a GGUF file names some matrix.
    """
    raw = texts()[name]
    try:
        matrices = gguf_tensors(spec, inventory(spec))
    except ModelError:
        return None
    found: dict[str, Tensor] = {}
    for matrix in matrices:
        path = f"{'' if matrix.layer is None else f'blk.{matrix.layer}.'}{matrix.name}.weight"
        stacked = (matrix.count,) if matrix.count > 1 else ()
        rows = matrix.rows * matrix.used + (found[path].shape[0] if path in found else 0)  # spare rows are left out
        found[path] = Tensor(path, "Q4_K", (*stacked, rows or matrix.rows, matrix.columns))
    vectors = {t.name: t for t in tensors_of(raw, spec, metadata_of(raw, spec)) if len(t.shape) == 1}
    told = sum(m.elements for m in matrices if m.used) + sum(t.elements for t in vectors.values())
    left = Tensor("output_norm.all_else", "F32", (spec.decoder_parameters - told,))
    return (*found.values(), *vectors.values(), *((left,) if left.elements else ()))


def model_of(name: str, spec: ModelSpec, tensors: tuple[Tensor, ...]) -> Model:
    """Return the model of such a file."""
    config = config_of(metadata_of(texts()[name], spec), tensors)
    return load_model(Checkpoint(name, config, collect({"a.gguf": tensors}, name), None, "a test", facts="header"))


@pytest.mark.parametrize("model_type", sorted(FIRST))
def test_no_file_contradicts_itself(model_type: str) -> None:
    """A file as the converter writes it counts as its config does, every parameter, and nothing is warned of."""
    name = FIRST[model_type]
    spec = build_spec(texts()[name])
    tensors = held(name, spec)
    if tensors is None:
        assert model_type in UNNAMED
        return
    model = model_of(name, spec, tensors)
    assert model.parameters.provenance == "header"
    assert model.parameters.value == spec.decoder_parameters
    warnings = model_remarks(model, None, None).warnings
    assert [line for line in warnings if "attn_kv_b" not in line] == []
    assert len(warnings) == (model_type in EXPANDED)


def test_keys_that_no_layer_reads() -> None:
    """Gemma 3n's files hold keys and values of layers that read an earlier layer's: they are no parameters."""
    spec = build_spec(texts()["gemma-3n-e2b"])
    tensors = held("gemma-3n-e2b", spec)
    assert tensors is not None
    files = collect({"a.gguf": tensors}, "a")
    assert unread_elements(spec, files) == 10 * 2 * 2 * 256 * 2048  # 10 of 30 layers, 2 heads of 256
