"""PhD (Liu et al. 2024): questions without context, with misleading context, and about counter-common-sense images.

The modes are ``base`` (only the question), ``sec`` (with a specious context before the question), ``icc`` (with an
incorrect context) and ``ccs`` (only the question, about generated counter-common-sense images). The first releases of
PhD use the name ``iac`` for the mode ``sec``. The PhD index is the harmonic mean of the recalls of "yes" and "no".
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ..base.errors import FaultList, InputError, OptionError
from ..base.ids import canonical_image_id, plain_id
from ..base.types import Answer
from ..files.containers import Warn, warn_user
from ..files.files import atomic_write, display_name
from ..files.json_text import dump_json, iter_records
from ..files.records import Given, Readable
from ..readers.parsers import Parser, YesNo
from ..results.benchmark import CommandExample, Option
from ..results.metric import Floats, Formula, MetricSet, harmonic_mean
from ..results.results import Run
from ..results.stats import DEFAULT_RESAMPLES, DEFAULT_SEED, Bootstrap
from .answered import READING, QuestionFiles
from .join import ANSWERS_ON_ENGINE, Index, JoinedAnswers, Keyed, join, join_keyed
from .prompts import with_context
from .provenance import answers_to, benchmark_of, looks_like
from .questions import OWN_LABELS, Question, questions_of
from .systems import Systems, drawn, naming_inputs, sources_of
from .yesno import (
    UNPARSED,
    Cells,
    Unparsed,
    YesNoBenchmark,
    accuracy,
    columns,
    mean,
    no_recall,
    over,
    positives,
    recall,
)

MODES = ("base", "sec", "icc", "ccs")
_SIDES: tuple[YesNo, YesNo] = ("yes", "no")


def phd_index(c: Cells) -> Floats:
    """Returns the harmonic mean of the recalls of "yes" and "no"."""
    return harmonic_mean(recall(c), no_recall(c))


def read_phd(path: Readable) -> list[Question]:
    """Reads the questions in PhD's ``data.json`` for all modes, with the prompts to send to a model.

    Ids have the form ``phd/MODE/IMAGE/yes`` or ``phd/MODE/IMAGE/no``. If an image has several records, the second
    record is named ``IMAGE.2``, and so on; the records are numbered per mode, in the order of the file.

    Raises:
        InputErrors: If records are invalid. The error lists the faults by array element.
    """
    source = display_name(path)
    faults = FaultList()
    questions: list[Question] = []
    seen: dict[tuple[str, str], int] = {}
    for line, record in iter_records(path):
        try:
            questions.extend(_questions(record, seen))
        except ValueError as error:
            fault = InputError(str(error), path=source, line=line)
            if not questions:  # the first record is already invalid: another kind of file
                raise fault from None
            faults.add(fault)
    faults.raise_if_any()
    return questions


def _questions(record: Mapping[str, Any], seen: dict[tuple[str, str], int]) -> list[Question]:
    """Returns the questions for all modes of one record. ``seen`` counts the records of each image."""
    texts = {side: _text(record, f"{side}_question") for side in _SIDES}
    questions = []
    for mode, context in _modes(record):
        image, file = _image(record, mode)
        occurrence = seen[mode, image] = seen.get((mode, image), 0) + 1
        name = image if occurrence == 1 else f"{image}.{occurrence}"
        for side, text in texts.items():
            question = Question(
                id=f"phd/{mode}/{name}/{side}",
                label=side,
                image=file,
                text=text,
                prompt=text if context is None else with_context(context, text),
                mode=mode,
                task=_task(record.get("task")),
            )
            questions.append(question)
    return questions


def _modes(record: Mapping[str, Any]) -> Iterator[tuple[str, str | None]]:
    """Yields the modes of a record, each with its context."""
    if "ccs_description" in record and record["ccs_description"] is not None:
        yield "ccs", None
        return
    yield "base", None
    contexts = record.get("context")
    if contexts is None:
        return
    if not isinstance(contexts, dict):
        raise ValueError("'context' must be an object with 'sec' (or 'iac') and 'icc'")
    for key, context in contexts.items():
        mode = parse_mode(str(key))
        if not isinstance(context, str):
            raise ValueError(f"the context {key!r} must be a string")
        yield mode, context


def _image(record: Mapping[str, Any], mode: str) -> tuple[str, str]:
    """Returns the image id, and the file name or id by which an engine finds the image."""
    given = record.get("image_id")
    path = record.get("image_path")
    if given is None and path is None:
        raise ValueError(f"not a valid record of PhD's data.json: missing key 'image_id' (found: {', '.join(record)})")
    image = str(given) if given is not None else canonical_image_id(path)
    if path is not None:
        return image, str(path)
    return image, f"CCS_images/{image}.png" if mode == "ccs" else image


def _text(record: Mapping[str, Any], key: str) -> str:
    if not isinstance(record.get(key), str):
        raise ValueError(f"not a valid record of PhD's data.json: missing key {key!r} (found: {', '.join(record)})")
    return str(record[key])


def _task(value: object) -> str | None:
    return None if value is None else re.sub(r"\W+", "_", str(value).strip().casefold())


def parse_mode(value: str) -> str:
    """Normalizes the name of a mode, for example ``iac`` or ``PhD-iac`` to ``sec``.

    Raises:
        ValueError: If the name is not a PhD mode.
    """
    name = re.sub(r"^phd[-_ /]?", "", value.strip().casefold())
    mode = "sec" if name == "iac" else name
    if mode not in MODES:
        raise ValueError(f"unknown PhD mode {value!r}; known: base, sec (or iac), icc, ccs")
    return mode


def read_phd_answers(
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
        questions: Questions from :func:`read_phd`, or None to use the labels, modes and tasks in the answers.
        parse: Function that parses an answer.
        model: Model to score if the file contains answers from several models.
        warn: Callback for warnings about damaged input that can still be read.

    Raises:
        InputError, InputErrors: If the answers cannot be joined (see :func:`join` and :func:`questions_of`), or if they
            belong to another benchmark.
    """
    source, answers = answers_to("phd", path, model=model, warn=warn)
    if not any(answer.mode or benchmark_of(answer) for answer in answers) and (looks := looks_like(answers)):
        raise InputError(
            f"no answer contains a PhD mode; the file looks like {looks}", path=source, line=answers[0].line or None
        )
    if questions is not None:
        return finished(join_keyed(answers, questions, parse, keyed, source=source, benchmark="phd"))
    answers = _with_modes(answers, source)
    asked, key = questions_of(answers, source=source, remedy="give PhD's data.json with --data", benchmark="phd")
    return finished(join(answers, asked, parse, source=source, benchmark="phd", key=key, notes=[OWN_LABELS]))


def keyed(answers: Sequence[Answer], index: Index, source: str) -> Keyed:
    """Returns the answers with normalized modes, and a key function that returns normalized ids."""
    return Keyed(_with_modes(answers, source), _key)


def finished(run: JoinedAnswers) -> JoinedAnswers:
    """Returns the joined answers, and a note about modes without answers."""
    answered = {item.question.mode for item in run.graded}
    absent = [mode for mode in MODES if mode not in answered]
    if not absent:
        return run
    note = f"no answer in mode {', '.join(absent)}, so phd_all (the mean of the four modes) has no value"
    return replace(run, notes=(*run.notes, note))


def _with_modes(answers: Sequence[Answer], source: str) -> list[Answer]:
    return [_with_mode(answer, source) if benchmark_of(answer) in (None, "phd") else answer for answer in answers]


def _with_mode(answer: Answer, source: str) -> Answer:
    """Returns the answer with normalized names of its mode and task. The mode may be stated in the id.

    Raises:
        InputError: If neither the record nor its id states a mode, or if they state different modes.
    """
    match = re.match(r"phd/([^/]+)/", answer.id, re.IGNORECASE)
    given = answer.mode or (match.group(1) if match else None)
    if given is None:
        reason = f"missing key 'mode' (id {answer.id!r}): base, sec, icc or ccs; or give PhD's data.json with --data"
        raise InputError(reason, path=source, line=answer.line or None)
    try:
        mode = parse_mode(given)
        if match and parse_mode(match.group(1)) != mode:
            raise ValueError(f"the id {answer.id!r} and the mode {answer.mode!r} contradict each other")
        return replace(answer, mode=mode, task=_task(answer.task))
    except ValueError as error:
        raise InputError(str(error), path=source, line=answer.line or None) from None


def _key(answer: Answer) -> str:
    """Returns the normalized id (``phd/iac/...`` becomes ``phd/sec/...``)."""
    return re.sub(r"^phd/iac/", "phd/sec/", plain_id(answer.id), flags=re.IGNORECASE)


def mode_and_task(question: Question) -> str:
    """Returns the group of a question, that is, its mode and task."""
    return f"{question.mode}_{question.task}" if question.task else str(question.mode)


def phd_metrics(groups: Sequence[str]) -> MetricSet:
    """Returns the metric set: ``phd_MODE`` (over all questions of a mode), ``phd_MODE_task`` (mean over tasks),
    ``phd_MODE_TASK`` and ``phd_all``.

    A mean has no value if one of the averaged values is missing.

    Args:
        groups: Names of question groups: ``MODE_TASK``, or ``MODE`` if the tasks are unknown.
    """
    groups = sorted(groups, key=lambda group: (MODES.index(group.split("_", 1)[0]), group))
    of_mode = {mode: [group for group in groups if group.split("_", 1)[0] == mode] for mode in MODES}
    of_task = {mode: [group for group in members if group != mode] for mode, members in of_mode.items()}
    pooled = {f"phd_{mode}": over(members, phd_index) for mode, members in of_mode.items()}
    averaged = {
        f"phd_{mode}_task": mean([over([group], phd_index) for group in members]) for mode, members in of_task.items()
    }
    formulas: dict[str, Formula] = {
        **pooled,
        "phd_all": mean(list(pooled.values())),
        **averaged,
        "phd_all_task": mean(list(averaged.values())),
        **{f"phd_{group}": over([group], phd_index) for members in of_task.values() for group in members},
        "accuracy": over(groups, accuracy),
    }
    for mode, members in of_mode.items():
        for name, formula in (("accuracy", accuracy), ("yes_recall", recall), ("no_recall", no_recall)):
            formulas[f"{mode}_{name}"] = over(members, formula)
    better = dict.fromkeys(formulas, True)
    cells = frozenset(columns(groups))
    return MetricSet("phd", columns(groups), formulas, better, cells=cells, positives=positives(groups))


_MODE = re.compile(r"(?:phd\W)?(?:base|sec|iac|icc|ccs)", re.IGNORECASE)


def _prompts(path: str, first: Mapping[str, Any]) -> Iterator[tuple[int, Mapping[str, Any]]] | None:
    """Returns the prompts for all modes from a ``data.json`` file."""
    return enumerate(map(prompt_record, read_phd(path)), 1) if {"yes_question", "no_question"} <= first.keys() else None


def prompt_record(question: Question) -> dict[str, Any]:
    """Converts a question to the record that an engine reads."""
    record = {
        "id": question.id,
        "benchmark": "phd",
        "mode": question.mode,
        "task": question.task,
        "image": question.image,
        "prompt": question.prompt or question.text,
        "question": question.text,
        "label": question.label,
    }
    return {key: value for key, value in record.items() if value is not None}


def _read_questions(paths: Sequence[Readable]) -> list[Question]:
    return [question for path in paths for question in read_phd(path)]


def _score(
    systems: Systems,
    *,
    data: QuestionFiles | None = None,
    prompts: str | None = None,
    parser: str = "default",
    yes: Sequence[str] = (),
    no: Sequence[str] = (),
    model: str | None = None,
    per_answer: str | None = None,
    unparsed: Unparsed = "wrong",
) -> list[Run]:
    if prompts:
        if data is None or systems.given:
            raise OptionError("--prompts requires --data and no answers")
        with atomic_write(prompts) as stream:
            for question in BENCHMARK.read_questions(sources_of(data)):
                record = prompt_record(question)
                record["question"] = record.pop("prompt")
                stream.write(dump_json(record) + b"\n")
        return []
    if not systems.given:
        raise OptionError("no answers to score (or --prompts FILE to write the prompts)")
    return BENCHMARK.scored(
        systems, data, parser=parser, yes=yes, no=no, model=model, per_answer=per_answer, unparsed=unparsed
    )


@naming_inputs
def phd(
    answers: Given,
    *,
    data: QuestionFiles | None = None,
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
    """Computes the PhD index per mode and task.

    Args:
        answers: Records with ``id``, ``mode`` and ``response``.
        data: PhD's ``data.json``. By default, the labels in the answers are used.
        parser, yes, no, unparsed, model, name, resamples, seed, bootstrap: Same as in :func:`scapo_eval.yesno`.

    Raises:
        InputErrors, InputError: If the input is invalid. The error lists the faults by file and line, or by row.

    Example:
        >>> import scapo_eval
        >>> asked = {"mode": "base", "task": "object"}
        >>> answers = [
        ...     {"id": "1", **asked, "question": "Is there a dog?", "label": "yes", "response": "Yes."},
        ...     {"id": "2", **asked, "question": "Is there a cat?", "label": "no", "response": "Yes."},
        ... ]
        >>> scapo_eval.phd(answers).values["base_accuracy"]
        0.5
    """
    [run] = _score(
        Systems.of(answers, name, "answers", drawn(resamples, seed, bootstrap)),
        data=data,
        parser=parser,
        yes=yes,
        no=no,
        unparsed=unparsed,
        model=model,
    )
    return run


def _name_of(metric: str) -> str | None:
    """Returns the display name of a metric, for example ``PhD-sec counting`` for ``phd_sec_counting``."""
    if not metric.startswith("phd_"):
        return None
    mode, _, task = metric.removeprefix("phd_").partition("_")
    return f"PhD-{mode}" + (" by task" if task == "task" else f" {task.replace('_', ' ')}" if task else "")


BENCHMARK = YesNoBenchmark(
    name="phd",
    title="PhD",
    help="""Scores answers to PhD. Several files are compared with the first.

    ANSWERS are own JSON Lines with ids as --prompts writes them (phd/MODE/IMAGE/yes), or with mode, image and
    question.
    """,
    name_of=_name_of,
    dataset={"source_type": "url", "url": ["https://github.com/jiazhen-code/PhD"]},
    headline=("phd_base", "phd_sec", "phd_icc", "phd_ccs", "phd_all"),
    metrics_of=phd_metrics,
    group_of=mode_and_task,
    read_questions=_read_questions,
    read_answers=read_phd_answers,
    keyed=keyed,
    finished=finished,
    score=_score,
    function=phd,
    files_needed=False,
    listed="",
    options={
        "data": Option(
            file="read", metavar="FILE", help="PhD's data.json.  [default: labels, modes and tasks in the answers]"
        ),
        "prompts": Option(
            file="written",
            metavar="FILE",
            help="Write the prompts of all modes as JSON Lines and stop (needs --data).",
        ),
        **READING,
        **UNPARSED,
    },
    engine=replace(
        ANSWERS_ON_ENGINE, needs=("data",), refuses=("per_answer", "prompts"), renamed={"data": "questions"}
    ),
    asked="PhD's data.json (all modes)",
    prompts=_prompts,
    recognizes=lambda answer: bool(answer.mode and _MODE.fullmatch(answer.mode)),
    command_example=CommandExample(("scapo-eval phd answers.jsonl --data data.json",), runs=False),
)
