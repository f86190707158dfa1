"""The visible form of a text, without hidden text, zero-width characters and look-alike letters.

A caption is matched in the form in which a person sees it. Mentions in HTML comments and in elements that are not
displayed are not found. Character references are replaced. A soft hyphen, a zero-width space, a tag of an inline
element or emphasis inside a word does not split the word, and a pair of ``_`` around words is emphasis. In Latin text,
a letter that looks like a Latin letter is treated as that Latin letter. The spans of mentions still refer to the
original text.
"""

from __future__ import annotations

import html
import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from functools import cache

from ..base.errors import InputError, short_repr

_HIDDEN = re.compile(
    r"<!--.*?(?:-->|\Z)"
    r"|<(?P<tag>script|style|template)\b[^<>]{0,500}>.*?(?:</(?P=tag)\s*>|\Z)"
    r"|<(?P<name>\w{1,20})\b[^<>]{0,500}(?:\shidden\b|display\s*:\s*none|visibility\s*:\s*hidden|font-size\s*:\s*0)"
    r"[^<>]{0,500}>.*?(?:</(?P=name)\s*>|\Z)"
    r"|^\[[^\]\n]{1,20}\]:[^\S\n]*(?:#\S*|<>)(?:[^\S\n]+(?:\([^\n]*\)|\"[^\n]*\"|'[^\n]*'))?[^\S\n]*$",
    re.DOTALL | re.IGNORECASE | re.MULTILINE,
)

_LOOK_ALIKE = """
a ɑΑαАаᎪꓮ
b ΒВЬᏏᏴꓐв
c СсᏟⲤⲥꓚꮯ
d ԁᎠᏧꓒꓓ
e ΕЕеҽᎬꓰ
f Ϝքꓝ
g ɡԌցᏀᏳꓖ
h ΗНһհᎻᏂⲎꓧн
i ιіӏᎥιꙇꭵ
j ͿϳЈјᎫꓙ
k ΚКᏦⲔꓗк
l ΙІӀᏞⲒⳐꓡꓲ
m ΜϺМᎷⲘꓟм
n ΝոռⲚꓠ
o ΟοσОоՕօⲞⲟꓳ
p ΡρРрᏢⲢⲣꓑ
q ԛգզ
r гᎡᏒᴦⲅꓣꮁ
s ЅѕՏᏕᏚꓢꮪ
t ΤТᎢⲦꓔт
u υՍսꓴ
v νѴѵᏙꓦꮩ
w ѡԜԝաᎳᏔꓪꮃ
x ΧХхⲬꓫ
y ΥγУуҮүᎩᎽⲨꓬ
z ΖᏃꓜꮓ
"""
"""Letters that look like a Latin letter, according to Unicode's list of confusables (Technical Standard 39).

Each row starts with the Latin letter. The letters are Greek, Cyrillic, Armenian, Cherokee, Coptic, Lisu and phonetic
letters, in upper or lower case. Five Cyrillic letters that look like small capitals are added.
"""

_ASCII_LETTER = re.compile("[A-Za-z]")
_WORD = re.compile(r"[^\W\d_]+")
_VISIBLE_WORD = re.compile(r"[^\W_]+")
_NO_WIDTH = "\u200b-\u200f\u202a-\u202e\u2060-\u2064\u2066-\u2069\ufeff\u180e\u034f\u061c"
_BREAK = re.compile(f"[{_NO_WIDTH}\u00ad\u0332\u0333]")
_BETWEEN = re.compile(
    f"(?<=[^\\W_])\u00ad+(?=[^\\W_])|(?<=[A-Za-z0-9\u0332\u0333])[{_NO_WIDTH}\u00ad]+(?=[A-Za-z0-9])"
    "|(?<=[A-Za-z0-9])[\u0332\u0333]+"  # low lines
)
_REFERENCE_OR_TAG = re.compile(
    r"&(?:#\d{1,7}|#[xX][0-9a-fA-F]{1,6}|[A-Za-z][A-Za-z0-9]{1,31});"
    r"|</?(?:a|b|big|code|em|font|i|ins|mark|small|span|strong|sub|sup|tt|u|wbr)(?:\s[^<>]{0,200})?/?>",
    re.IGNORECASE,
)
_EMPHASIS = re.compile(r"\*{1,3}(?=[A-Za-z])")
_ASTERISKS = re.compile(r"\*+")
_EMPHASIS_REACH = 200  # characters between the two runs of an emphasis
_UNDERSCORES = re.compile(r"(?<!\w)(_{1,3})(?=[^\s_])([^\n]{0,200}?[^\s_])\1(?!\w)")


def shown(text: str) -> str:
    """Returns a text of the same length in which the characters that a reader does not see are replaced by spaces, or
    by zero-width characters inside a word. Pairs of underscores that are emphasis are replaced by asterisks.

    Raises:
        InputError: If ``text`` is not a string.
    """
    if not isinstance(text, str):
        raise InputError(f"a text must be a string, got {short_repr(text)}")
    if "<" in text or "[" in text:
        text = _HIDDEN.sub(_blank, text)
    return _with_asterisks(text) if "_" in text else text


def _with_asterisks(text: str) -> str:
    def replaced(emphasis: re.Match[str]) -> str:
        marks, inner = emphasis.groups()
        asterisks = "*" * len(marks)
        return f"{asterisks}{_with_asterisks(inner)}{asterisks}"

    return _UNDERSCORES.sub(replaced, text)


def _blank(hidden: re.Match[str]) -> str:
    text, (start, end) = hidden.string, hidden.span()
    is_inside = text[start - 1 : start].isalnum() and text[end : end + 1].isalnum()
    return ("\u200b" if is_inside else " ") * (end - start)


def listed(texts: Iterable[str]) -> Sequence[str]:
    """Returns texts as a list or tuple, so that they can be indexed by position (unlike a pandas Series).

    Raises:
        InputError: If ``texts`` is a string or not iterable.
    """
    if isinstance(texts, (list, tuple)):
        return texts
    if isinstance(texts, str) or not isinstance(texts, Iterable):
        found = "a single string" if isinstance(texts, str) else type(texts).__name__
        raise InputError(f"expected a list of texts, found {found}")
    return [*texts]


def all_shown(texts: Sequence[str]) -> Sequence[str]:
    """Applies :func:`shown` to each text of a list.

    Raises:
        InputError: If one of the texts is not a string.
    """
    try:
        together = "".join(texts)
    except TypeError:
        return [*map(shown, texts)]
    return [*map(shown, texts)] if "<" in together or "[" in together or "_" in together else [*texts]


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

    Look-alike letters are also replaced in words that contain only Latin letters and look-alikes, if the text
    contains more Latin letters than other letters. Words with letters of both kinds are not counted as other letters.
    """
    variants, alike, find = _plain()
    if text.isascii() or find.search(text) is None:
        return text
    text = "".join(variants.get(character, character) for character in text)

    def spelled(word: str) -> str:
        plain = "".join(alike.get(character, character) for character in word)
        return plain if len(plain) > 1 and plain.isascii() else word

    others = sum(
        sum(not letter.isascii() for letter in word)
        for word in _WORD.findall(text)
        if not (spelled(word).isascii() and _ASCII_LETTER.search(word))
    )
    if len(_ASCII_LETTER.findall(text)) <= others:
        return text
    return _WORD.sub(lambda word: spelled(word.group()), text)


def without_breaks(text: str) -> tuple[str, list[int]] | None:
    """Removes the zero-width characters inside words, and the combining low lines.

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


def has_markup(text: str) -> bool:
    """Returns True if :func:`without_markup` changes a text."""
    if ("&" in text or "<" in text) and any(map(_displayed_of, _REFERENCE_OR_TAG.finditer(text))):
        return True
    return "*" in text and next(_emphasis_inside(text), None) is not None


def all_marked_up(texts: Sequence[str]) -> list[int]:
    """Returns the indices of the texts for which :func:`has_markup` is true."""
    together = "".join(texts)
    return [k for k, text in enumerate(texts) if has_markup(text)] if any(map(together.__contains__, "&<*")) else []


def without_markup(text: str) -> tuple[str, list[int], list[int]] | None:
    """Replaces character references, and removes the tags of inline elements and the emphasis inside words.

    Returns:
        The changed text, and the start and the end in the original text of each of its characters. The result is None
        if the text is unchanged.
    """
    if not has_markup(text):
        return None
    edits = [(*match.span(), shown) for match in _REFERENCE_OR_TAG.finditer(text) if (shown := _displayed_of(match))]
    edits += [(*match.span(), "\0") for match in _emphasis_inside(text)]
    pieces, starts, ends = list[str](), list[int](), list[int]()
    at = 0
    for start, end, displayed in [*sorted(edits), (len(text), len(text), "\0")]:
        pieces.append(text[at:start])
        starts += range(at, start)
        ends += range(at + 1, start + 1)
        at = end
        if displayed != "\0":
            pieces.append(displayed)
            starts += [start] * len(displayed)
            ends += [end] * len(displayed)
    return "".join(pieces), starts, ends


def _displayed_of(match: re.Match[str]) -> str:
    """Returns the character of a reference, a NUL character for a tag, or an empty string for an unknown reference."""
    if match.group()[0] == "<":
        return "\0"
    displayed = html.unescape(match.group())
    return "" if displayed == match.group() or "\0" in displayed else displayed


def _emphasis_inside(text: str) -> Iterator[re.Match[str]]:
    """Yields the runs of asterisks between two letters that have a counterpart in the same line."""
    for marks in _EMPHASIS.finditer(text):
        start, end = marks.span()
        if start and _ASCII_LETTER.match(text, start - 1):
            before = text[max(0, start - _EMPHASIS_REACH) : start].rpartition("\n")[2]
            after = text[end : end + _EMPHASIS_REACH].partition("\n")[0]
            if marks.group() in _ASTERISKS.findall(f"{before} {after}"):
                yield marks


def displayed(text: str) -> tuple[str, list[int], list[int]] | None:
    """Returns the visible form of a text whose hidden spans are blank, and the start and the end in the text of each
    of its characters. The result is None if the text is unchanged.
    """
    body, starts, ends = without_markup(text) or (text, None, None)
    plain = plain_letters(body)
    joined = without_breaks(plain)
    if starts is None and joined is None:
        return None if plain is text else (plain, [*range(len(text))], [*range(1, len(text) + 1)])
    if starts is None or ends is None:
        starts, ends = [*range(len(text))], [*range(1, len(text) + 1)]
    if joined is None:
        return plain, starts, ends
    return joined[0], [starts[k] for k in joined[1]], [ends[k] for k in joined[1]]


def as_displayed(text: str) -> str:
    """Returns the visible form of a text."""
    text = shown(text)
    visible = displayed(text)
    return visible[0] if visible else text


@cache
def disguises() -> str:
    """Returns a string of characters, at least one of which occurs in every disguised text."""
    variants, alike, _ = _plain()
    no_width = re.findall(_BREAK, "".join(map(chr, range(0xAD, 0xFF00))))
    return "".join((*variants, *alike, *no_width))


def is_disguised(text: str) -> bool:
    """Returns True if words of a text are disguised by look-alike letters, zero-width characters or markup inside them.
    The function does not check hidden spans.
    """
    return plain_letters(text) != text or without_breaks(text) is not None or has_markup(text)


def disguised_words(text: str) -> int:
    """Returns the number of words in the visible form of a text that are written in another way in the text."""
    visible = None if text.isascii() and not has_markup(text) else displayed(shown(text))
    if visible is None:
        return 0
    body, starts, ends = visible
    words = (word.span() for word in _VISIBLE_WORD.finditer(body))
    return sum(text[starts[start] : ends[end - 1]] != body[start:end] for start, end in words)
