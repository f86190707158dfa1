"""Parsers that extract ``yes`` or ``no`` from a model's answer by the rules of different tools.

The rules differ considerably: on 254 real free-form answers, lmms-eval's rule scores 0 %, VLMEvalKit's rule 49.6 % and
POPE's own rule 56.3 %. Therefore, each rule has a name, which is part of the signature of every score that depends on a
rule.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Literal

from ..base.errors import InputError

YesNo = Literal["yes", "no"]
Parser = Callable[[str], "YesNo | None"]
"""A function that maps a response to ``yes``, ``no`` or None (undecided)."""

WORDS: Mapping[str, YesNo] = {"yes": "yes", "no": "no", "نعم": "yes", "لا": "no"}
"""Words for yes and no in English and, for the Arabic editions of PhD, in Arabic.

``parser(..., yes=, no=)`` adds words in other languages.
"""

_WORD = re.compile(r"[^\W_]+")  # without `_`, which is markdown's emphasis


def first_word(response: str, words: Mapping[str, YesNo] = WORDS) -> YesNo | None:
    """Returns the answer that the first word of a response expresses, or None. Markdown, quotes and punctuation before
    the word are ignored.

    ``**No**, yes would be wrong`` means no. ``There is a dog.``, ``Nope``, ``Maybe`` and ``""`` mean neither yes nor
    no.
    """
    match = _WORD.search(_composed(response))
    return words.get(match.group().casefold()) if match else None


def contains(response: str, words: Mapping[str, YesNo] = WORDS) -> YesNo | None:
    """Returns the answer expressed by the first word that means yes or no in a response, or None if the response
    contains no such word.
    """
    said = (words.get(word.casefold()) for word in _WORD.findall(_composed(response)))
    return next(filter(None, said), None)


def is_answer(response: str) -> bool:
    """Returns True if a text is an answer to a yes/no question: the text begins with "yes", or it begins with "no" and
    the next word is separated by punctuation. Therefore, ``No people are visible.`` is a caption.
    """
    match = _WORD.search(_composed(response))
    said = WORDS.get(match.group().casefold()) if match else None
    return match is not None and (said == "yes" or (said == "no" and not _NEXT_WORD.match(response, match.end())))


_NEXT_WORD = re.compile(r"(?:\s+|[-'])\w")


def _composed(text: str) -> str:
    return text if text.isascii() else unicodedata.normalize("NFC", text)


def pope(response: str) -> YesNo:
    r"""Applies POPE's own rule (``evaluate.py``): an answer is no if it contains the word ``No``, ``not`` or ``no``,
    and yes otherwise.

    The rule considers only the text before the first period, removes commas, and splits the text into words at single
    spaces. Therefore, an empty answer, ``NO`` and ``No\n`` count as yes.
    """
    words = response.split(".", 1)[0].replace(",", "").split(" ")
    return "no" if {"No", "not", "no"}.intersection(words) else "yes"


_VLMEVALKIT_SIGNS = ';/[]"{}()=+\\_->@<`,?!'
_DIGITS_WITH_COMMA = re.compile(r"\d,\d")
_STOP_BEFORE_NO_DIGIT = re.compile(r"\.(?!\d)")
_VLMEVALKIT_STOPS = 32  # its re.sub is handed a flag of that value where the count belongs


def vlmevalkit(response: str) -> YesNo | None:
    """Applies VLMEvalKit's rule, by which a response is valid only if it contains exactly one of the words "yes" and
    "no".

    If a punctuation mark is next to a space anywhere in the text, all its occurrences are deleted. All other
    punctuation marks are replaced by spaces. If the text contains a comma between digits, all punctuation marks are
    deleted. Colons, asterisks and apostrophes are kept. Therefore, ``Yes:`` and ``**Yes**`` mean neither yes nor no.
    """
    text = plain = response.lower()
    number = _DIGITS_WITH_COMMA.search(text) is not None
    for sign in _VLMEVALKIT_SIGNS:
        plain = plain.replace(sign, "" if number or f"{sign} " in text or f" {sign}" in text else " ")
    words = _STOP_BEFORE_NO_DIGIT.sub("", plain, count=_VLMEVALKIT_STOPS).split()
    yes, no = "yes" in words, "no" in words
    if yes == no:
        return None
    return "yes" if yes else "no"


def lmms(response: str) -> YesNo | None:
    """Applies lmms-eval's rule for POPE, according to which the entire answer must be ``yes`` or ``no``, regardless of
    case.
    """
    return _exactly(response.lower().strip(), "yes", "no")


def amber(response: str) -> YesNo | None:
    """Applies AMBER's own rule, according to which the entire answer must be exactly ``Yes`` or ``No``."""
    return _exactly(response, "Yes", "No")


def _exactly(response: str, yes: str, no: str) -> YesNo | None:
    if response == yes:
        return "yes"
    return "no" if response == no else None


PARSERS: Mapping[str, Parser] = {
    "default": first_word,
    "pope": pope,
    "vlmevalkit": vlmevalkit,
    "lmms": lmms,
    "amber": amber,
    "contains": contains,
}

_WITH_WORDS: Mapping[str, Callable[..., YesNo | None]] = {"default": first_word, "contains": contains}


def parser(name: str, *, yes: Iterable[str] = (), no: Iterable[str] = ()) -> Parser:
    """Returns the parser with a given name, optionally with additional words for yes and no.

    Only ``default`` and ``contains`` accept additional words.

    Raises:
        InputError: If the name is unknown, the parser does not accept additional words, an additional word contains a
            space, or a word would mean both yes and no.
    """
    extra: dict[str, YesNo] = {}
    means: tuple[tuple[Iterable[str], YesNo], ...] = ((yes, "yes"), (no, "no"))
    for words, said in means:
        for word in _listed(words):
            key = _composed(word).casefold()
            if not _WORD.fullmatch(key):
                raise InputError(f"{word!r} is not one word; answers are compared word by word")
            if extra.setdefault(key, said) != said or WORDS.get(key, said) != said:
                raise InputError(f"{word!r} cannot mean both yes and no")
    if name not in PARSERS:
        raise InputError(f"unknown parser {name!r}; known: {', '.join(PARSERS)}")
    if not extra:
        return PARSERS[name]
    if name not in _WITH_WORDS:
        raise InputError(f"the parser {name!r} has its own words; give others to {' or '.join(_WITH_WORDS)}")
    return partial(_WITH_WORDS[name], words={**WORDS, **extra})


def parser_identity(name: str, *, yes: Iterable[str] = (), no: Iterable[str] = ()) -> str:
    """Returns the name and the additional words of a parser, as written in signatures, such as ``default+oui=yes``."""
    given = {
        said: sorted({_composed(word).casefold() for word in _listed(words)})
        for said, words in (("yes", yes), ("no", no))
    }
    return name + "".join(f"+{word}={said}" for said, words in given.items() for word in words)


def _listed(words: Iterable[str]) -> list[str]:
    """Returns words as a list. A single string is one word."""
    listed = [words] if isinstance(words, str) else list(words) if isinstance(words, Iterable) else [words]
    if faulty := [word for word in listed if not isinstance(word, str)]:
        raise InputError(f"the words for yes and no must be strings, got {faulty[0]!r}")
    return listed


def parse_label(value: str) -> YesNo | None:
    """Converts a label in any usual spelling (``yes``, ``No``) to ``yes`` or ``no``, and any other value to None."""
    return _exactly(value.strip().casefold(), "yes", "no")
