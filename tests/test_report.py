"""The verdict of `report`, its parts and its formats."""

from __future__ import annotations

import csv
import io
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, Any

import pytest

from roofcast.calculators.report import Limits, Verdict, verdict_of
from tests.running import refused, result, roofcast

if TYPE_CHECKING:
    from pathlib import Path

    from roofcast.calculators.deployment import Ready

LLAMA = ("report", "llama-3.1-8b", "--gpu", "h100-sxm", "--engine", "vllm")
NONE = Limits()
QUICK = ("--other-gpus", "none", "--other-models", "none", "--api", "none")


@cache
def ready(*, expected: bool = True) -> Ready:
    """Llama 3.1 8B on an H100, all memory taken; with constants or without."""
    from roofcast.cli.deploy import Machine, deploy, efficiency_of, expecting
    from roofcast.cli.session import Lookup

    machine = Machine("h100-sxm", None, None, 1, 1, 1, None, "vllm")
    made = deploy("llama-3.1-8b", Lookup(None, offline=True), machine, None, None)
    return expecting(made, efficiency_of("expected" if expected else "bound")).ready


def judged(limits: Limits = NONE, *, expected: bool = True) -> Verdict:
    """Return the verdict under limits, of 4,096 tokens each."""
    return verdict_of(ready(expected=expected), 4096, 4096, limits)


@cache
def told(*options: str) -> dict[str, Any]:
    """Return the verdict that the command prints."""
    found: dict[str, Any] = result(*LLAMA, *QUICK, *options)["verdict"]
    return found


def test_one_sequence_alone_takes_the_weights_and_its_cache_through_memory() -> None:
    """15.01 GB of matrices and 4096 x 131,072 B over 3.35 TB/s: the bound of one sequence is 4.64 ms."""
    alone = judged(expected=False).alone

    assert alone is not None
    assert alone.tpot.bound_seconds == pytest.approx((15.01e9 + 4096 * 131_072) / 3.35e12, rel=0.002)
    assert (alone.tpot.expected_seconds, alone.bound_by) == (None, "memory")


@pytest.mark.parametrize("limit", [0.008, 0.012, 0.02])
def test_the_load_that_meets_a_limit_is_the_last_one_that_does(limit: float) -> None:
    """One sequence more misses it."""
    from roofcast.calculators.report import load_of

    met = judged(Limits(tpot_seconds=limit)).met

    assert met is not None
    assert (met.tpot.seconds or 0) <= limit
    assert (load_of(ready(), met.batch + 1, 4096).tpot.seconds or 0) > limit


def test_a_looser_limit_never_lets_fewer_in() -> None:
    """The load that meets a limit grows with it, up to what fits."""
    loads = [judged(Limits(tpot_seconds=limit / 1000)).met for limit in (7, 8, 10, 15, 20, 50, 500)]
    batches = [load.batch if load else 0 for load in loads]

    assert batches == sorted(batches)
    assert batches[-1] == judged().most_sequences


@pytest.mark.parametrize(
    ("limits", "status", "reason"),
    [
        ({}, "fits", None),
        ({"tpot_seconds": 0.012}, "meets", None),
        ({"ttft_seconds": 0.5, "tpot_seconds": 0.012}, "meets", None),
        ({"tpot_seconds": 0.001}, "misses", "tpot"),
        ({"ttft_seconds": 0.01}, "misses", "ttft"),
        ({"ttft_seconds": 0.01, "tpot_seconds": 0.012}, "misses", "ttft"),
    ],
)
def test_a_limit_that_one_sequence_alone_misses_is_missed(
    limits: dict[str, float], status: str, reason: str | None
) -> None:
    """Status and reason say which."""
    verdict = judged(Limits(**limits))

    assert (verdict.status, verdict.reason) == (status, reason)


def test_limits_are_held_against_the_expected_time_where_there_is_one() -> None:
    """A bound that meets the limit is not enough: one sequence needs 4.6 ms at least, and 6.7 ms are to be expected."""
    assert judged(Limits(tpot_seconds=0.005), expected=False).status == "meets"
    assert judged(Limits(tpot_seconds=0.005)).status == "misses"


def test_what_does_not_fit_has_no_loads() -> None:
    """A context that not one sequence has room for: the reason stands in the verdict, no time is made up."""
    verdict = verdict_of(ready(), 1_000_000, 4096, Limits(tpot_seconds=0.05))

    assert (verdict.status, verdict.most_sequences, verdict.alone, verdict.met) == ("does not fit", 0, None, None)
    assert "GB" in (verdict.reason or "")


def test_the_verdict_is_of_the_same_memory_as_fit() -> None:
    """Most sequences are those of `fit` under the engine's rules, flags and all."""
    options = ("--engine", "vllm", "--gpu-memory-utilization", "0.5")
    fit = result("fit", "llama-3.1-8b", "--gpu", "h100-sxm", *options, "--context", "4k")

    assert told("--gpu-memory-utilization", "0.5")["most_sequences"] == fit["contexts"][0]["max_sequences"]


def test_the_verdict_is_of_the_same_times_as_estimate() -> None:
    """TTFT and TPOT are those of `estimate`."""
    rows = result(
        "estimate", "llama-3.1-8b", "--gpu", "h100-sxm", "--engine", "vllm", "--batch", "1", "--context", "4k"
    )["phases"]
    verdict = told()

    assert verdict["ttft"]["expected_seconds"] == pytest.approx(rows[0]["expected_seconds"])
    assert verdict["alone"]["tpot"]["expected_seconds"] == pytest.approx(rows[1]["expected_seconds"])


@pytest.mark.parametrize("engine", ["none", "vllm", "sglang", "tensorrt-llm", "tgi", "lmdeploy"])
def test_levers_begin_at_the_verdict(engine: str) -> None:
    """The base row has as many sequences as the verdict, within the one that blocks round off."""
    found = result("report", "llama-3.1-8b", "--gpu", "h100-sxm", "--engine", engine, *QUICK)

    assert abs(found["levers"]["rows"][0]["max_sequences"] - found["verdict"]["most_sequences"]) <= 1


def test_what_ends_a_load_may_be_the_server_itself() -> None:
    """64 requests at most, and room for 113: not memory keeps the 65th out."""
    verdict = told("--max-num-seqs", "64")

    assert (verdict["most_sequences"], verdict["ends"]) == (64, "server")
    assert told()["ends"] == "memory"


def test_a_prompt_that_has_no_room_is_refused() -> None:
    """Requests of 8,192 tokens at most: one of 16,384 has no first token, and the error says why."""
    options = ("--max-model-len", "8k", "--prompt", "16k")

    refused(roofcast(*LLAMA, *QUICK, *options), 2, "--prompt 16,384", "8,192")


def test_contexts_are_those_that_the_server_takes() -> None:
    """A shorter longest request does not turn the section of what fits against the verdict."""
    fit = result(*LLAMA, *QUICK, "--max-model-len", "8k")["fit"]

    assert (fit["fits"], [row["context"] for row in fit["contexts"]]) == (True, [4096, 8192])


def told_lines(*options: str) -> str:
    """Return what stands above the sections."""
    return roofcast("report", *options, *QUICK).out.partition("\n\n")[0]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("qwen2.5-7b", "--gpu", "l4", "--engine", "vllm"), "it would with --max-model-len 100736: 24 of 4k at once"),
        (
            ("llama-3.1-8b", "--gpu", "h100", "--ttft", "1ms", "--tpot", "1ms"),
            "misses TTFT <= 1 ms and TPOT <= 1 ms: a prompt",
        ),
        (("llama-3.1-8b", "--gpu", "h100", "--ttft", "1s", "--tpot", "1ms"), "misses TPOT <= 1 ms: a token of one"),
        (("llama-2-7b", "--gpu", "h100", "--context", "32k"), "of 32k at once, beyond the 4,096 tokens of the model"),
        (("llama-2-7b", "--gpu", "h100", "--prompt", "8k"), "; a prompt of 8k is beyond the 4,096 tokens"),
        (("llama-3.1-70b", "--gpu", "rtx-4090"), "4,096 tokens would fit on 8 GPUs"),
        (("llama-3.1-8b", "--gpu", "h100", "--pp", "2"), "memory: all that programs see"),
        (
            ("llama-3.1-8b", "--gpu", "h100", "--engine", "sglang", "--max-running-requests", "10"),
            "the server runs no more",
        ),
        (
            ("llama-3.1-8b", "--gpu", "rtx-4090", "--engine", "llama.cpp", "--weights", "q4_k_m"),
            "the server runs no more",
        ),
    ],
)
def test_the_verdict_says_what_matters(options: tuple[str, ...], words: str) -> None:
    """Why it does not run and what would, which limits are missed, what is beyond the model, what ends the load."""
    assert words in told_lines(*options)


def test_measured_files_keep_what_they_say(tmp_path: Path) -> None:
    """What a file states stays; what it does not is taken from the deployment, and said."""
    file = tmp_path / "own.csv"
    file.write_text(
        "quantity,value,model,gpu,gpus,tp,engine,batch,context\n"
        "decode_seconds,0.01,llama-3.1-8b,rtx-4090,1,1,llama.cpp,1,512\n"
        "decode_seconds,0.01,llama-3.1-70b,h100-sxm,,,,1,512\n"
    )
    options = ("llama-3.1-70b", "--gpu", "h100-sxm", "--tp", "4", "--engine", "vllm", "--measured", str(file))
    points = result("report", *options, *QUICK)["measured"]["points"]

    assert {(row["model"], row["gpu"], row["gpus"], row["engine"]) for row in points} == {
        ("llama-3.1-8b", "rtx-4090", 1, "llama.cpp"),
        ("llama-3.1-70b", "h100-sxm", 4, "vllm"),
    }


def test_every_part_is_there() -> None:
    """All parts of the default report, and none of what does not apply: plans are of a rate or a promise."""
    whole = result(*LLAMA)
    few = result("report", "llama-3.1-8b", "--gpu", "b300", *QUICK, "--dp", "2")

    assert [name for name, part in whole.items() if part is None] == ["plan"]
    assert sorted(name for name, part in few.items() if part is None) == ["fit", "gpus", "measured", "plan"]


def test_text_has_a_section_a_part() -> None:
    """The verdict stands first, then titles with a sentence each, assumptions once at the end."""
    out = roofcast(*LLAMA, "--tpot", "12ms").out
    titles = [line for line in out.splitlines() if line.isupper() and "  " not in line]

    assert out.startswith("llama-3.1-8b on h100-sxm: meets TPOT <= 12 ms with up to ")
    assert titles == [
        "WHAT FITS",
        "SPEED OF A BATCH",
        "A SERVER UNDER LOAD",
        "ROOFLINE",
        "KV CACHE AGAINST CONTEXT",
        "BESIDE OTHER GPUS",
        "WHAT WOULD CHANGE IT",
        "WHAT IT COSTS",
        "THE CHEAPEST THAT WOULD DO",
        "HOW FAR OFF PREDICTIONS ARE",
        "WHERE THE NUMBERS ARE FROM",
    ]


def test_markdown_folds_its_sections() -> None:
    """A pull request sees the verdict; tables open on a click; the command stands below."""
    out = roofcast(*LLAMA, *QUICK, "--format", "markdown").out

    assert out.startswith("**llama-3.1-8b on h100-sxm: fits, 113 sequences of 4k at once**")
    assert out.count("<details>") == out.count("</details>") == 9
    assert "roofcast report llama-3.1-8b --gpu h100-sxm" in out.splitlines()[-1]


def test_csv_is_the_verdict_in_a_row() -> None:
    """One row: programs that want more take JSON."""
    [row] = csv.DictReader(io.StringIO(roofcast(*LLAMA, *QUICK, "--tpot", "12ms", "--format", "csv").out))

    assert (row["status"], row["most_sequences"], row["met_batch"]) == ("meets", "113", "30")


def test_charts_are_written_as_png_and_svg(tmp_path: Path) -> None:
    """Every chart of the page, into a folder that is made; Markdown beside it links them."""
    outcome = roofcast(*LLAMA, "--charts", str(tmp_path / "charts"), "--out", str(tmp_path / "r.md"))
    names = {path.name for path in (tmp_path / "charts").iterdir()}
    kinds = ("memory", "sweep", "latency", "spread", "roofline", "kv", "gpus", "points")

    assert outcome.code == 0, outcome.err
    assert names == {f"{kind}.{ending}" for kind in kinds for ending in ("png", "svg")}
    assert "](charts/roofline.png)" in (tmp_path / "r.md").read_text()


def test_what_is_read_is_never_written_over(tmp_path: Path) -> None:
    """Models beside, measured files and constants stay as they are."""
    config = tmp_path / "config.json"
    config.write_text("{}")
    for option, name in (("--other-models", tmp_path), ("--measured", config), ("--efficiency", config)):
        refused(roofcast(*LLAMA, option, str(name), "--out", str(config)), 2, "it is read as a part of")
    assert config.read_text() == "{}"


def test_a_chart_is_never_written_through_a_link(tmp_path: Path) -> None:
    """A link in the folder of charts is refused before anything is computed, and so is a protected file."""
    (tmp_path / "memory.png").symlink_to(tmp_path / "elsewhere")
    refused(roofcast(*LLAMA, "--charts", str(tmp_path)), 2, "--charts", "memory.png", "link")
    (tmp_path / "memory.png").unlink()
    (tmp_path / "kv.svg").write_text("mine")
    refused(roofcast(*LLAMA, "--charts", str(tmp_path), "--efficiency", str(tmp_path / "kv.svg")), 2, "it is read")
    refused(
        roofcast(*LLAMA, "--charts", str(tmp_path), "--out", str(tmp_path / "gpus.svg"), "--format", "json"), 2, "name"
    )
    (tmp_path / "kv.svg").chmod(0o444)
    refused(roofcast(*LLAMA, "--charts", str(tmp_path)), 2, "--charts", "kv.svg", "write-protected")
    assert {path.name for path in tmp_path.iterdir()} == {"kv.svg"}


def test_a_chart_is_written_for_a_reader_who_leaves(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A reader of the text that has seen enough does not cost the chart."""
    import typer

    from roofcast.cli import session

    def enough(_: str) -> None:
        raise typer.Exit(0)

    monkeypatch.setattr(session, "emit", enough)
    roofcast("kv", "gpt2", "--out", str(tmp_path / "k.svg"))

    assert (tmp_path / "k.svg").read_bytes().startswith(b"<?xml")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--tpot", "soon"), ("--tpot soon", "50ms")),
        (("--ttft", "0ms"), ("--ttft 0ms", "500ms")),
        (("--other-models", "a,,b"), ("--other-models",)),
        (("--other-gpus", "h100,h200,b200,a100,l40s,l4"), ("--other-gpus", "1 to 4")),
        (("--context", "4k,8k"), ("--context",)),
        (("--batch", "0"), ("--batch",)),
        (("--engine", "vlm"), ("vllm",)),
        (("--n-ctx", "4k"), ("n-ctx",)),
        (("--charts", "/dev/null"), ("--charts '/dev/null'", "a folder")),
        (("--charts", ""), ("--charts ''", "a folder")),
        (("--charts", "no/such"), ("--charts 'no/such'", "a folder that exists")),
        (("--out", "x.png"), ("--out x.png", "--charts FOLDER")),
        (("--tpot", "1e300s"), ("--tpot 1e300s", "3600s")),
        (("--ttft", "1e-300s"), ("--ttft 1e-300s", "1us")),
        (("--measured", "/no/such/file.json"), ("/no/such/file.json",)),
        (("--other-gpus", "nope"), ("--other-gpus", "'nope'")),
        (("--gpu-price", "dear"), ("--gpu-price dear", "2.50")),
        (("--output", "1,2"), ("--output 1,2",)),
    ],
)
def test_bad_input_is_refused_in_a_line(options: tuple[str, ...], words: tuple[str, ...]) -> None:
    """Exit code 2, the option and what would be right."""
    outcome = roofcast(*LLAMA, *QUICK, *options)

    refused(outcome, 2, *words)


def test_each_model_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Parts share what was read: the Hub is not asked twice for a model."""
    from roofcast.modelspec import source

    asked: list[str] = []
    resolve = source.resolve

    def counted(name: str, **options: Any) -> Any:
        asked.append(name)
        return resolve(name, **options)

    monkeypatch.setattr(source, "resolve", counted)
    outcome = roofcast(*LLAMA, "--other-gpus", "h200", "--other-models", "llama-2-7b,llama-3.1-8b")

    assert outcome.code == 0
    assert asked.count("llama-2-7b") == 1


def test_a_model_beside_that_is_the_same_stands_once() -> None:
    """The asked model is not compared with itself."""
    models = [row["model"] for row in result(*LLAMA, "--other-gpus", "none", "--api", "none")["kv"]["models"]]

    assert models == ["llama-3.1-8b", "llama-2-7b", "deepseek-v3"]


def test_limits_without_any_are_no_limits() -> None:
    """The default of both is none."""
    assert Limits() == replace(Limits(0.5), ttft_seconds=None)
