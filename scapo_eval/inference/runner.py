"""Requests in, a journal of answers out; and the card that says how the answers came about."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import orjson

from ..engines import Completion, Engine, Request, Sampling
from ..engines import images as pictures
from ..io.files import atomic_write, dump_json
from ..signature import digest
from .journal import Journal

CARD_SUFFIX = ".run.json"
FAILED_SUFFIX = ".failed.jsonl"

_KEPT_FINGERPRINTS = 1 << 16

Advance = Callable[[int], None]


@dataclass(slots=True)
class Tally:
    """What a run came to.

    Attributes:
        requests: answers that were wanted.
        repeated: asked again, because what an answer says could not be read.
        reused: of both, those that the journal already held or that another request asks for already.
        failed: of them, those without an answer.
        empty: answers without a word (kept: saying nothing is a model's doing, too).
        cut: answers that ended at the token limit.
        prompt_tokens, completion_tokens: of all answers, as far as the engine counts.
        made_tokens: of them, completion tokens of this run.
        seconds: spent waiting for the engine.
    """

    requests: int = 0
    repeated: int = 0
    reused: int = 0
    failed: int = 0
    empty: int = 0
    cut: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    made_tokens: int = 0
    seconds: float = 0.0
    first_errors: list[str] = field(default_factory=list)

    @property
    def made(self) -> int:
        """Answers that the engine gave in this run."""
        return max(0, self.requests + self.repeated - self.reused)

    @property
    def flawed(self) -> int:
        """Items that failed or stayed empty: what makes the exit code 4."""
        return self.failed + self.empty

    def add(self, completion: Completion) -> None:
        """Counts one item of the final file."""
        self.requests += 1
        if completion.error is not None:
            self.failed += 1
            if len(self.first_errors) < 3:
                self.first_errors.append(completion.error)
            return
        self.empty += not completion.text.strip()
        self.cut += completion.finish == "length"
        self.prompt_tokens += completion.prompt_tokens or 0
        self.completion_tokens += completion.completion_tokens or 0

    def summary(self, what: str) -> str:
        """One line for people."""
        parts = [f"{self.requests - self.failed:,} {what}"]
        parts += [f"{self.reused:,} of them from an earlier run"] if self.reused else []
        parts += [f"{self.repeated:,} asked again as they could not be read"] if self.repeated else []
        parts += [f"{self.empty:,} of them empty"] if self.empty else []
        parts += [f"{self.cut:,} cut at the token limit"] if self.cut else []
        parts += [f"{self.failed:,} failed (the first: {self.first_errors[0]})"] if self.failed else []
        return "; ".join(parts)


@dataclass(slots=True)
class Session:
    """An engine together with the journal that keeps its answers.

    Attributes:
        engine: who answers.
        journal: keeps what was answered.
        tally: of everything asked in this session.
        advance: told of every answer, new or kept.
    """

    engine: Engine
    journal: Journal
    tally: Tally = field(default_factory=Tally)
    advance: Advance = lambda number: None
    _identity: bytes = b""
    _fingerprint: pictures.Cache[str] = field(
        default_factory=lambda: pictures.Cache(pictures.fingerprint, _KEPT_FINGERPRINTS)
    )

    def __post_init__(self) -> None:
        self._identity = dump_json(dict(self.engine.identity))

    def key(self, request: Request) -> str:
        """The request's key; an image that cannot be read stands there by its name."""
        return request.key(self._identity, self._fingerprint_or_name)

    def ask(self, requests: Iterable[Request]) -> None:
        """Has every request answered that the journal does not know, each once; see :meth:`answer_to`.

        Requests are pulled as the engine can use them, so only those in flight are in memory.
        """
        began = time.monotonic()
        asked: dict[int, str] = {}
        in_flight: set[str] = set()

        def unanswered() -> Iterator[Request]:
            for request in requests:
                key = self.key(request)
                if key in in_flight or key in self.journal:  # in this order: an answer goes from the one to the other
                    self.tally.reused += 1
                    self.advance(1)
                else:
                    asked[id(request)] = key
                    in_flight.add(key)
                    yield request

        def done(request: Request, completion: Completion) -> None:
            key = asked.pop(id(request))
            self.journal.add(key, completion)
            in_flight.discard(key)
            self.tally.made_tokens += completion.completion_tokens or 0
            self.advance(1)

        self.engine.run(unanswered(), done)
        self.tally.seconds += time.monotonic() - began

    def answer_to(self, request: Request) -> Completion:
        """The answer, counted in the tally."""
        completion = self.journal.get(self.key(request)) or Completion(error="not answered")
        self.tally.add(completion)
        return completion

    def _fingerprint_or_name(self, path: str) -> str:
        try:
            return self._fingerprint(path)
        except pictures.ImageFault:
            return f"unreadable {path}"


def now() -> str:
    """The time, for run cards."""
    return datetime.now(timezone.utc).isoformat(timespec="seconds")


def run_card(
    session: Session,
    *,
    started: str,
    sampling: Sampling,
    prompts: Mapping[str, str],
    images: Sequence[str],
    **further: Any,
) -> dict[str, Any]:
    """Everything needed to ask the same again.

    Args:
        session: whose answers they are.
        started: time of the start.
        sampling: the settings.
        prompts: name -> text.
        images: paths as asked, hashed as a list.
        further: more facts.
    """
    from .. import __version__

    tally = session.tally
    counts = {key: value for key, value in asdict(tally).items() if key != "first_errors"}
    return {
        "format": "scapo-run/1",
        "engine": dict(session.engine.identity),
        "environment": {**session.engine.card, "python": sys.version.split()[0], "scapo": __version__},
        "sampling": asdict(sampling),
        "prompts": dict(prompts),
        "images": {"n": len(images), "hash": digest(images)},
        "started": started,
        "finished": now(),
        "counts": {**counts, "seconds": round(tally.seconds, 3)},
        "requests_per_second": _rate(tally.made, tally.seconds),
        "completion_tokens_per_second": _rate(tally.made_tokens, tally.seconds),
        **further,
    }


def write_card(output: str | Path, session: Session, **facts: Any) -> None:
    """Writes ``OUTPUT.run.json``.

    Args:
        output: the file whose answers are described.
        session: whose answers they are.
        facts: further arguments of :func:`run_card`.
    """
    card = {"output": Path(output).name, **run_card(session, **facts)}
    with atomic_write(f"{output}{CARD_SUFFIX}") as stream:
        stream.write(orjson.dumps(card, option=orjson.OPT_INDENT_2) + b"\n")


def _rate(number: int, seconds: float) -> float | None:
    return round(number / seconds, 2) if seconds > 0 and number else None


def write_rows(output: str | Path, rows: Iterable[tuple[dict[str, Any], str | None]]) -> None:
    """Writes ``output`` and, where items failed, ``OUTPUT.failed.jsonl``: one row per item, in input order.

    Args:
        output: path; the file appears when it is complete.
        rows: each row, and the error of the item if it failed.
    """
    failed: list[dict[str, Any]] = []
    with atomic_write(output) as stream:
        for row, error in rows:
            if error is None:
                stream.write(dump_json(row) + b"\n")
            else:
                failed.append({**row, "error": error})
    beside = Path(f"{output}{FAILED_SUFFIX}")
    if failed:
        with atomic_write(beside) as stream:
            stream.writelines(dump_json(row) + b"\n" for row in failed)
    else:
        beside.unlink(missing_ok=True)
