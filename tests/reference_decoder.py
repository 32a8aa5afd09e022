"""A decoder as written in papers, in fp64: no cache, nothing fused, loops over sequences, positions and heads."""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

    from roofcast.profiler.kernels import Heads

torch = pytest.importorskip("torch")

THETA = 10_000.0


def logits(decoder: Any, tokens: Any) -> Any:
    """Logits of the last token of each of B prompts, [B, n] -> [B, vocabulary]; of the decoder's weights."""
    x = decoder.embedding.double()[tokens]  # [B, n, h]
    routed = partial(experts, routing=decoder.setup.routing)
    kinds: dict[str, Callable[[Any, Any], Any]] = {
        "GroupedLayer": grouped,
        "LatentLayer": latent,
        "DenseLayer": dense,
        "ExpertsLayer": routed,
    }
    for half in decoder.halves:
        x = x + kinds[type(half).__name__](half, rms(x, half.norm))
    return rms(x[:, -1], decoder.norm) @ full(decoder.head).T


def rms(x: Any, weight: Any) -> Any:
    """x / sqrt(mean x^2 + 1e-6) weight."""
    return x / (x.pow(2).mean(-1, keepdim=True) + 1e-6).sqrt() * weight.double()


def full(weight: Any) -> Any:
    """A matrix in fp64, times its scales."""
    data = weight.data.double()
    return data if weight.scale is None else data * weight.scale.double()[..., None]


def product(x: Any, weight: Any) -> Any:
    """x W^T + b."""
    made = x @ full(weight).T
    return made if weight.bias is None else made + weight.bias.double()


def turn(x: Any, place: int) -> Any:
    """A vector with elements i and i + w/2 turned as a pair by place / theta^(2i/w)."""
    half = x.shape[-1] // 2
    out = x.clone()
    for i in range(half):
        angle = place / THETA ** (2 * i / (2 * half))
        a, b = x[i], x[i + half]
        out[i] = a * math.cos(angle) - b * math.sin(angle)
        out[i + half] = b * math.cos(angle) + a * math.sin(angle)
    return out


def sees(heads: Heads, query: int, key: int) -> bool:
    """Whether the token at one place attends to that at another."""
    if key > query:
        return False
    if heads.window is None:
        return True
    if heads.chunk:
        return query // heads.window == key // heads.window
    return query - key < heads.window


def attend(query: Any, keys: list[Any], values: list[Any], scale: float) -> Any:
    """One query over keys and values."""
    scores = torch.stack([query @ key for key in keys]) * scale
    return (scores.softmax(0)[:, None] * torch.stack(values)).sum(0)


def grouped(half: Any, x: Any) -> Any:
    """Grouped attention."""
    heads, out = half.heads, []
    d, v = heads.key_dim, heads.value_dim
    for sequence in x:
        made = product(sequence, half.qkv)
        asked = made[:, : heads.query * d].reshape(-1, heads.query, d)
        kept = made[:, heads.query * d : (heads.query + heads.kv) * d].reshape(-1, heads.kv, d)
        values = made[:, (heads.query + heads.kv) * d :].reshape(-1, heads.kv, v)
        if heads.query_norm is not None:
            asked, kept = rms(asked, heads.query_norm), rms(kept, heads.key_norm)
        n = len(sequence)
        asked = [[turn(asked[t, i], t) for i in range(heads.query)] for t in range(n)]
        kept = [[turn(kept[t, i], t) for i in range(heads.kv)] for t in range(n)]
        rows = []
        for t in range(n):
            row = []
            for i in range(heads.query):
                own = i // (heads.query // heads.kv)
                seen = [s for s in range(n) if sees(heads, t, s)]
                row.append(attend(asked[t][i], [kept[s][own] for s in seen], [values[s, own] for s in seen], d**-0.5))
            rows.append(torch.cat(row))
        out.append(product(torch.stack(rows), half.output))
    return torch.stack(out)


def latent(half: Any, x: Any) -> Any:
    """Latent attention, expanded, whatever the phase."""
    part, out = half.part, []
    nope, rope, v, rank = part.qk_nope_head_dim, part.qk_rope_head_dim, part.value_head_dim, part.kv_lora_rank
    up = full(half.up).reshape(part.query_heads, nope + v, rank)
    for sequence in x:
        n = len(sequence)
        inner = sequence if half.query_down is None else rms(product(sequence, half.query_down), half.query_norm)
        asked = product(inner, half.query_up).reshape(n, part.query_heads, nope + rope)
        down = product(sequence, half.latent_down)
        latents = rms(down[:, :rank], half.latent_norm)
        shared = [turn(down[t, rank:], t) for t in range(n)]
        rows = []
        for t in range(n):
            row = []
            for i in range(part.query_heads):
                query = torch.cat([asked[t, i, :nope], turn(asked[t, i, nope:], t)])
                keys = [torch.cat([up[i, :nope] @ latents[s], shared[s]]) for s in range(t + 1)]
                values = [up[i, nope:] @ latents[s] for s in range(t + 1)]
                row.append(attend(query, keys, values, (nope + rope) ** -0.5))
            rows.append(torch.cat(row))
        out.append(product(torch.stack(rows), half.output))
    return torch.stack(out)


def feed(dense: Any, x: Any) -> Any:
    """Dense feed-forward."""
    inner = product(x, dense.into)
    if not dense.gated:
        return product(inner * torch.sigmoid(inner), dense.down)
    gate, up = inner[..., : inner.shape[-1] // 2], inner[..., inner.shape[-1] // 2 :]
    return product(gate * torch.sigmoid(gate) * up, dense.down)


def dense(half: Any, x: Any) -> Any:
    """Dense layer."""
    return feed(half.dense, x)


def experts(half: Any, x: Any, routing: str) -> Any:
    """Mixture of experts, token by token."""
    flat = x.reshape(-1, x.shape[-1])
    gate_up, down, rows = full(half.gate_up), full(half.down), []
    count = len(down)
    for t, token in enumerate(flat):
        odds = product(token, half.router).softmax(-1)
        best = sorted(range(count), key=lambda e: -float(odds[e]))[: half.top_k]
        share = {e: odds[e] / sum(odds[b] for b in best) for e in best}
        if routing == "balanced":
            share = {(t * half.top_k + j) % count: 1 / half.top_k for j in range(half.top_k)}
        total = torch.zeros_like(token)
        for e, part in share.items():
            gate, up = (gate_up[e] @ token).chunk(2)
            total = total + part * (down[e] @ (gate * torch.sigmoid(gate) * up))
        if half.shared is not None:
            beside = feed(half.shared, token)
            scale = 1.0 if half.shared_gate is None else torch.sigmoid(product(token, half.shared_gate))
            total = total + beside * scale
        rows.append(total)
    return torch.stack(rows).reshape(x.shape)
