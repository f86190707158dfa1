"""Removal of the unfinished last sentence from captions that a token limit truncated."""

from __future__ import annotations

import re

from .punctuation import last_sentence

_END = re.compile(r"[.!?…。！？][\s\"'”’»)\]}*_`]*\Z")


def without_unfinished(text: str) -> str:
    """Returns a text truncated after its last complete sentence.

    Papers that set a small ``max_new_tokens`` score captions without the unfinished last sentence. The text is
    unchanged if its last sentence is complete, or if it contains no complete sentence. Sentences are determined by the
    rule ``sentence`` (docs/specification.md#subsentences).
    """
    words = text.rstrip()  # a model may end with any number of newlines
    if not words or _END.search(words, max(0, len(words) - 16)):
        return text
    return text[: last_sentence(text)].rstrip() or text
