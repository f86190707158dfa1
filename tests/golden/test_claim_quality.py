"""Quality of the extracted claims on the annotated captions, which must not be lower than in docs/lab/claims.md."""

from __future__ import annotations

import json
from pathlib import Path

import claim_quality as quality
import pytest

from scapo_eval.claiming.extract import ClaimExtractor

pytestmark = pytest.mark.usefixtures("shared")


@pytest.mark.parametrize(
    ("name", "captions", "least"),
    [
        ("development", 32, (0.976, 0.953)),
        ("held_out", 27, (0.941, 0.961)),
        ("second_held_out", 80, (0.944, 0.937)),
        ("third_held_out", 24, (0.923, 0.945)),
        ("fourth_held_out", 30, (0.959, 0.916)),
        ("fifth_held_out", 30, (0.949, 0.949)),
        ("sixth_held_out", 30, (0.968, 0.892)),
        ("seventh_held_out", 40, (0.939, 0.822)),
        ("eighth_held_out", 40, (0.946, 0.8)),
        ("ninth_held_out", 40, (0.955, 0.892)),
        ("ninth_held_out_again", 40, (0.957, 0.899)),
    ],
)
def test_precision_and_recall(name: str, captions: int, least: tuple[float, float], shared: Path) -> None:
    extractor = ClaimExtractor("open400", kinds=quality.MARKED)
    marked = list(quality.read_marked(name, by_guide=True))  # checks every hash
    assert len(marked) == captions
    found = right = total = 0
    for text, marks in marked:
        assert all(0 <= mark.start < mark.end <= len(text) and mark.kind in quality.MARKED for mark in marks)
        wrong, missed = quality.compared(marks, quality.found_in(text, extractor))
        total, right = total + len(marks), right + len(marks) - len(missed)
        found += len(marks) - len(missed) + len(wrong)
    assert (right / found, right / total) >= least
    assert right / total >= least[1]


def test_marks_hold_no_text() -> None:
    for name in (
        "development",
        "held_out",
        "second_held_out",
        "second_held_out_again",
        "third_held_out",
        "fourth_held_out",
        "fifth_held_out",
        "sixth_held_out",
        "seventh_held_out",
        "eighth_held_out",
        "ninth_held_out",
        "ninth_held_out_again",
        "ninth_held_out_third",
    ):
        for line in (quality.GOLD / f"claims_{name}.jsonl").read_text().splitlines():
            assert set(json.loads(line)) == {"file", "line", "sha256", "claims"}
