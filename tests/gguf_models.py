"""A tiny model in GGUF files, whole and split, and what is to be read of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.gguf_bytes import gguf, number

if TYPE_CHECKING:
    from roofcast.modelspec.source import Checkpoint
    from tests.hub_server import Sparse

# 2 layers, h 64, 4 heads of 16 on 2 KV heads, f 96, V 100, as tests.checkpoints.TINY: 74,560 parameters
METADATA: dict[str, Any] = {
    "general.architecture": "llama",
    "llama.block_count": 2,
    "llama.context_length": 256,
    "llama.embedding_length": 64,
    "llama.feed_forward_length": 96,
    "llama.attention.head_count": 4,
    "llama.attention.head_count_kv": 2,
    "llama.attention.layer_norm_rms_epsilon": 1e-5,
    "llama.vocab_size": 100,
}
MATRICES = {
    "attn_q": [64, 64],
    "attn_k": [32, 64],
    "attn_v": [32, 64],
    "attn_output": [64, 64],
    "ffn_gate": [96, 64],
    "ffn_up": [96, 64],
    "ffn_down": [64, 96],
}
OUTER = 2 * 100 * 64  # embedding and head
INNER = 2 * (64 * 64 * 2 + 64 * 32 * 2 + 3 * 64 * 96)
NORMS = 2 * 2 * 64 + 64
PARAMETERS = OUTER + INNER + NORMS
BYTES = {"F16": 2 * (OUTER + INNER) + 4 * NORMS, "Q8_0": (OUTER + INNER) // 32 * 34 + 4 * NORMS}


def tensors(dtype: str) -> dict[str, tuple[str, list[int]]]:
    """Return the tensors of TINY in one format, norms in F32, as converters name them."""
    found: dict[str, tuple[str, list[int]]] = {"token_embd.weight": (dtype, [100, 64])}
    for layer in range(2):
        found |= {f"blk.{layer}.{name}.weight": (dtype, shape) for name, shape in MATRICES.items()}
        found |= {f"blk.{layer}.{name}_norm.weight": ("F32", [64]) for name in ("attn", "ffn")}
    return found | {"output_norm.weight": ("F32", [64]), "output.weight": (dtype, [100, 64])}


def model(dtype: str = "Q8_0", **more: Any) -> Sparse:
    """Return TINY as one GGUF file."""
    return gguf(tensors(dtype), METADATA | more)


def split(stem: str, dtype: str = "Q8_0", count: int = 3) -> dict[str, bytes | Sparse]:
    """Return TINY in so many files."""
    everything = tensors(dtype)
    files: dict[str, bytes | Sparse] = {}
    for part in range(count):
        own = {name: entry for n, (name, entry) in enumerate(everything.items()) if n % count == part}
        told = {
            "split.no": number("H", part),
            "split.count": number("H", count),
            "split.tensors.count": number("i", len(everything)),
        }
        files[f"{stem}-{part + 1:05}-of-{count:05}.gguf"] = gguf(own, (METADATA if part == 0 else {}) | told)
    return files


FILES: dict[str, bytes | Sparse] = {
    "README.md": b"#",
    "tiny-F16.gguf": model("F16"),
    "tiny-Q8_0.gguf": model("Q8_0"),
    "mmproj-F16.gguf": b"not read",
}


def told(found: Checkpoint) -> tuple[str, int, int]:
    """Return where a checkpoint's weights are from, their bytes and their files."""
    assert found.weights is not None
    return found.weights.origin, found.weights.bytes, found.weights.files
