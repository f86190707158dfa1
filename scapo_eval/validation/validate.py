"""Measurement of how well metrics agree with human judgments, and tests for differences between metrics."""

from __future__ import annotations

import os
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..base.errors import InputError, check_choice, short_repr
from ..benchmarks.scoring import ScoringOptions
from ..benchmarks.systems import sources_of
from ..files.records import Given, readable
from ..matching.uses import READINGS, Reading
from ..matching.vocabulary import Vocabulary, VocabularyGiven
from ..results.metric import Floats, divide
from ..results.results import Resampling
from ..results.signature import Signature
from ..results.stats import DEFAULT_RESAMPLES, DEFAULT_SEED, holm
from ..truths.claim_oracle import ClaimOracle
from ..truths.oracle import PresenceOracle, Truth, TruthGiven
from ..truths.references import Beside, References, ReferencesGiven, Unnamed
from ..truths.scenes import Scenes
from .agreement import Pairing, ResampledImages, interval_of, p_value_of
from .halves import Half
from .judgements import MIN_ITEMS, Judgements, Range
from .spans import SPAN_DECIDED, SPAN_METRICS, SPAN_SHARE, marked_facts, span_claims, span_counts
from .values import Measures, Texts, read_scores

DEFAULT_METRICS = ("hal_rate", "cover_rate", "cap_score", "cover_weighted", "cover_words", "cap_people", "length")
"""Default metrics. A metric is shown only if the data that it needs is available."""


@dataclass(frozen=True)
class Agreement:
    """Agreement between one metric and one rating, measured by one statistic.

    Attributes:
        metric, rating, statistic: Names of the metric, the rating, and the measure of their agreement.
        value: Value of the statistic, or None if the statistic is undefined.
        low: Lower bound of the 95 % confidence interval, computed from resampled images.
        high: Upper bound of the 95 % confidence interval.
        n: Number of items with both a metric value and a rating.
        n_images: Number of distinct images of the items with both a metric value and a rating.
    """

    metric: str
    rating: str
    statistic: str
    value: float | None
    low: float | None
    high: float | None
    n: int
    n_images: int


@dataclass(frozen=True)
class Difference:
    """Difference between the agreement of a metric and that of the baseline metric, computed on the same items and the
    same resamples.

    Attributes:
        metric, baseline, rating, statistic: Names of the compared metrics, the rating and the statistic.
        difference: Agreement of the metric minus agreement of the baseline.
        low: Lower bound of the 95 % confidence interval of the difference.
        high: Upper bound of the 95 % confidence interval of the difference.
        p_value: Two-sided bootstrap p-value for the difference.
        p_holm: P-value after Holm's correction for the number of compared metrics.
        n: Number of items.
    """

    metric: str
    baseline: str
    rating: str
    statistic: str
    difference: float | None
    low: float | None
    high: float | None
    p_value: float | None
    p_holm: float | None
    n: int


@dataclass(frozen=True)
class SystemMeans:
    """Mean ratings and mean metric values of the texts of one system.

    Attributes:
        system: Name of the system.
        n: Number of texts.
        means: Mapping from each rating and metric to its mean, or to None if the mean is undefined.
    """

    system: str
    n: int
    means: Mapping[str, float | None]


@dataclass(frozen=True)
class Validation:
    """Agreement between metrics and a set of judgments.

    Attributes:
        judgements: Set of judgments.
        signature: Settings that are needed to reproduce the values.
        agreements: Agreement between each metric and each rating.
        differences: Difference between each metric's agreement and the agreement of the first metric.
        systems: Mean ratings and metrics of each system, if the set contains the names of the systems.
        notes: Notes for the reader, one sentence each.
    """

    judgements: Judgements
    signature: Signature
    agreements: tuple[Agreement, ...]
    differences: tuple[Difference, ...]
    systems: tuple[SystemMeans, ...]
    notes: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return f"<Validation {self.judgements.name}: {len(self.agreements)} agreements>"

    def value(self, metric: str, rating: str, statistic: str) -> float | None:
        """Returns the value of one statistic for a metric and a rating. Raises KeyError if there is no such value."""
        for agreement in self.agreements:
            if (agreement.metric, agreement.rating, agreement.statistic) == (metric, rating, statistic):
                return agreement.value
        raise KeyError((metric, rating, statistic))

    def to_dict(self) -> dict[str, Any]:
        """Returns the object that ``--json`` writes. Fractions are not rounded."""
        items = self.judgements.items
        return {
            "set": self.judgements.name,
            "source": self.judgements.source,
            "n_items": len(items),
            "n_images": len({item.image for item in items}),
            "signature": str(self.signature),
            "agreements": [asdict(agreement) for agreement in self.agreements],
            "differences": [asdict(difference) for difference in self.differences],
            "systems": [{"system": s.system, "n": s.n, "means": dict(s.means)} for s in self.systems],
            "notes": list(self.notes),
        }


def validate(
    judgements: Given | Judgements,
    *,
    set_name: str | None = None,
    metrics: Sequence[str] = (),
    scores: Mapping[str, Given] | None = None,
    ratings: Sequence[str] = (),
    truth: TruthGiven | None = None,
    scenes: Given | Sequence[str | os.PathLike[str]] = (),
    references: ReferencesGiven | None = None,
    leave_out_self: bool = False,
    unnamed: Unnamed | None = None,
    weights: Given | None = None,
    vocabulary: VocabularyGiven | None = None,
    claims: Reading = "all",
    half: Half | None = None,
    without: Sequence[str] = (),
    ranges: Mapping[str, Range] | None = None,
    resamples: int = DEFAULT_RESAMPLES,
    seed: int = DEFAULT_SEED,
) -> Validation:
    """Measures the agreement between metrics and human judgments.

    Args:
        judgements: File or records of ratings, pairs or marked spans; see
            :meth:`~scapo_eval.validation.judgements.Judgements.load`.
        set_name: Name of the set, for files whose fields match several sets.
        metrics: Metrics of this project, or ``cider_d``, ``bleu_4``, ``rouge_l`` (extra ``ngrams``) or ``length``. The
            first metric is the baseline with which the other metrics are compared. If ``metrics`` is empty, the
            function uses all metrics that the given ground truth or references define.
        scores: Mapping from the name of an additional metric to its scores, as a file or records with ``id`` and
            ``score``.
        ratings: Names of the dimensions to use. If ``ratings`` is empty, all dimensions are used,
            except those with the same rating for every item.
        truth, references, leave_out_self, unnamed, weights, vocabulary, claims: Arguments of :func:`scapo_eval.score`.
            If no references are given, the references in the set of judgments are used.
        scenes: Ground truths of claims beyond presence, for marked spans and FAITHSCORE's facts; see
            :func:`scapo_eval.claims`.
        half: Half of the images to use (see :mod:`scapo_eval.validation.halves`), or None to use all images.
        without: Names of systems whose texts are excluded when the agreements are computed. The means of the excluded
            systems are still shown.
        ranges: Mapping from each dimension to its minimum and maximum rating, for custom sets.
        resamples: Number of bootstrap resamples.
        seed: Seed for the random numbers.

    Raises:
        InputErrors, InputError: If the input is invalid, ratings are constant, missing or out of range, or the number
            of items is too small. The errors state the file and line of each fault.
        MissingExtra: If an n-gram metric is requested and the extra ``ngrams`` is not installed.

    Example:
        >>> import scapo_eval
        >>> texts = ["A dog and a cat." if k % 3 else "A dog." for k in range(60)]
        >>> rated = [
        ...     {"id": str(k), "image_id": k, "caption": text, "rating": 2 if "cat" in text else 3}
        ...     for k, text in enumerate(texts)
        ... ]
        >>> checked = scapo_eval.validate(rated, truth={k: ["dog"] for k in range(60)}, metrics=["hal_rate"])
        >>> round(checked.value("hal_rate", "rating", "pearson"), 6)
        1.0
    """
    check_choice("claims", claims, READINGS)
    Resampling(resamples, seed)  # checks both values
    without = (without,) if isinstance(without, str) else tuple(without)
    if scores is not None and not isinstance(scores, Mapping):
        raise InputError(f"scores must be a mapping from names to files or records, got {short_repr(scores)}")
    if half is not None:
        check_choice("half", half, ("fit", "report"))
    loaded = judgements
    if not isinstance(loaded, Judgements):
        loaded = Judgements.load(readable(loaded), name=set_name, ranges=ranges)
    everything = loaded if half is None else loaded.half(half)
    judged = everything.without_systems(without) if everything.items else everything
    if not judged.items:
        raise InputError("no item is left", path=loaded.source)
    given = References.of(references) if references is not None else _own_references(loaded)
    beside = Beside.of(given, weights, unnamed, leave_out_self)
    oracle = None if truth is None else PresenceOracle.of(truth)
    labels = Vocabulary.of(beside.default_vocabulary(oracle) if vocabulary is None else vocabulary)
    options = ScoringOptions(claims)
    _refuse_strangers(everything, given)
    held_against = _truth(beside, oracle, labels, claims)
    known = tuple(Scenes.load(source, labels) for source in sources_of(scenes))
    claim_oracle = ClaimOracle(labels, held_against.oracle if held_against else None, known)
    of_claims = partial(_claim_agreements, oracle=claim_oracle, resamples=resamples, seed=seed)
    decisive = {
        "set": loaded.name,
        "half": half,
        "without": ",".join(without) or None,
        "vocab": labels.identity if held_against else None,
        "oracle": held_against.oracle.fingerprint if held_against else None,
        "scenes": "+".join(each.fingerprint for each in known) or None,
        "claims": claims,
        **(held_against.signature_fields if held_against else {}),
    }
    sized = {"n": len(judged.items), "bs": resamples, "seed": seed}
    sample = ResampledImages.of([item.image for item in judged.items], resamples=resamples, seed=seed)
    if judged.marked:
        if held_against is None:
            raise InputError("marked parts require a ground truth (--truth)", path=loaded.source)
        given_in_vain = {"metric": metrics, "scores": scores, "rating": ratings, "claims": claims != "all"}
        for option in filter(given_in_vain.get, given_in_vain):
            raise InputError(f"--{option} has no effect on marked parts", path=loaded.source)
        return Validation(
            judged,
            Signature.of("validate", **{**decisive, "claims": None}, **sized),
            (*_span_agreements(judged, held_against, sample), *of_claims(judged)),
            (),
            (),
            (*_notes(judged, held_against), *claim_oracle.notes),
        )
    if known and not judged.statements:
        raise InputError("--scenes has an effect only on marked parts and FAITHSCORE's facts", path=loaded.source)
    measures = Measures(held_against, options, {} if given is None else given.texts, loaded.statements)
    columns = {name: read_scores(readable(column), loaded) for name, column in (scores or {}).items()}
    if taken := [name for name in columns if name in measures.known]:
        raise InputError(f"'{taken[0]}' is the name of a metric; give the scores another name", path=loaded.source)
    chosen = list(metrics) or [name for name in DEFAULT_METRICS if name in measures.known]
    values = _values(measures, chosen, everything)
    defined = {name: column for name, column in values.items() if not np.isnan(column).all()}
    if not metrics and len(defined) > 1:  # references alone, for example, do not define hal_rate
        values = defined
    kept = {item.id for item in everything.items}
    in_half = np.array([item.id in kept for item in loaded.items], dtype=bool)
    values |= {name: column[in_half] for name, column in columns.items()}
    constant = [] if ratings else _constant(judged)
    dimensions = list(ratings) or [name for name in judged.dimensions if name not in constant]
    if not dimensions:
        raise InputError("no item has a rating", path=loaded.source)
    rows = np.array([item.system not in without for item in everything.items], dtype=bool)
    pairings = {
        (name, rating): Pairing(column[rows], judged.rating(rating), sample, judged.pairs)
        for rating in dimensions
        for name, column in values.items()
    }
    agreements, differences = _agreements(pairings, list(values), dimensions, loaded.source)
    if judged.statements and "true" in dimensions:
        agreements += of_claims(marked_facts(judged))
    return Validation(
        judged,
        Signature.of("validate", **decisive, **sized),
        tuple(agreements),
        tuple(differences),
        tuple(_systems(everything, measures.inverted, values, dimensions)),
        (
            *(f"rating '{name}' is equal for every item and is omitted" for name in constant),
            *_notes(everything, held_against),
            *claim_oracle.notes,
        ),
    )


def _constant(judgements: Judgements) -> list[str]:
    """Returns the names of the ratings that are equal for all items, provided that others are not."""
    values = {name: {item.ratings.get(name) for item in judgements.items} - {None} for name in judgements.dimensions}
    found = [name for name, different in values.items() if len(different) == 1]
    return found if len(found) < len(values) else []


def _own_references(judgements: Judgements) -> References | None:
    texts = judgements.references
    return References(judgements.source, texts) if texts else None


def _refuse_strangers(judgements: Judgements, references: References | None) -> None:
    lacking = [item for item in judgements.items if references is not None and item.image not in references.texts]
    if references is not None and lacking:
        reason = f"{len(lacking):,} items have no references, image '{lacking[0].image}' for example"
        raise InputError(f"{reason} (not in {references.source})", path=judgements.source, line=lacking[0].line)


def _truth(beside: Beside, oracle: PresenceOracle | None, labels: Vocabulary, claims: Reading) -> Truth | None:
    truth = beside.truth(oracle, labels, claims)
    return truth if truth is None or isinstance(truth, Truth) else Truth.of(truth, labels)


def _values(measures: Measures, metrics: Sequence[str], judgements: Judgements) -> dict[str, Floats]:
    images = [item.image for item in judgements.items]
    values = measures.values(metrics, Texts(images, [item.caption for item in judgements.items]))
    if not judgements.pairs:
        return values
    rivals = measures.values(metrics, Texts(images, [item.rival or "" for item in judgements.items]))
    return {name: column - rivals[name] for name, column in values.items()}


def _agreements(
    pairings: Mapping[tuple[str, str], Pairing], metrics: Sequence[str], ratings: Sequence[str], source: str
) -> tuple[list[Agreement], list[Difference]]:
    agreements, differences = list[Agreement](), list[Difference]()
    for rating in ratings:
        of_rating = list[Difference]()
        first = pairings[metrics[0], rating]
        for name in metrics:
            pairing = pairings[name, rating]
            n = int(pairing.there.sum())
            if n < MIN_ITEMS:
                raise InputError(
                    f"{n} items have both '{name}' and '{rating}'; at least {MIN_ITEMS} are required", path=source
                )
            images = len(set(pairing.sample.group[pairing.there].tolist()))
            for statistic in pairing.statistics():
                resampled = pairing.resampled(statistic)
                interval = interval_of(resampled)
                value = None if np.isnan(resampled[0]) else float(resampled[0])
                agreements.append(Agreement(name, rating, statistic, value, interval.low, interval.high, n, images))
            if name != metrics[0]:
                of_rating += _differences(name, pairing, metrics[0], first, rating)
        for kind in dict.fromkeys(difference.statistic for difference in of_rating):
            family = [difference for difference in of_rating if difference.statistic == kind]
            corrected = holm([difference.p_value for difference in family])
            differences += [replace(difference, p_holm=p) for difference, p in zip(family, corrected, strict=True)]
    return agreements, differences


def _differences(name: str, ours: Pairing, baseline: str, theirs: Pairing, rating: str) -> Iterator[Difference]:
    both = ours.there & theirs.there
    if both.sum() < MIN_ITEMS:
        return
    shared = [replace(pairing, values=np.where(both, pairing.values, np.nan)) for pairing in (ours, theirs)]
    for statistic in shared[0].statistics():
        if statistic in shared[1].statistics():
            gaps = shared[0].resampled(statistic) - shared[1].resampled(statistic)
            interval = interval_of(gaps)
            gap, n = None if np.isnan(gaps[0]) else float(gaps[0]), int(both.sum())
            p = p_value_of(gaps)
            yield Difference(name, baseline, rating, statistic, gap, interval.low, interval.high, p, p, n)


def _span_agreements(judged: Judgements, truth: Truth, sample: ResampledImages) -> Iterator[Agreement]:
    marked = np.array([item.spans is not None for item in judged.items])
    known = marked & (truth.oracle.find_rows([item.image for item in judged.items]) >= 0)
    n, images = int(known.sum()), len(set(sample.group[known].tolist()))
    if n < MIN_ITEMS:
        reason = f"{n} captions with marked parts are of images in the ground truth; at least {MIN_ITEMS} are required"
        raise InputError(reason, path=judged.source)
    for claims in READINGS:
        sums = np.zeros((sample.n_images, 4))
        np.add.at(sums, sample.group, span_counts(judged, truth, claims).astype(np.float64))
        flagged, right, wrong, seen = (sample.weights() @ sums).T
        precision, recall = divide(right, flagged), divide(seen, wrong)
        for name, values in zip(SPAN_METRICS, (precision, recall, _f1(precision, recall)), strict=True):
            interval, value = interval_of(values), None if np.isnan(values[0]) else float(values[0])
            yield Agreement(f"claims={claims}", "wrong", name, value, interval.low, interval.high, n, images)


def _claim_agreements(judged: Judgements, oracle: ClaimOracle, resamples: int, seed: int) -> Iterator[Agreement]:
    """Yields, for each kind of claim, how many of the spans marked as wrong hold such a claim, and how well the claims
    that the oracle calls false match these spans.
    """
    images = [item.image for item in judged.items if item.spans is not None]
    sample = ResampledImages.of(images, resamples=resamples, seed=seed)
    for kind, counts in span_claims(judged, oracle).items():
        sums = np.zeros((sample.n_images, counts.shape[1]))
        np.add.at(sums, sample.group, counts.astype(np.float64))
        wrong, held, decided, false, right, seen = (sample.weights() @ sums).T
        precision, recall = divide(right, false), divide(seen, wrong)
        for name, statistic, values in (
            (f"holds {kind}", SPAN_SHARE, divide(held, wrong)),
            (f"kind={kind}", SPAN_DECIDED, divide(decided, wrong)),
            *(
                (f"kind={kind}", *of)
                for of in zip(SPAN_METRICS, (precision, recall, _f1(precision, recall)), strict=True)
            ),
        ):
            interval, value = interval_of(values), None if np.isnan(values[0]) else float(values[0])
            yield Agreement(name, "wrong", statistic, value, interval.low, interval.high, len(images), sample.n_images)


def _f1(precision: Floats, recall: Floats) -> Floats:
    return divide(2 * precision * recall, precision + recall)


def _systems(
    judgements: Judgements, inverted: Container[str], values: Mapping[str, Floats], ratings: Sequence[str]
) -> Iterator[SystemMeans]:
    names = sorted({item.system for item in judgements.items if item.system is not None})
    every = {rating: _raw(judgements, rating) for rating in ratings} | {
        name: 1 - column if name in inverted and not judgements.pairs else column for name, column in values.items()
    }
    for name in names:
        rows = np.array([item.system == name for item in judgements.items], dtype=bool)
        means = {key: _mean(column[rows]) for key, column in every.items()}
        yield SystemMeans(name, int(rows.sum()), means)


def _raw(judgements: Judgements, rating: str) -> Floats:
    given = (item.ratings.get(rating) for item in judgements.items)
    return np.array([np.nan if value is None else value for value in given], dtype=np.float64)


def _mean(values: NDArray[np.float64]) -> float | None:
    known = values[~np.isnan(values)]
    return float(known.mean()) if len(known) else None


def _notes(judgements: Judgements, truth: Truth | None) -> Iterable[str]:
    if truth is not None:
        unknown = int((truth.oracle.find_rows([item.image for item in judgements.items]) < 0).sum())
        if unknown:
            yield f"{unknown:,} items have no values of metrics that need a ground truth: their images are not in it"
        yield from truth.notes
