"""Mixes of models with weights that no other class has: inputs a layer, AltUp and LAuReL, joint projections."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any, Final

import pytest

from roofcast.modelspec.errors import UndeterminedModelError
from roofcast.modelspec.ggml_mix import mix_bytes
from roofcast.modelspec.ggml_names import GgufTensor, gguf_tensors
from roofcast.modelspec.known import find_known
from roofcast.modelspec.matrix import inventory
from roofcast.modelspec.spec import ModelSpec, build_spec

GIB: Final = 2**30
# Tensors of published files as llama.cpp prints them while it loads, in GiB: (entry, mix, size, what tells it).
PRINTED: Final = [
    ("gemma-4-e4b", "q4_k_m", 4.95),  # canonical/inference-snaps, issue 275
    ("gemma-4-26b-a4b", "q4_k_m", 15.63),  # scrya-com/rotorquant, issue 9: lmstudio-community's file
]
# Model cards, in GB. Sources: Asystemoffields/gemma-4-E2B-it-PMRA-GGUF; google/gemma-4-E2B-it-qat-q4_0-gguf and
# ggml-org/gemma-3n-E2B-it-GGUF and -E4B-, whose files hold up to 16 MB of metadata, most of it the tokenizer's.
LISTED: Final = [
    ("gemma-4-e2b", "q3_k_s", 3.094),
    ("gemma-4-e2b", "q4_k_m", 3.412),
    ("gemma-4-e2b", "q4_0", 3.35),
    ("gemma-3n-e2b", "q8_0", 4.79),
    ("gemma-3n-e4b", "q8_0", 7.35),
]
METADATA: Final = 0.016
ROUNDED: Final = 0.006


def text_of(name: str) -> ModelSpec:
    """Return the decoder of a catalogue entry, without what stands beside it: a file of its own."""
    found = find_known(name)
    assert found is not None
    config: dict[str, Any] = dict(found.config)
    return build_spec(config.get("text_config", config))


def tensors_of(name: str) -> tuple[GgufTensor, ...]:
    """Return the tensors of a file."""
    spec = text_of(name)
    return gguf_tensors(spec, inventory(spec))


@pytest.mark.parametrize(("name", "mix", "size"), PRINTED)
def test_tensors_are_as_large_as_llama_cpp_prints(name: str, mix: str, size: float) -> None:
    """To the second decimal, keys and values that no layer reads among them."""
    assert mix_bytes(text_of(name), mix).total / GIB == pytest.approx(size, abs=0.005)


@pytest.mark.parametrize(("name", "mix", "size"), LISTED)
def test_files_are_as_large_as_their_cards_say(name: str, mix: str, size: float) -> None:
    """A published file is at most the tensors and its metadata."""
    assert -ROUNDED < size - mix_bytes(text_of(name), mix).total / 1e9 < METADATA


def test_both_tables_of_a_tied_model_have_the_type_of_the_head() -> None:
    """google's Q4_0 of Gemma 4 E2B has Q6_K for rows of 1536 and of 35 x 256, 330.3 and 1926.8 MB."""
    embedding = mix_bytes(text_of("gemma-4-e2b"), "q4_0").components["embedding"]

    assert embedding == 262144 * (1536 + 35 * 256) * 210 // 256
    assert embedding / 1e6 == pytest.approx(330.3 + 1926.8, abs=0.1)


def test_older_files_have_the_table_of_layers_as_any_matrix() -> None:
    """lmstudio-community's Gemma 3n E4B of June 2025 has 282 tensors of Q4_K and 35 of Q6_K: one table moved since."""
    raised = sum(n < 4 or n >= 30 or (n - 4) % 3 == 2 for n in range(35))
    used = Counter(tensor.name for tensor in tensors_of("gemma-3n-e4b") if tensor.name != "per_layer_token_embd")
    whole = ("altup", "laurel", "per_layer_model_proj")
    quantised = sum(count for name, count in used.items() if not name.startswith(whole))

    assert 2 * raised + 1 == 35
    assert quantised + 1 == 282 + 35


def test_what_is_kept_is_stored_as_the_converter_writes_it() -> None:
    """108 tensors of Gemma 3n E4B are F16: three a layer, and three outside; AltUp's coefficients are F32."""
    hidden, width = 2048, 35 * 256
    layer = 4 * hidden + 2 * 64 * hidden
    spec = text_of("gemma-3n-e4b")
    types = mix_bytes(spec, "q4_k_m").elements

    assert types["F16"] == 35 * layer + 6 * hidden**2 + width * hidden
    assert types["F32"] == 35 * (16 + 64) + sum(inventory(spec).rest.values())


def test_gates_of_inputs_a_layer_have_the_mixs_own_type() -> None:
    """inp_gate and proj of every layer, [256, h] and [h, 256]."""
    shapes = {(t.name, t.rows, t.columns) for t in tensors_of("gemma-4-e4b") if t.name in {"inp_gate", "proj"}}

    assert shapes == {("inp_gate", 256, 2560), ("proj", 2560, 256)}


@pytest.mark.parametrize(("name", "sliding", "full"), [("gemma-4-e4b", 15, 3), ("gemma-4-e2b", 16, 4)])
def test_keys_and_values_that_no_layer_reads_are_in_the_file(name: str, sliding: int, full: int) -> None:
    """Layers that read those of another have them all the same, 256 wide a head and 512; the answer says how many."""
    spec = text_of(name)
    made = mix_bytes(spec, "q4_k_m")
    heads = spec.layers[0].mixers[0].published_kv_heads or 0
    unread = 2 * heads * spec.hidden * (256 * sliding + 512 * full)

    assert sum(made.elements.values()) == spec.parameters + unread
    assert any(f"{unread:,} parameters" in line for line in made.assumptions)


def test_a_table_is_padded_to_the_vocabulary() -> None:
    """Gemma 3n's table of 262144 rows has 262400 in the file, so that tokens of images have one."""
    rows = {tensor.used: tensor.rows for tensor in tensors_of("gemma-3n-e4b") if tensor.name == "per_layer_token_embd"}

    assert rows == {True: 262144, False: 256}


def test_joint_projections_are_split() -> None:
    """Qwen3-Next: queries, keys and values, 8192 rows, and the gate, 4096; what makes beta and alpha stays one."""
    tensors = tensors_of("qwen3-next-80b-a3b")
    first = {tensor.name: (tensor.rows, tensor.columns) for tensor in tensors if tensor.layer == 0}

    assert first["attn_qkv"] == (8192, 2048)
    assert first["attn_gate"] == (4096, 2048)
    assert first["ssm_ba"] == (64, 2048)


def test_older_files_have_joint_projections_whole() -> None:
    """lmstudio-community's Qwen3-Next of 2025, 45.08 GiB, has ssm_in in Q4_K; half of attn_qkv is Q6_K since.

    36 of 48 tensors that follow the rules of values are attn_qkv; 12 are attn_v, of which 6 were Q6_K and now others.
    """
    spec = text_of("qwen3-next-80b-a3b")
    raised = [n < 6 or n >= 42 or (n - 6) % 3 == 2 for n in range(48)]
    more = 66 / 256  # [B] a weight: 210 of Q6_K for 144 of Q4_K
    fused = sum(flag for n, flag in enumerate(raised) if n % 4 != 3) * 8192 * 2048 * more
    values = (sum(raised[3::4]) - 6) * 512 * 2048 * more

    assert (mix_bytes(spec, "q4_k_m").total - fused - values) / GIB == pytest.approx(45.08, abs=0.005)


def test_a_table_without_a_name_is_refused() -> None:
    """Tables of which only the size is known have no place in a file."""
    spec = replace(text_of("gemma-4-e2b"), tables=())

    with pytest.raises(UndeterminedModelError, match="parameters of embedding of model_type 'gemma4_text'"):
        mix_bytes(spec, "q4_k_m")
