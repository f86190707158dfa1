"""Quality of claim extraction: precision and recall by kind on the annotated captions in benchmarks/gold.

    python benchmarks/claim_quality.py [--set held_out] [--errors]
    python benchmarks/claim_quality.py --set a.jsonl --against b.jsonl   # two annotations of the same captions

Captions are read from ../shared/data by file and line (starting at 0) and verified by their hash, because the
annotations contain no text. A mark consists of a kind, the first and last character of its words, and the start offsets
of its object and of the other object of a relation. A claim is correct if its kind and its objects equal those of a
mark, and its words overlap. For text, the object is ignored. Intervals are 95 % bootstrap intervals by caption.
"""

from __future__ import annotations

import argparse
import hashlib
import json
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from matcher_quality import DATA, GOLD, Figure, captions_of, measure

from scapo_eval.claiming.claim import KINDS
from scapo_eval.claiming.extract import ClaimExtractor
from scapo_eval.results.metric import MetricSet, ratio

MARKED = tuple(kind for kind in KINDS if kind != "presence")


class Mark(NamedTuple):
    """Annotated claim: kind, words, and start offsets of its object and of the other object."""

    kind: str
    start: int
    end: int
    thing: int | None
    other: int | None

    def is_said_by(self, found: Mark) -> bool:
        """Returns True if a found claim matches this mark."""
        things = self.kind == "text" or (found.thing, found.other) == (self.thing, self.other)
        return found.kind == self.kind and things and found.start < self.end and self.start < found.end


class Marked(NamedTuple):
    """Caption and its marks."""

    text: str
    marks: list[Mark]


def changes_by_guide() -> dict[tuple[str, str, int], tuple[list[Mark], list[Mark]]]:
    """Returns the marks that the present guide removes from a caption of a set, and those that it adds."""
    rows = map(json.loads, (GOLD / "claims_changes_by_guide.jsonl").read_text(encoding="utf-8").splitlines())
    return {
        (row["set"], row["file"], row["line"]): ([Mark(*m) for m in row["removed"]], [Mark(*m) for m in row["added"]])
        for row in rows
    }


def _rows(name: str) -> list[dict[str, Any]]:
    path = Path(name) if name.endswith(".jsonl") else GOLD / f"claims_{name}.jsonl"
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def read_marked(name: str, by_guide: bool = False) -> Iterator[Marked]:
    """Reads a set of annotated captions.

    Args:
        name: Name of a set in benchmarks/gold, or path of a file whose name ends in ``.jsonl``.
        by_guide: Whether the marks of older sets are changed as the present guide requires.

    Raises:
        ValueError: If a caption differs from the annotated caption.
    """
    changes = changes_by_guide() if by_guide else {}
    for row in _rows(name):
        text = next(islice(captions_of(DATA / row["file"]), row["line"], None))
        if hashlib.sha256(text.encode()).hexdigest() != row["sha256"]:
            raise ValueError(f"{row['file']}:{row['line']} is not the caption that was marked")
        removed, added = changes.get((name, row["file"], row["line"]), ([], []))
        yield Marked(text, [mark for mark in (Mark(*mark) for mark in row["claims"]) if mark not in removed] + added)


def found_in(text: str, extractor: ClaimExtractor) -> list[Mark]:
    """Returns the claims in a text as marks, except for claims inside a mention, which annotators do not mark."""
    return [
        Mark(claim.kind, claim.start, claim.end, *([*(m.start for m in claim.mentions), None, None][:2]))
        for claim in extractor.find(text)
        if not any(m.start <= claim.start and claim.end <= m.end for m in claim.mentions)
    ]


def compared(marks: Sequence[Mark], found: Sequence[Mark]) -> tuple[list[Mark], list[Mark]]:
    """Returns the found claims without a mark, and the marks that were not found. Each is used at most once."""
    missed, wrong = list(marks), []
    for claim in found:
        hit = next((mark for mark in missed if mark.is_said_by(claim)), None)
        if hit is None:
            wrong.append(claim)
        else:
            missed.remove(hit)
    return wrong, missed


def counts(marks: Sequence[Mark], wrong: Sequence[Mark], missed: Sequence[Mark]) -> dict[str, int]:
    """Returns the counts of one caption, by kind and in total."""
    row = {}
    for kind in (*MARKED, "all"):
        marked, false, lost = (sum(kind in ("all", mark.kind) for mark in part) for part in (marks, wrong, missed))
        row |= {f"{kind}_marked": marked, f"{kind}_right": marked - lost, f"{kind}_found": marked - lost + false}
    return row


QUALITY = MetricSet(
    "claims",
    tuple(f"{kind}_{part}" for kind in (*MARKED, "all") for part in ("marked", "right", "found")),
    {
        f"{name}_{kind}": ratio(f"{kind}_right", f"{kind}_{part}")
        for kind in (*MARKED, "all")
        for name, part in (("precision", "found"), ("recall", "marked"))
    },
)


def _shown(figure: Figure) -> str:
    if figure.ci_low is None or figure.ci_high is None:
        return f"{100 * figure.value:.1f}"
    return f"{100 * figure.value:.1f} [{100 * figure.ci_low:.1f}, {100 * figure.ci_high:.1f}]"


def main() -> None:
    """Prints a table per set."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--set", nargs="*", default=["development", "held_out", "second_held_out", "third_held_out"])
    parser.add_argument("--against", help="second annotation of the set, whose marks are compared instead of the rules")
    parser.add_argument("--by-guide", action="store_true", help="change older marks as the present guide requires")
    parser.add_argument("--by-model", action="store_true", help="a table per file of captions, for all sets together")
    parser.add_argument("--errors", action="store_true", help="print what was missed and what was wrong")
    args = parser.parse_args()
    extractor = ClaimExtractor("open400", kinds=[kind for kind in KINDS if kind != "presence"])
    tables: dict[str, list[dict[str, int]]] = {}
    for name in args.set:
        files = [Path(row["file"]).stem for row in _rows(name)]
        others = dict(read_marked(args.against)) if args.against else {}
        for file, (text, marks) in zip(files, read_marked(name, args.by_guide), strict=True):
            if args.against and text not in others:
                continue
            wrong, missed = compared(marks, others[text] if args.against else found_in(text, extractor))
            tables.setdefault(file if args.by_model else name, []).append(counts(marks, wrong, missed))
            if args.errors:
                for sign, part in (("+", wrong), ("-", missed)):
                    for mark in part:
                        around = text[max(0, mark.start - 40) : mark.start], text[mark.end : mark.end + 40]
                        print(
                            sign, mark.kind, f"{around[0]}<{text[mark.start : mark.end]}>{around[1]}".replace("\n", " ")
                        )
    for title, rows in tables.items():
        figures, sums = measure(QUALITY, rows)
        print(f"\n{title}: {len(rows)} captions\n\n| kind | marked | precision | recall | F1 |")
        print("|---|---:|---:|---:|---:|")
        for kind in (*MARKED, "all"):
            shown = [_shown(figures[f"{name}_{kind}"]) for name in ("precision", "recall")]
            marked, right, found = (sums[f"{kind}_{part}"] for part in ("marked", "right", "found"))
            f1 = f"{200 * right / (marked + found):.1f}" if marked + found else "-"
            print(f"| {kind} | {marked} | {' | '.join(shown)} | {f1} |")


if __name__ == "__main__":
    main()
