"""The answer of `profile` and its rows: plain numbers in SI units, as JSON has them."""

from __future__ import annotations

from dataclasses import dataclass, field

from roofcast.calculators.profile_rows_checkpoint import CheckpointRow  # noqa: TC001 - schemas read the types
from roofcast.calculators.profile_rows_ranks import CollectivesRow, RanksRow  # noqa: TC001 - likewise
from roofcast.calculators.profile_rows_rounds import SpeculationRow  # noqa: TC001 - likewise
from roofcast.calculators.profile_rows_time import TimeRow  # noqa: TC001 - likewise


@dataclass(frozen=True, slots=True)
class MachineRow:
    """The device that was measured, and the software that drove it."""

    name: str
    """As its driver reports it."""
    kind: str
    """cuda, rocm, mps or cpu."""
    accelerator: str | None
    """Its id in the database; null where it is not there."""
    memory_bytes: int
    """That programs see. [B]"""
    free_bytes: int
    """Of these, as the profile began. [B]"""
    l2_bytes: int
    """Of the last cache before memory, as far as known. [B]"""
    sms: int
    """Multiprocessors; of a CPU threads."""
    torch: str
    """Its version."""
    driver: str | None
    """Its version; null where it does not tell."""
    clock: str | None
    """As the driver reports it; null likewise."""
    kernels: str
    """triton where fused kernels run, else torch."""
    remarks: list[str]
    """What may have disturbed the measurement."""


@dataclass(frozen=True, slots=True)
class BandwidthRow:
    """Bytes moved by one kernel over a buffer."""

    how: str
    """read or copy."""
    size_bytes: int
    """Of the buffer. [B]"""
    moved_bytes: int
    """Read and written. [B]"""
    time: TimeRow
    """Of one call."""
    bytes_per_second: float
    """Moved over the median time. [B/s]"""
    of_datasheet: float | None
    """Share of the datasheet's bandwidth; null where it is not known. [-]"""


@dataclass(frozen=True, slots=True)
class ProductRow:
    """One matrix product, [m, k] @ [k, n]."""

    format: str
    """That it multiplies in."""
    m: int
    """Rows of the first."""
    n: int
    """Columns of the second."""
    k: int
    """Columns of the first."""
    time: TimeRow | None
    """Of one call; null where it could not run."""
    flops_per_second: float | None
    """2 m n k over the median time; null likewise. [FLOP/s]"""
    of_datasheet: float | None
    """Share of the datasheet's peak; null where either is not known. [-]"""
    problem: str | None
    """Why it could not run."""


@dataclass(frozen=True, slots=True)
class LaunchRow:
    """What starting one empty kernel takes, among many in a row."""

    how: str
    """eager or graph."""
    time: TimeRow
    """Of one."""


@dataclass(frozen=True, slots=True)
class RoofRow:
    """One format's roof."""

    format: str
    """That is multiplied in."""
    peak_flops_per_second: float
    """The best rate that a product reached. [FLOP/s]"""
    ridge: float | None
    """That over the bandwidth, both as measured; null where no bandwidth was measured. [FLOP/B]"""
    datasheet_flops_per_second: float | None
    """The datasheet's dense peak; null where it is not known. [FLOP/s]"""
    datasheet_ridge: float | None
    """The ridge by the datasheet; null likewise. [FLOP/B]"""
    of_datasheet: float | None
    """Share of the datasheet's peak; null likewise. [-]"""


@dataclass(frozen=True, slots=True)
class RoofsRow:
    """The roofs of a machine as measured, beside its datasheet."""

    bandwidth_bytes_per_second: float | None
    """The measured memory roof, the best rate of reading; null where none was measured. [B/s]"""
    datasheet_bytes_per_second: float | None
    """The datasheet's; null where the device is not in the database. [B/s]"""
    of_datasheet: float | None
    """Share of the datasheet's bandwidth; null where either is not known. [-]"""
    roofs: list[RoofRow]
    """A row a format."""
    bandwidths: list[BandwidthRow]
    """All that was read and copied."""
    products: list[ProductRow]
    """All that was multiplied."""
    launches: list[LaunchRow]
    """What starting a kernel takes."""


@dataclass(frozen=True, slots=True)
class PartRow:
    """A term of a step, measured alone, all layers after one another."""

    name: str
    """As the terms of `estimate` are named."""
    family: str
    """gemm, moe, attn_prefill, attn_decode or elementwise."""
    calls: int
    """Kernels, or groups of them, that do it."""
    time: TimeRow
    """Of all of them."""


@dataclass(frozen=True, slots=True)
class ShareRow:
    """A term, a family or a whole step, measured beside what it could be."""

    name: str
    """Of the term or family; `step` is the whole."""
    family: str
    """gemm, moe, attn_prefill, attn_decode or elementwise; empty of a whole step."""
    flops: float
    """That it takes, on one of the devices that share it. [FLOP]"""
    bytes: float
    """Weights and cache that must move, likewise. [B]"""
    seconds: float | None
    """As measured; null where it was not measured alone. [s]"""
    bound_seconds: float | None
    """Least time by the datasheet; null where the device is not in the database, or of exchanges over no links of it. [s]"""
    measured_bound_seconds: float | None
    """Least time by the roofs as measured; null where these were not. [s]"""
    expected_seconds: float | None
    """By fitted constants; null where none are asked or the device is not in the database, or where exchanges over no links of it
    are a part. [s]"""
    flops_per_second: float | None
    """Arithmetic rate that one of these devices reached. [FLOP/s]"""
    bytes_per_second: float | None
    """Rate of its memory reached. [B/s]"""
    of_datasheet: float | None
    """Least time by the datasheet over the measured time: share of its roof. [-]"""
    of_measured: float | None
    """Least time by the measured roofs over the measured time: share of the measured roof. [-]"""


@dataclass(frozen=True, slots=True)
class PointRow:
    """One step of the model."""

    phase: str
    """prefill or decode."""
    batch: int
    """Sequences at once."""
    context: int
    """Tokens of a prompt, or in the cache of each sequence with the new one. [token]"""
    time: TimeRow | None
    """Of the whole step; null where it could not run."""
    tokens_per_second: float | None
    """That the step computes. [token/s]"""
    launched: str
    """graph or eager."""
    routing: str
    """Of experts, drawn or balanced; empty of a model without."""
    problem: str | None
    """Why it could not run."""
    intensity: float | None
    """FLOP a byte of weights and cache. [FLOP/B]"""
    near: str | None
    """The roof that it is nearest to by measurement: compute or memory; null where roofs or step were not measured."""
    of_compute: float | None
    """Arithmetic rate reached over the measured peak of its format; null likewise. [-]"""
    of_memory: float | None
    """Rate of memory reached over the measured bandwidth; null likewise. [-]"""
    step: ShareRow | None
    """The whole step."""
    families: list[ShareRow] = field(default_factory=list)
    """Its families of operations."""
    terms: list[ShareRow] = field(default_factory=list)
    """Its terms."""
    parts: list[PartRow] = field(default_factory=list)
    """Its terms as they were timed."""


@dataclass(frozen=True, slots=True)
class AttentionRow:
    """One call of attention."""

    phase: str
    """prefill or decode."""
    backend: str
    """math, efficient, flash, cudnn; of decode also split_kv, the profiler's own."""
    format: str
    """Of queries and cache."""
    batch: int
    """Sequences."""
    query_heads: int
    """Query heads."""
    kv_heads: int
    """KV heads."""
    head_dim: int
    """Width of a head."""
    length: int
    """Tokens of the prompt, or of the cache. [token]"""
    time: TimeRow | None
    """Of one call; null where it could not run."""
    flops_per_second: float | None
    """Arithmetic rate reached, masked half of a prompt not counted. [FLOP/s]"""
    bytes_per_second: float | None
    """Of keys and values. [B/s]"""
    of_measured: float | None
    """Share of the measured bandwidth, of decode; null where it was not measured. [-]"""
    extra_bytes: int | None
    """Peak of memory beside inputs and outputs; null where it was not measured. [B]"""
    problem: str | None
    """Why it could not run."""
    note: str = ""
    """How it was made to run; empty where it took the inputs as they are."""


@dataclass(frozen=True, slots=True)
class FittedRow:
    """The constants of one family and format."""

    family: str
    """gemm, moe, attn_prefill, attn_decode, elementwise; host and step are of whole steps."""
    format: str
    """That is multiplied in; of host and step the phase."""
    rows: int
    """Measurements that they are fitted to."""
    median_error: float | None
    """Of measurements kept out of the fit, |expected / measured - 1|. [-]"""
    p90_error: float | None
    """The error that 90 % of them stay below. [-]"""
    spread: float
    """Standard deviation of ln(measured / expected). [-]"""
    constants: dict[str, float]
    """By name, SI units."""


@dataclass(frozen=True, slots=True)
class CalibrationRow:
    """What `profile calibrate` fitted."""

    file: str | None
    """Where the constants were written; null where they were not."""
    replaced: bool
    """Whether an older file of that name stood there."""
    fitted: list[FittedRow]
    """A row a family and format."""


@dataclass(frozen=True, slots=True)
class MeasuredRow:
    """A point as `roofcast validate` reads it."""

    quantity: str
    """decode_seconds or prefill_seconds."""
    value: float
    """The median. [s]"""
    low: float
    """10th percentile. [s]"""
    high: float
    """90th percentile. [s]"""
    spread: float
    """Standard deviation. [s]"""
    model: str
    """Name as asked for."""
    gpu: str
    """Id in the database, else the name that the driver reports."""
    engine: str
    """roofcast."""
    engine_version: str
    """Of torch, and which kernels ran."""
    weights: str
    """Their format."""
    kv: str
    """Format of the cache."""
    batch: int
    """Sequences at once."""
    prompt: int | None
    """Tokens of a prompt; null of decode. [token]"""
    context: int | None
    """Tokens in the cache of each sequence with the new one; null of prefill. [token]"""
    revision: str | None = None
    """Of the repo; null where none was asked."""
    gpus: int = 1
    """Devices."""
    tp: int = 1
    """Of these, that share every layer."""


@dataclass(frozen=True, slots=True)
class ProfileResult:
    """The result of `profile`."""

    what: str
    """device, prefill, decode, attention, calibrate, compare, collectives, speculate or checkpoint."""
    machine: MachineRow
    """What was measured."""
    model: str | None = None
    """Name as asked for; null where no model is measured."""
    weights: str | None = None
    """Format that its weights have in memory, drawn at random; null likewise."""
    device: RoofsRow | None = None
    """The roofs as measured; null where they were not."""
    points: list[PointRow] = field(default_factory=list)
    """A step of the model each."""
    attention: list[AttentionRow] = field(default_factory=list)
    """Calls of attention, a row a backend and shape."""
    calibration: CalibrationRow | None = None
    """The constants that were fitted; null but of calibrate."""
    tp: int = 1
    """Devices that share every layer of the model."""
    ranks: RanksRow | None = None
    """The ranks that took part; null of one device."""
    collectives: CollectivesRow | None = None
    """Exchanges between ranks; null but of collectives."""
    speculation: SpeculationRow | None = None
    """Rounds of speculation; null but of speculate."""
    checkpoint: CheckpointRow | None = None
    """A real checkpoint's times; null but of checkpoint."""
    measurements: list[MeasuredRow] = field(default_factory=list)
    """The points as `roofcast validate` reads them."""
    unfinished: list[str] = field(default_factory=list)
    """What was asked and not measured, as the budget was spent or the user interrupted."""
