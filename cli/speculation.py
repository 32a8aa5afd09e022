"""The options of `speculate`, and which of them have a part in what is asked."""

from __future__ import annotations

from typing import Annotated, Final

import typer

from roofcast.calculators.errors import UsageError

DraftName = Annotated[
    str | None,
    typer.Option(
        "--draft",
        "--draft-model",
        metavar="MODEL",
        help="Model that drafts, or the config of a draft head (see --method).",
    ),
]
MethodName = Annotated[
    str | None,
    typer.Option(
        "--method",
        metavar="METHOD",
        help="draft_model, mtp, eagle, eagle3, medusa or ngram (default: --draft's, the model's own mtp, else eagle3).",
    ),
]
DraftWeights = Annotated[
    str | None,
    typer.Option("--draft-weights", metavar="FORMAT", help="Weights of the draft (default: as stored, heads bf16)."),
]
DraftTp = Annotated[
    int | None, typer.Option("--draft-tp", metavar="N", help="Tensor-parallel size of a draft model (default: --tp).")
]
DraftCost = Annotated[
    str | None,
    typer.Option(
        "--draft-cost", metavar="C", help="Time of a draft step over one of the model's decode steps, 0.05 or 5%."
    ),
]
Rates = Annotated[
    str | None,
    typer.Option(
        "--acceptance",
        "--acceptance-rate",
        metavar="A,...",
        help="Chances that a drafted token is accepted (default: 0.6,0.8,0.9).",
    ),
]
ByPosition = Annotated[
    str | None,
    typer.Option(
        "--acceptance-by-position",
        metavar="R,...",
        help="Shares of rounds that accept each position, as vLLM logs them.",
    ),
]
TokensARound = Annotated[
    float | None,
    typer.Option(
        "--tokens-per-round",
        "--mean-acceptance-length",
        metavar="T",
        help="Measured tokens a round of --k drafted ones: gives the acceptance.",
    ),
]
LogFile = Annotated[
    str | None,
    typer.Option(
        "--log", metavar="FILE", help="Server log (vLLM, SGLang) whose lines on speculation give the acceptance."
    ),
]
Lengths = Annotated[
    str | None,
    typer.Option(
        "--k",
        "-k",
        "--num-speculative-tokens",
        metavar="K,...",
        help="Tokens drafted a round, 4 or 1-8; of a tree its depth (default: 1-8).",
    ),
]
Tree = Annotated[
    int | None,
    typer.Option("--tree", metavar="N", help="Positions that a tree drafts in all, beside the token before it."),
]
TopK = Annotated[
    int | None,
    typer.Option("--topk", metavar="N", help="Positions that a draft step of a tree takes (default: spread evenly)."),
]
Check = Annotated[
    bool,
    typer.Option(
        "--check", help="Draw tokens by the acceptance rule and test that they are the target's; exit 1 if not."
    ),
]
TargetChances = Annotated[
    str | None, typer.Option("--target-probabilities", metavar="P,...", help="Of --check: the target's next token.")
]
DraftChances = Annotated[
    str | None, typer.Option("--draft-probabilities", metavar="Q,...", help="Of --check: the draft's next token.")
]
Draws = Annotated[int, typer.Option("--draws", metavar="N", help="Of --check: tokens to draw.")]
Seed = Annotated[int, typer.Option("--seed", metavar="N", help="Of --check: seed of the generator.")]
MeasuredFile = Annotated[
    str | None,
    typer.Option(
        "--measured", metavar="FILE", help="Measured rounds (JSON or CSV) beside the formulas and the roofline."
    ),
]


# what is asked -> the options that have a part in it; COMMON ones have in all
CHECK, MEASURED, FORMULAS, ROUNDS = "--check", "--measured", "the formulas alone (no MODEL)", "MODEL"
COMMON: Final = frozenset(("format", "out", "strict", "debug"))
ACCEPTED: Final = frozenset(("acceptance", "acceptance_by_position", "tokens_per_round", "log", "k", "draft_cost"))
OF_CHECK: Final = frozenset(("check", "target_probabilities", "draft_probabilities", "draws", "seed"))
PARTS: Final[dict[str, frozenset[str]]] = {
    CHECK: OF_CHECK | {"k"},
    MEASURED: frozenset(("measured", "offline")),
    FORMULAS: ACCEPTED,
}


def refuse_others(asking: typer.Context, mode: str) -> None:
    """Refuses options that have no part in what is asked.

    Raises:
        UsageError: naming the first.
    """
    for parameter in asking.command.params:
        source = asking.get_parameter_source(parameter.name or "")
        given = source is not None and source.name == "COMMANDLINE"
        part = PARTS.get(mode)
        fits = parameter.name not in OF_CHECK | {"measured"} if part is None else parameter.name in part
        if given and not fits and parameter.name not in COMMON:
            option = "MODEL" if parameter.param_type_name == "argument" else parameter.opts[0]
            others = [name for name, options in PARTS.items() if parameter.name in options and name != mode]
            where = f"it belongs to {others[0]}; " if others else "it needs a MODEL; " if mode == FORMULAS else ""
            raise UsageError(
                f"{option} has no part in {mode}: {where}leave it out{'' if mode != FORMULAS or others else ', or name one'}"
            )
