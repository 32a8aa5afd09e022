"""`roofcast profile collectives` on the CPU: whole commands, by processes that it starts and by torchrun's."""

from __future__ import annotations

import csv
import io
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

torch = pytest.importorskip("torch")

from jsonschema import Draft202012Validator  # noqa: E402 - after the skip

from roofcast.profiler import runtime  # noqa: E402
from roofcast.reports.schema import json_schema  # noqa: E402
from tests.running import answer, refused, roofcast  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parent.parent
PATTERNS = ["all_reduce", "all_gather", "reduce_scatter", "all_to_all", "point_to_point"]
TWO = ("profile", "collectives", "--device", "cpu", "--ranks", "2")
LONGEST = 120  # seconds that a command may take: it hangs

pytestmark = pytest.mark.skipif(not torch.distributed.is_available(), reason="torch without torch.distributed")


@pytest.fixture(autouse=True)
def threads() -> Iterator[None]:
    """Give back the threads that ranks share."""
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def test_json_holds_every_exchange_and_its_schema(tmp_path: Path) -> None:
    """Patterns one after the other, sizes as they are exchanged, right on both ranks."""
    found = answer(*TWO, "--size", "1KiB,4097,64KiB,1024", "--elements", "fp32")
    rows, links = found["result"]["collectives"]["exchanges"], found["result"]["collectives"]["links"]

    Draft202012Validator(json_schema("profile")).validate(found)
    assert [(row["pattern"], row["payload_bytes"]) for row in rows] == [
        (pattern, size)
        for pattern in PATTERNS
        for size in (1024, 4100 if pattern in {"all_reduce", "point_to_point"} else 4104, 65536)
    ]
    assert {(row["launched"], row["checked_ranks"], row["problem"]) for row in rows} == {("eager", 2, None)}
    assert all(row["bytes_per_second"] == row["payload_bytes"] / row["time"]["seconds"] for row in rows)
    assert [(row["pattern"], row["points"]) for row in links] == [(pattern, 3) for pattern in PATTERNS]
    assert found["result"]["ranks"]["size"] == 2
    assert found["result"]["ranks"]["backend"] == "gloo"
    assert found["inputs"]["sizes"] == [1024, 4097, 65536]
    saved = tmp_path / "saved.json"
    saved.write_text(json.dumps(found))
    refused(roofcast("profile", "compare", "--from", str(saved)), 2, "no step of prefill or decode")


def test_text_of_two_ranks() -> None:
    """A table for the pattern that is asked, and who exchanged."""
    outcome = roofcast(*TWO, "--size", "1KiB,3B", "--pattern", "all-gather,all_gather")

    assert outcome.code == 0, outcome.err
    assert outcome.err == ""
    assert "2 ranks on 1 host, gloo of torch" in outcome.out
    assert "\nall_gather\n" in outcome.out
    assert "all_reduce" not in outcome.out
    assert "1 size is rounded up" in outcome.out
    assert "bus: bytes that a rank has to send" in outcome.out


def test_a_budget_for_nothing_is_no_answer() -> None:
    """Exit 3; what is left is named."""
    outcome = roofcast(*TWO, "--size", "1KiB", "--pattern", "all_reduce", "--budget", "0.000001")

    assert outcome.code == 3
    assert outcome.complaint == "no exchange could be measured: the budget is spent"
    assert "the budget is spent: not measured: all_reduce of 1 KiB, eager" in outcome.out


def test_buffers_that_do_not_fit_are_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """On one rank is enough: no rank tries; smaller ones are measured, and where none is the exit code says so."""
    monkeypatch.setattr(runtime.Runtime, "free_bytes", lambda _: 100_000)  # of the first rank
    some = answer(*TWO, "--size", "1KiB,1MiB", "--pattern", "all_gather")
    none = roofcast(*TWO, "--size", "1MiB", "--pattern", "all_gather")

    first, second = some["result"]["collectives"]["exchanges"]
    assert first["problem"] is None
    assert second["problem"].startswith("rank 0: its buffers need ")
    assert none.code == 3
    assert none.complaint.startswith("no exchange could be measured: rank 0: its buffers need ")


def torchrun(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Have torchrun start two ranks of a command."""
    given = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    command = [*given, "-m", "roofcast", "profile", "collectives", "--device", "cpu", *arguments]
    return subprocess.run(
        command,
        cwd=ROOT,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=LONGEST,
        check=False,
    )


def test_torchrun_starts_the_ranks() -> None:
    """Only the first prints, and once."""
    done = torchrun("--size", "1KiB,64KiB", "--pattern", "all_reduce,point_to_point", "--format", "csv")

    assert done.returncode == 0, done.stderr
    rows = list(csv.DictReader(io.StringIO(done.stdout)))
    assert [(row["table"], row["pattern"], row["payload_bytes"]) for row in rows] == [
        ("exchanges", "all_reduce", "1024"),
        ("exchanges", "all_reduce", "65536"),
        ("exchanges", "point_to_point", "1024"),
        ("exchanges", "point_to_point", "65536"),
        ("links", "all_reduce", ""),
        ("links", "point_to_point", ""),
    ]
    assert {row["checked_ranks"] for row in rows[:4]} == {"2"}


def test_torchrun_says_how_many(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another --ranks, or one rank alone, is refused before anything is waited for."""
    place = {"RANK": "0", "WORLD_SIZE": "4", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500"}
    for name, value in place.items():
        monkeypatch.setenv(name, value)

    refused(roofcast(*TWO), 2, "--ranks 2", "torchrun has started 4 ranks")
    monkeypatch.setenv("WORLD_SIZE", "1")
    refused(roofcast("profile", "collectives"), 2, "torchrun has started 1 rank", "--nproc-per-node")


REFUSED = [
    pytest.param(("--ranks", "1"), ("--ranks 1", "2 or more"), id="one rank"),
    pytest.param(("--ranks", "0"), ("--ranks 0", "1 to 1,024"), id="no rank"),
    pytest.param(("--pattern", "allreduce"), ("--pattern allreduce", "did you mean all_reduce?"), id="near pattern"),
    pytest.param(("--pattern", "xyz"), ("--pattern xyz: known: all_reduce",), id="pattern"),
    pytest.param(("--pattern", ""), ("--pattern", "known: all_reduce"), id="no pattern"),
    pytest.param(("--size", "9GiB"), ("--size 9GiB", "8 GiB"), id="large"),
    pytest.param(("--size", "0"), ("--size 0", "1 to 8 GiB"), id="nothing"),
    pytest.param(("--size", "1.5B"), ("--size 1.5B", "whole bytes"), id="half a byte"),
    pytest.param(("--size", "1Kib"), ("--size 1Kib", "did you mean KiB?"), id="unit"),
    pytest.param(("--size", "1KiB,,2KiB"), ("--size ", "1KiB, 64KB or 4096"), id="empty size"),
    pytest.param(("--size", ",".join(map(str, range(1, 100)))), ("495 exchanges", "at most 200"), id="many"),
    pytest.param(("--elements", "fp8"), ("--elements fp8", "bf16, fp16, fp32"), id="format"),
    pytest.param(("--backend", "mpi"), ("--backend mpi", "nccl, gloo"), id="backend"),
    pytest.param(("--device", "cpu", "--backend", "nccl"), ("--backend nccl", "gloo"), id="nccl of a CPU"),
    pytest.param(("--wait", "x"), ("--wait x",), id="wait"),
    pytest.param(("--budget", "x"), ("--budget x",), id="budget"),
    pytest.param(("--device", "cuda:7"), ("--device cuda:7",), id="device"),
    pytest.param(("--out", "x.pdf"), ("--out x.pdf",), id="ending"),
]


@pytest.mark.parametrize(("given", "words"), REFUSED)
def test_what_cannot_be_is_one_line(given: tuple[str, ...], words: tuple[str, ...]) -> None:
    """The option is named, and what would be right."""
    refused(roofcast("profile", "collectives", *given), 2, *words)


def test_ranks_where_none_are_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """A GPU each; of a processor, or of GPUs that are not asked, two."""
    from roofcast.cli.profiling_collectives import usual_ranks

    monkeypatch.setattr(runtime, "visible", lambda: ("cuda:0", "cuda:1", "cuda:2", "cpu"))
    assert (usual_ranks(None), usual_ranks("cuda"), usual_ranks("cpu")) == (3, 3, 2)
    monkeypatch.setattr(runtime, "visible", lambda: ("cpu",))
    assert usual_ranks(None) == 2
    monkeypatch.setattr(runtime, "visible", lambda: ("cuda:0", "cpu"))
    refused(roofcast("profile", "collectives"), 2, "one GPU has nobody to exchange with", "--device cpu")
