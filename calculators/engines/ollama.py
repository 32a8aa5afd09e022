"""Ollama: llama.cpp's memory under defaults of its own."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from roofcast.calculators.answer import remarks
from roofcast.calculators.engines.llama_cpp import memory_of
from roofcast.calculators.engines.llama_cpp_cache import Graph
from roofcast.calculators.engines.llama_cpp_setup import UBATCH, Setup, cache_types, check_sizes, of_layers
from roofcast.calculators.engines.terms import GIB
from roofcast.calculators.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from roofcast.calculators.answer import Remarks
    from roofcast.calculators.deployment import Ready
    from roofcast.calculators.engines.flags import Flags
    from roofcast.calculators.engines.terms import EngineMemory, Served

NEWEST: Final = (0, 34, 2)
# first version with a default context -> that context of one slot. Source: ollama/ollama, release notes
CONTEXTS: Final[tuple[tuple[tuple[int, ...], int], ...]] = (((0, 6, 7), 4096), ((0,), 2048))
BY_MEMORY: Final = (0, 15, 5)  # from then on the context follows the memory of all GPUs
# memory at least [B] -> context of one slot. Source: ollama/ollama, docs/context-length.mdx
CONTEXT_OF_MEMORY: Final = ((48 * GIB, 262144), (24 * GIB, 32768), (0.0, 4096))
# files of its library were made before llama.cpp kept latents alone
LIBRARY: Final = Graph(latent=False, indexed=False)
TYPES: Final = ("f16", "bf16", "q8_0", "q4_0")  # of the cache


def answer(served: Served, given: Mapping[str, float]) -> EngineMemory:
    """What Ollama allocates, by llama.cpp's rules: one buffer of --n-ctx tokens times --parallel slots.

    --n-ctx is OLLAMA_CONTEXT_LENGTH or num_ctx, tokens of one slot; --parallel is OLLAMA_NUM_PARALLEL.

    Args:
        served: the model on its machine, and flags.
        given: bytes that a log states, which replace what is predicted.

    Raises:
        UsageError: as of llama.cpp, or a version that is none.
    """
    return memory_of(served.ready, setup_of(served.ready, served.flags), given)


def version_of(text: str | None) -> tuple[int, ...]:
    """The version that --engine-version names; the newest known where it names none.

    >>> version_of("0.6.7"), version_of("v0.5"), version_of(None)
    ((0, 6, 7), (0, 5), (0, 34, 2))
    """
    if text is None:
        return NEWEST
    found = re.fullmatch(r"v?(\d{1,4}(?:\.\d{1,4}){1,2})", text.strip())
    if found is None:
        raise UsageError(f"--engine-version {text}: versions of Ollama are such as 0.6.7")
    return tuple(map(int, found[1].split(".")))


def default_context(version: tuple[int, ...], memory: float) -> int:
    """Tokens of one slot where nothing says: 2,048, 4,096 from 0.6.7, by the GPUs' memory from 0.15.5. [token]

    Below 24 GiB of memory 4,096, below 48 GiB 32,768, else 262,144.

    Source: ollama/ollama, docs/context-length.mdx.

    >>> [default_context(version, 80 * GIB) for version in ((0, 5, 1), (0, 6, 7), (0, 15, 5))]
    [2048, 4096, 262144]
    """
    if version >= BY_MEMORY:
        return next(context for least, context in CONTEXT_OF_MEMORY if memory >= least)
    return next(context for first, context in CONTEXTS if version >= first)


def setup_of(ready: Ready, flags: Flags) -> Setup:
    """How Ollama starts llama.cpp's rules."""
    check_sizes(flags)
    version, slots = version_of(flags.engine_version), flags.parallel or 1
    memory = ready.capacity * ready.deployment.shards.devices
    asked = flags.n_ctx or default_context(version, memory)
    context = min(asked, ready.model.spec.max_context or asked)
    key, value, types_said = cache_types(ready, flags, flash=False)
    if key != value or key not in TYPES:
        types = key if key == value else f"{key} and {value}"
        raise UsageError(
            f"--kv {types}: Ollama has one type for keys and values, f16, q8_0 or q4_0 (OLLAMA_KV_CACHE_TYPE)"
        )
    name = ".".join(map(str, version))
    ubatch = UBATCH if flags.ubatch_size is None else flags.ubatch_size
    setup = Setup(
        engine="ollama",
        version=name,
        n_ctx=context * slots,
        slots=slots,
        unified=True,
        divided=True,
        key_type=key,
        value_type=value,
        graph=LIBRARY,
        ubatch=ubatch,
        window_batch=ubatch,
        plain_windows=False,
        swa_full=flags.swa_full,
        said=types_said + _said(flags, name, context),
    )
    return of_layers(ready, setup)


def _said(flags: Flags, version: str, context: int) -> Remarks:
    """Defaults that were taken, and a slot's context where it is less than was asked."""
    return remarks(
        [
            f"--engine-version is not given: {version}" if flags.engine_version is None else None,
            f"--n-ctx is not given: {context:,} tokens a slot" if not flags.n_ctx else None,
            f"--n-ctx {flags.n_ctx} is cut to the trained context, {context:,}"
            if flags.n_ctx and context < flags.n_ctx
            else None,
            "--parallel is not given: 1 slot" if flags.parallel is None else None,
        ],
        notes=["--n-ctx is of one slot, as num_ctx is; the cache has --parallel times as many cells"],
    )
