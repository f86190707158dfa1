"""The visible form of a text, without hidden text, zero-width characters and look-alike letters.

A caption is matched in the form in which a person sees it. Mentions in HTML comments and in elements that are not
displayed are not found. A soft hyphen or a zero-width space inside a word does not split the word. In Latin text, a
letter that looks like a Latin letter is treated as that Latin letter. The spans of mentions still refer to the original
text.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from functools import cache

_HIDDEN = re.compile(
    r"<!--.*?(?:-->|\Z)"
    r"|<(?P<tag>script|style|template)\b[^<>]{0,500}>.*?(?:</(?P=tag)\s*>|\Z)"
    r"|<(?P<name>\w{1,20})\b[^<>]{0,500}(?:\shidden\b|display\s*:\s*none|visibility\s*:\s*hidden|font-size\s*:\s*0)"
    r"[^<>]{0,500}>.*?(?:</(?P=name)\s*>|\Z)"
    r"|^\[[^\]\n]{1,20}\]:\s*(?:#|<>)[^\n]*$",
    re.DOTALL | re.IGNORECASE | re.MULTILINE,
)

_LOOK_ALIKE = """
a ɑΑαАаᎪꓮ
b ΒВЬᏏᏴꓐ
c СсᏟⲤⲥꓚꮯ
d ԁᎠᏧꓒꓓ
e ΕЕеҽᎬꓰ
f Ϝքꓝ
g ɡԌցᏀᏳꓖ
h ΗНһհᎻᏂⲎꓧ
i ιіӏᎥιꙇꭵ
j ͿϳЈјᎫꓙ
k ΚКᏦⲔꓗ
l ΙІӀᏞⲒⳐꓡꓲ
m ΜϺМᎷⲘꓟ
n ΝոռⲚꓠ
o ΟοσОоՕօⲞⲟꓳ
p ΡρРрᏢⲢⲣꓑ
q ԛգզ
r гᎡᏒᴦⲅꓣꮁ
s ЅѕՏᏕᏚꓢꮪ
t ΤТᎢⲦꓔ
u υՍսꓴ
v νѴѵᏙꓦꮩ
w ѡԜԝաᎳᏔꓪꮃ
x ΧХхⲬꓫ
y ΥγУуҮүᎩᎽⲨꓬ
z ΖᏃꓜꮓ
"""
"""Letters that look like a Latin letter, according to Unicode's list of confusables (Technical Standard 39).

Each row starts with the Latin letter. The letters are Greek, Cyrillic, Armenian, Cherokee, Coptic, Lisu and phonetic
letters, in upper or lower case.
"""

_ASCII_LETTER = re.compile("[A-Za-z]")
_WORD = re.compile(r"[^\W\d_]+")
_NO_WIDTH = "\u200b-\u200f\u202a-\u202e\u2060-\u2064\u2066-\u2069\ufeff\u180e\u034f\u061c"
_BREAK = re.compile(f"[{_NO_WIDTH}\u00ad]")
_BETWEEN = re.compile(f"(?<=[^\\W_])\u00ad+(?=[^\\W_])|(?<=[A-Za-z0-9])[{_NO_WIDTH}\u00ad]+(?=[A-Za-z0-9])")


def shown(text: str) -> str:
    """Returns a text of the same length in which the characters that a reader does not see are replaced by spaces."""
    if "<" not in text and "[" not in text:
        return text
    return _HIDDEN.sub(lambda hidden: " " * len(hidden.group()), text)


def all_shown(texts: Sequence[str]) -> Sequence[str]:
    """Applies :func:`shown` to each text of a list."""
    together = "".join(texts)
    return [*map(shown, texts)] if "<" in together or "[" in together else texts


@cache
def _plain() -> tuple[dict[str, str], dict[str, str], re.Pattern[str]]:
    """Returns a mapping from the variants of ASCII letters and digits, a mapping from the look-alike letters, and a
    pattern that matches the keys of both mappings.
    """
    variants = dict[str, str]()
    for code in (*range(0x1D400, 0x1D800), *range(0xFF10, 0xFF5B), *range(0x24B6, 0x24EA)):
        plain = unicodedata.normalize("NFKC", chr(code))
        if len(plain) == 1 and plain.isascii() and plain.isalnum():
            variants[chr(code)] = plain
    rows = (row.split() for row in _LOOK_ALIKE.split("\n") if row)
    alike = {character: latin for latin, characters in rows for character in characters}
    return variants, alike, re.compile(f"[{''.join((*variants, *alike))}]")


def plain_letters(text: str) -> str:
    """Replaces variants of ASCII letters and digits (full-width, mathematical, circled) with the corresponding ASCII
    characters. The length of the text does not change.

    In text that is mostly Latin, look-alike letters are also replaced in words that contain only Latin letters and
    look-alikes.
    """
    variants, alike, find = _plain()
    if text.isascii() or find.search(text) is None:
        return text
    text = "".join(variants.get(character, character) for character in text)
    letters = sum(map(str.isalpha, text))
    if 2 * len(_ASCII_LETTER.findall(text)) <= letters:
        return text

    def spelled(word: re.Match[str]) -> str:
        plain = "".join(alike.get(character, character) for character in word.group())
        return plain if len(plain) > 1 and plain.isascii() else word.group()

    return _WORD.sub(spelled, text)


def without_breaks(text: str) -> tuple[str, list[int]] | None:
    """Removes the zero-width characters inside words.

    Returns:
        The changed text, and the position of each of its characters in the original text. The result is None if no
        character was removed.
    """
    if text.isascii() or _BREAK.search(text) is None or _BETWEEN.search(text) is None:
        return None
    places: list[int] = []
    at = 0
    for match in _BETWEEN.finditer(text):
        places += range(at, match.start())
        at = match.end()
    places += range(at, len(text))
    return "".join(map(text.__getitem__, places)), places


@cache
def disguises() -> str:
    """Returns a string of characters, at least one of which occurs in every disguised text."""
    variants, alike, _ = _plain()
    no_width = re.findall(f"[\u00ad{_NO_WIDTH}]", "".join(map(chr, range(0xAD, 0xFF00))))
    return "".join((*variants, *alike, *no_width))


def is_disguised(text: str) -> bool:
    """Returns True if words of a text are disguised by look-alike letters or zero-width characters. The function does
    not check hidden spans.
    """
    return plain_letters(text) != text or without_breaks(text) is not None
