"""Tokens of two real checkpoints that speculate together: whether they are the same, and texts in them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from roofcast.profiler.checkpoint_load import import_transformers
from roofcast.profiler.errors import UnavailableError
from roofcast.profiler.runtime import first_line

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from torch import Tensor

    from roofcast.calculators.profiled_texts import Texts
    from roofcast.profiler.checkpoint_load import Loaded
    from roofcast.profiler.runtime import Runtime

TOKENIZERS: Final = ("tokenizer.json", "tokenizer.model", "vocab.json", "vocab.txt")  # files that one is read from


def tokenizer_of(folder: Path) -> Any | None:  # noqa: ANN401 - any class of theirs
    """The tokenizer of a folder; None of one without."""
    if not any((folder / name).is_file() for name in TOKENIZERS):
        return None
    try:
        return import_transformers().AutoTokenizer.from_pretrained(
            str(folder), local_files_only=True, trust_remote_code=False
        )
    except Exception as error:  # whatever its files hold
        raise UnavailableError(f"{folder}: its tokenizer cannot be read ({first_line(error)})") from error


def shared_vocabulary(pair: tuple[Loaded, Loaded], words: tuple[Any, ...]) -> tuple[int, tuple[str, ...]]:
    """Ids that both models know, and what is to be said where one has more.

    Args:
        pair: target and draft.
        words: their tokenizers; None of a folder without.

    Raises:
        UnavailableError: they have other tokens, or different numbers of them and nothing tells that these are the same.
    """
    (one, other), sizes = pair, [loaded.vocabulary for loaded in pair]
    both = all(word is not None for word in words)
    _refuse_others((one.facts.path, other.facts.path), words)
    if sizes[0] == sizes[1]:
        return sizes[0], ()
    what = f"{one.facts.path} has {sizes[0]:,} tokens, {other.facts.path} {sizes[1]:,}"
    if not both or len(words[0]) > min(sizes):
        raise UnavailableError(f"{what}; a draft must have the target's vocabulary")
    return min(sizes), (f"{what}, though the same tokenizer: ids are kept below {min(sizes):,}, the rest is padding",)


def check_words(folders: tuple[Path, Path]) -> None:
    """Refuses texts for which two folders have no tokenizer in common, before anything is loaded.

    Raises:
        UnavailableError: the target has none, one cannot be read, or they have other tokens.
    """
    words = tokenizer_of(folders[0]), tokenizer_of(folders[1])
    if words[0] is None:
        raise UnavailableError(_wordless(folders[0]))
    _refuse_others((str(folders[0]), str(folders[1])), words)


def _refuse_others(paths: tuple[str, str], words: tuple[Any, ...]) -> None:
    if all(word is not None for word in words) and words[0].get_vocab() != words[1].get_vocab():
        raise UnavailableError(
            f"{paths[1]}: its tokens are not those of {paths[0]}; a draft must have the target's tokenizer"
        )


def _wordless(folder: Path) -> str:
    return f"{folder}: it has no tokenizer, which --text needs; without it prompts are random tokens"


def prompts_of(runtime: Runtime, words: Any, texts: Texts, vocabulary: int, folder: Path) -> Iterator[Tensor]:  # noqa: ANN401 - likewise
    """Ids of every text on the device.

    Raises:
        UnavailableError: there is no tokenizer for words, or one makes ids that the models do not know.
    """
    torch = runtime.torch
    if not texts.lines:
        source = torch.Generator().manual_seed(texts.seed)
        for _ in range(texts.random):
            yield torch.randint(vocabulary, (texts.length,), generator=source).to(runtime.device)
        return
    if words is None:
        raise UnavailableError(_wordless(folder))
    for line in texts.lines:
        ids = words(line)["input_ids"]
        if not ids or max(ids) >= vocabulary:
            raise UnavailableError(f"{folder}: its tokenizer makes no tokens that both models know of {line[:40]!r}")
        yield torch.tensor(ids, device=runtime.device)
