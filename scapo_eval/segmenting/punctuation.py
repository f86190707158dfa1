"""Detection of punctuation that ends a sentence or a clause, with rules for abbreviations, numbers, URLs and dashes."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator

MIN_WORDS = 5
"""Minimum number of words in a piece. A shorter part of a sentence is merged with its neighbor."""

SENTENCE_MARKS = ".!?\u2026\u3002\uff01\uff1f"
CLAUSE_MARKS = ",;:"
DASHES = "-\u2013\u2014"
CLOSERS = "\"'\u201d\u2019)]}\u00bb*_`"
LINE_ENDS = "\n\r\u2028\u2029"
_LINE_ENDS = frozenset(LINE_ENDS)

# A full stop after one of these never ends a sentence; after the second kind only before a capital.
ABBREVIATIONS = frozenset("mr mrs ms dr prof st mt vs eg ie e.g i.e cf ca approx incl".split())
MAY_END_A_SENTENCE = frozenset("etc jr sr inc ltd co corp al ft fig vol no a.m p.m u.s u.k d.c".split())
_ABBREVIATED = frozenset(word[-2:] for word in ABBREVIATIONS | MAY_END_A_SENTENCE)
_OPENERS = frozenset("a an the this that it its he she they there these in on at to one two".split())

# A sequence of marks, the closing quotes and brackets after it, and the following white space (group 1). Each character
# is in one unit only, so a text of marks takes no longer than prose. One class comes first, because a search for a
# class is fast; the look-behinds then identify the mark.
_UNIT = re.compile(
    rf"[{SENTENCE_MARKS}{CLAUSE_MARKS}{re.escape(DASHES)}{LINE_ENDS}]"
    rf"(?:(?<=[{SENTENCE_MARKS}])[{SENTENCE_MARKS}]*[{re.escape(CLOSERS)}]*"
    rf"|(?<=[{CLAUSE_MARKS}])[{re.escape(CLOSERS)}]*|(?<=[{re.escape(DASHES)}])[{re.escape(DASHES)}]*|)(\s*)"
)
_NEXT_WORD = re.compile(r"\W*(\w+)")
_URL = re.compile(r"(?:https?://|www\.)\S*[^\s.,;:!?)\]}'\"]")


def boundaries(text: str, starts: Iterable[int] | None = None) -> Iterator[tuple[int, bool]]:
    """Yields the boundaries at punctuation marks, including boundaries inside mentions.

    Args:
        text: Any string.
        starts: Positions of the marks to examine, each of which is the first mark in a run of marks. If ``starts`` is
            None, all marks are examined.

    Yields:
        A pair ``(offset after the white space, True if the mark ends a sentence)`` for each boundary, in text order.
    """
    urls = Urls(text)
    for unit in _UNIT.finditer(text) if starts is None else (_UNIT.match(text, start) for start in starts):
        assert unit is not None
        ends_sentence = _ends_sentence(text, unit, urls)
        if ends_sentence is not None:
            yield unit.end(), ends_sentence


def last_sentence(text: str) -> int:
    """Returns the start offset of the last sentence of a text. The search starts at the end of the text."""
    urls = Urls(text)
    first_word = len(text) - len(text.lstrip())
    for unit in reversed(list(_UNIT.finditer(text, first_word))):
        if first_word < unit.end() < len(text) and _ends_sentence(text, unit, urls):
            return unit.end()
    return 0


def _ends_sentence(text: str, unit: re.Match[str], urls: Urls) -> bool | None:
    """Returns True if a run of marks ends a sentence, False if it ends a clause, and None if it ends neither."""
    at, end = unit.start(), unit.start(1)
    space = unit[1]
    if text[at] in LINE_ENDS or (space != " " and not _LINE_ENDS.isdisjoint(space)):
        return True
    return closes(text, at, end, urls)


def closes(text: str, at: int, end: int, urls: Urls) -> bool | None:
    """Returns True if the marks between two offsets end a sentence, False if the marks end only a clause, and None
    otherwise.
    """
    mark = text[at]
    if mark in DASHES:
        return False if _parts_clauses(text, at, end, urls) else None
    glued = end < len(text) and not text[end].isspace()
    if mark in CLAUSE_MARKS:
        return None if glued else False
    if glued and not _glued_sentence(text, at, end, urls):
        return None
    single = at + 1 == len(text) or text[at + 1] not in SENTENCE_MARKS
    return None if mark == "." and single and _is_abbreviation(text, at) else True


def _parts_clauses(text: str, at: int, end: int, urls: Urls) -> bool:
    """Returns True if a run of dashes separates clauses, that is, if it is an em dash or ``--`` between words, or
    another dash between spaces.
    """
    before = _before(text, at, " \t")
    if not before or before.isspace() or end == len(text):
        return False
    long = text[at] == "\u2014" or end - at == 2
    digits = text[at - 1].isdigit() and text[end].isdigit()
    spaced = text[at - 1].isspace() and text[end].isspace() and end - at == 1
    return ((long and not digits) or spaced) and at not in urls


def _glued_sentence(text: str, at: int, end: int, urls: Urls) -> bool:
    """Returns True if a sentence ends at a mark without a following space, as in ``...on a table.The cat``, or at an
    ideographic mark.
    """
    if text[at] in "\u3002\uff01\uff1f":
        return True
    word = text[max(0, at - 2) : at]
    return len(word) == 2 and word.isalpha() and word.islower() and text[end].isupper() and at not in urls


class Urls:
    """URLs in a text, which are located when they are first needed."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._spans: list[tuple[int, int]] | None = None

    def __contains__(self, at: int) -> bool:
        """Returns True if a position lies in a URL."""
        if self._spans is None:
            may = "://" in self._text or "www." in self._text
            self._spans = [match.span() for match in _URL.finditer(self._text)] if may else []
        if not self._spans:
            return False
        k = bisect_right(self._spans, (at, len(self._text))) - 1
        return k >= 0 and at < self._spans[k][1]


def _is_abbreviation(text: str, at: int) -> bool:
    """Returns True if the period at ``at`` belongs to an abbreviation, an initial or a list number."""
    ending = text[max(at - 2, 0) : at]
    if len(ending) == 2 and ending.isalpha() and ending.lower() not in _ABBREVIATED:
        return False  # most words, which are recognized by their last two letters
    if ending[:1] == " " and ending[1:].isdecimal():  # a number with one digit
        return _begins_line(text, at - 1)
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
        return _begins_line(text, begin)
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


def _begins_line(text: str, at: int) -> bool:
    """Returns True if only spaces and Markdown marks precede the position ``at`` in its line."""
    while at and text[at - 1] in " \t*#(":
        at -= 1
    return not at or text[at - 1] in "\n\r"


def _word_begin(text: str, end: int) -> int:
    """Returns the start of the run of letters and digits that ends at ``end``."""
    while end and text[end - 1].isalnum():
        end -= 1
    return end


def _before(text: str, at: int, skipped: str) -> str:
    """Returns the last character before ``at`` that is not in ``skipped``, or an empty string if there is none."""
    while at and text[at - 1] in skipped:
        at -= 1
    return text[at - 1 : at] if at else ""
