"""Metrics of the atomic claims in descriptions: DCScore (Ye et al. 2025, DeCapBench), and the coverage and precision of
CAPEval.

A judge splits a description into atomic claims, decides which claims are true, and matches the claims with those of a
reference (``scapo-eval judge facts``, or another tool). This module reads the judge's verdicts. Precision, recall and
F1 are those of DCScore. The three metrics are computed per description and then averaged
(``eval/evaluation_decapbench.py``, ``compute_precision_recall``). For CAPEval, a judge decides for every reference
claim whether the description states it (yes), contradicts it (no), or does not mention it. If all claims are counted,
the coverage is (yes + no) / total, and the precision is yes / (yes + no).
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..base.errors import UNFIT, FaultList, InputError, unfit
from ..base.ids import canonical_image_id
from ..base.reprs import fields_in_short
from ..files.containers import NumberedRecord, Warn, open_rows, warn_user
from ..files.fields import Record, find_image, id_in, optional_text
from ..files.files import display_name
from ..files.json_text import json_type, read_json
from ..files.records import Readable, Records
from ..results.benchmark import Benchmark, CommandExample
from ..results.counts import CountBuilder
from ..results.metric import Formula, MetricSet, divide, of_version, ratio
from ..results.results import Resampling, Run
from ..results.signature import Signature
from .faithscore import SHARE_UNIT
from .judged import UNTOLD, Judging, digest_of, raise_faults
from .systems import Systems

ANSWERS = ("yes", "no", "unsaid")
"""Answers about a reference claim: the description states it, contradicts it, or does not mention it."""


@dataclass(frozen=True, slots=True)
class JudgeTrial:
    """The verdicts of a single trial, with one verdict on every claim in a description. DeCapBench averages the scores
    over several trials.

    Attributes:
        true: For each claim, True if the judge considers it true.
        matched: For each claim, the reference claim that it states, or None if there is none.
    """

    true: tuple[bool, ...]
    matched: tuple[int | str | None, ...]


@dataclass(frozen=True, slots=True)
class JudgedDescription:
    """Judgments of one description by a judge model.

    Attributes:
        line: Number of the line, array element or file that contains the description, starting at 1.
        image: Name of the image, or the id of the description if the image is unnamed, or None if both are missing.
        claims: Atomic claims in the description, or None if they could not be read.
        descriptive: For each claim, True if the claim describes the image, and False if the claim is an inference or a
            comment.
        true: Truth value of each claim. The whole field is None if the verdicts could not be read.
        trials: Trials, each with verdicts on the claims and with the matching reference claims. The list of trials is
            empty if there are no reference claims, or if verdicts or matches could not be read.
        references: Reference claims for the image, or None if there are none.
        answers: For each reference claim, ``yes``, ``no`` or ``unsaid``, or None for the whole field if the answers
            were not requested or could not be read.
        judging: Names of the judge and the verifier, the prompts, and the source of the verification, as far as they
            are known.
        unread: True if a verdict could not be read.
    """

    line: int
    image: str | None
    claims: tuple[str, ...] | None
    descriptive: tuple[bool, ...]
    true: tuple[bool, ...] | None
    trials: tuple[JudgeTrial, ...]
    references: tuple[str, ...] | None
    answers: tuple[str, ...] | None
    judging: Judging = UNTOLD
    unread: bool = False

    __repr__ = fields_in_short


@dataclass(frozen=True, slots=True)
class DescriptionScores:
    """Precision, recall and F1 of one description. The precision is None if the description has no claims."""

    precision: Fraction | None
    recall: Fraction
    f1: Fraction


def agreement(trial: JudgeTrial, n_references: int, counted: Sequence[bool] | None = None) -> DescriptionScores:
    """Returns DCScore's precision, recall and F1 for one description.

    A true claim that states a reference claim counts as 1 / k, where k is the number of claims that state the same
    reference claim, including claims that are false or not counted. A true claim without a matching reference claim
    counts as 1 and also increases the number of reference claims by 1. The reference script cannot score a description
    without counted claims. It also adds 1e-8 to the denominator of F1. Unlike the script, this function returns the
    exact F1, and returns a recall and an F1 of 0 for a description without counted claims.

    Args:
        trial: Verdict on every claim.
        n_references: Number of reference claims, at least 1.
        counted: For each claim, True if the claim counts (that is, if it is descriptive), or None to count all claims.
    """
    sharing = Counter(match for match in trial.matched if match is not None)
    rows = zip(trial.true, trial.matched, counted or (True,) * len(trial.true), strict=True)
    claims = [(true, match) for true, match, counts in rows if counts]
    right = [match for true, match in claims if true]
    beyond = right.count(None)
    stated = beyond + sum((Fraction(1, sharing[match]) for match in right if match is not None), Fraction(0))
    recall = stated / (n_references + beyond)
    if not claims:
        return DescriptionScores(None, recall, Fraction(0))
    precision = Fraction(len(right), len(claims))
    total = precision + recall
    return DescriptionScores(precision, recall, 2 * precision * recall / total if total else Fraction(0))


COLUMNS = (
    "descriptions",
    "with_claims",
    "claims",
    "precision_share",
    "compared",
    "recall_share",
    "f1_share",
    "with_descriptive",
    "precision_descriptive_share",
    "recall_descriptive_share",
    "f1_descriptive_share",
    "asked",
    "said",
    "said_right",
)
"""Counts per description: 1; 1 if it has judged claims; its claims; its precision; 1 if it was compared with reference
claims; its recall and F1; 1 if it was compared and has descriptive claims; precision, recall and F1 of these claims
(shares in :data:`~scapo_eval.benchmarks.faithscore.SHARE_UNIT`); reference claims in question; those that it mentions,
correctly or not; those that it states correctly.
"""


def _mean(share: str, number: str) -> Formula:
    return ratio(share, number, SHARE_UNIT)


COLUMNS_0_2 = (
    "descriptions", "with_claims", "claims", "precision_share", "compared", "recall_share", "f1_share",
    "dcscore_share", "asked", "said", "said_right",
)  # fmt: skip
"""Columns of results files from version 0.2, whose DCScore differed from the original."""

METRICS = MetricSet(
    name="facts",
    columns=COLUMNS,
    formulas={
        "dcscore": lambda sums: divide(
            sums["f1_share"] + sums["f1_descriptive_share"], 2 * SHARE_UNIT * sums["compared"]
        ),
        "precision": _mean("precision_share", "with_claims"),
        "recall": _mean("recall_share", "compared"),
        "f1": _mean("f1_share", "compared"),
        "precision_descriptive": _mean("precision_descriptive_share", "with_descriptive"),
        "recall_descriptive": _mean("recall_descriptive_share", "compared"),
        "f1_descriptive": _mean("f1_descriptive_share", "compared"),
        "capeval_c": ratio("said", "asked"),
        "capeval_p": ratio("said_right", "said"),
        "claims": ratio("claims", "descriptions"),
    },
    higher_is_better=dict.fromkeys(
        ("dcscore", "precision", "recall", "f1", "precision_descriptive", "recall_descriptive", "f1_descriptive",
         "capeval_c", "capeval_p"), True,
    ),
    plain_numbers=frozenset({"claims"}),
    at_most=(
        ("with_claims", "descriptions"), ("compared", "descriptions"), ("with_descriptive", "compared"),
        ("said", "asked"), ("said_right", "said"),
    ),
)  # fmt: skip
"""Metrics of claims. ``dcscore`` is the mean of F1 over all claims and F1 over the descriptive claims, as printed by
the reference script.
"""


def description_counts(description: JudgedDescription) -> NDArray[np.int64]:
    """Returns the row of counts for one description. Columns are 0 if their judgments could not be read."""
    row = dict.fromkeys(COLUMNS, 0)
    if description.claims is not None:
        row |= {"descriptions": 1, "claims": len(description.claims)}
    if description.true:
        row |= {"with_claims": 1, "precision_share": _share(Fraction(sum(description.true), len(description.true)))}
    if description.references and description.trials:
        number = len(description.references)
        whole = [agreement(trial, number) for trial in description.trials]
        parts = [agreement(trial, number, description.descriptive) for trial in description.trials]
        row |= {
            "compared": 1,
            "recall_share": _share(_average([score.recall for score in whole])),
            "f1_share": _share(_average([score.f1 for score in whole])),
            "recall_descriptive_share": _share(_average([part.recall for part in parts])),
            "f1_descriptive_share": _share(_average([part.f1 for part in parts])),
        }
        if description.true:
            row["precision_share"] = _share(_average([score.precision or Fraction(0) for score in whole]))
        if any(description.descriptive):
            descriptive = _share(_average([part.precision or Fraction(0) for part in parts]))
            row |= {"with_descriptive": 1, "precision_descriptive_share": descriptive}
    if description.answers:
        counts = Counter(description.answers)
        row |= {
            "asked": len(description.answers), "said": counts["yes"] + counts["no"], "said_right": counts["yes"],
        }  # fmt: skip
    return np.array([row[name] for name in COLUMNS], dtype=np.int64)


def _average(values: Sequence[Fraction]) -> Fraction:
    return sum(values, Fraction(0)) / len(values)


def _share(value: Fraction) -> int:
    return round(value * SHARE_UNIT)


# --- Reading --------------------------------------------------------------------------------------------------------


def read_descriptions(path: Readable, *, warn: Warn = warn_user) -> list[JudgedDescription]:
    """Reads the verdicts on the descriptions of one system.

    Args:
        path: Output of ``scapo-eval judge facts``: records with ``claims``, ``descriptive``, ``verified`` (1 or 0
            each), ``matched`` (a position in ``references``, or null), ``references`` and ``answers``. A file of facts
            (``facts``, ``verified``) is also accepted, as is DeCapBench's output, given as a file or as a folder of
            files ``N.json``.
        warn: Callback for warnings about damaged input that can still be read.

    Raises:
        InputError, InputErrors: If verdicts are missing, lists differ in length, or ids are repeated.
    """
    name = display_name(path)
    faults = FaultList()
    descriptions: list[JudgedDescription] = []
    seen: dict[str, int] = {}
    rows = _folder(path) if not isinstance(path, Records) and Path(path).is_dir() else open_rows(path, warn=warn)
    for line, record in rows:
        try:
            identity = next((id_in(record, key) for key in ("id", "question_id") if key in record), None)
            read = _decapbench if "eval_details" in record else _own
            descriptions.append(read(record, line, identity))
        except UNFIT as error:
            faults.add(InputError(unfit(error), path=name, line=line))
            continue
        if identity is not None and seen.setdefault(identity, line) != line:
            reason = f"id {identity!r} appears twice (lines {seen[identity]} and {line})"
            faults.add(InputError(reason, path=name, line=line))
    raise_faults(path, faults, "claims", nothing=not descriptions)
    if all(description.claims is None for description in descriptions):
        raise InputError(
            f"the claims of none of the {len(descriptions):,} descriptions could be read; repeat the requests",
            path=name,
        )
    return descriptions


def _folder(path: str | os.PathLike[str]) -> Iterator[NumberedRecord]:
    files = sorted(Path(path).glob("*.json"))
    if not files:
        raise InputError("no file *.json in this folder", path=path)
    for number, file in enumerate(files, 1):
        record = read_json(file)
        if not isinstance(record, dict):
            raise InputError(f"must be an object, not {json_type(record)}", path=file)
        yield number, record


def _image(record: Record, identity: str | None) -> str | None:
    image = find_image(record) or optional_text(record.get("image_name")) or identity
    return canonical_image_id(image) if image else None


def _own(record: Record, line: int, identity: str | None) -> JudgedDescription:
    key = "claims" if "claims" in record else "facts"
    claims = _list(record, key, str, needed=True)
    references = _list(record, "references", str)
    unread = bool(record.get("unread"))
    image = _image(record, identity)
    answers = _list(record, "answers", str)
    if answers is not None and (bad := set(answers) - set(ANSWERS)):
        raise ValueError(f"'answers' must be {', '.join(ANSWERS)}, got {sorted(bad)[0]!r}")
    _same_length("answers", answers, "references", references if references is not None else answers)
    if claims is None:
        return JudgedDescription(line, image, None, (), None, (), references, answers, Judging.of(record), True)
    true = _flags(record, "verified", claims, key, needed=not unread)
    descriptive = _flags(record, "descriptive", claims, key) or (True,) * len(claims)
    matched = _list(record, "matched", int)
    _same_length("matched", matched, key, claims)
    number = len(references or ())
    for match in matched or ():
        if match is not None and not 0 <= match < number:
            raise ValueError(f"'matched' refers to reference claim {match} of {number} (from 0)")
    trials = () if true is None or matched is None else (JudgeTrial(true, matched),)
    judging = Judging.of(record)
    return JudgedDescription(line, image, claims, descriptive, true, trials, references, answers, judging, unread)


def _decapbench(record: Record, line: int, identity: str | None) -> JudgedDescription:
    image = _image(record, identity)
    if not record.get("valid", True):
        return JudgedDescription(line, image, None, (), None, (), None, None, unread=True)
    details = record["eval_details"]
    try:
        claims = [detail["fact"] for detail in details["pred_atomic_facts"]]
        relevant = {detail["fact"] for detail in details["pred_atomic_facts"] if detail.get("relevance", 1)}
        verified = [_in_order(claims, verdicts) for verdicts in details["verified_results"]]
        matches = [
            {fact: None if match in (None, "None") else match for fact, match in mapping.items()}
            for mapping in details["mappings_with_human"]
        ]
        references = tuple(str(reference["fact"]) for reference in record["human_annotated_oracle_atomic_facts"])
        trials = tuple(JudgeTrial(true, tuple(m[claim] for claim in claims)) for true in verified for m in matches)
    except UNFIT as error:
        raise ValueError(f"not a complete record of DeCapBench ({type(error).__name__}: {error})") from None
    flags = tuple(claim in relevant for claim in claims)  # repeated claims are descriptive if any occurrence is
    true = trials[0].true if trials else None
    return JudgedDescription(line, image, tuple(claims), flags, true, trials, references, None, Judging("foreign"))


def _in_order(claims: Sequence[str], verdicts: Sequence[Record]) -> tuple[bool, ...]:
    """Returns DeCapBench's verdicts in the order of the claims. If a claim occurs several times, each occurrence has
    its own verdict.
    """
    by_claim: dict[str, list[bool]] = {}
    for verdict in verdicts:
        by_claim.setdefault(verdict["fact"], []).append(bool(verdict["verification"]))
    return tuple(by_claim[claim].pop(0) for claim in claims)


def _list(record: Record, key: str, kind: type, *, needed: bool = False) -> tuple[Any, ...] | None:
    value = record.get(key)
    if value is None:
        if needed and key not in record:
            raise ValueError(f"missing key 'claims' (found: {', '.join(record)})")
        return None
    if not isinstance(value, list):
        raise ValueError(f"{key!r} must be a list, not {json_type(value)}")
    for element in value:
        if not (isinstance(element, kind) and not isinstance(element, bool)) and not (kind is int and element is None):
            wanted = "strings" if kind is str else "whole numbers or null"
            raise ValueError(f"{key!r} must be a list of {wanted}, found {json_type(element)}")
    return tuple(value)


def _flags(
    record: Record, key: str, claims: Sequence[str], of: str, *, needed: bool = False
) -> tuple[bool, ...] | None:
    value = record.get(key)
    if value is None:
        if needed and key not in record:
            raise ValueError(f"missing key {key!r} (found: {', '.join(record)})")
        return None
    if not isinstance(value, list) or not all(isinstance(flag, (int, float)) and flag in (0, 1) for flag in value):
        raise ValueError(f"{key!r} must be a list of 0 and 1")
    _same_length(key, value, of, claims)
    return tuple(map(bool, value))


def _same_length(one: str, values: Sequence[Any] | None, other: str, others: Sequence[Any] | None) -> None:
    if values is not None and others is not None and len(values) != len(others):
        raise ValueError(f"{len(values)} {one!r} for {len(others)} {other!r}")


# --- The run --------------------------------------------------------------------------------------------------------


def facts_run(name: str, descriptions: Sequence[JudgedDescription], resampling: Resampling | None = None) -> Run:
    """Returns the run of one system. For each metric, the descriptions whose required verdicts could not be read are
    omitted and counted.
    """
    builder = CountBuilder(COLUMNS)
    images = [description.image or f"{name} {k}" for k, description in enumerate(descriptions, 1)]
    builder.add(images, np.stack([description_counts(description) for description in descriptions]))
    unread = sum(description.unread for description in descriptions)
    alone = sum(description.claims is not None and not description.references for description in descriptions)
    empty = sum(description.claims == () for description in descriptions)
    judgings = [description.judging for description in descriptions]
    notes = Judging.notes(judgings)
    if unread:
        notes.append(f"{unread:,} descriptions have unreadable verdicts, and metrics that require these omit them")
    if 0 < alone < len(descriptions):
        notes.append(f"{alone:,} descriptions have no reference claims; recall, F1 and DCScore omit them")
    if empty:
        notes.append(f"{empty:,} descriptions have no claims: no precision, and a recall and F1 of 0")
    return Run(
        name=name,
        signature=Signature.of(
            "facts",
            **Judging.fields(judgings),
            n=len(descriptions),
            ids=digest_of(description.image for description in descriptions),
            unrated=unread,
        ),
        metric_set=METRICS,
        table=builder.table(),
        n_records=len(descriptions),
        other_counts={"unread": unread, "without_claims": empty, "without_references": alone},
        notes=tuple(notes),
        resampling=resampling or Resampling(),
    )


def claim_rows(description: JudgedDescription) -> list[Mapping[str, Any]]:
    """Returns the evidence of one description, with one row per claim: ``claim``, ``true``, ``descriptive``,
    ``reference``.
    """
    references = description.references or ()
    matched = description.trials[0].matched if description.trials else ()
    return [
        {
            "claim": claim,
            "true": description.true[k] if description.true is not None else None,
            "descriptive": description.descriptive[k],
            "reference": _reference(matched[k], references) if matched else None,
        }
        for k, claim in enumerate(description.claims or ())
    ]


def _reference(match: int | str | None, references: Sequence[str]) -> str | None:
    position = int(match) if isinstance(match, int) or (isinstance(match, str) and match.isdecimal()) else None
    return references[position] if position is not None and position < len(references) else None


def _score(systems: Systems) -> list[Run]:
    return [
        facts_run(name, read_descriptions(source, warn=systems.warn), systems.resampling)
        for name, source in systems.named().items()
    ]


BENCHMARK = Benchmark(
    name="facts",
    title="Claims",
    help="""Scores the claims of descriptions: precision, recall, F1, DCScore, CAPEval's C and P.

    VERDICTS are files from scapo-eval judge facts (claims, verified, matched, references, answers), files of facts
    (facts, verified), or DeCapBench's output (a file, or its folder). Several files are compared with the first.
    """,
    metric_set=lambda columns: of_version(METRICS, columns, former=COLUMNS_0_2),
    metric_names={
        "dcscore": "DCScore",
        "precision_descriptive": "Precision, descriptive",
        "recall_descriptive": "Recall, descriptive",
        "f1_descriptive": "F1, descriptive",
        "capeval_c": "CAPEval C",
        "capeval_p": "CAPEval P",
        "claims": "Claims",
    },
    meanings={
        "dcscore": "mean of the F1 of all claims and of descriptive claims",
        "precision": "claims that are true",
        "recall": "reference claims and further true claims that are stated",
        "precision_descriptive": "descriptive claims that are true",
        "recall_descriptive": "reference claims and further true claims that descriptive claims state",
        "f1_descriptive": "harmonic mean of precision_descriptive and recall_descriptive, per description",
        "capeval_c": "reference claims that the description mentions",
        "capeval_p": "mentioned reference claims that are stated correctly",
        "claims": "claims per description",
    },
    headline=("dcscore", "precision", "recall", "f1"),
    score=_score,
    example="""
    >>> import scapo_eval
    >>> run = scapo_eval.facts([{"id": 1, "claims": ["A dog.", "It is red."], "verified": [1, 0]}])
    >>> run.values["precision"], run.values["claims"]
    (0.5, 2.0)
    """,
    files="verdicts",
    takes=("claims",),
    one_process="a judge's verdicts on claims are",
    command_example=CommandExample(
        ("scapo-eval facts verdicts.jsonl",),
        {
            "verdicts.jsonl": """\
{"id": 1, "image_id": 3, "facts": ["There is a dog.", "It sleeps."], "verified": [1, 0]}
"""
        },
    ),
)
