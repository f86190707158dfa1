"""Captions that were cut off by a token limit, without the last sentence, which has no end."""

from __future__ import annotations

import re

from .punctuation import last_sentence

_END = re.compile(r"[.!?…。！？][\s\"'”’»)\]}*_`]*\Z")


def without_unfinished(text: str) -> str:
    """Returns the text up to the end of its last complete sentence, as papers with a short ``max_new_tokens`` score it.

    A text whose last sentence has an end stays as it is, and so does one in which no sentence has ended: nothing would
    be left of it. Sentences are those of the rule ``sentence`` (docs/specification.md#subsentences).
    """
    if not text or _END.search(text, max(0, len(text) - 16)):
        return text
    return text[: last_sentence(text)].rstrip() or text
