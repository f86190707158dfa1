"""The parsers of yes/no answers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scapo_eval.base.errors import InputError
from scapo_eval.readers.parsers import (
    PARSERS,
    contains,
    first_word,
    is_answer,
    parse_label,
    parser,
    parser_identity,
    vlmevalkit,
)  # fmt: skip

PIECES = ["yes", "No", " ", "\n", "**", "not", ".", ",", "1,2", "_", "/"]
ANYTHING = st.text() | st.lists(st.sampled_from(PIECES)).map("".join)


@pytest.mark.parametrize(
    ("response", "said"),
    [
        ("Yes", "yes"),
        ("no.", "no"),
        (" \n**No**, yes would be wrong", "no"),
        ("__Yes__", "yes"),
        ("# `NO`", "no"),
        ("> - Yes, there is", "yes"),
        ("'Yes'", "yes"),
        ("نعم، هناك كلب", "yes"),
        ("لا", "no"),
        ("", None),
        ("**", None),
        ("Nope", None),
        ("Yesterday", None),
        ("Not that I can see", None),
        ("There is no dog", None),
        ("Answer: No.", None),
        ("no\u0303", None),  # a combining mark makes another word of it
    ],
)
def test_the_first_word_decides(response: str, said: str | None) -> None:
    assert first_word(response) == said


def test_contains_takes_the_first_word_that_decides() -> None:
    assert contains("Answer: No, not yes.") == "no"
    assert contains("I know, yesterday") is None


def test_vlmevalkit_drops_only_32_full_stops() -> None:
    """Its substitution is handed re.UNICODE (32) where the count belongs."""
    assert vlmevalkit(". " * 31 + "no.") == "no"
    assert vlmevalkit(". " * 32 + "no.") is None


def test_vlmevalkit_deletes_every_sign_once_a_number_has_a_comma() -> None:
    assert vlmevalkit("yes/maybe") == "yes"
    assert vlmevalkit("yes/maybe of 1,000") is None


@given(ANYTHING)
def test_parsers_take_any_text(text: str) -> None:
    for parse in PARSERS.values():
        assert parse(text) in ("yes", "no", None)
    first = first_word(text)
    assert first is None or contains(text) == first


def test_words_of_other_languages() -> None:
    parse = parser("default", yes=["Oui", "sí"], no=["non"])
    responses = ["oui !", "si\u0301, claro", "Non.", "Yes", "ja"]
    assert list(map(parse, responses)) == ["yes", "yes", "no", "yes", None]
    assert parser("contains", no=["nein"])("Also nein") == "no"
    assert parser("default") is first_word


def test_the_identity_of_words_is_that_of_their_set() -> None:
    given = parser_identity("default", yes=["Oui", "sí", "oui"], no=["non"])
    assert given == parser_identity("default", yes=["si\u0301", "OUI"], no=["non"]) == "default+oui=yes+sí=yes+non=no"


@pytest.mark.parametrize(
    ("name", "words", "reason"),
    [
        ("defualt", {}, "known: default"),
        ("pope", {"yes": ["oui"]}, "has its own words"),
        ("default", {"yes": ["bien sûr"]}, "not one word"),
        ("default", {"yes": ["no"]}, "cannot mean both"),
        ("default", {"yes": ["ne"], "no": ["Ne"]}, "cannot mean both"),
    ],
)
def test_words_that_cannot_be(name: str, words: dict[str, list[str]], reason: str) -> None:
    with pytest.raises(InputError, match=reason):
        parser(name, **words)


def test_labels_are_yes_or_no() -> None:
    assert [parse_label(text) for text in ("Yes", " no ", "maybe", "")] == ["yes", "no", None, None]


@pytest.mark.parametrize("text", ["Yes", "**Yes**", "yes there is", "No", "No, it is not.", "No.\nThere is none."])
def test_what_answers_yes_or_no(text: str) -> None:
    assert is_answer(text)


@pytest.mark.parametrize("text", ["No people are here.", "No-one is here.", "A yes or no.", "Nope", ""])
def test_what_begins_like_an_answer(text: str) -> None:
    assert not is_answer(text)
