"""Reads ``yes`` or ``no`` out of a model's own words, by the rule of whichever tool is asked for.

The rules differ a lot: of 254 real free-form answers lmms-eval's rule scores 0 %, VLMEvalKit's 49.6 %
and POPE's own 56.3 %. So the rule has a name, and the name is part of every signature.
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
"""Response -> what it says, None if that cannot be told."""

WORDS: Mapping[str, YesNo] = {"yes": "yes", "no": "no", "نعم": "yes", "لا": "no"}
"""English, and Arabic for the Arabic editions of PhD; other languages by ``parser(..., yes=, no=)``."""

_WORD = re.compile(r"[^\W_]+")  # without `_`, which is markdown's emphasis


def first_word(response: str, words: Mapping[str, YesNo] = WORDS) -> YesNo | None:
    """Decides by the first word; markdown, quotes and punctuation before it do not count.

    ``**No**, yes would be wrong`` says no; ``There is a dog.``, ``Nope``, ``Maybe`` and ``""`` say neither.
    """
    match = _WORD.search(_composed(response))
    return words.get(match.group().casefold()) if match else None


def contains(response: str, words: Mapping[str, YesNo] = WORDS) -> YesNo | None:
    """Decides by the first word that is a yes or a no, wherever it stands."""
    said = (words.get(word.casefold()) for word in _WORD.findall(_composed(response)))
    return next(filter(None, said), None)


def _composed(text: str) -> str:
    return text if text.isascii() else unicodedata.normalize("NFC", text)


def pope(response: str) -> YesNo:
    r"""POPE's own rule (``evaluate.py``): everything but a spaced-out ``No``, ``not``, ``no`` is a yes.

    Only the text before the first full stop counts, commas are dropped; an empty answer, ``NO`` and
    ``No\n`` are a yes.
    """
    words = response.split(".", 1)[0].replace(",", "").split(" ")
    return "no" if {"No", "not", "no"}.intersection(words) else "yes"


_VLMEVALKIT_SIGNS = ';/[]"{}()=+\\_->@<`,?!'
_DIGITS_WITH_COMMA = re.compile(r"\d,\d")
_STOP_BEFORE_NO_DIGIT = re.compile(r"\.(?!\d)")
_VLMEVALKIT_STOPS = 32  # its re.sub is handed a flag of that value where the count belongs


def vlmevalkit(response: str) -> YesNo | None:
    """Applies VLMEvalKit's rule: exactly one of the words yes and no occurs.

    A sign that touches a blank anywhere in the text is deleted (every sign, if digits around a comma occur),
    any other becomes a blank; colons, asterisks and apostrophes stay, so ``Yes:`` and ``**Yes**`` say neither.
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
    """Applies lmms-eval's rule for POPE: the whole answer is the word, in any case."""
    return _exactly(response.lower().strip(), "yes", "no")


def amber(response: str) -> YesNo | None:
    """Applies AMBER's own rule: the whole answer is ``Yes`` or ``No``, to the letter."""
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
    """Returns the rule called ``name``, for ``default`` and ``contains`` with further words for yes and no.

    Raises:
        InputError: for an unknown rule, words for a rule with its own words, a "word" of several words, or the same
            word for both.
    """
    extra: dict[str, YesNo] = {}
    means: tuple[tuple[Iterable[str], YesNo], ...] = ((yes, "yes"), (no, "no"))
    for words, said in means:
        for word in words:
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
    """Returns the rule's name with its further words, for signatures: ``default+oui=yes``."""
    return name + "".join(f"+{word}={said}" for said, words in (("yes", yes), ("no", no)) for word in words)


def parse_label(value: str) -> YesNo | None:
    """Returns a truth label in any usual spelling (``yes``, ``No``), None if it is neither."""
    return _exactly(value.strip().casefold(), "yes", "no")
