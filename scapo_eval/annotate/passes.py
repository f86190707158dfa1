"""One pass over cells, in which the judge is called and the verdicts are stored. The modules ``coarse`` and ``refine``
share the code in this module.

Calls are sent in blocks, image by image, so that a server can cache the part of the prompt that contains the image.
Every answer is written to the run's journal when it arrives. The verdicts of a block are stored when the block is
complete. If the process is killed, the next pass repeats only the unanswered calls.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain, islice
from typing import Any, TypeAlias

import numpy as np

from ..base.hashes import digest
from ..base.verdicts import PRESENT, UNKNOWN
from ..engines import Completion, Engine, Request, Sampling
from ..engines import images as picture_files
from ..files.files import atomic_write
from ..files.json_text import dump_json
from ..inference.journal import Journal
from ..inference.judge import ask_for_probabilities, ask_until_read
from ..inference.judge_claims import read_answer
from ..inference.runner import Session, now, run_card
from .prompts import ClaimPrompt, LabelPrompt
from .store import CellProvenance, PassKind, Store

JOURNAL = "answers.journal"
UNREAD = "unread.jsonl"
PASSES = "passes.jsonl"

PRESENT_FROM = 0.5
"""P(yes) from which a label is present, until ``finalize`` chooses another threshold."""

FIRST_BLOCK, BLOCK = 64, 8192
"""Number of calls in the first block, which yields the first forecast, and in every later block (or an engine's chunk).
"""


Prompt: TypeAlias = LabelPrompt | ClaimPrompt


@dataclass(frozen=True, slots=True)
class Call:
    """A call, which consists of an image and a prompt that asks for verdicts on some of the image's cells.

    Attributes:
        row: Row of the image or claim in the matrix.
        prompt: Prompt to send with the image.
        columns: Column indices of the prompt's labels in the matrix.
        omitted: Columns whose verdicts are not stored, because only the prompt's other labels are of interest.
    """

    row: int
    prompt: Prompt
    columns: tuple[int, ...]
    omitted: frozenset[int] = frozenset()

    @property
    def stored(self) -> tuple[int, ...]:
        """Columns whose verdicts are stored."""
        return tuple(column for column in self.columns if column not in self.omitted)


@dataclass(frozen=True, slots=True)
class Forecast:
    """Cost of a pass so far, and an estimate of the cost of its remaining calls.

    Attributes:
        done: Number of answered calls.
        total: Number of calls in the whole pass.
        made: Number of calls that the engine answered in this session. The answers to all other calls come from the
            journal.
        seconds: Time in seconds that the engine took to answer the calls of this session.
        prompt_tokens: Mean number of prompt tokens per call, or 0 if the engine does not count tokens.
        completion_tokens: Mean number of completion tokens per call, or 0 if the engine does not count tokens.
    """

    done: int
    total: int
    made: int
    seconds: float
    prompt_tokens: float
    completion_tokens: float

    @property
    def left(self) -> int:
        """Number of remaining calls."""
        return self.total - self.done

    @property
    def seconds_left(self) -> float | None:
        """Estimated time for the remaining calls in seconds, or None if the rate is still unknown."""
        return self.left * self.seconds / self.made if self.made and self.seconds > 0 else None

    def cost(self, calls: int, price_in: float, price_out: float) -> float:
        """Returns the estimated price of a number of calls.

        Args:
            calls: Number of calls to make.
            price_in: Price of a million prompt tokens.
            price_out: Price of a million completion tokens.
        """
        return calls * (self.prompt_tokens * price_in + self.completion_tokens * price_out) / 1e6


@dataclass(slots=True)
class PassOutcome:
    """The result of an annotation pass.

    Attributes:
        calls: Number of calls that were made.
        cells: Number of cells that the calls asked about.
        present: Number of stored verdicts that declare a label present.
        changed: Number of stored verdicts that differ from the cell's earlier verdict.
        unread: Cells whose answer could not be parsed, each with its answer.
        failed: Cells whose call failed, each with the error message.
        excluded: Ids of the images that could not be loaded.
    """

    calls: int = 0
    cells: int = 0
    present: int = 0
    changed: int = 0
    unread: list[dict[str, Any]] = field(default_factory=list)
    failed: list[dict[str, Any]] = field(default_factory=list)
    excluded: list[str] = field(default_factory=list)

    @property
    def flawed(self) -> bool:
        """True if cells or images remain without a result (exit code 4 of the commands)."""
        return bool(self.unread or self.failed or self.excluded)


def journal_of(store: Store, warn: Callable[[str], None] = lambda text: None) -> Journal:
    """Opens the journal of a run's answers for reading and writing."""
    return Journal(store.folder / JOURNAL, warn=warn)


def judge_of(engine: Engine) -> str:
    """Returns the name that identifies the judge in provenances, in the form ``model@hash``. The hash covers all
    settings that affect the engine's answers.
    """
    identity = dict(engine.identity)
    return f"{identity.get('model', identity.get('engine', 'judge'))}@{digest([dump_json(identity)])}"


def run_pass(
    store: Store,
    session: Session,
    calls: Iterable[Call],
    total: int,
    *,
    sampling: Sampling,
    round: int = 0,
    reason: str = "",
    report: Callable[[Forecast], None] = lambda forecast: None,
    only_first: bool = False,
) -> PassOutcome:
    """Makes the calls, stores the readable verdicts, and lists the cells that remain without a verdict.

    A cell with an unreadable answer becomes unknown, and a cell without an answer is unchanged. A verdict from the
    coarse pass never replaces an existing verdict.

    Args:
        store: Run that is open for writing.
        session: Engine of the judge, with the journal of its completions.
        calls: Calls to make, ordered by image.
        total: Total number of calls.
        sampling: Sampling settings of the judge.
        round: Number of the quality-control round that led to this pass, or 0 before the first round.
        reason: Reason for repeating the questions, which is recorded in the history of the cells.
        report: Callback that receives a forecast after every block.
        only_first: True to stop after the first block, from which cost and time are forecast.
    """
    started, judge = now(), judge_of(session.engine)
    outcome = PassOutcome()
    loads: dict[str, bool] = {}
    kept: dict[str, Prompt] = {}
    done = 0
    for block in _blocks(calls, max(BLOCK, getattr(session.engine, "chunk", 0))):
        fit = [call for call in block if _loads(store, call.row, loads, outcome)]
        for call in fit:
            if call.prompt.id not in kept:
                kept[call.prompt.id] = call.prompt
                store.keep_prompt(call.prompt.id, call.prompt.document())
        wanted = [call.prompt.request(store.paths[call.row], sampling) for call in fit]
        answers = _answers(session, fit, wanted)
        for call, (verdicts, completion) in zip(fit, answers, strict=True):
            session.tally.add(completion)
            if verdicts is None:
                _list(store, call, completion, outcome)
        _write(store, fit, answers, judge, round, reason, outcome)
        outcome.calls += len(fit)
        done += len(block)
        report(_forecast(session, done, total, outcome.calls))
        if only_first:
            break
    _list_open(store, outcome)
    if outcome.calls or outcome.excluded:
        _keep_card(store, session, outcome, started, sampling, kept, round, reason)
    return outcome


def _blocks(calls: Iterable[Call], largest: int) -> Iterator[list[Call]]:
    stream = iter(calls)
    size = FIRST_BLOCK
    while block := list(islice(stream, size)):
        yield block
        size = largest


def _loads(store: Store, row: int, loads: dict[str, bool], outcome: PassOutcome) -> bool:
    """Returns True if an image can be loaded. An image that cannot be loaded is excluded, so that its labels do not
    count as absent.
    """
    image = store.image_ids[row]
    if image not in loads:
        reason = None
        try:
            picture_files.check(store.paths[row])
        except picture_files.ImageFault as fault:
            reason = str(fault)
            outcome.excluded.append(image)
        store.exclude(image, reason)
        loads[image] = reason is None
    return loads[image]


def _answers(
    session: Session, calls: Sequence[Call], wanted: Sequence[Request]
) -> list[tuple[tuple[int, ...] | None, Completion]]:
    """Returns, for each call, the verdicts (None for an unreadable answer) and the completion."""
    if not calls or not calls[0].prompt.choices:
        return ask_until_read(session, wanted, [call.prompt.read for call in calls])
    asked = ask_for_probabilities(session, wanted)
    return [(None if p is None else (int(p >= PRESENT_FROM),), completion) for p, completion in asked]


def _write(
    store: Store,
    calls: Sequence[Call],
    answers: Sequence[tuple[tuple[int, ...] | None, Completion]],
    judge: str,
    round: int,
    reason: str,
    outcome: PassOutcome,
) -> None:
    """Stores the verdicts of a block, prompt by prompt. A verdict is omitted if the cell already has the same verdict
    from an identical call.
    """
    cells: dict[tuple[PassKind, str, str], list[tuple[int, int, int, float]]] = {}
    for call, (verdicts, completion) in zip(calls, answers, strict=True):
        outcome.cells += len(call.stored)
        if completion.error is not None:
            continue
        judged = verdicts or (UNKNOWN,) * len(call.columns)
        p = math.nan if completion.probability is None else completion.probability
        undecided = verdicts == (UNKNOWN,)  # only for claims: the judge answered "unsure"
        answer = read_answer(completion.text) or "" if undecided else ""
        of_prompt = cells.setdefault((call.prompt.kind, call.prompt.id, answer), [])
        of_labels = zip(call.columns, judged, strict=True)
        of_prompt += ((call.row, column, verdict, p) for column, verdict in of_labels if column not in call.omitted)
    for (kind, prompt, answer), of_prompt in cells.items():
        row, column, verdict = np.array([cell[:3] for cell in of_prompt], dtype=np.int64).T
        p_yes = np.array([cell[3] for cell in of_prompt])
        before = store.matrix[row, column]
        new = CellProvenance(kind, prompt, judge, round, reason, answer)
        # a person's verdict stays; a coarse one is the first or replaces an unreadable coarse one
        replaced = {"coarse"} if kind == "coarse" else {"coarse", "label", "joint"}
        free = np.array([*(provenance.kind in replaced for provenance in store.provenances), True])[
            store.provenance_ids[row, column]
        ]
        free &= (store.provenance_ids[row, column] != store.id_of(new)) | (before != verdict)
        free &= (before == UNKNOWN) | (kind != "coarse")
        row, column, verdict, before = row[free], column[free], verdict[free], before[free]
        store.write(row, column, verdict, new, None if np.isnan(p_yes).all() else p_yes[free])
        outcome.present += int((verdict == PRESENT).sum())
        outcome.changed += int(((verdict != before) & (before != UNKNOWN) & (verdict != UNKNOWN)).sum())


def _list(store: Store, call: Call, completion: Completion, outcome: PassOutcome) -> None:
    for column in call.stored:
        row = {**store.name_of(call.row, column), "prompt": call.prompt.id}
        if completion.error is None:
            outcome.unread.append({**row, "answer": completion.text})
        else:
            outcome.failed.append({**row, "error": completion.error})


def _forecast(session: Session, done: int, total: int, calls: int) -> Forecast:
    tally = session.tally
    answered = max(1, calls - tally.failed)
    return Forecast(
        done, total, tally.made, tally.seconds, tally.prompt_tokens / answered, tally.completion_tokens / answered
    )


def _list_open(store: Store, outcome: PassOutcome) -> None:
    """Writes ``unread.jsonl``, which lists the cells without a readable answer, each with its last answer."""
    rows_so_far = chain(store.lines(UNREAD, dict[str, str]), outcome.unread, outcome.failed)
    listed = {cell: row for row in rows_so_far if (cell := store.find(row)) is not None}
    unsettled = store.unsettled
    still = [row for cell, row in listed.items() if unsettled[cell]]
    with atomic_write(store.folder / UNREAD) as stream:
        stream.writelines(dump_json(row) + b"\n" for row in still)


def _keep_card(
    store: Store,
    session: Session,
    outcome: PassOutcome,
    started: str,
    sampling: Sampling,
    prompts: dict[str, Prompt],
    round: int,
    reason: str,
) -> None:
    """Appends a record of the pass and its settings to ``passes.jsonl``. The data card quotes these
    records.
    """
    card = run_card(
        session, started=started, sampling=sampling, prompts={}, images=store.image_ids, round=round, reason=reason,
        judge=judge_of(session.engine), prompt_ids=sorted(prompts),
        kinds=sorted({prompt.kind for prompt in prompts.values()}),
        cells={
            "asked": outcome.cells, "present": outcome.present, "changed": outcome.changed,
            "unread": len(outcome.unread), "failed": len(outcome.failed),
        },
        excluded_images=len(outcome.excluded),
    )  # fmt: skip
    store.append(PASSES, card)
