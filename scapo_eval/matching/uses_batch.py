"""The batch version of ``uses.py``, which finds the uses of mentions in many captions at once and gives the same
results.

NumPy operations select the mentions near a cue, a quotation mark or a noun. Most of these mentions are excluded based
on the letters around the cue (``beginnings.py``). For the others, the text between the cue and the mention is looked up
in a cache (``remembered.py``). The functions in ``uses.py`` examine only the mentions that remain.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache, lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..base.columns import MentionColumns
from ..base.types import Use
from .beginnings import OTHER, codes_at, may_begin, may_end, must_end
from .context import plural_endings
from .cues import compiled
from .matcher_batch import Found
from .remembered import UNKNOWN, Remembered
from .uses import (
    BEFORE,
    SPECIAL,
    STATES,
    CueRule,
    Rules,
    SpecialWords,
    absence_marks_in,
    behind,
    by_form,
    crossed_out,
    find_uses_of,
    goes_on,
    highest,
    in_questions,
    in_quotes,
    in_scope,
    is_followed,
    is_there,
    of_color_or_kin,
    shipped_rules,
    state_of,
    tail_of,
)

Ints = NDArray[np.int64]

_OVER, _LISTED, _DEFINITE = map(STATES.index, ("over", "listed", "definite"))

# number of occurrences of a cue, and of a rule for the preceding mention, from which their expressions are analyzed
_OFTEN, _OFTEN_BACK = 100, 200


class _Rules(NamedTuple):
    """The cue rules for a subset of the uses, as arrays.

    Attributes:
        reach: (rules,) for each rule that is the first rule of a word, the longest reach among all rules of the word,
            or -1.
        back_reach: (rules,) the same as ``reach``, for the distance from a mention to a cue after it.
        scopes: For each first rule, the rules that have a scope.
        backs: For each first rule, the rules for the mention before the cue.
        own_reach: (rules,) each rule's own reach.
        use: (rules,) position of the use in USES.
        before: (rules,) array with the number of characters that precede the watched word in the cue. For example,
            "n't" is watched as "t".
        of_t: (rules,) Boolean array that is true for the rules for "t"; see :class:`~scapo_eval.matching.uses.CueRule`.
        headed: (rules,) Boolean array that is true for the rules for headings, in whose scopes a period may be part of
            a number.
        is_followed: (rules,) Boolean array that is true for rules that also require an expression to match the text
            after the mention.
    """

    reach: Ints
    back_reach: Ints
    scopes: _Lists
    backs: _Lists
    own_reach: Ints
    use: NDArray[np.uint8]
    before: Ints
    of_t: NDArray[np.bool_]
    headed: NDArray[np.bool_]
    is_followed: NDArray[np.bool_]


class _Lists:
    """Lists of integers that are stored in one array, so that each row can be repeated once per item of its list."""

    def __init__(self, lists: Sequence[Sequence[int]]) -> None:
        self._counts = np.fromiter(map(len, lists), dtype=np.int64, count=len(lists))
        self._first = np.cumsum(self._counts) - self._counts
        self._items = np.array([item for items in lists for item in items], dtype=np.int64)

    def of(self, which: Ints) -> tuple[Ints, Ints]:
        """Returns the items of the lists that ``which`` selects and, for each item, the position of its list in
        ``which``.
        """
        counts = self._counts[which]
        row = np.repeat(np.arange(len(which)), counts)
        stop = np.cumsum(counts)
        return row, self._items[np.arange(len(row)) + (self._first[which] - stop + counts)[row]]


@lru_cache
def _rules(uses: tuple[Use, ...]) -> _Rules:
    shipped = shipped_rules()
    rules = shipped.rules
    asked = [rule.cue.use in uses for rule in rules]
    chains = [[k for k in shipped.of(row) if asked[k]] for row in range(len(rules))]
    scopes = [[k for k in chain if rules[k].reach >= 0] for chain in chains]
    backs = [[k for k in chain if rules[k].backs] for chain in chains]
    return _Rules(
        np.array([max([-1, *(rules[k].reach for k in chain)]) for chain in scopes]),
        np.array([max([-1, *(back.within for k in chain for back in rules[k].backs)]) for chain in backs]),
        _Lists(scopes),
        _Lists(backs),
        np.array([rule.reach for rule in rules]),
        np.array([rule.use for rule in rules], dtype=np.uint8),
        np.array([2 * rule.of_t for rule in rules]),
        np.array([rule.of_t for rule in rules]),
        np.array([rule.cue.headed for rule in rules]),
        np.array([bool(rule.cue.then) for rule in rules]),
    )


class _Letters:
    """Codes of the letters around a cue with which a rule can apply. They are derived from the expressions of a rule
    once the rule has occurred often.

    Attributes:
        of: (rules,) row index of each rule in the tables ``after`` to ``then``. The rules of one cue share a row.
        after: (rows, codes) Boolean array that is False for the codes with which the text after the cue cannot begin.
        before: (rows, codes) Boolean array that is False for the codes that exclude the rule if they precede the cue.
        asks: (rows, codes) Boolean array that is False for the codes before the cue that already decide whether the
            rule applies.
        then: (rows, codes) Boolean array that is False for the codes with which the text after a mention in the scope
            cannot begin.
        back_of: (rules,) row index of each rule in the tables ``back`` to ``adjacent_plural``.
        back: (rows, codes) Boolean array that is False for the codes with which the text from a mention to the next cue
            cannot begin.
        adjacent: (rows, codes) Boolean array for cues that immediately follow the mention. It is False for the codes
            with which the text after the cue cannot begin.
        back_plural, adjacent_plural: The same arrays for plural mentions.
    """

    def __init__(self, shipped: Rules) -> None:
        rules = shipped.rules
        first = {rule.cue: rule for rule in reversed(rules)}
        row = {cue: k for k, cue in enumerate(first)}
        self.of = np.array([row[rule.cue] for rule in rules])
        self._rule = [*first.values()]
        self._met = np.zeros(len(first), dtype=np.int64)
        shape = len(first), OTHER + 1
        self.after, self.before, self.asks, self.then = (np.ones(shape, dtype=bool) for _ in range(4))
        for k, rule in enumerate(self._rule):
            self.asks[k] = bool(rule.cue.behind or rule.cue.not_behind)

        words = [(word, k) for word, first_rule in shipped.row.items() for k in shipped.of(first_rule)]
        self._backs = [(word, rules[k].backs) for word, k in words if rules[k].backs]
        self.back_of = np.zeros(len(rules), dtype=np.int64)
        self.back_of[[k for _, k in words if rules[k].backs]] = range(len(self._backs))
        self._met_back = np.zeros(len(self._backs), dtype=np.int64)
        shape = len(self._backs), OTHER + 1
        self.back, self.adjacent, self.back_plural, self.adjacent_plural = (
            np.ones(shape, dtype=bool) for _ in range(4)
        )

    def rows(self, rules: Ints) -> Ints:
        """Returns the rows of the given rules in the tables ``after`` to ``then``, and counts the occurrences of the
        rules.
        """
        return self._rows(self.of[rules], self._met, _OFTEN, self._read)

    def back_rows(self, rules: Ints) -> Ints:
        """Returns the rows of the given rules in the tables ``back`` to ``adjacent_plural``, and counts the occurrences
        of the rules.
        """
        return self._rows(self.back_of[rules], self._met_back, _OFTEN_BACK, self._read_back)

    @staticmethod
    def _rows(rows: Ints, met: Ints, often: int, read: Callable[[int], None]) -> Ints:
        before = met.copy()
        met += np.bincount(rows, minlength=len(met))
        for row in ((before < often) & (met >= often)).nonzero()[0].tolist():
            read(row)
        return rows

    def _read(self, row: int) -> None:
        cue = self._rule[row].cue
        if cue.after:
            self.after[row] = may_begin(compiled(cue.after))
        if cue.then:
            self.then[row] = may_begin(compiled(cue.then))
        if not all(word.isalnum() for word in cue.words):
            return  # the text before the last part of such a word is examined
        before, asks = np.ones(OTHER + 1, dtype=bool), np.zeros(OTHER + 1, dtype=bool)
        if cue.behind:
            before &= may_end(compiled(cue.behind))
            asks |= before
        if cue.not_behind:
            before &= ~must_end(compiled(cue.not_behind))
            asks |= may_end(compiled(cue.not_behind))
        self.before[row], self.asks[row] = before, asks

    def _read_back(self, row: int) -> None:
        word, backs = self._backs[row]
        for known, table, plural in (
            ("", self.back, self.back_plural),
            (" " + word, self.adjacent, self.adjacent_plural),
        ):
            begins = np.array([may_begin(compiled(back.pattern), known) for back in backs])
            plural[row] = begins.any(axis=0)
            table[row] = begins[[not back.plural for back in backs]].any(axis=0)


@cache
def _letters() -> _Letters:
    return _Letters(shipped_rules())


class _OfThread(threading.local):
    """Caches of one thread: the states of texts between cues and mentions, and flags (1 or 0) that state whether a rule
    applies after a given text.
    """

    def __init__(self) -> None:
        first_id = len(shipped_rules().rules)
        self.met, self.told = Remembered(first_id), Remembered(first_id)


@cache
def _of_thread() -> _OfThread:
    return _OfThread()


def clear_met() -> None:
    """Clears the caches of the texts around cues, so that a measurement starts with empty caches. No result depends on
    the cache.
    """
    _of_thread.cache_clear()


def find_uses(texts: Sequence[str], found: Found, uses: tuple[Use, ...], words: SpecialWords) -> NDArray[np.uint8]:
    """Returns the uses of all mentions in many captions, considering only a subset of the uses.

    Args:
        texts: Captions.
        found: Mentions in the captions, and the cue words of the uses (:func:`~scapo_eval.matching.uses.cue_words`).
        uses: Uses to find.
        words: Special words of the vocabulary.

    Returns:
        (mentions,) array of positions in USES. Mentions with none of the uses are claims and have the code 0.
    """
    mentions = found.mentions
    if not uses or not len(mentions.start):
        return np.zeros(len(mentions.start), dtype=np.uint8)
    if not found.plain:
        return _Batch(texts, found, uses).find(words)
    codes = np.zeros(len(mentions.start), dtype=np.uint8)
    for k in found.plain:
        rows, (own, cues) = mentions.row(k), (_spans_of(columns, k) for columns in (mentions, found.watched))
        codes[rows] = np.frombuffer(find_uses_of(texts[k], own, cues, uses, words), dtype=np.uint8)
    kept = np.ones(len(texts), dtype=bool)
    kept[found.plain] = False
    codes[kept[mentions.caption]] = find_uses(texts, found.of(kept), uses, words)
    return codes


def _spans_of(columns: MentionColumns, caption: int) -> list[tuple[int, int, int]]:
    rows = columns.row(caption)
    return [*_rows(columns.start[rows], columns.end[rows], columns.label_id[rows])]


class _Scopes(NamedTuple):
    """Pairs of a cue and a mention within its reach, stored as columns.

    Attributes:
        begin: Position after the cue, or after the previous mention.
        parent: Id of the text from the cue to that position; see :class:`~scapo_eval.matching.remembered.Remembered`.
        row: Row index of the mention.
        rule: Rule of the cue.
        cue_end: Position after the cue.
        first: Row index of the first mention after the cue.
    """

    begin: NDArray[Any]
    parent: Ints
    row: Ints
    rule: Ints
    cue_end: Ints
    first: Ints

    def only(self, kept: Ints | NDArray[np.bool_]) -> _Scopes:
        """Returns the rows that an index or a mask selects."""
        return _Scopes(*(column[kept] for column in self))


class _Batch:
    """A batch of captions. All positions refer to ``Found.byte``.

    Args:
        texts: Captions.
        found: Mentions and cue words, without those in the captions in ``Found.plain``.
        uses: Uses to find.
    """

    def __init__(self, texts: Sequence[str], found: Found, uses: tuple[Use, ...]) -> None:
        self._texts, self._found, self._uses = texts, found, uses
        self._byte = found.byte
        mentions = found.mentions
        self._caption = mentions.caption
        self._starts, self._ends = mentions.start.data, mentions.end.data  # return Python integers
        self._indptr = mentions.indptr.data
        offset = found.offset[self._caption]
        self._place = offset + mentions.start
        self._until = offset + mentions.end

    def find(self, words: SpecialWords) -> NDArray[np.uint8]:
        """Returns the uses as a (mentions,) array."""
        texts, starts, ends, indptr = self._texts, self._starts, self._ends, self._indptr
        found, uses = self._found, self._uses
        parts: list[Iterable[tuple[int, int]]] = []
        if "quoted" in uses:
            parts += [in_quotes(texts[k], starts, ends, indptr[k], indptr[k + 1]) for k in found.quoting]
        if "question" in uses:
            parts += [in_questions(texts[k], starts, indptr[k], indptr[k + 1]) for k in found.asking]
        if "negated" in uses:
            marks = absence_marks_in("\0".join(texts[k] for k in found.marking))
            parts += [
                crossed_out(texts[k], starts, ends, indptr[k], indptr[k + 1])
                for k in found.marking
                if any(map(texts[k].__contains__, marks))
            ]

        cues = found.watched
        cue_caption, rule = cues.caption, cues.label_id.astype(np.int64)
        rules = _rules(uses)
        offset = found.offset[cue_caption]
        cue_end = offset + cues.end
        begin = offset + cues.start
        begin -= rules.before[rule]
        following = np.searchsorted(self._place, begin)
        if "modifier" in uses:
            row = found.look.nonzero()[0]
            parts.append(by_form(texts, self._spans(row[~self._listed(row)])))
            row = following[rule == SPECIAL]
            special = self._spans(row[row < len(self._place)])
            parts.append(of_color_or_kin(texts, starts, ends, found.mentions.label_id.data, indptr, special, words))

        row = following - 1
        distance = begin - self._until.take(row, mode="clip")
        near = ((row >= 0) & (distance <= rules.back_reach[rule])).nonzero()[0]
        near = near[cue_caption[near] == self._caption[row[near]]]
        word, back = rules.backs.of(rule[near])
        near = near[word]
        kept = self._may_be_said_of(row[near], back, offset[near] + cues.start[near], cue_end[near]).nonzero()[0]
        near, row = near[kept], row[near[kept]]
        backs = _rows(self._caption[row], begin[near] - offset[near], row, back[kept])
        parts.append(behind(texts, starts, ends, indptr, backs))

        gap = self._place.take(following, mode="clip") - cue_end
        inside = ((gap < 0) & (following < len(self._place))).nonzero()[0]  # the cue is a mention: "the TV"
        following[inside] += 1
        gap[inside] = self._place.take(following[inside], mode="clip") - cue_end[inside]
        near = ((following < len(self._place)) & (gap >= 0) & (gap <= rules.reach[rule])).nonzero()[0]
        near = near[cue_caption[near] == self._caption[following[near]]]
        word, of = rules.scopes.of(rule[near])
        codes = codes_at(self._byte, cue_end[near])[word]
        near = near[word]
        letters = _letters()
        cue = letters.rows(of)
        kept = ((gap[near] <= rules.own_reach[of]) & letters.after[cue, codes]).nonzero()[0]
        near, of, cue = near[kept], of[kept], cue[kept]
        at = offset[near] + cues.start[near] - 1
        codes = codes_at(self._byte, at, -1)
        kept = letters.before[cue, codes]
        asks = (letters.asks[cue, codes] | rules.of_t[of])[kept]
        near, of = near[kept], of[kept]
        scopes = _Scopes(cue_end[near], of, following[near], of, cue_end[near], following[near])
        by_hand = rules.headed[of]
        if found.wide:
            is_wide = np.zeros(len(texts), dtype=bool)
            is_wide[found.wide] = True
            by_hand |= is_wide[cue_caption[near]]
        if by_hand.any():
            row, at = scopes.row[by_hand], offset[near[by_hand]]
            columns = self._caption[row], cue_end[near[by_hand]] - at, found.mentions.start[row], row, of[by_hand]
            parts.append(in_scope(texts, starts, ends, indptr, _rows(*columns)))
            scopes, asks = scopes.only(~by_hand), asks[~by_hand]
        # from a bytearray, so that it is writable
        uses_found = np.frombuffer(highest(len(starts), parts), dtype=np.uint8)
        for rows, use in self._in_scope(scopes, asks):
            np.maximum.at(uses_found, rows, use)
        return uses_found

    def _in_scope(self, scopes: _Scopes, asks: NDArray[np.bool_]) -> Iterator[tuple[Ints, NDArray[np.uint8]]]:
        """Yields mentions in the scopes of cues, and their uses; see :func:`~scapo_eval.matching.uses.in_scope`.

        Args:
            scopes: Cues, each with the first mention after it.
            asks: (scopes,) bool, true if the decision depends on the text before the cue.
        """
        rules, letters, met = _rules(self._uses), _letters(), _of_thread().met
        while len(scopes.row):
            keys = met.keys(self._byte, scopes.begin, self._place[scopes.row] - scopes.begin, scopes.parent)
            state, ids = met.find(keys)
            kept = state != _OVER
            kept &= (keys[:, :-1].view(np.uint8) != ord(".")).all(axis=1)
            rows = (kept & asks).nonzero()[0]
            kept[rows] = self._are_there(scopes.only(rows))
            rows = kept.nonzero()[0]
            scopes, keys, state, ids = scopes.only(rows), keys[rows], state[rows], ids[rows]
            rows = (state == UNKNOWN).nonzero()[0]
            if len(rows):
                new = np.array(self._states(scopes.only(rows)), dtype=np.uint8)
                state[rows], ids[rows] = new, met.add(keys[rows], new)
            kept = state != _OVER
            rows = (state == _LISTED).nonzero()[0]
            kept[rows] = [goes_on(text, end) for _, text, end in self._behind_mentions(scopes.only(rows))]
            scopes, state, ids = scopes.only(kept), state[kept], ids[kept]
            claimed = (state != _DEFINITE) & letters.then[
                letters.of[scopes.rule], codes_at(self._byte, self._until[scopes.row])
            ]
            rows = (claimed & rules.is_followed[scopes.rule]).nonzero()[0]
            claimed[rows] = [is_followed(*at) for at in self._behind_mentions(scopes.only(rows))]
            yield scopes.row[claimed], rules.use[scopes.rule[claimed]]
            row = scopes.row + 1
            kept = (row < len(self._place)).nonzero()[0]
            kept = kept[self._caption[row[kept]] == self._caption[scopes.row[kept]]]
            kept = kept[self._place[row[kept]] - scopes.cue_end[kept] <= rules.own_reach[scopes.rule[kept]]]
            scopes = scopes._replace(begin=self._until[scopes.row], parent=ids, row=row).only(kept)
            asks = np.zeros(len(kept), dtype=bool)  # decided by the first mention

    def _states(self, scopes: _Scopes) -> list[int]:
        """Returns the states of mentions in the scopes of cues, as positions in STATES."""
        starts, ends = self._starts, self._ends
        shift = self._found.offset[self._caption[scopes.row]]
        rules = shipped_rules().rules
        return [
            STATES.index(state_of(rules[rule], tail_of(self._texts[k], end, starts, ends, first, row)))
            for k, rule, end, first, row in _rows(
                self._caption[scopes.row], scopes.rule, scopes.cue_end - shift, scopes.first, scopes.row
            )
        ]

    def _are_there(self, scopes: _Scopes) -> NDArray[np.bool_]:
        """Returns a mask of the rules that apply to their cues; see :func:`~scapo_eval.matching.uses.is_there`."""
        if not len(scopes.row):
            return np.zeros(0, dtype=bool)
        caption = self._caption[scopes.row]
        begin = np.maximum(scopes.cue_end - BEFORE, self._found.offset[caption])
        told = _of_thread().told
        keys = told.keys(self._byte, begin, scopes.cue_end - begin, scopes.rule)
        there, _ = told.find(keys)
        rows = (there == UNKNOWN).nonzero()[0]
        if len(rows):
            rules, ends = shipped_rules().rules, scopes.cue_end - self._found.offset[caption]
            places = _rows(scopes.rule[rows], caption[rows], ends[rows])
            there[rows] = [is_there(rules[rule], self._texts[k], end) for rule, k, end in places]
            told.add(keys[rows], there[rows])
        return there.astype(bool)

    def _behind_mentions(self, scopes: _Scopes) -> Iterator[tuple[CueRule, str, int]]:
        """Yields the rule, the caption and the end of the mention for each scope."""
        rules = shipped_rules().rules
        for k, rule, row in _rows(self._caption[scopes.row], scopes.rule, scopes.row):
            yield rules[rule], self._texts[k], self._ends[row]

    def _may_be_said_of(self, row: Ints, rule: Ints, begin: Ints, cue_end: Ints) -> NDArray[np.bool_]:
        """Returns a mask of the mentions to which a following cue may apply. The mask is based on the letters after the
        mention and after the cue, and on the last letters of the mention.

        Args:
            row: Row indices of the mentions.
            rule: Rule of the cue that follows each mention.
            begin, cue_end: Start and end of the cue word that follows each mention.
        """
        letters = _letters()
        cue, end = letters.back_rows(rule), self._until[row]
        adjacent = (begin == end + 1) & (self._byte[end] == ord(" "))
        codes, further = codes_at(self._byte, end), codes_at(self._byte, cue_end)
        may: NDArray[np.bool_] = letters.back[cue, codes] & (letters.adjacent[cue, further] | ~adjacent)
        plural = letters.back_plural[cue, codes] & (letters.adjacent_plural[cue, further] | ~adjacent)
        rows = (plural & ~may).nonzero()[0]
        last = self._byte[end[rows, None] - (2, 1)] | 0x20
        may[rows] = _plural_endings()[last[:, 0], last[:, 1]]
        return may

    def _spans(self, row: Ints) -> Iterator[Any]:
        """Returns an iterator over mentions, each given as caption index, row, start and end."""
        mentions = self._found.mentions
        return _rows(self._caption[row], row, mentions.start[row], mentions.end[row])

    def _listed(self, row: Ints) -> NDArray[np.bool_]:
        """Returns a (rows,) mask of the mentions that belong to a list without commas.

        Such a list consists of three adjacent mentions, or of two adjacent mentions at the beginning of a text.
        Mentions in a list are not modifiers.

        Args:
            row: Row indices of the mentions to check.
        """
        mentions, caption = self._found.mentions, self._caption

        def is_beside(row: Ints) -> NDArray[np.bool_]:
            """Returns a mask of the mentions that directly follow the preceding mention."""
            last, this = (row - 1).clip(0, len(caption) - 1), row.clip(0, len(caption) - 1)
            beside: NDArray[np.bool_] = caption[this] == caption[last]
            beside &= (mentions.start[this] == mentions.end[last] + 1) & (this > last)
            return beside

        before, itself, behind, further = (is_beside(row + k) for k in (-1, 0, 1, 2))
        listed: NDArray[np.bool_] = (itself & (before | behind)) | (behind & further)
        listed |= behind & (mentions.start[row] == 0)
        return listed


@cache
def _plural_endings() -> NDArray[np.bool_]:
    """Returns a table indexed by the second-to-last and the last byte of a noun, which is true for all possible endings
    of plural nouns.
    """
    table = np.zeros((256, 256), dtype=bool)
    table[:, ord("s")] = True
    table[ord("a") : ord("z") + 1, ord("s")] = False
    for pair in plural_endings():
        table[ord(pair[0]), ord(pair[1])] = True
    return table


def _rows(*columns: NDArray[Any]) -> Iterator[Any]:
    """Returns an iterator that yields the rows of several columns as plain Python integers."""
    return zip(*(column.tolist() for column in columns), strict=True)
