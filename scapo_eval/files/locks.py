"""File locks, which prevent two processes from writing to the same file."""

from __future__ import annotations

from ..base.errors import InputError


def try_lock(descriptor: int) -> bool:
    """Tries to acquire the exclusive lock of an open file. The lock is kept until the descriptor is closed or the
    process ends.

    Returns:
        True if the lock was acquired, False if another process holds the lock.

    Raises:
        InputError: If the operating system (Windows) or the file system does not support exclusive file locks.
    """
    try:
        import fcntl
    except ImportError:
        raise InputError("work that resumes needs the file locks of Linux or macOS; on Windows, use WSL") from None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        raise InputError(f"the file system does not support file locks: {error.strerror}") from None
    return True
