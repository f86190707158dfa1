"""Hal. Rate and Cover Rate for each kind of claim. The kinds are presence (as in the paper), counts, attributes,
relations and texts.

A claim, identified by its content (:attr:`~scapo_eval.claiming.claim.Claim.key`), counts once per caption. If only
presence is counted, the values equal those of ``capscore``. Claims that the ground truth cannot decide are counted
separately.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..base.errors import OptionError
from ..base.hashes import digest
from ..base.reprs import fields_in_short
from ..base.types import State
from ..base.verdicts import Verdict
from ..claiming.claim import KINDS, Claim, ClaimKind, kinds_of
from ..claiming.cues import shipped_claim_cues
from ..claiming.extract import ClaimExtractor
from ..files.files import display_name
from ..files.records import Given, Readable, Records
from ..files.source import Source
from ..matching.matcher import AliasMatcher
from ..matching.uses import Reading, left_out, reading_fields, unjudged
from ..matching.vocabulary import Vocabulary, VocabularyGiven
from ..readers.captions import Captions, caption_blocks
from ..results.benchmark import Benchmark, CommandExample, Option
from ..results.metric import Formula, MetricSet, ratio
from ..results.results import Resampling, Run
from ..results.signature import Signature
from ..truths.claim_oracle import ClaimOracle, fact_of, presence_in
from ..truths.oracle import PresenceOracle, Truth, TruthGiven
from ..truths.scenes import Scenes
from .capscore import cap_score_of, caption_counts
from .scoring import ScoredBlock, Scorer, ScoringOptions, Tally, tally, truth_notes
from .systems import Systems, sources_of

PARTS = ("generated", "hallucinated", "covered", "truth", "unknown")
"""Counts per caption and kind: known claims; false claims; facts that are claimed; facts; undecided claims."""


def claim_metrics(kinds: Sequence[ClaimKind]) -> MetricSet:
    """Returns the metrics for the given kinds of claims, with one set for all kinds together and one for each kind."""
    suffixes = ["", *(f"_{kind}" for kind in kinds)]
    columns = ("captions", *(f"{part}{suffix}" for suffix in suffixes for part in PARTS))
    formulas: dict[str, Formula] = {}
    for suffix in suffixes:
        formulas[f"hal_rate{suffix}"] = ratio(f"hallucinated{suffix}", f"generated{suffix}")
        formulas[f"cover_rate{suffix}"] = ratio(f"covered{suffix}", f"truth{suffix}")
        if not suffix:
            formulas["cap_score"] = cap_score_of()
    better = {name: not name.startswith("hal") for name in formulas}
    at_most = tuple(
        bound
        for suffix in suffixes
        for bound in ((f"hallucinated{suffix}", f"generated{suffix}"), (f"covered{suffix}", f"truth{suffix}"))
    )
    adds_up = tuple((tuple(f"{part}_{kind}" for kind in kinds), part) for part in PARTS)
    return MetricSet("claimscore", columns, formulas, better, at_most=at_most, adds_up=adds_up)


def _kinds_in(columns: Sequence[str]) -> tuple[ClaimKind, ...]:
    return tuple(kind for kind in KINDS if f"generated_{kind}" in columns)


@dataclass(frozen=True)
class ClaimScorer(Scorer):
    """Scorer that counts claims by kind.

    Attributes:
        scenes: Ground truths for claims other than presence, in the order of lookup.
        kinds: Kinds of claims to count.
        claims: Reading, which selects the mentions and claims to count.
    """

    scenes: tuple[Scenes, ...] = ()
    kinds: tuple[ClaimKind, ...] = KINDS
    claims: Reading = "all"

    __repr__ = fields_in_short

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the counts; see :class:`~scapo_eval.benchmarks.scoring.Scorer`."""
        return claim_metrics(self.kinds).columns

    @cached_property
    def matcher(self) -> AliasMatcher:
        """Matcher for the labels of presence claims."""
        return AliasMatcher(self.truths[0].vocabulary, self.claims)

    @cached_property
    def extractor(self) -> ClaimExtractor:
        """Extractor of claims."""
        return ClaimExtractor(self.truths[0].vocabulary, self.kinds, self.claims)

    @cached_property
    def oracle(self) -> ClaimOracle:
        """Oracle that decides which claims are true."""
        truth = self.truths[0]
        return ClaimOracle(truth.vocabulary, truth.oracle, self.scenes)

    def count(self, captions: Captions, rows: list[NDArray[np.int64]]) -> ScoredBlock:
        """Implements ``count``; see :class:`~scapo_eval.benchmarks.scoring.Scorer`. The evidence contains the claims
        and their verdicts.
        """
        mentions = self.matcher.find_batch(captions.captions)
        present = caption_counts(mentions, rows[0], self.truths[0])[:, [1, 2, 3, 4, 8]]
        omitted = left_out(self.claims)
        of_captions = [
            [c for c in of_one if c.use not in omitted] for of_one in self.extractor.find_batch(captions.captions)
        ]
        states = self.oracle.states(captions.image_ids, of_captions)
        counts = np.zeros((len(of_captions), len(self.kinds), len(PARTS)), dtype=np.int64)
        for k, (image, claims, verdicts) in enumerate(zip(captions.image_ids, of_captions, states, strict=True)):
            for at, kind in enumerate(self.kinds):
                if kind == "presence":
                    counts[k, at] = present[k] + self._of_scenes(int(rows[0][k]), claims, verdicts)
                else:
                    counts[k, at] = self._counts(image, kind, claims, verdicts)
        joined = counts.sum(axis=1)
        by_kind = counts.reshape(len(of_captions), len(self.kinds) * len(PARTS))
        row = np.hstack([np.ones((len(of_captions), 1), dtype=np.int64), joined, by_kind])
        mentioned = np.bincount(mentions.label_id, minlength=len(self.truths[0].vocabulary.labels))
        named = mentions.caption, mentions.label_id
        missing = unjudged(self.claims, captions.captions)
        return ScoredBlock(captions, row, mentioned, (of_captions, states), claims=named, unjudged=missing)

    def _of_scenes(self, row: int, claims: Sequence[Claim], states: Sequence[State]) -> NDArray[np.int64]:
        """Returns what the claims of presence add to the counts that the scenes decide, but not the ground truth of
        presence. They are no facts, so they do not affect the covered ones.
        """
        truth = self.truths[0]
        decided = {
            claim.label: state
            for claim, state in zip(claims, states, strict=True)
            if claim.kind == "presence"
            and state >= 0
            and truth.states[row, truth.vocabulary.label_ids[claim.label]] < 0
        }
        return np.array([len(decided), list(decided.values()).count(0), 0, 0, -len(decided)])

    def _counts(self, image: str, kind: ClaimKind, claims: Sequence[Claim], states: Sequence[State]) -> list[int]:
        verdicts: dict[tuple[str, ...], State] = {}
        said = set[tuple[str, ...]]()
        for claim, state in zip(claims, states, strict=True):
            if claim.kind == kind:
                if verdicts.get(claim.key, -1) < 0:
                    verdicts[claim.key] = state
                if state == 1:
                    said.add(fact_of(claim))
        values = list(verdicts.values())
        facts = self.oracle.facts(image, kind)
        known = len(values) - values.count(-1)
        return [known, values.count(0), len(facts & said), len(facts), values.count(-1)]

    def records(self, block: ScoredBlock) -> Iterator[dict[str, Any]]:
        """Yields the evidence for each caption: claims with spans and verdicts, and counts."""
        found, states = block.evidence
        for k, (claims, verdicts) in enumerate(zip(found, states, strict=True)):
            image = block.captions.image_ids[k]
            yield {
                **block.captions.place(k),
                "caption": block.captions.captions[k],
                "claims": [
                    {
                        "kind": claim.kind,
                        "start": claim.start,
                        "end": claim.end,
                        "label": claim.label,
                        "value": claim.value,
                        "other": claim.other,
                        "use": claim.use,
                        "verdict": Verdict(state).word,
                        "evidence": self.oracle.evidence(image, claim),
                    }
                    for claim, state in zip(claims, verdicts, strict=True)
                ],
                "counts": dict(zip(self.columns, block.counts[k].tolist(), strict=True)),
            }


def score_claims(
    path: Readable,
    truth: Truth,
    scenes: Sequence[Scenes] = (),
    kinds: Sequence[ClaimKind] = KINDS,
    options: ScoringOptions | None = None,
    *,
    name: str | None = None,
    resampling: Resampling | None = None,
    on_block: Callable[[ClaimScorer, ScoredBlock], None] | None = None,
    on_progress: Callable[[int], None] | None = None,
) -> Run:
    """Scores the claims of a caption file.

    Args:
        path: Captions in any supported layout, or records in memory.
        truth: Ground truth for claims of presence.
        scenes: Ground truths for all other kinds of claims, in the order of lookup.
        kinds: Kinds of claims to count.
        options: Settings; see :class:`~scapo_eval.benchmarks.scoring.ScoringOptions`.
        name: Name of the system.
        resampling: Resampling settings for the confidence intervals.
        on_block: Callback that receives the scorer and each scored block.
        on_progress: Callback that receives the number of raw bytes of each block.

    Raises:
        InputErrors, InputError: If the input is invalid. The error lists the faults by file and line.
    """
    options = options or ScoringOptions()
    source, file = display_name(path), path if isinstance(path, Records) else Source.of(path)
    skip = options.on_unknown_image == "skip"
    scorer = ClaimScorer((truth,), skip, tuple(scenes), tuple(kinds), options.claims)
    damage = list[str]()
    sums = tally(
        lambda on_error: caption_blocks(file, on_error=on_error, warn=damage.append),
        scorer,
        options,
        source=source,
        given=file,
        on_block=None if on_block is None else lambda block: on_block(scorer, block),
        on_progress=on_progress,
    )
    beyond = tuple(kinds) != ("presence",)
    answered = any(each.answers_presence for each in scenes)  # so that labels without ground truth may count
    signature = Signature.of(
        "claimscore",
        vocab=truth.vocabulary.identity,
        oracle=truth.oracle.fingerprint,
        world=truth.oracle.world,
        kinds="+".join(kinds),
        scenes="+".join(each.fingerprint for each in scenes) or None,
        cues=shipped_claim_cues().fingerprint if beyond else None,
        **reading_fields(options.claims),
        **truth.signature_fields,
        **sums.decisive,
        n=sums.n_records,
        ids=digest(sums.table.image_ids),
        skip=sums.left_out,
        bad_files=len(sums.bad_files) or None,
    )
    return Run(
        name=name or source,
        signature=signature,
        metric_set=claim_metrics(kinds),
        table=sums.table,
        n_records=sums.n_records,
        other_counts=sums.other_counts,
        account=sums.account,
        notes=(
            *damage,
            *sums.notes,
            *(note for note in truth_notes(truth, sums.mentioned) if not (answered and note == truth.without_truth)),
            *scorer.oracle.notes,
            *_undecided(sums, kinds, bool(scenes)),
        ),
        resampling=resampling or Resampling(),
    )


def _undecided(sums: Tally, kinds: Sequence[ClaimKind], has_scenes: bool) -> Iterator[str]:
    """Yields one sentence about claims that the ground truth cannot decide, if there are any."""
    counts = sums.table.counts()
    shares = [
        f"{counts[f'unknown_{kind}']:,} of {counts[f'unknown_{kind}'] + counts[f'generated_{kind}']:,} of {kind}"
        for kind in kinds
        if counts[f"unknown_{kind}"]
    ]
    if shares:
        remedy = "" if has_scenes else "; specify a ground truth beyond presence with --scenes"
        yield f"undecided claims, which are not counted: {', '.join(shares)}{remedy}"


def _score(
    systems: Systems,
    *,
    truth: TruthGiven | None = None,
    scenes: Given | Sequence[str | os.PathLike[str]] = (),
    vocabulary: VocabularyGiven = "coco80",
    kinds: str = ",".join(KINDS),
    per_caption: str | None = None,
    scoring: ScoringOptions | None = None,
) -> list[Run]:
    labels, options = Vocabulary.of(vocabulary), scoring or ScoringOptions()
    known = [Scenes.load(source, labels) for source in sources_of(scenes)]
    if truth is None and not known:
        raise OptionError("missing ground truth: use --truth, --scenes, or both")
    if not known and "presence" not in kinds_of(kinds):
        raise OptionError(f"--kinds {kinds} requires --scenes: COCO's instances or a scene graph")
    presence = presence_in(known, labels) if truth is None else PresenceOracle.of(truth)
    present = Truth.of(presence, labels, any_fingerprint=options.any_fingerprint)
    score = partial(score_claims, truth=present, scenes=known, kinds=kinds_of(kinds), options=options)
    return systems.each(score, per_caption)


BENCHMARK = Benchmark(
    name="claimscore",
    title="Claims",
    help="""Scores claims of presence, count, attribute, relation and text. Several files are compared with the first.

    CAPTIONS are files that scapo-eval score reads. --scenes is the ground truth: COCO's instances or a scene graph
    (docs/claims.md). --truth is the ground truth of presence, if it is in another file.
    """,
    headline=("hal_rate", "cover_rate", "cap_score"),
    metric_set=lambda columns: claim_metrics(_kinds_in(columns)),
    metric_names={
        f"{rate}_{kind}": f"{title}, {kind}"
        for kind in KINDS
        for rate, title in (("hal_rate", "Hal. Rate"), ("cover_rate", "Cover Rate"))
    },
    meanings={
        "hal_rate": "known claims that are false",
        "cover_rate": "known facts that are claimed",
        "cap_score": "harmonic mean of 1 - hal_rate and cover_rate",
        **{f"hal_rate_{kind}": f"known claims of {kind} that are false" for kind in KINDS},
        **{f"cover_rate_{kind}": f"known facts of {kind} that are claimed" for kind in KINDS},
    },
    frontiers=(("hal_rate", "cover_rate", "Hal. Rate and Cover Rate of claims"),),
    score=_score,
    example="""
    >>> import scapo_eval
    >>> scene = {"image_id": 7, "objects": [{"name": "dog", "attributes": ["brown"]}], "complete": ["dog", "cat"]}
    >>> run = scapo_eval.claims([{"image_id": 7, "caption": "A brown dog and a cat."}], scenes=[scene])
    >>> run.values["hal_rate_presence"], run.values["hal_rate_attribute"]
    (0.5, 0.0)
    """,
    files="captions",
    takes=("captions",),
    captions=True,
    scoring=True,
    options={
        "truth": Option(file="read", metavar="FILE", help="Ground truth of presence.  [default: from --scenes]"),
        "scenes": Option(
            file="read",
            repeated=True,
            metavar="FILE",
            help="Ground truth: COCO, Visual Genome, scene graphs, references or claim matrices, in order.",
        ),
        "vocabulary": Option(file="read", metavar="NAME|FILE", help="Labels and their aliases."),
        "kinds": Option(metavar="KIND,...", help="Kinds of claims that count."),
        "per_caption": Option(file="written", metavar="FILE", help="Write every caption with its claims and verdicts."),
    },
    command_example=CommandExample(
        ("scapo-eval claims captions.jsonl --scenes scenes.jsonl",),
        {
            "captions.jsonl": """\
{"image_id": 1, "caption": "Two dogs lie on a red couch."}
""",
            "scenes.jsonl": """\
{"image_id": 1, "objects": [{"name": "dog"}, {"name": "couch", "attributes": ["red"]}]}
""",
        },
    ),
)
