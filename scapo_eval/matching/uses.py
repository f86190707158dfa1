"""What a caption does with its mentions, and which of them a reading counts.

The paper counts every mention. A caption also denies ("there are no people"), guesses ("possibly a phone"), quotes ("a
sign that reads 'BUS'"), says what something is for ("a place for guests"), speaks of the world ("typical of kitchens"),
likens ("shaped like an apple"), or lets a word only say what kind another thing is ("a bus route"). A reading leaves
some of these out:

- ``all``: nothing (the paper).
- ``asserted``: what is negated: no, not, n't, without, neither ... nor, none, nobody, lack(s) of, absence of, devoid
  of, free of, rather than, instead of, "X is not visible".
- ``certain``: these and what is hedged: possibly, perhaps, maybe, likely, probably, might, may, could, appears to be a,
  seems to be a, looks like, suggests, resembles.
- ``visual``: what is negated, quoted, a purpose, generic, a comparison or a modifier; guesses stay.

A cue reaches forward to the end of its clause: a full stop, a semicolon, a line end, a dash, a bracket, ``but``,
``except``, ``while``, ``which``..., or a comma, unless a list goes on behind it ("no cars, buses, or trucks"). Things
that are taken for granted stay claims: "no people on THE bench", "possibly checking HIS phone", "shade for THE family".
"Not only", "no longer", "nothing but", "no doubt" and the like are not negations.

Rules only: no model, no data, always the same answer. The matcher reports cue words from the pass in which it finds the
mentions, and only the text behind one is read.
"""

from __future__ import annotations

import re
from bisect import bisect, bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from itertools import chain
from typing import Any, Literal, NamedTuple, TypeAlias, get_args

import numpy as np
from numpy.typing import NDArray

from ..base.columns import MentionColumns
from ..base.text import fold
from ..base.types import Use
from .context import QUOTE_REACH, colors, may_modify, noun_behind
from .vocabulary import Vocabulary, tokenize_alias

Claims = Literal["all", "asserted", "certain", "visual"]
"""Which mentions count."""

CLAIMS: tuple[Claims, ...] = get_args(Claims)

USES: tuple[Use, ...] = get_args(Use)
"""What a caption does with a mention; a use is coded by its position here, and the higher one counts."""

LEFT_OUT: dict[Claims, tuple[Use, ...]] = {
    "all": (),
    "asserted": ("negated",),
    "certain": ("negated", "hedged"),
    "visual": ("negated", "quoted", "modifier", "purpose", "generic", "comparison"),
}
"""Reading -> the uses that it leaves out."""

REACH = 70
"""Characters behind a cue word within which a mention in its scope begins."""

PHRASE_REACH = 40
"""The same where the scope is a noun phrase."""

_BASE, _NOWHERE = 32, np.iinfo(np.int64).max  # bits of a place before its caption's index; behind all places

_BACK_REACH = 40  # characters from a mention within which "is not visible" is looked for


@lru_cache
def cue_words(uses: tuple[Use, ...]) -> Mapping[str, int]:
    """The words that may be a cue of some uses, for a matcher to watch, each with its row in the table of cues."""
    return {word: row for word, row in _ROW.items() if _CUES[word].use in uses}


@dataclass(frozen=True, slots=True)
class SpecialWords:
    """Aliases of a vocabulary that only its context makes a claim.

    Attributes:
        colors: label id -> folded aliases that color what follows them.
        kin: label id -> folded aliases that mean an animal where nobody else is named.
        kin_of: ids of the labels of these animals.
        watch: the first words of these aliases, for a matcher to watch among the ``cue_words``.
    """

    colors: Mapping[int, frozenset[str]]
    kin: Mapping[int, frozenset[str]]
    kin_of: frozenset[int]
    watch: Mapping[str, int]

    @classmethod
    def of(cls, vocabulary: Vocabulary) -> SpecialWords:
        """Those that a vocabulary lists."""

        def by_label(aliases: Sequence[str]) -> dict[int, frozenset[str]]:
            owned: dict[int, set[str]] = {}
            for alias in aliases:
                owned.setdefault(vocabulary.label_ids[vocabulary.aliases[alias]], set()).add(fold(alias))
            return {label: frozenset(words) for label, words in owned.items()}

        watch = {tokenize_alias(alias)[0]: _SPECIAL for alias in (*vocabulary.heads, *vocabulary.kin)}
        kin_of = frozenset(vocabulary.label_ids[label] for label in vocabulary.kin_of)
        return cls(by_label(vocabulary.heads), by_label(vocabulary.kin), kin_of, watch)


_Row: TypeAlias = tuple[int, int, int, int]
"""A mention: index of its caption, its row, start, end."""

_Scope: TypeAlias = tuple[int, int, int, int, int]
"""A cue before a mention: index of the caption, end of the cue, start and row of the mention, which cue."""

_Back: TypeAlias = tuple[int, int, int, int]
"""A cue behind a mention: index of the caption, start of the cue, row of the mention, which cue."""


def find_uses(
    texts: Sequence[str],
    mentions: MentionColumns,
    cues: MentionColumns,
    look: NDArray[np.bool_],
    quoting: Sequence[int],
    uses: tuple[Use, ...],
    words: SpecialWords,
) -> NDArray[np.uint8]:
    """What captions do with their mentions, as far as some uses are asked for.

    Args:
        texts: the captions.
        mentions: of them.
        cues: the ``cue_words`` of the uses in them.
        look: (mentions,) bool, False where no noun stands behind a mention and it is not written in capitals.
        quoting: indices of captions, all those among them that may have a mention between quotation marks.
        uses: those that are looked for.
        words: of the vocabulary.

    Returns:
        (mentions,) positions in USES; 0, a claim, for what is none of the uses.
    """
    if not uses or not len(mentions.start):
        return np.zeros(len(mentions.start), dtype=np.uint8)
    caption, which = mentions.caption, cues.label_id
    starts, ends, indptr = mentions.start.data, mentions.end.data, mentions.indptr.data  # give plain integers
    base, owner = caption << _BASE, cues.caption << _BASE
    place = np.append(base + mentions.start, _NOWHERE)
    begin = cues.start - _BEGINS_BEFORE[which]
    following = np.searchsorted(place, owner + begin)

    found: list[Iterable[tuple[int, int]]] = []
    if "quoted" in uses:
        found += [_in_quotes(texts[k], starts, indptr[k], indptr[k + 1]) for k in quoting]
    if "modifier" in uses:
        row = look.nonzero()[0]
        row = row[~_listed(mentions, row, place, base + mentions.end)]
        found.append(_by_form(texts, _rows(caption[row], row, mentions.start[row], mentions.end[row])))
        row = following[which == _SPECIAL]
        row = row[row < len(caption)]
        special = _rows(caption[row], row, mentions.start[row], mentions.end[row])
        found.append(_of_color_or_kin(texts, starts, ends, mentions.label_id.data, indptr, special, words))
    gap = place[following] - owner - cues.end
    near = ((gap >= 0) & (gap <= _REACHES[which])).nonzero()[0]
    row = following[near]
    scopes = _rows(caption[row], cues.end[near], mentions.start[row], row, which[near])
    found.append(_in_scope(texts, starts, ends, indptr, scopes))
    back = _REACHES_BACK[which].nonzero()[0]
    row, begin = following[back] - 1, begin[back]
    near = ((row >= 0) & (owner[back] + begin - base[row] - mentions.end[row] < _BACK_REACH)).nonzero()[0]
    row = row[near]
    found.append(_behind(texts, starts, ends, _rows(caption[row], begin[near], row, which[back[near]])))
    return np.frombuffer(_highest(len(starts), found), dtype=np.uint8)


def _rows(*columns: NDArray[Any]) -> Iterator[Any]:
    """The rows of columns, as plain integers."""
    return zip(*(column.tolist() for column in columns), strict=True)


def find_uses_of(
    text: str,
    mentions: Sequence[tuple[int, int, int]],
    cues: Sequence[tuple[int, int, int]],
    uses: tuple[Use, ...],
    words: SpecialWords | None = None,
) -> bytearray:
    """As :func:`find_uses`, of one caption and in plain Python: its arrays would take longer to make than to read.

    Args:
        text: the caption.
        mentions: start, end and label id of each, in order.
        cues: the ``cue_words`` of the uses in it.
        uses: those that are looked for.
        words: of the vocabulary that the labels belong to; None for no such words.
    """
    if not uses or not mentions:
        return bytearray(len(mentions))
    starts, ends, labels = ([mention[k] for mention in mentions] for k in range(3))
    n = len(starts)
    found: list[Iterable[tuple[int, int]]] = []
    if "quoted" in uses and ('"' in text or "\u201c" in text):
        found.append(_in_quotes(text, starts, 0, n))
    if "modifier" in uses:
        beside = {row for row in range(1, n) if starts[row] == ends[row - 1] + 1}
        listed = {near for row in beside if row + 1 in beside for near in (row - 1, row, row + 1)}
        if not starts[0] and 1 in beside:
            listed.add(0)
        found.append(_by_form([text], [(0, row, starts[row], ends[row]) for row in range(n) if row not in listed]))
    special, scopes, backward = list[_Row](), list[_Scope](), list[_Back]()
    for start, end, cue in cues:
        begin = start - 2 * (cue == _T)
        following = bisect_left(starts, begin)
        if cue == _SPECIAL:
            if following < n:
                special.append((0, following, starts[following], ends[following]))
            continue
        if following < n and 0 <= starts[following] - end <= _SCOPES[cue].reach:
            scopes.append((0, end, starts[following], following, cue))
        if following and _REACHES_BACK[cue] and begin - ends[following - 1] < _BACK_REACH:
            backward.append((0, begin, following - 1, cue))
    if words:
        found.append(_of_color_or_kin([text], starts, ends, labels, [0, n], special, words))
    found.append(_in_scope([text], starts, ends, [0, n], scopes))
    found.append(_behind([text], starts, ends, backward))
    return _highest(n, found)


def _highest(n: int, found: Iterable[Iterable[tuple[int, int]]]) -> bytearray:
    """Of the uses found for each of n mentions the highest."""
    uses = bytearray(n)  # plain integers: single places are written
    for row, use in chain.from_iterable(found):
        if use > uses[row]:
            uses[row] = use
    return uses


@lru_cache
def left_out_codes(claims: Claims) -> NDArray[np.bool_]:
    """(uses,) bool, what a reading leaves out, by position in USES."""
    return np.array([use in LEFT_OUT[claims] for use in USES])


def _in_quotes(text: str, starts: Sequence[int], first: int, stop: int) -> Iterator[tuple[int, int]]:
    """The mentions between quotation marks of a line, at most QUOTE_REACH characters apart.

    Args:
        text: a caption.
        starts: of mentions.
        first, stop: the rows of those of this caption.
    """
    latest = starts[stop - 1] if first < stop else 0
    for opening, closing in _MARKS:
        begin = text.find(opening)
        while 0 <= begin < latest:
            end = text.find(closing, begin + 1, begin + QUOTE_REACH + 2)
            if end > begin + 1 and "\n" not in text[begin:end]:
                for row in range(bisect(starts, begin, first, stop), bisect(starts, end, first, stop)):
                    yield row, _QUOTED
                begin = text.find(opening, end + 1)
            else:
                begin = text.find(opening, begin + 1)


def _by_form(texts: Sequence[str], rows: Iterable[_Row]) -> Iterator[tuple[int, int]]:
    """Of some mentions, what their form and the word behind them say: capitals, a noun that they modify."""
    for k, row, start, end in rows:
        text = texts[k]
        surface = text[start:end]
        if end - start > 3 and surface[1].isupper() and surface.isupper():
            yield row, _QUOTED
        elif may_modify(surface):
            noun = noun_behind(text, end)
            if noun:
                yield row, _COMPARED if noun == "like" else _MODIFIES


def _listed(
    mentions: MentionColumns, row: NDArray[np.int64], place: NDArray[np.int64], until: NDArray[np.int64]
) -> NDArray[np.bool_]:
    """(rows,) whether mentions are in a list without commas: three side by side, or two that begin a text.

    In such a list nothing modifies.

    Args:
        mentions: of captions.
        row: which of them.
        place: (mentions + 1,) where each begins among all captions, and a place behind all.
        until: (mentions,) where each ends.
    """
    # whether the mention k rows on stands right behind the one before it
    before, own, behind, further = (
        place.take(row + k, mode="clip") == until.take(row + k - 1, mode="clip") + 1 for k in (-1, 0, 1, 2)
    )
    listed: NDArray[np.bool_] = (own & (before | behind)) | (behind & further)
    listed |= behind & (mentions.start[row] == 0)
    return listed


def _of_color_or_kin(
    texts: Sequence[str],
    starts: Sequence[int],
    ends: Sequence[int],
    labels: Sequence[int],
    indptr: Sequence[int],
    rows: Iterable[_Row],
    words: SpecialWords,
) -> Iterator[tuple[int, int]]:
    """Of mentions that may be a special word, those that are a color, or mean an animal: nobody else is named."""
    is_animal: dict[tuple[int, int], bool] = {}
    for k, row, start, end in rows:
        text, label = texts[k], labels[row]
        surface = fold(text[start:end])
        if surface in words.colors.get(label, ()) and colors(text, start, end):
            yield row, _MODIFIES
        if surface in words.kin.get(label, ()):
            if (k, label) not in is_animal:
                named = range(indptr[k], indptr[k + 1])
                is_animal[k, label] = any(labels[one] in words.kin_of for one in named) and all(
                    labels[one] != label or fold(text[starts[one] : ends[one]]) in words.kin[label] for one in named
                )
            if is_animal[k, label]:
                yield row, _MODIFIES


def _behind(
    texts: Sequence[str], starts: Sequence[int], ends: Sequence[int], rows: Iterable[_Back]
) -> Iterator[tuple[int, int]]:
    """The mentions right before a cue that denies them, or says them of a kind: "Giraffes are typically tall"."""
    for k, begin, row, cue in rows:
        text, start, end = texts[k], starts[row], ends[row]
        if _SCOPES[cue].use == _NEGATED:
            denial = _DENIAL.match(text, end)
            if denial and denial.end() > begin:
                yield row, _NEGATED
        elif (
            _IN_GENERAL.match(text, end)
            and not may_modify(text[start:end])
            and (not start or _BARE.search(text[max(0, start - 9) : start]))
        ):
            yield row, _GENERIC


def _in_scope(
    texts: Sequence[str], starts: Sequence[int], ends: Sequence[int], indptr: Sequence[int], scopes: Iterable[_Scope]
) -> Iterator[tuple[int, int]]:
    """The mentions in the scope of a cue before them, and what the cue makes of them.

    Args:
        texts: captions.
        starts, ends: of their mentions.
        indptr: the first row of each caption, and the end of all.
        scopes: cues with the first mention behind them.
    """
    for k, end, start, row, cue in scopes:
        tail = texts[k][end:start]
        if "." in tail:
            continue
        rule = _SCOPES[cue]
        state = rule.states.get(tail) or _remember(rule, tail)
        if state == "over":  # most often
            continue
        text, stop, latest = texts[k], indptr[k + 1], end + rule.reach
        begin = end - rule.length
        if rule.not_behind and text[max(0, begin - 8) : begin].rstrip().endswith(rule.not_behind):
            continue
        if cue == _T and text[max(0, end - 3) : end].lower() not in _N_T:
            continue
        while state != "listed" or _LIST_GOES_ON.match(text, ends[row]):
            if state != "definite" and (not rule.then or _pattern(rule.then).match(text, ends[row])):
                yield row, rule.use
            if row + 1 == stop or starts[row + 1] > latest:
                break
            step = text[ends[row] : starts[row + 1]]
            if "." in step:
                break
            row += 1
            tail += _MENTION + step
            state = rule.states.get(tail) or _remember(rule, tail)
            if state == "over":
                break


_MENTION = "\0"  # in place of each mention behind a cue
_State = Literal["over", "inside", "listed", "definite"]


def _remember(rule: _Rule, tail: str) -> _State:
    """The state of a scope, kept: the same phrases recur between cues and mentions."""
    if len(rule.states) >= _REMEMBERED:
        rule.states.clear()
    state = rule.states[tail] = _scope_state(rule, tail)
    return state


def _scope_state(rule: _Rule, tail: str) -> _State:
    """Whether a mention is in the scope of a cue, from the text between the two.

    Args:
        rule: of the cue.
        tail: what stands behind the cue word, with _MENTION for each mention.

    Returns:
        "over": the scope has ended, or never began; "inside" it; "listed": inside it if the mention is an item of a
        list; "definite": taken for granted, while the scope goes on.
    """
    first = int(rule.may_be_definite)  # the first word behind it that may be the article of a thing taken for granted
    if not first and tail.startswith(_DEFINITE_BEHIND):
        return "over"
    scope = tail.lower()
    if rule.after:
        begins = _pattern(rule.after).match(scope)
        if not begins:
            return "over"
        if begins.lastgroup:  # not there yet: the mention is one of the words that it takes
            return "definite"
        scope = scope[begins.end() :]
    if scope.endswith(_DEFINITE_BEHIND) and scope.count(" ") > 2 * first and not _MARK.search(scope):
        return "over" if rule.is_phrase and not first else "definite"  # or over, as the next mention will find
    if rule.is_phrase and "ing " in scope:
        return "over"
    words = scope.split()
    tells = not _TELLING.isdisjoint(words)
    if tells and (not rule.ends.isdisjoint(words) or (not _PAIRS.isdisjoint(words) and _PAIR.search(scope))):
        return "over"
    item = None
    if _MARK.search(scope):
        step = scope.rpartition(_MENTION)[2]
        item = _LIST_ITEM.match(step, max(step.find(","), 0))
        if not item and _MARK.search(step):
            return "over"
    if tells:
        article = _article(words)
        if article >= first:  # "shade for the family and a dog": neither is a purpose
            return "over" if item or (rule.is_phrase and not first and words[article] in _GRANTED) else "definite"
    return "listed" if item and not item["last"] else "inside"


def clear_cache() -> None:
    """Empties the cache of phrases between cues and mentions, for measurements; no result depends on it."""
    for scope in _SCOPES:
        scope.states.clear()


def _article(words: Sequence[str]) -> int:
    """Position of the definite article or possessive among the words before a mention; -1 without one."""
    for k in range(len(words) - 1, max(len(words) - 6, -1), -1):
        if words[k] in _DEFINITE:
            return k
        if words[k] in _ENDS_NOUN_PHRASE:
            break
    return -1


# ---------------------------------------------------------------- cues


def _any(words: str) -> str:
    """A regular expression for each of the words."""
    return "(?:" + "|".join(words.split()) + ")"


class _Cue(NamedTuple):
    """What a cue word begins.

    Attributes:
        use: of the mentions in its scope.
        after: what must follow the word, up to where its scope begins; empty for anything.
        is_phrase: the scope is a noun phrase only: "appears to be a bakery with a man in it" guesses at the bakery.
        not_behind: words behind which it is no cue: "except for".
        then: what must follow a mention in its scope, whatever its case: "where people can sit"; empty for anything.
    """

    use: Use
    after: str
    is_phrase: bool = False
    not_behind: tuple[str, ...] = ()
    then: str = ""


def _cue(use: Use, after: str, *, is_phrase: bool = False, not_behind: str = "", then: str = "") -> _Cue:
    return _Cue(use, after, is_phrase, tuple(not_behind.split()), f"(?i){then}" if then else "")


@cache
def _pattern(expression: str) -> re.Pattern[str]:
    """Compiled when its cue is first met: all would take as long as everything else when this module is imported."""
    return re.compile(expression, re.VERBOSE)


_BE = _any("is are was were am be been being")

_NO = _cue(
    "negated",
    r"""(?!\s+(?:longer|doubt|matter|wonder|question|more\s+than|less\s+than|fewer\s+than|stranger)\b
          |[.:]\s*\d|[.,]\d|\s*[/:%°\u2013\u2014-]|\s+(?:percent|degrees?)\b)
    (?:\s+(?:(?:visible|clear|obvious|apparent)\s+)?(?:signs?|traces?|evidence|indications?|hints?|presence)\s+of\b)?""",
)
_NOT = _cue(
    "negated",
    r"""(?!\s+(?:only|just|merely|simply|solely|far|close|near|too|very|quite|so|as|fully|completely|entirely
    |directly|actively|necessarily|all|every|everyone|many|much|clear|clearly|sure|certain|known|possible|until|yet|long
    |to\s+mention|help\s+but|wait|have\s+to|need|seem|appear|hesitate)\b)""",
)
_LACK = _cue("negated", r"\s+(?:of|from)\b")
_ALWAYS = _cue("negated", "")
_NEVER = _cue("negated", r"(?!)")  # a cue that reaches back only: "the dog is missing"

_NEGATIONS = {
    "no": _NO,
    "not": _NOT,
    "t": _NOT,  # of "n't"
    "cannot": _NOT,
    "without": _cue("negated", r"(?!\s+(?:a\s+)?(?:doubt|question)\b)"),
    "zero": _cue("negated", r"(?!\s+(?:degrees?|percent|points?)\b)"),
    **dict.fromkeys(("neither", "nor", "none", "nobody", "lacks", "lacking"), _ALWAYS),
    **dict.fromkeys(("absence", "absent", "lack", "devoid", "free"), _LACK),
    "rather": _cue("negated", r"\s+than\b"),
    "instead": _cue("negated", r"\s+of\b"),
    "opposed": _cue("negated", r"\s+to\b"),
    **dict.fromkeys(("nowhere", "missing"), _NEVER),
}

_MODAL = _cue(
    "hedged",
    r"""(?=\s+(?:(?:\w+ly|also|even|well|just)\s+)*(?:be|have|been|contain|include|hold|exist|represent|indicate|belong
        |suggest|serve|come|depict|show)\b)""",
)
# something of a kind, or in, with or made of it; not "to be walking a dog"; single spaces: this one is met most
_SEEM = r"""\ to\ (?:be|have(?:\ been)?|contain|include|hold|show|depict)\ (?:(?:also|either|quite|very|mostly)\ )?
    (?:(?:wearing|holding|carrying|containing|having|featuring|depicting|showing|displaying
        |made\ of|covered\ (?:in|with|by)|filled\ with|part\ of|in|inside|on|at)\b
      |(?!\w+ing\b))"""
_LIKE = r"\ like\b"

_GUESS = _cue("hedged", "")
_HEDGES = {
    **dict.fromkeys("possibly perhaps maybe likely probably presumably".split(), _GUESS),
    **dict.fromkeys("potentially supposedly apparently".split(), _GUESS),
    **dict.fromkeys("might may could".split(), _MODAL),
    **dict.fromkeys("appear appears appeared appearing".split(), _cue("hedged", _SEEM, is_phrase=True)),
    **dict.fromkeys("seem seems seemed seeming".split(), _cue("hedged", rf"{_LIKE}|{_SEEM}", is_phrase=True)),
    **dict.fromkeys("look looks looked".split(), _cue("hedged", _LIKE)),
    **dict.fromkeys(
        "suggest suggests suggested suggesting suggestive".split(),
        _cue("hedged", r"(?!\s+(?:that\s+)?(?:they|he|she|it)\b)"),
    ),
    **dict.fromkeys("resemble resembles resembled resembling".split(), _GUESS),
}

# "a bench for two people", but not "shade for the family", "for example" and "except for a man"
_FOR = _cue(
    "purpose",
    r"(?!\s+(?:example|instance|sale)\b)(?:\s+\w+ing\b(?:\s+(?:up|down|out|in))?(?!\s+(?:an?|the)\b))?",
    is_phrase=True,
    not_behind="except save",
)
_PURPOSE = _cue("purpose", r"\s+(?:to|for|as)\b")
# "frequented by tourists", but not "used by two men"
_SOME = (
    r"(?!(?:an?|the|his|her|its|their|this|these|those|one|two|three|four|five|some|several|many|multiple|another)\b)"
)
_USERS = _cue("purpose", rf"\s+by\s+{_SOME}", is_phrase=True)
_TO_NOBODY_HERE = _cue("purpose", r"(?=\s+(?:\w+\s+)?$)")
_WHERE = _cue(
    "generic",
    r"(?=\s+(?!another\b|two\b|three\b|four\b|several\b|many\b|some\b)(?:\w+\s+)?$)",
    then=r"""\s+(?:(?:can|could)(?!\s+(?:also\s+)?be\s+seen\b)|may|might|would|must|often|usually|were|have|had|gather|come|go|meet|relax|cross|choose|eat
        |shop|live|grow|retain|wait|enjoy|are\s+(?:often|usually|typically|commonly|kept|allowed|expected|able|likely))\b
    """,
)
_WAITING = _cue("generic", r"\s+for\s+(?:(?:its|their|his|her)\s+)?", is_phrase=True)
_LETTING = _cue(
    "purpose",
    "",
    is_phrase=True,
    then=r"\s+(?:to|keep|find|get|see|reach|cross|stay|feel|navigate|enjoy|move|access)\b",
)
_OPEN = r"\s+(?:[\w\0]+\s+){0,2}"  # "common (sight on) farms": the mention may be one of the words
# not "commonly known as a frisbee", which names what is there
_OFTEN = _cue(
    "generic",
    rf"""(?!\s+(?:known|called|referred)\b)
    (?:{_OPEN}(?:in|on|at|by|with|for|as|to|during|near|of|among)\b|(?P<open>{_OPEN}$))""",
)

_CONTEXT = {
    "for": _FOR,
    **dict.fromkeys("designed intended meant suitable ideal perfect prepared".split(), _PURPOSE),
    "used": _cue("purpose", rf"\s+(?:to|for|as)\b|\s+by\s+{_SOME}", not_behind="being currently"),
    **dict.fromkeys("frequented enjoyed favored visited".split(), _USERS),
    **dict.fromkeys("cater caters catering".split(), _cue("purpose", r"\s+to\b", is_phrase=True)),
    **dict.fromkeys(("safety", "convenience"), _cue("purpose", r"\s+of\b", is_phrase=True)),
    **dict.fromkeys("warn warns alerts reminds advises attract attracts attracting".split(), _TO_NOBODY_HERE),
    **dict.fromkeys("specialize specializes specializing".split(), _cue("generic", r"\s+in\b", is_phrase=True)),
    **dict.fromkeys(
        "relationship bond connection interaction".split(),
        _cue("generic", rf"\s+between\s+{_SOME}", is_phrase=True),
    ),
    **dict.fromkeys("counted classified regarded".split(), _cue("generic", r"\s+as\b", is_phrase=True)),
    **dict.fromkeys("reference referring refers".split(), _cue("generic", r"\s+to\b", is_phrase=True)),
    "if": _cue("generic", r"\s+(?:you|any|there|it['\u2019]s|it\s+(?:is|was|were))\b"),
    **dict.fromkeys(
        "story stories tale tales article information".split(), _cue("generic", r"\s+about\b", is_phrase=True)
    ),
    "viewed": _cue("generic", rf"\s+(?:through|from|by)\s+{_SOME}", is_phrase=True),
    "perspective": _cue("generic", r"\s+(?:of|from)\b", is_phrase=True),
    "taken": _cue("generic", r"\s+(?:by|with|using|from\s+(?:inside|within))\b", is_phrase=True, not_behind="being"),
    **dict.fromkeys(("advertise", "advertises"), _cue("quoted", "", is_phrase=True)),
    "menu": _cue("quoted", r"\s+(?:board\s+)?(?:list|include|feature|offer|display)(?:s|ing)?\b"),
    **dict.fromkeys(("waiting", "searching"), _WAITING),
    **dict.fromkeys(
        (
            "help helps helping allow allows allowing enable enables enabling invite invites inviting encourages"
            " encouraging"
        ).split(),
        _LETTING,
    ),
    **dict.fromkeys(("where", "when"), _WHERE),
    **dict.fromkeys("typically commonly usually often frequently".split(), _OFTEN),
    **dict.fromkeys(("generally", "known", "must", "should"), _cue("generic", "(?!)")),
    **dict.fromkeys(
        "common popular iconic".split(),
        _cue("generic", rf"{_OPEN}(?:of|in|for|on|to|at|among|with)\b|(?P<open>{_OPEN}$)"),
    ),
    **dict.fromkeys("typical characteristic indicative".split(), _cue("generic", r"\s+(?:of|for|in)\b")),
    "associated": _cue("generic", r"\s+with\b"),
    "shaped": _cue("comparison", r"\s+(?:like|as)\b", is_phrase=True),
    "similar": _cue("comparison", r"\s+to\b", is_phrase=True),
    **dict.fromkeys("size shape reminiscent".split(), _cue("comparison", r"\s+of\b", is_phrase=True)),
    "than": _cue(
        "comparison",
        r"(?=\s+(?:an?\s+(?!few|dozen|hundred)|most\s+|typical\s+|average\s+|regular\s+|fresh\s+|$))",
        is_phrase=True,
        not_behind="more less fewer other rather",
    ),
    "inspired": _cue("comparison", r"\s+by\b", is_phrase=True),
    **dict.fromkeys("mimic mimics mimicking mimicked imitating".split(), _cue("comparison", "", is_phrase=True)),
}

_CUES = {**_NEGATIONS, **_HEDGES, **_CONTEXT}
_ROW = {word: row for row, word in enumerate(_CUES)}
_T = _ROW["t"]  # "n't" is watched as its "t"
_SPECIAL = len(_CUES)  # in place of a cue: the first word of a special alias
_NEGATED, _QUOTED, _MODIFIES, _GENERIC, _COMPARED = map(
    USES.index, ("negated", "quoted", "modifier", "generic", "comparison")
)
_DENIES_OR_GUESSES = ("negated", "hedged")
_BEGINS_BEFORE = np.array([*(2 * (word == "t") for word in _CUES), 0])
_OF_A_KIND = "typically commonly usually often frequently generally known must should".split()
_BACK = {"not", "t", "cannot", "nowhere", "absent", "missing", *_OF_A_KIND}
_REACHES_BACK = np.array([*(word in _BACK for word in _CUES), False])

_MARKS = (('"', '"'), ("\u201c", "\u201d"))

_DENIAL = re.compile(
    rf"""(?:['’]s)?\s+(?:(?:themselves|itself|himself|herself|at\s+all|clearly|also|currently|actually)\s+)?
    (?:
      (?:{_BE}\s+(?:not|nowhere)|(?:is|are|was|were)n['’]t|can(?:not|['’]t|\s+not)\s+be)\s+
        (?:\w+ly\s+|even\s+|actually\s+)?
        (?:visible|discernible|distinguishable|present|seen|shown|depicted|pictured|there|found
          |in\s+(?:the|this)\s+(?:image|picture|photo|photograph|scene|frame))\b
      | {_BE}\s+(?:\w+ly\s+)?(?:absent|missing)\b
    )""",
    re.IGNORECASE | re.VERBOSE,
)

_IN_GENERAL = re.compile(r"\s+(?:are\s+)?(?:typically|commonly|usually|often|frequently|generally|known|must|should)\b")
_BARE = re.compile(r"(?:[.!?:;\n*]\s*|\b(?:that|as|how|because|since|when|where|like)\s+)$", re.IGNORECASE)


# ---------------------------------------------------------------- scopes

_N_T = ("n't", "n\u2019t")
# what ends a scope, or, if it is a comma, does so unless a list goes on behind it; full stops are known by then
_MARK = re.compile(r"[,;:!?)\]\n]")
_ENDS = frozenset(
    "but however although though while whereas except besides yet because since which who whom whose where when if"
    " whether unless until only instead making giving creating leaving allowing adding - – —".split()
)
_PHRASE_ENDS = _ENDS | frozenset("with that in on at near next from behind".split())  # and any word in -ing
_PAIRS = frozenset("and so as other apart aside rather".split())
_PAIR = re.compile(
    r"""\b(?:and\ (?:a|an|the|one|two|three|some|several|many|there|it|he|she|they|this|that|these|those|his|her|its
        |their|is|are|was|were|am|be|been|being|has|have|had|does|do|can|appears?|seems?|another|with|also|possibly
        |likely|perhaps)
      | so\ that | as\ (?:it|they|he|she|the|well) | (?:other|rather)\ than | (?:apart|aside)\ from)\b""",
    re.VERBOSE,
)

# a comma and the next item of a list: "or", "nor", an article, two adjectives
_LIST_ITEM = re.compile(r",\s*(?:(?P<last>or|nor|and/or)\s+)?(?:(?:a|an|any|even|other|no)\s+)*(?:[\w'’-]+\s+){0,2}$")
_LIST_GOES_ON = re.compile(
    r"(?:['’]s)?(?:\s+[\w'’-]+){0,1}\s*(?:,|\b(?:or|nor)\b|[.;:!?)\n]|$)|\s+(?:visible|present|in\s+sight|nearby)\b",
    re.IGNORECASE,
)

_DEFINITE = frozenset("the this that these those his her hers its their my your our both each every".split())
_GRANTED = frozenset("the his her its their this these those".split())
_DEFINITE_BEHIND = tuple(f" {word} " for word in sorted(_GRANTED))
_TELLING = _PHRASE_ENDS | _PAIRS | _DEFINITE
_ENDS_NOUN_PHRASE = frozenset(
    "of in on at with and or nor a an any no to by near for from like as than into onto over under is are be was were"
    " being that where which".split()
)

_REMEMBERED = 1 << 12  # states of one kind of cue


class _Rule(NamedTuple):
    """A cue word as the loop over scopes wants it.

    Attributes:
        use: place in USES.
        reach: characters behind the word within which a mention in its scope begins.
        states: what the cue has met, shared by its words.
        may_be_definite: "possibly checking his phone": what is taken for granted may stand behind the first word.
        ends: words that end the scope.
        after, is_phrase, not_behind, then: of the cue.
        length: of the word.
    """

    use: int
    reach: int
    states: dict[str, _State]
    may_be_definite: bool
    after: str
    ends: frozenset[str]
    is_phrase: bool
    not_behind: tuple[str, ...]
    then: str
    length: int


def _rules() -> Iterator[_Rule]:
    states: dict[_Cue, dict[str, _State]] = {}
    for word, cue in _CUES.items():
        may_be_definite = cue.use in _DENIES_OR_GUESSES
        yield _Rule(
            USES.index(cue.use),
            PHRASE_REACH if cue.is_phrase else REACH,
            states.setdefault(cue, {}),
            may_be_definite,
            cue.after,
            _PHRASE_ENDS if cue.is_phrase else _ENDS,
            cue.is_phrase,
            cue.not_behind,
            cue.then,
            len(word),
        )


_SCOPES = list(_rules())
_REACHES = np.array([*(rule.reach for rule in _SCOPES), -1])
