"""What a reader sees is what is matched: hidden text, characters without a width, look-alike letters."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scapo_eval import AliasMatcher, Vocabulary
from scapo_eval.matching.uses import USES
from scapo_eval.matching.visible import disguised_words, displayed, is_disguised, plain_letters, shown, without_breaks

MATCHER = AliasMatcher(Vocabulary.from_mapping({thing: [thing] for thing in ("dog", "car", "bicycle", "bench")}))


@pytest.mark.parametrize(
    ("text", "surfaces"),
    [
        ("A bench. <!-- A dog. A car. --> A car.", ["bench", "car"]),
        ("A bench. <!-- A dog", ["bench"]),
        ("A <span style='display: none'>dog</span> bench.", ["bench"]),
        ("<p hidden>A dog</p> on a bench, a <b>car</b>", ["bench", "car"]),
        ("<script>var dog</script> bench", ["bench"]),
        ("[//]: # (A dog)\nA bench [car](x).", ["bench", "car"]),
        ('[//]: <> "A dog" \r\n[dog]: #dog\n[x]: #\n bench', ["bench"]),
        ("[Scene]:\n## A dog\n[1]: # A car", ["dog", "car"]),  # these are no link definitions
        ("2 < 3, a dog > a car", ["dog", "car"]),
        ("A d\u200bo\u200bg and a bi\u00adcycle", ["d\u200bo\u200bg", "bi\u00adcycle"]),
        ("A \u0441ar and a d\u043eg", ["\u0441ar", "d\u043eg"]),  # Cyrillic es and o
        ("\uff44\uff4f\uff47 on a \U0001d41b\U0001d41e\U0001d427\U0001d41c\U0001d421", None),
        ("\u0421\u043e\u0431\u0430\u043a\u0430 \u0438 \u0441\u0430r", []),  # Russian text stays what it is
        ("A caf\u00e9 \u2018car\u2019", ["car"]),
        ("A _dog_ sits on a __bench__, _a car_.", ["dog", "bench", "car"]),
        ("_dog_1, a dog_car, car_1 and __init__", []),
        ("_dog\nbench_, a ___, _a __dog__ on a car_", ["dog", "car"]),
        (
            "A d&#111;g, a &#x63;ar, a d&shy;og, a ca&zwnj;r, a dog&#115;led and a ca&#114;.",
            ["d&#111;g", "&#x63;ar", "d&shy;og", "ca&zwnj;r", "ca&#114;"],
        ),
        ("R&D; &unknown; dog &amp; car", ["dog", "car"]),
        (
            "A d<b></b>og, a ca<wbr>r, a <i>d</i>og, a be<!-- -->nch and a man<br>car",
            ["d<b></b>og", "ca<wbr>r", "d</i>og", "be<!-- -->nch", "car"],
        ),
        ("A d**o**g, a **c**ar, a be*n*ch, 2*car\n dog*car", ["d**o**g", "c**ar", "be*n*ch", "car", "dog", "car"]),
        ("<td>dog</td><td>car</td> **dog** and *car*", ["dog", "car", "dog", "car"]),
        ("A d\u0332o\u0332g and a ca\u0332r.", ["d\u0332o\u0332g", "ca\u0332r"]),
        ("A \u0441\u0430r", ["\u0441\u0430r"]),  # two Cyrillic letters of three
        ("A \u0441\u0430r, a b\u0435n\u0441\u043d on a lawn", ["\u0441\u0430r", "b\u0435n\u0441\u043d"]),
    ],
)
def test_what_is_read(text: str, surfaces: list[str] | None) -> None:
    expected = surfaces if surfaces is not None else [word for word in text.split() if len(word) > 2]
    for texts in ([text], [text, "A dog."]):
        columns = MATCHER.find_batch(texts)
        found = [text[columns.start[k] : columns.end[k]] for k in range(*columns.indptr[:2])]
        assert found == expected == [mention.surface for mention in MATCHER.find(text)]


def test_lengths_and_places() -> None:
    text = "A <!-- b --> \u0441\u0430r"
    assert len(shown(text)) == len(plain_letters(text)) == len(text)
    assert plain_letters("A \u0441\u0430r here") == "A car here"
    assert without_breaks("A dog.") is None
    assert without_breaks("a\u200bb \u200b c") == ("ab \u200b c", [0, 2, 3, 4, 5, 6])
    assert is_disguised("a\u200bb")
    assert not is_disguised("Caf\u00e9")


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("A \u0441at", 1),
        ("A \u0441\u0430t", 1),
        ("\u04bbo\u0433s\u0435", 1),
        ("A c&#97;t, a c<b></b>at, a c**a**t, c&shy;at, c\u0332at, c<!-- x -->at", 6),
        ("A caf\u00e9 &amp; a **dog**, AT&amp;T, the dog&#39;s _bench_ <b>here</b>", 0),
        ("\u0421\u043e\u0431\u0430\u043a\u0430", 0),
    ],
)
def test_disguised_words(text: str, number: int) -> None:
    assert disguised_words(text) == number


def test_displayed() -> None:
    assert displayed("A dog & a <cat> 2*3*4") is None
    assert displayed("c&#97;t<b>s") == ("cats", [0, 1, 6, 10], [1, 6, 7, 11])
    assert displayed("c&#97;\u200bt") == ("cat", [0, 1, 7], [1, 6, 8])


PARTS = (
    "dog",
    "c",
    "ar",
    "be",
    "nch",
    " ",
    "\n",
    "*",
    "**",
    "_",
    "&#97;",
    "&shy;",
    "&amp;",
    "<b>",
    "</b>",
    "<!-- x -->",
    "no ",
)
WIDE_PARTS = ("\u0441", "\u0430r", "\u0332", "\u200b", "\u00e9", "e\u0301")


@given(st.lists(st.lists(st.sampled_from(PARTS + WIDE_PARTS), max_size=12).map("".join), min_size=1, max_size=4))
def test_a_batch_reads_what_one_text_reads(texts: list[str]) -> None:
    columns, uses = MATCHER.find_all_uses([*texts, "A dog."])
    for k, text in enumerate(texts):
        rows = slice(*columns.indptr[k : k + 2])
        spans = zip(columns.start[rows].tolist(), columns.end[rows].tolist(), uses[rows].tolist(), strict=True)
        assert [*spans] == [(found.start, found.end, USES.index(found.use)) for found in MATCHER.find(text)]
