"""Loads a real local checkpoint through transformers: none of its own code is run, nothing is fetched, nothing is printed."""

from __future__ import annotations

import inspect
import warnings
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from roofcast.calculators.profiled_checkpoint import LOADED, CheckpointFacts
from roofcast.profiler.checkpoint_faults import lacking, left_out, loaded_plain, other_shapes, why_not_loaded
from roofcast.profiler.checkpoint_files import loaded_bytes, quantised_by
from roofcast.profiler.errors import ProfileUsageError, UnavailableError
from roofcast.profiler.runtime import DTYPES, first_line
from roofcast.profiler.timing import SHORT, memory_errors, memory_guard, out_of_memory

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from types import ModuleType

    from torch import Tensor

    from roofcast.profiler.runtime import Runtime

CACHES: Final = ("cache", "past_key_values")  # names of a cache in calls and answers, the newest first
KEEP: Final = "logits_to_keep"
ROOM: Final = 0.02  # of the weights, that what is loaded beside them may take
POSITIONS: Final = ("wpe", "embed_positions", "position_embeddings", "pos_emb")  # modules that are tables of positions


@dataclass(frozen=True, slots=True)
class Loaded:
    """A checkpoint on the device, ready to run.

    Args:
        runtime: the device.
        model: transformers' own.
        facts: what was loaded.
        vocabulary: ids that it reads and answers with are below it. [token]
        longest: tokens that its config allows; None where it tells none. [token]
        positions: rows of its table of positions, beyond which it cannot run; None of a model without. [token]
        cache_name: of the argument that takes its cache.
        keeps: whether it can leave out logits of all but the last positions.
    """

    runtime: Runtime
    model: Any
    facts: CheckpointFacts
    vocabulary: int
    longest: int | None
    positions: int | None
    cache_name: str
    keeps: bool

    def forward(self, ids: Tensor, cache: object = None, keep: int = 0) -> tuple[Tensor, Any]:
        """Logits of the last `keep` positions (0 is all), [B, n, vocab], and the cache with the new tokens.

        Args:
            ids: new tokens, [B, n].
            cache: of the tokens before; None makes one.
            keep: positions whose logits are wanted.
        """
        given: dict[str, Any] = {KEEP: keep} if self.keeps and keep else {}
        made = self.model(input_ids=ids, use_cache=True, **{self.cache_name: cache}, **given)
        logits: Tensor = made.logits
        return logits[:, -keep:, : self.vocabulary], next((made[name] for name in CACHES if name in made), None)

    def draw(self, batch: int, tokens: int, seed: int = 0) -> Tensor:
        """Random ids, [B, n], alike on every device."""
        torch = self.runtime.torch
        source = torch.Generator().manual_seed(seed)
        ids: Tensor = torch.randint(self.vocabulary, (batch, tokens), generator=source)
        return ids.to(self.runtime.device)

    def beyond(self, tokens: int) -> str | None:
        """Why so many tokens cannot be run; None where they can.

        Args:
            tokens: of a sequence. [token]
        """
        if self.positions is None or tokens <= self.positions:
            return None
        return f"its table of positions has {self.positions:,} rows, fewer than {tokens:,} tokens"


def import_transformers() -> ModuleType:
    """The module.

    Raises:
        UnavailableError: it is not there, or cannot be imported.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            import transformers  # noqa: PLC0415 - only real checkpoints need it
            from transformers import AutoModelForCausalLM  # noqa: F401, PLC0415 - what it lacks, it says now
    except ModuleNotFoundError as error:
        if error.name != "transformers":
            raise UnavailableError(f"transformers cannot be imported here ({first_line(error)})") from error
        raise UnavailableError(
            "real checkpoints need transformers, which is not installed: pip install 'roofcast[checkpoint]'"
        ) from error
    except Exception as error:  # a broken library of it is an OSError, a wrong build anything
        raise UnavailableError(f"transformers cannot be imported here ({first_line(error)})") from error
    module: ModuleType = transformers
    return module


@contextmanager
def silenced(transformers: ModuleType) -> Iterator[None]:
    """Keeps transformers from writing on stderr while it lasts: bars, logs and warnings."""
    import logging  # noqa: PLC0415 - only here

    logs = transformers.utils.logging
    level, bars = logs.get_verbosity(), logs.is_progress_bar_enabled()
    logs.set_verbosity(logging.CRITICAL)
    logs.disable_progress_bar()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logs.set_verbosity(level)
        if bars:
            logs.enable_progress_bar()


def load_checkpoint(runtime: Runtime, folder: Path, weights: str | None = None) -> Loaded:
    """Loads a checkpoint and puts it on the device.

    Args:
        runtime: the device.
        folder: of the checkpoint, as `check_folder` gave it.
        weights: format to load it in; None is its own.

    Raises:
        UnavailableError: whatever keeps transformers from loading it, in one line, or no room for it.
        ProfileUsageError: a format is asked of weights that are quantised.
    """
    transformers = import_transformers()
    if weights is not None and quantised_by(folder) is not None:
        raise ProfileUsageError(f"--weights {weights}: {folder} is quantised, and loaded as it is; leave it out")
    _check_room(runtime, folder, weights)
    with silenced(transformers), memory_guard(runtime), runtime.torch.inference_mode():
        model, notes = _made(runtime, transformers, folder, weights)
        facts = _facts(model, folder, str(transformers.__version__), notes)
        loaded = _described(runtime, model, facts)
        _refuse_cacheless(loaded, folder)
    return loaded


def _check_room(runtime: Runtime, folder: Path, weights: str | None) -> None:
    """Refuses weights that do not fit the device, before any is read.

    Raises:
        UnavailableError: they do not.
    """
    need, free = loaded_bytes(folder, weights) * (1 + ROOM), runtime.free_bytes()
    if need > free:
        needed, there = (f"{size / 2**30:.2f} GiB" for size in (need, free))
        raise UnavailableError(f"{folder}: its weights take {needed}, and {there} are free on {runtime.machine.name}")


def _made(runtime: Runtime, transformers: ModuleType, folder: Path, weights: str | None) -> tuple[Any, tuple[str, ...]]:
    """The model on the device, all its weights from its files, and what is to be said of it.

    Loading goes on past other shapes, for its report tells which these are, and the error that it would raise does not.

    Raises:
        UnavailableError: in one line why not.
    """
    said = f"{folder}: transformers {transformers.__version__} cannot load it"
    try:
        model, report = transformers.AutoModelForCausalLM.from_pretrained(
            str(folder),
            dtype="auto" if weights is None else runtime.dtype(weights),
            local_files_only=True,
            trust_remote_code=False,
            output_loading_info=True,
            ignore_mismatched_sizes=True,
        )
        shapes, kind = other_shapes(report), type(model).__name__
        model = model if shapes else model.to(runtime.device).eval()
    except Exception as error:
        refuse_short(runtime, error)
        raise UnavailableError(f"{said}: {why_not_loaded(error, folder)}") from error
    if shapes:
        raise UnavailableError(f"{said}: {shapes}")
    lacks = lacking(report, kind)
    if lacks:
        raise UnavailableError(f"{folder}: {lacks}")
    notes = left_out(report, kind), loaded_plain(model, folder)
    return model, tuple(note for note in notes if note)


def refuse_short(runtime: Runtime, error: Exception) -> None:
    """Raises the error of a point that does not fit, where memory is what was short.

    Raises:
        OutOfMemoryError: it was.
    """
    if isinstance(error, memory_errors(runtime)) or any(words in str(error).lower() for words in SHORT):
        raise out_of_memory(runtime, error) from error


def _facts(model: Any, folder: Path, version: str, notes: tuple[str, ...]) -> CheckpointFacts:  # noqa: ANN401 - any class of theirs
    """What was loaded, by a version of transformers."""
    tensors = list(model.parameters())  # tied ones once
    return CheckpointFacts(
        path=str(folder),
        transformers=version,
        attention=str(getattr(model.config.get_text_config(), "_attn_implementation", None) or "eager"),
        dtype=_format(model, folder),
        parameters=sum(one.numel() for one in tensors),
        weight_bytes=sum(one.numel() * one.element_size() for one in tensors),
        stored_so=bool(getattr(model, "is_quantized", False)),
        notes=notes,
    )


def _described(runtime: Runtime, model: Any, facts: CheckpointFacts) -> Loaded:  # noqa: ANN401 - likewise
    """What was loaded, and how it is called."""
    config = model.config.get_text_config()
    names = inspect.signature(model.forward).parameters
    rows = int(model.get_input_embeddings().weight.shape[0])
    longest = getattr(config, "max_position_embeddings", None)
    return Loaded(
        runtime=runtime,
        model=model,
        facts=facts,
        vocabulary=min(int(getattr(config, "vocab_size", rows)), rows),
        longest=longest if isinstance(longest, int) and longest > 0 else None,
        positions=_positions(runtime, model, longest),
        cache_name=next((name for name in CACHES if name in names), ""),
        keeps=KEEP in names,
    )


def _format(model: Any, folder: Path) -> str:  # noqa: ANN401 - likewise
    """Format that it computes in.

    Raises:
        UnavailableError: one that is none of `LOADED`.
    """
    name = str(model.dtype).removeprefix("torch.")
    found = next((key for key in LOADED if DTYPES[key] == name), None)
    if found is None:
        raise UnavailableError(f"{folder}: it computes in {name}; known: {', '.join(LOADED)} (--weights names one)")
    return found


def _positions(runtime: Runtime, model: Any, longest: object) -> int | None:  # noqa: ANN401 - likewise
    """Positions that a table of learned ones has: beyond it a device stops with an error that it does not recover from."""
    rows = [
        int(module.num_embeddings)
        for name, module in model.named_modules()
        if isinstance(module, runtime.torch.nn.Embedding) and name.rpartition(".")[2] in POSITIONS
    ]
    return min([*rows, longest if isinstance(longest, int) else rows[0]]) if rows else None


def _refuse_cacheless(loaded: Loaded, folder: Path) -> None:
    """Runs two tokens: what answers without a cache cannot decode from one.

    Raises:
        UnavailableError: it has none.
    """
    why = "keeps no cache to decode from: it is no decoder, or of a kind that is not measured here"
    try:
        cache = loaded.forward(loaded.draw(1, 2), keep=1)[1] if loaded.cache_name else None
    except Exception as error:
        refuse_short(loaded.runtime, error)
        raise UnavailableError(f"{folder}: it does not run ({first_line(error)})") from error
    if cache is None:
        raise UnavailableError(f"{folder}: {type(loaded.model).__name__} {why}")
