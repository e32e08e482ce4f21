"""Write files of a run folder whole or not at all, never outside their folder, and read them with suspicion.

A folder may come from somebody else. So nothing here follows a link that lies where a file is to be written, and what
is read may be anything: it is checked before it is used.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import secrets
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

from fedge.errors import RunError

try:
    import fcntl

    LOCKS = True
except ImportError:  # no such locks on this system; its users start one process per folder themselves
    LOCKS = False

LOCK = ".lock"
TRIES = 3  # to lock a folder
MOST = 2**28  # bytes of a JSON file that is read
DIGITS = 308  # of an integer that is read: a float holds as many
NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0)
APPEND = os.O_WRONLY | os.O_CREAT | os.O_APPEND | getattr(os, "O_NOFOLLOW", 0)


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Give a new file beside `path`, which takes its place, durably, once the block has filled it without an error."""
    partial = path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")
    os.close(os.open(partial, NEW, 0o666))  # new, so no link
    mode = partial.stat().st_mode  # what the user's mask says, whatever a library that fills it prefers
    try:
        yield partial
        with partial.open("rb+") as file:
            os.fchmod(file.fileno(), mode)
            os.fsync(file.fileno())
        os.replace(partial, path)
        sync_folder(path.parent)
    except BaseException as problem:
        with contextlib.suppress(OSError):
            partial.unlink()
        if isinstance(problem, OSError):
            problem.filename = str(path)  # a full disk is met where no name is known
        raise


def make_folder(folder: Path) -> None:
    """Make a folder and those it lies in, durably."""
    new = [path for path in (folder, *folder.parents) if not path.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    for path in new:
        sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Make the names in a folder durable; a file's own content is synced before it gets its name."""
    with contextlib.suppress(OSError):  # some file systems have no such thing
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def write_bytes(path: Path, content: bytes) -> None:
    with replacing(path) as partial:
        partial.write_bytes(content)


def write_json(path: Path, value: Any) -> None:
    write_bytes(path, (json.dumps(value, indent=2, allow_nan=False) + "\n").encode())


def line(value: Any) -> str:
    return json.dumps(value, allow_nan=False) + "\n"


def append(path: Path, text: str) -> None:
    try:
        with os.fdopen(os.open(path, APPEND, 0o666), "a", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
    except OSError as problem:
        problem.filename = str(path)
        raise


def is_leftover(path: Path) -> bool:
    """Say whether this is what a write that was cut short has left behind, or the lock."""
    return path.name == LOCK or (path.name.startswith(".") and path.name.endswith(".part"))


def parse_json(text: str, place: str) -> Any:
    """Read any JSON value; what is not JSON, or holds a number that is none, is refused."""

    def refuse(word: str) -> NoReturn:
        raise ValueError(f"{word} is not a number")

    def number(text: str) -> float:
        value = float(text)
        return value if math.isfinite(value) else refuse(text)

    def integer(text: str) -> int:
        return int(text) if len(text) <= DIGITS else refuse(text)

    try:
        return json.loads(text, parse_constant=refuse, parse_float=number, parse_int=integer)
    except (ValueError, RecursionError) as problem:  # brackets nested too deep, a number of too many digits
        reason = "it is nested too deep" if isinstance(problem, RecursionError) else str(problem)
        raise RunError(f"{place} is damaged ({reason[:100]}); restore it, or start the run anew elsewhere") from None


def read_text(path: Path) -> str:
    """Read the text of a file of a run folder."""
    try:
        return read_bytes(path).decode()
    except UnicodeDecodeError:
        raise RunError(f"{path} is damaged (it is not text); restore it, or start the run anew elsewhere") from None


def read_bytes(path: Path) -> bytes:
    """Read an ordinary file of a run folder; a pipe or a device would be waited for, or never end."""
    try:
        if not path.is_file():
            raise FileNotFoundError
        if path.stat().st_size > MOST:
            raise RunError(f"{path} has {path.stat().st_size:,} bytes, more than a run writes; it is not one of a run")
        return path.read_bytes()
    except FileNotFoundError:
        raise RunError(f"{path} is missing; {path.parent} does not hold a run") from None
    except OSError as problem:
        raise RunError(f"cannot read {path}: {problem.strerror}") from None


def read_json(path: Path) -> dict[str, Any]:
    value = parse_json(read_text(path), str(path))
    if not isinstance(value, dict):
        raise RunError(f"{path} is damaged (not an object of JSON); restore it, or start the run anew elsewhere")
    return value


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Keep every other process from writing into a folder; the lock dies with the process that holds it."""
    if not LOCKS:
        yield
        return
    if (folder / LOCK).is_symlink():
        raise RunError(f"{folder / LOCK} is a link to another place; remove it")
    handle = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), 0o666)
    try:
        for left in reversed(range(TRIES)):
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if not left:
                    raise RunError(f"another process is writing to {folder}; wait for it, or stop it first") from None
                time.sleep(0.01)  # it may have looked only whether the folder is locked
        for partial in folder.iterdir():
            if is_leftover(partial) and partial.name != LOCK:
                partial.unlink(missing_ok=True)
        yield
    finally:
        os.close(handle)


def is_locked(folder: Path) -> bool:
    """Say whether a process that is alive writes to the folder; nothing is changed there."""
    if not LOCKS or not (folder / LOCK).is_file():
        return False
    try:
        handle = os.open(folder / LOCK, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0))
    except OSError:  # a folder of somebody else's, where no lock can be had
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    finally:
        os.close(handle)
    return False
