"""The answer of `kv`: one row a model, every number with its provenance."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest

from roofcast.calculators.kv import KvModel, kv_model
from roofcast.calculators.remarks import contexts_of
from roofcast.modelspec.formats import FORMATS
from roofcast.modelspec.weights import Tensor, collect, summarise
from tests.checkpoints import (
    BF16,
    DEEPSEEK_V3,
    LLAMA_3_1_8B,
    MISTRAL_7B_V0_1,
    OPT_13B,
    TINY,
    TINY_KV,
    TINY_PARAMETERS,
    catalogued,
    decoder_tensors,
    folder_of,
    loaded,
)
from tests.model_configs import published
from tests.running import answer, refused, result, roofcast, table_cells

if TYPE_CHECKING:
    from pathlib import Path

FIVE = ("llama-3.1-8b", "llama-2-7b", "qwen2.5-7b", "mistral-7b-v0.3", "deepseek-v3")
# model -> attention, layers, query heads, KV heads, KiB a token, GiB at 128k, weights in bf16 in GiB
TABLE = {
    "llama-3.1-8b": ("GQA", 32, 32, 8, 128.0, 16.00, 15.0),
    "llama-2-7b": ("MHA", 32, 32, 32, 512.0, 64.00, 12.6),
    "qwen2.5-7b": ("GQA", 28, 28, 4, 56.0, 7.00, 14.2),
    "mistral-7b-v0.3": ("GQA", 32, 32, 8, 128.0, 16.00, 13.5),
    "deepseek-v3": ("MLA", 61, 128, 128, 68.6, 8.58, 1275.0),
}


def row_of(name: str, **asked: Any) -> KvModel:
    """Return the row of a model of the catalogue."""
    return kv_model(catalogued(name), weights=None, kv=BF16, contexts=None, **asked)[0]


def test_five_models_in_one_table() -> None:
    """`kv` with five names at 128k and bf16 weights gives every published cell, in the order asked."""
    rows = result("kv", *FIVE, "--context", "128k", "--weights", "bf16")["models"]

    assert table_cells(rows) == TABLE
    assert [row["model"] for row in rows] == list(FIVE)


def test_the_five_models_in_text() -> None:
    """The same cells stand in the table that people read."""
    out = roofcast("kv", *FIVE, "--context", "128k", "--weights", "bf16").out
    lines = {line.split()[0]: line.split() for line in out.splitlines() if line.split()[:1] and line.split()[0] in FIVE}

    for name, (kind, layers, queries, heads, kib, gib, weights) in TABLE.items():
        cells = [kind, str(layers), f"{queries}/{heads}", f"{kib:.1f}", f"{gib:.2f}", f"{weights:.1f}"]
        assert lines[name][1:7] == cells


def test_both_counts_of_deepseek_v3() -> None:
    """DeepSeek-V3's decoder has 671.0B parameters and its files 684.5B: both are there, and the note says which."""
    row, said = kv_model(catalogued("deepseek-v3"), weights=BF16, kv=BF16, contexts=None)

    assert row.parameters == 671_026_404_352
    assert row.parameters_in_files == 684_489_830_400
    assert row.weight_bytes == 2 * 684_489_830_400
    [note] = said.notes
    assert "684.5B" in note
    assert "671.0B" in note
    assert note.index("684.5B") < note.index("671.0B")


def test_stored_fp8_is_about_half() -> None:
    """Stored in FP8 the files are about half of bf16; the cache stays at 68.6 KiB a token."""
    stored = row_of("deepseek-v3")
    # 680.57G elements of FP8, 3.92G of bf16, 41.6M scales of fp32
    by_hand = 680_571_043_840 + 2 * 3_918_786_560 + 4 * 41_555_600

    assert stored.weight_bytes == by_hand
    assert 0.50 < by_hand / (2 * 684_489_830_400) < 0.51
    assert stored.kv_bytes_per_token == 61 * 576 * 2


def test_opt_13b() -> None:
    """OPT-13B: MHA, 40 layers, 800 KiB a token, 1.68 GB at its longest context of 2,048."""
    row = row_of("opt-13b")

    assert (row.attention, row.layers, row.kv_heads) == ("MHA", 40, 40)
    assert row.kv_bytes_per_token == 800 * 1024
    assert row.cache_bytes == {"2048": 1_677_721_600}


@pytest.mark.parametrize(
    ("config", "asked", "expected"),
    [
        (LLAMA_3_1_8B, None, (4096, 32768, 131072)),
        (OPT_13B, None, (2048,)),
        (MISTRAL_7B_V0_1, None, (4096, 32768)),
        (LLAMA_3_1_8B | {"max_position_embeddings": 4096}, None, (4096,)),
        (LLAMA_3_1_8B, [8192, 1024, 8192], (8192, 1024)),
        (OPT_13B, [4096], (4096,)),
    ],
)
def test_contexts(config: dict[str, Any], asked: list[int] | None, expected: tuple[int, ...]) -> None:
    """Without --context the default ends at the model's maximum; with it each count is answered once, as asked."""
    assert contexts_of(loaded(config), asked) == expected


def test_contexts_of_a_config_without_a_maximum() -> None:
    """A config that states no maximum gets 4k and 32k."""
    config = {key: value for key, value in TINY.items() if key != "max_position_embeddings"}

    assert contexts_of(loaded(config), None) == (4096, 32768)


def test_every_cell_of_a_small_model() -> None:
    """Two layers of 4 heads on 2 KV heads of 16, without weight files: all numbers by hand."""
    row, said = kv_model(loaded(TINY, name="tiny"), weights=None, kv=BF16, contexts=[100])

    assert row == KvModel(
        model="tiny",
        attention="GQA",
        layers=2,
        query_heads=4,
        kv_heads=2,
        kv_bytes_per_token=TINY_KV,
        window_bytes=0,
        state_bytes=0,
        cache_bytes={"100": 100 * TINY_KV},
        reserved_bytes={"100": 112 * TINY_KV},
        kv_format="bf16",
        page_tokens=16,
        parameters=TINY_PARAMETERS,
        parameters_in_files=None,
        active_parameters=TINY_PARAMETERS,
        weight_bytes=2 * TINY_PARAMETERS,
        max_context=256,
        provenance={"architecture": "config", "parameters": "config", "weight_bytes": "config"},
        source="file tiny",
    )
    assert said.assumptions == said.warnings == said.notes == ()


def test_numbers_of_headers_are_said_to_be() -> None:
    """With headers at hand bytes and the count in the files are theirs, and the decoder's count the config's."""
    files = collect({"x": tuple(Tensor(n, d, tuple(s)) for n, (d, s) in decoder_tensors(TINY, "F32").items())}, "x")
    row, said = kv_model(loaded(TINY, files=files), weights=None, kv=BF16, contexts=None)

    assert row.weight_bytes == 4 * TINY_PARAMETERS
    assert row.parameters_in_files == TINY_PARAMETERS
    assert row.provenance["weight_bytes"] == row.provenance["parameters_in_files"] == "header"
    assert row.provenance["parameters"] == "config"
    assert [line.split(":")[1].strip() for line in said.warnings] == ["embedding", "attention", "feed-forward", "head"]
    assert "the files hold 25 KiB (F32), the config implies 12.5 KiB" in said.warnings[0]  # fp32 where it says bf16


def test_a_requested_format_counts_every_parameter() -> None:
    """`--weights` is that format's bytes for every parameter, scales of the format included."""
    row, _ = kv_model(loaded(TINY), weights=FORMATS["nvfp4"], kv=FORMATS["fp8"], contexts=[10])

    assert row.weight_bytes == TINY_PARAMETERS * 0.5625
    assert row.kv_bytes_per_token == TINY_KV / 2
    assert row.cache_bytes == {"10": 10 * TINY_KV / 2}


def test_an_unstated_dtype_is_an_assumption() -> None:
    """A config without torch_dtype is counted in bf16, and says so under assumptions."""
    config = {key: value for key, value in TINY.items() if key != "torch_dtype"}
    row, said = kv_model(loaded(config), weights=None, kv=BF16, contexts=None)

    assert row.weight_bytes == 2 * TINY_PARAMETERS
    assert row.provenance["weight_bytes"] == "assumed"
    [line] = said.assumptions
    assert "torch_dtype" in line
    assert "bf16" in line


def test_quantised_weights_without_headers_are_not_guessed() -> None:
    """Bytes of weights in a quantised format that nobody has read are null, with the reason."""
    row, said = kv_model(
        loaded(TINY | {"quantization_config": {"quant_method": "hqq"}}), weights=None, kv=BF16, contexts=None
    )

    assert row.weight_bytes is None
    assert "weight_bytes" not in row.provenance
    assert row.parameters == TINY_PARAMETERS
    assert any("hqq" in line and "known: fp8" in line for line in said.warnings)


def test_headers_that_could_not_be_read_are_an_assumption() -> None:
    """Why headers were not read stands under assumptions; the config's count takes their place, and is named so."""
    row, said = kv_model(loaded(TINY, problem="dropped in mid-body"), weights=None, kv=BF16, contexts=None)

    assert any("dropped in mid-body" in line for line in said.assumptions)
    assert row.parameters_in_files is None
    assert row.provenance["weight_bytes"] == "config"


def test_files_that_contradict_the_config_are_warned_of() -> None:
    """Where the files hold other parameters than the config counts, both numbers stand in the warning."""
    held = tuple(Tensor(n, d, tuple(s)) for n, (d, s) in decoder_tensors(TINY | {"intermediate_size": 97}).items())
    _, said = kv_model(loaded(TINY, files=collect({"x": held}, "x")), weights=None, kv=BF16, contexts=None)

    warning, component = said.warnings
    assert "feed-forward: the files hold" in component
    assert f"{TINY_PARAMETERS:,}" in warning
    assert f"{TINY_PARAMETERS + 2 * 3 * 64:,}" in warning


def test_a_context_beyond_the_model_is_warned_of() -> None:
    """Asked for more tokens than the config allows, `kv` answers and warns with both numbers."""
    row, said = kv_model(loaded(TINY), weights=None, kv=BF16, contexts=[64, 257])

    assert row.cache_bytes["257"] == 257 * TINY_KV
    [warning] = said.warnings
    assert "257" in warning
    assert "256" in warning


def test_active_parameters_leave_idle_experts_out() -> None:
    """DeepSeek-V3 works with 37.55B of its 671.03B parameters: 248 of 256 experts idle in 58 layers."""
    row = row_of("deepseek-v3")

    assert row.parameters is not None
    assert row.active_parameters == row.parameters - 58 * 248 * 3 * 7168 * 2048 == 37_552_282_624


def test_window_bytes_stand_apart() -> None:
    """A model with windows in every layer adds nothing a token and holds 512 MiB once full."""
    row, _ = kv_model(loaded(MISTRAL_7B_V0_1), weights=None, kv=BF16, contexts=[131072])

    assert row.kv_bytes_per_token == 0
    assert row.window_bytes == row.cache_bytes["131072"] == 512 * 2**20


def test_states_stand_apart() -> None:
    """A hybrid: 12 KiB a token, 19.8 MB of fixed state, no window; heads are those of its attention."""
    row, _ = kv_model(loaded(published("Qwen/Qwen3.5-0.8B")), weights=None, kv=BF16, contexts=[544])

    assert (row.attention, row.query_heads, row.kv_heads) == ("Gated DeltaNet+GQA", 8, 2)
    assert (row.kv_bytes_per_token, row.window_bytes, row.state_bytes) == (6 * 2048, 0, 19_759_104)
    assert row.cache_bytes == {"544": 544 * 6 * 2048 + 19_759_104}
    assert row.reserved_bytes == {"544": 24 * 544 * 2048}
    assert row.page_tokens == 544


def test_heads_of_what_has_no_kv_heads() -> None:
    """A recurrence has its own heads and 0 KV heads."""
    row, _ = kv_model(loaded(published("mistralai/Mamba-Codestral-7B-v0.1")), weights=None, kv=BF16, contexts=[1])

    assert (row.attention, row.query_heads, row.kv_heads) == ("Mamba-2", 128, 0)
    assert (row.kv_bytes_per_token, row.page_tokens) == (0, None)
    assert row.cache_bytes == row.reserved_bytes == {"1": row.state_bytes}


def test_multi_token_prediction_when_asked() -> None:
    """`--mtp` counts DeepSeek-V3's 62nd layer, in the state and in the parameters, and says which layer it is."""
    [alone], [drafting] = (result("kv", "deepseek-v3", "--context", "4k", *more)["models"] for more in ((), ("--mtp",)))
    out = roofcast("kv", "deepseek-v3", "--mtp").out

    assert alone["kv_bytes_per_token"] == 61 * 576 * 2
    assert drafting["kv_bytes_per_token"] == 62 * 576 * 2
    assert drafting["layers"] == alone["layers"] == 61
    assert drafting["parameters"] > alone["parameters"] == 671_026_404_352
    assert drafting["weight_bytes"] == alone["weight_bytes"]  # the files hold it either way
    assert "layer 61 (MLA)" in out
    assert "the decoder alone" not in out


def test_no_multi_token_prediction_to_count() -> None:
    """`--mtp` of a model without such layers answers as without, and warns."""
    asked = answer("kv", "llama-3.1-8b", "--mtp")

    assert asked["result"] == result("kv", "llama-3.1-8b")
    assert asked["inputs"]["mtp"] is True
    assert asked["warnings"] == ["llama-3.1-8b: its config names no multi-token-prediction layers"]


def test_an_encoder_of_unknown_length(tmp_path: Path) -> None:
    """T5 keeps keys and values of every encoder token: without their number no answer, with it 2 n_h d_kv b each."""
    t5 = published("shrunk/t5")
    folder = folder_of(tmp_path / "t5", t5)
    token = t5["num_heads"] * 2 * t5["d_kv"] * 2 * t5["num_layers"]

    refused(roofcast("kv", folder), 3, folder, "--encoder-tokens")
    [row] = result("kv", folder, "--encoder-tokens", "1k", "--context", "100")["models"]
    assert (row["kv_bytes_per_token"], row["state_bytes"]) == (token, 1024 * token)
    assert row["cache_bytes"] == {"100": 1124 * token}


def test_an_encoder_that_is_not_there() -> None:
    """`--encoder-tokens` of a decoder alone changes nothing, and says so."""
    asked = answer("kv", "llama-3.1-8b", "--encoder-tokens", "100")

    assert asked["result"] == result("kv", "llama-3.1-8b")
    assert asked["inputs"]["encoder_tokens"] == 100
    [warning] = asked["warnings"]
    assert "--encoder-tokens" in warning


def test_what_is_reserved_is_printed_where_it_is_more() -> None:
    """gpt-oss-20b at 128k: 3 GiB kept and 6 GiB in pages, both in the text; where both agree a note says so."""
    windowed = roofcast("kv", "gpt-oss-20b", "--context", "128k").out
    plain = roofcast("kv", "llama-3.1-8b", "--context", "128k").out

    assert re.search(r"^gpt-oss-20b +16 +3\.00 +6\.00$", windowed, re.MULTILINE)
    assert "window - 1 + batched tokens" in windowed
    assert "reserved\n" not in plain
    assert "reserves just as much" in plain


@pytest.mark.parametrize("name", ["gpt-oss-20b", "deepseek-v3", "llama-3.1-8b", "gemma-3-27b-it", "mixtral-8x7b"])
def test_a_row_is_read_on_eighty_columns(name: str) -> None:
    """Tables of one model at the default contexts do not wrap on an 80-column terminal."""
    rules = [line for line in roofcast("kv", name).out.splitlines() if line.startswith("─")]

    assert max(map(len, rules)) <= 80


@pytest.mark.parametrize("config", ["Qwen/Qwen3.5-0.8B", "mistralai/Mistral-7B-v0.1", "google/gemma-3-270m"])
def test_long_names_take_more_tables(config: str, tmp_path: Path) -> None:
    """A model whose name leaves no room is read on eighty columns all the same, every heading in one of the tables."""
    name = "Nobody-Nemotron-3.5-Lightning-30B-A3"
    out = roofcast("kv", folder_of(tmp_path / name, published(config))).out
    tables = [block for block in out.split("\n\n") if "\u2500" in block]

    assert len(tables) > 1
    assert max(len(line) for block in tables for line in block.splitlines()) <= 80
    assert all(block.splitlines()[-1].startswith(name) for block in tables)
    assert all(word in "".join(tables) for word in ("q/kv", "token", "@max", "(stored)", "params"))


def test_assumptions_of_the_architecture_are_listed(tmp_path: Path) -> None:
    """What a nested text model leaves to its class stands under assumptions, with the model's name, and --strict refuses it."""
    folder = folder_of(tmp_path / "partial", published("google/gemma-3-4b-it"))
    [line] = answer("kv", folder)["assumptions"]

    assert line.startswith("partial: ")
    assert "num_attention_heads" in line
    refused(roofcast("kv", folder, "--strict"), 3, "num_attention_heads")


def test_the_hubs_summary_counts_scales_with_the_rest() -> None:
    """A summary by dtype gives exact bytes, and every element as a parameter, since it does not name the scales."""
    files = summarise({"F8_E4M3": 70_000, "BF16": 4_000, "F32": 10}, "hub summary")
    row, said = kv_model(loaded(DEEPSEEK_V3, files=files, problem="no route"), weights=None, kv=BF16, contexts=None)

    assert row.weight_bytes == 70_000 + 2 * 4_000 + 4 * 10
    assert row.parameters_in_files == 74_010
    assert any("no route" in line for line in said.assumptions)


def test_packed_integers_hide_the_count() -> None:
    """A summary of 4-bit weights packed into 32-bit integers gives bytes and no parameter count."""
    files = summarise({"I32": 1_000, "BF16": 4_000}, "hub summary")
    row, _ = kv_model(loaded(TINY, files=files), weights=None, kv=BF16, contexts=None)

    assert row.weight_bytes == 4 * 1_000 + 2 * 4_000
    assert row.parameters_in_files is None


def test_whole_bytes_stay_integers() -> None:
    """Bytes and counts are integers in the row, not floats that end in .0."""
    row = row_of("llama-3.1-8b")
    numbers = [row.kv_bytes_per_token, row.window_bytes, row.weight_bytes, row.parameters, *row.cache_bytes.values()]

    assert {type(number) for number in numbers} == {int}
