"""The journal: what a kill leaves, who may write, what is asked again."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scapo_eval.base.errors import InputError
from scapo_eval.engines import Completion, Engine, Request, Sampling
from scapo_eval.inference.journal import Journal
from scapo_eval.inference.runner import Session

KEY, OTHER = "0" * 32, "f" * 32


def test_an_answer_comes_back_whatever_it_holds(tmp_path: Path) -> None:
    texts = ["", "a\nb\r\u2028c", "\x00", "\ud800 lone", "é" * 9000, '"}\\']
    with Journal(tmp_path / "j") as journal:
        for k, text in enumerate(texts):
            journal.add(f"{k:032x}", Completion(text, "stop", 1, 2))
        assert [journal.get(f"{k:032x}").text for k in range(len(texts))] == texts  # type: ignore[union-attr]
    with Journal(tmp_path / "j") as journal:
        assert [journal.get(f"{k:032x}") for k in range(len(texts))] == [Completion(t, "stop", 1, 2) for t in texts]
        assert journal.get(OTHER) is None
    with Journal(tmp_path / "j", fresh=True) as journal:
        assert len(journal) == 0


@given(st.integers(0, 400))
def test_a_kill_at_any_byte_loses_at_most_the_last_answer(tmp_path_factory: pytest.TempPathFactory, size: int) -> None:
    path = tmp_path_factory.mktemp("journal") / "j"
    with Journal(path) as journal:
        for k in range(5):
            journal.add(f"{k:032x}", Completion(f"answer {k}"))
    whole = path.read_bytes()
    path.write_bytes(whole[:size])
    complete = whole[:size].count(b"\n")
    with Journal(path) as journal:
        assert len(journal) == complete
        for k in range(complete, 5):
            journal.add(f"{k:032x}", Completion(f"answer {k}"))
    assert path.read_bytes() == whole


def test_failures_and_damaged_lines_are_asked_again(tmp_path: Path) -> None:
    told: list[str] = []
    with Journal(tmp_path / "j") as journal:
        journal.add(KEY, Completion(error="out of luck"))
        assert journal.get(KEY) == Completion(error="out of luck")
    with open(tmp_path / "j", "ab") as stream:
        stream.write(b'not json\n{"key":"zz"}\n[]\n')
    with Journal(tmp_path / "j", warn=told.append) as journal:
        assert KEY not in journal
        journal.add(KEY, Completion("at last"))
        journal.add(OTHER, Completion("b"))
    with Journal(tmp_path / "j") as journal:
        assert journal.get(KEY) == Completion("at last")
        assert journal.get(OTHER) == Completion("b")
    assert "3 damaged lines" in told[0]


def test_one_writer(tmp_path: Path) -> None:
    with (
        Journal(tmp_path / "j"),
        pytest.raises(InputError, match="another process is writing this run"),
    ):
        Journal(tmp_path / "j")
    Journal(tmp_path / "j").close()
    with pytest.raises(InputError, match="cannot be written"):
        Journal(tmp_path / "none" / "j")


def test_keys_change_with_whatever_decides_the_answer() -> None:
    def key(request: Request, identity: bytes = b"{}", content: str = "c") -> str:
        return request.key(identity, lambda path: content)

    plain = Request.of("a", "x.png", Sampling())
    same = Request.of("a", "elsewhere/x.png", Sampling())
    assert key(plain) == key(same)  # the content counts, not the place
    others = [
        Request.of("b", "x.png"),
        Request.of("a"),
        Request.of("a", "x.png", Sampling(temperature=0.1)),
        Request.of("a", "x.png", Sampling(max_tokens=3)),
        Request.of("a", "x.png", Sampling(), sample=1),
        Request(plain.turns, plain.sampling, schema={"type": "object"}),
    ]
    keys = {key(plain), key(plain, b'{"model": 2}'), key(plain, content="d"), *map(key, others)}
    assert len(keys) == 3 + len(others)
    assert {len(each) for each in keys} == {32}


class Counting:
    """An engine that answers with the number of the request."""

    identity: dict[str, str] = {"engine": "counting"}  # noqa: RUF012
    card: dict[str, str] = {}  # noqa: RUF012

    def __init__(self) -> None:
        self.asked: list[str] = []

    def run(self, requests, done) -> None:  # type: ignore[no-untyped-def]
        for request in requests:
            self.asked.append(request.turns[0].text)
            done(request, Completion(f"answer {len(self.asked)}"))

    def close(self) -> None:
        """Nothing to do."""


def test_completions_of_another_version_of_a_server_are_told_once(tmp_path: Path) -> None:
    def completed(version: str | None, *texts: str, model: str = "words") -> list[str]:
        told: list[str] = []
        engine = Counting()
        engine.identity = {"engine": "openai", "model": model}
        engine.card = {} if version is None else {"server_version": version}
        with Journal(tmp_path / "j", warn=told.append) as journal:
            Session(engine, journal).ask([Request.of(text) for text in texts])
            Session(engine, journal).ask([Request.of(text + "!") for text in texts])
        return told

    assert completed("vLLM 0.31.0", "a", "b") == []
    assert completed("vLLM 0.31.0", "c") == []
    assert completed(None, "d") == []
    assert completed("vLLM 0.32.0", "e", model="other") == []
    (told,) = completed("vLLM 0.32.0", "f", "g")
    assert told == (
        f"{tmp_path / 'j'}: contains completions of words from other versions of the server (6 from vLLM 0.31.0), "
        "which now runs vLLM 0.32.0; to replace them, delete this file and run the command again"
    )
    assert completed("vLLM 0.32.0", "a", "b") == []  # no completion of this run is new


def test_a_session_asks_only_what_the_journal_does_not_know(tmp_path: Path) -> None:
    engine: Engine = Counting()
    requests = [Request.of(text) for text in "abc"]
    with Journal(tmp_path / "j") as journal:
        Session(engine, journal).ask(requests[:2])
        session = Session(engine, journal)
        session.ask(requests)
        assert [session.completion_of(request).text for request in requests] == ["answer 1", "answer 2", "answer 3"]
        assert (session.tally.requests, session.tally.reused, session.tally.flawed) == (3, 2, 0)
    assert engine.asked == ["a", "b", "c"]  # type: ignore[attr-defined]


def test_one_request_twice_is_asked_once(tmp_path: Path) -> None:
    class Slow(Counting):
        """Pulls everything before it answers."""

        def run(self, requests, done) -> None:  # type: ignore[no-untyped-def]
            super().run(list(requests), done)

    engine = Slow()
    with Journal(tmp_path / "j") as journal:
        session = Session(engine, journal)
        session.ask([Request.of("a"), Request.of("b"), Request.of("a")])
        assert session.completion_of(Request.of("a")).text == "answer 1"
        assert session.tally.reused == 1
    assert engine.asked == ["a", "b"]
