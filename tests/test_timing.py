"""Timing and sweeping: medians, budgets, interrupts, memory that is short, output that is wrong."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from roofcast.profiler import timing
from roofcast.profiler.errors import OutOfMemoryError, UnavailableError, WrongOutputError
from roofcast.profiler.sweep import INTERRUPTED, SPENT, Task, sweep
from roofcast.profiler.timing import Budget, check_written, glance, memory_guard, time_calls, time_work

if TYPE_CHECKING:
    from collections.abc import Callable

    from roofcast.profiler.runtime import Runtime

torch = pytest.importorskip("torch")


@pytest.fixture(name="runtime")
def opened() -> Runtime:
    """The processor, with one thread."""
    from roofcast.profiler.runtime import open_runtime

    torch.set_num_threads(1)
    return open_runtime("cpu")


def scripted(monkeypatch: pytest.MonkeyPatch, times: list[float]) -> None:
    """Let the clock tell these times of runs, one after the other."""
    left = iter(times)
    monkeypatch.setattr(timing, "_by_clock", lambda _, work: (work(), next(left))[1])


def test_a_sample_is_median_and_percentiles(runtime: Runtime, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first runs warm up; of eleven that follow the median is the sixth, the tenths the second and the tenth."""
    runs = []
    scripted(monkeypatch, [9.0, 0.1, *(n / 10 for n in (11, 1, 10, 2, 9, 3, 8, 4, 7, 5, 6))])
    monkeypatch.setattr(timing, "LONG", 10.0)

    got = time_work(runtime, lambda: runs.append(1), span=1.1)

    assert (got.seconds, got.low, got.high, got.repeats) == (0.6, 0.2, 1.0, 11)
    assert got.spread == pytest.approx(0.1 * 10**0.5)
    assert len(runs) == 3 + 1 + 11  # warm-up, one to count repeats by, repeats


def test_long_work_runs_few_times(runtime: Runtime, monkeypatch: pytest.MonkeyPatch) -> None:
    """Work of seconds is warmed up once and repeated three times."""
    runs = []
    scripted(monkeypatch, [5.0, 4.0, 3.0, 2.0, 1.0])

    got = time_work(runtime, lambda: runs.append(1))

    assert (got.seconds, got.repeats, len(runs)) == (2.0, 3, 5)


def test_short_work_runs_at_least_five_times(runtime: Runtime, monkeypatch: pytest.MonkeyPatch) -> None:
    """A span shorter than five runs is exceeded."""
    scripted(monkeypatch, [0.1] * 7)

    assert time_work(runtime, lambda: None, span=0.01).repeats == 5


def test_calls_that_rotate_share_a_repeat(runtime: Runtime, monkeypatch: pytest.MonkeyPatch) -> None:
    """Four calls of 0.4 s together are 0.1 s each, and each buffer is visited in every repeat."""
    visits: list[int] = []
    scripted(monkeypatch, [0.4] * 20)

    def visit(n: int) -> Callable[[], object]:
        return lambda: visits.append(n)

    got = time_calls(runtime, [visit(n) for n in range(4)], span=0.1)

    assert got.seconds == pytest.approx(0.1)
    assert visits == [0, 1, 2, 3] * (len(visits) // 4)


def test_a_glance_does_not_repeat_long_work(runtime: Runtime, monkeypatch: pytest.MonkeyPatch) -> None:
    """One run of more than half a second is enough; of short work the median of three counts, not the first."""
    runs = []
    scripted(monkeypatch, [2.0, 0.3, 0.1, 0.2, 0.4])

    assert (glance(runtime, lambda: runs.append(1)), len(runs)) == (2.0, 1)
    assert glance(runtime, lambda: None) == 0.2


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (MemoryError(), "out of memory on here (MemoryError)"),
        (
            torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB. GPU 0 has a total capacity of"),
            "out of memory on here: another 20.00 GiB were asked of it",
        ),
        (
            RuntimeError("[enforce fail at alloc_cpu.cpp:127] . DefaultCPUAllocator: can't allocate memory: you tried to allocate 4294967296 bytes. Error code 12"),
            "out of memory on here: another 4.00 GiB were asked of it",
        ),
        (RuntimeError("MPS backend out of memory (MPS allocated: 9 GB)"), "out of memory on here (MPS backend out of memory (MPS allocated: 9 GB))"),
        (RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"), "CUBLAS_STATUS_ALLOC_FAILED"),
    ],
)  # fmt: skip
def test_short_memory_is_one_error(runtime: Runtime, error: Exception, says: str) -> None:
    """Whatever torch raises, in one line; it is an UnavailableError, so that the command line knows it."""
    here = replace(runtime, machine=replace(runtime.machine, name="here"))

    with pytest.raises(OutOfMemoryError) as caught, memory_guard(here):
        raise error

    assert says in str(caught.value)
    assert "\n" not in str(caught.value)
    assert isinstance(caught.value, UnavailableError)


def test_other_errors_pass_the_memory_guard(runtime: Runtime) -> None:
    """A product of shapes that do not match is no lack of memory."""
    with pytest.raises(RuntimeError, match="shape"), memory_guard(runtime):
        torch.mm(torch.ones(2, 3), torch.ones(2, 3))


def test_real_lack_of_memory_is_told(runtime: Runtime) -> None:
    """A petabyte is refused by the system at once."""
    with pytest.raises(OutOfMemoryError, match="out of memory on "):
        time_work(runtime, lambda: torch.empty(2**50, dtype=torch.uint8))


def test_written_output_passes(runtime: Runtime) -> None:
    """A kernel that writes every element is right."""
    out = torch.empty(4)

    check_written(runtime, out, lambda: out.copy_(torch.ones(4)), "ones")

    assert out.tolist() == [1.0] * 4


@pytest.mark.parametrize(
    "work",
    [
        pytest.param(lambda out: out[:3].fill_(1.0), id="one not written"),
        pytest.param(lambda out: out.copy_(torch.tensor([1.0, 1.0, 1.0, float("inf")])), id="one infinite"),
    ],
)
def test_wrong_output_fails(runtime: Runtime, work: Callable[[Any], object]) -> None:
    """An element that stays as it was poisoned, and one that is no number, fail the run."""
    out = torch.zeros(4)

    with pytest.raises(WrongOutputError, match=r"^three: 1 of 4 outputs"):
        check_written(runtime, out, lambda: work(out), "three")


def tasks(*results: Any) -> list[Task[Any]]:
    """Tasks that return values, or raise them."""

    def make(result: Any) -> Task[Any]:
        def run() -> Any:
            if isinstance(result, BaseException):
                raise result
            return result

        return Task(str(result), run)

    return [make(one) for one in results]


def test_all_tasks_are_done() -> None:
    """In order, each announced with its number and how many there are."""
    seen: list[tuple[str, int, int]] = []

    got = sweep(tasks(1, 2), Budget(), lambda *told: seen.append(told))

    assert (got.done, got.left, got.why) == ((1, 2), (), "")
    assert seen == [("1", 0, 2), ("2", 1, 2)]


def test_an_interrupt_keeps_what_is_done() -> None:
    """Ctrl-C in the second of three leaves two undone."""
    got = sweep(tasks(1, KeyboardInterrupt(), 3), Budget())

    assert (got.done, len(got.left), got.why) == ((1,), 2, INTERRUPTED)


def test_a_spent_budget_keeps_what_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    """What began within the budget is finished; nothing begins after it."""
    now = iter([0.0, 1.0, 9.0, 11.0])
    monkeypatch.setattr(timing, "monotonic", lambda: next(now))

    got = sweep(tasks(1, 2, 3), Budget(10.0))

    assert (got.done, got.left, got.why) == ((1, 2), ("3",), SPENT)


def test_an_error_of_a_task_passes() -> None:
    """A wrong kernel is not a row."""
    with pytest.raises(WrongOutputError):
        sweep(tasks(1, WrongOutputError("bad")), Budget())


def test_events_time_graphs_on_cuda(runtime: Runtime) -> None:
    """On a device with events each repeat lies between two of them, and a graph is replayed in its place."""
    here, log = pretended(runtime)

    got = time_work(here, lambda: log.append("work"), graph=True, span=0.004)

    assert (got.seconds, got.repeats) == (0.001, 5)
    assert log.count("work") == 3 + 2  # warm-up, then beside and within the recording
    assert log.count("replay") == 1 + 1 + 5


def pretended(runtime: Runtime) -> tuple[Runtime, list[str]]:
    """A CUDA device that is none: its events are a millisecond apart."""
    log: list[str] = []

    class Nothing:
        def __enter__(self) -> None: ...
        def __exit__(self, *_: object) -> None: ...
        def wait_stream(self, _: object) -> None: ...

    graph = SimpleNamespace(replay=lambda: log.append("replay"))
    event = SimpleNamespace(record=lambda: None, elapsed_time=lambda _: 1.0)
    cuda = SimpleNamespace(
        Stream=lambda _: Nothing(),
        current_stream=lambda _: Nothing(),
        stream=lambda _: Nothing(),
        graph=lambda *_, **__: Nothing(),
        CUDAGraph=lambda: graph,
        Event=lambda **_: event,
        synchronize=lambda _: None,
    )
    machine = replace(runtime.machine, kind="cuda")
    module: Any = SimpleNamespace(cuda=cuda, OutOfMemoryError=torch.OutOfMemoryError)
    return replace(runtime, torch=module, machine=machine), log
