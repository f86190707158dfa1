"""CapScoreMetric: equal to ``score`` of the same captions, on one rank and on two."""

from __future__ import annotations

import json
import math
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("torchmetrics")

import scapo_eval  # noqa: E402
from scapo_eval.base.errors import InputError, InputErrors, MissingExtra  # noqa: E402
from scapo_eval.integrations.torchmetrics import CapScoreMetric  # noqa: E402

ROOT = Path(__file__).resolve().parents[2]
CAPTIONS, TRUTH = ROOT / "examples" / "captions_baseline.jsonl", ROOT / "examples" / "truth.json"
RECORDS: list[dict[str, Any]] = [json.loads(line) for line in CAPTIONS.read_text().splitlines()]
IDS = [record["image_id"] for record in RECORDS]
TEXTS = [record["caption"] for record in RECORDS]


@pytest.fixture(scope="module")
def expected() -> dict[str, float]:
    values = scapo_eval.score(CAPTIONS, truth=TRUTH, resamples=0).values
    return {name: value for name, value in values.items() if value is not None}


def plain(metric: CapScoreMetric) -> dict[str, float]:
    return {name: value.item() for name, value in metric.compute().items()}


def test_batches_add_up_to_the_file(expected: dict[str, float]) -> None:
    metric = CapScoreMetric(str(TRUTH))
    for k in range(0, len(IDS), 7):
        metric.update(torch.tensor(IDS[k : k + 7]), TEXTS[k : k + 7])
    assert plain(metric) == pytest.approx(expected, abs=1e-7)
    assert metric.counts.shape == (9,)
    run = scapo_eval.score(CAPTIONS, truth=TRUTH, resamples=0)
    assert metric.signature.differences(run.signature) == {}
    assert metric.signature.fields["n"] == str(len(IDS))
    metric.reset()
    assert metric.counts.tolist() == [0] * 9


def test_forward_gives_the_batch_and_keeps_the_sum(expected: dict[str, float]) -> None:
    metric = CapScoreMetric(TRUTH)
    first = metric(IDS[:10], TEXTS[:10])
    half = scapo_eval.score(RECORDS[:10], truth=TRUTH, resamples=0).values
    assert {name: value.item() for name, value in first.items()} == pytest.approx(half, abs=1e-7)
    metric(IDS[10:], TEXTS[10:])
    assert plain(metric) == pytest.approx(expected, abs=1e-7)


def test_a_pickled_metric_continues(expected: dict[str, float]) -> None:
    metric = CapScoreMetric(TRUTH)
    metric.update(IDS[:10], TEXTS[:10])
    metric = pickle.loads(pickle.dumps(metric))
    metric.update(IDS[10:], TEXTS[10:])
    assert plain(metric) == pytest.approx(expected, abs=1e-7)


def test_half_precision_does_not_round_the_counts(expected: dict[str, float]) -> None:
    metric = CapScoreMetric(TRUTH).set_dtype(torch.float16).half()
    metric.update(IDS, TEXTS)
    assert metric.counts.dtype == torch.int64
    assert plain(metric) == pytest.approx(expected, abs=1e-7)


def test_no_value_is_nan() -> None:
    metric = CapScoreMetric({1: ["dog"]})
    metric.update([1], ["Nothing at all."])
    assert math.isnan(metric.compute()["hal_rate"])
    assert metric.compute()["cover_rate"] == 0


@pytest.mark.slow
def test_two_ranks_equal_one_process(expected: dict[str, float], tmp_path: Path) -> None:
    program = ROOT / "tests" / "programs" / "metric_ranks.py"
    fixed = [str(tmp_path / "store"), str(CAPTIONS), str(TRUTH), str(tmp_path / "out")]
    ranks = [
        subprocess.Popen([sys.executable, str(program), str(rank), "2", *fixed], stderr=subprocess.PIPE, text=True)
        for rank in range(2)
    ]
    errors = [rank.communicate(timeout=240)[1] for rank in ranks]
    assert [rank.returncode for rank in ranks] == [0, 0], errors
    found = [json.loads((tmp_path / f"out.{rank}").read_text()) for rank in range(2)]
    one = CapScoreMetric(TRUTH)
    one.update(IDS, TEXTS)
    for rank in found:
        assert rank["values"] == plain(one)
        assert rank["values"] == pytest.approx(expected, abs=1e-7)
        assert rank["after"] == rank["alone"]  # the sum is undone after compute, so that updates can go on
    assert [sum(pair) for pair in zip(found[0]["alone"], found[1]["alone"], strict=True)] == one.counts.tolist()


def test_faults_name_the_position() -> None:
    metric = CapScoreMetric(TRUTH)
    with pytest.raises(InputErrors, match="captions:2: unknown image id '999'"):
        metric.update([1, 999], ["a dog", "a cat"])
    with pytest.raises(InputErrors, match="captions:1: 'caption' must be a string, found null"):
        metric.update([1], [None])  # type: ignore[list-item]
    with pytest.raises(InputError, match="2 image ids require as many captions"):
        metric.update([1, 2], ["a dog"])
    with pytest.raises(InputError, match="1 image ids require as many captions"):
        metric.update([1], "a")
    with pytest.raises(InputError, match="1 image ids require as many captions"):
        metric.update([1], None)  # type: ignore[arg-type]
    for image_ids in ("1", 1, None, torch.tensor(1)):
        with pytest.raises(InputError, match="image ids must be a list or an"):
            metric.update(image_ids, ["a"])  # type: ignore[arg-type]
    assert metric.counts.tolist() == [0] * 9
    skipping = CapScoreMetric(TRUTH, on_unknown_image="skip")
    skipping.update([1, 999], ["a dog", "a cat"])
    assert (skipping.counts[0].item(), skipping.skipped.item()) == (1, 1)


def test_without_torchmetrics_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torchmetrics", None)
    monkeypatch.delitem(sys.modules, "scapo_eval.integrations.torchmetrics")
    with pytest.raises(MissingExtra, match=r"CapScoreMetric needs the extra 'torchmetrics'"):
        import scapo_eval.integrations.torchmetrics  # noqa: F401
