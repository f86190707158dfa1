"""Content words of a text, which are used to compare texts without a vocabulary.

The function words and the inflectional endings are English. The extraction is based only on rules and uses no model.
"""

from __future__ import annotations

import re
from functools import lru_cache

from ..base.text import fold

_TOKEN = re.compile(r"[^\W_]+(?:'[^\W_]+)*")

FUNCTION_WORDS = frozenset(
    """a an the of on in at to with and or is are was were be being been that this these those it its he she they them
    his her their there some by for from as into onto up down out over under near next beside behind front top has have
    having who which while other another one two three four five several many few lots lot group very all each both can
    through along between off around not no so together side it's something someone picture image photo photograph
    view""".split()
)
"""Words that do not describe the content of an image.

The set contains articles, prepositions, pronouns, auxiliaries and numbers, and words such as "photo" with which a
caption refers to the image itself.
"""

_ENDINGS = ("ing", "ed", "es", "s")


def tokens(text: str) -> list[str]:
    """Returns the case-folded words of a text in order. Apostrophes inside a word are kept."""
    return _TOKEN.findall(fold(text).replace("\N{RIGHT SINGLE QUOTATION MARK}", "'"))


def content_words(words: list[str]) -> frozenset[str]:
    """Returns the stems of all words that are not function words.

    Args:
        words: Words of a text, as returned by :func:`tokens`.
    """
    return frozenset(stem(word) for word in words if word not in FUNCTION_WORDS)


@lru_cache(maxsize=1 << 16)
def stem(word: str) -> str:
    """Removes the inflection of a word: ``riding`` and ``rides`` become ``rid``, and ``running`` becomes ``run``."""
    for ending in _ENDINGS:
        if word.endswith(ending) and len(word) - len(ending) >= 3 and not word.endswith(("ss", "us", "is")):
            word = word[: -len(ending)]
            if len(ending) > 1 and ending != "es" and len(word) > 3 and word[-1] == word[-2]:
                word = word[:-1]
            break
    return word[:-1] if word.endswith("e") and len(word) > 3 else word
