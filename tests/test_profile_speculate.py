"""`profile speculate`: rounds of two decoders, their estimates held to `speculate`'s, and whole commands on the CPU."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

torch = pytest.importorskip("torch")

from jsonschema import Draft202012Validator  # noqa: E402 - after the skip

from roofcast.calculators.answer import Remarks  # noqa: E402
from roofcast.calculators.profile_making import machine_row  # noqa: E402
from roofcast.calculators.profile_rounds import Side, estimated, round_row  # noqa: E402
from roofcast.calculators.profile_rows import ProfileResult  # noqa: E402
from roofcast.calculators.profile_rows_rounds import DifferenceRow, SpeculationRow, TextRow  # noqa: E402
from roofcast.calculators.profile_work import Against, against_datasheet, counted  # noqa: E402
from roofcast.calculators.profiled_rounds import RoundProfile  # noqa: E402
from roofcast.hwdb.lookup import find_accelerator  # noqa: E402
from roofcast.profiler import runtime as runtimes  # noqa: E402
from roofcast.profiler import speculative, timing  # noqa: E402
from roofcast.profiler.decoder import Decoder, Session, Setup  # noqa: E402
from roofcast.profiler.errors import OutOfMemoryError, WrongOutputError  # noqa: E402
from roofcast.profiler.speculative import Pair, Round, profile_rounds  # noqa: E402
from roofcast.profiler.timing import Budget, time_work  # noqa: E402
from roofcast.reports.profile import profile_document  # noqa: E402
from roofcast.reports.schema import json_schema  # noqa: E402
from roofcast.reports.text import render_text  # noqa: E402
from tests.checkpoints import TINY, catalogued, folder_of  # noqa: E402
from tests.profile_values import H200, sample  # noqa: E402
from tests.running import answer, refused, result, roofcast  # noqa: E402
from tests.tiny_decoders import BUILT, VOCAB, cpu, spec_of, tiny  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

CPU = ("--device", "cpu")
FP32 = ("--weights", "fp32", "--draft-weights", "fp32")
ROOM = 12  # places of a cache, whose random tokens are those of any other so long
SMALL = ("--k", "1,3", "--batch", "2", "--context", "16")


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Leave the machine's other threads to others."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take few repeats."""
    monkeypatch.setattr(timing, "LEAST", 2)
    monkeypatch.setattr(timing, "WARM", 1)
    monkeypatch.setattr(speculative, "time_work", lambda *given, **named: time_work(*given, **{**named, "span": 0.0}))


def seeded(name: str, seed: int) -> Decoder:
    """A small decoder with weights of a seed."""
    return tiny(BUILT[name], Setup("fp32", "fp32", seed=seed))


def opened(pair: Pair, context: int, drafted: int, batch: int = 3) -> Round:
    """A round over caches of random tokens."""
    sessions = pair.target.session(batch, ROOM).filled(), pair.draft.session(batch, ROOM).filled()
    return Round(pair, sessions, context, drafted)


def greedy(decoder: Decoder, first: Any, context: int, count: int) -> Any:
    """Tokens that single decode steps choose, one after the other, over the same random cache, [B, count]."""
    step = decoder.session(first.shape[0], ROOM).filled().decode(context - 1)
    chosen = [first]
    for place in range(context - 1, context - 1 + count):
        step.load(chosen[-1], place)
        step.run()
        chosen.append(step.logits.argmax(-1))
    return torch.stack(chosen[1:], 1)


@pytest.mark.parametrize("name", ["GQA", "a window", "chunks", "MLA with a query latent", "MoE", "tied"])
def test_a_draft_that_is_the_target_is_always_accepted(name: str) -> None:
    """All k tokens, and what follows is the target's next: what k + 1 plain steps choose."""
    decoder = seeded(name, 0)
    made = opened(Pair(decoder, seeded(name, 0)), 6, 4)
    for _ in range(2):  # a round runs again on the same memory
        made.run()
        plain = greedy(decoder, made.tokens[:, 0].clone(), 6, 5)

        assert made.accepted.tolist() == [4, 4, 4]
        assert torch.equal(made.tokens[:, 1:], plain[:, :4])
        assert torch.equal(made.following, plain[:, 4])


@pytest.mark.parametrize("wrong", [1, 2, 4])
def test_tokens_behind_a_wrong_one_do_not_count(wrong: int) -> None:
    """The first drafted token that the target does not choose ends it; the target's own stands in its place."""
    decoder = seeded("GQA", 0)
    made = opened(Pair(decoder, seeded("GQA", 0)), 6, 4)
    made.draft()
    right = made.tokens[1, wrong].clone()
    made.tokens[1, wrong] = (right + 1) % VOCAB
    made.verifying.run()
    made.compare()

    assert made.accepted.tolist() == [4, wrong - 1, 4]
    assert made.following[1] == right


def test_another_draft_is_fed_its_own_tokens() -> None:
    """It drafts what single steps of it choose, and as many are accepted as the target would choose too."""
    target, draft = seeded("GQA", 0), seeded("MHA", 5)
    made = opened(Pair(target, draft), 6, 3)
    made.run()
    drafted, own = greedy(draft, made.tokens[:, 0].clone(), 6, 3), greedy(target, made.tokens[:, 0].clone(), 6, 4)

    assert torch.equal(made.tokens[:, 1:], drafted)
    for row in range(3):
        agreed = [bool(one) for one in drafted[row] == own[row, :3]]
        count = agreed.index(False) if False in agreed else 3
        assert made.accepted[row] == count
        assert made.following[row] == own[row, count]


@pytest.mark.parametrize("sizes", [(VOCAB, 7), (7, VOCAB)], ids=["fewer of the draft", "fewer of the target"])
def test_vocabularies_may_differ(sizes: tuple[int, int]) -> None:
    """Ids stay below what both have rows for."""
    target, draft = (tiny(spec_of(*BUILT["GQA"].layers, vocab=size)) for size in sizes)
    pair = Pair(target, draft)
    made = opened(pair, 6, 4)
    made.run()

    assert (pair.tokens, pair.clamped) == (7, True)
    assert int(made.tokens.max()) < 7
    assert int(made.following.max()) < 7
    assert not Pair(target, target).clamped


def test_rounds_are_timed() -> None:
    """Every part has a time; decode and draft are those of their batch and context, whatever k."""
    pair = Pair(seeded("GQA", 0), seeded("MQA", 1))
    swept = profile_rounds(cpu(), pair, ((2, 8, 1), (2, 8, 3), (1, 5, 3)), Budget())

    assert [(one.batch, one.context, one.drafted) for one in swept.done] == [(2, 8, 1), (2, 8, 3), (1, 5, 3)]
    first, second, third = swept.done
    assert first.decode is second.decode
    assert first.draft is second.draft
    assert third.decode is not first.decode
    for one in swept.done:
        assert None not in {one.drafting, one.verify, one.round, one.draft_ratio, one.verify_ratio, one.cost}
        assert one.launched == "eager"


def test_a_round_that_does_not_fit_is_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    """The caches of both models count; other points run."""
    whole = Session.filled

    def narrow(session: Session) -> Session:
        if session.batch > 2:
            raise OutOfMemoryError("caches of 9 GiB do not fit")
        return whole(session)

    monkeypatch.setattr(Session, "filled", narrow)
    pair = Pair(seeded("GQA", 0), seeded("MQA", 1))
    swept = profile_rounds(cpu(), pair, ((1, 8, 2), (4, 8, 2), (2, 8, 2)), Budget())

    assert [one.problem for one in swept.done] == [None, "caches of 9 GiB do not fit", None]
    assert swept.done[1].cost is None


@pytest.mark.parametrize("lacking", ["decode_attention", "linear"])
def test_a_pass_that_leaves_logits_unwritten_ends_it(lacking: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A time of it would mean nothing: here of the passes over several tokens of a sequence alone."""
    target, draft = seeded("GQA", 0), seeded("MQA", 1)
    full = getattr(target.kernels, lacking)

    def partly(x: Any, *rest: Any) -> None:
        if x.shape[2 if x.dim() > 2 else 0] in {1, 2}:  # a token, or one of two sequences
            full(x, *rest)

    monkeypatch.setattr(target.kernels, lacking, partly)
    with pytest.raises(WrongOutputError, match="verifying in a round of 3 drafted"):
        profile_rounds(cpu(), Pair(target, draft), ((2, 8, 3),), Budget())


def test_tokens_that_are_not_counted_end_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """As do logits that are not written."""
    monkeypatch.setattr(Round, "compare", lambda _: None)
    with pytest.raises(WrongOutputError, match="were not counted"):
        profile_rounds(cpu(), Pair(seeded("GQA", 0), seeded("MQA", 1)), ((2, 8, 3),), Budget())


def side(name: str, weights: str = "bf16") -> Side:
    """A model on an H200."""
    model = catalogued(name)
    known = find_accelerator("h200-sxm").accelerator
    return Side(counted(model.spec, weights), against_datasheet(known, model, weights, None))


def rounds(points: tuple[tuple[int, int], ...], context: int = 1024) -> list[RoundProfile]:
    """Rounds of Llama 8B and 1B whose decode step takes 4 ms: a draft step 1 ms, verifying 5 ms, the whole 5 + 1.1 k ms."""
    return [
        RoundProfile(
            batch,
            context,
            k,
            sample(4e-3),
            sample(1e-3),
            sample(k * 1e-3),
            sample(5e-3),
            sample(5e-3 + 1.1e-3 * k),
            "graph",
        )
        for batch, k in points
    ]


@pytest.mark.parametrize("context", [1024, 4096])
@pytest.mark.parametrize("models", [("llama-3.1-8b", "llama-3.2-1b"), ("qwen3-30b-a3b", "qwen3-0.6b")])
def test_bounds_are_those_of_speculate(models: tuple[str, str], context: int) -> None:
    """Decode, drafting, verifying and cost of every batch and k: the numbers that `roofcast speculate` prints for an H200."""
    target, draft = map(side, models)
    rate = ("--acceptance", "0.8", "--k", "1,2,4,8", "--batch", "1,16", "--context", str(context))
    formats = ("--weights", "bf16", "--draft-weights", "bf16", "--kv", "bf16")
    said = result("speculate", models[0], "--draft", models[1], "--gpu", "h200-sxm", *formats, *rate, "--offline")[
        "rounds"
    ]

    assert len(said) == 8
    for row in said:
        k = row["drafted"]
        made = round_row(rounds(((row["batch"], k),), context)[0], target, draft, (0.8,))
        decode = made.bound_decode_seconds
        assert decode == pytest.approx(row["decode_seconds"], rel=1e-12)
        assert k * made.bound_draft_ratio * decode == pytest.approx(row["draft_seconds"], rel=1e-12)
        assert made.bound_verify_ratio == pytest.approx(row["verify_ratio"], rel=1e-12)
        assert made.cost.bound == pytest.approx(row["round_cost"], rel=1e-12)
        assert made.speedups[0].bound == pytest.approx(row["speedup"], rel=1e-12)
        assert made.speedups[0].tokens_per_round == pytest.approx(row["tokens_per_round"], rel=1e-12)


def test_what_a_measured_round_comes_to() -> None:
    """By hand: 5 + 4.4 ms over 4 ms is 2.35 decode steps; at a = 0.5 they yield 1.9375 tokens, and pay from a = 0.61 on."""
    row = round_row(rounds(((1, 4),))[0], side("llama-3.1-8b"), side("llama-3.2-1b"), (0.5,))

    assert row.cost.measured == pytest.approx(2.35)
    assert (row.draft_ratio, row.verify_ratio) == (pytest.approx(0.25), pytest.approx(1.25))
    assert row.speedups[0].measured == pytest.approx(1.9375 / 2.35)
    even = row.break_even_acceptance
    assert even is not None
    assert sum(even**n for n in range(5)) == pytest.approx(2.35)


def test_expected_times_are_never_below_the_bound() -> None:
    """Constants of this profiler on an H200: of each part."""
    bound, expected = estimated(side("llama-3.1-8b"), side("llama-3.2-1b"), 16, 1024, 4)

    assert bound is not None
    assert expected is not None
    assert expected.decode > bound.decode
    assert expected.draft > bound.draft
    assert expected.verify > expected.decode


def test_without_a_data_sheet_measured_numbers_stand_alone() -> None:
    """Of a device that is not in the database nothing is estimated."""
    alone = Side(side("llama-3.1-8b").work, Against())
    row = round_row(rounds(((1, 4),))[0], alone, alone, (0.8,))

    assert (row.bound_decode_seconds, row.expected_verify_ratio, row.cost.bound, row.speedups[0].expected) == (
        None,
    ) * 4
    assert row.speedups[0].measured is not None


TEXT = TextRow(
    drafted=4,
    prompts=8,
    new_tokens=512,
    rounds=160,
    tokens_per_round=3.2,
    acceptance=0.771,
    accepted_by_position=[0.8, 0.62, 0.5, 0.28],
    plain_seconds=10.2,
    speculative_seconds=5.1,
    speedup=2.0,
    same_output=False,
    differences=[DifferenceRow(3, 17, 0.0, 22.5, tie=True), DifferenceRow(5, 60, 0.3, 20.0, tie=False)],
)


def speculated(*, texts: bool = True) -> ProfileResult:
    """The answer of an H200."""
    failed = RoundProfile(4096, 8192, 4, problem="caches of 512.0 GiB do not fit 90.0 GiB that are free on NVIDIA H200")
    sides = side("llama-3.1-8b"), side("llama-3.2-1b")
    some = [*rounds(((1, 1), (1, 4), (16, 1), (16, 4))), failed]
    row = SpeculationRow(
        target="llama-3.1-8b",
        draft="llama-3.2-1b",
        draft_weights="bf16",
        rounds=[round_row(one, *sides, (0.3, 0.8)) for one in some],
        texts=[TEXT] * texts,
        transformers="5.24.0" if texts else None,
    )
    return ProfileResult("speculate", machine_row(H200), "llama-3.1-8b", "bf16", speculation=row)


def test_text_shows_measured_beside_estimated() -> None:
    """Best lengths, speed-ups, costs, times and real text; what did not run says so."""
    lines = render_text(profile_document(speculated(), {}, Remarks()), width=80).splitlines()
    text = "\n".join(lines)

    assert "draft: llama-3.2-1b in bf16, random weights too; real text through transformers 5.24.0" in text
    assert "2 of 8 texts part from plain decoding, 1 of them at ties of rounding" in text
    assert any(line.split()[:5] == ["1k", "1", "0.3", "none", "0.85"] for line in lines)
    assert any(line.split()[:5] == ["1k", "1", "0.8", "4", "1.43"] for line in lines)
    assert any(line.split() == ["8k", "4,096", "4", *line.split()[3:-3], "did", "not", "run"] for line in lines)
    tables = lines[5 : next(n for n, line in enumerate(lines) if line.startswith("ms is"))]
    assert max(map(len, tables)) <= 80


def test_text_of_ties_alone() -> None:
    """Where every text parts at a tie that is all there is to say."""
    found = speculated()
    assert found.speculation is not None
    tied = replace(found.speculation, texts=[replace(TEXT, differences=TEXT.differences[:1])])
    text = render_text(profile_document(replace(found, speculation=tied), {}, Remarks()))

    assert "1 of 8 texts part from plain decoding, at ties of rounding" in text
    assert "no fault of speculation" in text


def test_records_have_a_row_a_round_and_acceptance() -> None:
    """CSV: rounds once an acceptance, texts behind them."""
    records = list(profile_document(speculated(), {}, Remarks()).records)

    assert [record["table"] for record in records] == ["rounds"] * 10 + ["texts"]
    assert [record["speedup_acceptance"] for record in records[:2]] == [0.3, 0.8]
    assert records[-1]["accepted_4"] == 0.28
    assert records[-1]["differences"] == 2


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


REFUSED = [
    pytest.param(("--weights", "int4"), 2, ("--weights int4", "bf16, fp16, fp32, fp8"), id="int4"),
    pytest.param(("--draft-weights", "int4"), 2, ("--draft-weights int4", "fp8"), id="int4 of the draft"),
    pytest.param((*CPU, "--weights", "fp8"), 2, ("--weights fp8", "bf16"), id="fp8 on a CPU"),
    pytest.param((*CPU, "--draft-weights", "fp8"), 2, ("--draft-weights fp8", "bf16"), id="fp8 of the draft"),
    pytest.param(("--k", "0"), 2, ("k 0", "1 to 256"), id="k of none"),
    pytest.param(("--k", "x"), 2, ("--k x",), id="k"),
    pytest.param(("--k", "1-30", "--batch", "1-9"), 2, ("--batch 1-9",), id="batches"),
    pytest.param(("--k", "1-30", "--batch", "1,2,3,4,5,6,7"), 2, ("210 rounds", "200"), id="many rounds"),
    pytest.param(("--batch", "0"), 2, ("--batch 0",), id="batch"),
    pytest.param(("--context", "x"), 2, ("--context x",), id="context"),
    pytest.param(("--acceptance", "1"), 2, ("--acceptance 1", "[0, 1)"), id="acceptance of one"),
    pytest.param(("--acceptance", "often"), 2, ("--acceptance often",), id="acceptance"),
    pytest.param(("--tokens", "-1"), 2, ("--tokens -1",), id="tokens"),
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
