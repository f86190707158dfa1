"""Removal of the unfinished last sentence from captions that a token limit truncated."""

from __future__ import annotations

import re

from .punctuation import last_sentence

_END = re.compile(r"[.!?…。！？][\s\"'”’»)\]}*_`]*\Z")


def without_unfinished(text: str) -> str:
    """Returns a text up to the end of its last complete sentence.

    Papers with a short ``max_new_tokens`` score captions in this form. The text is unchanged if its last sentence is
    complete, or if no sentence is complete, because nothing would remain. Sentences are those of the rule ``sentence``
    (docs/specification.md#subsentences).
    """
    if not text or _END.search(text, max(0, len(text) - 16)):
        return text
    return text[: last_sentence(text)].rstrip() or text
