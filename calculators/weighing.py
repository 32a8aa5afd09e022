"""How a model's weights are stored, as far as its config, its files or `--weights` tell: what a step reads of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from roofcast.calculators.errors import UnansweredError
from roofcast.calculators.stored import disagreements, stored_by_component
from roofcast.modelspec.errors import UndeterminedModelError
from roofcast.modelspec.formats import FORMATS, Format
from roofcast.modelspec.ggml_names import NAMES
from roofcast.modelspec.matrix import SCALES
from roofcast.modelspec.remembered import remembered
from roofcast.modelspec.storage import Average, Storage, uniform

if TYPE_CHECKING:
    from collections.abc import Mapping

    from roofcast.calculators.stored import StoredComponent
    from roofcast.modelspec.model import Model
    from roofcast.modelspec.requested import Requested

# dtype of a stored tensor -> the format whose peak counts; those of ggml's blocks are one of their own
COMPUTE: Final[Mapping[str, str]] = {
    "F64": "fp64", "F32": "fp32", "BF16": "bf16", "F16": "fp16",
    "F8_E4M3": "fp8", "F8_E5M2": "fp8", "F8_E4M3FNUZ": "fp8", "F8_E5M2FNUZ": "fp8",
}  # fmt: skip
WIDENED: Final = "ggml"


@remembered(whole=1, size=32)
def storage_of(model: Model, requested: Requested | None) -> Storage:
    """How a model's weights are stored, or as asked.

    One format for every parameter; the mix of a file of llama.cpp, averaged by component; else as the quantisation of its
    config stores each matrix, as its files hold each component, or in the format that its config states.

    Raises:
        UnansweredError: nothing tells.
    """
    if isinstance(requested, Format):
        return uniform(requested)
    if requested is not None:
        return _mixed(model, requested.name)
    if model.implied is not None and model.implied.packing is not None and not disagreements(model):
        return Storage({}, _plain(model), model.implied.packing)
    stored = stored_by_component(model)
    if stored is not None:
        return _by_files(model, stored)
    if model.spec.quantization is not None:
        raise UnansweredError(
            model.weight_bytes(None).warning or f"{model.name}: how its weights are stored is not known"
        )
    return Storage({}, _plain(model))


def _plain(model: Model) -> Average:
    """What is not quantised: the format of the config; of files whose dtype alone is known, their bytes an element."""
    spec, files = model.spec, model.files
    stated = spec.dtype if spec.dtype in FORMATS else None
    if spec.quantization is not None:
        return Average(2.0, stated if stated in {"bf16", "fp16"} else "bf16")
    if files is not None and files.elements:
        most = max(files.elements, key=lambda dtype: files.elements[dtype])
        return Average(files.bytes / sum(files.elements.values()), stated or COMPUTE.get(most, "bf16"))
    stored = FORMATS[stated or "bf16"]
    return Average(stored.bytes_per_element, stored.compute)


def _mixed(model: Model, name: str) -> Storage:
    """The file that llama-quantize makes under that name."""
    try:
        made = model.as_mix(name)
    except UndeterminedModelError as error:
        raise UnansweredError(f"{model.name}: {error}") from error
    counts = model.spec.components
    averages = {
        part: Average(size / counts[part], WIDENED) for part, size in made.components.items() if counts.get(part)
    }
    modules = {module: Average(made.tensors[n], WIDENED) for module, n in NAMES.items() if n in made.tensors}
    return Storage(averages, Average(made.total / sum(counts.values()), WIDENED), modules=modules)


def _by_files(model: Model, stored: list[StoredComponent]) -> Storage:
    """Bytes of each component's tensors over its parameters; scales go with what is packed, by its bytes."""
    counts, sizes = model.spec.components, {part.component: float(part.bytes) for part in stored}
    scales = sizes.pop(SCALES, 0.0)
    packed = [part for part in stored if part.component in counts and _compute(part) not in {"bf16", "fp32"}]
    total = sum(part.bytes for part in packed)
    for part in packed:
        sizes[part.component] += scales * part.bytes / total
    averages = {
        part.component: Average(sizes[part.component] / counts[part.component], _compute(part))
        for part in stored
        if counts.get(part.component)
    }
    files = model.files
    whole = files.bytes / sum(counts.values()) if files else 2.0
    return Storage(averages, Average(whole, model.spec.dtype if model.spec.dtype in {"bf16", "fp16"} else "bf16"))


def _compute(part: StoredComponent) -> str:
    """The format that most of a component's elements multiply in."""
    most = next(iter(part.elements), "BF16")
    return COMPUTE.get(most, WIDENED)
