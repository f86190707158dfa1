"""Figures of judges that ran elsewhere: MMHal-Bench ratings and FaithScore's verified facts.

MMHal-Bench (Sun et al. 2023, ``eval_gpt4.py``): a judge rates each of 96 answers from 0 to 6, below 3 is a
hallucination. FaithScore (Jing et al. 2024, ``framework.py``): a judge splits an answer into atomic facts,
another verifies each; the figure is the share of verified facts per answer, averaged over answers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import lcm
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..counts import CountBuilder
from ..errors import InputError
from ..ids import canonical_image_id
from ..io.containers import Row, Warn, first_bytes, open_rows, warn_user
from ..io.fields import Record, find_image, id_in, mixed_models, optional_text
from ..io.files import FaultList, display_name, json_type, read_json
from ..metric import Formula, MetricSet, divide, ratio
from ..results import System
from ..signature import digest, signature
from .provenance import file_looks_like

# --- MMHal-Bench ----------------------------------------------------------------------------------------------------

MMHAL_QUESTIONS = 96
MMHAL_TYPES = (
    "attribute", "adversarial", "comparison", "counting", "relation", "environment", "holistic", "other",
)  # fmt: skip
"""In the benchmark's order: question k is of type ``k % 8``, 12 of each."""

TOP_RATING = 6
FAITHFUL_FROM = 3
"""Ratings below this one say that the answer hallucinates."""

_JUDGED = ("judge_text", "evaluation", "review")


@dataclass(frozen=True, slots=True)
class Rating:
    """A judge's verdict on one answer.

    Attributes:
        line: line (or array element) of the file, from 1.
        image: the image's name, None where the file names none.
        rating: 0 to 6; None where the judge's text does not give exactly one.
        question_type: one of MMHAL_TYPES, None where the file does not tell.
        judge: name of the judging model, None where the file does not tell.
    """

    line: int
    image: str | None
    rating: int | None
    question_type: str | None
    judge: str | None = None


def parse_rating(text: str) -> int | None:
    """The one rating that a judge's text gives, by the official rule: ``rating: N`` in any case.

    None where no or several ratings occur; the official script then takes 0.
    """
    lowered = text.lower()
    found = [rating for rating in range(TOP_RATING + 1) if f"rating: {rating}" in lowered]
    return found[0] if len(found) == 1 else None


def read_ratings(path: str | Path, *, warn: Warn = warn_user) -> list[Rating]:
    """The ratings of one run of MMHal-Bench.

    Args:
        path: the official evaluation output (a JSON array of chat completions, or of the judge's texts), or
            records (JSON lines, JSON array, table) with ``rating`` or ``judge_text``, and optionally
            ``question_type``, ``image_id``, ``judge_model``.
        warn: told of damage that does not prevent reading.

    Returns:
        One rating per record; where no record names a question type and there are 96, the types follow
        from the official order.

    Raises:
        InputError, InputErrors: no ratings, a rating out of range, answers of several models, repeats.
    """
    name = display_name(path)
    faults = FaultList()
    ratings: list[Rating] = []
    seen: dict[tuple[str, str], int] = {}
    models: dict[str, int] = {}
    for line, record in _judged_records(path, "judge_text", warn):
        try:
            ratings.append(_rating(record, line))
        except ValueError as error:
            faults.add(InputError(str(error), path=name, line=line))
            continue
        image, question = find_image(record), record.get("question", record.get("prompt"))
        if image is not None:
            earlier = seen.setdefault((image, str(question)), line)
            if earlier != line:
                faults.add(InputError(f"the question of line {earlier} is rated again", path=name, line=line))
        if isinstance(record.get("model"), str) and "choices" not in record:  # there it is the judge
            models.setdefault(record["model"], line)
    if len(models) > 1:
        faults.add(mixed_models(name, list(models.values())[1], models, "give each model's ratings on their own"))
    _raise(path, faults, "ratings", nothing=not ratings)
    if all(rating.rating is None for rating in ratings):
        raise InputError(f"none of the {len(ratings):,} verdicts gives a rating (Rating: 0 to {TOP_RATING})", path=name)
    if len(ratings) == MMHAL_QUESTIONS and all(rating.question_type is None for rating in ratings):
        types = MMHAL_TYPES * (MMHAL_QUESTIONS // len(MMHAL_TYPES))
        ratings = [
            Rating(r.line, r.image, r.rating, question_type, r.judge)
            for r, question_type in zip(ratings, types, strict=True)
        ]
    return ratings


def _rating(record: Record, line: int) -> Rating:
    question_type = optional_text(record.get("question_type"))
    if question_type is not None and question_type.lower() not in MMHAL_TYPES:
        raise ValueError(f"unknown question_type {question_type!r} (known: {', '.join(MMHAL_TYPES)})")
    return Rating(
        line=line,
        image=find_image(record),
        rating=_rating_value(record),
        question_type=question_type.lower() if question_type else None,
        judge=optional_text(record.get("model" if "choices" in record else "judge_model")),
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
            hint = "; these are answers, judge them first" if {"model_answer", "response"} & set(record) else ""
            raise ValueError(f"neither 'rating' nor {_JUDGED[0]!r} (found: {', '.join(record)}){hint}")
    if text is None:  # the judge did not answer
        return None
    if not isinstance(text, str):
        raise ValueError(f"the judge's text must be a string, not {json_type(text)}")
    return parse_rating(text)


def _of_type(question_type: str, column: str) -> str:
    return f"{question_type}_{column}"


_RATING_COLUMNS = ("rated", "rating_sum", "hallucinated")
MMHAL_COLUMNS = (*_RATING_COLUMNS, *(_of_type(t, column) for t in MMHAL_TYPES for column in _RATING_COLUMNS))
MMHAL = MetricSet(
    name="mmhal",
    columns=MMHAL_COLUMNS,
    formulas={"mmhal_score": ratio("rating_sum", "rated"), "mmhal_hal": ratio("hallucinated", "rated")}
    | {_of_type(t, "score"): ratio(_of_type(t, "rating_sum"), _of_type(t, "rated")) for t in MMHAL_TYPES}
    | {_of_type(t, "hal"): ratio(_of_type(t, "hallucinated"), _of_type(t, "rated")) for t in MMHAL_TYPES},
    higher_is_better={"mmhal_score": True, "mmhal_hal": False}
    | {_of_type(t, "score"): True for t in MMHAL_TYPES}
    | {_of_type(t, "hal"): False for t in MMHAL_TYPES},
    plain_numbers=frozenset({"mmhal_score", *(_of_type(t, "score") for t in MMHAL_TYPES)}),
)


def mmhal_counts(rating: Rating) -> NDArray[np.int64]:
    """The row of one rated answer; all zero where there is no rating."""
    row = np.zeros(len(MMHAL_COLUMNS), dtype=np.int64)
    if rating.rating is not None:
        values = (1, rating.rating, int(rating.rating < FAITHFUL_FROM))
        row[:3] = values
        if rating.question_type is not None:
            start = 3 + 3 * MMHAL_TYPES.index(rating.question_type)
            row[start : start + 3] = values
    return row


def mmhal_system(name: str, ratings: Sequence[Rating]) -> System:
    """One system's run of MMHal-Bench.

    Answers without a rating are left out of every figure and counted as ``unparsed``; ``printed`` holds
    what the official script prints for a full run, which takes them as 0.
    """
    builder = CountBuilder(MMHAL_COLUMNS)
    whole = len(ratings) == MMHAL_QUESTIONS
    place = "question" if whole else name  # only in a full run does the order tell which question it is
    images = [rating.image or f"{place} {k}" for k, rating in enumerate(ratings, 1)]
    builder.add(images, np.stack([mmhal_counts(r) for r in ratings]))
    given = [r.rating for r in ratings]
    unparsed = given.count(None)
    missing = max(0, MMHAL_QUESTIONS - len(ratings))
    judges = sorted({r.judge for r in ratings if r.judge})
    notes = []
    if not whole:
        share = len(ratings) / MMHAL_QUESTIONS
        notes.append(f"{len(ratings)} of MMHal-Bench's {MMHAL_QUESTIONS} questions ({share:.0%})")
    if unparsed:
        notes.append(f"{unparsed} verdicts give no or several ratings; the official script takes them as 0")
    if len(judges) > 1:
        notes.append(f"several judges in one file ({', '.join(judges)})")
    printed: dict[str, float | str | None] = {}
    if whole:
        official = [rating or 0 for rating in given]
        printed = {
            "mmhal_score": float(f"{sum(official) / len(official):.2f}"),
            "mmhal_hal": float(f"{sum(rating < FAITHFUL_FROM for rating in official) / len(official):.2f}"),
        }
    return System(
        name=name,
        signature=signature(
            "mmhal",
            judge="+".join(judge.replace("|", "/") for judge in judges) or "unnamed",
            parser="official",
            n=len(ratings),
            ids=_digest(r.image for r in ratings),
            unparsed=unparsed,
        ),
        metric=MMHAL,
        table=builder.table(),
        n_captions=len(ratings),
        counts={"unparsed": unparsed, "missing": missing},
        printed=printed,
        notes=tuple(notes),
    )


# --- FaithScore -----------------------------------------------------------------------------------------------------

SHARE_UNIT = lcm(*range(1, 31))
"""Fixed-point unit of one answer's share of verified facts.

FaithScore is a mean of ratios, and counts must be integers: each answer adds ``verified / facts`` in this
unit, 2.3e12, which is exact up to 30 facts and within 1e-12 beyond, and sums 4 million answers in 64 bits.
"""

_FACT_COLUMNS = ("answers", "scored", "facts", "verified", "share")
_LISTS = ("facts", "atomic_facts", "n_facts", "num_facts")
_VERDICTS = ("verified", "fact_scores", "fs_list", "n_verified", "num_verified")


@dataclass(frozen=True, slots=True)
class Facts:
    """One answer's atomic facts.

    Attributes:
        line: line (or array element) of the file, from 1.
        image: the image's name, else the answer's id, None where the file has neither.
        facts: how many the judge found.
        verified: how many of them hold.
        setting: how the answer was asked for (``conversation``, ``detailed``...), None for none.
    """

    line: int
    image: str | None
    facts: int
    verified: int
    setting: str | None = None


def read_facts(path: str | Path, *, setting: str | None = None, warn: Warn = warn_user) -> list[Facts]:
    """The verified facts of one run.

    Args:
        path: records with ``facts`` and ``verified`` (lists, or counts), or FaithScore's own
            ``atomic_facts`` and ``fact_scores``/``fs_list``, or its ``fact_scores`` alone (an array of arrays).
        setting: the generation setting of records that do not name theirs.
        warn: told of damage that does not prevent reading.

    Raises:
        InputError, InputErrors: no facts, more verified than there are, repeated ids.
    """
    name = display_name(path)
    faults = FaultList()
    found: list[Facts] = []
    seen: dict[tuple[str | None, str], int] = {}
    for line, record in _judged_records(path, "fact_scores", warn):
        try:
            identity = next((id_in(record, key) for key in ("id", "question_id") if key in record), None)
            facts = _facts(record, line, identity, setting)
        except ValueError as error:
            faults.add(InputError(str(error), path=name, line=line))
            continue
        if identity is not None:
            earlier = seen.setdefault((facts.setting, identity), line)
            if earlier != line:
                faults.add(
                    InputError(f"id {identity!r} stands here again (first on line {earlier})", path=name, line=line)
                )
        found.append(facts)
    _raise(path, faults, "facts", nothing=not found)
    return found


def _facts(record: Record, line: int, identity: str | None, setting: str | None) -> Facts:
    if {"faithscore", "num_samples"} <= set(record):
        raise ValueError("only FaithScore's mean; the facts of each answer are needed (its fact_scores)")
    listed = next((record[key] for key in _LISTS if key in record), None)
    verdicts = next((record[key] for key in _VERDICTS if key in record), None)
    if verdicts is None:
        raise ValueError(f"missing key 'verified' (found: {', '.join(record)})")
    if listed is None:
        listed = verdicts
    facts, verified = _number_of(listed, "facts"), _number_verified(verdicts, listed)
    if verified > facts:
        raise ValueError(f"{verified} verified of {facts} facts")
    given = optional_text(record.get("setting"))
    image = find_image(record) or identity
    return Facts(
        line=line,
        image=canonical_image_id(image) if image else None,
        facts=facts,
        verified=verified,
        setting=_slug(given or setting),
    )


def _number_of(value: object, what: str) -> int:
    if isinstance(value, list):
        return len(value)
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return value
    raise ValueError(f"{what!r} must be a list or a count, not {json_type(value)}")


def _number_verified(verdicts: object, facts: object) -> int:
    """Verdicts are a count, one 0/1 per fact, or the list of the facts that hold."""
    if not isinstance(verdicts, list):
        return _number_of(verdicts, "verified")
    if all(isinstance(verdict, (int, float)) and verdict in (0, 1) for verdict in verdicts):
        if isinstance(facts, list) and len(facts) != len(verdicts):
            raise ValueError(f"{len(verdicts)} verdicts on {len(facts)} facts")
        return int(sum(verdicts))
    if isinstance(facts, list) and all(isinstance(verdict, str) and verdict in facts for verdict in verdicts):
        return len(verdicts)
    raise ValueError("'verified' must be a count, a list of 0 and 1, or a list of some of the facts")


def _slug(setting: str | None) -> str | None:
    return "_".join(setting.lower().split()) if setting else None


def faithscore_metric(settings: Sequence[str]) -> MetricSet:
    """FaithScore and Avg. Facts over all answers, and for each generation setting (``detailed_faithscore``...)."""
    prefixes = ["", *(f"{setting}_" for setting in settings)]
    formulas: dict[str, Formula] = {}
    for prefix in prefixes:
        formulas[f"{prefix}faithscore"] = _mean_share(f"{prefix}share", f"{prefix}scored")
        formulas[f"{prefix}avg_facts"] = ratio(f"{prefix}facts", f"{prefix}answers")
    return MetricSet(
        name="faithscore",
        columns=tuple(prefix + column for prefix in prefixes for column in _FACT_COLUMNS),
        formulas=formulas,
        higher_is_better=dict.fromkeys(formulas, True),
        plain_numbers=frozenset(name for name in formulas if name.endswith("avg_facts")),
    )


def faithscore_metric_for(columns: Sequence[str]) -> MetricSet:
    """The metric of a table with these columns."""
    ending = f"_{_FACT_COLUMNS[0]}"
    return faithscore_metric([column.removesuffix(ending) for column in columns if column.endswith(ending)])


def _mean_share(share: str, scored: str) -> Formula:
    return lambda sums: divide(sums[share], sums[scored]) / SHARE_UNIT


def settings_of(runs: Iterable[Sequence[Facts]]) -> list[str]:
    """The generation settings of some runs, in the order in which they come."""
    return list(dict.fromkeys(facts.setting for run in runs for facts in run if facts.setting))


def faithscore_system(name: str, run: Sequence[Facts], settings: Sequence[str]) -> System:
    """One system's run of FaithScore.

    An answer without facts has no share: it counts in Avg. Facts, not in FaithScore, and is counted as
    ``without_facts``; ``printed`` holds the official figure, which takes its share as 0.

    Args:
        name: of the system.
        run: its answers.
        settings: those of all systems that stand side by side.
    """
    metric = faithscore_metric(settings)
    width = len(_FACT_COLUMNS)
    rows = np.zeros((len(run), len(metric.columns)), dtype=np.int64)
    for row, facts in zip(rows, run, strict=True):
        share = (2 * SHARE_UNIT * facts.verified + facts.facts) // (2 * facts.facts) if facts.facts else 0
        values = (1, int(facts.facts > 0), facts.facts, facts.verified, share)
        row[:width] = values
        if facts.setting:
            start = width * (1 + settings.index(facts.setting))
            row[start : start + width] = values
    builder = CountBuilder(metric.columns)
    builder.add((facts.image or f"{name} {k}" for k, facts in enumerate(run, 1)), rows)
    empty = sum(not facts.facts for facts in run)
    official = sum(facts.verified / facts.facts for facts in run if facts.facts) / len(run)
    notes = (f"{empty} answers without facts; the official script takes their share as 0",) if empty else ()
    return System(
        name=name,
        signature=signature(
            "faithscore",
            settings="+".join(settings_of([run])) or None,
            n=len(run),
            ids=_digest(facts.image for facts in run),
            empty=empty,
        ),
        metric=metric,
        table=builder.table(),
        n_captions=len(run),
        counts={"without_facts": empty},
        printed={"faithscore": official},
        notes=notes,
    )


def _digest(images: Iterable[str | None]) -> str:
    """Hash of the images' names; ``none`` where the file does not name them all."""
    named = list(images)
    known = sorted(image for image in named if image is not None)
    return digest(known) if len(known) == len(named) else "none"


def _raise(path: str | Path, faults: FaultList, wanted: str, *, nothing: bool) -> None:
    """Raises what was found; once, where no record at all is of the wanted kind."""
    if nothing and faults.total > 1:
        first = faults.errors[0]
        looks = file_looks_like(path)
        reason = f"{first.reason}; none of the {faults.total:,} records holds {wanted}"
        raise InputError(f"{reason}; they look like {looks}" if looks else reason, path=first.path, line=first.line)
    faults.raise_if_any()


def _judged_records(path: str | Path, key: str, warn: Warn) -> Iterator[Row]:
    """Records of any container; the elements of an array that are no objects stand under ``key``."""
    if first_bytes(path).removeprefix(b"\xef\xbb\xbf").lstrip()[:1] != b"[":
        yield from open_rows(path, warn=warn)
        return
    values: Any = read_json(path)
    if not isinstance(values, list) or not values:
        raise InputError("the file holds no record (an empty JSON array)", path=display_name(path))
    for number, value in enumerate(values, 1):
        yield number, value if isinstance(value, dict) else {key: value}
