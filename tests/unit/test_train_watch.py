"""Exit codes, and the messages between ranks that anyone on the network might send."""

from __future__ import annotations

import socket

import pytest

pytest.importorskip("torch")

from scapo_eval.base.errors import InputError
from scapo_train.monitoring.watch import Interrupted, _Failure, _receive, _send, exit_code


def test_exit_codes() -> None:
    assert exit_code(InputError("bad", path="a.jsonl", line=3)) == 2
    assert exit_code(Interrupted("stopped")) == exit_code(KeyboardInterrupt()) == 130
    assert exit_code(KeyError("a bug")) == 1


def test_the_gravest_failure_is_the_cause() -> None:
    died = _Failure.died(3, "process 7 on a")
    mendable = _Failure.raised(1, InputError("bad", path="a.jsonl", line=3))
    other = _Failure.raised(0, RuntimeError("Connection closed by peer"))
    assert died.gravity > mendable.gravity > other.gravity
    assert (died.code, mendable.code, other.code) == (75, 2, 1)
    assert mendable.text == "a.jsonl:3: bad"
    assert other.text.startswith("RuntimeError on rank 0:\n")
    assert other.text.endswith("RuntimeError: Connection closed by peer")
    assert _Failure.raised(0, KeyboardInterrupt()).text == "interrupted"


@pytest.mark.parametrize("sent", [b"", b"GET / HTTP/1.1\n", b"[1]\n", b'{"rank": 1', b"\xff\xfe\n"])
def test_what_is_no_message_is_none(sent: bytes) -> None:
    here, there = socket.socketpair()
    with here, there:
        there.sendall(sent)
        there.shutdown(socket.SHUT_WR)
        assert _receive(here) is None


def test_a_message_arrives_whole_and_one_to_the_dead_is_lost() -> None:
    here, there = socket.socketpair()
    with here:
        with there:
            _send(there, {"text": "ä\n" * 9_000})
            assert _receive(here) == {"text": "ä\n" * 9_000}
        for _ in range(3):
            _send(here, {"code": 2})
