"""Kernels in plain torch against naive formulas in fp64, on the CPU."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, Final

import pytest

from roofcast.profiler.fp8 import narrowed, widened
from roofcast.profiler.kernel_choice import choose_kernels
from roofcast.profiler.kernels import Cache, Chosen, Heads, Rotation, Weight

torch = pytest.importorskip("torch")

from roofcast.profiler import torch_experts  # noqa: E402 - needs torch
from roofcast.profiler.torch_kernels import TorchKernels  # noqa: E402
from tests.tiny_decoders import cpu  # noqa: E402

FORMATS: Final = {"float32": 1e-5, "bfloat16": 2e-2, "float16": 3e-3}
CUDA: Final = pytest.mark.parametrize("as_cuda", [False, True], ids=["cpu", "as cuda"])
FORMAT: Final = pytest.mark.parametrize("form", FORMATS)


def draw(form: str, *shape: int, seed: int = 0) -> Any:
    """Standard normal numbers."""
    numbers = torch.Generator().manual_seed(seed + sum(shape))
    return torch.randn(shape, generator=numbers).to(getattr(torch, form))


def blank(like: Any, *shape: int) -> Any:
    """NaN, of which none may be left."""
    return torch.full(shape, math.nan, dtype=like.dtype)


def same(found: Any, expected: Any, form: str) -> None:
    """Equal but for the format's roundings."""
    error = float((found.double() - expected).norm() / expected.norm())

    assert error < FORMATS[form]  # False of a NaN too


def kernels(*, as_cuda: bool = False) -> TorchKernels:
    """Those of the CPU."""
    return TorchKernels(cpu(as_cuda=as_cuda))


def silu(x: Any) -> Any:
    """x / (1 + e^-x)."""
    return x / (1 + (-x).exp())


def normed(x: Any, weight: Any) -> Any:
    """RMS norm."""
    return x / (x.pow(2).mean(-1, keepdim=True) + 1e-6).sqrt() * weight


def turned(x: Any, place: int, rotated: int) -> Any:
    """The first elements of a vector, in pairs half of them apart, turned by place / 10000^(2 i / rotated)."""
    out = x.clone()
    for i in range(rotated // 2):
        angle, j = place * 10_000.0 ** (-2 * i / rotated), i + rotated // 2
        out[i] = x[i] * math.cos(angle) - x[j] * math.sin(angle)
        out[j] = x[j] * math.cos(angle) + x[i] * math.sin(angle)
    return out


def rotation(places: int, rotated: int) -> Rotation:
    """Angles of so many places."""
    steps = torch.arange(0, rotated, 2, dtype=torch.float64) / max(1, rotated)
    angles = torch.arange(places, dtype=torch.float64)[:, None] * 10_000.0**-steps
    return Rotation(angles.cos().float(), angles.sin().float(), rotated)


@FORMAT
def test_norm(form: str) -> None:
    """Rows over their root mean square, times the weights."""
    x, weight = draw(form, 3, 8), draw(form, 8)
    out = blank(x, 3, 8)
    kernels().norm(x, weight, out)

    same(out, normed(x.double(), weight.double()), form)


@FORMAT
def test_add_norm(form: str) -> None:
    """The residual takes what is added, and is normed."""
    x, residual, weight = draw(form, 3, 8), draw(form, 3, 8, seed=1), draw(form, 8)
    out, added = blank(x, 3, 8), x.double() + residual.double()
    kernels().add_norm(x, residual, weight, out)

    same(residual, added, form)
    same(out, normed(added, weight.double()), form)


@FORMAT
@pytest.mark.parametrize("biased", [False, True])
def test_linear(form: str, biased: bool) -> None:
    """x W^T + b."""
    x, data, bias = draw(form, 3, 8), draw(form, 5, 8), draw(form, 5)
    out, expected = blank(x, 3, 5), x.double() @ data.double().T
    kernels().linear(x, Weight(data, None, bias if biased else None), out)

    same(out, expected + bias.double() if biased else expected, form)


@FORMAT
def test_gated_linear(form: str) -> None:
    """The rows of the gate come first."""
    x, data = draw(form, 3, 8), draw(form, 10, 8)
    out, both = blank(x, 3, 5), x.double() @ data.double().T
    kernels().gated_linear(x, Weight(data), out)

    same(out, silu(both[:, :5]) * both[:, 5:], form)


@FORMAT
def test_activated_linear(form: str) -> None:
    """One product and its activation."""
    x, data, bias = draw(form, 3, 8), draw(form, 5, 8), draw(form, 5)
    out = blank(x, 3, 5)
    kernels().activated_linear(x, Weight(data, None, bias), out)

    same(out, silu(x.double() @ data.double().T + bias.double()), form)


@pytest.mark.parametrize("biased", [False, True])
def test_fp8_linear_widens_where_the_device_cannot(biased: bool) -> None:
    """On a CPU a product with FP8 weights is one with the numbers that they stand for."""
    x, (data, scale) = draw("float32", 3, 8), narrowed(draw("float32", 5, 8), torch.float8_e4m3fn)
    bias, out = draw("float32", 5), blank(x, 3, 5)
    kernels().linear(x, Weight(data, scale[:, 0], bias if biased else None), out)
    expected = x.double() @ (data.double() * scale.double()).T

    same(out, expected + bias.double() if biased else expected, "float32")


@pytest.mark.parametrize("shape", [(32, 48), (24, 48)], ids=["scaled product", "size that it does not take"])
def test_fp8_linear_of_cuda(shape: tuple[int, int]) -> None:
    """With a scale a token: off by what 3 bits of mantissa round, not by more; bias and scales are in their places."""
    x = draw("bfloat16", 16, shape[1]) * torch.logspace(-2, 2, 16).bfloat16()[:, None]
    rows = draw("float32", *shape) * torch.logspace(-2, 2, shape[0])[:, None]
    data, scale = narrowed(rows, torch.float8_e4m3fn)
    bias, out = draw("bfloat16", shape[0]), blank(x, 16, shape[0])
    try:
        kernels(as_cuda=True).linear(x, Weight(data, scale[:, 0], bias), out)
    except (RuntimeError, NotImplementedError) as error:  # torch before 2.9 scales tensors as a whole on a CPU
        pytest.skip(str(error).splitlines()[0])
    wide = data.double() * scale.double()
    off = (out.double() - x.double() @ wide.T - bias.double()).abs() / (x.double().abs() @ wide.abs().T + bias.abs())

    assert float(off.max()) < 2**-4  # half of the last of 3 bits of mantissa
    assert (float(off.max()) > 2**-8) == (shape[0] % 16 == 0)  # more than bf16 rounds, where tokens are FP8 too


def test_fp8_rows_keep_their_size() -> None:
    """The largest element of each row is the largest that FP8 has, and rows of zeros stay zero."""
    rows = draw("float32", 4, 32) * torch.tensor([1e-4, 1.0, 1e4, 0.0])[:, None]
    data, scale = narrowed(rows, torch.float8_e4m3fn)

    assert data.float().abs().amax(1).tolist() == [448.0, 448.0, 448.0, 0.0]
    off = (widened(data, scale[:, 0], torch.float32) - rows).abs() / rows.abs().clamp(min=1e-30)

    assert float(off[:3].amax()) < 0.07
    assert float(off[3].amax()) == 0.0


def heads_of(query: int, kv: int, **facts: Any) -> Heads:
    """Heads of 6 elements a key and 4 a value."""
    return replace(Heads(query, kv, 6, 4, None, 6**-0.5), **facts)


@FORMAT
@pytest.mark.parametrize("rotated", [6, 4, 0])
@pytest.mark.parametrize("with_norms", [False, True])
def test_rotate_store(form: str, rotated: int, with_norms: bool) -> None:
    """Each token's queries and keys are normed and turned by its own place; the cache changes there and nowhere else."""
    norms = {"query_norm": draw(form, 6), "key_norm": draw(form, 6, seed=1)} if with_norms else {}
    heads, places, n = heads_of(4, 2, **norms), [0, 3], 3
    qkv = draw(form, 2 * n, 4 * 6 + 2 * 6 + 2 * 4)
    cache = Cache(draw(form, 2, 2, 8, 6), draw(form, 2, 2, 8, 4))
    keys, values, queries = cache.keys.double(), cache.values.double(), blank(qkv, 2, 4, n, 6)
    at = torch.tensor(places, dtype=torch.int32)
    kernels().rotate_store(qkv, at, rotation(8, rotated), heads, cache, queries)
    expected = torch.zeros(queries.shape, dtype=torch.float64)
    for b, place in enumerate(places):
        for t in range(n):
            row = qkv[b * n + t].double()
            query, key, value = row[:24].view(4, 6), row[24:36].view(2, 6), row[36:].view(2, 4)
            if with_norms:
                query, key = normed(query, norms["query_norm"].double()), normed(key, norms["key_norm"].double())
            for h in range(4):
                expected[b, h, t] = turned(query[h], place + t, rotated)
            for h in range(2):
                keys[b, h, place + t], values[b, h, place + t] = turned(key[h], place + t, rotated), value[h]

    same(queries, expected, form)
    same(cache.keys, keys, form)
    same(cache.values, values, form)


def attended(query: Any, keys: Any, values: Any, seen: list[int], scale: float) -> Any:
    """One query over the keys that it sees."""
    scores = (keys[seen] @ query * scale).softmax(0)
    return scores @ values[seen]


def sees(heads: Heads, query: int) -> list[int]:
    """Places that a token sees."""
    if heads.window is None:
        return list(range(query + 1))
    first = query - query % heads.window if heads.chunk else max(0, query - heads.window + 1)
    return list(range(first, query + 1))


SHAPES: Final = {
    "MHA": heads_of(2, 2),
    "GQA": heads_of(4, 2),
    "MQA": heads_of(3, 1),
    "window": heads_of(4, 2, window=3),
    "window of one": heads_of(4, 2, window=1),
    "window as the prompt": heads_of(4, 2, window=8),
    "longer window": heads_of(4, 2, window=20),
    "chunks": heads_of(4, 2, window=3, chunk=True),
    "chunks that divide the prompt": heads_of(4, 2, window=4, chunk=True),
}


@CUDA
@FORMAT
@pytest.mark.parametrize("name", SHAPES)
def test_decode_attention(name: str, form: str, as_cuda: bool) -> None:
    """Each sequence over what it has, whatever lies in the cache beyond."""
    heads = SHAPES[name]
    places = torch.tensor([0, 5, 7], dtype=torch.int32)
    queries, cache = (
        draw(form, 3, heads.query, 1, 6),
        Cache(draw(form, 3, heads.kv, 9, 6), draw(form, 3, heads.kv, 9, 4)),
    )
    out, expected = blank(queries, 3, heads.query * 4), torch.zeros((3, heads.query, 4), dtype=torch.float64)
    kernels(as_cuda=as_cuda).decode_attention(queries, places, heads, cache, out)
    for b, place in enumerate(places.tolist()):
        for h in range(heads.query):
            own = h * heads.kv // heads.query
            keys, values = cache.keys[b, own].double(), cache.values[b, own].double()
            expected[b, h] = attended(queries[b, h, 0].double(), keys, values, sees(heads, place), heads.scale)

    same(out, expected.view(3, -1), form)


@CUDA
@FORMAT
@pytest.mark.parametrize("name", SHAPES)
def test_prefill_attention(name: str, form: str, as_cuda: bool) -> None:
    """Each token over itself and what is before it, in its window or chunk; the cache may be longer than the prompt."""
    heads, n = SHAPES[name], 8
    queries, cache = (
        draw(form, 2, heads.query, n, 6),
        Cache(draw(form, 2, heads.kv, 11, 6), draw(form, 2, heads.kv, 11, 4)),
    )
    out, expected = blank(queries, 2 * n, heads.query * 4), torch.zeros((2, n, heads.query, 4), dtype=torch.float64)
    kernels(as_cuda=as_cuda).prefill_attention(queries, heads, cache, out)
    for b in range(2):
        for h in range(heads.query):
            own = h * heads.kv // heads.query
            keys, values = cache.keys[b, own].double(), cache.values[b, own].double()
            for t in range(n):
                expected[b, t, h] = attended(queries[b, h, t].double(), keys, values, sees(heads, t), heads.scale)

    same(out, expected.view(2 * n, -1), form)


def test_attention_without_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    """A torch whose attention knows no groups gets each KV head as often as query heads share it."""
    heads, queries, cache = (
        heads_of(4, 2),
        draw("float32", 1, 4, 5, 6),
        Cache(draw("float32", 1, 2, 5, 6), draw("float32", 1, 2, 5, 4)),
    )
    out, expected, old = blank(queries, 5, 16), blank(queries, 5, 16), kernels()
    kernels().prefill_attention(queries, heads, cache, expected)
    monkeypatch.setattr(old, "_grouped", False)
    old.prefill_attention(queries, heads, cache, out)

    same(out, expected.double(), "float32")


@FORMAT
@pytest.mark.parametrize("rotated", [4, 0])
def test_latent_store(form: str, rotated: int) -> None:
    """The latent is normed, the key beside it turned; other places stay as they are."""
    latent, weight, cache = draw(form, 6, 5 + rotated), draw(form, 5), draw(form, 2, 7, 5 + rotated)
    expected = cache.double()
    kernels().latent_store(latent, torch.tensor([0, 2], dtype=torch.int32), rotation(7, rotated), weight, cache)
    for b, place in enumerate([0, 2]):
        for t in range(3):
            row = latent[3 * b + t].double()
            expected[b, place + t, :5] = normed(row[:5], weight.double())
            expected[b, place + t, 5:] = turned(row[5:], place + t, rotated)

    same(cache, expected, form)


@FORMAT
def test_latent_rotate(form: str) -> None:
    """Only the last elements of a head turn."""
    queries = draw(form, 6, 3, 7)
    expected = queries.double()
    kernels().latent_rotate(queries, torch.tensor([0, 2], dtype=torch.int32), rotation(7, 4))
    for b, place in enumerate([0, 2]):
        for t in range(3):
            for h in range(3):
                row = expected[3 * b + t, h]
                row[3:] = turned(row[3:].clone(), place + t, 4)

    same(queries, expected, form)


@CUDA
@FORMAT
def test_latent_attention(form: str, as_cuda: bool) -> None:
    """Keys are whole rows of the cache, values their first part."""
    queries, cache, places = draw(form, 2, 3, 7), draw(form, 2, 6, 7), torch.tensor([2, 5], dtype=torch.int32)
    out, expected = blank(queries, 2, 3, 5), torch.zeros((2, 3, 5), dtype=torch.float64)
    kernels(as_cuda=as_cuda).latent_attention(queries, places, 0.3, cache, out)
    for b, place in enumerate(places.tolist()):
        for h in range(3):
            keys = cache[b].double()
            expected[b, h] = attended(queries[b, h].double(), keys, keys[:, :5], list(range(place + 1)), 0.3)

    same(out, expected, form)


def test_route() -> None:
    """The k likeliest experts, the likeliest first; weights are their odds, made to sum to 1."""
    x, router = draw("float32", 5, 8), draw("float32", 6, 8)
    chosen = Chosen(torch.full((5, 2), -1, dtype=torch.int32), torch.full((5, 2), math.nan))
    kernels().route(x, Weight(router), chosen)
    odds = (x.double() @ router.double().T).softmax(-1)
    for t in range(5):
        best = sorted(range(6), key=lambda e: -float(odds[t, e]))[:2]
        assert chosen.experts[t].tolist() == best
        assert chosen.weights[t].tolist() == pytest.approx([float(odds[t, e] / odds[t, best].sum()) for e in best])


CHOSEN: Final = [[0, 3], [3, 1], [3, 0], [1, 0], [3, 4]]  # none goes to 2 or 5


def experts(x: Any, gate_up: Any, down: Any, weights: Any) -> Any:
    """Routed experts, token by token."""
    rows = []
    for t, some in enumerate(CHOSEN):
        total = torch.zeros(x.shape[1], dtype=torch.float64)
        for j, expert in enumerate(some):
            gate, up = (gate_up[expert] @ x[t]).chunk(2)
            total += float(weights[t, j]) * (down[expert] @ (silu(gate) * up))
        rows.append(total)
    return torch.stack(rows)


@CUDA
@FORMAT
def test_experts(form: str, as_cuda: bool) -> None:
    """Each token through its experts and no others, by their weights; experts without tokens do nothing."""
    x, gate_up, down = draw(form, 5, 8), draw(form, 6, 16, 8), draw(form, 6, 8, 8)
    weights, out = draw("float32", 5, 2).softmax(-1), blank(x, 5, 8)
    chosen = Chosen(torch.tensor(CHOSEN, dtype=torch.int32), weights)
    kernels(as_cuda=as_cuda).experts(x, chosen, Weight(gate_up), Weight(down), out)

    same(out, experts(x.double(), gate_up.double(), down.double(), weights), form)


@pytest.mark.parametrize("way", ["_one_by_one", "_every"])
def test_experts_in_fp8(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """FP8 experts are widened where there is no grouped product of them."""
    monkeypatch.setattr(torch_experts, "_product", lambda *_: getattr(torch_experts, way))
    x, weights, out = draw("float32", 5, 8), draw("float32", 5, 2).softmax(-1), blank(draw("float32", 1), 5, 8)
    (up, up_scale), (down, down_scale) = (narrowed(draw("float32", 6, n, 8), torch.float8_e4m3fn) for n in (16, 8))
    chosen = Chosen(torch.tensor(CHOSEN, dtype=torch.int32), weights)
    kernels().experts(x, chosen, Weight(up, up_scale[..., 0]), Weight(down, down_scale[..., 0]), out)

    same(out, experts(x.double(), up.double() * up_scale, down.double() * down_scale, weights), "float32")


def test_the_cpu_has_plain_kernels() -> None:
    """Without Triton the kernels are torch's."""
    assert type(choose_kernels(cpu())) is TorchKernels
