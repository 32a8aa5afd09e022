"""A place in a file that moves on: bytes come in pieces as they are needed, within limits, and are forgotten behind."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final, NoReturn

from roofcast.modelspec.errors import MalformedModelError

if TYPE_CHECKING:
    from roofcast.modelspec.gguf import ByteSource

MAX_HEADER: Final = 100_000_000  # [B], six times the largest published one (half a million merges of a tokenizer)
FIRST_READ: Final = 1 << 18  # [B]
LARGEST_READ: Final = 1 << 23  # [B]
MAX_STRING: Final = 1 << 26  # [B]; a whole tokenizer.json as one string has half of that


class Cursor:
    """Reads a source from its start, in pieces of twice the size each time.

    So it never reads more than it has passed, and one first piece; what is skipped is not read at all.

    Args:
        source: where bytes come from.
        chunk: size of the first piece. [B]
    """

    def __init__(self, source: ByteSource, chunk: int = FIRST_READ) -> None:
        self.source = source
        self.order = "<"  # of the bytes of a number, as struct writes it
        self._chunk = chunk
        self._data = b""
        self._base = 0  # of the data, in the file
        self._at = 0  # in the data, or beyond it

    @property
    def position(self) -> int:
        """Bytes from the start of the file. [B]"""
        return self._base + self._at

    @property
    def left(self) -> int:
        """Bytes that may follow: up to the end of the file or of the longest header. [B]"""
        size = self.source.size
        return (MAX_HEADER if size is None else min(size, MAX_HEADER)) - self.position

    def start(self, count: int) -> bytes:
        """Return what the file starts with, shorter where it is; the place stays.

        >>> from roofcast.modelspec.gguf import Held
        >>> Cursor(Held("x", b"GGUF")).start(24)
        b'GGUF'
        """
        self._data = self.source.read(0, max(count, self._chunk))
        self._chunk = min(2 * self._chunk, LARGEST_READ)
        return self._data[:count]

    def number(self, code: str, what: str) -> int:
        """Return the next whole number; `code` is its type as struct writes it."""
        (value,) = self.numbers(code, 1, what)
        return int(value)

    def numbers(self, code: str, count: int, what: str) -> tuple[int | float, ...]:
        """Return so many numbers of one type."""
        packed = struct.Struct(f"{self.order}{count}{code}")
        return packed.unpack(self.take(packed.size, what))

    def take(self, count: int, what: str) -> bytes:
        """Return the next bytes.

        Raises:
            MalformedModelError: the file or the longest header ends before them.
        """
        self._ahead(count, what)
        taken = self._data[self._at : self._at + count]
        self._at += count
        return taken

    def skip(self, count: int, what: str) -> None:
        """Move on without reading.

        Raises:
            MalformedModelError: the file or the longest header ends before.
        """
        if count > self.left:
            self._refuse(count, what)
        self._at += count

    def length(self, most: int, what: str) -> int:
        """Return the length of the string that follows.

        Raises:
            MalformedModelError: no string is so long, or nothing that long follows.
        """
        count = self.number("Q", what)
        if count > most:
            msg = f"{self.source.where}: {what} has {count:,} bytes; at most {most:,} are possible"
            raise MalformedModelError(msg)
        if count > self.left:
            self._refuse(count, what)
        return count

    def text(self, count: int, what: str) -> str:
        """Return the next bytes as text.

        Raises:
            MalformedModelError: they are not UTF-8, or not there.
        """
        data = self.take(count, what)
        try:
            return data.decode()
        except UnicodeDecodeError as error:
            msg = f"{self.source.where}: {what} is not UTF-8 (byte {error.start} of {count:,}); it must be text"
            raise MalformedModelError(msg) from error

    def skip_strings(self, count: int, what: str) -> None:
        """Move over strings, each after its length: lists of tokens have hundreds of thousands.

        Raises:
            MalformedModelError: one is too long, or the file or the longest header ends before.
        """
        read = struct.Struct(f"{self.order}Q").unpack_from
        while count:
            self._ahead(8, what)
            data, at, last, length = self._data, self._at, len(self._data) - 8, 0
            while count and at <= last:
                (length,) = read(data, at)
                at += 8 + length
                count -= 1
            step = at - self._at
            if length > MAX_STRING:
                msg = f"{self.source.where}: {what} holds a string of {length:,} bytes; at most {MAX_STRING:,}"
                raise MalformedModelError(msg)
            self.skip(step, what)

    def refuse_count(self, count: int, least: int, what: str) -> None:
        """Refuse a count of things of which so many cannot follow, before any is read.

        Args:
            count: as the file states it.
            least: bytes that one takes at least. [B]
            what: they are.
        """
        if count * least <= self.left:
            return
        msg = (
            f"{self.source.where}: claims {count:,} {what}, at least {count * least:,} bytes, "
            f"but at most {max(self.left, 0):,} can follow"
        )
        raise MalformedModelError(msg)

    def _ahead(self, count: int, what: str) -> None:
        """Have the next bytes at hand."""
        if count > self.left:
            self._refuse(count, what)
        if (missing := count - len(self._data) + self._at) <= 0:
            return
        self._base, self._data, self._at = self.position, self._data[self._at :], 0
        first = self._base + len(self._data)
        end = MAX_HEADER if self.source.size is None else min(self.source.size, MAX_HEADER)
        got = self.source.read(first, min(max(count - len(self._data), self._chunk), end - first))
        self._chunk = min(2 * self._chunk, LARGEST_READ)
        self._data += got
        if len(got) < missing and len(self._data) < count:
            msg = f"{self.source.where}: cut short: it ends at byte {first + len(got):,}, inside {what}"
            raise MalformedModelError(msg)

    def _refuse(self, count: int, what: str) -> NoReturn:
        end, size = self.position + count, self.source.size
        if size is not None and end > size:
            msg = f"{self.source.where}: cut short: {size:,} bytes, but {what} needs {end:,}"
        else:
            msg = f"{self.source.where}: {what} ends at byte {end:,}; a header has at most {MAX_HEADER:,} bytes"
        raise MalformedModelError(msg)
