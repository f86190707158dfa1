"""What Python users call: one function per benchmark that scores, and the comparison of what they return.

Captions, answers and questions are a path, a list of mappings, a pandas DataFrame or a Hugging Face Dataset; faults
are an :class:`~scapo_eval.base.errors.InputError` that names the row, from 1.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from .base.errors import InputError, check_choice
from .benchmarks import phd as phd_
from .benchmarks import pope as pope_
from .benchmarks import yesno as yesno_
from .benchmarks.amber import ANSWERS, Amber, AmberData, Mode, NltkNouns, Similarity, read_responses
from .benchmarks.capscore import CaptionScores, score_file
from .benchmarks.chair import Synonyms, score_chair
from .benchmarks.chair import profile as chair_profile
from .benchmarks.scoring import ScoringOptions
from .benchmarks.yesno import Unparsed, YesNoBenchmark
from .files.containers import warn_user
from .files.records import Given, Readable, Records, readable
from .matching.uses import Claims
from .matching.vocabulary import Vocabulary
from .readers.parsers import PARSERS, parser_identity
from .readers.parsers import parser as parser_of
from .results.comparison import compare as compare_runs
from .results.results import Resampling, Results, Run, system_names, unique_names
from .results.stats import DEFAULT_RESAMPLES, DEFAULT_SEED, Bootstrap, IntervalMethod, Test
from .truths.oracle import PresenceOracle, Truth

TruthGiven = Given | PresenceOracle | Mapping[Any, Iterable[str]]
"""A truth file, an oracle, ``{image id: [labels]}``, or records of ``image_id`` and ``objects``."""

OnUnknownImage = Literal["error", "skip"]


def score(
    captions: Given,
    *,
    truth: TruthGiven | None = None,
    vocabulary: Vocabulary | str | Path = "coco80",
    dopa: TruthGiven | None = None,
    dopa_vocabulary: Vocabulary | str | Path = "dopa160",
    name: str | None = None,
    claims: Claims = "all",
    workers: int | None = None,
    resamples: int = DEFAULT_RESAMPLES,
    seed: int = DEFAULT_SEED,
    bootstrap: Bootstrap | None = None,
    skip_bad: bool = False,
    on_unknown_image: OnUnknownImage = "error",
    any_fingerprint: bool = False,
    drop_unfinished: bool = False,
) -> CaptionScores:
    """Cap. Score, Hal. and Cover Rate and CHAIR of captions.

    Args:
        captions: records of ``image_id`` and ``caption`` (and ``objects`` where there is no truth).
        truth: what is in the images; None takes every record's ``objects``.
        vocabulary: labels and their aliases: an object, a shipped name or a file.
        dopa: a DOPA matrix, which adds the ``*_dagger`` metrics.
        dopa_vocabulary: its vocabulary.
        name: of the system; by default the file's, or ``captions``.
        claims: which mentions count, see :mod:`scapo_eval.matching.uses`; ``all`` is the paper's protocol, ``visual``
            is right on captions of recent models.
        workers: processes that parse and match; None: this one.
        resamples: of tests and percentiles; 0 for no intervals.
        seed: of the resampling.
        bootstrap: how images are resampled, see :class:`~scapo_eval.results.results.Resampling`; None: by their number.
        skip_bad: leave faulty records out and count them, in place of an error.
        on_unknown_image: what becomes of captions whose image the truth does not know.
        any_fingerprint: accept a matrix that was made for another vocabulary.
        drop_unfinished: drop the last sentence of a caption where it has no end (cut off by a token limit).

    Raises:
        InputErrors, InputError: faults, by file and line or by row.
    """
    given = readable(captions)
    options = ScoringOptions(claims, skip_bad, on_unknown_image, any_fingerprint, workers, drop_unfinished)
    return score_file(
        given,
        vocabulary_of(vocabulary),
        None if truth is None else oracle_of(truth),
        options,
        dagger=None if dopa is None else _truth(dopa, dopa_vocabulary, options),
        name=name or _name(given, "captions"),
        resampling=Resampling(resamples, seed, bootstrap=bootstrap),
    )


def chair(
    captions: Given,
    *,
    truth: TruthGiven,
    profile: Literal["native", "reference", "opera"] = "native",
    synonyms: Synonyms | str | Path | None = None,
    vocabulary: Vocabulary | str | Path | None = None,
    name: str | None = None,
    claims: Claims = "all",
    workers: int | None = None,
    resamples: int = DEFAULT_RESAMPLES,
    seed: int = DEFAULT_SEED,
    bootstrap: Bootstrap | None = None,
    skip_bad: bool = False,
    on_unknown_image: OnUnknownImage = "error",
    any_fingerprint: bool = False,
    drop_unfinished: bool = False,
) -> Run:
    """CHAIR_s, CHAIR_i, Recall and Len of captions.

    Args:
        captions: records of ``image_id`` and ``caption``.
        truth: what is in the images; for the scripts' own digits CHAIR's ground truth.
        profile: how captions are read: the project's matcher, the standalone CHAIR script's way, or OPERA's
            (extra ``nltk``).
        synonyms: for ``reference`` and ``opera``: CHAIR's ``synonyms.txt``.
        vocabulary: for ``native``: labels and their aliases; None takes coco80.
        claims: which mentions count with ``native``.
        name, resamples, seed, bootstrap, skip_bad, on_unknown_image, any_fingerprint, drop_unfinished: see
            :func:`score`.
        workers: processes that parse and match, or with ``opera`` tag; None: one, or one per processor.

    Raises:
        InputErrors, InputError: faults, by file and line or by row; an option of another profile.
        MissingExtra: ``opera`` without NLTK.
    """
    given = readable(captions)
    reader = chair_profile(profile, vocabulary=vocabulary, synonyms=synonyms, claims=claims, workers=workers)
    own_workers = None if profile == "opera" else workers  # its tagger has processes of its own
    return score_chair(
        given,
        reader,
        oracle_of(truth),
        ScoringOptions(claims, skip_bad, on_unknown_image, any_fingerprint, own_workers, drop_unfinished),
        name=name or _name(given, "captions"),
        resampling=Resampling(resamples, seed, bootstrap=bootstrap),
    )


def amber(
    responses: Given,
    *,
    data: AmberData | str | Path,
    mode: Mode = "embedded",
    similarity: Similarity | str = "none",
    parser: str | None = None,
    name: str | None = None,
    workers: int | None = None,
    resamples: int = DEFAULT_RESAMPLES,
    seed: int = DEFAULT_SEED,
    bootstrap: Bootstrap | None = None,
    skip_bad: bool = False,
    drop_unfinished: bool = False,
) -> Run:
    """AMBER's generative and discriminative metrics.

    Args:
        responses: records of ``id`` and ``response``.
        data: the checkout of AMBER's repository, or its ``data`` folder.
        mode: ``embedded``, or ``parity`` for NLTK's nouns and the official script's digits (extra ``nltk``).
        similarity: which words count as the same: ``none``, ``spacy:MODEL``, a JSON file of pairs, or an object.
        parser: how yes/no answers are read, ``first-word`` or ``exact``; None: the mode's own.
        name, resamples, seed, bootstrap, skip_bad, drop_unfinished: see :func:`score`.
        workers: processes that tag in parity mode; None: one per processor.

    Raises:
        InputErrors, InputError: faults, by file and line or by row.
        MissingExtra: parity mode without NLTK.
    """
    given = readable(responses)
    if parser is not None:
        check_choice("parser", parser, list(ANSWERS))
    benchmark = data if isinstance(data, AmberData) else AmberData.load(data)
    scorer = Amber(
        benchmark,
        mode,
        similarity=similarity if isinstance(similarity, Similarity) else Similarity.load(similarity, benchmark.words),
        answers=parser,
        tagger=NltkNouns(workers) if mode == "parity" else None,
    )
    found = read_responses(given, benchmark, official=mode == "parity", skip_bad=skip_bad)
    found = found.without_unfinished() if drop_unfinished else found
    return scorer.score(
        found, name or _name(given, "responses"), resampling=Resampling(resamples, seed, bootstrap=bootstrap)
    ).run


def pope(
    answers: Given,
    *,
    questions: Given | Sequence[str | os.PathLike[str]] | None = None,
    parser: str = "default",
    unparsed: Unparsed = "wrong",
    model: str | None = None,
    name: str | None = None,
    resamples: int = DEFAULT_RESAMPLES,
    seed: int = DEFAULT_SEED,
    bootstrap: Bootstrap | None = None,
) -> Run:
    """POPE: accuracy, precision, recall, F1 and yes ratio, overall and per category.

    Args:
        answers: records of ``id`` and ``response``, or a file of lmms-eval, VLMEvalKit, LLaVA, verl, TRL.
        questions: POPE's question files (one, or a list), or records; None takes the answers' own labels.
        parser: whose rule reads yes or no out of an answer: ``default``, ``pope``, ``vlmevalkit``, ``lmms``,
            ``amber`` or ``contains``.
        unparsed: an answer that says neither is ``wrong``, or left out (``drop``).
        model: the one to score where a file mixes several.
        name, resamples, seed, bootstrap: see :func:`score`.

    Raises:
        InputErrors, InputError: faults, by file and line or by row.
    """
    drawn = Resampling(resamples, seed, bootstrap=bootstrap)
    return _yesno(pope_.BENCHMARK, answers, questions, parser, unparsed, model, name, drawn)


def phd(
    answers: Given,
    *,
    data: Given | Sequence[str | os.PathLike[str]] | None = None,
    parser: str = "default",
    unparsed: Unparsed = "wrong",
    model: str | None = None,
    name: str | None = None,
    resamples: int = DEFAULT_RESAMPLES,
    seed: int = DEFAULT_SEED,
    bootstrap: Bootstrap | None = None,
) -> Run:
    """The PhD index per mode and task.

    Args:
        answers: records of ``id``, ``mode`` and ``response``.
        data: PhD's ``data.json``; None takes the answers' own labels.
        parser, unparsed, model, name, resamples, seed, bootstrap: see :func:`pope`.

    Raises:
        InputErrors, InputError: faults, by file and line or by row.
    """
    drawn = Resampling(resamples, seed, bootstrap=bootstrap)
    return _yesno(phd_.BENCHMARK, answers, data, parser, unparsed, model, name, drawn)


def yesno(
    answers: Given,
    *,
    questions: Given | Sequence[str | os.PathLike[str]] | None = None,
    parser: str = "default",
    unparsed: Unparsed = "wrong",
    model: str | None = None,
    name: str | None = None,
    resamples: int = DEFAULT_RESAMPLES,
    seed: int = DEFAULT_SEED,
    bootstrap: Bootstrap | None = None,
) -> Run:
    """Accuracy, precision, recall, F1 and yes ratio of any yes/no answers.

    Args:
        answers: records of ``id`` and ``response`` (and ``label`` where there are no questions).
        questions: records of ``id`` and ``label``, or files of them; None takes the answers' own labels.
        parser, unparsed, model, name, resamples, seed, bootstrap: see :func:`pope`.

    Raises:
        InputErrors, InputError: faults, by file and line or by row.
    """
    drawn = Resampling(resamples, seed, bootstrap=bootstrap)
    return _yesno(yesno_.BENCHMARK, answers, questions, parser, unparsed, model, name, drawn)


def compare(
    runs: Iterable[Run],
    *,
    allow_different: bool = False,
    test: Test = "studentized_permutation",
    interval: IntervalMethod = "wilson",
    margin: float | None = None,
    resamples: int | None = None,
    seed: int | None = None,
    bootstrap: Bootstrap | None = None,
) -> Results:
    """Compares runs of one benchmark with the first: differences, intervals and paired tests.

    Args:
        runs: what :func:`score`, :func:`chair`... return, or :func:`load_results`; runs of one name are numbered.
        allow_different: go on where runs were scored in different ways (another truth, vocabulary, parser...).
        test: where p-values come from, see :func:`scapo_eval.results.stats.paired_differences`.
        interval: how intervals are made: ``wilson``, or ``percentile`` (the only ones of 0.2.0).
        margin: difference up to which two systems count as equal (0.01: one point); adds ``p_equivalence``.
        resamples, seed, bootstrap: of all intervals and tests; None takes the first run's.

    Raises:
        InputError: no runs, runs of different benchmarks, or scored in different ways.
    """
    listed = list(runs)
    if strangers := [type(run).__name__ for run in listed if not isinstance(run, Run)]:
        raise InputError(f"expected runs (of score, chair, ... or load_results), found {strangers[0]}")
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


def _yesno(
    benchmark: YesNoBenchmark,
    answers: Given,
    questions: Given | Sequence[str | os.PathLike[str]] | None,
    parser: str,
    unparsed: Unparsed,
    model: str | None,
    name: str | None,
    resampling: Resampling,
) -> Run:
    check_choice("parser", parser, list(PARSERS))
    check_choice("unparsed", unparsed, ("wrong", "drop"))
    given, parse = readable(answers), parser_of(parser)
    truth = None if questions is None else benchmark.read_questions(sources_of(questions))
    joined = benchmark.read_answers(given, truth, parse, model=model, warn=warn_user)
    [run] = benchmark.runs(
        {name or _name(given, "answers"): joined},
        parser=parser_identity(parser),
        unparsed=unparsed,
        resampling=resampling,
    )
    return run


def sources_of(given: Given | Sequence[str | os.PathLike[str]]) -> list[Readable]:
    """One source, or each path of a list of paths."""
    if isinstance(given, (list, tuple)) and given and all(isinstance(each, (str, os.PathLike)) for each in given):
        return [readable(each) for each in given]
    return [readable(given)]  # type: ignore[arg-type]  # a sequence of paths is told apart by its elements alone


def _name(given: Readable, otherwise: str) -> str:
    return otherwise if isinstance(given, Records) else system_names([str(given)])[0]


def vocabulary_of(given: Vocabulary | str | Path) -> Vocabulary:
    """A vocabulary as it is, or loaded."""
    return given if isinstance(given, Vocabulary) else Vocabulary.load(given)


def _truth(given: TruthGiven, vocabulary: Vocabulary | str | Path, options: ScoringOptions) -> Truth:
    return Truth.of(oracle_of(given), vocabulary_of(vocabulary), any_fingerprint=options.any_fingerprint)


def oracle_of(given: TruthGiven) -> PresenceOracle:
    """An oracle as it is, of a mapping, of records, or loaded."""
    if isinstance(given, PresenceOracle):
        return given
    if isinstance(given, Mapping):
        return PresenceOracle.from_objects(given, source="truth")
    return PresenceOracle.load(readable(given))
