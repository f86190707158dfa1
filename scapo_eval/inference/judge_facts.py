"""A judge that decomposes descriptions into claims, verifies the claims, and compares them with reference claims.

``scapo-eval facts`` computes scores (DCScore, CAPEval) from the output of this judge. The steps are the same as in
DeCapBench's ``eval/evaluation_decapbench.py``. The prompts are worded differently from those of DeCapBench, and all of
them can be replaced. A verdict counts only if it contains every claim exactly once. If a verdict is invalid, it is
requested again; if all tries fail, it is recorded as unreadable.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

from ..base.errors import FaultList, InputError
from ..base.hashes import digest
from ..base.ids import canonical_image_id
from ..benchmarks.judged import Judging
from ..engines import Completion, Request, Sampling, Turn
from ..files.containers import open_rows
from ..files.fields import IMAGE_KEYS, find_image, image_of, optional_text
from ..files.files import display_name, read_bytes
from ..files.json_text import json_type
from .judge import MOST_DIGITS, AnswerToJudge, ask_until_read, json_in
from .judge_prompts import fill
from .runner import RequestCounts, Session, now, write_card, write_rows
from .sources import ImageFolder

Against = Literal["image", "references", "both"]
"""Evidence for the verifier's decision whether a claim is true."""

DECOMPOSE = """\
You take a description of an image apart into atomic claims. An atomic claim is one short statement that says one \
thing, stands on its own, and can be true or false by itself: that something is there, one property, one relation, \
one action, one number. Keep the order of the description, replace pronouns by what they stand for, and where two \
things have one name tell them apart ("the left dog", "the second man"). Leave nothing out, add nothing, say nothing \
twice.

Mark each claim: "descriptive": true if one could check it by looking at the image; false if it is a guess, a mood, \
an opinion, or general knowledge.

Answer with one JSON list of objects and nothing else: [{"claim": "...", "descriptive": true}, ...]. For a text that \
claims nothing, answer [].

Example
Description: A brown dog sleeps on a couch, probably tired after a long walk.
[{"claim": "There is a dog.", "descriptive": true}, {"claim": "The dog is brown.", "descriptive": true}, \
{"claim": "The dog sleeps.", "descriptive": true}, {"claim": "The dog is on a couch.", "descriptive": true}, \
{"claim": "The dog is tired after a long walk.", "descriptive": false}]

Description: {description}"""

VERIFY = """\
Here are numbered statements. Say of each whether it is true, judging by {evidence} alone.
{references}
Statements:
{claims}

Answer with one line per statement: its number, a colon, and yes or no. Say nothing else."""

MATCH = """\
Here are two numbered lists of statements about one image. For each statement of list A find the one statement of \
list B that speaks of the same thing in the same respect, also where the two disagree in a detail. If none does, give 0.

List B:
{references}

List A:
{claims}

Answer with one line per statement of list A: its number, a colon, and the number from list B or 0. Say nothing else."""

ANSWER = """\
Here are a description of an image and numbered statements that are true of it. Say of each statement what the \
description makes of it: yes if the description says it or clearly implies it, no if the description says something \
that contradicts it, unsaid if the description does not speak of it. Do not use anything but the description.

Description: {description}

Statements:
{references}

Answer with one line per statement: its number, a colon, and yes, no or unsaid. Say nothing else."""

_FIELDS = {
    "decompose": ("description",),
    "verify": ("claims",),
    "match": ("claims", "references"),
    "answer": ("description", "references"),
}

EVIDENCE: Mapping[Against, str] = {
    "image": "the image",
    "references": "the true statements below",
    "both": "the image and the true statements below",
}


@dataclass(frozen=True, slots=True)
class JudgePrompts:
    """The four prompts of the judge, with their ``{placeholders}``."""

    decompose: str = DECOMPOSE
    verify: str = VERIFY
    match: str = MATCH
    answer: str = ANSWER

    @classmethod
    def read(cls, folder: str | Path) -> JudgePrompts:
        """Reads custom prompts from ``decompose.txt``, ``verify.txt``, ``match.txt`` and ``answer.txt``. The default
        prompts are used for missing files.

        Args:
            folder: Folder that contains the prompt files.

        Raises:
            InputError: If the folder contains none of the files, or if a prompt lacks a required placeholder.
        """
        names = [field.name for field in fields(cls)]
        given = {name: Path(folder, f"{name}.txt") for name in names if Path(folder, f"{name}.txt").is_file()}
        if not given:
            raise InputError(f"none of {', '.join(f'{name}.txt' for name in names)} found", path=folder)
        texts = {}
        for name, path in given.items():
            texts[name] = read_bytes(path).decode("utf-8", "replace").strip()
            if missing := [key for key in _FIELDS[name] if f"{{{key}}}" not in texts[name]]:
                raise InputError(f"placeholder {{{missing[0]}}} not found", path=path)
        return replace(cls(), **texts)

    @property
    def hash(self) -> str:
        """Hash of the four prompts, for use in run cards and signatures."""
        return digest(asdict(self).values())


def numbered(statements: Sequence[str]) -> str:
    """Returns the statements as lines that are numbered from 1."""
    return "\n".join(f"{k}. {' '.join(text.split())}" for k, text in enumerate(statements, 1))


# --- Parsing of a judge's answers -----------------------------------------------------------------------------------

_LINE = re.compile(r"^\W*(\d+)\s*[.):\-]+[\s*_`\"']*([^\W_]+)[\s*_`\"'.]*$")


def read_claims(text: str) -> list[tuple[str, bool]] | None:
    """Returns the claims in a judge's answer, each with a flag that is true if the claim is descriptive. Returns None
    if the answer contains no list of claims.

    Repetitions of a claim are counted once. If repetitions of a claim have different flags, the answer is considered
    unreadable.
    """
    listed = json_in(text, "[", "]")
    if not isinstance(listed, list):
        return None
    claims: dict[str, bool] = {}
    for entry in listed:
        if not isinstance(entry, dict) or not isinstance(entry.get("claim"), str):
            return None
        claim, mark = " ".join(entry["claim"].split()), entry.get("descriptive", True)
        if not isinstance(mark, bool) or claims.setdefault(claim, mark) != mark:
            return None
    claims.pop("", None)
    return list(claims.items())


def read_lines(text: str, number: int, allowed: Callable[[str], bool]) -> list[str] | None:
    """Returns the one-word answers to ``number`` numbered statements, in order. Returns None unless every statement has
    exactly one answer and all answers are allowed words.
    """
    words: dict[int, str] = {}
    for line in text.strip().splitlines():
        match = _LINE.match(line.strip())
        if match is None:
            continue
        digits, word = match.group(1), match.group(2).casefold()
        if len(digits) > MOST_DIGITS or not allowed(word) or words.setdefault(int(digits), word) != word:
            return None
    return [words[k] for k in range(1, number + 1)] if set(words) == set(range(1, number + 1)) else None


def read_verdicts(text: str, number: int) -> list[bool] | None:
    """Returns a list with True for each claim that the judge answers "yes" and False for each "no", or returns None if
    the reply cannot be parsed.
    """
    words = read_lines(text, number, lambda word: word in ("yes", "no"))
    return None if words is None else [word == "yes" for word in words]


def read_matches(text: str, number: int, n_references: int) -> list[int | None] | None:
    """Returns the index of the matching reference claim for each claim, where None marks a claim without a match.

    Returns None instead of the list if the reply is unreadable.
    """
    words = read_lines(
        text, number, lambda word: word.isdecimal() and len(word) <= MOST_DIGITS and int(word) <= n_references
    )
    return None if words is None else [int(word) - 1 if int(word) else None for word in words]


def read_answers(text: str, number: int) -> list[str] | None:
    """Returns ``yes``, ``no`` or ``unsaid`` for each reference claim, or None if the answer is unreadable."""
    return read_lines(text, number, lambda word: word in ("yes", "no", "unsaid"))


# --- References -----------------------------------------------------------------------------------------------------

_REFERENCE_KEYS = ("claims", "references", "facts", "oracle_facts")


def read_references(path: str) -> dict[str, list[str]]:
    """Reads reference claims, grouped by canonical image id.

    Args:
        path: File of records with an image and ``claims`` (or ``references``, ``facts``, or DeCapBench's
            ``oracle_facts``).

    Raises:
        InputErrors: If a record has no image or no list of texts, or if an image appears twice.
    """
    name = display_name(path)
    faults = FaultList()
    references: dict[str, list[str]] = {}
    lines: dict[str, int] = {}
    for line, record in open_rows(path):
        image = find_image(record) or optional_text(record.get("image_name"))
        key = next((key for key in _REFERENCE_KEYS if key in record), None)
        value = record[key] if key else None
        if image is None or key is None:
            missing = f"no image (none of {', '.join(IMAGE_KEYS)})" if image is None else "missing key 'claims'"
            faults.add(InputError(f"{missing} (found: {', '.join(record)})", path=name, line=line))
        elif not isinstance(value, list) or not all(isinstance(claim, str) for claim in value):
            faults.add(InputError(f"{key!r} must be a list of strings, not {json_type(value)}", path=name, line=line))
        elif lines.setdefault(canonical_image_id(image), line) != line:
            earlier = lines[canonical_image_id(image)]
            reason = f"image {image!r} appears twice (lines {earlier} and {line})"
            faults.add(InputError(reason, path=name, line=line))
        else:
            references[canonical_image_id(image)] = [text for claim in value if (text := " ".join(claim.split()))]
    faults.raise_if_any()
    return references


# --- The verb -------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Case:
    """A description and its results in the four steps of the judge. ``unread`` maps each step whose reply was
    unreadable to the text of the reply.
    """

    answer: AnswerToJudge
    references: list[str] | None
    claims: list[tuple[str, bool]] | None
    read: dict[str, list[Any]]
    unread: dict[str, str]
    error: str | None = None

    @property
    def texts(self) -> list[str]:
        return [claim for claim, _ in self.claims or ()]


def judge_facts(
    answers: Sequence[AnswerToJudge],
    session: Session,
    verifier: Session,
    output: str,
    *,
    judge: str,
    verified_by: str,
    against: Against,
    folder: ImageFolder,
    references: Mapping[str, Sequence[str]] | None = None,
    prompts: JudgePrompts | None = None,
    sampling: Sampling | None = None,
    source: str | None = None,
) -> RequestCounts:
    """Splits all descriptions into claims, verifies the claims and compares them with reference claims, and writes the
    input file of ``scapo-eval facts``.

    Args:
        answers: Descriptions to judge.
        session: Session of the judge, which receives only texts.
        verifier: Session of the verifier, which receives the image unless ``against`` is ``references``.
        output: Path of the JSON Lines file with the keys ``claims``, ``descriptive``, ``verified``, ``references``,
            ``matched`` and ``answers``. Unreadable values are null, and ``unread`` contains the judge's last text.
        judge: Name of the judge.
        verified_by: Name of the verifier.
        against: Evidence against which the claims are verified. If ``against`` is ``both`` and there are no reference
            claims for an image, the image alone is the evidence.
        folder: Folder that contains the image files.
        references: Mapping from canonical image ids to reference claims. If ``references`` is None, the steps that
            match claims and check reference claims are omitted.
        prompts: Prompts of the judge, or None for the default prompts.
        sampling: Sampling settings of both models. If ``sampling`` is None, the defaults are used.
        source: Name of the file that contains the descriptions, for error messages.

    Returns:
        The counts of the requests in this session.

    Raises:
        InputError: If ``references`` is given, but none of the descriptions has reference claims.
    """
    prompts, sampling, started = prompts or JudgePrompts(), sampling or Sampling(), now()
    cases = [_Case(answer, _references_of(answer, references), None, {}, {}) for answer in answers]
    if references is not None and cases and not session.share and not any(case.references for case in cases):
        raise InputError("none of the descriptions' images has reference claims", path=source)

    def ask(step: str, asked: list[_Case], wanted: list[Request], read: list[Callable[[str], Any]]) -> None:
        by = verifier if step == "verify" else session
        for case, (reading, completion) in zip(asked, ask_until_read(by, wanted, read), strict=True):
            if completion.error:
                case.error = case.error or completion.error
            elif reading is None:
                case.unread[step] = completion.text
            elif step == "decompose":
                case.claims = reading
            else:
                case.read[step] = reading

    def request(step: str, case: _Case, image: str | None = None, **more: str) -> Request:
        texts = {
            "description": case.answer.response,
            "claims": numbered(case.texts),
            "references": numbered(case.references or ()),
            **more,
        }
        turn = Turn("user", fill(getattr(prompts, step), texts), (image,) if image else ())
        return Request((turn,), sampling)

    spoken = [case for case in cases if case.answer.response.strip()]
    ask("decompose", spoken, [request("decompose", case) for case in spoken], [read_claims] * len(spoken))
    for case in cases:
        if not case.answer.response.strip():
            case.claims = []
    claiming = [case for case in cases if case.claims]
    to_verify, wanted = [], []
    for case in claiming:
        image = _image_of(case, folder) if against != "references" else None
        evidence = _evidence_of(case, against)
        if case.error or (evidence == "references" and not case.references):
            continue
        shown = f"\nTrue statements:\n{numbered(case.references or ())}\n" if evidence != "image" else ""
        to_verify.append(case)
        wanted.append(request("verify", case, image, evidence=EVIDENCE[evidence], references=shown))
    ask("verify", to_verify, wanted, [partial(read_verdicts, number=len(case.texts)) for case in to_verify])
    compared = [case for case in claiming if case.references]
    ask("match", compared, [request("match", case) for case in compared], [
        partial(read_matches, number=len(case.texts), n_references=len(case.references or ())) for case in compared
    ])  # fmt: skip
    known = [case for case in spoken if case.references]
    ask("answer", known, [request("answer", case) for case in known], [
        partial(read_answers, number=len(case.references or ())) for case in known
    ])  # fmt: skip
    judging = Judging(judge, verified_by, prompts.hash, sampling.said)
    tally = _written(cases, session, output, judging=judging, against=against)
    write_card(
        output, replace(session, tally=tally), started=started, sampling=sampling, prompts=asdict(prompts),
        images=[case.answer.image for case in cases if case.answer.image], judge=judge,
        verifier=dict(verifier.engine.identity), prompt_hash=prompts.hash, against=against,
    )  # fmt: skip
    return tally


def _references_of(answer: AnswerToJudge, references: Mapping[str, Sequence[str]] | None) -> list[str] | None:
    if references is None:
        return None
    return list(references.get(canonical_image_id(answer.image), ())) if answer.image else []


def _evidence_of(case: _Case, against: Against) -> Against:
    """Returns the evidence for a description's claims. If there are no reference claims, the evidence for ``both``
    consists only of the image.
    """
    return "image" if against == "both" and not case.references else against


def _image_of(case: _Case, folder: ImageFolder) -> str | None:
    name = image_of(case.answer.record.get("image")) or case.answer.image
    if name is None:
        case.error = case.error or f"missing key {' or '.join(map(repr, IMAGE_KEYS[:2]))}"
    return folder.find(name) if name is not None else None


def _written(
    cases: Sequence[_Case],
    session: Session,
    output: str,
    *,
    judging: Judging,
    against: Against,
) -> RequestCounts:
    tally = RequestCounts(reused=session.tally.reused, repeated=session.tally.repeated, seconds=session.tally.seconds)

    def rows() -> Iterator[tuple[dict[str, Any], str | None]]:
        for case in cases:
            row: dict[str, Any] = {"id": case.answer.id}
            if case.answer.image:
                row["image_id"] = case.answer.image
            empty: list[Any] | None = [] if case.claims == [] else None
            row["claims"] = None if case.claims is None else case.texts
            row["descriptive"] = None if case.claims is None else [int(mark) for _, mark in case.claims]
            true = case.read.get("verify", empty)
            row["verified"] = None if true is None else [int(holds) for holds in true]
            if case.references:
                unsaid = ["unsaid"] * len(case.references) if not case.answer.response.strip() else None
                row |= {
                    "references": case.references,
                    "matched": case.read.get("match", empty),
                    "answers": case.read.get("answer", unsaid),
                }
            if case.unread:
                row["unread"] = case.unread
                tally.add_unread(f"the verdict of step {next(iter(case.unread))} on {case.answer.id}")
            tally.add(Completion(text="-", error=case.error))
            told = replace(judging, against=_evidence_of(case, against))
            yield {**row, **told.to_record()}, case.error

    write_rows(output, rows(), session.share)
    return tally
