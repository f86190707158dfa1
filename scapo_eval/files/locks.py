"""Locks that keep a second process from writing the same file."""

from __future__ import annotations

from ..base.errors import InputError


def try_lock(descriptor: int) -> bool:
    """Takes the exclusive lock of an open file; it lasts until the descriptor is closed, also by kill -9.

    Returns:
        Whether it was taken; False: another process has it.

    Raises:
        InputError: if the system has no such locks (Windows).
    """
    try:
        import fcntl
    except ImportError:
        raise InputError("work that resumes needs the file locks of Linux or macOS; on Windows, use WSL") from None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
