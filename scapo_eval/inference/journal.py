"""Append-only journal of completions, from which a killed command can resume.

The journal contains one JSON line per completion; each completion is identified by the hash of its request. Each line
is written immediately when the completion arrives. If the process is killed, the file contains all completions received
so far. An incomplete last line is removed when the journal is opened again.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import TracebackType

import msgspec

from ..base.errors import InputError
from ..engines import Completion
from ..files.json_text import dump_json, parse_json
from ..files.limits import MAX_LINE
from ..files.locks import try_lock

SUFFIX = ".journal"


class Journal:
    """The completions in a file, identified by the keys of their requests.

    For each completion, only a 16-byte key and an offset are kept in memory.

    Args:
        path: Path of the file, which is created if it does not exist.
        fresh: True to discard the content of the file.
        warn: Callback for warnings about damaged lines, whose requests are sent again, and about completions from
            several releases of a server.

    Raises:
        InputError: If another process is writing to the file, or if the file cannot be written.
    """

    def __init__(
        self, path: str | Path, *, fresh: bool = False, warn: Callable[[str], None] = lambda text: None
    ) -> None:
        self.path = Path(path)
        self._warn = warn
        self._offsets: dict[bytes, int] = {}
        self._failed: set[bytes] = set()
        self._servers: Counter[tuple[str, ...]] = Counter()  # model and version -> completions of earlier runs
        self._known: set[tuple[str, str]] = set()
        try:
            self._file = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o666)
        except OSError as error:
            raise InputError(f"cannot be written: {error.strerror}", path=str(path)) from None
        if not try_lock(self._file):
            os.close(self._file)
            raise InputError(
                "another process is writing this run; wait for it, or choose another output", path=str(path)
            )
        self._end = 0
        if fresh:
            os.ftruncate(self._file, 0)
        else:
            try:
                self._read()
            except BaseException:
                os.close(self._file)
                raise

    def __enter__(self) -> Journal:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __len__(self) -> int:
        return len(self._offsets)

    def __contains__(self, key: str) -> bool:
        return bytes.fromhex(key) in self._offsets

    def add(self, key: str, completion: Completion, server: tuple[str, str] | None = None) -> None:
        """Appends a completion, which replaces an earlier completion of the same request.

        Args:
            key: Key of the request.
            completion: Completion of the request.
            server: Model, and version of the server that made the completion, or None if the version is unknown or part
                of the key. A warning is given if earlier completions of the model are from other versions.
        """
        if server and server not in self._known:
            self._known.add(server)
            self._tell_other_versions(*server)
        row = {
            "key": key,
            "server": server,
            "text": completion.text,
            "finish": completion.finish,
            "prompt_tokens": completion.prompt_tokens,
            "completion_tokens": completion.completion_tokens,
            "error": completion.error,
            "masses": completion.masses,
        }
        line = dump_json({name: value for name, value in row.items() if value is not None}) + b"\n"
        written = os.write(self._file, line)
        if written < len(line):  # disk full: remove the incomplete line
            os.ftruncate(self._file, self._end)
            raise InputError("cannot be written: no space left on device", path=str(self.path))
        self._offsets[bytes.fromhex(key)] = self._end
        self._end += written
        if completion.error is not None:
            self._failed.add(bytes.fromhex(key))

    def forget_failed(self) -> None:
        """Forgets the failed completions of this process, so that their requests are repeated."""
        for key in self._failed:
            self._offsets.pop(key, None)
        self._failed.clear()

    def get(self, key: str) -> Completion | None:
        """Returns the completion that is stored under a key, or None if the journal does not contain the key."""
        offset = self._offsets.get(bytes.fromhex(key))
        if offset is None:
            return None
        row = parse_json(self._line_at(offset))
        row.pop("key")
        return msgspec.convert(row, Completion)

    def close(self) -> None:
        """Flushes the file to disk and releases its lock."""
        os.fsync(self._file)
        os.close(self._file)

    def _line_at(self, offset: int) -> bytes:
        size = 4096
        while True:
            data = os.pread(self._file, size, offset)
            line, newline, _ = data.partition(b"\n")
            if newline or len(data) < size:
                return line
            size *= 4

    def _tell_other_versions(self, model: str, version: str) -> None:
        others = {other[1]: number for other, number in self._servers.items() if other[0] == model}
        others.pop(version, None)
        if others:
            found = ", ".join(f"{number:,} from {other}" for other, number in sorted(others.items()))
            self._warn(
                f"{self.path}: contains completions of {model} from other versions of the server ({found}), which now "
                f"runs {version}; to replace them, delete this file and run the command again"
            )

    def _read(self) -> None:
        """Indexes the completions of earlier runs. Failed completions are omitted, so that their requests are
        repeated.
        """
        damaged = 0
        with open(self.path, "rb") as stream:
            for line in iter(lambda: stream.readline(MAX_LINE), b""):
                if len(line) == MAX_LINE:
                    reason = f"a line of more than {MAX_LINE >> 20} MiB is not a completion"
                    raise InputError(reason, path=str(self.path))
                if not line.endswith(b"\n"):  # the process was killed during this write
                    os.ftruncate(self._file, self._end)
                    break
                try:
                    row = parse_json(line)
                    key = bytes.fromhex(row.pop("key"))
                    server = tuple(map(str, row.pop("server", ())))
                    failed = msgspec.convert(row, Completion).error is not None
                except (ValueError, KeyError, TypeError, AttributeError):
                    damaged += 1
                else:
                    if not failed:
                        self._offsets[key] = self._end
                        if server:
                            self._servers[server] += 1
                self._end += len(line)
        if damaged:
            self._warn(f"{self.path}: {damaged:,} damaged lines; their requests are repeated")
