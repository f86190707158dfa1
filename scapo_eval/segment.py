"""From a response to its subsentences, under named rules.

Spans partition the text exactly; white space belongs to the span before it. This is the definition, one text at a time;
``segment_batch.py`` gives the same for many. The rules: ``docs/specification.md#subsentences``.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import get_args

from .errors import InputError
from .types import Mention, Rule, Subsentence

MIN_WORDS = 5
"""A piece with fewer white-space chunks is merged into its neighbor (rule ``subsentence``)."""

RULES: tuple[Rule, ...] = get_args(Rule)

_SENTENCE_END = ".!?\u2026\u3002\uff01\uff1f"
_CLAUSE_END = ",;:"
DASHES = "-\u2013\u2014"
CLOSERS = "\"'\u201d\u2019)]}\u00bb*_`"

# A full stop after one of these never ends a sentence; after the second kind only before a capital.
ABBREVIATIONS = frozenset("mr mrs ms dr prof st mt vs eg ie e.g i.e cf ca approx incl".split())
MAY_END_A_SENTENCE = frozenset("etc jr sr inc ltd co corp al ft fig vol no a.m p.m u.s u.k d.c".split())
_OPENERS = frozenset("a an the this that it its he she they there these in on at to one two".split())

_CANDIDATE = re.compile(f"[{re.escape(_SENTENCE_END + _CLAUSE_END + DASHES)}\n\r\u2028\u2029]")
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
    found = dict[int, bool]()
    for match in _CANDIDATE.finditer(text):
        boundary = boundary_at(text, match.start())
        if boundary is not None:
            offset, sentence = boundary
            found[offset] = found.get(offset, False) or sentence
    first_word = len(text) - len(text.lstrip())
    cuts = [
        (offset, sentence)
        for offset, sentence in sorted(found.items())
        if first_word < offset < len(text) and not any(start < offset < end for start, end in mentions)
    ]
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


def boundary_at(text: str, at: int) -> tuple[int, bool] | None:
    """``(offset after the white space, ends a sentence)`` if the character at ``at`` closes a piece."""
    character = text[at]
    if character in "\n\r\u2028\u2029":
        return _after_space(text, at), True
    if character in DASHES:
        return _dash_boundary(text, at)
    end = at + 1
    single = end == len(text) or text[end] not in _SENTENCE_END
    if character in _SENTENCE_END:
        while end < len(text) and text[end] in _SENTENCE_END:
            end += 1
        if text[at - 1 : at] and text[at - 1] in _SENTENCE_END:
            return None  # the first mark of a run speaks for all of it
    while end < len(text) and text[end] in CLOSERS:
        end += 1
    glued = end < len(text) and not text[end].isspace()
    if character in _CLAUSE_END:
        return None if glued else (_after_space(text, end), False)
    if glued and not _glued_sentence(text, at, end):
        return None
    if character == "." and single and _is_abbreviation(text, at):
        return None
    return _after_space(text, end), True


def _after_space(text: str, at: int) -> int:
    while at < len(text) and text[at].isspace():
        at += 1
    return at


def _dash_boundary(text: str, at: int) -> tuple[int, bool] | None:
    """A dash between clauses: an em dash or ``--`` anywhere between words, others between spaces."""
    end = at + 1
    while end < len(text) and text[end] in DASHES:
        end += 1
    if text[at - 1 : at] and text[at - 1] in DASHES:
        return None
    before = text[:at].rstrip(" \t")[-1:]
    if not before or before.isspace() or end == len(text) or _in_url(text, at):
        return None
    long = text[at] == "\u2014" or end - at == 2
    digits = text[at - 1].isdigit() and text[end].isdigit()
    spaced = text[at - 1].isspace() and text[end].isspace() and end - at == 1
    if (long and not digits) or spaced:
        return _after_space(text, end), False
    return None


def _glued_sentence(text: str, at: int, end: int) -> bool:
    """``...on a table.The cat``: a sentence end whose space is missing; an ideographic one needs none."""
    if text[at] in "\u3002\uff01\uff1f":
        return True
    word = text[max(0, at - 2) : at]
    return len(word) == 2 and word.isalpha() and word.islower() and text[end].isupper() and not _in_url(text, at)


def _in_url(text: str, at: int) -> bool:
    begin = max(text.rfind(" ", 0, at), text.rfind("\n", 0, at)) + 1
    return any(m.start() <= at < m.end() for m in _URL.finditer(text, begin, min(len(text), at + 300)))


def _is_abbreviation(text: str, at: int) -> bool:
    """Whether the full stop at ``at`` belongs to an abbreviation, an initial or a list number."""
    begin = at
    while begin and (text[begin - 1].isalnum() or text[begin - 1] == "."):
        begin -= 1
    word = text[begin:at].lower().lstrip(".")
    if not word:
        return False
    if word.isdecimal():  # "1. A dog": the number of a list item, at the beginning of a line
        line = text[:begin].rstrip(" \t*#(")
        return not line or line[-1] in "\n\r"
    if word in ABBREVIATIONS:
        return True
    following = _NEXT_WORD.match(text, at + 1)
    name = following.group(1) if following else ""
    if word in MAY_END_A_SENTENCE:
        return bool(name) and not name[0].isupper()
    initial = len(word) == 1 and text[at - 1].isupper() and word != "i"  # J. Smith, but not: the letter E. The ...
    return initial and name[:1].isupper() and name.lower() not in _OPENERS
