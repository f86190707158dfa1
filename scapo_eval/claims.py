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
longer", "nothing but", "no doubt" and the like are no negations.

Rules only: no model, no data, always the same answer. The matcher reports cue words from the pass in which it finds the
mentions (``AliasMatcher(vocabulary, watch=cue_words(claims))``), and only what stands behind one is read.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Literal, Protocol, get_args

import numpy as np
from numpy.typing import NDArray

from .errors import InputError
from .matcher import AliasMatcher, MentionColumns
from .vocabulary import Vocabulary

Claims = Literal["all", "asserted", "certain"]
"""Which mentions count."""

CLAIMS: tuple[Claims, ...] = get_args(Claims)

REACH = 15
"""Words behind its cue that a scope spans at most."""

_FAR = 160  # characters from a cue within which a mention is looked at
_NEAR = 40  # characters from a mention within which "is not visible" is looked for


class Span(Protocol):
    """Anything with a character span: a Mention, a gold annotation."""

    @property
    def start(self) -> int:
        """Index of the first character."""

    @property
    def end(self) -> int:
        """Index after the last character."""


def cue_words(claims: Claims) -> tuple[str, ...]:
    """The words at which a cue of the reading may stand, for a matcher to watch.

    Raises:
        InputError: there is no such reading.
    """
    if claims not in CLAIMS:
        raise InputError(None, None, f"claims must be one of {', '.join(CLAIMS)}, got {claims!r}")
    return {"all": (), "asserted": _NEGATION_WORDS, "certain": _NEGATION_WORDS + _HEDGE_WORDS}[claims]


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
        InputError: there is no such reading.
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
    start = np.maximum(cues.start - 2 * (cues.label_id == _T), 0)  # "n't" is watched as its "t"
    following = np.searchsorted(mentions.caption << 32 | mentions.start, caption << 32 | start)
    first, last = mentions.indptr[caption], mentions.indptr[caption + 1]
    before = np.maximum(following - 1, 0)
    ahead = following < last
    behind = (following > first) & (start - mentions.end[before] < _NEAR) & _FOLLOWS[cues.label_id]
    some = np.flatnonzero(ahead | behind)
    columns = (caption, start, cues.end, cues.label_id, following, last, ahead, behind)
    starts, ends = mentions.start.data, mentions.end.data  # a memoryview gives plain integers, without a list of all
    for k, position, word_end, word, row, stop, has_next, has_previous in zip(
        *(column[some].tolist() for column in columns), strict=True
    ):
        text = texts[k]
        if has_next and text.find(". ", word_end, starts[row]) < 0:
            cue = _PATTERNS[word].match(text, position)
            if cue:
                mask[list(_reached(text, cue, starts, ends, row, stop))] = False
        if has_previous:
            gone = _BEHIND.match(text, ends[row - 1])
            if gone and gone.end() > position:
                mask[row - 1] = False
    return mask


# ---------------------------------------------------------------- the rules


def _words(*words: str) -> str:
    return "(?:" + "|".join(words) + ")"


_BE = _words("is", "are", "was", "were", "am", "be", "been", "being")
_NEGATIVE = _words("not", "n['’]t", "cannot")

_NEGATION_WORDS = (
    *("no", "not", "t", "cannot", "without", "neither", "nor", "none", "nobody", "nowhere", "absence", "absent"),
    *("lack", "lacks", "lacking", "devoid", "free", "rather", "instead", "opposed", "missing"),
)
_T = _NEGATION_WORDS.index("t")
_BEHIND_WORDS = frozenset({"not", "t", "cannot", "nowhere", "absent", "missing"})
_HEDGE_WORDS = (
    *("possibly", "perhaps", "maybe", "likely", "probably", "presumably", "potentially", "supposedly", "apparently"),
    *("might", "may", "could", "appear", "appears", "appeared", "appearing", "seem", "seems", "seemed", "seeming"),
    *("look", "looks", "looked", "looking", "suggest", "suggests", "suggested", "suggesting", "suggestive"),
    *("resemble", "resembles", "resembled", "resembling"),
)

_NEGATION = re.compile(
    rf"""(?:
    no\b (?!\s+(?:longer|doubt|matter|wonder|question|more\s+than|less\s+than|fewer\s+than|stranger)\b
                     |[.:]\s*\d|[.,]\d|\s*[/:%°-]|\s+(?:percent|degrees?)\b)
      (?:\s+(?:visible\s+|clear\s+|obvious\s+|apparent\s+)?(?:signs?|traces?|evidence|indications?|hints?|presence)\s+of\b)?
  | without\b (?!\s+(?:a\s+)?(?:doubt|question)\b)
  | {_NEGATIVE}(?!\w)
      (?!\s+(?:only|just|merely|simply|solely|far|close|near|too|very|quite|so|as|fully|completely|entirely|directly
          |actively|necessarily|all|every|everyone|many|much|clear|clearly|sure|certain|known|possible|until|yet|long|to\s+mention
          |help\s+but|wait|have\s+to|need|seem|appear|hesitate)\b)
  | neither\b | nor\b | none\b | nobody\b
  | (?:absence|absent|lack|devoid|free)\s+(?:of|from)\b
  | (?:lacks|lacking)\b
  | rather\s+than\b | instead\s+of\b | opposed\s+to\b
  )""",
    re.IGNORECASE | re.VERBOSE,
)

_HEDGE = re.compile(
    r"""(?:
    (?:possibly|perhaps|maybe|likely|probably|presumably|potentially|supposedly|apparently)\b
  | (?:might|may|could)\b (?=\s+(?:\w+ly\s+|also\s+|even\s+|well\s+|just\s+)*(?:be|have|been|contain|include|hold|exist
        |represent|indicate|belong|suggest|serve|come|depict|show)\b)
  | (?P<predicate>(?:appear|seem)(?:s|ed|ing)?\s+to\s+(?:be|have\s+been|have|contain|include|hold|show|depict)\b
      (?:\s+(?:\w+ly|quite|very|also|either))*
      (?:\s+(?:wearing|holding|carrying|containing|having|featuring|depicting|showing|displaying
        |made\s+of|covered\s+(?:in|with|by)|filled\s+with|part\s+of|in|inside|on|at)\b|(?!\s+\w+ing\b)))
  | (?:look|seem|sound)(?:s|ed|ing)?\s+like\b
  | suggest(?:s|ed|ing|ive)?\b (?!\s+(?:that\s+)?(?:they|he|she|it)\b)
  | resembl(?:es?|ed|ing)\b
  )""",
    re.IGNORECASE | re.VERBOSE,
)

# the ends and _DEFINITE read lower-cased text, which is twice as fast as ignoring case
_CLAUSE_END = re.compile(
    rf"""[.!?…]+(?=["'”’)\]*]*(?:\s|$)) | [;:\n)\]] | \s[-–—]+\s | —
  | \b(?:(?:but|however|although|though|while|whereas|except|besides|yet|because|since|which|who|whom|whose|where|when
      |if|whether|unless|until|only|instead|indicating|making|giving|creating|leaving|allowing|adding|so\s+that|as\s+(?:it|they|he|she|the|well)
      |other\s+than|apart\s+from|aside\s+from|rather\s+than)\b
    | and\s+(?=(?:a|an|the|one|two|three|some|several|many|there|it|he|she|they|this|that|these|those|his|her|its|their
      |{_BE}|has|have|had|does|do|can|appears?|seems?|another|with|also|possibly|likely|perhaps)\b))""",
    re.VERBOSE,
)

# "appears to be a bakery with a man in it" guesses at the bakery only
_PHRASE_END = re.compile(
    rf"{_CLAUSE_END.pattern} | \b(?:with|that|in|on|at|near|next|from|behind|\w+ing)\b", re.VERBOSE
)

# what may stand between a comma and the next item of a list: "or", "nor", an article, two adjectives
_LIST_ITEM = re.compile(
    r",\s*(?:(?P<last>or|nor|and/or)\s+)?(?:(?:a|an|any|even|other|no)\s+)*(?:[\w'’-]+\s+){0,2}$", re.IGNORECASE
)
_LIST_GOES_ON = re.compile(
    r"(?:['’]s)?(?:\s+[\w'’-]+){0,1}\s*(?:,|\b(?:or|nor)\b|[.;:!?)\n]|$)|\s+(?:visible|present|in\s+sight|nearby)\b",
    re.IGNORECASE,
)

# a definite noun phrase up to its noun; a noun phrase ends at a preposition or a conjunction
_DEFINITE = re.compile(
    r"""\b(?P<article>the|this|that|these|those|his|her|hers|its|their|my|your|our|both|each|every)\s+
    (?:(?!(?:of|in|on|at|with|and|or|nor|a|an|any|no|to|by|near|for|from|like|as|than|into|onto|over|under|is|are|be
        |was|were|being|that|where|which)\b)[\w'’-]+\s+){0,4}$""",
    re.VERBOSE,
)

_BEHIND = re.compile(
    rf"""(?:['’]s)?\s+(?:(?:themselves|itself|himself|herself|at\s+all|clearly|also|currently|actually)\s+)?
    (?:
      (?:{_BE}\s+(?:not|nowhere)|(?:is|are|was|were)n['’]t|can(?:not|['’]t|\s+not)\s+be)\s+
        (?:\w+ly\s+|even\s+|actually\s+)?
        (?:visible|present|seen|shown|depicted|pictured|there|found|in\s+(?:the|this)\s+(?:image|picture|photo|photograph|scene|frame))\b
      | {_BE}\s+(?:\w+ly\s+)?(?:absent|missing)\b
    )""",
    re.IGNORECASE | re.VERBOSE,
)


def _reached(
    text: str, cue: re.Match[str], starts: memoryview, ends: memoryview, following: int, stop: int
) -> Iterator[int]:
    """Which of the mentions from ``following`` to ``stop`` are in the scope of a cue."""
    begin = at = cue.end()
    clause_end = _PHRASE_END if cue.lastgroup == "predicate" else _CLAUSE_END
    for k in range(following, stop):
        start, end = starts[k], ends[k]
        if start < begin:
            continue
        if start - begin > _FAR or text.find("\n", at, start) >= 0 or text.count(" ", begin, start) > REACH:
            return
        if clause_end.search(text[at:start].lower()):
            return
        comma = text.find(",", at, start)
        if comma >= 0:
            item = _LIST_ITEM.match(text, comma, start)
            if not item or not (item["last"] or _LIST_GOES_ON.match(text, end)):
                return
        between = text[begin:start].lower()
        definite = _DEFINITE.search(between)
        if definite is None or (not between[: definite.start()].strip() and cue[0].lower() != "none"):
            yield k
        at = end


# by position in the cue words; those of a negation come first in every reading
_PATTERNS = (_NEGATION,) * len(_NEGATION_WORDS) + (_HEDGE,) * len(_HEDGE_WORDS)
_FOLLOWS = np.array([word in _BEHIND_WORDS for word in _NEGATION_WORDS + _HEDGE_WORDS])
