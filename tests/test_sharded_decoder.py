"""A decoder over two and four ranks computes what it computes on one, on every rank."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any, cast

import pytest

torch = pytest.importorskip("torch")

from roofcast.profiler import decoder  # noqa: E402 - needs torch
from roofcast.profiler.decoder_sharded import must_fit  # noqa: E402 - needs torch
from roofcast.profiler.errors import AgreedMemoryError, ProfileUsageError  # noqa: E402 - likewise
from roofcast.profiler.random_weights import Cut, Drawer  # noqa: E402 - likewise
from roofcast.profiler.runtime import Runtime  # noqa: E402 - likewise
from roofcast.profiler.sharding import Share  # noqa: E402 - likewise
from roofcast.profiler.torch_kernels import TorchKernels  # noqa: E402 - likewise
from tests.reference_decoder import full  # noqa: E402 - likewise
from tests.sharded_decoders import KINDS, built, over, told  # noqa: E402 - likewise
from tests.tiny_decoders import BUILT, HIDDEN, cpu  # noqa: E402 - likewise

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


@pytest.mark.parametrize("weights", ["fp32", "fp8"])
def test_shares_are_parts_of_the_same_matrix(weights: str) -> None:
    """Rows and columns of two ranks, put together, are the matrix that one device draws; of FP8 with its scales."""
    runtime = cpu()

    def drawn(share: Share, cut: Cut) -> Any:
        drawer = Drawer(runtime, weights, "fp32", 0, share=share)
        return drawer.matrix(8, 6, bias=True, cut=cut), drawer

    whole, alone = drawn(Share(), Cut())
    rows = [drawn(Share(rank, 2), Cut(rows=(Share(rank, 2).even(8, "rows"),)))[0] for rank in range(2)]
    columns = [drawn(Share(rank, 2), Cut(columns=(Share(rank, 2).even(6, "columns"),)))[0] for rank in range(2)]

    assert torch.equal(torch.cat([full(one) for one in rows]), full(whole))
    assert torch.equal(torch.cat([one.bias for one in rows]), whole.bias)
    assert torch.equal(torch.cat([full(one) for one in columns], 1), full(whole))
    assert torch.equal(columns[0].bias, whole.bias)
    assert columns[1].bias is None  # what is summed over ranks is added once
    _, cut = drawn(Share(0, 2), Cut(rows=((0, 4),)))
    scales = 4 if weights == "fp8" else 0
    assert alone.bytes == 8 * 6 * (1 if weights == "fp8" else 4) + 8 * (4 + scales)
    assert (cut.bytes, cut.whole_bytes) == (alone.bytes // 2, alone.bytes)


@pytest.mark.parametrize(
    ("share", "count", "words"),
    [(Share(0, 3), 8, "--tp 3: it does not divide 8 KV heads"), (Share(0, 4), 3, "--tp 4: it does not divide 3 KV")],
)
def test_heads_that_do_not_divide_are_refused(share: Share, count: int, words: str) -> None:
    """Neither more ranks than heads nor fewer, unless one divides the other."""
    with pytest.raises(ProfileUsageError, match=words):
        share.kv_heads(count)


@pytest.mark.parametrize("name", ["GQA", "MoE", "tied"])
def test_the_matrix_that_is_cut_must_fit_beside_what_is_kept(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Weights are drawn whole, one matrix after the other: with a byte less than the largest of them no weight is drawn."""

    class Alone:
        """The first of two ranks, in a memory of its own."""

        place = type("Place", (), {"locals": 1})
        rank, size = 0, 2

        def gather(self, own: str) -> list[str]:
            """Answer for itself."""
            return [own]

    runtime = replace(cpu(), ranks=cast("Any", Alone()))
    asked: list[int] = []
    monkeypatch.setattr(decoder, "must_fit", lambda _, size, __: asked.append(size))
    made = decoder.Decoder(BUILT[name], runtime, TorchKernels(runtime), decoder.Setup("fp32", "fp32"))
    monkeypatch.undo()
    whole = 2 * (48 if name != "MoE" else 6 * 24) * HIDDEN * 4  # gates and ups of a feed-forward, or of all experts

    assert asked == [made.weight_bytes + whole]
    monkeypatch.setattr(Runtime, "free_bytes", lambda _: made.weight_bytes + whole - 1)
    with pytest.raises(AgreedMemoryError, match="weights of"):
        decoder.Decoder(BUILT[name], runtime, TorchKernels(runtime), decoder.Setup("fp32", "fp32"))
    monkeypatch.setattr(Runtime, "free_bytes", lambda _: made.weight_bytes + whole)
    decoder.Decoder(BUILT[name], runtime, TorchKernels(runtime), decoder.Setup("fp32", "fp32"))


def test_what_does_not_fit_one_rank_fits_none() -> None:
    """A rank whose memory is short says so for all, so that they go on with the next point together."""

    class Told:
        """Two ranks, of which the other has no room."""

        place = type("Place", (), {"locals": 2})
        rank = 0

        def gather(self, own: str) -> list[str]:
            """Answer for both."""
            return [own, "weights of 9.0 GiB do not fit"]

    runtime = replace(cpu(), ranks=cast("Any", Told()))

    with pytest.raises(AgreedMemoryError, match=r"rank 1: weights of 9\.0 GiB do not fit"):
        must_fit(runtime, 1, "weights")
