"""Captions whose claims were compared with scenes, including the texts, the verdicts, and the evidence in the
scenes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ..base.types import State
from ..base.verdicts import Verdict
from ..benchmarks.claimscore import ClaimScorer, score_claims
from ..benchmarks.scoring import ScoredBlock, ScoringOptions
from ..claiming.claim import KINDS, Claim, ClaimKind
from ..files.source import Input
from ..results.results import Resampling, Results, Run
from ..truths.oracle import Truth
from ..truths.scenes import Scenes
from .texts import utf16_offsets

_RATES = ("hal_rate", "cover_rate")

SHOWN = 2000
"""Maximum number of images whose captions a page shows."""


@dataclass(frozen=True, slots=True)
class CheckedCaption:
    """Caption with its claims and their verdicts.

    Attributes:
        image: Id of the image.
        line: Line number of the caption in its file.
        text: Text of the caption.
        claims: Claims of the caption, in order.
        states: State of each claim: 1 (true), 0 (false) or -1 (unknown).
        evidence: For each claim, the evidence that a ground truth contains for it.
    """

    image: str
    line: int
    text: str
    claims: Sequence[Claim]
    states: Sequence[State]
    evidence: Sequence[str]


@dataclass(frozen=True)
class CheckedSystem:
    """Captions of one system whose claims were compared with scenes.

    Attributes:
        name: Name of the system.
        captions: Captions in the order of the file.
    """

    name: str
    captions: tuple[CheckedCaption, ...]


def check_claims(
    path: Input,
    truth: Truth,
    scenes: Sequence[Scenes],
    kinds: Sequence[ClaimKind],
    options: ScoringOptions,
    *,
    name: str,
    resampling: Resampling,
    on_progress: Callable[[int], None] | None = None,
) -> tuple[Run, CheckedSystem]:
    """Scores the claims in a caption file in the same way as :func:`scapo_eval.benchmarks.claimscore.score_claims`, and
    returns the claims together with the scores.
    """
    kept: list[CheckedCaption] = []

    def keep(scorer: ClaimScorer, block: ScoredBlock) -> None:
        captions = block.captions
        places = zip(captions.image_ids, captions.numbers, captions.captions, *block.evidence, strict=True)
        for image, line, text, claims, states in places:
            said = [scorer.oracle.evidence(image, claim) for claim in claims]
            kept.append(CheckedCaption(image, line, text, claims, states, said))

    how: dict[str, Any] = {"name": name, "resampling": resampling, "on_block": keep, "on_progress": on_progress}
    run = score_claims(path, truth, scenes, kinds, options, **how)
    return run, CheckedSystem(name, tuple(kept))


def columns_of(systems: Sequence[CheckedSystem]) -> dict[str, Any]:
    """Returns the captions in the page's format, for the images with the most false claims (at most SHOWN images).

    Offsets are in UTF-16 units, which browsers use.
    """
    wrong: dict[str, int] = {}
    for system in systems:
        for caption in system.captions:
            wrong[caption.image] = wrong.get(caption.image, 0) + list(caption.states).count(0)
    most = sorted(wrong, key=lambda image: -wrong[image])[:SHOWN]
    shown = set(most)
    return {
        "kinds": KINDS,
        "images": most,
        "left_out": len(wrong) - len(most),
        "systems": [
            {"name": system.name, "captions": [_columns(each) for each in system.captions if each.image in shown]}
            for system in systems
        ],
    }


def _columns(caption: CheckedCaption) -> dict[str, Any]:
    at = utf16_offsets(caption.text) or range(len(caption.text) + 1)
    return {
        "image": caption.image,
        "line": caption.line,
        "text": caption.text,
        "claims": [
            {
                "kind": claim.kind,
                "start": at[claim.start],
                "end": at[claim.end],
                "said": said_by(claim),
                "use": "" if claim.use == "claim" else claim.use,
                "verdict": Verdict(state).word,
                "evidence": evidence,
            }
            for claim, state, evidence in zip(caption.claims, caption.states, caption.evidence, strict=True)
        ],
    }


def said_by(claim: Claim) -> str:
    """Returns a short text for a claim: ``2 dog``, ``couch: red``, ``dog on couch``, ``sign: “STOP”``."""
    if claim.kind == "count":
        return f"{claim.value} {claim.label}"
    if claim.kind == "attribute":
        return f"{claim.label}: {claim.value}"
    if claim.kind == "text":
        return f"{claim.label or 'something'}: “{claim.value}”"
    return " ".join(filter(None, (claim.label, claim.value, claim.other)))


def figures(group: Results) -> list[dict[str, str]]:
    """Returns the rows of the table of scores by kind of claim, and the names of the rates in these rows. The first row
    covers all kinds together; it is followed by one row for each kind that has a value.
    """
    decided = [
        kind for kind in KINDS if any(run.values.get(f"{r}_{kind}") is not None for run in group.runs for r in _RATES)
    ]
    rows = [("all kinds", ""), *((kind, f"_{kind}") for kind in decided)]
    return [{"kind": kind, "hal": f"hal_rate{suffix}", "cover": f"cover_rate{suffix}"} for kind, suffix in rows]
