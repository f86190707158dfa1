"""POPE (Li et al. 2023): yes/no questions about the presence of an object in an image. The absent objects are chosen by
three methods.

The official question files are ``coco_pope_{adversarial,popular,random}.json`` (JSON Lines). The ids in each file start
at 1.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..base.errors import InputError
from ..base.ids import plain_id
from ..base.types import Answer
from ..files.containers import Warn, warn_user
from ..files.files import display_name
from ..files.json_text import iter_records
from ..files.records import Given, Readable
from ..readers.parsers import Parser
from ..results.benchmark import CommandExample, Option
from ..results.metric import MetricSet
from ..results.results import Run
from ..results.stats import DEFAULT_RESAMPLES, DEFAULT_SEED, Bootstrap
from .answered import READING, QuestionFiles
from .join import Index, JoinedAnswers, Keyed, join, join_keyed
from .provenance import answers_to, benchmark_of
from .questions import OWN_LABELS, Key, Question, questions_of, read_questions
from .systems import Systems, drawn, naming_inputs
from .yesno import FORMULAS, UNPARSED, Unparsed, YesNoBenchmark, mean, over, yesno_metrics

CATEGORIES = ("adversarial", "popular", "random")

LLAVA_STEP = 10_000_000
LLAVA_CATEGORIES = ("adversarial", "random", "popular")
"""Order of the categories in LLaVA's continuous numbering, which adds 0, 10,000,000 or 20,000,000 to an official id."""


def read_pope_questions(paths: Iterable[Readable]) -> list[Question]:
    """Reads all questions in the given files and assigns them ids of the form ``category/question_id``.

    The category is read from the record, or from the file name if the record states none.

    Raises:
        InputErrors: If a file is not a POPE question file.
        InputError: If two files contain the same ids.
    """
    questions: dict[str, Question] = {}
    for path in paths:
        for question in read_questions(path, _category_in(Path(str(path)).name)):
            if question.id in questions:
                raise InputError(
                    f"the id {question.id!r} appears in two question files; score each data set separately, and "
                    f"state the category in the file name or in a field 'category' ({', '.join(CATEGORIES)})",
                    path=display_name(path),
                )
            questions[question.id] = question
    return list(questions.values())


def _category_in(text: str) -> str | None:
    return next((name for name in CATEGORIES if name in text.casefold()), None)


def read_pope(
    path: Readable,
    questions: Sequence[Question] | None,
    parse: Parser,
    *,
    model: str | None = None,
    warn: Warn = warn_user,
) -> JoinedAnswers:
    """Reads the answers of one system and joins them with the questions.

    Args:
        path: Answers in any supported layout, or records in memory.
        questions: Questions from :func:`read_pope_questions`, or None to use the labels and categories in the answers.
        parse: Function that parses an answer.
        model: Model to score if the file contains answers from several models.
        warn: Callback for warnings about damaged input that can still be read.

    Raises:
        InputError, InputErrors: If the answers cannot be joined (see :func:`join` and :func:`questions_of`), or belong
            to another benchmark.
    """
    source, answers = answers_to("pope", path, model=model, warn=warn)
    if questions is not None:
        return join_keyed(answers, questions, parse, keyed, source=source, benchmark="pope")
    if not any(benchmark_of(answer) for answer in answers) and any(answer.question for answer in answers):
        raise InputError("these are not POPE's questions; score other yes/no questions with yesno", path=source)
    asked, key = questions_of(
        answers, source=source, remedy="give POPE's question files with --questions", benchmark="pope"
    )
    return join(answers, asked, parse, source=source, benchmark="pope", key=key, notes=[OWN_LABELS])


def keyed(answers: Sequence[Answer], index: Index, source: str) -> Keyed:
    """Returns the answers in those categories that have questions, and the key function that :func:`pope_key`
    creates.
    """
    key = pope_key(answers, index.questions, source)
    asked = {question.category for question in index.questions}
    not_asked = set(CATEGORIES).difference(category or "" for category in asked)
    categories = [key(answer).split("/", 1)[0] for answer in answers]
    kept = [answer for answer, name in zip(answers, categories, strict=True) if name not in not_asked]
    several = len(asked) > 1  # then the numbering covers all categories
    return Keyed(
        kept,
        key,
        Counter(name for name in categories if name in not_asked),
        "" if several else "through all categories" if _beyond(answers) else "within one category",
    )


def _beyond(answers: Sequence[Answer]) -> bool:
    return any((_number(answer.id) or 0) > LLAVA_STEP for answer in answers)


def pope_key(answers: Sequence[Answer], questions: Sequence[Question], source: str = "") -> Key:
    """Returns a function that maps an answer to the id of its question; this mapping depends on the numbering in the
    file.

    An id is a string of the form ``pope/adversarial/7``, a number with a separate category, or a number from LLaVA's
    continuous numbering.

    Args:
        answers: All answers in the file, which are needed to detect continuous numbering.
        questions: Questions from :func:`read_pope_questions`.
        source: Name of the file, which may contain the category.
    """
    categories = list(dict.fromkeys(question.category for question in questions))
    in_name = _category_in(Path(source).name)
    only = categories[0] if len(categories) == 1 else None
    numbered_through = _beyond(answers) or (len(categories) > 1 and in_name is None)

    def key(answer: Answer) -> str:
        number = _number(answer.id)
        if number is None:
            return plain_id(answer.id)
        category = answer.category if answer.category in categories else _category_in(f"{answer.category} {answer.id}")
        if category is None and numbered_through:
            step, number = divmod(number, LLAVA_STEP)
            category = LLAVA_CATEGORIES[step] if step < len(LLAVA_CATEGORIES) else None
        if categories == [None]:
            return str(number)
        return f"{category or in_name or only}/{number}"

    return key


_DIGITS = "0123456789"
_NAMES = ("pope", "adversarial", "popular", "random")


def _number(identifier: str) -> int | None:
    """Returns the number in an id, or None if there is none. The id is the number itself, or a number after the name of
    POPE or of a category.
    """
    text = plain_id(identifier)
    name = text.rstrip(_DIGITS)
    digits = text[len(name) :]
    words = name[max(map(name.rfind, _DIGITS)) + 1 : -1].lower()
    if not digits or len(digits) > 18 or (name and not any(known in words for known in _NAMES)):
        return None
    return int(digits)


def pope_metrics(groups: Sequence[str]) -> MetricSet:
    """Returns metrics for all questions, metrics for each category, and the unweighted means over the categories."""
    metric = yesno_metrics(groups, "pope")
    named = [group for group in groups if group]
    if len(named) < 2:
        return metric
    means = {f"mean_{name}": mean([over([group], FORMULAS[name]) for group in named]) for name in ("accuracy", "f1")}
    pooled = {name: metric.formulas[name] for name in FORMULAS}
    better = {**metric.higher_is_better, **dict.fromkeys(means, True)}
    return replace(metric, formulas={**pooled, **means, **metric.formulas}, higher_is_better=better)


_QUESTION = re.compile(r"is there an? .+ in the ima(?:n)?ge\?", re.IGNORECASE)


def is_pope(answer: Answer) -> bool:
    """Returns True if the question of an answer has POPE's wording."""
    return bool(answer.question and not answer.mode and _QUESTION.search(answer.question))


def _prompts(path: str, first: Mapping[str, Any]) -> Iterator[tuple[int, Mapping[str, Any]]] | None:
    """Yields the questions of an official file, which is recognized by its name. The ids are numbered within each
    category.
    """
    name = Path(path).name.casefold()
    category = _category_in(name) if "pope" in name else None
    if category is None or "question_id" not in first:
        return None
    return (
        (
            line,
            {**record, "id": f"pope/{category}/{record.get('question_id')}", "benchmark": "pope", "category": category},
        )
        for line, record in iter_records(path)
    )


@naming_inputs
def pope(
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
    """Computes accuracy, precision, recall, F1 and yes ratio on POPE, overall and per category.

    Args:
        answers: Records with ``id`` and ``response``, or a file from lmms-eval, VLMEvalKit, LLaVA, verl or TRL.
        questions: One or several of POPE's question files, or records of questions. By default, the labels in the
            answers are used.
        parser, yes, no, unparsed, model, name, resamples, seed, bootstrap: Same as in :func:`scapo_eval.yesno`.

    Raises:
        InputErrors, InputError: If the input is invalid. The error lists the faults by file and line, or by row.

    Example:
        >>> import scapo_eval
        >>> answers = [
        ...     {"id": "pope/random/1", "image": 1, "question": "Is there a dog?", "label": "yes", "response": "Yes."},
        ...     {"id": "pope/random/2", "image": 1, "question": "Is there a cat?", "label": "no", "response": "Yes."},
        ... ]
        >>> scapo_eval.pope(answers).values["yes_ratio"]
        1.0
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


BENCHMARK = YesNoBenchmark(
    name="pope",
    title="POPE",
    help="""Scores POPE answers. Several files are compared with the first.

    ANSWERS are own JSON Lines, POPE's own answers, or files of LLaVA, lmms-eval, VLMEvalKit.
    """,
    canonical={name: name for name in ("accuracy", "precision", "recall", "f1")},
    dataset={"source_type": "url", "url": ["https://github.com/AoiDragon/POPE"]},
    headline=("accuracy", "f1", "yes_ratio"),
    metrics_of=pope_metrics,
    read_questions=read_pope_questions,
    read_answers=read_pope,
    keyed=keyed,
    function=pope,
    options={
        "questions": Option(
            file="read",
            repeated=True,
            metavar="FILE...",
            help="POPE's question files, one per category.  [default: labels in the answers]",
        ),
        **READING,
        **UNPARSED,
    },
    asked="POPE's question files",
    recognizes=is_pope,
    prompts=_prompts,
    command_example=CommandExample(
        ("scapo-eval pope answers.jsonl",),
        {
            "answers.jsonl": """\
{"id": "pope/random/1", "image": "3.jpg", "response": "Yes.", "label": "yes"}
{"id": "pope/random/2", "image": "4.jpg", "response": "No.", "label": "no"}
{"id": "pope/popular/1", "image": "5.jpg", "response": "Yes.", "label": "no"}
"""
        },
    ),
)
