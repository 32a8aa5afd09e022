"""Names of modules as quantisers list them: full paths, wildcards or regular expressions, in every class's spelling."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from fnmatch import translate
from functools import lru_cache
from itertools import product
from typing import TYPE_CHECKING, Final

from roofcast.modelspec.errors import MalformedModelError, UndeterminedModelError
from roofcast.modelspec.safe_match import Steps, UnsafePatternError, compile_safe
from roofcast.modelspec.spelling import spelt
from roofcast.modelspec.strictjson import quoted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from roofcast.modelspec.spelling import Spelling

# what stands before the layers, by class and wrapper -> the word that a pattern must spell for it to matter
PREFIXES: Final[Mapping[str, str]] = {
    "model.": "", "": "", "model.language_model.": "language_model", "language_model.model.": "language_model",
    "backbone.": "backbone", "thinker.model.": "thinker",
}  # fmt: skip
_PREFIX: Final = r"(?:thinker\.|model\.|language_model\.|transformer\.|backbone\.|text_model\.|decoder\.|gpt_neox\.)*"
_LAYER: Final = re.compile(
    r"(?P<draft>mtp\.)?(?:layers|h|blocks)\.(?P<layer>\d{1,6})(?:\.(?P<rest>[^*?\[]*)(?P<open>\*?))?"
)
_EXPERT: Final = re.compile(r"(?<=experts\.)\d+(?=\.|$)")
_WILD: Final = re.compile(r"[*?\[]")
_EXPRESSION: Final = re.compile(r"(?:re|[-+]):(?P<text>.*)")
_PLACED: Final = re.compile(
    r"\^?(?:\.\*)?(?:(?:language_)?model\\?\.)*(?P<layers>layers\\?\.\d{1,6}\\?\.(?:\w|\\\.)+)(?P<open>\.\*)?\$?"
)
_MOST_WILD: Final = 500  # patterns of one list
_MOST_TELLING: Final = 32  # of these, those that tell layers apart
# patterns that cannot tell one number from another: letters, stars, and groups of plain alternatives
_BLIND: Final = re.compile(r"(?:re|[-+]):(?:[A-Za-z_^$-]|\\\.|\.\*|\\d\+|\((?:\?[:=!])?|\||\))*|[A-Za-z_.*-]*")
_SOME: Final = ("0", "1", "7", "10", "23", "64", "100", "255")  # numbers of experts that a pattern is tried with
_MOST: Final = 1_000  # characters of a pattern; published ones have fewer than a hundred
# a module's name here -> its names in published files
SYNONYMS: Final = {
    "self_attn": ("self_attn", "attn", "attention", "self_attention", "mixer"),
    "mamba": ("mamba", "mixer"),
    "mlp": ("mlp", "block_sparse_moe", "ffn", "feed_forward", "moe", "mixer"),
    "experts": ("experts", "switch_mlp"),
    "shared_experts": ("shared_experts", "shared_expert", "shared_mlp"),
    "gate": ("gate", "router"),
    "gate_proj": ("gate_proj", "w1", "gate_up_proj"),
    "up_proj": ("up_proj", "w3", "gate_up_proj"),
    "down_proj": ("down_proj", "w2"),
    "q_proj": ("q_proj", "qkv_proj"),
    "k_proj": ("k_proj", "qkv_proj"),
    "v_proj": ("v_proj", "qkv_proj"),
    "embed_tokens": ("embed_tokens", "embeddings", "wte", "embed"),
    "lm_head": ("lm_head", "head", "output"),
}
SHORT: Final = 2  # characters of w1, w2 and w3, which a set may spell: w[123]
_WORDS: Final = frozenset(word for words in SYNONYMS.values() for word in words) | {
    "language_model",
    "backbone",
    "thinker",
}


@dataclass(frozen=True, slots=True)
class Place:
    """Of what model a list is.

    Args:
        decoder: layers of the decoder; those after it are draft layers, and the numbers of `mtp.layers` come after them.
        spelling: how its class names its modules; None where that is not known.
        steps: that matching its patterns may take, together with those of its other lists.
    """

    decoder: int = 0
    spelling: Spelling | None = None
    steps: Steps = field(default_factory=Steps, compare=False)


@dataclass(frozen=True, slots=True)
class Pattern:
    """A wildcard or a regular expression over whole names.

    Args:
        text: as the list has it.
        match: whether a name is meant.
        tells: whether it can tell layers apart.
        words: spellings of modules that occur in it; names in others need not be tried.
    """

    text: str
    match: Callable[[str], bool]
    tells: bool
    words: frozenset[str]


@dataclass(frozen=True, slots=True)
class Names:
    """Modules that a list names.

    Args:
        exact: module within its layer, experts' numbers as `*` -> layers that name it; None is wherever it stands.
        starts: the same of names that go on with anything.
        experts: module and layer -> numbers of the experts named there, of modules named expert by expert.
        wild: patterns over the whole name.
        place: of what model they are.
    """

    exact: Mapping[str, frozenset[int] | None]
    starts: Mapping[str, frozenset[int]]
    experts: Mapping[tuple[str, int], frozenset[str]]
    wild: tuple[Pattern, ...]
    place: Place

    def share(self, layer: int | None, name: str, count: int = 1) -> float:
        """Share of a matrix's `count` experts (of any other, 1 or 0) that the list names. [-]

        >>> names_of(["model.layers.3.self_attn*", "lm_head"]).share(3, "self_attn.q_proj")
        1.0
        >>> names_of(["gate"]).share(3, "mlp.gate_proj")
        0.0
        """
        draft = layer is not None and layer >= self.place.decoder > 0
        found = [key for key in _runs(name) if key in self.exact and _in(layer, self.exact[key])]
        numbers = [self.experts.get((key, -1 if layer is None else layer)) for key in found]
        if any(some is None for some in numbers) or (draft and "mtp" in self.exact):
            return 1.0
        if self.starts and any(_in(layer, self.starts[start]) for start in _starts(name) if start in self.starts):
            return 1.0
        if any(self._matches(pattern, layer, name, draft=draft) for pattern in self.wild):
            return 1.0
        return min(len(frozenset().union(*(some or () for some in numbers))) / count, 1.0)

    def _matches(self, pattern: Pattern, layer: int | None, name: str, *, draft: bool) -> bool:
        shown = layer if pattern.tells or draft or layer is None else 0
        try:
            place = (shown, layer - self.place.decoder if draft and layer is not None else None)
            return _any_match(pattern, place, name, self.place.spelling)
        except UnsafePatternError as error:
            msg = f"the quantisation lists {quoted(pattern.text)}, which is not understood: {error}"
            raise UndeterminedModelError(msg) from error


def _in(layer: int | None, layers: frozenset[int] | None) -> bool:
    return layers is None or layer in layers


@lru_cache(maxsize=1 << 16)
def _any_match(pattern: Pattern, where: tuple[int | None, int | None], name: str, spelling: Spelling | None) -> bool:
    """Whether a pattern means a module, of experts all of them.

    Raises:
        UnsafePatternError: it means some experts and not others.
    """
    if "*" not in name:
        return any(pattern.match(full) for full in _full_names(where, name, pattern.words, spelling))
    whole = _full_names(where, name.replace(".*", ""), pattern.words, spelling)
    if any(pattern.match(full) for full in whole):
        return True
    tried = _SOME if pattern.tells else _SOME[:1]
    each = [
        any(pattern.match(full.replace("*", number)) for full in _full_names(where, name, pattern.words, spelling))
        for number in tried
    ]
    if any(each) != all(each):
        raise UnsafePatternError("it names some experts and not others")
    return all(each)


def _full_names(
    where: tuple[int | None, int | None], name: str, words: frozenset[str], spelling: Spelling | None
) -> Iterator[str]:
    """Every name that published files may give a module, of those that a pattern can spell."""
    layer, draft = where
    within = "" if layer is None else f"layers.{layer}."
    prefixes = [prefix for prefix, word in PREFIXES.items() if not word or word in words]
    if name == "lm_head":  # it stands outside the model
        prefixes = ["", *(["language_model."] if "language_model" in words else [])]
    for module in _modules(name, words, spelling):
        yield from (f"{prefix}{within}{module}" for prefix in prefixes)
        if draft is not None:
            yield from (f"mtp.layers.{draft}.{module}", f"mtp.{draft}.{module}")


def _modules(name: str, words: frozenset[str], spelling: Spelling | None) -> Iterable[str]:
    """A module as its class spells it or, where that is not known, in every spelling whose words a pattern has."""
    if spelling is not None:
        return (spelt(name, spelling),)
    known = words - {"mixer", "moe"}  # of classes that are in the table
    parts = ([part, *(w for w in SYNONYMS.get(part, ()) if w != part and w in known)] for part in name.split("."))
    return map(".".join, product(*parts))


@lru_cache(maxsize=4096)
def aliases(name: str) -> tuple[str, ...]:
    """A module's names in published files, part by part.

    >>> aliases("mlp.down_proj")[:3]
    ('mlp.down_proj', 'mlp.w2', 'block_sparse_moe.down_proj')
    """
    return tuple(".".join(parts) for parts in product(*(SYNONYMS.get(part, (part,)) for part in name.split("."))))


@lru_cache(maxsize=4096)
def _runs(name: str) -> tuple[str, ...]:
    """Every run of parts of a module's names, and nothing: a list that names a module names all that is in it."""
    runs = {""}
    for alias in aliases(name):
        parts = alias.split(".")
        size = len(parts)
        runs |= {".".join(parts[a:b]) for a in range(size) for b in range(a + 1, size + 1)}
    runs |= {run.replace(".*", "") for run in runs}  # experts of a fused module have no numbers
    return tuple(runs - {"*"})


@lru_cache(maxsize=4096)
def _starts(name: str) -> frozenset[str]:
    """Every beginning of a module's names, the empty one too."""
    return frozenset(alias[:end] for alias in aliases(name) for end in range(len(alias) + 1))


def names_of(patterns: Iterable[str], place: Place | None = None) -> Names:
    """Reads a list of names: plain paths, wildcards, `re:` regular expressions and those of GPTQModel (`-:`, `+:`).

    Args:
        patterns: as the file lists them.
        place: of what model they are.

    Raises:
        MalformedModelError: a regular expression that is none, or more of them than can be.
    """
    exact: dict[str, set[int] | None] = {}
    starts: dict[str, set[int]] = {}
    experts: dict[tuple[str, int], set[str]] = {}
    wild: list[Pattern] = []
    place = place or Place()
    for text in dict.fromkeys(patterns):
        if len(text) > _MOST:
            msg = f"the quantisation lists a name of {len(text):,} characters; it must have {_MOST:,} at most"
            raise MalformedModelError(msg)
        name, expression = _plain_name(text)
        placed = None if expression else _LAYER.fullmatch(name)
        if expression or (_WILD.search(name) and not placed):
            wild.append(_pattern(text, name, expression, place.steps))
            _refuse_many(wild)
        elif placed is None:
            exact[name] = None
        else:
            layer = int(placed["layer"]) + place.decoder * bool(placed["draft"])
            goes_on = placed["open"] and not _EXPERT.search(placed["rest"])
            _place(placed, layer, starts if goes_on else exact, experts)
    return Names(
        {key: None if layers is None else frozenset(layers) for key, layers in exact.items()},
        {key: frozenset(layers) for key, layers in starts.items()},
        {key: frozenset(numbers) for key, numbers in experts.items()},
        tuple(wild),
        place,
    )


def _plain_name(text: str) -> tuple[str, str]:
    r"""A name without what stands before its layers and, where it has to be matched as one, its expression.

    An expression that only spells one layer's modules out is the name of these: `re:.*layers\.3\.mlp.*`.
    """
    expression = _EXPRESSION.match(text)
    if not expression:
        name = re.sub(f"^{_PREFIX}", "", text)
        inner = name.lstrip("*")
        return (inner if _LAYER.fullmatch(inner) else name), ""
    spelt = _PLACED.fullmatch(expression["text"])
    if spelt and "$" not in expression["text"]:
        return spelt["layers"].replace("\\", "") + "*", ""
    return text, expression["text"]


def _refuse_many(wild: list[Pattern]) -> None:
    """Raises where a list has more patterns than any published one, and than can be matched in time."""
    telling = len(wild) > _MOST_TELLING and sum(pattern.tells for pattern in wild)
    if len(wild) > _MOST_WILD or telling > _MOST_TELLING:
        msg = (
            f"the quantisation lists more than {_MOST_WILD} patterns, or more than {_MOST_TELLING} that tell layers "
            f"apart; so many are not understood, but any number of plain names is"
        )
        raise UndeterminedModelError(msg)


def _place(
    placed: re.Match[str],
    layer: int,
    table: dict[str, set[int]] | dict[str, set[int] | None],
    experts: dict[tuple[str, int], set[str]],
) -> None:
    """Adds a name that tells its layer."""
    rest = placed["rest"] or ""
    number = _EXPERT.search(rest)
    if placed["open"] and re.search(r"experts\.\d+$", rest):
        msg = f"the quantisation lists {quoted(placed[0])}, which names some experts and not others: not understood"
        raise UndeterminedModelError(msg)
    module = _EXPERT.sub("*", rest)
    if number:
        experts.setdefault((module, layer), set()).add(number[0])
    layers = table.setdefault(module, set())
    if layers is not None:
        layers.add(layer)


def _pattern(text: str, name: str, expression: str, steps: Steps) -> Pattern:
    """A pattern over the whole name.

    Raises:
        MalformedModelError: an expression that is none, or has what is not understood.
    """
    tells = _BLIND.fullmatch(text) is None
    words = frozenset(word for word in _WORDS if word in text or (len(word) == SHORT and f"{word[0]}[" in text))
    if not expression:
        glob = re.compile(f"{translate(name)}|{translate(f'{name}.*')}")
        return Pattern(text, lambda full: glob.match(full) is not None, tells, words)
    try:
        return Pattern(text, compile_safe(expression, steps), tells, words)
    except UnsafePatternError as error:
        msg = f"the quantisation lists {quoted(text)}, which is no regular expression that is understood: {error}"
        raise MalformedModelError(msg) from error
