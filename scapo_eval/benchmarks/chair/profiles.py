"""Profiles of the ``chair`` benchmark: three methods of converting a caption to an ordered list of objects.

``native`` is the project's own matcher. ``reference`` reproduces the standalone CHAIR script with the project's own
tokenizer and singularizer, and does not require NLTK. ``opera`` reproduces OPERA's script, which was used for published
tables of vision-language models. It requires NLTK's part-of-speech tagger and WordNet lemmatizer. The lemmatizer alone
changes CHAIR_s by up to 3.4 points, so the profile is part of every signature.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ...base.columns import MentionColumns
from ...base.reprs import fields_in_short
from ...matching.matcher import AliasMatcher
from ...matching.matcher_batch import BATCH
from ...matching.uses import Reading, reading_fields
from ...matching.vocabulary import Vocabulary
from .singular import singularize
from .synonyms import Synonyms, WordReader
from .tokens import split_chunk

PROFILES = ("native", "reference", "opera")


@dataclass(frozen=True, slots=True)
class ObjectColumns(MentionColumns):
    """Objects that a profile found in many captions, stored as columns.

    Attributes:
        lengths: (captions,) int64 number of words. The profile ``native`` counts words separated by white space. The
            script profiles count their own tokens, including punctuation, and count merged pairs once.
    """

    lengths: NDArray[np.int64]

    __repr__ = fields_in_short

    @classmethod
    def of_words(cls, captions: Sequence[tuple[list[int], int]]) -> ObjectColumns:
        """Builds the columns from one pair ``(label ids, number of words)`` per caption. The columns contain no spans,
        because the scripts do not record them.
        """
        indptr = np.cumsum([0, *(len(labels) for labels, _ in captions)], dtype=np.int64)
        labels = np.fromiter(chain.from_iterable(labels for labels, _ in captions), dtype=np.int32)
        lengths = np.array([length for _, length in captions], dtype=np.int64)
        none = np.zeros(0, dtype=np.int32)
        return cls(indptr, none, none, labels, lengths)


class Profile(Protocol):
    """Method for converting a caption to an ordered list of objects.

    Attributes:
        name: Name of the profile, one of PROFILES.
        vocabulary: Objects that the profile can find.
        fields: Settings that determine how captions are read, as fields of the signature.
    """

    name: str
    vocabulary: Vocabulary
    fields: Mapping[str, Any]

    def find_batch(self, texts: Sequence[str]) -> ObjectColumns:
        """Returns the objects of each caption in text order, including repetitions."""


class Native:
    """Profile that uses the project's matcher.

    Args:
        vocabulary: Vocabulary to match.
        claims: Reading, which selects the mentions to count; see :mod:`scapo_eval.matching.uses`.
    """

    name = "native"

    def __init__(self, vocabulary: Vocabulary, claims: Reading = "all") -> None:
        self.vocabulary = vocabulary
        self.claims = claims
        self.fields: Mapping[str, Any] = {"vocab": vocabulary.identity, **reading_fields(claims)}
        self._matcher = AliasMatcher(vocabulary, claims)

    def find_batch(self, texts: Sequence[str]) -> ObjectColumns:
        """Implements ``find_batch``; see :class:`Profile`."""
        mentions = self._matcher.find_batch(texts)
        return ObjectColumns(mentions.indptr, mentions.start, mentions.end, mentions.label_id, word_counts(texts))


def word_counts(texts: Sequence[str]) -> NDArray[np.int64]:
    """Returns ``len(text.split())`` for each text, processing many texts in one step."""
    passes = [_word_counts(texts[k : k + BATCH]) for k in range(0, len(texts), BATCH)]
    return np.concatenate(passes) if passes else np.zeros(0, dtype=np.int64)


_FOREIGN_SPACE = re.compile("[\x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]")


def _word_counts(texts: Sequence[str]) -> NDArray[np.int64]:
    plain = [
        text if text.isascii() else _FOREIGN_SPACE.sub(" ", text).encode("ascii", "replace").decode() for text in texts
    ]
    byte = np.frombuffer(" ".join(["", *plain]).encode("ascii"), dtype=np.uint8)
    space = (byte - 9 < 5) | (byte - 28 < 5)  # ASCII white space; unsigned differences wrap around
    first = np.flatnonzero(space[:-1] > space[1:])  # space before each word
    ends = np.cumsum(np.fromiter(map(len, plain), dtype=np.int64, count=len(plain)) + 1)
    return np.diff(np.searchsorted(first, ends), prepend=0)


class Reference:
    """Profile that reproduces the standalone CHAIR script.

    The tokens of a chunk that is delimited by white space never depend on other chunks, so they are computed once and
    then looked up.

    Args:
        synonyms: Table with the words for each object.
    """

    name = "reference"

    def __init__(self, synonyms: Synonyms) -> None:
        self.vocabulary = synonyms.vocabulary
        self.fields: Mapping[str, Any] = {"synonyms": synonyms.fingerprint}
        self._reader = WordReader(synonyms)
        self._inner = _Chunks(self._reader)
        self._line_end = _Chunks(self._reader, spaced=False)
        self._last = _Chunks(self._reader, last=True)

    def find_batch(self, texts: Sequence[str]) -> ObjectColumns:
        """Implements ``find_batch``; see :class:`Profile`."""
        read = self._reader.read
        return ObjectColumns.of_words([read(self._encode(text.lower())) for text in texts])

    def _encode(self, text: str) -> str:
        if "'" not in text or text.isprintable():
            return self._encode_line(text, self._last)
        # the kind of space after a chunk matters only if an apostrophe can precede a line end or a tab
        *lines, last = _NO_PLAIN_SPACE.split(text.rstrip())
        encoded = [self._encode_line(line, self._inner if line.endswith(" ") else self._line_end) for line in lines]
        return "".join(encoded) + self._encode_line(last, self._last)

    def _encode_line(self, line: str, last: _Chunks) -> str:
        parts = line.split()
        if not parts:
            return ""
        end = last[parts.pop()]
        return "".join(map(self._inner.__getitem__, parts)) + end


_NO_PLAIN_SPACE = re.compile(r"[^\S ]")


class _Chunks(dict[str, str]):
    """Mapping from a chunk to its words, each encoded as one character; the mapping is computed at the first access.

    Args:
        reader: Object that assigns a character to each word.
        follows: Position of the chunk, as keyword arguments of :func:`split_chunk`.
    """

    def __init__(self, reader: WordReader, **follows: bool) -> None:
        self._reader = reader
        self._follows = follows

    def __missing__(self, chunk: str) -> str:
        words = self._reader.encode(map(singularize, split_chunk(chunk, **self._follows)))
        self[chunk] = words
        return words
