"""Every accelerator file states facts in range, with sources, and agrees with itself."""

from __future__ import annotations

import re

import pytest
from pydantic import ValidationError

from roofcast.hwdb.accelerator import CITABLE, PEAK_FORMATS, Accelerator, NoPeakError
from roofcast.hwdb.files import BUILT_IN, read_accelerator

CARDS = {path.stem: read_accelerator(path) for path in sorted(BUILT_IN.glob("*.yaml"))}
every_card = pytest.mark.parametrize("card", CARDS.values(), ids=CARDS.keys())


def test_there_are_95() -> None:
    """The database holds 95 devices of six vendors."""
    assert len(CARDS) == 95
    assert {card.vendor for card in CARDS.values()} == {"nvidia", "amd", "intel", "google", "aws", "apple"}


@every_card
def test_every_fact_has_a_source(card: Accelerator) -> None:
    """Whatever a file states, a source of it stands in the same file."""
    assert [fact for fact in card.stated_facts() if not card.sources_of(fact)] == []


@every_card
def test_recalled_facts_are_marked(card: Accelerator) -> None:
    """A fact that no source read shows is listed as unverified, so that a reader of the file sees it."""
    silent = {
        fact.partition(".")[0]
        for fact in card.stated_facts()
        if all(source.access == "recall" for source in card.sources_of(fact))
    }
    listed = {name for fact in card.unverified for name in CITABLE.get(fact, ())}

    assert silent - listed == set()


@every_card
def test_unverified_facts_are_stated(card: Accelerator) -> None:
    """Only facts that the file states are marked unverified, and a marked fact is never called verified."""
    stated = set(card.stated_facts())
    fields = {fact.partition(".")[0] for fact in stated}

    assert [fact for fact in card.unverified if fact not in stated | fields] == []
    assert [fact for fact in card.unverified if card.verified(fact)] == []


@every_card
def test_plausible_ranges(card: Accelerator) -> None:
    """Sizes, rates, clocks and power are of the magnitude that real parts have."""
    assert 8e9 <= card.memory <= 1e12
    assert 100e9 <= card.bandwidth <= 40e12
    assert all(5e10 <= peak <= 50e15 for peak in card.peaks.values())
    assert card.clock is None or 0.8e9 <= card.clock <= 3.2e9
    assert card.tdp is None or 30 <= card.tdp <= 2500
    assert card.l2 is None or 1e6 <= card.l2 <= 1e9
    assert card.shared_memory_per_sm is None or 16e3 <= card.shared_memory_per_sm <= 512e3
    assert card.release_year is not None
    assert 2016 <= card.release_year <= 2026
    assert card.scale_up is None or 50e9 <= card.scale_up.bandwidth <= 4e12
    assert card.pcie is None or 5e9 <= card.pcie.bandwidth <= 130e9


@every_card
def test_memory_readings_agree(card: Accelerator) -> None:
    """The driver shows 93% to 109% of the marketed size, and a program never sees more than the driver."""
    for reading in (card.driver_memory, card.visible_memory):
        assert reading is None or 0.93 <= reading / card.memory <= 1.09
    if card.driver_memory and card.visible_memory:
        assert card.visible_memory <= card.driver_memory


@every_card
def test_peaks_follow_from_rates(card: Accelerator) -> None:
    """Units x FLOP a clock x clock gives every peak within 3%, but for those whose file explains why not."""
    off = {}
    for number_format in card.flop_per_clock:
        rated = card.rated_peak(number_format)
        assert rated is not None
        off[number_format] = abs(card.peaks[number_format] / rated - 1)

    assert {name for name, share in off.items() if share > 0.03} == set(card.rate_exceptions)


def test_which_rates_are_explained() -> None:
    """Two parts break the rate check, and one ships below the clock of its data sheet."""
    assert {card.id for card in CARDS.values() if card.rate_exceptions} == {"b100", "h800-sxm"}
    assert {card.id for card in CARDS.values() if card.effective_peaks} == {"gaudi3"}


@every_card
def test_bandwidth_follows_from_pins(card: Accelerator) -> None:
    """Bus width x pin rate / 8 gives the bandwidth within 3%."""
    if card.bus_width is not None and card.pin_rate is not None:
        assert card.bandwidth == pytest.approx(card.bus_width * card.pin_rate / 8, rel=0.03)


@every_card
def test_pcie_follows_from_generation(card: Accelerator) -> None:
    """PCIe 3 carries 0.984 GB/s a lane and direction, each generation twice that of the one before."""
    if card.pcie is not None:
        a_lane = 0.984e9 * 2 ** (card.pcie.generation - 3)
        assert card.pcie.bandwidth == pytest.approx(card.pcie.width * a_lane, rel=0.05)


@every_card
def test_no_sparse_figure(card: Accelerator) -> None:
    """Dense peaks keep the ratios that silicon has: sparse figures would double one of them."""
    peaks = card.peaks
    if {"bf16", "fp8"} <= peaks.keys():
        assert peaks["fp8"] <= 2.1 * peaks["bf16"] or card.id == "rubin-r200"
    if {"fp8", "fp4"} <= peaks.keys():
        assert peaks["fp4"] <= (3.1 if card.architecture == "Blackwell Ultra" else 2.1) * peaks["fp8"] or (
            "fp8_acc16" in peaks and peaks["fp4"] <= 2.1 * peaks["fp8_acc16"]
        )
    if {"fp16", "bf16"} <= peaks.keys() and card.id != "gaudi3":
        assert peaks["fp16"] == peaks["bf16"]
    if {"fp16", "fp16_acc16"} <= peaks.keys():
        assert peaks["fp16"] <= peaks["fp16_acc16"] <= 2.1 * peaks["fp16"]


@pytest.mark.parametrize(
    ("card", "number_format", "dense", "sparse"),
    [
        ("h100-sxm", "bf16", 989.4e12, 1979e12),
        ("h100-sxm", "fp8", 1978.9e12, 3958e12),
        ("h100-nvl", "bf16", 835.5e12, 1671e12),
        ("l4", "bf16", 121e12, 242e12),
        ("l40", "bf16", 181.05e12, 362e12),
        ("l40s", "bf16", 362.05e12, 733e12),
        ("a10g", "bf16", 70e12, 140e12),
        ("rtx-3090", "fp16", 71.2e12, 142e12),
        ("rtx-4090", "fp16", 165.2e12, 330e12),
        ("b200", "fp4", 9000e12, 18000e12),
        ("b300", "fp4", 13500e12, 18000e12),
        ("jetson-agx-thor", "fp4", 1035e12, 2070e12),
        ("gaudi3", "bf16", 1835e12, 3670e12),
    ],
)
def test_known_traps(card: str, number_format: str, dense: float, sparse: float) -> None:
    """Figures that tables in the wild have wrong are the dense, fp32-accumulating ones here."""
    assert CARDS[card].peaks[number_format] == pytest.approx(dense, rel=1e-12)
    assert CARDS[card].peaks[number_format] < 0.76 * sparse


@pytest.mark.parametrize(
    ("card", "number_format", "ridge"),
    [
        ("rtx-2080-ti", "fp16", 87),
        ("rtx-2080-ti", "fp16_acc16", 175),
        ("a100-80gb-sxm", "bf16", 153),
        ("a100-40gb-sxm", "bf16", 201),
        ("a100-80gb-pcie", "bf16", 161),
        ("h100-sxm", "bf16", 295),
        ("h100-pcie", "bf16", 378),
        ("h100-nvl", "bf16", 212),
        ("h200-sxm", "bf16", 206),
        ("h20", "bf16", 37),
    ],
)
def test_ridge_points(card: str, number_format: str, ridge: int) -> None:
    """A ridge point is peak over bandwidth, in FLOP a byte."""
    assert round(CARDS[card].ridge(number_format)) == ridge
    assert round(CARDS[card].ridges()[number_format]) == ridge


def test_three_memories_of_an_h100() -> None:
    """An H100 SXM is sold with 80 GB, its driver reports 81,559 MiB, and CUDA sees 79.19 GiB."""
    card = CARDS["h100-sxm"]

    assert card.memory == 80_000_000_000
    assert card.driver_memory == 81_559 * 2**20
    assert card.visible_memory is not None
    assert round(card.visible_memory / 2**30, 2) == 79.19
    assert CARDS["b100"].driver_memory is None


def test_peaks_that_are_not_there() -> None:
    """A format without a stated peak has neither peak nor ridge, and the error lists those there are."""
    for ask in (CARDS["a100-80gb-sxm"].ridge, CARDS["a100-80gb-sxm"].peak):
        with pytest.raises(NoPeakError, match="a100-80gb-sxm has no 'fp8' peak; it has fp64"):
            ask("fp8")


def test_gaudi3_is_planned_at_its_shipping_clock() -> None:
    """The peak to plan with is the one of the shipping clock; the ridge stays the data sheet's."""
    assert CARDS["gaudi3"].peak("bf16") == pytest.approx(1677.7e12)
    assert CARDS["gaudi3"].ridge("bf16") == pytest.approx(1835e12 / 3700e9)
    assert CARDS["h100-sxm"].peak("bf16") == CARDS["h100-sxm"].peaks["bf16"]


def test_flags() -> None:
    """bf16 begins with Ampere, fp8 with Ada, and the SDPA backends follow the compute capability."""
    assert CARDS["rtx-2080-ti"].flags.bf16 is False
    assert CARDS["a100-80gb-sxm"].flags.fp8 is False
    assert CARDS["l4"].flags.fp8 is True
    assert CARDS["h100-sxm"].flags.flash_attention_3 is True
    assert CARDS["rtx-2080-ti"].sdpa_backends == ("memory_efficient", "math")
    assert CARDS["a100-80gb-sxm"].sdpa_backends == ("flash", "memory_efficient", "math")
    assert CARDS["mi300x"].sdpa_backends is None


@every_card
def test_flags_agree_with_peaks(card: Accelerator) -> None:
    """A device that computes in a format natively states its peak, and NVIDIA flags follow the capability."""
    for number_format, native in (("bf16", card.flags.bf16), ("fp8", card.flags.fp8), ("fp4", card.flags.fp4)):
        assert not native or number_format in card.peaks
    if card.compute_capability is not None:
        capability = float(card.compute_capability)
        assert card.flags.bf16 is (capability >= 8.0)
        assert card.flags.fp8 is (capability >= 8.9)
        assert card.flags.fp4 is (capability >= 10.0)


@pytest.mark.parametrize(
    ("card", "fact", "verified"),
    [
        ("h100-sxm", "peaks.bf16", True),
        ("h100-sxm", "tdp", True),
        ("rtx-2080-ti", "peaks.fp64", False),
        ("rtx-2080-ti", "peaks.fp16", True),
        ("titan-rtx", "driver_memory", False),
        ("h200-nvl", "driver_memory", False),
        ("h200-nvl", "peaks.bf16", False),
        ("h100-nvl", "clock", False),
        ("rubin-r200", "tdp", False),
        ("tpu-v7-ironwood", "bandwidth", False),
        ("b200", "flags.flash_attention_2", False),
        ("b200", "flags.bf16", True),
    ],
)
def test_verified(card: str, fact: str, verified: bool) -> None:
    """A fact is verified if it was read in a source, and not if it was recalled or inferred."""
    assert CARDS[card].verified(fact) is verified


def test_accelerators_are_frozen() -> None:
    """Neither a field nor a table of an accelerator can be changed; its dump is plain data."""
    card = CARDS["h100-sxm"]
    with pytest.raises(ValidationError):
        card.memory = 1
    with pytest.raises(TypeError):
        card.peaks["bf16"] = 1.0  # type: ignore[index]

    assert card.model_dump(mode="json")["peaks"]["bf16"] == 989.4e12
    assert tuple(card.peaks) == tuple(name for name in PEAK_FORMATS if name in card.peaks)


@every_card
def test_files_are_short_and_in_order(card: Accelerator) -> None:
    """A file fits on a screen or two, and names come before sources, where look-up expects them."""
    text = (BUILT_IN / f"{card.id}.yaml").read_text(encoding="utf-8")

    assert text.count("\n") <= 100
    assert re.search(r"\n(aliases|ambiguous_aliases):", text.partition("\nsources:")[2]) is None
    assert not re.search(r"find_string|corpus|stored repo", text)
