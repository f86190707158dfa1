"""Runs and results. A run contains the counts and metrics of one system, and results combine several runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import count
from pathlib import Path
from typing import Any, get_args

import msgspec
import numpy as np
from numpy.typing import NDArray

from ..base.errors import UNFIT, InputError, ScapoError, check_choice, short_repr
from ..base.reprs import listed, one_line
from ..base.version import RESULTS_FORMAT
from ..files.account import Account
from ..files.files import STDIN, atomic_write
from ..files.json_text import dump_json, read_json
from ..files.source import Input, Source
from ..readers.data_set import DataSet, input_at
from ..readers.formats import recognize_file
from .benchmark import metric_set_of
from .check import cell_numbers, check_results, with_counts
from .count_files import in_file, remove_others, write_counts
from .counts import CountTable
from .harness import FINISHED, GENERAL
from .items import Items
from .metric import Floats, MetricSet, Sums
from .parts import Parts
from .signature import Signature
from .stats import (
    CONFIDENCE,
    DEFAULT_RESAMPLES,
    DEFAULT_SEED,
    Bootstrap,
    IntervalMethod,
    Test,
    Verdicts,
    bootstrap_of,
    confidence_intervals,
    few_events,
    values,
)


@dataclass(frozen=True, slots=True)
class Resampling:
    """Settings for intervals and resampling tests.

    Attributes:
        resamples: Number of resamples, or 0 to omit intervals and tests.
        seed: Seed for numpy's default generator.
        confidence: Confidence level of the intervals.
        bootstrap: Kind of bootstrap for ``percentile`` intervals: ``multinomial``, or ``poisson``, whose sums can be
            added across machines (:mod:`scapo_eval.results.poisson`). By default, ``poisson`` is used for more than
            200,000 images.
        interval: Method for the intervals: ``wilson``, or ``percentile`` for bootstrap intervals; see
            :mod:`scapo_eval.results.stats`.
        test: Name of the test in the comparison that contains the run, or None for a single run.
    """

    resamples: int = DEFAULT_RESAMPLES
    seed: int = DEFAULT_SEED
    confidence: float = CONFIDENCE
    bootstrap: Bootstrap | None = None
    interval: IntervalMethod = "wilson"
    test: Test | None = None

    def __post_init__(self) -> None:
        for name in ("resamples", "seed"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 0:
                raise InputError(f"{name} must be a whole number of at least 0, got {short_repr(value)}")
        if str(self.bootstrap) == "streams":  # name in 0.2.0: same distribution, drawn by several threads
            object.__setattr__(self, "bootstrap", "multinomial")
        if self.bootstrap is not None:
            check_choice("bootstrap", self.bootstrap, get_args(Bootstrap))
        check_choice("interval", self.interval, get_args(IntervalMethod))
        if self.test is not None:
            check_choice("test", self.test, get_args(Test))

    @classmethod
    def of(cls, signature: Signature) -> Resampling:
        """Returns the resampling settings from the signature of a results file. If the signature has no field
        ``interval``, the method is ``percentile``.
        """
        fields = signature.fields
        method = fields.get("interval", "percentile")
        return cls(
            int(fields.get("bs", 0)) or DEFAULT_RESAMPLES,
            int(fields.get("seed", DEFAULT_SEED)),
            confidence=float(fields.get("ci", CONFIDENCE)),
            bootstrap="poisson" if fields.get("bootstrap") == "poisson" else None,
            interval="percentile" if method == "percentile" else "wilson",
        )


@dataclass(frozen=True, slots=True)
class MetricValue:
    """Value of one metric of a run, with its interval.

    Attributes:
        value: Fraction, or another number if the metric set lists the metric in ``plain_numbers``. ``value`` is None if
            the metric cannot be computed.
        low, high: Bounds of the confidence interval, for which images are treated as independent units. Both bounds are
            None if there is no interval.
        printed: Value as the official script prints it, in parity mode.
    """

    value: float | None
    low: float | None
    high: float | None
    printed: float | str | None = None


@dataclass(frozen=True, kw_only=True)
class Run:
    """Output of one system on one benchmark, reduced to counts.

    Attributes:
        name: Name in tables, which is unique among the runs of a table (usually the file name without suffixes).
        signature: Settings that make the values reproducible, including the settings for the intervals.
        metric_set: Metric set. Runs that are compared must share the same metric set.
        table: Counts per image.
        n_records: Number of scored records (captions, answers).
        other_counts: Run-level counts that no metric uses (``unparsed``, ``missing``, ``skipped``...).
        verdicts: Correctness of single items (yes/no answers), for McNemar's test.
        items: Counts of single items, for comparisons of systems that answered different questions, or None if each
            image has one item or the items are unknown.
        printed: In parity mode, the values as the official script prints them.
        notes: Sentences that state what a reader of the values should know.
        resampling: Settings for the intervals.
        account: Numbers of read, scored and skipped records of the file, or None if they were not recorded.
        finished: Values that another harness computed. A run with such values has no counts, so it is neither resampled
            nor tested.
        parts: Counts by the values of a column, or None if no column was requested.

    Example:
        >>> import scapo_eval
        >>> rows = [{"image_id": k, "caption": "A dog and a cat.", "objects": ["dog", "couch"]} for k in range(40)]
        >>> run = scapo_eval.score(rows)
        >>> run.n_images, round(run.values["cover_rate"], 2)
        (40, 0.5)
    """

    name: str
    signature: Signature
    metric_set: MetricSet
    table: CountTable
    n_records: int
    other_counts: Mapping[str, int] = field(default_factory=dict)
    verdicts: Verdicts = field(default_factory=dict)
    items: Items | None = None
    printed: Mapping[str, float | str | None] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    resampling: Resampling = Resampling()
    account: Account | None = None
    finished: Mapping[str, MetricValue] | None = None
    parts: Parts | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.name, str):
            raise InputError(f"the name of a run must be a string, got {short_repr(self.name)}")
        if self.finished is not None:
            return
        drawn = self.resampling
        signature = self.signature.drawn(
            resamples=drawn.resamples,
            seed=drawn.seed,
            confidence=drawn.confidence,
            bootstrap=drawn.bootstrap or bootstrap_of(self.n_images),
            interval=drawn.interval,
            test=drawn.test,
        )
        object.__setattr__(self, "signature", signature)

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={value:.4g}" for name, value in list(self.values.items())[:3] if value is not None)
        name = self.name if len(self.name) <= 40 else f"{self.name[:37]}..."
        return one_line(self, f"{name}: {shown}, {self.n_records:,} records, {self.n_images:,} images")

    def _repr_html_(self) -> str:
        return Results((self,))._repr_html_()

    @cached_property
    def values(self) -> Mapping[str, float | None]:
        """Mapping from each metric to its value, or to None if there is no value."""
        if self.finished is not None:
            return {name: metric.value for name, metric in self.metrics.items()}
        return values(self.metric_set, self.table)

    @cached_property
    def metrics(self) -> Mapping[str, MetricValue]:
        """Mapping from each metric to its value and interval. The intervals are computed when this property is first
        used.
        """
        if self.finished is not None:
            return {name: self.finished.get(name, MetricValue(None, None, None)) for name in self.metric_set.formulas}
        drawn = self.resampling
        intervals = confidence_intervals(
            self.table,
            self.metric_set,
            method=drawn.interval,
            resamples=drawn.resamples,
            seed=drawn.seed,
            confidence=drawn.confidence,
            kind=drawn.bootstrap,
        )
        return {
            name: MetricValue(value, intervals[name].low, intervals[name].high, self.printed.get(name))
            for name, value in self.values.items()
        }

    @property
    def counts(self) -> dict[str, int]:
        """Counts from which the values are computed, and all other counts of the run."""
        return {**self.table.counts(), **self.other_counts}

    @property
    def n_images(self) -> int:
        """Number of distinct images in the run."""
        return len(self.table.image_ids)

    def redrawn(self, resampling: Resampling) -> Run:
        """Returns a run with the same counts, but with different settings for the intervals."""
        return self if resampling == self.resampling else replace(self, resampling=resampling)

    def to_dict(self) -> dict[str, Any]:
        """Returns the run as an entry of ``systems`` in a results file. Fractions are unrounded, and missing values are
        None.
        """
        metrics: dict[str, dict[str, Any]] = {}
        few = {} if self.finished is not None else few_events(self.table, self.metric_set)
        for name, metric in self.metrics.items():
            metrics[name] = {"value": metric.value, "ci_low": metric.low, "ci_high": metric.high}
            if name in few:
                metrics[name] |= {"events": few[name][0], "event_images": few[name][1]}
            if name in self.printed or metric.printed is not None:
                metrics[name]["printed"] = metric.printed
            if self.finished is not None:
                metrics[name]["plain"] = name in self.metric_set.plain_numbers
        result: dict[str, Any] = {
            "name": self.name,
            "signature": str(self.signature),
            "n_captions": self.n_records,
            "n_images": self.n_images,
            "metrics": metrics,
            "counts": self.counts,
        }
        if self.account is not None:
            result["account"] = self.account.to_dict()
        if self.notes:
            result["notes"] = list(self.notes)
        return result

    def per_image(self) -> list[dict[str, Any]]:
        """Returns one record per image with ``image_id``, the counts of the image, and every metric computed for this
        image alone.

        A metric is None if it cannot be computed for the image. ``pandas.DataFrame(run.per_image())`` converts the
        records to a data frame.
        """
        of_images = self.metric_set.score(self.table.rows)
        values = [[None if value != value else value for value in column.tolist()] for column in of_images.values()]
        names = ("image_id", *self.table.columns, *of_images)
        columns = (self.table.image_ids, *self.table.rows.T.tolist(), *values)
        return [dict(zip(names, record, strict=True)) for record in zip(*columns, strict=True)]

    def to_pandas(self) -> Any:
        """Returns a tidy data frame with one row per metric and the columns of :meth:`Results.to_pandas`.

        Raises:
            MissingExtra: If pandas is not installed.
        """
        return Results((self,)).to_pandas()

    def evidence(self) -> dict[str, Any]:
        """Returns the data that a later comparison requires in place of the captions: counts per image and verdicts per
        item.
        """
        record: dict[str, Any] = {
            "columns": list(self.table.columns),
            "image_ids": list(self.table.image_ids),
            "rows": self.table.rows.tolist(),
        }
        if self.table.cells is not None:
            record["truth"] = [f"{cell:016x}" for cell in self.table.cells.tolist()]
        return record | self._evidence_of_parts()

    def _evidence_beside(self, path: str | Path) -> dict[str, Any]:
        """Writes the counts to a parquet file beside a results file, and returns the evidence that refers to it."""
        counts = {"columns": list(self.table.columns), "counts": write_counts(self.table, path)}
        return counts | self._evidence_of_parts()

    def _evidence_of_parts(self) -> dict[str, Any]:
        record: dict[str, Any] = {}
        if self.verdicts:
            record["verdicts"] = {name: dict(right) for name, right in self.verdicts.items()}
        if self.items is not None:
            record["items"] = self.items.to_dict()
        if self.parts is not None:
            record["by"] = {
                "column": self.parts.column,
                "image_ids": list(self.parts.image_ids),
                "values": list(self.parts.values),
                "rows": self.parts.rows.tolist(),
            }
        return record

    def save(self, path: str | Path) -> None:
        """Writes a results file that :func:`load_results`, ``compare`` and ``report`` can read."""
        Results((self,)).save(path)


@dataclass(frozen=True)
class Results:
    """Runs of one benchmark and their comparisons. The first run is the baseline with which the other runs are
    compared.

    Attributes:
        runs: Runs of the systems.
        comparisons: List with one mapping per system and metric; see :mod:`scapo_eval.results.comparison`.
        verdicts: List with one mapping per system; see :func:`scapo_eval.results.verdict.joint_verdict`.
        sliced: Results for each value of a column (see :class:`scapo_eval.results.slices.Sliced`), or None if no column
            was requested.

    Example:
        >>> import scapo_eval
        >>> truth = {k: ["dog"] for k in range(40)}
        >>> rows = {"base": "A dog and a cat.", "ours": "A dog."}
        >>> runs = [
        ...     scapo_eval.score([{"image_id": k, "caption": text} for k in truth], truth=truth, name=name)
        ...     for name, text in rows.items()
        ... ]
        >>> results = scapo_eval.compare(runs)
        >>> [run.name for run in results.runs], results.comparisons[0]["metric"]
        (['base', 'ours'], 'hal_rate')
    """

    runs: tuple[Run, ...]
    comparisons: tuple[Mapping[str, Any], ...] = ()
    verdicts: tuple[Mapping[str, Any], ...] = ()
    sliced: Mapping[str, Any] | None = None

    def __repr__(self) -> str:
        names = listed([run.name for run in self.runs])
        return one_line(self, f"{self.metric_set.name}, {len(self.comparisons):,} comparisons: {names}")

    def _repr_html_(self) -> str:
        from .render import html

        return html(self)

    @property
    def metric_set(self) -> MetricSet:
        """Metric set of all runs."""
        return self.runs[0].metric_set

    def to_dict(self) -> dict[str, Any]:
        """Returns ``{"systems": [...], "comparisons": [...], "verdicts": [...]}``, the output of ``--json``."""
        document: dict[str, Any] = {
            "systems": [run.to_dict() for run in self.runs],
            "comparisons": [dict(row) for row in self.comparisons],
            "verdicts": [dict(row) for row in self.verdicts],
        }
        return document if self.sliced is None else {**document, "sliced": dict(self.sliced)}

    def tidy(self) -> Iterator[dict[str, Any]]:
        """Yields one record per system and metric, with the columns of :meth:`to_pandas` as keys. Missing values are
        None.
        """
        comparisons = {(row["system"], row["metric"]): row for row in self.comparisons}
        for run in self.runs:
            for name, metric in run.metrics.items():
                row = comparisons.get((run.name, name), {})
                yield {
                    "system": run.name,
                    "metric": name,
                    "value": metric.value,
                    "ci_low": metric.low,
                    "ci_high": metric.high,
                    **{key: row.get(key) for key in ("difference", "p_value", "p_holm")},
                    "n_images": run.n_images,
                    "signature": str(run.signature),
                }

    def to_pandas(self) -> Any:
        """Returns a tidy data frame with one row per system and metric.

        The columns are ``system metric value ci_low ci_high difference p_value p_holm n_images signature``. Differences
        and p-values are relative to the first system, and are NaN in the rows of the first system. ``p_holm`` is
        corrected for the number of systems.

        Raises:
            MissingExtra: If pandas is not installed.
        """
        from .frames import to_frame

        return to_frame(self.tidy())

    def to_markdown(self, metrics: Sequence[str] | None = None, *, intervals: bool = False) -> str:
        """Returns the results as a table in Markdown.

        Args:
            metrics: Names of the metrics to include, in order. By default, all metrics are included, or the headline
                metrics of a benchmark with many metrics.
            intervals: True to display confidence intervals.

        Raises:
            InputError: If a metric is unknown.
        """
        from .render import markdown

        return markdown(self, metrics=metrics, intervals=intervals)

    def to_latex(self, metrics: Sequence[str] | None = None, *, intervals: bool = False) -> str:
        """Returns the results as a table in LaTeX (packages ``booktabs`` and ``graphicx``), with the signatures as
        comments.

        Args:
            metrics: Names of the metrics to include, in order. By default, all metrics are included, or the headline
                metrics of a benchmark with many metrics.
            intervals: True to display confidence intervals.

        Raises:
            InputError: If a metric is unknown.
        """
        from .render import latex

        return latex(self, metrics=metrics, intervals=intervals)

    def save(self, path: str | Path) -> None:
        """Writes a results file with the counts of every image. The counts of a run with more than a million images
        are in a parquet file beside it (:mod:`scapo_eval.results.count_files`).
        """
        evidence = [run._evidence_beside(path) if in_file(run.table, path) else run.evidence() for run in self.runs]
        document = {
            "format": RESULTS_FORMAT,
            "metric": self.metric_set.name,
            **self.to_dict(),
            "per_image": evidence,
        }
        with atomic_write(path) as stream:
            stream.write(dump_json(document) + b"\n")
        if str(path) != STDIN:
            remove_others(path, [record["counts"]["file"] for record in evidence if "counts" in record])


class NotResults(InputError):
    """Error for files that are not results files of this project."""


def load_results(path: Input, resampling: Resampling | None = None) -> tuple[Run, ...]:
    """Reads the runs from a results file, or from all results files in a folder or pattern.

    Args:
        path: File that :meth:`Results.save` or the option ``-o`` of a scoring command wrote, or a folder or
            pattern of such files.
        resampling: New settings for the intervals, or None for the settings in the signature of the file.

    Raises:
        NotResults: If the file is not a results file of this project.
        InputError: If the file is damaged, or contains no counts per image.

    Example:
        >>> import scapo_eval, tempfile
        >>> run = scapo_eval.score([{"image_id": 1, "caption": "A dog and a cat."}], truth={1: ["dog"]})
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     scapo_eval.compare([run]).save(f"{folder}/results.json")
        ...     [loaded] = scapo_eval.load_results(f"{folder}/results.json")
        >>> loaded.values["hal_rate"]
        0.5
    """
    source = input_at(path)
    if isinstance(source, DataSet):
        return tuple(run for file in source.files for run in load_results(file, resampling))
    path = source.name
    try:
        document = read_json(source)
    except InputError:
        if not source.head:
            raise
        document = None  # for example JSON Lines
    if not isinstance(document, Mapping) or document.get("format") != RESULTS_FORMAT:
        raise NotResults(f"not a results file of format {RESULTS_FORMAT}{_looks_like(source)}", path=path)
    if "per_image" not in document and document.get("metric") != FINISHED:
        raise InputError(
            "contains no counts per image, which tests require; create it again with -o of its verb", path=path
        )
    try:
        document = with_counts(document, source)
        check_results(document)
        if document["metric"] == FINISHED:
            return tuple(_finished_run(entry, resampling or Resampling()) for entry in document["systems"])
        return tuple(
            _run(document["metric"], entry, evidence, resampling)
            for entry, evidence in zip(document["systems"], document["per_image"], strict=True)
        )
    except ScapoError as error:
        raise InputError(str(error), path=path) from None
    except UNFIT as error:
        reason = f"damaged results file ({type(error).__name__}: {error}); create it again with -o of its verb"
        raise InputError(reason, path=path) from None


def _looks_like(source: Source) -> str:
    try:
        known = recognize_file(source)
    except ScapoError:
        return ""
    return f" but {known.title}{known.kind.advice(source, output='results.json')}" if known else ""


CHANGED = "made by an earlier version, which counted differently; score the records again for"


def _run(metric_set: str, entry: Mapping[str, Any], evidence: Mapping[str, Any], resampling: Resampling | None) -> Run:
    columns = tuple(evidence["columns"])
    rows = np.asarray(evidence["rows"], dtype=np.int64).reshape(-1, len(columns))
    signature = Signature.parse(entry["signature"])
    metrics = metric_set_of(metric_set, columns)
    changed = sorted(entry["metrics"].keys() - metrics.formulas.keys())
    return Run(
        name=entry["name"],
        signature=signature,
        metric_set=metrics,
        table=CountTable(columns, tuple(evidence["image_ids"]), rows, _cells(evidence)),
        n_records=entry["n_captions"],
        other_counts={key: value for key, value in entry["counts"].items() if key not in columns},
        verdicts=evidence.get("verdicts", {}),
        items=Items.parse(evidence["items"]) if "items" in evidence else None,
        printed={name: metric["printed"] for name, metric in entry["metrics"].items() if "printed" in metric},
        notes=(*entry.get("notes", ()), *([f"{CHANGED}: {', '.join(changed)}"] if changed else [])),
        resampling=resampling or Resampling.of(signature),
        account=msgspec.convert(entry["account"], Account) if "account" in entry else None,
        parts=_parts(evidence["by"], len(columns)) if "by" in evidence else None,
    )


def _cells(evidence: Mapping[str, Any]) -> NDArray[np.uint64] | None:
    if "truth" not in evidence:
        return None
    return cell_numbers(evidence["truth"])


def _parts(by: Mapping[str, Any], columns: int) -> Parts:
    rows = np.asarray(by["rows"], dtype=np.int64).reshape(-1, columns)
    return Parts(by["column"], tuple(by["image_ids"]), tuple(by["values"]), rows)


def _finished_run(entry: Mapping[str, Any], resampling: Resampling) -> Run:
    values = {
        name: MetricValue(metric["value"], metric["ci_low"], metric["ci_high"], metric.get("printed"))
        for name, metric in entry["metrics"].items()
    }
    plain = [name for name, metric in entry["metrics"].items() if metric.get("plain")]
    return Run(
        name=entry["name"],
        signature=Signature.parse(entry["signature"]),
        metric_set=finished_metrics(list(values), plain),
        table=CountTable((), (), np.zeros((0, 0), dtype=np.int64)),
        n_records=entry["n_captions"],
        notes=tuple(entry.get("notes", ())),
        resampling=resampling,
        finished={name: value for name, value in values.items() if value.value is not None},
    )


def finished_metrics(names: Sequence[str], plain: Sequence[str]) -> MetricSet:
    """Returns a metric set for values that another harness computed. The metric set has no counts."""

    def no_value(sums: Sums) -> Floats:
        return np.asarray(np.nan)

    known = [name for name in GENERAL if name in names]
    ordered = [*known, *(name for name in names if name not in known)]
    better = dict.fromkeys(known, True)
    return MetricSet(FINISHED, (), dict.fromkeys(ordered, no_value), better, frozenset(plain))


def same_metrics(runs: Sequence[Run]) -> list[Run]:
    """Assigns imported runs a common metric set that contains all of their metrics. Runs with counts are returned
    unchanged.
    """
    if any(run.finished is None for run in runs):
        return list(runs)
    names = list(dict.fromkeys(name for run in runs for name in run.metric_set.formulas))
    plain = [name for run in runs for name in run.metric_set.plain_numbers]
    return [replace(run, metric_set=finished_metrics(names, plain)) for run in runs]


def unique_names(runs: Sequence[Run]) -> list[Run]:
    """Appends numbers to the names of runs so that no two runs of one benchmark have the same name."""
    names = [(run.metric_set.name, run.name) for run in runs]
    taken, unique = set(names), list[Run]()
    for (benchmark, name), run in zip(names, runs, strict=True):
        if names.count((benchmark, name)) > 1:
            numbered = (f"{name}#{k}" for k in count(1))
            own = next(each for each in numbered if (benchmark, each) not in taken)
            taken.add((benchmark, own))
            run = replace(run, name=own)
        unique.append(run)
    return unique


def system_names(paths: Sequence[str]) -> list[str]:
    """Returns short, distinct names for files. Each name contains the file name without its suffix and as many parent
    folders as necessary.
    """
    plain = [STDIN if path == STDIN else str(Path(path).parent / _stem(path)) for path in paths]
    for depth in range(1, 20):
        names = ["/".join(Path(path).parts[-depth:]) for path in plain]
        if len(set(names)) == len(names):
            return names
    return [f"{Path(name).name}#{k}" for k, name in enumerate(plain, 1)]


def _stem(path: str) -> str:
    name = Path(path).name
    for suffix in (".gz", ".zst", ".jsonl", ".json", ".tsv", ".csv", ".xlsx", ".parquet"):
        name = name.removesuffix(suffix) or name
    return name
