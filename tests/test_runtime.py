"""Opening a device: what is there, what is not, what is in use; each refusal is one line."""

from __future__ import annotations

import builtins
import signal
import sys
import warnings
from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from roofcast.profiler import runtime as module
from roofcast.profiler.errors import ProfileUsageError, UnavailableError
from roofcast.profiler.runtime import Runtime, devices, first_line, open_runtime

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

GIB = 2**30


@pytest.fixture(name="torch")
def installed() -> Any:
    """The torch package, with one thread."""
    torch = pytest.importorskip("torch")
    torch.set_num_threads(1)
    return torch


def no_torch(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    """Let `import torch` fail."""
    real = builtins.__import__

    def refuse(name: str, *rest: Any, **named: Any) -> Any:
        if name == "torch":
            raise error
        return real(name, *rest, **named)

    monkeypatch.delitem(sys.modules, "torch", raising=False)
    monkeypatch.setattr(builtins, "__import__", refuse)


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (
            ModuleNotFoundError("No module named 'torch'", name="torch"),
            "measuring needs torch, which is not installed: pip install 'roofcast[profile]'",
        ),
        (
            ModuleNotFoundError("No module named 'sympy'", name="sympy"),
            "measuring needs torch, which cannot be imported here (No module named 'sympy')",
        ),
        (
            OSError("libcudart.so.13: cannot open shared object file\nmore"),
            "measuring needs torch, which cannot be imported here (libcudart.so.13: cannot open shared object file)",
        ),
    ],
)
def test_without_torch(monkeypatch: pytest.MonkeyPatch, error: Exception, says: str) -> None:
    """Not installed, and installed but broken, are told apart."""
    no_torch(monkeypatch, error)

    with pytest.raises(UnavailableError) as caught:
        open_runtime()

    assert str(caught.value) == says


@pytest.mark.usefixtures("torch")
def test_the_processor() -> None:
    """Every machine has one; its memory and threads are read, and no datasheet is claimed for it."""
    machine = open_runtime("cpu").machine

    assert (machine.kind, machine.accelerator, machine.sms, machine.kernels) == ("cpu", None, 1, "torch")
    assert 0 < machine.free_bytes <= machine.memory_bytes
    assert machine.name
    assert machine.l2_bytes >= 2**16


@pytest.mark.usefixtures("torch")
def test_a_processor_that_the_user_describes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file of the user's own, with the name that the system gives, counts; a GPU of that name that comes with roofcast does not."""
    monkeypatch.setattr("roofcast.profiler.runtime._cpu_name", lambda: "My Processor 9000")
    monkeypatch.setenv("ROOFCAST_HOME", str(tmp_path))
    assert open_runtime("cpu").machine.accelerator is None
    (tmp_path / "accelerators").mkdir()
    (tmp_path / "accelerators" / "my-cpu.yaml").write_text(
        "id: my-cpu\nname: My Processor 9000\nvendor: amd\nmemory: 16 GB\nbandwidth: 40 GB/s\npeaks: {fp32: 2 TFLOP/s}\n"
        "sources: [{title: a test, facts: [memory, bandwidth, peaks]}]\n",
        encoding="utf-8",
    )
    assert open_runtime("cpu").machine.accelerator == "my-cpu"
    monkeypatch.setattr("roofcast.profiler.runtime._cpu_name", lambda: "NVIDIA H200")
    assert open_runtime("cpu").machine.accelerator is None


@pytest.mark.usefixtures("torch")
@pytest.mark.parametrize("name", ["cuda:99", "gpu", "mps:7", "", "cuda:x"])
def test_a_device_that_is_not_there(name: str) -> None:
    """The line says what there is."""
    with pytest.raises(ProfileUsageError, match=r"^--device .*: torch .* sees .*cpu here") as caught:
        open_runtime(name or " ")

    assert "\n" not in str(caught.value)


def test_cuda_on_a_machine_without(torch: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """What torch says of an old driver stands in the line."""
    old = "CUDA initialization: The NVIDIA driver on your system is too old (found version 11040). (Triggered internally at x.cpp:1.)"

    def unavailable() -> bool:
        warnings.warn(old, UserWarning, stacklevel=1)
        return False

    monkeypatch.setattr(torch.cuda, "is_available", unavailable)

    with pytest.raises(ProfileUsageError) as caught:
        open_runtime("cuda")

    assert str(caught.value) == (
        f"--device cuda: torch {torch.__version__} sees cpu here"
        " (CUDA initialization: The NVIDIA driver on your system is too old (found version 11040))"
    )


def gpu(torch: Any, monkeypatch: pytest.MonkeyPatch, **other: Any) -> SimpleNamespace:
    """Let torch see two GPUs that are none; what is named replaces their functions."""
    facts = SimpleNamespace(name="NVIDIA H200", L2_cache_size=50 * 2**20, multi_processor_count=132)
    cuda: dict[str, Any] = {
        "is_available": lambda: True,
        "device_count": lambda: 2,
        "set_device": lambda _: None,
        "get_device_properties": lambda _: facts,
        "get_device_capability": lambda _: (9, 0),
        "mem_get_info": lambda _: (139 * GIB, 140 * GIB),
        "memory_reserved": lambda _: 0,
    }
    fake = SimpleNamespace(
        cuda=SimpleNamespace(**{**cuda, **other}),
        backends=SimpleNamespace(),
        version=SimpleNamespace(hip=None),
        __version__="2.11",
        zeros=lambda *_, **__: None,
        device=torch.device,
    )
    monkeypatch.setattr(module, "_torch", lambda: fake)
    monkeypatch.setattr(module, "_tried", lambda *_: None)
    monkeypatch.setattr(module, "_driver", lambda _, index: (f"590.{index}", "SM 1980 MHz"))
    return fake


def test_a_gpu_is_described(torch: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its name finds its datasheet; the process is put on the device that was asked for."""
    current: list[Any] = []
    gpu(torch, monkeypatch, set_device=current.append)

    got = open_runtime("cuda:1").machine

    assert (got.name, got.kind, got.accelerator, got.sms) == ("NVIDIA H200", "cuda", "h200-sxm", 132)
    assert (got.driver, got.l2_bytes, got.remarks) == ("590.1", 50 * 2**20, ())
    assert current == [torch.device("cuda:1")]


@pytest.mark.parametrize(("asked", "index"), [(None, 0), ("cuda", 0), ("CUDA:1", 1), ("cuda:0", 0)])
def test_a_device_is_named_as_torch_does(
    torch: Any, monkeypatch: pytest.MonkeyPatch, asked: str | None, index: int
) -> None:
    """The first GPU is what is taken where nothing is named."""
    gpu(torch, monkeypatch)

    assert open_runtime(asked).device == torch.device(f"cuda:{index}")


def test_rocm_is_cuda_to_torch(torch: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """`--device rocm:1` is torch's cuda:1; nvidia-smi is not asked."""
    fake = gpu(torch, monkeypatch)
    fake.version.hip = "7.0"

    got = open_runtime("rocm:1")

    assert (got.kind, got.on_cuda, got.device, got.machine.driver) == ("rocm", True, torch.device("cuda:1"), None)


def test_rocm_is_not_there_on_nvidia(torch: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A build for CUDA has no ROCm device."""
    gpu(torch, monkeypatch)

    with pytest.raises(ProfileUsageError, match=r"^--device rocm: torch 2.11 sees cuda:0, cuda:1, cpu here$"):
        open_runtime("rocm")


def test_a_device_in_exclusive_use(torch: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """What CUDA says when another program has the device to itself, in one line."""
    fake = gpu(torch, monkeypatch)

    def busy(*_: object, **__: object) -> None:
        raise RuntimeError("CUDA error: CUDA-capable device(s) is/are busy or unavailable\nCompile with ...")

    fake.zeros = busy

    with pytest.raises(UnavailableError) as caught:
        open_runtime()

    assert str(caught.value) == (
        "--device cuda:0: it cannot be used now (CUDA error: CUDA-capable device(s) is/are busy or unavailable)"
    )


def test_a_device_that_others_use_too(torch: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is measured, with a remark."""
    gpu(torch, monkeypatch, mem_get_info=lambda _: (100 * GIB, 140 * GIB))

    assert open_runtime().machine.remarks == (
        "40.0 GiB of the device are in use by other programs: times may not be its own",
    )


def test_a_device_that_is_full(torch: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Too little memory to measure anything is said before anything is tried."""
    gpu(torch, monkeypatch, mem_get_info=lambda _: (GIB // 8, 140 * GIB))

    with pytest.raises(UnavailableError) as caught:
        open_runtime()

    assert str(caught.value) == (
        "--device cuda:0: 0.12 GiB of 140.00 GiB are free, measuring needs 0.25 GiB at least; other programs hold the rest"
    )


@pytest.mark.parametrize(
    ("name", "memory", "found"),
    [
        ("NVIDIA H200", 140 * GIB, "h200-sxm"),
        ("NVIDIA H200 MIG 1g.18gb", 17 * GIB, None),  # a slice has not the card's roofs
        ("NVIDIA H200", 16 * GIB, None),  # nor has this
        ("NVIDIA GeForce RTX 4090", 24 * GIB, "rtx-4090"),
        ("AMD EPYC 9654 96-Core Processor", 512 * GIB, None),
        ("Nonesuch 9000", 8 * GIB, None),
    ],
)
def test_names_of_drivers(name: str, memory: int, found: str | None) -> None:
    """A device that the database knows is found by what its driver calls it; any other is measured without."""
    assert module._known(name, memory) == found


def test_old_devices_have_no_triton(torch: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Triton compiles for Volta and later."""
    monkeypatch.setattr("importlib.util.find_spec", lambda _: object())
    gpu(torch, monkeypatch)
    assert open_runtime().triton
    gpu(torch, monkeypatch, get_device_capability=lambda _: (6, 1))
    assert not open_runtime().triton


def test_mps(torch: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Apple's GPU has the chip's name and the memory that Metal recommends."""
    fake: Any = gpu(torch, monkeypatch, is_available=lambda: False)
    calls: list[str] = []
    fake.backends.mps = SimpleNamespace(is_available=lambda: True)
    fake.mps = SimpleNamespace(
        recommended_max_memory=lambda: 48 * GIB,
        driver_allocated_memory=lambda: GIB,
        synchronize=lambda: calls.append("synchronize"),
        empty_cache=lambda: calls.append("empty_cache"),
    )
    monkeypatch.setattr(module, "_cpu_name", lambda: "Apple M9 Pro")

    got = open_runtime()
    got.synchronize()
    got.release()

    assert devices(fake) == ("mps", "cpu")
    assert (got.kind, got.machine.name, got.machine.memory_bytes, got.free_bytes()) == (
        "mps",
        "Apple M9 Pro",
        48 * GIB,
        47 * GIB,
    )
    assert (got.on_cuda, got.triton, calls) == (False, False, ["synchronize", "empty_cache"])


def test_formats_are_torchs_types(torch: Any) -> None:
    """Every format has its type."""
    here = open_runtime("cpu")

    assert [here.dtype(name) for name in ("bf16", "fp16", "fp32", "fp8")] == [
        torch.bfloat16,
        torch.float16,
        torch.float32,
        torch.float8_e4m3fn,
    ]


def smi(answer: str | Exception, asked: list[str]) -> Callable[..., Any]:
    """A subprocess.run that answers for nvidia-smi, and keeps which GPU it was asked of."""

    def run(command: list[str], **_: Any) -> Any:
        assert command[0] == "nvidia-smi"
        asked.append(command[1])
        assert all(part.startswith("--") for part in command[1:]), "only questions"
        if isinstance(answer, Exception):
            raise answer
        return SimpleNamespace(stdout=answer)

    return run


@pytest.mark.parametrize(
    ("answer", "found"),
    [
        ("590.12, 345, 1980, 3201\n", ("590.12", "SM 345 MHz as the profile began, at most 1980 MHz; memory 3201 MHz")),
        ("something else\n", (None, None)),
        (FileNotFoundError("nvidia-smi"), (None, None)),
    ],
)
def test_driver_and_clocks(monkeypatch: pytest.MonkeyPatch, answer: Any, found: tuple[str | None, str | None]) -> None:
    """They are read, never set; where they cannot be read they are not known."""
    asked: list[str] = []
    monkeypatch.setattr("subprocess.run", smi(answer, asked))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)

    assert module._driver("1a-2b", 3) == found
    assert asked[0] == "--id=GPU-1a-2b"


def test_hidden_gpus_are_not_mistaken(monkeypatch: pytest.MonkeyPatch) -> None:
    """torch's number 0 is another GPU than nvidia-smi's where CUDA_VISIBLE_DEVICES hides some: it is not asked for."""
    asked: list[str] = []
    monkeypatch.setattr("subprocess.run", smi("590.12, 345, 1980, 3201\n", asked))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3")
    assert module._driver(None, 0) == (None, None)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    assert module._driver(None, 0)[0] == "590.12"
    assert asked == ["--id=0"]


def test_a_triton_that_does_not_work_is_said(torch: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels are plain torch's then, and a remark says why."""
    gpu(torch, monkeypatch)
    monkeypatch.setattr("importlib.util.find_spec", lambda _: object())
    monkeypatch.setattr(module, "_tried", lambda *_: "Triton does not work here (no compiler)")
    runtime = open_runtime()
    assert not runtime.triton
    assert runtime.machine.kernels == "torch"
    assert runtime.machine.remarks[-1] == "Triton does not work here (no compiler)"


def test_ctrl_c_waits_for_an_import() -> None:
    """It is not lost, and comes when torch is loaded whole."""
    reached: list[bool] = []

    def load() -> None:
        with module._uninterrupted():
            signal.raise_signal(signal.SIGINT)
            reached.append(True)

    with pytest.raises(KeyboardInterrupt):
        load()
    assert reached == [True]


def test_first_lines() -> None:
    """One line, without torch's own whereabouts, never empty."""
    assert first_line(RuntimeError("")) == "RuntimeError"
    assert first_line(UserWarning("no driver. (Triggered internally at /pytorch/x.cpp:1.)")) == "no driver"
    assert len(first_line(ValueError("x" * 999))) == 200


def test_a_runtime_is_a_value(torch: Any) -> None:
    """It can be replaced, not changed."""
    here = open_runtime("cpu")

    assert isinstance(replace(here, torch=torch), Runtime)
    with pytest.raises(AttributeError):
        here.triton = True  # type: ignore[misc]
