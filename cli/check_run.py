"""A run of `check`: every rule answered, the facts behind the numbers held against the baseline, the result."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from roofcast.calculators.answer import Remarks, remarks
from roofcast.calculators.check import BAD, NOT_MET, NOT_TOLD, OK, STATUS, WORST, judge, untold
from roofcast.calculators.check_baseline import Baseline, Places, locked, moved, updated, what_moved
from roofcast.calculators.check_plan import named_gpus
from roofcast.calculators.check_rows import CheckResult, RuleRow
from roofcast.cli.check_values import in_fields
from roofcast.cli.checking import Setups, model_key
from roofcast.cli.errors import exit_code, show_traceback
from roofcast.hwdb.efficiency_files import BUILT_IN, KINSHIP, EfficiencyFileError, efficiency_files, read_efficiency

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from roofcast.calculators.check import Rule
    from roofcast.calculators.check_plan import Planned
    from roofcast.calculators.check_quantities import Case
    from roofcast.calculators.check_rows import Found, Locked
    from roofcast.cli.check_file import RuleFile
    from roofcast.modelspec.model import Model

MANY: Final = 50  # rules that take about a second
NOT_FACTS: Final = frozenset(("sources", "notes", "confidence", "unverified"))  # of an accelerator
LOCK: Final = "lock"
OF_GPUS: Final = frozenset(("accelerator", "rent"))  # kinds of locks
SHOWN_DIGITS: Final = 12  # of a digest

Locks = dict[tuple[str, str], str]


@dataclass(frozen=True, slots=True)
class Run:
    """What a run found.

    Args:
        result: its answer.
        said: what was assumed, and what should be known.
        after: the baseline as an update writes it.
        code: exit code.
    """

    result: CheckResult
    said: Remarks
    after: Baseline
    code: int


@dataclass(frozen=True, slots=True)
class Against:
    """The baseline of a run.

    Args:
        name: of its file; None without one.
        before: what it holds; None where there is none yet.
        update: whether this run writes it.
        command: that writes it, as people type it.
        places: of the rule files, as the baseline names them.
    """

    name: str | None
    before: Baseline | None
    update: bool
    command: str
    places: Places


def run(files: Sequence[RuleFile], setups: Setups, against: Against) -> Run:
    """Answers every rule, and holds it against its limit and the baseline.

    Raises:
        EfficiencyFileError: a file of constants that cannot be read.
    """
    rules = [rule for one in files for rule in one.rules]
    before = against.before or Baseline()
    rows = list(_answered(rules, setups, before, against))
    found = _locks(rules, setups)
    after, kept = updated(before, rows, found, against.places)
    locks = locked(found, after if against.update else against.before)
    of_locks, warned = _lock_rows(files, locks, against)
    rows += of_locks
    codes = [row.code for row in rows]
    result = CheckResult(
        rules=rows,
        passed=codes.count(OK),
        failed=codes.count(NOT_MET),
        undetermined=codes.count(NOT_TOLD) + codes.count(BAD),
        files=[one.name for one in files],
        baseline=against.name,
        updated=against.update,
        locks=locks,
        facts_version=_facts_version(found),
    )
    said = _in_fields(setups.said + _of_deployments(setups)) + remarks(warnings=warned)
    if against.update:
        said += remarks(notes=[*moved(before, after), *kept])
    return Run(result, said, after, next(code for code in WORST if code in {OK, *codes}))


def _answered(rules: Sequence[Rule], setups: Setups, before: Baseline, against: Against) -> Iterator[RuleRow]:
    """A row for every rule, counted by a bar where stderr is a terminal and there are many."""
    from roofcast.cli.progress import progress_of

    with progress_of("rules") as bar:
        if bar is not None and len(rules) >= MANY:
            bar.start(len(rules))
        for rule in rules:
            yield _row(rule, setups, before, against)
            if bar is not None:
                bar.advance()


def _row(rule: Rule, setups: Setups, before: Baseline, against: Against) -> RuleRow:
    """The row of a rule; what its user can act on becomes its message."""
    kept, found = against.places.kept(before, rule.name, rule.file), None
    try:
        found = rule.about.compute(rule.case, setups)
    except Exception as error:
        code = exit_code(error)
        if code is None or isinstance(error, EfficiencyFileError):  # a fault of our own, or of every rule
            raise
        show_traceback()
        made = untold(rule, kept, BAD if code == BAD else NOT_TOLD, in_fields(str(error)))
    else:
        made = judge(rule, found, kept, against.command, accepted=against.update)
        setups.note(rule.case, in_memory=rule.about.of_memory, contexts=_contexts(rule))
    return replace(made, gpu=_accelerator(rule, found, setups))


def _accelerator(rule: Rule, found: Found | None, setups: Setups) -> str | None:
    """Id of the accelerator that a rule is about; of one that leaves it open that of what was found."""
    if rule.gpu is None:
        return None
    if rule.about.planned and len(named_gpus(rule.gpu)) != 1:
        return None if found is None else found.gpu
    return setups.match(rule.case).accelerator.id


def _contexts(rule: Rule) -> list[int]:
    """Tokens of a sequence that a rule is about."""
    case, takes = rule.case, rule.about.takes
    if case.trace is not None:
        return []
    if "output" in rule.about.needs or case.loaded or rule.about.searched:
        return [case.prompt + case.output]
    return [getattr(case, name) for name in ("context", "prompt") if name in takes]


def _in_fields(said: Remarks) -> Remarks:
    """Remarks with fields of rules in the place of options."""
    return Remarks(*(tuple(map(in_fields, lines)) for lines in (said.assumptions, said.warnings, said.notes)))


def _of_deployments(setups: Setups) -> Remarks:
    """What is assumed of the deployments whose times were asked; constants are known once they were used."""
    from roofcast.calculators.estimate import constants_remarks, ready_remarks

    said = setups.of_models()
    for ready in setups.kind("ready"):
        said += ready_remarks(ready, ()) + constants_remarks(ready)
    return said


def model_name(case: Case) -> str:
    """A model as locks name it.

    >>> from roofcast.calculators.check_quantities import Case
    >>> model_name(Case(model="org/name", revision="v2"))
    'org/name@v2'
    """
    return case.model if case.revision is None else f"{case.model}@{case.revision}"


def _locks(rules: Sequence[Rule], setups: Setups) -> Locks:
    """What the numbers were made from: commits and digests."""
    from importlib.metadata import version

    found: Locks = {("roofcast", "roofcast"): version("roofcast")}
    for rule in rules:
        model = setups.made.get(("model", *model_key(rule.case)))
        if model is not None and not isinstance(model, Exception):
            found["model", model_name(rule.case)] = _model_lock(model)
    for match in setups.kind("gpu"):
        facts = match.accelerator.model_dump(mode="json", exclude=set(NOT_FACTS))
        found["accelerator", match.accelerator.id] = digest(facts)
    plans: list[Planned] = setups.kind("plan")
    for plan in plans:
        if plan.best is not None and plan.rent is not None:
            found["rent", plan.best.gpu] = plan.rent
    own = setups.efficiencies.file
    files: dict[str, None] = {}
    for ready in setups.kind("ready"):
        if ready.expectation is not None:
            files |= {choice.file: None for choice in ready.expectation.used}
    paths = efficiency_files() if files else {}
    wider = (BUILT_IN / KINSHIP).read_text(encoding="utf-8") if files else ""
    for name in files:
        found["constants", name] = _constants_lock(name, own, paths, wider)
    return found


def _model_lock(model: Model) -> str:
    """Commit on the Hub, where it is from there, and digest of its config."""
    config = f"config {digest(dict(model.config))}"
    return f"commit {model.commit}, {config}" if model.commit else config


def _constants_lock(name: str, own: Path | None, paths: Mapping[str, Path], wider: str) -> str:
    """Digest of a file of constants, with what widens the intervals of those that are another machine's."""
    made = read_efficiency(own if own is not None and _called(own) == name else paths[name])
    return digest([made.model_dump(mode="json", include={"fits"}), wider])


def _called(path: Path) -> str:
    made = read_efficiency(path)
    return f"{made.accelerator}.{made.engine}"


def digest(value: Any) -> str:  # noqa: ANN401 - any JSON
    """SHA-256 of a value as JSON, keys sorted: what is written otherwise and means the same has the same.

    >>> digest({"b": 1, "a": [2]}) == digest({"a": [2], "b": 1})
    True
    """
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), default=str)
    return f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"


def _facts_version(found: Locks) -> str:
    """Version of roofcast, and a digest of the accelerators and constants that were used."""
    facts = {" ".join(key): text for key, text in found.items() if key[0] != "model"}
    release = found["roofcast", "roofcast"]
    return f"{release}+{digest(facts).removeprefix('sha256:')[:SHOWN_DIGITS]}"


def _lock_rows(files: Sequence[RuleFile], locks: Sequence[Locked], against: Against) -> tuple[list[RuleRow], list[str]]:
    """Rows of what is locked and moved, or of what the baseline lacks; without `lock: true` warnings of what moved."""
    file = next((one for one in files if one.lock), None)
    changed = what_moved(locks)
    if file is None:
        return [], [
            f"{_lock_name(one).removeprefix(f'{LOCK}: ')}: {said} (its values are of the former)"
            for one, said in changed
        ]
    if against.before is None and not against.update:
        said = f"nothing is locked: there is no baseline; run {against.command}"
        return [_lock_row(file, LOCK, NOT_TOLD, said, None)], []
    rows = [
        _lock_row(file, _lock_name(one), NOT_MET, f"{said}; run {against.command} to accept", one)
        for one, said in changed
    ]
    lacking = [one for one in locks if one.locked is None]
    rows += [
        _lock_row(file, _lock_name(one), NOT_TOLD, f"the baseline has nothing of it; run {against.command}", one)
        for one in lacking
    ]
    return rows, []


def _lock_name(one: Locked) -> str:
    return f"{LOCK}: {one.name}" if one.kind == one.name else f"{LOCK}: {one.kind} {one.name}"


def _lock_row(file: RuleFile, name: str, code: int, said: str, one: Locked | None) -> RuleRow:
    kind = "" if one is None else one.kind
    return RuleRow(
        name=name,
        status=STATUS[code],
        actual=None,
        required=None,
        message=said,
        quantity=LOCK,
        unit="",
        sign="==",
        basis=None,
        baseline=None,
        model=one.name if one is not None and kind == "model" else None,
        gpu=one.name if one is not None and kind in OF_GPUS else None,
        file=file.name,
        line=file.lock,
        code=code,
    )
