"""`roofcast profile calibrate` on the command line: where constants are written, and what is said where they cannot be."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("torch")

from tests.running import answer, refused, roofcast

if TYPE_CHECKING:
    from pathlib import Path

CPU = ("--device", "cpu")


def calibrated(monkeypatch: pytest.MonkeyPatch, **changed: Any) -> None:
    """Let `calibrate` give the built-in constants of vLLM, as if they were of the profiler on this machine."""
    from roofcast.hwdb.efficiency_files import BUILT_IN, read_efficiency
    from roofcast.profiler.calibrate import Calibration

    made = read_efficiency(BUILT_IN / "h200-sxm.vllm.yaml").model_copy(update={"engine": "roofcast"})
    given: dict[str, Any] = {"efficiency": made, "fitted": ()} | changed
    monkeypatch.setattr(
        "roofcast.profiler.calibrate.calibrate", lambda runtime, *_: Calibration(runtime.machine, **given)
    )


def test_calibrate_writes_to_the_users_folder(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Estimates take the constants from then on; an older file of the name is replaced, which is said."""
    calibrated(monkeypatch)
    path = home / "efficiency" / "h200-sxm.roofcast.yaml"
    first, second = (roofcast("profile", "calibrate", *CPU) for _ in range(2))
    estimate = answer(
        "estimate", "llama-3.1-8b", "--gpu", "h200", "--phase", "decode", "--batch", "1", "--context", "1k"
    )

    assert first.code == second.code == 0, first.err
    assert f"constants written to {path}" in first.out
    assert "it is replaced" not in first.out
    assert f"{path} was there before: it is replaced" in second.out
    assert {row["fitted_on"] for row in estimate["result"]["efficiency"]} == {"h200-sxm.roofcast"}


def test_calibrate_writes_where_it_is_told(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The user's folder stays as it is, and the file is read by --efficiency."""
    calibrated(monkeypatch)
    path = tmp_path / "mine.yaml"
    found = answer("profile", "calibrate", *CPU, "--out", str(path))

    assert found["result"]["calibration"]["file"] == str(path)
    assert not (home / "efficiency").exists()
    assert roofcast("estimate", "llama-3.1-8b", "--gpu", "h200", "--efficiency", str(path)).code == 0


def test_calibrate_without_a_file_to_write(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its reason is the last line, exit 3; interrupted it is 130."""
    calibrated(monkeypatch, efficiency=None, problem="A CPU is not in the database")
    lacking = roofcast("profile", "calibrate", *CPU)
    calibrated(monkeypatch, unfinished=("gemm",), why="interrupted")
    stopped = roofcast("profile", "calibrate", *CPU)

    assert (lacking.code, stopped.code) == (3, 130)
    assert lacking.complaint == "no constants are written: A CPU is not in the database"
    assert "interrupted: not measured: gemm" in stopped.out


def unmeasured(*_: object) -> None:
    """Stand for a measurement that must not begin."""
    raise AssertionError("it was measured")


def test_calibrate_refuses_a_folder_that_cannot_be_before_it_measures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The user's folder where no --out is given."""
    file = tmp_path / "file"
    file.write_text("no folder")
    monkeypatch.setenv("ROOFCAST_HOME", str(file))
    monkeypatch.setattr("roofcast.profiler.calibrate.calibrate", unmeasured)

    refused(roofcast("profile", "calibrate", *CPU), 2, f"{file / 'efficiency'}: cannot be made", "--out FILE")


def test_calibrate_refuses_a_folder_that_cannot_be_written_before_it_measures(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a disk that is full or read-only."""

    def full(**_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("roofcast.cli.profiling_calibrate.TemporaryFile", full)
    monkeypatch.setattr("roofcast.profiler.calibrate.calibrate", unmeasured)

    refused(roofcast("profile", "calibrate", *CPU), 2, f"{home / 'efficiency'}: no file can", "No space left")


def test_calibrate_that_cannot_write_prints_what_was_measured(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """First the answer, then one line; minutes of measuring are not lost."""
    calibrated(monkeypatch)
    path = home / "efficiency" / "h200-sxm.roofcast.yaml"
    path.mkdir(parents=True)
    outcome = roofcast("profile", "calibrate", *CPU)

    assert outcome.code == 2
    assert "constants are not written" in outcome.out
    assert f"{path}: cannot be written" in outcome.complaint


def test_calibrate_looks_for_scipy_before_it_measures(monkeypatch: pytest.MonkeyPatch) -> None:
    """A scipy that cannot be imported is said in one line."""
    monkeypatch.setitem(__import__("sys").modules, "scipy", None)
    monkeypatch.setitem(__import__("sys").modules, "scipy.optimize", None)
    monkeypatch.setattr("roofcast.profiler.calibrate.calibrate", unmeasured)
    monkeypatch.setattr("roofcast.profiler.kernel_choice.choose_kernels", unmeasured)

    refused(roofcast("profile", "calibrate", *CPU), 3, "scipy", "roofcast[profile]")
