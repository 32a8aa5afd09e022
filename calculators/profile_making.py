"""From measured values to the rows of `profile`'s answer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from roofcast.calculators.profile_rows import (
    AttentionRow,
    BandwidthRow,
    LaunchRow,
    MachineRow,
    MeasuredRow,
    PartRow,
    PointRow,
    ProductRow,
    RoofRow,
    RoofsRow,
    ShareRow,
)
from roofcast.calculators.profile_rows_ranks import RanksRow
from roofcast.calculators.profile_rows_time import TimeRow
from roofcast.calculators.profiled import (
    Bandwidth,
    DeviceProfile,
    Launch,
    Machine,
    Part,
    Product,
    Sample,
    StepProfile,
)
from roofcast.modelspec.step import DECODE

if TYPE_CHECKING:
    from collections.abc import Iterable

    from roofcast.calculators.profile_compared import Compared, StepComparison
    from roofcast.calculators.profiled import AttentionPoint
    from roofcast.calculators.profiled_ranks import RankGroup
    from roofcast.hwdb.accelerator import Accelerator

ENGINE: Final = "roofcast"


def machine_row(machine: Machine) -> MachineRow:
    """A machine as JSON has it."""
    return MachineRow(
        name=machine.name,
        kind=machine.kind,
        accelerator=machine.accelerator,
        memory_bytes=machine.memory_bytes,
        free_bytes=machine.free_bytes,
        l2_bytes=machine.l2_bytes,
        sms=machine.sms,
        torch=machine.torch,
        driver=machine.driver,
        clock=machine.clock,
        kernels=machine.kernels,
        remarks=list(machine.remarks),
    )


def ranks_row(group: RankGroup | None) -> RanksRow | None:
    """Who measured together; None of a device alone."""
    return None if group is None else RanksRow(group.size, group.backend, group.hosts, group.library, group.link)


def roofs_row(profile: DeviceProfile, accelerator: Accelerator | None) -> RoofsRow:
    """The roofs as measured, beside those of the data sheet where there is one."""
    bandwidth = accelerator.bandwidth if accelerator is not None else None
    return RoofsRow(
        bandwidth_bytes_per_second=profile.bandwidth,
        datasheet_bytes_per_second=bandwidth,
        of_datasheet=share(profile.bandwidth, bandwidth),
        roofs=[_roof(name, profile, accelerator) for name in profile.peaks],
        bandwidths=[_bandwidth(one, bandwidth) for one in profile.bandwidths],
        products=[_product(one, accelerator) for one in profile.products],
        launches=[LaunchRow(one.how, time_row(one.sample)) for one in profile.launches],
    )


def _roof(name: str, profile: DeviceProfile, accelerator: Accelerator | None) -> RoofRow:
    peak, sheet = profile.peaks[name], datasheet_peak(accelerator, name)
    return RoofRow(
        format=name,
        peak_flops_per_second=peak,
        ridge=profile.ridges.get(name),
        datasheet_flops_per_second=sheet,
        datasheet_ridge=None if sheet is None or accelerator is None else sheet / accelerator.bandwidth,
        of_datasheet=share(peak, sheet),
    )


def datasheet_peak(accelerator: Accelerator | None, name: str) -> float | None:
    """The dense peak of a format; None of a device or format that no data sheet tells. [FLOP/s]"""
    return None if accelerator is None or name not in accelerator.peaks else accelerator.peak(name)


def share(value: float | None, whole: float | None) -> float | None:
    """One over the other, of what is known. [-]

    >>> share(4.46e12, 4.8e12), share(None, 4.8e12)
    (0.929166, None)
    """
    return None if value is None or not whole else value / whole


def _bandwidth(one: Bandwidth, sheet: float | None) -> BandwidthRow:
    rate = one.bytes_per_second
    return BandwidthRow(one.how, one.size, one.moved, time_row(one.sample), rate, share(rate, sheet))


def _product(one: Product, accelerator: Accelerator | None) -> ProductRow:
    return ProductRow(
        format=one.format,
        m=one.m,
        n=one.n,
        k=one.k,
        time=None if one.sample is None else time_row(one.sample),
        flops_per_second=one.flops_per_second,
        of_datasheet=share(one.flops_per_second, datasheet_peak(accelerator, one.format)),
        problem=one.problem,
    )


def time_row(sample: Sample) -> TimeRow:
    """Repeated times as JSON has them."""
    return TimeRow(sample.seconds, sample.low, sample.high, sample.spread, sample.repeats)


def point_row(compared: StepComparison) -> PointRow:
    """A step, measured beside what it could be."""
    step, whole = compared.step, compared.whole
    sample = step.sample
    return PointRow(
        phase=step.phase,
        batch=step.batch,
        context=step.context,
        time=None if sample is None else time_row(sample),
        tokens_per_second=None if sample is None else step.tokens / sample.seconds,
        launched=step.launched,
        routing=step.routing,
        problem=step.problem,
        intensity=whole.flops / whole.bytes if whole.bytes else None,
        near=whole.bound_by if whole.measured is not None else None,
        of_compute=whole.compute_share if whole.measured is not None else None,
        of_memory=whole.memory_share if whole.measured is not None else None,
        step=share_row(whole),
        families=[share_row(one) for one in compared.families],
        terms=[share_row(one) for one in compared.rows],
        parts=[PartRow(one.name, one.family, one.calls, time_row(one.sample)) for one in step.parts],
    )


def share_row(one: Compared) -> ShareRow:
    """A term, a family or a whole step as JSON has it."""
    return ShareRow(
        name=one.name,
        family=one.family,
        flops=one.flops,
        bytes=one.moved,
        seconds=one.seconds,
        bound_seconds=one.bound,
        measured_bound_seconds=None if one.measured is None else one.measured.bound,
        expected_seconds=one.expected,
        flops_per_second=one.flops_per_second,
        bytes_per_second=one.bytes_per_second,
        of_datasheet=one.datasheet_share,
        of_measured=one.measured_share,
    )


def attention_row(one: AttentionPoint, device: DeviceProfile | None) -> AttentionRow:
    """A call of attention, with its rates."""
    seconds = None if one.sample is None else one.sample.seconds
    rate = None if seconds is None else one.cache_bytes / seconds
    roof = device.bandwidth if device is not None and one.phase == DECODE else None
    return AttentionRow(
        phase=one.phase,
        backend=one.backend,
        format=one.format,
        batch=one.batch,
        query_heads=one.query_heads,
        kv_heads=one.kv_heads,
        head_dim=one.head_dim,
        length=one.length,
        time=None if one.sample is None else time_row(one.sample),
        flops_per_second=None if seconds is None else one.flops / seconds,
        bytes_per_second=rate,
        of_measured=share(rate, roof),
        extra_bytes=one.extra_bytes,
        problem=one.problem,
        note=one.note,
    )


def measured_rows(
    points: Iterable[StepProfile],
    machine: Machine | MachineRow,
    named: tuple[str, str | None],
    formats: tuple[str, str],
    tp: int = 1,
) -> list[MeasuredRow]:
    """The points that ran, as `validate` reads them.

    Args:
        points: steps.
        machine: that they ran on.
        named: model, as asked for, and revision.
        formats: of weights and of the cache.
        tp: devices that share every layer.
    """
    return [
        MeasuredRow(
            quantity=f"{one.phase}_seconds",
            value=one.sample.seconds,
            low=one.sample.low,
            high=one.sample.high,
            spread=one.sample.spread,
            model=named[0],
            gpu=machine.accelerator or machine.name,
            engine=ENGINE,
            engine_version=f"torch {machine.torch}, kernels of {machine.kernels}",
            weights=formats[0],
            kv=formats[1],
            batch=one.batch,
            prompt=None if one.phase == DECODE else one.context,
            context=one.context if one.phase == DECODE else None,
            revision=named[1],
            gpus=tp,
            tp=tp,
        )
        for one in points
        if one.sample is not None
    ]


def machine_of(row: MachineRow) -> Machine:
    """A machine from its row, as a saved profile has it."""
    return Machine(
        name=row.name,
        kind=row.kind,
        accelerator=row.accelerator,
        memory_bytes=row.memory_bytes,
        free_bytes=row.free_bytes,
        l2_bytes=row.l2_bytes,
        sms=row.sms,
        torch=row.torch,
        driver=row.driver,
        clock=row.clock,
        kernels=row.kernels,
        remarks=tuple(row.remarks),
    )


def device_of(row: RoofsRow, machine: Machine) -> DeviceProfile:
    """Measured roofs from their rows."""
    return DeviceProfile(
        machine,
        tuple(Bandwidth(one.how, one.size_bytes, one.moved_bytes, _sample(one.time)) for one in row.bandwidths),
        tuple(
            Product(one.format, one.m, one.n, one.k, None if one.time is None else _sample(one.time), one.problem)
            for one in row.products
        ),
        tuple(Launch(one.how, _sample(one.time)) for one in row.launches),
    )


def step_of(row: PointRow) -> StepProfile:
    """A measured step from its row."""
    return StepProfile(
        phase=row.phase,
        batch=row.batch,
        context=row.context,
        sample=None if row.time is None else _sample(row.time),
        parts=tuple(Part(one.name, one.family, one.calls, _sample(one.time)) for one in row.parts),
        launched=row.launched,
        routing=row.routing,
        problem=row.problem,
    )


def _sample(row: TimeRow) -> Sample:
    return Sample(row.seconds, row.low, row.high, row.spread, row.repeats)
