"""Every option's one name, help and parser, for the commands that take it."""

from __future__ import annotations

from typing import Annotated, Final

import typer

from roofcast.hwdb.units import UnitError, parse_percent, parse_quantity, parse_tokens

BITS: Final = 8  # of a byte
LEAST_LINK, MOST_LINK = 1e6, 1e14  # [B/s]
MOST: Final = 1 << 30


def token_list(text: str | None, option: str = "--context") -> list[int] | None:
    """A comma-separated list of token counts, `4k,32k`; None stays None.

    >>> token_list("4k,128k")
    [4096, 131072]
    """
    try:
        return None if text is None else [parse_tokens(part) for part in text.split(",")]
    except UnitError as error:
        raise UnitError(f"{option} {text}: {error}") from error


def batch_list(text: str | None) -> list[int] | None:
    """A comma-separated list of numbers of sequences; None stays None.

    >>> batch_list("1,16,1k")
    [1, 16, 1024]
    """
    try:
        return None if text is None else [parse_tokens(part) for part in text.split(",")]
    except UnitError as error:
        raise UnitError(f"--batch {text}: it must list numbers of sequences, 1 or more, such as 1,16,64") from error


def encoder_count(text: str | None) -> int | None:
    """Tokens of an encoder; None stays None."""
    try:
        return None if text is None else parse_tokens(text)
    except UnitError as error:
        raise UnitError(f"--encoder-tokens {text}: {error}") from error


def portion(text: str, option: str) -> float:
    """A share, all of it too."""
    try:
        return parse_percent(text)
    except UnitError as error:
        raise UnitError(f"{option} {text}: {error}") from error


def share(text: str, option: str = "--reserve") -> float:
    """A share below one: what is left must be something."""
    value = portion(text, option)
    if value >= 1:
        raise UnitError(f"{option} {text} leaves nothing; write a share below 100%, such as '10%'")
    return value


def link_bandwidth(text: str | None, option: str = "--network") -> float | None:
    """A link's bandwidth of one direction in bytes or bits a second, `400 Gbit/s` or `50 GB/s`; None stays None. [B/s]

    >>> link_bandwidth("400 Gbit/s"), link_bandwidth("50 GB/s")
    (50000000000.0, 50000000000.0)
    """
    if text is None:
        return None
    in_bits = text.strip().lower().endswith(("bit/s", "bps"))
    try:
        value = parse_quantity(text, "bit/s") / BITS if in_bits else parse_quantity(text, "B/s")
    except UnitError as error:
        raise UnitError(f"{option} {text}: it is no rate of a link; write it like '400 Gbit/s' or '50 GB/s'") from error
    if not LEAST_LINK <= value <= MOST_LINK:
        raise UnitError(f"{option} {text}: no link is so fast or slow; write it like '400 Gbit/s'")
    return value


def size(value: int | None, option: str) -> int | None:
    """A number of devices, tokens or sequences, 1 or more; None stays None."""
    if value is not None and not 1 <= value <= MOST:
        raise UnitError(f"{option} {value:,}: it must be {'1 or more' if value < 1 else f'at most {MOST:,}'}")
    return value


Models = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="MODEL...",
        help="Folder, config.json, .gguf, catalogue name (llama-3.1-8b), Hub repo (org/name, org/name:Q4_K_M).",
    ),
]
OneModel = Annotated[
    str | None,
    typer.Argument(
        metavar="MODEL",
        help="Folder, config.json, .gguf, catalogue name (llama-3.1-8b), Hub repo (org/name, org/name:Q4_K_M).",
    ),
]
Gpu = Annotated[
    str | None,
    typer.Option("--gpu", metavar="NAME", help="Accelerator: id, alias or driver name (default: this machine's)."),
]
GpuCount = Annotated[int | None, typer.Option("--gpus", metavar="N", help="GPUs that share the model.")]
Tp = Annotated[int | None, typer.Option("--tp", metavar="N", help="Tensor-parallel size (default: --gpus).")]
Weights = Annotated[
    str | None,
    typer.Option(
        "--weights", metavar="FORMAT", help="Weights in this format, bf16, nvfp4, q4_k_m ... (default: as stored)."
    ),
]
Kv = Annotated[
    str | None,
    typer.Option("--kv", metavar="FORMAT", help="Format of the KV cache (default: the engine's, else bf16)."),
]
CacheEngine = Annotated[
    str,
    typer.Option(
        "--engine", metavar="ENGINE", help="Engine whose default format of the cache counts: vllm, sglang, tgi, ..."
    ),
]
Contexts = Annotated[
    str | None,
    typer.Option("--context", metavar="N,...", help="Tokens, 4k is 4096 (default: 4k,32k and the model's maximum)."),
]
Batches = Annotated[
    str,
    typer.Option("--batch", metavar="N,...", help="Tokens of a step, for the experts that it reads."),
]
StepBatches = Annotated[
    str | None, typer.Option("--batch", metavar="N,...", help="Sequences at once (default: 1,16,64).")
]
Batch = Annotated[str | None, typer.Option("--batch", metavar="N", help="Sequences that decode (default: 16).")]
Prompts = Annotated[
    str | None,
    typer.Option(
        "--prompt", metavar="N,...", help="Tokens of a prompt (default: --context, which in prefill is the same)."
    ),
]
Prompt = Annotated[str | None, typer.Option("--prompt", metavar="N", help="Tokens of a prompt (default: --context).")]
OneContext = Annotated[
    str | None, typer.Option("--context", metavar="N", help="Tokens that decode attends to, 4k is 4096 (default: 4k).")
]
Pp = Annotated[int, typer.Option("--pp", metavar="N", help="Pipeline-parallel stages.")]
Ep = Annotated[int, typer.Option("--ep", metavar="N", help="Expert-parallel size, over --tp x --dp GPUs.")]
Dp = Annotated[int, typer.Option("--dp", metavar="N", help="Data-parallel replicas, which may share experts (--ep).")]
Network = Annotated[
    str | None,
    typer.Option(
        "--network", metavar="RATE", help="A GPU's link between domains, one direction (default: 400 Gbit/s)."
    ),
]
AnyEngine = Annotated[
    str, typer.Option("--engine", metavar="ENGINE", help="Serving engine, whose default format of the cache counts.")
]
PhaseName = Annotated[
    str | None, typer.Option("--phase", metavar="PHASE", help="prefill, decode or mixed (default: prefill and decode).")
]
Budget = Annotated[
    str | None,
    typer.Option("--max-num-batched-tokens", metavar="N", help="Tokens of a step: longer prompts take several."),
]
PrefixHit = Annotated[
    str, typer.Option("--prefix-hit", metavar="SHARE", help="Share of the prompt that a prefix cache holds.")
]
EfficiencyName = Annotated[
    str,
    typer.Option(
        "--efficiency", metavar="NAME", help="expected (fitted constants), bound (none), or a file of constants."
    ),
]
Others = Annotated[
    str | None,
    typer.Option("--other-gpus", metavar="NAME,...", help="GPUs to compare with (default: h100, h200, b200)."),
]
GpuPrice = Annotated[
    str | None, typer.Option("--gpu-price", metavar="USD", help="Rent of a GPU an hour, such as 2.50.")
]
Ttft = Annotated[
    str | None,
    typer.Option("--ttft", metavar="TIME", help="Promise: time to the first token at most, such as 500ms."),
]
Tpot = Annotated[
    str | None,
    typer.Option("--tpot", metavar="TIME", help="Promise: time per output token at most, such as 50ms."),
]
Itl = Annotated[
    str | None, typer.Option("--itl", metavar="TIME", help="Promise: time between two tokens, such as 100ms.")
]
Percentile = Annotated[
    float | None,
    typer.Option("--percentile", metavar="P", help="Of 100 requests those that must keep it (default: 99)."),
]
Apis = Annotated[
    str | None,
    typer.Option("--api", metavar="NAME,...", help="Models or vendors of APIs, all, none (default: usual ones)."),
]
Mtp = Annotated[bool, typer.Option("--mtp", help="Count multi-token-prediction layers too, as when drafting.")]
EncoderTokens = Annotated[
    str | None,
    typer.Option(
        "--encoder-tokens",
        metavar="N",
        help="Encoder or image tokens that cross attention keeps (default: the config's).",
    ),
]
FitEngine = Annotated[
    str | None,
    typer.Option(
        "--engine",
        metavar="ENGINE",
        help="Engine whose memory rules apply: none, vllm, sglang, llama.cpp, ollama, tensorrt-llm, tgi, lmdeploy.",
    ),
]
OptionalPp = Annotated[int | None, typer.Option("--pp", metavar="N", help="Pipeline-parallel stages.")]
OptionalEp = Annotated[
    int | None, typer.Option("--ep", metavar="N", help="Expert-parallel size, over --tp x --dp GPUs.")
]
OptionalDp = Annotated[int | None, typer.Option("--dp", metavar="N", help="Data-parallel replicas.")]
OptionalReserve = Annotated[
    str | None,
    typer.Option("--reserve", metavar="SHARE", help="Share of the memory kept free, engine none (default: 10%)."),
]
Log = Annotated[
    str | None,
    typer.Option(
        "--log",
        metavar="FILE",
        help="Start-up log of vLLM, SGLang, llama.cpp or Ollama to explain ('-': standard input).",
    ),
]
Require = Annotated[
    list[str] | None,
    typer.Option("--require", metavar="RULE", help="Gate such as 'sequences>=100@4k'; exit 1 where it fails."),
]
Format = Annotated[
    str | None, typer.Option("--format", metavar="FORMAT", help="text, json, csv, markdown or html (default: text).")
]
Out = Annotated[str | None, typer.Option("--out", metavar="FILE", help="Write to FILE, in the format of its ending.")]
Strict = Annotated[bool, typer.Option("--strict", help="Refuse assumed inputs (exit 3).")]
Offline = Annotated[bool, typer.Option("--offline", help="Ask nothing of the network.")]
Revision = Annotated[
    str | None,
    typer.Option("--revision", metavar="REV", help="Branch, tag or commit of a Hub repo; the Hub is asked then."),
]
Explain = Annotated[
    str | None, typer.Option("--explain", metavar="TERM", help="Print the formula behind a term and stop.")
]
Debug = Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")]
