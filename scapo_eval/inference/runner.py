"""Sessions of an engine with its journal, their counts, and the run card that says how the output was made."""

from __future__ import annotations

import sys
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import orjson

from ..base.hashes import digest
from ..engines import Completion, Engine, Request, Sampling
from ..engines import images as pictures
from ..files.files import atomic_write
from ..files.json_text import dump_json
from .journal import Journal
from .shards import CARD_SUFFIX, FAILED_SUFFIX, SHARD_SUFFIX, Share

_KEPT_FINGERPRINTS = 1 << 16

Advance = Callable[[int], None]


@dataclass(slots=True)
class RequestCounts:
    """Counts of what was requested and of what came back.

    Attributes:
        requests: number of items of the output, each of one request.
        repeated: number of requests made again because a verdict could not be read.
        reused: number of these requests whose completion the journal already had, or an equal request brought.
        failed: number of items without a completion.
        unread: number of items whose verdict could not be read, even after retries.
        empty: number of completions without a word (kept, because the model chose to say nothing).
        cut: number of completions that ended at the token limit.
        prompt_tokens: number of prompt tokens of all completions, as far as the engine counts.
        completion_tokens: number of tokens of all completions, as far as the engine counts.
        made_tokens: number of tokens of the completions that the engine made now (not taken from the journal).
        seconds: time spent waiting for the engine.
        first_errors: the first error messages.
        first_unread: why the first verdict could not be read.
    """

    requests: int = 0
    repeated: int = 0
    reused: int = 0
    failed: int = 0
    unread: int = 0
    empty: int = 0
    cut: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    made_tokens: int = 0
    seconds: float = 0.0
    first_errors: list[str] = field(default_factory=list)
    first_unread: str = ""

    @property
    def made(self) -> int:
        """Number of completions that the engine made now (not taken from the journal)."""
        return max(0, self.requests + self.repeated - self.reused)

    @property
    def flawed(self) -> int:
        """Number of items that failed, are empty or could not be read; above 0 the exit code is 4."""
        return self.failed + self.empty + self.unread

    def add(self, completion: Completion) -> None:
        """Counts one item of the output."""
        self.requests += 1
        if completion.error is not None:
            self.failed += 1
            if len(self.first_errors) < 3:
                self.first_errors.append(completion.error)
            return
        self.empty += not completion.text.strip()
        self.cut += completion.finish == "length" and completion.masses is None
        self.prompt_tokens += completion.prompt_tokens or 0
        self.completion_tokens += completion.completion_tokens or 0

    def add_unread(self, reason: str) -> None:
        """Counts one item whose verdict could not be read."""
        self.unread += 1
        self.first_unread = self.first_unread or reason

    def summary(self, what: str) -> str:
        """Returns one line for people."""
        parts = [f"{self.requests - self.failed - self.unread:,} {what}"]
        parts += [f"{self.reused:,} of them from an earlier run"] if self.reused else []
        parts += [f"{self.repeated:,} asked again as they could not be read"] if self.repeated else []
        parts += [f"{self.empty:,} of them empty"] if self.empty else []
        parts += [f"{self.cut:,} cut at the token limit"] if self.cut else []
        parts += [f"{self.failed:,} failed (the first: {self.first_errors[0]})"] if self.failed else []
        asks = f"not readable (the first: {self.first_unread}); --retry asks these again"
        parts += [f"{self.unread:,} {asks}"] if self.unread else []
        return "; ".join(parts)


@dataclass(slots=True)
class Session:
    """An engine together with the journal that keeps its completions.

    Attributes:
        engine: the engine that completes requests.
        journal: the journal that keeps the completions.
        tally: counts of everything requested in this session.
        advance: called with the number of further completions, new or from the journal, to show progress.
        warn: called with a message about completions that look wrong.
        retry: whether a verdict that earlier runs could not read is asked for again.
        share: the shard's part of the work, where it is spread over machines.
    """

    engine: Engine
    journal: Journal
    tally: RequestCounts = field(default_factory=RequestCounts)
    advance: Advance = lambda number: None
    warn: Callable[[str], None] = lambda text: None
    retry: bool = False
    share: Share[Any] | None = None
    _identity: bytes = b""
    _fingerprint: pictures.Cache[str] = field(
        default_factory=lambda: pictures.Cache(pictures.fingerprint, _KEPT_FINGERPRINTS)
    )

    def __post_init__(self) -> None:
        self._identity = dump_json(dict(self.engine.identity))

    def key(self, request: Request) -> str:
        """Returns the request's key in the journal; an image that cannot be read enters it by its path."""
        return request.key(self._identity, self._fingerprint_or_name)

    def ask(self, requests: Iterable[Request]) -> None:
        """Has the engine complete every request that the journal does not have, each once; see :meth:`completion_of`.

        Requests are pulled as the engine can use them, so only those in flight are in memory.
        """
        began = time.monotonic()
        asked: dict[int, str] = {}
        in_flight: set[str] = set()

        def unanswered() -> Iterator[Request]:
            for request in requests:
                key = self.key(request)
                if key in in_flight or key in self.journal:  # in this order: a key moves from the one to the other
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

    def completion_of(self, request: Request) -> Completion:
        """Returns the completion of a request of :meth:`ask`; counts it in the tally."""
        completion = self.journal.get(self.key(request)) or Completion(error="not completed")
        self.tally.add(completion)
        return completion

    def _fingerprint_or_name(self, path: str) -> str:
        try:
            return self._fingerprint(path)
        except pictures.ImageFault:
            return f"unreadable {path}"


def now() -> str:
    """Returns the current time, for run cards."""
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
    """Returns the run card: everything needed to make the same requests again, and what came of them.

    Args:
        session: the session that made the completions.
        started: time at which it started.
        sampling: sampling settings.
        prompts: name -> text of each prompt.
        images: names of the images, which are hashed as a list.
        further: further facts for the card.
    """
    from .. import __version__

    tally = session.tally
    environment = dict(session.engine.card)
    in_force = environment.pop("sampling", None)  # None: everything came from the journal
    counts = {key: value for key, value in asdict(tally).items() if not key.startswith("first_")}
    return {
        "format": "scapo-run/1",
        "engine": dict(session.engine.identity),
        "environment": {**environment, "python": sys.version.split()[0], "scapo": __version__},
        "sampling": asdict(sampling),
        "sampling_in_force": in_force,
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
        output: path of the file that the card describes.
        session: the session that made its completions.
        facts: further arguments of :func:`run_card`.
    """
    card = {"output": Path(output).name, **run_card(session, **facts)}
    with atomic_write(f"{output}{CARD_SUFFIX}") as stream:
        stream.write(orjson.dumps(card, option=orjson.OPT_INDENT_2) + b"\n")


def _rate(number: int, seconds: float) -> float | None:
    return round(number / seconds, 2) if seconds > 0 and number else None


def write_rows(
    output: str | Path, rows: Iterable[tuple[dict[str, Any], str | None]], share: Share[Any] | None = None
) -> None:
    """Writes ``output`` and, where items failed, ``OUTPUT.failed.jsonl``: one row per item, in input order.

    Args:
        output: path of the file, which appears when it is complete.
        rows: each item's row, and its error (None if it did not fail).
        share: the shard's part of the work, for ``OUTPUT.shard.json``; None: this is all of it.
    """
    failed: list[dict[str, Any]] = []
    made: list[int | None] = []
    with atomic_write(output) as stream:
        for row, error in rows:
            line = None if error is not None else dump_json(row)
            made.append(None if line is None else zlib.crc32(line))
            if line is not None:
                stream.write(line + b"\n")
            else:
                failed.append({**row, "error": error})
    beside = Path(f"{output}{FAILED_SUFFIX}")
    if failed:
        with atomic_write(beside) as stream:
            stream.writelines(dump_json(row) + b"\n" for row in failed)
    else:
        beside.unlink(missing_ok=True)
    if share is not None:
        share.write(output, made)
    else:
        Path(f"{output}{SHARD_SUFFIX}").unlink(missing_ok=True)
