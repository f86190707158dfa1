"""MMHal-Bench (Sun et al. 2023, ``eval_gpt4.py``): a judge rates each of 96 answers from 0 to 6.

Ratings below 3 indicate a hallucination. The judge is run separately, and this module reads its ratings.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..base.errors import UNFIT, FaultList, InputError, unfit
from ..base.ids import canonical_image_id
from ..base.reprs import fields_in_short
from ..files.containers import Warn, warn_user
from ..files.fields import Record, find_image, id_in, mixed_models, optional_text
from ..files.files import display_name
from ..files.json_text import iter_records, json_type
from ..files.records import Readable
from ..results.benchmark import Benchmark, CommandExample
from ..results.counts import CountBuilder
from ..results.metric import MetricSet, divide, of_version, ratio
from ..results.results import Resampling, Run
from ..results.signature import Signature
from .answered import AnsweredQuestion
from .judged import UNTOLD, Judging, digest_of, judged_records, raise_faults
from .systems import Systems

QUESTIONS = 96
TYPES = (
    "attribute", "adversarial", "comparison", "counting", "relation", "environment", "holistic", "other",
)  # fmt: skip
"""Question types in the order of the benchmark. Question k has the type ``k % 8``, and there are 12 questions per
type.
"""

TOP_RATING = 6
FAITHFUL_FROM = 3
"""Lowest rating of an answer without a hallucination."""

_OFFICIAL_ID = re.compile("mmhal/0*([1-9]|[1-8][0-9]|9[0-6])")
"""Id that ``answer`` assigns to question 1 to 96, in the order of the benchmark."""

_JUDGED = ("judge_text", "evaluation", "review")


@dataclass(frozen=True, slots=True)
class Rating:
    """Rating of one answer by a judge.

    Attributes:
        line: Number of the line or array element in the file, starting at 1.
        image: Name of the image, or None if the file contains none.
        rating: Rating from 0 to 6, or None if the judge's text does not contain exactly one rating.
        question_type: Question type, one of TYPES, or None if the file does not contain it.
        judging: Judge and its settings, as far as the file contains them.
        id: Id of the question, or None if the file contains none.
    """

    line: int
    image: str | None
    rating: int | None
    question_type: str | None
    judging: Judging = UNTOLD
    id: str | None = None

    __repr__ = fields_in_short


def parse_rating(text: str) -> int | None:
    """Returns the rating that a judge's text states in the official form ``rating: N``, in upper or lower case.

    Returns None if the text contains no rating or several ratings. The official script uses the rating 0 for such a
    text.
    """
    lowered = text.lower()
    if "rating: " not in lowered:
        return None
    ratings = [rating for rating in range(TOP_RATING + 1) if f"rating: {rating}" in lowered]
    return ratings[0] if len(ratings) == 1 else None


def read_ratings(path: Readable, *, warn: Warn = warn_user) -> list[Rating]:
    """Reads the ratings of one run of MMHal-Bench.

    Args:
        path: Official evaluation output (a JSON array of chat completions or of the judge's texts), or records (JSON
            Lines, a JSON array or a table) with ``rating`` or ``judge_text``, and optionally ``question_type``,
            ``image_id``, ``judge_model``.
        warn: Callback for warnings about damaged input that can still be read.

    Returns:
        A list with one rating per record. Missing question types are those of the ids ``mmhal/1`` to ``mmhal/96``. If
        there are 96 records and none has such an id or a question type, the types are assigned in the official order.

    Raises:
        InputError, InputErrors: If ratings are missing or out of range, if answers come from several models, or if
            answers are repeated.
    """
    name = display_name(path)
    faults = FaultList()
    ratings: list[Rating] = []
    seen: dict[tuple[str, str], int] = {}
    models: dict[str, int] = {}
    for line, record in judged_records(path, "judge_text", warn):
        try:
            rating = _rating(record, line)
        except UNFIT as error:
            faults.add(InputError(unfit(error), path=name, line=line))
            continue
        ratings.append(rating)
        if rating.id is not None:
            earlier = seen.setdefault(("id", rating.id), line)
            if earlier != line:
                faults.add(InputError(f"a second rating of the id on line {earlier}", path=name, line=line))
                continue
        if rating.image is not None:
            question = record.get("question", record.get("prompt"))
            earlier = seen.setdefault((rating.image, str(question)), line)
            if earlier != line:
                faults.add(InputError(f"a second rating of the question on line {earlier}", path=name, line=line))
        if isinstance(record.get("model"), str) and "choices" not in record:  # in completions, it is the judge
            models.setdefault(record["model"], line)
    if len(models) > 1:
        faults.add(mixed_models(name, list(models.values())[1], models, "use a separate file for each model"))
    raise_faults(path, faults, "ratings", nothing=not ratings)
    if all(rating.rating is None for rating in ratings):
        raise InputError(
            f"none of the {len(ratings):,} verdicts contains a rating (Rating: 0 to {TOP_RATING})", path=name
        )
    if len(ratings) == QUESTIONS and all(rating.question_type is None for rating in ratings):
        types = TYPES * (QUESTIONS // len(TYPES))
        ratings = [replace(r, question_type=question_type) for r, question_type in zip(ratings, types, strict=True)]
    return ratings


def _rating(record: Record, line: int) -> Rating:
    own_id = None if record.get("id") is None else id_in(record, "id")
    official = _OFFICIAL_ID.fullmatch(own_id or "")
    question_type = optional_text(record.get("question_type")) or (official and TYPES[(int(official[1]) - 1) % 8])
    if question_type is not None and question_type.lower() not in TYPES:
        raise ValueError(f"unknown question_type {question_type!r} (known: {', '.join(TYPES)})")
    completion = "choices" in record and "model" in record  # complete output of the judge
    return Rating(
        line=line,
        image=find_image(record),
        rating=_rating_value(record),
        question_type=question_type.lower() if question_type else None,
        judging=Judging.of(record, judge=optional_text(record["model"])) if completion else Judging.of(record),
        id=own_id,
    )


def _rating_value(record: Record) -> int | None:
    if record.get("rating") not in (None, ""):
        digits = id_in(record, "rating")
        if not digits.isdecimal() or int(digits) > TOP_RATING:
            raise ValueError(f"'rating' must be a whole number from 0 to {TOP_RATING}, got {record['rating']!r}")
        return int(digits)
    text: object
    if "choices" in record:
        try:
            text = record["choices"][0]["message"]["content"]
        except (LookupError, TypeError):
            raise ValueError("a chat completion without choices[0].message.content") from None
    else:
        judged = [record[key] for key in _JUDGED if key in record]
        text = judged[0] if judged else None
        if not judged and "rating" not in record:
            hint = (
                "; these are answers: rate them first (scapo-eval judge mmhal)"
                if {"model_answer", "response"} & set(record)
                else ""
            )
            raise ValueError(f"missing key 'rating' or {_JUDGED[0]!r} (found: {', '.join(record)}){hint}")
    if text is None:  # no answer from the judge
        return None
    if not isinstance(text, str):
        raise ValueError(f"the judge's text must be a string, not {json_type(text)}")
    return parse_rating(text)


def _of_type(question_type: str, column: str) -> str:
    return f"{question_type}_{column}"


INFORMATIVE = (0, 1, 2, 0, 1, 2, 3)
"""Rating -> informativeness of the answer, 0 to 3, for both faithful (3 to 6) and unfaithful (0 to 2) answers."""

_RATING_COLUMNS = ("rated", "rating_sum", "hallucinated")
COLUMNS = (*_RATING_COLUMNS, "informative_sum", *(_of_type(t, column) for t in TYPES for column in _RATING_COLUMNS))
HEADLINE = ("mmhal_score", "mmhal_hal")
_SCORES = ("mmhal_score", *(_of_type(t, "score") for t in TYPES))
METRICS = MetricSet(
    name="mmhal",
    columns=COLUMNS,
    formulas={
        "mmhal_score": ratio("rating_sum", "rated"),
        "mmhal_hal": ratio("hallucinated", "rated"),
        "informativeness": lambda sums: divide(sums["informative_sum"], max(INFORMATIVE) * sums["rated"]),
    }
    | {_of_type(t, "score"): ratio(_of_type(t, "rating_sum"), _of_type(t, "rated")) for t in TYPES}
    | {_of_type(t, "hal"): ratio(_of_type(t, "hallucinated"), _of_type(t, "rated")) for t in TYPES},
    higher_is_better={"mmhal_score": True, "mmhal_hal": False, "informativeness": True}
    | {_of_type(t, "score"): True for t in TYPES}
    | {_of_type(t, "hal"): False for t in TYPES},
    plain_numbers=frozenset(_SCORES),
    ranges=dict.fromkeys(_SCORES, TOP_RATING),
    at_most=(("hallucinated", "rated"), *((_of_type(t, "hallucinated"), _of_type(t, "rated")) for t in TYPES)),
)


def rating_counts(rating: Rating) -> NDArray[np.int64]:
    """Returns the row of counts for one rated answer. All counts are 0 if there is no rating."""
    row = np.zeros(len(COLUMNS), dtype=np.int64)
    if rating.rating is not None:
        values = (1, rating.rating, int(rating.rating < FAITHFUL_FROM))
        row[:4] = (*values, INFORMATIVE[rating.rating])
        if rating.question_type is not None:
            start = 4 + 3 * TYPES.index(rating.question_type)
            row[start : start + 3] = values
    return row


def mmhal_run(name: str, ratings: Sequence[Rating], resampling: Resampling | None = None) -> Run:
    """Returns the MMHal-Bench run of one system.

    Answers without a rating are omitted from every metric and counted as ``unparsed``. For a run with all answers,
    ``printed`` contains the values that the official script prints. The script uses the rating 0 for answers without a
    rating.
    """
    builder = CountBuilder(COLUMNS)
    whole = len(ratings) == QUESTIONS
    place = "question" if whole else name  # without ids, the order identifies the question only in a full run
    images = [rating.image or rating.id or f"{place} {k}" for k, rating in enumerate(ratings, 1)]
    builder.add(images, np.stack([rating_counts(r) for r in ratings]))
    given = [r.rating for r in ratings]
    unparsed = given.count(None)
    missing = max(0, QUESTIONS - len(ratings))
    judgings = [r.judging for r in ratings]
    notes = Judging.notes(judgings)
    if not whole:
        share = len(ratings) / QUESTIONS
        notes.append(f"{len(ratings)} of MMHal-Bench's {QUESTIONS} questions ({share:.0%})")
    if unparsed:
        notes.append(
            f"{unparsed} verdicts contain no rating or several ratings, and are omitted; the official script counts "
            "them as 0"
        )
    printed: dict[str, float | str | None] = {}
    if whole:
        official = [rating or 0 for rating in given]
        printed = {
            "mmhal_score": float(f"{sum(official) / len(official):.2f}"),
            "mmhal_hal": float(f"{sum(rating < FAITHFUL_FROM for rating in official) / len(official):.2f}"),
            "informativeness": float(
                f"{100 * sum(INFORMATIVE[rating] for rating in official) / (3 * len(official)):.2f}"
            ),
        }
    return Run(
        name=name,
        signature=Signature.of(
            "mmhal",
            **Judging.fields(judgings),
            parser="official",
            n=len(ratings),
            ids=digest_of(r.image for r in ratings),
            unrated=unparsed,
        ),
        metric_set=METRICS,
        table=builder.table(),
        n_records=len(ratings),
        other_counts={"unparsed": unparsed, "missing": missing},
        printed=printed,
        notes=tuple(notes),
        resampling=resampling or Resampling(),
    )


def _prompts(path: str, first: Mapping[str, Any]) -> Iterator[tuple[int, Mapping[str, Any]]] | None:
    """Yields the questions of the benchmark in their fixed order; they have no ids. Returns None for other files."""
    if "question_type" not in first or any(first.get(key) is not None for key in ("id", "question_id", "index")):
        return None
    return ((line, {**record, "id": f"mmhal/{k}"}) for k, (line, record) in enumerate(iter_records(path), 1))


def _rated(path: Readable, ratings: Sequence[Rating]) -> list[AnsweredQuestion]:
    rows = dict(judged_records(path, "judge_text", lambda text: None))
    return [_rated_answer(k, rating, rows[rating.line]) for k, rating in enumerate(ratings, 1)]


def _rated_answer(place: int, rating: Rating, row: Mapping[str, Any]) -> AnsweredQuestion:
    content = row.get("image_content")
    words = _judges_words(row)
    number, image = rating.rating, find_image(row)
    return AnsweredQuestion(
        key=str(row.get("id") or row.get("question_id") or place),
        image=None if image is None else canonical_image_id(image),
        part=rating.question_type or "",
        question=optional_text(row.get("question")) or "",
        truth=optional_text(row.get("gt_answer")) or "",
        content=", ".join(map(str, content)) if isinstance(content, list) else optional_text(content) or "",
        verdict="not rated" if number is None else f"rated {number} of {TOP_RATING}",
        right=None if number is None else number >= FAITHFUL_FROM,
        response=next((str(row[key]) for key in ("response", "model_answer") if row.get(key)), ""),
        judgment=words,
    )


def _judges_words(row: Mapping[str, Any]) -> str:
    if "choices" in row:
        return str(row["choices"][0]["message"]["content"] or "")
    return next((str(row[key]) for key in ("judge_text", "evaluation", "review", "unread") if row.get(key)), "")


def _view(
    files: Mapping[str, Readable], resampling: Resampling, warn: Warn
) -> list[tuple[Run, list[AnsweredQuestion]]]:
    """Returns a run and the rated answers of each file, for display in the report."""
    read = {name: (path, read_ratings(path, warn=warn)) for name, path in files.items()}
    return [(mmhal_run(name, ratings, resampling), _rated(path, ratings)) for name, (path, ratings) in read.items()]


def _score(systems: Systems) -> list[Run]:
    return [
        mmhal_run(name, read_ratings(source, warn=systems.warn), systems.resampling)
        for name, source in systems.named().items()
    ]


BENCHMARK = Benchmark(
    name="mmhal",
    title="MMHal-Bench",
    help="""Scores MMHal-Bench ratings. Several files are compared with the first.

    RATINGS are the official evaluation output (a JSON array of the judge's completions), or records with
    rating or judge_text and optionally question_type and image_id or id. The judge itself runs elsewhere.
    """,
    metric_set=lambda columns: of_version(
        METRICS, columns, former=[column for column in COLUMNS if column != "informative_sum"]
    ),
    metric_names={
        "mmhal_score": "Score",
        "mmhal_hal": "Hal. Rate",
        "informativeness": "Informativeness",
        "score": "Score",
    },
    meanings={"informativeness": "mean informativeness (0 to 3), divided by 3"},
    dataset={"source_type": "hf_dataset", "hf_repo": "Shengcao1006/MMHal-Bench"},
    headline=HEADLINE,
    score=_score,
    example="""
    >>> import scapo_eval
    >>> run = scapo_eval.mmhal([{"image_id": 1, "rating": 6}, {"image_id": 2, "rating": 2}])
    >>> run.values["mmhal_score"], run.values["mmhal_hal"]
    (4.0, 0.5)
    """,
    files="ratings",
    takes=("ratings",),
    one_process="a judge's 96 ratings are",
    asked="MMHal-Bench's file",
    view=_view,
    prompts=_prompts,
    command_example=CommandExample(
        ("scapo-eval mmhal ratings.jsonl",),
        {
            "ratings.jsonl": """\
{"id": 1, "rating": 5, "question_type": "attribute"}
{"id": 2, "rating": 2, "question_type": "adversarial"}
{"id": 3, "rating": 4, "question_type": "attribute"}
{"id": 4, "rating": 3, "question_type": "adversarial"}
"""
        },
    ),
)
