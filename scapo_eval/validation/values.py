"""Values of metrics for each caption, from this project's metrics, n-gram metrics, or external scores."""

from __future__ import annotations

import math
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
    """Texts of the captions and their image ids, with one entry per item."""

    images: Sequence[str]
    captions: Sequence[str]


@dataclass(frozen=True)
class Measures:
    """Computation of all metrics that are available for a set of captions.

    Attributes:
        truth: Ground truth of the images (including references if available), or None if there is no ground truth.
        options: Settings that determine how captions are read.
        references: Mapping from each image to its reference captions, for n-gram metrics.
        statements: True if the texts are single statements.
    """

    truth: Truth | None
    options: ScoringOptions
    references: Mapping[str, Sequence[str]]
    statements: bool = False

    @property
    def own(self) -> tuple[str, ...]:
        """Names of this project's metrics that can be computed with the given ground truth and references."""
        return () if self.truth is None else tuple(self._scorer(self.truth).metric_set.formulas)

    @property
    def inverted(self) -> frozenset[str]:
        """Names of the error rates, which :meth:`values` subtracts from 1."""
        better = {} if self.truth is None else self._scorer(self.truth).metric_set.higher_is_better
        return frozenset(name for name, is_better in better.items() if not is_better)

    def _scorer(self, truth: Truth) -> CaptionScorer:
        return CaptionScorer.of(truth, None, self.options, people=True)

    @property
    def known(self) -> tuple[str, ...]:
        """Names of all metrics that can be computed."""
        return (*self.own, *(NGRAMS if self.references else ()), "length")

    def values(self, metrics: Sequence[str], texts: Texts) -> dict[str, Floats]:
        """Returns a mapping from each metric to its (n,) values, for which greater values are better. Error rates are
        therefore subtracted from 1.

        ``hal_rate`` is undefined for a caption without claims. This function treats a caption without claims as
        correct, and returns NaN for a statement without claims.

        Raises:
            InputError: If a metric is unknown, or the ground truth or the references that it requires are missing.
            MissingExtra: If an n-gram metric is requested and the extra ``ngrams`` is not installed.
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
        inverted, columns = self.inverted, {}
        for name, formula in scorer.metric_set.formulas.items():
            values = formula(sums)
            if not self.statements:
                values = _where_nothing_is_claimed(name, sums, values)
            columns[name] = np.full(len(texts.captions), np.nan)
            columns[name][known_captions] = 1 - values if name in inverted else values
        return columns


def _where_nothing_is_claimed(name: str, sums: Sums, values: Floats) -> Floats:
    """Returns the values of a metric in which a caption without claims counts as correct, provided that labels are
    known to be absent from its image.
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
        return "; it requires references (--references)"
    return "" if measures.truth is not None else "; metrics of captions require a ground truth (--truth, --references)"


def read_scores(path: Readable, judgements: Judgements, key: str = "score") -> NDArray[np.float64]:
    """Reads external scores, for which greater values are better, and joins them with the judgments.

    Args:
        path: Path of a file with records, or the records themselves; each record contains ``id`` and a number in the
            field ``key``.
        judgements: Judgments whose items are joined with the scores by ``id``.
        key: Name of the field that contains the score.

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
        elif value is not None and math.isinf(value):
            faults.add(InputError(f"'{key}' must be finite, got {value}", path=source, line=number))
        else:
            given.add(str(item))
            scores[place[str(item)]] = np.nan if value is None else value
    faults.raise_if_any()
    if np.isnan(scores).all():
        raise InputError(f"no item of {judgements.source} has a '{key}'", path=source)
    return scores
