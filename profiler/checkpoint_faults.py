"""What is wrong with a real checkpoint, in a user's words: why it is not loaded, what was left out, logits that are no numbers."""

from __future__ import annotations

from pathlib import Path
from pickle import UnpicklingError
from typing import TYPE_CHECKING, Any, Final

from roofcast.profiler.checkpoint_files import quantised_by, weight_files
from roofcast.profiler.runtime import first_line

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from roofcast.calculators.profiled_checkpoint import CheckpointFacts

MOST_NAMED: Final = 2  # weights that a line names
#: words of transformers' error -> what they mean
MEANINGS: Final = {
    "trust_remote_code": "it wants code of its own to be run, which is never done here",
    "does not recognize this architecture": "this version does not know its architecture",
    "for this kind of AutoModel": "it is no causal language model",
    "should have a `model_type` key": "its config.json names no model_type",
    "automatic conversion of the weights": "its weights cannot be brought into the layout of this version",
    "ignore_mismatched_sizes": "shapes of its weights are not those of its config",
}
#: words of torch's errors, and of transformers', of a .bin that is broken or holds other than tensors
BROKEN: Final = ("Weights only load failed", "PytorchStreamReader", "cannot convert dictionary update sequence")
WIDER: Final = {"fp16": "bf16 or fp32", "bf16": "fp32"}  # formats with a wider range, or finer, than the one at hand


def why_not_loaded(error: Exception, folder: Path) -> str:
    """What transformers' error means, where it is a known one, else its first line.

    Args:
        error: that loading raised.
        folder: of the checkpoint.
    """
    text, files = str(error), weight_files(folder)
    broken = isinstance(error, (EOFError, UnpicklingError)) or any(words in text for words in BROKEN)
    if broken and files and files[0].suffix == ".bin":
        name = f"its {files[0].name}" if len(files) == 1 else f"one of its {len(files)} pytorch_model*.bin"
        return f"{name} cannot be read as plain tensors"
    return next((meaning for words, meaning in MEANINGS.items() if words in text), first_line(error))


def other_shapes(report: Mapping[str, Any]) -> str | None:
    """Which weights have other shapes in the files than by the config; None where none has.

    Args:
        report: transformers' own, of loading that goes on past them.

    >>> other_shapes({"mismatched_keys": {("lm_head.weight", (96, 32), (64, 32))}})
    'lm_head.weight is [96, 32] in its files and [64, 32] by its config'
    """
    found = sorted(report.get("mismatched_keys", ()), key=str)
    if not found:
        return None
    try:
        name, stored, wanted = found[0]
        said = f"{name} is {list(stored)} in its files and {list(wanted)} by its config"
    except (TypeError, ValueError):  # of a version that tells them in another way
        return MEANINGS["ignore_mismatched_sizes"]
    return said if len(found) == 1 else f"{said}, and {len(found) - 1:,} more likewise"


def lacking(report: Mapping[str, Any], kind: str) -> str | None:
    """Which weights of the model no file has; None where none lacks.

    Args:
        report: transformers' own.
        kind: class of the model.
    """
    found = sorted(map(str, report.get("missing_keys", ())))
    return f"its files lack weights that {kind} has: {_named(found)}" if found else None


def left_out(report: Mapping[str, Any], kind: str) -> str | None:
    """Which tensors of the files the model has no place for, but for those that transformers knows to leave; None without.

    Args:
        report: transformers' own.
        kind: class of the model.

    >>> left_out({"unexpected_keys": {"a.weight"}}, "LlamaForCausalLM")
    '1 tensor of its files has no place in LlamaForCausalLM as its config makes it, and was left out: a.weight'
    """
    found = sorted(map(str, report.get("unexpected_keys", ())))
    if not found:
        return None
    what, were = (
        ("1 tensor of its files has", "was")
        if len(found) == 1
        else (f"{len(found):,} tensors of its files have", "were")
    )
    return f"{what} no place in {kind} as its config makes it, and {were} left out: {_named(found)}"


def loaded_plain(model: Any, folder: Path) -> str | None:  # noqa: ANN401 - any class of transformers
    """What to say where the config says quantised, and transformers has loaded plain weights; None otherwise.

    It does so of a method that it does not know, and where a device has no kernels for one.
    """
    method = quantised_by(folder)
    if method is None or getattr(model, "is_quantized", False):
        return None
    return f"its config says that it is quantised by {method[:40]}, and transformers loaded plain weights"


def wider_formats(facts: CheckpointFacts) -> str:
    """Formats that may hold what overflows in the one at hand, as a sentence names them; empty without.

    Args:
        facts: what was loaded; no format can be asked of what its config says is quantised.
    """
    return "" if quantised_by(Path(facts.path)) is not None else WIDER.get(facts.dtype, "")


def _named(names: Sequence[str]) -> str:
    """The first few of some names, and how many more there are.

    >>> _named(["a", "b", "c"])
    'a, b and 1 more'
    """
    more = f" and {len(names) - MOST_NAMED:,} more" if len(names) > MOST_NAMED else ""
    return ", ".join(names[:MOST_NAMED]) + more
