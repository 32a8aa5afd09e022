"""`roofcast speculate`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from roofcast.calculators.answer import Remarks
from roofcast.cli import options, speculation
from roofcast.cli.deploy import Machine, Points, deploy, few_rows, one
from roofcast.cli.errors import GateError
from roofcast.cli.session import Lookup, Output, check_output, explain_or, load, present
from roofcast.cli.speculation_asked import Asked, DraftAsked
from roofcast.cli.speculation_numbers import one_length, pair_of
from roofcast.modelspec.errors import ModelError

if TYPE_CHECKING:
    from roofcast.calculators.rejection import Pair
    from roofcast.cli.speculation_asked import Accepting
    from roofcast.modelspec.model import Model

DEFAULT_CONTEXT = 4096  # tokens
DEFAULT_DRAWS = 100_000


def speculate(
    asking: typer.Context,
    model: options.OneModel = None,
    gpu: options.Gpu = None,
    gpus: options.GpuCount = None,
    tp: options.Tp = None,
    ep: options.Ep = 1,
    dp: options.Dp = 1,
    network: options.Network = None,
    engine: options.AnyEngine = "none",
    draft: speculation.DraftName = None,
    method: speculation.MethodName = None,
    draft_weights: speculation.DraftWeights = None,
    draft_tp: speculation.DraftTp = None,
    draft_cost: speculation.DraftCost = None,
    acceptance: speculation.Rates = None,
    acceptance_by_position: speculation.ByPosition = None,
    tokens_per_round: speculation.TokensARound = None,
    log: speculation.LogFile = None,
    k: speculation.Lengths = None,
    tree: speculation.Tree = None,
    topk: speculation.TopK = None,
    batch: options.StepBatches = None,
    context: options.OneContext = None,
    weights: options.Weights = None,
    kv: options.Kv = None,
    encoder_tokens: options.EncoderTokens = None,
    revision: options.Revision = None,
    offline: options.Offline = False,
    measured: speculation.MeasuredFile = None,
    check: speculation.Check = False,
    target_probabilities: speculation.TargetChances = None,
    draft_probabilities: speculation.DraftChances = None,
    draws: speculation.Draws = DEFAULT_DRAWS,
    seed: speculation.Seed = 0,
    format: options.Format = None,
    out: options.Out = None,
    strict: options.Strict = False,
    explain: options.Explain = None,
    debug: options.Debug = False,
) -> None:
    """Speculative decoding: tokens a round, speed-up, best k.

    Without MODEL by the formulas alone; with one, as the roofline times its steps and the draft's.
    """
    explain_or(explain)
    from roofcast.calculators.rounds import Speculation
    from roofcast.calculators.speculate import speculate_result
    from roofcast.reports.speculate import speculate_document

    output = Output(format, out, strict)
    mode = speculation.CHECK if check else speculation.MEASURED if measured is not None else None
    speculation.refuse_others(asking, mode or (speculation.FORMULAS if model is None else speculation.ROUNDS))
    asked = Asked(acceptance, acceptance_by_position, tokens_per_round, k, tree, topk, log)
    if check:
        pair = pair_of(target_probabilities, draft_probabilities)
        _check(pair, one_length(k), draws, seed, output)
        return
    if measured is not None:
        _measured(measured, Lookup(None, offline), output)
        return
    drafting = DraftAsked(draft, method, draft_weights, draft_tp, draft_cost)
    drafting.check()
    asked.check()
    points = Points(batch)
    points.check()
    tokens = one(context, "--context", DEFAULT_CONTEXT)
    check_output(output, [name for name in (model, draft, log) if name])
    accepting = asked.accepting()
    if model is None:
        _formulas(asked, accepting, drafting.ratio, output)
        return
    lookup = Lookup(revision, offline, encoder_tokens=options.encoder_count(encoder_tokens))
    batches = points.batches()
    shapes = asked.shapes(accepting)
    few_rows(len(batches) * len(accepting.accepted) * len(shapes), "--batch, --acceptance and --k")
    made = deploy(model, lookup, Machine(gpu, gpus, tp, 1, ep, dp, network, engine), weights, kv)
    drafter = drafting.drafter(made.ready, lookup)
    question = Speculation(made.ready, drafter, tokens, shapes)
    result, said = speculate_result(question, accepting.accepted, batches, accepting.implied)
    inputs = made.inputs | drafting.inputs | asked.inputs(accepting) | {"batches": batches, "context": tokens}
    present(speculate_document(result, inputs, said + made.remarks + accepting.remarks), output)


def _formulas(asked: Asked, accepting: Accepting, cost: float | None, output: Output) -> None:
    """Tokens a round and, where a draft's cost is given, the textbook's speed-up."""
    from roofcast.calculators.speculate import continued, formulas_result
    from roofcast.reports.speculate import speculate_document

    lengths = asked.drafted(accepting)
    result = formulas_result(accepting.accepted, lengths, cost, accepting.implied)
    said = accepting.remarks + continued(accepting.accepted, max(lengths))
    present(speculate_document(result, {"draft_cost": cost, **asked.inputs(accepting)}, said), output)


def _measured(name: str, lookup: Lookup, output: Output) -> None:
    """Measured rounds beside the formulas and the roofline."""
    from roofcast.calculators.measured_rounds import measured_remarks, measured_row
    from roofcast.calculators.rounds_file import read_rounds
    from roofcast.calculators.speculate import measured_result
    from roofcast.reports.speculate import speculate_document

    found: dict[str, Model | ModelError] = {}

    def find(model: str) -> Model:
        if model not in found:
            found[model] = _loaded(model, lookup)
        made = found[model]
        if isinstance(made, ModelError):
            raise made
        return made

    check_output(output, [name])
    rows, others = read_rounds(Path(name))
    check_output(output, [name, *(one for row in rows for one in (row.model, row.draft) if _is_path(one))])
    made = [measured_row(row, find) for row in rows]
    inputs = {"measured": name, "rows": len(rows), "rows_of_something_else": others}
    present(speculate_document(measured_result(made), inputs, measured_remarks(rows, made)), output)


def _loaded(name: str, lookup: Lookup) -> Model | ModelError:
    """A model of the catalogue by any case, of a path or a repo; or why it cannot be."""
    try:
        return load(name if "/" in name or _is_path(name) else name.lower(), lookup)
    except ModelError as error:
        return error


def _is_path(name: str) -> bool:
    try:
        return bool(name) and Path(name).exists()
    except (OSError, ValueError):
        return False


def _check(pair: Pair, drafted: int, draws: int, seed: int, output: Output) -> None:
    """Draws by the acceptance rule.

    Raises:
        GateError: what it drew is not the target's.
    """
    from roofcast.calculators.rejection import check_rule
    from roofcast.calculators.speculate import rule_result
    from roofcast.reports.speculate import speculate_document

    check_output(output)
    rule = check_rule(pair, drafted, draws, seed)
    inputs = {"drafted": drafted, "draws": draws, "seed": seed, "draft": list(pair.draft)}
    present(speculate_document(rule_result(rule), inputs, Remarks()), output)
    if not rule.reproduced:
        raise GateError(f"chi-square {rule.chi_square:.1f} of {rule.degrees} degrees: p is {rule.p_value:.2g}")
