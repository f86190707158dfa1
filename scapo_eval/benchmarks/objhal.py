"""Object HalBench (Rohrbach et al. 2018, Yu et al. 2024): CHAIR over detailed descriptions of 300 COCO images.

The reference has a language model list the objects of each description and looks them up in its synonym list. Here a
judge lists them (``scapo-eval judge objhal``), or, offline, a CHAIR profile reads the description itself; either way a
profile turns words into objects. Without a judge the values are CHAIR's own, to the count.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from ..base.errors import FaultList, InputError, ScapoError
from ..base.hashes import digest
from ..base.reprs import fields_in_short
from ..files.containers import OnError, Warn, open_rows
from ..files.files import STDIN, display_name
from ..files.json_text import iter_records, json_type
from ..files.records import Readable
from ..matching.vocabulary import Vocabulary
from ..readers.captions import Captions, ParsedBlock, caption_blocks, captions_of
from ..results.benchmark import Benchmark, Option
from ..results.metric import MetricSet, ratio
from ..results.results import Resampling, Run
from ..results.signature import Signature
from ..truths.oracle import PresenceOracle, Truth, TruthGiven
from .capscore import COLUMNS, SET_BOUNDS
from .chair import OBJECTS, ChairScorer, Profile, Synonyms, scored_by_profile
from .chair.profiles import ObjectColumns, word_counts
from .scoring import ScoredBlock, ScoringOptions, tally, truth_notes
from .systems import Systems

Source = Literal["auto", "judge", "matcher"]
"""Who says which words of a description are objects; ``auto``: the judge, where the file holds its lists."""

METRICS = MetricSet(
    name="objhal",
    columns=(*COLUMNS, "words", "object_captions"),
    formulas={
        "chair_s": ratio("hallucinated_captions", "captions"),
        "chair_s_refined": ratio("hallucinated_captions", "object_captions"),
        "chair_i": ratio("hallucinated_mentions", "mentions"),
        "recall": ratio("covered", "truth"),
        "len": ratio("words", "captions"),
    },
    higher_is_better={"chair_s": False, "chair_s_refined": False, "chair_i": False, "recall": True},
    plain_numbers=frozenset({"len"}),
    at_most=(*SET_BOUNDS, ("object_captions", "captions"), ("hallucinated_captions", "object_captions")),
)
"""Response level: ``chair_s`` over all descriptions, ``chair_s_refined`` over those that name an object at all.
Mention level: ``chair_i``; ``recall`` counts different objects."""


@dataclass(frozen=True)
class ObjHalScorer(ChairScorer):
    """Counts as CHAIR does, and the captions that name an object."""

    __repr__ = fields_in_short

    @property
    def columns(self) -> tuple[str, ...]:
        """See :class:`~scapo_eval.benchmarks.scoring.Scorer`."""
        return METRICS.columns

    def count(self, captions: Captions, rows: list[NDArray[np.int64]]) -> ScoredBlock:
        """See :class:`~scapo_eval.benchmarks.scoring.Scorer`."""
        found = super().count(captions, rows)
        named = found.counts[:, [COLUMNS.index("mentions")]] > 0
        return ScoredBlock(captions, np.hstack([found.counts, named]), found.mentioned, found.evidence)

    def records(self, block: ScoredBlock) -> Iterator[dict[str, Any]]:
        """CHAIR's evidence, and the judge's own list where there is one."""
        for record in super().records(block):
            listed = self.profile.lists[record["caption"]] if isinstance(self.profile, Listed) else None
            yield record if listed is None else {**record, "extracted": list(listed)}


class Listed:
    """A profile that reads a judge's list in place of the caption: each listed name counts an object once.

    Args:
        profile: turns a listed name into objects.
        lists: caption -> the judge's list.
        judge: name of the judge, for the signature.
        prompt: hash of its prompt.
    """

    def __init__(self, profile: Profile, lists: Mapping[str, Sequence[str]], judge: str, prompt: str | None) -> None:
        self.name = profile.name
        self.vocabulary: Vocabulary = profile.vocabulary
        self.fields: Mapping[str, Any] = {**profile.fields, "objects": "judge", "judge": judge, "prompt": prompt}
        self.lists = lists
        self._profile = profile

    def find_batch(self, texts: Sequence[str]) -> ObjectColumns:
        """See :class:`~scapo_eval.benchmarks.chair.Profile`."""
        lists = [list(dict.fromkeys(_plain(name) for name in self.lists[text])) for text in texts]
        ends = [0, *accumulate(map(len, lists))]
        found = self._profile.find_batch([name for names in lists for name in names])
        named = [list(dict.fromkeys(found.label_id[found.row(k)].tolist())) for k in range(ends[-1])]
        return ObjectColumns.of_words(
            [
                ([label for labels in named[begin:end] for label in labels], words)
                for begin, end, words in zip(ends, ends[1:], word_counts(texts).tolist(), strict=False)
            ]
        )


_ARTICLES = ("a ", "an ", "the ")


def _plain(name: str) -> str:
    name = name.casefold()
    return next((name.removeprefix(article) for article in _ARTICLES if name.startswith(article)), name)


@dataclass(frozen=True, slots=True)
class Judged:
    """What a judge said of a file of captions.

    Attributes:
        captions: those whose list could be read.
        lists: caption -> the judge's list.
        judge: its name.
        prompt: hash of its prompt, None where the file does not tell.
        unread: captions whose list could not be read.
        unfinished: whether unfinished sentences were dropped before.
    """

    captions: Captions
    lists: Mapping[str, Sequence[str]]
    judge: str
    prompt: str | None
    unread: int
    unfinished: bool

    __repr__ = fields_in_short


def holds_lists(path: Readable) -> bool:
    """Whether a file's first record has a judge's list (``extracted``)."""
    if str(path) == STDIN:
        return False
    try:
        return "extracted" in open_rows(path, warn=lambda text: None).first
    except ScapoError:  # the readers of captions say it better
        return False


def read_judged(path: Readable, *, warn: Warn, on_error: OnError | None = None) -> Judged:
    """What ``scapo-eval judge objhal`` wrote.

    Args:
        path: records with ``image_id``, ``caption`` and ``extracted`` (a list of names, or null).
        warn: told of damage that does not prevent reading.
        on_error: called with each faulty record; without it they are raised together.

    Raises:
        InputError: nothing could be read, or several judges.
        InputErrors: faulty records, two different lists of one caption.
    """
    name = display_name(path)
    faults = FaultList(on_error)
    rows: list[tuple[int, Mapping[str, Any]]] = []
    lists: dict[str, Sequence[str]] = {}
    facts: dict[tuple[str, str | None, bool], int] = {}
    unread = 0
    for line, record in open_rows(path, on_error=on_error, warn=warn):
        listed = record.get("extracted")
        if "extracted" not in record:
            faults.add(InputError(f"missing key 'extracted' (found: {', '.join(record)})", path=name, line=line))
        elif listed is None:
            unread += 1
        elif not isinstance(listed, list) or not all(isinstance(each, str) for each in listed):
            reason = f"'extracted' must be a list of strings or null, not {json_type(listed)}"
            faults.add(InputError(reason, path=name, line=line))
        elif list(lists.setdefault(str(record.get("caption")), listed)) != listed:
            faults.add(InputError("this caption has another list than before", path=name, line=line))
        else:
            rows.append((line, record))
            prompt = record.get("judge_prompt")
            told = (str(record.get("judge_model") or "unnamed"), prompt, record.get("unfinished") == "dropped")
            facts.setdefault(told, line)
    captions = captions_of(name, rows, faults)
    faults.raise_if_any()
    if not rows:
        raise InputError(f"none of the {unread:,} lists could be read by the judge's verb; ask again", path=name)
    if len(facts) > 1:
        several = " and ".join(
            f"{judge} (prompt {prompt or 'unknown'}{', unfinished dropped' if dropped else ''})"
            for judge, prompt, dropped in facts
        )
        raise InputError(f"lists that were made in several ways: {several}", path=name, line=list(facts.values())[1])
    [(judge, prompt, unfinished)] = facts
    return Judged(captions, lists, judge, prompt, unread, unfinished)


def score_objhal(
    path: Readable,
    profile: Profile,
    oracle: PresenceOracle,
    options: ScoringOptions | None = None,
    *,
    source: Source = "auto",
    name: str | None = None,
    resampling: Resampling | None = None,
    on_block: Callable[[ObjHalScorer, ScoredBlock], None] | None = None,
    on_progress: Callable[[int], None] | None = None,
) -> Run:
    """Object HalBench's values of one file.

    Args:
        path: captions in any layout, or what ``scapo-eval judge objhal`` wrote of them.
        profile: turns captions, or the names that a judge listed, into objects.
        oracle: the truth.
        options: see :class:`~scapo_eval.benchmarks.scoring.ScoringOptions`.
        source: who says which words are objects.
        name: of the system; by default the file's display name.
        resampling: of the intervals.
        on_block: called with the scorer and each scored block in the order of the file.
        on_progress: called with the number of raw bytes of each scored block.

    Raises:
        InputErrors, InputError: faults by file and line.
    """
    options = options or ScoringOptions()
    damage: list[str] = []
    skipped: list[InputError] = []
    judged: Judged | None = None
    if source == "judge" or (source == "auto" and holds_lists(path)):
        if options.drop_unfinished:
            raise InputError("the judge has read the captions already; give --drop-unfinished to judge objhal")
        judged = read_judged(path, warn=damage.append, on_error=skipped.append if options.skip_bad else None)
        profile = Listed(profile, judged.lists, judged.judge, judged.prompt)
    truth = Truth.of(oracle, profile.vocabulary, any_fingerprint=options.any_fingerprint)
    scorer = ObjHalScorer((truth,), options.on_unknown_image == "skip", profile=profile)
    found = tally(
        (lambda on_error: caption_blocks(path, on_error=on_error, warn=damage.append))
        if judged is None
        else (lambda on_error: _judged_blocks(judged, display_name(path), skipped, on_error)),
        scorer,
        options,
        source=display_name(path),
        on_block=None if on_block is None else lambda block: on_block(scorer, block),
        on_progress=on_progress,
    )
    unread = judged.unread if judged else 0
    notes = [f"{unread:,} captions left out: what the judge said of them could not be read"] if unread else []
    if judged is None:
        notes.append("objects found by the matcher; published values have a language model list them (judge objhal)")
    return Run(
        name=name or display_name(path),
        signature=Signature.of(
            "objhal",
            profile=profile.name,
            **({"objects": "matcher"} if judged is None else {}),
            **profile.fields,
            oracle=oracle.fingerprint,
            world=oracle.world,
            **({"unfinished": "dropped"} if judged and judged.unfinished else found.decisive),
            n=found.n_records,
            ids=digest(found.table.image_ids),
            skip=found.left_out,
            unrated=unread if judged else None,
        ),
        metric_set=METRICS,
        table=found.table,
        n_records=found.n_records,
        other_counts={**found.other_counts, **({"unread": unread} if judged else {})},
        notes=(*damage, *notes, *truth_notes(truth, found.mentioned)),
        resampling=resampling or Resampling(),
    )


def _judged_blocks(
    judged: Judged, name: str, skipped: Sequence[InputError], on_error: OnError | None
) -> Iterator[ParsedBlock]:
    """The captions whose list was read, after the faulty records that were passed over."""
    for error in skipped:
        if on_error is not None:
            on_error(error)
    yield ParsedBlock(name, judged.captions)


_PICTURE = 1 << 10
"""Characters from which on the value of ``image`` is a picture in base64, not a name."""


def _prompts(path: str, first: Mapping[str, Any]) -> Iterator[tuple[int, Mapping[str, Any]]] | None:
    """The requests of the benchmark's file, which holds the pictures themselves; they are found by COCO's id."""
    if not {"image_id", "question", "image"} <= set(first) or len(str(first["image"])) < _PICTURE:
        return None
    return (
        (
            line,
            {
                "id": f"objhal/{record['image_id']}",
                "question": record["question"],
                "image": str(record["image_id"]),
                "benchmark": "objhal",
            },
        )
        for line, record in iter_records(path)
    )


def _score(
    systems: Systems,
    *,
    truth: TruthGiven,
    objects: Source = "auto",
    profile: str = "native",
    synonyms: Synonyms | str | Path | None = None,
    vocabulary: Vocabulary | str | Path | None = None,
    per_caption: str | None = None,
    scoring: ScoringOptions | None = None,
) -> list[Run]:
    return scored_by_profile(
        partial(score_objhal, source=objects),
        systems,
        truth=truth,
        profile=profile,
        synonyms=synonyms,
        vocabulary=vocabulary,
        per_caption=per_caption,
        scoring=scoring,
    )


BENCHMARK = Benchmark(
    name="objhal",
    title="Object HalBench",
    help="""Scores Object HalBench: CHAIR per response and per mention, and recall; several files are compared.

    CAPTIONS are what scapo-eval judge objhal wrote, or captions in any layout, whose objects the profile then finds.
    The benchmark's synonym list is synonyms_refine.txt of its repository (--profile reference --synonyms FILE).
    """,
    metric_set=lambda columns: METRICS,
    meanings={
        "chair_s": "captions with a hallucinated mention",
        "chair_s_refined": "captions with a hallucinated mention, among those that name an object",
        "chair_i": "mentions that are hallucinated",
        "recall": "present objects that are mentioned",
        "len": "words per caption",
    },
    headline=("chair_s", "chair_s_refined", "chair_i", "recall"),
    score=_score,
    files="captions",
    captions=True,
    scoring=True,
    options={
        "objects": Option(
            choices=get_args(Source),
            help="Who says which words are objects: the judge (judge objhal), or the profile; auto: the judge where it "
            "did.",
        ),
        **OBJECTS,
    },
    one_process="its 300 descriptions, and a judge's lists of their objects, are",
    prompts=_prompts,
)
