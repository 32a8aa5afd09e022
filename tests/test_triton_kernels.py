"""The kernels in Triton against naive formulas, in Triton's interpreter, which runs them on a processor."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("triton")

from roofcast.profiler import (  # noqa: E402 - where Triton is
    triton_attention,
    triton_experts,
    triton_latent,
    triton_linear,
    triton_loose,
    triton_prefill,
    triton_probe,
)
from roofcast.profiler.kernels import Cache, Chosen, Heads, Rotation, Weight  # noqa: E402 - likewise

if TYPE_CHECKING:
    from torch import Tensor

SMS = 8  # multiprocessors of the device that is played
# NaN that a masked load's neighbour makes is masked away; NumPy, which interprets, warns all the same
pytestmark = pytest.mark.filterwarnings(
    "ignore:invalid value encountered:RuntimeWarning", "ignore:divide by zero:RuntimeWarning"
)


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(0)


def blank(*shape: int) -> Tensor:
    """An output that nothing has written."""
    return torch.full(shape, math.nan)


def close(found: Tensor, right: Tensor) -> bool:
    """Whether two tensors differ by rounding alone; NaN never does."""
    return bool((found - right).norm() <= 1e-5 * right.norm())


CONFIGS = [triton_linear.Config(dots=True, block_n=n, block_k=k, warps=4, stages=2) for n, k in ((16, 32), (32, 64))]
VECTOR = [triton_linear.Config(dots=False, block_n=n, block_k=k, warps=4, stages=1) for n, k in ((8, 32), (2, 64))]


SHAPES = [(1, 40, 96), (1, 33, 70), (5, 33, 70), (20, 64, 128), (64, 16, 64)]
CASES = [
    *((*shape, one) for shape in SHAPES for one in CONFIGS),
    *((*shape, one) for shape in SHAPES[:2] for one in VECTOR),
]


@pytest.mark.parametrize(("m", "n", "k", "config"), CASES)
def test_products(m: int, n: int, k: int, config: triton_linear.Config) -> None:
    """x W^T with scale, bias, activation and gate, whatever does not divide."""
    x, wide, scale, bias = torch.randn(m, k), torch.randn(2 * n, k), torch.rand(2 * n), torch.randn(2 * n)
    silu = torch.nn.functional.silu
    out = blank(m, n)
    triton_linear.stream(x, Weight(wide[:n].clone(), None, bias[:n].clone()), out, config)
    assert close(out, x @ wide[:n].T + bias[:n])
    out = blank(m, n)
    triton_linear.stream(x, Weight(wide[:n].clone()), out, config, triton_linear.ACTIVATED)
    assert close(out, silu(x @ wide[:n].T))
    out, made = blank(m, n), (x @ wide.T) * scale + bias
    triton_linear.stream(x, Weight(wide, scale, bias), out, config, triton_linear.GATED)
    assert close(out, silu(made[:, :n]) * made[:, n:])


def test_products_of_narrow_rows() -> None:
    """Rows with scales of their own, as FP8 has them."""
    x, weight, out = torch.randn(5, 96), Weight(torch.randn(40, 96), torch.rand(40)), blank(5, 40)
    sizes, config = torch.rand(5, 1), replace(CONFIGS[0], narrow=True)
    triton_linear.stream((x, sizes), weight, out, config)
    assert close(out, (x * sizes) @ weight.data.T * weight.scale)


@pytest.mark.parametrize("h", [48, 64, 300])
def test_norm_updates_the_residual(h: int) -> None:
    """residual += x, and its RMS norm."""
    x, residual, weight, out = torch.randn(3, h), torch.randn(3, h), torch.rand(h), blank(3, h)
    summed = x + residual
    triton_loose.norm(x, residual, weight, out)
    assert torch.equal(residual, summed)
    assert close(out, summed / (summed.square().mean(-1, keepdim=True) + 1e-6).sqrt() * weight)
    triton_loose.norm(x, None, weight, out)
    assert close(out, x / (x.square().mean(-1, keepdim=True) + 1e-6).sqrt() * weight)


def test_gate() -> None:
    """silu(g) u, g before u in every row."""
    both, out = torch.randn(5, 60), blank(5, 30)
    triton_loose.gate(both, out)
    assert close(out, torch.nn.functional.silu(both[:, :30]) * both[:, 30:])


def test_narrowed_rows_are_those_of_torch() -> None:
    """The same scale and the same FP8 numbers as `fp8.narrowed`."""
    from roofcast.profiler.fp8 import narrowed

    x = torch.randn(4, 50)
    x[2] = 0
    rows, scales = torch.empty(4, 50), blank(4, 1)
    triton_loose.narrow(x, rows, scales)
    right, size = narrowed(x, torch.float8_e4m3fn)
    assert close(scales, size)
    assert torch.equal(rows.to(torch.float8_e4m3fn).float(), right.float())


def turned(x: Tensor, rotation: Rotation, place: int) -> Tensor:
    """Heads [.., D] at a place: element i and i + half are a pair."""
    half, cos, sin = rotation.rotated // 2, rotation.cos[place], rotation.sin[place]
    first, second = x[..., :half], x[..., half : 2 * half]
    return torch.cat([first * cos - second * sin, second * cos + first * sin, x[..., 2 * half :]], -1)


def normed(x: Tensor, weight: Tensor) -> Tensor:
    """RMS norm over the last dimension."""
    return x / (x.square().mean(-1, keepdim=True) + 1e-6).sqrt() * weight


def rotation_of(places: int, rotated: int) -> Rotation:
    """Any angles."""
    angles = torch.arange(places)[:, None] * torch.rand(rotated // 2)[None]
    return Rotation(angles.cos().contiguous(), angles.sin().contiguous(), rotated)


@pytest.mark.parametrize("norms", [False, True])
@pytest.mark.parametrize(("d", "v", "rotated"), [(12, 8, 8), (16, 16, 16), (10, 10, 0)])
def test_rotate_store(d: int, v: int, rotated: int, *, norms: bool) -> None:
    """Queries, keys and values of two sequences at places of their own."""
    batch, n, h, k, capacity = 2, 3, 5, 2, 9
    qkv, places = torch.randn(batch * n, h * d + k * d + k * v), torch.tensor([0, 4], dtype=torch.int32)
    rotation, weights = rotation_of(capacity, rotated), (torch.rand(d), torch.rand(d))
    heads = Heads(
        h,
        k,
        d,
        v,
        None,
        1.0,
        chunk=False,
        query_norm=weights[0] if norms else None,
        key_norm=weights[1] if norms else None,
    )
    cache = Cache(torch.zeros(batch, k, capacity, d), torch.zeros(batch, k, capacity, v))
    queries = blank(batch, n, h, d).transpose(1, 2)
    triton_loose.rotate_store(qkv, places, rotation, heads, (cache, queries))
    for row in range(batch * n):
        sequence, place = row // n, int(places[row // n]) + row % n
        query, key, value = qkv[row].split([h * d, k * d, k * v])
        query, key = query.view(h, d), key.view(k, d)
        if norms:
            query, key = normed(query, weights[0]), normed(key, weights[1])
        assert close(queries[sequence, :, row % n], turned(query, rotation, place))
        assert close(cache.keys[sequence, :, place], turned(key, rotation, place))
        assert torch.equal(cache.values[sequence, :, place], value.view(k, v))
    assert int((cache.keys.abs().sum((1, 3)) > 0).sum()) == batch * n  # nothing else is written


WINDOWS = [(None, False), (40, False), (40, True)]


@pytest.mark.parametrize(("window", "chunk"), WINDOWS)
@pytest.mark.parametrize(("h", "k", "d", "v"), [(8, 2, 32, 32), (3, 3, 24, 16), (4, 1, 32, 32)])
def test_decode_attention(h: int, k: int, d: int, v: int, window: int | None, *, chunk: bool) -> None:
    """Softmax over what a new token sees, joined from parts of the cache."""
    batch, capacity = 2, 300
    cache = Cache(torch.randn(batch, k, capacity, d), torch.randn(batch, k, capacity, v))
    queries, places, out = torch.randn(batch, h, 1, d), torch.tensor([299, 77], dtype=torch.int32), blank(batch, h * v)
    triton_attention.attend(
        queries, places, Heads(h, k, d, v, window, d**-0.5, chunk), cache, out, triton_attention.Launch(SMS)
    )
    for one in range(batch):
        last = int(places[one])
        first = 0 if window is None else last // window * window if chunk else max(0, last + 1 - window)
        keys, values = (x[one, :, first : last + 1].repeat_interleave(h // k, 0) for x in (cache.keys, cache.values))
        right = (queries[one] @ keys.mT * d**-0.5).softmax(-1) @ values
        assert close(out[one], right.reshape(-1))


@pytest.mark.parametrize(("window", "chunk"), [*WINDOWS, (3, False), (3, True)])
@pytest.mark.parametrize("shape", [(8, 2, 32, 32, 5), (3, 3, 24, 16, 2), (6, 2, 16, 16, 9), (40, 1, 32, 32, 7)])
def test_attention_of_several_new_tokens(shape: tuple[int, ...], window: int | None, *, chunk: bool) -> None:
    """Each new token over what is before it and itself, heads and tokens in one program or in several."""
    (h, k, d, v, n), batch, capacity = shape, 3, 300
    cache = Cache(torch.randn(batch, k, capacity, d), torch.randn(batch, k, capacity, v))
    queries, places = torch.randn(batch, n, h, d).transpose(1, 2), torch.tensor([300 - n, 77, 0], dtype=torch.int32)
    out = blank(batch * n, h * v)
    triton_attention.attend(
        queries, places, Heads(h, k, d, v, window, d**-0.5, chunk), cache, out, triton_attention.Launch(SMS)
    )
    for row in range(batch * n):
        one, token = divmod(row, n)
        last = int(places[one]) + token
        first = 0 if window is None else last // window * window if chunk else max(0, last + 1 - window)
        keys, values = (x[one, :, first : last + 1].repeat_interleave(h // k, 0) for x in (cache.keys, cache.values))
        right = (queries[one, :, token : token + 1] @ keys.mT * d**-0.5).softmax(-1) @ values
        assert close(out[row], right.reshape(-1))


@pytest.mark.parametrize(("window", "chunk"), WINDOWS)
def test_prefill_attention(window: int | None, *, chunk: bool) -> None:
    """Causal, in windows and in chunks, over a cache that is longer than the prompt."""
    batch, h, k, d, n, capacity = 2, 4, 2, 32, 150, 160
    cache = Cache(torch.randn(batch, k, capacity, d), torch.randn(batch, k, capacity, d))
    queries, out = torch.randn(batch, n, h, d).transpose(1, 2), blank(batch * n, h * d)
    triton_prefill.prefill(queries, Heads(h, k, d, d, window, d**-0.5, chunk), cache, out)
    place = torch.arange(n)
    seen = place[None] <= place[:, None]
    if window:
        seen &= place[None] >= (place // window * window if chunk else place - window + 1)[:, None]
    keys, values = (x[:, :, :n].repeat_interleave(h // k, 1) for x in (cache.keys, cache.values))
    scores = (queries @ keys.mT * d**-0.5).masked_fill(~seen, -math.inf)
    assert close(out, (scores.softmax(-1) @ values).transpose(1, 2).reshape(batch * n, -1))


@pytest.mark.parametrize(("heads", "rank", "rope"), [(5, 32, 16), (16, 24, 8), (20, 32, 0)])
def test_latent_attention(heads: int, rank: int, rope: int) -> None:
    """Every head over one row of latents, whose first part is the values too."""
    queries, cache = torch.randn(2, heads, rank + rope), torch.randn(2, 200, rank + rope)
    places, out = torch.tensor([199, 63], dtype=torch.int32), blank(2, heads, rank)
    triton_latent.attend(queries, places, 0.1, cache, out, triton_attention.Launch(SMS))
    for one in range(2):
        rows = cache[one, : int(places[one]) + 1]
        assert close(out[one], (queries[one] @ rows.T * 0.1).softmax(-1) @ rows[:, :rank])


@pytest.mark.parametrize("form", ["float32", "float16"])
@pytest.mark.parametrize(("heads", "rank", "rope", "n"), [(5, 32, 16, 2), (16, 24, 8, 3), (20, 32, 0, 5)])
def test_latent_attention_of_several_new_tokens(heads: int, rank: int, rope: int, n: int, form: str) -> None:
    """Blocks of rows that belong to one token or to several; each token sees its own latent and those before it."""
    kind = getattr(torch, form)
    queries, cache = torch.randn(2 * n, heads, rank + rope).to(kind), torch.randn(2, 200, rank + rope).to(kind)
    places, out = torch.tensor([200 - n, 63], dtype=torch.int32), blank(2 * n, heads, rank).to(kind)
    triton_latent.attend(queries, places, 0.1, cache, out, triton_attention.Launch(SMS))
    for row in range(2 * n):
        latents = cache[row // n, : int(places[row // n]) + row % n + 1].float()
        right = (queries[row].float() @ latents.T * 0.1).softmax(-1) @ latents[:, :rank]
        assert float((out[row].float() - right).norm() / right.norm()) < (1e-5 if form == "float32" else 3e-3)


def test_latents_are_stored_and_queries_turned() -> None:
    """The latent normed, the key and the queries' last part rotated."""
    rank, rope, n, rotation = 24, 8, 2, rotation_of(9, 8)
    latent, places, weight = torch.randn(2 * n, rank + rope), torch.tensor([0, 5], dtype=torch.int32), torch.rand(rank)
    cache, queries = torch.zeros(2, 9, rank + rope), torch.randn(2 * n, 3, 20)
    before = queries.clone()
    triton_loose.latent_store(latent, places, rotation, weight, cache)
    triton_loose.latent_rotate(queries, places, rotation)
    for row in range(2 * n):
        place = int(places[row // n]) + row % n
        stored = cache[row // n, place]
        assert close(stored[:rank], normed(latent[row, :rank], weight))
        assert close(stored[rank:], turned(latent[row, rank:], rotation, place))
        assert close(queries[row], torch.cat([before[row, :, :12], turned(before[row, :, 12:], rotation, place)], -1))


@pytest.mark.parametrize(
    ("tokens", "experts", "k", "h", "f"), [(1, 4, 2, 32, 16), (7, 8, 3, 48, 24), (40, 4, 2, 32, 40)]
)
@pytest.mark.parametrize("cut", [triton_experts.Cut(16, 32, 16, 4, 2), triton_experts.Cut(32, 16, 32, 4, 2)])
def test_experts(tokens: int, experts: int, k: int, h: int, f: int, cut: triton_experts.Cut) -> None:
    """The k best of the router's scores, each token through its own experts, weighed and summed."""
    x, logits = torch.randn(tokens, h), torch.randn(tokens, experts)
    chosen = Chosen(torch.empty(tokens, k, dtype=torch.int32), blank(tokens, k))
    triton_experts.route(logits, chosen)
    best, order = logits.topk(k)
    assert torch.equal(chosen.experts, order.int())
    assert close(chosen.weights, best.softmax(-1))
    gate_up, down, scale = (
        torch.randn(experts, 2 * f, h) / 6,
        torch.randn(experts, h, f) / 6,
        torch.rand(experts, 2 * f),
    )
    out, space = blank(tokens, h), triton_experts.make_space(x, chosen, experts, f)
    triton_experts.experts(x, chosen, (Weight(gate_up, scale), Weight(down)), out, space, cut)
    right = torch.zeros(tokens, h)
    for token in range(tokens):
        for expert, weight in zip(order[token], best[token].softmax(-1), strict=True):
            made = (gate_up[expert] @ x[token]) * scale[expert]
            right[token] += weight * (down[expert] @ (torch.nn.functional.silu(made[:f]) * made[f:]))
    assert close(out, right)


def test_a_buffer_is_read_whole() -> None:
    """The sums of what programs read are the sum of all."""
    buffer = torch.rand(100_000)
    out, read = triton_probe.read_buffer(buffer)
    out.fill_(math.nan)
    read()
    assert float(out.sum()) == pytest.approx(float(buffer.sum()), rel=1e-5)
