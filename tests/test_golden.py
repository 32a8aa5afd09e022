"""Whole outputs, byte for byte: a changed number shows as a diff to be reviewed. `make golden` rewrites them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.running import roofcast

GOLDEN = Path(__file__).parent / "golden"
FIVE = ("llama-3.1-8b", "llama-2-7b", "qwen2.5-7b", "mistral-7b-v0.3", "deepseek-v3")
SAVED = "tests/fixtures/profiles/made-up.json"  # of fixed, made-up times
SAMPLE = "tests/fixtures/sample_repository"
PLAN = ("plan", "llama-3.1-8b", "--engine", "vllm", "--prompt", "1k", "--output", "200", "--jobs", "1")
PRICED = ("--gpu", "h100,l40s,l4", "--gpu-price", "h100=2.50,l40s=1.00,l4=0.50")
PROMISED = ("--ttft", "500ms", "--tpot", "50ms", "--percentile", "90")
# file -> the command whose output it holds; its ending names the format
CASES: dict[str, tuple[str, ...]] = {
    "kv-five-bf16-128k.txt": ("kv", *FIVE, "--context", "128k", "--weights", "bf16"),
    "kv-five-bf16-128k.json": ("kv", *FIVE, "--context", "128k", "--weights", "bf16"),
    "kv-five-stored.md": ("kv", *FIVE),
    "kv-five-stored.csv": ("kv", *FIVE),
    "kv-windows.json": ("kv", "mistral-7b-v0.1", "opt-13b", "gpt2"),
    "kv-hybrids.txt": ("kv", "qwen3.6-35b-a3b", "gemma-3-27b-it", "llama-3.1-8b"),
    "kv-hybrids.json": ("kv", "qwen3.6-35b-a3b", "gemma-3-27b-it", "--context", "128k", "--mtp"),
    "model-qwen3.6-35b-a3b.txt": ("model", "qwen3.6-35b-a3b"),
    "model-deepseek-v3.txt": ("model", "deepseek-v3"),
    "model-deepseek-v3.json": ("model", "deepseek-v3"),
    "model-mixtral-8x7b.json": ("model", "mixtral-8x7b"),
    "gpus-ridges.txt": ("gpus", "2080ti", "a100-80gb", "a100-40gb", "h100", "h100-pcie", "h200"),
    "gpus-h100.txt": ("gpus", "h100-sxm"),
    "gpus-h100.json": ("gpus", "h100-sxm"),
    "fit-llama-3.1-8b-h100.txt": ("fit", "llama-3.1-8b", "--gpu", "h100-sxm", "--engine", "none", "--reserve", "10%"),
    "fit-llama-3.1-8b-h100.json": ("fit", "llama-3.1-8b", "--gpu", "h100-sxm", "--engine", "none", "--reserve", "10%"),
    "fit-llama-3.1-405b-h100.txt": ("fit", "llama-3.1-405b", "--gpu", "h100-sxm"),
    "fit-llama-3.1-405b-h100.json": ("fit", "llama-3.1-405b", "--gpu", "h100-sxm"),
    "fit-deepseek-v3-8xh200.json": ("fit", "deepseek-v3", "--gpu", "h200-sxm", "--tp", "8", "--context", "4k,128k"),
    "fit-deepseek-v3-8xh200.md": ("fit", "deepseek-v3", "--gpu", "h200-sxm", "--tp", "8", "--context", "4k,128k"),
    "speculate-formulas.txt": ("speculate", "--draft-cost", "0.05"),
    "speculate-formulas.csv": ("speculate", "--acceptance", "0.6,0.8,0.9", "--k", "4"),
    "speculate-rule.json": ("speculate", "--check", "--draws", "5000", "--seed", "1"),
    "speculate-llama-3.1-8b-h100.txt": (
        "speculate",
        "llama-3.1-8b",
        "--gpu",
        "h100-sxm",
        "--k",
        "1,4",
        "--batch",
        "1,256",
    ),
    "speculate-deepseek-v3-8xh200.json": (
        "speculate",
        "deepseek-v3",
        "--gpu",
        "h200-sxm",
        "--tp",
        "8",
        "--acceptance",
        "0.85",
        "--k",
        "1",
        "--batch",
        "1,64",
    ),
    "speculate-llama-3.1-70b-draft.md": (
        "speculate",
        "llama-3.1-70b",
        "--gpu",
        "h100-sxm",
        "--tp",
        "4",
        "--draft",
        "llama-3.1-8b",
        "--k",
        "3",
        "--batch",
        "1",
    ),
    "price-llama-3.1-8b-h100.txt": (
        *("price", "llama-3.1-8b", "--gpu", "h100-sxm", "--context", "1k", "--batch", "32,64,128,256"),
        *("--gpu-price", "2", "--ratio", "5", "--api", "deepseek-flash,gemini-2.5-pro,claude-opus-5"),
    ),
    "price-deepseek-v3-8xh200.json": (
        *(
            "price",
            "deepseek-v3",
            "--gpu",
            "h200-sxm",
            "--tp",
            "8",
            "--ep",
            "8",
            "--engine",
            "vllm",
            "--gpu-price",
            "2",
        ),
        *(
            "--mix",
            "1000:100x3,100:1000",
            "--batch",
            "64,256",
            "--ratio",
            "5",
            "--rate",
            "10",
            "--api",
            "deepseek-v4-pro",
        ),
    ),
    "price-llama-3.1-8b-h100.csv": (
        *("price", "llama-3.1-8b", "--gpu", "h100-sxm", "--gpu-cost", "30000", "--power-price", "0.12", "--pue", "1.3"),
        *("--utilisation", "50%", "--prefix-hit", "50%", "--batch", "1,64"),
    ),
    "price-prefix.md": (
        *("price", "--mix", "250000:1000", "--shared-prefix", "200000", "--hit-rate", "90%", "--rate", "100/h"),
        *("--kept", "1h", "--api", "claude-sonnet-4-5,gpt-5.5,gemini-2.5-pro"),
    ),
    "price-day.txt": (
        *(
            "price",
            "--api",
            "deepseek-reasoner",
            "--date",
            "2025-02-28",
            "--input-tokens",
            "608e9",
            "--prefix-hit",
            "56.3%",
        ),
        *("--output-tokens", "168e9", "--gpus", "1814", "--gpu-price", "2"),
    ),
    "roofline-qwen2.5-1.5b-2080ti.txt": (
        "roofline",
        "qwen2.5-1.5b",
        "--gpu",
        "2080ti",
        "--weights",
        "fp16",
        "--kv",
        "fp16",
        "--batch",
        "1,16,64,256",
        "--context",
        "1k,4k,32k",
    ),
    "estimate-llama-3.1-8b-h200.json": (
        "estimate",
        "llama-3.1-8b",
        "--gpu",
        "h200-sxm",
        "--batch",
        "1,64",
        "--context",
        "1k",
    ),
    "estimate-deepseek-v3-16xh200.txt": (
        "estimate",
        "deepseek-v3",
        "--gpu",
        "h200-sxm",
        "--dp",
        "16",
        "--ep",
        "16",
        "--batch",
        "1024",
        "--context",
        "4k",
    ),
    "estimate-qwen3-30b-a3b-h200.csv": (
        "estimate",
        "qwen3-30b-a3b",
        "--gpu",
        "h200-sxm",
        "--phase",
        "decode",
        "--batch",
        "1,4,16,64,256",
        "--context",
        "1k",
    ),
    "levers-llama-3.1-8b-h100.md": ("levers", "llama-3.1-8b", "--gpu", "h100-sxm", "--context", "32k"),
    "levers-deepseek-v3-8xh200.json": ("levers", "deepseek-v3", "--gpu", "h200-sxm", "--tp", "8", "--context", "32k"),
    "gpus-llama-3.1-8b.txt": ("gpus", "2080ti", "h100-sxm", "h200-sxm", "--model", "llama-3.1-8b", "--context", "4k"),
    "attention-llama-3.1-8b-a100-2080ti.txt": (
        "attention",
        "llama-3.1-8b",
        "--gpu",
        "a100-80gb-sxm,rtx-2080-ti",
        "--context",
        "1k,16k,128k",
    ),
    "attention-deepseek-v3-h100.json": ("attention", "deepseek-v3", "--gpu", "h100-sxm", "--context", "4k"),
    "validate-published.txt": ("validate", "--worst", "10"),
    "validate-published-bounds.md": ("validate", "--efficiency", "bound", "--by", "quantity,class", "--worst", "3"),
    "profile-compare.txt": ("profile", "compare", "--from", SAVED, "--efficiency", "bound"),
    "profile-compare.md": ("profile", "compare", "--from", SAVED, "--efficiency", "bound", "--phase", "decode"),
    "profile-compare.csv": ("profile", "compare", "--from", SAVED, "--efficiency", "bound", "--phase", "decode"),
    **dict.fromkeys(
        ("report-llama-3.1-8b-h100.txt", "report-llama-3.1-8b-h100.json", "report-llama-3.1-8b-h100.md"),
        (
            *("report", "llama-3.1-8b", "--gpu", "h100-sxm", "--engine", "vllm", "--ttft", "500ms", "--tpot", "12ms"),
            *("--gpu-price", "2.50", "--batch", "1,64", "--other-gpus", "h200-sxm", "--other-models", "llama-2-7b"),
            *("--api", "deepseek-flash"),
        ),
    ),
    "report-deepseek-v3-8xh200.html": (
        *("report", "deepseek-v3", "--gpu", "h200-sxm", "--tp", "8", "--ep", "8", "--engine", "sglang"),
        *("--batch", "1,64", "--other-gpus", "b200", "--api", "none"),
    ),
    "report-does-not-fit.html": (
        *("report", "llama-3.1-405b", "--gpu", "h100-sxm", "--other-gpus", "none", "--other-models", "none"),
        *("--api", "none"),
    ),
    **dict.fromkeys(
        ("plan-llama-3.1-8b.txt", "plan-llama-3.1-8b.json", "plan-llama-3.1-8b.csv", "plan-llama-3.1-8b.md"),
        (*PLAN, *PRICED, "--rate", "4", *PROMISED),
    ),
    "plan-missed.txt": (
        *(*PLAN, "--gpu", "l4", "--gpu-price", "0.50", "--max-gpus", "2", "--rate", "4", "--ttft", "500ms"),
        *("--tpot", "30ms", "--percentile", "90"),
    ),
    "plan-find-rate.txt": (*PLAN, "--gpu", "h100", "--gpu-price", "2.50", "--find", "rate", *PROMISED),
    "kv-two.html": ("kv", "llama-3.1-8b", "llama-2-7b"),
    "explain-cache_bytes.txt": ("kv", "--explain", "cache_bytes"),
    "check-sample.txt": ("check", f"{SAMPLE}/roofcast.yaml", "--baseline", f"{SAMPLE}/roofcast-baseline.json"),
    "check-failing.txt": ("check", f"{SAMPLE}/failing.yaml"),
    "check-failing.json": ("check", f"{SAMPLE}/failing.yaml"),
    "check-failing.md": ("check", f"{SAMPLE}/failing.yaml"),
    "check-failing.xml": ("check", f"{SAMPLE}/failing.yaml"),
    "check-undetermined.csv": ("check", f"{SAMPLE}/undetermined.yaml"),
    "check-undetermined.xml": ("check", f"{SAMPLE}/undetermined.yaml"),
}
# a file's name without its ending -> the exit code of its command, where that is another than 0
CODES = {"check-failing": 1, "check-undetermined": 3}
FORMATS = {".txt": "text", ".json": "json", ".csv": "csv", ".md": "markdown", ".xml": "junit", ".html": "html"}
# charts are drawings of the release of matplotlib: their own tests hold them by structure
DRAWN = re.compile(r"(<svg\b[^>]*>\s*<title[^>]*>.*?</title>\s*<desc[^>]*>.*?</desc>).*?(</svg>)", re.DOTALL)
STYLE = re.compile(r"(<style>).*?(</style>)", re.DOTALL)  # a file of its own


@pytest.mark.parametrize("name", CASES)
def test_output_is_the_golden_one(name: str, monkeypatch: pytest.MonkeyPatch, *, update_golden: bool) -> None:
    """A command prints what its golden file holds."""
    path = GOLDEN / name
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "0")
    outcome = roofcast(*CASES[name], "--format", FORMATS[path.suffix])

    assert outcome.code == CODES.get(path.stem, 0), outcome.err
    out = STYLE.sub(r"\1\2", DRAWN.sub(r"\1\2", outcome.out))
    if update_golden:
        path.write_text(out, encoding="utf-8")
    assert out == path.read_text(encoding="utf-8")


def test_every_golden_file_has_its_command() -> None:
    """No golden file is left over from a case that is gone."""
    assert {path.name for path in GOLDEN.iterdir()} - CASES.keys() == set()


def test_golden_files_are_of_no_machine(repository: Path) -> None:
    """Golden files hold no path, user or host of the machine that wrote them."""
    for path in GOLDEN.iterdir():
        text = path.read_text(encoding="utf-8")
        assert [word for word in (str(repository), str(Path.home()), "/tmp", "127.0.0.1") if word in text] == []  # noqa: S108
