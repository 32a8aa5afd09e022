"""The engines' own flags on the command line: one row a flag, and the decorator that gives a command all of them."""

from __future__ import annotations

import inspect
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from roofcast.calculators.errors import UsageError
from roofcast.hwdb.units import UnitError, parse_percent, parse_quantity, parse_tokens

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from roofcast.calculators.engines.flags import Flags

MOST: Final = 1 << 30
MOST_RATIO: Final = 1e6
DTYPES: Final = {
    "fp16": "fp16", "float16": "fp16", "half": "fp16", "bf16": "bf16", "bfloat16": "bf16", "fp32": "fp32",
    "float32": "fp32", "float": "fp32",
}  # fmt: skip
MODES: Final = ("none", "align", "all")


@dataclass(frozen=True, slots=True)
class FlagOption:
    """One flag.

    Args:
        kind: how it is read, one of `READERS`; a switch is there or not.
        help: a line of --help.
        shown: what stands for its value there.
    """

    kind: str
    help: str
    shown: str = "N"


# flag of calculators.engines.flags.Flags -> its option
OPTIONS: Final[Mapping[str, FlagOption]] = {
    "engine_version": FlagOption(
        "version", "Version of the engine whose rules apply (default: the newest known).", "V"
    ),
    "gpu_memory_utilization": FlagOption("share", "vLLM: share of the memory that it may use.", "SHARE"),
    "kv_cache_memory_bytes": FlagOption("bytes", "vLLM: size of the cache, such as 40GiB.", "SIZE"),
    "max_model_len": FlagOption("tokens", "Tokens of the longest request (default: the model's)."),
    "max_num_seqs": FlagOption("tokens", "vLLM, TensorRT-LLM: requests at once."),
    "max_num_batched_tokens": FlagOption("tokens", "Tokens of a step."),
    "block_size": FlagOption("tokens", "Tokens of a block of the cache."),
    "enforce_eager": FlagOption("switch", "vLLM: no CUDA graphs."),
    "quantization": FlagOption("text", "Method that a plain checkpoint is quantised with on load: fp8 ...", "METHOD"),
    "dtype": FlagOption("dtype", "Format of plain weights and activations: bf16, fp16, fp32.", "FORMAT"),
    "decode_context_parallel_size": FlagOption("tokens", "vLLM: GPUs that share a sequence's cache."),
    "num_speculative_tokens": FlagOption("tokens", "Tokens drafted a step: draft layers are in the cache too."),
    "mamba_ssm_cache_dtype": FlagOption("dtype", "vLLM: format of recurrent states.", "FORMAT"),
    "mamba_cache_mode": FlagOption("mode", "vLLM: none, align or all.", "MODE"),
    "enable_prefix_caching": FlagOption("switch", "vLLM: prefixes are shared; a hybrid's states take more then."),
    "disable_hybrid_kv_cache_manager": FlagOption("switch", "vLLM: windows save no memory."),
    "mem_fraction_static": FlagOption("share", "SGLang: share of the memory for weights and cache.", "SHARE"),
    "max_running_requests": FlagOption("tokens", "SGLang: requests at once."),
    "chunked_prefill_size": FlagOption("tokens", "SGLang: tokens of a chunk of a prompt."),
    "page_size": FlagOption("tokens", "SGLang: tokens of a page."),
    "swa_full_tokens_ratio": FlagOption("ratio", "SGLang: window tokens for each full one.", "RATIO"),
    "mamba_full_memory_ratio": FlagOption("ratio", "SGLang: memory of states for that of the cache.", "RATIO"),
    "enable_dp_attention": FlagOption("switch", "SGLang: attention by replica, experts shared."),
    "n_ctx": FlagOption("tokens", "llama.cpp: tokens of all slots together; Ollama: of one."),
    "parallel": FlagOption("tokens", "llama.cpp, Ollama: slots."),
    "ubatch_size": FlagOption("tokens", "llama.cpp: tokens of a physical batch."),
    "cache_type_v": FlagOption("text", "llama.cpp: format of values, where --kv is that of keys.", "FORMAT"),
    "swa_full": FlagOption("switch", "llama.cpp: window layers keep the whole context."),
    "kv_unified": FlagOption("switch", "llama.cpp: slots share one buffer."),
    "kv_cache_free_gpu_mem_fraction": FlagOption("share", "TensorRT-LLM: share of what is free.", "SHARE"),
    "max_batch_prefill_tokens": FlagOption("tokens", "TGI: tokens of the warm-up's prefill."),
    "cuda_memory_fraction": FlagOption("share", "TGI: share of the memory.", "SHARE"),
    "cache_max_entry_count": FlagOption("share", "LMDeploy: share of what is free.", "SHARE"),
    "session_len": FlagOption("tokens", "LMDeploy: tokens of the longest request."),
}


def with_engine_flags(command: Callable[..., None]) -> Callable[..., None]:
    """Gives a command an option for every flag; they arrive in its `**flags`, as they were written."""
    shape = inspect.signature(command, eval_str=True)
    own = [p for p in shape.parameters.values() if p.kind is not inspect.Parameter.VAR_KEYWORD]
    added = [_parameter(name, row) for name, row in OPTIONS.items()]
    command.__signature__ = shape.replace(parameters=[*own, *added])  # type: ignore[attr-defined] # inspect reads it
    command.__annotations__ = {p.name: p.annotation for p in (*own, *added)} | {"return": None}
    return command


def _parameter(name: str, row: FlagOption) -> inspect.Parameter:
    spelled, switch = "--" + name.replace("_", "-"), row.kind == "switch"
    option = typer.Option(spelled, help=row.help) if switch else typer.Option(spelled, metavar=row.shown, help=row.help)
    hint: Any = Annotated[bool if switch else str | None, option]
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=False if switch else None, annotation=hint)


def read_flags(written: Mapping[str, object], beside: Mapping[str, str]) -> Flags:
    """The flags as written, and what a log says of those that were not.

    Raises:
        UsageError, UnitError: a value that cannot be, with its option.
    """
    from roofcast.calculators.engines.flags import Flags

    values: dict[str, Any] = {}
    for name, row in OPTIONS.items():
        text = written.get(name)
        if text is None or text is False:
            values |= _from_log(name, row, beside.get(name))
        else:
            values[name] = True if row.kind == "switch" else _read(name, row, str(text))
    return Flags(**values)


def _from_log(name: str, row: FlagOption, text: str | None) -> dict[str, Any]:
    """A setting that a log states; what is not a value of ours says nothing."""
    if text is None or text.strip().lower() in {"none", "auto", "false", ""}:
        return {}
    if row.kind == "switch":
        return {name: text.strip().lower() == "true"}
    try:
        return {name: _read(name, row, text.strip())}
    except (UsageError, UnitError):
        return {}


def _read(name: str, row: FlagOption, text: str) -> Any:  # noqa: ANN401 - as many types as kinds
    option = "--" + name.replace("_", "-")
    try:
        return READERS[row.kind](text)
    except (UnitError, ValueError) as error:
        raise UsageError(f"{option} {text}: {error}") from error


def _tokens(text: str) -> int:
    value = parse_tokens(text.replace(",", "")) if re.fullmatch(r"[\d,]+", text) else parse_tokens(text)
    if value > MOST:
        raise ValueError(f"it must be at most {MOST:,}")
    return value


def _share(text: str) -> float:
    value = parse_percent(text)
    if not value:
        raise ValueError("it must be more than nothing, such as 0.9 or '90%'")
    return value


def _ratio(text: str) -> float:
    value = float(text) if re.fullmatch(r"\d{1,9}(\.\d{1,9})?", text) else 0.0
    if not 0 < value <= MOST_RATIO:
        raise ValueError("it is no ratio; write a number above 0, such as 0.8")
    return value


def _size(text: str) -> float:
    value = float(text) if text.isdecimal() and len(text) < 20 else parse_quantity(text, "B")  # noqa: PLR2004
    if value < 1:
        raise ValueError("it must be a byte or more, such as 40GiB")
    return value


def _dtype(text: str) -> str:
    known = DTYPES.get(text.lower().removeprefix("torch."))
    if known is None:
        raise ValueError(f"known: {', '.join(DTYPES)}")
    return known


def _mode(text: str) -> str:
    if text not in MODES:
        raise ValueError(f"known: {', '.join(MODES)}")
    return text


# kind -> what reads it
READERS: Final[Mapping[str, Callable[[str], Any]]] = {
    "version": str, "text": str, "tokens": _tokens, "share": _share, "ratio": _ratio, "bytes": _size,
    "dtype": _dtype, "mode": _mode,
}  # fmt: skip
