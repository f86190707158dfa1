"""AMBER's metrics as functions of summed counts, and the values that the official script prints.

The positive class of precision and recall is "no", the correct answer to questions about objects, attributes or
relations that are absent from the image.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from ...results.metric import Floats, Formula, MetricSet, Sums, divide, harmonic_mean, ratio
from .data import DIMENSIONS, KINDS

GENERATIVE = (
    "descriptions",
    "mentions",
    "hallucinated_mentions",
    "hallucinated_captions",
    "covered",
    "truth",
    "imagined",
    "expected",
)
"""Counts of the generative task: descriptions; mentions; hallucinated mentions; descriptions with a hallucination;
covered annotations; annotations; mentioned words that are expected to be hallucinated; all words expected to be
hallucinated.
"""

QUESTIONS, CORRECT, TRUE_NO, SAID_NO, RIGHT_NO = "questions", "correct", "true_no", "said_no", "right_no"
DISCRIMINATIVE = (QUESTIONS, CORRECT, TRUE_NO, SAID_NO, RIGHT_NO)
"""Counts per kind of question: all questions, correct answers, questions with the correct answer "no", answers "no",
and correct answers "no".
"""

COLUMNS = GENERATIVE + tuple(f"{kind}_{count}" for kind in KINDS for count in DISCRIMINATIVE)


def _cap_score(sums: Sums) -> Floats:
    return harmonic_mean(1 - _chair(sums), _cover(sums))


_chair = ratio("hallucinated_mentions", "mentions")
_cover = ratio("covered", "truth")


def _pooled(kinds: Sequence[str], count: str) -> Formula:
    return lambda sums: np.asarray(sum(sums[f"{kind}_{count}"] for kind in kinds))


def _share(kinds: Sequence[str], numerator: str, denominator: str) -> Formula:
    above, below = _pooled(kinds, numerator), _pooled(kinds, denominator)
    return lambda sums: divide(above(sums), below(sums))


def _f1(kinds: Sequence[str]) -> Formula:
    """Returns the formula for the F1 score of the answer "no". The F1 score is 0 if no answer "no" is correct."""
    right_no, said_no, true_no = (_pooled(kinds, count) for count in (RIGHT_NO, SAID_NO, TRUE_NO))
    return lambda sums: divide(2 * right_no(sums), said_no(sums) + true_no(sums))


def _yes_no_formulas(kinds: Sequence[str], prefix: str = "") -> dict[str, Formula]:
    return {
        f"{prefix}accuracy": _share(kinds, CORRECT, QUESTIONS),
        f"{prefix}precision": _share(kinds, RIGHT_NO, SAID_NO),
        f"{prefix}recall": _share(kinds, RIGHT_NO, TRUE_NO),
        f"{prefix}f1": _f1(kinds),
    }


def _amber_score(sums: Sums) -> Floats:
    return np.asarray(100 * (1 - _chair(sums) + _f1(KINDS)(sums)) / 2)


def _metrics() -> MetricSet:
    formulas: dict[str, Formula] = {
        "chair": _chair,
        "cover": _cover,
        "hal": ratio("hallucinated_captions", "descriptions"),
        "cog": ratio("imagined", "expected"),
        "cap_score": _cap_score,
        **_yes_no_formulas(KINDS),
        "amber_score": _amber_score,
    }
    for dimension, kinds in DIMENSIONS.items():
        formulas |= _yes_no_formulas(kinds, f"{dimension}_")
    lower = {"chair", "hal", "cog"}
    pairs = ((CORRECT, QUESTIONS), (TRUE_NO, QUESTIONS), (RIGHT_NO, TRUE_NO), (RIGHT_NO, SAID_NO))
    return MetricSet(
        name="amber",
        columns=COLUMNS,
        formulas=formulas,
        higher_is_better={name: name not in lower for name in formulas},
        plain_numbers=frozenset({"amber_score"}),
        ranges={"amber_score": 100},
        at_most=(
            ("hallucinated_mentions", "mentions"),
            ("hallucinated_captions", "descriptions"),
            ("covered", "truth"),
            *((f"{kind}_{few}", f"{kind}_{more}") for kind in KINDS for few, more in pairs),
        ),
    )


METRICS = _metrics()

START = 0.001
"""Initial value of the official script's denominators, which avoids division by 0 and keeps scores slightly below
100.
"""


def printed(counts: Mapping[str, int]) -> dict[str, float | None]:
    """Returns the values of the metrics as the official script prints them, in percent.

    The script rounds to one decimal, adds START to its denominators, and computes F1 from rounded values. The script
    prints no AMBER score, so the score returned here is the mean of its printed values.

    Args:
        counts: Sum of each column in COLUMNS.
    """

    def share(numerator: int, denominator: int, starts: int = 1) -> float:
        return round(numerator / (starts * START + denominator) * 100, 1)

    figures: dict[str, float | None] = {
        "chair": share(counts["hallucinated_mentions"], counts["mentions"]),
        "cover": share(counts["covered"], counts["truth"]),
        "hal": round(
            100 - (counts["descriptions"] - counts["hallucinated_captions"]) / (START + counts["descriptions"]) * 100, 1
        ),
        "cog": share(counts["imagined"], counts["expected"]),
    }
    for dimension, kinds in {"": KINDS, **DIMENSIONS}.items():
        sums = {count: sum(counts[f"{kind}_{count}"] for kind in kinds) for count in DISCRIMINATIVE}
        starts = len(kinds) if dimension else 1  # overall counters start once, those of an attribute are summed
        precision, recall = share(sums[RIGHT_NO], sums[SAID_NO], starts), share(sums[RIGHT_NO], sums[TRUE_NO], starts)
        p, r, guard = precision / 100, recall / 100, 0.001 if dimension == "existence" else 0.0001
        prefix = f"{dimension}_" if dimension else ""
        figures[f"{prefix}accuracy"] = share(sums[CORRECT], sums[QUESTIONS], starts)
        figures[f"{prefix}precision"] = precision
        figures[f"{prefix}recall"] = recall
        figures[f"{prefix}f1"] = round(2 * p * r / (p + r + guard) * 100, 1)
    both = counts["descriptions"] and sum(counts[f"{kind}_{QUESTIONS}"] for kind in KINDS)
    figures["amber_score"] = round((100 - figures["chair"] + figures["f1"]) / 2, 2) if both else None  # type: ignore[operator]
    return figures
