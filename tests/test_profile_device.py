"""`profile device` on the processor: what is measured, what is checked, what cannot be; no time is asserted."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from roofcast.calculators.profiled import EAGER, Bandwidth, DeviceProfile, Product, Sample
from roofcast.profiler import device
from roofcast.profiler import kernels_probe_memory as memory
from roofcast.profiler import kernels_probe_products as products
from roofcast.profiler.errors import OutOfMemoryError, WrongOutputError
from roofcast.profiler.sweep import INTERRUPTED, SPENT
from roofcast.profiler.timing import Budget

if TYPE_CHECKING:
    from collections.abc import Callable

    from roofcast.profiler.runtime import Runtime

torch = pytest.importorskip("torch")
KIB = 2**10


@pytest.fixture(name="runtime")
def opened(monkeypatch: pytest.MonkeyPatch) -> Runtime:
    """The processor with one thread, a small cache and small sizes, timed as shortly as can be."""
    from roofcast.profiler.runtime import open_runtime

    torch.set_num_threads(1)
    monkeypatch.setattr(memory, "SMALL_SIZES", (256 * KIB, 1024 * KIB))
    monkeypatch.setattr(products, "SMALL_SHAPES", ((32, 32, 32), (64, 32, 96)))
    monkeypatch.setattr("roofcast.profiler.timing.MOST", 5)
    here = open_runtime("cpu")
    return replace(here, machine=replace(here.machine, l2_bytes=128 * KIB))


@pytest.fixture(name="profile")
def measured(runtime: Runtime) -> DeviceProfile:
    """The whole profile."""
    return device.profile_device(runtime, Budget())


def test_everything_is_measured(profile: DeviceProfile) -> None:
    """Reading and copying over both sizes, both shapes in each format that there is, and starting a kernel."""
    assert [(one.how, one.size // KIB, one.moved // KIB) for one in profile.bandwidths] == [
        ("read", 256, 256),
        ("read", 1024, 1024),
        ("copy", 256, 512),
        ("copy", 1024, 2048),
    ]
    assert [(one.format, one.m, one.n, one.k) for one in profile.products if one.problem is None] == [
        (name, *shape) for name in ("fp32", "bf16", "fp16") for shape in ((32, 32, 32), (64, 32, 96))
    ]
    assert [one.how for one in profile.launches] == [EAGER]
    assert (profile.unfinished, profile.stopped) == ((), "")


def test_every_time_is_a_time(profile: DeviceProfile) -> None:
    """Above 0, its percentiles round it, and the kernel that was the fastest is named."""
    every: list[Any] = [*profile.bandwidths, *profile.products, *profile.launches]
    samples = [one.sample for one in every if one.sample]

    assert len(samples) == 4 + 6 + 1
    assert all(0 < one.low <= one.seconds <= one.high for one in samples)
    assert {one.kernel for one in profile.bandwidths if one.how == "read"} <= set(memory.READERS)
    assert {one.kernel for one in profile.bandwidths if one.how == "copy"} <= set(memory.COPIERS)


def test_roofs_follow(profile: DeviceProfile) -> None:
    """The memory roof is the best read; a ridge a format that was measured."""
    best = max(one.bytes_per_second for one in profile.bandwidths if one.how == "read")

    assert profile.bandwidth == best
    assert set(profile.ridges) == {"fp32", "bf16", "fp16"}
    assert profile.ridges["fp32"] == pytest.approx(profile.peaks["fp32"] / best)


def test_formats_that_are_not_there_say_why(profile: DeviceProfile) -> None:
    """One row each, one line each."""
    assert {one.format: one.problem for one in profile.products if one.sample is None} == {
        "tf32": "tf32 is a format of NVIDIA devices",
        "fp8": "fp8 products need a CUDA or ROCm device with fp8 units",
    }


def test_the_quick_roofs(runtime: Runtime) -> None:
    """Reading the largest buffer, and the larger products of the formats asked for."""
    got = device.quick_roofs(runtime, ("fp32", "fp8"))

    assert [(one.how, one.size) for one in got.bandwidths] == [("read", 1024 * KIB)]
    assert [(one.format, one.m, one.problem is None) for one in got.products] == [
        ("fp32", 64, True),
        ("fp8", 64, False),
    ]
    assert got.launches == ()
    assert got.bandwidth is not None


def test_a_format_that_is_not_there_has_no_quick_roof(runtime: Runtime) -> None:
    """Its row says why."""
    (row,) = device.quick_roofs(runtime, ("tf32",)).products

    assert (row.sample, row.problem) == (None, "tf32 is a format of NVIDIA devices")


def test_a_spent_budget_is_told(runtime: Runtime) -> None:
    """Nothing is measured, everything is named."""
    got = device.profile_device(runtime, Budget(0.0))

    assert (got.bandwidths, got.bandwidth, got.stopped) == ((), None, SPENT)
    assert got.unfinished[:2] == ("read 0 MiB", "read 1 MiB")
    assert got.unfinished[-1] == "launch, eager"


def test_an_interrupt_keeps_what_is_done(runtime: Runtime) -> None:
    """Ctrl-C at the third measurement keeps two."""

    def watch(_: str, number: int, __: int) -> None:
        if number == 2:
            raise KeyboardInterrupt

    got = device.profile_device(runtime, Budget(), watch)

    assert (len(got.bandwidths), got.stopped) == (2, INTERRUPTED)
    assert got.unfinished[0] == "copy 0 MiB"


def test_short_memory_is_told_beside_the_rest(runtime: Runtime, monkeypatch: pytest.MonkeyPatch) -> None:
    """A buffer that does not fit is named with the reason; the others are measured."""
    real = memory.draw

    def short(here: Runtime, size: int) -> Any:
        if size > 256 * KIB:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 1.00 GiB. GPU 0 ...")
        return real(here, size)

    monkeypatch.setattr(memory, "draw", short)

    got = device.profile_device(runtime, Budget())

    assert [(one.how, one.size // KIB) for one in got.bandwidths] == [("read", 256), ("copy", 256)]
    assert [one.split(":")[0] for one in got.unfinished] == ["read 1 MiB", "copy 1 MiB"]
    assert all("out of memory on " in one and "another 1.00 GiB" in one for one in got.unfinished)
    assert got.stopped == ""


def test_a_product_that_does_not_fit_is_a_row(runtime: Runtime, monkeypatch: pytest.MonkeyPatch) -> None:
    """So is one that torch refuses, as formats of a kind of device."""
    errors = iter([MemoryError(), RuntimeError('"addmm" not implemented for this\nmore')])

    def fail(*_: Any) -> Any:
        raise next(errors)

    monkeypatch.setattr(products, "_drawn", fail)

    full, refused = (products.product(runtime, "fp32", (8, 8, 8)) for _ in range(2))

    assert (full.sample, refused.sample) == (None, None)
    assert full.problem == f"out of memory on {runtime.machine.name} (MemoryError)"
    assert refused.problem == 'torch cannot: "addmm" not implemented for this'


def test_a_read_that_writes_nothing_fails(runtime: Runtime, monkeypatch: pytest.MonkeyPatch) -> None:
    """A kernel that leaves its output as it was would be the fastest of all."""
    lazy = {"sum fp32": lambda _, buffer: (buffer.new_empty(()), lambda: None)}
    monkeypatch.setattr(memory, "PLAIN", ("sum fp32",))
    monkeypatch.setattr(memory, "READERS", lazy)

    with pytest.raises(WrongOutputError, match=r"^read of 0 MiB by sum fp32: 1 of 1 outputs"):
        memory.read_bandwidth(runtime, 256 * KIB)


def test_a_copy_that_writes_half_fails(runtime: Runtime, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every element of the target is looked at."""
    half = {"copy": lambda _, source, target: lambda: target[: len(target) // 2].copy_(source[: len(target) // 2])}
    monkeypatch.setattr(memory, "COPIERS", half)

    with pytest.raises(WrongOutputError, match=r"^copy of 0 MiB by copy: 65,536 of 131,072 outputs"):
        memory.copy_bandwidth(runtime, 256 * KIB)


def test_a_wrong_product_fails(runtime: Runtime, monkeypatch: pytest.MonkeyPatch) -> None:
    """Numbers that are not the product's stop the profile."""

    def wrong(x: Any, _: Any, *, out: Any) -> Any:
        return out.copy_(x[:, :1].expand(out.shape))

    monkeypatch.setattr(torch, "mm", wrong)

    with pytest.raises(WrongOutputError, match=r"^fp32 product 32x32x32: off by .*% of what fp32 gives"):
        products.product(runtime, "fp32", (32, 32, 32))


def test_what_a_reader_returns(runtime: Runtime) -> None:
    """Each reduction reads all of the buffer: its results are those of fp64."""
    buffer = memory.draw(runtime, 64 * KIB)
    pairs, rows = buffer.view(torch.float32).double(), buffer.double().view(-1, memory.ROW)
    wanted = {
        "sum fp32": pairs.sum(),
        "row sums fp32": pairs.view(-1, memory.ROW).sum(1),
        "row sums bf16": rows.sum(1),
        "row maxima fp32": pairs.view(-1, memory.ROW).amax(1),
        "matrix-vector fp32": pairs.view(-1, memory.ROW) @ pairs.view(-1, memory.ROW)[0],
        "matrix-vector bf16": rows @ rows[0],
    }

    assert set(wanted) == set(memory.READERS)
    for name, reader in memory.READERS.items():
        out, call = reader(runtime, buffer)
        call()
        assert torch.allclose(out.double(), wanted[name], rtol=2e-2, atol=2.0), name


def test_buffers_exceed_the_cache(runtime: Runtime) -> None:
    """Together four times the last cache; a large one needs no other."""
    assert memory.copies(runtime, 256 * KIB) * 256 * KIB >= 4 * runtime.machine.l2_bytes
    assert memory.copies(runtime, 100 * KIB) == 6  # 512 / 100, up
    assert memory.copies(runtime, 2**30) == 1


def test_buffers_fit_in_free_memory(runtime: Runtime, monkeypatch: pytest.MonkeyPatch) -> None:
    """None is larger than a quarter of what is free; one is measured in any case."""
    for free, most in ((8 * 1024 * KIB, 1024), (1024 * KIB, 256), (0, 256)):
        monkeypatch.setattr("roofcast.profiler.runtime._ram", lambda free=free: (free, free))
        assert max(memory.sizes(runtime)) // KIB == most


def test_data_is_random(runtime: Runtime) -> None:
    """Neither zeros nor one number, finite as bf16 and as fp32."""
    buffer = memory.draw(runtime, 256 * KIB)

    assert buffer.nbytes == 256 * KIB
    assert len(buffer.unique()) > 1000
    assert bool(torch.isfinite(buffer).all())
    assert bool(torch.isfinite(buffer.view(torch.float32)).all())


def test_slow_products_are_left_out(runtime: Runtime, monkeypatch: pytest.MonkeyPatch) -> None:
    """At the rate of the one before, a larger one would take too long: a row says how long."""
    monkeypatch.setattr(products, "SMALL_SHAPES", ((32, 32, 32), (32000, 32000, 32000)))
    sample = Sample(1.0, 1.0, 1.0, 0.0, 5)
    monkeypatch.setattr(device, "product", lambda _, name, shape: Product(name, shape[0], shape[1], shape[2], sample))

    _, left = (one for one in device.profile_device(runtime, Budget()).products if one.format == "fp32")

    assert left.sample is None
    assert left.problem == "left out: at the rate of the one before it takes 1000000000 s"


def nvidia(runtime: Runtime, capability: tuple[int, int], **matmul: str) -> Runtime:
    """A CUDA device that is none, of a compute capability; with the newer switch of TF32 or without."""
    cuda = SimpleNamespace(get_device_capability=lambda _: capability)
    switch = SimpleNamespace(**matmul)
    kept = ["highest"]
    fake: Any = SimpleNamespace(
        cuda=cuda,
        backends=SimpleNamespace(cuda=SimpleNamespace(matmul=switch)),
        float8_e4m3fn=torch.float8_e4m3fn,
        get_float32_matmul_precision=lambda: kept[-1],
        set_float32_matmul_precision=kept.append,
        kept=kept,
    )
    return replace(runtime, torch=fake, machine=replace(runtime.machine, kind="cuda"))


@pytest.mark.parametrize(
    ("capability", "formats"),
    [
        ((9, 0), ("fp32", "tf32", "bf16", "fp16", "fp8")),
        ((8, 0), ("fp32", "tf32", "bf16", "fp16")),
        ((7, 5), ("fp32", "fp16")),
        ((6, 1), ("fp32",)),
    ],
)
def test_formats_of_nvidia_devices(runtime: Runtime, capability: tuple[int, int], formats: tuple[str, ...]) -> None:
    """What a generation does not multiply in is refused with the one that does."""
    here = nvidia(runtime, capability)
    refused = {name: products.refusal(here, name) for name in products.FORMATS}

    assert tuple(name for name, why in refused.items() if why is None) == formats
    assert all(why is None or why.startswith(f"{name} needs compute capability ") for name, why in refused.items())


def within(runtime: Runtime, name: str, look: Callable[[], str]) -> list[str]:
    """What a switch says within `precision`, which is left by an error."""
    seen: list[str] = []

    def fail() -> None:
        with products.precision(runtime, name):
            seen.append(look())
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    return seen


@pytest.mark.parametrize(("name", "newer", "older"), [("tf32", "tf32", "high"), ("fp32", "ieee", "highest")])
def test_torchs_precision_is_put_back(runtime: Runtime, name: str, newer: str, older: str) -> None:
    """By whichever switch torch has, also where what is within fails."""
    here = nvidia(runtime, (9, 0), fp32_precision="none")
    matmul: Any = here.torch.backends.cuda.matmul
    assert within(here, name, lambda: matmul.fp32_precision) == [newer]
    assert matmul.fp32_precision == "none"

    before = nvidia(runtime, (9, 0))
    assert within(before, name, lambda: before.torch.kept[-1]) == [older]
    assert before.torch.kept[-1] == "highest"


def test_precision_of_other_formats_is_let_be(runtime: Runtime) -> None:
    """bf16 has none to set."""
    here = nvidia(runtime, (9, 0), fp32_precision="none")

    with products.precision(here, "bf16"):
        assert here.torch.backends.cuda.matmul.fp32_precision == "none"


def test_a_bandwidth_that_does_not_fit_is_an_error(runtime: Runtime, monkeypatch: pytest.MonkeyPatch) -> None:
    """Alone it is no row: OutOfMemoryError, which the profile turns into a line."""
    monkeypatch.setattr(torch, "randn", lambda *_, **__: (_ for _ in ()).throw(MemoryError()))

    with pytest.raises(OutOfMemoryError):
        memory.read_bandwidth(runtime, 256 * KIB)


def test_a_rate() -> None:
    """Bytes moved by the median: 2 GB in half a second are 4 GB/s."""
    sample = Sample(0.5, 0.4, 0.6, 0.1, 5)

    assert Bandwidth("copy", 10**9, 2 * 10**9, sample).bytes_per_second == 4e9
