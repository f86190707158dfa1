"""Export of results to the schema of Every Eval Ever (evalevalai.com), version 0.3.

Each combination of a system and a benchmark yields one document, which describes the model, the evaluation, and every
metric with its value and uncertainty. The schema requires model information that is missing from a results file.
Missing information is exported as ``unknown``.
"""

from __future__ import annotations

import hashlib
import re
import uuid
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

from ..base.errors import InputError
from .benchmark import find_benchmark
from .names import benchmark_name, meanings_of, metric_name, reader_mark
from .results import MetricValue, Run

EEE_VERSION = "0.3.0"

Relationship = Literal["first_party", "third_party", "collaborative", "other"]
"""Relationship between the evaluator and the developer of the model."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Provenance:
    """Information that an export requires and that a results file does not contain.

    Attributes:
        timestamp: Creation time of the document, in seconds since 1970.
        organization: Evaluating organization.
        relationship: Relationship of the evaluating organization to the developer of the model.
        models: (system, model id) pairs. A model id has the form ``developer/name``, as on Hugging Face.
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
    """Converts a run to a document in the schema of Every Eval Ever. Metrics without a value are omitted.

    Raises:
        InputError: If no metric of the run has a value.
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
            "additional_details": {
                "signature": str(run.signature),
                "signature_sha256": hashlib.sha256(str(run.signature).encode()).hexdigest(),
            },
        },
        "model_info": {
            "name": run.name,
            "id": model,
            "developer": developer if slash else "unknown",
            "additional_details": {"deployment_type": "unknown", "model_availability": "unknown"},
        },
        "evaluation_results": results,
    }


KINDS = ("accuracy", "precision", "recall", "f1")
"""Metric kinds of the schema that group related metrics."""


def _source(run: Run) -> dict[str, Any]:
    """Returns a description of the evaluated data: the public dataset, the sample, and the hash of the image ids."""
    benchmark = run.metric_set.name
    fields = run.signature.fields
    record = find_benchmark(benchmark)
    known = record.dataset if record and (not record.dataset_by_protocol or "protocol" in fields) else {}
    details = {"n_images": str(run.n_images), "n_records": str(run.n_records)}
    if run.finished is None:
        ids = sorted(run.table.image_ids)
        details["image_ids_sha256"] = hashlib.sha256("\n".join(ids).encode("utf-8", "surrogatepass")).hexdigest()
    details |= {name: fields[name] for name in ("ids", "protocol", "oracle", "world") if name in fields}
    source = {"dataset_name": benchmark_name(benchmark), **(known or {"source_type": "other"})}
    if source["source_type"] == "hf_dataset" and run.finished is None:
        source["samples_number"] = run.n_records
    return {**source, "additional_details": details}


def _result(run: Run, name: str, metric: MetricValue) -> dict[str, Any]:
    metric_set = run.metric_set
    plain = name in metric_set.plain_numbers
    better = metric_set.higher_is_better.get(name)
    title = metric_name(name) + reader_mark(name, [str(run.signature)])
    meaning = meanings_of(metric_set.name).get(name, title)
    record = find_benchmark(metric_set.name)
    canonical = record.canonical.get(name) if record else None
    config: dict[str, Any] = {
        "evaluation_description": meaning + ("" if better is not None else " (neither direction is better)"),
        "metric_id": canonical or f"scapo.{metric_set.name}.{name}",
        "metric_name": title,
        "metric_unit": "points" if plain else "proportion",
        "lower_is_better": better is False,
    }
    if kind := next((kind for kind in KINDS if name == kind or name.endswith(f"_{kind}")), None):
        config["metric_kind"] = kind
    if not canonical:
        config["additional_details"] = {"metric_id_status": "unregistered"}
    if not plain:
        config |= {"score_type": "continuous", "min_score": -1 if name in metric_set.signed else 0, "max_score": 1}
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
    return {
        "evaluation_result_id": f"{metric_set.name}/{name}",
        "evaluation_name": benchmark_name(metric_set.name),
        "source_data": _source(run),
        "metric_config": config,
        "score_details": score,
    }


# --- Instance-level records -----------------------------------------------------------------------------------------


def instances(document: dict[str, Any], evidence: Iterable[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yields one record per answer or caption, based on the evidence that a scoring command wrote.

    An answer has the score 1 if it is correct, otherwise 0. The score (``chair_s``) of a caption is 1 if the caption
    contains a hallucinated mention, and 0 otherwise. A caption without a hallucinated mention counts as correct.

    Args:
        document: Document that :func:`every_eval_ever` returned for the same run.
        evidence: Lines of evidence that ``--per-answer`` or ``--per-caption`` wrote.

    Raises:
        InputError: If a line was not written with one of the two options.
    """
    results = {result["evaluation_result_id"]: result for result in document["evaluation_results"]}
    wanted: tuple[str, ...]
    for number, line in enumerate(evidence, 1):
        if "said" in line and "label" in line:
            wanted, score, correct = ("accuracy", "a_acc", "phd_all"), float(line["correct"]), bool(line["correct"])
            raw, reference, told = str(line.get("question") or ""), [str(line["label"])], str(line["response"])
            attribution = {"extracted_value": str(line["said"]), "extraction_method": "parser"}
            sample = str(line["id"])
        elif "caption" in line and ("hallucinated" in line or "mentions" in line):
            named, wrong, there = _objects(line)
            wanted, score, correct = ("chair_s",), float(bool(wrong)), not wrong
            raw, reference, told = str(line.get("prompt") or ""), there, str(line["caption"])
            attribution = {"extracted_value": ", ".join(named), "extraction_method": "custom"}
            sample = str(line.get("id") or line["image_id"])
        else:
            raise InputError(f"line {number}: expected evidence of --per-answer or --per-caption")
        result_id = next((key for key in results if key.rpartition("/")[2] in wanted), None)
        yield {
            "schema_version": f"instance_level_eval_{EEE_VERSION}",
            "evaluation_id": document["evaluation_id"],
            "model_id": document["model_info"]["id"],
            "evaluation_name": document["evaluation_results"][0]["evaluation_name"],
            **({"evaluation_result_id": result_id} if result_id else {}),
            "sample_id": sample,
            "sample_hash": hashlib.sha256((raw + "".join(reference)).encode("utf-8", "surrogatepass")).hexdigest(),
            "interaction_type": "single_turn",
            "input": {"raw": raw, "reference": reference},
            "output": {"raw": [told]},
            "answer_attribution": [{"turn_idx": 0, "source": "output.raw", **attribution, "is_terminal": True}],
            "evaluation": {"score": score, "is_correct": correct},
            "metadata": {k: str(line[k]) for k in ("image", "image_id", "category", "mode", "task") if line.get(k)},
        }


def _objects(line: Mapping[str, Any]) -> tuple[list[str], list[str], list[str]]:
    """Returns the claimed objects of a caption, its hallucinated objects, and the objects in the image."""
    if "mentions" in line:  # evidence of the verb score
        verdicts = [(mention["label"], mention["verdict"]) for mention in line["mentions"]]
        named = [label for label, _ in verdicts]
        wrong = [label for label, verdict in verdicts if verdict == "hallucinated"]
        there = [label for label, verdict in verdicts if verdict == "supported"]
    else:
        named, wrong = list(line["generated"]), list(line["hallucinated"])
        there = [label for label in named if label not in wrong]
    return named, wrong, list(dict.fromkeys([*there, *line.get("missed", ())]))


def with_instances(document: dict[str, Any], path: str, data: bytes, rows: int) -> dict[str, Any]:
    """Returns the document with a reference to its file of instance-level results.

    Args:
        document: Aggregate document.
        path: Path of the file with instance-level results, relative to the root of the datastore.
        data: Content of the file.
        rows: Number of lines in the file.
    """
    return {
        **document,
        "detailed_evaluation_results": {
            "format": "jsonl",
            "file_path": path,
            "hash_algorithm": "sha256",
            "checksum": hashlib.sha256(data).hexdigest(),
            "total_rows": rows,
        },
    }


def datastore_path(document: dict[str, Any]) -> str:
    """Returns the path of a document in the datastore: ``data/benchmark/developer/model/UUID.json``.

    The UUID has the form of version 4 and is derived from a hash of the document, so equal documents have equal names.
    """
    benchmark = document["evaluation_id"].partition("/")[0]
    developer, _, model = document["model_info"]["id"].rpartition("/")
    digest = hashlib.sha256(repr(sorted(document.items())).encode("utf-8", "surrogatepass")).digest()
    name = uuid.UUID(bytes=digest[:16], version=4)
    return "/".join(("data", _plain(benchmark), _plain(developer or "unknown"), _plain(model), f"{name}.json"))


def _plain(name: str) -> str:
    """Converts a name to a file name that is valid on all file systems."""
    return re.sub(r"[^\w.\-]+", "_", name).strip("._") or "unnamed"


def documents(runs: tuple[Run, ...], provenance: Provenance) -> Iterator[dict[str, Any]]:
    """Yields one Every Eval Ever document per run.

    Raises:
        InputError: If a model id is given for an unknown system, or if a run has no value.
    """
    names = [run.name for run in runs]
    for name, _ in provenance.models:
        if name not in names:
            raise InputError(f"system '{name}' not found (there are {', '.join(names)})")
    for run in runs:
        yield every_eval_ever(run, provenance)
