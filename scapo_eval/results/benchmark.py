"""What a benchmark is: one record, found by its name; everything that several verbs need of it stands there.

Adding one takes a module (or package) ``scapo_eval/benchmarks/NAME`` with its record ``BENCHMARK``, a verb
``scapo_eval/cli/NAME.py``, and its line in :data:`SUMMARIES`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

from ..base.errors import InputError
from ..base.reprs import fields_in_short

if TYPE_CHECKING:
    from ..base.types import Answer
    from .metric import MetricSet

SUMMARIES: Mapping[str, str] = {
    "capscore": "Cap. Score, Hal. and Cover Rate, CHAIR of caption files (the default verb).",
    "chair": "CHAIR_s, CHAIR_i, Recall and Len as the project, the standalone script or OPERA's reads captions.",
    "objhal": "Object HalBench: CHAIR_s, CHAIR_s refined, CHAIR_i, recall; objects listed by a judge, or matched.",
    "amber": "AMBER: CHAIR, Cover, Hal, Cog, Cap. Score; accuracy, precision, recall, F1 per dimension.",
    "phd": "PhD index per mode and task; also writes PhD's prompts.",
    "pope": "POPE: accuracy, precision, recall, F1, yes ratio; overall and per category.",
    "hallusionbench": "HallusionBench: accuracy per question, per figure and per pair of questions.",
    "yesno": "The same metrics for any yes/no questions.",
    "mmhal": "MMHal-Bench score and hallucination rate from a judge's ratings.",
    "faithscore": "FaithScore and Avg. Facts from verified facts.",
    "facts": "Claims of descriptions: precision, recall, F1, DCScore, CAPEval's C and P from judges' verdicts.",
    "density": "Annotated objects and rewarded subsentences per response, for vocabularies and rules.",
}
"""Name -> one line of help, in the order of the help page; read without importing any benchmark."""

Record = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Benchmark:
    """One benchmark.

    Attributes:
        name: key of :data:`SUMMARIES`, name of its metric set.
        metric_set: column names of a table of counts -> its metrics; runs may differ in their parts.
        verb: the verb that scores it.
        several: whether the verb takes several systems and compares them with the first.
        headline: the metrics by which it is known, for tables of several benchmarks; none: all of them.
        frontiers: ``(x metric, y metric, title)`` of pictures of faithfulness against coverage.
        recognizes: whether an answer that does not name its benchmark belongs here by its mode or question.
        recognizes_file: what a file of answers looks like, for messages; None where it is not of this benchmark.
        prompts: question file and its first record -> ``(line, record)`` for every prompt, the record with ``id``,
            ``prompt`` (or ``question``), ``image`` and what the answer should carry along; None where the file is not
            of this benchmark.
    """

    name: str
    metric_set: Callable[[tuple[str, ...]], MetricSet]
    verb: str = ""
    several: bool = True
    headline: Sequence[str] = ()
    frontiers: Sequence[tuple[str, str, str]] = ()
    recognizes: Callable[[Answer], bool] | None = None
    recognizes_file: Callable[[Sequence[Answer]], str | None] | None = None
    prompts: Callable[[str, Record], Iterable[tuple[int, Record]] | None] | None = None

    __repr__ = fields_in_short

    def __post_init__(self) -> None:
        object.__setattr__(self, "verb", self.verb or self.name)


@cache
def benchmark(name: str) -> Benchmark:
    """The record of a benchmark.

    Raises:
        InputError: unknown benchmark.
    """
    if name not in SUMMARIES:
        raise InputError(f"unknown benchmark '{name}' (known: {', '.join(SUMMARIES)})")
    found: Benchmark = import_module(f"scapo_eval.benchmarks.{name}").BENCHMARK
    return found


def benchmarks() -> Iterator[Benchmark]:
    """Every record, in the order of :data:`SUMMARIES`."""
    return map(benchmark, SUMMARIES)


def metric_set_of(name: str, columns: Sequence[str]) -> MetricSet:
    """The metric set that a results file was made with.

    Args:
        name: its name.
        columns: of the file's counts.

    Raises:
        InputError: this version does not know it, or its columns are others.
    """
    if name not in SUMMARIES:
        raise InputError(f"this version does not know the metrics of '{name}' (known: {', '.join(SUMMARIES)})")
    found = benchmark(name).metric_set(tuple(columns))
    if found.columns != tuple(columns):
        raise InputError(f"the results' counts are not those of '{name}' in this version")
    return found
