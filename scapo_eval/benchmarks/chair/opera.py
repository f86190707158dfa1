"""OPERA's variant of CHAIR, which published tables use. The variant relies on part-of-speech tags and WordNet lemmas
from NLTK.

Tagging dominates the run time, so distinct captions are distributed over processes. The lemma of each word is looked up
once per part of speech.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...base.errors import InputError, MissingExtra
from ...base.nltk_tools import lemma, missing_data, processors, tagger
from ...base.processes import process_pool
from .profiles import ObjectColumns
from .synonyms import Synonyms, WordReader
from .tokens import sentence_tokens

PARALLEL_FROM = 100
"""Minimum number of distinct captions for which starting processes saves time."""

_WORDNET_POS = {"J": "a", "V": "v", "N": "n", "R": "r"}
"""First letter of a Penn tag -> part of speech in WordNet. Words with any other tag are treated as nouns."""


class Opera:
    """Profile that reproduces OPERA's CHAIR script.

    Args:
        synonyms: Table of the words for each object.
        workers: Number of tagging processes, or None for one per processor.

    Raises:
        MissingExtra: If NLTK is not installed.
        InputError: If NLTK's data are missing.
    """

    name = "opera"

    def __init__(self, synonyms: Synonyms, workers: int | None = None) -> None:
        try:
            import nltk
        except ImportError:
            raise MissingExtra("nltk", "the CHAIR profile 'opera'") from None
        self.synonyms = synonyms
        self.vocabulary = synonyms.vocabulary
        self.fields: Mapping[str, Any] = {"synonyms": synonyms.fingerprint, "nltk": nltk.__version__}
        self._reader = WordReader(synonyms)
        self._workers = workers or processors()
        try:
            self._read("two dogs")
        except LookupError as error:
            raise InputError(missing_data(error)) from None

    def find_batch(self, texts: Sequence[str]) -> ObjectColumns:
        """Implements ``find_batch``; see :class:`Profile`."""
        distinct = list(dict.fromkeys(texts))
        if self._workers > 1 and len(distinct) >= PARALLEL_FROM:
            with process_pool(self._workers) as pool:
                objects = list(pool.map(self._read, distinct, chunksize=-(-len(distinct) // (4 * self._workers))))
        else:
            objects = [self._read(text) for text in distinct]
        rows = dict(zip(distinct, objects, strict=True))
        return ObjectColumns.of_words([rows[text] for text in texts])

    def _read(self, text: str) -> tuple[list[int], int]:
        import nltk

        # the script pins NLTK 3.8.1, whose word rules changed later; the sentence splitter is unchanged
        words = [word for sentence in nltk.sent_tokenize(text.lower()) for word in sentence_tokens(sentence)]
        tagged = tagger().tag(words)
        return self._reader.read(
            self._reader.encode(lemma(word, _WORDNET_POS.get(tag[:1], "n")) for word, tag in tagged)
        )
