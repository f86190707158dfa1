"""Segmentation of many texts, in which NumPy processes the common cases for a thousand texts at once.

One common case is a letter followed by a period and a space. Texts with less common cases are passed to ``segment.py``,
which defines the segmentation. For every text, the results equal those of ``segment.py``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import groupby, pairwise
from operator import itemgetter
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..base.columns import MentionColumns, SpanColumns
from ..base.errors import InputError, short_repr
from ..base.types import Rule
from .discourse import LINE_END, WIDE_CLAUSE_MARKS, WIDE_QUOTES, WIDE_SENTENCE_MARKS, blocks_of, quotes_of
from .discourse_batch import Runs, clause_cuts
from .punctuation import (
    ABBREVIATIONS,
    CLOSERS,
    DASHES,
    LINE_ENDS,
    MAY_END_A_SENTENCE,
    MIN_WORDS,
    SENTENCE_MARKS,
    boundaries,
)
from .segment import check_rule, cuts_of

_SPACES = bytes(chr(c).isspace() for c in range(128)) + bytes(128)
_BLANKS = b"\1" + _SPACES[1:]  # white space, and the border between two texts
_KIND = bytearray(256)  # 1 sentence mark, 2 clause mark, 3 dash, 4 line end
for _c in b".!?":
    _KIND[_c] = 1
for _c in b",;:":
    _KIND[_c] = 2
_LONG_DASH = b"\2"
for _c in b"-" + _LONG_DASH:
    _KIND[_c] = 3
for _c in b"\n\r":
    _KIND[_c] = 4
_KIND_TABLE = bytes(_KIND)


_SPACE, _DIGIT, _UPPER, _LOWER, _CLOSER, _BORDER, _BLANK, _SKIPPED = (1 << k for k in range(8))
"""Byte classes: white space, digits, letters, closing marks, the border between texts, space and tab, and other
characters that may precede the number of a list item.
"""

_LETTER = _UPPER | _LOWER


def _class_of(character: str) -> int:
    """Returns the character classes to which an ASCII character belongs, as a bit mask."""
    classes = {
        _SPACE: character.isspace(),
        _DIGIT: character.isdigit(),
        _UPPER: character.isupper(),
        _LOWER: character.islower(),
        _CLOSER: character in CLOSERS,
        _BORDER: character == "\0",
        _BLANK: character in " \t",
        _SKIPPED: character in "*#(",
    }
    return sum(bit for bit, holds in classes.items() if holds)


_CLASSES = bytes(map(_class_of, map(chr, range(128)))) + bytes(128)
_ALNUM = np.frombuffer(_CLASSES, dtype=np.uint8) & (_LETTER | _DIGIT) > 0
_SPACE_BYTES = np.frombuffer(_SPACES, dtype=np.bool_)
_ALL_ABBREVIATIONS = sorted(word for word in ABBREVIATIONS | MAY_END_A_SENTENCE if "." not in word)
_ABBREVIATION_KEYS = {
    n: np.array([int.from_bytes(w.encode(), "little") for w in _ALL_ABBREVIATIONS if len(w) == n], dtype=np.uint64)
    for n in sorted({len(w) for w in _ALL_ABBREVIATIONS})
}
_ALPHA = np.frombuffer(_CLASSES, dtype=np.uint8) & _LETTER > 0
_SENTENCE, _QUOTE, _QUOTED, _SOLID, _RETURN, _NEWLINE = (1 << k for k in range(6))
"""Byte classes for the rule ``discourse``: sentence marks, opening quotation marks, closing marks behind which a
sentence may go on, letters and digits, and line ends.
"""
_LEADS = np.isin(np.arange(256), [*b":*_"])  # last characters of a line that may be a heading
_DISCOURSE_CLASSES = bytes(
    _SENTENCE * (c in b".!?")
    | _QUOTE * (c in b'("`')
    | _QUOTED * (c in b"\"'`)]}*_")
    | _SOLID * bool(_ALNUM[c])
    | _RETURN * (c == ord("\r"))
    | _NEWLINE * (c == ord("\n"))
    for c in range(256)
)
_SPACE_CHARACTERS = bytes(c for c in range(128) if _SPACES[c])
_CLOSING_CHARACTERS = "".join(filter(str.isascii, CLOSERS)).encode()
_PAD = b"\0" * 8
_PASS = 1_000_000  # number of characters above which the rule discourse processes texts in several passes
_LONG = 1500  # number of characters of a single text above which arrays are faster

# ASCII replacements, with the same cuts, for characters outside ASCII: a closing quote, an end of sentence, dashes, and
# white space other than spaces and tabs. An accented letter is replaced by one of the same case that no listed word or
# abbreviation contains. Symbols, which no rule uses, become one such byte.
_TO_ASCII = {
    "\u2013": "-",
    "\u2014": _LONG_DASH.decode(),
    "\u2019": "'",
    "\u201d": '"',
    "\u2026": "!",
    **dict.fromkeys("\u00a0\u202f", "\x0b"),
    "\u201c": "\x01",
}
_NON_ASCII = re.compile("[^\\x00-\\x7f]")
_RULED = frozenset(
    SENTENCE_MARKS + DASHES + CLOSERS + LINE_ENDS + WIDE_SENTENCE_MARKS + WIDE_CLAUSE_MARKS + WIDE_QUOTES
)


@lru_cache(maxsize=4096)
def _to_ascii(character: str) -> str:
    """Returns the replacement for a character outside ASCII, or the character itself if there is no replacement."""
    if character in _TO_ASCII:
        return _TO_ASCII[character]
    lower, upper = character.lower(), character.upper()
    if "\u00c0" <= character < "\u0180" and character.isalpha() and character not in "\u0131\u017f":
        return character if len(lower + upper) > 2 else "q" if character == lower else "Q"
    is_symbol = lower == upper == character and not (character.isalnum() or character.isspace())
    return "\x01" if is_symbol and character not in _RULED else character


def split_batch(
    texts: Sequence[str], rule: Rule = "subsentence", mentions: MentionColumns | None = None
) -> SpanColumns:
    """Segments many texts; the result is the same as if :func:`split_subsentences` were applied to each text.

    Args:
        texts: n strings.
        rule: Segmentation rule, as for :func:`split_subsentences`.
        mentions: Mentions in the texts.

    Returns:
        Columns with the pieces of all texts.

    Raises:
        InputError: If the rule is unknown, or if the rule is ``object`` and mentions are missing.
    """
    check_rule(rule, mentions is not None)
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


def split_batch_by(texts: Sequence[str], cuts: Callable[[str], Iterable[int]]) -> SpanColumns:
    """Segments many texts with a custom function.

    Args:
        texts: n strings.
        cuts: Function that returns the offsets at which new pieces of a text begin. The offsets must increase and be
            strictly inside the text.

    Raises:
        InputError: If the offsets do not increase or are outside the text. The message states the index of the text.
    """
    all_cuts = [cuts(text) if text else () for text in texts]
    for k, found in enumerate(all_cuts):
        if not isinstance(found, Iterable):
            raise InputError(f"response {k}: the rule's cuts: expected offsets, got {short_repr(found)}")
    all_offsets = [np.asarray(list(found), dtype=object) for found in all_cuts]
    for k, (text, offsets) in enumerate(zip(texts, all_offsets, strict=True)):
        whole = all(isinstance(offset, (int, np.integer)) and not isinstance(offset, bool) for offset in offsets)
        if not whole or list(offsets) != sorted({*offsets}) or not all(0 < offset < len(text) for offset in offsets):
            reason = f"expected rising offsets inside the text of {len(text)} characters, got {list(offsets)[:8]}"
            raise InputError(f"response {k}: the rule's cuts: {reason}")
    owner = np.repeat(np.arange(len(texts)), [len(offsets) for offsets in all_offsets])
    offset = np.concatenate([np.zeros(0, dtype=np.int64), *(offsets.astype(np.int64) for offsets in all_offsets)])
    return _spans(owner, offset, np.fromiter(map(len, texts), dtype=np.int64, count=len(texts)))


def with_cuts(spans: SpanColumns, inside: Mapping[int, Sequence[tuple[int, int]]]) -> SpanColumns:
    """Cuts pieces at the start and end of additional spans.

    Args:
        spans: Pieces of n texts.
        inside: Mapping from the index of a text to sorted, disjoint spans in this text.
    """
    if not inside:
        return spans
    lengths = np.zeros(len(spans), dtype=np.int64)
    filled = np.diff(spans.indptr) > 0
    lengths[filled] = spans.end[spans.indptr[1:][filled] - 1]
    owner = np.repeat(np.arange(len(spans)), np.diff(spans.indptr))
    further = [(k, at) for k, text_spans in inside.items() for span in text_spans for at in span]
    pairs = np.concatenate([np.stack([owner, spans.start], axis=1), np.array(further).reshape(-1, 2)])
    pairs = np.unique(pairs, axis=0)
    pairs = pairs[(pairs[:, 1] > 0) & (pairs[:, 1] < lengths[pairs[:, 0]])]
    return _spans(pairs[:, 0], pairs[:, 1], lengths)


def _spans(owner: NDArray[np.int64], offset: NDArray[np.int64], lengths: NDArray[np.int64]) -> SpanColumns:
    """Returns the pieces between cuts; the cuts are sorted by text and offset. An empty text has no pieces."""
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
    """Returns the text index and the offset of every cut, sorted by text and offset."""
    n_passes = min(len(texts), -(-int(lengths.sum()) // _PASS))
    if rule == "discourse" and n_passes > 1:
        bounds = np.linspace(0, len(texts), n_passes + 1).astype(int).tolist()
        parts = [
            _batch_cuts(
                texts[low:high],
                lengths[low:high],
                rule,
                None if mentions is None else _mentions_of(mentions, low, high),
            )
            for low, high in pairwise(bounds)
        ]
        owners = [owner + low for (owner, _), low in zip(parts, bounds, strict=False)]
        return np.concatenate(owners), np.concatenate([offset for _, offset in parts])
    simple, slow = _simplified(texts)
    if len(slow) == len(texts):
        owner = offset = np.zeros(0, dtype=np.int64)
    elif rule == "discourse":
        owner, offset, unclear = _discourse_cuts(simple, texts, lengths, mentions)
        slow = sorted({*slow, *unclear})
    else:
        owner, offset = _plain_cuts(simple, texts, lengths, rule, mentions)
    if not slow:
        return owner, offset
    pairs = []
    for k in slow:
        spans = []
        if mentions is not None:
            rows = mentions.row(k)
            spans = list(zip(mentions.start[rows].tolist(), mentions.end[rows].tolist(), strict=True))
        pairs += [(k, at) for at, _ in cuts_of(texts[k], rule, spans)]
    extra = np.array(pairs, dtype=np.int64).reshape(-1, 2)
    owner = np.concatenate([owner, extra[:, 0]])
    offset = np.concatenate([offset, extra[:, 1]])
    order = np.argsort(owner * (int(lengths.max()) + 1) + offset, kind="stable")
    return owner[order], offset[order]


def _mentions_of(mentions: MentionColumns, low: int, high: int) -> MentionColumns:
    """Returns the mentions in a range of texts."""
    indptr = mentions.indptr[low : high + 1]
    rows = slice(int(indptr[0]), int(indptr[-1]))
    return MentionColumns(indptr - indptr[0], mentions.start[rows], mentions.end[rows], mentions.label_id[rows])


def _simplified(texts: Sequence[str]) -> tuple[list[str], list[int]]:
    """Converts texts to ASCII, character by character, and returns the converted texts and the indices of texts that
    cannot be converted.

    Each text that cannot be converted is replaced by an empty string, and ``segment.py`` segments the original text
    separately.
    """
    if len(texts) == 1 and len(texts[0]) < _LONG:
        return [""], [0]  # it can be segmented in less time than the arrays need
    simple = list(texts)
    slow: list[int] = []
    for k, text in enumerate(texts):
        if not text.isascii():
            at = _NON_ASCII.search(text)
            while at is not None and (replacement := _to_ascii(at[0])) != at[0]:
                text = text.replace(at[0], replacement)
                at = _NON_ASCII.search(text, at.end())
            simple[k] = text
        if not text.isascii() or "\0" in text or _LONG_DASH.decode() in texts[k]:
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
    """Returns the text index and the offset of every cut in texts that were converted to ASCII, sorted by text and
    offset.
    """
    joined = _PAD + "\0".join(simple).encode("ascii") + _PAD
    widths = np.fromiter(map(len, simple), dtype=np.int64, count=len(simple))
    base = len(_PAD) + np.cumsum(widths + 1) - widths - 1
    cut, sentence = _byte_boundaries(joined, base, texts)
    owner = np.searchsorted(base, cut, side="right") - 1
    begin = base[owner]
    end = (base + widths)[owner]
    keep = cut < end  # nothing is cut at the very end
    if mentions is not None:
        keep &= ~_inside_mention(owner, cut - begin, mentions, lengths)
    if not keep.all():
        cut, sentence, owner, begin, end = cut[keep], sentence[keep], owner[keep], begin[keep], end[keep]

    blank = np.frombuffer(joined.translate(_BLANKS), dtype=np.uint8)
    begins = blank[:-1] > blank[1:]
    begins[cut - 1] = True  # a cut inside a chunk (word--word) divides it into two chunks
    chunks = np.zeros(len(joined), dtype=np.int32)  # chunks[k]: white-space chunks that begin at or before byte k
    np.cumsum(begins, out=chunks[1:])
    reached = chunks[cut - 1]
    before = reached - chunks[begin - 1]
    keep = before > 0  # leading white space is not a piece
    if rule == "sentence":
        keep &= sentence
    elif rule == "subsentence" and len(cut):
        last = np.flatnonzero(owner[1:] != owner[:-1])  # of each text but the last
        after = np.append(reached[1:], 0)
        after[last] = chunks[end[last] - 1]
        after[-1] = chunks[end[-1] - 1]
        after -= reached
        # words of the sentence before each cut: since the latest sentence cut of the same text
        started = np.maximum.accumulate(np.where(sentence & keep, reached, chunks[begin - 1]))
        in_sentence = before.copy()
        in_sentence[1:] = reached[1:] - np.maximum(started[:-1], reached[1:] - before[1:])
        keep &= sentence | ((in_sentence >= MIN_WORDS) & (after >= MIN_WORDS))
    if not keep.all():
        cut, owner, begin = cut[keep], owner[keep], begin[keep]
    return owner, cut - begin


def _has_lines(
    text: NDArray[np.uint8], classes: NDArray[np.uint8], base: NDArray[np.int64], widths: NDArray[np.int64]
) -> NDArray[np.bool_]:
    """Returns a (texts,) mask of the texts in which a line may not be a paragraph of complete sentences. Such texts
    must be segmented individually under the rule ``discourse``.

    Args:
        text: Texts converted to ASCII, in one array with border bytes around and between them.
        classes: Byte classes of ``text``.
        base, widths: Position and length of each text.
    """
    lined = np.zeros(len(base) + 1, dtype=bool)  # the last one is for positions before all texts

    def mark(places: NDArray[np.int64]) -> None:
        lined[np.searchsorted(base, places, side="right") - 1] = True

    mark(np.flatnonzero(classes == _RETURN))
    is_end = classes == _NEWLINE
    ends = np.flatnonzero(is_end[1:] > is_end[:-1]) + 1  # the first of consecutive line ends
    owner = np.searchsorted(base, ends, side="right") - 1
    has_ends = np.zeros_like(lined)
    has_ends[owner] = True
    quoted = np.flatnonzero((classes[:-1] == _SENTENCE) & (classes[1:] & _QUOTED != 0))
    mark(quoted[has_ends[np.searchsorted(base, quoted, side="right") - 1]])
    before, behind = _solid(ends, text, -1), _solid(ends, text, 1)
    is_last = text[behind] == 0
    complete = (classes[before] == _SENTENCE) & _ALNUM[text[before - 1]] & _ALPHA[text[behind]]
    lined[owner[~is_last & ~complete]] = True
    texts = np.flatnonzero(has_ends)
    first, last = base[texts], _solid((base + widths)[texts], text, -1)
    lined[texts[~_ALPHA[text[first]] | _LEADS[text[last]]]] = True
    return lined[:-1]


def _solid(place: NDArray[np.int64], text: NDArray[np.uint8], step: int) -> NDArray[np.int64]:
    """Returns the position of the first non-white-space character after (``step`` 1) or before (``step`` -1) each
    position.
    """
    found = place + step
    rows = np.flatnonzero(_SPACE_BYTES[text[found]])
    for _ in range(8):  # white space is short, as a rule
        if not len(rows):
            return found
        found[rows] += step
        rows = rows[_SPACE_BYTES[text[found[rows]]]]
    solid = np.flatnonzero(~_SPACE_BYTES[text])
    found[rows] = solid[np.searchsorted(solid, found[rows]) - (step < 0)]
    return found


def _sentence_mark(joined: bytes, begin: int, cut: int) -> int:
    """Returns the position of the sentence mark before a cut in the text that starts at ``begin``. Closing marks and
    white space may lie between the mark and the cut.
    """
    unit = joined[begin:cut].rstrip(_SPACE_CHARACTERS).rstrip(_CLOSING_CHARACTERS)
    return begin + len(unit.rstrip(b".!?"))


class _Prose(NamedTuple):
    """The parts of texts that consist of sentences: a whole text, or the prose of a block. A part may be empty.

    Attributes:
        begin, end: (parts,) span of each part in the joined texts, in order.
        blocks: Positions at which the second block of a text, and each further block, begins.
        unclear: Indices of the texts that must be segmented individually. Their parts are empty.
    """

    begin: NDArray[np.int64]
    end: NDArray[np.int64]
    blocks: NDArray[np.int64]
    unclear: list[int]


def _prose(texts: Sequence[str], lined: NDArray[np.bool_], base: NDArray[np.int64]) -> _Prose:
    """Returns the parts of texts, of which those that ``lined`` selects are divided into blocks.

    Args:
        texts: n texts.
        lined: (n,) mask.
        base: (n + 1,) position of each text in the joined texts, and the position at which a further text would begin.
    """
    parts, blocks, unclear = list[tuple[int, int]](), list[int](), list[int]()
    for k in np.flatnonzero(lined).tolist():
        first = int(base[k])
        text_blocks = [*blocks_of(texts[k])]
        if any(LINE_END.search(texts[k][prose:end].rstrip()) for _, prose, end in text_blocks):
            unclear.append(k)  # a sentence continues on another line
            parts.append((first, first))
        else:
            parts += [(first + prose, first + end) for _, prose, end in text_blocks]
            blocks += [first + begin for begin, _, _ in text_blocks[1:]]
    divided = np.array(parts, dtype=np.int64).reshape(-1, 2)
    begin = np.concatenate([base[:-1][~lined], divided[:, 0]])
    end = np.concatenate([base[1:][~lined] - 1, divided[:, 1]])
    order = np.argsort(begin, kind="stable")
    return _Prose(begin[order], end[order], np.array(blocks, dtype=np.int64), unclear)


def _unquoted(
    cut: NDArray[np.int64], sentence: NDArray[np.bool_], joined: bytes, quotes: NDArray[np.int64]
) -> NDArray[np.bool_]:
    """Returns a mask of the cuts that are outside of quotations, and not behind a quotation in a sentence that goes on.

    Args:
        cut: Sorted positions of the cuts.
        sentence: Mask of the cuts that end a sentence.
        joined: Joined texts.
        quotes: (quotations, 2) spans of the quotations, in order.
    """
    low, high = quotes.T
    nearest = np.searchsorted(low, cut) - 1
    keep: NDArray[np.bool_] = (nearest < 0) | (cut >= high[nearest])
    behind = np.searchsorted(cut, high)
    rows = np.flatnonzero(behind < len(cut))
    rows = rows[sentence[behind[rows]]]
    for begin, end, at in zip(low[rows].tolist(), high[rows].tolist(), behind[rows].tolist(), strict=True):
        if joined[cut[at] : cut[at] + 1].islower() and begin < _sentence_mark(joined, begin, int(cut[at])) < end:
            keep[at] = False
    return keep


def _discourse_cuts(
    simple: Sequence[str], texts: Sequence[str], lengths: NDArray[np.int64], mentions: MentionColumns | None
) -> tuple[NDArray[np.int64], NDArray[np.int64], list[int]]:
    """Returns the sorted cuts that the rule ``discourse`` makes in texts converted to ASCII, and the indices of the
    texts that must be segmented individually.

    Array operations locate the punctuation marks and the bounds of sentences. Words are examined only in sentences that
    contain a clause mark with enough words on both sides.
    """
    joined = _PAD + "\0".join(simple).encode("ascii") + _PAD
    # A block that is freed immediately: glibc then keeps as much memory for the arrays below. Otherwise, it would
    # return the memory to the system after each pass and request it again.
    np.empty(12 * len(joined), dtype=np.uint8)
    widths = np.fromiter(map(len, simple), dtype=np.int64, count=len(simple))
    bounds = len(_PAD) + np.append(0, np.cumsum(widths + 1))
    base = bounds[:-1]
    cut, sentence = _byte_boundaries(joined, base, texts)
    text = np.frombuffer(joined, dtype=np.uint8)
    classes = np.frombuffer(joined.translate(_DISCOURSE_CLASSES), dtype=np.uint8)
    prose = _prose(texts, _has_lines(text, classes, base, widths), bounds)
    part = np.searchsorted(prose.begin, cut, side="right") - 1
    keep = (cut > prose.begin[part]) & (cut < prose.end[part])
    quoting = dict.fromkeys(_places(np.flatnonzero(classes & _QUOTE != 0), base)[0].tolist())
    quotes = [(at + begin, at + end) for k in quoting for at in (int(base[k]),) for begin, end in quotes_of(texts[k])]
    if quotes:
        keep &= _unquoted(cut, sentence, joined, np.array(quotes))
    unclear, blocks = prose.unclear, prose.blocks
    if mentions is not None:
        owner, offset = _places(np.concatenate([cut[keep], blocks]), base)
        crossed = owner[_inside_mention(owner, offset, mentions, lengths)]
        if len(crossed):
            unclear = [*unclear, *np.unique(crossed).tolist()]
            keep &= ~np.isin(_places(cut, base)[0], crossed)
            blocks = blocks[~np.isin(_places(blocks, base)[0], crossed)]
    cut, sentence, part = cut[keep], sentence[keep], part[keep]

    solid = classes == _SOLID
    words = np.zeros(len(joined) + 1, dtype=np.int32)  # words[k]: runs of letters and digits that begin before byte k
    np.cumsum(solid[1:] > solid[:-1], out=words[2:])
    # sentences: a word in each and behind it
    ends = np.flatnonzero(sentence)
    at, of = cut[ends], part[ends]
    before = prose.begin[of]
    same = np.flatnonzero(of[1:] == of[:-1]) + 1
    before[same] = at[same - 1]
    goes_on = words[prose.end[of]] > words[at]
    prose_end = prose.end.copy()  # a sentence mark without a following word needs no check
    np.minimum.at(prose_end, of[~goes_on], at[~goes_on])
    good = goes_on & (words[at] > words[before])
    at = at[good]
    # clauses: of the sentence around each mark
    marks, mark_of = cut[~sentence], part[~sentence]
    begins = np.sort(np.concatenate([prose.begin, at]))
    stops = np.append(begins[1:], len(joined))
    place = np.searchsorted(begins, marks, side="right") - 1
    begin = begins[place]
    end = np.minimum(stops[place], prose.end[mark_of])
    keep = (words[marks] > words[begin]) & (marks <= prose_end[mark_of])
    marks, begin, end = marks[keep], begin[keep], end[keep]
    long_enough = (words[marks] - words[begin] >= MIN_WORDS) & (words[end] - words[marks] >= MIN_WORDS)
    sentence_of = np.cumsum(np.diff(begin, prepend=-1) > 0) - 1
    keep = (np.bincount(sentence_of, weights=long_enough) > 0)[sentence_of]  # sentences that can be cut
    marks, begin, end = marks[keep], begin[keep], end[keep]
    is_first = np.diff(begin, prepend=-1) > 0
    firsts, sentence_of = np.flatnonzero(is_first), np.cumsum(is_first) - 1
    lowered = np.frombuffer(joined.lower(), dtype=np.uint8)
    borders = np.flatnonzero(solid[1:] != solid[:-1]) + 1
    runs = Runs(np.ascontiguousarray(borders[::2]), np.ascontiguousarray(borders[1::2]), words)
    is_cut = clause_cuts(lowered, begin[firsts], end[firsts], marks, sentence_of, runs)
    cut = np.sort(np.concatenate([at, marks[is_cut], blocks]))
    return *_places(cut, base), unclear


def _places(position: NDArray[np.int64], base: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Returns the index of the text and the offset in this text for each position in the joined texts."""
    owner = np.searchsorted(base, position, side="right") - 1
    return owner, position - base[owner]


def _inside_mention(
    owner: NDArray[np.int64], position: NDArray[np.int64], mentions: MentionColumns, lengths: NDArray[np.int64]
) -> NDArray[np.bool_]:
    """Returns a mask that is True for cuts inside a mention."""
    if not len(mentions.start):
        return np.zeros(len(owner), dtype=bool)
    stride = int(lengths.max(initial=0)) + 1  # one number line for all texts
    begins = mentions.caption * stride + mentions.start
    previous = np.searchsorted(begins, owner * stride + position, side="left") - 1
    nearest = np.maximum(previous, 0)
    inside: NDArray[np.bool_] = (
        (previous >= 0) & (mentions.caption[nearest] == owner) & (position < mentions.end[nearest])
    )
    return inside


def _byte_boundaries(
    joined: bytes, base: NDArray[np.int64], texts: Sequence[str]
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Returns the distinct boundaries in text order: their positions after the white space, and a mask of the
    boundaries that end a sentence.
    """
    text = np.frombuffer(joined, dtype=np.uint8)
    classes = np.frombuffer(joined.translate(_CLASSES), dtype=np.uint8)
    kinds = np.frombuffer(joined.translate(_KIND_TABLE), dtype=np.uint8)
    asking = kinds != 0
    asking[1:] &= (kinds[1:] != kinds[:-1]) | (kinds[1:] == 2)  # the first mark of a sequence represents the sequence
    at = np.flatnonzero(asking)
    kind, previous, following = kinds[at], classes[at - 1], classes[at + 1]
    is_sentence, is_dash = kind == 1, kind == 3
    ends = following & (_SPACE | _BORDER) > 0  # white space, or the end of the text
    yes = (kind == 4) | (ends & (kind == 2)) | (ends & is_sentence)
    # the reference implementation decides sequences of marks, closing marks and the unclear cases below
    other = ~ends & ~is_dash & (kind != 4)
    asked = other & ((following & _CLOSER > 0) | (is_sentence & (kinds[at + 1] == 1)))
    glued = np.flatnonzero(other & ~asked & is_sentence & (following & _UPPER > 0) & (previous & _LOWER > 0))
    yes[glued] = classes[at[glued] - 2] & _LOWER > 0  # table.The cat
    dash = np.flatnonzero(is_dash)
    if len(dash):
        yes[dash], asked[dash] = _dashes(text, classes, kinds, at[dash])
    is_stop = yes & (text[at] == ord("."))
    number = np.flatnonzero(is_stop & (previous & _DIGIT > 0))
    if len(number):
        yes[number], asked[number] = _behind_numbers(text, classes, at[number])
    stop = np.flatnonzero(is_stop & (previous & _LETTER > 0))
    asked[stop] |= _after_abbreviation(joined, at[stop])
    if b"://" in joined or b"www." in joined:  # URLs may contain marks
        asked |= yes & (is_dash | ~ends) & (kind != 4)
    yes &= ~asked
    asked_at, cut, kind = at[asked], at[yes], kind[yes]
    cut += kind != 4  # a line end is itself white space
    cut += (kind == 3) & (kinds[cut] == 3)
    _move_behind_spaces(cut, text)
    sentence = (kind == 1) | (kind == 4)
    if len(asked_at):
        owner = np.searchsorted(base, asked_at, side="right") - 1
        extra = [
            (offset + begin, ends_sentence)
            for k, marks in groupby(zip(owner.tolist(), asked_at.tolist(), strict=True), key=itemgetter(0))
            for begin in (int(base[k]),)
            for offset, ends_sentence in boundaries(texts[k], (mark - begin for _, mark in marks))
        ]
        cut = np.concatenate([cut, np.array([offset for offset, _ in extra], dtype=np.int64)])
        sentence = np.concatenate([sentence, np.array([ends for _, ends in extra], dtype=bool)])
        order = np.argsort(cut, kind="stable")
        cut, sentence = cut[order], sentence[order]
    if not len(cut):
        return cut, sentence
    first = np.ones(len(cut), dtype=bool)
    first[1:] = cut[1:] != cut[:-1]
    starts = np.flatnonzero(first)
    return cut[starts], np.logical_or.reduceat(sentence, starts)  # of duplicate cuts, the end of a sentence counts


def _dashes(
    text: NDArray[np.uint8], classes: NDArray[np.uint8], kinds: NDArray[np.uint8], at: NDArray[np.int64]
) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Returns two masks for runs of dashes. The first mask is True for runs that separate clauses, and the second for
    runs that must be examined individually.
    """
    second = kinds[at + 1] == 3
    previous, following = classes[at - 1], classes[at + 1 + second]
    blank = previous & _BLANK > 0
    before = np.where(blank, classes[at - 2], previous)
    unclear = (second & (kinds[at + 2] == 3)) | (blank & (before & _BLANK > 0))
    long = (text[at] == _LONG_DASH[0]) | second
    spaced = (previous & following & _SPACE > 0) & ~second
    parts = (long & (previous & following & _DIGIT == 0)) | spaced
    return parts & (before & (_BORDER | _SPACE) == 0) & (following & _BORDER == 0), unclear


def _behind_numbers(
    text: NDArray[np.uint8], classes: NDArray[np.uint8], at: NDArray[np.int64]
) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Returns two masks for periods that follow digits. The first mask is True for periods that end a sentence; the
    second is True for periods that must be examined individually.
    """
    begin = at - 1
    for _ in range(3):
        longer = np.flatnonzero(classes[begin - 1] & _DIGIT)
        if not len(longer):
            break
        begin[longer] -= 1
    before = classes[begin - 1]
    skipped = before & (_BLANK | _SKIPPED) > 0
    line_begin = begin - 1 - skipped
    first = text[line_begin]
    of_list = (first == 0) | (first == ord("\n")) | (first == ord("\r"))
    unclear = (before & (_LETTER | _DIGIT) > 0) | (text[begin - 1] == ord("."))
    return ~of_list, unclear | (skipped & (classes[line_begin] & (_BLANK | _SKIPPED) > 0))


def _move_behind_spaces(position: NDArray[np.int64], text: NDArray[np.uint8]) -> None:
    """Moves each position that is inside white space to the end of the white space. The array is changed in place."""
    moving = np.flatnonzero(_SPACE_BYTES[text[position]])
    for _ in range(16):  # white space is short, as a rule
        if not len(moving):
            return
        position[moving] += 1
        moving = moving[_SPACE_BYTES[text[position[moving]]]]
    solid = np.flatnonzero(~_SPACE_BYTES[text])
    position[moving] = solid[np.searchsorted(solid, position[moving])]


def _after_abbreviation(joined: bytes, at: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Returns a mask of the periods that may belong to an abbreviation or an initial."""
    eight = np.ndarray(shape=len(joined) - 7, dtype="<u8", buffer=joined, strides=(1,))
    text = np.frombuffer(joined, dtype=np.uint8)
    tail = eight[at - 8] | np.uint64(0x2020202020202020)  # lower case; take would copy the whole unaligned array
    maybe: NDArray[np.bool_] = ~_ALNUM[text[at - 2]]  # one letter
    for n, keys in _ABBREVIATION_KEYS.items():
        maybe |= np.isin(tail >> np.uint64(8 * (8 - n)), keys) & ~_ALNUM[text[at - n - 1]]
    maybe |= text[at - 2] == ord(".")
    return maybe
