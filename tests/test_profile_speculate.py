"""`profile speculate` on the CPU: whole commands over tiny models, few repeats; no time is asserted."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

torch = pytest.importorskip("torch")

from jsonschema import Draft202012Validator  # noqa: E402 - after the skip

from roofcast.calculators.answer import Remarks  # noqa: E402
from roofcast.profiler import runtime as runtimes  # noqa: E402
from roofcast.profiler import timing  # noqa: E402
from roofcast.profiler.speculative import Round  # noqa: E402
from roofcast.reports.profile import profile_document  # noqa: E402
from roofcast.reports.schema import json_schema  # noqa: E402
from tests.checkpoints import TINY, folder_of  # noqa: E402
from tests.round_values import speculated  # noqa: E402
from tests.running import answer, refused, roofcast  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

CPU = ("--device", "cpu")
FP32 = ("--weights", "fp32", "--draft-weights", "fp32")
SMALL = ("--k", "1,3", "--batch", "2", "--context", "16")
pytestmark = pytest.mark.usefixtures("one_thread", "few_rounds")


@pytest.fixture
def models(tmp_path: Path) -> tuple[str, str]:
    """Give folders of two Llamas without weights."""
    target = folder_of(tmp_path / "target", TINY | {"num_hidden_layers": 3})
    return str(target), str(folder_of(tmp_path / "draft", TINY))


def test_the_command_prints_rounds(models: tuple[str, str]) -> None:
    """Every round is a row; the CPU is not in the database, and real text needs weights."""
    outcome = roofcast("profile", "speculate", *models, *CPU, *FP32, *SMALL)

    assert outcome.code == 0, outcome.err
    assert outcome.out.startswith("target in fp32, random weights, on ")
    assert "draft: draft in fp32, random weights too\n" in outcome.out
    assert "speed-up over plain decode at an acceptance a" in outcome.out
    assert "bound" not in outcome.out.partition("\nms is")[0]
    assert outcome.err == ""


def test_json_validates_and_holds_no_step(models: tuple[str, str], tmp_path: Path) -> None:
    """Rounds in SI units; `compare --from` has nothing to compare, its decode steps are measurements."""
    path = tmp_path / "rounds.json"
    found = answer("profile", "speculate", *models, *CPU, *FP32, *SMALL)
    path.write_text(json.dumps(found))

    Draft202012Validator(json_schema("profile")).validate(found)
    speculation = found["result"]["speculation"]
    assert [(row["batch"], row["context"], row["drafted"]) for row in speculation["rounds"]] == [(2, 16, 1), (2, 16, 3)]
    for row in speculation["rounds"]:
        assert row["cost"]["measured"] == row["round"]["seconds"] / row["decode"]["seconds"]
        assert [one["acceptance"] for one in row["speedups"]] == [0.6, 0.8, 0.9]
    assert speculation["texts"] == []
    measured = [(row["model"], row["quantity"], row["context"]) for row in found["result"]["measurements"]]
    assert measured == [(name, "decode_seconds", 16) for name in models]
    assert found["assumptions"] == []
    refused(roofcast("profile", "compare", "--from", str(path)), 2, "holds no step")
    assert "no accelerator" in roofcast("validate", str(path), "--offline").err


def test_an_answer_is_read_as_it_was_saved(tmp_path: Path) -> None:
    """All rows of an H200, texts too; a number that nobody can have measured is refused."""
    from roofcast.cli.profiling_saved import ProfileFileError, read_saved

    path = tmp_path / "rounds.json"
    document = profile_document(speculated(), {}, Remarks())
    from roofcast.reports.data import as_data

    def written(change: Callable[[Any], object]) -> str:
        found = {"schema": "roofcast.profile/1", "result": as_data(document.result)}
        change(found["result"]["speculation"])
        path.write_text(json.dumps(found))
        return str(path)

    assert read_saved(written(lambda _: None)) == speculated()
    for change, where in (
        (lambda found: found["rounds"][0].update(verify_ratio=-1.0), "rounds.0.verify_ratio"),
        (lambda found: found["rounds"][0].update(launched="later"), "rounds.0.launched"),
        (lambda found: found["texts"][0].update(acceptance=1.5), "texts.0.acceptance"),
        (lambda found: found["texts"][0]["differences"][0].update(prompt=-1), "texts.0.differences.0.prompt"),
        (lambda found: found.update(draft_weights="int4"), "speculation.draft_weights"),
    ):
        with pytest.raises(ProfileFileError, match=where.replace(".", r"\.")):
            read_saved(written(change))


def test_vocabularies_that_differ_are_assumed(models: tuple[str, str], tmp_path: Path) -> None:
    """Said, and refused by --strict."""
    other = str(folder_of(tmp_path / "other", TINY | {"vocab_size": 60}))
    asked = ("profile", "speculate", models[0], other, *CPU, *FP32, *SMALL)
    found = answer(*asked)

    assert len(found["assumptions"]) == 1
    assert "target 100 and other 60 tokens" in found["assumptions"][0]
    refused(roofcast(*asked, "--strict"), 3, "vocabularies differ")


def test_ctrl_c_keeps_what_is_done(models: tuple[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Rounds that are done are printed, the others named; exit 130."""
    stop_at(monkeypatch, 2, interrupt)
    outcome = roofcast("profile", "speculate", *models, *CPU, *FP32, *SMALL)

    assert outcome.code == 130
    assert "interrupted: not measured: round of 3 drafted, 2 at 16" in outcome.out
    assert "times of a round" in outcome.out
    assert outcome.complaint == "interrupted"


def test_the_budget_ends_it_after_the_round_at_hand(models: tuple[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Exit 0, with a warning of what is left."""
    monkeypatch.setattr(timing.Budget, "spent", property(lambda _: False))
    stop_at(monkeypatch, 1, lambda: monkeypatch.setattr(timing.Budget, "spent", property(lambda _: True)))
    found = answer("profile", "speculate", *models, *CPU, *FP32, *SMALL, "--budget", "60s")

    assert found["result"]["unfinished"] == ["round of 3 drafted, 2 at 16"]
    assert found["warnings"][0] == "the budget is spent: not measured: round of 3 drafted, 2 at 16"


def stop_at(monkeypatch: pytest.MonkeyPatch, number: int, stop: Callable[[], object]) -> None:
    """Do something before the round of this number is checked."""
    made, whole = iter(range(9)), Round.__init__

    def counting(self: Round, *given: Any) -> None:
        if next(made) == number - 1:
            stop()
        whole(self, *given)

    monkeypatch.setattr(Round, "__init__", counting)


def interrupt() -> None:
    """Do what Ctrl-C does."""
    raise KeyboardInterrupt


def test_ctrl_c_while_weights_are_drawn(models: tuple[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is measured; exit 130."""
    monkeypatch.setattr("roofcast.profiler.decoder.Decoder", lambda *_: interrupt())
    outcome = roofcast("profile", "speculate", *models, *CPU, *FP32, *SMALL)

    assert outcome.code == 130
    assert outcome.complaint == "interrupted"


def test_no_weight_is_drawn_without_budget(models: tuple[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Exit 3."""
    monkeypatch.setattr("roofcast.profiler.decoder.Decoder", lambda *_: pytest.fail("weights were drawn"))
    outcome = roofcast("profile", "speculate", *models, *CPU, *FP32, *SMALL, "--budget", "0.000001")

    assert outcome.code == 3
    assert outcome.complaint == "no round could be measured: the budget is spent"


def test_weights_too_large_for_the_device(models: tuple[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is drawn; one line, exit 3."""
    monkeypatch.setattr(runtimes.Runtime, "free_bytes", lambda _: 1000)

    refused(roofcast("profile", "speculate", *models, *CPU, *FP32), 3, "weights of", "do not fit")


def test_a_draft_too_large_beside_the_target(models: tuple[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """It is the draft that is named, and what stands beside it."""
    free = iter((2**40, 1000))
    monkeypatch.setattr(runtimes.Runtime, "free_bytes", lambda _: next(free))

    refused(roofcast("profile", "speculate", *models, *CPU, *FP32), 3, "beside 0.0 GiB of", "weights of", "do not fit")


REFUSED = [
    pytest.param(("--weights", "int4"), 2, ("--weights int4", "bf16, fp16, fp32, fp8"), id="int4"),
    pytest.param(("--draft-weights", "int4"), 2, ("--draft-weights int4", "fp8"), id="int4 of the draft"),
    pytest.param((*CPU, "--weights", "fp8"), 2, ("--weights fp8", "bf16"), id="fp8 on a CPU"),
    pytest.param((*CPU, "--draft-weights", "fp8"), 2, ("--draft-weights fp8", "bf16"), id="fp8 of the draft"),
    pytest.param(("--k", "0"), 2, ("--k 0:", "1 to 256"), id="k of none"),
    pytest.param(("--k", "x"), 2, ("--k x",), id="k"),
    pytest.param(("--k", "1-30", "--batch", "1-9"), 2, ("--batch 1-9",), id="batches"),
    pytest.param(("--k", "1-30", "--batch", "1,2,3,4,5,6,7"), 2, ("210 rounds", "200"), id="many rounds"),
    pytest.param(("--batch", "0"), 2, ("--batch 0",), id="batch"),
    pytest.param(("--context", "x"), 2, ("--context x",), id="context"),
    pytest.param(("--acceptance", "1"), 2, ("--acceptance 1", "[0, 1)"), id="acceptance of one"),
    pytest.param(("--acceptance", "often"), 2, ("--acceptance often",), id="acceptance"),
    pytest.param(("--tokens", "-1"), 2, ("--tokens -1",), id="tokens"),
    pytest.param(("--tokens", "5"), 2, ("--tokens 5", "folders with weights"), id="tokens of no text"),
    pytest.param(("--text", "x.txt", "--tokens", "0"), 2, ("--text", "--tokens 0"), id="text of no token"),
    pytest.param(("--seed", "-1"), 2, ("--seed -1",), id="seed"),
    pytest.param(("--budget", "soon"), 2, ("--budget soon",), id="budget"),
    pytest.param(("--device", "cuda:7"), 2, ("--device cuda:7",), id="device"),
    pytest.param(("--out", "x.pdf"), 2, ("--out x.pdf",), id="ending"),
]


@pytest.mark.parametrize(("options", "code", "words"), REFUSED)
def test_what_cannot_be_is_one_line(
    options: tuple[str, ...], code: int, words: tuple[str, ...], models: tuple[str, str]
) -> None:
    """The option is named, and what would be right."""
    refused(roofcast("profile", "speculate", *models, *options), code, *words)


def test_a_model_that_is_not_built_is_one_line(models: tuple[str, str]) -> None:
    """Of target and draft alike."""
    refused(roofcast("profile", "speculate", models[0], "falcon-mamba-7b", *CPU, "--offline"), 3, "layer 0", "Mamba")
    refused(roofcast("profile", "speculate", models[0], "nonesuch", *CPU, "--offline"), 3, "nonesuch")


def test_without_torch(models: tuple[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """The extra is named; options are checked before."""
    monkeypatch.setitem(__import__("sys").modules, "torch", None)

    refused(roofcast("profile", "speculate", *models), 3, "torch", "roofcast[profile]")
    refused(roofcast("profile", "speculate", *models, "--acceptance", "2"), 2, "--acceptance 2")


def test_a_round_shorter_than_a_part_of_it_is_warned_of(
    models: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It cannot be: something else used the machine."""
    monkeypatch.setattr("roofcast.calculators.profiled_rounds.RoundProfile.shorter", True)
    found = answer("profile", "speculate", *models, *CPU, *FP32, *SMALL)

    assert any(line.startswith("2 of 2 rounds took less than") for line in found["warnings"])


@pytest.mark.parametrize("options", [("--wait", "5s"), ("--backend", "gloo")])
def test_options_of_several_devices_need_several(models: tuple[str, str], options: tuple[str, str]) -> None:
    """They would change nothing."""
    refused(roofcast("profile", "decode", models[0], *CPU, *options), 2, " ".join(options), "--tp N")
