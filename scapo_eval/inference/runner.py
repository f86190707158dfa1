"""Sessions of an engine and its journal, the request counts of a session, and the run card of an output."""

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
    """Counts of requests and of their results.

    Attributes:
        requests: Number of items in the output. Each item corresponds to one request.
        repeated: Number of requests that were repeated because of an unreadable verdict.
        reused: Number of requests that were answered from the journal or with the answer to an equal request.
        failed: Number of items without a completion.
        unread: Number of items with an unreadable verdict after all tries.
        empty: Number of empty completions. Empty completions are not discarded, because they are answers of the model.
        cut: Number of completions that were truncated at the token limit.
        prompt_tokens: Total number of prompt tokens in the requests for which the engine reports this number.
        completion_tokens: Total number of tokens in the completions for which the engine reports this number.
        made_tokens: Number of tokens in completions that the engine generated in this session, as opposed to
            completions from the journal.
        seconds: Time in seconds spent waiting for the engine.
        first_errors: The first error messages, in order.
        first_unread: Message about the first unreadable verdict.
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
        """Number of completions that the engine generated in this session, excluding completions from the journal."""
        return max(0, self.requests + self.repeated - self.reused)

    @property
    def flawed(self) -> int:
        """Number of failed, empty or unreadable items. If the number is above 0, the exit code is 4."""
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
        """Counts one item with an unreadable verdict."""
        self.unread += 1
        self.first_unread = self.first_unread or reason

    def summary(self, what: str) -> str:
        """Returns a one-line summary of the counts for the user."""
        parts = [f"{self.requests - self.failed - self.unread:,} {what}"]
        parts += [f"{self.reused:,} replies from an earlier run"] if self.reused else []
        parts += [f"{self.repeated:,} repeated because they were unreadable"] if self.repeated else []
        parts += [f"{self.empty:,} of them empty"] if self.empty else []
        parts += [f"{self.cut:,} cut at the token limit"] if self.cut else []
        parts += [f"{self.failed:,} failed (the first: {self.first_errors[0]})"] if self.failed else []
        asks = f"unreadable (the first: {self.first_unread}); --retry repeats these"
        parts += [f"{self.unread:,} {asks}"] if self.unread else []
        return "; ".join(parts)


@dataclass(slots=True)
class Session:
    """An engine and the journal of its completions.

    Attributes:
        engine: Engine that completes requests.
        journal: Journal of the completions.
        tally: Counts over all requests in this session.
        advance: Progress callback that receives the number of newly finished requests, whether generated or found in
            the journal.
        warn: Callback for warnings about suspicious completions.
        retry: True to repeat requests whose verdicts were unreadable in earlier runs.
        share: Items that this shard processes, or None if the work is not sharded.
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
        """Returns the journal key of a request. If an image is unreadable, the key is computed from the path of the
        image instead of its content.
        """
        return request.key(self._identity, self._fingerprint_or_name)

    def ask(self, requests: Iterable[Request]) -> None:
        """Completes each request that is not in the journal, and makes identical requests only once; see
        :meth:`completion_of`.

        Requests are read only when the engine needs them, so that only active requests are in memory.
        """
        began = time.monotonic()
        asked: dict[int, str] = {}
        in_flight: set[str] = set()

        def unanswered() -> Iterator[Request]:
            for request in requests:
                key = self.key(request)
                if key in in_flight or key in self.journal:  # in this order: a key moves from the first
                    self.tally.reused += 1
                    self.advance(1)
                else:
                    asked[id(request)] = key
                    in_flight.add(key)
                    yield request

        def done(request: Request, completion: Completion) -> None:
            key = asked.pop(id(request))
            version = self.engine.card.get("server_version")
            self.journal.add(key, completion, (str(self.engine.identity["model"]), version) if version else None)
            in_flight.discard(key)
            self.tally.made_tokens += completion.completion_tokens or 0
            self.advance(1)

        self.engine.run(unanswered(), done)
        self.tally.seconds += time.monotonic() - began

    def completion_of(self, request: Request) -> Completion:
        """Returns the completion of a request that was passed to :meth:`ask`, and includes it in the counts of the
        session.
        """
        completion = self.journal.get(self.key(request)) or Completion(error="not completed")
        self.tally.add(completion)
        return completion

    def _fingerprint_or_name(self, path: str) -> str:
        try:
            return self._fingerprint(path)
        except pictures.ImageFault:
            return f"unreadable {path}"


def now() -> str:
    """Returns the current time, for use in run cards."""
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
    """Returns the run card, which contains all facts that are needed to reproduce the requests, and counts of the
    results.

    Args:
        session: Session in which the completions were made.
        started: Start time of the session.
        sampling: Sampling settings.
        prompts: Mapping from the names of the prompts to their texts.
        images: Names of the images. The card records only their number and a hash.
        further: Additional facts to include in the card.
    """
    from .. import __version__

    tally = session.tally
    environment = dict(session.engine.card)
    in_force = environment.pop("sampling", None)  # None: all completions are from the journal
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
    """Writes the run card of an output to ``OUTPUT.run.json``.

    Args:
        output: Path of the file that the card describes.
        session: Session that produced the completions in the file.
        facts: Additional arguments of :func:`run_card`.
    """
    card = {"output": Path(output).name, **run_card(session, **facts)}
    with atomic_write(f"{output}{CARD_SUFFIX}") as stream:
        stream.write(orjson.dumps(card, option=orjson.OPT_INDENT_2) + b"\n")


def _rate(number: int, seconds: float) -> float | None:
    return round(number / seconds, 2) if seconds > 0 and number else None


def write_rows(
    output: str | Path, rows: Iterable[tuple[dict[str, Any], str | None]], share: Share[Any] | None = None
) -> None:
    """Writes one row per item to ``output``, in input order. Failed items are written to ``OUTPUT.failed.jsonl``.

    Args:
        output: Path of the file, which appears under this name only when it is complete.
        rows: Pairs of a row and an error, one per item. The error is None for successful items.
        share: Items that this shard processes, as recorded in ``OUTPUT.shard.json``, or None if the work is not
            sharded.
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
