"""`roofcast profile` on the CPU: tiny models, few repeats, whole commands; no time is asserted."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

torch = pytest.importorskip("torch")

from jsonschema import Draft202012Validator  # noqa: E402 - after the skip

from roofcast.cli import profiling  # noqa: E402
from roofcast.profiler import runtime as runtimes  # noqa: E402
from roofcast.profiler import steps as stepping  # noqa: E402
from roofcast.profiler import timing  # noqa: E402
from roofcast.profiler.errors import OutOfMemoryError, WrongOutputError  # noqa: E402
from roofcast.profiler.timing import time_work  # noqa: E402
from roofcast.reports.schema import json_schema  # noqa: E402
from tests.checkpoints import TINY, folder_of  # noqa: E402
from tests.profile_values import LAPTOP, device  # noqa: E402
from tests.running import answer, refused, roofcast  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

CPU = ("--device", "cpu")
FP32 = ("--weights", "fp32")
MIXTRAL = TINY | {"model_type": "mixtral", "num_local_experts": 4, "num_experts_per_tok": 2}
pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take made-up roofs, and few repeats of all else."""
    monkeypatch.setattr(
        "roofcast.profiler.device.quick_roofs", lambda runtime, *_: replace(device(LAPTOP), machine=runtime.machine)
    )
    monkeypatch.setattr(timing, "LEAST", 2)
    monkeypatch.setattr(timing, "WARM", 1)
    monkeypatch.setattr(stepping, "PART_SPAN", 0.0)
    monkeypatch.setattr(stepping, "time_work", lambda *given, **named: time_work(*given, **{**named, "span": 0.0}))


@pytest.fixture
def tiny(tmp_path: Path) -> str:
    """Give the folder of a Llama of two layers and 64 elements."""
    return str(folder_of(tmp_path / "tiny", TINY))


def test_decode_prints_steps_families_and_roofs(tiny: str) -> None:
    """Every point is a row, with families below it; the CPU is not in the database."""
    outcome = roofcast("profile", "decode", tiny, *CPU, *FP32, "--batch", "1,4", "--context", "32")

    assert outcome.code == 0, outcome.err
    assert outcome.out.startswith("tiny in fp32, random weights, on ")
    assert "decode: a token of each sequence" in outcome.out
    assert "attn_decode" in outcome.out
    assert "is not in the database" in outcome.out
    assert outcome.err == ""


def test_json_validates_and_validate_reads_it(tiny: str, tmp_path: Path) -> None:
    """Points, terms, parts and measurements; a profile of a machine that is not known cannot be predicted."""
    path = tmp_path / "decode.json"
    found = answer("profile", "decode", tiny, *CPU, *FP32, "--batch", "1,4", "--context", "32")
    path.write_text(json.dumps(found))

    Draft202012Validator(json_schema("profile")).validate(found)
    points = found["result"]["points"]
    assert [(point["batch"], point["context"], point["launched"]) for point in points] == [
        (1, 32, "eager"),
        (4, 32, "eager"),
    ]
    names = [part["name"] for part in points[0]["parts"]]
    assert {"embedding", "attn.qkv", "attn.decode", "attn.out", "ffn.gate_up", "ffn.down", "head"} <= set(names)
    assert {row["name"] for row in points[0]["terms"]} == {*names, "between kernels"}
    assert all(row["flops"] or row["family"] == "elementwise" for row in points[0]["terms"][:-1])
    assert [row["quantity"] for row in found["result"]["measurements"]] == ["decode_seconds"] * 2
    assert "no accelerator" in roofcast("validate", str(path), "--offline").err


def test_a_profile_compares_with_itself_saved(tiny: str, tmp_path: Path) -> None:
    """`compare --from` shows the same times."""
    path = tmp_path / "profile.json"
    assert (
        roofcast(
            "profile",
            "compare",
            tiny,
            *CPU,
            *FP32,
            "--batch",
            "1",
            "--context",
            "32",
            "--prompt",
            "16",
            "--out",
            str(path),
        ).code
        == 0
    )
    saved, again = json.loads(path.read_text()), answer("profile", "compare", "--from", str(path))

    assert again["result"]["points"] == saved["result"]["points"]
    assert [point["phase"] for point in saved["result"]["points"]] == ["prefill", "decode"]


def test_prefill_of_experts(tmp_path: Path) -> None:
    """Routed experts are a term; how tokens are sent is said."""
    folder = str(folder_of(tmp_path / "experts", MIXTRAL))
    found = answer("profile", "prefill", folder, *CPU, *FP32, "--prompt", "16", "--routing", "balanced")

    [point] = found["result"]["points"]
    assert point["routing"] == "balanced"
    assert "moe.experts" in [part["name"] for part in point["parts"]]


def test_weights_are_as_stored(tiny: str) -> None:
    """A config in bf16 is measured in bf16, nothing assumed."""
    found = answer("profile", "prefill", tiny, *CPU, "--prompt", "8")

    assert found["result"]["weights"] == "bf16"
    assert found["assumptions"] == []


def test_the_chart(tiny: str, tmp_path: Path) -> None:
    """Is drawn beside the text."""
    chart = tmp_path / "roofline.png"
    outcome = roofcast("profile", "prefill", tiny, *CPU, *FP32, "--prompt", "8", "--out", str(chart))

    assert outcome.code == 0, outcome.err
    assert "prefill by family" in outcome.out
    assert chart.read_bytes().startswith(b"\x89PNG")


def test_a_point_that_does_not_fit_is_a_row(tiny: str) -> None:
    """The others are measured; where none is, the exit code says so."""
    lone = roofcast("profile", "decode", tiny, *CPU, *FP32, "--batch", "65536", "--context", "64k")
    both = roofcast("profile", "decode", tiny, *CPU, *FP32, "--batch", "1,1m", "--context", "64k")

    assert both.code == 0, both.err
    assert "did not run: caches of " in both.out
    assert lone.code == 3
    assert "did not run" in lone.out
    assert lone.complaint.startswith("no step could be measured: caches of ")


def test_memory_that_runs_out_while_a_step_runs_is_a_row(tiny: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever raises it."""
    seen: list[int] = []

    def short(*given: Any, **named: Any) -> object:
        seen.append(1)
        if len(seen) == 1:
            raise OutOfMemoryError("out of memory here")
        return time_work(*given, **named)

    monkeypatch.setattr(stepping, "time_work", short)
    points = answer("profile", "decode", tiny, *CPU, *FP32, "--batch", "1,2", "--context", "16")["result"]["points"]

    assert [point["problem"] for point in points] == ["out of memory here", None]


def test_output_that_is_no_number_fails_the_run(tiny: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A time of a step that writes nothing means nothing."""

    def wrong(*_: object) -> None:
        raise WrongOutputError("decode of 1 at 16: 100 of 100 outputs were not written")

    monkeypatch.setattr(stepping, "check_written", wrong)

    refused(roofcast("profile", "decode", tiny, *CPU, *FP32, "--context", "16"), 3, "outputs were not written")


def stop_at(monkeypatch: pytest.MonkeyPatch, number: int, act: Callable[[], object]) -> None:
    """Act before the numbered step is timed, counted from 0."""
    before = stepping._timed
    seen: list[int] = []

    def timed(*given: Any) -> object:
        seen.append(1)
        if len(seen) == number + 1:
            act()
        return before(*given)

    monkeypatch.setattr(stepping, "_timed", timed)


def interrupt() -> None:
    """Do what Ctrl-C does."""
    raise KeyboardInterrupt


def test_ctrl_c_keeps_what_is_done(tiny: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The points that are done are printed, the others named; exit 130."""
    stop_at(monkeypatch, 1, interrupt)
    outcome = roofcast("profile", "decode", tiny, *CPU, *FP32, "--batch", "1,2,4", "--context", "16")

    assert outcome.code == 130
    assert "interrupted: not measured: decode of 2 at 16, decode of 4 at 16" in outcome.out
    assert "attn_decode" in outcome.out
    assert outcome.complaint == "interrupted"


def test_the_budget_ends_it_after_the_point_at_hand(tiny: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Exit 0, with a warning of what is left, in JSON too."""
    monkeypatch.setattr(timing.Budget, "spent", property(lambda self: self.seconds is not None and self.seconds < 1))
    stop_at(monkeypatch, 0, lambda: monkeypatch.setattr(timing.Budget, "spent", property(lambda _: True)))
    outcome = roofcast(
        "profile",
        "decode",
        tiny,
        *CPU,
        *FP32,
        "--batch",
        "1,2",
        "--context",
        "16",
        "--budget",
        "60s",
        "--format",
        "json",
    )

    assert outcome.code == 0
    assert outcome.data["result"]["unfinished"] == ["decode of 2 at 16"]
    assert outcome.data["warnings"][0] == "the budget is spent: not measured: decode of 2 at 16"
    assert len(outcome.data["result"]["points"]) == 1


@pytest.mark.parametrize(
    ("stopped", "code", "said"),
    [
        ("interrupted", 130, "interrupted"),
        ("the budget is spent", 3, "no step could be measured: the budget is spent"),
    ],
)
def test_no_weight_is_drawn_where_roofs_were_cut_short(
    stopped: str, code: int, said: str, tiny: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No step would follow; what is not measured is named."""
    monkeypatch.setattr(
        "roofcast.profiler.device.quick_roofs",
        lambda runtime, *_: replace(device(LAPTOP), machine=runtime.machine, stopped=stopped),
    )
    monkeypatch.setattr("roofcast.profiler.decoder.Decoder", drawn)
    outcome = roofcast("profile", "decode", tiny, *CPU, *FP32, "--batch", "1,2", "--context", "16")

    assert outcome.code == code
    assert outcome.complaint == said
    assert f"{stopped}: not measured: decode of 1 at 16, decode of 2 at 16" in outcome.out
    assert "measured roofs: read 4.4 TB/s" in outcome.out


def drawn(*_: object) -> None:
    """Stand for a decoder that must not be made."""
    raise AssertionError("weights were drawn")


def test_no_weight_is_drawn_once_the_budget_is_spent(tiny: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the last of the roofs took the rest of it."""
    monkeypatch.setattr(timing.Budget, "spent", property(lambda _: True))
    monkeypatch.setattr("roofcast.profiler.decoder.Decoder", drawn)
    outcome = roofcast("profile", "decode", tiny, *CPU, *FP32, "--context", "16", "--budget", "60s")

    assert outcome.code == 3
    assert outcome.complaint == "no step could be measured: the budget is spent"


def test_ctrl_c_while_weights_are_drawn_keeps_the_roofs(tiny: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are printed; exit 130."""
    monkeypatch.setattr("roofcast.profiler.decoder.Decoder", lambda *_: interrupt())
    outcome = roofcast("profile", "decode", tiny, *CPU, *FP32, "--batch", "1", "--context", "16")

    assert outcome.code == 130
    assert "interrupted: not measured: decode of 1 at 16" in outcome.out
    assert "measured roofs: read 4.4 TB/s" in outcome.out


def test_a_budget_for_nothing_is_no_answer(tiny: str) -> None:
    """Exit 3: nothing was measured."""
    outcome = roofcast("profile", "decode", tiny, *CPU, *FP32, "--context", "16", "--budget", "0.000001")

    assert outcome.code == 3
    assert outcome.complaint == "no step could be measured: the budget is spent"


REFUSED = [
    pytest.param(("decode", "tiny", "--device", "cuda:7"), 2, ("--device cuda:7", "cpu"), id="no such device"),
    pytest.param(("decode", "tiny", "--weights", "int4"), 2, ("--weights int4", "bf16, fp16, fp32, fp8"), id="int4"),
    pytest.param(("decode", "tiny", *CPU, "--weights", "fp8"), 2, ("--weights fp8", "bf16"), id="fp8 on a CPU"),
    pytest.param(("decode", "tiny", "--routing", "even"), 2, ("--routing even", "drawn, balanced"), id="routing"),
    pytest.param(("decode", "tiny", "--seed", "-1"), 2, ("--seed -1",), id="seed"),
    pytest.param(("decode", "tiny", "--budget", "soon"), 2, ("--budget soon", "60s"), id="budget"),
    pytest.param(("decode", "tiny", "--batch", "0"), 2, ("--batch 0",), id="batch"),
    pytest.param(("decode", "tiny", "--context", "x"), 2, ("--context x",), id="context"),
    pytest.param(("prefill", "tiny", "--prompt", "0"), 2, ("--prompt 0",), id="prompt"),
    pytest.param(("prefill", "tiny", "--out", "x.pdf"), 2, ("--out x.pdf", ".png"), id="ending"),
    pytest.param(("decode",), 2, ("MODEL is missing",), id="no model"),
    pytest.param(("decode", "nonesuch", *CPU, "--offline"), 3, ("nonesuch",), id="unknown model"),
    pytest.param(("decode", "falcon-mamba-7b", *CPU, "--offline"), 3, ("layer 0", "Mamba"), id="kind"),
    pytest.param(("compare", "tiny", "--phase", "mixed"), 2, ("--phase mixed", "prefill, decode"), id="phase"),
    pytest.param(("compare", "tiny", "--efficiency", "none.yaml"), 2, ("--efficiency none.yaml",), id="efficiency"),
    pytest.param(("attention", "--kv-heads", "3"), 2, ("--kv-heads 3", "--heads 32"), id="heads"),
    pytest.param(("attention", "--weights", "fp8"), 2, ("--weights fp8", "fp32"), id="attention fp8"),
    pytest.param(("attention", "--head-dim", "0"), 2, ("--head-dim 0",), id="head dim"),
    pytest.param(("calibrate", "--out", "x.txt"), 2, ("--out x.txt", "roofcast.yaml"), id="constants"),
    pytest.param(("device", "--budget", "0"), 2, ("--budget 0",), id="no budget"),
]


@pytest.mark.parametrize(("command", "code", "words"), REFUSED)
def test_what_cannot_be_is_one_line(command: tuple[str, ...], code: int, words: tuple[str, ...], tiny: str) -> None:
    """The option or the layer is named, and what would be right."""
    given = [tiny if word == "tiny" else word for word in command]

    refused(roofcast("profile", *given), code, *words)


def test_weights_too_large_for_the_device(tiny: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is drawn; one line, exit 3."""
    monkeypatch.setattr(runtimes.Runtime, "free_bytes", lambda _: 1000)

    refused(roofcast("profile", "decode", tiny, *CPU, *FP32), 3, "weights of", "do not fit")


def test_without_torch(tiny: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The extra is named."""
    monkeypatch.setitem(__import__("sys").modules, "torch", None)

    refused(roofcast("profile", "decode", tiny), 3, "torch", "roofcast[profile]")


def test_the_bar_is_for_terminals() -> None:
    """Tests have none; where there is one, each measurement is named on it."""
    with profiling.watching() as watch:
        assert watch is None


def test_profile_device_on_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is measured stands in the tables; Ctrl-C and the budget are as of steps."""
    monkeypatch.setattr(
        "roofcast.profiler.device.profile_device",
        lambda runtime, *_: replace(
            device(LAPTOP), machine=runtime.machine, unfinished=("copy 4 GiB",), stopped="interrupted"
        ),
    )
    outcome = roofcast("profile", "device", *CPU)

    assert outcome.code == 130
    assert "starting an empty kernel" in outcome.out
    assert "interrupted: not measured: copy 4 GiB" in outcome.out


def test_attention_on_the_cpu() -> None:
    """Backends that a CPU lacks say why."""
    small = ("--heads", "4", "--kv-heads", "2", "--head-dim", "16", "--weights", "fp32")
    found = answer("profile", "attention", *CPU, *small, "--prompt", "32", "--batch", "1", "--context", "32")

    Draft202012Validator(json_schema("profile")).validate(found)
    rows = {(row["phase"], row["backend"]): row for row in found["result"]["attention"]}
    assert rows["prefill", "math"]["time"] is not None
    assert rows["decode", "split_kv"]["bytes_per_second"] > 0
    assert rows["prefill", "cudnn"]["problem"]
