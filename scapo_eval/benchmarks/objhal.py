"""Object HalBench (Rohrbach et al. 2018, Yu et al. 2024): CHAIR on detailed descriptions of 300 COCO images.

In the reference implementation, a language model lists the objects in each description, and a synonym list maps them to
COCO's objects. In this implementation, either a judge lists the objects (``scapo-eval judge objhal``), or a CHAIR
profile finds them in the description without a model. With or without a judge, a profile converts words to objects. If
no judge is used, all counts equal those of CHAIR. With ``names="runs"``, a listed name is interpreted as in the
reference implementation; see :class:`NameRuns`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import accumulate, groupby
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from ..base.errors import FaultList, InputError, check_choice
from ..base.hashes import digest
from ..base.nltk_tools import lemma, tagger
from ..base.reprs import fields_in_short
from ..base.verdicts import ABSENT, PRESENT
from ..files.containers import ErrorHandler, Warn, open_rows
from ..files.files import display_name
from ..files.json_text import iter_records, json_type
from ..files.records import Readable, Records
from ..files.source import Source as InputSource
from ..matching.vocabulary import Vocabulary, VocabularyGiven
from ..readers.captions import Captions, ParsedBlock, caption_blocks, captions_of
from ..readers.formats import recognize_file
from ..readers.kinds import KINDS
from ..results.benchmark import Benchmark, CommandExample, Option
from ..results.metric import MetricSet, ratio
from ..results.results import Resampling, Run
from ..results.signature import Signature
from ..truths.oracle import PresenceOracle, Truth, TruthGiven
from .capscore import COLUMNS, SET_BOUNDS, SET_PARTS
from .chair import OBJECTS, ChairScorer, Opera, Profile, Synonyms, scored_by_profile
from .chair.profiles import ObjectColumns, word_counts
from .chair.synonyms import DOUBLE_WORDS
from .chair.tokens import sentence_tokens
from .judged import Judging
from .scoring import ScoredBlock, ScoringOptions, tally, truth_notes
from .systems import Systems

ObjectSource = Literal["auto", "judge", "matcher"]
"""Source of the object words in a description. ``auto`` selects the judge if the file contains its lists."""

NameRule = Literal["words", "runs"]
"""Conversion of listed names to objects: as the profile reads a caption (``words``), or like the reference
(``runs``).
"""

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
    adds_up=SET_PARTS,
)
"""Metrics of Object HalBench. ``chair_s`` refers to all descriptions, and ``chair_s_refined`` to descriptions that
mention at least one object. ``chair_i`` counts mentions, and ``recall`` counts distinct objects.
"""


@dataclass(frozen=True)
class ObjHalScorer(ChairScorer):
    """Scorer that computes the counts of CHAIR and the number of captions that mention an object."""

    __repr__ = fields_in_short

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the counts; see :class:`~scapo_eval.benchmarks.scoring.Scorer`."""
        return METRICS.columns

    def count(self, captions: Captions, rows: list[NDArray[np.int64]]) -> ScoredBlock:
        """Implements ``count``; see :class:`~scapo_eval.benchmarks.scoring.Scorer`."""
        block = super().count(captions, rows)
        block.counts[:, METRICS.columns.index("words")] = [len(text.strip().split(" ")) for text in captions.captions]
        named = block.counts[:, [COLUMNS.index("mentions")]] > 0
        return replace(block, counts=np.hstack([block.counts, named]))

    def records(self, block: ScoredBlock) -> Iterator[dict[str, Any]]:
        """Yields CHAIR's evidence for each caption, together with the judge's list if there is one."""
        for record in super().records(block):
            listed = self.profile.lists[record["caption"]] if isinstance(self.profile, Listed) else None
            yield record if listed is None else {**record, "extracted": list(listed)}


class NameRuns:
    """Reader that converts listed names to objects according to the rules of ``eval_gpt_obj_halbench.py``.

    The objects in a name are those pairs of adjacent words that the synonym list contains. A name without such a pair
    is divided into runs of consecutive nouns, and each run denotes one object or none (so ``person hand`` is not a
    person). Repeated objects are removed if their lemmatized words are equal, so "man" and "woman" count as two
    mentions of a person. The official script tags and lemmatizes with spaCy's ``en_core_web_trf``, whereas this class
    uses NLTK.

    Args:
        synonyms: Table of words for each object. The official script uses ``synonyms_refine.txt``.
    """

    def __init__(self, synonyms: Synonyms) -> None:
        ids = synonyms.vocabulary.label_ids
        self._object = {word.strip(): ids[node] for word, node in synonyms.words.items()}
        self._pair = {
            **{words: words for words in (*self._object, "home plate", "train track") if " " in words},
            **{words: word for words, word in DOUBLE_WORDS.items() if words != word},
        }

    def objects(self, names: Iterable[str]) -> list[int]:
        """Returns the label ids of the listed names, in order."""
        return self.labels(dict.fromkeys(word for name in names for word in self.words(name)))

    def labels(self, words: Iterable[str]) -> list[int]:
        """Returns the label ids of the words that name objects. If a name contains "toilet", the word "seat" in the
        same name is not an object.
        """
        listed = list(words)
        toilet = "toilet" in listed
        return [self._object[word] for word in listed if word in self._object and not (toilet and word == "seat")]

    def words(self, name: str) -> list[str]:
        """Returns the lemmas of those word pairs in a name that are objects. If there are no such pairs, the lemmas of
        the runs of consecutive nouns in the name are returned.
        """
        tagged = tagger().tag(sentence_tokens(f"a {name}".lower()))
        nouns = [tag.startswith("NN") for _, tag in tagged]
        lemmas = [lemma(word) for word, _ in tagged]
        return self._pairs(lemmas) or [
            " ".join(word for word, _ in run)
            for noun, run in groupby(zip(lemmas, nouns, strict=True), key=lambda pair: pair[1])
            if noun
        ]

    def _pairs(self, lemmas: Sequence[str]) -> list[str]:
        pairs: list[str] = []
        place = 0
        while place < len(lemmas):
            pair = self._pair.get(" ".join(lemmas[place : place + 2]))
            pairs += [pair] if pair else []
            place += 2 if pair else 1
        return pairs


class Listed:
    """Profile that reads the objects from a judge's list instead of from the caption.

    Args:
        profile: Profile that converts a listed name to objects.
        lists: Caption -> names that the judge listed.
        judging: The judge and the judge's settings, for the signature.
        names: ``words`` to count an object once per listed name, or ``runs`` (see :class:`NameRuns`).

    Raises:
        InputError: If ``runs`` is combined with a profile other than ``opera``, because ``runs`` requires the tagger
            and the synonyms of ``opera``.
    """

    def __init__(
        self,
        profile: Profile,
        lists: Mapping[str, Sequence[str]],
        judging: Judging,
        names: NameRule = "words",
    ) -> None:
        check_choice("names", names, get_args(NameRule))
        if names == "runs" and not isinstance(profile, Opera):
            raise InputError("the name rule 'runs' needs the profile 'opera' (its tagger and its synonyms)")
        self.name = profile.name
        self.vocabulary: Vocabulary = profile.vocabulary
        rule = {"names": names} if names != "words" else {}
        self.fields: Mapping[str, Any] = {
            **profile.fields,
            "objects": "judge",
            **rule,
            **Judging.fields([judging]),
        }
        self.lists = lists
        self._profile = profile
        self._runs = NameRuns(profile.synonyms) if names == "runs" and isinstance(profile, Opera) else None

    def find_batch(self, texts: Sequence[str]) -> ObjectColumns:
        """Implements ``find_batch``; see :class:`~scapo_eval.benchmarks.chair.Profile`."""
        lists = [list(dict.fromkeys(_plain(name) for name in self.lists[text])) for text in texts]
        objects = self._by_words(lists) if self._runs is None else [self._runs.objects(names) for names in lists]
        return ObjectColumns.of_words(list(zip(objects, word_counts(texts).tolist(), strict=True)))

    def _by_words(self, lists: Sequence[Sequence[str]]) -> list[list[int]]:
        ends = [0, *accumulate(map(len, lists))]
        named = self._read([name for names in lists for name in names])
        return [
            [label for labels in named[begin:end] for label in labels]
            for begin, end in zip(ends, ends[1:], strict=False)
        ]

    def _read(self, names: Sequence[str]) -> list[list[int]]:
        objects = self._profile.find_batch(names)
        return [list(dict.fromkeys(objects.label_id[objects.row(k)].tolist())) for k in range(len(names))]

    def of_name(self, name: str) -> list[int]:
        """Returns the label ids for one listed name."""
        return self._read([_plain(name)])[0] if self._runs is None else self._runs.objects([_plain(name)])


def listed_objects(
    scorer: ObjHalScorer, block: ScoredBlock
) -> Iterator[tuple[str, str, list[tuple[str, bool | None]]]]:
    """Yields the verdict on every name that a judge listed, grouped by caption.

    Args:
        scorer: Scorer that contains the judge's lists.
        block: Scored block.

    Yields:
        A tuple ``(image id, caption, names)`` for each caption. ``names`` contains pairs of a name and its verdict,
        which is True if the object is present and False if it is absent. The verdict is None if the name is not an
        object of the profile, or if the ground truth does not state whether it is present.
    """
    profile, truth = scorer.profile, scorer.truths[0]
    assert isinstance(profile, Listed)
    known: dict[str, list[int]] = {}
    places = truth.oracle.find_rows(block.captions.image_ids).tolist()
    for image, caption, place in zip(block.captions.image_ids, block.captions.captions, places, strict=True):
        rows: list[tuple[str, bool | None]] = []
        for name in {_plain(name): name for name in profile.lists[caption]}.values():
            labels = known[name] if name in known else known.setdefault(name, profile.of_name(name))
            states = [] if place < 0 else [int(truth.states[place][label]) for label in labels]
            absent, present = ABSENT in states, PRESENT in states
            rows.append((name, False if absent else True if present else None))
        yield image, caption, rows


_ARTICLES = ("a ", "an ", "the ")


def _plain(name: str) -> str:
    name = name.casefold()
    return next((name.removeprefix(article) for article in _ARTICLES if name.startswith(article)), name)


@dataclass(frozen=True, slots=True)
class Judged:
    """Object lists from a judge for a file of captions.

    Attributes:
        captions: Captions whose lists could be read.
        lists: Caption -> names that the judge listed.
        judging: Judge and its settings.
        unread: Number of captions whose lists could not be read.
        unfinished: True if unfinished last sentences were removed before judging.
    """

    captions: Captions
    lists: Mapping[str, Sequence[str]]
    judging: Judging
    unread: int
    unfinished: bool

    __repr__ = fields_in_short


def read_judged(path: Readable, *, warn: Warn, on_error: ErrorHandler | None = None) -> Judged:
    """Reads a file written by ``scapo-eval judge objhal``.

    Args:
        path: Records with ``image_id``, ``caption`` and ``extracted`` (a list of names, or null).
        warn: Callback for warnings about damaged input that can still be read.
        on_error: Callback that receives each faulty record. Without a callback, all faults are raised as one error.

    Raises:
        InputError: If no list could be read, or if the lists were made by different judges or with different settings.
        InputErrors: If records are faulty, or a caption has two different lists.
    """
    name = display_name(path)
    faults = FaultList(on_error)
    rows: list[tuple[int, Mapping[str, Any]]] = []
    lists: dict[str, Sequence[str]] = {}
    ways: dict[tuple[Judging, bool], int] = {}
    unread = 0
    for line, record in open_rows(path, on_error=on_error, warn=warn):
        listed = record.get("extracted")
        if "extracted" not in record:
            faults.add(InputError(f"missing key 'extracted' (found: {', '.join(record)})", path=name, line=line))
        elif listed is None:
            unread += 1
        elif not isinstance(listed, list) or not all(isinstance(entry, str) for entry in listed):
            reason = f"'extracted' must be a list of strings or null, not {json_type(listed)}"
            faults.add(InputError(reason, path=name, line=line))
        elif list(lists.setdefault(str(record.get("caption")), listed)) != listed:
            faults.add(InputError("this caption has two different lists", path=name, line=line))
        else:
            rows.append((line, record))
            ways.setdefault((Judging.of(record), record.get("unfinished") == "dropped"), line)
    captions = captions_of(name, rows, faults)
    faults.raise_if_any()
    if not rows:
        raise InputError(f"none of the {unread:,} lists could be read; repeat the requests of judge objhal", path=name)
    if len(ways) > 1:
        several = " and ".join(
            f"{way.judge or 'unnamed'} (prompt {way.prompt or 'unknown'}{f', {way.sampling}' if way.sampling else ''}"
            f"{', unfinished dropped' if dropped else ''})"
            for way, dropped in ways
        )
        raise InputError(f"the lists were made in different ways: {several}", path=name, line=list(ways.values())[1])
    [(judging, unfinished)] = ways
    return Judged(captions, lists, judging, unread, unfinished)


def _holds_lists(path: Readable) -> bool:
    known = recognize_file(path)
    return known is not None and known.kind is KINDS["object lists"]


def score_objhal(
    path: Readable,
    profile: Profile,
    oracle: PresenceOracle,
    options: ScoringOptions | None = None,
    *,
    source: ObjectSource = "auto",
    names: NameRule = "words",
    name: str | None = None,
    resampling: Resampling | None = None,
    on_block: Callable[[ObjHalScorer, ScoredBlock], None] | None = None,
    on_progress: Callable[[int], None] | None = None,
) -> Run:
    """Computes the metrics of Object HalBench for one file.

    Args:
        path: Captions in any supported layout, or the output of ``scapo-eval judge objhal``.
        profile: Profile that converts captions or listed names to objects.
        oracle: Ground truth.
        options: Settings; see :class:`~scapo_eval.benchmarks.scoring.ScoringOptions`.
        source: ``judge`` to read the objects from a judge's lists, ``matcher`` to find them with the profile, or
            ``auto`` to choose by the content of the file.
        names: Rule that converts listed names to objects.
        name: Name of the system. The default is the name of the file.
        resampling: Resampling settings for the confidence intervals.
        on_block: Callback that receives the scorer and each scored block, in the order of the file.
        on_progress: Callback that receives the number of raw bytes of each scored block.

    Raises:
        InputErrors, InputError: If the input is invalid. The error lists the faults by file and line.
    """
    options = options or ScoringOptions()
    if not isinstance(path, Records):
        path = InputSource.of(path)
        path.hash()  # read the lists before counting
    damage: list[str] = []
    skipped: list[InputError] = []
    judged: Judged | None = None
    if source == "judge" or (source == "auto" and _holds_lists(path)):
        if options.drop_unfinished:
            raise InputError("the judge has already read the captions; use --drop-unfinished with judge objhal")
        judged = read_judged(path, warn=damage.append, on_error=skipped.append if options.skip_bad else None)
        profile = Listed(profile, judged.lists, judged.judging, names)
    elif names != "words":
        raise InputError(
            f"the name rule '{names}' requires a judge's lists, and there are none", path=display_name(path)
        )
    truth = Truth.of(oracle, profile.vocabulary, any_fingerprint=options.any_fingerprint)
    scorer = ObjHalScorer((truth,), options.on_unknown_image == "skip", profile=profile)
    sums = tally(
        (lambda on_error: caption_blocks(path, on_error=on_error, warn=damage.append))
        if judged is None
        else (lambda on_error: _judged_blocks(judged, display_name(path), skipped, on_error)),
        scorer,
        options,
        source=display_name(path),
        on_block=None if on_block is None else lambda block: on_block(scorer, block),
        on_progress=on_progress,
        given=path,
    )
    unread = judged.unread if judged else 0
    notes = [f"{unread:,} captions omitted: the judge's lists for them could not be read"] if unread else []
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
            **sums.decisive,
            **({"unfinished": "dropped"} if judged and judged.unfinished else {}),
            n=sums.n_records,
            ids=digest(sums.table.image_ids),
            skip=sums.left_out,
            unrated=unread if judged else None,
        ),
        metric_set=METRICS,
        table=sums.table,
        n_records=sums.n_records,
        other_counts={**sums.other_counts, **({"unread": unread} if judged else {})},
        account=sums.account,
        notes=(*damage, *notes, *sums.notes, *truth_notes(truth, sums.mentioned)),
        resampling=resampling or Resampling(),
    )


def _judged_blocks(
    judged: Judged, name: str, skipped: Sequence[InputError], on_error: ErrorHandler | None
) -> Iterator[ParsedBlock]:
    """Reports the faulty records that were skipped, then yields the captions whose lists could be read."""
    for error in skipped:
        if on_error is not None:
            on_error(error)
    yield ParsedBlock(name, judged.captions)


_PICTURE = 1 << 10
"""Minimum length at which the value of ``image`` is a base64 picture instead of a name."""


def _prompts(path: str, first: Mapping[str, Any]) -> Iterator[tuple[int, Mapping[str, Any]]] | None:
    """Yields the requests in the benchmark file. The file embeds the images, but the requests refer to the images by
    COCO id.
    """
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
    truth: TruthGiven | None = None,
    objects: ObjectSource = "auto",
    names: NameRule = "words",
    profile: str | None = None,
    synonyms: Synonyms | str | Path | None = None,
    vocabulary: VocabularyGiven | None = None,
    per_caption: str | None = None,
    scoring: ScoringOptions | None = None,
) -> list[Run]:
    return scored_by_profile(
        partial(score_objhal, source=objects, names=names),
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
    help="""Scores Object HalBench: CHAIR per response and per mention, and recall. Several files are compared.

    CAPTIONS are files from scapo-eval judge objhal, or captions in any layout, whose objects the profile finds.
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
    dataset={"source_type": "url", "url": ["https://github.com/RLHF-V/RLHF-V"]},
    headline=("chair_s", "chair_s_refined", "chair_i", "recall"),
    score=_score,
    example="""
    >>> import scapo_eval
    >>> rows = [{"image_id": 1, "caption": "A dog and a cat.", "extracted": ["dog", "cat"]}]
    >>> run = scapo_eval.objhal(rows, truth={1: ["dog"]})
    >>> run.values["chair_i"], run.values["recall"]
    (0.5, 1.0)
    """,
    files="captions",
    takes=("object lists", "captions"),
    captions=True,
    scoring=True,
    options={
        "objects": Option(
            choices=get_args(ObjectSource),
            help="Source of the object words: the judge (judge objhal) or the profile. auto uses the judge's lists if "
            "there are any.",
        ),
        "names": Option(
            choices=get_args(NameRule),
            help="Conversion of listed names to objects: as the profile reads captions, or in runs of nouns like the "
            "benchmark's script (--profile opera).",
        ),
        **OBJECTS,
    },
    one_process="its 300 descriptions, and a judge's lists of their objects, are",
    prompts=_prompts,
    command_example=CommandExample(("scapo-eval objhal examples/captions_baseline.jsonl --truth examples/truth.json",)),
)
