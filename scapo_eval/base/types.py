"""Record types for mentions, subsentences, answers and intervals, used throughout the package."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from .reprs import fields_in_short

State = Literal[1, 0, -1]
"""State of an (image, label) cell: present (1), absent (0) or unknown (-1)."""

LabelSet = Literal["closed", "open-axis", "total", "partial"]
"""Meaning of a label that a ground truth does not list for an image.

``closed``: absent within the source's label axis, unknown outside of it. ``open-axis``: absent (a map without a label
axis). ``total``: impossible, because a matrix defines every cell. ``partial``: unknown, unless the source has verified
the absence (LVIS, Open Images).
"""

Rule = Literal["subsentence", "sentence", "clause", "object", "response", "discourse"]
"""Name of a segmentation rule (docs/specification.md#subsentences)."""


Use = Literal["claim", "hedged", "comparison", "generic", "purpose", "modifier", "question", "quoted", "negated"]
"""Use of a mention in a caption (docs/specification.md#uses).

If several uses apply, the last one in this list counts.
"""


@dataclass(frozen=True, slots=True)
class Mention:
    """An occurrence of a label's alias in a text, such that ``text[start:end] == surface``.

    Attributes:
        start: Index of the mention's first character in the ORIGINAL string.
        end: Index after the mention's last character.
        label: Canonical label in the vocabulary.
        surface: Text of the mention, exactly as written.
        use: Function of the mention in the caption, such as ``claim`` or ``negated``. Only the use ``claim`` means that
            the caption states that the object is in the image.

    Example:
        >>> import scapo_eval
        >>> [mention] = scapo_eval.AliasMatcher(scapo_eval.Vocabulary.load("coco80")).find("A puppy sleeps.")
        >>> mention
        Mention(start=2, end=7, label='dog', surface='puppy', use='claim')
    """

    start: int
    end: int
    label: str
    surface: str
    use: Use = "claim"


@dataclass(frozen=True, slots=True)
class Subsentence:
    """One piece ``text[start:end]`` of a response. The pieces partition the response.

    Example:
        >>> import scapo_eval
        >>> text = "A dog sleeps here now. A cat is awake there."
        >>> [text[piece.start : piece.end] for piece in scapo_eval.split_subsentences(text)]
        ['A dog sleeps here now. ', 'A cat is awake there.']
    """

    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Answer:
    """Answer of one model to one yes/no question, read from a file in any supported layout.

    Attributes:
        id: Question id from the file, by which answers are joined with questions. Numeric ids are converted to decimal
            digits.
        response: Text of the model's answer.
        image: File name or id of the image, or None if the file contains neither.
        question: Text of the question.
        label: Correct answer, ``yes`` or ``no``, or None if the file does not contain the correct answer.
        benchmark: Name of the benchmark that contains the question.
        category: Question category, such as ``adversarial``, ``popular`` or ``random``.
        mode: Prompt variant: ``base``, ``sec``, ``icc`` or ``ccs``.
        task: Subject of the question, such as ``object`` or ``attribute``.
        model: Model that gave the answer.
        agrees: True if a judge found that the answer agrees with the answer about the original figure (``same`` in
            HallusionBench). The value is None if no judge was asked.
        line: Number of the line, array element or row in the file, counted from 1.
    """

    id: str
    response: str
    image: str | None = None
    question: str | None = None
    label: str | None = None
    benchmark: str | None = None
    category: str | None = None
    mode: str | None = None
    task: str | None = None
    model: str | None = None
    agrees: bool | None = None
    line: int = 0

    __repr__ = fields_in_short


@dataclass(frozen=True, slots=True)
class Interval:
    """A confidence interval. The lower and the upper bound are None if the metric has no value."""

    low: float | None
    high: float | None
