"""`attention` as a document: traffic and memory of a prompt, backends, published fractions, and blocks of decode."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from roofcast.calculators.answer import Remarks, remarks
from roofcast.calculators.attention_rows import ELEMENTS
from roofcast.hwdb.units import show_percent
from roofcast.reports.data import as_data
from roofcast.reports.document import Document, Table, plain, table
from roofcast.reports.numbers import GIB, KIB, NOTHING, context_name, count, figures, millis, ratio

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from roofcast.calculators.attention import AttentionResult, CheckResult, HeadsRow
    from roofcast.calculators.attention_rows import DecodeRow, IoRow, MemoryRow
    from roofcast.calculators.flash_generations import Published

GB: Final = 1e9
MIB: Final = 2.0**20
FLASH: Final = "FlashAttention-"
LEAST_WHOLE: Final = 0.1  # share that is shown without decimals
RUNS: Final = {True: "yes", False: "no", None: "?"}
UNKNOWN_NOTE: Final = "? is not known, or as the software is built"
TIMES: Final = ("arith.\nms", "standard\nmem. ms", "flash\nmem. ms", "standard\nbound by", "flash\nbound by")
DECODE_HEADER: Final = (
    *("kernel", "packs", "K, V\nus", "blocks", "SMs\nbusy", "wave\neff."),
    *("splits", "blocks\nsplit", "SMs busy\nsplit", "wave eff.\nsplit", "work\nMB"),
)
LATENT_KERNEL: Final = "FlashMLA"
HALVES: Final = ("fp16", "bf16")  # one as quick as the other
PUBLISHED_IN: Final = {"fp16": HALVES, "bf16": HALVES, "fp16/bf16": HALVES, "fp8": ()}
IO_NOTES: Final = (
    (
        "traffic is of one layer, every query with every key: standard writes and reads the score matrix, flash is "
        "max(N²d²/M, floor), the theorem with a constant of 1; floor moves Q, K, V and O once"
    ),
    (
        "loops counts algorithm 1 of the FlashAttention paper, K and V outermost; tiled what kernels since "
        "FlashAttention-2 ask for with 128 rows of Q a block: caches serve a part of it, so that memory sees less"
    ),
    (
        "x less is standard over flash, as much as it can be: by loops or tiled it is less; a step takes the longer of arith. "
        "and mem."
    ),
)
MEMORY_NOTE: Final = (
    "PyTorch's math backend computes fp16 and bf16 in fp32: its score matrix, then that and the softmax's copy; "
    "memory-efficient keeps as much as flash where gradients are wanted, else nothing"
)
DECODE_NOTES: Final = (
    (
        "SMs busy is the share that gets a thread block; wave eff. the share of slots with work over all waves, where "
        "blocks an SM are known; a kernel that splits K and V writes partial results (work) and combines them after; K, V is the least time of reading them once"
    ),
    "how kernels launch by their sources' rules, not whether an engine takes them",
)
GENERATIONS_NOTE: Final = (
    "generations are those that the GPU can run, in 16 bits and heads up to 256 (the first up to 128)"
)
PUBLISHED_NOTE: Final = "published fractions are maxima of long sequences; what to expect elsewhere is not in them"


def attention_document(result: AttentionResult, inputs: Mapping[str, Any], remarks: Remarks) -> Document:
    """The page of `attention`."""
    return Document(
        command="attention",
        inputs=inputs,
        result=result,
        records=list(_records(result)),
        lines=tuple(map(plain, _lines(result))),
        tables=tuple(_tables(result)),
        remarks=remarks + _notes(result),
    )


def _records(result: AttentionResult) -> Iterator[dict[str, Any]]:
    """Rows for CSV, each with the name of its table."""
    for name in ("io", "memory", "decode", "backends", "generations", "published"):
        yield from ({"table": name, **as_data(row)} for row in getattr(result, name))
    if result.check is not None:
        yield from ({"table": "check", **as_data(row)} for row in result.check.rows)


def _lines(result: AttentionResult) -> Iterator[str]:
    for row in result.heads:
        yield f"{f'{result.model}: ' if result.model else ''}{row.attention}, {_heads(row)}, {result.format}"
    for gpu in _devices(result):
        yield from _device_lines(gpu, result)
    if result.check is not None:
        yield from _check_lines(result.check)


def _devices(result: AttentionResult) -> list[str | None]:
    """Devices that there are rows of traffic of; None is none in particular."""
    return list(dict.fromkeys(row.gpu for row in result.io))


def _heads(row: HeadsRow) -> str:
    """Heads of a kind in words."""
    prompt = _of(row.query_heads, row.kv_heads, row.key_width, row.value_width)
    decode = _of(row.query_heads, row.decode_kv_heads, row.decode_key_width, row.decode_value_width)
    return prompt if decode == prompt else f"{prompt} over a prompt, {decode} in decode"


def _of(query: int, shared: int, key: int, value: int) -> str:
    """Heads and their widths.

    >>> _of(32, 8, 128, 128), _of(128, 1, 576, 512)
    ('32/8 heads of 128', '128/1 heads of 576 (values 512)')
    """
    return f"{query}/{shared} heads of {key}" + ("" if key == value else f" (values {value})")


def _device_lines(gpu: str | None, result: AttentionResult) -> Iterator[str]:
    """On-chip memory, ridge and generations of FlashAttention of a device."""
    row = next(row for row in result.io if row.gpu == gpu)
    facts = []
    if row.memory_elements is not None:
        size = row.memory_elements * ELEMENTS[result.format]
        facts.append(f"M = {size / KIB:,.0f} KiB of on-chip memory, {row.memory_elements:,.0f} elements")
    if row.ridge is not None:
        facts.append(f"ridge {figures(row.ridge)} FLOP/B")
    generations = [one for one in result.generations if one.gpu == gpu]
    if generations:
        shown = (f"{one.generation.removeprefix(FLASH)} {RUNS[one.runs]}" for one in generations)
        facts.append(f"{FLASH}{', '.join(shown)}")
    if facts:
        yield f"{f'{gpu}: ' if gpu else ''}{'; '.join(facts)}"


def _check_lines(check: CheckResult) -> Iterator[str]:
    verdict = "agree to rounding" if check.agrees else "DO NOT AGREE"
    yield (
        f"standard, online softmax and SDPA {verdict}: {check.heads} heads of {check.head_dim}, "
        f"{check.tokens:,} tokens, fp32 on the CPU, seed {check.seed}"
    )
    yield (
        f"scores held at once: {check.tokens:,} x {check.block} instead of {check.tokens:,} x {check.tokens:,}, "
        f"{check.score_ratio:g}x fewer"
    )


def _tables(result: AttentionResult) -> Iterator[Table]:
    for gpu in _devices(result):
        yield _traffic([row for row in result.io if row.gpu == gpu], gpu)
    if result.memory:
        yield _memory(result.memory)
    if result.backends:
        yield _backends(result)
    if result.gpus and (shown := _of_devices(result)):
        yield _published(shown)
    for gpu in result.gpus:
        if rows := [row for row in result.decode if row.gpu == gpu]:
            yield _decode(rows, gpu)
    if result.check is not None:
        yield _check(result.check)


def _named(rows: Sequence[IoRow] | Sequence[MemoryRow] | Sequence[DecodeRow]) -> bool:
    """Whether rows are of several kinds of attention, so that each must say which."""
    return len({row.attention for row in rows}) > 1


def _traffic(rows: Sequence[IoRow], gpu: str | None) -> Table:
    """Bytes of a prompt, FLOP a byte, and least times."""
    named = _named(rows)
    header = (
        *(["attention"] if named else []),
        *("ctx", "batch", "standard\nGB", "flash\nGB", "x\nless", "floor\nGB", "loops\nGB", "tiled\nGB"),
        *("standard\nFLOP/B", "flash\nFLOP/B", "tiled\nFLOP/B"),
        *(TIMES if gpu else ()),
    )
    cells = [(*([row.attention] if named else []), *_traffic_cells(row)) for row in rows]
    keys = 3 if named else 2
    title = f"{plain(gpu)}: " if gpu else ""
    return table(
        header,
        cells,
        title=f"{title}traffic of a prompt of ctx tokens, one layer",
        left=(*([0] if named else []), *([len(header) - 2, len(header) - 1] if gpu else [])),
        breaks=(keys + 6, keys + 9) if gpu else (keys + 6,),
        keys=keys,
    )


def _traffic_cells(row: IoRow) -> tuple[str, ...]:
    sizes = (row.standard_bytes, row.flash_bytes)
    more = (row.compulsory_bytes, row.algorithm_bytes, row.tiled_bytes)
    return (
        context_name(row.context),
        count(row.batch),
        *(_giga(size) for size in sizes),
        ratio(row.standard_over_flash),
        *(_giga(size) for size in more),
        figures(row.standard_intensity),
        figures(row.flash_intensity),
        figures(row.tiled_intensity),
        *(_times(row) if row.gpu else ()),
    )


def _times(row: IoRow) -> tuple[str, ...]:
    seconds = (row.compute_seconds, row.standard_seconds, row.flash_seconds)
    return *(millis(one) for one in seconds), row.standard_bound_by or NOTHING, row.flash_bound_by or NOTHING


def _giga(size: float | None) -> str:
    return NOTHING if size is None else figures(size / GB)


def _memory(rows: Sequence[MemoryRow]) -> Table:
    """What attention keeps beside inputs and output."""
    named = _named(rows)
    header = ("ctx", "batch", "scores\nGiB", "math scores\nGiB", "math peak\nGiB", "flash\nMiB", "mem.-efficient\nMiB")
    cells = [
        (
            *([row.attention] if named else []),
            context_name(row.context),
            count(row.batch),
            *(figures(size / GIB) for size in (row.score_bytes, row.math_score_bytes, row.math_peak_bytes)),
            *(figures(size / MIB) for size in (row.logsumexp_bytes, row.efficient_bytes)),
        )
        for row in rows
    ]
    title = "memory beside inputs and output, one layer"
    return table((*(["attention"] if named else []), *header), cells, title=title, left=(0,) if named else ())


def _backends(result: AttentionResult) -> Table:
    """PyTorch's backends, why some do not run, and what the others depend on."""
    rows = [
        (row.gpu, row.attention, row.backend.replace("_", " "), RUNS[row.runs], row.reason or row.says)
        for row in result.backends
    ]
    one_gpu, one_kind = len({row[0] for row in rows}) == 1, len({row[1] for row in rows}) == 1
    shown = [
        column for column, hidden in ((0, one_gpu), (1, one_kind), (2, False), (3, False), (4, False)) if not hidden
    ]
    header = ("gpu", "attention", "backend", "runs", "why not, or what it depends on")
    return table(
        [header[column] for column in shown],
        [[row[column] for column in shown] for row in rows],
        title="backends of scaled_dot_product_attention",
        left=range(len(shown)),
    )


def _of_devices(result: AttentionResult) -> list[Published]:
    """Published fractions of devices with the compute capability of one that is asked for, in its format and kind."""
    wanted = set(result.capabilities.values())
    latent = any(row.decode_key_width > row.decode_value_width for row in result.heads)
    return [
        row
        for row in result.published
        if row.compute_capability in wanted
        and result.format in PUBLISHED_IN.get(row.format, row.format)
        and (latent or row.generation != LATENT_KERNEL)
    ]


def _published(rows: Sequence[Published]) -> Table:
    cells = [
        (row.generation, row.gpu, row.format, f"{_range(row)} of {row.of}", row.conditions, _where(row)) for row in rows
    ]
    header = ("published", "on", "format", "reached", "what", "source")
    return table(header, cells, left=range(len(header)))


def _range(row: Published) -> str:
    low, high = show_percent(row.low), show_percent(row.high)
    return high if low == high else f"{low.removesuffix('%')}-{high}"


def _where(row: Published) -> str:
    """The last part of an address, which names a paper or a repository."""
    named = row.source.rstrip("/").rpartition("/")[2]
    return named if row.access == "seen" else f"{named}, {row.access}"


def _decode(rows: Sequence[DecodeRow], gpu: str) -> Table:
    """Blocks of a decode step, with and without splitting K and V."""
    named = _named(rows)
    leading = (*(["attention"] if named else []), "ctx", "batch")
    cells = [(*([row.attention] if named else []), *_decode_cells(row)) for row in rows]
    first = len(leading)
    new = "a new token" if rows[0].queries == 1 else f"{rows[0].queries} new tokens"
    return table(
        (*leading, *DECODE_HEADER),
        cells,
        title=f"{plain(gpu)}: {new} of each sequence against ctx in the cache",
        left=(0, first, first + 1) if named else (first, first + 1),
        breaks=(first + 6,),
        keys=first + 1,
    )


def _decode_cells(row: DecodeRow) -> tuple[str, ...]:
    return (
        context_name(row.context),
        count(row.batch),
        row.kernel,
        "yes" if row.packed else "no",
        figures(row.cache_read_seconds * 1e6),
        count(row.blocks),
        _share(row.busy_share),
        _share(row.wave_efficiency),
        count(row.splits),
        count(row.split_blocks),
        _share(row.split_busy_share),
        _share(row.split_wave_efficiency),
        figures(row.workspace_bytes / 1e6),
    )


def _share(value: float | None) -> str:
    """A share with as many figures as tell it from nothing.

    >>> _share(1.0), _share(0.0185), _share(None)
    ('100%', '1.9%', '-')
    """
    return NOTHING if value is None else show_percent(value, 0 if value >= LEAST_WHOLE else 1)


def _check(check: CheckResult) -> Table:
    header = ("causal", "standard", "online", "SDPA", "online against\nstandard")
    rows = [
        (
            "yes" if row.causal else "no",
            f"{row.standard_error:.1e}",
            f"{row.online_error:.1e}",
            f"{row.sdpa_error:.1e}",
            f"{row.online_against_standard:.1e}",
        )
        for row in check.rows
    ]
    limits = ("allowed", *([f"{check.most_error:.0e}"] * 3), f"{check.most_difference:.0e}")
    return table(header, [*rows, limits], title="most that fp32 is off fp64, anywhere")


def _unknown(result: AttentionResult) -> bool:
    """Whether it is not known of anything whether it runs."""
    runs = [row.runs for row in result.backends] + [row.runs for row in result.generations]
    return None in runs


def _notes(result: AttentionResult) -> Remarks:
    """How to read the tables that there are."""
    return remarks(
        notes=[
            *(IO_NOTES if result.io else ()),
            MEMORY_NOTE if result.memory else None,
            GENERATIONS_NOTE if result.generations else None,
            PUBLISHED_NOTE if result.gpus and _of_devices(result) else None,
            *(DECODE_NOTES if result.decode else ()),
            UNKNOWN_NOTE if _unknown(result) else None,
        ]
    )
