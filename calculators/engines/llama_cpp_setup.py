"""How a llama.cpp server of a build is started: its defaults, and how that build keeps latents and windows."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from roofcast.calculators.answer import Remarks, remarks
from roofcast.calculators.engines.flags import option
from roofcast.calculators.engines.llama_cpp_cache import FULL, PLAIN, SLIDING, TYPES, Graph, rows_of
from roofcast.calculators.errors import UsageError

if TYPE_CHECKING:
    from roofcast.calculators.deployment import Ready
    from roofcast.calculators.engines.flags import Flags

NEWEST: Final = 10969  # of September 2026, the newest whose lines were checked
# First build of each change. Those of LATENT, AUTO_SLOTS, FITS, VIEWS, PLAIN_WINDOWS and INDEX are told by the date
# of the merge, so may be off by some twenty; `_near` says so where it matters. ggml-org/llama.cpp, pull requests:
LATENT: Final = 5140  # 12801, 2025-04-15: latent attention keeps the latent
WINDOWS: Final = 5434  # 13194, 2025-05-20: window layers have a buffer of their own
SMALL_BATCH: Final = 5554  # 13833: that buffer counts the physical batch, not the logical one
STREAMS: Final = 5913  # 14363: a buffer for each slot
FLASH: Final = 6325  # 15434, 2025-08-30: flash attention is on where it can be
AUTO_SLOTS: Final = 6925  # 16736, 2025-11-02: four slots that share one buffer
FITS: Final = 7410  # 16653, 2025-12-15: context as trained, reduced until it fits
VIEWS: Final = 7835  # 19067, 2026-01-25: no values beside a latent
PLAIN_WINDOWS: Final = range(8611, 8640)  # 21277 and its revert 21332, 2026-04-01 to 03
INDEX: Final = 9930  # 25407, 2026-07: keys of a sparse index
BY_DATE: Final = (LATENT, WINDOWS, FLASH, AUTO_SLOTS, FITS, VIEWS, *PLAIN_WINDOWS, INDEX)
OFF: Final = 20
OLD_CONTEXT: Final = 4096
UBATCH, BATCH, SLOTS = 512, 2048, 4


@dataclass(frozen=True, slots=True)
class Setup:
    """How a server is started, all defaults filled in.

    Args:
        engine, version: whose rules these are.
        n_ctx: tokens of all slots together; None is as many as fit. [token]
        slots, unified, divided: as of `share_out`.
        key_type, value_type: of the cache, as llama.cpp names them.
        graph: how latent attention is kept.
        ubatch: tokens of a physical batch. [token]
        window_batch: tokens beside the window in a window layer's buffer; None where it has no buffer of its own. [token]
        plain_windows: whether window layers are never quantised.
        swa_full: whether window layers keep the whole context.
        said: what was taken as given.
    """

    engine: str
    version: str
    n_ctx: int | None
    slots: int
    unified: bool
    divided: bool
    key_type: str
    value_type: str
    graph: Graph
    ubatch: int
    window_batch: int | None
    plain_windows: bool
    swa_full: bool
    said: Remarks


def build_of(version: str | None) -> int:
    """The build number that --engine-version names; the newest known where it names none.

    >>> build_of("b4800"), build_of("4800"), build_of(None)
    (4800, 4800, 10969)
    """
    if version is None:
        return NEWEST
    found = re.fullmatch(r"b?(\d{1,6})", version.strip())
    if found is None:
        raise UsageError(f"--engine-version {version}: versions of llama.cpp are build numbers, such as b4800")
    return int(found[1])


def check_sizes(flags: Flags) -> None:
    """Refuses slots, batches and contexts that cannot be.

    Raises:
        UsageError: naming the flag and what it must be.
    """
    least = {"n_ctx": 0, "parallel": 1, "ubatch_size": 1}
    for name, size in least.items():
        value = getattr(flags, name)
        if value is not None and value < size:
            raise UsageError(f"{option(name)} {value}: it must be at least {size}")
    if flags.n_ctx and flags.n_ctx < (flags.parallel or 1):
        raise UsageError(f"--n-ctx {flags.n_ctx} is no token for each of {flags.parallel} slots; it must be more")


def setup_of(ready: Ready, flags: Flags) -> Setup:
    """How llama-server of that build starts."""
    check_sizes(flags)
    build = build_of(flags.engine_version)
    automatic = flags.parallel is None and build >= AUTO_SLOTS
    key, value, types_said = cache_types(ready, flags, flash=build >= FLASH)
    ubatch = UBATCH if flags.ubatch_size is None else flags.ubatch_size
    setup = Setup(
        engine="llama.cpp",
        version=f"b{build}",
        n_ctx=_context(ready, flags.n_ctx, build),
        slots=flags.parallel or (SLOTS if automatic else 1),
        unified=flags.kv_unified or automatic or build < STREAMS,
        divided=build < STREAMS,
        key_type=key,
        value_type=value,
        graph=Graph(latent=build >= LATENT, views=build >= VIEWS, indexed=build >= INDEX),
        ubatch=ubatch,
        window_batch=None if build < WINDOWS else ubatch if build >= SMALL_BATCH else BATCH,
        plain_windows=build in PLAIN_WINDOWS,
        swa_full=flags.swa_full,
        said=types_said + _build_said(flags, build, key, automatic=automatic),
    )
    return of_layers(ready, setup)


def _context(ready: Ready, asked: int | None, build: int) -> int | None:
    """Tokens of all slots: as asked; 0 is the trained context; without, 4,096 before b7410 and as many as fit after."""
    if asked == 0:
        return trained_context(ready)
    if asked is None and build < FITS:
        return OLD_CONTEXT
    return asked


def _build_said(flags: Flags, build: int, key_type: str, *, automatic: bool) -> Remarks:
    near = flags.engine_version is not None and any(abs(build - first) <= OFF for first in BY_DATE)
    alike = flags.cache_type_v is None and key_type != PLAIN
    return remarks(
        [
            f"--engine-version is not given: b{NEWEST}" if flags.engine_version is None else None,
            f"rules of b{NEWEST}, the newest known, are taken for b{build}" if build > NEWEST else None,
            f"b{build} is within {OFF} builds of a change that is placed by its date alone" if near else None,
            f"--parallel is not given: {SLOTS} slots that share one buffer, as llama-server has" if automatic else None,
            f"--cache-type-v is not given: {key_type} as keys are; llama-server's own default is f16"
            if alike
            else None,
        ]
    )


def cache_types(ready: Ready, flags: Flags, *, flash: bool) -> tuple[str, str, Remarks]:
    """Types of keys and of values, and what there is to say about them.

    Raises:
        UsageError: a format that llama.cpp's cache cannot have.
    """
    asked = ready.deployment.kv.name
    if asked not in TYPES:
        raise UsageError(f"--kv {asked}: the cache of llama.cpp has none such; it has {', '.join(TYPES.values())}")
    value = flags.cache_type_v or TYPES[asked]
    value = TYPES.get(value, value)
    if value not in TYPES.values():
        raise UsageError(f"--cache-type-v {value}: llama.cpp has none such; it has {', '.join(TYPES.values())}")
    quantised = value not in {"f32", "f16", "bf16"}
    needs = "quantised values need it (-fa on, OLLAMA_FLASH_ATTENTION=1)"
    said = remarks(
        [f"flash attention is switched on: {needs}" if quantised and not flash else None],
        notes=[f"flash attention must not be off: {needs}" if quantised and flash else None],
    )
    return TYPES[asked], value, said


def of_layers(ready: Ready, setup: Setup) -> Setup:
    """The setup for a model's latents and windows, and what is taken of the build's way with them.

    Where all layers have a window it saves nothing: no such class (Mistral-7B-v0.1, Phi-3, StarCoder2) states one in
    its GGUF file, or llama.cpp leaves it out.
    """
    spec = ready.model.spec
    latent = any(hasattr(mixer, "kv_lora_rank") for layer in spec.layer_counts for mixer in layer.mixers)
    kinds = {row.kind for row in rows_of(spec.layers, setup.graph)}
    slides = SLIDING in kinds and setup.window_batch is not None
    uniform = slides and FULL not in kinds
    whole = "latents as whole keys and values of all heads"
    newer = f"latents are kept alone, as of a file with attn_k_b (converted since b{LATENT}); from older ones, {whole}"
    said = remarks(
        [
            (newer if setup.graph.latent else f"{setup.engine} {setup.version} keeps {whole}") if latent else None,
            f"all layers have a window, which {setup.engine} does not use: cells for the whole context"
            if uniform
            else None,
            "window layers stay in f16 (pull request 21277, soon reverted)" if slides and setup.plain_windows else None,
        ]
    )
    return replace(setup, window_batch=None if uniform else setup.window_batch, said=setup.said + said)


def trained_context(ready: Ready) -> int:
    """Tokens that the model was trained with.

    Raises:
        UsageError: its config does not say.
    """
    trained = ready.model.spec.max_context
    if trained is None:
        raise UsageError(f"{ready.model.name} states no context that it was trained with; --n-ctx must say it")
    return trained
