"""How often the uses of mentions are read wrongly in hard responses (benchmarks/gold/README.md, "Hard responses").

    python benchmarks/readings.py                 # the 60 with which the rules were made
    python benchmarks/readings.py --held-out      # 60 later ones
    python benchmarks/readings.py --hard FILE     # a file of your own

Prints the share of the marked mentions that are read wrongly, with its 95 % interval (Wilson), and each of them.

FILE is JSON Lines with one response per line, ``{"marked": TEXT}``. In TEXT, mentions are marked in place:
``[[dog]]`` is a claim and ``[[dog|negated]]`` has another use: a use of the package, or ``none`` for a word that is no
mention of the label (hidden text, another sense). ``[[board|claim:surfboard]]`` names the label where no alias of
``coco80`` says it. A mention is read rightly if it falls in the marked one of four: counts (``claim``), ``hedged``,
omitted by ``visual`` (all other uses), or no mention. A mention that ``visual`` omits will do for ``none``. Words
without a mark are not looked at.
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from scapo_eval import AliasMatcher, Mention, Vocabulary
from scapo_eval.matching.uses import LEFT_OUT
from scapo_eval.results.intervals import wilson

GOLD = Path(__file__).resolve().parent / "gold" / "hard.jsonl"
HELD_OUT = GOLD.with_name("hard_held_out.jsonl")
_MARK = re.compile(r"\[\[([^\[\]|]*)(?:\|(\w+)(?::([^\]]*))?)?\]\]")


class Marked(NamedTuple):
    """A marked mention: its span in the text, its use (``none``: no mention of such a label), its label if said."""

    start: int
    end: int
    use: str
    label: str | None


class Wrong(NamedTuple):
    """A mention that is read wrongly: its text, the mark, and how it is read."""

    text: str
    marked: Marked
    read: str


def read_hard(path: Path = GOLD) -> Iterator[tuple[str, list[Marked]]]:
    """Each response with its marks."""
    for line in path.read_text().splitlines():
        source = json.loads(line)["marked"]
        text, marks, end = "", list[Marked](), 0
        for match in _MARK.finditer(source):
            text += source[end : match.start()]
            marks.append(Marked(len(text), len(text) + len(match[1]), match[2] or "claim", match[3]))
            text += match[1]
            end = match.end()
        yield text + source[end:], marks


def kind(use: str) -> str:
    """Which of four a use is: counts, hedged, left out by ``visual``, or no mention."""
    return use if use in ("claim", "hedged", "none") else "left out"


def read_as(mark: Marked, mentions: list[Mention]) -> str:
    """How a marked mention is read."""
    for mention in mentions:
        overlaps = mention.start < mark.end and mark.start < mention.end
        if overlaps and mark.label in (None, mention.label):
            return mention.use
    return "none"


def wrongly_read(path: Path = GOLD) -> tuple[int, list[Wrong]]:
    """Returns how many mentions are marked, and those that are read wrongly."""
    matcher, n, wrong = AliasMatcher(Vocabulary.load("coco80")), 0, list[Wrong]()
    for text, marks in read_hard(path):
        mentions = matcher.find(text)
        for mark in marks:
            read = read_as(mark, mentions)
            n += 1
            is_right = kind(read) == kind(mark.use) or (mark.use == "none" and read in LEFT_OUT["visual"])
            if not is_right:
                wrong.append(Wrong(text, mark, read))
    return n, wrong


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--held-out", action="store_const", dest="hard", const=HELD_OUT, default=GOLD)
    parser.add_argument("--hard", type=Path, metavar="FILE")
    path = parser.parse_args().hard
    n, wrong = wrongly_read(path)
    low, high = wilson(len(wrong) / n, n)
    print(f"{len(wrong)} of {n} read wrongly: {len(wrong) / n:.1%} [{low:.1%}, {high:.1%}]")
    harmless = sum(mark.use not in ("claim", "hedged", "none") and read == "none" for _, mark, read in wrong)
    print(f"{harmless} of them are no mention where a use that `visual` omits is marked, which changes no value of it")
    for text, mark, read in wrong:
        around = text[max(0, mark.start - 40) : mark.start], text[mark.start : mark.end], text[mark.end : mark.end + 30]
        print(f"  {mark.use:9} read as {read:9} {'[['.join(around[:2])}]]{around[2]}".replace("\n", " / "))
