"""FaithScore (Jing et al. 2024, ``framework.py``): the share of verified atomic facts in an answer, averaged over the
answers.

A judge splits an answer into atomic facts, and a second model verifies each fact. Both models run outside this package.
This module reads the verdicts of the judge and of the second model.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import lcm
from typing import Any

import numpy as np

from ..base.errors import UNFIT, FaultList, InputError, OptionError, short_repr, unfit
from ..base.ids import canonical_image_id
from ..base.reprs import fields_in_short
from ..files.containers import Warn, warn_user
from ..files.fields import Record, find_image, id_in, optional_text
from ..files.files import display_name
from ..files.json_text import json_type
from ..files.records import Readable
from ..results.benchmark import Benchmark, CommandExample
from ..results.counts import CountBuilder
from ..results.metric import Formula, MetricSet, ratio
from ..results.results import Resampling, Run, system_names
from ..results.signature import Signature
from .judged import UNTOLD, Judging, digest_of, judged_records, raise_faults
from .systems import Systems

SHARE_UNIT = lcm(*range(1, 31))
"""Fixed-point scale for the share of verified facts in one answer.

FaithScore is a mean of ratios, and counts must be integers. Each answer therefore adds ``verified / facts`` in units of
1 / 2.3e12. This is exact for up to 30 facts, accurate to 1e-12 for more, and allows sums of 4 million answers in 64
bits.
"""

_FACT_COLUMNS = ("answers", "scored", "facts", "verified", "share")
_LISTS = ("facts", "atomic_facts", "n_facts", "num_facts")
_VERDICTS = ("verified", "fact_scores", "fs_list", "n_verified", "num_verified")


@dataclass(frozen=True, slots=True)
class Facts:
    """Atomic facts of one answer, with the number of verified facts.

    Attributes:
        line: Number of the line or array element in the file, starting at 1.
        image: Name of the image, or the id of the answer if the image is unnamed, or None if the file contains neither.
        facts: Number of facts that the judge found.
        verified: Number of verified facts.
        setting: Generation setting of the answer (``conversation``, ``detailed``...), or None.
        judging: Judge, verifier and their settings, as far as the file contains them.
    """

    line: int
    image: str | None
    facts: int
    verified: int
    setting: str | None = None
    judging: Judging = UNTOLD

    __repr__ = fields_in_short


MAX_COUNT = 10**6
"""Maximum number of facts in one answer. Larger numbers are rejected as invalid counts."""


def read_facts(path: Readable, *, setting: str | None = None, warn: Warn = warn_user) -> list[Facts]:
    """Reads the atomic facts in one system's answers, and the verdicts on them.

    Args:
        path: Records with ``facts`` and ``verified`` (lists or counts), records with FaithScore's own ``atomic_facts``
            and ``fact_scores``/``fs_list``, or only FaithScore's ``fact_scores`` (an array of arrays).
        setting: Generation setting for records that do not state one.
        warn: Callback for warnings about damaged input that can still be read.

    Raises:
        InputError, InputErrors: If facts are missing, if the number of verified facts exceeds the number of facts, or
            if ids are repeated.
    """
    name = display_name(path)
    faults = FaultList()
    all_facts: list[Facts] = []
    seen: dict[tuple[str | None, str], int] = {}
    for line, record in judged_records(path, "fact_scores", warn):
        try:
            key = "id" if "id" in record else "question_id"
            identity = id_in(record, key) if key in record else None
            facts = _facts(record, line, identity, setting)
        except UNFIT as error:
            faults.add(InputError(unfit(error), path=name, line=line))
            continue
        if identity is not None:
            earlier = seen.setdefault((facts.setting, identity), line)
            if earlier != line:
                faults.add(
                    InputError(f"id {identity!r} appears twice (lines {earlier} and {line})", path=name, line=line)
                )
        all_facts.append(facts)
    raise_faults(path, faults, "facts", nothing=not all_facts)
    return all_facts


def _facts(record: Record, line: int, identity: str | None, setting: str | None) -> Facts:
    if "faithscore" in record and "num_samples" in record:
        raise ValueError("contains only FaithScore's mean; the facts of each answer (fact_scores) are required")
    verdicts = _first(record, _VERDICTS)
    if verdicts is None:
        raise ValueError(f"missing key 'verified' (found: {', '.join(record)})")
    listed = _first(record, _LISTS, verdicts)
    facts, verified = _number_of(listed, "facts"), _number_verified(verdicts, listed)
    if verified > facts:
        raise ValueError(f"{verified} verified of {facts} facts")
    given = optional_text(record.get("setting"))
    image = find_image(record) or identity
    return Facts(
        line=line,
        image=canonical_image_id(image) if image else None,
        facts=facts,
        verified=verified,
        setting=_setting_name(given or setting),
        judging=Judging.of(record),
    )


def _first(record: Record, keys: Sequence[str], otherwise: Any = None) -> Any:
    for key in keys:
        if key in record:
            return record[key]
    return otherwise


def _number_of(value: object, what: str) -> int:
    if isinstance(value, list):
        return len(value)
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MAX_COUNT:
        return value
    shown = short_repr(value) if isinstance(value, int) else json_type(value)
    raise ValueError(f"{what!r} must be a list or a count, not {shown}")


def _number_verified(verdicts: object, facts: object) -> int:
    """Returns the number of verified facts, which a record states as a count, as one 0 or 1 per fact, or as a list of
    the verified facts.
    """
    if not isinstance(verdicts, list):
        return _number_of(verdicts, "verified")
    kinds = set(map(type, verdicts))
    if kinds <= {int, float, bool} and verdicts.count(0) + verdicts.count(1) == len(verdicts):
        if isinstance(facts, list) and len(facts) != len(verdicts):
            raise ValueError(f"{len(verdicts)} verdicts on {len(facts)} facts")
        return int(sum(verdicts))
    if isinstance(facts, list) and kinds <= {str}:
        known = {fact for fact in facts if isinstance(fact, str)}
        if known.issuperset(verdicts):
            return len(verdicts)
    raise ValueError("'verified' must be a count, a list of 0 and 1, or a list of some of the facts")


def _setting_name(setting: str | None) -> str | None:
    return "_".join(setting.lower().split()) if setting else None


def faithscore_metrics(settings: Sequence[str]) -> MetricSet:
    """Returns FaithScore and the mean number of facts, over all answers and for each generation setting
    (``detailed_faithscore``...).
    """
    prefixes = ["", *(f"{setting}_" for setting in settings)]
    formulas: dict[str, Formula] = {}
    for prefix in prefixes:
        formulas[f"{prefix}faithscore"] = _mean_share(f"{prefix}share", f"{prefix}scored")
        formulas[f"{prefix}avg_facts"] = ratio(f"{prefix}facts", f"{prefix}answers")
    return MetricSet(
        name="faithscore",
        columns=tuple(prefix + column for prefix in prefixes for column in _FACT_COLUMNS),
        formulas=formulas,
        higher_is_better=dict.fromkeys(formulas, True),
        plain_numbers=frozenset(name for name in formulas if name.endswith("avg_facts")),
        at_most=tuple(
            (f"{p}{few}", f"{p}{all_}")
            for p in prefixes
            for few, all_ in (("scored", "answers"), ("verified", "facts"))
        ),
    )


def _metrics_of(columns: Sequence[str]) -> MetricSet:
    """Returns the metric set that applies to a table with the given columns."""
    ending = f"_{_FACT_COLUMNS[0]}"
    return faithscore_metrics([column.removesuffix(ending) for column in columns if column.endswith(ending)])


def _mean_share(share: str, scored: str) -> Formula:
    return ratio(share, scored, SHARE_UNIT)


def settings_of(runs: Iterable[Sequence[Facts]]) -> list[str]:
    """Returns the generation settings of several runs, in order of appearance."""
    return list(dict.fromkeys(facts.setting for run in runs for facts in run if facts.setting))


def faithscore_run(
    name: str, run: Sequence[Facts], settings: Sequence[str], resampling: Resampling | None = None
) -> Run:
    """Returns the FaithScore run of one system.

    The share of verified facts is undefined for an answer without facts. An answer without facts is included in the
    mean number of facts but not in FaithScore; ``without_facts`` is the number of such answers. ``printed`` contains
    the value of the official script, which uses a share of 0 for an answer without facts.

    Args:
        name: Name of the system.
        run: Answers of the system, together with their facts.
        settings: Generation settings of all compared systems.
        resampling: Resampling settings for the confidence intervals.
    """
    metric_set = faithscore_metrics(settings)
    width = len(_FACT_COLUMNS)
    rows = np.zeros((len(run), len(metric_set.columns)), dtype=np.int64)
    given, held = [facts.facts for facts in run], [facts.verified for facts in run]
    shares = [(2 * SHARE_UNIT * k + n) // (2 * n) if n else 0 for n, k in zip(given, held, strict=True)]
    rows[:, :width] = np.array([np.ones(len(run), np.int64), np.sign(given), given, held, shares], dtype=np.int64).T
    place = {setting: width * number for number, setting in enumerate(settings, 1)}
    for k, facts in enumerate(run):
        if facts.setting:
            start = place[facts.setting]
            rows[k, start : start + width] = rows[k, :width]
    builder = CountBuilder(metric_set.columns)
    builder.add((facts.image or f"{name} {k}" for k, facts in enumerate(run, 1)), rows)
    empty = given.count(0)
    official = sum(k / n for n, k in zip(given, held, strict=True) if n) / len(run)
    judgings = [facts.judging for facts in run]
    notes = Judging.notes(judgings)
    if empty:
        notes.append(f"{empty} answers without facts; the official script uses 0 as their share")
    return Run(
        name=name,
        signature=Signature.of(
            "faithscore",
            **Judging.fields(judgings),
            settings="+".join(settings_of([run])) or None,
            n=len(run),
            ids=digest_of(facts.image for facts in run),
            no_facts=empty,
        ),
        metric_set=metric_set,
        table=builder.table(),
        n_records=len(run),
        other_counts={"without_facts": empty},
        printed={"faithscore": official},
        notes=tuple(notes),
        resampling=resampling or Resampling(),
    )


def _score(systems: Systems) -> list[Run]:
    stems = system_names([str(source) for _, source in systems.given])
    read: dict[str, list[Facts]] = {}
    taken: set[tuple[str, str]] = set()
    for stem, (label, source) in zip(stems, systems.given, strict=True):
        system, _, setting = (label or "").partition("/")
        if label and not system:
            raise OptionError(f"expected SYSTEM/SETTING=FILE, got '{label}={source}'")
        if setting and (system, setting) in taken:
            raise OptionError(f"'{label}' appears twice")
        taken.add((system, setting))
        run = read.setdefault(system or stem, [])
        if run and not setting:
            reason = f"'{system}' has several files: name the setting of each, {system}/SETTING={source}"
            raise OptionError(reason)
        run.extend(read_facts(source, setting=setting or None, warn=systems.warn))
    settings = settings_of(read.values())
    return [faithscore_run(name, run, settings, systems.resampling) for name, run in read.items()]


BENCHMARK = Benchmark(
    name="faithscore",
    title="FaithScore",
    help="""Scores verified atomic facts. Several systems are compared with the first.

    FILEs are records with facts and verified (lists or counts) and optionally id, image_id and setting, or
    FaithScore's own atomic_facts and fact_scores. Files under one SYSTEM are one system, for example
    base/detailed=a.jsonl base/conversation=b.jsonl ours/detailed=c.jsonl; every setting gets its own columns.
    """,
    metric_set=_metrics_of,
    metric_names={"faithscore": "FaithScore", "avg_facts": "Avg. Facts"},
    dataset={"source_type": "url", "url": ["https://github.com/bcdnlp/FAITHSCORE"]},
    headline=("faithscore", "avg_facts"),
    score=_score,
    example="""
    >>> import scapo_eval
    >>> run = scapo_eval.faithscore([{"id": 1, "facts": ["A dog.", "A red sofa."], "verified": [1, 0]}])
    >>> run.values
    {'faithscore': 0.5, 'avg_facts': 2.0}
    """,
    files="facts",
    takes=("facts",),
    metavar="[SYSTEM[/SETTING]=]FILE...",
    one_process="a judge's verdicts on facts are",
    command_example=CommandExample(
        ("scapo-eval faithscore facts.jsonl",),
        {
            "facts.jsonl": """\
{"id": 1, "image_id": 3, "facts": ["There is a dog.", "It sleeps."], "verified": [1, 0]}
"""
        },
    ),
)
