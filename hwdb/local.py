"""Which accelerators this machine has, as their drivers report them."""

from __future__ import annotations

import csv
import json
import subprocess
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

_SECONDS = 10.0  # a driver that starts up can take several
_NVIDIA = ("nvidia-smi", "--query-gpu=name,memory.total", "--format=csv,noheader,nounits")
_MOST_MEMORY = 1e16  # [B]
_LONGEST = 200  # characters of a name, or of what a tool says
_AMD = ("rocm-smi", "--showproductname", "--showmeminfo", "vram", "--json")


# what reading an answer raises if it is none: json nested too deeply, a csv field too long, no text, no number, ...
_UNREADABLE = (ValueError, LookupError, AttributeError, TypeError, OverflowError, RecursionError, csv.Error)


class LocalGpuError(RuntimeError):
    """A driver tool is installed and failed; the message says how."""


@dataclass(frozen=True, slots=True)
class LocalGpu:
    """One device of this machine: its driver's name for it and its memory [B], None where it is shared."""

    name: str
    memory_bytes: int | None


def local_accelerators() -> list[LocalGpu]:
    """List this machine's NVIDIA and AMD devices; none is an empty list.

    Raises:
        LocalGpuError: a driver tool is there, fails, and no other tool finds a device.
    """
    found: list[LocalGpu] = []
    failures: list[LocalGpuError] = []
    for command, parse in ((_NVIDIA, _parse_nvidia), (_AMD, _parse_amd)):
        try:
            found += _ask(command, parse)
        except LocalGpuError as error:
            failures.append(error)
    if failures and not found:
        raise failures[0]
    return found


def _ask(command: tuple[str, ...], parse: Callable[[str], list[LocalGpu]]) -> list[LocalGpu]:
    tool = command[0]
    try:
        answer = subprocess.run(  # noqa: S603 - constant arguments
            command, capture_output=True, text=True, errors="replace", timeout=_SECONDS, check=False
        )
    except FileNotFoundError:
        return []
    except subprocess.TimeoutExpired as error:
        raise LocalGpuError(f"{tool} did not answer within {_SECONDS:.0f} s") from error
    except OSError as error:
        raise LocalGpuError(f"{tool} cannot be run: {error.strerror}") from error
    if "no devices were found" in (answer.stdout + answer.stderr).lower():
        return []
    if answer.returncode:
        said = (answer.stderr.strip() or answer.stdout.strip() or "no message").splitlines()[0]
        raise LocalGpuError(f"{tool} failed with code {answer.returncode}: {said[:_LONGEST]}")
    try:
        return parse(answer.stdout)
    except _UNREADABLE as error:
        said = " ".join(answer.stdout[:_LONGEST].split())
        raise LocalGpuError(f"{tool} printed something else than a list of devices: {said!r}") from error


def _parse_nvidia(text: str) -> list[LocalGpu]:
    r"""Read `name, MiB` lines.

    >>> _parse_nvidia("NVIDIA H200, 143771\nNVIDIA GB10, [N/A]\n")
    [LocalGpu(name='NVIDIA H200', memory_bytes=150754820096), LocalGpu(name='NVIDIA GB10', memory_bytes=None)]
    """
    rows = [row for row in csv.reader(text.splitlines(), skipinitialspace=True) if row]
    return [_device(name, _mebibytes(memory)) for name, memory in rows]


def _device(name: str, memory: int | None) -> LocalGpu:
    stripped = name.strip()
    if not 0 < len(stripped) <= _LONGEST or not (memory is None or 0 < memory <= _MOST_MEMORY):
        raise ValueError("no name, or no size that memory has")
    return LocalGpu(stripped, memory)


def _mebibytes(text: str) -> int | None:
    # devices that share the host's memory print [N/A] or [Not Supported]
    return None if text.strip().startswith("[") else int(text) * 2**20


def _parse_amd(text: str) -> list[LocalGpu]:
    """Read rocm-smi's JSON: one object a card; the case of its keys changed between versions.

    >>> _parse_amd('{"card0": {"Card Series": "AMD Instinct MI300X", "VRAM Total Memory (B)": "206141652992"}}')
    [LocalGpu(name='AMD Instinct MI300X', memory_bytes=206141652992)]
    """
    cards = (
        {key.lower(): value for key, value in card.items()}
        for name, card in json.loads(text or "{}").items()
        if name.startswith("card")
    )
    return [_device(card["card series"], int(card["vram total memory (b)"])) for card in cards]
