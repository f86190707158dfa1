"""Segmentation of one response into subsentences by one of several named rules.

The spans of the subsentences partition the text exactly, and white space belongs to the preceding span. This module
contains the reference implementation, which segments one text in linear time. ``segment_batch.py`` computes the same
results for many texts at once. ``docs/specification.md#subsentences`` describes the rules.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import get_args

from ..base.errors import InputError, short_repr
from ..base.types import Mention, Rule, Subsentence
from .discourse import discourse_cuts
from .punctuation import MIN_WORDS, boundaries

RULES: tuple[Rule, ...] = get_args(Rule)


def split_subsentences(
    text: str, rule: Rule = "subsentence", mentions: Sequence[Mention] | None = None
) -> list[Subsentence]:
    """Segments one text into pieces.

    Args:
        text: Any string.
        rule: Name of the rule, which is ``subsentence`` (default), ``discourse``, ``sentence``, ``clause``, ``object``
            or ``response``.
        mentions: Mentions in the text, in the order of the text. A boundary is never inside a mention. The rule
            ``object`` requires mentions.

    Returns:
        Pieces that partition the text. An empty text has no pieces.

    Raises:
        InputError: If ``text`` is not a string, if the rule is unknown, if the rule is ``object`` and mentions are
            missing, or if the mentions are not inside the text and in its order. Mentions may overlap, except under
            the rule ``object``.

    Example:
        >>> import scapo_eval
        >>> text = "A dog runs. A cat sleeps on a sofa."
        >>> [text[piece.start : piece.end] for piece in scapo_eval.split_subsentences(text)]
        ['A dog runs. ', 'A cat sleeps on a sofa.']
    """
    check_rule(rule, mentions is not None)
    if not isinstance(text, str):
        raise InputError(f"a text must be a string, got {short_repr(text)}")
    if not text:
        return []
    cuts = [cut for cut, _ in cuts_of(text, rule, _spans_of(mentions or (), text, rule))]
    return [Subsentence(start, end) for start, end in zip([0, *cuts], [*cuts, len(text)], strict=True)]


def _spans_of(mentions: Sequence[Mention], text: str, rule: Rule) -> list[tuple[int, int]]:
    try:
        spans = [(mention.start, mention.end) for mention in mentions]
    except (AttributeError, TypeError):
        raise InputError(f"mentions must be Mention objects, got {short_repr(mentions)}") from None
    in_text = all(0 <= start < end <= len(text) for start, end in spans)
    apart = rule != "object" or all(end <= start for (_, end), (start, _) in pairwise(spans))
    if not in_text or not apart or spans != sorted(spans):
        raise InputError(
            "the mentions must be inside the text, in its order, and without overlaps for the rule 'object'"
        )
    return spans


def check_rule(rule: str, has_mentions: bool) -> None:
    """Raises an InputError if a rule is unknown, or if the rule is ``object`` and mentions are missing."""
    if rule not in RULES:
        raise InputError(f"unknown segmentation rule '{rule}'; known: {', '.join(RULES)}")
    if rule == "object" and not has_mentions:
        raise InputError("the rule 'object' requires the mentions of the text")


def cuts_of(text: str, rule: Rule, mentions: Sequence[tuple[int, int]]) -> list[tuple[int, bool]]:
    """Returns the cuts strictly inside a text, each as a pair ``(offset, True if the cut ends a sentence)``."""
    if rule == "response":
        return []
    if rule == "discourse":
        return discourse_cuts(text, mentions)
    if rule == "object":
        return [(end, False) for _, end in mentions[:-1]]
    first_word = len(text) - len(text.lstrip())
    cuts: list[tuple[int, bool]] = []
    n_before = mention_end = 0  # mentions that begin before a boundary, and where the last of them ends
    for offset, ends_sentence in boundaries(text):
        while n_before < len(mentions) and mentions[n_before][0] < offset:
            mention_end = max(mention_end, mentions[n_before][1])
            n_before += 1
        if first_word < offset < len(text) and mention_end <= offset:
            cuts.append((offset, ends_sentence))
    if rule == "sentence":
        return [cut for cut in cuts if cut[1]]
    return cuts if rule == "clause" else _merged(text, cuts)


def _merged(text: str, cuts: list[tuple[int, bool]]) -> list[tuple[int, bool]]:
    """Returns the cuts that remain after short pieces are merged with their neighbors in the same sentence.

    A short piece is merged with the preceding piece, and a short first piece with the next one. A cut between clauses
    remains if the next piece and the preceding part of the sentence are both long enough.
    """
    kept: list[tuple[int, bool]] = []
    sentence_words = 0
    borders = [0, *(offset for offset, _ in cuts), len(text)]
    words = [len(text[begin:end].split()) for begin, end in pairwise(borders)]
    for (offset, sentence), before, after in zip(cuts, words, words[1:], strict=False):
        sentence_words += before
        if sentence:
            sentence_words = 0
            kept.append((offset, True))
        elif sentence_words >= MIN_WORDS and after >= MIN_WORDS:
            kept.append((offset, False))
    return kept
