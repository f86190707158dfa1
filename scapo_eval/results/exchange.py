"""Results in the words of others: the schema of Every Eval Ever (evalevalai.com), version 0.3.

One document per system and benchmark: who was measured, by what, and every metric with its value and uncertainty.
Their schema asks for more than a results file knows about a model; what is not known is said to be ``unknown``.
"""

from __future__ import annotations

import hashlib
import re
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal, get_args

from ..base.errors import InputError
from .names import benchmark_name, meanings_of, metric_name
from .results import MetricValue, Run

EEE_VERSION = "0.3.0"

Relationship = Literal["first_party", "third_party", "collaborative", "other"]
"""What the evaluator has to do with the model's developer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Provenance:
    """What a results file does not know.

    Attributes:
        timestamp: seconds since 1970, when the document is made.
        organization: who evaluated.
        relationship: of the organization to the model's developer.
        models: system -> id of its model (``developer/name``, as on Hugging Face).
    """

    timestamp: float
    organization: str = "unknown"
    relationship: Relationship = "other"
    models: tuple[tuple[str, str], ...] = ()

    def __post_init__(self) -> None:
        if self.relationship not in get_args(Relationship):
            raise InputError(f"relationship must be one of {', '.join(get_args(Relationship))}")


INTERVALS = {"wilson": "Wilson, effective sample size by image", "percentile": "percentile bootstrap by image"}


def every_eval_ever(run: Run, provenance: Provenance) -> dict[str, Any]:
    """A run as a document of Every Eval Ever; metrics without a value are left out.

    Raises:
        InputError: the run has no value at all.
    """
    model = dict(provenance.models).get(run.name, f"unknown/{_plain(run.name)}")
    benchmark = run.metric_set.name
    stamp = f"{provenance.timestamp:.6f}".rstrip("0").rstrip(".")
    results = [
        _result(run, name, metric) for name, metric in run.metrics.items() if metric.value is not None
    ]  # fmt: skip
    if not results:
        raise InputError(f"{run.name} has no value of {benchmark} to export")
    fields = run.signature.fields
    developer, slash, _ = model.partition("/")
    return {
        "schema_version": EEE_VERSION,
        "evaluation_id": f"{benchmark}/{model}/{stamp}",
        "retrieved_timestamp": stamp,
        "source_metadata": {
            "source_name": "scapo-eval",
            "source_type": "documentation" if run.finished is not None else "evaluation_run",
            "source_organization_name": provenance.organization,
            "evaluator_relationship": provenance.relationship,
        },
        "eval_library": {
            "name": "scapo",
            "version": fields.get("v", "unknown"),
            "additional_details": {"signature": str(run.signature)},
        },
        "model_info": {
            "name": run.name,
            "id": model,
            "developer": developer if slash else "unknown",
            "additional_details": {"deployment_type": "unknown", "model_availability": "unknown"},
        },
        "evaluation_results": results,
    }


def _result(run: Run, name: str, metric: MetricValue) -> dict[str, Any]:
    metric_set = run.metric_set
    plain = name in metric_set.plain_numbers
    better = metric_set.higher_is_better.get(name)
    meaning = meanings_of(metric_set.name).get(name, metric_name(name))
    config: dict[str, Any] = {
        "evaluation_description": meaning + ("" if better is not None else " (neither direction is better)"),
        "metric_id": f"scapo.{metric_set.name}.{name}",
        "metric_name": metric_name(name),
        "metric_unit": "points" if plain else "proportion",
        "lower_is_better": better is False,
    }
    if not plain:
        config |= {"score_type": "continuous", "min_score": 0, "max_score": 1}
    details: dict[str, Any] = {"signature": str(run.signature)}
    if metric.printed is not None:
        details["printed"] = str(metric.printed)
    score: dict[str, Any] = {"score": metric.value, "details": details}
    if metric.low is not None and metric.high is not None:
        drawn = run.resampling
        interval = {"lower": metric.low, "upper": metric.high, "confidence_level": drawn.confidence}
        how = "from the harness's standard error" if run.finished is not None else INTERVALS[drawn.interval]
        score["uncertainty"] = {"confidence_interval": {**interval, "method": how}}
        if run.finished is None:
            score["uncertainty"]["num_samples"] = run.n_images
            if drawn.interval == "percentile":
                score["uncertainty"]["num_bootstrap_samples"] = drawn.resamples
    images = {"n_images": str(run.n_images), "n_records": str(run.n_records)}
    if "ids" in run.signature.fields:
        images["image_ids_sha256"] = run.signature.fields["ids"]
    return {
        "evaluation_result_id": f"{metric_set.name}/{name}",
        "evaluation_name": benchmark_name(metric_set.name),
        "source_data": {
            "dataset_name": benchmark_name(metric_set.name), "source_type": "other", "additional_details": images,
        },
        "metric_config": config,
        "score_details": score,
    }  # fmt: skip


def datastore_path(document: dict[str, Any]) -> str:
    """Where the document belongs in their datastore: ``data/benchmark/developer/model/UUID.json``.

    The UUID is the hash of the document, in the form of version 4, so that equal documents have one name.
    """
    benchmark = document["evaluation_id"].partition("/")[0]
    developer, _, model = document["model_info"]["id"].rpartition("/")
    digest = hashlib.sha256(repr(sorted(document.items())).encode("utf-8", "surrogatepass")).digest()
    name = uuid.UUID(bytes=digest[:16], version=4)
    return "/".join(("data", _plain(benchmark), _plain(developer or "unknown"), _plain(model), f"{name}.json"))


def _plain(name: str) -> str:
    """A name that every file system takes."""
    return re.sub(r"[^\w.\-]+", "_", name).strip("._") or "unnamed"


def documents(runs: tuple[Run, ...], provenance: Provenance) -> Iterator[dict[str, Any]]:
    """One document per run.

    Raises:
        InputError: a model is named for a system that there is not; a run has no value.
    """
    names = [run.name for run in runs]
    for name, _ in provenance.models:
        if name not in names:
            raise InputError(f"system '{name}' not found (there are {', '.join(names)})")
    for run in runs:
        yield every_eval_ever(run, provenance)
