"""Saved profiles: compared without torch, validated, and refused in one line where nobody can have measured them."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from roofcast.cli.profiling_compare import above_roofs
from tests.checkpoints import LLAMA_3_1_8B, folder_of
from tests.running import answer, refused, roofcast

SAVED = Path(__file__).parent / "fixtures" / "profiles" / "made-up.json"


def test_a_saved_profile_is_compared_without_torch(tmp_path: Path) -> None:
    """The same steps, beside bound and expected time, and their chart."""
    chart = tmp_path / "x.png"
    outcome = roofcast("profile", "compare", "--from", str(SAVED), "--phase", "decode", "--out", str(chart))

    assert outcome.code == 0, outcome.err
    assert "decode by measurement: memory-bound" in outcome.out
    assert "prefill" not in outcome.out.partition("\nms is")[0]
    assert "expect: by constants of" in outcome.out
    assert chart.read_bytes().startswith(b"\x89PNG")


def test_validate_reads_a_profile() -> None:
    """Its points are measurements of the engine roofcast, which is known."""
    outcome = roofcast("validate", str(SAVED), "--offline")

    assert outcome.code == 0, outcome.err
    assert "2 measured points" in outcome.out
    assert "ran none that is known" not in outcome.out


def changed(tmp_path: Path, change: Any) -> str:
    """The saved profile, changed, as a file."""
    found = json.loads(SAVED.read_text(encoding="utf-8"))
    change(found)
    path = tmp_path / "changed.json"
    path.write_text(json.dumps(found), encoding="utf-8")
    return str(path)


def test_saved_files_that_are_no_profiles(tmp_path: Path) -> None:
    """One line each that names the file and what is wrong."""
    other = tmp_path / "other.json"
    other.write_text("{}")
    broken = changed(tmp_path, lambda found: found["result"]["machine"].pop("name"))

    refused(roofcast("profile", "compare", "--from", str(other)), 2, "--from", "roofcast.profile/1")
    refused(roofcast("profile", "compare", "--from", str(tmp_path / "none")), 2, "cannot be read")
    refused(roofcast("profile", "compare", "--from", broken), 2, "result.machine.name")
    refused(roofcast("profile", "compare", "--from", str(SAVED), "--phase", "both"), 2, "prefill, decode")


BANDWIDTH = ("device", "bandwidths", 0)
PRODUCT = ("device", "products", 0)
POINT = ("points", 0)
TIME = (*POINT, "time")
ABSURD = [
    pytest.param((*TIME, "seconds"), 0, id="no time"),
    pytest.param((*TIME, "seconds"), 5e-324, id="denormal"),
    pytest.param((*TIME, "seconds"), float("nan"), id="NaN"),
    pytest.param((*TIME, "seconds"), float("inf"), id="Infinity"),
    pytest.param((*TIME, "seconds"), 1e308, id="too long"),
    pytest.param((*TIME, "low"), -1.0, id="negative"),
    pytest.param((*TIME, "spread"), 1e300, id="spread"),
    pytest.param((*TIME, "repeats"), 0, id="repeats"),
    pytest.param((*TIME, "seconds"), "1", id="text for a number"),
    pytest.param((*TIME, "repeats"), True, id="true for a number"),
    pytest.param((*POINT, "context"), 10**60, id="context"),
    pytest.param((*POINT, "batch"), 0, id="batch"),
    pytest.param((*POINT, "phase"), "train", id="phase"),
    pytest.param((*POINT, "launched"), "later", id="launched"),
    pytest.param((*POINT, "parts", 0, "family"), "zzz", id="family"),
    pytest.param((*POINT, "parts", 0, "time", "seconds"), float("nan"), id="NaN of a part"),
    pytest.param((*POINT, "terms", 0, "bytes"), -1.0, id="bytes"),
    pytest.param((*POINT, "terms", 0, "flops"), 1e31, id="FLOP"),
    pytest.param((*POINT, "terms", 0, "flops"), float("nan"), id="NaN of a term"),
    pytest.param((*BANDWIDTH, "time", "seconds"), -0.001, id="negative time of a read"),
    pytest.param((*BANDWIDTH, "moved_bytes"), 0, id="nothing moved"),
    pytest.param((*PRODUCT, "m"), 0, id="nothing multiplied"),
    pytest.param((*PRODUCT, "time", "seconds"), float("nan"), id="NaN of a product"),
    pytest.param((*PRODUCT, "format"), r"$\frac{a$", id="format"),
    pytest.param(("device", "roofs", 0, "format"), r"$\frac{a$", id="format of a roof"),
    pytest.param(("device", "bandwidth_bytes_per_second"), 0.0, id="bandwidth"),
    pytest.param(("machine", "memory_bytes"), -1, id="memory"),
    pytest.param(("machine", "kind"), "abacus", id="kind"),
    pytest.param(("measurements", 0, "value"), 0.0, id="measurement"),
    pytest.param(("weights",), "../x", id="weights"),
    pytest.param(("weights",), "int4", id="weights that the profiler has not"),
]


def put(found: Any, place: tuple[str | int, ...], value: object) -> None:
    """Write a value at a place of a saved profile."""
    inside = found["result"]
    for part in place[:-1]:
        inside = inside[part]
    assert place[-1] in inside
    inside[place[-1]] = value


@pytest.mark.parametrize(("place", "value"), ABSURD)
def test_numbers_that_nobody_measured_are_refused(place: tuple[str | int, ...], value: object, tmp_path: Path) -> None:
    """One line that names the file and the place, for text and charts alike."""
    path = changed(tmp_path, lambda found: put(found, place, value))
    named = ".".join(map(str, ("result", *place)))

    refused(roofcast("profile", "compare", "--from", path), 2, f"--from {path}: {named}")
    refused(roofcast("profile", "compare", "--from", path, "--out", str(tmp_path / "x.png")), 2, named)


def test_a_profile_is_never_written_over(tmp_path: Path) -> None:
    """The file that is compared stays as it is, and so do constants beside it."""
    saved, constants = tmp_path / "saved.json", tmp_path / "mine.json"
    saved.write_bytes(SAVED.read_bytes())
    constants.write_text("{}")
    asked = ("profile", "compare", "--from", str(saved))

    refused(roofcast(*asked, "--out", str(saved)), 2, "it is read as a part of")
    refused(roofcast(*asked, "--efficiency", str(constants), "--out", str(constants)), 2, "it is read as a part of")
    assert saved.read_bytes() == SAVED.read_bytes()
    models = ("gpus", "h100", "h200", "--model", "gpt2", "--format", "html")
    refused(roofcast(*models, "--efficiency", str(constants), "--out", str(constants)), 2, "it is read as a part of")


def test_rates_that_follow_of_sizes_and_times_are_refused(tmp_path: Path) -> None:
    """Each number can be, their quotient cannot; a median lies within its percentiles."""
    fast = changed(tmp_path, lambda found: put(found, (*BANDWIDTH, "moved_bytes"), 10**29))
    refused(roofcast("profile", "compare", "--from", fast), 2, "result.device.bandwidths.0", "1e+20")

    far = changed(tmp_path, lambda found: put(found, (*TIME, "low"), 1.0))
    refused(roofcast("profile", "compare", "--from", far), 2, "result.points.0.time.seconds", "between low and high")


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("[" * 200_000 + "]" * 200_000, "nested too deeply"),
        ('{"schema": "roofcast.profile/1", "result": ' + '{"a": ' * 200_000 + "1" + "}" * 200_001, "nested too deeply"),
        ('{"schema": "roofcast.profile/1", "schema": 2}', "occurs twice"),
        ('{"schema": ' + "1" * 6000 + "}", "thousands of digits"),
        ("", "it is empty"),
        ("null", "holds null"),
        ('{"schema": "roofcast.profile/1", "result": [', "not JSON"),
        ('{"schema": "roofcast.profile/1"}', "result: "),
    ],
)
def test_files_that_are_broken_are_refused(text: str, word: str, tmp_path: Path) -> None:
    """Whatever the bytes, one line."""
    path = tmp_path / "broken.json"
    path.write_text(text, encoding="utf-8")

    refused(roofcast("profile", "compare", "--from", str(path)), 2, f"--from {path}: ", word)


def test_extreme_profiles_that_can_be_are_drawn(tmp_path: Path) -> None:
    """The ends of what is allowed make a picture and a text."""

    def slow(found: Any) -> None:
        for row in found["result"]["device"]["bandwidths"]:
            row["moved_bytes"] = 10**6
            row["time"] |= {"seconds": 1e6, "low": 1e6, "high": 1e6}
        for row in found["result"]["points"]:
            row["time"] |= {"seconds": 1e-9, "low": 1e-9, "high": 1e-9}
        found["result"]["points"][1] |= {"batch": 10**9, "context": 10**9}

    chart = tmp_path / "x.png"
    outcome = roofcast("profile", "compare", "--from", changed(tmp_path, slow), "--out", str(chart))

    assert outcome.code == 0, outcome.err
    assert chart.read_bytes().startswith(b"\x89PNG")


def test_a_profile_is_of_one_model(tmp_path: Path) -> None:
    """Another is refused, as are other weights; the same under another name is not."""
    same = tmp_path / "same-by-another-name"
    folder_of(same, LLAMA_3_1_8B)
    folder = roofcast("profile", "compare", str(same), "--from", str(SAVED))

    refused(
        roofcast("profile", "compare", "qwen2.5-1.5b", "--from", str(SAVED)), 2, "'llama-3.1-8b', not of qwen2.5-1.5b"
    )
    refused(roofcast("profile", "compare", "--from", str(SAVED), "--weights", "fp16"), 2, "in bf16, not in fp16")
    assert roofcast("profile", "compare", "llama-3.1-8b", "--from", str(SAVED)).code == 0
    assert folder.code == 0, folder.err
    assert folder.out.startswith("same-by-another-name in bf16")


def test_a_profile_of_a_model_that_cannot_be_found_is_of_no_other(tmp_path: Path) -> None:
    """Without MODEL what is wrong with its own is said; a file without any name needs MODEL."""

    def unknown(found: Any) -> None:
        found["result"]["model"] = "gone"
        for row in found["result"]["measurements"]:
            row["model"] = "./gone"

    path = changed(tmp_path, unknown)
    refused(roofcast("profile", "compare", "llama-3.1-8b", "--from", path), 2, "'gone', not of llama-3.1-8b")
    refused(roofcast("profile", "compare", "--from", path, "--offline"), 3, "./gone")

    nameless = changed(tmp_path, lambda found: found["result"].update(model=None, measurements=[]))
    refused(roofcast("profile", "compare", "--from", nameless), 2, "names no model")

    formatless = changed(tmp_path, lambda found: found["result"].update(weights=None))
    refused(roofcast("profile", "compare", "--from", formatless), 2, "result.weights is null")


def test_a_saved_profile_without_steps(tmp_path: Path) -> None:
    """As of `profile device`: neither comparing nor validating has anything to hold."""
    empty = changed(tmp_path, lambda found: found["result"].update(points=[], measurements=[]))

    refused(roofcast("profile", "compare", "--from", empty), 2, "holds no step")
    refused(roofcast("validate", empty), 2, "profile without steps")


RANKS = {"size": 2, "backend": "nccl", "hosts": 1, "library": "", "link": ""}


def of_ranks(found: Any, tp: int, ranks: dict[str, Any] | None, rows: int | None = None) -> None:
    """Make the saved profile one of several devices."""
    found["result"] |= {"tp": tp, "ranks": ranks}
    for row in found["result"]["measurements"]:
        row |= {"tp": rows or tp, "gpus": rows or tp}


UNEVEN = [
    pytest.param(0, None, "result.tp is 0; it must be 1 to 1e+09", id="no device"),
    pytest.param(-2, RANKS, "result.tp is -2; it must be 1 to", id="fewer than none"),
    pytest.param(2, None, "result.ranks is null, and result.tp 2;", id="no ranks"),
    pytest.param(1, RANKS, "result.ranks is not null, and result.tp 1;", id="ranks of one device"),
    pytest.param(4, RANKS, "result.ranks.size is 2; it must be 4, as result.tp is", id="fewer ranks"),
    pytest.param(2, RANKS | {"size": 5}, "result.ranks.size is 5; it must be 2, as result.tp is", id="more ranks"),
    pytest.param(2, RANKS | {"size": 0}, "result.ranks.size is 0; it must be 1 to", id="none"),
    pytest.param(2, RANKS | {"hosts": 9}, "result.ranks.hosts is 9; it must be 1 to 2, the ranks", id="hosts"),
    pytest.param(2, RANKS | {"hosts": 0}, "result.ranks.hosts is 0; it must be 1 to", id="no host"),
    pytest.param(2, RANKS | {"backend": "mpi"}, "result.ranks.backend is 'mpi'", id="backend"),
    pytest.param(
        3,
        RANKS | {"size": 3},
        "result.tp is 3: 3 GPUs cannot share 32/8 query/KV heads evenly; it must be",
        id="uneven",
    ),
    pytest.param(10**6, RANKS | {"size": 10**6}, "result.tp is 1,000,000: ", id="a million"),
]


@pytest.mark.parametrize(("tp", "ranks", "word"), UNEVEN)
def test_ranks_that_nobody_had_are_refused(tp: int, ranks: dict[str, Any] | None, word: str, tmp_path: Path) -> None:
    """As many as devices, on no more hosts, and as many as can share the model."""
    path = changed(tmp_path, lambda found: of_ranks(found, tp, ranks))
    refused(roofcast("profile", "compare", "--from", path), 2, f"--from {path}: {word}")


def test_ranks_agree_with_the_rest_of_the_file(tmp_path: Path) -> None:
    """Without tp they are of no step; each measurement has as many devices."""

    def without(found: Any) -> None:
        of_ranks(found, 2, RANKS)
        del found["result"]["tp"]

    missing = changed(tmp_path, without)
    refused(roofcast("profile", "compare", "--from", missing), 2, "result.ranks is not null, and result.tp 1;")

    other = changed(tmp_path, lambda found: of_ranks(found, 2, RANKS, rows=1))
    refused(roofcast("profile", "compare", "--from", other), 2, "result.measurements.0.tp is 1; it must be 2")

    stepless = changed(
        tmp_path,
        lambda found: found["result"].update(what="collectives", points=[], tp=2, ranks=RANKS, measurements=[]),
    )
    refused(roofcast("profile", "compare", "--from", stepless), 2, "result.tp is 2; it must be 1, of collectives")

    nobody = changed(tmp_path, lambda found: found["result"].update(what="collectives", points=[], measurements=[]))
    refused(roofcast("profile", "compare", "--from", nobody), 2, "result.ranks is null; it must tell who exchanged")


@pytest.mark.parametrize(("hosts", "backend"), [(1, "nccl"), (2, "nccl"), (1, "gloo")])
def test_a_saved_profile_of_two_ranks(hosts: int, backend: str, tmp_path: Path) -> None:
    """It is held against the links that they used: between hosts a network is assumed, over gloo there are none."""
    ranks = RANKS | {"hosts": hosts, "backend": backend}
    path = changed(tmp_path, lambda found: of_ranks(found, 2, ranks))
    found = answer("profile", "compare", "--from", path)

    assert found["result"]["ranks"] == ranks
    said = [line for line in found["assumptions"] if "between hosts" in line]
    assert len(said) == hosts - 1
    expected = [row["step"]["expected_seconds"] is not None for row in found["result"]["points"]]
    assert expected == [backend == "nccl"] * 2
    assert any("gloo takes them through the hosts" in line for line in found["assumptions"]) == (backend == "gloo")


@pytest.mark.parametrize(
    ("shares", "said"), [((0.9, 1.29, None), None), ((1.31, 4.01, 0.5), "2 of 3 families reach up to 401%")]
)
def test_families_far_above_the_measured_roofs_are_said(shares: tuple[float | None, ...], said: str | None) -> None:
    """A kernel may beat a plain product by a little; by more, its data were in a cache or the roofs were disturbed."""
    rows: Any = [SimpleNamespace(families=[SimpleNamespace(of_measured=share) for share in shares])]
    found = above_roofs(rows)
    assert found is None if said is None else found is not None and found.startswith(said)


@pytest.mark.parametrize(
    "option", [("--batch", "4"), ("--prompt", "1k"), ("--device", "cpu"), ("--budget", "9s"), ("--seed", "1")]
)
def test_a_saved_profile_is_not_measured_again(option: tuple[str, str]) -> None:
    """What says what to measure does not go with it."""
    saved = str(Path(__file__).parent / "fixtures" / "profiles" / "made-up.json")
    refused(roofcast("profile", "compare", "--from", saved, *option), 2, f"{option[0]} says what to measure")
