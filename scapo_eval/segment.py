"""From a response to its subsentences, under named rules (SPEC section 3).

Spans partition the text exactly; white space belongs to the span before it. As in the matcher there is a
readable way for one text, which defines the result, and a batch way that decides the plain cases (a
letter, a full stop, a space) for a thousand texts at once in numpy and asks the readable way about the
rest. Tests hold the two equal.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import get_args

import numpy as np
from numpy.typing import NDArray

from .columns import MentionColumns, SpanColumns
from .errors import InputError
from .types import Mention, Rule, Subsentence

MIN_WORDS = 5
"""A piece with fewer white-space chunks is merged into its neighbour (rule ``subsentence``)."""

RULES: tuple[Rule, ...] = get_args(Rule)

_SENTENCE_END = ".!?\u2026\u3002\uff01\uff1f"
_CLAUSE_END = ",;:"
_DASHES = "-\u2013\u2014"
_CLOSERS = "\"'\u201d\u2019)]}\u00bb*_`"

# A full stop after one of these never ends a sentence; after the second kind only before a capital.
_ABBREVIATIONS = frozenset("mr mrs ms dr prof st mt vs eg ie e.g i.e cf ca approx incl".split())
_MAY_END = frozenset("etc jr sr inc ltd co corp al ft fig vol no a.m p.m u.s u.k d.c".split())
_OPENERS = frozenset("a an the this that it its he she they there these in on at to one two".split())

_CANDIDATE = re.compile(f"[{re.escape(_SENTENCE_END + _CLAUSE_END + _DASHES)}\n\r\u2028\u2029]")
_NEXT_WORD = re.compile(r"\W*(\w+)")
_URL = re.compile(r"(?:https?://|www\.)\S*[^\s.,;:!?)\]}'\"]")


def split_subsentences(
    text: str, rule: Rule = "subsentence", mentions: Sequence[Mention] | None = None
) -> list[Subsentence]:
    """Cuts one text into pieces.

    Args:
        text: any string.
        rule: ``subsentence`` (default), ``sentence``, ``clause``, ``object`` or ``response``.
        mentions: of the text, in order; no boundary falls inside one. Needed by ``object``.

    Returns:
        Pieces that partition the text; none for an empty text.

    Raises:
        InputError: an unknown rule, or ``object`` without mentions.
    """
    _check_rule(rule, mentions is not None)
    if not text:
        return []
    inside = [(mention.start, mention.end) for mention in mentions or ()]
    cuts = [cut for cut, _ in _cuts(text, rule, inside)]
    return [Subsentence(start, end) for start, end in zip([0, *cuts], [*cuts, len(text)], strict=True)]


def _check_rule(rule: str, has_mentions: bool) -> None:
    if rule not in RULES:
        raise InputError(f"unknown segmentation rule '{rule}' (there are {', '.join(RULES)})")
    if rule == "object" and not has_mentions:
        raise InputError("the rule 'object' needs the mentions of the text")


def _cuts(text: str, rule: Rule, mentions: Sequence[tuple[int, int]]) -> list[tuple[int, bool]]:
    """``(offset, ends a sentence)`` of every cut strictly inside the text."""
    if rule == "response":
        return []
    if rule == "object":
        return [(end, False) for _, end in mentions[:-1]]
    found = dict[int, bool]()
    for match in _CANDIDATE.finditer(text):
        boundary = _boundary(text, match.start())
        if boundary is not None:
            offset, sentence = boundary
            found[offset] = found.get(offset, False) or sentence
    first_word = len(text) - len(text.lstrip())
    cuts = [
        (offset, sentence)
        for offset, sentence in sorted(found.items())
        if first_word < offset < len(text) and not any(start < offset < end for start, end in mentions)
    ]
    if rule == "sentence":
        return [cut for cut in cuts if cut[1]]
    return cuts if rule == "clause" else _merged(text, cuts)


def _merged(text: str, cuts: list[tuple[int, bool]]) -> list[tuple[int, bool]]:
    """Short pieces joined to the piece before them in their sentence, a short first piece to the next.

    A cut between clauses stays when the piece after it is long enough and the sentence before it is, too:
    a long piece starts a new group unless all that came before in its sentence is one short group.
    """
    kept: list[tuple[int, bool]] = []
    sentence_words = 0
    begin = 0
    ends = [*(offset for offset, _ in cuts), len(text)][1:]
    for (offset, sentence), end in zip(cuts, ends, strict=True):
        sentence_words += len(text[begin:offset].split())
        if sentence:
            sentence_words = 0
            kept.append((offset, True))
        elif sentence_words >= MIN_WORDS and len(text[offset:end].split()) >= MIN_WORDS:
            kept.append((offset, False))
        begin = offset
    return kept


def _boundary(text: str, at: int) -> tuple[int, bool] | None:
    """``(offset after the white space, ends a sentence)`` if the character at ``at`` closes a piece."""
    character = text[at]
    if character in "\n\r\u2028\u2029":
        return _after_space(text, at), True
    if character in _DASHES:
        return _dash_boundary(text, at)
    end = at + 1
    single = end == len(text) or text[end] not in _SENTENCE_END
    if character in _SENTENCE_END:
        while end < len(text) and text[end] in _SENTENCE_END:
            end += 1
        if text[at - 1 : at] and text[at - 1] in _SENTENCE_END:
            return None  # the first mark of a run speaks for all of it
    while end < len(text) and text[end] in _CLOSERS:
        end += 1
    glued = end < len(text) and not text[end].isspace()
    if character in _CLAUSE_END:
        return None if glued else (_after_space(text, end), False)
    if glued and not _glued_sentence(text, at, end):
        return None
    if character == "." and single and _is_abbreviation(text, at):
        return None
    return _after_space(text, end), True


def _after_space(text: str, at: int) -> int:
    while at < len(text) and text[at].isspace():
        at += 1
    return at


def _dash_boundary(text: str, at: int) -> tuple[int, bool] | None:
    """A dash between clauses: an em dash or ``--`` anywhere between words, others between spaces."""
    end = at + 1
    while end < len(text) and text[end] in _DASHES:
        end += 1
    if text[at - 1 : at] and text[at - 1] in _DASHES:
        return None
    before = text[:at].rstrip(" \t")[-1:]
    if not before or before.isspace() or end == len(text) or _in_url(text, at):
        return None
    long = text[at] == "\u2014" or end - at == 2
    digits = text[at - 1].isdigit() and text[end].isdigit()
    spaced = text[at - 1].isspace() and text[end].isspace() and end - at == 1
    if (long and not digits) or spaced:
        return _after_space(text, end), False
    return None


def _glued_sentence(text: str, at: int, end: int) -> bool:
    """``...on a table.The cat``: a sentence end whose space is missing; an ideographic one needs none."""
    if text[at] in "\u3002\uff01\uff1f":
        return True
    word = text[max(0, at - 2) : at]
    return len(word) == 2 and word.isalpha() and word.islower() and text[end].isupper() and not _in_url(text, at)


def _in_url(text: str, at: int) -> bool:
    begin = max(text.rfind(" ", 0, at), text.rfind("\n", 0, at)) + 1
    return any(m.start() <= at < m.end() for m in _URL.finditer(text, begin, min(len(text), at + 300)))


def _is_abbreviation(text: str, at: int) -> bool:
    """Whether the full stop at ``at`` belongs to an abbreviation, an initial or a list number."""
    begin = at
    while begin and (text[begin - 1].isalnum() or text[begin - 1] == "."):
        begin -= 1
    word = text[begin:at].lower().lstrip(".")
    if not word:
        return False
    if word.isdecimal():  # "1. A dog": the number of a list item, at the beginning of a line
        line = text[:begin].rstrip(" \t*#(")
        return not line or line[-1] in "\n\r"
    if word in _ABBREVIATIONS:
        return True
    following = _NEXT_WORD.match(text, at + 1)
    name = following.group(1) if following else ""
    if word in _MAY_END:
        return bool(name) and not name[0].isupper()
    initial = len(word) == 1 and text[at - 1].isupper() and word != "i"  # J. Smith, but not: the letter E. The ...
    return initial and name[:1].isupper() and name.lower() not in _OPENERS


# ---- the batch way ----

_SPACES = bytes(chr(c).isspace() for c in range(128)) + bytes(128)
_BLANKS = b"\1" + _SPACES[1:]  # white space, and the border between two texts
_KIND = bytearray(256)  # 1 sentence mark, 2 clause mark, 3 dash, 4 line end
for _c in b".!?":
    _KIND[_c] = 1
for _c in b",;:":
    _KIND[_c] = 2
_KIND[ord("-")] = 3
for _c in b"\n\r":
    _KIND[_c] = 4
_KIND_TABLE = bytes(_KIND)
_LOWER = np.array([97 <= c <= 122 for c in range(256)])
_ALNUM = np.array([chr(c).isalnum() for c in range(128)] + [False] * 128)
_CLOSER_BYTES = np.array([chr(c) in _CLOSERS for c in range(128)] + [False] * 128)
_SPACE_BYTES = np.frombuffer(_SPACES, dtype=np.bool_)
_ALL_ABBREVIATIONS = sorted(word for word in _ABBREVIATIONS | _MAY_END if "." not in word)
_ABBREVIATION_KEYS = {
    n: np.array([int.from_bytes(w.encode(), "little") for w in _ALL_ABBREVIATIONS if len(w) == n], dtype=np.uint64)
    for n in sorted({len(w) for w in _ALL_ABBREVIATIONS})
}
_PAD = b"\0" * 8

# Characters outside ASCII that are common in captions, as ASCII that is cut alike: a closing quote, an end of
# sentence, white space that is neither space nor tab; the rest, which no rule asks for, as such a byte.
_TO_ASCII = {
    "\u2019": "'",
    "\u201d": '"',
    "\u2026": "!",
    **dict.fromkeys("\u00a0\u202f", "\x0b"),
    **dict.fromkeys("\u2018\u201c\u2010\u2011\u2022\u00b0\u00d7\u2192", "\x01"),
}


def split_batch(
    texts: Sequence[str], rule: Rule = "subsentence", mentions: MentionColumns | None = None
) -> SpanColumns:
    """Cuts many texts, equal to :func:`split_subsentences` on each.

    Args:
        texts: n strings.
        rule: as there.
        mentions: of the texts.

    Returns:
        The pieces as columns.

    Raises:
        InputError: as there.
    """
    _check_rule(rule, mentions is not None)
    n = len(texts)
    lengths = np.fromiter(map(len, texts), dtype=np.int64, count=n)
    if rule == "response":
        owner, offset = np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64)
    elif rule == "object":
        assert mentions is not None
        last = np.zeros(len(mentions.end), dtype=bool)
        counts = np.diff(mentions.indptr)
        last[mentions.indptr[1:][counts > 0] - 1] = True
        owner, offset = mentions.caption[~last], mentions.end[~last].astype(np.int64)
    else:
        owner, offset = _batch_cuts(texts, lengths, rule, mentions)
    return _spans(owner, offset, lengths)


def _spans(owner: NDArray[np.int64], offset: NDArray[np.int64], lengths: NDArray[np.int64]) -> SpanColumns:
    """Pieces from cuts sorted by (text, offset); an empty text has none."""
    pieces = np.bincount(owner, minlength=len(lengths)) + (lengths > 0)
    indptr = np.zeros(len(lengths) + 1, dtype=np.int64)
    np.cumsum(pieces, out=indptr[1:])
    start = np.zeros(indptr[-1], dtype=np.int32)
    end = np.zeros(indptr[-1], dtype=np.int32)
    filled = lengths > 0
    first = np.zeros(indptr[-1], dtype=bool)
    first[indptr[:-1][filled]] = True
    start[~first] = offset
    closing = np.zeros(indptr[-1], dtype=bool)
    closing[indptr[1:][filled] - 1] = True
    end[~closing] = offset
    end[closing] = lengths[filled]
    return SpanColumns(indptr, start, end)


def _batch_cuts(
    texts: Sequence[str], lengths: NDArray[np.int64], rule: Rule, mentions: MentionColumns | None
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """``(text, offset)`` of every cut, sorted."""
    simple, slow = _simplified(texts)
    if len(slow) == len(texts):
        owner = offset = np.zeros(0, dtype=np.int64)
    else:
        owner, offset = _plain_cuts(simple, texts, lengths, rule, mentions)
    if not slow:
        return owner, offset
    found = []
    for k in slow:
        spans = []
        if mentions is not None:
            rows = mentions.row(k)
            spans = list(zip(mentions.start[rows].tolist(), mentions.end[rows].tolist(), strict=True))
        found += [(k, at) for at, _ in _cuts(texts[k], rule, spans)]
    extra = np.array(found, dtype=np.int64).reshape(-1, 2)
    owner = np.concatenate([owner, extra[:, 0]])
    offset = np.concatenate([offset, extra[:, 1]])
    order = np.argsort(owner * (int(lengths.max()) + 1) + offset, kind="stable")
    return owner[order], offset[order]


def _simplified(texts: Sequence[str]) -> tuple[list[str], list[int]]:
    """The texts in ASCII, character by character, and which are left to the readable way (empty here)."""
    if len(texts) == 1:
        return [""], [0]  # it is cut before the arrays would be made
    simple = list(texts)
    slow: list[int] = []
    for k, text in enumerate(texts):
        if not text.isascii():
            for character, replacement in _TO_ASCII.items():
                if character in text:
                    text = text.replace(character, replacement)
            for dash in _DASHES[1:]:  # between spaces it is asked about, as a hyphen there is; elsewhere not
                if dash in text and text.count(dash) == text.count(f" {dash} "):
                    text = text.replace(dash, "-")
            simple[k] = text
        if not text.isascii() or "\0" in text:  # NUL parts the joined texts
            simple[k] = ""
            slow.append(k)
    return simple, slow


def _plain_cuts(
    simple: Sequence[str],
    texts: Sequence[str],
    lengths: NDArray[np.int64],
    rule: Rule,
    mentions: MentionColumns | None,
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """``(text, offset)`` of every cut of the simplified texts, sorted."""
    joined = _PAD + "\0".join(simple).encode("ascii") + _PAD
    widths = np.fromiter(map(len, simple), dtype=np.int64, count=len(simple))
    base = len(_PAD) + np.cumsum(widths + 1) - widths - 1
    cut, sentence = _byte_boundaries(joined, base, texts)
    owner = np.searchsorted(base, cut, side="right") - 1
    keep = cut < base[owner] + widths[owner]  # nothing is cut at the very end
    if mentions is not None:
        keep &= ~_inside_mention(owner, cut - base[owner], mentions, lengths)
    cut, sentence, owner = cut[keep], sentence[keep], owner[keep]

    blank = np.frombuffer(joined.translate(_BLANKS), dtype=np.uint8)
    begins = blank[:-1] > blank[1:]
    begins[cut - 1] = True  # a cut inside a chunk (word--word) makes two of it
    chunks = np.zeros(len(joined), dtype=np.int32)  # chunks[k]: white-space chunks that begin at or before byte k
    np.cumsum(begins, out=chunks[1:])
    before = chunks[cut - 1] - chunks[base[owner] - 1]
    keep = before > 0  # leading white space is no piece
    cut, sentence, owner, before = cut[keep], sentence[keep], owner[keep], before[keep]
    if rule == "sentence":
        cut, owner = cut[sentence], owner[sentence]
    elif rule == "subsentence" and len(cut):
        ends = np.append(cut[1:], 0)
        last = np.append(owner[1:] != owner[:-1], True)
        ends[last] = base[owner[last]] + widths[owner[last]]
        after = chunks[ends - 1] - chunks[cut - 1]
        # words of the sentence before each cut: since the latest sentence cut of the same text
        started = np.maximum.accumulate(np.where(sentence, np.arange(len(cut)), -1))
        started = np.append(-1, started[:-1])
        same = (started >= 0) & (owner[started] == owner)
        in_sentence = before - np.where(same, before[started], 0)
        stays = sentence | ((in_sentence >= MIN_WORDS) & (after >= MIN_WORDS))
        cut, owner = cut[stays], owner[stays]
    return owner, cut - base[owner]


def _inside_mention(
    owner: NDArray[np.int64], position: NDArray[np.int64], mentions: MentionColumns, lengths: NDArray[np.int64]
) -> NDArray[np.bool_]:
    """Whether a cut falls inside a mention of its text."""
    if not len(mentions.start):
        return np.zeros(len(owner), dtype=bool)
    stride = int(lengths.max(initial=0)) + 1  # one number line for all texts
    begins = mentions.caption * stride + mentions.start
    previous = np.searchsorted(begins, owner * stride + position, side="left") - 1
    found = np.maximum(previous, 0)
    inside: NDArray[np.bool_] = (previous >= 0) & (mentions.caption[found] == owner) & (position < mentions.end[found])
    return inside


def _byte_boundaries(
    joined: bytes, base: NDArray[np.int64], texts: Sequence[str]
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """``(position after the white space, ends a sentence)`` of every boundary, sorted and without doubles."""
    text = np.frombuffer(joined, dtype=np.uint8)
    kinds = np.frombuffer(joined.translate(_KIND_TABLE), dtype=np.uint8)
    at = np.flatnonzero(kinds != 0)  # of bytes themselves it takes nine times as long
    kind, following, previous = kinds[at], text[at + 1], text[at - 1]
    ends = _SPACE_BYTES[following] | (following == 0)  # white space, or the end of the text
    yes = (kind == 4) | ((kind == 2) & ends) | ((kind == 1) & ends & _LOWER[previous])
    before = text[at - 2]  # a dash between spaces, behind a word
    yes |= (kind == 3) & _SPACE_BYTES[following] & (previous == ord(" ")) & ~_SPACE_BYTES[before] & (before != 0)
    stop = np.flatnonzero((kind == 1) & yes & (text[at] == ord(".")))
    yes[stop[_after_abbreviation(joined, at[stop])]] = False
    # what is left to the readable way: runs of marks, closers, capitals and digits before a stop, glued
    # words, abbreviations, dashes that are no hyphens
    hyphen = (kind == 3) & ~ends & ~_SPACE_BYTES[previous] & (following != ord("-")) & (previous != ord("-"))
    plain_no = hyphen | ((kind == 2) & ~ends & ~_CLOSER_BYTES[following])
    asked = at[~yes & ~plain_no]
    cut = at[yes] + 1
    cut[kind[yes] == 4] -= 1  # a line end is itself white space
    moving = np.flatnonzero(_SPACE_BYTES[text[cut]])
    while len(moving):
        cut[moving] += 1
        moving = moving[_SPACE_BYTES[text[cut[moving]]]]
    sentence = (kind[yes] == 1) | (kind[yes] == 4)
    whole = (text[at[yes]] != ord(".")) | (text[cut] != ord("."))  # else perhaps a mark inside a spaced ellipsis
    asked = np.concatenate([asked, at[yes][~whole]])
    cut, sentence = cut[whole], sentence[whole]
    if len(asked):
        owner = np.searchsorted(base, asked, side="right") - 1
        extra = [
            (int(base[k]) + boundary[0], boundary[1])
            for k, where in zip(owner.tolist(), asked.tolist(), strict=True)
            if (boundary := _boundary(texts[k], where - int(base[k]))) is not None
        ]
        cut = np.concatenate([cut, np.array([offset for offset, _ in extra], dtype=np.int64)])
        sentence = np.concatenate([sentence, np.array([ends for _, ends in extra], dtype=bool)])
    order = np.lexsort((~sentence, cut))  # of doubles the sentence end comes first and stays
    cut, sentence = cut[order], sentence[order]
    different = np.ones(len(cut), dtype=bool)
    different[1:] = cut[1:] != cut[:-1]
    return cut[different], sentence[different]


def _after_abbreviation(joined: bytes, at: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Whether the letters before each full stop could be an abbreviation or an initial."""
    eight = np.ndarray(shape=len(joined) - 7, dtype="<u8", buffer=joined, strides=(1,))
    text = np.frombuffer(joined, dtype=np.uint8)
    tail = eight[at - 8] | np.uint64(0x2020202020202020)  # lower case; take would copy the whole unaligned array
    maybe: NDArray[np.bool_] = ~_ALNUM[text[at - 2]]  # one letter
    for n, keys in _ABBREVIATION_KEYS.items():
        maybe |= np.isin(tail >> np.uint64(8 * (8 - n)), keys) & ~_ALNUM[text[at - n - 1]]
    maybe |= text[at - 2] == ord(".")
    return maybe
