"""The matcher against a slow, obvious oracle, the examples of the specification, and vocabulary conflicts.

The oracle shares no code with the package: it tries every pair of word borders of the NFC text, compares
case-folded spellings, and takes leftmost, then longest.
"""

from __future__ import annotations

import json
import pickle
import re
import unicodedata
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from scapo_eval import AliasMatcher, InputErrors, Mention, Vocabulary
from scapo_eval.base.text import nfc_with_map
from scapo_eval.matching.context import noun_behind
from scapo_eval.matching.matcher_batch import BatchMatcher
from scapo_eval.matching.trie import AliasTrie
from scapo_eval.matching.uses import Reading
from scapo_eval.matching.visible import displayed, plain_letters, shown

Found = list[tuple[int, int, str]]


# ---- the oracle ----


def is_word(character: str) -> bool:
    return character.isalnum() or character == "_" or unicodedata.category(character).startswith("M")


BLOCKS = ["0e00 0eff", "1000 109f", "1780 17ff", "1950 19df", "1a20 1aaf", "1b00 1b7f", "a980 a9ff", "aa00 aadf",
          "3005 3007", "3021 3029", "3031 3035", "3038 303c", "3040 30ff", "31f0 31ff", "ff66 ff9f", "3400 4dbf",
          "4e00 9fff", "f900 faff", "20000 3ffff"]  # fmt: skip
UNSPACED = {chr(c) for block in BLOCKS for c in range(int(block.split()[0], 16), int(block.split()[1], 16) + 1)}


def is_mark(character: str) -> bool:
    return unicodedata.category(character).startswith("M")


def word_begins(text: str, at: int) -> bool:
    """Between a border and a word character, and around each letter, with its marks, of a script without spaces."""
    if not is_word(text[at]):
        return False
    if not at or not is_word(text[at - 1]) or (text[at] in UNSPACED and not is_mark(text[at])):
        return True
    before = text[:at]
    while before and is_mark(before[-1]):
        before = before[:-1]
    return not is_mark(text[at]) and before[-1:] in UNSPACED and is_word(before[-1])


def spelling(text: str, of_alias: bool) -> str:
    """Case-folded NFC text in which everything that the specification calls equal looks the same."""
    runs = re.findall(r"W+|N+", "".join("W" if is_word(c) else "N" for c in text))
    out, at = [], 0
    for run in runs:
        piece, at = text[at : at + len(run)], at + len(run)
        if run[0] == "W":
            out.append(unicodedata.normalize("NFC", piece.casefold()))
        elif (
            piece.isspace()
            or piece in ("-", "\u2010", "\u2011")
            or (of_alias and re.fullmatch(r"[\s\-\u2010\u2011]+", piece))
        ):
            out.append(" ")
        else:
            for curly, straight in (("\u2018", "'"), ("\u2019", "'"), ("\u2010", "-"), ("\u2011", "-")):
                piece = piece.replace(curly, straight)
            out.append(re.sub(r"\s+", " ", piece))
    return "".join(out)


def offsets(text: str) -> list[int | None]:
    """Offset in the NFC text -> offset in the original, None inside what was normalised together."""
    whole = unicodedata.normalize("NFC", text)
    back: list[int | None] = [None] * (len(whole) + 1)
    for k in range(len(text) + 1):
        left = unicodedata.normalize("NFC", text[:k])
        if left + unicodedata.normalize("NFC", text[k:]) == whole:
            back[len(left)] = k
    return back


def slow_find(vocabulary: Vocabulary, text: str) -> Found:
    """Every match by brute force, of the text as it is read; ignore phrases take part and are omitted."""
    text = shown(text)
    visible = displayed(text)
    if visible is None:
        return slow_find_plain(vocabulary, text)
    body, starts, ends = visible
    return [(starts[start], ends[end - 1], label) for start, end, label in slow_find_plain(vocabulary, body)]


def slow_find_plain(vocabulary: Vocabulary, text: str) -> Found:
    entries: dict[str, str | None] = {
        spelling(unicodedata.normalize("NFC", plain_letters(alias)).strip(), True): label
        for alias, label in (*vocabulary.aliases.items(), *vocabulary.compounds.items())
    }
    entries |= {spelling(unicodedata.normalize("NFC", phrase).strip(), True): None for phrase in vocabulary.ignore}
    body, back = unicodedata.normalize("NFC", text), offsets(text)
    begins = [k for k in range(len(body)) if word_begins(body, k)]
    ends = [
        k
        for k in range(1, len(body) + 1)
        if is_word(body[k - 1]) and (k == len(body) or not is_word(body[k]) or word_begins(body, k))
    ]
    found, free = [], 0
    for begin in begins:
        if begin < free:
            continue
        hits = [end for end in ends if end > begin and spelling(body[begin:end], False) in entries]
        if hits:
            free = max(hits)
            label = entries[spelling(body[begin:free], False)]
            if label is not None:
                start, end = back[begin], back[free]
                assert start is not None
                assert end is not None
                found.append((start, end, label))
    return found


def as_tuples(mentions: Sequence[Mention]) -> Found:
    return [(m.start, m.end, m.label) for m in mentions]


def batch(matcher: AliasMatcher, texts: Sequence[str]) -> list[Found]:
    columns = matcher.find_batch(texts)
    assert len(columns) == len(texts)
    assert columns.indptr[0] == 0
    assert columns.indptr[-1] == len(columns.start)
    labels = matcher.vocabulary.labels
    rows = [columns.row(k) for k in range(len(texts))]
    return [
        [
            (s, e, labels[i])
            for s, e, i in zip(
                columns.start[r].tolist(), columns.end[r].tolist(), columns.label_id[r].tolist(), strict=True
            )
        ]
        for r in rows
    ]


def make(labels: dict[str, list[str]], ignore: Sequence[str] = ()) -> AliasMatcher:
    return AliasMatcher(Vocabulary.from_mapping(labels, ignore))


def check(matcher: AliasMatcher, texts: Sequence[str]) -> None:
    expected = [slow_find(matcher.vocabulary, text) for text in texts]
    one_by_one = [matcher.find(text) for text in texts]
    for text, mentions in zip(texts, one_by_one, strict=True):
        assert all(m.surface == text[m.start : m.end] for m in mentions)
    assert [as_tuples(mentions) for mentions in one_by_one] == expected
    assert batch(matcher, texts) == expected


# ---- adversarial text ----

LONG = [f"{'abcdefghijklmnopqrstuvwxyz'[:n]}{tail}" for n in (6, 7, 8, 14, 15, 16, 23) for tail in ("", "y", "z")]
LONG += ["abcdefgh_middle1_stuvwxyz", "abcdefgh_middle2_stuvwxyz"]  # equal first and last eight bytes
WORDS = [
    "dog", "dogs", "hot", "car", "carpet", "seat", "s", "t", "shirt", "umbrella", "stand", "standing", "a", "i", "of",
    "caf\u00e9", "cafe", "cafe\u0301", "o_o", "7", "7up", "\u0130stanbul", "istanbul", "i\u0307stanbul", "stra\u00dfe",
    "strasse", "\ufb01sh", "fish", "\u732b", "\u72d7\u5c4b", "t\u6064", "\u30c8\u30e9", "\u30c8\u30e9\u30c3\u30af",
    "\u0e2b\u0e21\u0e32",
    "\u0e01\u0e48", "\u0e01", "\uff34\uff36", "\uac00\u11a8", "\u1100\u1161\u11a8", "\u212a", "k",
    "\u1e9b\u0323", "x\u0f71\u0f72", "x\u0f73", "\u0390", "\u1fd3", "\u03c3", "\u03c2", *LONG,
]  # fmt: skip
GAPS = [" ", "  ", "\u00a0", "\u202f", "\n", "\r\n", "\t ", "\u2028", "-", "\u2010", "\u2011"]
OTHERS = [
    "--", " - ", "/", ", ", ",\u00a0", ",  ", ".", "'", "\u2019", "\u2018", "''", "'s ", "\u2019s-", " & ", "\u00d7",
    "\u2014", "\u2026", "_", "\0", "\x01", "\ud800", "\udfff", "\U0001f436", "\ufe0f", "\u200d", "\u0301", "\u0338",
    "\u0f73", "\u0345", "=", "\x1f", "\u00b0", "\u3000", "\u3002", "-\u0301", "\u0132", ".-", ".\u2010",
]  # fmt: skip

words = st.sampled_from(WORDS)
joins = st.one_of(st.sampled_from(GAPS), st.sampled_from(OTHERS))
safe_joins = st.sampled_from([" ", " ", " ", "-", " - ", "'", "\u2019", ", ", " & ", "\u00d7", "/", ".-", "\u2026"])


@st.composite
def aliases(draw: st.DrawFn) -> str:
    first = draw(words)
    return first + "".join(draw(safe_joins) + draw(words) for _ in range(draw(st.integers(0, 3))))


@st.composite
def vocabularies(draw: st.DrawFn) -> Vocabulary:
    drawn = draw(st.lists(aliases(), min_size=1, max_size=12))
    owner: dict[str, str] = {}
    for k, alias in enumerate(drawn):  # conflicting spellings are another test's business
        owner.setdefault(spelling(unicodedata.normalize("NFC", alias), True), f"{k % 4}:{alias}")
    labels: dict[str, list[str]] = {}
    ignore: list[str] = []
    for entry in owner.values():
        group, alias = entry.split(":", 1)
        (ignore if group == "3" else labels.setdefault(f"label {group}", [])).append(alias)
    assume(labels)
    return Vocabulary.from_mapping(labels, ignore)


@st.composite
def texts_of(draw: st.DrawFn, vocabulary: Vocabulary) -> str:
    """Pieces of the vocabulary itself, its words, and rubbish, joined by whatever may stand between."""
    entries = [*vocabulary.aliases, *vocabulary.compounds, *vocabulary.ignore]
    piece = st.one_of(st.sampled_from(entries), words, st.text(max_size=3))
    parts = []
    for _ in range(draw(st.integers(0, 6))):
        part = draw(piece)
        change = draw(st.integers(0, 5))
        if change == 1:
            part = part.upper()
        elif change == 2:
            part = unicodedata.normalize("NFD", part)
        elif change == 3:
            part = part.replace(" ", draw(joins))
        parts += [part, draw(joins)]
    return "".join(parts)


@st.composite
def cases(draw: st.DrawFn) -> tuple[Vocabulary, list[str]]:
    vocabulary = draw(vocabularies())
    return vocabulary, draw(st.lists(texts_of(vocabulary), max_size=5))


@settings(max_examples=500)
@given(cases())
@pytest.mark.slow
def test_find_and_find_batch_equal_the_oracle(case: tuple[Vocabulary, list[str]]) -> None:
    vocabulary, texts = case
    check(AliasMatcher(vocabulary), texts)


WATCH = ("dog", "hot", "t", "fish", "seat", "absent", LONG[-1])


@given(cases(), st.booleans())
@pytest.mark.slow
def test_watched_words_are_all_reported_and_change_no_mention(case: tuple[Vocabulary, list[str]], look: bool) -> None:
    vocabulary, texts = case
    mentions, columns, looked, *_ = BatchMatcher(
        AliasTrie(vocabulary), {word: k for k, word in enumerate(WATCH)}, look=look
    ).find(texts)
    plain = AliasMatcher(vocabulary).find_batch(texts)
    np.testing.assert_array_equal(mentions.start, plain.start)
    np.testing.assert_array_equal(mentions.label_id, plain.label_id)
    assert len(looked) == len(mentions.start)
    for row in np.flatnonzero(~looked):  # where nothing is to be seen, nothing is
        text = texts[mentions.caption[row]]
        assert not noun_behind(text, int(mentions.end[row]))
    every = AliasMatcher(Vocabulary.from_mapping({word: [word] for word in WATCH}))  # no alias hides another
    spans = zip(columns.caption.tolist(), columns.start.tolist(), columns.end.tolist(), columns.label_id, strict=True)
    found = [(k, start, end, WATCH[at]) for k, start, end, at in spans]
    assert found == [(k, *mention) for k, text in enumerate(texts) for mention in slow_find(every.vocabulary, text)]


@settings(max_examples=300)
@given(st.lists(st.text(st.characters(), max_size=12), max_size=4))
@pytest.mark.slow
def test_any_unicode_text(texts: list[str]) -> None:
    check(make({"a": ["a", "\u00e9", "i", "a i"], "b": ["\u0f71\u0f72", "0", "\uac01"]}, ["i a"]), texts)


COMBINING = (
    "ae\u0301\u0300\u0345\u0323\u0f71\u0f72\u0f73\u0f75\u0f81\u0344\u09c7\u09be\u1100\u1161\u11a8\u212b= \u0338-"
)


@settings(max_examples=500)
@given(st.text(COMBINING, max_size=8))
@example("a\u0f73\u0301")
@example("\u1100\u1161\u11a8a")
@example("\u09c7\u09be\u0301")
def test_the_map_to_nfc_is_exact(text: str) -> None:
    mapped = nfc_with_map(text)
    whole = unicodedata.normalize("NFC", text)
    if mapped is None:
        assert whole == text
        return
    assert mapped[0] == whole
    assert len(mapped[1]) == len(mapped[2]) == len(whole)
    back = offsets(text)
    for k, (start, end) in enumerate(zip(mapped[1], mapped[2], strict=True)):
        assert 0 <= start < end <= len(text)
        if k == 0 or mapped[1][k - 1] != start:  # a piece begins: the two maps agree
            assert back[k] == start
        if k + 1 == len(whole) or mapped[2][k + 1] != end:
            assert back[k + 1] == end


def test_a_text_of_nothing_but_marks_takes_linear_time() -> None:
    text = "e" + "\u0301" * 200_000
    mapped = nfc_with_map(text)
    assert mapped is not None
    assert len(mapped[0]) == 200_000


def test_one_row_of_a_data_frame_is_a_batch() -> None:
    texts = pytest.importorskip("pandas").Series(["A car.", "A dog."])
    assert AliasMatcher("coco80").find_batch(texts[1:]).end.tolist() == [5]


# ---- the words of the specification ----

SPEC = {
    "dog": ["dog", "dogs"],
    "hot dog": ["hot dog", "hot dogs"],
    "car": ["car"],
    "chair": ["car seat"],
    "shirt": ["t shirt", "T-shirt"],
    "cafe": ["cafe"],
    "caf\u00e9": ["caf\u00e9"],
    "men": ["men's room"],
    "snake": ["o_o"],
    "umbrella": ["umbrella"],
    "furniture": ["umbrella stand"],
    "cake": ["cake"],
    "istanbul": ["\u0130stanbul"],
    "fish": ["fish"],
    "cat": ["\u732b"],
}
IGNORE = ["piece of cake"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a hot dog", [(2, 9, "hot dog")]),
        ("A HOT DOG", [(2, 9, "hot dog")]),
        ("hot-dog", [(0, 7, "hot dog")]),
        ("hot\ndog", [(0, 7, "hot dog")]),
        ("hot \n\t dog", [(0, 10, "hot dog")]),
        ("hot\u00a0dog", [(0, 7, "hot dog")]),
        ("hot\u2011dog", [(0, 7, "hot dog")]),
        ("hot--dog", [(5, 8, "dog")]),
        ("hot - dog", [(6, 9, "dog")]),
        ("hot/dog", [(4, 7, "dog")]),
        ("hotdog", []),
        ("carpet", []),
        ("scar", []),
        ("car seat", [(0, 8, "chair")]),
        ("car, seat", [(0, 3, "car")]),
        ("car/dog", [(0, 3, "car"), (4, 7, "dog")]),
        ("t-shirt", [(0, 7, "shirt")]),
        ("T\u2011shirt", [(0, 7, "shirt")]),
        ("dog's", [(0, 3, "dog")]),
        ("dog\u2019s", [(0, 3, "dog")]),
        ("dogs'", [(0, 4, "dog")]),
        ("a dog's hot dog's", [(2, 5, "dog"), (8, 15, "hot dog")]),
        ("men's room", [(0, 10, "men")]),
        ("men\u2019s room", [(0, 10, "men")]),
        ("men\u2018s\u00a0room", [(0, 10, "men")]),
        ("cafe", [(0, 4, "cafe")]),
        ("caf\u00e9", [(0, 4, "caf\u00e9")]),
        ("cafe\u0301 dog", [(0, 5, "caf\u00e9"), (6, 9, "dog")]),
        ("dog\u0301", []),
        ("dog_", []),
        ("_dog", []),
        ("dog7", []),
        ("o_o", [(0, 3, "snake")]),
        ("umbrella standing", [(0, 8, "umbrella")]),
        ("umbrella stand", [(0, 14, "furniture")]),
        ("a piece of cake", []),
        ("a piece of cakes", []),
        ("piece of a cake", [(11, 15, "cake")]),
        ("\u0130STANBUL", [(0, 8, "istanbul")]),
        ("i\u0307stanbul", [(0, 9, "istanbul")]),
        ("istanbul", []),
        ("\ufb01sh dog", [(0, 3, "fish"), (4, 7, "dog")]),
        ("dog\0dog", [(0, 3, "dog"), (4, 7, "dog")]),
        ("\ud800dog\udc00", [(1, 4, "dog")]),
        ("\U0001f436dog\U0001f436", [(1, 4, "dog")]),
        ("\u732b", [(0, 1, "cat")]),
        ("\u732b\u732b", [(0, 1, "cat"), (1, 2, "cat")]),
        ("\u732b\u0301dog", [(2, 5, "dog")]),
        ("", []),
        (" ", []),
        ("'", []),
    ],
)
def test_literal_examples(text: str, expected: Found) -> None:
    matcher = make(SPEC, IGNORE)
    assert as_tuples(matcher.find(text)) == expected
    assert batch(matcher, [text]) == [expected]
    assert slow_find(matcher.vocabulary, text) == expected


# ---- other scripts ----


@pytest.mark.parametrize(
    ("aliases", "text", "surfaces"),
    [
        (["狗", "热狗"], "一只狗在吃热狗。狗！", ["狗", "热狗", "狗"]),  # Chinese: longest, then on
        (["t恤", "iphone手机"], "他穿着T恤，拿iPhone手机", ["T恤", "iPhone手机"]),
        (
            ["犬", "トラック", "がっこう"],
            "トラックと犬、か\u3099っこう",
            ["トラック", "犬", "か\u3099っこう"],
        ),  # Japanese
        (["ＴＶ", "ｔシャツ"], "ｔｖとＴシャツ、TV", ["ｔｖ", "Ｔシャツ", "TV"]),  # full-width letters are ASCII ones
        (["หมา", "หมาป่า", "นก"], "มีหมาและหมาป่ากับน\u0e49ก", ["หมา", "หมาป่า"]),  # Thai: a mark belongs to its letter
        (["كلب", "كلاب"], "كلب، كلاب؛ كلبان", ["كلب", "كلاب"]),  # Arabic and Devanagari have spaces: whole words
        (["कुत्ता", "कुत्ते"], "कुत्ता और कुत्ते। कुत्तों", ["कुत्ता", "कुत्ते"]),
        (["dog"], "狗dog狗 dog", ["dog", "dog"]),
    ],
)
def test_other_scripts(aliases: list[str], text: str, surfaces: list[str]) -> None:
    matcher = make({"thing": aliases})
    assert [mention.surface for mention in matcher.find(text)] == surfaces
    check(matcher, [text, "a dog", text[1:]])


def test_an_alias_that_can_match_nothing_is_refused() -> None:
    with pytest.raises(InputErrors, match="begins with a combining mark, so it cannot match"):
        make({"a": ["\u0e48\u0e01"]})


# ---- regressions: what the fuzz has found ----


@pytest.mark.parametrize(
    ("labels", "texts"),
    [
        ({"a": ["4\u00d74"]}, ["a 4\u00d74 car", "4\u20144", "4\u00b04"]),
        ({"a": ["salt, pepper"]}, ["salt,\u00a0pepper", "salt,  pepper", "Salt, Pepper", "salt pepper"]),
        ({"a": ["a.-b"]}, ["a.\u2010b", "a.-b"]),
        ({"a": ["x\u2014y"], "b": ["x\u2013y"]}, ["x\u2014y x\u2013y x\u2026y"]),
        ({"a": ["hot caf\u00e9"], "b": ["dog"]}, ["hot dog", "hot caf\u00e9", "hot"]),
        ({"a": ["caf\u00e9"]}, ["cafe", "caf\u00e9"]),
        ({"a": ["a"]}, ["a", "", "A"]),
    ],
)
def test_joins_and_words_outside_ascii_in_a_batch(labels: dict[str, list[str]], texts: list[str]) -> None:
    check(make(labels), texts)


@pytest.mark.parametrize("character", ["\0", "\x01", "\u200b", "\ud800"])
def test_an_alias_holds_nothing_invisible(character: str) -> None:
    with pytest.raises(InputErrors, match="contains an invisible character"):
        make({"a": [f"hot{character}dog"]})


def test_words_of_every_length_that_share_both_ends() -> None:
    matcher = make({word: [word] for word in LONG} | {"pair": [f"{LONG[-1]} {LONG[-2]}"]})
    texts = [" ".join(LONG), " ".join(reversed(LONG)), "-".join(LONG), "".join(LONG)]
    texts += [word[:k] + "q" + word[k + 1 :] for word in LONG for k in range(len(word))]
    check(matcher, texts)


def test_more_than_one_pass() -> None:
    matcher = make(SPEC, IGNORE)
    seeds = ["a hot dog", "caf\u00e9", "", "dog\u2019s car seat", "hot\u2011dog", "\ud800 dog", "umbrella standing"]
    texts = [seeds[k % len(seeds)] + " " * (k % 3) + ("dog" if k % 5 == 0 else "") for k in range(2500)]
    assert batch(matcher, texts) == [as_tuples(matcher.find(text)) for text in texts]


def test_matches_do_not_cross_captions() -> None:
    matcher = make(SPEC, IGNORE)
    assert batch(matcher, ["hot", "dog", "piece of", "cake"]) == [[], [(0, 3, "dog")], [], [(0, 4, "cake")]]


@pytest.mark.parametrize("texts", [[], [""], ["", "", ""], ["\u00e9"]])
def test_batches_without_mentions(texts: list[str]) -> None:
    columns = make(SPEC).find_batch(texts)
    assert columns.indptr.tolist() == [0] * (len(texts) + 1)
    assert columns.caption.tolist() == []


def test_columns_have_the_promised_types() -> None:
    columns = make(SPEC).find_batch(["a dog", "\u00e9 car", "hot dog"])
    assert columns.indptr.dtype == np.int64
    assert {columns.start.dtype, columns.end.dtype, columns.label_id.dtype} == {np.dtype(np.int32)}
    assert columns.caption.tolist() == [0, 1, 2]


def test_ignored_phrases_can_be_asked_for() -> None:
    assert make(SPEC, IGNORE).find_ignored("a piece of cake, a dog, Piece-of cake") == [(2, 15), (24, 37)]


def test_a_matcher_can_be_sent_to_another_process() -> None:
    matcher = make(SPEC, IGNORE)
    copy = pickle.loads(pickle.dumps(matcher))
    assert copy.find("a hot dog") == matcher.find("a hot dog")


# ---- vocabularies ----


def test_every_conflict_is_listed() -> None:
    with pytest.raises(InputErrors) as caught:
        Vocabulary.from_mapping(
            {
                "dog": ["dog", "Puppy", "t-shirt"],
                "cat": ["cat", "puppy"],
                "top": ["T  Shirt"],
                "none": [],
                "blank": [" "],
            },
            ignore=["DOG", "-", "fine"],
        )
    reasons = [error.reason for error in caught.value.errors]
    assert len(reasons) == 6
    for words in (
        ("Puppy", "'dog' and 'cat'"),
        ("t-shirt", "'dog' and 'top'"),
        ("'dog'", "ignore phrase 'DOG'"),
        ("'none'", "no alias"),
        ("'blank'", "is empty"),
        ("'-'", "must begin and end"),
    ):
        assert sum(all(word in reason for word in words) for reason in reasons) == 1, (words, reasons)


@pytest.mark.parametrize("claims", ["all", "visual"])
@pytest.mark.parametrize(("ignore", "ignored"), [((), []), (("red house",), [(2, 11)])])
def test_a_vocabulary_without_aliases_finds_nothing(
    claims: Reading, ignore: tuple[str, ...], ignored: list[Any]
) -> None:
    matcher = AliasMatcher(Vocabulary.from_mapping({}, ignore=ignore), claims)
    assert matcher.find("A red house") == []
    assert matcher.find_ignored("A red house") == ignored
    assert not len(matcher.find_batch(["A red house", "an été", ""]).start)


def test_a_label_is_an_alias_only_if_listed() -> None:
    matcher = make({"couch": ["sofa"]})
    assert matcher.find("a couch") == []
    assert [m.label for m in matcher.find("a sofa")] == ["couch"]


def test_the_fingerprint_is_of_the_content() -> None:
    one = Vocabulary.from_mapping({"a": ["x y", "z"], "b": ["w"]}, ["p q"], name="one")
    other = Vocabulary.from_mapping({"b": ["w"], "a": ["z", "X-y"]}, ["P  q"], name="two")
    assert one.fingerprint == other.fingerprint
    for changed in (
        Vocabulary.from_mapping({"a": ["x y", "z"], "b": ["w"]}),
        Vocabulary.from_mapping({"a": ["x y"], "b": ["w", "z"]}, ["p q"]),
        Vocabulary.from_mapping({"a": ["x y", "z", "v"], "b": ["w"]}, ["p q"]),
        Vocabulary.from_mapping({"a": ["x y", "z"], "c": ["w"]}, ["p q"]),
    ):
        assert changed.fingerprint != one.fingerprint


YAML = """
name: mine
version: "1.0"
source: a test
labels:
  couch: {aliases: [couch, sofa], definition: "a long  seat", group: furniture, coco: couch}
  dog: [dog]
ignore: [couch potato]
"""


@pytest.mark.parametrize(
    "encode", [str.encode, lambda text: text.encode("utf-8-sig"), lambda t: t.replace("\n", "\r\n").encode()]
)
def test_a_vocabulary_file(tmp_path: Path, encode: object) -> None:
    path = tmp_path / "mine.yaml"
    path.write_bytes(encode(YAML))  # type: ignore[operator]
    vocabulary = Vocabulary.load(path)
    assert vocabulary.labels == ("couch", "dog")
    assert dict(vocabulary.aliases) == {"couch": "couch", "sofa": "couch", "dog": "dog"}
    assert vocabulary.ignore == ("couch potato",)
    assert (vocabulary.name, vocabulary.version, vocabulary.source) == ("mine", "1.0", "a test")
    assert vocabulary.info["couch"].coco == ("couch",)
    assert vocabulary.info["couch"].definition == "a long seat"


def test_a_vocabulary_in_json_equals_the_same_in_yaml(tmp_path: Path) -> None:
    (tmp_path / "v.yaml").write_text(YAML)
    document = {"labels": {"dog": ["dog"], "couch": {"aliases": ["sofa", "couch"]}}, "ignore": ["couch potato"]}
    (tmp_path / "v.json").write_text(json.dumps(document))
    assert Vocabulary.load(tmp_path / "v.json").fingerprint == Vocabulary.load(tmp_path / "v.yaml").fingerprint


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "not a valid vocabulary"),
        (b"[1, 2]", "not a valid vocabulary"),
        (b"labels: 3", "not a valid vocabulary"),
        (b"labels: {dog: [dog]}\nignores: [hot dog]\n", "unknown key 'ignores'; did you mean 'ignore'?"),
        (
            b"labels: {dog: {aliases: [dog], alias: [puppy]}}",
            "label 'dog': unknown key 'alias'; did you mean 'aliases'?",
        ),
        (b"labels:\n  dog: [dog\n", "not a valid YAML file"),
        (b"labels:\n  dog: [a]\n  dog: [b]\n", r":3: 'dog' appears twice \(lines 2 and 3\)"),
        (b"labels:\n  dog: dog\n", "expected a list of aliases"),
        (b"labels:\n  dog: [1]\n", "is not text"),
        (b"labels:\n  no: [x]\n", "is not text"),
        (b"labels:\n  dog: [x]\nignore: x\n", "expected a list"),
        (b"labels:\n  dog: {aliases: [x], coco: 5}\n", "coco"),
        (b"labels:\n  dog: [x]\n? [a, b]\n: c\n", "key"),
        (b"labels:\n  dog: [\xe9]\n", "not UTF-8"),
        ("labels:\n  dog: [x]\n".encode("utf-16"), "UTF-16"),
        (b'labels:\n  dog: ["\0"]\n', "not a valid YAML file"),
        (b"a: &a [*a]\nlabels: {}\n", "not a valid YAML file"),
        (b"labels: {dog: [x], cat: [X]}", "alias 'x' belongs to 'dog' and 'cat'"),
    ],
)
def test_a_vocabulary_that_is_none(tmp_path: Path, content: bytes, reason: str) -> None:
    path = tmp_path / "bad.yaml"
    path.write_bytes(content)
    with pytest.raises((InputErrors, ValueError), match=reason) as caught:
        Vocabulary.load(path)
    assert str(caught.value).startswith(str(path))


def test_an_unknown_vocabulary_names_those_that_there_are() -> None:
    with pytest.raises(ValueError, match=r"unknown vocabulary 'coco08'; known: coco80"):
        Vocabulary.load("coco08")
