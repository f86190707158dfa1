"""Extraction of claims: rules that derive statements about objects from the words around their mentions.

The words and examples are stored in ``cues.yaml``. Claims are defined in docs/claims.md. The rules are deterministic,
need no model, and process one sentence at a time. They neither resolve pronouns nor guess: the words of a claim must be
next to its object.

All captions of a batch are read at once. ``tokens.py`` splits them into words. ``rules.py`` interprets the words around
one object, and ``memory.py`` caches the results of these rules. This module connects the objects of a sentence and
returns the claims as columns, or as one record per claim.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import cache, cached_property, lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..base.columns import MentionColumns
from ..base.reprs import one_line
from ..base.types import Mention
from ..matching.matcher import AliasMatcher
from ..matching.uses import USES, Reading
from ..matching.visible import listed
from ..matching.vocabulary import VocabularyGiven
from . import rules
from .claim import KINDS, Claim, ClaimKind, kinds_of
from .rules import (
    BEING,
    FINITE_BE,
    LISTED,
    OWNING,
    REACH,
    SENTENCE_END,
    SETS,
    VALUES,
    VERBS,
    WORDS,
    Between,
    Led,
    Rules,
)
from .tokens import Tokens, codes, tokens_of

Ints = NDArray[Any]
_PRESENCE, _COUNT, _ATTRIBUTE, _RELATION, _TEXT = range(len(KINDS))
_CLAIM, _HEDGED, _MODIFIER, _QUOTED_USE = (USES.index(use) for use in ("claim", "hedged", "modifier", "quoted"))
_WRITTEN = 120  # maximum number of characters in a quotation
_LINKS = 4  # maximum number of relations between a person and the clothes
_ONE_SEES = 56  # number of words after "one" that are searched for "another" or "others"


class ClaimColumns(NamedTuple):
    """The claims in many captions, stored as columns and sorted in text order.

    Attributes:
        caption: (claims,) index of each claim's caption.
        kind: (claims,) position in :data:`~scapo_eval.claiming.claim.KINDS`.
        label, other: (claims,) position of the labels in the vocabulary, or -1.
        value, category: (claims,) position in ``values``.
        start, end: (claims,) span in the caption.
        use: (claims,) position in :data:`~scapo_eval.matching.uses.USES`.
        mention, second: (claims,) row indices of the mentions of the two objects, or -1.
        restricted: (claims,) mask of the counts that may refer to only some of the objects.
        values: Values and categories to which the positions in ``value`` and ``category`` refer.
    """

    caption: Ints
    kind: Ints
    label: Ints
    other: Ints
    value: Ints
    category: Ints
    start: Ints
    end: Ints
    use: Ints
    mention: Ints
    second: Ints
    restricted: NDArray[np.bool_]
    values: Sequence[str]


class ClaimExtractor:
    """An extractor that finds claims in captions.

    The extractor can be pickled, and it can be shared between threads.

    Args:
        vocabulary: Labels and aliases, in any form that :meth:`Vocabulary.of` accepts.
        kinds: Claim kinds to extract, as a sequence or a string of comma-separated names.
        claims: Reading of the mentions. All claims are returned, but a reading with uses from a judge determines the
            uses.

    Raises:
        InputError: If a kind is unknown.

    Example:
        >>> import scapo_eval
        >>> claims = scapo_eval.ClaimExtractor("coco80", kinds=("count", "attribute")).find("Two red cars.")
        >>> [(claim.kind, claim.label, claim.value) for claim in claims]
        [('count', 'car', '2'), ('attribute', 'car', 'red')]
    """

    def __init__(
        self, vocabulary: VocabularyGiven, kinds: str | Sequence[ClaimKind] = KINDS, claims: Reading = "all"
    ) -> None:
        self.matcher = AliasMatcher(vocabulary, claims)
        self.kinds = kinds_of(kinds) if kinds else ()

    def __repr__(self) -> str:
        return one_line(self, repr(self.matcher.vocabulary))

    def find(self, text: str) -> list[Claim]:
        """Returns the claims in one caption, in text order.

        Args:
            text: Any string.

        Returns:
            Claims whose spans refer to ``text``.

        Raises:
            InputError: If ``text`` is not a string.
        """
        return self.find_batch([text])[0]

    def find_batch(self, texts: Sequence[str]) -> list[list[Claim]]:
        """Returns the claims in many captions. The result equals that of :meth:`find` on each caption, but is computed
        faster.

        Raises:
            InputError: If ``texts`` is a string, or one of the texts is not a string.
        """
        texts = listed(texts)
        mentions, uses = self.matcher.find_all_uses(texts)
        columns = self.columns(texts, mentions, uses)
        labels = self.matcher.vocabulary.labels
        rows = zip(
            mentions.caption.tolist(),
            mentions.start.tolist(),
            mentions.end.tolist(),
            mentions.label_id.tolist(),
            uses.tolist(),
            strict=True,
        )
        records = [Mention(start, end, labels[at], texts[k][start:end], USES[use]) for k, start, end, at, use in rows]
        claims: list[list[Claim]] = [[] for _ in texts]
        names, values = [*labels, ""], columns.values
        for k, kind, label, other, value, category, start, end, use, mention, second, restricted in zip(
            *(column.tolist() for column in columns[:-1]), strict=True
        ):
            of_claim = () if mention < 0 else (records[mention],)
            claims[k].append(
                Claim(
                    KINDS[kind],
                    names[label],
                    values[value],
                    values[category],
                    names[other],
                    start,
                    end,
                    USES[use],
                    of_claim if second < 0 else (*of_claim, records[second]),
                    restricted,
                )
            )
        return claims

    @cached_property
    def _made_of(self) -> frozenset[str]:
        """The aliases that begin with a material and whose other words name the same label, such as "wooden table"."""
        label_of = self.matcher.vocabulary.aliases
        split = ((alias, *alias.split(" ", 1)) for alias in label_of if " " in alias)
        return frozenset(
            alias
            for alias, first, rest in split
            if _is_material(first) and label_of.get(rest) == label_of[alias] and first not in SETS["no_material"]
        )

    def columns(self, texts: Sequence[str], mentions: MentionColumns, uses: NDArray[np.uint8]) -> ClaimColumns:
        """Returns the claims in many captions as columns.

        Args:
            texts: Captions.
            mentions: All mentions in the captions.
            uses: (mentions,) array with the position of each use in :data:`~scapo_eval.matching.uses.USES`.
        """
        found = list[Ints]()
        if "presence" in self.kinds:
            found.append(_rows_of_presence(mentions, uses))
        values: Sequence[str] = VALUES.listed
        if set(self.kinds) - {"presence"}:
            reading = _Reading(texts, mentions, uses, self.matcher.vocabulary.labels, self._made_of)
            claims = reading.claims(self.kinds)
            values = [*values]  # a copy, because another thread may add a value at any time
            claims[claims[:, 1] == _TEXT, 4] += len(values)
            values += reading.written
            found.append(claims)
        rows = np.concatenate([np.empty((0, 12), dtype=np.int64), *found])
        rows = rows[np.array([kind in self.kinds for kind in KINDS])[rows[:, 1]]]
        rank = _rank_of(tuple(self.matcher.vocabulary.labels))
        caption, kind, _, other, _, _, start, end = rows.T[:8]
        rows = rows[np.lexsort((kind * len(rank) + rank[other], end, caption << 32 | start))]
        *columns, restricted = rows.T
        return ClaimColumns._make([*columns, restricted.astype(bool), values])


def claims_of(
    caption: str, vocabulary: VocabularyGiven = "coco80", *, kinds: str | Sequence[ClaimKind] = KINDS
) -> list[Claim]:
    """Returns the claims in one caption, in text order. For many captions, use :class:`ClaimExtractor`.

    Args:
        caption: Any string.
        vocabulary: Vocabulary, its name, or its file.
        kinds: Kinds of claims to find, as a sequence or a string of comma-separated names.

    Raises:
        InputError: If the vocabulary is invalid or a kind is unknown.

    Example:
        >>> import scapo_eval
        >>> [(claim.kind, claim.value) for claim in scapo_eval.claims_of("A dog on a red couch.", kinds=["attribute"])]
        [('attribute', 'red')]
    """
    return ClaimExtractor(vocabulary, kinds).find(caption)


def _rows_of_presence(mentions: MentionColumns, uses: NDArray[np.uint8]) -> Ints:
    n = len(mentions.start)
    none, zero, empty = np.full(n, -1), np.zeros(n, dtype=np.int64), np.full(n, VALUES.of(""))
    places: list[Ints] = [mentions.start, mentions.end, uses]
    return np.stack(
        [mentions.caption, zero + _PRESENCE, mentions.label_id, none, empty, empty, *places, np.arange(n), none, zero],
        axis=1,
        dtype=np.int64,
    )


class _Reading:
    """A batch of captions, with methods that extract all claims other than presence claims.

    The objects are the mentions that do not modify another object, in text order.
    """

    def __init__(
        self,
        texts: Sequence[str],
        mentions: MentionColumns,
        uses: NDArray[np.uint8],
        labels: Sequence[str],
        made_of: Collection[str],
    ) -> None:
        self.texts = texts
        self.made_of = made_of
        self.written = list[str]()
        self.tokens = tokens = tokens_of(texts)
        self.sets = _sets().take(tokens.code)
        self.mention, self.first, self.last = _things(tokens, mentions, uses)
        self.caption = mentions.caption[self.mention]
        self.label = mentions.label_id[self.mention].astype(np.int64)
        self.use = uses[self.mention].astype(np.int64)
        self.at = tokens.base[self.caption] + mentions.start[self.mention]
        of_labels = _of_labels(tuple(labels))
        self.is_agent, self.is_clothes, self.is_pair, self.is_person, self.is_text = of_labels[:5, self.label]
        self.is_worn, self.is_limb, self.is_tool, self.is_ground, self.is_carried, self.is_ridden = of_labels[
            5:, self.label
        ]
        self.is_quoted = self._quoted()
        self.behind = self.last + 1
        self.gap = np.append(0, self.behind[:-1])[: len(self.first)]  # first word after the previous thing

        self.is_of_pronoun = self._is_of_pronoun()
        size = len(tokens.code)
        flags, channel = np.zeros(size, dtype=np.int32), np.zeros(size, dtype=np.int32)
        for k in range(1, int((self.last - self.first).max(initial=0)) + 1):
            flags[np.minimum(self.first + k, self.last)] = rules.GOES_ON
        flags[self.first] = rules.BEGINS
        self.places = self._places(flags, channel)
        channel[self._ones_among_others()] |= rules.OTHERS
        channel[self.gap[self._may_go_on()]] |= rules.AGAIN
        channel[self.gap[self._may_lead_later()]] |= rules.LATER
        channel[self.behind[self._may_begin_inverted()]] |= rules.INVERTS
        self.flags = flags
        nouns = self._noun_phrases()
        channel[nouns] |= rules.NOUN
        channel[self.gap[self._may_lead(np.flatnonzero(nouns))]] |= rules.LEADS
        channels = np.empty((rules.PHRASES + 1, size), dtype=np.int32)
        for cells, alike in zip(channels, rules.ALIKE, strict=False):
            np.bitwise_or(alike.take(tokens.code), flags, out=cells)
        channels[rules.PHRASES] = channel
        self.tape = Rules(channels)

    def _at(self, name: str) -> Ints:
        """Returns the places of the words in a set."""
        return np.flatnonzero((self.sets & _SEARCHED[name]) > 0)

    def _has(self, name: str, begin: Ints) -> NDArray[np.bool_]:
        """Returns a (things,) mask of the things that follow a word from a set. The word must lie between a given place
        (inclusive) and the thing.
        """
        at = self._at(name)
        has: NDArray[np.bool_] = np.append(at, len(self.tokens.code))[np.searchsorted(at, begin)] < self.first
        return has

    def _is_of_pronoun(self) -> NDArray[np.bool_]:
        """Returns a (things,) mask of the things that a pronoun has or does something to: "They hold a cup and sit"."""
        subject, having, end = (
            np.append(-1, at)[np.searchsorted(at, self.first)] for at in map(self._at, ("subject", "having", "ends"))
        )
        mask: NDArray[np.bool_] = (subject >= self.gap) & (having > subject) & (end < subject)
        return mask

    def _may_go_on(self) -> NDArray[np.bool_]:
        """Returns a (things,) mask of the things that may be preceded by a later verb of the clause."""
        code = self.tokens.code
        finite = self._at("finite")
        joined = finite[_is_of("and")[code[finite - 1]]]
        following = np.append(joined, len(code))[np.searchsorted(joined, self.gap + 1)]
        may: NDArray[np.bool_] = (following < self.first) | _is_of("with")[code[self.gap]]
        return may

    def _may_lead_later(self) -> NDArray[np.bool_]:
        """Returns a (things,) mask of the things that are preceded by a comma and a verb, a participle or "with"."""
        code = self.tokens.code
        leads = self._at("leading_later")
        leads = leads[_is_of("comma")[code[leads - 1]]]
        starting = _is_of("starting")
        follows = starting[code[leads]] | starting[code[leads + 1]] | starting[code[leads + 2]]
        leads = leads[follows | _is_of("verb_or_with")[code[leads]]]
        may: NDArray[np.bool_] = np.append(leads, len(code))[np.searchsorted(leads, self.gap + 2)] < self.first
        return may

    def _noun_phrases(self) -> NDArray[np.bool_]:
        """Returns a (words,) mask of the words from which the words to the next thing form the beginning of its noun
        phrase.
        """
        code, begins = self.tokens.code, np.zeros(len(self.tokens.code), dtype=bool)
        begins[self.first] = True
        starts: NDArray[np.bool_] = begins.copy()
        at, ahead = self.first, np.full(len(self.first), rules.LAST_ROLES)
        for _ in range(rules.LONGEST):
            at = at - 1
            free = ~begins[at]
            at, ahead = at[free], ahead[free]
            role = rules.ROLE[code[at]]
            starts[at[role & rules.FIRST_ROLES > 0]] = True
            at = at[role & ahead & rules.ROLES_BEHIND[code[at - 1]] > 0]
            ahead = rules.ROLES_AHEAD[code[at]]
        what = self._at("what")  # "on what appears to be a road"
        what = what[_is_of("guesses")[code[what + 1]] & ~(begins[what] | begins[what + 1] | begins[what + 2])]
        is_to = _is_of("to")[code[what + 2]]
        is_be = is_to & _is_of("be")[code[what + 3]] & ~begins[what + 3]
        behind = what + 2 + (is_to | _is_of("like")[code[what + 2]]) + is_be
        starts[what] = starts[behind]
        return starts

    def _may_lead(self, nouns: Ints) -> NDArray[np.bool_]:
        """Returns a (things,) mask of the things to which a relation may lead. The words of the relation must precede
        the noun phrase of the thing, or that of an earlier thing in a list.

        Args:
            nouns: First words of noun phrases.
        """
        before = self.tokens.code[nouns - 1]

        def are_near(places: Ints) -> NDArray[np.bool_]:
            near = np.append(places, len(self.flags))[np.searchsorted(places, self.gap + 1)]
            are: NDArray[np.bool_] = near <= self.first
            return are

        ends = nouns[_ends_relation()[self.tokens.code[nouns - 2], before]]
        listed = are_near(nouns[_is_of("joining")[before]]) & self._has("listing", self.gap)
        # behind "he is surfing", the words after a thing are also read
        return are_near(ends) | listed | self._has("pronoun", self.gap)

    def _later(self) -> tuple[Ints, Ints]:
        """Returns the later parts of clauses, as in "The horse is calm and slow, standing there, and is brown".

        Returns:
            (parts,) arrays: the thing before each part, and the comma or "and" with which the part begins.
        """
        code = self.tokens.code
        commas, joints = self._at("comma"), self._at("and")
        after, behind = code[commas + 1], code[commas + 2]
        commas = commas[_is_of("doing")[after] | (_is_of("adverb")[after] & _is_of("doing")[behind])]
        joints = joints[_is_of("going_on")[code[joints + 1]]]
        at = np.sort(np.append(commas, joints))
        thing = np.searchsorted(self.behind, at, side="right") - 1
        thing, at = thing[thing >= 0], at[thing >= 0]
        breaks, begin = self._at("breaking"), self.behind[thing]
        end = np.append(breaks, len(code))[np.searchsorted(breaks, begin)]
        kept = (at > begin) & (at < np.minimum(end, begin + REACH))
        return thing[kept], at[kept]

    def _may_begin_inverted(self) -> NDArray[np.bool_]:
        """Returns a (things,) mask of the things whose sentence or clause may begin with a relation."""
        code = self.tokens.code
        starts = self._at("starting")
        before = code[starts - 1]
        begins = _is_of("begins")[before] | (_is_of("doing")[before] & _is_of("begins")[code[starts - 2]])
        starts = starts[begins | _is_of("and")[before]]
        last = np.append(0, starts)[np.searchsorted(starts, self.first, side="right")]
        may: NDArray[np.bool_] = self.first - last <= rules.LONGEST + 1
        return may

    def _ones_among_others(self) -> Ints:
        """Returns the position of each "one" that is followed by a mention of another, as in "one man sits, the other
        stands".

        The other one may also begin the next sentence: "One man sits. Another man stands."
        """
        code = self.tokens.code
        ones, others, ends = map(self._at, ("one", "others", "stops"))
        other, end = (np.append(at, len(code))[np.searchsorted(at, ones, side="right")] for at in (others, ends))
        begins = end + 1 + _is_of("the")[np.append(code, [0, 0])[np.minimum(end + 1, len(code))]]
        among: Ints = ones[((other < end) | (other == begins)) & (other <= ones + _ONE_SEES)]
        return among

    def _words_of(self, caption: int) -> tuple[int, int]:
        """Returns the index of the first word of a caption and the index after its last word."""
        base = int(self.tokens.base[caption])
        begin, end = np.searchsorted(self.tokens.start, (base, base + len(self.texts[caption])))
        return int(begin), int(end)

    def _captions_of(self, places: Ints) -> list[int]:
        """Returns the indices of the captions that contain the words at the given places."""
        owner = np.searchsorted(self.tokens.base, self.tokens.start[places], side="right") - 1
        captions: list[int] = np.unique(owner).tolist()
        return captions

    def _quoted(self) -> NDArray[np.bool_]:
        """Returns a (words,) mask of the words between quotation marks, which do not describe the image."""
        inside = np.zeros(len(self.tokens.code), dtype=bool)
        marks = self._at("quotes")
        for caption in self._captions_of(marks):
            opened = None
            begin, end = self._words_of(caption)
            for k in np.flatnonzero(_is_of("quotes_and_lines")[self.tokens.code[begin:end]]).tolist():
                word = codes().words[self.tokens.code[begin + k]]
                if word[0] == "\n":
                    opened = None
                elif opened is not None and word != "“":
                    inside[opened : begin + k + 1] = True
                    opened = None
                else:
                    opened = begin + k
        return inside

    # ---- all claims

    def claims(self, kinds: Sequence[ClaimKind]) -> Ints:
        """Returns all claims except presence claims as rows; see :class:`ClaimColumns`.

        Claims of kinds that are not requested are included if they affect a requested claim.
        """
        if not set(kinds) - {"presence", "text"}:
            return self._texts()
        code, free = self.tokens.code, ~self.is_quoted[self.first]
        things = np.flatnonzero(free & ~_is_of("bare")[code[self.first - 1]])
        owner, rows = rules.MEMORY.rows(self.tape, rules.BEFORE_RULE, self.first[things])
        k = things[owner]
        kept = (rows[:, 6] & rules.NO_PAIR == 0) | ~self.is_pair[k]
        kept &= (rows[:, 6] & rules.AGENT == 0) | self.is_agent[k]
        before = self._claims(k[kept], self.first[k[kept]], rows[kept])

        others = free
        if not set(kinds) - {"presence", "count"}:  # only attributes that restrict a count
            sentence = np.searchsorted(self._at("ends"), self.first)
            others = free & np.isin(sentence, sentence[k[rows[:, 0] == _COUNT]])
        relations, root, with_led = self._relations(np.flatnonzero(others & self._follows_another()))
        says = _is_of("saying")[code[self.behind]] | _is_of("colored")[code[self.last]]
        things = np.flatnonzero(others & (says | (self.flags[self.behind] & rules.PASSES > 0)))
        owner, rows = rules.MEMORY.rows(self.tape, rules.BEHIND_RULE, self.behind[things])
        thing, place = things[owner], self.behind[things[owner]]
        later, at = self._later()
        reached = np.zeros(len(self.first), dtype=np.int64)
        np.maximum.at(reached, thing, place + rows[:, 3])
        kept = others[later] & (reached[later] < at)
        owner, more = rules.MEMORY.rows(self.tape, rules.BEHIND_RULE, at[kept])
        thing, place = np.append(thing, later[kept][owner]), np.append(place, at[kept][owner])
        rows = np.concatenate([rows, more])
        _, once = np.unique(place + rows[:, 2], return_index=True)  # parts of a clause may overlap
        thing, place, rows = thing[once], place[once], rows[once]
        conditions = rows[:, 6]
        k = np.where(conditions & rules.BY_ROOT, root[thing], thing)
        k = np.where((conditions & rules.DOER > 0) & (self.is_worn[k] | (k != thing)), self._doers(root)[k], k)
        kept = (conditions & rules.WITH == 0) | with_led[thing] | self.is_limb[thing]
        kept &= (conditions & rules.NO_AGENT == 0) | ~self.is_agent[k]
        kept &= (conditions & rules.AGENT == 0) | self.is_agent[k]
        kept &= (conditions & rules.BY_ROOT == 0) | ~self.is_of_pronoun[k]
        behind = self._claims(k[kept], place[kept], rows[kept])

        claims = np.concatenate([before, self._materials(free), relations, behind, self._located(root)])
        claims = self._restricted(claims)
        return np.concatenate([claims, self._texts()]) if "text" in kinds else claims

    def _materials(self, free: NDArray[np.bool_]) -> Ints:
        """Returns the claims about materials inside mentions, as in "wooden table", as rows. Only the things in a
        (things,) mask are examined.
        """
        tokens = self.tokens
        k = np.flatnonzero(free & (self.last > self.first) & _is_of("material")[tokens.code[self.first]])
        spans = zip(tokens.start[self.first[k]].tolist(), tokens.end[self.last[k]].tolist(), strict=True)
        k = k[[" ".join(tokens.lowered[start:end].split()) in self.made_of for start, end in spans]]
        row = _ATTRIBUTE, rules.OF_ATTRIBUTE, 0, 0, VALUES.of("material"), _CLAIM, 0
        return self._claims(k, self.first[k], np.tile(row, (len(k), 1)))

    def _doers(self, root: Ints) -> Ints:
        """Returns a (things,) array that contains, for each thing, the person or animal from which relations lead to
        this thing, or the thing itself if there is no such person or animal.
        """
        doer = np.arange(len(root))
        for _ in range(_LINKS):
            doer = np.where(self.is_agent[doer], doer, root[doer])
        return np.where(self.is_agent[doer], doer, np.arange(len(root)))

    def _claims(self, k: Ints, at: Ints, rows: Ints, other: Ints | None = None) -> Ints:
        """Converts results of rules to rows of claims about the things ``k``. The places at which the rules began are
        given by ``at``.
        """
        kind, value, first, last, category, use, _ = rows.T
        of_word = rules.VALUES_OF[np.minimum(value, -1), self.tokens.code[at + last]]
        base = self.tokens.base[self.caption[k]]
        none = np.full(len(k), -1)
        use = np.maximum(use, self.use[k])
        if other is not None:
            use = np.maximum(use, self.use[other])
        return self._rows(
            k,
            kind,
            none if other is None else self.label[other],
            np.where(value < 0, of_word, value),
            category,
            self.tokens.start[at + first] - base,
            self.tokens.end[at + last] - base,
            use,
            none if other is None else self.mention[other],
        )

    def _rows(self, k: Ints, kind: Ints, other: Ints, value: Ints, category: Ints, *rest: Ints) -> Ints:
        start, end, use, second = rest
        parts = (self.caption[k], kind, self.label[k], other, value, category, start, end, use, self.mention[k], second)
        return np.stack([*parts, np.zeros(len(k), dtype=np.int64)], axis=1)

    def _restricted(self, claims: Ints) -> Ints:
        """Marks the counts that may refer to only some of the objects."""
        counts = np.flatnonzero(claims[:, 1] == _COUNT)
        narrowed = np.unique(claims[claims[:, 1] > _COUNT, 9])
        mention, base = claims[counts, 9], self.tokens.base[claims[counts, 0]]
        key = claims[counts, 0] << 32 | claims[counts, 2]
        _, which, times = np.unique(key, return_inverse=True, return_counts=True)
        some = (times[which] > 1) | np.isin(mention, narrowed)
        at = self.at[np.searchsorted(self.mention, mention)]
        lowered = self.tokens.lowered
        spans = zip((base + claims[counts, 7]).tolist(), at.tolist(), strict=True)
        some |= np.array([bool(lowered[end:start].replace("*", " ").split()) for end, start in spans], dtype=bool)
        claims[counts, 11] = some
        return claims

    # ---- relations between things

    def _follows_another(self) -> NDArray[np.bool_]:
        """Returns a (things,) mask of the things to which a relation may lead from the preceding thing."""
        distance = self.first - self.gap
        follows: NDArray[np.bool_] = (distance > 0) & (distance <= REACH) & ~self._has("apart", self.gap)
        follows[:1] = False
        follows[1:] &= ~self.is_quoted[self.first[:-1]]
        return follows

    def _relations(self, things: Ints) -> tuple[Ints, Ints, NDArray[np.bool_]]:
        """Returns the relations that lead to the given things.

        Returns:
            Three values: the relations as rows, a (things,) array with the subject of each thing's clause, and a
            (things,) mask of the things that "with" introduces directly or as later elements of a list.
        """
        owner, rows = rules.MEMORY.rows(self.tape, rules.BETWEEN_RULE, self.gap[things])
        chain = _Chain(self)
        for k, said in zip(things[owner].tolist(), rows[:, 0].tolist(), strict=True):
            chain.add(k, rules.BETWEEN[said])
        found = np.array(chain.found, dtype=np.int64).reshape(-1, 10)
        with_led = np.zeros(len(self.first), dtype=bool)
        with_led[[k for k in chain.leds if chain.stands_with(k)]] = True
        relations = self._claims(found[:, 0], found[:, 2], found[:, 3:], found[:, 1])
        return relations, np.array(chain.root, dtype=np.int64), with_led

    # ---- where in the picture

    def _places(self, flags: Ints, channel: Ints) -> list[tuple[int, int, int, str]]:
        """Returns the phrases that state a position. Marks these phrases in the cells, and also phrases such as "in the
        scene", which state no position.

        Args:
            flags, channel: (words,) arrays of cells in which the phrases are marked.

        Returns:
            For each phrase that states a position: its first word, its span in the text of the batch, and its noun.
        """
        lowered, code, start = self.tokens.lowered, self.tokens.code, self.tokens.start
        anchors = self._at("places")
        near, far = _is_of("the")[code[anchors - 1]], _is_of("the")[code[anchors - 2]]
        leads = np.where(near, anchors - 2, anchors - 3)[near | far]
        leads = leads[_is_of("before_places")[code[leads]]]
        over = dict[int, int]()
        places, ends = list[tuple[int, int, int, str]](), 0
        for lead, begin in zip(leads.tolist(), start[leads].tolist(), strict=True):
            match = _PLACE.match(lowered, begin) if begin >= ends else None
            if match is None:
                continue
            ends = match.end()
            noun = match["place"]
            if match["of"] is None and (
                (
                    noun in _SIDES and flags[lead + len(match[0].replace("*", " ").split())] & rules.BEGINS
                )  # "on the left wall"
                or _OF_A_THING.match(lowered, ends)
                or (match["lead"].startswith("in") and WORDS["places"][noun][1] in ("top", "bottom"))
            ):
                continue
            if not self.is_quoted[lead] and not flags[lead]:
                over[lead] = ends
                height = _HEIGHTS.get(match["height"] or "") if noun in _SIDES else None
                places.append((lead, begin, ends, f"{height} {noun}" if height else noun))
        first = np.fromiter(over, dtype=np.int64, count=len(over))
        length = np.searchsorted(start, np.fromiter(over.values(), dtype=np.int64, count=len(over))) - first
        itself = self._itself()
        # a longer phrase may end in the same word, as in "at the top in the image", and is written last
        first, length = np.append(itself, first), np.append(np.full(len(itself), 3), length)
        flags[first] |= rules.PASSES
        channel[first] |= length
        channel[first + length - 1] |= length << rules.ENDED
        return places

    def _itself(self) -> Ints:
        """Returns the first word of each phrase, such as "in the scene", that states no position."""
        code = self.tokens.code
        first: Ints = self._at("itself") - 2
        first = first[_is_of("in_or_above")[code[first]] & _is_of("the_this")[code[first + 1]]]
        return first

    def _located(self, root: Ints) -> Ints:
        """Returns the claims about the positions of things as rows."""
        first, begin, end = np.array([place[:3] for place in self.places], dtype=np.int64).reshape(-1, 3).T
        owner, rows = rules.MEMORY.rows(self.tape, rules.LOCATED_RULE, first)
        k = np.searchsorted(self.first, first[owner] + rows[:, 0], side="right") - 1
        again = (rows[:, 1] > 1) & (root[k] == k)  # "and is on the left", of a subject that is no object
        owner, rows, k = owner[~again], rows[~again], k[~again]
        k = np.where(rows[:, 1], root[k], k)
        said = [_place_values()[self.places[place][3]] for place in owner.tolist()]
        value, category = np.array(said, dtype=np.int64).reshape(-1, 2).T
        base, none = self.tokens.base[self.caption[k]], np.full(len(k), -1)
        kind = np.full(len(k), _RELATION)
        return self._rows(k, kind, none, value, category, begin[owner] - base, end[owner] - base, self.use[k], none)

    # ---- what is written

    def _texts(self) -> Ints:
        """Returns the text claims as rows, whose values are positions in ``written``. Each claim is about the nearest
        preceding object in its sentence, or about no object.
        """
        captions = self._captions_of(np.append(self._at("quotes"), self._at("reading")))
        found = [(caption, *place) for caption in captions for place in self._texts_of(caption)]
        caption, token, start, end = np.array(found, dtype=np.int64).reshape(-1, 4).T
        self.written += [self.texts[k][begin:stop] for k, _, begin, stop in found]
        holders, ends = np.flatnonzero(~self.is_text), self._at("ends")
        k = np.append(-1, holders)[np.searchsorted(self.first[holders], token)]
        k[np.append(self.last, -1)[k] <= ends[np.searchsorted(ends, token) - 1]] = -1
        use = np.append(self.use, _CLAIM)[k]
        use[use == _QUOTED_USE] = _CLAIM
        n = len(found)
        kind, none, empty, zero = np.full(n, _TEXT), np.full(n, -1), np.full(n, VALUES.of("")), np.zeros(n, np.int64)
        of_thing: list[Ints] = [np.append(column, -1)[k] for column in (self.label, self.mention)]
        parts = (caption, kind, of_thing[0], none, np.arange(n), empty, start, end, use, of_thing[1], none, zero)
        return np.stack(parts, axis=1)

    def _texts_of(self, caption: int) -> Iterator[tuple[int, int, int]]:
        """Yields the first word of each text claim in a caption, and the span of its text."""
        text, base = self.texts[caption], int(self.tokens.base[caption])
        begin, end = self._words_of(caption)
        words = [codes().words[code] for code in self.tokens.code[begin:end].tolist()]
        starts = (self.tokens.start[begin:end] - base).tolist()
        written = WORDS["written"]
        for match in _QUOTED.finditer(text):
            token, closing = bisect_left(starts, match.start()), bisect_left(starts, match.end())
            said = not written.keys().isdisjoint(words[max(0, token - 5) : token])
            said |= not _SHOWN.isdisjoint(words[closing : closing + 4])
            said &= len(match["text"]) <= _WRITTEN
            if said and token < len(words) and match["text"].strip(_EDGES):
                yield begin + token, *_stripped(text, match.start("text"), match.end("text"))
        for match in () if _READING.isdisjoint(words) else _CAPITALS.finditer(text):
            token = begin + bisect_left(starts, match.start("text"))
            if not self.is_quoted[token]:
                yield token, match.start("text"), match.end("text")


class _Chain:
    """The relations between the objects in a batch of captions, added from left to right.

    Attributes:
        root: For each object, the subject of its clause: the object itself, or the object from which relations lead to
            it.
        leds: Mapping from each object to the relation that leads to it, the first word of the gap before the object,
            and the subject of the relation.
        found: Ten integers for each relation: the indices of the subject and the object, the first word of the gap
            before the object, and the seven integers of the rule's row.
    """

    def __init__(self, reading: _Reading) -> None:
        self.root = list(range(len(reading.first)))
        self.leds = dict[int, tuple[Led, int, int]]()
        self.found = list[int]()
        self._tape = reading.tape
        # as memory views, which return plain integers and are not copied
        self._first, self._last, self._gap = reading.first.data, reading.last.data, reading.gap.data
        self._caption, self._label, self._code = reading.caption.data, reading.label.data, reading.tokens.code.data
        self._agent, self._clothes, self._person = (
            reading.is_agent.data,
            reading.is_clothes.data,
            reading.is_person.data,
        )
        self._is_worn, self._limb, self._is_tool = reading.is_worn.data, reading.is_limb.data, reading.is_tool.data
        self._ground, self._carried, self._ridden = (
            reading.is_ground.data,
            reading.is_carried.data,
            reading.is_ridden.data,
        )
        self._of_pronoun = reading.is_of_pronoun.data
        self._open = set[int]()
        self._apposed = set[int]()
        self._apart = reading._has("apart_or_being", reading.gap).data
        self._sentence = (~reading._has("ends", reading.gap)).data

    def add(self, k: int, said: Between) -> None:
        """Adds the information given by the words before thing ``k``."""
        at, before = self._gap[k], k - 1
        if said.inverted is not None:
            self._find(k, before - (said.inverted.how == "over"), at, said.inverted)
            return
        if said.apposed:
            self.root[k] = self.root[before]
            if self._word(at) == ",":
                self._apposed.add(k)
            return
        led = said.led
        if led is None:
            if self._lists(k, said):
                return
            led = said.again
            if led is None:
                if self._is_same(k):
                    self.root[k] = self.root[before]
                return
        if self._clothes[k] and led.value == "with":
            listed = not _LISTING.isdisjoint(self._words(at + led.last + 1, self._first[k]))
            worn = self._worn(k) if listed else None  # "in a coat with long sleeves, boots and a hat"
            if worn is not None:
                self._go_on(k, worn)
                return
        subject = self._subject(before, led, at, k)
        if subject is None:
            if self._word(at + led.first) == "with":  # ", with the door open"
                self._open.add(k)
            return
        if led.value == "with" and self._limb[k] and self._word(at + led.last + 1) in _POSSESSIVE:
            subject = self._doer(subject)
        if led.value == "with" and self._is_tool[k] and self._is_done_to(before):
            subject = self._agent_before(before)  # "cutting a cake with a knife"
            if subject is None:
                return
        owned = self._owned_by(k)
        if owned is not None:  # "left of the player's body": the landmark is the body
            if owned:
                self._find(subject, owned, at, led)
            return
        owns = self._word(at + led.first) in OWNING  # "the dog's fur is dark": the subject is the fur
        self.root[k] = k if owns else self.root[subject]
        self.leds[k] = led, at, subject
        self._find(subject, k, at, led)

    def _is_same(self, k: int) -> bool:
        """Returns True if a thing names the preceding thing of the same label again: "a woman is the main figure"."""
        at = self._gap[k]
        same = self._label[k] == self._label[k - 1] and self._caption[k] == self._caption[k - 1]
        return same and self._word(at) in BEING and self._word(at + 1) in SETS["articles"]

    def stands_with(self, k: int) -> bool:
        """Returns True if "with" introduces a thing, or an earlier thing in the same list, so that the thing may be
        followed by its state.
        """
        led = self.leds.get(k)
        if k in self._open:
            return True
        return led is not None and led[0].value == "with" and self._word(led[1] + led[0].first) == "with"

    def _find(self, subject: int, other: int, at: int, led: Led, use: int | None = None) -> None:
        row = led.row
        self.found += (subject, other, at, *(row if use is None else (*row[:5], use, 0)))

    def _word(self, place: int) -> str:
        return _WORD[self._code[place]]

    def _words(self, first: int, stop: int) -> list[str]:
        return [self._word(place) for place in range(first, stop)]

    def _lists(self, k: int, said: Between) -> bool:
        """Adds the object if it continues a list, as in "wearing a shirt, shorts and a hat", and returns True in this
        case.
        """
        item = said.after_and if self.stands_with(k - 1) or (self._clothes[k] and not said.item) else said.item
        if item is None:
            return False
        if k - 1 in self._open:
            self._open.add(k)
            return True
        found = self.leds.get(k - 1)
        if self._clothes[k] and (found is None or found[0].cue.category != "wearing"):
            found = self._worn(k) or found
        if found is None:
            return False
        led, at, _ = found
        dressed = led.value == "in" and self._clothes[k]
        if led.cue.category not in LISTED and not dressed and led.value not in SETS["covers"]:
            return False
        clause = (led.cue.category == "part" or item.ends or led.value in SETS["covers"]) and self._word(
            self._last[k] + 1
        ) in FINITE_BE
        owned = self._word(at + led.first) in OWNING
        held_limb = led.cue.category == "holding" and self._limb[k]  # "holding a bat, and their arm raised"
        if (clause and not owned) or self._person[k] or held_limb:
            return False
        if owned and item.article:  # "the man's hat and the dog": the dog is not the man's
            return False
        either = item.either and led.use == "claim"
        if either and self.found[-9:-8] == [k - 1]:
            self.found[-2] = _HEDGED  # the object before "or"
        self._go_on(k, found, _HEDGED if either else None)
        return True

    def _go_on(self, k: int, found: tuple[Led, int, int], use: int | None = None) -> None:
        """Adds an object to the list after a relation."""
        led, at, subject = found
        self.root[k], self.leds[k] = subject, found
        self._find(subject, k, at, led, use)

    def _worn(self, k: int) -> tuple[Led, int, int] | None:
        """Returns the relation of the last item of clothing mentioned before thing ``k`` in the same sentence."""
        for before in range(k - 1, max(k - 5, -1), -1):
            if self._apart[before + 1]:
                return None
            led = self.leds.get(before)
            if led is not None and led[0].cue.category == "wearing":
                return led
        return None

    def _owned_by(self, k: int) -> int | None:
        """Returns the index of the object that thing ``k`` owns, as in "the player's body", 0 if the owned thing is not
        an object in the batch, or None if no possessive follows.
        """
        behind = self._last[k] + 1
        if self._word(behind) not in OWNING or self._word(behind + 1) in SETS["ends"] or not self._word(behind + 1):
            return None
        is_thing = k + 1 < len(self._first) and self._first[k + 1] == behind + 1
        if self._word(behind + 1) in SETS["parts"] and not self._agent[k] and not is_thing:
            return None  # "near the water's edge"
        return k + 1 if self._tape.is_phrase(behind + 1) else 0

    def _subject(self, k: int, led: Led, at: int, other: int) -> int | None:
        """Returns the index of a relation's subject: the preceding object, or the object from which a relation to the
        preceding object starts.
        """
        root, how = self.root[k], led.how
        if k in self._apposed:  # "a car, likely a taxi, has lights": the car has
            return self._agent_before(root) if led.cue.agent else root
        follows = self._word(at + led.last + 1)
        if (
            led.value == "with"
            and how == "behind"
            and (follows in ("his", "her") or (follows in _POSSESSIVE and self._limb[other] and self._limb[k]))
        ):
            return self._agent_before(k)
        taken = (led.value == "with" and self._carried[other]) or (led.value == "on" and self._ridden[other])
        if taken and how == "behind" and self._ground[k] and self._agent[root]:
            return root  # "a man on a beach with a board"
        if how == "doing":  # "a man in a hat sitting on a bench"
            k, how = self._doer(k) if self._is_worn[k] else k, "behind"
        if led.cue.agent:
            if how == "behind" and self._agent[k]:
                return k
            if how == "behind" and self._limb[k]:
                return None
            if how == "verb" and root == k and not self._agent[k] and self._begins_clause(k):
                return None  # "suggests that the plane is carrying people": the subject is not the person before it
            return self._agent_before(root)
        if how == "own":  # "is looking up with its mouth open"
            return None if self._of_pronoun[root] or not (self._limb[other] or self._is_tool[other]) else root
        if how == "comma":
            said = not _PREDICATES.isdisjoint(self._words(self._last[k] + 1, at + led.first))
            said |= led.first == 1 and root == k and self._is_shown(k, led)
            guessed = led.use == "hedged" and led.cue.category in ("spatial", "part")
            of_own = said and (follows not in _OF_OTHERS or (follows == "one" and self._agent[k] and self._limb[other]))
            worn = self._clothes[other] and led.first == led.last and k in self.leds
            of_own |= worn and self.leds[k][0].cue.category == "wearing"  # "in a shirt, with a hat"
            if led.value == "with" and self._limb[other] and self._agent[root]:
                return root  # "in a coat, with one foot on the board"
            own = led.value == "with" and (follows in _POSSESSIVE or of_own)
            if own and self._of_pronoun[root]:
                return None
            return root if own or (guessed and led.cue.category == "part") else k if guessed else None
        if how == "and":  # "the hill is covered with grass and has trees"
            return root if root != k else None
        if how != "verb":
            return k
        return None if self._of_pronoun[root] else root

    def _is_shown(self, k: int, led: Led) -> bool:
        """Returns True if no preposition leads to an object: "there is a hill, with trees", but not "on a hill"."""
        place, joined = self._first[k] - 1, _JOINED if led.last == led.first else _LIKE
        while place >= self._gap[k] and self._word(place) not in _PREDICATES:
            if self._word(place) in joined:
                return False
            place -= 1
        return True

    def _is_done_to(self, k: int) -> bool:
        """Returns True if an action is done to an object, as in "holding a cup"."""
        for place in range(self._first[k] - 1, self._gap[k] - 1, -1):
            word = self._word(place)
            if word.endswith("ing"):
                return True
            if word in _PREDICATES or word in _INSIDE or not word[:1].isalnum():
                return False
        return False

    def _doer(self, k: int) -> int:
        """Returns the index of the person or animal from which relations lead to an object, or the object's own index
        if there is no such person or animal.
        """
        doer = k
        for _ in range(_LINKS):
            if self._agent[doer]:
                return doer
            doer = self.root[doer]
        return k

    def _begins_clause(self, k: int) -> bool:
        """Returns True if a word that begins a clause, such as "that", "as" or "because", occurs between the preceding
        object and object ``k``.
        """
        first = k == 0 or self._caption[k - 1] != self._caption[k]
        return not first and not _CLAUSES.isdisjoint(self._words(self._gap[k], self._first[k]))

    def _agent_before(self, k: int) -> int | None:
        """Returns the index of the nearest preceding person or animal in the same sentence, or None."""
        while not self._agent[k]:
            if not self._sentence[k]:
                return None
            k -= 1
        return k


def _things(tokens: Tokens, mentions: MentionColumns, uses: NDArray[np.uint8]) -> tuple[Ints, Ints, Ints]:
    """Returns the mentions that are objects in their own right, with their first and last words. Modifiers are omitted.

    Returns:
        (things,) arrays with the row indices of the mentions, first words and last words.
    """
    base = tokens.base[mentions.caption]
    begin, end = base + mentions.start, base + mentions.end
    first = np.searchsorted(tokens.end, begin, side="right")
    last = np.maximum(first, np.searchsorted(tokens.start, end) - 1)
    kept = np.flatnonzero((tokens.end[last] <= end) & (uses != _MODIFIER))
    first, last = first[kept], last[kept]
    apart = np.ones(len(kept), dtype=bool)
    apart[:-1] = last[:-1] + 1 != first[1:]  # "a dirt path": the word before says what kind of path
    return kept[apart], first[apart], last[apart]


def _is_material(word: str) -> bool:
    return word in WORDS["attributes"] and WORDS["attributes"][word][0].category == "material"


@cache
def _is_of(name: str) -> NDArray[np.bool_]:
    """Returns a (codes,) mask of the words in a set."""
    words = codes().words
    of: dict[str, Callable[[str], bool]] = {
        "and": lambda word: word == "and",
        "apart": lambda word: word in SENTENCE_END or word[:1] in ("\n", ""),
        "apart_or_being": lambda word: word in SENTENCE_END or word[:1] in ("\n", "") or word in BEING,
        "before_places": frozenset(("on", "to", "toward", "towards", "at", "in", "into", "near")).__contains__,
        "begins": lambda word: word in rules.BEFORE_A_SENTENCE or word[:1] == "\n",
        "bare": lambda word: word in rules.BARE or not word,
        "colored": rules.COLORED.__contains__,
        "ends": lambda word: word in SENTENCE_END or word[:1] in ("\n", ""),
        "finite": VERBS.__contains__,
        "comma": lambda word: word == ",",
        "verb_or_with": lambda word: word in VERBS or word in BEING or word == "with",
        "leading_later": lambda word: (
            word in VERBS or word in BEING or word == "with" or word.endswith(("ing", "ed", "ly"))
        ),
        "doing": lambda word: word in WORDS["doing"] and word.endswith(("ing", "ed")),
        "adverb": lambda word: word.endswith("ly"),
        "subject": frozenset(("he", "she", "they", "it")).__contains__,
        "having": lambda word: (word in VERBS and word not in BEING) or word.endswith("ing"),
        "going_on": rules.GOING_ON.__contains__,
        "breaking": lambda word: word in SENTENCE_END or word in rules.CLAUSES or word[:1] in ("\n", ""),
        "in_or_above": lambda word: word in ("in", "above"),
        "itself": lambda word: word.split("-")[0] in ("image", "picture", "photo", "photograph", "frame", "scene"),
        "one": lambda word: word == "one",
        "others": lambda word: word in ("another", "other", "others"),
        "joining": rules.JOINING.__contains__,
        "listing": rules.LISTING.__contains__,
        "pronoun": rules.PRONOUNS.__contains__,
        "guesses": SETS["guesses"].__contains__,
        "what": lambda word: word == "what",
        "to": lambda word: word == "to",
        "be": lambda word: word == "be",
        "like": lambda word: word == "like",
        "material": _is_material,
        "places": lambda word: word.split("-")[0] in WORDS["places"],
        "quotes": lambda word: word in ('"', "“", "”"),
        "quotes_and_lines": lambda word: word in ('"', "“", "”") or word[:1] == "\n",
        "reading": _READING.__contains__,
        "saying": lambda word: word in rules.SAYING or word.endswith("ly") or word in ("in", "with"),
        "starting": rules.STARTING.__contains__,
        "stops": lambda word: word in (".", "!", "?") or word[:1] in ("\n", ""),
        "the": lambda word: word == "the",
        "the_this": lambda word: word in ("the", "this"),
        "with": lambda word: word == "with",
    }
    return np.array([of[name](word) for word in words])


_SEARCHED = {
    name: 1 << k
    for k, name in enumerate(
        "apart apart_or_being subject having ends finite leading_later what comma and breaking starting one others"
        " stops quotes places itself reading listing pronoun".split()
    )
}
"""The sets whose words are searched for in whole batches, each with its bit."""


@cache
def _sets() -> NDArray[np.uint32]:
    """Returns the (codes,) sets to which a word belongs, as the sum of their bits."""
    bits = [_is_of(name) * np.uint32(bit) for name, bit in _SEARCHED.items()]
    return np.array(np.sum(bits, axis=0), dtype=np.uint32)


@cache
def _ends_relation() -> NDArray[np.bool_]:
    """Returns a (codes, codes) mask of the pairs of words that may end a relation."""
    mask = np.zeros((len(_WORD), len(_WORD)), dtype=bool)
    for words in rules.ENDING:
        before = _WORD.index(words[0]) if len(words) > 1 else slice(None)
        mask[before, _WORD.index(words[-1])] = True
    return mask


@lru_cache(maxsize=8)
def _rank_of(labels: tuple[str, ...]) -> Ints:
    """Returns the (labels + 1,) alphabetical positions of the labels, counted from 1, with 0 for no label."""
    return np.append(np.argsort(np.argsort(labels)) + 1, 0)


@lru_cache(maxsize=8)
def _of_labels(labels: tuple[str, ...]) -> NDArray[np.bool_]:
    """Returns one (labels,) mask for each of the following groups: agents, clothes, things of which a pair counts as
    one, people, texts, worn things, limbs, tools, grounds, carried things, and ridden things.
    """
    sets: tuple[Collection[str], ...] = (SETS["agents"], SETS["clothes"], SETS["of_pairs"], ("person",), ("text",))
    sets += tuple(SETS[name] for name in ("worn", "limbs", "tools", "grounds", "carried", "ridden"))
    return np.array([[label in chosen for label in labels] for chosen in sets], dtype=bool)


@cache
def _place_values() -> dict[str, tuple[int, int]]:
    """Returns a mapping from each noun in a phrase for a position, such as "left" or "top left", to the numbers of the
    position's value and category.
    """
    values = {noun: (value, cue.category) for noun, (cue, value) in WORDS["places"].items()}
    corners = (f"{height} {side}" for height in ("top", "bottom") for side in sorted(_SIDES))
    values |= {corner: (corner, values["top"][1]) for corner in corners}
    return {noun: (VALUES.of(value), VALUES.of(category)) for noun, (value, category) in values.items()}


def _stripped(text: str, start: int, end: int) -> tuple[int, int]:
    while start < end and text[start] in _EDGES:
        start += 1
    while start < end and text[end - 1] in _EDGES:
        end -= 1
    return start, end


_WORD = codes().words
_EDGES = " .,;:"
_CLAUSES = frozenset(("that", "as", "while", "because", "so", "if", "where"))
_OF_OTHERS = frozenset(("the", "this", "that", "another", "one", "each", "some", "what", "others"))
_LISTING = frozenset((",", "and"))
_LIKE = frozenset(("and", "or", "like"))
_JOINED = _LIKE | SETS["prepositions"]
_INSIDE = SETS["prepositions"] - {"of"}
_PREDICATES = BEING | VERBS
_POSSESSIVE = frozenset(("its", "his", "her", "their", "both"))
_SIDES = frozenset(("left", "right"))
_HEIGHTS = {"upper": "top", "top": "top", "lower": "bottom", "bottom": "bottom"}
_SHOWN = frozenset(("written", "printed", "displayed"))
_GAP = "[ \\t*]{1,8}"
# Patterns of the batch's text in lower case; each is matched where a position's phrase may begin. As between the words
# of the rules, Markdown marks and several blanks may stand where the patterns have a space.
_PLACE = re.compile(
    r"\b(?P<lead>on|towards?|to|at|in|near|into(?= the (?:distance|background))) the "
    r"(?:(?:far|very|extreme|blurred|immediate) |(?P<height>upper|lower|bottom|top) )?"
    r"(?:(?P<place>left|right|background|distance|foreground|center|centre|middle|top|bottom)\b)"
    r"(?! of (?!(?:the|this) (?:image|picture|photo|frame|scene)|different|various))(?! and (?:left|right|top|bottom))"
    r"(?:-hand)?(?: (?:side|part|half|portion|corner|edge|area|section))?"
    r"(?P<of> (?:of|in) (?:the |this )?(?:image|picture|photo|photograph|frame|scene)\b)?".replace(" ", _GAP)
)
_OF_A_THING = re.compile(r" of (?:the|an?|this|that|its|his|her|their|[a-z]+'s) ".replace(" ", _GAP))
# Long quotations match, too: otherwise, their closing mark would open the next quotation.
_QUOTED = re.compile(r"[\"“](?P<text>[^\"“”\n]*)[\"”]")
_READING = frozenset("reads reading says saying spells labeled letters word words".split())
_CAPITALS = re.compile(
    r"(?:r(?<=\br)ead(?:s|ing)|s(?<=\bs)(?:ay(?:s|ing)|pells)|l(?<=\bl)(?:abeled|etters)|w(?<=\bw)ords?)[^\S\r\n]+"
    r"(?P<text>[A-Z0-9][A-Z0-9'&-]+(?:[^\S\r\n]+[A-Z0-9][A-Z0-9'&-]+)*)\b"
)
