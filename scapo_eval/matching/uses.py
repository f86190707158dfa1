"""Uses of mentions: the rules that determine how a caption uses a mention, and the readings that determine which
mentions count.

The paper counts every mention. However, a caption can also deny an object ("there are no people"), guess ("possibly a
phone") or quote ("a sign that reads 'BUS'"). It can state a purpose ("a place for guests"), generalize ("typical of
kitchens"), compare ("shaped like an apple"), or use a word as a modifier ("a bus route"). A reading omits some of these
uses:

- ``all`` omits nothing (the paper's choice).
- ``asserted`` omits negated mentions and questions.
- ``certain`` also omits hedged mentions.
- ``visual`` omits negated mentions, questions, quotations, purposes, generic mentions, comparisons and modifiers.
  Hedged mentions count.

The cue words and their examples are data in ``cues.yaml``. The scope of a cue extends to the end of its clause. A
clause ends at a period, semicolon, line end, dash or bracket, or at a word such as ``but``, ``except``, ``while`` or
``which``. It also ends at a comma, unless a list continues after the comma ("no cars, buses, or trucks"). Objects that
the caption presupposes remain claims: "no people on THE bench", "possibly checking HIS phone", "shade for THE family".

The rules are deterministic and need no model or data. :func:`find_uses_of` defines the uses for one caption, and
``uses_batch.py`` computes equal results for many captions. The matcher reports cue words together with mentions, so
only the text after a cue is examined.
"""

from __future__ import annotations

import re
from bisect import bisect, bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from itertools import chain
from string import ascii_lowercase, digits
from typing import Literal, NamedTuple, Protocol, TypeAlias, get_args

import numpy as np
from numpy.typing import NDArray

from ..base.columns import MentionColumns
from ..base.errors import check_choice
from ..base.hashes import digest
from ..base.text import fold
from ..base.types import Use
from . import context
from .context import (
    QUOTE_REACH,
    acts,
    colors,
    in_a_name,
    in_general,
    may_modify,
    noun_behind,
    plural_behind,
)
from .cues import Backward, Cue, compiled, shipped_cues
from .vocabulary import Vocabulary, tokenize_alias

ReadingName = Literal["all", "asserted", "certain", "visual"]
"""Name of a reading, which determines the mentions that count."""

READINGS: tuple[ReadingName, ...] = get_args(ReadingName)

USES: tuple[Use, ...] = get_args(Use)
"""The possible uses of a mention. A use is coded by its position here, and the highest code wins."""

LEFT_OUT: dict[ReadingName, tuple[Use, ...]] = {
    "all": (),
    "asserted": ("negated", "question"),
    "certain": ("negated", "question", "hedged"),
    "visual": ("negated", "question", "quoted", "modifier", "purpose", "generic", "comparison"),
}
"""Mapping from each reading to the uses that it omits."""

UNJUDGED, NO_MENTION = -1, len(USES)
"""Codes of :meth:`JudgedReading.uses_of`: the rules determine the use, or the words are no mention of the label."""


class JudgedReading(Protocol):
    """Interface of a reading whose uses a judge has determined. The rules determine the uses in all other texts."""

    @property
    def name(self) -> ReadingName:
        """Name of the reading, which determines the uses that are omitted."""

    @property
    def vocabulary(self) -> str:
        """Identity of the vocabulary whose mentions were judged."""

    @property
    def judge(self) -> str:
        """Judge and its settings, for use in signatures."""

    @property
    def fingerprint(self) -> str:
        """Hash of all judged uses, for use in signatures."""

    @property
    def source(self) -> str:
        """Name of the file with the uses, for use in messages."""

    def uses_of(self, texts: Sequence[str], mentions: MentionColumns) -> NDArray[np.int64]:
        """Returns a (mentions,) array with the position of each mention's use in USES, UNJUDGED or NO_MENTION.

        Args:
            texts: Captions.
            mentions: All mentions in the captions.
        """

    def unjudged(self, texts: Iterable[str]) -> int:
        """Returns the number of texts that the judge has not judged."""


Reading: TypeAlias = ReadingName | JudgedReading
"""Reading, given as its name if the rules determine the uses, or as an object with the uses from a judge."""


def name_of(claims: Reading) -> ReadingName:
    """Returns the name of a reading."""
    return claims if isinstance(claims, str) else claims.name


def left_out(claims: Reading) -> tuple[Use, ...]:
    """Returns the uses that a reading omits."""
    return LEFT_OUT[name_of(claims)]


def check_reading(claims: object) -> None:
    """Raises an InputError if a value is neither the name of a reading nor a reading with uses from a judge."""
    if not hasattr(claims, "uses_of"):
        check_choice("claims", claims, READINGS)


def unjudged(claims: Reading, texts: Iterable[str]) -> int | None:
    """Returns the number of texts whose uses the rules determine because a judge is missing, or None if the rules
    determine all uses.
    """
    return None if isinstance(claims, str) else claims.unjudged(texts)


SPECIAL = 0
"""Value in place of a cue's rule index for the first word of a special alias."""

EDITION = 8
"""Version of the rules in this module, part of their hash. Increment the number if the treatment of cues changes."""


def reading_fields(claims: Reading) -> dict[str, str | None]:
    """Returns the fields of a signature that state the name of a reading and the fields of :func:`reading_hashes`."""
    return {"claims": name_of(claims), **reading_hashes(claims)}


def reading_hashes(claims: Reading) -> dict[str, str | None]:
    """Returns the fields of a signature that state the rules of a reading and, if applicable, the judge and a hash of
    its uses.
    """
    return {"reading": reading_of(claims), "uses": None if isinstance(claims, str) else claims.fingerprint}


def reading_of(claims: Reading) -> str | None:
    """Returns the hash of a reading's rules and, if applicable, its judge, for use in signatures. The value is None for
    ``all``, which has no rules.
    """
    rules = _rules_of(name_of(claims))
    return rules if isinstance(claims, str) else f"{rules}+{claims.judge}"


@lru_cache
def _rules_of(claims: ReadingName) -> str | None:
    """Returns the hash of a reading's rules, or None for ``all``, which has no rules."""
    if not LEFT_OUT[claims]:
        return None
    lists = [value for name, value in sorted(vars(context).items()) if isinstance(value, (frozenset, tuple))]
    words = [word for listed in lists for word in sorted(map(str, listed))]
    return digest([str(EDITION), *LEFT_OUT[claims], shipped_cues().fingerprint, *words])


@lru_cache
def cue_words(uses: tuple[Use, ...]) -> Mapping[str, int]:
    """Returns a mapping from each cue word to its rule index, for a subset of the uses."""
    if not uses:
        return {}
    rules = shipped_rules()
    return {word: row for word, row in rules.row.items() if any(rules.rules[k].cue.use in uses for k in rules.of(row))}


@dataclass(frozen=True, slots=True)
class SpecialWords:
    """Aliases of a vocabulary whose use depends on their context.

    Attributes:
        colors: Mapping from label ids to folded aliases that can denote the color of the next noun.
        kin: Mapping from label ids to the folded aliases, such as "mother", that refer to an animal if the caption
            mentions an animal and no other word names a person.
        kin_of: Ids of the labels of these animals.
        others: Mapping from folded aliases to pairs of word sets. The alias has another meaning if the caption contains
            a word of the first set and no word of the second set.
        watch: First words of these aliases, which a matcher reports together with the cue words.
    """

    colors: Mapping[int, frozenset[str]]
    kin: Mapping[int, frozenset[str]]
    kin_of: frozenset[int]
    others: Mapping[str, Sequence[tuple[frozenset[str], frozenset[str]]]]
    watch: Mapping[str, int]

    @classmethod
    def of(cls, vocabulary: Vocabulary) -> SpecialWords:
        """Returns the special words of a vocabulary."""

        def by_label(aliases: Sequence[str]) -> dict[int, frozenset[str]]:
            owned: dict[int, set[str]] = {}
            for alias in aliases:
                owned.setdefault(vocabulary.label_ids[vocabulary.aliases[alias]], set()).add(fold(alias))
            return {label: frozenset(words) for label, words in owned.items()}

        others: dict[str, list[tuple[frozenset[str], frozenset[str]]]] = {}
        for sense in vocabulary.senses:
            for word in sense.words:
                others.setdefault(fold(word), []).append(
                    (frozenset(map(fold, sense.near)), frozenset(map(fold, sense.unless)))
                )
        special = (*vocabulary.heads, *vocabulary.kin, *others)
        watch = {tokenize_alias(alias)[0]: SPECIAL for alias in special}
        kin_of = frozenset(vocabulary.label_ids[label] for label in vocabulary.kin_of)
        return cls(by_label(vocabulary.heads), by_label(vocabulary.kin), kin_of, others, watch)


def _folded(words: Sequence[str]) -> frozenset[str]:
    return frozenset(map(fold, words))


MentionRow: TypeAlias = tuple[int, int, int, int]
"""A mention: caption index, row, start and end."""

Scope: TypeAlias = tuple[int, int, int, int, int]
"""A cue before a mention: caption index, end of the cue, start and row of the mention, and rule index."""

Back: TypeAlias = tuple[int, int, int, int]
"""A cue after a mention: caption index, start of the cue, row of the mention, and rule index."""


def find_uses_of(
    text: str,
    mentions: Sequence[tuple[int, int, int]],
    cues: Sequence[tuple[int, int, int]],
    uses: tuple[Use, ...],
    words: SpecialWords | None = None,
) -> bytearray:
    """Returns the uses of all mentions in one caption, considering only a subset of the uses. This function is the
    reference implementation of the uses.

    Args:
        text: Caption.
        mentions: Start, end and label id of each mention, in order.
        cues: Start, end and rule index of each cue word for the given uses; see :func:`cue_words`.
        uses: Uses to find.
        words: Special words of the vocabulary. The value is None if there are no special words.

    Returns:
        The use of each mention, as a position in USES. Mentions with none of the uses are claims and have the code 0.
    """
    if not uses or not mentions:
        return bytearray(len(mentions))
    rules = shipped_rules()
    starts, ends, labels = ([mention[k] for mention in mentions] for k in range(3))
    n = len(starts)
    row_uses: list[Iterable[tuple[int, int]]] = []
    if "quoted" in uses and ('"' in text or "\u201c" in text):
        row_uses.append(in_quotes(text, starts, ends, 0, n))
    if "question" in uses and "?" in text:
        row_uses.append(in_questions(text, starts, 0, n))
    if "negated" in uses and absence_marks_in(text):
        row_uses.append(crossed_out(text, starts, ends, 0, n))
    if "modifier" in uses:
        beside = {row for row in range(1, n) if starts[row] == ends[row - 1] + 1}
        listed = {near for row in beside if row + 1 in beside for near in (row - 1, row, row + 1)}
        if not starts[0] and 1 in beside:
            listed.add(0)
        row_uses.append(by_form([text], [(0, row, starts[row], ends[row]) for row in range(n) if row not in listed]))
    special, scopes, backward = list[MentionRow](), list[Scope](), list[Back]()
    for start, end, cue in cues:
        begin = start - 2 * (cue == rules.row["t"])
        following, after = bisect_left(starts, begin), bisect_left(starts, end)  # a cue may be a mention: "the TV"
        if cue == SPECIAL:
            if following < n:
                special.append((0, following, starts[following], ends[following]))
            continue
        for row in rules.of(cue):
            rule = rules.rules[row]
            if rule.cue.use not in uses:
                continue
            if after < n and starts[after] - end <= rule.reach:
                scopes.append((0, end, starts[after], after, row))
            if following and rule.cue.back:
                backward.append((0, begin, following - 1, row))
    if words:
        row_uses.append(of_color_or_kin([text], starts, ends, labels, [0, n], special, words))
    row_uses.append(in_scope([text], starts, ends, [0, n], scopes))
    row_uses.append(behind([text], starts, ends, [0, n], backward))
    return highest(n, row_uses)


def highest(n: int, found: Iterable[Iterable[tuple[int, int]]]) -> bytearray:
    """Returns, for each of n mentions, the highest-ranked use that was found."""
    uses = bytearray(n)  # Python integers, because single elements are written
    for row, use in chain.from_iterable(found):
        if use > uses[row]:
            uses[row] = use
    return uses


def left_out_codes(claims: Reading) -> NDArray[np.bool_]:
    """Returns a (uses,) mask of the uses that a reading omits, in the order of USES."""
    return codes_of(left_out(claims))


@lru_cache
def codes_of(uses: tuple[Use, ...]) -> NDArray[np.bool_]:
    """Returns a (uses,) mask of the given uses, in the order of USES."""
    return np.array([use in uses for use in USES])


def in_quotes(
    text: str, starts: Sequence[int], ends: Sequence[int], first: int, stop: int
) -> Iterator[tuple[int, int]]:
    """Yields the mentions between two quotation marks that are on the same line and at most QUOTE_REACH characters
    apart.

    A quotation that is a value in JSON does not count. A quotation that consists only of a mention does not count if it
    is a key or an item in JSON, or if an article precedes it and the sentence mentions no writing.

    Args:
        text: A caption.
        starts, ends: Spans of mentions.
        first, stop: Range of the rows that belong to this caption.
    """
    latest = starts[stop - 1] if first < stop else 0
    whole = len(text) - len(text.lstrip()), len(text.rstrip())
    for opening, closing in _MARKS:
        begin = text.find(opening)
        while 0 <= begin < latest:
            end = text.find(closing, begin + 1, begin + QUOTE_REACH + 2)
            if end > begin + 1 and "\n" not in text[begin:end]:
                for row in range(bisect(starts, begin, first, stop), bisect(starts, end, first, stop)):
                    is_all = starts[row] == begin + 1 and ends[row] == end
                    is_value = _VALUE.search(text, max(0, begin - BEFORE), begin)  # in JSON, or an own caption
                    is_whole = (begin, end + 1) == whole
                    if not (is_value or is_whole) and not (is_all and _names_a_thing(text, begin, end + 1)):
                        yield row, _QUOTED
                begin = text.find(opening, end + 1)
            else:
                begin = text.find(opening, begin + 1)


def _names_a_thing(text: str, begin: int, end: int) -> bool:
    """Returns True if a quotation that consists only of a mention names an object rather than visible writing."""
    before, after = text[max(0, begin - BEFORE) : begin], text[end : end + 2].lstrip()
    if after[:1] == ":" or (_IN_JSON.search(before) and after[:1] in (",", "]", "}")):
        return True
    if not _ARTICLE.search(before) or _ON_SIGN.match(text, end):
        return False
    return not _is_said(shipped_cues().signs, text, begin)


def crossed_out(
    text: str, starts: Sequence[int], ends: Sequence[int], first: int, stop: int
) -> Iterator[tuple[int, int]]:
    """Yields the mentions that are marked as absent by a cross, an empty box, an empty value or strikethrough, as in a
    checklist, and those that a list in JSON marks as uncertain. The arguments are the same as for :func:`in_quotes`.
    """
    has_cross, has_box, has_list = _CROSS.search(text) is not None, "[ ]" in text, '": [' in text
    has_keys = '":' in text
    line = read = 0  # each part of a line is read once
    leads = before = box = None
    for row in range(first, stop):
        start, end = starts[row], ends[row]
        newline = text.rfind("\n", read, start)
        if newline >= 0 or row == first:
            line = read = newline + 1
            leads = _CHECKED.match(text, line) if has_cross else None  # marks precede the objects
            before = box = None
        mark = None
        if leads:
            mark = before = _MARK_BEFORE.search(text, read, start) or before
        elif has_cross:
            mark = _MARK_AFTER.match(text, end)
        if has_box and _BRACKET.search(text, read, start):
            box = _BOX_BEFORE.search(text, max(line, read - 2), start)
        read = start
        mark = mark or box
        if mark is None and has_list:
            mark = _ABSENT_LIST.search(text, max(0, start - 5 * BEFORE), start)
        strike = _STRUCK.search(text, max(line, start - 3 * BEFORE), start)
        is_struck = strike is not None and _STRUCK_TO.match(text, end) is not None
        is_none = _EMPTY_AFTER.match(text, end) or (has_keys and _has_none(text, start, end))
        if (mark and mark[1] in _UNCHECKED) or is_struck or is_none:
            yield row, _NEGATED
        elif has_list and _UNSURE_LIST.search(text, max(0, start - 5 * BEFORE), start):
            yield row, _HEDGED


def _has_none(text: str, start: int, end: int) -> bool:
    """Returns True if a mention in JSON belongs to a count or a presence that is zero or false."""
    return bool(_NONE_AFTER.match(text, end) or _NONE_BEFORE.search(text, max(0, start - BEFORE), start))


def absence_marks_in(text: str) -> tuple[str, ...]:
    """Returns the marks in a text that may mark a mention as absent, such as a cross or an opening bracket. If there
    are none, :func:`crossed_out` finds nothing.
    """
    return tuple(filter(text.__contains__, _ABSENCE_MARKS))


def is_written(text: str, start: int) -> bool:
    """Returns True if the sentence around a position mentions writing or a picture before this position."""
    cues = shipped_cues()
    return _is_said(cues.signs, text, start) or _is_said(cues.depictions, text, start)


def _is_said(words: frozenset[str], text: str, before: int) -> bool:
    """Returns True if the sentence around a position contains one of several words before this position."""
    places, are_words = _ends_and_words(words, text)
    k = bisect_left(places, before) - 1
    return k >= 0 and are_words[k]


@lru_cache(maxsize=8)
def _ends_and_words(words: frozenset[str], text: str) -> tuple[list[int], list[bool]]:
    """Returns the places at which a sentence of a text ends or one of several words begins, and a flag for each place
    that is True for a word.
    """
    read = ((token.start(), token.group().lower()) for token in _END_OR_WORD.finditer(text))
    places = [(start, token in words) for start, token in read if token in words or token in ".!?\n"]
    return [start for start, _ in places], [is_word for _, is_word in places]


def in_questions(text: str, starts: Sequence[int], first: int, stop: int) -> Iterator[tuple[int, int]]:
    """Yields the mentions in questions.

    A question starts at the last clause in its sentence that begins like a question. If there is no such clause, the
    question is the whole sentence or, in a long sentence, its last clause. Definite objects are claims, unless the
    question asks whether they exist or where they are. If the text answers the question with "yes" or a number, the
    objects are claims; if it answers with "perhaps", they are hedged.

    Args:
        text: A caption.
        starts: Start offsets of mentions.
        first, stop: Range of the rows that belong to this caption.
    """
    before, mark = 0, text.find("?")
    scopes = shipped_cues().scopes
    while mark >= 0:
        sentence = max(text.rfind(end, before, mark) for end in ".!?\n") + 1
        *_, begin = [sentence, *(clause.start() for clause in scopes.asks.finditer(text, sentence, mark))]
        if begin == sentence and mark - sentence > scopes.short:
            begin = max(sentence, *(text.rfind(end, sentence, mark) for end in ',;:\u2013\u2014"\u201c'))
        if _WHY.match(text, begin) or _YES.match(text, mark):
            begin = mark  # presupposes or affirms the rest
        elif _HOW_MANY.match(text, begin) and _SOME.match(text, mark):
            begin = mark
        asked = _HEDGED if _PERHAPS.match(text, mark) else _ASKED
        rows = range(bisect_left(starts, begin, first, stop), bisect_left(starts, mark, first, stop))
        taken = [row for row in rows if scopes.taken.search(text, max(begin, starts[row] - BEFORE), starts[row])]
        claims = frozenset(() if taken and scopes.seeks.search(text, begin, mark) else taken)
        yield from ((row, asked) for row in rows if row not in claims)
        before, mark = mark, text.find("?", mark + 1)


def by_form(texts: Sequence[str], rows: Iterable[MentionRow]) -> Iterator[tuple[int, int]]:
    """Yields the mentions whose use follows from their form: words in capitals, and modifiers of the next noun."""
    for k, row, start, end in rows:
        text = texts[k]
        surface = text[start:end]
        in_capitals = end - start > 2 and surface[1].isupper() and surface.isupper() and not _ACRONYM.fullmatch(surface)
        if in_capitals or in_a_name(text, start, end):
            yield row, _QUOTED
        elif may_modify(surface):
            noun = noun_behind(text, end) or plural_behind(text, start, end)
            if noun and not _asks_of(text, start, end, noun) and not acts(text, start, end, noun):
                yield row, _COMPARED if noun == "like" else _MODIFIES
        elif surface[0].isupper() and in_general(text, start, end):
            yield row, _GENERIC


def _asks_of(text: str, start: int, end: int, word: str) -> bool:
    """Returns True if the word after a noun is the rest of a question about it: "does the woman carry", "is the woman
    angry?".
    """
    before = max(0, start - BEFORE)
    if _DOES.search(text, before, start):
        return True
    return text.startswith("?", end + 1 + len(word)) and _IS_IT.search(text, before, start) is not None


def of_color_or_kin(
    texts: Sequence[str],
    starts: Sequence[int],
    ends: Sequence[int],
    labels: Sequence[int],
    indptr: Sequence[int],
    rows: Iterable[MentionRow],
    words: SpecialWords,
) -> Iterator[tuple[int, int]]:
    """Yields the special words that are modifiers: colors, words with another meaning, and words for animals."""
    is_animal: dict[tuple[int, int], bool] = {}
    is_other: dict[tuple[int, str], bool] = {}
    for k, row, start, end in rows:
        text, label = texts[k], labels[row]
        surface = fold(text[start:end])
        if surface in words.colors.get(label, ()) and colors(text, start, end):
            yield row, _MODIFIES
        if surface in words.others:
            if (k, surface) not in is_other:
                is_other[k, surface] = _has_other_meaning(text.lower(), words.others[surface])
            if is_other[k, surface]:
                yield row, _MODIFIES
        if surface in words.kin.get(label, ()):
            if (k, label) not in is_animal:
                named = range(indptr[k], indptr[k + 1])
                is_animal[k, label] = any(labels[mention] in words.kin_of for mention in named) and all(
                    labels[mention] != label or fold(text[starts[mention] : ends[mention]]) in words.kin[label]
                    for mention in named
                )
            if is_animal[k, label]:
                yield row, _MODIFIES


def _has_other_meaning(lowered: str, senses: Sequence[tuple[frozenset[str], frozenset[str]]]) -> bool:
    """Returns True if the words of a text, in lower case, give one of its words another meaning."""
    for near, unless in senses:
        if any(map(lowered.__contains__, near)):  # seldom
            spoken = frozenset(_WORD.findall(lowered))
            if not near.isdisjoint(spoken) and unless.isdisjoint(spoken):
                return True
    return False


def behind(
    texts: Sequence[str], starts: Sequence[int], ends: Sequence[int], indptr: Sequence[int], rows: Iterable[Back]
) -> Iterator[tuple[int, int]]:
    """Yields the mentions directly before a cue that applies to them, as in "Giraffes are typically tall".

    The arguments are the same as for :func:`in_scope`, except that the cues follow a mention.
    """
    rules = shipped_rules().rules
    for k, begin, row, cue in rows:
        text, start, end = texts[k], starts[row], ends[row]
        rule = rules[cue]
        for back in rule.backs:
            if begin - end > back.within:
                continue
            match = compiled(back.pattern).match(text, end)
            if match is None or match.end() <= begin:  # most often
                continue
            if not _said_of(back, text, start, end):
                continue
            if back.subject and not _RELATIVE.match(text, end):
                if row > indptr[k] and _OF_SUBJECT.fullmatch(text, ends[row - 1], start):
                    row -= 1
                elif _IN_SUBJECT.search(text, max(0, start - BEFORE), start):
                    continue  # the subject is no mention
            yield row, rule.use
            if back.lists and (back.plural or _PLURAL.match(text, end)):
                while row > indptr[k] and _JOINED.fullmatch(text, ends[row - 1], starts[row]):
                    row -= 1
                    yield row, rule.use
            break


def in_scope(
    texts: Sequence[str], starts: Sequence[int], ends: Sequence[int], indptr: Sequence[int], scopes: Iterable[Scope]
) -> Iterator[tuple[int, int]]:
    """Yields the mentions in the scope of a preceding cue, each with the use that the cue assigns.

    Args:
        texts: Captions.
        starts, ends: Start and end offsets of the mentions.
        indptr: First row of each caption, followed by the total number of rows.
        scopes: Cues, each with the first mention after it.
    """
    rules = shipped_rules().rules
    for k, end, start, row, cue in scopes:
        tail, rule = texts[k][end:start], rules[cue]
        if "." in tail and (not rule.cue.headed or "." in (tail := _NUMBERED.sub("\n- ", tail))):
            continue
        state = state_of(rule, tail)
        if state == "over":  # most often
            continue
        text, stop, latest = texts[k], indptr[k + 1], end + rule.reach
        if not is_there(rule, text, end):
            continue
        while state != "listed" or goes_on(text, ends[row]):
            if state != "definite" and is_followed(rule, text, ends[row]):
                yield row, rule.use
            if row + 1 == stop or starts[row + 1] > latest:
                break
            step = text[ends[row] : starts[row + 1]]
            if "." in step and (not rule.cue.headed or "." in (step := _NUMBERED.sub("\n- ", step))):
                break
            row += 1
            tail += _MENTION + step
            state = state_of(rule, tail)
            if state == "over":
                break


def is_there(rule: CueRule, text: str, end: int) -> bool:
    """Returns True if the text before the cue word that ends at ``end`` permits the rule."""
    cue = rule.cue
    if (cue.behind or cue.not_behind) and not _stands_right(cue, text, end):
        return False
    return not rule.of_t or text[max(0, end - 3) : end].lower() in _N_T


def expresses(rule: CueRule, text: str, start: int, end: int) -> bool:
    """Returns True if the words that a rule requires around its cue word are there. Mentions are not required.

    Args:
        rule: One of the rules of the cue word.
        text: Caption in lower case.
        start, end: Span of the cue word.
    """
    cue = rule.cue
    if not is_there(rule, text, end):
        return False
    begins = compiled(cue.after).match(text, end) if cue.after else None
    if not cue.only_back and (not cue.after or (begins and not begins.lastgroup)):
        return True
    return any(
        (match := compiled(back.pattern).match(text, before)) and match.end() > start
        for back in rule.backs
        for before in range(max(0, start - back.within), start)
        if text[before].isspace() and _said_of(back, text, before, before)
    )


def is_followed(rule: CueRule, text: str, end: int) -> bool:
    """Returns True if the text after the mention that ends at ``end`` matches the expression that the cue requires
    there.
    """
    return not rule.cue.then or compiled(rule.cue.then).match(text, end) is not None


def goes_on(text: str, end: int) -> bool:
    """Returns True if a list can continue after the mention that ends at ``end``."""
    return shipped_cues().scopes.goes_on.match(text, end) is not None


def state_of(rule: CueRule, tail: str) -> State:
    """Returns the state of a mention in the scope of a rule. The state depends on the text between the cue and the
    mention, in which _MENTION replaces every intervening mention. States are cached, because the same phrases recur.
    """
    return rule.states.get(tail) or _remember(rule, tail)


def tail_of(text: str, end: int, starts: Sequence[int], ends: Sequence[int], first: int, row: int) -> str:
    """Returns the text between a cue and a mention, with _MENTION in place of each mention between them.

    Args:
        text: Caption.
        end: End offset of the cue.
        starts, ends: Spans of the mentions.
        first, row: Rows of the first mention after the cue and of the mention in question.
    """
    begins = (end, *ends[first:row])
    return _MENTION.join(text[begin:stop] for begin, stop in zip(begins, starts[first : row + 1], strict=True))


def _said_of(back: Backward, text: str, start: int, end: int) -> bool:
    """Returns True if a cue may apply to the mention before it, which spans ``start`` to ``end``."""
    if back.plural and may_modify(text[start:end]):
        return False
    if not back.before or not start:
        return True
    return compiled(back.before).search(text[max(0, start - BEFORE) : start]) is not None


def _stands_right(cue: Cue, text: str, end: int) -> bool:
    """Returns True if the words before a cue include a required word and no excluded word."""
    before = text[max(0, end - BEFORE) : end].lower().rstrip(_OF_WORDS)
    if cue.behind and not compiled(cue.behind).search(before):
        return False
    return not cue.not_behind or not compiled(cue.not_behind).search(before)


def _next_item(between: re.Match[str]) -> str:
    if "\n" in between.group():
        return ",\t"
    return ", " if "and" in between.group() else ""


_MENTION = "\0"  # replaces each mention after a cue
State = Literal["over", "inside", "listed", "definite"]
"""State of a mention in the scope of a cue; see :func:`state_of`."""

STATES: tuple[State, ...] = get_args(State)


def _remember(rule: CueRule, tail: str) -> State:
    if len(rule.states) >= _REMEMBERED:
        rule.states.clear()
    state = rule.states[tail] = _scope_state(rule, tail)
    return state


def _scope_state(rule: CueRule, tail: str) -> State:
    """Determines the state of a mention in the scope of a cue from the text between them.

    Args:
        rule: Rule of the cue.
        tail: Text after the cue word, with _MENTION in place of each mention.

    Returns:
        "over": the scope has ended or never began. "inside": the mention is in the scope. "listed": the mention is in
        the scope if it is an item of a list. "definite": the caption presupposes the mention, and the scope continues.
    """
    rules, scopes, cue = shipped_rules(), shipped_cues().scopes, rule.cue
    # first word after it that can be the article of a presupposed thing
    first = rule.reach if cue.headed or cue.sentence else int(rule.may_be_definite)
    if not first and not cue.presumes and tail.startswith(rules.definite_behind):
        return "over"
    scope = scopes.lines.sub(_next_item, tail.lower()) if cue.headed else tail.lower()
    if (not cue.sentence and scopes.subject.search(scope)) or (cue.use == "purpose" and scopes.predicate.search(scope)):
        return "over"
    if cue.after:
        begins = compiled(cue.after).match(scope)
        if not begins:
            return "over"
        if begins.lastgroup:  # not yet complete: the mention is one of its words
            return "definite"
        scope = scope[begins.end() :]
    if cue.sentence:
        return "over" if scopes.leaves.search(scope) else "inside"
    if cue.lists:
        scope = (scopes.joint_of_any if cue.any_item else scopes.joint).sub(" or ", scope)
    if scope.endswith(rules.definite_behind) and scope.count(" ") > 2 * first and not scopes.marks.search(scope):
        # or the scope has ended, which the next mention detects
        return "over" if cue.phrase and not first else "definite"
    if cue.phrase and "ing " in _SLEEPING.sub("", scope):
        return "over"
    words = scope.split()
    tells = not rules.telling.isdisjoint(words)
    if tells and (
        not rule.ends.isdisjoint(words) or (not scopes.pairs.isdisjoint(words) and scopes.pair.search(scope))
    ):
        return "over"
    item = None
    if scopes.marks.search(scope):
        step = scope.rpartition(_MENTION)[2]
        if scopes.hard.search(step):
            return "over"
        item = scopes.item.match(step, max(step.find(","), 0))
        if not item and scopes.marks.search(step):
            return "over"
        if item and cue.use == "negated" and not cue.headed and not scopes.anew.isdisjoint(step.split()[-3:]):
            return "over"  # "zero buses, one car"
        comma = scope.rfind(",")
        if (
            item
            and cue.use == "negated"
            and not cue.headed
            and _ARTICLE_NEXT.match(scope, comma)
            and not _AN.search(scope[:comma])
        ):
            return "over"  # "no trucks, a red car"
    if tells:
        article = _article(words)
        if article >= first:  # "shade for the family and a dog": neither is a purpose
            over = item or (cue.phrase and not first and words[article] in scopes.granted)
            return "over" if over else "definite"
    return "listed" if item and not item["last"] else "inside"


def clear_cache() -> None:
    """Clears the cache of phrases between cues and mentions, so that a measurement starts with an empty cache.

    No result depends on the cache.
    """
    for rule in shipped_rules().rules:
        rule.states.clear()


def _article(words: Sequence[str]) -> int:
    """Returns the position of the definite article or possessive among the words before a mention, or -1."""
    scopes = shipped_cues().scopes
    for k in range(len(words) - 1, max(len(words) - 6, -1), -1):
        if words[k] in scopes.definite:
            return k
        if words[k] in scopes.not_in_noun_phrase:
            break
    return -1


_REMEMBERED = 1 << 12  # states of one kind of cue
_WORD = re.compile(r"[^\W_]+")
_END_OR_WORD = re.compile(rf"[.!?\n]|{_WORD.pattern}")
_OF_WORDS = ascii_lowercase + digits
_ARTICLE_NEXT, _AN = re.compile(r",\s+an?\s"), re.compile(r"\ban?\s")
_SLEEPING = re.compile(r"\ban?\s+\w+ing\s+$")  # a participle before its noun
BEFORE = 40
"""Number of characters before a cue or a mention that are read, enough for the words before it."""
_N_T = ("n't", "n\u2019t")
_DOES = re.compile(r"(?i)\b(?:does|did)\s+(?:the|this|that|an?|his|her)\s+(?:\w+\s+)?$")  # "does the woman carry"
_ASKED, _QUOTED, _MODIFIES, _COMPARED, _NEGATED, _GENERIC, _HEDGED = map(
    USES.index, ("question", "quoted", "modifier", "comparison", "negated", "generic", "hedged")
)
_IS_IT = re.compile(r"(?i)\b(?:is|was)\s+(?:the|this|that)\s+(?:\w+\s+)?$")  # "is the woman angry?"
_WHY = re.compile(r"(?i)\W*(?:why|how\s+come|can\s+you\s+believe)\s+(?!no\b|not\b)")
_HOW_MANY = re.compile(r"(?i)\W*(?:\w+\s+)?how\s+many\b")
_ANSWER = r"(?i)\?[\s\"”*_>]{1,8}(?:\(?\ban?(?:swer)?[*_]*[:.)]\W{1,5})?"
_YES = re.compile(_ANSWER + r"(?:yes|yep|yeah|indeed|certainly|definitely|affirmative)\b(?!\s+(?:and\s+no|or\s+no))")
_SOME = re.compile(
    _ANSWER + r"(?:(?:exactly|about|around|roughly|at\s+least|probably|(?:there\s+are|i|we|you)(?:\s+(?:can|could))?"
    r"(?:\s+(?:count|see|get|spot|find|make\s+out))?)\s+)*"
    r"(?:one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|several|many|a\s+few|a\s+couple|[1-9]\d*)\b"
)
_PERHAPS = re.compile(
    _ANSWER + r"(?:perhaps|maybe|possibly|probably|likely|could\s+be|might\s+be|it\s+(?:could|might|may)\s+be)\b"
)
_ARTICLE = re.compile(r"(?i)\b(?:an?|one|two|three|four|several|some|another)\s+$")
_ON_SIGN = re.compile(r"(?i)\s+(?:signs?|logos?|labels?|stickers?|brands?|posters?|banners?|lettering)\b")
_VALUE = re.compile(
    r"(?i)\"\s*:\s*$|\b(?:captions?|descriptions?|answer|alt[- ]text|summary|sentence)\b[^.\n\"\u201c]{0,20}:[\s*_]*$"
)
_IN_JSON = re.compile(r"[\[{]\s*$|(?:[\"\]}\d]|null|true|false)\s*,\s*$|\"\s*:\s*$")
_CROSSES = "\u2717\u2718\u274c\u2715\u2716\U0001f6ab\u274e\u2610\u2b1c\u25fb\u26d4"
_ABSENCE_MARKS = ("[", "|", "{", "~~", "</", "n/a", "N/A", "N/a", *_CROSSES)
_UNCHECKED = _CROSSES + " "
_CROSS = re.compile(f"[{_CROSSES}]")
_CHECK_MARK = f"([{_CROSSES}\u2713\u2714\u2705\u2611])\ufe0f?"
_CHECKED = re.compile(rf"[\s|*•\-]*{_CHECK_MARK}")
_MARK_BEFORE = re.compile(rf"{_CHECK_MARK}[^\u2713\u2714\u2705\u2611{_CROSSES}]*$")
_MARK_AFTER = re.compile(rf"[*_`\s:|=–—\-(\[]{{0,8}}{_CHECK_MARK}")
_EMPTY_AFTER = re.compile(
    r"(?i)[*_`\"]*\s*(?::\s*(?:\[\s*\]|\{\s*\})|\|\s*(?:[-\u2013\u2014]|n/a|no\s+\w+|not\s+[\w ]{1,20})\s*(?:\||$|\n)"
    r"|(?:[:=\u2013\u2014-]\s*|\()n/a\b"
    r"|</(?:t[dh]|b|strong)>\s*(?:</t[dh]>\s*)?<t[dh][^<>]{0,40}>\s*(?:0|no|none|false|absent|n/a|[-\u2013\u2014\u2717\u2718\u274c])\s*<)"
)
_COUNT = (
    r"\"(?:count|number|quantity|qty|amount|total|instances|n|present|visible|detected|found|exists|in_image|is_present"
    r"|is_visible|status)\""
)
_NONE = r"(?:0(?:\.0+)?\b|false\b|null\b|\"(?:no|none|absent|not[ _]\w+|missing|0)\")"
_NONE_AFTER = re.compile(rf"(?i)\"\s*(?:,|:\s*\{{)\s*{_COUNT}\s*:\s*{_NONE}")
_NONE_BEFORE = re.compile(rf"(?i){_COUNT}\s*:\s*{_NONE}\s*,\s*\"\w+\"\s*:\s*\"(?:\w+ )?$")
_STRUCK = re.compile(r"(?i)(?:~~|<(?:s|del|strike)>)(?:(?!~~|</|<del|<s>)[^\n]){0,80}$")
_STRUCK_TO = re.compile(r"(?i)(?:(?!~~|</|<)[^\n]){0,80}(?:~~|</(?:s|del|strike)>)")
_BRACKET = re.compile(r"[\[\]]")
_BOX_BEFORE = re.compile(r"\[([ xX])\][^\[\]]*$")
_ABSENT_LIST = re.compile(
    r"(?i)\"\w*(?:not[_ ]\w+|absent\w*|missing\w*|negatives?|invisible"
    r"|undetected|unseen|excluded|none|hallucinat\w+|rejected)\":( )\[[^\[\]]*$"
)
_UNSURE_LIST = re.compile(
    r"(?i)\"\w*(?:possibl[ey]|uncertain|unsure|probabl[ey]|maybe|likely|unconfirmed|low_confidence)\w*\":( )\[[^\[\]]*$"
)
_NUMBERED = re.compile(r"\n\s*\d+\.\s")
_PLURAL = re.compile(
    r"(?i)\s+(?:are|were|have|aren|weren|do|did)\b|\s?[:\u2013\u2014-]\s+(?:all|both|none|neither|each)\b"
)
_ACRONYM = re.compile("[^AEIOU]{3}|SUV|ATV|UTV|LED|UPS|HDTV")
_JOINED = re.compile(
    r"(?i)(?:,\s+(?:(?:and|or|nor)\s+)?|\s+(?:and|or|nor)\s+)(?:(?:the|an?|his|her|its|their|any|no)\s+)?"
)
# between the subject of a clause and another mention before its verb
_OF_SUBJECT = re.compile(
    r"(?i)\s+(?:(?:of|on|in|at|by|near|beside|behind|under|from|with|for|next\s+to|in\s+front\s+of)"
    r"|(?:that|which|who)\s+(?:\w+\s+){1,3}?)\s*(?:(?:the|an?|his|her|its|their|this|that|these)\s+)?(?:\w+\s+)?"
)
_IN_SUBJECT = re.compile(
    r"(?i)(?<!last )(?<!rest )(?<!all )(?<!both )(?<!none )\b(?:of|at|with|near|by|from)\s+"
    r"(?:the|an?|his|her|its|their)\s+(?:\w+\s+)?$"
)
_RELATIVE = re.compile(r"(?i),?\s+(?:that|which|who)\b")
_MARKS = (('"', '"'), ("\u201c", "\u201d"))


class CueRule(NamedTuple):
    """A cue, prepared for the search for mentions in its scope.

    Attributes:
        cue: The cue with its expressions.
        use: Position of the use in USES.
        reach: Maximum distance in characters from the cue word to a mention in its scope.
        states: Cache of scope states.
        may_be_definite: True if a presupposed object may follow the first word, as in "possibly checking his phone".
        ends: Words that end the scope.
        backs: Rules for the mention before the cue.
        other: Index of the next rule for the same words, or SPECIAL if there is none.
        of_t: True for a rule for "t", which applies only after "n'".
    """

    cue: Cue
    use: int
    reach: int
    states: dict[str, State]
    may_be_definite: bool
    ends: frozenset[str]
    backs: tuple[Backward, ...] = ()
    other: int = SPECIAL
    of_t: bool = False


class Rules(NamedTuple):
    """All cue rules, with the data that their scopes share.

    Attributes:
        rules: Cue rules of all words, whose indices start at 1. The entry at index SPECIAL is not a rule.
        row: Mapping from each cue word to the index of its first rule.
        telling: Words that may end a scope or begin a definite mention, so that the scope is examined further.
        definite_behind: Endings of the text before a definite mention.
    """

    rules: Sequence[CueRule]
    row: Mapping[str, int]
    telling: frozenset[str]
    definite_behind: tuple[str, ...]

    def of(self, row: int) -> Iterator[int]:
        """Yields the indices of all rules of a cue word, given the index of its first rule."""
        while row:
            yield row
            row = self.rules[row].other


@cache
def shipped_rules() -> Rules:
    """Returns the cue rules that ``cues.yaml`` defines."""
    cues = shipped_cues()
    scopes = cues.scopes
    phrase_ends = scopes.ends | scopes.phrase_ends
    rules, row = [CueRule(Cue((), "claim"), 0, -1, {}, False, frozenset())], dict[str, int]()
    for cue in cues.cues:
        rule = CueRule(
            cue,
            USES.index(cue.use),
            -1 if cue.only_back else cues.phrase_reach if cue.phrase else cues.reach,
            {},
            cue.use in ("negated", "hedged", "question") and not cue.presumes,
            phrase_ends if cue.phrase else scopes.ends,
            tuple(cues.backward[name] for name in cue.back),
        )
        for word in cue.words:
            rules.append(rule._replace(other=row.get(word, SPECIAL), of_t=word == "t"))
            row[word] = len(rules) - 1
    telling = phrase_ends | scopes.pairs | scopes.definite
    return Rules(rules, row, telling, tuple(f" {word} " for word in sorted(scopes.granted)))
