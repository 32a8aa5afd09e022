"""Real configs, broken in small ways: each is answered, soundly, or refused in one line; nothing crashes or hangs."""

from __future__ import annotations

import json
import os
import random
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from roofcast.modelspec.errors import ModelError, UndeterminedModelError
from roofcast.modelspec.serial import spec_from_json, spec_to_json
from roofcast.modelspec.spec import ModelSpec, build_spec
from roofcast.modelspec.strictjson import read_object
from tests.model_configs import CONFIGS
from tests.mutations import CHANGES, at, mutants, paths, placed

if TYPE_CHECKING:
    from types import FrameType

    from roofcast.modelspec.state import Kept

FILES: Final = sorted(path.stem for path in CONFIGS.glob("*.json"))
EACH: Final = 268  # mutants of one file
IN_CI: Final = 20_000  # mutants at least
ELSEWHERE: Final = 25  # mutants of each config of the folder beside the repository
FOLDER_CONFIGS: Final = 138  # its configs at the time of writing, for the line that says what is skipped
ENCODER_TOKENS: Final = 128  # for those whose encoder is as long as the input
LARGE: Final = 99_999_999  # as large as any size may be
LINE: Final = 400  # characters of an error, fewer than which it has
CALLS: Final = 3_000_000  # of Python functions while one config is read; the largest that is allowed makes a tenth
LITERALS: Final = (
    "NaN",
    "Infinity",
    "-Infinity",
    "1e999",
    "-0",
    "9" * 5000,
    '{"__float__": "Infinity"}',
    "[" * 100_000,
    '"\\ud800"',
    "{,}",
)
SETTINGS: Final[dict[str, dict[str, Any]]] = {
    name: json.loads((CONFIGS / f"{name}.json").read_text()) for name in FILES
}
OTHERS: Final = list(SETTINGS.values())


def is_sound(spec: ModelSpec) -> bool:
    """Whether all that a model counts is a whole number from 0, its active parameters among all, its state growing."""
    parts = state_of(spec)
    numbers = [spec.parameters, spec.active_parameters, *spec.components.values()]
    numbers += [part.entries(tokens) for part in parts for tokens in (0, 1, 100_000)]
    numbers += [number for part in parts for number in (part.elements, part.shard(8))]
    return (
        all(type(number) is int and number >= 0 for number in numbers)
        and 0 < spec.active_parameters <= spec.parameters
        and all(part.entries(1) <= part.entries(100_000) and part.heads > 0 < part.per for part in parts)
        and all(type(mixer.splits(8)) is bool and mixer.label for layer in spec.layer_counts for mixer in layer.mixers)
        and 1 <= len(spec.layers) <= 10_000
    )


def state_of(spec: ModelSpec) -> Counter[Kept]:
    """What a model keeps; nothing where it says in one line that only the input tells how many tokens its encoder has."""
    try:
        return spec.kept
    except UndeterminedModelError as error:
        if not is_short(error):
            raise
        return Counter()


def is_short(error: ModelError) -> bool:
    """Whether an error is one printable line of bearable length."""
    return str(error).isprintable() and 0 < len(str(error)) < LINE


def read(config: dict[str, Any], *, counted: bool = False) -> ModelSpec | ModelError:
    """Return what a config gives, at times with headers and an encoder's tokens at hand."""
    try:
        return build_spec(config, counted_in_files=counted, encoder_tokens=ENCODER_TOKENS if counted else None)
    except ModelError as error:
        return error


def assert_answered_or_refused(said: str, config: dict[str, Any], *, counted: bool = False) -> ModelSpec | ModelError:
    """Expect a sound model, or an error of one short line."""
    try:
        found = read(config, counted=counted)
        good = is_short(found) if isinstance(found, ModelError) else is_sound(found)
    except Exception as error:
        error.add_note(said)
        raise
    assert good, (said, found)
    return found


def test_there_are_as_many_mutations_as_promised() -> None:
    """The fixtures alone make at least 20,000, of every kind of change."""
    changes = [said for name in FILES[:8] for said, _ in mutants(SETTINGS[name], OTHERS, name, EACH)]

    assert EACH * len(FILES) >= IN_CI
    assert [name for name in CHANGES if not any(f": {name}" in said for said in changes)] == []
    assert any(", " in said for said in changes)
    assert any("text_config." in said for said in changes) or "text_config" not in "".join(FILES[:8])


@pytest.mark.parametrize("name", FILES)
def test_a_mutation_is_answered_or_refused_in_one_line(name: str) -> None:
    """Keys dropped, null, of another type, negative, zero, huge or one off, lists cut and garbled, one or two at once."""
    answers = refusals = 0
    for index, (said, config) in enumerate(mutants(SETTINGS[name], OTHERS, name, EACH)):
        found = assert_answered_or_refused(said, config, counted=index % 2 == 1)
        answers += isinstance(found, ModelSpec)
        refusals += isinstance(found, ModelError)
        if index % 20 == 1 and isinstance(found, ModelSpec):
            assert spec_from_json(json.loads(json.dumps(spec_to_json(found)))) == found, said

    assert answers + refusals == EACH
    assert refusals > 0


def test_most_mutations_say_something() -> None:
    """Of all files' mutants many are answered and many refused: the law is not met by refusing all of them."""
    found = [read(config, counted=True) for name in FILES for _, config in mutants(SETTINGS[name], OTHERS, name, 10)]
    answers = sum(isinstance(one, ModelSpec) for one in found)

    assert len(found) // 5 < answers < len(found) * 4 // 5


def literal_texts(name: str) -> list[tuple[str, bytes]]:
    """Texts of a config with a literal where a value was, with a key twice, cut short, or with a byte changed."""
    rng = random.Random(name)  # noqa: S311 - the same every time
    config = SETTINGS[name]
    every = list(paths(config))
    whole = json.dumps(config).encode()
    texts = [
        (f"{path}: {literal[:20]}", json.dumps(placed(config, path, "@")).replace('"@"', literal, 1).encode())
        for literal in LITERALS
        for path in rng.sample(every, 3)
        if at(config, path) != "@"
    ]
    texts += [(f"cut at {end}", whole[:end]) for end in (rng.randrange(len(whole)) for _ in range(3))]
    for _ in range(8):
        place = rng.randrange(len(whole))
        texts.append((f"byte {place}", whole[:place] + bytes([rng.randrange(256)]) + whole[place + 1 :]))
    texts.append(("twice", b'{"hidden_size": 1, ' + whole[1:]))
    return texts


def parsed(text: bytes) -> dict[str, Any] | ModelError:
    """Return the object that a text holds, or the error with which it is refused."""
    try:
        return read_object(text, "config.json")
    except ModelError as error:
        return error


@pytest.mark.parametrize("name", FILES)
def test_a_text_with_strange_literals_is_answered_or_refused(name: str) -> None:
    """NaN, Infinity, endless digits, depth, keys twice and broken bytes pass the reader and the config, or are refused."""
    for said, text in literal_texts(name):
        config = parsed(text)
        if isinstance(config, ModelError):
            assert is_short(config), (said, config)
        else:
            assert_answered_or_refused(said, config, counted=True)


class TooManyCallsError(AssertionError):
    """Reading one config went on and on."""


@pytest.mark.parametrize("name", FILES)
def test_a_large_number_makes_no_endless_loop(name: str) -> None:
    """Whatever number is large, work is bounded: a count far above any model is refused before anything loops over it."""
    calls = 0

    def count(_frame: FrameType, event: str, _argument: object) -> None:
        nonlocal calls
        calls += event == "call"
        if calls > CALLS:
            raise TooManyCallsError(name)

    config = SETTINGS[name]
    numbers = [path for path in paths(config, 3) if type(at(config, path)) is int and not isinstance(path[-1], int)]
    for path in numbers:
        calls = 0
        before = sys.getprofile()
        sys.setprofile(count)
        try:
            read(placed(config, path, LARGE), counted=True)
        finally:
            sys.setprofile(before)


@pytest.fixture(name="folder")
def folder_fixture(repository: Path) -> Path:
    """Return the folder of published configs beside the repository; skip where it is absent, with what is not checked."""
    folder = Path(os.environ.get("ROOFCAST_SHARED") or repository.parent / "shared") / "hub"
    if not folder.is_dir():
        pytest.skip(f"no folder of published configs: {FOLDER_CONFIGS * ELSEWHERE} mutations not made")
    return folder


def test_mutations_of_every_published_config_are_answered_or_refused(folder: Path) -> None:
    """The law holds of all files at hand, not only of those that this repository keeps."""
    every = sorted(folder.rglob("config.json"))
    for path in every:
        config = json.loads(path.read_text())
        for index, (said, mutant) in enumerate(mutants(config, OTHERS, path.parent.name, ELSEWHERE)):
            assert_answered_or_refused(f"{path.parent.name}: {said}", mutant, counted=index % 2 == 1)

    assert len(every) > 0
