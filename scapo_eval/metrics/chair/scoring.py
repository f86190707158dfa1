"""CHAIR of a caption file: counts per caption, figures over their sums."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from ...counts import CountBuilder, CountTable
from ...errors import InputError
from ...io.captions import FileChecks, iter_blocks, parse_block
from ...io.files import FaultList, display_name
from ...metric import MetricSet, ratio
from ...oracle import PresenceOracle, Truth
from ...results import System
from ...scoring import ScoredBlock, Scorer, truth_warnings
from ...signature import digest, signature
from ...stats import DEFAULT_RESAMPLES, DEFAULT_SEED, figures
from ..capscore import COLUMNS
from .profiles import ObjectColumns, Profile

METRIC = MetricSet(
    name="chair",
    columns=(*COLUMNS, "words"),
    formulas={
        "chair_s": ratio("hallucinated_captions", "captions"),
        "chair_i": ratio("hallucinated_mentions", "mentions"),
        "recall": ratio("covered", "truth"),
        "len": ratio("words", "captions"),
        "hal_rate": ratio("hallucinated", "generated"),
    },
    higher_is_better={"chair_s": False, "chair_i": False, "recall": True, "hal_rate": False},
    plain_numbers=frozenset({"len"}),
)
"""``hal_rate`` counts SETS of objects and stands beside ``chair_i``, which counts mentions: they differ a lot."""

PRINTED = {"reference": ("chair_s", "chair_i", "recall"), "opera": ("chair_s", "chair_i", "recall", "len")}
"""What the scripts print."""


@dataclass(frozen=True)
class ChairScorer(Scorer):
    """A Scorer that reads captions by a profile.

    Attributes:
        profile: how captions are read; its objects are the labels of the one truth.
    """

    profile: Profile = field(kw_only=True)

    @cached_property
    def matchers(self) -> tuple[Profile, ...]:  # type: ignore[override]
        """The profile in place of a matcher."""
        return (self.profile,)

    def evidence(self, block: ScoredBlock) -> Iterator[dict[str, Any]]:
        """Per caption: the objects in text order with multiplicity, those hallucinated, and those missed."""
        (truth,), (found,) = self.truths, block.mentions
        labels = truth.vocabulary.labels
        for k, image in enumerate(block.captions.image_ids):
            states = truth.states[truth.oracle.index[image]]
            said = found.label_id[found.row(k)].tolist()
            record: dict[str, Any] = {"line": block.captions.numbers[k], "image_id": image}
            if block.captions.ids[k] is not None:
                record["id"] = block.captions.ids[k]
            record["caption"] = block.captions.captions[k]
            record["generated"] = [labels[j] for j in said if states[j] >= 0]
            record["hallucinated"] = [labels[j] for j in said if states[j] == 0]
            record["missed"] = [labels[j] for j in np.flatnonzero(states == 1).tolist() if j not in said]
            record["unknown"] = [labels[j] for j in said if states[j] < 0]
            yield record


def score_chair(
    path: str | Path,
    profile: Profile,
    oracle: PresenceOracle,
    *,
    name: str | None = None,
    skip_bad: bool = False,
    skip_unknown_images: bool = False,
    any_fingerprint: bool = False,
    resamples: int = DEFAULT_RESAMPLES,
    seed: int = DEFAULT_SEED,
    on_block: Callable[[ChairScorer, ScoredBlock], None] | None = None,
    on_progress: Callable[[int], None] | None = None,
) -> System:
    """CHAIR of one caption file.

    Args:
        path: JSON Lines (or a JSON array) with ``image_id`` and ``caption``, compressed or not; ``-``: standard input.
        profile: how captions are read.
        oracle: the truth.
        name: of the system; by default the file's display name.
        skip_bad: leave faulty lines out and count them, in place of stopping.
        skip_unknown_images: leave captions of images unknown to the truth out and count them.
        any_fingerprint: see :meth:`Truth.of`.
        resamples, seed: of the intervals, for the signature.
        on_block: called with each scored block in the order of the file.
        on_progress: called with the number of raw bytes of each scored block.

    Raises:
        InputErrors, InputError: faults by file and line.
    """
    source = display_name(path)
    truth = Truth.of(oracle, profile.vocabulary, any_fingerprint=any_fingerprint)
    scorer = ChairScorer((truth,), skip_unknown_images, profile=profile)
    faults = FaultList()
    skipped: list[InputError] = []
    checks = FileChecks(source)
    builder = CountBuilder(METRIC.columns)
    claims = np.zeros(len(profile.vocabulary.labels), dtype=np.int64)
    n_captions = unknown_images = 0
    for raw in iter_blocks(path):
        block_faults = FaultList(skipped.append if skip_bad else faults.add)
        block = scorer.count(parse_block(raw, block_faults), source, block_faults)
        (found,) = block.mentions
        assert isinstance(found, ObjectColumns)
        builder.add(block.captions.image_ids, np.column_stack([block.counts, found.lengths]))
        checks.add(block.captions)
        claims += np.bincount(found.label_id, minlength=len(claims))
        n_captions += len(block.captions.captions)
        unknown_images += block.unknown_images
        if on_block is not None and not faults.total:
            on_block(scorer, block)
        if on_progress is not None:
            on_progress(len(raw.data))
    faults.raise_if_any()
    checks.check()
    if not n_captions:
        raise InputError("no caption is left to score", path=source)
    table = builder.table()
    line = signature(
        "chair",
        profile=profile.name,
        **profile.fields,
        oracle=oracle.fingerprint,
        world=oracle.world,
        n=n_captions,
        ids=digest(table.image_ids),
        skip=len(skipped) + unknown_images,
        bs=resamples,
        seed=seed,
    )
    return System(
        name=name or source,
        signature=line,
        metric=METRIC,
        table=table,
        n_captions=n_captions,
        counts={"skipped": len(skipped), "unknown_images": unknown_images},
        printed=printed_digits(table, profile.name),
        notes=tuple(truth_warnings(truth, claims)),
    )


def printed_digits(table: CountTable, profile: str) -> dict[str, float]:
    """What the official script of this profile prints: percent with one decimal; the length as it is."""
    values = {name: value for name, value in figures(METRIC, table).items() if name in PRINTED.get(profile, ())}
    return {
        name: float(f"{value:.1f}" if name in METRIC.plain_numbers else f"{value * 100:.1f}")
        for name, value in values.items()
        if value is not None
    }
