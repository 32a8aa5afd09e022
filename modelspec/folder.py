"""Checkpoints on this machine's disk: a config.json, and the headers of the weight files beside it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from roofcast.modelspec.errors import MalformedModelError, UndeterminedModelError
from roofcast.modelspec.nested import TEXT_BLOCKS
from roofcast.modelspec.spec import QUANTIZATION_KEYS
from roofcast.modelspec.strictjson import kind_of, plain, quoted, read_object
from roofcast.modelspec.weights import (
    INDEX,
    LENGTH,
    SINGLE,
    collect,
    header_length,
    parse_header,
    parse_index,
    pick,
    unread,
)

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path
    from typing import Protocol

    from roofcast.modelspec.weights import Tensor, WeightFiles

    class Progress(Protocol):
        """Something that shows how far a reading of weight files has come."""

        def start(self, total: int) -> None:
            """Say how many files will be read."""

        def advance(self) -> None:
            """Say that one more has been read."""


MAX_CONFIG: Final = 10_000_000  # [B]; the largest published ones are below 1 MB
QUANTIZATION: Final = "hf_quant_config.json"  # where modelopt states what config.json does not
MAX_INDEX: Final = 100_000_000  # [B]; a trillion parameters in 384 experts a layer take 15 MB


def read_config(path: Path, where: str) -> dict[str, Any]:
    """Return the object that a config.json holds, with the quantisation that a file beside it may state instead.

    Raises:
        MalformedModelError: it is no JSON object, or larger than 10 MB.
        UndeterminedModelError: it is absent or cannot be read.
    """
    config = read_object(read_file(path, where, MAX_CONFIG), where)
    beside = path.with_name(QUANTIZATION)
    if states_quantization(config) or not _may_exist(beside):
        return config
    named = f"{where.removesuffix(path.name)}{QUANTIZATION}"
    return with_quantization(config, read_file(beside, named, MAX_CONFIG), named)


def states_quantization(config: Mapping[str, Any]) -> bool:
    """Tell whether a config.json says how its weights are quantised, at its top or in its text model.

    >>> states_quantization({"text_config": {"quantization_config": {"quant_method": "fp8"}}})
    True
    >>> states_quantization({"quantization_config": None, "text_config": {}})
    False
    """
    blocks: list[Any] = [config]
    for keys in TEXT_BLOCKS:
        block: Any = config
        for key in keys:
            block = block.get(key) if isinstance(block, dict) else None
        blocks.append(block)
    return any(block.get(key) for block in blocks if isinstance(block, dict) for key in QUANTIZATION_KEYS)


def with_quantization(config: dict[str, Any], text: bytes, where: str) -> dict[str, Any]:
    """Return a config.json with the quantisation that the text of an hf_quant_config.json states.

    Raises:
        MalformedModelError: that is no JSON object, or states it otherwise.

    >>> with_quantization({"vocab_size": 9}, b'{"quantization": {"quant_algo": "FP8"}}', "hf_quant_config.json")
    {'vocab_size': 9, 'quantization_config': {'quant_algo': 'FP8'}}
    """
    found = read_object(text, where)
    method = found if "quant_algo" in found else found.get("quantization")
    if method is None:
        return config
    if not isinstance(method, dict):
        msg = f"{where}: quantization is {kind_of(method)}; it must be an object, with a quant_algo"
        raise MalformedModelError(msg)
    return {**config, "quantization_config": method}


def read_file(path: Path, where: str, limit: int) -> bytes:
    """Return the bytes of a file.

    Args:
        path: the file.
        where: how the message names it.
        limit: bytes beyond which it is refused. [B]

    Raises:
        MalformedModelError: it is larger than the limit.
        UndeterminedModelError: it is absent, no file, or cannot be read.
    """
    refuse_unless_file(path, where)
    try:
        with path.open("rb") as file:
            data = file.read(limit + 1)
    except OSError as error:
        raise UndeterminedModelError(_unreadable(where, error)) from error
    if len(data) > limit:
        msg = f"{where}: larger than {limit // 1_000_000} MB; that is no such file"
        raise MalformedModelError(msg)
    return data


def read_header(path: Path, where: str) -> tuple[Tensor, ...]:
    """Return the tensors of a safetensors file on disk; its data is not read.

    Raises:
        MalformedModelError: it is no safetensors file, or cut short.
        UndeterminedModelError: it is absent or cannot be read.
    """
    refuse_unless_file(path, where)
    try:
        with path.open("rb") as file:
            size = path.stat().st_size
            length = header_length(file.read(LENGTH), where, size)
            header = file.read(length)
    except OSError as error:
        raise UndeterminedModelError(_unreadable(where, error)) from error
    return parse_header(header, where, size - LENGTH - length)


def read_weights(folder: Path, where: str, progress: Progress | None = None) -> tuple[WeightFiles | None, str | None]:
    """Return what the weight files of a folder hold (None where it has none), and which of its files are not read.

    Raises:
        MalformedModelError: a weight file or the index is broken.
        UndeterminedModelError: a shard is missing or a file cannot be read.
    """
    try:
        names = {path.name for path in folder.iterdir()}
    except OSError as error:
        raise UndeterminedModelError(_unreadable(where, error)) from error
    index = None
    if SINGLE in names:
        chosen: tuple[str, ...] = (SINGLE,)
    elif INDEX in names:
        index = parse_index(read_file(folder / INDEX, f"{where}: {INDEX}", MAX_INDEX), f"{where}: {INDEX}")
        chosen = shards_of(index)
    else:
        chosen = pick(names, where)
    if not chosen:
        return None, unread(names)
    if progress:
        progress.start(len(chosen))
    shards = {}
    for name in chosen:
        if index and not _may_exist(folder / name):
            raise missing_shard(where, name)
        shards[name] = read_header(folder / name, f"{where}: {plain(name)}")
        if progress:
            progress.advance()
    return collect(shards, where, index), None


def missing_shard(where: str, name: str, by: str = INDEX) -> UndeterminedModelError:
    """Make the error for a file that the index, or another list, names and that is not there."""
    return UndeterminedModelError(f"{where}: missing shard {quoted(name)}, which {by} names")


def shards_of(index: Mapping[str, str]) -> tuple[str, ...]:
    """Return every file that an index names, once, in order.

    >>> shards_of({"a": "2.safetensors", "b": "1.safetensors", "c": "2.safetensors"})
    ('1.safetensors', '2.safetensors')
    """
    return tuple(sorted(set(index.values())))


def refuse_unless_file(path: Path, where: str) -> None:
    """Refuse what is not there, or is there but no regular file.

    Raises:
        UndeterminedModelError: with the reason.
    """
    try:
        if path.is_file():
            return
        absent = "a link to nothing" if path.is_symlink() else "no such file"
        problem = "a folder, not a file" if path.is_dir() else "not a regular file" if path.exists() else absent
    except OSError as error:
        raise UndeterminedModelError(_unreadable(where, error)) from error
    msg = f"{where}: {problem}"
    raise UndeterminedModelError(msg)


def _may_exist(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:  # no permission, a path too long: who reads it will say
        return True


def _unreadable(where: str, error: OSError) -> str:
    return f"{where}: cannot be read ({error.strerror or error})"
