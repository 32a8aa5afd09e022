"""llama.cpp: lines of the cache to the printed digit, and what a start takes of the device.

Lines without a link are from start-up logs that people published; the figures are facts, the arithmetic is beside them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from roofcast.calculators.deployment import Deployment, prepare
from roofcast.calculators.engines import llama_cpp
from roofcast.calculators.engines.flags import Flags
from roofcast.calculators.engines.llama_cpp import buffers_of
from roofcast.calculators.engines.llama_cpp_cache import (
    MIB,
    Graph,
    row_bytes,
    rows_of,
    share_out,
    state_line,
    states_of,
)
from roofcast.calculators.engines.llama_cpp_setup import setup_of
from roofcast.calculators.engines.terms import GIB, EngineMemory, Served, together
from roofcast.calculators.errors import UsageError
from roofcast.hwdb.lookup import find_accelerator
from roofcast.modelspec.formats import FORMATS
from roofcast.modelspec.requested import find_requested
from roofcast.modelspec.sharding import Shards
from tests.checkpoints import catalogued, loaded

if TYPE_CHECKING:
    from collections.abc import Mapping

    from roofcast.calculators.deployment import Ready

LLAMA_13B: dict[str, Any] = {
    "model_type": "llama", "hidden_size": 5120, "num_hidden_layers": 40, "num_attention_heads": 40,
    "num_key_value_heads": 40, "intermediate_size": 13824, "vocab_size": 32000, "max_position_embeddings": 2048,
    "tie_word_embeddings": False, "torch_dtype": "float16",
}  # fmt: skip


def ready(name: str, kv: str = "fp16", gpu: str = "h200", weights: str | None = None, **shards: int) -> Ready:
    """A model of the catalogue on a GPU."""
    asked = find_requested(weights) if weights else None
    deployment = Deployment(find_accelerator(gpu).accelerator, FORMATS[kv], asked, Shards(**shards))
    return prepare(catalogued(name), deployment)


def started(name: str, kv: str = "fp16", given: Mapping[str, float] | None = None, **flags: Any) -> EngineMemory:
    """What llama-server allocates for it on an H200."""
    return llama_cpp.answer(Served(ready(name, kv), Flags(**flags)), given or {})


def lines(name: str, kv: str = "fp16", **flags: Any) -> list[str]:
    """Lines of the cache, as llama-server prints them."""
    made = ready(name, kv)
    setup = setup_of(made, Flags(**flags))
    assert setup.n_ctx is not None
    shared = share_out(setup.n_ctx, setup.slots, unified=setup.unified)
    rows = rows_of(made.model.spec.layers, setup.graph)
    return [buffer.line(setup.slots) for buffer in buffers_of(setup, rows, shared)]


def term(memory: EngineMemory, name: str) -> float:
    """Bytes of a term."""
    return next(term.bytes for term in memory.terms if term.name == name)


# model, --kv, flags, lines. Arithmetic: cells x layers x elements of a row x bytes an element / 2^20
PRINTED = [
    # 8192 x 32 x 8 x 128 x 2 B = 512 MiB each
    ("llama-3.1-8b", "fp16", {"n_ctx": 8192, "parallel": 1},
     ["size = 1024.00 MiB (  8192 cells,  32 layers,  1/1 seqs), K (f16):  512.00 MiB, V (f16):  512.00 MiB"]),
    # OLMoE-1B-7B: 8192 x 16 x 2048 x 34/32 B = 272 MiB each
    ("olmoe-1b-7b", "q8_0", {"n_ctx": 8192, "parallel": 1},
     ["size =  544.00 MiB (  8192 cells,  16 layers,  1/1 seqs), K (q8_0):  272.00 MiB, V (q8_0):  272.00 MiB"]),
    # K alone quantised, Llama-3.2-3B: 4096 x 28 x 1024 x 18/32 B = 63 MiB of keys, 224 of values
    ("llama-3.2-3b", "q4_0", {"n_ctx": 4096, "parallel": 1, "cache_type_v": "f16"},
     ["size =  287.00 MiB (  4096 cells,  28 layers,  1/1 seqs), K (q4_0):   63.00 MiB, V (f16):  224.00 MiB"]),
    ("llama-3.2-3b", "q4_1", {"n_ctx": 4096, "parallel": 1, "cache_type_v": "f16"},
     ["size =  294.00 MiB (  4096 cells,  28 layers,  1/1 seqs), K (q4_1):   70.00 MiB, V (f16):  224.00 MiB"]),
    # Qwen3.5-9B, 8 of 32 layers attend: 131072 x 8 x 4 x 256 x 18/32 B = 576 MiB each
    ("qwen3.5-9b", "q4_0", {"n_ctx": 131072, "parallel": 1},
     ["size = 1152.00 MiB (131072 cells,   8 layers,  1/1 seqs), K (q4_0):  576.00 MiB, V (q4_0):  576.00 MiB"]),
    # gpt-oss-20b: 131072 x 12 x 8 x 64 x 2 B = 1536 MiB; windows of 128 + 512 are rounded up to 768 cells, 9 MiB
    ("gpt-oss-20b", "fp16", {"n_ctx": 131072, "parallel": 1},
     ["size = 3072.00 MiB (131072 cells,  12 layers,  1/1 seqs), K (f16): 1536.00 MiB, V (f16): 1536.00 MiB",
      "size =   18.00 MiB (   768 cells,  12 layers,  1/1 seqs), K (f16):    9.00 MiB, V (f16):    9.00 MiB"]),
    # with -ub 2048: 128 + 2048 = 2176, so 2304 cells
    ("gpt-oss-20b", "fp16", {"n_ctx": 131072, "parallel": 1, "ubatch_size": 2048},
     ["size = 3072.00 MiB (131072 cells,  12 layers,  1/1 seqs), K (f16): 1536.00 MiB, V (f16): 1536.00 MiB",
      "size =   54.00 MiB (  2304 cells,  12 layers,  1/1 seqs), K (f16):   27.00 MiB, V (f16):   27.00 MiB"]),
    # Gemma 4 12B, four automatic slots: 4 x 1024 + 512 = 4608 cells; 4608 x 40 x 8 x 256 x 34/32 B = 382.5 MiB.
    # Its windows are quantised: https://github.com/ggml-org/llama.cpp/pull/21332 took 21277 back
    ("gemma-4-12b-it", "q8_0", {"n_ctx": 8192},
     ["size =   68.00 MiB (  8192 cells,   8 layers,  4/1 seqs), K (q8_0):   34.00 MiB, V (q8_0):   34.00 MiB",
      "size =  765.00 MiB (  4608 cells,  40 layers,  4/1 seqs), K (q8_0):  382.50 MiB, V (q8_0):  382.50 MiB"]),
    # DeepSeek-V2-Lite: 4096 x 27 x 576 x 2 B, and no values: https://github.com/ggml-org/llama.cpp/pull/19067
    ("deepseek-v2-lite", "fp16", {"n_ctx": 4096, "parallel": 1},
     ["size =  121.50 MiB (  4096 cells,  27 layers,  1/1 seqs), K (f16):  121.50 MiB, V (f16):    0.00 MiB"]),
    # as a file without attn_k_b, and builds before: 16 heads of 192 and 128
    ("deepseek-v2-lite", "fp16", {"n_ctx": 16384, "parallel": 1, "engine_version": "b4800"},
     ["size = 4320.00 MiB ( 16384 cells,  27 layers,  1/1 seqs), K (f16): 2592.00 MiB, V (f16): 1728.00 MiB"]),
]  # fmt: skip


@pytest.mark.parametrize(("name", "kv", "flags", "expected"), PRINTED)
def test_cache_lines(name: str, kv: str, flags: dict[str, Any], expected: list[str]) -> None:
    """Each line of the cache is as llama.cpp prints it."""
    assert expected == lines(name, kv, **flags)


# model, layers of it, sequences, the line. R: 3 columns of (V + 2 K); S: n_v d_k d_v; F32
RECURRENT = [
    # 48 layers: 3 x (48 x 128 + 2 x 16 x 128) x 4 B = 0.1172 MiB, 48 x 128 x 128 x 4 B = 3 MiB
    ("qwen3.6-27b", 1, "size =  149.62 MiB (     1 cells,  64 layers,  1 seqs), R (f32):    5.62 MiB, S (f32):  144.00 MiB"),
    # 24 layers, four slots: 3 x (4096 + 2 x 2048) x 4 B x 24 x 4 = 9 MiB, 32 x 128 x 128 x 4 B x 96 = 192 MiB
    ("qwen3.5-9b", 4, "size =  201.00 MiB (     4 cells,  32 layers,  4 seqs), R (f32):    9.00 MiB, S (f32):  192.00 MiB"),
    # 30 layers: 62.81 MiB a sequence
    ("qwen3.6-35b-a3b", 4, "size =  251.25 MiB (     4 cells,  40 layers,  4 seqs), R (f32):   11.25 MiB, S (f32):  240.00 MiB"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "sequences", "expected"), RECURRENT)
def test_state_lines(name: str, sequences: int, expected: str) -> None:
    """The recurrent line has kernel - 1 columns and all layers of the model."""
    layers = catalogued(name).spec.layers

    assert expected == state_line(states_of(layers), len(layers), sequences)


# model, R and S elements of a layer. n_embd_r and n_embd_s of llama.cpp's hyperparameters
STATES = [
    ("falcon-mamba-7b", 3 * 8192, 8192 * 16),  # Mamba-1: d_conv - 1 columns of d_inner alone
    ("mamba-codestral-7b", 3 * (8192 + 2 * 8 * 128), 8192 * 128),
    ("lfm2-1.2b", 2 * 2048, 0),  # short convolution of kernel 3
    ("kimi-linear-48b-a3b", 3 * 3 * 4096, 4096 * 128),
]


@pytest.mark.parametrize(("name", "shifted", "summed"), STATES)
def test_elements_of_a_state(name: str, shifted: int, summed: int) -> None:
    """Each recurrence keeps what llama.cpp's hyperparameters say."""
    (state,) = states_of(catalogued(name).spec.layers)

    assert (shifted, summed) == (state.shifted, state.summed)


# published totals: model, --kv, flags, GiB
TOTALS = [
    # 24 of 42 layers own a cache: 4 x 32768 x 4096 B = 512 MiB; 20 x 1024 cells x 2048 B = 40 MiB
    ("gemma-4-e4b", "fp16", {"n_ctx": 32768, "parallel": 1}, 552 / 1024),
    # windows kept whole: 36 x 131072 x 2048 B
    ("gpt-oss-120b", "fp16", {"n_ctx": 131072, "parallel": 1, "swa_full": True}, 9.0),
    # 2048 x 32 x 2560 x 2 x 2 B
    ("phi-2", "fp16", {"n_ctx": 2048, "parallel": 1}, 0.625),
    # 80 x 2 x 8192 x 2 B x 8192: https://github.com/ggml-org/llama.cpp/issues/6032
    ("qwen-72b", "fp16", {"n_ctx": 8192, "parallel": 1}, 20.0),
    # 61 x 576 x 34/32 B = 37,332 B a token: https://github.com/ikawrakow/ik_llama.cpp/pull/259
    ("deepseek-r1", "q8_0", {"n_ctx": 32768, "parallel": 1}, 1.1393),
    # three slots of 341 tokens take 512 cells each, four of 256 no more: 1536 and 1024 cells x 18 x 1024 B:
    # https://github.com/unslothai/unsloth/pull/7530
    ("gemma-3-270m", "fp16", {"n_ctx": 1024, "parallel": 3}, 27 / 1024),
    ("gemma-3-270m", "fp16", {"n_ctx": 1024, "parallel": 4}, 18 / 1024),
]


@pytest.mark.parametrize(("name", "kv", "flags", "gib"), TOTALS)
def test_published_totals(name: str, kv: str, flags: dict[str, Any], gib: float) -> None:
    """Caches of published logs, to the digits that they have."""
    memory = started(name, kv, **flags) if name != "deepseek-r1" else _latent_of_r1(flags)

    assert gib == pytest.approx(memory.kv[0] / GIB, abs=5e-5)
    assert memory.kv[0] == memory.kv[1] == memory.kv[2]


def _latent_of_r1(flags: dict[str, Any]) -> EngineMemory:
    return llama_cpp.answer(Served(ready("deepseek-r1", "q8_0", weights="q4_k_m"), Flags(**flags)), {})


def test_llama_of_2023() -> None:
    """LLaMA-13B at 512 tokens: 40 x 2 x 5120 x 2 B x 512 = 400 MiB, as `kv self size` says."""
    made = prepare(loaded(LLAMA_13B), Deployment(find_accelerator("h200").accelerator, FORMATS["fp16"]))

    assert llama_cpp.answer(Served(made, Flags(n_ctx=512, parallel=1)), {}).kv[0] / MIB == 400


def test_index_keys_of_layers_that_compute_their_own() -> None:
    """GLM-5.2 has an index in 21 of 78 layers: 21 x 65536 x 128 x 34/32 B = 178.5 MiB.

    https://github.com/ggml-org/llama.cpp/issues/26382
    """
    glm = catalogued("glm-5.2").spec.layers
    index = {rows: n for rows, n in rows_of(glm, Graph()).items() if rows.kind == "index"}

    assert sum(65536 * n * row_bytes("q8_0", rows.keys) for rows, n in index.items()) / MIB == 178.5
    assert not [rows for rows in rows_of(glm, Graph(indexed=False)) if rows.kind == "index"]


def test_latents_by_build() -> None:
    """DeepSeek-V2-Lite: whole heads, then the latent with values beside it, then the latent alone."""
    a_token = [
        started("deepseek-v2-lite", n_ctx=4096, parallel=1, engine_version=build).kv[0] / 4096
        for build in ("b4800", "b6000", "b10000")
    ]

    assert a_token == [276480, 27 * (576 + 512) * 2, 27 * 576 * 2]


def test_windows_by_build() -> None:
    """gpt-oss-20b at 32,768: no saving, then n_swa + the logical batch of 2,048, then + the physical of 512."""
    row = 12 * 2048
    cells = [
        started("gpt-oss-20b", n_ctx=32768, parallel=1, engine_version=build).kv[0] / row - 32768
        for build in ("b5400", "b5500", "b5600")
    ]

    assert cells == [32768, 2304, 768]


def test_windows_were_plain_for_two_days() -> None:
    """Builds between pull requests 21277 and 21332 keep windows in f16; it is said."""
    row = 12 * 1024
    quantised, plain = (
        started("gpt-oss-20b", "q8_0", n_ctx=32768, parallel=1, engine_version=build) for build in ("b8500", "b8620")
    )

    assert (quantised.kv[0] - plain.kv[0]) == 768 * row * (34 / 32 - 2)
    assert any("21277" in line for line in plain.said.assumptions)
    assert any("by its date" in line for line in plain.said.assumptions)


def test_a_window_in_every_layer_saves_nothing() -> None:
    """Mistral-7B-v0.1 at 32,768 takes 4 GiB in llama.cpp, which does not use its window; it is said."""
    memory = started("mistral-7b-v0.1", n_ctx=32768, parallel=1)

    assert memory.kv[0] / GIB == 4
    assert any("all layers have a window" in line for line in memory.said.assumptions)


def test_default_contexts() -> None:
    """4,096 tokens on one slot before, as trained on four that share one buffer after."""
    old, new = started("llama-3.1-8b", engine_version="b5000"), started("llama-3.1-8b", engine_version="b9000")

    assert (old.longest, old.tokens and old.tokens[0], old.room.sequences(4096)) == (4096, 4096, 1)
    assert (new.longest, new.tokens and new.tokens[0], new.room.sequences(4096)) == (131072, 131072, 4)


def test_context_is_reduced_until_a_gibibyte_stays_free() -> None:
    """Llama-3.1-8B in bf16 on 24 GB: the context is the largest multiple of 256 that leaves 1 GiB."""
    made = ready("llama-3.1-8b", gpu="rtx-4090")
    memory = llama_cpp.answer(Served(made, Flags()), {})
    assert memory.tokens is not None
    n_ctx, low, high = memory.tokens
    more = llama_cpp.answer(Served(made, Flags(n_ctx=n_ctx + 256)), {})

    assert n_ctx % 256 == 0
    assert low < n_ctx < high
    assert term(memory, "left") >= GIB > term(more, "left")
    assert memory.reason is None


def test_one_buffer_is_shared_and_streams_are_not() -> None:
    """Four slots of one buffer of 8,192 hold two requests of 4,096; streams of 2,048 hold none, but four of 2,048."""
    unified = started("llama-3.1-8b", n_ctx=8192, parallel=4, kv_unified=True)
    streams = started("llama-3.1-8b", n_ctx=8192, parallel=4)

    assert [unified.room.sequences(n) for n in (8192, 4096, 2048, 8193)] == [1, 2, 4, 0]
    assert [streams.room.sequences(n) for n in (8192, 4096, 2048, 100)] == [0, 0, 4, 4]
    assert unified.kv == streams.kv


def test_slots_of_old_builds_take_their_part_of_the_buffer() -> None:
    """Before streams the buffer is one, and each slot takes n_ctx / slots."""
    memory = started("llama-3.1-8b", n_ctx=8192, parallel=4, engine_version="b5000")

    assert (memory.longest, memory.room.sequences(2048), memory.room.sequences(2049)) == (2048, 4, 0)


def test_bytes_of_a_sequence() -> None:
    """gpt-oss-20b: 24,576 B a token in full layers, as many in windows of 128 at most."""
    room = started("gpt-oss-20b", n_ctx=32768, parallel=1).room

    assert room.sequence_bytes(4096) == 24576 * (4096 + 128)


def test_terms_add_up() -> None:
    """Visible memory is the sum of all other lines, and the cache is the last of them."""
    memory = started("qwen3.6-27b", n_ctx=32768, parallel=2)
    visible, *others = (term.bytes for term in memory.terms)

    assert visible == pytest.approx(sum(others))
    assert [t.name for t in memory.terms] == ["visible", "weights", "state", "compute_buffer", "overhead", "left", "kv"]
    assert memory.terms[-1].bytes == memory.kv[0]
    left, below, above = memory.terms[5], *together(memory.terms[1:5])
    assert (left.bytes - left.low, left.high - left.bytes) == pytest.approx((above, below))
    assert above != pytest.approx(below)


def test_what_a_log_states_replaces_what_is_predicted() -> None:
    """Given terms are measured, without spread, and change what is left."""
    given = {"visible": 20 * GIB, "weights": 5 * GIB, "kv": 2 * GIB, "compute_buffer": 0.5 * GIB, "state": 0.0}
    memory = started("llama-3.1-8b", given=given, n_ctx=8192)

    assert pytest.approx(term(memory, "left") / GIB) == 20 - 7.5 - 300 / 1024
    assert {"measured"} == {term.provenance for term in memory.terms if term.name in given}
    assert memory.kv == (2 * GIB, 2 * GIB, 2 * GIB)


def test_what_does_not_fit() -> None:
    """A cache that is too large says which context would fit, and that one does; weights that are say so."""
    made = ready("llama-3.1-8b", gpu="rtx-4090")
    long = llama_cpp.answer(Served(made, Flags(n_ctx=131072)), {})
    assert long.reason is not None
    advised = int(long.reason.partition("--n-ctx ")[2].split()[0])
    large = llama_cpp.answer(Served(ready("llama-3.1-70b", gpu="rtx-4090"), Flags()), {})

    assert long.room.sequences(100) == 0
    assert llama_cpp.answer(Served(made, Flags(n_ctx=advised)), {}).reason is None
    assert llama_cpp.answer(Served(made, Flags(n_ctx=advised + 256)), {}).reason is not None
    assert large.reason is not None
    assert "no context would fit" in large.reason


def test_cache_grows_with_context_and_bits() -> None:
    """More cells, more bits and more slots never take less."""
    by_context = [started("gemma-3-4b-it", n_ctx=n, parallel=1).kv[0] for n in range(256, 9000, 700)]
    kinds = ("q4_0", "q4_1", "q5_0", "q5_1", "q8_0", "fp16", "fp32")
    by_bits = [started("gemma-3-4b-it", kv, n_ctx=8192).kv[0] for kv in kinds]

    assert sorted(by_context) == by_context
    assert sorted(set(by_bits)) == by_bits
    assert started("gemma-3-4b-it", "iq4_nl", n_ctx=8192).kv[0] == by_bits[0]
    assert started("gemma-3-4b-it", "bf16", n_ctx=8192).kv[0] == by_bits[-2]


REFUSED = [
    ({"engine_version": "0.5"}, "fp16", "--engine-version 0.5: versions of llama.cpp are build numbers, such as b4800"),
    ({}, "fp8", "--kv fp8: the cache of llama.cpp has none such; it has f32, f16, bf16"),
    ({"cache_type_v": "q6_k"}, "fp16", "--cache-type-v q6_k: llama.cpp has none such"),
    ({"parallel": 0}, "fp16", "--parallel 0: it must be at least 1"),
    ({"n_ctx": 3, "parallel": 4}, "fp16", "--n-ctx 3 is no token for each of 4 slots"),
]


@pytest.mark.parametrize(("flags", "kv", "message"), REFUSED)
def test_refused(flags: dict[str, Any], kv: str, message: str) -> None:
    """What cannot be is refused in one line."""
    with pytest.raises(UsageError) as caught:
        started("llama-3.1-8b", kv, **flags)

    assert message in str(caught.value)


def test_replicas_strange_layers_and_strange_terms_are_refused() -> None:
    """llama.cpp has no replicas; recurrences that it is not known to keep, and terms that it never prints, are no guess."""
    with pytest.raises(UsageError, match=r"--dp: llama\.cpp splits layers"):
        llama_cpp.answer(Served(ready("llama-3.1-8b", dp=2), Flags()), {})
    with pytest.raises(UsageError, match=r"how llama\.cpp keeps RG-LRU is not modelled"):
        started("recurrentgemma-2b")
    with pytest.raises(UsageError, match="states no cuda_graphs"):
        started("llama-3.1-8b", given={"cuda_graphs": 1.0})
