"""Attention of several new tokens a sequence in plain torch, against naive formulas in fp64."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from roofcast.profiler.kernels import Cache  # noqa: E402 - after the skip
from tests.test_torch_kernels import CUDA, FORMAT, SHAPES, attended, blank, draw, kernels, same, sees  # noqa: E402


@CUDA
@FORMAT
@pytest.mark.parametrize("name", SHAPES)
def test_attention_of_several_new_tokens(name: str, form: str, as_cuda: bool) -> None:
    """Each new token over what is before it and itself, in its window or chunk, whatever lies beyond."""
    heads, n = SHAPES[name], 4
    places = torch.tensor([0, 2, 5], dtype=torch.int32)
    queries = draw(form, 3, n, heads.query, 6).transpose(1, 2)
    cache = Cache(draw(form, 3, heads.kv, 11, 6), draw(form, 3, heads.kv, 11, 4))
    out, expected = blank(queries, 3 * n, heads.query * 4), torch.zeros((3, n, heads.query, 4), dtype=torch.float64)
    kernels(as_cuda=as_cuda).decode_attention(queries, places, heads, cache, out)
    for b, place in enumerate(places.tolist()):
        for h in range(heads.query):
            own = h * heads.kv // heads.query
            keys, values = cache.keys[b, own].double(), cache.values[b, own].double()
            for t in range(n):
                seen = sees(heads, place + t)
                expected[b, t, h] = attended(queries[b, h, t].double(), keys, values, seen, heads.scale)

    same(out, expected.view(3 * n, -1), form)


@CUDA
@FORMAT
def test_latent_attention_of_several_new_tokens(form: str, as_cuda: bool) -> None:
    """Each token over its own latent and those before it."""
    queries, cache, places = draw(form, 6, 3, 7), draw(form, 2, 6, 7), torch.tensor([0, 3], dtype=torch.int32)
    out, expected = blank(queries, 6, 3, 5), torch.zeros((6, 3, 5), dtype=torch.float64)
    kernels(as_cuda=as_cuda).latent_attention(queries, places, 0.3, cache, out)
    for row in range(6):
        keys, seen = cache[row // 3].double(), list(range(int(places[row // 3]) + row % 3 + 1))
        for h in range(3):
            expected[row, h] = attended(queries[row, h].double(), keys, keys[:, :5], seen, 0.3)

    same(out, expected, form)
