"""Options of loads: what goes together, where files are read, and what is wrong with those that cannot be."""

from __future__ import annotations

import io
import os
import sys
import threading
from typing import TYPE_CHECKING, Any

import pytest

from roofcast.calculators.errors import UsageError
from roofcast.calculators.serving.job import Job
from roofcast.cli.errors import BAD_INPUT, exit_code
from roofcast.cli.loading import OPTIONS, AskedLoad
from tests.conftest import REPOSITORY

if TYPE_CHECKING:
    from pathlib import Path

FIXTURES = REPOSITORY / "tests" / "fixtures" / "traces"
AZURE = str(FIXTURES / "azure_conv.csv")
BURSTGPT = str(FIXTURES / "burstgpt.csv")
MOONCAKE = str(FIXTURES / "mooncake_conversation.jsonl")
ROWS = "arrival_seconds,prompt_tokens,output_tokens\n0,5,6\n2,7,8\n"
JOBS = [Job(0.0, 5, 6), Job(2.0, 7, 8)]


def complaint(**asked: Any) -> str:
    """What is said of options that cannot be, for which roofcast leaves with 2."""
    with pytest.raises(ValueError, match=r".") as caught:
        list(AskedLoad(**asked).load().jobs())
    assert exit_code(caught.value) == BAD_INPUT
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.fixture(name="trace")
def trace_fixture(tmp_path: Path) -> Path:
    """Return a trace of two requests."""
    path = tmp_path / "x.csv"
    path.write_text(ROWS)
    return path


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({}, "nothing is sent; give --trace FILE, --rate R (open loop) or --concurrency N (closed loop)"),
        ({"prompt": "1k"}, "nothing is sent"),
        ({"rate": "2", "concurrency": 4}, "--rate and --concurrency: "),
        ({"trace": AZURE, "rate": "2", "concurrency": 4}, "--rate and --concurrency: "),
        ({"trace": AZURE, "rate": "2", "scale": 2.0}, "--scale and --rate: "),
        ({"trace": AZURE, "concurrency": 2, "scale": 2.0}, "--scale and --concurrency: "),
        ({"trace": AZURE, "prompt": "5"}, "--trace and --prompt: "),
        ({"trace": AZURE, "output": "5"}, "--trace and --output: "),
        ({"trace": AZURE, "lengths": AZURE}, "--trace and --lengths: "),
        ({"trace": AZURE, "shared_prefix": "32"}, "--trace and --shared-prefix: "),
        ({"rate": "2", "lengths": AZURE, "output": "5"}, "--lengths and --output: "),
        ({"rate": "2", "scale": 2.0}, "--scale and --rate: "),
        ({"concurrency": 2, "hash_tokens": 16}, "--hash-tokens needs --trace"),
        ({"concurrency": 2, "burstiness": 0.5}, "--burstiness needs --rate"),
        ({"trace": AZURE, "burstiness": 0.5}, "--burstiness needs --rate"),
        ({"rate": "2", "prefix_groups": 3}, "--prefix-groups needs --shared-prefix"),
        ({"trace": AZURE, "hash_tokens": 16}, f"--hash-tokens 16: {AZURE} has no prefix hashes"),
        ({"trace": MOONCAKE, "hash_tokens": 0}, "--hash-tokens 0: it must be 1 or more"),
        ({"trace": AZURE, "scale": 0.0}, "--scale 0: it must be a number above 0"),
        ({"trace": AZURE, "scale": -1.0}, "--scale -1: it must be a number above 0"),
        ({"trace": AZURE, "scale": float("nan")}, "--scale nan: it must be a number above 0"),
        ({"trace": AZURE, "scale": float("inf")}, "--scale inf: it must be a number above 0"),
        ({"rate": "2", "requests": 0}, "--requests 0: it must be 1 or more"),
        ({"concurrency": 0}, "--concurrency 0: it must be 1 or more"),
        ({"concurrency": -3}, "--concurrency -3: it must be 1 or more"),
        ({"concurrency": 1 << 29}, "--concurrency 536,870,912: it must be at most 1,048,576"),
        ({"rate": "2", "shared_prefix": "32", "prefix_groups": 0}, "--prefix-groups 0: it must be 1 or more"),
        (
            {"rate": "2", "shared_prefix": "1k", "prefix_groups": 1 << 20},
            "1,048,576 groups of 1,024 tokens are too many",
        ),
        ({"rate": "2", "shared_prefix": "many"}, "--shared-prefix 'many' is not a token count"),
        ({"rate": "2", "shared_prefix": "8"}, "--shared-prefix 8: it is shared by blocks of 16 tokens"),
        ({"rate": "2", "shared_prefix": "2k"}, "--shared-prefix 2k: it is longer than the prompt of 1,024 tokens"),
        ({"rate": "fast"}, "--rate 'fast': 'fast' is no rate; write it like 2"),
        ({"rate": "0"}, "--rate 0 is no rate"),
        ({"rate": "8@60s"}, "--rate '8@60s': a schedule begins at 0s"),
        ({"rate": "2", "burstiness": 0.0}, "--burstiness 0 is no burstiness"),
        ({"rate": "2", "prompt": "zipf:3"}, "--prompt 'zipf:3': 'zipf' is no kind of lengths"),
        ({"rate": "2", "output": "0"}, "--output '0': '0' is no number of tokens"),
    ],
)
def test_what_cannot_be(asked: dict[str, Any], said: str) -> None:
    """Options that do not go together, and numbers that cannot be, are named."""
    assert said in complaint(**asked)


def test_check_opens_no_file() -> None:
    """Options are checked before any file is opened, and a rate that is to be found is none yet."""
    AskedLoad(trace="nowhere.csv", rate="max").check()
    with pytest.raises(UsageError, match=r"--scale and --rate"):
        AskedLoad(trace="nowhere.csv", rate="max", scale=2.0).check()


def test_every_option_is_a_field() -> None:
    """What conflicts are looked up by is what there is."""
    assert set(OPTIONS.values()) <= set(AskedLoad.__slots__)


def test_a_trace(trace: Path) -> None:
    """A trace's requests as they were, as often as one asks."""
    load = AskedLoad(trace=str(trace)).load()

    assert list(load.jobs()) == JOBS
    assert list(load.jobs()) == JOBS
    assert (load.name, load.concurrency, load.hash_tokens, load.notes()) == ("x.csv", None, None, [])


def test_a_trace_scaled_and_cut() -> None:
    """Twice as fast, and only the first two: 4.314579 s become 2.1572895 s."""
    first, second = AskedLoad(trace=AZURE, scale=2.0, requests=2).load().jobs()

    assert first.arrival == 0
    assert second.arrival == pytest.approx(2.1572895, abs=1e-9)


def test_a_trace_with_hashes() -> None:
    """The load knows the size of blocks of a trace's hashes before it is read."""
    assert AskedLoad(trace=MOONCAKE).load().hash_tokens == 512


def test_failures_are_told() -> None:
    """Once a trace with failed requests was read, their number is said."""
    load = AskedLoad(trace=BURSTGPT).load()

    assert len(list(load.jobs())) == 3
    assert load.notes() == [f"--trace {BURSTGPT}: 2 requests that failed there are left out"]


def test_lengths_of_a_file() -> None:
    """Lengths are drawn from a trace of any format, in pairs."""
    load = AskedLoad(rate="2", lengths=BURSTGPT, requests=200).load()

    assert {job[1:3] for job in load.jobs()} == {(100, 20), (2000, 300), (7, 1)}
    assert load.notes() == [f"--lengths {BURSTGPT}: 2 requests that failed there are left out"]
    assert load.name == "200 requests, 2 requests/s, Poisson, lengths of burstgpt.csv"


@pytest.mark.parametrize(
    ("asked", "count"), [({"rate": "2"}, 1000), ({"concurrency": 2}, 100), ({"concurrency": 64}, 512)]
)
def test_made_up(asked: dict[str, Any], count: int) -> None:
    """Without a trace prompts have 1,024 tokens and outputs 128, and there are as many as the help says."""
    jobs = list(AskedLoad(**asked).load().jobs())

    assert len(jobs) == count
    assert {job.prompt for job in jobs} == {1024}
    outputs = {job.output for job in jobs}
    assert outputs == {128} if "rate" in asked else outputs <= set(range(124, 133))
    assert sum(job.output for job in jobs) / count == pytest.approx(128, abs=1)


@pytest.mark.parametrize(("share", "outputs"), [("0%", {100}), ("2%", {98, 99, 100, 101, 102})])
def test_clients_that_stay_in_step(share: str, outputs: set[int]) -> None:
    """In closed loop outputs of one length vary by --stagger, and a note says so; at 0 % they do not."""
    load = AskedLoad(concurrency=4, output="100", stagger=share).load()

    assert {job.output for job in load.jobs()} == outputs
    assert [share in note for note in load.notes()] == [True] * (len(outputs) > 1)


def test_a_rate_that_is_found() -> None:
    """Who looks for the highest rate gives each in turn; the requests are the same."""
    asked = AskedLoad(rate="max", requests=5, prompt="uniform:1-1000")

    slow, fast = (list(asked.load(rate).jobs()) for rate in (1.0, 2.0))

    assert [job.prompt for job in slow] == [job.prompt for job in fast]
    assert [job.arrival / 2 for job in slow] == pytest.approx([job.arrival for job in fast])
    with pytest.raises(UsageError, match=r"--rate 'max'"):
        asked.load()


def test_inputs() -> None:
    """What JSON repeats: numbers as numbers, the rest as it was written; nothing of what does not apply."""
    asked = AskedLoad(rate="2@0s,8@60s", prompt="4k", burstiness=float("inf"), shared_prefix="1k", seed=3)

    assert asked.inputs == {
        "trace": None,
        "rate": "2@0s,8@60s",
        "scale": None,
        "requests": None,
        "concurrency": None,
        "prompt": 4096,
        "output": 128,
        "lengths": None,
        "burstiness": "inf",
        "shared_prefix": 1024,
        "prefix_groups": None,
        "hash_tokens": None,
        "stagger": None,
        "warm_up": None,
        "seed": 3,
    }
    assert AskedLoad(trace="x.csv").inputs["prompt"] is None
    assert AskedLoad(concurrency=3).inputs["stagger"] == 0.03
    assert AskedLoad(rate="2.5").inputs["rate"] == 2.5
    assert AskedLoad(rate="max").inputs["rate"] == "max"


@pytest.mark.parametrize("option", ["trace", "lengths"])
def test_files_that_cannot_be_read(option: str, tmp_path: Path) -> None:
    """A file that is missing, a folder and a name that cannot be are told by option and name."""
    rate = {} if option == "trace" else {"rate": "2"}
    missing = tmp_path / "missing.csv"

    assert complaint(**{option: str(missing)}, **rate) == (
        f"--{option} {missing}: it cannot be read (No such file or directory)"
    )
    assert complaint(**{option: str(tmp_path)}, **rate) == f"--{option} {tmp_path}: it is a folder; name a file in it"
    assert "it cannot be read (embedded null byte)" in complaint(**{option: "a\0b"}, **rate)
    assert "it cannot be read (File name too long)" in complaint(**{option: "a" * 10_000}, **rate)
    assert "it cannot be read" in complaint(**{option: ""}, **rate) or "is a folder" in complaint(
        **{option: ""}, **rate
    )


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root reads every file")
def test_a_file_that_is_not_ours(trace: Path) -> None:
    """A file without permission is told."""
    trace.chmod(0)

    assert complaint(trace=str(trace)) == f"--trace {trace}: it cannot be read (Permission denied)"


def test_a_bad_row_is_told_early(trace: Path) -> None:
    """The first row is looked at when the load is made, later ones when they are read."""
    trace.write_text(ROWS.replace("0,5", "nan,5"))
    with pytest.raises(UsageError, match=rf"^--trace {trace}: line 2: arrival_seconds is 'nan'"):
        AskedLoad(trace=str(trace)).load()

    trace.write_text(f"{ROWS}1,1,1\n")
    load = AskedLoad(trace=str(trace)).load()
    with pytest.raises(UsageError, match=rf"^--trace {trace}: line 4: arrival_seconds is 1 s before the row above"):
        list(load.jobs())


def test_a_file_that_changes(trace: Path) -> None:
    """A file that is written to between two readings, or during one, is no load that can be repeated."""
    load = AskedLoad(trace=str(trace)).load()
    trace.write_text(f"{ROWS}3,1,1\n")
    with pytest.raises(UsageError, match=r"it changed while it was read"):
        next(load.jobs())

    load = AskedLoad(trace=str(trace)).load()
    jobs = load.jobs()
    next(jobs)
    with trace.open("a") as file:
        file.write("9,1,1\n")
    with pytest.raises(UsageError, match=r"it changed while it was read"):
        list(jobs)


def test_a_file_that_vanishes(trace: Path) -> None:
    """A file that is removed after it was looked at is told like one that never was."""
    load = AskedLoad(trace=str(trace)).load()
    trace.unlink()

    with pytest.raises(UsageError, match=r"it cannot be read \(No such file or directory\)"):
        list(load.jobs())


def standard_input(monkeypatch: pytest.MonkeyPatch, content: bytes) -> io.TextIOWrapper:
    """Put something on standard input."""
    stdin = io.TextIOWrapper(io.BytesIO(content), encoding="ascii")
    monkeypatch.setattr(sys, "stdin", stdin)
    return stdin


def test_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    """Standard input is read once and kept, so that loads may be made of it again; it stays open."""
    stdin = standard_input(monkeypatch, b"\xef\xbb\xbf" + ROWS.replace("\n", "\r\n").encode())
    asked = AskedLoad(trace="-")

    loads = [asked.load(), asked.load()]

    assert [list(load.jobs()) for load in (*loads, loads[0])] == [JOBS] * 3
    assert loads[0].name == "standard input"
    assert not stdin.closed


def test_bad_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing, no text and no standard input at all are told."""
    standard_input(monkeypatch, b"")
    assert complaint(trace="-").startswith("--trace -: it is empty")
    standard_input(monkeypatch, b"\x89PNG\r\n\0\0")
    assert "--trace -: line 2 is no text in UTF-8" in complaint(trace="-")
    monkeypatch.setattr(sys, "stdin", None)
    assert complaint(trace="-") == "--trace -: standard input is closed"


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes with names")
def test_a_pipe_is_read_once(tmp_path: Path) -> None:
    """A pipe, as of a shell's <(...), is kept like standard input."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_text, args=(ROWS,))
    writer.start()
    load = AskedLoad(trace=str(pipe)).load()
    writer.join()

    assert load.name == str(pipe)
    assert list(load.jobs()) == list(load.jobs()) == JOBS


def test_the_same_seed_is_the_same_load() -> None:
    """Same options, same requests; another seed, others."""
    one, again, other = (
        list(AskedLoad(rate="2", lengths=AZURE, shared_prefix="32", prefix_groups=4, seed=seed).load().jobs())
        for seed in (0, 0, 1)
    )

    assert one == again
    assert one != other
