"""What joins ranks: the library that exchanges, and the links of their devices as the driver tells them."""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING, Final

from roofcast.profiler.ranks import NCCL

if TYPE_CHECKING:
    from types import ModuleType

    from roofcast.profiler.ranks_store import Place
    from roofcast.profiler.runtime import Runtime

#: what `nvidia-smi topo -m` calls a path between two GPUs -> in words. Source: its own legend
PATHS: Final = {
    "SYS": "across sockets",
    "NODE": "across host bridges of one socket",
    "PHB": "through the host bridge",
    "PXB": "through several PCIe switches",
    "PIX": "through one PCIe switch",
}


def library_of(torch: ModuleType, backend: str) -> str:
    """What moves the data, with its version."""
    if backend != NCCL:
        return f"gloo of torch {torch.__version__}"
    version = torch.cuda.nccl.version()
    name = "RCCL" if torch.version.hip is not None else "NCCL"
    return f"{name} {'.'.join(map(str, version))}" if isinstance(version, tuple) else f"{name} {version}"


def link_of(runtime: Runtime, place: Place) -> str:
    """How the GPUs of this host are linked, as the driver tells; empty where it does not."""
    if not runtime.on_cuda or place.locals == 1 or runtime.kind != "cuda":
        return ""
    import subprocess  # noqa: PLC0415 - only measuring needs it

    try:
        said = subprocess.run(["nvidia-smi", "topo", "-m"], capture_output=True, text=True, timeout=20, check=True)  # noqa: S607 - from the PATH
    except (OSError, subprocess.SubprocessError):
        return ""
    return links_told(said.stdout, place.locals)


def links_told(text: str, devices: int) -> str:
    r"""The links between the first devices of the table that `nvidia-smi topo -m` prints, in words.

    >>> links_told("\tGPU0\tGPU1\tCPU Affinity\nGPU0\t X \tNV18\t0-31\nGPU1\tNV18\t X \t0-31\n", 2)
    '18 NVLinks between each two'
    """
    plain = re.sub(r"\x1b\[[0-9;]*m", "", text)
    rows = [line.split("\t") for line in plain.splitlines() if re.match(r"GPU[0-9]+\b", line)]
    cells = [cell.strip() for row in rows[:devices] for cell in row[1 : devices + 1]]
    found = Counter(cell for cell in cells if cell and cell != "X")
    words = [_words(name) for name, _ in found.most_common()]
    if not words or len(rows) < devices:
        return ""
    return f"{words[0]} between each two" if len(words) == 1 else f"{' or '.join(words)} between two"


def _words(name: str) -> str:
    nvlinks = re.fullmatch(r"NV([0-9]+)", name)
    return f"{nvlinks[1]} NVLinks" if nvlinks else f"PCIe {PATHS[name]}" if name in PATHS else name
