"""Sheets for marking claims by hand, and marks read from filled sheets.

    python benchmarks/claim_marks.py sheet --seed 3904 --number 30 > sheets.txt   # unmarked captions, half of each age
    python benchmarks/claim_marks.py sheet --seed 21 --files a.jsonl b.jsonl --files c.jsonl   # by turns of both groups
    python benchmarks/claim_marks.py read marks.txt > benchmarks/gold/claims_NAME.jsonl
    python benchmarks/claim_marks.py show third_held_out                          # a marked set, as sheet and marks

A sheet is a header line ``## FILE LINE`` and the caption, in which the mentions of ``open400`` are in brackets with
their number: ``A [dog]1 on a red [couch]2.`` Marks are the same header and a line per claim: kind, words and the number
of the thing, with ``> other`` for a relation to another thing.

    ## captions_modern/comprecap_gpt4o.jsonl 12
    relation | on | 1 > 2
    attribute | red | 2

``red@2`` are the second such words of the caption. It is needed where the words stand at several places that are
equally near; words that cannot be found, or not decided, are named and end the reading.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import random
import re
import sys
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from claim_quality import Mark, read_marked
from matcher_quality import DATA, GOLD, captions_of

from scapo_eval import AliasMatcher
from scapo_eval.base.types import Mention
from scapo_eval.claiming.claim import KINDS

AGES = {
    "modern": ["captions_modern/comprecap_gpt4o.jsonl", "captions_modern/comprecap_llava_next_34b.jsonl"],
    "old": [f"captions_real/coco_val2014_{name}.jsonl" for name in (
        "lessismore_r1_llava15_7b", "lessismore_r7_llava15_13b", "opera_instructblip_greedy", "opera_llava15_opera",
    )],
}  # fmt: skip


class UnreadableMark(Exception):
    """A line of a filled sheet that says no claim."""


def spent() -> set[tuple[str, str]]:
    """Returns the directory and image of every caption that has a mark of any sort in benchmarks/gold."""
    found = set()
    for path in sorted(GOLD.glob("*.jsonl")):
        for line in path.read_text(encoding="utf-8").splitlines():
            row = json.loads(line)
            if "file" in row and (DATA / row["file"]).suffix == ".jsonl":
                found.add((row["file"].split("/")[0], images_of(row["file"])[row["line"]]))
    return found


def images_of(file: str) -> list[str]:
    """Returns the image ids of a file of captions, in its order."""
    return [str(json.loads(line)["image_id"]) for line in (DATA / file).read_bytes().split(b"\n") if line.strip()]


def drawn(seed: int, number: int, groups: Sequence[Sequence[str]], words: int) -> Iterator[tuple[str, int]]:
    """Yields files and lines of captions without marks, by turns of the groups of files, each image once.

    Args:
        seed: Seed of the draw.
        number: Number of captions.
        groups: Files in the folder of the shared data.
        words: Minimum number of words in a caption.
    """
    rng, used = random.Random(seed), spent()
    for k in range(number):
        while True:
            file = rng.choice(groups[k % len(groups)])
            images = images_of(file)
            line = rng.randrange(len(images))
            image = file.split("/")[0], images[line]
            text = next(islice(captions_of(DATA / file), line, None))
            if image not in used and len(text.split()) >= words:
                used.add(image)
                yield file, line
                break


def sheet(text: str, mentions: Sequence[Mention]) -> str:
    """Returns a caption with its mentions in brackets and numbered."""
    parts, end = [], 0
    for k, mention in enumerate(mentions, 1):
        parts += [text[end : mention.start], f"[{mention.surface}]{k}"]
        end = mention.end
    return "".join([*parts, text[end:]])


def written(text: str, mentions: Sequence[Mention], marks: Sequence[Mark]) -> Iterator[str]:
    """Yields a line per mark."""
    number = {mention.start: k for k, mention in enumerate(mentions, 1)}
    for mark in marks:
        words = text[mark.start : mark.end]
        things = [str(number.get(place, "?")) for place in (mark.thing, mark.other) if place is not None]
        places = [found.start() for found in occurrences(text, words)]
        near = nearest(text, words, [mentions[int(k) - 1] for k in things if k != "?"])
        which = "" if near == [mark.start] else f"@{places.index(mark.start) + 1 if mark.start in places else '?'}"
        yield f"{mark.kind} | {words}{which} | {' > '.join(things) or '-'}"


def occurrences(text: str, words: str) -> list[re.Match[str]]:
    """Returns the positions of words in a text as whole words, in any case of letters."""
    left, right = (r"\b" if words[k].isalnum() else "" for k in (0, -1))
    return list(re.finditer(left + r"\s+".join(map(re.escape, words.split())) + right, text, re.IGNORECASE))


def nearest(text: str, words: str, things: Sequence[Mention]) -> list[int]:
    """Returns where words begin that are nearest to their things: between them, or with the fewest characters apart."""
    places = occurrences(text, words)
    if not things:
        return [place.start() for place in places]
    low, high = min(thing.start for thing in things), max(thing.end for thing in things)
    apart = {place.start(): max(low - place.end(), place.start() - high, 0) for place in places}
    return [start for start, distance in apart.items() if distance == min(apart.values())]


def mark_of(line: str, text: str, mentions: Sequence[Mention]) -> Mark:
    """Reads one line of marks.

    Raises:
        UnreadableMark: If the kind is unknown, a mention has no such number, or the words are found nowhere or twice.
    """
    fields = [field.strip() for field in line.split("|")]
    if len(fields) != 3 or fields[0] not in KINDS[1:] or not fields[1]:
        raise UnreadableMark("a mark is kind | words | thing, or kind | words | thing > other")
    kind, words, numbers = fields
    things = []
    for number in [] if numbers == "-" else numbers.split(">"):
        if not number.strip().isdecimal() or not 1 <= int(number) <= len(mentions):
            raise UnreadableMark(f"no mention {number.strip()}")
        things.append(mentions[int(number) - 1])
    if not things and kind != "text":
        raise UnreadableMark("no thing")
    if len(things) > (2 if kind == "relation" else 1):
        raise UnreadableMark("too many things")
    words, _, which = words.rpartition("@") if re.search(r"@\d+$", words) else (words, "", "")
    found = occurrences(text, words)
    starts = [found[int(which) - 1].start()] if which and int(which) <= len(found) else nearest(text, words, things)
    if (which and int(which) > len(found)) or not starts:
        raise UnreadableMark("no such words")
    if len(starts) > 1:
        raise UnreadableMark(f"which of {len(found)}? say {words}@1 to {words}@{len(found)}")
    end = next(place.end() for place in found if place.start() == starts[0])
    return Mark(kind, starts[0], end, *([*(thing.start for thing in things), None, None][:2]))


def read_sheets(lines: Sequence[str], matcher: AliasMatcher) -> Iterator[dict[str, Any]]:
    """Yields the rows of a set of marked captions from the lines of filled sheets.

    Raises:
        UnreadableMark: With every line that says no claim.
    """
    rows: list[dict[str, Any]] = []
    wrong, mentions, text = list[str](), list[Mention](), ""
    for number, line in enumerate(map(str.strip, lines), 1):
        if line.startswith("## "):
            file, at = line[3:].rsplit(maxsplit=1)
            text = next(islice(captions_of(DATA / file), int(at), None))
            mentions = matcher.find(text)
            row = {"file": file, "line": int(at), "sha256": hashlib.sha256(text.encode()).hexdigest(), "claims": []}
            rows.append(row)
        elif line and not line.startswith("#"):
            try:
                rows[-1]["claims"].append(list(mark_of(line, text, mentions)))
            except (UnreadableMark, IndexError) as error:
                wrong.append(f"line {number}: {line!r}: {error}")
    if wrong:
        raise UnreadableMark("\n".join(wrong))
    for row in rows:
        row["claims"].sort(key=lambda mark: (mark[1], mark[2]))
        yield row


def main() -> int:
    """Prints sheets, or the rows of filled ones."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    command = commands.add_parser("sheet", help="captions without marks")
    command.add_argument("--seed", type=int, required=True)
    command.add_argument("--number", type=int, default=60)
    command.add_argument("--words", type=int, default=0, help="minimum number of words in a caption")
    command.add_argument("--files", nargs="+", action="append", help="group of files; repeat for each group")
    commands.add_parser("read", help="rows of filled sheets").add_argument("marks", type=Path)
    commands.add_parser("show", help="a marked set").add_argument("name")
    args = parser.parse_args()
    matcher = AliasMatcher("open400")
    if args.command == "sheet":
        for file, line in drawn(args.seed, args.number, args.files or [*AGES.values()], args.words):
            text = next(islice(captions_of(DATA / file), line, None))
            print(f"## {file} {line}\n{sheet(text, matcher.find(text))}\n")
    elif args.command == "show":
        for text, marks in read_marked(args.name):
            mentions = matcher.find(text)
            print(f"\n{sheet(text, mentions)}\n", *written(text, mentions, marks), sep="\n")
    else:
        try:
            for row in read_sheets(args.marks.read_text(encoding="utf-8").splitlines(), matcher):
                print(json.dumps(row, separators=(",", ":")))
        except UnreadableMark as error:
            print(error, file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
