"""Lines of llama.cpp's start: buffers of each device, in MiB."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from roofcast.calculators.log_terms import MIB, Dialect, Logged, Message, message
from roofcast.modelspec.ggml_mix import MIXES

if TYPE_CHECKING:
    from collections.abc import Mapping

# Sizes are divided by 1024 x 1024, also where 2023's lines say MB.
# Source: llama.cpp, src/llama-model.cpp, llama-context.cpp, llama-kv-cache.cpp, llama-kv-cache-iswa.cpp,
# llama-memory-recurrent.cpp, llama-model-loader.cpp
DEVICE: Final = r"(?P<device>[\w.\[\]-]{1,60})"
K_AND_V: Final = (
    r"(?:, K \((?P<type_k>\w{1,16})\): +(?P<cache_k>@) MiB, V \((?P<type_v>\w{1,16})\): +(?P<cache_v>@) MiB)?"
)
BUFFERS: Final = (
    message("model buffer size", rf"load_tensors: +{DEVICE} (?:model )?buffer size += +(?P<model_buffer>@) MiB", MIB),
    message("_tensors:", rf"llm_load_tensors: +{DEVICE} buffer size += +(?P<model_buffer>@) MiB", MIB),
    message("KV buffer size", rf": +{DEVICE} KV buffer size += +(?P<kv_buffer>@) MiB", MIB),
    message("RS buffer size", rf": +{DEVICE} RS buffer size += +(?P<state_buffer>@) MiB", MIB),
    message(
        "compute buffer",
        rf"(?<!alloc_compute_meta): +{DEVICE} compute buffer size += +(?P<compute_buffer>@) MiB",
        MIB,
    ),
    message("output buffer", rf": +{DEVICE} +output buffer size += +(?P<output_buffer>@) MiB", MIB),
)
CACHES: Final = (
    # window layers and the others have a cache each
    message("SWA KV cache", r"creating +(?P<part>(?:non-)?SWA) KV cache"),
    message(
        "llama_kv_cache",
        rf"llama_kv_cache(?:_unified)?: size += +(?P<cache>@) MiB(?: \( *(?P<cells>@) cells, +\d+ layers[^)]*\))?{K_AND_V}",
        MIB,
    ),
    message("KV self size", rf"KV self size += +(?P<cache>@) MiB{K_AND_V}", MIB),
    message("kv self size", r"kv self size += +(?P<cache>@) MB", MIB),
    message(
        "recurrent: size",
        r"llama_(?:memory|kv_cache)_recurrent: size += +(?P<state>@) MiB",
        MIB,
    ),
)
SAID: Final = (
    message(" n_ctx ", r"(?:llama_\w+|llm_\w+|llama_context): n_ctx += (?P<n_ctx>@)\s*$"),
    message(" n_seq_max ", r"\bn_seq_max += (?P<parallel>\d{1,9})"),
    message(" n_ubatch ", r"\bn_ubatch += (?P<ubatch_size>\d{1,12})"),
    message(" kv_unified ", r"\bkv_unified += (?P<kv_unified>true|false|0|1)\b"),
    message("full-size SWA cache", r"using (?P<swa_full>full)-size SWA cache"),
    message("loaded meta data with", r"tensors from (?P<model>\S.{0,300}?)(?: \(version|$)"),
    message("load_model: loading model", r"load_model: loading model '(?P<model>[^']{1,300})'"),
    message("general.name", r"general\.name +(?:str +)?= (?P<model_name>\S.{0,80})"),
    message("file type ", r"print_info: file type += (?P<file_type>\S.{0,60})"),
    message("model ftype ", r"print_meta: model ftype += (?P<file_type>\S.{0,60})"),
)
# types of a file as llama.cpp prints them, where they are not the name in capitals, or that with its size after a dash
FILE_TYPES: Final[Mapping[str, str]] = {
    "all f32": "f32", "q2_k - medium": "q2_k", "iq3_s mix - 3.66 bpw": "iq3_m", "mxfp4 moe": "mxfp4_moe", "mxfp4": "mxfp4_moe",
    "q4_1, some f16": "q4_1",
}  # fmt: skip
SIZES: Final[Mapping[str, str]] = {"small": "_s", "medium": "_m", "large": "_l"}
SWITCHES: Final[Mapping[str, str]] = {"1": "true", "0": "false", "full": "true"}
STARTS: Final = (
    Message("build", re.compile(r"(?:^|\s)build(?:_info:| =|:) b?(?P<version>\d{1,8})(?: \(|-)"), opens="anew"),
    Message("loaded meta data with", re.compile("llama_model_loader: loaded meta data with"), opens="sized"),
    Message("draft", re.compile(r"load_model: (?:loading draft model|creating MTP draft context)"), opens="draft"),
    Message("server is listening", re.compile("server is listening on"), ready=True),
)
REASONS: Final[Mapping[str, str]] = {
    "error loading model: unable to allocate": "a device has no room for a buffer",
    "failed to allocate compute buffers": "a device has no room for the compute buffer; a smaller --ubatch-size needs less",
    "failed to allocate compute pp buffers": "a device has no room for the compute buffer; a smaller --ubatch-size needs less",
    "failed to allocate buffer for kv cache": "a device has no room for the cache of --ctx-size tokens",
    "failed to create context": "the context could not be created",
    "ggml_backend_cuda_buffer_type_alloc_buffer: allocating": "a device has no room for a buffer",
    "ggml_gallocr_reserve_n: failed to allocate": "a device has no room for the compute buffer",
    "ggml_gallocr_reserve_n_impl: failed to allocate": "a device has no room for the compute buffer",
}
# words of ggml, on which other programs are built too
OF_GGML: Final = ("failed to create context", "failed to allocate compute buffers", "ggml_")
HOSTS: Final = re.compile(r"CPU|AMX|BLAS|.*_Host$")
OF_DEVICES: Final = frozenset(("model_buffer", "compute_buffer", "output_buffer", "runner_weights", "runner_graph"))
PARTS: Final[Mapping[tuple[str, str], tuple[str, ...]]] = {
    ("cache", "non-SWA"): ("cache", "kv_full"),
    ("cache", "SWA"): ("cache", "kv_swa"),
    ("cells", "SWA"): ("swa_cells",),
}
# what the lines are called, and the term that they add up to
ADDED: Final[Mapping[str, str]] = {
    "cache_k": "k",
    "cache_v": "v",
    "runner_weights": "model_buffer",
    "runner_weights_cpu": "model_buffer_cpu",
    "runner_graph": "compute_buffer",
    "runner_graph_cpu": "compute_buffer_cpu",
}


def weights_of(file_type: str) -> str | None:
    """The name of --weights for a file's type as a log prints it; None of one that is not known.

    >>> [weights_of(text) for text in ("Q4_K - Medium", "mostly Q8_0", "IQ4_XS - 4.25 bpw (guessed)", "Q9_K", "Q4_K_M")]
    ['q4_k_m', 'q8_0', 'iq4_xs', None, 'q4_k_m']
    """
    text = file_type.strip().lower().removeprefix("mostly ").removesuffix(" (guessed)")
    layout, _, more = text.partition(" - ")
    name = FILE_TYPES.get(text, layout + SIZES.get(more, ""))
    return name if name in MIXES else None


def settled(settings: Mapping[str, str]) -> dict[str, str]:
    """Settings as the flags have them: the file's type as --weights, switches as true or false."""
    every = dict(settings)
    if (weights := weights_of(every.pop("file_type", ""))) is not None:
        every["weights"] = weights
    for name in ("swa_full", "kv_unified"):
        if name in every:
            every[name] = SWITCHES.get(every[name], every[name])
    if "type_v" in every and every["type_v"] != every.get("type_k"):
        every["cache_type_v"] = every["type_v"]
    return every


def called(name: str, part: str, device: str) -> tuple[str, ...]:
    """Terms that a line's number adds to: buffers of the host are their own, caches also those of their layers.

    >>> called("model_buffer", "", "CPU_Mapped"), called("cache", "SWA", "")
    (('model_buffer_cpu',), ('cache', 'kv_swa'))
    """
    if name in OF_DEVICES and HOSTS.match(device):
        return (name + "_cpu",)
    return PARTS.get((name, part), (name,))


def summed_up(terms: Mapping[str, Logged]) -> dict[str, Logged]:
    """What the lines add up to: kv = caches of all layers, state = recurrent states. [B]

    Where only buffers are told, as they are where no summary is, theirs count.
    """
    every = dict(terms)
    for prefix in ("", "draft_"):
        for name, sources in (("kv", ("cache", "kv_buffer", "runner_kv")), ("state", ("state", "state_buffer"))):
            found = [every.pop(prefix + source, None) for source in sources]
            if (first := next(filter(None, found), None)) is not None:
                every[prefix + name] = replace(first, name=prefix + name)
        for source, name in ADDED.items():
            term = every.pop(prefix + source, None)
            if term is not None and prefix + name not in every:
                every[prefix + name] = replace(term, name=prefix + name)
    return every


LLAMA: Final = Dialect(
    engine="llama.cpp",
    messages=(
        *STARTS,
        *BUFFERS,
        *CACHES,
        *SAID,
        *(
            Message(words, re.compile(re.escape(words)), failure=why, common=words.startswith(OF_GGML))
            for words, why in REASONS.items()
        ),
    ),
    config=(),
    names={},
    shown="KV buffer size",
    called=called,
    summed_up=summed_up,
    settled=settled,
)
