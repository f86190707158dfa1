"""What a reader sees is what is matched: hidden text, characters without a width, look-alike letters."""

from __future__ import annotations

import pytest

from scapo_eval import AliasMatcher, Vocabulary
from scapo_eval.matching.visible import is_disguised, plain_letters, shown, without_breaks

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
        ("2 < 3, a dog > a car", ["dog", "car"]),
        ("A d\u200bo\u200bg and a bi\u00adcycle", ["d\u200bo\u200bg", "bi\u00adcycle"]),
        ("A \u0441ar and a d\u043eg", ["\u0441ar", "d\u043eg"]),  # Cyrillic es and o
        ("\uff44\uff4f\uff47 on a \U0001d41b\U0001d41e\U0001d427\U0001d41c\U0001d421", None),
        ("\u0421\u043e\u0431\u0430\u043a\u0430 \u0438 \u0441\u0430r", []),  # Russian text stays what it is
        ("A caf\u00e9 \u2018car\u2019", ["car"]),
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
