"""What is told of an exchange's time, on ranks that stand for themselves; no time is measured."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

torch = pytest.importorskip("torch")

from roofcast.profiler import collectives  # noqa: E402 - after the skip
from roofcast.profiler.collectives import WAYS, Plan, profile_exchanges  # noqa: E402
from roofcast.profiler.collectives_check import SUM, Numbers, Piece  # noqa: E402
from roofcast.profiler.timing import Budget  # noqa: E402
from tests.profile_values import sample  # noqa: E402
from tests.tiny_decoders import cpu  # noqa: E402

if TYPE_CHECKING:
    from torch import Tensor

    from roofcast.profiler.runtime import Runtime


@dataclass
class First:
    """The first of two ranks; the other's part is made up as the check wants it."""

    plain: Runtime
    rank: int = 0
    size: int = 2
    leads: bool = True
    backend: str = "gloo"
    capturable: bool = False
    place: Any = field(default_factory=lambda: SimpleNamespace(locals=2))

    def _write(self, x: Tensor, *pieces: Piece, summed: bool = False) -> None:
        numbers = Numbers(self.plain, "fp32", 2, summed)
        for place, part in numbers._parts(pieces):
            x.view(-1)[place : place + part.numel()].copy_(part)

    def send(self, x: Tensor, to: int) -> None:
        """Send what nobody gets."""
        assert (x.numel(), to) == (1024, 1)

    def receive(self, x: Tensor, of: int) -> None:
        """Get the other's."""
        self._write(x, Piece(of, 0, x.numel()))

    def all_reduce(self, x: Tensor) -> None:
        """Sum what both would have."""
        self._write(x, Piece(SUM, 0, x.numel()), summed=True)

    def all_gather(self, got: Tensor, sent: Tensor) -> None:
        """Put both parts together."""
        self._write(got, *(Piece(rank, 0, sent.numel()) for rank in range(2)))

    def reduce_scatter(self, got: Tensor, sent: Tensor) -> None:
        """Sum the first half."""
        self._write(got, Piece(SUM, 0, sent.numel() // 2), summed=True)

    def all_to_all(self, got: Tensor, sent: Tensor) -> None:
        """Get the first half of each."""
        self._write(got, *(Piece(rank, 0, sent.numel() // 2) for rank in range(2)))

    def gather(self, own: Any) -> list[Any]:
        """Answer for itself."""
        return [own]


@pytest.mark.parametrize(("pattern", "passes"), [(name, 2 if name == "point_to_point" else 1) for name in WAYS])
def test_there_and_back_is_halved(pattern: str, passes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Point to point is timed both ways, one after the other, and told of one; of other patterns all is told."""
    plain = cpu()
    runtime = replace(plain, ranks=cast("Any", First(plain)))
    monkeypatch.setattr(collectives, "time_calls", lambda *_, **__: sample(8e-6))
    monkeypatch.setattr(collectives, "_count", lambda *_: 1)

    [one] = profile_exchanges(runtime, Plan((pattern,), (4096,), "fp32"), Budget()).done

    assert one.problem is None
    assert one.sample is not None
    told = (one.sample.seconds, one.sample.low, one.sample.high, one.sample.spread)
    assert told == pytest.approx((8e-6 / passes, 7.92e-6 / passes, 8.16e-6 / passes, 8e-8 / passes))
    assert one.sample.repeats == 50
