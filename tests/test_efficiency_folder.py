"""The user's folder of efficiency files, whose names must be what they say, and what `--efficiency` takes for a file."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from roofcast.calculators.cache_format import ENGINES as ASKED
from roofcast.hwdb.efficiency_files import (
    BUILT_IN,
    ENGINES,
    OWN,
    EfficiencyFileError,
    efficiency_files,
    read_efficiency,
)
from tests.expecting import ROUND_FITS, content, expected_of, written
from tests.running import answer, refused, roofcast

ON_4090 = ("estimate", "llama-3.1-8b", "--gpu", "rtx-4090", "--engine", "vllm", "--batch", "1", "--context", "1k")
ON_H200 = ("estimate", "llama-3.1-8b", "--gpu", "h200-sxm", "--batch", "1", "--context", "1k")
FITS = {"gemm any 0.1": {"t0": 1e-3}}


def mine(home: Path, name: str, **changes: Any) -> Path:
    """Write a file into the user's folder that says it is of an RTX 4090 under vLLM, but for `changes`."""
    document = content(FITS, **{"accelerator": "rtx-4090", "engine": "vllm", **changes})
    return written(home / "efficiency" / name, document)


def test_engines_of_files_are_those_that_can_be_asked() -> None:
    """And this tool's own, which measures for all of them."""
    assert set(ENGINES) == set(ASKED) - {"none"} | {OWN}
    assert len(set(ENGINES)) == len(ENGINES)


@pytest.mark.parametrize("engine", sorted(set(ASKED) - {"none"}))
def test_a_file_that_says_what_its_name_does_counts(engine: str, home: Path) -> None:
    """Of every engine, one with a point in its name and one that runs another's kernels too."""
    mine(home, f"rtx-4090.{engine}.yaml", engine=engine)
    found = expected_of("rtx-4090", engine).choice("gemm", "bf16")

    assert (found.file, found.constants.t0, found.ways) == (f"rtx-4090.{engine}", 1e-3, ())


@pytest.mark.parametrize(
    "changes", [{"accelerator": "h100-sxm"}, {"engine": "sglang"}, {"accelerator": "any"}, {"accelerator": "RTX-4090"}]
)
def test_another_cards_constants_are_no_cards_own(changes: dict[str, str], home: Path) -> None:
    """A file under another's name is refused with both; with --efficiency its name says nothing."""
    file = mine(home, "rtx-4090.vllm.yaml", **changes)
    said = ".".join({"accelerator": "rtx-4090", "engine": "vllm", **changes}.values())

    refused(roofcast(*ON_4090), 2, f"{file}: accelerator and engine are '{said}'", "must be 'rtx-4090.vllm'")
    with pytest.raises(EfficiencyFileError, match="accelerator and engine are"):
        read_efficiency(file)
    assert roofcast(*ON_4090, "--efficiency", "bound").code == 0
    outside = file.replace(home / "mine.yaml")
    assert roofcast(*ON_4090, "--efficiency", str(outside)).code == 0


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("zx-99.vllm.yaml", "is named after no accelerator that `roofcast gpus` lists"),
        ("any.vllm.yaml", "is named after no accelerator"),
        ("rtx4090.vllm.yaml", "nearest: rtx-4090.vllm.yaml"),
        ("zx-99.vllm.yml", "is named after no accelerator"),
        ("rtx-4090.yaml", "is named after no engine; name it ACCELERATOR.ENGINE.yaml, an engine of"),
        ("rtx-4090.vlm.yaml", "is named after no engine"),
        ("rtx-4090.none.yaml", "is named after no engine"),
        ("rtx-4090.cpp.yaml", "is named after no engine"),
        ("vllm.yaml", "is named after no engine"),
    ],
)
def test_a_name_that_nothing_asks_for_is_told(name: str, said: str, home: Path) -> None:
    """It would be passed over for ever: any question whose answer has expected times is refused with it."""
    file = mine(home, name)

    refused(roofcast(*ON_4090), 2, str(file), said)
    assert roofcast(*ON_4090, "--efficiency", "bound").code == 0


@pytest.mark.parametrize(
    ("names", "said"),
    [
        (["RTX-4090.vllm.yaml"], "ids are in lower case; name the file rtx-4090.vllm.yaml"),
        (["rtx-4090.vLLM.yaml"], "ids are in lower case; name the file rtx-4090.vllm.yaml"),
        (["rtx-4090.vllm.YAML"], "ids are in lower case; name the file rtx-4090.vllm.yaml"),
        (["rtx-4090.vllm.yml"], "rtx-4090.vllm.yml: name the file rtx-4090.vllm.yaml"),
        (["RTX-4090.vllm.yaml", "rtx-4090.vllm.yaml"], "RTX-4090.vllm.yaml and rtx-4090.vllm.yaml have the same id"),
        (["rtx-4090.vllm.yaml", "rtx-4090.vllm.yml"], "rtx-4090.vllm.yaml and rtx-4090.vllm.yml have the same id"),
    ],
)
def test_files_that_would_be_passed_over(names: list[str], said: str, home: Path) -> None:
    """A file is never ignored for its name, nor does one of two files win; another card is answered."""
    for name in names:
        mine(home, name)
    if len(list((home / "efficiency").iterdir())) < len(names):
        pytest.skip("a file system that does not tell upper case from lower")

    refused(roofcast(*ON_4090), 2, said)
    assert expected_of("h200-sxm", "vllm").choice("gemm", "bf16").file == "h200-sxm.vllm"


def test_other_files_in_the_folder_do_no_harm(home: Path) -> None:
    """Notes, and what editors and file systems hide there."""
    for name in ("notes.txt", "README", ".#rtx-4090.vllm.yaml", "._rtx-4090.vllm.yaml", "rtx-4090.vllm.yaml~"):
        written(home / "efficiency" / name, "x")

    assert all(path.parent == BUILT_IN for path in efficiency_files().values())


def test_a_card_of_the_users_own_with_a_point_in_its_id(home: Path) -> None:
    """The engine is what a name ends with: a file of `my-1.5` is that card's, whoever asks."""
    card = "id: my-1.5\nname: Mine\nmemory: 24 GB\nbandwidth: 1008 GB/s\npeaks: {bf16: 100 TFLOP/s}\n"
    written(home / "accelerators" / "my-1.5.yaml", f"{card}sources: [{{title: Data sheet}}]\n")
    mine(home, "my-1.5.llama.cpp.yaml", accelerator="my-1.5", engine="llama.cpp")

    assert expected_of("my-1.5", "llama.cpp").choice("gemm", "bf16").file == "my-1.5.llama.cpp"


def test_a_folder_that_is_a_file(home: Path) -> None:
    """One line says what it must be; without the user's folder the project's own files count."""
    assert {path.parent for path in efficiency_files().values()} == {BUILT_IN}
    (home / "efficiency").write_text("x")

    refused(roofcast(*ON_4090), 2, str(home / "efficiency"), "it must be a folder")


def test_a_folder_that_cannot_be_listed(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its files are not passed over."""

    def denied(path: Path) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    mine(home, "rtx-4090.vllm.yaml")
    monkeypatch.setattr(Path, "iterdir", denied)

    with pytest.raises(EfficiencyFileError, match=r"efficiency: cannot be read \(Permission denied\)"):
        efficiency_files()


# --- what counts


def gemm(t0: float) -> dict[str, dict[str, float]]:
    """Return fits with one launch."""
    return {"gemm any 0.1": {"t0": t0}}


def test_a_users_file_overrides_by_name(home: Path) -> None:
    """What has the name of a built-in file counts instead of it, whole: what it lacks comes from the next."""
    written(home / "efficiency" / "h200-sxm.vllm.yaml", content(gemm(1e-3)))
    made = expected_of("h200-sxm", "vllm")

    assert made.choice("gemm", "bf16").constants.t0 == 1e-3
    assert made.choice("attn_decode", "bf16").file == "h100-sxm.vllm"


def test_a_users_file_of_another_card_adds(home: Path) -> None:
    """A card that nobody measured gets its own constants, and its kin take them."""
    written(home / "efficiency" / "b200.vllm.yaml", content(gemm(1e-3), accelerator="b200"))

    assert expected_of("b200", "vllm").choice("gemm", "bf16").ways == ()
    assert expected_of("b300", "vllm").choice("gemm", "bf16").file == "b200.vllm"
    assert expected_of("h200-sxm", "vllm").choice("gemm", "bf16").file == "h200-sxm.vllm"


@pytest.mark.parametrize("engine", sorted(set(ASKED) - {"none"}))
def test_what_the_user_measured_counts_for_every_engine(engine: str, home: Path) -> None:
    """`<id>.roofcast.yaml` stands as the engine's own, and for any other engine."""
    written(home / "efficiency" / f"rtx-5090.{OWN}.yaml", content(gemm(1e-3), accelerator="rtx-5090", engine=OWN))
    found = expected_of("rtx-5090", engine).choice("gemm", "bf16")

    assert (found.file, found.ways) == ("rtx-5090.roofcast", ())


def test_what_the_user_measured_counts_before_the_engines_own(home: Path) -> None:
    """Of two files of the same card the user's profile is first; on another card it is not."""
    written(home / "efficiency" / f"h200-sxm.{OWN}.yaml", content(gemm(1e-3), engine=OWN))

    assert expected_of("h200-sxm", "vllm").choice("gemm", "bf16").file == "h200-sxm.roofcast"
    assert expected_of("h100-sxm", "vllm").choice("gemm", "bf16").file == "h100-sxm.vllm"


def test_a_bad_file_in_the_folder_is_told_where_it_counts(home: Path) -> None:
    """One line with its path; a card that does not reach it is answered."""
    file = written(home / "efficiency" / "h200-sxm.vllm.yaml", "schema: [")

    refused(roofcast(*ON_H200), 2, str(file), "not readable as YAML")
    assert roofcast("estimate", "llama-3.1-8b", "--gpu", "rtx-4090", "--engine", "llama.cpp").code == 0
    assert roofcast(*ON_H200, "--efficiency", "bound").code == 0


def test_a_users_constants_show_in_the_answer(home: Path) -> None:
    """Half a second a product is in the times, and where it is from is said."""
    plain = answer(*ON_H200, "--phase", "decode")["result"]
    written(home / "efficiency" / "h200-sxm.vllm.yaml", content(ROUND_FITS | {"gemm any 0.1": {"t0": 0.5}}))
    (phase,) = (answered := answer(*ON_H200, "--phase", "decode")["result"])["phases"]

    assert phase["expected_seconds"] > 129 * 0.25  # half of it is hidden
    assert phase["bound_seconds"] == plain["phases"][0]["bound_seconds"]
    assert {one["constants"]["t0"] for one in answered["efficiency"] if one["family"] == "gemm"} == {0.5}


# --- --efficiency


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("", "no such file; give expected, bound or an efficiency file"),
        ("bounds", "no such file; give expected, bound"),
        (f"{__file__}/x.yaml", "no such file"),
        ("a\0b", "no such file"),
        (os.curdir, "is a folder"),
        ("x" * 300, "cannot be read (File name too long)"),
        (os.devnull, "is no plain file"),
    ],
)
def test_what_is_no_file_of_constants(name: str, said: str) -> None:
    """Why is told, and nothing is read: a device has no end."""
    if "\0" in name:
        assert said in roofcast(*ON_4090, "--efficiency", name).err
    else:
        refused(roofcast(*ON_4090, "--efficiency", name), 2, f"--efficiency {name}: {said}")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes here")
def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    """It may never end."""
    os.mkfifo(tmp_path / "pipe")

    refused(roofcast(*ON_4090, "--efficiency", str(tmp_path / "pipe")), 2, "is no plain file")


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads anything")
def test_a_folder_without_permission(tmp_path: Path) -> None:
    """A file in it, or the file itself, cannot be read."""
    file = written(tmp_path / "shut" / "mine.yaml", content(FITS))
    file.chmod(0)
    refused(roofcast(*ON_4090, "--efficiency", str(file)), 2, str(file), "cannot be read (Permission denied)")
    file.parent.chmod(0)
    try:
        refused(roofcast(*ON_4090, "--efficiency", str(file)), 2, str(file), "cannot be read (Permission denied)")
    finally:
        file.parent.chmod(0o700)
