"""The rule ``discourse``, which segments text from recent models, including Markdown, into clause-sized units.

Each unit is an elementary discourse unit, that is, a clause with its own claims. A unit can end only at a punctuation
mark, and the surrounding words determine whether the unit ends there. The rule does not cut between consecutive
adjectives, between subject and verb, or between list items that are not clauses. ``benchmarks/gold/CUTS.md`` defines
correct cuts, and ``docs/specification.md#subsentences`` reports the accuracy of the rule. The run time is linear in the
length of the text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from ..base.text import lower_in_place
from .punctuation import CLOSERS, DASHES, LINE_ENDS, MIN_WORDS, Urls, closes

WIDE_SENTENCE_MARKS = (
    "\u3002\uff01\uff1f\uff61\uff0e\u061f\u06d4\u0964\u0965"  # Chinese, full width, Arabic, Devanagari
)
WIDE_CLAUSE_MARKS = "\uff0c\uff1b\uff1a\u060c\u061b"  # the ideographic enumeration comma does not cut a list
WIDE_QUOTES = "\uff08\uff09\u300c\u300d\u300e\u300f"
_IDEOGRAPH = re.compile("[\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff]")
_IDEOGRAPHS = re.compile(_IDEOGRAPH.pattern + "+")

_MARK = re.compile(
    rf"[.!?\u2026{WIDE_SENTENCE_MARKS},;:{WIDE_CLAUSE_MARKS}{re.escape(DASHES)}]"
    rf"(?:(?<=[.!?\u2026{WIDE_SENTENCE_MARKS}])[.!?\u2026{WIDE_SENTENCE_MARKS}]*[{re.escape(CLOSERS)}\u300d\u300f\uff09]*"
    rf"|(?<=[,;:{WIDE_CLAUSE_MARKS}])[{re.escape(CLOSERS)}]*|(?<=[{re.escape(DASHES)}])[{re.escape(DASHES)}]*|)(\s*)"
)
_LINE = re.compile(rf"\S[^{LINE_ENDS}]*")  # without leading white space; lines of white space are skipped
_LIST_MARKER = re.compile(r"(?:[-*+\u2022]|\d{1,3}[.)])(?=\s)")
_BOLD_LINE = re.compile(r"\W{0,8}(?:\*\*|__)[^*_]{1,80}(?:\*\*|__)(:?)\s*")
_QUOTE = re.compile(
    r"\([^()\n]{0,200}\)|\"(?<!\w\")[^\"\n]{1,80}\"|\u201c[^\u201d\n]{1,80}\u201d|`[^`\n]{1,80}`"
    "|\uff08[^\uff08\uff09\n]{0,200}\uff09|\u300c[^\u300d\n]{1,80}\u300d|\u300e[^\u300f\n]{1,80}\u300f"
)
LINE_END = re.compile(rf"[{LINE_ENDS}]")
_HASHES = re.compile(r"#{1,6}\s")
_FENCE = re.compile(r"\s*(?:```|~~~)\w*\s*")
_WORDS = re.compile(r"[^\W_]+(?:[^\w\s][^\W_]+)*")
_ASCII_WORDS = re.compile(r"[a-z0-9]+(?:[^\w\s][a-z0-9]+)*")  # the same pattern for lower-case ASCII, which is faster
_WORD = re.compile(r"[^\W_]")
_ENDS = frozenset(".!?\u2026:;" + WIDE_SENTENCE_MARKS + "\uff1a\uff1b")
MOST_MARKS = 100
"""Maximum number of clause marks in a sentence. A sentence with more marks is not prose, and is not cut."""

WRAPPED_FROM = 40
"""Minimum length in characters of a line that may continue in the next line."""

# Word lists: closed classes, and the verbs of image descriptions that connect a subject to its description.
RELATIVES = frozenset("which who whose whom that what where when".split())
CONJUNCTIONS = frozenset(
    "and but or nor yet so while whereas although though as because since if unless until then".split()
)
PREPOSITIONS = frozenset(
    "about above across after against ahead along among around at away before behind below beneath beside between "
    "beyond by down during for from in inside into near next of off on onto out outside over through to toward towards "
    "under underneath up upon with within without".split()
)
PLACES = PREPOSITIONS - {"of", "for", "as", "about", "after", "before", "during"}
DETERMINERS = frozenset(
    "a an the this these those its their his her my our your some any no each every another both all several many one "
    "two three four five more".split()
)
OWN = frozenset("its their his her each one another some both all most".split())
AFTER_PARTICIPLE = PREPOSITIONS | DETERMINERS | frozenset("it them him that as how and what if".split())
PARTICIPLES = frozenset(
    "adding allowing appearing casting capturing carrying conveying covering creating displaying emphasizing enhancing "
    "featuring forming giving hinting highlighting holding implying indicating leading leaving looking making matching "
    "offering providing reflecting revealing showcasing showing suggesting surrounding using wearing".split()
)
IRREGULAR = frozenset(
    "bent built caught cut drawn given held hidden hung known laid left lit made seen set shown spread taken thrown "
    "torn worn woven written".split()
)
NO_PARTICIPLES = frozenset(
    "building ceiling clothing during evening including morning nothing something string anything everything being "
    "railing lighting painting flooring paneling".split()
)
MODALS = frozenset("to can could may might must will would shall should cannot can't do does did don't doesn't".split())
_BASE_VERBS = frozenset(
    "add appear complement contain convey create enhance fill give have include indicate make provide represent "
    "resemble seem show stand suggest surround".split()
)
FINITE = _BASE_VERBS | frozenset(
    "is are was were am has had does do did can could may might must will would shall should cannot isn't aren't "
    "wasn't weren't doesn't don't can't "
    "adds allows appears begins belongs blends brings captures carries casts catches comes complements connects "
    "consists contains contrasts conveys corresponds creates curves depicts displays divides dominates draws "
    "emphasizes ends enhances evokes extends exudes features fills focuses gets gives goes grows hangs highlights "
    "hints holds includes indicates keeps leads leans lends lies looks makes matches means narrows occupies overlooks "
    "climbs crosses drinks drives eats enters grazes jumps moves poses pulls pushes shines sleeps swims waits "
    "plays provides reads reflects remains represents resembles rests rides rises runs seems separates serves sets "
    "shows sits spans stands stretches suggests supports surrounds takes walks wears".split()
)
_NEVER_LAST = frozenset("a an the of and or in on at with to from for by is are was were its their his her".split())
ADVERBS = frozenset("also further possibly perhaps likely then still just both all each almost".split())
FRONTED = frozenset("given more based overall here".split())
SHORT = 3
"""Maximum number of words after which a conjunction is merged with the clause behind its comma."""
PRONOUNS = frozenset("they he she we i".split())
SUBJECTS = frozenset("it there that here what who you let this".split()) | PRONOUNS
_CONTRACTED = frozenset(subject + clitic for subject in SUBJECTS for clitic in ("'s", "'re", "'ve", "'ll", "'d"))
KINDS = (
    dict.fromkeys(DETERMINERS, "determiner")
    | dict.fromkeys(RELATIVES, "relative")
    | dict.fromkeys(FINITE | _CONTRACTED, "verb")
    | dict.fromkeys(_BASE_VERBS, "base")
    | dict.fromkeys(PRONOUNS, "pronoun")
)


class Chunk(NamedTuple):
    """The words between two consecutive clause marks of a sentence.

    Attributes:
        begin: Offset of the chunk's first character.
        mark: Punctuation mark before the chunk, or an empty string for the first chunk of a sentence.
        n_words: Number of words in the chunk. Two ideographs count as one word.
        words: Words of the chunk in lower case.
        finite: Number of finite verbs in the chunk.
        relative: Number of relative words, such as *which*, in the chunk.
    """

    begin: int
    mark: str
    n_words: int
    words: list[str]
    finite: int
    relative: int

    @property
    def is_clause(self) -> bool:
        """True if the chunk has a finite verb outside of relative clauses."""
        return self.finite > self.relative


def discourse_cuts(text: str, mentions: Sequence[tuple[int, int]]) -> list[tuple[int, bool]]:
    """Returns all cuts that are strictly inside the text and outside of mentions, each as a pair ``(offset, True if the
    cut ends a sentence)``.
    """
    quotes, parted = _Spans(quotes_of(text)), _Spans(mentions)
    urls, lowered = Urls(text), lower_in_place(text.replace("\u2019", "'"))
    cuts: list[tuple[int, bool]] = []
    for begin, prose, end in blocks_of(text):
        if begin and not parted.hold(begin):
            cuts.append((begin, True))
        sentence, clauses = prose, list[tuple[int, str]]()
        word = _WORD.search(text, prose, end)  # the next word; without it there are no further cuts
        for offset, mark, ends_sentence in _marks(text, prose, end, quotes, urls):
            if word is None:
                break
            if parted.hold(offset) or word.start() >= offset:
                continue
            if not ends_sentence:
                clauses.append((offset, mark))
                continue
            word = _WORD.search(text, offset, end)
            if word is not None:
                if clauses:
                    cuts += _clause_cuts(lowered, sentence, offset, clauses)
                    clauses = []
                cuts.append((offset, True))
                sentence = offset
        if clauses:
            cuts += _clause_cuts(lowered, sentence, end, clauses)
    return cuts


def quotes_of(text: str) -> list[tuple[int, int]]:
    """Returns the spans of bracketed and quoted text, which is never cut."""
    return [match.span() for match in _QUOTE.finditer(text)]


def has_words(piece: str) -> bool:
    """Returns True if a piece contains a letter or a digit. The language name after a code fence does not count."""
    return not _FENCE.fullmatch(piece) and _WORD.search(piece) is not None


class _Spans:
    """Sorted spans that are queried at ascending positions."""

    def __init__(self, spans: Sequence[tuple[int, int]]) -> None:
        self._spans = iter(spans)
        self._next = next(self._spans, None)
        self._end = 0

    def hold(self, at: int) -> bool:
        """Returns True if a position is strictly inside a span."""
        while self._next is not None and self._next[0] < at:
            self._end = max(self._end, self._next[1])
            self._next = next(self._spans, None)
        return at < self._end


def blocks_of(text: str) -> Iterator[tuple[int, int, int]]:
    """Yields ``(begin, begin of its prose, end)`` for each block, which is a paragraph, a list item, a table row, or
    lines without words.

    A line that continues a sentence belongs to the same block as the previous line. A heading, a label or the header of
    a table belongs to the following block. The first block begins at offset 0, and each other block begins at the end
    of the previous block. For a block without prose, the second value is the end of the block.
    """
    if LINE_END.search(text) is None:
        yield 0, 0, len(text)
        return
    lines = [_Line.of(match) for match in _LINE.finditer(text)]
    for k, (line, following) in enumerate(zip(lines, lines[1:], strict=False)):
        if line.kind == "row" and following.kind == "delimiter":
            lines[k] = line._replace(kind="heading")
            lines[k + 1] = following._replace(kind="heading")
    begin = 0
    prose = None
    for k, line in enumerate(lines):
        if k and not _goes_on(text, lines[k - 1], line):
            yield begin, line.begin if prose is None else prose, line.begin
            begin, prose = line.begin, None
        if prose is None and line.kind in ("prose", "item"):
            prose = line.begin
    yield begin, len(text) if prose is None else prose, len(text)


class _Line(NamedTuple):
    """Line of a text that contains characters other than white space.

    Attributes:
        begin, end: Offset of the line's first character that is not white space, and offset after the last such
            character.
        kind: Kind of the line, which is ``prose``, ``item`` (of a list), ``heading`` (including labels), ``row`` or
            ``delimiter`` (of a table), or ``empty`` (no words).
    """

    begin: int
    end: int
    kind: str

    @classmethod
    def of(cls, match: re.Match[str]) -> _Line:
        """Classifies a line and returns its record."""
        line = match[0].rstrip()
        return cls(match.start(), match.start() + len(line), _kind(line))


def _kind(line: str) -> str:
    if line.startswith("|"):
        return "row" if _WORD.search(line) else "delimiter"
    if not has_words(line):
        return "empty"
    if _HASHES.match(line) or _BOLD_LINE.fullmatch(line):
        return "heading"
    is_item = _LIST_MARKER.match(line) is not None
    if line.rstrip("*_ ").endswith((":", "\uff1a")):
        words = line.split(maxsplit=MIN_WORDS + 1)
        if sum(_WORD.search(word) is not None for word in words) - is_item * line[0].isdigit() < MIN_WORDS:
            return "heading"
    return "item" if is_item else "prose"


def _goes_on(text: str, line: _Line, following: _Line) -> bool:
    """Returns True if two lines must not be separated, because they are a heading and the text below it, or parts of
    the same sentence.
    """
    if line.kind == "heading":
        return True
    if following.kind != "prose" or line.kind not in ("prose", "item") or text[following.begin] == ">":
        return False
    gap = text[line.end : following.begin]
    if sum(gap.count(end) for end in "\n\u2028\u2029") + gap.count("\r") - gap.count("\r\n") > 1:
        return False  # a blank line
    last = text[line.end - 1]
    if last in ",\uff0c\u3001" or text[line.begin : line.end].rsplit(maxsplit=1)[-1].lower() in _NEVER_LAST:
        return True
    first = text[following.begin]
    long_enough = line.end - line.begin >= WRAPPED_FROM
    return long_enough and (first.islower() or first.isdigit()) and last not in _ENDS and last not in CLOSERS


def _marks(text: str, begin: int, end: int, quotes: _Spans, urls: Urls) -> Iterator[tuple[int, str, bool]]:
    """Yields a tuple ``(offset after the white space, mark, True if the mark ends a sentence)`` for each mark of a
    block that is outside of quotations.
    """
    for unit in _MARK.finditer(text, begin, end):
        at, offset = unit.span()
        mark = text[at]
        quoted = quotes.hold(at)
        if offset >= end or quotes.hold(offset):
            continue
        if mark in WIDE_SENTENCE_MARKS:
            yield offset, mark, True
        elif mark in WIDE_CLAUSE_MARKS:
            yield offset, mark, False
        else:
            ends_sentence = closes(text, at, unit.start(1), urls)
            if ends_sentence is None or (ends_sentence and quoted and text[offset].islower()):
                continue
            yield offset, mark, ends_sentence


def _clause_cuts(lowered: str, begin: int, end: int, marks: Sequence[tuple[int, str]]) -> list[tuple[int, bool]]:
    """Returns the cuts of a sentence, which are the positions after the clause marks at which a new unit begins."""
    if len(marks) > MOST_MARKS:
        return []
    places = [(begin, ""), *marks]
    ends = [*(offset for offset, _ in marks), end]
    chunks = [_chunk(lowered, at, until, mark) for (at, mark), until in zip(places, ends, strict=True)]
    opens = _openings(chunks)
    kept = []
    n_before = n_own = 0  # number of words in the sentence so far, and since the last opening
    waiting: int | None = None
    for chunk, is_opening in zip(chunks, opens, strict=True):
        if is_opening:
            if waiting is not None and n_own >= MIN_WORDS:
                kept.append((waiting, False))
            waiting = chunk.begin if n_before >= MIN_WORDS else None
            n_own = 0
        n_own += chunk.n_words
        n_before += chunk.n_words
    if waiting is not None and n_own >= MIN_WORDS:
        kept.append((waiting, False))
    return kept


def _chunk(lowered: str, begin: int, end: int, mark: str) -> Chunk:
    is_ascii = lowered.isascii()
    words = (_ASCII_WORDS if is_ascii else _WORDS).findall(lowered, begin, end)
    n_words = len(words)
    if not is_ascii and _IDEOGRAPH.search(lowered, begin, end) is not None:
        n_words += sum(map(len, _IDEOGRAPHS.findall(lowered, begin, end))) // 2
    finite = relative = 0
    for k in [k for k, word in enumerate(words) if word in KINDS]:
        kind = KINDS[words[k]]
        if kind == "determiner":
            finite += k > 0 and _may_be_verb(words[k - 1])
        elif kind == "verb":
            finite += 1
        elif kind == "base":
            finite += k == 0 or words[k - 1] not in MODALS
        elif k + 1 < len(words):
            if kind == "relative":
                relative += 1
            else:  # a pronoun before a word of no other kind
                finite += KINDS.get(words[k + 1], "pronoun") == "pronoun"
    return Chunk(begin, mark, n_words, words, finite, relative)


def _may_be_verb(word: str) -> bool:
    """Returns True if the word before a determiner may be a verb ending in -s that no word list contains, as in ``spans
    the``.
    """
    return len(word) > 3 and word[-1] == "s" and word[-2] not in "su'" and word not in PREPOSITIONS


def _openings(chunks: Sequence[Chunk]) -> list[bool]:
    """Returns one Boolean per chunk of a sentence: True if a unit may begin with the chunk."""
    opens = [False] * len(chunks)
    complete = False  # True after a clause with its verb
    verbs = relatives = 0
    for k, chunk in enumerate(chunks):
        following = chunks[k + 1] if k + 1 < len(chunks) else None
        if complete or chunk.mark in WIDE_CLAUSE_MARKS:
            opens[k] = _opens(chunk, chunks[k - 1], following) and not _continues(following)
        elif k and following is None:  # a phrase without a verb, with a modifier at its end
            opens[k] = chunk.mark == "," and (_modifies(chunk.words) or (k == 1 and _coordinates(chunks[0], chunk)))
        verbs += chunk.finite
        relatives += chunk.relative
        complete = verbs > relatives
    if len(chunks) > 2:
        for head, stop in _lists(chunks, opens):
            opens[head + 1 : stop] = [True] * (stop - head - 1)
    return opens


def _coordinates(chunk: Chunk, following: Chunk) -> bool:
    """Returns True if a conjunction joins a clause to the first chunk, as in ``It naps, and it is ...``. The verb of
    the first chunk does not have to be in a word list.
    """
    begins = bool(chunk.words) and (chunk.words[0] in DETERMINERS or chunk.words[0] in SUBJECTS)
    return begins and following.is_clause and following.words[0] in CONJUNCTIONS


def _continues(following: Chunk | None) -> bool:
    """Returns True if the following chunk continues an interrupted clause, that is, if the chunk begins with a finite
    verb.
    """
    return following is not None and bool(following.words) and following.words[0] in FINITE


def _opens(chunk: Chunk, previous: Chunk, following: Chunk | None) -> bool:
    """Returns True if a chunk after a clause is itself a clause, or a modifier with its own claims."""
    words = chunk.words
    if chunk.mark != ",":  # a semicolon, colon or dash after a clause, except as in ``but no - they are``
        return not (previous.words and previous.words[0] in CONJUNCTIONS and len(previous.words) <= SHORT)
    if not words:
        return False
    first = words[0]
    if first in CONJUNCTIONS:
        if chunk.is_clause or words[:2] in (["as", "if"], ["as", "though"]):
            return True
        return following is not None and following.is_clause and _waits(words, following.words[0])
    if chunk.is_clause and (first in DETERMINERS or first in SUBJECTS or first in PRONOUNS) and previous.finite:
        return True
    return _modifies(words)


def _waits(words: Sequence[str], following: str) -> bool:
    """Returns True if the words between a conjunction and a comma only introduce the clause that follows the comma."""
    if len(words) <= SHORT or words[1] in PREPOSITIONS or words[1] in FRONTED or words[1].endswith("ly"):
        return True
    return len(words) <= MIN_WORDS and words[1] in DETERMINERS and following not in DETERMINERS


def _modifies(words: Sequence[str]) -> bool:
    """Returns True if the words form a modifier with claims of its own, that is, a relative clause, a participial
    phrase, an absolute phrase, or a phrase that begins with *with*.
    """
    if not words:
        return False
    first = words[0]
    if first in RELATIVES or "which" in words[1:4] or "whom" in words[1:4] or first in ("with", "without"):
        return True
    if first in OWN and any(word == "with" or word.endswith(("ing", "ed")) for word in words[1:8]):
        return True
    return _is_participle(words)


def _is_participle(words: Sequence[str]) -> bool:
    """Returns True if a phrase begins with a participle, optionally preceded by adverbs."""
    k = 0
    while k < min(2, len(words) - 1) and (words[k] in ADVERBS or words[k].endswith("ly")):
        k += 1
    word, following = words[k], words[k + 1] if k + 1 < len(words) else ""
    if word.endswith("ing"):
        known = word in PARTICIPLES
        return word not in NO_PARTICIPLES and (known or following in AFTER_PARTICIPLE or following.endswith("ly"))
    return (word.endswith("ed") or word in IRREGULAR) and following in PREPOSITIONS


def _lists(chunks: Sequence[Chunk], opens: Sequence[bool]) -> Iterator[tuple[int, int]]:
    """Yields the bounds ``(chunk before, stop)`` of each list that follows the chunk at which a unit begins, if every
    item of the list specifies a location.
    """
    k = 1
    while k < len(chunks):
        head = k
        k += 1
        if not opens[head] or not _is_located(chunks[head]):
            continue
        while k < len(chunks) and not opens[k] and _is_item(chunks[k]):
            k += 1
            if chunks[k - 1].words[0] in ("and", "or"):
                yield head, k
                break


def _is_item(chunk: Chunk) -> bool:
    """Returns True if a chunk can be an item of a list in which each item specifies a location."""
    if chunk.mark != "," or not _is_located(chunk):
        return False
    return chunk.words[0] in DETERMINERS or chunk.words[0] in ("and", "or")


def _is_located(chunk: Chunk) -> bool:
    """Returns True if a chunk is as long as a clause and specifies a location."""
    return chunk.n_words >= MIN_WORDS and not PLACES.isdisjoint(chunk.words[2:])
