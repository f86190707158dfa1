"""Benchmarks that are defined by a single Python function, which returns the counts of one record. The metrics are
ratios of summed counts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

import numpy as np

from ..base.errors import UNFIT, FaultList, InputError, unfit
from ..base.hashes import digest
from ..files.containers import open_rows
from ..files.fields import find_image, id_in
from ..files.files import display_name, read_bytes
from ..files.records import Readable, Records
from ..results.benchmark import Benchmark, Option
from ..results.counts import CountBuilder
from ..results.metric import Formula, MetricSet, Ratio
from ..results.results import Run
from ..results.signature import Signature
from .systems import Systems

EVIDENCE = Option(
    file="written", metavar="FILE", help="Write every record with its counts as JSON Lines (one file only)."
)


@dataclass(frozen=True, kw_only=True, repr=False)
class CountedBenchmark(Benchmark):
    """Benchmark whose counts are computed record by record.

    The records come from a file (JSON Lines, JSON, CSV, TSV, xlsx or parquet) or from a program. For intervals and
    tests, the images are resampled; the records identify them by ``image_id``, ``image`` or a similar key. Records
    without an image are resampled individually, by ``id`` if they have one.

    Attributes:
        count: Function that converts a record to a mapping from columns to counts, which are non-negative integers. A
            column that the mapping omits has the count 0. The keyword parameters of the function are the ``options`` of
            the benchmark. The function reports a faulty record by raising ValueError, KeyError or TypeError, and users
            see the text of this error.
        columns: Names of the counts.
        formulas: Mapping from each metric to the function that computes its value from summed counts, for example
            :func:`scapo_eval.ratio` for a share or a mean.
        higher_is_better: Mapping from each metric to True if higher values are better, used for colors and arrows.
        plain_numbers: Names of the metrics that are not fractions.
        signed: Names of the metrics in [-1, 1], such as differences of two fractions.
        at_most: Pairs of columns in which the first count never exceeds the second count.
        ranges: Mapping from plain numbers to the width of their range (6 for a rating from 0 to 6). With
            ``--equivalence``, a point is a hundredth of the range or, without a range, of the first system's value.
        version: Version of the counting rules, for the signature. Runs of different versions are not compared.

    Raises:
        InputError: If a field names a metric without a formula, or a column that is not in ``columns``.

    Example:
        >>> from scapo_eval import CountedBenchmark, ratio
        >>> numerals = CountedBenchmark(
        ...     name="numerals",
        ...     count=lambda record: {"words": len(record["caption"].split()), "digits": record["caption"].count("2")},
        ...     columns=("words", "digits"),
        ...     formulas={"digit_rate": ratio("digits", "words")},
        ... )
        >>> numerals.count({"caption": "2 dogs and 2 cats"})
        {'words': 5, 'digits': 2}
    """

    count: Callable[..., Mapping[str, int]]
    columns: Sequence[str]
    formulas: Mapping[str, Formula]
    higher_is_better: Mapping[str, bool] = field(default_factory=dict)
    plain_numbers: Sequence[str] = ()
    signed: Sequence[str] = ()
    at_most: Sequence[tuple[str, str]] = ()
    ranges: Mapping[str, float] = field(default_factory=dict)
    version: str = ""
    files: str = "records"

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.columns, str):
            raise InputError(f"'{self.name}': columns must be a list of names, got {self.columns!r}")
        metrics_named = (*self.higher_is_better, *self.plain_numbers, *self.signed, *self.ranges, *self.headline)
        ratios = [formula for formula in self.formulas.values() if isinstance(formula, Ratio)]
        in_ratios = [name for each in ratios for name in (each.numerator, each.denominator)]
        columns_named = [*chain.from_iterable(self.at_most), *in_ratios]
        for what, named, known in (("metric", metrics_named, self.formulas), ("column", columns_named, self.columns)):
            if unknown := [name for name in named if name not in known]:
                raise InputError(f"'{self.name}' has no {what} '{unknown[0]}' (there are: {', '.join(known)})")
        metrics = MetricSet(
            self.name,
            tuple(self.columns),
            self.formulas,
            self.higher_is_better,
            frozenset(self.plain_numbers),
            tuple(self.at_most),
            signed=frozenset(self.signed),
            ranges=self.ranges,
        )
        object.__setattr__(self, "metric_set", lambda columns: metrics)
        object.__setattr__(self, "score", self._score)
        object.__setattr__(self, "declares", self.count)
        object.__setattr__(self, "options", {**self.options, "per_record": EVIDENCE})

    def _score(self, systems: Systems, *, per_record: str | None = None, **options: Any) -> list[Run]:
        systems.alone("--per-record", per_record, "file")
        runs = []
        with systems.evidence(per_record) as write:
            for name, source in systems.named().items():
                rows = list(self._counted(source, options, systems))
                if write:
                    write({**record, "counts": dict(counts)} for _, record, counts in rows)
                runs.append(self._run(name, rows, options, systems))
        return runs

    def _counted(
        self, source: Readable, options: Mapping[str, Any], systems: Systems
    ) -> Iterator[tuple[str, Mapping[str, Any], Mapping[str, int]]]:
        """Yields each record with its resampling unit and its counts.

        Raises:
            InputErrors: If records are faulty. The error lists them by line.
            InputError: If the file contains no records, or a record appears twice.
        """
        faults, lines = FaultList(), dict[str, int]()
        place = display_name(source)
        for line, record in open_rows(source, warn=systems.warn):
            try:
                identity = id_in(record, "id") if record.get("id") is not None else None
                if identity is not None and lines.setdefault(identity, line) != line:
                    raise ValueError(f"the id {identity!r} appears twice (lines {lines[identity]} and {line})")
                yield find_image(record) or identity or f"record {line}", record, self._checked(record, options)
            except UNFIT as error:
                faults.add(InputError(unfit(error), path=place, line=line))
        faults.raise_if_any()

    def _checked(self, record: Mapping[str, Any], options: Mapping[str, Any]) -> Mapping[str, int]:
        counts = self.count(record, **options)
        if unknown := [name for name in counts if name not in self.columns]:
            raise ValueError(f"'{self.name}' returns counts that are not columns: {', '.join(unknown)}")
        for name, value in counts.items():
            if value != int(value) or value < 0:
                raise ValueError(f"'{self.name}' must count non-negative whole numbers, and {name} is {value!r}")
        for few, many in self.at_most:
            if counts.get(few, 0) > counts.get(many, 0):
                raise ValueError(f"'{self.name}' counts more {few} than {many}")
        return counts

    def _run(
        self,
        name: str,
        rows: Sequence[tuple[str, Mapping[str, Any], Mapping[str, int]]],
        options: Mapping[str, Any],
        systems: Systems,
    ) -> Run:
        builder = CountBuilder(tuple(self.columns))
        matrix = [[int(counts.get(column, 0)) for column in self.columns] for _, _, counts in rows]
        builder.add([unit for unit, _, _ in rows], np.array(matrix, dtype=np.int64))
        table = builder.table()
        assert self.metric_set is not None
        return Run(
            name=name,
            signature=Signature.of(
                self.name,
                version=self.version or None,
                **{option: self._said(option, value) for option, value in options.items()},
                n=len(rows),
                ids=digest(table.image_ids),
            ),
            metric_set=self.metric_set(table.columns),
            table=table,
            n_records=len(rows),
            resampling=systems.resampling,
        )

    def _said(self, option: str, value: Any) -> str | None:
        """Returns the value of an option as it appears in the signature. A file is represented by a hash of its
        content.
        """
        values = value if isinstance(value, (list, tuple)) else [] if value is None else [value]
        if self.options[option].file == "read":
            return digest(read_bytes(path) for path in values if not isinstance(path, Records)) if values else None
        return "+".join(map(str, values)) or None
