"""Ranks that measure together: right sums on every rank, and one line where one is lost; no time is asserted."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

torch = pytest.importorskip("torch")

from roofcast.profiler.errors import ProfileUsageError  # noqa: E402 - after the skip
from roofcast.profiler.ranks_start import Wanted, together  # noqa: E402
from roofcast.profiler.ranks_store import place_of  # noqa: E402
from roofcast.profiler.runtime import open_runtime  # noqa: E402
from tests import ranks_jobs  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ROOT = Path(__file__).parent.parent
PATTERNS = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "point_to_point")
LONGEST = 120  # seconds that a command of these tests may take: it hangs

pytestmark = [
    pytest.mark.usefixtures("one_thread"),
    pytest.mark.skipif(not torch.distributed.is_available(), reason="torch without torch.distributed"),
]


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    """Undo what a job changes in this process, which is the first rank."""
    from roofcast.profiler import collectives, timing

    places = [(timing, name) for name in ("LEAST", "FEW", "WARM")]
    places += [(collectives, name) for name in ("MOST", "time_calls")]
    names = ("reduce_scatter_tensor", "reduce_scatter_single")
    places += [(torch.distributed, name) for name in names if hasattr(torch.distributed, name)]
    before = [(module, name, getattr(module, name)) for module, name in places]
    yield
    for module, name, value in before:
        setattr(module, name, value)
    if not any(name == "reduce_scatter_single" for _, name, _ in before):
        vars(torch.distributed).pop("reduce_scatter_single", None)


def on_ranks(size: int, job: Callable[[Any], Any]) -> Any:
    """Run a job on so many ranks, this process the first, and return its answer."""
    with together(open_runtime("cpu"), None, Wanted(size), job) as runtime:
        assert runtime.ranks is not None
        assert (runtime.ranks.group.size, runtime.ranks.group.backend, runtime.ranks.group.hosts) == (size, "gloo", 1)
        return job(runtime)


@pytest.mark.parametrize("size", [2, 4])
def test_every_exchange_is_right_on_every_rank(size: int) -> None:
    """By numbers added in the head, by those of the profiler in each format; and what is wrong does not pass."""
    found = on_ranks(size, ranks_jobs.exchange_all)
    total = size * (size + 1) / 2  # 1 + 2 + ... + n
    ranks = range(size)

    assert [one["all_reduce"] for one in found["hand"]] == [[total] * 3] * size
    assert [one["all_gather"] for one in found["hand"]] == [[[r, 10 * r] for r in ranks]] * size
    offset = size * (size - 1) / 2  # 0 + 1 + ... of all ranks, at n times the element's own number
    assert [one["reduce_scatter"] for one in found["hand"]] == [
        [size * 2 * r + offset, size * (2 * r + 1) + offset] for r in ranks
    ]
    assert [one["all_to_all"] for one in found["hand"]] == [[100 * other + r for other in ranks] for r in ranks]
    assert [one["point_to_point"] for one in found["hand"]] == [[42 if r in (0, size - 1) else 0] for r in ranks]
    assert found["agreed"] == 0
    for number, width in (("bf16", 2), ("fp16", 2), ("fp32", 4)):
        assert found[number] == [rows(size, width)] * size
    assert [name for name, said in found["mutants"].items() if not said] == []
    last = f"point_to_point of 4 KiB, eager: 2,048 of 2,048 elements are wrong on rank 0 of {size}"
    assert found["mutants"]["zeros sent back"].startswith(last)
    one = f"all_reduce of 4 KiB, eager: 1 of 2,048 elements are wrong on rank {size - 1} of {size}"
    assert found["mutants"]["one element on the last rank"].startswith(one)


def rows(size: int, width: int) -> list[list[Any]]:
    """What every rank must say of its exchanges: sizes rounded up to whole elements a rank, right everywhere."""
    whole = dict.fromkeys(PATTERNS, size * width) | {"all_reduce": width, "point_to_point": width}
    return [
        [name, -(-payload // whole[name]) * whole[name], "eager", 2 if name == "point_to_point" else size, None]
        for payload in ranks_jobs.SIZES
        for name in PATTERNS
    ]


def test_a_pattern_that_torch_has_not_is_a_row() -> None:
    """The same on all ranks, so that the next pattern is measured."""
    [absent, there] = on_ranks(2, ranks_jobs.lacking)

    assert absent[:3] == ("reduce_scatter", False, 0)
    assert "ProcessGroupGloo does not support reduce_scatter" in absent[3]
    assert there == ("all_reduce", True, 2, None)


def command(fault: str, *arguments: str, **environment: str) -> tuple[int, str, str]:
    """Run `profile collectives` in processes of their own: code, stdout and stderr; nothing of it is left."""
    clean = {name: value for name, value in os.environ.items() if name not in {"RANK", "WORLD_SIZE", "MASTER_PORT"}}
    given = [sys.executable, "-m", "tests.ranks_jobs", "profile", "collectives", "--device", "cpu", *arguments]
    with subprocess.Popen(
        given,
        cwd=ROOT,
        env=clean | {ranks_jobs.FAULT: fault, "OMP_NUM_THREADS": "1"} | environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            out, err = process.communicate(timeout=LONGEST)
            assert alive(process.pid) == []
        finally:
            if alive(process.pid):
                os.killpg(process.pid, signal.SIGKILL)
    return process.returncode, out, err


def alive(session: int) -> list[str]:
    """What runs of a session after some seconds in which it may end; nothing where the system does not tell."""
    until = time.monotonic() + 20
    while True:
        found = [text for text in map(stat, Path("/proc").glob("[0-9]*/stat")) if in_session(text, session)]
        if not found or time.monotonic() > until:
            return found
        time.sleep(0.1)


def stat(path: Path) -> str:
    """What the system says of a process; nothing of one that has ended meanwhile."""
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def in_session(text: str, session: int) -> bool:
    """Whether a process is of a session, and more than what its parent has not yet looked at."""
    fields = text.rpartition(")")[2].split()
    return bool(fields) and fields[0] != "Z" and int(fields[3]) == session


def one_line(err: str) -> str:
    """The one line on stderr, without the program's name."""
    assert err.count("\n") == 1, err
    assert err.startswith("roofcast: "), err
    return err.removeprefix("roofcast: ").strip()


LOST = [
    pytest.param("dies", 3, "rank 1 of 2 was ended by SIGKILL", id="dies"),
    pytest.param("stops", 3, "rank 1 of 2 does not answer for 2 s", id="stops"),
    pytest.param("first dies", -9, "rank 0 of 2 ended", id="first dies"),
    pytest.param("raises", 3, "a fault of this test", id="raises"),
    pytest.param("wrong", 3, "elements are wrong on rank 0 of 2; its time means nothing", id="wrong"),
]


@pytest.mark.parametrize(("fault", "code", "said"), LOST)
def test_a_rank_that_is_lost_is_one_line(fault: str, code: int, said: str) -> None:
    """Which and why, on stderr; nothing hangs and no process is left."""
    found, _, err = command(fault, "--size", "1KiB,64KiB", "--pattern", "all_reduce", "--ranks", "2")

    assert said in one_line(err)
    assert found == code


def test_ctrl_c_keeps_what_is_done() -> None:
    """What is measured is printed, the rest named; exit 130, and no rank is left."""
    code, out, err = command("ctrl-c", "--size", "1KiB,64KiB", "--pattern", "all_reduce", "--ranks", "2")

    assert code == 130
    assert one_line(err) == "interrupted"
    assert "interrupted: not measured: all_reduce of 64 KiB, eager" in out
    assert "1 KiB" in out


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    """Listen at a port, and say nothing there."""
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        yield server


def port_of(server: socket.socket) -> str:
    """The number of its port."""
    return str(server.getsockname()[1])


def free_port() -> str:
    """A port that nobody has."""
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        return port_of(server)


def test_a_rank_that_never_comes_is_one_line() -> None:
    """After the time that --wait gives."""
    place = {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": free_port()}
    code, out, err = command("none", "--size", "1KiB", "--wait", "2s", **place)

    assert one_line(err).startswith("rank 1 of 2 did not come within 2 s: ")
    assert (code, out) == (3, "")


def test_no_first_rank_is_one_line() -> None:
    """Its host and port are named."""
    place = {"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": free_port()}
    code, out, err = command("none", "--size", "1KiB", "--wait", "1s", **place)

    assert f"rank 1 of 2 found no rank 0 at 127.0.0.1:{place['MASTER_PORT']}" in one_line(err)
    assert (code, out) == (3, "")


def test_a_port_in_use_is_one_line(listener: socket.socket) -> None:
    """The port is named, and what to do."""
    place = {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port_of(listener)}
    code, out, err = command("none", "--size", "1KiB", "--wait", "2s", **place)

    assert one_line(err).startswith(f"MASTER_PORT {port_of(listener)} is in use on 127.0.0.1")
    assert (code, out) == (3, "")


def test_a_stranger_at_the_port_is_one_line(listener: socket.socket) -> None:
    """It answers as no meeting place does, for as long as --wait gives it."""
    place = {"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port_of(listener)}
    code, out, err = command("none", "--size", "1KiB", "--wait", "1s", **place)

    assert f"127.0.0.1:{port_of(listener)} is no meeting place of ranks" in one_line(err)
    assert (code, out) == (3, "")


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"RANK": "2"}, "RANK=2"),
        ({"RANK": "x"}, "RANK=x"),
        ({"WORLD_SIZE": "0"}, "WORLD_SIZE=0"),
        ({"MASTER_PORT": ""}, "MASTER_PORT is not set"),
        ({"MASTER_PORT": "70000"}, "MASTER_PORT=70000"),
        ({"LOCAL_RANK": "-1"}, "LOCAL_RANK=-1"),
    ],
)
def test_places_that_cannot_be(changed: dict[str, str], said: str) -> None:
    """The variable is named."""
    place = {"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500"}

    with pytest.raises(ProfileUsageError, match=said):
        place_of(place | changed)
