"""What verifying k+1 positions costs beside one, and a draft step beside a decode step, with real kernels on this GPU.

Needs torch and a CUDA GPU. Layers of Llama 3.1 8B's widths with random weights, PyTorch's own kernels, whole steps as CUDA
graphs and, beside them, eager. Prints times and ratios; the roofline's ratios stand in `roofcast speculate llama-3.1-8b`.

    python benchmarks/verify_cost.py [--context 4096] [--batches 1,16,64]
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 - torch's own name for it

POSITIONS = (1, 2, 3, 5, 9, 17, 33, 65)
DTYPE = torch.bfloat16
CUDA: Any = torch.cuda  # parts of it have no types


@dataclass(frozen=True)
class Shape:
    """Widths of a decoder: layers, hidden, query and KV heads, head width, feed-forward, vocabulary, inputs of qkv."""

    layers: int
    hidden: int
    heads: int
    kv_heads: int
    width: int
    inner: int
    vocab: int
    joined: int = 0  # columns of a projection before the layers
    wide: int = 1  # qkv takes so many times the hidden width


TARGET = Shape(32, 4096, 32, 8, 128, 14336, 128256)
DRAFTS = {
    "eagle3 head": Shape(1, 4096, 32, 8, 128, 14336, 32000, wide=2),
    "eagle head": Shape(1, 4096, 32, 8, 128, 14336, 128256, joined=8192),
    "llama-3.2-1b": Shape(16, 2048, 32, 8, 64, 8192, 128256),
}


class Decoder:
    """One step over `positions` new tokens of every sequence, behind a cache that is full."""

    def __init__(self, shape: Shape, batch: int, context: int, *, packed: bool = False) -> None:
        """Weights, shared by nothing, and a cache of `context` tokens; `packed` attends a KV head's queries together."""
        self.shape, self.batch, self.context, self.packed = shape, batch, context, packed
        rows = (shape.heads + 2 * shape.kv_heads) * shape.width
        self.layers = [
            {
                "qkv": _random(rows, shape.wide * shape.hidden),
                "out": _random(shape.hidden, shape.heads * shape.width),
                "up": _random(2 * shape.inner, shape.hidden),
                "down": _random(shape.hidden, shape.inner),
                "norm": torch.ones(shape.hidden, dtype=DTYPE, device="cuda"),
            }
            for _ in range(shape.layers)
        ]
        self.head = _random(shape.vocab, shape.hidden)
        self.join = _random(shape.hidden, shape.joined) if shape.joined else None
        kept = (batch, shape.kv_heads, context + max(POSITIONS), shape.width)
        self.cache = [
            (torch.randn(kept, dtype=DTYPE, device="cuda"), torch.randn(kept, dtype=DTYPE, device="cuda"))
            for _ in self.layers
        ]

    @property
    def bytes(self) -> float:
        """Weights and cache that a step reads."""
        weights = sum(part.numel() for layer in self.layers for part in layer.values()) + self.head.numel()
        weights += self.join.numel() if self.join is not None else 0
        shape = self.shape
        cache = 2 * shape.layers * self.batch * self.context * shape.kv_heads * shape.width
        return 2.0 * float(weights + cache)

    def step(self, x: torch.Tensor) -> torch.Tensor:
        """x: [batch, positions, hidden] -> the likeliest token of every position."""
        shape, (batch, new, _) = self.shape, x.shape
        if self.join is not None:
            x = F.linear(torch.cat((x, x), dim=-1), self.join)
        for layer, (keys, values) in zip(self.layers, self.cache, strict=True):
            normed = F.rms_norm(x, (shape.hidden,), layer["norm"])
            inputs = torch.cat((normed,) * shape.wide, dim=-1) if shape.wide > 1 else normed
            parts: Any = F.linear(inputs, layer["qkv"]).view(batch, new, -1, shape.width).transpose(1, 2)
            q, k, v = parts.split((shape.heads, shape.kv_heads, shape.kv_heads), dim=1)
            keys[:, :, self.context - 1 : self.context - 1 + new] = k
            values[:, :, self.context - 1 : self.context - 1 + new] = v
            seen = self.context - 1 + new
            mixed = self.attend(q, keys[:, :, :seen], values[:, :, :seen])
            x = x + F.linear(mixed.transpose(1, 2).reshape(batch, new, -1), layer["out"])
            normed = F.rms_norm(x, (shape.hidden,), layer["norm"])
            gate, up = F.linear(normed, layer["up"]).chunk(2, dim=-1)
            x = x + F.linear(F.silu(gate) * up, layer["down"])
        return F.linear(x, self.head).argmax(dim=-1)

    def attend(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        """q: [batch, heads, new, width]; masks among the new tokens are left out, they cost nothing to speak of."""
        attention: Any = F.scaled_dot_product_attention
        batch, width = q.shape[0], q.shape[-1]
        rows = q.reshape(batch, self.shape.kv_heads, -1, width) if self.packed else q
        mixed: torch.Tensor = attention(rows, k, v, enable_gqa=not self.packed).reshape(q.shape)
        return mixed


def _random(rows: int, columns: int) -> torch.Tensor:
    return torch.randn(rows, columns, dtype=DTYPE, device="cuda") / math.sqrt(columns)


def graphed(decoder: Decoder, x: torch.Tensor) -> Any:
    """The step as one CUDA graph."""
    stream = CUDA.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            decoder.step(x)
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        decoder.step(x)
    return graph.replay


def seconds(run: Any, repeats: int = 15, inner: int = 4) -> float:
    """Median time of a call, by device events."""
    for _ in range(3):
        run()
    times = []
    for _ in range(repeats):
        start, end = (CUDA.Event(enable_timing=True) for _ in range(2))
        start.record()
        for _ in range(inner):
            run()
        end.record()
        torch.cuda.synchronize()
        times.append(start.elapsed_time(end) / inner / 1e3)
    return float(statistics.median(times))


def measure(name: str, decoder: Decoder, positions: tuple[int, ...]) -> list[dict[str, Any]]:
    """Times of steps over several numbers of positions."""
    shape, batch, rows = decoder.shape, decoder.batch, []
    for new in positions:
        x = torch.randn(batch, new, shape.hidden, dtype=DTYPE, device="cuda")
        graph, eager = seconds(graphed(decoder, x)), seconds(partial(decoder.step, x))
        rows.append(
            {
                "what": name,
                "batch": batch,
                "positions": new,
                "graph_ms": graph * 1e3,
                "eager_ms": eager * 1e3,
                "read_gb": decoder.bytes / 1e9,
            }
        )
    return rows


def main() -> None:
    """Measures, and prints a line a step with ratios to the target's step of one position."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--context", type=int, default=4096)
    parser.add_argument("--batches", default="1,16,64")
    parser.add_argument("--out")
    asked = parser.parse_args()
    every = []
    with torch.inference_mode():
        for batch in map(int, asked.batches.split(",")):
            every += measure("target", Decoder(TARGET, batch, asked.context), POSITIONS)
            torch.cuda.empty_cache()
            every += measure("target packed", Decoder(TARGET, batch, asked.context, packed=True), POSITIONS)
            torch.cuda.empty_cache()
            for name, shape in DRAFTS.items():
                every += measure(name, Decoder(shape, batch, asked.context), (1,))
    base = {row["batch"]: row for row in every if row["what"] == "target" and row["positions"] == 1}
    for row in every:
        one = base[row["batch"]]
        row["graph_ratio"], row["eager_ratio"] = (row[f"{how}_ms"] / one[f"{how}_ms"] for how in ("graph", "eager"))
        print(
            "{what:14} batch {batch:3} positions {positions:3}  graph {graph_ms:8.3f} ms {graph_ratio:6.3f} x  eager {eager_ms:8.3f} ms {eager_ratio:6.3f} x  reads {read_gb:6.2f} GB".format(
                **row
            )
        )
    print(torch.cuda.get_device_name(), torch.__version__)
    if asked.out:
        with open(asked.out, "w", encoding="utf-8") as file:  # noqa: PTH123 - a script
            json.dump(every, file)


if __name__ == "__main__":
    main()
