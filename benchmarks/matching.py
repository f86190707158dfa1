"""Speed of alias matching in captions, compared with alternative libraries.

    python benchmarks/matching.py                                   # synthetic captions, coco80
    python benchmarks/matching.py --captions run1.jsonl run2.jsonl  # your own captions

All methods use the same vocabulary and the same captions in the same run, and must find the mentions defined by this
project: whole words, leftmost and then longest, including ignore phrases. Times are CPU times of one process. Rounds
are interleaved, so that the load of the machine affects all methods in the same way, and the best round counts. A
method that needs more than ``--seconds`` per round gets fewer captions (column n). The captions are shuffled, so that
the first captions are a fair sample. The last column contains the number of captions with a different result than a
slow and simple search. For a missing library, the table shows how to install it. The exit code is 1 if a required value
is missed.
"""

from __future__ import annotations

import argparse
import random
import re
import subprocess
import sys
import time
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
import orjson
from sentences import invented_captions

from scapo_eval import AliasMatcher, Vocabulary
from scapo_eval.files.json_text import iter_records
from scapo_eval.matching.vocabulary import tokenize_alias

Found = list[tuple[int, int, str]]
"""Mentions in a caption: start, end, label."""

IGNORED = ""
"""Internal label of an ignore phrase, which is never part of a result."""

BATCH = 1024


@dataclass
class Method:
    """Method to find mentions, or a minimal workload that finds none.

    Attributes:
        name: Name of the row in the table.
        run: Timed function for all captions.
        find: Function that returns the mentions of each caption, for the comparison with the simple search. None for a
            minimal workload.
        prepare: Untimed function from captions to the argument of ``run``.
    """

    name: str
    run: Callable[[Sequence[Any]], object]
    find: Callable[[Sequence[str]], list[Found]] | None
    prepare: Callable[[Sequence[str]], Sequence[Any]] = list
    captions: list[str] = field(default_factory=list)
    best: float = float("inf")

    @property
    def per_second(self) -> float:
        """Captions per second of CPU time."""
        return len(self.captions) / self.best

    @property
    def megabytes(self) -> float:
        """Millions of UTF-8 bytes per second of CPU time."""
        return sum(len(text.encode("utf-8", "surrogatepass")) for text in self.captions) / self.best / 1e6


class NotInstalled(Exception):
    """Error for a missing library. The text contains the installation command."""


# The slow and obvious search -------------------------------------------------------------------------------


class Obvious:
    """Simple search that tries all phrases at the start of each word, longest first. It needs no index and is easy to
    verify.

    The search uses the original text instead of its NFC. The results only differ if a combining mark follows a
    character outside of words.
    """

    def __init__(self, vocabulary: Vocabulary) -> None:
        pairs = [
            *vocabulary.aliases.items(),
            *vocabulary.compounds.items(),
            *((phrase, IGNORED) for phrase in vocabulary.ignore),
        ]
        self.label = {self.plain(phrase, alias=True): label for phrase, label in pairs}
        self.longest = max(len(self.words(phrase)) for phrase in self.label)

    @staticmethod
    def words(text: str) -> list[tuple[int, int]]:
        """Returns the runs of letters, digits, combining marks and underscores."""
        spans: list[tuple[int, int]] = []
        for k, character in enumerate(text):
            if character == "_" or unicodedata.category(character)[0] in "LNM":
                start = spans.pop()[0] if spans and spans[-1][1] == k else k
                spans.append((start, k + 1))
        return spans

    @classmethod
    def plain(cls, phrase: str, *, alias: bool = False) -> str:
        """Returns the case-folded NFC with straight apostrophes, and a space for white space or a hyphen between two
        words.

        An alias may contain any combination of these, such as ``hot - dog``.
        """
        folded = unicodedata.normalize("NFC", unicodedata.normalize("NFC", phrase).casefold())
        folded = folded.replace("\u2018", "'").replace("\u2019", "'")
        words = cls.words(folded)
        out = folded[slice(*words[0])]
        for (_, left), (start, end) in pairwise(words):
            between = folded[left:start]
            hyphen = between in ("-", "\u2010", "\u2011") or (alias and not between.strip().strip("-"))
            out += (" " if between.isspace() or hyphen else between) + folded[start:end]
        return out

    def find(self, text: str) -> Found:
        """Returns the mentions in one caption."""
        found: Found = []
        words = self.words(text)
        k = 0
        while k < len(words):
            for last in reversed(range(k, min(k + self.longest, len(words)))):
                start, end = words[k][0], words[last][1]
                label = self.label.get(self.plain(text[start:end]))
                if label is not None:
                    found.append((start, end, label))
                    k = last
                    break
            k += 1
        return [mention for mention in found if mention[2] != IGNORED]


# What the formulations with libraries share -----------------------------------------------------------------


_PLAIN = {c: " " for c in range(0x3001) if chr(c).isspace()} | {0x2018: "'", 0x2019: "'", 0x2010: "-", 0x2011: "-"}
_SPACES = re.compile("  +")
_HYPHEN = re.compile(r"-(?=\w)(?<=\w-)")  # begins with a literal, which re finds fast


def patterns(vocabulary: Vocabulary) -> dict[str, str]:
    """Returns phrase -> label (or IGNORED) for all aliases and ignore phrases, in lower case with single spaces."""
    pairs = [
        *vocabulary.aliases.items(),
        *vocabulary.compounds.items(),
        *((phrase, IGNORED) for phrase in vocabulary.ignore),
    ]
    return {"".join(tokenize_alias(alias)): label for alias, label in pairs}


@dataclass(slots=True)
class Prepared:
    """Caption in the form of the patterns, with a mapping to the original.

    Attributes:
        body: Text in lower case, with one space for white space or a single hyphen between words.
        removed: (position in ``body``, number of characters removed before it), in ascending order.
    """

    body: str
    removed: list[tuple[int, int]]

    @classmethod
    def of(cls, text: str) -> Prepared:
        """Prepares a caption. Runs of spaces after punctuation are kept, because no pattern contains them."""
        body = text.lower()
        if not body.isascii() or not body.isprintable():  # line breaks are not printable
            body = body.translate(_PLAIN)
        removed: list[tuple[int, int]] = []
        if "  " in body and any(is_word(body[run.start() - 1]) for run in _SPACES.finditer(body)):
            total = 0
            for run in _SPACES.finditer(body):
                removed.append((run.start() + 1 - total, total := total + run.end() - run.start() - 1))
            body = _SPACES.sub(" ", body)
        if "-" in body:
            body = _HYPHEN.sub(" ", body)
        return cls(body, removed)

    def original(self, position: int) -> int:
        """Returns the position in the caption for a position in ``body``."""
        return position + next((total for place, total in reversed(self.removed) if place <= position), 0)

    def mention(self, start: int, end: int, label: str) -> tuple[int, int, str]:
        """Returns the mention in the caption for a mention in ``body``."""
        if not self.removed:
            return start, end, label
        return self.original(start), self.original(end - 1) + 1, label


def is_word(character: str) -> bool:
    return character.isalnum() or character == "_"


def resolved(spans: Iterable[tuple[int, int, str]], text: Prepared) -> Found:
    """Selects the leftmost and then longest matches that consist of whole words."""
    padded = f" {text.body} "
    whole = [
        (start, -end, label) for start, end, label in spans if not (is_word(padded[start]) or is_word(padded[end + 1]))
    ]
    whole.sort()
    found: Found = []
    free = 0
    for start, end, label in whole:
        if start >= free:
            free = -end
            if label != IGNORED:
                found.append(text.mention(start, free, label))
    return found


def one_by_one(name: str, find: Callable[[str], Found]) -> Method:
    def run(texts: Sequence[str]) -> list[Found]:
        return [find(text) for text in texts]

    return Method(name, run, run)


# The methods ------------------------------------------------------------------------------------------------


ONE = "scapo find, one caption"
SCAPO = "scapo find_batch, 1,024 a call"


def scapo(vocabulary: Vocabulary) -> Iterator[Method]:
    matcher = AliasMatcher(vocabulary)

    def batches(texts: Sequence[str]) -> Sequence[Sequence[str]]:
        return [texts[k : k + BATCH] for k in range(0, len(texts), BATCH)]

    def tuples(texts: Sequence[str]) -> list[Found]:
        columns = matcher.find_batch(texts)
        names = map(vocabulary.labels.__getitem__, columns.label_id.tolist())
        mentions = list(zip(columns.start.tolist(), columns.end.tolist(), names, strict=True))
        return [mentions[a:b] for a, b in pairwise(columns.indptr.tolist())]

    yield Method(
        ONE,
        lambda texts: [matcher.find(text) for text in texts],
        lambda texts: [[(m.start, m.end, m.label) for m in matcher.find(text)] for text in texts],
    )
    yield Method(
        SCAPO,
        lambda parts: [matcher.find_batch(part) for part in parts],
        lambda texts: [found for part in batches(texts) for found in tuples(part)],
        prepare=batches,
    )
    yield Method("scapo find_batch, all in one call", matcher.find_batch, tuples)
    yield Method("scapo find_batch, and a tuple per mention", tuples, tuples)


SPACY = "spaCy PhraseMatcher (blank, LOWER)"


def spacy_phrase_matcher(vocabulary: Vocabulary) -> Iterator[Method]:
    try:
        import spacy
        from spacy.matcher import PhraseMatcher
    except ImportError:
        raise NotInstalled("pip install spacy") from None
    nlp = spacy.blank("en")
    matcher = PhraseMatcher(nlp.vocab, attr="LOWER")
    labels: dict[int, str] = {}
    for pattern, label in patterns(vocabulary).items():
        key = label or "ignored"
        matcher.add(key, [nlp.make_doc(pattern)])
        labels[nlp.vocab.strings[key]] = label

    def find(text: str) -> Found:
        doc = nlp.make_doc(text)
        found: Found = []
        free = 0
        for key, start, end in sorted(matcher(doc), key=lambda match: (match[1], -match[2])):
            if start >= free:
                free = end
                if labels[key] != IGNORED:
                    found.append((doc[start].idx, doc[end - 1].idx + len(doc[end - 1]), labels[key]))
        return found

    yield one_by_one(SPACY, find)


FLASHTEXT = "flashtext"


def flashtext(vocabulary: Vocabulary) -> Iterator[Method]:
    try:
        from flashtext import KeywordProcessor
    except ImportError:
        raise NotInstalled("pip install flashtext") from None
    processor = KeywordProcessor(case_sensitive=False)
    for pattern, label in patterns(vocabulary).items():
        processor.add_keyword(pattern, (label,))

    def find(text: str) -> Found:
        hits = processor.extract_keywords(text, span_info=True)
        return [(start, end, label) for (label,), start, end in hits if label != IGNORED]

    yield one_by_one(FLASHTEXT, find)


PYAHOCORASICK = "pyahocorasick, all matches + resolve"


def pyahocorasick(vocabulary: Vocabulary) -> Iterator[Method]:
    try:
        import ahocorasick
    except ImportError:
        raise NotInstalled("pip install pyahocorasick") from None
    automaton = ahocorasick.Automaton()
    for pattern, label in patterns(vocabulary).items():
        automaton.add_word(pattern, (len(pattern) - 1, label))
    automaton.make_automaton()

    def find(text: str) -> Found:
        prepared = Prepared.of(text)
        hits = automaton.iter(prepared.body)
        return resolved(((last - before, last + 1, label) for last, (before, label) in hits), prepared)

    yield one_by_one(PYAHOCORASICK, find)


AHOCORASICK_RS = "ahocorasick_rs, overlapping + resolve"


def ahocorasick_rs(vocabulary: Vocabulary) -> Iterator[Method]:
    try:
        from ahocorasick_rs import AhoCorasick, BytesAhoCorasick, MatchKind
    except ImportError:
        raise NotInstalled("pip install ahocorasick_rs") from None
    table = patterns(vocabulary)
    labels = list(table.values())
    automaton = AhoCorasick(list(table), matchkind=MatchKind.Standard)

    def find(text: str) -> Found:
        prepared = Prepared.of(text)
        hits = automaton.find_matches_as_indexes(prepared.body, overlapping=True)
        return resolved(((start, end, labels[k]) for k, start, end in hits), prepared)

    yield one_by_one(AHOCORASICK_RS, find)
    yield marked_borders(table, find, BytesAhoCorasick, MatchKind.LeftmostLongest)


def marked_borders(table: dict[str, str], slow: Callable[[str], Found], automaton: Any, kind: Any) -> Method:
    """Returns the second exact method, a single leftmost-longest search over a joined batch.

    The first and last byte of every word are marked in the patterns and in the text, so that patterns match only whole
    words, and the automaton's own leftmost-longest search is correct. The method works on ASCII bytes with one space
    between words. Captions with any other characters between words are processed by the overlapping search.
    """
    ascii_patterns = [pattern for pattern in table if pattern.isascii()]
    labels = [table[pattern] for pattern in ascii_patterns]
    inside_word = bytes(is_word(chr(c)) for c in range(128)) + bytes(128)
    spaces = bytes(ord(" ") if chr(c).isspace() or c == ord("-") else c for c in range(256))

    def words(text: bytes) -> tuple[Any, Any]:
        inside = np.frombuffer(b"\0" + text.translate(inside_word) + b"\0", dtype=np.uint8) == 1
        borders = np.flatnonzero(inside[1:] != inside[:-1])
        return borders[0::2], borders[1::2]

    def marked(text: bytes, starts: Any, ends: Any) -> bytes:
        out = np.frombuffer(text, dtype=np.uint8).copy()
        out[starts] ^= 0x20
        out[ends - 1] |= 0x80
        return out.tobytes()

    encoded = [pattern.encode() for pattern in ascii_patterns]
    search = automaton([marked(pattern, *words(pattern)) for pattern in encoded], matchkind=kind)

    def columns(texts: Sequence[str]) -> tuple[Any, Any, dict[int, Found]]:
        """Returns (matches, 3) pattern, start and end, the offsets of the captions, and the mentions of captions left
        to ``slow``.
        """
        raw = "\0".join([text if text.isascii() else "" for text in texts]).lower().encode("ascii")
        folded = raw.translate(spaces)
        starts, ends = words(folded)
        offsets = np.cumsum([0, *(len(text) + 1 if text.isascii() else 1 for text in texts)])
        byte = np.frombuffer(raw, dtype=np.uint8)
        wide = np.flatnonzero(starts[1:] - ends[:-1] > 1)  # at least two spaces between two words?
        wide = wide[byte[ends[wide]] <= ord(" ")]
        owners = np.unique(np.searchsorted(offsets, ends[wide], side="right") - 1).tolist()
        loose = [k for k in owners if re.search(r"\w\s\s+\w", texts[k])]
        by_hand = {k: slow(texts[k]) for k in (*loose, *(k for k, text in enumerate(texts) if not text.isascii()))}
        hits = search.find_matches_as_indexes(marked(folded, starts, ends))
        return np.array(hits, dtype=np.int64).reshape(-1, 3), offsets, by_hand

    def batches(texts: Sequence[str]) -> Sequence[Sequence[str]]:
        return [texts[k : k + BATCH] for k in range(0, len(texts), BATCH)]

    def tuples(texts: Sequence[str]) -> list[Found]:
        hits, offsets, by_hand = columns(texts)
        found: list[Found] = [[] for _ in texts]
        owners = np.searchsorted(offsets, hits[:, 1], side="right") - 1
        for (k, start, end), owner, shift in zip(hits.tolist(), owners.tolist(), offsets[owners].tolist(), strict=True):
            if labels[k] != IGNORED:
                found[owner].append((start - shift, end - shift, labels[k]))
        return [by_hand.get(k, mentions) for k, mentions in enumerate(found)]

    return Method(
        "ahocorasick_rs, marked borders, 1,024 joined",
        lambda parts: [columns(part) for part in parts],
        lambda texts: [found for part in batches(texts) for found in tuples(part)],
        prepare=batches,
    )


def regular_expressions(vocabulary: Vocabulary) -> Iterator[Method]:
    table = patterns(vocabulary)
    by_length = sorted(table, key=len, reverse=True)
    alternatives = "|".join(re.escape(pattern).replace("\\ ", "(?:\\s+|[-\u2010\u2011])") for pattern in by_length)
    flat = re.compile(rf"(?<!\w)(?:{alternatives})(?!\w)", re.IGNORECASE)

    def find_flat(text: str) -> Found:
        found = []
        for match in flat.finditer(text):
            label = table[Obvious.plain(match.group())]
            if label != IGNORED:
                found.append((*match.span(), label))
        return found

    yield one_by_one("re, one flat alternation", find_flat)

    longest: dict[str, int] = {}
    for pattern in table:
        words = re.findall(r"\w+", pattern)
        longest[words[0]] = max(longest.get(words[0], 0), len(words))
    word = re.compile(r"\w+")

    def find_words(text: str) -> Found:
        prepared = Prepared.of(text)
        body = prepared.body
        found: Found = []
        spans = [match.span() for match in word.finditer(body)]
        k = 0
        while k < len(spans):
            start, end = spans[k]
            reach = longest.get(body[start:end], 0)
            for last in range(min(k + reach, len(spans)) - 1, k - 1, -1):
                label = table.get(body[start : spans[last][1]])
                if label is not None:
                    if label != IGNORED:
                        found.append(prepared.mention(start, spans[last][1], label))
                    k = last
                    break
            k += 1
        return found

    yield one_by_one("re, words by finditer + dict of phrases", find_words)


def floors(_: Vocabulary) -> Iterator[Method]:
    def lines(texts: Sequence[str]) -> Sequence[bytes]:
        whole = (text.encode(errors="ignore").decode() for text in texts)  # orjson refuses lone surrogates
        return [orjson.dumps({"image_id": 0, "caption": text}) for text in whole]

    yield Method("floor: orjson.loads of the line", lambda data: [orjson.loads(line) for line in data], None, lines)
    word = re.compile(r"\w+")
    yield Method("floor: re.findall(r'\\w+')", lambda texts: [word.findall(text) for text in texts], None)


FAMILIES: tuple[Callable[[Vocabulary], Iterator[Method]], ...] = (
    scapo,
    spacy_phrase_matcher,
    flashtext,
    pyahocorasick,
    ahocorasick_rs,
    regular_expressions,
    floors,
)

RATIOS = ((SPACY, 8, 15), (FLASHTEXT, 8, 15), (PYAHOCORASICK, 3, 5), (AHOCORASICK_RS, 3, 5))
"""Competing library, and the required (floor) and desired (goal) speed ratio of a batch."""


def measure(methods: Sequence[Method], captions: list[str], seconds: float, rounds: int) -> None:
    """Measures the best time of every method. All rounds have similar durations."""
    work: list[tuple[Method, Sequence[Any], int]] = []
    for method in methods:
        probe = method.prepare(captions[:100])
        method.run(probe)  # whatever a first call builds
        began = time.process_time()
        method.run(probe)
        fitting = int(seconds / (time.process_time() - began) * 100)
        method.captions = captions[: max(100, fitting)]
        work.append((method, method.prepare(method.captions), max(1, round(fitting / len(captions)))))
    for _ in range(rounds):
        for method, data, repeats in work:
            began = time.process_time()
            for _ in range(repeats):
                method.run(data)
            method.best = min(method.best, (time.process_time() - began) / repeats)


def import_seconds() -> float:
    """Returns the wall time for importing the package and its main names in a new interpreter, as the best of five."""
    code = (
        "import time; began = time.perf_counter(); import scapo_eval; "
        "scapo_eval.Vocabulary, scapo_eval.AliasMatcher, scapo_eval.score_captions; print(time.perf_counter() - began)"
    )
    return min(float(subprocess.check_output([sys.executable, "-c", code])) for _ in range(5))


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--captions", nargs="+", metavar="FILE", help="JSON Lines with 'caption'; else invented")
    parser.add_argument("--vocabulary", default="coco80", metavar="NAME|FILE")
    parser.add_argument("--seconds", type=float, default=0.5, help="longest round of a method (default 0.5)")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--oracle", type=int, default=2000, help="captions compared with the obvious search")
    parser.add_argument("--seed", type=int, default=12345)
    options = parser.parse_args()

    vocabulary = Vocabulary.load(options.vocabulary)
    if options.captions:
        captions = [record["caption"] for path in options.captions for _, record in iter_records(path)]
        random.Random(options.seed).shuffle(captions)
    else:
        captions = invented_captions(vocabulary, 20_000, seed=options.seed)
    methods: list[Method] = []
    absent: list[tuple[str, str]] = []
    for family in FAMILIES:
        try:
            methods.extend(family(vocabulary))
        except NotInstalled as error:
            absent.append((family.__name__, str(error)))
    measure(methods, captions, options.seconds, options.rounds)
    sample = captions[: options.oracle]
    obvious = Obvious(vocabulary)
    truth = [obvious.find(text) for text in sample]

    characters = sum(map(len, captions))
    print(
        f"{len(captions):,} captions, {characters / len(captions):.0f} characters each; {vocabulary.name} with "
        f"{len(vocabulary.aliases):,} aliases and {len(vocabulary.ignore):,} ignore phrases; best of "
        f"{options.rounds} interleaved rounds, CPU time; differences over {len(sample):,} captions with "
        f"{sum(map(len, truth)):,} mentions\n"
    )
    print("| method | captions/s | MB/s | us a caption | n | captions that differ |")
    print("|---|---:|---:|---:|---:|---:|")
    differing: dict[str, int] = {}
    for method in methods:
        differ = "-"
        if method.find is not None:
            part = sample if method.per_second > 1000 else sample[:200]
            wrong = sum(a != b for a, b in zip(method.find(part), truth, strict=False))
            differing[method.name] = wrong
            differ = f"{wrong}" if part is sample else f"{wrong} of {len(part)}"
        print(
            f"| {method.name} | {method.per_second:,.0f} | {method.megabytes:.1f} | {1e6 / method.per_second:.2f} "
            f"| {len(method.captions):,} | {differ} |"
        )
    for name, remedy in absent:
        print(f"| {name} | not installed: {remedy} | | | | |")

    print()
    speed = {method.name: method.per_second for method in methods}
    reached = []
    for rival, floor, goal in RATIOS:
        if rival in speed:
            ratio = speed[SCAPO] / speed[rival]
            reached.append(ratio >= floor)
            verdict = "goal reached" if ratio >= goal else "reached" if ratio >= floor else "MISSED"
            print(f"batch / {rival}: {ratio:.1f} (floor {floor}, goal {goal}): {verdict}")
    limits = [
        ("captions on which scapo differs", sum(n for name, n in differing.items() if name.startswith("scapo")), 0, ""),
        ("one caption", 1e3 / speed[ONE], 0.3, " ms"),
        ("import", import_seconds(), 0.2, " s"),
    ]
    for name, value, limit, unit in limits:
        reached.append(value <= limit)
        print(f"{name}: {value:.3g}{unit} (at most {limit}{unit}): {'reached' if value <= limit else 'MISSED'}")
    return 0 if all(reached) else 1


if __name__ == "__main__":
    sys.exit(main())
