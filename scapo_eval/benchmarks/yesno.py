"""Metrics for yes/no answers: accuracy, precision, recall, F1 and yes ratio. Other benchmarks use these metrics, too.

The positive class is "yes". An answer that is neither yes nor no is wrong. An answer that is neither yes nor no counts
in ``n`` and in the denominators of the recalls, but never as a predicted yes or no. Unanswered questions do not count.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Protocol, get_args

import numpy as np

from ..base.errors import InputError, check_choice
from ..base.hashes import digest
from ..base.ids import canonical_image_id, plain_id
from ..base.types import Answer
from ..files.containers import Warn, open_rows, warn_user
from ..files.records import Given, Readable
from ..files.source import Source
from ..readers.parsers import PARSERS, Parser, YesNo, parser_identity
from ..readers.parsers import parser as parser_of
from ..results.benchmark import CommandExample, Option
from ..results.counts import CountTable
from ..results.items import Items
from ..results.metric import Floats, Formula, MetricSet, Sums, divide
from ..results.results import Resampling, Run
from ..results.signature import Signature
from ..results.stats import DEFAULT_RESAMPLES, DEFAULT_SEED, Bootstrap
from .answered import AUGMENTED, READING, AnsweredQuestion, QuestionFiles, evidence
from .join import (
    AnsweredBenchmark,
    Graded,
    Index,
    JoinedAnswers,
    Keyed,
    Matches,
    RunOf,
    join,
    join_keyed,
    joined,
)
from .provenance import answers_to
from .questions import OWN_LABELS, Question, questions_of, read_questions
from .systems import Systems, drawn, naming_inputs, sources_of

Unparsed = Literal["wrong", "drop"]
"""Treatment of answers that are neither yes nor no: counted as wrong, or omitted from every metric."""

GroupOf = Callable[[Question], str]
"""Function from a question to its group of counts."""

_CELLS: Mapping[tuple[YesNo, YesNo | None], str] = {
    ("yes", "yes"): "tp",
    ("no", "yes"): "fp",
    ("no", "no"): "tn",
    ("yes", "no"): "fn",
    ("yes", None): "yes_unparsed",
    ("no", None): "no_unparsed",
}  # (correct answer, parsed answer) -> name of the count


@dataclass(frozen=True, slots=True)
class Cells:
    """Counts of questions, summed over groups of questions. Every field is an array with the shape of the sums."""

    tp: Floats
    fp: Floats
    tn: Floats
    fn: Floats
    yes_unparsed: Floats
    no_unparsed: Floats


def accuracy(c: Cells) -> Floats:
    """Returns the share of correct answers."""
    return divide(c.tp + c.tn, _n(c))


def precision(c: Cells) -> Floats:
    """Returns the share of correct answers among the "yes" answers."""
    return divide(c.tp, c.tp + c.fp)


def recall(c: Cells) -> Floats:
    """Returns the share of the "yes" questions that are answered "yes"."""
    return divide(c.tp, c.tp + c.fn + c.yes_unparsed)


def no_recall(c: Cells) -> Floats:
    """Returns the share of the "no" questions that are answered "no"."""
    return divide(c.tn, c.tn + c.fp + c.no_unparsed)


def f1(c: Cells) -> Floats:
    """Returns the harmonic mean of precision and recall. The result is 0 if no "yes" answer is correct."""
    return divide(2 * c.tp, 2 * c.tp + c.fp + c.fn + c.yes_unparsed)


def yes_ratio(c: Cells) -> Floats:
    """Returns the share of "yes" answers."""
    return divide(c.tp + c.fp, _n(c))


def _n(c: Cells) -> Floats:
    return np.asarray(c.tp + c.fp + c.tn + c.fn + c.yes_unparsed + c.no_unparsed)


FORMULAS: Mapping[str, Callable[[Cells], Floats]] = {
    "accuracy": accuracy,
    "precision": precision,
    "recall": recall,
    "f1": f1,
    "yes_ratio": yes_ratio,
}


def over(groups: Sequence[str], formula: Callable[[Cells], Floats]) -> Formula:
    """Returns a formula that is applied to the summed counts of several groups. The formula returns NaN if there are no
    groups.
    """

    def measure(sums: Sums) -> Floats:
        zero = np.zeros(np.shape(next(iter(sums.values()))))
        return formula(
            Cells(*(sum((sums[column_of(group, cell)] for group in groups), zero) for cell in _CELLS.values()))
        )

    return measure


def mean(formulas: Sequence[Formula]) -> Formula:
    """Returns the unweighted mean of several formulas. The mean is NaN if one of the formulas has no value, or if there
    are no formulas.
    """

    def measure(sums: Sums) -> Floats:
        if not formulas:
            return np.full(np.shape(next(iter(sums.values()))), np.nan)
        return np.asarray(np.mean([formula(sums) for formula in formulas], axis=0))

    return measure


def column_of(group: str, cell: str) -> str:
    """Returns the name of a count of a group of questions. The group with an empty name has no prefix."""
    return f"{group}_{cell}" if group else cell


def columns(groups: Iterable[str]) -> tuple[str, ...]:
    """Returns the names of the counts for the given groups. The columns of the group with an empty name have no
    prefix.
    """
    return tuple(column_of(group, cell) for group in groups for cell in _CELLS.values())


def positives(groups: Iterable[str]) -> frozenset[str]:
    """Returns the names of the counts of questions whose correct answer is "yes"."""
    return frozenset(
        column_of(group, cell) for group in groups for (label, _), cell in _CELLS.items() if label == "yes"
    )


def yesno_metrics(groups: Sequence[str], benchmark: str = "yesno") -> MetricSet:
    """Returns the metrics ``accuracy precision recall f1 yes_ratio`` for all questions, followed by those for each
    category.

    Args:
        groups: Names of the categories. The group ``""`` contains the questions without a category.
        benchmark: Name of the metric set.
    """
    groups = sorted(groups)
    formulas = {name: over(groups, formula) for name, formula in FORMULAS.items()}
    for group in filter(None, groups):
        formulas |= {f"{group}_{name}": over([group], formula) for name, formula in FORMULAS.items()}
    better = {name: True for name in formulas if not name.endswith("yes_ratio")}
    return MetricSet(
        benchmark, columns(groups), formulas, better, cells=frozenset(columns(groups)), positives=positives(groups)
    )


def groups_in(columns: Sequence[str]) -> list[str]:
    """Returns the names of the groups, as derived from the names of the counts."""
    cell = _CELLS["yes", "yes"]
    return [name.removesuffix(cell).removesuffix("_") for name in columns if name == cell or name.endswith(f"_{cell}")]


def part_of(question: Question) -> str:
    """Returns the default group of a question: its category, or its mode."""
    return question.part


def count(items: Sequence[Graded], metrics: MetricSet, group_of: GroupOf) -> CountTable:
    """Returns the counts of the answers per image. Every answer adds 1 to one column of ``metrics``."""
    images = [item.question.image_id for item in items]
    ids = sorted(set(images))
    row = {image: k for k, image in enumerate(ids)}
    position = {name: k for k, name in enumerate(metrics.columns)}
    where = [position[_column(item, group_of)] for item in items]
    rows = np.zeros((len(ids), len(metrics.columns)), dtype=np.int64)
    np.add.at(rows, ([row[image] for image in images], where), 1)
    return CountTable(metrics.columns, tuple(ids), rows)


def _column(item: Graded, group_of: GroupOf) -> str:
    return column_of(group_of(item.question), _CELLS[item.question.label, item.said])


def verdicts(items: Iterable[Graded]) -> dict[str, dict[str, bool]]:
    """Returns, for each accuracy metric, a mapping from question ids to bools that are True if the question was
    answered correctly. McNemar's test compares these mappings.
    """
    right: dict[str, dict[str, bool]] = {"accuracy": {}}
    for item in items:
        right["accuracy"][item.question.id] = item.correct
        if item.question.part:
            right.setdefault(f"{item.question.part}_accuracy", {})[item.question.id] = item.correct
    return right


def read_yesno(
    path: Readable,
    questions: Sequence[Question] | None,
    parse: Parser,
    *,
    model: str | None = None,
    warn: Warn = warn_user,
) -> JoinedAnswers:
    """Reads one system's answers to any yes/no questions, and joins them with the questions by id.

    Args:
        path: Answers in any supported layout, or records in memory.
        questions: Questions from :func:`read_questions`, or None to use the labels in the answers.
        parse: Function that parses an answer.
        model: Model to score if the file contains answers from several models.
        warn: Callback for warnings about damaged input that can still be read.

    Raises:
        InputError, InputErrors: If the answers cannot be joined; see :func:`join` and :func:`questions_of`.
    """
    source, answers = answers_to(None, path, model=model, warn=warn)
    if questions is None:
        asked, own_key = questions_of(answers, source=source, remedy="specify a file of labels with --questions")
        return join(answers, asked, parse, source=source, key=own_key, notes=[OWN_LABELS])
    return join_keyed(answers, questions, parse, keyed, source=source)


def keyed(answers: Sequence[Answer], index: Index, source: str) -> Keyed:
    """Returns the answers and a function that computes the id of an answer's question. The id has the category as a
    prefix if the ids of the questions have this prefix.
    """

    def key(answer: Answer) -> str:
        plain = plain_id(answer.id)
        in_category = f"{answer.category}/{plain}"
        return in_category if in_category in index.by_id else plain

    return Keyed(answers, key)


class ReadAnswers(Protocol):
    """Function that reads and joins one file of answers."""

    def __call__(  # noqa: D102
        self, path: Readable, questions: Sequence[Question] | None, parse: Parser, *, model: str | None, warn: Warn
    ) -> JoinedAnswers: ...


@dataclass(frozen=True, kw_only=True, repr=False)
class YesNoBenchmark(AnsweredBenchmark):
    """Benchmark of yes/no questions. The groups of questions in a run determine its metric set.

    Attributes:
        metrics_of: Function that returns the metric set for given groups of questions.
        group_of: Function that returns the group of a question.
        read_answers: Function that reads and joins one file of answers.
        finished: Function that adds notes to the joined answers.
    """

    metric_set: Callable[[tuple[str, ...]], MetricSet] = field(init=False)
    decides: Sequence[str] = ("unparsed",)
    run_of: RunOf = field(init=False)
    metrics_of: Callable[[Sequence[str]], MetricSet]
    read_answers: ReadAnswers
    finished: Callable[[JoinedAnswers], JoinedAnswers] = lambda answers: answers
    group_of: GroupOf = part_of

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "metric_set", lambda columns: self.metrics_of(groups_in(columns)))
        object.__setattr__(self, "run_of", self._run_of)
        object.__setattr__(self, "augmented", self._augmented)
        object.__setattr__(self, "view", self._view)
        object.__setattr__(self, "score", self.score or self.scored)
        if self.engine is not None:
            object.__setattr__(self, "engine", replace(self.engine, finished=paired))

    def _run_of(
        self,
        matches: Matches,
        questions: Sequence[Question],
        name: str,
        *,
        parser: str,
        resampling: Resampling,
        unparsed: Unparsed,
        **more: Any,
    ) -> Run:
        answers = self.finished(joined(matches, questions, **more))
        [run] = self.runs({name: answers}, parser=parser, unparsed=unparsed, resampling=resampling)
        return run

    def scored(
        self,
        systems: Systems,
        questions: QuestionFiles | None = None,
        *,
        parser: str = "default",
        yes: Sequence[str] = (),
        no: Sequence[str] = (),
        unparsed: Unparsed = "wrong",
        model: str | None = None,
        per_answer: str | None = None,
    ) -> list[Run]:
        """Reads answers, joins them with their questions, and counts them.

        Args:
            systems: Systems whose answers are scored.
            questions: Question files, or an empty list to use the labels in the answers.
            parser, yes, no: Parsing rule, and additional words for yes and no.
            unparsed: ``wrong`` to count answers that are neither yes nor no as wrong, or ``drop`` to omit them.
            model: Model to score if a file contains answers from several models.
            per_answer: Path of the file for the evidence.

        Raises:
            InputErrors, InputError: If the input is invalid, or if evidence is requested for several files. The error
                lists the faults by file and line, or by row.
        """
        systems.alone("--per-answer", per_answer, "file of answers")
        check_choice("parser", parser, list(PARSERS))
        check_choice("unparsed", unparsed, get_args(Unparsed))
        parse = parser_of(parser, yes=yes, no=no)
        asked = sources_of(questions)
        truth = self.read_questions(asked) if asked else None
        systems.count()
        answers = {
            name: self.read_answers(source, truth, parse, model=model, warn=systems.warn)
            for name, source in systems.named().items()
        }
        with systems.evidence(per_answer) as write:
            if write:
                write(evidence(next(iter(answers.values())).graded))
        identity = parser_identity(parser, yes=yes, no=no)
        return systems.accounted(self.runs(answers, parser=identity, unparsed=unparsed, resampling=systems.resampling))

    def _view(
        self, files: Mapping[str, Source], resampling: Resampling, warn: Warn
    ) -> list[tuple[Run, list[AnsweredQuestion]]]:
        """Returns, for each file, a run and the answers for display in the report. The labels in the answers are the
        ground truth.
        """
        parse = parser_of("default")
        read = {name: self.read_answers(path, None, parse, model=None, warn=warn) for name, path in files.items()}
        views = []
        for run, path in zip(self.runs(read, parser="default", resampling=resampling), files.values(), strict=True):
            rows = open_rows(path, warn=warn)
            described = {line: str(row["description"]) for line, row in rows if row.get("description")}
            answers = [_answered(item, described.get(item.answer.line, "")) for item in read[run.name].graded]
            views.append((replace(run, notes=(*run.notes, AUGMENTED)) if described else run, answers))
        return views

    def _augmented(
        self, answers: Mapping[str, str], truth: Sequence[str], parser: str | None, resampling: Resampling, warn: Warn
    ) -> list[Run]:
        """Implements ``Benchmark.augmented``; see :mod:`scapo_eval.benchmarks.augmented`."""
        parser = parser or "default"
        if parser not in PARSERS:
            raise InputError(f"unknown parser {parser!r}; known: {', '.join(PARSERS)}")
        questions = self.read_questions(truth) if truth else None
        read = {
            name: self.read_answers(path, questions, parser_of(parser), model=None, warn=warn)
            for name, path in answers.items()
        }
        four = replace(self, metrics_of=yesno_metrics, group_of=part_of)
        return four.runs(read, parser=parser, resampling=resampling)

    def runs(
        self,
        answers: Mapping[str, JoinedAnswers],
        *,
        parser: str,
        unparsed: Unparsed = "wrong",
        resampling: Resampling | None = None,
    ) -> list[Run]:
        """Converts the answers of several systems to runs.

        Args:
            answers: Mapping from system names to answers. All systems share one metric set, which includes the groups
                of questions of all systems.
            parser: Name of the parser, for the signature.
            unparsed: ``wrong`` to count answers that are neither yes nor no as wrong, or ``drop`` to omit them.
            resampling: Resampling settings for the confidence intervals.
        """
        groups = list(
            dict.fromkeys(self.group_of(question) for answer in answers.values() for question in answer.questions)
        )
        metrics = self.metrics_of(groups)
        drawn = resampling or Resampling()
        return paired(
            _run(name, answer, metrics, self.group_of, parser, unparsed, drawn) for name, answer in answers.items()
        )


def _answered(item: Graded, description: str) -> AnsweredQuestion:
    question = item.question
    return AnsweredQuestion(
        key=question.id,
        image=None if question.image is None else canonical_image_id(question.image),
        part=question.part,
        question=question.text or item.answer.question or "",
        truth=question.label,
        content="",
        verdict=item.said or "neither yes nor no",
        right=item.correct,
        response=item.answer.response,
        description=description,
    )


def paired(runs: Iterable[Run]) -> list[Run]:
    """Returns the runs. A note is added to each run whose answered questions differ from those of the first run."""
    first, *others = runs
    return [first, *(replace(run, notes=(*run.notes, *_not_paired(run, first))) for run in others)]


def _not_paired(run: Run, first: Run) -> Iterable[str]:
    alone = len(run.verdicts["accuracy"].keys() ^ first.verdicts["accuracy"].keys())
    if alone:
        yield (
            f"{alone:,} questions are answered by only one of the two systems, this one and {first.name}; "
            "differences use only the questions that both answered"
        )


def _run(
    name: str,
    answers: JoinedAnswers,
    metrics: MetricSet,
    group_of: GroupOf,
    parser: str,
    unparsed: Unparsed,
    resampling: Resampling,
) -> Run:
    items = [item for item in answers.graded if item.said is not None or unparsed == "wrong"]
    table = count(items, metrics, group_of)
    counted = ((item.question.id, item.question.image_id, {_column(item, group_of): 1}) for item in items)
    counts = answers.counts
    notes = list(answers.notes)
    if counts["unparsed"]:
        fate = "they count as wrong" if unparsed == "wrong" else "they are omitted"
        notes.append(
            f"{counts['unparsed']:,} of {len(answers.graded):,} answers are neither yes nor no according to the parser "
            f"'{parser}'; {fate}"
        )
    own_labels = OWN_LABELS in answers.notes  # if True, the questions are the answered questions
    asked = digest(sorted(f"{question.id} {question.label}" for question in answers.questions))
    signature = Signature.of(
        metrics.name,
        parser=parser,
        unparsed=unparsed,
        n=len(items),
        labels="own" if own_labels else None,
        **{"asked" if own_labels else "questions": asked},
        ids=digest(table.image_ids),
        missing=counts["missing"],
        bad_files=answers.bad_files or None,
    )
    return Run(
        name=name,
        signature=signature,
        metric_set=metrics,
        table=table,
        n_records=len(items),
        other_counts=counts,
        verdicts=verdicts(items),
        items=Items.of(table, counted),
        notes=tuple(notes),
        resampling=resampling,
    )


@naming_inputs
def yesno(
    answers: Given,
    *,
    questions: QuestionFiles | None = None,
    parser: str = "default",
    yes: Sequence[str] = (),
    no: Sequence[str] = (),
    unparsed: Unparsed = "wrong",
    model: str | None = None,
    name: str | None = None,
    resamples: int = DEFAULT_RESAMPLES,
    seed: int = DEFAULT_SEED,
    bootstrap: Bootstrap | None = None,
) -> Run:
    """Computes the accuracy, precision, recall, F1 and yes ratio of any yes/no answers.

    Args:
        answers: Records with ``id`` and ``response``, and with ``label`` if there are no questions.
        questions: Records with ``id`` and ``label``, or files that contain such records. By default, the labels in the
            answers are used.
        parser: Rule for parsing yes/no answers, one of :data:`scapo_eval.readers.parsers.PARSERS`.
        yes, no: Additional words for yes and no (``oui``, ``non``...).
        unparsed: ``wrong`` to count answers that are neither yes nor no as wrong, or ``drop`` to omit them.
        model: Model to score if a file contains answers from several models.
        name, resamples, seed, bootstrap: Same as in :func:`scapo_eval.score`.

    Raises:
        InputErrors, InputError: If the input is invalid. The error lists the faults by file and line, or by row.

    Example:
        >>> import scapo_eval
        >>> truth = ["yes", "no", "yes", "no"]
        >>> answers = [{"id": k, "response": "Yes.", "label": label} for k, label in enumerate(truth)]
        >>> scapo_eval.yesno(answers, resamples=0).values["accuracy"]
        0.5
    """
    [run] = BENCHMARK.scored(
        Systems.of(answers, name, "answers", drawn(resamples, seed, bootstrap)),
        questions,
        parser=parser,
        yes=yes,
        no=no,
        unparsed=unparsed,
        model=model,
    )
    return run


UNPARSED = {
    "unparsed": Option(
        choices=get_args(Unparsed),
        help="Answers that are neither yes nor no: count as wrong, or omit from all metrics.",
    )
}

BENCHMARK = YesNoBenchmark(
    name="yesno",
    title="Yes/no",
    help="""Scores yes/no answers by the labels of their questions. Several files are compared with the first.

    ANSWERS are own JSON Lines (id, response) or files of lmms-eval, VLMEvalKit, LLaVA, verl, TRL.
    """,
    canonical={name: name for name in ("accuracy", "precision", "recall", "f1")},
    headline=("accuracy", "f1", "yes_ratio"),
    metrics_of=yesno_metrics,
    read_questions=lambda paths: [question for path in paths for question in read_questions(path)],
    read_answers=read_yesno,
    keyed=keyed,
    function=yesno,
    options={
        "questions": Option(
            flags=("--questions", "--labels"),
            file="read",
            repeated=True,
            metavar="FILE",
            help="File of ids and labels.  [default: labels in the answers]",
        ),
        **READING,
        **UNPARSED,
    },
    command_example=CommandExample(
        ("scapo-eval yesno answers.jsonl",),
        {
            "answers.jsonl": """\
{"id": "q1", "image": "3.jpg", "response": "Yes, there is.", "label": "yes"}
{"id": "q2", "image": "4.jpg", "response": "No.", "label": "no"}
{"id": "q3", "image": "5.jpg", "response": "Yes.", "label": "no"}
"""
        },
    ),
)
