"""Rule files of `check`: what is read of them, and every way in which one can be wrong, a line each."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from roofcast.cli.check_file import RuleFileError, read_rules
from tests.running import roofcast

if TYPE_CHECKING:
    from pathlib import Path

    from roofcast.calculators.check import Rule

HEAD = "schema: roofcast.check/1\ndefaults: {model: llama-3.1-8b, gpu: h100-sxm}\nrules:\n"
SEQUENCES = "quantity: sequences, at_least: 1"
EVERY = """schema: roofcast.check/1
# a comment
defaults: {model: llama-3.1-8b, gpu: h100-sxm, engine: vllm, batch: 16, prefix_hit: 0.5}
lock: true
rules:
  - name: a hundred chats at 4k
    quantity: sequences
    context: 4k
    at_least: 100
    flags: {max_model_len: 8k, gpu_memory_utilization: 0.9, enforce_eager: true}
  - name: first token
    quantity: ttft
    prompt: 4k
    at_most: 500ms
    allowed_change: 2%
    basis: high
  - quantity: kv_bytes_per_token
    model: my-org/my-model
    revision: v2
    allowed_change: 0%
  - quantity: tpot
    matrix: {model: [llama-3.1-8b, qwen2.5-7b], gpu: [h100-sxm, h200-sxm], batch: [16, 64]}
    exclude: [{model: qwen2.5-7b, gpu: h100-sxm}]
    context: 4096
    at_most: 20 ms
  - {quantity: weight_bytes, at_most: 80 GB, weights: fp8}
  - {quantity: weights_fit, tp: 2, engine: none, reserve: 5%}
  - {quantity: fits, context: 32k, batch: 8}
  - {quantity: kv_tokens, at_least: 400k, engine_version: 0.10}
  - {quantity: tokens_per_second, context: 2k, at_least: 1500.5, network: 400 Gbit/s}
  - {quantity: cost_per_million_tokens, of: cached_input, prompt: 1k, output: 100, gpu_price: 2.5, at_most: 0.01}
  - {quantity: ttft, percentile: 99.5, rate: 2.5, requests: 2k, prompt: 1k, output: 100, at_most: 1 s, name: at a rate}
  - {quantity: itl, percentile: 50, concurrency: 64, stagger: 5%, prompt: 1k, output: 100, at_most: 1 s}
  - {quantity: e2e, percentile: 50, trace: some.csv, at_most: 1 min}
  - {quantity: goodput, rate: 2, prompt: 1k, output: 100, ttft: 500ms, tpot: 50ms, at_least: 1.9}
  - {quantity: requests_per_second, percentile: 99, prompt: 1k, output: 100, tpot: 50ms, at_least: 2}
"""


def rules_of(tmp_path: Path, text: str, name: str = "rules.yaml") -> list[Rule]:
    """Return the rules of a file that holds the text."""
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    return list(read_rules([str(path)], "expected")[0].rules)


def wrong(tmp_path: Path, text: str) -> list[str]:
    """Return the problems of a file that holds the text, without its name."""
    with pytest.raises(RuleFileError) as caught:
        rules_of(tmp_path, text)
    return [line.removeprefix(f"{tmp_path}/rules.yaml:") for line in caught.value.problems]


def one(tmp_path: Path, fields: str) -> Rule:
    """Return the one rule with these fields."""
    return rules_of(tmp_path, f"{HEAD}  - {{{fields}}}\n")[0]


def test_a_file_with_everything(tmp_path: Path) -> None:
    """Every quantity and almost every field, read into SI, matrices taken apart, with the line of each rule."""
    rules = {rule.name: rule for rule in rules_of(tmp_path, EVERY)}

    assert len(rules) == 10 + 10
    chats = rules["a hundred chats at 4k"]
    assert (chats.quantity, chats.limit, chats.change, chats.line) == ("sequences", 100, None, 6)
    assert (chats.case.context, chats.case.engine, chats.case.flags.max_model_len) == (4096, "vllm", 8192)
    assert (chats.case.flags.gpu_memory_utilization, chats.case.flags.enforce_eager) == (0.9, True)
    first = rules["first token"]
    assert (first.limit, first.change, first.case.basis, first.case.prefix_hit) == (0.5, 0.02, "high", 0.5)
    kept = rules["kv_bytes_per_token model=my-org/my-model revision=v2"]
    assert (kept.limit, kept.change, kept.case.revision, kept.case.gpu) == (None, 0.0, "v2", "")
    tpot = rules["tpot context=4096 [qwen2.5-7b, h200-sxm, 64]"]
    assert (tpot.case.model, tpot.case.gpu, tpot.case.batch, tpot.limit) == ("qwen2.5-7b", "h200-sxm", 64, 0.02)
    assert rules["weight_bytes weights=fp8"].limit == 80e9
    assert rules["weights_fit tp=2 engine=none reserve=5%"].case.reserve == 0.05
    assert rules["kv_tokens engine_version=0.10"].case.flags.engine_version == "0.10"  # YAML's number is 0.1
    assert rules["tokens_per_second context=2k network=400 Gbit/s"].case.network == 50e9
    sent = rules["at a rate"].case
    assert (sent.percentile, sent.rate, sent.requests, sent.prompt, sent.output) == (99.5, 2.5, 2048, 1024, 100)
    assert (sent.batch, sent.prefix_hit) == (1, 0.0)  # defaults that are of one step
    good = rules["goodput rate=2 prompt=1k output=100 ttft=500ms tpot=50ms"].case
    assert (good.ttft, good.tpot) == (0.5, 0.05)
    assert rules["e2e percentile=50 trace=some.csv"].case.trace == str(tmp_path / "some.csv")


def test_defaults_count_for_rules_that_take_them(tmp_path: Path) -> None:
    """A default that a quantity does not take is passed over; a rule's own field that it does not take is refused."""
    assert one(tmp_path, "quantity: weight_bytes, at_most: 80 GB").case.gpu == ""
    assert wrong(tmp_path, f"{HEAD}  - {{quantity: weight_bytes, at_most: 80 GB, gpu: h200}}\n") == [
        "4: rule 'weight_bytes gpu=h200': gpu: weight_bytes does not take it; it takes encoder_tokens, model, revision, weights"
    ]


def test_flags_of_defaults_do_not_count_without_an_engine(tmp_path: Path) -> None:
    """A rule that says engine none leaves its defaults' flags and version, and one with an engine their reserve."""
    head = (
        "schema: roofcast.check/1\ndefaults: {model: m, gpu: h100-sxm, engine: vllm, engine_version: 0.11.0}\nrules:\n"
    )
    plain = rules_of(tmp_path, f"{head}  - {{{SEQUENCES}, context: 4k, engine: none}}\n")[0]
    reserved = head.replace("engine: vllm, engine_version: 0.11.0", "reserve: 20%")
    served = rules_of(tmp_path, f"{reserved}  - {{{SEQUENCES}, context: 4k, engine: vllm}}\n")[0]

    assert plain.case.flags.given == {}
    assert served.case.reserve == 0.1


def test_a_budget_is_a_flag_of_engines_that_have_it(tmp_path: Path) -> None:
    """max_num_batched_tokens counts for times and for vLLM's memory alike, wherever it is written."""
    field = one(tmp_path, f"{SEQUENCES}, context: 4k, engine: vllm, max_num_batched_tokens: 2k").case
    flag = one(tmp_path, f"{SEQUENCES}, context: 4k, engine: vllm, flags: {{max_num_batched_tokens: 2048}}").case

    assert field == flag
    assert (field.max_num_batched_tokens, field.flags.max_num_batched_tokens) == (2048, 2048)


def test_names_that_clash_between_files_are_prefixed(tmp_path: Path) -> None:
    """Two files are as one; only names that both have get that of their file."""
    for name in ("a.yaml", "b.yaml"):
        rules_of(
            tmp_path,
            f"{HEAD}  - {{name: x, {SEQUENCES}, context: 4k}}\n  - {{name: {name}, {SEQUENCES}, context: 4k}}\n",
            name,
        )
    a, b = (str(tmp_path / name) for name in ("a.yaml", "b.yaml"))

    names = [[rule.name for rule in file.rules] for file in read_rules([a, b], "bound")]
    assert names == [[f"{a}: x", "a.yaml"], [f"{b}: x", "b.yaml"]]
    for again in (a, str(tmp_path / "." / "x" / ".." / "a.yaml")):
        (tmp_path / "x").mkdir(exist_ok=True)
        with pytest.raises(RuleFileError, match="is given twice"):
            read_rules([a, again], "bound")
    rules_of(
        tmp_path,
        f"{HEAD}  - {{name: 'x', {SEQUENCES}, context: 4k}}\n  - {{name: '{a}: x', {SEQUENCES}, context: 4k}}\n",
        "c.yaml",
    )
    with pytest.raises(RuleFileError, match="two rules come to have that name"):
        read_rules([a, str(tmp_path / "c.yaml")], "bound")


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        pytest.param("quantity: sequnces, at_least: 1", "quantity: no quantity 'sequnces'; nearest: sequences; known: ", id="quantity"),
        pytest.param("at_least: 1", "quantity: is missing; write one of weights_fit, fits", id="no-quantity"),
        pytest.param(f"{SEQUENCES}, contxt: 4k", "contxt: is no field here; did you mean context?", id="field"),
        pytest.param(SEQUENCES, "context: is missing; sequences needs it, here or in defaults", id="needed"),
        pytest.param("quantity: sequences, context: 4k", "at_least: is missing; sequences needs a limit such as 100", id="limit"),
        pytest.param("quantity: sequences, context: 4k, at_most: 3", "at_most: of sequences more is better; write at_least", id="side"),
        pytest.param("quantity: tpot, context: 4k, batch: 1, at_least: 3 s", "at_least: of tpot less is better; write at_most", id="other-side"),
        pytest.param("quantity: fits, context: 4k, at_least: 1", "at_least: fits is yes or no, and yes is required", id="yes"),
        pytest.param("quantity: fits, context: 4k, allowed_change: 1%", "allowed_change: fits is yes or no", id="yes-change"),
        pytest.param("quantity: ttft, prompt: 1k, at_most: 500", "at_most: '500' has no unit; write it like '50 ms'", id="unit"),
        pytest.param("quantity: ttft, prompt: 1k, at_most: 0ms", "at_most: 0ms is nothing; write it like 500ms", id="nothing"),
        pytest.param("quantity: ttft, prompt: 1k, at_most: 5 GB", "'GB' is not a unit of s", id="other-unit"),
        pytest.param(f"{SEQUENCES}, context: -4k", "context: '-4k' has a sign or a leading zero", id="negative"),
        pytest.param(f"{SEQUENCES}, context: 0", "context: '0' is zero tokens", id="zero"),
        pytest.param(f"{SEQUENCES}, context: 010", "context: '010' has a sign or a leading zero", id="octal"),
        pytest.param(f"{SEQUENCES}, context: 0o10", "context: '0o10' is not a token count", id="octal-1.2"),
        pytest.param(f"{SEQUENCES}, context: 0x10", "context: '0x10' is not a token count", id="hexadecimal"),
        pytest.param(f"{SEQUENCES}, context: 1_0", "context: '1_0' is not a token count", id="underscore"),
        pytest.param(f"{SEQUENCES}, context: 1:30", "context: '1:30' is not a token count", id="sexagesimal"),
        pytest.param(f"{SEQUENCES}, context: 1e3", "context: '1e3' is not a token count", id="exponent"),
        pytest.param(f"{SEQUENCES}, context: yes", "context: 'yes' is not a token count", id="yes-no"),
        pytest.param(f"{SEQUENCES}, context: .inf", "context: '.inf' is not a token count", id="infinite"),
        pytest.param(f"{SEQUENCES}, context: 2k, batch: 1", "batch: sequences does not take it; it takes ", id="not-taken"),
        pytest.param(f"{SEQUENCES}, context: ~", "context: is empty; write a value, or leave the field out", id="null"),
        pytest.param(f"{SEQUENCES}, context: [4k, 8k]", "context: is a list; it takes one value; a list of values goes under matrix", id="list"),
        pytest.param(f"{SEQUENCES}, context: {{a: 1}}", "context: is a mapping; it takes one value", id="mapping"),
        pytest.param(f"{SEQUENCES}, context: 99999999999999", "context: 99,999,999,999,999 is more than 1,073,741,824", id="huge"),
        pytest.param(f"{SEQUENCES}, context: 4k, gpu: h1000", "gpu: no accelerator 'h1000'; nearest: h100", id="gpu"),
        pytest.param(f"{SEQUENCES}, context: 4k, engine: vlm", "engine: no engine 'vlm'; nearest: vllm; known: none, vllm", id="engine"),
        pytest.param(f"{SEQUENCES}, context: 4k, engine: transformers", "engine: memory rules of transformers are not modelled", id="no-memory"),
        pytest.param(f"{SEQUENCES}, context: 4k, weights: bf17", "weights: no format 'bf17'; nearest: bf16", id="weights"),
        pytest.param(f"{SEQUENCES}, context: 4k, kv: fp9", "kv: no format 'fp9'; nearest: fp8", id="kv"),
        pytest.param(f"{SEQUENCES}, context: 4k, engine: vllm, flags: {{max_modl_len: 3}}", "flags: max_modl_len is no flag of an engine; did you mean max_model_len?", id="flag"),
        pytest.param(f"{SEQUENCES}, context: 4k, engine: sglang, flags: {{gpu_memory_utilization: 0.9}}", "flags: gpu_memory_utilization is no flag of sglang, but of vllm", id="flag-of-other"),
        pytest.param(f"{SEQUENCES}, context: 4k, flags: {{max_model_len: 8k}}", "flags: max_model_len is of a serving engine; engine vllm or ", id="flag-of-none"),
        pytest.param(f"{SEQUENCES}, context: 4k, engine: vllm, flags: {{max_model_len: 010}}", "flags: '010' has a sign or a leading zero", id="flag-value"),
        pytest.param(f"{SEQUENCES}, context: 4k, engine: vllm, flags: {{enforce_eager: yes}}", "flags: 'yes' is neither; write true or false", id="switch"),
        pytest.param(f"{SEQUENCES}, context: 4k, engine: vllm, flags: 3", "flags: must map the engine's flags to values", id="flags"),
        pytest.param(f"{SEQUENCES}, context: 4k, engine: vllm, flags: {{engine_version: 1}}", "flags: engine_version is no flag of an engine; write it as a field", id="flag-version"),
        pytest.param(f"{SEQUENCES}, context: 4k, engine: vllm, reserve: 5%", "reserve: is of engine none; vllm has a budget of its own", id="reserve"),
        pytest.param(f"{SEQUENCES}, context: 4k, reserve: 100%", "reserve: 100% leaves nothing", id="whole-reserve"),
        pytest.param(f"{SEQUENCES}, context: 4k, allowed_change: 200%", "allowed_change: '200%' is more than 100%", id="change"),
        pytest.param(f"{SEQUENCES}, context: 4k, engine: vllm, max_num_batched_tokens: 4k, flags: {{max_num_batched_tokens: 2k}}", "max_num_batched_tokens: is 4,096 here and 2,048 in flags", id="two-budgets"),
        pytest.param("quantity: ttft, prompt: 1k, at_most: 1 s, basis: best", "basis: no basis 'best'; known: bound, expected, low, high", id="basis"),
        pytest.param("quantity: ttft, prompt: 1k, at_most: 1 s, percentile: 100", "percentile: 100 has nothing above it", id="percentile"),
        pytest.param("quantity: ttft, prompt: 1k, at_most: 1 s, engine: mlc, flags: {dtype: bf16}", "flags: those of mlc are not known", id="no-flags"),
        pytest.param("quantity: ttft, prompt: 1k, at_most: 1 s, network: fast", "network: fast: it is no rate of a link", id="network"),
        pytest.param("quantity: cost_per_million_tokens, prompt: 1k, output: 1, batch: 1, gpu_price: -2, at_most: 1", "gpu_price: -2 is signed; write a number above 0, such as 2.5", id="price"),
        pytest.param("quantity: cost_per_million_tokens, prompt: 1k, output: 1, batch: 1, gpu_price: 0, at_most: 1", "gpu_price: 0 is not above 0", id="free"),
        pytest.param("quantity: cost_per_million_tokens, prompt: 1k, output: 1, batch: 1, gpu_price: .nan, at_most: 1", "gpu_price: '.nan' is no plain number", id="nan"),
        pytest.param("quantity: tpot, context: 4k, at_most: 1 s, matrix: {bach: [1]}", "matrix: bach: is no field here; did you mean batch?", id="matrix-field"),
        pytest.param("quantity: tpot, context: 4k, batch: 1, at_most: 1 s, matrix: {name: [a]}", "matrix: name: is of the rule; write it there", id="matrix-name"),
        pytest.param("quantity: tpot, context: 4k, at_most: 1 s, matrix: {batch: 3}", "matrix: batch: must be a list of values", id="matrix-scalar"),
        pytest.param("quantity: tpot, context: 4k, at_most: 1 s, matrix: {batch: []}", "matrix: batch: must be a list of values", id="matrix-empty"),
        pytest.param("quantity: tpot, context: 4k, at_most: 1 s, matrix: {batch: [1, 1]}", "matrix: batch: 1 is given twice", id="matrix-twice"),
        pytest.param("quantity: tpot, context: 4k, at_most: 1 s, matrix: []", "matrix: must map fields to lists", id="matrix-list"),
        pytest.param("quantity: tpot, context: 4k, at_most: 1 s, batch: 2, matrix: {batch: [1]}", "matrix: batch: stands in the rule too", id="matrix-both"),
        pytest.param("quantity: tpot, context: 4k, at_most: 1 s, matrix: {batch: [1, 2x]}", "batch: '2x' is not a token count", id="matrix-value"),
        pytest.param("quantity: tpot, context: 4k, at_most: 1 s, matrix: {batch: [1]}, exclude: [{batch: 2}]", "exclude: batch: 2 is no combination of the matrix", id="exclude"),
        pytest.param("quantity: tpot, context: 4k, at_most: 1 s, matrix: {batch: [1]}, exclude: [{batch: 1}]", "exclude: leaves nothing of the matrix", id="exclude-all"),
        pytest.param("quantity: tpot, context: 4k, at_most: 1 s, matrix: {batch: [1]}, exclude: [3]", "exclude: must be a list of mappings", id="exclude-scalar"),
        pytest.param("quantity: tpot, context: 4k, at_most: 1 s, batch: 1, exclude: [{batch: 1}]", "exclude: goes with a matrix", id="exclude-alone"),
    ],
)  # fmt: skip
def test_one_thing_wrong_with_a_rule(tmp_path: Path, fields: str, said: str) -> None:
    """Each is one line that names file, line, rule and field, and what would be right."""
    [line] = wrong(tmp_path, f"{HEAD}  - {{name: x, {fields}}}\n")

    assert line.startswith("4: rule 'x': ")
    assert said in line, line


@pytest.mark.parametrize(
    ("text", "said"),
    [
        pytest.param("", "is empty; it must map fields such as schema, defaults, lock, rules to values", id="empty"),
        pytest.param("- 1\n", "is a list; it must map fields", id="list"),
        pytest.param("schema: [\n", "2: not readable as YAML: ", id="broken"),
        pytest.param("a: &a [x, x]\nb: [*a, *a]\n", "1: not readable as YAML: a has an anchor (&) or an alias (*)", id="bomb"),
        pytest.param("a: 1\nb: 2\na: 3\n", "3: 'a' is given twice; write it once", id="twice"),
        pytest.param("rules: [{name: a, name: b}]\n", "1: 'name' is given twice; write it once", id="twice-within"),
        pytest.param("rules: !!python/object/apply:os.system [x]\n", "1: not readable as YAML: rules has a tag", id="tag"),
        pytest.param("[" * 5000, "1: not readable as YAML: ", id="deep"),
        pytest.param("a: {b: {c: {d: {e: {f: {g: {h: {i: {j: {k: {l: {m: 1}}}}}}}}}}}}\n", "1: not readable as YAML: a is nested too deeply", id="nested"),
        pytest.param("a: \x01\n", "not readable as YAML: ", id="control"),
        pytest.param(f"# {'x' * 10_000_000}\n", "is larger than 1 MB; a rule file takes a page", id="10-MB"),
        pytest.param(f"{HEAD}  - {{{SEQUENCES}, context: 4k}}\n".replace("check/1", "check/2"), "1: schema is 'roofcast.check/2'; this version reads schema: roofcast.check/1", id="version"),
        pytest.param("schema: roofcast.check/1\n", "1: rules is missing; write - name: ...", id="no-rules"),
        pytest.param("schema: roofcast.check/1\nrules: {a: 1}\n", "2: rules must be a list of rules", id="rules-mapping"),
        pytest.param("schema: roofcast.check/1\nrules: []\n", "2: rules must be a list of rules", id="rules-empty"),
        pytest.param("schema: roofcast.check/1\nrules: [weights_fit]\n", "2: rule 1 must be a mapping such as", id="rule-scalar"),
        pytest.param(f"{HEAD}  - {{{SEQUENCES}, context: 4k}}\nruls: 3\n", "5: ruls is no field here; did you mean rules?", id="top"),
        pytest.param(f"{HEAD}  - {{{SEQUENCES}, context: 4k}}\nlock: yes\n", "5: lock: 'yes' is neither; write true or false", id="lock"),
        pytest.param(f"{HEAD}  - {{{SEQUENCES}, context: 4k}}\n".replace("{model", "{name: a, model"), "2: defaults: name is of one rule; write it there", id="default-name"),
        pytest.param(f"{HEAD}  - {{{SEQUENCES}, context: 4k}}\n".replace("{model", "{modle"), "2: defaults: modle is no field here; did you mean model?", id="default-field"),
        pytest.param(f"{HEAD}  - {{{SEQUENCES}, context: 4k}}\n".replace("h100-sxm", "h1000"), "2: defaults: gpu: no accelerator 'h1000'", id="default-gpu"),
        pytest.param("schema: roofcast.check/1\ndefaults: 3\nrules: [{quantity: weights_fit, model: m, gpu: h100}]\n", "2: defaults must map fields to values", id="defaults"),
    ],
)  # fmt: skip
def test_one_thing_wrong_with_a_file(tmp_path: Path, text: str, said: str) -> None:
    """Files that are none, and YAML that could crash its reader or mean something else, are refused in a line each."""
    lines = wrong(tmp_path, text)

    assert said in lines[0], lines
    missed = [line for line in lines if "is missing" not in line or "no-rules" in said]
    assert len(missed) <= 1 or said in missed[0], lines
    assert all("\n" not in line for line in lines)


def test_all_problems_are_said_at_once(tmp_path: Path) -> None:
    """Nothing is evaluated, and each problem has the line of its field: in the rule, its matrix, or the defaults."""
    text = (
        "schema: roofcast.check/1\n"
        "defaults:\n"
        "  model: llama-3.1-8b\n"
        "  gpu: h1000\n"
        "rules:\n"
        "  - name: a\n"
        "    quantity: tpot\n"
        "    context: 4q\n"
        "    at_most: 3\n"
        "    matrix:\n"
        "      batch: [1, x]\n"
        "  - name: b\n"
        "    quantity: sequnces\n"
    )
    (tmp_path / "rules.yaml").write_text(text)
    outcome = roofcast("check", str(tmp_path / "rules.yaml"))

    assert outcome.code == 2
    assert outcome.out == ""
    lines = [line.removeprefix(f"roofcast: {tmp_path}/rules.yaml:") for line in outcome.err.splitlines()]
    assert [line.partition(";")[0] for line in lines] == [
        "4: defaults: gpu: no accelerator 'h1000'",
        "8: rule 'a': context: '4q' is not a token count",
        "9: rule 'a': at_most: '3' has no unit",
        "11: rule 'a': batch: 'x' is not a token count",
        "13: rule 'b': quantity: no quantity 'sequnces'",
    ]


def test_a_wrong_matrix_hides_nothing_else(tmp_path: Path) -> None:
    """What is wrong beside it is said too, but nothing of fields that the matrix was to hold."""
    rule = "name: x, quantity: tpot, at_most: 3, matrix: {batch: 3, model: [m]}"
    lines = [line.partition(";")[0] for line in wrong(tmp_path, f"{HEAD}  - {{{rule}}}\n")]
    none = wrong(tmp_path, f"{HEAD}  - {{name: x, quantity: tpot, matrix: 3}}\n")

    assert lines == [
        "4: rule 'x': matrix: batch: must be a list of values, such as [1, 16]",
        "4: rule 'x': context: is missing",
        "4: rule 'x': at_most: '3' has no unit",
    ]
    assert [line.partition(";")[0] for line in none] == [
        "4: rule 'x': matrix: must map fields to lists, such as {gpu: [h100-sxm, h200-sxm]}",
        "4: rule 'x': at_most: is missing",
    ]


def test_two_rules_of_one_name(tmp_path: Path) -> None:
    """Names are those of the baseline, so that each must be the only one."""
    twice = f"{HEAD}  - {{name: x, {SEQUENCES}, context: 4k}}\n  - {{name: x, quantity: weights_fit}}\n"

    assert wrong(tmp_path, twice) == ["5: rule 'x': name: is that of the rule in line 4 too; give each its own"]


def test_too_many_rules(tmp_path: Path) -> None:
    """A matrix, a list and several matrices together make 2,000 rules at most; large ones are not multiplied out."""
    many = ", ".join(map(str, range(1, 101)))
    cube = f"matrix: {{batch: [{many}], context: [{many}], tp: [{many}], dp: [{many}]}}"
    plane = f"matrix: {{batch: [{many}], context: [{', '.join(map(str, range(1, 12)))}]}}"
    rule = "quantity: tpot, at_most: 1 s"

    assert wrong(tmp_path, f"{HEAD}  - {{name: x, {rule}, {cube}}}\n") == [
        "4: rule 'x': matrix: makes 100,000,000 rules; at most 2,000"
    ]
    twice = f"{HEAD}  - {{name: x, {rule}, {plane}}}\n  - {{name: y, {rule}, {plane}}}\n"
    assert wrong(tmp_path, twice) == ["5: rules: 2,200 with those of this entry; at most 2,000"]
    fields = ", ".join(f"x{n}: 1" for n in range(1000))
    assert wrong(tmp_path, f"{HEAD}  - {{{fields}}}\n")[0].startswith("4: rule 1 has 1,000 fields; there are ")
    assert "there are 2,001" in wrong(tmp_path, HEAD + "  - {quantity: weights_fit}\n" * 2001)[0]


def test_many_problems_are_cut_short(tmp_path: Path) -> None:
    """Of several hundred problems the first fifty are listed."""
    lines = wrong(tmp_path, HEAD + "".join(f"  - {{name: r{n}, quantity: x}}\n" for n in range(60)))

    assert len(lines) == 51
    assert lines[-1] == "and more problems"


@pytest.mark.parametrize("name", ["nothere.yaml", ".", "a\0b"])
def test_files_that_cannot_be_read(name: str) -> None:
    """They are named in one line."""
    with pytest.raises(RuleFileError, match="cannot be read"):
        read_rules([name], "expected")
