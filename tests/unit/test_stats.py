"""Intervals and tests against plain loops, exact enumeration and figures computed by hand."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from scapo_eval.base.errors import InputError
from scapo_eval.results.comparison import compare
from scapo_eval.results.counts import CountBuilder, CountTable
from scapo_eval.results.metric import MetricSet, divide, harmonic_mean, ratio
from scapo_eval.results.results import Run
from scapo_eval.results.signature import Signature
from scapo_eval.results.stats import (
    MIN_SHARED_IMAGES,
    bootstrap,
    confidence_intervals,
    holm,
    mcnemar,
    paired_differences,
    values,
)

Counts = NDArray[np.int64]

METRIC = MetricSet(
    "toy",
    ("hits", "all", "covered", "truth"),
    {
        "rate": ratio("hits", "all"),
        "cover": ratio("covered", "truth"),
        "both": lambda s: harmonic_mean(1 - divide(s["hits"], s["all"]), divide(s["covered"], s["truth"])),
    },
)


def some_rows(n: int, seed: int, shift: float = 0.0) -> Counts:
    rng = np.random.default_rng(seed)
    total = rng.integers(0, 6, n)
    truth = rng.integers(1, 7, n)
    return np.stack([rng.binomial(total, 0.3 + shift), total, rng.binomial(truth, 0.6), truth], axis=1)


def table(rows: Counts, first: int = 0) -> CountTable:
    return CountTable(METRIC.columns, tuple(f"{k:04}" for k in range(first, first + len(rows))), rows)


def plain_figures(rows: Sequence[Sequence[int]]) -> dict[str, float | None]:
    hits, total, covered, truth = (sum(row[k] for row in rows) for k in range(4))
    rate = hits / total if total else None
    cover = covered / truth if truth else None
    both = None
    if rate is not None and cover is not None:
        both = 2 * (1 - rate) * cover / (1 - rate + cover) if 1 - rate + cover else 0.0
    return {"rate": rate, "cover": cover, "both": both}


# ---- figures ----


@given(st.lists(st.tuples(*[st.integers(0, 3)] * 4), max_size=6))
def test_figures_equal_plain_arithmetic(rows: list[tuple[int, int, int, int]]) -> None:
    rows = [(min(h, a), a, min(c, t), t) for h, a, c, t in rows]
    found = values(METRIC, table(np.array(rows, dtype=np.int64).reshape(-1, 4)))
    for name, value in plain_figures(rows).items():
        assert found[name] == pytest.approx(value, abs=1e-15) if value is not None else found[name] is None


# ---- the bootstrap ----


def test_the_bootstrap_agrees_with_a_plain_loop_over_images() -> None:
    rows = some_rows(60, 1)
    rng = np.random.default_rng(7)
    plain: dict[str, list[float]] = {name: [] for name in METRIC.formulas}
    for _ in range(4000):
        drawn = rows[rng.integers(0, len(rows), len(rows))]
        for name, value in plain_figures(drawn.tolist()).items():
            assert value is not None
            plain[name].append(value)
    intervals = bootstrap(table(rows), METRIC, resamples=20000, seed=3)
    for name, drawn_values in plain.items():
        spread = float(np.std(drawn_values))
        low, high = np.percentile(drawn_values, [2.5, 97.5])
        # the standard error of a 2.5 % quantile from 4,000 draws is about 0.042 standard deviations
        assert intervals[name].low == pytest.approx(low, abs=0.2 * spread)
        assert intervals[name].high == pytest.approx(high, abs=0.2 * spread)


def test_the_interval_of_a_mean_is_the_textbook_one() -> None:
    rows = np.array([[k % 2, 1, 1, 1] for k in range(400)])
    interval = bootstrap(table(rows), METRIC, resamples=20000)["rate"]
    half = 1.96 * math.sqrt(0.25 / 400)
    assert interval.low == pytest.approx(0.5 - half, abs=0.0035)
    assert interval.high == pytest.approx(0.5 + half, abs=0.0035)


def test_resampling_does_not_depend_on_the_order_or_the_names_of_images() -> None:
    rows = some_rows(50, 2)
    order = np.random.default_rng(0).permutation(50)
    assert bootstrap(table(rows), METRIC) == bootstrap(table(rows[order], first=900), METRIC)
    assert bootstrap(table(rows), METRIC) == bootstrap(table(rows), METRIC)
    assert bootstrap(table(rows), METRIC, seed=1) != bootstrap(table(rows), METRIC, seed=2)


def test_a_wider_confidence_gives_a_wider_interval() -> None:
    narrow, wide = (bootstrap(table(some_rows(80, 3)), METRIC, confidence=c)["rate"] for c in (0.5, 0.99))
    assert narrow.low is not None
    assert narrow.high is not None
    assert wide.low is not None
    assert wide.high is not None
    assert wide.low < narrow.low < narrow.high < wide.high


def test_figures_without_value_have_no_interval() -> None:
    rows = np.array([[0, 0, 1, 2]] * 40)
    intervals = bootstrap(table(rows), METRIC)
    assert (intervals["rate"].low, intervals["rate"].high) == (None, None)
    assert (intervals["cover"].low, intervals["cover"].high) == (0.5, 0.5)
    assert values(METRIC, table(rows)) == {"rate": None, "cover": 0.5, "both": None}


def test_resamples_without_value_are_not_dropped() -> None:
    rows = np.array([[1, 2, 0, 1]] + [[0, 0, 1, 1]] * 4)  # one image alone makes "rate", a third of the draws miss it
    interval = bootstrap(table(rows), METRIC)["rate"]
    assert (interval.low, interval.high) == (None, None)


def test_no_images_and_no_resamples() -> None:
    empty = table(np.zeros((0, 4), dtype=np.int64))
    assert values(METRIC, empty) == {"rate": None, "cover": None, "both": None}
    assert bootstrap(empty, METRIC)["rate"].low is None
    assert bootstrap(table(some_rows(40, 4)), METRIC, resamples=0)["rate"].low is None
    compared = paired_differences(table(some_rows(40, 4)), table(some_rows(40, 5)), METRIC, resamples=0)
    assert [(row.p_value, row.test) for row in compared] == [(None, None)] * 3
    assert all(row.difference is not None for row in compared)


# ---- paired tests ----


def exact_p_value(a: Counts, b: Counts, figure: str) -> float:
    """Share of all 2**n swaps whose difference is at least as large as the one observed."""

    def difference(x: Counts, y: Counts) -> float:
        ours, theirs = plain_figures(x.tolist())[figure], plain_figures(y.tolist())[figure]
        assert ours is not None
        assert theirs is not None
        return ours - theirs

    observed = abs(difference(a, b))
    moving = np.flatnonzero((a != b).any(axis=1)).tolist()
    hits = 0
    for swaps in itertools.product([False, True], repeat=len(moving)):
        x, y = a.copy(), b.copy()
        for k, swap in zip(moving, swaps, strict=True):
            if swap:
                x[k], y[k] = b[k], a[k]
        hits += abs(difference(x, y)) >= observed - 1e-12
    return hits / 2 ** len(moving)


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_randomisation_agrees_with_the_exact_enumeration_of_swaps(seed: int) -> None:
    a, b = some_rows(40, seed), some_rows(40, seed)
    b[:9] = some_rows(9, seed + 50, shift=0.4)  # the two differ on nine images only: 512 swaps are all there are
    rows = paired_differences(table(a), table(b), METRIC, resamples=20000, seed=seed, test="approximate_randomization")
    for row in rows:
        exact = exact_p_value(a, b, row.metric)
        assert row.test == "approximate_randomization"
        assert row.p_value == pytest.approx(exact, abs=4 * math.sqrt(exact * (1 - exact) / 20000) + 1e-4)


def test_systems_that_agree_on_every_image() -> None:
    rows = some_rows(40, 6)
    for test in ("approximate_randomization", "paired_bootstrap"):
        for row in paired_differences(table(rows), table(rows), METRIC, test=test, interval="percentile"):  # type: ignore[arg-type]
            assert (row.difference, row.interval.low, row.interval.high, row.p_value) == (0.0, 0.0, 0.0, 1.0)


def test_systems_that_never_agree_have_the_smallest_p_value() -> None:
    a, b = np.array([[0, 2, 1, 1]] * 60), np.array([[2, 2, 1, 1]] * 60)
    for test in ("approximate_randomization", "paired_bootstrap"):
        row = paired_differences(table(a), table(b), METRIC, resamples=999, test=test)[0]  # type: ignore[arg-type]
        assert (row.difference, row.p_value, row.n_differing) == (-1.0, 1 / 1000, 60)
        assert row.interval.low == -1.0
        assert -1.0 < (row.interval.high or 0) < -0.9


def test_the_paired_bootstrap_agrees_with_a_plain_loop() -> None:
    a, b = some_rows(50, 8), some_rows(50, 9, shift=0.15)
    row = paired_differences(
        table(a), table(b), METRIC, resamples=20000, test="paired_bootstrap", interval="percentile"
    )[0]
    rng = np.random.default_rng(5)
    drawn = []
    for _ in range(4000):
        pick = rng.integers(0, 50, 50)
        ours, theirs = plain_figures(a[pick].tolist())["rate"], plain_figures(b[pick].tolist())["rate"]
        assert ours is not None
        assert theirs is not None
        drawn.append(ours - theirs)
    assert row.difference is not None
    spread = float(np.std(drawn))
    low, high = np.percentile(drawn, [2.5, 97.5])
    assert row.interval.low == pytest.approx(low, abs=0.2 * spread)
    assert row.interval.high == pytest.approx(high, abs=0.2 * spread)
    p = float(np.mean(np.abs(np.array(drawn) - row.difference) >= abs(row.difference)))
    assert row.p_value == pytest.approx(p, abs=4 * math.sqrt(p * (1 - p) / 4000) + 1e-3)


def test_swapping_the_systems_turns_the_sign_only() -> None:
    a, b = some_rows(45, 10), some_rows(45, 11, shift=0.1)
    for forth, back in zip(
        paired_differences(table(a), table(b), METRIC), paired_differences(table(b), table(a), METRIC), strict=True
    ):
        assert forth.difference is not None
        assert back.difference == pytest.approx(-forth.difference, abs=1e-15)
        assert back.p_value == pytest.approx(forth.p_value, abs=0.06)


def test_only_shared_images_are_compared_in_any_order() -> None:
    a, b = some_rows(60, 12), some_rows(60, 13)
    shared = paired_differences(table(a[20:]), table(b[:40], first=20), METRIC)  # names 0000-0039 and 0020-0059
    assert {row.n_images for row in shared} == {20}
    rows = paired_differences(table(a), table(b, first=25), METRIC)
    assert {row.n_images for row in rows} == {35}
    expected = plain_figures(a[25:].tolist())["rate"], plain_figures(b[:35].tolist())["rate"]
    assert expected[0] is not None
    assert expected[1] is not None
    assert rows[0].difference == pytest.approx(expected[0] - expected[1], abs=1e-15)
    backwards = table(b, first=25)
    backwards = backwards.select(reversed(backwards.image_ids))
    assert paired_differences(table(a), backwards, METRIC) == rows


@pytest.mark.parametrize(("n", "tested"), [(0, False), (MIN_SHARED_IMAGES - 1, False), (MIN_SHARED_IMAGES, True)])
def test_below_thirty_shared_images_there_is_no_test(n: int, tested: bool) -> None:
    assert MIN_SHARED_IMAGES == 30
    for row in paired_differences(table(some_rows(n, 14)), table(some_rows(n, 15)), METRIC):
        assert row.n_images == n
        assert (row.p_value is not None) == tested
        assert row.test == ("studentized_permutation" if tested else None)
        assert (row.difference is not None) == (n > 0)


def test_a_figure_without_value_on_one_side_has_no_difference_and_no_test() -> None:
    a, b = some_rows(40, 16), some_rows(40, 17)
    b[:, :2] = 0
    rate, cover, both = paired_differences(table(a), table(b), METRIC)
    assert (rate.difference, rate.p_value, rate.test, rate.interval.low) == (None, None, None, None)
    assert (both.difference, both.p_value) == (None, None)
    assert cover.p_value is not None


# ---- Holm and McNemar ----


@pytest.mark.parametrize(
    ("p_values", "expected"),
    [
        ([0.01, 0.04, 0.03, 0.005], [0.03, 0.06, 0.06, 0.02]),  # 4*.005, 3*.01, 2*.03, then never smaller
        ([0.5, 0.6], [1.0, 1.0]),
        ([0.02], [0.02]),
        ([None, 0.02, None, 0.03], [None, 0.04, None, 0.04]),
        ([], []),
        ([None], [None]),
        ([0.02, 0.02], [0.04, 0.04]),
    ],
)
def test_holm_by_hand(p_values: list[float | None], expected: list[float | None]) -> None:
    assert [p if p is None else pytest.approx(p, abs=1e-15) for p in expected] == holm(p_values)


@pytest.mark.parametrize(
    ("won", "lost", "p"),
    [
        (0, 0, 1.0),
        (1, 0, 1.0),
        (5, 0, 2 / 32),
        (0, 6, 2 / 64),
        (8, 2, 2 * (1 + 10 + 45) / 1024),
        (5, 5, 1.0),
        (1, 9, 2 * (1 + 10) / 1024),
    ],
)
def test_mcnemar_by_hand(won: int, lost: int, p: float) -> None:
    assert mcnemar(won, lost) == pytest.approx(p, abs=1e-15)
    assert mcnemar(lost, won) == mcnemar(won, lost)


def test_mcnemar_on_many_items_is_finite() -> None:
    assert mcnemar(10_000, 10_000) == 1.0
    assert 0 <= mcnemar(20_000, 0) < 1e-300
    assert mcnemar(5100, 4900) == pytest.approx(math.erfc((200 - 1) / math.sqrt(2 * 10_000)), rel=0.01)


def test_mcnemar_takes_shared_items_and_leaves_the_rest_to_randomisation() -> None:
    a, b = some_rows(40, 18), some_rows(40, 19)
    ours = {str(k): k < 9 for k in range(12)} | {"mine": True}
    theirs = {str(k): k == 9 for k in range(12)} | {"yours": True}
    rate, cover, _ = paired_differences(
        table(a), table(b), METRIC, test="mcnemar", verdicts=({"rate": ours}, {"rate": theirs})
    )
    assert (rate.test, rate.p_value) == ("mcnemar", pytest.approx(2 * 11 / 1024))  # 9 won, 1 lost
    assert cover.test == "studentized_permutation"


# ---- tables ----


def test_shards_merge_to_the_whole() -> None:
    rng = np.random.default_rng(20)
    images = [f"i{k}" for k in rng.integers(0, 300, 1000)]
    rows = rng.integers(0, 5, (1000, 4))
    whole, shards = CountBuilder(METRIC.columns), CountBuilder(METRIC.columns)
    whole.add(images, rows)
    order = rng.permutation(1000)
    for part in np.array_split(order, 7):
        shards.add([images[k] for k in part], rows[part])
    shards.add([], np.zeros((0, 4), dtype=np.int64))
    assert whole.table().image_ids == shards.table().image_ids == tuple(sorted(set(images)))
    assert np.array_equal(whole.table().rows, shards.table().rows)
    expected = np.zeros(4, dtype=np.int64)
    for image, row in zip(images, rows, strict=True):
        if image == "i17":
            expected += row
    assert whole.table().select(["i17"]).rows[0].tolist() == expected.tolist()
    assert whole.table().counts() == dict(zip(METRIC.columns, rows.sum(axis=0).tolist(), strict=True))


def run(name: str, rows: Counts, first: int = 0) -> Run:
    return Run(
        name=name, signature=Signature.of("toy"), metric_set=METRIC, table=table(rows, first), n_records=len(rows)
    )


# ---- the results object ----


def test_results_have_the_shape_of_the_specification() -> None:
    found = compare([run("a", some_rows(40, 22)), run("b", some_rows(40, 23), first=5)]).to_dict()
    assert set(found) == {"systems", "comparisons", "verdicts"}
    first = found["systems"][0]
    assert {"name", "signature", "n_captions", "n_images", "metrics", "counts"} <= set(first)
    assert set(first["metrics"]) == {"rate", "cover", "both"}
    assert set(first["metrics"]["rate"]) == {"value", "ci_low", "ci_high"}
    assert [row["metric"] for row in found["comparisons"]] == ["rate", "cover", "both"]
    assert set(found["comparisons"][0]) == {
        "system", "baseline", "metric", "system_value", "baseline_value", "difference", "ci_low", "ci_high", "p_value",
        "p_holm", "test", "n_images", "n_differing", "standard_error", "detectable",
    }  # fmt: skip
    assert found["comparisons"][0]["system"] == "b"
    assert found["comparisons"][0]["baseline"] == "a"
    assert found["comparisons"][0]["n_images"] == 35


def test_several_systems_are_corrected_per_metric() -> None:
    runs = [run(name, some_rows(60, seed, shift)) for name, seed, shift in (("a", 1, 0), ("b", 2, 0.2), ("c", 3, 0.1))]
    found = compare(runs).comparisons
    for name in METRIC.formulas:
        family = [row for row in found if row["metric"] == name]
        assert [row["p_holm"] for row in family] == holm([row["p_value"] for row in family])
    alone = compare(runs[:2]).comparisons[0]
    assert alone["p_holm"] == alone["p_value"]


def test_different_benchmarks_are_not_compared() -> None:
    other = MetricSet("other", METRIC.columns, METRIC.formulas)
    rows = some_rows(40, 24)
    odd = replace(run("odd", rows), metric_set=other)
    with pytest.raises(InputError, match="odd is a run of other, a of toy"):
        compare([run("a", rows), odd])
    with pytest.raises(InputError, match="McNemar"):
        compare([run("a", rows), run("b", rows)], test="mcnemar")


def test_drawing_images_one_by_one_has_the_distribution_of_the_multinomial(monkeypatch: pytest.MonkeyPatch) -> None:
    import scapo_eval.results.stats as stats

    frequency = np.array([1, 2, 5, 12])
    draws = {}
    for many in (20_000, 0):
        monkeypatch.setattr(stats, "_MANY_TYPES", many)
        draws[many] = stats._drawn(np.eye(4, dtype=np.int64), frequency, resamples=20_000, seed=1)
        assert (draws[many].sum(axis=1) == 20).all()
    assert np.allclose(draws[20_000].mean(axis=0), draws[0].mean(axis=0), atol=0.1)
    assert np.allclose(np.cov(draws[20_000].T), np.cov(draws[0].T), atol=0.2)


def test_the_interval_of_a_count_has_no_negative_values() -> None:
    metrics = MetricSet(
        "toy", ("facts", "answers"), {"avg": ratio("facts", "answers")}, plain_numbers=frozenset({"avg"})
    )
    table = CountTable(metrics.columns, ("a", "b", "c"), np.array([[0, 1], [3, 1], [5, 1]]))
    low, high = (getattr(confidence_intervals(table, metrics)["avg"], side) for side in ("low", "high"))
    assert low == 0
    assert high > 8
