"""Tokenizer of the CHAIR scripts. The tokenizer returns the same tokens as ``word_tokenize`` of NLTK 3.8.1 for
lower-cased text, but does not require NLTK.

The rules are the project's own description of NLTK's behavior. ``sentence_tokens`` processes a single sentence.
``split_chunk`` also finds where sentences end. NLTK detects the ends of sentences with a trained splitter. In this
tokenizer, every ``.`` at the end of a white-space chunk ends a sentence, except after a number or a single letter.
Abbreviations (``mr.``) therefore also end a sentence. This difference from NLTK changes the object list of none of
7,161 real captions. The tokens of a chunk therefore depend only on the chunk and the text after it, and can be looked
up in a table.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

_CHUNK = re.compile(r"(\S+)(\s*)")
_SINGLE = r"""][(){}<>;@\#$%&?!*"«»“”‘’„"""  # separate tokens wherever they occur
_BREAK = rf"\.{{2,}} | -- | '' | `+ | (?<![:,])[:,](?!\d) | [{_SINGLE}]"
_PIECE = re.compile(rf"{_BREAK} | (?:(?!{_BREAK}).)+", re.VERBOSE | re.DOTALL)
_SENTENCE_END = re.compile(r"""[.?!](?=[]})([{"';:*@!?])""")
_FULL_STOP = re.compile(r"""(?<!\.)\.(?=[])}>"'»”’]*\Z)""")
_OPENING = '*("#:.'
_CLITIC = re.compile(r"(?<=[^'])(?:'[smd]?|'ll|'re|'ve|n't)\Z")
_QUOTED_LETTER = re.compile(r"'(?![mtsdn])(?=\w\b)")
_TWO_WORDS = re.compile(
    r"\b(?:can(?=not\b)|gim(?=me\b)|gon(?=na\b)|got(?=ta\b)|lem(?=me\b)|wan(?=na\Z)|d(?='ye\b)|more(?='n\b))"
    r"|\A't(?=(?:is|was)\b)"
)


def tokens(caption: str) -> list[str]:
    """Returns the tokens of a lower-cased caption without converting double quotes to NLTK's notation."""
    return [
        token
        for chunk, gap, rest in _chunks(caption)
        for token in split_chunk(chunk, spaced=not rest or gap[0] == " ", last=not rest)
    ]


def sentence_tokens(sentence: str) -> list[str]:
    """Returns the tokens of a lower-cased sentence, with double quotes in NLTK's notation: ````` `` ````` and
    ``''``.
    """
    all_tokens: list[str] = []
    gap_before = ""
    for chunk, gap, rest in _chunks(sentence):
        parts = [chunk] if rest else _cut(chunk, _FULL_STOP.search(chunk))
        before = gap_before
        for piece in _split_pieces(parts, spaced=not rest or gap[0] == " "):
            if (piece == '"' and not before) or (piece in ('"', "''") and before in tuple(" ([{<")):
                piece = "``"
            elif piece == '"':
                piece = "''"
            all_tokens.append(piece)
            before = piece
        gap_before = gap[-1:]
    return all_tokens


def split_chunk(chunk: str, *, spaced: bool = True, last: bool = False) -> list[str]:
    """Returns the tokens of one chunk, which is a text without white space.

    Args:
        chunk: Text without white space.
        spaced: True if a space or the end of the caption follows. If False (at a line end), a final clitic is not split
            off (``dog's`` remains one token).
        last: True if the caption ends after the chunk.
    """
    end = max((match.end() for match in _SENTENCE_END.finditer(chunk)), default=0)  # only the last one matters
    if not last and chunk[-1] in ".?!" and not _ends_numbered(chunk):
        end = len(chunk)
    elif not last and chunk[-1] in ".?!":
        end = 0
    head, tail = chunk[:end], chunk[end:]
    parts = _cut(head, _FULL_STOP.search(head)) + _cut(tail, _FULL_STOP.search(tail) if last else None)
    return _split_pieces(parts, spaced=spaced)


def _ends_numbered(chunk: str) -> bool:
    """Returns True if a chunk ends in a number or a single letter with a full stop that does not end a sentence
    (``1.``, ``(b.``).
    """
    body = chunk[:-1]
    if chunk[-1:] != "." or not body:
        return False
    first = len(body)
    while first and (body[first - 1].isdecimal() or body[first - 1] in ".,:-"):
        first -= 1
    if any(body[k].isdecimal() and (not k or body[k - 1] in _OPENING) for k in range(first, len(body))):
        return True
    letter = body[-1].isalnum() and not body[-1].isdecimal()
    return letter and (len(body) == 1 or body[-2] in _OPENING)


def _chunks(text: str) -> Iterator[tuple[str, str, bool]]:
    """Yields, for each chunk of text between white space, the chunk, the white space after it, and a flag that is True
    if another chunk follows.
    """
    for match in _CHUNK.finditer(text):
        yield match[1], match[2], match.end() < len(text)


def _cut(text: str, stop: re.Match[str] | None) -> list[str]:
    return [text[: stop.start()], ".", text[stop.end() :]] if stop else [text]


def _split_pieces(parts: Iterable[str], *, spaced: bool) -> list[str]:
    """Splits off punctuation, clitics and contractions. The clitic of the last piece is not split off unless a space
    follows.
    """
    pieces = [
        piece for part in parts for word in _QUOTED_LETTER.sub("' ", part).split() for piece in _PIECE.findall(word)
    ]
    split_pieces: list[str] = []
    for k, piece in enumerate(pieces):
        clitic = _CLITIC.search(piece) if spaced or k < len(pieces) - 1 else None
        cut = clitic.start() if clitic else len(piece)
        split_pieces += [*_TWO_WORDS.sub(r"\g<0> ", piece[:cut]).split(), *([piece[cut:]] if clitic else [])]
    return split_pieces
