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

Rules only: no model, no data, always the same answer. Cue words are searched for in whole batches of captions at once,
and only what stands behind one is read, so that the claims cost little beside the matching.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from typing import Literal, Protocol, get_args

import numpy as np
from numpy.typing import NDArray

from .errors import InputError
from .matcher import MentionColumns

Claims = Literal["all", "asserted", "certain"]
"""Which mentions count."""

CLAIMS: tuple[Claims, ...] = get_args(Claims)

REACH = 15
"""Words behind its cue that a scope spans at most."""

_FAR = 160  # characters from a cue within which a mention is looked at
_NEAR = 40  # characters from a mention within which "is not visible" is looked for
_BATCH = 1024  # captions per pass of the search for cue words


class Span(Protocol):
    """Anything with a character span: a Mention, a gold annotation."""

    @property
    def start(self) -> int:
        """Index of the first character."""

    @property
    def end(self) -> int:
        """Index after the last character."""


def claim_mask(text: str, mentions: Sequence[Span], claims: Claims) -> NDArray[np.bool_]:
    """Which mentions of one caption are claims.

    Args:
        text: the caption.
        mentions: spans in it, in the order of the text.
        claims: the reading.

    Returns:
        (mentions,) bool, False for what the reading leaves out.
    """
    start = np.array([mention.start for mention in mentions], dtype=np.int32)
    end = np.array([mention.end for mention in mentions], dtype=np.int32)
    indptr = np.array([0, len(start)], dtype=np.int64)
    return claim_mask_batch([text], MentionColumns(indptr, start, end, np.zeros_like(start)), claims)


def claim_mask_batch(texts: Sequence[str], mentions: MentionColumns, claims: Claims) -> NDArray[np.bool_]:
    """As :func:`claim_mask` for the mentions of many captions.

    Args:
        texts: the captions that the columns were found in.
        mentions: from ``AliasMatcher.find_batch``.
        claims: the reading.

    Returns:
        (mentions,) bool over the rows of the columns.

    Raises:
        InputError: there is no such reading.
    """
    if claims not in CLAIMS:
        raise InputError(None, None, f"claims must be one of {', '.join(CLAIMS)}, got {claims!r}")
    mask = np.ones(len(mentions.start), dtype=bool)
    if claims == "all":
        return mask
    cues = _CUES[claims]
    for low in range(0, len(texts), _BATCH):
        part = texts[low : low + _BATCH]
        at = -1
        for k, position in cues.positions(part):
            if k != at:  # cues come in the order of the text
                at = k
                first, last = mentions.indptr[low + k : low + k + 2].tolist()
                starts, ends = mentions.start[first:last].tolist(), mentions.end[first:last].tolist()
            if first < last:
                for i in _left_out(part[k], position, cues.patterns, starts, ends):
                    mask[first + i] = False
    return mask


def claimed(texts: Sequence[str], mentions: MentionColumns, claims: Claims) -> MentionColumns:
    """The columns without the mentions that the reading leaves out; the same object for ``all``."""
    if claims == "all":
        return mentions
    mask = claim_mask_batch(texts, mentions, claims)
    indptr = np.append(0, np.cumsum(mask))[mentions.indptr]
    return MentionColumns(indptr, mentions.start[mask], mentions.end[mask], mentions.label_id[mask])


# ---------------------------------------------------------------- the rules


def _words(*words: str) -> str:
    return "(?:" + "|".join(words) + ")"


_BE = _words("is", "are", "was", "were", "am", "be", "been", "being")
_NEGATIVE = _words("not", "n['’]t", "cannot")

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

_CLAUSE_END = re.compile(
    rf"""[.!?…]+(?=["'”’)\]*]*(?:\s|$)) | [;:\n)\]] | \s[-–—]+\s | —
  | \b(?:but|however|although|though|while|whereas|except|besides|yet|because|since|which|who|whom|whose|where|when
      |if|whether|unless|until|only|instead|indicating|making|giving|creating|leaving|allowing|adding|so\s+that|as\s+(?:it|they|he|she|the|well)
      |other\s+than|apart\s+from|aside\s+from|rather\s+than)\b
  | \band\s+(?=(?:a|an|the|one|two|three|some|several|many|there|it|he|she|they|this|that|these|those|his|her|its|their
      |{_BE}|has|have|had|does|do|can|appears?|seems?|another|with|also|possibly|likely|perhaps)\b)""",
    re.IGNORECASE | re.VERBOSE,
)

# "appears to be a bakery with a man in it" guesses at the bakery only
_PHRASE_END = re.compile(
    rf"{_CLAUSE_END.pattern} | \b(?:with|that|in|on|at|near|next|from|behind|\w+ing)\b", re.IGNORECASE | re.VERBOSE
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
    re.IGNORECASE | re.VERBOSE,
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


def _left_out(
    text: str, position: int, patterns: Sequence[re.Pattern[str]], starts: Sequence[int], ends: Sequence[int]
) -> Iterator[int]:
    """Which mentions of a caption fall under the cue at a position, if there is one."""
    following = bisect_left(starts, position)
    for pattern in patterns:
        cue = pattern.match(text, position)
        if cue:
            yield from _reached(text, cue, starts, ends, following)
    if following and position - ends[following - 1] < _NEAR:
        gone = _BEHIND.match(text, ends[following - 1])
        if gone and gone.end() > position:
            yield following - 1


def _reached(
    text: str, cue: re.Match[str], starts: Sequence[int], ends: Sequence[int], following: int
) -> Iterator[int]:
    """Which of the mentions from ``following`` on are in the scope of a cue."""
    begin = at = cue.end()
    clause_end = _PHRASE_END if cue.lastgroup == "predicate" else _CLAUSE_END
    for k in range(following, len(starts)):
        start, end = starts[k], ends[k]
        if start < begin:
            continue
        if start - begin > _FAR or text.count(" ", begin, start) > REACH or clause_end.search(text, at, start):
            return
        comma = text.find(",", at, start)
        if comma >= 0:
            item = _LIST_ITEM.match(text, comma, start)
            if not item or not (item["last"] or _LIST_GOES_ON.match(text, end)):
                return
        definite = _DEFINITE.search(text, begin, start)
        if definite is None or (not text[begin : definite.start()].strip() and cue[0].lower() != "none"):
            yield k
        at = end


# ---------------------------------------------------------------- where cues begin, in a batch of captions at once

_NEGATION_STEMS = (
    *("no", "witho", "canno", "neith", "lack", "devoi", "free"),
    *("rathe", "inste", "oppos", "absen", "missi"),
)
_HEDGE_STEMS = (
    *("possi", "perha", "mayb", "likel", "proba", "presu", "poten", "suppo", "appar", "might", "may", "could"),
    *("appea", "seem", "look", "sugge", "resem"),
)


class _Cues:
    """The patterns of a reading, and where in a batch of captions they can match."""

    def __init__(self, patterns: Sequence[re.Pattern[str]], stems: Sequence[str]) -> None:
        self.patterns = patterns
        self._pair = np.zeros(1 << 16, dtype=bool)
        self._pair[[_as_integer(stem[:2]) for stem in stems]] = True
        by_length = {n: [stem for stem in stems if len(stem) == n] for n in sorted({len(stem) for stem in stems})}
        self._heads = [
            (np.uint64((1 << 8 * n) - 1), np.array([_as_integer(stem) for stem in some], dtype=np.uint64))
            for n, some in by_length.items()
        ]

    def positions(self, texts: Sequence[str]) -> Iterator[tuple[int, int]]:
        """``(caption, position)`` of every word that begins with a stem and of every "n't", in text order."""
        plain = [text if text.isascii() else text.encode("ascii", "replace").decode() for text in texts]
        joined = np.frombuffer("\0".join(["", *plain, "\0" * 8]).encode("ascii"), dtype=np.uint8) | np.uint8(32)
        letter = joined - np.uint8(97) < 26
        starts = np.flatnonzero(letter[1:-8] > letter[:-9]) + 1
        size = len(joined) - 8
        pairs = np.ndarray(shape=size, dtype="<u2", buffer=joined, strides=(1,))
        starts = starts[np.take(self._pair, pairs[starts])]  # no take from pairs: it would copy what is not aligned
        eight = np.ndarray(shape=size, dtype="<u8", buffer=joined, strides=(1,))
        head = eight[starts]
        found = starts[np.logical_or.reduce([np.isin(head & mask, heads) for mask, heads in self._heads])]
        marks = np.flatnonzero((joined == ord("'")) | (joined == ord("?")))  # a curly apostrophe has become "?"
        marks = marks[(joined[marks - 1] == ord("n")) & (joined[marks + 1] == ord("t"))]
        if len(marks):
            found = np.sort(np.concatenate([found, marks - 1]))
        lengths = np.fromiter(map(len, texts), dtype=np.int64, count=len(texts))
        base = np.cumsum(lengths + 1) - lengths
        caption = np.searchsorted(base, found, side="right") - 1
        return zip(caption.tolist(), (found - base[caption]).tolist(), strict=True)


def _as_integer(letters: str) -> int:
    return int.from_bytes(letters.encode(), "little")


_CUES: dict[Claims, _Cues] = {
    "asserted": _Cues((_NEGATION,), _NEGATION_STEMS),
    "certain": _Cues((_NEGATION, _HEDGE), (*_NEGATION_STEMS, *_HEDGE_STEMS)),
}
