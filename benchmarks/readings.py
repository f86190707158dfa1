"""Errors in the uses of mentions in hard responses (benchmarks/gold/README.md, "Hard responses").

    python benchmarks/readings.py                 # the 60 responses that the rules were made with
    python benchmarks/readings.py --held-out      # 60 later responses
    python benchmarks/readings.py --hard FILE     # responses in a file of your own
    python benchmarks/readings.py --hard FILE --uses USES.jsonl    # uses from scapo-eval judge uses, beside the rules

Prints the share of marked mentions with a wrong use, its 95 % interval (Wilson), and each wrong mention. The share is
printed for all marked mentions and for those that the matcher finds. With ``--totals``, no wrong mention is printed.

FILE is JSON Lines with one response per line, ``{"marked": TEXT}``. TEXT contains marked mentions: ``[[dog]]`` is a
claim, and ``[[dog|negated]]`` has another use. A use is one of the package's uses, or ``none`` if the word is no
mention of the label (hidden text, another sense). ``[[board|claim:surfboard]]`` names the label if no alias of
``coco80`` is in the text. A use is correct if it belongs to the same one of four groups as the mark: counts
(``claim``), ``hedged``, omitted by ``visual`` (all other uses), or no mention. For ``none``, a use that ``visual``
omits is also correct. Words without a mark are ignored.
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from scapo_eval import AliasMatcher, JudgedUses, Mention, Vocabulary
from scapo_eval.matching.uses import LEFT_OUT, Reading
from scapo_eval.results.intervals import wilson

GOLD = Path(__file__).resolve().parent / "gold" / "hard.jsonl"
HELD_OUT = GOLD.with_name("hard_held_out.jsonl")
_MARK = re.compile(r"\[\[([^\[\]|]*)(?:\|(\w+)(?::([^\]]*))?)?\]\]")


class Marked(NamedTuple):
    """Annotated mention: its span in the text, its use (``none`` for no mention of such a label), and its label if
    specified.
    """

    start: int
    end: int
    use: str
    label: str | None


class Wrong(NamedTuple):
    """Mention with a wrong use: its text, the annotation, and the use according to the rules."""

    text: str
    marked: Marked
    read: str


def read_hard(path: Path = GOLD) -> Iterator[tuple[str, list[Marked]]]:
    """Yields each response with its annotations."""
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
    """Returns the category of a use: counts, hedged, omitted by ``visual``, or no mention."""
    return use if use in ("claim", "hedged", "none") else "left out"


def read_as(mark: Marked, mentions: list[Mention], named: str | None = None) -> str:
    """Returns the use of an annotated mention according to the rules. ``named`` is the label that the annotated words
    name by themselves. A longer mention of another label is no mention of it: "truck" in "truck driver".
    """
    for mention in mentions:
        overlaps = mention.start < mark.end and mark.start < mention.end
        is_other = mark.use == "none" and named is not None and named != mention.label
        if overlaps and mark.label in (None, mention.label) and not is_other:
            return mention.use
    return "none"


class Found(NamedTuple):
    """Result for a file of annotated mentions.

    Attributes:
        marked: Number of annotated mentions.
        found: Number of annotated mentions that the matcher finds.
        wrong: Mentions with a wrong use.
        wrong_found: Number of these mentions that the matcher finds.
    """

    marked: int
    found: int
    wrong: list[Wrong]
    wrong_found: int


def wrongly_read(path: Path = GOLD, claims: Reading = "all") -> Found:
    """Returns the annotated mentions with a wrong use, according to the rules or to the uses from a judge."""
    vocabulary = Vocabulary.load("coco80")
    rules, matcher = AliasMatcher(vocabulary), AliasMatcher(vocabulary, claims)
    marked, found, wrong, wrong_found = 0, 0, list[Wrong](), 0
    for text, marks in read_hard(path):
        every, mentions = rules.find(text), matcher.find(text)
        for mark in marks:
            read = read_as(mark, mentions, vocabulary.aliases.get(text[mark.start : mark.end].lower()))
            is_found = any(mention.start < mark.end and mark.start < mention.end for mention in every)
            is_right = kind(read) == kind(mark.use) or (mark.use == "none" and read in LEFT_OUT["visual"])
            marked, found = marked + 1, found + is_found
            if not is_right:
                wrong.append(Wrong(text, mark, read))
                wrong_found += is_found
    return Found(marked, found, wrong, wrong_found)


def share(wrong: int, n: int) -> str:
    """Returns a number of wrong mentions with its share and its interval."""
    low, high = wilson(wrong / n, n)
    return f"{wrong} of {n} read wrongly: {wrong / n:.1%} [{low:.1%}, {high:.1%}]"


def show(name: str, result: Found, *, totals: bool) -> None:
    """Prints the result of one reading."""
    print(f"{name}: {share(len(result.wrong), result.marked)}")
    print(f"{name}, mentions that the matcher finds: {share(result.wrong_found, result.found)}")
    harmless = sum(mark.use not in ("claim", "hedged", "none") and read == "none" for _, mark, read in result.wrong)
    print(f"{harmless} of them are no mention where a use that `visual` omits is marked, which changes no value of it")
    for text, mark, read in () if totals else result.wrong:
        around = text[max(0, mark.start - 40) : mark.start], text[mark.start : mark.end], text[mark.end : mark.end + 30]
        print(f"  {mark.use:9} read as {read:9} {'[['.join(around[:2])}]]{around[2]}".replace("\n", " / "))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--held-out", action="store_const", dest="hard", const=HELD_OUT, default=GOLD)
    parser.add_argument("--hard", type=Path, metavar="FILE")
    parser.add_argument("--uses", metavar="FILE")
    parser.add_argument("--totals", action="store_true")
    given = parser.parse_args()
    show("rules", wrongly_read(given.hard), totals=given.totals or given.uses is not None)
    if given.uses is not None:
        judged = JudgedUses.load(given.uses)
        texts = [text for text, _ in read_hard(given.hard)]
        print(f"judge {judged.judge}: {judged.unjudged(texts)} of {len(texts)} responses not judged, read by the rules")
        show("judge", wrongly_read(given.hard, judged), totals=given.totals)
