"""Conversion of piece rewards to token advantages (Algorithm 1, line 17).

A token gets the reward of the piece that contains its last non-space character. A token that consists of white space
gets the reward of the piece that contains its first character. With ``tokens="words"``, only words and the punctuation
directly after a word get the reward. A token without text (a special token or padding, with an empty span) gets an
advantage of 0. The end-of-sequence token is the first token without text after the last token with text
(``docs/specification.md#reward``).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, Literal, get_args
from unicodedata import category

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..base.columns import SpanColumns
from ..base.errors import InputError, check_choice, short_repr
from ..base.reprs import fields_in_short

Eos = Literal["zero", "last", "own"]
"""Credit of the end-of-sequence token: none, the reward of the last piece, or the penalty of a piece without labels."""

Truncated = Literal["score", "mask"]
"""Treatment of the last piece of a truncated response: scored, or masked to zero credit."""

Credited = Literal["all", "words"]
"""Tokens that get the reward of their piece: all tokens with text, or words and the punctuation directly after a word.
"""

Ints = NDArray[np.int64]

_EOS, _TRUNCATED = get_args(Eos), get_args(Truncated)
_SPACES = bytes(chr(c).isspace() for c in range(256))
_WORDS = bytes(chr(c).isalnum() for c in range(256))
_WIDE_SPACES = np.array([chr(c).isspace() for c in range(0x3002)])  # there is no white space above U+3000


@dataclass(frozen=True, slots=True)
class TextCredit:
    """The concatenated texts of a batch and the reward of every character.

    Attributes:
        bounds: (n + 1,) positions of the first characters of the texts.
        is_space: (characters,) mask of the white-space characters.
        reward: (characters,) float32 reward of the piece that contains each character.
        has_pieces: (n,) mask of the texts that have pieces.
        last_begin: (n,) position of the first character of each text's last piece.
        last_reward: (n,) float64 array with the reward of each text's last piece.
        is_faulty: (n,) mask of the rows that get no credit, or None if all rows are valid.
        r_reg: Penalty for the end-of-sequence token if ``eos`` is ``own``.
    """

    bounds: Ints
    is_space: NDArray[np.bool_]
    reward: NDArray[np.float32]
    has_pieces: NDArray[np.bool_]
    last_begin: Ints
    last_reward: NDArray[np.float64]
    is_faulty: NDArray[np.bool_] | None
    r_reg: float

    __repr__ = fields_in_short

    @classmethod
    def of(
        cls,
        texts: Sequence[str],
        pieces: SpanColumns,
        reward: NDArray[np.float64],
        *,
        r_reg: float,
        tokens: Credited = "all",
        faulty: Collection[int] = (),
    ) -> TextCredit:
        """Builds the credit of a batch from its texts, pieces and rewards.

        Args:
            texts: n texts.
            pieces: Pieces that together form each text.
            reward: (pieces,) rewards.
            r_reg: Penalty for the end-of-sequence token if ``eos="own"``.
            tokens: Tokens that get the reward of their piece.
            faulty: Indices of rows that get no credit.
        """
        bounds = np.zeros(len(texts) + 1, dtype=np.int64)
        np.cumsum(np.fromiter(map(len, texts), dtype=np.int64, count=len(texts)), out=bounds[1:])
        has_pieces = pieces.indptr[1:] > pieces.indptr[:-1]
        last = np.where(has_pieces, pieces.indptr[1:] - 1, -1)  # the appended entry if there is none
        is_faulty = None
        if faulty:
            is_faulty = np.zeros(len(texts), dtype=bool)
            is_faulty[list(faulty)] = True
        is_space = _spaces("".join(texts))
        by_character = np.repeat(reward.astype(np.float32), pieces.end - pieces.start)
        if tokens == "words":
            by_character[is_space | is_padding(texts)] = 0.0
        return cls(
            bounds=bounds,
            is_space=is_space,
            reward=by_character,
            has_pieces=has_pieces,
            last_begin=bounds[:-1] + np.append(pieces.start, 0)[last],
            last_reward=np.append(reward, 0.0)[last],
            is_faulty=is_faulty,
            r_reg=r_reg,
        )

    def token_advantages(
        self,
        offsets: SpanColumns | Sequence[ArrayLike],
        rows: range,
        *,
        eos: Eos,
        truncated: Truncated,
        finished: bool | Sequence[bool] | NDArray[np.bool_],
    ) -> tuple[NDArray[np.float32], Ints]:
        """Returns the advantage of every token in a range of texts.

        Args:
            offsets: Character spans of the tokens of each text in ``rows``, as (T_i, 2) arrays or as columns.
            rows: Range of text indices.
            eos: Credit for the end-of-sequence token.
            truncated: Treatment of the last piece of an unfinished text.
            finished: True for texts that ended on their own, given as a single value or as one value per text in
                ``rows``.

        Returns:
            The (tokens,) float32 advantages, and the (rows + 1,) bounds of the texts in these advantages.

        Raises:
            InputError: If ``eos`` or ``truncated`` has an unknown value, or if the offsets decrease or lie beyond the
                end of their text. The message names the index and the value.
        """
        check_choice("eos", eos, _EOS)
        check_choice("truncated", truncated, _TRUNCATED)
        indptr, start, end = _flat_offsets(offsets, rows.start)
        n = len(rows)
        if len(indptr) - 1 != n:
            raise InputError(f"offsets of {len(indptr) - 1} responses for {n} responses")
        # the text of each token; one number for a single text, which takes half the time
        row: Any = 0 if n == 1 else np.repeat(np.arange(n), indptr[1:] - indptr[:-1])
        written = (end > start).nonzero()[0]
        faulty = None if self.is_faulty is None else self.is_faulty[rows.start : rows.stop]
        if faulty is not None:  # a faulty row has tokens, but neither text nor credit
            no_text = np.broadcast_to(faulty[row], start.shape)
            start, end = np.where(no_text, 0, start), np.where(no_text, 0, end)
            written = written[~no_text[written]]
        bounds = self.bounds[rows.start : rows.stop + 1]
        base: Any
        limit: Any
        if n == 1:
            written_row = 0
            base, limit = bounds.tolist()
            limit -= base
        else:
            written_row = row[written]
            base, limit = bounds[written_row], (bounds[1:] - bounds[:-1])[row]
        _check_offsets(start, end, written, limit, row, indptr)
        owner = _owner(self.is_space, start[written] + base, end[written] + (base - 1))
        advantages = np.zeros(len(start), dtype=np.float32)
        advantages[written] = self.reward[owner]
        if truncated == "score" and eos == "zero":
            return advantages, indptr

        ended = _finished(finished, n)
        row_slice = slice(rows.start, rows.stop)
        has_pieces = self.has_pieces[row_slice]
        if truncated == "mask":
            masked_from = np.where(~ended & has_pieces, self.last_begin[row_slice], len(self.is_space))
            advantages[written[owner >= masked_from[written_row]]] = 0.0
        if eos != "zero":
            credited = ended if faulty is None else ended & ~faulty
            if eos == "last":
                credited = credited & has_pieces
            at = _end_of_sequence(written, indptr)
            chosen = np.flatnonzero(credited & (at >= 0))
            advantages[at[chosen]] = -self.r_reg if eos == "own" else self.last_reward[row_slice][chosen]
        return advantages, indptr


def _finished(finished: ArrayLike, n: int) -> NDArray[np.bool_]:
    """Returns an (n,) mask of the finished responses, from one value for all of them or one value for each."""
    values = np.asarray(finished)
    if values.dtype.kind not in "biuf" or (values.ndim and values.shape != (n,)):
        raise InputError(f"finished must be True or False, or a list of {n} such values, got {short_repr(finished)}")
    return np.broadcast_to(values.astype(bool), (n,))


def _flat_offsets(offsets: SpanColumns | Sequence[ArrayLike], first: int) -> tuple[Ints, Ints, Ints]:
    """Returns the bounds of the responses and the start and end offsets of all their tokens.

    ``first`` is the index of the first response, which is needed for error messages.
    """
    if isinstance(offsets, SpanColumns):
        return offsets.indptr, offsets.start.astype(np.int64), offsets.end.astype(np.int64)
    arrays = [_pairs(k, values) for k, values in enumerate(offsets, first)]
    indptr = np.array([0, *accumulate(map(len, arrays))], dtype=np.int64)
    flat = arrays[0] if len(arrays) == 1 else np.concatenate([np.zeros((0, 2), dtype=np.int64), *arrays])
    return indptr, flat[:, 0], flat[:, 1]


def _pairs(k: int, values: ArrayLike) -> Ints:
    try:
        array = np.asarray(values)
    except ValueError:
        array = np.zeros((1, 1))  # ragged: not pairs
    if array.size == 0:
        return np.zeros((0, 2), dtype=np.int64)
    if array.ndim != 2 or array.shape[1] != 2 or array.dtype.kind not in "iu":
        reason = f"expected (start, end) integers per token, got {short_repr(values)}"
        raise InputError(f"offsets of response {k}: {reason}")
    return array.astype(np.int64, copy=False)


def _check_offsets(start: Ints, end: Ints, written: Ints, limit: Any, row: Any, indptr: Ints) -> None:
    """Rejects spans whose offsets decrease or that extend beyond their text. Empty spans are accepted anywhere in the
    text.

    Args:
        start: (T,) start offset of each token.
        end: (T,) end offset of each token.
        written: Indices of the tokens with text.
        limit: Length in characters of each token's text, as a (T,) array or one number for all tokens.
        row: Response index of each token, as a (T,) array or one number for all tokens.
        indptr: Bounds of the responses in the array of tokens.
    """
    bad = (start < 0) | (end < start) | (end > limit)
    first, last = start[written], end[written]
    back = (first[1:] < first[:-1]) | (last[1:] < last[:-1])
    several = len(indptr) > 2
    if several:
        back &= row[written[1:]] == row[written[:-1]]
    if not (bad.any() or back.any()):
        return
    bad[written[1:][back]] = True
    k = int(np.argmax(bad))
    where = f"response {int(row[k])}, token {k - int(indptr[row[k]])}" if several else f"token {k}"
    length = int(limit[k]) if several else int(limit)
    if start[k] < 0 or end[k] > length:
        reason = f"exceeds the text of {length} characters"
    elif end[k] < start[k]:
        reason = "ends before it starts"
    else:
        previous = int(written[np.searchsorted(written, k) - 1])
        reason = f"starts before the end of ({int(start[previous])}, {int(end[previous])})"
    raise InputError(f"offsets: {where}: ({int(start[k])}, {int(end[k])}) {reason}")


def _spaces(joined: str) -> NDArray[np.bool_]:
    """Returns a mask of the white-space characters in a text."""
    if joined.isascii():
        return np.frombuffer(joined.encode("ascii").translate(_SPACES), dtype=np.bool_)
    codes = np.frombuffer(joined.encode("utf-32-le", "surrogatepass"), dtype=np.uint32)
    return np.take(_WIDE_SPACES, codes, mode="clip")


def is_padding(texts: Sequence[str]) -> NDArray[np.bool_]:
    """Returns a mask of the characters in the concatenated texts that neither belong to a word nor directly follow one,
    such as the second of two periods. Letters, digits and combining marks belong to words.
    """
    is_word = _word_characters("".join(texts))
    padding = ~is_word
    padding[1:] &= ~is_word[:-1]
    begins = np.array([0, *accumulate(map(len, texts))])[:-1][[bool(text) for text in texts]]
    padding[begins] = ~is_word[begins]
    return padding


def _word_characters(joined: str) -> NDArray[np.bool_]:
    if joined.isascii():
        return np.frombuffer(joined.encode("ascii").translate(_WORDS), dtype=np.bool_)
    codes = np.frombuffer(joined.encode("utf-32-le", "surrogatepass"), dtype=np.uint32)
    is_word = np.take(np.frombuffer(_WORDS, dtype=np.bool_), codes, mode="clip")
    wide = codes >= len(_WORDS)
    found, position = np.unique(codes[wide], return_inverse=True)
    is_word[wide] = np.array([chr(c).isalnum() or category(chr(c))[0] == "M" for c in found.tolist()], dtype=bool)[
        position
    ]
    return is_word


def _owner(is_space: NDArray[np.bool_], begin: Ints, last: Ints) -> Ints:
    """Returns the position of the character that determines each token's reward.

    The character is the token's last non-space character, or the first character if the token consists of white space.
    """
    owner: Ints = last.copy()
    moving = is_space[owner].nonzero()[0]
    while len(moving):
        moving = moving[owner[moving] > begin[moving]]
        owner[moving] -= 1
        moving = moving[is_space[owner[moving]]]
    return owner


def _end_of_sequence(written: Ints, indptr: Ints) -> Ints:
    """Returns the (n,) index of each text's end-of-sequence token, or -1 for texts without such a token.

    The end-of-sequence token is the first token without text after the last token with text.
    """
    before = np.searchsorted(written, indptr[1:]) - 1  # the last token with text up to each response's end
    last = np.append(written, -1)[before]  # before -1, the appended entry, if no token has text
    at: Ints = np.maximum(last + 1, indptr[:-1])
    at[at >= indptr[1:]] = -1
    return at
