"""Why a response got its reward, piece by piece, for people: in a terminal and in a notebook."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING

from ..base.text import printable

if TYPE_CHECKING:
    from .reward import RewardResult

_WORDS = {"new": "supported", "rep": "repeated", "hal": "hallucinated", "unknown": "not known"}
_COLORS = {"new": "#cfe8cf", "rep": "#e8e8e8", "hal": "#f3c6c6", "unknown": "#eeeeff"}


@dataclass(frozen=True)
class Explanation:
    """The pieces of a response with their rewards and verdicts; ``str()`` for a terminal, ``html()`` for a page.

    Attributes:
        title: the response's image, total and counts.
        pieces: text, reward, and label -> verdict of each.
    """

    title: str
    pieces: Sequence[tuple[str, float, Mapping[str, str]]]

    @classmethod
    def of(cls, result: RewardResult) -> Explanation:
        """That of a reward."""
        parts, claims = result.parts, result.claims
        counts = f"{result.covered} of {result.generated} labels supported, {result.hallucinated} hallucinated"
        title = f"image {result.image_id}: {result.total:+.2f}; {counts}"
        return cls(
            title if result.error is None else f"image {result.image_id}: no reward: {result.error}",
            [
                (result.response[part.start : part.end].strip(), part.reward, own)
                for part, own in zip(parts, claims, strict=True)
            ],
        )

    def __str__(self) -> str:
        lines = [printable(self.title)]
        for text, reward, verdicts in self.pieces:
            lines.append(f"{reward:+6.2f}  {printable(' '.join(text.split()))}")
            if verdicts:
                lines.append(f"{'':8}{printable(_said(verdicts))}")
        return "\n".join(lines)

    __repr__ = __str__

    def html(self) -> str:
        """A table without scripts, everything of the response escaped."""
        rows = []
        for text, reward, verdicts in self.pieces:
            marks = " ".join(
                f'<mark style="background:{_COLORS[verdict]}">{escape(label)}: {_WORDS[verdict]}</mark>'
                for label, verdict in verdicts.items()
            )
            rows.append(f"<tr><td>{reward:+.2f}</td><td>{escape(text)}</td><td>{marks}</td></tr>")
        head = "<tr><th>reward</th><th>piece</th><th>labels</th></tr>"
        return f"<table><caption>{escape(self.title)}</caption>{head}{''.join(rows)}</table>"

    _repr_html_ = html


def _said(verdicts: Mapping[str, str]) -> str:
    by_verdict: dict[str, list[str]] = {}
    for label, verdict in verdicts.items():
        by_verdict.setdefault(_WORDS[verdict], []).append(label)
    return "; ".join(f"{verdict}: {', '.join(labels)}" for verdict, labels in by_verdict.items())
