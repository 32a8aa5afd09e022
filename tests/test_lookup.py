"""Names find the accelerator that they mean, and no other."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from roofcast.hwdb.lookup import UnknownAcceleratorError, all_accelerators, find_accelerator

if TYPE_CHECKING:
    from pathlib import Path

    from roofcast.hwdb.accelerator import Accelerator

MIB = 2**20


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give every test an empty roofcast home of its own."""
    monkeypatch.setenv("ROOFCAST_HOME", str(tmp_path))
    folder = tmp_path / "accelerators"
    folder.mkdir()
    return folder


@pytest.mark.parametrize(
    ("name", "card"),
    [
        ("h100-sxm", "h100-sxm"),
        ("H100_SXM", "h100-sxm"),
        (" h100 sxm ", "h100-sxm"),
        ("h100", "h100-sxm"),
        ("NVIDIA H100", "h100-sxm"),
        ("NVIDIA H100 80GB HBM3", "h100-sxm"),
        ("nvidia h100 80gb hbm3", "h100-sxm"),
        ("H100 80GB HBM3", "h100-sxm"),
        ("NVIDIA_H100-80GB_HBM3", "h100-sxm"),
        ("GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-5a1f-07)", "h100-sxm"),
        ("NVIDIA H100 PCIe", "h100-pcie"),
        ("h100-pcie", "h100-pcie"),
        ("NVIDIA H100 NVL", "h100-nvl"),
        ("H100 NVL", "h100-nvl"),
        ("h200", "h200-sxm"),
        ("NVIDIA H200 NVL", "h200-nvl"),
        ("NVIDIA H20", "h20"),
        ("NVIDIA GH200 480GB", "gh200-96gb"),
        ("NVIDIA GH200 144G HBM3e", "gh200-144gb"),
        ("NVIDIA B300 SXM6 AC", "b300"),
        ("b200", "b200"),
        ("gb200", "gb200"),
        ("a100", "a100-80gb-sxm"),
        ("a100-80gb", "a100-80gb-sxm"),
        ("a100-40gb", "a100-40gb-sxm"),
        ("A100-SXM4-40GB", "a100-40gb-sxm"),
        ("NVIDIA A100-SXM4-80GB", "a100-80gb-sxm"),
        ("NVIDIA A100-PCIE-40GB", "a100-40gb-pcie"),
        ("NVIDIA A100 80GB PCIe", "a100-80gb-pcie"),
        ("NVIDIA Tesla A100-SXM4-40GB", "a100-40gb-sxm"),
        ("a10", "a10"),
        ("NVIDIA A10", "a10"),
        ("NVIDIA A10G", "a10g"),
        ("l4", "l4"),
        ("NVIDIA L40", "l40"),
        ("NVIDIA L40S", "l40s"),
        ("T4", "t4"),
        ("Tesla T4", "t4"),
        ("2080ti", "rtx-2080-ti"),
        ("rtx2080ti", "rtx-2080-ti"),
        ("2080 Ti", "rtx-2080-ti"),
        ("GeForce RTX 2080 Ti", "rtx-2080-ti"),
        ("4090", "rtx-4090"),
        ("RTX 4090", "rtx-4090"),
        ("RTX 4090 24GB", "rtx-4090"),
        ("NVIDIA GeForce RTX 4090", "rtx-4090"),
        ("RTX 3060 12 GB", "rtx-3060"),
        ("Tesla V100-PCIE-32GB", "v100-pcie"),
        ("mi300x", "mi300x"),
        ("AMD Instinct MI300X", "mi300x"),
        ("AMD Instinct MI300X OAM", "mi300x"),
        ("AMD Instinct MI250X/MI250", "mi250x"),
        ("Intel(R) Arc(TM) A770 Graphics", "arc-a770-16gb"),
        ("TPU v5 lite", "tpu-v5e"),
        ("TPU v5", "tpu-v5p"),
        ("m4 max", "apple-m4-max"),
    ],
)
def test_names(name: str, card: str) -> None:
    """An id, an alias or a driver's name finds its card in any case and with any separators."""
    assert find_accelerator(name).accelerator.id == card


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("h1", "h100-sxm"),
        ("h10", "h100-sxm"),
        ("a10 0", "a10"),
        ("NVIDIA A100X", "a100-80gb-sxm"),
        ("NVIDIA A100-SXM-64GB", "a100-80gb-sxm"),
        ("NVIDIA A100-SXM4-80GB MIG 3g.40gb", "a100-80gb-sxm"),
        ("NVIDIA A10-24Q", "a10"),
        ("NVIDIA H100 NVL 80GB", "h100-nvl"),
        ("NVIDIA H100 SXM5 64GB", "h100-sxm"),
        ("NVIDIA H100 NVLX", "h100-nvl"),
        ("NVIDIA H20-3e", "h20"),
        ("NVIDIA H800 PCIe", "h800-sxm"),
        ("NVIDIA L40G", "l40"),
        ("NVIDIA L4 0", "l4"),
        ("NVIDIA GeForce RTX 4090 D", "rtx-4090"),
        ("NVIDIA GeForce RTX 4090 Laptop GPU", "rtx-4090"),
        ("NVIDIA GeForce RTX 5090 D v2", "rtx-5090"),
        ("NVIDIA GeForce RTX 4080 SUPER", "rtx-4080"),
        ("NVIDIA GeForce RTX 3080 Ti", "rtx-3080"),
        ("NVIDIA GeForce RTX 3060 Ti", "rtx-3060"),
        ("NVIDIA GeForce RTX 3060 8GB", "rtx-3060"),
        ("NVIDIA GeForce RTX 2080 SUPER", "rtx-2080-ti"),
        ("NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition", "rtx-pro-6000-blackwell-ws"),
        ("Quadro RTX 6000", "quadro-rtx-8000"),
        ("Tesla V100-SXM3-32GB", "v100-sxm2-32gb"),
        ("AMD Instinct MI300", "mi300x"),
    ],
)
def test_other_products_do_not_match(name: str, near: str) -> None:
    """A name that only contains a card's name is another product: one line, with the nearest cards."""
    with pytest.raises(UnknownAcceleratorError) as unknown:
        find_accelerator(name)
    message = str(unknown.value)

    assert message.startswith(f"no accelerator {name!r}; nearest: ")
    assert message.endswith("; `roofcast gpus` lists all")
    assert near in re.findall(r"[a-z0-9-]+", message.partition("nearest: ")[2])


@pytest.mark.parametrize(
    "name", ["", "  ", "nvidia", "NVIDIA CMP", "\n", "\u30b2\u30d5\u30a9", "x" * 10000, "q w " * 99]
)
def test_nonsense(name: str) -> None:
    """A name of nothing is refused in one short line, without silly suggestions."""
    with pytest.raises(UnknownAcceleratorError) as unknown:
        find_accelerator(name)

    assert "\n" not in str(unknown.value)
    assert len(str(unknown.value)) < 250


@pytest.mark.parametrize("name", ["../h100-sxm.yaml", "/etc/passwd", "accelerators/h100-sxm.yaml"])
def test_paths_are_no_names(name: str) -> None:
    """A path is not followed."""
    with pytest.raises(UnknownAcceleratorError):
        find_accelerator(name)


def test_every_name_in_every_file() -> None:
    """Every id, name and alias in the database finds its own card, with that card's memory to tell it by."""
    for card in all_accelerators().accelerators:
        for name in (card.id, card.name, *card.aliases):
            assert find_accelerator(name, card.memory).accelerator.id == card.id


def test_names_claimed_twice() -> None:
    """Only names that say they are ambiguous are claimed by two cards, and those tell apart by memory."""
    claims: dict[str, list[Accelerator]] = {}
    for card in all_accelerators().accelerators:
        for name in {card.id, card.name, *card.aliases}:
            claims.setdefault(name.lower(), []).append(card)
    twice = {name: cards for name, cards in claims.items() if len(cards) > 1}

    assert set(twice) == {"a100", "a100 sxm", "a100 pcie"}
    assert all(name in card.ambiguous_aliases for name, cards in twice.items() for card in cards)


@pytest.mark.parametrize(
    ("name", "mebibytes", "card", "memory"),
    [
        ("h100", 81559, "h100-sxm", 80e9),
        ("h100", 95830, "h100-nvl", 94e9),
        ("a100", 40960, "a100-40gb-sxm", 40e9),
        ("a100", 81920, "a100-80gb-sxm", 80e9),
        ("a100 pcie", 40536, "a100-40gb-pcie", 40e9),
        ("gh200", 146831, "gh200-144gb", 144e9),
        ("TPU v5", 16384, "tpu-v5e", 16e9),
        ("v100", 32510, "v100-sxm2-32gb", 32e9),
        ("NVIDIA GeForce RTX 3060", 12288, "rtx-3060", 12e9),
        ("NVIDIA GeForce RTX 2080 Ti", 11264, "rtx-2080-ti", 11e9),
        ("NVIDIA GeForce RTX 2080 Ti", 11019, "rtx-2080-ti", 11e9),
        ("NVIDIA GeForce RTX 2080 Ti", 22528, "rtx-2080-ti", 22e9),
        ("NVIDIA GeForce RTX 4060 Ti", 8188, "rtx-4060-ti-16gb", 8e9),
        ("NVIDIA GeForce RTX 4060 Ti", 16380, "rtx-4060-ti-16gb", 16e9),
        ("Tesla V100-PCIE-32GB", 32768, "v100-pcie", 32e9),
        ("NVIDIA L4", 22731, "l4", 24e9),
        ("NVIDIA B200", 183359, "b200", 180e9),
    ],
)
def test_memory_decides(name: str, mebibytes: int, card: str, memory: float) -> None:
    """Where cards share a name, the memory that the driver reports tells which one it is."""
    found = find_accelerator(name, mebibytes * MIB).accelerator

    assert (found.id, found.memory) == (card, memory)


def test_a_memory_variant_keeps_no_readings_of_the_other() -> None:
    """A card with other memory on the same silicon is the same card but for its memory, and says so."""
    match = find_accelerator("NVIDIA GeForce RTX 2080 Ti", 22528 * MIB)

    assert match.alias_note == "rtx-2080-ti with 22 GB instead of 11 GB"
    assert (match.accelerator.driver_memory, match.accelerator.visible_memory) == (None, None)
    assert find_accelerator("RTX 2080 Ti 22GB").accelerator == match.accelerator


@pytest.mark.parametrize(
    ("name", "mebibytes"), [("NVIDIA GeForce RTX 3060", 8192), ("Orin", 30000), ("AMD Radeon Graphics", 512)]
)
def test_memory_that_no_card_of_the_name_has(name: str, mebibytes: int) -> None:
    """An ambiguous name with memory that no card of that name has is another card."""
    with pytest.raises(UnknownAcceleratorError, match=r"may be another card than .* GB"):
        find_accelerator(name, mebibytes * MIB)


@pytest.mark.parametrize(
    ("name", "mebibytes", "said"),
    [
        ("h100", None, "'h100' is taken as h100-sxm: the SXM card"),
        ("h200", None, "'h200' is taken as h200-sxm: the SXM card"),
        ("a100-80gb", None, "the SXM card"),
        ("a100-40gb", None, "the SXM card"),
        ("a100", 81920, "the SXM card"),
        ("h100", 81559, "the SXM card"),
        ("2080ti", None, "22 GB"),
        ("Thor", None, "T5000"),
        ("TPU v5", None, "what JAX calls the v5p; it calls the v5e TPU v5 lite, and that is tpu-v5e"),
        ("AMD Instinct MI250X", 65520, "the driver shows mi250x as 2 devices"),
    ],
)
def test_what_is_said_of_a_name(name: str, mebibytes: int | None, said: str) -> None:
    """A name that could mean more than one card is answered with what it was taken for."""
    match = find_accelerator(name, mebibytes and mebibytes * MIB)

    assert match.alias_note is not None
    assert said in match.alias_note


@pytest.mark.parametrize(
    ("name", "mebibytes", "said"),
    [
        (
            "NVIDIA H100 80GB HBM3",
            40000,
            "the driver reports 39.1 GiB and h100-sxm has 80 GB: a part of it, or another",
        ),
        ("NVIDIA A100-SXM4-80GB", 40000, "the driver reports 39.1 GiB and a100-80gb-sxm has 80 GB"),
        ("h100-sxm", 95830, "the driver reports 93.6 GiB and h100-sxm has 80 GB"),
    ],
)
def test_memory_that_the_card_has_not(name: str, mebibytes: int, said: str) -> None:
    """Memory that no known variant of the card has is a doubt, not a remark on the name."""
    match = find_accelerator(name, mebibytes * MIB)

    assert match.doubt is not None
    assert said in match.doubt
    assert match.alias_note is None


@pytest.mark.parametrize(
    ("name", "mebibytes"),
    [("h100", None), ("h100-sxm", 81559), ("h100", 81559), ("RTX 2080 Ti", 22528), ("AMD Instinct MI250X", 65520)],
)
def test_memory_that_is_no_doubt(name: str, mebibytes: int | None) -> None:
    """Memory that the card, a variant or a device of it has leaves no doubt."""
    assert find_accelerator(name, mebibytes and mebibytes * MIB).doubt is None


@pytest.mark.parametrize(
    ("name", "mebibytes"),
    [("h100-sxm", None), ("NVIDIA H100 80GB HBM3", 81559), ("4090", None), ("h100", 95830), ("NVIDIA T4", 15360)],
)
def test_nothing_is_said_of_a_plain_name(name: str, mebibytes: int | None) -> None:
    """A name that means one card, or that memory decides, needs no remark."""
    assert find_accelerator(name, mebibytes and mebibytes * MIB).alias_note is None
