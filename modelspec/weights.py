"""What weight files hold, from their headers alone: names, dtypes, shapes, exact bytes. Here those of safetensors."""

from __future__ import annotations

import math
import re
from collections import Counter
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any, Final

from roofcast.modelspec.errors import MalformedModelError, UndeterminedModelError
from roofcast.modelspec.strictjson import kind_of, plain, quoted, read_object

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

#: Bits of one element. Source: huggingface/safetensors 0.8, safetensors/src/tensor.rs, enum Dtype.
DTYPE_BITS: Final[dict[str, int]] = {
    "C64": 64,
    "F64": 64,
    "F32": 32,
    "F16": 16,
    "BF16": 16,
    "F8_E4M3": 8,
    "F8_E4M3FNUZ": 8,
    "F8_E5M2": 8,
    "F8_E5M2FNUZ": 8,
    "F8_E8M0": 8,
    "F6_E2M3": 6,
    "F6_E3M2": 6,
    "F4": 4,
    "I64": 64,
    "U64": 64,
    "I32": 32,
    "U32": 32,
    "I16": 16,
    "U16": 16,
    "I8": 8,
    "U8": 8,
    "BOOL": 8,
}
SINGLE: Final = "model.safetensors"
INDEX: Final = "model.safetensors.index.json"
MAX_HEADER: Final = 100_000_000  # [B], the limit of the format's own reader
MAX_TENSOR_NAME: Final = 512  # characters; the longest of published files has 120
MAX_TENSORS: Final = 150_000  # of one file; the largest published models have 210,000 in some sixty files
_UNREAD: Final = (".bin", ".pt", ".pth", ".ckpt", ".gguf", ".h5", ".msgpack", ".npz")
_NO_WEIGHTS: Final = frozenset({"training_args.bin", "optimizer.pt", "scheduler.pt"})
_MAX_RANK: Final = 64  # dimensions; no tensor library has more
_NO_SIZE: Final = 1 << 63  # past any size that a file can have
_MAX_ELEMENTS: Final = 10**14  # of a summary; a hundred times the largest published model
_MAX_NAME: Final = 255  # [B] of a file's name, of all common file systems
LENGTH: Final = 8  # [B] of the header's length, little-endian, at the start of a file
_LFS_POINTER: Final = b"version "  # what a clone without Git LFS holds instead: "version https://git-lfs..."
# how files start that are taken for weights
_MAGICS: Final = {
    b"GGUF": "a GGUF file",
    b"<": "an HTML or XML page",
    b"{": "JSON",
    b"PK\3\4": "a zip archive, as PyTorch writes it",
    b"\x80\2": "a pickle, as old PyTorch writes it",
    b"lmgg": "a GGML file, older than GGUF",
    b"fmgg": "a GGML file, older than GGUF",
    b"tjgg": "a GGML file, older than GGUF",
    b"\x89HDF": "HDF5",
}
_NUMBERED: Final = r"(?P<stem>.+)-(?P<number>\d{1,9})-of-(?P<count>\d{1,9})\.safetensors"


@dataclass(frozen=True, slots=True)
class Tensor:
    """One tensor of a weight file.

    >>> Tensor("lm_head.weight", "BF16", (128256, 4096)).bytes
    1050673152
    """

    name: str
    dtype: str
    shape: tuple[int, ...]

    @property
    def elements(self) -> int:
        """Elements, as stored: a packed dtype hides more parameters than this."""
        return math.prod(self.shape)

    @property
    def bytes(self) -> int:
        """Bytes in the file: elements * bits / 8, of ggml's types elements / block * bytes of a block. [B]

        The file's own offsets confirm it.

        >>> Tensor("blk.0.ffn_up.weight", "Q4_K", (11008, 4096)).bytes
        25362432
        """
        if self.dtype in DTYPE_BITS:
            return self.elements * DTYPE_BITS[self.dtype] // 8
        from roofcast.modelspec.ggml import BY_NAME  # noqa: PLC0415 - of a GGUF file, which most runs do not meet

        return BY_NAME[self.dtype].size(self.elements)


@dataclass(frozen=True, slots=True)
class WeightFiles:
    """What all weight files of a checkpoint hold together.

    Args:
        tensors: every tensor; empty where only a summary is known.
        elements: dtype -> elements stored.
        bytes: of all tensors, headers not counted. [B]
        files: how many weight files; 0 where not known.
        origin: "headers", "hub summary" or "catalogue".
    """

    tensors: tuple[Tensor, ...]
    elements: Mapping[str, int]
    bytes: int
    files: int
    origin: str


def header_length(start: bytes, where: str, size: int | None) -> int:
    r"""Return the length of a header from the first eight bytes of its file. [B]

    Args:
        start: the first bytes of the file, eight or more where it has them.
        where: the file, as the message names it.
        size: of the whole file, None where it is not known. [B]

    Raises:
        MalformedModelError: the file is too short for it, or no header is that long.
        UndeterminedModelError: it is a Git LFS pointer, not the file.

    Source: https://huggingface.co/docs/safetensors, "Format".

    >>> header_length(b"\x10\0\0\0\0\0\0\0", "model.safetensors", 100)
    16
    """
    if start.startswith(_LFS_POINTER):
        msg = f"{where}: a Git LFS pointer, not the weights; fetch them with `git lfs pull`"
        raise UndeterminedModelError(msg)
    if len(start) < LENGTH:
        msg = f"{where}: {len(start)} bytes; a safetensors file starts with the 8 bytes of its header's length"
        raise MalformedModelError(msg)
    length = int.from_bytes(start[:LENGTH], "little")
    if length > MAX_HEADER:
        msg = f"{where}: its header claims {length:,} bytes; the format allows at most {MAX_HEADER:,}{likely(start)}"
        raise MalformedModelError(msg)
    if size is not None and LENGTH + length > size:
        msg = f"{where}: cut short: {size:,} bytes, but its header alone needs {LENGTH + length:,}"
        raise MalformedModelError(msg)
    return length


def likely(start: bytes) -> str:
    """Say what a file looks like that is not what it was taken for; nothing where it looks like nothing known.

    >>> likely(b"GGUF")
    '; it looks like a GGUF file'
    """
    if start[8:9] == b"{" and start[6:8] == b"\0\0":  # eight bytes of length, then JSON
        return "; it looks like a safetensors file"
    return next((f"; it looks like {name}" for magic, name in _MAGICS.items() if start.startswith(magic)), "")


def parse_header(header: bytes, where: str, data: int | None = None) -> tuple[Tensor, ...]:
    """Return the tensors that a safetensors header describes, in the order of their bytes.

    Args:
        header: the JSON text between the length and the data.
        where: the file, as the message names it.
        data: bytes that follow the header, None where not known; 0 is taken as a header kept without its data. [B]

    Raises:
        MalformedModelError: it is no such header, or its offsets contradict shapes, each other or the file.

    Source: https://huggingface.co/docs/safetensors, "Format": no holes, no overlap, begin and end count from the data.

    >>> parse_header(b'{"a": {"dtype": "F16", "shape": [2, 3], "data_offsets": [0, 12]}}', "a.safetensors")
    (Tensor(name='a', dtype='F16', shape=(2, 3)),)
    """
    _refuse_crowd(header, where)
    return tensors_of(read_object(header, f"{where}: header", unique=True), where, data)


def tensors_of(header: Mapping[str, Any], where: str, data: int | None = None) -> tuple[Tensor, ...]:
    """Return the tensors of a header that is no text any more; arguments and errors as `parse_header`."""
    entries = dict(header)
    metadata = entries.pop("__metadata__", None)
    if not isinstance(metadata, dict | None):
        msg = f"{where}: __metadata__ is {kind_of(metadata)}; it must be an object"
        raise MalformedModelError(msg)
    refuse_long_name(max(entries, key=len, default=""), where)
    placed = sorted(((*_offsets(n, e, where), n) for n, e in entries.items()), key=lambda item: item[:2])
    tensors = []
    position = 0
    for begin, end, name in placed:
        tensor = _tensor(name, entries[name], where)
        if begin != position:
            problem = "overlaps the tensor before it" if begin < position else "leaves a hole before it"
            msg = f"{where}: tensor {quoted(name)} starts at byte {begin} and {problem} (expected {position})"
            raise MalformedModelError(msg)
        if end - begin != tensor.bytes:
            msg = (
                f"{where}: tensor {quoted(name)} has {end - begin} bytes of data, "
                f"but {tensor.dtype} {list(tensor.shape)} needs {tensor.bytes}"
            )
            raise MalformedModelError(msg)
        tensors.append(tensor)
        position = end
    if data and data != position:
        msg = f"{where}: {data:,} bytes of data, but its header describes {position:,}: cut short or overwritten"
        raise MalformedModelError(msg)
    return tuple(tensors)


def parse_index(text: bytes, where: str) -> dict[str, str]:
    """Return the map from tensor to file of a model.safetensors.index.json.

    Raises:
        MalformedModelError: it is not such an index, or names a file outside its own folder.

    >>> parse_index(b'{"weight_map": {"a": "model-00001-of-00001.safetensors"}}', "index")
    {'a': 'model-00001-of-00001.safetensors'}
    """
    weight_map = read_object(text, where).get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        found = "nothing" if weight_map in ({}, None) else kind_of(weight_map)
        msg = f"{where}: weight_map holds {found}; it must map every tensor to its file"
        raise MalformedModelError(msg)
    for name, shard in weight_map.items():
        if not isinstance(shard, str) or not _is_inside(shard):
            shown = quoted(shard) if isinstance(shard, str) else kind_of(shard)
            msg = f"{where}: {quoted(name)} is in {shown}; it must be the relative name of a .safetensors file"
            raise MalformedModelError(msg)
    return weight_map


def pick(names: Iterable[str], where: str) -> tuple[str, ...]:
    """Choose the files that together are the model, where no model.safetensors and no index says so.

    Files of adapters are left out, and so is the second copy that consolidated files are beside others.

    Raises:
        UndeterminedModelError: a numbered file (-00002-of-00003) is missing.

    >>> pick(["consolidated.safetensors", "lm-00001-of-00001.safetensors", "adapter_model.safetensors"], "x")
    ('lm-00001-of-00001.safetensors',)
    """
    candidates = sorted(n for n in names if n.endswith(".safetensors") and "/" not in n and not n.startswith("adapter"))
    chosen = tuple(n for n in candidates if not n.startswith("consolidated")) or tuple(candidates)
    for match in filter(None, (re.fullmatch(_NUMBERED, name) for name in chosen)):
        number, count = match["number"], match["count"]
        for i in range(1, min(int(count), len(chosen) + 1) + 1):
            if (expected := f"{match['stem']}-{i:0{len(number)}d}-of-{count}.safetensors") not in chosen:
                msg = f"{where}: missing shard {quoted(expected)}; all {int(count)} must be there"
                raise UndeterminedModelError(msg)
    return chosen


def unread(names: Iterable[str]) -> str | None:
    """Say which weight files are there in formats that are not read, None where there are none.

    >>> unread(["pytorch_model-1.bin", "pytorch_model-2.bin", "config.json"])
    'no safetensors files; pytorch_model-1.bin (of 2 such files) is not read'
    """
    others = sorted(n for n in names if n.endswith(_UNREAD) and n not in _NO_WEIGHTS)
    if not others:
        return None
    shown = plain(others[0]) if len(others) == 1 else f"{plain(others[0])} (of {len(others)} such files)"
    return f"no safetensors files; {shown} is not read"


def collect(
    shards: Mapping[str, tuple[Tensor, ...]], where: str, index: Mapping[str, str] | None = None
) -> WeightFiles:
    """Add up the shards of a checkpoint.

    Args:
        shards: file -> its tensors.
        where: the checkpoint, as the message names it.
        index: tensor -> file, where an index says so; it may name nothing that its file lacks.

    Raises:
        MalformedModelError: a tensor is in two files, or not in the file that the index names, or there is none.

    >>> collect({"a.safetensors": (Tensor("w", "F32", (3,)),)}, "x").bytes
    12
    """
    home: dict[str, str] = {}
    for shard, tensors in shards.items():
        for tensor in tensors:
            if (other := home.setdefault(tensor.name, shard)) != shard:
                msg = f"{where}: tensor {quoted(tensor.name)} is in two files, {quoted(other)} and {quoted(shard)}"
                raise MalformedModelError(msg)
    for name, shard in (index or {}).items():
        if home.get(name) != shard:
            msg = f"{where}: the index says that tensor {quoted(name)} is in {quoted(shard)}, which does not hold it"
            raise MalformedModelError(msg)
    if not home:
        msg = f"{where}: the weight files hold no tensor"
        raise MalformedModelError(msg)
    everything = tuple(tensor for tensors in shards.values() for tensor in tensors)
    if not any(tensor.elements for tensor in everything):
        msg = f"{where}: the weight files hold only empty tensors"
        raise MalformedModelError(msg)
    elements: Counter[str] = Counter()
    for tensor in everything:
        elements[tensor.dtype] += tensor.elements
    return WeightFiles(everything, dict(elements), sum(t.bytes for t in everything), len(shards), "headers")


def summarise(elements: Mapping[str, int], origin: str, files: int = 0) -> WeightFiles:
    """Make weight files of nothing but elements per dtype.

    Raises:
        MalformedModelError: a dtype is not one of the format's, a count is no whole number, or their sum is no model's.

    >>> summarise({"BF16": 8030261248}, "catalogue").bytes
    16060522496
    """
    for dtype, count in elements.items():
        if dtype not in DTYPE_BITS or not _is_size(count):
            shown = (
                count if _is_size(count) else "no whole number of" if not isinstance(count, int) else "impossibly many"
            )
            msg = f"{origin}: {shown} elements of {quoted(str(dtype))}; known dtypes: {', '.join(DTYPE_BITS)}"
            raise MalformedModelError(msg)
    if not 0 < (total := sum(elements.values())) <= _MAX_ELEMENTS:
        msg = f"{origin}: {total:,} elements in all; no model has so {'many' if total else 'few'}"
        raise MalformedModelError(msg)
    return WeightFiles((), dict(elements), sum(n * DTYPE_BITS[d] for d, n in elements.items()) // 8, files, origin)


def refuse_long_name(name: str, where: str) -> None:
    """Refuse a tensor's name that no library writes.

    Raises:
        MalformedModelError: it is longer than 512 characters.
    """
    if len(name) > MAX_TENSOR_NAME:
        msg = f"{where}: the name of tensor {quoted(name)} has {len(name):,} characters; at most {MAX_TENSOR_NAME} are possible"
        raise MalformedModelError(msg)


def _refuse_crowd(header: bytes, where: str) -> None:
    """Refuse what would take a hundred times its own memory once parsed: an object and two lists are a tensor."""
    for mark, most in ((b"{", MAX_TENSORS), (b"[", 2 * MAX_TENSORS), (b",", 16 * MAX_TENSORS)):
        if (count := header.count(mark)) > most:
            msg = f"{where}: header: {count:,} times {mark.decode()!r}; {MAX_TENSORS:,} tensors are the most possible"
            raise MalformedModelError(msg)


def _offsets(name: str, entry: object, where: str) -> tuple[int, int]:
    if not isinstance(entry, dict):
        msg = f"{where}: tensor {quoted(name)} is {kind_of(entry)}; it must be an object"
        raise MalformedModelError(msg)
    match entry.get("data_offsets"):
        case [int(begin), int(end)] if _is_size(begin) and _is_size(end) and begin <= end:
            return begin, end
    msg = f"{where}: data_offsets of tensor {quoted(name)} must be two whole numbers, begin and end"
    raise MalformedModelError(msg)


def _tensor(name: str, entry: dict[str, Any], where: str) -> Tensor:
    dtype, shape = entry.get("dtype"), entry.get("shape")
    if not isinstance(dtype, str) or dtype not in DTYPE_BITS:
        shown = quoted(dtype) if isinstance(dtype, str) else kind_of(dtype)
        msg = f"{where}: tensor {quoted(name)} has dtype {shown}; known: {', '.join(DTYPE_BITS)}"
        raise MalformedModelError(msg)
    if not isinstance(shape, list) or len(shape) > _MAX_RANK or not all(map(_is_size, shape)):
        msg = f"{where}: shape of tensor {quoted(name)} must be a list of at most {_MAX_RANK} whole numbers from 0"
        raise MalformedModelError(msg)
    if math.prod(shape) * DTYPE_BITS[dtype] % 8:
        msg = f"{where}: tensor {quoted(name)}, {dtype} {shape}, does not fill whole bytes"
        raise MalformedModelError(msg)
    return Tensor(name, dtype, tuple(shape))


def _is_size(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < _NO_SIZE


def _is_inside(shard: str) -> bool:
    path = PurePosixPath(shard)
    tidy = str(path) == shard and "\\" not in shard and "\0" not in shard and ":" not in shard
    tidy = tidy and shard.isprintable() and all(len(part.encode()) <= _MAX_NAME for part in path.parts)
    return tidy and not path.is_absolute() and ".." not in path.parts and path.suffix == ".safetensors"
