"""From a response to its subsentences, under named rules.

Spans partition the text exactly; white space belongs to the span before it. This is the definition, one text at a time
and in time linear in its length; ``segment_batch.py`` gives the same for many. The rules:
``docs/specification.md#subsentences``.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from typing import get_args

from .errors import InputError
from .types import Mention, Rule, Subsentence

MIN_WORDS = 5
"""A piece with fewer white-space chunks is merged into its neighbor (rule ``subsentence``)."""

RULES: tuple[Rule, ...] = get_args(Rule)

SENTENCE_MARKS = ".!?\u2026\u3002\uff01\uff1f"
CLAUSE_MARKS = ",;:"
DASHES = "-\u2013\u2014"
CLOSERS = "\"'\u201d\u2019)]}\u00bb*_`"
LINE_ENDS = "\n\r\u2028\u2029"
_LINE_ENDS = frozenset(LINE_ENDS)

# A full stop after one of these never ends a sentence; after the second kind only before a capital.
ABBREVIATIONS = frozenset("mr mrs ms dr prof st mt vs eg ie e.g i.e cf ca approx incl".split())
MAY_END_A_SENTENCE = frozenset("etc jr sr inc ltd co corp al ft fig vol no a.m p.m u.s u.k d.c".split())
_OPENERS = frozenset("a an the this that it its he she they there these in on at to one two".split())

# A run of marks, the closing quotes and brackets behind it, and the white space behind those (group 1). No character is
# in two units, so a text of nothing but marks takes no longer than prose. One class comes first, because a search for
# one of a class is fast; the look-behinds then tell which mark it was.
_UNIT = re.compile(
    rf"[{SENTENCE_MARKS}{CLAUSE_MARKS}{re.escape(DASHES)}{LINE_ENDS}]"
    rf"(?:(?<=[{SENTENCE_MARKS}])[{SENTENCE_MARKS}]*[{re.escape(CLOSERS)}]*"
    rf"|(?<=[{CLAUSE_MARKS}])[{re.escape(CLOSERS)}]*|(?<=[{re.escape(DASHES)}])[{re.escape(DASHES)}]*|)(\s*)"
)
_NEXT_WORD = re.compile(r"\W*(\w+)")
_URL = re.compile(r"(?:https?://|www\.)\S*[^\s.,;:!?)\]}'\"]")


def split_subsentences(
    text: str, rule: Rule = "subsentence", mentions: Sequence[Mention] | None = None
) -> list[Subsentence]:
    """Cuts one text into pieces.

    Args:
        text: any string.
        rule: ``subsentence`` (default), ``sentence``, ``clause``, ``object`` or ``response``.
        mentions: of the text, in order; no boundary falls inside one. Needed by ``object``.

    Returns:
        Pieces that partition the text; none for an empty text.

    Raises:
        InputError: an unknown rule, or ``object`` without mentions.
    """
    check_rule(rule, mentions is not None)
    if not text:
        return []
    inside = [(mention.start, mention.end) for mention in mentions or ()]
    cuts = [cut for cut, _ in cuts_of(text, rule, inside)]
    return [Subsentence(start, end) for start, end in zip([0, *cuts], [*cuts, len(text)], strict=True)]


def check_rule(rule: str, has_mentions: bool) -> None:
    """Raises InputError for an unknown rule, or ``object`` without mentions."""
    if rule not in RULES:
        raise InputError(f"unknown segmentation rule '{rule}'; known: {', '.join(RULES)}")
    if rule == "object" and not has_mentions:
        raise InputError("the rule 'object' needs the mentions of the text")


def cuts_of(text: str, rule: Rule, mentions: Sequence[tuple[int, int]]) -> list[tuple[int, bool]]:
    """``(offset, ends a sentence)`` of every cut strictly inside the text."""
    if rule == "response":
        return []
    if rule == "object":
        return [(end, False) for _, end in mentions[:-1]]
    first_word = len(text) - len(text.lstrip())
    cuts: list[tuple[int, bool]] = []
    n_before = mention_end = 0  # mentions that begin before a boundary, and where the last of them ends
    for offset, ends_sentence in boundaries(text):
        while n_before < len(mentions) and mentions[n_before][0] < offset:
            mention_end = max(mention_end, mentions[n_before][1])
            n_before += 1
        if first_word < offset < len(text) and mention_end <= offset:
            cuts.append((offset, ends_sentence))
    if rule == "sentence":
        return [cut for cut in cuts if cut[1]]
    return cuts if rule == "clause" else _merged(text, cuts)


def _merged(text: str, cuts: list[tuple[int, bool]]) -> list[tuple[int, bool]]:
    """Short pieces joined to the piece before them in their sentence, a short first piece to the next.

    A cut between clauses stays when the piece after it is long enough and the sentence before it is, too:
    a long piece starts a new group unless all that came before in its sentence is one short group.
    """
    kept: list[tuple[int, bool]] = []
    sentence_words = 0
    begin = 0
    ends = [*(offset for offset, _ in cuts), len(text)][1:]
    for (offset, sentence), end in zip(cuts, ends, strict=True):
        sentence_words += len(text[begin:offset].split())
        if sentence:
            sentence_words = 0
            kept.append((offset, True))
        elif sentence_words >= MIN_WORDS and len(text[offset:end].split()) >= MIN_WORDS:
            kept.append((offset, False))
        begin = offset
    return kept


def boundaries(text: str, starts: Iterable[int] | None = None) -> Iterator[tuple[int, bool]]:
    """Where punctuation closes a piece, inside a mention or not.

    Args:
        text: any string.
        starts: positions of marks, each the first of its run, to ask about alone; None: all marks.

    Yields:
        ``(offset after the white space, ends a sentence)``, in the order of the marks.
    """
    urls = _Urls(text)
    for unit in _UNIT.finditer(text) if starts is None else (_UNIT.match(text, start) for start in starts):
        assert unit is not None
        ends_sentence = _ends_sentence(text, unit, urls)
        if ends_sentence is not None:
            yield unit.end(), ends_sentence


def _ends_sentence(text: str, unit: re.Match[str], urls: _Urls) -> bool | None:
    """Whether a unit ends a sentence (True) or a clause (False); None if it closes nothing."""
    at, end = unit.start(), unit.start(1)
    mark, space = text[at], unit[1]
    if mark in LINE_ENDS or (space != " " and not _LINE_ENDS.isdisjoint(space)):
        return True
    if mark in DASHES:
        return False if _parts_clauses(text, at, end, urls) else None
    glued = not space and end < len(text)
    if mark in CLAUSE_MARKS:
        return None if glued else False
    if glued and not _glued_sentence(text, at, end, urls):
        return None
    single = at + 1 == len(text) or text[at + 1] not in SENTENCE_MARKS
    return None if mark == "." and single and _is_abbreviation(text, at) else True


def _parts_clauses(text: str, at: int, end: int, urls: _Urls) -> bool:
    """A dash between clauses: an em dash or ``--`` anywhere between words, others between spaces."""
    before = _before(text, at, " \t")
    if not before or before.isspace() or end == len(text):
        return False
    long = text[at] == "\u2014" or end - at == 2
    digits = text[at - 1].isdigit() and text[end].isdigit()
    spaced = text[at - 1].isspace() and text[end].isspace() and end - at == 1
    return ((long and not digits) or spaced) and at not in urls


def _glued_sentence(text: str, at: int, end: int, urls: _Urls) -> bool:
    """``...on a table.The cat``: a sentence end whose space is missing; an ideographic one needs none."""
    if text[at] in "\u3002\uff01\uff1f":
        return True
    word = text[max(0, at - 2) : at]
    return len(word) == 2 and word.isalpha() and word.islower() and text[end].isupper() and at not in urls


class _Urls:
    """The URLs of a text, looked for when first asked about."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._spans: list[tuple[int, int]] | None = None

    def __contains__(self, at: int) -> bool:
        """Whether a position lies in a URL."""
        if self._spans is None:
            may = "://" in self._text or "www." in self._text
            self._spans = [match.span() for match in _URL.finditer(self._text)] if may else []
        k = bisect_right(self._spans, (at, len(self._text))) - 1
        return k >= 0 and at < self._spans[k][1]


def _is_abbreviation(text: str, at: int) -> bool:
    """Whether the full stop at ``at`` belongs to an abbreviation, an initial or a list number."""
    begin = _word_begin(text, at)
    if begin == at:
        return False
    if begin > 1 and text[begin - 1] == "." and text[begin - 2].isalnum():  # "e.g", "a.m"
        begin = _word_begin(text, begin - 1)
    word = text[begin:at].lower()
    while begin and text[begin - 1] == ".":
        begin -= 1
    if begin and text[begin - 1].isalnum():  # "a..b", "a.b.c"
        return False
    if word.isdecimal():  # "1. A dog": the number of a list item, at the beginning of a line
        return _before(text, begin, " \t*#(") in ("", "\n", "\r")
    if word in ABBREVIATIONS:
        return True
    initial = len(word) == 1 and text[at - 1].isupper() and word != "i"  # J. Smith, but not: the letter E. The ...
    if not initial and word not in MAY_END_A_SENTENCE:
        return False
    following = _NEXT_WORD.match(text, at + 1)
    name = following.group(1) if following else ""
    if word in MAY_END_A_SENTENCE:
        return bool(name) and not name[0].isupper()
    return name[:1].isupper() and name.lower() not in _OPENERS


def _word_begin(text: str, end: int) -> int:
    """Where the letters and digits that end at ``end`` begin."""
    while end and text[end - 1].isalnum():
        end -= 1
    return end


def _before(text: str, at: int, skipped: str) -> str:
    """The character before ``at`` that is none of those to be skipped; empty at the beginning of the text."""
    while at and text[at - 1] in skipped:
        at -= 1
    return text[at - 1 : at] if at else ""
