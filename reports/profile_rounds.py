"""Tables of measured rounds of speculation: their times, what they cost and bring beside estimates, and rounds of real text."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from roofcast.hwdb.units import show_percent
from roofcast.reports.data import as_data
from roofcast.reports.document import Table, table
from roofcast.reports.numbers import NOTHING, context_name, count, figures, fixed, millis, ratio
from roofcast.reports.profile_machine import percent

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from roofcast.calculators.profile_rows import ProfileResult
    from roofcast.calculators.profile_rows_rounds import DifferenceRow, RoundRow, SpeculationRow, SpedRow, TextRow
    from roofcast.calculators.profile_rows_time import TimeRow

FAILED: Final = "did not run"
POSITIONS: Final = 8  # of a draft that are shown
MOST_DIFFERENCES: Final = 20
TIMES: Final = ("decode", "draft", "drafting", "verify", "round")
#: kind of estimate -> what its columns are headed with
KINDS: Final = {"measured": "x", "bound": "bound", "expected": "expect"}

ROUNDS_NOTE: Final = (
    "a round is k steps of the draft, each fed what the one before chose, one pass of the target over k + 1 positions, and the "
    "comparing, all as one; where every token is accepted the draft owes one more, which is not counted, as `speculate` does not; a part timed alone may find "
    "in the cache what it reads from memory in the round, which then takes longer than its parts"
)
COST_NOTE: Final = (
    "x is in decode steps of the target, as it is of speed-ups over plain decode: (1 - a^(k+1)) / (1 - a) tokens a round at an "
    "acceptance a, over the cost of one"
)
BOUND_NOTE: Final = (
    "bound and expect are k draft steps and one pass over k + 1 positions, comparing not counted: least times of the data sheet, "
    "as `roofcast speculate` has them but of fp8, whose embedding and head are in 16 bits here, and times by fitted constants"
)
TEXT_NOTE: Final = (
    "real text: greedy, by transformers, speculation beside plain decoding of the same prompts; tokens a round count the last "
    "round whole, which the end of a text cuts; a of text is what (1 - a^(k+1)) / "
    "(1 - a) makes of tokens a round; by position: share of rounds that accept it and all before it"
)
TIE_NOTE: Final = (
    "a tie: the two tokens' logits differ by no more than rounding, which another number of rows at once changes; no fault of "
    "speculation"
)


def round_lines(result: ProfileResult) -> Iterator[str]:
    """What drafts, and the best round of each batch."""
    found = result.speculation
    if found is None:
        return
    where = f"through transformers {found.transformers}" if found.transformers and found.texts else ""
    yield f"draft: {found.draft} in {found.draft_weights}, random weights too{f'; real text {where}' if where else ''}"
    for one in found.texts:
        same = "the same text as plain decoding" if one.same_output else _parted(one)
        yield f"real text, k = {one.drafted}: {one.tokens_per_round:.2f} tokens a round, x {ratio(one.speedup)}, {same}"


def _parted(one: TextRow) -> str:
    """How many texts differ from plain decoding, and whether ties are why."""
    ties = sum(row.tie for row in one.differences)
    why = "at ties of rounding" if ties == len(one.differences) else f"{ties:,} of them at ties of rounding"
    return f"{len(one.differences):,} of {one.prompts:,} texts part from plain decoding, {why}"


def round_tables(found: SpeculationRow) -> Iterator[Table]:
    """Best lengths, speed-ups, costs and times of rounds; then real text."""
    ran = [row for row in found.rounds if row.round is not None]
    if ran and ran[0].speedups:
        yield _best(ran)
        yield _speedups(ran)
    if ran:
        yield _costs(ran)
    if found.rounds:
        yield _times(found.rounds)
    if found.texts:
        yield _texts(found.texts)
        yield _positions(found.texts)
        differing = [(one, row) for one in found.texts for row in one.differences]
        if differing:
            yield _differences(differing)


def round_notes(found: SpeculationRow) -> tuple[str | None, ...]:
    """How the numbers are meant."""
    return (
        ROUNDS_NOTE if found.rounds else None,
        COST_NOTE if found.rounds else None,
        BOUND_NOTE if any(row.cost.bound is not None for row in found.rounds) else None,
        TEXT_NOTE if found.texts else None,
        TIE_NOTE if any(row.tie for one in found.texts for row in one.differences) else None,
    )


def round_records(result: ProfileResult) -> Iterator[dict[str, Any]]:
    """Rows of CSV: every round once an acceptance, then every k of real text, each with the name of its table."""
    found = result.speculation
    if found is None:
        return
    named = {"model": found.target, "draft_model": found.draft, "weights": result.weights}
    for row in found.rounds:
        own = {key: value for key, value in as_data(row).items() if key != "speedups"}
        for one in row.speedups:
            sped = {f"speedup_{key}": value for key, value in as_data(one).items()}
            yield {"table": "rounds", **named, **own, **sped}
    for text in found.texts:
        own = {key: value for key, value in as_data(text).items() if key != "differences"}
        shares = {f"accepted_{n}": share for n, share in enumerate(own.pop("accepted_by_position"), 1)}
        yield {"table": "texts", **named, **own, **shares, "differences": len(text.differences)}


def _kinds(rows: Sequence[RoundRow]) -> tuple[str, ...]:
    """What stands beside each other: measured, and the estimates that there are."""
    return tuple(kind for kind in KINDS if any(getattr(row.cost, kind) is not None for row in rows))


def _point(row: RoundRow) -> tuple[str, str]:
    return context_name(row.context), count(row.batch)


def _best(rows: Sequence[RoundRow]) -> Table:
    """The length of the largest speed-up of each batch, context and acceptance, by measurement and by estimates."""
    kinds = _kinds(rows)
    header = ["ctx", "batch", "a"]
    for kind in kinds:
        header += [f"best k\n{kind}", "x"]
    points = list(dict.fromkeys((row.context, row.batch) for row in rows))
    cells = []
    for point in points:
        some = [row for row in rows if (row.context, row.batch) == point]
        for number, one in enumerate(some[0].speedups):
            line = [*_point(some[0]), f"{one.acceptance:.3g}"]
            for kind in kinds:
                line += _fastest(some, number, kind)
            cells.append(line)
    return table(header, cells, title="best draft length of those measured, and its speed-up over plain decode", keys=3)


def _fastest(rows: Sequence[RoundRow], number: int, kind: str) -> list[str]:
    """Length and speed-up of the fastest at an acceptance; none where plain decode is faster."""
    speeds = [(speed, row.drafted) for row in rows if (speed := getattr(row.speedups[number], kind)) is not None]
    if not speeds:
        return [NOTHING, NOTHING]
    speed, drafted = max(speeds, key=lambda pair: pair[0])
    return [count(drafted) if speed > 1 else "none", ratio(speed)]


def _speedups(rows: Sequence[RoundRow]) -> Table:
    """A row a round, columns an acceptance and kind."""
    kinds, rates = _kinds(rows), rows[0].speedups
    header = ["ctx", "batch", "k", "pays\nabove a"]
    header += [f"{KINDS[kind]}\na = {one.acceptance:.3g}" for one in rates for kind in kinds]
    cells = [
        (*_point(row), count(row.drafted), _pays(row), *(_sped(one, kind) for one in row.speedups for kind in kinds))
        for row in rows
    ]
    breaks = range(4 + len(kinds), len(header), len(kinds))
    return table(header, cells, title="speed-up over plain decode at an acceptance a", breaks=breaks, keys=3)


def _sped(one: SpedRow, kind: str) -> str:
    value: float | None = getattr(one, kind)
    return ratio(value)


def _pays(row: RoundRow) -> str:
    """The measured acceptance above which a round pays."""
    return "never" if row.break_even_acceptance is None else f"{row.break_even_acceptance:.2f}"


def _costs(rows: Sequence[RoundRow]) -> Table:
    """Draft step, verifying and the whole in decode steps, each measured and estimated."""
    kinds = _kinds(rows)
    parts: dict[str, Callable[[RoundRow, str], float | None]] = {
        "draft": lambda row, kind: getattr(row, _field("draft_ratio", kind)),
        "verify": lambda row, kind: getattr(row, _field("verify_ratio", kind)),
        "round": lambda row, kind: getattr(row.cost, kind),
    }
    header = ["ctx", "batch", "k", *(f"{part}\n{KINDS[kind]}" for part in parts for kind in kinds)]
    cells = [
        (*_point(row), count(row.drafted), *(ratio(of(row, kind)) for of in parts.values() for kind in kinds))
        for row in rows
    ]
    breaks = range(3 + len(kinds), len(header), len(kinds))
    title = "in decode steps: a draft step, verifying k + 1 positions, a whole round"
    return table(header, cells, title=title, breaks=breaks, keys=3)


def _field(name: str, kind: str) -> str:
    return name if kind == "measured" else f"{kind}_{name}"


def _times(rows: Sequence[RoundRow]) -> Table:
    """Times of the parts and of the whole, beside what a decode step is estimated to take."""
    bound = any(row.bound_decode_seconds is not None for row in rows)
    expected = any(row.expected_decode_seconds is not None for row in rows)
    header = ["ctx", "batch", "k", "decode\nms", *(["decode\nbound"] if bound else [])]
    header += [*(["decode\nexpect"] if expected else []), "draft\nms", "k drafts\nms", "verify\nms", "round\nms"]
    cells = []
    for row in rows:
        decode, *others = (_millis(getattr(row, name)) for name in TIMES)
        beside = [millis(row.bound_decode_seconds)] if bound else []
        beside += [millis(row.expected_decode_seconds)] if expected else []
        if row.round is None:
            others[-1] = FAILED
        cells.append([*_point(row), count(row.drafted), decode, *beside, *others])
    return table(header, cells, title="times of a round and its parts", keys=3)


def _millis(time: TimeRow | None) -> str:
    return millis(None if time is None else time.seconds)


def _texts(rows: Sequence[TextRow]) -> Table:
    """Real text at every k."""
    header = (
        "k",
        "prompts",
        "new\ntokens",
        "rounds",
        "tokens\na round",
        "a",
        "plain\ns",
        "specul.\ns",
        "x",
        "same\ntext",
    )
    cells = [
        (
            count(row.drafted),
            count(row.prompts),
            count(row.new_tokens),
            count(row.rounds),
            fixed(row.tokens_per_round, 2),
            fixed(row.acceptance, 2),
            figures(row.plain_seconds),
            figures(row.speculative_seconds),
            ratio(row.speedup),
            "yes" if row.same_output else "no",
        )
        for row in rows
    ]
    return table(header, cells, title="real text: speculation beside plain greedy decoding", left=(0, 9))


def _positions(rows: Sequence[TextRow]) -> Table:
    """Shares of rounds that accept each position."""
    most = min(POSITIONS, max(len(row.accepted_by_position) for row in rows))
    header = ["k", *(f"token {n}" for n in range(1, most + 1))]
    cells = [
        [count(row.drafted), *((*map(percent, row.accepted_by_position), *[NOTHING] * most)[:most])] for row in rows
    ]
    return table(header, cells, title="share of rounds that accept each drafted token, and all before it")


def _differences(rows: Sequence[tuple[TextRow, DifferenceRow]]) -> Table:
    """Where texts part from plain decoding."""
    header = ("k", "prompt", "new\ntoken", "gap of\nlogits", "largest\nlogit", "gap of it", "tie")
    cells = [
        (
            count(one.drafted),
            count(row.prompt),
            count(row.position),
            figures(row.gap),
            figures(row.scale),
            show_percent(row.gap / row.scale, 2) if row.scale else NOTHING,
            "yes" if row.tie else "no",
        )
        for one, row in rows[:MOST_DIFFERENCES]
    ]
    more = f" (the first {MOST_DIFFERENCES} of {len(rows):,})" if len(rows) > MOST_DIFFERENCES else ""
    return table(header, cells, title=f"where texts part from plain decoding{more}", left=(0, 6))
