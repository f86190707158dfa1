"""Mentions and subsentences of many texts as arrays, which the batch functions accept and return."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .reprs import fields_in_short


@dataclass(frozen=True, slots=True)
class MentionColumns:
    """The mentions in many captions, as columns. The rows of caption ``i`` are ``indptr[i]:indptr[i + 1]``.

    Attributes:
        indptr: (captions + 1,) int64 row offsets that delimit the captions.
        start: (mentions,) int32 offset of each mention's first character in the original caption.
        end: (mentions,) int32 offset after each mention's last character.
        label_id: (mentions,) int32 position of the label in ``vocabulary.labels``, or, for a watched word, its value in
            ``watch``.
    """

    indptr: NDArray[np.int64]
    start: NDArray[np.int32]
    end: NDArray[np.int32]
    label_id: NDArray[np.int32]

    __repr__ = fields_in_short

    def __len__(self) -> int:
        return len(self.indptr) - 1

    @property
    def caption(self) -> NDArray[np.int64]:
        """(mentions,) caption index of each mention."""
        return np.repeat(np.arange(len(self)), np.diff(self.indptr))

    def row(self, i: int) -> slice:
        """Returns the slice of rows that belong to caption ``i``."""
        return slice(int(self.indptr[i]), int(self.indptr[i + 1]))

    def only(self, mask: NDArray[np.bool_]) -> MentionColumns:
        """Returns the columns with only the mentions that a (mentions,) mask selects."""
        rows = np.flatnonzero(mask)
        return MentionColumns(np.searchsorted(rows, self.indptr), self.start[rows], self.end[rows], self.label_id[rows])

    @classmethod
    def concatenate(cls, parts: Sequence[MentionColumns]) -> MentionColumns:
        """Concatenates the mentions of several batches of captions."""
        if len(parts) == 1:
            return parts[0]
        counts = [np.zeros(1, dtype=np.int64), *(np.diff(part.indptr) for part in parts)]
        none = np.zeros(0, dtype=np.int32)
        return cls(
            np.cumsum(np.concatenate(counts)),
            np.concatenate([none, *(part.start for part in parts)]),
            np.concatenate([none, *(part.end for part in parts)]),
            np.concatenate([none, *(part.label_id for part in parts)]),
        )

    def with_captions(self, rows: Sequence[tuple[int, int, int, int]]) -> MentionColumns:
        """Adds sorted rows ``(caption, start, end, label_id)`` for captions that have no mentions yet, and returns the
        new columns.
        """
        extra = np.array(rows, dtype=np.int64).reshape(-1, 4)
        caption = np.concatenate([self.caption, extra[:, 0]])
        order = np.argsort(caption, kind="stable")
        indptr = np.zeros(len(self) + 1, dtype=np.int64)
        np.cumsum(np.bincount(caption, minlength=len(self)), out=indptr[1:])
        return MentionColumns(
            indptr,
            np.concatenate([self.start, extra[:, 1].astype(np.int32)])[order],
            np.concatenate([self.end, extra[:, 2].astype(np.int32)])[order],
            np.concatenate([self.label_id, extra[:, 3].astype(np.int32)])[order],
        )


@dataclass(frozen=True, slots=True)
class SpanColumns:
    """The subsentences of many texts, stored as columns. The rows of text ``i`` are ``indptr[i]:indptr[i + 1]``.

    Attributes:
        indptr: (texts + 1,) int64 row offsets that delimit the texts.
        start: (spans,) int32 offset of each span's first character in the original text.
        end: (spans,) int32 offset after each span's last character.
    """

    indptr: NDArray[np.int64]
    start: NDArray[np.int32]
    end: NDArray[np.int32]

    __repr__ = fields_in_short

    def __len__(self) -> int:
        return len(self.indptr) - 1

    @property
    def text(self) -> NDArray[np.int64]:
        """(spans,) text index of each span."""
        return np.repeat(np.arange(len(self)), np.diff(self.indptr))
