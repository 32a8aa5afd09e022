"""What `speculate` is asked for: its own options, and what they mean together."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from roofcast.calculators.errors import UsageError
from roofcast.cli import options

if TYPE_CHECKING:
    from roofcast.calculators.deployment import Ready
    from roofcast.calculators.drafts import Drafter, Shape
    from roofcast.calculators.rejection import Pair
    from roofcast.calculators.rounds import Acceptance
    from roofcast.cli.session import Lookup
    from roofcast.modelspec.formats import Format
    from roofcast.modelspec.model import Model

DEFAULT_RATES: Final = (0.6, 0.8, 0.9)
DEFAULT_LENGTHS: Final = tuple(range(1, 9))
MOST_LENGTHS: Final = 32
MOST_RATES: Final = 20
DEFAULT_TARGET: Final = (0.4, 0.3, 0.15, 0.1, 0.05)
DEFAULT_DRAFT: Final = (0.2, 0.2, 0.2, 0.2, 0.2)
DEFAULT_LENGTH: Final = 4  # of the check

DraftName = Annotated[
    str | None,
    typer.Option("--draft", metavar="MODEL", help="Model that drafts, or the config of a draft head (see --method)."),
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
    float | None,
    typer.Option("--draft-cost", metavar="C", help="Time of a draft step over one of the model's decode steps."),
]
Rates = Annotated[
    str | None,
    typer.Option(
        "--acceptance", metavar="A,...", help="Chances that a drafted token is accepted (default: 0.6,0.8,0.9)."
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
        "--tokens-per-round", metavar="T", help="Measured tokens a round of --k drafted ones: gives the acceptance."
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
        "--num-speculative-tokens",
        metavar="K,...",
        help="Tokens drafted a round; of a tree its depth (default: 1 to 8).",
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


@dataclass(frozen=True, slots=True)
class Asked:
    """How much is drafted and accepted, as options give it."""

    rates: str | None
    by_position: str | None
    tokens: float | None
    lengths: str | None
    tree: int | None
    topk: int | None
    log: str | None = None

    def drafted(self) -> tuple[int, ...]:
        """Draft lengths: those asked, beside a measurement its own among the usual ones.

        Raises:
            UsageError: no numbers, or too many.
        """
        from roofcast.calculators.speculative import check_drafted

        found = numbers(self.lengths, "--k") if self.lengths is not None else None
        if found is None:
            return DEFAULT_LENGTHS
        if len(found) > MOST_LENGTHS:
            raise UsageError(f"--k has {len(found)} values; at most {MOST_LENGTHS} at once")
        for value in found:
            if value != int(value):
                raise UsageError(f"--k {value:g}: it must be a whole number of tokens, such as 4")
            check_drafted(int(value))
        lengths = tuple(dict.fromkeys(map(int, found)))
        if self.tokens is None:
            return lengths
        if len(lengths) > 1:
            raise UsageError(f"--tokens-per-round is of rounds of one length; give one --k, not {self.lengths}")
        return tuple(sorted({*DEFAULT_LENGTHS, *lengths})) if self.tree is None else lengths

    def shapes(self) -> tuple[Shape, ...]:
        """The rounds to look at."""
        from roofcast.calculators.rounds import shapes_of

        return shapes_of(self.drafted(), self.tree, self.topk)

    def accepted(self) -> tuple[list[Acceptance], float | None]:
        """How often drafted tokens are accepted, and the acceptance that a measurement implies.

        Raises:
            UsageError: several ways of saying it, or chances that cannot be.
        """
        from roofcast.calculators.rounds import Acceptance

        ways = {
            "--acceptance": self.rates,
            "--acceptance-by-position": self.by_position,
            "--tokens-per-round": self.tokens,
            "--log": self.log,
        }
        given = [option for option, value in ways.items() if value is not None]
        if len(given) > 1:
            raise UsageError(f"{given[0]} and {given[1]} say the same thing; give one of them")
        if self.by_position is not None:
            return [Acceptance(by_position=tuple(numbers(self.by_position, "--acceptance-by-position")))], None
        if self.log is not None:
            return self._logged()
        if self.tokens is not None:
            return self._implied(self.tokens, "--tokens-per-round")
        rates = numbers(self.rates, "--acceptance") if self.rates is not None else DEFAULT_RATES
        if len(rates) > MOST_RATES:
            raise UsageError(f"--acceptance has {len(rates)} values; at most {MOST_RATES} at once")
        return [Acceptance(rate) for rate in dict.fromkeys(rates)], None

    def _implied(self, tokens: float, option: str) -> tuple[list[Acceptance], float]:
        """One chance for all positions, from the tokens that rounds of one length yield."""
        from roofcast.calculators.rounds import Acceptance
        from roofcast.calculators.speculative import acceptance_from_tokens

        if self.lengths is None:
            raise UsageError(f"{option} needs --k, how many tokens its rounds drafted")
        measured = int(numbers(self.lengths, "--k")[0])
        implied = acceptance_from_tokens(tokens, measured)
        always = Acceptance(by_position=(1.0,) * measured)  # no formula of one chance reaches 1
        return [Acceptance(implied) if implied < 1 else always], implied

    def _logged(self) -> tuple[list[Acceptance], float | None]:
        """What a server's log says, by position where it does."""
        from roofcast.calculators.rounds import Acceptance
        from roofcast.calculators.rounds_log import read_log
        from roofcast.calculators.speculative import acceptance_from_tokens

        found = read_log(Path(str(self.log)))
        if not found.by_position:
            return self._implied(found.tokens, "--log of SGLang")
        implied = acceptance_from_tokens(found.tokens, len(found.by_position))
        return [Acceptance(by_position=found.by_position)], implied

    @property
    def inputs(self) -> dict[str, object]:
        """As `inputs` repeats it."""
        accepted, _ = self.accepted()
        return {
            "acceptance": [one.rate for one in accepted if one.rate is not None],
            "acceptance_by_position": [list(one.by_position) for one in accepted if one.rate is None],
            "tokens_per_round": self.tokens,
            "log": self.log,
            "drafted": list(self.drafted()),
            "tree": self.tree,
            "topk": self.topk,
        }


def numbers(text: str, option: str) -> list[float]:
    """A comma-separated list of numbers.

    Raises:
        UsageError: one of them is none.

    >>> numbers("0.6,0.8", "--acceptance")
    [0.6, 0.8]
    """
    values = []
    for part in text.split(","):
        try:
            value = float(part)
        except ValueError:
            value = math.nan
        if not math.isfinite(value):
            raise UsageError(f"{option} {text[:60]}: {part.strip()[:20]!r} is no number; write numbers like 0.6,0.8")
        values.append(value)
    return values


def pair_of(target: str | None, draft: str | None) -> Pair:
    """The two distributions of the check.

    Raises:
        UsageError: they are none, or one is missing.
    """
    from roofcast.calculators.rejection import Pair

    if (target is None) != (draft is None):
        raise UsageError("--target-probabilities and --draft-probabilities belong together; give both or neither")
    if target is None or draft is None:
        return Pair(DEFAULT_TARGET, DEFAULT_DRAFT)
    return Pair(tuple(numbers(target, "--target-probabilities")), tuple(numbers(draft, "--draft-probabilities")))


@dataclass(frozen=True, slots=True)
class DraftAsked:
    """What drafts, as options give it."""

    name: str | None
    method: str | None
    weights: str | None
    tp: int | None
    cost: float | None

    def check(self) -> None:
        """Refuses what does not go together, before any model is read.

        Raises:
            UsageError: naming the options.
        """
        from roofcast.calculators.drafts import EAGLE, EAGLE3, METHODS, MODEL, given_cost

        options.size(self.tp, "--draft-tp")
        if self.method is not None and self.method not in (MODEL, *METHODS):
            raise UsageError(f"--method {self.method}: known: {', '.join((MODEL, *METHODS))}")
        if self.cost is not None:
            given_cost(self.cost)
            beside = {
                "--draft": self.name,
                "--method": self.method,
                "--draft-weights": self.weights,
                "--draft-tp": self.tp,
            }
            given = [option for option, value in beside.items() if value is not None]
            if given:
                raise UsageError(f"--draft-cost is the whole cost of drafting; leave {given[0]} out")
        if self.method == MODEL and self.name is None:
            raise UsageError("--method draft_model needs --draft, the model that drafts")
        if self.name is not None and self.method not in {None, MODEL, EAGLE, EAGLE3}:
            raise UsageError(f"--method {self.method} follows from the model; leave --draft out")
        if self.tp is not None and self.name is None:
            raise UsageError("--draft-tp is of a draft model; name one with --draft")

    @property
    def inputs(self) -> dict[str, object]:
        """As `inputs` repeats it."""
        return {
            "draft": self.name,
            "method": self.method,
            "draft_weights": self.weights,
            "draft_tp": self.tp,
            "draft_cost": self.cost,
        }

    def drafter(self, target: Ready, lookup: Lookup) -> Drafter:
        """What drafts for a target.

        Raises:
            UsageError, ModelError: what is wrong with it.
        """
        from roofcast.calculators.drafts import (
            EAGLE3,
            MODEL,
            HeadAsked,
            draft_model,
            drafter_of,
            given_cost,
            usual_method,
        )
        from roofcast.cli.session import formats

        if self.cost is not None:
            return given_cost(self.cost)
        weights, _ = formats(self.weights, None)
        if self.name is None:
            method = self.method or usual_method(target)
            return _with_choice(drafter_of(method, target, HeadAsked(_plain(weights))), chosen=self.method is None)
        model, vocabulary = _load(self.name, lookup)
        method = self.method or (EAGLE3 if vocabulary else MODEL)
        if method != MODEL:
            return drafter_of(method, target, HeadAsked(_plain(weights), model.spec, vocabulary, model.name))
        return draft_model(target, model, weights, self.tp)


def _with_choice(drafter: Drafter, *, chosen: bool) -> Drafter:
    """A head that nobody named is an assumption, unless it is the model's own."""
    from dataclasses import replace

    from roofcast.calculators.drafts import MTP

    if not chosen or drafter.method == MTP:
        return drafter
    said = f"no draft is named: {drafter.name} is taken; --draft or --method names another"
    return replace(drafter, assumptions=(said, *drafter.assumptions))


def _plain(weights: object) -> Format | None:
    """The one format of a head's weights; a mix of llama.cpp is of whole models.

    Raises:
        UsageError: it is a mix.
    """
    from roofcast.modelspec.formats import Format

    if weights is None or isinstance(weights, Format):
        return weights
    raise UsageError(
        "--draft-weights: a mix of llama.cpp is of whole models; a head takes one format, such as bf16 or fp8"
    )


def _load(name: str, lookup: Lookup) -> tuple[Model, int | None]:
    """A draft, and the rows of its head where its config states those of a draft head."""
    from roofcast.modelspec.model import load_model
    from roofcast.modelspec.source import resolve

    checkpoint = resolve(name, offline=lookup.offline)
    rows = checkpoint.config.get("draft_vocab_size")
    if rows is not None and (not isinstance(rows, int) or isinstance(rows, bool) or rows < 1):
        raise UsageError(f"--draft {name}: draft_vocab_size is {str(rows)[:40]!r}; it must be a number of tokens")
    return load_model(checkpoint), rows


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
            where = f"; it belongs to {others[0]}" if others else "; it is of a MODEL" if part is not None else ""
            raise UsageError(f"{option} has no part in {mode}{where}: leave it out")


def one_length(text: str | None) -> int:
    """The one draft length of the check.

    Raises:
        UsageError: there are several, or it cannot be.
    """
    found = Asked(None, None, None, text, None, None).drafted() if text is not None else (DEFAULT_LENGTH,)
    if len(found) > 1:
        raise UsageError(f"--k {text}: --check draws rounds of one length")
    return found[0]
