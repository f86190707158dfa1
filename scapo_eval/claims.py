"""Which mentions are claims: what a caption negates ("there are no people") or only guesses at ("possibly a phone").

The paper counts every mention. A reading of the claims leaves some out:

- ``all``: nothing (the paper).
- ``asserted``: mentions under a negation: no, not, n't, without, neither ... nor, none, nobody, lack(s) of, absence of,
  devoid of, free of, rather than, instead of, "X is not visible".
- ``certain``: these and mentions under a hedge: possibly, perhaps, maybe, likely, probably, might, may, could, appears
  to be a, seems to be a, looks like, suggests, resembles.

A cue reaches forward to the end of its clause: a full stop, a semicolon, a line end, a dash, a bracket, ``but``,
``except``, ``while``, ``which``..., or a comma, unless a list goes on behind it ("no cars, buses, or trucks"). Things
that are taken for granted stay claims: "no people on THE bench", "possibly checking HIS phone". "Not only", "no
longer", "nothing but", "no doubt" and the like are not negations.

Rules only: no model, no data, always the same answer. The matcher reports cue words from the pass in which it finds the
mentions (``AliasMatcher(vocabulary, watch=cue_words(claims))``), and only the text behind one is read.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Literal, NamedTuple, Protocol, get_args

import numpy as np
from numpy.typing import NDArray

from .columns import MentionColumns
from .errors import check_choice
from .matcher import AliasMatcher
from .vocabulary import Vocabulary

Claims = Literal["all", "asserted", "certain"]
"""Which mentions count."""

CLAIMS: tuple[Claims, ...] = get_args(Claims)

REACH = 70
"""Characters behind a cue word within which a mention in its scope begins."""

PHRASE_REACH = 40
"""The same where the scope is a noun phrase."""

Ints = NDArray[Any]  # of some integer type

_DENIAL_REACH = 40  # characters from a mention within which "is not visible" is looked for


class Span(Protocol):
    """Anything with a character span: a Mention, a gold annotation."""

    @property
    def start(self) -> int:
        """Index of the first character."""

    @property
    def end(self) -> int:
        """Index after the last character."""


def cue_words(claims: Claims) -> tuple[str, ...]:
    """The words that may be a cue of the reading, for a matcher to watch.

    Raises:
        InputError: an unknown reading.
    """
    check_choice("claims", claims, CLAIMS)
    return {"all": (), "asserted": tuple(_NEGATIONS), "certain": (*_NEGATIONS, *_HEDGES)}[claims]


def find_claims(matcher: AliasMatcher, texts: Sequence[str]) -> MentionColumns:
    """The mentions of many captions that are claims.

    Args:
        matcher: watches the ``cue_words`` of a reading.
        texts: the captions.
    """
    mentions, cues = matcher.find_watched(texts)
    return mentions.only(claim_mask_batch(texts, mentions, cues)) if matcher.watch else mentions


def claim_mask(text: str, mentions: Sequence[Span], claims: Claims) -> NDArray[np.bool_]:
    """Which mentions of one caption are claims.

    Args:
        text: the caption.
        mentions: spans in it, in the order of the text.
        claims: the reading.

    Returns:
        (mentions,) bool, False for what the reading leaves out.

    Raises:
        InputError: an unknown reading.
    """
    start = np.array([mention.start for mention in mentions], dtype=np.int32)
    end = np.array([mention.end for mention in mentions], dtype=np.int32)
    indptr = np.array([0, len(start)], dtype=np.int64)
    cues = _cue_finder(claims).find_watched([text])[1]
    return claim_mask_batch([text], MentionColumns(indptr, start, end, np.zeros_like(start)), cues)


@lru_cache(maxsize=len(CLAIMS))
def _cue_finder(claims: Claims) -> AliasMatcher:
    return AliasMatcher(Vocabulary.from_mapping({}, name="no labels"), cue_words(claims))


def claim_mask_batch(texts: Sequence[str], mentions: MentionColumns, cues: MentionColumns) -> NDArray[np.bool_]:
    """As :func:`claim_mask` for the mentions of many captions.

    Args:
        texts: the captions.
        mentions: spans in them.
        cues: the words of ``cue_words`` in them; both from ``AliasMatcher.find_watched``.

    Returns:
        (mentions,) bool over the rows of the mentions.
    """
    mask = np.ones(len(mentions.start), dtype=bool)
    if not len(cues.start) or not len(mask):
        return mask
    caption = cues.caption
    start = np.maximum(cues.start - 2 * (cues.label_id == _POSITION_OF_T), 0)  # "n't" is watched as its "t"
    following = np.searchsorted(mentions.caption << 32 | mentions.start, caption << 32 | start)
    mask[_denied_before(texts, mentions, cues, start, following)] = False
    mask[_in_scope(texts, mentions, cues, start, following)] = False
    return mask


def _denied_before(
    texts: Sequence[str], mentions: MentionColumns, cues: MentionColumns, start: Ints, following: Ints
) -> list[int]:
    """The mentions right before a cue that denies them: "the dog is not visible"."""
    caption, before = cues.caption, np.maximum(following - 1, 0)
    end = mentions.end[before]
    near = (start - end < _DENIAL_REACH) & _REACHES_BACK[cues.label_id] & (following > mentions.indptr[caption])
    found = []
    for k, position, row, last in zip(
        *(column[near].tolist() for column in (caption, start, before, end)), strict=True
    ):
        denial = _DENIAL.match(texts[k], last)
        if denial and denial.end() > position:
            found.append(row)
    return found


def _in_scope(
    texts: Sequence[str], mentions: MentionColumns, cues: MentionColumns, start: Ints, following: Ints
) -> list[int]:
    """The mentions in the scope of a cue before them."""
    caption = cues.caption
    stop = mentions.indptr[caption + 1]
    near = (following < stop) & (np.append(mentions.start, 0)[following] - cues.end <= _REACHES[cues.label_id])
    columns = (caption, start, cues.end, following, stop)
    starts, ends = mentions.start.data, mentions.end.data  # a memoryview gives plain integers, without a list of all
    found: list[int] = []
    for k, first, word_end, row, last in zip(*(column[near].tolist() for column in columns), strict=True):
        text = texts[k]
        step = window = text[first : starts[row]]
        while "." not in step:
            state = _scope_state(window)
            if state == "over" or (state == "listed" and not _LIST_GOES_ON.match(text, ends[row])):
                break
            if state != "definite":
                found.append(row)
            row += 1
            if row == last or starts[row] - word_end > REACH:
                break
            step = text[ends[row - 1] : starts[row]]
            window += _MENTION + step
    return found


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
    if word not in _CUES:  # "possibly:", "**no**"
        cue_word = _CUE_WORD.match(window)
        word = cue_word[0] if cue_word else ""
        if word not in _CUES:
            return "over"
    after, is_phrase = _CUES[word]
    begins = after.match(window, len(word))
    if not begins:
        return "over"
    scope = window[begins.end() :]
    item = None
    if _MARK.search(scope):
        step = scope.rpartition(_MENTION)[2]
        item = _LIST_ITEM.match(step, max(step.find(","), 0))
        if not item and _MARK.search(step):
            return "over"
    words = scope.split()
    if not (_PHRASE_ENDS if is_phrase else _ENDS).isdisjoint(words) or (is_phrase and "ing " in scope):
        return "over"
    if not _PAIRS.isdisjoint(words) and _PAIR.search(scope):
        return "over"
    if not _DEFINITE.isdisjoint(words) and _article(words) > 0:
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
        after: what must follow the word, up to where its scope begins.
        is_phrase: the scope is a noun phrase only: "appears to be a bakery with a man in it" guesses at the bakery.
    """

    after: re.Pattern[str]
    is_phrase: bool


def _cue(after: str, *, is_phrase: bool = False) -> _Cue:
    return _Cue(re.compile(after, re.VERBOSE), is_phrase)


_BE = _any("is are was were am be been being")

_NO = _cue(
    r"""(?!\s+(?:longer|doubt|matter|wonder|question|more\s+than|less\s+than|fewer\s+than|stranger)\b
          |[.:]\s*\d|[.,]\d|\s*[/:%°-]|\s+(?:percent|degrees?)\b)
    (?:\s+(?:(?:visible|clear|obvious|apparent)\s+)?(?:signs?|traces?|evidence|indications?|hints?|presence)\s+of\b)?"""
)
_NOT_CLAIMED = r"""(?!\s+(?:only|just|merely|simply|solely|far|close|near|too|very|quite|so|as|fully|completely|entirely
    |directly|actively|necessarily|all|every|everyone|many|much|clear|clearly|sure|certain|known|possible|until|yet|long
    |to\s+mention|help\s+but|wait|have\s+to|need|seem|appear|hesitate)\b)"""
_LACK = _cue(r"\s+(?:of|from)\b")
_ALWAYS = _cue("")
_NEVER = _cue(r"(?!)")  # a cue that reaches back only: "the dog is missing"

_NEGATIONS = {
    "no": _NO,
    "not": _cue(_NOT_CLAIMED),
    "t": _NEVER,  # but "n't" is "not"
    "cannot": _cue(_NOT_CLAIMED),
    "without": _cue(r"(?!\s+(?:a\s+)?(?:doubt|question)\b)"),
    **dict.fromkeys(("neither", "nor", "none", "nobody", "lacks", "lacking"), _ALWAYS),
    **dict.fromkeys(("absence", "absent", "lack", "devoid", "free"), _LACK),
    "rather": _cue(r"\s+than\b"),
    "instead": _cue(r"\s+of\b"),
    "opposed": _cue(r"\s+to\b"),
    **dict.fromkeys(("nowhere", "missing"), _NEVER),
}

_MODAL = _cue(
    r"""(?=\s+(?:(?:\w+ly|also|even|well|just)\s+)*(?:be|have|been|contain|include|hold|exist|represent|indicate|belong
        |suggest|serve|come|depict|show)\b)"""
)
# something of a kind, or in, with or made of it; not "to be walking a dog"; single spaces: this one is met most
_SEEM = r"""\ to\ (?:be|have(?:\ been)?|contain|include|hold|show|depict)\ (?:(?:also|either|quite|very|mostly)\ )?
    (?:(?:wearing|holding|carrying|containing|having|featuring|depicting|showing|displaying
        |made\ of|covered\ (?:in|with|by)|filled\ with|part\ of|in|inside|on|at)\b
      |(?!\w+ing\b))"""
_LIKE = r"\ like\b"

_HEDGES = {
    **dict.fromkeys("possibly perhaps maybe likely probably presumably".split(), _ALWAYS),
    **dict.fromkeys("potentially supposedly apparently".split(), _ALWAYS),
    **dict.fromkeys("might may could".split(), _MODAL),
    **dict.fromkeys("appear appears appeared appearing".split(), _cue(_SEEM, is_phrase=True)),
    **dict.fromkeys("seem seems seemed seeming".split(), _cue(rf"{_LIKE}|{_SEEM}", is_phrase=True)),
    **dict.fromkeys("look looks looked".split(), _cue(_LIKE)),
    **dict.fromkeys(
        "suggest suggests suggested suggesting suggestive".split(),
        _cue(r"(?!\s+(?:that\s+)?(?:they|he|she|it)\b)"),
    ),
    **dict.fromkeys("resemble resembles resembled resembling".split(), _ALWAYS),
}

_CUES = {**_NEGATIONS, "n't": _NEGATIONS["not"], "n’t": _NEGATIONS["not"], **_HEDGES}
# by position in the cue words; those of a negation come first in every reading
_POSITION_OF_T = list(_NEGATIONS).index("t")
_REACHES = np.array([PHRASE_REACH if cue.is_phrase else REACH for cue in (*_NEGATIONS.values(), *_HEDGES.values())])
_REACHES_BACK = np.array(
    [word in {"not", "t", "cannot", "nowhere", "absent", "missing"} for word in (*_NEGATIONS, *_HEDGES)]
)

_DENIAL = re.compile(
    rf"""(?:['’]s)?\s+(?:(?:themselves|itself|himself|herself|at\s+all|clearly|also|currently|actually)\s+)?
    (?:
      (?:{_BE}\s+(?:not|nowhere)|(?:is|are|was|were)n['’]t|can(?:not|['’]t|\s+not)\s+be)\s+
        (?:\w+ly\s+|even\s+|actually\s+)?
        (?:visible|present|seen|shown|depicted|pictured|there|found|in\s+(?:the|this)\s+(?:image|picture|photo|photograph|scene|frame))\b
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
