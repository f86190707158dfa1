"""What may stand side by side: runs scored alike, and differences of the images that both have."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from scapo_eval.base.errors import InputError
from scapo_eval.results.comparison import compare
from scapo_eval.results.counts import CountTable
from scapo_eval.results.metric import MetricSet, ratio
from scapo_eval.results.results import Resampling, Run
from scapo_eval.results.signature import Signature

RATE = MetricSet("toy", ("right", "all"), {"rate": ratio("right", "all")}, {"rate": True})


def a_run(name: str, images: range, *, seed: int = 0, **fields: object) -> Run:
    rng = np.random.default_rng(seed)
    rows = np.stack([rng.integers(0, 5, len(images)), np.full(len(images), 5)], axis=1).astype(np.int64)
    table = CountTable(RATE.columns, tuple(f"{k:04}" for k in images), rows)
    decisive = {"vocab": "coco80@1", "oracle": "aa", "world": "closed", "claims": "all", "n": len(images), **fields}
    return Run(
        name=name,
        signature=Signature.of("toy", **decisive),
        metric_set=RATE,
        table=table,
        n_records=len(images),
        resampling=Resampling(100, 1),
    )


@pytest.mark.parametrize("field", ["oracle", "vocab", "world", "claims", "profile", "parser", "mode", "rule", "use"])
def test_runs_scored_differently_are_refused_with_both_values(field: str) -> None:
    base, other = a_run("base", range(40)), a_run("other", range(40), seed=1, **{field: "other-value"})
    with pytest.raises(
        InputError, match=rf"other and base were scored differently .*{field}: other-value against "
    ) as error:
        compare([base, other])
    assert "--allow-different" in str(error.value)
    (row,) = compare([base, other], allow_different=True).comparisons
    assert row["differing"] == [field]
    assert row["p_value"] is not None


def test_the_sample_and_the_resampling_may_differ() -> None:
    base = a_run("base", range(40), n=1, ids="x")
    other = replace(a_run("other", range(5, 45), seed=1), resampling=Resampling(7, 7))
    (row,) = compare([base, other]).comparisons
    assert "differing" not in row
    assert row["n_images"] == 35


def test_both_values_of_the_shared_images_stand_beside_the_difference() -> None:
    base, other = a_run("base", range(60)), a_run("other", range(20, 80), seed=1)
    (row,) = compare([base, other]).comparisons
    shared = [f"{k:04}" for k in range(20, 60)]
    for key, run in (("baseline_value", base), ("system_value", other)):
        right, total = run.table.select(shared).total
        assert row[key] == right / total
    assert row["difference"] == pytest.approx(row["system_value"] - row["baseline_value"])
    assert row["n_images"] == 40


def test_different_images_have_no_difference_below_thirty_shared_ones() -> None:
    (row,) = compare([a_run("base", range(60)), a_run("other", range(31, 91), seed=1)]).comparisons
    assert row["n_images"] == 29
    nothing = ("system_value", "baseline_value", "difference", "ci_low", "ci_high", "p_value", "p_holm", "test")
    assert [row[key] for key in nothing] == [None] * len(nothing)


def test_the_same_few_images_have_a_difference_and_no_test() -> None:
    (row,) = compare([a_run("base", range(20)), a_run("other", range(20), seed=1)]).comparisons
    assert row["difference"] is not None
    assert row["p_value"] is None
    assert row["ci_low"] is None
