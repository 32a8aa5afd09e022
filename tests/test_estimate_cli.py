"""`roofline`, `estimate`, `levers` and `gpus --model` on the command line: what they take, what they refuse, what they write."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from roofcast.calculators.errors import UsageError
from roofcast.calculators.explain import TERMS
from tests.checkpoints import TINY, folder_of
from tests.running import answer, result, roofcast

ON_H200 = ("llama-3.1-8b", "--gpu", "h200-sxm")
# keys that other programs rely on
PHASE = {
    "phase", "batch", "context", "flops", "bytes", "intensity", "bound_seconds", "expected_seconds", "low_seconds",
    "high_seconds", "kernel_seconds", "host_seconds", "bound_by", "tokens_per_second", "expected_tokens_per_second", "terms",
}  # fmt: skip
FITTED = (
    "bound_seconds", "expected_seconds", "low_seconds", "high_seconds", "kernel_seconds", "host_seconds", "tokens_per_second",
    "expected_tokens_per_second",
)  # fmt: skip
ROW = {"phase", "batch", "context", "flops", "bytes", "intensity", "bound_seconds", "bound_by", "fits"}
# models of every kind of layer that the catalogue has
KINDS = (
    "llama-3.1-8b", "deepseek-v3", "deepseek-v3.2-exp", "gpt-oss-20b", "gemma-3-27b-it", "qwen3-next-80b-a3b",
    "nemotron-h-8b", "bamba-9b", "falcon-mamba-7b", "zamba2-2.7b", "lfm2-1.2b", "minimax-m2", "qwen3-30b-a3b", "mpt-7b",
)  # fmt: skip


def one(*arguments: str) -> Any:
    """Return the one phase that an `estimate` answers with."""
    (phase,) = result("estimate", *arguments)["phases"]
    return phase


def test_estimate_has_the_keys_of_the_contract() -> None:
    """`result.fits` and every key of a phase are there; what fits has an expected time, what does not has null."""
    got = result("estimate", *ON_H200)

    assert set(got) >= {"fits", "phases", "efficiency"}
    assert all(set(phase) >= PHASE for phase in got["phases"])
    assert {phase["fits"] for phase in got["phases"]} == {True, False}
    for phase in got["phases"]:
        assert all((phase[key] is not None and phase[key] > 0) == phase["fits"] for key in FITTED)


def test_roofline_has_the_keys_of_the_contract() -> None:
    """Every key of a row is there."""
    assert all(set(row) >= ROW for row in result("roofline", *ON_H200)["rows"])


def test_both_phases_at_the_default_batches_and_contexts() -> None:
    """Prefill and decode, batches 1, 16 and 64, contexts 4k, 32k and the model's maximum."""
    got = [(p["phase"], p["batch"], p["context"]) for p in result("estimate", *ON_H200)["phases"]]

    assert got == [(p, b, c) for p in ("prefill", "decode") for c in (4096, 32768, 131072) for b in (1, 16, 64)]


def test_prompt_and_context_are_the_same_in_prefill() -> None:
    """--prompt is prefill's, --context decode's; where one is given alone it is both's."""
    alone = result("estimate", *ON_H200, "--batch", "1", "--prompt", "2k")["phases"]
    both = result("estimate", *ON_H200, "--batch", "1", "--prompt", "2k", "--context", "8k")["phases"]
    prefill = ("--phase", "prefill", "--batch", "1")

    assert [phase["context"] for phase in alone] == [2048, 2048]
    assert [phase["context"] for phase in both] == [2048, 8192]
    assert one(*ON_H200, *prefill, "--context", "2k") == one(*ON_H200, *prefill, "--prompt", "2k")


def test_terms_sum_to_the_step() -> None:
    """FLOP, bytes and least times of the terms are those of the phase."""
    phase = one(*ON_H200, "--phase", "decode", "--batch", "16", "--context", "8k")

    for key in ("flops", "weight_bytes", "state_bytes", "bound_seconds"):
        assert sum(term[key] for term in phase["terms"]) == pytest.approx(phase[key])
    assert sum(term["share"] for term in phase["terms"]) == pytest.approx(1)


def test_a_row_that_does_not_fit_has_no_time() -> None:
    """FLOP, bytes and intensity stay, seconds are null, and the reason is said."""
    phase = one(
        "qwen2.5-1.5b", "--gpu", "2080ti", "--weights", "fp16", "--phase", "decode", "--batch", "64", "--context", "32k"
    )

    assert (phase["fits"], phase["bound_seconds"], phase["tokens_per_second"]) == (False, None, None)
    assert round(phase["intensity"]) == 9
    assert phase["bytes"] / 1e9 == pytest.approx(63.2, abs=0.1)
    assert "60.1 GB" in phase["reason"]


@pytest.mark.parametrize("model", KINDS)
def test_every_kind_is_answered_and_every_term_explained(model: str) -> None:
    """A model of each kind of layer is estimated in every phase on 16 GPUs, and each term it prints is one of --explain."""
    for phase in ("prefill", "decode", "mixed"):
        got = one(
            model, "--gpu", "gb200", "--pp", "8", "--dp", "2", "--phase", phase, "--batch", "4", "--context", "8k"
        )

        assert got["bound_seconds"] > 0
        assert {term["term"] for term in got["terms"]} <= TERMS.keys()


@pytest.mark.parametrize(
    "term", ["attn.decode", "moe.gate_up", "tp.all_reduce", "ep.dispatch", "pp.send", "bound_seconds"]
)
@pytest.mark.parametrize("command", ["estimate", "roofline", "levers", "gpus"])
def test_terms_are_explained(command: str, term: str) -> None:
    """`--explain TERM` needs neither model nor GPU."""
    outcome = roofcast(command, "--explain", term)

    assert (outcome.code, outcome.err) == (0, "")
    assert outcome.out.startswith(f"{term}: ")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("llama-3.1-8b",), "--gpu"),
        (("--gpu", "h200"), "MODEL is missing"),
        ((*ON_H200, "--gpu", "h201"), "h201"),
        ((*ON_H200, "--tp", "3"), "--tp must be one of 1, 2, 4, 8, 16, 32"),
        ((*ON_H200, "--tp", "0"), "--tp 0: it must be 1 or more"),
        ((*ON_H200, "--pp", "33"), "at most"),
        ((*ON_H200, "--ep", "2"), "no routed experts"),
        ((*ON_H200, "--dp", "-1"), "--dp -1: it must be 1 or more"),
        ((*ON_H200, "--gpus", "8", "--tp", "4"), "is not --tp x --pp x --dp, 4"),
        ((*ON_H200, "--gpus", "6", "--pp", "4"), "no multiple"),
        (("deepseek-v3", "--gpu", "h200", "--tp", "8", "--ep", "3"), "1, 2, 4, 8"),
        ((*ON_H200, "--batch", "0"), "--batch"),
        ((*ON_H200, "--batch", "1,x"), "--batch"),
        ((*ON_H200, "--context", "4k,0"), "--context"),
        ((*ON_H200, "--phase", "train"), "prefill, decode, mixed"),
        ((*ON_H200, "--engine", "vlm"), "nearest: vllm"),
        ((*ON_H200, "--efficiency", "best"), "expected, bound"),
        ((*ON_H200, "--weights", "fp7"), "no format 'fp7'"),
        ((*ON_H200, "--weights", "kivi2"), "no format 'kivi2'"),
        ((*ON_H200, "--network", "400"), "--network 400"),
        ((*ON_H200, "--network", "400 parsec"), "--network"),
        ((*ON_H200, "--prefix-hit", "100%"), "--prefix-hit"),
        ((*ON_H200, "--max-num-batched-tokens", "0"), "--max-num-batched-tokens"),
        ((*ON_H200, "--max-num-batched-tokens", "1"), "at most 20,000"),
        ((*ON_H200, "--phase", "mixed", "--batch", "4k"), "leaves no token"),
        ((*ON_H200, "--phase", "mixed", "--prefix-hit", "50%"), "--prefix-hit does not go"),
        ((*ON_H200, "--phase", "mixed", "--context", "4k", "--prompt", "1k,2k"), "takes one"),
        ((*ON_H200, "--phase", "decode", "--batch", "64", "--max-num-batched-tokens", "8"), "less than the 64"),
        (("deepseek-v3", "--gpu", "h200", "--ep", "8"), "--tp 8 or --dp 8"),
        (("deepseek-v3", "--gpu", "h200", "--tp", "64", "--dp", "1000000", "--ep", "256"), "at most 1,048,576 devices"),
        ((*ON_H200, "--dp", "1000000", "--pp", "2"), "at most 1,048,576 devices"),
        ((*ON_H200, "--batch", "999999999999999m"), "at most 1,073,741,824"),
        ((*ON_H200, "--network", "nan GB/s"), "write it like '400 Gbit/s'"),
        ((*ON_H200, "--format", "yaml"), "--format yaml"),
        ((*ON_H200, "--out", "x.pdf"), ".pdf"),
    ],
)
def test_bad_usage_of_estimate(
    arguments: tuple[str, ...], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each slip exits 2 with one line that names it, and writes nothing."""
    monkeypatch.chdir(tmp_path)
    outcome = roofcast("estimate", *arguments)

    assert (outcome.code, outcome.out) == (2, "")
    assert said in outcome.complaint
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("ending", "starts"), [("png", b"\x89PNG\r\n"), ("svg", b"<?xml")])
def test_roofline_draws_its_chart(ending: str, starts: bytes, tmp_path: Path) -> None:
    """--out x.png and x.svg hold the chart; stdout has the table all the same."""
    chart = tmp_path / f"chart.{ending}"
    outcome = roofcast("roofline", *ON_H200, "--out", str(chart))

    assert outcome.code == 0, outcome.err
    assert chart.read_bytes().startswith(starts)
    assert "FLOP/B" in outcome.out


def test_a_chart_of_too_many_contexts(tmp_path: Path) -> None:
    """More contexts than colours are refused before anything is drawn; so are more rows than anyone reads."""
    contexts = ",".join(f"{n}k" for n in range(1, 9))
    chart = tmp_path / "x.png"
    outcome = roofcast("roofline", *ON_H200, "--context", contexts, "--out", str(chart))

    assert outcome.code == 2
    assert "7 contexts apart and not 8" in outcome.complaint
    assert not chart.exists()
    many = ",".join(map(str, range(1, 200)))
    assert "at most 2,000" in roofcast("estimate", *ON_H200, "--batch", many, "--context", many).complaint


def test_a_chart_has_no_other_format(tmp_path: Path) -> None:
    """--format beside a chart's ending is refused, and nothing is written."""
    outcome = roofcast("roofline", *ON_H200, "--out", str(tmp_path / "x.png"), "--format", "json")

    assert outcome.code == 2
    assert "leave it out" in outcome.complaint
    assert list(tmp_path.iterdir()) == []


def test_strict_refuses_an_assumed_network(tmp_path: Path) -> None:
    """Between domains the network is assumed unless --network says it; --strict then writes no chart either."""
    apart = ("llama-3.1-8b", "--gpu", "h200-sxm", "--tp", "8", "--dp", "2", "--strict")
    chart = tmp_path / "x.svg"

    assert roofcast("roofline", *apart, "--out", str(chart)).code == 0  # dense replicas exchange nothing
    moe = ("deepseek-v3", "--gpu", "h200-sxm", "--dp", "16", "--ep", "16", "--strict")
    assert roofcast("roofline", *moe).code == 3
    assert roofcast("roofline", *moe, "--network", "400 Gbit/s").code == 0


def test_levers_compare_with_the_gpus_named() -> None:
    """--other-gpus names the devices to compare with; a name that is none is refused."""
    rows = result("levers", *ON_H200, "--other-gpus", "mi300x,b200")["rows"]

    assert [row["change"] for row in rows if row["lever"] == "gpu"] == ["mi300x", "b200"]
    assert roofcast("levers", *ON_H200, "--other-gpus", "mi301").code == 2
    assert roofcast("levers", *ON_H200, "--batch", "1,2").code == 2


def test_gpus_hold_a_model_against_their_ridge_points() -> None:
    """Below the ridge memory is the limit: batch 1 of decode everywhere, prefill nowhere."""
    got = result("gpus", "2080ti", "h200", "--model", "llama-3.1-8b", "--batch", "1")["gpus"]

    assert [[work["bound_by"] for work in gpu["intensities"]] for gpu in got] == [["compute", "memory"]] * 2
    assert got[0]["intensities"][1]["computed_in"] == "fp16"
    assert result("gpus", "h200")["gpus"][0]["intensities"] is None


ONLY: dict[str, str] = {"fp8": "fp8", "int8": "int8", "fp4": "fp4", "fp64": "fp64"}


@pytest.mark.parametrize("peak", ONLY)
def test_a_device_that_states_no_peak_to_compute_in(peak: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file with one odd peak is refused by name where it is asked, is one row of others, and breaks no list."""
    folder = tmp_path / "accelerators"
    folder.mkdir()
    text = f"id: odd\nname: Odd\nmemory: 48 GB\nbandwidth: 1 TB/s\npeaks: {{{peak}: 200 TFLOP/s}}\nsources: [{{title: t}}]\n"
    (folder / "odd.yaml").write_text(text)
    monkeypatch.setenv("ROOFCAST_HOME", str(tmp_path))
    for command in ("estimate", "roofline", "levers"):
        outcome = roofcast(command, "llama-3.1-8b", "--gpu", "odd")
        assert (outcome.code, outcome.out) == (2, "")
        assert "odd states no peak for bf16" in outcome.complaint

    rows = result("levers", *ON_H200, "--other-gpus", "odd")["rows"]
    assert "no peak for bf16" in next(row["reason"] for row in rows if row["change"] == "odd")
    listed = {
        gpu["id"]: gpu["intensities"] for gpu in result("gpus", "--model", "llama-3.1-8b", "--batch", "1")["gpus"]
    }
    assert {(one["ridge"], one["bound_by"]) for one in listed["odd"]} == {(None, None)}
    assert all(one["ridge"] for one in listed["h200-sxm"])
    assert roofcast("gpus", "odd", "h200", "--model", "llama-3.1-8b").code == 0


def test_gpus_never_replaces_the_model_that_it_reads(tmp_path: Path) -> None:
    """--out that names the model's own file is refused, and the file stays."""
    folder = folder_of(tmp_path / "m", TINY)
    before = (tmp_path / "m" / "config.json").read_bytes()
    outcome = roofcast("gpus", "h100", "--model", folder, "--out", f"{folder}/config.json")

    assert outcome.code == 2
    assert outcome.complaint.startswith(f"--out {folder}/config.json: it is read as a part of")
    assert (tmp_path / "m" / "config.json").read_bytes() == before


@pytest.mark.parametrize("option", ["--batch", "--context", "--weights", "--kv", "--encoder-tokens"])
def test_gpus_without_a_model_takes_no_options_of_one(option: str) -> None:
    """An option that would be ignored is refused."""
    assert f"{option} is of --model" in roofcast("gpus", "h100", option, "1").complaint


def test_levers_say_what_their_rows_assume() -> None:
    """More devices than a domain has bring a network that is assumed: listed, and refused with --strict."""
    said = answer("levers", *ON_H200, "--tp", "8")["assumptions"]

    assert any(line.startswith("tensor parallel 16: between domains") for line in said)
    assert roofcast("levers", *ON_H200, "--tp", "8", "--strict").code == 3
    assert roofcast("levers", *ON_H200, "--tp", "8", "--strict", "--network", "400 Gbit/s").code == 0


def test_prompts_of_prefill_beside_a_context() -> None:
    """Several prompts are a list in prefill, whatever --context says of decode; only a mixed step takes one."""
    phases = result("estimate", *ON_H200, "--batch", "1", "--prompt", "2k,1k", "--context", "4k")["phases"]

    assert [(phase["phase"], phase["context"]) for phase in phases] == [
        ("prefill", 2048),
        ("prefill", 1024),
        ("decode", 4096),
    ]


def test_a_chart_is_not_written_where_its_table_cannot_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """stdout that is closed fails the call before the file is touched."""
    chart = tmp_path / "x.png"
    monkeypatch.setattr("roofcast.cli.session.emit", refuse)

    assert roofcast("roofline", *ON_H200, "--out", str(chart)).code == 2
    assert not chart.exists()


def refuse(text: str) -> None:
    """Stand in for a stdout that takes nothing."""
    raise UsageError(f"the answer cannot be written: {len(text)} characters")


def drawn(where: Path, **env: str) -> subprocess.CompletedProcess[bytes]:
    """Draw a chart in a fresh interpreter, in a folder and an environment."""
    command = [sys.executable, "-P", "-m", "roofcast", "roofline", *ON_H200, "--out", "x.svg"]
    return subprocess.run(command, capture_output=True, check=False, cwd=where, env={**os.environ, **env}, timeout=60)


def test_charts_have_settings_of_their_own(tmp_path: Path) -> None:
    """A backend, a matplotlibrc or a missing home that a user has for something else changes no chart, and is not told."""
    (tmp_path / "matplotlibrc").write_text("axes.facecolor: red\nfont.size: 40\n")
    plain, odd = drawn(tmp_path.parent), drawn(tmp_path, MPLBACKEND="nonsense", HOME="/proc/nohome")

    assert (plain.returncode, plain.stderr, odd.returncode, odd.stderr) == (0, b"", 0, b"")
    assert (tmp_path / "x.svg").read_bytes() == (tmp_path.parent / "x.svg").read_bytes()


def test_a_broken_matplotlibrc_is_named(tmp_path: Path) -> None:
    """What keeps matplotlib from starting is one line, and no file is left."""
    (tmp_path / "matplotlibrc").write_bytes(b"axes.facecolor: \xff")
    done = drawn(tmp_path)

    assert done.returncode == 2
    assert done.stderr.startswith(b"roofcast: the chart cannot be drawn, matplotlib does not start here")
    assert done.stderr.count(b"\n") == 1
    assert not (tmp_path / "x.svg").exists()


def test_inputs_repeat_the_question() -> None:
    """What was asked, defaults filled in, comes back under `inputs`."""
    inputs = answer("estimate", *ON_H200, "--batch", "2", "--context", "1k", "--prefix-hit", "50%")["inputs"]

    assert inputs["batches"] == [2]
    assert inputs["prefix_hit"] == 0.5
    assert (inputs["tp"], inputs["kv"], inputs["efficiency"]) == (1, "bf16", "expected")
