"""Preparation of texts for matching: case folding, division into words, and the joins between the words of an alias.

Words are defined in the same way for vocabularies and captions (``docs/specification.md#matching``). Letters, digits,
combining marks and ``_`` form words, and every other character separates words. In scripts without spaces, each letter
with its combining marks is a word, so that an alias matches inside continuous text. Texts are compared after case
folding and conversion to NFC, but all spans refer to the original string.
"""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache
from itertools import chain, pairwise

GAP = " "
"""The join that any run of white space or a single hyphen satisfies."""

HYPHENS = "-\u2010\u2011"
"""Hyphen-minus, hyphen and non-breaking hyphen. Recent models write the non-breaking hyphen in words such as
``T-shirt``.
"""


def lower_in_place(text: str) -> str:
    """Returns a text of the same length in lower case. Letters whose lower case is longer are unchanged."""
    lowered = text.lower()
    return lowered if len(lowered) == len(text) else "".join(c.lower() if len(c.lower()) == 1 else c for c in text)


_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufeff]")


def printable(text: str) -> str:
    r"""Escapes control characters, direction marks and lone surrogates for output in a terminal (for example, as
    ``\x1b``).

    Tabs and line ends are kept.
    """
    return text if text.isascii() and text.isprintable() else _CONTROL.sub(_escaped, text)


def _escaped(match: re.Match[str]) -> str:
    return match.group().encode("unicode_escape", "surrogatepass").decode("ascii")


_NUMBER = re.compile(r"[-+]?(?:\d[\d,]*(?:\.\d*)?|\.\d+)(?:e[-+]?\d+)?\s?%?", re.IGNORECASE | re.ASCII)
_guards = True


def guard_cells(on: bool) -> None:
    """Enables or disables :func:`guarded` in this process (``--guard-cells``, ``--plain-cells``)."""
    global _guards
    _guards = on


def guarded(cell: str) -> str:
    """Prefixes a CSV or TSV cell with ``'`` if a spreadsheet would treat it as a formula. Numbers are unchanged."""
    formula = cell[:1] in ("=", "+", "-", "@", "\t", "\r") and len(cell) > 1
    return f"'{cell}" if _guards and formula and not _NUMBER.fullmatch(cell) else cell


def unguarded(cell: str) -> str:
    """Removes the ``'`` that :func:`guarded` added to a cell."""
    return cell[1:] if cell[:1] == "'" and cell[1:2] in ("=", "+", "-", "@", "\t", "\r") and cell[1:2] else cell


_UNSPACED = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff"  # Thai, Lao, Burmese, Khmer
    "\u1950-\u19df\u1a20-\u1aaf\u1b00-\u1b7f\ua980-\ua9ff\uaa00-\uaadf"  # Tai, Balinese, Javanese, Cham
    "\u3005-\u3007\u3021-\u3029\u3031-\u3035\u3038-\u303c\u3040-\u30ff\u31f0-\u31ff\uff66-\uff9f"  # kana, marks
    "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"  # Han
)
_UNSPACED_LETTER = f"(?=\\w)[{_UNSPACED}]"

_MARKS = ("Mn", "Mc", "Me")
_MARK_BLOCKS = (
    *(range(0x300, 0x3100), range(0xA600, 0xAC00), range(0xFB00, 0x12000), range(0x16A00, 0x17000)),
    *(range(0x1B000, 0x1F000), range(0xE0100, 0xE01F0)),
)
"""Unicode ranges that contain combining marks."""

_PLAIN = {0x2018: "'", 0x2019: "'", 0x2010: "-", 0x2011: "-"}
_SPACES = re.compile(r"\s+")


@lru_cache(maxsize=1)
def _word_pattern() -> re.Pattern[str]:
    """Returns the regular expression for a word, which is compiled when the first non-ASCII text is processed.

    The word-character class of regular expressions does not include all combining marks, so the pattern lists these
    marks explicitly.
    """
    codes = [c for block in _MARK_BLOCKS for c in block if unicodedata.category(chr(c)) in _MARKS]
    starts = [c for c, before in zip(codes, [0, *codes], strict=False) if c != before + 1]
    ends = [c for c, after in zip(codes, [*codes[1:], 0], strict=True) if c != after - 1]
    marks = "".join(f"{chr(start)}-{chr(end)}" for start, end in zip(starts, ends, strict=True))
    run = f"(?:[^\\W{_UNSPACED}]+|(?![\\x00-\u02ff])[{marks}])+"  # the look-ahead avoids the long class for ASCII text
    return re.compile(f"{run}|{_UNSPACED_LETTER}[{marks}]*")


_ASCII_WORD = re.compile(r"\w+", re.ASCII)
_ASCII_PARTS = re.compile(r"(\w+)", re.ASCII)


def fold(word: str) -> str:
    """Returns a word after case folding and conversion to NFC, which is the form in which words are compared."""
    if word.isascii():
        return word.lower()
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", word).casefold())


def is_unspaced(text: str) -> bool:
    """Returns True if a text begins with a letter or digit of a script without spaces."""
    return re.match(_UNSPACED_LETTER, text) is not None


def is_unspaced_mark(text: str) -> bool:
    """Returns True if a text begins with a combining mark of a script that is written without spaces."""
    return unicodedata.category(text[0])[0] == "M" and re.match(f"[{_UNSPACED}]", text) is not None


def join_of(between: str) -> str:
    """Returns the join that the text between two words represents.

    White space or a single hyphen is represented by GAP. Any other text is represented by itself, with normalized
    quotes, hyphens and spaces.
    """
    if between.isspace() or (len(between) == 1 and between in HYPHENS):
        return GAP
    return _SPACES.sub(" ", between.translate(_PLAIN))


def word_spans(text: str) -> list[tuple[int, int]]:
    """Returns ``(start, end)`` of every word in an NFC text."""
    pattern = _ASCII_WORD if text.isascii() else _word_pattern()
    return [match.span() for match in pattern.finditer(text)]


def word_parts(text: str) -> list[str]:
    """Splits an NFC text into a list in which the texts between words alternate with the words. The list begins with
    the text before the first word.
    """
    if text.isascii():
        return _ASCII_PARTS.split(text)
    borders = (0, *chain.from_iterable(word_spans(text)), len(text))
    return [text[start:end] for start, end in pairwise(borders)]


def nfc_with_map(text: str) -> tuple[str, list[int], list[int]] | None:
    """Converts a text to NFC and returns, for each character of the result, the span of the original characters from
    which it was made.

    Returns:
        ``(nfc, starts, ends)``, or None if the text is already in NFC.
    """
    if unicodedata.is_normalized("NFC", text):
        return None
    pieces: list[str] = []
    starts: list[int] = []
    ends: list[int] = []
    begin = 0
    while begin < len(text):
        end = begin + 1
        while end < len(text) and not text[end].isascii() and _combines(text, begin, end):
            end += 1
        piece = unicodedata.normalize("NFC", text[begin:end])
        pieces.append(piece)
        if piece == text[begin:end]:
            starts.extend(range(begin, end))
            ends.extend(range(begin + 1, end + 1))
        else:
            starts.extend([begin] * len(piece))
            ends.extend([end] * len(piece))
        begin = end
    return "".join(pieces), starts, ends


def _combines(text: str, begin: int, at: int) -> bool:
    """Returns True if NFC normalization combines the character at ``at`` with characters of ``text[begin:at]``."""
    if unicodedata.combining(unicodedata.normalize("NFD", text[at])[0]):
        return True
    before, character = (unicodedata.normalize("NFC", part) for part in (text[begin:at], text[at]))
    return unicodedata.normalize("NFC", text[begin : at + 1]) != before + character
