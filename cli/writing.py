"""Files that are written: where they can be, whole or not at all."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from roofcast.calculators.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


def check_target(target: Path, said: str, read: Sequence[str] = ()) -> None:
    """Refuses a place where no file can or must be written.

    Args:
        target: the place, links resolved.
        said: as it was asked for.
        read: files and folders that are read, which must stay as they are.

    Raises:
        UsageError: no such folder, no regular file, write-protected, or read.
    """
    if target.is_dir() or not target.parent.is_dir():
        raise UsageError(f"--out {said}: it must name a file in a folder that exists")
    if target.exists() and not target.is_file():
        raise UsageError(f"--out {said}: it is no regular file; redirect stdout into it instead")
    if target.exists() and not target.stat().st_mode & 0o200:
        raise UsageError(f"--out {said}: it is write-protected")
    for name in read:
        path = Path(name)
        if path.exists() and target in {path.resolve(), *(p.resolve() for p in path.glob("*.*"))}:
            raise UsageError(f"--out {said}: it is read as a part of {name}; name another file")


def under(option: str, action: Callable[[], None]) -> None:
    """Does what may fail for a file of another option than --out.

    Raises:
        UsageError: naming that option.
    """
    try:
        action()
    except UsageError as error:
        raise UsageError(str(error).replace("--out ", f"{option} ", 1)) from error


def write_file(path: Path, content: str | bytes) -> None:
    """Writes the whole file or nothing: beside it first, then moved into place; a link keeps pointing at its file."""
    import tempfile

    try:
        path = path.resolve()
        mode = path.stat().st_mode & 0o777 if path.exists() else 0o666 & ~_umask()
        handle, beside = tempfile.mkstemp(dir=path.parent, prefix=".roofcast-")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(content if isinstance(content, bytes) else content.encode())
            Path(beside).chmod(mode)
            Path(beside).replace(path)
        except BaseException:
            with suppress(OSError):
                Path(beside).unlink()
            raise
    except OSError as error:
        raise UsageError(f"--out {path}: cannot be written ({error.strerror})") from error


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
