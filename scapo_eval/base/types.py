"""The few central records: a mention, a subsentence, an answer, an interval."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from .reprs import fields_in_short

State = Literal[1, 0, -1]
"""What an oracle says of (image, label): present, absent, unknown."""

LabelSet = Literal["closed", "open-axis", "total", "partial"]
"""What absence from a truth means. ``closed``: absent within the source's label axis, unknown outside it.
``open-axis``: any label that is not listed is absent (a map without an axis of its own). ``total``: every cell is
given, in a matrix. ``partial``: unknown, unless the source has verified its absence (LVIS, Open Images)."""

Rule = Literal["subsentence", "sentence", "clause", "object", "response", "discourse"]
"""How a response is cut into pieces (docs/specification.md#subsentences)."""


Use = Literal["claim", "hedged", "comparison", "generic", "purpose", "modifier", "question", "quoted", "negated"]
"""What a caption does with the words of a mention (docs/specification.md#uses); of several the last one here counts."""


@dataclass(frozen=True, slots=True)
class Mention:
    """A label's alias in a text: ``text[start:end] == surface``.

    Attributes:
        start: index of the first character in the ORIGINAL string.
        end: index after the last character.
        label: canonical label of the vocabulary.
        surface: the text itself, as written.
        use: what the caption does with it; only a ``claim`` says plainly that the thing is in the image.
    """

    start: int
    end: int
    label: str
    surface: str
    use: Use = "claim"


@dataclass(frozen=True, slots=True)
class Subsentence:
    """One piece ``text[start:end]`` of a response; the pieces partition it."""

    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Answer:
    """One model's answer to one yes/no question, as read from whichever file the user has.

    Attributes:
        id: the question's id as written there, numbers as their decimal digits; what answers are joined by.
        response: the model's own words.
        image: file name or id of the image, None if the file does not say.
        question: the question's text.
        label: ``yes`` or ``no``, None if the file holds no truth.
        benchmark: name of the benchmark whose question it answers.
        category: ``adversarial``, ``popular``, ``random``...
        mode: how it was asked: ``base``, ``sec``, ``icc``, ``ccs``.
        task: what it asks about: ``object``, ``attribute``...
        model: who answered.
        agrees: whether a judge found that it says the same as the answer about the original figure (HallusionBench's
            ``same``), None if none was asked.
        line: 1-based line (or array element, or row) of the file.
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
    """A confidence interval; both bounds are None if the metric has no value."""

    low: float | None
    high: float | None
