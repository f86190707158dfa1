"""Import of metric values that other evaluation harnesses computed. The values are stored in a results file without
being recomputed.

lmms-eval writes ``{"results": {task: {"metric,filter": value, "metric_stderr,filter": ...}}, "configs", ...}``.
VLMEvalKit writes tables (``*_score.csv``, ``*_acc.csv``), whose columns identify the benchmark. Each of the general
benchmarks in the paper has one name and one scale, independent of the harness. The field ``printed`` contains the
number as the harness reports it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..base.errors import InputError
from ..base.hashes import digest
from ..base.version import RESULTS_FORMAT
from ..files.containers import Rows
from ..files.fields import Record, optional_text
from ..files.files import read_bytes
from ..files.source import Input
from ..readers.formats import LMMS_EVAL_RESULTS, VLMEVALKIT_SCORES, Recognized, wrong_kind
from .signature import Signature

FINISHED = "handed-over"
"""Name of the metric set for imported values."""

GENERAL = (
    "mme_perception", "mme_cognition", "mmbench_circular", "mmbench_vanilla", "mmmu_accuracy", "llava_bench_relative",
    "mmvet_total",
)  # fmt: skip
"""General benchmarks of the paper. Higher values are better in all of them."""

NORMAL_95 = 1.959963984540054
"""Half-width of a 95 % interval, in standard errors."""

PLAIN, PERCENT, FRACTION = None, 100.0, 1.0
"""Scales on which harnesses write a value: points on a benchmark-specific scale, percent, or a fraction."""

_LMMS_KNOWN: dict[tuple[str, str], tuple[str, float | None]] = {
    ("mme", "mme_perception_score"): ("mme_perception", PLAIN),
    ("mme", "mme_percetion_score"): ("mme_perception", PLAIN),  # misspelled by the harness until 2024
    ("mme", "mme_cognition_score"): ("mme_cognition", PLAIN),
    ("mmbench_en_dev", "gpt_eval_score"): ("mmbench_circular", PERCENT),
    ("mmbench_en_dev_static", "gpt_eval_score"): ("mmbench_circular", PERCENT),
    ("mmmu_val", "mmmu_acc"): ("mmmu_accuracy", FRACTION),
    ("llava_in_the_wild", "gpt_eval_llava_all"): ("llava_bench_relative", PERCENT),
    ("mmvet", "gpt_eval_score"): ("mmvet_total", PERCENT),
}
_MMBENCH_COLUMNS = frozenset({"AR", "CP", "FP-C", "FP-S", "LR", "RR"})
_MMMU_COLUMNS = frozenset({"Accounting", "Art & Design", "Business", "Tech & Engineering", "Health & Medicine"})
_MAIN_SPLITS = ("validation", "val", "dev", "none", "")


@dataclass(frozen=True, slots=True)
class HarnessValue:
    """Value that another harness computed, as stored in a results file.

    Attributes:
        value: Value as a fraction, or on the scale of the harness if ``plain`` is True.
        printed: Number as the harness reports it.
        plain: True if the value is not a fraction.
        stderr: Standard error on the scale of ``value``, or None if the file contains none.
    """

    value: float
    printed: float
    plain: bool
    stderr: float | None = None

    def as_object(self) -> dict[str, Any]:
        """Returns the entry for the value in a results file. If the standard error is unknown, the entry has no
        interval.
        """
        half = None if self.stderr is None else NORMAL_95 * self.stderr
        return {
            "value": self.value,
            "ci_low": None if half is None else self.value - half,
            "ci_high": None if half is None else self.value + half,
            "printed": self.printed,
            "plain": self.plain,
        }


@dataclass(frozen=True, slots=True)
class HandedOver:
    """Values from one results file that another harness wrote.

    Attributes:
        path: Path of the file.
        tool: Name of the harness: ``lmms-eval`` or ``vlmevalkit``.
        model: Name of the evaluated model, or None if the file does not contain the name.
        values: Mapping from metrics to values. The metrics of unknown benchmarks are named ``task/metric``.
        n: Number of evaluated answers, or None if the file does not contain the number.
        details: Additional fields for the signature.
    """

    path: str
    tool: str
    model: str | None
    values: dict[str, HarnessValue]
    n: int | None
    details: dict[str, str] = field(default_factory=dict)


def is_results(source: Recognized) -> bool:
    """Returns True if a file contains values that another harness computed."""
    return source.format in (LMMS_EVAL_RESULTS, VLMEVALKIT_SCORES)


def handed_over(source: Recognized, path: Input) -> HandedOver:
    """Reads the values from a results file that another harness wrote.

    Raises:
        InputError: If the file contains no numbers, or is not a results file of a supported harness.
    """
    if source.format is LMMS_EVAL_RESULTS:
        run = _lmms_eval(source.rows)
    elif source.format is VLMEVALKIT_SCORES:
        run = _vlmevalkit(source.rows)
    else:
        raise wrong_kind(source, "finished values")
    if not run.values:
        raise InputError(f"recognized as {source.format.title}, but without any number", path=run.path)
    run.details["file"] = digest([read_bytes(path)])
    return run


def results_object(runs: Sequence[HandedOver], name: str | None = None) -> dict[str, Any]:
    """Combines imported values into the content of a results file. If several files belong to one system, their values
    are merged.

    Args:
        runs: Contents of the imported files (at least one).
        name: Name of the system if all files belong to the same system, otherwise None. If no name is given, the model
            or the file name identifies the system of each file.

    Raises:
        InputError: If two files of one system contain the same metric.
    """
    systems: dict[str, list[HandedOver]] = {}
    for run in runs:
        systems.setdefault(name or run.model or Path(run.path).name.partition(".")[0], []).append(run)
    return {
        "format": RESULTS_FORMAT,
        "metric": FINISHED,
        "systems": [_system(system, members) for system, members in systems.items()],
        "comparisons": [],
    }


def _system(name: str, runs: Sequence[HandedOver]) -> dict[str, Any]:
    values: dict[str, tuple[HarnessValue, str]] = {}
    for run in runs:
        for key, measured in run.values.items():
            if key in values:
                raise InputError(f"contains {key!r} for {name!r}, as does {values[key][1]}", path=run.path)
            values[key] = measured, run.path
    tools = "+".join(dict.fromkeys(run.tool for run in runs))
    details: dict[str, str] = {}
    for run in runs:
        for key, value in run.details.items():
            details[key] = f"{details[key]}+{value}" if key in details and details[key] != value else value
    n = sum(run.n for run in runs if run.n is not None)
    return {
        "name": name,
        "signature": str(Signature.of(f"{FINISHED}:{tools}", **details, n=n or None)),
        "n_captions": n,
        "n_images": 0,
        "metrics": {key: measured.as_object() for key, (measured, _) in values.items()},
        "counts": {},
    }


# --- lmms-eval ------------------------------------------------------------------------------------------------------


def _lmms_eval(rows: Rows) -> HandedOver:
    document = rows.first
    values: dict[str, HarnessValue] = {}
    for task, metrics in document["results"].items():
        if isinstance(metrics, dict):
            values.update(_lmms_task(task, metrics))
    samples = document.get("n-samples")
    effective = [
        count["effective"]
        for task, count in (samples.items() if isinstance(samples, dict) else ())
        if isinstance(count, dict) and isinstance(count.get("effective"), int)
    ]
    details = {
        "harness": optional_text(document.get("lmms_eval_version")) or optional_text(document.get("git_hash")),
        "model": _lmms_model_name(document),
    }
    return HandedOver(
        path=rows.path,
        tool="lmms-eval",
        model=_lmms_model_name(document),
        values=values,
        n=sum(effective) if effective else None,
        details={key: value.replace("|", "/") for key, value in details.items() if value},
    )


def _lmms_task(task: str, metrics: Record) -> Iterator[tuple[str, HarnessValue]]:
    for key, value in metrics.items():
        metric, _, rule = key.partition(",")
        number = _number(value)
        if number is None or metric == "alias" or "_stderr" in metric:
            continue
        known = _LMMS_KNOWN.get((task, metric))
        name, scale = known or (f"{task}/{metric}" + (f"@{rule}" if rule not in ("", "none") else ""), PLAIN)
        yield name, _harness_value(number, scale, _number(metrics.get(f"{metric}_stderr,{rule}")))


def _lmms_model_name(document: Record) -> str | None:
    """Returns the name of the model, which is the last part of the path or hub name of its weights."""
    config = document.get("config")
    told = config.get("model_args") if isinstance(config, dict) else None
    match = re.search(r"(?:^|,)(?:pretrained|model_version|model)=([^,]+)", told) if isinstance(told, str) else None
    name = optional_text(document.get("model_name")) or (match.group(1) if match else None)
    if name is None:
        return optional_text(config.get("model")) if isinstance(config, dict) else None
    cached = re.search(r"models--([^/]+)/snapshots/", name)  # folder in the Hugging Face cache
    return cached.group(1).split("--")[-1] if cached else name.rstrip("/").split("/")[-1]


# --- VLMEvalKit -----------------------------------------------------------------------------------------------------


def _vlmevalkit(rows: Rows) -> HandedOver:
    table = list(_as_table(rows))
    columns = set(table[0])
    known: Known
    if {"perception", "reasoning"} <= columns:
        known = {"perception": ("mme_perception", PLAIN), "reasoning": ("mme_cognition", PLAIN)}
        values = _columns("MME", table, known, key=None)
    elif "Relative Score (main)" in columns:
        known = {"overall/Relative Score (main)": ("llava_bench_relative", PERCENT)}
        values = _columns("LLaVABench", table, known, key="split")
    elif {"Category", "tot", "acc"} <= columns:
        benchmark = "MMVet" if any("rec" in str(row["Category"]) for row in table) else "VLMEvalKit"
        known = {"Overall/acc": ("mmvet_total", PERCENT)} if benchmark == "MMVet" else {}
        values = _columns(benchmark, table, known, key="Category")
    elif columns & _MMMU_COLUMNS:
        values = _columns("MMMU", table, _main_split(table, "mmmu_accuracy"), key="split")
    elif columns & _MMBENCH_COLUMNS:
        values = _columns("MMBench", table, _mmbench_splits(table, rows.path), key="split")
    else:
        values = _columns("VLMEvalKit", table, {}, key="split" if "split" in columns else None)
    return HandedOver(rows.path, "vlmevalkit", None, values, None)


def _as_table(rows: Rows) -> Iterator[Record]:
    """Yields the records of a table. A JSON object that contains columns is transposed into rows."""
    for _, record in rows:
        lists = [value for value in record.values() if isinstance(value, list)]
        if not lists:
            yield record
        for k in range(len(lists[0]) if lists else 0):
            yield {key: value[k] for key, value in record.items() if isinstance(value, list) and k < len(value)}


Known = Mapping[str, tuple[str, float | None]]


def _columns(benchmark: str, table: Iterable[Record], known: Known, *, key: str | None) -> dict[str, HarnessValue]:
    """Returns all numbers in a table, together with their names. A number is named ``benchmark/row/column`` unless it
    is a known metric.
    """
    values: dict[str, HarnessValue] = {}
    for row in table:
        group = str(row.get(key) or "") if key else ""
        for column, value in row.items():
            number = _number(value)
            if column == key or number is None:
                continue
            place = f"{group}/{column}" if group and group != "none" else column
            name, scale = known.get(place, (f"{benchmark}/{place}", PLAIN))
            values[name] = _harness_value(number, scale, None)
    return values


def _main_split(table: Sequence[Record], name: str) -> Known:
    """Returns the overall accuracy on the split that papers report, which is the validation split if there is one."""
    splits = [str(row.get("split") or "") for row in table]
    main = next((split for split in _MAIN_SPLITS if split in splits), None)
    if main is None:
        return {}
    return {"Overall" if main in ("", "none") else f"{main}/Overall": (name, FRACTION)}


def _mmbench_splits(table: Sequence[Record], path: str) -> Known:
    """Returns the overall accuracies of MMBench from a table with circular scoring (``_acc.csv``) or with circular and
    vanilla scoring (``_acc_all.csv``).

    Tables that older versions wrote with vanilla scoring have the same columns, so only the file name distinguishes
    these tables.
    """
    splits = {str(row.get("split") or "") for row in table}
    both: dict[str, tuple[str, float | None]] = {}
    for way, name in (("circular", "mmbench_circular"), ("vanilla_0", "mmbench_vanilla")):
        main = next((split for split in (f"{way}_dev", way) if split in splits), None)
        if main is not None:
            both[f"{main}/Overall"] = (name, FRACTION)
    return both or _main_split(table, "mmbench_vanilla" if "vanilla" in Path(path).name else "mmbench_circular")


def _harness_value(number: float, scale: float | None, stderr: float | None) -> HarnessValue:
    divisor = scale or 1.0
    return HarnessValue(number / divisor, number, scale is PLAIN, None if stderr is None else stderr / divisor)


def _number(value: object) -> float | None:
    """Converts a value to a finite float. Numbers that are stored as text are accepted. Returns None for ``N/A`` and
    all other values that are not numbers.
    """
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return None
    try:
        number = float(value)
    except ValueError:
        return None
    return number if abs(number) < float("inf") else None
