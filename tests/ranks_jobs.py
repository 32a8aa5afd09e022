"""What ranks run in tests: functions of a module, since ranks that are started here are given them by name."""

from __future__ import annotations

import os
import signal
import sys
import time
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from roofcast.modelspec.op import ALL_GATHER, ALL_REDUCE, ALL_TO_ALL, POINT_TO_POINT, REDUCE_SCATTER
from roofcast.profiler import collectives, ranks_watch, timing
from roofcast.profiler.errors import WrongOutputError
from roofcast.profiler.ranks import Ranks

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from roofcast.cli.profiling import Bench
    from roofcast.profiler.collectives import Plan
    from roofcast.profiler.runtime import Runtime
    from roofcast.profiler.sweep import Swept

FAULT: Final = "ROOFCAST_TEST_FAULT"
SIZES: Final = (1, 1024, 100_000)


def quick() -> None:
    """Take few repeats."""
    timing.LEAST, timing.FEW, timing.WARM = 2, 2, 1  # type: ignore[misc]
    collectives.MOST = 2  # type: ignore[misc]
    vars(collectives)["time_calls"] = partial(timing.time_calls, span=0.0)


def by_hand(ranks: Ranks) -> dict[str, Any]:
    """Exchange a few numbers that can be added in the head."""
    torch, n, own = ranks.torch, ranks.size, ranks.rank
    total = torch.full((3,), float(own + 1))
    ranks.all_reduce(total)
    gathered = torch.empty(n, 2)
    ranks.all_gather(gathered, torch.tensor([own, 10.0 * own]))
    part = torch.empty(2)
    ranks.reduce_scatter(part, torch.arange(2.0 * n).view(n, 2) + own)
    turned = torch.empty(n, 1)
    ranks.all_to_all(turned, 100.0 * own + torch.arange(float(n)).view(n, 1))
    passed = torch.tensor([42.0 if own == 0 else 0.0])
    if own == 0:
        ranks.send(passed, n - 1)
    elif own == n - 1:
        ranks.receive(passed, 0)
    return {
        ALL_REDUCE: total.tolist(),
        ALL_GATHER: gathered.tolist(),
        REDUCE_SCATTER: part.tolist(),
        ALL_TO_ALL: turned.flatten().tolist(),
        POINT_TO_POINT: passed.tolist(),
    }


def exchange_all(runtime: Runtime) -> dict[str, Any]:
    """Every pattern in every format, by hand and as it is profiled; the answers of all ranks."""
    quick()
    ranks = runtime.ranks
    assert ranks is not None
    found: dict[str, Any] = {"hand": ranks.gather(by_hand(ranks)), "agreed": ranks.decide(ranks.rank)}
    for number in ("bf16", "fp16", "fp32"):
        plan = collectives.Plan(tuple(collectives.WAYS), SIZES, number)
        swept = collectives.profile_exchanges(runtime, plan, timing.Budget(None, ranks))
        rows = [(one.pattern, one.payload, one.launched, one.checked, one.problem) for one in swept.done]
        found[number] = ranks.gather(rows)
    found["mutants"] = dict(mutants(runtime))
    return found


def _without(ranks: Ranks, x: Any) -> None:
    """Sum all but the last rank."""
    if ranks.rank == ranks.size - 1:
        x.zero_()
    RIGHT["all_reduce"](ranks, x)


def _twice(ranks: Ranks, x: Any) -> None:
    """Sum the first rank in place of the last."""
    own = x.clone()
    ranks.torch.distributed.broadcast(own, 0)
    if ranks.rank == ranks.size - 1:
        x.copy_(own)
    RIGHT["all_reduce"](ranks, x)


def _one_element(ranks: Ranks, x: Any) -> None:
    """Get one element wrong, on the last rank alone."""
    RIGHT["all_reduce"](ranks, x)
    if ranks.rank == ranks.size - 1:
        x.view(-1)[-1] += 1


def _shifted(ranks: Ranks, x: Any) -> None:
    """Be an element late."""
    RIGHT["all_reduce"](ranks, x)
    x.copy_(x.roll(1))


def _other_order(ranks: Ranks, out: Any, x: Any) -> None:
    """Gather in another order."""
    RIGHT["all_gather"](ranks, out, x)
    out.copy_(out.view(ranks.size, -1).flip(0).reshape(-1))


def _own_unwritten(ranks: Ranks, out: Any, x: Any) -> None:
    """Leave the own part as it was."""
    before = out.clone()
    RIGHT["all_gather"](ranks, out, x)
    out.view(ranks.size, -1)[ranks.rank] = before.view(ranks.size, -1)[ranks.rank]


def _others_part(ranks: Ranks, out: Any, x: Any) -> None:
    """Get the part of the rank before."""
    RIGHT["reduce_scatter"](ranks, out, x.view(ranks.size, -1).roll(1, 0).reshape(-1))


def _kept_all(_: Ranks, out: Any, x: Any) -> None:
    """Exchange nothing."""
    out.copy_(x)


def _echo(ranks: Ranks, x: Any, to: int) -> None:
    """Send nobody's numbers back."""
    RIGHT["send"](ranks, x if ranks.leads else x * 0, to)


def _later(ranks: Ranks, out: Any, x: Any) -> None:
    """Be right until it is timed, and then do nothing."""
    _SEEN.append(1)
    if len(_SEEN) <= 1:
        RIGHT["all_gather"](ranks, out, x)


_SEEN: list[int] = []
RIGHT: Final[dict[str, Callable[..., None]]] = {
    name: getattr(Ranks, name) for name in ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "send")
}
#: name -> method that is replaced, by what, and the pattern that must show it
MUTANTS: Final[dict[str, tuple[str, Callable[..., None], str]]] = {
    "a rank is left out": ("all_reduce", _without, ALL_REDUCE),
    "a rank twice": ("all_reduce", _twice, ALL_REDUCE),
    "one element on the last rank": ("all_reduce", _one_element, ALL_REDUCE),
    "an element late": ("all_reduce", _shifted, ALL_REDUCE),
    "another order": ("all_gather", _other_order, ALL_GATHER),
    "own part unwritten": ("all_gather", _own_unwritten, ALL_GATHER),
    "another's part": ("reduce_scatter", _others_part, REDUCE_SCATTER),
    "nothing exchanged": ("all_to_all", _kept_all, ALL_TO_ALL),
    "zeros sent back": ("send", _echo, POINT_TO_POINT),
    "wrong only once timed": ("all_gather", _later, ALL_GATHER),
}


def mutants(runtime: Runtime) -> Iterator[tuple[str, str]]:
    """What is said of each exchange that is wrong; nothing of one that passes."""
    ranks = runtime.ranks
    assert ranks is not None
    align = partial(RIGHT["all_reduce"], ranks)
    _SEEN.clear()
    for name, (method, wrong, pattern) in MUTANTS.items():
        setattr(Ranks, method, wrong)
        plan = collectives.Plan((pattern,), (4096,), "bf16")
        try:
            collectives.profile_exchanges(runtime, plan, timing.Budget(None, ranks))
            said = ""
        except WrongOutputError as error:
            said = str(error)
        finally:
            setattr(Ranks, method, RIGHT[method])
        align(runtime.torch.zeros(1))
        yield name, said


def lacking(runtime: Runtime) -> list[Any]:
    """One pattern that torch has not, of two."""
    quick()
    ranks = runtime.ranks
    assert ranks is not None

    def absent(*_: object) -> None:
        raise RuntimeError("ProcessGroupGloo does not support reduce_scatter")

    ranks.torch.distributed.reduce_scatter_tensor = ranks.torch.distributed.reduce_scatter_single = absent
    plan = collectives.Plan((REDUCE_SCATTER, ALL_REDUCE), (64,), "fp32")
    swept = collectives.profile_exchanges(runtime, plan, timing.Budget(None, ranks))
    return [(one.pattern, one.sample is not None, one.checked, one.problem) for one in swept.done]


# --- faults of whole commands: `python -m tests.ranks_jobs profile collectives ...`


def _on_ranks(plan: Plan, opened: Bench) -> Swept[Any]:
    """Measure as the command does, until the fault that the environment names."""
    quick()
    ranks_watch.SILENT = 2.0  # type: ignore[misc]
    ranks = opened.runtime.ranks
    assert ranks is not None
    ranks.align()
    FAULTS[os.environ[FAULT]](ranks)
    pressed, sent = PRESSED.get(os.environ[FAULT], (-1, 0))
    watch = partial(_press, sent) if ranks.rank == pressed else None
    try:
        swept = collectives.profile_exchanges(opened.runtime, plan, opened.budget, watch)
        while not swept.why and os.environ[FAULT] != "none":  # others must find out while they exchange
            swept = collectives.profile_exchanges(opened.runtime, plan, opened.budget)
    finally:
        os.environ.pop(FAULT, None)
    return swept


def _press(sent: int, _: str, number: int, __: int) -> None:
    """Press Ctrl-C before the second exchange, or do what torchrun does."""
    if number == 1:
        os.kill(os.getpid(), sent)
        time.sleep(1)


#: fault -> the rank that gets a signal before the second exchange, and which
PRESSED: Final[dict[str, tuple[int, int]]] = {
    "ctrl-c": (0, signal.SIGINT),
    "told to end": (0, signal.SIGTERM),
    "other interrupted": (1, signal.SIGINT),
}


def _end(rank: int, number: int, ranks: Ranks) -> None:
    if ranks.rank == rank:
        os.kill(os.getpid(), number)


def _raise(ranks: Ranks) -> None:
    if ranks.rank == 1:
        raise ValueError("a fault of this test")


def _wrong(ranks: Ranks) -> None:
    """Sum without the last rank."""
    del ranks
    setattr(Ranks, "all_reduce", _without)  # noqa: B010 - types would be checked


FAULTS: Final[dict[str, Callable[[Ranks], None]]] = {
    "none": lambda _: None,
    **dict.fromkeys(PRESSED, lambda _: None),
    "dies": partial(_end, 1, signal.SIGKILL),
    "stops": partial(_end, 1, signal.SIGSTOP),
    "first dies": partial(_end, 0, signal.SIGKILL),
    "raises": _raise,
    "wrong": _wrong,
}


def main() -> None:
    """Run a command whose ranks have the fault."""
    from roofcast.cli import app, profiling_collectives

    profiling_collectives.measure = import_module("tests.ranks_jobs")._on_ranks  # by the name that other ranks know
    sys.argv[0] = "roofcast"
    app.main()


if __name__ == "__main__":
    main()
