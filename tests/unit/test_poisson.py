"""The Poisson bootstrap: the same weights everywhere, sums that add up, and intervals that are right."""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Iterable
from dataclasses import replace
from hashlib import blake2b
from pathlib import Path

import numpy as np
import pytest

import scapo_eval.results.stats as stats
from scapo_eval.base.errors import InputError
from scapo_eval.results import workers
from scapo_eval.results.comparison import compare
from scapo_eval.results.counts import CountBuilder, CountTable, summed_by
from scapo_eval.results.metric import MetricSet, ratio
from scapo_eval.results.poisson import image_hashes, poisson_sums
from scapo_eval.results.results import Resampling, Run
from scapo_eval.results.signature import Signature

METRICS = MetricSet(
    "simulated",
    ("generated", "hallucinated", "truth", "covered"),
    {"hal_rate": ratio("hallucinated", "generated"), "cover_rate": ratio("covered", "truth")},
)


def population(images: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """(images, 4) counts of two systems on the same images."""
    truth = rng.poisson(4, images) + 1
    hard = rng.beta(2, 6, images)  # of an image: both systems invent more where it is hard
    found = []
    for skill in (1.0, 0.9):
        covered = rng.binomial(truth, 0.7 * skill)
        invented = rng.binomial(truth + 2, hard * (1.6 - skill) / 0.6 * 0.5)
        found.append(np.stack([covered + invented, invented, truth, covered], axis=1))
    return found[0], found[1]


IDS = tuple(str(k) for k in range(3000))
FIRST, SECOND = population(3000, np.random.default_rng(1))


def run(rows: np.ndarray, name: str = "a", resampling: Resampling | None = None) -> Run:
    table = CountTable(METRICS.columns, IDS[: len(rows)], rows)
    signature = Signature.of("simulated")
    return Run(
        name=name,
        signature=signature,
        metric_set=METRICS,
        table=table,
        n_records=9,
        resampling=resampling or Resampling(300, interval="percentile"),
    )


def test_workers_resample_what_this_process_would(monkeypatch: pytest.MonkeyPatch) -> None:
    alone, whole = run(FIRST), run(FIRST, resampling=Resampling(300, bootstrap="poisson", interval="percentile"))
    expected = whole.metrics
    monkeypatch.setattr(workers, "PART", 1000)
    asked: list[int] = []

    def by_workers(parts: list[workers.Work]) -> Iterable[np.ndarray]:
        asked.append(len(parts))
        return map(workers.work, reversed(parts))

    with workers.resampled_by(by_workers):
        assert replace(whole, name="b").metrics == expected
        assert replace(alone, name="b").metrics == alone.metrics  # multinomial: by one process
    assert asked == [3]
    assert replace(whole, name="c").metrics == expected
    assert asked == [3]


def test_workers_toss_the_coins_that_this_process_would(monkeypatch: pytest.MonkeyPatch) -> None:
    ours, theirs = run(FIRST), run(SECOND, "b")
    expected = compare([ours, theirs])
    monkeypatch.setattr(workers, "PART", 2048)
    asked: list[int] = []

    def by_workers(parts: list[workers.Work]) -> Iterable[np.ndarray]:
        asked.append(len(parts))
        assert all(table.dtype.itemsize < 8 for _, (table, *_) in parts)  # transferred in few bytes
        return map(workers.work, reversed(parts))

    with workers.resampled_by(by_workers):
        assert compare([ours, theirs]).comparisons == expected.comparisons
    assert asked == [2]
    assert expected.comparisons[0]["p_value"] < 1


def test_sums_of_parts_add_up_in_any_order() -> None:
    hashes = image_hashes(IDS)
    assert hashes[7] == int.from_bytes(blake2b(b"7", digest_size=8).digest(), sys.byteorder)
    order = np.random.default_rng(2).permutation(3000)
    whole = poisson_sums(hashes, FIRST, resamples=101, seed=5)
    parts = [poisson_sums(hashes[part], FIRST[part], resamples=101, seed=5) for part in np.array_split(order, 7)]
    assert np.array_equal(np.sum(parts, axis=0), whole)
    assert np.array_equal(poisson_sums(hashes, FIRST, resamples=40, seed=5), whole[:40])
    assert not np.array_equal(poisson_sums(hashes, FIRST, resamples=101, seed=6), whole)


def test_the_page_s_examples_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    page = (Path(__file__).resolve().parents[2] / "docs/scale.md").read_text(encoding="utf-8")
    for block in re.findall(r"```python\n(.*?)```", page, re.DOTALL):
        exec(compile(block, "docs/scale.md", "exec"), {})


def test_weights_are_poisson_and_independent() -> None:
    ones = np.eye(200, dtype=np.int64)
    drawn = poisson_sums(image_hashes(IDS[:200]), ones, resamples=5000, seed=1)  # a weight per resample and image
    shares = np.bincount(drawn.ravel(), minlength=8)[:8] / drawn.size
    assert np.allclose(shares, [math.exp(-1) / math.factorial(k) for k in range(8)], atol=0.002)
    for weights in (drawn, drawn.T[:, :3000]):  # between images, and between resamples
        apart = np.corrcoef(weights[:200].astype(float))[np.triu_indices(200, 1)]
        assert abs(apart.mean()) < 0.005
        assert abs(apart).max() < 6 / math.sqrt(weights.shape[1])


def test_many_images_take_it_and_the_signature_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    below, other = run(FIRST), run(SECOND, "b")
    assert "bootstrap" not in below.signature
    assert below.metrics  # drawn now
    monkeypatch.setattr(stats, "POISSON_ABOVE", 2999)
    above = run(FIRST)
    assert above.signature.fields["bootstrap"] == "poisson"
    assert str(replace(above, resampling=Resampling(0, interval="percentile")).signature).count("bootstrap") == 0
    one, two = (each.metrics["hal_rate"] for each in (below, above))
    assert (one.value, one.low != two.low) == (two.value, True)
    assert abs(one.low - two.low) < 0.2 * (one.high - one.low)
    forced = run(FIRST, resampling=Resampling(300, bootstrap="multinomial", interval="percentile"))
    assert (forced.metrics, forced.signature) == (below.metrics, below.signature)

    differences = {}
    for kind in ("multinomial", "poisson"):
        drawn = Resampling(300, bootstrap=kind, interval="percentile")  # type: ignore[arg-type]
        rows = compare([below, other], resampling=drawn).comparisons
        differences[kind] = {row["metric"]: row for row in rows}
    for metric, row in differences["multinomial"].items():
        also = differences["poisson"][metric]
        assert also["difference"] == row["difference"]
        assert abs(also["ci_low"] - row["ci_low"]) < 0.2 * (row["ci_high"] - row["ci_low"])
        assert (also["p_value"], also["test"]) == (row["p_value"], row["test"])  # no bootstrap in the test

    with pytest.raises(InputError, match="bootstrap"):
        Resampling(bootstrap="jackknife")  # type: ignore[arg-type]


def test_a_run_of_0_2_0_that_was_drawn_in_streams_is_drawn_with_the_multinomial() -> None:
    assert Resampling(bootstrap="streams") == Resampling(bootstrap="multinomial")  # type: ignore[arg-type]


def test_sums_of_known_images_are_those_of_their_ids() -> None:
    rng = np.random.default_rng(0)
    builders = CountBuilder(METRICS.columns), CountBuilder(METRICS.columns)
    for _ in range(3):
        where = rng.integers(0, 500, 900)
        builders[0].add([IDS[k] for k in where], FIRST[:900])
        builders[1].add_known(IDS, *summed_by(where, FIRST[:900]))
    one, two = (builder.table() for builder in builders)
    assert one.image_ids == two.image_ids
    assert np.array_equal(one.rows, two.rows)
    empty = summed_by(np.zeros(0, dtype=np.int64), FIRST[:0])
    assert [len(each) for each in empty] == [0, 0]
