"""`roofcast attention`: what it answers with a model, heads, devices or none, and what it refuses."""

from __future__ import annotations

import csv
import io
import re
from typing import Any

import pytest

from roofcast.calculators.attention import kind_of, kinds_of
from roofcast.calculators.flash_generations import PUBLISHED
from tests.checkpoints import catalogued
from tests.running import answer, refused, result, roofcast

A100 = ("attention", "--gpu", "a100-80gb-sxm")


def runs(rows: list[dict[str, Any]], name: str) -> dict[str, bool | None]:
    """What runs, by the name of a column."""
    return {row[name]: row["runs"] for row in rows}


def test_turing_has_no_flash_attention_2() -> None:
    """An RTX 2080 Ti has FlashAttention-1 as a package, and PyTorch's memory-efficient and math backends alone."""
    got = result("attention", "--gpu", "2080ti", "--context", "4k")

    assert runs(got["generations"], "generation") == {
        "FlashAttention-1": True, "FlashAttention-2": False, "FlashAttention-3": False, "FlashAttention-4": False
    }  # fmt: skip
    assert runs(got["backends"], "backend") == {"flash": False, "cudnn": False, "memory_efficient": True, "math": True}
    assert got["backends"][0]["reason"] == "needs compute capability 8.0, this has 7.5"


@pytest.mark.parametrize(
    ("gpu", "generations"),
    [
        ("a100-80gb-sxm", [True, True, False, False]),
        ("h100-sxm", [True, True, True, True]),
        ("b200", [None, True, False, True]),
        ("mi300x", [None, True, False, False]),
        ("v100-pcie", [False, False, False, False]),
        ("tpu-v5e", [False, False, False, False]),
        ("rubin-r200", [None, None, False, None]),
    ],
)
def test_generations(gpu: str, generations: list[bool | None]) -> None:
    """As the accelerator's record has it; what is not known is null."""
    assert [row["runs"] for row in result("attention", "--gpu", gpu, "--context", "1k")["generations"]] == generations


def test_sdpa_backends_are_those_of_gpus() -> None:
    """`gpus` and `attention` agree on every device; cuDNN's, which depends on the build, is in `attention` alone."""
    for row in result("gpus")["gpus"]:
        if row["sdpa_backends"] is not None:
            got = result("attention", "--gpu", row["id"], "--context", "1k")["backends"]
            assert [b["backend"] for b in got if b["runs"] and b["backend"] != "cudnn"] == row["sdpa_backends"]


@pytest.mark.parametrize(
    ("options", "backend", "reason"),
    [
        (("--dtype", "fp32"), "flash", "takes fp16 and bf16, not fp32"),
        (("--head-dim", "512"), "flash", "takes heads up to 256, these are 512"),
        (("--head-dim", "100"), "memory_efficient", "takes widths in multiples of 8"),
        (("--head-dim", "192"), "cudnn", "takes heads up to 128, these are 192"),
    ],
)
def test_why_a_backend_does_not_run(options: tuple[str, ...], backend: str, reason: str) -> None:
    """Each limit has its own words."""
    rows = {row["backend"]: row for row in result(*A100, *options, "--context", "1k")["backends"]}

    assert (rows[backend]["runs"], rows[backend]["reason"]) == (False, reason)
    assert rows["math"]["runs"] is True


def test_bf16_before_ampere() -> None:
    """Memory-efficient attention takes fp16 and fp32 on Turing, bf16 from Ampere on."""
    rows = {
        row["backend"]: row
        for row in result("attention", "--gpu", "t4", "--dtype", "bf16", "--context", "1k")["backends"]
    }

    assert rows["memory_efficient"]["reason"] == "takes bf16 from compute capability 8.0 on"


def test_keys_wider_than_values() -> None:
    """MLA's expanded heads of 192 and 128 have no flash backend; newer cuDNN may take them on Hopper."""
    rows = {row["backend"]: row for row in result("attention", "deepseek-v3", "--gpu", "h100-sxm")["backends"]}

    assert rows["flash"]["reason"] == "needs keys as wide as values, these are 192 and 128"
    assert rows["cudnn"]["runs"] is None
    assert rows["memory_efficient"]["runs"] is True


def test_extra_memory_of_twelve_heads() -> None:
    """12 heads, 16,384 tokens, fp16: scores of 6 GiB, of the math backend 12 and 24; a logsumexp of 768 KiB."""
    [row] = result("attention", "--heads", "12", "--context", "16k", "--shared-memory", "100KiB")["memory"]

    assert row["score_bytes"] == 6 * 2**30
    assert (row["math_score_bytes"], row["math_peak_bytes"]) == (12 * 2**30, 24 * 2**30)
    assert row["logsumexp_bytes"] == row["efficient_bytes"] == 768 * 2**10


def test_the_papers_example() -> None:
    """N 1,024, d 64, 16 heads, batch 64 on an A100: 9.13 GB of standard attention, the floor of 0.537 GB by the theorem."""
    [row] = result(*A100, "--heads", "16", "--head-dim", "64", "--batch", "64", "--context", "1k")["io"]

    assert row["standard_bytes"] == 9_126_805_504
    assert row["flash_bytes"] == row["compulsory_bytes"] == 536_870_912
    assert row["memory_elements"] == 163 * 1024 / 2


def test_shared_memory_replaces_the_devices() -> None:
    """Twice the memory halves the theorem's traffic: N^2 d^2 / M."""
    rows = [
        result(*A100, "--context", "16k", "--shared-memory", size)["io"][0]["flash_bytes"]
        for size in ("64 KiB", "128KiB")
    ]

    assert rows == [32 * 2**28 * 2**14 / 2**15 * 2, 32 * 2**28 * 2**14 / 2**16 * 2]


def test_a_format_of_four_bytes_halves_the_elements() -> None:
    """M in elements is bytes over the format's."""
    assert result(*A100, "--dtype", "fp32", "--context", "1k")["io"][0]["memory_elements"] == 163 * 1024 / 4


def test_decode_of_the_blog() -> None:
    """16 query and 2 KV heads on an A100: 103 splits of one sequence of 65,536, 2 blocks without."""
    rows = result(*A100, "--heads", "16", "--kv-heads", "2", "--context", "64k")["decode"]
    got = next(row for row in rows if row["kernel"] == "FlashAttention-2")

    assert (got["blocks"], got["splits"], got["split_blocks"]) == (2, 103, 206)
    assert got["busy_share"] == 2 / 108
    assert got["split_wave_efficiency"] == 206 / 216


def test_several_devices_batches_and_contexts() -> None:
    """A row each; extra memory is no device's."""
    got = result("attention", "--gpu", "a100-80gb-sxm,h100-sxm", "--batch", "1,8", "--context", "1k,4k")

    assert [(row["gpu"], row["batch"], row["context"]) for row in got["io"]] == [
        (gpu, batch, context) for gpu in ("a100-80gb-sxm", "h100-sxm") for batch in (1, 8) for context in (1024, 4096)
    ]
    assert len(got["memory"]) == 4


def test_a_model_has_its_own_heads() -> None:
    """Llama 3.1 8B: 32 query and 8 KV heads of 128."""
    got = result("attention", "llama-3.1-8b", "--gpu", "h100-sxm", "--context", "4k")

    [heads] = got["heads"]
    assert (heads["query_heads"], heads["kv_heads"], heads["key_width"]) == (32, 8, 128)
    assert got["io"][0]["standard_bytes"] == (2 * (32 + 8) * 4096 * 128 + 4 * 32 * 4096**2) * 2


def test_mla_decodes_one_latent() -> None:
    """DeepSeek-V3 attends to a prompt with 128 expanded heads and to a cache with one latent of 576, values 512."""
    [heads] = result("attention", "deepseek-v3", "--gpu", "h100-sxm")["heads"]

    assert (heads["kv_heads"], heads["key_width"], heads["value_width"]) == (128, 192, 128)
    assert (heads["decode_kv_heads"], heads["decode_key_width"], heads["decode_value_width"]) == (1, 576, 512)


def test_windows_are_kinds_of_their_own() -> None:
    """Gemma 3's layers of 1,024 tokens decode as many, not packed; over a prompt full attention is counted, and said."""
    data = answer("attention", "gemma-3-27b-it", "--gpu", "a100-80gb-sxm", "--context", "4k")
    got = data["result"]
    narrow = [row for row in got["decode"] if row["attention"] == "GQA window 1,024"]

    assert [row["attention"] for row in got["heads"]] == ["GQA window 1,024", "GQA"]
    assert len(got["io"]) == 1
    assert {row["context"] for row in narrow} == {1024}
    assert [row["packed"] for row in narrow if row["kernel"] == "FlashAttention-2"] == [False]
    assert any("1,024" in line for line in data["warnings"])


@pytest.mark.parametrize(
    "model",
    ["llama-2-7b", "gemma-3n-e4b", "gpt-oss-20b", "llama-4-scout-17b-16e", "zamba2-2.7b", "kimi-linear-48b-a3b"],
)
def test_names_of_kinds_tell_them_apart(model: str) -> None:
    """No two kinds of a model are called alike, and every layer with heads has one."""
    loaded = catalogued(model)
    kinds = kinds_of(loaded)
    mixers = {mixer for layer in loaded.spec.layers for mixer in layer.mixers if kind_of(mixer)}

    assert len({kind.name for kind in kinds}) == len(kinds)
    assert len(kinds) <= len(mixers)


def test_default_contexts_stay_within_the_model() -> None:
    """GPT-2 goes to 1,024 tokens; what is asked beyond is warned of."""
    assert answer("attention", "gpt2", "--gpu", "h100-sxm")["inputs"]["contexts"] == [1024]
    assert any("1,024" in line for line in answer("attention", "gpt2", "--context", "4k", "--gpu", "l4")["warnings"])


def test_without_a_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """What no device decides is answered all the same; --shared-memory adds the theorem."""
    monkeypatch.setattr("roofcast.hwdb.local.local_accelerators", list)
    bare, known = (result("attention", "--context", "4k", *more) for more in ((), ("--shared-memory", "100 KiB")))

    assert (bare["gpus"], bare["decode"], bare["backends"]) == ([], [], [])
    assert bare["io"][0]["flash_bytes"] is None
    assert known["io"][0]["flash_bytes"] == 32 * (2**24 * 2**14 / 51200) * 2
    assert known["io"][0]["standard_seconds"] is None
    assert "--gpu NAME" in roofcast("attention", "--context", "4k").out


def test_a_device_without_on_chip_memory() -> None:
    """The rest is answered, and the text says what is missing."""
    out = roofcast("attention", "--gpu", "tpu-v6e", "--context", "4k").out

    assert "tpu-v6e: its on-chip memory is not known; --shared-memory SIZE gives M" in out
    assert "tpu-v6e: how many SMs it has is not known" in out


def test_published_fractions() -> None:
    """The table of the papers: 25-40 % and 50-73 % on A100, 35 %, 75 % and 85 % on H100, 71 % on B200, with sources."""
    shares = {(row.generation[-1], row.gpu, row.format, row.low, row.high) for row in PUBLISHED if row.of == "peak"}

    assert shares >= {
        ("1", "A100", "fp16", 0.25, 0.40), ("2", "A100", "fp16", 0.50, 0.73), ("2", "H100", "fp16", 0.35, 0.35),
        ("3", "H100", "fp16", 0.75, 0.75), ("3", "H100", "bf16", 0.85, 0.85), ("4", "B200", "bf16", 0.71, 0.71),
    }  # fmt: skip
    assert all(row.source.startswith("https://") and row.low <= row.high < 1 for row in PUBLISHED)


def test_text_shows_the_fractions_of_the_device() -> None:
    """A100's on an A100, none of another capability; JSON has all."""
    out = roofcast(*A100, "--context", "1k").out

    assert "50-73% of peak" in out
    assert "75%" not in out
    assert len(result(*A100, "--context", "1k")["published"]) == len(PUBLISHED)


def test_recalled_facts_are_assumed() -> None:
    """Facts that were not read in a source are listed, and --strict refuses them; an A100's are read."""
    assert any("shared_memory_per_sm" in line for line in answer("attention", "--gpu", "p40")["assumptions"])
    assert answer(*A100)["assumptions"] == []
    refused(roofcast("attention", "--gpu", "p40", "--strict"), 3, "--strict", "p40")


@pytest.mark.parametrize(
    "command",
    [
        pytest.param(A100, id="heads"),
        pytest.param(
            ("attention", "gemma-3-27b-it", "--gpu", "a100-80gb-sxm,2080ti,mi300x", "--context", "4k"), id="model"
        ),
        pytest.param(("attention", "deepseek-v3", "--gpu", "h100-sxm", "--context", "4k"), id="latent"),
    ],
)
def test_every_format(command: tuple[str, ...]) -> None:
    """Text is aligned and at most 110 wide in tables, Markdown and CSV are rectangular."""
    out = roofcast(*command).out
    lines = out.split("\n")
    assert all(line.isprintable() and line == line.rstrip() for line in lines)
    for number, line in enumerate(lines):
        if line.startswith("─"):
            assert max(map(len, lines[number + 1 : lines.index("", number)])) <= len(line) <= 110
    markdown = roofcast(*command, "--format", "markdown").out
    for block in re.findall(r"(?:^\|.*\n)+", markdown, re.MULTILINE):
        assert len({len(re.findall(r"(?<!\\)\|", row)) for row in block.splitlines()}) == 1
    rows = list(csv.reader(io.StringIO(roofcast(*command, "--format", "csv").out)))
    assert {len(row) for row in rows} == {len(rows[0])}
    assert {row[0] for row in rows[1:]} == {"io", "memory", "decode", "backends", "generations", "published"}


BAD: list[tuple[tuple[str, ...], int, tuple[str, ...]]] = [
    (("--gpu", "nosuch"), 2, ("nosuch",)),
    (("--gpu", ""), 2, ("--gpu", "roofcast gpus")),
    (("--gpu", "h100,"), 2, ("--gpu",)),
    ((*A100[1:], "--heads", "0"), 2, ("--heads 0", "1")),
    ((*A100[1:], "--heads", "many"), 2, ("--heads",)),
    ((*A100[1:], "--kv-heads", "3"), 2, ("--kv-heads 3", "--heads 32")),
    ((*A100[1:], "--head-dim", "-1"), 2, ("--head-dim -1",)),
    (("--gpu", "t4", "--head-dim", "65536"), 2, ("--shared-memory", "--head-dim")),
    ((*A100[1:], "--context", "0"), 2, ("'0'",)),
    ((*A100[1:], "--context", "many"), 2, ("many", "4k")),
    ((*A100[1:], "--context", "2000m"), 2, ("--context", "at most")),
    ((*A100[1:], "--batch", "0"), 2, ("--batch 0",)),
    ((*A100[1:], "--queries", "0"), 2, ("--queries 0",)),
    ((*A100[1:], "--dtype", "fp8"), 2, ("fp8", "fp16, bf16, fp32")),
    ((*A100[1:], "--shared-memory", "100"), 2, ("--shared-memory 100", "KiB")),
    ((*A100[1:], "--shared-memory", "10 B"), 2, ("M = d", "--shared-memory")),
    ((*A100[1:], "--shared-memory", "10 PB"), 2, ("--shared-memory 10 PB",)),
    ((*A100[1:], "--seed", "1"), 2, ("--seed", "--check")),
    (("--check", "--seed", "-1"), 2, ("--seed -1",)),
    (("nosuch-model", "--offline"), 3, ("nosuch-model",)),
    (("llama-3.1-8b", *A100[1:], "--heads", "8"), 2, ("--heads", "MODEL")),
    (("falcon-mamba-7b", *A100[1:]), 3, ("falcon-mamba-7b", "--heads")),
    ((*A100[1:], "--batch", ",".join(map(str, range(1, 100))), "--context", ",".join(map(str, range(1, 100)))), 2, ("rows",)),
    ((*A100[1:], "--format", "nosuch"), 2, ("nosuch", "csv")),
    ((*A100[1:], "--out", "x.png"), 2, (".png",)),
    ((*A100[1:], "--explain", "nosuch"), 2, ("nosuch",)),
]  # fmt: skip


@pytest.mark.parametrize(("arguments", "code", "words"), BAD)
def test_bad_input(arguments: tuple[str, ...], code: int, words: tuple[str, ...]) -> None:
    """One line that names what is wrong and what would be right."""
    refused(roofcast("attention", *arguments), code, *words)


@pytest.mark.parametrize("term", ["flash_bytes", "SMs busy", "tiled", "wave eff.", "splits", "math peak"])
def test_columns_are_explained(term: str) -> None:
    """By their keys in JSON and by their headings."""
    outcome = roofcast("attention", "--explain", term)

    assert outcome.code == 0
    assert "Source: " in outcome.out
