"""Joint exit of all processes in a training run after one process fails or dies; a message states the reason.

Each process has a connection to the first process. A failed process sends the reason for its failure and waits. A
killed process cannot send a reason, but its connection breaks. The first process prints the reason and ends all
processes. Without a joint exit, the other processes would wait in a collective operation until its timeout, and then
report a network error.
"""

from __future__ import annotations

import json
import os
import secrets
import socket
import sys
import threading
import traceback
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any, NoReturn

import torch.distributed as dist

from scapo_eval.base.errors import ScapoError

LOST = 75
"""Exit code if a process has died or its time has passed (EX_TEMPFAIL in sysexits.h), so that a restart with ``--resume
auto`` is useful.
"""

_GRACE = 1.0
"""Seconds for collecting reasons before one is printed, because one failure causes others."""

_PATIENCE = 60.0
"""Seconds within which the ranks must connect."""


class Interrupted(ScapoError):
    """Error that is raised after the run has saved its state because of a signal or a time limit."""


class TimeOver(Interrupted):
    """Error that is raised after the run has reached ``run.max_hours`` and saved its state."""


def exit_code(error: BaseException) -> int:
    """Returns the exit code for an error, which is 75 after the time limit, 130 after an interrupt, 2 for invalid
    input, and 1 for a bug.
    """
    if isinstance(error, TimeOver):
        return LOST
    if isinstance(error, (Interrupted, KeyboardInterrupt)):
        return 130
    return 2 if isinstance(error, ScapoError) else 1


@dataclass(frozen=True)
class _Failure:
    """Reason why a process has ended.

    Attributes:
        gravity: Severity of the reason. The value is 2 if the process died, 1 for an error that the user can fix, and 0
            for any other error, which may be a consequence of another failure.
        rank: Rank of the process.
        text: Text of the reason, as printed.
        code: Exit code.
    """

    gravity: int
    rank: int
    text: str
    code: int

    @classmethod
    def died(cls, rank: int, name: str) -> _Failure:
        why = "it was killed by a person or by the kernel (out of memory: see dmesg), or its machine is unreachable"
        return cls(2, rank, f"rank {rank} ({name}) has exited without a message: {why}", LOST)

    @classmethod
    def raised(cls, rank: int, error: BaseException) -> _Failure:
        if isinstance(error, (ScapoError, KeyboardInterrupt)):
            return cls(1, rank, str(error) or "interrupted", exit_code(error))
        trace = "".join(traceback.format_exception(type(error), error, error.__traceback__))
        return cls(0, rank, f"{type(error).__name__} on rank {rank}:\n{trace.rstrip()}", exit_code(error))


class Watch:
    """Connection of one process to the other processes. In a run with several ranks, every rank creates a connection.

    Args:
        rank: Number of this process, starting at 0.
        size: Number of processes.
    """

    def __init__(self, rank: int, size: int) -> None:
        self._rank, self._size = rank, size
        self._failures: list[_Failure] = []
        self._changed = threading.Condition()
        self._peers: dict[int, socket.socket] = {}
        server, invitation = _server(size) if rank == 0 else (None, None)
        invitations = [invitation]
        dist.broadcast_object_list(invitations, src=0)
        port, token, first = invitations[0]  # type: ignore[misc]
        host = os.environ["MASTER_ADDR"]
        try:
            if server is None:
                stream = socket.create_connection((host, port), timeout=_PATIENCE)
                _send(stream, {"token": token, "rank": rank, "name": _name()})
                self._listen(0, first, stream)
                return
            with server:
                while len(self._peers) < size - 1:
                    stream, _ = server.accept()
                    stream.settimeout(_PATIENCE)
                    hello = _receive(stream)
                    if hello is None or hello.get("token") != token:
                        stream.close()
                    else:
                        self._listen(hello["rank"], hello["name"], stream)
        except OSError as error:
            raise ScapoError(f"the ranks cannot all connect to port {port} of {host}: {error}") from None
        threading.Thread(target=self._decide, daemon=True).start()

    def fail(self, error: BaseException) -> NoReturn:
        """Reports the reason for a failure to the other processes, and ends this process together with them."""
        failure = _Failure.raised(self._rank, error)
        if self._rank == 0:
            self._add(failure)
        else:
            _send(self._peers[0], asdict(failure))
        threading.Event().wait(60)  # until the first process decides and the listener thread exits
        os._exit(failure.code)

    def farewell(self) -> None:
        """Announces an orderly shutdown, so that broken connections no longer count as failures."""
        for stream in self._peers.values():
            _send(stream, {})

    def _listen(self, rank: int, name: str, stream: socket.socket) -> None:
        _keep_alive(stream)
        self._peers[rank] = stream
        threading.Thread(target=self._hear, args=(rank, name, stream), daemon=True).start()

    def _hear(self, rank: int, name: str, stream: socket.socket) -> None:
        message = _receive(stream)
        if message is None:
            self._add(_Failure.died(rank, name))
        elif "text" in message:
            self._add(_Failure(**message))
        elif "code" in message:
            os._exit(message["code"])

    def _add(self, failure: _Failure) -> None:
        if self._rank != 0:  # the first process has died
            if self._rank == 1:
                _print(failure)
            os._exit(failure.code)
        with self._changed:
            self._failures.append(failure)
            self._changed.notify()

    def _decide(self) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._failures)
            clear = lambda: len(self._failures) == self._size or self._failures[-1].gravity == 2  # noqa: E731
            self._changed.wait_for(clear, _GRACE)
            cause = max(self._failures, key=lambda failure: (failure.gravity, -failure.rank))
            of_one = cause.gravity == 1 and len(self._failures) < self._size
        # printed before the other ranks exit: torchrun ends all that remain when it sees the first exit
        _print(cause, place=f"rank {cause.rank}: " if of_one else "")
        for stream in self._peers.values():
            _send(stream, {"code": cause.code})
        os._exit(cause.code)  # a thread cannot end a main thread that waits in a collective operation


def _print(cause: _Failure, *, place: str = "") -> None:
    with suppress(OSError, ValueError):  # nobody may read any more, and the ranks must exit
        print(f"scapo_train: {place}{cause.text}", file=sys.stderr)
        if cause.gravity != 1:
            print("scapo_train: all ranks exit; resume from the last checkpoint with --resume auto", file=sys.stderr)
        sys.stderr.flush()


def _server(size: int) -> tuple[socket.socket, tuple[int, str, str]]:
    dual = socket.has_dualstack_ipv6()
    family = socket.AF_INET6 if dual else socket.AF_INET
    server = socket.create_server(("", 0), family=family, dualstack_ipv6=dual, backlog=size)
    server.settimeout(_PATIENCE)
    return server, (server.getsockname()[1], secrets.token_hex(), _name())


def _name() -> str:
    return f"process {os.getpid()} on {socket.gethostname()}"


def _send(stream: socket.socket, message: dict[str, Any]) -> None:
    with suppress(OSError):  # a closed connection needs no message
        stream.sendall(json.dumps(message).encode() + b"\n")


def _receive(stream: socket.socket) -> dict[str, Any] | None:
    """Returns the next message from a connection, or None if the connection is closed."""
    line = b""
    with suppress(OSError, ValueError):
        while not line.endswith(b"\n"):
            part = stream.recv(2**16)
            if not part:
                return None
            line += part
        message = json.loads(line)
        return message if isinstance(message, dict) else None
    return None


def _keep_alive(stream: socket.socket) -> None:
    """Enables TCP keepalive, so that the connection is closed within half a minute if the other machine no longer
    responds.
    """
    stream.settimeout(None)
    stream.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in (("TCP_KEEPIDLE", 10), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 4)):
        if hasattr(socket, option):
            stream.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
