"""SGLang's defaults: the static share of the memory, chunks and captured batches, by version and device."""

from __future__ import annotations

from dataclasses import replace

import pytest

from roofcast.calculators.engines.sglang_defaults import MIB, Start, sizes_of, static_share


@pytest.mark.parametrize(
    ("mib", "devices", "version", "share"),
    [
        (81_559, 8, (0, 4, 0), 0.81),  # by devices alone
        (81_559, 1, (0, 5, 0), 0.874),  # (81,559 - (9.5 + 0.5) x 1,024) / 81,559
        (16_376, 1, (0, 5, 4), 0.772),  # 512 + 1.5 x 2,048 + 2 x 8 + 128 = 3,728 MiB
        (81_559, 4, (0, 5, 4), 0.824),  # 512 + 12,288 + 2 x 512 + 512 = 14,336 MiB
        (183_359, 1, None, 0.854),  # 512 + 24,576 + 1,024 + 128 + 8 x 74 = 26,832 MiB
    ],
)
def test_the_share_by_default(mib: int, devices: int, version: tuple[int, ...] | None, share: float) -> None:
    """Each generation has its own rule."""
    assert share == pytest.approx(static_share(Start(mib * MIB, devices), version)[1], abs=6e-4)


def test_small_chunks_leave_large_devices_ten_gibibytes() -> None:
    """10,240 of 81,559 MiB at least are kept free on a device above 60 GiB."""
    assert static_share(Start(81_559 * MIB, 1, chunk=1024), (0, 5, 4))[1] == round((81_559 - 10_240) / 81_559, 3)


def test_drafting_towers_and_replicas_keep_more_free() -> None:
    """Drafts take 2 GiB, a vision tower of ViT-L/14's size 5 %, replicas of attention more graphs."""
    plain = Start(81_559 * MIB, 8)
    share = static_share(plain, (0, 5, 4))[1]

    assert static_share(replace(plain, drafts=True), (0, 5, 4))[1] == pytest.approx(share - 2048 / 81_559, abs=1e-3)
    assert static_share(replace(plain, tower=24 * 1024**2 * 12), (0, 5, 4))[1] == pytest.approx(0.95 * share)
    # 512 captured x 8 replicas x 4.5 MiB
    assert static_share(replace(plain, replicas=8), (0, 5, 4))[1] == pytest.approx(share - 18_432 / 81_559, abs=1e-3)


def test_drafts_keep_two_gibibytes_free_in_older_versions_too() -> None:
    """(81,559 - (9.5 + 0.5 + 2) x 1,024) / 81,559."""
    assert static_share(Start(81_559 * MIB, 1, drafts=True), (0, 5, 0))[1] == round(1 - 12 * 1024 / 81_559, 3)


def test_latent_attention_captures_fewer_sizes() -> None:
    """42 sizes up to 2,048 tokens, and not 58 up to 8,192: 512 + 12,288 + 512 + 128 + 8 x 42 or 58 MiB."""
    latent, other = (static_share(Start(81_559 * MIB, 1, latent=latent), None)[1] for latent in (True, False))

    assert latent == round(1 - (13_440 + 336) / 81_559, 3)
    assert other == round(1 - (13_440 + 464) / 81_559, 3)


def test_sizes_by_device() -> None:
    """Larger devices take larger chunks and batches, and a chunk may be given."""
    assert [sizes_of(Start(mib * MIB, 1)) for mib in (15_360, 24_564, 46_068, 143_771, 183_359)] == [
        (2048, 8),
        (2048, 24),
        (4096, 32),
        (8192, 256),
        (16384, 512),
    ]
    assert sizes_of(Start(81_559 * MIB, 1, chunk=4096))[0] == 4096
