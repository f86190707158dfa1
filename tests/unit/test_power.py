"""What a sample can show: against simulated samples, and as a verb."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from calibration import Cell, drawn
from click.testing import CliRunner

import scapo_eval
from scapo_eval.base.errors import InputError
from scapo_eval.benchmarks.capscore import COLUMNS, capscore_metrics
from scapo_eval.cli.main import cli
from scapo_eval.results.comparison import compare
from scapo_eval.results.counts import CountTable
from scapo_eval.results.power import power
from scapo_eval.results.results import Run
from scapo_eval.results.signature import Signature


def run_of(generated: np.ndarray, hallucinated: np.ndarray, name: str = "a") -> Run:
    n = len(generated)
    rows = np.zeros((n, len(COLUMNS)), dtype=np.int64)
    for column, values in {
        "captions": np.ones(n), "generated": generated, "hallucinated": hallucinated,
        "covered": generated - hallucinated, "truth": 2 * generated, "mentions": generated,
        "hallucinated_mentions": hallucinated, "hallucinated_captions": hallucinated > 0,
    }.items():  # fmt: skip
        rows[:, COLUMNS.index(column)] = values
    table = CountTable(COLUMNS, tuple(f"{k:05}" for k in range(n)), rows)
    signature = Signature.of("capscore", n=n)
    return Run(name=name, signature=signature, metric_set=capscore_metrics(), table=table, n_records=n)


def pilot(images: int, seed: int = 1) -> list[Run]:
    """Two systems of five claims an image, 14 and 15 % of them wrong."""
    rows = drawn(Cell(images, 0.15, (5, 5), gain=0.01), 1, np.random.default_rng(seed))
    return [run_of(each[:, 1], each[:, 0], name) for each, name in zip(rows, "ba", strict=True)][::-1]


def test_the_field_s_sample_shows_little() -> None:
    """15.0 against 14.0 %, five claims an image: a power of 17 % on 500 images, 42 on 2,000, 92 on 5,000 (simulated;
    the two systems of the pilot fail independently, so that the error of one point is about 0.9 on 500 images)."""
    for images, chance in ((500, 0.19), (2000, 0.51), (5000, 0.86)):
        (found,) = power(pilot(2000), difference=0.01, images=images, metrics=["hal_rate"])
        assert found.power == pytest.approx(chance, abs=0.06)
        assert (found.images, found.pilot_images, found.difference) == (images, 2000, 0.01)
    assert found.images_needed == pytest.approx(4000, rel=0.12)
    (at,) = power(pilot(2000), difference=0.01, images=found.images_needed, metrics=["hal_rate"])
    assert at.power == pytest.approx(0.8, abs=0.001)
    assert at.detectable == pytest.approx(0.01, rel=0.01)


def test_the_comparison_says_the_same() -> None:
    runs = pilot(500)
    (row,) = [row for row in compare(runs).comparisons if row["metric"] == "hal_rate"]
    (found,) = power(runs, metrics=["hal_rate"])
    assert row["detectable"] == pytest.approx(found.detectable)
    assert (found.system, found.baseline, found.power, found.images_needed) == ("b", "a", None, None)


def test_one_system_alone_is_the_worst_case() -> None:
    (alone,) = power(pilot(1000)[0], metrics=["hal_rate"])
    (pair,) = power(pilot(1000), metrics=["hal_rate"])
    assert alone.baseline is None
    assert alone.standard_error == pytest.approx(pair.standard_error, rel=0.1)  # those two do fail independently


def test_what_is_no_pilot() -> None:
    with pytest.raises(InputError, match="a power estimate requires 30 images; a has 12"):
        power(run_of(np.full(12, 5), np.ones(12)))
    with pytest.raises(InputError, match="a power estimate requires 30 shared images; b has 20"):
        power(pilot(20))
    with pytest.raises(InputError, match="unknown metric 'bleu'; known: hal_rate"):
        power(pilot(40), metrics=["bleu"])
    for difference in (0.0, 1e-300, float("inf"), float("nan")):
        with pytest.raises(InputError, match="difference must be a finite number of at least 1e-09"):
            power(pilot(40), difference=difference)
    with pytest.raises(InputError, match="images must be at least 1"):
        power(pilot(40), images=0)


def test_a_fraction_cannot_differ_by_more_than_its_range() -> None:
    (found,) = power(pilot(40), metrics=["hal_rate"], images=1)
    assert (found.detectable, found.standard_error is None) == (None, False)


def test_the_verb(tmp_path: Path) -> None:
    path = tmp_path / "pilot.json"
    compare(pilot(500)).save(path)
    assert scapo_eval.power(path, images=2000)[0].images == 2000
    said = CliRunner().invoke(cli, ["power", str(path), "--difference", "1", "--json"])
    assert said.exit_code == 0
    records = json.loads(said.output)["power"]
    assert [each["metric"] for each in records] == ["hal_rate", "cover_rate", "cap_score", "chair_i", "chair_s"]
    assert records[0]["difference"] == 0.01
    shown = CliRunner().invoke(cli, ["power", str(path), "--difference", "1", "--metrics", "hal_rate", "--width", "90"])
    assert "detectable with 500 images" in shown.output
    assert f"{records[0]['images_needed']:,}" in shown.output
    lines = CliRunner().invoke(cli, ["power", str(path), "--images", "5000"]).output.splitlines()
    assert lines[0].split("\t")[:3] == ["system", "baseline", "metric"]
    assert len(lines) == 6


def test_a_pilot_without_events_says_nothing_about_the_error() -> None:
    runs = [run_of(np.full(60, 5), np.zeros(60), name) for name in "ab"]
    for found in (power(runs, difference=0.01), power(runs[0], difference=0.01)):
        (rate,) = [each for each in found if each.metric == "hal_rate"]
        assert (rate.value, rate.difference) == (0.0, 0.01)
        assert (rate.standard_error, rate.detectable, rate.power, rate.images_needed) == (None, None, None, None)
