"""Leaving together: when one process of a training run fails or dies, all say why and end, instead of waiting for it.

Each process holds a connection to the first one. One that fails sends its reason and waits; one that is
killed cannot, but its connection breaks. The first process prints the reason and lets all exit. Without
this, the others would wait in a collective operation until its timeout, and then blame the network.
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
"""Exit code when a process has died, or its time was over (EX_TEMPFAIL of sysexits.h): worth another start with
``--resume auto``."""

_GRACE = 1.0
"""Seconds in which reasons are gathered before one is printed: a failure makes others."""

_PATIENCE = 60.0
"""Seconds in which the ranks must connect, once they have met."""


class Interrupted(ScapoError):
    """The run was asked to leave; what it had done is saved."""


class TimeOver(Interrupted):
    """The hours of ``run.max_hours`` are over; what was done is saved."""


def exit_code(error: BaseException) -> int:
    """Returns the exit code of a process that ended with this error: 75 time is over, 130 interrupted, 2 bad input, 1 a
    bug.
    """
    if isinstance(error, TimeOver):
        return LOST
    if isinstance(error, (Interrupted, KeyboardInterrupt)):
        return 130
    return 2 if isinstance(error, ScapoError) else 1


@dataclass(frozen=True)
class _Failure:
    """The reason why a process does not continue.

    Attributes:
        gravity: 2: the process died; 1: an error that a user can mend; 0: any other, which may be a consequence.
        rank: rank of the process.
        text: the reason, as it is printed.
        code: exit code.
    """

    gravity: int
    rank: int
    text: str
    code: int

    @classmethod
    def died(cls, rank: int, name: str) -> _Failure:
        why = "it was killed, by someone or by the kernel for want of memory (see dmesg), or its machine is gone"
        return cls(2, rank, f"rank {rank} ({name}) has died without a word: {why}", LOST)

    @classmethod
    def raised(cls, rank: int, error: BaseException) -> _Failure:
        if isinstance(error, (ScapoError, KeyboardInterrupt)):
            return cls(1, rank, str(error) or "interrupted", exit_code(error))
        trace = "".join(traceback.format_exception(type(error), error, error.__traceback__))
        return cls(0, rank, f"{type(error).__name__} on rank {rank}:\n{trace.rstrip()}", exit_code(error))


class Watch:
    """One process's watch over the others. Every rank makes one, if there are two or more.

    Args:
        rank: number of this process, from 0.
        size: number of processes.
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
        """Tells the others why this process cannot go on, and ends with them."""
        failure = _Failure.raised(self._rank, error)
        if self._rank == 0:
            self._add(failure)
        else:
            _send(self._peers[0], asdict(failure))
        threading.Event().wait(60)  # the first process decides within the grace, and this one ends in its thread
        os._exit(failure.code)

    def farewell(self) -> None:
        """Says that all is done: a broken connection is no death any more."""
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
            _leave(failure, quiet=self._rank > 1)
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
        for stream in self._peers.values():
            _send(stream, {"code": cause.code})
        _leave(cause, place=f"rank {cause.rank}: " if of_one else "")


def _leave(cause: _Failure, *, place: str = "", quiet: bool = False) -> NoReturn:
    if not quiet:
        print(f"scapo_train: {place}{cause.text}", file=sys.stderr)
        if cause.gravity != 1:
            print("scapo_train: all ranks leave; go on from the last checkpoint with --resume auto", file=sys.stderr)
        sys.stderr.flush()
    os._exit(cause.code)  # a thread cannot end a main thread that waits inside a collective operation


def _server(size: int) -> tuple[socket.socket, tuple[int, str, str]]:
    dual = socket.has_dualstack_ipv6()
    family = socket.AF_INET6 if dual else socket.AF_INET
    server = socket.create_server(("", 0), family=family, dualstack_ipv6=dual, backlog=size)
    server.settimeout(_PATIENCE)
    return server, (server.getsockname()[1], secrets.token_hex(), _name())


def _name() -> str:
    return f"process {os.getpid()} on {socket.gethostname()}"


def _send(stream: socket.socket, message: dict[str, Any]) -> None:
    with suppress(OSError):  # who is gone needs no message
        stream.sendall(json.dumps(message).encode() + b"\n")


def _receive(stream: socket.socket) -> dict[str, Any] | None:
    """Returns the next message; None when the other side is gone."""
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
    """Lets the connection break within half a minute when the other machine has vanished."""
    stream.settimeout(None)
    stream.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in (("TCP_KEEPIDLE", 10), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 4)):
        if hasattr(socket, option):
            stream.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
