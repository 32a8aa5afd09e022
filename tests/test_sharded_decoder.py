"""A decoder over two and four ranks computes what it computes on one, on every rank."""

from __future__ import annotations

from functools import cache

import pytest

torch = pytest.importorskip("torch")

from tests.sharded_decoders import KINDS, built, over, told  # noqa: E402 - likewise
from tests.tiny_decoders import cpu  # noqa: E402 - likewise

TIGHT = 1e-5  # of fp32: sums over ranks are rounded in another order

ranked = cache(over)


@pytest.mark.parametrize(("size", "name"), [(size, name) for size, kinds in KINDS.items() for name in kinds])
def test_sharded_logits_are_the_unsharded_ones(size: int, name: str) -> None:
    """Prompt and steps of decode, the cache of each rank its own heads': all ranks have the logits of one device."""
    with torch.inference_mode():
        wanted = torch.tensor(told(built(KINDS[size][name], cpu())))

    found = [torch.tensor(logits) for logits in ranked(size)[name]]

    assert len(found) == size
    for logits in found:
        assert torch.equal(logits, found[0])
        assert float((logits - wanted).norm() / wanted.norm()) < TIGHT
