"""The claim rules that depend only on the words around one object.

The words and examples are stored as data in ``cues.yaml``; docs/claims.md defines claims. Each rule starts at a place
in the words of a batch (:mod:`~scapo_eval.claiming.tokens`). The input of a rule consists of words and of the places
where objects or position phrases begin. The result identifies each word by its offset from the given position.
``memory.py`` stores the results of earlier readings, and ``extract.py`` determines which objects a relation connects.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..base.types import Use
from ..matching.uses import USES
from .claim import KINDS, ClaimKind, count_range
from .cues import ClaimCue, shipped_claim_cues
from .memory import Memory, Tape
from .tokens import codes

CUES = shipped_claim_cues()
SETS, WORDS = CUES.sets, CUES.words
BEING = SETS["being"]
SENTENCE_END = frozenset(".!?;:")
FINITE_BE = frozenset(("is", "are", "was", "were", "has", "have"))
OWNING = frozenset(("'s", "'"))
LISTED = frozenset(("wearing", "holding", "part"))
REACH = 18
"""Maximum number of words between an object and another one that a relation leads to."""

BEGINS, GOES_ON, PASSES = 1, 2, 4
"""Flags of a cell: the word begins an object, is a later word of an object, begins a phrase for a position."""

BEFORE_WORDS, BEHIND_WORDS, BETWEEN_WORDS, PHRASES = range(4)
"""Channels of cells: words with flags, where words are alike that are so for :meth:`Rules.before`, for
:meth:`Rules.behind`, or for :meth:`Rules.between` and :meth:`Rules.located`; phrases and other flags.
"""

FLAGS = 3  # bits of flags in a cell, before the code of its word
LENGTH = 15
"""Mask of the channel PHRASES: number of words of the phrase for a position that begins there."""

OTHERS, AGAIN, INVERTS, LATER, LEADS, NOUN = 16, 32, 64, 128, 256, 512
"""Flags of the channel PHRASES: "another" or "others" follows in the sentence. Of the first word behind an object: a
later verb may precede the next object; the sentence or clause of the object may begin with a relation; a comma and a
verb, a participle or "with" precede the next object; a relation may lead to it. The words from here to the next object
form the beginning of its noun phrase.
"""

ENDED = 10  # bits of the channel PHRASES before the length of a phrase that ends there

BY_ROOT, WITH, NO_AGENT, AGENT, NO_PAIR, DOER = 1, 2, 4, 8, 16, 32
"""Conditions of a claim: its object is the subject of the clause; it holds only behind "with"; only if the object is no
agent, or only if it is one; only if a pair of the object is not one thing; an action, which clothes do not do.
"""

_ATTRIBUTES, _COLLECTIONS, _COUNTS, _DOING, _NUMBERS, _POSED = (
    WORDS[name] for name in ("attributes", "collections", "counts", "doing", "numbers", "posed")
)
_ENDS, _GUESSES, _ON_THE_WAY, _SHADES = (SETS[name] for name in ("ends", "guesses", "on_the_way", "shades"))
_WAY = _ON_THE_WAY | {"mid-air"}
_PASSED = _ON_THE_WAY - _DOING.keys() - _POSED.keys()
STARTING = {
    phrase[0]: tuple((words, cue, value) for words, cue, value in CUES.phrases if words[0] == phrase[0])
    for phrase, _, _ in CUES.phrases
}
_LEADING = frozenset(STARTING)
ENDING = frozenset(words[-2:] for words, _, _ in CUES.phrases)
"""The last one or two words of each relation."""
LISTING = frozenset(words[0] for words, cue, _ in CUES.phrases if cue.category in LISTED)
"""Words that begin a relation to each thing in a list."""
JOINING = _GUESSES | {"and", ",", "or"}
_HUNDREDS = frozenset(("hundred", "thousand", "million"))
_TO = ("to", "be")
_PLACING = frozenset(("on", "in", "at", "near", "by", "for"))
_SKIPPED = 2  # maximum number of unlisted words between an attribute and its thing: "a red double-decker tour bus"
LONGEST = 7  # words of a noun phrase before its noun
_KINDS_IN_ING = frozenset(("running", "walking", "dancing", "climbing", "parked", "raised"))
"""Words of actions that say what kind of thing a noun is, as in "a walking stick", or that are attributes as well."""
VERBS = FINITE_BE | SETS["finite"]
_POSSESSIVES = frozenset(("its", "his", "her", "their"))
_OWN = _POSSESSIVES | {"both", "one"}
PRONOUNS = frozenset(("he", "she", "they", "it", "him", "her", "them", "you"))
_OBJECT_PRONOUNS = PRONOUNS | {"other", "another"}
CLAUSES = PRONOUNS | frozenset("that which who whose what where when while as because if so there but".split())
"""Words that begin a clause with a subject of its own."""
_SAYING = BEING | VERBS | PRONOUNS
_OF_THE = frozenset(("the", "a", "an", "this", "its", "his", "her", "their"))
_AFTER_A_COMMA = frozenset(("which", "who", "that", "is", "are", "was", "were"))
GOING_ON = FINITE_BE | {"appears", "appear", "seems", "seem"}
_OBJECTS = (SETS["articles"] - {"all", "both"}) | _COUNTS.keys()
_APPOSING = _GUESSES | frozenset(("specifically", "often", "also", "known", "called", "as", "resembling"))
_MIXES = frozenset(("mix", "mixture", "combination", "blend", "shade", "shades"))
_HUES = frozenset(("shades", "tones", "color", "colour", "hue", "shade", "colors"))
_AFTER_A_PLACE = frozenset(
    (",", "there", "is", "are", "a", "an", "the", "two", "several", "stands", "sits", "hangs", "lies")
)
_STANDING_THERE = frozenset(
    ("is", "are", "'s", "was", "were", "stands", "stand", "sits", "sit", "hangs", "lies", "rests")
)
_INVERTING = _STANDING_THERE | {",", "there"}
BARE = (
    frozenset(word for word in _ENDS if word not in ("and", "or", "of") and word not in _ATTRIBUTES)
    - _COUNTS.keys()
    - SETS["others"]
)
"""Words that, directly before an object, exclude further claims to the left of them."""
BEFORE_A_SENTENCE = frozenset('.!?;:"”') | {""}
COLORED = frozenset(("painted", "colored"))
_STATES = frozenset(word for word, (cue, _) in _ATTRIBUTES.items() if cue.category == "state") | PRONOUNS
SAYING = frozenset({",", "and", "visible", "which", "who", "that", "not", "made", "constructed", *COLORED}).union(
    BEING, _GUESSES, SETS["skipped"], _DOING, _POSED, _STATES
)
"""Words that may start a claim directly after an object. So may adverbs; any other word there starts no claim."""
_SEEING = frozenset(("you", "we"))
_PRESENTING = _SEEING | {"there"}
_NOUNS = 5  # maximum number of words in a noun phrase and the following preposition
_MAY_SKIP = SETS["looking"] | {"in", "on", "at", "toward", "towards"}
_VIEWERS = frozenset((("the", "camera"), ("the", "viewer"), ("the", "photographer")))
_AIR = frozenset(("air", "mid-air", "midair"))
_SIDES = frozenset(("left", "right", "front", "back", "side", "opposite"))
_DIRECTIONS = frozenset(("up", "down", "out", "back", "open", "upright"))
_LISTING = SETS["articles"] | _GUESSES | {"and", ",", "of", "or"}
_NOT_LISTED = _ENDS | SETS["finite"]
_JOINTS = (
    (",", "along", "with"),
    (",", "as", "well", "as"),
    (",", "and"),
    (",",),
    ("along", "with"),
    ("as", "well", "as"),
    ("and",),
    ("or",),
)
_PREDICATING = BEING | {"quite", "very", "also", "mostly", "and", "slightly", "relatively"}
_RELATIVES = frozenset(("which", "who", "that"))
_LOCATED = BEING | _ON_THE_WAY | _DOING.keys() | {"which", "who", "that", "can"}
_WORD = codes().words
_ENDINGS = ("ing", "ed", "ly", "ward", "wards", "s")
_color_in = cache(codes().color_in)


Row = tuple[int, int, int, int, int, int, int]
"""Kind, value, first word, last word, category, use and conditions of a claim, or index of a Between and zeros."""


class Led(NamedTuple):
    """A relation that leads to an object. In a list, the next object shares the relation.

    Attributes:
        value: Canonical word of the relation.
        first, last: First and last word of the relation.
        cue: Cue that matched.
        use: Use of the relation's words.
        how: Context before the relation: "behind" (directly after the preceding object), "doing" (after an action),
            "verb", "comma", "and", or "own" (before a part of the subject).
        row: The relation as a row.
    """

    value: str
    first: int
    last: int
    cue: ClaimCue
    use: Use
    how: str = ""
    row: Row = (0,) * 7


class Item(NamedTuple):
    """An object that may continue a list.

    Attributes:
        ends: True if a comma and "and" precede the object.
        article: True if an article precedes the object.
        either: True if "or" precedes the object.
    """

    ends: bool
    article: bool
    either: bool


class Between(NamedTuple):
    """The meaning of the words between two objects.

    Attributes:
        inverted: Relation from the second object to the first one, as in "On the hood of a car, there are cats".
        apposed: True if what follows is about the first object: "a group of people, possibly children, sitting", "the
            floor of the bathroom is".
        led: Relation from the first object to the second.
        item: The relation to the second object, if the second object is the next item of a list.
        after_and: Same as ``item``, but for a list that begins after "with", as in "with its nose raised and its tail
            down".
        again: Relation after a later verb in the clause, as in "is blue with a pattern and is above a house".
    """

    inverted: Led | None = None
    apposed: bool = False
    led: Led | None = None
    item: Item | None = None
    after_and: Item | None = None
    again: Led | None = None


_NOTHING_BETWEEN = Between()


class Rules(Tape):
    """The rules, each of which reads the cells around the place at which it begins.

    Attributes:
        reads: Channel from which words are read.
    """

    reads = BEFORE_WORDS

    def word(self, place: int) -> str:
        """Returns the word at a place, or the word that represents it among words that the rules treat alike."""
        distance = (place - self.at) << 2 | self.reads  # as in cell, of which this is the most frequent use
        value = self.noted.get(distance)
        if value is None:
            value = self.noted[distance] = self.cells[place + self.reads * self.size]
        return _WORD[value >> FLAGS]

    def begins(self, place: int) -> bool:
        """Returns True if an object begins at a word."""
        distance = (place - self.at) << 2 | self.reads  # as in cell
        value = self.noted.get(distance)
        if value is None:
            value = self.noted[distance] = self.cells[place + self.reads * self.size]
        return value & BEGINS > 0

    def outside(self, place: int) -> str | None:
        """Returns the word at a place as :meth:`word` does, or None if an object begins there."""
        distance = (place - self.at) << 2 | self.reads  # as in cell
        value = self.noted.get(distance)
        if value is None:
            value = self.noted[distance] = self.cells[place + self.reads * self.size]
        return None if value & BEGINS else _WORD[value >> FLAGS]

    def goes_on(self, place: int) -> bool:
        """Returns True if a word is part of the name of an object but is not its first word."""
        return bool(self.cell(place, self.reads) & GOES_ON)

    def is_thing(self, place: int) -> bool:
        """Returns True if a word belongs to an object."""
        return bool(self.cell(place, self.reads) & (BEGINS | GOES_ON))

    def passed(self, place: int) -> int:
        """Returns the number of words in the position phrase that begins at a word."""
        return self.cell(place, PHRASES) & LENGTH if self.cell(place, self.reads) & PASSES else 0

    def _row(
        self,
        kind: ClaimKind,
        value: str | int,
        first: int,
        last: int,
        cue: ClaimCue,
        use: Use = "claim",
        conditions: int = 0,
    ) -> Row:
        return (
            KINDS.index(kind),
            VALUES.of(value) if isinstance(value, str) else value,
            first - self.at,
            last - self.at,
            VALUES.of(cue.category),
            USES.index(use),
            conditions,
        )

    # ---- left of an object: counts and attributes

    def before(self) -> Iterator[Row]:
        """Yields the counts and attributes that the words before an object state. The object begins at the place of the
        rule.
        """
        self.reads = BEFORE_WORDS
        use: Use = "claim"
        j, skipped, passed, last_attribute = self.at - 1, 0, 0, -1
        while (word := self.word(j)) and not self.is_thing(j):
            if word in _ATTRIBUTES or _color_in(word):
                if self.word(j - 1) in SETS["units"]:
                    return  # "a 3 year old dog"
                cue = self._attribute(word)
                begin = j
                while cue.category == "color" and not self.is_thing(begin - 1) and self.word(begin - 1) in _SHADES:
                    begin -= 1
                if self.word(begin - 1) == "or" and self._is_attribute(begin - 2 - (self.word(begin - 2) == ",")):
                    use = "hedged"
                yield self._row("attribute", OF_ATTRIBUTE, begin, j, cue, use)
                last_attribute = j = begin
            elif word in _COUNTS:
                yield from self._count(j, _COUNTS[word], j)
                return
            elif word in _NUMBERS:
                yield from self._number(j)
                return
            elif word == "more" and self.word(j - 1) == "or" and self.word(j - 2) in _COUNTS:
                yield from self._count(j - 2, _COUNTS[self.word(j - 2)], j, more=True)
                return
            elif word == "of" and not self.is_thing(j - 1) and self.word(j - 1) in _COLLECTIONS:
                yield from self._count(j - 1, _COLLECTIONS[self.word(j - 1)], j)
                return
            elif word in ("and", "or", ","):
                j -= word != "," and self.word(j - 1) == "," and last_attribute == j + 1  # "red, white, and blue"
                is_count = word == "," and skipped and self.word(j - 1) in _COUNTS  # "a single, solitary lamp"
                is_count = is_count and (self.word(j + 1).isalpha() or "-" in self.word(j + 1))  # not "1,000 people"
                if not is_count and (
                    not self._is_attribute(j - 1)
                    or (last_attribute not in (j + 1, j + 2) and (word != "," or not skipped))
                ):
                    return
            elif word in SETS["others"]:
                pass
            elif word in _DOING and word not in _KINDS_IN_ING and not self.is_thing(j - 1) and self._is_led(j - 1):
                if word.endswith(("ing", "ed")):  # "a sleeping cat"
                    yield self._row("attribute", OF_DOING, j, j, _DOING[word][0], use, AGENT)
                    last_attribute = j
                else:
                    return
            elif word in _ENDS or not word[0].isalnum() or _is_verb(word) or word in SETS["units"]:
                return
            elif word not in _SHADES:
                skipped += 1
                passed += "-" not in word
                if passed > _SKIPPED or skipped > _SKIPPED + 1:
                    return
            j -= 1

    def _is_attribute(self, j: int) -> bool:
        return self.word(j) in _ATTRIBUTES or bool(_color_in(self.word(j)))

    def _is_color(self, j: int) -> bool:
        return self._is_attribute(j) and self._attribute(self.word(j)).category == "color"

    def _is_led(self, j: int) -> bool:
        """Returns True if a participle may follow a word in a noun phrase."""
        word = self.word(j)
        return word in SETS["articles"] or word in _COUNTS or self._is_attribute(j)

    @staticmethod
    def _attribute(word: str) -> ClaimCue:
        return (_ATTRIBUTES.get(word) or _ATTRIBUTES[_color_in(word)])[0]

    def _count(self, j: int, entry: tuple[ClaimCue, str], last: int, more: bool = False) -> Iterator[Row]:
        cue, value = entry
        word, before = self.word(j), self.word(j - 1)
        if before == "no" and (word == "one" or word in _OF_NONE):
            return
        if word == "few" and before not in ("a", "the"):
            return
        if word == "various" and self._is_vague():
            return
        if word == "one" and self.cell(last, PHRASES) & OTHERS:
            return
        if word.isdecimal() and before in ("#", "number", "no", "$", "."):
            return
        if word == "dozen" and before in _COUNTS:
            if not _COUNTS[before][1].isdecimal():
                return  # "several dozen"
            value, j = str(12 * int(_COUNTS[before][1])), j - 1
        elif word == "dozen" and "half" in (before, before == "a" and self.word(j - 2)):
            value, j = "6", j - (1 if before == "half" else 2)
        elif before in ("a", "an") and word in _COUNTS and value.isdecimal() and value != "1" and word != "dozen":
            return  # "a 2 door car"
        before, at = self.word(j - 1), j - (word == "dozen" and self.word(j - 1) == "a")
        between = before == "and" and self.word(j - 3) == "between"
        if (between or before in ("or", "to", "-", "–")) and self.word(j - 2) in _COUNTS:
            low, high = count_range(_COUNTS[self.word(j - 2)][1])[0], count_range(value)[0]
            if before == "or" and abs(high - low) != 1:
                return  # "two or five dogs" are neither three nor four
            value, j = f"{min(low, high)}-{max(low, high)}", j - 2
        elif self._is_of_more(j):
            return
        elif value.isdecimal():
            limit = (_AT_LEAST, 0) if more else self._limit(at)  # "about a dozen"
            value = _limited(int(value), *limit)
            if not value:
                return
        yield self._row("count", value, j, last, cue, conditions=NO_PAIR if word in ("pair", "pairs") else 0)

    def _number(self, j: int) -> Iterator[Row]:
        """Yields a count whose number, from 21 to 99, is at a place. The number itself does not affect the result."""
        before = self.word(j - 1)
        if before in ("a", "an") or self._is_of_more(j):
            return
        if self.word(j).isdecimal() and before in ("#", "number", "no", "$", ".", "the"):
            return  # "the 42 bus"
        cue, _ = _NUMBERS[self.word(j)]
        yield self._row("count", OF_NUMBER - LIMITS.index(self._limit(j)), j, j, cue)

    def _is_of_more(self, j: int) -> bool:
        """Returns True if a number at a place is that of a larger set, as in "two out of three dogs", or the end of a
        range or number that the rules do not read, as in "15 to 25 dogs" or "a hundred and one dogs".
        """
        before, first = self.word(j - 1), self.word(j - 2)
        if (first if before == "and" else before) in _HUNDREDS:
            return True
        if before == "of":
            return first == "out" or first in _COUNTS or first in _NUMBERS
        is_range = before in ("or", "to", "-", "–") or (before == "and" and self.word(j - 3) == "between")
        return is_range and (first in _NUMBERS or first in _COUNTS)

    def _or_more(self) -> bool:
        """Returns True if "or more" follows the object, as in "two dogs or more", but not "two dogs or more cats"."""
        behind = self.at + 1
        while self.goes_on(behind):
            behind += 1
        follows = self.word(behind + 2)
        ends = not follows[:1].isalnum() or (follows in _ENDS and follows not in SETS["articles"])
        return (self.word(behind), self.word(behind + 1)) == ("or", "more") and ends and not self.begins(behind + 2)

    def _limit(self, j: int) -> tuple[int, int]:
        """Returns the meaning of the words around the number at a place, as one of LIMITS."""
        before, two = self.word(j - 1), f"{self.word(j - 2)} {self.word(j - 1)}"
        is_more = before in SETS["at_least"] or two in SETS["at_least"]
        if not is_more and two not in SETS["at_most"]:
            return (_AT_LEAST if self._or_more() else _ABOUT if before in SETS["about"] else _EXACTLY), 0
        if before == "than" and self.word(j - 3) == "no":
            return (_AT_MOST if is_more else _AT_LEAST), 0  # "no more than two"
        shift = before in ("than", "over")
        return (_AT_LEAST, int(shift)) if is_more else (_AT_MOST, -int(shift))

    def _is_vague(self) -> bool:
        """Returns True if the noun cannot be counted in the image, as in "various stages" or "various settings"."""
        behind = self.at + 1
        while self.goes_on(behind):
            behind += 1
        return self.word(behind - 1) in SETS["vague"] or self.word(behind) in SETS["vague"]

    # ---- right of an object: what it is and does

    def behind(self) -> Iterator[Row]:
        """Yields attributes and actions after an object: "the bus is red", "a man standing", "made of wood"."""
        self.reads = BEHIND_WORDS
        j = self.at
        while (passed := self.passed(j)) or self.word(j) == "visible":
            j += passed or 1
        j = self._past_apposition(j)
        comma, apposed = self.word(j) in (",", "and"), False
        if comma:
            follows = self.word(j + 1)
            apposed = self.word(j) == "," and (follows.endswith("ly") or follows in SETS["skipped"])
            # "a dog, mostly white", "a car, likely parked"
            apposed = apposed and (self.word(j + 2) in _DOING or self._is_attribute(self._past_shades(j + 2)))
            if (
                not apposed
                and follows not in (_AFTER_A_COMMA if self.word(j) == "," else GOING_ON)
                and not (follows in _DOING and follows.endswith(("ing", "ed")))
            ):
                return
            j += 1
        which = self.word(j) in ("which", "who", "that")
        j += which
        verb, hedged, negated = False, False, False
        while True:
            word = self.word(j)
            if word in BEING:
                if verb and self.word(j - 1) in _ON_THE_WAY:
                    return  # "the field where the dogs are located is green": not the dogs
                verb = True
            elif word == "not":
                negated = True
            elif verb and (word in _PASSED or self.passed(j)) and word not in SETS["looking"]:
                j += max(self.passed(j) - 1, 0)
            elif word in PRONOUNS and (self.word(j - 1) in SETS["prepositions"] or self.word(j + 1) in BEING):
                # "the sky above them is clear", "the board he is riding is white"
                if self.word(j + 1) in BEING and self.word(j + 2).endswith("ing"):
                    j += 2 + (self.word(j + 3) in SETS["prepositions"])
            elif word == "to" and self.word(j + 1) not in ("be", "have") and not verb:
                return  # "a place for people to sit"
            elif not (word in SETS["skipped"] or (word.endswith("ly") and len(word) > 4) or word in _GUESSES):
                break
            hedged |= word in _GUESSES
            j += 1
        if verb and self.word(j) == "," and self.word(j + 1) in _DOING and self.word(j + 1).endswith("ing"):
            j += 1  # "a lamp is on the left, standing on a table"
        use: Use = "negated" if negated else "hedged" if hedged else "claim"
        by_root = BY_ROOT if (verb or comma) and not which else 0
        if self.word(j) in _DOING and not self.is_thing(j) and not self._stands_out(j):
            yield from self._doings(j, use, by_root)
        elif self.word(j) in ("made", "constructed") and self.word(j + 1) in ("of", "from", "out"):
            yield from self._made(j, use, by_root)
        elif self.word(j) == "in" and (last := self._in_the_air(j + 1)):
            cue, value = _ATTRIBUTES["mid-air"]
            yield self._row("attribute", value, last, last, cue, use, by_root)
        elif self.word(j) in ("in", "with") and not negated:
            yield from self._predicates(j + 1, use, by_root, self.word(j) == "in" and self.word(j - 1).endswith("ed"))
        elif verb or self.word(j - 1) in COLORED:
            yield from self._predicates(j, use, by_root)
            if self.word(j + 1) == "in" and self._is_attribute(j) and self.word(j).endswith("ed"):
                yield from self._predicates(j + 2, use, by_root, True)  # "is tiled in white"
        elif apposed:
            yield from self._predicates(j, use, 0)
        elif not comma and not which:
            yield from self._predicates(j, use, WITH)  # "with its mouth open"

    def _past_apposition(self, j: int) -> int:
        """Returns the position of the comma after a guess that contains no object, as in ", likely a male, is", or the
        given position for other words.
        """
        if self.word(j) != "," or not (self.word(j + 1) in _GUESSES or self.word(j + 1).endswith("ly")):
            return j
        for k in range(j + 2, j + 2 + _NOUNS):
            word = self.outside(k) or ""
            if word == ",":
                return k if self.word(k + 1) in BEING else j
            if not word.isalpha() or _is_verb(word) or _listed(word):
                break
        return j

    def _in_the_air(self, j: int) -> int:
        """Returns the position of the noun in "mid-air" or "the air", or 0 for other words."""
        j += self.word(j) == "the" and self.word(j + 1) == "air"
        return j if self.word(j) in _AIR and not self.is_thing(j) else 0

    def _made(self, j: int, use: Use, by_root: int) -> Iterator[Row]:
        """Yields the material of an object, as in "made of wood"."""
        if self.word(j + 1) not in ("of", "from", "out"):
            return
        j += 2 + (self.word(j + 2) == "of")
        first = j
        while self._is_color(j) and self._is_attribute(j + 1) and j < first + 2:  # "made of red brick"
            j += 1
        entry = _ATTRIBUTES.get(self.word(j))
        if entry and entry[0].category == "material" and not self.is_thing(j) and not self.is_thing(j + 1):
            for place in range(first, j + 1):
                cue = self._attribute(self.word(place))
                yield self._row("attribute", OF_ATTRIBUTE, place, place, cue, use, by_root)

    def _doings(self, j: int, use: Use, by_root: int) -> Iterator[Row]:
        """Yields the consecutive actions of an object, as in "resting or possibly sleeping"."""
        while self.word(j) in _DOING:
            cue, value = _DOING[self.word(j)]
            conditions = by_root
            if value == "running":  # not a motion of the thing: "a road running along"
                conditions |= AGENT
            if not self._has_object(j):
                yield self._row("attribute", OF_DOING, j, j, cue, use, conditions | DOER)
            j += 1
            if self.word(j) not in ("and", "or") and (self.word(j) != "," or not self.word(j + 1).endswith("ing")):
                return
            j += 1
            while self.word(j) in _GUESSES or self.word(j).endswith("ly"):
                use = "hedged"
                j += 1
            if self._is_attribute(j) and not self.is_thing(j):  # "parked or stationary"
                yield from self._predicates(j, use, by_root)
                return

    def _stands_out(self, j: int) -> bool:
        return self.word(j + 1) == "out" and _DOING[self.word(j)][1] == "standing"

    def _has_object(self, j: int) -> bool:
        """Returns True if an action is performed on something, as in "flying a kite" or "playing soccer"."""
        word, follows = self.word(j), self.word(j + 1)
        if not word.endswith("ing"):
            return word.endswith("s") and follows in _OBJECTS  # "behind the trees stands a house"
        if word == "facing" and follows == "the":  # "facing the camera", "facing the left"
            return (follows, self.word(j + 2)) not in _VIEWERS and self.word(j + 2) not in _SIDES
        if word not in SETS["done_to"]:
            return follows in _OBJECTS and word not in ("standing", "sitting")
        named = not any(follows in words for words in (_ENDS, _PASSED, _DIRECTIONS, _LEADING, SETS["not_done_to"]))
        return self.begins(j + 1) or follows in _OBJECTS or (follows.isalpha() and named and not follows.endswith("ly"))

    def _predicates(self, j: int, use: Use, conditions: int, alone: bool | None = None) -> Iterator[Row]:
        """Yields consecutive attributes, as in "is black and white" or "is a light brown color"."""
        article = self.word(j) in ("a", "an")
        rows, colored = list[Row](), False
        if self.word(j) in _POSED and not article:
            yield from self._pose(j, use, conditions)
            return
        if conditions & WITH and self.word(j) in _ON_THE_WAY:
            return  # "with trees scattered around" tells where they are
        j += article
        mixed = self._past_mix(j)
        j = mixed or j
        if not mixed and article and self.word(j).isalpha() and not self._is_attribute(self._past_shades(j)):
            j += self._is_color(self._past_shades(j + 1))  # "is a striking black"
        while True:
            j += self.word(j) == "wide" and self.word(j + 1) == "open"
            begin = j
            j = self._past_shades(j)
            if j > begin and not self._is_attribute(j) and self.word(j - 1) in _ATTRIBUTES:
                j -= 1  # "is dark": a shade alone
            if not self._is_attribute(j) or self.goes_on(j):
                break
            cue = self._attribute(self.word(j))
            colored = cue.category == "color"
            rows.append(self._row("attribute", OF_ATTRIBUTE, begin if colored else j, j, cue, use, conditions))
            j += 1
            if self.word(j) in (",", "and", "or") and self._is_attribute(self._past_shades(j + 1)):
                if self.word(j) == "or" and use == "claim":
                    use = "hedged"
                    rows = [(*row[:5], USES.index(use), row[6]) for row in rows]
                j += 1
            elif self.word(j) == "," and self.word(j + 1) == "and" and self._is_attribute(self._past_shades(j + 2)):
                j += 2
            elif not article or not self._is_attribute(j):
                break
        if not rows:
            return
        follows = self.word(j)
        ends = not follows[:1].isalnum() or follows in _ENDS or follows.endswith(("ly", "ward", "wards"))
        ends |= follows in _DIRECTIONS
        if mixed:
            holds = colored and (ends or follows in _HUES)
        elif alone is not None:
            holds = colored and ((follows in _HUES and not self.word(j + 1).isalpha()) or (alone and ends))
        else:
            holds = follows in _HUES or (colored and ends) if article else ends and follows != "of"  # "is a deep blue,"
        if holds:
            yield from rows
            if follows == "and" and self.word(j + 1) in ("made", "constructed"):
                yield from self._made(j + 1, use, conditions)
            elif follows == "," and self.word(j + 1) in _DOING and self.word(j + 1).endswith("ing"):
                yield from self._doings(j + 1, use, conditions)  # "is small, standing on"

    def _pose(self, j: int, use: Use, conditions: int) -> Iterator[Row]:
        """Yields a state that is named only by words after an object, as in "with its head down"."""
        cue, value = _POSED[self.word(j)]
        follows = self.word(j + 1)
        holds = not follows[:1].isalnum() or follows in ("and", "as", "while")
        if value == "tied":
            holds = follows in ("up", "back")  # hair is; a horse is tied to something
        elif value == "out":
            holds &= self.word(j - 1) not in _ON_THE_WAY  # "its wings are spread out"
        elif value not in ("down", "up"):
            holds |= follows in ("to", "away", "back", "toward", "towards") or follows.endswith("ly")
        if holds:
            yield self._row("attribute", OF_POSED, j, j, cue, use, conditions)

    def _past_mix(self, j: int) -> int:
        """Returns the position after words such as "mix of" or "shades of", or 0 for other words."""
        j += self.word(j).isalpha() and self.word(j) not in _MIXES and self.word(j + 1) in _MIXES
        if self.word(j) not in _MIXES or self.word(j + 1) != "of":
            return 0
        return j + 4 if self.word(j + 2) in _MIXES and self.word(j + 3) == "of" else j + 2

    def _past_shades(self, j: int) -> int:
        while self.word(j) in _SHADES:
            j += 1 + (self.word(j + 1) == "," and self.word(j + 2) in _SHADES)  # "a rich, dark brown"
        return j

    # ---- between two objects: how they stand to each other

    def between(self) -> Iterator[Row]:
        """Yields the index in ``BETWEEN`` of the information that the words from here to the next object contain, if
        any.
        """
        self.reads = BETWEEN_WORDS
        found = self._between()
        if found != _NOTHING_BETWEEN:
            yield (_BETWEEN_NUMBER.setdefault(found, len(_BETWEEN_NUMBER)), 0, 0, 0, 0, 0, 0)
            if len(BETWEEN) < len(_BETWEEN_NUMBER):
                BETWEEN.append(found)

    def _between(self) -> Between:
        if (inverted := self._inverted()) is not None:
            return Between(inverted=inverted)
        at = self.at
        apposed = at + 1
        while self.word(at) == "," and not self.begins(apposed) and self.word(apposed) in _APPOSING:
            apposed += 1
        if apposed > at + 1 and self.is_phrase(apposed):
            behind = next(j for j in range(apposed, at + REACH + 2) if self.begins(j)) + 1
            while self.goes_on(behind):
                behind += 1
            if self.word(behind) == ",":
                return Between(apposed=True)
        is_of = self.word(at) == "of" and self.word(at + 1) in _OF_THE and not self.begins(at + 1)
        if is_of and self.is_phrase(at + 1):
            return Between(apposed=True)  # "the floor of the bathroom is tiled": the floor is
        lacking = at + (self.word(at) == ",")
        if self.outside(lacking) == "without" and self.is_phrase(lacking + 1):
            return Between(apposed=True)  # "a tree, without leaves, standing": the tree is
        leads = self.cell(at, PHRASES) & LEADS
        led = (self._relation(at) or self._later() or self._with_own()) if leads else None
        if led is not None:
            return Between(led=self._from_here(led))
        if (inverted := self._on_which()) is not None:
            return Between(inverted=inverted)
        item = after_and = self._item(at)
        if self.word(at) != "and" and (joint := self._and_behind_states()):
            after_and = self._item(joint)
        return Between(item=item, after_and=after_and, again=self._again() if leads else None)

    def _from_here(self, led: Led) -> Led:
        row = self._row("relation", led.value, led.first, led.last, led.cue, led.use)
        return led._replace(first=led.first - self.at, last=led.last - self.at, row=row)

    def _inverted(self) -> Led | None:
        """Returns the relation from the next object to the preceding object, as in "On the hood of a car, there are
        cats".
        """
        j = self.at
        if self.word(j) not in _INVERTING or not self.cell(j, PHRASES) & INVERTS:
            return None
        comma = self.word(j) == ","
        j += comma
        if comma and (passed := self.passed(j) or (self.word(j) == "slightly" and 1 + self.passed(j + 1))):
            j += passed  # "Next to the dog, on the left, there is"
            j += self.word(j) == ","
        there = self.word(j) == "there"
        j += there
        if there and self.word(j) in _GUESSES and self.word(j + 1) == "to":
            j += 2  # "there appears to be"
        be = self.word(j) in _STANDING_THERE or (there and self.word(j) == "be")
        if comma and self.word(j) in _SEEING and self.word(j + 1) == "can" and self.word(j + 2) == "see":
            there = be = True
            j += 2
        j += be
        if comma and not be and self.word(j) in PRONOUNS and self.word(j + 1) in FINITE_BE:
            j += 2 + (self.word(j + 2) == "on")  # "Over the shirt, he has on a coat"
        if not (comma or be) or (there and not be) or (comma and be and not there) or not self._is_up_to(j):
            return None
        first = self._first_of(self.at - 1)
        begin, how = first, ""
        while self.word(begin - 1) not in BEFORE_A_SENTENCE and self.word(begin - 1)[0] != "\n":
            if self.word(begin - 1) == "and" and self.word(begin - 2) == "," and self.word(begin) in STARTING:
                break
            begin -= 1
            if self.is_thing(begin) and not how and (comma or there):  # "On the wall near a door, there is"
                begin = first = self._first_of(begin)
                how = "over"
            if (self.is_thing(begin) and begin != first) or first - begin > LONGEST:
                return None
        if self.word(begin) in _DOING or self.word(begin) in _ON_THE_WAY:
            begin += self.word(begin + 1) in STARTING  # "Standing on the bench is a person"
        if self.word(begin) in STARTING:
            begin = self._past_pronoun(begin) or begin  # "Next to her on the bench, there is"
        for phrase, cue, value in STARTING.get(self.word(begin), ()):
            stop = begin + len(phrase)
            if cue.category == "spatial" and all(self.word(begin + k) == word for k, word in enumerate(phrase)):
                if stop < first and not self.is_phrase(stop):
                    return None
                return self._from_here(Led(value, begin, stop - 1, cue, "claim", how))
        return None

    def _first_of(self, place: int) -> int:
        """Returns the first word of the object to which a word belongs."""
        while self.goes_on(place):
            place -= 1
        return place

    def _on_which(self) -> Led | None:
        """Returns the relation from the next object to the preceding one, as in "a bed on which a dog is sitting"."""
        at = self.at
        if self.word(at) in STARTING and self.word(at + 1) == "which" and self.is_phrase(at + 2):
            for phrase, cue, value in STARTING[self.word(at)]:
                if len(phrase) == 1 and cue.category == "spatial":
                    return self._from_here(Led(value, at, at, cue, "claim"))
        return None

    def _is_up_to(self, j: int) -> bool:
        """Returns True if the words from ``j`` to the next object, if there are any, begin the noun phrase of this
        object.
        """
        return any(map(self.begins, range(self.at, j))) or self.is_phrase(j)

    def _item(self, at: int) -> Item | None:
        """Returns how the object is joined to the preceding list, or None if the words between ``at`` and the object
        do not join them.
        """
        first = self.word(at)
        for joint in _JOINTS:
            if joint[0] == first and self._has(joint, at):
                rest = at + len(joint)
                if not self.is_phrase(rest):
                    return None
                article = not self.begins(rest) and self.word(rest) in SETS["articles"]
                return Item(joint == (",", "and"), article, first == "or")
        return None

    def _has(self, words: tuple[str, ...], first: int) -> bool:
        """Returns True if the given words follow each other from a place on, and none of them begins an object. The
        first word must have been found there.
        """
        return all(self.outside(first + k) == words[k] for k in range(1, len(words)))

    def _and_behind_states(self) -> int:
        """Returns the position of the first "and" if only states and adverbs precede it. If the words begin with "with"
        and contain no verb, returns the position of the last "and". Otherwise returns 0.
        """
        j = self.at
        if self.word(j) == "with":  # "a shirt with long sleeves and pants"
            words = self._words(j)
            joint = max((k for k, word in enumerate(words) if word in ("and", ",")), default=0)
            joint -= words[joint] == "and" and words[joint - 1] == ","
            return j + joint if joint and VERBS.isdisjoint(words) and BEING.isdisjoint(words) else 0
        while not self.begins(j):
            word = self.word(j)
            if word == "and":
                return j
            if word not in _STATES and word not in _DIRECTIONS and not word.endswith("ly"):
                return 0  # not "with its tongue out and tail up"
            j += 1
        return 0

    def _later(self) -> Led | None:
        """Returns the relation that follows a later comma, as in "is looking to the left, with its mouth open"."""
        if not self.cell(self.at, PHRASES) & LATER:
            return None
        words = self._words(self.at)
        for j in range(len(words) - 1, 1, -1):
            if words[j - 1] != ",":
                continue
            if words[0] == "," and words[j] in VERBS:  # "a player, who seems to be a male, is wearing"
                led = self._relation(self.at + j)
                return None if led is None else led._replace(how="verb")
            if words[j] == "with":
                led = self._relation(self.at + j)
                plain = words[0] in _SAYING and CLAUSES.isdisjoint(words[1:j])
                is_own = (words[j + 1] if j + 1 < len(words) else "") in _OWN
                return led._replace(how="comma") if led is not None and (is_own or plain) else None
            doing = words[j + words[j].endswith("ly")] if j + 1 < len(words) else words[j]
            if doing.endswith(("ing", "ed")) and len(doing) > 4 and CLAUSES.isdisjoint(words[:j]):
                led = self._relation(self.at + j - 1)  # "a jet, known as a Saab, parked on"
                return None if led is None else led._replace(how="verb")
        return None

    def _with_own(self) -> Led | None:
        """Returns the relation to what the subject of the clause has, as in "is looking up with its mouth open"."""
        words = self._words(self.at)
        for j in range(len(words) - 2, 0, -1):
            if words[j] == "with" and words[j + 1] in _POSSESSIVES:
                led = self._relation(self.at + j) if CLAUSES.isdisjoint(words[:j]) else None
                return None if led is None else led._replace(how="own")
        return None

    def _again(self) -> Led | None:
        """Returns the relation that follows a later verb of the clause, as in "is blue and is above a house"."""
        if not self.cell(self.at, PHRASES) & AGAIN:
            return None
        words = self._words(self.at)
        for j in range(len(words) - 1, 0, -1):
            if words[j] in VERBS and (
                words[j - 1] == "and" or (words[0] == "with" and "and" not in words and "," not in words)
            ):
                led = self._relation(self.at + j)
                return None if led is None else self._from_here(led)._replace(how="verb")
        return None

    def _words(self, first: int) -> list[str]:
        """Returns the words from a position to the next object."""
        words = list[str]()
        while (word := self.outside(first)) is not None:
            words.append(word)
            first += 1
        return words

    def _relation(self, first: int) -> Led | None:
        """Returns the relation that the words between a place and the next object express, if any."""
        comma, verb, which, placed, does, use, j = False, False, False, False, False, "claim", first
        while (word := self.outside(j)) is not None:
            if word in _MAY_SKIP and (skipped := self._skipped_phrase(j)):
                if any(map(self.begins, range(j, j + skipped))):
                    return None
                j += skipped
                continue
            phrase = self._phrase_at(j) if word in STARTING else None
            if phrase is not None:
                cue, value, behind = phrase
                if word in OWNING and (j > first or self.word(behind) in _ENDS):
                    return None
                beside = not cue.agent and placed
                verb = (verb or word in SETS["finite"]) and not which
                how = (
                    "behind"
                    if which
                    else "verb"
                    if comma and (beside or (cue.category == "spatial" and (verb or self.word(j - 1) != "and")))
                    else "comma"
                    if comma
                    else "verb"
                    if verb
                    else "doing"
                    if does
                    else "behind"
                )
                if comma and not which and word in SETS["finite"] and self.word(j - 1) == "and":
                    how = "and"
                return Led(value, j, behind - 1, cue, use, how)  # type: ignore[arg-type]
            if phrase is None and word in STARTING and (behind := self._past_pronoun(j)):
                j, placed = behind, True  # "a bag next to her on the bench"
                continue
            if (passed := self.passed(j)) and not any(map(self.begins, range(j, j + passed))):
                j += passed - 1
            elif word in _PLACING and (behind := self._past_nouns(j + 1, ",")) and self._is_placing(behind):
                placed |= self.word(behind) != ","  # "in the shade under a tree", "in an area, likely at a zoo"
                j = behind - 1
            elif word == "and" and verb and self.word(j - 1) in _ATTRIBUTES:
                placed = False  # "is larger and closer to"
            elif word in (",", "and"):
                comma, placed = True, False
            elif word in ("which", "who", "that") and j <= first + 1:
                comma, which = False, True
            elif word == "while" and j <= first + 1:
                comma = True
            elif word == "each" and comma and j == first + 1:
                comma, which = False, True
            elif j == first and word in SETS["skipped"] and self.word(j + 1) in BEING:
                pass  # "the sky above is"
            elif j == first and word in PRONOUNS and self.word(j + 1) in BEING and self.word(j + 2).endswith("ing"):
                j += 2  # "the wave he is riding is"
            elif verb and word in ("a", "an") and self._is_said(j - 1) and (behind := self._past_kind(j + 1)):
                j = behind - 1  # "is a male with"
            elif verb and (word in _HUES or word in _SHADES or (word in ("a", "an") and self._is_said(j - 1))):
                placed = False  # "is a bright blue color with"
            elif word in BEING:
                verb, comma = True, False
                use = "hedged" if word in _GUESSES else use
            elif word in _GUESSES:
                use = "hedged"
            elif word == "not":
                use = "negated"
            elif word in SETS["not_leading"]:
                behind = self._past_nouns(j + 2) if self.word(j + 1) == "in" else 0
                if not behind:
                    return None
                j = behind - 1  # "engaged in a game on"
            elif word in SETS["looking"] and self.word(j + 1) in SETS["directions"]:
                return None
            elif word == "or" and j > first and self._is_alternative(j + 1):
                use = "hedged" if use == "claim" else use
            elif word in SETS["done_to"] and self.word(j + 1).isalpha() and self._phrase_behind(j + 1):
                verb, comma, j = verb or comma, False, j + 1  # "playing tennis on a court"
            elif word in SETS["done_to"] and (behind := self._past_nouns(j + 1)):
                verb, comma, j = verb or comma, False, behind - 1  # "playing a game of tennis on a court"
            elif word in _DOING or (word in _ATTRIBUTES and verb):
                verb = verb or (word.endswith("s") and word != "asleep") or (comma and word.endswith(("ing", "ed")))
                comma, placed, does = comma and not verb, True, True
            elif word in _WAY or (word.endswith("ly") and len(word) > 4) or (word in _TO and verb):
                placed |= word in _ON_THE_WAY
            elif verb and self.word(j - 1) in _PREDICATING and self.word(j + 1) in (",", "and") and word.isalpha():
                placed = False  # "is breaking, with": the verb is unlisted
            elif not (word.endswith(("ing", "ed")) and len(word) > 4):
                return None
            elif word.endswith("ed") and self.word(j + 1) == "by":
                return None  # "chased by a dog": not near it
            elif not self._phrase_at(j + 1) and not self._skipped_phrase(j + 1):
                behind = self._past_nouns(j + 1)
                if not behind:
                    return None
                j = behind - 1  # "playing tennis on", "performing a trick on"
            if word.endswith("ing") and comma and word not in _ON_THE_WAY and word not in _DOING:
                verb, comma = True, False  # "in a suit, talking on his phone"
            j += 1
        return None

    def _past_kind(self, j: int) -> int:
        """Returns the position of "with" after words for the kind of an object, as in "a male with", or 0."""
        for k in range(j, j + _NOUNS):
            word = self.outside(k) or ""
            if word == "with":
                return k if k > j else 0
            if not word.isalpha() or word in _ENDS or word in _ATTRIBUTES or _is_verb(word):
                return 0
        return 0

    def _is_said(self, j: int) -> bool:
        """Returns True for a form of "be" that is followed by what an object is."""
        return self.word(j) in BEING and self.word(j - 1) != "there"

    def _past_pronoun(self, j: int) -> int:
        """Returns the place after the pronoun if the object of a relation is a pronoun and another relation follows, or
        0 otherwise.
        """
        phrase = self._words_at(j)
        if phrase is None or phrase[0].category != "spatial":
            return 0
        behind = phrase[2]
        behind += self.word(behind) in ("each", "one") and self.word(behind + 1) in ("other", "another")
        follows = not self.begins(behind) and self.word(behind) in _OBJECT_PRONOUNS
        return behind + 1 if follows and self.word(behind + 1) in STARTING else 0

    def _is_alternative(self, j: int) -> bool:
        word = self.word(j)
        return word in _DOING or word in _GUESSES or word in _ON_THE_WAY

    def _past_nouns(self, j: int, mark: str | None = None) -> int:
        """Returns the position of the relation, or of the given mark, after a noun phrase that contains nothing from
        the vocabulary, or 0 if neither follows.
        """
        j += not self.begins(j) and self.word(j) in SETS["articles"]
        for k in range(j, j + _NOUNS):
            word = self.outside(k) or ""
            if word == mark and k > j:
                return k
            if not word.isalpha() or word in VERBS or word in BEING:
                return 0
            if k > j and word in STARTING and (phrase := self._phrase_at(k)):
                return k if phrase[0].category == "spatial" and (word == "at" or word not in SETS["directions"]) else 0
            if word in _ENDS and (word != "of" or k == j):
                return 0
        return 0

    def _is_placing(self, j: int) -> bool:
        """Returns False for a relation of the noun right before: "on a surface covered with", "on a strip between"."""
        return self.word(j) != "between" and not self.word(j).endswith("ed")

    def _skipped_phrase(self, j: int) -> int:
        """Returns the number of words in a phrase that may precede a relation ("in mid-air" or "facing the camera")."""
        word = self.word(j)
        if word == "in" and self.word(j + 1) in SETS["in_states"]:
            return 2
        if word == "on" and self.word(j + 1) in _POSSESSIVES and self.word(j + 2) in SETS["lain_on"]:
            return 0 if self.word(j + 3) == "of" else 3  # "lying on its side"
        if (word, self.word(j + 1)) == ("in", "the") and self.word(j + 2) in SETS["courses"]:
            behind = self._past_nouns(j + 4 + self.word(j + 4).endswith("ing")) if self.word(j + 3) == "of" else 0
            return behind - j if behind else 0  # "in the midst of a trick on"
        toward = word in SETS["looking"] or word in ("at", "toward", "towards")
        return 3 if toward and (self.word(j + 1), self.word(j + 2)) in _VIEWERS else 0

    def _phrase_behind(self, j: int) -> tuple[ClaimCue, str, int] | None:
        """Returns the relation that begins after a word, unless the word belongs to an object."""
        return None if self.begins(j) else self._phrase_at(j + 1)

    def _phrase_at(self, j: int) -> tuple[ClaimCue, str, int] | None:
        """Returns the cue, value and end of the relation that begins at a word, or None if no noun phrase follows."""
        phrase = self._words_at(j)
        if phrase is None:
            return None
        begins = self.is_phrase(phrase[2]) or (phrase[0].category in LISTED and self._is_later_of_list(phrase[2]))
        return phrase if begins else None

    def _words_at(self, j: int) -> tuple[ClaimCue, str, int] | None:
        """Returns the cue, value and end of the relation that begins at a word, whatever follows."""
        second = ""
        for phrase, cue, value in STARTING.get(self.outside(j) or "", ()):
            if len(phrase) > 1:
                second = second or self.word(j + 1)
                if phrase[1] != second or not self._has(phrase, j):
                    continue
            return cue, value, j + len(phrase)
        return None

    def _is_later_of_list(self, first: int) -> bool:
        """Returns True if a list begins with things that the vocabulary lacks, as in "has a grille and headlights"."""
        words = self._words(first)
        joint = max((j for j, word in enumerate(words) if word in ("and", ",", "or")), default=-1)
        if joint < 1:
            return False
        begin = joint + 1
        while begin < len(words) and words[begin] in _GUESSES:
            begin += 1
        if not self.is_phrase(first + begin):
            return False
        return all(
            word in _LISTING or (word[0].isalnum() and word not in _NOT_LISTED and not _is_verb(word)) for word in words
        )

    def is_phrase(self, first: int) -> bool:
        """Returns True if the words from a place to the next object form the beginning of the object's noun phrase."""
        return self.cell(first, PHRASES) & NOUN > 0

    # ---- where in the picture

    def located(self) -> Iterator[Row]:
        """Yields the object at the position stated by a phrase, and a flag that states whether the phrase follows a
        verb.

        The object is the preceding one or, at the beginning of a sentence, the next one.
        """
        self.reads = BETWEEN_WORDS
        first, last = self.at, self.at + (self.cell(self.at, PHRASES) & LENGTH) - 1
        j = first - 1
        while ended := self.cell(j, PHRASES) >> ENDED:
            j -= ended
        before = self.word(j)
        if (
            before in SENTENCE_END
            or before[:1] in ("\n", "")
            or (self.word(last + 1) == "," and self.word(last + 2) in _PRESENTING)
        ):
            j = last + 1
            while passed := self.passed(j):  # "In the foreground on the left"
                j += passed
            if self.word(j) not in _AFTER_A_PLACE:
                return
            while self.word(j) and j - last < REACH and self.word(j) not in SENTENCE_END:
                if self.is_thing(j):
                    yield (j - self.at, 0, 0, 0, 0, 0, 0)
                    return
                of_many = self.word(j) == "of" and (
                    self.word(j - 1) in _COLLECTIONS or self.word(j - 1) in SETS["parts"]
                )
                if not of_many and (
                    self.word(j) in SETS["prepositions"] or (_is_verb(self.word(j)) and self.word(j) != "being")
                ):
                    return
                j += 1
            return
        j = first - 1
        verb = which = again = False
        while self.word(j) and not self.is_thing(j):
            word = self.word(j)
            if word == "," and self.word(j + 1) in _ON_THE_WAY:  # "a chair in the room, positioned on the left"
                verb = True
                j -= 1
                while ended := self.cell(j, PHRASES) >> ENDED:
                    j -= ended
                continue
            if word in _ATTRIBUTES and self.word(j - 1) in BEING:
                j -= 1  # "appears flat in the foreground"
                continue
            if word == "and" and self.word(j + 1) in BEING:
                j -= 1  # "is wearing a hat and is on the left"
                again = True
                continue
            if word in SETS["looking"] or not (word in _LOCATED or word.endswith("ly") or (which and word == ",")):
                return
            if word in _RELATIVES:
                verb, which = False, True
            verb |= word in BEING
            j -= 1
        if self.word(j):
            yield (j - self.at, int(verb) + (verb and again), 0, 0, 0, 0, 0)


_EXACTLY, _ABOUT, _AT_LEAST, _AT_MOST = range(4)
LIMITS = ((_EXACTLY, 0), (_ABOUT, 0), (_AT_LEAST, 0), (_AT_LEAST, 1), (_AT_MOST, 0), (_AT_MOST, -1))
"""Meanings of the words around a number, each with the amount by which they shift the number: "more than two" is "at
least three".
"""


def _limited(number: int, limit: int, shift: int) -> str:
    """Returns the value of a count, or an empty string if the limit excludes the object."""
    number += shift
    if limit == _ABOUT:
        return f"{max(1, number - 1)}-{number + 1}"
    if limit == _AT_MOST:
        return f"1-{number}" if number > 1 else "1" if number == 1 else ""
    return f"{number}+" if limit == _AT_LEAST else str(number)


class _Values:
    """The values and categories of claims, each with a number."""

    def __init__(self) -> None:
        self.listed: list[str] = []
        self._number: dict[str, int] = {}

    def of(self, value: str) -> int:
        """Returns the number of a value."""
        number = self._number.get(value)
        if number is None:
            self.listed.append(value)
            number = self._number[value] = len(self.listed) - 1
        return number


def _listed(word: str) -> bool:
    return word in _ATTRIBUTES or word in _SHADES or bool(_color_in(word))


def _role(word: str) -> int:
    """Returns the role of a word in the noun phrase before a noun, or 0 if the word cannot be part of it."""
    if word in ("and", "or", ","):
        return _COMMA if word == "," else _AND
    if word == "of" or word in OWNING:
        return _OF if word == "of" else _OWNER
    if word in SETS["articles"] and word != "other":
        return _ARTICLE
    ends = word in _ENDS - SETS["articles"] or not word[:1].isalnum() or (_is_verb(word) and not _listed(word))
    return 0 if ends else _PLAIN


def _roles_behind(word: str) -> int:
    """Returns the roles of words that may follow a word in a noun phrase."""
    roles = _PLAIN | _ARTICLE * (word in ("of", "all", "both"))
    roles |= _OF * (word in SETS["parts"] or word in _COLLECTIONS) | (_AND | _COMMA) * _listed(word)
    return roles | _OWNER * (word.isalpha() and word not in _ENDS)


def _roles_ahead(word: str) -> int:
    """Returns the roles of words that may precede a word in a noun phrase, such as a comma in "a large, modern"."""
    also = word[:1].isalpha() and word not in _ENDS and not _is_verb(word)
    return ~(_AND | _COMMA) | (_AND | _COMMA) * _listed(word) | _COMMA * also


def _is_verb(word: str) -> bool:
    return len(word) > 4 and word.endswith("ing") and "-" not in word and word not in SETS["nouns_in_ing"]


_OF_NONE = frozenset(("line", "row", "number", "group", "crowd", "herd", "flock", "pair", "couple", "trio"))


def _alike(*rules: str) -> NDArray[np.int64]:
    """Returns a (codes,) array with the representative of each code.

    Words are alike if the rules cannot tell them apart. This is the case if the words occur in the same lists among the
    lists that the rules use, and do not differ in any property that the rules check. Moreover, neither a relation nor
    the code of the rules may name one of the words.

    Args:
        rules: Names of methods of :class:`Rules`. The functions that they call are included.
    """
    known: dict[str, Any] = {**globals(), **vars(Rules)}
    names, constants = set(rules), set[Any]()
    code_of = [known[name].__code__ for name in rules]
    while code_of:
        code = code_of.pop()
        new = set(code.co_names) - names
        names |= new
        code_of += [known[name].__code__ for name in new if hasattr(known.get(name), "__code__")]
        code_of += [constant for constant in code.co_consts if hasattr(constant, "co_consts")]
        constants.update(code.co_consts)
    names -= {"SETS", "WORDS"}
    lists: list[Any] = [known[name] for name in names if isinstance(known.get(name), (frozenset, set, dict, tuple))]
    lists += [SETS[name] for name in constants if name in SETS]
    groups: list[Any] = [phrase for phrase, _, _ in CUES.phrases] if "STARTING" in names else []
    groups += [group for group in (*constants, *lists) if isinstance(group, (tuple, frozenset))]
    groups += [group for words in lists for group in words if isinstance(group, tuple)]
    groups += [tuple(word.split()) for words in lists for word in words if isinstance(word, str) and " " in word]
    named = constants.union(*(group for group in groups if group not in lists or isinstance(group, tuple)))
    stands: dict[object, int] = {}
    alike = np.arange(len(_WORD))
    for number, word in enumerate(_WORD):
        ending = next((end for end in _ENDINGS if end in named and word.endswith(end)), "")
        is_alpha, is_decimal = word.isalpha() and "isalpha" in names, word.isdecimal() and "isdecimal" in names
        form = word[:1].isalnum(), word[:1] == "\n", ending, len(word) > 4, is_alpha, is_decimal, "-" in word
        listed = bool(_color_in(word)), *(_entry(words, word, named) for words in lists)
        alike[number] = number if word in named else stands.setdefault((form, listed), number)
    return alike


def _entry(words: Any, word: str, named: Container[object]) -> object:
    """Returns what rules ask about a word in a list, or None if the list does not contain it."""
    if word not in words or not isinstance(words, dict) or words is STARTING:
        return word in words or None
    cue, value = words[word]
    return cue.category, value if words is _COUNTS or words is _COLLECTIONS or value in named else ""


def _value(words: Mapping[str, tuple[ClaimCue, str]], word: str) -> int:
    """Returns the number of the canonical word of an attribute or action."""
    entry = words.get(word) or words.get(_color_in(word))
    return VALUES.of(entry[1] if entry else "")


def _value_of_number(word: str, limit: int, shift: int) -> int:
    return VALUES.of(_limited(int(_NUMBERS[word][1]), limit, shift) if word in _NUMBERS else "")


_PLAIN, _ARTICLE, _OF, _OWNER, _AND, _COMMA = (1 << k for k in range(6))
FIRST_ROLES = _PLAIN | _ARTICLE
LAST_ROLES = ~(_AND | _COMMA)
ROLE, ROLES_BEHIND, ROLES_AHEAD = (np.array(list(map(of, _WORD))) for of in (_role, _roles_behind, _roles_ahead))
"""(codes,) tables of the roles of words in noun phrases."""
VALUES = _Values()
OF_POSED, OF_DOING, OF_ATTRIBUTE = -3, -2, -1
OF_NUMBER = -4  # and below, one number for each of LIMITS
VALUES_OF = np.array(
    [
        *([_value_of_number(word, *limit) for word in _WORD] for limit in reversed(LIMITS)),
        *([_value(words, word) for word in _WORD] for words in (_POSED, _DOING, _ATTRIBUTES)),
    ]
)
"""(numbers, codes) values of claims. A row with one of the numbers above as its value has that of its last word."""
BETWEEN: list[Between] = []
_BETWEEN_NUMBER: dict[Between, int] = {}
ALIKE = tuple(
    (codes << FLAGS).astype(np.int32)
    for codes in (
        _alike("before"),
        _alike("behind"),
        _alike("between", "located"),
    )
)
"""Cells of the words in the channels BEFORE_WORDS, BEHIND_WORDS and BETWEEN_WORDS."""
BEFORE_RULE, BEHIND_RULE, BETWEEN_RULE, LOCATED_RULE = range(4)
MEMORY = Memory((Rules.before, Rules.behind, Rules.between, Rules.located), 7)
