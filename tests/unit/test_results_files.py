"""A results file brings back the metric and the counts that it was made with, whatever the benchmark."""

from __future__ import annotations

import numpy as np
import pytest

from scapo_eval import InputError
from scapo_eval.counts import CountTable
from scapo_eval.metric import MetricSet
from scapo_eval.metrics import by_name
from scapo_eval.metrics.amber import AMBER
from scapo_eval.metrics.capscore import capscore_metrics
from scapo_eval.metrics.chair import METRIC as CHAIR
from scapo_eval.metrics.faithscore import faithscore_metrics
from scapo_eval.metrics.mmhal import METRICS as MMHAL
from scapo_eval.metrics.phd import metric_for as phd_metric_for
from scapo_eval.metrics.pope import metric_for as pope_metric_for
from scapo_eval.results import System, per_image, table_from

METRICS = [
    AMBER,
    CHAIR,
    MMHAL,
    capscore_metrics(),
    capscore_metrics(dagger=True),
    faithscore_metrics([]),
    faithscore_metrics(["detailed", "coarse"]),
    yesno_metrics(["", "adversarial"]),
]


@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: f"{metric.name}-{len(metric.columns)}")
def test_metric_is_found_again(metric: MetricSet) -> None:
    again = by_name(metric.name, metric.columns)
    counts = np.arange(1, len(metric.columns) + 1)
    assert list(again.formulas) == list(metric.formulas)
    assert {k: repr(v) for k, v in again.score(counts).items()} == {k: repr(v) for k, v in metric.score(counts).items()}


@pytest.mark.parametrize("metric_for", [phd_metric_for, pope_metric_for])
def test_grouped_metrics_rebuild_themselves(metric_for: object) -> None:
    name = "phd" if metric_for is phd_metric_for else "pope"
    columns = yesno_metrics(["base_attribute"] if name == "phd" else ["random"]).columns
    assert by_name(name, columns).columns == tuple(columns)


def test_unknown_metric_and_foreign_columns_are_errors() -> None:
    with pytest.raises(InputError, match="no metric 'cider'"):
        by_name("cider", ["a"])
    with pytest.raises(InputError, match="are not those of 'chair'"):
        by_name("chair", ["a"])


def test_counts_survive_the_file() -> None:
    table = CountTable(CHAIR.columns, ("1", "22"), np.arange(2 * len(CHAIR.columns)).reshape(2, -1))
    again = table_from(per_image(System("a", "s", CHAIR, table, 2)))
    assert again.image_ids == table.image_ids
    assert (again.rows == table.rows).all()
