"""Inspection of captions in Python: the evidence for each caption, captions with marked mentions, and rates by label.

The functions return the same results as the commands ``score --per-caption``, ``show`` and ``labels``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

from ..base.errors import InputError
from ..base.ids import canonical_image_id
from ..base.text import printable
from ..files.records import Given, readable
from ..matching.uses import Reading
from ..matching.vocabulary import Vocabulary
from ..results.results import Resampling
from ..truths.oracle import PresenceOracle, TruthGiven
from .capscore import CaptionScorer, score_file
from .labels import LabelRun, score_labels
from .scoring import ScoredBlock, ScoringOptions

MARKS = {"supported": "+", "hallucinated": "!", "unknown": "?"}
"""Verdict -> symbol that follows a mention."""

_COLORS = {"supported": "#cfe8cf", "hallucinated": "#f3c6c6", "unknown": "#eeeeff"}


def evidence(
    captions: Given,
    *,
    truth: TruthGiven | None = None,
    vocabulary: Vocabulary | str | Path = "coco80",
    claims: Reading = "all",
) -> list[dict[str, Any]]:
    """Returns the evidence of each caption, as ``scapo-eval score --per-caption`` writes it.

    Args:
        captions: Captions, in any format that :func:`scapo_eval.score` accepts.
        truth: Ground truth of the images, or None for the ``objects`` in the records.
        vocabulary: Labels and their aliases.
        claims: Name of the reading, which selects the mentions to count.

    Returns:
        One record per caption, in order. Each record contains ``image_id``, ``caption``, ``mentions`` (each with
        ``start`` and ``end`` in characters, ``label`` and ``verdict``), the ``missed`` labels, and the ``counts``. The
        list can be passed to ``pandas.DataFrame``.

    Raises:
        InputErrors, InputError: If the input is invalid. The error lists the faults by file and line, or by row.

    Example:
        >>> import scapo_eval
        >>> rows = [{"image_id": 1, "caption": "A dog and a cat.", "objects": ["dog", "couch"]}]
        >>> [(mention["label"], mention["verdict"]) for mention in scapo_eval.evidence(rows)[0]["mentions"]]
        [('dog', 'supported'), ('cat', 'hallucinated')]
    """
    kept: list[dict[str, Any]] = []

    def keep(scorer: CaptionScorer, block: ScoredBlock) -> None:
        kept.extend(scorer.records(block))

    options = ScoringOptions(claims=claims)
    oracle = None if truth is None else PresenceOracle.of(truth)
    score_file(
        readable(captions), Vocabulary.of(vocabulary), oracle, options, resampling=Resampling(0), on_block=keep
    )  # fmt: skip
    return kept


@dataclass(frozen=True)
class ShownCaptions:
    """Captions with marked mentions. ``str()`` formats the captions for a terminal, and notebooks display them in
    color.

    Attributes:
        records: Records from :func:`evidence`.
    """

    records: Sequence[dict[str, Any]]

    def __str__(self) -> str:
        return "\n\n".join(map(_plain, self.records))

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return "".join(map(_html, self.records))


def show(
    captions: Given,
    *,
    image: object = None,
    worst: int = 5,
    truth: TruthGiven | None = None,
    vocabulary: Vocabulary | str | Path = "coco80",
    claims: Reading = "all",
) -> ShownCaptions:
    """Returns the captions of an image, or the worst captions, with their mentions marked.

    The worst captions are those with the most hallucinated labels and, in case of ties, those with the most missed
    labels. The mentions are marked with ``+`` (supported), ``!`` (hallucinated) or ``?`` (unknown).

    Args:
        captions: Captions, in any format that :func:`scapo_eval.score` accepts.
        image: Id of an image, in any spelling, or None to show the worst captions.
        worst: Number of worst captions to show.
        truth, vocabulary, claims: Same as in :func:`evidence`.

    Raises:
        InputErrors, InputError: If the input is invalid. The error lists the faults by file and line, or by row.

    Example:
        >>> import scapo_eval
        >>> rows = [{"image_id": 1, "caption": "A dog and a cat.", "objects": ["dog", "couch"]}]
        >>> scapo_eval.show(rows)
        image 1
        A dog+ and a cat!.
        supported: dog
        hallucinated: cat
        missed: couch
    """
    records = evidence(captions, truth=truth, vocabulary=vocabulary, claims=claims)
    if image is not None:
        try:
            wanted = canonical_image_id(image)
        except ValueError as error:
            raise InputError(f"image id {error}") from None
        return ShownCaptions([record for record in records if record["image_id"] == wanted])
    order = sorted(records, key=lambda record: (-record["counts"]["hallucinated"], -len(record["missed"])))
    return ShownCaptions(order[:worst])


def labels(
    captions: Given,
    *,
    truth: TruthGiven | None = None,
    vocabulary: Vocabulary | str | Path = "coco80",
    claims: Reading = "all",
    name: str | None = None,
) -> LabelRun:
    """Returns, for each label, the number of captions that hallucinate it and the number of captions that miss it, as
    listed by ``scapo-eval labels``.

    Args:
        captions, truth, vocabulary, claims: Same as in :func:`evidence`.
        name: Name of the system.

    Raises:
        InputErrors, InputError: If the input is invalid. The error lists the faults by file and line, or by row.

    Example:
        >>> import scapo_eval
        >>> rows = [{"image_id": k, "caption": "A dog and a cat.", "objects": ["dog", "couch"]} for k in range(3)]
        >>> [(row["label"], row["hallucinated"], row["missed"]) for row in scapo_eval.labels(rows).rows]
        [('cat', 3, 0), ('dog', 0, 0), ('couch', 0, 3)]
    """
    oracle = None if truth is None else PresenceOracle.of(truth)
    options = ScoringOptions(claims=claims)
    return score_labels(readable(captions), Vocabulary.of(vocabulary), oracle, options, name=name)


def _plain(record: dict[str, Any]) -> str:
    text, at, parts = record["caption"], 0, list[str]()
    for mention in record["mentions"]:
        parts += [text[at : mention["end"]], MARKS[mention["verdict"]]]
        at = mention["end"]
    lines = [f"image {record['image_id']}", "".join([*parts, text[at:]])]
    lines += [f"{verdict}: {', '.join(named)}" for verdict in MARKS if (named := _named(record, verdict))]
    return "\n".join(map(printable, [*lines, f"missed: {', '.join(record['missed']) or 'nothing'}"]))


def _html(record: dict[str, Any]) -> str:
    text, at, parts = record["caption"], 0, list[str]()
    for mention in record["mentions"]:
        marked = escape(text[mention["start"] : mention["end"]])
        said = escape(f"{mention['label']}: {mention['verdict']}")
        parts.append(escape(text[at : mention["start"]]))
        parts.append(f'<mark style="background:{_COLORS[mention["verdict"]]}" title="{said}">{marked}</mark>')
        at = mention["end"]
    missed = escape(", ".join(record["missed"]) or "nothing")
    body = "".join([*parts, escape(text[at:])])
    return f"<p><b>image {escape(record['image_id'])}</b><br>{body}<br><small>missed: {missed}</small></p>"


def _named(record: dict[str, Any], verdict: str) -> list[str]:
    return list(dict.fromkeys(m["label"] for m in record["mentions"] if m["verdict"] == verdict))
