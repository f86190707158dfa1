"""Values of metrics per caption: metrics of this project, n-gram metrics, and external scores."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..base.errors import FaultList, InputError, short_repr
from ..benchmarks.capscore import CaptionScorer
from ..benchmarks.scoring import ScoringOptions
from ..files.files import display_name
from ..files.json_text import iter_records
from ..files.records import Readable
from ..matching.words import tokens
from ..readers.captions import Captions
from ..results.metric import Floats, Sums, divide, harmonic_mean
from ..truths.oracle import Truth
from .judgements import Judgements
from .ngrams import NGRAMS, ngram_scores

_BATCH = 4096


@dataclass(frozen=True)
class Texts:
    """Captions and their images, one per item."""

    images: Sequence[str]
    captions: Sequence[str]


@dataclass(frozen=True)
class Measures:
    """Available measures of captions.

    Attributes:
        truth: Ground truth of the images, including references if available, or None without a ground truth.
        options: Settings for the reading of captions.
        references: Image -> reference captions, for n-gram metrics.
        statements: True if texts are single statements.
    """

    truth: Truth | None
    options: ScoringOptions
    references: Mapping[str, Sequence[str]]
    statements: bool = False

    @property
    def own(self) -> tuple[str, ...]:
        """Available metrics of this project."""
        return () if self.truth is None else tuple(self._scorer(self.truth).metric_set.formulas)

    def _scorer(self, truth: Truth) -> CaptionScorer:
        return CaptionScorer.of(truth, None, self.options, people=True)

    @property
    def known(self) -> tuple[str, ...]:
        """All available metrics."""
        return (*self.own, *(NGRAMS if self.references else ()), "length")

    def values(self, metrics: Sequence[str], texts: Texts) -> dict[str, Floats]:
        """Returns metric -> (n,) values, for which greater is better. Error rates are therefore subtracted from 1.

        A caption without claims has no Hal. Rate. In this function, such a caption counts as correct. A statement
        without claims has no value.

        Raises:
            InputError: If a metric is unknown, or needs a missing ground truth or missing references.
            MissingExtra: If an n-gram metric is requested without its package.
        """
        for name in metrics:
            if name not in self.known:
                raise InputError(f"metric '{name}' not found (there are: {', '.join(self.known)}){_hint(name, self)}")
        values: dict[str, Floats] = {}
        if self.truth is not None and any(name in self.own for name in metrics):
            values |= self._own_values(self.truth, texts)
        for name in metrics:
            if name in NGRAMS:
                values[name] = ngram_scores(name, texts.images, texts.captions, self.references)
        values["length"] = np.array([len(tokens(caption)) for caption in texts.captions], dtype=np.float64)
        return {name: values[name] for name in metrics}

    def _own_values(self, truth: Truth, texts: Texts) -> dict[str, Floats]:
        scorer = self._scorer(truth)
        parts, known = [], truth.oracle.find_rows(texts.images) >= 0
        known_captions = np.flatnonzero(known).tolist()
        for first in range(0, len(known_captions), _BATCH):
            rows = known_captions[first : first + _BATCH]
            images = [texts.images[k] for k in rows]
            captions = Captions(image_ids=images, captions=[texts.captions[k] for k in rows])
            parts.append(scorer.count(captions, [truth.oracle.find_rows(images)]).counts)
        counts = np.concatenate(parts) if parts else np.zeros((0, len(scorer.columns)), dtype=np.int64)
        sums = {name: counts[:, k].astype(np.float64) for k, name in enumerate(scorer.columns)}
        better = scorer.metric_set.higher_is_better
        columns = {}
        for name, formula in scorer.metric_set.formulas.items():
            values = formula(sums)
            if not self.statements:
                values = _where_nothing_is_claimed(name, sums, values)
            columns[name] = np.full(len(texts.captions), np.nan)
            columns[name][known_captions] = values if better[name] else 1 - values
        return columns


def _where_nothing_is_claimed(name: str, sums: Sums, values: Floats) -> Floats:
    """Returns the values, in which captions without claims count as correct if the ground truth contains absent
    labels.
    """
    silent = (sums["generated"] == 0) & (sums.get("absent", sums["captions"]) > 0)
    if name in ("hal_rate", "chair_i", "chair_s"):
        return np.where(silent, 0.0, values)
    pairs = {"cap_score": ("covered", "truth"), "cap_weighted": ("covered_weight", "truth_weight")}
    if name not in pairs:
        return values
    covered, truth = pairs[name]
    return np.where(silent, harmonic_mean(np.ones_like(values), divide(sums[covered], sums[truth])), values)


def _hint(name: str, measures: Measures) -> str:
    if name in NGRAMS or name in ("cover_weighted", "cap_weighted", "cover_words", "named_words", "named_rate"):
        return "; it needs references (--references)"
    return "" if measures.truth is not None else "; those of captions need a truth (--truth, --references)"


def read_scores(path: Readable, judgements: Judgements, key: str = "score") -> NDArray[np.float64]:
    """Returns external scores, for which greater is better.

    Args:
        path: Records of ``id`` and a number under ``key``.
        judgements: Judgments whose items are joined with the scores by ``id``.
        key: Field of the score.

    Returns:
        (items,) scores, with NaN for missing scores.

    Raises:
        InputErrors: If records are invalid. The error lists the faults by line.
        InputError: If no item has a score.
    """
    source, faults = display_name(path), FaultList()
    place = {item.id: k for k, item in enumerate(judgements.items)}
    scores, given = np.full(len(place), np.nan), set[str]()
    for number, record in iter_records(path):
        item, value = record.get("id"), record.get(key)
        if item is None:
            faults.add(InputError("missing key 'id'", path=source, line=number))
        elif str(item) in given:
            faults.add(InputError(f"id '{item}' appears twice", path=source, line=number))
        elif str(item) not in place:
            faults.add(InputError(f"id '{item}' matches no item of {judgements.source}", path=source, line=number))
        elif value is not None and (isinstance(value, bool) or not isinstance(value, (int, float))):
            faults.add(InputError(f"'{key}' must be a number, got {short_repr(value)}", path=source, line=number))
        else:
            given.add(str(item))
            scores[place[str(item)]] = np.nan if value is None else value
    faults.raise_if_any()
    if np.isnan(scores).all():
        raise InputError(f"no item of {judgements.source} has a '{key}'", path=source)
    return scores
