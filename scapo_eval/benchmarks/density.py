"""Density of the annotations from which rewards are computed (the paper's table of annotation density).

The objects of a response are its distinct labels, and its pieces are subsentences. A piece is supported if it contains
at least one supported label, and hallucinated if it contains at least one hallucinated label. A label that an earlier
piece already claims is counted again. The definition agrees with the values in the paper, which reports more supported
pieces (2.62) than supported objects (2.32) per response, because several pieces can contain the same object. A piece
with both kinds of labels counts as both supported and hallucinated. The number of pieces with both kinds of labels is a
separate metric, because the paper does not say how to count these pieces.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..base.errors import OptionError
from ..base.hashes import digest
from ..base.reprs import fields_in_short
from ..base.types import Rule
from ..files.containers import Warn, warn_user
from ..files.files import display_name
from ..files.records import Readable, Records
from ..files.source import Source
from ..matching.uses import reading_hashes
from ..matching.vocabulary import Vocabulary, VocabularyGiven
from ..readers.captions import Captions, caption_blocks
from ..results.benchmark import Benchmark, CommandExample, Option
from ..results.counts import CountTable
from ..results.metric import MetricSet, ratio
from ..results.results import Resampling, Run
from ..results.signature import Signature
from ..rewarding.reward import RewardColumns, RewardConfig, SubsentenceReward
from ..segmenting.segment import RULES
from ..truths.oracle import PresenceOracle, TruthGiven
from .scoring import ScoredBlock, Scorer, ScoringOptions, tally
from .systems import Systems

DEFAULT_VOCABULARY = "coco80"

COLUMNS = (
    "responses",
    "objects",
    "objects_supported",
    "objects_hallucinated",
    "subsentences",
    "subsentences_supported",
    "subsentences_hallucinated",
    "subsentences_both",
    "unknown",
    "empty",
)
"""Counts per response: 1; distinct known labels; present labels; absent labels; pieces that are not silent; pieces with
a present label; pieces with an absent label; pieces with both; distinct labels with unknown cells; 1 if the text is
empty.
"""


def density_metrics() -> MetricSet:
    """Returns the metric set, in which every metric is a mean per response."""
    shown = COLUMNS[1:8]
    formulas = {name: ratio(name, "responses") for name in shown}
    better = {name: name.endswith("supported") for name in shown if name.endswith(("supported", "hallucinated"))}
    bounds = tuple((name, name.split("_")[0]) for name in shown if "_" in name)
    return MetricSet("density", COLUMNS, formulas, better, frozenset(shown), bounds)


def density_counts(columns: RewardColumns) -> NDArray[np.int64]:
    """Returns the counts of each response.

    Args:
        columns: Rewards of n responses (at the level ``subsentence``).

    Returns:
        (n, 10) int64 counts in the order of COLUMNS.
    """
    n = len(columns)
    owner = np.repeat(np.arange(n), np.diff(columns.indptr))
    supported, hallucinated = columns.new + columns.rep > 0, columns.hal > 0

    def pieces(chosen: NDArray[np.bool_]) -> NDArray[np.int64]:
        return np.bincount(owner[chosen], minlength=n)

    counts = [
        np.ones(n, dtype=np.int64),
        columns.generated,
        columns.covered,
        columns.hallucinated,
        pieces(~columns.silent),
        pieces(supported),
        pieces(hallucinated),
        pieces(supported & hallucinated),
        columns.unknown,
        np.array([not text for text in columns.responses], dtype=np.int64),
    ]
    return np.stack(counts, axis=1).astype(np.int64)


@dataclass(frozen=True)
class DensityScorer(Scorer):
    """Scorer that applies several rewards to the same responses and writes the counts of all rewards in one row.

    Attributes:
        rewards: Rewards, one for each combination of annotation and segmentation rule.
    """

    rewards: tuple[SubsentenceReward, ...] = field(kw_only=True)

    __repr__ = fields_in_short

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the counts; see :class:`~scapo_eval.benchmarks.scoring.Scorer`."""
        return COLUMNS * len(self.rewards)

    def count(self, captions: Captions, rows: list[NDArray[np.int64]]) -> ScoredBlock:
        """Implements ``count``; see :class:`~scapo_eval.benchmarks.scoring.Scorer`."""
        batches = [reward.batch(captions.image_ids, captions.captions) for reward in self.rewards]
        mentioned = np.zeros(0, dtype=np.int64)  # counts per label are not needed here
        counts = np.hstack([density_counts(batch) for batch in batches])
        unjudged = self.rewards[0].unjudged(captions.captions)
        return ScoredBlock(captions, counts, mentioned, claims=batches[0].claims, unjudged=unjudged)


def score_density(
    path: Readable,
    annotations: Sequence[tuple[Vocabulary, PresenceOracle]],
    rules: Sequence[Rule],
    options: ScoringOptions | None = None,
    *,
    resampling: Resampling | None = None,
    warn: Warn = warn_user,
) -> list[Run]:
    """Computes the density for every annotation and every rule in one pass over the responses.

    Args:
        path: Rollouts from any source (``{"image_id", "response"}``, verl, TRL), or captions from any tool.
        annotations: Vocabulary and ground truth for each annotation.
        rules: Segmentation rules for the responses.
        options: Settings; see :class:`~scapo_eval.benchmarks.scoring.ScoringOptions`.
        resampling: Resampling settings for the confidence intervals.
        warn: Callback for warnings about damaged input that can still be read.

    Returns:
        One run for each annotation and rule. A run is named after the vocabulary, and also after the rule if there are
        several rules.

    Raises:
        InputErrors, InputError: If the input is invalid. The error lists the faults by file and line.
    """
    options = options or ScoringOptions()
    rewards = tuple(
        SubsentenceReward(
            vocabulary,
            oracle,
            RewardConfig(rule=rule, claims=options.claims),
            any_fingerprint=options.any_fingerprint,
        )
        for vocabulary, oracle in annotations
        for rule in rules
    )
    truths = tuple(reward.truth for reward in rewards[:: len(rules)])
    scorer = DensityScorer(truths, options.on_unknown_image == "skip", rewards=rewards)
    source, file = display_name(path), Source.of(path) if not isinstance(path, Records) else path
    sums = tally(
        lambda on_error: caption_blocks(file, rollouts=True, on_error=on_error, warn=warn),
        scorer,
        options,
        source=source,
        given=file,
    )
    runs = []
    for k, reward in enumerate(rewards):
        vocabulary, oracle = reward.truth.vocabulary, reward.truth.oracle
        rows = sums.table.rows[:, k * len(COLUMNS) : (k + 1) * len(COLUMNS)]
        table = CountTable(COLUMNS, sums.table.image_ids, rows, reward.truth.prints(sums.table.image_ids))
        signature = Signature.of(
            "density",
            vocab=vocabulary.identity,
            oracle=oracle.fingerprint,
            world=oracle.world,
            **reward.config.described(),
            **reading_hashes(options.claims),
            **{**sums.decisive, "truth": table.truth},
            n=sums.n_records,
            ids=digest(sums.table.image_ids),
            skip=sums.left_out,
        )
        run = Run(
            name=f"{vocabulary.name} {reward.config.rule}" if len(rules) > 1 else vocabulary.name,
            signature=signature,
            metric_set=density_metrics(),
            table=table,
            n_records=sums.n_records,
            other_counts=sums.other_counts,
            account=sums.account,
            notes=(*(sums.notes if not k else ()), *(reward.truth.notes if reward.config.rule == rules[0] else ())),
            resampling=resampling or Resampling(),
        )
        runs.append(run)
    return runs


def _score(
    systems: Systems,
    *,
    truth: TruthGiven | Sequence[TruthGiven],
    vocabulary: VocabularyGiven | Sequence[VocabularyGiven] = DEFAULT_VOCABULARY,
    rule: Rule = "subsentence",
    calibrate: bool = False,
    scoring: ScoringOptions | None = None,
) -> list[Run]:
    truths, vocabularies = _several(truth), _several(vocabulary or DEFAULT_VOCABULARY)
    if len(vocabularies) != len(truths):
        raise OptionError(
            f"{len(truths)} --truth for {len(vocabularies)} --vocabulary: specify one --truth for each vocabulary"
        )
    annotations = [
        (Vocabulary.of(labels), PresenceOracle.of(given)) for labels, given in zip(vocabularies, truths, strict=True)
    ]
    [(_, source)] = systems.given
    rules = RULES if calibrate else (rule,)
    return score_density(source, annotations, rules, scoring, resampling=systems.resampling, warn=systems.warn)


def _several(given: Any) -> list[Any]:
    """Returns a list of ground truths or vocabularies. A list or tuple contains several of them, and any other value is
    a single one.
    """
    return list(given) if isinstance(given, (list, tuple)) else [given]


BENCHMARK = Benchmark(
    name="density",
    title="Density",
    help="""Objects per response (all, supported, hallucinated) and subsentences (all, and with such objects).

    ROLLOUTS are files that scapo-eval reward reads. To compare several annotations:

    scapo-eval density rollouts.jsonl --truth instances.json --vocabulary coco80 --truth dopa.npz --vocabulary dopa160
    """,
    metric_set=lambda columns: density_metrics(),
    metric_names={
        "objects": "Objects",
        "objects_supported": "Objects, supported",
        "objects_hallucinated": "Objects, hallucinated",
        "subsentences": "Subsentences",
        "subsentences_supported": "Subsentences, supported",
        "subsentences_hallucinated": "Subsentences, hallucinated",
        "subsentences_both": "Subsentences, both",
    },
    several=False,
    headline=("objects", "objects_supported", "objects_hallucinated"),
    score=_score,
    example="""
    >>> import scapo_eval
    >>> rows = [{"image_id": 1, "response": "A dog sleeps. A cat watches."}]
    >>> [run] = scapo_eval.density(rows, truth={1: ["dog"]})
    >>> run.values["objects"], run.values["subsentences_hallucinated"]
    (2.0, 1.0)
    """,
    files="rollouts",
    takes=("rollouts", "captions"),
    scoring=True,
    options={
        "truth": Option(file="read", repeated=True, metavar="FILE", help="Ground truth, once per vocabulary."),
        "vocabulary": Option(
            file="read",
            repeated=True,
            metavar="NAME|FILE",
            help=f"Labels and their aliases, in the order of --truth.  [default: {DEFAULT_VOCABULARY}]",
        ),
        "rule": Option(choices=RULES, help="Segmentation rule for responses."),
        "calibrate": Option(help="Show every rule, to select one for your responses."),
    },
    one_process="a sample of responses, under every rule side by side, is",
    command_example=CommandExample(
        ("scapo-eval density examples/captions_baseline.jsonl --truth examples/truth.json",)
    ),
)
