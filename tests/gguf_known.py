"""Metadata of well-known GGUF files, as llama.cpp prints it when it loads them, and what their caches hold."""

from __future__ import annotations

from typing import Any, Final

from roofcast.modelspec.weights import Tensor


def metadata(arch: str, **facts: Any) -> dict[str, Any]:
    """Return metadata of an architecture; two underscores stand for a dot."""
    named = {f"{arch}.{key.replace('__', '.')}": value for key, value in facts.items()}
    return {"general.architecture": arch, "general.type": "model", "general.quantization_version": 2, **named}


def tensors(*names: str) -> tuple[Tensor, ...]:
    """Return tensors of which only the names matter."""
    return tuple(Tensor(name, "Q4_K", (8, 8)) for name in names)


def blocks(count: int, *parts: str) -> tuple[Tensor, ...]:
    """Return the same parts of every block."""
    return tensors(*(f"blk.{number}.{part}" for number in range(count) for part in parts))


SPARSE: Final = ("ffn_gate_inp.weight",)
GLM_AIR: Final = metadata(
    "glm4moe", block_count=47, context_length=131072, embedding_length=4096, feed_forward_length=10944,
    attention__head_count=96, attention__head_count_kv=8, attention__key_length=128, attention__value_length=128,
    rope__dimension_count=64, expert_count=128, expert_used_count=8, expert_feed_forward_length=1408,
    expert_shared_count=1, leading_dense_block_count=1, expert_gating_func=2, nextn_predict_layers=1, vocab_size=151552,
)  # fmt: skip
_V3: Final[dict[str, Any]] = {
    "block_count": 61, "context_length": 163840, "embedding_length": 7168, "feed_forward_length": 18432,
    "attention__head_count": 128, "expert_used_count": 8, "leading_dense_block_count": 3, "vocab_size": 129280,
    "attention__q_lora_rank": 1536, "attention__kv_lora_rank": 512, "expert_feed_forward_length": 2048,
    "expert_count": 256, "expert_shared_count": 1, "expert_weights_scale": 2.5, "expert_gating_func": 2,
    "rope__dimension_count": 64,
}  # fmt: skip
DEEPSEEK_V3: Final = metadata(
    "deepseek2", **_V3, attention__head_count_kv=1, attention__key_length=576, attention__value_length=512,
    attention__key_length_mla=192, attention__value_length_mla=128,
)  # fmt: skip
DEEPSEEK_V3_OLD: Final = metadata(
    "deepseek2", **_V3, attention__head_count_kv=128, attention__key_length=192, attention__value_length=128
)
LLAMA: Final = metadata(
    "llama", block_count=32, context_length=131072, embedding_length=4096, feed_forward_length=14336,
    attention__head_count=32, attention__head_count_kv=8, rope__dimension_count=128, rope__freq_base=500000.0,
    vocab_size=128256,
)  # fmt: skip
MIXTRAL: Final = metadata(
    "llama", block_count=32, context_length=32768, embedding_length=4096, feed_forward_length=14336,
    attention__head_count=32, attention__head_count_kv=8, rope__dimension_count=128, expert_count=8,
    expert_used_count=2, vocab_size=32000,
)  # fmt: skip
_LETTERS: Final = "M-M-M-MM-M-M-M*-M-M-M*-M-M-M-M*-M-M-M-M*-M-MM-M-M-M-M-M-"

# file -> metadata, tensors, bytes a token that every context adds in bf16, parts that a window bounds, parameters.
# Sources: logs of llama.cpp (ggml-org/llama.cpp#15026, #15242, #13461, #14752, #19345; ikawrakow/ik_llama.cpp#262;
# gpustack/gguf-parser-go#31) and the models' config.json.
FILES: Final[dict[str, tuple[dict[str, Any], tuple[Tensor, ...], int, int, int]]] = {
    # 32 layers of 8 heads of 128, keys and values
    "Llama-3.1-8B": (LLAMA, tensors("output.weight"), 32 * 2 * 8 * 128 * 2, 0, 8_030_261_248),
    "Mixtral-8x7B, a tensor an expert": (
        MIXTRAL, (*tensors("output.weight", "blk.0.ffn_down.7.weight"), *blocks(32, *SPARSE)),
        32 * 2 * 8 * 128 * 2, 0, 46_702_792_704,
    ),
    "Qwen3-0.6B": (
        metadata(
            "qwen3", block_count=28, context_length=40960, embedding_length=1024, feed_forward_length=3072,
            attention__head_count=16, attention__head_count_kv=8, attention__key_length=128,
            attention__value_length=128, vocab_size=151936,
        ),
        blocks(28, "attn_q_norm.weight"), 448 * 2**20 // 4096, 0, 596_049_920,  # "KV self size = 448.00 MiB" at 4096
    ),
    "Qwen3-30B-A3B": (
        metadata(
            "qwen3moe", block_count=48, context_length=40960, embedding_length=2048, feed_forward_length=6144,
            attention__head_count=32, attention__head_count_kv=4, attention__key_length=128,
            attention__value_length=128, expert_count=128, expert_used_count=8, expert_feed_forward_length=768,
            vocab_size=151936,
        ),
        (*tensors("output.weight"), *blocks(48, *SPARSE)), 48 * 2 * 4 * 128 * 2, 0, 30_532_122_624,
    ),
    "Gemma-3-27B": (  # the last of every six layers sees all: 10 of 62
        metadata(
            "gemma3", block_count=62, context_length=131072, embedding_length=5376, feed_forward_length=21504,
            attention__head_count=32, attention__head_count_kv=16, attention__key_length=128,
            attention__value_length=128, attention__sliding_window=1024, vocab_size=262144,
        ),
        tensors("token_embd_norm.weight"), 10 * 2 * 16 * 128 * 2, 52, 27_009_002_240,
    ),
    "DeepSeek-V3, MLA as MQA": (  # d_c + d_rope = 576 in each of 61 layers
        DEEPSEEK_V3, (*tensors("output.weight"), *blocks(61, "attn_kv_a_mqa.weight")), 61 * 576 * 2, 0, 671_026_404_352,
    ),
    "DeepSeek-V3, of January 2025": (DEEPSEEK_V3_OLD, (), 61 * 576 * 2, 0, 671_026_404_352),
    "GLM-4.5-Air": (  # 46 layers, and one that drafts
        GLM_AIR,
        (*tensors("output.weight", "blk.46.nextn.eh_proj.weight"), *blocks(46, "attn_q.bias", "attn_q.weight")),
        46 * 2 * 8 * 128 * 2, 0, 106_852_245_504,
    ),
    "gpt-oss-20b": (  # 12 of 24 layers see all
        metadata(
            "gpt-oss", block_count=24, context_length=131072, embedding_length=2880, feed_forward_length=2880,
            attention__head_count=64, attention__head_count_kv=8, attention__key_length=64, attention__value_length=64,
            attention__sliding_window=128, expert_count=32, expert_used_count=4, expert_feed_forward_length=2880,
            vocab_size=201088,
        ),
        (*tensors("output.weight"), *blocks(24, "attn_q.bias", "attn_output.bias", *SPARSE)),
        12 * 2 * 8 * 64 * 2, 12, 20_914_757_184,
    ),
    "Qwen3-Next-80B-A3B": (  # 12 of 48 layers attend
        metadata(
            "qwen3next", block_count=48, context_length=262144, embedding_length=2048, feed_forward_length=5120,
            attention__head_count=16, attention__head_count_kv=2, attention__key_length=256,
            attention__value_length=256, expert_count=512, expert_used_count=10, expert_feed_forward_length=512,
            expert_shared_feed_forward_length=512, ssm__conv_kernel=4, ssm__state_size=128, ssm__group_count=16,
            ssm__time_step_rank=32, ssm__inner_size=4096, vocab_size=151936,
        ),
        (*tensors("output.weight"), *blocks(48, *SPARSE)), 12 * 2 * 2 * 256 * 2, 0, 79_674_391_296,
    ),
    "Nemotron-Nano-9B-v2": (  # 4 of 56 layers attend
        metadata(
            "nemotron_h", block_count=56, context_length=131072, embedding_length=4480,
            feed_forward_length=tuple(15680 * (letter == "-") for letter in _LETTERS), attention__head_count=40,
            attention__head_count_kv=tuple(8 * (letter == "*") for letter in _LETTERS), attention__key_length=128,
            attention__value_length=128, ssm__conv_kernel=4, ssm__state_size=128, ssm__group_count=8,
            ssm__inner_size=10240, ssm__time_step_rank=128, vocab_size=131072,
        ),
        tensors("output.weight", "blk.0.ssm_conv1d.bias"), 4 * 2 * 8 * 128 * 2, 0, 8_888_227_328,
    ),
    "Jamba-v0.1": (  # 4 of 32 layers attend, every second has experts
        metadata(
            "jamba", block_count=32, context_length=262144, embedding_length=4096, feed_forward_length=14336,
            attention__head_count=32, attention__head_count_kv=tuple(8 * (n % 8 == 4) for n in range(32)),
            ssm__conv_kernel=4, ssm__inner_size=8192, ssm__state_size=16, ssm__time_step_rank=256, expert_count=16,
            expert_used_count=2, vocab_size=65536,
        ),
        tensors("output.weight", "blk.0.ssm_conv1d.bias", *(f"blk.{n}.ffn_gate_inp.weight" for n in range(1, 32, 2))),
        4 * 2 * 8 * 128 * 2, 0, 51_570_323_328,
    ),
    "Ling-mini-2.0": (
        metadata(
            "bailingmoe2", block_count=20, context_length=32768, embedding_length=2048, feed_forward_length=5120,
            attention__head_count=16, attention__head_count_kv=4, attention__key_length=128,
            attention__value_length=128, expert_count=256, expert_used_count=8, expert_feed_forward_length=512,
            expert_shared_feed_forward_length=512, expert_shared_count=1, leading_dense_block_count=1,
            vocab_size=157184,
        ),
        (*tensors("output.weight"), *blocks(20, "attn_q_norm.weight")), 20 * 2 * 4 * 128 * 2, 0, 16_255_638_528,
    ),
    "K-EXAONE-236B-A23B": (  # every fourth of 48 layers sees all, and one drafts
        metadata(
            "exaone-moe", block_count=49, nextn_predict_layers=1, context_length=262144, embedding_length=6144,
            feed_forward_length=18432, attention__head_count=64, attention__head_count_kv=8,
            attention__key_length=128, attention__value_length=128, attention__sliding_window=128,
            attention__sliding_window_pattern=tuple(n % 4 != 3 for n in range(49)), expert_count=128,
            expert_used_count=8, expert_feed_forward_length=2048, expert_shared_feed_forward_length=2048,
            expert_shared_count=1, leading_dense_block_count=1, vocab_size=153600,
        ),
        tensors("output.weight", "blk.0.attn_q.weight", "blk.48.nextn.eh_proj.weight"), 12 * 2 * 8 * 128 * 2, 36,
        236_571_150_336,
    ),
    "Hunyuan-A13B": (
        metadata(
            "hunyuan-moe", block_count=32, context_length=262144, embedding_length=4096, feed_forward_length=3072,
            attention__head_count=32, attention__head_count_kv=8, attention__key_length=128,
            attention__value_length=128, expert_count=64, expert_used_count=8, expert_feed_forward_length=3072,
            expert_shared_feed_forward_length=3072, expert_shared_count=1, vocab_size=128167,
        ),
        tensors("blk.0.attn_q_norm.weight"), 32 * 2 * 8 * 128 * 2, 0, 80_393_183_232,
    ),
    "RWKV-6-World-1.6B": (  # no cache that grows
        metadata(
            "rwkv6", block_count=24, context_length=4096, embedding_length=2048, feed_forward_length=7168,
            attention__head_count=0, wkv__head_size=64, vocab_size=65536,
        ),
        tensors("output.weight"), 0, 0, 1_599_873_024,
    ),
    "LFM2-1.2B": (  # 6 of 16 layers attend, with 8 heads of 64
        metadata(
            "lfm2", block_count=16, context_length=128000, embedding_length=2048, feed_forward_length=8192,
            attention__head_count=32, attention__head_count_kv=(0, 0, 8, 0, 0, 8, 0, 0, 8, 0, 8, 0, 8, 0, 8, 0),
            shortconv__l_cache=3, vocab_size=65536,
        ),
        tensors("token_embd_norm.weight"), 6 * 2 * 8 * 64 * 2, 0, 1_170_340_608,
    ),
}  # fmt: skip
