"""Readable explanations of the reward of each piece, for terminals and notebooks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING

from ..base.text import printable
from ..base.verdicts import Verdict

if TYPE_CHECKING:
    from .reward import RewardResult

_COLORS = {
    Verdict.SUPPORTED: "#cfe8cf",
    Verdict.REPEATED: "#e8e8e8",
    Verdict.HALLUCINATED: "#f3c6c6",
    Verdict.UNKNOWN: "#eeeeff",
}


@dataclass(frozen=True)
class Explanation:
    """The pieces of a response, and their rewards and verdicts.

    ``str()`` formats the explanation for a terminal, and ``html()`` formats it for a web page or notebook.

    Attributes:
        title: Heading with the image id, the total reward and the label counts.
        pieces: For each piece, its text, its reward, and a mapping from labels to verdicts.
    """

    title: str
    pieces: Sequence[tuple[str, float, Mapping[str, Verdict]]]

    @classmethod
    def of(cls, result: RewardResult) -> Explanation:
        """Builds the explanation of a reward."""
        parts, verdicts = result.parts, result.verdicts
        counts = f"{result.covered} of {result.generated} labels supported, {result.hallucinated} hallucinated"
        title = f"image {result.image_id}: {result.total:+.2f}; {counts}"
        return cls(
            title if result.error is None else f"image {result.image_id}: no reward: {result.error}",
            [
                (result.response[part.start : part.end].strip(), part.reward, judged)
                for part, judged in zip(parts, verdicts, strict=True)
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
        """Returns the explanation as an HTML table without scripts. All text from the response is escaped."""
        rows = []
        for text, reward, verdicts in self.pieces:
            marks = " ".join(
                f'<mark style="background:{_COLORS[verdict]}">{escape(label)}: {verdict.word}</mark>'
                for label, verdict in verdicts.items()
            )
            rows.append(f"<tr><td>{reward:+.2f}</td><td>{escape(text)}</td><td>{marks}</td></tr>")
        head = "<tr><th>reward</th><th>piece</th><th>labels</th></tr>"
        return f"<table><caption>{escape(self.title)}</caption>{head}{''.join(rows)}</table>"

    _repr_html_ = html


def _said(verdicts: Mapping[str, Verdict]) -> str:
    by_verdict: dict[str, list[str]] = {}
    for label, verdict in verdicts.items():
        by_verdict.setdefault(verdict.word, []).append(label)
    return "; ".join(f"{verdict}: {', '.join(labels)}" for verdict, labels in by_verdict.items())
