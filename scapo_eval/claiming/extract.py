"""Extraction of claims: rules that derive statements about objects from the words around their mentions.

The words and examples are data (``cues.yaml``), and docs/claims.md defines claims. The rules are deterministic, need no
model, and process one sentence at a time. They neither resolve pronouns nor guess: the words of a claim must be next to
its object.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import accumulate
from pathlib import Path
from typing import NamedTuple

from ..base.errors import check_choice
from ..base.reprs import one_line
from ..base.types import Mention, Use
from ..matching.matcher import AliasMatcher
from ..matching.uses import USES
from ..matching.vocabulary import Vocabulary
from .claim import KINDS, Claim, ClaimKind, count_range
from .cues import ClaimCue, shipped_claim_cues

_CUES = shipped_claim_cues()
_SETS, _WORDS = _CUES.sets, _CUES.words
_AGENTS = _SETS["agents"]
_BEING = _SETS["being"]
_ENDS = _SETS["ends"]
_GUESSES = _SETS["guesses"]
_ON_THE_WAY = _SETS["on_the_way"]
_SHADES = _SETS["shades"]
_ATTRIBUTES = _WORDS["attributes"]
_COLLECTIONS = _WORDS["collections"]
_COUNTS = _WORDS["counts"]
_DOING = _WORDS["doing"]
_PASSED = _ON_THE_WAY - _DOING.keys()
_STARTING = {
    phrase[0]: [(words, cue, value) for words, cue, value in _CUES.phrases if words[0] == phrase[0]]
    for phrase, _, _ in _CUES.phrases
}
_RANK = {kind: rank for rank, kind in enumerate(KINDS)}
_TO = ("to", "be")
_TOKEN = re.compile(r"(\w+(?:-\w+)*|['’]s\b|[^\w\s*]|\n+)")
_ASCII_TOKEN = re.compile(r"([a-z0-9_]+(?:-[a-z0-9_]+)*|'s\b|[^a-z0-9_\s*]|\n+)", re.ASCII)  # of lower case, faster
_REACH = 14  # words between a thing and what a relation leads to, at most
_SKIPPED = 2  # words of no list between an attribute and its thing: "a red double-decker tour bus"
_WRITTEN = 120  # characters of what is quoted, at most


class ClaimExtractor:
    """An extractor of claims in captions.

    The extractor is immutable, so it can be shared between threads and pickled.

    Args:
        vocabulary: Labels and aliases: a Vocabulary, the name of a shipped vocabulary, or a file.
        kinds: Claim kinds to extract.

    Raises:
        InputError: If a kind is unknown.

    Example:
        >>> import scapo_eval
        >>> claims = scapo_eval.ClaimExtractor("coco80", kinds=("count", "attribute")).find("Two red cars.")
        >>> [(claim.kind, claim.label, claim.value) for claim in claims]
        [('count', 'car', '2'), ('attribute', 'car', 'red')]
    """

    def __init__(self, vocabulary: Vocabulary | str | Path, kinds: Sequence[ClaimKind] = KINDS) -> None:
        for kind in kinds:
            check_choice("kinds", kind, KINDS)
        self.matcher = AliasMatcher(vocabulary)
        self.kinds = tuple(kind for kind in KINDS if kind in kinds)

    def __repr__(self) -> str:
        return one_line(self, repr(self.matcher.vocabulary))

    def find(self, text: str) -> list[Claim]:
        """Returns the claims in one caption, in text order.

        Args:
            text: Any string.

        Returns:
            Claims whose spans index ``text``.
        """
        return self._of(text, self.matcher.find(text))

    def find_batch(self, texts: Sequence[str]) -> list[list[Claim]]:
        """Returns the claims in many captions. The result equals that of :meth:`find` on each caption, but is computed
        faster.
        """
        columns, uses = self.matcher.find_all_uses(texts)
        labels = self.matcher.vocabulary.labels
        of_texts = []
        for k, text in enumerate(texts):
            rows = columns.row(k)
            places = zip(
                columns.start[rows].tolist(),
                columns.end[rows].tolist(),
                columns.label_id[rows].tolist(),
                uses[rows].tolist(),
                strict=True,
            )
            mentions = [Mention(s, e, labels[label], text[s:e], USES[use]) for s, e, label, use in places]
            of_texts.append(self._of(text, mentions))
        return of_texts

    def _of(self, text: str, mentions: list[Mention]) -> list[Claim]:
        claims = list[Claim]()
        if "presence" in self.kinds:
            claims += [Claim("presence", m.label, "", "", "", m.start, m.end, m.use, (m,)) for m in mentions]
        if set(self.kinds) - {"presence"}:
            claims += [claim for claim in _Reading(text, mentions).claims(self.kinds) if claim.kind in self.kinds]
        return sorted(claims, key=lambda claim: (claim.start, claim.end, _RANK[claim.kind], claim.other))


def claims_of(
    caption: str, vocabulary: Vocabulary | str | Path = "coco80", *, kinds: Sequence[ClaimKind] = KINDS
) -> list[Claim]:
    """Returns the claims in one caption, in text order. For many captions, use :class:`ClaimExtractor`.

    Args:
        caption: Any string.
        vocabulary: Vocabulary, its name, or its file.
        kinds: Kinds of claims to find.

    Raises:
        InputError: If the vocabulary is invalid or a kind is unknown.

    Example:
        >>> import scapo_eval
        >>> [(claim.kind, claim.value) for claim in scapo_eval.claims_of("A dog on a red couch.", kinds=["attribute"])]
        [('attribute', 'red')]
    """
    return ClaimExtractor(vocabulary, kinds).find(caption)


class _Thing(NamedTuple):
    """A mention of an object with the indices of its first and last token."""

    mention: Mention
    first: int
    last: int


class _Led(NamedTuple):
    """A relation that leads to an object. In a list, the next object shares the relation.

    Attributes:
        subject: Index of the object that is the subject.
        value: Canonical word of the relation.
        first, last: Indices of the first and last token of the relation.
        cue: Cue that matched.
        use: Use of the relation's words.
        how: Context before the relation: "behind" (the preceding object), "verb", "comma", or "and".
    """

    subject: int
    value: str
    first: int
    last: int
    cue: ClaimCue
    use: Use
    how: str


class _Reading:
    """A tokenized caption with the methods that extract its claims."""

    def __init__(self, text: str, mentions: Sequence[Mention]) -> None:
        self.text = text
        self.lowered = text.lower()
        if text.isascii():
            pieces = _ASCII_TOKEN.split(self.lowered)
            self.words = pieces[1::2]
        else:  # a word in lower case may be longer, or depend on its neighbors
            pieces = _TOKEN.split(text)
            self.words = [word.lower().replace("’", "'") for word in pieces[1::2]]
        self.ahead = self.words + _NOTHING
        bounds = list(accumulate(map(len, pieces[:-1])))
        self.starts, self.ends = bounds[0::2], bounds[1::2]
        self.things = self._things(mentions)
        self.at = {place: k for k, thing in enumerate(self.things) for place in range(thing.first, thing.last + 1)}
        self.root = list(range(len(self.things)))
        self.led: dict[int, _Led] = {}
        self.quotes = '"' in text or "“" in text or "”" in text
        self.quoted = self._quoted()
        self.leads = self._leads()
        self.places = list(self._place_tokens())
        self.over = {first: last for first, last, _, _ in self.places} | dict(self._itself_tokens())
        self.ended = {last: first for first, last in self.over.items()}

    def _things(self, mentions: Sequence[Mention]) -> list[_Thing]:
        """Returns the mentions that are objects in their own right. Modifiers are omitted."""
        things, token, last = list[_Thing](), 0, 0
        for mention in mentions:
            token = bisect_right(self.ends, mention.start, token)
            last = max(token, bisect_left(self.starts, mention.end, token) - 1)
            whole = token < len(self.ends) and self.ends[last] <= mention.end
            if whole and mention.use != "modifier":
                if things and things[-1].last + 1 == token:
                    things.pop()  # "a dirt path": the word before says what kind of path
                things.append(_Thing(mention, token, last))
        return things

    def _quoted(self) -> frozenset[int]:
        """Returns the indices of the tokens between quotation marks, which do not describe the image."""
        inside = set[int]()
        opened = None
        for k, word in enumerate(self.words) if self.quotes else ():
            if word in ('"', "“", "”"):
                if opened is not None and word != "“":
                    inside.update(range(opened, k + 1))
                    opened = None
                else:
                    opened = k
            elif word.startswith("\n"):
                opened = None
        return frozenset(inside)

    def claims(self, kinds: Sequence[ClaimKind] = KINDS) -> Iterator[Claim]:
        """Yields all claims except presence claims.

        Claims of kinds that are not requested are included if they affect a requested claim.
        """
        claims = list[Claim]()
        words, quoted, counted = self.words, self.quoted, list[int]()
        for k, thing in enumerate(self.things):
            if thing.first and words[thing.first - 1] not in _BARE and thing.first not in quoted:
                claims += (found := list(self._before(k)))
                if any(claim.kind == "count" for claim in found):
                    counted.append(k)
        others = range(len(self.things)) if set(kinds) - {"presence", "count"} else self._beside(counted)
        for k in others:
            if k and self.things[k].first not in quoted:
                claims += self._leading_to(k)
        for k in others:
            thing = self.things[k]
            follows = self.ahead[thing.last + 1]
            says = (
                follows in _SAYING
                or follows in _STATES
                or follows[-2:] == "ly"
                or follows[-3:] == "n't"
                or words[thing.last] in _COLORED
            )
            if (says or thing.last + 1 in self.over) and thing.first not in quoted:
                claims += self._behind(k)
        claims += self._places()
        yield from _restricted(claims, self)
        if "text" in kinds:
            yield from self._texts()

    def _beside(self, counted: Sequence[int]) -> list[int]:
        """Returns the sorted indices of the objects that share a sentence with one of the given objects."""
        found = set[int]()
        for k in counted:
            if k not in found:
                for step, stop in ((-1, -1), (1, len(self.words))):
                    for j in range(self.things[k].first, stop, step):
                        word = self.words[j]
                        if word in _SENTENCE_END or word[0] == "\n":
                            break
                        if j in self.at:
                            found.add(self.at[j])
        return sorted(found)

    # ---- left of a thing: counts and attributes

    def _before(self, k: int) -> Iterator[Claim]:
        """Yields the claims that precede the noun in an object's noun phrase."""
        j, skipped, hedged, last_attribute = self.things[k].first - 1, 0, False, -1
        floor = self.things[k - 1].last if k else -1
        while j > floor:
            word = self.words[j]
            if word in _ATTRIBUTES or ("-" in word and self._color_parts(word)):
                cue, value = _ATTRIBUTES.get(word) or _ATTRIBUTES[self._color_parts(word)]
                begin = j
                while cue.category == "color" and begin - 1 > floor and self.words[begin - 1] in _SHADES:
                    begin -= 1
                yield self._claim("attribute", k, value, begin, j, cue, hedged=hedged)
                last_attribute = j = begin
            elif word in _COUNTS:
                yield from self._count(k, j, _COUNTS[word])
                return
            elif word == "of" and j - 1 > floor and self.words[j - 1] in _COLLECTIONS:
                yield from self._count(k, j - 1, _COLLECTIONS[self.words[j - 1]], j)
                return
            elif word in ("and", "or", ","):
                if not self._is_attribute(j - 1) or (last_attribute != j + 1 and (word != "," or not skipped)):
                    return
                if word == "or":
                    hedged = True
            elif word in _SETS["others"]:
                pass
            elif word in _ENDS or not (word[0].isalnum()) or _is_verb(word):
                return
            elif word not in _SHADES:
                skipped += 1
                if skipped > _SKIPPED:
                    return
            j -= 1

    def _is_attribute(self, j: int) -> bool:
        return j >= 0 and (self.ahead[j] in _ATTRIBUTES or bool(self._color_parts(self.ahead[j])))

    def _color_parts(self, word: str) -> str:
        """Returns the color in a hyphenated word such as "light-brown" or "brown-colored".

        The result is empty for all other words.
        """
        if "-" not in word:
            return ""
        parts = [part for part in word.split("-") if part not in ("colored", "coloured")]
        named = [part for part in parts if part not in _SHADES] or parts[-1:]
        entries = [_ATTRIBUTES.get(part) for part in named]
        return named[0] if all(entry and entry[0].category == "color" for entry in entries) else ""

    def _count(self, k: int, j: int, entry: tuple[ClaimCue, str], last: int | None = None) -> Iterator[Claim]:
        cue, value = entry
        thing, word = self.things[k], self.words[j]
        last = j if last is None else last
        before = self.words[j - 1] if j else ""
        if word in ("pair", "pairs") and thing.mention.label in _SETS["of_pairs"]:
            return
        if word in ("line", "row", "number", "group", "crowd", "herd", "flock", "pair", "couple", "trio") and (
            _SENTENCE_END.intersection(self.words[j:last]) or before in ("no",)
        ):
            return
        if word == "few" and before not in ("a", "the"):
            return
        if word == "one" and (before == "no" or self._others_follow(last)):
            return
        if word.isdecimal() and before in ("#", "number", "no", "$", "."):
            return
        if before in ("or", "to", "-", "–") and j > 1 and self.words[j - 2] in _COUNTS:
            low = _COUNTS[self.words[j - 2]][1]
            value, j = f"{count_range(low)[0]}-{count_range(value)[0]}", j - 2
        elif value.isdecimal():
            if self._phrase_before(j, _SETS["at_least"]):
                over = self.words[j - 1] in ("than", "over")
                value = f"{int(value) + over}+"
            elif before in _SETS["about"]:
                value = f"{max(1, int(value) - 1)}-{int(value) + 1}"
        yield self._claim("count", k, value, j, last, cue)

    def _phrase_before(self, j: int, phrases: frozenset[str]) -> bool:
        return self.words[j - 1 : j] != [] and (
            self.words[j - 1] in phrases or (j > 1 and " ".join(self.words[j - 2 : j]) in phrases)
        )

    def _others_follow(self, j: int) -> bool:
        """Returns True if "another" or "others" follows in the sentence: "one man sits while the other stands"."""
        for word in self.words[j + 1 : j + 1 + 4 * _REACH]:
            if word in (".", "!", "?") or word.startswith("\n"):
                return False
            if word in ("another", "other", "others"):
                return True
        return False

    # ---- right of a thing: what it is, does, and stands to others

    def _behind(self, k: int) -> Iterator[Claim]:
        """Yields attributes and actions after an object: "the bus is red", "a man standing", "made of wood"."""
        j = self.things[k].last + 1
        while j in self.over or self.ahead[j] == "visible":
            j = self.over.get(j, j) + 1
        comma = self.ahead[j] in (",", "and")
        if comma:
            follows = self.ahead[j + 1]
            if follows not in (("which", "who", "that") if self.ahead[j] == "," else _FINITE_BE) and not (
                follows in _DOING and follows.endswith(("ing", "ed"))
            ):
                return
            j += 1
        which = self.ahead[j] in ("which", "who", "that")
        j += which
        verb, hedged, negated = False, False, False
        while True:
            word = self.ahead[j]
            if word in _BEING:
                if verb and self.ahead[j - 1] in _ON_THE_WAY:
                    return  # "the field where the dogs are located is green": not the dogs
                verb = True
            elif word == "not" or word.endswith("n't"):
                negated = True
            elif verb and (word in _PASSED or j in self.over) and word not in _SETS["looking"]:
                j = self.over.get(j, j)
            elif word in _PRONOUNS and (self.ahead[j - 1] in _SETS["prepositions"] or self.ahead[j + 1] in _BEING):
                # "the sky above them is clear", "the board he is riding is white"
                j += self.ahead[j + 1] in _BEING and self.ahead[j + 2].endswith("ing") and 2
            elif not (word in _SETS["skipped"] or (word.endswith("ly") and len(word) > 4) or word in _GUESSES):
                break
            hedged |= word in _GUESSES
            j += 1
        if verb and self.ahead[j] == "," and self.ahead[j + 1] in _DOING and self.ahead[j + 1].endswith("ing"):
            j += 1  # "a lamp is on the left, standing on a table"
        use: Use = "negated" if negated else "hedged" if hedged else "claim"
        subject = self.root[k] if (verb or comma) and not which else k
        if self.ahead[j] in _DOING and j not in self.at and self.ahead[j + 1] != "out":
            yield from self._doings(subject, j, use)
        elif self.ahead[j] in ("made", "constructed") and self.ahead[j + 1] in ("of", "from", "out"):
            j += 2 + (self.ahead[j + 2] == "of")
            entry = _ATTRIBUTES.get(self.ahead[j])
            if entry and entry[0].category == "material" and j + 1 not in self.at:
                yield self._claim("attribute", subject, entry[1], j, j, entry[0], use=use)
        elif verb or self.ahead[j - 1] in _COLORED:
            yield from self._predicates(subject, j, use)
        elif self._stands_with(k) and not comma and not which:
            yield from self._predicates(k, j, use)  # "with its mouth open"

    def _stands_with(self, k: int) -> bool:
        """Returns True if "with" leads to an object, or to one before it in a list, so that its state may follow it."""
        led = self.led.get(k)
        return led is not None and led.value == "with" and self.ahead[led.first] == "with"

    def _doings(self, k: int, j: int, use: Use) -> Iterator[Claim]:
        """Yields the consecutive actions of an object: "resting or possibly sleeping"."""
        while self.ahead[j] in _DOING:
            cue, value = _DOING[self.ahead[j]]
            if not self._is_of_others(k, j):
                yield self._claim("attribute", k, value, j, j, cue, use=use)
            j += 1
            if self.ahead[j] not in ("and", "or") and (self.ahead[j] != "," or not self.ahead[j + 1].endswith("ing")):
                return
            j += 1
            while self.ahead[j] in _GUESSES or self.ahead[j].endswith("ly"):
                use = "hedged"
                j += 1

    def _is_of_others(self, k: int, j: int) -> bool:
        """Returns True if "running" or "flying" does not describe a motion of the object itself.

        Examples are "a road running along the coast" and "a man flying a kite".
        """
        motion = _DOING[self.ahead[j]][1] in ("running", "flying")
        agent = self.things[k].mention.label in _AGENTS
        return motion and (self.ahead[j + 1] in ("a", "an", "the") if agent else self.ahead[j][:3] == "run")

    def _predicates(self, k: int, j: int, use: Use) -> Iterator[Claim]:
        """Yields consecutive attributes: "is black and white", "is a light brown color"."""
        article = self.ahead[j] in ("a", "an")
        claims = list[Claim]()
        j += article
        while True:
            begin = j
            j = self._past_shades(j)
            if j > begin and not self._is_attribute(j) and self.ahead[j - 1] in _ATTRIBUTES:
                j -= 1  # "is dark": a shade alone
            if not self._is_attribute(j) or (j in self.at and self.things[self.at[j]].first != j):
                break
            word = self.words[j]
            cue, value = _ATTRIBUTES.get(word) or _ATTRIBUTES[self._color_parts(word)]
            begin = begin if cue.category == "color" else j
            claims.append(self._claim("attribute", k, value, begin, j, cue, use=use))
            j += 1
            if self.ahead[j] in (",", "and", "or") and self._is_attribute(self._past_shades(j + 1)):
                j += 1
            elif self.ahead[j] == "," and self.ahead[j + 1] == "and" and self._is_attribute(self._past_shades(j + 2)):
                j += 2
            elif not article or not self._is_attribute(j):
                break
        follows = self.ahead[j]
        ends = (
            follows == "" or not follows[0].isalnum() or follows in _ENDS or follows.endswith(("ly", "ward", "wards"))
        )
        ends |= follows in _DIRECTIONS
        colored = article and bool(claims) and claims[-1].category == "color"  # "is a deep blue,"
        if claims and (follows in _HUES or (colored and ends) if article else ends and follows != "of"):
            yield from claims

    def _past_shades(self, j: int) -> int:
        while self.ahead[j] in _SHADES:
            j += 1 + (self.ahead[j + 1] == "," and self.ahead[j + 2] in _SHADES)  # "a rich, dark brown"
        return j

    def _leading_to(self, k: int) -> Iterator[Claim]:
        """Yields the relation that leads from an earlier object to object ``k``."""
        before, thing = self.things[k - 1], self.things[k]
        if not 0 < thing.first - before.last - 1 <= _REACH:
            return
        gap = self.words[before.last + 1 : thing.first]
        if not _APART.isdisjoint(gap) or before.first in self.quoted:
            return
        if (inverted := self._inverted(k)) is not None:
            yield inverted
            return
        if self._is_apposition(k, gap):
            self.root[k] = self.root[k - 1]
            return
        led = self._relation(before.last + 1, thing.first)
        if led is None:
            listed = list(self._next_of_list(k, gap))
            led = None if listed else self._again(before.last + 1, gap)
            yield from listed
        if led is None:
            return
        subject = self._subject(k - 1, led)
        if subject is None:
            return
        owned = self._owned_by(k)
        if owned is not None:  # "left of the player's body": of the body
            if owned:
                yield self._led_claim(led._replace(subject=subject), owned)
            return
        self.root[k] = k if self.ahead[led.first] in _OWNING else subject  # "the dog's fur is dark": the fur is
        self.led[k] = led._replace(subject=subject)
        yield self._led_claim(self.led[k], k)

    def _again(self, first: int, gap: Sequence[str]) -> _Led | None:
        """Returns the relation behind a later verb of the clause: "is blue with a pattern and is above a house"."""
        for j in range(len(gap) - 1, 0, -1):
            if gap[j] in _FINITE_BE and (
                gap[j - 1] == "and" or (gap[0] == "with" and "and" not in gap and "," not in gap)
            ):
                led = self._relation(first + j, first + len(gap))
                return None if led is None else led._replace(how="verb")
        return None

    def _owned_by(self, k: int) -> int | None:
        """Returns the index of the object behind an owner's "'s", 0 if that is no object, and None if there is none."""
        last = self.things[k].last
        if self.ahead[last + 1] not in _OWNING or self.ahead[last + 2] in _ENDS or not self.ahead[last + 2]:
            return None
        after = self.things[k + 1].first if k + 1 < len(self.things) else 0
        return k + 1 if after and self._is_phrase(self.words[last + 2 : after]) else 0

    def _led_claim(self, led: _Led, k: int) -> Claim:
        return self._claim("relation", led.subject, led.value, led.first, led.last, led.cue, use=led.use, other=k)

    def _inverted(self, k: int) -> Claim | None:
        """Returns the relation from an object to the object before it, as in "On the hood of a car, there are cats"."""
        before, thing = self.things[k - 1], self.things[k]
        if self.words[before.last + 1] not in _INVERTING:
            return None
        begin = before.first
        while begin and self.words[begin - 1] not in _BEGINS and not self.words[begin - 1].startswith("\n"):
            if self.words[begin - 1] == "and" and self.words[begin - 2] == "," and self.words[begin] in _STARTING:
                break
            begin -= 1
            if begin in self.at or before.first - begin > _LONGEST:
                return None
        j = before.last + 1
        comma = self.ahead[j] == ","
        j += comma
        there = self.ahead[j] == "there"
        j += there
        be = self.ahead[j] in _STANDING_THERE
        j += be
        if not (comma or be) or (there and not be) or (comma and be and not there):
            return None
        if not self._is_phrase(self.words[j : thing.first]):
            return None
        for phrase, cue, value in _STARTING.get(self.words[begin], ()):
            rest = self.words[begin + len(phrase) : before.first]
            if cue.category == "spatial" and tuple(self.words[begin : begin + len(phrase)]) == phrase:
                if not self._is_phrase(rest):
                    return None
                return self._claim("relation", k, value, begin, begin + len(phrase) - 1, cue, other=k - 1)
        return None

    def _next_of_list(self, k: int, gap: Sequence[str]) -> Iterator[Claim]:
        """Yields the relation to a further object in a list, as in "wearing a shirt, shorts and a hat"."""
        led = self.led.get(k - 1)
        if self._stands_with(k - 1) and "and" in gap:  # "with its nose raised and its tail down"
            state = [word for word in gap[: gap.index("and")] if word not in _STATES and not word.endswith("ly")]
            gap = gap if state else gap[gap.index("and") :]
        if self.things[k].mention.label in _SETS["clothes"] and (led is None or led.cue.category != "wearing"):
            led = self._worn(k) or led
        rest = gap[2:] if tuple(gap[:2]) in _JOINTS else gap[1:] if gap[0] in (",", "and", "or") else None
        if led is None or rest is None or not self._is_phrase(rest):
            return
        dressed = led.value == "in" and self.things[k].mention.label in _SETS["clothes"]
        if led.cue.category not in _LISTED and not dressed:
            return
        ends = led.cue.category == "part" or tuple(gap[:2]) == (",", "and")
        clause = ends and self.ahead[self.things[k].last + 1] in _FINITE_BE
        owned = self.ahead[led.first] in _OWNING
        if (clause and not owned) or self.things[k].mention.label == "person":
            return
        if owned and (rest[:1] and rest[0] in _SETS["articles"]):  # "the man's hat and the dog" is no list of his
            return
        use: Use = "hedged" if gap[0] == "or" and led.use == "claim" else led.use
        self.root[k], self.led[k] = led.subject, led
        yield self._led_claim(led._replace(use=use), k)

    def _is_apposition(self, k: int, gap: Sequence[str]) -> bool:
        """Returns True for "a group of people, possibly children, sitting": the others sit."""
        guessed = len(gap) > 1 and gap[0] == "," and gap[1] in _GUESSES and self._is_phrase(gap[2:])
        return guessed and self.ahead[self.things[k].last + 1] == ","

    def _begins_clause(self, k: int) -> bool:
        """Returns True if "that", "as" or a comma and "and" lead to an object's noun phrase."""
        gap = self.words[self.things[k - 1].last + 1 : self.things[k].first]
        return not _CLAUSES.isdisjoint(gap)

    def _worn(self, k: int) -> _Led | None:
        """Returns the relation of the last thing before ``k`` in its sentence that somebody wears."""
        for before in range(k - 1, max(k - 5, -1), -1):
            gap = self.words[self.things[before].last + 1 : self.things[before + 1].first]
            if not _APART.isdisjoint(gap) or not _BEING.isdisjoint(gap):
                return None
            led = self.led.get(before)
            if led is not None and led.cue.category == "wearing":
                return led
        return None

    def _subject(self, k: int, led: _Led) -> int | None:
        """Returns the index of a relation's subject: the preceding object, or the object that a relation to it starts
        from.
        """
        root = self.root[k]
        if led.value == "with" and self.ahead[led.last + 1] in ("his", "her") and led.how == "behind":
            return self._agent_before(k)
        said = led.how == "comma" and not _BEING.isdisjoint(self.words[self.things[k].last + 1 : led.first])
        if led.cue.agent:
            agent = self.things[k].mention.label in _AGENTS
            if led.how == "behind" and agent:
                return k
            if led.how == "verb" and root == k and not agent and k and self._begins_clause(k):
                return None  # "suggests that the plane is carrying people": not the person before it
            return self._agent_before(root)
        if led.how == "comma":
            guessed = led.use == "hedged" and led.cue.category in ("spatial", "part")
            of_own = said and root == k and self.ahead[led.last + 1] not in _OF_OTHERS
            own = led.value == "with" and (self.ahead[led.last + 1] in _POSSESSIVE or of_own)
            return root if own or (guessed and led.cue.category == "part") else k if guessed else None
        if led.how == "and":  # "the hill is covered with grass and has trees"
            return root if root != k else None
        return root if led.how == "verb" else k

    def _agent_before(self, k: int) -> int | None:
        """Returns the index of the nearest preceding person or animal in the same sentence, or None."""
        while k >= 0 and self.things[k].mention.label not in _AGENTS:
            gap = self.words[self.things[k - 1].last + 1 : self.things[k].first] if k else ["."]
            if _SENTENCE_END.intersection(gap) or any(word.startswith("\n") for word in gap):
                return None
            k -= 1
        return k if k >= 0 else None

    def _relation(self, first: int, stop: int) -> _Led | None:
        """Finds a relation in the words between two objects.

        Returns:
            The relation without its subject. The value is None if the words express no relation.
        """
        comma, verb, which, placed, use, j = False, False, False, False, "claim", first
        while j < stop:
            word = self.words[j]
            if skipped := self._skipped_phrase(j):
                j += skipped
                continue
            phrase = self._phrase_at(j, stop) if word in _STARTING else None
            if phrase is not None:
                cue, value, behind = phrase
                if word in ("'s", "'") and (j > first or self.ahead[behind] in _ENDS):
                    return None
                if word == "with" and j > first and self.words[j - 1] == "playing":
                    return None
                beside = not cue.agent and (value in _SETS["after_a_comma"] or placed)
                verb = (verb or word in _SETS["finite"]) and not which
                how = (
                    "behind"
                    if which
                    else "verb"
                    if comma and beside
                    else "comma"
                    if comma
                    else "verb"
                    if verb
                    else "behind"
                )
                if comma and not which and word in _SETS["finite"] and self.words[j - 1] == "and":
                    how = "and"
                return _Led(0, value, j, behind - 1, cue, _use(use), how)
            if j in self.over and self.over[j] < stop:
                j = self.over[j]
            elif word in (",", "and"):
                comma, placed = True, False
            elif word in ("which", "who", "that") and j <= first + 1:
                comma, which = False, True
            elif word == "while" and j <= first + 1:
                comma = True
            elif word == "each" and comma and j == first + 1:
                comma, which = False, True
            elif word in _BEING:
                verb, comma = True, False
                use = "hedged" if word in _GUESSES else use
            elif word in _GUESSES:
                use = "hedged"
            elif word == "not" or word.endswith("n't"):
                use = "negated"
            elif word in _SETS["not_leading"]:
                return None
            elif word == "or" and j > first and (self.ahead[j + 1] in _DOING or self.ahead[j + 1] in _GUESSES):
                use = "hedged" if use == "claim" else use
            elif word in _DOING or (word in _ATTRIBUTES and verb):
                verb = verb or (word.endswith("s") and word != "asleep") or (comma and word.endswith(("ing", "ed")))
                comma, placed = comma and not verb, True
            elif word == "playing" and self.ahead[j + 1].isalpha() and self._phrase_at(j + 2, stop):
                j += 1  # "playing tennis on a court"
            elif word in _ON_THE_WAY or (word.endswith("ly") and len(word) > 4) or (word in _TO and verb):
                placed |= word in _ON_THE_WAY
            elif verb and self.words[j - 1] in _PREDICATING and self.ahead[j + 1] in (",", "and") and word.isalpha():
                placed = False  # "is breaking, with": what is said is of no list
            elif not (word.endswith(("ing", "ed")) and len(word) > 4):
                return None
            elif not self._phrase_at(j + 1, stop) and not self._skipped_phrase(j + 1):
                if not self._phrase_at(j + 2, stop) or self.ahead[j + 1] in _ENDS or not self.ahead[j + 1].isalpha():
                    return None
                j += 1  # "playing tennis on", "enjoying themselves in"
            j += 1
        return None

    def _skipped_phrase(self, j: int) -> int:
        """Returns the number of words of "in mid-air" or "facing the camera", which may precede a relation."""
        word = self.ahead[j]
        if word == "in" and self.ahead[j + 1] in _SETS["in_states"]:
            return 2
        toward = word in _SETS["looking"] or word in ("at", "toward", "towards")
        return 3 if toward and tuple(self.ahead[j + 1 : j + 3]) in _VIEWERS else 0

    def _phrase_at(self, j: int, stop: int) -> tuple[ClaimCue, str, int] | None:
        """Returns the cue, value and end of the relation that begins at a token, or None if no noun phrase follows."""
        for phrase, cue, value in _STARTING.get(self.ahead[j], ()):
            behind = j + len(phrase)
            if behind <= stop and tuple(self.words[j:behind]) == phrase:
                begins = self._is_phrase(self.words[behind:stop])
                return (cue, value, behind) if begins or self._is_later_of_list(cue, behind, stop) else None
        return None

    def _is_later_of_list(self, cue: ClaimCue, first: int, stop: int) -> bool:
        """Returns True if a list begins with things that the vocabulary lacks: "has a grille and headlights"."""
        words = self.words[first:stop]
        joint = max((j for j, word in enumerate(words) if word in ("and", ",")), default=-1)
        if cue.category not in _LISTED or joint < 1 or not self._is_phrase(words[joint + 1 :]):
            return False
        return all(
            word in _LISTING or (word[0].isalnum() and word not in _NOT_LISTED and not _is_verb(word)) for word in words
        )

    def _is_phrase(self, words: Sequence[str]) -> bool:
        """Returns True if words between a relation and an object are the beginning of the object's noun phrase."""
        j = 0
        if len(words) > 2 and words[0] == "what" and words[1] in _GUESSES:  # "on what appears to be a road"
            j = 2 + (words[2] in ("to", "like")) + (tuple(words[2:4]) == _TO)
        while j < len(words):
            word = words[j]
            if word == "of":
                if not j or (words[j - 1] not in _SETS["parts"] and words[j - 1] not in _COLLECTIONS):
                    return False
            elif word in ("and", ",", "or"):
                if not (
                    self._listed(words[j - 1] if j else "") and self._listed(words[j + 1] if j + 1 < len(words) else "")
                ):
                    return False
            elif word in _SETS["articles"]:
                if j and words[j - 1] not in ("of", "all", "both"):
                    return False
            elif word in _ENDS or not word[0].isalnum() or (_is_verb(word) and not self._listed(word)):
                return False
            j += 1
        return len(words) <= _LONGEST

    def _listed(self, word: str) -> bool:
        return word in _ATTRIBUTES or word in _SHADES or bool(self._color_parts(word))

    # ---- where in the picture

    def _place_tokens(self) -> Iterator[tuple[int, int, re.Match[str], str]]:
        """Yields the first and last token of each position in the image, with the pattern match and the value."""
        for match in self._matches(_PLACE):
            _, value = _WORDS["places"][match["place"]]
            begin, end = match.span()
            if match["of"] is None and _OF_A_THING.match(self.lowered, end):
                continue
            if value in ("top", "bottom") and match["of"] is None and match["lead"].startswith("in "):
                continue
            first, last = self._tokens_of(begin, end)
            if first not in self.quoted and first not in self.at:
                yield first, last, match, value

    def _itself_tokens(self) -> Iterator[tuple[int, int]]:
        """Yields the first and last token of phrases such as "in the scene", which state no position."""
        for match in self._matches(_ITSELF):
            yield self._tokens_of(*match.span())

    def _leads(self) -> list[int]:
        """Returns the indices of the tokens at which a phrase for a position in the image may begin.

        Searching only for the nouns of such phrases is five times as fast as searching the whole text.
        """
        words, leads = self.words, list[int]()
        anchors = [k for k, word in enumerate(words) if word in _ANCHORS]
        if "-" in self.lowered:  # "the left-hand side"
            dashed = (k for k, word in enumerate(words) if "-" in word and word.split("-")[0] in _ANCHORS)
            anchors = sorted([*anchors, *dashed])
        for k in anchors:
            if k > 1 and words[k - 1] in ("the", "this"):
                leads.append(k - 2)
            elif k > 2 and words[k - 2] == "the":
                leads.append(k - 3)
        return leads

    def _matches(self, pattern: re.Pattern[str]) -> Iterator[re.Match[str]]:
        """Yields the non-overlapping matches of a pattern that begin at the leads."""
        end = 0
        for lead in self.leads:
            start = self.starts[lead]
            if start >= end and (match := pattern.match(self.lowered, start)):
                end = match.end()
                yield match

    def _tokens_of(self, begin: int, end: int) -> tuple[int, int]:
        first = bisect_left(self.starts, begin)
        return first, max(first, bisect_left(self.starts, end) - 1)

    def _places(self) -> Iterator[Claim]:
        for first, last, match, value in self.places:
            subject = self._located(first, last)
            if subject is not None:
                thing = self.things[subject].mention
                cue = _WORDS["places"][match["place"]][0]
                yield Claim("relation", thing.label, value, cue.category, "", *match.span(), thing.use, (thing,))

    def _located(self, first: int, last: int) -> int | None:
        """Returns the index of the object at a position: the preceding object, or the next one at the beginning of a
        sentence.
        """
        if first == 0 or self.words[first - 1] in _SENTENCE_END or self.words[first - 1].startswith("\n"):
            j = last + 1
            if self.ahead[j] not in _AFTER_A_PLACE:
                return None
            while j < len(self.words) and j - last < _REACH and self.words[j] not in _SENTENCE_END:
                if j in self.at:
                    return self.at[j]
                of_many = self.words[j] == "of" and (
                    self.words[j - 1] in _COLLECTIONS or self.words[j - 1] in _SETS["parts"]
                )
                if not of_many and (
                    self.words[j] in _SETS["prepositions"] or (_is_verb(self.words[j]) and self.words[j] != "being")
                ):
                    return None
                j += 1
            return None
        j = first - 1
        allowed = _BEING | _ON_THE_WAY | _DOING.keys()
        verb = False
        while j >= 0 and j not in self.at:
            word = self.words[j]
            if word == "," and self.words[j + 1] in _ON_THE_WAY:  # "a chair in the room, positioned on the left"
                verb = True
                j -= 1
                while j in self.ended:
                    j = self.ended[j] - 1
                continue
            known = word in allowed or word in ("which", "who", "that", "can") or word.endswith("ly")
            if word in _SETS["looking"] or not known:
                return None
            verb |= word in _BEING
            j -= 1
        return (self.root[self.at[j]] if verb else self.at[j]) if j >= 0 else None

    # ---- what is written

    def _texts(self) -> Iterator[Claim]:
        written = _WORDS["written"]
        for match in _QUOTED.finditer(self.text) if self.quotes else ():
            begin = match.start()
            token = bisect_left(self.starts, begin)
            lead = self.words[max(0, token - 5) : token]
            tail = self.words[token:]
            closing = bisect_left(self.starts, match.end())
            after = self.words[closing : closing + 4]
            said = any(word in written for word in lead) or bool({"written", "printed", "displayed"} & set(after))
            if said and tail and match["text"].strip(_EDGES):
                yield self._text(token, *_stripped(self.text, match.start("text"), match.end("text")))
        for match in () if _READING.isdisjoint(self.words) else _CAPITALS.finditer(self.text):
            token = bisect_left(self.starts, match.start("text"))
            if token not in self.quoted:
                yield self._text(token, match.start("text"), match.end("text"))

    def _text(self, token: int, start: int, end: int) -> Claim:
        """Returns a text claim about the nearest preceding object in the sentence, or about no object."""
        j = token - 1
        while j >= 0 and self.words[j] not in _SENTENCE_END and not self.words[j].startswith("\n"):
            if j in self.at and self.things[self.at[j]].mention.label != "text":
                thing = self.things[self.at[j]].mention
                use: Use = "claim" if thing.use == "quoted" else thing.use
                return Claim("text", thing.label, self.text[start:end], "", "", start, end, use, (thing,))
            j -= 1
        return Claim("text", "", self.text[start:end], "", "", start, end, "claim", ())

    def _claim(
        self,
        kind: ClaimKind,
        k: int,
        value: str,
        first: int,
        last: int,
        cue: ClaimCue,
        *,
        hedged: bool = False,
        use: Use = "claim",
        other: int | None = None,
    ) -> Claim:
        mentions = [self.things[k].mention] + ([self.things[other].mention] if other is not None else [])
        uses: list[Use] = [mention.use for mention in mentions] + [use] + (["hedged"] if hedged else [])
        return Claim(
            kind,
            mentions[0].label,
            value,
            cue.category,
            mentions[1].label if other is not None else "",
            self.starts[first],
            self.ends[last],
            max(uses, key=USES.index),
            tuple(mentions),
        )


def _use(name: str) -> Use:
    return "negated" if name == "negated" else "hedged" if name == "hedged" else "claim"


def _restricted(claims: Sequence[Claim], reading: _Reading) -> Iterator[Claim]:
    """Yields the claims and marks counts that may refer to only some of the objects."""
    counted = [claim.label for claim in claims if claim.kind == "count"]
    if not counted:
        yield from claims
        return
    narrowed = {claim.mentions[0].start for claim in claims if claim.kind in ("attribute", "relation")}
    for claim in claims:
        if claim.kind != "count":
            yield claim
            continue
        between = reading.text[claim.end : claim.mentions[0].start].lower().split()
        some = counted.count(claim.label) > 1 or claim.mentions[0].start in narrowed or len(between) > 0
        yield replace(claim, restricted=True) if some else claim


def _is_verb(word: str) -> bool:
    return len(word) > 4 and word.endswith("ing") and word not in _SETS["nouns_in_ing"]


def _stripped(text: str, start: int, end: int) -> tuple[int, int]:
    while start < end and text[start] in _EDGES:
        start += 1
    while start < end and text[end - 1] in _EDGES:
        end -= 1
    return start, end


_NOTHING = [""] * 8
"""Padding after the last word, longer than the look-ahead of any rule."""
_EDGES = " .,;:"
_SENTENCE_END = frozenset(".!?;:")
_APART = _SENTENCE_END | {"\n"}
_HUES = frozenset(("color", "colour", "hue", "shade"))
_AFTER_A_PLACE = frozenset(
    (",", "there", "is", "are", "a", "an", "the", "two", "several", "stands", "sits", "hangs", "lies")
)
_STANDING_THERE = frozenset(
    ("is", "are", "'s", "was", "were", "stands", "stand", "sits", "sit", "hangs", "lies", "rests")
)
_INVERTING = _STANDING_THERE | {",", "there"}
_BARE = (
    frozenset(word for word in _ENDS if word not in ("and", "or", "of") and word not in _ATTRIBUTES)
    - _COUNTS.keys()
    - _SETS["others"]
)
"""Words that, directly before an object, exclude further claims to the left of them."""
_BEGINS = frozenset('.!?;:"”')
_COLORED = frozenset(("painted", "colored"))
_SAYING = frozenset({",", "and", "visible", "which", "who", "that", "not", "made", "constructed", *_COLORED}).union(
    _BEING, _GUESSES, _SETS["skipped"], _DOING
)
"""Words that may start a claim directly after an object. Any other word there starts no claim."""
_PRONOUNS = frozenset(("he", "she", "they", "it", "him", "her", "them", "you"))
_STATES = frozenset(word for word, (cue, _) in _ATTRIBUTES.items() if cue.category == "state") | _PRONOUNS
_VIEWERS = frozenset((("the", "camera"), ("the", "viewer"), ("the", "photographer")))
_DIRECTIONS = frozenset(("up", "down", "out", "back", "open", "upright"))
_OWNING = frozenset(("'s", "'"))
_LISTING = _SETS["articles"] | {"and", ",", "of"}
_NOT_LISTED = _ENDS | _SETS["finite"]
_CLAUSES = frozenset(("that", "as", "while", "because", "so", "if", "where"))
_JOINTS = frozenset(((",", "and"), ("along", "with"), (",", "along")))
_OF_OTHERS = frozenset(("the", "this", "that", "another", "one", "each", "some", "what", "others"))
_PREDICATING = _BEING | {"quite", "very", "also", "mostly", "and", "slightly", "relatively"}
_POSSESSIVE = frozenset(("its", "his", "her", "their", "both"))
_LISTED = frozenset(("wearing", "holding", "part"))
_FINITE_BE = frozenset(("is", "are", "was", "were", "has", "have"))
_LONGEST = 7
# A pattern is searched fast if it begins with a letter: the boundary before that is looked at behind it.
_PLACE = re.compile(
    r"(?P<lead>(?:o(?<=\bo)n|t(?<=\bt)o(?:wards?)?|a(?<=\ba)t|i(?<=\bi)n|n(?<=\bn)ear) the) "
    r"(?:(?:far|upper|lower|very|extreme|blurred|immediate) |bottom |top )?"
    r"(?:(?P<place>left|right|background|distance|foreground|center|centre|middle|top|bottom)\b)"
    r"(?! of (?!(?:the|this) (?:image|picture|photo|frame|scene)|different|various))"
    r"(?:-hand)?(?: (?:side|part|half|portion|corner|edge|area|section))?"
    r"(?P<of> (?:of|in) (?:the |this )?(?:image|picture|photo|photograph|frame|scene)\b)?"
)
_OF_A_THING = re.compile(r" of (?:the|an?|this|that|its|his|her|their|[a-z]+'s) ")
_ANCHORS = frozenset(
    "left right background distance foreground center centre middle top bottom image picture photo photograph frame "
    "scene".split()
)
_ITSELF = re.compile(r"in(?<=\bin) (?:the|this) (?:image|picture|photo|photograph|frame|scene)\b")
_QUOTED = re.compile(rf"[\"“](?P<text>[^\"“”\n]{{1,{_WRITTEN}}})[\"”]")
_READING = frozenset("reads reading says saying spells labeled letters word words".split())
_CAPITALS = re.compile(
    r"(?:r(?<=\br)ead(?:s|ing)|s(?<=\bs)(?:ay(?:s|ing)|pells)|l(?<=\bl)(?:abeled|etters)|w(?<=\bw)ords?)\s+"
    r"(?P<text>[A-Z0-9][A-Z0-9'&-]+(?:\s+[A-Z0-9][A-Z0-9'&-]+)*)\b"
)
