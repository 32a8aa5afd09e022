"""Rule files of `check`: YAML in, rules out, or every problem of the file with its line. Nothing in it is executed."""

from __future__ import annotations

import os
import re
from collections import Counter
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from roofcast.calculators.check import Rule
from roofcast.calculators.check_quantities import QUANTITIES
from roofcast.calculators.errors import UsageError
from roofcast.cli.check_fields import (
    FIELDS,
    OF_RULE,
    SHARED,
    VARIED,
    Read,
    case_of,
    limit_of,
    problems,
    strange,
    taken,
    validated,
)
from roofcast.cli.check_matrix import MOST_RULES, combinations
from roofcast.cli.check_values import truth
from roofcast.hwdb.files import AcceleratorFileError, read_text, read_yaml

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

SCHEMA: Final = "roofcast.check/1"
TOP: Final = ("schema", "defaults", "lock", "rules")
MOST_PROBLEMS: Final = 50
MOST_FIELDS: Final = 200  # of one rule
LONGEST_NAME: Final = 200
_PROBLEM: Final = r"(?P<what>.*?): not readable as YAML(?:, line (?P<line>\d+))?: (?P<why>.*)"
_AGAIN: Final = r"(?P<why>.*), again in line (?P<line>\d+)"

Place = tuple[str | int, ...]


class RuleFileError(UsageError):
    """Rule files with something wrong in them: `problems` has a line for each."""

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("; ".join(problems))
        self.problems = tuple(problems)


@dataclass(frozen=True, slots=True)
class RuleFile:
    """A rule file.

    Args:
        name: of the file, as it was given.
        rules: a matrix taken apart.
        lock: line of `lock: true`; 0 where the facts are not locked.
    """

    name: str
    rules: tuple[Rule, ...]
    lock: int


@dataclass(slots=True)
class Reader:
    """One file while it is read: where everything stands, and what is wrong so far."""

    name: str
    basis: str
    lines: dict[Place, int] = field(default_factory=dict)
    wrong: dict[str, None] = field(default_factory=dict)
    refused: set[str] = field(default_factory=set)  # defaults that cannot be read
    count: int = 0  # rules so far, those of matrices too

    def line(self, *path: str | int) -> int:
        """The line of a part of the file, or of what it is in."""
        for length in range(len(path), 0, -1):
            if path[:length] in self.lines:
                return self.lines[path[:length]]
        return 1

    def complain(self, line: int, said: str) -> None:
        """Notes a problem, once."""
        self.wrong[f"{self.name}:{line}: {said}"] = None

    def enough(self) -> bool:
        """Whether there is no use in reading on: more rules, or more problems, than anyone looks at."""
        return self.count > MOST_RULES or len(self.wrong) > MOST_PROBLEMS

    def counted(self, line: int, rules: int) -> bool:
        """Counts rules; False, and noted, where these are too many."""
        self.count += rules
        if self.count > MOST_RULES:
            self.complain(line, f"rules: {self.count:,} with those of this entry; at most {MOST_RULES:,}")
        return self.count <= MOST_RULES


def read_rules(files: Sequence[str], basis: str) -> list[RuleFile]:
    """The rules of files, as if they were one; names that clash are prefixed with that of their file.

    Args:
        files: names of YAML files.
        basis: of rules that write none.

    Raises:
        RuleFileError: anything is wrong with any of them.
    """
    wrong: list[str] = []
    places: dict[str, str] = {}
    for name in files:
        place = os.path.realpath(name.replace("\0", "?"))
        if place in places:
            wrong.append(f"{name}: is given twice")
        places.setdefault(place, name)
    made: list[RuleFile] = []
    for name in places.values():
        reader = Reader(name, basis)
        try:
            made.append(_read_file(reader))
        except AcceleratorFileError as error:
            reader.wrong = {_located(str(error), name): None}
        wrong += reader.wrong
    total = sum(len(one.rules) for one in made)
    if not wrong and total > MOST_RULES:
        wrong.append(f"{', '.join(files)}: {total:,} rules; at most {MOST_RULES:,} at once")
    if wrong:
        raise RuleFileError(_few(wrong))
    return _apart(made)


def _few(wrong: Sequence[str]) -> list[str]:
    return [*wrong[:MOST_PROBLEMS], *(["and more problems"] if len(wrong) > MOST_PROBLEMS else [])]


def _located(message: str, name: str) -> str:
    """A message of the reader of YAML, with the line where people look for it."""
    found = re.fullmatch(_PROBLEM, message, re.DOTALL)
    if found is None:
        return message.replace("; such a file takes a page", "; a rule file takes a page")
    again = re.fullmatch(_AGAIN, found["why"])
    if again:
        return f"{name}:{again['line']}: {again['why']}; write it once"
    return f"{name}:{found['line'] or 1}: not readable as YAML: {found['why']}"


def _apart(made: Sequence[RuleFile]) -> list[RuleFile]:
    """Files whose rules have names of their own: a name that several have gets that of its file in front.

    Raises:
        RuleFileError: such a name is that of another rule.
    """
    seen = Counter(rule.name for one in made for rule in one.rules)
    apart = [
        replace(
            one,
            rules=tuple(
                replace(r, name=f"{os.path.normpath(one.name)}: {r.name}") if seen[r.name] > 1 else r for r in one.rules
            ),
        )
        for one in made
    ]
    again = Counter(rule.name for one in apart for rule in one.rules)
    clash = next((rule for one in apart for rule in one.rules if again[rule.name] > 1), None)
    if clash is not None:
        raise RuleFileError(
            [f"{clash.file}:{clash.line}: rule {clash.name!r}: two rules come to have that name; call one otherwise"]
        )
    return apart


def _read_file(reader: Reader) -> RuleFile:
    """One file; its problems are noted in the reader.

    Raises:
        AcceleratorFileError: it cannot be read, is no YAML, or has anchors, tags, fields twice, or is too deep.
    """
    tree = _tree(reader)
    for name in tree.keys() - set(TOP):
        reader.complain(reader.line(name), f"{name[:80]} {strange(name, TOP)}")
    if tree.get("schema") != SCHEMA:
        found = f"is {tree['schema']!r}"[:80] if "schema" in tree else "is missing"
        reader.complain(reader.line("schema"), f"schema {found}; this version reads schema: {SCHEMA}")
    defaults = _defaults(reader, tree.get("defaults", {}))
    lock = _lock(reader, tree)
    listed = tree.get("rules")
    if not isinstance(listed, list) or not listed:
        kind = "is missing" if "rules" not in tree else "must be a list of rules"
        reader.complain(reader.line("rules"), f"rules {kind}; write - name: ..., quantity: ..., at_least: ...")
        listed = []
    if len(listed) > MOST_RULES:
        reader.complain(reader.line("rules"), f"rules: there are {len(listed):,}; at most {MOST_RULES:,}")
        listed = []
    rules = [rule for number, raw in enumerate(listed) for rule in _rules(reader, number, raw, defaults)]
    _refuse_twins(reader, rules)
    return RuleFile(reader.name, tuple(rules), lock)


def _tree(reader: Reader) -> dict[str, Any]:
    """The file as mappings, lists and scalars as they are written; empty ones are None."""
    import yaml

    path = Path(reader.name)
    if "\0" in reader.name:
        raise AcceleratorFileError(f"{reader.name!r}: cannot be read (there is a NUL in its name)")
    content = read_text(path, named=False)
    read_yaml(path, content, ", ".join(TOP), own=False)  # refuses what no rule file needs
    node = yaml.compose(content, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    found = _plain(reader, node, ())
    return found if isinstance(found, dict) else {}


def _plain(reader: Reader, node: Any, path: Place) -> Any:  # noqa: ANN401 - PyYAML's nodes, and what they hold
    reader.lines[path] = node.start_mark.line + 1
    if isinstance(node.value, str):
        return None if node.tag.endswith(":null") else node.value
    if node.id == "sequence":
        return [_plain(reader, item, (*path, at)) for at, item in enumerate(node.value)]
    made = {}
    for key, value in node.value:
        name = str(key.value)
        made[name] = _plain(reader, value, (*path, name))
        reader.lines[*path, name] = key.start_mark.line + 1
    return made


def _defaults(reader: Reader, found: object) -> dict[str, Any]:
    """Fields that rules share; they are read with each rule that takes them, and here once to see that they can be."""
    if not isinstance(found, dict):
        reader.complain(reader.line("defaults"), "defaults must map fields to values, such as {model: llama-3.1-8b}")
        return {}
    good: dict[str, Any] = {}
    for name, value in found.items():
        if name in SHARED:
            wrong = [one for one in validated({"quantity": "ttft", name: value})[1] if one[0] == name]
            for _, said in wrong:
                reader.complain(reader.line("defaults", name), f"defaults: {name}: {said}")
            good |= {} if wrong else {name: value}
            reader.refused |= {name} if wrong else set()
        else:
            why = "is of one rule; write it there" if name in OF_RULE or name in {"matrix", "exclude"} else None
            reader.complain(reader.line("defaults", name), f"defaults: {name[:80]} {why or strange(name, SHARED)}")
    return good


def _lock(reader: Reader, tree: Mapping[str, Any]) -> int:
    try:
        return reader.line("lock") if "lock" in tree and truth(tree["lock"]) else 0
    except ValueError as error:
        reader.complain(reader.line("lock"), f"lock: {error}")
        return 0


def _rules(reader: Reader, number: int, raw: object, defaults: Mapping[str, Any]) -> list[Rule]:
    """The rules of one entry of the list."""
    line = reader.line("rules", number)
    if reader.enough():
        return []
    if isinstance(raw, dict) and len(raw) > MOST_FIELDS:
        reader.complain(line, f"rule {number + 1} has {len(raw):,} fields; there are {len(FIELDS)}")
        return []
    if not isinstance(raw, dict):
        reader.complain(
            line, f"rule {number + 1} must be a mapping such as {{quantity: sequences, context: 4k, at_least: 100}}"
        )
        return []
    own = {name: value for name, value in raw.items() if name not in {"matrix", "exclude"}}
    title = _title(own)
    varied_by = combinations(reader, number, raw, title)
    if varied_by is None:  # what else is wrong with the rule is said all the same
        varied = raw["matrix"] if isinstance(raw["matrix"], dict) else ()
        _rule(reader, number, (title, title), own, defaults, lost=tuple(varied) or VARIED)
        return []
    if not reader.counted(line, len(varied_by)):
        return []
    made = []
    for varied in varied_by:
        if reader.enough():
            break
        name = f"{title} [{', '.join(map(str, varied.values()))}]" if varied else title
        rule = _rule(reader, number, (name, title), {**own, **varied}, defaults)
        made += [rule] if rule else []
    return made


def _title(own: Mapping[str, Any]) -> str:
    """The name of a rule: its own, else its quantity and its fields."""
    name = own.get("name")
    if isinstance(name, str) and name.strip() and name.isprintable():
        return name.strip()[:LONGEST_NAME]
    shown = (f"{key}={value}" for key, value in own.items() if key not in OF_RULE and isinstance(value, str))
    return " ".join((str(own.get("quantity", "rule")), *shown))[:LONGEST_NAME]


def _rule(
    reader: Reader,
    number: int,
    names: tuple[str, str],
    own: Mapping[str, Any],
    defaults: Mapping[str, Any],
    *,
    lost: Iterable[str] = (),
) -> Rule | None:
    """One rule; None where it has problems, which are noted, or fields that are lost with a matrix that cannot be read."""
    about = QUANTITIES.get(str(own.get("quantity")))
    whole = {**(taken(about, defaults, own) if about else {}), **own}
    values, wrong = validated(whole)
    read = Read(values, frozenset(own))
    unread = {*dict(wrong), *reader.refused, *lost}
    found = [*wrong, *(problems(read, unread) if "quantity" in values else ())]
    for name, said in found:
        where = _where(reader, number, name, own, defaults)
        reader.complain(where, f"rule {names[1]!r}: {name[:80]}: {said}")
    if found or lost:
        return None
    change = values.get("allowed_change")
    line = reader.line("rules", number)
    case = case_of(read, reader.basis)
    if case.trace is not None:
        case = replace(case, trace=str(Path(reader.name).parent / case.trace))
    return Rule(names[0], values["quantity"], case, limit_of(read), change, reader.name, line)


def _where(reader: Reader, number: int, name: str, own: Mapping[str, Any], defaults: Mapping[str, Any]) -> int:
    """The line of a field of a rule: there, in its matrix, or in defaults."""
    for path in (("rules", number, name), ("rules", number, "matrix", name)):
        if path in reader.lines:
            return reader.lines[path]
    return reader.line("defaults", name) if name in defaults and name not in own else reader.line("rules", number)


def _refuse_twins(reader: Reader, rules: Sequence[Rule]) -> None:
    """Refuses two rules of one name."""
    seen: dict[str, Rule] = {}
    for rule in rules:
        first = seen.setdefault(rule.name, rule)
        if first is not rule:
            reader.complain(
                rule.line, f"rule {rule.name!r}: name: is that of the rule in line {first.line} too; give each its own"
            )
