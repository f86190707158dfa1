"""Comparison of plain answers with answers that were given with a description in the prompt (Table 4 of the paper), in
terms of accuracy, precision, recall and F1.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from ..base.errors import InputError, OptionError
from ..files.containers import Warn, open_rows, warn_user
from ..files.records import Readable, Records
from ..files.source import Source
from ..results.benchmark import SUMMARIES, Benchmark, CommandExample, Option, benchmark, benchmarks
from ..results.results import Resampling, Run
from .answered import AUGMENTED
from .systems import Systems

METRICS = ("accuracy", "precision", "recall", "f1")


def augmented_runs(
    name: str,
    answers: Mapping[str, Readable],
    truth: Sequence[str],
    *,
    parser_name: str | None = None,
    resampling: Resampling | None = None,
    warn: Warn = warn_user,
) -> list[Run]:
    """Computes accuracy, precision, recall and F1 of each file of answers. The notes of a run state whether its prompts
    contained descriptions.

    Args:
        name: Name of a benchmark whose record supports ``augmented``.
        answers: Mapping from system names to files of answers. The first file should contain the answers that were
            given without descriptions.
        truth: Data of the benchmark, question files, or an empty list to use the labels in the answers.
        parser_name: Name of the rule for parsing yes/no answers, or None for the default of the benchmark.
        resampling: Resampling settings for the confidence intervals.
        warn: Callback for warnings about a baseline whose prompts contain descriptions, and about damaged files that
            can still be read.

    Raises:
        InputError, InputErrors: If a file is invalid.
    """
    sources = {system: path if isinstance(path, Records) else Source.of(path) for system, path in answers.items()}
    for source in sources.values():
        if isinstance(source, Source):
            source.keep()
    score = benchmark(name).augmented
    if score is None:
        raise InputError(f"'{name}' has no yes/no answers; known: {', '.join(KNOWN)}")
    runs = score(sources, truth, parser_name, resampling or Resampling(), warn)
    described = [_has_description(path) for path in sources.values()]
    if described[0] and not all(described):
        warn(
            f"{runs[0].name} is the baseline, but contains augmented answers; "
            "list the answers without descriptions first"
        )
    elif not any(described[1:]):
        warn("no file after the first contains answers with a description (field 'description')")
    return [
        replace(_reduced(run), notes=(*run.notes, AUGMENTED) if augmented else run.notes)
        for run, augmented in zip(runs, described, strict=True)
    ]


def _reduced(run: Run) -> Run:
    """Returns the run restricted to accuracy, precision, recall and F1."""
    metrics = replace(
        run.metric_set,
        formulas={name: run.metric_set.formulas[name] for name in METRICS},
        higher_is_better=dict.fromkeys(METRICS, True),
    )
    printed = {name: value for name, value in run.printed.items() if name in METRICS}
    return replace(run, metric_set=metrics, printed=printed)


def _has_description(path: Readable) -> bool:
    """Returns True if the prompt of at least one answer in the file contains a description."""
    return any(record.get("description") for _, record in open_rows(path, on_error=lambda _: None, warn=lambda _: None))


KNOWN = tuple(
    record.name for record in benchmarks(name for name in SUMMARIES if name != "augmented") if record.augmented
)
"""Benchmarks that support this comparison."""


def _score(
    systems: Systems,
    *,
    benchmark: str = "amber",
    data: str | None = None,
    questions: Sequence[str] = (),
    parser: str | None = None,
) -> list[Run]:
    if len(systems.given) < 2:
        raise OptionError("list the answers without descriptions first, then the augmented ones")
    truth = questions or ((data,) if data else ())
    return augmented_runs(
        benchmark, systems.named(), truth, parser_name=parser, resampling=systems.resampling, warn=systems.warn
    )


BENCHMARK = Benchmark(
    name="augmented",
    title="Described",
    help="""Accuracy, precision, recall and F1 of plain against description-augmented answers, with paired tests.

    The first file is the baseline, for example: base.jsonl base_described.jsonl ours_described.jsonl. AMBER's positive
    class is "no", that of the others "yes". The published discriminative values of SCAPO are description-augmented:
    compare only description-augmented values with them.
    """,
    score=_score,
    files="answers",
    listed="questions",
    metavar="PLAIN AUGMENTED...",
    options={
        "benchmark": Option(choices=KNOWN, help="Benchmark of the questions."),
        "data": Option(file="read", metavar="PATH", help="Data of the benchmark, if its verb has --data."),
        "questions": Option(
            file="read", repeated=True, metavar="FILE", help="Question files, if its verb has --questions."
        ),
        "parser": Option(metavar="NAME", help="Rule for parsing yes or no.  [default: the benchmark's]"),
    },
    one_process="two files of answers side by side are",
    command_example=CommandExample(
        ("scapo-eval augmented plain.jsonl described.jsonl --benchmark amber --data AMBER/",), runs=False
    ),
)
