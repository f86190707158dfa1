"""Clause cuts for many sentences at once: the batch version of ``discourse.py`` for ASCII text, with identical results.

Each word is encoded as an integer whose bits state which word lists contain the word and which ending the word has. The
decisions in ``discourse.py`` are then made with array operations over all chunks of a batch. Only lists of locations
are processed chunk by chunk.
"""

from __future__ import annotations

from functools import cache
from itertools import count
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from . import discourse as one
from .punctuation import CLOSERS, MIN_WORDS

Ints = NDArray[Any]

_LISTS = {
    "determiner": one.DETERMINERS,
    "relative": one.RELATIVES,
    "finite": one.FINITE,
    "pronoun": one.PRONOUNS,
    "subject": one.SUBJECTS,
    "conjunction": one.CONJUNCTIONS,
    "preposition": one.PREPOSITIONS,
    "place": one.PLACES,
    "own": one.OWN,
    "after_participle": one.AFTER_PARTICIPLE,
    "participle": one.PARTICIPLES,
    "irregular": one.IRREGULAR,
    "no_participle": one.NO_PARTICIPLES,
    "modal": one.MODALS,
    "adverb": one.ADVERBS,
    "fronted": one.FRONTED,
    **{f"kind_{kind}": {w for w, k in one.KINDS.items() if k == kind} for kind in dict.fromkeys(one.KINDS.values())},
    "with": {"with"},
    "with_or_without": {"with", "without"},
    "which": {"which", "whom"},
    "as": {"as"},
    "as_if": {"if", "though"},
    "and_or": {"and", "or"},
}
_BIT = {name: 1 << k for k, name in enumerate((*_LISTS, "ing", "ed", "ly", "third"))}
_SLOT_BITS = 16
_FACTOR = 0x9E3779B97F4A7C15
_MASK = np.array([(1 << 8 * n) - 1 for n in range(9)], dtype=np.uint64)
_TO_ENDING = np.array([56, 56, *range(0, 56, 8)], dtype=np.uint64)  # shift that leaves the last two of up to 8 bytes
_SPACE = np.array([chr(c).isspace() for c in range(256)]) & (np.arange(256) < 128)
_JOINS = ~_SPACE  # whether a character joins two sequences of letters and digits into one word
_JOINS[[0, ord("_")]] = False
_CLOSES = np.isin(np.arange(256), [ord(closer) for closer in CLOSERS if closer.isascii()])


class Runs(NamedTuple):
    """The runs of letters and digits in a text.

    Attributes:
        start, end: (runs,) start and end offset of each run.
        before: (characters + 1,) number of runs that begin before each position.
    """

    start: Ints
    end: Ints
    before: Ints


class _Words(NamedTuple):
    """A hash table of all words in the word lists, in which word number 0 is the empty string.

    Attributes:
        number: (slots,) number of the word in each slot of the hash table.
        head, tail: (words,) first eight bytes of each word, and last eight bytes of each word that is longer than eight
            bytes.
        length: (words,) number of characters in each word.
        bits: (words,) integer for each word, with one bit for each word list that contains the word.
        factor: Multiplier of the hash function, chosen so that no two words share a slot, and so that the slot of a
            long word is not the slot of its first eight bytes.
    """

    number: NDArray[np.int16]
    head: NDArray[np.uint64]
    tail: NDArray[np.uint64]
    length: NDArray[np.int64]
    bits: NDArray[np.int32]
    factor: int


def _slots(keys: NDArray[np.uint64], factor: int) -> NDArray[np.int64]:
    slots: NDArray[np.int64] = (keys * np.uint64(factor) >> np.uint64(64 - _SLOT_BITS)).view(np.int64)
    return slots


@cache
def _listed_words() -> _Words:
    bits: dict[str, int] = {"": 0}
    for name, words in _LISTS.items():
        for word in words:
            bits[word] = bits.get(word, 0) | _BIT[name]
    raw = [word.encode() for word in bits]
    assert max(map(len, raw)) <= 16
    head = np.array([word[:8] for word in raw], dtype="S8").view("<u8")
    tail = np.array([word[-8:] if len(word) > 8 else b"" for word in raw], dtype="S8").view("<u8")
    keys = head + tail * np.uint64(_FACTOR)
    every = np.unique(np.concatenate([keys, head]))
    factors = (_FACTOR * (2 * k + 1) % (1 << 64) for k in count())
    factor = next(f for f in factors if len(np.unique(_slots(every, f))) == len(every))
    number = np.zeros(1 << _SLOT_BITS, dtype=np.int16)
    number[_slots(keys, factor)] = range(len(raw))
    lists = np.array([*bits.values()], dtype=np.int32)
    return _Words(number, head, tail, np.array([*map(len, raw)]), lists, factor)


def _bits_of(byte: NDArray[np.uint8], starts: Ints, ends: Ints) -> NDArray[np.int32]:
    """Returns, for each word of a lower-case text, the integer whose bits encode the word's lists and ending."""
    eight = np.ndarray(len(byte) - 7, dtype="<u8", buffer=byte, strides=(1,))
    length = ends - starts
    head = eight[starts]
    head &= _MASK.take(length, mode="clip")
    is_long = (length > 8).nonzero()[0]
    tail = eight[ends[is_long] - 8]
    keys = head.copy()
    keys[is_long] += tail * np.uint64(_FACTOR)
    known = _listed_words()
    number = known.number.take(_slots(keys, known.factor))
    number[is_long] *= (known.tail[number[is_long]] == tail) & (known.length[number[is_long]] == length[is_long])
    bits: NDArray[np.int32] = known.bits.take(number)
    bits *= known.head.take(number) == head

    last = head  # up to eight bytes of each word, with its last two bytes
    last[is_long] = tail
    last >>= _TO_ENDING.take(length, mode="clip")
    ending = _ENDINGS.take(last.view(np.int64))
    ending &= _ENDINGS_OF_LENGTH.take(length, mode="clip")
    may_be_ing = (ending & _BIT["ing"] != 0).nonzero()[0]
    ending[may_be_ing[byte[ends[may_be_ing] - 3] != ord("i")]] = 0
    bits |= ending
    return bits


def _endings() -> NDArray[np.int32]:
    """Returns the bits of the word endings as a flat table, indexed by the last two bytes of a word. For *-ing*, the
    third last byte must be checked.
    """
    endings = np.zeros((256, 256), dtype=np.int32)  # last, second last
    endings[ord("g"), ord("n")] = _BIT["ing"]
    endings[ord("d"), ord("e")] = _BIT["ed"]
    endings[ord("y"), ord("l")] = _BIT["ly"]
    endings[ord("s")] = _BIT["third"]
    endings[ord("s"), [*b"su'"]] = 0
    return endings.ravel()


_ENDINGS = _endings()
_ENDINGS_OF_LENGTH = np.array(
    [0, 0, _BIT["ed"] | _BIT["ly"], _BIT["ed"] | _BIT["ly"] | _BIT["ing"], (1 << len(_BIT)) - 1], dtype=np.int32
)
"""Bits of the endings that a word of each length may have. The last entry is for all longer words."""


def clause_cuts(
    byte: NDArray[np.uint8], begin: Ints, end: Ints, marks: Ints, sentence: Ints, runs: Runs
) -> NDArray[np.bool_]:
    """Returns a (marks,) mask of the clause marks at which sentences are cut.

    Args:
        byte: Lower-case ASCII texts in one array, with at least eight padding bytes at each end.
        begin, end: (sentences,) span of each sentence. Sentences are in order and do not overlap.
        marks: Offsets after each clause mark and its white space, in order.
        sentence: (marks,) index of the sentence of each mark. Every sentence has at least one mark.
        runs: All runs of letters and digits in ``byte``.
    """
    if not len(marks):
        return np.zeros(0, dtype=bool)
    n_marks = np.bincount(sentence, minlength=len(begin))
    first = np.cumsum(n_marks + 1) - n_marks - 1  # chunk of each sentence
    of_mark = np.arange(len(marks)) + sentence + 1
    n = len(marks) + len(begin)
    start, stop = np.empty(n, dtype=np.int64), np.empty(n, dtype=np.int64)
    start[first], start[of_mark] = begin, marks
    stop[of_mark - 1], stop[first + n_marks] = marks, end
    owner = np.repeat(np.arange(len(begin)), n_marks + 1)
    place = np.arange(n) - np.repeat(first, n_marks + 1)
    chunks = _chunks(byte, start, stop, owner, place, runs)
    opens = _openings(chunks)
    opens[(n_marks > one.MOST_MARKS)[owner]] = False
    # a cut requires enough words before it in the sentence and after it up to the next opening
    words = np.append(0, np.cumsum(chunks.n_words))
    at = opens.nonzero()[0]
    until = (first + n_marks + 1)[owner[at]]
    until[:-1] = np.minimum(until[:-1], at[1:])
    cut = at[(words[at] - words[first[owner[at]]] >= MIN_WORDS) & (words[until] - words[at] >= MIN_WORDS)]
    is_cut = np.zeros(n, dtype=bool)
    is_cut[cut] = True
    return is_cut[of_mark]


class _Chunks(NamedTuple):
    """The chunks of several sentences, stored as columns; see :class:`~scapo_eval.segmenting.discourse.Chunk`.

    Attributes:
        owner: Index of the sentence.
        place: Position in the sentence.
        is_last: True for the last chunk of a sentence.
        comma: True if the mark before the chunk is a comma.
        n_words: Number of words.
        word: Index of the first word in ``bits``.
        bits: (words + 16,) integers that encode the lists and endings of all words.
        finite, relative: Number of finite verbs, and number of relative words.
    """

    owner: Ints
    place: Ints
    is_last: NDArray[np.bool_]
    comma: NDArray[np.bool_]
    n_words: Ints
    word: Ints
    bits: NDArray[np.int32]
    finite: Ints
    relative: Ints

    def at(self, k: int) -> NDArray[np.int32]:
        """Returns the bits of word ``k`` of each chunk, or 0 for chunks without this word."""
        return np.where(self.n_words > k, self.bits[self.word + k], 0)

    def any_in(self, low: int, high: int, names: int) -> NDArray[np.bool_]:
        """Returns a mask of the chunks in which one of the words ``low`` to ``high - 1`` has at least one of the given
        bits.
        """
        found = np.zeros(len(self.owner), dtype=bool)
        for k in range(low, high):
            found |= (self.bits[self.word + k] & names != 0) & (self.n_words > k)
        return found


def _chunks(byte: NDArray[np.uint8], start: Ints, stop: Ints, owner: Ints, place: Ints, runs: Runs) -> _Chunks:
    low = runs.before[start]
    counts = runs.before[stop] - low
    first = np.cumsum(counts) - counts  # run of each chunk
    run = np.arange(counts.sum()) + np.repeat(low - first, counts)
    run_start, run_end = runs.start.take(run), runs.end.take(run)
    is_new = np.ones(len(run), dtype=bool)
    is_new[1:] = (run_start[1:] - run_end[:-1] != 1) | ~_JOINS.take(byte.take(run_end[:-1]))
    is_new[first[counts > 0]] = True
    rows = is_new.nonzero()[0]
    bits = _bits_of(byte, run_start.take(rows), run_end.take(np.append(rows[1:], len(run)) - 1))
    n_words = _sums(is_new, first, counts)
    word = np.cumsum(n_words) - n_words

    is_first = np.zeros(len(bits) + 1, dtype=bool)
    is_first[word] = is_first[-1] = True
    has_before, has_behind = ~is_first[:-1], ~is_first[1:]
    before, behind = np.zeros_like(bits), np.zeros_like(bits)
    np.multiply(bits[:-1], has_behind[:-1], out=before[1:])
    np.multiply(bits[1:], has_behind[:-1], out=behind[:-1])
    kind = {name: bits & _BIT[f"kind_{name}"] != 0 for name in ("determiner", "verb", "base", "relative", "pronoun")}
    may_be_verb = _BIT["third"] | _BIT["preposition"]
    other = _BIT["kind_determiner"] | _BIT["kind_verb"] | _BIT["kind_base"] | _BIT["kind_relative"]
    finite = kind["verb"] | (kind["determiner"] & (before & may_be_verb == _BIT["third"]))
    finite |= kind["base"] & (~has_before | (before & _BIT["modal"] == 0))
    finite |= kind["pronoun"] & has_behind & (behind & other == 0)

    comma = _mark_before(byte, start - 1, _SPACE)
    return _Chunks(
        owner,
        place,
        np.append(owner[1:] != owner[:-1], True),
        (comma == ord(",")) & (place > 0),
        n_words,
        word,
        np.append(bits, np.zeros(16, dtype=np.int32)),
        _sums(finite, word, n_words),
        _sums(kind["relative"] & has_behind, word, n_words),
    )


def _sums(values: NDArray[np.bool_], first: Ints, counts: Ints) -> Ints:
    """Returns the sums of consecutive parts of an array, given the start and the length of each part."""
    before = np.zeros(len(values) + 1, dtype=np.int64)
    np.cumsum(values, out=before[1:])
    sums: Ints = before[first + counts] - before[first]
    return sums


def _mark_before(byte: NDArray[np.uint8], at: Ints, spaces: NDArray[np.bool_]) -> NDArray[np.uint8]:
    """Returns the mark at or before each position, skipping white space and closing marks."""
    at = at.copy()
    for skipped in (spaces, _CLOSES):
        rows = skipped[byte[at]].nonzero()[0]
        while len(rows):
            at[rows] -= 1
            rows = rows[skipped[byte[at[rows]]]]
    return byte[at]


def _next(values: NDArray[Any], chunks: _Chunks) -> NDArray[Any]:
    """Returns, for each chunk, the value of the next chunk of its sentence, or 0 for the last chunk."""
    following = np.zeros_like(values)
    following[:-1] = values[1:]
    following[chunks.is_last] = 0
    return following


def _previous(values: NDArray[Any], chunks: _Chunks) -> NDArray[Any]:
    """Returns, for each chunk, the value of the previous chunk of its sentence, or 0 for the first chunk."""
    previous = np.zeros_like(values)
    previous[1:] = values[:-1]
    previous[chunks.place == 0] = 0
    return previous


def _openings(chunks: _Chunks) -> NDArray[np.bool_]:
    """Returns a (chunks,) mask of the chunks with which a unit may begin."""
    first, second = chunks.at(0), chunks.at(1)
    is_clause = chunks.finite > chunks.relative
    balance = np.append(0, np.cumsum(chunks.finite - chunks.relative))[:-1]
    starts = np.arange(len(balance)) - chunks.place
    complete = (balance - balance[starts] > 0) & (chunks.place > 0)

    modifies = _modifies(chunks, first)
    is_conjunction = first & _BIT["conjunction"] != 0
    next_first, next_clause = _next(first, chunks), _next(is_clause, chunks)
    waits = (chunks.n_words <= one.SHORT) | (second & (_BIT["preposition"] | _BIT["fronted"] | _BIT["ly"]) != 0)
    waits |= (chunks.n_words <= MIN_WORDS) & (second & _BIT["determiner"] != 0) & (next_first & _BIT["determiner"] == 0)
    as_if = (first & _BIT["as"] != 0) & (second & _BIT["as_if"] != 0)
    joined = is_clause | as_if | (next_clause & waits)
    begins = is_clause & (first & (_BIT["determiner"] | _BIT["subject"] | _BIT["pronoun"]) != 0)
    begins &= _previous(chunks.finite, chunks) > 0
    after_comma = (chunks.n_words > 0) & np.where(is_conjunction, joined, begins | modifies)
    previous_words = _previous(chunks.n_words, chunks)
    is_short = (previous_words > 0) & (previous_words <= one.SHORT) & _previous(is_conjunction, chunks)
    opens: NDArray[np.bool_] = (
        complete & np.where(chunks.comma, after_comma, ~is_short) & (next_first & _BIT["finite"] == 0)
    )

    coordinates = (chunks.place == 1) & is_clause & is_conjunction
    coordinates &= _previous(first, chunks) & (_BIT["determiner"] | _BIT["subject"]) != 0
    phrase = ~complete & (chunks.place > 0) & chunks.is_last & chunks.comma
    opens |= phrase & (modifies | coordinates)
    _open_lists(chunks, first, opens)
    return opens


def _modifies(chunks: _Chunks, first: NDArray[np.int32]) -> NDArray[np.bool_]:
    """Returns a mask of the chunks that are modifiers with their own claims."""
    modifies: NDArray[np.bool_] = first & (_BIT["relative"] | _BIT["with_or_without"]) != 0
    modifies |= chunks.any_in(1, 4, _BIT["which"])
    own = (first & _BIT["own"] != 0).nonzero()[0]
    some = chunks._replace(owner=own, word=chunks.word[own], n_words=chunks.n_words[own])
    modifies[own] |= some.any_in(1, 8, _BIT["with"] | _BIT["ing"] | _BIT["ed"])
    # a participle, possibly after adverbs
    skipped = np.zeros(len(first), dtype=np.int64)
    for k in range(2):
        bits = chunks.bits[chunks.word + k]
        goes_on = (skipped == k) & (k < chunks.n_words - 1) & (bits & (_BIT["adverb"] | _BIT["ly"]) != 0)
        skipped[goes_on] += 1
    word = np.where(chunks.n_words > 0, chunks.bits[chunks.word + skipped], 0)
    following = np.where(chunks.n_words > skipped + 1, chunks.bits[chunks.word + skipped + 1], 0)
    present = (word & _BIT["participle"] != 0) | (following & (_BIT["after_participle"] | _BIT["ly"]) != 0)
    present &= word & _BIT["no_participle"] == 0
    past = (word & (_BIT["ed"] | _BIT["irregular"]) != 0) & (following & _BIT["preposition"] != 0)
    modifies |= np.where(word & _BIT["ing"] != 0, present, past)
    return modifies


def _open_lists(chunks: _Chunks, first: NDArray[np.int32], opens: NDArray[np.bool_]) -> None:
    """Marks the items of each list that follows an opening as openings, if all items of the list specify a location."""
    heads = (opens & ~chunks.is_last).nonzero()[0]
    heads = heads[~opens[heads + 1] & chunks.comma[heads + 1]]
    long_enough = chunks.n_words >= MIN_WORDS
    heads = heads[long_enough[heads] & long_enough[heads + 1]]
    if not len(heads):
        return
    places = np.append(0, np.cumsum(chunks.bits & _BIT["place"] != 0))
    located = long_enough & (places[chunks.word + chunks.n_words] > places[chunks.word + np.minimum(2, chunks.n_words)])
    is_item = chunks.comma & located & (first & (_BIT["determiner"] | _BIT["and_or"]) != 0)
    ends_list = first & _BIT["and_or"] != 0
    for owner in dict.fromkeys(chunks.owner[heads[located[heads] & is_item[heads + 1]]].tolist()):
        low, high = np.searchsorted(chunks.owner, [owner, owner + 1]).tolist()
        k = low + 1
        while k < high:
            head = k
            k += 1
            if not opens[head] or not located[head]:
                continue
            while k < high and not opens[k] and is_item[k]:
                k += 1
                if ends_list[k - 1]:
                    opens[head + 1 : k] = True
                    break
