"""Character spans of generated tokens, which are computed from the token ids alone.

A policy may sample any sequence of ids, and encoding the decoded text again often yields other ids. Therefore, this
module looks up the bytes of every token in a table that is built once per tokenizer. The bytes of the tokens are
concatenated and converted to character positions. A token's span covers every character that contains one of the
token's bytes. A token that contains only a part of a character gets the span of the whole character, and a special
token gets an empty span.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from threading import Lock
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..base.columns import SpanColumns
from ..base.errors import InputError

REPLACEMENT = "\ufffd"
"""Character that replaces invalid UTF-8 bytes."""

_BYTE_TOKEN = re.compile(r"<0x([0-9A-Fa-f]{2})>")
_STEPS = {"ByteLevel", "Fuse", "Replace", "ByteFallback", "Strip", "Metaspace", "WordPiece"}
_COMPARED = 8  # number of decoded texts that are compared with those of the tokenizer at its first use
_BLOCK = 8192  # number of tokens per step, whose arrays fit into the processor cache


def token_offsets(tokenizer: Any, ids: ArrayLike) -> NDArray[np.int64]:
    """Returns the character span of each token in the text from :func:`decode_with_offsets`.

    Args:
        tokenizer: Tokenizer that :func:`decode_with_offsets` accepts.
        ids: The T generated token ids.

    Returns:
        (T, 2) int64 array of start and end offsets.

    Raises:
        InputError: If the tokenizer is not supported or an id is negative.

    Example:
        >>> from tokenizers import Tokenizer, decoders, models
        >>> tokenizer = Tokenizer(models.WordPiece({"[UNK]": 0, "A": 1, "dog": 2, "cat": 3, "##s": 4}))
        >>> tokenizer.decoder = decoders.WordPiece()
        >>> from scapo_eval.rewarding.tokens import token_offsets
        >>> token_offsets(tokenizer, [1, 2, 4]).tolist()  # of "A dogs"
        [[0, 1], [1, 5], [5, 6]]
    """
    return decode_with_offsets(tokenizer, ids)[1]


def decode_with_offsets(tokenizer: Any, ids: ArrayLike) -> tuple[str, NDArray[np.int64]]:
    """Returns the text decoded from generated token ids, and the character span of each token in this text.

    The text equals ``tokenizer.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False)``. The reward
    must be computed on the returned text, because the spans refer to it.

    Args:
        tokenizer: A fast Hugging Face tokenizer, a processor that contains such a tokenizer, or a
            ``tokenizers.Tokenizer``. Byte-level, SentencePiece (with or without byte fallback) and WordPiece tokenizers
            are supported. The byte table is cached until the tokenizer is deleted.
        ids: The T generated token ids, including special tokens and padding. Unknown ids are decoded to empty strings,
            as in ``tokenizer.decode``.

    Returns:
        The text, and the (T, 2) int64 spans of the tokens. The start and end offsets of successive tokens with text
        never decrease. Tokens that share a character also share its span, and special tokens have empty spans.

    Raises:
        InputError: If the tokenizer is not supported or an id is negative. The message states the index of the id.

    Example:
        >>> from tokenizers import Tokenizer, decoders, models
        >>> tokenizer = Tokenizer(models.WordPiece({"[UNK]": 0, "A": 1, "dog": 2, "cat": 3, "##s": 4}))
        >>> tokenizer.decoder = decoders.WordPiece()
        >>> from scapo_eval.rewarding.tokens import decode_with_offsets
        >>> text, spans = decode_with_offsets(tokenizer, [1, 2, 4])
        >>> text, spans.tolist()
        ('A dogs', [[0, 1], [1, 5], [5, 6]])
    """
    flat, indptr = _concatenated([ids])
    return _table_of(tokenizer, flat, indptr).decode_one(flat)


def decode_batch(tokenizer: Any, sequences: Sequence[ArrayLike]) -> tuple[list[str], SpanColumns]:
    """Decodes many sequences at once, with the same result as :func:`decode_with_offsets`.

    Args:
        tokenizer: Tokenizer that :func:`decode_with_offsets` accepts.
        sequences: The n sequences of token ids, as lists, arrays or tensors.

    Returns:
        The n texts, and the spans of all tokens as columns. The rows ``indptr[i]:indptr[i + 1]`` belong to sequence
        ``i``.

    Example:
        >>> from tokenizers import Tokenizer, decoders, models
        >>> tokenizer = Tokenizer(models.WordPiece({"[UNK]": 0, "A": 1, "dog": 2, "cat": 3, "##s": 4}))
        >>> tokenizer.decoder = decoders.WordPiece()
        >>> from scapo_eval.rewarding.tokens import decode_batch
        >>> texts, spans = decode_batch(tokenizer, [[1, 2], [1, 3, 4]])
        >>> texts, spans.indptr.tolist()
        (['A dog', 'A cats'], [0, 2, 5])
    """
    return decode_flat(tokenizer, *_concatenated(sequences))


def decode_flat(tokenizer: Any, flat: NDArray[np.int64], indptr: NDArray[np.int64]) -> tuple[list[str], SpanColumns]:
    """Decodes concatenated sequences, with the same result as :func:`decode_batch`.

    Args:
        tokenizer: Tokenizer that :func:`decode_with_offsets` accepts.
        flat: Concatenated token ids of all sequences.
        indptr: (n + 1,) array of the bounds of the sequences in ``flat``.
    """
    _check_ids(flat, indptr)
    return _table_of(tokenizer, flat, indptr).decode(flat, indptr)


def _concatenated(sequences: Sequence[ArrayLike]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Concatenates sequences of token ids, and returns the concatenated ids and the bounds of the sequences."""
    arrays = [ids_of(k, ids) for k, ids in enumerate(sequences)]
    indptr = np.zeros(len(arrays) + 1, dtype=np.int64)
    np.cumsum([len(array) for array in arrays], out=indptr[1:])
    flat = arrays[0] if len(arrays) == 1 else np.concatenate([np.zeros(0, dtype=np.int64), *arrays])
    _check_ids(flat, indptr)
    return flat, indptr


def _check_ids(flat: NDArray[np.int64], indptr: NDArray[np.int64]) -> None:
    """Rejects negative token ids."""
    if len(flat) and flat.min() < 0:
        at = int(np.argmax(flat < 0))
        k = int(np.searchsorted(indptr, at, side="right")) - 1
        reason = f"[{at - int(indptr[k])}] is {int(flat[at])}, not a valid token id; omit padding"
        raise InputError(f"token ids of response {k}: {reason}")


def ids_of(k: int, ids: Any) -> NDArray[np.int64]:
    """Converts the token ids of response ``k`` (a list, an array or a tensor) to an array.

    Raises:
        InputError: If the token ids are not a flat list of integers.
    """
    array = np.asarray(ids.cpu() if hasattr(ids, "cpu") else ids)
    if array.size == 0:
        return np.zeros(0, dtype=np.int64)
    if array.ndim != 1 or array.dtype.kind not in "iu":
        reason = f"expected a flat list of integers, got {type(ids).__name__}"
        raise InputError(f"token ids of response {k}: {reason}")
    return array.astype(np.int64, copy=False)


@dataclass(frozen=True)
class _TokenTable:
    """A table with the bytes that each token id of a tokenizer decodes to.

    Attributes:
        data: Concatenated bytes of all tokens.
        starts: (rows,) int64 position of each row in ``data``. Row ``k`` contains the token with id ``k``. The rows of
            special tokens are empty, and so is row ``n_ids``, which is used for ids beyond the vocabulary. The rows
            that ``first`` refers to come after row ``n_ids``.
        lengths: (rows,) int64 length of each row in bytes.
        n_ids: Number of ids in the vocabulary.
        first: Mapping from ids to rows for tokens that are decoded differently at the beginning of a text (without a
            leading space).
        special: (ids + 1,) mask of the tokens that decoding skips.
        fallback: (ids + 1,) mask of the byte tokens ``<0x..>``, or None for byte-level tokenizers.
        size: Number of tokens in the tokenizer when the table was built.
    """

    data: NDArray[np.uint8]
    starts: NDArray[np.int64]
    lengths: NDArray[np.int64]
    n_ids: int
    first: dict[int, int]
    special: NDArray[np.bool_]
    fallback: NDArray[np.bool_] | None
    size: int

    def decode_one(self, ids: NDArray[np.int64]) -> tuple[str, NDArray[np.int64]]:
        """Returns the text and the (T, 2) spans of one sequence. ASCII text is handled by a faster method than the one
        in :meth:`decode`.
        """
        indptr = np.array([0, len(ids)])
        joined, lengths = self._written(ids, indptr)
        offsets = np.empty((len(ids), 2), dtype=np.int64)
        if joined.isascii():
            offsets[:, 1] = lengths.cumsum()
            offsets[:, 0] = offsets[:, 1] - lengths
            return joined.decode("ascii"), offsets
        texts, spans = self.decode(ids, indptr)
        offsets[:, 0], offsets[:, 1] = spans.start, spans.end
        return texts[0], offsets

    def _written(self, flat: NDArray[np.int64], indptr: NDArray[np.int64]) -> tuple[bytes, NDArray[np.int64]]:
        """Returns the concatenated bytes of the tokens in all sequences, and the number of bytes of each token."""
        rows = np.minimum(flat, self.n_ids)
        if self.first:
            for at in self._first_positions(flat, indptr):
                rows[at] = self.first.get(int(flat[at]), rows[at])
        lengths = self.lengths.take(rows)
        starts = self.starts.take(rows)
        written = []
        for low in range(0, len(flat), _BLOCK):
            block = lengths[low : low + _BLOCK]
            index = np.repeat(starts[low : low + _BLOCK] - block.cumsum() + block, block)
            index += np.arange(len(index))
            written.append(self.data.take(index).tobytes())
        return b"".join(written), lengths

    def decode(self, flat: NDArray[np.int64], indptr: NDArray[np.int64]) -> tuple[list[str], SpanColumns]:
        """Returns the texts and spans of concatenated sequences."""
        joined, lengths = self._written(flat, indptr)
        ends = np.cumsum(lengths)
        begins = ends - lengths
        bounds = np.append(begins, len(joined))[indptr]

        cuts = bounds.tolist()
        if joined.isascii():
            text = joined.decode("ascii")
            base = np.repeat(bounds[:-1], np.diff(indptr))
            texts = [text[low:high] for low, high in zip(cuts, cuts[1:], strict=False)]
            return texts, SpanColumns(indptr, (begins - base).astype(np.int32), (ends - base).astype(np.int32))
        # a character begins at every byte that is not a continuation byte; for invalid UTF-8, see _with_replacements
        data = np.frombuffer(joined, dtype=np.uint8)
        leads = (data & 0xC0) != 0x80
        texts = []
        for k, (low, high) in enumerate(zip(cuts, cuts[1:], strict=False)):
            try:
                texts.append(joined[low:high].decode("utf-8"))
            except UnicodeDecodeError:
                rows = slice(int(indptr[k]), int(indptr[k + 1]))
                text, leads[low:high] = self._with_replacements(joined[low:high], flat[rows], lengths[rows])
                texts.append(text)
        # index of each byte's character within its text
        character = np.append(np.cumsum(leads), 0)
        counts = np.diff(indptr)
        before = np.repeat(np.where(bounds[:-1] > 0, character[bounds[:-1] - 1], 0), counts)
        written = lengths > 0
        last = np.where(ends > 0, character[ends - 1], 0)  # number of characters that begin before each token's end
        start = np.where(written, character[np.minimum(begins, len(joined))] - 1, last) - before
        start = np.where(written, start, last - before)
        return texts, SpanColumns(indptr, start.astype(np.int32), (last - before).astype(np.int32))

    def _first_positions(self, flat: NDArray[np.int64], indptr: NDArray[np.int64]) -> list[int]:
        """Returns, for each sequence, the position of the first token that decoding does not skip."""
        kept = np.append(np.flatnonzero(~self.special.take(flat, mode="clip")), len(flat))
        at = kept[np.searchsorted(kept, indptr[:-1])]
        return [k for k, end in zip(at.tolist(), indptr[1:].tolist(), strict=True) if k < end]

    def _with_replacements(
        self, data: bytes, ids: NDArray[np.int64], lengths: NDArray[np.int64]
    ) -> tuple[str, NDArray[np.bool_]]:
        """Decodes invalid UTF-8 bytes as the tokenizer does, and marks the bytes at which characters begin.

        A byte-level decoder replaces each maximal prefix of an incomplete character with one U+FFFD. With byte
        fallback, every byte of a sequence of byte tokens is replaced if the sequence as a whole is invalid.
        """
        if self.fallback is None:
            return _byte_level_replacements(data)
        edges = np.append(0, np.cumsum(lengths))
        # skipped tokens have no text and do not interrupt a sequence of bytes
        rows = np.flatnonzero(lengths > 0)
        is_byte = self.fallback.take(ids[rows], mode="clip")
        border = np.flatnonzero(np.diff(is_byte.astype(np.int8))) + 1
        texts: list[str] = []
        leads: list[NDArray[np.bool_]] = []
        for run in np.split(rows, border):
            piece = data[int(edges[run[0]]) : int(edges[run[-1] + 1])]
            try:
                texts.append(piece.decode("utf-8"))
                leads.append((np.frombuffer(piece, dtype=np.uint8) & 0xC0) != 0x80)
            except UnicodeDecodeError:
                texts.append(REPLACEMENT * len(piece))
                leads.append(np.ones(len(piece), dtype=bool))
        return "".join(texts), np.concatenate(leads)


def _byte_level_replacements(data: bytes) -> tuple[str, NDArray[np.bool_]]:
    """Returns ``data.decode("utf-8", "replace")`` and a mask of the bytes at which characters begin."""
    leads = (np.frombuffer(data, dtype=np.uint8) & 0xC0) != 0x80
    texts: list[str] = []
    at = 0
    while at < len(data):
        try:
            texts.append(data[at:].decode("utf-8"))
            break
        except UnicodeDecodeError as error:
            begin, end = at + error.start, at + error.end
            texts += [data[at:begin].decode("utf-8"), REPLACEMENT]
            leads[begin], leads[begin + 1 : end] = True, False
            at = end
    return "".join(texts), leads


_tables: WeakKeyDictionary[Any, _TokenTable] = WeakKeyDictionary()
_lock = Lock()


def _table_of(tokenizer: Any, flat: NDArray[np.int64], indptr: NDArray[np.int64]) -> _TokenTable:
    """Returns the cached token table of a tokenizer, and rebuilds the table if tokens were added to the tokenizer.

    Checks each new table against the tokenizer's own decoding of the first sequences.
    """
    backend = _backend_of(tokenizer)
    size = backend.get_vocab_size(with_added_tokens=True)
    with suppress(TypeError):  # an older tokenizers.Tokenizer does not support weak references
        table = _tables.get(tokenizer)
        if table is not None and table.size == size:
            return table
    with _lock:
        table = _build_table(backend, size)
        compared = min(_COMPARED, len(indptr) - 1)
        ids = np.minimum(flat, table.n_ids)
        decoded = backend.decode_batch([ids[indptr[k] : indptr[k + 1]].tolist() for k in range(compared)])
        texts, _ = table.decode(flat[: indptr[compared]], indptr[: compared + 1])
        for ours, theirs in zip(texts, decoded, strict=True):
            if ours != theirs:
                reason = f"token spans do not fit this tokenizer: {theirs!r} was read as {ours!r}"
                raise InputError(reason)
        with suppress(TypeError):
            _tables[tokenizer] = table
    return table


def _backend_of(tokenizer: Any) -> Any:
    """Returns the ``tokenizers.Tokenizer`` inside a tokenizer or processor."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        holder = getattr(tokenizer, "tokenizer", tokenizer)  # the tokenizer of a processor
        backend = getattr(holder, "backend_tokenizer", holder)
    if not all(hasattr(backend, name) for name in ("decode_batch", "decoder", "get_added_tokens_decoder")):
        kind = type(tokenizer).__name__
        raise InputError(f"{kind} is not a fast Hugging Face tokenizer (load it with use_fast=True)")
    return backend


def _build_table(backend: Any, size: int) -> _TokenTable:
    added = backend.get_added_tokens_decoder()
    names = {k: token for token, k in backend.get_vocab(with_added_tokens=True).items()}
    names |= {k: token.content for k, token in added.items()}
    tokens = [names.get(k) for k in range(max(names, default=-1) + 1)]
    skipped = [token is None or (k in added and added[k].special) for k, token in enumerate(tokens)]
    kinds = _decoder_kinds(backend.decoder)
    byte_tokens = [None if token is None else _BYTE_TOKEN.fullmatch(token) for token in tokens]
    if "ByteLevel" in kinds:
        of_character = _byte_of_character()
        read = (_byte_level(token or "", of_character) for token in tokens)
        pieces = [b"" if skip else piece for piece, skip in zip(read, skipped, strict=True)]
        first: dict[int, bytes] = {}
        fallback = None
    else:
        is_byte = [bool(match) and "ByteFallback" in kinds for match in byte_tokens]
        pieces, first = _probe(backend, skipped, is_byte)
        for k, match in enumerate(byte_tokens):
            if match and is_byte[k]:
                pieces[k] = bytes.fromhex(match.group(1))
                if pieces[k] >= b"\x80" or first.get(k) == pieces[k]:
                    first.pop(k, None)  # a single byte of a longer character cannot be decoded
        fallback = np.array([*is_byte, False])
    rows = [*pieces, b"", *first.values()]
    lengths = np.array(list(map(len, rows)), dtype=np.int64)
    return _TokenTable(
        data=np.frombuffer(b"".join(rows), dtype=np.uint8),
        starts=np.cumsum(lengths) - lengths,
        lengths=lengths,
        n_ids=len(pieces),
        first={k: len(pieces) + 1 + row for row, k in enumerate(first)},
        special=np.array([*skipped, True]),
        fallback=fallback,
        size=size,
    )


def _decoder_kinds(decoder: Any) -> set[str]:
    """Returns the types of the steps in a tokenizer's decoder.

    Raises:
        InputError: If the text of a token may depend on anything other than the token itself and whether it is the
            first token of a text.
    """
    if decoder is None:
        return set()
    state = json.loads(decoder.__getstate__())
    steps = state.get("decoders", [state])
    kinds = {step["type"] for step in steps}
    strips_ends = any(step["type"] == "Strip" and step["stop"] for step in steps)
    if not kinds <= _STEPS or strips_ends or ("ByteLevel" in kinds and kinds - {"ByteLevel", "Fuse"}):
        named = ", ".join(step["type"] for step in steps)
        raise InputError(f"token spans are not known for a decoder of {named}")
    return kinds


def _byte_of_character() -> dict[str, int]:
    """Returns GPT-2's byte alphabet as a mapping from character to byte.

    Printable bytes are mapped to themselves, and all other bytes to characters from U+0100 on.
    """
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(0x100 + k): byte for k, byte in enumerate(others)}


def _byte_level(token: str, of_character: dict[str, int]) -> bytes:
    try:
        return bytes(map(of_character.__getitem__, token))
    except KeyError:  # the text of an added token outside the alphabet is the token itself
        return token.encode("utf-8")


def _probe(backend: Any, skipped: list[bool], is_byte: list[bool]) -> tuple[list[bytes], dict[int, bytes]]:
    """Returns the text that each token decodes to after another token, and a mapping with the texts of those tokens
    that decode differently at the beginning of a text.
    """
    alone = backend.decode_batch([[k] for k in range(len(skipped))], skip_special_tokens=False)
    usable = (k for k, text in enumerate(alone) if text and not (skipped[k] or is_byte[k] or text[:1].isspace()))
    anchor = next(usable, None)
    if anchor is None:
        raise InputError("the tokenizer has no token with text")
    pairs = backend.decode_batch([[anchor, k] for k in range(len(skipped))], skip_special_tokens=False)
    pieces: list[bytes] = []
    first: dict[int, bytes] = {}
    for k, (text, pair) in enumerate(zip(alone, pairs, strict=True)):
        after = "" if skipped[k] else pair.removeprefix(alone[anchor])
        pieces.append(after.encode("utf-8"))
        if not skipped[k] and text != after:
            first[k] = text.encode("utf-8")
    return pieces, first
