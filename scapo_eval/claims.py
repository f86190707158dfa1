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
from bisect import bisect
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray

from .columns import MentionColumns
from .context import colors, may_modify, noun_behind
from .text import fold
from .types import Use
from .vocabulary import Vocabulary

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

Ints = NDArray[Any]  # of some integer type

QUOTE_REACH = 80
"""Characters between two quotation marks; more than that is no sign."""

_DENIAL_REACH = 40  # characters from a mention within which "is not visible" is looked for


@lru_cache
def cue_words(uses: tuple[Use, ...]) -> tuple[str, ...]:
    """The words that may be a cue of some uses, for a matcher to watch."""
    return tuple(word for word, cue in _CUES.items() if cue.use in uses)


@dataclass(frozen=True, slots=True)
class SpecialWords:
    """Aliases of a vocabulary that only its context makes a claim.

    Attributes:
        colors: label id -> folded aliases that color what follows them.
        kin: label id -> folded aliases that mean an animal where nobody else is named.
        kin_of: ids of the labels of these animals.
    """

    colors: Mapping[int, frozenset[str]]
    kin: Mapping[int, frozenset[str]]
    kin_of: frozenset[int]

    @classmethod
    def of(cls, vocabulary: Vocabulary) -> SpecialWords:
        """Those that a vocabulary lists."""

        def by_label(aliases: Sequence[str]) -> dict[int, frozenset[str]]:
            owned: dict[int, set[str]] = {}
            for alias in aliases:
                owned.setdefault(vocabulary.label_ids[vocabulary.aliases[alias]], set()).add(fold(alias))
            return {label: frozenset(words) for label, words in owned.items()}

        kin_of = frozenset(vocabulary.label_ids[label] for label in vocabulary.kin_of)
        return cls(by_label(vocabulary.heads), by_label(vocabulary.kin), kin_of)


def find_uses(
    texts: Sequence[str],
    mentions: MentionColumns,
    cues: MentionColumns,
    look: NDArray[np.bool_],
    uses: tuple[Use, ...],
    words: SpecialWords | None = None,
) -> NDArray[np.uint8]:
    """What captions do with their mentions, as far as some uses are asked for.

    Args:
        texts: the captions.
        mentions: of them.
        cues: the ``cue_words`` of the uses in them.
        look: (mentions,) bool, False where no noun stands behind a mention and it is not written in capitals.
        uses: those that are looked for.
        words: of the vocabulary.

    Returns:
        (mentions,) positions in USES; 0, a claim, for what is none of the uses.
    """
    found = bytearray(len(mentions.start))  # plain integers: single places are written
    if not found or not uses:
        return np.frombuffer(found, dtype=np.uint8)
    if "quoted" in uses:
        for row in _in_quotes(texts, mentions):
            found[row] = _QUOTED
    if "modifier" in uses:
        for row, use in _by_form(texts, mentions, np.flatnonzero(look)):
            if use > found[row]:
                found[row] = use
        for row in _by_words(texts, mentions, words) if words else ():
            found[row] = max(found[row], _MODIFIES)
    if len(cues.start):
        cue = np.array([_ROW[word] for word in cue_words(uses)], dtype=np.int64)[cues.label_id]
        start = np.maximum(cues.start - 2 * (cue == _ROW["t"]), 0)  # "n't" is watched as its "t"
        caption = cues.caption
        following = np.searchsorted(mentions.caption << 32 | mentions.start, caption << 32 | start)
        for row, use in _in_scope(texts, mentions, cues, caption, cue, start, following):
            if use > found[row]:
                found[row] = use
        if "negated" in uses:
            for row in _denied_before(texts, mentions, cue, caption, start, following):
                found[row] = _NEGATED
    return np.frombuffer(found, dtype=np.uint8)


@lru_cache
def left_out_codes(claims: Claims) -> NDArray[np.bool_]:
    """(uses,) bool, what a reading leaves out, by position in USES."""
    return np.array([use in LEFT_OUT[claims] for use in USES])


def _in_quotes(texts: Sequence[str], mentions: MentionColumns) -> Iterator[int]:
    """The mentions between quotation marks of a line, at most QUOTE_REACH characters apart."""
    for k in [k for k, text in enumerate(texts) if '"' in text or "\u201c" in text]:
        text = texts[k]
        for opening, closing in _MARKS:
            first, last = int(mentions.indptr[k]), int(mentions.indptr[k + 1])
            starts = mentions.start[first:last].tolist()
            begin = text.find(opening)
            while begin >= 0 and starts and begin < starts[-1]:
                end = text.find(closing, begin + 1, begin + QUOTE_REACH + 2)
                if end > begin + 1 and "\n" not in text[begin:end]:
                    yield from range(first + bisect(starts, begin), first + bisect(starts, end))
                    begin = text.find(opening, end + 1)
                else:
                    begin = text.find(opening, begin + 1)


def _by_form(texts: Sequence[str], mentions: MentionColumns, rows: Ints) -> Iterator[tuple[int, int]]:
    """Of some mentions, what their form and the word behind them say: capitals, a noun that they modify.

    In a list without commas nothing modifies.
    """
    rows = rows[~_listed(mentions)[rows]]
    columns = (rows, _caption_of(rows, mentions), mentions.start[rows], mentions.end[rows])
    for row, k, start, end in zip(*(column.tolist() for column in columns), strict=True):
        text = texts[k]
        surface = text[start:end]
        if end - start > 3 and surface[1].isupper() and surface.isupper():
            yield row, _QUOTED
        elif may_modify(surface):
            noun = noun_behind(text, end)
            if noun:
                yield row, _COMPARED if noun == "like" else _MODIFIES


def _listed(mentions: MentionColumns) -> NDArray[np.bool_]:
    """(mentions,) whether mentions make a list without commas: three side by side, or two that begin a text."""
    beside = np.zeros(len(mentions.start) + 1, dtype=bool)  # at k: mention k is right behind mention k - 1
    beside[1:-1] = mentions.start[1:] == mentions.end[:-1] + 1
    beside[mentions.indptr] = False
    triple = np.append(beside[:-1] & beside[1:], False)  # at k: both neighbors of mention k
    listed: NDArray[np.bool_] = triple[:-1] | np.append(triple[1:-1], False) | np.append(False, triple[:-2])
    listed |= (mentions.start == 0) & beside[1:]
    return listed


def _by_words(texts: Sequence[str], mentions: MentionColumns, words: SpecialWords) -> Iterator[int]:
    """The mentions by special words that are no claim: colors, and kin of animals."""
    for label, aliases in words.colors.items():
        for row, k, surface, end in _surfaces(np.flatnonzero(mentions.label_id == label), texts, mentions):
            if surface in aliases and colors(texts[k], end):
                yield row
    herds = np.zeros(len(mentions), dtype=bool)  # captions that name one of the animals
    for label in words.kin_of if words.kin else ():
        herds[_caption_of(np.flatnonzero(mentions.label_id == label), mentions)] = True
    for label, aliases in words.kin.items() if herds.any() else ():
        rows = np.flatnonzero(mentions.label_id == label)
        rows = rows[herds[_caption_of(rows, mentions)]]
        found = list(_surfaces(rows, texts, mentions))
        people = {k for _, k, surface, _ in found if surface not in aliases}
        yield from (row for row, k, surface, _ in found if surface in aliases and k not in people)


def _caption_of(rows: Ints, mentions: MentionColumns) -> Ints:
    """(rows,) index of the caption of each."""
    return np.searchsorted(mentions.indptr, rows, side="right") - 1


def _surfaces(rows: Ints, texts: Sequence[str], mentions: MentionColumns) -> Iterator[tuple[int, int, str, int]]:
    """Row, caption, folded surface and end of some mentions."""
    columns = (rows, _caption_of(rows, mentions), mentions.start[rows], mentions.end[rows])
    for row, k, start, end in zip(*(column.tolist() for column in columns), strict=True):
        yield row, k, fold(texts[k][start:end]), end


def _denied_before(
    texts: Sequence[str], mentions: MentionColumns, cue: Ints, caption: Ints, start: Ints, following: Ints
) -> list[int]:
    """The mentions right before a cue that denies them: "the dog is not visible"."""
    before = np.maximum(following - 1, 0)
    end = mentions.end[before]
    near = (start - end < _DENIAL_REACH) & _REACHES_BACK[cue] & (following > mentions.indptr[caption])
    found = []
    for k, position, row, last in zip(
        *(column[near].tolist() for column in (caption, start, before, end)), strict=True
    ):
        denial = _DENIAL.match(texts[k], last)
        if denial and denial.end() > position:
            found.append(row)
    return found


def _in_scope(
    texts: Sequence[str],
    mentions: MentionColumns,
    cues: MentionColumns,
    caption: Ints,
    cue: Ints,
    start: Ints,
    following: Ints,
) -> Iterator[tuple[int, int]]:
    """The mentions in the scope of a cue before them, and what the cue makes of them."""
    stop = mentions.indptr[caption + 1]
    near = (following < stop) & (np.append(mentions.start, 0)[following] - cues.end <= _REACHES[cue])
    columns = (caption, start, cues.end, following, stop, cue)
    starts, ends = mentions.start.data, mentions.end.data  # a memoryview gives plain integers, without a list of all
    for k, first, word_end, row, last, which in zip(*(column[near].tolist() for column in columns), strict=True):
        text = texts[k]
        use, reach, not_behind, then = _SCOPES[which]
        if use not in _DENIES_OR_GUESSES and text.startswith(_DEFINITE_BEHIND, word_end):
            continue
        if not_behind and text[max(0, first - 8) : first].rstrip().endswith(not_behind):
            continue
        step = window = text[first : starts[row]]
        while "." not in step:
            state = _scope_state(window)
            if state == "over" or (state == "listed" and not _LIST_GOES_ON.match(text, ends[row])):
                break
            if state != "definite" and (then is None or then.match(text, ends[row])):
                yield row, use
            row += 1
            if row == last or starts[row] - word_end > reach:
                break
            step = text[ends[row - 1] : starts[row]]
            window += _MENTION + step


_MENTION = "\0"  # in place of each mention in a window
_State = Literal["over", "inside", "listed", "definite"]


@lru_cache(maxsize=1 << 14)  # the same phrases recur between cues and mentions
def _scope_state(window: str) -> _State:
    """Whether a mention is in the scope of a cue, from the text between the beginning of a cue and the mention.

    Returns:
        "over": the scope has ended, or never began; "inside" it; "listed": inside it if the mention is an item of a
        list; "definite": taken for granted, while the scope goes on.
    """
    window = window.lower()
    word = window.partition(" ")[0]
    if word not in _BEGINS:  # "possibly:", "**no**"
        cue_word = _CUE_WORD.match(window)
        word = cue_word[0] if cue_word else ""
        if word not in _BEGINS:
            return "over"
    cue = _BEGINS[word]
    begin = len(word)
    if cue.after is not None:
        begins = cue.after.match(window, begin)
        if not begins:
            return "over"
        begin = begins.end()
    scope = window[begin:]
    item = None
    if _MARK.search(scope):
        step = scope.rpartition(_MENTION)[2]
        item = _LIST_ITEM.match(step, max(step.find(","), 0))
        if not item and _MARK.search(step):
            return "over"
    words = scope.split()
    if not (_PHRASE_ENDS if cue.is_phrase else _ENDS).isdisjoint(words) or (cue.is_phrase and "ing " in scope):
        return "over"
    if not _PAIRS.isdisjoint(words) and _PAIR.search(scope):
        return "over"
    if not _DEFINITE.isdisjoint(words) and _article(words) >= (1 if cue.use in ("negated", "hedged") else 0):
        return "over" if item else "definite"
    return "listed" if item and not item["last"] else "inside"


def clear_cache() -> None:
    """Empties the cache of phrases between cues and mentions, for measurements; no result depends on it."""
    _scope_state.cache_clear()


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
        after: what must follow the word, up to where its scope begins; None for anything.
        is_phrase: the scope is a noun phrase only: "appears to be a bakery with a man in it" guesses at the bakery.
        not_behind: words behind which it is no cue: "except for".
        then: what must follow a mention in its scope, if anything: "where people can sit".
    """

    use: Use
    after: re.Pattern[str] | None
    is_phrase: bool = False
    not_behind: tuple[str, ...] = ()
    then: re.Pattern[str] | None = None


def _cue(use: Use, after: str, *, is_phrase: bool = False, not_behind: str = "", then: str = "") -> _Cue:
    then_pattern = re.compile(then, re.VERBOSE | re.IGNORECASE) if then else None
    return _Cue(
        use, re.compile(after, re.VERBOSE) if after else None, is_phrase, tuple(not_behind.split()), then_pattern
    )


_BE = _any("is are was were am be been being")

_NO = _cue(
    "negated",
    r"""(?!\s+(?:longer|doubt|matter|wonder|question|more\s+than|less\s+than|fewer\s+than|stranger)\b
          |[.:]\s*\d|[.,]\d|\s*[/:%°\u2013\u2014-]|\s+(?:percent|degrees?)\b)
    (?:\s+(?:(?:visible|clear|obvious|apparent)\s+)?(?:signs?|traces?|evidence|indications?|hints?|presence)\s+of\b)?""",
)
_NOT_CLAIMED = r"""(?!\s+(?:only|just|merely|simply|solely|far|close|near|too|very|quite|so|as|fully|completely|entirely
    |directly|actively|necessarily|all|every|everyone|many|much|clear|clearly|sure|certain|known|possible|until|yet|long
    |to\s+mention|help\s+but|wait|have\s+to|need|seem|appear|hesitate)\b)"""
_LACK = _cue("negated", r"\s+(?:of|from)\b")
_ALWAYS = _cue("negated", "")
_NEVER = _cue("negated", r"(?!)")  # a cue that reaches back only: "the dog is missing"

_NEGATIONS = {
    "no": _NO,
    "not": _cue("negated", _NOT_CLAIMED),
    "t": _NEVER,  # but "n't" is "not"
    "cannot": _cue("negated", _NOT_CLAIMED),
    "without": _cue("negated", r"(?!\s+(?:a\s+)?(?:doubt|question)\b)"),
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
_FOR = _cue("purpose", r"(?!\s+(?:example|instance|sale)\b)", is_phrase=True, not_behind="except save")
_PURPOSE = _cue("purpose", r"\s+(?:to|for|as)\b")
_WHERE = _cue(
    "generic",
    r"(?=\s+(?!two\b|three\b|four\b|several\b|many\b|some\b)(?:\w+\s+)?$)",
    then=r"""\s+(?:can|could|may|might|would|must|often|usually|were|have|had|gather|come|go|meet|relax|cross|choose|eat
        |shop|live|grow|retain|wait|enjoy)\b""",
)
_WAITING = _cue("generic", r"\s+for\s+(?:(?:its|their|his|her)\s+)?", is_phrase=True)
_LETTING = _cue(
    "purpose",
    "",
    is_phrase=True,
    then=r"\s+(?:to|keep|find|get|see|reach|cross|stay|feel|navigate|enjoy|move|access)\b",
)
_OFTEN = _cue("generic", r"\s+(?:\w+\s+){0,2}(?:in|on|at|by|with|for|as|to|during|near|of|among)\b")

_CONTEXT = {
    "for": _FOR,
    **dict.fromkeys("designed used intended meant suitable ideal perfect prepared".split(), _PURPOSE),
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
    **dict.fromkeys(
        "common popular iconic".split(), _cue("generic", r"\s+(?:\w+\s+){0,2}(?:of|in|for|on|to|at|among|with)\b")
    ),
    **dict.fromkeys("typical characteristic indicative".split(), _cue("generic", r"\s+(?:of|for|in)\b")),
    "associated": _cue("generic", r"\s+with\b"),
    "shaped": _cue("comparison", r"\s+(?:like|as)\b", is_phrase=True),
    "similar": _cue("comparison", r"\s+to\b", is_phrase=True),
    **dict.fromkeys("size shape reminiscent".split(), _cue("comparison", r"\s+of\b", is_phrase=True)),
    "inspired": _cue("comparison", r"\s+by\b", is_phrase=True),
    **dict.fromkeys("mimic mimics mimicking mimicked imitating".split(), _cue("comparison", "", is_phrase=True)),
}

_CUES = {**_NEGATIONS, **_HEDGES, **_CONTEXT}
_BEGINS = {**_CUES, "n't": _NEGATIONS["not"], "n\u2019t": _NEGATIONS["not"]}
_ROW = {word: row for row, word in enumerate(_CUES)}
_NEGATED, _QUOTED, _MODIFIES, _COMPARED = map(USES.index, ("negated", "quoted", "modifier", "comparison"))
_DENIES_OR_GUESSES = (USES.index("negated"), USES.index("hedged"))
_SCOPES = [
    (USES.index(cue.use), PHRASE_REACH if cue.is_phrase else REACH, cue.not_behind, cue.then) for cue in _CUES.values()
]
_REACHES = np.array([reach for _, reach, _, _ in _SCOPES])
_REACHES_BACK = np.array([word in {"not", "t", "cannot", "nowhere", "absent", "missing"} for word in _CUES])

_MARKS = (('"', '"'), ("\u201c", "\u201d"))
_DEFINITE_BEHIND = tuple(f" {word} " for word in "the his her its their this these those".split())

_DENIAL = re.compile(
    rf"""(?:['’]s)?\s+(?:(?:themselves|itself|himself|herself|at\s+all|clearly|also|currently|actually)\s+)?
    (?:
      (?:{_BE}\s+(?:not|nowhere)|(?:is|are|was|were)n['’]t|can(?:not|['’]t|\s+not)\s+be)\s+
        (?:\w+ly\s+|even\s+|actually\s+)?
        (?:visible|present|seen|shown|depicted|pictured|there|found
          |in\s+(?:the|this)\s+(?:image|picture|photo|photograph|scene|frame))\b
      | {_BE}\s+(?:\w+ly\s+)?(?:absent|missing)\b
    )""",
    re.IGNORECASE | re.VERBOSE,
)


# ---------------------------------------------------------------- scopes

_CUE_WORD = re.compile(r"n['’]t(?!\w)|\w+")
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
_ENDS_NOUN_PHRASE = frozenset(
    "of in on at with and or nor a an any no to by near for from like as than into onto over under is are be was were"
    " being that where which".split()
)
