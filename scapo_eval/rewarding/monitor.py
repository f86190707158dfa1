"""Indicators that a policy exploits the reward (docs/gaming.md), computed from sums that can be added across ranks."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache

import numpy as np

from ..base.types import Use
from ..base.verdicts import Verdict
from ..matching.near import NearMisses
from ..matching.uses import CueRule, cue_words, expresses, shipped_rules
from ..matching.visible import disguised_words, shown
from ..matching.vocabulary import Vocabulary
from .reward import RewardColumns
from .token_credit import is_padding

_WORDS = re.compile(r"[^\W_]+")
_SINGLE_QUOTES = re.compile(r"(?<![^\W_])['\u2018](?=\S)[^'\u2018\u2019\n]{1,80}(?<=\S)['\u2019](?![^\W_])")
"""Quotations in single quotation marks, and not apostrophes, which have a letter before them."""

_BLANK = " \u200b"  # in place of hidden characters
_INDEFINITE = frozenset("a an another some several two three four five six seven eight nine ten".split())


@lru_cache
def _cues(use: Use) -> Mapping[str, Sequence[CueRule]]:
    """Returns the rules of each word that may express a use."""
    rules = shipped_rules()
    return {
        word: [rules.rules[k] for k in rules.of(row) if rules.rules[k].cue.use == use]
        for word, row in cue_words((use,)).items()
    }


def _cues_in(text: str, words: Sequence[str], use: Use) -> int:
    """Returns the number of words in a lower-case text that express a use, according to the words around them."""
    cues = _cues(use)
    return sum(
        any(expresses(rule, text, start, start + len(word)) for rule in cues[word])
        for word in cues.keys() & set(words)
        for start in _starts(text, word)
    )


def _starts(text: str, word: str) -> Iterator[int]:
    """Yields the offsets at which a text contains a whole word."""
    start = text.find(word)
    while start >= 0:
        end = start + len(word)
        if not (text[start - 1 : start].isalnum() or text[end : end + 1].isalnum()):
            yield start
        start = text.find(word, end)


@lru_cache(maxsize=4)
def _near_misses(labels: tuple[str, ...]) -> NearMisses:
    """Builds the near-miss detector for single-word labels and their plurals."""
    names = {label: [label, f"{label}s"] for label in labels if label.isascii() and label.isalpha() and label.islower()}
    return NearMisses(
        Vocabulary.from_mapping({label: aliases for label, aliases in names.items() if f"{label}s" not in names})
    )


def behavior_sums(columns: RewardColumns) -> dict[str, float]:
    """Returns the sums from which :func:`behavior_metrics` computes ratios. The sums of several ranks can be added.

    Args:
        columns: Rewards of n responses.

    Returns:
        A dictionary with the following counts over all responses:

        - ``responses``, ``words`` and ``pieces``: numbers of responses, words and pieces.
        - ``labels``: claimed labels with a known state, counted once per piece.
        - ``repeated``: supported labels that an earlier piece has already named.
        - ``without_label``: pieces without a label, which incur the penalty ``r_reg``.
        - ``silent``: pieces with neither gain nor penalty.
        - ``denials`` and ``hedges``: words that express a denial or a hedge, together with the words around them.
        - ``questions`` and ``quotes``: question marks and quotations.
        - ``indefinites``: words that usually introduce an object, such as "a", "some" and "two".
        - ``near_misses``: words that resemble the name of a label but are misspelled.
        - ``disguised``: words that contain look-alike letters, zero-width characters or markup.
        - ``characters``, ``padding`` and ``hidden``: all non-space characters, the punctuation and white space that do
          not directly follow a word, and the non-space characters that a reader does not see.
        - ``pairs`` and ``distinct_pairs``: number of pairs of neighboring words, and number of distinct pairs within
          each response.
        - ``claims_KIND`` and ``false_KIND``: claims of each kind with a known state, and false claims of each kind, if
          kinds other than presence are counted.
    """
    lowered = [response.lower() for response in columns.responses]
    listed = [*map(_WORDS.findall, lowered)]
    words = [word for response_words in listed for word in response_words]
    pairs = [list(zip(response_words, response_words[1:], strict=False)) for response_words in listed]
    hidden = sum(
        not written.isspace() and seen in _BLANK
        for text in columns.responses
        if (visible := shown(text)) is not text
        for written, seen in zip(text, visible, strict=True)
    )
    names = _near_misses(tuple(columns.labels))
    labels = columns.new + columns.rep + columns.hal
    return kind_sums(columns) | {
        "responses": float(len(columns)),
        "words": float(len(words)),
        "pieces": float(len(labels)),
        "labels": float(labels.sum()),
        "repeated": float(columns.rep.sum()),
        "without_label": float(((labels == 0) & ~columns.silent).sum()),
        "silent": float(columns.silent.sum()),
        "denials": float(sum(_cues_in(text, words, "negated") for text, words in zip(lowered, listed, strict=True))),
        "hedges": float(sum(_cues_in(text, words, "hedged") for text, words in zip(lowered, listed, strict=True))),
        "questions": float(sum(text.count("?") for text in columns.responses)),
        "quotes": sum(map(_quotes, columns.responses)),
        "indefinites": float(sum(map(_INDEFINITE.__contains__, words))),
        "near_misses": float(len(names.find(columns.responses))),
        "disguised": float(sum(map(disguised_words, columns.responses))),
        "hidden": float(hidden),
        "characters": float(sum(len(text) - sum(map(text.count, " \n\t")) for text in columns.responses)),
        "padding": float(is_padding(columns.responses).sum()),
        "pairs": float(sum(map(len, pairs))),
        "distinct_pairs": float(sum(len(set(response_pairs)) for response_pairs in pairs)),
    }


def _quotes(text: str) -> float:
    single = "'" in text or "\u2018" in text
    return text.count('"') / 2 + text.count("\u201c") + (len(_SINGLE_QUOTES.findall(text)) if single else 0)


def kind_sums(columns: RewardColumns) -> dict[str, float]:
    """Returns the number of claims with a known state (``claims_KIND``) and the number of false claims (``false_KIND``)
    for each kind.

    Args:
        columns: Rewards of n responses.

    Returns:
        The sums over all pieces, or an empty dictionary if only presence counts.
    """
    if len(columns.kinds) == 1:
        return {}
    kinds = [*(columns.kinds.index(unit.kind) for unit in columns.units)]
    kind_of = np.concatenate([np.zeros(len(columns.labels), dtype=np.int64), np.array(kinds, dtype=np.int64)])
    kind, known = kind_of[columns.claim_label], columns.claim_verdict != Verdict.UNKNOWN
    numbers = np.bincount(kind[known], minlength=len(columns.kinds)).tolist()
    false = np.bincount(kind[columns.claim_verdict == Verdict.HALLUCINATED], minlength=len(columns.kinds)).tolist()
    return {
        **{f"claims_{name}": float(number) for name, number in zip(columns.kinds, numbers, strict=True)},
        **{f"false_{name}": float(number) for name, number in zip(columns.kinds, false, strict=True)},
    }


def kind_metrics(sums: Mapping[str, float]) -> dict[str, float]:
    """Returns the claims per response (``claims_KIND``) and the hallucination rate (``hal_rate_KIND``) of each kind.

    Args:
        sums: Sums from :func:`kind_sums`, and the number of ``responses``. A ratio whose denominator is 0 has the value
            0.
    """
    kinds = [name.removeprefix("claims_") for name in sums if name.startswith("claims_")]
    return {
        **{f"claims_{kind}": sums[f"claims_{kind}"] / max(sums["responses"], 1) for kind in kinds},
        **{f"hal_rate_{kind}": sums[f"false_{kind}"] / max(sums[f"claims_{kind}"], 1) for kind in kinds},
    }


def behavior_metrics(sums: dict[str, float]) -> dict[str, float]:
    """Returns ratios that show changes in the style of responses during training. A ratio whose denominator is 0 has
    the value 0.

    Args:
        sums: Sums from :func:`behavior_sums`.

    Returns:
        - ``words``: mean number of words per response.
        - ``words_per_piece`` and ``labels_per_piece``: mean numbers of words and of claimed labels per piece.
        - ``labels_per_indefinite``: claimed labels per word that usually introduces an object, such as "a". The ratio
          falls if objects are described by words that are not in the vocabulary ("some furniture").
        - ``repeated_share``: share of the claimed labels that already occurred in an earlier piece.
        - ``without_label_share`` and ``silent_share``: shares of the pieces without a label, and of the silent pieces.
        - ``denial_rate``, ``hedge_rate``, ``question_rate``, ``quote_rate``, ``near_miss_rate`` and ``disguise_rate``:
          occurrences per word.
        - ``hidden_share``: share of the non-space characters that a reader does not see.
        - ``padding_rate``: punctuation and white space that do not directly follow a word, per non-space character.
        - ``distinct_pairs_share``: share of distinct pairs among all pairs of neighboring words.
        - ``claims_KIND`` and ``hal_rate_KIND``: claims per response and hallucination rate of each kind, if kinds
          beyond presence count.
    """

    def ratio(part: str, whole: str) -> float:
        return sums[part] / sums[whole] if sums[whole] else 0.0

    return kind_metrics(sums) | {
        "words": ratio("words", "responses"),
        "words_per_piece": ratio("words", "pieces"),
        "labels_per_piece": ratio("labels", "pieces"),
        "labels_per_indefinite": ratio("labels", "indefinites"),
        "repeated_share": ratio("repeated", "labels"),
        "without_label_share": ratio("without_label", "pieces"),
        "silent_share": ratio("silent", "pieces"),
        "denial_rate": ratio("denials", "words"),
        "hedge_rate": ratio("hedges", "words"),
        "question_rate": ratio("questions", "words"),
        "quote_rate": ratio("quotes", "words"),
        "near_miss_rate": ratio("near_misses", "words"),
        "disguise_rate": ratio("disguised", "words"),
        "hidden_share": ratio("hidden", "characters"),
        "padding_rate": ratio("padding", "characters"),
        "distinct_pairs_share": ratio("distinct_pairs", "pairs"),
    }
