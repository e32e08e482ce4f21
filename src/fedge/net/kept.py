"""Files that hold keys are written whole, by their owner alone, and never over another by accident."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

from fedge.errors import FleetError

MOST = 2**24  # bytes


def write(path: Path, content: bytes, mode: int = 0o644, replace: bool = False) -> None:
    """Write a file whole and durably; one that is there already is kept, unless it is to be replaced."""
    partial = path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")
    handle = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            os.fchmod(file.fileno(), mode)
            file.flush()
            os.fsync(file.fileno())
        if replace:
            os.replace(partial, path)
        else:
            os.link(partial, path)  # which, unlike a rename, fails where there is a file
    except FileExistsError:
        raise FleetError(f"{path} exists already and is kept; choose another folder, or move it away") from None
    finally:
        partial.unlink(missing_ok=True)


def read(path: Path) -> bytes:
    """Read a file of a node's folder."""
    try:
        if path.stat().st_size > MOST:
            raise FleetError(f"{path} is too large for a file of a node's folder")
        return path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        raise FleetError(f"{path} is missing; make the folder with `fedge fleet init`") from None


def read_secret(path: Path) -> bytes:
    """Read a file with a key; one that others on this machine may read is refused."""
    content, found = read(path), path.stat()
    mode = found.st_mode & 0o777
    lent = 0o040 if found.st_uid == 0 else 0  # by root to the group of a service, as container systems do it
    if mode & 0o077 & ~lent:
        raise FleetError(f"{path} holds a key and others may read it (mode {mode:04o}); run: chmod 600 {path}")
    return content
