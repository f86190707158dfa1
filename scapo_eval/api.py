"""Comparison of runs, and lookup of a benchmark's Python function."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from .base.errors import InputError, short_repr
from .benchmarks.systems import function_of
from .files.source import Input
from .results.benchmark import BENCHMARK_OF, benchmark, benchmark_names, has_benchmark
from .results.comparison import compare as compare_runs
from .results.results import NotResults, Results, Run, load_results, unique_names
from .results.stats import Bootstrap, IntervalMethod, Test


def compare(
    runs: Iterable[Run | Input],
    *,
    allow_different: bool = False,
    test: Test = "studentized_permutation",
    interval: IntervalMethod = "wilson",
    margin: float | None = None,
    resamples: int | None = None,
    seed: int | None = None,
    bootstrap: Bootstrap | None = None,
) -> Results:
    """Compares runs of one benchmark with the first of these runs, and computes differences, intervals and paired
    tests.

    Args:
        runs: Runs to compare, as returned by functions such as :func:`score` and :func:`chair`, or paths of results
            files, which :func:`load_results` reads. If several runs have the same name, a number is appended to each
            of these names.
        allow_different: True to compare runs that were scored with different settings (ground truth, vocabulary,
            parser...).
        test: Method for the p-values; see :func:`scapo_eval.results.stats.paired_differences`.
        interval: Method for the intervals: ``wilson``, or ``percentile`` (the only method in version 0.2.0).
        margin: Largest difference at which two systems count as equivalent (0.01 is one point: a hundredth of a
            metric's range, or of the baseline's value if a plain number has no range). If a margin is given,
            ``p_equivalence`` is added to the results.
        resamples, seed, bootstrap: Settings for all intervals and tests. By default, the settings of the first run are
            used.

    Raises:
        InputError: If there are no runs, or if the runs belong to different benchmarks or were scored with different
            settings.

    Example:
        >>> import scapo_eval
        >>> rows = [{"image_id": k, "caption": "A dog and a cat.", "objects": ["dog", "couch"]} for k in range(40)]
        >>> better = [{**row, "caption": "A dog on a couch."} for row in rows]
        >>> results = scapo_eval.compare([scapo_eval.score(rows, name="base"), scapo_eval.score(better, name="ours")])
        >>> results.comparisons[0]["difference"]
        -0.5
    """
    given = [runs] if isinstance(runs, (str, os.PathLike, Run)) else runs.runs if isinstance(runs, Results) else runs
    if not isinstance(given, Iterable):
        raise InputError(f"expected runs (from score, chair, ...) or paths of results files, found {short_repr(runs)}")
    listed = [run for each in given for run in (_loaded(each) if isinstance(each, (str, os.PathLike)) else (each,))]
    if strangers := [type(run).__name__ for run in listed if not isinstance(run, Run)]:
        raise InputError(f"expected runs (from score, chair, ...) or paths of results files, found {strangers[0]}")
    if not listed:
        raise InputError("there are no runs to compare")
    drawn = listed[0].resampling
    resampling = replace(
        drawn,
        resamples=drawn.resamples if resamples is None else resamples,
        seed=drawn.seed if seed is None else seed,
        bootstrap=bootstrap or drawn.bootstrap,
        interval=interval,
    )
    return compare_runs(
        unique_names(listed), allow_different=allow_different, test=test, resampling=resampling, margin=margin
    )


def _loaded(path: Input) -> tuple[Run, ...]:
    try:
        return load_results(path)
    except NotResults as error:
        reason = (
            f"{error.reason.partition('; ')[0]}; score captions or answers first, for example with scapo_eval.score"
        )
        raise InputError(reason, path=error.path) from None


def function(name: str) -> Callable[..., Any]:
    """Returns the Python function ``scapo_eval.NAME`` that scores a benchmark. The benchmark may belong to this package
    or to another package.

    Args:
        name: Name of the benchmark, or of the function itself. The functions for the benchmarks ``capscore`` and
            ``claimscore`` are :func:`scapo_eval.score` and :func:`scapo_eval.claims`.

    Returns:
        A function that accepts answers, captions or other inputs of the benchmark and returns a
        :class:`~scapo_eval.Run`. The docstring of the function lists its options.

    Raises:
        InputError: If the benchmark is unknown, or has no function because it only compares files.

    Example:
        >>> import scapo_eval
        >>> scapo_eval.api.function("mmhal")([{"image_id": 1, "rating": 6}]).values["mmhal_score"]
        6.0
    """
    made = function_of(benchmark(BENCHMARK_OF.get(name, name)))
    if made is None:
        raise InputError(f"the benchmark '{name}' has no function in Python")
    return made


def __getattr__(name: str) -> Any:
    record = BENCHMARK_OF.get(name, name)
    if not name.startswith("_") and has_benchmark(record):
        made = function_of(benchmark(record))
        if made is not None:
            return made
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(["compare", "function", *BENCHMARK_OF, *benchmark_names()])
