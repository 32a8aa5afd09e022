"""The device that is measured: found, opened, described; nothing of it is ever changed."""

from __future__ import annotations

import re
import signal
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from roofcast.calculators.profiled import Machine
from roofcast.profiler.errors import ProfileUsageError, UnavailableError
from roofcast.profiler.signals import heard

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import ModuleType

    import torch as pytorch  # a field of Runtime is called torch

    from roofcast.profiler.ranks import Ranks

CPU_CACHE: Final = 64 * 2**20  # [B] taken of a CPU's last cache where nothing tells
#: format -> name of torch's type that holds its elements
DTYPES: Final = {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32", "fp8": "float8_e4m3fn"}
INFINITY_CACHE: Final = 2**28  # [B] of AMD's largest devices, which torch does not tell
BUSY: Final = 2**30  # [B] in other programs' hands that are worth a remark
LEAST_FREE: Final = 2**28  # [B] below which nothing can be measured
TRITON_LEAST: Final = (7, 0)  # compute capability that Triton compiles for


@dataclass(frozen=True, slots=True)
class Runtime:
    """An open device.

    Args:
        torch: the module.
        device: of it.
        machine: what it is, and what drives it.
        triton: whether fused kernels can be compiled for it.
        ranks: those that work together, of which this device is one; None where it works alone.
    """

    torch: ModuleType
    device: pytorch.device
    machine: Machine
    triton: bool
    ranks: Ranks | None = None

    @property
    def kind(self) -> str:
        """`cuda`, `rocm`, `mps` or `cpu`."""
        return self.machine.kind

    @property
    def on_cuda(self) -> bool:
        """Whether it has events, streams and graphs: NVIDIA's and AMD's devices."""
        return self.machine.kind in {"cuda", "rocm"}

    @property
    def graphs(self) -> bool:
        """Whether a graph can record a step: not where ranks exchange through the host."""
        return self.on_cuda and (self.ranks is None or self.ranks.capturable)

    def dtype(self, number_format: str) -> pytorch.dtype:
        """torch's type of a format of `DTYPES`."""
        found: pytorch.dtype = getattr(self.torch, DTYPES[number_format])
        return found

    def synchronize(self) -> None:
        """Waits for all that was launched."""
        if self.on_cuda:
            self.torch.cuda.synchronize(self.device)
        elif self.kind == "mps":
            self.torch.mps.synchronize()

    def free_bytes(self) -> int:
        """Memory that can be had now. [B]"""
        return _memory(self.torch, self.device)[0]

    def release(self) -> None:
        """Gives memory that torch keeps back to the device."""
        if self.on_cuda:
            self.torch.cuda.empty_cache()
        elif self.kind == "mps":
            self.torch.mps.empty_cache()


def open_runtime(name: str | None = None) -> Runtime:
    """Opens a device.

    Args:
        name: `cuda`, `cuda:1`, `mps`, `cpu`; None is the best that is there.

    Raises:
        UnavailableError: no torch, or a device that is there and cannot be used.
        ProfileUsageError: a device that is not there.
    """
    torch = _torch()
    there, why = _looked(torch)
    asked = name or there[0]
    plain = _plain(torch, asked)
    if plain not in there:
        raise ProfileUsageError(f"--device {asked}: torch {torch.__version__} sees {', '.join(there)} here{why}")
    device = torch.device(plain)
    try:
        if device.type == "cuda":
            torch.cuda.set_device(device)  # of this process: what events, graphs and Triton use
        machine = _machine(torch, device)
        runtime = Runtime(torch, device, machine, machine.kernels == "triton")
    except RuntimeError as error:  # torch's own class is one; anything else is a fault of ours
        raise UnavailableError(f"--device {asked}: it cannot be used now ({first_line(error)})") from error
    _refuse_full(machine, asked)
    return runtime


def _refuse_full(machine: Machine, asked: str) -> None:
    if machine.free_bytes < LEAST_FREE:
        free, whole, least = (
            f"{size / 2**30:.2f} GiB" for size in (machine.free_bytes, machine.memory_bytes, LEAST_FREE)
        )
        raise UnavailableError(
            f"--device {asked}: {free} of {whole} are free, measuring needs {least} at least; other programs hold the rest"
        )


def _plain(torch: ModuleType, asked: str) -> str:
    """A device's name as `devices` has it: with its number, and ROCm's as torch calls them."""
    kind, _, number = asked.strip().lower().partition(":")
    if kind in {"rocm", "hip"} and torch.version.hip is not None:
        kind = "cuda"
    return f"{kind}:{number or 0}" if kind == "cuda" else kind + (f":{number}" if number else "")


def _looked(torch: ModuleType) -> tuple[tuple[str, ...], str]:
    """The devices, and what torch says of those that it cannot start, as an old driver."""
    import warnings  # noqa: PLC0415 - likewise

    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        there = devices(torch)
    reasons = [first_line(one.message) for one in said if isinstance(one.message, Warning)]
    return there, f" ({reasons[0]})" if reasons else ""


def visible() -> tuple[str, ...]:
    """Names of the devices that torch sees here, none of which is opened.

    Raises:
        UnavailableError: no torch.
    """
    return _looked(_torch())[0]


def devices(torch: ModuleType) -> tuple[str, ...]:
    """Names of the devices that torch sees, the fastest kind first."""
    found = [f"cuda:{number}" for number in range(torch.cuda.device_count())] if torch.cuda.is_available() else []
    if getattr(torch.backends, "mps", None) is not None and torch.backends.mps.is_available():
        found.append("mps")
    return (*found, "cpu")


def first_line(error: BaseException) -> str:
    r"""The first line of an error's text, short.

    >>> first_line(RuntimeError("CUDA error: out of memory.\nSearch for ..."))
    'CUDA error: out of memory'
    """
    text = str(error).strip() or type(error).__name__
    return re.sub(r"\s*\(Triggered internally at .*", "", text.splitlines()[0])[:200].rstrip(". ")


def _torch() -> ModuleType:
    import warnings  # noqa: PLC0415 - only measuring needs it

    try:
        with warnings.catch_warnings(), _uninterrupted():
            warnings.simplefilter("ignore")  # of what torch misses beside itself
            import torch
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise UnavailableError(
                f"measuring needs torch, which cannot be imported here ({first_line(error)})"
            ) from error
        raise UnavailableError(
            "measuring needs torch, which is not installed: pip install 'roofcast[profile]'"
        ) from error
    except Exception as error:  # a broken library of it is an OSError, a wrong build anything
        raise UnavailableError(f"measuring needs torch, which cannot be imported here ({first_line(error)})") from error
    module: ModuleType = torch
    return module


@contextmanager
def _uninterrupted() -> Iterator[None]:
    """Keeps Ctrl-C until the end: torch that was interrupted as it loaded cannot be loaded again, and says something else."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        yield
        return
    pressed: list[int] = []
    with heard(signal.SIGINT, lambda number, _: pressed.append(number)):
        yield
    if pressed:
        raise KeyboardInterrupt


def _machine(torch: ModuleType, device: pytorch.device) -> Machine:
    if device.type == "cuda":
        return _cuda(torch, device)
    free, total = _memory(torch, device)
    cpu = device.type == "cpu"
    name = _cpu_name()  # Apple's chips have one name for both
    return Machine(
        name=name,
        kind=device.type,
        accelerator=_own(name) if cpu else _known(name, total),
        memory_bytes=total,
        free_bytes=free,
        l2_bytes=_last_cache() or CPU_CACHE,
        sms=torch.get_num_threads() if cpu else 0,
        torch=str(torch.__version__),
    )


def _cuda(torch: ModuleType, device: pytorch.device) -> Machine:
    torch.zeros(1, device=device)  # a device that is in use says so here
    facts = torch.cuda.get_device_properties(device)
    free, total = _memory(torch, device)
    rocm = torch.version.hip is not None
    driver, clock = (None, None) if rocm else _driver(getattr(facts, "uuid", None), device.index or 0)
    broken = _triton_problem(torch, device)
    held = total - free - torch.cuda.memory_reserved(device)
    busy = held > max(BUSY, 0.02 * total)
    remark = f"{held / 2**30:.1f} GiB of the device are in use by other programs: times may not be its own"
    return Machine(
        name=facts.name,
        kind="rocm" if rocm else "cuda",
        accelerator=_known(facts.name, total),
        memory_bytes=total,
        free_bytes=free,
        l2_bytes=max(getattr(facts, "L2_cache_size", 0) or CPU_CACHE, INFINITY_CACHE if rocm else 0),
        sms=facts.multi_processor_count,
        torch=str(torch.__version__),
        driver=driver,
        clock=clock,
        kernels="torch" if broken is not None else "triton",
        remarks=(*((remark,) if busy else ()), *((broken,) if broken else ())),
    )


def _own(name: str) -> str | None:
    """The id of a processor that the user describes; the built-in files have none, only GPUs that share a name with one."""
    from roofcast.hwdb.files import BUILT_IN, accelerator_files  # noqa: PLC0415 - reads files

    found = _known(name, None)
    return found if found is not None and accelerator_files()[found].parent != BUILT_IN else None


def _known(name: str, memory: int | None) -> str | None:
    """The id of a device in the database, by the name that its driver reports."""
    from roofcast.hwdb.lookup import UnknownAcceleratorError, find_accelerator  # noqa: PLC0415 - reads files

    try:
        return find_accelerator(name, memory).accelerator.id
    except UnknownAcceleratorError:
        return None


def _memory(torch: ModuleType, device: pytorch.device) -> tuple[int, int]:
    """Free and whole memory. [B]"""
    if device.type == "cuda":
        free, total = torch.cuda.mem_get_info(device)
        return int(free), int(total)
    if device.type == "mps":
        total = int(torch.mps.recommended_max_memory())
        return total - int(torch.mps.driver_allocated_memory()), total
    return _ram()


def _ram() -> tuple[int, int]:
    """Free and whole memory of the host, where the system tells; else what any has. [B]"""
    import os  # noqa: PLC0415 - likewise

    try:
        page = os.sysconf("SC_PAGE_SIZE")
        whole = os.sysconf("SC_PHYS_PAGES") * page
    except (AttributeError, OSError, ValueError):
        return 4 * 2**30, 8 * 2**30
    found = re.search(r"^MemAvailable:\s*([0-9]+) kB$", _text("/proc/meminfo"), re.MULTILINE)
    if found:  # what programs can have, with what the system keeps of files
        limit, used = (_text(f"/sys/fs/cgroup/memory.{name}").strip() for name in ("max", "current"))
        allowed = int(limit) - int(used) if limit.isdigit() and used.isdigit() else whole  # of a container
        return max(0, min(int(found[1]) * 1024, allowed)), whole
    free = os.sysconf("SC_AVPHYS_PAGES") if "SC_AVPHYS_PAGES" in os.sysconf_names else whole // page // 2
    return free * page, whole


def _driver(uuid: object, index: int) -> tuple[str | None, str | None]:
    """Driver and clocks as nvidia-smi reads them, which changes nothing; None where it does not tell.

    Its numbers are not torch's where CUDA_VISIBLE_DEVICES hides some, and their uuid is.
    """
    import os  # noqa: PLC0415 - likewise

    fields = "driver_version,clocks.sm,clocks.max.sm,clocks.mem"
    numbers = () if os.environ.get("CUDA_VISIBLE_DEVICES") else (str(index),)
    names = (*((f"GPU-{uuid}",) if uuid is not None else ()), *numbers)
    text = next(filter(None, (_asked(name, fields) for name in names)), "")
    parts = [part.strip() for part in text.strip().split(",")]
    if len(parts) != fields.count(",") + 1:
        return None, None
    driver, now, most, memory = parts
    return driver, f"SM {now} MHz as the profile began, at most {most} MHz; memory {memory} MHz"


def _asked(name: str, fields: str) -> str:
    """What nvidia-smi says of one GPU; nothing where it does not know it."""
    import subprocess  # noqa: PLC0415 - likewise

    command = ["nvidia-smi", f"--id={name}", f"--query-gpu={fields}", "--format=csv,noheader,nounits"]
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=20, check=True).stdout  # noqa: S603 - fixed words
    except (OSError, subprocess.SubprocessError):
        return ""


def _cpu_name() -> str:
    import platform  # noqa: PLC0415 - likewise
    import subprocess  # noqa: PLC0415 - likewise
    from contextlib import suppress  # noqa: PLC0415 - likewise

    found = re.search(r"^model name\s*:\s*(.+)$", _text("/proc/cpuinfo"), re.MULTILINE)
    if found:
        return found[1].strip()
    if platform.system() == "Darwin":
        command = ["/usr/sbin/sysctl", "-n", "machdep.cpu.brand_string"]
        with suppress(OSError, subprocess.SubprocessError):
            return subprocess.run(command, capture_output=True, text=True, timeout=5, check=True).stdout.strip()  # noqa: S603 - fixed words
    return platform.processor() or platform.machine() or "CPU"


def _last_cache() -> int:
    """Bytes of the processor's last cache; 0 where nothing tells."""
    sizes = [
        re.fullmatch(r"([0-9]+)K", _text(f"/sys/devices/system/cpu/cpu0/cache/index{n}/size").strip()) for n in range(5)
    ]
    return max((int(size[1]) * 1024 for size in sizes if size), default=0)


def _text(path: str) -> str:
    """What a file of the system says; nothing where it is not there."""
    from pathlib import Path  # noqa: PLC0415 - likewise

    try:
        return Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _triton_problem(torch: ModuleType, device: pytorch.device) -> str | None:
    """Why no fused kernels are compiled for a device: empty where Triton is not there; None where one ran."""
    from importlib.util import find_spec  # noqa: PLC0415 - likewise

    old = torch.version.hip is None and torch.cuda.get_device_capability(device) < TRITON_LEAST
    return "" if old or find_spec("triton") is None else _tried(torch, device)


def _tried(torch: ModuleType, device: pytorch.device) -> str | None:
    """Why a small kernel does not run on the device; None where it does."""
    try:
        from roofcast.profiler.triton_probe import read_buffer  # noqa: PLC0415 - needs triton

        out, read = read_buffer(torch.ones(4096, device=device))
        read()
        works = float(out.sum()) == 4096.0  # noqa: PLR2004 - ones
    except Exception as error:  # noqa: BLE001 - no compiler, a wrong build: it fails as it likes, and torch does without
        return f"Triton does not work here ({first_line(error)}): kernels are plain torch's, which are slower"
    return None if works else "Triton computes wrongly here: kernels are plain torch's, which are slower"
