"""Intervals, the studentized permutation test and corrections against tables and literal transcriptions."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from scapo_eval.base.errors import InputError
from scapo_eval.benchmarks.capscore import capscore_metrics
from scapo_eval.benchmarks.counted import CountedBenchmark
from scapo_eval.benchmarks.yesno import yesno_metrics
from scapo_eval.results.comparison import compare
from scapo_eval.results.counts import CountTable
from scapo_eval.results.families import holm, tarone_holm
from scapo_eval.results.intervals import chi2_tail, intervals, t_quantile, t_tail, wilson
from scapo_eval.results.linear import linearized
from scapo_eval.results.metric import MetricSet, ratio
from scapo_eval.results.permutation import permutation_p_values
from scapo_eval.results.results import Run
from scapo_eval.results.signature import Signature
from scapo_eval.results.stats import bootstrap, confidence_intervals, few_events, mcnemar, paired_differences

RATE = MetricSet("toy", ("hits", "all"), {"rate": ratio("hits", "all")}, {"rate": False})
Counts = NDArray[np.int64]


def table(rows: Counts, metrics: MetricSet = RATE) -> CountTable:
    return CountTable(metrics.columns, tuple(f"{k:05}" for k in range(len(rows))), np.asarray(rows, dtype=np.int64))


def captions(n: int, seed: int, volume: int = 5, hal: float = 0.15) -> CountTable:
    """Counts of n captions with ``volume`` claims each."""
    rng = np.random.default_rng(seed)
    generated, truth = 1 + rng.poisson(volume - 1, n), 1 + rng.poisson(4, n)
    wrong, covered, more = rng.binomial(generated, hal), rng.binomial(truth, 0.6), rng.poisson(2, n)
    ones = np.ones(n, dtype=np.int64)
    columns = [ones, generated, wrong, covered, truth, generated + more, wrong, wrong > 0, 0 * ones]
    return table(np.stack(columns, axis=1), capscore_metrics())


# Quantiles; the figures of tables are scipy 1.16's


@pytest.mark.parametrize(
    ("p", "df", "t"),
    [(0.975, 5, 2.5706), (0.975, 10, 2.2281), (0.975, 29, 2.0452), (0.8, 29, 0.8542), (0.995, 200, 2.6006)],
)
def test_student(p: float, df: float, t: float) -> None:
    assert t_quantile(p, df) == pytest.approx(t, rel=0.004)
    assert t_quantile(1 - p, df) == -t_quantile(p, df)
    assert t_tail(t_quantile(p, df), df) == pytest.approx(1 - p, abs=1e-9)


@pytest.mark.parametrize(
    ("x", "df", "p"), [(3.84, 1, 0.050044), (1, 2, 0.606531), (7.5, 3, 0.057558), (20, 7, 0.005570), (0, 4, 1.0)]
)
def test_chi_squared(x: float, df: int, p: float) -> None:
    assert chi2_tail(x, df) == pytest.approx(p, abs=1e-6)


def test_wilson_by_scipy() -> None:
    assert wilson(3 / 200, 200) == pytest.approx((0.00511424, 0.04316573), abs=1e-8)
    assert wilson(0.0, 40)[0] == 0.0
    assert wilson(1.0, 40)[1] == 1.0


# Intervals


def test_one_claim_an_image_is_wilson_of_independent_trials() -> None:
    rows = np.array([[k % 4 == 0, 1] for k in range(400)])
    found = confidence_intervals(table(rows), RATE)["rate"]
    assert (found.low, found.high) == pytest.approx(wilson(0.25, 399, t_quantile(0.975, 399)), abs=1e-12)


def test_claims_that_are_alike_count_as_fewer() -> None:
    """Ten claims an image that are all right or all wrong: as good as one claim an image."""
    alone = np.array([[k % 4 == 0, 1] for k in range(400)])
    one, ten = (linearized(table(rows), RATE) for rows in (alone, 10 * alone))
    assert ten.sizes[0] == pytest.approx(one.sizes[0])
    assert 4 * ten.sizes[0] == pytest.approx(1600, rel=0.01)


def test_no_interval_has_no_width() -> None:
    clean = confidence_intervals(table(np.array([[0, 5]] * 40)), RATE)["rate"]
    assert clean.low == 0.0
    assert 0.01 < (clean.high or 0) < 0.03  # 200 claims, none wrong
    every = confidence_intervals(table(np.array([[5, 5]] * 40)), RATE)["rate"]
    assert (every.low, every.high) == pytest.approx((1 - (clean.high or 0), 1.0))
    half = confidence_intervals(table(np.array([[1, 2]] + [[0, 0]] * 39)), RATE)["rate"]  # one image says anything
    assert (half.high or 0) - (half.low or 0) > 0.9
    former = bootstrap(table(np.array([[0, 5]] * 40)), RATE)["rate"]
    assert (former.low, former.high) == (0.0, 0.0)
    same = table(np.array([[1, 4], [0, 3]] * 20))
    (row,) = paired_differences(same, same, RATE)
    assert (row.difference, row.n_differing, row.p_value) == (0.0, 0, 1.0)
    assert (row.interval.low or 0) < 0 < (row.interval.high or 0)


def test_few_events_have_poisson_s_lower_bound() -> None:
    """0.0513, 0.3554 and 0.8177 events: the 5 % quantiles of chi-squared with 2, 4 and 6 degrees of freedom, halved."""
    for events, bound in ((1, 0.0513), (2, 0.3554), (3, 0.8177)):
        rows = np.array([[k < events, 5] for k in range(200)])
        found = confidence_intervals(table(rows), RATE)["rate"]
        assert 1000 * (found.low or 0) == pytest.approx(bound, abs=0.02)
        assert few_events(table(rows), RATE) == {"rate": (events, events)}
    assert few_events(table(np.array([[2, 5]] * 40)), RATE) == {}


def test_metrics_made_of_shares_rest_on_the_rarest_event() -> None:
    """Cap. Score on three inventions in two images; F1 on two errors, not on the thirty right answers."""
    metrics = capscore_metrics()
    rows = np.array([{"generated": 4, "covered": 2, "truth": 4}.get(name, 0) for name in metrics.columns])
    counts = np.tile(rows, (30, 1))
    counts[:2, metrics.columns.index("hallucinated")] = 1, 2
    found = few_events(table(counts, metrics), metrics)
    assert (found["hal_rate"], found["cap_score"]) == ((3, 2), (3, 2))
    assert "cover_rate" not in found
    answers = yesno_metrics([""])
    right = np.zeros((32, len(answers.columns)), dtype=np.int64)
    right[:15, answers.columns.index("tp")] = right[15:30, answers.columns.index("tn")] = 1
    right[30, answers.columns.index("fp")] = right[31, answers.columns.index("fn")] = 1
    assert few_events(table(right, answers), answers)["f1"] == (2, 2)


def test_a_plain_number_has_student_s_interval() -> None:
    words = MetricSet("words", ("words", "texts"), {"len": ratio("words", "texts")}, {}, frozenset({"len"}))
    rng = np.random.default_rng(1)
    lengths = rng.poisson(80, 50)
    rows = np.stack([lengths, np.ones(50, dtype=np.int64)], axis=1)
    found = confidence_intervals(table(rows, words), words)["len"]
    half = 2.0096 * lengths.std(ddof=1) / math.sqrt(50)  # Student's quantile of 49 degrees of freedom
    assert (found.low, found.high) == pytest.approx((lengths.mean() - half, lengths.mean() + half), rel=1e-4)
    alike = confidence_intervals(table(np.array([[10, 1]] * 40), words), words)["len"]
    assert (alike.low, alike.high) == (None, None)


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.slow
def test_all_metrics_agree_with_the_bootstrap_on_many_images(seed: int) -> None:
    """Ratios, a harmonic mean and F1: the two kinds of interval differ by less than their error."""
    rng = np.random.default_rng(seed)
    metrics = yesno_metrics(["a", "b"])
    answers = rng.integers(0, 3, (2000, len(metrics.columns))) * (rng.random((2000, len(metrics.columns))) < 0.6)
    for counts, known in ((captions(2000, seed), capscore_metrics()), (table(answers, metrics), metrics)):
        drawn = bootstrap(counts, known, resamples=4000)
        for name, found in confidence_intervals(counts, known).items():
            width = (drawn[name].high or 0) - (drawn[name].low or 0)
            assert found.low == pytest.approx(drawn[name].low, abs=0.08 * width), name
            assert found.high == pytest.approx(drawn[name].high, abs=0.08 * width), name


def test_linearized_metrics_are_their_values() -> None:
    metrics = capscore_metrics()
    counts = captions(300, 3)
    found = linearized(counts, metrics)
    assert found.numerators.sum(axis=0) / found.volumes.sum(axis=0) == pytest.approx(found.values, abs=1e-12)
    without = counts.rows.sum(axis=0) - counts.rows  # the jackknife: every image left out once
    for k, (name, values) in enumerate(metrics.score(without).items()):
        moved = found.values[k] - values
        assert np.corrcoef(moved, found.influences[:, k])[0, 1] > 0.999, name
        jackknife = (len(moved) - 1) / len(moved) * ((values - values.mean()) ** 2).sum()
        assert found.variances[k] == pytest.approx(jackknife, rel=0.03), name


# The test


def literal_statistic(a: Counts, b: Counts) -> float:
    """The studentized difference of two rates, written down as the documentation has it."""
    rates, deviations, sizes = [], [], []
    for rows in (a, b):
        hits, trials = rows.sum(axis=0).tolist()
        rate = hits / trials
        deviation = [(h - rate * t) / trials for h, t in rows.tolist()]
        variance, binomial = sum(d * d for d in deviation), rate * (1 - rate) / trials
        effect = variance / binomial if binomial else 1.0
        effect = max(effect, (len(rows) * effect + 10) / (len(rows) + 10)) if binomial else 1.0
        rates.append(rate)
        deviations.append(deviation)
        sizes.append(trials / effect)
    (x, y), (m, n) = rates, sizes
    common = (m * x + n * y) / (m + n)
    top = sum(d * e for d, e in zip(*deviations, strict=True))
    below = math.sqrt(sum(d * d for d in deviations[0]) * sum(e * e for e in deviations[1]))
    r = top / below if below else 0.0
    variance = common * (1 - common) * (1 / m + 1 / n - 2 * r / math.sqrt(m * n))
    return abs(x - y) / math.sqrt(variance) if variance > 0 else (0.0 if x == y else math.inf)


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_the_permutation_is_the_exact_one(seed: int) -> None:
    """Two systems that differ on eight of 40 images: all 256 swaps, each studentized anew."""
    rng = np.random.default_rng(seed)
    a = np.stack([rng.binomial(4, 0.3, 40), np.full(40, 4)], axis=1)
    b = a.copy()
    b[:8, 1] = 2
    b[:8, 0] = rng.binomial(2, 0.6, 8)
    observed = literal_statistic(a, b)
    hits = 0
    for swaps in itertools.product([False, True], repeat=8):
        x, y = a.copy(), b.copy()
        for k, swap in enumerate(swaps):
            if swap:
                x[k], y[k] = b[k], a[k]
        hits += literal_statistic(x, y) >= observed - 1e-9
    exact = hits / 256
    (found,) = permutation_p_values(*(linearized(table(r), RATE) for r in (a, b)), resamples=20_000, seed=seed)
    assert found == pytest.approx(exact, abs=4 * math.sqrt(exact * (1 - exact) / 20_000) + 1e-4)


@pytest.mark.parametrize(("worse", "better"), [(1, 0), (2, 1), (8, 2), (14, 6)])
def test_answers_that_differ_in_a_few_questions_are_tested_like_signs(worse: int, better: int) -> None:
    """Ties with the observed statistic count, also if the formula of a metric is not a ratio of two columns."""
    metrics = yesno_metrics([""])
    at = {name: metrics.columns.index(name) for name in ("tp", "fn", "tn", "fp")}
    right = np.zeros((200, len(metrics.columns)), dtype=np.int64)
    right[:100, at["tp"]] = right[100:, at["tn"]] = 1
    right[40:50], right[140:150] = 0, 0
    right[40:50, at["fn"]] = right[140:150, at["fp"]] = 1
    a, b = right.copy(), right.copy()
    for rows, wrong in ((a, range(worse)), (b, range(20, 20 + better))):
        rows[wrong, at["tp"]], rows[wrong, at["fn"]] = 0, 1
    n, least = worse + better, max(worse, better)
    exact = min(1.0, 2 * sum(math.comb(n, k) for k in range(least, n + 1)) / 2**n)
    found = {row.metric: row.p_value for row in paired_differences(table(a, metrics), table(b, metrics), metrics)}
    for name in ("accuracy", "recall", "f1", "yes_ratio"):
        assert found[name] == pytest.approx(exact, abs=0.03)


def test_systems_with_very_different_volumes_are_linearized_at_their_own_sums() -> None:
    """Of two systems with an equal caption score, one makes five times as many claims. The test must not reject more
    often than at its level; at the mean of their sums, it rejects 44 % of the samples."""
    rejected = 0
    for seed in range(100):
        rng = np.random.default_rng(seed)
        truth, tables = 1 + rng.poisson(2, 100), []
        for volume, hal, cover in ((10, 0.1, 0.6), (2, 0.3, 0.5 * 0.72 * 0.7 / (0.7 - 0.5 * 0.72))):
            generated = 1 + rng.poisson(volume - 1, 100)
            wrong, covered, one = rng.binomial(generated, hal), rng.binomial(truth, cover), np.ones(100, dtype=np.int64)
            columns = [one, generated, wrong, covered, truth, generated, wrong, wrong > 0, 0 * one]
            tables.append(table(np.stack(columns, axis=1), capscore_metrics()))
        found = {row.metric: row for row in paired_differences(*tables, capscore_metrics(), resamples=200, seed=seed)}
        rejected += (found["cap_score"].p_value or 1) <= 0.05
    assert rejected <= 11  # of 100 at 5 %, with a probability of 0.996


@pytest.mark.parametrize(("worse", "better"), [(1, 0), (2, 1), (8, 2), (14, 6)])
def test_captions_that_differ_in_a_few_images_are_tested_like_signs(worse: int, better: int) -> None:
    """If the systems differ only in hallucinated labels, one per image, the caption score has the p-value of signs."""
    one, two = np.ones(400, dtype=np.int64), np.full(400, 2)
    wrong = np.zeros((2, 400), dtype=np.int64)
    wrong[:, 300:340], wrong[0, :worse], wrong[1, 100 : 100 + better] = 1, 1, 1
    a, b = (
        table(np.stack([one, two, hits, one, two, two, hits, hits, 0 * one], axis=1), capscore_metrics())
        for hits in wrong
    )
    n, least = worse + better, max(worse, better)
    exact = min(1.0, 2 * sum(math.comb(n, k) for k in range(least, n + 1)) / 2**n)
    found = {row.metric: row for row in paired_differences(a, b, capscore_metrics())}
    for name in ("hal_rate", "cap_score", "chair_s"):
        assert found[name].p_value == pytest.approx(exact, abs=0.03)
        assert found[name].n_differing == n
    assert found["cap_score"].p_value == found["hal_rate"].p_value


def test_one_image_cannot_decide() -> None:
    """One caption in forty claims anything: two objects, one of them absent. The former test: p = 0.0010."""
    silent = table(np.array([[1, 2]] + [[0, 0]] * 39))
    rng = np.random.default_rng(2)
    claims = 1 + rng.poisson(4, 40)
    other = table(np.stack([rng.binomial(claims, 0.15), claims], axis=1))
    (row,) = paired_differences(silent, other, RATE)
    assert (row.p_value or 0) > 0.05
    assert row.detectable is None  # such a sample shows nothing
    low, high = row.interval.low or 0, row.interval.high or 0
    assert low < 0 < high


def test_names_and_order_of_images_do_not_matter() -> None:
    a, b = captions(120, 5), captions(120, 6, 3)
    order = np.random.default_rng(0).permutation(120)
    again = [replace(each, rows=each.rows[order]) for each in (a, b)]
    metrics = capscore_metrics()
    first, second = paired_differences(a, b, metrics), paired_differences(again[0], again[1], metrics)
    for one, two in zip(first, second, strict=True):
        assert (one.p_value, one.n_differing) == (two.p_value, two.n_differing)
        assert one.interval.low == pytest.approx(two.interval.low, abs=1e-12)


def test_a_swap_that_leaves_nothing_counts_as_a_hit() -> None:
    a = np.array([[1, 2]] + [[0, 0]] * 39)
    b = np.array([[0, 0]] + [[0, 3]] + [[0, 0]] * 38)  # a swap of either image leaves one system without a claim
    (row,) = paired_differences(table(a), table(b), RATE, resamples=400)
    assert (row.p_value or 0) > 0.4


def test_equivalence_is_claimed_of_equals_only() -> None:
    a, b = captions(3000, 7), captions(3000, 8)
    c = captions(3000, 9, hal=0.2)
    metrics = capscore_metrics()
    runs = [
        Run(name=name, signature=Signature.of("capscore"), metric_set=metrics, table=each, n_records=3000)
        for name, each in (("a", a), ("b", b), ("c", c))
    ]
    rows = {(row["system"], row["metric"]): row for row in compare(runs, margin=0.02).comparisons}
    assert rows["b", "hal_rate"]["p_equivalence"] < 0.05 < rows["c", "hal_rate"]["p_equivalence"]
    close = {row["metric"]: row for row in compare(runs[:2], margin=0.002).comparisons}
    assert close["hal_rate"]["p_equivalence"] > 0.05
    difference, error = (rows["b", "hal_rate"][name] for name in ("difference", "standard_error"))
    both = [0.5 * math.erfc((0.02 + sign * difference) / error / math.sqrt(2)) for sign in (1, -1)]
    assert rows["b", "hal_rate"]["p_equivalence"] == pytest.approx(max(both), rel=0.1)
    with pytest.raises(InputError, match="margin of equivalence must be above 0"):
        compare(runs, margin=0.0)


@pytest.mark.parametrize("hits", [0, 5])
def test_equivalence_without_events_is_decided_by_the_number_of_trials(hits: int) -> None:
    """No events in 300 trials: 0.99 ** 300 is 4.9 %, so a margin of one point is barely enough."""
    none = table(np.tile([hits, 5], (60, 1)))
    for margin, p in ((0.01, 0.99**300), (0.001, 0.999**300), (1.0, 0.0)):
        (row,) = paired_differences(none, none, RATE, margin=margin)
        assert row.p_equivalence == pytest.approx(p, rel=1e-9)
        assert (row.standard_error, row.detectable) == (None, None)
    (fewer,) = paired_differences(none, table(np.tile([hits // 5, 1], (60, 1))), RATE, margin=0.01)
    assert fewer.p_equivalence == pytest.approx(0.99**60)


def test_signed_metrics_are_not_fractions_whatever_their_value() -> None:
    """The bias of 100 answers that are wrong independently; bootstrap intervals are the reference."""
    signed = MetricSet(
        "toy", ("up", "down", "all"),
        {"bias": lambda sums: (sums["up"] - sums["down"]) / sums["all"]},
        at_most=(("up", "all"), ("down", "all")), signed=frozenset({"bias"}),
    )  # fmt: skip
    for up, down in ((8, 8), (9, 8), (8, 9)):
        rows = np.zeros((100, 3), dtype=np.int64)
        rows[:up, 0], rows[up : up + down, 1], rows[:, 2] = 1, 1, 2
        counts = table(rows, signed)
        found, drawn = confidence_intervals(counts, signed)["bias"], bootstrap(counts, signed)["bias"]
        assert (found.low, found.high) == pytest.approx((drawn.low, drawn.high), abs=0.01)
        (row,) = paired_differences(counts, table(np.roll(rows, 3, axis=0), signed), signed)
        assert row.standard_error == pytest.approx(np.sqrt(2 * (up + down) / 4) / 100, rel=0.3)


def test_the_joint_verdict_needs_all_its_parts() -> None:
    metrics = capscore_metrics()

    def verdict(*tables: CountTable) -> dict[str, float]:
        signature = Signature.of("capscore")
        runs = [
            Run(name=str(k), signature=signature, metric_set=metrics, table=each, n_records=9)
            for k, each in enumerate(tables)
        ]
        (found,) = compare(runs).verdicts
        assert found["metrics"] == ["hal_rate", "cover_rate"]  # Cap. Score is made of them
        return dict(found)

    base = captions(2000, 1, hal=0.2)
    better = verdict(base, captions(2000, 2, hal=0.15))
    assert better["p_value"] == max(better["p_better"], better["p_not_worse"])
    silent = captions(2000, 2, hal=0.15)
    silent.rows[:, 3] = np.minimum(silent.rows[:, 3], 1)  # covers less
    worse = verdict(base, silent)
    assert worse["p_better"] < 0.001 < 0.05 < worse["p_not_worse"]
    assert verdict(base, captions(2000, 3, hal=0.2))["p_better"] > 0.05


def test_the_range_of_an_own_benchmarks_rating_is_its_unit() -> None:
    stars = CountedBenchmark(
        name="stars", count=lambda record: {"all": 1, "stars": record["stars"]}, columns=("stars", "all"),
        formulas={"stars": ratio("stars", "all")}, plain_numbers=("stars",), ranges={"stars": 5},
    )  # fmt: skip
    assert stars.metric_set is not None
    assert stars.metric_set(stars.columns).margin("stars", 0.01, baseline=2.0) == 0.05
    with pytest.raises(InputError, match=r"'stars' has no metric 'star' \(there are: stars\)"):
        replace(stars, ranges={"star": 5})
    with pytest.raises(InputError, match=r"'stars' has no column 'words' \(there are: stars, all\)"):
        replace(stars, at_most=(("stars", "words"),))


def test_a_margin_is_a_share_of_the_range_or_of_the_baseline() -> None:
    """Ratings from 0 to 6 that fall by 0.3 are worse, although the rate improves; 0.3 of 1 rating was no loss before.
    Numbers without a range (words) are tested within percents of the baseline.
    """
    metrics = MetricSet(
        "toy", ("hits", "sum", "words", "all"),
        {"rate": ratio("hits", "all"), "score": ratio("sum", "all"), "words": ratio("words", "all")},
        {"rate": False, "score": True}, frozenset({"score", "words"}), ranges={"score": 6},
    )  # fmt: skip
    rng = np.random.default_rng(0)
    one = np.ones(500, dtype=np.int64)
    ratings, words = rng.integers(1, 7, 500), rng.integers(90, 110, 500)
    base = np.stack([rng.random(500) < 0.5, ratings, words, one], axis=1)
    other = np.stack([0 * one, ratings - (rng.random(500) < 0.3), words + rng.integers(-1, 2, 500), one], axis=1)
    runs = [
        Run(name=name, signature=Signature.of("toy"), metric_set=metrics, table=table(rows, metrics), n_records=500)
        for name, rows in (("base", base), ("other", other))
    ]
    (verdict,) = compare(runs).verdicts
    assert verdict["p_better"] < 0.001 < 0.95 < verdict["p_not_worse"]
    rows = {row["metric"]: row for row in compare(runs, margin=0.03).comparisons}
    assert [rows[name]["margin"] for name in metrics.formulas] == pytest.approx(
        [0.03, 0.18, 0.03 * rows["words"]["baseline_value"]]
    )
    assert rows["words"]["p_equivalence"] < 0.001 < 0.95 < rows["score"]["p_equivalence"]


# Corrections


def test_tarone_leaves_out_what_cannot_be_significant() -> None:
    """60 labels changed, 56 of them in three images at most: these cannot reach 5 %, let alone 5 % of 60."""
    up, down = [14, 13, 12, 11, *[3, 2, 1] * 18, 3, 3], [1, 1, 1, 1, *[0] * 56]
    p_values = [mcnemar(a, b) for a, b in zip(up, down, strict=True)]
    smallest = [mcnemar(a + b, 0) for a, b in zip(up, down, strict=True)]
    found = tarone_holm(p_values, smallest)
    assert found[:4] == pytest.approx([4 * p_values[0], 3 * p_values[1], 2 * p_values[2], 2 * p_values[2]])
    assert sum(p < 0.05 for p in found) == 4
    assert sum((p or 0) < 0.05 for p in holm(p_values)) == 0
    assert tarone_holm(p_values, [0.0] * 60) == pytest.approx([p or 0.0 for p in holm(p_values)])
    assert tarone_holm([], []) == []


def test_tarone_keeps_the_family_s_level() -> None:
    """200 families of 30 labels that do not differ: a false finding in at most 5 % of them."""
    rng = np.random.default_rng(3)
    false = 0
    for _ in range(200):
        images = rng.poisson(4, 30) + 1
        up = rng.binomial(images, 0.5)
        pairs = list(zip(up.tolist(), (images - up).tolist(), strict=True))
        found = tarone_holm([mcnemar(a, b) for a, b in pairs], [mcnemar(a + b, 0) for a, b in pairs])
        false += min(found) <= 0.05
    assert false <= 10


def test_intervals_of_nothing() -> None:
    empty = table(np.zeros((0, 2)))
    assert intervals(linearized(empty, RATE), 0.95)["rate"].low is None
    assert confidence_intervals(table(np.array([[1, 2]] * 40)), RATE, resamples=0)["rate"].low is None
