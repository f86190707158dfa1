"""HallusionBench (Guan et al. 2024): yes/no questions about figures and edited versions of them, and questions without
a figure.

The answers are grouped in three ways, as in ``utils.py`` of the official repository. aAcc is the accuracy over all
questions. fAcc is the share of figures for which all answers are correct. qAcc is the share of questions that are
answered correctly for every figure to which they refer. Further metrics reproduce the script's other tables, which
cover easy and hard questions, the bias toward "yes", figures with only wrong answers, and causes of errors. In the
official script, GPT-4 judges each answer. This implementation does not use a judge but compares the yes or no in the
answer with the ground truth, as VLMEvalKit does.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

import numpy as np

from ..base.errors import UNFIT, FaultList, InputError, unfit
from ..base.hashes import digest
from ..base.types import Answer
from ..files.containers import Warn, open_rows, warn_user
from ..files.files import display_name
from ..files.json_text import iter_records
from ..files.records import Readable
from ..readers.formats import HALLUSIONBENCH_KEYS, hallusionbench_id, hallusionbench_label
from ..readers.parsers import Parser, YesNo, parse_label, parser_identity
from ..readers.parsers import parser as parser_of
from ..results.benchmark import CommandExample, Option
from ..results.counts import CountTable
from ..results.items import Items
from ..results.metric import Floats, Formula, MetricSet, Sums, divide, of_version, ratio
from ..results.results import Resampling, Run
from ..results.signature import Signature
from .answered import READING, QuestionFiles, evidence
from .join import AnsweredBenchmark, Graded, Index, JoinedAnswers, Keyed, Matches, joined, match
from .provenance import answers_to
from .questions import OWN_LABELS, Question
from .systems import Systems, sources_of
from .yesno import column_of

TextOnly = Literal["auto", "in", "out"]
"""Treatment of questions without a figure. The set of 1,129 questions contains 178 of them, and the set of 951
questions (VLMEvalKit, lmms-eval's image task) contains none. ``auto`` counts them if any of them is answered.
"""

UNITS = {"a": "questions", "f": "figures", "q": "pairs", "easy": "easy", "hard": "hard"}
"""Metric -> unit that it counts. Hard units are pairs of a question with edited figures (``visual_input`` 2), and easy
units are pairs with other figures or none. A pair is correct if all of its answers are correct.
"""

BLAMES = ("lh", "vi", "mixed")
"""Causes of errors: language hallucination, visual illusion, or mixed."""

EDITED = 2
"""``visual_input`` of an edited figure. Original figures have 1, and 0 means no figure."""

_ID = re.compile(r"(?:hallusionbench/)?(V[DS])[/_]([a-z]+)[/_](\d+)[/_](\d+)[/_](\d+)[/_](\d+)")


@dataclass(frozen=True, slots=True)
class Place:
    """Parts of a question id, ``CATEGORY/SUBCATEGORY/VISUAL_INPUT/SET/FIGURE/QUESTION``.

    Attributes:
        category: ``VD`` (the question requires the figure) or ``VS`` (the figure supplements known facts).
        subcategory: ``illusion``, ``chart``...
        visual_input: 0 for a question without a figure, 1 for an original figure, 2 for an edited figure.
        set: Number of a set of related figures and their questions; such a set is the unit of intervals and tests.
        figure: Number of the figure in its set, where 0 is the original or, for ``VS``, the question without a figure.
        question: Number of the question in its set.
    """

    category: str
    subcategory: str
    visual_input: int
    set: str
    figure: int
    question: int

    @classmethod
    def of(cls, identity: str) -> Place:
        """Parses a question id of HallusionBench. Raises ValueError if the id does not belong to HallusionBench."""
        match = _ID.fullmatch(identity)
        if match is None:
            raise ValueError(f"{identity!r} is not a question id of HallusionBench (VD/illusion/1/0/0/0)")
        category, subcategory, visual, set_, figure, question = match.groups()
        set_ = f"{category}/{subcategory}/{int(set_)}"
        return cls(category, subcategory, int(visual), set_, int(figure), int(question))

    @property
    def text_only(self) -> bool:
        """True if the question is asked without a figure."""
        return self.category == "VS" and self.figure == 0

    @property
    def groups(self) -> tuple[str, ...]:
        """Names of the question's groups: all questions, its category, and its category with the subcategory."""
        category = self.category.lower()
        return "", category, f"{category}_{self.subcategory}"

    @property
    def units(self) -> Iterator[tuple[str, int]]:
        """Units of the set (figures, questions, pairs) that count as correct only if this question is answered
        correctly.
        """
        yield "questions", 1000 * self.figure + self.question
        if not self.text_only:
            yield "figures", self.figure
        yield "pairs", self.question
        yield "hard" if self.visual_input == EDITED else "easy", self.question


def _plain(identity: str) -> str:
    """Returns an id with slashes, converted from any notation (VLMEvalKit uses underscores)."""
    match = _ID.fullmatch(identity.strip())
    return "/".join(match.groups()) if match else identity


def read_questions(paths: Iterable[Readable]) -> list[Question]:
    """Reads the questions with their correct answers.

    Args:
        paths: Official ``HallusionBench.json``, or records with ``id`` (``index``) and ``label`` (``answer``).

    Raises:
        InputErrors: If records are not questions of HallusionBench, or an id is repeated.
    """
    faults = FaultList()
    questions: dict[str, Question] = {}
    for path in paths:
        for line, record in open_rows(path):
            try:
                question = _question(record)
            except UNFIT as error:
                faults.add(InputError(unfit(error), path=display_name(path), line=line))
                continue
            if questions.setdefault(question.id, question) is not question:
                faults.add(InputError(f"the id {question.id!r} appears twice", path=display_name(path), line=line))
    faults.raise_if_any()
    return list(questions.values())


def _question(record: Mapping[str, Any]) -> Question:
    official = set(record) >= HALLUSIONBENCH_KEYS
    given = next((record[key] for key in ("id", "index") if key in record), None)
    if not official and given is None:
        raise ValueError(f"missing key 'id' (found: {', '.join(record) or 'nothing'})")
    identity = hallusionbench_id(record) if official else str(given)
    truth = hallusionbench_label(record) if official else str(record.get("label", record.get("answer")))
    label = parse_label(truth or "")
    if label is None:
        raise ValueError(f"the label must be yes or no (gt_answer 1 or 0), not {record.get('gt_answer', truth)!r}")
    return _placed(Question(id=identity, label=label, text=record.get("question")))


def _placed(question: Question) -> Question:
    """Returns the question with its normalized id, and with its set as the resampling unit."""
    place = Place.of(question.id)
    return replace(question, id=_plain(question.id), image=place.set, category=place.category.lower())


def read_hallusionbench(
    path: Readable,
    questions: Sequence[Question] | None,
    parse: Parser,
    *,
    text_only: TextOnly = "auto",
    model: str | None = None,
    warn: Warn = warn_user,
) -> JoinedAnswers:
    """Reads the answers of one system and joins them with the questions by id.

    Args:
        path: Official result file (``model_prediction`` beside each question), predictions from VLMEvalKit or
            lmms-eval, or records with ``id`` and ``response``.
        questions: Questions from :func:`read_questions`, or None to use the labels in the answers.
        parse: Function that parses an answer.
        text_only: Treatment of questions without a figure: ``in`` includes them, ``out`` omits them, and ``auto``
            includes them if the file contains answers to them.
        model: Model to score if the file contains answers from several models.
        warn: Callback for warnings about damaged input that can still be read.

    Raises:
        InputError, InputErrors: If the answers cannot be joined (see :func:`~scapo_eval.benchmarks.join.join`), or ids
            do not belong to HallusionBench.
    """
    source, answers = answers_to("hallusionbench", path, model=model, warn=warn)
    answers = list(keyed(answers).answers)
    asked = _own_questions(answers, source) if questions is None else list(questions)
    notes = [OWN_LABELS] if questions is None else []
    matches = match(answers, Index(asked), parse, benchmark="hallusionbench")
    return joined_answers(matches, asked, text_only=text_only, source=source, notes=notes)


def keyed(answers: Sequence[Answer], index: Index | None = None, source: str = "") -> Keyed:
    """Returns the answers with normalized ids, and without image names because edited versions of a figure share a
    name.
    """
    return Keyed([replace(answer, id=_plain(answer.id), image=None, category=None) for answer in answers])


def joined_answers(
    found: Matches,
    questions: Sequence[Question],
    *,
    text_only: TextOnly,
    source: str,
    notes: Sequence[str] = (),
    **more: Any,
) -> JoinedAnswers:
    """Joins the answers of a system with the questions of the benchmark, either with all questions or only with those
    that have a figure.

    Args:
        found: Matches of all answers with questions.
        questions: All questions of the benchmark.
        text_only: Treatment of questions without a figure: ``in`` includes them, ``out`` omits them, and ``auto``
            includes them if some of them were answered.
        source, notes, more: Same as in :func:`~scapo_eval.benchmarks.join.joined`.

    Raises:
        InputError: If joining fails, or if questions without a figure are requested but the file contains none.
    """
    without = {k for k, question in enumerate(questions) if Place.of(question.id).text_only}
    if text_only == "out" or (text_only == "auto" and without.isdisjoint(found.question)):
        kept = [k for k, question in enumerate(questions) if k not in without]
        left = sum(question in without for question in found.question)
        found, questions = found.among(kept), [questions[k] for k in kept]
        what = f"{len(kept):,} questions, without the {len(without):,} that are asked without a figure"
        note = what if without else f"{len(kept):,} questions, none of them without a figure"
    elif not without:
        raise InputError("no question is asked without a figure, which --text-only in requires", path=source)
    else:
        note, left = f"{len(questions):,} questions, {len(without):,} of them asked without a figure", 0
    answers = joined(found, questions, source=source, notes=[*notes, note], **{"benchmark": "hallusionbench", **more})
    return replace(answers, unknown=answers.unknown + left)


def _own_questions(answers: Sequence[Answer], source: str) -> list[Question]:
    questions: dict[str, Question] = {}
    faults = FaultList()
    for answer in answers:
        label = parse_label(answer.label or "")
        try:
            if label is None:
                raise ValueError("no label yes or no; give HallusionBench.json with --questions")
            question = _placed(Question(id=answer.id, label=label, text=answer.question))
            if questions.setdefault(question.id, question).label != label:
                raise ValueError(f"id {answer.id!r} has another label here than before")
        except UNFIT as error:
            faults.add(InputError(unfit(error), path=source, line=answer.line or None))
    faults.raise_if_any()
    return list(questions.values())


def is_right(item: Graded) -> bool:
    """Returns True if an answer is correct. For a question without a figure, an answer that is neither yes nor no also
    counts as correct.
    """
    return item.correct or (item.said is None and Place.of(item.question.id).text_only)


def blame(place: Place, said: YesNo | None, right: bool, original: Graded, *, agrees: bool) -> str | None:
    """Returns the cause of an error according to the rules of the official script: ``lh``, ``vi``, ``mixed``, or None
    for a correct answer.

    Args:
        place: Parts of the question id.
        said: Parsed answer. None stands for an answer that is neither yes nor no.
        right: True if the answer counts as correct.
        original: Answer to the same question about the original figure (for ``VS``, without a figure).
        agrees: True if the answer is equivalent to the answer about the original figure.
    """
    if right:
        return None
    if place.category == "VD":
        after_right = place.figure > 0 and original.correct
        return "mixed" if after_right and said is not None and agrees else "vi"
    if place.figure == 0:
        return "lh"
    if original.said is None:
        return "vi"
    if not original.correct:
        return "lh" if said is not None and agrees else "mixed"
    return "lh" if said is not None and agrees and place.visual_input == EDITED else "vi"


def metrics_of(groups: Sequence[str]) -> MetricSet:
    """Returns the metrics that the official script prints, and the accuracies for every subcategory.

    The names of the metrics are ``a_acc f_acc q_acc easy_acc hard_acc average yes_bias yes_bias_fp figures_inconsistent
    figures_wrong lh vi mixed``. All metrics except ``average`` also exist with the prefixes ``vd_`` and ``vs_``. The
    accuracies of the subcategories have names such as ``vd_illusion_a_acc``.

    Args:
        groups: Names of question groups: ``""`` for all questions, ``vd``, ``vd_illusion``...
    """
    groups = sorted(groups)
    formulas = _accuracies("", UNITS)
    formulas["average"] = lambda sums: np.asarray(np.mean([_share(sums, UNITS[name]) for name in "afq"], axis=0))
    for group in groups:
        whole = "_" not in group
        formulas |= _accuracies(group, UNITS if whole else "afq") | (_diagnoses(group) if whole else {})
    columns = tuple(column_of(group, name) for group in groups for name in _COUNTS)
    at_most = [(f"{unit}_right", unit) for unit in UNITS.values()]
    return MetricSet(
        "hallusionbench",
        columns,
        formulas,
        {
            name: not name.endswith(("figures_inconsistent", "figures_wrong"))
            for name in formulas
            if not name.endswith(("bias", "bias_fp", *BLAMES))
        },
        at_most=tuple(
            (column_of(group, less), column_of(group, more))
            for group in groups
            for less, more in (*at_most, ("figures_wrong", "figures"), ("false_yes", "questions"))
        ),
        signed=frozenset(name for name in formulas if name.endswith("yes_bias")),
    )


_RIGHT = tuple(f"{unit}{end}" for unit in UNITS.values() for end in ("", "_right"))
_COUNTS = (
    *_RIGHT,
    "figures_wrong",
    "false_yes",
    *BLAMES,
)
"""Counts per set of figures: units; correct units; figures with only wrong answers; wrong answers to questions with the
correct answer no; errors by cause.
"""


def _accuracies(group: str, names: Iterable[str]) -> dict[str, Formula]:
    return {
        column_of(group, f"{name}_acc"): ratio(column_of(group, f"{UNITS[name]}_right"), column_of(group, UNITS[name]))
        for name in names
    }


def _diagnoses(group: str) -> dict[str, Formula]:
    def count(sums: Sums, name: str) -> Floats:
        return sums[column_of(group, name)]

    def wrong(sums: Sums) -> Floats:
        return count(sums, "questions") - count(sums, "questions_right")

    def bias(sums: Sums) -> Floats:  # a wrong answer is the opposite: share of yes answers minus share of yes labels
        return divide(2 * count(sums, "false_yes") - wrong(sums), count(sums, "questions"))

    def inconsistent(sums: Sums) -> Floats:
        figures = count(sums, "figures")
        return divide(figures - count(sums, "figures_right") - count(sums, "figures_wrong"), figures)

    def blamed(on: str) -> Formula:
        return lambda sums: divide(count(sums, on), sum((count(sums, cause) for cause in BLAMES), np.zeros(())))

    formulas: dict[str, Formula] = {
        "yes_bias": bias,
        "yes_bias_fp": lambda sums: divide(count(sums, "false_yes"), wrong(sums)),
        "figures_inconsistent": inconsistent,
        "figures_wrong": ratio(column_of(group, "figures_wrong"), column_of(group, "figures")),
        **{cause: blamed(cause) for cause in BLAMES},
    }
    return {column_of(group, name): formula for name, formula in formulas.items()}


def _share(sums: Sums, unit: str) -> Floats:
    return divide(sums[f"{unit}_right"], sums[unit])


def _groups_in(columns: Sequence[str]) -> list[str]:
    return [name.removesuffix("questions").removesuffix("_") for name in columns if name.endswith("questions")]


def hallusionbench_runs(
    answers: Mapping[str, JoinedAnswers], *, parser: str, resampling: Resampling | None = None
) -> list[Run]:
    """Converts the answers of several systems to runs whose metric set covers the questions of all systems.

    Figures and pairs of figures that have an unanswered question are omitted, but counted.

    Args:
        answers: Mapping from system names to answers.
        parser: Name of the parser, for the signature.
        resampling: Resampling settings for the confidence intervals, which are computed by resampling sets of figures.
    """
    groups = {group for answer in answers.values() for q in answer.questions for group in Place.of(q.id).groups}
    metrics = metrics_of(sorted(groups))
    return [_run(name, answer, metrics, parser, resampling or Resampling()) for name, answer in answers.items()]


def _run(name: str, answers: JoinedAnswers, metrics: MetricSet, parser: str, resampling: Resampling) -> Run:
    table, items, incomplete = _table(answers, metrics)
    right = {item.question.id: is_right(item) for item in answers.graded}
    places = {key: Place.of(key) for key in right}
    verdicts = {
        column_of(group, "a_acc"): {key: right[key] for key in right if group in places[key].groups}
        for group in dict.fromkeys(group for place in places.values() for group in place.groups)
    }
    unclear = sum(item.said is None and right[item.question.id] for item in answers.graded)
    notes = list(answers.notes)
    unparsed = answers.counts["unparsed"]
    if unparsed:
        told = f"; {unclear:,} of them to questions without a figure, for which this is correct" if unclear else ""
        notes.append(
            f"{unparsed:,} of {len(answers.graded):,} answers are neither yes nor no "
            f"according to the parser '{parser}'{told}"
        )
    if not _has_originals(answers):
        notes.append("LH, VI and Mixed need the questions about every original, also those without a figure")
    elif any(item.answer.agrees is None for item in answers.graded):
        notes.append("LH, VI and Mixed: answers agree if both are yes or both are no (published values use a judge)")
    if any(number for number, _ in incomplete.values()):
        listed = ", ".join(f"{number:,} of {n:,} {unit}" for unit, (number, n) in incomplete.items() if number)
        notes.append(f"omitted, because some of their questions are not answered: {listed}")
    own_labels = OWN_LABELS in answers.notes
    asked = digest(sorted(f"{question.id} {question.label}" for question in answers.questions))
    return Run(
        name=name,
        signature=Signature.of(
            "hallusionbench",
            parser=parser,
            text_only="in" if any(Place.of(question.id).text_only for question in answers.questions) else "out",
            n=len(answers.graded),
            labels="own" if own_labels else None,
            **{"asked" if own_labels else "questions": asked},
            ids=digest(table.image_ids),
            missing=answers.counts["missing"],
            bad_files=answers.bad_files or None,
        ),
        metric_set=metrics,
        table=table,
        n_records=len(answers.graded),
        other_counts={**answers.counts, "unclear_right": unclear},
        verdicts=verdicts,
        items=items,
        notes=tuple(notes),
        resampling=resampling,
    )


def _table(answers: JoinedAnswers, metrics: MetricSet) -> tuple[CountTable, Items, dict[str, tuple[int, int]]]:
    """Returns the counts of each set of figures, the items of these counts, and the numbers of omitted and of all
    figures and pairs.

    The items are the units (each named with its questions), the questions, and the causes of errors, which require an
    answer about the original figure.
    """
    asked: dict[tuple[str, str, int], list[str]] = defaultdict(list)
    for question in answers.questions:
        place = Place.of(question.id)
        for unit, number in place.units:
            asked[place.set, unit, number].append(f"{place.figure}.{place.question}")
    answered: dict[tuple[str, str, int], list[bool]] = defaultdict(list)
    counts: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)
    groups: dict[str, dict[str, None]] = defaultdict(dict)  # a set would order the columns by Python's random hashes
    items: list[tuple[str, str, Mapping[str, int]]] = []

    def add(name: str, set_: str, counted: Mapping[str, int]) -> None:
        items.append((name, set_, {column_of(group, key): n for group in groups[set_] for key, n in counted.items()}))
        for group in groups[set_]:
            counts[set_, group].update(counted)

    originals = {(place.set, place.question) for place in _places(answers) if place.figure == 0}
    for item, blamed in _blamed(answers):
        place = Place.of(item.question.id)
        groups[place.set].update(dict.fromkeys(place.groups))
        right = is_right(item)
        for unit, number in place.units:
            answered[place.set, unit, number].append(right)
        add(item.question.id, place.set, {"false_yes": int(not right and item.question.label == "no")})
        if (place.set, place.question) in originals:
            add(f"cause {item.question.id}", place.set, {blamed: 1} if blamed else {})
    incomplete: Counter[str] = Counter()
    for (set_, unit, number), questions in asked.items():
        verdicts = answered[set_, unit, number]
        if len(verdicts) < len(questions):
            incomplete[unit] += 1
            continue
        units = {unit: 1, f"{unit}_right": int(all(verdicts))}
        if unit == "figures":
            units["figures_wrong"] = int(not any(verdicts))
        add(f"{unit} {set_}: {' '.join(sorted(questions))}", set_, units)
    sets = sorted(groups)
    places = [(column_of(group, name), group, name) for group in _groups_in(metrics.columns) for name in _COUNTS]
    assert [column for column, *_ in places] == list(metrics.columns)
    rows = np.array(
        [[counts[set_, group][name] if (set_, group) in counts else 0 for _, group, name in places] for set_ in sets],
        dtype=np.int64,
    ).reshape(len(sets), len(metrics.columns))
    table = CountTable(metrics.columns, tuple(sets), rows)
    all_units = Counter(unit for _, unit, _ in asked)
    omitted = {unit: (incomplete[unit], all_units[unit]) for unit in ("figures", "pairs")}
    return table, Items.of(table, items), omitted


def _places(answers: JoinedAnswers) -> list[Place]:
    return [Place.of(item.question.id) for item in answers.graded]


def _blamed(answers: JoinedAnswers) -> Iterator[tuple[Graded, str | None]]:
    """Yields every answer together with the cause of its error, or with None if the answer is correct. All causes are
    None if the questions do not include the original figures.
    """
    whole = _has_originals(answers)
    places = {item.question.id: Place.of(item.question.id) for item in answers.graded}
    originals = {
        (place.set, place.question): item for item in answers.graded if (place := places[item.question.id]).figure == 0
    }
    for item in answers.graded:
        place = places[item.question.id]
        original = originals.get((place.set, place.question))
        if original is None or not whole:
            yield item, None
            continue
        given = item.answer.agrees
        agrees = item.said == original.said if given is None else given
        yield item, blame(place, item.said, is_right(item), original, agrees=agrees)


def _has_originals(answers: JoinedAnswers) -> bool:
    """Returns True if every question is also asked about the original figure, and if questions without a figure are not
    all unanswered.
    """
    places = [Place.of(question.id) for question in answers.questions]
    if any(place.text_only for place in places) and not any(place.text_only for place in _places(answers)):
        return False
    return {(place.set, place.question) for place in places} == {
        (place.set, place.question) for place in places if place.figure == 0
    }


def _recognizes(answer: Answer) -> bool:
    return _ID.fullmatch(answer.id) is not None


def _prompts(path: str, first: Mapping[str, Any]) -> Iterator[tuple[int, Mapping[str, Any]]] | None:
    """Returns the questions in ``HallusionBench.json``, with the paths of their figures in the official archive."""
    if not set(first) >= HALLUSIONBENCH_KEYS:
        return None
    return (
        (
            line,
            {
                "id": hallusionbench_id(record),
                "question": record["question"],
                "image": record.get("filename"),
                "label": hallusionbench_label(record),
                "benchmark": "hallusionbench",
            },
        )
        for line, record in iter_records(path)
    )


def _run_of(
    matches: Matches,
    questions: Sequence[Question],
    name: str,
    *,
    parser: str,
    resampling: Resampling,
    text_only: TextOnly,
    **more: Any,
) -> Run:
    answers = joined_answers(matches, questions, text_only=text_only, **more)
    [run] = hallusionbench_runs({name: answers}, parser=parser, resampling=resampling)
    return run


def _score(
    systems: Systems,
    *,
    questions: QuestionFiles | None = None,
    text_only: TextOnly = "auto",
    parser: str = "default",
    yes: Sequence[str] = (),
    no: Sequence[str] = (),
    model: str | None = None,
    per_answer: str | None = None,
) -> list[Run]:
    systems.alone("--per-answer", per_answer, "file of answers")
    parse = parser_of(parser, yes=yes, no=no)
    asked = sources_of(questions)
    truth = read_questions(asked) if asked else None
    answers = {
        name: read_hallusionbench(source, truth, parse, text_only=text_only, model=model, warn=systems.warn)
        for name, source in systems.named().items()
    }
    with systems.evidence(per_answer) as write:
        if write:
            graded = next(iter(answers.values())).graded
            write({**record, "correct": is_right(item)} for record, item in zip(evidence(graded), graded, strict=True))
    identity = parser_identity(parser, yes=yes, no=no)
    return hallusionbench_runs(answers, parser=identity, resampling=systems.resampling)


def _metrics_of(columns: Sequence[str]) -> MetricSet:
    """Returns the metric set for the counts in a file. In files from version 0.2 of the package, easy and hard
    questions are defined differently.
    """
    groups = sorted(_groups_in(columns))
    metrics = metrics_of(groups)
    former = [column_of(group, name) for group in groups for name in _RIGHT]
    mended = [name for name in metrics.formulas if name.endswith(("easy_acc", "hard_acc"))]
    return of_version(metrics, columns, former, mended)


BENCHMARK = AnsweredBenchmark(
    name="hallusionbench",
    title="HallusionBench",
    help="""Scores HallusionBench answers per question, figure and pair. Several files are compared with the first.

    ANSWERS are the official result file (model_prediction), VLMEvalKit's or lmms-eval's predictions, or own JSON
    Lines with ids such as VD/illusion/1/0/0/0.
    """,
    metric_set=_metrics_of,
    metric_names={
        "a_acc": "aAcc",
        "f_acc": "fAcc",
        "q_acc": "qAcc",
        "easy_acc": "Easy",
        "hard_acc": "Hard",
        "yes_bias": "Yes bias",
        "yes_bias_fp": "Yes bias, FP ratio",
        "figures_inconsistent": "Inconsistent",
        "figures_wrong": "Wrong",
        "lh": "LH",
        "vi": "VI",
        "mixed": "Mixed",
        "average": "Average",
    },
    meanings={
        "a_acc": "questions answered correctly",
        "f_acc": "figures with only correct answers",
        "q_acc": "questions answered correctly for all their figures (or without a figure)",
        "average": "mean of a_acc, f_acc and q_acc",
        "easy_acc": "q_acc for original figures and without a figure",
        "hard_acc": "q_acc for edited figures",
        "yes_bias": "share of yes answers minus share of yes labels (a wrong answer is the opposite of its label)",
        "yes_bias_fp": "share of wrong answers that should be no",
        "figures_inconsistent": "figures with correct and wrong answers",
        "figures_wrong": "figures with only wrong answers",
        "lh": "errors attributed to language (language hallucination)",
        "vi": "errors attributed to vision (visual illusion)",
        "mixed": "errors that can have either cause",
    },
    canonical={"a_acc": "accuracy"},
    dataset={"source_type": "url", "url": ["https://github.com/tianyi-lab/HallusionBench"]},
    headline=("a_acc", "f_acc", "q_acc", "average"),
    read_questions=read_questions,
    keyed=keyed,
    decides=("text_only",),
    run_of=_run_of,
    score=_score,
    example="""
    >>> import scapo_eval
    >>> answers = [
    ...     {"id": "VD/illusion/1/0/0/0", "response": "Yes.", "label": "yes"},
    ...     {"id": "VD/illusion/1/0/0/1", "response": "Yes.", "label": "no"},
    ... ]
    >>> run = scapo_eval.hallusionbench(answers)
    >>> run.values["a_acc"], run.values["f_acc"]
    (0.5, 0.0)
    """,
    options={
        "questions": Option(
            file="read", repeated=True, metavar="FILE", help="HallusionBench.json.  [default: labels in the answers]"
        ),
        "text_only": Option(
            choices=get_args(TextOnly),
            help="Questions without a figure: in (1,129 questions), out (951 questions), or in if any is answered.",
        ),
        **READING,
    },
    asked="HallusionBench.json",
    recognizes=_recognizes,
    prompts=_prompts,
    command_example=CommandExample(
        ("scapo-eval hallusionbench answers.jsonl --questions HallusionBench.json",), runs=False
    ),
)
