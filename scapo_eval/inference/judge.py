"""Judges that can be run with any engine: one for MMHal-Bench ratings and one for FaithScore's atomic facts.

The output of these judges is the input of ``scapo-eval mmhal`` and ``scapo-eval faithscore``. An unreadable verdict is
requested again. If the replies from all attempts are unreadable, the verdict is counted as unreadable and is never
replaced by a guess or by 0.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar

import orjson

from ..base.errors import FaultList, InputError
from ..base.hashes import digest
from ..benchmarks.judged import Judging
from ..benchmarks.mmhal import TOP_RATING
from ..engines import ONE_TOKEN, YES_NO, Completion, Request, Sampling, Turn
from ..files.containers import open_rows
from ..files.fields import IMAGE_KEYS, find_image, image_of
from ..files.files import display_name
from ..files.records import Readable
from ..readers.parsers import contains, first_word
from ..segmenting.segment import split_subsentences
from . import judge_prompts as prompts
from .runner import RequestCounts, Session, now, write_card, write_rows
from .sources import ImageFolder

TRIES = 3
"""Number of requests before a verdict counts as unreadable."""

_ANSWER_KEYS = ("response", "model_answer", "caption", "answer")

Judgement = TypeVar("Judgement")


@dataclass(frozen=True, slots=True)
class AnswerToJudge:
    """An answer that a judge should rate or verify.

    Attributes:
        id: Id of the answer, or its line number if it has no id.
        image: Name of the image, or None if the file does not contain it.
        response: Text of the answer.
        record: Complete record of the answer.
    """

    id: str
    image: str | None
    response: str
    record: Mapping[str, Any]


def read_answers_to_judge(path: Readable, *, needed: Sequence[str] = ()) -> list[AnswerToJudge]:
    """Reads answers for a judge from records with the key ``response`` (or ``model_answer``, ``caption``, ``answer``).

    Args:
        path: File that contains JSON Lines, a JSON array or a table.
        needed: Additional keys that every record must contain.

    Raises:
        InputErrors: If records lack the answer or one of the required keys.
    """
    faults = FaultList()
    answers = []
    for line, record in open_rows(path):
        key = next((key for key in _ANSWER_KEYS if isinstance(record.get(key), str)), None)
        missing = [name for name in needed if not record.get(name)]
        if key is None or missing:
            what = missing[0] if key else "response"
            reason = f"missing key {what!r} (found: {', '.join(record)})"
            reason = f"the value of {what!r} is empty or not a text" if what in record else reason
            faults.add(InputError(reason, path=display_name(path), line=line))
            continue
        identity = next(
            (str(record[name]) for name in ("id", "question_id") if record.get(name) is not None), str(line)
        )
        answers.append(AnswerToJudge(identity, find_image(record), record[key], record))
    faults.raise_if_any()
    return answers


def ask_until_read(
    session: Session, wanted: Sequence[Request], read: Sequence[Callable[[str], Judgement | None]]
) -> list[tuple[Judgement | None, Completion]]:
    """Makes requests, and repeats a request with another seed if its verdict is unreadable.

    Args:
        session: Session of the judge. If ``retry`` is set in the session, unreadable verdicts in the journal are
            requested again.
        wanted: Requests to make.
        read: One function per request, which returns the verdict in a completion's text, or None if the text is
            unreadable.

    Returns:
        The verdict on each request and the last completion of the request, in the order of the requests. The verdict is
        None if it is unreadable or if the request failed.
    """
    verdicts: list[tuple[Judgement | None, Completion]] = [(None, Completion(error="not asked"))] * len(wanted)
    open_ones = list(range(len(wanted)))
    made = [0] * len(wanted)  # with retry: number of tries that were not in the journal

    def goes_on(k: int, number: int) -> bool:
        if number < TRIES or session.key(_again(wanted[k], number)) in session.journal:
            return True
        return session.retry and made[k] < TRIES

    number = 0
    while open_ones:
        asked = {k: _again(wanted[k], number) for k in open_ones}
        session.tally.repeated += len(asked) if number else 0
        for k, request in asked.items():
            made[k] += session.retry and session.key(request) not in session.journal
        session.ask(asked.values())
        for k, request in asked.items():
            completion = session.journal.get(session.key(request)) or Completion(error="not completed")
            verdicts[k] = (None if completion.error else read[k](completion.text), completion)
        number += 1
        unread = [k for k in open_ones if verdicts[k][0] is None and verdicts[k][1].error is None]
        open_ones = [k for k in unread if goes_on(k, number)]
    return verdicts


def json_in(text: str, opening: str, closing: str) -> Any:
    """Returns the JSON value from the first opening bracket to the last closing bracket of a text, or None if it is not
    valid.
    """
    try:
        return orjson.loads(text[text.find(opening) : text.rfind(closing) + 1])
    except ValueError:
        return None


def ask_for_probabilities(session: Session, wanted: Sequence[Request]) -> list[tuple[float | None, Completion]]:
    """Makes requests whose choices are yes and no, and returns the probability of yes for each. Each request is made
    once, because repeating a request would return the same probabilities.

    Returns:
        P(yes) and the completion for each request. P(yes) is None if the request failed or if the model assigns too
        little probability to "yes" and "no".
    """
    session.ask(wanted)
    found = [session.journal.get(session.key(each)) or Completion(error="not completed") for each in wanted]
    return [(completion.probability, completion) for completion in found]


def _again(request: Request, number: int) -> Request:
    """Returns the request for the attempt with a given number. Later attempts use sampling, because a judge with greedy
    decoding would repeat its answer.
    """
    if not number:
        return request
    sampling = replace(request.sampling.sample(number), temperature=max(request.sampling.temperature or 0.0, 0.7))
    return replace(request, sampling=sampling, sample=request.sample + number)


# --- MMHal-Bench ----------------------------------------------------------------------------------------------------

_RATING = re.compile(r"rating[\s*_`\"']*[:=][\s*_`\"']*(\d+(?:\.\d+)?)", re.IGNORECASE)
MOST_DIGITS = 9
"""Maximum number of digits that are read as a number. A judge may repeat a digit until its token limit, and Python
refuses to convert thousands of digits.
"""


def read_rating(text: str) -> int | None:
    """Returns the rating in a judge's text, or None if the text contains no rating, an invalid rating, or several
    different ratings.

    Markdown around the rating is ignored. Examples of invalid ratings are ``Rating: 4.5`` and ``Rating: 10``.
    """
    ratings = set(_RATING.findall(text))
    if len(ratings) != 1:
        return None
    value = ratings.pop()
    return int(value) if value.isdecimal() and len(value) <= MOST_DIGITS and int(value) <= TOP_RATING else None


def judge_mmhal(
    answers: Sequence[AnswerToJudge],
    session: Session,
    output: str,
    *,
    judge: str,
    task: str = prompts.MMHAL_TASK,
    sampling: Sampling | None = None,
) -> RequestCounts:
    """Requests a rating from 0 to 6 for each answer, and writes the input of ``scapo-eval mmhal``.

    Args:
        answers: Answers whose records contain ``question``, ``gt_answer`` and ``image_content``.
        session: Session of the judge.
        output: Path of the JSON Lines file with the keys ``rating`` and ``judge_text``. The rating is null if the
            verdict is unreadable.
        judge: Name of the judge.
        task: Instruction to the judge; see :func:`~scapo_eval.inference.judge_prompts.mmhal_turns`.
        sampling: Sampling settings of the judge, or None for the defaults.

    Returns:
        The counts of the requests in this session.
    """
    sampling = sampling or Sampling()
    started = now()
    wanted = [Request(prompts.mmhal_turns(_case(answer), task), sampling) for answer in answers]
    verdicts = ask_until_read(session, wanted, [read_rating] * len(wanted))
    prompt_hash = digest([turn.text for turn in prompts.mmhal_turns({}, task)])
    judging = Judging(judge, prompt=prompt_hash, sampling=sampling.said).to_record()

    def rows() -> Iterator[tuple[dict[str, Any], str | None]]:
        for answer, (rating, completion) in zip(answers, verdicts, strict=True):
            session.tally.add(completion)
            row: dict[str, Any] = {"id": answer.id}
            row |= {
                key: answer.record[key]
                for key in ("image_id", "image", "question", "question_type", "model")
                if answer.record.get(key)
            }
            # the text of an unreadable verdict has another key, so that no later reader parses a rating
            text = "judge_text" if rating is not None else "unread"
            row |= {**judging, "rating": rating, text: completion.text}
            if rating is None and completion.error is None:
                session.tally.add_unread(f"rating not found in the verdict on {answer.id}")
            yield row, completion.error

    write_rows(output, rows(), session.share)
    write_card(
        output, session, started=started, sampling=sampling, prompts={"mmhal": task}, images=[], judge=judge,
        prompt_hash=prompt_hash,
    )  # fmt: skip
    return session.tally


def _case(answer: AnswerToJudge) -> dict[str, str]:
    content = answer.record.get("image_content") or "not listed"
    listed = ", ".join(map(str, content)) if isinstance(content, list) else str(content)
    question = answer.record.get("question") or answer.record.get("prompt")
    return {
        "image_content": listed,
        "question": str(question),
        "gt_answer": str(answer.record.get("gt_answer")),
        "response": answer.response,
    }


# --- FaithScore -----------------------------------------------------------------------------------------------------


# the label of a sentence, but not the sentence itself ("1. A dog"); all repetitions are bounded, as an unbounded one
# takes time in proportion to the square of its text
_LABEL = re.compile(
    r"(?<!\d)(\d{1,6})\s{0,9}[.):\-]{0,9}\s{0,9}[*_`\"']{0,9}\b(d|a|descriptive|analytical)\b"
    r"(?=[*_`\"'.)\]]*\s*(?:$|[\n,;|:(\u2013\u2014-]|\d))",
    re.IGNORECASE,
)


def read_labels(text: str, number: int) -> list[bool] | None:
    """Returns one flag per sentence (true if descriptive), or None if a sentence has no label or several labels.

    Args:
        text: Text of the judge's answer.
        number: Number of sentences to label.
    """
    pairs = _LABEL.findall(text)
    labels = {int(index): label[0].lower() == "d" for index, label in pairs}
    if len(pairs) != len(labels) or set(labels) != set(range(1, number + 1)):
        return None
    return [labels[k] for k in range(1, number + 1)]


def read_facts_of(text: str) -> list[tuple[str, str]] | None:
    """Returns the (category, fact) pairs from the JSON in a judge's text, or None if the JSON is invalid. Text around
    the JSON is ignored.
    """
    value = json_in(text, "{", "}")
    if not isinstance(value, dict) or not set(value) <= set(prompts.CATEGORIES):
        return None
    facts: dict[str, str] = {}
    for category in prompts.CATEGORIES:
        listed = value.get(category) or []
        if not isinstance(listed, list) or not all(isinstance(fact, str) for fact in listed):
            return None
        for fact in listed:
            if fact.strip():
                facts.setdefault(" ".join(fact.split()), category)
    return [(category, fact) for fact, category in facts.items()]


def read_verdict(text: str) -> bool | None:
    """Returns True for a verifier's "yes" and False for its "no", or None if the text contains neither word."""
    word = first_word(text) or contains(text)
    return None if word is None else word == "yes"


def judge_faithscore(
    answers: Sequence[AnswerToJudge],
    session: Session,
    verifier: Session,
    folder: ImageFolder,
    output: str,
    *,
    judge: str,
    verified_by: str,
    sampling: Sampling | None = None,
    setting: str | None = None,
    present_from: float | None = None,
) -> RequestCounts:
    """Splits answers into atomic facts, verifies each fact against the image, and writes the input of ``scapo-eval
    faithscore``.

    In the first step, the judge labels sentences as descriptive or analytical. In the second step, the judge splits the
    descriptive sentences into facts of five categories. In the third step, the verifier answers yes or no for each
    fact, based on the image.

    Args:
        answers: Answers (or captions) to split and verify.
        session: Session of the judge, which receives only texts.
        verifier: Session of the verifier, which receives the images. The verifier may share the judge's engine and
            journal.
        folder: Folder that contains the image files.
        output: Path of the JSON Lines file with the keys ``facts``, ``categories`` and ``verified`` (1 or 0 per fact).
            Facts without a verdict are omitted from these keys and listed in ``unverified``. Answers that the judge
            cannot split are written to the file of failures.
        judge: Name of the judge.
        verified_by: Name of the verifier.
        sampling: Sampling settings of both models, or None for the defaults.
        setting: Name of the generation setting for answers whose records do not state one.
        present_from: Threshold of the verifier's P(yes) at or above which a fact counts as true. If ``present_from`` is
            given, P(yes) is computed from the probabilities of a single token per fact and stored in ``probabilities``.

    Returns:
        The counts of the requests in this session.
    """
    sampling = sampling or Sampling()
    started = now()
    described, errors = _descriptive(answers, session, sampling)
    to_split = [k for k, text in enumerate(described) if text]
    requests = [Request(prompts.facts_turns(described[k]), sampling, schema=prompts.FACTS_SCHEMA) for k in to_split]
    facts: list[list[tuple[str, str]]] = [[] for _ in answers]
    for k, (answer_facts, completion) in zip(
        to_split, ask_until_read(session, requests, [read_facts_of] * len(requests)), strict=True
    ):
        if answer_facts is None:
            errors[k] = completion.error or "the judge's facts cannot be read"
        facts[k] = answer_facts or []
    names = [image_of(answer.record.get("image")) or answer.image for answer in answers]  # file name before id
    paths = [folder.find(name) if name is not None else None for name in names]
    for k, path in enumerate(paths):
        if path is None and facts[k]:
            errors[k] = f"missing key {' or '.join(map(repr, IMAGE_KEYS[:2]))}"
    checks = [(k, fact) for k in range(len(answers)) if not errors[k] for _, fact in facts[k]]
    turns = [(Turn("user", prompts.fill(prompts.VERIFY, {"fact": fact}), (str(paths[k]),)),) for k, fact in checks]
    told: list[tuple[bool | None, Completion]]
    if present_from is None:
        told = ask_until_read(verifier, [Request(each, sampling) for each in turns], [read_verdict] * len(turns))
    else:
        asked = ask_for_probabilities(verifier, [Request(each, ONE_TOKEN, choices=YES_NO) for each in turns])
        told = [(None if p is None else p >= present_from, completion) for p, completion in asked]
    verdicts: list[dict[str, bool]] = [{} for _ in answers]
    probabilities: list[dict[str, float]] = [{} for _ in answers]
    failures: dict[int, str] = {}
    for (k, fact), (holds, completion) in zip(checks, told, strict=True):
        if completion.probability is not None:
            probabilities[k][fact] = round(completion.probability, 6)
        if holds is not None:
            verdicts[k][fact] = holds
        else:
            failures.setdefault(
                k, completion.error or f"the verifier says neither yes nor no: {completion.text[:80]!r}"
            )

    tally = RequestCounts(reused=session.tally.reused, seconds=session.tally.seconds)
    texts = {"label": prompts.LABEL_TASK, "facts": prompts.FACTS_TASK, "verify": prompts.VERIFY}
    prompt_hash = digest(texts.values())
    settings = sampling.said if present_from is None else f"{sampling.said} present_from={present_from:g}"
    judging = Judging(judge, verified_by, prompt_hash, settings).to_record()

    def rows() -> Iterator[tuple[dict[str, Any], str | None]]:
        for k, answer in enumerate(answers):
            judged = [(category, fact) for category, fact in facts[k] if fact in verdicts[k]]
            error = errors[k] or (failures.get(k) if facts[k] and not judged else None)
            row: dict[str, Any] = {"id": answer.id, "image_id": answer.image}
            if error is None:
                row |= {
                    "facts": [fact for _, fact in judged],
                    "categories": [category for category, _ in judged],
                    "verified": [int(verdicts[k][fact]) for _, fact in judged],
                }
                if present_from is not None:
                    row["probabilities"] = [probabilities[k][fact] for _, fact in judged]
                if len(judged) < len(facts[k]):
                    row["unverified"] = [fact for _, fact in facts[k] if fact not in verdicts[k]]
                    tally.first_errors.append(failures[k])
                    tally.failed += 1
            row |= judging
            named = answer.record.get("setting") or setting
            if named:
                row["setting"] = named
            tally.add(Completion(text="-", error=error))
            yield _known(row), error

    write_rows(output, rows(), session.share)
    write_card(
        output, replace(session, tally=tally), started=started, sampling=sampling, prompts=texts,
        images=[answer.image for answer in answers if answer.image], judge=judge,
        verifier=dict(verifier.engine.identity),
        prompt_hash=prompt_hash, splitter="sentence", present_from=present_from,
    )  # fmt: skip
    return tally


def _descriptive(
    answers: Sequence[AnswerToJudge], session: Session, sampling: Sampling
) -> tuple[list[str], list[str | None]]:
    """Returns the concatenated descriptive sentences of each answer, and an error for each answer whose sentences could
    not be labeled.
    """
    sentences = [_sentences(answer.response) for answer in answers]
    spoken = [k for k, pieces in enumerate(sentences) if pieces]
    described = [""] * len(answers)
    errors: list[str | None] = [None] * len(answers)
    requests = [Request(prompts.label_turns(sentences[k]), sampling) for k in spoken]
    readers = [partial(read_labels, number=len(sentences[k])) for k in spoken]
    for k, (labels, completion) in zip(spoken, ask_until_read(session, requests, readers), strict=True):
        if labels is None:
            errors[k] = completion.error or "the judge's labels cannot be read"
        else:
            described[k] = " ".join(s for s, describes in zip(sentences[k], labels, strict=True) if describes)
    return described, errors


def _sentences(text: str) -> list[str]:
    pieces: Iterable[str] = (text[piece.start : piece.end].strip() for piece in split_subsentences(text, "sentence"))
    return [piece for piece in pieces if re.search(r"\w", piece)]


def _known(row: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in row.items() if value is not None}
