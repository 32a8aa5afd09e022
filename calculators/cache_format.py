"""Which format the KV cache has: as asked, else as an engine takes it from the checkpoint, else bf16."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from roofcast.calculators.answer import Remarks, remarks
from roofcast.calculators.errors import UsageError
from roofcast.modelspec.formats import FORMATS
from roofcast.modelspec.nearest import nearest

if TYPE_CHECKING:
    from collections.abc import Mapping

    from roofcast.modelspec.formats import Format
    from roofcast.modelspec.model import Model

#: Engines that roofcast knows by name; `none` is the plain budget.
ENGINES: Final = (
    "none", "vllm", "sglang", "llama.cpp", "ollama", "tensorrt-llm", "tgi", "lmdeploy", "transformers", "gpt-fast", "exllamav2", "mlc",
)  # fmt: skip
DEFAULT: Final = "bf16"
OWN: Final[Mapping[str, str]] = {"llama.cpp": "fp16", "ollama": "fp16"}  # engines whose default is another


def check_engine(name: str) -> None:
    """Refuses an engine that roofcast does not know.

    Raises:
        UsageError: with the names that it knows.
    """
    if name not in ENGINES:
        near = nearest(name.lower(), ENGINES)
        hint = f"nearest: {near[0]}; " if near else ""
        raise UsageError(f"--engine {name}: {hint}known: {', '.join(ENGINES)}")


def cache_format(model: Model, asked: Format | None, engine: str) -> tuple[Format, Remarks]:
    """The format of a model's cache, and what should be said of it.

    FP8 weights do not make the cache FP8. A checkpoint may ask for a format of the cache (`kv_cache_scheme`,
    `kv_cache_quant_algo`); that counts with an engine that follows it, and is listed.

    Args:
        model: resolved.
        asked: of --kv; None where that was not given.
        engine: that serves it.
    """
    own = remarks(warnings=[_own_layout(model, engine)])
    hint, default = model.kv_hint, FORMATS[OWN.get(engine, DEFAULT)]
    if asked is not None or hint is None:
        return asked or default, own
    if engine in hint.followers:
        text = f"{model.name}: KV cache in {hint.format}, as {hint.said} asks and {engine} does by default; --kv {DEFAULT} overrides"
        return FORMATS[hint.format], own + remarks([text])
    others = f"{', '.join(hint.followers)} take it from there" if hint.followers else "no engine is known to follow it"
    text = f"{model.name}: its config asks for a cache in {hint.format} ({hint.said}); {others}, --kv {hint.format} counts it"
    return default, own + remarks(notes=[text])


def _own_layout(model: Model, engine: str) -> str | None:
    """Where an engine lays a cache out in its own way: latents and index keys of sparse attention."""
    mixers = (mixer for layer in model.spec.layer_counts for mixer in layer.mixers)
    if engine == "none" or not any(getattr(mixer, "index", None) for mixer in mixers):
        return None
    return (
        f"{model.name}: engines keep the latents and index keys of sparse attention in layouts of their own, which are not "
        f"modelled yet: {engine} may take some 10 % more or less"
    )
