"""What `speculate` is asked: how much is drafted and accepted, and what drafts, as options give it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from roofcast.calculators.errors import UsageError
from roofcast.cli import options
from roofcast.cli.speculation_numbers import number_of, numbers, whole_numbers

if TYPE_CHECKING:
    from roofcast.calculators.answer import Remarks
    from roofcast.calculators.deployment import Ready
    from roofcast.calculators.drafts import Drafter, Shape
    from roofcast.calculators.rounds import Acceptance
    from roofcast.cli.session import Lookup
    from roofcast.modelspec.formats import Format
    from roofcast.modelspec.model import Model

DEFAULT_RATES: Final = (0.6, 0.8, 0.9)
DEFAULT_LENGTHS: Final = tuple(range(1, 9))
MOST_RATES: Final = 20
MOST_SHOWN: Final = 10**12  # an integer beyond is not written out


@dataclass(frozen=True, slots=True)
class Accepting:
    """How often drafted tokens are accepted.

    Args:
        accepted: every way that is asked for.
        implied: the one chance that a measurement implies; None without one. [-]
        most: longest draft of which that says anything; None is any. [token]
        remarks: where it is from.
    """

    accepted: list[Acceptance]
    implied: float | None
    most: int | None
    remarks: Remarks


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

    def check(self) -> None:
        """Refuses what cannot be before any file is read.

        Raises:
            UsageError: naming the option.
        """
        from roofcast.calculators.rounds import shapes_of

        ways = {
            "--acceptance": self.rates,
            "--acceptance-by-position": self.by_position,
            "--tokens-per-round": self.tokens,
            "--log": self.log,
        }
        given = [option for option, value in ways.items() if value is not None]
        if len(given) > 1:
            raise UsageError(f"{given[0]} and {given[1]} say the same thing; give one of them")
        asked = self._asked()
        if self.tokens is not None and len(asked) != 1:
            raise UsageError(
                "--tokens-per-round needs --k, the one number of tokens that its rounds drafted"
                + (f", not {self.lengths}" if self.lengths else "")
            )
        shapes_of(asked or DEFAULT_LENGTHS, self.tree, self.topk)

    def _asked(self) -> tuple[int, ...]:
        return () if self.lengths is None else whole_numbers(self.lengths)

    def accepting(self) -> Accepting:
        """How often drafted tokens are accepted.

        Raises:
            UsageError: chances that cannot be.
        """
        from roofcast.calculators.answer import Remarks
        from roofcast.calculators.rounds import Acceptance

        if self.by_position is not None:
            shares = numbers(self.by_position, "--acceptance-by-position")
            return Accepting([Acceptance(by_position=tuple(shares))], None, None, Remarks())
        if self.log is not None:
            return self._logged(self.log)
        if self.tokens is not None:
            return self._implied(self.tokens, self._asked()[0], Remarks())
        rates = numbers(self.rates, "--acceptance") if self.rates is not None else DEFAULT_RATES
        if len(rates) > MOST_RATES:
            raise UsageError(f"--acceptance has {len(rates)} values; at most {MOST_RATES} at once")
        return Accepting([Acceptance(rate) for rate in dict.fromkeys(rates)], None, None, Remarks())

    @staticmethod
    def _implied(tokens: float, drafted: int, said: Remarks) -> Accepting:
        """One chance for all positions; where all tokens were accepted nothing is known of a longer draft."""
        from roofcast.calculators.answer import remarks
        from roofcast.calculators.rounds import Acceptance
        from roofcast.calculators.speculative import acceptance_from_tokens

        implied = acceptance_from_tokens(tokens, drafted)
        if implied < 1:
            return Accepting([Acceptance(implied)], implied, None, said)
        note = "every drafted token was accepted: what a longer draft would yield is not known"
        return Accepting([Acceptance(by_position=(1.0,) * drafted)], implied, drafted, said + remarks(notes=[note]))

    def _logged(self, name: str) -> Accepting:
        """What a server's log says, by position where it does."""
        from roofcast.calculators.answer import remarks
        from roofcast.calculators.rounds import Acceptance
        from roofcast.calculators.rounds_log import read_log
        from roofcast.calculators.speculative import acceptance_from_tokens

        found = read_log(Path(name))
        lines = f"{found.lines:,} line{'s' * (found.lines > 1)} of {found.engine}"
        said = remarks(notes=[f"{name}: {lines}, {found.tokens:.2f} tokens a round"])
        if found.by_position:
            implied = acceptance_from_tokens(found.tokens, len(found.by_position))
            return Accepting([Acceptance(by_position=found.by_position)], implied, None, said)
        asked = self._asked()
        if len(asked) != 1:
            raise UsageError(
                f"--log {name}: {lines} tell no positions; --k must give the one number of tokens that rounds drafted"
            )
        return self._implied(found.tokens, asked[0], said)

    def drafted(self, accepting: Accepting) -> tuple[int, ...]:
        """Draft lengths: those asked, beside a measurement its own among the usual ones."""
        asked = self._asked() or DEFAULT_LENGTHS
        measured = self.tokens is not None and self.tree is None
        lengths = sorted({*DEFAULT_LENGTHS, *asked}) if measured else asked
        return tuple(k for k in lengths if accepting.most is None or k <= accepting.most)

    def shapes(self, accepting: Accepting) -> tuple[Shape, ...]:
        """The rounds to look at."""
        from roofcast.calculators.rounds import shapes_of

        return shapes_of(self.drafted(accepting), self.tree, self.topk)

    def inputs(self, accepting: Accepting) -> dict[str, object]:
        """As `inputs` repeats it."""
        accepted = accepting.accepted
        return {
            "acceptance": [one.rate for one in accepted if one.rate is not None],
            "acceptance_by_position": [list(one.by_position) for one in accepted if one.rate is None],
            "tokens_per_round": self.tokens,
            "log": self.log,
            "drafted": list(self.drafted(accepting)),
            "tree": self.tree,
            "topk": self.topk,
        }


@dataclass(frozen=True, slots=True)
class DraftAsked:
    """What drafts, as options give it."""

    name: str | None
    method: str | None
    weights: str | None
    tp: int | None
    cost: str | None

    def check(self) -> None:
        """Refuses what does not go together, before any model is read.

        Raises:
            UsageError: naming the options.
        """
        from roofcast.calculators.drafts import EAGLE, EAGLE3, MODEL, NGRAM

        options.size(self.tp, "--draft-tp")
        method = self.known_method
        if self.ratio is not None:
            beside = {
                "--draft": self.name,
                "--method": self.method,
                "--draft-weights": self.weights,
                "--draft-tp": self.tp,
            }
            given = [option for option, value in beside.items() if value is not None]
            if given:
                raise UsageError(f"--draft-cost is the whole cost of drafting; leave {given[0]} out")
        if method == MODEL and self.name is None:
            raise UsageError("--method draft_model needs --draft, the model that drafts")
        if self.name is not None and method not in {None, MODEL, EAGLE, EAGLE3}:
            raise UsageError(f"--method {method} follows from the model; leave --draft out")
        if method == NGRAM and self.weights is not None:
            raise UsageError("--method ngram has no weights; leave --draft-weights out")
        if self.tp is not None and self.name is None:
            raise UsageError("--draft-tp is of a draft model; name one with --draft")

    @property
    def known_method(self) -> str | None:
        """The method by its one name; None where none is asked for.

        Raises:
            UsageError: nothing goes by that name.
        """
        from roofcast.calculators.drafts import method_of

        return None if self.method is None else method_of(self.method)

    @property
    def ratio(self) -> float | None:
        """The cost of a draft step in decode steps; None where none is given. [-]

        Raises:
            UsageError: it is no number, or cannot be.
        """
        from roofcast.calculators.speculative import check_cost

        if self.cost is None:
            return None
        value = number_of(self.cost, self.cost, "--draft-cost")
        check_cost(value)
        return value

    @property
    def inputs(self) -> dict[str, object]:
        """As `inputs` repeats it."""
        return {
            "draft": self.name,
            "method": self.method,
            "draft_weights": self.weights,
            "draft_tp": self.tp,
            "draft_cost": self.ratio,
        }

    def drafter(self, target: Ready, lookup: Lookup) -> Drafter:
        """What drafts for a target.

        Raises:
            UsageError, ModelError: what is wrong with it.
        """
        from roofcast.calculators.draft_models import draft_model
        from roofcast.calculators.drafts import (
            EAGLE3,
            MODEL,
            HeadAsked,
            drafter_of,
            given_cost,
            usual_method,
        )
        from roofcast.cli.session import formats

        if self.ratio is not None:
            return given_cost(self.ratio)
        weights, _ = formats(self.weights, None)
        if self.name is None:
            method = self.known_method or usual_method(target)
            return _with_choice(drafter_of(method, target, HeadAsked(_plain(weights))), chosen=self.method is None)
        model, vocabulary = _load(self.name, lookup)
        method = self.known_method or (EAGLE3 if vocabulary else MODEL)
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
    model, rows = (
        load_model(checkpoint, encoder_tokens=lookup.encoder_tokens),
        checkpoint.config.get("draft_vocab_size"),
    )
    if rows is None:
        return model, None
    if not isinstance(rows, int) or isinstance(rows, bool) or not 1 <= rows <= model.spec.vocab:
        shown = repr(rows)[:40] if not isinstance(rows, int) or rows < MOST_SHOWN else "too large"
        raise UsageError(
            f"--draft {name}: draft_vocab_size is {shown}; it must be a number of tokens, at most vocab_size, {model.spec.vocab:,}"
        )
    return model, rows
