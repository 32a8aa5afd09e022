"""One accelerator: what its vendor and its driver say, in SI units. Facts only, no efficiency."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated, Any, Literal, TypeVar

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, PlainSerializer, model_validator

from roofcast.hwdb.units import UnitError, parse_quantity, show_bytes, show_percent, show_si

# fp16 accumulates in fp32 and fp16_acc16 in fp16; fp8 and fp8_acc16 likewise where a vendor separates them
PEAK_FORMATS = (
    "fp64",
    "fp64_tensor",
    "fp32",
    "tf32",
    "fp16",
    "fp16_acc16",
    "bf16",
    "fp8",
    "fp8_acc16",
    "int8",
    "fp6",
    "fp4",
    "int4",
)
# what a source may be cited for -> the fields it then covers
CITABLE: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "peaks": ("peaks", "effective_peaks"),
        "memory": ("memory", "memory_type", "memory_variants"),
        "driver_memory": ("driver_memory",),
        "visible_memory": ("visible_memory",),
        "bandwidth": ("bandwidth", "bus_width", "pin_rate"),
        "sm_count": ("sm_count", "matrix_engines"),
        "clock": ("clock", "clocks"),
        "l2": ("l2",),
        "shared_memory_per_sm": ("shared_memory_per_sm",),
        "scale_up": ("scale_up",),
        "pcie": ("pcie",),
        "tdp": ("tdp",),
        "release_year": ("release_year",),
        "aliases": ("aliases",),
        "flags": ("flags",),
    }
)
# backend of PyTorch's scaled_dot_product_attention -> least compute capability; cuDNN's depends on how PyTorch is built.
# Source: pytorch/pytorch, aten/src/ATen/native/transformers/cuda/sdp_utils.cpp
SDPA_LEAST: Mapping[str, tuple[int, int]] = MappingProxyType(
    {"flash": (8, 0), "memory_efficient": (5, 0), "math": (0, 0)}
)
_CITED_AS = {field: fact for fact, fields in CITABLE.items() for field in fields}
# what a driver or a program sees of the memory as sold: 1.00 to 1.08 on every part known
_LEAST_SEEN, _MOST_SEEN = 0.5, 1.12


class NoPeakError(LookupError):
    """An accelerator has no stated peak for the number format that was asked."""


def _quantity(unit: str, least: float, most: float) -> BeforeValidator:
    """Read a quantity of a size that hardware can have: beyond it ratios stop being numbers."""

    def read(value: object) -> float:
        # a bare number has no unit, and guessing one is how GB and GiB get mixed
        quantity = parse_quantity(str(value), unit)
        if not least <= quantity <= most:
            raise ValueError(
                f"{str(value)!r} is no size that hardware has; write {show_si(least, unit)} to {show_si(most, unit)}"
            )
        return round(quantity) if unit == "B" else quantity

    return BeforeValidator(read)


V = TypeVar("V")
Bytes = Annotated[int, _quantity("B", 1e6, 1e16)]
OnChipBytes = Annotated[int, _quantity("B", 1e3, 1e13)]
BytesPerSecond = Annotated[float, _quantity("B/s", 1e6, 1e17)]
FlopPerSecond = Annotated[float, _quantity("FLOP/s", 1e6, 1e20)]
Hertz = Annotated[float, _quantity("Hz", 1e6, 1e12)]
BitsPerSecond = Annotated[float, _quantity("bit/s", 1e6, 1e15)]
Watts = Annotated[float, _quantity("W", 0.1, 1e6)]
Count = Annotated[int, Field(gt=0, le=10**9)]
Text = Annotated[str, Field(min_length=1)]


def _known_formats(table: Mapping[str, V]) -> Mapping[str, V]:
    unknown = [name for name in table if name not in PEAK_FORMATS]
    if unknown:
        import difflib  # noqa: PLC0415 - only errors need it

        near = difflib.get_close_matches(unknown[0], PEAK_FORMATS, 1)
        meant = f" (did you mean {near[0]}?)" if near else ""
        raise ValueError(f"{unknown[0]!r} is not a format{meant}; known: {', '.join(PEAK_FORMATS)}")
    return MappingProxyType({name: table[name] for name in PEAK_FORMATS if name in table})


def _read_only(table: Mapping[str, V]) -> Mapping[str, V]:
    return MappingProxyType(dict(table))


def _as_dict(table: Mapping[str, V]) -> dict[str, V]:
    return dict(table)


def _nothing() -> Mapping[str, Any]:
    return MappingProxyType({})


_ByFormat = AfterValidator(_known_formats)
_Plain = PlainSerializer(_as_dict)


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", coerce_numbers_to_str=True, defer_build=True)


class Source(_Frozen):
    """Where facts were read: a document, and how far it was read."""

    title: Text
    url: Annotated[str, Field(pattern=r"^https?://\S+$")] | None = None
    # seen: read directly; quoted: quoted by a text read directly; recall: from memory, not read
    access: Literal["seen", "quoted", "recall"] = "seen"
    facts: tuple[str, ...] = ()  # none named: it covers every fact of the file

    @model_validator(mode="after")
    def _facts_exist(self) -> Source:
        unknown = [fact for fact in self.facts if fact not in CITABLE]
        if unknown:
            raise ValueError(f"facts: {unknown[0]!r} is not a fact; known: {', '.join(CITABLE)}")
        return self


class ScaleUp(_Frozen):
    """The links between accelerators of one domain (NVLink, Infinity Fabric, ICI, ...)."""

    type: Text
    generation: int | None = None
    bandwidth: BytesPerSecond  # [B/s] all links of one device, both directions together
    max_domain: Annotated[Count, Field(ge=2)]  # devices that reach each other at that bandwidth


class Pcie(_Frozen):
    """The host link."""

    generation: Count
    width: Count
    bandwidth: BytesPerSecond  # [B/s] one direction


class Flags(_Frozen):
    """What the silicon and the well-known kernels support; None where it is not known."""

    bf16: bool | None = None
    fp8: bool | None = None
    fp4: bool | None = None
    flash_attention_2: bool | None = None
    flash_attention_3: bool | None = None
    flash_attention_4: bool | None = None


def _derived_flags(compute_capability: str) -> dict[str, bool]:
    """Derive the flags that follow from an NVIDIA compute capability, for files that do not state them."""
    capability = _capability(compute_capability)
    return {
        "bf16": capability >= (8, 0),
        "fp8": capability >= (8, 9),
        "fp4": capability >= (10, 0),
        "flash_attention_2": capability >= (8, 0),
        "flash_attention_3": capability == (9, 0),
    }


def _capability(text: str) -> tuple[int, int]:
    major, minor = text.split(".")
    return int(major), int(minor)


class Accelerator(_Frozen):
    """One accelerator as sold. Sizes in B, rates in B/s and FLOP/s, clocks in Hz, power in W.

    Peaks are dense (no structured sparsity); a fused multiply-add counts as 2 FLOP.
    """

    id: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9.-]*$")]
    name: Text
    vendor: Text | None = None
    architecture: Text | None = None
    codename: Text | None = None
    compute_capability: Annotated[str, Field(pattern=r"^[0-9]+\.[0-9]$")] | None = None
    release_year: Annotated[int, Field(ge=2000, le=2100)] | None = None
    confidence: Literal["high", "medium", "low"] | None = None
    aliases: tuple[Text, ...] = ()
    ambiguous_aliases: Annotated[Mapping[Text, Text], AfterValidator(_read_only), _Plain] = Field(
        default_factory=_nothing
    )

    memory: Bytes  # as sold: marketed GB x 10^9
    driver_memory: Bytes | None = None  # total that nvidia-smi reports
    visible_memory: Bytes | None = None  # total that a CUDA or HIP program sees
    memory_variants: tuple[Bytes, ...] = ()  # other sizes sold on the same silicon with the same bandwidth
    memory_type: Text | None = None
    bandwidth: BytesPerSecond
    bus_width: Count | None = None  # [bit]
    pin_rate: BitsPerSecond | None = None
    devices: Annotated[int, Field(ge=1, le=1024)] = 1  # devices the software sees in one product; share every figure

    peaks: Annotated[Mapping[str, FlopPerSecond], Field(min_length=1), _ByFormat, _Plain]
    # peaks at the clock that parts really ship with, where the data sheet assumes a higher one
    effective_peaks: Annotated[Mapping[str, FlopPerSecond], _ByFormat, _Plain] = Field(default_factory=_nothing)
    sm_count: Count | None = None  # SM, CU, Xe-core, MXU or NeuronCore, GPU core
    matrix_engines: Count | None = None  # where they set the rate and not the SMs
    clock: Hertz | None = None
    clocks: Annotated[Mapping[str, Hertz], _ByFormat, _Plain] = Field(
        default_factory=_nothing
    )  # formats at another clock
    flop_per_clock: Annotated[Mapping[str, Count], _ByFormat, _Plain] = Field(default_factory=_nothing)
    rate_exceptions: Annotated[Mapping[str, Text], _ByFormat, _Plain] = Field(
        default_factory=_nothing
    )  # why a check fails
    l2: OnChipBytes | None = None
    shared_memory_per_sm: OnChipBytes | None = None
    tdp: Watts | None = None
    scale_up: ScaleUp | None = None
    pcie: Pcie | None = None
    flags: Flags = Flags()

    unverified: tuple[str, ...] = ()
    notes: tuple[Text, ...] = ()
    sources: Annotated[tuple[Source, ...], Field(min_length=1)]

    @model_validator(mode="before")
    @classmethod
    def _fill_flags(cls, data: Any) -> Any:  # noqa: ANN401 - pydantic hands over the raw file
        if not isinstance(data, dict) or not isinstance(data.get("flags", {}), dict):
            return data
        try:
            derived = _derived_flags(str(data["compute_capability"]))
        except (KeyError, ValueError):  # not an NVIDIA card, or refused below with its own message
            return data
        return data | {"flags": derived | data.get("flags", {})}

    @model_validator(mode="after")
    def _unverified_facts_exist(self) -> Accelerator:
        for fact in self.unverified:
            if fact.partition(".")[0] not in _CITED_AS:
                raise ValueError(f"unverified: {fact!r} is not a fact; known: {', '.join(CITABLE)}")
        return self

    @model_validator(mode="after")
    def _readings_fit_the_memory(self) -> Accelerator:
        # a copied file whose memory was changed keeps the readings of the other card
        for field, reading in (("driver_memory", self.driver_memory), ("visible_memory", self.visible_memory)):
            if reading is not None and not _LEAST_SEEN <= reading / self.memory <= _MOST_SEEN:
                raise ValueError(
                    f"{field}: {show_bytes(reading, 'GB')} is {show_percent(reading / self.memory)} of"
                    f" memory, {show_bytes(self.memory, 'GB')}; it must be {show_percent(_LEAST_SEEN)} to"
                    f" {show_percent(_MOST_SEEN)} of it, or be left out"
                )
        return self

    def peak(self, number_format: str) -> float:
        """Give the dense peak to plan with [FLOP/s]: at the shipping clock where that is lower.

        Raises:
            NoPeakError: no peak is stated for that format.
        """
        peak = self.effective_peaks.get(number_format, self.peaks.get(number_format))
        if peak is None:
            raise NoPeakError(f"{self.id} has no {number_format!r} peak; it has {', '.join(self.peaks)}")
        return peak

    def ridge(self, number_format: str) -> float:
        """Give the ridge point [FLOP/B]: peak / bandwidth. Below it memory is the limit, above it compute.

        Source: Williams, Waterman, Patterson, Roofline, CACM 52(4), 2009.

        Raises:
            NoPeakError: no peak is stated for that format.

        >>> from roofcast.hwdb.lookup import find_accelerator
        >>> round(find_accelerator("h100-sxm").accelerator.ridge("bf16"), 1)  # 989.4e12 / 3350e9
        295.3
        """
        if number_format not in self.peaks:
            self.peak(number_format)
        return self.peaks[number_format] / self.bandwidth

    def ridges(self) -> dict[str, float]:
        """Give the ridge point [FLOP/B] of every stated format."""
        return {name: self.ridge(name) for name in self.peaks}

    def rated_peak(self, number_format: str) -> float | None:
        """Recompute a peak [FLOP/s]: units x FLOP a clock and unit x clock; None where a factor is unknown.

        >>> from roofcast.hwdb.lookup import find_accelerator
        >>> find_accelerator("h100-sxm").accelerator.rated_peak("bf16")  # 132 x 4096 x 1830 MHz
        989429760000000.0
        """
        units = self.matrix_engines or self.sm_count
        clock = self.clocks.get(number_format, self.clock)
        per_clock = self.flop_per_clock.get(number_format)
        if units is None or clock is None or per_clock is None:
            return None
        return units * per_clock * clock

    def sources_of(self, fact: str) -> tuple[Source, ...]:
        """Give the sources of a field, or of one entry of it such as `peaks.fp16`."""
        cited_as = _CITED_AS.get(fact.partition(".")[0])
        return tuple(s for s in self.sources if not s.facts or cited_as in s.facts)

    def verified(self, fact: str) -> bool:
        """Say whether a fact was read in a source, not recalled or inferred.

        Args:
            fact: a field, or one entry of it, such as `tdp` or `peaks.fp16`.
        """
        field = fact.partition(".")[0]
        if not {fact, field, _CITED_AS.get(field)}.isdisjoint(self.unverified):
            return False
        return any(source.access != "recall" for source in self.sources_of(fact))

    def stated_facts(self) -> tuple[str, ...]:
        """List the facts this file states, tables entry by entry (`peaks.fp16`)."""
        facts: list[str] = []
        for field in (name for fields in CITABLE.values() for name in fields):
            value = getattr(self, field)
            if isinstance(value, Mapping):
                facts += [f"{field}.{key}" for key in value]
            elif isinstance(value, Flags):
                facts += [f"{field}.{key}" for key, flag in value if flag is not None]
            elif value not in (None, ()):
                facts.append(field)
        return tuple(facts)

    @property
    def sdpa_backends(self) -> tuple[str, ...] | None:
        """Say which backends of PyTorch's scaled_dot_product_attention run; None for other vendors.

        flash needs compute capability 8.0, memory-efficient 5.0; math always runs.
        """
        capability = self.capability
        if capability is None:
            return None
        return tuple(name for name, least in SDPA_LEAST.items() if capability >= least)

    @property
    def capability(self) -> tuple[int, int] | None:
        """Give the compute capability as two numbers, which compare as versions do; None for other vendors."""
        return None if self.compute_capability is None else _capability(self.compute_capability)


__all__ = [
    "CITABLE",
    "PEAK_FORMATS",
    "SDPA_LEAST",
    "Accelerator",
    "Flags",
    "NoPeakError",
    "Pcie",
    "ScaleUp",
    "Source",
    "UnitError",
]
