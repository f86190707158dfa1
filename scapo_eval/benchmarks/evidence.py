"""Inspection of captions in Python: the evidence for each caption, captions with marked mentions, and rates by label.

The functions return the same results as the commands ``score --per-caption``, ``show`` and ``labels``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from html import escape
from numbers import Integral
from typing import Any

from ..base.errors import InputError, short_repr
from ..base.ids import checked_image_id
from ..base.text import printable
from ..files.records import Given
from ..matching.uses import Reading
from ..matching.vocabulary import Vocabulary, VocabularyGiven
from ..results.results import Resampling, Run
from ..truths.oracle import PresenceOracle, TruthGiven
from .capscore import CaptionScorer, CaptionScores, Scored, score_file
from .labels import LabelRun, score_labels
from .scoring import ScoredBlock, ScoringOptions
from .systems import Systems, naming_inputs

MARKS = {"supported": "+", "hallucinated": "!", "unknown": "?"}
"""Verdict -> symbol that follows a mention."""

_COLORS = {"supported": "#cfe8cf", "hallucinated": "#f3c6c6", "unknown": "#eeeeff"}


class Evidence(list[dict[str, Any]]):
    """The records of :func:`evidence`, one per caption."""

    def to_pandas(self) -> Any:
        """Returns a data frame with one row per mention, and the columns ``image_id``, ``caption`` (the position of the
        caption), ``start``, ``end``, ``text``, ``label`` and ``verdict``.

        Raises:
            MissingExtra: If pandas is not installed.
        """
        from ..results.frames import to_frame

        rows = [
            {
                "image_id": record["image_id"],
                "caption": k,
                "text": record["caption"][mention["start"] : mention["end"]],
                **{column: mention[column] for column in ("start", "end", "label", "verdict")},
            }
            for k, record in enumerate(self)
            for mention in record["mentions"]
        ]
        return to_frame(rows, ("image_id", "caption", "start", "end", "text", "label", "verdict"), ())


@naming_inputs
def evidence(
    captions: Given | Run,
    *,
    truth: TruthGiven | None = None,
    vocabulary: VocabularyGiven | None = None,
    claims: Reading | None = None,
) -> Evidence:
    """Returns the evidence of each caption, as ``scapo-eval score --per-caption`` writes it.

    Args:
        captions: Captions, in any format that :func:`scapo_eval.score` accepts, or the run that this function returned.
            The captions of a run are read again with the settings of the run.
        truth: Ground truth of the images, or None for the ``objects`` in the records.
        vocabulary: Labels and their aliases. The default vocabulary is coco80.
        claims: Reading, which selects the mentions to count. The default reading is ``all``.

    Returns:
        One record per caption, in order. Each record contains ``image_id``, ``caption``, ``mentions`` (each with
        ``start`` and ``end`` in characters, ``label`` and ``verdict``), the ``missed`` labels, and the ``counts``.
        ``to_pandas()`` returns a data frame with one row per mention.

    Raises:
        InputErrors, InputError: If the input is invalid, or if a run has no captions or is given together with
            settings. The error lists the faults by file and line, or by row.

    Example:
        >>> import scapo_eval
        >>> rows = [{"image_id": 1, "caption": "A dog and a cat.", "objects": ["dog", "couch"]}]
        >>> [(mention["label"], mention["verdict"]) for mention in scapo_eval.evidence(rows)[0]["mentions"]]
        [('dog', 'supported'), ('cat', 'hallucinated')]
    """
    kept = Evidence()

    def keep(scorer: CaptionScorer, block: ScoredBlock) -> None:
        kept.extend(scorer.records(block))

    name, given = _given(captions, truth, vocabulary, claims)
    how: dict[str, Any] = {"name": name, "resampling": Resampling(0), "on_block": keep}
    scores = score_file(given.captions, given.vocabulary, given.oracle, given.options, **how)
    _check_unchanged(captions, scores)
    return kept


def _given(
    captions: Given | Run,
    truth: TruthGiven | None,
    vocabulary: VocabularyGiven | None,
    claims: Reading | None,
    name: str | None = None,
) -> tuple[str, Scored]:
    """Returns the name of a system, and its captions with the settings for scoring them."""
    if isinstance(captions, Run):
        if any(setting is not None for setting in (truth, vocabulary, claims)):
            raise InputError("a run has its own truth, vocabulary and claims; for others, give the captions themselves")
        scored = captions.scored if isinstance(captions, CaptionScores) else None
        if scored is None:
            raise InputError("the run has no captions; give the captions themselves", path=captions.name)
        name = name or captions.name
        captions = scored.captions
    else:
        labels = Vocabulary.of("coco80" if vocabulary is None else vocabulary)
        oracle = None if truth is None else PresenceOracle.of(truth)
        scored = Scored("", labels, oracle, ScoringOptions(claims=claims or "all"))
    [(system, source)] = Systems.of(captions, name, "captions", Resampling(0)).named().items()
    return system, replace(scored, captions=source)


def _check_unchanged(captions: Given | Run, scores: CaptionScores) -> None:
    """Raises an error if captions are those of a run, and were changed after the run was scored."""
    if isinstance(captions, Run) and scores.account != captions.account:
        raise InputError("the captions were changed after they were scored; score them again", path=captions.name)


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
    captions: Given | Run,
    *,
    image: object = None,
    worst: int = 5,
    truth: TruthGiven | None = None,
    vocabulary: VocabularyGiven | None = None,
    claims: Reading | None = None,
) -> ShownCaptions:
    """Returns the captions of an image, or the worst captions, with their mentions marked.

    The worst captions are those with the most hallucinated labels and, in case of ties, those with the most missed
    labels. The mentions are marked with ``+`` (supported), ``!`` (hallucinated) or ``?`` (unknown).

    Args:
        captions: Captions or a run, as in :func:`evidence`.
        image: Id of an image, in any spelling, or None to show the worst captions.
        worst: Number of worst captions to show.
        truth, vocabulary, claims: Same as in :func:`evidence`.

    Raises:
        InputErrors, InputError: If the input is invalid, if the image has no caption, or if ``worst`` is below 1. The
            error lists the faults by file and line, or by row.

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
    if not isinstance(worst, Integral) or worst < 1:
        raise InputError(f"worst must be a whole number of at least 1, got {short_repr(worst)}")
    records = evidence(captions, truth=truth, vocabulary=vocabulary, claims=claims)
    if image is not None:
        wanted = checked_image_id(image)
        shown = [record for record in records if record["image_id"] == wanted]
        if not shown:
            raise InputError(f"there is no caption of image {wanted}")
        return ShownCaptions(shown)
    order = sorted(records, key=lambda record: (-record["counts"]["hallucinated"], -len(record["missed"])))
    return ShownCaptions(order[:worst])


@naming_inputs
def labels(
    captions: Given | Run,
    *,
    truth: TruthGiven | None = None,
    vocabulary: VocabularyGiven | None = None,
    claims: Reading | None = None,
    name: str | None = None,
) -> LabelRun:
    """Returns, for each label, the number of captions that hallucinate it and the number of captions that miss it, as
    listed by ``scapo-eval labels``. The attribute ``rows`` and the method ``to_pandas`` of the result list the labels.

    Args:
        captions, truth, vocabulary, claims: Same as in :func:`evidence`.
        name: Name of the system.

    Raises:
        InputErrors, InputError: If the input is invalid. The error lists the faults by file and line, or by row.

    Example:
        >>> import scapo_eval
        >>> rows = [{"image_id": k, "caption": "A dog and a cat.", "objects": ["dog", "couch"]} for k in range(3)]
        >>> by_label = scapo_eval.labels(rows)
        >>> by_label
        <LabelRun captions: 3 labels (1 hallucinated, 1 missed), 3 captions, 3 images>
        >>> [(row["label"], row["hallucinated"], row["missed"]) for row in by_label.rows]
        [('cat', 3, 0), ('dog', 0, 0), ('couch', 0, 3)]
    """
    system, given = _given(captions, truth, vocabulary, claims, name)
    run = score_labels(given.captions, given.vocabulary, given.oracle, given.options, name=system)
    _check_unchanged(captions, run.scores)
    return run


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
