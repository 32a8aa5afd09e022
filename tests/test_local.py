"""The devices of this machine are what the drivers' tools say."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from roofcast.hwdb import local
from roofcast.hwdb.local import LocalGpu, LocalGpuError, local_accelerators

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.skipif(os.name != "posix", reason="the stand-in tools are shell scripts")


@pytest.fixture(autouse=True)
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Put an empty folder in the place of everything installed."""
    monkeypatch.setenv("PATH", str(tmp_path))
    return tmp_path


def install(folder: Path, tool: str, script: str) -> None:
    """Put a shell script in a tool's place."""
    path = folder / tool
    path.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
    path.chmod(0o755)


def test_no_tools() -> None:
    """A machine without driver tools has no devices."""
    assert local_accelerators() == []


def test_nvidia(tools: Path) -> None:
    """nvidia-smi gives names and MiB, and no number where memory is shared with the host."""
    install(tools, "nvidia-smi", "echo 'NVIDIA H200, 143771'; echo 'NVIDIA H200, 143771'; echo 'NVIDIA GB10, [N/A]'")

    card = LocalGpu("NVIDIA H200", 143771 * 2**20)
    assert local_accelerators() == [card, card, LocalGpu("NVIDIA GB10", None)]


def test_nvidia_is_asked_for_what_is_read(tools: Path) -> None:
    """nvidia-smi is asked for names and memory alone, without header or units."""
    install(tools, "nvidia-smi", f'echo "$*" > {tools}/asked')
    local_accelerators()

    assert (tools / "asked").read_text(encoding="utf-8").split() == [
        "--query-gpu=name,memory.total",
        "--format=csv,noheader,nounits",
    ]


def test_amd(tools: Path) -> None:
    """rocm-smi's JSON gives names and bytes, whatever the case of its keys."""
    answer = (
        '{"card0": {"Card series": "AMD Instinct MI300X", "VRAM Total Memory (B)": "206141652992"}, '
        '"card1": {"Card Series": "AMD Instinct MI300X", "VRAM Total Memory (B)": "206141652992"}, "system": {}}'
    )
    install(tools, "rocm-smi", f"echo '{answer}'")

    assert local_accelerators() == [LocalGpu("AMD Instinct MI300X", 206141652992)] * 2


@pytest.mark.parametrize("code", [0, 6])
def test_no_devices(tools: Path, code: int) -> None:
    """A driver without devices is no failure."""
    install(tools, "nvidia-smi", f"echo 'No devices were found'; exit {code}")

    assert local_accelerators() == []


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("echo 'could not talk to the driver' >&2; exit 9", "nvidia-smi failed with code 9: could not talk"),
        ("echo 'on stdout'; exit 9", "nvidia-smi failed with code 9: on stdout"),
        ("exit 1", "nvidia-smi failed with code 1: no message"),
        ("echo 'one column'", "something else than a list of devices"),
        ("echo 'name, many'", "something else than a list of devices"),
    ],
)
def test_real_failures(tools: Path, script: str, said: str) -> None:
    """A tool that fails or says something else is an error of one line."""
    install(tools, "nvidia-smi", script)

    with pytest.raises(LocalGpuError, match=said) as failed:
        local_accelerators()
    assert "\n" not in str(failed.value)


@pytest.mark.parametrize(
    "line", ["A, -5", "A, 0", "A, 99999999999999999999", f"A, {'9' * 5000}", "'', 5", f"{'A' * 200_000}, 5", "A, 5, 6"]
)
def test_nvidia_memory_that_is_none(tools: Path, line: str) -> None:
    """Memory of no possible size, and a name that is none, are an error of one short line."""
    (tools / "answer").write_text(line.replace("''", ""), encoding="utf-8")
    install(tools, "nvidia-smi", f'while read -r line; do echo "$line"; done < {tools}/answer; echo "$line"')

    with pytest.raises(LocalGpuError, match="nvidia-smi printed something else than a list of devices: '") as failed:
        local_accelerators()
    assert "\n" not in str(failed.value)
    assert len(str(failed.value)) < 300


@pytest.mark.parametrize(
    ("series", "memory"),
    [
        ('"A"', "null"),
        ("null", '"1"'),
        ('["A"]', '"1"'),
        ('"A"', "Infinity"),
        ('"A"', "-1"),
        ('"A"', "1e30"),
        ('" "', "1"),
        ('"A"', '"N/A"'),
        ('"A"', "[" * 5000),
    ],
)
def test_amd_answers_that_are_none(tools: Path, series: str, memory: str) -> None:
    """A card without a name or with memory of no possible size is an error of one line."""
    install(
        tools, "rocm-smi", f"""echo '{{"card0": {{"Card Series": {series}, "VRAM Total Memory (B)": {memory}}}}}'"""
    )

    with pytest.raises(LocalGpuError, match="rocm-smi printed something else than a list of devices: ") as failed:
        local_accelerators()
    assert "\n" not in str(failed.value)


def test_a_long_complaint_is_cut(tools: Path) -> None:
    """Of what a failing tool says a line's beginning is shown."""
    install(tools, "nvidia-smi", f"echo {'x' * 5000}; exit 1")

    with pytest.raises(LocalGpuError, match="failed with code 1: xxx") as failed:
        local_accelerators()
    assert len(str(failed.value)) < 300


def test_a_failure_does_not_hide_devices(tools: Path) -> None:
    """A failing tool is ignored where another one finds devices."""
    install(tools, "nvidia-smi", "exit 9")
    install(tools, "rocm-smi", """echo '{"card0": {"Card Series": "A", "VRAM Total Memory (B)": "1"}}'""")

    assert local_accelerators() == [LocalGpu("A", 1)]


def test_a_tool_that_hangs(tools: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A tool that does not answer is given up."""
    monkeypatch.setattr(local, "_SECONDS", 0.2)
    install(tools, "nvidia-smi", "exec /bin/sleep 30")

    with pytest.raises(LocalGpuError, match="did not answer"):
        local_accelerators()


def test_a_tool_that_cannot_run(tools: Path) -> None:
    """A tool that the system refuses to run is an error that names it."""
    (tools / "nvidia-smi").mkdir()
    install(tools, "rocm-smi", "echo '[]'")

    with pytest.raises(LocalGpuError, match=r"nvidia-smi cannot be run|rocm-smi printed"):
        local_accelerators()
