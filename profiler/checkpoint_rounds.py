"""Greedy speculative decoding of two real checkpoints, beside plain greedy decoding of the same texts."""

from __future__ import annotations

import gc
from dataclasses import dataclass, field
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final, Protocol

from roofcast.calculators.profiled_texts import STEP, TIE, Difference, TextRound
from roofcast.profiler.checkpoint_faults import wider_formats
from roofcast.profiler.checkpoint_files import check_folder
from roofcast.profiler.checkpoint_load import import_transformers, load_checkpoint, refuse_short, silenced
from roofcast.profiler.checkpoint_tokens import prompts_of, shared_vocabulary, tokenizer_of
from roofcast.profiler.errors import ProfileUsageError, UnavailableError
from roofcast.profiler.runtime import first_line
from roofcast.profiler.sweep import INTERRUPTED, SPENT, Swept, Task, sweep
from roofcast.profiler.timing import memory_guard

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from torch import Tensor

    from roofcast.calculators.profiled_texts import Texts
    from roofcast.profiler.checkpoint_load import Loaded
    from roofcast.profiler.runtime import Runtime
    from roofcast.profiler.sweep import Watch
    from roofcast.profiler.timing import Budget

WARM: Final = 4  # new tokens, or rounds, before any is timed
PROBED: Final = 12  # random tokens that try whether a cache can be taken back


class Reader(Protocol):
    """A model and the cache of one text."""

    @property
    def held(self) -> int:
        """Tokens in the cache. [token]"""

    def feed(self, ids: Tensor, keep: int = 0) -> Tensor:
        """Reads tokens, [n]; gives the logits of the last `keep` positions (0 is all), [n, vocab]."""

    def drop(self, tokens: int) -> None:
        """Takes the last tokens out of the cache."""


@dataclass(slots=True)
class Text:
    """A checkpoint and the cache of one text, whole for every layer: windows are masked, so that no token is evicted.

    Args:
        loaded: the checkpoint.
        vocabulary: ids below which it answers. [token]
    """

    loaded: Loaded
    vocabulary: int
    held: int = 0
    _cache: Any = field(default=None)

    def feed(self, ids: Tensor, keep: int = 0) -> Tensor:
        """Reads tokens, [n]; gives the logits of the last `keep` positions (0 is all), [n, vocab]."""
        if self._cache is None:
            self._cache = import_transformers().DynamicCache()
        logits, _ = self.loaded.forward(ids[None], self._cache, keep)
        self.held += ids.shape[0]
        return logits[0, :, : self.vocabulary]

    def drop(self, tokens: int) -> None:
        """Takes the last tokens out of the cache."""
        if tokens:
            self._cache.crop(-tokens)
            self.held -= tokens


def ready(folders: tuple[str, str]) -> str | None:
    """Whether real texts can be written: None where both are folders with weights, and transformers is there.

    Args:
        folders: target and draft, as the user named them.

    Returns:
        The empty string where one is no folder with weights; else one line why not.
    """
    try:
        for name in folders:
            check_folder(name)
    except (UnavailableError, ProfileUsageError):
        return ""
    try:
        import_transformers()
    except UnavailableError as error:
        return str(error)
    return None


def text_rounds(
    runtime: Runtime,
    folders: tuple[Path, Path],
    drafted: Sequence[int],
    texts: Texts,
    budget: Budget,
    watch: Watch | None = None,
) -> Swept[TextRound]:
    """Loads both checkpoints, decodes every text plainly, then with every draft length.

    Args:
        runtime: the device.
        folders: of target and draft.
        drafted: every k. [token]
        texts: what is continued.
        budget: time that it may take.
        watch: told what is done.

    Raises:
        UnavailableError: a checkpoint cannot be loaded, its cache cannot be taken back, both have other tokens, or memory
            is short; in one line.
    """
    labels = tuple(f"real text, k = {length:,}" for length in drafted)
    if budget.spent:
        return Swept((), labels, SPENT)
    with silenced(import_transformers()), runtime.torch.inference_mode(), memory_guard(runtime):
        try:
            if watch is not None:
                watch(f"weights of {folders[0].name} and {folders[1].name}", 0, 1)
            pair = _pair(runtime, folders, texts)
            if watch is not None:
                watch("plain decoding of real text", 0, 1)
            plain = _plain(pair, texts.new)
        except KeyboardInterrupt:
            return Swept((), labels, INTERRUPTED)
        tasks = [
            Task(label, partial(_text_round, pair, plain, length, texts.new))
            for label, length in zip(labels, drafted, strict=True)
        ]
        swept = sweep(tasks, budget, watch)
    del pair, tasks
    gc.collect()
    runtime.release()
    return swept


@dataclass(frozen=True, slots=True)
class Pair:
    """Target and draft, and texts in their tokens.

    Args:
        target, draft: as loaded.
        vocabulary: ids that both know are below it. [token]
        prompts: ids of each text.
        notes: what is to be said of them.
    """

    target: Loaded
    draft: Loaded
    vocabulary: int
    prompts: tuple[Tensor, ...]
    notes: tuple[str, ...] = ()

    def readers(self) -> tuple[Text, Text]:
        """Both with an empty cache."""
        return Text(self.target, self.vocabulary), Text(self.draft, self.vocabulary)


@dataclass(frozen=True, slots=True)
class Plain:
    """Plain greedy decoding of every text: its tokens, and the time of all. [s]"""

    texts: tuple[tuple[int, ...], ...]
    seconds: float


def _pair(runtime: Runtime, folders: tuple[Path, Path], texts: Texts) -> Pair:
    """Both checkpoints, seen to speak the same tokens and to take back what was rejected.

    Raises:
        UnavailableError: they do not.
    """
    words = tuple(tokenizer_of(folder) for folder in folders)
    target = load_checkpoint(runtime, folders[0], texts.weights[0])
    draft = load_checkpoint(runtime, folders[1], texts.weights[1])
    vocabulary, notes = shared_vocabulary((target, draft), words)
    for loaded in (target, draft):
        refuse_one_way(loaded)
    notes += tuple(f"{loaded.facts.path}: {note}" for loaded in (target, draft) for note in loaded.facts.notes)
    pair = Pair(target, draft, vocabulary, tuple(prompts_of(runtime, words[0], texts, vocabulary, folders[0])), notes)
    longest = max(prompt.shape[0] for prompt in pair.prompts) + texts.new
    for loaded in (target, draft):
        problem = loaded.beyond(longest)
        if problem is not None:
            raise UnavailableError(f"{loaded.facts.path}: {problem} of prompt and new text")
    return pair


def refuse_one_way(loaded: Loaded) -> None:
    """Refuses a checkpoint whose cache does not forget: a recurrent state keeps what was rejected.

    Reads tokens, once straight and once with others in between that are dropped, in calls of the same sizes; both must
    give the same logits, up to rounding.

    Raises:
        UnavailableError: they do not, or the logits are no numbers.
    """
    ids, half = loaded.draw(1, PROBED)[0], PROBED // 2
    made = []
    try:
        for stray in (False, True):
            text = Text(loaded, loaded.vocabulary)
            text.feed(ids[:half])
            if stray:
                text.feed(ids[:half].flip(0))
                text.drop(half)
            made.append(text.feed(ids[half:]).float())
    except Exception as error:  # of a cache of another kind whatever it likes
        refuse_short(loaded.runtime, error)
        raise UnavailableError(f"{loaded.facts.path}: {_one_way(loaded)} ({first_line(error)})") from error
    if not bool(made[0].isfinite().all()):
        raise UnavailableError(f"{loaded.facts.path}: {_no_numbers(loaded)}")
    apart, scale = float((made[0] - made[1]).abs().max()), float(made[0].abs().max())
    if not apart <= TIE * STEP[loaded.facts.dtype] * scale:
        raise UnavailableError(f"{loaded.facts.path}: {_one_way(loaded)}")


def _one_way(loaded: Loaded) -> str:
    return f"the cache of {type(loaded.model).__name__} does not take back rejected tokens, as speculation must"


def _no_numbers(loaded: Loaded) -> str:
    wider = wider_formats(loaded.facts)
    means = f"; loaded in {wider} they may be" if wider else ", as its weights may be"
    return f"some logits of {type(loaded.model).__name__} in {loaded.facts.dtype} are no numbers{means}"


def _plain(pair: Pair, new: int) -> Plain:
    """Plain greedy decoding of every text, after a warm-up; prompts are read before the clock starts."""
    plainly(pair.readers()[0], pair.prompts[0], min(new, WARM))
    texts, seconds = [], 0.0
    for prompt in pair.prompts:
        reader = pair.readers()[0]
        read_prompt(reader, prompt)
        pair.target.runtime.synchronize()
        start = perf_counter()
        texts.append(tuple(plainly(reader, prompt, new)))
        seconds += perf_counter() - start
    return Plain(tuple(texts), seconds)


def read_prompt(reader: Reader, prompt: Tensor) -> None:
    """Reads a prompt but for its last token, which decoding begins with, and but for what is read already."""
    if prompt.shape[0] - 1 > reader.held:
        reader.feed(prompt[reader.held : -1], keep=1)


def plainly(reader: Reader, prompt: Tensor, new: int) -> list[int]:
    """Greedy decoding, token by token, each read by the host as a server does.

    Args:
        reader: of the target.
        prompt: ids, [n].
        new: tokens that are wanted.
    """
    read_prompt(reader, prompt)
    made, last = list[int](), prompt[-1:]
    for _ in range(new):
        last = reader.feed(last, keep=1).argmax(-1)
        made.append(int(last[0]))
    return made


def speculatively(target: Reader, draft: Reader, prompt: Tensor, drafted: int, new: int) -> tuple[list[int], list[int]]:
    """Greedy decoding by rounds: k tokens drafted one by one, k + 1 verified in one pass, the agreeing ones and one more kept.

    Of the target's k + 1 choices t and the drafted d the first n with d_i = t_i are accepted, and t_(n+1) follows them, so
    that every token is one that the target chose. Caches then forget what was rejected; a draft whose k tokens are all
    accepted has not read the last of them, and does so as the next round begins.

    Args:
        target: with an empty cache, or one that holds of the prompt at most all but its last token.
        draft: likewise.
        prompt: ids, [n].
        drafted: k. [token]
        new: tokens that are wanted; the last round is cut to them.

    Returns:
        New tokens, and of every round how many drafted ones were accepted.

    Source: Leviathan et al. 2023, arXiv:2211.17192, algorithm 1, at temperature 0.
    """
    for reader in (target, draft):
        read_prompt(reader, prompt)
    ids, accepted = prompt, list[int]()
    while ids.shape[0] < prompt.shape[0] + new:
        tokens = drafted_tokens(draft, ids, drafted)  # [k]
        choices = target.feed(_joined(ids[-1:], tokens)).argmax(-1)
        kept = int((choices[:-1] == tokens).int().cumprod(0).sum())
        ids = _joined(ids, choices[: kept + 1])
        accepted.append(kept)
        for reader in (target, draft):
            reader.drop(max(0, reader.held - (ids.shape[0] - 1)))
    return ids[prompt.shape[0] :][:new].tolist(), accepted


def drafted_tokens(draft: Reader, ids: Tensor, drafted: int) -> Tensor:
    """k tokens as the draft chooses them, each fed to the next, [k]; first it reads what it has not read of the text."""
    made = [draft.feed(ids[draft.held :], keep=1).argmax(-1)]
    while len(made) < drafted:
        made.append(draft.feed(made[-1], keep=1).argmax(-1))
    return _joined(*made)


def _joined(*parts: Tensor) -> Tensor:
    """Ids after one another, [n]."""
    import torch

    joined: Tensor = torch.cat(parts)
    return joined


def _text_round(pair: Pair, plain: Plain, drafted: int, new: int) -> TextRound:
    """All texts with one draft length, after a warm-up; prompts are read before the clock starts."""
    speculatively(*pair.readers(), pair.prompts[0], drafted, min(new, WARM * (drafted + 1)))
    accepted, differences, seconds = list[int](), list[Difference](), 0.0
    for number, (prompt, expected) in enumerate(zip(pair.prompts, plain.texts, strict=True)):
        readers = pair.readers()
        for reader in readers:
            read_prompt(reader, prompt)
        pair.target.runtime.synchronize()
        start = perf_counter()
        made, kept = speculatively(*readers, prompt, drafted, new)
        seconds += perf_counter() - start
        accepted += kept
        place = next((n for n, (one, other) in enumerate(zip(made, expected, strict=True)) if one != other), None)
        if place is not None:
            differences.append(_difference(pair, number, expected, place, made[place]))
    return TextRound(
        drafted=drafted,
        prompts=len(pair.prompts),
        new_tokens=new * len(pair.prompts),
        accepted=tuple(accepted),
        plain_seconds=plain.seconds,
        speculative_seconds=seconds,
        differences=tuple(differences),
        transformers=pair.target.facts.transformers,
        notes=pair.notes,
    )


def _difference(pair: Pair, number: int, plain: Sequence[int], place: int, other: int) -> Difference:
    """The logits of both tokens at the first place that differs, as plain decoding comes there."""
    reader, prompt = pair.readers()[0], pair.prompts[number]
    plainly(reader, prompt, place)
    last = prompt[-1:] if not place else prompt.new_tensor([plain[place - 1]])
    logits = reader.feed(last, keep=1)[0].float()
    gap = float(logits[plain[place]] - logits[other])
    return Difference(number, place, gap, float(logits.abs().max()), pair.target.facts.dtype)
